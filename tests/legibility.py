"""Whether text is legible: contrasts of colours."""


def rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))


def mixed(one: tuple[float, ...], other: tuple[float, ...], part: float) -> tuple[float, ...]:
    return tuple(part * a + (1 - part) * b for a, b in zip(one, other, strict=True))


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """As WCAG 2 defines it."""
    linear = [[c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour] for colour in (one, other)]
    dark, light = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in linear)
    return (light + 0.05) / (dark + 0.05)
