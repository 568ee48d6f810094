"""Every router on a setting: fitted on its training texts, asked about every item, its choices kept.

Routers name domains. Where a setting's experts are domains' own, that is their choice; where they are models of unknown
strengths, a domain stands for the model that did best on its training rows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ir3de import Router
from ir3de.embedding import Embedding
from ir3de.errors import ArtifactError, InputError, MissingExtraError
from ir3de.scorers import TokenRidge
from ir3de.selectors import EntropyTopK
from ir3de.statistics import collect
from ir3de_lab.benchmarks.protocol import first_tokens
from ir3de_lab.benchmarks.rivals import surroundings
from ir3de_lab.catalogue.recording import record
from ir3de_lab.experiments import authors, sweeps
from ir3de_lab.experiments.choices import LOAD, Choices, columns_of
from ir3de_lab.experiments.contenders import (
    ADDITIVE,
    Entry,
    Texts,
    as_fitted,
    ours,
    paper,
    timed,
    words,
)
from ir3de_lab.experiments.embedding_contenders import embeddings
from ir3de_lab.experiments.encoder_contenders import Ways, encoders, lacking
from ir3de_lab.experiments.halves import SINGLE, choose_by_halves
from ir3de_lab.experiments.material import Material
from ir3de_lab.experiments.matrix import Matrix
from ir3de_lab.experiments.provenance import this_process
from ir3de_lab.experiments.settings import Setting
from ir3de_lab.rivals.naive_bayes import NaiveBayes

Chosen = TypeVar("Chosen")
CHEAP = ("paper", "ours", "words", "encoders")  # of settings in which domains have experts
TOKENS = (4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True, eq=False)
class Stage:
    """What routers of a setting are fitted on and asked about."""

    setting: Setting
    material: Material
    matrix: Matrix
    expert_of: Mapping[str, str] = field(default_factory=dict)
    experts: Path | None = None  # the folder of their models, where they are at hand

    @property
    def texts(self) -> list[str]:
        return [item.text for item in self.material.items]

    @property
    def test(self) -> dict[str, list[str]]:
        return {d: [i.text for i in self.material.items if i.domain == d] for d in self.setting.domains}


def prepare(setting: Setting, material: Material, matrix: Matrix, experts: Path | None = None) -> Stage:
    """Check that the outcomes are those of these items, and find out whom a domain stands for."""
    ids = tuple(item.id for item in material.items)
    if ids != matrix.items:
        known = set(matrix.items)
        strange = next((item for item in ids if item not in known), None)
        what = f"the item '{strange}' has no outcome" if strange else "they are of other items, or in another order"
        raise ArtifactError(f"the outcomes of '{setting.name}' are not those of this data: {what}. Make them again")
    _check_options(setting, material)
    if not setting.scored:
        return Stage(setting, material, matrix, {domain: domain for domain in setting.domains}, experts)
    best = {}
    for domain, rows in material.train.items():
        try:
            scores = [[float(row[setting.data.scores][expert]) for expert in matrix.experts] for row in rows]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"a training row of '{domain}' lacks a model's score in its field '{setting.data.scores}' ({error!r})"
            ) from error
        best[domain] = matrix.experts[int(np.mean(scores, axis=0).argmax())]
    return Stage(setting, material, matrix, best, experts)


def _check_options(setting: Setting, material: Material) -> None:
    """Refuse items without options before anything is fitted, where a protocol routes options one by one."""
    domains = {domain for protocol in setting.protocol.values() for domain in protocol.options}
    for item in material.items:
        options = item.row.get("options")
        is_whole = isinstance(options, Mapping) and options and all(isinstance(one, str) for one in options.values())
        if item.domain in domains and not is_whole:
            raise InputError(f"the item '{item.id}' needs its options as a table of texts, found {options!r}")


def run(
    stage: Stage,
    *,
    only: Sequence[str] = CHEAP,
    note: Callable[[str], None] = lambda _: None,
    ways: Ways | None = None,  # of the routers that stand on an encoder, or on another embedding
) -> Iterator[Choices]:
    """Every router of the groups, one by one; a group whose packages are missing is left out with a note."""
    ways, texts = ways or Ways(), stage.material.training_texts
    groups: dict[str, Callable[[], Iterator[Choices]]] = {
        "paper": partial(_paper, stage, note),
        "ours": partial(_ours, stage),
        "words": lambda: _asked(stage, words(texts())),
        "encoders": lambda: _asked(stage, encoders(texts(), stage.setting.encoders, ways)),
        "embeddings": lambda: _asked(stage, embeddings(texts(), ways.leave_out, ways.embeddings)),
        "halves": partial(_halves, stage),
        "strengths": lambda: _asked(stage, sweeps.strengths(texts())),
        "curves": partial(_curves, stage),
    }
    for name in only:
        if name == "encoders" and (why := lacking()):
            note(f"left out the routers that stand on an encoder: {why}")
            continue
        try:
            yield from groups[name]()
        except MissingExtraError as error:
            note(f"left out the routers of the group '{name}': {error}")


def _paper(stage: Stage, note: Callable[[str], None]) -> Iterator[Choices]:
    texts = stage.material.training_texts()
    found = paper(texts)
    for name, protocol in stage.setting.protocol.items():
        if name == "clean":
            continue
        embedding = None
        if protocol.embedding != "base":
            if stage.experts is not None and (stage.experts / protocol.embedding).is_dir():
                embedding = Embedding.load(stage.experts / protocol.embedding)
            else:  # experts are seldom where routers are fitted
                note(
                    f"protocol.{name}.embedding is '{protocol.embedding}', an expert that is not at hand (--experts): "
                    "the base model's embedding takes its place"
                )
        found = chain(found, authors.entries(texts, stage.test, protocol, embedding, name))
    yield from _asked(stage, found)


def _ours(stage: Stage) -> Iterator[Choices]:
    yield from _asked(stage, ours(stage.material.training_texts()))
    if stage.setting.scored:
        rows = [row for rows in stage.material.train.values() for row in rows]
        router, seconds = timed(lambda: Router.fit_outcomes(rows, field=stage.setting.data.scores))
        names, microseconds = _routed(lambda: [d.best for d in router.route_batch(stage.texts)], stage)
        yield Choices(
            "ir3de, from outcomes", "ours", "clean", columns_of(names, stage.matrix), ADDITIVE, seconds, microseconds,
            about=describe_run(),
        )  # fmt: skip


def _halves(stage: Stage) -> Iterator[Choices]:
    """Routers from outcomes of half of the items, asked about the other half."""
    if stage.setting.scored:  # there are training rows with outcomes, and the group "ours" fits on those
        raise InputError(f"'{stage.setting.name}' has outcomes of training prompts: --only ours fits on them")
    router = Router.fit(stage.material.training_texts())
    domains = [decision.best for decision in router.route_batch(stage.texts)]
    for one in choose_by_halves(stage.material.items, stage.matrix, domains):
        family, about = "rivals" if one.name == SINGLE else "ours", {**describe_run(), **one.about}
        yield Choices(one.name, family, "clean", one.columns, ADDITIVE, about=about)


def _asked(stage: Stage, entries: Iterator[Entry]) -> Iterator[Choices]:
    texts = stage.texts
    for entry in entries:
        if entry.encoding_us is not None:
            entry.fitted.route(texts)  # from now on their vectors are remembered
        if entry.route_items is not None:
            (domains, facts), microseconds = _routed(partial(entry.route_items, stage.material.items), stage)
            entry = replace(entry, about={**entry.about, **facts})
        else:
            domains, microseconds = _routed(partial(entry.fitted.route, texts), stage)
        yield _choices(stage, entry, domains, microseconds + (entry.encoding_us or 0.0))


def _routed(route: Callable[[], Chosen], stage: Stage) -> tuple[Chosen, float]:
    """What is chosen for all items in one call, and an item's share of its time in microseconds."""
    begin = time.perf_counter()
    chosen = route()
    return chosen, 1e6 * (time.perf_counter() - begin) / len(stage.matrix.items)


