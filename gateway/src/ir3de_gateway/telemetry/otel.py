"""Whether OpenTelemetry is wanted, and by whom: its own variables decide (OTEL_*), or the program around it."""

from __future__ import annotations

import logging
import os
import sys
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ir3de import __version__
from ir3de.serving import name_extra
from ir3de_gateway.telemetry.tracing import Tracing

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import TracerProvider

_log = logging.getLogger("ir3de.gateway")


def create_tracing() -> Tracing | None:
    """Spans and metrics where OTEL_* asks for them, or where the embedding program has set up a provider; else None."""
    if _read("OTEL_SDK_DISABLED") == "true":
        return None
    spans, meters = _find_tracer_provider(), _find_meter_provider()
    owned: list[Any] = []
    try:
        if spans is None and (exporter := _choose_exporter("traces")):
            owned.append(spans := _create_tracer_provider(exporter))
        if meters is None and (exporter := _choose_exporter("metrics")):
            owned.append(meters := _create_meter_provider(exporter))
    except ImportError as error:
        _log.warning("no telemetry: %s. Unset the OTEL_* variables, or %s", error, name_extra("otel", "ir3de-gateway"))
    return None if spans is None and meters is None else Tracing(spans, meters, owned=owned)


def _find_tracer_provider() -> TracerProvider | None:
    """The provider of the embedding program."""
    if "opentelemetry.trace" not in sys.modules:  # nobody can have set one up
        return None
    from opentelemetry import trace

    found = trace.get_tracer_provider()
    return None if isinstance(found, trace.ProxyTracerProvider) else found


def _find_meter_provider() -> MeterProvider | None:
    if "opentelemetry.metrics" not in sys.modules:
        return None
    from opentelemetry import metrics
    from opentelemetry.metrics import NoOpMeterProvider

    found = metrics.get_meter_provider()
    is_proxy = type(found).__name__ == "_ProxyMeterProvider"  # it has no public name
    return None if is_proxy or isinstance(found, NoOpMeterProvider) else found


def _choose_exporter(signal: str) -> str:
    """The exporter that the variables name for traces or metrics; empty if none is wanted."""
    name = _read(f"OTEL_{signal.upper()}_EXPORTER")
    endpoint = _read(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT") or _read("OTEL_EXPORTER_OTLP_ENDPOINT")
    return "" if name == "none" else name or ("otlp" if endpoint else "")


def _create_tracer_provider(exporter: str) -> TracerProvider:
    from opentelemetry.sdk.trace import TracerProvider as SdkProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    make = _load_exporter("traces", exporter)
    provider = SdkProvider(resource=_describe_resource())
    provider.add_span_processor(BatchSpanProcessor(make()))
    return provider


def _create_meter_provider(exporter: str) -> MeterProvider:
    from opentelemetry.sdk.metrics import MeterProvider as SdkProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    make = _load_exporter("metrics", exporter)
    return SdkProvider([PeriodicExportingMetricReader(make())], resource=_describe_resource())


def _load_exporter(signal: str, name: str) -> Any:
    if name == "otlp":
        protocol = _read(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL") or _read("OTEL_EXPORTER_OTLP_PROTOCOL")
        name = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
    found = list(entry_points(group=f"opentelemetry_{signal}_exporter", name=name))
    if not found:
        raise ImportError(f"OpenTelemetry has no exporter {name!r} for {signal} here")
    return found[0].load()


def _describe_resource() -> Resource:
    """Who sends: each worker is an instance of its own, so that their numbers are added up and not mixed."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    ours = {
        "service.name": "ir3de",
        "service.version": __version__,
        "service.instance.id": str(uuid4()),
        **OTELResourceDetector().detect().attributes,  # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win
    }
    return Resource.create(ours)


def _read(variable: str) -> str:
    return os.environ.get(variable, "").strip().lower()
