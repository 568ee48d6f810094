"""What a teacher labelled, and what that brought."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Teaching:
    """What a teacher was given, what it answered, and what that brought on labelled prompts that were held out.

    >>> import ir3de
    >>> from ir3de.corpora import examples
    >>> from ir3de.scorers import Blend
    >>> known = {name: texts[:30] for name, texts in examples.prompts().items() if name in ("law", "coding")}
    >>> few = {name: texts[:5] for name, texts in known.items()}
    >>> def teacher(texts):
    ...     return ["law" if text in known["law"] else "coding" for text in texts]
    >>> traffic = [text for texts in known.values() for text in texts]
    >>> router = ir3de.Router.fit(few, scorer=Blend(), unlabelled=traffic, teacher=teacher)
    >>> router.teaching.texts, router.teaching.labelled, router.teaching.held_out
    (60, 10, 10)
    """

    teacher: str
    is_used: bool  # if not, the router is the one without it
    texts: int  # that were given
    blank: int  # of them without a word
    repeated: int  # the same text again
    labelled: int  # labelled by people already
    beyond: int  # more than are used at most
    out_of_domain: int  # no expert fits
    unknown_names: int  # the answer names no expert of the router
    contradicted: int  # answered differently when asked again
    asked_again: int
    share: float  # the surest of the labels, which are used
    taught: Mapping[str, int]  # texts used, by expert
    held_out: int  # labelled prompts
    teacher_accuracy: float  # on these
    accuracy_without: float
    accuracy_with: float
    gain: float  # of accuracy, and its 95 % interval
    gain_low: float
    gain_high: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**asdict(self), "taught": dict(self.taught)}

    def describe(self) -> str:
        """What the teacher brought, in one sentence."""
        gain = f"{100 * self.gain:+.1f} points ({100 * self.gain_low:+.1f} to {100 * self.gain_high:+.1f})"
        figures = f"{100 * self.accuracy_without:.1f} % without it, {100 * self.accuracy_with:.1f} % with it: {gain}"
        on = f"on {self.held_out:,} labelled prompts that were held out"
        if not self.is_used:
            return f"the teacher {self.teacher} brought nothing ({figures} {on}), so the router is the one without it"
        used = f"{sum(self.taught.values()):,} of {self.texts:,} texts"
        return f"the teacher {self.teacher} labelled {used}; {on}: {figures}"

    def describe_left_out(self) -> str:
        """Which texts were not used, in one line; empty if all were."""
        counts = {
            "blank": self.blank,
            "repeated": self.repeated,
            "labelled by people": self.labelled,
            "beyond the most that are used": self.beyond,
            "out of domain": self.out_of_domain,
            "answered with a name that no expert has": self.unknown_names,
            f"answered differently when {self.asked_again:,} were asked again": self.contradicted,
        }
        words = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        parts = [f"texts left out: {words}"] * bool(words)
        if self.is_used and self.share < 1:
            parts.append(f"of the others, the surest {100 * self.share:.0f} % are used")
        return "; ".join(parts)
