"""The answer to a request of a key: it tells what is left of the limits, and the request ends before its last byte."""

from __future__ import annotations

from starlette.types import Message, Send

from ir3de_gateway.keys.client_key import RATE_HEADER_PREFIXES, Lease, build_rate_headers


def count_sent(send: Send, lease: Lease, *, is_anthropic: bool) -> Send:
    """Add the headers, and charge the request before the client can know that it has ended.

    Otherwise a client could send its next request while another worker still counts this one.
    """

    async def send_counted(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = message.get("headers", ())
            if any(name == b"content-length" for name, _ in headers):  # a whole answer, which is known by now
                lease.close()
            if lease.has_rates:
                others = [pair for pair in headers if not pair[0].startswith(RATE_HEADER_PREFIXES)]
                message["headers"] = [*others, *build_rate_headers(lease.read_rates(), is_anthropic=is_anthropic)]
        elif not message.get("more_body"):
            lease.close()
        await send(message)

    return send_counted
