"""Connections to experts by TLS and through proxies."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

import pytest

from ir3de_gateway.config.experts import TlsFiles
from ir3de_gateway.transport import Destination, UnreachableError
from ir3de_gateway.transport.connecting import Origin
from ir3de_gateway.transport.pool import HttpTransport
from transport_servers import ANSWER, TLS, exchange, listening, replies, run, usual_environment  # noqa: F401


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "localhost.pem", TLS / "localhost.key")
    return context


async def exchange_alone(there: str) -> tuple[int, bytes]:
    """On a transport that has seen no other environment."""
    transport = HttpTransport()
    try:
        return await exchange(transport, there)
    finally:
        transport.close()


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


def test_an_expert_has_authorities_and_a_certificate_of_its_own() -> None:
    ours = str(TLS / "localhost.pem")
    wanting = server_context()
    wanting.verify_mode = ssl.CERT_REQUIRED
    wanting.load_verify_locations(ours)
    shown = TlsFiles(ca=ours, certificate=ours, key=str(TLS / "localhost.key"))

    async def work(pool: HttpTransport) -> None:
        async with listening(replies(ANSWER), wanting) as port:
            base_url = f"https://localhost:{port}/v1"
            assert await exchange(pool, Destination(base_url, tls=shown)) == (200, b"ok")
            with pytest.raises(OSError):  # TLS 1.3 tells a client that its certificate is missing after the handshake
                await exchange(pool, Destination(base_url, tls=TlsFiles(ca=ours)))
            with pytest.raises(UnreachableError, match="certificate verify failed") as found:
                await exchange(pool, base_url)
            assert found.value.stage == "tls"

    run(work)


async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: list[bytes]) -> None:
    """A proxy that knows CONNECT alone."""
    head = await reader.readuntil(b"\r\n\r\n")
    seen.append(head)
    if b"proxy-authorization: Basic dTpwIHc=" not in head:  # u:p w
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
        return
    port = int(head.split(b" ")[1].rpartition(b":")[2])
    await join(reader, writer, port, b"HTTP/1.1 200 Connection established\r\n\r\n")


async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, welcome: bytes) -> None:
    """Connect a client to a port, and tell it so."""
    their_reader, their_writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(welcome)

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
                await exchange_alone(f"https://localhost:{expert}/v1")
            monkeypatch.setenv("no_proxy", "localhost")
            assert await exchange_alone(f"https://localhost:{expert}/v1") == (200, b"ok")

    run(work)


def test_a_proxy_with_TLS_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "localhost.pem"))
    seen: list[bytes] = []

    async def work(pool: HttpTransport) -> None:
        async with (
            listening(replies(ANSWER), server_context()) as expert,
            listening(lambda reader, writer: tunnel(reader, writer, seen), server_context()) as proxy,
            listening(replies(ANSWER, seen=seen), server_context()) as plain,
        ):
            monkeypatch.setenv("https_proxy", f"https://u:p%20w@localhost:{proxy}")
            monkeypatch.setenv("http_proxy", f"https://localhost:{plain}")
            assert await exchange(pool, f"https://localhost:{expert}/v1") == (200, b"ok")
            assert await exchange(pool, "http://expert.example/v1") == (200, b"ok")
            assert [head.partition(b"\r\n")[0] for head in seen] == [
                b"CONNECT localhost:%d HTTP/1.1" % expert,
                b"POST http://expert.example/v1/chat/completions HTTP/1.1",
            ]

    run(work)


async def socks5(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: list[tuple[int, bytes]]) -> None:
    """A SOCKS5 proxy (RFC 1928) that wants the user u and the password p."""
    _, methods = await reader.readexactly(2)
    assert 2 in await reader.readexactly(methods)
    writer.write(b"\x05\x02")
    assert await reader.readexactly(5) == b"\x01\x01u\x01p"
    writer.write(b"\x01\x00")
    kind = (await reader.readexactly(4))[3]
    host = await reader.readexactly(4 if kind == 1 else (await reader.readexactly(1))[0])
    port = int.from_bytes(await reader.readexactly(2))
    seen.append((kind, host))
    if host == b"refused.example":
        writer.write(b"\x05\x05\x00\x01" + bytes(6))
        return
    await join(reader, writer, port, b"\x05\x00\x00\x01" + bytes(6))


def test_socks_proxies_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("python_socks")
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "localhost.pem"))
    seen: list[tuple[int, bytes]] = []

    async def work(pool: HttpTransport) -> None:
        async with (
            listening(replies(ANSWER), server_context()) as secure,
            listening(replies(ANSWER)) as plain,
            listening(lambda reader, writer: socks5(reader, writer, seen)) as proxy,
        ):
            monkeypatch.setenv("ALL_PROXY", f"socks5h://u:p@127.0.0.1:{proxy}")
            assert await exchange(pool, f"https://localhost:{secure}/v1") == (200, b"ok")
            assert await exchange(pool, f"http://expert.example:{plain}/v1") == (200, b"ok")  # the proxy knows the name
            with pytest.raises(UnreachableError, match="the proxy refuses") as found:
                await exchange(pool, f"http://refused.example:{plain}/v1")
            assert found.value.stage == "proxy"
            monkeypatch.setenv("ALL_PROXY", f"socks5://u:p@127.0.0.1:{proxy}")  # the gateway looks up the name
            assert await exchange_alone(f"http://127.0.0.1:{plain}/v1") == (200, b"ok")
            monkeypatch.setenv("no_proxy", "localhost")
            assert await exchange_alone(f"https://localhost:{secure}/v1") == (200, b"ok")
        assert seen == [(3, b"localhost"), (3, b"expert.example"), (3, b"refused.example"), (1, bytes([127, 0, 0, 1]))]

    run(work)


@pytest.mark.parametrize("address", ["ftp://a:1", "http://[::1"])
def test_a_proxy_that_cannot_be_used_is_an_error_without_its_password(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("http_proxy", address.replace("//", "//user:secret@"))

    async def work(pool: HttpTransport) -> None:
        with pytest.raises(UnreachableError, match="proxy") as found:
            await exchange(pool, "http://expert.example/v1")
        assert "secret" not in str(found.value)

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
    assert (origin.host_header, origin.authority, origin.build_target("x")) == (shown, place, "/v1/x")
