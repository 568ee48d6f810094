"""Check a router from scratch, and check a receipt against it.

Everything that can be computed is computed again: the hashes of the files, the sum of an expert's contributions, the
fit, and each link of the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.errors import IR3DEError
from ir3de.files import router_folder
from ir3de.files.ledger import Entry, History, faults
from ir3de.fitting.loading import load_router
from ir3de.fitting.parts import RouterParts
from ir3de.routing.rules import DecisionRules
from ir3de.scorers.logistic import Logistic
from ir3de.scorers.table import Table
from ir3de.statistics.contributions import Contribution
from ir3de.statistics.scored_traffic import read_scores

TOLERANCE = 1e-5  # of a score, relative to the largest: what another machine's BLAS may differ by
# The same where scores are found by steps that end before the minimum: where sums are rounded otherwise, as by the
# native kernel or another BLAS, fits to long prompts end elsewhere, by about 1e-4.
DISCRIMINATIVE_TOLERANCE = 1e-3
HEAD_TOLERANCE = 1e-3  # of a weight of an encoder's head, relative to the largest
CALIBRATION_TOLERANCE = 1e-3  # of a number of a calibration, which is learnt from the scores


@dataclass(frozen=True)
class Check:
    """One check: the claim, whether it holds (None if unknown), and what was found."""

    claim: str
    holds: bool | None
    seen: str


def verify(
    path: str | Path,
    *,
    receipt: Entry | None = None,
    contribution: Contribution | None = None,
    before: str | Path | None = None,
) -> Iterator[Check]:
    """Check a router, and a receipt against it. With the contribution that was removed, check that the sums add up.

    `before` is the router before the change, if it still exists.
    """
    folder = Path(path).expanduser()
    router_folder.read_header_file(folder)  # raises an error that names what is there instead of a router
    there = router_folder.inspect_router(folder)
    yield _files(there)
    if not there.whole:
        return  # the other checks would fail for the same reason
    yield _leftovers(there, folder)
    router, digest = load_router(folder), str(router_folder.read_header(folder)["sha256"])
    yield _ledger(router.history(), digest)
    yield _sums(router)
    yield _replayed(router)
    yield from _fit(router)
    if receipt is not None:
        yield from _receipt(receipt, router, digest, contribution)
        if before is not None:
            yield _before(receipt, Path(before).expanduser())


def _many(count: int, one: str, more: str = "") -> str:
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def _files(found: router_folder.RouterFiles) -> Check:
    wrong = [file.name for file in found.files if file.state in ("missing", "damaged")]
    seen = _many(len(found.files), "file") if not wrong else f"not so: {', '.join(wrong[:5])}"
    return Check("every file has the SHA-256 that router.json names", not wrong, seen)


def _leftovers(found: router_folder.RouterFiles, folder: Path) -> Check:
    named = {router_folder.LEDGER, *(file.name for file in found.files)}
    left = [path.name for path in folder.iterdir() if router_folder.is_ours(path) and path.name not in named]
    left = sorted(name for name in left if not name.startswith("ballots-"))  # which no header names
    seen = f"delete {left[0]}, which a save that was cut short left" if left else "none"
    return Check("no file of an earlier router is left in the folder", not left, seen)


def _ledger(history: History, digest: str) -> Check:
    claim = "the ledger is one unbroken chain that leads to this router"
    if not history:
        return Check(claim, None, "there is no ledger")
    wrong = faults(history, digest)
    entries = _many(len(history), "entry", "entries")
    return Check(claim, not wrong, wrong[0] if wrong else f"{entries}, to {digest[:16]}")


def _sums(router: RouterParts) -> Check:
    claim = "each expert's statistics are the sum of what it was given, to the last bit"
    given, holdings = 0, router.training.holdings()
    if router.training.kind == "outcomes":
        return _scores(router)
    try:
        for name, held in holdings.items():
            given += len(held.contributions)
            total, own = held.total(), router.training.statistics()[name]
            if total != own or total.sample != own.sample:
                return Check(claim, False, f"those of '{name}' are not")
    except IR3DEError as error:
        return Check(claim, False, str(error))
    experts = f"{len(holdings)} of {_many(len(router.compiled.experts), 'expert')}"
    return Check(claim, True, f"{_many(given, 'contribution')} to {experts}")


def _scores(router: RouterParts) -> Check:
    """Scores of answered requests are read again, and checked against their digests."""
    claim, holdings = "every contribution has the scores that its digest names", router.training.holdings()
    try:
        given = [read_scores(one) for held in holdings.values() for one in held.contributions]
    except IR3DEError as error:
        return Check(claim, False, str(error))
    scores = sum(count.rows for one in given for count in one.values())
    return Check(claim, True, f"{_many(len(given), 'contribution')}, {_many(scores, 'score')}")


def _replayed(router: RouterParts) -> Check:
    claim = "the router holds exactly the contributions that the ledger added and did not remove"
    history = router.history()
    if not history:
        return Check(claim, None, "there is no ledger")
    there: dict[str, set[tuple[str, str]]] = {}  # ids and digests
    for entry in history:
        change = entry.change
        if change.expert is None:
            continue
        if change.action == "remove" and (change.given is None or change.given.id is None):
            there.pop(change.expert, None)
        elif change.given is not None and change.given.id is not None:
            mine = there.setdefault(change.expert, set())
            (mine.discard if change.action == "remove" else mine.add)((change.given.id, change.given.digest))
    found = {name: {(one.id, one.digest) for one in given} for name, given in _contributions(router).items()}
    wrong = [name for name in found if found[name] != there.get(name, set())]
    return Check(claim, not wrong, f"not so of '{wrong[0]}'" if wrong else f"{sum(map(len, found.values()))} of them")


def _fit(router: RouterParts) -> Iterator[Check]:
    """Fitted again: the table must be the same, confidence may be read otherwise."""
    found, again = router.compiled, router.training.refit(router)
    claim = "the table is what a new fit of these statistics gives"
    if all(np.array_equal(getattr(again.table, part), getattr(found.table, part)) for part in _PARTS):
        yield Check(claim, True, "fitted again: the same bits")
    else:
        difference = _difference(found.table, again.table)
        is_discriminative = isinstance(router.training.scorer, Logistic)
        near = difference <= (DISCRIMINATIVE_TOLERANCE if is_discriminative else TOLERANCE)
        why = ", as between two BLAS libraries or engines" if near else ""
        yield Check(claim, near, f"fitted again: it differs by {difference:.1e} of the largest score{why}")
    claim = "confidence is calibrated on the prompts that the router kept"
    if _alike(again.rules, found.rules):
        calibrated = found.rules.calibration is not None
        yield Check(claim, True, "calibrated again: the same" if calibrated else "not calibrated")
    else:  # as after `ir3de calibrate`
        yield Check(claim, None, "calibrated otherwise: on other prompts, or with another selector")
    mine, other = found.rules.opinion, again.rules.opinion
    if mine is not None and other is not None:
        claim = "the encoder's head is what a new fit of the kept vectors gives"
        if mine == other:
            yield Check(claim, True, "fitted again: the same bits")
        else:
            difference = float(np.abs(mine.head - other.head).max()) / max(float(np.abs(other.head).max()), 1e-30)
            near = difference <= HEAD_TOLERANCE
            yield Check(claim, near, f"fitted again: it differs by {difference:.1e} of the largest weight")


_PARTS = ("scores", "vote", "entropy", "rank", "familiarity", "pairs", "subjects")


def _difference(found: Table, again: Table) -> float:
    """The largest error of any part of a table, relative to the largest score; votes and ranks by the scores' own."""
    worst = 0.0
    for part in ("scores", "entropy", "familiarity", "pairs"):
        one, other = getattr(found, part), getattr(again, part)
        if one is not None or other is not None:
            if one is None or other is None or one.shape != other.shape:
                return float("inf")
            worst = max(worst, float(np.abs(one - other).max(initial=0)))
    if not np.array_equal(np.array(found.subjects), np.array(again.subjects)):
        return float("inf")
    rows = np.arange(len(found.scores))
    if not np.array_equal(np.sort(found.rank), rows) or found.vote.max(initial=0) >= found.scores.shape[1]:
        return float("inf")
    voted = found.scores.max(axis=1) - found.scores[rows, found.vote]
    ranked = -np.diff(found.entropy[found.by_rank])
    worst = max(worst, float(voted.max(initial=0)), float(ranked.max(initial=0)))
    return worst / max(float(np.abs(again.scores).max(initial=0)), 1e-30)


