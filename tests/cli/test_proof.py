"""fit shows what the router is worth on prompts that it has not seen; eval says when its prompts were in the fit."""

from pathlib import Path

import pytest

from commands import CODING, HELD_OUT, HISTORY, LAW, complaint, quick, run, run_json, wrong_call
from ir3de.cli.proof import write_serve_command
from ir3de.corpora import examples as demo
from ir3de.corpora import is_held_out

pytestmark = pytest.mark.usefixtures("plain_terminal")

EXPERTS = (f"law={LAW}", f"coding={CODING}", f"history={HISTORY}")
FAST = ("--scorer", "blend")  # on the usual embedding, where accuracy matters


@pytest.fixture
def _proving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IR3DE_NO_PROOF")
    monkeypatch.setattr("ir3de.evaluation.proving.choose_by_tfidf", lambda *given: None)  # evaluation/ tests it


@pytest.mark.usefixtures("_proving")
def test_fit_ends_with_a_proof_and_the_command_that_serves(tmp_path: Path) -> None:
    shown = run("fit", tmp_path / "router", *EXPERTS, *quick()).stdout
    proof = shown[shown.index("Proof") :]
    assert "360 of 360 prompts were held out in turn, in 5 folds" in proof
    assert "this router" in proof and "always the largest expert" in proof and "33.3 %" in proof
    assert "Abstains on" in proof and "More prompts" in proof
    assert "Accuracy is the share of prompts whose most probable expert is their own" in proof
    assert "Not compared with a real rival" in proof and "Worth deploying" not in proof
    assert shown.count("% of held-out prompts right") == 0  # one accuracy, that of the proof
    assert " ".join(proof.split()).endswith(
        f"ir3de serve --router {tmp_path / 'router'} --expert law=http://127.0.0.1:8001/v1 --expert "
        "coding=http://127.0.0.1:8002/v1 --expert history=http://127.0.0.1:8003/v1"
    )
    assert proof.count("\n") < 32


@pytest.mark.usefixtures("_proving")
def test_a_proof_fits_eighty_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = run("fit", tmp_path / "router", *EXPERTS, *quick()).stdout
    lines = shown[shown.index("Proof") : shown.index("The scorer was chosen" if "The scorer" in shown else "next:")]
    rows = lines.splitlines()
    assert any(row.startswith("always the largest expert ") for row in rows), lines
    assert any(row.startswith("on the same prompts ") for row in rows)
    first = next(place for place, row in enumerate(rows) if row.startswith("Abstains on"))
    assert all(row.startswith(("Abstains on", "More prompts", " " * 14)) for row in rows[first : first + 3])
    begin = next(place for place, row in enumerate(rows) if row.startswith("prompts of"))
    instances = rows[begin + 2 : rows.index("", begin)]
    assert all(row[:1].strip() for row in instances), lines  # none of them goes on in a second line


@pytest.mark.nightly
@pytest.mark.usefixtures("_proving")
def test_the_proof_is_in_the_json(tmp_path: Path) -> None:
    found = run_json("fit", tmp_path / "router", *EXPERTS, *FAST)["proof"]
    assert found["prompts"] == 360 and found["method"] == "cross-validation"
    assert 0.8 < found["accuracy"]["low"] < found["accuracy"]["value"] < found["accuracy"]["high"] < 1
    assert len(found["confusion"]) == len(found["confusion"][0]) == 3
    assert run_json("fit", tmp_path / "other", *EXPERTS, *FAST, "--no-proof").get("proof") is None


@pytest.mark.usefixtures("_proving")
def test_too_few_prompts_are_said_to_be_too_few(tmp_path: Path) -> None:
    for name in ("law", "coding"):
        (tmp_path / f"{name}.txt").write_text("\n".join(demo.prompts()[name][:3]), encoding="utf-8")
    given = [f"{name}={tmp_path / name}.txt" for name in ("law", "coding")]
    shown = run("fit", tmp_path / "router", *given, *quick()).stdout
    assert "not measured: too few prompts to measure the router" in " ".join(shown.split())
    assert run_json("fit", tmp_path / "other", *given, *quick())["proof"]["reason"].startswith("too few prompts")
    assert (tmp_path / "router" / "router.json").exists()


@pytest.mark.usefixtures("_proving")
def test_few_prompts_are_no_reason_to_serve(tmp_path: Path) -> None:
    for name in ("law", "coding", "history"):
        (tmp_path / f"{name}.txt").write_text("\n".join(demo.prompts()[name][:12]), encoding="utf-8")
    given = [f"{name}={tmp_path / name}.txt" for name in ("law", "coding", "history")]
    shown = " ".join(run("fit", tmp_path / "router", *given, *quick()).stdout.split())
    assert "Too early: 36 held-out prompts are few." in shown or "Not yet" in shown
    assert "at least 50 different prompts (coding 38 more, history 38 more, law 38 more)" in shown
    assert "ir3de serve" not in shown and "ir3de route" in shown
    proof = run_json("fit", tmp_path / "other", *given, *quick())["proof"]
    assert any("Too early" in sentence or "Not yet" in sentence for sentence in proof["verdict"])


