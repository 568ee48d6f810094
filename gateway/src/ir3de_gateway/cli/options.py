"""What `serve` and `config` share: their options, the checks of a configuration, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from ir3de.cli.plugins import FAINT, Output, count_left_out, line, split_rows, table

if TYPE_CHECKING:
    from ir3de_gateway.config.findings import Finding
    from ir3de_gateway.config.models import Config
    from ir3de_gateway.config.template import Endpoint
    from ir3de_gateway.validation import RouterFacts

SIGNS = {"error": ("✗", "red"), "warning": ("!", "yellow")}


def parse_experts(context: click.Context, parameter: click.Parameter, given: Iterable[str]) -> list[Endpoint]:
    """NAME=URL[,URL…][#MODEL] as endpoints: a click callback."""
    from ir3de_gateway.config.template import Endpoint

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
    help="An expert and its OpenAI-compatible endpoint, or several that are alike; may be repeated.",
)
config_argument = click.argument("file", metavar="[FILE]", required=False)


def show_findings(findings: Sequence[Finding], out: Output) -> None:
    """Print the findings, errors first."""
    rows = [
        (line(SIGNS[finding.level]), str(finding.line or ""), finding.where, finding.message)
        for finding in sorted(findings, key=lambda finding: finding.level)
    ]
    if rows:
        out.result(table("", "line", "field", "problem", right=("line",), rows=rows), "")


class CheckedConfig(NamedTuple):
    """A configuration, the router it names, and what is wrong with them."""

    config: Config
    router: RouterFacts | None
    findings: list[Finding]

    @property
    def errors(self) -> list[str]:
        return [str(finding) for finding in self.findings if finding.level == "error"]

    def with_lines(self, path: Path | None) -> CheckedConfig:
        """The same, its findings with their lines in the file."""
        from ir3de_gateway import validation

        return self._replace(findings=validation.add_lines(self.findings, self.config, path))


def count(number: int, what: str) -> str:
    """A number of things, `what` being one of them."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def check_config(
    config: Config, path: Path | None, *, loads_hooks: bool = True, needs_router: bool = True
) -> CheckedConfig:
    """Compare a configuration with the saved admin state and with the router, and try whether its hooks load.

    Unless it needs the router, one that cannot be read is a finding among others.
    """
    from ir3de.errors import ArtifactError
    from ir3de_gateway import validation
    from ir3de_gateway.config.findings import Finding

    config, changes = validation.apply_admin_state(config, path)
    try:
        router = validation.read_router_facts(config.router.path, config.routing.threshold)
    except ArtifactError as error:
        if needs_router:
            raise
        router, changes = None, [*changes, Finding("error", "router.path", str(error))]
    hooks = validation.check_hooks(config) if loads_hooks else []
    usage = validation.check_usage(config, path)
    return CheckedConfig(config, router, [*changes, *validation.check_consistency(config, router), *hooks, *usage])


def show_checked(checked: CheckedConfig, out: Output, **more: str) -> None:
    """Print the experts and the findings, or all of it as JSON."""
    from dataclasses import asdict

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
    found = {"findings": [asdict(finding) for finding in findings]}
    out.json({**more, "ok": not checked.errors, "router": facts, "experts": experts, **found})
    if not out.as_json:
        _show_experts(config, router, out)
        show_findings(findings, out)


def _show_experts(config: Config, router: RouterFacts | None, out: Output) -> None:
    shown = table("expert", "endpoint", "model", "can", "key", "in the router")
    first, left_out = split_rows(config.experts)
    for expert in first:
        known = "–" if router is None else "yes" if expert.name in router.experts else "no"
        shown.add_row(
            line((expert.name, "bold")),
            "\n".join(expert.list_addresses()),
            expert.served_model,
            line((", ".join(expert.capabilities), FAINT)),
            expert.api_key_env or "–",
            known,
        )
    digest = "" if router is None else f"  {router.digest[:12]}"
    out.note(
        line(("router  ", FAINT), (config.router.path, "bold"), (digest, FAINT)),
        "",
        count_left_out(shown, left_out),
        "",
    )
