"""What `serve` and `config` share: their options, and how a checked configuration is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

import click

from ir3de.cli.plugins import FAINT, Output, count_left_out, line, split_rows, table

if TYPE_CHECKING:
    from ir3de_gateway.config.findings import Finding
    from ir3de_gateway.config.models import Config
    from ir3de_gateway.validation import CheckedConfig, RouterFacts

SIGNS = {"error": ("✗", "red"), "warning": ("!", "yellow")}


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
