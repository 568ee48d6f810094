"""The features that are crossed, and which of their values cannot meet."""

from __future__ import annotations

from functools import cache

from ir3de_lab.benchmarks.trust.crossing.covering import Case, Pair, cover

CONFIGURATION = {  # of a gateway
    "scorer": (
        *("Blend", "Logistic", "Posterior", "TokenRidge", "PromptRidge", "CrossEntropy", "KernelRidge"),
        "expected scores",
    ),
    "selector": ("entropy", "all tokens", "average"),
    "policy": ("none", "price"),
    "api of law": ("all", "chat", "messages"),
    "key": ("none", "plain", "budget", "restricted", "spent"),
    "window": ("none", "small", "large"),
    "hooks": ("none", "before", "after", "both"),
    "cache": ("off", "own", "shared"),
    "replicas": ("one", "two", "one dead", "all dead"),
    "instead": ("nothing", "default", "fallback", "both"),
}
REQUEST = {
    "api": ("chat/completions", "completions", "responses", "messages"),
    "model": ("auto", "law", "unknown"),
    "prompt": ("clear", "mixed", "unknown words"),
    "tools": ("none", "plain", "type is a list", "property called type", "not objects", "deep"),
    "images": ("none", "url", "base64"),
    "stream": ("no", "yes"),
    "history": ("one turn", "system", "chat", "tool loop"),
    "n": ("absent", "1", "2", "100"),
    "limits": ("absent", "max_tokens", "max_completion_tokens", "contradicting"),
    "control": ("none", "weights", "allow", "deny", "session", "skip"),
    "fault": ("none", "429", "500", "silent", "reset", "cut"),
    "ignored": ("absent", "types", "numbers", "deep", "text"),
}
FEATURES = {**CONFIGURATION, **REQUEST}
MASKS = (
    frozenset({("model", "unknown")}),
    frozenset({("key", "spent")}),
    frozenset({("key", "restricted"), ("model", "law")}),  # the key may not use law
)


def _forbid() -> frozenset[Pair]:
    """Pairs that no request can have."""
    plain = {"history": "one turn", "tools": "none", "images": "none"}  # a completion has a text, and nothing else
    found = [("api", "completions", name, value) for name in plain for value in REQUEST[name] if value != plain[name]]
    # expected scores are always averaged
    found += [("scorer", "expected scores", "selector", value) for value in ("entropy", "all tokens")]
    return frozenset(frozenset(((one, value), (other, its))) for one, value, other, its in found)


FORBIDDEN = _forbid()


@cache
def list_cases(seed: int) -> tuple[Case, ...]:
    """Cases in which every pair of features meets, those of one configuration together."""
    inside = frozenset(pair for pair in FORBIDDEN if all(name in CONFIGURATION for name, _ in pair))
    groups = cover(CONFIGURATION, seed, inside, MASKS)
    cases = cover(FEATURES, seed, FORBIDDEN, MASKS, groups)
    return tuple(sorted(cases, key=lambda case: [case[name] for name in CONFIGURATION]))
