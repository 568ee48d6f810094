"""From the record of an exchange to the row of the journal, with what the configuration keeps of the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from ir3de.serving import MAX_TURN_CHARS
from ir3de.traffic import JournalPrompt, TrafficRecord
from ir3de_gateway.telemetry.log_lines import shorten_turns

if TYPE_CHECKING:
    from ir3de import Router
    from ir3de_gateway.config.document import Keep
    from ir3de_gateway.exchange_record import ExchangeRecord

MAX_RANKED = 5  # experts whose probabilities are kept
DIGITS = 6
CONVERSATION_BYTES = 12  # of the hash that stands for a conversation


def build_row(record: ExchangeRecord, router: Router, keep: Keep) -> TrafficRecord:
    """The row of a request that the router has decided. `router` is the one that did."""
    decision, decided, hashed, trial = record.decision, record.decided, record.router, record.trial
    if trial is not None:  # the row has the live router's decision, whichever served
        decision, decided, hashed = trial.decision, trial.decided, trial.router
    assert decision is not None
    conversation = record.conversation or (hash_conversation(record.session, record.key) if record.session else "")
    return TrafficRecord(
        record.request_id,
        record.started,
        record.key,
        hashed,
        decided,
        record.expert,
        record.response_id,
        conversation,
        record.propensity,
        record.arm,
        _round(decision.confidence),
        _round(decision.expected_score),
        _round(decision.in_domain),
        decision.abstained,
        record.why,
        tuple((name, round(value, DIGITS)) for name, value in decision.ranking[:MAX_RANKED]),
        *(("", None) if trial is None else (trial.candidate, trial.candidate_expert)),
        status=record.status,
        seconds=round(record.total_seconds, DIGITS),
        prompt_tokens=record.prompt_tokens,
        cached_tokens=record.cached_tokens,
        completion_tokens=record.completion_tokens,
        cost=record.cost,
        prompt=build_prompt(record.text, record.turns, router, keep),
    )


def build_prompt(text: str, turns: Sequence[str], router: Router, keep: Keep) -> JournalPrompt:
    """What is kept of a prompt: no more of it than routing reads."""
    texts = shorten_turns(turns) if turns else [text[:MAX_TURN_CHARS]]
    if keep == "text":
        return JournalPrompt.from_text(texts)
    encode, most = router.tokenizer.encode, router.selector.cap
    return JournalPrompt.from_ids(keep, [encode(one, most)[:most] for one in texts])


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)


def hash_conversation(session: str, key: str) -> str:
    """A name for a conversation that does not reveal the session's own, which may be a person's."""
    content = f"{key}\n{session}".encode(errors="surrogatepass")
    return blake2b(content, digest_size=CONVERSATION_BYTES).hexdigest()
