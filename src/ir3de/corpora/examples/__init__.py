"""Example prompts of five domains, written for this package: enough to fit a small real router and to test it."""

from pathlib import Path

__all__ = ["DOMAINS", "held_out", "path_of", "prompts"]

DOMAINS = ("coding", "mathematics", "law", "medicine", "history")

_PROMPTS = Path(__file__).parent / "prompts"


def prompts() -> dict[str, list[str]]:
    """120 prompts of each domain to fit a router with."""
    return {domain: _lines(path_of(domain)) for domain in DOMAINS}


def path_of(domain: str) -> Path:
    """The file of a domain's prompts, one a line."""
    return _PROMPTS / f"{domain}.txt"


def held_out() -> dict[str, list[str]]:
    """25 more of each, to see how it does."""
    return {domain: _lines(_PROMPTS / "held_out" / f"{domain}.txt") for domain in DOMAINS}


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
