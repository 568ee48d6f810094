"""A comparison as one HTML page that can be mailed: no server, no network, no script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ir3de.evaluation.intervals import Estimate, write_points
from ir3de.evaluation.pictures import percent
from ir3de.evaluation.report import FOLDER as REPORT_FOLDER
from ir3de.evaluation.report import POLICY
from ir3de.files.package import VERSION
from ir3de.routing.colours import COLOURS, write_variables
from ir3de.routing.html import load_templates
from ir3de.traffic.comparison_costs import DAYS_PER_MONTH
from ir3de.traffic.comparison_report import Comparison
from ir3de.traffic.estimates import ScoreEstimate
from ir3de.traffic.verdict import Finding, find_direction, write_money

FOLDER = Path(__file__).with_name("templates")
MAX_MOVES = 20
MARGIN = 1.15  # of a picture's range beyond the ends of the interval
KINDS: dict[Finding, str] = {"better": "yes", "worse": "no", "not shown": "perhaps"}


@dataclass(frozen=True)
class Figure:
    """A row of the table of figures; `low`, `value` and `high` are places in its picture, from 0 to 100."""

    name: str
    live: str
    candidate: str
    difference: str
    interval: str
    about: str
    kind: str
    low: float
    value: float
    high: float


def write_page(found: Comparison, *, command: str = "", made: datetime | None = None) -> str:
    """The page as text. Its policy forbids every request and every script."""
    from markupsafe import Markup

    moment = (made or datetime.now(UTC)).astimezone(UTC)
    style = write_variables() + (REPORT_FOLDER / "report.css").read_text(encoding="utf-8")
    style += (FOLDER / "comparison.css").read_text(encoding="utf-8")
    templates = load_templates(FOLDER, REPORT_FOLDER)
    templates.filters |= {"percent": percent, "points": _write_points, "money": _write_money}
    return templates.get_template(
        "comparison.html"
    ).render(
        found=found,
        style=Markup(style),  # noqa: S704 - files of this package
        policy=POLICY,
        figures=list(list_figures(found)),
        verdict=judge_all(found),
        made=f"{moment.day} {moment:%B %Y, %H:%M} UTC",
        command=command,
        version=VERSION,
        moves=found.moves[:MAX_MOVES],
        colours=len(COLOURS),
        most=max(max(one.live, one.candidate) for one in found.shares),
    )


def judge_all(found: Comparison) -> tuple[str, str]:
    """A colour and a heading: better means that one figure is better and none is worse."""
    quality = [find_direction(one.difference) for one in (found.accuracy, found.score) if one is not None]
    cost = find_direction(None if found.cost is None else found.cost.saving)
    candidate, live = found.names[1], found.names[0]
    if "worse" in quality:
        return "no", f"{candidate} routes worse than {live}"
    gain = {"better": " and is cheaper", "worse": " and costs more", "not shown": ""}[cost]
    if "better" in quality:
        return "yes" if cost != "worse" else "perhaps", f"{candidate} routes better than {live}{gain}"
    if cost == "better":
        return "perhaps", f"{candidate} is cheaper than {live}; a difference of quality is not shown"
    if cost == "worse":
        return "perhaps", f"{candidate} costs more than {live}; a difference of quality is not shown"
    return "perhaps", f"No difference between {candidate} and {live} is shown"


def list_figures(found: Comparison) -> Iterator[Figure]:
    """The rows of the table: accuracy, expected score, cost and savings, where they are known."""
    if (accuracy := found.accuracy) is not None:
        about = f"{accuracy.labelled:,} labelled requests: {accuracy.gained:,} now right, {accuracy.lost:,} now wrong"
        sides = percent(accuracy.live.value), percent(accuracy.candidate.value)
        yield _draw("Accuracy", sides, accuracy.difference, _write_points, about, " points")
    if (score := found.score) is not None:
        share = score.difference.unknown_share
        rest = f"; {percent(share)} cannot be known" if share else ""
        sides = percent(score.live.value), percent(score.candidate.value)
        about = f"{score.scored:,} scored answers{rest}"
        yield _draw("Expected score", sides, score.difference, _write_points, about, " points")
    if (cost := found.cost) is not None:
        each = 1000 / max(cost.requests, 1)
        sides = _write_money(each * cost.live), _write_money(each * cost.candidate)
        yield _draw("Cost and saving of 1,000 requests", sides, cost.saving, _write_money, f"clusters: {cost.cluster}s")
        if cost.month is not None:
            volume = f"{found.requests / found.days * DAYS_PER_MONTH:,.0f} requests a month, as in the log"
            yield _draw("Saving a month", ("", ""), cost.month, _write_money, volume)


def _draw(
    name: str,
    sides: tuple[str, str],
    difference: Estimate | ScoreEstimate,
    writer: Callable[[float], str],
    about: str,
    unit: str = "",
) -> Figure:
    reach = MARGIN * max(abs(difference.low), abs(difference.high), 1e-12)
    places = (50 + 50 * one / reach for one in (difference.low, difference.value, difference.high))
    interval = f"{writer(difference.low)} to {writer(difference.high)}"
    shown = writer(difference.value) + unit
    return Figure(name, *sides, shown, interval, about, KINDS[find_direction(difference)], *places)


def _write_points(difference: float) -> str:
    return write_points(difference).replace("-", "−")


def _write_money(amount: float) -> str:
    return write_money(amount).replace("-", "−")
