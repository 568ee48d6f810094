"""One request in the format of an expert of the other kind, and the expert's answer in the client's format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

from ir3de_gateway.api_errors import ApiError, encode_json
from ir3de_gateway.config.experts import ExpertConfig
from ir3de_gateway.experts.retry import RETRYABLE_STATUSES, UpstreamFailure
from ir3de_gateway.experts.upstream import UpstreamResponse, parse_object
from ir3de_gateway.headers import HeaderList
from ir3de_gateway.store.pins import OWN_RESPONSE
from ir3de_gateway.translation import DEFAULT_MAX_TOKENS, UntranslatableError
from ir3de_gateway.translation.answers import UnreadableAnswer, build_completion, build_message, dump, translate_error
from ir3de_gateway.translation.requests import build_chat_request, build_messages_request
from ir3de_gateway.translation.response_answers import ChatToResponse, ResponseHead, build_response
from ir3de_gateway.translation.response_requests import build_chat_from_response
from ir3de_gateway.translation.streams import ChatToMessages, MessagesToChat, StreamTranslator
from ir3de_gateway.wire import FORMATS
from ir3de_gateway.wire.formats import WireFormat

ANTHROPIC_VERSION = "2023-06-01"
_OPENAI_HOST = "api.openai.com"  # whose models reject max_tokens; other servers may only know that
_REWRITTEN = frozenset((b"content-type", b"content-encoding", b"request-id"))


class Translation(ABC):
    """A request that was translated for one expert."""

    direction: ClassVar[bytes]  # the value of a header
    wire: ClassVar[WireFormat]  # the expert's format
    headers: ClassVar[Mapping[str, str]] = {}  # that its API requires, besides the key

    def __init__(self, values: Mapping[str, Any], config: ExpertConfig) -> None:
        """Translate the values of a request, or raise an `ApiError` that names the field."""
        request = self._build_request(values, config)
        added = {name: value for name, value in config.defaults.items() if name not in request}
        self.content = dump({"model": config.served_model, **added, **request})

    @abstractmethod
    def _build_request(self, values: Mapping[str, Any], config: ExpertConfig) -> dict[str, Any]:
        """The request in the expert's format, with the expert's system prompt if it has none."""

    @abstractmethod
    def build_answer(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The expert's whole answer in the client's format; raises `UnreadableAnswer`."""

    @abstractmethod
    def create_stream(self) -> StreamTranslator:
        """A translator of the expert's stream."""

    def build_headers(self, request_id: str) -> HeaderList:
        """Headers for the client, which mark the answer as translated."""
        return [(b"x-ir3de-translated", self.direction)]


def _find_tokens_field(config: ExpertConfig) -> str:
    """The name of the limit of an answer that the expert knows."""
    is_new = urlsplit(config.base_url).hostname == _OPENAI_HOST or "max_completion_tokens" in config.defaults
    return "max_completion_tokens" if is_new else "max_tokens"


def _complete_chat(request: dict[str, Any], config: ExpertConfig) -> dict[str, Any]:
    """A chat with the expert's system prompt, and without what the expert does not know."""
    if config.stream_usage is False:  # it cannot report it
        request.pop("stream_options", None)
    if config.system_prompt is not None and not any(one["role"] == "system" for one in request["messages"]):
        request["messages"].insert(0, {"role": "system", "content": config.system_prompt})
    return request


