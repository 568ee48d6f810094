"""Prompts of the fit are recognised in an evaluation, as far as the sample can tell."""

from pathlib import Path

import tiny
from ir3de import Router
from ir3de.evaluation.prompts import PromptMemory, SeenPrompts
from ir3de.scorers import Blend
from ir3de.statistics.sample import MAX_PROMPTS


def count_seen(router: Router, prompts: dict[str, list[str]]) -> SeenPrompts:
    memory = PromptMemory.of(router)
    assert memory is not None
    for name, texts in prompts.items():
        for text in texts:
            memory.look_up(name, text)
    return memory.count()


def test_prompts_of_the_fit_are_counted() -> None:
    texts = tiny.domain_texts(20)
    router = tiny.router(20)
    new = [text + " indeed" for text in texts["law"]]
    found = count_seen(router, {"law": [*texts["law"], *new], "maths": texts["cooking"]})
    assert found == SeenPrompts(prompts=60, told=60, seen=40)
    told = found.describe("kept aside")
    assert told is not None and told.startswith("40 of 60 prompts were in the fit") and told.endswith("kept aside")
    assert count_seen(router, {"law": new}).describe("aside") is None


def test_a_full_sample_cannot_tell_all_prompts() -> None:
    many = [f"clause {n} of the contract" for n in range(2 * MAX_PROMPTS)]
    texts = {"law": many, "maths": ["What is 2 + 2?", "Solve x."]}
    router = Router.fit(texts, embedding=tiny.embedding(), scorer=Blend())
    found = count_seen(router, {"law": many})
    assert found.seen == found.told and MAX_PROMPTS <= found.told < MAX_PROMPTS + 5
    said = f"{found.seen:,} of the {found.told:,} prompts that could be checked were in the fit"
    assert str(found.describe("aside")).startswith(said)
    strangers = count_seen(router, {"law": [f"other {n}" for n in range(1_000)]})
    assert strangers.seen == 0 and 400 < strangers.told < 600


def test_a_few_prompts_in_common_are_no_reason_to_warn() -> None:
    assert SeenPrompts(prompts=100, told=100, seen=2).describe("aside") is None
    assert SeenPrompts(prompts=100, told=100, seen=3).describe("aside") is not None


def test_a_serving_copy_remembers_nothing(tmp_path: Path) -> None:
    tiny.router(5).save(tmp_path / "serving", serving=True)
    assert PromptMemory.of(Router.load(tmp_path / "serving")) is None
