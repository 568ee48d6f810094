"""Routers that expect scores: fitted on rows with every model's score, asked what each model will make of each item."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ir3de import Router
from ir3de.embedding.packaged_models import get_title
from ir3de.errors import EmbeddingError, InputError
from ir3de_lab.benchmarks.rivals import surroundings
from ir3de_lab.catalogue.recording import record
from ir3de_lab.experiments.contenders import timed
from ir3de_lab.experiments.encoder_contenders import Opened, Ways, describe_encoder, find_slowness, lacking
from ir3de_lab.experiments.expectations import Expectations
from ir3de_lab.experiments.material import Material, Rows
from ir3de_lab.experiments.matrix import Floats, Matrix
from ir3de_lab.experiments.outcomes import read_by_model
from ir3de_lab.experiments.provenance import this_process
from ir3de_lab.experiments.settings import Setting
from ir3de_lab.experiments.spending import APART, REFERENCE
from ir3de_lab.rivals.encoder import Encoder
from ir3de_lab.rivals.interface import needed

NEAREST = (5, 10, 20, 40, 80)  # neighbours that are tried on the training rows
RIDGES = tuple(10.0**power for power in range(-2, 5))
FOLDS = 10  # one of them is held out to choose a ridge on words
PURPOSE = "Expecting scores from words"

BY_TASK = "ir3de, by task"

Ask = Callable[[Sequence[str]], Floats]  # texts in, (n, models) expected scores out


@dataclass(frozen=True)
class _Contender:
    """A router that expects scores: what makes it of rows, and what its encoder takes for a text, if it has one."""

    name: str
    family: str
    fit: Callable[[Rows], Ask]
    encoding_us: float = 0.0
    about: Mapping[str, Any] = field(default_factory=dict)


def expect_all(
    setting: Setting, material: Material, matrix: Matrix, note: Callable[[str], None], ways: Ways | None = None
) -> Iterator[Expectations]:
    """Every router that expects scores, one by one; those on an encoder that cannot be had are left out with a note.

    Each is fitted twice: on the rows of all domains together, and on those of each domain by itself, which then has
    the items of its own domain only. The second way needs to know where a prompt comes from. It is left out where some
    domains have no training rows.
    """
    rows = [row for rows in material.train.values() for row in rows]
    costs = _find_costs(rows, setting, matrix)
    texts, domains = [item.text for item in material.items], np.array([item.domain for item in material.items])
    for one in _list_contenders(setting, material, matrix, note, ways or Ways()):
        together, fitting = timed(partial(one.fit, rows))
        if one.encoding_us:
            together(texts)  # from now on their vectors are remembered, and times are those of the rest
        found, asking = timed(partial(together, texts))
        about = {**this_process(), **surroundings(), **record("run"), **one.about}
        yield Expectations(
            one.name, one.family, found, costs, fitting + len(rows) * one.encoding_us / 1e6,
            1e6 * asking / len(texts) + one.encoding_us, about,
        )  # fmt: skip
        if one.name == BY_TASK or setting.unseen:  # fitted on one domain, it would say the same of all its prompts
            continue
        for domain, own in material.train.items():
            ask = one.fit(list(own))
            found[domains == domain] = ask([item.text for item in material.items if item.domain == domain])
        yield Expectations(f"{one.name}, {APART}", one.family, found.copy(), costs, about=about)


def _list_contenders(
    setting: Setting, material: Material, matrix: Matrix, note: Callable[[str], None], ways: Ways
) -> Iterator[_Contender]:
    read = partial(_read, field=setting.data.scores, matrix=matrix)
    yield _Contender(REFERENCE, "ours", partial(_fit_outcomes, field=setting.data.scores, models=matrix.experts))
    yield _Contender(BY_TASK, "ours", lambda rows: _fit_tasks(rows, read(rows)))
    yield _Contender("TF-IDF + ridge", "rivals", lambda rows: _fit_words(_list_texts(rows), read(rows)))
    if why := lacking():
        note(f"left out the routers that stand on an encoder: {why}")
        return
    train, named = material.training_texts(), setting.encoders
    for source in dict.fromkeys((named.small, named.large)):
        title = get_title(source)
        try:
            on = Opened.of(source, named.tokens, ways)
            called = f"{title}, {on.encoder.reads} tokens"
            reason = None if ways.patient else find_slowness(on.encoder, train, trains=False)
        except (InputError, EmbeddingError) as error:  # a model that is not here, or is none
            called, reason = title, str(error)
        fits = {f"ridge ({called})": _fit_ridge, f"kNN ({called})": _fit_neighbours}
        wanted = {name: fit for name, fit in fits.items() if name not in ways.done and ways.wants(name)}
        if wanted and reason:
            note(f"left out: {', '.join(wanted)}: {reason}")
        if reason or not wanted:
            continue
        encoding_us, about = on.remember(train), {"encoder": title, **describe_encoder(on.encoder)}
        for name, fit in wanted.items():
            yield _Contender(name, "rivals", partial(_fit_on, on.encoder, fit, read), encoding_us, about)


def _fit_on(
    encoder: Encoder, fit: Callable[[Encoder, Sequence[str], Floats], Ask], read: Callable[[Rows], Floats], rows: Rows
) -> Ask:
    return fit(encoder, _list_texts(rows), read(rows))


def _find_costs(rows: Rows, setting: Setting, matrix: Matrix) -> Floats | None:
    """(experts,)  what an answer cost on average in the training rows, else the sizes of the models, where known."""
    if setting.data.costs:
        return np.asarray(_read(rows, setting.data.costs, matrix).mean(axis=0))
    if setting.data.sizes:
        return np.array([setting.data.sizes[expert] for expert in matrix.experts])
    return None


def _list_texts(rows: Rows) -> list[str]:
    return [str(row["text"]) for row in rows]


def _read(rows: Rows, field: str, matrix: Matrix) -> Floats:
    """(n, experts)  the numbers in a field of the training rows, in the order of the outcomes' experts."""
    models, values = read_by_model({f"training row {n}": row for n, row in enumerate(rows)}, field)
    if set(models) != set(matrix.experts):
        raise InputError(f"training rows have '{field}' of {', '.join(models)}, and test rows of other models")
    return values[:, [models.index(expert) for expert in matrix.experts]]


