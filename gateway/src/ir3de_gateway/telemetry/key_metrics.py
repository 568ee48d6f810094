"""Metrics of each client's key. They are shown only where keys have names."""

from __future__ import annotations

from ir3de_gateway.exchange_record import ExchangeRecord
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
