"""Contributions on the command line: collected with a label, given, taken back, accounted for; and what is refused."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import tiny
from commands import CODING, HISTORY, LAW, complaint, run, run_json, wrong_call
from ir3de import Contribution, Router, collect, files
from ir3de.files.router_folder import read_header
from ir3de.files.tensors import from_safetensors, to_safetensors
from ir3de.statistics.sample import Sample


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two owners' statistics of law, and one of history."""
    folder = tmp_path_factory.mktemp("given")
    run("collect", folder / "berlin.stats", LAW, "--owner", "Kanzlei Berlin", "--id", "berlin-2026", "--cap", 64)
    run("collect", folder / "paris.stats", HISTORY, "--owner", "Paris", "--keep-sample")
    return folder


@pytest.fixture(scope="module")
def fitted(given: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Law by two owners, coding from texts."""
    folder = tmp_path_factory.mktemp("fitted") / "router"
    run("fit", folder, f"law={given / '*.stats'}", f"coding={CODING}")
    return folder


@pytest.fixture
def router(fitted: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(fitted, tmp_path / "router"))


def test_a_file_knows_whose_it_is_and_how_it_was_made(given: Path) -> None:
    found = run_json("inspect", given / "berlin.stats")
    assert (found["id"], found["owner"], found["kept"]) == ("berlin-2026", "Kanzlei Berlin", 0)
    recipe = {
        "window": 128,
        "subsample": 1,
        "cap": 64,
        "clip": None,
        "min_count": 1,
        "prompt_sums": True,
        "field": None,
    }
    assert found["recipe"] == recipe
    whole = run_json("inspect", given / "paris.stats")
    assert whole["id"] == whole["digest"][:12] and whole["kept"] > 0
    assert "Kanzlei Berlin" in run("inspect", given / "berlin.stats").output
    assert (given / "berlin.stats").stat().st_size < 2_000_000


@pytest.mark.slow
@pytest.mark.nightly
def test_given_taken_back_and_accounted_for(given: Path, router: Path, tmp_path: Path) -> None:
    listed = run("ledger", router).output
    assert "berlin-2026" in listed and "Paris" in listed and "texts" in listed
    run("fit", tmp_path / "never", f"law={given / 'paris.stats'}", f"coding={CODING}")
    before = read_header(router)["sha256"]
    assert "ir3de receipt" in run("remove", router, "law", "--contribution", "berlin-2026", "--scorer", "choose").output
    assert read_header(router)["sha256"] == read_header(tmp_path / "never")["sha256"]
    run("receipt", router, "--contribution", "berlin-2026", "--output", tmp_path / "receipt.json")
    receipt = json.loads((tmp_path / "receipt.json").read_text())
    said = complaint("receipt", router, "--entry", 1, "--output", tmp_path / "receipt.json")
    assert "receipt.json exists already" in said and "--force" in said
    assert json.loads((tmp_path / "receipt.json").read_text()) == receipt
    run("receipt", router, "--contribution", "berlin-2026", "--output", tmp_path / "receipt.json", "--force")
    assert receipt == run_json("receipt", router) == json.loads(run("receipt", router, "--entry", 4).stdout)
    assert (receipt["action"], receipt["router"]["before"]) == ("remove", before)
    arguments = ("--receipt", tmp_path / "receipt.json", "--statistics", given / "berlin.stats")
    checked = run_json("verify", router, *arguments)
    assert checked["holds"] is True and all(check["holds"] for check in checked["checks"])
    assert len(run_json("ledger", router, "--expert", "law")["entries"]) == 3
    run("add", router, "--merge", f"law={given / 'berlin.stats'}")  # what was taken back may be given again
    said = run("verify", router, "--receipt", tmp_path / "receipt.json", code=1)
    assert "what was taken from 'law' is not in the router: it is in berlin-2026" in " ".join(said.stderr.split())


@pytest.mark.slow
@pytest.mark.nightly
def test_a_narrow_terminal_shows_who_gave_what(
    given: Path, router: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = run("ledger", router).output
    assert all(word in listed for word in ("law", "coding", "berlin-2026", "Kanzlei Berlin", "prompts"))
    assert "router" not in listed.splitlines()[0]  # its hash has no room, and goes first
    run("receipt", router, "--contribution", "berlin-2026", "--output", tmp_path / "receipt.json")
    arguments = ("verify", router, "--receipt", tmp_path / "receipt.json", "--statistics")
    assert "every check passed" in run(*arguments, given / "berlin.stats").output
    said = " ".join(run(*arguments, given / "paris.stats", code=1).stderr.split())
    assert "this does not hold: the receipt is for this contribution" in said


@pytest.mark.nightly
def test_samples_come_along_unless_they_are_not_wanted(given: Path, router: Path, tmp_path: Path) -> None:
    assert [one.kept > 0 for one in Router.load(router).contributions["law"]] == [True, False]
    run("fit", tmp_path / "bare", f"law={given / '*.stats'}", f"coding={CODING}", "--no-sample", "--scorer", "blend")
    bare = Router.load(tmp_path / "bare")
    assert [one.kept for one in bare.contributions["law"]] == [0, 0]
    assert all(own.sample is None for own in bare.statistics.values())


def test_merged_files_remember_what_they_are_made_of(given: Path, router: Path, tmp_path: Path) -> None:
    both = tmp_path / "both.stats"
    merged = run_json("merge", both, given / "*.stats", "--owner", "the two")
    assert len(merged["parts"]) == 2 and merged["owner"] == "the two"
    assert "Nothing is counted twice" in complaint("merge", tmp_path / "more.stats", both, given / "berlin.stats")
    assert "has this contribution already" in complaint("add", router, "--merge", f"law={both}")
    assert not (tmp_path / "more.stats").exists()


def test_wrong_calls(given: Path, router: Path, tmp_path: Path) -> None:
    assert "name only that one" in wrong_call("remove", router, "law", "coding", "--contribution", "x")
    assert "name it with --receipt" in wrong_call("verify", router, "--before", router)
    assert "no contribution 'nobody': it has" in complaint("remove", router, "law", "--contribution", "nobody")
    assert "has no contribution 'nobody'" in complaint("receipt", router, "--contribution", "nobody")
    assert "has 3 entries, and no entry 9" in complaint("receipt", router, "--entry", 9)
    assert "up to 64 letters" in complaint("collect", tmp_path / "x.stats", LAW, "--id", "a b")
    assert "no such file" in complaint("add", router, "--merge", f"law={tmp_path / '*.stats'}")
    run(
        "fit",
        tmp_path / "r",
        f"law={LAW}",
        f"coding={CODING}",
        "--scorer",
        "blend",
        "--serving",
        tmp_path / "serving",
        "-q",
    )
    (tmp_path / "file").touch()
    assert "file is a file" in complaint("collect", tmp_path / "file" / "x.stats", tmp_path / "not.json", LAW)
    assert "there is no such folder" in complaint("verify", tmp_path / "nowhere")
    assert "has no ledger" in complaint("ledger", tmp_path / "serving")
    (tmp_path / "not.json").write_text("nonsense")
    assert "is not a receipt" in complaint("verify", router, "--receipt", tmp_path / "not.json")


# files that are not what they should be -------------------------------------------------------------------------


def resealed(path: Path, change: Callable[[dict, dict], object], target: Path) -> Path:
    """A file changed by someone who knows how to seal it again."""
    tensors, header = from_safetensors(path.read_bytes(), path)
    tensors = {name: tensor.astype(np.int64) for name, tensor in tensors.items()}
    del header["sha256"]
    change(tensors, header)
    target.write_bytes(to_safetensors(tensors, files.seal(header)))
    return target


def negative(tensors: dict, header: dict) -> None:
    tensors["counts"][0] = -5


def overflowing(tensors: dict, header: dict) -> None:
    tensors["counts"][0] = 2**62


def unsigned(tensors: dict, header: dict) -> None:
    tensors["counts"] = tensors["counts"].astype(np.uint64)


def endless(tensors: dict, header: dict) -> None:
    header["vocabulary"] = 10**15


def overflowing_sums(tensors: dict, header: dict) -> None:
    tensors["gram.high"][0] = 2**30


def misfitting_halves(tensors: dict, header: dict) -> None:
    tensors["gram"][0] = 2**63 - 1


def fractions(tensors: dict, header: dict) -> None:
    header["prompts"] = 1.5


def hidden_sample(tensors: dict, header: dict) -> None:
    header["kept"] = 1


def endless_sample(tensors: dict, header: dict) -> None:
    lengths = np.array([2**60])
    sample = Sample(lengths * 0, lengths * 0 + 1, lengths, lengths * 0 + 1, tensors["tokens"][:1], lengths * 0)
    tensors |= {f"sample.{name}": values for name, values in asdict(sample).items()}
    header |= {"sample": sample.digest, "kept": 1}


def square(tensors: dict, header: dict) -> None:
    tensors["vector"] = tensors["vector"][:, None]


def escaping(tensors: dict, header: dict) -> None:
    header["recipe"] = {"field": "\x1b]0;mine\x07"}


def mistaken(tensors: dict, header: dict) -> None:
    header["parts"] = "abc"


def relabelled(tensors: dict, header: dict) -> None:
    header["id"] = "../../etc"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (negative, "below zero"), (overflowing, "counts overflow"), (unsigned, "beyond 2⁶³"),
        (endless, "its vocabulary has"), (overflowing_sums, "prompt sums overflow"),
        (misfitting_halves, "halves of 'gram'"), (relabelled, "up to 64 letters"),
        (fractions, "which is not a count"), (hidden_sample, "a sample of 0, and its header differs"),
        (endless_sample, "prompts that were not counted"), (square, "several dimensions"),
        (escaping, "a recipe is up to"), (mistaken, "are SHA-256 digests"),
    ],
)  # fmt: skip
def test_impossible_numbers_are_refused_and_the_router_stays(
    given: Path, router: Path, tmp_path: Path, change: Callable[[dict, dict], object], message: str
) -> None:
    before = {path.name: path.read_bytes() for path in router.iterdir()}
    bad = resealed(given / "berlin.stats", change, tmp_path / "bad.stats")
    said = complaint("add", router, "--merge", f"coding={bad}")
    assert str(bad) in said and message in said
    assert {path.name: path.read_bytes() for path in router.iterdir()} == before


@pytest.mark.slow
def test_damage_another_embedding_and_a_full_disk_leave_the_router_as_it_was(
    given: Path, router: Path, tmp_path: Path
) -> None:
    before = {path.name: path.read_bytes() for path in router.iterdir()}
    whole = (given / "berlin.stats").read_bytes()
    bad = tmp_path / "bad.stats"
    bad.write_bytes(whole[:-100])
    assert "truncated or damaged" in complaint("add", router, "--merge", f"coding={bad}")
    bad.write_bytes(whole.replace(b"Kanzlei Berlin", b"Kanzlei Merlin"))
    assert "damaged or was edited" in complaint("add", router, "--merge", f"coding={bad}")
    Contribution.of(collect(["a text"], embedding=tiny.embedding())).save(bad)
    assert "collect them again with that embedding" in complaint("add", router, "--merge", f"coding={bad}")
    script = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); "  # as a disk that is full
        "from ir3de.cli import main; main()"
    )
    arguments = ["add", str(router), "--merge", f"coding={given / 'berlin.stats'}"]
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith("error: cannot") and "File too large" in done.stderr
    assert {path.name: path.read_bytes() for path in router.iterdir()} == before
