"""Renew the figures of docs/languages.md from results/languages.json; `--check` only compares."""

from __future__ import annotations

from typing import Any

from pages import ROOT, raw, renew_parts, write_or_compare

PAGE = ROOT / "docs" / "languages.md"
FITTED = "eng_Latn"
NAMES = {
    "arb_Arab": "Arabic",
    "zho_Hans": "Chinese",
    "fra_Latn": "French",
    "deu_Latn": "German",
    "hin_Deva": "Hindi",
    "ind_Latn": "Indonesian",
    "jpn_Jpan": "Japanese",
    "rus_Cyrl": "Russian",
    "tur_Latn": "Turkish",
    "vie_Latn": "Vietnamese",
}


def language_default(document: dict[str, Any]) -> list[str]:
    """What the default embedding makes of languages that the fit never saw."""
    usual = document["rows"][0]
    shares = {code: 100 * share for code, share in usual["abstained"].items()}
    fitted = shares.pop(FITTED)
    return [
        f"On seven topics in {len(shares)} languages that the fit never saw, its nearest expert is right on "
        f"{usual['others']:.1f} % of the prompts, hardly more than chance. It mostly knows that: it abstains on "
        f"{min(shares.values()):.0f} to {max(shares.values()):.0f} % of them, by language, and on {fitted:.0f} % of "
        "the English ones."
    ]


def language_accuracy(document: dict[str, Any]) -> list[str]:
    """A line a language, a column an embedding."""
    rows = document["rows"]
    heads = [f"{row['embedding']} embedding" if row["embedding"] == "default" else row["embedding"] for row in rows]
    lines = [f"| accuracy of the nearest expert, % | {' | '.join(heads)} |", "|---|" + "---:|" * len(rows)]
    figures = {"English": [row["fitted"] for row in rows], "mean of the ten others": [row["others"] for row in rows]}
    figures |= {name: [row["by_language"][code] for row in rows] for code, name in NAMES.items()}
    return lines + [f"| {name} | {' | '.join(f'{one:.1f}' for one in found)} |" for name, found in figures.items()]


def language_times(document: dict[str, Any]) -> list[str]:
    """How long a route takes."""
    _, _, ratio, first = (figure["value"] for figure in document["figures"])
    return [
        f"A route takes {ratio:.1f} times as long as with the default embedding. The first route of a loaded router "
        f"takes {first:.2f} s, in which the tokenizer is loaded."
    ]


def main() -> int:
    parts = (language_default, language_accuracy, language_times)
    return write_or_compare({PAGE: renew_parts(PAGE.read_text(encoding="utf-8"), raw("languages"), parts)}, __file__)


if __name__ == "__main__":
    raise SystemExit(main())
