"""The kinds of stores: TLS, a socket of this machine, a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from client_keys import bearer, key
from free_ports import find_free_port
from ir3de.errors import InputError
from ir3de_gateway.config.state import SharedState
from ir3de_gateway.store import check_shared_state, open_shared_store
from ir3de_gateway.store.limits import Charge, Limits, Rejection
from raw_sockets import chat, eventually
from redis_process import needs_redis, running_redis
from shared_fleet import fleet

pytestmark = [pytest.mark.slow, needs_redis]
TLS = Path(__file__).parent / "tls"


def use(address: str) -> None:
    """Count and pin in the store at that address."""
    config = SharedState(store=address)
    check_shared_state(config)

    async def count() -> None:
        store = open_shared_store(config, counts_keys=True, pin_seconds=60)
        assert store.limits is not None
        limits = Limits(requests_per_minute=2)
        found = [await store.limits.admit("eve", limits) for _ in range(3)]
        assert [type(one) for one in found] == [Charge, Charge, Rejection]
        await store.pins.put("monday", "law")
        assert (await store.pins.get("monday"), await store.pins.take("monday")) == ("law", "law")
        assert store.shared is not None and store.shared.connection.is_up
        await store.close()

    asyncio.run(count())


def test_a_store_with_tls(tmp_path: Path) -> None:
    files = {"tls-cert-file": "localhost.pem", "tls-key-file": "localhost.key", "tls-ca-cert-file": "localhost.pem"}
    options = {name: str(TLS / file) for name, file in files.items()} | {"tls-auth-clients": "no"}
    with running_redis(tmp_path, options) as store, store.connect() as client:
        port = find_free_port()
        client.config_set("tls-port", port)
        use(f"rediss://localhost:{port}/0?ssl_ca_certs={TLS / 'localhost.pem'}")
        with pytest.raises(InputError, match="does not answer"):
            check_shared_state(SharedState(store=f"rediss://localhost:{port}/0", on_failure="closed"))


def test_a_store_at_a_socket(tmp_path: Path) -> None:
    with running_redis(tmp_path, {"unixsocket": str(tmp_path / "s")}):
        use(f"unix://{tmp_path / 's'}")


def test_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", "root")
    with running_redis(tmp_path / "redis", {"cluster-enabled": "yes"}) as store, store.connect() as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)
        assert eventually(lambda: "ok" in str(client.execute_command("CLUSTER", "INFO")))
        address = f"redis+cluster://127.0.0.1:{store.port}"
        use(address)
        with fleet(tmp_path, store, key("ada", requests_per_minute=4), url=address) as found:
            statuses = [found.ask(place, chat("x", "law"), **bearer("ada")).status for place in range(6)]
            assert statuses == [200] * 4 + [429] * 2
            assert found.ask(0, {"name": "bea"}, "/admin/keys", authorization="Bearer root").status == 201
            names = [
                found.ask(place, path="/admin/keys", authorization="Bearer root").json["data"] for place in range(3)
            ]
            assert [len(rows) for rows in names] == [2] * 3
