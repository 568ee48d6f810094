"""Looking at things, and the command line as a process: pipes, signals, full disks, narrow terminals."""

import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ir3de
from commands import PROMPT, ROOT, complaint, process, run, run_json
from ir3de.cli.formats import json_text, one_line, printable, size
from ir3de.corpora import examples as demo

pytestmark = pytest.mark.usefixtures("plain_terminal")

# inspect, embedding, demo, doctor -------------------------------------------------------------------------------------


def test_inspect_a_router(fitted: Path, router: Path) -> None:
    shown = run("inspect", fitted).stdout
    assert str(ir3de.Router.load(fitted).scorer) in " ".join(shown.split()) and "mathematics" in shown
    assert "damaged" not in shown
    said = run_json("inspect", fitted)
    assert said["kind"] == "router" and said["whole"] and said["experts"][0]["prompts"] == 120
    table = next(router.glob("table-*"))
    table.unlink()
    assert "rebuilt when needed" in run("inspect", router).stdout
    statistics = next(router.glob("statistics-*"))
    statistics.write_bytes(statistics.read_bytes()[:-1] + b"?")
    result = run("inspect", router, code=1)
    assert "damaged" in result.stdout and "not whole" in result.stderr
    assert run_json("inspect", router, code=1)["whole"] is False


def test_inspect_others(tmp_path: Path, law_file: Path) -> None:
    from ir3de.embedding.readers import get_default

    run("collect", tmp_path / "law.stats", law_file)
    assert run_json("inspect", tmp_path / "law.stats")["kind"] == "statistics"
    assert "windows" in run("inspect", tmp_path / "law.stats").stdout
    assert run_json("inspect", get_default(1).folder)["name"] == "SmolLM2-135M"
    assert "fingerprint" in run("inspect", get_default(1).folder).stdout
    assert "found nothing" in complaint("inspect", tmp_path / "missing")
    assert "neither a router" in complaint("inspect", tmp_path)
    assert "not a file that ir3de wrote" in complaint("inspect", law_file)


def test_embedding_build_and_list(tmp_path: Path) -> None:
    copy = tmp_path / "copies" / "small"
    said = run_json("embedding", "build", "default", copy)
    assert said["fingerprint"] == ir3de.Embedding.default().fingerprint
    assert "holds an embedding already" in complaint("embedding", "build", "default", copy)
    assert "--embedding" in run("embedding", "build", "default", copy, "--force").stdout
    assert "holds other files" in complaint("embedding", "build", "default", tmp_path)
    assert "no embedding at" in complaint("embedding", "build", "nowhere", tmp_path / "new")
    listed = run_json("embedding", "list", tmp_path / "copies")
    paths = [header["path"] for header in listed]
    assert [path for path in paths if path != "multilingual"] == ["default", "default@2", "default@1", str(copy)]
    assert "SmolLM2-135M" in run("embedding", "list").stdout
    assert "no folder at" in complaint("embedding", "list", tmp_path / "missing")
    (copy / "matrix.safetensors").unlink()
    assert "not whole" in complaint("embedding", "list", copy)


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = run("demo", "--save", tmp_path / "r").stdout
    for expected in (
        "Fit",
        "Measure",
        "Route",
        "Explain",
        "accuracy 9",
        "landlord",
        "µs",
        "Try next",
        "■ law",
    ):
        assert expected in shown
    said = run_json("demo")
    assert said["evaluation"]["accuracy"] > 0.85 and len(said["routed"]) == 5 and said["saved"] == "demo-router"
    assert [routed["expert"] for routed in said["routed"]] == list(demo.DOMAINS)
    assert "--force" in complaint("demo", "--save", tmp_path / "r")


@pytest.mark.slow
@pytest.mark.nightly
def test_the_commands_that_the_demo_prints_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")  # no command is broken into two lines
    shown = run("demo").stdout
    commands = re.findall(r"ir3de (\w+ .*\S)", shown[shown.index("Try next") :])
    assert [command.split()[0] for command in commands] == ["route", "explain", "eval", "fit"]
    for command in commands:
        run(*shlex.split(command))
    before = (tmp_path / "demo-router" / "router.json").read_bytes()
    assert "an earlier demo's router is in demo-router" in run("demo").stdout
    assert (tmp_path / "demo-router" / "router.json").read_bytes() == before
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    (tmp_path / "other" / "demo-router").write_text("mine", "utf-8")
    assert "demo-router exists already" in complaint("demo")


def test_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run("doctor").stdout
    assert "numpy" in shown and "proven" in shown and "all is well" in shown
    assert run_json("doctor")["ok"] is True
    monkeypatch.setattr("ir3de.cli.commands.doctor.REQUIRED", ("a-package-that-is-missing",))
    assert "pip install a-package-that-is-missing" in run("doctor", code=1).stdout
    assert run_json("doctor", code=1)["ok"] is False


# the process ----------------------------------------------------------------------------------------------------------


def test_errors_in_a_real_process(tmp_path: Path) -> None:
    failed = process("route", tmp_path / "missing", "text")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("error: no router at") and "Traceback" not in failed.stderr
    assert "Traceback" in process("route", tmp_path / "missing", "text", env={"IR3DE_DEBUG": "1"}).stderr
    assert process("nonsense").returncode == 2
    assert process("--version").stdout.startswith("ir3de ")


