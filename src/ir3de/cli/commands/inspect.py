"""inspect: the content of a router, a statistics file or an embedding, with every hash checked."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

import ir3de
from ir3de.cli import lib
from ir3de.cli.commands.collect import describe_contribution, list_contribution_facts
from ir3de.cli.formats import FAINT, line, percent, size
from ir3de.cli.options import output_options
from ir3de.cli.outcomes import describe_share, view_means
from ir3de.cli.output import NARROW_WIDTH, Block, Output, Result, facts, heading, short_table
from ir3de.cli.proof import trials_table
from ir3de.cli.saving import describe_encoder, load_router
from ir3de.errors import ArtifactError

KEPT = ("serving", "experts", "default", "scorer", "selector", "embedding", "calibration", "familiarity")
MAX_TRIAL_ROWS = 5
SMAPS = Path("/proc/self/smaps")  # where Linux reports what a process has mapped
QUESTION = "What is the capital of France?"


@click.command()
@click.argument("path", metavar="PATH", type=click.Path(path_type=Path))
@output_options
def inspect(path: Path, out: Output) -> None:
    """Show what a router, a .stats file or an embedding holds.

    Every file is read and compared with its hash. The exit code is 1 if a file is damaged or missing. On Linux, a
    router is also loaded, to show what a process maps of it and how much of that one route brings into memory.

    \b
    Examples:
      ir3de inspect router
      ir3de inspect law.stats
    """
    path = path.expanduser()
    if lib.router_folder.holds_router(path):
        _inspect_router(path, out)
    elif (path / lib.copies.COPY_HEADER).is_file():
        _inspect_embedding(path, out)
    elif path.is_file():
        _inspect_statistics(path, out)
    else:
        found = "a folder that is neither a router nor an embedding" if path.is_dir() else "nothing"
        raise ArtifactError(
            f"cannot inspect {path}: found {found}; name a router, a .stats file or a compact embedding"
        )


def _inspect_router(path: Path, out: Output) -> None:
    found = lib.router_folder.inspect_router(path)
    header = found.header
    files = [{"name": file.name, "bytes": file.bytes, "state": file.state} for file in found.files]
    kept = {key: header.get(key) for key in (*KEPT, "policy", "trials")}
    kept |= {key: header[key] for key in ("outcomes", "opinion") if key in header}
    is_complete = all(file.state == "ok" for file in found.files)
    kept["memory"] = _measure_memory(path) if is_complete and SMAPS.is_file() else None
    document = {"kind": "router", "path": str(path), "whole": found.whole, **kept, "files": files}
    more = {"membership": header.get("membership"), "tuned": header.get("tuned", True)}
    more |= {"recognises": found.tells_out_of_domain()}
    out.show(document, _view_router(document, more, out))
    if not found.whole:
        broken = ", ".join(file.name for file in found.files if file.state in ("missing", "damaged"))
        raise ArtifactError(f"the router at {path} is not whole ({broken}): copy it again from where it came from")


def _measure_memory(path: Path) -> dict[str, int]:
    """What a process that shares the router has mapped, and how much of that is resident after one route."""
    with tempfile.TemporaryDirectory(prefix="ir3de-inspect-") as derived:  # the router's folder stays as it is
        router = ir3de.Router.load(path, mapped=True, derived=derived)
        router.route(QUESTION, consult=False)
        sizes, is_ours = {"Size:": 0, "Rss:": 0}, False
        for entry in SMAPS.read_text("utf-8", "replace").splitlines():
            first, second, *rest = [*entry.split(maxsplit=5), "", ""]
            if first in sizes:
                sizes[first] += 1024 * int(second) * is_ours
            elif "-" in first and not first.endswith(":"):  # addresses: another mapping begins
                is_ours = len(rest) > 3 and rest[3].startswith(os.path.realpath(derived))
    return {"mapped_bytes": sizes["Size:"], "resident_bytes": sizes["Rss:"]}


def _view_router(document: Mapping[str, Any], more: Mapping[str, Any], out: Output) -> Iterator[Block]:
    embedding, policy = document["embedding"] or {}, document["policy"] or {}
    kind = "serving copy of a router: it can route, but not change" if document["serving"] else "router"
    kind += ", fitted from outcomes" if "outcomes" in document else ""
    total = sum(file["bytes"] for file in document["files"])
    yield Result(line((document["path"], "bold"), (f"  {kind}, {size(total)}", FAINT)))
    share = policy.get("strong_share")
    known = [
        ("scorer", _format_strategy(document["scorer"])),
        ("selector", _format_strategy(document["selector"])),
        ("embedding", f"{embedding.get('name', '')} {str(embedding.get('fingerprint'))[:12]}".strip()),
        ("default expert", str(document["default"] or "none was named")),
        ("confidence", _describe_confidence(document["calibration"])),
        ("abstains", _describe_abstention(policy.get("threshold") or 0, more)),
        *([("memory", _describe_memory(document["memory"]))] if document["memory"] else []),
        *([("strong calls", describe_share(share))] if share else []),
        *([("encoder", text)] if (text := describe_encoder(document.get("opinion"))) else []),
    ]
    yield from (facts(known), "", _experts_table(document["experts"] or (), out), "")
    order = sorted(document["files"], key=lambda file: file["state"] == "ok")  # damaged files come first
    colours = {"ok": "green", "missing": "red", "damaged": "red"}
    rows = [
        (file["name"], size(file["bytes"]), line((file["state"], colours.get(file["state"], "yellow"))))
        for file in order
    ]
    yield short_table("file", "size", "content", right=("size",), rows=rows)
    if document["trials"]:
        yield heading("Tuned" if more["tuned"] else "Chosen by the fit")
        yield trials_table(document["trials"], MAX_TRIAL_ROWS)
    if "outcomes" in document and document["whole"]:
        yield from view_means(document, load_router(Path(document["path"])), out.console.width)


def _experts_table(experts: Any, out: Output) -> Any:
    """One row for each expert; names come before optional columns on a narrow terminal."""
    has_sources, is_narrow = any("sources" in one for one in experts), out.console.width < NARROW_WIDTH
    counted = ("prompts", "tokens", "kept", *(("sources",) if has_sources else ()))
    rows = []
    for expert in experts:
        counts = [f"{expert[key]:,}" if key in expert else "–" for key in counted]
        given = f"{len(expert['contributions']):,}" if "contributions" in expert else "–"
        rest = () if is_narrow else (given, line((expert.get("digest", "–")[:16], FAINT)))
        rows.append((str(expert.get("name")), *counts, *rest))
    others = () if is_narrow else ("contributions", "digest")
    return short_table("expert", *counted, *others, right=(*counted, "contributions"), rows=rows)


def _describe_confidence(calibration: Any) -> str:
    if not isinstance(calibration, dict):
        return "not calibrated"
    return f"calibrated: softmax({calibration['scale']:.3g} · tokens^{calibration['growth']:g} · evidence)"


def _describe_memory(memory: Mapping[str, int]) -> str:
    mapped, resident = (size(memory[name]) for name in ("mapped_bytes", "resident_bytes"))
    return f"{mapped} mapped, which processes share; {resident} of it resident after one route"


def _describe_abstention(threshold: float, more: Mapping[str, Any]) -> str:
    if threshold:
        return f"below {percent(threshold)} confidence{' and on prompts out of domain' if more['recognises'] else ''}"
    if more["recognises"]:
        return "on prompts out of domain"
    if more["membership"]:
        return "only on prompts without content: it was fitted from too few prompts to recognise out-of-domain prompts"
    return "only without a known token"


def _format_strategy(described: Any) -> str:
    """PromptRidge(strength=8.0), as Python would write it."""
    if not isinstance(described, dict):
        return "–"
    parameters = ", ".join(f"{key}={value!r}" for key, value in described.items() if key != "name")
    return f"{described.get('name')}({parameters})"


def _inspect_embedding(path: Path, out: Output) -> None:
    with out.spinner("checking"):
        embedding = ir3de.Embedding.load(path)
        engine = embedding.tokenizer.engine
    stored, names = embedding.stored, {"name": embedding.name, "fingerprint": embedding.fingerprint}
    shape = {"vocabulary": embedding.vocabulary_size, "width": embedding.width, "encoding": stored.encoding}
    document = {"kind": "embedding", "path": str(path), **names, **shape}
    matrix = f"{embedding.vocabulary_size:,} × {embedding.width}, {stored.encoding}"
    known = facts([*names.items(), ("matrix", matrix), ("size", size(stored.nbytes)), ("tokenizer", engine)])
    title = Result(line((str(path), "bold"), ("  embedding, every hash is right", FAINT)))
    out.show({**document, "bytes": stored.nbytes, "tokenizer_engine": engine}, (title, known))


def _inspect_statistics(path: Path, out: Output) -> None:
    found, taken = ir3de.Contribution.load(path), path.stat().st_size
    document = {"kind": "statistics", "path": str(path), "bytes": taken, **describe_contribution(found)}
    title = line((str(path), "bold"), (f"  statistics, {size(taken)}, every hash is right", FAINT))
    out.show(document, (Result(title), facts(list_contribution_facts(found))))
