"""The colours of everything that a browser shows: the gateway's page, reports, and objects in notebooks.

They are CSS variables, so that one picture suits light and dark. An expert has the colour of its place: `--e0` and so
on, then from the beginning again.
"""

from __future__ import annotations

from collections.abc import Mapping

from ir3de.routing.colours import COLOURS

LIGHT: Mapping[str, str] = {
    "paper": "#f6f5f2",
    "sheet": "#fffefc",
    "raised": "#fffefc",
    "sunk": "#f1efea",
    "line": "#e4e1d9",
    "ink": "#1d1c1a",
    "soft": "#65615a",
    "focus": "#1d5fa8",
    "accent": "#1d1c1a",
    "on-accent": "#fffefc",
    "bad": "#a8321f",
    "well": "#14774f",
    "trying": "#8a5a00",
    "column": "#9a9488",
    "full": "58%",  # how much of an expert's colour the strongest word has
    "shadow": "0 1px 2px rgb(40 34 20 / 5%), 0 6px 24px -12px rgb(40 34 20 / 12%)",
    **{f"e{place}": colour.light for place, colour in enumerate(COLOURS)},
}
DARK: Mapping[str, str] = {
    "paper": "#131417",
    "sheet": "#1b1c20",
    "raised": "#2c2e35",
    "sunk": "#16171b",
    "line": "#2d2f35",
    "ink": "#ececea",
    "soft": "#a3a5ab",
    "focus": "#7db8f5",
    "accent": "#ececea",
    "on-accent": "#17181b",
    "bad": "#ff8f78",
    "well": "#5ed1a2",
    "trying": "#eab75a",
    "column": "#73767f",
    "full": "46%",
    "shadow": "0 1px 2px rgb(0 0 0 / 30%)",
    **{f"e{place}": colour.dark for place, colour in enumerate(COLOURS)},
}


def colour_of(place: int) -> str:
    """The colour of the expert at that place, as a CSS value.

    >>> colour_of(0), colour_of(13)
    ('var(--e0)', 'var(--e1)')
    """
    return f"var(--e{place % len(COLOURS)})"


def write_variables(selector: str = ":root") -> str:
    """CSS that sets the colours: light ones, dark ones where the system asks for dark, or as `data-theme` says."""
    light, dark = (
        "".join(f" --{name}: {value};" for name, value in theme.items()) + f" color-scheme: {scheme};"
        for theme, scheme in ((LIGHT, "light"), (DARK, "dark"))
    )
    return (
        f"{selector} {{{light} }}\n"
        f'@media (prefers-color-scheme: dark) {{\n  {selector}:not([data-theme="light"]) {{{dark} }}\n}}\n'
        f'{selector}[data-theme="dark"] {{{dark} }}\n'
    )
