"""The script that trains experts and asks them side by side: which jobs it makes, and in which order they run."""

from __future__ import annotations

from pathlib import Path

import pytest

import train_and_ask
from train_and_ask import Job


def test_every_seed_is_trained_and_asked() -> None:
    names = ["reasoning-1b", "reasoning-1b-seed-1"]
    jobs = list(train_and_ask.list_jobs(names, Path("suites"), Path("experts"), Path("results")))
    assert jobs[0].name == "encoders" and "--ahead" in jobs[0].arguments
    for name in names:
        own = [job for job in jobs if job.name.startswith((f"{name}-train", f"{name}-ask"))]
        assert [job.name.rpartition("-")[2] for job in own] == [
            *("math", "kinds", "coding", "instruction"), *("math", "kinds", "coding", "instruction", "base"),
        ]  # fmt: skip
        assert all(f"experts/{name}" in job.arguments for job in own)
        assert own[4].after == (f"{name}-train-math",) and own[-1].after == ()


def test_an_expert_whose_answers_are_there_is_not_trained_again(tmp_path: Path) -> None:
    answers = tmp_path / "reasoning-1b" / "answers"
    answers.mkdir(parents=True)
    for column in ("math", "base"):
        (answers / f"{column}.jsonl.xz").touch()
    jobs = [job.name for job in train_and_ask.list_jobs(["reasoning-1b"], Path("suites"), tmp_path)]
    assert jobs == [
        *(f"reasoning-1b-train-{domain}" for domain in ("kinds", "coding", "instruction")),
        *(f"reasoning-1b-ask-{column}" for column in ("kinds", "coding", "instruction", "base")),  # held-out prompts
    ]


def test_an_unknown_setting_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["train_and_ask.py", "no-such", "--data", "suites"])
    with pytest.raises(SystemExit, match="2"):
        train_and_ask.main()
    assert "no setting 'no-such'" in capsys.readouterr().err


@pytest.fixture
def logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where jobs write that they begin and end; a job is told its name, and whether it fails."""
    path = tmp_path / "log"
    code = (
        "import sys, time; _, name, code = sys.argv; "
        "log = lambda what: open(r'{path}', 'a').write(f'{{what}} {{name}}\\n'); log('begin'); "
        "time.sleep(0.3); log('end'); print(name, 'says something'); sys.exit(int(code))"
    )
    monkeypatch.setattr(train_and_ask, "CALL", code.format(path=path))
    monkeypatch.setattr(train_and_ask, "POLL_S", 0.01)
    return path


def test_jobs_run_side_by_side_as_far_as_they_fit(logged: Path, tmp_path: Path) -> None:
    jobs = [Job("a", ("a", "0"), 6), Job("b", ("b", "0"), 6, ("a",)), Job("c", ("c", "0"), 4), Job("d", ("d", "0"), 90)]
    assert train_and_ask.run(jobs, tmp_path / "logs", 10) == []
    lines = logged.read_text().split("\n")
    place = {line: number for number, line in enumerate(lines)}
    assert place["begin c"] < place["end a"] < place["begin b"]  # a and c fit together, b waits for a
    assert max(place["end a"], place["end b"], place["end c"]) < place["begin d"]  # too large: it runs alone
    assert (tmp_path / "logs" / "a.log").read_text() == "a says something\n"


def test_what_waits_for_a_job_that_failed_is_not_run(
    logged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [Job("a", ("a", "3"), 1), Job("b", ("b", "0"), 1, ("a",)), Job("c", ("c", "0"), 1)]
    assert train_and_ask.run(jobs, tmp_path / "logs", 10) == ["a", "b"]
    assert "begin b" not in logged.read_text() and "end c" in logged.read_text()
    assert "a: failed, see its log" in capsys.readouterr().out
