"""HumanEval: an answer becomes a program, and the program is right if it passes the row's tests.

An answer is a raw completion, which goes on where the prompt stops, or a chat answer with the function in a fence. Raw
completions must come as they were generated: the spaces at their beginning are Python.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ir3de_lab.experiments.judging import sandbox
from ir3de_lab.experiments.judging.verdict import Verdict, field

# where a completion has left the function and begins something else
_STOPS = re.compile(r"\n(?:class |def |#|if __name__|print|```)")
_FENCE = re.compile(r"^[ \t]*```[ \t]*(\w*)[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_PYTHON = ("python", "python3", "py")


def judge(row: Mapping[str, Any], answer: str, limits: sandbox.Limits | None = None) -> Verdict:
    """One point if the program passes every test."""
    return Verdict(float(outcome(row, answer, limits).passed), 1.0)


def outcome(row: Mapping[str, Any], answer: str, limits: sandbox.Limits | None = None) -> sandbox.Outcome:
    """What becomes of the answer when its tests are run."""
    prompt, entry = field(row, "text", str), field(row, "entry_point", str)
    tests = f"{field(row, 'tests', str)}\n\ncheck({entry})\n"
    if not answer.strip():
        return sandbox.Outcome(False, "failed: an empty answer")
    # a part of its own, so that an answer with an open bracket or string cannot swallow the tests
    return sandbox.run(program(prompt, entry, answer), tests, limits=limits)


def program(prompt: str, entry: str, answer: str) -> str:
    """The prompt completed, or the answer's own function behind the prompt's imports and helpers.

    >>> program("def one():\\n", "one", "    return 1\\nprint(one())")
    'def one():\\n    return 1\\n'
    >>> program("import math\\n\\ndef one():\\n", "one", "Sure!\\n```python\\ndef one():\\n    return 1\\n```")
    'import math\\n\\n\\ndef one():\\n    return 1\\n'
    """
    definition = re.compile(rf"^(?:async )?def {re.escape(entry)}\b", re.MULTILINE)
    code = answer if _indented(answer) else _fenced(answer)
    if _indented(code) or not definition.search(code):
        return prompt + _STOPS.split(code, maxsplit=1)[0] + "\n"
    own = definition.search(prompt)
    preamble = prompt[: own.start()] if own else ""
    return f"{preamble}\n{code}"


def _indented(text: str) -> bool:
    """Whether the first line with anything in it begins with a space: the body of the function that was asked for."""
    return text.lstrip("\r\n")[:1] in (" ", "\t") and bool(text.strip())


def _fenced(answer: str) -> str:
    """The first Python fence, or else the first fence, or else all; a fence may end with the text."""
    fences: list[tuple[str, str]] = _FENCE.findall(answer)
    python = [code for language, code in fences if language.lower() in _PYTHON]
    return next(iter([*python, *(code for _, code in fences), answer]))
