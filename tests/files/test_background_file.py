"""The background in a router's folder: its own file if it was given, and only its digest if it is the built-in one."""

import json
from pathlib import Path

import pytest

import tiny
from ir3de import Router
from ir3de.errors import MismatchError
from saved import edit, first_router, part, refusal

OTHERS = tiny.mixed(40, seed=9)
ADDED = "sailing", ["hoist the mainsail", "the keel and the rudder", "tack into the wind"]


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """A router whose background was given."""
    return tiny.router(background=OTHERS).save(tmp_path / "given")


def test_a_background_that_was_given_has_a_file(given: Path, tmp_path: Path) -> None:
    assert part(given, "background-").is_file()
    assert not list(first_router().save(tmp_path / "usual").glob("background-*"))


def test_a_loaded_router_changes_as_the_fitted_one_does(given: Path) -> None:
    fitted, loaded = tiny.router(background=OTHERS), Router.load(given)
    for router in (fitted, loaded):
        router.add(*ADDED)
    assert loaded.route_batch(OTHERS) == fitted.route_batch(OTHERS)
    assert loaded.compiled.rules.membership == fitted.compiled.rules.membership
    loaded.save(given)
    assert len(list(given.glob("background-*"))) == 1


def test_a_serving_copy_has_none(given: Path, tmp_path: Path) -> None:
    router = Router.load(given)
    copy = router.save(tmp_path / "copy", serving=True)
    assert not list(copy.glob("background-*"))
    assert json.loads((copy / "router.json").read_text(encoding="utf-8"))["background"] is None
    assert Router.load(copy).route_batch(OTHERS) == router.route_batch(OTHERS)


@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_damage_stops_changes_but_no_routing(given: Path, damage: str) -> None:
    expected, path = Router.load(given).route_batch(OTHERS), part(given, "background-")
    content = path.read_bytes()
    path.unlink()
    if damage == "truncated":
        path.write_bytes(content[:-10])
    router = Router.load(given)
    assert router.route_batch(OTHERS) == expected
    assert path.name in refusal(router.add, *ADDED)
    assert router.route_batch(OTHERS) == expected


def test_the_built_in_background_of_another_version_stops_changes_but_no_routing(tmp_path: Path) -> None:
    folder = first_router().save(tmp_path / "router")
    edit(folder, lambda header: header["background"].update(digest="0" * 64))
    router = Router.load(folder)
    assert router.route_batch(OTHERS) == first_router().route_batch(OTHERS)
    message = refusal(router.add, *ADDED, kind=MismatchError)
    assert "the background of another version" in message and "Fit it again" in message
