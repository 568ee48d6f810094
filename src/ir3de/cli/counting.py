"""Domains counted under a progress bar: texts, files of statistics, and prompts that --holdout keeps out of the fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from glob import glob, has_magic
from pathlib import Path
from time import perf_counter
from typing import Any

import click

import ir3de
from ir3de.cli import lib
from ir3de.cli.domains import DomainTexts, HeldTexts, read_prompts
from ir3de.cli.formats import FAINT, line, printable, size
from ir3de.cli.options import STATISTICS_SUFFIX, Function, TextOptions
from ir3de.cli.output import Block, Output, count_left_out, reading, split_rows, table
from ir3de.errors import InputError
from ir3de.files.atomic import count_cores, find_kind

LARGE_DOMAIN_BYTES = 100_000_000  # from which `--subsample auto` uses 1 window in 16
LARGE_SUBSAMPLE = 16
LARGE_TO_READ_BYTES = 10_000_000  # from which the speed of reading is shown


@dataclass(frozen=True)
class CountedDomain:
    """One domain's statistics, and how they were counted."""

    name: str
    own: ir3de.Statistics | None  # from texts; None if there were only files of statistics
    contributions: tuple[ir3de.Contribution, ...]
    bytes: int
    seconds: float
    collected: lib.engines.Collected | None = None
    recipe: Mapping[str, Any] | None = None
    description: str | None = None  # counts as prompts, too

    @property
    def domain(self) -> list[ir3de.Statistics | ir3de.Contribution]:
        """As `Router.fit` takes it."""
        return [*(() if self.own is None else (self.own,)), *self.contributions]

    @cached_property
    def statistics(self) -> ir3de.Statistics:
        """The sum of all parts."""
        parts = [] if self.own is None else [self.own]
        first, *others = [*parts, *(one.statistics() for one in self.contributions)]
        return sum(others, first)

    def discard_checkpoints(self) -> None:
        """Remove the checkpoints, once the result is saved."""
        if self.collected is not None:
            self.collected.discard_checkpoints()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "name": self.name,
            "description": self.description,
            "prompts": sum(part.prompts for part in self.domain),
            "tokens": sum(part.tokens for part in self.domain),
            "kept": 0 if self.own is None or self.own.sample is None else len(self.own.sample),
            "digest": self.domain[0].digest if len(self.domain) == 1 else None,
            "contributions": [one.given.to_dict() for one in self.contributions],
            "source_bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            **self.describe_reading(),
        }

    def describe_reading(self) -> dict[str, Any]:
        """The records that were skipped, and the shards that came from a checkpoint."""
        found = self.collected
        counts = (found.records, found.skipped, list(found.examples), found.resumed) if found else (0, 0, [], 0)
        return dict(zip(("records", "skipped", "skipped_examples", "resumed_shards"), counts, strict=True))


def check_sources(domains: Mapping[str, DomainTexts]) -> None:
    """Reject a misspelt path before the first domain is read."""
    for paths in domains.values():
        if not isinstance(paths, HeldTexts):
            stored, sources = _split_statistics(paths)
            lib.corpora.total_bytes(sources)
            statistics_files(stored)


