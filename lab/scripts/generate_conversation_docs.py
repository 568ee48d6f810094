"""Renew tables of docs/conversations.md and docs/replicas.md from raw figures in results/; `--check` only compares."""

from __future__ import annotations

from typing import Any

from pages import ROOT, circumstances, raw, renew_parts, write_or_compare

PAGE, REPLICAS = ROOT / "docs" / "conversations.md", ROOT / "docs" / "replicas.md"
GROUPS = {
    "all": "all",
    "first": "first",
    "same subject": "same subject",
    "without content": "follow-ups without content",
    "pronouns": "with a pronoun",
    "follow-ups that stay": "stay",
    "switches": "switches",
    "pastes": "pastes",
    "pastes, no subject": "pastes, no subject",
    "tool loops": "tool loops",
}


def accuracy(document: dict[str, Any]) -> list[str]:
    lines = [f"| data | routing | {' | '.join(GROUPS.values())} |", "|---|---|" + "---:|" * len(GROUPS)]
    for row in document["rows"]:
        cells = [_percent(row["accuracy"].get(group)) for group in GROUPS]
        mark = "**" if row["data"] == "mean" else ""
        lines.append(f"| {mark}{row['data']}{mark} | {row['routing']} | {' | '.join(cells)} |")
    return lines


def costs(document: dict[str, Any]) -> list[str]:
    rows = document["costs"]
    kinds = list(dict.fromkeys(row["turns"] for row in rows))
    lines = [f"| data | {' | '.join(f'{kind} turns' if kind == 'all' else kind for kind in kinds)} |"]
    lines.append("|---|" + "---:|" * len(kinds))
    for data in dict.fromkeys(row["data"] for row in rows):
        own = {row["turns"]: row["ratio"] for row in rows if row["data"] == data}
        lines.append(f"| {data} | {' | '.join(f'{own[kind]:.2f}' for kind in kinds)} |")
    return lines


def weights(document: dict[str, Any]) -> list[str]:
    """The grid's rows that differ from the defaults in one weight."""
    chosen, lines = document["weights"], ["| weight | all | follow-ups | switches | pastes | pastes, no subject |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    found = []
    for row in document["choice"]["tried"]:
        other = [name for name in chosen if row["weights"][name] != chosen[name]]
        if len(other) <= 1:
            groups = ("all", "follow-ups", "switches", "pastes", "pastes, no subject")
            cells = " | ".join(_percent(row["accuracy"].get(group)) for group in groups)
            name = f"`{other[0]}` = {row['weights'][other[0]]:g}" if other else "the defaults"
            found.append((len(other), f"| {name} | {cells} |"))
    defaults = ", ".join(f"`{name}` = {value:g}" for name, value in chosen.items())
    return [f"The defaults are {defaults}.", "", *lines, *(line for _, line in sorted(found))]


def gateway(document: dict[str, Any]) -> list[str]:
    """The means over the sets through the gateway, and the gain of follow-ups."""
    groups = {**GROUPS, "follow-ups": "follow-ups"}
    shown = ("all", "first", "same subject", "follow-ups", "switches", "pastes", "tool loops")
    rows = [row for row in document["rows"] if row["data"] == "mean"]
    lines = [f"| routing | {' | '.join(groups[name] for name in shown)} |", "|---|" + "---:|" * len(shown)]
    lines += [f"| {row['routing']} | {' | '.join(_percent(row['accuracy'][name]) for name in shown)} |" for row in rows]
    by_way = {row["routing"]: row["accuracy"]["follow-ups"] for row in rows}
    same = f"Of {document['turns']:,} turns, {document['different']} went elsewhere than the library sends them."
    gain = f"Follow-ups gain {by_way['gateway'] - by_way['last message']:.1f} points over routing by the last message."
    return [*lines, "", f"{same} {gain}"]


def chat_switches(document: dict[str, Any]) -> list[str]:
    """Switches in chats, over all sets."""
    return _tabulate_switches([row for row in document["switches"] if row["data"] == "all"], "gateway")


def agents(document: dict[str, Any]) -> list[str]:
    """Switches in traces of agents, over all sets."""
    return _tabulate_switches([row for row in document["rows"] if row["data"] == "all"], "one pin for the session")


def _tabulate_switches(rows: list[dict[str, Any]], base: str) -> list[str]:
    """The rows of all sets together; switches also as multiples of those of the row `base`."""
    whole = next(row for row in rows if row["routing"] == base)
    lines = ["| routing | switches | × | needed | unneeded | × | cached tokens kept | right |", "|---|" + "---:|" * 7]
    for row in rows:
        counts = [f"{row[name]:,} | {row[name] / whole[name]:.2f}" for name in ("switches", "unneeded")]
        shares = f"{row['kept']:.1f} % | {row['accuracy']:.1f} %"
        lines.append(f"| {row['routing']} | {counts[0]} | {row['needed']:,} | {counts[1]} | {shares} |")
    return lines


def affinity(document: dict[str, Any]) -> list[str]:
    """What conversations keep of their caches with several replicas."""
    lines = ["| replicas | requests | kept with `affinity: 0` | kept with `affinity: 2` |", "|---:|---:|---:|---:|"]
    for replicas in dict.fromkeys(row["replicas"] for row in document["rows"]):
        own = {row["affinity"]: row for row in document["rows"] if row["replicas"] == replicas}
        shares = " | ".join(f"{own[bound]['kept']:.1f} %" for bound in (0.0, 2.0))
        lines.append(f"| {replicas} | {own[2.0]['requests']:,} | {shares} |")
    return lines


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def main() -> int:
    text = renew_parts(
        PAGE.read_text(encoding="utf-8"), raw("conversations"), (accuracy, costs, weights, circumstances)
    )
    text = renew_parts(text, raw("chats"), (gateway, chat_switches))
    text = renew_parts(text, raw("agents"), (agents,))
    replicas = renew_parts(REPLICAS.read_text(encoding="utf-8"), raw("affinity"), (affinity,))
    return write_or_compare({PAGE: text, REPLICAS: replicas}, __file__)


if __name__ == "__main__":
    raise SystemExit(main())
