"""serve: start the gateway from a file, from options, or as a demonstration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.plugins import FAINT, Output, facts, is_router, json_text, line, output_options
from ir3de.errors import ArtifactError, InputError, MissingExtraError, name_some
from ir3de_gateway.cli.config import Endpoint, config_argument, count, expert_option, show_checked

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ir3de_gateway.config.load import Source
    from ir3de_gateway.validation import CheckedConfig

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
@click.option("--state", metavar="FOLDER", help="Folder for the changes made through /admin.")
@click.option("--dry-run", is_flag=True, help="Check everything, show it, and do not serve.")
@click.option("--demo", is_flag=True, help="Serve small local experts that need nothing else.")
@output_options
@click.pass_context
def serve(
    context: click.Context,
    /,
    file: str | None,
    router: str | None,
    experts: list[Endpoint],
    is_open: bool,
    state: str | None,
    dry_run: bool,
    demo: bool,
    out: Output,
    **server: Any,
) -> None:
    """Serve the experts behind one OpenAI-compatible endpoint.

    Clients send model="auto" and each prompt goes to the right expert; a page at / shows why. Without FILE, the
    gateway reads $IR3DE_CONFIG or ir3de.yaml; with --router and --expert it needs no file. Changes made through
    /admin are saved in a folder, which is shown at the start, and apply again when the same command restarts.

    Ctrl-C lets running requests finish; a second Ctrl-C stops at once.

    \b
    Examples:
      ir3de serve --demo
      ir3de serve --demo --router router
      ir3de serve ir3de.yaml --port 8080 --workers 4
      ir3de serve --router router --expert law=http://127.0.0.1:8001/v1 --expert maths=http://127.0.0.1:8002/v1#qwen
    """
    if demo and (file or experts):
        raise click.UsageError("--demo brings its own experts: leave the file and --expert out")
    if demo and find_spec("xllamacpp") is None:
        raise MissingExtraError("xllamacpp", "local", "the demonstration", "ir3de-gateway")
    from ir3de_gateway.server import read_log_level
    from ir3de_gateway.validation import check_config

    overrides = _overrides(router, experts, server, is_open=is_open)
    if state is not None:
        overrides["state"] = str(Path(state).expanduser().absolute())
    with _open_source(file, overrides, out, demo=demo, dry_run=dry_run) as source:
        checked = check_config(source.read(), source.path, is_dry_run=dry_run)
        if dry_run:
            show_checked(checked, out)
        if checked.errors:  # listed in the table of a dry run
            problems = count(len(checked.errors), "problem")
            raise InputError(f"this cannot be served: {problems}" if dry_run else "; ".join(checked.errors))
        if dry_run:
            read_log_level(checked.config)  # rejects what `serve` would reject
            out.result(line(("all is well: this can be served", "green")))
        elif not _serve(source, checked, out, demo=demo):
            context.exit(INTERRUPTED_EXIT_CODE)


def _serve(source: Source, checked: CheckedConfig, out: Output, *, demo: bool) -> bool:
    from ir3de_gateway import server
    from ir3de_gateway.http.service import provide_admin_token

    for finding in checked.findings:
        out.warn(str(finding))
    # without a terminal, the output ends in a log, where no token belongs
    shows_link = out.as_json or demo or out.shows_progress
    with provide_admin_token(checked.config.server) if shows_link else nullcontext() as token:
        return server.serve(source, ready=lambda address: announce(address, source, checked, out, token))


@contextmanager
def _open_source(
    file: str | None, overrides: dict[str, Any], out: Output, *, demo: bool, dry_run: bool
) -> Iterator[Source]:
    """The configuration file with the overrides; no file if they suffice. With `demo`, local experts run meanwhile."""
    from ir3de_gateway.config.load import Source, find_config_file, merge_overrides

    if demo:
        from ir3de_gateway.local import demo as run_local_experts

        own = overrides.get("router", {}).get("path")
        with run_local_experts(out.remark, router=own) as config:
            yield Source(None, merge_overrides(config.model_dump(mode="json"), overrides))
    else:
        enough = file is None and "router" in overrides and "experts" in overrides
        if enough and "state" not in overrides:
            overrides = overrides | _keep_state(overrides, out, dry_run=dry_run)
        path = None if enough else find_config_file(file)
        if file is not None and is_router(file):
            raise InputError(f"{file} is a router, not a configuration: name the router with --router {file}")
        if path is not None and not path.exists() and file is None and "experts" not in overrides:
            _reject_no_experts(overrides.get("router", {}).get("path"))
        if path is not None and not path.exists():
            raise ArtifactError(
                f"no configuration at {path}: write one with `ir3de config init {path} --router FOLDER`, serve without "
                "one by --router FOLDER --expert NAME=URL, or try `ir3de serve --demo`"
            )
        yield Source(path, overrides)


def _reject_no_experts(router: str | None) -> None:
    """Reject a router without experts, and name the experts that it needs."""
    if router is None or not is_router(router):
        return  # another error follows
    from ir3de.serving import read_expert_names

    names = read_expert_names(router)
    raise InputError(
        f"--router has no models to route to: add --expert NAME=URL for each of {name_some(names)}, or --demo for "
        "small local models"
    )


def _keep_state(overrides: dict[str, Any], out: Output, *, dry_run: bool) -> dict[str, Any]:
    """The setting that saves changes through /admin; none, with a warning, if no folder can be written."""
    from ir3de_gateway.admin.state import find_relatives, find_state_home, prepare_state_home

    served = overrides["router"]["path"], overrides["experts"]
    try:
        folder = find_state_home(*served)
        if not dry_run:
            prepare_state_home(folder, *served)
    except (ArtifactError, RuntimeError) as error:  # RuntimeError: this user has no home folder
        out.warn(f"changes made through /admin are lost when this gateway stops: {error}. Name a folder with --state")
        return {}
    if relatives := find_relatives(folder):
        out.warn(
            f"changes made with other --expert options do not apply here. They are in {relatives[0]}: "
            "--state with that folder applies them"
        )
    return {"state": str(folder)}


def _overrides(router: str | None, experts: list[Endpoint], server: dict[str, Any], *, is_open: bool) -> dict[str, Any]:
    """The options as settings of the configuration."""
    overrides: dict[str, Any] = {}
    if router is not None:
        overrides["router"] = {"path": router if "://" in router else str(Path(router).expanduser().absolute())}
    if experts:
        overrides["experts"] = [{key: value for key, value in one._asdict().items() if value} for one in experts]
    settings = {key: value for key, value in server.items() if value is not None} | ({"open": True} if is_open else {})
    return overrides | ({"server": settings} if settings else {})


# the screen at the start ------------------------------------------------------------------------------------------


def announce(address: str, source: Source, checked: CheckedConfig, out: Output, token: str | None) -> None:
    """Print where it serves: as one line of JSON, or for people."""
    from ir3de_gateway.admin.state import find_state_folder
    from ir3de_gateway.http.service import build_page_link

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
    variable = key or ("KEY" if settings.server.keys_file else "")  # only their owners know the keys
    authorization = f' -H "authorization: Bearer ${variable}"' if variable else ""
    question = f"{authorization} -H 'content-type: application/json' -d '{QUESTION}'"
    # outside the panel, so that a narrow terminal does not cut them
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
    who = "every machine" if settings.server.open else "only this machine"
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
