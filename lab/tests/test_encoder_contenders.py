"""The routers on encoders: which are planned, run, resumed and left out, and how what is left out is shown."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import complaint, run, run_json
from experiment_files import LINEAR, chosen, random_matrix, write_results
from ir3de.errors import ArtifactError, InputError
from ir3de_lab.experiments import choices, left_out, settings
from ir3de_lab.experiments.choices import Choices
from ir3de_lab.experiments.encoder_contenders import BERT_RATES, NEAREST_K, RATES, Ways, encoders, planned
from ir3de_lab.experiments.matrix import Matrix
from ir3de_lab.experiments.results import outcomes, read
from ir3de_lab.experiments.settings import Encoders
from ir3de_lab.experiments.tables import tables
from ir3de_lab.rivals.encoder import Encoder, Precision
from test_experiment_running import write_outcomes
from test_rivals import TEST, TRAIN, write_encoder
from tiny_experts import setting_file, suites

TWO = Encoders("minilm-l6", "minilm-l6", "all-mpnet-base-v2")
REASON = "it needs an accelerator"


def test_every_cell_is_planned_for_every_encoder_and_rate() -> None:
    plans = planned(TWO)
    names = [plan.name for plan in plans]
    assert len(set(names)) == len(names) == 2 * (2 * len(NEAREST_K) + 2 * len(RATES) + len(BERT_RATES))
    assert {plan.at for plan in plans if plan.method == "MoDEM"} == {1e-5, 1e-4, 1e-3, 1e-2, 1e-1}
    assert {plan.series for plan in plans if plan.method == "BERT-router"} == {
        "BERT-router (MiniLM-L6, 512 tokens)",
        "BERT-router (all-mpnet-base-v2, 512 tokens)",
    }
    assert {(plan.size, plan.source) for plan in plans if plan.method == "MoDEM"} == {
        ("small", "minilm-l6"),
        ("large", "all-mpnet-base-v2"),
    }
    assert {"BERT-router, rate=2e-05 (MiniLM-L6, 512 tokens)", "kNN, mean, k=10 (MiniLM-L6, 512 tokens)"} <= set(names)
    frozen = [plan.frozen for plan in plans]
    assert frozen == sorted(frozen, reverse=True)  # what only encodes comes first


def test_an_encoder_that_stands_in_for_both_sizes_is_planned_once() -> None:
    plans = planned(replace(TWO, large="minilm-l6"))
    assert {plan.size for plan in plans if plan.method == "MoDEM"} == {"small/large"}
    assert len(plans) == 2 * len(NEAREST_K) + 2 * len(RATES) + len(BERT_RATES)


@pytest.mark.parametrize("name", ["clm", "clm-large", "reasoning", "reasoning-large", "routerdc7"])
def test_every_setting_with_domains_names_two_encoders_and_the_tokens_they_read(name: str) -> None:
    named = settings.load(name).encoders
    assert (named.small, named.large, named.tokens) == ("minilm-l6", "all-mpnet-base-v2", 512)


def test_a_setting_with_encoders_that_read_nothing_is_refused(tmp_path: Path) -> None:
    file = setting_file(tmp_path, tmp_path / "no-model")
    file.write_text(file.read_text().replace("[protocol.clean]", "[encoders]\ntokens = 0\n[protocol.clean]"))
    with pytest.raises(InputError, match=r"encoders\.tokens is 0: it must be 1 or more"):
        settings.load(file)


# what is left out -----------------------------------------------------------------------------------------------------


def a_router(name: str, **options: Any) -> Choices:
    return Choices(name, "rivals", "clean", chosen(random_matrix("score"), 0.1), LINEAR, **options)


def test_reasons_are_kept_until_the_router_or_its_curve_is_run(tmp_path: Path) -> None:
    left_out.update(tmp_path, {"a": REASON, "b": REASON, "a curve": REASON}, [])
    left_out.update(tmp_path, {"c": "no time"}, [a_router("b"), a_router("point", series="a curve", axis="k", at=1.0)])
    assert left_out.read(tmp_path) == {"a": REASON, "c": "no time"}
    left_out.update(tmp_path, {}, [a_router("a"), a_router("c")])
    assert list(tmp_path.iterdir()) == [] and left_out.read(tmp_path) == {}


@pytest.mark.parametrize("routers", [None, [], {"a": ""}, {"a": 1}])
def test_a_file_without_reasons_is_refused(tmp_path: Path, routers: object) -> None:
    document = {"kind": left_out.KIND, "version": left_out.VERSION, "routers": routers}
    (tmp_path / left_out.LEFT_OUT).write_text(json.dumps(document))
    with pytest.raises(ArtifactError, match="expected a reason for each router"):
        left_out.read(tmp_path)


def test_what_was_not_run_has_a_row_and_a_reason_in_every_list_of_routers(tmp_path: Path) -> None:
    matrix = random_matrix("score", setting="routerdc7")
    folder = write_results(tmp_path / "routerdc7", matrix, [a_router("naive Bayes"), a_router("kNN (tiny)")])
    left_out.update(folder, {"MoDEM-large (big)": REASON}, [])
    for table in (table for table in tables(read(folder)) if table.name in ("main", "raw", "needs")):
        names = [row.name for row in table.rows]
        assert names.index("MoDEM-large (big)") == names.index("kNN (tiny)") + 1, table.name
        row = table.rows[names.index("MoDEM-large (big)")]
        assert [cell.text for cell in row.cells] == ["n/a"] * len(table.columns)
        assert f"n/a, MoDEM-large (big): {REASON}." in table.caption


def test_no_cell_of_the_published_tables_is_empty_and_every_absent_one_has_its_reason() -> None:
    page = (Path(__file__).parents[2] / "results" / "README.md").read_text(encoding="utf-8")
    table: list[str] = []
    for line in page.splitlines():
        if line.startswith("|"):
            table.append(line)
        elif line and table:  # the caption, or what follows where there is none
            cells = {cell.strip() for row in table for cell in row.split("|")[2:-1]}
            assert "–" not in cells, table[0]
            assert "n/a" not in cells or re.search(r"(^|\. )n/a[,:] ", line), table[0]
            table = []


# what is taken from a setting with the same prompts -------------------------------------------------------------------


def two_settings(tmp_path: Path, ours: Matrix) -> list[str]:
    theirs = random_matrix("score", setting="reasoning")
    nearest = Choices("kNN (tiny)", "rivals", "clean", chosen(theirs, 0.1), LINEAR, 3.0, about={"encoder": "tiny"})
    write_results(tmp_path / "reasoning", theirs, [nearest, a_router("naive Bayes")])
    left_out.update(write_results(tmp_path / ours.setting, ours, []), {"kNN (tiny)": REASON, "other": REASON}, [])
    return ["--setting", ours.setting, "--results", str(tmp_path), "--encoders-from", "reasoning"]


def test_routers_on_an_encoder_are_taken_where_the_prompts_are_the_same(tmp_path: Path) -> None:
    ours = random_matrix("score", setting="reasoning-large")
    told = run_json("bench", "run", *two_settings(tmp_path, ours))
    assert told["made"] == 1
    [taken] = choices.read_all(tmp_path / "reasoning-large" / "choices", ours)
    assert taken.router == "kNN (tiny)" and (taken.columns == chosen(ours, 0.1)).all() and taken.fit_seconds == 3.0
    assert left_out.read(tmp_path / "reasoning-large") == {"other": REASON}


def test_nothing_is_taken_from_other_prompts(tmp_path: Path) -> None:
    ours = random_matrix("score", setting="reasoning-large")
    ours = replace(ours, items=tuple(f"{item}!" for item in ours.items))
    said = complaint("bench", "run", *two_settings(tmp_path, ours))
    assert "'reasoning' has other prompts or experts than 'reasoning-large'" in said and "--encoders-from" in said
    assert not list((tmp_path / "reasoning-large" / "choices").glob("*.json"))


# what is chosen on training texts -------------------------------------------------------------------------------------


def curve(validation: dict[float, float | None]) -> list[Choices]:
    matrix = random_matrix("score")
    return [
        Choices(
            f"kNN, k={at:g} (tiny)", "rivals", "clean", chosen(matrix, at / 20, 5), LINEAR, series="kNN (tiny)",
            axis="neighbours", at=at, about={} if right is None else {"validation": right},
        )
        for at, right in validation.items()
    ]  # fmt: skip


def names_of(tmp_path: Path, routers: list[Choices]) -> tuple[list[str], str]:
    main = tables(read(write_results(tmp_path / "one", random_matrix("score"), routers)))[0]
    return [row.name for row in main.rows if row.name.startswith("kNN")], " ".join(main.caption)


def test_the_one_chosen_on_training_texts_is_shown_beside_the_best(tmp_path: Path) -> None:
    names, said = names_of(tmp_path, curve({1.0: 90.0, 5.0: 95.0, 10.0: 95.0}))
    assert names == ["kNN, best k=1 (tiny)", "kNN, chosen k=5 (tiny)"]  # of two alike the first
    assert "a tenth of the training texts that was held out" in said


def test_where_one_was_not_tried_on_training_texts_none_is_chosen_by_them(tmp_path: Path) -> None:
    assert names_of(tmp_path, curve({1.0: 90.0, 5.0: None}))[0] == ["kNN, best k=1 (tiny)"]


# with a real encoder --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("encoder")
    write_encoder(made)
    (made / "sentence_bert_config.json").write_text('{"max_seq_length": 32}')
    return made


@pytest.mark.torch
def test_an_encoder_reads_no_more_than_it_has_positions_for(folder: Path) -> None:
    assert (Encoder(folder, longest=512).reads, Encoder(folder, longest=16).reads) == (64, 16)
    assert len(Encoder(folder, longest=512).tokens(["word " * 900])[0]) == 64
    assert (Encoder(folder).trained_on, Encoder(folder.parent).trained_on) == (32, None)


@pytest.mark.torch
def test_positions_that_begin_after_the_padding_are_fewer(tmp_path: Path) -> None:
    import transformers

    write_encoder(tmp_path)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.MPNetConfig(vocab_size=100, max_position_embeddings=34, pad_token_id=1, **shape)
    transformers.MPNetModel(config).save_pretrained(tmp_path)
    encoder = Encoder(tmp_path, longest=512, device="cpu")
    assert encoder.reads == 32
    assert encoder.encode(["flour " * 100]).shape == (1, 16)


@pytest.mark.torch
@pytest.mark.parametrize(("precision", "is_half"), [("float32", False), ("bfloat16", True)])
def test_products_are_in_the_precision_that_was_asked_for(folder: Path, precision: Precision, is_half: bool) -> None:
    import torch

    class LookedError(Exception):  # not every processor multiplies in bfloat16
        pass

    def look(*_: object) -> None:
        assert torch.is_autocast_enabled("cpu") == is_half
        raise LookedError

    encoder = Encoder(folder, device="cpu", precision=precision)
    encoder._loaded[1].register_forward_pre_hook(look)
    with pytest.raises(LookedError):
        encoder.encode(["flour"])


@pytest.mark.torch
def test_vectors_in_a_folder_are_those_that_were_made(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [*TEST["law"], TEST["law"][0], "half a pair \ud800", ""]
    plain = Encoder(folder, device="cpu").encode(texts)
    Encoder(folder, device="cpu", store=tmp_path / "store").encode(texts[:5])
    again = Encoder(folder, device="cpu", store=tmp_path / "store")
    encoded: list[str] = []
    encode = again._encode
    monkeypatch.setattr(again, "_encode", lambda texts, poolings: encoded.extend(texts) or encode(texts, poolings))
    assert np.allclose(again.encode(texts), plain, atol=1e-5)
    assert not set(encoded) & set(texts[:5]) and set(texts[5:-3]) <= set(encoded)


@pytest.mark.torch
def test_vectors_of_another_encoder_or_length_are_refused(folder: Path, tmp_path: Path) -> None:
    import torch
    import transformers

    store = tmp_path / "store"
    Encoder(folder, device="cpu", store=store).encode(["flour"])
    with pytest.raises(ArtifactError, match=r"\(at 64 tokens, and not at 8\): name another folder"):
        Encoder(folder, device="cpu", store=store, longest=8).encode(["flour"])
    write_encoder(tmp_path)
    torch.manual_seed(1)
    transformers.BertModel(transformers.BertConfig.from_pretrained(folder)).save_pretrained(tmp_path)
    with pytest.raises(ArtifactError, match="vectors of another encoder"):
        Encoder(tmp_path, device="cpu", store=store).encode(["flour"])
    (path,) = store.glob("*.npz")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ArtifactError, match="is damaged"):
        Encoder(folder, device="cpu", store=store).encode(["flour"])


def on_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Encoder, "device", "cpu")
    monkeypatch.setattr("ir3de_lab.rivals.modem.HEAD_EPOCHS", 2)


@pytest.mark.torch
def test_without_an_accelerator_what_takes_hours_is_left_out_with_its_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cores(monkeypatch)
    named = Encoders(str(folder), str(folder), str(folder.parent / "nowhere"))
    reasons: dict[str, str] = {}  # by the name of a router, or of its curve
    made = list(encoders(TRAIN, named, Ways(leave_out=reasons.__setitem__)))
    assert len(made) == 2 * len(NEAREST_K) + len(RATES)
    assert {entry.about["encoder_tokens"] for entry in made} == {64}
    assert all(0 <= entry.about["validation"] <= 100 and "64 tokens" in entry.name for entry in made)
    plans = [replace(plan, tokens=512 if plan.source.endswith("nowhere") else 64) for plan in planned(named)]
    curves = {plan.series or plan.name for plan in plans}
    assert {entry.series for entry in made} | reasons.keys() == curves
    assert not {entry.series for entry in made} & reasons.keys()
    for name, reason in reasons.items():
        absent = "(nowhere, " in name
        assert ("is no encoder that transformers can read" in reason) == absent, name
        assert ("trains an encoder, which takes hours without an accelerator" in reason) == (not absent), name
    nearest = next(entry for entry in made if entry.series and entry.series.startswith("kNN, mean"))
    assert nearest.about["validation"] == 100  # the domains share no word


@pytest.mark.torch
def test_a_large_encoder_is_run_on_cores_by_the_patient_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_cores(monkeypatch)
    named = Encoders(*[str(folder)] * 3)
    for bound, said in (("LARGEST_ON_CORES", "its encoder is large"), ("MOST_TOKENS_ON_CORES", "tokens to encode")):
        reasons: dict[str, str] = {}
        with monkeypatch.context() as patch:
            patch.setattr(f"ir3de_lab.experiments.encoder_contenders.{bound}", 10)
            assert list(encoders(TRAIN, named, Ways(leave_out=reasons.__setitem__))) == []
            assert said in next(iter(reasons.values()))
            patient = encoders(TRAIN, named, Ways(patient=True))
            assert next(patient).name.startswith("kNN, CLS, k=1")


@pytest.fixture
def tiny_setting(tmp_path: Path, folder: Path) -> Callable[..., dict[str, Any]]:
    data = suites(tmp_path / "suites")
    file = setting_file(tmp_path, tmp_path / "no-model")
    named = f'[encoders]\nbert = "{folder}"\nsmall = "{folder}"\nlarge = "{folder}"\n[protocol.clean]'
    file.write_text(file.read_text().replace("[protocol.clean]", named))
    write_outcomes(file, data, tmp_path / "results")
    arguments = ("--setting", file, "--data", data, "--results", tmp_path / "results", "--only", "encoders")
    return lambda *more: run_json("bench", "run", *arguments, "--vectors", tmp_path / "vectors", *more)


@pytest.mark.torch
def test_processes_can_share_the_routers_by_parts_of_their_names(
    tiny_setting: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cores(monkeypatch)
    assert tiny_setting("--matching", "kNN, mean")["made"] == len(NEAREST_K)
    assert tiny_setting("--matching", "kNN, CLS", "--matching", "frozen")["made"] == len(NEAREST_K) + len(RATES)
    assert tiny_setting("--resume")["made"] == 0  # together they were all that can be run here
    assert tiny_setting("--matching", "no such router")["made"] == 0


@pytest.mark.torch
def test_an_encoder_alone_on_its_machine_shares_nothing(folder: Path) -> None:
    assert not Encoder(folder, device="cpu").shares_accelerator()


@pytest.mark.torch
def test_others_on_the_accelerator_are_noticed_by_the_memory_they_hold(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, gigabyte = Encoder(folder, device="cuda"), 2**30
    monkeypatch.setattr(encoder.torch.cuda, "memory_reserved", lambda: 20 * gigabyte)
    for used, shares in ((21, False), (40, True)):
        monkeypatch.setattr(
            encoder.torch.cuda, "mem_get_info", lambda used=used: ((80 - used) * gigabyte, 80 * gigabyte)
        )
        assert encoder.shares_accelerator() is shares


@pytest.mark.torch
def test_a_run_that_was_stopped_goes_on_and_says_what_it_leaves_out(
    tiny_setting: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cores(monkeypatch)
    number = 2 * len(NEAREST_K) + len(RATES)
    assert tiny_setting()["made"] == number
    results = tmp_path / "results" / "tiny"
    kept = sorted((results / "choices").iterdir())
    kept[0].unlink()
    assert tiny_setting("--resume")["made"] == 1 and kept[0].is_file()
    assert tiny_setting()["made"] == number
    one = choices.read(kept[0], outcomes(results))
    assert one.about["encoder_tokens"] == 64 and one.about["encoder_precision"] == "float32"
    shown = [row.name for row in tables(read(results))[0].rows]
    assert len(left_out.read(results)) == 2 and set(left_out.read(results)) <= set(shown)
    assert [name for name in shown if ", chosen k=" in name] and [name for name in shown if ", chosen rate=" in name]
    assert sorted((tmp_path / "vectors").glob("*-512-tokens/*.npz"))


@pytest.mark.nightly
@pytest.mark.torch
def test_a_file_says_what_training_really_ran(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_cores(monkeypatch)
    few = {name: texts[:10] for name, texts in TRAIN.items()}
    ways = Ways(patient=True, matching=("BERT-router, rate=2e-05", "fine-tuned, rate=0.001", "frozen, rate=0.001"))
    made = {entry.name.partition(",")[0]: entry for entry in encoders(few, Encoders(*[str(folder)] * 3), ways)}
    for entry in made.values():
        about = entry.about
        assert 0 <= about["epoch_kept"] <= about["epochs_run"] and entry.at in (2e-5, 1e-3)
    bert = made["BERT-router"].about
    assert set(bert["texts_trained_on"].values()) == {9} and set(bert["texts_validated_on"].values()) == {1}
    assert len(bert["validation_by_epoch"]) == bert["epochs_run"] <= bert["most_epochs"]
    assert bert["validation"] == bert["validation_by_epoch"][bert["epoch_kept"] - 1] == max(bert["validation_by_epoch"])


def test_without_torch_nothing_is_left_out_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    data, file = suites(tmp_path / "suites"), setting_file(tmp_path, tmp_path / "no-model")
    write_outcomes(file, data, tmp_path / "results")
    arguments = ("--setting", file, "--data", data, "--results", tmp_path / "results", "--only", "encoders")
    assert "left out the routers that stand on an encoder" in " ".join(run("bench", "run", *arguments).stderr.split())
    assert left_out.read(tmp_path / "results" / "tiny") == {}
