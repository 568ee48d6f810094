"""IFEval: the share of instructions an answer follows, strictly, each instruction by itself.

The 25 kinds of checks are written anew here, on the standard library and langdetect. Those of lm-evaluation-harness
were tried (lm_eval 0.4.13): with what they need they install 70 packages and 760 MB, pandas, pyarrow and datasets among
them, and they download NLTK's Punkt model when imported; without a network, two kinds (number_sentences,
capital_word_frequency) then raise an error. In those two our counts can differ a little (see `prose`), and in
number_words where vowel signs are letters of their own (Malayalam, Gujarati), by the version of NLTK. Two more
differences are meant: keywords are words, not regular expressions, and a `letter` that is a sign, such as "#", is
counted rather than replaced by a letter at random.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ir3de.errors import InputError
from ir3de_lab.experiments.judging import prose
from ir3de_lab.experiments.judging.verdict import Verdict, field

Check = Callable[[str, Mapping[str, Any]], bool]

_CHOICES = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


def judge(row: Mapping[str, Any], answer: str) -> Verdict:
    """A point for each instruction that is followed; an empty answer follows none."""
    kinds, settings = field(row, "instruction_id_list", list), field(row, "kwargs", list)
    if len(kinds) != len(settings):
        raise InputError(f"an IFEval row has {len(kinds)} instructions, but kwargs for {len(settings)}")
    points = [follows(kind, setting or {}, answer) for kind, setting in zip(kinds, settings, strict=True)]
    return Verdict(float(sum(points)), float(len(kinds)))


def follows(kind: str, setting: Mapping[str, Any], answer: str) -> bool:
    """Whether an answer follows one instruction; settings that are null count as absent."""
    if kind not in CHECKS:
        raise InputError(f"there is no instruction of the kind {kind!r}; known are {', '.join(CHECKS)}")
    given = {name: value for name, value in setting.items() if value is not None}
    try:
        return bool(answer.strip()) and CHECKS[kind](answer, given)
    except KeyError as error:
        raise InputError(
            f"an instruction of the kind {kind!r} needs {error.args[0]!r} in its kwargs, but they are {given}"
        ) from error


def _compared(number: int, relation: str, bound: int) -> bool:
    if relation not in ("less than", "at least"):
        raise InputError(f"an instruction's relation is 'less than' or 'at least', but was {relation!r}")
    return number < bound if relation == "less than" else number >= bound


def _times(pattern: str, text: str) -> int:
    return len(re.findall(pattern, text, re.IGNORECASE))


def _in_language(text: str, code: str) -> bool:
    return prose.language(text) in (code, None)  # where nothing can be told, the benchmark counts it as followed


def _pieces(text: str, divider: str) -> list[str] | None:
    """What stands between dividers; None if nothing stands between two of them. The text may begin and end with one."""
    pieces = [piece.strip() for piece in text.split(divider)]
    pieces = pieces[not pieces[0] : len(pieces) - (not pieces[-1] and len(pieces) > 1)]
    return pieces if all(pieces) else None


def _two_responses(text: str, given: Mapping[str, Any]) -> bool:
    pieces = _pieces(text, "******") or []
    return len(pieces) == 2 and pieces[0] != pieces[1]


def _bullets(text: str) -> int:
    """Lines that begin with a dash or with a single star."""
    return len(re.findall(r"^[^\S\n]*(?:-|\*(?!\*))", text, re.MULTILINE))


def _highlights(text: str) -> int:
    """*One* or **two** stars around something on a line; by the benchmark's count, two stars around words give one."""
    return sum(bool(inner.strip()) for inner in re.findall(r"\*([^\n*]*)\*", text)) + sum(
        bool(inner.strip()) for inner in re.findall(r"\*\*([^\n*]*)\*\*", text)
    )


def _titled(text: str) -> bool:
    return any(title.strip("<>").strip() for title in re.findall(r"<<([^\n]+)>>", text))


