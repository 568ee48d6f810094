"""The files of a second opinion: the encoder's head, and the vectors of the kept prompts, which only changes need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ir3de.files.router_folder import Part, Parts, name_damage, read_part, refuse_serving
from ir3de.files.tensors import from_safetensors, to_safetensors
from ir3de.routing.second_opinion import EncoderName, SecondOpinion, Vectors

if TYPE_CHECKING:  # a router without an encoder does not import it
    from ir3de.fitting.encoded_prompts import EncodedPrompts

Header = Mapping[str, Any]


def describe_opinion(
    opinion: SecondOpinion | None, encoded: EncodedPrompts | None, experts: Sequence[dict[str, Any]], parts: Parts
) -> dict[str, Any]:
    """The header's field of an opinion, if there is one. The vectors of each expert are added to `experts`."""
    if opinion is None:
        return {}
    head = to_safetensors(opinion.tensors, {"kind": "ir3de.opinion", "version": 1})
    described = {**opinion.describe(), "file": parts.add("opinion", ".safetensors", head)}
    if encoded is not None:
        vectors = encoded.vectors()
        for expert in experts:
            expert["vectors"] = _add_vectors(vectors[expert["name"]], parts)
        described["background"] = _add_vectors(encoded.background(), parts)
    return {"opinion": described}


def _add_vectors(vectors: Vectors, parts: Parts) -> dict[str, str]:
    content = to_safetensors({"vectors": vectors}, {"kind": "ir3de.vectors", "version": 1})
    return parts.add("vectors", ".safetensors", content)


def read_opinion(folder: Path, described: Header) -> SecondOpinion:
    """The opinion that a header describes."""
    tensors, _ = from_safetensors(read_part(folder, described["file"]), folder / described["file"]["name"])
    return SecondOpinion.restore(described, tensors)


def restore_vectors(folder: Path, header: Header) -> EncodedPrompts | None:
    """The vectors of the kept prompts, which are read when a change first needs them; None without an encoder."""
    if (described := header.get("opinion")) is None:
        return None
    from ir3de.fitting.encoded_prompts import EncodedPrompts

    read_experts = lru_cache(maxsize=1)(partial(_read_experts, folder, header))
    read_background = lru_cache(maxsize=1)(partial(_read_background, folder, header))
    return EncodedPrompts(EncoderName(**described["encoder"]), described["share"], read_experts, read_background)


def _read_experts(folder: Path, header: Header) -> dict[str, Vectors]:
    with name_damage(folder):
        refuse_serving(folder, header)
        return {expert["name"]: _read_vectors(folder, expert["vectors"]) for expert in header["experts"]}


def _read_background(folder: Path, header: Header) -> Vectors:
    with name_damage(folder):
        refuse_serving(folder, header)
        return _read_vectors(folder, header["opinion"]["background"])


def _read_vectors(folder: Path, part: Part) -> Vectors:
    found: Vectors = from_safetensors(read_part(folder, part), folder / part["name"])[0]["vectors"]
    return found
