"""The laws that hold in every case, whatever meets in it. Each check gives the laws that were broken, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ir3de import Conversation, Decision, Router
from ir3de_lab.benchmarks.trust.crossing.covering import Case
from ir3de_lab.benchmarks.trust.crossing.experts import FAILURE
from ir3de_lab.benchmarks.trust.crossing.gateways import BUDGET, DEFAULT, FALLBACK, TEXTS, WINDOWS
from ir3de_lab.benchmarks.trust.crossing.requests import CONTROLS, Request, list_user_turns

UNLIMITED_BOUND_TOKENS = 8_192  # of an answer that nothing limits, as docs/keys.md states it


@dataclass(frozen=True)
class Answer:
    """What the client received."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_whole: bool = True  # it ended as HTTP wants it

    @property
    def events(self) -> list[Any]:
        """The JSON of a stream, or of a whole answer as the only event."""
        if not self.headers.get("content-type", "").startswith("text/event-stream"):
            return [json.loads(self.body)]
        lines = [line[6:] for line in self.body.decode().splitlines() if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]


@dataclass(frozen=True)
class Expected:
    """What the router decides on a case, and who may answer."""

    decision: Decision | None  # None where the router is not used
    decided: str | None
    allowed: frozenset[str]


def expect(case: Case, router: Router) -> Expected:
    """The decision of a case by the library, and the experts that the rule allows."""
    default = DEFAULT if case["instead"] in ("default", "both") else router.default
    fallbacks = {"law": {FALLBACK}} if case["instead"] in ("fallback", "both") else {}
    if case["model"] != "auto":
        return Expected(None, "law", frozenset({"law", *fallbacks.get("law", ()), *([default] if default else [])}))
    if case["control"] == "skip":
        return Expected(None, default, frozenset({default} if default else TEXTS))
    weights = CONTROLS["weights"]["weights"] if case["control"] == "weights" else None
    chat = Conversation(router, envelopes=())
    for turn in list_user_turns(case):
        chat.route(turn, weights=weights)
    decision = chat.decision
    decided = default if decision.abstained else decision.expert
    allowed = {decided, default, *fallbacks.get(decided or "", ()), *decision.candidates}
    if decision.abstained:
        allowed |= set(TEXTS) if decision.reason == "no known token" else {decision.best}
    return Expected(decision, decided, frozenset(name for name in allowed if name is not None))


def check(
    case: Case, request: Request, answer: Answer, expected: Expected, seen: Sequence[tuple[str, str, bytes]]
) -> Iterator[str]:
    """The laws that an answer breaks."""
    if answer.status >= 400:
        yield from _check_error(case, answer)
        return
    try:
        events = answer.events
    except ValueError:
        yield f"the answer is not JSON: {answer.body[:200]!r}"
        return
    member = next((event["ir3de"] for event in events if isinstance(event, dict) and "ir3de" in event), None)
    if member is None:
        yield "the answer has no field ir3de"
        return
    yield from _check_expert(answer, expected, member)
    yield from _check_figures(answer, expected, member)
    yield from _check_exchange(case, request, answer, events, seen)


def _check_error(case: Case, answer: Answer) -> Iterator[str]:
    """Law: no 500 but an expert's own; errors are error objects of the API, with a message."""
    try:
        document = json.loads(answer.body)
        error = document["error"]
        message = error["message"]
    except (ValueError, KeyError, TypeError):
        yield f"{answer.status} without an error object: {answer.body[:200]!r}"
        return
    if answer.status == 500 and not (case["fault"] == "500" and FAILURE in message):
        yield f"500: {message}"
    is_own = FAILURE not in message  # an expert's own error passes as it is
    if is_own and (not {"message", "type", "code"} <= set(error) or _is_other_api(case, document)):
        yield f"the error has not the form of its API: {answer.body[:200]!r}"
    if not isinstance(message, str) or len(message) < 10:
        yield f"the error does not explain itself: {message!r}"
    if case["model"] == "unknown" and answer.status != 404:
        yield f"an unknown model gets {answer.status}: {message}"
    if case["key"] == "spent" and answer.status != 429:
        yield f"a spent budget gets {answer.status}: {message}"


def _is_other_api(case: Case, document: Mapping[str, Any]) -> bool:
    """Anthropic's errors say so in `type`; OpenAI's have no such field."""
    return (document.get("type") == "error") != (case["api"] == "messages")


def _check_expert(answer: Answer, expected: Expected, member: Mapping[str, Any]) -> Iterator[str]:
    """Law: the decided expert answers, or a fallback of it, a candidate, or the default."""
    answered = answer.headers.get("x-ir3de-expert")
    if answered != member.get("expert"):
        yield f"the header has the expert {answered}, the body {member.get('expert')}"
    if answered not in expected.allowed:
        yield f"{answered} answered; {expected.decided} was decided, and may be replaced by {sorted(expected.allowed)}"
    found = {answer.headers.get("x-ir3de-decided"), member.get("decided", "")}
    if expected.decided is not None and found != {expected.decided}:
        yield f"decided is {expected.decided}, header and body have {sorted(map(str, found))}"


