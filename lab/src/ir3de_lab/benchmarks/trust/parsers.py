"""The parsers of files: each is given changed files, in a process of its own that may not take much memory.

    python -m ir3de_lab.benchmarks.trust.parsers --parser configuration --seed 0 --seconds 10

The law: an error of `ir3de.errors` or a usable result. Any other exception, a hang or a crash is a finding.
"""

from __future__ import annotations

import argparse
import base64
import bz2
import gzip
import io
import json
import lzma
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ir3de import IR3DEError, Router, collect
from ir3de.corpora import examples as demo
from ir3de.corpora import read_texts
from ir3de.statistics import load_statistics, save_statistics
from ir3de_lab.benchmarks.trust.mutation import dice_for, mutate_bytes
from ir3de_lab.benchmarks.trust.sealed import change_router, change_tensors

MEMORY_BYTES = 3 << 30  # of address space: mapped libraries count
TIMEOUT_S = 10  # for one input
KEPT_FINDINGS = 20
PROMPTS = ("Can my landlord keep the deposit?", "Prove that √2 is irrational.", "my knee hurts")


class Hang(Exception):  # noqa: N818 - not an error of the product
    """An input took too long."""


@dataclass(frozen=True)
class Parser:
    """A parser, and the valid files that its inputs are made from; `read` returns whether the input was accepted."""

    examples: Mapping[str, bytes]  # by file name
    read: Callable[[Path], bool]
    change: Callable[[Sequence[bytes], random.Random], bytes] = mutate_bytes


def _read_texts(path: Path) -> bool:
    for text in read_texts([path]):
        if not isinstance(text, str):
            raise TypeError(f"a text is {type(text)}")
    return True


def _read_statistics(path: Path) -> bool:
    load_statistics(path)
    return True


def _read_configuration(path: Path) -> bool:
    from click.testing import CliRunner

    from ir3de.cli import cli

    found = CliRunner().invoke(cli, ["config", "validate", str(path)])
    if found.exception is not None and not isinstance(found.exception, SystemExit | IR3DEError):
        raise found.exception
    return found.exit_code == 0


def _corpora() -> dict[str, bytes]:
    texts = [text for domain in demo.prompts().values() for text in domain[:4]]
    lines = "\n".join(json.dumps({"text": text, "id": n}) for n, text in enumerate(texts)).encode()
    table = "text,label\n" + "".join(f'"{text.replace(chr(34), chr(34) * 2)}",1\n' for text in texts)
    chats = json.dumps([{"messages": [{"role": "user", "content": text}]} for text in texts]).encode()
    plain = "\n".join(texts).encode()
    packed = {"gz": gzip.compress(lines, mtime=0), "xz": lzma.compress(lines), "bz2": bz2.compress(lines)}
    return {
        "a.jsonl": lines,
        "a.json": chats,
        "a.csv": table.encode(),
        "a.tsv": table.replace(",", "\t").encode(),
        "a.txt": plain,
        "b.jsonl": b"\n".join(json.dumps({"prompt": text}).encode() for text in texts),
        **{f"a.jsonl.{suffix}": data for suffix, data in packed.items()},
        **_optional_corpora(texts, lines),
    }


def _optional_corpora(texts: Sequence[str], lines: bytes) -> dict[str, bytes]:
    """Those that need a package of their own."""
    found: dict[str, bytes] = {}
    with suppress(ImportError):
        import pyarrow as pa
        import pyarrow.parquet as pq

        stream = io.BytesIO()
        pq.write_table(pa.table({"text": list(texts), "id": list(range(len(texts)))}), stream)
        found["a.parquet"] = stream.getvalue()
    with suppress(ImportError):
        import zstandard

        found["a.jsonl.zst"] = zstandard.compress(lines)
    return found


def _statistics(folder: Path) -> dict[str, bytes]:
    save_statistics(collect(demo.prompts()["law"][:10]), folder / "a.stats")
    return {"a.stats": (folder / "a.stats").read_bytes()}


def _configuration(folder: Path) -> dict[str, bytes]:
    router = folder / "router"
    Router.fit({name: texts[:6] for name, texts in demo.prompts().items()}).save(router, serving=True)
    expert: dict[str, Any] = {"name": "law", "base_url": "http://127.0.0.1:9/v1", "price": {"input_per_1m": 0.1}}
    other = {"name": "medicine", "base_url": "http://127.0.0.1:9/v1", "fallbacks": ["law"], "timeouts": {"idle": 3}}
    whole = {
        "version": 1,
        "router": {"path": str(router)},
        "experts": [expert, other],
        "server": {"port": 8100, "limits": {"body_bytes": 10_000}},
        "routing": {"default": "law", "threshold": 0.5, "envelopes": ["<a>.*?</a>"], "pinning": {"ttl": 10}},
        "logs": {"access": None},
    }
    experts = "experts:\n- &e\n  name: law\n  base_url: http://127.0.0.1:9/v1\n"
    block = f"# a comment\nversion: 1\nrouter: {{path: {router}}}\n{experts}"
    return {"a.yaml": json.dumps(whole, indent=1).encode(), "b.yaml": block.encode()}


