"""The documentation as a site: every page has its place, links and anchors lead somewhere, nothing is loaded."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LOADING = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "form": "action",
}


class _AnyTag(yaml.SafeLoader):
    """Reads mkdocs.yml without making the functions that it names."""


_AnyTag.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def read_settings() -> dict[str, Any]:
    settings: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), _AnyTag)
    return settings


def list_pages(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for part in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from list_pages(part)


def test_every_page_has_one_place_in_the_navigation() -> None:
    placed = list(list_pages(read_settings()["nav"]))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    missing = sorted(pages - set(placed))
    assert not missing, f"no reader of the site finds {missing}: add a line for each under `nav` in mkdocs.yml"
    assert sorted(placed) == sorted(pages)


def test_no_address_of_a_host_is_made_up() -> None:
    settings = read_settings()
    assert not {"site_url", "repo_url", "edit_uri"} & settings.keys()
    assert settings["theme"]["font"] is False  # otherwise the theme asks Google for one


def build(target: Path, *options: str) -> subprocess.CompletedProcess[str]:
    if find_spec("material") is None:
        pytest.skip('the site needs `pip install ".[docs]"`')
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target), *options]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site: links and anchors that lead nowhere have failed here."""
    target = tmp_path_factory.mktemp("site")
    built = build(target)
    assert built.returncode == 0, built.stderr
    return target


class _Loaded(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "link" and values.get("rel") in ("next", "prev", "canonical", "alternate"):
            return
        self.addresses.append(values.get(LOADING.get(tag, ""), "") or "")


@pytest.mark.nightly
@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        loaded = _Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        away = [address for address in loaded.addresses if re.match(r"(https?:)?//", address)]
        assert not away, (page.relative_to(site), away)
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", style.read_text(encoding="utf-8")), style


@pytest.mark.nightly
@pytest.mark.slow
def test_every_page_can_be_searched_and_files_of_the_repository_can_be_read(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    for name in list_pages(read_settings()["nav"]):
        assert ("" if name == "index.md" else f"{name.removesuffix('.md')}/") in found
    assert not any(place.startswith("repository/") for place in found)
    assert json.loads((site / "repository/results/speed.json").read_text(encoding="utf-8"))["figures"]
    assert "llama" in (site / "repository/examples/gateway/llama-cpp.yaml/index.html").read_text(encoding="utf-8")
    assert "deployment.yaml" in (site / "repository/examples/deploy/kubernetes/base/index.html").read_text(
        encoding="utf-8"
    )


@pytest.mark.slow
@pytest.mark.parametrize("link", ["nowhere.md", "tuning.md#nowhere", "../results/nowhere.json"])
def test_a_link_that_leads_nowhere_fails_the_build(link: str, tmp_path: Path) -> None:
    """With two pages only, so that it is quick; the settings are those of the site."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(f"# Home\n\n[there]({link})\n", encoding="utf-8")
    (docs / "tuning.md").write_text("# Tuning\n\n## Sources\n", encoding="utf-8")
    lines = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[0].splitlines()
    lines = [line for line in lines if not line.startswith(("docs_dir:", "hooks:", "extra_css:"))]
    lines += [f"docs_dir: {docs}", f"hooks: [{ROOT / 'scripts' / 'site_hooks.py'}]", "nav: [index.md, tuning.md]"]
    (tmp_path / "mkdocs.yml").write_text("\n".join(lines), encoding="utf-8")
    built = build(tmp_path / "site", "--config-file", str(tmp_path / "mkdocs.yml"))
    assert built.returncode == 1 and link.rpartition("/")[2] in built.stderr, built.stderr
