"""What commands show of a router with many experts: the first few, and how many others there are."""

from pathlib import Path
from shutil import copytree

import pytest

import ir3de
import tiny
from commands import complaint, run, run_json
from ir3de.cli.accuracy import matrix_table
from ir3de.cli.commands.inspect import SMAPS
from ir3de.cli.output import split_rows
from ir3de.policies import Policy

pytestmark = pytest.mark.usefixtures("plain_terminal")

TOPICS = (
    "bread flour oven", "court tenant lease", "python loop function", "triangle angle proof", "dose tablet fever",
    "emperor treaty siege", "violin chord melody", "tulip soil compost", "engine brake gear", "goal referee penalty",
    "loan interest mortgage", "galaxy comet orbit",
)  # fmt: skip
EXPERTS = tuple(f"team-{number:02}" for number in range(len(TOPICS)))


def prompts_of(topic: str) -> list[str]:
    one, two, three = topic.split()
    return [f"How does the {one} change with the {two}?", f"What {two} for a {three}?", f"A {three} and its {one}"]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A router of twelve experts, all with a price."""
    costs = {name: {"price": 1 + place / 10} for place, name in enumerate(EXPERTS)}
    domains = {name: prompts_of(topic) for name, topic in zip(EXPERTS, TOPICS, strict=True)}
    router = ir3de.Router.fit(domains, scorer=ir3de.PromptRidge(), policy=Policy(costs=costs))
    return router.save(tmp_path_factory.mktemp("many") / "router")


def test_the_frontier_names_a_few_experts_and_counts_the_others(many: Path, tmp_path: Path) -> None:
    (tmp_path / "bread.txt").write_text("\n".join(prompts_of(TOPICS[0])), "utf-8")
    shown = run("eval", many, f"team-00={tmp_path / 'bread.txt'}", "--frontier").stdout
    frontier = shown[shown.index("Frontier") :]
    header = next(line for line in frontier.splitlines() if line.lstrip().startswith("weight"))
    named = [word for word in header.split() if word in EXPERTS]
    assert "team-00" in named and len(named) <= 5 and f"{12 - len(named)} others" in header
    compared = frontier[frontier.index("compared with") :].splitlines()
    singles = [line for line in compared if "always" in line]
    assert len(singles) == 5 and "always team-00" in singles[0]
    assert sum("and 7 others" in line for line in compared) == 1
    found = run_json("eval", many, f"team-00={tmp_path / 'bread.txt'}", "--frontier")["frontier"]
    assert len(found["singles"]) == 12  # programs get them all


def test_route_shows_the_first_experts_and_counts_the_others(many: Path) -> None:
    shown = run("route", many, "What oven for a bread of flour?").stdout.splitlines()
    assert shown[0].startswith("team-00 ") and not any(" 0.0 % " in line for line in shown[:-2])
    listed = [line.split()[0] for line in shown if line.startswith("team-")]
    assert 1 <= len(listed) <= 5
    assert shown[-2].startswith(f"and {12 - len(listed)} others ") and shown[-2].rstrip().endswith(" %")
    every = run("route", many, "What oven for a bread of flour?", "--top", "12").stdout
    assert every.count("team-") == 12 and "others" not in every
    assert len(run_json("route", many, "What oven for a bread of flour?")["ir3de"]["ranking"]) == 12
    weighed = run("route", many, "What oven for a bread of flour?", "--weight", "price=0.01").stdout
    assert weighed.count("team-") == 5 and "and 7 others" in weighed


def test_errors_name_the_experts_most_like_the_wrong_one(many: Path, tmp_path: Path) -> None:
    said = complaint("policy", many, "--price", "taem-07=1")
    assert "unknown experts taem-07: there are team-07, " in said and " others" in said and said.count("team-") < 5
    assert complaint("policy", many, "--default", "taem-11").count("team-") < 5
    (tmp_path / "bread.txt").write_text("bread", "utf-8")
    assert complaint("calibrate", many, f"taem-03={tmp_path / 'bread.txt'}").count("team-") < 5


# tables with a row for each expert ----------------------------------------------------------------------------------

WORDS = (*(word for topic in TOPICS for word in topic.split()),)[:20]
LEFT_OUT = "and 5 others: --json has them all"


@pytest.fixture(scope="module")
def twenty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a router of twenty experts, and the file that it was fitted from."""
    folder = tmp_path_factory.mktemp("twenty")
    rows = [f"{word} number {number},team-{at:02}\n" for at, word in enumerate(WORDS) for number in ("one", "two")]
    (folder / "train.csv").write_text("prompt,team\n" + "".join(rows), "utf-8")
    call = ("fit", folder / "router", folder / "train.csv", "--label", "team", "--scorer", "prompt-ridge", "--no-proof")
    shown = run(*call).stdout
    assert shown.count("team-") == 15 and f"the fewest prompts first; {LEFT_OUT}" in shown
    return folder


