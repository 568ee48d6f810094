"""One labelled file: fit, add, eval, calibrate and collect take it, and give what files by expert give."""

import gzip
import json
from pathlib import Path
from shutil import copytree

import pytest

from commands import complaint, quick, run, run_json, wrong_call
from ir3de import Router
from ir3de.cli.formats import line
from ir3de.cli.output import Output, hint
from ir3de.corpora import examples as demo
from ir3de.statistics.files import load_statistics

pytestmark = pytest.mark.usefixtures("plain_terminal")

PROMPTS = {name: texts[:8] for name, texts in demo.prompts().items() if name in ("law", "coding", "history")}
ROWS = [  # one of each expert in turn, as a shuffled file has them
    {"prompt": texts[place], "team": name, "source": f"site {place % 3}"}
    for place in range(8)
    for name, texts in PROMPTS.items()
]


def as_csv(rows: list[dict[str, str]], separator: str = ",") -> str:
    quoted = [separator.join('"' + value.replace('"', '""') + '"' for value in row.values()) for row in rows]
    return "\n".join([separator.join(rows[0]), *quoted]) + "\n"


def as_json_lines(rows: list[dict[str, str]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rows as labelled files, and as files by expert."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "train.csv").write_text(as_csv(ROWS))
    (folder / "train.jsonl.gz").write_bytes(gzip.compress(as_json_lines(ROWS).encode()))
    (folder / "experts").mkdir()
    for name in PROMPTS:
        own = as_json_lines([row for row in ROWS if row["team"] == name])
        (folder / "experts" / f"{name}.jsonl").write_text(own)
    return folder


@pytest.fixture(scope="module")
def apart(data: Path) -> Path:
    """The router that is fitted from a file of each expert."""
    pairs = [f"{name}={data / 'experts' / name}.jsonl" for name in sorted(PROMPTS)]
    run("fit", data / "apart", *pairs, *quick())
    return data / "apart"


def describe(router: Path) -> object:
    """What makes two routers the same: their experts' statistics and samples, and how they decide."""
    loaded = Router.load(router)
    decisions = [loaded.route(text).to_dict() for texts in PROMPTS.values() for text in texts]
    return {name: own.digest for name, own in loaded.statistics.items()}, loaded.experts, decisions


def list_digests(files: list[dict[str, str]]) -> dict[str, str]:
    """The hash of what was counted for each expert, its sample and the sources in it among that."""
    return {one["name"]: one["digest"] for one in files}


def test_a_labelled_file_gives_the_router_that_files_by_expert_give(data: Path, apart: Path, tmp_path: Path) -> None:
    told = run_json("fit", tmp_path / "r", data / "train.csv", "--label", "team", *quick())
    assert [(one["name"], one["prompts"]) for one in told["counted"]] == [(name, 8) for name in sorted(PROMPTS)]
    assert describe(tmp_path / "r") == describe(apart)


@pytest.mark.parametrize(
    "text", [None, as_csv(ROWS), as_csv(ROWS, "\t"), as_json_lines(ROWS)], ids=["jsonl.gz", "csv", "tsv", "jsonl"]
)
def test_files_and_standard_input_of_every_kind_are_counted_alike(
    text: str | None, data: Path, apart: Path, tmp_path: Path
) -> None:
    source = data / "train.jsonl.gz" if text is None else "-"
    call = ("collect", tmp_path / "s", source, "--label", "team", "--text", "prompt", "--keep-sample", *quick()[2:])
    own = {name: own.digest for name, own in Router.load(apart).statistics.items()}
    assert list_digests(run_json(*call, stdin=text)["files"]) == own


def test_options_of_counting_mean_the_same(data: Path, tmp_path: Path) -> None:
    options = ("--cap", "9", "--clip", "1", "--subsample", "2", "--window", "8", "--min-count", "2")
    told = run_json("collect", tmp_path / "s", data / "train.csv", "--label", "team", *options)
    for name in PROMPTS:
        run("collect", tmp_path / f"{name}.stats", data / "experts" / f"{name}.jsonl", *options)
        assert list_digests(told["files"])[name] == load_statistics(tmp_path / f"{name}.stats").digest


def test_eval_and_calibrate_take_the_same_rows(data: Path, apart: Path) -> None:
    pairs = [f"{name}={data / 'experts' / name}.jsonl" for name in sorted(PROMPTS)]
    table = (data / "train.csv", "--label", "team")
    for command, options in (("eval", ("--errors", "3")), ("calibrate", ("--dry-run", "--error", "0.2"))):
        told = [run_json(command, apart, *source, *options) for source in (pairs, table, (data / "experts",))]
        for one in told:
            one.pop("seconds", None)
        assert told[0] == told[1] == told[2]


def test_add_takes_a_labelled_file(data: Path, apart: Path, tmp_path: Path) -> None:
    router = Path(copytree(apart, tmp_path / "r"))
    (tmp_path / "new.csv").write_text("team,text\nlaw,Is it void?\ncoding,Sort a list.\n")
    run("add", router, "--merge", tmp_path / "new.csv", "--label", "team")
    assert [own.prompts for own in Router.load(router).statistics.values()] == [9, 8, 9]
    assert "'coding' is an expert already" in complaint("add", router, tmp_path / "new.csv", "--label", "team")


def test_collect_writes_one_file_per_label_and_fit_takes_the_folder(data: Path, apart: Path, tmp_path: Path) -> None:
    call = ("collect", tmp_path / "s", data / "train.csv", "--label", "team", "--keep-sample", *quick()[2:])
    told = run_json(*call)
    assert [Path(one["file"]).name for one in told["files"]] == [f"{name}.stats" for name in sorted(PROMPTS)]
    assert "--force" in complaint(*call)
    assert "3 files saved to" in run(*call, "--force").stdout
    run("fit", tmp_path / "r", tmp_path / "s", *quick())  # a folder of experts
    assert describe(tmp_path / "r") == describe(apart)


def test_collect_refuses_what_cannot_be_files(data: Path, tmp_path: Path) -> None:
    label = data / "train.csv", "--label", "team"
    assert "OUT is a folder" in wrong_call("collect", tmp_path / "law.stats", *label)
    assert "--id names one contribution" in wrong_call("collect", tmp_path / "s", *label, "--id", "mine")
    for names, message in ((("C/C++", "law"), "cannot be the name of a file"), (("Law", "law"), "one file on many")):
        (tmp_path / "t.csv").write_text("prompt,team\n" + "".join(f"Is it void?,{name}\n" for name in names))
        assert message in complaint("collect", tmp_path / "s", tmp_path / "t.csv", "--label", "team")
    assert not (tmp_path / "s").exists()


def test_broken_rows_are_skipped_only_as_far_as_allowed(tmp_path: Path) -> None:
    rows = [*ROWS, {"prompt": "Whose is this?", "team": "", "source": ""}]
    path = tmp_path / "t.csv"
    path.write_text(as_csv(rows))
    call = ("collect", tmp_path / "s", path, "--label", "team", "--force")
    refused = complaint(*call).rstrip()
    assert f"{path}:{len(rows) + 1}: the row has no label, 'team' is empty" in refused
    assert refused.endswith(
        f"To skip this row: ir3de collect {tmp_path / 's'} {path} --label team --force --skip-bad 1"
    )
    told = " ".join(run(*call, "--skip-bad", "1").stderr.split())  # long lines are broken
    assert f"1 of {len(rows)} records were skipped" in told and "the row has no label" in told
    path.write_text(as_csv([*rows, rows[-1]]))
    assert "no more than 1 may be skipped" in complaint(*call, "--skip-bad", "1")


def test_a_row_without_a_label_is_told_where_the_prompt_has_an_unusual_column(tmp_path: Path) -> None:
    rows = [{"title": row["prompt"], "team": row["team"]} for row in ROWS]
    path = tmp_path / "t.csv"
    path.write_text(as_csv([*rows, {"title": "Whose?", "team": ""}, {"title": "And whose is this?", "team": " "}]))
    told = complaint("fit", tmp_path / "r", path, "--label", "team").rstrip()
    assert f"{path}:{len(rows) + 2}: the row has no label" in told
    assert "To skip the 2 rows that cannot be read: ir3de fit" in told and told.endswith("--label team --skip-bad 2")


@pytest.mark.parametrize("command", ["eval", "calibrate", "report"])
def test_what_measures_skips_broken_rows_as_well(
    command: str, data: Path, apart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [*ROWS, {"prompt": "Whose is this?", "team": "", "source": ""}]
    (tmp_path / "t.csv").write_text(as_csv(rows))
    router = Path(copytree(apart, tmp_path / "r"))
    more = ["--error", "0.5"] if command == "calibrate" else []
    call = (command, router, "t.csv", *more, "--label", "team")
    assert complaint(*call).rstrip().endswith("--label team --skip-bad 1")
    assert f"1 of {len(rows)} records were skipped" in " ".join(run(*call, "--skip-bad", "1").stderr.split())
    assert "rows of a file with --label" in wrong_call(command, router, "law=t.csv", "--skip-bad", "1")
    if command == "report":
        assert "t.csv --label team --skip-bad 1 -o report.html" in (tmp_path / "report.html").read_text()


def test_described_experts_stand_beside_labels(data: Path, tmp_path: Path) -> None:
    words = ("--describe", "cooking=recipes, baking", "--describe", "law=contracts, courts")
    run("fit", tmp_path / "r", data / "train.csv", "cooking", "--label", "team", *words, *quick(), "--no-sample")
    assert set(Router.load(tmp_path / "r").experts) == {"cooking", *PROMPTS}


# rows that say the same twice, or contradict each other -------------------------------------------------------------


@pytest.fixture
def repeating(tmp_path: Path) -> Path:
    """The rows, the first of them three times, and the second one under all three labels."""
    rows = [*ROWS, ROWS[0], ROWS[0], *({**ROWS[1], "team": name} for name in PROMPTS if name != ROWS[1]["team"])]
    (tmp_path / "t.csv").write_text(as_csv(rows))
    return tmp_path / "t.csv"


def test_prompts_with_two_labels_and_duplicates_are_told_and_the_fit_goes_on(repeating: Path, tmp_path: Path) -> None:
    call = ("fit", tmp_path / "r", repeating, "--label", "team", *quick(), "--no-proof", "--force")
    told = " ".join(run(*call).stderr.split())
    first, second = (" ".join(row["prompt"].split())[:40] for row in ROWS[:2])
    assert f"1 prompt has more than one label: “{second}" in told and "is under coding, history and law." in told
    assert f"2 rows repeat an earlier row with the same label: “{first}" in told
    assert f"is there 3 times under {ROWS[0]['team']}." in told
    repeats = run_json(*call)["repeats"]
    assert (repeats["duplicates"], repeats["conflicts"]) == (2, 1)
    assert repeats["duplicate_examples"] == [{"text": ROWS[0]["prompt"], "label": ROWS[0]["team"], "rows": 3}]
    assert repeats["conflict_examples"] == [{"text": ROWS[1]["prompt"], "labels": sorted(PROMPTS)}]
    assert Router.load(tmp_path / "r").experts == tuple(sorted(PROMPTS))


def test_a_clean_file_is_not_warned_about(data: Path, tmp_path: Path) -> None:
    call = ("fit", tmp_path / "r", data / "train.csv", "--label", "team", *quick(), "--no-proof")
    result = run(*call)
    assert result.stderr == "" and "repeat" not in result.stdout
    assert run_json(*call, "--force")["repeats"]["conflicts"] == 0


# a column of which every row has its own value -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "wrong", "right"),
    [
        ("prompt team", "--label prompt", "--label team"),
        ("title team", "--label title", "--label team"),
        ("title team", "--label title --text team", "--label team --text title"),
        ("id title team", "--label title", "--label team --text title"),
        ("id title team", "--label id --text title", "--label team --text title"),
        ("id prompt kind", "--label id", "--label kind"),
    ],
)
def test_a_column_in_which_every_row_differs_is_no_label(
    columns: str, wrong: str, right: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = columns.split()
    rows = [dict(zip(names, (*[str(at)] * (len(names) - 2), row["prompt"], row["team"]), strict=True))
            for at, row in enumerate(ROWS)]  # fmt: skip
    Path("t.csv").write_text(as_csv(rows))
    told = run("fit", "r", "t.csv", *wrong.split(), code=2).stderr.splitlines()
    assert f"  ir3de fit r t.csv {right}" in told, told
    assert not Path("r").exists()


@pytest.mark.usefixtures("here")
def test_every_row_may_be_an_expert_of_its_own_if_that_is_said() -> None:
    told = run("fit", "r", "train.csv", "--label", "prompt", "--text", "team", code=2).stderr
    assert "the column 'prompt' would make 24 experts of 24 rows" in told and "Did you mean the column 'team'" in told
    assert told.splitlines()[-1] == "  ir3de fit r train.csv --label prompt --text team --unique-labels"
    run(*told.splitlines()[-1].split()[1:], *quick())
    assert len(Router.load("r").experts) == 24


def test_few_rows_with_a_label_each_are_taken(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(as_csv([{"prompt": row["prompt"], "team": f"team {at}"} for at, row in
                                            enumerate(ROWS[:6])]))  # fmt: skip
    run("fit", tmp_path / "r", tmp_path / "t.csv", "--label", "team", *quick())
    assert len(Router.load(tmp_path / "r").experts) == 6


# hints --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def here(data: Path, apart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder as a user has it: train.csv, texts of two experts, and a router."""
    (tmp_path / "train.csv").write_text((data / "train.csv").read_text())
    for name in ("law", "code of law"):
        (tmp_path / f"{name}.txt").write_text("Is it void?\n")
    (tmp_path / "odd.csv").write_text("utterance,kind,id\n" + "".join(f"What is {n}?,k{n % 2},{n}\n" for n in range(9)))
    (tmp_path / "router").symlink_to(apart)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("fit train.csv r --label team", "fit r train.csv --label team"),
        ("fit -q train.csv r", "fit -q r train.csv --label team"),
        ("fit train.csv", "fit router train.csv --label team"),
        ("fit r train.csv", "fit r train.csv --label team"),
        ("fit r odd.csv", "fit r odd.csv --label kind --text utterance"),
        ("fit odd.csv", "fit router odd.csv --label kind --text utterance"),
        ("fit odd.csv --label kind", "fit router odd.csv --label kind --text utterance"),
        ("fit odd.csv r --label=kind", "fit r odd.csv --label=kind --text utterance"),
        ("fit odd.csv label=kind", "fit router odd.csv --label kind --text utterance"),
        ("fit --data odd.csv --column kind", "fit router odd.csv --label kind --text utterance"),
        ("fit odd.csv --label kind --text utterance", "fit router odd.csv --label kind --text utterance"),
        ("fit r odd.csv --label knid", "fit r odd.csv --label kind --text utterance"),
        ("fit r train.csv --label tema", "fit r train.csv --label team"),
        ("fit r train.csv --label=Team", "fit r train.csv --label team"),
        ("fit r train.csv --label team --text promt", "fit r train.csv --label team --text prompt"),
        ("fit r train.csv --label team --field promt", "fit r train.csv --label team --text prompt"),
        ("fit r odd.csv --label kind", "fit r odd.csv --label kind --text utterance"),
        ("fit r law=train.csv --label team", "fit r train.csv --label team"),
        ("fit r law.txt", "fit r law=law.txt"),
        ("fit r law.txt|code of law.txt", "fit r law=law.txt 'code of law=code of law.txt'"),
        ("fit r -", "fit r - --label COLUMN"),
        ("eval train.csv router", "eval router train.csv --label team"),
        ("eval router train.csv", "eval router train.csv --label team"),
        ("eval train.csv", "eval router train.csv --label team"),
        ("calibrate train.csv router --label team", "calibrate router train.csv --label team"),
        ("report train.csv router", "report router train.csv --label team"),
        ("report router train.csv --label tema", "report router train.csv --label team"),
        ("fit train.csv label=team", "fit router train.csv --label team"),
        ("fit r train.csv label=team --no-proof", "fit r train.csv --no-proof --label team"),
        ("fit train.csv r label=team text=prompt", "fit r train.csv --label team --text prompt"),
        ("fit label=team train.csv", "fit router train.csv --label team"),
        ("fit r train.csv label=team --label team", "fit r train.csv --label team"),
        ("fit r train.csv team", "fit r train.csv --label team"),
        ("fit train.csv team", "fit router train.csv --label team"),
        ("fit train.csv odd.csv --label team", "fit router train.csv odd.csv --label team"),
        ("fit --data train.csv", "fit router train.csv --label team"),
        ("fit --data=train.csv --label team", "fit router train.csv --label team"),
        ("fit r --csv train.csv --column team -q", "fit r train.csv --label team -q"),
        ("fit train.csv --label team --output r", "fit r train.csv --label team"),
        ("fit --prompts prompt train.csv r", "fit --text prompt r train.csv --label team"),
        ("eval router train.csv label=team", "eval router train.csv --label team"),
        ("eval --router router --input train.csv --errors 3", "eval router train.csv --errors 3 --label team"),
        ("add router train.csv team --merge", "add router train.csv --merge --label team"),
        ("route Why?|router", "route router 'Why?'"),
        ("explain Why?|router", "explain router 'Why?'"),
    ],
)
def test_a_wrong_call_is_answered_with_the_nearest_right_one(wrong: str, right: str) -> None:
    first, *more = wrong.split("|")
    told = run(*first.split(" "), *more, code=2).stderr
    assert told.splitlines()[-1] == f"  ir3de {right}", told


@pytest.mark.usefixtures("here")
def test_the_columns_are_listed(tmp_path: Path) -> None:
    assert "train.csv has the columns 'prompt', 'team', 'source'" in wrong_call("fit", "r", "train.csv")
    assert "no column 'tema' for --label: there are 'prompt', 'team'" in wrong_call(
        "fit", "r", "train.csv", "--label", "tema"
    )
    assert "name a file" in complaint("fit", "r", "-", "--label", "team", stdin="Is it void?\n")
    told = complaint("fit", "r", "-", "--label", "tema", stdin=as_csv(ROWS))
    assert "<stdin>:2: found no field 'tema' for the label" in told and "did you mean 'team'?" in told


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("options", [["--engine", "ray"], ["--workers", "2"], ["--checkpoint", "c"]])
def test_ways_of_counting_that_need_files_by_expert_are_refused(options: list[str]) -> None:
    told = wrong_call("fit", "r", "train.csv", "--label", "team", *options)
    assert "cannot be combined with --label" in told and "NAME=PATH" in told


@pytest.mark.usefixtures("here")
def test_other_wrong_calls_are_told() -> None:
    assert "no file has it" in wrong_call("fit", "r", "--label", "team")
    assert "no such file" in complaint("fit", "r", "tarin.csv", "--label", "team")
    assert "did you mean train.csv" in complaint("fit", "r", "tarin.csv")
    assert "expected name=path" in wrong_call("eval", "router", "law")
    assert "Did you mean '--default'" in wrong_call("fit", "r", "--defualt", "law")  # a slip of the pen
    assert "no such file" in complaint("fit", "r", "label=team")
    assert "--whole-files is for plain text" in wrong_call("fit", "r", "train.csv", "--label", "team", "--whole-files")
    assert "lines of plain text" in complaint("fit", "r", "law.txt", "--label", "team")


def test_the_next_command_is_one_line_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    command = (
        "ir3de serve --router router --expert 'lost or stolen card=http://127.0.0.1:8001/v1' --expert 'b c=http://b/v1'"
    )
    Output().note(hint(command))
    Output().note(line((command, "")))  # other lines are broken between words
    first, *others = capsys.readouterr().out.splitlines()
    assert first == f"next: {command}" and len(others) > 1


@pytest.mark.usefixtures("here")
def test_a_table_with_semicolons_is_proposed_a_label_as_well() -> None:
    Path("semicolons.csv").write_text(as_csv(ROWS, ";"), "utf-8-sig")
    told = run("fit", "r", "semicolons.csv", code=2).stderr.splitlines()
    assert told[-1] == "  ir3de fit r semicolons.csv --label team"


def test_tune_is_given_texts_and_says_which_commands_were_meant(tmp_path: Path) -> None:
    table = tmp_path / "train.csv"
    table.write_text("prompt,team\nIs it void?,law\nSort a list.,code\n", encoding="utf-8")
    router = tmp_path / "router"
    run("fit", router, table, "--label", "team")
    said = run("tune", router, table, "--label", "team", code=2).stderr
    assert f"\n  ir3de tune {router}\n" in said
    assert said.endswith(f"\n  ir3de fit {router} {table} --label team --tune --force\n")
    assert "ir3de fit" not in run("tune", router, "--label", "team", code=2).stderr


def test_a_first_line_that_is_a_row_is_no_header(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("Is it void?,law\nSue them?,law\nSort a list.,code\n", encoding="utf-8")
    for label in ((), ("--label", "team")):
        said = wrong_call("fit", tmp_path / "router", path, *label)
        assert "looks like a row (Is it void?, law): write a line above it that names the columns" in said
        assert "Did you mean" not in said
