"""Answers are judged: final numbers, programs, instructions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

import tiny
from ir3de.errors import InputError, MissingExtraError
from ir3de_lab.experiments.judging import TASKS, Verdict, judge, judge_all, prose
from ir3de_lab.experiments.judging.instructions import CHECKS, follows
from ir3de_lab.experiments.judging.numbers import final_number
from ir3de_lab.experiments.judging.programs import outcome, program
from refused import refusal

pytestmark = pytest.mark.slow

RIGHT, WRONG = Verdict(1.0, 1.0), Verdict(0.0, 1.0)

ADD = {
    "text": 'from typing import List\n\n\ndef add_all(numbers: List[int]) -> int:\n    """ Add them up.\n    """\n',
    "entry_point": "add_all",
    "tests": "\n\ndef check(candidate):\n    assert candidate([1, 2, 3]) == 6\n    assert candidate([]) == 0\n",
    "answer": "    return sum(numbers)\n",
}
TWICE = {
    "text": "import math\n\ndef double(x):\n    return 2 * x\n\ndef twice_root(x):\n    ''' Twice the root. '''\n",
    "entry_point": "twice_root",
    "tests": "def check(candidate):\n    assert candidate(9) == 6\n",
    "answer": "    return double(math.sqrt(x))\n",
}
FULL_ADD = "def add_all(numbers: List[int]) -> int:\n    return sum(numbers)\n"
FULL_TWICE = "def twice_root(x):\n    return double(math.sqrt(x))\n"
IFEVAL = {"instruction_id_list": ["punctuation:no_comma", "startend:quotation"], "kwargs": [{}, None]}
LABEL = {"answer": "location", "labels": ["location", "number"]}
ROWS: dict[str, Mapping[str, Any]] = {"gsm8k": {"answer": "3"}, "humaneval": ADD, "ifeval": IFEVAL, "label": LABEL}


def test_an_unknown_task_is_refused_with_the_known_ones() -> None:
    said = refusal(InputError, judge, "arc", {}, "A")
    assert all(task in said for task in ("arc", "gsm8k", "humaneval", "ifeval"))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("answer", ["", " \n\t ", "\0\x01\ufffd\ud800", "\\", "`" * 3, "*" * 5000])
def test_rubbish_is_judged_and_not_an_error(task: str, answer: str) -> None:
    verdict = judge(task, ROWS[task], answer)
    assert verdict.points <= (1 if task == "ifeval" and answer.strip() else 0)  # rubbish has no comma in it
    assert verdict.of == (2 if task == "ifeval" else 1)


@pytest.mark.parametrize("task", TASKS)
def test_a_row_without_its_fields_is_refused(task: str) -> None:
    assert "the row has id" in refusal(InputError, judge, task, {"id": "1"}, "3")


def test_judging_loads_no_torch() -> None:
    script = "import sys, ir3de_lab.experiments.judging; assert not {'torch', 'numpy', 'langdetect'} & set(sys.modules)"
    command, environment = tiny.python_command(script)
    assert subprocess.run(command, env=environment, check=False).returncode == 0


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("#### 18", "18"),
        ("####18", "18"),
        ("so 3 + 4 = 7\n#### 7\n\nQuestion: 12 apples?", "7"),
        ("#### $1,250.00.", "1250"),
        ("#### -3", "-3"),
        ("#### none, but 5", "5"),
        ("The answer is 42.", "42"),
        ("The answer is 3.0", "3"),
        ("It costs $2,125.", "2125"),
        ("It is -10 degrees", "-10"),
        ("a loss of -$5", "-5"),
        ("a loss of $-5", "-5"),
        ("a loss of −5", "-5"),
        ("pages 10-12", "12"),
        ("5 - 3", "3"),
        ("half: .5", "0.5"),
        ("\\boxed{1,450,000}", "1450000"),
        ("first 3,4", "4"),
        ("**18**", "18"),
        ("50%", "50"),
    ],
)
def test_the_final_number(text: str, number: str) -> None:
    assert judge("gsm8k", {"answer": number}, text) == RIGHT
    assert judge("gsm8k", {"answer": f"{number}1"}, text) == WRONG


def test_the_reference_may_be_in_the_solution() -> None:
    assert judge("gsm8k", {"solution": "2 * 4 = <<2*4=8>>8\n#### 8"}, "It is 8 now.") == RIGHT
    assert final_number("no number") is None
    with pytest.raises(InputError, match="number"):
        judge("gsm8k", {"solution": "none"}, "8")


@pytest.mark.parametrize(
    ("row", "answer"),
    [
        (ADD, ADD["answer"]),
        (ADD, "\n" + ADD["answer"] + "\n\ndef other(:\n"),
        (ADD, ADD["answer"] + "\nprint(add_all([1]), missing)\n"),
        (ADD, ADD["answer"] + "```\nThat is all (I think."),
        (ADD, ADD["answer"] + "\n\n" + FULL_ADD.replace("sum", "len")),
        (ADD, FULL_ADD),
        (ADD, f"Sure:\n```\nnot this\n```\nbut\n```python\n{FULL_ADD}```\nand\n```python\nnonsense(\n```"),
        (ADD, f"Sure:\n\n```\n{FULL_ADD}\n```\n"),
        (ADD, f"```Python\n{FULL_ADD}"),
        (ADD, f"```py\n{ADD['answer']}\n```"),
        (ADD, FULL_ADD + "\nif __name__ == '__main__':\n    print(add_all(input()))\n"),
        (TWICE, TWICE["answer"]),
        (TWICE, f"```python\n{FULL_TWICE}```"),
        (TWICE, f"```python\n{TWICE['text']}{TWICE['answer']}```"),
    ],
)
def test_right_programs_pass(row: Mapping[str, Any], answer: str) -> None:
    assert outcome(row, answer).reason == "passed"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("    return max(numbers)\n", "failed: AssertionError"),
        ("return sum(numbers)\n", "failed: "),
        ("    import sys; sys.exit(0)\n", "failed: SystemExit"),
        ("    import os; os._exit(0)\n", "exited early"),
        (f"{FULL_ADD}import os; os._exit(0)", "exited early"),
        (f"{FULL_ADD}check = lambda candidate: None\nadd_all = None\n", "failed: TypeError"),
        ('    return 0\n    """', "failed: SyntaxError"),
    ],
)
def test_wrong_programs_fail(answer: str, reason: str) -> None:
    assert outcome(ADD, answer).reason.startswith(reason)
    assert judge("humaneval", ADD, answer) == WRONG


