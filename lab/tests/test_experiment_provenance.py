"""What raw files say of the code that made them: the commit that they name has the sources that ran."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from generate_results_readme import SAME_SOURCES
from ir3de_lab import files
from ir3de_lab.experiments import provenance

ROOT = Path(__file__).parents[2]
CHOICES = sorted((ROOT / "results").glob("*/choices/*.json"))


def git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout


def test_sources_are_digested_as_git_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        head = git("rev-parse", "HEAD").strip()
        changes = git("status", "--porcelain", "--", *provenance.FOLDERS)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no checkout")
    if any(str(folder) != str(ROOT / name) for name, folder in provenance.FOLDERS.items()):
        pytest.skip("the packages that run are not those of the checkout")
    same = provenance.digest_sources() == provenance.digest_commit(head, ROOT)
    assert same == (not changes)
    assert provenance.this_process()["changed"] == (not same)
    monkeypatch.setenv("IR3DE_COMMIT", "no-such-commit")
    assert provenance.this_process()["changed"] is None


def test_a_changed_or_renamed_source_has_another_digest() -> None:
    digests = {provenance.digest_blobs(blobs) for blobs in ({"a.py": "1"}, {"a.py": "2"}, {"b.py": "1"}, {})}
    assert len(digests) == 4


def test_the_commit_that_a_file_names_has_the_sources_that_ran() -> None:
    for path in CHOICES:
        about = files.read_json(path, kind="ir3de.choices", version=1)["about"]
        if "sources" in about and (own := provenance.digest_commit(about["commit"], ROOT)) is not None:
            assert about["sources"] == own, path


def test_where_a_commit_is_gone_another_one_has_its_sources() -> None:
    made = [json.loads(path.read_text("utf-8")) for path in sorted((ROOT / "results").rglob("*.json"))]
    told = [one.get("about") or one.get("circumstances") or {} for one in made if isinstance(one, dict)]
    named = {about["commit"]: about["sources"] for about in told if about.get("commit") and about.get("sources")}
    assert named
    for sources, same in SAME_SOURCES.items():
        if (own := provenance.digest_commit(same, ROOT)) is None:
            pytest.skip("no checkout with all commits")
        assert own == sources
    found = {commit: provenance.digest_commit(commit, ROOT) for commit in named}
    assert not [commit for commit, own in found.items() if own not in (named[commit], None)]
    assert not [commit for commit, own in found.items() if own is None and named[commit] not in SAME_SOURCES]


def test_every_encoder_that_was_trained_says_how() -> None:
    trained = [path for path in CHOICES if "fine-tuned" in path.name or path.name.startswith("bert-router")]
    assert trained
    for path in trained:
        about = files.read_json(path, kind="ir3de.choices", version=1)["about"]
        assert about["sources"], path
        by_epoch = about["validation_by_epoch"]
        assert len(by_epoch) == about["epochs_run"] <= about["most_epochs"], path
        assert about["validation"] == max(by_epoch), path
        assert by_epoch[about["epoch_kept"] - 1] == max(by_epoch), path  # two that differ may be alike once rounded
        assert about["epochs_run"] in (about["epoch_kept"] + 1, about["most_epochs"]), path
