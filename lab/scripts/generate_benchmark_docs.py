"""Write the benchmarks page and the tables of README and docs/scorers.md from results/; `--check` only compares."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median
from typing import Any

from aim_tables import number, tabulate_aims
from benchmark_notes import (
    BIG_NOTES,
    EXPERTS_NOTES,
    GATEWAY_COSTS,
    GATEWAY_NOTES,
    LIMITS_NOTES,
    RIVAL_NOTES,
    ROBUSTNESS_NOTES,
    SCALE_NOTES,
    SOAK_NOTES,
    SPEED_NOTES,
    VERSIONS_NOTES,
)
from default_tables import find_accuracies, tabulate_defaults, tabulate_targets
from gateway_tables import limits_table, proxy_table, soak_table
from pages import ROOT, raw, renewed, write_or_compare
from rival_tables import rival_tables

PAGE, README, SCORERS = ROOT / "docs" / "benchmarks.md", ROOT / "README.md", ROOT / "docs" / "scorers.md"


CLOSED_FORM = "ir3de (blend, average)"
PACKAGES = ("numpy", "tokenizers", "tokie", "torch", "ray", "starlette", "uvicorn", "uvloop", "httptools", "aiohttp")


def circumstances(document: dict[str, Any]) -> str:
    c = document["circumstances"]
    versions = ", ".join(f"{name} {c[name]}" for name in PACKAGES if c.get(name))
    busy = f" Load before the run: {c['load_before']}." if c.get("load_before") is not None else ""
    return (
        f"{c['processor']}, {c['cores']} cores ({c['machine']}); Python {c['python']}, {versions}; {c['date']}.{busy}"
    )


def speed_table(document: dict[str, Any]) -> list[str]:
    lines = ["| figure | measured |", "|---|---:|"]
    lines += [f"| {figure['name']} | {number(figure['value'])} {figure['unit']} |" for figure in document["figures"]]
    return lines


def accuracy_rows(document: dict[str, Any], suite: str) -> list[dict[str, Any]]:
    return [row for row in document["rows"] if row["suite"] == suite]


def percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def best_of(rows: list[dict[str, Any]], family: str, column: str) -> str:
    found = [row for row in rows if row["router"].startswith(f"{family}, k=") and row[column] is not None]
    if not found:
        return "–"
    best = max(found, key=lambda row: row[column])
    return f"{best[column]:.1f} ({best['router'].rpartition(' ')[2]})"


def summary_table(document: dict[str, Any], defaults: dict[str, Any]) -> list[str]:
    """One line a router and one column a suite; the last line is what a fit chooses by itself."""
    suites = {
        suite: accuracy_rows(document, suite) for suite in dict.fromkeys(row["suite"] for row in document["rows"])
    }
    columns = [(suite, "test") for suite in suites] + [(suite, "ood") for suite in suites if suites[suite][0]["ood"]]
    heads = [suite if column == "test" else f"{suite}, other sources" for suite, column in columns]
    lines = [f"| routing accuracy, % | {' | '.join(heads)} |", "|---|" + "---:|" * len(columns)]
    for family in ("authors' code", "paper as printed"):
        cells = [best_of(suites[suite], family, column) for suite, column in columns]
        lines.append(f"| {family}, best k on the test prompts | {' | '.join(cells)} |")
    for name in ("token ridge, balanced, average", "prompt ridge, average", CLOSED_FORM):
        cells = [
            percent(next(row[column] for row in suites[suite] if row["router"] == name)) for suite, column in columns
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    cells = [percent(find_accuracies(defaults, suite, None, "default")[column]) for suite, column in columns]
    lines.append(f"| **ir3de, the default** | {' | '.join(f'**{cell}**' for cell in cells)} |")
    return lines


def scorer_table(document: dict[str, Any]) -> list[str]:
    """One line a scorer and selector, one column a suite, and the seconds of a fit."""
    suites = list(dict.fromkeys(row["suite"] for row in document["rows"]))
    lines = [f"| whole / first 32 tokens, % | {' | '.join(suites)} | other sources | fit, s |"]
    lines.append("|---|" + "---:|" * (len(suites) + 2))
    for name in dict.fromkeys(row["router"] for row in document["rows"]):
        if name.startswith(("authors' code", "paper as printed")):
            continue
        rows = [row for row in document["rows"] if row["router"] == name]
        cells = [f"{percent(row['test'])} / {percent(row['first_32'])}" for row in rows]
        others = [percent(row["ood"]) for row in rows if row["ood"] is not None]
        seconds = [row["fit_s"] for row in rows]
        cells += [", ".join(others), f"{min(seconds):.1f} to {max(seconds):.1f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def without_sampling(speed: dict[str, Any]) -> str:
    """The same corpus with every window in the sums: slower than the bar, and shown all the same."""
    share = next(
        raw["share_without_sampling"] for f in speed["figures"] if "share_without_sampling" in (raw := f["raw"])
    )
    return (
        f"- *collect without subsampling*, with every window in the sums, on the same corpus: {number(share)} of the "
        "throughput of the bulk call."
    )


def robustness_tables(document: dict[str, Any]) -> list[str]:
    """One table a suite: under each perturbation, the accuracy of either router and the share of flipped routes."""
    lines = []
    for suite in dict.fromkeys(row["suite"] for row in document["rows"]):
        rows = accuracy_rows(document, suite)
        heads = [cell for row in rows for cell in (row["router"], "flipped")]
        lines += [f"### {suite}", "", f"| prompts | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
        cells = [cell for row in rows for cell in (percent(100 * row["accuracy"]), "")]
        lines.append(f"| as they are | {' | '.join(cells)} |")
        for effects in zip(*(row["effects"] for row in rows), strict=True):
            cells = [percent(100 * effect[value]) for effect in effects for value in ("accuracy", "flipped")]
            lines.append(f"| {effects[0]['perturbation']} | {' | '.join(cells)} |")
        lines.append("")
    return lines


def case_table(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The accuracy on random case before and after it was read in lower case, by the router that both files have."""

    def read(document: dict[str, Any]) -> dict[str, tuple[float, float]]:
        rows = [row for row in document["rows"] if row["router"] == CLOSED_FORM]
        effects = {row["suite"]: {one["perturbation"]: one["accuracy"] for one in row["effects"]} for row in rows}
        return {row["suite"]: (row["accuracy"], effects[row["suite"]]["random case"]) for row in rows}

    then, now = read(before), read(after)
    lines = [f"| {CLOSED_FORM} | as they are | random case, before | random case |", "|---|---:|---:|---:|"]
    for suite, (clean, accuracy) in now.items():
        cells = (clean, then[suite][1], accuracy)
        lines.append(f"| {suite} | {' | '.join(percent(100 * value) for value in cells)} |")
    return lines


