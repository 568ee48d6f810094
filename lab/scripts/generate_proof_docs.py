"""Renew the table of docs/proof.md from the raw figures in results/proof.json; `--check` only compares."""

from __future__ import annotations

from typing import Any

from pages import ROOT, raw, renewed, write_or_compare

PAGE = ROOT / "docs" / "proof.md"


def table() -> list[str]:
    heads = (
        "cross-validated, %",
        "scorer chosen in every fold",
        "test, %",
        "TF-IDF, cross-validated",
        "test",
        "twice the prompts, foretold",
        "brought",
    )
    lines = [
        f"| set | experts | prompts | held out | {' | '.join(heads)} | fit, s | proof, s |",
        "|---|" + "---:|" * 12,
    ]
    for row in raw("proof")["rows"]:
        counts = " | ".join(f"{row[name]:,}" for name in ("experts", "prompts", "held_out"))
        tfidf = " | ".join(_percent(row[name]) for name in ("tfidf_foretold", "tfidf_test"))
        gain = f"{_span(row['doubling_foretold'], '+.1f')} | {100 * row['doubling']:+.1f}"
        shares = f"{_span(row['foretold'])} | {_percent(row['chosen_anew'])} | {_percent(row['test']['value'])}"
        lines.append(
            f"| {row['data']} | {counts} | {shares} | {tfidf} | {gain} | {row['fit_s']:.0f} | {row['proof_s']:.0f} |"
        )
    return lines


def _span(found: dict[str, Any] | None, form: str = ".1f") -> str:
    if found is None:
        return "–"
    value, low, high = (format(100 * found[name], form) for name in ("value", "low", "high"))
    return f"**{value}** ({low} to {high})"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def main() -> int:
    text = renewed(PAGE.read_text(encoding="utf-8"), "proof", "\n".join(table()), "\n")
    return write_or_compare({PAGE: text}, __file__)


if __name__ == "__main__":
    raise SystemExit(main())
