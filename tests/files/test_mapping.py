"""Routers whose numbers are views on files: the same decisions, in memory once."""

import mmap
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import tiny
from ir3de import AllTokens, EntropyTopK, Router
from ir3de.errors import ArtifactError
from saved import PROMPTS, assert_same_router, first_router, part, refusal, second_router

ROUTERS = {
    "average": first_router,
    "entropy": second_router,
    "all": lambda: first_router().with_selector(AllTokens()),
    "outcomes": lambda: Router.fit_outcomes(
        [{"text": text, "scores": {"a": len(text) % 3, "b": 1}} for text in tiny.mixed(20)], embedding=tiny.embedding()
    ),
}


def arrays(router: Router) -> dict[str, np.ndarray]:
    """Every array that routing reads."""
    owners = (router.compiled.table, router.compiled.ballots)
    found = {
        f"{type(owner).__name__} {name}": value
        for owner in owners
        for name in (*(field.name for field in fields(owner)), "entropy", "rank")
        if isinstance(value := getattr(owner, name, None), np.ndarray)
    }
    assert len(found) >= 5
    return found


def is_view_on_file(array: np.ndarray) -> bool:
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, memoryview) and isinstance(base.obj, mmap.mmap)


@pytest.mark.parametrize("kind", ROUTERS)
@pytest.mark.parametrize("serving", [False, True])
def test_a_mapped_router_is_the_router_to_the_last_bit(tmp_path: Path, kind: str, serving: bool) -> None:
    folder = ROUTERS[kind]().save(tmp_path / "router", serving=serving)
    loaded, mapped = Router.load(folder), Router.load(folder, mapped=True)
    assert_same_router(mapped, loaded)
    ours, theirs = arrays(mapped), arrays(loaded)
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        assert array.dtype == theirs[name].dtype and np.array_equal(array, theirs[name])
        assert is_view_on_file(array) and not is_view_on_file(theirs[name])
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    assert mapped.explain(PROMPTS[-1]) == loaded.explain(PROMPTS[-1])


def test_replacing_the_artifact_does_not_disturb_a_mapped_router(tmp_path: Path) -> None:
    first, second = first_router(), second_router()
    folder = first.save(tmp_path / "router")
    mapped = Router.load(folder, mapped=True)
    second.save(folder)
    assert not list(folder.glob("ballots-*"))  # of a table that is gone
    assert_same_router(mapped, first)
    assert_same_router(Router.load(folder, mapped=True), second)
    shutil.rmtree(folder)
    assert_same_router(mapped, first)


def test_the_second_process_writes_nothing_and_a_lost_or_damaged_file_is_written_anew(tmp_path: Path) -> None:
    folder = first_router().save(tmp_path / "router")
    before = tiny.contents(folder)
    expected = Router.load(folder, mapped=True).route_batch(PROMPTS)
    path = part(folder, "ballots")
    inode, content = path.stat().st_ino, path.read_bytes()
    Router.load(folder, mapped=True)
    assert path.stat().st_ino == inode
    for damage in (b"", b"garbage", content[:-8], content[:-8] + b"\1" * 8, content.replace(b'"most"', b'"lost"')):
        path.write_bytes(damage)
        assert Router.load(folder, mapped=True).route_batch(PROMPTS) == expected
        assert path.read_bytes() == content
    path.unlink()
    assert Router.load(folder).route_batch(PROMPTS) == expected  # as artifacts without the file, which all once were
    assert tiny.contents(folder) == before


def test_a_damaged_table_is_found_and_a_missing_one_rebuilt(tmp_path: Path) -> None:
    folder = first_router().save(tmp_path / "router")
    table = part(folder, "table")
    content = table.read_bytes()
    table.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ArtifactError, match=r"damaged.*delete it"):
        Router.load(folder, mapped=True)
    table.unlink()
    assert_same_router(Router.load(folder, mapped=True), first_router())


def test_what_is_derived_may_lie_elsewhere_and_need_not_lie_anywhere(tmp_path: Path) -> None:
    folder = first_router().save(tmp_path / "router")
    before = tiny.contents(folder)
    router = Router.load(folder, mapped=True, derived=tmp_path / "derived")
    assert all(map(is_view_on_file, arrays(router).values()))
    assert tiny.contents(folder) == before and part(tmp_path / "derived", "ballots").is_file()
    (tmp_path / "file").touch()  # where no folder can be made
    unshared = Router.load(folder, mapped=True, derived=tmp_path / "file")
    assert_same_router(unshared, router)
    assert not any(map(is_view_on_file, arrays(unshared).values()))
    assert "no such folder" in refusal(lambda: Router.load(tmp_path / "none", mapped=True))


