"""Load a router, change it safely, save it, and report the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

import ir3de
from ir3de import files
from ir3de.cli import lib
from ir3de.cli.counting import CountedDomain, domains_table, warn_of_skipped
from ir3de.cli.domains import list_repeats
from ir3de.cli.formats import FAINT, line, percent
from ir3de.cli.options import refuse_existing
from ir3de.cli.outcomes import view_means
from ir3de.cli.output import Block, Output, hint, saved_line
from ir3de.cli.proof import (
    KNOWN_TO_TEACHER,
    Proven,
    advise_fit,
    describe_choice,
    trials_table,
    view_change,
    view_proof,
    why_chosen,
    write_serve_command,
)  # fmt: skip
from ir3de.cli.teaching import view_teaching


def load_router(path: Path) -> ir3de.Router:
    """The router in that folder."""
    return ir3de.Router.load(path)


@contextmanager
def changing(path: Path) -> Iterator[ir3de.Router]:
    """The router, locked until it is saved, so that no change of another process is lost."""
    load_router(path)  # rejects a path without a router, before a lock is made there
    with files.lock_folder(path.expanduser()):
        yield load_router(path)


def free_folders(router_path: Path, serving: Path | None, *, force: bool) -> list[Path]:
    """The folders of the router and its serving copy, checked before hours of fitting."""
    folders = [lib.router_folder.check_destination(router_path)]
    if serving is not None:
        folders.append(lib.router_folder.check_destination(serving, serving=True))
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise click.UsageError("OUT and --serving name the same folder: give the serving copy its own folder")
    for folder in folders:
        refuse_existing(folder, force=force)
    return folders


def measure_change(out: Output, before: ir3de.Router, after: ir3de.Router) -> lib.evaluation.ChangeReport:
    """Compare a router with the same router after a change."""
    with out.spinner("comparing with the router before"):
        return lib.evaluation.measure_change(before, after)


def save_and_report(
    out: Output,
    router: ir3de.Router,
    folders: list[Path],
    seconds: float,
    counted: Sequence[CountedDomain] = (),
    *,
    tuned: bool = False,
    prove: Callable[[], Proven] | None = None,
    repeats: lib.repeats.Repeats | None = None,
    before: ir3de.Router | None = None,
) -> None:
    """Save the router, and a serving copy if there is a second folder; `tuned` shows the trials.

    `prove` measures the router once it is safely on disk. After a change, it is compared with the one `before`.
    """
    header, written = _save_folders(out, router, folders)
    proven = None if prove is None else prove()
    advice = advise_fit(router, proven) if prove is not None else None
    changed = None if before is None else measure_change(out, before, router).to_dict()
    for domain in counted:
        domain.discard_checkpoints()
    folder, *serving = folders
    saved: dict[str, Any]
    saved = {"router": str(folder), "bytes": written[folder], "serving": str(serving[0]) if serving else None}
    saved |= {key: header[key] for key in ("experts", "default", "scorer", "selector", "embedding")}
    saved |= {} if changed is None else {"change": changed}
    solved = {"solve_seconds": round(seconds, 3)}
    if before is None and router.kind == "outcomes":
        saved |= {**{key: header[key] for key in ("policy", "reason", "outcomes")}, **solved}
        out.show(saved, _view_outcomes(header, router, seconds, out))
    else:
        saved |= {"experts": list(router.experts), **{key: header[key] for key in ("calibration", "policy")}}
        saved |= {"opinion": header["opinion"]} if "opinion" in header else {}
        saved |= {"trials": list(router.trials), "counted": [domain.to_dict() for domain in counted]}
        saved |= {} if repeats is None else {"repeats": repeats.to_dict()}
        saved |= {} if router.teaching is None else {"teaching": router.teaching.to_dict()}
        saved |= {**solved, **({} if proven is None else {"proof": proven.to_dict()})}
        saved |= {} if advice is None else {"advice": {**advice.to_dict(), "sentence": str(advice)}}
        out.json(saved)
        if counted:
            out.note(domains_table(saved["counted"]), "")
            warn_of_skipped(out, counted)
        for sentence in list_repeats(repeats):
            out.warn(sentence)
        if not out.as_json:
            out.note(*_view_fit(saved, router, seconds, header, tuned=tuned))
    for path, taken in written.items():
        out.note(saved_line(path, taken, "saved to" if path is folder else "serving copy saved to"))
    if proven is not None and not out.as_json:
        out.note(*view_proof(proven, router.experts, out.console.width), "")
    if advice is not None:
        out.note(line(("few prompts: ", "yellow"), (str(advice), "")))
    out.note(hint(f'ir3de route {folder} "your prompt"'))
    if proven is not None and proven.is_ready:
        out.note(hint(write_serve_command(folder, router.experts), "then:"))


def _save_folders(out: Output, router: ir3de.Router, folders: list[Path]) -> tuple[Mapping[str, Any], dict[Path, int]]:
    """Save the router in the first folder and serving copies in the others: its header, and the bytes of each."""
    written = {}
    with out.spinner("saving"):
        for folder in folders:
            router.save(folder, serving=folder is not folders[0])
            header = folder / lib.router_folder.ROUTER_HEADER_FILE
            ours = [path for path in folder.iterdir() if lib.router_folder.is_ours(path) or path == header]
            written[folder] = sum(path.stat().st_size for path in ours)
        return lib.router_folder.read_header(folders[0]), written


def _view_fit(
    document: Mapping[str, Any], router: ir3de.Router, seconds: float, header: Mapping[str, Any], *, tuned: bool
) -> Iterator[Block]:
    """The trials, the change or the choice of the fit; then how long it took, and what confidence means."""
    if tuned:
        yield from (trials_table(document["trials"]), line((why_chosen(document["trials"]), "")), "")
    elif "change" in document:
        if router.kind == "domains":  # an outcome router has no kept prompts to compare
            yield from view_change(document["change"])
            if router.teaching is not None and router.teaching.is_used:
                yield line((KNOWN_TO_TEACHER, FAINT))
    elif header.get("chosen_by") == "fit" and (choice := describe_choice(router.trials, header["reason"])):
        yield from (line((choice, "")), "")
    yield from view_teaching(router)
    many, names = len(router.experts), f"{type(router.scorer).__name__}, {type(router.selector).__name__}"
    yield line((f"fitted {many} expert{'s' * (many > 1)} in {seconds:.2f} s", ""), (f"  {names}", FAINT))
    yield from view_confidence(router)
    if text := describe_encoder(header.get("opinion")):
        yield line(("encoder ", ""), (text, FAINT))


def describe_encoder(opinion: Mapping[str, Any] | None) -> str:
    """When the router's encoder is asked, and what it adds on held-out prompts; empty without an encoder."""
    if opinion is None:
        return ""
    name, gain = opinion["encoder"]["name"], opinion["gain"]
    if gain is None:
        return f"{name}, asked about every prompt: too few prompts were kept to learn when to ask"
    when = "about every prompt" if opinion["certainty"] is None else f"below {percent(opinion['certainty'])} confidence"
    right = f"{percent(gain['consulted'])} of {gain['prompts']:,} held-out prompts are routed correctly"
    adds_nothing = "" if gain["consulted"] > gain["table"] else ": it adds nothing, fit without it"
    return f"{name}, asked {when}; {right}, without it {percent(gain['table'])}{adds_nothing}"