class MessagesByChat(Translation):
    """For clients of Anthropic's API, and experts of OpenAI's."""

    direction = b"messages to chat"
    wire = FORMATS["chat/completions"]

    def _build_request(self, values: Mapping[str, Any], config: ExpertConfig) -> dict[str, Any]:
        wanted = values.get("stop_sequences")
        self._stops = tuple(one for one in wanted if isinstance(one, str)) if isinstance(wanted, list) else ()
        return _complete_chat(build_chat_request(values, tokens_field=_find_tokens_field(config)), config)

    def build_answer(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        return build_message(answer, self._stops)

    def create_stream(self) -> StreamTranslator:
        return ChatToMessages(self._stops)

    def build_headers(self, request_id: str) -> HeaderList:
        return [*super().build_headers(request_id), (b"request-id", request_id.encode())]  # as its clients look for it


class Continuation(NamedTuple):
    """The stored response that a request continues, whose items were put before the request's own."""

    response_id: str = ""
    last: Mapping[str, Any] | None = None  # the last of these items
    own_count: int = 0

    def find_own(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The request's own items, as they were sent: what follows the last of the others.

        Hooks may have removed some of those and added others. If they removed the last one, as many as the client sent.
        """
        if not self.response_id:
            return items
        expected = max(0, len(items) - self.own_count)
        starts = [place for place, item in enumerate(items, 1) if self._is_last(item)]
        return items[min(starts, key=lambda start: abs(start - expected), default=expected) :]

    def _is_last(self, item: Mapping[str, Any]) -> bool:
        if self.last is None or (item_id := self.last.get("id")) is None:
            return item == self.last
        return bool(item.get("id") == item_id)  # a hook may have changed its text


NOT_CONTINUED = Continuation()


class ResponsesByChat(Translation):
    """For clients of OpenAI's responses, and experts that have only its chats. The gateway stores the responses."""

    direction = b"responses to chat"
    wire = FORMATS["chat/completions"]

    def _build_request(self, values: Mapping[str, Any], config: ExpertConfig) -> dict[str, Any]:
        self._input, self._wants_store = values.get("input"), values.get("store") is not False
        self._continued = NOT_CONTINUED
        self._head = ResponseHead(values, f"{OWN_RESPONSE}{uuid4().hex}")
        self._stream: ChatToResponse | None = None
        self._finished: dict[str, Any] | None = None
        return _complete_chat(build_chat_from_response(values, tokens_field=_find_tokens_field(config)), config)

    def prepare(self, continued: Continuation, *, may_store: bool) -> None:
        """Set which response it continues, and whether it may be stored."""
        self._head.previous_id, self._continued = continued.response_id or None, continued
        self._head.is_stored = self._wants_store and may_store

    def build_answer(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        self._finished = build_response(answer, self._head)
        return self._finished

    def create_stream(self) -> StreamTranslator:
        self._stream = ChatToResponse(self._head)
        return self._stream

    def take_stored(self) -> dict[str, Any] | None:
        """What is to be stored, once, as soon as the response is complete: the response and its own input."""
        found = self._finished or (None if self._stream is None else self._stream.response)
        if found is None or not self._head.is_stored:
            return None
        self._head.is_stored = False
        given = self._input if isinstance(self._input, list) else [{"role": "user", "content": self._input}]
        own = self._continued.find_own(given)
        return {"previous": self._continued.response_id, "input": own, "response": found}


class ChatByMessages(Translation):
    """For clients of OpenAI's API, and experts of Anthropic's."""

    direction = b"chat to messages"
    wire = FORMATS["messages"]
    headers: ClassVar[Mapping[str, str]] = {"anthropic-version": ANTHROPIC_VERSION}

    def _build_request(self, values: Mapping[str, Any], config: ExpertConfig) -> dict[str, Any]:
        options = values.get("stream_options")
        self._sends_usage = isinstance(options, dict) and options.get("include_usage") is True
        default = config.defaults.get("max_tokens")
        request = build_messages_request(values, max_tokens=default if isinstance(default, int) else DEFAULT_MAX_TOKENS)
        if config.system_prompt is not None and "system" not in request:
            request = {"system": config.system_prompt, **request}
        return request

    def build_answer(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        return build_completion(answer)

    def create_stream(self) -> StreamTranslator:
        return MessagesToChat(sends_usage=self._sends_usage)


TRANSLATIONS: Mapping[str, type[Translation]] = {  # by the path of the client's endpoint
    "messages": MessagesByChat,
    "responses": ResponsesByChat,
    "chat/completions": ChatByMessages,
}


def find_untranslatable(wire: WireFormat, values: Mapping[str, Any]) -> UntranslatableError | None:
    """The field of a request that has no counterpart in the other format, if there is one.

    Other errors in the request are left to the expert.
    """
    translate: Mapping[str, Callable[[Mapping[str, Any]], object]]
    translate = {
        "messages": build_chat_request,
        "responses": build_chat_from_response,
        "chat/completions": build_messages_request,
    }
    try:
        if wire.path in translate:
            translate[wire.path](values)
    except ApiError as error:
        return error if isinstance(error, UntranslatableError) else None
    return None


class TranslatedResponse(UpstreamResponse):
    """An expert's answer in the client's format: whole, or piece by piece without waiting for its end."""

    def __init__(self, inner: UpstreamResponse, translation: Translation, wire: WireFormat, expert: str) -> None:
        self._inner, self._translation, self._wire, self._name = inner, translation, wire, expert
        self._stream: StreamTranslator = translation.create_stream()
        self._has_ended = False
        self.status, self.resends = inner.status, inner.resends
        self.content_type, self.is_stream = inner.content_type, inner.is_stream
        self.headers = [pair for pair in inner.headers if pair[0] not in _REWRITTEN]
        kind = b"text/event-stream; charset=utf-8" if self.is_stream else b"application/json"
        self.headers.append((b"content-type", kind))
        self.is_decompressed = False  # the translated answer never was compressed

    def close(self) -> None:
        self._inner.close()

    def end_by(self, deadline: float) -> None:
        self._inner.end_by(deadline)

    @property
    def is_out_of_time(self) -> bool:
        return self._inner.is_out_of_time

    async def await_first_piece(self) -> None:
        await self._inner.await_first_piece()

    def find_usage(self) -> Mapping[str, Any]:
        return self._stream.usage

    async def read_whole(self) -> bytes | None:
        body = await self._inner.read_whole()
        if body is None:
            message = f"'{self._name}' sent more than can be translated"
            raise UpstreamFailure("garbage", message, is_expert_fault=False)
        content = parse_object(body)
        if self.status >= 400:
            if content is None and self.status in RETRYABLE_STATUSES:
                return body  # not an error object: the gateway builds its own
            return encode_json(translate_error(self._wire, self.status, content, self._name))
        if content is None:
            return body  # the reader reports the error
        try:
            return dump(self._translation.build_answer(content))
        except UnreadableAnswer as error:
            raise self._build_failure(error) from error

    def read_first_piece(self) -> Coroutine[Any, Any, bytes]:
        return self._read_translated(self._inner.read_first_piece())

    def read_piece(self, *, last: bool = False) -> Coroutine[Any, Any, bytes]:
        return self._read_translated(self._inner.read_piece(last=last or self._stream.has_ended))

    async def _read_translated(self, reading: Coroutine[Any, Any, bytes]) -> bytes:
        """The next events; a piece of the expert's stream need not hold a whole one."""
        try:
            while not self._has_ended:
                piece = await reading
                self._has_ended = not piece
                if ready := self._stream.feed(piece) if piece else self._stream.flush():
                    return ready
                reading = self._inner.read_piece(last=self._stream.has_ended) if piece else reading
        except UnreadableAnswer as error:
            raise self._build_failure(error) from error
        reading.close()
        return b""

    def _build_failure(self, error: UnreadableAnswer) -> UpstreamFailure:
        return UpstreamFailure("garbage", f"'{self._name}' answered with {error}")
