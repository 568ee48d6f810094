"""merge: add statistics files up, exactly."""

from __future__ import annotations

from pathlib import Path

import click

from ir3de.cli.contributions import Labels, describe, label_options, refuse_repeated, show_saved, statistics_facts
from ir3de.cli.options import force_option, output_options, parse_statistics_path, refuse_existing
from ir3de.cli.output import Output


@click.command()
@click.argument("target", metavar="OUT.stats", callback=parse_statistics_path)
@click.argument("paths", nargs=-1, required=True, metavar="FILE.stats...")
@label_options
@force_option
@output_options
def merge(target: Path, paths: tuple[str, ...], labels: Labels, force: bool, out: Output) -> None:
    """Add statistics up, exactly.

    The sum is, bit for bit and in any order, what one collection from all the texts gives, if all were
    collected with the same --subsample. It is one contribution: to take owners' parts out of a router one by one, give
    it their files instead (`ir3de add router --merge law=berlin.stats law=paris.stats`). A FILE may be a quoted
    pattern; the same statistics twice are refused, by their hash, whatever the files are called.

    \b
    Example:
      ir3de merge law.stats law-berlin.stats law-paris.stats
    """
    from ir3de.cli.domains import load_contributions, statistics_files

    refuse_existing(target, force=force)
    refuse_repeated(paths)
    given = load_contributions(statistics_files(paths))
    total = sum((one.statistics() for one in given[1:]), given[0].statistics())
    made = labels.of(total, given)
    made.save(target)
    out.json({"statistics": str(target), "bytes": target.stat().st_size, "merged": list(paths), **describe(made)})
    out.note(statistics_facts(made))
    show_saved(out, target)
