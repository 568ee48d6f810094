"""What commands show of a router with many experts: the first few, and how many others there are."""

from pathlib import Path

import pytest

import ir3de
from commands import complaint, run, run_json
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
