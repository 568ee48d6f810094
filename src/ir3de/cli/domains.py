"""Domains named on the command line, read and counted under a progress bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from glob import glob, has_magic
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ir3de.cli.held_texts import DomainTexts, HeldTexts
from ir3de.cli.options import STATISTICS_SUFFIX, TextOptions
from ir3de.cli.output import (
    FAINT,
    MOST_ROWS,
    Output,
    count_left_out,
    line,
    one_line,
    printable,
    size,
    split_rows,
    table,
)
from ir3de.cli.progress import reading
from ir3de.files.atomic import count_cores, find_kind

if TYPE_CHECKING:
    from rich.console import Group

    from ir3de.corpora.repeats import Repeats
    from ir3de.embedding import Embedding
    from ir3de.engines import Collected, Counting
    from ir3de.statistics.contributions import Contribution
    from ir3de.statistics.counting import Recipe
    from ir3de.statistics.domain import Statistics

LARGE_DOMAIN_BYTES = 100_000_000  # from which `--subsample auto` takes 1 window in 16
LARGE_SUBSAMPLE = 16
LARGE_TO_READ_BYTES = 10_000_000  # from which the speed of reading is shown
MAX_EXAMPLE_CHARACTERS = 60  # of a prompt in a sentence


@dataclass(frozen=True)
class CountedDomain:
    """One domain's statistics, and what it took to get them."""

    name: str
    own: Statistics | None  # from texts; None when there were only files of statistics
    contributions: tuple[Contribution, ...]
    bytes: int
    seconds: float
    collected: Collected | None = None  # what came of the texts
    recipe: Mapping[str, Any] | None = None  # how they were counted
    description: str | None = None  # what the expert is for, which counts as prompts too

    @property
    def domain(self) -> list[Statistics | Contribution]:
        """As `Router.fit` takes it."""
        return [*(() if self.own is None else (self.own,)), *self.contributions]

    @cached_property
    def statistics(self) -> Statistics:
        """Everything together."""
        parts = [] if self.own is None else [self.own]
        first, *others = [*parts, *(one.statistics() for one in self.contributions)]
        return sum(others, first)

    @property
    def prompts(self) -> int:
        return sum(part.prompts for part in self.domain)

    @property
    def tokens(self) -> int:
        return sum(part.tokens for part in self.domain)

    def discard_checkpoints(self) -> None:
        """Remove what the counting could go on from: for when its result is saved."""
        if self.collected is not None:
            self.collected.discard_checkpoints()

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "description": self.description,
            "prompts": self.prompts,
            "tokens": self.tokens,
            "kept": 0 if self.own is None or self.own.sample is None else len(self.own.sample),
            "digest": self.domain[0].digest if len(self.domain) == 1 else None,
            "contributions": [one.given.to_dict() for one in self.contributions],
            "source_bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            **self.describe_reading(),
        }

    def describe_reading(self) -> dict[str, Any]:
        """What was skipped, and what was taken from a checkpoint."""
        found = self.collected
        counts = (found.records, found.skipped, list(found.examples), found.resumed) if found else (0, 0, [], 0)
        return dict(zip(("records", "skipped", "skipped_examples", "resumed_shards"), counts, strict=True))


def check_sources(domains: Mapping[str, DomainTexts]) -> None:
    """Report a misspelt path before the first domain is read."""
    from ir3de.corpora import total_bytes

    for paths in domains.values():
        if isinstance(paths, HeldTexts):
            continue
        total_bytes([path for path in paths if Path(path).suffix != STATISTICS_SUFFIX])
        statistics_files([path for path in paths if Path(path).suffix == STATISTICS_SUFFIX])


def statistics_files(paths: Sequence[str]) -> list[str]:
    """Files of statistics, patterns of them expanded; each is there."""
    from ir3de.errors import InputError

    found: list[str] = []
    for path in paths:
        matching = [path] if find_kind(path) == "file" else []
        if not matching and has_magic(path):
            matching = sorted(glob(path, recursive=True))  # noqa: PTH207 - absolute ones too
        if not matching:
            raise InputError(f"{path}: no such file: check the name, or make it with `ir3de collect`")
        found += matching
    return found


def load_contributions(paths: Sequence[str]) -> tuple[Contribution, ...]:
    """Files of statistics, read and checked on every core."""
    from concurrent.futures import ThreadPoolExecutor

    from ir3de.statistics.contributions import Contribution

    with ThreadPoolExecutor(count_cores(), thread_name_prefix="ir3de-read") as pool:
        return tuple(pool.map(Contribution.load, paths))


def load_embedding(source: str, out: Output) -> Embedding:
    from ir3de.embedding import Embedding

    with out.spinner("reading the embedding"):
        return Embedding.load(source)


