"""Every block of code on every page of docs/ is run, checked, or says why it cannot run."""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from page_blocks import (
    CHECKED,
    DOCS,
    GENERATED,
    OUTPUT,
    OWN_TESTS,
    ROOT,
    RUN,
    Block,
    list_pages,
    parse_blocks,
    read_blocks,
    split_command,
)
from page_runner import PageRunner, check_call, check_extras

from configurations import GOOD
from ir3de_gateway.config.load import merge_overrides, parse_config, parse_document
from ir3de_gateway.keys.keys_file import KeysFile

EXCUSED_AT_MOST = 27  # blocks that need a cluster, an accelerator, another company's service, or hours

WRITTEN = [page for page in list_pages() if page not in GENERATED]


@pytest.mark.parametrize("page", WRITTEN)
def test_every_block_is_run_checked_or_excused(page: str) -> None:
    for block in read_blocks(page):
        known = RUN | CHECKED | OUTPUT
        assert block.language in known or block.excuse or block.is_example_file, (
            f"{block.place}: no test runs ```{block.language}. Use one of {sorted(known)}, or write "
            "`<!-- not run: the reason -->` on the line above the block"
        )
        assert block.excuse != "", f"{block.place}: say why it cannot run"


def test_few_blocks_are_excused() -> None:
    excused = [block for page in WRITTEN for block in read_blocks(page) if block.excuse]
    assert len(excused) <= EXCUSED_AT_MOST, [block.place for block in excused]


def test_what_cannot_run_here_names_commands_and_options_that_exist() -> None:
    for page in WRITTEN:
        for block in read_blocks(page):
            for command in block.list_commands() if block.excuse and block.language == "console" else ():
                words = split_command(command)
                if words[0] == "ir3de" and words[1] != "bench":  # those are the laboratory's
                    check_call(words[1:])
                elif words[:2] == ["pip", "install"]:
                    check_extras(words)


@pytest.mark.parametrize("page", [page for page in WRITTEN if any(b.language in CHECKED for b in read_blocks(page))])
def test_data_is_what_it_says(page: str) -> None:
    for block in read_blocks(page):
        if block.language == "json":
            check_json(block)
        elif block.language == "csv":
            assert len({len(row) for row in csv.reader(block.text.splitlines())}) == 1
        elif block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "yaml":
            check_configuration(block)


def check_json(block: Block) -> None:
    """One document, or one on each line."""
    try:
        json.loads(block.text)
    except json.JSONDecodeError:
        for line in block.text.splitlines():
            json.loads(line)


def check_configuration(block: Block) -> None:
    """A configuration, a part of one, or a file of keys: the gateway's own reader takes it; or one of LiteLLM."""
    given: Any = yaml.safe_load(block.text)
    if "model_list" in given:  # LiteLLM's: the test of its proxy reads the settings of the plug-in
        groups = {one["model_name"] for one in given["model_list"]}
        assert groups >= set(given["callback_settings"]["ir3de"]["models"].values())
        return
    if "keys" in given:
        KeysFile.model_validate_json(json.dumps(given, default=str), strict=True)
        return
    text = block.text if "router" in given else yaml.safe_dump(merge_overrides(yaml.safe_load(GOOD), given))
    parse_config(parse_document(text, block.place), Path("/etc/ir3de.yaml"), secrets=False)


def test_blocks_are_found_with_their_excuses() -> None:
    text = (
        "# A\n\n<!-- not run: needs a moon -->\n```console\n$ ir3de fit \\\n    router\nsaid\n```\n\n"
        "1. a\n\n    ```json\n    {}\n    ```\n"
    )
    excused, inner = parse_blocks(text, "a")
    assert (excused.line, excused.excuse, list(excused.list_commands())) == (4, "needs a moon", ["ir3de fit router"])
    assert (inner.language, inner.text, inner.excuse) == ("json", "{}\n", None)


@pytest.mark.parametrize(
    "code",
    [
        "```python\n>>> 1 + 1\n3\n\n```",
        "```python\nassert False\n```",
        "```console\n$ ir3de rout router\n```",
        "```console\n$ echo one | grep two\n```",
        '```console\n$ pip install ".[nonsense]"\n```',
        "```console\n$ pip install ir3de\n```",
        "```console\n$ ir3de bench speed\n```",
    ],
)
def test_what_is_wrong_on_a_page_is_noticed(code: str, tmp_path: Path) -> None:
    (block,) = parse_blocks(code, "a")
    with pytest.raises(AssertionError):
        PageRunner(tmp_path, None).run(block)


def test_generated_pages_are_written_by_scripts_that_run_or_ask_their_source() -> None:
    """Their examples are docstrings, which test_doctests.py runs, and the help of commands."""
    for page in GENERATED:
        assert f"scripts/generate_{page}_docs.py" in (DOCS / f"{page}.md").read_text(encoding="utf-8")
        assert {block.language for block in read_blocks(page)} <= {"pycon", *OUTPUT}


@pytest.mark.parametrize("page", OWN_TESTS)
def test_pages_with_tests_of_their_own_have_them(page: str) -> None:
    assert f"{page}.md" in (ROOT / OWN_TESTS[page]).read_text(encoding="utf-8")
