"""Scorers and selectors of others: routers with them are saved and loaded where their package is installed."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ir3de.scorers
import ir3de.selectors
import tiny
from ir3de import Router
from ir3de.errors import ArtifactError, InputError
from ir3de.scorers import Blend, TokenRidge
from ir3de.scorers.registry import SCORERS
from ir3de.selectors import SELECTORS, Average

DOMAINS = {name: tiny.sentences(name, 6) for name in tiny.DOMAINS}

PACKAGE = """
from dataclasses import dataclass
from ir3de.scorers import TokenRidge
from ir3de.selectors import Average

@dataclass(frozen=True)
class Doubled:
    strength: float = 0.5

    def scores(self, domains, embeddings):
        return 2 * TokenRidge(self.strength).scores(domains, embeddings)

@dataclass(frozen=True)
class Patient(Average):
    cap: int = 2_048
"""
ENTRY_POINTS = """
[ir3de.scorers]
Doubled = acme_router:Doubled
[ir3de.selectors]
Patient = acme_router:Patient
"""
LOAD = """
import sys
from ir3de import Router
router = Router.load(sys.argv[1])
print(router.scorer, router.selector, router.route(sys.argv[2]).expert)
"""


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An installed package with a scorer and a selector."""
    site = tmp_path / "site"
    info = site / "acme_router-1.2.dist-info"
    info.mkdir(parents=True)
    (site / "acme_router.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-router\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(site)
    import acme_router

    yield acme_router
    sys.modules.pop("acme_router", None)


def load_elsewhere(folder: Path, site: Path | None) -> subprocess.CompletedProcess[str]:
    """Load a router in another process, with or without the package on its path."""
    path = ":".join([*([str(site)] if site else []), str(Path(ir3de.__file__).parents[1])])
    return subprocess.run(
        [sys.executable, "-c", LOAD, folder, "prove the theorem"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": path},
        check=False,
    )


def test_entry_points_save_and_load(acme: Any, tmp_path: Path) -> None:
    assert {"Doubled", "Blend"} <= set(SCORERS.names()) and {"Patient", "Average"} <= set(SELECTORS.names())
    router = Router.fit(DOMAINS, scorer=acme.Doubled(0.25), selector=acme.Patient(), embedding=tiny.embedding())
    router.add("more", ["what is more"])
    router.remove("more")
    router.save(tmp_path / "router")
    loaded = Router.load(tmp_path / "router")
    assert (loaded.scorer, loaded.selector) == (acme.Doubled(0.25), acme.Patient())
    prompts = tiny.mixed(20)
    assert loaded.route_batch(prompts) == router.route_batch(prompts)
    for table in (tmp_path / "router").glob("table-*"):
        table.unlink()
    assert Router.load(tmp_path / "router").route_batch(prompts) == router.route_batch(prompts)  # fitted again
    there = load_elsewhere(tmp_path / "router", tmp_path / "site")
    assert there.stdout.split("\n")[0] == f"Doubled(strength=0.25) {acme.Patient()} maths", there.stderr


@pytest.mark.parametrize("key", ["scorer", "selector"])
def test_without_the_package_the_error_names_it(acme: Any, tmp_path: Path, key: str) -> None:
    chosen = {"scorer": {"scorer": acme.Doubled()}, "selector": {"selector": acme.Patient()}}[key]
    Router.fit(DOMAINS, embedding=tiny.embedding(), **chosen).save(tmp_path / "router")
    there = load_elsewhere(tmp_path / "router", None)
    name = "Doubled" if key == "scorer" else "Patient"
    assert (
        f"ArtifactError: the {key} '{name}' comes from the package acme-router, and no entry point '{name}' in the "
        f"group 'ir3de.{key}s' is installed here: pip install acme-router"
    ) in there.stderr


def test_an_entry_point_that_cannot_be_imported(acme: Any, tmp_path: Path) -> None:
    Router.fit(DOMAINS, scorer=acme.Doubled(), embedding=tiny.embedding()).save(tmp_path / "router")
    (tmp_path / "site" / "acme_router.py").write_text("raise RuntimeError('no licence')")
    there = load_elsewhere(tmp_path / "router", tmp_path / "site")
    assert "the scorer 'Doubled' of the package acme-router cannot be used: no licence" in there.stderr
    (tmp_path / "site" / "acme_router.py").write_text(PACKAGE.replace("strength", "force"))
    there = load_elsewhere(tmp_path / "router", tmp_path / "site")
    assert "was saved with {'strength': 0.5}, which this version of acme_router does not take" in there.stderr


@dataclass(frozen=True)
class Constant:
    weights: Any = 1.0

    def scores(self, domains: Any, embeddings: Any) -> Any:
        return np.full((len(embeddings), len(domains)), self.weights, float)


@pytest.fixture
def unregistered() -> Iterator[None]:
    yield
    SCORERS._registered.clear()
    SELECTORS._registered.clear()


@pytest.mark.usefixtures("unregistered")
def test_a_class_is_saved_and_loaded_once_it_is_registered(tmp_path: Path) -> None:
    router = Router.fit(DOMAINS, scorer=Constant(2.0), embedding=tiny.embedding())
    with pytest.raises(ArtifactError, match=r"not registered. Decorate Constant with @ir3de.scorers.register"):
        router.save(tmp_path / "router")
    assert ir3de.scorers.register(Constant) is Constant
    ir3de.scorers.register(Constant)  # as when a module is loaded again
    router.save(tmp_path / "router")
    assert Router.load(tmp_path / "router").scorer == Constant(2.0)
    SCORERS._registered.clear()
    with pytest.raises(ArtifactError, match=f"is defined in the module {__name__}: import that before"):
        Router.load(tmp_path / "router")


@pytest.mark.usefixtures("unregistered")
@pytest.mark.parametrize("weights", [(1.0, 2.0, 3.0), {"a": (1,)}, object(), float("nan")])
def test_what_would_not_be_loaded_as_it_was_is_not_saved(weights: object) -> None:
    ir3de.scorers.register(Constant)
    with pytest.raises(ArtifactError, match="cannot save Constant"):
        SCORERS.describe(Constant(weights))


@dataclass
class Thawed:
    def scores(self) -> None: ...


@dataclass(frozen=True)
class Named:
    name: str = ""

    def scores(self) -> None: ...


@pytest.mark.parametrize(
    ("cls", "said"), [(Thawed, "frozen dataclass"), (Named, "'name'"), (Average, "method scores"), (3, "frozen")]
)
def test_what_cannot_be_registered_is_refused(cls: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        ir3de.scorers.register(cls)
    with pytest.raises(InputError, match="another scorer called 'Blend'"):
        ir3de.scorers.register(Blend)
    with pytest.raises(InputError, match="cannot be a selector: it needs the method ballots"):
        ir3de.selectors.register(TokenRidge)


@pytest.mark.usefixtures("unregistered")
def test_two_classes_of_one_name_are_refused() -> None:
    ir3de.scorers.register(Constant)

    @dataclass(frozen=True)
    class Other:
        seen: tuple[int, ...] = field(default=())

        def scores(self) -> None: ...

    Other.__name__ = "Constant"
    with pytest.raises(InputError, match="another scorer called 'Constant'"):
        ir3de.scorers.register(Other)


WITHOUT_LAB = """
import sys
from importlib import metadata
sys.modules["ir3de_lab"] = None  # as if it were not installed
found = metadata.entry_points
metadata.entry_points = lambda **of: [one for one in found(**of) if "ir3de_lab" not in one.value]
from ir3de.__main__ import main
from ir3de import Router
from ir3de.errors import MissingExtraError
from ir3de.scorers import *
from ir3de.evaluation import *
assert Blend and evaluate and "CrossEntropy" not in globals() and "Typos" not in globals()
try:
    from ir3de.scorers import CrossEntropy
except MissingExtraError as error:
    print(error)
try:
    Router.load(sys.argv[1])
except MissingExtraError as error:
    print(error)
sys.argv = ["ir3de", "fit", sys.argv[2], "a=" + sys.argv[3], "b=" + sys.argv[3], "--scorer", "cross-entropy"]
main()
"""


def test_scorers_of_the_laboratory_load_with_it_and_are_named_without_it(tmp_path: Path) -> None:
    router = Router.fit(DOMAINS, scorer=ir3de.scorers.CrossEntropy(2.0), embedding=tiny.embedding())
    router.save(tmp_path / "router")
    header = (tmp_path / "router" / "router.json").read_text()
    assert '"CrossEntropy"' in header and "ir3de_lab" not in header  # as earlier versions wrote it
    assert Router.load(tmp_path / "router").scorer == ir3de.scorers.CrossEntropy(2.0)
    assert SCORERS.create("KernelRidge") == ir3de.scorers.KernelRidge()
    (tmp_path / "texts.txt").write_text("What is it?\n")
    command = [sys.executable, "-P", "-c", WITHOUT_LAB, tmp_path / "router", tmp_path / "new", tmp_path / "texts.txt"]
    without = subprocess.run(command, capture_output=True, text=True, check=False)
    hint = "CrossEntropy needs the package 'ir3de-lab', which is not installed: "
    assert without.stdout.count(hint) == 2 and hint in without.stderr.replace("\n", " "), without.stderr
    assert without.returncode != 0