def _router_parser(folder: Path) -> Parser:
    """Every file of a saved router, changed one at a time."""
    router = folder / "whole-router"
    Router.fit({name: texts[:6] for name, texts in demo.prompts().items()}).save(router)
    expected = [Router.load(router).route(prompt) for prompt in PROMPTS]
    damaged = folder / "damaged-router"
    shutil.copytree(router, damaged)

    def read(path: Path) -> bool:
        place = damaged / path.name
        place.unlink()
        shutil.copy(path, place)
        try:
            loaded = Router.load(damaged)
            if [loaded.route(prompt) for prompt in PROMPTS] != expected:
                raise ValueError("a damaged file was accepted, and other decisions came of it")
        finally:
            place.unlink()
            shutil.copy(router / path.name, place)
        return True

    return Parser({path.name: path.read_bytes() for path in sorted(router.iterdir())}, read)


def _sealed_router_parser(folder: Path) -> Parser:
    """A router of which a file was changed and all hashes renewed; the input is a JSON of the changed files."""
    router, changed = folder / "whole-router", folder / "changed-router"
    Router.fit({name: texts[:6] for name, texts in demo.prompts().items()}).save(router)
    files = {path.name: path.read_bytes() for path in sorted(router.iterdir())}
    changed.mkdir()
    dirty: list[str] = []  # what the input before has changed

    def read(path: Path) -> bool:
        given = {name: base64.b64decode(data) for name, data in json.loads(path.read_bytes()).items()}
        for name in {*given, *(dirty or files)}:
            (changed / name).unlink(missing_ok=True)
            (changed / name).write_bytes(given.get(name, files[name]))
        dirty[:] = given
        loaded = Router.load(changed)
        found = {loaded.route(prompt).expert for prompt in PROMPTS}
        if not found <= {None, *loaded.experts}:
            raise ValueError(f"routed to {found}, but there are {loaded.experts}")
        return True

    def change(examples: Sequence[bytes], dice: random.Random) -> bytes:
        found = {name: data for name, data in change_router(files, dice).items() if data != files[name]}
        return json.dumps({name: base64.b64encode(data).decode() for name, data in found.items()}).encode()

    return Parser({"folder.json": b""}, read, change)


def make_parser(name: str, folder: Path) -> Parser:
    """A parser of NAMES with its valid files."""
    if name == "router folder":
        return _router_parser(folder)
    if name == "router folder, sealed again":
        return _sealed_router_parser(folder)
    if name == "statistics, sealed again":
        return Parser(_statistics(folder), _read_statistics, lambda files, dice: change_tensors(files[0], dice))
    if name == "configuration":
        return Parser(_configuration(folder), _read_configuration)
    if name == "statistics":
        return Parser(_statistics(folder), _read_statistics)
    suffix = name.removeprefix("corpus ")
    return Parser({n: data for n, data in _corpora().items() if n.endswith(suffix)}, _read_texts)


def names() -> tuple[str, ...]:
    """All parsers of files that can run here."""
    corpora = dict.fromkeys(f"corpus {name.partition('.')[2]}" for name in _corpora())
    sealed = ("router folder, sealed again", "statistics, sealed again")
    return ("configuration", "router folder", "statistics", *sealed, *corpora)


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Hang(f"more than {TIMEOUT_S} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(TIMEOUT_S)
    try:
        yield
    finally:
        signal.alarm(0)


def fuzz(
    name: str, seed: int, seconds: float, folder: Path, first: int = 0, count: int | None = None
) -> Iterator[dict[str, Any]]:
    """Try one input after the other; what became of each."""
    parser = make_parser(name, folder)
    files, number, end = sorted(parser.examples), first, time.monotonic() + seconds
    while time.monotonic() < end and (count is None or number < first + count):
        dice = dice_for(seed, name, number)
        file = dice.choice(files)
        same = [data for other, data in parser.examples.items() if other.partition(".")[2] == file.partition(".")[2]]
        data = parser.change(same if name != "router folder" else [parser.examples[file]], dice)
        path = folder / "input" / file
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        yield {"number": number, "file": file, **_try(parser, path)}
        number += 1


def _try(parser: Parser, path: Path) -> dict[str, Any]:
    try:
        with _time_limit():
            return {"outcome": "accepted" if parser.read(path) else "refused"}
    except IR3DEError:
        return {"outcome": "refused"}
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        what = "hang" if isinstance(error, Hang) else f"{type(error).__name__}: {error}"[:300]
        return {"outcome": "finding", "what": what, "where": _where(error)}


def _where(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/ir3de/" in frame.filename]
    return f"{frames[-1].filename.rpartition('/ir3de/')[2]}:{frames[-1].lineno}" if frames else ""


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzz one parser of files; one JSON line for the result.")
    parser.add_argument("--parser", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int)
    parser.add_argument("--keep", type=Path, help="folder for the inputs that are findings")
    given = parser.parse_args()
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    found: dict[str, Any] = {"inputs": 0, "accepted": 0, "refused": 0, "findings": []}
    known: set[tuple[str, str]] = set()
    with tempfile.TemporaryDirectory() as place:
        for one in fuzz(given.parser, given.seed, given.seconds, Path(place), given.first, given.count):
            found["inputs"] += 1
            if one["outcome"] != "finding":
                found[one["outcome"]] += 1
                continue
            key = (one["what"].partition(":")[0], one["where"])
            if key in known or len(known) >= KEPT_FINDINGS:
                continue
            known.add(key)
            if given.keep is not None:
                given.keep.mkdir(parents=True, exist_ok=True)
                kept = given.keep / f"{given.parser.replace(' ', '-')}-{given.seed}-{one['number']}-{one['file']}"
                shutil.copy(Path(place) / "input" / one["file"], kept)
                one["kept"] = str(kept)
            found["findings"].append(one)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
