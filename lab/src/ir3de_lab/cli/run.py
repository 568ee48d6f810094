"""bench run: every router on a setting, scored from its outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ir3de.cli.plugins import Output, facts, hint, output_options
from ir3de.errors import InputError
from ir3de_lab.cli.experiments import results_option, setting_option
from ir3de_lab.cli.shared import data_option

if TYPE_CHECKING:
    from ir3de_lab.experiments.encoder_contenders import Ways
    from ir3de_lab.experiments.running import Stage

GROUPS = (
    "paper", "ours", "words", "encoders", "embeddings", "strengths", "curves", "halves", "complexity", "expectations",
)  # fmt: skip


@click.command()
@setting_option
@data_option
@results_option
@click.option(
    "--experts",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Folder of the experts, for a protocol that uses the embedding of one.",
)
@click.option("--only", type=click.Choice(GROUPS), multiple=True, help="Only this group of routers; may be repeated.")
@click.option("--resume", is_flag=True, help="Leave out the routers on an encoder whose results are there.")
@click.option(
    "--matching", multiple=True, metavar="TEXT",
    help="Of the routers on an encoder, only those with this in their name; may be repeated. Processes can share them.",
)  # fmt: skip
@click.option(
    "--encoders-from", "sibling", metavar="SETTING",
    help="Take the choices of routers on an encoder from a setting with the same prompts and experts; fit nothing.",
)  # fmt: skip
@click.option(
    "--vectors",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder for the encoders' vectors: a run that was stopped encodes no text again.",
)
@click.option(
    "--embedding", "embeddings", multiple=True, metavar="SOURCE",
    help="For the group embeddings: one more, as a folder, a GGUF file or a hub id; may be repeated.",
)  # fmt: skip
@click.option("--patient", is_flag=True, help="Without an accelerator, run also the encoders that take hours there.")
@click.option(
    "--precision",
    type=click.Choice(["float32", "bfloat16"]),
    default="float32",
    show_default=True,
    help="Of the products of encoders.",
)
@click.option("--ahead", is_flag=True, help="Choose before the experts are asked, and score later.")
@output_options
def run(
    name: str,
    data: Path | None,
    results: Path,
    experts: Path | None,
    only: Sequence[str],
    resume: bool,
    matching: Sequence[str],
    sibling: str | None,
    vectors: Path | None,
    embeddings: Sequence[str],
    patient: bool,
    precision: Literal["float32", "bfloat16"],
    ahead: bool,
    out: Output,
) -> None:
    """Fit every router on a setting, ask it about every test item, and score it from the outcomes.

    A setting that weighs quality against money has its own routers, which expect scores (`--only expectations`). Of all
    others, without --only: the paper's router, this package's, those on words and those on an encoder; these need
    torch, and are left out with a note where it is not installed. Without an accelerator, those are left out that train
    an encoder or stand on a large one; what is left out is kept with its reason, and tables show it as n/a.

    Some groups run only where they are named. `curves`: the figures over training prompts, with ten draws, and over
    prompt length. `strengths`: every λ. `embeddings`: the paper's router and this package's on other models'
    embeddings, as far as those are on this machine. `halves`: routers from outcomes of half of the items, tested on the
    other. `complexity`: times and bytes as domains, texts and prompts grow; let nothing else run meanwhile. Where no
    texts are to be had, nothing is fitted: what was kept is scored.

    \b
    Example:
      ir3de bench run --setting clm --data suites/
      ir3de bench run --setting clm --data suites/ --only encoders --vectors vectors/ --resume
    """
    from ir3de_lab.experiments import choices, expectations, left_out, material, running, settings
    from ir3de_lab.experiments.encoder_contenders import Ways
    from ir3de_lab.experiments.outcomes import place_items
    from ir3de_lab.experiments.results import EXPECTATIONS, outcomes

    setting = settings.load(name)
    folder = results / setting.name
    if ahead and (setting.scored or "halves" in only):
        raise click.UsageError("--ahead is for routers that choose without outcomes: leave it out")
    loaded = material.load(setting, data) if ahead else None
    outcomes_found = outcomes(folder) if loaded is None else place_items(setting, loaded.items)
    made = 0
    if sibling is not None:
        made += _take(results / settings.load(sibling).name, folder)
    elif data is None and not setting.data.hub:
        out.note(f"no --data: scoring the choices in {folder / 'choices'}")
    else:
        stage = running.prepare(setting, loaded or material.load(setting, data), outcomes_found, experts)
        there = {one.router for one in choices.read_all(folder / "choices", outcomes_found)}
        there |= {one.router for one in expectations.read_all(folder / EXPECTATIONS, outcomes_found)}
        reasons: dict[str, str] = {}

        ways = Ways(there if resume else (), matching, vectors, precision, patient, reasons.__setitem__, embeddings)
        with out.spinner(f"fitting and asking the routers of {setting.title}"):
            groups = only or (("expectations",) if setting.priced else running.CHEAP)
            if "expectations" in groups:
                made += _expect(stage, folder, ways, out)
            if "complexity" in groups:
                made += _measure(stage, folder)
            others = [group for group in groups if group not in ("expectations", "complexity")]
            bundled = []
            for chosen in running.run(stage, only=others, note=out.warn, ways=ways):
                if chosen.axis in choices.BUNDLED:
                    bundled.append(chosen)
                else:
                    choices.write(chosen, outcomes_found, folder / "choices")
                made += 1
            choices.write_bundles(bundled, outcomes_found, folder / "choices")
        left_out.update(folder, reasons, choices.read_all(folder / "choices", outcomes_found))
        for router, reason in reasons.items():
            out.warn(f"left out: {router}: {reason}")
    if not ahead:
        _show(folder, made, out)
        return
    out.json({"setting": setting.name, "made": made, "tables": []})
    out.result(facts([("choices", str(made)), ("kept", str(folder / "choices"))]))
    out.note(hint(f"ir3de bench outcomes --setting {name}"))


def _take(sibling: Path, folder: Path) -> int:
    """Keep the choices that routers on an encoder made of the same prompts in another setting; how many there were."""
    from ir3de_lab.experiments import choices, left_out
    from ir3de_lab.experiments.results import outcomes

    theirs, ours = outcomes(sibling), outcomes(folder)
    if (theirs.items, theirs.experts) != (ours.items, ours.experts):
        raise InputError(
            f"'{theirs.setting}' has other prompts or experts than '{ours.setting}': routers choose otherwise there. "
            "Leave out --encoders-from to fit them"
        )
    taken = [one for one in choices.read_all(sibling / "choices", theirs) if one.about.get("encoder")]
    for one in taken:
        choices.write(one, ours, folder / "choices")
    left_out.update(folder, {}, taken)
    return len(taken)


def _expect(stage: Stage, folder: Path, ways: Ways, out: Output) -> int:
    """Ask the routers that expect scores, and keep what they expect; how many there were."""
    from ir3de_lab.experiments import expectations
    from ir3de_lab.experiments.expecting import expect_all
    from ir3de_lab.experiments.results import EXPECTATIONS

    made = 0
    for found in expect_all(stage.setting, stage.material, stage.matrix, out.warn, ways):
        expectations.write(found, stage.matrix, folder / EXPECTATIONS)
        made += 1
    return made


def _measure(stage: Stage, folder: Path) -> int:
    """Take the times of routers that grow, and keep them; how many figures there were."""
    from ir3de_lab.experiments import complexity
    from ir3de_lab.experiments.running import describe_run

    about = describe_run()
    rows = complexity.measure(stage.material.training_texts(), stage.texts)
    complexity.write(rows, about, stage.setting.name, folder)
    return len(rows)


def _show(folder: Path, made: int, out: Output) -> None:
    from ir3de_lab.cli.tables import shown
    from ir3de_lab.experiments.results import read
    from ir3de_lab.experiments.tables import tables

    found = read(folder)
    made_tables = [table for table in tables(found) if table.name in ("main", "needs", "spending")]
    out.json({"setting": found.setting, "made": made, "tables": [table.to_dict() for table in made_tables]})
    out.result(*(part for table in made_tables for part in shown(table, out.console.width)))
