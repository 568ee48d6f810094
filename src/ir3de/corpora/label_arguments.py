"""Labels beside texts, as two arguments or as one pair; and what was likely meant where there are no labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ir3de.errors import InputError
from ir3de.statistics.texts import is_frame


def join_labels(texts: Any, labels: Any, label: str | None, text: str | None, call: str) -> tuple[Any, Any]:
    """The pair (texts, labels) of two arguments; `call` is how the function is called, as far as the texts.

    >>> join_labels(["Is it void?"], ["law"], None, None, "Router.fit(")
    (['Is it void?'], ['law'])
    """
    if isinstance(labels, str):  # the name of a column
        raise InputError(
            f"the argument after the texts holds their labels, found one str: {call}data, label={labels!r})"
        )
    if is_frame(labels):
        raise InputError(
            f"the labels are a {type(labels).__name__}: give one column, such as {call}texts, frame['team'])"
        )
    if label is not None or text is not None:
        raise InputError(f"give the labels themselves, {call}texts, labels), or name their column with label=")
    if isinstance(texts, (str, Path, Mapping)) or is_frame(texts):
        raise InputError(
            f"labels go with a list or a column of texts, found a {type(texts).__name__}: "
            f"{call}frame['prompt'], frame['team']), or {call}frame, text='prompt', label='team')"
        )
    return texts, labels


def is_pair(given: object) -> bool:
    """Whether this is the pair (texts, labels), and not two files or rows."""
    return (
        isinstance(given, tuple)
        and len(given) == 2
        and not any(isinstance(one, (str, Path, Mapping)) or one is None for one in given)
    )


def refuse_columns_by_name(given: Mapping[str, Any], label: str | None, text: str | None) -> None:
    """Refuse a mapping beside label= or text=: it names its experts, or it is columns, which need no names."""
    if label is None and text is None:
        return
    if label in given:
        spoken = text if text in given else next((name for name in given if name != label), "prompt")
        raise InputError(
            f"found a dict of columns: give them as a pair, (data[{spoken!r}], data[{label!r}]), or as a table"
        )
    raise InputError("{expert: texts} names its experts itself: leave label= and text= out")


def advise_unlabelled(given: object) -> str | None:
    """What to do with texts that have no labels, or with labels in a shape that is not taken; None for all else.

    >>> advise_unlabelled(["Is it void?", "Solve x."])
    'texts need their labels beside them: (texts, labels), or {expert: texts}'
    """
    if isinstance(given, (str, bytes, Path, Mapping)) or is_frame(given) or not isinstance(given, Iterable):
        return None
    listing = getattr(given, "tolist", None)  # of numpy and pandas
    first = next(iter(given if listing is None else listing()), None)
    if isinstance(first, str):
        return "texts need their labels beside them: (texts, labels), or {expert: texts}"
    if isinstance(first, (list, tuple)) and len(first) == 2 and all(isinstance(one, str) for one in first):
        return "pairs are taken apart: texts, labels = zip(*pairs), and then (texts, labels)"
    if isinstance(first, (list, tuple)) and hasattr(given, "to_dict"):  # texts grouped by label, in pandas
        return "give it as {expert: texts}, which is what its to_dict() returns"
    return None
