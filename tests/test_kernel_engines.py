"""Where the native kernel cannot be used, numpy takes over; and what both engines fit is the same."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tiny
from ir3de import Router, kernel
from ir3de.corpora import examples
from ir3de.evaluation.verification import verify
from ir3de.scorers import sparse
from ir3de.scorers.logistic import Logistic
from surface import ROOT

needs_kernel = pytest.mark.skipif(kernel.native is None, reason=kernel.engine.reason)


def test_a_kernel_that_may_not_be_used_leaves_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(**parts: object) -> kernel.Engine:
        monkeypatch.setattr(kernel, "_import", lambda: SimpleNamespace(**parts))
        found, engine = kernel.load()
        assert found is None and engine.name == "numpy"
        return engine

    assert "of version 0, and this package needs" in load(KERNEL_VERSION=0).reason
    assert "of version None" in load().reason
    assert "fails its first test" in load(KERNEL_VERSION=kernel.KERNEL_VERSION).reason

    def refuse() -> None:
        raise ImportError("built for another\n processor")

    monkeypatch.setattr(kernel, "_import", refuse)
    assert "cannot be loaded (built for another processor)" in kernel.load()[1].reason
    monkeypatch.setenv(kernel.VARIABLE, "numpy")
    assert kernel.load()[1].reason.startswith("IR3DE_KERNEL=numpy turns")


@needs_kernel
def test_a_kernel_that_counts_wrongly_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong:
        def __init__(self, *parts: object) -> None:
            self.tables = kernel.native.Tables(*parts)

        def decide(self, ids: np.ndarray, tally: np.ndarray, *rest: object) -> int:
            found: int = self.tables.decide(ids, tally, *rest)
            tally[0] += 1
            return found

    monkeypatch.setattr(kernel, "_import", lambda: SimpleNamespace(KERNEL_VERSION=kernel.KERNEL_VERSION, Tables=Wrong))
    assert "counts wrongly" in kernel.load()[1].reason


@needs_kernel
@pytest.mark.parametrize("damage", ["empty", "text", "short", "half"])
def test_a_damaged_file_leaves_numpy(tmp_path: Path, damage: str) -> None:
    """The package beside a damaged module; in a process of its own, which must not crash."""
    whole = Path(kernel.native.__file__).read_bytes()
    content = {"empty": b"", "text": b"not a library", "short": whole[:100], "half": whole[: len(whole) // 2]}[damage]
    package = tmp_path / "ir3de"
    package.mkdir()
    for entry in (ROOT / "src" / "ir3de").iterdir():
        if entry.name != "kernel":
            (package / entry.name).symlink_to(entry)
    (package / "kernel").mkdir()
    for entry in (ROOT / "src" / "ir3de" / "kernel").glob("*.py"):
        (package / "kernel" / entry.name).symlink_to(entry)
    (package / "kernel" / Path(kernel.native.__file__).name).write_bytes(content)
    script = "from ir3de import kernel; print(kernel.__file__, *kernel.engine)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert str(tmp_path) in done.stdout and "numpy the native kernel cannot be loaded" in done.stdout


# where it lies --------------------------------------------------------------------------------------------------------


def test_only_the_room_itself_names_the_compiled_module() -> None:
    rooms = [ROOT / "src", ROOT / "gateway" / "src", ROOT / "lab" / "src"]
    texts = {path: path.read_text("utf-8") for room in rooms for path in room.rglob("*.py")}
    found = [path for path, text in texts.items() if "kernel._native" in text or "import _native" in text]
    assert [path.relative_to(ROOT / "src").as_posix() for path in found] == ["ir3de/kernel/__init__.py"]


def test_its_version_is_that_of_the_sources() -> None:
    header = (ROOT / "src" / "ir3de" / "kernel" / "native.h").read_text("utf-8")
    assert f"#define KERNEL_VERSION {kernel.KERNEL_VERSION} " in header


@needs_kernel
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_routes_while_others_route() -> None:
    router, stop = tiny.router(), []
    expected = router.route("boil an egg").to_dict()
    with ThreadPoolExecutor(2) as pool:
        busy = [pool.submit(lambda: [router.route_batch(tiny.mixed(20)) for _ in range(50) if not stop]) for _ in "ab"]
        codes = []
        for _ in range(3):
            if (child := os.fork()) == 0:
                os._exit(0 if router.route("boil an egg").to_dict() == expected else 1)
            codes.append(os.waitpid(child, 0)[1])
        stop.append(True)
        assert all(one.result() for one in busy)
    assert codes == [0, 0, 0]


@needs_kernel
def test_a_discriminative_fit_of_one_engine_is_verified_with_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The solver ends before the minimum, elsewhere with other rounding errors. What is another table is found out."""
    named = list(examples.prompts().items())[:3]
    prompts = {name: [" ".join(texts[i : i + 20]) for i in range(15)] for name, texts in named}
    router = Router.fit(prompts, scorer=Logistic())
    router.save(tmp_path / "router")
    monkeypatch.setattr(sparse, "native", None)

    def check(folder: Path) -> dict[str, bool | None]:
        return {check.claim[:9]: check.holds for check in verify(folder)}

    assert check(tmp_path / "router")["the table"] is True
    parts = Router.load(tmp_path / "router")._parts
    scores = np.array(parts.compiled.table.scores)
    scores[0, 0] += 0.01 * np.abs(scores).max()
    forged = replace(parts, compiled=replace(parts.compiled, table=replace(parts.compiled.table, scores=scores)))
    Router(forged).save(tmp_path / "forged")
    assert check(tmp_path / "forged")["the table"] is False