def _check_figures(answer: Answer, expected: Expected, member: Mapping[str, Any]) -> Iterator[str]:
    """Law: confidence, expected score and margin are those of the expert that answered, in header and body alike."""
    found = {name: answer.headers.get(f"x-ir3de-{name.replace('_', '-')}") for name in FIGURES}
    same = {name: None if member.get(name) is None else f"{member[name]:.4f}" for name in FIGURES}
    if found != same:
        yield f"the header has {found}, the body {same}"
    if expected.decision is not None:
        right = _find_figures(expected.decision, str(answer.headers.get("x-ir3de-expert")))
        if found != right:
            yield f"the figures of the expert that answered are {right}, the answer has {found}"


FIGURES = ("confidence", "expected_score", "margin")


def _find_figures(decision: Decision, expert: str) -> dict[str, str | None]:
    values = dict(decision.quality)
    if expert == decision.best:
        figures = (decision.confidence, decision.expected_score, decision.margin)
    else:
        value = values.pop(expert)
        margin = value - max(values.values())
        figures = (value, None, margin) if decision.expected_score is None else (None, value, margin)
    return {name: None if figure is None else f"{figure:.4f}" for name, figure in zip(FIGURES, figures, strict=True)}


def _check_exchange(
    case: Case, request: Request, answer: Answer, events: Sequence[Any], seen: Sequence[tuple[str, str, bytes]]
) -> Iterator[str]:
    """Law: the body passes but for its model; one request for one answer; `model` is the one that served."""
    answered = answer.headers.get("x-ir3de-expert", "")
    served = f"{answered}-v1"
    named = {str(model) for event in events for model in _list_models(event)}
    if answer.headers.get("x-ir3de-model") != served or not named <= {served}:
        yield f"{served} served, header and body have {answer.headers.get('x-ir3de-model')} and {sorted(named)}"
    if case["stream"] == "yes" and not _has_end(answer.body):
        yield f"the stream has neither an end nor an error: …{answer.body[-200:]!r}"
    is_kept = answer.headers.get("x-ir3de-cache") == "hit"
    if case["fault"] == "none" and case["replicas"] in ("one", "two") and len(seen) != (not is_kept):
        yield f"{len(seen)} requests reached the experts, for one answer"
    if seen and seen[-1][0] != answered:
        yield f"{seen[-1][0]} had the last request, {answered} is named"
    if seen and "x-ir3de-translated" not in answer.headers:
        sent = {name: value for name, value in request.body.items() if name != "ir3de"} | {"model": served}
        expected = {name: json.dumps(value) for name, value in sent.items()}
        passed = {name: json.dumps(value) for name, value in json.loads(seen[-1][2]).items()}
        if "stream" in sent:  # the gateway asks for the usage
            passed.pop("stream_options", None)
        if passed != expected:
            wrong = {name for name, _ in passed.items() ^ expected.items()}
            yield f"the expert got another body: {sorted(wrong)}"


def _list_models(event: Any) -> Iterator[object]:
    for part in (event, event.get("message"), event.get("response")):
        if isinstance(part, dict) and "model" in part:
            yield part["model"]


def _has_end(body: bytes) -> bool:
    ends = (b"data: [DONE]", b'"message_stop"', b'"response.completed"', b'"error"')
    return any(end in body for end in ends)


def bound(request: Request, case: Case) -> float:
    """What a request can cost at most, as docs/keys.md states it; a token costs 1."""
    limits = [request.body.get(name) for name in ("max_tokens", "max_completion_tokens", "max_output_tokens")]
    own = [limit for limit in limits if isinstance(limit, int)]
    window = WINDOWS.get(case["window"], UNLIMITED_BOUND_TOKENS)
    both = {"max_tokens", "max_completion_tokens"}  # of which a server may read only one
    needed = {"chat/completions": both, "responses": {"max_output_tokens"}}.get(case["api"], {"max_tokens"})
    is_limited = needed <= request.body.keys()
    answer = max([*own, 0 if is_limited else max(window, UNLIMITED_BOUND_TOKENS)])
    return float(len(request.content) + answer * int(request.body.get("n", 1)))


def check_spending(used: float, request: Request, case: Case) -> Iterator[str]:
    """Law: spent ≤ budget + the bound of one request."""
    budget = {"budget": BUDGET, "spent": 0.0}.get(case["key"])
    if budget is not None and used > budget + bound(request, case):
        yield f"{used:g} spent of {budget:g}; a request is bound by {bound(request, case):g}"


def check_one_turn(router: Router, prompt: str) -> Iterator[str]:
    """Law: a chat of one turn is routed as the prompt."""
    alone, turn = router.route(prompt), Conversation(router, envelopes=()).route(prompt)
    if (alone.expert, alone.reason, alone.quality) != (turn.expert, turn.reason, turn.quality):
        yield f"{prompt!r} alone: {alone.expert} {alone.quality}; as a chat of one turn: {turn.expert} {turn.quality}"
