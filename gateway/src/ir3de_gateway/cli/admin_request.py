"""A request to /admin of a gateway that serves, for commands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from ir3de.errors import InputError
from ir3de_gateway.config.experts import read_variable

TIMEOUT_S = 30.0


def send_admin_request(
    url: str, token_env: str, method: str, path: str, body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The answer; an `InputError` with the gateway's own message if it refuses."""
    if not url.startswith(("http://", "https://")):
        raise InputError(f"--url must look like http://127.0.0.1:8100, found {url!r:.200}")
    if (token := read_variable(token_env)) is None:
        raise InputError(f"there is no admin token: put it into the environment variable {token_env}")
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    content = None if body is None else json.dumps(body).encode()
    request = Request(url.rstrip("/").removesuffix("/v1") + path, content, headers, method=method)  # noqa: S310
    try:
        with urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            found = json.load(answer)
    except HTTPError as error:
        raise InputError(f"the gateway refuses with status {error.code}: {_read_message(error)}") from None
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise InputError(f"no gateway answers at {url}: {reason}. Name its address with --url") from None
    except ValueError:
        raise InputError(f"{url} does not answer like a gateway: name its address with --url") from None
    if not isinstance(found, dict):
        raise InputError(f"{url} does not answer like a gateway: name its address with --url")
    return found


def _read_message(error: HTTPError) -> str:
    try:
        return str(json.load(error)["error"]["message"])
    except (ValueError, KeyError, TypeError, OSError):
        return error.reason
