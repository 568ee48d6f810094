"""fit: a router from each expert's texts, or from models' scores."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

import ir3de
from ir3de.cli import lib, options
from ir3de.cli.costs import GivenCosts, complete_costs, cost_options
from ir3de.cli.counting import check_sources, count_background, count_domain, hold_out, holdout_option, load_embedding
from ir3de.cli.domains import GivenDomains, described_domains
from ir3de.cli.formats import line
from ir3de.cli.outcomes import GivenOutcomes, describe_reached
from ir3de.cli.output import Output, solving
from ir3de.cli.proof import prove_fit
from ir3de.cli.saving import free_folders, save_and_report
from ir3de.cli.teaching import GivenTeacher, teacher_options

if TYPE_CHECKING:
    Choice = click.Choice[str]
else:
    Choice = click.Choice  # not a generic class before click 8.2

SCORERS = (
    "auto", "blend", "logistic", "prompt-ridge", "token-ridge", "posterior", "cross-entropy", "kernel-ridge", "paper",
    "authors",
)  # fmt: skip
SELECTORS = ("average", "entropy", "all")


class StrategyName(Choice):
    """A built-in name, or the class of a scorer or selector that is registered or that an entry point names."""

    def __init__(self, built_in: tuple[str, ...], module: str, registry: str) -> None:
        super().__init__(built_in)
        self._registry = module, registry  # imported only for another name

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in self.choices:
            return value
        named = getattr(import_module(self._registry[0]), self._registry[1]).plugin_names()
        plugins = [name for name in named if re.sub(r"(?<=.)(?=[A-Z])", "-", name).lower() not in self.choices]
        if value not in plugins:
            known = ", ".join((*self.choices, *plugins))
            self.fail(f"{value!r} is unknown: there are {known}. Install the package that has it", param, ctx)
        return value


def fit_outcomes(
    router_path: Path,
    given: GivenOutcomes,
    source: str,
    default: str | None,
    serving: Path | None,
    force: bool,
    costs: GivenCosts,
    pair: options.StrongOptions,
    out: Output,
    **_: Any,
) -> None:
    """fit --outcomes: sum up the rows, fit, save and report."""
    pair.check()
    folders = free_folders(router_path, serving, force=force)
    embedding = load_embedding(source, out)
    sums = given.collect(embedding, out)
    policy = lib.policies.Policy(costs=complete_costs(costs, sums.models))
    begun = perf_counter()
    with out.spinner("solving"):
        router = ir3de.Router.fit_outcomes(
            sums, embedding=embedding, default=default, policy=policy, guard=pair.share is None
        )
    if pair.share is not None:
        found = lib.evaluation.calibrate_strong_share(router, None, pair.share, **pair.names)
        out.note(line((describe_reached(found.to_dict()), "")))
        router = found.router
    save_and_report(out, router, folders, perf_counter() - begun)


@click.command()
@click.argument("router_path", metavar="OUT", type=click.Path(path_type=Path))
@described_domains
@click.option(
    "--unique-labels",
    is_flag=True,
    help="Accept a --label of which nearly every row has its own, which makes an expert of every row.",
)
@options.text_options
@options.engine_options
@options.embedding_option
@click.option("--tune", is_flag=True, help="Choose scorer and selector on held-out prompts; takes seconds.")
@options.no_sample_option
@click.option(
    "--scorer",
    type=StrategyName(SCORERS, "ir3de.scorers.registry", "SCORERS"),
    help="How to fit, or the class of an installed scorer; auto chooses between the closed form (blend), the "
    "discriminative fit (logistic) and their sum on held-out prompts.  [default: auto]",
)
@click.option("--strength", type=float, metavar="λ", help="Regularisation strength.  [default: the scorer's own]")
@click.option(
    "--selector",
    type=StrategyName(SELECTORS, "ir3de.selectors", "SELECTORS"),
    help="How a prompt's tokens decide, or the class of an installed selector.  [default: average; entropy for the "
    "scorers paper and authors]",
)
@options.number_option("--k", help="Number of tokens that vote with --selector entropy.  [default: 10]")
@click.option("--default", metavar="NAME", help="Expert for prompts the router abstains on.  [default: none]")
@click.option(
    "--background",
    "background",
    multiple=True,
    metavar="PATH",
    help="Prompts that belong to none of the experts; may be repeated.  [default: a built-in set]",
)
@teacher_options
@click.option(
    "--encoder",
    metavar="NAME",
    help="Ask this sentence encoder for a second opinion where the table is unsure: a name of `ir3de encoder install` "
    "such as minilm-l6, or a folder.  [default: none]",
)
@click.option(
    "--encoder-share",
    type=float,
    metavar="SHARE",
    help="Share of the prompts that the encoder is asked about.  [default: 0.2]",
)
@cost_options
@click.option(
    "--no-proof",
    is_flag=True,
    envvar="IR3DE_NO_PROOF",
    help="Do not measure the router on held-out prompts, which takes about as long as the fit. IR3DE_NO_PROOF=1 "
    "turns it off for all fits.",
)
@holdout_option(
    "Keep this share of the prompts out of the fit, chosen by a hash of the text, and measure the router on those "
    "instead of by cross-validation. The saved router never saw them; leave --holdout out to fit on all prompts."
)
@click.option("--serving", metavar="PATH", type=click.Path(path_type=Path), help="Write a small serving copy as well.")
@options.share_options
@options.device_option
@options.force_option
@options.output_options
@options.or_outcomes(
    fit_outcomes, "source", "default", "serving", "force", *options.COST_PARAMETERS, *options.SHARE_PARAMETERS
)
def fit(
    router_path: Path,
    domains: GivenDomains,
    descriptions: Mapping[str, str],
    texts: options.TextOptions,
    counting: lib.engines.Counting,
    source: str,
    tune: bool,
    no_sample: bool,
    scorer: str | None,
    strength: float | None,
    selector: str | None,
    k: int | None,
    default: str | None,
    background: tuple[str, ...],
    taught: GivenTeacher,
    encoder: str | None,
    encoder_share: float | None,
    costs: GivenCosts,
    no_proof: bool,
    holdout: float | None,
    unique_labels: bool,
    serving: Path | None,
    pair: options.StrongOptions,
    device: str | None,
    force: bool,
    out: Output,
) -> None:
    """Fit a router from each expert's texts.

    With --label, that column names the expert of each row of all PATHs. The texts are held in memory.
    A folder needs no --label: each file directly in it (law.txt, law.jsonl, law.stats) and each sub-folder (law/) is
    named like its expert. Or name each expert: NAME=PATH. If a NAME has several paths, repeat it for each.

    A PATH is a file (.txt, .md, .jsonl, .json, .csv, .tsv, .parquet, also packed as .gz, .bz2, .xz or .zst), a
    folder, a quoted pattern, an address of these such as s3://bucket/folder, - for standard input, or a .stats file
    that `ir3de collect` wrote. With --label, standard input is JSON lines, or a table with a header. --cap applies to
    fitting and routing. If rows have a field `source`, the kept sample holds a hash of it for each prompt.

    A router learns from --background which prompts are out of domain. Without it, a broad set of everyday prompts that
    is built in does that. If the experts' own prompts are like those, give prompts that no expert should get.

    With --encoder, the router learns on held-out prompts how much a sentence encoder adds, and below which confidence
    it is asked. The encoder's vectors of the kept prompts are saved with the router, the encoder itself is not: it must
    be installed where the router routes, otherwise the table decides alone. The cross-validation measures the table.

    --describe gives the purpose of an expert in a few words, in addition to its texts or instead of them.

    Afterwards the router is measured by cross-validation on up to 1,024 kept prompts of each expert: its accuracy and
    that of TF-IDF with logistic regression, the most confused experts, the abstentions, and the value of more prompts.
    --no-proof skips that. With --holdout, some prompts are kept out of the fit, and the router is measured on those;
    `ir3de eval --holdout` finds them again. The texts are then held in memory.

    --teacher labels the texts of --unlabelled, and the router learns from these labels too, if they help on labelled
    prompts that are held out. What was taught is a contribution of its own: `ir3de remove ROUTER NAME --contribution
    taught` takes it out.

    With --outcomes, the experts are the models that have scores in the rows. Larger scores are better, and scores may
    be missing. The router then names the model with the largest expected score. Only the options --text,
    --embedding, --default, --serving, --force, the costs and --strong-share can be combined with --outcomes.
    --strong-share sends that share of the prompts to a strong model and the others to a weak one; `ir3de calibrate`
    picks it anew on other prompts.

    \b
    Example:
      ir3de fit router train.csv --label team
      ir3de fit router train.jsonl --label team --text prompt
      ir3de fit router prompts/
      ir3de fit router maths=maths.jsonl law=statutes/ law=cases.csv code='src/**/*.txt'
      ir3de fit router maths=maths.jsonl law=statutes/ --tune
      ir3de fit router maths=maths.jsonl law=statutes/ --holdout 0.2
      ir3de fit router maths=maths.jsonl law=statutes/ --encoder minilm-l6
      ir3de fit router maths=maths.jsonl law --describe law="contracts, courts, tenancy"
      ir3de fit router few.csv --label team --unlabelled traffic.jsonl --teacher minilm-l6
      ir3de fit router --outcomes answers.jsonl --score-field accuracy
      ir3de fit router --outcomes answers.jsonl --strong-share 0.3
    """
    if pair != (None, None, None):
        raise click.UsageError("--strong-share, --strong and --weak belong to --outcomes: leave them out")
    if tune:
        _check_tunable({"--scorer": scorer, "--strength": strength, "--selector": selector, "--k": k}, no_sample)
    if background and no_sample:
        raise click.UsageError(
            "--background is compared with the prompts that are kept, and --no-sample keeps none: leave one of them out"
        )
    if encoder_share is not None and encoder is None:
        raise click.UsageError("--encoder-share belongs to --encoder: name an encoder, or leave it out")
    if encoder is not None and no_sample:
        raise click.UsageError("--encoder is fitted to kept prompts, and --no-sample keeps none: leave one of them out")
    scorer = scorer or ("auto" if strength is None else "blend")
    strategies = scorer_for(scorer, strength), selector_for(selector, scorer, k, texts.cap)
    arithmetic = options.load_arithmetic(device)
    domains.check(texts.field, descriptions)
    domains.check_counting(counting)
    folders = free_folders(router_path, serving, force=force)
    lesson = taught.prepare(router_path, texts, out)
    encoded = None if encoder is None else _load_encoder(encoder, encoder_share, out)
    given_texts = domains.read_to_count(texts, counting, descriptions, out)
    if not unique_labels:
        domains.check_labels(given_texts, texts.field)
    if default is not None:
        lib.domains.find_default(default, tuple(given_texts))  # rejected before anything is counted
    costs = complete_costs(costs, given_texts)
    check_sources(given_texts)
    check_sources({"background": background})
    repeats, measured = domains.find_repeats(given_texts), {}
    if holdout is not None:
        given_texts, measured["held_out"] = hold_out(given_texts, holdout, texts, counting, out)
    embedding = load_embedding(source, out)
    how: Any = {"keep_sample": not no_sample, "counting": counting}
    counted = [
        count_domain(name, paths, embedding, texts, out, description=descriptions.get(name), **how)
        for name, paths in given_texts.items()
    ]
    given = {domain.name: domain.domain for domain in counted}
    common: Any = {"descriptions": descriptions, "embedding": embedding, "default": default}
    common["policy"] = lib.policies.Policy(costs=costs)
    common |= {} if encoded is None else encoded
    if background:
        common["background"] = count_background(background, embedding, texts, out, counting)
    begun = perf_counter()
    with taught.labelling(router_path):
        with solving(out, arithmetic):
            if tune and texts.cap is None:
                router = ir3de.Router.fit(given, **common, tune=True, teacher=lesson)
            else:
                chosen: Any = {"scorer": strategies[0], "selector": strategies[1], "keep_sample": not no_sample}
                router = ir3de.Router.fit(given, **common, **chosen, teacher=None if tune else lesson)
                if tune:  # the selector brings the cap
                    router.tune(teacher=lesson)
        seconds = perf_counter() - begun
        prove = None if no_proof else partial(prove_fit, router, out, **measured)
        save_and_report(out, router, folders, seconds, counted, tuned=tune, prove=prove, repeats=repeats)


def _load_encoder(name: str, share: float | None, out: Output) -> dict[str, Any]:
    """The encoder's arguments of a fit. It is loaded before anything is counted."""
    if share is not None and not 0 < share <= 1:
        raise click.UsageError(f"--encoder-share is above 0 and at most 1, found {share:g}")
    from ir3de.encoders import Encoder

    with out.spinner("loading the encoder"):
        return {"encoder": Encoder.load(name), **({} if share is None else {"encoder_share": share})}


