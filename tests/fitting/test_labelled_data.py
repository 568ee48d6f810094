"""Router.fit takes what people hold: tables of pandas, polars and datasets, rows, pairs, files and folders."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tiny
from ir3de import Router
from ir3de.engines import Files
from ir3de.errors import InputError
from ir3de.evaluation import calibrate_threshold, evaluate
from refused import refusal, tiny_fit

PROMPTS = {
    "law": ["is this contract void", "can my landlord evict me", "the court and the contract"],
    "maths": ["what is twelve times seven", "solve the equation for x", "the sum of two numbers"],
}
TEXTS = [PROMPTS[name][place] for place in range(3) for name in ("maths", "law")]
LABELS = ["maths", "law"] * 3
COLUMNS: dict[str, list[Any]] = {"prompt": TEXTS, "team": LABELS, "id": list(range(6))}


def make_pandas() -> Any:
    return pytest.importorskip("pandas").DataFrame(COLUMNS)


def make_categories() -> Any:
    return make_pandas().astype({"team": "category"}).set_index("id")


def make_polars() -> Any:
    return pytest.importorskip("polars").DataFrame(COLUMNS)


def make_lazy() -> Any:
    return make_polars().lazy()


def make_dataset() -> Any:
    return pytest.importorskip("datasets").Dataset.from_dict(COLUMNS)


def make_classes() -> Any:
    """A Dataset whose labels are numbers that have names."""
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"prompt": datasets.Value("string"), "team": datasets.ClassLabel(names=["law", "maths"])}
    )
    numbers = [["law", "maths"].index(name) for name in LABELS]
    return datasets.Dataset.from_dict({"prompt": TEXTS, "team": numbers}, features=features)


def make_arrow() -> Any:
    return pytest.importorskip("pyarrow").table(COLUMNS)


def make_rows() -> Any:
    return [dict(zip(COLUMNS, values, strict=True)) for values in zip(*COLUMNS.values(), strict=True)]


TABLES: list[Callable[[], Any]] = [make_rows, make_arrow]
CLIENTS = [make_pandas, make_categories, make_polars, make_lazy, make_dataset, make_classes]


def same(router: Router, other: Router) -> bool:
    return tiny.same_table(router, other) and router.experts == other.experts and router.statistics == other.statistics


@pytest.mark.parametrize("make", [*TABLES, *(pytest.param(one, marks=pytest.mark.clients) for one in CLIENTS)])
def test_a_table_gives_the_router_of_its_texts_by_expert(make: Callable[[], Any]) -> None:
    wanted = tiny_fit(PROMPTS)
    assert same(tiny_fit(make(), label="team"), wanted)
    assert same(tiny_fit(make(), label="team", text="prompt"), wanted)
    measured = evaluate(wanted, make(), label="team")
    assert measured == evaluate(wanted, PROMPTS) and measured.prompts == 6


@pytest.mark.clients
@pytest.mark.parametrize("make", [make_pandas, make_polars, make_dataset])
def test_errors_of_tables_name_what_was_found(make: Callable[[], Any]) -> None:
    told = refusal(InputError, tiny_fit, make())
    assert "which column names the expert (label=…" in told and "'prompt', 'team', 'id'" in told
    told = refusal(InputError, tiny_fit, make(), label="tema")
    assert "found no field 'tema' for the label" in told and "did you mean 'team'?" in told
    told = refusal(InputError, tiny_fit, make(), label="team", text="id")
    assert "row 1: the field 'id' must hold a string, but found a number" in told
    told = refusal(InputError, tiny_fit, {"law": make(), "maths": TEXTS})
    assert f"the texts of 'law' must be an iterable of str, found a {type(make()).__name__}" in told
    assert "found a" in refusal(InputError, tiny_fit(PROMPTS).add, "more", make())


@pytest.mark.clients
def test_columns_go_in_as_pairs_and_nulls_are_no_labels() -> None:
    pandas = pytest.importorskip("pandas")
    frame = make_pandas()
    assert same(tiny_fit((frame["prompt"], frame["team"].to_numpy())), tiny_fit(PROMPTS))
    for missing in (None, float("nan"), pandas.NA):
        frame = pandas.DataFrame({**COLUMNS, "team": [*LABELS[:-1], missing]})
        assert "DataFrame, row 6: the row has no label" in refusal(InputError, tiny_fit, frame, label="team")
        with pytest.warns(UserWarning, match="1 of 6 rows could not be used"):
            fitted = tiny_fit(frame, label="team", skip_bad=1)
        assert fitted.statistics["law"].prompts == 2
    numbers = pandas.DataFrame({**COLUMNS, "team": [1.0, 10.0] * 3})
    assert tiny_fit(numbers, label="team").experts == ("1", "10")
    twice = pandas.DataFrame([["a", "b"]], columns=["team", "team"])
    assert "are there twice" in refusal(InputError, tiny_fit, twice, label="team")


@pytest.mark.clients
def test_a_dataset_of_splits_is_refused_with_their_names() -> None:
    datasets = pytest.importorskip("datasets")
    splits = datasets.DatasetDict(train=make_dataset(), test=make_dataset())
    told = refusal(InputError, tiny_fit, splits, label="team")
    assert told == "found a DatasetDict with the splits 'train', 'test': give one of them, for instance data['train']"
    assert same(tiny_fit(make_dataset().to_iterable_dataset(), label="team"), tiny_fit(PROMPTS))


def test_pairs_files_and_folders_give_the_same_router(tmp_path: Path) -> None:
    wanted = tiny_fit(PROMPTS)
    assert same(tiny_fit((TEXTS, LABELS)), wanted)
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in make_rows()))
    assert "train.jsonl has the columns 'prompt', 'team', 'id'" in refusal(InputError, tiny_fit, path)
    assert same(tiny_fit(path, label="team"), wanted) and same(tiny_fit([str(path)], label="team"), wanted)
    (tmp_path / "experts").mkdir()
    for name, texts in PROMPTS.items():
        (tmp_path / "experts" / f"{name}.txt").write_text("\n".join(texts))
    assert same(tiny_fit(tmp_path / "experts"), wanted)
    assert same(tiny_fit({name: Files(tmp_path / "experts" / f"{name}.txt") for name in PROMPTS}), wanted)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ((TEXTS, LABELS[:-1]), {}, "found 6 texts and 5 labels: give one label for each text"),
        (PROMPTS, {"label": "team"}, "names its experts itself: leave label= and text= out"),
        (TEXTS, {}, "domains must map each expert's name to its texts, found list"),
        (make_rows(), {"label": "team", "checkpoint": "c"}, "checkpoint= is for the files of each expert"),
        ("nowhere.csv", {"label": "team"}, "nowhere.csv: no such file or folder"),
        ("nowhere.csv", {}, "domains must map each expert's name to its texts, found str"),
    ],
)
def test_wrong_data_are_refused(data: object, options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tiny_fit(data, **options)


def test_a_threshold_is_picked_from_labelled_prompts() -> None:
    router = tiny.router()
    held_out = {name: [f"{text} {number}" for text in texts for number in range(8)] for name, texts in PROMPTS.items()}
    names = dict(zip(PROMPTS, router.experts, strict=False))
    by_expert = {names[name]: texts for name, texts in held_out.items()}
    pairs = [(text, name) for name, texts in by_expert.items() for text in texts]
    rows = [{"text": text, "team": name} for text, name in pairs]
    told = [calibrate_threshold(router, data, error=0.3, **options).chosen for data, options in (
        (by_expert, {}), (rows, {"label": "team"}), (tuple(zip(*pairs, strict=True)), {}),
    )]  # fmt: skip
    assert told[0] == told[1] == told[2]
