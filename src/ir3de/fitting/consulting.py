"""Where texts meet the encoder of a router: it is loaded when a prompt first needs it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ir3de.embedding import Tokenizer
from ir3de.errors import InputError
from ir3de.files.atomic import count_cores
from ir3de.policies import Costs
from ir3de.routing.compiled import CompiledRouter, decide_texts
from ir3de.routing.consulting import consult, is_unsure
from ir3de.routing.decision import Decision
from ir3de.routing.explanation import Explanation, explain, explain_consulted
from ir3de.routing.rules import DecisionRules

if TYPE_CHECKING:  # a router without an encoder does not import them
    from ir3de.encoders import Encoder
    from ir3de.fitting.encoded_prompts import EncodedPrompts

USUAL_SHARE = 0.2  # of prompts that the encoder is asked about


def start_encoding(encoder: str | Encoder, share: float, *, keep_sample: bool) -> EncodedPrompts:
    """Load the encoder of a new router, and check how it is to be used."""
    from ir3de.fitting.encoded_prompts import EncodedPrompts, open_encoder

    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
        raise InputError(f"encoder_share, the share of prompts that it is asked about, is in (0, 1], found {share!r}")
    return EncodedPrompts.start(open_encoder(encoder, keep_sample=keep_sample), float(share))


def ask_encoder(
    rules: DecisionRules,
    decisions: Sequence[Decision],
    texts: Sequence[str],
    weights: Costs | None,
    asks: bool | None,
) -> list[Decision]:
    """The decisions after the encoder was asked about the unsure ones, or with `asks` about all.

    Where the encoder is missing, the table's decisions stand, after one warning; with `asks`, that is an error.
    """
    opinion, always = rules.opinion, asks is True
    if opinion is None:
        if always:
            raise InputError("this router has no encoder to consult: fit it with encoder=, or leave out consult=True")
        return list(decisions)
    both = zip(decisions, texts, strict=True)
    if asks is False or not any(is_unsure(made, text, always=always) for made, text in both):
        return list(decisions)
    from ir3de.encoders.shared import find_shared, load_shared

    named = opinion.encoder.name, opinion.encoder.digest, opinion.encoder.width
    encoder = load_shared(*named) if always else find_shared(*named)
    if encoder is None:
        return list(decisions)
    return consult(decisions, texts, encoder.encode, weights, always=always)


def route_texts(
    compiled: CompiledRouter, tokenizer: Tokenizer, texts: Iterable[str], weights: Costs | None, asks: bool | None
) -> list[Decision]:
    """Route many texts by the table, and then show the encoder those of which the table is unsure."""
    encode, threads = tokenizer.encode_batch, count_cores()
    if compiled.rules.opinion is not None and not isinstance(texts, (str, bytes, Sequence, np.ndarray)):
        texts = list(texts)
    made = decide_texts(compiled, encode, tokenizer.unknown_id, texts, weights, threads=threads)
    if compiled.rules.opinion is None and not asks:
        return made
    return ask_encoder(compiled.rules, made, list(texts), weights, asks)


def explain_text(
    compiled: CompiledRouter, tokenizer: Tokenizer, text: str, weights: Costs | None, asks: bool | None
) -> Explanation:
    """Explain a decision; with a second opinion, its words are those that the table decided by."""
    pieces, unknown = tokenizer.pieces(text, compiled.cap), tokenizer.unknown_id
    explained = explain(compiled, pieces, unknown, weights)
    if compiled.rules.opinion is None and not asks:
        return explained
    (made,) = ask_encoder(compiled.rules, [explained.decision], [text], weights, asks)
    if not made.consulted:
        return explained
    return explain_consulted(explain(compiled, pieces, unknown, weights, about=made), made)
