"""`ir3de report`: a page, or an explained refusal before anything is measured."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

import tiny
from commands import ROOT, complaint, run, run_json, wrong_call
from ir3de import Router
from ir3de.policies import Policy
from ir3de.scorers import Blend

EACH = 12  # prompts of an expert
NAMES = tuple(tiny.DOMAINS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A labelled file, and the router that was fitted from it."""
    place = tmp_path_factory.mktemp("report")
    prompts = make_prompts(seed=1)
    write_rows(place / "train.csv", prompts)
    policy = Policy(costs={name: {"price": 1.0 + number} for number, name in enumerate(NAMES)})
    Router.fit(prompts, embedding=tiny.embedding(), scorer=Blend(), policy=policy).save(place / "router")
    return place


def make_prompts(seed: int, each: int = EACH) -> dict[str, list[str]]:
    return {name: tiny.sentences(name, each, seed=seed) for name in NAMES}


def write_rows(path: Path, prompts: dict[str, list[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("prompt", "team"))
        writer.writerows((text, name) for name, texts in prompts.items() for text in texts)


def test_a_report_is_written_without_the_command_to_serve_after_few_prompts(folder: Path) -> None:
    target = folder / "new" / "report.html"
    result = run("report", folder / "router", folder / "train.csv", "--label", "team", "-o", target)
    page = target.read_text(encoding="utf-8")
    assert str(target) in result.stdout.replace("\n", "") and f"--label team -o {target}" in page
    assert "ir3de serve" not in result.stdout + result.stderr + page
    assert Router.load(folder / "router").history[-1].router_after in page
    assert 'id="cost"' in page  # the experts have prices
    assert "fitted on" not in result.stderr and 'role="note"' not in page
    before = target.read_bytes()
    said = complaint("report", folder / "router", folder / "train.csv", "--label", "team", "-o", target)
    assert "exists already" in said and "--force" in said
    assert target.read_bytes() == before
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]


def test_enough_prompts_bring_the_command_to_serve(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ir3de.evaluation.proving.choose_by_tfidf", lambda *given: None)  # it could be better here
    write_rows(tmp_path / "many.csv", make_prompts(seed=2, each=40))
    target = tmp_path / "report.html"
    result = run("report", folder / "router", tmp_path / "many.csv", "--label", "team", "-o", target)
    page = target.read_text(encoding="utf-8")
    assert "ir3de serve --router" in result.stdout and "--expert maths=http://127.0.0.1:8001/v1" in page


def test_without_examples_neither_page_nor_json_has_a_prompt(folder: Path, tmp_path: Path) -> None:
    """Also: prompts that the router does not know are told, and --force replaces a page."""
    target = tmp_path / "report.html"
    target.write_text("an older one")
    prompts = make_prompts(seed=2)
    write_rows(tmp_path / "other.csv", prompts)
    found = run_json(
        "report", folder / "router", tmp_path / "other.csv", "--label", "team", "--no-examples", "--force", "-o", target
    )
    page = target.read_text(encoding="utf-8")
    assert found["report"] == str(target) and found["bytes"] == len(page.encode())
    assert found["digest"] in page and found["proof"]["prompts"] == len(NAMES) * EACH
    abstained = found["proof"]["abstained"]
    assert set(abstained["experts"]) == set(NAMES) and sum(abstained["experts"].values()) == abstained["count"]
    assert set(found["proof"]) > {"accuracy", "contenders", "confused", "reliability", "curve", "frontier"}
    texts = [text for own in prompts.values() for text in own if len(text) > 20]
    assert not [text for text in texts if text[:40] in page or text[:40] in json.dumps(found, ensure_ascii=False)]
    (notice,) = found["notices"]
    assert "fitted on other prompts: None of the prompts that it keeps is among these" in notice
    assert "fitted on other prompts" in page


def test_what_cannot_be_measured_is_refused_first(folder: Path, tmp_path: Path) -> None:
    router, train = folder / "router", folder / "train.csv"
    target = tmp_path / "report.html"
    assert "To have it as PDF, print it" in wrong_call("report", router, train, "--label", "team", "-o", "report.pdf")
    assert "no-such-router" in complaint("report", "no-such-router", train, "--label", "team", "-o", target)
    assert "--label" in wrong_call("report", router, train, "-o", target)
    strange = tmp_path / "strange.csv"
    write_rows(strange, {"law": ["Is it void?"], "poetry": ["Write a sonnet."]})
    assert "poetry" in complaint("report", router, strange, "--label", "team", "-o", target)
    few = tmp_path / "few.csv"
    write_rows(few, make_prompts(seed=3, each=2))
    assert "too few prompts" in complaint("report", router, few, "--label", "team", "-o", target)
    rows = [{"text": text, "scores": {"a": 1, "b": 0}} for text in ("one plus one", "two")]
    Router.fit_outcomes(rows).save(tmp_path / "outcomes")
    assert "outcomes" in complaint("report", tmp_path / "outcomes", train, "--label", "team", "-o", target)
    assert not target.exists()


def test_without_prompts_the_kept_sample_is_measured(folder: Path, tmp_path: Path) -> None:
    found = run_json("report", folder / "router", "-o", tmp_path / "report.html")
    assert found["proof"]["prompts"] == len(NAMES) * EACH and found["notices"] == []
    assert "from the sample that the router keeps" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_commands_of_the_page_run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of docs/report.md, in the order in which they are written."""
    shutil.copytree(folder / "router", tmp_path / "router")
    shutil.copy(folder / "train.csv", tmp_path)
    for name, texts in make_prompts(seed=1).items():
        (tmp_path / f"{name}.txt").write_text("\n".join(texts), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    commands = re.findall(r"(?:^\$ |`)ir3de (report router [^`\n]*)", page, re.MULTILINE)
    assert len(commands) == page.count("ir3de report router") == 5
    for command in commands:
        assert run(*shlex.split(command)).stdout
    assert {path.name for path in tmp_path.glob("*.html")} == {"report.html", "named.html", "kept.html", "to-mail.html"}


def test_prompts_with_two_labels_and_duplicates_are_told_without_text_if_none_may_be_shown(
    folder: Path, tmp_path: Path
) -> None:
    prompts, (one, other, *_) = make_prompts(seed=1), NAMES
    first = prompts[one][0]
    write_rows(tmp_path / "t.csv", {**prompts, one: [*prompts[one], first, first], other: [*prompts[other], first]})
    call = ("report", folder / "router", tmp_path / "t.csv", "--label", "team", "--force", "-o", tmp_path / "r.html")
    told = run_json(*call)
    assert told["repeats"]["conflict_examples"] == [{"text": first, "labels": sorted((one, other))}]
    assert told["repeats"]["duplicate_examples"] == [{"text": first, "label": one, "rows": 3}]
    assert (told["repeats"]["duplicates"], told["repeats"]["conflicts"]) == (2, 1)
    assert any("1 prompt has more than one label: “" in notice for notice in told["notices"])
    assert "2 rows repeat an earlier row with the same label: “" in (tmp_path / "r.html").read_text("utf-8")
    told = run_json(*call, "--no-examples")
    assert told["repeats"]["conflict_examples"] == told["repeats"]["duplicate_examples"] == []
    assert any("1 prompt has more than one label. " in notice for notice in told["notices"])
    page = (tmp_path / "r.html").read_text("utf-8")
    assert "2 rows repeat an earlier row with the same label. " in page and first[:30] not in page
