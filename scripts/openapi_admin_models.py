"""The JSON of the /admin endpoints and of keys, as pydantic models for `generate_openapi.py`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ir3de_gateway.keys.keys_file import KeyLimits
from openapi_models import Count, OpenModel


class Replica(OpenModel):
    """One address of an expert."""

    name: str
    base_url: str
    state: Literal["up", "warming", "down", "drained", "closed", "open", "half-open", "cooling"]
    """Whether it gets requests, or why it does not."""
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
    replicas: list[Replica] = []  # noqa: RUF012 - pydantic copies it


class RouterFigures(OpenModel):
    """The figures of a router on its kept prompts, each routed by a fit without it."""

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
    """The effect on the router; null if only the endpoint changed."""


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


class RouterVersion(OpenModel):
    """A router that went live."""

    number: Count
    digest: str
    time: str
    who: str
    """Who put it there; empty if it was found at its location."""
    action: str
    """load, promote candidate, roll back, or another change of the audit log."""
    why: str
    path: str
    """Where it came from."""
    experts: list[str]
    prompts: int | None
    """It was fitted on."""
    proof: dict[str, Any]
    """`accuracy` on held-out prompts of its fit, and `learning`, the proof of `ir3de learn`, if there are such."""
    kept: bool
    """Whether it can be rolled back to."""
    live: bool


class RouterHistory(OpenModel):
    """The versions of the router, newest first."""

    object: Literal["list"]
    data: list[RouterVersion]
    keeps: Count
    """How many routers are kept (router.versions)."""


class RouterDiff(OpenModel):
    """What differs between two versions of the router; null where a router is no longer kept."""

    from_: dict[str, Any] = Field(alias="from")
    to: dict[str, Any]
    experts: dict[str, list[str]]
    """`added` and `removed`."""
    contributions: dict[str, list[str]] | None
    """`added` and `removed`, each as `expert: id`."""
    settings: dict[str, Any] | None
    """Each setting that differs, before and after."""
    prompts: list[int | None]
    """It was fitted on, before and after."""
    proof: list[dict[str, Any]]
    """Before and after."""
    traffic: dict[str, Any] | None
    """Of the newest `requests` of the journal, how many get a `different` expert, and the `moves`."""


class CandidateTest(OpenModel):
    """Where the sequential test of a candidate stands."""

    verdict: Literal["open", "worse", "better"]
    requests: Count
    """On which both routers decided."""
    disagreements: Count
    observed: Count
    """Disagreements with feedback that counts."""
    difference: float | None
    """The candidate's expected score less that of the live router, where they disagree."""
    against: float
    """Evidence that it is worse: 1 / level is enough."""
    in_favour: float
    """Evidence that it is better."""
    level: float
    time: str
    """When it was computed."""


class CandidateEnd(OpenModel):
    """How its trial ended."""

    how: Literal["stopped", "withdrawn", "promoted"]
    time: str
    who: str
    why: str


class Candidate(OpenModel):
    """The candidate router. Without one there is only `state`."""

    object: Literal["candidate"]
    state: Literal["none", "trial", "stopped", "withdrawn", "promoted", "live"]
    router: str | None = None
    digest: str | None = None
    experts: list[str] = []  # noqa: RUF012 - pydantic copies it
    mode: Literal["shadow", "canary"] | None = None
    share: float | None = None
    promote: Literal["by_hand", "auto"] | None = None
    level: float | None = None
    test: CandidateTest | None = None
    ended: CandidateEnd | None = None


class GivenFeedback(OpenModel):
    """What an author thinks of an answer."""

    author: str
    time: float
    expert: str | None
    score: float | None
    comment: str


class RoutedRequest(OpenModel):
    """A routed request, as the journal has it."""

    object: Literal["request"]
    request_id: str
    time: float
    """Seconds since 1970."""
    key: str
    """The name of the client's key; empty if it has none."""
    decided: str | None
    served: str
    """The expert that answered; empty if none did."""
    confidence: float | None
    expected_score: float | None
    """Instead of the confidence, if an outcome router decided."""
    why: str
    status: Count
    seconds: float | None
    completion_tokens: Count | None
    cost: float | None
    text: str | None
    """The beginning of the last turn; null unless the journal keeps texts."""
    turns: Count
    """Turns of the user that are kept as texts."""
    feedback: list[GivenFeedback]


class RoutedRequestList(OpenModel):
    """Routed requests, newest first."""

    object: Literal["list"]
    data: list[RoutedRequest]
    older: Count | None
    """The value of `before` for the requests before these; null if there are none."""
    keep: Literal["text", "tokens", "statistics"]
    """What the journal keeps of a prompt."""
    author: str
    """Whose feedback the caller gives with the same token or key."""
    experts: list[str]
    """Experts that feedback may name."""


class DriftChange(OpenModel):
    """Alarms that came together."""

    summary: str
    """The change as a sentence."""
    alarms: list[dict[str, Any]]


class DriftWindow(OpenModel):
    """Requests that followed one another."""

    since: float
    prompts: Count
    abstained: Count
    experts: dict[str, Count]
    """How many of them each expert got."""


class Drift(OpenModel):
    """How the traffic has changed. Before the first look there is no reference."""

    object: Literal["drift"]
    prompts: Count
    """Requests that were looked at."""
    reference_prompts: Count | None = None
    wanted_prompts: Count | None = None
    is_learning: bool | None = None
    """Whether the reference is not complete, so that nothing can be found yet."""
    prompts_per_false_alarm: float | None = None
    changes: list[DriftChange]
    windows: list[DriftWindow]


class UsedWithin(OpenModel):
    """Requests, tokens and cost of a day or a month."""

    requests: Count
    tokens: Count
    cost: float


class KeyUse(OpenModel):
    """The usage of a key: in the last minute, now, today and this month."""

    requests: Count
    tokens: Count
    concurrent: Count
    day: UsedWithin
    month: UsedWithin


class Key(OpenModel):
    """A key, its limits, and its usage."""

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
    """Why the usage is not known."""
    origin: Literal["environment", "file", "admin"]
    """Where it comes from."""
    previous_expires: str | None = None
    """When the secret before its last rotation ends."""


class MadeKey(Key):
    """A key that was added, changed or rotated."""

    key: str | None = None
    """Its new secret, which is shown only now."""


class KeyList(OpenModel):
    """Every key, their file, and an error in it."""

    object: Literal["list"]
    data: list[Key]
    file: str | None
    problem: str | None
