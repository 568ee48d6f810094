"""The law of budgets: spent <= budget + one request's bound, over all requests in flight and all workers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from client_keys import bearer, key, write_keys
from ir3de_gateway.app import create_app
from ir3de_gateway.config.experts import ExpertConfig
from ir3de_gateway.gateway import Gateway
from ir3de_gateway.requests.tokens import (
    DEFAULT_OUTPUT_TOKENS,
    UNSEEN_TOKENS,
    bound_prompt,
    find_bound,
    find_passed_bound,
)
from ir3de_gateway.stages.read import count_tokens
from ir3de_gateway.wire import FORMATS
from ir3de_gateway.wire.formats import PASSTHROUGH_FORMATS
from raw_sockets import Got, ask, chat, eventually
from running_gateway import QUESTIONS, Upstream, config_for, running, served, small_router

BUDGET = 5_000  # tokens per minute, and the same in money: a token costs 1
PRICE = {"input_per_1m": 1e6, "output_per_1m": 1e6}
PROMPT_TOKENS = 12  # that the expert counts
LONGEST = 30_000  # the longest answer of the expert, in tokens
REQUESTS = 24
LIMITS = {"tokens": {"tokens_per_minute": BUDGET}, "money": {"budget_per_day": BUDGET}}


@dataclass
class Greedy:
    """An expert that holds all requests until `release`, and then answers each as long as it may."""

    reads: str = "max_tokens"  # the field that limits its answers
    held: int = 0
    release: threading.Event = field(default_factory=threading.Event)

    async def answer(self, request: Request, asked: dict[str, Any]) -> Response:
        self.held += 1
        while not self.release.is_set():
            await asyncio.sleep(0.005)
        prompts = len(asked["prompt"]) if isinstance(asked.get("prompt"), list) else 1
        choices = max(_read(asked.get("n")) or 1, _read(asked.get("best_of")) or 1) * prompts
        limit = _read(asked.get(self.reads)) or LONGEST
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": choices * min(limit, LONGEST)}
        message = {"index": 0, "message": {"role": "assistant", "content": "Yes."}, "text": "", "finish_reason": "stop"}
        return JSONResponse({"id": "x", "object": "chat.completion", "choices": [message], "usage": usage})


def _read(value: Any) -> int:
    """A lax server: strings and floats are numbers, too; less than 1 is no limit."""
    try:
        return max(0, int(float(value)))
    except (TypeError, ValueError, OverflowError):
        return 0


BOTH = {"max_tokens": 5, "max_completion_tokens": 5}  # servers read one of them, or both
CHAT = chat(QUESTIONS["law"], "law")
CASES = {
    "many choices": ("/v1/chat/completions", {"n": 100, "max_tokens": 50}, "max_tokens", 5_000),
    "two limits": ("/v1/chat/completions", {"max_completion_tokens": 5, "max_tokens": 15_000}, "max_tokens", 15_000),
    "two limits, reversed": (
        "/v1/chat/completions", {"max_completion_tokens": 15_000, "max_tokens": 5}, "max_completion_tokens", 15_000,
    ),
    "a limit that the expert does not know": (
        "/v1/chat/completions", {"max_completion_tokens": 5}, "max_tokens", LONGEST,
    ),
    "neither": ("/v1/chat/completions", {}, "max_tokens", LONGEST),
    "a limit of another API": ("/v1/chat/completions", {"max_output_tokens": 5}, "max_tokens", LONGEST),
    "no end": ("/v1/chat/completions", {"max_tokens": -1}, "max_tokens", LONGEST),
    "numbers in strings": ("/v1/chat/completions", {"n": "20", "max_tokens": "100"}, "max_tokens", 2_000),
    "numbers with a point": ("/v1/chat/completions", {"n": 2e1, "max_tokens": 1e2}, "max_tokens", 2_000),
    "best of": ("/v1/completions", {"prompt": "Is it void?", "best_of": 20, "max_tokens": 100}, "max_tokens", 2_000),
    "several prompts": ("/v1/completions", {"prompt": ["a", "b"] * 10, "n": 2, "max_tokens": 50}, "max_tokens", 2_000),
    "responses": ("/v1/responses", {"input": "Is it void?", "max_output_tokens": 900}, "max_output_tokens", 900),
    "messages": ("/v1/messages", {"messages": CHAT["messages"], "max_tokens": 900}, "max_tokens", 900),
}  # fmt: skip


@dataclass
class Pair:
    """Two gateways that count in one state folder, as two workers do."""

    urls: list[str]
    upstream: Upstream

    def spend(self, name: str, path: str, body: dict[str, Any], reads: str) -> tuple[dict[str, Any], list[Got]]:
        """Send the request many times at once through both gateways: what the key has used, and the answers."""
        greedy = Greedy(reads)
        self.upstream.behaviour["law"] = greedy.answer
        with ThreadPoolExecutor(REQUESTS) as pool:
            numbers = range(REQUESTS)
            waiting = [pool.submit(ask, self.urls[number % 2], body, path, **bearer(name)) for number in numbers]
            assert eventually(lambda: sum(one.done() for one in waiting) + greedy.held >= REQUESTS)
            greedy.release.set()
            found = [one.result() for one in waiting]
        used = ask(self.urls[0], path="/v1/usage", **bearer(name)).json["used"]
        return used, found


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("reservations")
    small_router().save(folder / "router")
    names = [(f"{case}-{limit}".replace(" ", "-").replace(",", ""), limit) for case in CASES for limit in LIMITS]
    file = write_keys(folder / "keys.yaml", *(key(name, **LIMITS[limit]) for name, limit in names))
    capabilities = ["chat", "completions", "responses", "messages", "tools"]
    law = {"price": PRICE, "capabilities": capabilities, "max_output_tokens": LONGEST}
    upstream = Upstream()
    with ExitStack() as stack:
        experts = stack.enter_context(served(upstream.app()))
        options = {"server": {"keys_file": str(file)}, "state": str(folder / "state")}
        config = config_for(experts, folder / "router", experts={"law": law}, **options)
        yield Pair([stack.enter_context(served(create_app(Gateway.open(config)))) for _ in range(2)], upstream)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("case", CASES)
def test_spent_is_at_most_the_budget_and_one_request_s_bound(pair: Pair, limit: str, case: str) -> None:
    path, fields, reads, answer = CASES[case]
    body = {**(CHAT if path.endswith("chat/completions") else {"model": "law"}), **fields}
    used, found = pair.spend(f"{case}-{limit}".replace(" ", "-").replace(",", ""), path, body, reads)
    spent = used["tokens"] if limit == "tokens" else used["day"]["cost"]
    assert spent <= BUDGET + answer + PROMPT_TOKENS
    statuses = {got.status for got in found}
    assert 200 in statuses and statuses <= {200, 429}


def test_what_requests_in_flight_reserve_is_no_budget_that_is_used_up(tmp_path: Path) -> None:
    """The client may try again in a second: nothing says yet that the day is over for it."""
    file = write_keys(tmp_path / "keys.yaml", *(key(name, **limits) for name, limits in LIMITS.items()))
    law = {"price": PRICE, "defaults": {"max_tokens": 100}}
    with running(tmp_path, experts={"law": law}, server={"keys_file": str(file)}) as gateway:
        for name in LIMITS:
            greedy = Greedy()
            gateway.upstream.behaviour["law"] = greedy.answer
            with ThreadPoolExecutor(1) as pool:
                first = pool.submit(ask, gateway.url, chat("x", "law", max_tokens=BUDGET), **bearer(name))
                assert eventually(lambda greedy=greedy: greedy.held == 1)  # type: ignore[misc]
                refused = ask(gateway.url, chat("x", "law"), **bearer(name))
                greedy.release.set()
                assert first.result().status == 200
            assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
            assert "has requests in flight that reserve 5,0" in refused.error["message"]
            assert refused.headers["retry-after"] == "1" and "x-should-retry" not in refused.headers
            spent = ask(gateway.url, chat("x", "law"), **bearer(name))
            assert spent.error["code"] == ("insufficient_quota" if name == "money" else "rate_limit_exceeded")
            assert int(spent.headers["retry-after"]) > 1


ODD = [None, True, "x", "1e400", -1, 0, 1e308, 10**400, [], [[5]], {"a": {}}, {"type": "integer"}, "９", "nan"]


def test_odd_numbers_are_the_expert_s_affair_and_never_an_error_of_the_gateway(tmp_path: Path) -> None:
    file = write_keys(tmp_path / "keys.yaml", key("free"))
    experts = {"law": {"price": PRICE, "context_window": 10**15}, "maths": {"defaults": {"max_tokens": "?"}}}
    with running(tmp_path, experts=experts, server={"keys_file": str(file)}) as gateway:
        for field_name in ("n", "best_of", "max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"):
            for odd in ODD:
                for model in ("law", "maths"):
                    got = ask(gateway.url, chat("x", model, **{field_name: odd}), **bearer("free"))
                    assert got.status == 200, (field_name, odd)
        used = ask(gateway.url, path="/v1/usage", **bearer("free")).json["used"]
        assert used["day"]["tokens"] == 15 * used["day"]["requests"]  # as the expert says, and nothing is left reserved


def test_whoever_may_answer_is_reserved_for(tmp_path: Path) -> None:
    """A fallback that is dearer and longer than the first choice: as much as it may cost is reserved."""
    file = write_keys(tmp_path / "keys.yaml", key("ada", budget_per_day=10))
    dear = {"price": {"output_per_1m": 1e6}, "max_output_tokens": 700}
    experts = {"maths": {"fallbacks": ["law"], "max_output_tokens": 20}, "law": dear}
    with running(tmp_path, experts=experts, server={"keys_file": str(file)}) as gateway:
        greedy = Greedy()
        gateway.upstream.behaviour["maths"] = greedy.answer
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(ask, gateway.url, chat("x", "maths"), **bearer("ada"))
            assert eventually(lambda: greedy.held == 1)
            refused = ask(gateway.url, chat("x", "maths"), **bearer("ada"))
            greedy.release.set()
            assert first.result().status == 200
    assert refused.status == 429 and "reserve 700, and its budget per day is 10" in refused.error["message"]


@pytest.mark.parametrize(
    ("path", "fields", "answers"),
    [("images/generations", {"prompt": "x", "n": 4}, 4), ("rerank", {"query": "x", "documents": ["y"]}, 0)],
)
def test_what_is_passed_through_is_reserved_for_if_it_may_tell_its_usage(path: str, fields: Any, answers: int) -> None:
    wire = next(one for one in PASSTHROUGH_FORMATS if one.path == path)
    config = ExpertConfig(name="law", base_url="http://127.0.0.1:1/v1", max_output_tokens=30)
    assert find_passed_bound(wire, fields, 90, config) == (90, answers * 30)
    assert find_passed_bound(wire, fields, None, config).prompt == UNSEEN_TOKENS


def test_a_window_bounds_the_prompt_and_each_answer() -> None:
    config = ExpertConfig(name="law", base_url="http://127.0.0.1:1/v1", context_window=100, system_prompt="Be brief.")
    wire = FORMATS["chat/completions"]
    assert find_bound(wire, {"n": 3}, config, prompt_tokens=50) == (59, 300)
    assert find_bound(wire, {"n": 3, "max_tokens": 10**9}, config, prompt_tokens=5_000) == (100, 300)
    assert find_bound(wire, {**BOTH, "n": 2}, config, prompt_tokens=5, unseen=1) == (100, 10)
    assert find_bound(FORMATS["embeddings"], {"n": 3}, config, prompt_tokens=5).answer == 0


@given(st.lists(st.text(max_size=40), max_size=8), st.integers(1, 3))
def test_images_are_bounded_by_their_number_and_texts_by_their_bytes(texts: list[str], images: int) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    parts = [{"type": "text", "text": text} for text in texts]
    asked = {"messages": [{"role": "user", "content": [*parts, *[image] * images]}]}
    tokens, size = count_tokens(asked), len(json.dumps(asked))
    found, unseen = bound_prompt(asked, size, tokens)
    assert unseen == 0
    assert sum(len(text.encode(errors="replace")) for text in texts) + 2_000 * images <= found < 20_000
    asked["messages"][0]["content"] = parts
    assert bound_prompt(asked, size, tokens) == (size, 0)


def test_an_image_by_its_address_is_more_than_the_bytes_of_the_request() -> None:
    image = {"type": "image", "source": {"type": "file", "file_id": "file_1"}}
    found, unseen = bound_prompt({"messages": [{"role": "user", "content": [image]}]}, 150, 0)
    assert found >= 2_000 and unseen == 0


PDF = "data:application/pdf;base64," + "A" * 40_000
CARRIED = [
    {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF, "file_id": None}},
    {"type": "input_file", "file_data": PDF},
    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "A" * 40_000}},
    {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "A" * 40_000}]}},
    {"type": "input_audio", "input_audio": {"format": "wav", "data": "A" * 40_000}},
    {"type": "video_url", "video_url": {"url": "data:video/mp4;base64," + "A" * 40_000}},
]
ELSEWHERE = [
    {"type": "file", "file": {"file_id": "file-1"}},
    {"type": "file", "file": {"file_id": "file-1", "file_data": PDF}},
    {"type": "file", "file": {"file_data": "https://example.org/a.pdf"}},
    {"type": "input_file", "file_id": "file-1"},
    {"type": "input_file", "file_url": "https://example.org/a.pdf"},
    {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
    {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
    {"type": "audio_url", "audio_url": {"url": "https://example.org/a.wav"}},
    {"type": "video_url", "video_url": "https://example.org/a.mp4"},
]


@pytest.mark.parametrize(("part", "unseen"), [(part, 0) for part in CARRIED] + [(part, 1) for part in ELSEWHERE])
def test_files_are_bounded_by_their_bytes_or_by_the_window(part: dict[str, Any], unseen: int) -> None:
    values = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}, part]}]}
    size = len(json.dumps(values))
    assert bound_prompt(values, size, count_tokens(values)) == (size, unseen)
    config = ExpertConfig(name="law", base_url="http://127.0.0.1:1/v1")
    bound = find_bound(FORMATS["chat/completions"], values, config, prompt_tokens=size, unseen=unseen)
    assert bound.prompt == size + unseen * UNSEEN_TOKENS


def test_one_of_two_names_limits_an_answer_only_if_the_expert_is_known_to_read_it() -> None:
    def find(fields: dict[str, Any], **more: Any) -> int:
        config = ExpertConfig(name="law", base_url="http://127.0.0.1:1/v1", **more)
        return find_bound(FORMATS["chat/completions"], fields, config, prompt_tokens=5).answer

    assert find({"max_tokens": 5}) == find({"max_completion_tokens": 5}) == DEFAULT_OUTPUT_TOKENS
    assert find({"max_tokens": 5}, max_output_tokens=700) == 700
    assert find(BOTH) == 5 and find({**BOTH, "max_tokens": 0}) == DEFAULT_OUTPUT_TOKENS
    known = {"defaults": {"max_tokens": 2_000}}
    assert find({}, **known) == find({"max_completion_tokens": 5}, **known) == 2_000
    assert find({"max_tokens": 5}, **known) == 5
    assert find({"max_tokens": 5, "max_completion_tokens": -1}, **known) == DEFAULT_OUTPUT_TOKENS


def test_the_longest_answer_of_an_expert_bounds_what_a_request_allows() -> None:
    config = ExpertConfig(name="law", base_url="http://127.0.0.1:1/v1", max_output_tokens=40)
    assert find_bound(FORMATS["chat/completions"], {"n": 3, "max_tokens": 10**9}, config, prompt_tokens=5) == (5, 120)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_without_usage_is_charged_at_most_what_was_allowed(tmp_path: Path, stream: bool) -> None:
    async def says_too_much(request: Request, asked: dict[str, Any]) -> Response:
        events = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n' * 500 + b"data: [DONE]\n\n"
        body = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "a" * 5_000}}]}
        return Response(events, media_type="text/event-stream") if stream else JSONResponse(body)

    file = write_keys(tmp_path / "keys.yaml", key("ada"))
    with running(tmp_path, server={"keys_file": str(file)}) as gateway:
        gateway.upstream.behaviour["law"] = says_too_much
        asked = chat("Is it void?", "law", max_tokens=20, max_completion_tokens=20, stream=stream)
        assert ask(gateway.url, asked, **bearer("ada")).status == 200
        used = ask(gateway.url, path="/v1/usage", **bearer("ada")).json["used"]["day"]
    assert 20 < used["tokens"] < 30  # the prompt is an estimate
