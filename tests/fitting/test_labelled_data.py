"""Router.fit takes what people hold: tables of pandas, polars and datasets, rows, pairs, files and folders."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tiny
from ir3de import Router, collect
from ir3de.corpora import read_labelled
from ir3de.engines import Files
from ir3de.errors import InputError
from ir3de.evaluation import calibrate_confidence, calibrate_threshold, evaluate, prove
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
    with pytest.warns(UserWarning, match="6 of 6 prompts were in the fit"):
        measured = evaluate(wanted, make(), label="team")
    assert measured.prompts == 6 and measured.sizes == {"law": 3, "maths": 3}


@pytest.mark.clients
@pytest.mark.parametrize("make", [make_pandas, make_polars, make_dataset])
def test_errors_of_tables_name_what_was_found(make: Callable[[], Any]) -> None:
    told = refusal(InputError, tiny_fit, make())
    assert "name the column of the expert (label=…" in told and "'prompt', 'team', 'id'" in told
    told = refusal(InputError, tiny_fit, make(), label="tema")
    assert "found no field 'tema' for the label" in told and "did you mean 'team'?" in told
    told = refusal(InputError, tiny_fit, make(), label="team", text="id")
    assert "index 0: the field 'id' must hold a string, but found a number" in told
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
        assert "DataFrame, index 5: the row has no label" in refusal(InputError, tiny_fit, frame, label="team")
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
        (TEXTS, {}, r"found a list, and no labels: .* \(texts, labels\)"),
        (list(zip(TEXTS, LABELS, strict=True)), {}, r"found a list, and no labels: .* zip\(\*pairs\)"),
        (7, {}, "domains must map each expert's name to its texts, found int"),
        (COLUMNS, {"label": "team"}, r"a dict of columns: give them as a pair, \(data\['prompt'\], data\['team'\]\)"),
        ([{"said": TEXTS[0], "id": 1, "team": "law"}], {"label": "team"}, r"\(text=…, .*, for instance text='said'"),
        (make_rows(), {"label": "team", "checkpoint": "c"}, "checkpoint= needs {name: Files"),
        ("nowhere.csv", {"label": "team"}, "nowhere.csv: no such file or folder"),
        ("nowhere.csv", {}, "domains must map each expert's name to its texts, found str"),
    ],
)
def test_wrong_data_are_refused(data: object, options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tiny_fit(data, **options)


def test_texts_and_labels_are_two_arguments_as_in_scikit_learn() -> None:
    fitted = Router.fit(TEXTS, LABELS, embedding=tiny.embedding())
    assert same(fitted, tiny_fit(PROMPTS))
    assert same(Router.fit(iter(TEXTS), (name for name in LABELS), embedding=tiny.embedding()), fitted)


@pytest.mark.parametrize(
    ("data", "labels", "options", "message"),
    [
        (make_rows(), "team", {}, r"holds their labels, found one str: Router.fit\(data, label='team'"),
        (TEXTS, LABELS, {"label": "team"}, "give the labels themselves, .* or name their column with label="),
        (PROMPTS, LABELS, {}, "labels go with a list or a column of texts, found a dict"),
        ("train.csv", LABELS, {}, "labels go with a list or a column of texts, found a str"),
        (TEXTS, LABELS[:-1], {}, "found 6 texts and 5 labels"),
        (TEXTS, [*LABELS[:3], None, *LABELS[4:]], {}, "index 3: the text has no label"),
    ],
)
def test_labels_that_do_not_go_with_the_texts_are_refused(
    data: object, labels: object, options: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Router.fit(data, labels, embedding=tiny.embedding(), **options)


def test_a_table_is_never_taken_for_texts() -> None:
    table, router = make_arrow(), tiny.router()
    told = refusal(InputError, collect, table, embedding=tiny.embedding())
    assert "found a Table: give the column that holds the texts; ir3de.corpora.read_labelled(table, label=…)" in told
    assert "texts must be an iterable of str, found a Table" in refusal(InputError, router.route_batch, table)
    told = refusal(InputError, evaluate, router, {router.experts[0]: table})
    assert f"the prompts of '{router.experts[0]}' must be an iterable of str, found a Table" in told
    assert "found a Table: Router.fit(frame['prompt'], frame['team'])" in refusal(InputError, Router.fit, table, LABELS)


def test_errors_count_the_rows_of_memory_as_python_does() -> None:
    rows = make_rows()
    rows[3]["team"] = None
    assert "index 3: the row has no label" in refusal(InputError, tiny_fit, rows, label="team")
    table = pytest.importorskip("pyarrow").Table.from_pylist(rows)
    assert "Table, index 3: the row has no label" in refusal(InputError, tiny_fit, table, label="team")


@pytest.mark.clients
def test_errors_name_the_rows_of_a_frame_by_its_index() -> None:
    frame = make_pandas().set_index("id", drop=False).iloc[::-1]
    frame.loc[4, "team"] = None
    assert "DataFrame, index 4: the row has no label" in refusal(InputError, tiny_fit, frame, label="team")
    assert "index 4: the text has no label" in refusal(InputError, Router.fit, frame["prompt"], frame["team"])
    frame.index = list("abcdef")
    assert "DataFrame, index 'b': the row has no label" in refusal(InputError, tiny_fit, frame, label="team")


def test_one_label_is_told() -> None:
    rows = [row for row in make_rows() if row["team"] == "law"]
    with pytest.warns(UserWarning, match="all 3 texts have the label 'law' in 'team': .* only one expert") as caught:
        assert tiny_fit(rows, label="team").experts == ("law",)
    assert Path(caught[0].filename).name == "refused.py"  # which called `fit`
    assert tiny_fit({"law": PROMPTS["law"]}).experts == ("law",)  # whoever names one expert means it


def test_proof_and_confidence_take_labelled_prompts() -> None:
    texts = tiny.domain_texts(24)
    rows = [{"prompt": text, "team": name} for name, own in texts.items() for text in own]
    options: dict[str, Any] = {"contenders": False, "curve": False, "embedding": tiny.embedding()}
    proof = prove(rows, label="team", **options)
    assert proof == prove({name: texts[name] for name in sorted(texts)}, **options)
    assert repr(proof).startswith("Proof(cross-validation, prompts=72, accuracy=") and len(repr(proof)) < 120
    assert {type(share) for share in proof.recall.values()} == {float}
    router = tiny_fit(texts, keep_sample=False)
    assert "name the column of the expert" in refusal(InputError, prove, rows, router=router)
    held_out = prove(router=router, held_out=rows, label="team", contenders=False)
    assert held_out.method == "holdout" and held_out.prompts == 72
    calibrated = calibrate_confidence(router, rows, label="team")
    assert calibrated.calibrated and not router.calibrated
    expected = calibrate_confidence(router, texts)
    prompt = texts["law"][0]
    assert calibrated.route(prompt).confidence == expected.route(prompt).confidence != router.route(prompt).confidence


def test_a_router_of_many_experts_is_still_one_short_line() -> None:
    router = tiny_fit({f"team-{number}": [f"text {number}", "contract"] for number in range(30)}, keep_sample=False)
    assert repr(router).startswith("Router(team-0, team-1, team-2, team-3, team-4 and 25 others; ")


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
    made = calibrate_threshold(router, by_expert, error=0.3)
    assert repr(made).startswith(f"ThresholdCalibration(prompts={made.chosen.prompts}, error=0.3, threshold=")
    assert len(repr(made)) < 120


@pytest.mark.parametrize(
    ("columns", "named", "meant"),
    [
        ({"prompt": 1, "team": 0}, {"label": "prompt"}, "Did you mean label='team'?"),
        ({"title": 1, "team": 0}, {"label": "title", "text": "team"}, "Did you mean label='team', text='title'?"),
        ({"id": 2, "title": 1, "team": 0}, {"label": "id", "text": "title"}, "label='team', text='title'?"),
        ({"prompt": 1}, None, "Give the texts first and the labels second."),
    ],
)
def test_labels_of_which_every_row_has_its_own_are_refused(
    columns: dict[str, int], named: dict[str, str] | None, meant: str, tmp_path: Path
) -> None:
    kinds = (["law", "maths"] * 15, [f"question {at} about a contract" for at in range(30)], list(range(30)))
    if named is None:
        told = refusal(InputError, tiny_fit, (kinds[0], kinds[1]))
        assert "the labels would make 30 experts of 30 rows" in told and meant in told
        return
    table = {name: kinds[kind] for name, kind in columns.items()}
    rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for data in (pytest.importorskip("pandas").DataFrame(table), rows, tmp_path / "t.jsonl"):
        told = refusal(InputError, tiny_fit, data, **named)
        assert f"the column {named['label']!r} would make 30 experts" in told and meant in told
    assert len(tiny_fit(read_labelled(rows, **named)).experts) == 30  # as the error says


HELD_OUT = {"law": ["is my contract void"], "maths": ["what is two times three", "solve it for y"]}
ASKED = [(text, name) for name, texts in HELD_OUT.items() for text in texts]


def test_what_measures_takes_texts_and_labels_as_a_fit_does() -> None:
    router = tiny_fit(PROMPTS)
    texts, labels = zip(*ASKED, strict=True)
    assert evaluate(router, texts, labels) == evaluate(router, HELD_OUT)
    calibrated = calibrate_confidence(router, texts, labels)
    assert calibrated.compiled.rules == calibrate_confidence(router, HELD_OUT).compiled.rules
    many = [(f"{text} {n}", name) for n in range(30) for text, name in ASKED]
    texts, labels = zip(*many, strict=True)
    by_expert = read_labelled(texts, labels)
    assert by_expert == read_labelled((texts, labels))
    chosen = calibrate_threshold(router, texts, labels, error=0.2).chosen
    assert chosen == calibrate_threshold(router, by_expert, error=0.2).chosen
    how: Any = {"contenders": False, "curve": False, "embedding": tiny.embedding()}
    assert prove(texts, labels, **how) == prove(by_expert, **how)


def test_what_measures_says_how_it_is_called() -> None:
    router, rows = tiny_fit(PROMPTS), make_rows()
    assert "evaluate(router, data, label='team')" in refusal(InputError, evaluate, router, rows, "team")
    assert "prove(data, label='team')" in refusal(InputError, prove, rows, "team")
    assert "prove(router=router)" in refusal(InputError, prove, router)
    for measure in (evaluate, calibrate_confidence, calibrate_threshold):
        told = refusal(InputError, measure, rows, router)
        assert f"must be a router, found a list: {measure.__name__}(router, data, label=…)" in told
    assert "found a list, and no labels" in refusal(InputError, evaluate, router, TEXTS)
    with pytest.raises(InputError, match="a dict of columns"):
        evaluate(router, COLUMNS, label="team")


def test_a_proof_leaves_out_rows_without_a_label_if_it_may() -> None:
    rows = [{"prompt": f"{text} {n}", "team": name} for n in range(10) for text, name in ASKED]
    how: Any = {"label": "team", "contenders": False, "curve": False, "embedding": tiny.embedding()}
    rows[4]["team"] = ""
    assert "index 4: the row has no label" in refusal(InputError, prove, rows, **how)
    with pytest.warns(UserWarning, match="1 of 30 rows could not be used") as told:
        assert prove(rows, skip_bad=1, **how).known == 29
    assert told[0].filename == __file__
    swapped = [{"prompt": row["team"], "team": row["prompt"]} for row in rows[5:]]
    assert "nearly every row has its own label" in refusal(InputError, prove, swapped, **how)


def test_a_warning_says_that_prompts_were_in_the_fit() -> None:
    router = tiny_fit(PROMPTS)
    with pytest.warns(UserWarning, match=r"6 of 6 prompts were in the fit: .*split_held_out.*prove\(") as told:
        evaluate(router, TEXTS, LABELS)
    assert told[0].filename == __file__


@pytest.mark.clients
def test_names_that_are_no_columns_are_said_to_be_so() -> None:
    pandas = pytest.importorskip("pandas")
    frame = make_pandas()
    told = refusal(InputError, tiny_fit, frame.set_index("team"), label="team")
    assert told == "'team' is the index of the DataFrame, not a column: give frame.reset_index()"
    numbered = frame[["prompt", "team"]].set_axis([0, 1], axis=1)
    assert "frame.columns = frame.columns.map(str)" in refusal(InputError, tiny_fit, numbered, label="1")
    nested = pandas.concat({"a": frame}, axis=1)
    assert "frame.columns.map('_'.join)" in refusal(InputError, tiny_fit, nested, label="team")
    grouped = frame.groupby("team")["prompt"].apply(list)
    assert "to_dict()" in refusal(InputError, tiny_fit, grouped)
    assert same(tiny_fit(grouped.to_dict()), tiny_fit(PROMPTS))
    assert "give one column" in refusal(InputError, Router.fit, frame["prompt"], frame[["team"]])
