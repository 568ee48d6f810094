"""Who is asked, why, and who comes after: each rule of the routing policy by itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ir3de import Router
from ir3de.policies import Policy
from ir3de_gateway.admin.changes import ExpertAddition
from ir3de_gateway.api_errors import ApiError, validate
from ir3de_gateway.experts.snapshot import Snapshot
from ir3de_gateway.requests.client import Controls, read_controls
from ir3de_gateway.stages.choose import Choice, choose_expert
from ir3de_gateway.stages.read import read_prompt
from ir3de_gateway.store.pins import StoredPins
from ir3de_gateway.wire import FORMATS
from running_gateway import QUESTIONS, TEXTS, config_for, small_router

NOBODY = StoredPins(60)
PICTURE = {"type": "image_url", "image_url": {"url": "data:,"}}
CLEAR = "contract contract contract statute tenants landlord"  # law, and no doubt about it


def snapshot(*, router: Router | None = None, **changes: Any) -> Snapshot:
    config = config_for("http://127.0.0.1:1", Path("/nowhere"), **changes)
    return Snapshot.from_config(config, router or small_router(), "0" * 64)


def chosen(
    found: Snapshot, content: Any = QUESTIONS["law"], *, model: str = "auto", pins: StoredPins = NOBODY, **asked: Any
) -> Choice:
    controls = Controls(**asked.pop("controls", {}))
    messages = asked.pop("messages", None) or [{"role": "user", "content": content}]
    prompt = read_prompt(FORMATS["chat/completions"], {"messages": messages, **asked}, "last_user", ())
    return choose_expert(found, model, prompt, controls, pins)


def names(choice: Choice) -> list[str]:
    return [choice.first.name, *(expert.name for expert in choice.list_fallbacks())]


@pytest.mark.parametrize("model", ["auto", "ir3de/auto"])
@pytest.mark.parametrize("domain", TEXTS)
def test_the_router_decides_and_only_candidates_follow(domain: str, model: str) -> None:
    choice = chosen(snapshot(), QUESTIONS[domain], model=model)
    assert (choice.why, choice.decided, names(choice)) == ("", domain, [domain])
    mixed = chosen(snapshot(), "Is my contract void if my dough does not rise?", model=model)
    assert mixed.decision is not None
    assert names(mixed) == list(mixed.decision.candidates) == ["law", "cooking"]


def test_a_name_is_asked_without_routing_and_only_its_own_fallbacks_follow() -> None:
    found = snapshot(experts={"law": {"fallbacks": ["cooking"]}})
    choice = chosen(found, QUESTIONS["maths"], model="law")
    assert (choice.decision, choice.why, names(choice)) == (None, "asked by name", ["law", "cooking"])
    assert names(chosen(found, model="maths")) == ["maths"]
    assert names(chosen(found, model="law", controls={"deny": frozenset(["cooking"])})) == ["law"]


def test_an_unknown_model_is_not_found() -> None:
    with pytest.raises(ApiError, match="auto, which routes, and maths, law, cooking") as problem:
        chosen(snapshot(), model="gpt-\ud800")
    assert (problem.value.status, problem.value.code, problem.value.param) == (404, "model_not_found", "model")
    problem.value.body().decode()


def test_fallbacks_of_the_expert_come_before_the_default_and_are_counted() -> None:
    for most, expected in ((0, ["law"]), (1, ["law", "cooking"]), (9, ["law", "cooking", "maths"])):
        routing = {"fallbacks": most, "default": "maths"}
        found = snapshot(experts={"law": {"fallbacks": ["cooking"]}}, routing=routing)
        assert names(chosen(found)) == expected


@pytest.mark.parametrize(
    ("controls", "expected"),
    [
        ({"deny": frozenset(["law"])}, {"maths", "cooking"}),
        ({"allow": frozenset(["maths", "nobody"])}, {"maths"}),
        ({"allow": frozenset(["maths", "law"]), "deny": frozenset(["law"])}, {"maths"}),
        ({"max_price": 1.0}, {"maths", "cooking"}),
        ({"max_price": 0.0}, {"cooking"}),
    ],
)
def test_what_a_request_rules_out_is_not_asked(controls: dict[str, Any], expected: set[str]) -> None:
    prices = {"law": {"price": {"output_per_1m": 2}}, "maths": {"price": {"input_per_1m": 0.5}}}
    prices["law"]["fallbacks"] = ["maths", "cooking"]  # type: ignore[assignment]
    choice = chosen(snapshot(experts=prices), controls=controls)
    assert set(names(choice)) == expected
    assert choice.why == "instead of law"


def test_an_allowed_expert_that_does_not_exist_is_named_where_nobody_may_answer() -> None:
    with pytest.raises(ApiError, match=r"law was chosen: not .*\. there is no expert 'lwa'; maths: not allowed"):
        chosen(snapshot(), controls={"allow": frozenset(["lwa"])})


def test_what_a_request_needs_is_asked_only_where_it_is() -> None:
    can = {"cooking": {"capabilities": ["chat", "vision"]}, "law": {"capabilities": ["chat"]}}
    can["law"]["fallbacks"] = ["maths", "cooking"]
    found = snapshot(experts=can)
    assert names(chosen(found, [{"type": "text", "text": "Whose contract is this?"}, PICTURE])) == ["cooking"]
    assert names(chosen(found, tools=[{"type": "function"}])) == ["maths"]
    told = r"abstained \(no known token\).* maths: has no vision .* law: has no tools or vision"
    with pytest.raises(ApiError, match=told) as problem:
        chosen(found, [PICTURE], tools=[{}])
    assert (problem.value.status, problem.value.code) == (400, "no_eligible_expert")


def test_a_context_window_must_hold_prompt_and_answer() -> None:
    found = snapshot(experts={"law": {"context_window": 100}}, routing={"default": "maths"})
    assert names(chosen(found, QUESTIONS["law"]))[0] == "law"
    assert "law" not in names(chosen(found, QUESTIONS["law"] * 40))
    assert "law" not in names(chosen(found, max_tokens=100))
    assert "law" not in names(chosen(found, max_completion_tokens=10**5000))
    assert "law" in names(chosen(found, max_tokens=-(10**9)))


def test_pictures_alone_go_to_the_default_that_can_see() -> None:
    found = snapshot(experts={"law": {"capabilities": ["chat", "vision"]}}, routing={"default": "cooking"})
    choice = chosen(found, [PICTURE])
    assert (choice.why, names(choice)) == ("abstained", ["law"])


def test_what_says_nothing_goes_to_the_default() -> None:
    assert names(chosen(snapshot(routing={"default": "cooking"}), ""))[0] == "cooking"
    named = small_router().with_policy(Policy(), default="law")
    assert names(chosen(snapshot(router=named), ""))[0] == "law"
    assert names(chosen(snapshot(router=named, routing={"default": "cooking"}), ""))[0] == "cooking"


@pytest.mark.parametrize("text", ["hi", "我的房东想赶我走", "Solve it for 我的房东想赶我走"])
def test_without_a_default_the_nearest_expert_answers(text: str) -> None:
    decision = small_router().route(text)
    choice = chosen(snapshot(routing={"threshold": 1.0}), text)
    assert choice.decision is not None and choice.decision.expert is None is small_router().default
    assert (choice.why, choice.first.name, choice.instead) == ("abstained", decision.best, "nearest expert")


def test_without_a_known_token_nobody_is_near_and_nobody_is_called_so() -> None:
    found = snapshot()
    choice = chosen(found, "")
    assert (choice.why, choice.first, choice.instead) == (
        "abstained", next(iter(found.experts.values())), "first that may answer",
    )  # fmt: skip


def test_a_threshold_makes_the_router_abstain() -> None:
    found = snapshot(routing={"threshold": 1.0, "default": "cooking"})
    assert (chosen(found).why, chosen(found).first.name) == ("abstained", "cooking")
    assert chosen(snapshot(routing={"threshold": 0.0})).why == ""


def test_skip_goes_to_the_default_without_routing() -> None:
    choice = chosen(snapshot(routing={"default": "cooking"}), controls={"skip": True})
    assert (choice.decision, choice.why, choice.first.name) == (None, "skip", "cooking")


def test_shadow_routes_and_sends_everything_to_one() -> None:
    found = snapshot(routing={"shadow": "cooking"}, experts={"cooking": {"fallbacks": ["maths"]}})
    pins = StoredPins(60)
    pins.put("monday", "law")
    for controls in ({}, {"skip": True}, {"session": "monday"}):
        choice = chosen(found, controls=controls, pins=pins)
        assert choice.decision is not None
        assert choice.decision.expert == "law"
        assert (choice.why, names(choice)) == ("shadow", ["cooking", "maths"])
    assert names(chosen(found, model="law")) == ["law"]


def test_vectors_of_two_models_are_never_mixed() -> None:
    can = {"capabilities": ["chat", "embeddings"]}
    found = snapshot(experts={"law": can, "cooking": can})
    prompt = read_prompt(FORMATS["embeddings"], {"input": QUESTIONS["cooking"]}, "last_user", ())
    assert names(choose_expert(found, "auto", prompt, Controls(), NOBODY)) == ["law"]


# conversations --------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "stored"])
def clock_and_pins(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    now = [1000.0]
    make = {"memory": lambda: StoredPins(60, clock=lambda: now[0])}
    make["stored"] = lambda: StoredPins(60, tmp_path / "pins", lambda: now[0])  # type: ignore[assignment,return-value]
    pins = make[request.param]()
    yield now, pins
    pins.close()


def test_a_pin_lasts_from_the_last_request_on(clock_and_pins: Any) -> None:
    now, pins = clock_and_pins
    for session in ("monday", "long" * 10_000, "\ud800"):
        pins.put(session, "law")
        now[0] += 59
        assert pins.get(session) == "law"
        pins.put(session, "cooking")
        now[0] += 59
        assert pins.get(session) == "cooking"
        now[0] += 1
        assert pins.get(session) is None
    assert pins.get("other") is None


def test_a_conversation_stays_until_another_expert_is_clearly_right(clock_and_pins: Any) -> None:
    _, pins = clock_and_pins
    pins.put("monday", "cooking")

    def asked(content: str, release: float, **more: Any) -> tuple[str, str]:
        found = snapshot(routing={"pinning": {"release": release}})
        choice = chosen(found, content, pins=pins, controls={"session": "monday", **more.pop("controls", {})}, **more)
        return choice.first.name, choice.why

    sure = small_router().route(QUESTIONS["law"]).confidence or 0.0
    assert asked(QUESTIONS["law"], sure + 1e-6) == ("cooking", "pinned")
    assert asked(QUESTIONS["law"], sure) == ("law", "")  # from this confidence on
    assert asked(CLEAR, (small_router().route(CLEAR).confidence or 0.0) - 0.01) == ("law", "")
    assert asked(CLEAR, 1.0) == ("cooking", "pinned")
    assert asked("", 0.0) == ("cooking", "pinned")  # what says nothing moves nobody
    loop = [{"role": "user", "content": CLEAR}, {"role": "tool", "content": "7", "tool_call_id": "x"}]
    assert asked("", 0.5, messages=loop) == ("cooking", "pinned")
    denied = {"deny": frozenset(["cooking"])}
    assert asked(QUESTIONS["maths"], 0.95, controls=denied) == ("maths", "")
    assert asked(CLEAR, 0.5, controls={"deny": frozenset(["law"])}) == ("cooking", "pinned")


def test_without_a_ttl_nothing_is_pinned() -> None:
    pins = StoredPins(60)
    pins.put("monday", "cooking")
    found = snapshot(routing={"pinning": {"ttl": 0}})
    assert chosen(found, pins=pins, controls={"session": "monday"}).first.name == "law"


# what a client may ask ------------------------------------------------------------------------------------------


def test_controls_come_from_headers_and_the_body_comes_first() -> None:
    headers = {
        b"x-ir3de-allow": b"law, maths",
        b"x-ir3de-deny": b"cooking",
        b"x-ir3de-max-price": b"1.5",
        b"x-ir3de-skip": b"True",
        b"x-thread-id": b"t",
    }
    found = read_controls({"allow": ["law"], "deny": None}, headers, (b"x-session-id", b"x-thread-id"))
    assert found == Controls(frozenset(["law"]), frozenset(["cooking"]), 1.5, True, "t")
    assert read_controls({"session": "s", "weights": {"price": 1}}, headers, (b"x-thread-id",)).session == "s"
    assert read_controls({"max_price": 10**400}, {}, ()).max_price is not None
    for written in ("Küche".encode(), b"K%C3%BCche"):  # as it is, or as the header x-ir3de-expert has it
        assert read_controls(None, {b"x-ir3de-allow": written}, ()).allow == {"Küche"}


@pytest.mark.parametrize(
    "given",
    [
        1,
        [],
        "x",
        {"x": 1},
        {"allow": "law"},
        {"deny": [1]},
        {"max_price": -1},
        {"max_price": True},
        {"max_price": "1"},
        {"skip": 1},
        {"session": 1},
        {"weights": 1},
        {"weights": {"x": 1}},
        {"weights": {"price": -1}},
        {"weights": {"price": 1e308}},
        {"weights": {"price": float("inf")}},  # as 1e400 is read
        {"weights": {"price": 10**400}},
        {"weights": {"price": "\ud800" * 100_000}},
        {"\ud800": 1},
    ],
)
def test_controls_that_cannot_be_read_are_refused(given: Any) -> None:
    with pytest.raises(ApiError, match="ir3de") as problem:
        read_controls(given, {}, ())
    assert problem.value.status == 400
    assert len(problem.value.body()) < 5_000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (7, "ir3de: must be an object, found 7"),
        ({"weights": {"price": 1e308}}, "ir3de.weights: price must be a number from 0 to 1e+12, found 1e+308"),
        ({"allow": "law"}, 'ir3de.allow: must be a valid list, found "law"'),
        ({"max_price": "1"}, 'ir3de.max_price: must be a valid number, found "1"'),
        ({"skip": 1}, "ir3de.skip: must be true or false, found 1"),
        ({"skip": [], "session": {}}, "ir3de.skip: must be true or false, found a list; ir3de.session: must be a"),
    ],
)
def test_errors_of_controls_say_what_was_found(given: Any, message: str) -> None:
    with pytest.raises(ApiError, match=re.escape(message)):
        read_controls(given, {}, ())


def test_errors_of_admin_do_not_repeat_values() -> None:
    with pytest.raises(ApiError, match="name: must be a valid string; merge: must be true or false") as problem:
        validate(ExpertAddition, {"name": ["hush"], "merge": "hush", "texts": None})
    assert "hush" not in problem.value.message


@pytest.mark.parametrize("name", [b"max-price", b"skip"])
@pytest.mark.parametrize("value", [b"", b"x", b"nan", b"-1", b"\xff"])
def test_headers_that_cannot_be_read_are_refused(name: bytes, value: bytes) -> None:
    with pytest.raises(ApiError, match="x-ir3de-"):
        read_controls(None, {b"x-ir3de-" + name: value}, ())
