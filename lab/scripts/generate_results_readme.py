"""Write results/README.md: every table of the experiments, how it was made, every raw file; `--check` only compares.

The summary table also goes into docs/experiments.md, between two marks.

The script fails if a table has no raw file behind it, or if a raw file is not listed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ir3de_lab.catalogue import FRESH, MEASURES, find_standings, judge, published
from ir3de_lab.experiments import settings
from ir3de_lab.experiments.cells import ABSENT, Table, show_sign
from ir3de_lab.experiments.choices import Choices
from ir3de_lab.experiments.clusters import CLUSTERS
from ir3de_lab.experiments.complexity import COMPLEXITY
from ir3de_lab.experiments.left_out import LEFT_OUT
from ir3de_lab.experiments.reachable import DRAWS
from ir3de_lab.experiments.rendering import markdown
from ir3de_lab.experiments.results import (
    CHOICES,
    DECENTRALISED,
    DRAWN,
    DYNAMIC,
    EXPECTATIONS,
    OUTCOMES,
    REFERENCE,
    TRAINING,
    Results,
    find,
)
from ir3de_lab.experiments.standings import DEFAULT, ORACLE, RANDOM, Standing, find_average_signs, standings
from ir3de_lab.experiments.tables import tables
from pages import MARK

ROOT = Path(__file__).parents[2]
FIGURES = "docs/images/experiments"
ANSWERS, HELD_OUT = "answers", "held_out"
SAME_SOURCES = {"e6437441c79f5afb": "15a7d61c76fa"}  # of files whose commit was never published: one that has them
OPEN = (  # the others are folded away
    "main", "needs", "spending", "beside", "truncated-authors", "reference", "drawn", "reachable", "dynamic",
    "decentralised",
)  # fmt: skip

RAW = {  # what may lie in a setting's folder
    OUTCOMES: "the outcome of every expert on every test item",
    REFERENCE: "the likelihood of every reference answer under every expert",
    DRAWN: "the outcome of every expert's drawn answers",
    DRAWS: "the points of every single draw",
    CLUSTERS: "which items belong together",
    TRAINING: "the experts' training losses",
    DYNAMIC: "experts added and removed",
    DECENTRALISED: "domains counted in separate processes",
    COMPLEXITY: "what routers cost as domains, texts and prompts grow",
    LEFT_OUT: "the routers that were not run, and why",
}
OVER_ALL = {
    "k": "Routing accuracy over the number of tokens that vote",
    "modem": "MoDEM's routing accuracy over learning rates",
    "prompts": "Routing accuracy over the number of training prompts: mean and standard deviation of ten draws",
    "strength": "Routing accuracy over the strength λ of the penalty",
    "tokens": "Routing accuracy over the number of tokens read; ir3de in closed form",
    "training": "The experts' training losses",
    "dynamic": "Experts added and removed",
}
BY_SETTING = {
    "cost": "quality against cost",
    "complexity": "what routers cost as they grow",
    "confusion": "where items were sent",
    "spending": "quality against money",
}
SINGLE = "the best single expert"
COMPARED = (
    f"▲ surely above and ▼ surely below **{DEFAULT}**, the default router, in the same column. Intervals leave out "
    "whole\ndocuments or questions. Holm's rule over all rows of the setting's main table keeps the chance of any "
    "false\nsign in a column at 5 %. △ and ▽: the row's own 95 % interval excludes zero, but among so many rows that "
    "may be\nchance. Without a sign, the two are statistically indistinguishable."
)
MARKS = "<!-- experiments -->", "<!-- /experiments -->"
WEIGHTS = "mean of the experts' weights"
SUMMED = {  # lines of the summary, and how the names of their routers begin: of several the best is shown
    "best single expert": (SINGLE,),
    WEIGHTS: ("Experts average", "Average of fine tuned"),
    "random": (RANDOM,),
    "kNN, best k and pooling (MiniLM-L6)": ("kNN",),
    "kNN, best k and pooling (all-mpnet-base-v2)": ("kNN",),
    "MoDEM, frozen, best rate (MiniLM-L6)": ("MoDEM-small, frozen",),
    "MoDEM, frozen, best rate (all-mpnet-base-v2)": ("MoDEM-large, frozen",),
    "MoDEM, fine-tuned, best rate (MiniLM-L6)": ("MoDEM-small, fine-tuned",),
    "MoDEM, fine-tuned, best rate (all-mpnet-base-v2)": ("MoDEM-large, fine-tuned",),
    "BERT-router, best rate (MiniLM-L6)": ("BERT-router",),
    "BERT-router, best rate (all-mpnet-base-v2)": ("BERT-router",),
    "MLP-router": ("MLP-router",),
    "TF-IDF + logistic regression": ("TF-IDF",),
    "naive Bayes": ("naive Bayes",),
    "IR3DE-all, authors' code": ("IR3DE-all (authors' code)",),
    "IR3DE-avg, authors' code": ("IR3DE-avg (authors' code)",),
    "IR3DE, the paper's router, best k": ("IR3DE, best k",),
    "**ir3de**": (DEFAULT,),
    "**ir3de**, closed form": (f"{DEFAULT}, closed form",),
    "oracle": (ORACLE,),
}
ENCODERS = ("MiniLM-L6", "all-mpnet-base-v2")  # those that a line of the summary is about
WHY_NOT = "n/a: {}."
NO_WEIGHTS = "the models have different shapes, so their weights have no mean"
NOT_RUN = "a router that was not run, for the reason that the tables of the setting give"
INTRODUCTION = """# Results

