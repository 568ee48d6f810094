"""Write the figures and verdicts in sentences of docs/ that compare routers, and three tables; `--check` only compares.

`sentences.txt` has the sentences with places for what results/ says. When raw files change, run this script after
generate_results_readme.py. Where a sentence no longer makes sense, write it anew in both files.

    {average CLM | ROW}     in percent of the own experts; also accuracy
    {more CLM | ROW}        its difference to ir3de, which must be above zero; also less, and interval
    {verdict CLM | ROW}     surely above or below, perhaps above or below, or indistinguishable from
    {sent reasoning | FILE} items that the router of a file of choices/ sends to their expert, in percent; also
                            reasoning/math, of one domain
    {cell TITLE | COLUMN | ROW}   of the table of results/README.md whose title begins so; a row in a group is named
                            GROUP > ROW. Of a difference with its interval: size, and span
    {raw FILE > PATH | FORMAT}    a single figure of results/FILE.json, as raw_figures.py describes it
    {solved SETS | ROUTER}  of results/alternatives.json and alternatives_setfit.json: on how many of the four sets it
                            is surely better; also sets

A sentence may not end with a place: add the words that follow it on the page.

A row is named by parts of its name, joined by &; of several the one with the best average is meant. After ROW - ROW,
more, less and interval tell the difference to the second row instead.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from generate_alternatives_docs import FEW, SETS, SIX, SURELY, find_better, read_document
from ir3de_lab.experiments.cells import gap, show_sign
from ir3de_lab.experiments.curve_tables import drawn_curves
from ir3de_lab.experiments.metrics import normalised_difference
from ir3de_lab.experiments.resampling import Difference
from ir3de_lab.experiments.results import Results, read
from ir3de_lab.experiments.standings import Standing, default_of, find_average_signs, standings
from pages import ROOT, renewed, write_or_compare
from raw_figures import show_raw

README = ROOT / "results" / "README.md"
SENTENCES = Path(__file__).with_name("sentences.txt")
VERDICTS = {  # by sign; a half is a leaning: the row's own interval excludes zero, Holm's rule does not
    1: "surely above",
    0.5: "perhaps above",
    0: "indistinguishable from",
    -0.5: "perhaps below",
    -1: "surely below",
}
EMBEDDED = ("clm", "clm-large", "reasoning", "routerdc7")  # where routers on other embeddings were run
EMBEDDINGS = {
    "": "default, version 3",
    "default@2": "default@2",
    "MiniLM-L6": "MiniLM-L6, words",
    "all-mpnet-base-v2": "all-mpnet-base-v2, words",
    "Qwen2.5-Coder-0.5B": "Qwen2.5-Coder-0.5B",
    "multilingual-e5-small, mapped": "multilingual-e5-small, mapped",
}
ROUTERS = (
    ("-avg", "IR3DE-avg (authors' code)", "IR3DE-avg (authors' code, embedding of {})"),
    ("**ir3de**", "ir3de", "ir3de (embedding of {})"),
)
PROMPTED = {  # routers fitted on few prompts, and how the table names them
    "ir3de": "**ir3de**",
    "naive Bayes": "naive Bayes",
    "TF-IDF + logistic regression": "TF-IDF + logistic regression",
    "IR3DE-avg (authors' code)": "IR3DE-avg, authors' code",
    "IR3DE, k=10 (authors' code)": "IR3DE, k = 10, authors' code",
}
PROMPTS = (10, 30, 100, 300)
HALVED = {  # rows of reasoning-large that compare outcomes with domains
    "Best single model in the other half": "best single model in the other half",
    "ir3de": "**ir3de**, by domain",
    "ir3de, and the domain's best model in the other half": "**ir3de**, and the domain's best model in the other half",
    "ir3de, from outcomes of the other half": "**ir3de**, from outcomes of the other half",
    "Oracle": "oracle",
}
COUNTS = ("none", "one", "two", "three", "four")
_SPACES = r"\s+"
_PLACE = re.compile(r"\{([^}]+)\}")


@cache
def _read(setting: str) -> Results:
    return read(ROOT / "results" / setting)


@cache
def _rows(where: str) -> tuple[Standing, ...]:
    """The rows of a setting, or of one of its other matrices: reasoning/reference."""
    setting, _, other = where.partition("/")
    results = _read(setting)
    return standings(results, getattr(results, other)) if other else standings(results)


def find_row(rows: tuple[Standing, ...], wanted: str) -> Standing:
    """The best row whose name has all the parts."""
    parts = [part.strip() for part in wanted.split("&")]
    found = [row for row in rows if row.name == wanted] or [
        row for row in rows if row.name.startswith(parts[0]) and all(part in row.name for part in parts)
    ]
    if not found:
        raise SystemExit(f"sentences.txt names a row that is not there: {wanted}")
    return max(found, key=lambda row: row.performance.average)


def say(place: str) -> str:
    """What stands at a place of a sentence."""
    kind, _, rest = place.partition(" ")
    where, _, wanted = (part.strip() for part in rest.partition("|"))
    if kind == "raw":
        return show_raw(where, wanted)
    if kind in ("solved", "sets"):
        better = list_better_sets(wanted, {"six": SIX, "few": FEW, "all": None}[where])
        return COUNTS[len(better)] if kind == "solved" else " and ".join(better) or "none of them"
    if kind in ("cell", "size", "span"):
        column, _, row_name = (part.strip() for part in wanted.partition("|"))
        return _part(kind, find_cell(where, column, row_name))
    if kind == "sent":
        return f"{measure_sent(where, wanted):.1f}"
    rows = _rows(where)
    wanted, _, other = wanted.partition(" - ")
    row, home = find_row(rows, wanted), find_row(rows, other) if other else default_of(rows)
    assert home is not None
    if kind == "average":
        return f"{row.performance.average:.1f}"
    if kind == "accuracy":
        return f"{row.performance.accuracy or 0:.1f}"
    if kind == "verdict":
        sign, leaning = find_average_signs(rows)[row.name]
        return VERDICTS[sign or leaning / 2]
    difference = normalised_difference(row.performance, home.performance, list(range(len(row.performance.raw))))
    if (kind, difference.value > 0) in (("more", False), ("less", True)):
        raise SystemExit(f"sentences.txt says that {row.name} has {kind} in {where}, and it has not: write it anew")
    return _tell(kind, difference)


@cache
def _tables() -> dict[str, list[list[str]]]:
    """The tables of results/README.md by title: rows of cells, each behind the name of its group."""
    found: dict[str, list[list[str]]] = {}
    title = group = ""
    for line in README.read_text(encoding="utf-8").splitlines():
        if line.startswith("**"):
            title, group = line.strip("*"), ""
        elif line.startswith("| ") and title:
            cells = [cell.strip() for cell in line.strip("|").split(" |")]
            if cells[0].startswith("*"):
                group = cells[0].strip("*")
            else:
                found.setdefault(title, []).append([group, *cells])
    return found


def find_cell(title: str, column: str, wanted: str) -> str:
    """What a cell of results/README.md shows, without its signs."""
    found = [rows for name, rows in _tables().items() if name.startswith(title)]
    if len(found) != 1 or column not in found[0][0]:
        raise SystemExit(f"sentences.txt names a table or a column that is not there once: {title} | {column}")
    group, _, name = wanted.rpartition(" > ")
    rows = [row for row in found[0][1:] if not group or row[0] == group]
    at = [row for row in rows if row[1] == name] or [row for row in rows if row[1].startswith(name + ", ")]
    if len(at) != 1:
        raise SystemExit(f"sentences.txt names a row that is not there once: {title} | {wanted}")
    return at[0][found[0][0].index(column)].replace("\\", "").strip("* ▲▼△▽¹²")


def _part(kind: str, text: str) -> str:
    if kind == "cell":
        return text
    value, _, interval = text.rstrip("]").partition(" [")
    return value.lstrip("+−") if kind == "size" else interval.replace(", ", " to ")


def measure_sent(where: str, wanted: str) -> float:
    """Percentage of items that a router sends to their domain's expert, or of the items of one domain."""
    setting, _, domain = where.partition("/")
    results = _read(setting)
    columns = next((one.columns for one in results.choices if one.router == wanted), None)
    if columns is None:
        raise SystemExit(f"sentences.txt names a router that is not there: {wanted}")
    if not domain:
        return results.accuracy(columns)
    items = results.matrix.domain == results.matrix.domains.index(domain)
    return 100 * float(np.mean((columns == results.matrix.own_expert)[items]))


