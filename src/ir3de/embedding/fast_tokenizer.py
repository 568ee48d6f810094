"""The fast tokenizer engine, `tokie`, and what it needs to give the reference engine's ids.

`normalise` stands in for a normaliser that the engine lacks. `WordByWord` encodes the texts that a proof doubts.
`find_places` gives the place of each token in the text.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any
from unicodedata import is_normalized

import numpy as np
import numpy.typing as npt

from ir3de.errors import EmbeddingError
from ir3de.files.streams import unpack_gzip

Ids = npt.NDArray[np.uint32]
EncodeFlat = Callable[[list[str], bool], tuple[Ids, Any]]

GZIP_LEVEL = 4  # of gzip: a twentieth larger than at 9, and fourteen times as fast
# a larger compiled form is stored as it is: unpacking it would take longer than loading it
MAX_COMPRESSED_BYTES = 8_000_000


def load_engine(definition: Callable[[], bytes], cache: bytes | None) -> Any:
    """The engine from a tokenizer.json, or sooner from its compiled form, gzipped."""
    import tokie

    with tempfile.TemporaryDirectory() as folder:  # the engine reads files only
        path = Path(folder, "tokenizer")
        content = definition() if cache is None else unpack_gzip(cache, "the compiled tokenizer")
        try:
            path.write_bytes(content)
        except OSError as error:
            raise EmbeddingError(
                f"cannot unpack the tokenizer to {folder}: {error.strerror or error}. Make room there, or name another "
                "folder in TMPDIR"
            ) from error
        return tokie.Tokenizer.from_json(str(path)) if cache is None else tokie.Tokenizer.from_file(str(path))


def compress(engine: Any) -> bytes:
    """The engine's compiled form, gzipped."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tokenizer.tkz")
        engine.save(str(path))
        compiled = path.read_bytes()
        level = GZIP_LEVEL if len(compiled) <= MAX_COMPRESSED_BYTES else 0
        return gzip.compress(compiled, level, mtime=0)


@lru_cache(maxsize=1)
def find_engine_version() -> str:
    """The version of tokie that is installed."""
    import tokie

    # the folder next to the package has it, too, and importlib.metadata takes 30 ms to import
    folders = Path(tokie.__file__).parent.parent.glob("tokie-*.dist-info")
    found = [path.name.removesuffix(".dist-info").partition("-")[2] for path in folders]
    if len(found) == 1:
        return found[0]
    from importlib.metadata import version

    return version("tokie")


# --- texts as SentencePiece normalises them
#
# SentencePiece drops control characters, makes all white space single spaces, and brings the rest into Unicode's
# compatibility form (NFKC). Most texts are like that already, and the check takes less than a microsecond. The others
# are normalised by the reference engine's own normaliser, so that no second table of Unicode can differ from it.

NORMALIZER = {"type": "Sequence", "normalizers": [{"type": "Nmt"}, {"type": "NFKC"}]}
PRE_TOKENIZER = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "WhitespaceSplit"},
        {"type": "Metaspace", "prepend_scheme": "always", "replacement": "▁", "split": False},
    ],
}
_SPACES_THAT_PRINT = ("▁", "\ufffd")  # SentencePiece takes them for spaces


def is_sentencepiece(definition: bytes) -> bool:
    """Whether a tokenizer.json normalises and splits texts as `normalise` does."""
    try:
        content = json.loads(definition)
        return (
            content["normalizer"] == NORMALIZER
            and content["pre_tokenizer"] == PRE_TOKENIZER
            and content["model"]["type"] == "Unigram"
            and not content["added_tokens"]
        )
    except (ValueError, KeyError, TypeError):
        return False


def normalise(text: str) -> str:
    """The text as the tokenizer's model sees it, apart from the marks for spaces.

    >>> normalise("ﬁve  apples,\\n１２ pears")
    'five apples, 12 pears'
    """
    # printable: no control character, nor any white space but the common space
    is_plain = text.isprintable() and (
        text.isascii() or (is_normalized("NFKC", text) and not any(map(text.__contains__, _SPACES_THAT_PRINT)))
    )
    if not is_plain:
        text = _load_normaliser().normalize_str(text)
    if not is_plain or "  " in text or text[:1] == " " or text[-1:] == " ":
        return " ".join(text.split())
    return text


@lru_cache(maxsize=1)
def _load_normaliser() -> Any:
    from tokenizers import normalizers

    return normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])


