"""Renew the tables of docs/reliability.md from results/trust.json and results/soak.json; `--check` only compares."""

from __future__ import annotations

from typing import Any

from pages import ROOT, circumstances, raw, renew_parts, write_or_compare

PAGE = ROOT / "docs" / "reliability.md"
NUMBERS = ("injected", "served", "refused", "lost", "wrong")


def summary(document: dict[str, Any]) -> list[str]:
    inputs, found = (_sum(document["campaigns"], name) for name in ("inputs", "findings"))
    faults = document["faults"]
    counts = {name: sum(fault[name] for fault in faults) for name in NUMBERS}
    broken = sum(bool(fault["problems"]) for fault in faults)
    parsers, kinds, minutes, seed = len(document["campaigns"]), len(faults), document["minutes"], document["seed"]
    took = "1 minute" if minutes == 1 else f"{minutes:g} minutes"
    return [
        f"The last run took about {took} with seed {seed}: **{inputs:,} inputs** were tried at {parsers} "
        f"parsers, with {found:,} findings. **{counts['injected']:,} faults** of {kinds} kinds were injected, of which "
        f"{broken} did not hold. Meanwhile {counts['served']:,} requests were served, {counts['refused']:,} refused, "
        f"**{counts['lost']:,} lost** and **{counts['wrong']:,} answered wrongly**."
    ]


def _sum(campaigns: list[dict[str, Any]], name: str) -> int:
    values = [campaign[name] for campaign in campaigns]
    return sum(len(value) if isinstance(value, list) else value for value in values)


def campaigns(document: dict[str, Any]) -> list[str]:
    lines = ["| fuzzer | inputs | accepted | refused | findings |", "|---|---:|---:|---:|---:|"]
    for one in document["campaigns"]:
        cells = " | ".join(f"{one[name]:,}" for name in ("inputs", "accepted", "refused"))
        lines.append(f"| {one['name']} | {cells} | {len(one['findings'])} |")
    told = [
        f"- {one['name']}, input {finding['number']}: {finding['what']}"
        for one in document["campaigns"]
        for finding in one["findings"]
    ]
    return [*lines, *(["", "Findings:", "", *told] if told else [])]


def faults(document: dict[str, Any]) -> list[str]:
    lines = [f"| fault | {' | '.join(NUMBERS)} | |", "|---|" + "---:|" * len(NUMBERS) + "---|"]
    for one in document["faults"]:
        verdict = f"skipped: {one['skipped']}" if one["skipped"] else "**broken**" if one["problems"] else "held"
        lines.append(f"| {one['name']} | {' | '.join(f'{one[name]:,}' for name in NUMBERS)} | {verdict} |")
    told = [f"- {one['name']}: {problem}" for one in document["faults"] for problem in one["problems"]]
    return [*lines, *(["", "What did not hold:", "", *told] if told else [])]


def soak(document: dict[str, Any]) -> list[str]:
    found = raw("soak")
    lines = ["| | |", "|---|---:|", f"| requests | {found['report']['plan']['requests']:,} |"]
    lines += [f"| {figure['name']} | {figure['value']:.4g} {figure['unit']} |" for figure in found["figures"]]
    return lines


def main() -> int:
    parts = (summary, campaigns, faults, soak, circumstances)
    return write_or_compare({PAGE: renew_parts(PAGE.read_text(encoding="utf-8"), raw("trust"), parts)}, __file__)


if __name__ == "__main__":
    raise SystemExit(main())
