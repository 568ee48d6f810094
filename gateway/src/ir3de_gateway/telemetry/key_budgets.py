"""Budgets of keys for Prometheus: what each may cost in a day and a month, and what it has cost so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from ir3de_gateway.telemetry.key_metrics import MAX_KEYS
from ir3de_gateway.workers.number_file import DamagedNumbersError

if TYPE_CHECKING:
    from ir3de_gateway.keys.definitions import KeyLimits
    from ir3de_gateway.keys.store import KeyStore


def build_budget_metrics(keys: KeyStore) -> list[Metric]:
    """The budgets of keys that have one, and whether the keys file is as it should be.

    The accounts are shared by all workers, so any of them can tell; their numbers are not added up.
    """
    budget = GaugeMetricFamily("ir3de_key_budget", "What a key may cost.", labels=("key", "period"))
    used = GaugeMetricFamily(
        "ir3de_key_budget_used", "What a key with a budget has cost in this period.", labels=("key", "period")
    )
    is_valid = GaugeMetricFamily(
        "ir3de_keys_file_valid", "1 if the keys file is in force, 0 while it is broken and the one before serves."
    )
    is_valid.add_metric((), float(keys.problem is None))
    with_budget = [key for key in keys.list_all() if _has_budget(key.limits) and key.account is not None]
    for key in with_budget[:MAX_KEYS]:
        assert key.account is not None
        try:
            _, totals, _ = key.account.read()
        except DamagedNumbersError:  # the log has it, and /admin/keys
            continue
        day, month = (key.limits.budget_per_day, totals.day), (key.limits.budget_per_month, totals.month)
        for period, (limit, so_far) in {"day": day, "month": month}.items():
            if limit is not None:
                budget.add_metric((key.name, period), limit)
                used.add_metric((key.name, period), so_far.shown_cost)
    return [budget, used, is_valid]


def _has_budget(limits: KeyLimits) -> bool:
    return limits.budget_per_day is not None or limits.budget_per_month is not None
