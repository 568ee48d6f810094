"""What routers reach with few prompts an expert, beside what all prompts reach, and whether they know their limits.

The material and its draws are those of `defaults`: sets of intents are scored by the share of their test prompts,
suites by the mean over their domains. A prompt on which IR3DE abstains counts for the expert that it is nearest to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ir3de import Embedding, Router
from ir3de.errors import InputError
from ir3de.statistics import collect
from ir3de_lab.benchmarks.contenders import Contender, Flags, Ir3de, Taught
from ir3de_lab.benchmarks.defaults import Material, Row, Texts, average, draw_few, fit_and_score, read_material
from ir3de_lab.benchmarks.remembering import RememberingEncoder
from ir3de_lab.benchmarks.rewording import REWORDINGS, Rewording
from ir3de_lab.benchmarks.robustness import sampled
from ir3de_lab.benchmarks.unknowns import LEFT_OUT, LeftOut, choose_left_out, leave_out

OTHER_SOURCES = "ood"
ENCODED_TOKENS = 512  # of a kept prompt, as a fit with an encoder cuts it: others are encoded again by every fit


@dataclass(frozen=True)
class Size:
    """How much is measured; None stands for all prompts."""

    draws: int = 5
    experts: int | None = None  # of a set or a suite at most
    training: int | None = None  # prompts of an expert at most
    test: int | None = None  # prompts of an expert at most, in each split
    left_out: int | None = None  # experts whose prompts are unknown in turn; None for as many as in `unknowns`


QUICK = Size(draws=2, experts=6, training=60, test=10, left_out=2)


def read_sets(folder: Path, size: Size) -> list[Material]:
    """Every set of intents and every suite of a folder, shortened to the size."""
    found = [_shorten(material, size) for material in read_material(folder)]
    if not found:
        raise InputError(
            f"no prompts in {folder}: expected intents/{{set}}/train.jsonl and test.jsonl, "
            "or {suite}/{domain}/train.jsonl and test.jsonl, plain or compressed"
        )
    return found


def _shorten(material: Material, size: Size) -> Material:
    names = list(material.train)[: size.experts]

    def pick(texts: Texts, most: int | None) -> Texts:
        return {name: texts[name] if most is None else sampled(texts[name], most) for name in names if name in texts}

    splits = {split: pick(texts, size.test) for split, texts in material.splits.items()}
    return replace(material, train=pick(material.train, size.training), splits=splits)


@dataclass(frozen=True)
class Shares:
    """Of one draw, in percent."""

    accuracy: float
    sure_and_wrong: float | None
    abstained: float | None


@dataclass(frozen=True)
class FewRow:
    """One router with few prompts on one split: means over the draws, in percent; `missing` is why there are none."""

    data: str
    split: str
    prompts: int  # of each expert
    router: str
    accuracy: float | None
    standard_error: float | None  # over the draws; None for a single one
    sure_and_wrong: float | None
    abstained: float | None
    draws: list[float]  # the accuracy of each
    missing: str | None

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class LimitRow:
    """The share of one kind of prompts on which a router abstains, in percent, as a mean over the domains."""

    data: str
    router: str
    kind: str
    abstained: float
    over_originals: float | None  # points; None for prompts that are no rewordings
    worst_domain: str
    worst: float  # its abstentions; of rewordings, those over the originals

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Fit:
    """One fit to make. `seed` draws the prompts where there are few."""

    part: str
    material: Material
    contender: Contender
    seed: int = 0
    left_out: str = ""  # the expert whose prompts are unknown to the router

    @property
    def label(self) -> str:
        drawn = f", draw {self.seed}" if self.part == "few" else ""
        without = f", without {self.left_out}" if self.left_out else ""
        return f"{self.material.name}, {self.part}: {self.contender.name}{drawn}{without}"


@dataclass
class Findings:
    """What the fits found, by part."""

    few: dict[tuple[str, str], list[dict[str, Shares]]] = field(default_factory=dict)  # by set and router: the draws
    all: list[Row] = field(default_factory=list)
    limits: list[LimitRow] = field(default_factory=list)
    unknowns: dict[str, list[LeftOut]] = field(default_factory=dict)  # by router

    def add(self, other: Findings) -> None:
        """Add what another fit found."""
        for key, draws in other.few.items():
            self.few.setdefault(key, []).extend(draws)
        self.all += other.all
        self.limits += other.limits
        for name, rows in other.unknowns.items():
            self.unknowns.setdefault(name, []).extend(rows)


def plan(
    materials: Sequence[Material], own: Sequence[Ir3de], others: Sequence[Contender], parts: Sequence[str], size: Size
) -> list[Fit]:
    """Every fit, in order. Few prompts are measured on intents, and on suites with other sources."""
    fits: list[Fit] = []
    # a teacher needs prompts that were not drawn
    alone = [one for one in own if one.missing is None and not isinstance(one, Taught)]
    for material in materials:
        if "few" in parts and _has_few(material):
            fits += [
                Fit("few", material, one, seed)
                for one in (*own, *others)
                if one.missing is None
                for seed in range(size.draws)
            ]
    if "all" in parts:
        fits += [Fit("all", material, one) for material in materials for one in alone]
    if "limits" in parts:
        fits += [Fit("limits", one, router) for one in materials for router in alone]
    if "unknowns" in parts:
        fits += [
            Fit("unknowns", one, router, left_out=name)
            for one in materials
            if one.name in LEFT_OUT
            for router in alone
            for name in choose_left_out(one, size.left_out or LEFT_OUT[one.name])
        ]
    return fits


def _has_few(material: Material) -> bool:
    return not material.by_expert or OTHER_SOURCES in material.splits


def encode_ahead(encoder: RememberingEncoder, materials: Sequence[Material]) -> None:
    """Encode what the fits share, once: prompts that are routed or taught, and those that fits keep of long texts."""
    tokenizer = Embedding.default().tokenizer
    for material in materials:
        routed = [*material.splits.values(), *([material.train] if _has_few(material) else [])]
        encoder.remember(text for some in routed for own in some.values() for text in own)
        for texts in material.train.values():
            if (kept := collect(texts, keep_sample=True).sample) is not None:
                encoder.remember(tokenizer.decode_batch(kept.truncate(ENCODED_TOKENS).split()))


def make(fit: Fit) -> Findings:
    """Make one fit. Returns what it finds."""
    material, contender, findings = fit.material, fit.contender, Findings()
    if fit.part == "few":
        shares = measure_few(material, contender, fit.seed)
        findings.few.setdefault((material.name, contender.name), []).append(shares)
    elif isinstance(contender, Ir3de):
        if fit.part == "all":
            findings.all.append(fit_and_score(material, material.train, None, contender.name, **contender.options))
        elif fit.part == "unknowns":
            findings.unknowns[contender.name] = [leave_out(material, fit.left_out, **contender.options)]
        else:
            router = Router.fit(material.train, **contender.options)
            findings.limits += measure_limits(material, contender.name, router)
    return findings


def measure_few(material: Material, contender: Contender, seed: int) -> dict[str, Shares]:
    """By split, what a router reaches on one draw of few prompts."""
    prompts = [(split, name, text) for split, own in material.splits.items() for name in own for text in own[name]]
    few = draw_few(material.train, material.few, seed)
    if isinstance(contender, Taught):
        contender = contender.with_unlabelled(material.train, few)
    found = contender.answer(few, [(name, text) for _, name, text in prompts])
    places: dict[str, dict[str, list[int]]] = {}
    for place, (split, name, _) in enumerate(prompts):
        places.setdefault(split, {}).setdefault(name, []).append(place)

    def share(flags: Flags, split: str) -> float:
        return average({name: flags[own] for name, own in places[split].items()}, material.by_expert)

    def optional(flags: Flags | None, split: str) -> float | None:
        return None if flags is None else share(flags, split)

    return {
        split: Shares(
            share(found.right, split), optional(found.sure_and_wrong, split), optional(found.abstained, split)
        )
        for split in places
    }


def measure_limits(material: Material, name: str, router: Router) -> Iterator[LimitRow]:
    """Abstentions on prompts of known domains: as they are, from other sources, and reworded."""
    test = material.splits["test"]
    before = _count_abstentions(router, test)
    yield _describe(material.name, name, "test prompts", before)
    if OTHER_SOURCES in material.splits:
        others = _count_abstentions(router, material.splits[OTHER_SOURCES])
        yield _describe(material.name, name, "other sources", others)
    for kind, reword in REWORDINGS.items():
        yield _describe(material.name, name, kind, _count_abstentions(router, _reword(test, reword)), before)


def _reword(prompts: Texts, reword: Rewording) -> Texts:
    return {name: [reword(text) for text in texts] for name, texts in prompts.items()}


def _count_abstentions(router: Router, prompts: Texts) -> dict[str, float]:
    """By domain, in percent."""
    return {
        name: 100.0 * fmean(decision.abstained for decision in router.route_batch(texts))
        for name, texts in prompts.items()
    }


def _describe(
    data: str, router: str, kind: str, found: Mapping[str, float], before: Mapping[str, float] | None = None
) -> LimitRow:
    gaps = found if before is None else {name: found[name] - before[name] for name in found}
    worst = max(gaps, key=lambda name: gaps[name])
    over = None if before is None else fmean(gaps.values())
    return LimitRow(data, router, kind, fmean(found.values()), over, worst, gaps[worst])


def tabulate_few(materials: Sequence[Material], contenders: Sequence[Contender], findings: Findings) -> list[FewRow]:
    """One row for each set, split and router; those that cannot be measured here have their reason."""
    rows = []
    for material in materials:
        for split in material.splits if _has_few(material) else ():
            for one in contenders:
                draws = [draw[split] for draw in findings.few.get((material.name, one.name), [])]
                if draws or one.missing is not None:
                    rows.append(_summarise(material, split, one, draws))
    return rows


def _summarise(material: Material, split: str, contender: Contender, draws: Sequence[Shares]) -> FewRow:
    accuracies = [one.accuracy for one in draws]
    return FewRow(
        material.name,
        split,
        material.few,
        contender.name,
        _mean(accuracies),
        stdev(accuracies) / math.sqrt(len(draws)) if len(draws) > 1 else None,
        _mean([one.sure_and_wrong for one in draws if one.sure_and_wrong is not None]),
        _mean([one.abstained for one in draws if one.abstained is not None]),
        accuracies,
        contender.missing,
    )


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
