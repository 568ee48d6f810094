"""The access log and the decision log, one JSON line each. No keys, no headers; prompts only if configured."""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from functools import lru_cache
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from ir3de.errors import ArtifactError

if TYPE_CHECKING:
    from ir3de.gateway.config.models import Price
    from ir3de.gateway.exchange_record import ExchangeRecord

STANDARD_OUTPUT = "-"
ROTATION_CHECK_S = 1.0  # between two checks whether a file was rotated
WARN_INTERVAL_S = 60.0
MAX_NAME_CHARS = 100  # of values that clients choose: a line must fit into one write to a pipe
MAX_TEXT_CHARS = 100_000  # routing reads the first thousand tokens
MAX_RANKED = 10

_log = logging.getLogger(__name__)


class LogFile:
    """A file that several processes append lines to, each in one write. It survives rotation and a full disk."""

    def __init__(self, path: str) -> None:
        self._path = None if path == STANDARD_OUTPUT else Path(path)
        self._file = 1 if self._path is None else _open(self._path)
        self._look = monotonic() + ROTATION_CHECK_S
        self._is_torn = False  # the last line did not fit on the disk
        self.lost = 0
        self._complain = 0.0

    def write(self, line: bytes) -> None:
        """Append the line. If that fails, the line is lost and counted."""
        if self._path is not None and monotonic() >= self._look:
            self._reopen_if_rotated(self._path)
        if self._is_torn:
            line = b"\n" + line
        try:
            written = os.write(self._file, line)
        except OSError as error:
            self._report_loss(error.strerror or str(error))
            return
        self._is_torn = written < len(line)
        if self._is_torn:
            self._report_loss("no room for the whole line")

    def reopen(self) -> None:
        """Open the file again, after a rotation."""
        if self._path is None:
            return
        try:
            fresh = _open(self._path)
        except ArtifactError as error:
            self._report_loss(str(error), lines=0)  # go on with the old file
            return
        os.close(self._file)
        self._file, self._is_torn = fresh, False

    def close(self) -> None:
        if self._path is not None and self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _reopen_if_rotated(self, path: Path) -> None:
        self._look = monotonic() + ROTATION_CHECK_S
        try:
            there = path.stat()
        except OSError:
            there = None
        ours = os.fstat(self._file)
        if there is None or (there.st_ino, there.st_dev) != (ours.st_ino, ours.st_dev):
            self.reopen()

    def _report_loss(self, why: str, lines: int = 1) -> None:
        self.lost += lines
        if monotonic() >= self._complain:
            self._complain = monotonic() + WARN_INTERVAL_S
            _log.warning(
                "cannot write to %s: %s. %d lines lost so far", self._path or "standard output", why, self.lost
            )


def format_access_line(record: ExchangeRecord) -> bytes:
    """The access log line of a request."""
    # built by hand: a dictionary and json.dumps take three times as long
    routed = record.decision is not None
    expected = "" if record.expected_score is None else f'"expected_score": {record.expected_score:.6f}, '
    cost = "null" if record.cost is None else f"{record.cost:.9g}"
    handed_on = _json(record.fallbacks[:MAX_RANKED]) if record.fallbacks else "[]"
    return (
        f'{{"time": "{_format_time(record.started)}", "request_id": {_quote(record.request_id[:MAX_NAME_CHARS])}, '
        f'"method": {_quote(record.method)}, "endpoint": {_quote(record.endpoint)}, '
        f'"asked": {_quote(record.asked[:MAX_NAME_CHARS])}, '
        f'"expert": {_quote(record.expert)}, "model": {_quote(record.model)}, "status": {record.status}, '
        f'"outcome": {_quote(record.outcome)}, "error": {_quote(record.error)}, "why": {_quote(record.why)}, '
        f'"confidence": {_format_number(record.confidence if routed else None, 1, 6)}, {expected}'
        f'"margin": {_format_number(record.margin if routed else None, 1, 6)}, '
        f'"route_us": {_format_number(record.route_seconds, 1e6, 1)}, '
        f'"ttft_ms": {_format_number(record.first_seconds, 1e3, 3)}, '
        f'"total_ms": {_format_number(record.total_seconds, 1e3, 3)}, "fallbacks": {handed_on}, '
        f'"prompt_tokens": {_format_number(record.prompt_tokens, 1, 0)}, '
        f'"completion_tokens": {_format_number(record.completion_tokens, 1, 0)}, "cost": {cost}, '
        f'"received_bytes": {record.received_bytes}, "sent_bytes": {record.sent_bytes}, '
        f'"stream": {"true" if record.stream else "false"}}}\n'
    ).encode()


def format_decision_line(record: ExchangeRecord, *, price: Price | None = None, prompts: bool = False) -> bytes:
    """The decision log line of a routed request; it has the text only with `prompts`."""
    decision = record.decision
    assert decision is not None
    score = decision.expected_score
    name = "probability" if score is None else "expected_score"
    line: dict[str, Any] = {
        "time": _format_time(record.started),
        "request_id": record.request_id[:MAX_NAME_CHARS],
        "router": record.router,
        "expert": decision.expert,
        "served": record.expert,
        "confidence": _round(record.confidence, 6),
        **({} if score is None else {"expected_score": round(score, 6)}),
        "margin": _round(record.margin, 6),
        "ranking": [{"expert": one, name: round(value, 6)} for one, value in decision.ranking[:MAX_RANKED]],
        "abstained": decision.abstained,
        "reason": decision.reason,
        "in_domain": _round(decision.in_domain, 6),
        "why": record.why,
        "fallbacks": [list(handed_on) for handed_on in record.fallbacks[:MAX_RANKED]],
        "status": record.status,
        "outcome": record.outcome,
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.completion_tokens,
        "cost": record.cost,
    }
    if price is not None:
        line["price"] = {"input_per_1m": price.input_per_1m, "output_per_1m": price.output_per_1m}
    if prompts:
        line["text"] = record.text[:MAX_TEXT_CHARS]
    try:
        return json.dumps(line, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate: JSON can escape it, UTF-8 cannot encode it
        return json.dumps(line).encode() + b"\n"


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o640)
    except OSError as error:
        raise ArtifactError(
            f"cannot write the log {path}: {error.strerror or error}. Name a file in a folder that exists"
        ) from error


def _format_time(seconds: float) -> str:
    return f"{_format_second(int(seconds))}.{int(seconds % 1 * 1000):03}Z"


@lru_cache(maxsize=4)
def _format_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _format_number(value: float | None, unit: float, digits: int) -> str:
    return "null" if value is None or not isfinite(value) else f"{value * unit:.{digits}f}"


def _round(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


_json = json.dumps
_quote = json.encoder.encode_basestring_ascii