def test_a_program_keeps_the_helpers_of_its_prompt() -> None:
    assert program(TWICE["text"], "twice_root", f"```python\n{FULL_TWICE}```").count("def double") == 1


@pytest.mark.parametrize("workers", [1, 3])
def test_all_are_judged_in_order(workers: int) -> None:
    answers, told = [ADD["answer"], "    return 1\n", "", FULL_ADD], list[int]()
    verdicts = judge_all("humaneval", [ADD] * 4, answers, workers=workers, progress=told.append)
    assert verdicts == [RIGHT, WRONG, WRONG, RIGHT]
    assert told == [1, 2, 3, 4]
    assert judge_all("gsm8k", [{"answer": "3"}] * 2, ["3", "4"]) == [RIGHT, WRONG]


def test_rows_and_answers_must_be_as_many() -> None:
    with pytest.raises(InputError, match="2 rows"):
        judge_all("gsm8k", [{"answer": "3"}] * 2, ["3"])
    with pytest.raises(InputError, match="workers"):
        judge_all("gsm8k", [], [], workers=0)


ENGLISH = "The children went down to the river and played there until the evening came"
GERMAN = "Die Kinder gingen hinunter zum Fluss und spielten dort, bis der Abend kam"
AT_LEAST, LESS = {"relation": "at least"}, {"relation": "less than"}

