"""Make small wrong changes to a module, one at a time, and print those that no test notices.

    python lab/scripts/mutate.py scorers/ridge.py
    python lab/scripts/mutate.py gateway/experts/http1.py --tests gateway/tests/test_connections.py --most 30

Each change is made in a copy of the package. The tests of the module's room run on the copy and stop at the first
failure. A change that survives marks code that the tests do not hold to anything.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).parents[2]
MOST_SECONDS = 600  # for the tests of the unchanged package
PACKAGE = ROOT / "src" / "ir3de"
SWAPS: dict[Any, Any] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
}  # fmt: skip


def find_mutants(tree: ast.Module) -> Iterator[tuple[int, str, ast.Module]]:
    """Yield the line, a description and the changed tree of every change that can be made."""
    for place, node in enumerate(ast.walk(tree)):
        for what in _changes(node):
            changed = copy.deepcopy(tree)
            target = next(found for number, found in enumerate(ast.walk(changed)) if number == place)
            before = ast.unparse(target)
            _apply(target, what)
            yield getattr(node, "lineno", 0), f"{before}  ->  {ast.unparse(target)}", changed


def _changes(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield "compare"
    elif isinstance(node, ast.BoolOp | ast.BinOp) and type(node.op) in SWAPS:
        yield "operator"
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield "number"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "boolean"
    elif isinstance(node, ast.If | ast.IfExp):
        yield "condition"
    elif isinstance(node, ast.Return) and node.value is not None:
        yield "return"


def _apply(node: ast.AST, what: str) -> None:
    if isinstance(node, ast.Compare):
        node.ops[0] = SWAPS[type(node.ops[0])]()
    elif isinstance(node, ast.BoolOp | ast.BinOp):
        node.op = SWAPS[type(node.op)]()
    elif isinstance(node, ast.Constant):
        node.value = not node.value if what == "boolean" else node.value + 1  # type: ignore[operator]
    elif isinstance(node, ast.If | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Return):
        node.value = ast.Constant(None)


def is_noticed(tests: list[str], source: Path, seconds: float) -> bool:
    """Run the tests on a copy of the package; a hang counts as noticed."""
    command = [sys.executable, "-m", "pytest", "-n0", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", help="a file of src/ir3de, such as scorers/ridge.py")
    parser.add_argument("--tests", nargs="*", help="what pytest runs; by default the tests of the module's room")
    parser.add_argument("--most", type=int, default=40, help="changes to try, drawn at random")
    given = parser.parse_args()
    room = Path(given.module).parts[0].removesuffix(".py")
    tests = given.tests or [str(ROOT / "tests" / room)]
    tree = ast.parse((PACKAGE / given.module).read_text(encoding="utf-8"))
    mutants = list(find_mutants(tree))
    drawn = sorted(random.Random(0).sample(mutants, min(given.most, len(mutants))), key=lambda mutant: mutant[0])
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(PACKAGE, Path(folder, "ir3de"), ignore=shutil.ignore_patterns("__pycache__"))
        target = Path(folder, "ir3de", given.module)
        begin = perf_counter()
        if is_noticed(tests, Path(folder), MOST_SECONDS):
            print(
                "the tests fail, or take too long, on the unchanged package: mend them, or name fewer with --tests",
                file=sys.stderr,
            )
            return 2
        survivors, seconds = 0, 30 + 3 * (perf_counter() - begin)
        for number, (line, change, changed) in enumerate(drawn, start=1):
            target.write_text(ast.unparse(ast.fix_missing_locations(changed)), encoding="utf-8")
            if not is_noticed(tests, Path(folder), seconds):
                survivors += 1
                print(f"survived  src/ir3de/{given.module}:{line}  {' '.join(change.split())[:160]}", flush=True)
            print(f"{number}/{len(drawn)}", end="\r", file=sys.stderr, flush=True)
    print(f"{survivors} of {len(drawn)} changes survived ({len(mutants)} are possible)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
