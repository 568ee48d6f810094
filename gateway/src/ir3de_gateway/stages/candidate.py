"""The candidate router of a request: whether it serves, by chance and by conversation, and what the record has of it.

Both routers decide on every request that is routed. Where they send it to different experts, a canary's draw decides.
The draw is a hash of the conversation with the candidate's own hash as its key: every worker and every machine gets the
same one, the conversation stays with its router, and another candidate draws anew. All requests with the same draw have
the same conversation in the journal, because only the first of them is evidence.
"""

from __future__ import annotations

from ir3de_gateway.exchange_record import Trial
from ir3de_gateway.experts.snapshot import Snapshot
from ir3de_gateway.feedback.journal_rows import hash_conversation
from ir3de_gateway.stages.choice import Choice, Routed, find_default
from ir3de_gateway.stages.explore import draw_number
from ir3de_gateway.stages.values import Received

MAX_OPENING_CHARS = 4_096  # of a conversation's first turn, which names it if the client does not


def settle(received: Received, live: Choice, routed: Routed, other: Choice | None) -> Choice:
    """The choice that serves: the live router's, or that of the candidate. The record gets both decisions.

    `routed` is the candidate's decision, and `other` its choice; None in shadow, and if no expert may answer then.
    """
    accepted, snapshot = received.accepted, received.accepted.snapshot
    candidate, config, record = snapshot.candidate, snapshot.config.routing.candidate, accepted.progress.record
    assert candidate is not None and config is not None and live.decision is not None
    decided = find_decided(candidate, routed)
    record.trial = Trial(snapshot.digest, live.decided, live.decision, candidate.digest, decided)
    record.conversation = hash_conversation(
        record.session or f"\n{received.prompt.opening[:MAX_OPENING_CHARS]}", record.key
    )
    count = accepted.gateway.observer.metrics.candidate.count
    if other is None or not _differ(live, other):
        count("agree" if decided == live.decided else "live")
        return live
    if draw_number(candidate.digest.encode(), record.conversation, "") < config.share:
        record.propensity, record.arm = config.share, "candidate"
        count("candidate")
        return other
    record.propensity, record.arm = 1.0 - config.share, "live"
    count("live")
    return live


def find_decided(snapshot: Snapshot, routed: Routed) -> str | None:
    """The expert of a decision: the router's, or the default one where it abstains."""
    return find_default(snapshot) if routed.decision.abstained else routed.decision.expert


def _differ(live: Choice, other: Choice) -> bool:
    """Whether it matters to the client who serves."""
    return live.first is not other.first or (live.build_rejection is None) != (other.build_rejection is None)