INSTRUCTIONS: list[tuple[str, dict[str, Any], str, str]] = [
    ("keywords:existence", {"keywords": ["Sun", "c++"]}, "the sun likes C++", "the sun likes C"),
    ("keywords:frequency", {"keyword": "war", "frequency": 2, **AT_LEAST}, "War and war", "war and peace"),
    ("keywords:frequency", {"keyword": "war", "frequency": 2, **LESS}, "war and peace", "War and war"),
    ("keywords:forbidden_words", {"forbidden_words": ["rock"]}, "rocks and rocket", "they Rock!"),
    ("keywords:letter_frequency", {"letter": "T", "let_frequency": 3, "let_relation": "at least"}, "Tt t", "Tt"),
    ("keywords:letter_frequency", {"letter": "#", "let_frequency": 2, "let_relation": "less than"}, "a #", "# #"),
    ("language:response_language", {"language": "de"}, GERMAN, ENGLISH),
    ("length_constraints:number_sentences", {"num_sentences": 3, **AT_LEAST}, "A dog. A cat! Me?", "A dog. A cat!"),
    ("length_constraints:number_sentences", {"num_sentences": 3, **LESS}, "Dr. No, e.g. he. Yes.", "He. She. It."),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "***\none\n***\ntwo\n***", "one\n\ntwo"),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one***two", "one\n***\n***\ntwo"),
    ("length_constraints:number_words", {"num_words": 3, **AT_LEAST}, "one two-three", "one two"),
    ("length_constraints:number_words", {"num_words": 3, **LESS}, "one two", "one two three"),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Elm"},
        "Oaks\n\n\"elm, that's it",
        "Elm\n\nOaks",
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 1, "first_word": "elm"},
        "elm.\n\ntwo",
        "elm\n\ntwo\n\nthree",
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[name] [address]", "[name]"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye\np. s. more", "Bye\nPS more"),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye\nP.P.S. more", "Bye\nP.S. more"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "List:\n* one\n  - two", "* one\n**two**"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "- one\n\n- two", "- one\n- two\n- three"),
    ("detectable_format:constrained_response", {}, "Well. My answer is maybe.", "My answer is perhaps."),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*one* and **two**", "*one* and ** **"),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        "Section 1\na\nSection 2\nb",
        "Section 1\na\nsection 2\nb",
    ),
    ("detectable_format:json_format", {}, '```JSON\n{"a": [1]}\n```', '{"a": [1]'),
    ("detectable_format:title", {}, "<<A title>>\ntext", "<< >>\ntext <<"),
    ("combination:two_responses", {}, "one\n******\ntwo", "one\n******\none"),
    ("combination:two_responses", {}, "******one******two", "one******two******three"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Why so? "}, " why so? Because.", "Because. Why so?"),
    ("startend:end_checker", {"end_phrase": "The End."}, '"It is over. the end."\n', "The end. Or not."),
    ("startend:quotation", {}, ' "all of it"\n', '"not all" of it'),
    ("startend:quotation", {}, '""', '"'),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "at least"}, "A USB", "A usb"),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "less than"}, "USB", "DON'T"),
    ("change_case:english_capital", {}, ENGLISH.upper(), ENGLISH),
    ("change_case:english_capital", {}, f"{ENGLISH}.".upper(), GERMAN.upper()),
    ("change_case:english_lowercase", {}, ENGLISH.lower(), ENGLISH),
    ("change_case:english_lowercase", {}, f"{ENGLISH}!".lower(), GERMAN.lower()),
    ("punctuation:no_comma", {}, "no; none", "one, two"),
]


def test_every_kind_of_instruction_is_tested() -> None:
    assert {kind for kind, *_ in INSTRUCTIONS} == set(CHECKS)
    assert len(CHECKS) == 25


@pytest.mark.parametrize(("kind", "setting", "good", "bad"), INSTRUCTIONS)
def test_an_instruction_is_followed_or_not(kind: str, setting: dict[str, Any], good: str, bad: str) -> None:
    nulls = {"capital_frequency": None, "num_words": None, "keywords": None}
    assert follows(kind, setting, good)
    assert follows(kind, {**nulls, **setting}, good)
    assert not follows(kind, setting, bad)
    assert not follows(kind, setting, " \n ")


def test_points_are_instructions_followed() -> None:
    assert judge("ifeval", IFEVAL, '"one; two"') == Verdict(2.0, 2.0)
    assert judge("ifeval", IFEVAL, "one; two") == Verdict(1.0, 2.0)
    assert judge("ifeval", json.loads(json.dumps(IFEVAL)), "") == Verdict(0.0, 2.0)


@pytest.mark.parametrize(
    ("kind", "setting", "said"),
    [
        ("keywords:rhyme", {}, "keywords:rhyme"),
        ("keywords:existence", {"keywords": None}, "needs 'keywords'"),
        ("length_constraints:number_words", {"relation": "about", "num_words": 3}, "'about'"),
    ],
)
def test_an_instruction_that_cannot_be_checked_is_refused(kind: str, setting: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        judge("ifeval", {"instruction_id_list": [kind], "kwargs": [setting]}, "text")


def test_without_langdetect_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langdetect", None)
    prose._detection.cache_clear()
    assert "/lab'" in refusal(MissingExtraError, follows, "language:response_language", {"language": "de"}, GERMAN)
    assert follows("punctuation:no_comma", {}, "no; none")


def test_instructions_and_settings_must_be_as_many() -> None:
    with pytest.raises(InputError, match="1 instructions"):
        judge("ifeval", {"instruction_id_list": ["punctuation:no_comma"], "kwargs": []}, "text")


# labels ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "points"),
    [
        ("Location", 1.0),
        ("The answer is a location.", 1.0),
        ("number, or location", 0.0),
        ("relocation", 0.0),
        ("", 0.0),
    ],
)
def test_the_label_that_is_named_first_counts(answer: str, points: float) -> None:
    assert judge("label", LABEL, answer) == Verdict(points, 1.0)
