"""ext-proc: the router as an external processor of Envoy."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from importlib.util import find_spec

import click

from ir3de.cli.plugins import FAINT, Output, facts, line, output_options
from ir3de.errors import MissingExtraError
from ir3de_gateway.config.experts import RESERVED

_is_header = re.compile(r"[a-z0-9][a-z0-9_-]*").fullmatch


@click.command("ext-proc")
@click.option("--router", required=True, metavar="FOLDER", help="The router: a folder with what `ir3de fit` saved.")
@click.option(
    "--listen", default="127.0.0.1:9002", show_default=True, help="Address and port, or unix:/path/of/socket."
)
@click.option("--metrics", metavar="ADDRESS", help="Address and port for Prometheus, such as 127.0.0.1:9003.")
@click.option("--model", "models", multiple=True, metavar="EXPERT=NAME", help="The model or route of an expert.")
@click.option("--header", default="x-ir3de-expert", show_default=True, help="The header that Envoy's routes match.")
@click.option("--rewrite-model", is_flag=True, help="Also put the expert's model into the body.")
@click.option("--also-route", multiple=True, metavar="NAME", help="A model that asks for routing, besides `auto`.")
@click.option("--default", metavar="EXPERT", help="The expert where the router abstains, instead of the router's own.")
@click.option("--threshold", type=click.FloatRange(0, 1), help="Abstain below this confidence.")
@click.option("--closed", is_flag=True, help="Refuse requests that cannot be routed, instead of letting them pass.")
@click.option(
    "--body-bytes", type=click.IntRange(1_000, 1 << 30), default=4_000_000, show_default=True, help="Longest body."
)
@output_options
def ext_proc(
    router: str,
    listen: str,
    metrics: str | None,
    models: tuple[str, ...],
    header: str,
    rewrite_model: bool,
    also_route: tuple[str, ...],
    default: str | None,
    threshold: float | None,
    closed: bool,
    body_bytes: int,
    out: Output,
) -> None:
    """Route inside Envoy: an external processor (ext_proc) that reads requests and sets a header.

    Envoy, or Envoy AI Gateway, sends each request here, gets the header back, and proxies by it at its own speed.
    Chat completions, completions, responses and messages are read. Requests that cannot be routed pass, with the
    header x-ir3de-why. A new router in the folder is taken within ten seconds, or on SIGHUP.

    \b
    Examples:
      ir3de ext-proc --router router
      ir3de ext-proc --router router --listen 0.0.0.0:9002 --rewrite-model --model law=llama-law-8b
    """
    if find_spec("google.protobuf") is None:
        raise MissingExtraError("protobuf", "envoy", "an external processor of Envoy", "ir3de-gateway")
    from ir3de_gateway.integrations.decider import Decider, Settings
    from ir3de_gateway.integrations.ext_proc import Rules
    from ir3de_gateway.integrations.ext_proc_server import serve

    if _is_header(header) is None:
        raise click.BadParameter(
            f"{header!r} is not a name of a header: use small letters, digits and -", param_hint="header"
        )
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    names = frozenset((*RESERVED, *also_route))
    decider = Decider(router, Settings(dict(map(_split, models)), default, threshold, names))
    rules = Rules(header, rewrite_model, not closed, body_bytes)

    def announce(address: str) -> None:
        out.json({"listen": address, "router": decider.digest, "experts": list(decider.experts)})
        rows = [
            ("listens on", address),
            ("router", f"{router} ({decider.digest[:12]})"),
            ("experts", ", ".join(decider.experts)),
            ("sets", f"{header} and model" if rewrite_model else header),
            ("what cannot be routed", "is refused" if closed else "passes, with x-ir3de-why"),
        ]
        out.result(facts(rows), line(("Ctrl-C ends it after the open requests", FAINT)))

    run = asyncio.run
    if sys.platform != "win32":
        import uvloop

        run = uvloop.run
    run(serve(decider, rules, listen, None if metrics is None else _parse_address(metrics), announce))


def _split(given: str) -> tuple[str, str]:
    expert, found, name = given.partition("=")
    if not (found and expert and name):
        raise click.BadParameter(f"{given!r} must be EXPERT=NAME, such as law=llama-law-8b", param_hint="--model")
    return expert, name


def _parse_address(given: str) -> tuple[str, int]:
    host, _, port = given.rpartition(":")
    if not host or not port.isdigit():
        raise click.BadParameter(
            f"{given!r} must be an address and a port, such as 127.0.0.1:9003", param_hint="--metrics"
        )
    return host, int(port)