@pytest.mark.usefixtures("_proving")
def test_experts_with_descriptions_alone_are_told_to_have_prompts(tmp_path: Path) -> None:
    described = ("--describe", "law=contracts, courts", "--describe", "coding=programming, bugs")
    shown = " ".join(run("fit", tmp_path / "router", "law", "coding", *described, *quick()).stdout.split())
    assert "the experts have descriptions and no prompts" in shown and "--no-sample" not in shown
    assert "there are no prompts of law, coding" in shown and "ir3de serve" not in shown
    (tmp_path / "law.txt").write_text("\n".join(demo.prompts()["law"][:12]), encoding="utf-8")
    given = (f"law={tmp_path / 'law.txt'}", f"coding={CODING}", *described)
    assert run_json("fit", tmp_path / "both", *given, *quick())["proof"]["known"] == 132


def test_many_experts_are_served_from_a_file() -> None:
    experts = [f"expert {n}" for n in range(6)]
    written = write_serve_command(Path("my router"), experts)
    assert written == "ir3de config init --router 'my router' && ir3de serve"


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_eval_warns_of_prompts_that_were_in_the_fit(router: Path, quiet: list[str]) -> None:
    seen = run("eval", router, f"law={LAW}", *quiet)
    assert "warning: 120 of 120 prompts were in the fit" in " ".join(seen.stderr.split())
    assert "in the fit" not in run("eval", router, f"law={HELD_OUT / 'law.txt'}", *quiet).stderr


def test_eval_says_in_json_which_prompts_were_in_the_fit(router: Path) -> None:
    found = run_json("eval", router, f"law={LAW}")["in_fit"]
    assert (found["prompts"], found["told"], found["seen"]) == (120, 120, 120) and "too optimistic" in found["warning"]
    assert run_json("eval", router, f"law={HELD_OUT / 'law.txt'}")["in_fit"]["warning"] is None


# --holdout ----------------------------------------------------------------------------------------------------------


def test_held_out_prompts_are_not_in_the_fit_and_eval_finds_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("IR3DE_NO_PROOF")
    made = run_json("fit", tmp_path / "router", *EXPERTS, *quick(), "--holdout", "0.25")
    proof, counted = made["proof"], sum(domain["prompts"] for domain in made["counted"])
    assert proof["method"] == "holdout" and counted + proof["prompts"] == 360 and 60 < proof["prompts"] < 120
    found = run_json("eval", tmp_path / "router", *EXPERTS, "--holdout", "0.25")
    assert found["prompts"] == proof["prompts"] and found["in_fit"]["seen"] == 0
    assert sum(map(sum, proof["confusion"])) == proof["prompts"]
    everything = run_json("eval", tmp_path / "router", *EXPERTS)["in_fit"]
    assert everything["prompts"] == 360 and everything["seen"] == counted


def test_what_cannot_be_held_out_is_refused(tmp_path: Path) -> None:
    run("collect", tmp_path / "law.stats", LAW, *quick()[2:])
    given = (tmp_path / "router", f"law={tmp_path / 'law.stats'}", f"coding={CODING}")
    assert "name its texts" in wrong_call("fit", *given, "--holdout", "0.2")
    assert "leave out --engine" in wrong_call("fit", *given, "--holdout", "0.2", "--checkpoint", tmp_path / "progress")
    assert "0<x<1" in wrong_call("fit", *given, "--holdout", "1.5")
    assert "write 20 % as 0.2" in wrong_call("fit", *given, "--holdout", "20")
    assert "'²' is not a valid float" in wrong_call("fit", *given, "--holdout", "²")  # a digit, but no number
    assert "write 5 % as 0.05" in wrong_call("eval", *given, "--holdout", "5%")
    (tmp_path / "one.txt").write_text("A single prompt.", encoding="utf-8")
    said = complaint("fit", tmp_path / "other", f"law={tmp_path / 'one.txt'}", f"coding={CODING}", "--holdout", "0.99")
    assert "leaves no prompt of 'law'" in said and not (tmp_path / "other").exists()


def test_an_expert_of_which_nothing_was_kept_aside_is_left_out_of_the_evaluation(tmp_path: Path) -> None:
    few = tmp_path / "few.txt"
    few.write_text("Is this contract void?\n")
    assert not is_held_out("Is this contract void?", 0.2)
    run_json("fit", tmp_path / "router", f"law={few}", f"coding={CODING}", *quick(), "--no-proof")
    found = run_json("eval", tmp_path / "router", f"law={few}", f"coding={CODING}", "--holdout", "0.2")
    assert found["sizes"]["law"] == 0 < found["sizes"]["coding"]
    assert "keeps none of these prompts aside" in complaint(
        "eval", tmp_path / "router", f"law={few}", "--holdout", "0.2"
    )
