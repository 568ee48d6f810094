"""One request in the format of an expert of the other kind, and what turns the expert's answer back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import urlsplit

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.config.experts import ExpertConfig
from ir3de_gateway.headers import HeaderList
from ir3de_gateway.translation.answers import build_completion, build_message
from ir3de_gateway.translation.chat_request import DEFAULT_MAX_TOKENS, build_messages_request
from ir3de_gateway.translation.chat_stream import ChatToMessages
from ir3de_gateway.translation.faults import UntranslatableError
from ir3de_gateway.translation.messages_request import build_chat_request
from ir3de_gateway.translation.messages_stream import MessagesToChat
from ir3de_gateway.translation.streams import StreamTranslator, dump
from ir3de_gateway.wire import FORMATS
from ir3de_gateway.wire.formats import WireFormat

ANTHROPIC_VERSION = "2023-06-01"
_OPENAI_HOST = "api.openai.com"  # whose models refuse max_tokens; other servers may know nothing else


class Translation(ABC):
    """A request that was translated for one expert."""

    direction: ClassVar[bytes]  # for people
    wire: ClassVar[WireFormat]  # the expert's format
    headers: ClassVar[Mapping[str, str]] = {}  # that its API wants beside the key

    def __init__(self, values: Mapping[str, Any], config: ExpertConfig) -> None:
        """Translate the values of a request, or raise an `ApiError` that names the field."""
        request = self._build_request(values, config)
        added = {name: value for name, value in config.defaults.items() if name not in request}
        self.content = dump({"model": config.served_model, **added, **request})

    @classmethod
    @abstractmethod
    def check(cls, values: Mapping[str, Any]) -> object:
        """Raise an `ApiError` if the values cannot be translated, whoever the expert is."""

    @abstractmethod
    def _build_request(self, values: Mapping[str, Any], config: ExpertConfig) -> dict[str, Any]:
        """The request in the expert's format, with the expert's system prompt if it has none."""

    @abstractmethod
    def build_answer(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The expert's whole answer in the client's format; raises `UnreadableAnswer`."""

    @abstractmethod
    def create_stream(self) -> StreamTranslator:
        """What turns the expert's stream into the client's."""

    def build_headers(self, request_id: str) -> HeaderList:
        """For the client: that the answer was translated."""
        return [(b"x-ir3de-translated", self.direction)]


class MessagesByChat(Translation):
    """For clients of Anthropic's API, and experts of OpenAI's."""

    direction = b"messages to chat"
    wire = FORMATS["chat/completions"]

    @classmethod
    def check(cls, values: Mapping[str, Any]) -> object:
        return build_chat_request(values)

    def _build_request(self, values: Mapping[str, Any], config: ExpertConfig) -> dict[str, Any]:
        wanted = values.get("stop_sequences")
        self._stops = tuple(one for one in wanted if isinstance(one, str)) if isinstance(wanted, list) else ()
        is_new = urlsplit(config.base_url).hostname == _OPENAI_HOST or "max_completion_tokens" in config.defaults
        request = build_chat_request(values, tokens_field="max_completion_tokens" if is_new else "max_tokens")
        if config.stream_usage is False:  # it cannot tell it
            request.pop("stream_options", None)
        if config.system_prompt is not None and not any(one["role"] == "system" for one in request["messages"]):
            request["messages"].insert(0, {"role": "system", "content": config.system_prompt})
        return request

    def build_answer(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        return build_message(answer, self._stops)

    def create_stream(self) -> StreamTranslator:
        return ChatToMessages(self._stops)

    def build_headers(self, request_id: str) -> HeaderList:
        return [*super().build_headers(request_id), (b"request-id", request_id.encode())]  # as its clients look for it


class ChatByMessages(Translation):
    """For clients of OpenAI's API, and experts of Anthropic's."""

    direction = b"chat to messages"
    wire = FORMATS["messages"]
    headers: ClassVar[Mapping[str, str]] = {"anthropic-version": ANTHROPIC_VERSION}

    @classmethod
    def check(cls, values: Mapping[str, Any]) -> object:
        return build_messages_request(values)

    def _build_request(self, values: Mapping[str, Any], config: ExpertConfig) -> dict[str, Any]:
        options = values.get("stream_options")
        self._tells_usage = isinstance(options, dict) and options.get("include_usage") is True
        default = config.defaults.get("max_tokens")
        request = build_messages_request(values, max_tokens=default if isinstance(default, int) else DEFAULT_MAX_TOKENS)
        if config.system_prompt is not None and "system" not in request:
            request = {"system": config.system_prompt, **request}
        return request

    def build_answer(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        return build_completion(answer)

    def create_stream(self) -> StreamTranslator:
        return MessagesToChat(tells_usage=self._tells_usage)


TRANSLATIONS: Mapping[str, type[Translation]] = {  # by the path of the client's endpoint
    "messages": MessagesByChat,
    "chat/completions": ChatByMessages,
}


def find_untranslatable(wire: WireFormat, values: Mapping[str, Any]) -> UntranslatableError | None:
    """The field of a request that has no counterpart in the other format, if there is one.

    What is wrong with the request otherwise is for the expert to say.
    """
    if (translation := TRANSLATIONS.get(wire.path)) is None:
        return None
    try:
        translation.check(values)
    except UntranslatableError as error:
        return error
    except ApiError:
        return None
    return None
