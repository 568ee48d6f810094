"""Every example in every docstring runs and prints what it says."""

import doctest
import importlib
import pkgutil

import pytest

import ir3de

MODULES = ["ir3de", *(module.name for module in pkgutil.walk_packages(ir3de.__path__, "ir3de."))]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_examples(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if (error.name or "ir3de").split(".")[0] == "ir3de":
            raise
        pytest.skip(f"{error.name} is not installed")
    assert doctest.testmod(module).failed == 0


def test_there_are_examples() -> None:
    """Or the test above would say nothing."""
    finder = doctest.DocTestFinder()
    with_examples = {
        name
        for name in (
            "ir3de.router",
            "ir3de.statistics.counting",
            "ir3de.statistics.domain",
            "ir3de.corpora",
            "ir3de.scorers.ridge",
        )
        if any(test.examples for test in finder.find(importlib.import_module(name)))
    }
    assert len(with_examples) == 5
    assert len(MODULES) > 20