def scale_table(document: dict[str, Any]) -> list[str]:
    """One line a measure and one column a number of experts."""
    rows = document["rows"]
    lines = [
        f"| | {' | '.join('{:,} experts'.format(row['experts']) for row in rows)} |",
        "|---|" + "---:|" * len(rows),
    ]
    lines += [f"| {label} | {' | '.join(number(row[name]) for row in rows)} |" for name, label in SCALES.items()]
    lines.append(f"| accuracy, held-out prompts, % | {' | '.join(percent(100 * row['accuracy']) for row in rows)} |")
    return lines


SCALES = {
    "route_us": "route one prompt of 67 tokens, µs",
    "tokenizer_us": "of which in the tokenizer, µs",
    "route_batch_us": "route one prompt in a batch, µs",
    "confidence_us": "read a decision's confidence, µs",
    "ranking_us": "read a decision's ranking, µs",
    "collect_s": "count the texts, s",
    "fit_s": "fit from statistics, s",
    "add_s": "add one expert, s",
    "save_s": "save, s",
    "load_s": "load, s",
    "table_mb": "table, MB",
    "ballots_mb": "ballots, MB",
    "saved_mb": "saved router, MB",
    "serving_mb": "serving copy, MB",
    "fit_peak_mb": "peak memory, counting and fitting, MB",
    "peak_mb": "peak memory, also adding, saving and loading, MB",
    "serving_peak_mb": "peak memory, a process that only routes, MB",
}


def section(title: str, name: str, notes: Sequence[str], document: dict[str, Any], *tables: Sequence[str]) -> list[str]:
    """A part of the page: the command, the raw file, notes, the machine, and the tables."""
    given = circumstances(document) if "circumstances" in document else ""
    file = f"results/{name}.json"
    said = document.get("circumstances", {}).get("command") or f"ir3de bench {name} --data DIR --save {file}"
    command = f"`{said}` → [{file}](../{file})"
    parts = [f"## {title}", "", command, "", *notes, "", *([given, ""] if given else [])]
    for table in tables:
        parts += [*table, ""]
    return parts


