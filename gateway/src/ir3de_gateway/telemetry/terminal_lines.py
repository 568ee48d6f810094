"""Lines of the access log for people who watch a terminal: one aligned line a request."""

from __future__ import annotations

import os
from functools import lru_cache
from time import localtime, strftime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ir3de_gateway.exchange_record import ExchangeRecord

MAX_NAME_CHARS = 100  # of a value that clients choose
_EXPERT_WIDTH, _WHY_WIDTH, _MS_WIDTH, _TOKENS_WIDTH = 16, 25, 10, 18
_DIM, _BOLD, _RED, _GREEN, _YELLOW = "\x1b[2m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m"
_RESET = "\x1b[0m"


def wants_colours(file: int) -> bool:
    """Whether a file is a terminal that shows colours (https://no-color.org)."""
    return is_terminal(file) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_terminal(file: int) -> bool:
    try:
        return os.isatty(file)
    except OSError:  # it is closed
        return False


def format_terminal_line(record: ExchangeRecord, *, colours: bool = False) -> bytes:
    """Time, status, expert, why, milliseconds, tokens; then what is unusual.

    >>> from ir3de_gateway.exchange_record import ExchangeRecord
    >>> record = ExchangeRecord("r", "chat", started=0, expert="law", status=200, total_seconds=0.4123, why="pinned")
    >>> record.prompt_tokens, record.completion_tokens = 10, 5
    >>> format_terminal_line(record)[9:].decode()
    '200 law              pinned                        412 ms 10 + 5 tokens\\n'
    """
    expert = _fit(record.expert or "-", _EXPERT_WIDTH)
    why = _fit(_describe_reason(record), _WHY_WIDTH)
    milliseconds = f"{record.total_seconds * 1e3:,.0f} ms".replace(",", " ").rjust(_MS_WIDTH)
    tokens = _describe_tokens(record).ljust(_TOKENS_WIDTH)
    unusual = _describe_unusual(record)
    status = f"{record.status or '---':>3}"
    if colours:
        colour = _GREEN if record.status < 400 else _YELLOW if record.status < 500 else _RED
        status, expert, why = f"{colour}{status}{_RESET}", f"{_BOLD}{expert}{_RESET}", f"{_DIM}{why}{_RESET}"
        unusual = f"{_YELLOW}{unusual}{_RESET}" if unusual else ""
    line = f"{_format_second(int(record.started))} {status} {expert} {why} {milliseconds} {tokens} {unusual}"
    return f"{line.rstrip()}\n".encode(errors="backslashreplace")


def _describe_reason(record: ExchangeRecord) -> str:
    if not record.expert:
        return f"{record.method} {record.endpoint}" if record.endpoint.startswith("/") else record.endpoint
    why = record.why or ("routed" if record.reason is None else record.reason.why)
    if why == "abstained" and record.decision is not None and record.decision.reason:
        why = record.decision.reason  # which says more
    return why if record.confidence is None else f"{why} {record.confidence:.2f}"


def _describe_tokens(record: ExchangeRecord) -> str:
    if record.prompt_tokens is None and record.completion_tokens is None:
        return ""
    return f"{record.prompt_tokens or 0} + {record.completion_tokens or 0} tokens"


def _describe_unusual(record: ExchangeRecord) -> str:
    parts = [f"{giver} {reason}" for giver, _, reason in record.fallbacks[:3]]
    if parts:
        parts = [f"after {', '.join(parts)}"]
    told = record.why == "abstained" or bool(record.fallbacks)
    parts += [text for text in ("" if told else record.instead.text, record.instead.kind) if text]
    if record.cache == "hit":
        parts.append("from the cache")
    if record.retries:
        parts.append(f"{record.retries} {'retry' if record.retries == 1 else 'retries'}")
    if record.expert and record.endpoint != "chat":
        parts.append(record.endpoint)
    if record.stream and record.first_seconds is not None:
        parts.append(f"first byte {record.first_seconds * 1e3:.0f} ms")
    if record.outcome not in ("ok", "client_error"):
        parts.append(record.outcome)
    if record.error and record.error != record.outcome:
        parts.append(record.error)
    if record.replica:  # which is empty if the expert has only one
        parts.append(f"replica {record.replica}")
    if record.key:
        parts.append(f"key {record.key[:_EXPERT_WIDTH]}")
    return _make_printable(", ".join(parts))


def _fit(text: str, width: int) -> str:
    text = _make_printable(text)
    return f"{text[: width - 1]}…" if len(text) > width else text.ljust(width)


def _make_printable(text: str) -> str:
    """Without characters that move the cursor or change colours: clients choose some of it."""
    text = text[:MAX_NAME_CHARS]
    return text if text.isprintable() else "".join(char if char.isprintable() else "�" for char in text)


@lru_cache(maxsize=4)
def _format_second(seconds: int) -> str:
    return strftime("%H:%M:%S", localtime(seconds))
