"""What `serve` and `config` have in common: the extra they need, experts on the command line, findings in a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.options import Function
from ir3de.cli.output import FAINT, Output, styled, table
from ir3de.errors import MissingExtraError

if TYPE_CHECKING:
    from ir3de.gateway.config.load import Finding
    from ir3de.gateway.config.models import Config
    from ir3de.gateway.config.template import Endpoint
    from ir3de.gateway.validation import RouterFacts

PACKAGES = ("pydantic", "yaml", "uvicorn", "httptools", "starlette", "prometheus_client")
SIGNS = {"error": ("✗", "red"), "warning": ("!", "yellow")}


def need_gateway(*, local: bool = False) -> None:
    """Say which extra is missing before an import fails; `local` where models are served here, too."""
    from importlib.util import find_spec

    for package in (*PACKAGES, "xllamacpp") if local else PACKAGES:
        if find_spec(package) is None:
            raise MissingExtraError(package, "local" if local else "serve", "the gateway")


def parse_experts(context: click.Context, parameter: click.Parameter, given: Iterable[str]) -> list[Endpoint]:
    """NAME=URL[#MODEL] as endpoints; a click callback."""
    from ir3de.gateway.config.template import Endpoint

    try:
        return [Endpoint.parse(text) for text in given]
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def expert_option(function: Function) -> Function:
    return click.option(
        "--expert",
        "experts",
        metavar="NAME=URL[#MODEL]",
        multiple=True,
        callback=parse_experts,
        help="An expert and its OpenAI-compatible endpoint; may be repeated.",
    )(function)


def config_argument(function: Function) -> Function:
    return click.argument("file", metavar="[FILE]", required=False)(function)


def show_findings(findings: Sequence[Finding], out: Output) -> None:
    """What was found, worst first."""
    if not findings:
        return
    shown = table("", "line", "field", "what", right=("line",))
    for finding in sorted(findings, key=lambda finding: finding.level):
        line = "" if finding.line is None else str(finding.line)
        shown.add_row(styled(SIGNS[finding.level]), line, finding.where, finding.message)
    out.result(shown, "")


def show_experts(config: Config, router: RouterFacts | None, out: Output) -> None:
    """Who answers, and where."""
    shown = table("expert", "endpoint", "model", "can", "key", "in the router")
    for expert in config.experts:
        known = "–" if router is None else "yes" if expert.name in router.experts else "no"
        shown.add_row(
            styled((expert.name, "bold")),
            expert.base_url,
            expert.served_model,
            styled((", ".join(expert.capabilities), FAINT)),
            expert.api_key_env or "–",
            known,
        )
    digest = "" if router is None else f"  {router.digest[:12]}"
    out.note(styled(("router  ", FAINT), (config.router.path, "bold"), (digest, FAINT)), "", shown, "")


def described(config: Config, router: RouterFacts | None, findings: Sequence[Finding]) -> dict[str, Any]:
    """The same for programs."""
    from dataclasses import asdict

    return {
        "ok": all(finding.level != "error" for finding in findings),
        "router": None if router is None else asdict(router),
        "experts": [
            {"name": expert.name, "base_url": expert.base_url, "model": expert.served_model}
            for expert in config.experts
        ],
        "findings": [asdict(finding) for finding in findings],
    }
