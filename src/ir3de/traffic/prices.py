"""What experts cost: prices of a million tokens, from a file or from the costs in a log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.corpora.routes.document import read_document
from ir3de.errors import InputError

Floats = npt.NDArray[np.float64]

EXACT = 1e-3  # of the costs: where a price explains them less well, it has changed
TOKENS_PER_PRICE = 1e6
_FIELDS = ("input_per_1m", "output_per_1m", "cached_input_per_1m")
EXAMPLE = '{"gpt-4o": {"input_per_1m": 2.5, "cached_input_per_1m": 1.25, "output_per_1m": 10}}'


@dataclass(frozen=True)
class Price:
    """The price of a million tokens, in any one currency."""

    input_per_1m: float
    output_per_1m: float
    cached_input_per_1m: float | None = None  # of prompt tokens that the expert had in its cache; None: as the others

    def as_row(self) -> tuple[float, float, float]:
        """Of one token: read anew, read from the cache, written."""
        cached = self.input_per_1m if self.cached_input_per_1m is None else self.cached_input_per_1m
        return tuple(one / TOKENS_PER_PRICE for one in (self.input_per_1m, cached, self.output_per_1m))  # type: ignore[return-value]

    @classmethod
    def parse(cls, given: object, where: str) -> Price:
        """A price as a file has it. An `InputError` names what is wrong."""
        if not isinstance(given, Mapping) or not {"input_per_1m", "output_per_1m"} & set(given):
            raise InputError(f"{where}: a price has {', '.join(_FIELDS)}, found {given!r:.80}. An example: {EXAMPLE}")
        if unknown := sorted(set(map(str, given)) - set(_FIELDS)):
            raise InputError(f"{where}: unknown field {unknown[0]!r:.80}; a price has {', '.join(_FIELDS)}")
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
                raise InputError(f"{where}: {name} is a price of a million tokens, found {value!r:.80}")
        values = [given.get(name) for name in _FIELDS]
        return cls(float(values[0] or 0.0), float(values[1] or 0.0), None if values[2] is None else float(values[2]))


Prices = Mapping[str, Price]


def read_prices(path: Path) -> dict[str, Price]:
    """The prices of a JSON or YAML file: {expert: price}, or the configuration of a gateway."""
    document: Any = read_document(path)
    experts = document.get("experts") if isinstance(document, Mapping) else None
    if isinstance(experts, list):  # of a gateway: experts without a price are free
        experts = {one.get("name"): one for one in experts if isinstance(one, Mapping)}
    if isinstance(experts, Mapping):
        priced = {
            str(name): one["price"] for name, one in experts.items() if isinstance(one, Mapping) and "price" in one
        }
    elif isinstance(document, Mapping):
        priced = {str(name): one for name, one in document.items()}
    else:
        raise InputError(
            f"{path}: prices are an object of experts, found {type(document).__name__}. Example: {EXAMPLE}"
        )
    if not priced:
        raise InputError(f"{path} has no price of any expert. An example: {EXAMPLE}")
    return {name: Price.parse(price, f"{path}, {name}") for name, price in priced.items()}


def infer_price(tokens: Floats, costs: Floats) -> tuple[Price, bool] | None:
    """The price of an expert from its answers, and whether it explains all costs; None for too few answers.

    `tokens` (answers, 3) were read anew, read from the cache, and written.

    >>> tokens = np.array([[1000.0, 0, 500], [2000, 0, 100], [10, 0, 10]])
    >>> infer_price(tokens, tokens @ [2e-6, 1e-6, 8e-6])
    (Price(input_per_1m=2.0, output_per_1m=8.0, cached_input_per_1m=None), True)
    """
    used = np.asarray(tokens.any(axis=0))
    scale = np.maximum(np.abs(tokens).max(axis=0, initial=1.0), 1.0)
    if not len(costs) or np.linalg.matrix_rank(tokens[:, used] / scale[used], tol=EXACT) < used.sum():
        return None
    found = np.zeros(3)
    solved = np.linalg.lstsq(tokens[:, used] / scale[used], costs, rcond=None)[0] / scale[used]
    found[used] = np.maximum(solved, 0.0) * TOKENS_PER_PRICE
    fresh, cached, written = (round(float(one), 6) for one in found)
    apart = np.abs(tokens @ (found / TOKENS_PER_PRICE) - costs).sum()
    price = Price(fresh if used[0] else cached, written, cached if used[1] and cached != fresh else None)
    return price, bool(apart <= EXACT * np.abs(costs).sum())
