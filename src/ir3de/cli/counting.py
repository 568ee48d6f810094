"""Domains named on the command line, read and counted under a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ir3de.cli.arguments import STATISTICS_SUFFIX, TextOptions
from ir3de.cli.output import FAINT, Output, size, table

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de.embeddings import Embedding
    from ir3de.statistics import Statistics

LARGE_DOMAIN = 100_000_000  # bytes, from which `--sample auto` takes 1 window in 16
LARGE_SAMPLE = 16


@dataclass(frozen=True)
class Counted:
    """One domain's statistics, and what it took to get them."""

    name: str
    statistics: Statistics
    bytes: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "prompts": self.statistics.prompts,
            "tokens": self.statistics.tokens,
            "kept": 0 if self.statistics.sample is None else len(self.statistics.sample),
            "digest": self.statistics.digest,
            "source_bytes": self.bytes,
            "seconds": round(self.seconds, 3),
        }


def check_sources(domains: Mapping[str, Sequence[str]]) -> None:
    """Find a misspelt path before the first domain is read, not after."""
    from ir3de.corpora import total_bytes
    from ir3de.errors import InputError

    for paths in domains.values():
        total_bytes([path for path in paths if Path(path).suffix != STATISTICS_SUFFIX])
        missing = [path for path in paths if Path(path).suffix == STATISTICS_SUFFIX and not Path(path).is_file()]
        if missing:
            raise InputError(f"{missing[0]}: no such file: check the name, or make it with `ir3de collect`")


def load_embedding(source: str, out: Output) -> Embedding:
    from ir3de.embeddings import Embedding

    with out.spinner("reading the embedding"):
        return Embedding.load(source)


def count_domain(
    name: str,
    paths: Sequence[str],
    embedding: Embedding,
    options: TextOptions,
    out: Output,
    *,
    window: int = 128,
    prompt_sums: bool = True,
    keep_sample: bool = True,
    min_count: int = 1,
) -> Counted:
    """Count the texts of all paths, and add the statistics files among them; prompts are kept only if asked for."""
    from ir3de.corpora import read_texts, total_bytes
    from ir3de.counting import Recipe, count_texts, thresholded
    from ir3de.storage import load_statistics

    files = [path for path in paths if Path(path).suffix == STATISTICS_SUFFIX]
    sources = [path for path in paths if path not in files]
    if sources:
        with out.spinner("unpacking the embedding"):  # once, and not a part of any domain's time
            _unpack(embedding, prompt_sums)
    begun = perf_counter()
    parts = [load_statistics(path) for path in files]
    read = sum(Path(path).stat().st_size for path in files)
    total = total_bytes(sources) if sources else 0
    sample = options.sample or (LARGE_SAMPLE if (total or 0) > LARGE_DOMAIN else 1)

    def everything(recipe: Recipe) -> Statistics:
        nonlocal read
        if not sources:
            return sum(parts[1:], parts[0])
        with reading(out, name, total) as (on_bytes, bytes_read):
            texts = read_texts(sources, field=options.field, whole_files=options.whole_files, on_bytes=on_bytes)
            counted = count_texts(texts, embedding, recipe)
        read += bytes_read()
        return sum(parts, counted)

    recipe = Recipe(window, sample, options.cap, prompt_sums, keep_sample, options.clip, min_count)
    total_of = thresholded(everything, recipe)
    return Counted(name, total_of if keep_sample else total_of.without_sample(), read, perf_counter() - begun)


def _unpack(embedding: Embedding, prompt_sums: bool) -> None:
    embedding.encode("")
    if prompt_sums:
        len(embedding.stored.fixed_point)


@contextmanager
def reading(
    out: Output, description: str, total: int | None
) -> Iterator[tuple[Callable[[int], None], Callable[[], int]]]:
    """A bar of bytes read, on a terminal; gives the callback for `on_bytes` and the count so far."""
    read = 0

    def count(more: int) -> None:
        nonlocal read
        read += more
        if advance is not None:
            advance(more)

    advance: Callable[[int], None] | None = None
    if not out.shows_progress:
        yield count, lambda: read
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30, complete_style="cyan", finished_style="green"),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=out.progress_console, transient=True) as progress:
        task = progress.add_task(description, total=total)
        advance = lambda more: progress.advance(task, more)  # noqa: E731
        yield count, lambda: read


def counted_table(domains: Sequence[Counted]) -> Table:
    """One row a domain: how much it was, and how fast it went."""
    shown = table(
        "expert", "prompts", "tokens", "source", "seconds", "MB/s",
        right=("prompts", "tokens", "source", "seconds", "MB/s"),
    )  # fmt: skip
    for domain in domains:
        statistics = domain.statistics
        shown.add_row(
            domain.name,
            f"{statistics.prompts:,}",
            f"{statistics.tokens:,}",
            size(domain.bytes),
            f"{domain.seconds:.2f}",
            f"{domain.bytes / 1e6 / max(domain.seconds, 1e-9):.1f}",
        )
    if len(domains) > 1:
        total = [sum(d.statistics.prompts for d in domains), sum(d.statistics.tokens for d in domains)]
        read, seconds = sum(d.bytes for d in domains), sum(d.seconds for d in domains)
        shown.add_row(
            "all", *(f"{count:,}" for count in total), size(read), f"{seconds:.2f}", f"{read / 1e6 / seconds:.1f}",
            style=FAINT,
        )  # fmt: skip
    return shown
