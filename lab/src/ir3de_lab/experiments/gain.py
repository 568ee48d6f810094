"""Whether routing beats every single model: the mean score of drawn answers over domains and over seeds of the experts.

A resample draws seeds, then clusters of items within domains, then the draws of an item, alike for all rows:

    counts of an item's draws   Multinomial(D · seed's count · cluster's count, 1 / D)      D draws an item
    score of a domain           mean over its groups of Σ counts · points / Σ counts · possible points

Family A is the router against the best single expert, known in hindsight, and against the base model. Family B is the
router against every rival whose setting was chosen without test items. docs/experiment-plan.md has the verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ir3de.errors import ArtifactError
from ir3de_lab.experiments import results, settings
from ir3de_lab.experiments.choices import Choices
from ir3de_lab.experiments.halves import SINGLE
from ir3de_lab.experiments.held_out import BASE
from ir3de_lab.experiments.matrix import Floats, Matrix, Places
from ir3de_lab.experiments.metrics import Judge
from ir3de_lab.experiments.reachable import reach
from ir3de_lab.experiments.resampling import RESAMPLES, Difference, compare_drawn, find_signs
from ir3de_lab.experiments.results import Results, carried_over
from ir3de_lab.experiments.standings import BEST_OF, DEFAULT, ORACLE, REACHABLE, best_name, by_series, chosen_of

OWN = "own expert of each item"
PAPER_SERIES = "IR3DE (authors' code)"  # the paper's router, of which k is chosen
LEAST_GAIN = 2.0  # points above both single models for the verdict "held"
HELD, IN_PART, NOT_HELD = "held", "held in part", "not held"
ROUTER, EXPERT, RIVAL, BOUND = "router", "single expert", "rival", "bound"  # what a row is
_CHUNK = 200  # resamples that are counted at a time


@dataclass(frozen=True, eq=False)
class Contender:
    """Who it is, and the points of its answers with each seed of the experts."""

    name: str
    kind: str
    points: Floats  # (seeds, items, draws)


@dataclass(frozen=True)
class Row:
    """A contender's scores in percent, and how far the router is above it."""

    name: str
    kind: str
    scores: Mapping[str, float]  # by domain
    mean: float
    by_seed: tuple[float, ...]  # the means with each seed
    gain: Difference | None = None  # of the router over it


@dataclass(frozen=True)
class Gain:
    """What the router gains over some domains, with the verdict of each family."""

    domains: tuple[str, ...]
    rows: tuple[Row, ...]
    best_expert: str
    signs: Mapping[str, int]  # of the families' rows: 1 where the router is surely above
    verdict: str
    rivals_verdict: str

    def to_dict(self) -> dict[str, Any]:
        rows = [
            {
                "name": row.name,
                "kind": row.kind,
                "scores": {domain: round(score, 4) for domain, score in row.scores.items()},
                "mean": round(row.mean, 4),
                "by_seed": [round(mean, 4) for mean in row.by_seed],
                "gain": row.gain and round(row.gain.value, 3),
                "interval": row.gain and [round(end, 3) for end in row.gain.interval],
                "p_value": row.gain and round(row.gain.p_value, 5),
                "sign": self.signs.get(row.name),
            }
            for row in self.rows
        ]
        verdicts = {"verdict": self.verdict, "rivals_verdict": self.rivals_verdict}
        return {"domains": list(self.domains), "best_expert": self.best_expert, **verdicts, "rows": rows}


def read_seeds(root: Path, name: str) -> list[Results]:
    """The setting and its other seeds, as far as they have the points of every draw."""
    folders = [root / name, *sorted(root.glob(f"{name}-seed-*"))]
    found = [results.read(folder) for folder in folders if (folder / results.OUTCOMES).is_file()]
    drawn = [one for one in found if one.drawn is not None and one.draws is not None]
    if not drawn:
        raise ArtifactError(
            f"no draws of {name} under {root}: make them with `ir3de bench draws --setting {name} --data DIR`"
        )
    first = get_drawn(drawn[0])
    for one in drawn[1:]:
        other = get_drawn(one)
        if (other.items, other.experts) != (first.items, first.experts):
            raise ArtifactError(f"{one.folder} has other items or experts than {drawn[0].folder}: make it again")
        if get_draws(one).shape[2] != get_draws(drawn[0]).shape[2]:
            raise ArtifactError(f"{one.folder} has another number of draws than {drawn[0].folder}: make it again")
    return drawn


def measure(seeds: Sequence[Results], resamples: int = RESAMPLES, seed: int = 0) -> dict[str, Gain]:
    """What the router gains over all domains, and without those whose prompts all carry the same instruction."""
    first = seeds[0]
    matrix, contenders = get_drawn(first), list_contenders(seeds)
    observed = score(contenders, matrix)
    drawn = resample(contenders, matrix, resamples, seed)
    bounds = _score_bounds(seeds)
    every = range(len(matrix.domains))
    told = _find_told(first.setting)
    parts = {"all": list(every)}
    if told:
        parts[f"without {', '.join(told)}"] = [place for place in every if matrix.domains[place] not in told]
    return {
        name: _weigh(contenders, observed[:, :, places], drawn[:, :, places], bounds, matrix, places)
        for name, places in parts.items()
    }


