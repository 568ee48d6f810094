"""/admin over HTTP: routers that are put, and a configuration that is read again."""

import asyncio
from pathlib import Path

import tiny
from admin_client import admin, config, error, folder, token  # noqa: F401
from ir3de import Router
from ir3de.files.router_folder import read_header
from ir3de_gateway.gateway import Gateway
from saved import first_router


def test_naming_the_folder_that_serves_loads_what_is_there_now(folder: Path) -> None:
    path = str(folder / "other")
    first_router().save(path)
    with admin(config(folder, router={"path": str(folder / "router"), "follow": 3_600})) as client:
        before = client.put("/admin/router", json={"path": path}).json()["digest"]
        tiny.router(seed=1).save(path)
        after = client.put("/admin/router", json={"path": path}).json()["digest"]
        assert after == read_header(Path(path))["sha256"] != before


def test_the_admins_router_wins_until_the_configured_one_is_wanted_again(folder: Path) -> None:
    with admin(config(folder)) as client:
        assert client.delete("/admin/experts/law").status_code == 200
        tiny.router(seed=1).save(folder / "router")
        shown = client.get("/admin/router").json()
        assert "law" not in shown["experts"] and shown["configured"]["newer_than_changed"]
        assert client.post("/admin/reload?router=configured").status_code == 200
        shown = client.get("/admin/router").json()
        assert shown["origin"] == "configuration" and shown["experts"] == [*tiny.DOMAINS]
        rows = client.get("/admin/experts").json()["data"]
        assert [row["name"] for row in rows] == ["maths", "cooking", "law"]
        assert rows[-1]["upstream"] is None and rows[-1]["routed"]  # the router knows it, nobody serves it
        assert not list((folder / "state").glob("router-*"))


def test_a_router_that_is_put_again_is_read_again(folder: Path) -> None:
    """Whoever publishes a router to the folder that serves and then PUTs it has the new one with the answer."""
    with admin(config(folder, router={"path": str(folder / "router"), "follow": 3_600})) as client:
        first = client.get("/admin/router").json()["digest"]
        put = {"path": str(folder / "router")}
        assert client.put("/admin/router", json=put).json()["digest"] == first
        Router.fit({name: [*texts, "One more."] for name, texts in tiny.DOMAINS.items()}).save(folder / "router")
        second = client.put("/admin/router", json=put).json()["digest"]
        assert second != first
        assert client.gateway.live.snapshot.digest == second
        (folder / "router" / "router.json").write_bytes(b"{")
        assert client.put("/admin/router", json=put).status_code == 422
        assert client.get("/admin/router").json()["digest"] == second


def test_the_configuration_is_read_again(folder: Path) -> None:
    bases = [config(folder)]
    with admin(bases[0], lambda: bases[-1]) as client:
        bases.append(config(folder, "http://127.0.0.1:10/v1", routing={"fallbacks": 0}, server={"port": 1}))
        assert client.post("/admin/reload").json() == {"reloaded": True, "needs_restart": ["server.port"]}
        live = client.gateway.live.snapshot
        assert live.config.routing.fallbacks == 0 and live.experts["law"].config.base_url.endswith(":10/v1")


def test_a_configuration_whose_hook_cannot_be_loaded_is_refused(folder: Path) -> None:
    """Otherwise every request would be refused until somebody mends it."""
    bases = [config(folder)]
    with admin(bases[0], lambda: bases[-1]) as client:
        bases.append(config(folder, hooks={"before": [{"call": "no_such_module:check"}]}))
        status, message = error(client.post("/admin/reload"))
        assert 400 <= status < 500 and "no_such_module" in message
        assert not client.gateway.live.snapshot.config.hooks.before


def test_what_needs_a_restart_is_named_until_it_runs_or_is_taken_back(folder: Path) -> None:
    ports = iter((9_101, 9_101, 9_100))
    with admin(config(folder, server={"port": 9_100}), lambda: config(folder, server={"port": next(ports)})) as client:
        needs = [client.post("/admin/reload").json()["needs_restart"] for _ in range(3)]
    assert needs == [["server.port"], ["server.port"], []]


def test_nothing_is_kept_of_a_reload_at_a_signal(folder: Path) -> None:
    async def reload_twice(gateway: Gateway) -> tuple[int, int]:
        before = len(gateway._background)
        for _ in range(2):
            gateway._reload()
        await asyncio.gather(*gateway._background[before:])
        await asyncio.sleep(0)  # for what happens at their end
        return before, len(gateway._background)

    with admin(config(folder), reread=lambda: config(folder)) as client:
        assert client.portal is not None
        before, after = client.portal.call(reload_twice, client.gateway)
        assert before == after and client.gateway.administration.current.state.reloads == 2
