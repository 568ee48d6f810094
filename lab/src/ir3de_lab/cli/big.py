"""bench big: a fit at the size of the largest embeddings."""

from __future__ import annotations

from pathlib import Path

import click

from ir3de.cli.plugins import Output, device_option, load_arithmetic, output_options
from ir3de_lab.cli.shared import figures_table, keep, save_option


@click.command()
@click.option("--vocabulary", type=click.IntRange(min=1), metavar="V", help="Tokens.  [default: 256000; quick: 32000]")
@click.option("--width", type=click.IntRange(min=1), metavar="H", help="Numbers a token.  [default: 4096; quick: 1024]")
@click.option("--quick", is_flag=True, help="A small size: seconds instead of half an hour.")
@click.option(
    "--rounds", type=click.IntRange(min=1), default=1, show_default=True, help="How often each time is taken."
)
@device_option
@save_option
@output_options
def big(
    vocabulary: int | None,
    width: int | None,
    quick: bool,
    rounds: int,
    device: str | None,
    save: Path | None,
    out: Output,
) -> None:
    """Time and memory of a fit with a very large embedding.

    The embedding and the experts' counts are made up, in a temporary folder (2 GB at the usual size). A fit is timed
    beside the bare product over its rows, an expert that joins beside a fit of all, peak memory is held against the
    stated bound, and with --device torch is compared with numpy.

    \b
    Example:
      ir3de bench big --quick
      ir3de bench big --device cuda --save results/big.json
    """
    from ir3de_lab.benchmarks.big import document, measure, sized

    load_arithmetic(device)  # or it is refused now
    with out.spinner("measuring a big embedding"):
        figures = measure(sized(vocabulary, width, quick=quick), device=device, rounds=rounds)
    kept = document(figures, device)
    keep(save, kept)
    out.json(kept)
    out.result(figures_table(figures))
