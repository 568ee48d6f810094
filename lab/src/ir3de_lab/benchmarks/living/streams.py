"""The shared sets as streams of traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ir3de.errors import InputError
from ir3de_lab.benchmarks.defaults import Material, read_material

SETS = ("banking77", "stackoverflow20")
QUICK_EXPERTS = 8
QUICK_PROMPTS = 60  # of an expert, in training and in test


def read_sets(data: Path, names: Sequence[str] = SETS, *, quick: bool = False) -> dict[str, Material]:
    """The named sets of a folder, in this order; with `quick` a small part of each."""
    found: dict[str, Material] = {}
    for material in read_material(data):
        if material.name in names:
            found[material.name] = _shorten(material) if quick else material
        if len(found) == len(names):
            break
    if missing := [name for name in names if name not in found]:
        raise InputError(f"{data} lacks {', '.join(missing)}: expected intents/{missing[0]}/train.jsonl and test.jsonl")
    return {name: found[name] for name in names}


def _shorten(material: Material) -> Material:
    names = list(material.train)[:QUICK_EXPERTS]

    def cut(texts: Mapping[str, list[str]]) -> dict[str, list[str]]:
        return {name: texts[name][:QUICK_PROMPTS] for name in names}

    splits = {split: cut(texts) for split, texts in material.splits.items()}
    return replace(material, train=cut(material.train), splits=splits)


def list_labelled(texts: Mapping[str, Sequence[str]]) -> tuple[list[str], list[str]]:
    """All prompts and, at the same places, their experts."""
    pairs = [(text, name) for name, own in texts.items() for text in own]
    return [text for text, _ in pairs], [name for _, name in pairs]
