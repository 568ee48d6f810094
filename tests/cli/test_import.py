"""ir3de import: routes of other routers, and the way from their files to a router that knows its own utterances."""

import csv
import json
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from commands import ROOT, complaint, quick, run, run_json, wrong_call

pytestmark = pytest.mark.usefixtures("plain_terminal")

OTHERS = ROOT / "tests" / "corpora" / "routes_of_others"
ROUTES = [
    {"name": "law", "utterances": ["Is this contract void?", "Can they sue me?"], "description": "courts, it's law"},
    {"name": "coding", "utterances": ["Why does my loop\nnever end?", 'Print "a, b".']},
]
REAL = """
import sys
from semantic_router import DecisionRouter, Merge, Route
from semantic_router.decision_models import TypeSafeDecisionModel

routes = [
    Route(name="travel", utterances=["Book a flight to Rome.", "Which hotel is near the airport?"]),
    Route(name="health", utterances=["My knee hurts after running.", "Which vitamins help against colds?"]),
    Route(name="money", description="banks, loans, taxes, savings and credit cards", confidence_threshold=0.4),
]
router = DecisionRouter(model=TypeSafeDecisionModel(api_key="none"), routes=routes)
router.to_json(sys.argv[1])
Merge(routers=[router, router]).to_yaml(sys.argv[2])
"""


def routes_file(folder: Path, routes: object = ROUTES) -> Path:
    path = folder / "routes.json"
    path.write_text(json.dumps(routes), encoding="utf-8")
    return path


def fit_and_route(imported: dict[str, object], folder: Path) -> None:
    """Run the command that was printed, and see that every utterance goes to its own route."""
    program, command, router, *arguments = shlex.split(str(imported["fit"]))
    assert (program, command, router) == ("ir3de", "fit", "router")
    run("fit", folder / "router", *arguments, "--no-proof")
    if imported["file"] is not None:
        rows = [json.loads(line) for line in Path(str(imported["file"])).read_text("utf-8").splitlines()]
        assert len(rows) == imported["rows"] > 0
        for row in rows:
            assert run_json("route", folder / "router", row["text"])["ir3de"]["expert"] == row["expert"], row
    described = {one["name"]: one["description"] for one in imported["experts"] if not one["utterances"]}  # type: ignore[attr-defined]
    for name, words in described.items():
        assert run_json("route", folder / "router", words)["ir3de"]["expert"] == name


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("semantic-router-0.3.3.json", ()),
        pytest.param("semantic-router-1.1.1.yaml", (), marks=pytest.mark.nightly),
        pytest.param("litellm-router.json", ("--from", "litellm"), marks=pytest.mark.nightly),
        ("litellm-config.yaml", ()),
        ("vllm-sr-0.4.yaml", ()),
        pytest.param("vllm-sr-0.1.yaml", (), marks=pytest.mark.nightly),
    ],
)
def test_from_a_file_of_others_to_the_right_route(tmp_path: Path, name: str, options: tuple[str, ...]) -> None:
    fit_and_route(run_json("import", OTHERS / name, tmp_path / "routes.jsonl", *options), tmp_path)


@pytest.mark.clients
def test_from_what_semantic_router_writes_now_to_the_right_route(tmp_path: Path) -> None:
    if find_spec("semantic_router") is None:
        pytest.skip("semantic-router is not installed")
    files = tmp_path / "router.json", tmp_path / "merge.yaml"
    subprocess.run([sys.executable, "-c", REAL, *map(str, files)], check=True, capture_output=True)
    imported = [run_json("import", path, path.with_suffix(".jsonl")) for path in files]
    assert [one["experts"] for one in imported[:1]] == [one["experts"] for one in imported[1:]]
    fit_and_route(imported[0], tmp_path)


@pytest.mark.parametrize(
    "name",
    [pytest.param("vllm-sr-0.4.yaml", marks=pytest.mark.nightly), "vllm-sr-0.1.yaml", "litellm-config.yaml"],
)
def test_the_gateway_accepts_the_configuration_that_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if find_spec("ir3de_gateway") is None:
        pytest.skip("ir3de-gateway is not installed")
    monkeypatch.chdir(tmp_path)
    imported = run_json("import", OTHERS / name, "routes.jsonl")
    run(*shlex.split(imported["fit"])[1:], "--no-proof")
    run(*shlex.split(imported["config"])[1:])
    checked = run_json("config", "validate")
    assert checked["ok"] and not checked["findings"]
    expected = [(one["name"], one["model"], one["base_url"]) for one in imported["experts"]]
    assert [(one["name"], one["model"], one["base_url"]) for one in checked["experts"]] == expected


def test_experts_without_a_model_or_an_address_get_one_to_fill_in(tmp_path: Path) -> None:
    domains = [{"name": "law", "description": "courts"}, {"name": "maths", "description": "proofs"}]
    decision = {"name": "a", "rules": {"type": "domain", "name": "law"}, "modelRefs": [{"model": "m"}]}
    source = routes_file(tmp_path, {"signals": {"domains": domains}, "decisions": [decision]})
    assert shlex.split(run_json("import", source, tmp_path / "a.jsonl")["config"])[5:] == [
        "--expert", "law=http://127.0.0.1:8001/v1#m", "--expert", "maths=http://127.0.0.1:8002/v1"
    ]  # fmt: skip