def _alike(one: DecisionRules, other: DecisionRules) -> bool:
    """Whether values were learnt from the same prompts, up to what another machine's BLAS may differ by."""
    number, learnt = len(one.experts), ("calibration", "familiarity")
    both = ([getattr(rules, part) for part in learnt] for rules in (one, other))
    pairs = [tuple(found and np.hstack(astuple(found)) for found in pair) for pair in zip(*both, strict=True)]
    pairs.append(tuple(rules.membership and np.array(rules.membership.numbers) for rules in (one, other)))
    pairs.append((one.valuation.tally_nothing(number), other.valuation.tally_nothing(number)))
    return all(mine is theirs or _are_close(mine, theirs) for mine, theirs in pairs)


def _are_close(one: npt.NDArray[Any] | None, other: npt.NDArray[Any] | None) -> bool:
    if one is None or other is None or len(one) != len(other):
        return False
    return np.allclose(one, other, rtol=CALIBRATION_TOLERANCE, atol=0)


def _receipt(receipt: Entry, router: RouterParts, digest: str, contribution: Contribution | None) -> Iterator[Check]:
    claim = "the receipt is an entry of this router's ledger"
    there = any(entry.sha256 == receipt.sha256 for entry in router.history())
    yield Check(claim, there, f"entry {receipt.entry}" if there else f"entry {receipt.sha256[:16]} is not in it")
    claim = "this is the router that the receipt names as its result"
    since = _many(len(router.history()) - receipt.entry, "entry", "entries")
    if receipt.router_after == digest:
        yield Check(claim, True, digest[:16])
    else:
        yield Check(claim, None if there else False, f"{since} since: {digest[:16]}" if there else digest[:16])
    change = receipt.change
    if change.given is None or change.expert is None:
        return
    if change.action == "remove":
        yield _gone(receipt, router)
    if contribution is not None:
        yield from _adds_up(receipt, router, contribution)


