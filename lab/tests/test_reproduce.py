"""The script that makes every result from nothing: what it lists, leaves out, and says when a step fails."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import reproduce
from ir3de_lab.experiments import settings


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The commands that were run; none of them really is."""
    found: list[str] = []

    def run(command: str) -> dict[str, Any]:
        found.append(command)
        return {"seconds": 1.0, "cores": 2, "accelerator": None}

    monkeypatch.setattr(reproduce, "_run", run)
    monkeypatch.setattr(reproduce, "TIMES", tmp_path / "times.json")
    monkeypatch.setattr(reproduce, "commit", lambda: "abc")
    monkeypatch.setattr(reproduce, "_has_accelerator", lambda: False)
    monkeypatch.setenv("IR3DE_DATA", str(tmp_path))
    return found


def test_every_setting_is_routed() -> None:
    commands = [command for kind, command in reproduce.STEPS if kind == "run"]
    assert {name for name in settings.SHIPPED if any(f"--setting {name} " in one for one in commands)} == set(
        settings.SHIPPED
    )


def test_options_of_every_step_exist() -> None:
    from click.testing import CliRunner

    from ir3de.cli import cli

    for _, command in reproduce.STEPS:
        program, *arguments = command.split()
        if program == "ir3de":
            told = CliRunner().invoke(cli, [*arguments, "--help"])
            assert told.exit_code == 0, (command, told.output)


def test_without_an_accelerator_its_steps_are_left_out_and_named(
    ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    reproduce.main(["--run"])
    told = capsys.readouterr().out
    assert told.count("left out: no accelerator") == sum(kind in reproduce.ON_GPU for kind, _ in reproduce.STEPS)
    assert not any("bench train" in command for command in ran) and any("bench tables" in command for command in ran)


def test_a_run_goes_on_where_it_stopped(
    ran: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = reproduce._run

    def fail(command: str) -> dict[str, Any]:
        if "figures" in command:
            raise subprocess.CalledProcessError(3, command)
        return honest(command)

    monkeypatch.setattr(reproduce, "_run", fail)
    with pytest.raises(SystemExit, match=r"ended with 3\. Mend it, then go on with: .* --resume --from figures"):
        reproduce.main(["--run"])
    before = list(ran)
    assert set(json.loads(reproduce.TIMES.read_text())) == set(before)
    monkeypatch.setattr(reproduce, "_run", honest)
    reproduce.main(["--run", "--resume"])
    assert [command.split()[:3] for command in ran[len(before) :]] == [
        ["ir3de", "bench", "figures"],
        ["python", "lab/scripts/generate_results_readme.py"],
    ]


def test_texts_that_are_not_named_are_asked_for(ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IR3DE_DATA")
    with pytest.raises(SystemExit, match="set IR3DE_DATA to the folder of suites"):
        reproduce.main(["--run"])
    assert not ran


def test_the_list_says_how_long_each_step_took(capsys: pytest.CaptureFixture[str]) -> None:
    reproduce.main([])
    told = capsys.readouterr().out
    assert "NVIDIA H200" in told and "ir3de bench tables" in told
