"""The options of a strong and a weak model, and the line that shows what a policy makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ir3de.cli.options import Function
from ir3de.cli.output import percent

if TYPE_CHECKING:
    from ir3de.evaluation import ShareCalibration
    from ir3de.policies import StrongShare

NAMES = ("strong", "weak")
SHARE = ("strong_share", *NAMES)


def pair_options(function: Function) -> Function:
    """--strong and --weak."""
    strong = click.option("--strong", metavar="NAME", help="The strong model.  [default: the better one of two]")
    weak = click.option("--weak", metavar="NAME", help="The weak model.  [default: the other one of two]")
    return strong(weak(function))


def share_options(function: Function) -> Function:
    """--strong-share, --strong and --weak."""
    text = "Share of prompts that go to the strong model, between 0 and 1: 0.3 for 30 %."
    return click.option("--strong-share", type=float, metavar="P", help=text)(pair_options(function))


def check_given(share: float | None, strong: str | None, weak: str | None) -> None:
    """Refuse a wrong share, and names without a share, before anything is read."""
    from ir3de.policies import check_share

    if share is not None:
        check_share(share)
    elif strong is not None or weak is not None:
        raise click.UsageError("--strong and --weak belong to --strong-share: give a share, or leave them out")


def describe_share(share: StrongShare) -> str:
    """What a strong share does with prompts."""
    rest = f"the others to {share.weak}; from an expected difference of {share.threshold:.4g} on"
    return f"{percent(share.share)} to {share.strong}, {rest}"


def describe_calibration(found: ShareCalibration) -> str:
    """The share that is reached, and on what."""
    return f"{percent(found.reached)} of {found.prompts:,} prompts go to {found.chosen.strong}"
