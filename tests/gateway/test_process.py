"""`ir3de serve` as a process of its own: what is done to its files, and what it leaves behind, while it serves."""

from pathlib import Path

import pytest
from test_admin import token  # noqa: F401
from test_admin_workers import folder, process  # noqa: F401


@pytest.mark.parametrize("name", ["router", pytest.param("state", marks=pytest.mark.slow)])
def test_a_router_that_is_copied_over_itself_while_it_serves_harms_nobody(folder: Path, name: str) -> None:  # noqa: F811
    with process(folder, 1, router={"path": str(folder / "router"), "follow": 0.02}) as gateway:
        if name == "state":  # the router that serves is a changed one, in the state folder
            gateway.ask("DELETE", "/admin/experts/law")
        asked = {"input": "Is this contract void?", "explain": True}  # an explanation reads the table, too
        before = gateway.ask("POST", "/v1/route", asked)["data"]
        for path in [path for path in (folder / name).glob("**/*") if path.is_file() and "cache" not in path.parts]:
            content = path.read_bytes()
            with path.open("wb") as file:  # as `cp` does: the file is empty for a while
                for _ in range(5):
                    assert gateway.ask("POST", "/v1/route", asked)["data"] == before
                file.write(content)
        assert gateway.running.poll() is None
