"""Load a router, change it safely, save it, and report what was saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.changes import show_change
from ir3de.cli.domains import CountedDomain, domains_table, list_repeats, note_skipped
from ir3de.cli.options import refuse_existing
from ir3de.cli.outcomes import describe_outcomes
from ir3de.cli.output import FAINT, Output, hint, line, percent, size
from ir3de.cli.proofs import Proven, serve_hint, show_proof
from ir3de.cli.trials import describe_choice, trials_table, why_chosen

if TYPE_CHECKING:
    from rich.text import Text

    from ir3de.corpora.repeats import Repeats
    from ir3de.evaluation.change import ChangeReport
    from ir3de.router import Router


def save_and_report(
    out: Output,
    router: Router,
    folders: list[Path],
    seconds: float,
    counted: Sequence[CountedDomain] = (),
    *,
    tuned: bool = False,
    from_outcomes: bool = False,
    proving: Callable[[], Proven] | None = None,
    repeats: Repeats | None = None,
    before: Router | None = None,
) -> None:
    """Save the router, and a serving copy where a second folder is named; `tuned` shows the trials.

    `proving` measures the router once it is safely on disk. After a change, it is compared with the one `before`.
    """
    header, written = save_folders(out, router, folders)
    proven = None if proving is None else proving()
    changed = None if before is None else measure_change(out, before, router)
    for domain in counted:
        domain.discard_checkpoints()
    folder, *serving = folders
    solved = {"solve_seconds": round(seconds, 3)}
    saved = {"router": str(folder), "bytes": written[folder], "serving": str(serving[0]) if serving else None}
    saved |= {key: header[key] for key in ("experts", "default", "scorer", "selector", "embedding")}
    saved |= {} if changed is None else {"change": changed.to_dict()}
    if from_outcomes:
        out.json(
            {**saved, "policy": header["policy"], "reason": header["reason"], "outcomes": header["outcomes"], **solved}
        )
        scores = f" from {sum(expert['prompts'] for expert in header['experts']):,} scores"
        if not out.as_json:
            out.note(*describe_outcomes(header, router, out.console.width), "")
    else:
        out.json(
            {
                **saved,
                "experts": list(router.experts),
                **{key: header[key] for key in ("calibration", "policy")},
                "trials": list(router.trials),
                "counted": [domain.to_dict() for domain in counted],
                **({} if repeats is None else {"repeats": repeats.to_dict()}),
                **solved,
                **({} if proven is None else {"proof": proven.to_dict()}),
            }
        )
        scores = ""
        if counted:
            out.note(domains_table(counted), "")
            note_skipped(out, counted)
        for sentence in list_repeats(repeats):
            out.warn(sentence)
        if tuned:
            out.note(trials_table(router.trials), line((why_chosen(router.trials), "")), "")
        elif changed is not None:
            if router.kind == "domains":  # an outcome router has no kept prompts to compare
                show_change(out, changed)
        elif header.get("chosen_by") == "fit" and (choice := describe_choice(router.trials, header["reason"])):
            out.note(line((choice, "")), "")
    experts = f"{len(router.experts)} {'model' if from_outcomes else 'expert'}{'s' * (len(router.experts) > 1)}"
    names = f"{type(router.scorer).__name__}, {type(router.selector).__name__}"
    strategies = str(router.scorer) if from_outcomes else names
    out.note(line((f"fitted {experts}{scores} in {seconds:.2f} s", ""), (f"  {strategies}", FAINT)))
    if not from_outcomes:
        out.note(*how_sure(router))
    for path, taken in written.items():
        kind = "saved to" if path is folder else "serving copy saved to"
        out.note(line((f"{kind} ", ""), (str(path), "bold"), (f"  {size(taken)}", FAINT)))
    if proven is not None:
        show_proof(out, proven, router)
        out.note("")
    out.note(hint(f'ir3de route {folder} "your prompt"'))
    if proven is not None and proven.is_ready:
        out.note(serve_hint(router, folder))


def measure_change(out: Output, before: Router, after: Router) -> ChangeReport:
    """Compare a router with what a change made of it."""
    from ir3de.evaluation import change

    with out.spinner("comparing with the router before"):
        return change.measure_change(before, after)


def save_folders(out: Output, router: Router, folders: list[Path]) -> tuple[Mapping[str, Any], dict[Path, int]]:
    """Save the router in the first folder and serving copies in the others: its header, and the bytes of each."""
    from ir3de.files.router_folder import ROUTER_HEADER_FILE, is_ours, read_header

    written = {}
    with out.spinner("saving"):
        for folder in folders:
            router.save(folder, serving=folder is not folders[0])
            files = [path for path in folder.iterdir() if is_ours(path) or path.name == ROUTER_HEADER_FILE]
            written[folder] = sum(path.stat().st_size for path in files)
        return read_header(folders[0]), written


def how_sure(router: Router) -> list[Text]:
    """Whether confidence is calibrated, and below what the router abstains."""
    if router.kind == "outcomes":
        kept = "is the expected score of the model"
    elif len(router.experts) == 1:
        kept = "has no meaning yet: there is only one expert"
    elif router.calibrated:
        kept = "is calibrated on held-out prompts"
    else:
        without = [name for name, own in router.statistics.items() if not own.sample]
        given = router.prompts
        none = all(not given[name] for name in without)  # a description is no prompt
        names = f"{', '.join(without[:3])}{' …' if len(without) > 3 else ''}"
        why = f"there are no prompts of {names}" if none else f"no prompts of {names} were kept"
        kept = f"is not calibrated: {why if without else 'too few prompts were kept'}"
    lines = [line(("confidence ", ""), (kept, FAINT))]
    if router.policy.threshold > 0:
        below = f"it abstains below {percent(router.policy.threshold)} confidence; to pick that threshold anew: "
        lines.append(line((below, FAINT), ("ir3de calibrate", "cyan")))
    return lines


@contextmanager
def changing(path: Path) -> Iterator[Router]:
    """The router, locked until it is saved, so that no change of another process is lost."""
    from ir3de.files.atomic import lock_folder

    load_router(path)  # refuses a path without a router, before a lock is made there
    with lock_folder(path.expanduser()):
        yield load_router(path)


def load_router(path: Path) -> Router:
    from ir3de.router import Router

    return Router.load(path)


def free_folders(router_path: Path, serving: Path | None, *, force: bool) -> list[Path]:
    """Where the router and its serving copy go, checked before hours are spent on fitting."""
    from ir3de.files.router_folder import check_destination

    folders = [check_destination(router_path)]
    if serving is not None:
        folders.append(check_destination(serving, serving=True))
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise click.UsageError("OUT and --serving name the same folder: give the serving copy its own folder")
    for folder in folders:
        refuse_existing(folder, force=force)
    return folders
