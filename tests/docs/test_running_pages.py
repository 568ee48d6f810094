"""Guides run from top to bottom, as a reader would run them. test_running_pages_of_serving.py has the other pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_runner import list_page_parameters, run_page


@pytest.mark.slow
@pytest.mark.parametrize("page", list(list_page_parameters(serving=False)))
def test_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page, tmp_path)
