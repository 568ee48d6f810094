"""Every example in the docstrings of the laboratory runs and prints what it says."""

import doctest
import importlib
import pkgutil

import pytest

import ir3de_lab

# those of others' routers run in environments of their own: test_alternatives
OTHERS = "ir3de_lab.alternatives.use_"
MODULES = [module.name for module in pkgutil.walk_packages(ir3de_lab.__path__, "ir3de_lab.")]
MODULES = [name for name in MODULES if not name.startswith(OTHERS)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    """Without this, the test above could pass because it finds nothing."""
    finder = doctest.DocTestFinder()
    examples = [test.examples for name in MODULES for test in finder.find(importlib.import_module(name))]
    assert sum(map(len, examples)) > 20
