"""add, remove: change the experts of a router without reading the texts of the others again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from pathlib import Path
from time import perf_counter
from typing import Any

import click

import ir3de
from ir3de.cli import lib, options
from ir3de.cli.costs import GivenCosts, complete_costs, cost_options
from ir3de.cli.counting import check_sources, count_domain
from ir3de.cli.domains import GivenDomains, described_domains
from ir3de.cli.outcomes import GivenOutcomes
from ir3de.cli.output import Output, hint, solving
from ir3de.cli.saving import changing, load_router, save_and_report
from ir3de.cli.teaching import GivenTeacher, teacher_options
from ir3de.errors import InputError, UnknownExpertError, name_some

scorer_choice_option = click.option(
    "--scorer",
    "scorer_choice",
    type=click.Choice(["keep", "choose"]),
    default="keep",
    show_default=True,
    help="Keep the scorer, or choose it again as `fit` or `tune` did.",
)


def add_outcomes(
    router_path: Path, given: GivenOutcomes, costs: GivenCosts, merge: bool, out: Output, **_: Any
) -> None:
    """add --outcomes: sum up the rows of new models, or with --merge more rows of any, and change the router."""
    router = load_router(router_path)
    router.outcomes  # noqa: B018 - rejects a router whose experts are added as NAME=PATH
    sums = given.collect(router.embedding, out)
    experts = dict.fromkeys((*router.experts, *sums.models))
    costs = complete_costs(costs, experts, router.policy.costs, before=router.experts)
    begun = perf_counter()
    with changing(router_path) as router:
        with out.spinner("solving"):
            router.add_outcomes(sums, merge=merge)
        router = router.with_policy(router.policy.with_changes(costs, {}))
        save_and_report(out, router, [router_path.expanduser()], perf_counter() - begun)


@click.command()
@options.router_argument
@described_domains
@options.text_options
@options.engine_options
@options.no_sample_option
@cost_options
@click.option("--merge", is_flag=True, help="Give more texts to experts that the router has already.")
@teacher_options
@scorer_choice_option
@options.device_option
@options.output_options
@options.or_outcomes(add_outcomes, "merge", *options.COST_PARAMETERS)
def add(
    router_path: Path,
    domains: GivenDomains,
    descriptions: Mapping[str, str],
    texts: options.TextOptions,
    counting: lib.engines.Counting,
    no_sample: bool,
    costs: GivenCosts,
    merge: bool,
    taught: GivenTeacher,
    scorer_choice: lib.domains.ScorerChoice,
    device: str | None,
    out: Output,
) -> None:
    """Add experts to a router, or more texts to its experts.

    The texts of the other experts are not read again. The result is exactly the router that a fit from all the counts
    with this scorer would give; with --scorer choose, the one that the fit itself would give. Printed are accuracy and
    confidence before and after, and which kept prompts go elsewhere. PATH, --label and NAME=PATH are as in `ir3de fit`.
    With --teacher, a new expert also gets the texts of --unlabelled that the teacher gives to it. With --outcomes, add
    models to an outcome router, from rows with their scores.

    \b
    Examples:
      ir3de add router cooking=recipes.jsonl
      ir3de add router cooking --describe cooking="recipes, baking, kitchen tools"
      ir3de add router cooking=recipes.jsonl --scorer choose
      ir3de add router cooking=recipes.jsonl --unlabelled traffic.jsonl --teacher minilm-l6
      ir3de add router --merge law=new-cases.csv
      ir3de add router --merge new.csv --label team
      ir3de add router --outcomes new-model.jsonl
    """
    domains.check_counting(counting)
    arithmetic = options.load_arithmetic(device)
    router = load_router(router_path)
    router.recipe()  # rejects a router whose models are added with --outcomes
    given_texts = domains.read_to_count(texts, counting, descriptions, out)
    _check_names(router, given_texts, merge=merge)
    if taught and (merge or len(given_texts) > 1):
        raise click.UsageError("--teacher labels texts for one new expert: name only that one, without --merge")
    lesson = taught.prepare(router_path, texts, out)
    experts = dict.fromkeys((*router.experts, *given_texts))
    costs = complete_costs(costs, experts, router.policy.costs, before=router.experts)
    check_sources(given_texts)
    counted = []
    for name, paths in given_texts.items():
        recipe, about = router.recipe(name), descriptions.get(name)
        how: Any = {"window": recipe.window, "prompt_sums": recipe.prompt_sums, "counting": counting}
        how["keep_sample"] = recipe.keep_sample and not no_sample
        counted.append(count_domain(name, paths, router.embedding, texts, out, description=about, **how))
    begun = perf_counter()
    with taught.labelling(router_path), changing(router_path) as router:
        before = copy(router)
        with solving(out, arithmetic):
            for domain in counted:
                change = router.merge if merge else router.add
                how = {"keep_sample": False if no_sample else None, "scorer": scorer_choice}
                how |= {} if lesson is None else {"teacher": lesson}
                change(domain.name, domain.domain, description=domain.description, **how)
        router = router.with_policy(router.policy.with_changes(costs, {}))
        save_and_report(out, router, [router_path.expanduser()], perf_counter() - begun, counted, before=before)


def _check_names(router: ir3de.Router, names: Iterable[str], *, merge: bool) -> None:
    """Reject names that the router cannot accept, before anything is read."""
    for name in names:
        if merge and name not in router.experts:
            raise UnknownExpertError(
                f"no expert '{name}' to give more texts to: this router has {name_some(router.experts, name)}"
            )
        if not merge and name in router.experts:
            raise InputError(f"'{name}' is an expert already: --merge gives it more texts, `ir3de remove` takes it out")


@click.command()
@options.router_argument
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--contribution", metavar="ID", help="Remove only this contribution, and keep the expert.")
@scorer_choice_option
@options.device_option
@options.output_options
def remove(
    router_path: Path,
    names: tuple[str, ...],
    contribution: str | None,
    scorer_choice: lib.domains.ScorerChoice,
    device: str | None,
    out: Output,
) -> None:
    """Remove experts from a router, or one contribution from an expert.

    What is left is, bit for bit, the router with this scorer that never saw them; with --scorer choose, the scorer is
    chosen without them, too. Printed are accuracy and confidence before and after, and which kept prompts go elsewhere.
    `ir3de receipt` then prints what others can check.

    \b
    Example:
      ir3de remove router cooking
      ir3de remove router law --contribution berlin-2026
      ir3de remove router law --scorer choose
    """
    if contribution is not None and len(names) > 1:
        raise click.UsageError("--contribution is removed from one expert: name only that one")
    arithmetic = options.load_arithmetic(device)
    begun = perf_counter()
    with changing(router_path) as router:
        before = copy(router)
        with solving(out, arithmetic):
            router.remove(*dict.fromkeys(names), contribution=contribution, scorer=scorer_choice)
        save_and_report(out, router, [router_path.expanduser()], perf_counter() - begun, before=before)
    if contribution is not None:
        out.note(hint(f"ir3de receipt {router_path} --contribution {contribution}", "the receipt:"))
