"""The last step of fit, add and remove: write the router, say what was done and what comes next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.domains import Counted, counted_table, note_skipped
from ir3de.cli.options import refuse_existing
from ir3de.cli.output import FAINT, Output, hint, percent, size, styled
from ir3de.cli.trials import trials_table

if TYPE_CHECKING:
    from rich.text import Text

    from ir3de.router import Router


def save_and_report(
    out: Output, router: Router, folders: list[Path], counted: list[Counted], solved: float, *, tuned: bool = False
) -> None:
    """Save the router, and a serving copy where a second folder is named; `tuned` shows what was tried."""
    written = save_folders(out, router, folders)
    for domain in counted:
        domain.discard_checkpoints()
    header = written[folders[0]].header
    out.json(
        {
            **where_saved(written),
            "experts": list(router.experts),
            **{key: header[key] for key in ("default", "scorer", "selector", "embedding", "calibration", "policy")},
            "trials": list(router.trials),
            "counted": [domain.to_dict() for domain in counted],
            "solve_seconds": round(solved, 3),
        }
    )
    if counted:
        out.note(counted_table(counted), "")
        note_skipped(out, counted)
    if tuned:
        out.note(trials_table(router.trials), "")
    experts = "1 expert" if len(router.experts) == 1 else f"{len(router.experts)} experts"
    strategies = f"{type(router.scorer).__name__}, {type(router.selector).__name__}"
    out.note(styled((f"{experts} solved in {solved:.2f} s", ""), (f"  {strategies}", FAINT)))
    out.note(*how_sure(router))
    note_saved(out, written)


@dataclass(frozen=True)
class Written:
    """A router's folder as it was just saved: its header, and the bytes of its files."""

    header: Mapping[str, Any]
    bytes: int


def save_folders(out: Output, router: Router, folders: list[Path]) -> dict[Path, Written]:
    """Save the router in the first folder and serving copies in the others; what was written."""
    from ir3de.artifact import HEADER, is_ours, read_header

    with out.spinner("saving"):
        written = {}
        for folder in folders:
            router.save(folder, serving=folder is not folders[0])
            sizes = [path.stat().st_size for path in folder.iterdir() if is_ours(path) or path.name == HEADER]
            written[folder] = Written(read_header(folder), sum(sizes))
        return written


def where_saved(written: Mapping[Path, Written]) -> dict[str, Any]:
    """Plain values, ready for JSON."""
    router, *serving = written
    return {"router": str(router), "bytes": written[router].bytes, "serving": str(serving[0]) if serving else None}


def note_saved(out: Output, written: Mapping[Path, Written]) -> None:
    """Say what lies where, and what comes next."""
    router = next(iter(written))
    for folder, files in written.items():
        kind = "saved" if folder is router else "serving copy saved"
        out.note(styled((f"{kind} to ", ""), (str(folder), "bold"), (f"  {size(files.bytes)}", FAINT)))
    out.note(hint(f'ir3de route {router} "your prompt"'))


def how_sure(router: Router) -> list[Text]:
    """Whether confidence is calibrated, and below what the router abstains."""
    kept = "calibrated on prompts that were held out"
    if router.kind == "outcomes":
        kept = "is the score expected of the model"
    elif len(router.experts) == 1:
        kept = "says nothing yet: there is one expert"
    elif not router.calibrated:
        without = [name for name, own in router.statistics.items() if not own.sample]
        names = f"no prompts were kept of {', '.join(without[:3])}{' …' if len(without) > 3 else ''}"
        kept = f"not calibrated: {names if without else 'too few prompts were kept'}"
    lines = [styled(("confidence ", ""), (kept, FAINT))]
    if router.policy.threshold > 0:
        below = f"below {percent(router.policy.threshold)} confidence; if the fit has changed since, pick it anew with"
        lines.append(styled((f"abstains {below} ", FAINT), ("ir3de calibrate", "cyan")))
    return lines


@contextmanager
def changing(path: Path) -> Iterator[Router]:
    """The router, kept from other writers until it is saved, so that two changes at once both stay."""
    from ir3de.storage.files import lock_folder

    load_router(path)  # or there is no such router, and no folder to keep
    with lock_folder(path.expanduser()):
        yield load_router(path)


def load_router(path: Path) -> Router:
    from ir3de.router import Router

    return Router.load(path)


def free_folders(router_path: Path, serving: Path | None, *, force: bool) -> list[Path]:
    """Where the router and its serving copy go, checked before hours are spent on fitting."""
    from ir3de.artifact import check_destination

    folders = [check_destination(router_path)]
    if serving is not None:
        folders.append(check_destination(serving, serving=True))
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise click.UsageError("OUT and --serving name the same folder: give the serving copy one of its own")
    for folder in folders:
        refuse_existing(folder, force=force)
    return folders
