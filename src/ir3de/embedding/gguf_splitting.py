"""How byte-level tokenizers cut text into words, by the names that GGUF files give the rules.

GGUF keeps a rule's name, not the rule. Only rules known for certain are here: a wrong one would give plausible,
wrong ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Splitting:
    """How a byte-level tokenizer cuts text into words before merging."""

    pre_tokenizer: Json
    normalizer: Json | None = None
    ignore_merges: bool = False


def _byte_level(*, use_regex: bool) -> Json:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _split_then_bytes(digits: str) -> Json:
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
        + digits
        + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, _byte_level(use_regex=False)]}


_DIGIT_BY_DIGIT = Splitting(
    {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True)]}
)
_GPT_2 = Splitting(_byte_level(use_regex=True))
_LLAMA_3 = Splitting(_split_then_bytes(r"\p{N}{1,3}"), ignore_merges=True)
_QWEN_2 = Splitting(_split_then_bytes(r"\p{N}"), normalizer={"type": "NFC"})

SPLITTINGS = {
    "smollm": _DIGIT_BY_DIGIT,
    "starcoder": _DIGIT_BY_DIGIT,
    "gpt-2": _GPT_2,
    "phi-2": _GPT_2,
    "default": _GPT_2,
    "llama-bpe": _LLAMA_3,
    "llama3": _LLAMA_3,
    "llama-v3": _LLAMA_3,
    "qwen2": _QWEN_2,
}
