"""Every command for people and for programs; every error in one line; nothing half written."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ir3de
import ir3de.scorers
import ir3de.selectors
from commands import CODING, COMMANDS, HISTORY, LAW, ROOT, complaint, process, quick, run, run_json, wrong_call
from ir3de import Router
from ir3de.cli import SECTIONS, cli
from ir3de.corpora import examples as demo
from ir3de.scorers import Blend, CrossEntropy, KernelRidge, Logistic, TokenRidge
from ir3de.scorers.registry import SCORERS
from ir3de.selectors import SELECTORS, Average
from ir3de.statistics import Statistics
from ir3de.statistics.files import load_statistics

pytestmark = pytest.mark.usefixtures("plain_terminal")

# help ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_helps_with_an_example(name: str) -> None:
    shown = run(name, "--help").stdout
    assert "Example" in shown and f"ir3de {name}" in shown.split("Example", 1)[1]
    if name not in (
        "embedding",
        "encoder",
        "bench",
        "config",
        "keys",
        "router",
        "feedback",
    ):  # groups: their commands have them
        assert "--json" in shown and "--quiet" in shown


def test_help_lists_every_command_once_under_its_section() -> None:
    shown = run("-h").stdout
    for title, commands in SECTIONS.items():
        below = shown.split(f"{title}:")[1]
        names = [one if isinstance(one, str) else one.name for one in commands]
        assert all(re.search(rf"^  {name} ", below, re.MULTILINE) for name in names)
    assert set(COMMANDS) == {*cli.commands, "serve", "config", "keys", "router", "ext-proc"}
    assert len(COMMANDS) == len(set(COMMANDS))


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
    assert answer.stdout.strip() == "plain,explain\nplain,ext-proc"


# fit, add, remove -----------------------------------------------------------------------------------------------------


def test_fit_tells_what_it_did_and_what_comes_next(tmp_path: Path) -> None:
    shown = run("fit", tmp_path / "r", f"law={LAW}", f"coding={CODING}", "--serving", tmp_path / "s", *quick()).stdout
    assert "MB/s" not in shown and "240" in shown and "fitted 2 experts in" in shown and "ir3de route" in shown
    assert Router.load(tmp_path / "r").experts == Router.load(tmp_path / "s").experts == ("law", "coding")
    assert "serving copy" in complaint("add", tmp_path / "s", f"history={HISTORY}")


def test_fit_gives_the_router_that_the_library_gives(tmp_path: Path, law_file: Path) -> None:
    prompts = {name: texts[:40] for name, texts in demo.prompts().items()}
    law, coding = tmp_path / "more-law.txt", tmp_path / "coding.txt"
    for path, texts in ((law, prompts["law"]), (coding, prompts["coding"])):
        path.write_text("\n".join(texts), encoding="utf-8")
    run("fit", tmp_path / "r", f"law={law}", f"law={law_file}", f"coding={coding}", "--default", "coding", "-q")
    texts = prompts["law"] + law_file.read_text(encoding="utf-8").splitlines()
    expected = Router.fit({"law": texts, "coding": prompts["coding"]}, default="coding")
    found = Router.load(tmp_path / "r")
    assert found.statistics == expected.statistics and found.default == "coding"
    assert found.route("Is it void?") == expected.route("Is it void?")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "scorer", "selector"),
    [
        (["--scorer", "blend"], str(Blend()), "Average(cap=1024, sharpness=10.0, log_offset=0.0)"),
        (["--strength", "4"], str(Blend(strength=4.0)), str(ir3de.Average())),
        (["--scorer", "logistic", "--strength", "2"], str(Logistic(2.0)), str(ir3de.Average())),
        (["--scorer", "token-ridge", "--strength", "0.5"], str(ir3de.TokenRidge(0.5)), str(ir3de.Average())),
        (["--scorer", "cross-entropy", "--strength", "7"], str(CrossEntropy(7.0)), str(ir3de.Average())),
        (["--scorer", "kernel-ridge", "--selector", "entropy"], str(KernelRidge()), str(ir3de.EntropyTopK(10))),
        (["--scorer", "paper"], str(ir3de.TokenRidge.paper()), str(ir3de.EntropyTopK(10))),
        (["--scorer", "authors", "--k", "5"], str(ir3de.TokenRidge.authors()), str(ir3de.EntropyTopK.authors(5))),
        (["--selector", "all", "--cap", "64"], str(Blend()), str(ir3de.AllTokens(64))),
    ],
)
@pytest.mark.nightly
def test_fit_knows_the_strategies(
    tmp_path: Path, law_file: Path, options: list[str], scorer: str, selector: str
) -> None:
    said = run_json("fit", tmp_path / "r", f"law={law_file}", f"coding={CODING}", *options)
    router = Router.load(tmp_path / "r")
    assert (str(router.scorer), str(router.selector)) == (scorer, selector)
    assert said["scorer"]["name"] in scorer and said["experts"] == ["law", "coding"]
    assert said["counted"][0]["prompts"] == 2 and said["bytes"] > 0


@dataclass(frozen=True)
class Halved:
    weight: float = 0.5

    def scores(self, domains: Sequence[Statistics], embeddings: Any) -> Any:
        return self.weight * TokenRidge().scores(domains, embeddings)


@dataclass(frozen=True)
class Patient(Average):
    cap: int = 2_048


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SCORERS, "_registered", {})
    monkeypatch.setattr(SELECTORS, "_registered", {})
    ir3de.scorers.register(Halved)
    ir3de.selectors.register(Patient)


@pytest.mark.usefixtures("registered")
def test_fit_takes_registered_classes_by_name(tmp_path: Path, law_file: Path) -> None:
    names = ["--scorer", "Halved", "--selector", "Patient", *quick()[2:]]
    given = ["fit", tmp_path / "r", f"law={law_file}", f"coding={CODING}", *names]
    run(*given)
    router = Router.load(tmp_path / "r")
    assert (router.scorer, router.selector) == (Halved(), Patient())
    run(*given, "--cap", "64", "--force")
    assert Router.load(tmp_path / "r").selector == Patient(64)
    assert "Halved has no parameter strength: leave --strength out" in wrong_call(*given, "--strength", "2", "--force")
    assert "--k belongs to --selector entropy" in wrong_call(*given, "--k", "2", "--force")


def test_fit_refuses_unknown_classes_with_a_list(tmp_path: Path, law_file: Path, registered: None) -> None:
    given = ["fit", tmp_path / "r", f"law={law_file}"]
    for scorer in ("Thirded", "TokenRidge"):
        said = wrong_call(*given, "--scorer", scorer)
        assert (
            f"'{scorer}' is unknown: there are auto, blend, logistic, prompt-ridge" in said
            and "authors, Halved." in said
        )
    said = wrong_call(*given, "--selector", "Hasty")
    assert "'Hasty' is unknown: there are average, entropy, all, Patient." in said
    assert "[auto|blend|logistic|" in run("fit", "--help").stdout


def test_fit_reads_standard_input_and_statistics(tmp_path: Path, law_file: Path) -> None:
    run("collect", tmp_path / "law.stats", law_file)
    said = run_json("fit", tmp_path / "r", f"law={tmp_path / 'law.stats'}", "coding=-", stdin="def f():\nreturn 1\n")
    assert [domain["prompts"] for domain in said["counted"]] == [2, 2]


def test_fit_replaces_a_router_only_when_told_to(router: Path, law_file: Path) -> None:
    before = (router / "router.json").read_bytes()
    assert "--force" in complaint("fit", router, f"law={law_file}")
    assert (router / "router.json").read_bytes() == before
    run("fit", router, f"law={law_file}", "--force", *quick())
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
    assert "neither a whole number" in wrong_call("fit", out, f"law={LAW}", "--subsample", "some")
    assert "same folder" in wrong_call("fit", out, f"law={LAW}", "--serving", out)
    assert "Missing argument" in wrong_call("fit", out)


@pytest.mark.slow
@pytest.mark.nightly
def test_add_remove_and_merge_are_exact(tmp_path: Path, law_file: Path) -> None:
    original = Router.fit({name: texts[:24] for name, texts in demo.prompts().items()})
    router, fitted = (original.save(tmp_path / name) for name in ("router", "fitted"))
    said = run_json("add", router, f"tenancy={law_file}")
    assert said["experts"] == [*original.experts, "tenancy"]
    assert "is an expert already" in complaint("add", router, f"tenancy={law_file}")
    shown = run("add", router, "--merge", f"tenancy={HISTORY}").stdout
    assert "fitted 6 experts in" in shown
    assert Router.load(router).statistics["tenancy"].prompts == 122
    assert "to give more texts to" in complaint("add", router, "--merge", f"cooking={law_file}")
    assert "5 experts" in run("remove", router, "tenancy").stdout
    changed = Router.load(router)
    assert changed.statistics == original.statistics
    assert (router / "router.json").read_bytes() == (fitted / "router.json").read_bytes()


@pytest.mark.slow
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
    assert load_statistics(both) == load_statistics(together)
    assert "--force" in complaint("merge", both, law, coding)
    assert "prompts" in run("merge", both, law, "--force").stdout


def test_collect_options(tmp_path: Path, law_file: Path) -> None:
    target = tmp_path / "law.stats"
    assert run_json("collect", target, law_file, "--histogram-only")["windows"] is None
    said = run_json("collect", target, law_file, "--whole-files", "--window", "4", "--cap", "8", "--force")
    assert (said["prompts"], said["tokens"], said["windows"]) == (1, 8, 2)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"body": "Is it void?"}\n', encoding="utf-8")
    assert run_json("collect", target, rows, "--field", "body", "--subsample", "1", "--force")["prompts"] == 1
    assert "name the field" in complaint("collect", target, rows, "--force")


def test_large_domains_are_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = run_json("collect", tmp_path / "exact.stats", LAW)
    monkeypatch.setattr("ir3de.cli.counting.LARGE_DOMAIN_BYTES", 1_000)
    sampled = run_json("collect", tmp_path / "sampled.stats", LAW)
    assert sampled["tokens"] == exact["tokens"] and sampled["windows"] % 16 == 0
    assert run_json("collect", tmp_path / "told.stats", LAW, "--subsample", "1")["digest"] == exact["digest"]


def test_the_option_of_version_0_1_for_subsampling_still_works(tmp_path: Path) -> None:
    new = run_json("collect", tmp_path / "new.stats", LAW, "--subsample", "3")
    assert run_json("collect", tmp_path / "old.stats", LAW, "--sample", "3")["digest"] == new["digest"]
    shown = run("collect", "--help").output
    assert "--subsample N|auto" in shown and " --sample" not in shown


def test_collect_and_merge_complain(tmp_path: Path, law_file: Path) -> None:
    target = tmp_path / "law.stats"
    assert "does not end in .stats" in wrong_call("collect", tmp_path / "law.bin", LAW)
    assert "named twice" in wrong_call("collect", target, LAW, LAW)
    assert "named twice" in wrong_call("merge", target, "a.stats", "a.stats")
    assert "no such file" in complaint("collect", target, tmp_path / "missing.txt")
    assert "no such file" in complaint("merge", target, tmp_path / "missing.stats")
    assert "not a file that ir3de wrote" in complaint("merge", target, law_file)
    assert "contain no text" in complaint("collect", target, "-", stdin="")
    run("collect", target, law_file)
    run("collect", tmp_path / "histogram.stats", law_file, "--histogram-only")
    assert "histogram alone" in complaint("merge", tmp_path / "sum.stats", target, tmp_path / "histogram.stats")