def _nth_paragraph(text: str, given: Mapping[str, Any]) -> bool:
    """Blank paragraphs keep their place but do not count, as in the benchmark."""
    paragraphs = [paragraph.strip() for paragraph in text.split("\n\n")]
    count, place = sum(map(bool, paragraphs)), given["nth_paragraph"]
    if count != given["num_paragraphs"] or not 1 <= place <= count or not paragraphs[place - 1]:
        return False
    word = paragraphs[place - 1].split()[0].lstrip("'").lstrip('"')
    return re.split(r"[.,?!'\"]", word)[0].lower() == str(given["first_word"]).lower()


def _postscript(text: str, given: Mapping[str, Any]) -> bool:
    letters = re.escape(str(given["postscript_marker"]).strip()).replace(r"\.", r"\.\s?")
    return bool(re.search(letters.removesuffix(r"\s?"), text, re.IGNORECASE))


def _json(text: str) -> bool:
    bare = re.sub(r"^```(?:json)?", "", text.strip(), flags=re.IGNORECASE).removesuffix("```")
    try:
        json.loads(bare)
    except (ValueError, RecursionError):
        return False
    return True


def _quoted(text: str) -> bool:
    bare = text.strip()
    return len(bare) > 1 and bare[0] == bare[-1] == '"'


CHECKS: Mapping[str, Check] = {
    "keywords:existence": lambda text, given: all(_times(re.escape(word), text) for word in given["keywords"]),
    "keywords:frequency": lambda text, given: _compared(
        _times(re.escape(given["keyword"].strip()), text), given["relation"], given["frequency"]
    ),
    "keywords:forbidden_words": lambda text, given: (
        not any(_times(rf"\b{re.escape(word)}\b", text) for word in given["forbidden_words"])
    ),
    "keywords:letter_frequency": lambda text, given: _compared(
        text.lower().count(given["letter"].lower()), given["let_relation"], given["let_frequency"]
    ),
    "language:response_language": lambda text, given: _in_language(text, given["language"]),
    "length_constraints:number_sentences": lambda text, given: _compared(
        prose.sentences(text), given["relation"], given["num_sentences"]
    ),
    "length_constraints:number_paragraphs": lambda text, given: (
        len(_pieces(text, "***") or []) == given["num_paragraphs"]
    ),
    "length_constraints:number_words": lambda text, given: _compared(
        _times(r"\w+", text), given["relation"], given["num_words"]
    ),
    "length_constraints:nth_paragraph_first_word": _nth_paragraph,
    "detectable_content:number_placeholders": lambda text, given: _times(r"\[.*?\]", text) >= given["num_placeholders"],
    "detectable_content:postscript": _postscript,
    "detectable_format:number_bullet_lists": lambda text, given: _bullets(text) == given["num_bullets"],
    "detectable_format:constrained_response": lambda text, given: any(choice in text for choice in _CHOICES),
    "detectable_format:number_highlighted_sections": lambda text, given: _highlights(text) >= given["num_highlights"],
    "detectable_format:multiple_sections": lambda text, given: (
        len(re.findall(rf"{re.escape(given['section_spliter'].strip())}\s?\d+", text)) >= given["num_sections"]
    ),
    "detectable_format:json_format": lambda text, given: _json(text),
    "detectable_format:title": lambda text, given: _titled(text),
    "combination:two_responses": _two_responses,
    "combination:repeat_prompt": lambda text, given: (
        text.strip().lower().startswith(given["prompt_to_repeat"].strip().lower())
    ),
    "startend:end_checker": lambda text, given: (
        text.strip().strip('"').lower().endswith(given["end_phrase"].strip().lower())
    ),
    "startend:quotation": lambda text, given: _quoted(text),
    "change_case:capital_word_frequency": lambda text, given: _compared(
        prose.capital_words(text), given["capital_relation"], given["capital_frequency"]
    ),
    "change_case:english_capital": lambda text, given: text.isupper() and _in_language(text, "en"),
    "change_case:english_lowercase": lambda text, given: text.islower() and _in_language(text, "en"),
    "punctuation:no_comma": lambda text, given: "," not in text,
}
