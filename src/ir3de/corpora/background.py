"""Background prompts, written for this package: what people type to a general assistant, on any subject.

They stand for "none of these domains" where a router learns which prompts are out of domain. They are broad on purpose:
over a hundred topics, 29 languages, from one word to a pasted document.

A saved router names the background by the digest of its counts. So the file stays as it is: other prompts would be a
second file, and routers that were fitted with this one could no longer change without it.
"""

import json
from pathlib import Path

__all__ = ["prompts", "topics"]

_FILE = Path(__file__).with_suffix(".jsonl")


def prompts() -> list[str]:
    """List the background prompts, in the order of the file.

    >>> len(prompts()), len(topics())
    (1732, 109)
    """
    return [text for texts in topics().values() for text in texts]


def topics() -> dict[str, list[str]]:
    """Group the background prompts by topic, so that the topics close to a domain can be left out.

    >>> topics()["riddles"][0]
    'what has keys but cant open locks'
    """
    grouped: dict[str, list[str]] = {}
    for line in _FILE.read_text(encoding="utf-8").removesuffix("\n").split("\n"):
        row = json.loads(line)
        grouped.setdefault(row["topic"], []).append(row["text"])
    return grouped