@pytest.mark.parametrize("closed", ["<&-", ">&-", pytest.param(">&- 2>&-", marks=pytest.mark.nightly)])
def test_streams_that_are_closed_are_no_reason_for_a_traceback(fitted: Path, closed: str) -> None:
    text = "" if closed == "<&-" else "contract"
    for command in ("route", "explain"):
        words = shlex.join([sys.executable, "-m", "ir3de", command, str(fitted), *([text] if text else [])])
        done = subprocess.run(f"{words} {closed}", shell=True, capture_output=True, text=True, check=False)
        assert done.returncode == (0 if text else 2) and "Traceback" not in done.stderr, done.stderr
        assert text or "write the prompt in quotes" in done.stderr


@pytest.mark.parametrize("columns", ["0", "20", "40"])
def test_names_come_before_bars_on_a_narrow_terminal(
    fitted: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = run("route", fitted, PROMPT).stdout
    assert all(name in shown for name in ir3de.Router.load(fitted).experts)
    shown = run("inspect", fitted).stdout
    assert all(re.search(rf"^{name} +120 ", shown, re.MULTILINE) for name in ir3de.Router.load(fitted).experts), shown
    shown = run("explain", fitted, PROMPT).stdout
    assert "contract" in shown and "all words" in shown and max(map(len, shown.splitlines())) <= 40


def test_output_that_cannot_hold_every_character(fitted: Path) -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    shown = process("route", fitted, "Is this contract of my landlord void? 你好", env=ascii_only)
    assert (shown.returncode, shown.stderr) == (0, "") and "law" in shown.stdout
    said = process("explain", fitted, "--json", "contract 你好", env=ascii_only)
    assert "".join(vote["text"] for vote in json.loads(said.stdout)["votes"]) == "contract 你好"


def test_a_reader_that_leaves_is_no_error(fitted: Path, tmp_path: Path) -> None:
    many = tmp_path / "many.txt"
    many.write_text("Is this contract void?\n" * 20_000, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    for options in (["--json"], []):
        command = [sys.executable, "-m", "ir3de", "route", str(fitted), "--input", str(many), *options]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
            assert running.stdout is not None and running.stderr is not None
            running.stdout.readline()
            running.stdout.close()
            assert running.stderr.read() == b""
            assert running.wait(30) == 0


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_leaves_nothing_behind(fitted: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    target = tmp_path / "r.jsonl"
    command = [sys.executable, "-m", "ir3de", "route", str(fitted), "--input", "-", "--output", str(target)]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    # a background job of a shell ignores the signal, and so would its children
    with subprocess.Popen(
        command, env=environment, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **pipes
    ) as running:
        assert running.stdin is not None and running.stderr is not None
        running.stdin.write(b"Is this contract void?\n")
        running.stdin.flush()
        while not list(tmp_path.iterdir()):  # the part that is not yet there
            assert running.poll() is None
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)  # wherever it is now: it imports, routes, or waits for more
        assert running.wait() == 130
        assert running.stderr.read() == b""
    assert list(tmp_path.iterdir()) == []


INTERRUPTED_FIT = """
from ir3de.cli import main
from ir3de.scorers.prompt_features import Features

def gather(features, *given, usual=Features.gather):
    print("solving", flush=True)
    return usual(features, *given)

Features.gather = gather
main()
"""


@pytest.mark.nightly
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_ends_a_fit_while_it_solves_and_nothing_is_written(tmp_path: Path) -> None:
    rows = [json.dumps({"text": text, "label": name}) for name, own in demo.prompts().items() for text in own]
    (tmp_path / "prompts.jsonl").write_text("\n".join(rows), encoding="utf-8")
    command = [sys.executable, "-c", INTERRUPTED_FIT, "fit", str(tmp_path / "router"), str(tmp_path / "prompts.jsonl")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(
        [*command, "--label", "label"], preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **pipes
    ) as running:
        assert running.stdout is not None
        assert b"solving" in running.stdout.readline()
        running.send_signal(signal.SIGINT)
        assert running.wait() == 130
    assert [path.name for path in tmp_path.iterdir()] == ["prompts.jsonl"]


# how things look ------------------------------------------------------------------------------------------------------


def test_small_things_for_people() -> None:
    assert [size(n) for n in (0, 999, 1_000, 2_500_000, 3e12)] == ["0 B", "999 B", "1.0 kB", "2.5 MB", "3.0 TB"]
    assert one_line("a\n b\tc" + "d" * 50, 10) == "a b cdddd…"
    assert printable("tab\tnul\0 del\x7f") == "tab␉nul␀ del\ufffd"
    assert json_text({"a": "é"}) == '{"a": "é"}' and json_text({"a": "é"}, "ascii") == '{"a": "\\u00e9"}'


@pytest.mark.parametrize("columns", ["40", "60", "100"])
def test_tables_keep_to_the_width(fitted: Path, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for arguments in (["explain", str(fitted), PROMPT], ["route", str(fitted), PROMPT], ["inspect", str(fitted)]):
        assert all(len(line) <= int(columns) for line in run(*arguments).stdout.splitlines())


def test_a_full_disk_behind_standard_output_is_said_in_one_line(fitted: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ir3de", "route", str(fitted), "Is this contract void?"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: cannot write the output: No space left on device. Free some space, or send the output elsewhere"
    ]


def test_a_router_that_was_copied_in_part_is_copied_again(router: Path, tmp_path: Path) -> None:
    assert "make one with `ir3de fit`" in complaint("route", tmp_path / "missing", "text")
    next(router.glob("tokenizer-*.json.gz")).unlink()
    assert "copied only in part" in complaint("route", router, PROMPT)
    (router / "router.json").unlink()
    assert "copy the whole folder again" in complaint("route", router, PROMPT)


def test_a_full_disk_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("ir3de.files.atomic.os.fsync", fail)
    said = complaint("demo", "--write", tmp_path / "train.csv")
    assert "free some space, or choose another place. What was there before is unchanged" in said
    assert list(tmp_path.iterdir()) == []
