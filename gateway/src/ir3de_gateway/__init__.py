"""One OpenAI-compatible endpoint in front of many experts. docs/gateway.md is its manual.

A request passes the stages of `stages/` in their order: accept, read, choose, ask, relay; `run` calls them, and records
what happened. No modules import each other, for types neither. The stages call these:

    requests/             what a request holds: its JSON, its form, its texts, its controls; the client's connection
    wire/                 the formats of the APIs: turns, the end of a stream, usage, errors
    translation/          requests and answers of Anthropic's API as those of OpenAI's, and the reverse
    experts/              experts and their replicas; `retry` has the rule for retrying, falling back and cooling down
    transport/            sends requests to experts, over HTTP/1.1 or HTTP/2
    hooks/                the operator's own callables before a request and after its answer
    keys/                 the keys of clients, and what they have used
    exchange_record       what metrics, logs and traces (telemetry/) need

`experts/snapshot` holds router, experts and settings, and is their only owner. They are swapped in one step when one of
them changes:

    admin/follow          checks a folder or an address for a new router
    admin/routes          the /admin endpoints; `changes` lists the possible changes
    admin/administration  applies one change at a time, and picks up those of other workers
    admin/fit_process     fits a changed router, in a process of its own
    admin/fetching        fetches a router from an address, within limits
    admin/bounded         runs what may hang in threads that never keep the gateway from stopping
    admin/state           keeps the changes on disk
    admin/candidate       loads, stops and promotes a candidate router
    admin/versions        keeps the routers that served, for a rollback

`http/` has the endpoints that need no expert: the page, /v1/route, /v1/models and the like. `app` assembles the ASGI
application, `server` runs it. What its worker processes share is in `workers/`.
"""

from typing import TYPE_CHECKING

from ir3de.serving import export_lazily

if TYPE_CHECKING:
    from ir3de_gateway.app import create_app
    from ir3de_gateway.config.document import Config
    from ir3de_gateway.gateway import Gateway
    from ir3de_gateway.hooks.hook import AfterHook, BeforeHook, HookAnswer, HookRefusal, HookRequest, HookVerdict
    from ir3de_gateway.local import local_model
    from ir3de_gateway.server import application, serve
    from ir3de_gateway.transport import Destination, UpstreamCall
    from ir3de_gateway.transport.pool import HttpTransport
else:
    __getattr__, __dir__ = export_lazily(
        __name__,
        {
            "app": "create_app",
            "config.document": "Config",
            "transport": "Destination UpstreamCall",
            "transport.pool": "HttpTransport",
            "gateway": "Gateway",
            "hooks.hook": "AfterHook BeforeHook HookAnswer HookRefusal HookRequest HookVerdict",
            "local": "local_model",
            "server": "application serve",
        },
    )

__all__ = [
    "AfterHook",
    "BeforeHook",
    "Config",
    "Destination",
    "Gateway",
    "HookAnswer",
    "HookRefusal",
    "HookRequest",
    "HookVerdict",
    "HttpTransport",
    "UpstreamCall",
    "application",
    "create_app",
    "local_model",
    "serve",
]
