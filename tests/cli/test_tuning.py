"""fit --tune, tune, calibrate, eval --plot and inspect on the demo; what is kept of prompts, and what is not."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import tiny
from commands import quick
from ir3de import PromptRidge, Router
from ir3de.cli import cli
from ir3de.cli.proof import in_few_words, trials_table, why_chosen
from ir3de.corpora import examples as demo
from ir3de.corpora.examples import path_of
from ir3de.errors import MissingExtraError
from ir3de.scorers import Logistic
from ir3de.statistics.files import load_statistics

LAW, CODING = (str(path_of(name)) for name in ("law", "coding"))
TRAINING = [f"{name}={path_of(name)}" for name in demo.DOMAINS]
HELD_OUT = [f"{name}={path_of('law').parent / 'held_out' / f'{name}.txt'}" for name in demo.DOMAINS]


def run(*arguments: str | Path, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="ir3de")
    assert result.exit_code == code, (result.output, result.stderr, result.exception)
    return result


def run_json(*arguments: str | Path) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def wrong_call(*arguments: str | Path) -> str:
    return " ".join(run(*arguments, code=2).stderr.split())


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuning") / "router"
    run("fit", folder, *TRAINING)
    return folder


@pytest.fixture
def router(fitted: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(fitted, tmp_path / "router"))


# fit, add, collect: what is kept ------------------------------------------------------------------------------------


def test_fit_keeps_prompts_and_calibrates(fitted: Path) -> None:
    said = run_json("inspect", fitted)
    assert [expert["kept"] for expert in said["experts"]] == [120] * 5
    assert said["calibration"] is not None and said["policy"]["threshold"] == 0
    assert sum(trial["chosen"] for trial in said["trials"]) == 1  # the fit chose the scorer
    shown = run("inspect", fitted).stdout
    assert "calibrated" in shown and "kept" in shown and "on prompts out of domain" in shown
    assert said["default"] is None and "none was named" in shown


def test_no_sample_keeps_no_prompt(tmp_path: Path) -> None:
    shown = run("fit", tmp_path / "r", f"law={LAW}", f"coding={CODING}", "--no-sample", *quick()).stdout
    assert "not calibrated" in shown
    run("add", tmp_path / "r", f"history={path_of('history')}", "--no-sample")
    run("add", tmp_path / "r", "--merge", f"law={path_of('medicine')}", "--no-sample")
    assert all(statistics.sample is None for statistics in Router.load(tmp_path / "r").statistics.values())
    assert [expert["kept"] for expert in run_json("inspect", tmp_path / "r")["experts"]] == [0, 0, 0]
    assert "needs a sample of every expert's prompts" in run("tune", tmp_path / "r", code=1).stderr


def test_add_and_merge_in_python_keep_prompts_unless_told() -> None:
    router = tiny.router()
    router.add("kept", tiny.sentences("law", 5, seed=3))
    router.add("not", tiny.sentences("law", 5, seed=4), keep_sample=False)
    kept, none = (router.statistics[name].sample for name in ("kept", "not"))
    assert kept is not None and len(kept) == 5 and none is None
    router.merge("not", tiny.sentences("law", 4, seed=5), keep_sample=False)
    assert router.statistics["not"].sample is None and router.statistics["not"].prompts == 9


def list_names(trials: list[dict[str, Any]]) -> list[Any]:
    """The scorers in the table of all these trials."""
    (shown,) = trials_table(trials).renderables
    return [*shown.columns[1].cells]


def test_inspect_shows_the_best_trials_and_the_chosen_one() -> None:
    tried = [
        {"scorer": f"PromptRidge(strength={n}.0)", "selector": "Average()", "accuracy": 1 - n / 99,
         "short_accuracy": 0.5, "loss": 0.1, "chosen": n == 9}
        for n in range(1, 12)
    ]  # fmt: skip
    shown, left_out = trials_table(tried, 3).renderables
    assert [str(cell) for cell in shown.columns[1].cells] == [f"prompt ridge, λ {n}" for n in (1, 2, 3, 9)]
    assert str(left_out) == "and 7 others: --json has them all"


def test_no_sample_strips_what_others_collected(tmp_path: Path) -> None:
    run("collect", tmp_path / "law.stats", LAW, "--keep-sample", *quick()[2:])
    run("fit", tmp_path / "r", f"law={tmp_path / 'law.stats'}", f"coding={CODING}", "--no-sample", *quick())
    assert Router.load(tmp_path / "r").statistics["law"].sample is None


def test_collect_keeps_prompts_only_when_asked(tmp_path: Path) -> None:
    assert run_json("collect", tmp_path / "a.stats", LAW)["kept"] == 0
    assert load_statistics(tmp_path / "a.stats").sample is None
    assert run_json("collect", tmp_path / "b.stats", LAW, "--keep-sample")["kept"] == 120
    assert "120, as token ids" in run("inspect", tmp_path / "b.stats").stdout
    assert load_statistics(tmp_path / "a.stats") == load_statistics(tmp_path / "b.stats")
    assert "can then read those prompts" in " ".join(run("collect", "--help").stdout.split())


# add, remove: before and after ---------------------------------------------------------------------------------


def test_add_and_remove_keep_the_scorer_and_report_before_and_after(tmp_path: Path) -> None:
    texts = {name: tiny.sentences(name, 14, seed=5) for name in tiny.DOMAINS}
    router = Router.fit(texts, embedding=tiny.embedding()).save(tmp_path / "router")
    history, scorer = tmp_path / "history.txt", Router.load(router).scorer
    history.write_text("the emperor and the empire\nwhat is an emperor\nwhy did the empire fall\n")
    shown = run("add", router, f"history={history}").stdout
    assert Router.load(router).scorer == scorer and "as before" in shown
    assert "held-out accuracy" in shown and "mean confidence" in shown
    assert "of 42 kept prompts go elsewhere" in shown and "on the 42 prompts compared" in shown
    change = run_json("add", router, "--merge", f"history={history}", "--scorer", "choose")["change"]
    assert change["before"]["scorer"] == repr(scorer) != change["after"]["scorer"]
    assert change["after"]["scorer"] == repr(Router.load(router).scorer)
    assert change["before"]["prompts"] == 45 and change["compared"] == 45
    assert all({"prompt", "expert", "before", "after"} < set(one) for one in change["examples"])
    change = run_json("remove", router, "history", "--scorer", "choose")["change"]
    assert change["after"]["scorer"] == repr(scorer) == repr(Router.load(router).scorer)
    assert "no kept prompts to compare" not in shown
    assert "not one of" in wrong_call("remove", router, "law", "--scorer", "blend")


def test_without_kept_prompts_a_change_has_no_figures(tmp_path: Path) -> None:
    run("fit", tmp_path / "r", *TRAINING[:3], "--no-sample", *quick())
    assert "no kept prompts to compare" in run("remove", tmp_path / "r", "coding").stdout


def test_an_outcome_router_has_no_table_of_a_change(tmp_path: Path) -> None:
    rows = [{"text": f"prove it {n}", "scores": {"large": 1, "small": n % 2, "other": 0.5}} for n in range(6)]
    folder = Router.fit_outcomes(rows, embedding=tiny.embedding()).save(tmp_path / "r")
    assert "held-out accuracy" not in run("remove", folder, "other").stdout


# tune ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.nightly
def test_fit_tune_prints_and_stores_what_was_tried_and_keeps_the_cap(tmp_path: Path) -> None:
    shown = run("fit", tmp_path / "r", f"law={LAW}", f"coding={CODING}", "--tune", "--cap", "20").stdout
    assert "→" in shown and "log loss" in shown
    trials = run_json("inspect", tmp_path / "r")["trials"]
    assert len(trials) > 10 and sum(trial["chosen"] for trial in trials) == 1
    assert "Tuned" in run("inspect", tmp_path / "r").stdout
    router = Router.load(tmp_path / "r")
    assert list(router.trials) == trials and router.selector.cap == 20


@pytest.mark.parametrize(
    "option", [("--scorer", "blend"), ("--strength", "3"), ("--selector", "all"), ("--k", "3"), ("--no-sample",)]
)
def test_tune_leaves_nothing_to_choose(option: tuple[str, ...], tmp_path: Path) -> None:
    said = wrong_call("fit", tmp_path / "r", f"law={LAW}", "--tune", *option)
    assert option[0] in said and "--tune" in said and "leave" in said
    assert not (tmp_path / "r").exists()


@pytest.mark.slow
@pytest.mark.parametrize("scorer", ["posterior", "blend"])
def test_other_scorers_by_name(scorer: str, tmp_path: Path) -> None:
    run("fit", tmp_path / "r", f"law={LAW}", f"coding={CODING}", "--scorer", scorer, "--strength", "4")
    made = Router.load(tmp_path / "r").scorer
    assert type(made).__name__.lower() == scorer and made.strength == 4  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.nightly
def test_tune(tmp_path: Path) -> None:
    texts = {name: demo.prompts()[name][:40] for name in demo.DOMAINS[:3]}
    router = Router.fit(texts).save(tmp_path / "router")
    said = run_json("tune", router)
    assert said["before"]["scorer"].startswith(("Blend", "Logistic"))
    chosen = next(trial for trial in said["trials"] if trial["chosen"])
    assert said["scorer"] == chosen["scorer"]
    assert said["changed"] == (said["before"] != {key: said[key] for key in ("scorer", "selector")})
    shown = run("tune", router).stdout
    assert "→" in shown and "required" in shown and "held-out accuracy" in shown
    quiet = " ".join(run("tune", router, "-q").stdout.split())  # one sentence, which may be broken into lines
    kept = r"stays as it is: what tuning chose \(.+\) is not clearly more accurate; --output FOLDER saves it"
    assert re.fullmatch(f"{re.escape(str(router))} {kept}", quiet)


def test_tune_replaces_the_router_at_hand_only_where_it_is_clearly_better(tmp_path: Path) -> None:
    texts = {name: tiny.sentences(name, 20, seed=5, longest=4) for name in tiny.DOMAINS}
    good = Router.fit(texts, embedding=tiny.embedding(), scorer=Logistic()).save(tmp_path / "good")
    before = tiny.contents(good)
    said = run_json("tune", good)
    assert said["changed"] and not said["saved"] and tiny.contents(good) == before
    assert said["before"]["scorer"] == repr(Logistic()) and said["change"]["difference"]["low"] <= 0
    assert "stays as it is" in run("tune", good).stdout
    assert run_json("tune", good, "--output", tmp_path / "tuned")["saved"] and tiny.contents(good) == before
    assert repr(Router.load(tmp_path / "tuned").scorer) == said["scorer"]
    assert "exists already" in run("tune", good, "--output", tmp_path / "tuned", code=1).stderr

    poor = Router.fit(texts, embedding=tiny.embedding(), scorer=PromptRidge(1e6)).save(tmp_path / "poor")
    said = run_json("tune", poor)
    assert said["saved"] and said["change"]["difference"]["low"] > 0
    assert repr(Router.load(poor).scorer) == said["scorer"]


def test_tuning_says_why() -> None:
    leads = {"lead": 0.0, "lead_error": 0.0, "required_lead": 0.0}
    default = {"scorer": "Blend(posterior=0.5)", "selector": "Average()", "chosen": True, **leads}
    near = {"scorer": "PromptRidge(strength=8.0)", "selector": "Average()", "chosen": False}
    near |= {"lead": 0.004, "lead_error": 0.003, "required_lead": 0.006}
    far = {**near, "lead": -0.1}
    assert why_chosen([default, near, far]) == (
        "no trial clearly beats the default; the nearest is prompt ridge, λ 8 (selector: average), which leads by "
        "0.4 ± 0.3 points, and 0.6 are required"
    )
    assert why_chosen([default, {**near, "lead": 0.0}]).endswith("which does not lead; 0.6 points are required")
    winner = {**near, "lead": 0.02, "chosen": True}
    assert why_chosen([winner, {**default, "chosen": False}, far]) == (
        "chosen because it leads the default by 2.0 ± 0.3 points, and 0.6 were required"
    )
    assert why_chosen([]) == "" and why_chosen([{"scorer": "Blend()", "chosen": True}]) == ""  # of version 0.1
    assert why_chosen([default]) == ""
    first = {**near, "scorer": "TokenRidge(strength=2.0)", "lead": 0.03, "lead_error": 0.02, "required_lead": 0.04}
    assert why_chosen([first, winner, {**default, "chosen": False}]).endswith(
        "; token ridge, λ 2 has the best accuracy, but leads by 3.0 ± 2.0 points, and 4.0 are required of it"
    )
    clear = {**first, "required_lead": 0.025}
    assert why_chosen([clear, winner, {**default, "chosen": False}]).endswith(
        "; token ridge, λ 2 has the best accuracy, but its lead of 3.0 ± 2.0 points, and 2.5 required, is less clear"
    )


def test_no_two_trials_look_the_same() -> None:
    figures = {"selector": "Average()", "accuracy": 0.9, "short_accuracy": 0.9, "loss": 0.1, "chosen": False}
    scorers = [f"Logistic(strength=4.0, means={m}.0, pairs={p}.0, closed=3.0)" for m, p in ((2, 1), (4, 1), (2, 2))]
    tried = [{**figures, "scorer": scorer, "window": 128} for scorer in scorers]
    assert list_names(tried) == [
        "logistic + 3 closed form, λ 4",
        "logistic + 3 closed form, λ 4, mean embedding weighted 4",
        "logistic + 3 closed form, λ 4, pairs weighted 2",
    ]
    windows = [{**figures, "scorer": "PromptRidge(strength=8.0)", "window": window} for window in (64, 128)]
    assert list_names(windows) == [
        "prompt ridge, λ 8, window 64",
        "prompt ridge, λ 8, window 128",
    ]
    hidden = [{**figures, "scorer": f"PromptRidge(strength=8.0, other={n})", "window": 128} for n in (1, 2)]
    assert list_names(hidden) == [one["scorer"] for one in hidden]


def test_a_serving_copy_is_not_tuned(fitted: Path, tmp_path: Path) -> None:
    Router.load(fitted).save(tmp_path / "copy", serving=True)
    assert "serving copy" in run("tune", tmp_path / "copy", code=1).stderr


def test_strategies_in_few_words() -> None:
    assert in_few_words("PromptRidge(strength=8.0)") == "prompt ridge, λ 8"
    assert in_few_words("Posterior(weight=0.3, sharpness=2.0, strength=2.0)") == "posterior, λ 2, prior 0.3"
    assert in_few_words("Blend(posterior=1.0, strength=2.0, prior=0.3)") == "ridge + posterior, λ 2, prior 0.3"
    assert in_few_words("Average(cap=1024, sharpness=10.0, log_offset=0.0)") == "average"
    assert in_few_words("Something(new=1)") == "Something(new=1)"


# calibrate ----------------------------------------------------------------------------------------------------------


def test_calibrate(router: Path) -> None:
    before = tiny.contents(router)
    tried = run_json("calibrate", router, *HELD_OUT, "--dry-run")
    assert not tried["saved"] and tiny.contents(router) == before
    said = run_json("calibrate", router, *HELD_OUT, "--default", "history")
    assert said["saved"] and said["error"] == 0.05 and said["bound"] <= 0.05
    assert said["threshold"] == tried["threshold"] and [other["error"] for other in said["others"]] == [0.02, 0.05, 0.1]
    loaded = Router.load(router)
    assert (loaded.policy.threshold, loaded.default) == (said["threshold"], "history")
    assert ("below" in run("inspect", router).stdout) == (said["threshold"] > 0)


@pytest.mark.nightly
def test_calibrate_shows_what_each_error_rate_costs(router: Path) -> None:
    shown = run("calibrate", router, *HELD_OUT, "--error", "0.02", "--keep-confidence").stdout
    assert "→" in shown and "answered" in shown and all(rate in shown for rate in ("1.0 %", "2.0 %", "5.0 %", "10.0 %"))
    assert "abstains below" in " ".join(shown.split())
    shown = run("calibrate", router, *HELD_OUT, "--error", "0.5").stdout
    assert "no threshold is needed" in shown and Router.load(router).policy.threshold == 0


def test_calibrate_a_serving_copy(fitted: Path, tmp_path: Path) -> None:
    Router.load(fitted).save(tmp_path / "copy", serving=True)
    files = set(tiny.contents(tmp_path / "copy"))
    said = run_json("calibrate", tmp_path / "copy", *HELD_OUT, "--error", "0.03", "--keep-confidence")
    assert Router.load(tmp_path / "copy").policy.threshold == said["threshold"] > 0
    assert set(tiny.contents(tmp_path / "copy")) == files and run_json("inspect", tmp_path / "copy")["serving"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--error", "0.01"], "half calibrate confidence"),
        (["--error", "0.001", "--keep-confidence"], "at least 999 held-out prompts"),
        (["--default", "cooking"], "no expert 'cooking'"),
    ],
)
def test_calibrate_complains(arguments: list[str], said: str, router: Path) -> None:
    before = tiny.contents(router)
    assert said in " ".join(run("calibrate", router, *HELD_OUT, *arguments, code=1).stderr.split())
    assert tiny.contents(router) == before


def test_calibrate_refuses_an_empty_file_as_eval_does(router: Path, tmp_path: Path) -> None:
    (tmp_path / "nothing.txt").touch()
    arguments = [router, *(pair for pair in HELD_OUT if not pair.startswith("law=")), f"law={tmp_path / 'nothing.txt'}"]
    for command in ("calibrate", "eval"):
        assert "'law' has no prompt" in " ".join(run(command, *arguments, code=1).stderr.split())


# eval ---------------------------------------------------------------------------------------------------------------


def test_eval_tells_why_it_abstained(router: Path) -> None:
    run("calibrate", router, *HELD_OUT, "--error", "0.02", "--keep-confidence")
    said = run_json("eval", router, *HELD_OUT)
    assert said["abstained"] == sum(said["abstained_because"].values()) > 0
    assert set(said["abstained_because"]) <= {"low confidence", "out of domain", "no known token"}
    assert said["answered_accuracy"] > said["routed_accuracy"]
    shown = run("eval", router, *HELD_OUT).stdout
    assert "Abstained" in shown and "low confidence" in shown and "│" in shown


@pytest.mark.nightly
def test_abstaining_does_not_change_the_reliability(router: Path) -> None:
    before = run_json("eval", router, *HELD_OUT)
    run("calibrate", router, *HELD_OUT, "--error", "0.02", "--keep-confidence", "--default", "law")
    after = run_json("eval", router, *HELD_OUT)
    assert after["reliability"] == before["reliability"] and after["abstained"] > before["abstained"]


@pytest.mark.parametrize(
    ("name", "begins"),
    [pytest.param("drawn.png", b"\x89PNG", marks=pytest.mark.nightly), ("drawn.SVG", b"<?xml")],
)
def test_eval_draws(name: str, begins: bytes, fitted: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run("eval", fitted, *HELD_OUT, "--plot", tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_eval_draws_nothing_else(fitted: Path, tmp_path: Path) -> None:
    assert "does not end in .png, .svg or .pdf" in wrong_call("eval", fitted, *HELD_OUT, "--plot", tmp_path / "a.bmp")


def test_drawing_needs_an_extra() -> None:
    script = (
        "import sys\nsys.modules['matplotlib'] = None\n"
        "from ir3de.cli.plots import require_matplotlib\nrequire_matplotlib()\n"
    )
    command, environment = tiny.python_command(script)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert MissingExtraError.__name__ in done.stderr and "[plots]" in done.stderr


def test_a_closed_form_that_leads_without_being_clear_is_explained() -> None:
    from ir3de.cli.proof import describe_choice

    chosen = {"scorer": "Logistic(strength=5.0, means=2.0, pairs=1.0, closed=3.0)", "accuracy": 0.66, "chosen": True}
    closed = {"scorer": "Blend(ridge=1.0, posterior=0.25, pairs=0.5, strength=8.0, prior=1.0)", "chosen": False}
    leading = {**closed, "accuracy": 0.73, "lead": 0.07, "lead_error": 0.045, "required_lead": 0.09}
    assert describe_choice([chosen, leading], "") == (
        "scorer: logistic regression with the closed form, chosen on held-out prompts: -7.0 points against the closed "
        "form, as a mean over experts. The closed form's lead is not clear: 7.0 ± 4.5 points, where 9.0 would be needed"
    )
    behind = {**closed, "accuracy": 0.6, "lead": -0.06, "lead_error": 0.045, "required_lead": 0.09}
    hard = [{**one, "hard_groups": "clusters", "hard_accuracy": share} for one, share in ((chosen, 0.5), (behind, 0.6))]
    assert describe_choice(hard, "").endswith(
        "+6.0 points against the closed form, as a mean over experts, and -10.0 on prompts of kinds that the fit did "
        "not see"
    )
