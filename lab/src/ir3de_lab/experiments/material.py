"""A setting's texts: what routers and experts are trained on, and the items they are tested on.

Items carry an id made of their domain, their place and a hash of their text, so that outcomes made of one copy of the
data are never mixed up with those of another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ir3de.corpora import read_rows, text_of
from ir3de.errors import InputError, MissingExtraError
from ir3de_lab.experiments.settings import HubData, Labelled, Setting

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Item:
    """One test prompt or document, with all that its row says."""

    id: str
    domain: str
    text: str
    row: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Material:
    """Training rows by domain, and test items in the order of the domains."""

    train: Mapping[str, Rows]
    items: tuple[Item, ...]

    def training_texts(self) -> dict[str, list[str]]:
        return {domain: [text_of(row) for row in rows] for domain, rows in self.train.items()}


def load(setting: Setting, data: Path | None) -> Material:
    """Read the setting's texts from a folder of suites or, where the setting says so, from the hub."""
    if setting.data.hub:
        return _from_hub(setting)
    if data is None:
        raise InputError(
            f"the setting '{setting.name}' reads texts from a folder: name it with --data or in IR3DE_DATA"
        )
    folder = data / setting.data.suite
    if not folder.is_dir():
        raise InputError(f"no folder {folder}: expected the suite '{setting.data.suite}' under {data}")
    return (_scored if setting.scored else _suite)(setting, folder)


def item_id(domain: str, place: int, text: str) -> str:
    """The id of a test item.

    >>> item_id("law", 7, "Is this contract void?")
    'law/00007-86dd3c91'
    """
    return f"{domain}/{place:05d}-{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:8]}"


def _suite(setting: Setting, folder: Path) -> Material:
    def read(domain: str, split: str) -> Rows:
        if domain not in setting.data.labelled:
            return _rows(folder / domain, split)
        given = setting.data.labelled[domain]
        data = folder.parents[len(Path(setting.data.suite).parts) - 1]
        return [_ask_for_label(given, row) for row in _rows(data / given.folder, split)]

    train = {domain: read(domain, "train") for domain in setting.known}
    items: list[Item] = []
    for domain in setting.domains:
        found = _items(domain, read(domain, "test"))
        most = setting.data.most_items.get(domain, len(found))
        chosen = sorted(found, key=lambda item: hashlib.sha256(item.id.encode()).digest())[:most]
        kept = {item.id for item in chosen}
        items += [item for item in found if item.id in kept]
    return Material(train, tuple(items))


def _ask_for_label(given: Labelled, row: Mapping[str, Any]) -> dict[str, Any]:
    """A labelled text as a prompt with its answer."""
    if row.get("label") not in given.labels:
        known = ", ".join(given.labels)
        raise InputError(f"a row of {given.folder} has the label {row.get('label')!r}; the setting knows {known}")
    text = given.prompt.replace("{text}", text_of(row))
    return {"text": text, "answer": given.labels[row["label"]], "labels": list(given.labels.values())}


def _scored(setting: Setting, folder: Path) -> Material:
    """Files `{task}_{split}.jsonl`; a cleaned test split is preferred to the one it was made of."""
    train = {task: _complete(setting, _rows(folder, f"{task}_train")) for task in setting.known}
    items: list[Item] = []
    for task in setting.domains:
        splits = [f"{task}_ood_test"] if task in setting.unseen else [f"{task}_test_clean", f"{task}_test"]
        items += _items(task, _complete(setting, _rows(folder, *splits)))
    return Material(train, tuple(items))


def _complete(setting: Setting, rows: Rows) -> Rows:
    """The rows, or those that lack no model's score where the setting leaves out the others."""
    if setting.data.incomplete == "refuse":
        return rows
    return [row for row in rows if None not in row.get(setting.data.scores, {}).values()]


def _from_hub(setting: Setting) -> Material:
    without = [domain for domain in setting.domains if domain not in setting.data.hub]
    if without:
        raise InputError(f"the setting '{setting.name}' names no data set of the hub for '{without[0]}'")
    train, items = {}, []
    for domain, source in setting.data.hub.items():
        rows = _hub_rows(source)
        if len(rows) <= source.test:
            raise InputError(f"{source.path} has {len(rows)} rows with text, and {source.test} are to be tested on")
        items += _items(domain, rows[: source.test])
        train[domain] = rows[source.test :]
    order = {domain: place for place, domain in enumerate(setting.domains)}
    return Material(
        {domain: train[domain] for domain in setting.known}, tuple(sorted(items, key=lambda item: order[item.domain]))
    )


def _hub_rows(source: HubData) -> list[dict[str, Any]]:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise MissingExtraError("datasets", "hub", "Reading texts from the hub", "ir3de-lab") from error
    try:
        stream = load_dataset(source.path, source.name, split=source.split, streaming=True)
        found: list[dict[str, Any]] = []
        for row in stream:
            text = row.get(source.field)
            if isinstance(text, str) and text.strip():
                found.append({**row, "text": text})
            if len(found) == source.train + source.test:
                break
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {source.path} from the hub: {error}") from error
    if not found:
        raise InputError(f"{source.path}: no text in the field '{source.field}' of its split '{source.split}'")
    return found


def _rows(folder: Path, *splits: str) -> Rows:
    """The rows of the first of the splits that there is."""
    for split in splits:
        found = sorted(folder.glob(f"{split}.jsonl*"))
        if len(found) > 1:
            raise InputError(f"{found[0]} and {found[1].name} are the same split: leave one of them there")
        if found:
            if rows := list(read_rows(found)):
                return rows
            raise InputError(f"{found[0]} has no rows")
    raise InputError(f"no {' or '.join(f'{split}.jsonl' for split in splits)}, plain or packed, in {folder}")


def _items(domain: str, rows: Rows) -> list[Item]:
    texts = [text_of(row) for row in rows]
    return [
        Item(item_id(domain, place, text), domain, text, row)
        for place, (text, row) in enumerate(zip(texts, rows, strict=True))
    ]
