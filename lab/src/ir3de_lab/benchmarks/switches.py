"""How often conversations changed their expert, and how much of their prompt caches they kept.

A request of a conversation finds the cache of the expert that answers: what that expert has read of this conversation
before. A request can keep, at most, what the conversation's last request had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

from ir3de_lab.benchmarks.traces import Ask

SUMMED = ("requests", "switches", "needed", "unneeded")


@dataclass(frozen=True)
class Row:
    """One way of routing on one set. Shares are in percent."""

    data: str
    routing: str
    requests: int
    switches: int  # of the expert within a conversation
    needed: int  # changes of the expert that should answer
    unneeded: int  # switches where the expert that should answer did not change
    kept: float  # of the tokens that caches could have kept
    accuracy: float  # of the requests that have a right expert

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def count_switches(data: str, routing: str, traces: Sequence[Sequence[Ask]], chosen: Sequence[Sequence[str]]) -> Row:
    """The figures, from the experts (or replicas) that got the requests of each trace."""
    switches = needed = unneeded = kept = possible = right = judged = requests = 0
    for asks, experts in zip(traces, chosen, strict=True):
        last: dict[str, tuple[Ask, str]] = {}
        read: dict[tuple[str, str], int] = {}  # tokens of the last request of a conversation that an expert has
        for ask, expert in zip(asks, experts, strict=True):
            requests += 1
            if (found := last.get(ask.conversation)) is not None:
                before, by = found
                possible += read[ask.conversation, by]
                kept += read.get((ask.conversation, expert), 0)
                has_changed = ask.expert != before.expert
                switches, needed = switches + (expert != by), needed + has_changed
                unneeded += expert != by and not has_changed
            read[ask.conversation, expert] = ask.tokens
            last[ask.conversation] = ask, expert
            if ask.expert is not None:
                right, judged = right + (expert == ask.expert), judged + 1
    share, accuracy = 100.0 * kept / max(1, possible), 100.0 * right / max(1, judged)
    return Row(data, routing, requests, switches, needed, unneeded, share, accuracy)


def add_up(rows: Sequence[Row]) -> list[Row]:
    """All sets together, for each way: sums of switches, means of shares."""
    made = []
    for way in dict.fromkeys(row.routing for row in rows):
        own = [row for row in rows if row.routing == way]
        sums = {name: sum(getattr(row, name) for row in own) for name in SUMMED}
        kept, accuracy = mean(row.kept for row in own), mean(row.accuracy for row in own)
        made.append(Row("all", way, **sums, kept=kept, accuracy=accuracy))
    return made
