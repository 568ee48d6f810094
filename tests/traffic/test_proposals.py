"""`ir3de label --teacher`: a teacher proposes, people confirm or overrule, and what is written is their own label."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tiny
from ir3de import Router
from ir3de.cli import cli
from ir3de.encoders import Encoder
from ir3de.encoders.installing import install
from ir3de.errors import InputError
from ir3de.evaluation.intervals import estimate_share
from ir3de.fitting.proposals import Proposal
from ir3de.traffic import Journal, JournalPrompt, PromptToLabel, TrafficRecord, choose_prompts, learn, propose_labels
from ir3de.traffic.sources import find_feedback
from labelled_traffic import NAMES, LabelledTraffic, make_prompt
from tiny_encoders import write_encoder

pytest.importorskip("onnxruntime")

TEXTS = {text: name for name in NAMES for text in tiny.sentences(name, 4, seed=9)}


@pytest.fixture(scope="module")
def router() -> Router:
    return Router.fit({name: tiny.sentences(name, 12, seed=1) for name in NAMES}, embedding=tiny.embedding())


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("encoders")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        install(str(write_encoder(folder / "tiny")))
        yield folder / "tiny"


def write_requests(folder: Path, keep: str = "text") -> Path:
    with Journal.create(folder / "state" / "feedback") as journal:
        journal.append(
            TrafficRecord(f"r{number}", float(number), prompt=make_prompt(text, keep))
            for number, text in enumerate(TEXTS)
        )
    return folder


@pytest.fixture
def state(router: Router, tmp_path: Path) -> Path:
    router.save(tmp_path / "router")
    return write_requests(tmp_path)


def call(state: Path, *more: str | Path, answers: str = "", code: int = 0) -> str:
    given = ["label", state / "router", "--from", state / "state", "--author", "eve", *more]
    found = CliRunner().invoke(cli, [str(one) for one in given], input=answers)
    assert found.exit_code == code, found.output
    return found.output


def list_proposals(state: Path, encoder: Path, count: int) -> list[dict[str, object]]:
    found = json.loads(call(state, "--teacher", encoder, "-n", str(count), "--json"))
    assert found["teacher"] == Encoder.load(str(encoder)).name[-120:]
    return [row["proposal"] for row in found["prompts"]]


def read_labels(state: Path) -> list[tuple[str, str | None]]:
    with Journal.open(state / "state") as journal:
        return [(one.author, one.expert) for record in journal.read() for one in record.feedback]


def find_other(expert: object) -> str:
    return next(name for name in NAMES if name != expert)


# the command --------------------------------------------------------------------------------------------------------


def test_return_confirms_and_a_name_overrules(state: Path, encoder: Path) -> None:
    first, second, _, fourth = list_proposals(state, encoder, 4)
    assert read_labels(state) == []
    other = find_other(second["expert"])
    answers = f"\n{other}\ns\n{fourth['expert']}\n"
    shown = call(state, "--teacher", encoder, "-n", "4", answers=answers)
    assert f"the teacher proposes {first['expert']}  {100 * float(str(first['probability'])):.1f} %" in shown
    labels = [("label:eve", first["expert"]), ("label:eve", other), ("label:eve", fourth["expert"])]
    assert sorted(read_labels(state)) == sorted(labels)
    share, shown = estimate_share(2, 3), " ".join(shown.split())  # lines are wrapped
    assert "3 labels are in the journal" in shown and "2 confirmed, 1 overruled, 66.7 % right" in shown
    assert f"95 %: {100 * share.low:.1f} to {100 * share.high:.1f} %" in shown


def test_a_number_overrules_by_the_router_s_ranking(state: Path, encoder: Path) -> None:
    (row,) = json.loads(call(state, "--teacher", encoder, "-n", "1", "--json"))["prompts"]
    wanted = next(place for place, (name, _) in enumerate(row["ranking"]) if name != row["proposal"]["expert"])
    shown = call(state, "--teacher", encoder, "-n", "1", answers=f"{wanted + 1}\n")
    assert read_labels(state) == [("label:eve", row["ranking"][wanted][0])] and "0 confirmed, 1 overruled" in shown


def test_what_nobody_confirms_writes_nothing(state: Path, encoder: Path) -> None:
    for answers in ("", "q\n", "s\ns\nq\n", "nonsense\n"):
        shown = call(state, "--teacher", encoder, "-n", "3", answers=answers)
        assert read_labels(state) == [] and "was confirmed or overruled" in shown and "% right" not in shown


def test_an_undone_confirmation_is_not_counted(state: Path, encoder: Path) -> None:
    (first, _) = list_proposals(state, encoder, 2)
    other = find_other(first["expert"])
    shown = call(state, "--teacher", encoder, "-n", "2", answers=f"\nu\n{other}\nq\n")
    assert read_labels(state) == [("label:eve", other)] and "0 confirmed, 1 overruled, 0.0 % right" in shown


def test_without_a_teacher_return_still_skips(state: Path) -> None:
    shown = call(state, "-n", "2", answers="\nlaw\n")
    assert read_labels(state) == [("label:eve", "law")] and "proposes" not in shown and "right" not in shown


def test_kept_answers_are_used_again(state: Path, encoder: Path) -> None:
    kept = state / "kept.jsonl"
    once = call(state, "--teacher", encoder, "--answers", kept, "--json")
    content = kept.read_bytes()
    assert call(state, "--teacher", encoder, "--answers", kept, "--json") == once and kept.read_bytes() == content
    assert not (state / "router.answers.jsonl").exists()


def test_wrong_calls_lose_nothing(state: Path, encoder: Path, tmp_path: Path) -> None:
    call(state, "-n", "1", answers="law\n")
    assert "unknown teacher 'nobody'" in call(state, "--teacher", "nobody", answers="\n", code=1)
    assert "leave out --new-domains" in call(state, "--teacher", encoder, "--new-domains", code=2)
    assert "add --teacher" in call(state, "--answers", tmp_path / "kept.jsonl", code=2)
    texts = {name: tiny.sentences(name, 12, seed=1) for name in NAMES}
    Router.fit(texts, embedding=tiny.embedding(), keep_sample=False).save(tmp_path / "bare")
    (state / "router").rename(state / "kept")
    (state / "bare").rename(state / "router")
    assert "has none that were kept" in call(state, "--teacher", encoder, answers="\n", code=1)
    assert read_labels(state) == [("label:eve", "law")]


def test_confirmed_labels_are_learnt_as_a_person_s(state: Path, router: Router, encoder: Path) -> None:
    call(state, "--teacher", encoder, "-n", "12", answers="\n" * 12)
    with Journal.open(state / "state") as journal:
        found = learn(router, journal, trust=["label:eve"])
    contributions = find_feedback(found.candidate).values()
    assert {one.owner for one in contributions} == {"feedback:label:eve"} and not any(
        one.is_taught for one in contributions
    )


# other teachers -----------------------------------------------------------------------------------------------------


def propose(router: Router, folder: Path, teacher: object, keep: str = "text") -> dict[str, Proposal | None]:
    with Journal.open(write_requests(folder, keep) / "state") as journal:
        chosen = choose_prompts(router, journal.read(), len(TEXTS))
        found = propose_labels(router, journal, chosen, teacher)  # type: ignore[arg-type]
    return {one.request: proposal for one, proposal in zip(chosen, found, strict=True)}


def test_names_have_no_probability_and_rows_have_one(router: Router, tmp_path: Path) -> None:
    named = propose(router, tmp_path / "names", lambda texts: [TEXTS[text] for text in texts])
    assert named == {
        f"r{number}": Proposal(name, None) for number, name in enumerate(TEXTS.values()) if f"r{number}" in named
    }
    rows = propose(router, tmp_path / "rows", lambda texts: np.array([[1.0, 6.0, 1.0]] * len(texts)))
    assert set(rows.values()) == {Proposal(router.experts[1], 0.75)}


def test_a_prompt_without_an_answer_has_no_proposal(router: Router, tmp_path: Path) -> None:
    found = propose(router, tmp_path, lambda texts: ["law" if TEXTS[text] == "law" else None for text in texts])
    assert {one.expert for one in found.values() if one} == {"law"} and None in found.values()


@pytest.mark.parametrize(("answer", "problem"), [(None, "names an expert for none"), ("physics", "named no expert")])
def test_a_teacher_that_names_no_expert_is_an_error(
    router: Router, tmp_path: Path, answer: str | None, problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        propose(router, tmp_path, lambda texts: [answer for _ in texts])


def test_tokens_are_enough_and_statistics_are_not(router: Router, tmp_path: Path, encoder: Path) -> None:
    assert all(propose(router, tmp_path / "tokens", str(encoder), "tokens").values())
    with pytest.raises(InputError, match="can read none of these prompts"):
        propose(router, tmp_path / "statistics", str(encoder), "statistics")


def test_the_teacher_gets_the_turn_that_a_label_is_about(router: Router, tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(texts: list[str]) -> list[str]:
        asked.extend(texts)
        return ["law" for _ in texts]

    law, maths = tiny.sentences("law", 1, seed=9)[0], tiny.sentences("maths", 1, seed=9)[0]
    chat = TrafficRecord("chat", 0.0, prompt=JournalPrompt.from_text([maths, law, "ok"]))
    traffic = LabelledTraffic(tmp_path / "feedback")
    traffic.journal.append([chat])
    gone = PromptToLabel("gone", "deleted meanwhile", 1, 1.0, 0.0, ())
    chosen = [*choose_prompts(router, traffic.journal.read(), 1), gone]
    assert propose_labels(router, traffic.journal, chosen, answer) == [Proposal("law", None), None]
    assert asked == [law]


def test_outcome_routers_have_no_teacher() -> None:
    rows = [{"text": text, "scores": {"small": 0.5, "large": 0.8}} for text in TEXTS]
    with pytest.raises(InputError, match="fitted from outcomes"):
        Router.fit_outcomes(rows, embedding=tiny.embedding()).ask_proposals(["why?"], lambda texts: ["small"])
