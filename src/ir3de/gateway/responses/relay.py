"""The way of a request: read, choose, ask one expert after the other until one answers, pass the answer on."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from itertools import chain
from time import perf_counter
from typing import Any
from urllib.parse import quote

from starlette.types import Receive, Scope, Send

from ir3de.gateway.api_errors import ClientLeft, Problem, unexpected
from ir3de.gateway.config.models import RESERVED
from ir3de.gateway.exchange_record import Record
from ir3de.gateway.experts.concurrency import Busy
from ir3de.gateway.experts.snapshot import Expert, Snapshot
from ir3de.gateway.experts.upstream import RETRIED, Answer, Asking, Failure
from ir3de.gateway.gateway import Gateway
from ir3de.gateway.headers import HeaderList, for_client, head_for_expert
from ir3de.gateway.requests.choice import Choice, answer_pin, choose, route
from ir3de.gateway.requests.client import Leaving, read_body, wire_of
from ir3de.gateway.requests.controls import FIELD, Controls, read_controls
from ir3de.gateway.requests.json_body import Body
from ir3de.gateway.requests.prompt import Endpoint, read_prompt
from ir3de.gateway.responses.client_response import Reply
from ir3de.gateway.responses.event_stream import EventRelay, with_member
from ir3de.gateway.responses.provenance import provenance_member

LONG = 100_000  # characters of a prompt whose routing takes longer than a request should wait for another: 10 ms
_QUERY = "!$&'()*+,-./:;=?@_~%"  # of a query, as it came
_WAITS = (b"retry-after", b"x-should-retry", b"x-ratelimit-")  # when to come back, also of an answer that is no JSON
_log = logging.getLogger("ir3de.gateway")
_WITHOUT_SAMPLING = ("embeddings", "messages/count_tokens")  # where an expert's defaults would be out of place
_CODES = {"connect": "upstream_unreachable", "garbage": "upstream_invalid", "broken": "upstream_broken"}


class Inference:
    """One of OpenAI's endpoints, as an ASGI application: the experts answer it."""

    def __init__(self, gateway: Gateway, endpoint: Endpoint, path: str) -> None:
        self._gateway, self._endpoint, self._path = gateway, endpoint, path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = Record(scope["state"]["request_id"], self._endpoint)
        exchange = Exchange(self._gateway, self._endpoint, self._path, scope, record, send)
        try:
            await exchange.run(receive)
        except ClientLeft:
            if record.outcome == "ok" and not exchange.complete:
                record.outcome, record.status = "cancelled", record.status or 499
        except Exception as error:
            record.outcome = "failed"
            _log.error("request %s failed", record.request_id, exc_info=error)
            if exchange.reply.begun:
                raise
            await exchange.reply.problem(unexpected(record.request_id))
        except BaseException:
            record.outcome, record.status = "cancelled", record.status or 500
            raise
        finally:
            record.total_seconds = perf_counter() - record.clock
            self._gateway.observer.observe(record)
            if exchange.trace is not None:
                exchange.trace.finish(record)