class NormalisingEngine:
    """A fast engine that is given normalised texts. It replaces the engine itself."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def encode_batch_flat(self, texts: Sequence[str], add_special_tokens: bool) -> Any:
        return self._engine.encode_batch_flat([normalise(text) for text in texts], add_special_tokens)

    def encode(self, text: str, add_special_tokens: bool = False) -> Any:
        return self._engine.encode(normalise(text), add_special_tokens)

    def save(self, path: str) -> None:
        self._engine.save(path)


# --- doubtful texts of the default tokenizer, word by word
#
# Where the fast engine is in doubt, it splits a text into other words than the reference does, or keeps characters that
# the vocabulary lacks. So the reference's own splitter, which is small, makes the words here; characters that the
# vocabulary lacks are dropped from them, as the reference drops them; and the fast engine encodes each word by itself.
# The whole reference would take 47 MB and 130 ms, in which a gateway answers no request. A test proves that the ids are
# the same, on all that is doubtful, for the tokenizers and the versions of the engine that are listed here.

MAX_PIECE_CHARS = 1_024  # a text is cut so that few of its words are encoded like this
MANY_WORDS = 256  # up to here one call for each word is sooner done than the engine's threads are
MAX_TEXT_CHARS = 20_000  # more is left to the reference, which is faster once it is loaded

# the SHA-256 of a tokenizer and the version of the engine: the characters of one byte that the vocabulary lacks
PROVEN = {("876dc8becfa9e681e821bc424c78190144dbc0f9f8d3062f1e3a42d60a1c49e1", "0.1.4"): "\x04\x06\x13\x14\x16\x1d"}
_SPECIAL_BEGINNINGS = ("<|", "<repo", "<file", "<gh_", "<issue", "<jupyter", "<empty_")  # of the tokens it adds
_SPLIT_SPACES = "\x0b\x0c"  # white space that the fast engine splits from the white space around it
_FIRST_UNKNOWN, _LAST_UNKNOWN = "\U00040000", "\U000dffff"  # their first byte is not in the vocabulary


class WordByWord:
    """Encodes doubtful texts by the fast engine; None for those that it cannot encode."""

    def __init__(self, encode: EncodeFlat, missing: str) -> None:
        self._encode = encode
        self._missing = str.maketrans(dict.fromkeys(missing))

    @cached_property
    def _split(self) -> Callable[[str], list[tuple[str, tuple[int, int]]]]:
        from tokenizers import pre_tokenizers  # takes 4 MB, so it is imported at the first doubtful text

        splitters = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        return pre_tokenizers.Sequence(splitters).pre_tokenize_str

    def encode(self, text: str) -> Ids | None:
        """The ids; None if the reference engine must encode the text."""
        if any(special in text for special in _SPECIAL_BEGINNINGS):
            return None
        if not text.isascii() and any(_FIRST_UNKNOWN <= character <= _LAST_UNKNOWN for character in text):
            return None
        words = [text[first:last].translate(self._missing) for _, (first, last) in self._split(text)]
        if any(space in text for space in _SPLIT_SPACES) and any(
            len(word) > 1 and (_SPLIT_SPACES[0] in word or _SPLIT_SPACES[1] in word) for word in words
        ):
            return None
        if len(words) > MANY_WORDS:
            return self._encode(words, False)[0]
        return np.concatenate([np.empty(0, np.uint32), *(self._encode([word], False)[0] for word in words)])


_SEPARATOR = "\x00"


def find_places(engine: Any, ids: Sequence[int], text: str) -> list[int] | None:
    """The place of each token's first character, by the fast engine; None where its tokens are not the text's bytes.

    A character spread over several tokens is the first character of each.
    """
    if _SEPARATOR in text or not hasattr(engine, "decode_bytes"):
        return None
    separator = engine.encode_batch_flat([_SEPARATOR], False)[0].tolist()
    if len(separator) != 1:
        return None
    # all at once, because each call takes 80 µs
    parts = engine.decode_bytes([one for token in ids for one in (token, *separator)]).split(_SEPARATOR.encode())[:-1]
    encoded = text.encode()
    if len(parts) != len(ids) or b"".join(parts) != encoded:
        return None
    starts = [0, *accumulate(map(len, parts))][:-1]
    if text.isascii():
        return starts
    characters = np.cumsum(np.frombuffer(encoded, np.uint8) & 0xC0 != 0x80) - 1  # of which each byte is a part
    places: list[int] = characters[starts].tolist()
    return places


def make_decoder(definition: bytes) -> Any:
    """A decoder of the reference engine that fits how this tokenizer marks spaces."""
    from tokenizers import decoders

    document = json.loads(definition)
    model = document.get("model") or {}
    if '"ByteLevel"' in json.dumps([document.get("pre_tokenizer"), document.get("normalizer")]):
        return decoders.ByteLevel()
    if model.get("type") == "WordPiece":
        return decoders.WordPiece(model.get("continuing_subword_prefix") or "##")
    if suffix := model.get("end_of_word_suffix"):
        return decoders.BPEDecoder(suffix)
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    return decoders.Sequence(parts)
