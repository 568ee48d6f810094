"""OpenAI's own client, kept until the end: one that is collected with open connections would be a warning."""

from __future__ import annotations

from functools import cache

import openai

from client_keys import secret


@cache
def connect(url: str, key: str) -> openai.OpenAI:
    """A client with that key."""
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)


def connect_as(url: str, name: str) -> openai.OpenAI:
    """A client with the key of that name."""
    return connect(url, secret(name))
