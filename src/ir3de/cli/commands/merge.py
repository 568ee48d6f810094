"""merge: add statistics files up, exactly."""

from __future__ import annotations

from pathlib import Path

import click

from ir3de.cli.contributions import Labels, label_options, refuse_repeated, report_saved, statistics_facts
from ir3de.cli.options import force_option, output_options, parse_statistics_path, refuse_existing
from ir3de.cli.output import Output


@click.command()
@click.argument("target", metavar="OUT.stats", callback=parse_statistics_path)
@click.argument("paths", nargs=-1, required=True, metavar="FILE.stats...")
@label_options
@force_option
@output_options
def merge(target: Path, paths: tuple[str, ...], labels: Labels, force: bool, out: Output) -> None:
    """Add statistics files up, exactly.

    The sum has the same bits as one collection of all the texts, in any order, if all files were collected with the
    same --subsample. The sum is one contribution. To be able to remove each owner's part from a router later, give the
    router their files instead: `ir3de add router --merge law=berlin.stats law=paris.stats`. A FILE may be a quoted
    pattern. The same statistics given twice are refused; they are known by their hash.

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
    out.note(statistics_facts(made))
    report_saved(out, target, made, merged=list(paths))
