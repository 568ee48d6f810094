"""bench tables: what the raw files of the experiments say, for the terminal, as Markdown, as LaTeX, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.plugins import FAINT, Output, heading, json_text, line, output_options, table

if TYPE_CHECKING:
    from rich.table import Table as Shown
    from rich.text import Text

    from ir3de_lab.experiments.cells import Cell, Table
    from ir3de_lab.experiments.results import Results

FORMATS = ("terminal", "markdown", "latex")
NAME_WIDTH, GAP = 22, 2  # of the column of names at least, and between columns
SUFFIXES = {".tex": "latex", ".json": "json"}  # of an output file, where no format is named; else Markdown

results_option = click.option(
    "--results",
    "root",
    type=click.Path(path_type=Path),
    default="results",
    show_default=True,
    metavar="DIR",
    help="Folder of {setting}/outcomes.jsonl.xz and what lies beside it; a checkout of IR3DE has it as results/.",
)
setting_option = click.option(
    "--setting", "chosen", multiple=True, metavar="NAME", help="Only this setting; may be repeated."
)


@click.command()
@results_option
@setting_option
@click.option("--only", multiple=True, metavar="TABLE", help="Only tables whose name begins so: main, raw, needs …")
@click.option("--format", "form", type=click.Choice(FORMATS), help="How to print them.  [default: terminal]")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write them there: Markdown, or LaTeX and JSON where its suffix says so.",
)
@output_options
def tables(
    root: Path, chosen: Sequence[str], only: Sequence[str], form: str | None, output: Path | None, out: Output
) -> None:
    """The experiments' tables, from the raw files alone: no texts and no models are needed.

    The raw files are in results/ of a checkout of IR3DE. Elsewhere, name that folder with --results.

    Of every setting: performance in percent of the domains' own experts with intervals, raw figures, what each router
    takes, the paper's own figures, and more where the raw files have it.

    \b
    Example:
      ir3de bench tables --setting clm
      ir3de bench tables --format latex --output tables.tex
    """
    found, notes = read_results(root, chosen)
    with out.spinner("counting"):
        made = [(results, _tables(results, only)) for results in found]
    document = {"settings": [_document(results, part) for results, part in made], "notes": notes}
    if output is not None:
        _write(output, form, document, [table for _, part in made for table in part])
        out.note(line((f"{sum(len(part) for _, part in made)} tables written to ", ""), (str(output), "bold")))
    elif form in ("markdown", "latex"):
        _print(out, form, document, made)
    else:
        out.json(document)
        for _, part in made:
            out.result(*(piece for table in part for piece in shown(table, out.console.width)))
    for note in [*notes, *(note for results in found for note in results.notes)]:
        out.warn(note)


def read_results(root: Path, chosen: Sequence[str]) -> tuple[list[Results], list[str]]:
    """Every setting that has outcomes; where none has, there is nothing to show."""
    from ir3de.errors import ArtifactError
    from ir3de_lab.experiments.results import OUTCOMES, find

    if not root.is_dir():
        raise ArtifactError(
            f"there is no folder {root} here: the raw files of the experiments are in results/ of a checkout of IR3DE, "
            "and not in what pip installs. Run the command in the checkout, or name that folder with --results"
        )
    found, notes = find(root, chosen)
    if not found:
        raise ArtifactError(
            f"no {OUTCOMES} of {' or '.join(chosen) or 'any setting'} under {root}: make it with "
            f"`ir3de bench outcomes --setting {chosen[0] if chosen else 'clm'}`, or name another folder with --results"
        )
    return found, notes


def shown(made: Table, width: int) -> list[Any]:
    """A table for the terminal, between its title and its caption; columns that do not fit follow in another one."""
    caption = [line((sentence, FAINT)) for sentence in made.caption]
    return [heading(made.title), *(_drawn(made, part, width) for part in _fitting(made, width)), *caption]


def _drawn(made: Table, columns: Sequence[int], width: int) -> Shown:
    from ir3de_lab.experiments.rendering import with_groups

    drawn = table(made.head)
    drawn.padding = (0, GAP - 1, 0, 0)
    for place in columns:
        drawn.add_column(made.columns[place], justify="left" if made.columns[place] in made.words else "right")
    for column, wide in zip(drawn.columns, _widths(made, columns, width), strict=True):
        column.width = wide
    for row in with_groups(made.rows):
        if isinstance(row, str):
            drawn.add_row(line((row, f"italic {FAINT}")))
        else:
            drawn.add_row(row.name, *(_styled(row.cells[place]) for place in columns))
    return drawn


def _widths(made: Table, columns: Sequence[int], width: int) -> list[int]:
    """Of the names and the columns: what they need, and of what is left over as much as they can use."""
    longest = max(len(made.head), *(len(row.name) for row in made.rows))
    widths = [min(NAME_WIDTH, longest), *(_width(made, place) for place in columns)]
    most = [longest, *(max(len(made.columns[p]), *(len(row.cells[p].text) for row in made.rows)) for p in columns)]
    spare = width - sum(widths) - GAP * len(columns)
    for place in range(len(widths)):
        more = max(0, min(spare, most[place] - widths[place]))
        widths[place] += more
        spare -= more
    return widths


def _fitting(made: Table, width: int) -> list[list[int]]:
    """The columns in as many parts as it takes for each to fit beside the names."""
    parts: list[list[int]] = [[]]
    left = width - NAME_WIDTH
    for place in range(len(made.columns)):
        needed = _width(made, place) + GAP
        if parts[-1] and needed > left:
            parts.append([])
            left = width - NAME_WIDTH
        parts[-1].append(place)
        left -= needed
    return parts


def _width(made: Table, place: int) -> int:
    """What a column needs so that no figure and no word of its head is broken."""
    texts = [row.cells[place].text for row in made.rows]
    if made.columns[place] in made.words:  # they may be
        texts = [word for text in texts for word in text.split()]
    return max(map(len, (*texts, *made.columns[place].split())), default=0)


def _styled(cell: Cell) -> Text:
    return line((cell.text, "bold green" if cell.mark else ""))


def _tables(results: Results, only: Sequence[str]) -> list[Table]:
    from ir3de_lab.experiments.tables import tables as every

    return [table for table in every(results) if not only or table.name.startswith(tuple(only))]


def _document(results: Results, made: Sequence[Table]) -> dict[str, Any]:
    return {
        "setting": results.setting,
        "title": results.title,
        "about": dict(results.matrix.about),
        "tables": [table.to_dict() for table in made],
        "notes": list(results.notes),
    }


def _print(out: Output, form: str, document: dict[str, Any], made: Sequence[tuple[Results, list[Table]]]) -> None:
    if out.as_json:
        raise click.UsageError(f"--json and --format {form} are two ways to print: leave one of them out")
    click.echo(_text(form, document, [table for _, part in made for table in part]), nl=False)


def _write(path: Path, form: str | None, document: dict[str, Any], made: Sequence[Table]) -> None:
    from ir3de_lab import files

    if form == "terminal":
        raise click.UsageError("--format terminal is for the terminal: name markdown or latex for a file")
    files.write(path, _text(form or SUFFIXES.get(path.suffix, "markdown"), document, made).encode())


def _text(form: str, document: dict[str, Any], made: Sequence[Table]) -> str:
    from ir3de_lab.experiments.rendering import latex, markdown

    if form == "json":
        return json_text(document, indent=1) + "\n"
    render: Callable[[Table], str] = latex if form == "latex" else markdown
    return "\n".join(render(table) for table in made)