class Exchange:
    """One request and its answer."""

    def __init__(
        self, gateway: Gateway, endpoint: Endpoint, path: str, scope: Scope, record: Record, send: Send
    ) -> None:
        self.gateway, self.endpoint, self.record = gateway, endpoint, record
        self.path = path if not (query := scope["query_string"]) else f"{path}?{quote(query, safe=_QUERY)}"
        self.snapshot: Snapshot = gateway.live.snapshot
        self.received: Mapping[bytes, bytes] = scope["state"]["headers"]
        self.all_received: HeaderList = scope["headers"]
        self.wire = wire_of(scope)
        said = self.snapshot.config.routing.provenance
        self.signs_body = "body" in said
        self.reply = Reply(send, record, signed="headers" in said)
        self.trace = gateway.tracing.begin(self.received) if gateway.tracing is not None else None
        self.relay: EventRelay | None = None
        self.answered = ""  # the id by which a later request may refer to this answer

    @property
    def complete(self) -> bool:
        """Whether a stream has said its last word, even if its connection has not ended."""
        return self.relay is not None and self.relay.done

    async def run(self, receive: Receive) -> None:
        try:
            content = await read_body(receive, self.received, self.snapshot.config.server.limits, self.wire)
        except Problem as problem:
            self.record.outcome = "client_error"
            await self.reply.refusal(problem, receive)
            return
        self.record.received_bytes = len(content)
        leaving = self.reply.leaving = Leaving(receive, self.wire)
        try:
            await self._answer(content)
        except Problem as problem:
            self.record.outcome = "client_error"
            await self.reply.problem(problem)
        except asyncio.CancelledError:
            if leaving.settle():
                raise ClientLeft from None
            raise
        finally:
            leaving.stop()

    async def _answer(self, content: bytes) -> None:
        config, record = self.snapshot.config, self.record
        body = Body.read(content, config.server.limits.json_depth)
        model, controls = self._asked(body)
        prompt = read_prompt(self.endpoint, body.values, config.routing.text, config.routing.envelopes)
        routed = None
        if len(prompt.text) > LONG and model in RESERVED:  # others are served meanwhile
            routed = await asyncio.to_thread(route, self.snapshot, prompt, controls)
        choice = choose(self.snapshot, model, prompt, controls, self.gateway.pins, routed)
        record.why = choice.why
        if (decision := choice.decision) is not None:
            record.decision, record.route_seconds = decision, choice.route_seconds
            record.confidence, record.margin = decision.confidence, decision.margin
        record.router, record.text, record.session = self.snapshot.digest, prompt.text, controls.session
        await self._ask_in_turn(choice, body)
        if controls.session and choice.decision is not None and record.outcome == "ok" and choice.why != "shadow":
            self.gateway.pins.put(controls.session, record.expert)
        if self.answered and record.outcome == "ok":
            self.gateway.pins.put(answer_pin(self.answered), record.expert)

    def _asked(self, body: Body) -> tuple[str, Controls]:
        model, stream = body.values.get("model", "auto"), body.values.get("stream")
        if not isinstance(model, str) or not model:
            raise Problem(400, f"model must be a name such as 'auto', found {model!r}"[:200], "invalid_type", "model")
        if stream is not None and not isinstance(stream, bool):
            raise Problem(400, f"stream must be true or false, found {stream!r}"[:200], "invalid_type", "stream")
        self.record.asked, self.record.stream = model, bool(stream)
        return model, read_controls(body.values.get(FIELD), self.received, self.gateway.session_headers)

    # asking -----------------------------------------------------------------------------------------------------

    async def _ask_in_turn(self, choice: Choice, body: Body) -> None:
        failure: Failure | None = None
        for expert in chain((choice.first,), _later(choice)):
            if failure is not None:
                self.record.fallbacks.append((self.record.expert, expert.name, failure.reason))
            self.record.expert, self.record.model = expert.name, expert.config.served_model
            try:
                await self._ask(expert, body)
                return
            except Failure as found:
                failure = found
        assert failure is not None
        await self._last_word(failure)

    async def _ask(self, expert: Expert, body: Body) -> None:
        """Ask one expert and pass its answer on; a `Failure` before the first byte leaves the way to others open."""
        await self._enter(expert)
        started = perf_counter()
        try:
            head, content = self._head_for(expert), self._body_for(expert, body)
            async with Asking(self.gateway.connections, expert, self.path, head, content) as answer:
                if answer.status in RETRIED or answer.status >= 500:
                    raise await _refusal(answer, expert)
                if 300 <= answer.status < 400:
                    raise Failure("garbage", f"'{expert.name}' points to another address: correct its base_url")
                await self._pass_on(answer, expert)
            expert.breaker.succeeded()
        except Failure as failure:
            if self.complete:
                expert.breaker.succeeded()
                await self.reply.end()
                return
            if failure.unwell:
                self._failed(expert, failure)
            else:
                expert.breaker.abandoned()
            if not self.reply.begun:
                raise
            await self._break_off(failure)
        except BaseException:
            expert.breaker.abandoned()
            raise
        finally:
            self.record.upstream_seconds = perf_counter() - started
            expert.slots.release()
            self.gateway.observer.ended(expert.name)

    def _failed(self, expert: Expert, failure: Failure) -> None:
        """Count a failure; the operator is told when it is one too many."""
        was_closed = expert.breaker.state == "closed"
        expert.breaker.failed()
        if was_closed and expert.breaker.state == "open":
            rest, address = expert.config.breaker.rest, expert.config.base_url
            _log.warning("%s at %s: it is left alone for %g s, then tried again", failure.message, address, rest)

    async def _enter(self, expert: Expert) -> None:
        """Wait for a place at an expert that is well."""
        if not expert.breaker.admits():
            wait, message = expert.breaker.retry_after, f"'{expert.name}' has failed repeatedly and rests"
            raise Failure("resting", message, 503, retry_after=wait, unwell=False)
        try:
            await expert.slots.acquire()
        except Busy:
            expert.breaker.abandoned()
            message = f"'{expert.name}' has as many requests as it takes"
            raise Failure("busy", message, 429, retry_after=1.0, unwell=False) from None
        except BaseException:
            expert.breaker.abandoned()
            raise
        self.gateway.observer.began(expert.name)

    def _body_for(self, expert: Expert, body: Body) -> bytes:
        config = expert.config
        changes: dict[str, Any] = {}
        if config.defaults and self.path.partition("?")[0] not in _WITHOUT_SAMPLING:
            changes = {key: value for key, value in config.defaults.items() if key not in body.values}
        changes["model"] = config.served_model
        first = None
        if config.system_prompt is not None and self.endpoint == "chat":
            roles = {message["role"] for message in body.values["messages"]}
            if not roles & {"system", "developer"}:
                first = {"role": "system", "content": config.system_prompt}
        return body.rewritten(changes, drop=FIELD, first_message=first)

    def _head_for(self, expert: Expert) -> bytes:
        more: dict[str, str] = {}
        if expert.authorization is not None:
            more["authorization"] = expert.authorization
            if self.endpoint == "messages":  # as Anthropic's API has it
                more["x-api-key"] = expert.authorization.removeprefix("Bearer ")
        if self.trace is not None:
            more |= self.trace.forward()
        return head_for_expert(self.all_received, self.record.request_id, more)

    # passing on -------------------------------------------------------------------------------------------------

    async def _pass_on(self, answer: Answer, expert: Expert) -> None:
        headers = for_client(answer.headers, unpacked=answer.unpacked)
        if answer.is_stream:
            if not self.record.stream and "stream" not in expert.config.defaults:
                raise Failure("garbage", f"'{expert.name}' answered with a stream of events, asked for a whole answer")
            await self._stream(answer, expert, headers)
            return
        body = await answer.whole()
        if body is None:
            await self._stream_as_it_is(answer, headers)
            return
        if answer.status == 200:
            said = _object(body)
            kind = answer.content_type or "something"
            if said is None:
                raise Failure("garbage", f"'{expert.name}' answered with {kind} that is no JSON object")
            if self.record.stream and self.endpoint != "embeddings":
                raise Failure("garbage", f"'{expert.name}' answered with {kind}, asked for a stream of events")
            self._count(said.get("usage"), expert)
            if self.endpoint == "responses" and isinstance(said.get("id"), str):
                self.answered = said["id"]
            if self.signs_body:
                body = with_member(body, provenance_member(self.record))
        elif answer.status >= 400:
            if answer.status == 401 and expert.complains():
                variable = expert.config.api_key_env or "none"
                _log.warning("'%s' refuses the gateway's key (api_key_env: %s)", expert.name, variable)
            self.record.outcome, self.record.error = "client_error", f"upstream_{answer.status}"
        self.record.first_seconds = perf_counter() - self.record.clock
        await self.reply.whole(answer.status, headers, body)

    async def _stream(self, answer: Answer, expert: Expert, headers: HeaderList) -> None:
        piece = await answer.first_piece()
        if not piece:
            raise Failure("broken", f"'{expert.name}' ended its stream before it began")
        relay = self.relay = EventRelay(provenance_member(self.record) if self.signs_body else b"", self.endpoint)
        self.record.first_seconds = perf_counter() - self.record.clock
        await self.reply.start(answer.status, headers)
        try:
            while piece:
                if ready := relay.feed(piece):
                    await self.reply.piece(ready)
                piece = await answer.piece(last=relay.ending)
            rest = relay.rest()
            if not relay.done:
                raise Failure("broken", f"'{expert.name}' ended its stream in the middle")
        finally:
            self._count(relay.usage(), expert)
            self.answered = relay.response_id()
        await self.reply.end(rest)

    async def _stream_as_it_is(self, answer: Answer, headers: HeaderList) -> None:
        piece = await answer.first_piece()
        await self.reply.start(answer.status, headers)
        while piece:
            await self.reply.piece(piece)
            piece = await answer.piece()
        await self.reply.end()

    async def _break_off(self, failure: Failure) -> None:
        """A stream that has begun ends with an error object; anything else must not look as if it were whole."""
        problem = Problem(failure.status, failure.message, _CODES.get(failure.reason, ""))
        self.record.outcome, self.record.error = "broken_stream", problem.code
        if self.relay is None:
            raise ClientLeft from failure
        await self.reply.end(self.relay.closing(problem.event(self.endpoint)))

    def _count(self, usage: object, expert: Expert) -> None:
        if not isinstance(usage, dict):
            return
        record, price = self.record, expert.config.price
        record.prompt_tokens = _whole(usage.get("prompt_tokens", usage.get("input_tokens")))
        record.completion_tokens = _whole(usage.get("completion_tokens", usage.get("output_tokens")))
        spent = (record.prompt_tokens or 0) * price.input_per_1m + (record.completion_tokens or 0) * price.output_per_1m
        record.cost = spent / 1e6

    async def _last_word(self, failure: Failure) -> None:
        """Nobody answered: what the last expert said, or what happened to it."""
        record = self.record
        record.outcome = "unavailable" if failure.reason in ("busy", "resting") else "upstream_error"
        if failure.body is not None:
            record.error = f"upstream_{failure.status}"
            await self.reply.whole(failure.status, failure.headers, failure.body)
            return
        before = [f"{name} ({reason})" for name, _, reason in record.fallbacks]
        more = f". Asked before: {', '.join(before)}" if before else ""
        problem = Problem(failure.status, failure.message + more, _CODES.get(failure.reason, ""))
        problem.retry_after = failure.retry_after
        await self.reply.problem(problem, *(pair for pair in failure.headers if pair[0].startswith(_WAITS)))


def _later(choice: Choice) -> Iterator[Expert]:
    yield from choice.others()  # worked out only if the first one fails


async def _refusal(answer: Answer, expert: Expert) -> Failure:
    """An expert's own words that it cannot answer; anything but an error object is put into our words."""
    body = await answer.whole()
    reason = str(answer.status) if answer.status in RETRIED else "5xx"
    message = f"'{expert.name}' answered with status {answer.status}"
    said = body if body is not None and _object(body) is not None else None
    headers = for_client(answer.headers, unpacked=answer.unpacked)
    return Failure(reason, message, answer.status, headers, said, unwell=answer.status != 429)


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else None
