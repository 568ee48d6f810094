"""Connections to experts by TLS and through proxies."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

import pytest
from test_connections import ANSWER, TLS, exchange, listening, no_proxies, replies, run  # noqa: F401

from ir3de.gateway.experts.connecting import Origin
from ir3de.gateway.experts.http_transport import HttpTransport
from ir3de.gateway.experts.transport import UnreachableError


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "localhost.pem", TLS / "localhost.key")
    return context


def test_tls_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def trusted(pool: HttpTransport) -> None:
        async with listening(replies(ANSWER), server_context()) as port:
            for _ in range(2):
                assert await exchange(pool, f"https://localhost:{port}/v1") == (200, b"ok")

    async def strange(pool: HttpTransport) -> None:
        async with listening(replies(ANSWER), server_context()) as port:
            with pytest.raises(UnreachableError):
                await exchange(pool, f"https://localhost:{port}/v1")

    run(strange)
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "localhost.pem"))
    run(trusted)


async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: list[bytes]) -> None:
    """A proxy that knows CONNECT alone."""
    head = await reader.readuntil(b"\r\n\r\n")
    seen.append(head)
    if b"proxy-authorization: Basic dTpwIHc=" not in head:  # u:p w
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
        return
    port = int(head.split(b" ")[1].rpartition(b":")[2])
    their_reader, their_writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while piece := await source.read(1 << 16):
            sink.write(piece)
        sink.close()

    await asyncio.gather(pump(reader, their_writer), pump(their_reader, writer), return_exceptions=True)
    their_writer.close()
    with suppress(OSError):
        await their_writer.wait_closed()


def test_proxies_of_the_environment_lead_to_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "localhost.pem"))
    seen: list[bytes] = []

    async def work(pool: HttpTransport) -> None:
        async with (
            listening(replies(ANSWER), server_context()) as expert,
            listening(lambda reader, writer: tunnel(reader, writer, seen)) as proxy,
            listening(replies(ANSWER, seen=seen)) as plain,
        ):
            monkeypatch.setenv("https_proxy", f"http://u:p%20w@127.0.0.1:{proxy}")
            monkeypatch.setenv("http_proxy", f"127.0.0.1:{plain}")
            for _ in range(2):
                assert await exchange(pool, f"https://localhost:{expert}/v1") == (200, b"ok")
            assert [head.partition(b"\r\n")[0] for head in seen] == [b"CONNECT localhost:%d HTTP/1.1" % expert]
            assert await exchange(pool, "http://expert.example/v1") == (200, b"ok")
            assert seen[-1].startswith(
                b"POST http://expert.example/v1/chat/completions HTTP/1.1\r\nhost: expert.example\r\n"
            )
            monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy}")
            with pytest.raises(UnreachableError, match="407"):
                await exchange(HttpTransport(), f"https://localhost:{expert}/v1")
            monkeypatch.setenv("no_proxy", "localhost")
            assert await exchange(HttpTransport(), f"https://localhost:{expert}/v1") == (200, b"ok")

    run(work)


@pytest.mark.parametrize(
    ("past", "led"), [("a", False), ("a:8001", False), ("a:8002", True), ("*", False), ("b", True)]
)
def test_no_proxy_names_hosts_or_hosts_with_their_ports(monkeypatch: pytest.MonkeyPatch, past: str, led: bool) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", past)
    assert (Origin.parse("http://a:8001/v1").proxy is not None) == led


@pytest.mark.parametrize(
    ("address", "shown", "place"),
    [
        ("http://a/v1", "a", "a:80"),
        ("https://a:443/v1", "a", "a:443"),
        ("https://a:80/v1", "a:80", "a:80"),
        ("https://[::1]/v1", "[::1]", "[::1]:443"),
        ("http://[::1]:8001/v1", "[::1]:8001", "[::1]:8001"),
    ],
)
def test_addresses_are_written_as_http_has_them(address: str, shown: str, place: str) -> None:
    origin = Origin.parse(address)
    assert (origin.host_header, origin.authority, origin.request_prefix) == (shown, place, "/v1")