def list_better_sets(router: str, prompts: int | None) -> list[str]:
    """The sets of docs/why-not.md on which a router's figure is bold."""
    document = read_document()
    if router not in {one["name"] for one in document["alternatives"]}:
        raise SystemExit(f"sentences.txt names a router that is not there: {router}")
    better = find_better(document, prompts)
    return [name for name in SETS if better.get((router, name)) == SURELY]


def _tell(kind: str, difference: Difference) -> str:
    if kind in ("more", "less"):
        return f"{abs(difference.value):.2f}"
    low, high = (f"{end:.2f}".replace("-", "−") for end in difference.interval)
    return {"interval": f"{low} to {high}"}[kind]


def fill(text: str, template: str) -> str:
    """A page with one sentence brought up to date; it may be broken into lines anywhere."""
    parts = _PLACE.split(template)
    if parts[-1].strip() in ("", "."):  # a place may hold dots: it would end at the first one
        raise SystemExit(f"a sentence of sentences.txt ends with a place: add the words after it: {template[-80:]}")
    words = [r"\s+".join(map(re.escape, part.split())) for part in parts[::2]]
    gaps = [_gap(before, after) for before, after in zip(parts[::2], parts[2::2], strict=False)]
    pattern = "".join(word + gap for word, gap in zip(words, [*gaps, ""], strict=True))
    found = list(re.finditer(pattern, text))
    if len(found) != 1:
        raise SystemExit(f"a sentence of sentences.txt is there {len(found)} times, and not once: {template[:80]}")
    for number in range(len(gaps), 0, -1):
        low, high = found[0].span(number)
        text = text[:low] + say(parts[2 * number - 1]) + text[high:]
    return text


