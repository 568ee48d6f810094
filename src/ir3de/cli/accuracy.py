"""Accuracy on a terminal: recall by expert, confusions, calibration, coverage and robustness."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ir3de.cli import lib
from ir3de.cli.decisions import NONE_FITS
from ir3de.cli.formats import FAINT, bar, colour_of, line, one_line, percent
from ir3de.cli.output import Block, Output, Result, heading, short_table, split_rows, table

MAX_MATRIX_EXPERTS = 14
MAX_CONFUSION_ROWS = 15
RELIABILITY_WIDTH = 30  # characters
SHADES = "░▒▓█"

Document = Mapping[str, Any]
Matrix = Sequence[Sequence[int]]


def view_report(report: Document, out: Output) -> Iterator[Block]:
    """The whole report of `ir3de eval`, the accuracy first."""
    yield Result(headline(report))
    sides, widths = ("expected", "went to"), (out.console.width, out.table_width)
    confusion = matrix_table(report["experts"], report["confusion"], widths[0], sides, room=widths[1])
    yield from ("", recall_table(report), heading("Confusion"), confusion)
    gap = f"expected calibration error {100 * report['calibration_error']:.1f} points; █ accuracy, │ mean confidence"
    yield from (heading("Calibration", gap), reliability_table(report))
    if report["coverage"]:
        area = report["area"]
        about = "" if area is None else f"a right answer is more confident than a wrong one: {area:.3f}"
        yield from (heading("Coverage", about), coverage_table(report))
    if (found := report["unknown"]) is not None:
        shares = f"{percent(found['told'])} recognised as out of domain, {percent(found['sure'])} over 90 % sure"
        at_5 = f"{percent(found['told_at_5'])} recognised at 5 % false alarms"
        yield heading("Unknown prompts", f"{found['prompts']:,}: {shares}")
        yield line((f"  area under the curve {found['area']:.3f}, {at_5}", ""))
    prompts = report["prompts"]
    if abstained := report["abstained"]:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in report["abstained_because"].items())
        rest = f"; of the others {percent(report['answered_accuracy'])} are right"
        yield line(("\nAbstained  ", "bold"), (f"{abstained:,} of {prompts:,}: {reasons}{rest}", ""))
    if strange := report["out_of_domain"]:
        yield line(("\nOut of domain  ", "bold"), (f"{strange:,} prompts, {percent(strange / prompts)}", ""))


def headline(report: Document) -> Block:
    """The accuracy as in a proof, and the share of prompts that went right if it differs."""
    details = f" of {report['prompts']:,} prompts, by the most probable expert"
    if abs(report["accuracy"] - report["mean_accuracy"]) > lib.prompts.NOTABLE:
        details += f"; mean over experts {percent(report['mean_accuracy'])}"
    if report["routed_accuracy"] != report["accuracy"]:
        abstained = f", {report['abstained']:,} abstained" if report["abstained"] else ""
        details += f"; {percent(report['routed_accuracy'])} went right{abstained}"
    return line(("accuracy ", ""), (percent(report["accuracy"]), "bold"), (details, FAINT))


def recall_table(report: Document) -> Block:
    """One row for each expert; of many, those with the lowest recall."""
    recall, names = report["recall"], list(report["experts"])
    experts = sorted(names, key=lambda name: 2.0 if recall[name] is None else recall[name])  # unmeasured ones last
    experts = experts if split_rows(names)[1] else names
    rows = [
        (
            name,
            f"{report['sizes'][name]:,}",
            percent(recall[name]),
            bar(recall[name] or 0.0, 20, colour_of(names.index(name))),
            percent(report["precision"][name]),
        )
        for name in experts
    ]
    right = ("prompts", "recall", "precision")
    columns = ("expert", "prompts", "recall", "", "precision")
    return short_table(*columns, right=right, rows=rows, what="the lowest recall first; ")


def matrix_table(
    experts: Sequence[str], matrix: Matrix, width: int, sides: tuple[str, str], *, room: int | None = None
) -> Block:
    """The matrix, shaded by row, its columns numbered if their names need more than `width`.

    For very many experts, and without enough `room`, the largest confusions instead.
    """
    if len(experts) > MAX_MATRIX_EXPERTS:
        return _largest_confusions(experts, matrix, sides)
    longest = max(map(len, experts))
    has_names = longest + sum(max(len(name), 5) + 3 for name in experts) <= width
    widest = max(len(f"{count:,}") for row in matrix for count in row) + 2  # with its shade
    if not has_names and longest + 3 + len(experts) * (widest + 3) > (room or width):
        return _largest_confusions(experts, matrix, sides)

    def cell(row: int, column: int) -> Block:
        if not (count := matrix[row][column]):
            return line(("·", FAINT))
        shade = SHADES[min(len(SHADES) - 1, int(count / sum(matrix[row]) * len(SHADES)))]
        return line((f"{shade} ", "green" if row == column else "red"), (f"{count:,}", ""))

    headers = list(experts) if has_names else [str(place + 1) for place in range(len(experts))]
    names = experts if has_names else [f"{place + 1} {name}" for place, name in enumerate(experts)]
    rows: list[Sequence[Any]]
    rows = [(name, *(cell(row, column) for column in range(len(experts)))) for row, name in enumerate(names)]
    return table(f"{sides[0]} ↓  {sides[1]} →", *headers, right=headers, rows=rows)


def _largest_confusions(experts: Sequence[str], matrix: Matrix, sides: tuple[str, str]) -> Block:
    pairs = sorted(
        (-count, row, column)
        for row, counts in enumerate(matrix)
        for column, count in enumerate(counts)
        if count and row != column
    )
    rows = [(experts[row], experts[column], f"{-count:,}") for count, row, column in pairs[:MAX_CONFUSION_ROWS]]
    return table(*sides, "prompts", right=("prompts",), rows=rows)


def reliability_table(report: Document) -> Block:
    """One row for each interval of confidence that has prompts."""
    shown = table("confidence", "prompts", "mean", "accuracy", "", right=("prompts", "mean", "accuracy"))
    for part in report["reliability"]:
        if part["count"]:
            shares = percent(part["confidence"]), percent(part["accuracy"])
            drawn = _draw_accuracy(part["confidence"], part["accuracy"])
            shown.add_row(f"{100 * part['low']:.0f} – {100 * part['high']:.0f} %", f"{part['count']:,}", *shares, drawn)
    return shown


def _draw_accuracy(claimed: float, right: float) -> Block:
    """The accuracy as a bar, and the mean confidence as a line across it."""
    colour = "green" if abs(right - claimed) < 0.1 else "yellow"
    drawn, place = bar(right, RELIABILITY_WIDTH, colour), min(RELIABILITY_WIDTH - 1, int(claimed * RELIABILITY_WIDTH))
    mark = line(("│", f"black on {colour}" if drawn.plain[place] == "█" else "bold"))
    return drawn[:place] + mark + drawn[place + 1 :]


def coverage_table(report: Document) -> Block:
    """One row for each threshold: the share of prompts that it answers, and the share of those that are wrong."""
    columns = ["threshold", "answered", "wrong", *(["with unknown"] if report["unknown"] else [])]
    shown = table(*columns, "", right=columns)
    for point in report["coverage"]:
        errors = [point[key] for key in ("error", "error_with_unknown") if point[key] is not None]
        shares = [percent(share) for share in (point["coverage"], *errors)]
        shown.add_row(f"{100 * point['threshold']:.1f} %", *shares, bar(errors[-1], RELIABILITY_WIDTH, "red"))
    return shown


def effects_table(report: Document) -> Block:
    """One row for each perturbation of a `RobustnessReport`'s document, after the prompts as they are."""
    columns = ("accuracy", "change", "flipped", "either domain")
    rows: list[Sequence[Block]] = [("as they are", percent(report["accuracy"]), "", "", "", "")]
    for effect in report["effects"]:
        either = "" if effect["either"] is None else percent(effect["either"])
        figures = (percent(effect["accuracy"]), f"{100 * effect['change']:+.1f}", percent(effect["flipped"]), either)
        rows.append((effect["perturbation"], *figures, bar(effect["flipped"], 20, "yellow")))
    return table("prompts", *columns, "", right=columns, rows=rows)


def prompts_table(rows: Sequence[Document], keys: Sequence[str], titles: Sequence[str], width: int) -> Block:
    """Prompts with two experts each, such as the right one and the chosen one, and the confidence or expected score."""
    name = "expected score" if "expected_score" in rows[0] else "confidence"
    shown = table(*titles, name, "prompt", right=(name,))
    for row in rows:
        value = f"{row['expected_score']:.3f}" if "expected_score" in row else percent(row["confidence"])
        value = row["reason"] if row["abstained"] else value
        shown.add_row(*(row[key] or NONE_FITS for key in keys), value, one_line(row["text"], max(20, width - 48)))
    return shown
