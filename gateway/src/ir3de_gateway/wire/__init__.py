"""The APIs' formats on the wire: one file for each, and the stream of events they share."""

from __future__ import annotations

from collections.abc import Mapping

from ir3de_gateway.wire.anthropic import CountTokensFormat, MessagesFormat
from ir3de_gateway.wire.chat import ChatFormat, CompletionsFormat, EmbeddingsFormat
from ir3de_gateway.wire.format import WireFormat
from ir3de_gateway.wire.responses import ResponsesFormat

FORMATS: Mapping[str, WireFormat] = {  # by the path below /v1/
    one.path: one
    for one in (
        ChatFormat(),
        CompletionsFormat(),
        ResponsesFormat(),
        MessagesFormat(),
        CountTokensFormat(),
        EmbeddingsFormat(),
    )
}
