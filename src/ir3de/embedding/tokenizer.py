"""Text to token ids: the reference engine (`tokenizers`), and a faster one (`tokie`) where it gives the same ids.

A tokenizer is the bytes of a Hugging Face `tokenizer.json`. The fast engine is used only where a proof exists for this
very tokenizer and version of the engine (`proof.py`). The proof is saved with the tokenizer, so it is made once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ir3de import kernel
from ir3de.embedding import fast_tokenizer as fast
from ir3de.embedding.normalisation import (
    JUDGED_CHARACTERS,
    MAX_CHARACTERS_PER_TOKEN,
    MIN_CHANGES,
    cut_text,
    is_long,
    is_random_case,
    is_too_short,
    lowercase_if_all_caps,
    not_one_text,
    not_texts,
    read_first,
    replace_lone_surrogates,
    take_first,
    take_longest,
)
from ir3de.embedding.proof import LONGEST_IN_CHARACTERS, TESTED_PROOFS, EncodeBatch, Proof, cut, get_proof, prove
from ir3de.embedding.reference_tokenizer import encode_texts, find_unknown, read_decoder, read_reference
from ir3de.kernel.interfaces import Quick

if TYPE_CHECKING:
    import tokenizers

    from ir3de.kernel import Reader

Ids = npt.NDArray[np.uint32]
Lengths = npt.NDArray[np.uint64]


class Unread(Enum):
    """Marks a value that was not read from the definition, because that takes tens of milliseconds."""

    NOT_READ = "not read"


class Tokenizer:
    """The bytes of a tokenizer.json, with encode, encode_batch and pieces.

    The other arguments are shortcuts that a saved artifact provides: `proof` vouches for the fast engine, `fast_cache`
    is that engine's compiled form, gzipped, which loads in a tenth of the time, and `unknown_id` spares reading the
    JSON. So the definition itself may be a function that is called when it is first needed.
    """

    def __init__(
        self,
        definition: bytes | Callable[[], bytes],
        *,
        proof: Proof | None = None,
        fast_cache: bytes | None = None,
        unknown_id: int | Unread | None = Unread.NOT_READ,
    ) -> None:
        self._given_definition = definition
        self._given_proof = proof
        self._given_cache = fast_cache
        self._given_unknown = unknown_id

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickled tokenizer has no engines: they are loaded again where it is used."""
        made: tuple[Any, Proof] | None = vars(self).get("_fast")  # making one takes seconds
        proof = self._given_proof if made is None else made[1]
        given: dict[str, Any] = {"proof": proof, "fast_cache": self._given_cache, "unknown_id": self._given_unknown}
        return partial(Tokenizer, **given), (self.definition,)

    @cached_property
    def definition(self) -> bytes:
        """The tokenizer.json."""
        given = self._given_definition
        return given if isinstance(given, bytes) else given()

    @cached_property
    def sha256(self) -> str:
        given = vars(self).get("definition", self._given_definition)  # not kept in memory for this alone
        return hashlib.sha256(given if isinstance(given, bytes) else given()).hexdigest()

    @cached_property
    def reference(self) -> tokenizers.Tokenizer:
        """The same tokenizer in the reference engine, never truncating or padding."""
        return read_reference(self.definition)

    @cached_property
    def _fast(self) -> tuple[Any, Proof] | None:
        """The fast engine and the proof that it may be used, or None."""
        try:
            import tokie
        except ImportError:
            return None
        given, version = self._given_proof, fast.find_engine_version()
        is_given = given is not None and given.version == version
        try:
            engine = fast.load_engine(lambda: self.definition, self._given_cache if is_given else None)
        except tokie.TokieError:
            return None
        known = given if is_given else TESTED_PROOFS.get((self.sha256, version))
        is_normalised = fast.is_sentencepiece(self.definition) if known is None else known.normalised
        if is_normalised:
            engine = fast.NormalisingEngine(engine)
        if known is not None:
            return engine, known

        def make_proof() -> Proof | None:
            made = prove(lambda texts: engine.encode_batch_flat(texts, False), self._encode_by_reference, version)
            return made and replace(made, normalised=is_normalised)

        # where the saved proof is about another version, the new one is cached: the saved file may stay as it is
        proof = make_proof() if given is None else get_proof(self.sha256, version, make_proof)
        return None if proof is None else (engine, proof)

    @property
    def engine(self) -> str:
        """The engine that encodes: 'tokie 0.1.4' or 'tokenizers'."""
        return "tokenizers" if self._fast is None else f"tokie {self._fast[1].version}"

    @property
    def fast_engine(self) -> Any:
        """The fast engine's own object, or None: for measurements against it."""
        return None if self._fast is None else self._fast[0]

    @property
    def proof(self) -> Proof | None:
        """The fast engine's proof, to be saved with the tokenizer."""
        return None if self._fast is None else self._fast[1]

    @cached_property
    def fast_cache(self) -> bytes | None:
        """The fast engine's compiled form, compressed, or None without a fast engine."""
        if self._fast is None:
            return None
        engine, proof = self._fast
        if self._given_cache is not None and proof is self._given_proof:
            return self._given_cache
        return fast.compress(engine)

    @cached_property
    def vocabulary_size(self) -> int:
        """One more than the highest token id."""
        return 1 + max(self.reference.get_vocab(with_added_tokens=True).values(), default=-1)

    @cached_property
    def unknown_id(self) -> int | None:
        """The id that stands for text the vocabulary lacks, if the tokenizer has one."""
        given = self._given_unknown
        return find_unknown(self.reference, self.definition) if given is Unread.NOT_READ else given

    def encode(self, text: str, most: int | None = None) -> Ids:
        """The text's token ids, without special tokens: exactly what is counted and routed.

        Long texts all in capitals, and texts in random case, are lowercased. Lone surrogates become U+FFFD.
        Where only the first `most` ids are needed, no more of a long text is read than necessary.
        """
        try:
            if (quick := self.quick) is not None and quick.reader.is_plain(text):
                ids: Ids = quick.encode([text], False)[0]
                return ids
            if len(text) > JUDGED_CHARACTERS:
                if most is not None and is_long(text, most):
                    return read_first(self.encode, text, most)
                text = lowercase_if_all_caps(text)
            elif text.isupper():  # it stops at the first small letter
                text = lowercase_if_all_caps(text)
            return self._encode_one(text)
        except UnicodeEncodeError:
            return self._encode_one(replace_lone_surrogates(text))
        except (TypeError, AttributeError) as error:
            raise not_one_text(text) from error

    def encode_batch(self, texts: Sequence[str], most: int | None = None) -> tuple[Ids, Lengths]:
        """All texts' ids end to end, and how many belong to each. The ids are those of `encode`.

        Where only the first `most` ids of each are needed, no more of a long text is read than necessary.
        """
        if isinstance(texts, (str, bytes)):
            raise not_texts(texts)
        try:
            if most is not None and is_long(max(texts, key=len, default=""), most):
                return self._encode_beginnings(texts, most)
            if self.quick is not None:
                return self._encode_unusual_apart(list(texts), self.quick.reader, self.quick.encode)
            texts = [lowercase_if_all_caps(text) for text in texts]
            return self._encode_all(texts)
        except UnicodeEncodeError:
            return self._encode_all([replace_lone_surrogates(text) for text in texts])
        except (TypeError, AttributeError) as error:
            raise not_texts(texts) from error

    def _encode_beginnings(self, texts: Sequence[str], most: int) -> tuple[Ids, Lengths]:
        cut = [take_first(text, most) for text in texts]
        ids, lengths = self.encode_batch(cut)
        short = [i for i, text in enumerate(texts) if is_long(text, most) and is_too_short(int(lengths[i]), most)]
        if not short:
            return ids, lengths
        for i in short:
            cut[i] = take_longest(texts[i], most)
        return self.encode_batch(cut)

    @cached_property
    def quick(self) -> Quick | None:
        """What encodes most texts; None without the kernel."""
        if kernel.native is None or self._fast is None:
            return None
        engine, proof = self._fast
        longest = min(JUDGED_CHARACTERS, LONGEST_IN_CHARACTERS)
        return Quick(proof.make_reader(kernel.native, longest, MIN_CHANGES), engine.encode_batch_flat)

    def _encode_unusual_apart(
        self, texts: list[str], reader: Reader, encode_fast: fast.EncodeFlat
    ) -> tuple[Ids, Lengths]:
        """All texts: those that are not plain are examined and encoded by themselves."""
        places = reader.find_unusual(texts)
        if not places:
            return encode_fast(texts, False)
        unusual, plain = [lowercase_if_all_caps(texts[place]) for place in places], texts.copy()
        for place in places:
            plain[place] = ""
        try:
            apart, sizes = self._encode_all(unusual)
        except UnicodeEncodeError:
            apart, sizes = self._encode_all([replace_lone_surrogates(text) for text in unusual])
        flat, lengths = encode_fast(plain, False)
        before, ends = np.cumsum(lengths)[places].tolist(), np.cumsum(sizes).tolist()
        lengths[places] = sizes
        parts, done, first = [], 0, 0
        for place, end in zip(before, ends, strict=True):
            parts += [flat[done:place], apart[first:end]]
            done, first = place, end
        return np.concatenate([*parts, flat[done:]]), lengths

    @cached_property
    def _encode_one(self) -> Callable[[str], Ids]:
        if self._fast is None:
            return lambda text: self._encode_all([text])[0]
        engine, proof = self._fast
        encode_fast, doubts = engine.encode_batch_flat, proof.doubts

        def encode_one(text: str) -> Ids:
            ids: Ids = (self._encode_doubtful([text]) if doubts(text) else encode_fast([text], False))[0]
            if len(text) > JUDGED_CHARACTERS:
                is_random = self._is_long_random_case(text)
            else:
                is_random = len(text) < MAX_CHARACTERS_PER_TOKEN * len(ids) and is_random_case(text, len(ids))
            return encode_one(text.lower()) if is_random else ids

        return encode_one

    def _encode_all(self, texts: list[str]) -> tuple[Ids, Lengths]:
        ids, lengths = self._encode_many(texts)
        characters = np.fromiter(map(len, texts), np.uint64, len(texts))
        is_long = characters > JUDGED_CHARACTERS
        many_tokens = np.flatnonzero(~is_long & (characters < MAX_CHARACTERS_PER_TOKEN * lengths))
        random = [i for i in many_tokens.tolist() if is_random_case(texts[i], int(lengths[i]))]
        random += [i for i in np.flatnonzero(is_long).tolist() if self._is_long_random_case(texts[i])]
        lowercased = {i: texts[i].lower() for i in random}
        if not lowercased:
            return ids, lengths
        return self._encode_many([lowercased.get(i, text) for i, text in enumerate(texts)])

    def _is_long_random_case(self, text: str) -> bool:
        """Whether the beginning of a long text is in random case."""
        judged = text[:JUDGED_CHARACTERS]
        return is_random_case(judged, len(judged)) and is_random_case(judged, len(self._encode_many([judged])[0]))

    @cached_property
    def _encode_many(self) -> EncodeBatch:
        if self._fast is None:
            return self._encode_by_reference
        engine, proof = self._fast
        encode_fast = engine.encode_batch_flat

        def encode_many(texts: Sequence[str]) -> tuple[Ids, Lengths]:
            if proof.doubts_any(texts):
                return self._encode_doubtful(texts)
            return encode_fast(texts, False)  # type: ignore[no-any-return]

        return encode_many

    def _encode_doubtful(self, texts: Sequence[str]) -> tuple[Ids, Lengths]:
        """Long texts in pieces, doubtful pieces by the reference engine, the others by the fast one, in their order."""
        assert self._fast is not None
        engine, proof = self._fast
        cuts = [self._cut(text, proof) for text in texts]
        pieces = [piece for text in cuts for piece in text]
        doubtful = np.array([proof.doubts(piece) for piece in pieces])
        parts, lengths = np.empty(len(pieces), object), np.empty(len(pieces), np.uint64)
        for chosen, encode in (
            (np.flatnonzero(doubtful), self._encode_by_words),
            (np.flatnonzero(~doubtful), lambda sure: engine.encode_batch_flat(sure, False)),
        ):
            if not chosen.size:
                continue
            flat, lengths[chosen] = encode([pieces[int(i)] for i in chosen])
            ends = np.cumsum(lengths[chosen].astype(np.int64))
            for i, part in zip(chosen, np.split(flat, ends), strict=False):
                parts[i] = part
        first_piece = np.cumsum([0, *(len(text) for text in cuts[:-1])])
        return np.concatenate(parts), np.add.reduceat(lengths, first_piece)

    def _cut(self, text: str, proof: Proof) -> list[str]:
        """A long text in pieces; in short ones where the doubtful ones are encoded word by word."""
        found = None
        if proof.cuttable and self._words is not None and len(text) <= fast.MAX_TEXT_CHARS:
            found = cut(text, fast.MAX_PIECE_CHARS)
        return found or (cut(text) if proof.cuttable else None) or [text]

    def warm_up(self) -> None:
        """Load what encodes texts, doubtful ones included, without the reference engine."""
        self.encode("a")
        self._words  # noqa: B018 - it is cached

    @cached_property
    def _words(self) -> fast.WordByWord | None:
        if self._fast is None:
            return None
        engine, proof = self._fast
        missing = fast.PROVEN.get((self.sha256, proof.version))
        return None if missing is None else fast.WordByWord(engine.encode_batch_flat, missing)

    def _encode_by_words(self, texts: Sequence[str]) -> tuple[Ids, Lengths]:
        """Doubtful texts by the fast engine, where that is possible and the reference is not loaded anyway."""
        if self._words is None or "reference" in vars(self) or sum(map(len, texts)) > fast.MAX_TEXT_CHARS:
            return self._encode_by_reference(texts)
        found = []
        for text in texts:
            if (ids := self._words.encode(text)) is None:
                return self._encode_by_reference(texts)
            found.append(ids)
        return np.concatenate([np.empty(0, np.uint32), *found]), np.array([len(ids) for ids in found], np.uint64)

    def _encode_by_reference(self, texts: Sequence[str]) -> tuple[Ids, Lengths]:
        return encode_texts(self.reference, texts)

    def _encode_with_places(self, text: str) -> tuple[list[int], list[int]]:
        """The ids, and where each token begins."""
        if self._fast is not None:
            ids: list[int] = self._encode_many([text])[0].tolist()
            if (places := fast.find_places(self._fast[0], ids, text)) is not None:
                return ids, places
        # as a batch, because `encode` keeps the interpreter's lock
        encoding = self.reference.encode_batch([text], add_special_tokens=False)[0]
        return encoding.ids, [start for start, _ in encoding.offsets]

    def decode_batch(self, prompts: Sequence[Ids]) -> list[str]:
        """Token ids as text again; letters that `encode` lowercased stay so, and dropped characters are missing."""
        found: list[str] = self._decoder.decode_batch([ids.tolist() for ids in prompts], skip_special_tokens=False)
        return found

    @cached_property
    def _decoder(self) -> tokenizers.Tokenizer:
        return read_decoder(self.definition)

    def pieces(self, text: str, most: int | None = None) -> list[tuple[int, str]]:
        """Each token's id with the stretch of text it stands for. The stretches make up the whole text.

        The ids are those of `encode`; the stretches keep the capitals of the text.
        """
        if not isinstance(text, str):
            raise not_one_text(text)
        if most is not None and is_long(text, most):
            return read_first(self.pieces, text, most)
        normalised = replace_lone_surrogates(lowercase_if_all_caps(text))
        text = replace_lone_surrogates(text)
        ids, starts = self._encode_with_places(normalised)
        if len(normalised) > JUDGED_CHARACTERS:
            is_random = self._is_long_random_case(normalised)
        else:
            is_random = is_random_case(normalised, len(ids))
        if is_random:
            normalised = normalised.lower()
            ids, starts = self._encode_with_places(normalised)
        return cut_text(text, normalised, ids, starts)
