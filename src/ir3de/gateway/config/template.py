"""The configuration to begin with: what is needed as fields, the rest as comments with its defaults."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

FIRST_PORT = 8001


class Endpoint(NamedTuple):
    """An expert as the command line names it: NAME=URL, or NAME=URL#MODEL."""

    name: str
    base_url: str
    model: str | None = None

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Raises ValueError."""
        name, equals, address = text.partition("=")
        if not (name.strip() and equals and address.startswith(("http://", "https://"))):
            raise ValueError(f"expected NAME=URL or NAME=URL#MODEL, found {text!r}: law=http://127.0.0.1:8001/v1")
        url, _, model = address.partition("#")
        return cls(name.strip(), url, model or None)


HEAD = """\
# yaml-language-server: $schema=ir3de.schema.json
# The line above gives editors completion and checks: ir3de config schema > ir3de.schema.json
#
#   ir3de config validate     does it all fit together?
#   ir3de serve               serve it
#
# Commented fields show their defaults. Secrets are never written here, only the names of variables that hold them.
# Relative paths are meant from where this file is.
version: 1

router:
  path: {router}  # a folder, or an address such as s3://bucket/router
  # follow: 2  # seconds between looks for a newer one: it is taken up while serving

experts:  # OpenAI-compatible endpoints, by the names the router knows them by
"""

FIRST = """\
    # api_key_env: EXPERT_API_KEY                       # the variable that holds the endpoint's key
    # capabilities: [chat, completions, tools]          # also: responses, messages, embeddings, vision
    # context_window: 8192                              # a longer request goes elsewhere
    # price: {input_per_1m: 0.10, output_per_1m: 0.40}  # for max_price, and for the cost in logs and metrics
    # fallbacks: []                                     # whom to ask first when it fails
    # timeouts: {connect: 5, first_token: 120, idle: 60, total: 600}
    # concurrency: {limit: 64, queue: 128, wait: 10}    # at once, in line, seconds in line
    # breaker: {failures: 5, rest: 10}                  # failures in a row, seconds of rest
    # system_prompt: You are brief.                     # for chats that have none
    # defaults: {temperature: 0.2}                      # for requests that lack them
"""

REST = """
# server:
#   host: 127.0.0.1                    # another needs a key, or open: true
#   port: 8100
#   workers: 1
#   api_keys_env: [IR3DE_API_KEY]      # variables that hold clients' keys
#   admin_token_env: IR3DE_ADMIN_TOKEN # while it is not set there is no /admin
#   cors_origins: []                   # origins whose pages may call from a browser
#   drain: 30                          # seconds that requests in flight may go on after a stop
#   limits: {body_bytes: 20000000, json_depth: 64, header_seconds: 10, body_seconds: 30}

# routing:
#   default: NAME                      # for prompts the router abstains on; otherwise the router's own
#   text: last_user                    # or all_user, full
#   threshold: 0.5                     # confidence below which to abstain; otherwise the router's own
#   fallbacks: 2                       # other experts to try when the first fails
#   pinning: {ttl: 1800, release: 0.95}   # conversations stay with their expert
#   shadow: NAME                       # route and log, but send everything to this expert
#   provenance: [headers, body]        # where answers say who answered

# logs:
#   access: "-"                        # one JSON line a request: a file, - for standard output, null for none
#   decisions: decisions.jsonl         # one JSON line a routed request, for `ir3de eval --replay`
#   prompts: false                     # put the text that was routed on into the decisions
#   level: info

# state: ir3de-state                   # folder for what /admin changes
"""


def template(router: str, experts: Sequence[Endpoint]) -> str:
    """A commented configuration for that router and those experts."""
    parts = [HEAD.format(router=_scalar(router))]
    for index, expert in enumerate(experts):
        parts.append(f"  - name: {_scalar(expert.name)}\n    base_url: {_scalar(expert.base_url)}\n")
        if expert.model is not None:
            parts.append(f"    model: {_scalar(expert.model)}\n")
        elif index == 0:
            parts.append(f"    # model: {_scalar(expert.name)}".ljust(56) + "# what the endpoint calls it\n")
        parts.append(FIRST if index == 0 else "")
    return "".join(parts) + REST


def endpoints_for(names: Sequence[str]) -> list[Endpoint]:
    """Places to fill in, one port after the other."""
    return [Endpoint(name, f"http://127.0.0.1:{FIRST_PORT + index}/v1") for index, name in enumerate(names)]


def _scalar(text: str) -> str:
    """A text as YAML: bare where it cannot be taken for anything else."""
    bare = re.fullmatch(r"[A-Za-z_./][\w./:-]*", text) and text.lower() not in ("true", "false", "null")
    return text if bare and not text.endswith(":") else json.dumps(text)
