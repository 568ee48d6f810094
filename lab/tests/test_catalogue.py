"""The catalogue of results: digests that follow the code and nothing else, and results that say when they are old."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import generate_stale_marks
import pages
from ir3de.cli import cli
from ir3de.errors import ArtifactError, InputError
from ir3de_lab.catalogue import (
    FRESH,
    STALE,
    UNKNOWN,
    benchmarks,
    describe,
    entries,
    find_standings,
    judge,
    published,
    recording,
    renewing,
)
from ir3de_lab.catalogue.entries import NEEDS
from ir3de_lab.catalogue.sources import digest_data, digest_source, find_source, strip_code
from ir3de_lab.cli import bench
from ir3de_lab.cli.shared import keep

ROOT = Path(__file__).parents[2]

CODE = '''
"""A module."""
import math  # for the root

class Circle:
    """A circle."""
    def area(self, radius: float) -> float:
        """Its area."""
        # the usual formula
        return math.pi * radius ** 2  # in the same unit
TEXT = "# not a comment"
'''


def test_a_comment_or_a_docstring_changes_no_digest() -> None:
    other = CODE.replace("A circle.", "A round thing.\n\n    Of any size.").replace("# the usual formula", "")
    other = other.replace("  # in the same unit", "").replace('"""A module."""\n', "")
    assert strip_code(CODE) == strip_code(other)
    assert "# not a comment" in strip_code(CODE)


@pytest.mark.parametrize(
    ("before", "after"),
    [("** 2", "** 3"), ("# not a comment", "# a comment"), ("import math", "import cmath as math"), ("area", "space")],
)
def test_a_change_of_the_code_changes_the_digest(before: str, after: str) -> None:
    assert strip_code(CODE) != strip_code(CODE.replace(before, after))


def test_a_definition_on_the_line_of_its_docstring_is_kept() -> None:
    assert strip_code('class Error(Exception): "What went wrong."\n') == "class Error(Exception):\n"


def test_the_digest_of_data_follows_names_and_bytes(tmp_path: Path) -> None:
    for name, files in {"a": {"x": "1"}, "b": {"y": "1"}, "c": {"x": "2"}, "d": {"x": "1"}}.items():
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
    digests = [digest_data(tmp_path / name) for name in "abcd"]
    assert digests[0] == digests[3]
    assert len(set(digests)) == 3


def test_every_source_of_the_catalogue_exists() -> None:
    for one in benchmarks().values():
        assert one.sources
        for source in one.sources:
            assert find_source(source).exists()


def test_a_source_that_does_not_exist_is_named() -> None:
    with pytest.raises(InputError, match=r"no module 'ir3de\.nonsense'.*catalogue\.toml"):
        find_source("ir3de.nonsense")


def test_every_result_has_an_entry_and_every_entry_a_page() -> None:
    assert {path.name for path in (ROOT / "results").glob("*.json")} <= set(published())
    for one in published().values():
        assert (ROOT / "docs" / one.page).is_file(), one.file
        assert set(one.needs) <= set(NEEDS), one.file


def test_every_command_of_the_catalogue_is_a_command() -> None:
    for one in published().values():
        program, *arguments = shlex.split(one.command.split(";")[-1].strip())
        if program == "ir3de":
            assert arguments[0] == "bench"
            assert arguments[1] in bench.commands, one.command
            assert one.keep_because or arguments[1] == one.benchmark.name.split()[0], one.file


def test_every_command_that_keeps_figures_is_in_the_catalogue() -> None:
    saving = {name for name, command in bench.commands.items() if any("--save" in one.opts for one in command.params)}
    assert saving - set(benchmarks()) == {"change-costs"}  # its figures are on no page


def test_a_result_is_fresh_until_one_of_its_sources_changes(tmp_path: Path) -> None:
    recorded = describe(benchmarks()["languages"])
    assert judge(recorded) == (FRESH, ())
    recorded["sources"]["ir3de.kernel"] = "0" * 16
    assert judge(recorded) == (STALE, ("ir3de.kernel",))
    assert judge(None) == (UNKNOWN, ())
    assert judge({"benchmark": "gone", "sources": {}}) == (UNKNOWN, ())


def test_a_source_that_the_catalogue_gained_makes_a_result_stale() -> None:
    recorded = describe(benchmarks()["languages"])
    del recorded["sources"]["ir3de.routing"]
    assert judge(recorded) == (STALE, ("ir3de.routing",))


def test_changed_data_makes_a_result_stale_where_data_is_named(tmp_path: Path) -> None:
    (tmp_path / "intents").mkdir()
    (tmp_path / "intents" / "train.jsonl").write_text("{}")
    recorded = describe(benchmarks()["living"], tmp_path)
    assert recorded["data"] == {"intents": digest_data(tmp_path / "intents")}
    other = {**recorded, "data": {"intents": "0" * 16}}
    assert judge(other) == (FRESH, ())
    assert judge(other, tmp_path) == (STALE, ("data/intents",))


def test_a_command_records_what_it_measures(tmp_path: Path) -> None:
    @click.command(name="languages")
    def measure() -> None:
        keep(tmp_path / "languages.json", {"figures": []})

    assert CliRunner().invoke(measure).exit_code == 0
    kept = json.loads((tmp_path / "languages.json").read_text(encoding="utf-8"))["measures"]
    assert kept["benchmark"] == "languages"
    assert kept["sources"] == {one: digest_source(one) for one in benchmarks()["languages"].sources}
    assert [one.state for one in find_standings(tmp_path)] == [FRESH]


def test_figures_that_hold_parts_of_an_older_run_stay_as_old_as_these(tmp_path: Path) -> None:
    @click.command(name="languages")
    def measure() -> None:
        keep(tmp_path / "languages.json", {"figures": [], "measures": None})

    assert CliRunner().invoke(measure).exit_code == 0
    assert [one.state for one in find_standings(tmp_path)] == [UNKNOWN]


def _results(folder: Path, **documents: Any) -> Path:
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(document))
    return folder


def test_stale_lists_and_counts(tmp_path: Path) -> None:
    fresh = {"measures": describe(benchmarks()["languages"])}
    old = {"measures": {**fresh["measures"], "sources": {}}}
    folder = _results(tmp_path, languages=fresh, speed={**old, "benchmark": "speed"}, robustness_before={})
    done = CliRunner().invoke(cli, ["bench", "stale", "--results", str(folder), "--json"])
    found = {one["file"]: one["state"] for one in json.loads(done.output)["results"]}
    assert found == {"languages.json": "fresh", "speed.json": "stale", "robustness_before.json": "kept"}
    assert CliRunner().invoke(cli, ["bench", "stale", "--results", str(folder), "--check"]).exit_code == 1
    (folder / "speed.json").unlink()
    assert CliRunner().invoke(cli, ["bench", "stale", "--results", str(folder), "--check"]).exit_code == 0


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["bench", "stale", "--results", str(tmp_path / "nowhere")])
    assert done.exit_code == 1
    assert "there is no folder" in done.output and "--results" in done.output


@pytest.mark.parametrize("name", ["prompts.jsonl.xz", "ir3de.json"])
def test_a_damaged_file_of_a_setting_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / "clm" / "choices" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half of it")
    with pytest.raises(ArtifactError, match=r"is damaged .* Make it again"):
        find_standings(tmp_path)


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    (tmp_path / "speed.json").write_text("{")
    with pytest.raises(ArtifactError, match=r"speed\.json is damaged.*Make it again"):
        find_standings(tmp_path)


MAKE = """
import sys
from pathlib import Path
from ir3de_lab import files
from ir3de_lab.catalogue.recording import record
if sys.argv[2] == "broken":
    sys.exit("the texts are gone")
