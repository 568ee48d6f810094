"""Experts are trained and asked for real, a tiny model on a CPU: the same code as on an accelerator."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny_experts
from ir3de.errors import ArtifactError, InputError
from ir3de_lab.experiments import material, matrix, settings
from ir3de_lab.experiments.answers import answers_file, ask_all
from ir3de_lab.experiments.material import Material
from ir3de_lab.experiments.outcomes import assemble
from ir3de_lab.experiments.settings import Setting

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # warnings of the two libraries

from ir3de_lab.experiments.experts import models, training  # noqa: E402
from ir3de_lab.experiments.experts.asking import Continuation, negative_log_likelihoods  # noqa: E402
from ir3de_lab.experiments.experts.examples import IGNORED, Answers, Batch, blocks  # noqa: E402
from ir3de_lab.experiments.experts.generating import STEPS_BETWEEN_LOOKS, Request, generate  # noqa: E402
from ir3de_lab.experiments.experts.training import train  # noqa: E402


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_experts.base_model(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_experts.suites(tmp_path_factory.mktemp("suites"))


def of(folder: Path, base: Path, data: Path, **changes: Any) -> tuple[Setting, Material]:
    setting = settings.load(tiny_experts.setting_file(folder, base, **changes))
    return setting, material.load(setting, data)


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    found = next(iter(sorted(folder.glob("*model*.safetensors"))))
    return load_file(found)  # type: ignore[no-any-return]


@pytest.mark.nightly
def test_an_expert_is_best_at_its_own_domain(tmp_path: Path, base: Path, data: Path) -> None:
    setting, texts = of(tmp_path, base, data, steps=40)
    assert train(setting, texts.train, tmp_path / "experts", device="cpu") == ["cooking", "law"]
    ask_all(setting, texts, tmp_path / "experts", say=lambda _: None, device="cpu")
    made = assemble(setting, texts, tmp_path / "experts").matrices["outcomes"]
    assert made.columns == ("cooking", "law", "average", "base")
    own = made.of_columns(made.own_expert)
    assert (own < made.values[:, 3]).all()  # better than the model it began as
    assert (own <= made.values[:, :2].min(axis=1)).all()
    matrix.write(made, tmp_path / "outcomes.jsonl.xz")
    assert np.allclose(matrix.read(tmp_path / "outcomes.jsonl.xz").values, made.values, atol=1e-3)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_training_that_was_stopped_goes_on_to_the_same_weights(
    tmp_path: Path, base: Path, data: Path, method: str
) -> None:
    setting, texts = of(tmp_path, base, data, method=method)
    train(setting, texts.train, tmp_path / "whole", domains=("law",), device="cpu")

    def stop(_: str, step: int, __: float) -> None:
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(setting, texts.train, tmp_path / "parts", domains=("law",), on_step=stop, device="cpu")
    assert not (tmp_path / "parts" / "law" / "training.json").exists()
    train(setting, texts.train, tmp_path / "parts", domains=("law",), device="cpu")
    whole, parts = weights(tmp_path / "whole" / "law"), weights(tmp_path / "parts" / "law")
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    losses = json.loads((tmp_path / "parts" / "law" / "training.json").read_text())["losses"]
    assert losses == json.loads((tmp_path / "whole" / "law" / "training.json").read_text())["losses"]
    assert len(losses) == 8 and losses[-1] < losses[0]


@pytest.mark.nightly
def test_an_adapter_leaves_the_base_alone_and_is_added_when_asked(tmp_path: Path, base: Path, data: Path) -> None:
    setting, texts = of(tmp_path, base, data, method="lora", steps=30)
    train(setting, texts.train, tmp_path / "experts", device="cpu")
    assert (tmp_path / "experts" / "law" / "adapter_config.json").is_file()
    assert not (tmp_path / "experts" / "law" / "model.safetensors").exists()
    ask_all(setting, texts, tmp_path / "experts", say=lambda _: None, device="cpu")
    made = assemble(setting, texts, tmp_path / "experts").matrices["outcomes"]
    assert (made.of_columns(made.own_expert) < made.values[:, 3]).all()


def test_experts_that_are_there_are_not_trained_again(tmp_path: Path, base: Path, data: Path) -> None:
    setting, texts = of(tmp_path, base, data, steps=3)
    train(setting, texts.train, tmp_path / "experts", device="cpu")
    assert train(setting, texts.train, tmp_path / "experts", device="cpu") == []
    other, _ = of(tmp_path, base, data, steps=4)
    with pytest.raises(InputError, match="steps = 3, the setting says 4: name another folder"):
        train(other, texts.train, tmp_path / "experts", device="cpu")


def test_a_training_that_was_stopped_goes_on_by_its_own_recipe_alone(tmp_path: Path, base: Path, data: Path) -> None:
    def stop(_: str, step: int, __: float) -> None:
        if step == 5:
            raise KeyboardInterrupt

    setting, texts = of(tmp_path, base, data)
    with pytest.raises(KeyboardInterrupt):
        train(setting, texts.train, tmp_path / "experts", domains=("law",), on_step=stop, device="cpu")
    other, _ = of(tmp_path, base, data, steps=20)
    with pytest.raises(InputError, match="steps = 8, the setting says 20: name another folder"):
        train(other, texts.train, tmp_path / "experts", domains=("law",), device="cpu")
    state = tmp_path / "experts" / "law" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-7])
    with pytest.raises(ArtifactError, match=r"state\.safetensors is damaged .*: delete it"):
        train(setting, texts.train, tmp_path / "experts", domains=("law",), device="cpu")


def test_experts_of_another_base_model_are_not_begun_from_this_one(tmp_path: Path, base: Path, data: Path) -> None:
    setting, texts = of(tmp_path, base, data, steps=3)
    train(setting, texts.train, tmp_path / "experts", domains=("law",), device="cpu")
    other, _ = of(tmp_path, base.parent / "another", data, steps=3)
    with pytest.raises(InputError, match=r"the setting says '.*another': name another folder"):
        train(other, texts.train, tmp_path / "experts", domains=("cooking",), device="cpu")


def test_without_a_clip_gradients_are_as_they_come(tmp_path: Path, base: Path, data: Path) -> None:
    setting, texts = of(tmp_path, base, data, steps=20)
    free = replace(setting, training=replace(setting.training, clip=0.0))
    train(free, texts.train, tmp_path / "experts", domains=("law",), device="cpu")
    losses = json.loads((tmp_path / "experts" / "law" / "training.json").read_text())["losses"]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"recipe": 3}'])
def test_an_expert_whose_record_is_damaged_is_refused(tmp_path: Path, base: Path, data: Path, content: str) -> None:
    setting, texts = of(tmp_path, base, data)
    (tmp_path / "experts" / "law").mkdir(parents=True)
    (tmp_path / "experts" / "law" / "training.json").write_text(content)
    with pytest.raises(ArtifactError, match=r"training\.json is damaged.*[Dd]elete the folder"):
        train(setting, texts.train, tmp_path / "experts", domains=("law",), device="cpu")


def test_likelihoods_are_those_of_one_text_at_a_time(base: Path) -> None:
    model = models.load(base, device="cpu").to_ask()
    texts = [Continuation(ids) for texts in tiny_experts.DOMAINS.values() for ids in model.ids(texts)]
    together = negative_log_likelihoods(model, texts, batch_tokens=1_000)
    alone = [negative_log_likelihoods(model, [text], batch_tokens=1)[0] for text in texts]
    assert np.allclose(together, alone, rtol=1e-4)
    ids = torch.tensor([texts[0].ids])
    with torch.inference_mode():
        logs = model.model(ids).logits.log_softmax(dim=-1)[0]
    by_hand = -sum(float(logs[i - 1, ids[0, i]]) for i in range(1, ids.shape[1]))
    assert math.isclose(together[0], by_hand, rel_tol=1e-4)
    tail = Continuation(texts[0].ids, begin=len(texts[0].ids) - 1)
    assert 0 < negative_log_likelihoods(model, [tail], 100)[0] < together[0]
    assert negative_log_likelihoods(model, [Continuation([5], 1)], 100)[0] == 0.0  # nothing to predict


PROMPTS = ["boil the egg", "the court held that the contract is void and", "fry"]


def test_answers_do_not_depend_on_what_is_asked_beside_them(base: Path) -> None:
    model = models.load(base, device="cpu").to_ask()
    requests = [Request(prompt, most) for prompt in PROMPTS for most in (1, 6, 2 * STEPS_BETWEEN_LOOKS + 3)]
    together = generate(model, requests, longest=64, batch_tokens=10_000, prompt_tokens=30)
    alone = [generate(model, [request], longest=64, batch_tokens=1)[0] for request in requests]
    assert together == alone


def test_the_likeliest_answers_are_those_of_transformers(base: Path) -> None:
    model = models.load(base, device="cpu").to_ask()
    for prompt, ours in zip(
        PROMPTS, generate(model, [Request(p, 40) for p in PROMPTS], longest=64, batch_tokens=10_000), strict=True
    ):
        ids = torch.tensor(model.chat_ids([prompt]))
        theirs = model.model.generate(
            input_ids=ids, max_new_tokens=40, do_sample=False, eos_token_id=model.end, pad_token_id=model.end
        )[0, ids.shape[1] :]
        assert ours == model.tokenizer.decode(theirs, skip_special_tokens=True).strip("\r\n").rstrip()


@pytest.mark.nightly
def test_drawn_answers_follow_the_seed_and_the_model(base: Path) -> None:
    model = models.load(base, device="cpu").to_ask()
    requests = [Request(PROMPTS[0], 1, temperature=0.7)] * 4_000
    drawn = generate(model, requests, longest=64, batch_tokens=10**6, seed=3)
    assert drawn == generate(model, requests, longest=64, batch_tokens=10**6, seed=3)
    assert drawn != generate(model, requests, longest=64, batch_tokens=10**6, seed=4)
    with torch.inference_mode():
        logits = model.model(torch.tensor(model.chat_ids(PROMPTS[:1]))).logits[0, -1]
    expected: dict[str, float] = {}
    for token, chance in enumerate((logits / 0.7).softmax(dim=-1).tolist()):
        text = model.tokenizer.decode([token], skip_special_tokens=True).strip("\r\n").rstrip()
        expected[text] = expected.get(text, 0.0) + chance
    for text, chance in sorted(expected.items(), key=lambda pair: -pair[1])[:3]:
        noise = math.sqrt(chance * (1 - chance) / len(drawn))
        assert abs(drawn.count(text) / len(drawn) - chance) < 5 * noise


def test_the_end_of_a_turn_ends_an_answer_too(base: Path) -> None:
    model = models.load(base, device="cpu").to_ask()
    ids = torch.tensor(model.chat_ids(PROMPTS[:1]))
    written = model.model.generate(input_ids=ids, max_new_tokens=8, do_sample=False)[0, ids.shape[1] :].tolist()
    turn = written[3]  # as if this token ended a turn
    token = model.tokenizer.convert_ids_to_tokens(turn)
    model.tokenizer.add_special_tokens({"additional_special_tokens": [token]})
    after = "{{ '" + token + "' if m.role == 'assistant' else '\n\n' }}"
    model.tokenizer.chat_template = "{% for m in messages %}{{ m.content }}" + after + "{% endfor %}"
    assert model.ends == (model.end, turn)
    (answer,) = generate(model, [Request(PROMPTS[0], 8)], longest=64, batch_tokens=100)
    assert answer == model.tokenizer.decode(written[: written.index(turn)]).strip("\r\n").rstrip()


def test_query_heads_that_share_keys_attend_as_in_torch() -> None:
    from ir3de_lab.experiments.experts.generating import _attend

    torch.manual_seed(0)
    query, key, value = torch.randn(3, 6, 1, 8), torch.randn(3, 2, 5, 8), torch.randn(3, 2, 5, 8)
    mask = torch.tensor([[True] * 5, [False] * 3 + [True] * 2, [False] + [True] * 4])[:, None, None]
    found, _ = _attend(None, query, key, value, mask)
    wanted = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)
    assert torch.allclose(found, wanted.transpose(1, 2), atol=1e-6)


def test_only_answers_are_learnt(base: Path, tmp_path: Path, data: Path) -> None:
    setting, _ = of(tmp_path, base, data)
    batch = Answers([[7, 8, 9]], [[3, 0]], 0, setting.training).batch(0)
    assert batch.ids[0].tolist() == [7, 8, 9, 3, 0]
    assert batch.labels[0].tolist() == [IGNORED, IGNORED, IGNORED, 3, 0]


def test_a_batch_that_is_read_in_parts_has_the_gradient_of_the_whole(base: Path) -> None:
    model = models.load(base, device="cpu")
    ids = np.random.default_rng(0).integers(0, 50, (5, 12))
    labels = np.where(np.arange(12) < np.array([[3], [9], [5], [11], [2]]), IGNORED, ids)  # answers of unequal length
    found = []
    for most_tokens in (12, 25, 10_000):
        loss = training._learn(model, Batch(ids, labels), most_tokens)
        found.append([loss, *(p.grad.norm().item() for p in model.model.parameters() if p.grad is not None)])
        model.model.zero_grad()
    assert len(found[0]) > 5
    np.testing.assert_allclose(found[0], found[2], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found[1], found[2], rtol=1e-4, atol=1e-6)


def test_a_batch_whose_answers_are_all_cut_off_teaches_nothing(tmp_path: Path, base: Path, data: Path) -> None:
    setting, _ = of(tmp_path, base, data)
    rows = [{"text": "boil the egg in salted water " * 9, "answer": "yes"}]  # longer than an example may be
    told = replace(setting, metric="score", tasks={"law": "ifeval"})
    train(told, {"law": rows}, tmp_path / "experts", domains=("law",), device="cpu")
    assert set(json.loads((tmp_path / "experts" / "law" / "training.json").read_text())["losses"]) == {0.0}
    kept, before = weights(tmp_path / "experts" / "law"), weights(tmp_path / "experts" / "base")
    assert all(torch.equal(kept[name], before[name]) for name in before)


def test_a_step_whose_gradient_is_no_number_is_left_out(
    tmp_path: Path, base: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, texts = of(tmp_path, base, data)
    honest, seen = training._loss, []

    def broken(*given: Any) -> Any:
        seen.append(honest(*given))
        return seen[-1] * (math.nan if len(seen) == 4 else 1)

    monkeypatch.setattr(training, "_loss", broken)
    train(setting, texts.train, tmp_path / "experts", domains=("law",), device="cpu")
    assert json.loads((tmp_path / "experts" / "law" / "training.json").read_text())["skipped"] == 1
    assert all(torch.isfinite(tensor).all() for tensor in weights(tmp_path / "experts" / "law").values())


def test_every_example_is_seen_before_one_is_seen_again(base: Path, tmp_path: Path, data: Path) -> None:
    setting, texts = of(tmp_path, base, data)
    model = models.load(base, device="cpu")
    given = blocks(texts.training_texts()["law"], model, setting.training, "law")
    count = len(given.blocks) - len(given.blocks) % 4
    seen = np.concatenate([given.batch(step).ids for step in range(count // 4)])
    assert len(np.unique(seen, axis=0)) == len(np.unique(given.blocks, axis=0)) or len(seen) < len(given.blocks)
    again = blocks(texts.training_texts()["law"], model, setting.training, "law")
    assert (again.batch(5).ids == given.batch(5).ids).all()


def test_answers_of_other_data_are_refused(tmp_path: Path, base: Path, data: Path) -> None:
    setting, texts = of(tmp_path, base, data, steps=2)
    train(setting, texts.train, tmp_path / "experts", device="cpu")
    ask_all(setting, texts, tmp_path / "experts", say=lambda _: None, device="cpu")
    fewer = Material(texts.train, texts.items[1:])
    with pytest.raises(ArtifactError, match=r"answers the item 'cooking/00000-\w+', which is unknown"):
        assemble(setting, fewer, tmp_path / "experts")
    answers_file(tmp_path / "experts", "law").unlink()
    with pytest.raises(InputError, match="no answers of 'law'"):
        assemble(setting, texts, tmp_path / "experts")


def test_a_domain_with_too_little_text_is_refused(tmp_path: Path, base: Path, data: Path) -> None:
    setting, _ = of(tmp_path, base, data)
    with pytest.raises(InputError, match="fewer than one block of 16"):
        train(setting, {"cooking": [{"text": "egg"}], "law": []}, tmp_path / "experts", device="cpu")


def test_models_of_different_shapes_have_no_mean(base: Path) -> None:
    one, other = (models.load(base, device="cpu") for _ in range(2))
    before = one.model.lm_head.weight.clone()
    with torch.no_grad():
        other.model.lm_head.weight += 2
    assert torch.allclose(models.averaged([one, other]).model.lm_head.weight, before + 1)
    other.model.resize_token_embeddings(40)
    with pytest.raises(InputError, match=r"their weights 'lm_head\.weight' differ in shape"):
        models.averaged([one, other])


def test_a_model_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no language model that transformers can read"):
        models.load(tmp_path)
