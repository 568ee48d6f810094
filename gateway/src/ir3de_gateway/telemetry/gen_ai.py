"""OpenTelemetry's conventions for generative AI: attributes (`gen_ai.*`, and our own `ir3de.*`), and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ir3de_gateway.wire.events import read_events

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

    from ir3de_gateway.exchange_record import ExchangeRecord

Attributes = dict[str, Any]

MAX_CHARS = 100  # of a value that clients choose
MAX_ANSWER_CHARS = 200  # of a value that an expert chooses
MAX_MODELS = 200  # experts choose the names of their models: further ones are `other`
MAX_FINAL_EVENTS = 8  # read at the end of a stream: several choices may end one after the other
UNKNOWN_PROVIDER = "openai_compatible"

_OPERATIONS = {"responses": "chat", "messages": "chat", "completions": "text_completion"}  # others have the same name
_FRACTIONS = ("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty")  # attributes of the same name
_WHOLE_NUMBERS = {
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "seed": "seed",
    "n": "choice.count",
}
_HOSTS = {  # of providers; a dot or a dash at the beginning stands for any subdomain
    "openai": ("api.openai.com", ".api.openai.com"),
    "azure.ai.openai": (".openai.azure.com", ".cognitiveservices.azure.com"),
    "azure.ai.inference": (".services.ai.azure.com", ".inference.ai.azure.com"),
    "anthropic": ("api.anthropic.com",),
    "gcp.gemini": ("generativelanguage.googleapis.com",),
    "gcp.vertex_ai": ("aiplatform.googleapis.com", "-aiplatform.googleapis.com"),
    "cohere": ("api.cohere.com", "api.cohere.ai"),
    "deepseek": ("api.deepseek.com",),
    "groq": ("api.groq.com",),
    "ibm.watsonx.ai": (".ml.cloud.ibm.com",),
    "mistral_ai": ("api.mistral.ai",),
    "moonshot_ai": ("api.moonshot.ai", "api.moonshot.cn"),
    "perplexity": ("api.perplexity.ai",),
    "x_ai": ("api.x.ai",),
    "openrouter": ("openrouter.ai",),
    "together_ai": ("api.together.xyz",),
    "fireworks_ai": ("api.fireworks.ai",),
    "hugging_face": ("router.huggingface.co",),
}
_SERVERS = ("llama.cpp", "ollama", "vllm", "sglang", "litellm", "lm studio", "text-generation-inference", "triton")
# the boundaries that the conventions name
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_FIRST_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_TOKEN_SECONDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
_HISTOGRAMS: dict[str, tuple[str, Sequence[float], str]] = {  # unit, boundaries and description
    "gen_ai.client.operation.duration": ("s", _SECONDS, "Time of a request to an expert."),
    "gen_ai.client.operation.time_to_first_chunk": ("s", _FIRST_SECONDS, "Time to the first piece of its stream."),
    "gen_ai.client.token.usage": ("{token}", _TOKENS, "Tokens, as experts count them."),
    "gen_ai.server.request.duration": ("s", _SECONDS, "Time of a request to the gateway."),
    "gen_ai.server.time_to_first_token": ("s", _FIRST_SECONDS, "Time to the first byte of its answer."),
    "gen_ai.server.time_per_output_token": ("s", _TOKEN_SECONDS, "Time per token of a stream after the first."),
}
_SAME_NAME = ("expert", "outcome", "why", "stream", "replica", "queue_seconds", "cost", "key", "cache")  # of the record


def name_operation(endpoint: str) -> str:
    """The name of an endpoint's operation in the conventions.

    >>> name_operation("responses"), name_operation("completions"), name_operation("rerank")
    ('chat', 'text_completion', 'rerank')
    """
    return _OPERATIONS.get(endpoint, endpoint)


def read_request_attributes(values: Mapping[str, Any]) -> Attributes:
    """The settings of a request: numbers and the kind of output, never text.

    >>> read_request_attributes({"temperature": 0, "max_tokens": 5, "n": 1, "seed": "x", "messages": []})
    {'gen_ai.request.temperature': 0.0, 'gen_ai.request.max_tokens': 5}
    """
    found: Attributes = {}
    for name in _FRACTIONS:
        value = values.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e9:
            found[f"gen_ai.request.{name}"] = float(value)
    for name, attribute in _WHOLE_NUMBERS.items():
        value = values.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63:
            found[f"gen_ai.request.{attribute}"] = value
    if found.get("gen_ai.request.choice.count") == 1:
        del found["gen_ai.request.choice.count"]
    kind = values.get("response_format")
    if isinstance(kind, dict) and kind.get("type") in ("text", "json_object", "json_schema"):
        found["gen_ai.output.type"] = "text" if kind["type"] == "text" else "json"
    encoding = values.get("encoding_format")
    if encoding in ("float", "base64"):
        found["gen_ai.request.encoding_formats"] = [encoding]
    return found


def build_span_attributes(
    record: ExchangeRecord, facts: AnswerFacts, usage: Mapping[str, Any], model: str, operation: str
) -> Attributes:
    """The outcome of a request; `model` is the name that the expert was sent."""
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.request.model": model,
        "gen_ai.request.stream": record.stream or None,
        "gen_ai.response.model": facts.model,
        "gen_ai.response.id": facts.response_id,
        "gen_ai.response.finish_reasons": facts.finish_reasons,
        "gen_ai.response.time_to_first_chunk": compute_first_chunk_seconds(record),
        "gen_ai.conversation.id": record.session[:MAX_CHARS],
        **_build_usage_attributes(record, usage),
        "http.response.status_code": record.status or None,
        "ir3de.request_id": record.request_id[:MAX_CHARS],
        "ir3de.asked": record.asked[:MAX_CHARS],
        **{f"ir3de.{name}": getattr(record, name) for name in _SAME_NAME},
        "ir3de.fallbacks": len(record.fallbacks),
        "ir3de.fallback_reasons": [f"{giver}: {reason}" for giver, _, reason in record.fallbacks[:10]],
        "ir3de.retries": record.retries or None,
        "ir3de.resends": record.resends or None,
        "ir3de.ttft_seconds": record.first_seconds,
        **build_decision_attributes(record),
    }


def build_decision_attributes(record: ExchangeRecord) -> Attributes:
    """The decision of the router."""
    decision = record.decision
    chosen = {
        "ir3de.router": record.router,
        "ir3de.decided": record.decided,
        "ir3de.reason": record.instead.text,
        "ir3de.instead": record.instead.kind,
    }
    if (trial := record.trial) is not None:
        chosen |= {"ir3de.candidate": trial.candidate, "ir3de.candidate_expert": trial.candidate_expert}
        chosen["ir3de.arm"] = record.arm
    if decision is None:
        return chosen
    return {
        **chosen,
        "ir3de.confidence": record.confidence,
        "ir3de.expected_score": record.expected_score,
        "ir3de.margin": record.margin,
        "ir3de.abstained": decision.abstained,
        "ir3de.consulted": decision.consulted or None,
        "ir3de.chat_why": None if record.reason is None else record.reason.why,
        "ir3de.switch": None if record.switch is None else record.switch.outcome,
    }


def _build_usage_attributes(record: ExchangeRecord, usage: Mapping[str, Any]) -> Attributes:
    cached = [(f"{name}_tokens_details", "cached_tokens") for name in ("prompt", "input")]
    reasoning = [(f"{name}_tokens_details", "reasoning_tokens") for name in ("completion", "output")]
    return {
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.output_tokens": record.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": _count(usage, *cached, ("cache_read_input_tokens",)),
        "gen_ai.usage.cache_creation.input_tokens": _count(usage, ("cache_creation_input_tokens",)),
        "gen_ai.usage.reasoning.output_tokens": _count(usage, *reasoning),
    }


def compute_first_chunk_seconds(record: ExchangeRecord) -> float | None:
    """From the request to the expert to the first piece of its stream."""
    if not record.stream or record.first_seconds is None or record.asked_seconds is None:
        return None
    return max(0.0, record.first_seconds - record.asked_seconds)


def find_error_type(record: ExchangeRecord) -> str | None:
    """Why a request failed, in one of a few words; None if it did not. A client that disconnects is not an error."""
    return None if record.outcome in ("ok", "cancelled") else record.error or record.outcome


def drop_empty(attributes: Mapping[str, Any]) -> Attributes:
    """The attributes that have a value."""
    return {name: value for name, value in attributes.items() if value not in (None, "", [])}


def _count(usage: Mapping[str, Any], *paths: tuple[str, ...]) -> int | None:
    """The first number that stands at one of these places."""
    for path in paths:
        found: Any = usage
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 1 << 53:
            return found
    return None


@lru_cache(maxsize=4096)
def find_provider_of_host(host: str) -> str | None:
    """The provider that a well-known host belongs to.

    >>> find_provider_of_host("api.openai.com"), find_provider_of_host("team.openai.azure.com")
    ('openai', 'azure.ai.openai')
    >>> find_provider_of_host("api.openai.com.example.org") is None
    True
    """
    host = host.lower().rstrip(".")
    if host.startswith("bedrock") and host.endswith((".amazonaws.com", ".api.aws")):
        return "aws.bedrock"
    for provider, hosts in _HOSTS.items():
        if any(host == known or (known[0] in ".-" and host.endswith(known)) for known in hosts):
            return provider
    return None


def find_provider_of_headers(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The kind of server that the headers of an answer name.

    >>> find_provider_of_headers([(b"server", b"llama.cpp")])
    'llama.cpp'
    """
    named = " ".join(value[:100].decode("latin-1").lower() for name, value in headers if name == b"server")
    return next((server for server in _SERVERS if server in named), None)


