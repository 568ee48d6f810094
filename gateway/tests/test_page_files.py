"""The files of the page, without a browser: how they are sent, what they name, whether colours are legible."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from urllib.error import HTTPError

import pytest

from browser import STRONGEST
from ir3de.routing.colours import COLOURS
from ir3de_gateway.http import service as static_files
from legibility import contrast, mixed, rgb
from running_gateway import Running, running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("page")) as found:
        yield found


def get(url: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as response:
            return response.status, dict(response.headers), response.read()
    except HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def test_files_are_sent_with_their_type_a_tag_and_a_strict_policy(gateway: Running) -> None:
    for name, file in static_files.load_files().items():
        url = gateway.url + ("/" if name == "index.html" else f"/page/{name}")
        status, headers, content = get(url)
        assert (status, content, headers["content-type"]) == (200, file.content, file.kind)
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert "unsafe" not in headers["content-security-policy"]
        assert get(url, **{"if-none-match": headers["etag"]})[::2] == (304, b"")
    for missing in ("nothing.js", "index.html", "..%2fapp.py", "%2e%2e"):
        assert get(f"{gateway.url}/page/{missing}")[0] == 404


def test_the_page_names_no_other_host_and_never_writes_markup() -> None:
    for name, file in static_files.load_files().items():
        text = file.content.decode()
        outside = set(re.findall(r"https?://[^\s\"'`<]+", text)) - {"http://www.w3.org/2000/svg"}
        assert all(address.startswith("http://127.0.0.1") for address in outside), name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|\son\w+=", text), name


def test_text_is_legible_in_both_themes_also_on_the_strongest_word() -> None:
    style = static_files.load_files()["palette.css"].content.decode()
    blocks = re.findall(r"\{([^{}]*--e11[^{}]*)\}", style)
    themes = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6}|\d+%)", block)) for block in blocks]
    assert len(themes) == 3 and themes[1] == themes[2]
    for theme in themes:
        for text in ("ink", "soft", "bad", "well", "trying"):
            for ground in ("paper", "sheet", "sunk"):
                assert contrast(rgb(theme[text]), rgb(theme[ground])) >= 4.5, (text, ground)
        assert len({theme[f"e{slot}"] for slot in range(12)}) == 12
        for slot in range(12):
            ground = mixed(rgb(theme[f"e{slot}"]), rgb(theme["sheet"]), STRONGEST * int(theme["full"][:-1]) / 100)
            assert contrast(rgb(theme["ink"]), ground) >= 4.5, slot
            assert contrast(rgb(theme[f"e{slot}"]), rgb(theme["sheet"])) >= 2, slot


def test_the_page_has_the_colours_of_terminals_and_notebooks() -> None:
    style = static_files.load_files()["palette.css"].content.decode()
    light, dark, chosen_dark = (
        tuple(re.findall(r"--e\d+: (#\w{6})", block)) for block in re.findall(r"\{([^{}]*--e11[^{}]*)\}", style)
    )
    assert light == tuple(colour.light for colour in COLOURS)
    assert dark == chosen_dark == tuple(colour.dark for colour in COLOURS)
    script = static_files.load_files()["colors.js"].content.decode()
    assert f"const COLOURS = {len(COLOURS)};" in script
    assert len({colour.terminal for colour in COLOURS}) == len(COLOURS)
