"""Statistics files on the command line: their labels, their content, and where they are saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.options import gather_options
from ir3de.cli.output import FAINT, Output, facts, hint, line, size

if TYPE_CHECKING:
    from ir3de.statistics.contributions import Contribution
    from ir3de.statistics.domain import Statistics
    from ir3de.statistics.sample import Sample


@dataclass(frozen=True)
class Labels:
    """The id and the owner of a contribution."""

    id: str | None
    owner: str

    def of(
        self, statistics: Statistics, given: Sequence[Contribution], *, recipe: Mapping[str, Any] | None = None
    ) -> Contribution:
        """The statistics as a contribution made of those given; refuses one that was given twice."""
        from ir3de.statistics.contributions import Contribution, find_holders

        parts = find_holders(given, "these files are not all different: one")
        return Contribution.of(statistics, owner=self.owner, id=self.id, recipe=recipe, parts=parts)


def _make_labels(owner: str, named: str | None) -> Labels:
    from ir3de.statistics.contributions import check_id, check_owner

    return Labels(None if named is None else check_id(named), check_owner(owner))


label_options = gather_options(
    "labels",
    _make_labels,
    click.option("--owner", metavar="LABEL", default="", help="Who owns the texts; a router's ledger shows it."),
    click.option("--id", "named", metavar="ID", help="Id of the contribution.  [default: made of its hash]"),
)


def statistics_facts(contribution: Contribution) -> Any:
    """What statistics hold, as a small table."""
    statistics = contribution.statistics()
    sums = statistics.sums
    windows = f"{sums.windows:,} windows of about {sums.window} tokens" if sums is not None else "none: histogram only"
    how = ", ".join(_list_options(contribution.recipe))
    return facts(
        [
            ("contribution", f"{contribution.id}{f' of {contribution.owner}' if contribution.owner else ''}"),
            ("prompts", f"{statistics.prompts:,}"),
            ("tokens", f"{statistics.tokens:,}"),
            ("prompt sums", windows),
            ("prompts kept", _describe_sample(statistics.sample)),
            ("collected with", how or ("not known" if not contribution.recipe else "no option")),
            ("merged from", f"{len(contribution.parts)} contributions" if contribution.parts else "none: as collected"),
            ("embedding", statistics.fingerprint[:12]),
            ("digest", statistics.digest),
        ]
    )


def _describe_sample(sample: Sample | None) -> str:
    if sample is None:
        return "none"
    sources = sample.count_sources()
    whence = f", from {sources:,} source{'s' * (sources > 1)}" if sources else ""
    return f"{len(sample):,}, as token ids{whence}"


def _list_options(recipe: Mapping[str, Any]) -> Iterator[str]:
    """The options that the texts were collected with, except those with default values."""
    defaults = {"window": 128, "subsample": 1, "min_count": 1, "prompt_sums": True}
    for given, value in recipe.items():
        name = "subsample" if given == "sample" else given  # its name in version 0.1
        if value is not None and value != defaults.get(name):
            yield "--histogram-only" if name == "prompt_sums" else f"--{name.replace('_', '-')} {value}"


def describe(contribution: Contribution) -> dict[str, Any]:
    """Plain values, ready for JSON."""
    statistics = contribution.statistics()
    return {
        "id": contribution.id,
        "owner": contribution.owner,
        "prompts": statistics.prompts,
        "tokens": statistics.tokens,
        "windows": None if statistics.sums is None else statistics.sums.windows,
        "kept": contribution.kept,
        "sources": 0 if statistics.sample is None else statistics.sample.count_sources(),
        "embedding": statistics.fingerprint,
        "digest": contribution.digest,
        "sha256": contribution.sha256,
        "parts": list(contribution.parts),
        "recipe": dict(contribution.recipe),
    }


def refuse_repeated(paths: tuple[str, ...]) -> None:
    twice = next((path for index, path in enumerate(paths) if path in paths[:index]), None)
    if twice is not None:
        raise click.UsageError(f"{twice} is named twice and would count twice: name it once")


def report_saved(out: Output, target: Path, made: Contribution, **more: Any) -> None:
    """Print what the file holds as JSON, where it is, and what comes next."""
    out.json({"statistics": str(target), "bytes": target.stat().st_size, **describe(made), **more})
    out.note(line(("saved to ", ""), (str(target), "bold"), (f"  {size(target.stat().st_size)}", FAINT)))
    out.note(hint(f"ir3de fit router {target.stem}={target} …"))
