"""What `ir3de serve` says at its start: where it serves, with what, and what to do next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.plugins import FAINT, Output, facts, json_text, line
from ir3de_gateway.cli.options import CheckedConfig

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ir3de_gateway.config.load import Source

QUESTION = '{"model": "auto", "messages": [{"role": "user", "content": "Can my landlord keep the deposit?"}]}'


def announce(address: str, source: Source, checked: CheckedConfig, out: Output, token: str | None) -> None:
    """Say where it serves: as one line of JSON, or in words."""
    from ir3de_gateway.admin.state import find_state_folder
    from ir3de_gateway.http.admin_token import build_page_link

    config, router, _ = checked
    page, state = build_page_link(address, token), find_state_folder(config, source.path)
    if not out.as_json:
        welcome(address, checked, out, page=page, state=state)
        return
    started = {
        "address": address,
        "page": page,
        "experts": [expert.name for expert in config.experts],
        "router": None if router is None else router.digest,
        "state": None if state is None else str(state),
        "workers": config.server.workers,
    }
    click.echo(json_text(started))


def welcome(address: str, checked: CheckedConfig, out: Output, *, page: str, state: Path | None = None) -> None:
    """Print the address, the experts and an example; on standard error, because the access log has standard output."""
    from rich.panel import Panel

    from ir3de_gateway.config.experts import read_variable
    from ir3de_gateway.config.load import list_client_variables

    console = out.progress_console
    if not console.is_terminal or out.quiet:
        more = [f"page: {page}"] * ("#" in page) + ([] if state is None else [f"state: {state}"])
        click.echo(", ".join([f"serving on {address}", *(() if out.quiet else more)]), err=True)
        return
    settings = checked.config
    key = next((name for name in list_client_variables(settings) if read_variable(name)), None)
    rows = _list_facts(address, checked, key, state, has_own_token="#" in page)
    console.print(Panel(facts(rows), title="IR3DE", title_align="left", border_style=FAINT, expand=False))
    variable = key or ("KEY" if settings.server.keys_file else "")  # the keys themselves are known to their owners only
    authorization = f' -H "authorization: Bearer ${variable}"' if variable else ""
    question = f"{authorization} -H 'content-type: application/json' -d '{QUESTION}'"
    # as lines of their own, which a narrow terminal does not cut into pieces
    console.print(line(("page  ", FAINT), (page, f"bold cyan link {page}")), soft_wrap=True)
    console.print(line(("try   ", FAINT), (f"curl {address}/v1/chat/completions{question}", "")), soft_wrap=True)
    console.print(line(("stop  ", FAINT), ("Ctrl-C", "")))


def _list_facts(
    address: str, checked: CheckedConfig, key: str | None, state: Path | None, *, has_own_token: bool
) -> list[tuple[str, RenderableType]]:
    from ir3de_gateway.config.experts import read_variable

    settings, router, _ = checked
    sources = [source for source in (key and f"${key}", settings.server.keys_file) if source]
    digest = "" if router is None else f"  {router.digest[:12]}"
    who = "everybody" if settings.server.open else "only this machine"
    variable = settings.server.admin_token_env
    admin = f"needs the token in {variable}" if read_variable(variable) else f"off: set {variable}"
    rows: list[tuple[str, RenderableType]] = [
        ("address", line((f"{address}/v1", "bold cyan"))),
        ("experts", ", ".join(expert.name for expert in settings.experts)),
        ("workers", str(settings.server.workers)),
        ("router", line((settings.router.path, ""), (digest, FAINT))),
        ("keys", f"clients need one of {' or '.join(sources)}" if sources else f"none: {who} can use it"),
        ("admin", "by the link below, until it stops" if has_own_token else admin),
        ("state", "none: changes are lost when it stops" if state is None else str(state)),
    ]
    if settings.routing.shadow:
        rows.append(("shadow", line((f"everything goes to {settings.routing.shadow}", "yellow"))))
    return rows
