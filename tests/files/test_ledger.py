"""What was done to a router stands in its ledger, link by link; with a receipt others can check it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from owners import OWNERS, fitted

from ir3de import Router
from ir3de.errors import ArtifactError
from ir3de.evaluation.verification import verify
from ir3de.files.ledger import faults, from_lines, from_receipt, receipt, to_lines
from ir3de.files.router_folder import read_header
from ir3de.fitting.saving import save_policy
from ir3de.policies import Calibration, Policy
from ir3de.selectors import EntropyTopK

# the ledger -----------------------------------------------------------------------------------------------------


def changed(folder: Path) -> Router:
    """A router to which four things were done, saved after each."""
    router = fitted()
    router.save(folder)
    router.merge("law", [OWNERS["c1"], OWNERS["c2"]])
    router.save(folder)
    router.remove("law", contribution="c1")
    router.save(folder)
    return router


def test_the_ledger_tells_who_gave_what_and_what_became_of_it(tmp_path: Path) -> None:
    router = changed(tmp_path / "router")
    history = Router.load(tmp_path / "router").history
    assert history == router.history
    actions = [(entry.change.action, entry.change.expert, getattr(entry.change.given, "id", None)) for entry in history]
    assert actions == [
        ("fit", "maths", None), ("fit", "law", None), ("fit", "cooking", None),
        ("merge", "law", "c1"), ("merge", "law", "c2"), ("remove", "law", "c1"),
    ]  # fmt: skip
    assert history[-1].router_after == read_header(tmp_path / "router")["sha256"]
    assert history[-1].router_before == history[-2].router_after
    assert history[-1].change.given == OWNERS["c1"].given
    assert not faults(history, history[-1].router_after)
    never = fitted("c2").save(tmp_path / "never")
    assert read_header(never)["sha256"] == history[-1].router_after


def test_saving_elsewhere_takes_the_ledger_along_and_saving_again_adds_nothing(tmp_path: Path) -> None:
    router = changed(tmp_path / "router")
    one, two = router.save(tmp_path / "router"), router.save(tmp_path / "copy")
    assert (one / "ledger.jsonl").read_bytes() == (two / "ledger.jsonl").read_bytes()
    assert len(router.history) == 6
    assert not (router.save(tmp_path / "serving", serving=True) / "ledger.jsonl").exists()


def test_a_save_cut_short_after_its_ledger_never_was(tmp_path: Path) -> None:
    """As if the power had gone between the two: the ledger says more than the router has seen."""
    changed(tmp_path / "router")
    router = Router.load(tmp_path / "router")
    router.merge("law", OWNERS["c3"])
    later = router.save(tmp_path / "later")
    shutil.copy(later / "ledger.jsonl", tmp_path / "router")
    assert (len(router.history), len(Router.load(tmp_path / "router").history)) == (7, 6)


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda lines: lines[:3] + lines[4:], "does not follow the one before it"),
        (lambda lines: [line.replace('"x"', '"y"') for line in lines], "was edited"),
        (lambda lines: lines[:-1], "a change was made without it"),
    ],
)
def test_a_ledger_that_was_tampered_with_is_found_out(tmp_path: Path, edit: object, complaint: str) -> None:
    changed(tmp_path / "router")
    path = tmp_path / "router" / "ledger.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(edit(lines)))  # type: ignore[operator]
    assert any(complaint in check.seen for check in verify(tmp_path / "router") if check.holds is False)


def test_a_change_made_without_the_ledger_stays_found_out(tmp_path: Path) -> None:
    """Another router in the folder, and then changes as usual, which the ledger tells of."""
    changed(tmp_path / "router")
    kept = (tmp_path / "router" / "ledger.jsonl").read_bytes()
    fitted("c2", "c3").save(tmp_path / "router")
    (tmp_path / "router" / "ledger.jsonl").write_bytes(kept)
    router = Router.load(tmp_path / "router")
    router.remove("law", contribution="c3")
    for _ in range(2):
        save_policy(router.save(tmp_path / "router"), Policy(threshold=0.5), "law")
        wrong = [check.seen for check in verify(tmp_path / "router") if check.holds is False]
        assert any("does not begin with the router that the one before it left" in seen for seen in wrong)


def test_what_a_save_left_behind_is_found(tmp_path: Path) -> None:
    router = fitted("c1", "c2")
    name = next(path for path in router.save(tmp_path / "router").glob("contribution-*"))
    router.remove("law", contribution="c1")
    router.remove("law", contribution="c2")
    kept = name.read_bytes()
    router.save(tmp_path / "router")
    name.write_bytes(kept)  # as if it had been cut short before it removed what it no longer names
    assert [name.name in check.seen for check in verify(tmp_path / "router") if check.holds is False] == [True]


def test_a_damaged_ledger_says_where_and_the_router_routes_on(tmp_path: Path) -> None:
    changed(tmp_path / "router")
    path = tmp_path / "router" / "ledger.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    router = Router.load(tmp_path / "router")
    assert router.route("is the contract void").expert == "law"
    with pytest.raises(ArtifactError, match=r"ledger\.jsonl:6 is damaged: it is not an entry"):
        router.history  # noqa: B018


@pytest.mark.parametrize(
    ("name", "value"), [("expert", "\x1b[31m"), ("expert", {}), ("when", None), ("action", 5), ("entry", "1")]
)
def test_what_no_ledger_holds_never_reaches_a_terminal(tmp_path: Path, name: str, value: object) -> None:
    entry = {**changed(tmp_path / "router").history[-1].to_dict(), name: value}
    with pytest.raises(ArtifactError, match=rf"x:1 is damaged: .*'{name}' is "):
        from_lines(json.dumps(entry).encode(), Path("x"))
    with pytest.raises(ArtifactError, match=rf"x is damaged: .*'{name}' is "):
        from_receipt(json.dumps({"kind": "ir3de.receipt", "version": 1, **entry}).encode(), Path("x"))


# receipts -------------------------------------------------------------------------------------------------------


def test_a_third_party_can_check_a_receipt(tmp_path: Path) -> None:
    router = fitted("c1", "c2")
    before = router.save(tmp_path / "before")
    router = Router.load(before)
    router.remove("law", contribution="c1")
    after = router.save(tmp_path / "after")
    content = json.dumps(receipt(router.history[-1])).encode()
    entry = from_receipt(content, Path("receipt.json"))
    checks = list(verify(after, receipt=entry, contribution=OWNERS["c1"], before=before))
    assert all(check.holds for check in checks) and len(checks) == 13
    wrong = [check for check in verify(before, receipt=entry, contribution=OWNERS["c2"]) if check.holds is False]
    claims = " ".join(check.claim for check in wrong)
    assert "is an entry of this router's ledger" in claims
    assert "is not in the router" in claims
    assert "is for this contribution" in claims
    with pytest.raises(ArtifactError, match="damaged or was edited"):
        from_receipt(content.replace(b'"remove"', b'"merge"'), Path("receipt.json"))
    with pytest.raises(ArtifactError, match=r"is not an ir3de\.receipt file"):
        from_receipt(b"{}", Path("receipt.json"))


def test_a_router_that_was_not_fitted_from_its_statistics_is_found_out(tmp_path: Path) -> None:
    """Everything whole by its hashes, but the table is another's, or a contribution is not in the sum."""
    honest, other = fitted("c1"), fitted("c2")
    forged = Router(replace(honest._parts, compiled=other.compiled))
    seen = {check.claim[:9]: check.holds for check in verify(forged.save(tmp_path / "forged"))}
    assert seen["the table"] is False
    table = honest.compiled.table
    voting = replace(honest.compiled, table=replace(table, vote=(table.vote + 1) % 3))
    forged = Router(replace(honest._parts, compiled=voting))
    seen = {check.claim[:9]: check.holds for check in verify(forged.save(tmp_path / "voting"))}
    assert seen["the table"] is False
    held = other.holdings
    training = replace(honest._parts.training, holdings=lambda: held)
    hidden = Router(replace(honest._parts, training=training))
    seen = {check.claim[:13]: check.holds for check in verify(hidden.save(tmp_path / "hidden"))}
    assert seen["each expert's"] is False and seen["the router ho"] is False


