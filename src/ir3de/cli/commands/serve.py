"""serve: the gateway, from a file, from the command line, or from nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ir3de.cli.gateway_options import (
    config_argument,
    described,
    expert_option,
    need_gateway,
    show_experts,
    show_findings,
)
from ir3de.cli.options import output_options
from ir3de.cli.output import FAINT, Output, facts, json_text, styled
from ir3de.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ir3de.gateway.config.load import Finding, Source
    from ir3de.gateway.config.models import Config
    from ir3de.gateway.config.template import Endpoint
    from ir3de.gateway.validation import RouterFacts

INTERRUPTED = 130
QUESTION = '{"model": "auto", "messages": [{"role": "user", "content": "Can my landlord keep the deposit?"}]}'


@click.command()
@config_argument
@click.option("--router", metavar="FOLDER", help="The router: a folder, or an address such as s3://bucket/router.")
@expert_option
@click.option("--host", help="Where to listen.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65_535), help="0 takes a free one.  [default: 8100]")
@click.option("--workers", type=click.IntRange(1, 256), help="Processes that serve.  [default: 1]")
@click.option("--open", "is_open", is_flag=True, help="Serve other machines without a key.")
@click.option("--dry-run", is_flag=True, help="Check everything, show it, and do not serve.")
@click.option("--demo", is_flag=True, help="Serve a small router and local experts that need nothing else.")
@output_options
@click.pass_context
def serve(
    context: click.Context,
    /,
    file: str | None,
    router: str | None,
    experts: list[Endpoint],
    is_open: bool,
    dry_run: bool,
    demo: bool,
    out: Output,
    **server: Any,
) -> None:
    """Serve the experts behind one OpenAI-compatible endpoint.

    Clients say model="auto" and each prompt goes to the right expert; a page at / shows why. FILE is $IR3DE_CONFIG if
    it is not given, else ir3de.yaml; with --router and --expert no file is needed.

    Ctrl-C lets requests in flight end; a second one does not.

    \b
    Examples:
      ir3de serve --demo
      ir3de serve ir3de.yaml --port 8080 --workers 4
      ir3de serve --router router --expert law=http://127.0.0.1:8001/v1 --expert maths=http://127.0.0.1:8002/v1#qwen
    """
    if demo and (file or router or experts):
        raise click.UsageError("--demo brings its own router and experts: leave the file, --router and --expert out")
    need_gateway(local=demo)
    overrides = _overrides(router, experts, server, is_open=is_open)
    with _demo(overrides, out) if demo else _source(file, overrides) as source:
        checked = _check(source)
        if dry_run:
            _show(checked, out)
        if errors := [finding for finding in checked.findings if finding.level == "error"]:
            raise InputError("; ".join(map(str, errors)))
        if dry_run:
            out.result(styled(("all is well: this can be served", "green")))
        elif not _serve(source, checked, out):
            context.exit(INTERRUPTED)


class Checked(NamedTuple):
    """What can be known before server."""

    config: Config
    router: RouterFacts | None
    findings: list[Finding]


def _check(source: Source) -> Checked:
    from ir3de.gateway import validation

    settings, changes = validation.apply_admin_state(source.read(), source.path)
    router = validation.read_router_facts(settings.router.path)
    return Checked(settings, router, [*changes, *validation.check_consistency(settings, router)])


def _show(checked: Checked, out: Output) -> None:
    out.json(described(*checked))
    if not out.as_json:
        show_experts(checked.config, checked.router, out)
        show_findings(checked.findings, out)


def _serve(source: Source, checked: Checked, out: Output) -> bool:
    from ir3de.gateway import server

    def ready(address: str) -> None:
        if out.as_json:
            click.echo(_started(address, checked))
        else:
            _welcome(address, checked, out)

    for finding in checked.findings:
        out.warn(str(finding))
    return server.serve(source, ready=ready)


@contextmanager
def _source(file: str | None, overrides: dict[str, Any]) -> Iterator[Source]:
    """The file, and what the command line says over it; no file where the command line says enough."""
    from ir3de.gateway.config.load import Source, find_config_file

    enough = file is None and "router" in overrides and "experts" in overrides
    yield Source(None if enough else find_config_file(file), overrides)


@contextmanager
def _demo(overrides: dict[str, Any], out: Output) -> Iterator[Source]:
    """Local experts, as long as the gateway serves."""
    from ir3de.gateway.config.load import Source, merge_overrides
    from ir3de.gateway.local.llama_cpp import demo

    with demo(out.remark) as config:
        yield Source(None, merge_overrides(config.model_dump(mode="json"), overrides))


def _overrides(router: str | None, experts: list[Endpoint], server: dict[str, Any], *, is_open: bool) -> dict[str, Any]:
    """What the command line says, in the shape of the file."""
    overrides: dict[str, Any] = {}
    if router is not None:
        overrides["router"] = {"path": router if "://" in router else str(Path(router).expanduser().absolute())}
    if experts:
        overrides["experts"] = [{key: value for key, value in one._asdict().items() if value} for one in experts]
    settings = {key: value for key, value in server.items() if value is not None} | ({"open": True} if is_open else {})
    return overrides | ({"server": settings} if settings else {})


def _started(address: str, checked: Checked) -> str:
    settings, router, _ = checked
    names = [expert.name for expert in settings.experts]
    digest = None if router is None else router.digest
    return json_text({"address": address, "experts": names, "router": digest, "workers": settings.server.workers})


def _welcome(address: str, checked: Checked, out: Output) -> None:
    """Where it is, who answers, and how to ask; on standard error, because the access log has standard output."""
    from rich.panel import Panel

    from ir3de.gateway.config.load import list_client_variables
    from ir3de.gateway.config.models import read_variable

    settings, router, _ = checked
    console = out.progress_console
    if not console.is_terminal or out.quiet:
        click.echo(f"serving on {address}", err=True)
        return
    key = next((name for name in list_client_variables(settings) if read_variable(name)), None)
    digest = "" if router is None else f"  {router.digest[:12]}"
    rows: list[tuple[str, RenderableType]] = [
        ("address", styled((f"{address}/v1", "bold cyan"))),
        ("page", styled((f"{address}/", "cyan"))),
        ("experts", ", ".join(expert.name for expert in settings.experts)),
        ("router", styled((settings.router.path, ""), (digest, FAINT))),
        (
            "keys",
            f"clients need the one in {key}"
            if key
            else "none: " + ("anybody may ask" if settings.server.open else "only this machine may ask"),
        ),
    ]
    if settings.routing.shadow:
        rows.append(("shadow", styled((f"everything goes to {settings.routing.shadow}", "yellow"))))
    console.print(Panel(facts(rows), title="IR3DE", title_align="left", border_style=FAINT, expand=False))
    authorization = f' -H "authorization: Bearer ${key}"' if key else ""
    console.print(
        f"curl {address}/v1/chat/completions{authorization} -H 'content-type: application/json' -d '{QUESTION}'",
        soft_wrap=True,
    )
    console.print(styled(("Ctrl-C stops", FAINT)))
