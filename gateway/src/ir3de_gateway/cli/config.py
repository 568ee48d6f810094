"""config init, validate, show, schema: the configuration file of the gateway; and the options of `serve`, too."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.resources import files as package_files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, NamedTuple

import click

from ir3de.cli.plugins import (
    FAINT,
    Output,
    count_left_out,
    force_option,
    hint,
    line,
    output_options,
    refuse_existing,
    refuse_other_name,
    split_rows,
    table,
)
from ir3de.errors import InputError

if TYPE_CHECKING:
    from ir3de_gateway.config.document import Config
    from ir3de_gateway.config.findings import Finding
    from ir3de_gateway.validation import CheckedConfig, RouterFacts

SIGNS = {"error": ("✗", "red"), "warning": ("!", "yellow")}
OTHER_NAMES = {"check": "validate", "test": "validate", "verify": "validate", "new": "init", "print": "show"}
EXAMPLES = ("law", "maths")  # experts of a template without a router
FIRST_PORT = 8001


class Endpoint(NamedTuple):
    """An expert on the command line: NAME=URL, NAME=URL,URL… for replicas, and #MODEL after either."""

    name: str
    base_url: str  # the first one
    model: str | None = None
    replicas: tuple[str, ...] = ()  # all of them, if there are several

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Raises ValueError."""
        name, equals, address = text.partition("=")
        name = name.strip()
        if not (name and equals and address.startswith(("http://", "https://"))):
            raise ValueError(f"expected NAME=URL or NAME=URL#MODEL, found {text!r}: law=http://127.0.0.1:8001/v1")
        urls, _, model = address.partition("#")
        addresses = tuple(one.strip() for one in urls.split(","))
        if len(addresses) > 1:
            _check_addresses(name, addresses)
        return cls(name, addresses[0], model or None, addresses if len(addresses) > 1 else ())


def _check_addresses(name: str, addresses: Sequence[str]) -> None:
    from ir3de_gateway.config.experts import check_base_url

    for place, address in enumerate(addresses, 1):
        if not address:
            raise ValueError(f"address {place} of {name!r} is empty: commas stand only between addresses")
        try:
            check_base_url(address)
        except ValueError as error:
            raise ValueError(f"address {place} of {name!r} {error}") from None


def parse_experts(context: click.Context, parameter: click.Parameter, given: Iterable[str]) -> list[Endpoint]:
    """NAME=URL[,URL…][#MODEL] as endpoints: a click callback."""
    try:
        return [Endpoint.parse(text) for text in given]
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


expert_option = click.option(
    "--expert",
    "experts",
    metavar="NAME=URL[,URL…][#MODEL]",
    multiple=True,
    callback=parse_experts,
    help="An expert and its OpenAI-compatible endpoint, or several equal ones; may be repeated.",
)
config_argument = click.argument("file", metavar="[FILE]", required=False)


def count(number: int, what: str) -> str:
    """A number of things: 1 problem, 2 problems."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def show_findings(findings: Sequence[Finding], out: Output) -> None:
    """Print the findings, errors first."""
    rows = [
        (line(SIGNS[finding.level]), str(finding.line or ""), finding.where, finding.message)
        for finding in sorted(findings, key=lambda finding: finding.level)
    ]
    if rows:
        out.result(table("", "line", "field", "problem", right=("line",), rows=rows), "")


def show_checked(checked: CheckedConfig, out: Output, **more: str) -> None:
    """Print the experts and the findings, or all of it as JSON."""
    config, router, findings = checked
    experts = [
        {
            "name": one.name,
            "base_url": one.base_url,
            **({"replicas": list(one.list_addresses())} if one.replicas else {}),
            "model": one.served_model,
        }
        for one in config.experts
    ]
    facts = None if router is None else asdict(router)
    found = [asdict(finding) for finding in findings]
    out.json({**more, "ok": not checked.errors, "router": facts, "experts": experts, "findings": found})
    if not out.as_json:
        _show_experts(config, router, out)
        show_findings(findings, out)


def _show_experts(config: Config, router: RouterFacts | None, out: Output) -> None:
    shown = table("expert", "endpoint", "model", "can", "key", "in the router")
    first, left_out = split_rows(config.experts)
    for expert in first:
        shown.add_row(
            line((expert.name, "bold")),
            "\n".join(expert.list_addresses()),
            expert.served_model,
            line((", ".join(expert.capabilities), FAINT)),
            expert.api_key_env or "–",
            "–" if router is None else "yes" if expert.name in router.experts else "no",
        )
    digest = "" if router is None else f"  {router.digest[:12]}"
    head = line(("router  ", FAINT), (config.router.path, "bold"), (digest, FAINT))
    out.note(head, "", count_left_out(shown, left_out), "")


class ConfigGroup(click.Group):
    """Suggests the right command for the names that other tools use."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        refuse_other_name(self, ctx, args[0], OTHER_NAMES)
        return super().resolve_command(ctx, args)


@click.group(cls=ConfigGroup)
def config() -> None:
    """Write, check and show the gateway's configuration.

    Without FILE, the commands use $IR3DE_CONFIG or ir3de.yaml.

    \b
    Examples:
      ir3de config init --router router
      ir3de config validate --ping
      ir3de config show
    """


@config.command()
@config_argument
@click.option("--router", metavar="FOLDER", help="Router whose experts the file should name.")
@expert_option
@force_option
@output_options
def init(file: str | None, router: str | None, experts: list[Endpoint], force: bool, out: Output) -> None:
    """Write a commented configuration to start with.

    \b
    Examples:
      ir3de config init --router router
      ir3de config init gateway.yaml --expert law=http://127.0.0.1:8001/v1
    """
    from ir3de.serving import files
    from ir3de_gateway.config.load import find_config_file
    from ir3de_gateway.validation import read_router_facts

    path = find_config_file(file)
    refuse_existing(path, force=force)
    facts = read_router_facts(router) if router else None
    named = experts or suggest_endpoints(facts.experts if facts else EXAMPLES)
    place = router or "router"
    if "://" not in place and not Path(place).expanduser().is_absolute():
        place = os.path.relpath(place, path.parent)  # as the file has to name it
    files.write(path, build_template(place, named).encode())
    out.json({"path": str(path), "router": router, "experts": [expert.name for expert in named]})
    out.result(line(("wrote ", ""), (str(path), "bold")))
    if not router:
        out.warn(_describe_examples(path, named, has_experts=bool(experts)))
    out.note(hint(f"ir3de config validate {path}"))


@config.command()
@config_argument
@click.option("--ping", is_flag=True, help="Also request each endpoint's models.")
@output_options
@click.pass_context
def validate(context: click.Context, file: str | None, ping: bool, out: Output) -> None:
    """Check a configuration, and that it fits the router.

    The exit code is 1 if the gateway cannot serve it; with --ping, also if an endpoint does not answer, fails, or
    rejects its key. Warnings do not change the exit code.

    \b
    Example:
      ir3de config validate ir3de.yaml --ping
    """
    from ir3de_gateway import validation
    from ir3de_gateway.config.findings import ConfigError, sort_findings
    from ir3de_gateway.config.load import find_config_file, read

    path = find_config_file(file)
    try:
        checked = validation.check_config(read(path), path, needs_router=False)
    except ConfigError as error:
        found = sort_findings([*error.findings, *validation.check_router_path(path)])
        out.json({"ok": False, "file": str(path), "findings": [vars(finding) for finding in found]})
        show_findings(found, out)
        raise InputError(f"{path}: {count(len(found), 'problem')}") from None
    if ping:
        with out.spinner("requesting the models of the endpoints"):
            checked.findings.extend(validation.ping_experts(checked.config.experts))
            checked = checked.with_lines(path)
    show_checked(checked, out, file=str(path))
    if checked.errors:  # listed in the table above
        raise InputError(f"{path}: {count(len(checked.errors), 'problem')}")
    warned = f", {count(len(checked.findings), 'warning')}" if checked.findings else ""
    out.result(line((f"{path} can be served", "green"), (warned, "yellow")))


@config.command()
@config_argument
@output_options
def show(file: str | None, out: Output) -> None:
    """Show the configuration in effect, with every default.

    Secrets are not shown, only whether their variables are set.

    \b
    Example:
      ir3de config show --json
    """
    import yaml

    from ir3de_gateway import validation
    from ir3de_gateway.config.load import find_config_file, list_variables, read

    path = find_config_file(file)
    settings, changes = validation.apply_admin_state(read(path, secrets=False), path)
    for finding in changes:
        out.warn(finding.message)
    state = {name: "set" if there else "not set" for name, there in list_variables(settings).items()}
    document = settings.model_dump(mode="json")
    out.json({"file": str(path), "config": document, "secrets": state})
    if not out.as_json:
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)
        secret = re.compile(rf"^(.*_env: |\s*- )({'|'.join(map(re.escape, state))})$", flags=re.M)
        text = secret.sub(lambda found: f"{found[0]}  # {state[found[2]]}", text)
        out.note(line((f"# {path}", FAINT)))
        click.echo(text.rstrip())


