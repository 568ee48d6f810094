"""GSM8K: the final number of an answer, compared by value.

What follows the first `####` with a number counts, as in the dataset's own solutions; without one, the last number of
the text does. These are lm-evaluation-harness's "strict-match" and "flexible-extract", the second where the first finds
nothing. Unlike there, numbers are compared by value (3.0 is 3), and the dash of "10-12" is no minus.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ir3de.errors import InputError
from ir3de_lab.experiments.judging.verdict import Verdict, field

# a minus on either side of the currency, thousands with or without commas, decimals; no full stop at the end
_WHOLE = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)"
_NUMBER = rf"(?:(?<![\w.,)])[-−])?[$€£]?(?:(?<=[$€£])[-−])?(?:{_WHOLE}(?:\.\d+)?|(?<!\d)\.\d+)"
_LAST = re.compile(_NUMBER)
_MARKED = re.compile(rf"####\s*({_NUMBER})")


def judge(row: Mapping[str, Any], answer: str) -> Verdict:
    """One point if the final number of the answer is the reference's."""
    reference = final_number(row["answer"]) if isinstance(row.get("answer"), str) else None
    if reference is None:
        solution = field(row, "solution", str)
        reference = final_number(solution)
        if reference is None:
            raise InputError(f"a GSM8K row needs a number in 'answer' or 'solution', but has {solution!r:.80}")
    return Verdict(float(final_number(answer) == reference), 1.0)


def final_number(text: str) -> Decimal | None:
    """The number a text ends on, if it has any.

    >>> final_number("3 + 4 = 7. #### 7"), final_number("That makes $1,250.50."), final_number("none")
    (Decimal('7'), Decimal('1250.50'), None)
    """
    marked = _MARKED.search(text)
    found = [marked[1]] if marked else _LAST.findall(text)[-1:]
    return Decimal(re.sub(r"[$€£,]", "", found[0]).replace("−", "-")) if found else None
