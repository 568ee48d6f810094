"""What owners give comes in any order and goes out again without a trace; what was done stands in the ledger."""

import doctest
import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny
from ir3de import Contribution, Router, collect
from ir3de.errors import ArtifactError, InputError, MismatchError
from ir3de.ledger import faults, from_lines, from_receipt, receipt, to_lines
from ir3de.storage import read_header
from ir3de.verification import verify
from laws import some_texts


def contribution(texts: list[str], *, keep_sample: bool = False, **labels: str) -> Contribution:
    return Contribution.of(collect(texts, embedding=tiny.embedding(), keep_sample=keep_sample), **labels)


OWNERS = {
    f"c{seed}": contribution(tiny.sentences("law", 6, seed=seed), keep_sample=seed % 2 == 0, id=f"c{seed}", owner="x")
    for seed in range(1, 5)
}


def fitted(*ids: str, texts: bool = True, **options: object) -> Router:
    """A router whose law came from texts and these contributions."""
    router = Router.fit(tiny.domain_texts(), embedding=tiny.embedding(), **options)
    if not texts:
        router = Router.fit({**tiny.domain_texts(), "law": [OWNERS[one] for one in ids]}, embedding=tiny.embedding())
    elif ids:
        router.merge("law", [OWNERS[one] for one in ids])
    return router


@settings(tiny.LAW, max_examples=8)
@given(st.permutations(sorted(OWNERS)), st.integers(0, 3), st.booleans(), st.booleans(), st.booleans())
def test_what_is_taken_out_was_never_there(
    tmp_path_factory: pytest.TempPathFactory, order: list[str], out: int, texts: bool, one_by_one: bool, saved: bool
) -> None:
    """In any order, at once or one by one, in memory or through a folder: the same files, byte for byte."""
    folder, (gone, *left) = tmp_path_factory.mktemp("routers"), (order[out], *order[:out], *order[out + 1 :])
    router = fitted(*(order[:1] if one_by_one else order), texts=texts)
    for one in order[1:] if one_by_one else ():
        router.merge("law", OWNERS[one])
    if saved:
        router = Router.load(router.save(folder / "kept"))
    router.remove("law", contribution=gone)
    never = fitted(*reversed(left), texts=texts)
    assert tiny.same_table(router, never) and tiny.same_samples(router, never)
    assert tiny.contents(router.save(folder / "one")) == tiny.contents(never.save(folder / "two"))


def test_a_tuned_router_is_tuned_again_without_what_went_out(tmp_path: Path) -> None:
    def tuned(*ids: str) -> Router:
        domains = {**tiny.domain_texts(), "law": [whole[one] for one in ids]}
        return Router.fit(domains, embedding=tiny.embedding(), tune=True)

    whole = {f"c{n}": contribution(tiny.sentences("law", 8, seed=n), keep_sample=True, id=f"c{n}") for n in (1, 2)}
    router, never = tuned("c1", "c2"), tuned("c2")
    router.remove("law", contribution="c1")
    assert router.trials == never.trials
    assert tiny.contents(router.save(tmp_path / "one")) == tiny.contents(never.save(tmp_path / "two"))


def test_the_same_is_refused_by_its_hash_whatever_it_is_called() -> None:
    router = fitted("c1", "c2")
    again = Contribution.of(OWNERS["c1"].statistics(), id="another-name", owner="somebody else")
    with pytest.raises(InputError, match=r"has this contribution already: another-name .* in contribution c1"):
        router.merge("law", again)
    merged = OWNERS["c2"].statistics() + OWNERS["c3"].statistics()
    inside = Contribution.of(merged, parts=[OWNERS["c2"].digest, OWNERS["c3"].digest])
    with pytest.raises(InputError, match="in contribution c2"):
        router.merge("law", inside)
    other = contribution(["something else"], id="c1")
    with pytest.raises(InputError, match=r"another contribution with the id c1 .* another --id"):
        router.merge("law", other)
    with pytest.raises(InputError, match="has this contribution already"):
        router.add("more law", [OWNERS["c4"], OWNERS["c4"]])
    assert [one.id for one in router.contributions["law"]] == ["c1", "c2"]
    assert tiny.same_table(router, fitted("c1", "c2"))


