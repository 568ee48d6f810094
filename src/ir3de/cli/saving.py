"""The last step of fit, add and remove: write the router, say what was done and what comes next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ir3de.cli.counting import Counted, counted_table
from ir3de.cli.output import FAINT, Output, hint, size, styled

if TYPE_CHECKING:
    from ir3de.router import Router


def save_and_report(out: Output, router: Router, folders: list[Path], counted: list[Counted], solved: float) -> None:
    """Save the router, and a serving copy where a second folder is named."""
    from ir3de.storage import inspect_router

    with out.spinner("saving"):
        for folder in folders:
            router.save(folder, serving=folder is not folders[0])
        written = [inspect_router(folder) for folder in folders]
    header = written[0].header
    out.json(
        {
            "router": str(folders[0]),
            "bytes": written[0].bytes,
            "serving": str(folders[1]) if len(folders) > 1 else None,
            "experts": list(router.experts),
            **{key: header[key] for key in ("default", "scorer", "selector", "embedding")},
            "counted": [domain.to_dict() for domain in counted],
            "solve_seconds": round(solved, 3),
        }
    )
    if counted:
        out.note(counted_table(counted), "")
    experts = "1 expert" if len(router.experts) == 1 else f"{len(router.experts)} experts"
    strategies = f"{type(router.scorer).__name__}, {type(router.selector).__name__}"
    out.note(styled((f"{experts} solved in {solved:.2f} s", ""), (f"  {strategies}", FAINT)))
    for folder, files in zip(folders, written, strict=True):
        kind = "saved" if folder is folders[0] else "serving copy saved"
        out.note(styled((f"{kind} to ", ""), (str(folder), "bold"), (f"  {size(files.bytes)}", FAINT)))
    out.note(hint(f'ir3de route {folders[0]} "your prompt"'))
