"""`Encoder`: from texts to unit vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from ir3de import files
from ir3de.embedding.huggingface import TOKENIZER
from ir3de.embedding.normalisation import replace_lone_surrogates
from ir3de.encoders.installed import load_installed
from ir3de.encoders.running import Parts, load_tokenizer, make_digest, open_session, pool
from ir3de.encoders.settings import read_settings
from ir3de.encoders.sources import Source, check_folder, fetch_hub, find_onnx, find_source, name_install
from ir3de.encoders.transformer import Floats, find_weights
from ir3de.errors import ArtifactError, EmbeddingError, InputError
from ir3de.files.atomic import count_cores

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

USUAL_BATCH_TEXTS = 32
MAX_CHARACTERS = 100_000  # of a text: what is behind them is not read, however few tokens they have
TOKENISED_AT_ONCE = 4_096  # texts


class Encoder:
    """A sentence encoder: `encode` gives each text a vector of unit length.

    The vector of a text depends neither on the other texts nor on their order, to the last bit: texts of one batch have
    the same number of tokens, so that nothing is padded, and each has scales of its own.

        encoder = Encoder.load("minilm-l6")
        vectors = encoder.encode(["Is this contract void?", "Prove that 2 is prime."])
    """

    def __init__(self, parts: Parts, *, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise InputError(f"an encoder needs at least one thread, found {threads}")
        self._parts, self._settings = parts, parts.settings
        self._threads = threads or max(1, count_cores() // 2)  # the other half is for the rest of the program
        self._tokenizer = load_tokenizer(parts.tokenizer, parts.settings.max_tokens, parts.name)
        self._inputs = [given.name for given in parts.session.get_inputs()]
        self._output = _choose_output(parts.session, parts.name)
        self._width = int(parts.session.get_outputs()[self._output].shape[-1])

    @classmethod
    def load(cls, name: str, *, prompt: str | None = None, threads: int | None = None) -> Self:
        """Load an encoder: a packaged model's name, a folder, or a hub id.

        One that `ir3de encoder install` has made is taken first, else the ONNX file in the folder. `prompt` is the name
        of one of the encoder's prompts ("query"), "" for none; by default it is the one that the encoder's files name.
        `threads` is by default half of the cores; the vectors do not depend on it.
        """
        source = find_source(name)
        parts = load_installed(source) or _load_folder(source)
        return cls(parts._replace(settings=parts.settings.with_prompt(prompt)), threads=threads)

    @property
    def name(self) -> str:
        """The name by which the encoder was loaded."""
        return self._parts.name

    @property
    def width(self) -> int:
        """The numbers in a vector."""
        return self._width

    @property
    def max_tokens(self) -> int:
        """How much of a text is read, counted with the prompt and the tokens that begin and end a text."""
        return self._settings.max_tokens

    @property
    def digest(self) -> str:
        """The SHA-256 over the weights that are used, the tokenizer, the pooling and the prompt."""
        tokenizer_sha256 = hashlib.sha256(self._parts.tokenizer).hexdigest()
        return make_digest(self._parts.model_sha256, tokenizer_sha256, self._settings)

    def encode(self, texts: Sequence[str], *, batch: int = USUAL_BATCH_TEXTS) -> Floats:
        """The vectors (n, width) of texts, each of unit length; `batch` bounds how many are computed at once."""
        if batch < 1:
            raise InputError(f"a batch has at least one text, found {batch}")
        prepared = self._prepare(texts)
        made = np.empty((len(prepared), self.width), np.float32)
        ids = self._tokenise(prepared)
        batches = list(_group(ids, batch if self._parts.is_ours else 1))

        def run(places: list[int]) -> None:
            made[places] = self._run(np.array([ids[place] for place in places], np.int64))

        if self._threads == 1 or len(batches) < 2:
            for places in batches:
                run(places)
        else:
            with ThreadPoolExecutor(min(self._threads, len(batches))) as pool:
                list(pool.map(run, batches))  # `list` raises what a thread raised
        return made

    def _prepare(self, texts: Sequence[str]) -> list[str]:
        if isinstance(texts, str | bytes):
            raise InputError("encode takes a list of texts, found a single text: put it into a list")
        prepared = []
        for place, text in enumerate(texts):
            if not isinstance(text, str):
                raise InputError(f"text {place} is not a string but {type(text).__name__}: pass strings")
            if not text.strip():
                raise InputError(f"text {place} is empty, and an empty text has no meaning to encode: leave it out")
            text = replace_lone_surrogates(text[:MAX_CHARACTERS])
            prepared.append(self._settings.prefix + (text.lower() if self._settings.lowercase else text))
        return prepared

    def _tokenise(self, texts: list[str]) -> list[list[int]]:
        pieces = (texts[begin : begin + TOKENISED_AT_ONCE] for begin in range(0, len(texts), TOKENISED_AT_ONCE))
        return [encoded.ids for some in pieces for encoded in self._tokenizer.encode_batch(some)]

    def _run(self, ids: npt.NDArray[np.int64]) -> Floats:
        """The vectors of texts with equally many tokens."""
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        states = self._parts.session.run(None, {name: given[name] for name in self._inputs})[self._output]
        return np.stack([pool(some, self._settings) for some in states])  # one by one: each sum has the same order


def _group(ids: list[list[int]], batch: int) -> Iterator[list[int]]:
    """The places of texts in batches of one length each."""
    of_length: dict[int, list[int]] = {}
    for place, some in enumerate(ids):
        of_length.setdefault(len(some), []).append(place)
    for _, places in sorted(of_length.items(), reverse=True):  # the longest first, so that threads end together
        for begin in range(0, len(places), batch):
            yield places[begin : begin + batch]


def _choose_output(session: InferenceSession, place: str) -> int:
    """Which output has the states of tokens: (texts, tokens, width)."""
    known = {"input_ids", "attention_mask", "token_type_ids"}
    inputs = [given.name for given in session.get_inputs()]
    if "input_ids" not in inputs or not known.issuperset(inputs):
        raise EmbeddingError(
            f"the ONNX file of {place} takes {', '.join(inputs)}; ir3de gives {', '.join(sorted(known))}"
        )
    for number, given in enumerate(session.get_outputs()):
        if len(given.shape) == 3 and isinstance(given.shape[-1], int):
            return number
    found = ", ".join(f"{given.name} {given.shape}" for given in session.get_outputs())
    raise EmbeddingError(f"the ONNX file of {place} gives no states of tokens (texts, tokens, width), but {found}")


def _load_folder(source: Source) -> Parts:
    """An encoder from the ONNX file that its folder has."""
    if source.is_packaged:
        raise ArtifactError(f"the encoder '{source.name}' is not installed: {name_install(source.name)}")
    folder = source.folder or fetch_hub(source.name, weights=False)
    check_folder(folder)
    path = find_onnx(folder)
    if path is None:
        if source.folder is not None:
            find_weights(folder)  # without any, installing would not help
        raise ArtifactError(
            f"'{source.name}' has no ONNX file and is not installed. To make one from its weights: "
            f"{name_install(source.name)}"
        )
    sha = hashlib.sha256(files.read(path))
    beside = path.with_name(f"{path.name}_data")  # where large models keep their weights
    if beside.is_file():
        sha.update(files.read(beside))
    settings, tokenizer = read_settings(folder), files.read(folder / TOKENIZER)
    return Parts(source.name, open_session(path, source.name), tokenizer, settings, sha.hexdigest(), is_ours=False)