def _split_statistics(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """The files of statistics, and the others."""
    stored = [path for path in paths if Path(path).suffix == STATISTICS_SUFFIX]
    return stored, [path for path in paths if path not in stored]


def statistics_files(paths: Sequence[str]) -> list[str]:
    """Files of statistics, which exist; patterns are expanded."""
    found: list[str] = []
    for path in paths:
        matching = [path] if find_kind(path) == "file" else []
        if not matching and has_magic(path):
            matching = sorted(glob(path, recursive=True))  # noqa: PTH207 - absolute ones too
        if not matching:
            raise InputError(f"{path}: no such file: check the name, or make it with `ir3de collect`")
        found += matching
    return found


def load_contributions(paths: Sequence[str]) -> tuple[ir3de.Contribution, ...]:
    """Read and check files of statistics on every core."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(count_cores(), thread_name_prefix="ir3de-read") as pool:
        return tuple(pool.map(ir3de.Contribution.load, paths))


def load_embedding(source: str, out: Output) -> ir3de.Embedding:
    """The embedding of --embedding."""
    with out.spinner("reading the embedding"):
        return ir3de.Embedding.load(source)


def count_domain(
    name: str,
    paths: DomainTexts,
    embedding: ir3de.Embedding,
    options: TextOptions,
    out: Output,
    *,
    counting: lib.engines.Counting | None = None,
    description: str | None = None,
    **how: Any,
) -> CountedDomain:
    """Count the texts of all paths, and add the statistics files among them; `how` are further fields of the recipe."""
    held = paths if isinstance(paths, HeldTexts) else None
    stored, sources = ([], []) if isinstance(paths, HeldTexts) else _split_statistics(paths)
    stored = statistics_files(stored)
    total = held.bytes if held is not None else lib.corpora.total_bytes(sources) if sources else 0
    subsample = options.subsample or (LARGE_SUBSAMPLE if (total or 0) > LARGE_DOMAIN_BYTES else 1)
    how = {"keep_sample": True, **how, "subsample": subsample, "cap": options.cap, "clip": options.clip}
    how |= {"min_count": 1} if stored else {}  # rare tokens are only known once everything is added up
    recipe = lib.statistics.Recipe(**how)
    if sources:
        with out.spinner("unpacking the embedding"):  # once, and not a part of any domain's time
            embedding.encode("")
            if recipe.prompt_sums:
                len(embedding.stored.fixed_point)
    begun = perf_counter()
    with out.spinner("reading statistics"):
        contributions = load_contributions(stored)
    read = sum(Path(path).stat().st_size for path in stored)
    own = collected = None
    if held is not None:
        kept = {"prompt_sums": recipe.prompt_sums, "keep_sample": recipe.keep_sample}
        own, read = ir3de.collect(held.texts, embedding=embedding, **kept, **recipe.to_dict()), held.bytes
    elif sources:
        with reading(out, name, total and total * recipe.passes) as advance:

            def on_bytes(more: int) -> None:
                nonlocal read
                read += more
                advance(more)

            files = lib.engines.Files(sources, options.field, options.whole_files)
            how = {"name": name, "embedding": embedding, "recipe": recipe, "on_bytes": on_bytes}
            collected = lib.engines.collect_files(files, **how, **counting or {})
        own = collected.statistics
    written = {**recipe.to_dict(), "prompt_sums": recipe.prompt_sums, "field": options.field}
    recipe_used = None if own is None else written
    return CountedDomain(name, own, contributions, read, perf_counter() - begun, collected, recipe_used, description)


def count_background(
    paths: Sequence[str], embedding: ir3de.Embedding, options: TextOptions, out: Output, counting: lib.engines.Counting
) -> ir3de.Statistics:
    """Count the prompts that belong to none of the experts. They are few, so there is no checkpoint."""
    how: Any = {"prompt_sums": False, "counting": {**counting, "checkpoint": None}}
    counted = count_domain("background", paths, embedding, options, out, **how)
    warn_of_skipped(out, [counted])
    return counted.statistics


def warn_of_skipped(out: Output, domains: Sequence[CountedDomain]) -> None:
    """Report the records that were skipped, and the shards that a checkpoint had."""
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


def domains_table(domains: Sequence[Mapping[str, Any]]) -> Block:
    """One row for each document of a domain: its size, and the speed of reading if there was much to read."""
    is_large = sum(one["source_bytes"] for one in domains) >= LARGE_TO_READ_BYTES
    right = ("prompts", "tokens", "source", *(("seconds", "MB/s") if is_large else ()))
    order = sorted(domains, key=lambda one: one["prompts"]) if split_rows(domains)[1] else domains
    first, left_out = split_rows(order)
    names = [one["name"] + " (described)" * (one["description"] is not None) for one in first]
    rows = [(name, *_measure([one])[: len(right)]) for name, one in zip(names, first, strict=True)]
    shown = table("expert", *right, right=right, rows=rows)
    shown.columns[0].no_wrap, shown.columns[0].overflow = True, "ellipsis"  # else a narrow table shows only numbers
    if len(domains) > 1:
        shown.add_row("all", *_measure(domains)[: len(right)], style=FAINT)
    return count_left_out(shown, left_out, "the fewest prompts first; ")


def _measure(domains: Sequence[Mapping[str, Any]]) -> list[str]:
    """Prompts, tokens, bytes, seconds and megabytes per second of domains together."""
    prompts, tokens, read, seconds, resumed = (
        sum(one[key] for one in domains) for key in ("prompts", "tokens", "source_bytes", "seconds", "resumed_shards")
    )
    speed = "–" if resumed else f"{read / 1e6 / max(seconds, 1e-9):.1f}"  # an earlier run read a part of it
    return [f"{prompts:,}", f"{tokens:,}", size(read), f"{seconds:.2f}", speed]


# --holdout ----------------------------------------------------------------------------------------------------------


class _Share(click.FloatRange):
    """A share between 0 and 1; a percentage is rejected with the share to write."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            percent = str(value).removesuffix("%").strip()
            if percent.isdecimal() and 1 <= int(percent) < 100:
                self.fail(
                    f"{value!r} is not in the range 0<x<1: write {percent} % as {int(percent) / 100:g}.", param, ctx
                )
            raise error


def holdout_option(text: str) -> Callable[[Function], Function]:
    """Add --holdout, a share of the prompts."""
    return click.option("--holdout", type=_Share(0, 1, min_open=True, max_open=True), metavar="SHARE", help=text)


def hold_out(
    given: Mapping[str, DomainTexts], share: float, options: TextOptions, counting: lib.engines.Counting, out: Output
) -> tuple[dict[str, DomainTexts], dict[str, list[str]]]:
    """Split the texts of each expert by a hash: those to fit on, and those that are held out."""
    if counting["engine"] != "local" or counting["checkpoint"] is not None:
        raise click.UsageError(
            "--holdout holds the texts in memory: leave out --engine and --checkpoint, or leave out --holdout"
        )
    train: dict[str, DomainTexts] = {}
    held_out: dict[str, list[str]] = {}
    for name, texts in given.items():
        if not isinstance(texts, HeldTexts) and _split_statistics(texts)[0]:
            raise click.UsageError(
                f"--holdout needs prompts, and a {STATISTICS_SUFFIX} file of '{name}' has none: name its texts"
            )
        if not texts:  # the expert has a description only
            train[name] = texts
            continue
        read = list(read_prompts(name, texts, options, out))
        kept, aside = lib.corpora.split_held_out({name: read}, share)
        if read and not kept[name]:
            raise InputError(f"--holdout {share:g} leaves no prompt of '{name}' to fit on: give it more prompts")
        train[name] = HeldTexts(kept[name])
        held_out |= {name: texts for name, texts in aside.items() if texts}
    return train, held_out