def count_domain(
    name: str,
    paths: DomainTexts,
    embedding: Embedding,
    options: TextOptions,
    out: Output,
    *,
    window: int = 128,
    prompt_sums: bool = True,
    keep_sample: bool = True,
    min_count: int = 1,
    counting: Counting | None = None,
    description: str | None = None,
) -> CountedDomain:
    """Count the texts of all paths, and add the statistics files among them; prompts are kept only if asked for."""
    from ir3de.corpora import total_bytes
    from ir3de.engines import Files, collect_files
    from ir3de.statistics.counting import Recipe

    if isinstance(paths, HeldTexts):
        large = paths.bytes > LARGE_DOMAIN_BYTES
        subsample = options.subsample or (LARGE_SUBSAMPLE if large else 1)
        how = Recipe(window, subsample, options.cap, prompt_sums, keep_sample, options.clip, min_count)
        return _count_held(name, paths, embedding, how, options.field, description)
    stored = statistics_files([path for path in paths if Path(path).suffix == STATISTICS_SUFFIX])
    sources = [path for path in paths if Path(path).suffix != STATISTICS_SUFFIX]
    if sources:
        with out.spinner("unpacking the embedding"):  # once, and not a part of any domain's time
            embedding.encode("")
            if prompt_sums:
                len(embedding.stored.fixed_point)
    begun = perf_counter()
    with out.spinner("reading statistics"):
        contributions = load_contributions(stored)
    read = sum(Path(path).stat().st_size for path in stored)
    collected = recipe = None
    if sources:
        total = total_bytes(sources)
        subsample = options.subsample or (LARGE_SUBSAMPLE if (total or 0) > LARGE_DOMAIN_BYTES else 1)
        least = 1 if stored else min_count  # rare tokens are only known once everything is added up
        recipe = Recipe(window, subsample, options.cap, prompt_sums, keep_sample, options.clip, least)
        files = Files(sources, options.field, options.whole_files)
        with reading(out, name, total and total * recipe.passes) as (on_bytes, bytes_read):
            collected = collect_files(
                files, name=name, embedding=embedding, recipe=recipe, on_bytes=on_bytes, **counting or {}
            )
        read += bytes_read()
    own = None if collected is None else collected.statistics
    written = None if recipe is None else {**recipe.to_dict(), "prompt_sums": prompt_sums, "field": options.field}
    return CountedDomain(name, own, contributions, read, perf_counter() - begun, collected, written, description)


def _count_held(
    name: str,
    held: HeldTexts,
    embedding: Embedding,
    recipe: Recipe,
    field: str | None,
    description: str | None,
) -> CountedDomain:
    """Count texts that are in memory already, on every core of this machine."""
    from ir3de.statistics.counting import collect

    begun = perf_counter()
    kept = {"prompt_sums": recipe.prompt_sums, "keep_sample": recipe.keep_sample}
    own = collect(held.texts, embedding=embedding, **kept, **recipe.to_dict())
    how = {**recipe.to_dict(), "prompt_sums": recipe.prompt_sums, "field": field}
    return CountedDomain(name, own, (), held.bytes, perf_counter() - begun, None, how, description)


def count_background(
    paths: Sequence[str], embedding: Embedding, options: TextOptions, out: Output, counting: Counting
) -> Statistics:
    """Count the prompts that belong to none of the experts. They are few, so there is no checkpoint."""
    counted = count_domain(
        "background", paths, embedding, options, out, prompt_sums=False, counting={**counting, "checkpoint": None}
    )
    note_skipped(out, [counted])
    return counted.statistics


def note_skipped(out: Output, domains: Sequence[CountedDomain]) -> None:
    """Say what was left out, and why."""
    for domain in domains:
        found = domain.collected
        if found and found.resumed:
            shards = f"{found.resumed:,} of {found.shards:,} shards"
            out.note(line((f"{domain.name}: {shards} were in the checkpoint", FAINT)))
        if found and found.skipped:
            many = f"{found.skipped:,} of {found.records:,} records could not be read and were skipped"
            first = found.examples
            summary = f"{many}. The first {len(first)}:" if found.skipped > len(first) else f"{many}:"
            out.warn("\n  ".join((f"{domain.name}: {summary}", *map(printable, first))), quiet=False)


def list_repeats(found: Repeats | None) -> list[str]:
    """Which prompts have several labels, and which rows are there twice, in sentences; both count as they are."""
    from ir3de.corpora.repeats import describe_repeats

    return [] if found is None else list(describe_repeats(found, lambda text: one_line(text, MAX_EXAMPLE_CHARACTERS)))


def domains_table(domains: Sequence[CountedDomain]) -> Group:
    """One row per domain: its size, and how fast it was read if there was much to read."""
    is_large = sum(one.bytes for one in domains) >= LARGE_TO_READ_BYTES
    right = ("prompts", "tokens", "source", *(("seconds", "MB/s") if is_large else ()))
    shown = table("expert", *right, right=right)
    shown.columns[0].no_wrap, shown.columns[0].overflow = True, "ellipsis"  # else a narrow one shows only numbers
    first, left_out = split_rows(
        sorted(domains, key=lambda one: one.prompts) if len(domains) > MOST_ROWS + 1 else domains
    )
    for domain in first:
        named = f"{domain.name}{' (described)' * (domain.description is not None)}"
        shown.add_row(named, *_measure([domain])[: len(right)])
    if len(domains) > 1:
        shown.add_row("all", *_measure(domains)[: len(right)], style=FAINT)
    return count_left_out(shown, left_out, "the fewest prompts first; ")


def _measure(domains: Sequence[CountedDomain]) -> list[str]:
    """Prompts, tokens, bytes, seconds and megabytes per second of domains together."""
    read, seconds = sum(one.bytes for one in domains), sum(one.seconds for one in domains)
    resumed = any(one.collected and one.collected.resumed for one in domains)  # an earlier run read part of it
    counts = [f"{sum(one.prompts for one in domains):,}", f"{sum(one.tokens for one in domains):,}"]
    return [*counts, size(read), f"{seconds:.2f}", "–" if resumed else f"{read / 1e6 / max(seconds, 1e-9):.1f}"]
