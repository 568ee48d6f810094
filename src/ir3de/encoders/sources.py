"""Where an encoder's files are: a packaged model, a folder, an id on the hub; and where installed encoders lie."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from ir3de import files
from ir3de.embedding import packaged_models
from ir3de.embedding.huggingface import INDEX, TOKENIZER, WEIGHTS, fetch_file, fetch_first
from ir3de.encoders.settings import LENGTH, MODULES, POOLING, PROMPTS
from ir3de.encoders.transformer import read_object
from ir3de.errors import EmbeddingError, InputError

PACKAGED_ENCODERS = ("minilm-l6", "all-mpnet-base-v2", "multilingual-e5-small")
E5 = "multilingual-e5-small"  # a file of its own kind, not a folder
ONNX_FILES = ("onnx/model.onnx", "model.onnx")

_ODD = re.compile(r"[^\w.-]")  # not in the name of a folder
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")


@dataclass(frozen=True)
class Source:
    """The name of an encoder, and what it names."""

    name: str
    is_packaged: bool
    folder: Path | None  # None for a packaged model or an id on the hub

    @property
    def installed(self) -> Path:
        """Where `install` puts this encoder."""
        if self.folder is None:
            return encoders_folder() / self.name.replace("/", "--")
        path = self.folder.expanduser().resolve()
        known = hashlib.sha256(str(path).encode(errors="surrogateescape")).hexdigest()[:12]
        return encoders_folder() / f"{_ODD.sub('_', path.name)}-{known}"


def encoders_folder() -> Path:
    """Where installed encoders lie."""
    return files.user_cache("encoders")


def name_install(name: str) -> str:
    """The command that installs an encoder."""
    return f"ir3de encoder install {name}"


def find_source(name: str) -> Source:
    """What a name stands for; rejects one that stands for nothing."""
    if not isinstance(name, str) or not name:
        raise InputError(f"an encoder is named by a text, found {name!r}: {_name_choices()}")
    if name in PACKAGED_ENCODERS:
        return Source(name, is_packaged=True, folder=None)
    if name in packaged_models.PACKAGED_MODELS:
        raise InputError(f"the packaged model '{name}' is not a sentence encoder: {_name_choices()}")
    kind = files.find_kind(Path(name).expanduser())
    if kind == "folder":
        return Source(name, is_packaged=False, folder=Path(name).expanduser())
    if kind or not _HUB_ID.fullmatch(name):
        found = f"{name} is a file" if kind else f"no folder is at '{name}'"
        raise InputError(f"{found}: {_name_choices()}")
    return Source(name, is_packaged=False, folder=None)


def _name_choices() -> str:
    return f"name {', '.join(PACKAGED_ENCODERS)}, the folder of a sentence encoder, or a hub id (owner/model)"


def find_onnx(folder: Path) -> Path | None:
    """The ONNX file that a folder has."""
    return next((folder / name for name in ONNX_FILES if (folder / name).is_file()), None)


def check_folder(folder: Path) -> None:
    """Reject a folder without what every encoder has."""
    for name, what in (("config.json", "config.json"), (TOKENIZER, "fast tokenizer")):
        if not (folder / name).is_file():
            found = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
            raise EmbeddingError(
                f"{folder} has no {name}: found {found}. Save the model's {what} there, or name another folder"
            )


def fetch_hub(repo_id: str, *, weights: bool) -> Path:
    """The folder of a model in the hub's own cache, with its weights, or with its ONNX file if it has one."""
    folder = fetch_first(repo_id, ("config.json",)).parent
    for name in (TOKENIZER, POOLING, MODULES):
        fetch_first(repo_id, (name,))
    for name in (PROMPTS, LENGTH):
        _fetch_optional(repo_id, name)
    if not weights:
        for name in ONNX_FILES:
            if _fetch_optional(repo_id, name):
                _fetch_optional(repo_id, f"{name}_data")
                break
        return folder
    path = fetch_first(repo_id, (WEIGHTS, INDEX))
    if path.name == INDEX:
        shards = read_object(path).get("weight_map")
        for shard in sorted(set(shards.values())) if isinstance(shards, dict) else ():
            fetch_first(repo_id, (str(shard),))
    return folder


def _fetch_optional(repo_id: str, name: str) -> bool:
    """Fetch a file that a model need not have. A hub that does not answer is an error, unless the user is offline."""
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.utils import EntryNotFoundError  # type: ignore[attr-defined]  # here in every version

    if constants.HF_HUB_OFFLINE:
        return isinstance(try_to_load_from_cache(repo_id, name), str)
    try:
        fetch_file(repo_id, name)
    except EntryNotFoundError:
        return False
    except Exception as error:  # each version of the library has its own errors for a network that fails
        raise EmbeddingError(
            f"cannot get {name} of '{repo_id}' from the hub ({error}): try again, or download the model on a connected "
            "machine and name its folder"
        ) from error
    return True