OVERWRITING = """
import shutil, sys
from pathlib import Path
from ir3de import Router
folder, derived = map(Path, sys.argv[1:])
router = Router.load(folder, mapped=True, derived=derived)
before = router.route_batch(["prove it", "Is this contract void?"])
for path in folder.iterdir():
    content = path.read_bytes()
    path.open("wb").close()  # as `cp` does: the file that is mapped is empty for a while
    assert router.route_batch(["prove it", "Is this contract void?"]) == before
    assert router.with_selector(router.selector).explain("prove it")
    path.write_bytes(content)
print("alive")
"""


def test_the_files_of_a_router_may_be_overwritten_in_place_where_a_copy_is_mapped(tmp_path: Path) -> None:
    folder = first_router().save(tmp_path / "router")
    command, environment = tiny.python_command(OVERWRITING, folder, tmp_path / "derived")
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


def test_a_copy_of_the_table_is_checked_made_once_and_dropped_with_its_router(tmp_path: Path) -> None:
    folder, derived = first_router().save(tmp_path / "router"), tmp_path / "derived"
    Router.load(folder, mapped=True, derived=derived)
    copy = part(derived, "table")
    inode, content = copy.stat().st_ino, copy.read_bytes()
    assert content == part(folder, "table").read_bytes() and copy.stat().st_ino != part(folder, "table").stat().st_ino
    Router.load(folder, mapped=True, derived=derived)
    assert copy.stat().st_ino == inode
    copy.write_bytes(content[:-8])
    assert_same_router(Router.load(folder, mapped=True, derived=derived), first_router())
    assert copy.read_bytes() == content
    copy.unlink()
    part(folder, "table").write_bytes(content[:-8])
    assert "damaged" in refusal(lambda: Router.load(folder, mapped=True, derived=derived))
    assert not list(derived.glob("*table-*"))
    (derived / ".table-0123456789abcdef.safetensors.abc.part").touch()  # a process was killed here
    Router.load(second_router().save(folder), mapped=True, derived=derived)
    assert not list(derived.glob("*.part"))
    assert [len(list(derived.glob(f"{kind}-*"))) for kind in ("table", "ballots")] == [1, 1]


def test_another_selector_and_policy_on_a_mapped_router(tmp_path: Path) -> None:
    folder = first_router().save(tmp_path / "router")
    mapped, plain = Router.load(folder, mapped=True), Router.load(folder)
    assert_same_router(mapped.with_selector(EntropyTopK(3)), plain.with_selector(EntropyTopK(3)))
    assert mapped.with_policy(mapped.policy).compiled.ballots is mapped.compiled.ballots


SHARING = """
import sys
from pathlib import Path
from ir3de import Router
router = Router.load(sys.argv[1], mapped=True)
router.route("prove it")
print("ready", flush=True)
sys.stdin.readline()
found = []
for line in Path("/proc/self/smaps").read_text().splitlines():
    if line[0] in "0123456789abcdef" and "-" in line.split()[0]:
        ours = line.endswith(".safetensors")
    elif ours and line.startswith(("Rss:", "Anonymous:")):
        found.append(int(line.split()[1]))
print(sum(found[::2]), sum(found[1::2]), len(found) // 2, flush=True)
"""


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="says what is shared where Linux does")
def test_two_processes_have_the_numbers_in_memory_once(tmp_path: Path) -> None:
    folder = first_router().save(tmp_path / "router")
    command, environment = tiny.python_command(SHARING, folder)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    processes = [subprocess.Popen(command, **pipes) for _ in range(2)]
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            read, copied, mappings = map(int, process.communicate("go\n")[0].split())
            # Linux calls a page "private" also where the other process has not read it yet; a copy of it is "anonymous"
            assert read > 0 and copied == 0 and mappings >= 2  # the table and the ballots
    finally:
        for process in processes:
            process.communicate()


def test_routers_of_one_process_share_a_tokenizer_that_is_the_same(tmp_path: Path) -> None:
    one = Router.load(first_router().save(tmp_path / "one"))
    two = Router.load(second_router().save(tmp_path / "two"), mapped=True)
    assert one.tokenizer is two.tokenizer
    (definition,) = (tmp_path / "one").glob("tokenizer-*.json.gz")
    definition.write_bytes(b"garbage")
    assert "damaged" in refusal(Router.load, tmp_path / "one")  # also while a good one is at hand
