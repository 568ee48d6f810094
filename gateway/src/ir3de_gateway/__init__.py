"""One OpenAI-compatible endpoint in front of many experts. docs/gateway.md is its manual.

`http/access` checks host name, origin and key of a request, and gives it an id. `exchange` then has its whole way, and
calls these:

    requests/client       reads the body within its limits, and notices when the client disconnects
    requests/json_body    parses the JSON, and keeps every byte so that single fields can be changed
    requests/prompt       extracts the text to route on, and what the request needs
    requests/choice       decides which experts may answer, and in which order they are asked
    requests/forwarding   builds the request that an expert gets
    wire/                 the formats of the APIs: turns, the end of a stream, usage, errors
    translation/          requests and answers of Anthropic's API as those of OpenAI's, and the reverse
    experts/upstream      one exchange with an expert, and its timeouts; also circuit breakers and concurrency limits
    transport/            sends requests to experts, over HTTP/1.1 or HTTP/2
    provenance            headers and a field of the body that say which expert answered, and why
    hooks/                the operator's own callables before a request and after its answer
    requests/answer_cache answers that are given again to equal requests
    exchange_record       what metrics, logs and traces (telemetry/) need to know

`exchange/passthrough` has the way of requests that are not routed: files, images, stored responses and the like. Their
formats are in `wire/passthrough`, uploads in `requests/upload`.

`experts/snapshot` holds router, experts and settings, and is their only owner. They are swapped in one step when one of
them changes:

    admin/follow          checks a folder or an address for a new router
    admin/routes          the /admin endpoints; `changes` says which changes are possible
    admin/administration  applies one change at a time, and picks up those of other workers
    admin/fit_process     fits a changed router, in a process of its own
    admin/fetching        fetches a router from an address, within limits
    admin/bounded         runs what may hang in threads that never keep the gateway from stopping
    admin/state           keeps the changes on disk

`app` assembles the ASGI application, `server` runs it. What its worker processes share is in `workers/`.
"""

from typing import TYPE_CHECKING

from ir3de.serving import export_lazily

if TYPE_CHECKING:
    from ir3de_gateway.app import create_app
    from ir3de_gateway.config.models import Config
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
            "config.models": "Config",
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
