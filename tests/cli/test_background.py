"""fit --background: prompts that belong to none of the experts teach the router what is out of domain."""

import json
from pathlib import Path

import pytest

from commands import CODING, HISTORY, LAW, complaint, quick, run, run_json, wrong_call
from ir3de import Embedding, Router
from ir3de.corpora import examples as demo

pytestmark = pytest.mark.usefixtures("plain_terminal")

EXPERTS = f"law={LAW}", f"coding={CODING}"


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A router whose background is close to its experts."""
    folder = tmp_path_factory.mktemp("background") / "router"
    run("fit", folder, *EXPERTS, *quick(), "--background", HISTORY, "-q")
    return folder


def test_it_is_as_from_python(near: Path, tmp_path: Path) -> None:
    prompts = demo.prompts()
    router, saved = Router.load(near), tmp_path / "python"
    scorer = router.scorer
    texts = {name: prompts[name] for name in ("law", "coding")}
    made = Router.fit(texts, scorer=scorer, background=prompts["history"], embedding=Embedding.load(quick()[-1]))
    made.save(saved)
    texts = [text for own in demo.held_out().values() for text in own]
    assert router.route_batch(texts) == Router.load(saved).route_batch(texts)
    headers = [json.loads((folder / "router.json").read_text(encoding="utf-8")) for folder in (near, saved)]
    assert headers[0]["background"] == headers[1]["background"] and headers[0]["background"]["file"]
    assert (near / headers[0]["background"]["file"]["name"]).is_file()


def test_it_teaches_what_is_out_of_domain(near: Path, tmp_path: Path) -> None:
    run("fit", tmp_path / "usual", *EXPERTS, *quick(), "-q")
    header = json.loads((tmp_path / "usual" / "router.json").read_text(encoding="utf-8"))
    assert header["background"]["digest"] and not header["background"].get("file")  # the built-in one is not copied
    history = demo.held_out()["history"]
    means = []
    for folder in (near, tmp_path / "usual"):
        found = [decision.in_domain for decision in Router.load(folder).route_batch(history)]
        means.append(sum(share for share in found if share is not None) / len(found))
    assert means[0] < means[1]


def test_changes_keep_it(near: Path, tmp_path: Path) -> None:
    given = ("--background", HISTORY, "-q")
    run("fit", tmp_path / "later", f"law={LAW}", *quick(), *given)
    run("add", tmp_path / "later", f"coding={CODING}", "-q")
    texts = demo.held_out()["history"]
    assert Router.load(tmp_path / "later").route_batch(texts) == Router.load(near).route_batch(texts)


def test_it_may_be_several_files_and_statistics(near: Path, tmp_path: Path) -> None:
    lines = demo.prompts()["history"]
    (tmp_path / "one.txt").write_text("\n".join(lines[:60]), encoding="utf-8")
    (tmp_path / "two.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in lines[60:]), encoding="utf-8")
    several = ("--background", tmp_path / "one.txt", "--background", tmp_path / "two.jsonl")
    run("fit", tmp_path / "several", *EXPERTS, *quick(), *several, "-q")
    run("collect", tmp_path / "history.stats", HISTORY, "--keep-sample", "-q", *quick()[2:])
    run("fit", tmp_path / "counted", *EXPERTS, *quick(), "--background", tmp_path / "history.stats", "-q")
    texts = demo.held_out()["history"]
    for name in ("several", "counted"):
        assert Router.load(tmp_path / name).route_batch(texts) == Router.load(near).route_batch(texts), name


def test_what_cannot_be_used_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    target = tmp_path / "router"
    (tmp_path / "one.txt").write_text("A single prompt.\n", encoding="utf-8")
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    assert "no such file" in complaint("fit", target, *EXPERTS, *quick(), "--background", tmp_path / "missing.txt")
    assert "at least two prompts" in complaint("fit", target, *EXPERTS, *quick(), "--background", tmp_path / "one.txt")
    complaint("fit", target, *EXPERTS, *quick(), "--background", tmp_path / "empty.txt")
    run("collect", tmp_path / "bare.stats", HISTORY, "-q", *quick()[2:])
    bare = complaint("fit", target, *EXPERTS, *quick(), "--background", tmp_path / "bare.stats")
    assert "keep no prompts" in bare and "ir3de collect --keep-sample" in bare
    refused = wrong_call("fit", target, *EXPERTS, *quick(), "--background", HISTORY, "--no-sample")
    assert "--background is compared with the prompts that are kept, and --no-sample keeps none" in refused
    refused = wrong_call("fit", target, "--outcomes", LAW, "--background", HISTORY)
    assert "--background cannot be combined with --outcomes" in refused
    assert not target.exists()


def test_it_can_be_tuned_with(near: Path, tmp_path: Path) -> None:
    said = run_json("fit", tmp_path / "r", *EXPERTS, "--background", HISTORY, "--scorer", "auto", *quick()[2:])
    assert said["experts"] == ["law", "coding"]
    before = json.loads((near / "router.json").read_text(encoding="utf-8"))["background"]["digest"]
    assert json.loads((tmp_path / "r" / "router.json").read_text(encoding="utf-8"))["background"]["digest"] == before
