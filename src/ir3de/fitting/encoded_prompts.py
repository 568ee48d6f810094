"""The vectors that a sentence encoder gives the kept prompts. They follow every change of the prompts.

A kept prompt is token ids, which are text again. So a vector depends on the prompt and the encoder alone, and only new
prompts are encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.embedding import Tokenizer
from ir3de.encoders.encoder import Encoder
from ir3de.encoders.shared import load_shared, share_encoder
from ir3de.errors import InputError, name_some
from ir3de.fitting.membership_examples import BACKGROUND_NEIGHBOURS
from ir3de.fitting.parts import Constant
from ir3de.routing.second_opinion import EncoderName, Vectors, quantise
from ir3de.scorers.arithmetic import stage
from ir3de.statistics.domain import Statistics
from ir3de.statistics.sample import Sample

ENCODING = "sentence vectors"  # the stage of a fit
MAX_PROMPT_TOKENS = 512  # that are read of a prompt: encoders read fewer
ENCODED_AT_ONCE = 256  # texts
EMPTY = "."  # in place of a text without characters, which has no vector

Known = dict[bytes, npt.NDArray[np.int8]]  # the vector of each prompt, by its token ids

_backgrounds: dict[tuple[str, str], Known] = {}  # that of the last fit: it is mostly the same in the next one


@dataclass(frozen=True, eq=False)
class EncodedPrompts:
    """The vectors of the experts' kept prompts and of the background, and the encoder that made them."""

    encoder: EncoderName
    share: float  # of prompts that the encoder is asked about
    vectors: Callable[[], Mapping[str, Vectors]]  # of each expert's labelled prompts, in the order of its sample
    background: Callable[[], Vectors]

    @classmethod
    def start(cls, encoder: Encoder, share: float) -> EncodedPrompts:
        """Without any prompt so far."""
        name = EncoderName(encoder.name, share_encoder(encoder).digest, encoder.width)
        nothing = np.zeros((0, encoder.width), np.int8)
        return cls(name, share, Constant({}), Constant(nothing))

    def follow(
        self,
        before: Mapping[str, Statistics],
        after: Mapping[str, Statistics],
        background: Statistics | None,
        tokenizer: Tokenizer,
    ) -> EncodedPrompts:
        """The vectors of the prompts after a change. The encoder is loaded only where a prompt is new."""
        require_prompts(after)
        known: Known = {}
        for name, own in self.vectors().items():
            known |= _index(_take_labelled(before[name].sample), own)
        far = Sample.empty() if background is None or background.sample is None else _begin(background.sample)
        known |= _index(far, self.background()) or _backgrounds.get((self.encoder.digest, far.digest), {})
        samples = {name: _take_labelled(own.sample) for name, own in after.items()}
        self._encode_missing([*samples.values(), far], known, tokenizer)
        found = {name: _look_up(sample, known, self.encoder.width) for name, sample in samples.items()}
        vectors = _look_up(far, known, self.encoder.width)
        _backgrounds.clear()
        _backgrounds[self.encoder.digest, far.digest] = _index(far, vectors)
        return replace(self, vectors=Constant(found), background=Constant(vectors))

    def _encode_missing(self, samples: Sequence[Sample], known: Known, tokenizer: Tokenizer) -> None:
        missing = {key: ids for sample in samples for key, ids in _list_keys(sample) if key not in known}
        if not missing:
            return
        encoder = load_shared(self.encoder.name, self.encoder.digest, self.encoder.width)
        keys, texts = (
            list(missing),
            [text if text.strip() else EMPTY for text in tokenizer.decode_batch([*missing.values()])],
        )
        with stage(ENCODING, len(texts)) as advance:
            for begin in range(0, len(texts), ENCODED_AT_ONCE):
                part = slice(begin, begin + ENCODED_AT_ONCE)
                made = quantise(encoder.encode(texts[part]))
                known.update(zip(keys[part], made, strict=True))
                advance(len(made))

    def read_all(self) -> EncodedPrompts:
        """The same in memory, ready to be pickled."""
        return replace(self, vectors=Constant.call(self.vectors), background=Constant.call(self.background))


def require_prompts(domains: Mapping[str, Statistics]) -> None:
    """Raise an error for experts without a kept prompt."""
    if bare := [f"'{name}'" for name, own in domains.items() if not len(own.sample or ())]:
        raise InputError(
            f"an encoder's head is fitted to kept prompts, and {name_some(bare)} of {len(domains)} experts have none: "
            "give each expert texts, and keep a sample of them (keep_sample=True)"
        )


def open_encoder(encoder: str | Encoder, *, keep_sample: bool) -> Encoder:
    """The encoder that a fit was given, by name or loaded."""
    if not keep_sample:
        raise InputError("encoder= needs kept prompts, and keep_sample=False keeps none: leave out one of them")
    if isinstance(encoder, Encoder):
        return encoder
    if not isinstance(encoder, str):
        raise InputError(f"encoder must be a name, a folder or an Encoder, found {encoder!r}")
    return Encoder.load(encoder)


def _take_labelled(sample: Sample | None) -> Sample:
    """The prompts that people labelled, which come first; where there are none, those that a teacher labelled."""
    if sample is None:
        return Sample.empty()
    return sample.take(np.arange(sample.labelled or len(sample)))


def _begin(sample: Sample) -> Sample:
    return sample.take(np.arange(min(BACKGROUND_NEIGHBOURS, len(sample))))


def _list_keys(sample: Sample) -> list[tuple[bytes, npt.NDArray[np.uint32]]]:
    cut = sample.truncate(MAX_PROMPT_TOKENS)
    return [(ids.tobytes(), ids) for ids in (cut.split() if len(cut) else ())]


def _index(sample: Sample, vectors: Vectors) -> Known:
    """The vectors of a sample's prompts. A sample without vectors, as that of a new background, gives none."""
    if len(sample) != len(vectors):
        return {}
    return {key: row for (key, _), row in zip(_list_keys(sample), vectors, strict=True)}


def _look_up(sample: Sample, known: Known, width: int) -> Vectors:
    rows: list[Any] = [known[key] for key, _ in _list_keys(sample)]
    return np.stack(rows) if rows else np.zeros((0, width), np.int8)
