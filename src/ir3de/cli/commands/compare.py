"""compare: two routers on the same logged traffic, with proof in accuracy, scores and money."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

import ir3de
from ir3de import files
from ir3de.cli import lib, options
from ir3de.cli.comparison import view_comparison
from ir3de.cli.costs import once_weight_option, weigh
from ir3de.cli.output import Block, Output, reading, saved_line
from ir3de.cli.saving import load_router

Function = TypeVar("Function", bound=Callable[..., Any])

DAY_FORMATS = ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S")
LOG_SUFFIXES = (".sqlite",)


def _parse_page_path(context: click.Context, parameter: click.Parameter, value: str | None) -> Path | None:
    return None if value is None else options.check_suffix(value, (".html", ".htm"), "a comparison is a web page")


def _day_option(name: str, what: str) -> Callable[[Function], Function]:
    return click.option(
        name, type=click.DateTime(DAY_FORMATS), metavar="DAY", help=f"Only requests {what} that day, UTC."
    )


@click.command()
@click.argument("first", metavar="LIVE", type=click.Path(path_type=Path))
@click.argument("second", metavar="[CANDIDATE]", type=click.Path(path_type=Path), required=False)
@click.option(
    "--from",
    "sources",
    multiple=True,
    required=True,
    metavar="FOLDER",
    help="A gateway's feedback or state folder, or a decision log (JSON lines); may be repeated.",
)
@click.option(
    "--against", metavar="EXPERT", help='Compare the only router with one expert for everything: "always gpt-4o".'
)
@click.option(
    "--prices",
    "prices_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Prices of experts (JSON or YAML), or a gateway's configuration.",
)
@_day_option("--since", "from")
@_day_option("--until", "before")
@options.number_option("--examples", "examples", least=0, default=10, help="List N of the prompts that decide.")
@click.option(
    "--html", "page", metavar="FILE", callback=_parse_page_path, help="Also write one page that can be mailed."
)
@options.force_option
@once_weight_option
@options.output_options
def compare(
    first: Path,
    second: Path | None,
    sources: tuple[str, ...],
    against: str | None,
    prices_path: Path | None,
    since: datetime | None,
    until: datetime | None,
    examples: int,
    page: Path | None,
    force: bool,
    weights: dict[str, float],
    out: Output,
) -> None:
    """Compare a live router with a candidate on logged traffic: is it better, and what does it save?

    Both route the logged prompts again. Accuracy is measured on labelled prompts, the expected score on scored answers,
    and cost by the real token counts and prices. Differences are paired, and have 95 % intervals by conversation. What
    the log does not show is listed: an answer that no expert ever gave has no score, so the interval holds for any.

    With one router, it is compared with what was decided then, or with --against one expert for everything.

    \b
    Examples:
      ir3de compare live candidate --from feedback
      ir3de compare live candidate --from feedback --prices prices.json --html comparison.html
      ir3de compare router --against "always gpt-4o" --from feedback
      ir3de compare candidate --from decisions.jsonl
    """
    if second is not None and against is not None:
        raise click.UsageError("--against compares one router with an expert: leave out one of the two routers")
    if page is not None:
        options.refuse_existing(page, force=force)
    given = {} if prices_path is None else lib.prices.read_prices(prices_path)
    live: Any = against
    names = (against if against and against.startswith("always ") else f"always {against}") if against else "log"
    if second is not None:
        live, names = load_router(first), _name(first, second)
    candidate_path = second or first
    candidate = weigh(load_router(candidate_path), weights)
    shown = (names, _name(candidate_path, first if second else None))
    damage = lib.decision_log.DamagedLines()
    with ExitStack() as bars:
        traffic = _Traffic(sources, damage, given, out, bars)
        records = _select(traffic, since, until)
        with out.spinner("routing"):
            found = lib.traffic.compare(live, candidate, records, prices=traffic.prices, names=shown, examples=examples)
    if damage.lines:
        out.warn(f"{damage.lines:,} rows are damaged or not decisions and were skipped. {damage.first}")
    found = lib.verdict.note_damage(found, damage.lines)
    if page is not None:
        content = lib.comparison_page.write_page(found, command=_write_command()).encode()
        files.make_folder(page.parent)
        files.write(page, content)
    document = {**found.to_dict(), "moved": found.moved, "page": None if page is None else str(page)}
    saved: list[Block] = [] if page is None else ["", saved_line(page, page.stat().st_size)]
    out.show(document, (*view_comparison(found, out), *saved))


def _name(path: Path, other: Path | None) -> str:
    """The router's folder; with its parent if another one has the same name."""
    own = path.resolve()
    return own.name if other is None or other.resolve().name != own.name else f"{own.parent.name}/{own.name}"


def _write_command() -> str:
    return shlex.join(["ir3de", *sys.argv[1:]])


class _Traffic:
    """The records of journals and decision logs, and the prices of the latter once they are read."""

    def __init__(
        self, sources: Iterable[str], damage: Any, given: dict[str, Any], out: Output, bars: ExitStack
    ) -> None:
        self._damage, self._out, self._bars = damage, out, bars
        self.prices = given
        self._given = frozenset(given)
        folders = [one for one in sources if one != "-" and (Path(one).is_dir() or Path(one).suffix in LOG_SUFFIXES)]
        self._journals = [lib.traffic.Journal.open(one) for one in folders]
        self._logs = [one for one in sources if one not in folders]
        self._bytes = lib.corpora.total_bytes(self._logs) if self._logs else None  # a misspelt path is found first

    def __iter__(self) -> Iterator[ir3de.traffic.TrafficRecord]:
        for journal in self._journals:
            yield from journal.read(on_damage=self._damage)
        if not self._logs:
            return
        on_bytes = self._bars.enter_context(reading(self._out, "reading", self._bytes))
        rows = lib.corpora.read_rows(self._logs, on_bytes=on_bytes, on_damage=self._damage)
        log = lib.decision_log.DecisionLog(rows, self._damage)
        yield from log
        self.prices |= {name: price for name, price in log.prices.items() if name not in self._given}


def _select(
    records: Iterable[ir3de.traffic.TrafficRecord], since: datetime | None, until: datetime | None
) -> Iterator[ir3de.traffic.TrafficRecord]:
    first, last = (None if one is None else one.replace(tzinfo=UTC).timestamp() for one in (since, until))
    for record in records:
        if (first is None or record.time >= first) and (last is None or record.time < last):
            yield record
