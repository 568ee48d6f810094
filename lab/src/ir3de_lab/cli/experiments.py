"""bench train, outcomes: real experts made of a setting, and what each of them makes of every test item."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.plugins import Output, facts, hint, output_options, table
from ir3de_lab.cli.shared import data_option, keep

if TYPE_CHECKING:
    from ir3de_lab.experiments.matrix import Matrix

_GAP, _FIGURE = 3, 6  # characters between two columns, and of a figure

setting_option = click.option(
    "--setting",
    "name",
    required=True,
    metavar="NAME",
    help="clm, clm-large, reasoning, reasoning-large, reasoning-1b, reasoning-1b-longer, routerdc7, routellm, "
    "routerbench, or the path of a .toml file.",
)
experts_option = click.option(
    "--experts",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of the experts.  [default: experts/NAME]",
)
results_option = click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("results"),
    show_default=True,
    metavar="DIR",
    help="Folder of the raw results; each setting has its own in it.",
)


@click.command()
@setting_option
@data_option
@experts_option
@click.option("--domain", "domains", multiple=True, metavar="NAME", help="Only this expert; may be repeated.")
@output_options
def train(name: str, data: Path | None, folder: Path | None, domains: Sequence[str], out: Output) -> None:
    """Fine-tune an expert for each domain of a setting.

    Experts that are there already stay; a training that was stopped goes on where its last state was kept. On a GPU an
    expert of the shipped settings takes about half a minute.

    \b
    Example:
      ir3de bench train --setting clm --data suites/ --experts experts/clm
    """
    from ir3de_lab.experiments import material, settings
    from ir3de_lab.experiments.experts.training import train as fine_tune

    setting = settings.load(name)
    where = folder or Path("experts", setting.name)
    texts = material.load(setting, data)
    with _losses(out, setting.training.steps) as on_step:
        trained = fine_tune(setting, texts.train, where, domains=tuple(domains), on_step=on_step)
    document = _training_record(where, setting.domains)
    out.json({"trained": trained, **document})
    shown = table("expert", "steps", "first loss", "last loss", "seconds", right=("steps", "first loss", "last loss"))
    for expert, record in document["experts"].items():
        losses = record["losses"]
        tail = losses[-10:]
        shown.add_row(
            expert, str(len(losses)), f"{losses[0]:.3f}", f"{sum(tail) / len(tail):.3f}", f"{record['seconds']:.0f}"
        )
    out.result(shown)
    out.note(hint(f"ir3de bench outcomes --setting {name} --experts {where}"))


@click.command()
@setting_option
@data_option
@experts_option
@results_option
@click.option("--no-judge", is_flag=True, help="Only ask the models; judge later, where no GPU is needed.")
@click.option("--column", "only", multiple=True, metavar="NAME", help="Ask this model alone; may be repeated.")
@output_options
def outcomes(
    name: str, data: Path | None, folder: Path | None, results: Path, no_judge: bool, only: Sequence[str], out: Output
) -> None:
    """Ask every expert about every test item and keep the outcome matrix.

    Raw answers are kept beside the experts, a file a model, and are not asked for again: after a stop, or on another
    machine that has only the answers, the command goes on from there. Generated texts are kept with the results too:
    `--experts results/reasoning` judges them again, without torch or a model.

    \b
    Example:
      ir3de bench outcomes --setting clm --data suites/ --experts experts/clm
    """
    from ir3de_lab.experiments import clusters, matrix, reachable, settings
    from ir3de_lab.experiments.answers import ask_all, publish
    from ir3de_lab.experiments.material import load
    from ir3de_lab.experiments.outcomes import Assembled, assemble, of_scored

    setting = settings.load(name)
    material = load(setting, data)
    where = folder or Path("experts", setting.name)
    if setting.scored:
        made = Assembled({"outcomes": of_scored(setting, material)})
    else:
        ask_all(setting, material, where, say=lambda doing: out.note(doing), only=only)
        if no_judge:
            out.json({"answers": str(where / "answers")})
            out.result(facts([("answers", str(where / "answers"))]))
            return
        made = assemble(setting, material, where, say=lambda doing: out.note(doing))
        if (record := _training_record(where, setting.domains))["experts"]:  # they may be on another machine
            keep(results / setting.name / "training.json", record)
        if setting.metric == "score":  # what was generated can be judged again, by anyone
            publish(setting, where, results / setting.name)
    for file, found in made.matrices.items():
        matrix.write(found, results / setting.name / f"{file}.jsonl.xz")
    outcome_matrix = made.matrices["outcomes"]
    clusters.write(material.items, outcome_matrix, results / setting.name)
    if made.draws is not None:
        drawn = made.matrices["drawn"]
        reachable.write(made.draws, drawn.columns, drawn, results / setting.name)
    out.json(_summary(outcome_matrix))
    out.result(*_shown(outcome_matrix, out.console.width))
    out.note(hint(f"ir3de bench run --setting {name}"))


@click.command("clusters")
@setting_option
@data_option
@results_option
@output_options
def find_clusters(name: str, data: Path | None, results: Path, out: Output) -> None:
    """Find the test items that belong together: chunks of one document, translations of one question.

    Intervals leave such items out together. `bench outcomes` does this too; this command does it for outcomes that are
    there already.

    \b
    Example:
      ir3de bench clusters --setting clm --data suites/
    """
    from ir3de_lab.experiments import clusters, settings
    from ir3de_lab.experiments.material import load
    from ir3de_lab.experiments.results import outcomes

    setting = settings.load(name)
    folder = results / setting.name
    matrix, items = outcomes(folder), load(setting, data).items
    path, number = clusters.write(items, matrix, folder), len(set(clusters.find(items).tolist()))
    out.json({"setting": setting.name, "items": len(items), "clusters": number, "file": str(path)})
    out.result(facts([("items", f"{len(items):,}"), ("clusters", f"{number:,}"), ("kept", str(path))]))


@click.command()
@setting_option
@data_option
@results_option
@output_options
def draws(name: str, data: Path | None, results: Path, out: Output) -> None:
    """Judge every drawn answer by itself, for the reachable oracle.

    The oracle takes the best expert of each item in hindsight, luck included. The reachable one is chosen on some draws
    and scored on the others. `bench outcomes` does this too; this command does it for answers that are in results/.

    \b
    Example:
      ir3de bench draws --setting reasoning-large --data suites/
    """
    from ir3de_lab.experiments import matrix, reachable, settings
    from ir3de_lab.experiments.material import load
    from ir3de_lab.experiments.outcomes import read_draws
    from ir3de_lab.experiments.results import DRAWN

    setting = settings.load(name)
    folder = results / setting.name
    points, columns = read_draws(setting, load(setting, data), folder, say=lambda doing: out.note(doing))
    path = reachable.write(points, columns, matrix.read(folder / DRAWN), folder)
    out.json({"setting": setting.name, "draws": points.shape[2], "file": str(path)})
    out.result(facts([("draws an item", str(points.shape[2])), ("kept", str(path))]))


def _training_record(folder: Path, domains: Sequence[str]) -> dict[str, Any]:
    """What was trained and how, by expert; those that were not trained here have none."""
    from ir3de_lab.experiments.experts.training import record

    return {"experts": {name: found for name in domains if (found := record(folder / name)) is not None}}


def _summary(found: Matrix) -> dict[str, Any]:
    from ir3de_lab.experiments.metrics import Judge

    judge = Judge(found)
    figures = {column: judge.of_column(column) for column in found.columns}
    return {
        "setting": found.setting,
        "items": len(found.items),
        "metric": found.metric,
        "columns": {name: dict(zip(found.domains, figure.raw, strict=True)) for name, figure in figures.items()},
    }


def _shown(found: Matrix, width: int) -> Iterator[Any]:
    """A row a domain and a column a model; models are numbered, and named above, where their names are too wide."""
    summary = _summary(found)
    models = list(summary["columns"])
    widths = [_GAP + max(len(name), _FIGURE) for name in models]
    rows = [("items", f"{summary['items']:,}"), ("figures", "perplexity" if found.metric == "perplexity" else "%")]
    if max(map(len, found.domains)) + sum(widths) > width:
        rows += [(str(number), name) for number, name in enumerate(models, 1)]
        models = [str(number) for number in range(1, len(models) + 1)]
    yield facts(rows)
    figures = table("domain", *models, right=models)
    for domain in found.domains:
        figures.add_row(domain, *(f"{by_domain[domain]:.2f}" for by_domain in summary["columns"].values()))
    yield figures


@contextmanager
def _losses(out: Output, steps: int) -> Iterator[Any]:
    """A bar an expert, with its loss and rate; every fiftieth step as a line where no terminal shows bars."""
    if not out.shows_progress:

        def line(expert: str, step: int, loss: float) -> None:
            if step % 50 == 0 or step == steps:
                out.note(f"{expert}: step {step} of {steps}, loss {loss:.3f}")

        yield line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("loss {task.fields[loss]:.3f}"), console=out.progress_console) as progress:
        bars: dict[str, Any] = {}

        def bar(expert: str, step: int, loss: float) -> None:
            if expert not in bars:
                bars[expert] = progress.add_task(expert, total=steps, loss=loss)
            progress.update(bars[expert], completed=step, loss=loss)

        yield bar
