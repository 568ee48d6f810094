"""The JSON that the gateway's endpoints take and give, as pydantic models for `generate_openapi.py`.

Only what the gateway itself reads or writes is described. All other fields of a request or an answer pass unchanged.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ir3de_gateway.http import routing_api
from ir3de_gateway.keys.keys_file import KeyLimits
from ir3de_gateway.requests.controls import ControlsField

Count = Annotated[int, Field(ge=0)]
TextType = Literal["text", "input_text", "output_text"]
OtherType = Annotated[str, Field(json_schema_extra={"not": {"enum": ["text", "input_text", "output_text"]}})]


class OpenModel(BaseModel):
    """An object that may have further fields."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)


# requests to the experts ----------------------------------------------------------------------------------------


class TextPart(OpenModel):
    """A part of a message that is text."""

    type: TextType
    text: str


class OtherPart(OpenModel):
    """A picture, a file or anything else."""

    type: OtherType


Content = str | list[str | TextPart | OtherPart] | None


class Message(OpenModel):
    """One message of a chat."""

    role: str
    content: Content = None


Messages = Annotated[list[Message], Field(min_length=1)]


class InferenceRequest(OpenModel):
    """What every request for an expert may have."""

    model: Annotated[str, Field(min_length=1)] = "auto"
    """`auto` routes; an expert's name asks that expert."""
    stream: bool | None = None
    ir3de: ControlsField | None = None


class ChatRequest(InferenceRequest):
    """A chat."""

    messages: Messages


class MessagesRequest(ChatRequest):
    """A chat as Anthropic's clients send it."""

    system: Content = None


class CompletionRequest(InferenceRequest):
    """A text to complete."""

    prompt: str | Annotated[list[Any], Field(min_length=1)]


class ResponseRequest(InferenceRequest):
    """A request of OpenAI's responses."""

    input: str | Annotated[list[dict[str, Any]], Field(min_length=1)]


class EmbeddingRequest(InferenceRequest):
    """Texts to embed."""

    input: str | Annotated[list[Any], Field(min_length=1)]


class PassedRequest(OpenModel):
    """A request that is passed through."""

    model: Annotated[str, Field(min_length=1)] = "auto"
    """An expert's name asks that expert; otherwise the first one that can is asked."""
    ir3de: ControlsField | None = None


class PassedForm(OpenModel):
    """A form with files that is passed through."""

    model: str = "auto"
    """An expert's name asks that expert; otherwise the first one that can is asked."""


class Fallback(OpenModel):
    """An expert that failed, and the next one that was asked."""

    source: str = Field(alias="from")
    to: str
    reason: str


class ChatReason(OpenModel):
    """Of a chat with several turns of the user: the last turn, the turn that decided it, and why."""

    turn: Count
    decided: Count
    why: Literal["routed", "stayed", "new subject", "moved"]


class Provenance(OpenModel):
    """Which expert answered, and why."""

    expert: str
    model: str
    router: str
    why: str
    request_id: str
    fallbacks: list[Fallback]
    confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    """The probability that the expert that answered is the right one; null if the router does not know it, or is one of
    outcomes."""
    expected_score: float | None = None
    """What an outcome router expects of the expert that answered; missing otherwise."""
    margin: float | None = 0
    """How far the expert that answered lies above the best of the others: below zero if another one is likelier."""
    abstained: bool = False
    decided: str | None
    """The expert that was decided on, by the router or by its name; null if none fits. Somebody must answer, so
    `expert` is then the nearest one. It also differs from `expert` if it could not answer."""
    chat: ChatReason | None = None
    reason: str = ""
    """Why the router abstained, such as `out of domain`, or why the decided expert does not answer; missing if
    neither is so."""
    instead: str = ""
    """Who answers then: `fallback`, `candidate`, `default expert` or `nearest expert`; missing otherwise."""


class Answer(OpenModel):
    """An expert's answer, with its provenance."""

    model: str = ""
    ir3de: Provenance | None = None


class Model(OpenModel):
    """`auto`, or an expert."""

    id: str
    object: Literal["model"]
    created: Count
    owned_by: str


class ModelList(OpenModel):
    """Everything that can be asked for as `model`."""

    object: Literal["list"]
    data: list[Model]


# questions about the router and the gateway ---------------------------------------------------------------------


class RouteRequest(routing_api.RouteRequest):
    """Prompts to route: `input` or `messages`."""

    messages: Messages = []  # noqa: RUF012 - pydantic copies it
    """Or a chat, which is routed as the chat endpoint routes it."""


class RoutedPrompt(OpenModel):
    """The decision for one prompt."""

    index: Count
    expert: str | None
    """The chosen expert; null if the router abstained and no default expert was named: none fits."""
    confidence: float | None
    """The probability that the prompt is in domain and the best expert is the right one; null for an outcome router."""
    expected_score: float | None = None
    """What an outcome router expects of the best model; missing otherwise."""
    ranking: list[dict[str, Any]]
    """Every expert with its `probability` or `expected_score`, best first. The probabilities add up to `in_domain`."""
    abstained: bool
    reason: str
    """Why the router abstained; empty if it did not."""
    in_domain: float | None
    """The probability that the prompt belongs to any of the domains; null if that was not learnt."""


class TurnWeight(OpenModel):
    """The part of one turn in the decision of another."""

    turn: int
    weight: float
    """Its share of the weighted tokens."""
    lead: float
    """Its share of the lead of the best expert over the next one; below zero if it speaks for the next one."""


