"""The command line. rich, numpy and the rest are imported inside the commands, so that `--help` is fast."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from pathlib import Path

import click

from ir3de.cli.commands import (
    add_remove,
    audit,
    collect,
    compare,
    demo,
    doctor,
    drift,
    embedding,
    encoder,
    evaluate,
    explain,
    feedback,
    fit,
    import_routes,
    inspect,
    label,
    learn,
    policy,
    report,
    route,
    tune,
)  # fmt: skip  # isort: skip
from ir3de.cli.group import CommandGroup
from ir3de.files.package import VERSION

__all__ = ["cli", "main"]

SECTIONS = {
    "Start here": (demo.demo, doctor.doctor),
    "Build a router": (
        fit.fit,
        import_routes.import_routes,
        add_remove.add,
        add_remove.remove,
        tune.tune,
        tune.calibrate,
        policy.policy,
    ),
    "Use it": (route.route, explain.explain, evaluate.evaluate, compare.compare, report.report, inspect.inspect),
    "Serve it": ("serve", "config", "keys", "router", "ext-proc"),  # commands of ir3de-gateway
    "Learn from traffic": (feedback.feedback, learn.learn, learn.forget, drift.drift, label.label),
    "Share the work": (collect.collect, collect.merge, embedding.embedding, encoder.encoder),
    "Audit it": (audit.ledger, audit.receipt, audit.verify),
    "Set up": (doctor.completion,),
}


def _show_version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"ir3de {VERSION}")
        ctx.exit()


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """IR3DE sends each prompt to the expert whose domain it belongs to: linear, closed-form, explainable.

    \b
      ir3de demo
      ir3de fit router maths=maths.jsonl law=law/ code=code.txt.gz
      ir3de route router "Prove that √2 is irrational."

    Every command takes --json for programs and -q for scripts. IR3DE_DEBUG=1 shows where an error came from.
    """


cli.add_sections(SECTIONS)


def main() -> None:
    """Run the command line. Exit codes: 0 success, 1 an error with its explanation, 2 a wrong call, 130 Ctrl-C."""
    sys.stdout = sys.stdout or _open_nowhere()  # None where a service or `>&-` closed it
    sys.stderr = sys.stderr or _open_nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a character that the encoding lacks must not stop a command
    cli(prog_name="ir3de")


def _open_nowhere() -> TextIOWrapper:
    return Path(os.devnull).open("w", encoding="utf-8")  # open as long as the process runs