@pytest.mark.nightly
def test_eval_shows_the_lowest_recall_and_counts_the_others(twenty: Path) -> None:
    lines = (twenty / "train.csv").read_text("utf-8").splitlines()
    wrong = [
        line.replace("team-19", "team-00") if line.startswith(f"{WORDS[19]} number one") else line for line in lines
    ]
    (twenty / "test.csv").write_text("\n".join(wrong), "utf-8")
    call = ("eval", twenty / "router", twenty / "test.csv", "--label", "team")
    shown = run(*call).stdout
    recall = shown[: shown.index("Confusion")]
    assert recall.count("team-") == 15 and f"the lowest recall first; {LEFT_OUT}" in recall
    first = next(line for line in recall.splitlines() if line.startswith("team-"))
    assert first.startswith("team-00") and "66.7 %" in first
    assert len(run_json(*call)["recall"]) == 20


def test_inspect_and_ledger_count_what_they_leave_out(twenty: Path) -> None:
    shown = run("inspect", twenty / "router").stdout
    assert shown.count("team-") == 15 and LEFT_OUT in shown and shown.count("--json has them all") == 2
    assert len(run_json("inspect", twenty / "router")["experts"]) == 20
    shown = run("ledger", twenty / "router").stdout
    assert shown.count("team-") == 15 and "team-19" in shown and f"the latest entries; {LEFT_OUT}" in shown
    assert len(run_json("ledger", twenty / "router")["entries"]) == 20


def test_inspect_tells_what_is_mapped_and_what_of_it_is_resident(twenty: Path, tmp_path: Path) -> None:
    before = tiny.contents(twenty / "router")
    found = run_json("inspect", twenty / "router")
    if not SMAPS.is_file():
        assert found["memory"] is None
        return
    mapped, resident = found["memory"]["mapped_bytes"], found["memory"]["resident_bytes"]
    table = next(file["bytes"] for file in found["files"] if file["name"].startswith("table"))
    assert table < mapped and 0 < resident <= mapped
    assert " resident after one route" in run("inspect", twenty / "router").stdout
    assert tiny.contents(twenty / "router") == before
    router = Path(copytree(twenty / "router", tmp_path / "router"))
    next(router.glob("table-*")).unlink()  # it would have to be built: nothing is loaded
    assert run_json("inspect", router)["memory"] is None


def test_a_damaged_file_is_shown_among_many(twenty: Path, tmp_path: Path) -> None:
    router = Path(copytree(twenty / "router", tmp_path / "router"))
    last = sorted(router.glob("statistics-*"))[-1]
    last.write_bytes(last.read_bytes()[:-9])
    assert last.name in run("inspect", router, code=1).stdout


def test_a_configuration_of_many_experts_is_shown_in_part(twenty: Path, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    run("config", "init", tmp_path / "ir3de.yaml", "--router", twenty / "router")
    shown = run("config", "validate", tmp_path / "ir3de.yaml").stdout
    assert shown.count("http://127.0.0.1:") == 15 and LEFT_OUT in shown
    assert len(run_json("config", "validate", tmp_path / "ir3de.yaml")["experts"]) == 20


def test_routed_rows_are_counted_for_the_first_experts(twenty: Path, tmp_path: Path) -> None:
    call = ("route", twenty / "router", "--input", twenty / "train.csv", "--output", tmp_path / "o.csv")
    shown = run(*call).stdout
    assert shown.count("  team-") == 15 and LEFT_OUT in shown
    assert len(run_json(*call, "--force")["experts"]) == 20


def test_sixteen_experts_are_all_shown() -> None:
    assert split_rows(range(16)) == (range(16), 0)  # a line that counts one other is not shorter
    assert split_rows(range(17)) == (range(15), 2)


@pytest.mark.nightly
def test_eval_into_a_pipe_keeps_every_name_and_digit(tmp_path: Path) -> None:
    names = [f"a team with a long name {number:02}" for number in range(14)]
    domains = {name: [f"word{place} term{place} {n}" for n in range(120)] for place, name in enumerate(names)}
    router = ir3de.Router.fit(domains, scorer=ir3de.PromptRidge(), keep_sample=False).save(tmp_path / "router")
    for name, texts in domains.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(texts), encoding="utf-8")
    given = [f"{name}={tmp_path / name}.txt" for name in names]
    shown = run("eval", router, *given).stdout
    confusion = shown[shown.index("Confusion") : shown.index("Calibration")]
    rows = [
        line.partition(f"{place + 1} {name}")[2]
        for place, (name, line) in enumerate(zip(names, confusion.splitlines()[3:], strict=False))
    ]
    assert all(rows) and "…" not in confusion
    assert sum(int(word) for line in rows for word in line.split() if word.isdigit()) == 14 * 120


def test_a_matrix_that_does_not_fit_a_terminal_becomes_a_list() -> None:
    matrix = [[1_234 * (row != column) for column in range(14)] for row in range(14)]
    names = [f"a team with a long name {number:02}" for number in range(14)]
    (first, *_), *_ = (column.cells for column in [matrix_table(names, matrix, 80, ("expected", "went to")).columns[0]])
    assert first == names[0]