def describe(seeds: Sequence[Results], parts: Mapping[str, Gain]) -> dict[str, Any]:
    """What was measured, and on what, to be kept."""
    matrix, points = get_drawn(seeds[0]), get_draws(seeds[0])
    return {
        "setting": seeds[0].setting,
        "seeds": [one.setting for one in seeds],
        "draws": points.shape[2],
        "items": {domain: int((matrix.domain == place).sum()) for place, domain in enumerate(matrix.domains)},
        "parts": {name: found.to_dict() for name, found in parts.items()},
    }


def list_contenders(seeds: Sequence[Results]) -> list[Contender]:
    """The router first, then the single experts, the base model, the rivals, and each item's own expert."""
    choices = next((one.choices for one in seeds if _find_default(one.choices) is not None), ())
    default, matrix = _find_default(choices), get_drawn(seeds[0])
    if default is None:
        raise ArtifactError(
            f"{seeds[0].folder} has no choices of '{DEFAULT}': make them with `ir3de bench run "
            f"--setting {seeds[0].setting} --data DIR`"
        )
    if lacking := next((one for one in seeds if BASE not in get_drawn(one).extras), None):
        raise ArtifactError(f"{lacking.folder} has no column '{BASE}', so there is nothing to compare routing with")
    source = next(one for one in seeds if default in one.choices)

    def follow(name: str, kind: str, columns: Places) -> Contender:
        return Contender(name, kind, np.stack([_take(one, columns) for one in seeds]))

    def carry(one: Choices) -> Places:
        return carried_over(one.columns, source.matrix, matrix)

    def find_best_of_paper() -> Iterator[Contender]:
        """The paper's router with its best k on the test items, where none was chosen without them."""
        curve = by_series(choices, "k").get((PAPER_SERIES, "clean"), [])
        if curve and chosen_of(curve) is None:
            tried = [follow(best_name(PAPER_SERIES, "k", one.at or 0.0), BOUND, carry(one)) for one in curve]
            yield max(tried, key=lambda one: float(score([one], matrix).mean()))

    everywhere = np.ones(len(matrix.items), np.intp)
    return [
        follow(DEFAULT, ROUTER, carry(default)),
        *(follow(name, EXPERT, place * everywhere) for place, name in enumerate(matrix.experts)),
        Contender(BASE, BASE, np.stack([get_draws(one)[:, get_drawn(one).columns.index(BASE)] for one in seeds])),
        *(follow(name, RIVAL, carry(one)) for name, one in list_rivals(choices).items()),
        *find_best_of_paper(),
        follow(OWN, BOUND, matrix.own_expert),
    ]


def list_rivals(choices: Sequence[Choices]) -> dict[str, Choices]:
    """The other routers and the paper's; of a series the one chosen on held-out training texts, not the best."""
    plain = [one for one in choices if (one.family, one.protocol, one.axis) == ("rivals", "clean", None)]
    found = {one.router: one for one in plain if one.router != SINGLE}  # which learns from half of the test items
    for axis in BEST_OF:
        for (series, protocol), curve in by_series(choices, axis).items():
            chosen = chosen_of(curve)
            if chosen is None or chosen.at is None or protocol != "clean":
                continue
            if chosen.family == "rivals" or series == PAPER_SERIES:
                found[best_name(series, axis, chosen.at, "chosen")] = chosen
    return found


def score(contenders: Sequence[Contender], matrix: Matrix) -> Floats:
    """(contenders, seeds, domains)  in percent"""
    judge = Judge(matrix)
    return np.array([[judge.of_points(points.mean(axis=1)).raw for points in one.points] for one in contenders])