def _check_tunable(given: Mapping[str, object], no_sample: bool) -> None:
    """Reject options that --tune chooses itself, and tuning without prompts."""
    clash = next((name for name, value in given.items() if value is not None), None)
    if clash is not None:
        raise click.UsageError(f"--tune chooses scorer and selector itself: leave out {clash}, or leave out --tune")
    if no_sample:
        raise click.UsageError(
            "--tune needs prompts to try things on, and --no-sample keeps none: leave one of them out"
        )


def scorer_for(name: str, strength: float | None) -> lib.scorers.Scorer | None:
    """The scorer of that name, with its usual strength unless one is given; None if the fit chooses it."""
    if name == "auto":
        if strength is not None:
            raise click.UsageError("--scorer auto chooses the strength itself: leave --strength out, or name a scorer")
        return None
    if name in ("paper", "authors"):
        scorer: lib.scorers.Scorer = getattr(ir3de.TokenRidge, name)()
    else:
        known = "".join(part.capitalize() for part in name.split("-")) if name in SCORERS else name  # TokenRidge
        own = name in SCORERS and known in lib.scorers.__all__  # the others are those of the laboratory, and plugins
        scorer = getattr(lib.scorers, known)() if own else lib.registry.SCORERS.create(known)
    return scorer if strength is None else _set_field(scorer, name, strength=strength)


def selector_for(name: str | None, scorer: str, k: int | None, cap: int | None) -> lib.selectors.Selector:
    """The selector of that name, or the one that belongs to the scorer."""
    name = name or ("entropy" if scorer in ("paper", "authors") else "average")
    if k is not None and name != "entropy":
        raise click.UsageError(f"--k belongs to --selector entropy, and the selector is {name}: leave one of them out")
    entropy = ir3de.EntropyTopK.authors if scorer == "authors" else ir3de.EntropyTopK
    makers: Mapping[str, Callable[[], lib.selectors.Selector]] = {
        "entropy": lambda: entropy(k or 10),
        "all": lambda: ir3de.AllTokens(ties="order", log_offset=1e-10) if scorer == "authors" else ir3de.AllTokens(),
        "average": ir3de.Average,
    }
    selector = makers[name]() if name in makers else lib.selectors.SELECTORS.create(name)
    return selector if cap is None else _set_field(selector, name, cap=cap)


def _set_field(strategy: Any, name: str, **values: float) -> Any:
    for parameter in values.keys() - {field.name for field in fields(strategy)}:
        raise click.UsageError(f"{name} has no parameter {parameter}: leave --{parameter} out")
    return replace(strategy, **values)