def _choices(stage: Stage, entry: Entry, domains: Sequence[str], microseconds: float | None) -> Choices:
    return Choices(
        entry.name,
        entry.family,
        entry.protocol,
        columns_of([stage.expert_of[domain] for domain in domains], stage.matrix),
        entry.traits,
        entry.fit_seconds,
        microseconds,
        entry.fitted.parameters,
        entry.fitted.size_bytes,
        entry.series,
        entry.axis,
        entry.at,
        {**describe_run(entry.family, entry.encoder), **entry.about},
    )


def describe_run(family: str = "ours", encoder: str | None = None) -> dict[str, Any]:
    """What a run's figures were taken with, and which sources they depend on."""
    benchmark = "run encoders" if encoder else "run words" if family == "rivals" else "run"
    return {**this_process(), **surroundings(), "encoder": encoder, **_load(), **record(benchmark)}


def _load() -> dict[str, float]:
    """How busy the machine is, where that can be told: times of a busy one are too long."""
    try:
        return {LOAD: round(os.getloadavg()[0] / (os.cpu_count() or 1), 1)}
    except (AttributeError, OSError):
        return {}


def _curves(stage: Stage) -> Iterator[Choices]:
    """Fewer prompts to fit on, drawn ten times; and fewer tokens to read."""
    texts = stage.material.training_texts()
    yield from _asked(stage, sweeps.draws(texts))
    fitted = list(_three(texts))
    for number in TOKENS:
        short = [first_tokens(text, number) for text in stage.texts]
        for name, entry in fitted:
            yield _point(stage, entry, entry.fitted.route(short), f"{name} by prompt length", "tokens", number)


def _point(stage: Stage, entry: Entry, domains: Sequence[str], series: str, axis: str, at: float) -> Choices:
    placed = Entry(
        f"{series}, {at:g}", entry.family, entry.traits, entry.fitted, entry.fit_seconds, series, axis, float(at)
    )
    return _choices(stage, placed, domains, None)


def _three(texts: Texts) -> Iterator[tuple[str, Entry]]:
    counted, counting = timed(lambda: {d: collect(found) for d, found in texts.items()})
    for name, family, scorer, selector in (
        ("ir3de", "ours", None, None),
        ("IR3DE, k=10 (authors' code)", "paper", TokenRidge.authors(), EntropyTopK.authors(10)),
    ):
        router, solving = timed(partial(Router.fit, counted, scorer=scorer, selector=selector))
        yield name, Entry(name, family, ADDITIVE, as_fitted(router), counting + solving)
    fitted, seconds = timed(lambda: NaiveBayes(0.1).fit(texts))
    yield "naive Bayes", Entry("naive Bayes", "rivals", ADDITIVE, fitted, seconds)