def _fit_outcomes(rows: Rows, field: str, models: Sequence[str]) -> Ask:
    router = Router.fit_outcomes(rows, field=field, guard=False)  # the order of the prompts counts here

    def ask(texts: Sequence[str]) -> Floats:
        expected = [dict(decision.quality) for decision in router.route_batch(list(texts))]
        return np.array([[one[model] for model in models] for one in expected])

    return ask


def _fit_tasks(rows: Rows, scores: Floats) -> Ask:
    """The usual router over tasks: a model is expected to score as on the training rows of the likely tasks."""
    by_task: dict[str, list[str]] = {}
    for row in rows:
        by_task.setdefault(str(row["task"]), []).append(str(row["text"]))
    labels = np.array([str(row["task"]) for row in rows])
    router = Router.fit(by_task)
    names = list(router.experts)
    means = np.array([scores[labels == name].mean(axis=0) for name in names])

    def ask(asked: Sequence[str]) -> Floats:
        found = [dict(decision.quality) for decision in router.route_batch(list(asked))]
        return np.asarray(np.array([[one[name] for name in names] for one in found]) @ means)

    return ask


def _fit_words(texts: Sequence[str], scores: Floats) -> Ask:
    """A ridge on TF-IDF of words and pairs of words; its strength is chosen on held-out training rows."""
    features = needed("sklearn.feature_extraction.text", extra="", purpose=PURPOSE)
    linear = needed("sklearn.linear_model", extra="", purpose=PURPOSE)
    vectorizer = features.TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)
    found = vectorizer.fit_transform(texts)
    places = np.random.default_rng(0).permutation(len(texts))
    spared, rest = np.split(places, [max(1, len(texts) // FOLDS)])

    def miss(ridge: float) -> float:
        model = _solve_words(linear, ridge, found[rest], scores[rest])
        return float(((model.predict(found[spared]) - scores[spared]) ** 2).mean())

    model = _solve_words(linear, min(RIDGES, key=miss), found, scores)
    return lambda asked: np.asarray(model.predict(vectorizer.transform(asked)))


def _solve_words(linear: Any, ridge: float, found: Any, scores: Floats) -> Any:
    """A ridge on sparse counts: with tens of thousands of rows and words, a dense matrix would not fit into memory."""
    return linear.Ridge(ridge, solver="sparse_cg").fit(found, scores)


def _fit_ridge(encoder: Encoder, texts: Sequence[str], scores: Floats) -> Ask:
    """A ridge on an encoder's vectors; its strength is chosen on held-out training rows."""
    linear = needed("sklearn.linear_model", extra="", purpose=PURPOSE)
    model = linear.RidgeCV(RIDGES).fit(encoder.encode(list(texts)), scores)
    return lambda asked: np.asarray(model.predict(encoder.encode(list(asked))))


def _fit_neighbours(encoder: Encoder, texts: Sequence[str], scores: Floats) -> Ask:
    """The mean score of the nearest training rows; how many is chosen by leaving out each training row in turn."""
    known = encoder.encode(list(texts))
    near = _find_nearest(known @ known.T - 2 * np.eye(len(known), dtype=np.float32), max(NEAREST))
    k = min(NEAREST, key=lambda k: float(((scores[near[:, :k]].mean(axis=1) - scores) ** 2).mean()))
    return lambda asked: np.asarray(scores[_find_nearest(encoder.encode(list(asked)) @ known.T, k)].mean(axis=1))


def _find_nearest(alike: Any, count: int) -> Any:
    """The places of the most alike in each row, the most alike first; equals in their order."""
    return np.argsort(-alike, axis=1, kind="stable")[:, :count]
