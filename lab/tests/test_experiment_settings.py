"""Settings: the shipped ones are the published experiments, and what cannot be meant is refused by its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ir3de.errors import InputError, VersionError
from ir3de_lab.experiments import settings
from refused import refusal

GOOD = """
version = 1
name = "small"
title = "SMALL"
metric = "score"
domains = ["maths", "tongues"]
[data]
suite = "small"
[base]
model = "some/model"
[tasks]
maths = "gsm8k"
tongues = "m_arc"
[training]
steps = 3
rate = 1
[evaluation]
most_new_tokens = { gsm8k = 5 }
[protocol.clean]
[protocol.other]
fit_on_test = ["maths"]
embedding = "maths"
"""
Loaded = Callable[..., settings.Setting]


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    """Loads the good setting, some of it replaced."""

    def load(*changes: tuple[str, str]) -> settings.Setting:
        text = GOOD
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        path = tmp_path / "small.toml"
        path.write_text(text, encoding="utf-8")
        return settings.load(path)

    return load


# those that are shipped -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", settings.SHIPPED)
def test_a_shipped_setting_goes_by_its_name(name: str) -> None:
    setting = settings.load(name)
    assert setting.name == name and setting.version == settings.VERSION and "clean" in setting.protocol
    assert setting == settings.load(Path(settings.__file__).parent / f"{name}.toml")


def test_language_models_are_measured_by_perplexity() -> None:
    clm, large = settings.load("clm"), settings.load("clm-large")
    assert clm.domains == clm.known == ("coding", "math", "physics", "history", "philosophy")
    assert large.domains == ("math", "biology", "legal", "dialogue")
    assert {clm.metric, large.metric} == {"perplexity"} and not clm.tasks and not clm.scored
    assert clm.base == large.base and clm.training == large.training


def test_reasoning_has_a_task_a_domain() -> None:
    setting = settings.load("reasoning")
    assert setting.metric == "score"
    assert setting.base is not None and setting.experts == {"instruction": setting.base.model}  # the others are trained
    assert dict(setting.tasks) == {
        "math": "gsm8k",
        "multilingual": "m_arc",
        "coding": "humaneval",
        "instruction": "ifeval",
    }
    # two benchmarks have no training prompts; only the authors' protocol fits on their test prompts
    assert setting.protocol["authors"].fit_on_test == ("coding", "instruction")
    assert setting.protocol["clean"] == settings.Protocol()


def test_the_authors_protocol_is_that_of_their_code_in_every_setting() -> None:
    clm, large, reasoning = (settings.load(name).protocol["authors"] for name in ("clm", "clm-large", "reasoning"))
    assert {one.fit_batch for one in (clm, large, reasoning)} == {16}
    assert all(one.drop_last and one.precision == "float32" for one in (clm, large, reasoning))
    assert (clm.prompts, large.prompts, reasoning.prompts) == (1_000 * 16, 7_000, 1_000)
    assert reasoning.repeat and not clm.repeat and not large.repeat
    assert (clm.fit_width, large.fit_width, reasoning.fit_width) == (0, 1_025, 1_025)  # those of CLM are full already
    assert (clm.test_width, large.test_width, reasoning.test_width) == (0, 1_025, 0)
    assert dict(reasoning.test_batch) == {"multilingual": 4} and set(reasoning.options) == {"multilingual"}
    assert (clm.scored, large.scored, reasoning.scored) == (256, 256, 0)
    assert large.average_without == ("math",) and not clm.average_without


def test_seven_public_models_are_scored_already() -> None:
    setting = settings.load("routerdc7")
    assert setting.scored and setting.base is None and setting.data.scores == "acc"
    assert setting.known == ("mmlu", "gsm8k", "cmmlu", "arc_challenge", "humaneval")
    assert set(setting.known).isdisjoint(setting.unseen) and {*setting.known, *setting.unseen} == {*setting.domains}


# reading --------------------------------------------------------------------------------------------------------------


def test_what_is_written_is_read_and_the_rest_has_its_default(loaded: Loaded) -> None:
    setting = loaded()
    assert setting.base == settings.Base("some/model")
    assert setting.training == settings.Training(steps=3, rate=1.0) and type(setting.training.rate) is float
    assert setting.evaluation == settings.Evaluation(most_new_tokens={"gsm8k": 5})
    assert dict(setting.protocol) == {
        "clean": settings.Protocol(),
        "other": settings.Protocol(fit_on_test=("maths",), embedding="maths"),
    }
    hub = loaded(("[base]", '[data.hub.maths]\npath = "some/set"\ntest = 7\n[base]')).data.hub
    assert hub == {"maths": settings.HubData("some/set", test=7)}
    assert settings.HubData("some/set").name is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[data]", "titel = 1\n[data]", "small.toml: unknown field 'titel'; known are base, choose, data"),
        ("steps = 3", "step = 3", "small.toml: training: unknown field 'step'; known are batch, checkpoint"),
        ("[protocol.other]", "[protocol.other]\ncaps = 1", "protocol.other: unknown field 'caps'"),
        ("[base]", "[data.hub.maths]\npaht = 'x'\n[base]", "data.hub.maths: unknown field 'paht'"),
        ('title = "SMALL"', "", "small.toml: the field 'title' is missing"),
        ('suite = "small"', "", "small.toml: data: the field 'suite' is missing"),
        ('model = "some/model"', "", "small.toml: base: the field 'model' is missing"),
        ("[base]", "[data.hub.maths]\nsplit = 'x'\n[base]", "data.hub.maths: the field 'path' is missing"),
        ('title = "SMALL"', "title = 3", "title must be a text, found 3"),
        ("steps = 3", "steps = true", "training.steps must be a whole number, found True"),
        ("steps = 3", "steps = 3.0", "training.steps must be a whole number, found 3.0"),
        ("steps = 3", "steps = '3'", "training.steps must be a whole number, found '3'"),
        ("rate = 1", "rate = false", "training.rate must be a number, found False"),
        ("rate = 1", "rate = nan", "training.rate must be a number, found nan"),
        ("[protocol.other]", "[protocol.other]\ndrop_last = 1", "protocol.other.drop_last must be true or false"),
        ("gsm8k = 5", "gsm8k = '5'", "evaluation.most_new_tokens.gsm8k must be a whole number, found '5'"),
        ("gsm8k = 5", "gsm8k = true", "evaluation.most_new_tokens.gsm8k must be a whole number, found True"),
        ("{ gsm8k = 5 }", "5", "evaluation.most_new_tokens must be a table, found 5"),
        ('maths = "gsm8k"', "maths = 1", "tasks.maths must be a text, found 1"),
        ('["maths", "tongues"]', '"maths"', "domains must be a list, found 'maths'"),
        ('["maths", "tongues"]', '["maths", 1]', "domains[1] must be a text, found 1"),
        ('[base]\nmodel = "some/model"', "", "no expert for the domain 'maths': name it in [experts], or in [base]"),
        ("[data]", "unseen = 3\n[data]", "unseen must be a list, found 3"),
        ("[protocol.clean]", "[protocol]\nclean = 1", "protocol.clean must be a table of fields, found 1"),
        ('metric = "score"', 'metric = "accuracy"', "metric is 'accuracy'; known are perplexity, score"),
        ('suite = "small"', 'suite = "s"\nlayout = "flat"', "data.layout is 'flat'; known are suite, scored"),
        ("steps = 3", 'method = "qlora"', "training.method is 'qlora'; known are full, lora"),
        ("[protocol.other]", "[protocol.other]\nprecision = 64", "protocol.other.precision is 64; known are float64"),
        ('"gsm8k"', '"gsm9k"', "unknown task 'gsm9k' in tasks; known are gsm8k, humaneval, ifeval, label, m_arc"),
        ("gsm8k = 5", "gsm8k = 5, ARC = 1", "unknown task 'ARC' in evaluation.most_new_tokens"),
        ("gsm8k = 5", "humaneval = 5", "evaluation.most_new_tokens lacks the task 'gsm8k'"),
        ('tongues = "m_arc"', "", "the domain 'tongues' has no task: write it in [tasks]"),
        ('tongues = "m_arc"', 'tongue = "m_arc"', "tasks names 'tongue', which is none of maths, tongues"),
        ("[training]", "[experts]\nlaw = 'x'\n[training]", "experts names 'law', which is none of"),
        ("[base]", "[data.hub.law]\npath = 'x'\n[base]", "data.hub names 'law', which is none of"),
        (
            'fit_on_test = ["maths"]',
            'fit_on_test = ["law"]',
            "protocol.other.fit_on_test names 'law', which is none of",
        ),
        ("[data]", 'unseen = ["law"]\n[data]', "unseen names 'law', which is none of"),
        ('embedding = "maths"', 'embedding = "law"', "protocol.other.embedding is 'law': write 'base' or a domain"),
        ("[protocol.clean]", "[protocol.cleaned]", "the protocol 'clean' is missing"),
        ("[protocol.clean]", "[protocol.clean]\nprompts = 9", "the protocol 'clean' is what it is: change fields in"),
        ('["maths", "tongues"]', '["maths"]', "two domains or more, found ['maths']"),
        ('["maths", "tongues"]', '["maths", "maths"]', "a domain is named twice"),
        ('["maths", "tongues"]', '["maths", "average"]', "'average' cannot be the name of a setting or a domain"),
        ('name = "small"', 'name = "../small"', "'../small' cannot be the name"),
        ("[data]", 'unseen = ["tongues"]\n[data]', "two domains or more, found ['maths']"),
        (
            '"tongues"]',
            '"tongues", "x"]\nunseen = ["x"]',
            "unseen domains have no expert, so their rows must be scored",
        ),
        ("steps = 3", "steps = 0", "training.steps is 0: it must be 1 or more"),
        ("rate = 1", "rate = -1", "training.rate is -1.0: it must be 0 or more"),
        ("gsm8k = 5", "gsm8k = 0", "evaluation.most_new_tokens.gsm8k is 0: it must be 1 or more"),
        ("[protocol.other]", "[protocol.other]\ncap = 0", "protocol.other.cap is 0: it must be 1 or more"),
        ("[evaluation]", "[evaluation]\ndraws = -1", "evaluation.draws is -1: it must be 0 or more"),
        ("[evaluation]", "[evaluation]\noption = 'acc'", "evaluation.option is 'acc'; known are whole, per_byte"),
        ("[data]", 'choose = ["law"]\n[data]', "choose names 'law', which is none of maths, tongues"),
        (
            "[data]",
            'choose = ["maths"]\n[data]',
            "choose names 'maths': only a domain of ifeval whose expert is trained",
        ),
        ("[protocol.other]", "[protocol.other]\nfit_batch = 0", "protocol.other.fit_batch is 0: it must be 1 or more"),
        ("[protocol.other]", "[protocol.other]\nfit_width = 1", "protocol.other.fit_width is 1: it must be 2 or more"),
        ("[protocol.other]", "[protocol.other]\ntest_width = -1", "protocol.other.test_width is -1: it must be 0"),
        ("[protocol.other]", "[protocol.other]\ntest_batch = { maths = 0 }", "test_batch.maths is 0: it must be 1"),
        ("[protocol.other]", "[protocol.other]\ntest_batch = { law = 4 }", "test_batch names 'law', which is none of"),
        ("[protocol.other]", "[protocol.other]\ntest_batch = 4", "protocol.other.test_batch must be a table, found 4"),
        (
            "[protocol.other]",
            "[protocol.other]\ntest_width = 9\ntest_batch = { maths = 4 }",
            "protocol.other has test_width and test_batch: leave one of them out",
        ),
        ("[protocol.other]", "[protocol.other]\noptions = { law = '' }", "options names 'law', which is none of"),
        (
            "[protocol.other]",
            "[protocol.other]\noptions = { tongues = 'x {text}' }",
            "protocol.other.options.tongues is 'x {text}': it needs {text}, where the question stands, and {option}",
        ),
        (
            "[protocol.other]",
            "[protocol.other]\noptions = { maths = '{text} {option}' }",
            "protocol.other.options names 'maths', whose task has no options",
        ),
        ("[protocol.other]", "[protocol.other]\nscored = 9", "protocol.other.scored is for the metric 'perplexity'"),
        (
            "[protocol.other]",
            "[protocol.other]\naverage_without = ['law']",
            "average_without names 'law', which is none of",
        ),
        (
            "[protocol.other]",
            "[protocol.other]\naverage_without = ['maths', 'tongues']",
            "average_without names every domain",
        ),
        ("[protocol.other]", "[protocol.other]\ncount_padding = true", "protocol.other: unknown field 'count_padding'"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_name(loaded: Loaded, old: str, new: str, said: str) -> None:
    assert said in refusal(InputError, loaded, (old, new))


def test_tasks_are_needed_only_where_answers_are_judged(loaded: Loaded) -> None:
    no_tasks = ("[tasks]", "[experts]"), ('"score"\n', '"perplexity"\n')
    assert loaded(*no_tasks).experts == {"maths": "gsm8k", "tongues": "m_arc"}
    scored = ('[base]\nmodel = "some/model"', ""), ('suite = "small"', 'suite = "small"\nlayout = "scored"')
    assert loaded(*scored).base is None  # and nothing is trained


def test_scored_rows_have_scores(loaded: Loaded) -> None:
    changes = ('suite = "small"', 'suite = "small"\nlayout = "scored"'), ('"score"\n', '"perplexity"\n')
    assert "rows that are scored have the metric 'score', found 'perplexity'" in refusal(InputError, loaded, *changes)


@pytest.mark.parametrize("version", ["", "version = '1'", "version = true", "version = 0"])
def test_a_setting_says_its_version(loaded: Loaded, version: str) -> None:
    assert "begins with its version: write version = 1" in refusal(InputError, loaded, ("version = 1", version))


def test_a_newer_version_is_not_guessed_at(loaded: Loaded) -> None:
    said = refusal(VersionError, loaded, ("version = 1", "version = 2\nnovelty = 5"))
    assert "version 2 of the format; this ir3de reads up to 1" in said


@pytest.mark.parametrize("content", [b"version = ", b"\xff\xfe", b"{}"])
def test_what_is_not_toml_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.toml"
    path.write_bytes(content)
    assert f"{path} is not TOML" in refusal(InputError, settings.load, path)


def test_an_unknown_name_is_told_the_known_ones(tmp_path: Path) -> None:
    for name in ("clm2", str(tmp_path), str(tmp_path / "none.toml")):
        assert f"no setting '{name}': expected clm, clm-large" in refusal(InputError, settings.load, name)


# experts that differ --------------------------------------------------------------------------------------------------


def test_experts_that_differ_have_no_task_at_chance_and_draws_with_every_seed() -> None:
    setting, other = settings.load("reasoning-1b"), settings.load("reasoning-1b-seed-2")
    assert setting.tasks == {"math": "gsm8k", "kinds": "label", "coding": "humaneval", "instruction": "ifeval"}
    assert setting.base == settings.Base("qwen2.5-coder-1.5b")
    assert (setting.evaluation.draws, other.evaluation.draws) == (8, 8)
    assert (other.training.seed, other.evaluation.seed) == (2, 2)
    assert min(setting.data.most_items.values()) >= 150  # the least that the plan asks for


def test_labelled_texts_need_a_prompt_with_their_text(tmp_path: Path) -> None:
    text = (Path(settings.__file__).parent / "reasoning-1b.toml").read_text(encoding="utf-8")
    (tmp_path / "other.toml").write_text(text.replace("Question: {text}", "Question:"), encoding="utf-8")
    with pytest.raises(InputError, match=r"data\.labelled\.kinds needs the task 'label', \{text\} in its prompt"):
        settings.load(tmp_path / "other.toml")