class RoutedTurn(OpenModel):
    """A turn of the user in a chat."""

    turn: int
    """Counted from 0."""
    message: int
    """Its place among the messages."""
    text: str
    """Its beginning."""
    expert: str | None
    """The chosen expert; null if the router abstained and no default expert was named."""
    best: str
    """The expert that the confidence is about: the chosen one, or the nearest one."""
    confidence: float | None
    expected_score: float | None = None
    abstained: bool
    reason: str
    """Why the router abstained; empty if it did not."""
    why: Literal["routed", "stayed", "new subject", "moved"]
    """By its own words; with the turns before; because it begins a new subject; or because of all turns together."""
    decided: int
    """The turn that decided."""
    weights: list[TurnWeight]
    explained: bool | None = None
    """With `explain`: whether the words follow. The newest turns have them, at most 100 and 16,384 characters."""
    summary: str | None = None
    """With `explain`: one sentence about the words that decided."""
    compared: list[str] | None = None
    """With `explain`: the experts that the words are compared for."""
    words: list[dict[str, Any]] | None = None
    """With `explain`: the words of the turn that decided."""


class RouteAnswer(OpenModel):
    """The decisions, in the order of the prompts."""

    object: Literal["list"]
    router: str
    experts: list[str]
    default: str | None
    """The expert for prompts on which the router abstains; null if none was named."""
    data: list[RoutedPrompt]
    turns: list[RoutedTurn] | None = None
    """Of a chat: the turns of the user, at most the last 1,000."""
    options: dict[str, Any]


class Health(OpenModel):
    """Whether the experts can be asked."""

    status: Literal["ok", "degraded", "unavailable"]


class Version(OpenModel):
    """What is running."""

    name: Literal["ir3de"]
    version: str
    router: str


class ErrorDetail(OpenModel):
    """The error object."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(OpenModel):
    """What was wrong, as clients of OpenAI's API expect it."""

    error: ErrorDetail


# /admin ---------------------------------------------------------------------------------------------------------


class Replica(OpenModel):
    """One address of an expert."""

    name: str
    base_url: str
    state: Literal["up", "warming", "down", "drained", "closed", "open", "half-open", "cooling"]
    """Whether it gets requests, and if not, why."""
    breaker: Literal["closed", "open", "half-open", "cooling"]
    drained: bool
    in_flight: Count
    """Requests that it is answering, over all workers."""
    weight: float


class Expert(OpenModel):
    """An expert, its upstream and its domain."""

    name: str
    upstream: dict[str, Any] | None
    routed: bool
    prompts: int | None
    tokens: int | None
    breaker: Literal["closed", "open", "half-open", "cooling"] = "closed"
    in_flight: Count = 0
    waiting: Count = 0
    replicas: list[Replica] = []


class RouterFigures(OpenModel):
    """A router on its kept prompts, each routed by a fit that did not see it."""

    scorer: str
    selector: str
    prompts: Count
    accuracy: dict[str, float] | None
    """`value`, and `low` and `high` of its 95 % interval."""
    mean_confidence: float | None


class RouterChange(OpenModel):
    """The router before and after a change."""

    before: RouterFigures
    after: RouterFigures
    compared: Count
    """Prompts that were kept before and after."""
    difference: dict[str, float] | None
    """Of the accuracies on these prompts, after minus before, with its 95 % interval."""
    moved: Count
    """How many of them go to another expert."""
    examples: list[dict[str, Any]]
    """Up to five of these: `prompt`, its `expert`, `before`, `after`, `confidence_before`, `confidence_after`."""


class ChangedExpert(Expert):
    """An expert that was added or extended."""

    change: RouterChange | None
    """What this did to the router; null if only the endpoint changed."""


class RemovedExpert(OpenModel):
    """An expert that was removed."""

    name: str
    removed: Literal[True]
    change: RouterChange | None


class ExpertList(OpenModel):
    """Every expert."""

    object: Literal["list"]
    data: list[Expert]


class Router(OpenModel):
    """The router that serves."""

    path: str
    digest: str
    experts: list[str]


class UsedWithin(OpenModel):
    """Requests, tokens and cost of a day or a month."""

    requests: Count
    tokens: Count
    cost: float


class KeyUse(OpenModel):
    """What a key has used: within the last minute, now, this day and this month."""

    requests: Count
    tokens: Count
    concurrent: Count
    day: UsedWithin
    month: UsedWithin


class Key(OpenModel):
    """A key, what it may do, and what it has used."""

    name: str
    scopes: list[str]
    experts: list[str] | None
    expires: str | None
    disabled: bool
    limits: KeyLimits
    used: KeyUse | None = None
    resets: dict[str, str] | None = None
    by_expert: list[dict[str, Any]] | None = None
    problem: str | None = None
    """Why it is not known what the key has used."""


class KeyList(OpenModel):
    """Every key, the file they come from, and what is wrong with it."""

    object: Literal["list"]
    data: list[Key]
    file: str | None
    problem: str | None


class AnyObject(OpenModel):
    """An object of any fields."""


MODELS: tuple[type[BaseModel], ...] = (
    ChatRequest, MessagesRequest, CompletionRequest, ResponseRequest, EmbeddingRequest, PassedRequest, PassedForm,
    Answer, Model, ModelList,
    RouteRequest, RouteAnswer, Health, Version, Error, Expert, ChangedExpert, RemovedExpert, ExpertList, Router, Key,
    KeyList, AnyObject,
)  # fmt: skip
