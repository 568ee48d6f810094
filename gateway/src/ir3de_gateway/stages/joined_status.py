"""The batches of several experts as one object: status, counts, times and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_ENDED = ("completed", "failed", "expired", "cancelled")
_TIMES = (
    "in_progress_at", "finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at", "cancelled_at",
    "expires_at",
)  # fmt: skip
_FIRST_TIMES = ("in_progress_at", "expires_at")  # of the others, the last one counts


class JoinedBatch(NamedTuple):
    """A batch over several experts."""

    fields: dict[str, Any]
    has_ended: bool


def join_status(statuses: Sequence[str]) -> str:
    """The status of a batch whose parts have these.

    >>> join_status(["completed", "in_progress"]), join_status(["completed", "failed"]), join_status(["failed"])
    ('in_progress', 'completed', 'failed')
    """
    running = [status for status in statuses if status not in _ENDED]
    if running:
        if "cancelling" in running:
            return "cancelling"
        if len(set(running)) == 1 and (len(running) == len(statuses) or running[0] == "finalizing"):
            return running[0]
        return "in_progress"
    for one in ("cancelled", "expired", "completed"):  # those that have output, too
        if one in statuses:
            return one
    return "failed"


def join_batches(batch: Mapping[str, Any], objects: Sequence[Mapping[str, Any]], lines: Sequence[int]) -> JoinedBatch:
    """One batch object. The lines of a part that failed as a whole count as failed."""
    statuses = [str(one.get("status")) for one in objects]
    counts = {"total": 0, "completed": 0, "failed": 0}
    for one, status, size in zip(objects, statuses, lines, strict=True):
        given = one.get("request_counts")
        given = given if isinstance(given, dict) else {}
        found = {name: value if isinstance(value := given.get(name), int) else 0 for name in counts}
        counts["total"] += size
        counts["completed"] += found["completed"]
        counts["failed"] += size - found["completed"] if status == "failed" else found["failed"]
    times = dict[str, int]()
    for name in _TIMES:
        moments = [moment for one in objects if isinstance(moment := one.get(name), int)]
        if moments:
            times[name] = min(moments) if name in _FIRST_TIMES else max(moments)
    status = join_status(statuses)
    if status not in _ENDED:  # the ends of some parts are not that of the batch
        times = {name: moment for name, moment in times.items() if name in (*_FIRST_TIMES, "cancelling_at")}
    fields = {**batch, "status": status, "request_counts": counts, **times, "errors": _join_errors(objects)}
    return JoinedBatch({**fields, "output_file_id": None, "error_file_id": None}, status in _ENDED)


def _join_errors(objects: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    data = list[Any]()
    for one in objects:
        errors = one.get("errors")
        if isinstance(errors, dict) and isinstance(errors.get("data"), list):
            data += errors["data"]
    return {"object": "list", "data": data} if data else None