def page(documents: dict[str, dict[str, Any]]) -> str:
    speed, accuracy, rivals = documents["speed"], documents["accuracy"], documents["rivals"]
    robustness, experts = documents["robustness"], documents["experts"]
    gateway, soak = documents["gateway"], documents["soak"]
    speed_notes = (*SPEED_NOTES, without_sampling(speed))
    gateway_notes = (*GATEWAY_NOTES, "", *GATEWAY_COSTS)
    lines = [
        "# Benchmarks",
        "",
        "This page shows how accurate, fast and robust IR3DE is, next to other routers: first what you might use",
        "instead, then speed, robustness and size, then the gateway, and at the end what we aimed at and missed. Each",
        "section gives the command that measures it and its raw file. `ir3de bench` is in the package `ir3de-lab`:",
        "",
        "<!-- not run: takes minutes, on a quiet machine -->",
        "```console",
        "$ pip install . ./lab",
        "$ ir3de bench speed        # for example",
        "```",
        "",
        "`lab/scripts/generate_benchmark_docs.py` writes this page from the raw files in `results/`; no number of a",
        "table is typed by hand. Machines are noisy, so most figures are ratios of two things that were measured in",
        "turn in the same run. Three measurements are on other pages: [confidence](confidence.md), the",
        "[outcomes](outcomes.md) of models, and what it costs to leave out rare tokens ([privacy](privacy.md)).",
        "`ir3de bench stale` lists the results that were measured before a change of the code that they describe;",
        "⚠ marks their files on all pages.",
        "",
        *why_not(),
        "## Routing accuracy",
        "",
        "The share of test prompts that reach their expert, averaged over the domains. Only training prompts are",
        "fitted. *Other sources* are prompts of the same domains from data sets that the fit never saw. The last line",
        "is what `Router.fit` chooses by itself. [Scorers](scorers.md) has every scorer and selector, also on prompts",
        "cut to 32 tokens, and [experiments](experiments.md) the paper's curve over k. IR3DE was made while these",
        "test prompts were looked at, and nobody redesigned the rivals for them. That [flatters it](why-not.md).",
        "",
        *(
            f"`ir3de bench {name} --data DIR --save results/{name}.json` → {_link(name)}  "
            for name in ("accuracy", "defaults")
        ),
        "",
        *summary_table(accuracy, documents["defaults"]),
        "",
        *section("Rivals", "rivals", RIVAL_NOTES, rivals, rival_tables(rivals)),
        *section("Speed and memory", "speed", speed_notes, speed, speed_table(speed)),
        *section(
            "Robustness",
            "robustness",
            ROBUSTNESS_NOTES,
            robustness,
            case_table(documents["robustness_before"], robustness),
            robustness_tables(robustness),
        ),
        *section("Many experts", "experts", EXPERTS_NOTES, experts, scale_table(experts), speed_table(experts)),
        *big_sections(),
        *scale_section(),
        *section("Gateway", "gateway", gateway_notes, gateway, speed_table(gateway), proxy_table(gateway)),
        *limits_section(),
        *versions_section(),
        *section("Gateway under sustained load", "soak", SOAK_NOTES, soak, speed_table(soak), soak_table(soak)),
        *aims_section(documents),
    ]
    text = "\n".join(lines)
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def _link(name: str) -> str:
    return f"[results/{name}.json](../results/{name}.json)"


def why_not() -> list[str]:
    """The way to the comparison with what people use instead."""
    if not (ROOT / "docs" / "why-not.md").is_file():
        return []
    return ["[Why not X?](why-not.md) compares IR3DE with what people use instead, on the same data in one run.", ""]


def aims_section(documents: dict[str, dict[str, Any]]) -> list[str]:
    """What was aimed at, for those who work on IR3DE."""
    files = ("speed", "experts", "big", "big_cuda", "scale", "gateway", "limits", "versions", "soak")
    measured = {name: raw(name) for name in files if (ROOT / "results" / f"{name}.json").is_file()}
    return [
        "## Aims",
        "",
        "For those who work on IR3DE: what was aimed at before it was measured. The raw files hold each aim as `bar`.",
        "The bars of versions.json are no aims of that kind: they come from the noise of the same run.",
        "",
        *tabulate_aims(measured),
        "",
        "Routing accuracy with the defaults of `Router.fit`, and the area under the recovered performance gap",
        f"({_link('strong_weak')}, see [outcomes](outcomes.md)). No default was chosen by its figure on these",
        "prompts, except what [scorers](scorers.md) names. But they were looked at again and again on the way.",
        "",
        *tabulate_targets(documents["defaults"], documents["strong_weak"]),
    ]