def _gone(receipt: Entry, router: RouterParts) -> Check:
    change = receipt.change
    assert change.given is not None and change.expert is not None
    digest, claim = change.given.digest, f"what was taken from '{change.expert}' is not in the router"
    if change.given.id is None:
        found = router.training.counted_statistics(router.embedding()).get(change.expert)
        there = found is not None and found.digest == change.before
        return Check(claim, not there, "the expert is there again" if there else f"no expert '{change.expert}'")
    given = [(name, one) for name, all_of_it in _contributions(router).items() for one in all_of_it]
    given = [pair for pair in given if not pair[1].is_feedback or pair[1].id == change.given.id]  # others may agree
    holders = [f"{one.id} of '{name}'" for name, one in given if digest == one.digest or digest in one.parts]
    others = f"not among {_many(len(given), 'contribution')}"
    return Check(claim, not holders, f"it is in {holders[0]}" if holders else others)


def _adds_up(receipt: Entry, router: RouterParts, contribution: Contribution) -> Iterator[Check]:
    change = receipt.change
    assert change.given is not None and change.expert is not None
    same = contribution.digest == change.given.digest
    yield Check("the receipt is for this contribution", same, contribution.digest[:16])
    if not same or change.action != "remove" or change.given.id is None or change.after is None:
        return
    claim = "what is left and what was taken out add up to what there was before"
    left = router.training.counted_statistics(router.embedding()).get(change.expert)
    if left is None or left.digest != change.after:
        yield Check(claim, None, f"'{change.expert}' was changed since")
        return
    total = left.without_sample() + contribution.statistics().without_sample()
    yield Check(claim, total.digest == change.before, f"{total.digest[:16]} before, {left.digest[:16]} now")


def _contributions(router: RouterParts) -> dict[str, tuple[Contribution, ...]]:
    held = router.training.holdings()
    return {name: held[name].contributions if name in held else () for name in router.compiled.experts}


def _before(receipt: Entry, folder: Path) -> Check:
    digest = str(router_folder.read_header(folder)["sha256"])
    claim = "the router before is the one that the receipt began with"
    return Check(claim, digest == receipt.router_before, digest[:16])
