"""--holdout: some of the prompts are kept aside, and the router is measured on those."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.domains import CountedDomain
from ir3de.cli.options import STATISTICS_SUFFIX, TextOptions
from ir3de.cli.output import Output
from ir3de.cli.progress import read_prompts
from ir3de.errors import InputError

if TYPE_CHECKING:
    from ir3de.embedding import Embedding
    from ir3de.engines import Counting


class _Share(click.FloatRange):
    """A share between 0 and 1; one in percent is told how it is written."""

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


SHARE = _Share(0, 1, min_open=True, max_open=True)

fit_holdout_option = click.option(
    "--holdout",
    type=SHARE,
    metavar="SHARE",
    help="Keep this share of the prompts out of the fit, chosen by a hash of the text, and measure the router on those "
    "instead of by cross-validation. The saved router never saw them; leave --holdout out to fit on all prompts.",
)
eval_holdout_option = click.option(
    "--holdout",
    type=SHARE,
    metavar="SHARE",
    help="Measure only on the prompts that `ir3de fit --holdout` with the same share kept out of the fit.",
)


class Holdout:
    """Counts domains like `count_domain`, but for the prompts that it keeps aside."""

    def __init__(self, share: float, counting: Counting) -> None:
        self.share = share
        self.aside: dict[str, list[str]] = {}
        if counting["engine"] != "local" or counting["checkpoint"] is not None:
            raise click.UsageError(
                "--holdout holds the texts in memory: leave out --engine and --checkpoint, or leave out --holdout"
            )

    def count_domain(
        self,
        name: str,
        given: Any,
        embedding: Embedding,
        options: TextOptions,
        out: Output,
        *,
        keep_sample: bool = True,
        counting: Counting | None = None,
        description: str | None = None,
    ) -> CountedDomain:
        """Count the prompts that are not kept aside; `counting` has been checked and says nothing more."""
        from ir3de.corpora import split_held_out
        from ir3de.statistics.counting import collect

        if isinstance(given, list) and any(Path(path).suffix == STATISTICS_SUFFIX for path in given):
            raise click.UsageError(
                f"--holdout keeps prompts aside, and a {STATISTICS_SUFFIX} file of '{name}' has none: name its texts"
            )
        begun = perf_counter()
        texts = list(read_prompts(name, given, options.field, options.whole_files, out)) if given != [] else []
        train, aside = split_held_out({name: texts}, self.share)
        if texts and not train[name]:
            raise InputError(f"--holdout {self.share:g} leaves no prompt of '{name}' to fit on: give it more prompts")
        self.aside[name] = aside.get(name, [])
        how: dict[str, Any] = {"subsample": options.subsample or 1, "cap": options.cap, "clip": options.clip}
        own = collect(train[name], embedding=embedding, keep_sample=keep_sample, **how) if texts else None
        read = sum(len(text.encode("utf-8", "replace")) for text in train[name])
        recipe = {"window": 128, **how, "min_count": 1, "prompt_sums": True, "field": options.field}
        return CountedDomain(name, own, (), read, perf_counter() - begun, None, recipe, description)

    @property
    def held_out(self) -> dict[str, list[str]]:
        """The prompts that were kept aside, of the experts that have any."""
        return {name: texts for name, texts in self.aside.items() if texts}


def keep_held_out(texts: Iterable[str], share: float) -> Iterator[str]:
    """The prompts that were kept aside."""
    from ir3de.corpora import is_held_out

    return (text for text in texts if is_held_out(text, share))