@dataclass(slots=True)
class AnswerFacts:
    """The model, the id and the finish reasons of an answer. Its text is not read.

    >>> facts = AnswerFacts()
    >>> facts.read({"id": "chatcmpl-1", "model": "law-7b", "choices": [{"finish_reason": "stop"}]})
    >>> facts
    AnswerFacts(model='law-7b', response_id='chatcmpl-1', finish_reasons=['stop'])
    """

    model: str = ""
    response_id: str = ""
    finish_reasons: list[str] = field(default_factory=list)

    def read(self, answer: Mapping[str, Any]) -> None:
        """Read a whole answer of any API, or one event of a stream."""
        inner = answer.get("response", answer.get("message"))  # responses and messages put it there in a stream
        if isinstance(inner, dict):
            self.read(inner)
        self.model = _read_text(answer.get("model")) or self.model
        if not isinstance(inner, dict):
            self.response_id = _read_text(answer.get("id")) or self.response_id
        self._read_end(answer)

    def read_events(self, head: bytes, tail: bytes) -> None:
        """Read the first and the last events of a stream."""
        first, last = ([event for event in read_events(part) if event.data is not None] for part in (head, tail))
        for event in first[:1] + last[-MAX_FINAL_EVENTS:]:
            if (found := event.parse()) is not None:  # else it is cut off, or not JSON
                self.read(found)

    def _read_end(self, answer: Mapping[str, Any]) -> None:
        choices, delta = answer.get("choices"), answer.get("delta")
        if isinstance(choices, list):
            for choice in choices[:MAX_FINAL_EVENTS]:
                self._add_reason(choice.get("finish_reason") if isinstance(choice, dict) else None)
        self._add_reason(answer.get("stop_reason"))
        if isinstance(delta, dict):
            self._add_reason(delta.get("stop_reason"))
        if answer.get("object") == "response" and answer.get("status") in ("completed", "incomplete", "failed"):
            details = answer.get("incomplete_details")
            self._add_reason(details.get("reason") if isinstance(details, dict) else answer["status"])

    def _add_reason(self, reason: object) -> None:
        if isinstance(reason, str) and reason:
            self.finish_reasons.append(reason[:MAX_ANSWER_CHARS])


