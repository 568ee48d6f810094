"""Covering arrays: few cases in which every pair of values of two features meets, found greedily.

A *mask* is a value, or a pair of values, that ends a request early: an unknown model, a spent budget. What else is in
its case is not tried, so such a case meets only the pairs that the mask is part of, and no case has two masks.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations

Value = tuple[str, str]  # a feature and its value
Pair = frozenset[Value]
Mask = frozenset[Value]
Case = dict[str, str]
Features = Mapping[str, Sequence[str]]

ATTEMPTS = 12  # cases that are tried for each one taken


def list_pairs(features: Features, forbidden: Collection[Pair] = (), masks: Collection[Mask] = ()) -> list[Pair]:
    """Every pair of values that some case must have, in an order that is the same in every process."""
    values = [[(name, value) for value in found] for name, found in features.items()]
    pairs = [frozenset((a, b)) for one, other in combinations(values, 2) for a in one for b in other]
    return [pair for pair in pairs if pair not in forbidden and sum(mask <= pair for mask in masks) < 2]


def meet_pairs(case: Case, masks: Collection[Mask] = ()) -> Iterator[Pair]:
    """The pairs that a case meets."""
    own = _find_masks(case, masks)
    for pair in map(frozenset, combinations(case.items(), 2)):
        if not own or any(mask <= pair for mask in own):
            yield pair


def cover(
    features: Features,
    seed: int,
    forbidden: Collection[Pair] = (),
    masks: Collection[Mask] = (),
    groups: Sequence[Case] = (),
) -> list[Case]:
    """Cases that meet every pair.

    With `groups`, which have some of the features, each case has the values of one of them: few configurations for many
    requests. The groups must meet all pairs of their own features.
    """
    dice, cases = random.Random(seed), list[Case]()
    forbidden = frozenset(forbidden)
    missing = dict.fromkeys(list_pairs(features, forbidden, masks))
    while missing:
        goal = sorted(dice.choice(list(missing)))
        tried = [_fill(features, goal, missing, forbidden, masks, groups, dice) for _ in range(ATTEMPTS)]
        found = [case for case in tried if case is not None]
        if not found:
            raise ValueError(f"no case can have {goal}")
        cases.append(max(found, key=lambda case: sum(pair in missing for pair in meet_pairs(case, masks))))
        for pair in meet_pairs(cases[-1], masks):
            missing.pop(pair, None)
    return cases


def _fill(
    features: Features,
    goal: Sequence[Value],
    missing: Collection[Pair],
    forbidden: frozenset[Pair],
    masks: Collection[Mask],
    groups: Sequence[Case],
    dice: random.Random,
) -> Case | None:
    """A case with the two values of `goal`, and of the others those that meet most of what is missing."""
    case: Case = dict(goal)
    own = set(_find_masks(case, masks))
    if groups:
        shared = [(name, value) for name, value in goal if name in groups[0]]
        fitting = [group for group in groups if all(group[name] == value for name, value in shared)]
        plain = [group for group in fitting if own.issuperset(_find_masks({**group, **case}, masks))]
        if not plain:
            return None
        case |= dice.choice(plain)
    order = [name for name in features if name not in case]
    dice.shuffle(order)
    for name in order:
        best = list[tuple[int, float, str]]()
        for value in features[name]:
            pairs = [frozenset(((name, value), old)) for old in case.items()]
            is_masked = any(mask not in own and mask <= {(name, value), *case.items()} for mask in masks)
            if not is_masked and forbidden.isdisjoint(pairs):
                best.append((sum(pair in missing for pair in pairs), dice.random(), value))
        if not best:
            return None
        case[name] = max(best)[2]
    if not forbidden.isdisjoint(map(frozenset, combinations(case.items(), 2))):
        return None
    return {name: case[name] for name in features}


def _find_masks(case: Case, masks: Collection[Mask]) -> list[Mask]:
    return [mask for mask in masks if all(case.get(name) == value for name, value in mask)]
