"""What is loaded, and when: `import ir3de` costs nothing, and serving needs no more than it must."""

import ast
import json
import subprocess
from pathlib import Path

import pytest

import ir3de
import tiny
from ir3de import Embedding, Router
from ir3de.engines import collect_files
from ir3de.engines.pool import Pool
from surface import check_no_circles

HEAVY = ("numpy", "torch", "tokenizers", "tokie", "safetensors", "rich", "click", "huggingface_hub", "ir3de.router")
SERVERS = ("torch", "tokenizers", "transformers", "huggingface_hub", "click", "rich", "pyarrow", "gguf", "scipy")
NETWORK = (
    "requests",
    "httpx",
    "httpx2",
    "aiohttp",
    "urllib3",
    "fastapi",
    "starlette",
    "uvicorn",
    "flask",
    "http.server",
)

NO_NETWORK = """
import socket

def refuse(*arguments, **options):
    raise AssertionError("the network was used")

socket.socket = socket.create_connection = socket.getaddrinfo = refuse
"""


def run(script: str, *arguments: object) -> object:
    """What the script prints, as JSON, from a Python of its own."""
    command, environment = tiny.python_command(script, *arguments)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_importing_loads_nothing() -> None:
    loaded = run("import sys, json, ir3de; dir(ir3de); print(json.dumps(sorted(sys.modules)))")
    assert "ir3de" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_importing_changes_nothing() -> None:
    script = """
import json, os, signal, sys, threading, warnings, logging
import numpy  # which adds filters of its own

def state():
    return [dict(os.environ), sys.argv, threading.active_count(), len(warnings.filters),
            len(logging.getLogger().handlers), str(signal.getsignal(signal.SIGINT))]
before = state()
import ir3de
ir3de.Router, ir3de.collect
print(json.dumps(before == state()))
"""
    assert run(script) is True


@pytest.fixture(scope="module")
def serving_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    router = Router.fit({"maths": ["Solve x + 3 = 10.", "What is 12 times 7?"], "law": ["Is this contract void?"]})
    return router.save(tmp_path_factory.mktemp("serving") / "router", serving=True)


def test_serving_loads_neither_torch_nor_the_reference_engine_nor_a_network(serving_copy: Path) -> None:
    if not Embedding.default().tokenizer.engine.startswith("tokie"):
        pytest.skip("the fast engine is not in use")
    script = f"""{NO_NETWORK}
import json, sys
import ir3de
router = ir3de.Router.load(sys.argv[1])
texts = ["Solve 3x = 12.", "", "naïve 字 🙂", "Is it void?"]
experts = [router.route(text).expert for text in texts]
assert experts == [decision.expert for decision in router.route_batch(texts)]
print(json.dumps([experts, sorted(sys.modules)]))
"""
    experts, loaded = run(script, serving_copy)
    router = Router.load(serving_copy)
    assert experts == [router.route(text).expert for text in ("Solve 3x = 12.", "", "naïve 字 🙂", "Is it void?")]
    assert [name for name in (*SERVERS, *NETWORK) if name in loaded] == []


def test_fitting_uses_no_network_and_no_torch() -> None:
    script = f"""{NO_NETWORK}
import json, sys
import ir3de
router = ir3de.Router.fit({{"a": ["prove it"], "b": ["boil it"]}})
router.explain("prove it")
print(json.dumps(["torch" in sys.modules, router.route("prove it").expert]))
"""
    assert run(script) == [False, "a"]


def test_the_public_names_are_few_and_all_there() -> None:
    assert len(ir3de.__all__) <= 13
    assert ir3de.__all__ == sorted(ir3de.__all__)
    for name in ir3de.__all__:
        assert getattr(ir3de, name).__name__ == name
        assert getattr(ir3de, name).__doc__
    assert sorted(dir(ir3de)) == sorted([*ir3de.__all__, "__version__"])
    with pytest.raises(AttributeError, match="no attribute 'Roter'"):
        ir3de.Roter  # noqa: B018 - asking is the test


def test_no_modules_import_each_other() -> None:
    check_no_circles(Path(ir3de.__file__).parent)


def test_child_processes_never_import_from_the_current_folder() -> None:
    """Every command that starts this Python asks for an isolated module path, by -P or -I."""
    unsafe = []
    for path in Path(ir3de.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.List | ast.Tuple) and node.elts and ast.unparse(node.elts[0]) == "sys.executable":
                second = ast.unparse(node.elts[1])
                if second not in ("'-P'", "'-I'", "*arguments", "*module('load')"):  # those two begin with -P
                    unsafe.append(f"{path}:{node.lineno}: {second}")
    assert unsafe == []


def test_a_pool_of_processes_imports_nothing_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, texts = tmp_path / "it-ran", tmp_path / "texts.txt"
    for name in ("json.py", "numpy.py", "pickle.py", "sitecustomize.py"):
        (tmp_path / name).write_text(f"open({str(trace)!r}, 'w').close()\n")
    texts.write_text("Is this contract void?\nCan my landlord evict me?\n")
    monkeypatch.chdir(tmp_path)
    counted = collect_files(texts, embedding=tiny.embedding(), engine=Pool(2), shard_bytes=10)
    assert counted.statistics.prompts == 2 and not trace.exists()
