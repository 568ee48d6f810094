"""What a sentence encoder's folder defines beside its weights: pooling, prompts, and how long a text may be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from ir3de import files
from ir3de.encoders.transformer import read_config, read_object
from ir3de.errors import ArtifactError, EmbeddingError, InputError, name_some

Pooling = Literal["mean", "cls"]

MODULES, POOLING = "modules.json", "1_Pooling/config.json"
PROMPTS, LENGTH = "config_sentence_transformers.json", "sentence_bert_config.json"
KNOWN_MODULES = ("Transformer", "Pooling", "Normalize")
MIN_TOKENS = 3  # what begins a text, one token, what ends it

# vectors have unit length, so that a sum over the root of the length points where the mean does
_POOLING_OF = {"mean": "mean", "mean_tokens": "mean", "mean_sqrt_len_tokens": "mean", "cls": "cls", "cls_token": "cls"}


@dataclass(frozen=True)
class Settings:
    """How texts are prepared and how the states of their tokens become one vector."""

    pooling: Pooling
    max_tokens: int
    lowercase: bool
    prompts: Mapping[str, str]  # by name: what is written before a text
    prompt: str = ""  # the name of the one that is used

    @property
    def prefix(self) -> str:
        return self.prompts[self.prompt] if self.prompt else ""

    def with_prompt(self, name: str | None) -> Settings:
        """These settings with another prompt; None keeps the default one, "" takes none."""
        if name is None:
            return self
        if name and name not in self.prompts:
            found = name_some(self.prompts) if self.prompts else "none"
            raise InputError(f"the encoder has no prompt {name!r}; its prompts are: {found}")
        return replace(self, prompt=name)

    def to_header(self) -> dict[str, Any]:
        """As a part of a header in JSON."""
        return asdict(self)


def parse_settings(header: Mapping[str, Any]) -> Settings:
    """The settings in a header that `to_header` made."""
    return Settings(**{name: header[name] for name in Settings.__dataclass_fields__})


def read_settings(folder: Path) -> Settings:
    """The settings in a folder in the layout of sentence-transformers."""
    config = _read_optional(folder / LENGTH)
    lengths = [count_positions(folder)]
    if config.get("max_seq_length") is not None:
        lengths.append(config["max_seq_length"])
    if not all(isinstance(length, int) and length >= MIN_TOKENS for length in lengths):
        raise ArtifactError(
            f"{folder} allows texts of {lengths} tokens; at least {MIN_TOKENS} are needed: take {LENGTH} and "
            "config.json again from their source"
        )
    named = _read_optional(folder / PROMPTS)
    prompts, default = named.get("prompts") or {}, named.get("default_prompt_name") or ""
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise ArtifactError(f"the prompts in {folder / PROMPTS} are not texts by name: take the file again")
    if default and default not in prompts:
        raise ArtifactError(f"{folder / PROMPTS} names the prompt {default!r}, which it does not define")
    pooling = _read_pooling(folder, has_prompt=bool(default))
    return Settings(pooling, min(lengths), bool(config.get("do_lower_case")), prompts, default)


def count_positions(folder: Path) -> int:
    """The longest text in tokens that the model has positions for."""
    config = read_config(folder)
    try:
        most = int(config["max_position_embeddings"])
        if config.get("model_type") in ("roberta", "xlm-roberta", "mpnet"):
            most -= int(config.get("pad_token_id", 1)) + 1  # the first ones stand for padding
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{folder}/config.json names no number of positions ({error!r}): take it again") from error
    return most


def _read_pooling(folder: Path, *, has_prompt: bool) -> Pooling:
    path = folder / (_find_pooling(folder) or POOLING)
    if not path.is_file():
        raise EmbeddingError(
            f"{folder} has no {POOLING}, so it is not a sentence encoder in the layout of sentence-transformers: it "
            "does not define how the states of tokens become one vector. Name a folder that "
            "SentenceTransformer.save_pretrained has written"
        )
    config = read_object(path)
    modes = {name.removeprefix("pooling_mode_") for name in config if name.startswith("pooling_mode_") and config[name]}
    if isinstance(config.get("pooling_mode"), str):
        modes.add(config["pooling_mode"])
    found = {_POOLING_OF.get(mode, mode) for mode in modes}
    if len(found) != 1 or not found <= {"mean", "cls"}:
        raise EmbeddingError(f"{path} asks for {sorted(modes) or 'no'} pooling; ir3de knows mean_tokens and cls_token")
    if has_prompt and config.get("include_prompt") is False:
        raise EmbeddingError(f"{path} leaves the prompt out of the pooling (include_prompt), which ir3de cannot do")
    return cast(Pooling, found.pop())


def _find_pooling(folder: Path) -> str:
    """Where modules.json puts the pooling, "" without that file; rejects modules that are not known."""
    if not (folder / MODULES).is_file():
        return ""
    try:
        modules = json.loads(files.read(folder / MODULES))
        kinds = {str(module["type"]).rpartition(".")[2]: str(module["path"]) for module in modules}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArtifactError(f"{folder / MODULES} is damaged: {error!r}. Take it again from its source") from error
    if unknown := [kind for kind in kinds if kind not in KNOWN_MODULES]:
        raise EmbeddingError(f"{folder / MODULES} has the module {unknown[0]}; ir3de knows {', '.join(KNOWN_MODULES)}")
    return f"{kinds['Pooling']}/config.json" if "Pooling" in kinds else ""


def _read_optional(path: Path) -> dict[str, Any]:
    return read_object(path) if path.is_file() else {}
