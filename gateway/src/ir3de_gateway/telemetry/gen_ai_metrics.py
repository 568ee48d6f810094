"""OpenTelemetry's metrics for generative AI: of the experts, whose client the gateway is, and of the gateway itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ir3de_gateway.telemetry.gen_ai import Attributes, compute_first_chunk_seconds, find_error_type

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

    from ir3de_gateway.exchange_record import ExchangeRecord

MAX_MODELS = 200  # experts choose the names of their models: further ones are `other`

# the boundaries that the conventions name
SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
FIRST_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
TOKEN_SECONDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)


class GenAiMetrics:
    """The instruments. They are recorded once a request, at its end."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("ir3de_gateway")

        def create(name: str, unit: str, description: str, boundaries: tuple[float, ...]) -> Any:
            return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=list(boundaries))

        self._operation = create(
            "gen_ai.client.operation.duration", "s", "From asking an expert to the end of its answer.", SECONDS
        )
        self._first_chunk = create(
            "gen_ai.client.operation.time_to_first_chunk",
            "s",
            "From asking an expert to the first piece of its stream.",
            FIRST_SECONDS,
        )
        self._tokens = create("gen_ai.client.token.usage", "{token}", "Tokens, as experts count them.", TOKENS)
        self._request = create(
            "gen_ai.server.request.duration", "s", "From a request to the last byte of its answer.", SECONDS
        )
        self._first_token = create(
            "gen_ai.server.time_to_first_token", "s", "From a request to the first byte of its answer.", FIRST_SECONDS
        )
        self._per_token = create(
            "gen_ai.server.time_per_output_token", "s", "Time per token of a stream after the first.", TOKEN_SECONDS
        )
        self._models: set[str] = set()

    def record_failure(self, seconds: float, attributes: Attributes) -> None:
        """Record an expert that was asked and failed. The request may go on to others."""
        self._operation.record(seconds, attributes)

    def record(
        self, record: ExchangeRecord, known: Attributes, server: Attributes, *, has_failed: bool = False
    ) -> None:
        """Record one request; `known` are the attributes it shares with its span, `server` is where its expert is.

        If whoever was asked last `has_failed`, that has been recorded before.
        """
        shared = {
            "gen_ai.operation.name": known["gen_ai.operation.name"],
            "gen_ai.provider.name": known["gen_ai.provider.name"],
        }
        if record.model:  # what a client asks for is not bounded, so it is no attribute
            shared["gen_ai.request.model"] = record.model
        if model := known.get("gen_ai.response.model"):
            shared["gen_ai.response.model"] = self._limit(model)
        self._record_client(record, known, {**shared, **server}, has_failed=has_failed)
        self._record_server(record, shared)

    def _record_client(
        self, record: ExchangeRecord, known: Attributes, shared: Attributes, *, has_failed: bool
    ) -> None:
        if record.upstream_seconds is None:  # nobody was asked
            return
        if not has_failed:
            error = find_error_type(record)
            more = {} if error is None else {"error.type": error}
            self._operation.record(record.upstream_seconds, {**shared, **more})
        if (seconds := compute_first_chunk_seconds(record)) is not None:
            self._first_chunk.record(seconds, shared)
        for kind in ("input", "output"):
            if (tokens := known.get(f"gen_ai.usage.{kind}_tokens")) is not None:
                self._tokens.record(tokens, {**shared, "gen_ai.token.type": kind})

    def _record_server(self, record: ExchangeRecord, shared: Attributes) -> None:
        error, first, tokens = find_error_type(record), record.first_seconds, record.completion_tokens
        self._request.record(record.total_seconds, shared if error is None else {**shared, "error.type": error})
        if record.outcome != "ok" or first is None:
            return
        self._first_token.record(first, shared)
        if record.stream and tokens is not None and tokens > 1:
            self._per_token.record((record.total_seconds - first) / (tokens - 1), shared)

    def _limit(self, model: str) -> str:
        if model not in self._models:
            if len(self._models) >= MAX_MODELS:
                return "other"
            self._models.add(model)
        return model