This folder holds the raw files behind every published number of this repository.
`lab/scripts/generate_results_readme.py` writes this page from them; no number is typed by hand. To print the same
tables and draw the figures from these files alone:

```console
$ pip install . ./lab                # ir3de-lab brings the command `ir3de bench`
$ ir3de bench tables                 # --format latex prints LaTeX
$ ir3de bench figures
```

[docs/experiments.md](../docs/experiments.md) describes the experiments and what came out of them.
"""


def page(root: Path, found: Sequence[Results], made: Mapping[str, Sequence[Table]]) -> str:
    """The whole page."""
    here = [results.setting for results in found]
    lines = [INTRODUCTION]
    lines += [f"- [{results.title}](#{_anchor(results.title)})" for results in found]
    lines += ["- [Figures](#figures)"] if any(_pictures(root, OVER_ALL)) else []
    lines += ["- [Other raw files](#other-raw-files)", ""]
    for name in settings.SHIPPED:
        if name not in here:
            lines += [f"There are no raw files of the setting `{name}` yet.", ""]
    for results in found:
        lines += _section(root, results, made[results.setting])
    if any(_pictures(root, OVER_ALL)):
        lines += ["## Figures", "", *_pictures(root, OVER_ALL)]
    lines += ["## Other raw files", "", "| file | command | shown in |", "|---|---|---|"]
    stale = {one.file for one in find_standings(root / "results") if one.is_stale}
    for path in _others(root):
        entry = published().get(path.name)
        command, shown, is_stale = (entry.command, entry.page, path.name in stale) if entry else ("", "", False)
        link = f"[{path.name}]({path.name}){MARK if is_stale else ''}"
        lines.append(f"| {link} | `{command}` | [docs/{shown}](../docs/{shown}) |")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def summary(found: Sequence[Results]) -> str:
    """One line a router and one column a setting: the normalised average, and in brackets the routing accuracy."""
    # the others are about money, or another seed of the same
    found = [results for results in found if results.choices and results.setting in settings.SHIPPED]
    rows = {results.setting: standings(results) for results in found}
    signs = {setting: find_average_signs(given) for setting, given in rows.items()}
    lines = ["", f"| router | {' | '.join(results.title for results in found)} |", "|---|" + "---:|" * len(found)]
    for name, starts in SUMMED.items():
        encoder = next((title for title in ENCODERS if title in name), "")
        of_encoder = {setting: [row for row in given if encoder in row.name] for setting, given in rows.items()}
        cells = [_cell(_best(of_encoder[results.setting], starts), signs[results.setting]) for results in found]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    absent = [line for line in lines if f" {ABSENT} " in line]
    reasons = dict.fromkeys(NO_WEIGHTS if line.startswith(f"| {WEIGHTS} ") else NOT_RUN for line in absent)
    note = ["", WHY_NOT.format("; or ".join(reasons))] if reasons else []
    return "\n".join([*lines, "", COMPARED, *note, ""])


def _best(rows: Sequence[Standing], starts: tuple[str, ...]) -> Standing | None:
    if starts == (SINGLE,):
        chosen = [row for row in rows if row.expert is not None]
    elif starts[0].startswith(DEFAULT):  # and not what was tuned, or fitted from outcomes
        chosen = [row for row in rows if row.name in starts]
    else:
        chosen = [row for row in rows if row.name.startswith(starts) and "protocol" not in row.name]
        chosen = [row for row in chosen if row.name in starts] or chosen  # the default, and not what begins like it
    return max(chosen, key=lambda row: row.performance.average, default=None)


def _cell(row: Standing | None, signs: Mapping[str, tuple[int, int]]) -> str:
    if row is None:
        return ABSENT
    accuracy = row.performance.accuracy
    shown = f"{row.performance.average:.1f}"
    routed = row.expert is None and row.name != ORACLE and accuracy is not None
    return (f"{shown} ({accuracy:.1f})" if routed else shown) + show_sign(*signs[row.name])


def _summed_up(root: Path, table: str) -> Iterator[tuple[Path, str]]:
    """The pages that show the summary, with the one they should show."""
    for page_with in (root / "README.md", root / "docs" / "experiments.md"):
        text = page_with.read_text(encoding="utf-8") if page_with.is_file() else ""
        if MARKS[0] in text:
            before, _, rest = text.partition(MARKS[0])
            yield page_with, before + MARKS[0] + table + MARKS[1] + rest.partition(MARKS[1])[2]


def problems(root: Path, found: Sequence[Results], made: Mapping[str, Sequence[Table]]) -> Iterator[str]:
    """Tables without raw files, and raw files without a line."""
    for results in found:
        for table in made[results.setting]:
            gone = [source for source in table.sources if not (results.folder / source).exists()]
            if not table.sources or gone:
                yield f"the table '{table.title}' has no raw file {', '.join(gone)}"
    for path in _others(root):
        if path.name not in published():
            yield f"results/{path.name} is not listed: say in ir3de_lab/catalogue/catalogue.toml which command makes it"
    known = {results.folder.name for results in found}
    for path in sorted((root / "results").rglob("*")):
        parts = path.relative_to(root / "results").parts
        inside = len(parts) == 3 and parts[1] in (CHOICES, EXPECTATIONS, ANSWERS, HELD_OUT)
        listed = len(parts) > 1 and parts[0] in known and (parts[1] in RAW or inside)
        if path.is_file() and len(parts) > 1 and not (listed and path.suffix in (".json", ".xz")):
            yield f"results/{'/'.join(parts)} is not listed: no table is made of it"


def _section(root: Path, results: Results, made: Sequence[Table]) -> Iterator[str]:
    yield f"## {results.title}\n"
    yield from _told(results)
    for table in made:
        if table.name in OPEN:
            yield markdown(table)
    pictures = {f"{kind}-{results.setting}": f"{results.title}: {what}" for kind, what in BY_SETTING.items()}
    yield from _pictures(root, pictures)
    for table in made:
        if table.name not in OPEN:
            yield f"<details><summary>{table.title}</summary>\n"
            yield markdown(table)
            yield "</details>\n"
    yield "Raw files:\n"
    for name, what in RAW.items():
        if (results.folder / name).is_file():
            yield f"- [{name}]({results.folder.name}/{name}): {what}"
    if results.choices:
        counted = f"the choices of {len(results.choices)} routers, one file each"
        yield f"- [{CHOICES}/]({results.folder.name}/{CHOICES}): {counted}"
    if results.expectations:
        counted = f"what {len(results.expectations)} routers expect of every model, one file each"
        yield f"- [{EXPECTATIONS}/]({results.folder.name}/{EXPECTATIONS}): {counted}"
    if (results.folder / ANSWERS).is_dir():
        yield f"- [{ANSWERS}/]({results.folder.name}/{ANSWERS}): the texts that every model generated, one file each"
    if (results.folder / HELD_OUT).is_dir():
        yield f"- [{HELD_OUT}/]({results.folder.name}/{HELD_OUT}): what was generated to the held-out prompts"
    yield ""


def _told(results: Results) -> Iterator[str]:
    """How the outcomes were made, as the raw file says it."""
    about: dict[str, Any] = dict(results.matrix.about)
    if command := about.get("command"):
        commit, same = about.get("commit"), SAME_SOURCES.get(about.get("sources", ""))
        where = f" at commit `{commit}`" if commit else ""
        if same is not None:  # the commit that is named was never published
            where += f", which is not in this repository; commit `{same}` has the same sources"
        yield f"The outcomes were made by `{command}`{where}.\n"
    hardware = [str(about[name]) for name in ("accelerator", "processor") if about.get(name)]
    hardware += [f"{about['cores']} cores"] if about.get("cores") else []
    versions = [f"{name} {about[name]}" for name in ("ir3de", "python", "torch", "numpy") if about.get(name)]
    words = [", ".join(part) for part in (hardware, versions) if part]
    words += [str(about["date"])] if about.get("date") else []
    if words:
        yield f"{'; '.join(words)}.\n"
    for name, column in about.get("columns", {}).items():
        if column.get("note"):
            yield f"Column {name}: {column['note']}.\n"
    for domain, choice in about.get("chosen", {}).items():
        scores = ", ".join(f"{name} {score:.1f} %" for name, score in choice["scores"].items())
        yield f"The expert of {domain} was chosen by {choice['prompts']} held-out prompts: {scores}.\n"
    for part in ("recipe", "evaluation"):
        if isinstance(about.get(part), dict):
            facts = ", ".join(f"{name.replace('_', ' ')} {_value(value)}" for name, value in about[part].items())
            yield f"{part.capitalize()}: {facts}.\n"
    for ran, some in group_by_command(results.choices).items():
        is_stale = any(judge(one.about.get(MEASURES))[0] != FRESH for one in some)
        yield f"Choices were made by `{ran}`{MARK if is_stale else ''}.\n"


def group_by_command(choices: Sequence[Choices]) -> dict[str, list[Choices]]:
    """The routers' choices by the command that made them, where it is known."""
    found: dict[str, list[Choices]] = {}
    for one in choices:
        if command := one.about.get("command"):
            found.setdefault(str(command), []).append(one)
    return found


