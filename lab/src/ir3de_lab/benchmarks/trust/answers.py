"""An upstream whose answers are changed: what the gateway's readers of answers and streams are given.

    python -m ir3de_lab.benchmarks.trust.answers --seed 0

A request whose "user" is fuzz-N gets the changed answer number N, any other a right one.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import re
import sys
from typing import Any

from ir3de_lab.benchmarks.gateway.upstream import STREAM_HEAD, answer_json, chunk, event, whole
from ir3de_lab.benchmarks.trust.mutation import dice_for, mutate_bytes, mutate_json

NAME = "upstream answers"
SILENT_SHARE = 0.01  # of the answers after which the connection stays open and silent
_USER = re.compile(rb'"user":\s*"([^"]*)"')
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def _stream(*events: bytes) -> bytes:
    return STREAM_HEAD + b"".join(chunk(one) for one in events) + b"0\r\n\r\n"


def _named(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()


def _usage(event_bytes: bytes) -> bytes:
    told = json.loads(event_bytes[6:])
    return b"data: " + json.dumps({**told, "choices": [], "usage": {"total_tokens": 3}}).encode() + b"\n\n"


def right_answer(identity: str, stream: bool) -> bytes:
    """A chat completion of three tokens."""
    if not stream:
        return whole(200, answer_json(identity, 3))
    tokens = [event(identity, {"content": f"tok{n} "}) for n in range(3)]
    return _stream(*tokens, event(identity, {}, "stop"), b"data: [DONE]\n\n")


def examples(identity: str) -> list[bytes]:
    """Right answers of every kind that experts give."""
    tokens = [event(identity, {"content": f"tok{n} "}) for n in range(3)]
    packed = gzip.compress(answer_json(identity, 3), mtime=0)
    error = json.dumps({"error": {"message": "no", "type": "server_error", "code": None}}).encode()
    response = {"id": "resp_1", "object": "response", "output": [{"type": "message"}], "usage": {"total_tokens": 3}}
    message = {
        "id": "msg_1",
        "type": "message",
        "content": [{"type": "text", "text": "x"}],
        "usage": {"output_tokens": 3},
    }
    return [
        right_answer(identity, stream=False),
        right_answer(identity, stream=True),
        _stream(*tokens, event(identity, {}, "stop"), _usage(tokens[0]), b"data: [DONE]\n\n"),
        _stream(b": comment\n\n", *tokens, b"retry: 3\n\n", event(identity, {}, "stop")),
        _stream(
            _named("response.created", {"response": response}), _named("response.completed", {"response": response})
        ),
        _stream(
            _named("message_start", {"message": message}),
            _named("message_delta", {"usage": {}}),
            _named("message_stop", {}),
        ),
        _stream(_named("error", {"error": {"message": "overloaded"}})),
        whole(200, packed, "content-encoding: gzip"),
        # no 429 and no retry-after: an expert that asks for rest gets no more answers to give
        *(whole(status, error) for status in (400, 401, 404, 500)),
        whole(200, json.dumps(response).encode()),
        whole(200, json.dumps(message).encode()),
        whole(200, json.dumps({"object": "list", "data": [{"embedding": [0.1]}], "usage": {}}).encode()),
        b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n" + answer_json(identity, 3),
    ]


def changed_answer(seed: int, number: int) -> bytes:
    """The changed answer of that number."""
    dice = dice_for(seed, NAME, number)
    if dice.random() < 0.3:  # right HTTP, changed content
        document = mutate_json(json.loads(answer_json(f"fuzz-{number}", 3)), dice)
        body = json.dumps(document).encode()
        return whole(200, body) if dice.random() < 0.5 else _stream(b"data: " + body + b"\n\n", b"data: [DONE]\n\n")
    return mutate_bytes(examples(f"fuzz-{number}"), dice)


async def _answer(seed: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            found = _LENGTH.search(head)
            body = await reader.readexactly(int(found[1])) if found else b""
            user = _USER.search(body)
            identity = user[1].decode("utf-8", "replace") if user else ""
            if not identity.startswith("fuzz-"):
                writer.write(right_answer(identity, b'"stream": true' in body))
                await writer.drain()
                continue
            number = int(identity.removeprefix("fuzz-"))
            data, dice = changed_answer(seed, number), dice_for(seed, "pieces", number)
            while data:
                size = dice.choice((1, 7, 100, 5_000, len(data)))
                writer.write(data[:size])
                data = data[size:]
                await writer.drain()
                await asyncio.sleep(0)
            if dice.random() < SILENT_SHARE:
                await asyncio.sleep(5)
            break
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, ValueError):
        pass
    finally:
        writer.close()


async def serve(seed: int) -> None:
    """Serve until stopped; the port is written on standard output."""
    server = await asyncio.start_server(lambda r, w: _answer(seed, r, w), "127.0.0.1", 0, limit=1 << 20)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description="An upstream whose answers are changed.")
    parser.add_argument("--seed", type=int, default=0)
    asyncio.run(serve(parser.parse_args().seed))


if __name__ == "__main__":
    main()