def test_people_see_the_routes_what_was_left_out_and_the_next_command(tmp_path: Path) -> None:
    shown = run("import", OTHERS / "semantic-router-0.3.3.json", tmp_path / "routes.jsonl").stdout
    assert shown.startswith("3 routes of semantic-router\n\nexpert    utterances   description")
    assert "\ncoding             4   programming, debugging and version control\n" in shown
    assert "\nleft out\n–  the encoder openai text-embedding-3-small: " in shown
    assert "12 rows saved to" in shown
    assert shown.endswith(
        f"next: ir3de fit router {tmp_path / 'routes.jsonl'} --label expert \\\n"
        "    --describe 'law=contracts, courts, tenancy and wills' \\\n"
        "    --describe 'coding=programming, debugging and version control'\n"
    )
    quiet = run("import", OTHERS / "semantic-router-0.3.3.json", tmp_path / "routes.jsonl", "--force", "-q").stdout
    assert " ".join(quiet.split()) == f"12 rows saved to {tmp_path / 'routes.jsonl'} 858 B"


def test_both_formats_hold_the_same_rows(tmp_path: Path) -> None:
    source = routes_file(tmp_path)
    expected = [(text, one["name"]) for one in ROUTES for text in one["utterances"]]
    run("import", source, tmp_path / "new" / "a.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "new" / "a.jsonl").read_text("utf-8").splitlines()]
    assert [(row["text"], row["expert"]) for row in rows] == expected
    run("import", source, tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        assert [(row["text"], row["expert"]) for row in csv.DictReader(file)] == expected
    fits = [run_json("import", source, tmp_path / name, "--force")["fit"] for name in ("new/a.jsonl", "a.csv")]
    for number, fit in enumerate(fits):
        run("fit", tmp_path / f"router{number}", *shlex.split(fit)[3:], *quick(), "--no-proof")
    routed = [run("inspect", tmp_path / f"router{number}", "--json").stdout for number in range(2)]
    assert json.loads(routed[0])["experts"] == json.loads(routed[1])["experts"]


def test_descriptions_alone_make_no_file(tmp_path: Path) -> None:
    imported = run_json("import", OTHERS / "vllm-sr-0.1.yaml", tmp_path / "routes.jsonl")
    assert imported["file"] is None and not (tmp_path / "routes.jsonl").exists()
    assert shlex.split(imported["fit"])[:6] == ["ir3de", "fit", "router", "biology", "computer science", "economics"]
    shown = run("import", OTHERS / "vllm-sr-0.1.yaml", tmp_path / "routes.jsonl", "-q").stdout
    assert "was not written: there are descriptions, and no utterances" in " ".join(shown.split())


def test_what_exists_is_kept_unless_it_may_be_replaced(tmp_path: Path) -> None:
    source, target = routes_file(tmp_path), tmp_path / "routes.jsonl"
    target.write_text("mine")
    assert "exists already: choose another name, or replace it with --force" in complaint("import", source, target)
    assert target.read_text() == "mine"
    run("import", source, target, "--force")
    assert target.read_text().startswith('{"text": "Is this contract void?", "expert": "law"}\n')


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "is empty"),
        ('{"routes": []}', "found no routes"),
        (json.dumps([*ROUTES, {"name": "law", "utterances": ["x"]}]), "two routes have the name 'law'"),
        (json.dumps([*ROUTES, {"name": "a", "utterances": ["Can they sue me?"]}]), "is in 'law' and in 'a'"),
        (json.dumps([{"name": "a=b", "utterances": ["x"]}]), "the name 'a=b' has a ="),
    ],
)
def test_after_an_error_nothing_is_written_or_changed(tmp_path: Path, content: str, expected: str) -> None:
    (tmp_path / "routes.json").write_text(content)
    (tmp_path / "kept.jsonl").write_text("mine")
    assert expected in complaint("import", tmp_path / "routes.json", tmp_path / "new" / "routes.jsonl")
    assert expected in complaint("import", tmp_path / "routes.json", tmp_path / "kept.jsonl", "--force")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.jsonl", "routes.json"]
    assert (tmp_path / "kept.jsonl").read_text() == "mine"


def test_wrong_calls_are_explained(tmp_path: Path) -> None:
    source = routes_file(tmp_path)
    assert "does not end in .jsonl or .csv" in wrong_call("import", source, tmp_path / "routes.txt")
    same = tmp_path / "same.jsonl"
    same.write_text(json.dumps(ROUTES))
    assert "SOURCE and OUT are the same file" in wrong_call("import", same, same, "--force")
    assert json.loads(same.read_text()) == ROUTES
    assert "No such file" in complaint("import", tmp_path / "none.json", tmp_path / "routes.jsonl")