def test_settings_are_no_fault_and_another_calibration_is_told(tmp_path: Path) -> None:
    router = fitted("c1", "c2")
    router.save(tmp_path)
    for changed in (
        router.with_policy(Policy(threshold=0.5), default="law"),
        router.with_selector(EntropyTopK(5)),
        router.with_calibration(Calibration(1.0)),
    ):
        found = {check.claim[:10]: check.holds for check in verify(changed.save(tmp_path))}
        assert found.pop("confidence") is (True if changed.policy.threshold else None)
        assert all(found.values())


def test_whoever_gave_something_to_an_expert_that_is_gone_has_a_receipt(tmp_path: Path) -> None:
    router = fitted("c1", "c2")
    router.save(tmp_path)
    router.remove("law")
    router.save(tmp_path)
    mine = next(entry for entry in reversed(router.history) if entry.change.given == OWNERS["c1"].given)
    assert mine.change.action == "remove"
    assert all(check.holds for check in verify(tmp_path, receipt=mine, contribution=OWNERS["c1"]))
    router.merge("maths", OWNERS["c1"])
    seen = [check.seen for check in verify(router.save(tmp_path), receipt=mine) if check.holds is False]
    assert seen == ["it is in c1 of 'maths'"]


def test_lines_come_back(tmp_path: Path) -> None:
    history = changed(tmp_path / "router").history
    assert from_lines(to_lines(history), Path("x")) == history