files.write_json(Path(sys.argv[1]), record("small"))
"""
SMALL = """
groups = {}
benchmarks.small.sources = ["ir3de.errors"]
results."a.json" = { benchmark = "small", command = "python make.py results/a.json well", page = "index.md" }
results."b.json" = { benchmark = "small", command = "python make.py results/b.json broken", page = "index.md" }
results."c.json" = { benchmark = "small", command = "ir3de bench c --data DIR", page = "index.md", needs = ["data"] }
results."d.json" = { benchmark = "small", command = "ir3de bench d", page = "index.md", needs = ["teacher"] }
"""


@pytest.fixture
def _small_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    _results(tmp_path / "results", a={}, b={}, c={}, d={})
    (tmp_path / "make.py").write_text(MAKE)
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "sitecustomize.py").write_text(
        "from pathlib import Path\nfrom ir3de_lab.catalogue import entries\n"
        f"entries.CATALOGUE = Path({str(tmp_path / 'small.toml')!r})\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where no encoder is installed
    monkeypatch.setattr(entries, "CATALOGUE", tmp_path / "small.toml")
    _forget()
    yield
    _forget()


def _forget() -> None:
    for cached in (entries._read, entries.benchmarks, entries.published):
        cached.cache_clear()


@pytest.mark.usefixtures("_small_catalogue")
def test_renew_makes_what_is_stale_tells_what_failed_and_what_it_leaves_out() -> None:
    done = CliRunner().invoke(cli, ["bench", "renew", "--json"])
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert [one["file"] for one in told["renewed"]] == ["a.json"]
    assert [why.strip() for why in told["failed"].values()] == ["the texts are gone"]
    needs = ["the benchmark texts (--data)", "the encoder minilm-l6 (ir3de encoder install minilm-l6)"]
    assert list(told["left out"].values()) == [f"needs {need}" for need in needs]
    assert {one.file: one.state for one in find_standings(Path("results"))} == {
        "a.json": FRESH, "b.json": UNKNOWN, "c.json": UNKNOWN, "d.json": UNKNOWN,
    }  # fmt: skip
    assert not any(one["file"] == "a.json" for one in json.loads(_plan())["renewed"])


def _plan() -> str:
    return CliRunner().invoke(cli, ["bench", "renew", "--plan", "--json"]).stdout


@pytest.mark.usefixtures("_small_catalogue")
def test_a_plan_changes_nothing() -> None:
    before = Path("results/a.json").read_bytes()
    assert [one["file"] for one in json.loads(_plan())["renewed"]] == ["a.json", "b.json"]
    assert Path("results/a.json").read_bytes() == before


def test_a_busy_machine_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewing.os, "getloadavg", lambda: (99.0, 99.0, 99.0))
    assert not renewing.wait_for_quiet(patience_s=0)
    monkeypatch.setattr(renewing.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    assert renewing.wait_for_quiet(patience_s=0)


def test_places_are_filled_in() -> None:
    command = 'ir3de bench alternatives --data DIR --encoder FOLDER --router "a b" --save results/x.json'
    found = renewing.fill_in(command, {"data": Path("my texts"), "encoder": "minilm"})
    assert found[:3] == [sys.executable, "-m", "ir3de"]
    assert found[3:7] == ["bench", "alternatives", "--data", "my texts"]
    assert found[7:] == ["--encoder", "minilm", "--router", "a b", "--save", "results/x.json"]


def test_marks_stand_behind_stale_results_and_no_others() -> None:
    page = "[a](../results/a.json), [b](results/b.json) and `results/a.json`"
    marked = pages.mark(page, ["a.json"])
    assert marked == f"[a](../results/a.json){pages.MARK}, [b](results/b.json) and `results/a.json`"
    assert (
        pages.mark(marked, ["b.json"])
        == f"[a](../results/a.json), [b](results/b.json){pages.MARK} and `results/a.json`"
    )
    assert pages.mark(marked) == page


def test_pages_with_wrong_marks_are_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("[a](results/a.json)", encoding="utf-8")
    (tmp_path / "docs" / "page.md").write_text(f"[b](../results/b.json){pages.MARK}", encoding="utf-8")
    wrong = generate_stale_marks.find_wrong(tmp_path, ["a.json", "b.json"])
    assert wrong == {tmp_path / "README.md": f"[a](results/a.json){pages.MARK}"}


def test_a_result_whose_code_changed_while_it_was_measured_records_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path / "before.json", {"figure": 1}, "signs")
    measures = json.loads((tmp_path / "before.json").read_text())["measures"]
    assert measures["took_s"] > 0 and "Python 3." in measures["machine"]
    monkeypatch.setattr(recording, "STARTED_AT", 0.0)
    keep(tmp_path / "after.json", {"figure": 1}, "signs")
    assert json.loads((tmp_path / "after.json").read_text()) == {"figure": 1}
    assert "changed while this ran" in capsys.readouterr().err


def test_what_a_benchmark_would_leave_out_without_a_program_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway is measured beside nginx only where that is installed: elsewhere its published column would go."""
    assert "nginx" in entries.published()["gateway.json"].needs
    monkeypatch.setattr(renewing, "NGINX_PATH", str(tmp_path))
    assert renewing.find_missing(("nginx",), {}) == "needs nginx (apt-get install nginx-light)"
    (tmp_path / "nginx").touch(0o755)
    assert renewing.find_missing(("nginx",), {}) is None
