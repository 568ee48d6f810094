"""`ir3de.gateway`, the gateway's old name: hook files that import from it still work, and learn the new import."""

import runpy
import sys
from pathlib import Path

import pytest

HOOK = """
from ir3de.gateway import HookVerdict

def before_request(request):
    return HookVerdict(refuse="no")
"""


@pytest.fixture
def hook_file(tmp_path: Path) -> str:
    path = tmp_path / "hooks.py"
    path.write_text(HOOK, "utf-8")
    return str(path)


def test_an_old_hook_file_works_and_its_warning_names_the_new_import(hook_file: str) -> None:
    new = pytest.importorskip("ir3de_gateway")
    with pytest.warns(DeprecationWarning, match=r"write `from ir3de_gateway import HookVerdict`") as warned:
        found = runpy.run_path(hook_file)
    assert found["HookVerdict"] is new.HookVerdict
    assert [one.filename for one in warned] == [hook_file]  # it points to the line to change


def test_a_name_that_the_gateway_lacks_is_not_found_without_a_warning() -> None:
    pytest.importorskip("ir3de_gateway")
    with pytest.raises(ImportError, match="HookVerdikt"):
        from ir3de.gateway import HookVerdikt  # noqa: F401


def test_without_the_gateway_one_line_names_the_command_that_installs_it(
    hook_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ir3de_gateway", None)  # importing it raises ModuleNotFoundError
    with pytest.raises(ImportError, match=r"the gateway is not installed: pip install -e '.*gateway'") as raised:
        runpy.run_path(hook_file)
    assert "\n" not in str(raised.value)