def big_sections() -> list[str]:
    """A fit with a very large embedding, on every machine it was measured on."""
    lines = []
    for name, title in {"big": "Big embeddings", "big_cuda": "Big embeddings, on an accelerator"}.items():
        if (ROOT / "results" / f"{name}.json").is_file():
            document = raw(name)
            device = "--device cuda " if name == "big_cuda" else ""
            document["circumstances"].setdefault("command", f"ir3de bench big {device}--save results/{name}.json")
            lines += section(title, name, BIG_NOTES, document, big_table(document), speed_table(document))
    return lines


def scale_section() -> list[str]:
    """Many machines, many owners; nothing until it was measured."""
    if not (ROOT / "results" / "scale.json").is_file():
        return []
    document = raw("scale")
    size = document["size"]
    notes = [f"{number(size['gigabytes'])} GB of text, {size['rounds']} rounds.", "", *SCALE_NOTES]
    return section("Many machines, many owners", "scale", notes, document, speed_table(document))


def versions_section() -> list[str]:
    """What a request costs now, against an earlier version, if that was measured."""
    if not (ROOT / "results" / "versions.json").is_file():
        return []
    document = raw("versions")
    lines = ["| | before, µs | now, µs | two equal ones |", "|---|---:|---:|---:|"]
    for figure in document["figures"]:
        if "before_us" in (found := figure["raw"]):
            low, *_, high = found["of_two_equal_ones"]
            cells = (f"{median(found[f'{name}_us']):,.0f}" for name in ("before", "now"))
            lines.append(f"| {figure['name']} | {' | '.join(cells)} | {low:.2f} to {high:.2f} |")
    title = "Gateway, against an earlier version"
    return section(title, "versions", VERSIONS_NOTES, document, speed_table(document), lines)


def limits_section() -> list[str]:
    """The heaviest requests and the idle streams; nothing until it was measured."""
    if not (ROOT / "results" / "limits.json").is_file():
        return []
    document = raw("limits")
    tables = speed_table(document), limits_table(document)
    return section("Gateway, what one request may cost", "limits", LIMITS_NOTES, document, *tables)


def big_table(document: dict[str, Any]) -> list[str]:
    """The seconds and megabytes behind the ratios."""
    figures = document["figures"]
    times, sizes = figures[0]["raw"], next(f["raw"] for f in figures if "bound_mb" in f["raw"])
    steps = {
        "product_s": "one bare product",
        "five_s": "fit of five experts",
        "join_s": "add a sixth expert",
        "leave_s": "remove it",
    }
    lines = ["| | |", "|---|---:|", f"| V × h | {times['vocabulary']:,} × {times['width']:,} |"]
    lines += [f"| {label}, s | {number(times[name])} |" for name, label in steps.items()]
    lines.append(f"| peak memory of a fit, MB | {number(sizes['Blend'])} |")
    lines.append(f"| stated bound of that, MB | {number(sizes['bound_mb'])} |")
    lines.append(f"| size of E in float32, MB | {number(sizes['matrix_as_float32_mb'])} |")
    return lines


def readme(text: str, documents: dict[str, dict[str, Any]]) -> str:
    """The README with its line on speed renewed."""
    routing = documents["speed"]["figures"][0]["raw"]
    length, closed, bare = (routing[name] for name in ("mean_tokens", "route_us", "bare_fast_us"))
    if (default := routing.get("default_route_us")) is None:  # files of earlier versions have the closed form alone
        line = f"In closed form, a prompt of {length:.0f} tokens takes {closed:.0f} µs end to end, of which the bare "
        line += f"tokenizer call is {bare:.0f}."
    else:
        line = (
            f"A prompt of {length:.0f} tokens takes {default:.0f} µs end to end, and {closed:.0f} µs in closed form; "
        )
        line += f"the bare tokenizer call alone takes {bare:.0f} µs."
    return renewed(text, "speed", line)


def main() -> int:
    names = ("speed", "accuracy", "defaults", "strong_weak", "rivals", "robustness", "experts", "gateway", "soak")
    documents = {name: raw(name) for name in (*names, "robustness_before")}
    current = README.read_text(encoding="utf-8")
    scorers = SCORERS.read_text(encoding="utf-8")
    wanted = {
        PAGE: page(documents),
        README: readme(current, documents),
        SCORERS: renewed(
            renewed(scorers, "scorers", "\n".join(scorer_table(documents["accuracy"])), "\n"),
            "defaults",
            "\n".join(tabulate_defaults(documents["defaults"])),
            "\n",
        ),
    }
    return write_or_compare(wanted, __file__)


if __name__ == "__main__":
    raise SystemExit(main())
