"""The journal of requests that LiteLLM's proxy has answered: the same as the gateway's, for the same commands."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ir3de.errors import IR3DEError
from ir3de_gateway.exchange_record import ExchangeRecord
from ir3de_gateway.feedback.writer import JournalWriter, check_folder

if TYPE_CHECKING:
    from ir3de import Router
    from ir3de_gateway.config.document import FeedbackConfig
    from ir3de_gateway.integrations.decider import Verdict

DELETE_INTERVAL_S = 60.0  # between two deletions of old requests
MAX_OPEN = 20_000  # requests that were decided and have no answer yet; beyond it, the oldest ones are not kept

_log = logging.getLogger("ir3de.gateway")


class LiteLLMJournal:
    """Keeps what was decided until LiteLLM reports the answer, and then writes both."""

    def __init__(self, config: FeedbackConfig) -> None:
        check_folder(config)
        self._writer = JournalWriter(config, self._count_lost)
        self._open: OrderedDict[str, tuple[Verdict, Router]] = OrderedDict()
        self._is_closing = threading.Event()
        self._deleting: threading.Thread | None = None

    def begin(self, call_id: str, verdict: Verdict, router: Router) -> None:
        if self._deleting is None:  # not earlier: a thread does not outlive the fork of a worker
            self._deleting = threading.Thread(target=self._delete_old, name="journal-deletion", daemon=True)
            self._deleting.start()
        self._open[call_id] = verdict, router
        if len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)

    def end(self, report: Mapping[str, Any], answer: object, started: datetime, ended: datetime) -> None:
        """Write the request that LiteLLM reports, if it was routed here."""
        call_id = str(report.get("litellm_call_id") or "")
        found = self._open.pop(call_id, None)
        if found is None:
            return
        verdict, router = found
        logged: Mapping[str, Any] = report.get("standard_logging_object") or {}
        key = (logged.get("metadata") or {}).get("user_api_key_alias")
        record = ExchangeRecord(
            call_id,
            str(logged.get("call_type") or ""),
            started=started.timestamp(),
            decision=verdict.decision,
            decided=verdict.expert,
            router=verdict.router,
            why="abstained" if verdict.why else "",
            text=verdict.prompt.text,
            turns=verdict.prompt.turns,
            expert=verdict.expert or "",
            status=200 if logged.get("status") == "success" else 500,
            total_seconds=(ended - started).total_seconds(),
            response_id=str(getattr(answer, "id", None) or logged.get("id") or ""),
            prompt_tokens=logged.get("prompt_tokens"),
            completion_tokens=logged.get("completion_tokens"),
            cost=logged.get("response_cost"),
            key=str(key or ""),
        )
        self._writer.put(record, router)

    def _delete_old(self) -> None:
        """Delete requests that are older than `feedback.days`, again and again."""
        while not self._is_closing.wait(DELETE_INTERVAL_S):
            try:
                self._writer.delete_old()
            except IR3DEError as error:
                _log.warning("old requests could not be deleted from the journal: %s", error)

    def close(self) -> None:
        self._is_closing.set()
        if self._deleting is not None:
            self._deleting.join()
        self._writer.close()

    @staticmethod
    def _count_lost(requests: int) -> None:
        _log.warning("%d requests could not be kept in the journal", requests)
