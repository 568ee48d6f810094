"""What owners give comes in any order and goes out again without a trace."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from owners import OWNERS, contribution, fitted

import tiny
from ir3de import Contribution, Router, collect, files
from ir3de.errors import ArtifactError, InputError, MismatchError
from ir3de.files.router_folder import inspect_router
from ir3de.files.tensors import from_safetensors, to_safetensors
from ir3de.statistics.files import encode_statistics
from laws import some_texts


@pytest.mark.slow
@tiny.law_settings(max_examples=8)
@given(st.permutations(sorted(OWNERS)), st.integers(0, 3), st.booleans(), st.booleans(), st.booleans())
@pytest.mark.nightly
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
    # a merge keeps the scorer that the texts alone chose; a fit from contributions chose it with the one that went
    router.remove("law", contribution=gone, scorer="keep" if texts else "choose")
    never = fitted(*reversed(left), texts=texts)
    assert tiny.same_table(router, never) and tiny.same_samples(router, never)
    assert tiny.contents(router.save(folder / "one")) == tiny.contents(never.save(folder / "two"))


WHOLE = {n: contribution(tiny.sentences("law", 8, seed=n), keep_sample=True, id=f"c{n}") for n in (1, 2, 3)}


def tuned(*law: object, **others: object) -> Router:
    return Router.fit({**tiny.domain_texts(), "law": [*law], **others}, embedding=tiny.embedding(), tune=True)


def while_tuned() -> Router:
    return tuned(WHOLE[1], WHOLE[2])


def in_another_expert_later() -> Router:
    router = tuned(WHOLE[1], WHOLE[2])
    router.merge("maths", WHOLE[1])
    router.remove("maths", contribution="c1")
    return router


def when_another_went() -> Router:
    router = tuned(WHOLE[3], WHOLE[2])
    router.merge("law", WHOLE[1])
    router.remove("law", contribution="c3")
    return router


@pytest.mark.slow
@pytest.mark.parametrize("tuned_with_it", [while_tuned, in_another_expert_later, when_another_went])
@pytest.mark.nightly
def test_a_tuned_router_is_tuned_again_without_what_went_out(
    tmp_path: Path, tuned_with_it: Callable[[], Router]
) -> None:
    router, never = tuned_with_it(), tuned(WHOLE[2])
    router.remove("law", contribution="c1", scorer="choose")
    assert router.trials == never.trials
    assert tiny.contents(router.save(tmp_path / "one")) == tiny.contents(never.save(tmp_path / "two"))


@pytest.mark.nightly
def test_without_a_ledger_tuning_is_taken_to_have_seen_everything(tmp_path: Path) -> None:
    while_tuned().save(tmp_path / "router")
    (tmp_path / "router" / "ledger.jsonl").unlink()
    router = Router.load(tmp_path / "router")
    router.remove("law", contribution="c1", scorer="choose")
    assert router.trials == tuned(WHOLE[2]).trials


@pytest.mark.nightly
def test_windows_are_chosen_anew_where_only_texts_are_left() -> None:
    texts = tiny.domain_texts()
    router, never = (Router.fit(texts, embedding=tiny.embedding()) for _ in range(2))
    router.merge("law", WHOLE[1])
    router.tune()
    router.remove("law", contribution="c1", scorer="choose")
    never.tune()
    assert router.trials == never.trials and tiny.same_table(router, never)


def test_what_tuning_needed_can_still_be_taken_out() -> None:
    router = tuned(WHOLE[1], OWNERS["c3"])  # which brings no prompts
    router.remove("law", contribution="c1", scorer="choose")
    never = Router.fit({**tiny.domain_texts(), "law": OWNERS["c3"]}, embedding=tiny.embedding())
    assert router.trials == () and tiny.same_table(router, never)


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


def test_a_borrowed_fingerprint_does_not_pass(tmp_path: Path) -> None:
    own = OWNERS["c1"].statistics()
    longer = replace(own, histogram=np.append(own.histogram, 1))
    with pytest.raises(MismatchError, match="are of 331 tokens and 12 columns, the embedding has 330 and 12"):
        fitted().add("more law", Contribution.of(longer))


def test_what_owners_write_is_taken_for_no_file_of_the_router(tmp_path: Path) -> None:
    named = Contribution.of(OWNERS["c1"].statistics(), recipe={"name": "x", "sha256": "0"})
    router = fitted()
    router.merge("law", named)
    assert inspect_router(router.save(tmp_path / "router")).whole


def test_a_file_from_before_there_were_contributions_is_one(tmp_path: Path) -> None:
    """Its header does not say how many prompts were kept: they go out all the same."""
    statistics = OWNERS["c2"].statistics()
    tensors, header = from_safetensors(encode_statistics(statistics), tmp_path)
    header = {key: value for key, value in header.items() if key not in ("kept", "sha256")}
    (tmp_path / "old.stats").write_bytes(to_safetensors(tensors, files.seal(header)))
    old = Contribution.load(tmp_path / "old.stats")
    assert old.kept == len(statistics.sample) and old.without_sample().statistics().sample is None
    router = fitted("c1")
    router.merge("law", old)
    router.remove("law", contribution=old.id)
    assert tiny.same_samples(router, fitted("c1"))


def test_a_header_without_end_is_refused(tmp_path: Path) -> None:
    header = json.dumps({"__metadata__": {"ir3de": "[" * 100_000}}).encode()
    (tmp_path / "deep.stats").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ArtifactError, match="truncated or damaged"):
        Contribution.load(tmp_path / "deep.stats")


def test_a_file_that_changes_after_it_was_read_is_refused(tmp_path: Path) -> None:
    path = OWNERS["c1"].save(tmp_path / "law.stats")
    read = Contribution.load(path)
    OWNERS["c2"].save(path)
    router = fitted()
    with pytest.raises(ArtifactError, match="has changed since it was read"):
        router.merge("law", read)
    assert tiny.same_table(router, fitted())


@tiny.law_settings(max_examples=10)
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
