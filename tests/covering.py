"""Covering arrays: few cases in which every two values of two features meet, found greedily."""

import random
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

Case = dict[str, str]
Pair = frozenset[tuple[str, str]]  # two features, each with a value


def list_pairs(features: Mapping[str, Sequence[str]], forbidden: Collection[Pair] = ()) -> list[Pair]:
    """Every pair that some case must have."""
    values = [[(name, value) for value in found] for name, found in features.items()]
    pairs = (frozenset((a, b)) for one, other in combinations(values, 2) for a in one for b in other)
    return [pair for pair in pairs if pair not in forbidden]


def meet_pairs(case: Case) -> list[Pair]:
    """The pairs that a case has."""
    return list(map(frozenset, combinations(case.items(), 2)))


def cover(features: Mapping[str, Sequence[str]], seed: int, forbidden: frozenset[Pair] = frozenset()) -> list[Case]:
    """Cases that have every pair but those that are forbidden; always the same for a seed."""
    dice, cases, missing = random.Random(seed), list[Case](), dict.fromkeys(list_pairs(features, forbidden))
    while missing:
        case: Case = dict(sorted(next(iter(missing))))
        for name in dice.sample([name for name in features if name not in case], len(features) - 2):
            worth = {
                value: (sum(pair in missing for pair in met), dice.random())
                for value in features[name]
                if forbidden.isdisjoint(met := [frozenset(((name, value), old)) for old in case.items()])
            }
            case[name] = max(worth, key=worth.__getitem__)
        cases.append({name: case[name] for name in features})
        for pair in meet_pairs(case):
            missing.pop(pair, None)
    return cases
