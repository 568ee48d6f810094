"""Whether a router is what it says it is, and whether what a receipt says was taken out is out: checked from scratch.

Nothing is believed that can be computed: files against their hashes, an expert's statistics against the sum of what it
was given, the table against a new fit, the ledger link by link.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ir3de.building import fitted
from ir3de.errors import ArtifactError, IR3DEError
from ir3de.expectations import Shrinkage
from ir3de.ledger import Entry, History, faults
from ir3de.router import Router
from ir3de.storage import HEADER, Contribution, holds_router, inspect_router, read_header
from ir3de.table import Table

TOLERANCE = 1e-5  # of a score, relative to the largest: what another machine's BLAS may differ by


@dataclass(frozen=True)
class Check:
    """One thing looked at: what should hold, whether it does (None where it cannot be told), and what was seen."""

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
    """Check a router, and a receipt against it; with the contribution that was taken out, that the sums add up.

    `before` names the router as it was before, where it still exists.
    """
    folder = Path(path).expanduser()
    if not holds_router(folder):
        found = f"it holds no {HEADER}" if folder.is_dir() else "there is no such folder"
        raise ArtifactError(f"no router at {folder}: {found}")
    files = _files(folder)
    yield files
    if not files.holds:
        return  # the rest would only say so again
    router, digest = Router.load(folder), str(read_header(folder)["sha256"])
    yield _ledger(router.history, digest)
    if not router.from_outcomes:
        yield _sums(router)
        yield _replayed(router)
        yield _table(router)
    if receipt is not None:
        yield from _receipt(receipt, router, digest, contribution)
        if before is not None:
            yield _before(receipt, Path(before).expanduser())


def _many(count: int, one: str, more: str = "") -> str:
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def _files(folder: Path) -> Check:
    found = inspect_router(folder)
    wrong = [file.name for file in found.files if file.state in ("missing", "damaged")]
    seen = _many(len(found.files), "file") if not wrong else f"not so: {', '.join(wrong[:5])}"
    return Check("every file is the one that router.json names, by its SHA-256", not wrong, seen)


def _ledger(history: History, digest: str) -> Check:
    claim = "the ledger is one unbroken chain that leads to this router"
    if not history:
        return Check(claim, None, "there is no ledger")
    wrong = faults(history, digest)
    entries = _many(len(history), "entry", "entries")
    return Check(claim, not wrong, wrong[0] if wrong else f"{entries}, to {digest[:16]}")


def _sums(router: Router) -> Check:
    claim = "each expert's statistics are the sum of what it was given, to the last bit"
    given = 0
    try:
        for name, held in router.holdings.items():
            given += len(held.contributions)
            total = held.total()
            if total != router.statistics[name] or total.sample != router.statistics[name].sample:
                return Check(claim, False, f"those of '{name}' are not")
    except IR3DEError as error:
        return Check(claim, False, str(error))
    experts = f"{len(router.holdings)} of {_many(len(router.experts), 'expert')}"
    return Check(claim, True, f"{_many(given, 'contribution')} to {experts}")


def _replayed(router: Router) -> Check:
    claim = "it holds the contributions that came in by the ledger and did not go out again, and no others"
    if not router.history:
        return Check(claim, None, "there is no ledger")
    there: dict[str, set[str]] = {}
    for entry in router.history:
        change = entry.change
        if change.expert is None:
            continue
        if change.action == "remove" and (change.given is None or change.given.id is None):
            there.pop(change.expert, None)
        elif change.given is not None and change.given.id is not None:
            mine = there.setdefault(change.expert, set())
            (mine.discard if change.action == "remove" else mine.add)(change.given.digest)
    found = {name: {one.digest for one in given} for name, given in router.contributions.items()}
    wrong = [name for name in found if found[name] != there.get(name, set())]
    return Check(claim, not wrong, f"not so of '{wrong[0]}'" if wrong else f"{sum(map(len, found.values()))} of them")


def _table(router: Router) -> Check:
    claim = "the table is what a fit of these statistics gives, and nothing else"
    assert not isinstance(router.scorer, Shrinkage)
    again = fitted(router.statistics, router.embedding, router.scorer, router.compiled.terms).compiled
    if again.terms != router.compiled.terms:
        return Check(claim, False, "confidence is calibrated otherwise")
    if _same(again.table, router.compiled.table):
        return Check(claim, True, "fitted again: the same bits")
    difference = _difference(again.table, router.compiled.table)
    near = difference <= TOLERANCE
    seen = f"fitted again: scores differ by {difference:.1e} of the largest"
    return Check(claim, near, seen + (", as between two BLAS libraries" if near else ""))


def _same(one: Table, other: Table) -> bool:
    parts = ("scores", "vote", "entropy", "rank", "usualness", "pairs")
    return all(np.array_equal(getattr(one, part), getattr(other, part)) for part in parts)


def _difference(one: Table, other: Table) -> float:
    if one.scores.shape != other.scores.shape:
        return float("inf")
    return float(np.abs(one.scores - other.scores).max() / max(float(np.abs(other.scores).max()), 1e-30))


def _receipt(receipt: Entry, router: Router, digest: str, contribution: Contribution | None) -> Iterator[Check]:
    claim = "the receipt is an entry of this router's ledger"
    there = any(entry.sha256 == receipt.sha256 for entry in router.history)
    yield Check(claim, there, f"entry {receipt.entry}" if there else f"entry {receipt.sha256[:16]} is not in it")
    claim = "this is the router that the receipt says was left"
    since = _many(len(router.history) - receipt.entry, "entry", "entries")
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


def _gone(receipt: Entry, router: Router) -> Check:
    change = receipt.change
    assert change.given is not None and change.expert is not None
    digest, claim = change.given.digest, f"what was taken from '{change.expert}' is not in the router"
    if change.given.id is None:
        there = change.expert in router.experts and router.statistics[change.expert].digest == change.before
        return Check(claim, not there, "the expert is there again" if there else f"no expert '{change.expert}'")
    given = router.contributions.get(change.expert, ())
    holders = [one.id for one in given if digest == one.digest or digest in one.parts]
    others = f"not among {_many(len(given), 'contribution')}"
    return Check(claim, not holders, f"it is in {holders[0]}" if holders else others)


def _adds_up(receipt: Entry, router: Router, contribution: Contribution) -> Iterator[Check]:
    change = receipt.change
    assert change.given is not None and change.expert is not None
    same = contribution.digest == change.given.digest
    yield Check("the receipt is for this contribution", same, contribution.digest[:16])
    if not same or change.action != "remove" or change.given.id is None:
        return
    claim = "what is left and what was taken out add up to what there was before"
    left = router.statistics.get(change.expert)
    if left is None or left.digest != change.after:
        yield Check(claim, None, f"'{change.expert}' was changed since")
        return
    total = left.without_sample() + contribution.statistics().without_sample()
    yield Check(claim, total.digest == change.before, f"{total.digest[:16]} before, {left.digest[:16]} now")


def _before(receipt: Entry, folder: Path) -> Check:
    digest = str(read_header(folder)["sha256"])
    claim = "the router before is the one that the receipt began with"
    return Check(claim, digest == receipt.router_before, digest[:16])
