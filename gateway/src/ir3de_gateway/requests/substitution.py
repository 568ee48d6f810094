"""Who answers in place of an expert that cannot: one rule, for whatever reason it cannot.

1. One of the expert's own `fallbacks`, in their order.
2. A candidate of the decision: an expert at least a third as likely as the best one.
3. The default expert: `routing.default`, else the router's own.

If none of them may answer, the client gets an error. Other experts are not asked: an improbable expert would give a
wrong answer, and the client would not see that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ir3de_gateway.experts.snapshot import Expert, Snapshot

if TYPE_CHECKING:
    from ir3de import Decision

DEFAULT = "default expert"
Handover = tuple[str, str, str]  # a request was handed on: from an expert, to another, and the reason


class Instead(NamedTuple):
    """Why another expert answers than the decided one, or that the router abstained. All is empty otherwise."""

    kind: str = ""  # who answers: a fallback, a candidate, the default expert, the nearest expert
    label: str = ""  # why the decided one does not, in one of a few words
    text: str = ""  # why the router abstained, or why the decided one does not answer; empty if `why` says it


NOT_INSTEAD = Instead()


class Substitute(NamedTuple):
    """An expert that answers in place of another one, and by which part of the rule."""

    expert: Expert
    kind: str  # fallback, candidate, or default expert


def list_substitutes(
    snapshot: Snapshot, wanted: str | None, eligible: Sequence[Expert], decision: Decision | None = None
) -> list[Substitute]:
    """The experts that may answer in place of `wanted`, best first.

    `eligible` are those that can and may answer. Without a decision there are only the fallbacks of `wanted`: a client
    that names an expert wants that one.
    """
    there, found = {expert.name: expert for expert in eligible}, dict[str, Substitute]()
    for name, kind in _list_names(snapshot, wanted, decision):
        if name in there and name != wanted and name not in found:
            found[name] = Substitute(there[name], kind)
    return list(found.values())


def _list_names(snapshot: Snapshot, wanted: str | None, decision: Decision | None) -> Iterator[tuple[str, str]]:
    if wanted is not None and (expert := snapshot.experts.get(wanted)) is not None:
        yield from ((name, "fallback") for name in expert.config.fallbacks)
    if decision is not None:
        yield from ((name, "candidate") for name in decision.candidates)
        if (default := find_default(snapshot)) is not None:
            yield default, DEFAULT


def find_default(snapshot: Snapshot) -> str | None:
    """The default expert: the configuration's, else the router's own, if there is one."""
    return snapshot.config.routing.default or snapshot.router.default
