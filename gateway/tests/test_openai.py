"""OpenAI's own Python client, unchanged but for its base_url: everything it can ask, through the gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pydantic
import pytest

from api_answers import (
    CHAT,
    CHAT_EVENTS,
    RESPONSE_EVENTS,
    SAID,
    WORDS,
    breaking_off,
    never,
    saying,
    serving,
    tell_all,
)
from running_gateway import QUESTIONS, Running

LAW = [{"role": "user", "content": QUESTIONS["law"]}]
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


@pytest.fixture(scope="module")
def one_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    sampling = {"defaults": {"temperature": 0.5}}
    folder, routing = tmp_path_factory.mktemp("openai"), {"default": "cooking"}
    with serving(folder, experts={"cooking": sampling}, routing=routing) as gateway:
        yield gateway


@pytest.fixture
def gateway(one_gateway: Running) -> Running:
    tell_all(one_gateway)
    return one_gateway


@pytest.fixture
def client(gateway: Running) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0) as client:
        yield client


def test_a_chat_is_answered_by_the_expert_for_it_and_says_so(gateway: Running, client: Any) -> None:
    for expert, question in QUESTIONS.items():
        answer = client.chat.completions.create(model="auto", messages=[{"role": "user", "content": question}])
        assert answer.choices[0].message.content == SAID
        assert answer.model == "served"
        assert answer.usage.total_tokens == 15
        assert answer.seed == 12345678901234567890123
        assert answer.ir3de["expert"] == answer.model_extra["ir3de"]["expert"] == expert
        assert answer.ir3de["model"] == f"{expert}-v1"
    assert gateway.upstream.asked == list(QUESTIONS)
    assert [json.loads(body)["model"] for body in gateway.upstream.bodies] == [f"{name}-v1" for name in QUESTIONS]


def test_streams_come_as_they_were_sent(client: Any) -> None:
    options = {"include_usage": True}
    with client.chat.completions.create(model="auto", messages=LAW, stream=True, stream_options=options) as stream:
        chunks = list(stream)
    assert [chunk.choices[0].delta.content for chunk in chunks[1:-2]] == list(WORDS)
    assert chunks[0].ir3de["expert"] == "law"
    assert [hasattr(chunk, "ir3de") for chunk in chunks[1:]] == [False] * (len(chunks) - 1)
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == 15
    texts = client.completions.create(model="auto", prompt=QUESTIONS["law"], stream=True)
    assert "".join(chunk.choices[0].text for chunk in texts if chunk.choices) == SAID
    with client.chat.completions.stream(model="auto", messages=LAW) as events:
        assert events.get_final_completion().choices[0].message.content == SAID


def test_completions_and_embeddings(client: Any) -> None:
    answer = client.completions.create(model="auto", prompt=[QUESTIONS["law"]])
    assert answer.choices[0].text == SAID
    assert answer.ir3de["expert"] == "law"
    vectors = client.embeddings.create(model="auto", input=["one", "two"], encoding_format="float")
    assert vectors.data[0].embedding == [0.5, -1.0, 0.001]
    assert client.embeddings.create(model="law", input="one").ir3de["expert"] == "law"


def test_tools_are_called_and_their_results_answered(gateway: Running, client: Any) -> None:
    messages: list[Any] = [{"role": "user", "content": "Can my landlord evict me?"}]
    first = client.chat.completions.create(model="auto", messages=messages, tools=[WEATHER])
    call = first.choices[0].message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Zürich"})
    messages += [first.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "Boil an egg: rain"}]
    second = client.chat.completions.create(model="auto", messages=messages, tools=[WEATHER])
    assert second.choices[0].message.content == SAID
    assert gateway.upstream.asked == ["law", "law"]
    sent = json.loads(gateway.upstream.bodies[1])["messages"]
    assert sent[1]["tool_calls"][0]["function"]["arguments"] == call.function.arguments
    with client.chat.completions.stream(model="law", messages=messages[:1], tools=[WEATHER]) as stream:
        streamed = stream.get_final_completion().choices[0].message.tool_calls[0]
    assert json.loads(streamed.function.arguments) == {"city": "Zürich"}


class Value(pydantic.BaseModel):
    value: int


def test_structured_output(gateway: Running, client: Any) -> None:
    answer = client.chat.completions.parse(model="auto", messages=LAW, response_format=Value)
    assert answer.choices[0].message.parsed == Value(value=4)
    sent = json.loads(gateway.upstream.bodies[0])["response_format"]
    assert sent["json_schema"]["schema"]["properties"] == {"value": {"title": "Value", "type": "integer"}}


def test_the_responses_api(gateway: Running, client: Any) -> None:
    answer = client.responses.create(model="auto", input=QUESTIONS["law"], instructions="Boil an egg.")
    assert answer.output_text == SAID
    assert answer.ir3de["expert"] == "law"
    turns = [{"role": "user", "content": [{"type": "input_text", "text": QUESTIONS["maths"]}]}]
    events = list(client.responses.create(model="auto", input=turns, stream=True))
    assert len(events) == len(RESPONSE_EVENTS)
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == SAID
    assert events[-1].response.output_text == SAID
    assert events[0].ir3de["expert"] == "maths"
    assert gateway.upstream.asked == ["law", "maths"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_is_continued_by_whoever_gave_it(gateway: Running, client: Any, stream: bool) -> None:
    def ask(question: str, **more: Any) -> str:
        answer = client.responses.create(model="auto", input=question, stream=stream, **more)
        first, *_ = answer if stream else [answer]  # a stream to its end
        return str(first.ir3de["expert"])

    asyncio.run(gateway.gateway.pins.put("response resp_1", "law"))
    assert ask(QUESTIONS["maths"], previous_response_id="resp_0") == "maths"  # an answer nobody here gave
    assert ask("Prove that 2 + 2 = 4.", previous_response_id="resp_1") == "maths"  # which gave resp_1, as all do
    assert ask(QUESTIONS["law"], previous_response_id="resp_1") == "maths"
    gateway.upstream.behaviour["maths"] = saying(b'{"error": {"message": "no"}}', 503)
    with pytest.raises(openai.InternalServerError):  # others do not know that answer
        ask(QUESTIONS["law"], previous_response_id="resp_1")
    assert gateway.upstream.asked == ["maths"] * 4


def test_a_response_is_not_continued_by_an_expert_that_does_not_have_it(tmp_path: Path) -> None:
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"}
    turn = {"role": "user", "content": [{"type": "input_text", "text": QUESTIONS["law"]}, picture]}
    experts = {"law": {"capabilities": ["chat", "responses"], "fallbacks": ["maths"]}}
    with serving(tmp_path, experts=experts, routing={"default": "maths"}) as gateway:
        asyncio.run(gateway.gateway.pins.put("response resp_2", "law"))
        asyncio.run(gateway.gateway.pins.put("response resp_3", "removed"))
        with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0) as client:
            create: Any = client.responses.create
            assert create(model="auto", input=[turn]).ir3de["expert"] == "maths"  # which continues nothing
            for response_id, why in (("resp_2", "law .*: has no vision"), ("resp_3", "removed .*: has no endpoint")):
                with pytest.raises(openai.BadRequestError, match=why) as problem:
                    create(model="auto", input=[turn], previous_response_id=response_id)
                assert (problem.value.code, problem.value.param) == ("no_eligible_expert", "previous_response_id")
                assert problem.value.response.headers["x-ir3de-decided"] == why.split()[0]
            gateway.upstream.behaviour["law"] = saying(b'{"error": {"message": "no"}}', 503)
            for model in ("auto", "law"):
                with pytest.raises(openai.InternalServerError):
                    create(model=model, input="And then?", previous_response_id="resp_2")
    assert gateway.upstream.asked == ["maths", "law", "law"]


def test_sampling_is_for_answers(gateway: Running, client: Any) -> None:
    client.chat.completions.create(model="cooking", messages=LAW)
    client.embeddings.create(model="cooking", input="x")
    assert [json.loads(body).get("temperature") for body in gateway.upstream.bodies] == [0.5, None]


def test_models(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["auto", "ir3de/auto", "maths", "law", "cooking"]
    assert client.models.retrieve("law").id == "law"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("lore")


def test_the_async_client(gateway: Running) -> None:
    async def ask() -> None:
        async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0) as client:
            asked = [
                client.chat.completions.create(model="auto", messages=[{"role": "user", "content": question}])
                for question in QUESTIONS.values()
            ]
            answers: list[Any] = await asyncio.gather(*asked)
            assert [answer.ir3de["expert"] for answer in answers] == list(QUESTIONS)
            stream: Any = await client.chat.completions.create(model="auto", messages=LAW, stream=True)  # type: ignore[arg-type]
            words = [chunk.choices[0].delta.content async for chunk in stream if chunk.choices]
            assert "".join(word or "" for word in words) == SAID

    asyncio.run(ask())


def test_headers_reach_the_expert_and_its_own_come_back(gateway: Running, client: Any) -> None:
    told = client.with_options(organization="org-mine", project="proj-mine", default_headers={"x-mine": "1"})
    raw = told.chat.completions.with_raw_response.create(
        model="auto", messages=LAW, extra_headers={"idempotency-key": "once", "x-request-id": "mine-1"}
    )
    sent = gateway.upstream.headers[0]
    assert (sent["x-mine"], sent["x-request-id"]) == ("1", "mine-1")
    assert not {"openai-organization", "openai-project", "idempotency-key"} & {*sent}  # of the client's own account
    assert sent["x-stainless-lang"] == "python"
    assert "authorization" not in sent  # the gateway's key is not the expert's
    assert raw.headers["openai-processing-ms"] == "12"
    assert raw.headers["x-ratelimit-remaining-requests"] == "41"
    assert raw.headers["x-ir3de-expert"] == "law"
    assert raw.headers["x-ir3de-model"] == "law-v1"
    assert float(raw.headers["x-ir3de-confidence"]) == raw.parse().ir3de["confidence"]
    assert "x-ir3de-expected-score" not in raw.headers and "expected_score" not in raw.parse().ir3de
    assert raw.request_id == raw.parse()._request_id == "mine-1"


def test_controls_go_in_extra_body_and_no_further(gateway: Running, client: Any) -> None:
    def ask(**controls: Any) -> str:
        body = {"ir3de": controls, "unknown": {"kept": 1.0}}
        answer = client.chat.completions.create(model="auto", messages=LAW, extra_body=body)
        return str(answer.ir3de["expert"])

    assert ask(deny=["law"]) == "cooking"
    assert ask(allow=["cooking"]) == "cooking"
    with pytest.raises(
        openai.BadRequestError, match=r"law was chosen: not allowed by the request\. maths could answer"
    ):
        ask(allow=["maths"])
    assert [("ir3de" in json.loads(body), json.loads(body)["unknown"]) for body in gateway.upstream.bodies] == [
        (False, {"kept": 1.0})
    ] * 2
    with pytest.raises(openai.BadRequestError, match=r"ir3de\.alow: no such field, there are allow"):
        ask(alow=["law"])


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError),
        (409, openai.ConflictError),
        (422, openai.UnprocessableEntityError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
    ],
)
def test_an_expert_s_error_is_the_client_s_class(
    gateway: Running, client: Any, status: int, error: type[openai.APIStatusError]
) -> None:
    said = b'{"error": {"message": "no", "type": "t", "param": "p", "code": "c", "more": 1}}'
    gateway.upstream.behaviour["law"] = saying(said, status, retry_after="7")
    with pytest.raises(error) as found:
        client.chat.completions.create(model="law", messages=LAW)
    assert found.value.status_code == status
    assert (found.value.code, found.value.param, found.value.type) == ("c", "p", "t")
    assert found.value.response.content == said
    assert found.value.response.headers["retry-after"] == "7"


def test_the_gateway_s_own_errors(gateway: Running, client: Any) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="gpt-4", messages=LAW)
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as empty:
        client.chat.completions.create(model="auto", messages=[])
    assert empty.value.param == "messages"
    gateway.upstream.behaviour["law"] = never
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.05).chat.completions.create(model="law", messages=LAW)


@pytest.mark.slow
def test_keys_and_timeouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IR3DE_API_KEY", "sesame")
    monkeypatch.setenv("LAW_KEY", "secret")
    slow = {"timeouts": {"first_token": 2}}  # long enough for the request to arrive
    with serving(tmp_path, experts={"law": {"api_key_env": "LAW_KEY"}, "maths": slow}) as gateway:
        gateway.upstream.behaviour["maths"] = never
        for key in ("sesam", "sesame"):
            with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0) as client:
                if key != "sesame":
                    with pytest.raises(openai.AuthenticationError):
                        client.models.list()
                    continue
                client.chat.completions.create(model="auto", messages=LAW)  # type: ignore[arg-type]
                with pytest.raises(openai.InternalServerError) as late:
                    client.chat.completions.create(model="maths", messages=LAW)  # type: ignore[arg-type]
                assert (late.value.status_code, late.value.code) == (504, "upstream_timeout")
        assert [sent.get("authorization") for sent in gateway.upstream.headers] == ["Bearer secret", None]


def test_a_stream_that_breaks_is_an_error_and_no_short_answer(gateway: Running, client: Any) -> None:
    gateway.upstream.behaviour["law"] = breaking_off(CHAT_EVENTS[:3])
    chunks: list[Any] = []
    with pytest.raises(openai.APIError, match="'law' ended its stream in the middle"):
        chunks.extend(client.chat.completions.create(model="law", messages=LAW, stream=True))
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["", *WORDS[:2]]
    gateway.upstream.behaviour["law"] = breaking_off(RESPONSE_EVENTS[:3])
    with pytest.raises(openai.APIError, match="'law' ended its stream in the middle"):
        list(client.responses.create(model="law", input="x", stream=True))


def test_the_client_s_retries_wait_as_the_expert_says(gateway: Running, client: Any) -> None:
    async def once(request: Any, asked: Any) -> Any:
        gateway.upstream.behaviour["law"] = saying(CHAT)
        return await saying(b'{"error": {"message": "slowly"}}', 429, retry_after_ms="1")(request, asked)

    gateway.upstream.behaviour["law"] = once
    answer = client.with_options(max_retries=1).chat.completions.create(model="law", messages=LAW)
    assert answer.choices[0].message.content == SAID
    assert gateway.upstream.asked == ["law", "law"]
    assert [sent["x-stainless-retry-count"] for sent in gateway.upstream.headers] == ["0", "1"]
