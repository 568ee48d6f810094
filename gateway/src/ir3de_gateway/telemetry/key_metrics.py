"""Metrics of each client's key, and the budgets of keys. They are shown only where keys have names."""

from __future__ import annotations

from time import time

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from ir3de_gateway.exchange_record import ExchangeRecord
from ir3de_gateway.keys.registry import KeyRegistry
from ir3de_gateway.store.numbers import DamagedNumbersError
from ir3de_gateway.telemetry.counts import Counts

MAX_KEYS = 1_000  # with labels of their own; a keys file may have more, and change for ever
OTHERS = "other"


class KeyMetrics:
    """Requests, tokens and cost by key and expert, and refusals by key."""

    def __init__(self, counts: Counts) -> None:
        self._requests = counts.add_counter("ir3de_key_requests", "Requests of a key.", "key", "expert")
        self._tokens = counts.add_counter(
            "ir3de_key_tokens",
            "Tokens of a key, as experts count them; estimates where they do not.",
            "key",
            "expert",
            "direction",
        )
        self._cost = counts.add_counter("ir3de_key_cost", "Tokens of a key times their prices.", "key", "expert")
        self._estimated = counts.add_counter(
            "ir3de_key_estimated", "Requests of a key whose tokens were estimated.", "key", "expert"
        )
        self._refusals = counts.add_counter("ir3de_key_refusals", "Requests of a key that were refused.", "key", "code")
        self._keys: set[str] = set()

    def observe(self, record: ExchangeRecord, expert: str) -> None:
        """Count a request that has ended; `expert` is a label."""
        key = self._get_label(record.key)
        if record.outcome == "client_error" and record.status in (403, 429) and record.upstream_seconds is None:
            self.count_refusal(key, record.error)
        self._requests[key, expert] += 1
        if record.prompt_tokens:
            self._tokens[key, expert, "prompt"] += record.prompt_tokens
        if record.completion_tokens:
            self._tokens[key, expert, "completion"] += record.completion_tokens
        if record.cost:
            self._cost[key, expert] += record.cost
        if record.is_estimated:
            self._estimated[key, expert] += 1

    def count_refusal(self, key: str, code: str) -> None:
        self._refusals[self._get_label(key), code] += 1

    def _get_label(self, key: str) -> str:
        if key not in self._keys:
            if len(self._keys) >= MAX_KEYS:
                return OTHERS
            self._keys.add(key)
        return key


def build_budget_metrics(keys: KeyRegistry) -> list[Metric]:
    """The budgets of keys that have one, and whether the keys file is valid.

    All workers share these numbers, so each of them reports the same: they are not added up.
    """
    budget = GaugeMetricFamily("ir3de_key_budget", "What a key may cost.", labels=("key", "period"))
    used = GaugeMetricFamily(
        "ir3de_key_budget_used", "What a key with a budget has cost in this period.", labels=("key", "period")
    )
    is_valid = GaugeMetricFamily(
        "ir3de_keys_file_valid", "1 if the keys file is in force, 0 while it is broken and the one before serves."
    )
    is_valid.add_metric((), float(keys.problem is None))
    with_budget = [
        key for key in keys.list_all() if (key.limits.budget_per_day, key.limits.budget_per_month) != (None, None)
    ]
    for key in with_budget[:MAX_KEYS]:
        assert key.store is not None
        try:
            usage = key.store.read_usage(key.name, time()).usage
        except DamagedNumbersError:  # it is in the log, and at /admin/keys
            continue
        day, month = (key.limits.budget_per_day, usage.day), (key.limits.budget_per_month, usage.month)
        for period, (limit, so_far) in {"day": day, "month": month}.items():
            if limit is not None:
                budget.add_metric((key.name, period), limit)
                used.add_metric((key.name, period), so_far.shown_cost)
    return [budget, used, is_valid]
