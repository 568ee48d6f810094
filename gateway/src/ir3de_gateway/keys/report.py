"""What a key may do, how much, and what it has used, for people to read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from ir3de_gateway.keys.account import Account
from ir3de_gateway.keys.client_key import ClientKey, build_unreadable_error
from ir3de_gateway.keys.usage import Minute, Totals, Used, find_day, find_month
from ir3de_gateway.workers.number_file import DamagedNumbersError


def describe_key(key: ClientKey, experts: Iterable[str]) -> dict[str, Any]:
    """A key, and what it has used, also of each of these experts."""
    description: dict[str, Any] = {
        "name": key.name,
        "scopes": sorted(key.scopes),
        "experts": None if key.experts is None else sorted(key.experts),
        "expires": format_moment(key.expires_at) if isfinite(key.expires_at) else None,
        "disabled": key.is_disabled,
        "limits": key.limits.model_dump(),
    }
    if key.account is None:
        return description
    try:
        minute, totals, concurrent = key.account.read()
        by_expert = _describe_experts(key.account, experts)
    except DamagedNumbersError:
        return {**description, "problem": build_unreadable_error(key.name).message}
    description["used"] = _describe_used(minute, totals, concurrent)
    description["resets"] = _describe_resets(minute, totals)
    description["by_expert"] = by_expert
    return description


def _describe_used(minute: Minute, totals: Totals, concurrent: int) -> dict[str, Any]:
    return {
        "requests": minute.requests,
        "tokens": minute.tokens,
        "concurrent": concurrent,
        "day": _describe_period(totals.day),
        "month": _describe_period(totals.month) | {"estimated": totals.estimated},
    }


def _describe_period(used: Used) -> dict[str, Any]:
    return {"requests": used.requests, "tokens": used.tokens, "cost": used.shown_cost}


def _describe_resets(minute: Minute, totals: Totals) -> dict[str, str]:
    """When all requests and tokens of the minute are over, and when the next day and month begin."""
    now = totals.now
    return {
        "requests": format_moment(now + minute.find_requests_reset()),
        "tokens": format_moment(now + minute.find_tokens_reset()),
        "day": format_moment(find_day(now).ends),
        "month": format_moment(find_month(now).ends),
    }


def _describe_experts(account: Account, experts: Iterable[str]) -> list[dict[str, Any]]:
    """What the answers of each expert took this month; experts that gave none are left out."""
    found = ((name, account.read_for_expert(name)) for name in experts)
    return [
        {"expert": name, **_describe_period(totals.month), "estimated": totals.estimated}
        for name, totals in found
        if totals.month.requests
    ]


def format_moment(seconds: float) -> str:
    """Seconds since 1970 as a time of UTC.

    >>> format_moment(0.5)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