def _read_text(value: object) -> str:
    return value[:MAX_ANSWER_CHARS] if isinstance(value, str) else ""


class GenAiMetrics:
    """The histograms, which are recorded once a request, at its end."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("ir3de_gateway")
        self._histograms = {
            name: meter.create_histogram(name, unit, text, explicit_bucket_boundaries_advisory=list(bounds))
            for name, (unit, bounds, text) in _HISTOGRAMS.items()
        }
        self._models: set[str] = set()

    def record_failure(self, seconds: float, attributes: Attributes) -> None:
        """Record a request to an expert that failed."""
        self._histograms["gen_ai.client.operation.duration"].record(seconds, attributes)

    def record(
        self, record: ExchangeRecord, known: Attributes, server: Attributes, *, has_failed: bool = False
    ) -> None:
        """Record one request. `known` are the attributes of its span, `server` is the address of its expert.

        If the last expert `has_failed`, its failure has been recorded before.
        """
        shared = {name: known[name] for name in ("gen_ai.operation.name", "gen_ai.provider.name")}
        if record.model:  # the client's own name for the model is not bounded
            shared["gen_ai.request.model"] = record.model
        if model := known.get("gen_ai.response.model"):
            shared["gen_ai.response.model"] = self._limit(model)
        error = find_error_type(record)
        failed = {} if error is None else {"error.type": error}
        if record.upstream_seconds is not None:
            self._record_client(record, known, {**shared, **server}, None if has_failed else failed)
        self._record_server(record, shared, failed)

    def _record_client(
        self, record: ExchangeRecord, known: Attributes, shared: Attributes, failed: Attributes | None
    ) -> None:
        seconds, first = record.upstream_seconds, compute_first_chunk_seconds(record)
        if seconds is not None and failed is not None:
            self._histograms["gen_ai.client.operation.duration"].record(seconds, {**shared, **failed})
        if first is not None:
            self._histograms["gen_ai.client.operation.time_to_first_chunk"].record(first, shared)
        for kind in ("input", "output"):
            if (tokens := known.get(f"gen_ai.usage.{kind}_tokens")) is not None:
                usage = {**shared, "gen_ai.token.type": kind}
                self._histograms["gen_ai.client.token.usage"].record(tokens, usage)

    def _record_server(self, record: ExchangeRecord, shared: Attributes, failed: Attributes) -> None:
        first, tokens, total = record.first_seconds, record.completion_tokens, record.total_seconds
        self._histograms["gen_ai.server.request.duration"].record(total, {**shared, **failed})
        if record.outcome != "ok" or first is None:
            return
        self._histograms["gen_ai.server.time_to_first_token"].record(first, shared)
        if record.stream and tokens is not None and tokens > 1:
            each = (total - first) / (tokens - 1)
            self._histograms["gen_ai.server.time_per_output_token"].record(each, shared)

    def _limit(self, model: str) -> str:
        if model not in self._models:
            if len(self._models) >= MAX_MODELS:
                return "other"
            self._models.add(model)
        return model
