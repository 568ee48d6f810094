"""Every command for people and for programs; every error in one line; nothing half written."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import ir3de
from ir3de import Router, demo
from ir3de.cli import SECTIONS, cli
from ir3de.cli.output import json_text, one_line, printable, size
from ir3de.demo import path_of
from ir3de.scorers import CrossEntropy, KernelRidge

ROOT = Path(__file__).parent.parent
LAW, CODING, HISTORY = (str(path_of(name)) for name in ("law", "coding", "history"))
HELD_OUT = path_of("law").parent / "held_out"
COMMANDS = [command for commands in SECTIONS.values() for command in commands]


def run(*arguments: str | Path, stdin: str | None = None, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], input=stdin, prog_name="ir3de")
    assert result.exit_code == code, (result.output, result.stderr, result.exception)
    return result


def run_json(*arguments: str | Path, stdin: str | None = None, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", stdin=stdin, code=code).stdout)


def complaint(*arguments: str | Path, stdin: str | None = None) -> str:
    """The one line an error is told in."""
    result = run(*arguments, stdin=stdin, code=1)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def wrong_call(*arguments: str | Path) -> str:
    return " ".join(run(*arguments, code=2).stderr.split())


def process(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **options.pop("env", {})}
    return subprocess.run(
        [sys.executable, "-m", "ir3de", *map(str, arguments)],
        env=environment, capture_output=True, text=True, encoding="utf-8", timeout=60, check=False, **options,
    )  # fmt: skip


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "router"
    Router.fit(demo.prompts()).save(folder)
    return folder


@pytest.fixture(scope="session")
def voting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "voting"
    run("fit", folder, f"law={LAW}", f"coding={CODING}", "--scorer", "paper", "--k", "3")
    return folder


@pytest.fixture
def router(fitted: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(fitted, tmp_path / "router"))


@pytest.fixture
def law_file(tmp_path: Path) -> Path:
    path = tmp_path / "law.txt"
    path.write_text("Is this contract void?\nCan my landlord evict me?\n", encoding="utf-8")
    return path


# help ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [command.name for command in COMMANDS])
def test_every_command_helps_with_an_example(name: str) -> None:
    shown = run(name, "--help").stdout
    assert "Example" in shown and f"ir3de {name}" in shown.split("Example", 1)[1]
    if name not in ("embedding", "bench"):  # groups: their commands have them
        assert "--json" in shown and "--quiet" in shown


def test_help_lists_every_command_once_under_its_section() -> None:
    shown = run("-h").stdout
    for title, commands in SECTIONS.items():
        below = shown.split(f"{title}:")[1]
        assert all(re.search(rf"^  {command.name} ", below, re.MULTILINE) for command in commands)
    assert len(COMMANDS) == len(cli.commands)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["fit", "--help"], ["route", "--help"]])
def test_help_does_not_wait_for_numpy_or_rich(arguments: list[str]) -> None:
    program = (
        "import sys\nsys.argv[1:] = %r\nfrom ir3de.cli import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code\n"
        "heavy = {'numpy', 'rich', 'torch', 'tokenizers', 'tokie', 'huggingface_hub'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", program % arguments], env=environment, check=True, capture_output=True)


def test_the_reference_is_up_to_date() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    script = [sys.executable, str(ROOT / "scripts" / "generate_cli_docs.py"), "--check"]
    checked = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    assert "_IR3DE_COMPLETE" in run("completion", shell).stdout
    assert run_json("completion", shell)["shell"] == shell


def test_completion_completes() -> None:
    answer = process(env={"_IR3DE_COMPLETE": "bash_complete", "COMP_WORDS": "ir3de ex", "COMP_CWORD": "1"})
    assert answer.stdout.strip() == "plain,explain"


# fit, add, remove -----------------------------------------------------------------------------------------------------


def test_fit_tells_what_it_did_and_what_comes_next(tmp_path: Path) -> None:
    shown = run("fit", tmp_path / "r", f"law={LAW}", f"coding={CODING}", "--serving", tmp_path / "s").stdout
    assert "MB/s" in shown and "240" in shown and "2 experts solved" in shown and "ir3de route" in shown
    assert Router.load(tmp_path / "r").experts == Router.load(tmp_path / "s").experts == ("law", "coding")
    assert "serving copy" in complaint("add", tmp_path / "s", f"history={HISTORY}")


def test_fit_gives_the_router_that_the_library_gives(tmp_path: Path, law_file: Path) -> None:
    run("fit", tmp_path / "r", f"law={LAW}", f"law={law_file}", f"coding={CODING}", "--default", "coding", "-q")
    prompts = demo.prompts()
    texts = prompts["law"] + law_file.read_text(encoding="utf-8").splitlines()
    expected = Router.fit({"law": texts, "coding": prompts["coding"]}, default="coding")
    found = Router.load(tmp_path / "r")
    assert found.statistics == expected.statistics and found.default == "coding"
    assert found.route("Is it void?") == expected.route("Is it void?")


@pytest.mark.parametrize(
    ("options", "scorer", "selector"),
    [
        ([], "PromptRidge(strength=8.0)", "Average(cap=1024, sharpness=10.0, log_offset=0.0)"),
        (["--scorer", "token-ridge", "--strength", "0.5"], str(ir3de.TokenRidge(0.5)), str(ir3de.Average())),
        (["--scorer", "cross-entropy", "--strength", "7"], str(CrossEntropy(7.0)), str(ir3de.Average())),
        (["--scorer", "kernel-ridge", "--selector", "entropy"], str(KernelRidge()), str(ir3de.EntropyTopK(10))),
        (["--scorer", "paper"], str(ir3de.TokenRidge.paper()), str(ir3de.EntropyTopK(10))),
        (["--scorer", "authors", "--k", "5"], str(ir3de.TokenRidge.authors()), str(ir3de.EntropyTopK.authors(5))),
        (["--selector", "all", "--cap", "64"], "PromptRidge(strength=8.0)", str(ir3de.AllTokens(64))),
    ],
)
def test_fit_knows_the_strategies(
    tmp_path: Path, law_file: Path, options: list[str], scorer: str, selector: str
) -> None:
    said = run_json("fit", tmp_path / "r", f"law={law_file}", f"coding={CODING}", *options)
    router = Router.load(tmp_path / "r")
    assert (str(router.scorer), str(router.selector)) == (scorer, selector)
    assert said["scorer"]["name"] in scorer and said["experts"] == ["law", "coding"]
    assert said["counted"][0]["prompts"] == 2 and said["bytes"] > 0


def test_fit_reads_standard_input_and_statistics(tmp_path: Path, law_file: Path) -> None:
    run("collect", tmp_path / "law.stats", law_file)
    said = run_json("fit", tmp_path / "r", f"law={tmp_path / 'law.stats'}", "coding=-", stdin="def f():\nreturn 1\n")
    assert [domain["prompts"] for domain in said["counted"]] == [2, 2]


def test_fit_replaces_a_router_only_when_told_to(router: Path, law_file: Path) -> None:
    before = (router / "router.json").read_bytes()
    assert "--force" in complaint("fit", router, f"law={law_file}")
    assert (router / "router.json").read_bytes() == before
    run("fit", router, f"law={law_file}", "--force")
    assert Router.load(router).experts == ("law",)


def test_fit_checks_everything_before_it_reads(tmp_path: Path, law_file: Path) -> None:
    out = tmp_path / "r"
    assert "no such file" in complaint("fit", out, f"law={law_file}", f"coding={tmp_path / 'missing.txt'}")
    assert "ir3de collect" in complaint("fit", out, f"law={law_file}", f"coding={tmp_path / 'missing.stats'}")
    assert "not among law" in complaint("fit", out, f"law={law_file}", "--default", "maths")
    assert "positive number" in complaint("fit", out, f"law={law_file}", "--strength", "-1")
    assert "is a file" in complaint("fit", law_file, f"law={LAW}")
    assert "other files" in complaint("fit", tmp_path, f"law={LAW}")
    assert "no embedding at" in complaint("fit", out, f"law={LAW}", "--embedding", "nowhere")
    assert not out.exists()


def test_an_expert_without_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n", encoding="utf-8")
    assert "'law' has no text" in complaint("fit", tmp_path / "r", f"law={tmp_path / 'empty.txt'}")


def test_pairs_are_checked(tmp_path: Path) -> None:
    out = tmp_path / "r"
    assert "expected name=path" in wrong_call("fit", out, LAW)
    assert "expected name=path" in wrong_call("fit", out, f"={LAW}")
    assert "expected name=path" in wrong_call("fit", out, "law=")
    assert "named twice" in wrong_call("fit", out, f"law={LAW}", f"coding={LAW}")
    assert "--k belongs to" in wrong_call("fit", out, f"law={LAW}", "--k", "3")
    assert "neither a whole number" in wrong_call("fit", out, f"law={LAW}", "--sample", "some")
    assert "same folder" in wrong_call("fit", out, f"law={LAW}", "--serving", out)
    assert "Missing argument" in wrong_call("fit", out)


def test_add_remove_and_merge_are_exact(router: Path, law_file: Path, fitted: Path) -> None:
    original = Router.load(fitted)
    said = run_json("add", router, f"tenancy={law_file}")
    assert said["experts"] == [*original.experts, "tenancy"]
    assert "is an expert already" in complaint("add", router, f"tenancy={law_file}")
    shown = run("add", router, "--merge", f"tenancy={HISTORY}").stdout
    assert "6 experts solved" in shown
    assert Router.load(router).statistics["tenancy"].prompts == 122
    assert "to give more texts to" in complaint("add", router, "--merge", f"cooking={law_file}")
    assert "5 experts" in run("remove", router, "tenancy").stdout
    changed = Router.load(router)
    assert changed.statistics == original.statistics
    assert (router / "router.json").read_bytes() == (fitted / "router.json").read_bytes()


def test_remove_complains(router: Path) -> None:
    before = (router / "router.json").read_bytes()
    assert "no expert 'cooking'" in complaint("remove", router, "law", "cooking")
    assert "only expert" in complaint("remove", router, *demo.DOMAINS)
    assert (router / "router.json").read_bytes() == before


# collect, merge -------------------------------------------------------------------------------------------------------


def test_collected_shards_add_up(tmp_path: Path) -> None:
    law, coding, both, together = (tmp_path / f"{name}.stats" for name in ("law", "coding", "both", "together"))
    assert "saved to" in run("collect", law, LAW).stdout
    run("collect", coding, CODING, "-q")
    merged = run_json("merge", both, law, coding)
    assert merged["digest"] == run_json("collect", together, CODING, LAW)["digest"]
    assert both.read_bytes() == together.read_bytes()
    assert "--force" in complaint("merge", both, law, coding)
    assert "prompts" in run("merge", both, law, "--force").stdout


def test_collect_options(tmp_path: Path, law_file: Path) -> None:
    target = tmp_path / "law.stats"
    assert run_json("collect", target, law_file, "--histogram-only")["windows"] is None
    said = run_json("collect", target, law_file, "--whole-files", "--window", "4", "--cap", "8", "--force")
    assert (said["prompts"], said["tokens"], said["windows"]) == (1, 8, 2)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"body": "Is it void?"}\n', encoding="utf-8")
    assert run_json("collect", target, rows, "--field", "body", "--sample", "1", "--force")["prompts"] == 1
    assert "name the field" in complaint("collect", target, rows, "--force")


def test_large_domains_are_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = run_json("collect", tmp_path / "exact.stats", LAW)
    monkeypatch.setattr("ir3de.cli.counting.LARGE_DOMAIN", 1_000)
    sampled = run_json("collect", tmp_path / "sampled.stats", LAW)
    assert sampled["tokens"] == exact["tokens"] and sampled["windows"] % 16 == 0
    assert run_json("collect", tmp_path / "told.stats", LAW, "--sample", "1")["digest"] == exact["digest"]


def test_collect_and_merge_complain(tmp_path: Path, law_file: Path) -> None:
    target = tmp_path / "law.stats"
    assert "does not end in .stats" in wrong_call("collect", tmp_path / "law.bin", LAW)
    assert "named twice" in wrong_call("collect", target, LAW, LAW)
    assert "named twice" in wrong_call("merge", target, "a.stats", "a.stats")
    assert "no such file" in complaint("collect", target, tmp_path / "missing.txt")
    assert "cannot read" in complaint("merge", target, tmp_path / "missing.stats")
    assert "not a file that ir3de wrote" in complaint("merge", target, law_file)
    assert "there is no text" in complaint("collect", target, "-", stdin="")
    run("collect", target, law_file)
    run("collect", tmp_path / "histogram.stats", law_file, "--histogram-only")
    assert "histogram alone" in complaint("merge", tmp_path / "sum.stats", target, tmp_path / "histogram.stats")


# route ----------------------------------------------------------------------------------------------------------------


def test_route_one_prompt(fitted: Path) -> None:
    shown = run("route", fitted, "Is this contract void?").stdout
    assert shown.startswith("law") and "█" in shown and "5 tokens, all counted" in shown
    assert run("route", fitted, "Is this contract void?", "-q").stdout == "law\n"
    said = run_json("route", fitted, "Is this contract void?", "--top", "2")
    assert said["expert"] == "law" and len(said["ranking"]) == 2
    assert len(run("route", fitted, "Is it void?", "--top", "1").stdout.splitlines()) == 2


def test_route_says_when_it_abstains(fitted: Path) -> None:
    result = run("route", fitted, "")
    assert "default expert, coding" in result.stderr and "coding" in result.stdout
    assert run_json("route", fitted, "")["abstained"] is True


def test_route_standard_input(fitted: Path) -> None:
    stdin = "Is this contract void?\n\nWrite a Python function.\n"
    lines = run("route", fitted, stdin=stdin).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["law", "coding"]
    assert run("route", fitted, "-", "-q", stdin=stdin).stdout == "law\ncoding\n"
    rows = [json.loads(line) for line in run("route", fitted, "--json", stdin=stdin).stdout.splitlines()]
    assert [row["ir3de"]["expert"] for row in rows] == ["law", "coding"]
    assert rows[0]["text"] == "Is this contract void?"


def test_route_answers_each_line_as_it_comes(fitted: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "ir3de", "route", str(fitted), "--json"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None and running.stdout is not None
        for text, expert in ((b"Is this contract void?", "law"), (b"Write a Python function.", "coding")):
            running.stdin.write(text + b"\n")
            running.stdin.flush()
            assert json.loads(running.stdout.readline())["ir3de"]["expert"] == expert
        running.stdin.close()
        assert running.wait(30) == 0


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "q.jsonl"
    rows = [
        {"id": 1, "ask": "Is this contract void?", "ir3de": "old"},
        {"id": 2, "ask": "", "note": "\ud83d"},
        {"id": 3, "ask": "Écris une fonction Python 你好"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_route_a_file_into_a_file(fitted: Path, questions: Path, tmp_path: Path) -> None:
    target = tmp_path / "r.jsonl"
    said = run_json("route", fitted, "--input", questions, "--output", target, "--field", "ask", "--top", "1")
    rows = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    assert said["rows"] == 3 and sum(said["experts"].values()) == 3
    assert [row["id"] for row in rows] == [1, 2, 3] and rows[1]["note"] == "\ud83d"
    assert rows[0]["ir3de"]["expert"] == "law" and rows[1]["ir3de"]["abstained"]
    assert "你好" in target.read_text(encoding="utf-8")
    assert len(rows[0]["ir3de"]["ranking"]) == 1
    human = run("route", fitted, "--input", questions, "--output", target, "--field", "ask").stdout
    assert "3 rows routed" in human
    piped = run("route", fitted, "--input", "-", "--output", "-", stdin='{"text": "Is it void?", "id": 9}\n').stdout
    assert json.loads(piped)["id"] == 9
    shown = run("route", fitted, "--input", questions, "--field", "ask").stdout
    assert len(shown.splitlines()) == 3 and "abstains" in shown


def test_route_writes_the_whole_output_or_none(fitted: Path, questions: Path, tmp_path: Path) -> None:
    target = tmp_path / "r.jsonl"
    target.write_text("before", encoding="utf-8")
    with questions.open("a", encoding="utf-8") as file:
        file.write("{broken\n")
    assert "q.jsonl:4" in complaint("route", fitted, "--input", questions, "--output", target, "--field", "ask")
    assert target.read_text(encoding="utf-8") == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["q.jsonl", "r.jsonl"]


def test_route_complains(fitted: Path, questions: Path, tmp_path: Path) -> None:
    assert "no router at" in complaint("route", tmp_path / "missing", "text")
    assert "no such file" in complaint("route", fitted, "--input", tmp_path / "missing.jsonl")
    assert "found no field" in complaint("route", fitted, "--input", questions, "--field", "question")
    assert "cannot write" in complaint("route", fitted, "a", "--output", tmp_path / "no" / "r.jsonl")
    assert "leave one of them out" in wrong_call("route", fitted, "text", "--input", questions)


# explain --------------------------------------------------------------------------------------------------------------

PROMPT = "Is this contract void?\nThe contract is 你好 🙂"


def test_explain_without_colours_marks_tokens_with_letters(fitted: Path) -> None:
    shown = run("explain", fitted, PROMPT, "--tokens", "3").stdout
    lines = shown.splitlines()
    assert lines[0] == "Is this contract void?" and re.fullmatch(r"[A-E ]+", lines[1])
    assert "C law" in shown and "␣contract" in shown and "×2" in shown and "law over" in shown
    assert "\x1b" not in shown


def test_explain_with_colours(fitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[35m contract" in run("explain", fitted, PROMPT).stdout
    monkeypatch.setenv("NO_COLOR", "1")
    shown = run("explain", fitted, PROMPT).stdout
    assert "\x1b[35m" not in shown and re.search("^[A-E ]*CCC", shown, re.MULTILINE)


def test_explain_votes(voting: Path) -> None:
    shown = run("explain", voting, PROMPT).stdout
    assert "The surest tokens" in shown
    said = run_json("explain", voting, "-", stdin=PROMPT + "\n")
    counted = [vote for vote in said["votes"] if vote["counted"]]
    assert len(counted) == 3 and said["experts"] == ["law", "coding"]
    assert "".join(vote["text"] for vote in said["votes"]) == PROMPT


def test_explain_nothing(fitted: Path) -> None:
    result = run("explain", fitted, stdin="")
    assert "no known token" in result.stderr and "coding" in result.stdout
    broken = CliRunner().invoke(cli, ["explain", str(fitted)], input=b"one\n\xff")
    assert broken.exit_code == 1 and "<stdin>:2: not valid UTF-8" in broken.stderr


def test_a_prompt_cannot_steer_the_terminal(fitted: Path) -> None:
    hostile = "void \x1b[2J \x9b31m [red]contract[/red] :smile:"
    for shown in (run("explain", fitted, hostile).stdout, run("route", fitted, stdin=hostile + "\n").stdout):
        assert "\x1b" not in shown and "\x9b" not in shown and "[red]" in shown and ":smile:" in shown


# eval -----------------------------------------------------------------------------------------------------------------


def test_eval(fitted: Path) -> None:
    pairs = [f"{name}={HELD_OUT / name}.txt" for name in demo.DOMAINS]
    said = run_json("eval", fitted, *pairs, "--errors", "2")
    assert said["accuracy"] > 0.8 and said["prompts"] == 125 and len(said["errors"]) == 2
    assert said["errors"][0]["expected"] != said["errors"][0]["expert"]
    shown = run("eval", fitted, *pairs, "--errors", "1").stdout
    for expected in ("accuracy 91", "recall", "precision", "went to", "Calibration", "Misrouted", "90 – 100 %"):
        assert expected in shown
    assert len(run("eval", fitted, *pairs, "-q").stdout.splitlines()) == 1


def test_eval_of_perturbed_prompts(fitted: Path) -> None:
    pairs = [f"{name}={HELD_OUT / name}.txt" for name in ("law", "coding")]
    assert "robustness" not in run_json("eval", fitted, *pairs)
    said = run_json("eval", fitted, *pairs, "--robustness")
    assert said["robustness"]["accuracy"] == said["accuracy"] and said["robustness"]["prompts"] == said["prompts"]
    effects = said["robustness"]["effects"]
    assert all(0 <= effect["flipped"] <= 1 for effect in effects)
    assert [effect["perturbation"] for effect in effects if effect["either"] is not None] == [
        "mixed, 20% of another domain",
        "mixed, 40% of another domain",
    ]
    shown = run("eval", fitted, *pairs, "--robustness").stdout
    for expected in ("accuracy", "Robustness", "flipped", *(effect["perturbation"] for effect in effects)):
        assert expected in shown
    assert "mixed" not in run("eval", fitted, pairs[0], "--robustness").stdout  # with what?


def test_bench_robustness(tmp_path: Path) -> None:
    for domain in ("law", "coding"):
        folder = tmp_path / "suites" / "small" / domain
        folder.mkdir(parents=True)
        for split, path in (("train", path_of(domain)), ("test", HELD_OUT / f"{domain}.txt")):
            lines = [json.dumps({"text": line}) for line in path.read_text(encoding="utf-8").splitlines()[:20]]
            (folder / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    said = run_json("bench", "robustness", "--data", tmp_path / "suites", "--save", tmp_path / "kept.json")
    assert json.loads((tmp_path / "kept.json").read_text(encoding="utf-8")) == said
    assert [row["suite"] for row in said["rows"]] == ["small", "small"]
    shown = run("bench", "robustness", "--data", tmp_path / "suites", "--suite", "small").stdout
    assert "small: authors' code, k=10" in shown and "first 16 tokens" in shown


def test_bench_experts(tmp_path: Path) -> None:
    said = run_json("bench", "experts", "--count", "3", "--count", "2", "--save", tmp_path / "kept.json")
    assert json.loads((tmp_path / "kept.json").read_text(encoding="utf-8")) == said
    assert [row["experts"] for row in said["rows"]] == [2, 3]
    assert said["figures"][0]["name"] == "time of a prompt, 2 to 3 experts"
    shown = run("bench", "experts", "--count", "2").stdout
    assert "2 experts" in shown and "route batch, µs" in shown and "serving peak, MB" in shown


def test_eval_of_many_experts_lists_the_largest_confusions(tmp_path: Path) -> None:
    files = []
    for index in range(16):
        path = tmp_path / f"{index}.txt"
        path.write_text("\n".join(demo.prompts()["law"][index::16]), encoding="utf-8")
        files.append(f"expert-{index}={path}")
    run("fit", tmp_path / "r", *files, "-q")
    names = [pair.split("=")[0] for pair in files]
    shown = run("eval", tmp_path / "r", *(f"{name}={HELD_OUT / 'law.txt'}" for name in names[:1])).stdout
    assert "is ↓" not in shown and "went to" in shown


def test_eval_complains(fitted: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    assert "no expert 'cooking'" in complaint("eval", fitted, f"cooking={LAW}")
    assert "'law' has no prompt" in complaint("eval", fitted, f"law={tmp_path / 'empty.txt'}")
    assert "no such file" in complaint("eval", fitted, f"law={tmp_path / 'missing.txt'}")


# inspect, embedding, demo, doctor -------------------------------------------------------------------------------------


def test_inspect_a_router(fitted: Path, router: Path) -> None:
    shown = run("inspect", fitted).stdout
    assert "PromptRidge(strength=8.0)" in shown and "mathematics" in shown and "damaged" not in shown
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
    from ir3de.embeddings.sources import BUNDLED

    run("collect", tmp_path / "law.stats", law_file)
    assert run_json("inspect", tmp_path / "law.stats")["kind"] == "statistics"
    assert "windows" in run("inspect", tmp_path / "law.stats").stdout
    assert run_json("inspect", BUNDLED)["name"] == "SmolLM2-135M"
    assert "fingerprint" in run("inspect", BUNDLED).stdout
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
    assert [header["path"] for header in listed] == ["default", str(copy)]
    assert "SmolLM2-135M" in run("embedding", "list").stdout
    assert "no folder at" in complaint("embedding", "list", tmp_path / "missing")
    (copy / "matrix.safetensors").unlink()
    assert "not whole" in complaint("embedding", "list", copy)


def test_demo(tmp_path: Path) -> None:
    shown = run("demo", "--save", tmp_path / "r").stdout
    for expected in ("Fit", "Measure", "Route", "Explain", "accuracy 91", "landlord", "µs", "Try next", "C law"):
        assert expected in shown
    said = run_json("demo")
    assert said["evaluation"]["accuracy"] > 0.85 and len(said["routed"]) == 5 and said["saved"] is None
    assert [routed["expert"] for routed in said["routed"]] == list(demo.DOMAINS)
    assert "--force" in complaint("demo", "--save", tmp_path / "r")


def test_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run("doctor").stdout
    assert "numpy" in shown and "proven" in shown and "all is well" in shown
    assert run_json("doctor")["ok"] is True
    monkeypatch.setattr("ir3de.cli.doctor.REQUIRED", ("a-package-that-is-missing",))
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


def test_output_that_cannot_hold_every_character(fitted: Path) -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    shown = process("route", fitted, "Is this contract void? 你好", env=ascii_only)
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
        deadline = time.monotonic() + 20
        while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(list(tmp_path.iterdir())) == 1  # the part that is not yet there
        running.send_signal(signal.SIGINT)
        # during an import Python dies of the signal itself, which a shell reports as 130 too
        assert running.wait(30) in (130, -signal.SIGINT)
        assert running.stderr.read() == b""
    assert list(tmp_path.iterdir()) == []


# how things look ------------------------------------------------------------------------------------------------------


def test_small_things_for_people() -> None:
    assert [size(n) for n in (0, 999, 1_000, 2_500_000, 3e12)] == ["0 B", "999 B", "1.0 kB", "2.5 MB", "3.0 TB"]
    assert one_line("a\n b\tc" + "d" * 50, 10) == "a b cdddd…"
    assert printable("tab\tnul\0 del\x7f") == "tab␉nul␀ del\ufffd"
    assert json_text({"a": "é"}) == '{"a": "é"}' and json_text({"a": "é"}, "ascii") == '{"a": "\\u00e9"}'


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "IR3DE_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    yield


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
        "error: cannot write the answer: No space left on device. Make room, or send the output elsewhere"
    ]
