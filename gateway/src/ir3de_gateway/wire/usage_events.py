"""The relay of a stream whose tokens are counted: the usage that the gateway asked for is taken out again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ir3de_gateway.wire.event_stream import EventRelay
from ir3de_gateway.wire.format import WireFormat

_event = re.compile(rb"(?s).+?(?:\r\n\r\n|\n\n|\r\r|\n\r\n|\Z)")
_object = re.compile(rb"(?:^|[\r\n])data: ?(\{[^\r\n]*)")


class AccountingRelay(EventRelay):
    """Relays events, counts them, and calls `on_end` before the final event is sent on.

    >>> from ir3de_gateway.wire import FORMATS
    >>> relay = AccountingRelay(FORMATS["chat/completions"], drops_usage=True)
    >>> relay.feed(b'data: {"choices":[{}]}\\n\\ndata: {"choices":[],"usage":{"prompt_tokens":7}}\\n\\n')
    b'data: {"choices":[{}]}\\n\\n'
    >>> relay.find_usage(), relay.events
    ({'prompt_tokens': 7}, 1)
    """

    def __init__(
        self,
        wire: WireFormat,
        provenance: bytes = b"",
        *,
        drops_usage: bool = False,
        on_end: Callable[[AccountingRelay], None] = lambda relay: None,
    ) -> None:
        super().__init__(wire, provenance)
        self.events = 0
        self._drops_usage, self._on_end, self._has_ended = drops_usage, on_end, False
        self._usage: Mapping[str, Any] | None = None

    def _pass(self, ready: bytes) -> bytes:
        if self._drops_usage and b'"usage"' in ready:
            ready = _event.sub(self._drop_usage, ready)
        self.events += ready.count(b"data:")
        ready = super()._pass(ready)
        if not self._has_ended and self.is_done:
            self._has_ended = True
            self._on_end(self)
        return ready

    def find_usage(self) -> Mapping[str, Any]:
        return super().find_usage() if self._usage is None else self._usage

    def _drop_usage(self, event: re.Match[bytes]) -> bytes:
        """Nothing, if the event has the usage and no choices, as OpenAI's API has it; otherwise the event."""
        whole = event.group()
        found = _object.search(whole) if b'"usage"' in whole else None
        if found is None:
            return whole
        try:
            content = json.loads(found.group(1))
        except (ValueError, RecursionError):
            return whole
        if content.get("choices") == [] and isinstance(usage := content.get("usage"), dict):
            self._usage = usage
            return b""
        return whole
