"""A plot as SVG, with axes, grid and a legend. The style sheet colours it, so that it suits light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ir3de.routing.drawing.markup import Child, Markup, make, write_number

WIDTH, HEIGHT = 460.0, 290.0
LEFT, RIGHT, TOP, BOTTOM = 60.0, 18.0, 12.0, 44.0  # margins, for the numbers and the names of the axes
WANTED_TICKS = 5
MARK = 3.6  # radius
NICE_STEPS = (1, 2, 2.5, 5, 10)

Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """The range of values of an axis, its name, and how a value is written; `log` spreads powers evenly."""

    name: str
    low: float
    high: float
    write: Callable[[float], str] = write_number
    ticks: Sequence[float] = ()
    log: bool = False

    def place(self, value: float) -> float:
        """Where a value lies: 0 at the low end, 1 at the high end."""
        low, high, value = (math.log(max(one, 1e-12)) if self.log else one for one in (self.low, self.high, value))
        return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5

    def choose_ticks(self) -> list[float]:
        """The values that are written at the axis."""
        return list(self.ticks) or find_ticks(self.low, self.high)


@dataclass
class Plot:
    """A plot to draw on. What comes later covers what came before."""

    title: str  # what it shows, for those who cannot see it
    x: Axis
    y: Axis
    drawn: list[Markup] = field(default_factory=list)

    def locate(self, x: float, y: float) -> Point:
        """The place of a point in the picture."""
        return (
            LEFT + self.x.place(x) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - self.y.place(y) * (HEIGHT - TOP - BOTTOM),
        )

    def line(self, points: Iterable[Point], kind: str) -> None:
        self.drawn.append(make("polyline", points=self._write_points(points), class_=f"line {kind}"))

    def band(self, lower: Iterable[Point], upper: Iterable[Point], kind: str) -> None:
        """The space between two lines."""
        points = self._write_points([*lower, *reversed(list(upper))])
        self.drawn.append(make("polygon", points=points, class_=f"band {kind}"))

    def mark(self, x: float, y: float, kind: str, said: str, radius: float = MARK) -> None:
        """A point that says something when it is pointed at."""
        cx, cy = self.locate(x, y)
        self.drawn.append(make("circle", make("title", said), cx=cx, cy=cy, r=radius, class_=f"mark {kind}"))

    def whisker(self, x: float, low: float, high: float, kind: str) -> None:
        """An interval around a point, upwards and downwards."""
        (place, bottom), (_, top) = self.locate(x, low), self.locate(x, high)
        path = f"M{write_number(place)} {write_number(bottom)}V{write_number(top)}"
        self.drawn.append(make("path", d=path, class_=f"whisker {kind}"))

    def column(self, left: float, right: float, height: float, kind: str, said: str) -> None:
        """A column that stands on the axis."""
        (x0, top), (x1, bottom) = self.locate(left, height), self.locate(right, self.y.low)
        shape = make(
            "rect", make("title", said), x=x0 + 1, y=top, width=max(0.0, x1 - x0 - 2), height=max(0.0, bottom - top)
        )
        self.drawn.append(make("g", shape, class_=f"column {kind}"))

    def label(self, x: float, y: float, text: str, *, anchor: str = "start", dy: float = -6.0) -> None:
        """A few words beside a point."""
        px, py = self.locate(x, y)
        self.drawn.append(make("text", text, x=px, y=py + dy, text_anchor=anchor, class_="label"))

    def draw(self) -> Markup:
        """The whole picture."""
        return make(
            "svg",
            make("title", self.title),
            self._draw_axes(),
            self.drawn,
            viewBox=f"0 0 {write_number(WIDTH)} {write_number(HEIGHT)}",
            role="img",
            class_="plot",
        )

    def _draw_axes(self) -> Child:
        left, right, ground = LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM
        parts: list[Markup] = []
        for value in self.y.choose_ticks():
            _, y = self.locate(self.x.low, value)
            parts.append(make("line", x1=left, x2=right, y1=y, y2=y, class_="grid"))
            parts.append(make("text", self.y.write(value), x=left - 7, y=y + 4, text_anchor="end"))
        for value in self.x.choose_ticks():
            x, _ = self.locate(value, self.y.low)
            parts.append(make("line", x1=x, x2=x, y1=ground, y2=ground + 4, class_="ground"))
            parts.append(make("text", self.x.write(value), x=x, y=ground + 17, text_anchor="middle"))
        parts.append(make("line", x1=left, x2=right, y1=ground, y2=ground, class_="ground"))
        middle = (left + right) / 2
        parts.append(make("text", self.x.name, x=middle, y=HEIGHT - 6, text_anchor="middle", class_="name"))
        turned = f"translate(11 {write_number((TOP + ground) / 2)}) rotate(-90)"
        parts.append(make("text", self.y.name, transform=turned, text_anchor="middle", class_="name"))
        return parts

    def _write_points(self, points: Iterable[Point]) -> str:
        return " ".join(",".join(map(write_number, self.locate(*point))) for point in points)


def find_ticks(low: float, high: float, wanted: int = WANTED_TICKS) -> list[float]:
    """Round values between two others, about as many as wanted.

    >>> find_ticks(0, 1), find_ticks(0.62, 0.97)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.7, 0.8, 0.9])
    """
    if not high > low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / wanted))
    step = next((one * power for one in NICE_STEPS if one * power >= (high - low) / wanted * 0.999), 10 * power)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def draw_legend(*entries: tuple[str, str]) -> Markup:
    """What the lines and marks of a plot mean: pairs of a kind and its meaning."""
    items = [make("li", make("i", class_=f"key {kind}", aria_hidden="true"), meaning) for kind, meaning in entries]
    return make("ul", items, class_="legend")
