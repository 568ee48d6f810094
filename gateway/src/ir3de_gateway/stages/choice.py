"""A choice as a value, which experts can and may answer, and which of them answer in place of the decided one.

One rule decides which expert answers instead, whatever the reason that the decided one does not:

1. One of the expert's own `fallbacks`, in their order.
2. A candidate of the decision: an expert at least a third as likely as the best one.
3. The default expert: `routing.default`, otherwise the router's own.

If none of them may answer, the client gets an error. The request is not forwarded to other experts: an improbable
expert would give a wrong answer, and the client would not notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ir3de.errors import name_some
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.exchange_record import Handover, Instead
from ir3de_gateway.experts.snapshot import Expert, Snapshot
from ir3de_gateway.experts.switch import Switch
from ir3de_gateway.headers import encode_name
from ir3de_gateway.requests.client import Controls
from ir3de_gateway.wire.formats import PassthroughFormat

if TYPE_CHECKING:
    from ir3de import Decision
    from ir3de.serving import TurnReason

MAX_INLINE_TURNS = 100  # routed in the event loop, within a few milliseconds; longer chats in a thread
MAX_INLINE_CHARS = 100_000  # of all turns
DEFAULT = "default expert"
EXPLORE = "explore"
TOO_DEAR = "too dear to switch"  # the conversation's expert answers
_SET = ("pinned", "shadow", EXPLORE, TOO_DEAR)  # the first expert is set, whatever the router decides


class Prompt(NamedTuple):
    """The text to route, and what else the choice of an expert depends on."""

    text: str  # of a chat whose turns are routed together, the last one that has words
    needs: frozenset[str]  # capabilities
    tokens: int  # a rough count of the prompt and the longest answer; 0 where none is needed
    tool_loop: bool  # the last message is the result of a tool
    follows: str = ""  # of OpenAI's responses: the id of the response before
    turns: Sequence[str] = ()  # the user's turns, where they are routed together
    untranslatable: str = ""  # why experts of the other kind cannot answer, if some of the experts are such
    opening: str = ""  # the user's first turn
    system: str = ""  # the system prompt: what stands before that turn
    before: Sequence[int] = ()  # of several turns: roughly the tokens before each, where a switch has a price

    @property
    def is_quick(self) -> bool:
        """Whether it is routed within a few milliseconds."""
        return len(self.turns) <= MAX_INLINE_TURNS and sum(map(len, self.turns)) <= MAX_INLINE_CHARS


class Refusal(NamedTuple):
    """Why an expert cannot or may not answer: one of `REFUSAL_LABELS` for metrics, and a text for people."""

    label: str
    text: str


class Substitute(NamedTuple):
    """An expert that answers in place of another one, and by which part of the rule."""

    expert: Expert
    kind: str  # fallback, candidate, or default expert


class Standing(NamedTuple):
    """How the router judges one expert. All is None if the router does not know the expert."""

    confidence: float | None = None
    expected_score: float | None = None  # instead of the confidence, if an outcome router decided
    margin: float | None = None  # over the best of the others; below zero if that one is better


class Routed(NamedTuple):
    """A decision, with the figures of its best expert, and how long it took."""

    decision: Decision
    confidence: float | None
    expected_score: float | None  # instead of the confidence, if an outcome router decided
    margin: float
    seconds: float
    reason: TurnReason | None = None  # of a chat with several turns: which one decided, and why
    holder: str | None = None  # the expert that has answered the turns before, where a switch has a price

    def find_standing(self, expert: str) -> Standing:
        """The figures of one expert, which is the best one as a rule."""
        decision = self.decision
        if expert == decision.best:
            return Standing(self.confidence, self.expected_score, self.margin)
        values = dict(decision.quality)
        if (value := values.pop(expert, None)) is None:
            return Standing()
        margin = value - max(values.values(), default=0.0)
        return Standing(value, None, margin) if self.expected_score is None else Standing(None, value, margin)


@dataclass(slots=True)
class Choice:
    """The expert that gets the request first, why, and the fallbacks."""

    snapshot: Snapshot
    first: Expert
    eligible: Sequence[Expert]
    why: str = ""  # empty if the router decided; otherwise the reason
    routed: Routed | None = None  # None where nothing was routed
    by_name: bool = False  # then only the fallbacks of the configuration may replace it
    wanted: str | None = None  # in whose place others answer, if that is not `first`
    decided: str | None = None  # by the router, or by who named an expert; None if the router found none
    instead: str = ""  # who `first` is, if it is not the decided expert, or if the router abstained
    refusal: Refusal | None = None  # why the decided expert is not `first`
    switch: Switch | None = None  # from the conversation's expert, made or not
    # what the client gets instead of an answer; made where it is raised, since its frames keep the choice
    build_rejection: Callable[[], ApiError] | None = None

    @property
    def decision(self) -> Decision | None:
        return None if self.routed is None else self.routed.decision

    def list_substitutes(self) -> list[Substitute]:
        """The experts that follow when the first one fails."""
        is_alone = self.by_name or self.snapshot.config.routing.shadow is not None
        wanted, decision = self.wanted or self.first.name, None if is_alone else self.decision
        found = list_substitutes(self.snapshot, wanted, self.eligible, decision)
        return [one for one in found if one.expert is not self.first]

    def list_fallbacks(self) -> list[Expert]:
        """The same, but no more than are to be tried."""
        return [one.expert for one in self.list_substitutes()[: self.snapshot.config.routing.fallbacks]]

    def explain_instead(self, answers: str, handovers: Sequence[Handover]) -> Instead:
        """Why this expert answers, if it is not the decided one, or if the router abstained."""
        kind = self.instead
        if answers != self.first.name:
            kind = next((one.kind for one in self.list_substitutes() if one.expert.name == answers), "")
        abstained = "" if self.routed is None else self.routed.decision.reason
        if self.decided is None or answers == self.decided:
            return Instead(kind if abstained else "", "", abstained)
        failed = {giver: reason for giver, _, reason in reversed(handovers)}
        label = text = failed.get(self.decided) or failed.get(self.first.name, "")
        if self.refusal is not None and (self.refusal.text or not failed):  # a pin that failed is not the cause
            label, text = self.refusal
        return Instead(kind, label, abstained or text)

    def explain_why(self, answers: str) -> str:
        """What decided, if not the router. Where the expert of a pin has failed, the pin did not decide."""
        is_replaced = self.why in _SET and answers != self.first.name
        return f"instead of {self.first.name}" if is_replaced else self.why


class Candidates(NamedTuple):
    """A request, and the experts that can and may answer it, in the order of the configuration."""

    snapshot: Snapshot
    prompt: Prompt
    controls: Controls
    eligible: Sequence[Expert]

    def find(self, name: str | None) -> Expert | None:
        """The expert of that name, if it can and may answer."""
        expert = None if name is None else self.snapshot.experts.get(name)
        return expert if expert in self.eligible else None

    def find_refusal(self, name: str) -> Refusal | None:
        return find_refusal(self.snapshot.experts.get(name), self.prompt, self.controls)

    def build_error(self, decided: str | None, decision: Decision | None = None) -> ApiError:
        """The error where neither the decided expert nor one in its place may answer."""
        parts, headers = ["no expert may answer this request"], {}
        if decided is not None and (refusal := self.find_refusal(decided)) is not None:
            parts.append(f"{decided} was chosen: {refusal.text}")
            headers = {"x-ir3de-decided": encode_name(decided).decode()}
        elif decision is not None and decision.abstained:
            parts.append(f"the router abstained ({decision.reason}), and there is no default expert")
        if self.eligible:
            able = name_some(expert.name for expert in self.eligible)
            wanted = decided or "the nearest expert"
            none = f"none of them is a fallback of {wanted}, a candidate of the router or the default expert"
            parts.append(f"{able} could answer, but {none}: configure that, or request an expert by its name")
        unknown = sorted((self.controls.allow or frozenset()) - self.snapshot.experts.keys())
        reasons = [f"there is no expert {name[:100]!r}" for name in unknown[:5]]
        others = {name: self.find_refusal(name) for name in self.snapshot.experts if name != decided}
        reasons += [f"{name}: {refusal.text}" for name, refusal in others.items() if refusal is not None]
        parts += ["; ".join(reasons)] if reasons else []
        return ApiError(400, ". ".join(parts), "no_eligible_expert", "model", headers=headers)


def find_eligible(snapshot: Snapshot, prompt: Prompt, controls: Controls) -> Sequence[Expert]:
    """The experts that can and may answer, in the order of the configuration; possibly none."""
    return [expert for expert in snapshot.experts.values() if find_refusal(expert, prompt, controls) is None]


def find_refusal(expert: Expert | None, prompt: Prompt, controls: Controls) -> Refusal | None:
    """Why an expert cannot or may not answer; None if it can and may. `None` is an expert that only the router has."""
    if expert is None:
        return Refusal("endpoint", "has no endpoint (experts)")
    config = expert.config
    if not prompt.needs <= expert.capabilities:
        missing = " or ".join(sorted(prompt.needs - expert.capabilities))
        return Refusal("capability", f"has no {missing} (capabilities)")
    if prompt.untranslatable and not prompt.needs.isdisjoint(expert.translated):
        return Refusal("translation", prompt.untranslatable)
    if config.context_window is not None and prompt.tokens > config.context_window:
        text = f"about {prompt.tokens:,} tokens do not fit its context of {config.context_window:,}"
        return Refusal("context", text)
    if controls.of_key is not None and expert.name not in controls.of_key:
        return Refusal("key", "not allowed for this API key")
    if (controls.allow is not None and expert.name not in controls.allow) or expert.name in controls.deny:
        return Refusal("request", "not allowed by the request")
    price = max(config.price.input_per_1m, config.price.output_per_1m)
    if controls.max_price is not None and price > controls.max_price:
        return Refusal("price", f"costs more than {controls.max_price:g} per million tokens")
    return None


def find_passed(snapshot: Snapshot, wire: PassthroughFormat, controls: Controls) -> list[Expert]:
    """The experts that can and may answer a request that is passed through, or an `ApiError`."""
    needs = frozenset([wire.capability])
    if not (capable := snapshot.find_capable(needs)):
        raise build_incapable_error(snapshot, wire, f"no expert has {wire.capability}")
    prompt = Prompt("", needs, 0, tool_loop=False)
    refusals = {expert: find_refusal(expert, prompt, controls) for expert in capable}
    if found := [expert for expert, refusal in refusals.items() if refusal is None]:
        return found
    reasons = "; ".join(f"{expert.name}: {refusal.text}" for expert, refusal in refusals.items() if refusal is not None)
    raise ApiError(400, f"no expert may answer this request. {reasons}", "no_eligible_expert", "model")


def check_batch(expert: Expert, controls: Controls) -> None:
    """Refuse a batch that would cost at an expert that the request excludes."""
    if (refusal := find_refusal(expert, Prompt("", frozenset(), 0, tool_loop=False), controls)) is not None:
        message = f"the file has lines for an expert that may not answer this request. {expert.name}: {refusal.text}"
        raise ApiError(400, message, "no_eligible_expert", "input_file_id")


def build_incapable_error(snapshot: Snapshot, wire: PassthroughFormat, what: str) -> ApiError:
    having = [f"{name} has {', '.join(expert.config.capabilities)}" for name, expert in snapshot.experts.items()]
    message = f"{what}, which /v1/{wire.path} needs. Of the experts, {'; '.join(having)}"
    return ApiError(404, f"{message}. Name it in the capabilities of an expert that has it", "no_capable_expert")


def list_substitutes(
    snapshot: Snapshot, wanted: str | None, eligible: Sequence[Expert], decision: Decision | None = None
) -> list[Substitute]:
    """The experts that may answer in place of `wanted`, best first.

    `eligible` are those that can and may answer. Without a decision there are only the fallbacks of `wanted`: a client
    that names an expert wants that one.
    """
    there, found = {expert.name: expert for expert in eligible}, dict[str, Substitute]()
    for name, kind in _list_names(snapshot, wanted, decision):
        if name in there and name != wanted and name not in found:
            found[name] = Substitute(there[name], kind)
    return list(found.values())


def _list_names(snapshot: Snapshot, wanted: str | None, decision: Decision | None) -> Iterator[tuple[str, str]]:
    if wanted is not None and (expert := snapshot.experts.get(wanted)) is not None:
        yield from ((name, "fallback") for name in expert.config.fallbacks)
    if decision is not None:
        yield from ((name, "candidate") for name in decision.candidates)
        if (default := find_default(snapshot)) is not None:
            yield default, DEFAULT


def find_default(snapshot: Snapshot) -> str | None:
    """The default expert: the configuration's, otherwise the router's own, if there is one."""
    return snapshot.config.routing.default or snapshot.router.default
