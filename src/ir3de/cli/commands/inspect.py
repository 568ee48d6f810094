"""inspect: what a router, a statistics file or an embedding is, with every hash checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.options import output_options
from ir3de.cli.outcomes import describe_outcomes
from ir3de.cli.output import (
    FAINT,
    NARROW_WIDTH,
    Output,
    count_left_out,
    facts,
    heading,
    line,
    percent,
    size,
    split_rows,
    table,
)
from ir3de.cli.saving import load_router
from ir3de.cli.strong_weak import describe_share
from ir3de.cli.trials import trials_table

if TYPE_CHECKING:
    from ir3de.files.router_folder import RouterFiles


KEPT = ("serving", "experts", "default", "scorer", "selector", "embedding", "calibration", "familiarity")
MAX_TRIAL_ROWS = 5


@click.command()
@click.argument("path", metavar="PATH", type=click.Path(path_type=Path))
@output_options
def inspect(path: Path, out: Output) -> None:
    """Show what a router, a .stats file or an embedding holds.

    Every file is read and compared with its hash. The exit code is 1 if a file is damaged or missing.

    \b
    Examples:
      ir3de inspect router
      ir3de inspect law.stats
    """
    from ir3de.embedding.copies import COPY_HEADER
    from ir3de.errors import ArtifactError
    from ir3de.files.router_folder import holds_router

    path = path.expanduser()
    if holds_router(path):
        _inspect_router(path, out)
    elif (path / COPY_HEADER).is_file():
        _inspect_embedding(path, out)
    elif path.is_file():
        _inspect_statistics(path, out)
    else:
        found = "a folder that is neither a router nor an embedding" if path.is_dir() else "nothing"
        raise ArtifactError(
            f"cannot inspect {path}: found {found}; name a router, a .stats file or a compact embedding"
        )


def _inspect_router(path: Path, out: Output) -> None:
    from ir3de.errors import ArtifactError
    from ir3de.files.router_folder import inspect_router

    found = inspect_router(path)
    header = found.header
    files = [{"name": file.name, "bytes": file.bytes, "state": file.state} for file in found.files]
    kept = {key: header.get(key) for key in (*KEPT, "policy", "trials")}
    kept |= {"outcomes": header["outcomes"]} if "outcomes" in header else {}
    out.json({"kind": "router", "path": str(path), "whole": found.whole, **kept, "files": files})
    if not out.as_json:
        _show_router(path, found, out)
    if not found.whole:
        broken = ", ".join(file.name for file in found.files if file.state in ("missing", "damaged"))
        raise ArtifactError(f"the router at {path} is not whole ({broken}): copy it again from where it came from")


def _show_router(path: Path, found: RouterFiles, out: Output) -> None:
    header = found.header
    embedding = header.get("embedding") or {}
    kind = "serving copy of a router: it can route, but not change" if header.get("serving") else "router"
    kind += ", fitted from outcomes" if "outcomes" in header else ""
    out.result(line((str(path), "bold"), (f"  {kind}, {size(found.bytes)}", FAINT)))
    out.note(
        facts(
            [
                ("scorer", _strategy(header.get("scorer"))),
                ("selector", _strategy(header.get("selector"))),
                ("embedding", f"{embedding.get('name', '')} {str(embedding.get('fingerprint'))[:12]}".strip()),
                ("default expert", str(header.get("default") or "none was named")),
                ("confidence", _confidence(header.get("calibration"))),
                ("abstains", _abstention(found)),
                *_strong_share(header),
            ]
        )
    )
    has_sources = any("sources" in expert for expert in header.get("experts", ()))
    counted = ("prompts", "tokens", "kept", *(("sources",) if has_sources else ()))
    narrow = out.console.width < NARROW_WIDTH  # names come before what is seldom asked for
    others = () if narrow else ("contributions", "digest")
    experts = table("expert", *counted, *others, right=(*counted, "contributions"))
    first, left_out = split_rows(header.get("experts", ()))
    for expert in first:
        counts = [f"{expert[key]:,}" if key in expert else "–" for key in counted]
        given = f"{len(expert['contributions']):,}" if "contributions" in expert else "–"
        rest = () if narrow else (given, line((expert.get("digest", "–")[:16], FAINT)))
        experts.add_row(str(expert.get("name")), *counts, *rest)
    files = table("file", "size", "content", right=("size",))
    order = sorted(found.files, key=lambda file: file.state == "ok")  # what is wrong comes first
    shown_files, more_files = split_rows(order)
    for file in shown_files:
        colour = "green" if file.state == "ok" else "yellow" if "rebuilt" in file.state else "red"
        files.add_row(file.name, size(file.bytes), line((file.state, colour)))
    out.note("", count_left_out(experts, left_out), "", count_left_out(files, more_files))
    if header.get("trials"):
        out.note(
            heading("Tuned" if header.get("tuned", True) else "Chosen by the fit"),
            trials_table(header["trials"], MAX_TRIAL_ROWS),
        )
    if "outcomes" in header and found.whole:
        out.note(*describe_outcomes(header, load_router(path), out.console.width))


def _confidence(calibration: Any) -> str:
    if not isinstance(calibration, dict):
        return "not calibrated"
    return f"calibrated: softmax({calibration['scale']:.3g} · tokens^{calibration['growth']:g} · evidence)"


def _abstention(found: RouterFiles) -> str:
    threshold, tells = (found.header.get("policy") or {}).get("threshold") or 0, found.tells_out_of_domain()
    if threshold:
        return f"below {percent(threshold)} confidence{' and on prompts out of domain' if tells else ''}"
    if tells:
        return "on prompts out of domain"
    if found.header.get("membership"):
        return "only on prompts without content: it was fitted from too few prompts to call others out of domain"
    return "only without a known token"


def _strong_share(header: Mapping[str, Any]) -> list[tuple[str, str]]:
    from ir3de.policies import StrongShare

    share = (header.get("policy") or {}).get("strong_share")
    return [("strong calls", describe_share(StrongShare(**share)))] if share else []


def _strategy(described: Any) -> str:
    """PromptRidge(strength=8.0), as Python would write it."""
    if not isinstance(described, dict):
        return "–"
    parameters = ", ".join(f"{key}={value!r}" for key, value in described.items() if key != "name")
    return f"{described.get('name')}({parameters})"


def _inspect_embedding(path: Path, out: Output) -> None:
    from ir3de.embedding import Embedding

    with out.spinner("checking"):
        embedding = Embedding.load(path)
        engine = embedding.tokenizer.engine
    stored, whose = embedding.stored, {"name": embedding.name, "fingerprint": embedding.fingerprint}
    shape = {"vocabulary": embedding.vocabulary_size, "width": embedding.width, "encoding": stored.encoding}
    place = {"kind": "embedding", "path": str(path)}
    out.json({**place, **whose, **shape, "bytes": stored.nbytes, "tokenizer_engine": engine})
    out.result(line((str(path), "bold"), ("  embedding, every hash is right", FAINT)))
    matrix = f"{embedding.vocabulary_size:,} × {embedding.width}, {stored.encoding}"
    out.note(facts([*whose.items(), ("matrix", matrix), ("size", size(stored.nbytes)), ("tokenizer", engine)]))


def _inspect_statistics(path: Path, out: Output) -> None:
    from ir3de.cli.contributions import describe, statistics_facts
    from ir3de.statistics.contributions import Contribution

    found = Contribution.load(path)
    out.json({"kind": "statistics", "path": str(path), "bytes": path.stat().st_size, **describe(found)})
    out.result(line((str(path), "bold"), (f"  statistics, {size(path.stat().st_size)}, every hash is right", FAINT)))
    out.note(statistics_facts(found))
