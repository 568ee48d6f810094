"""What a fit is given as one piece: a table, files, rows or (texts, labels), split by label into experts."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ir3de.engines.domains import Files
from ir3de.engines.engine import Counting
from ir3de.errors import InputError
from ir3de.storage.files import find_kind


def split_by_label(
    given: Any, label: str | None, text: str | None, counting: Counting | None = None, labels: Any = None
) -> Any:
    """The experts with their texts: {expert: texts} as it is, everything else by its labels.

    A folder of experts stays on disk as `Files`; all other texts are held in memory. Up to `skip_bad` rows without a
    label are left out, with a warning.
    """
    if labels is not None:
        from ir3de.corpora.label_arguments import join_labels

        given = join_labels(given, labels, label, text, "Router.fit(")
    if type(given) is dict and label is None and text is None:
        return given  # and what reads files and tables need not be imported
    from ir3de.corpora.folders import find_experts
    from ir3de.corpora.frames import refuse_splits
    from ir3de.corpora.label_arguments import advise_unlabelled, is_pair, refuse_columns_by_name
    from ir3de.statistics.tables import is_frame

    refuse_splits(given)
    if isinstance(given, Mapping):
        refuse_columns_by_name(given, label, text)
        return given
    if label is None and isinstance(given, (str, Path)) and find_kind(given) == "folder":
        return {name: Files(paths, field=text) for name, paths in find_experts(given).items()}
    is_file = isinstance(given, (str, Path)) and find_kind(given) == "file"
    if label is None and not (is_file or is_frame(given) or is_pair(given)):
        if advice := advise_unlabelled(given):
            raise InputError(f"found a {type(given).__name__}, and no labels: {advice}")
        return given  # which is refused by what checks domains
    return read_by_label(given, label, text, counting or {})


def read_by_label(given: Any, label: str | None, text: str | None, how: Counting) -> dict[str, list[str]]:
    """The texts of each expert of labelled data; what looks wrong in it is warned of, or refused."""
    from ir3de.corpora import read_labelled
    from ir3de.engines.jobs import BadRecords

    if clash := [name for name in ("workers", "address", "checkpoint") if how.get(name) is not None]:
        raise InputError(
            f"{clash[0]}= is for the files of each expert, {{name: Files(paths)}}: labelled texts are read here, and "
            "held in memory"
        )
    bad = BadRecords(how.get("skip_bad", 0))
    found = read_labelled(given, label=label, text=text, on_damage=bad.add_error if bad.limit else None)
    if bad.skipped:
        records = bad.skipped + sum(map(len, found.values()))
        many = f"{bad.skipped:,} of {records:,} rows could not be used and were left out: "
        warnings.warn(many + "; ".join(bad.examples), stacklevel=4)
    if len(found) == 1:
        name, texts = next(iter(found.items()))
        where = "" if label is None else f" in {label!r}"
        warnings.warn(
            f"all {len(texts):,} texts have the label {name!r}{where}: a router with only one expert sends it every "
            "prompt, and confidence has no meaning yet",
            stacklevel=4,
        )
    _refuse_unique(given, found, label, text)
    return found


def _refuse_unique(given: Any, found: Mapping[str, list[str]], label: str | None, text: str | None) -> None:
    """Refuse labels of which nearly every row has its own, and say which columns were likely meant."""
    from ir3de.corpora.labelled import peek_rows
    from ir3de.corpora.unique_labels import are_unique, describe_unique, find_likely_columns

    if not are_unique(found):
        return
    if label is None:  # (texts, labels)
        advice = "Give the texts first and the labels second."
    elif (meant := find_likely_columns(peek_rows(given), label)) is None:
        advice = "Name the column that groups the rows."
    else:
        spoken = meant.text or (label if text == meant.label else text)
        advice = f"Did you mean label={meant.label!r}" + (f", text={spoken!r}?" if spoken else "?")
    raise InputError(
        f"{describe_unique(found, label)}. {advice} If each row is meant to be an expert of its own, pass "
        "ir3de.corpora.read_labelled(data, label=…), which takes all labels"
    )
