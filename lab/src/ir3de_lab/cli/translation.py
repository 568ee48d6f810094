"""bench translation: the official clients of OpenAI and Anthropic, each against an expert of the other API."""

from __future__ import annotations

from pathlib import Path

import click

from ir3de.cli.plugins import Output, output_options, table
from ir3de_lab.cli.shared import keep, save_option


@click.command()
@save_option
@output_options
def translation(save: Path | None, out: Output) -> None:
    """Whether a translated answer is the native one: content, usage and stop reason, with the official clients.

    One model speaks both APIs natively. Each client asks it natively, and through a gateway that knows only the other
    API of it. The model's answer repeats the request that it saw, so equal content means equal requests too. It needs
    `pip install openai anthropic`.

    \b
    Example:
      ir3de bench translation --save results/translation.json
    """
    from ir3de_lab.benchmarks.measurement import circumstances
    from ir3de_lab.benchmarks.translation.comparing import compare, find_versions

    with out.spinner("asking natively and translated"):
        rows = list(compare())
    equal = sum(row.is_equal for row in rows)
    document = {
        "circumstances": {**circumstances(), **find_versions()},
        "equal": equal,
        "cases": len(rows),
        "rows": [row.to_dict() for row in rows],
    }
    keep(save, document)
    out.json(document)
    shown = table("client", "case", "answer", "content", "usage", "stop reason")
    for row in rows:
        marks = ("equal" if one else "differs" for one in (row.content, row.usage, row.stop))
        shown.add_row(row.client, row.case, row.way, *marks)
    out.result(shown)
    out.note(f"{equal} of {len(rows)} are equal in all three")
