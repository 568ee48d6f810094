"""Engines where people meet them: routers from files, the command line, what is skipped and told of."""

from pathlib import Path

import pytest
from corpus_files import as_rows, json_lines, write

import tiny
from commands import complaint, run, run_json, wrong_call
from ir3de import Router, Statistics, collect
from ir3de.engines import Files
from ir3de.errors import InputError

TEXTS = [*tiny.sentences("law", 60), "naïve café ∑ 🙂"]
GOOD = ["one text", "and another"]


def same(one: Statistics, other: Statistics) -> bool:
    return one == other and one.sample == other.sample


def test_a_router_is_fitted_from_files_as_from_their_texts(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", "\n".join(TEXTS))
    files = Files(write(tmp_path, "b.jsonl", json_lines(as_rows(TEXTS))), field="text")
    router = Router.fit({"law": files, "other": ["another text"]}, embedding=tiny.embedding(), workers=2)
    assert same(router.statistics["law"], collect(TEXTS, embedding=tiny.embedding(), keep_sample=True))
    router.merge("law", Files(tmp_path / "a.txt"), workers=1)
    assert same(router.statistics["law"], collect(TEXTS * 2, embedding=tiny.embedding(), keep_sample=True))


def test_python_is_warned_of_skipped_records_and_of_misspelt_arguments(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", json_lines(GOOD) + b"{\n")
    with pytest.warns(UserWarning, match=r"'a': 1 of 3 records could not be read and were skipped: .*a.jsonl:3: not"):
        Router.fit({"a": Files(path), "b": ["other"]}, embedding=tiny.embedding(), skip_bad=1)
    with pytest.raises(TypeError, match="unexpected argument 'worker'"):
        Router.fit({"a": ["text"]}, embedding=tiny.embedding(), worker=2)  # type: ignore[call-arg]
    for wrong in ([], [3], 3):
        with pytest.raises((InputError, TypeError)):
            Files(wrong)  # type: ignore[arg-type]


def test_the_command_line_skips_and_tells(tmp_path: Path) -> None:
    path = write(tmp_path, "law.jsonl", json_lines(GOOD * 20) + b"{\n")
    out = tmp_path / "out.stats"
    assert "law.jsonl:41: not valid JSON" in complaint("collect", out, path)
    told = run_json("collect", out, path, "--skip-bad", "1", "--workers", "2", "--checkpoint", tmp_path / "kept")
    assert (told["prompts"], told["records"], told["skipped"], told["resumed_shards"]) == (40, 41, 1, 0)
    assert "law.jsonl:41: not valid JSON" in told["skipped_examples"][0]
    assert list((tmp_path / "kept").iterdir()) == []  # what is saved need not be resumed
    said = run("collect", out, path, "--skip-bad", "1", "--force").stderr.splitlines()
    assert "1 of 41 records" in said[0] and said[1].startswith("  ")  # a line each
    assert "1 of 41 records" in run("collect", out, path, "--skip-bad", "1", "--force", "-q").stderr
    told = run_json("fit", tmp_path / "router", f"law={path}", f"b={out}", "--skip-bad", "1")
    assert [domain["skipped"] for domain in told["counted"]] == [1, 0]
    assert "--address names a Ray cluster" in wrong_call("fit", tmp_path / "other", f"a={path}", "--address", "auto")