def _gap(before: str, after: str) -> str:
    """What may stand at a place: as much as two lines may break, and spaces where the sentence has them."""
    left = _SPACES if before.strip() and before[-1].isspace() else ""  # spaces alone belong to the place before them
    right = _SPACES if after[:1].isspace() else ""
    return left + r"([^\s|][^|]{0,60}?)" + right


def draw_embeddings() -> str:
    """The table of docs/experiments.md that compares embeddings."""
    shown = {where: _read(where).title for where in EMBEDDED}
    lines = [f"| router | embedding | {' | '.join(shown.values())} |", "|---|---|" + "---:|" * len(shown)]
    for router, plain, other in ROUTERS:
        for embedding, title in EMBEDDINGS.items():
            name = other.format(embedding) if embedding else plain
            cells = []
            for where in EMBEDDED:
                row = find_row(_rows(where), name)
                sign = show_sign(*find_average_signs(_rows(where))[row.name])
                cells.append(f"{row.performance.average:.1f} ({row.performance.accuracy or 0:.1f}){sign}")
            lines.append(f"| {'' if embedding else router + ' '}| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw_prompts() -> str:
    """The table of docs/experiments.md on few training prompts."""
    lines = [
        f"| routing accuracy, mean ± deviation | {' | '.join(map(str, PROMPTS))} |",
        "|---|" + "---:|" * len(PROMPTS),
    ]
    for where in EMBEDDED:
        results = _read(where)
        curves = drawn_curves(results)
        for name, shown in PROMPTED.items():
            cells = []
            for prompts in PROMPTS:
                drawn = [results.accuracy(one.columns) for one in curves[name].get(prompts, [])]
                cells.append(f" {np.mean(drawn):.1f} ± {np.std(drawn, ddof=1):.1f}" if drawn else "")
            setting = f"{results.title}: " if name == "ir3de" else ""
            lines.append(f"| {setting}{shown} |{' |'.join(cells)} |")
    return "\n".join(lines)


def draw_halves() -> str:
    """The table of docs/experiments.md on routing by outcomes."""
    rows = _rows("reasoning-large")
    home = default_of(rows)
    assert home is not None
    lines = [
        "| percent solved, REASONING-large | GSM8K | M_ARC | HumanEval | IFEval | average, % of the own experts "
        "| difference to **ir3de** |",
        "|---|" + "---:|" * 6,
    ]
    for name, shown in HALVED.items():
        row = find_row(rows, name)
        found = row.performance
        cells = [*(f"{score:.1f}" for score in found.raw), f"{found.average:.1f}"]
        every = list(range(len(found.raw)))
        apart = "" if row is home else f" {gap(normalised_difference(found, home.performance, every)).text}"
        lines.append(f"| {shown} | {' | '.join(cells)} |{apart} |")
    return "\n".join(lines)


def list_sentences() -> Iterator[tuple[Path, str]]:
    """The page and the words of each sentence; a line `# docs/PAGE` says whose the next ones are."""
    page = ROOT
    for block in SENTENCES.read_text(encoding="utf-8").split("\n\n"):
        if block.startswith("# "):
            page = ROOT / block[2:].strip()
        elif block.strip():
            yield page, " ".join(block.split())


def main() -> int:
    pages: dict[Path, str] = {}
    for page, template in list_sentences():
        pages[page] = fill(pages.get(page, page.read_text(encoding="utf-8")), template)
    experiments = ROOT / "docs" / "experiments.md"
    for mark, draw in (("embeddings", draw_embeddings), ("prompts", draw_prompts), ("halves", draw_halves)):
        pages[experiments] = renewed(pages[experiments], mark, draw(), "\n")
    return write_or_compare(pages, __file__)


if __name__ == "__main__":
    sys.exit(main())