def _value(value: object) -> str:
    if isinstance(value, dict):
        return f"({', '.join(f'{name} {_value(inner)}' for name, inner in value.items())})"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _pictures(root: Path, names: Mapping[str, str]) -> list[str]:
    """Those figures that have been drawn."""
    return [
        f"![{what}](../{FIGURES}/{name}.png)\n"
        for name, what in names.items()
        if (root / FIGURES / f"{name}.png").is_file()
    ]


def _others(root: Path) -> list[Path]:
    return sorted((root / "results").glob("*.json"))


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    arguments = parser.parse_args()
    root, target = arguments.root, arguments.root / "results" / "README.md"
    found, _ = find(root / "results")
    made = {results.setting: tables(results) for results in found}
    wrong = list(problems(root, found, made))
    wanted = page(root, found, made)
    if arguments.check:
        stale = [path.name for path, text in _summed_up(root, summary(found)) if path.read_text("utf-8") != text]
        wrong += [f"the summary in {name} is not what results/ says: run this script" for name in stale]
        if not target.is_file() or target.read_text(encoding="utf-8") != wanted:
            wrong.append("results/README.md is not what results/ says: run lab/scripts/generate_results_readme.py")
    else:
        target.write_text(wanted, encoding="utf-8")
        for path, text in _summed_up(root, summary(found)):
            path.write_text(text, encoding="utf-8")
    for problem in wrong:
        print(problem, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
