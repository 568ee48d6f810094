"""serve: start the gateway from a file, from options, or as a demonstration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.gateway_options import (
    CheckedConfig,
    check_config,
    config_argument,
    expert_option,
    need_gateway,
    show_checked,
)
from ir3de.cli.options import output_options
from ir3de.cli.output import FAINT, Output, facts, json_text, line
from ir3de.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ir3de.gateway.config.load import Source
    from ir3de.gateway.config.template import Endpoint

INTERRUPTED_EXIT_CODE = 130
QUESTION = '{"model": "auto", "messages": [{"role": "user", "content": "Can my landlord keep the deposit?"}]}'


@click.command()
@config_argument
@click.option("--router", metavar="FOLDER", help="The router: a folder, or an address such as s3://bucket/router.")
@expert_option
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen on; 0 picks a free one.  [default: 8100]")
@click.option("--workers", type=click.IntRange(1, 256), help="Number of processes.  [default: 1]")
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

    Clients send model="auto" and each prompt goes to the right expert; a page at / shows why. Without FILE, the
    gateway reads $IR3DE_CONFIG or ir3de.yaml; with --router and --expert it needs no file.

    Ctrl-C lets running requests finish; a second Ctrl-C stops at once.

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
    with _open_source(file, overrides, out, demo=demo) as source:
        checked = check_config(source.read(), source.path)
        if dry_run:
            show_checked(checked, out)
        if checked.errors:
            raise InputError("; ".join(checked.errors))
        if dry_run:
            out.result(line(("all is well: this can be served", "green")))
        elif not _serve(source, checked, out):
            context.exit(INTERRUPTED_EXIT_CODE)


def _serve(source: Source, checked: CheckedConfig, out: Output) -> bool:
    from ir3de.gateway import server

    def ready(address: str) -> None:
        config, router, _ = checked
        if not out.as_json:
            _welcome(address, checked, out)
            return
        experts, digest = [expert.name for expert in config.experts], None if router is None else router.digest
        started = {"address": address, "experts": experts, "router": digest, "workers": config.server.workers}
        click.echo(json_text(started))

    for finding in checked.findings:
        out.warn(str(finding))
    return server.serve(source, ready=ready)


@contextmanager
def _open_source(file: str | None, overrides: dict[str, Any], out: Output, *, demo: bool) -> Iterator[Source]:
    """The configuration file with the overrides; no file if they suffice. With `demo`, local experts run meanwhile."""
    from ir3de.gateway.config.load import Source, find_config_file, merge_overrides

    if demo:
        from ir3de.gateway.local.llama_cpp import demo as run_local_experts

        with run_local_experts(out.remark) as config:
            yield Source(None, merge_overrides(config.model_dump(mode="json"), overrides))
    else:
        enough = file is None and "router" in overrides and "experts" in overrides
        yield Source(None if enough else find_config_file(file), overrides)


def _overrides(router: str | None, experts: list[Endpoint], server: dict[str, Any], *, is_open: bool) -> dict[str, Any]:
    """The options as settings of the configuration."""
    overrides: dict[str, Any] = {}
    if router is not None:
        overrides["router"] = {"path": router if "://" in router else str(Path(router).expanduser().absolute())}
    if experts:
        overrides["experts"] = [{key: value for key, value in one._asdict().items() if value} for one in experts]
    settings = {key: value for key, value in server.items() if value is not None} | ({"open": True} if is_open else {})
    return overrides | ({"server": settings} if settings else {})


def _welcome(address: str, checked: CheckedConfig, out: Output) -> None:
    """Print the address, the experts and an example; on standard error, because the access log has standard output."""
    from rich.panel import Panel

    from ir3de.gateway.config.load import list_client_variables
    from ir3de.gateway.config.part import read_variable

    settings, router, _ = checked
    console = out.progress_console
    if not console.is_terminal or out.quiet:
        click.echo(f"serving on {address}", err=True)
        return
    key = next((name for name in list_client_variables(settings) if read_variable(name)), None)
    digest = "" if router is None else f"  {router.digest[:12]}"
    who = "everybody" if settings.server.open else "only this machine"
    rows: list[tuple[str, RenderableType]] = [
        ("address", line((f"{address}/v1", "bold cyan"))),
        ("page", line((f"{address}/", "cyan"))),
        ("experts", ", ".join(expert.name for expert in settings.experts)),
        ("router", line((settings.router.path, ""), (digest, FAINT))),
        ("keys", f"clients need the key in {key}" if key else f"none: {who} can use it"),
    ]
    if settings.routing.shadow:
        rows.append(("shadow", line((f"everything goes to {settings.routing.shadow}", "yellow"))))
    console.print(Panel(facts(rows), title="IR3DE", title_align="left", border_style=FAINT, expand=False))
    authorization = f' -H "authorization: Bearer ${key}"' if key else ""
    console.print(
        f"curl {address}/v1/chat/completions{authorization} -H 'content-type: application/json' -d '{QUESTION}'",
        soft_wrap=True,
    )
    console.print(line(("Ctrl-C stops", FAINT)))
