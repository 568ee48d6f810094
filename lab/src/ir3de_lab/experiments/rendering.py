"""Tables as Markdown and as LaTeX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ir3de_lab.experiments.cells import BEST, Cell, Row, Table

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--",
    "−": "$-$",
    "▲": r"$\uparrow$",
    "▼": r"$\downarrow$",
    "△": r"$\nearrow$",
    "▽": r"$\searrow$",
    "µ": r"\textmu{}",
    "λ": r"$\lambda$",
    "¹": r"\textsuperscript{1}",
    "²": r"\textsuperscript{2}",
    "ì": r"\`{\i}",
}


def markdown(table: Table) -> str:
    """The table with its title above and its caption below, groups as lines of their own."""
    lines = [f"**{_plain(table.title)}**", "", _line([_plain(table.head), *map(_plain, table.columns)])]
    lines.append("|---|" + "".join("---|" if column in table.words else "---:|" for column in table.columns))
    for row in with_groups(table.rows):
        if isinstance(row, str):
            lines.append(_line([f"*{_plain(row)}*", *[""] * len(table.columns)]))
        else:
            lines.append(_line([_plain(row.name), *map(_marked_down, row.cells)]))
    if table.caption:
        lines += ["", " ".join(map(_plain, table.caption))]
    return "\n".join(lines) + "\n"


def latex(table: Table) -> str:
    """The table for a document with the packages booktabs and graphicx."""
    columns = "l" + "".join("l" if column in table.words else "r" for column in table.columns)
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{' '.join(map(escaped, (f'{table.title}.', *table.caption)))}}}",
        rf"\label{{tab:{_label(table)}}}",
        r"\resizebox{\linewidth}{!}{%",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _cells([rf"\textbf{{{escaped(head)}}}" if head else "" for head in (table.head, *table.columns)]),
        r"\midrule",
    ]
    begun = False
    for row in with_groups(table.rows):
        if isinstance(row, str):
            lines += [r"\midrule"] if begun else []
            lines.append(rf"\multicolumn{{{len(columns)}}}{{l}}{{\emph{{{escaped(row)}}}}} \\")
        else:
            lines.append(_cells([escaped(row.name), *map(_in_latex, row.cells)]))
        begun = True
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}", r"\end{table}"]) + "\n"


def with_groups(rows: Sequence[Row]) -> Iterator[str | Row]:
    """The rows, each group's name before its first."""
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            yield group
        yield row


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is.

    >>> escaped("50 % of math_1 & {x}")
    '50 \\\\% of math\\\\_1 \\\\& \\\\{x\\\\}'
    """
    return "".join(_LATEX.get(character, character) for character in text)


def _cells(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _in_latex(cell: Cell) -> str:
    text = escaped(cell.text)
    return rf"\textbf{{{text}}}" if cell.mark == BEST else text


def _label(table: Table) -> str:
    return "-".join(part for part in (table.setting, table.name) if part).replace("_", "-")


def _plain(text: str) -> str:
    """Text that Markdown shows as it is within a table."""
    for sign in "\\|*_<>[]`":
        text = text.replace(sign, f"\\{sign}")
    return text


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _marked_down(cell: Cell) -> str:
    text = _plain(cell.text)
    return f"**{text}**" if cell.mark == BEST else text
