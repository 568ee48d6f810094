"""Costs on the command line: given, shown, changed without a fit, and drawn."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import tiny
from commands import quick
from ir3de import Router
from ir3de.cli import cli
from ir3de.evaluation.frontier import measure_frontier
from ir3de.policies import Policy

PRICES = ("--price", "maths=3", "--price", "law=0.5", "--price", "cooking=0", "--latency", "law=2")
PROMPT = "can the tenant boil an egg"


def run(*arguments: str | Path, code: int = 0, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], input=stdin, prog_name="ir3de")
    assert result.exit_code == code, (result.output, result.stderr, result.exception)
    return result


def run_json(*arguments: str | Path) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def complaint(*arguments: str | Path, code: int = 1) -> str:
    result = run(*arguments, code=code)
    assert result.stdout == ""
    return " ".join(result.stderr.split())


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.router().save(tmp_path_factory.mktemp("costs") / "router")


@pytest.fixture
def router(fitted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(fitted, tmp_path / "router"))


@pytest.fixture
def texts(tmp_path: Path) -> dict[str, Path]:
    """A file of prompts for every expert."""
    files = {name: tmp_path / f"{name}.txt" for name in tiny.DOMAINS}
    for name, path in files.items():
        path.write_text("\n".join(tiny.sentences(name, 12, seed=3, longest=8)), encoding="utf-8")
    return files


@pytest.fixture
def costs_file(tmp_path: Path) -> Path:
    path = tmp_path / "costs.json"
    path.write_text('{"maths": {"price": 2, "memory": 16}, "law": {"price": 1.5}, "*": {"price": 0}}', encoding="utf-8")
    return path


def pairs(texts: dict[str, Path]) -> list[str]:
    return [f"{name}={path}" for name, path in texts.items()]


# policy ---------------------------------------------------------------------------------------------------------


def test_a_policy_is_changed_without_a_fit(router: Path) -> None:
    before = tiny.contents(router)
    told = run_json("policy", router, *PRICES, "--weight", "price=0.1", "--threshold", "0.4", "--default", "law")
    after = tiny.contents(router)
    assert {name for name in after if after[name] != before.get(name)} == {"router.json"} and len(after) == len(before)
    loaded = Router.load(router)
    costs = {"maths": {"price": 3}, "law": {"price": 0.5, "latency": 2}, "cooking": {}}
    assert loaded.policy == Policy(0.4, {"price": 0.1}, costs)
    assert loaded.default == told["default"] == "law"
    assert told == {"router": str(router), "default": "law", **loaded.policy.to_dict()}
    assert run_json("inspect", router)["policy"] == loaded.policy.to_dict()


def test_what_is_not_named_stays(router: Path) -> None:
    run("policy", router, *PRICES, "--weight", "price=0.1")
    run("policy", router, "--latency", "law=0", "--price", "law=1", "--threshold", "0.5")
    expected = Policy(0.5, {"price": 0.1}, {"maths": {"price": 3}, "law": {"price": 1}, "cooking": {}})
    assert Router.load(router).policy == expected
    shown = run("policy", router).stdout
    assert Router.load(router).policy == expected
    assert "price 0.1" in shown and "below 50.0 %" in shown and "30.0 %" in shown


def test_a_serving_copy_has_a_policy_too(tmp_path: Path, costs_file: Path) -> None:
    serving = tiny.router().save(tmp_path / "serving", serving=True)
    run("policy", serving, "--costs", costs_file, "--weight", "price=1")
    loaded = Router.load(serving)
    assert loaded.policy.costs["maths"].memory == 16 and loaded.route(PROMPT).penalties is not None


def test_options_are_added_to_the_file_s(router: Path, costs_file: Path) -> None:
    costs = run_json("policy", router, "--costs", costs_file, "--price", "maths=9")["costs"]
    assert costs["maths"] == {"price": 9.0, "latency": 0.0, "memory": 16.0} and costs["law"]["price"] == 1.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--price", "physics=1"], "costs of unknown experts physics: there are maths, law, cooking"),
        (["--price", "law=-1"], "the cost of 'law': price must be a finite number, at least 0, found -1.0"),
        (["--memory", "law=nan"], "memory must be a finite number, at least 0, found nan"),
        (["--weight", "prise=1"], "no cost 'prise': there are price, latency, memory"),
        (["--weight", "price=-1"], "price must be a finite number, at least 0, found -1.0"),
        (["--threshold", "1.5"], "threshold must be a confidence between 0 and 1, found 1.5"),
        (["--default", "physics"], "the default expert 'physics' is not among maths, law, cooking"),
        (["--costs", "nowhere.json"], "cannot read nowhere.json: No such file"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(router: Path, arguments: list[str], message: str) -> None:
    before = tiny.contents(router)
    assert message in complaint("policy", router, *arguments)
    assert tiny.contents(router) == before


@pytest.mark.parametrize("value", ["law", "law=", "=2", "law=cheap"])
def test_a_cost_is_a_name_and_a_number(router: Path, value: str) -> None:
    assert f"expected a name, = and a number, found '{value}'" in complaint("policy", router, "--price", value, code=2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[1]", 'must hold an object such as {"law": {"price": 2.0}}, found [1]'),
        ('{"law": 2}', "must hold an object"),
        ('{"law": {"cost": 2}}', "the cost of 'law': no cost 'cost': there are price, latency, memory"),
        ('{"law": {"price": "2"}}', "price must be a number, found '2'"),
        ('{"law": {"price": NaN}}', "found nan"),
    ],
)
def test_a_file_that_holds_no_costs_is_refused(router: Path, tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content, encoding="utf-8")
    assert message in complaint("policy", router, "--costs", path)


def test_there_is_no_policy_without_a_router(tmp_path: Path) -> None:
    assert "no router at" in complaint("policy", tmp_path / "nowhere", "--price", "law=1")
    assert not (tmp_path / "nowhere").exists()


# everybody has a price, or nobody -------------------------------------------------------------------------------


def test_an_expert_is_free_only_if_somebody_says_so(router: Path) -> None:
    before = tiny.contents(router)
    said = complaint("policy", router, "--price", "maths=2", "--weight", "price=0.1")
    assert "law, cooking would be free" in said and "--price '*=0'" in said and tiny.contents(router) == before
    run("policy", router, "--price", "maths=2", "--price", "*=0")
    costs = {"maths": {"price": 2}, "law": {}, "cooking": {}}
    assert Router.load(router).policy == Policy(costs=costs)
    run("policy", router, "--price", "maths=3")  # the others are free on purpose
    run("policy", router, "--price", "*=0.5", "--price", "law=1")  # those without a price, and no other
    assert [cost.price for cost in Router.load(router).policy.costs.values()] == [3, 1, 0.5]
    run("policy", router, "--price", "maths=0", "--price", "law=0", "--price", "cooking=0")
    assert "'price'" not in run("policy", router, "--latency", "law=2").stdout  # other costs may be partial


def test_fit_and_add_ask_for_the_prices_of_all(tmp_path: Path, texts: dict[str, Path]) -> None:
    folder, (maths, law, cooking) = tmp_path / "r", pairs(texts)
    said = complaint("fit", folder, maths, law, "--price", "maths=2")
    assert "law would be free" in said and not folder.exists()
    run("fit", folder, maths, law, "--price", "maths=2", "--price", "*=0", "-q", *quick())
    assert "cooking would be free" in complaint("add", folder, cooking)
    run("add", folder, cooking, "--price", "cooking=0", "-q")
    assert [cost.price for cost in Router.load(folder).policy.costs.values()] == [2, 0, 0]
    run("add", folder, "--merge", cooking.replace("cooking=", "law="), "-q")


def test_an_expert_may_be_called_a_star(tmp_path: Path, texts: dict[str, Path]) -> None:
    experts, prices = (f"*={texts['maths']}", f"law={texts['law']}"), ("--price", "*=2", "--price", "law=1")
    run("fit", tmp_path / "r", *experts, *prices, "-q", *quick())
    assert {name: cost.price for name, cost in Router.load(tmp_path / "r").policy.costs.items()} == {"*": 2, "law": 1}


# fit and add ----------------------------------------------------------------------------------------------------


def test_fit_and_add_take_costs(tmp_path: Path, texts: dict[str, Path], costs_file: Path) -> None:
    folder = tmp_path / "r"
    *first, last = pairs(texts)
    run("fit", folder, *first, "--costs", costs_file, "-q", *quick())
    run("add", folder, last, "--price", "cooking=0.1", "--latency", "maths=1", "-q")
    expected = {"maths": {"price": 2, "latency": 1, "memory": 16}, "law": {"price": 1.5}, "cooking": {"price": 0.1}}
    assert Router.load(folder).policy == Policy(costs=expected)
    run("remove", folder, "maths")
    assert set(Router.load(folder).policy.costs) == {"law", "cooking"}


def test_costs_are_checked_before_anything_is_counted(tmp_path: Path, router: Path, texts: dict[str, Path]) -> None:
    assert "unknown experts physics" in complaint("fit", tmp_path / "r", *pairs(texts), "--price", "physics=1")
    assert "found -1.0" in complaint("fit", tmp_path / "r", *pairs(texts), "--price", "law=-1")
    assert "unknown experts chess" in complaint("add", router, f"physics={texts['law']}", "--price", "chess=1")
    assert not (tmp_path / "r").exists()


# route and explain ----------------------------------------------------------------------------------------------


def test_route_shows_quality_cost_and_utility(router: Path) -> None:
    run("policy", router, *PRICES)
    decision = Router.load(router).route(PROMPT, weights={"price": 0.2})
    told = run_json("route", router, PROMPT, "--weight", "price=0.2")["ir3de"]
    assert told == {**json.loads(json.dumps(decision.to_dict())), "candidates": list(decision.candidates)}
    shown = run("route", router, PROMPT, "--weight", "price=0.2").stdout
    assert all(part in shown for part in ("quality", "cost", "utility", "price 3", "price 0.5, latency 2", "-60.0 %"))
    assert "utility" not in run("route", router, PROMPT).stdout
    assert "utility" in run("explain", router, PROMPT, "--weight", "price=0.2").stdout
    assert run_json("explain", router, PROMPT, "--weight", "price=0.2")["ranking"] == told["ranking"]


def test_weights_hold_for_many_prompts(router: Path, texts: dict[str, Path], tmp_path: Path) -> None:
    run("policy", router, *PRICES)
    out = tmp_path / "routed.jsonl"
    run("route", router, "--input", texts["maths"], "--output", out, "--weight", "price=1000")
    assert {json.loads(line)["ir3de"]["expert"] for line in out.read_text().splitlines()} == {"cooking"}


def test_weights_without_costs_are_remarked_on(router: Path) -> None:
    result = run("route", router, PROMPT, "--weight", "price=1")
    assert "no expert of this router has a cost" in result.stderr
    assert "no cost 'prise'" in complaint("route", router, PROMPT, "--weight", "prise=1", "-q")


def test_a_threshold_is_told_apart_from_a_prompt_without_tokens(router: Path) -> None:
    run("policy", router, "--threshold", "1")
    told = " ".join(run("route", router, PROMPT).stderr.split())
    assert "no expert is likely enough: none fits, and no default expert was named; the nearest is law" in told
    run("policy", router, "--default", "maths")
    assert "no expert is likely enough: it goes to maths, the default expert" in run("route", router, PROMPT).stderr
    assert "the prompt is empty" in run("route", router, "").stderr


# frontier -------------------------------------------------------------------------------------------------------


def test_eval_shows_the_frontier(router: Path, texts: dict[str, Path]) -> None:
    run("policy", router, *PRICES, "--weight", "price=0.1")
    told = run_json("eval", router, *pairs(texts), "--frontier")
    prompts = {name: path.read_text(encoding="utf-8").splitlines() for name, path in texts.items()}
    assert told["frontier"] == json.loads(json.dumps(measure_frontier(Router.load(router), prompts).to_dict()))
    shown = run("eval", router, *pairs(texts), "--frontier").stdout
    assert all(part in shown for part in ("Frontier", "← policy", "always maths", "an oracle", "price per prompt"))
    assert "frontier" not in run_json("eval", router, *pairs(texts))


def test_eval_takes_weights(router: Path, texts: dict[str, Path]) -> None:
    run("policy", router, *PRICES)
    report = run_json("eval", router, *pairs(texts), "--weight", "price=1000")
    assert report["precision"]["maths"] is None and report["precision"]["law"] is None  # cooking is free
    assert "give their weights" in complaint("eval", router, *pairs(texts), "--frontier")
    found = run_json("eval", router, *pairs(texts), "--frontier", "--weight", "latency=2")["frontier"]
    assert (found["unit"], found["weight"]) == ("latency", 2.0)


@pytest.mark.parametrize(
    ("name", "begins"),
    [("f.png", b"\x89PNG"), ("f.svg", b"<?xml"), pytest.param("new/f.pdf", b"%PDF", marks=pytest.mark.nightly)],
)
def test_the_frontier_is_drawn(router: Path, texts: dict[str, Path], tmp_path: Path, name: str, begins: bytes) -> None:
    pytest.importorskip("matplotlib")
    run("policy", router, *PRICES, "--weight", "price=1")
    assert "drawn in" in run("eval", router, *pairs(texts), "--frontier-plot", tmp_path / name).stdout
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_a_picture_has_a_format(router: Path, texts: dict[str, Path]) -> None:
    assert "does not end in .png, .svg or .pdf" in complaint(
        "eval", router, *pairs(texts), "--frontier-plot", "f.bmp", code=2
    )


def test_help_says_what_a_frontier_takes() -> None:
    assert "at every weight; holds all decisions in memory" in " ".join(run("eval", "--help").stdout.split())


def test_without_costs_there_is_no_frontier(router: Path, texts: dict[str, Path]) -> None:
    assert "all experts cost the same" in complaint("eval", router, *pairs(texts), "--frontier")


def test_without_matplotlib_the_extra_is_named(router: Path, texts: dict[str, Path], tmp_path: Path) -> None:
    run("policy", router, "--price", "law=1", "--price", "*=0")
    script = "import sys\nsys.modules['matplotlib'] = None\nfrom ir3de.cli import main\nmain()"
    arguments = ["eval", router, *pairs(texts), "--frontier-plot", tmp_path / "f.png"]
    command, environment = tiny.python_command(script, *arguments)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "[plots]'" in done.stderr and done.stdout == ""
    assert not (tmp_path / "f.png").exists()
