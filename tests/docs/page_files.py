"""The files that pages name: a page runs in a folder that holds those of them that its code mentions."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import ir3de
from answered_prompts import answers
from configurations import GOOD
from ir3de import Router
from ir3de.corpora import examples
from ir3de.statistics import save_statistics
from ir3de.traffic import Feedback, Journal, JournalPrompt, TrafficRecord

ROOT = Path(__file__).parents[2]
PROMPTS = 24  # of each domain: enough for every command, and quick to fit

Maker = Callable[[Path], None]


def make_files(folder: Path, code: str) -> None:
    """Make every known file that the code names, unless the code makes it itself."""
    for name, make in MAKERS.items():
        if name in code and not _is_made_by(code, name):
            make(folder / name)


def make_file(path: Path) -> None:
    """Make one known file."""
    MAKERS[path.name](path)


def _is_made_by(code: str, name: str) -> bool:
    """Whether the first line that names it writes it: `ir3de fit router …`, `ir3de demo --save router`, `-o x`."""
    naming = [line for line in code.splitlines() if name in line]
    line = next((line for line in naming if line.startswith("$ ")), naming[0])  # the first command, if there is one
    if "config init" in line:
        return True
    return any(f"{writes} {name}" in line for writes in ("fit", "collect", "--save", "--write", "--output", "-o"))


@cache
def _prompts(domain: str) -> list[str]:
    return examples.prompts()[domain][:PROMPTS]


def _write_lines(lines: Iterable[str]) -> Maker:
    def make(path: Path) -> None:
        content = "".join(f"{line}\n" for line in lines).encode()
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)

    return make


def _write_rows(rows: Iterable[Any]) -> Maker:
    return _write_lines([json.dumps(row, ensure_ascii=False) for row in rows])


def _write_table(prompts: Callable[[str], list[str]]) -> Maker:
    """The labelled file: a prompt and its team in each row."""

    def make(path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(["prompt", "team"])
            csv.writer(file).writerows((text, domain) for domain in examples.DOMAINS for text in prompts(domain))

    return make


def _make_experts(path: Path) -> None:
    """A folder of experts: files, and a folder."""
    path.mkdir()
    _write_rows(_rows("coding"))(path / "coding.jsonl")
    _write_lines(_prompts("history"))(path / "history.txt")
    _make_folder("law")(path / "law")


def _write_column(domain: str) -> Maker:
    def make(path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["text"], *([text] for text in _prompts(domain))])

    return make


def _make_folder(domain: str) -> Maker:
    def make(path: Path) -> None:
        path.mkdir(exist_ok=True)
        half = len(_prompts(domain)) // 2
        rows = [json.dumps({"text": text, "body": text}, ensure_ascii=False) for text in _prompts(domain)]
        (path / "first.jsonl").write_text("\n".join(rows[:half]), encoding="utf-8")
        (path / "second.jsonl").write_text("\n".join(rows[half:]), encoding="utf-8")

    return make


def _write_parquet(path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"text": _prompts("mathematics")}), path)


@cache
def _fit(labelled: bool) -> Router:
    """The router that pages have already: of the labelled file, or of law and maths."""
    if labelled:
        return Router.fit({domain: _prompts(domain) for domain in examples.DOMAINS})
    return Router.fit({"law": _prompts("law"), "maths": _prompts("mathematics")})


def _save_router(path: Path) -> None:
    if not path.exists():
        _fit(path.with_name("train.csv").exists()).save(path)


def _collect(domain: str) -> Maker:
    return lambda path: save_statistics(ir3de.collect(_prompts(domain)), path) and None


def _write_configuration(path: Path) -> None:
    path.write_text(GOOD, encoding="utf-8")
    _save_router(path.with_name("router"))


def _write_journal(path: Path) -> None:
    """The journal of a gateway that served two domains for three days."""
    with Journal.create(path.with_name("feedback")) as journal:
        given = [(name, text) for name in ("law", "maths") for text in _journal_texts(name)]
        for place, (domain, text) in enumerate(given):
            numbers = {"prompt_tokens": 100 + place, "completion_tokens": 50 + place % 7, "cost": 1e-4 + 1e-6 * place}
            prompt, time = JournalPrompt.from_text([text]), 1.76e9 + 1e4 * place
            record = TrafficRecord(f"r{place}", time, decided=domain, served=domain, prompt=prompt, **numbers)
            journal.append([record])
            journal.put_feedback(record.id, Feedback("alice", record.time, expert=domain, score=0.75))


def _journal_texts(name: str) -> list[str]:
    return _HELD_OUT["mathematics" if name == "maths" else name][:12]


def _copy(source: str) -> Maker:
    return lambda path: shutil.copyfile(ROOT / source, path) and None


def _rows(domain: str) -> list[Any]:
    return [{"prompt": text} for text in _prompts(domain)]


_CHAT = {
    "messages": [
        {"role": "user", "content": "Can my landlord evict me?"},
        {"role": "assistant", "content": "Not at once."},
        {"role": "user", "content": "ok, and how long does that take?"},
    ]
}
_DECISIONS = [
    {"text": text, "expert": "law", "served": "law", "confidence": 0.9, "abstained": False, "ranking": []}
    for text in _prompts("law")[:10]
]
_HELD_OUT = examples.held_out()

MAKERS: dict[str, Maker] = {
    "train.csv": _write_table(_prompts),
    "test.csv": _write_table(lambda domain: _HELD_OUT[domain]),
    "held-out.csv": _write_table(lambda domain: _HELD_OUT[domain]),
    "prompts/": _make_experts,
    "maths.jsonl": _write_rows(_rows("mathematics")),
    "law.jsonl": _write_rows(_rows("law")),
    "law.txt": _write_lines(_prompts("law")),
    "code.csv": _write_column("coding"),
    "medicine.txt": _write_lines(_prompts("medicine")),
    "medicine.jsonl": _write_rows(_rows("medicine")),
    "maths-held-out.jsonl": _write_rows({"prompt": text} for text in _HELD_OUT["mathematics"]),
    "law-held-out.jsonl": _write_rows({"prompt": text} for text in _HELD_OUT["law"]),
    **{f"{domain}.txt": _write_lines(_HELD_OUT[domain]) for domain in ("coding", "mathematics", "history")},
    "maths.parquet": _write_parquet,
    "cases": _make_folder("law"),
    "questions.jsonl": _write_rows([_CHAT] * 3),
    "chats.jsonl": _write_rows([_CHAT] * 3),
    "chat.json": _write_lines([json.dumps(_CHAT)]),
    "answers.jsonl": _write_rows(answers()),
    "answers-test.jsonl": _write_rows(answers(number=10)),
    "new-model.jsonl": _write_rows(answers(models=("gemma",))),
    "recent.jsonl": _write_rows(_rows("law")),
    "decisions.jsonl": _write_rows(_DECISIONS),
    "decisions.jsonl.2.gz": _write_rows(_DECISIONS),
    "logs/decisions": lambda path: _write_rows(_DECISIONS)(path.with_name("decisions-1.jsonl.gz")),
    "paris.stats": _collect("medicine"),
    "rome.stats": _collect("history"),
    "ir3de.yaml": _write_configuration,
    "--from feedback": _write_journal,
    "prices.json": _write_lines(['{"law": {"input_per_1m": 2.5, "output_per_1m": 10}, "maths": {"input_per_1m": 1}}']),
    "compare live": lambda path: _save_router(path.with_name("live")),
    "hooks.py": _copy("examples/gateway/hooks.py"),
    "candidate": _save_router,
    "router": _save_router,
}
