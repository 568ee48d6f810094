"""GET /v1/models, /livez, /readyz, /health and /version."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ir3de import __version__
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.config.experts import RESERVED
from ir3de_gateway.gateway import Gateway
from ir3de_gateway.keys.client_key import ClientKey


def _get_gateway(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


def _describe_model(name: str, gateway: Gateway) -> dict[str, object]:
    return {"id": name, "object": "model", "created": gateway.opened_at, "owned_by": "ir3de"}


async def list_models(request: Request) -> Response:
    """`auto`, and every expert by name."""
    gateway = _get_gateway(request)
    key: ClientKey = request.state.key
    names = [*RESERVED, *filter(key.may_ask, gateway.live.snapshot.experts)]
    return JSONResponse({"object": "list", "data": [_describe_model(name, gateway) for name in names]})


async def show_model(request: Request) -> Response:
    """`auto`, or one expert."""
    gateway, name = _get_gateway(request), request.path_params["name"]
    key: ClientKey = request.state.key
    if name not in RESERVED and (name not in gateway.live.snapshot.experts or not key.may_ask(name)):
        raise ApiError(404, f"no model {name[:200]!r}: GET /v1/models lists them", "model_not_found", "model")
    return JSONResponse(_describe_model(name, gateway))


async def show_liveness(request: Request) -> Response:
    """The process is alive."""
    return JSONResponse({"status": "ok"})


async def show_readiness(request: Request) -> Response:
    """Whether an expert can be asked: at least one circuit breaker is not open."""
    health = _describe_health(_get_gateway(request))
    return JSONResponse({"status": health["status"]}, 200 if health["status"] != "unavailable" else 503)


async def show_health(request: Request) -> Response:
    """The circuit breaker of each expert; the status is always 200."""
    return JSONResponse(_describe_health(_get_gateway(request)))


def _describe_health(gateway: Gateway) -> dict[str, object]:
    snapshot = gateway.live.snapshot
    experts = {name: expert.breaker.state for name, expert in snapshot.experts.items()}
    states = set(experts.values())
    # without their addresses, which are not for everybody
    replicas = {
        name: [replica.state for replica in expert.replicas]
        for name, expert in snapshot.experts.items()
        if expert.replicas
    }
    is_degraded = states & {"open", "cooling"} or any({"open", "down"} & set(found) for found in replicas.values())
    status = "unavailable" if states == {"open"} else "degraded" if is_degraded else "ok"
    shown = {"replicas": replicas} if replicas else {}
    return {"status": status, "router": snapshot.digest[:16], "experts": experts, **shown}


async def show_version(request: Request) -> Response:
    return JSONResponse({"name": "ir3de", "version": __version__, "router": _get_gateway(request).live.snapshot.digest})


routes = [
    Route("/v1/models", list_models),
    Route("/v1/models/{name:path}", show_model),
    Route("/livez", show_liveness),
    Route("/readyz", show_readiness),
    Route("/health", show_health),
    Route("/version", show_version),
]