def test_what_cannot_be_taken_out() -> None:
    router = fitted("c1", texts=False)
    with pytest.raises(InputError, match="c1 is all that 'law' has: take the expert out"):
        router.remove("law", contribution="c1")
    with pytest.raises(InputError, match="'law' has no contribution 'c9': it has c1"):
        router.remove("law", contribution="c9")
    with pytest.raises(InputError, match="'maths' has no contributions: its texts were counted here"):
        router.remove("maths", contribution="c1")


@pytest.mark.parametrize("bad", ["", "two words", "-x", "x" * 65, "../up", 7])
def test_ids_are_names(bad: object) -> None:
    with pytest.raises(InputError, match="a contribution's id is up to 64 letters"):
        contribution(["a text"], id=bad)  # type: ignore[arg-type]


def test_owners_are_labels_and_texts_are_needed() -> None:
    with pytest.raises(InputError, match="an owner's label is up to 200 printable characters"):
        contribution(["a text"], owner="two\nlines")
    with pytest.raises(InputError, match="a contribution needs at least one text"):
        contribution([])


def test_another_embedding_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    router = fitted()
    folder = router.save(tmp_path / "router")
    before = tiny.contents(folder)
    foreign = Contribution.of(collect(["a text"], embedding=tiny.other_embedding()))
    with pytest.raises(MismatchError, match="collect them again with that embedding"):
        router.merge("law", [OWNERS["c1"], foreign])
    assert tiny.contents(router.save(folder)) == before
    assert router.contributions["law"] == ()


def test_a_file_that_changes_after_it_was_read_is_refused(tmp_path: Path) -> None:
    path = OWNERS["c1"].save(tmp_path / "law.stats")
    read = Contribution.load(path)
    OWNERS["c2"].save(path)
    router = fitted()
    with pytest.raises(ArtifactError, match="has changed since it was read"):
        router.merge("law", read)
    assert tiny.same_table(router, fitted())


@settings(tiny.LAW, max_examples=10)
@given(some_texts, st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), max_size=20), st.booleans())
def test_a_file_says_all_there_is_to_know(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], owner: str, keep_sample: bool
) -> None:
    path = tmp_path_factory.mktemp("files") / "x.stats"
    given_away = contribution(texts, keep_sample=keep_sample, owner=owner)
    read = Contribution.load(given_away.save(path))
    assert (read.id, read.owner, read.digest, read.sha256) == (
        given_away.id, given_away.owner, given_away.digest, given_away.sha256,
    )  # fmt: skip
    assert read.statistics() == given_away.statistics()
    assert read.without_sample().statistics().sample is None


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


def test_a_damaged_ledger_says_where_and_the_router_routes_on(tmp_path: Path) -> None:
    changed(tmp_path / "router")
    path = tmp_path / "router" / "ledger.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    router = Router.load(tmp_path / "router")
    assert router.route("is the contract void").expert == "law"
    with pytest.raises(ArtifactError, match=r"ledger\.jsonl:6 is damaged: it is no entry"):
        router.history  # noqa: B018


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
    assert all(check.holds for check in checks) and len(checks) == 11
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
    from dataclasses import replace

    forged = Router(replace(honest._parts, compiled=other.compiled))
    seen = {check.claim[:9]: check.holds for check in verify(forged.save(tmp_path / "forged"))}
    assert seen["the table"] is False
    held = other.holdings
    hidden = Router(replace(honest._parts, holdings=lambda: held))
    seen = {check.claim[:13]: check.holds for check in verify(hidden.save(tmp_path / "hidden"))}
    assert seen["each expert's"] is False and seen["it holds the "] is False


def test_lines_come_back(tmp_path: Path) -> None:
    history = changed(tmp_path / "router").history
    assert from_lines(to_lines(history), Path("x")) == history


def test_the_page_runs() -> None:
    page = Path(__file__).parent.parent / "docs" / "contributions.md"
    assert doctest.testfile(str(page), module_relative=False).failed == 0