def resample(contenders: Sequence[Contender], matrix: Matrix, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
    """(contenders, resamples, domains)  the scores in percent, mean over the seeds that are drawn"""
    points = np.stack([one.points for one in contenders])
    rng, begins = np.random.default_rng(seed), range(0, resamples, _CHUNK)
    return np.concatenate([_resample(points, matrix, min(_CHUNK, resamples - at), rng) for at in begins], axis=1)


def _resample(points: Floats, matrix: Matrix, resamples: int, rng: np.random.Generator) -> Floats:
    rows, seeds, _, draws = points.shape
    drawn_seeds = rng.multinomial(seeds, np.full(seeds, 1 / seeds), resamples)
    scores = np.empty((rows, resamples, len(matrix.domains)))
    for place in range(len(matrix.domains)):
        members = np.flatnonzero(matrix.domain == place)
        clusters, cluster = np.unique(matrix.cluster[members], return_inverse=True)
        drawn = np.zeros((resamples, len(matrix.items)), np.int64)
        found = rng.multinomial(len(clusters), np.full(len(clusters), 1 / len(clusters)), resamples)
        drawn[:, members] = found[:, cluster]
        shares, present = np.zeros((rows, resamples)), np.zeros(resamples)
        for items in _list_groups(matrix, place):
            asked = draws * drawn_seeds[:, :, None] * drawn[:, None, items]
            counts = rng.multinomial(asked, np.full(draws, 1 / draws)).reshape(resamples, -1)
            reached = points[:, :, items].reshape(rows, -1) @ counts.T.astype(np.float64)
            possible = draws * seeds * (drawn[:, items] @ matrix.weight[items])
            shares += reached / np.where(possible > 0, possible, np.inf)  # a group of which nothing is drawn is gone
            present += possible > 0
        scores[:, :, place] = 100 * shares / present
    return scores


def judge_single(rows: Sequence[Row], signs: Mapping[str, int]) -> str:
    """The plan's verdict on the best single expert and the base model.

    >>> sure, small = Difference(3.0, (1.0, 5.0), 0.001), Difference(1.0, (0.5, 1.5), 0.001)
    >>> far = [Row(name, "", {}, 50.0, (), sure) for name in ("math", "base")]
    >>> judge_single(far, {"math": 1, "base": 1}), judge_single(far, {"math": 1, "base": 0})
    ('held', 'held in part')
    >>> judge_single([far[0], replace(far[1], gain=small)], {"math": 1, "base": 1})
    'held in part'
    >>> judge_single(far, {"math": 0, "base": -1})
    'not held'
    """
    above = [signs[row.name] > 0 for row in rows]
    if not any(above):
        return NOT_HELD
    is_enough = all(row.gain is not None and row.gain.value >= LEAST_GAIN for row in rows)
    return HELD if all(above) and is_enough else IN_PART


def _weigh(
    contenders: Sequence[Contender],
    observed: Floats,
    drawn: Floats,
    bounds: Mapping[str, Sequence[Sequence[float]]],
    matrix: Matrix,
    places: Sequence[int],
) -> Gain:
    """The rows over the domains at these places, and the verdicts on them."""
    domains = tuple(matrix.domains[place] for place in places)
    means, resampled = observed.mean(axis=2), drawn.mean(axis=2)
    rows = []
    for place, one in enumerate(contenders):
        gain = None
        if one.kind != ROUTER:
            gain = compare_drawn(float((means[0] - means[place]).mean()), resampled[0] - resampled[place])
        scores = dict(zip(domains, observed[place].mean(axis=0).tolist(), strict=True))
        rows.append(Row(one.name, one.kind, scores, float(means[place].mean()), tuple(means[place].tolist()), gain))
    for name, by_seed in bounds.items():
        found = np.array(by_seed)[:, places]
        scores = dict(zip(domains, found.mean(axis=0).tolist(), strict=True))
        rows.append(Row(name, BOUND, scores, float(found.mean()), tuple(found.mean(axis=1).tolist())))
    best = max((row for row in rows if row.kind == EXPERT), key=lambda row: row.mean)
    single = [best, *(row for row in rows if row.kind == BASE)]
    rivals = [row for row in rows if row.kind == RIVAL]
    signs = {
        row.name: sign
        for family in (single, rivals)
        for row, sign in zip(family, find_signs([row.gain for row in family]), strict=True)
    }
    verdict = judge_single(single, signs)
    with_every_seed = all(np.greater(rows[0].by_seed, row.by_seed).all() for row in single)
    if verdict == HELD and not with_every_seed:
        verdict = IN_PART
    rivals_verdict = NOT_HELD if any(signs[row.name] < 0 for row in rivals) else HELD
    return Gain(domains, tuple(rows), best.name, signs, verdict, rivals_verdict)


def _score_bounds(seeds: Sequence[Results]) -> dict[str, list[tuple[float, ...]]]:
    """The scores of both oracles with each seed, by domain."""
    found: dict[str, list[tuple[float, ...]]] = {REACHABLE: [], ORACLE: []}
    for one in seeds:
        matrix, draws = get_drawn(one), get_draws(one)
        judge = Judge(replace(matrix, values=draws.mean(axis=2)))
        experts = draws[:, : len(matrix.experts)]
        found[REACHABLE].append(judge.of_points(reach(experts, matrix.own_expert)).raw)
        found[ORACLE].append(judge.oracle().raw)
    return found


def _list_groups(matrix: Matrix, place: int) -> Iterator[Places]:
    """The items of each group of a domain."""
    members = np.flatnonzero(matrix.domain == place)
    for group in sorted({matrix.group[item] for item in members}):
        yield np.array([item for item in members if matrix.group[item] == group])


def _take(one: Results, columns: Places) -> Floats:
    """(items, draws)  the points of the answers of the column chosen for each item"""
    return np.asarray(get_draws(one)[np.arange(len(columns)), columns])


def _find_default(choices: Sequence[Choices]) -> Choices | None:
    return next((one for one in choices if one.router == DEFAULT), None)


def _find_told(name: str) -> tuple[str, ...]:
    """The domains that any router recognises by an instruction that all their prompts share."""
    return tuple(settings.load(name).data.labelled) if settings.is_shipped(name) else ()


def get_drawn(one: Results) -> Matrix:
    """The mean points of each item's drawn answers."""
    assert one.drawn is not None  # read_seeds saw to it
    return one.drawn


def get_draws(one: Results) -> Floats:
    """The points of every drawn answer."""
    assert one.draws is not None  # read_seeds saw to it
    return one.draws