def _view_outcomes(header: Mapping[str, Any], router: ir3de.Router, seconds: float, out: Output) -> Iterator[Block]:
    yield from (*view_means(header, router, out.console.width), "")
    many, scores = len(router.experts), sum(expert["prompts"] for expert in header["experts"])
    done = f"fitted {many} model{'s' * (many > 1)} from {scores:,} scores in {seconds:.2f} s"
    yield line((done, ""), (f"  {router.scorer}", FAINT))


def view_confidence(router: ir3de.Router) -> Iterator[Block]:
    """Whether confidence is calibrated, and below which confidence the router abstains."""
    if router.kind == "outcomes":
        what = "is the expected score of the model"
    elif len(router.experts) == 1:
        what = "has no meaning yet: there is only one expert"
    elif router.calibrated:
        what = "is calibrated on held-out prompts"
    else:
        without = [name for name, own in router.statistics.items() if not own.sample]
        names = f"{', '.join(without[:3])}{' …' if len(without) > 3 else ''}"
        has_none = not any(router.prompts[name] for name in without)  # a description is not a prompt
        why = f"there are no prompts of {names}" if has_none else f"no prompts of {names} were kept"
        what = f"is not calibrated: {why if without else 'too few prompts were kept'}"
    yield line(("confidence ", ""), (what, FAINT))
    if router.policy.threshold > 0:
        below = f"it abstains below {percent(router.policy.threshold)} confidence; to pick that threshold anew: "
        yield line((below, FAINT), ("ir3de calibrate", "cyan"))
