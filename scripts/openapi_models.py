"""The JSON of the gateway's requests and responses, as pydantic models for `generate_openapi.py`.

Only what the gateway itself reads or writes is described. All other fields of a request or an answer pass unchanged.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ir3de_gateway.http import route
from ir3de_gateway.requests.client import ControlsField

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
    """`auto` routes; the name of an expert selects it."""
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


class PassedForm(OpenModel):
    """A form with files that is passed through."""

    model: str = "auto"
    """The name of an expert selects it; otherwise the first capable expert answers."""


class PassedRequest(PassedForm):
    """A request that is passed through."""

    model: Annotated[str, Field(min_length=1)] = "auto"
    """The name of an expert selects it; otherwise the first capable expert answers."""
    ir3de: ControlsField | None = None


class Fallback(OpenModel):
    """An expert that failed, and the next one."""

    source: str = Field(alias="from")
    to: str
    reason: str


class ChatReason(OpenModel):
    """For a chat with several user turns: the last turn, the turn that decided, and why."""

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
    """The probability that the expert that answered is the right one; null if unknown, or for an outcome router."""
    expected_score: float | None = None
    """The score that an outcome router expects of the expert that answered; missing otherwise."""
    margin: float | None = 0
    """The lead of the expert that answered over the best of the others; negative if another one is likelier."""
    abstained: bool = False
    decided: str | None
    """The expert that the router or the client chose; null if the prompt is out of domain, and then `expert` is the
    nearest one. It differs from `expert` if it could not answer."""
    chat: ChatReason | None = None
    reason: str = ""
    """Why the router abstained, such as `out of domain`, or why the chosen expert did not answer."""
    instead: str = ""
    """Which expert answered instead: `fallback`, `candidate`, `default expert` or `nearest expert`."""


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
    """All possible values of `model`."""

    object: Literal["list"]
    data: list[Model]


# the router and the gateway ------------------------------------------------------------------------------------


class RouteRequest(route.RouteRequest):
    """Prompts to route: `input` or `messages`."""

    messages: Messages = []  # noqa: RUF012 - pydantic copies it
    """Or a chat, routed as the chat endpoint routes it."""


class Feedback(OpenModel):
    """What an author thinks of an answer."""

    object: Literal["feedback"]
    request_id: str
    response_id: str | None
    """The answer's own id; null if it has none."""
    served: str
    """The expert that answered."""
    author: str
    """The client's key, or `admin`."""
    time: float
    """Seconds since 1970."""
    expert: str | None
    score: float | None
    comment: str


class FeedbackList(OpenModel):
    """A request, and the feedback on its answer."""

    object: Literal["list"]
    request_id: str
    decided: str | None
    """The expert that the router chose."""
    served: str
    time: float
    data: list[Feedback]
    """The caller's own; with the admin token, everybody's."""


class DeletedFeedback(OpenModel):
    """Feedback that is there no longer."""

    object: Literal["feedback"]
    request_id: str
    author: str
    deleted: Literal[True]


class RoutedPrompt(OpenModel):
    """The decision for one prompt."""

    index: Count
    expert: str | None
    """The chosen expert; null if the router abstained and there is no default expert."""
    confidence: float | None
    """The probability that the prompt is in domain and the best expert is the right one; null for an outcome router."""
    expected_score: float | None = None
    """The score that an outcome router expects of the best model; missing otherwise."""
    ranking: list[dict[str, Any]]
    """Every expert with its `probability` or `expected_score`, best first. The probabilities add up to `in_domain`."""
    abstained: bool
    reason: str
    """Why the router abstained; empty if it did not."""
    in_domain: float | None
    """The probability that the prompt belongs to any of the domains; null if not learnt."""


class TurnWeight(OpenModel):
    """The part of one turn in the decision of another."""

    turn: int
    weight: float
    """Its share of the weighted tokens."""
    lead: float
    """Its share of the lead of the best expert over the next one; negative if it favours the next one."""


class RoutedTurn(OpenModel):
    """A turn of the user in a chat."""

    turn: int
    """Counted from 0."""
    message: int
    """Its place among the messages."""
    text: str
    """Its beginning."""
    expert: str | None
    """The chosen expert; null if the router abstained and there is no default expert."""
    best: str
    """The expert of the confidence: the chosen one, or the nearest one."""
    confidence: float | None
    expected_score: float | None = None
    abstained: bool
    reason: str
    """Why the router abstained; empty if it did not."""
    why: Literal["routed", "stayed", "new subject", "moved"]
    """Routed by its own words; stayed with earlier turns; began a new subject; or moved by all turns together."""
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
    """The expert for prompts on which the router abstains; null if there is none."""
    data: list[RoutedPrompt]
    turns: list[RoutedTurn] | None = None
    """Of a chat: the turns of the user, at most the last 1,000."""
    options: dict[str, Any]


class Health(OpenModel):
    """Whether the experts are available."""

    status: Literal["ok", "degraded", "unavailable"]


class Version(OpenModel):
    """What is running."""

    name: Literal["ir3de"]
    version: str
    router: str
    feedback: bool
    """Whether it keeps feedback on answers."""


class ErrorDetail(OpenModel):
    """The error object."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(OpenModel):
    """An error as clients of OpenAI's API expect it."""

    error: ErrorDetail


class AnyObject(OpenModel):
    """An object of any fields."""
