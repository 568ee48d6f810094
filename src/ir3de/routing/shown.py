"""What drawing and summing up need of decisions and explanations, which draw and sum up themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ir3de.routing.colours import Colour


class ShownDecision(Protocol):
    """A decision, to be read."""

    @property
    def expert(self) -> str | None: ...

    @property
    def best(self) -> str: ...

    @property
    def experts(self) -> tuple[str, ...]: ...

    @property
    def counted(self) -> int: ...

    @property
    def abstained(self) -> bool: ...

    @property
    def reason(self) -> str: ...

    @property
    def ranking(self) -> tuple[tuple[str, float], ...]: ...

    @property
    def penalties(self) -> Mapping[str, float] | None: ...

    @property
    def confidence(self) -> float | None: ...

    @property
    def expected_score(self) -> float | None: ...

    @property
    def margin(self) -> float: ...


class ShownWord(Protocol):
    """A word and its contribution, to be read."""

    @property
    def text(self) -> str: ...

    @property
    def contribution(self) -> float: ...

    @property
    def scores(self) -> tuple[float, ...]: ...


class ShownExplanation(Protocol):
    """An explanation, to be read."""

    @property
    def decision(self) -> ShownDecision: ...

    @property
    def experts(self) -> tuple[str, ...]: ...

    @property
    def compared(self) -> tuple[str, ...]: ...

    @property
    def words(self) -> Sequence[ShownWord]: ...

    @property
    def colours(self) -> dict[str, Colour]: ...

    @property
    def summary(self) -> str: ...


class ShownWeight(Protocol):
    """The part of a turn in a decision, to be read."""

    @property
    def turn(self) -> int: ...

    @property
    def text(self) -> str: ...

    @property
    def weight(self) -> float: ...

    @property
    def lead(self) -> float: ...


class ShownTurn(Protocol):
    """The explanation of a turn, to be read."""

    @property
    def decision(self) -> ShownDecision: ...

    @property
    def decided(self) -> int: ...

    @property
    def changed(self) -> bool: ...

    @property
    def weights(self) -> Sequence[ShownWeight]: ...

    @property
    def deciding(self) -> ShownExplanation: ...