@config.command()
@output_options
def schema(out: Output) -> None:
    """Print the JSON Schema of the configuration, for editors.

    \b
    Example:
      ir3de config schema > ir3de.schema.json
    """
    from ir3de_gateway.config.load import format_schema

    click.echo(format_schema().rstrip())


def _describe_examples(path: Path, named: Sequence[Endpoint], *, has_experts: bool) -> str:
    """What to change in a file that was written without a router."""
    again = f"`ir3de config init {path} --router FOLDER --force`"
    if has_experts:
        return f"router.path in {path} is an example: name your router there, or use {again}"
    experts = " and ".join(expert.name for expert in named)
    return f"router.path and the experts {experts} in {path} are examples: change them, or let {again} name your own"


def suggest_endpoints(names: Sequence[str]) -> list[Endpoint]:
    """Endpoints to fill in: experts on this machine, one port after the other."""
    return [Endpoint(name, f"http://127.0.0.1:{FIRST_PORT + index}/v1") for index, name in enumerate(names)]


def build_template(router: str, experts: Sequence[Endpoint]) -> str:
    """A commented configuration: config/template.yaml with the router and the experts. It needs at least one expert."""
    first, *others = experts
    model = f"    # model: {_quote(first.name)}".ljust(56) + "# what the endpoint calls the model"
    lines = []
    for other in others:
        lines.append(f"  - name: {_quote(other.name)}\n    {_write_address(other)}\n")
        lines.append(f"    model: {_quote(other.model)}\n" if other.model else "")
    template = package_files("ir3de_gateway.config").joinpath("template.yaml").read_text(encoding="utf-8")
    return Template(template).substitute(
        router=_quote(router),
        name=_quote(first.name),
        address=_write_address(first),
        model=f"    model: {_quote(first.model)}" if first.model else model,
        others="".join(lines),
    )


def _write_address(expert: Endpoint) -> str:
    if not expert.replicas:
        return f"base_url: {_quote(expert.base_url)}"
    return f"replicas: [{', '.join(json.dumps(address) for address in expert.replicas)}]"


def _quote(text: str) -> str:
    """A text as YAML: bare if it cannot be mistaken for anything else."""
    bare = re.fullmatch(r"[A-Za-z_./][\w./:-]*", text) and text.lower() not in ("true", "false", "null")
    return text if bare and not text.endswith(":") else json.dumps(text)
