"""Router changes while a gateway serves: the folder is replaced, then PUT /admin/router says so."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from ir3de import Router
from ir3de.corpora import examples as demo
from ir3de_lab.benchmarks.gateway.processes import Server

TOKEN = "a-token-of-the-soak-on-loopback"
TOKEN_VARIABLE = "IR3DE_ADMIN_TOKEN"
TIMEOUT_S = 60.0


class RouterChanges:
    """Two routers that take turns in one folder. The work is done on a thread, so that the clients are not held up."""

    def __init__(self, folder: Path, gateway: Server) -> None:
        self._folder, self._gateway = folder / "rolling", gateway
        self._routers = [folder / "rolling-a", folder / "rolling-b"]
        for count, path in zip((None, 6), self._routers, strict=True):
            Router.fit({name: texts[:count] for name, texts in demo.prompts().items()}).save(path, serving=True)
        self._digests = [json.loads((path / "router.json").read_bytes())["sha256"] for path in self._routers]
        self._pool = ThreadPoolExecutor(1)
        self._made: list[Future[str]] = []

    def make(self) -> None:
        """Replace the router by the other one, soon."""
        self._made.append(self._pool.submit(self._make, len(self._made)))

    def _make(self, number: int) -> str:
        following, previous = self._folder.with_suffix(".next"), self._folder.with_suffix(".previous")
        shutil.copytree(self._routers[number % 2], following)
        if self._folder.exists():
            self._folder.rename(previous)
        following.rename(self._folder)
        shutil.rmtree(previous, ignore_errors=True)
        served, wanted = put_router(self._gateway, self._folder), self._digests[number % 2]
        return served if served == wanted or served.startswith("error") else f"error: {served} serves, not {wanted}"

    def results(self) -> list[str]:
        """The router that each change led to, or the error, when all of them are over."""
        self._pool.shutdown(wait=True)
        return [made.result() for made in self._made]


def put_router(gateway: Server, folder: Path) -> str:
    """Serve the router of that folder; its digest, or the error."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{gateway.port}/admin/router",
        json.dumps({"path": str(folder)}).encode(),
        {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"},
        method="PUT",
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return str(json.load(answer)["digest"])
    except urllib.error.HTTPError as error:
        return f"error {error.code}: {error.read()[:500].decode(errors='replace')}"
    except OSError as error:
        return f"error: {error}"
