"""A chat, routed turn by turn: tallies are sums, so a chat is a weighted sum of the tallies of its turns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ir3de.errors import InputError
from ir3de.policies import Costs, TurnWeights
from ir3de.routing.compiled import CompiledRouter
from ir3de.routing.decision import Decision, make_decision, require_content
from ir3de.routing.messages import (
    ENOUGH_WORDS,
    ENVELOPES,
    MIN_PASTE_CHARS,
    Turn,
    compile_envelopes,
    count_content,
    find_envelope_mark,
    parse_messages,
    split_paste,
)
from ir3de.routing.turn_explanation import TurnExplanation, TurnReason, TurnRecord, explain_turn, find_reason
from ir3de.selectors import AllTokens, EntropyTopK, Ids, Tally

IGNORED_ROLES = ("system", "developer", "assistant", "model", "tool", "function")  # not the user's words
VOTE_SCALE = 64.0  # votes are counted whole, so weighted ones are brought to a finer unit first


class Router(Protocol):
    """What a conversation needs of a router."""

    @property
    def compiled(self) -> CompiledRouter: ...

    @property
    def tokenizer(self) -> Any: ...


class TurnDecision(NamedTuple):
    """A turn of the user: its place among the messages, its text, and its decision."""

    place: int
    text: str
    decision: Decision


class Conversation:
    """A chat whose turns are routed one after the other, each at the cost of that turn.

    Turns with words of content decide; turns such as "and how long does that take?" stay with the expert of the turns
    before. Older turns weigh less. A turn that clearly contradicts the turns before begins a new subject. Only the
    user's own words count. The same turns always give the same decisions, all at once or one by one.

    >>> import ir3de
    >>> router = ir3de.Router.fit({
    ...     "maths": ["What is 12 times 7?", "Solve x + 3 = 10 for x."],
    ...     "law": ["Is this contract void?", "Can my landlord evict me?"],
    ... })
    >>> chat = ir3de.Conversation(router)
    >>> chat.route("Can my landlord evict me?").expert
    'law'
    >>> chat.route("ok, and how long does that take?").expert
    'law'
    >>> chat.explain().decided
    0

    A conversation keeps the router as it was when the conversation began. It is not meant for several threads.
    `envelopes` are regular expressions of text that applications put around the user's words.
    """

    def __init__(
        self, router: Router, *, turn_weights: TurnWeights | None = None, envelopes: Sequence[str] = ENVELOPES
    ) -> None:
        self._compiled, self._tokenizer = router.compiled, router.tokenizer
        self._encode, self._unknown = self._tokenizer.encode, self._tokenizer.unknown_id
        self._turn_weights = turn_weights or TurnWeights()
        self._removers = compile_envelopes(tuple(envelopes))
        self._envelope_mark = find_envelope_mark(envelopes)
        self._rules = rules = self._compiled.rules
        ballots = self._compiled.ballots
        self._sum_ballots, self._selector_cap = ballots.tally, rules.selector.cap
        self._limit = min(ballots.limit, rules.selector.cap)
        self._cap, self._decay = self._turn_weights.cap, self._turn_weights.decay
        self._columns_of_experts = rules.columns
        self._columns = len(ballots.tally(np.zeros(1, np.uint32)))
        self._is_voting = isinstance(rules.selector, AllTokens | EntropyTopK)
        self._standing_penalties = rules.standing_penalties
        self._has_probabilities = rules.valuation.value_name == "probability"
        self._is_plain = self._has_probabilities and not self._is_voting
        self._factor = np.empty(self._columns)  # numpy multiplies by an array sooner than by a number
        self._records: list[tuple[Any, ...]] = []  # the fields of a `TurnRecord`, which takes longer to make
        self._total: Tally | None = None  # Σ weight · tally over the turns of the present subject
        self._tokens = self._counted = 0  # Σ weight · tokens, and of those that counted
        self._unit = 1.0  # the weight of a token in the last turn
        self._leader = -1  # the expert that the total speaks for most
        self._messages = 0  # so far, of all roles

    @classmethod
    def from_messages(
        cls,
        router: Router,
        messages: Sequence[Any],
        *,
        turn_weights: TurnWeights | None = None,
        envelopes: Sequence[str] = ENVELOPES,
        weights: Costs | None = None,
    ) -> Conversation:
        """The conversation of a list of messages, in OpenAI's or Anthropic's format."""
        made = cls(router, turn_weights=turn_weights, envelopes=envelopes)
        made.add_messages(messages, weights=weights)
        return made

    @property
    def turns(self) -> tuple[TurnDecision, ...]:
        """The user's turns so far, each with its decision."""
        return tuple(self._turns_from(0))

    @property
    def decision(self) -> Decision:
        """The decision of the last turn."""
        return self._last().decision

    def __len__(self) -> int:
        return len(self._records)

    def add_messages(self, messages: Sequence[Any], *, weights: Costs | None = None) -> list[TurnDecision]:
        """Route every turn of the user in a list of messages; nothing is added if one of them cannot be read.

        Roles may come in any order. System prompts, the answers of the assistant, tool calls and results of tools are
        not the user's words, so they are skipped.
        """
        turns = parse_messages(list(messages) if isinstance(messages, tuple) else messages)
        spoken = list(_find_user_turns(turns))
        before, first = len(self._records), self._messages
        self._messages += len(turns)
        for place, text in spoken:
            self._take(text, first + place, weights)
        return list(self._turns_from(before))

    def _turns_from(self, first: int) -> Iterator[TurnDecision]:
        for record in map(TurnRecord._make, self._records[first:]):
            yield TurnDecision(record.place, record.text, record.decision)

    def route(self, text: str, *, weights: Costs | None = None) -> Decision:
        """Take the user's next turn, and name the expert for it.

        `weights` is the worth of a unit of cost for this turn, as in `Router.route`.
        """
        place = self._messages
        self._messages = place + 1
        return self._take(text, place, weights)

    def explain(self, turn: int = -1) -> TurnExplanation:
        """Which turns weighed how much in the decision of a turn, which one decided, and by which words."""
        return explain_turn(self._compiled, self._tokenizer, self._records, self._find_turn(turn))

    def find_reason(self, turn: int = -1) -> TurnReason:
        """Which turn decided a turn, and why, in a word: a part of `explain` that takes little time."""
        return find_reason(self._compiled, self._records, self._find_turn(turn))

    def _find_turn(self, turn: int) -> int:
        self._last()
        try:
            return range(len(self._records))[turn]
        except IndexError:
            raise InputError(f"no turn {turn}: the conversation has {len(self._records)}, counted from 0") from None

    def _last(self) -> TurnRecord:
        if not self._records:
            raise InputError("the conversation has no turn yet: route one, or add messages")
        return TurnRecord._make(self._records[-1])

    def _take(self, text: str, place: int, weights: Costs | None) -> Decision:
        """The decision of the next turn.

            total ← decay · total + own · tally(words) + pasted · tally(paste)

        where own is 1, ½ for a single word of content, and 0 without content. A change of subject begins a new total.
        The total is kept in the unit of its last turn, so that this turn's tally is added as it is.
        """
        if not isinstance(text, str):
            raise InputError(f"a turn must be a str, found {type(text).__name__}: add_messages takes messages")
        words = text
        if self._envelope_mark in text:
            for remove in self._removers:
                words = remove(words)
        if len(words) >= MIN_PASTE_CHARS:
            words, paste = split_paste(words)
            if paste:
                return self._take_paste(text, words, paste, place, weights)
        ids, content = self._encode(words, self._selector_cap), count_content(words)
        if len(ids) > self._selector_cap:
            ids = ids[: self._selector_cap]
        tokens = counted = len(ids)
        if not content or not tokens or (self._unknown is not None and not self._is_known(ids)):
            return self._stay(text, words, ids, place, weights)
        if counted > self._limit:
            counted = self._limit
        tally = self._sum_ballots(ids)
        if (best := int(tally.argmax())) >= self._columns_of_experts:  # the sum of the familiarities
            best = self._find_leader(tally)
        own = content / ENOUGH_WORDS if counted <= self._cap else content / ENOUGH_WORDS * self._cap / counted
        if self._total is None or (best != self._leader and self._is_change(tally, counted, best)):
            self._total, self._tokens, self._counted = tally, tokens, counted
            self._unit, self._leader, kept = own, best, 0.0
            decision = self._decide(tally, tokens, counted, best, weights)
        else:
            decision, kept = self._add(tally, tokens, counted, own, best, weights)
        self._records.append((text, words, "", content, tally, counted, kept, decision, place))
        return decision

    def _take_paste(self, text: str, words: str, paste: str, place: int, weights: Costs | None) -> Decision:
        """The decision of a turn with a pasted document, which weighs more where the user's words have less content."""
        content = count_content(words)
        own = content / ENOUGH_WORDS
        tally, tokens, counted = np.zeros(self._columns), 0, 0
        for part, share in ((words, own), (paste, self._turn_weights.paste * (1.0 - own))):
            ids = self._encode(part, self._selector_cap)[: self._selector_cap]
            if share and self._is_known(ids):
                voting = min(len(ids), self._limit)
                weighted = max(1, round(min(voting, self._cap) * share))  # more than `cap` tokens count as `cap`
                tokens, counted = tokens + self._set_factor(len(ids), voting, weighted), counted + weighted
                tally = tally + self._sum_ballots(ids) * self._factor
        if not tokens:
            return self._stay(text, words, self._encode(words, self._selector_cap), place, weights)
        best, kept = self._find_leader(tally), 0.0
        if self._total is None or (best != self._leader and self._is_change(tally, counted, best)):
            self._total, self._tokens, self._counted = tally, tokens, counted
            self._unit, self._leader = 1.0, best
            decision = self._decide(self._refine(tally), tokens, counted, best, weights)
        else:
            decision, kept = self._add(tally, tokens, counted, 1.0, best, weights)
        self._records.append((text, words, paste, content, tally, counted, kept, decision, place))
        return decision

    def _stay(self, text: str, words: str, ids: Ids, place: int, weights: Costs | None) -> Decision:
        """A turn without content has the decision of the turn before, or its own where no turn had content yet."""
        if self._total is None:
            decision = require_content(self._compiled.decide_one(ids, self._unknown, weights), words)
        else:
            decision = self._decide(*self._last_parts, weights)
        self._records.append((text, words, "", 0, None, 0, 1.0, decision, place))
        return decision

    def _set_factor(self, tokens: int, counted: int, left: int) -> int:
        """Set the factor that leaves so many of the `counted` tokens, and return how many of all `tokens` it leaves.

        The familiarity is that of all tokens, also of those that did not count: it has a factor of its own.
        """
        self._factor.fill(left / counted)
        if tokens == counted:
            return left
        read = int(tokens * left / counted + 0.5)
        self._factor[self._columns_of_experts :] = read / tokens
        return read

    def _add(
        self, tally: Tally, tokens: int, counted: int, own: float, best: int, weights: Costs | None
    ) -> tuple[Decision, float]:
        """Add a turn to the total, and decide by the new total; also what the total before was multiplied by.

        The tokens before, in the unit of this turn, are rounded to a whole number.
        """
        assert self._total is not None
        left = int(self._counted * self._decay * self._unit / own + 0.5) or 1
        kept = left / self._counted
        tokens += self._set_factor(self._tokens, self._counted, left)
        self._total = total = self._total * self._factor
        total += tally
        counted += left
        self._tokens, self._counted, self._unit = tokens, counted, own
        if best != self._leader:  # where turn and total agree, so does their sum
            self._leader = best = self._find_leader(total)
        if self._is_plain and weights is None:  # the usual case, fast
            self._last_parts = total, tokens, counted, best
            return make_decision(self._rules, total, tokens, counted, best, self._standing_penalties), kept
        return self._decide(self._refine(total), tokens, counted, best, weights), kept

    def _refine(self, tally: Tally) -> Tally:
        """Votes in a finer unit: parts of votes would be lost, because selectors count whole ones."""
        if not self._is_voting:
            return tally
        finer = tally.copy()
        finer[: self._columns_of_experts] *= VOTE_SCALE
        return finer

    def _is_known(self, ids: Ids) -> bool:
        """Whether there is a token that the router knows."""
        unknown = self._unknown
        return bool(len(ids)) and (unknown is None or ids.item(0) != unknown or bool((ids != unknown).any()))

    def _find_leader(self, tally: Tally) -> int:
        return int(tally[: self._columns_of_experts].argmax())

    def _is_change(self, tally: Tally, tokens: int, best: int) -> bool:
        """Whether a turn alone speaks so clearly for another expert that the turns before are over."""
        if not self._has_probabilities:
            return False
        scale = VOTE_SCALE if self._is_voting else 1.0
        two = [tally.item(best) * scale, tally.item(self._leader) * scale]  # the others change no ratio of two
        new, old = self._rules.valuation.values(self._rules.selector, two, tokens)
        return old <= 0.0 or math.log(new / old) > self._turn_weights.change

    def _decide(self, tally: Tally, tokens: int, counted: int, best: int, weights: Costs | None) -> Decision:
        self._last_parts = tally, tokens, counted, best
        rules = self._rules
        if not self._has_probabilities:
            tally = rules.valuation.reduce(rules.selector, tally, counted)
            best = int(tally[: len(rules.experts)].argmax())
        penalties = self._standing_penalties if weights is None else rules.penalties(weights)
        return make_decision(rules, tally, tokens, counted, best, penalties)


def _find_user_turns(turns: Sequence[Turn]) -> Iterator[tuple[int, str]]:
    """The user's turns with their places among the messages. Unknown roles, and chats without a user, are refused."""
    found = False
    for place, turn in enumerate(turns):
        if turn.role not in IGNORED_ROLES and turn.role != "user":
            raise InputError(
                f"messages[{place}].role must be one of {', '.join(('user', *IGNORED_ROLES))}, found {turn.role[:60]!r}"
            )
        if turn.role == "user" and (turn.text.strip() or not turn.tool_result):
            found = True
            yield place, turn.text
    if not found:
        roles = ", ".join(dict.fromkeys(turn.role for turn in turns))
        raise InputError(f"messages has no words of the user, only the roles {roles}: there is nothing to route")
