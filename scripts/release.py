"""Build the three distributions twice, compare the bytes, and try them in clean environments. `make release` runs it.

    python scripts/release.py                   what users install, each extra in an environment of its own
    python scripts/release.py --only base       one of them
    python scripts/release.py --all             also the extras with gigabytes, and all fast tests of the sdist

The files stay in dist/. Nothing is uploaded: .github/workflows/release.yml does that for a tag.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import release_builds as builds
import release_environments as environments
import release_smoke as smoke
from release_builds import ROOT, Distribution, ReleaseError

sys.path.insert(0, str(ROOT / "src"))
from ir3de.files.package import VERSION

PARTS = ("base", "gateway", "lab")  # what is installed without an extra of the library
QUICK_TESTS = (
    "tests/test_surface.py",
    "tests/test_installation.py",
    "tests/routing/test_decision.py",
    "tests/artifact",
)


def main() -> None:
    """Print one line for each thing that was tried, and end with 1 where something is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="EXTRA",
        help="base, gateway, gateway[EXTRA], lab, sdist or an extra",
    )
    parser.add_argument("--all", action="store_true", help="also what takes gigabytes or minutes")
    parser.add_argument("--into", type=Path, default=ROOT / "dist", metavar="FOLDER")
    given = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for row in release(given.into, Path(folder), only=given.only, everything=given.all):
                print(f"{row[0]:<18} {row[1]}", flush=True)
    except ReleaseError as error:
        sys.exit(f"not releasable: {error}")
    print(f"\n{VERSION} can be released from {given.into}")


def release(into: Path, work: Path, *, only: list[str], everything: bool) -> Iterator[tuple[str, str]]:
    """What was tried, and what was found."""
    shutil.rmtree(into, ignore_errors=True)
    built: dict[str, Distribution] = {}
    for name in builds.FOLDERS:
        built[name] = builds.build(name, ROOT, into, builds.read_commit_time_s())
    yield from check_builds(built, work)
    gateway = [f"gateway[{extra}]" if extra else "gateway" for extra in smoke.GATEWAY_FEATURES]
    wanted = only or ["base", *list_extras(built["ir3de"], everything), *gateway, "lab", "sdist"]
    for name in wanted:
        started = time.monotonic()
        found = try_sdist(work, everything) if name == "sdist" else try_environment(name, built, work / f"env-{name}")
        shutil.rmtree(work / f"env-{name}", ignore_errors=True)
        yield name, f"{found}, {time.monotonic() - started:.0f} s"


def check_builds(built: dict[str, Distribution], work: Path) -> Iterator[tuple[str, str]]:
    """Build everything again elsewhere, and the wheels from the sdists too: the same bytes each time."""
    time_s = builds.read_commit_time_s()
    copy, sources = builds.copy_sources(work / "copy"), builds.list_sources()
    for name, first in built.items():
        second = builds.build(name, copy, work / "second", time_s)
        unpacked = builds.unpack(first.sdist, work / "unpacked" / name)
        builds.build_target("wheel", unpacked, work / "third", time_s)
        builds.check_contents(first, sources)
        checked = builds.check_metadata(first, VERSION)
        for path, others in (
            (first.sdist, [second.sdist]),
            (first.wheel, [second.wheel, work / "third" / first.wheel.name]),
        ):
            digests = {builds.compare(path, other) for other in others}
            yield (
                path.name,
                f"{path.stat().st_size / 1e6:.1f} MB, the same {1 + len(others)} times, {digests.pop()[:16]}…",
            )
        yield name, f"metadata by {checked}"
    natives = [
        builds.build_native(root, work / f"native-{number}", time_s)
        for number, root in enumerate((ROOT, copy, builds.unpack(built["ir3de"].sdist, work / "unpacked" / "native")))
    ]
    digests = {builds.compare(natives[0], other) for other in natives[1:]}
    yield natives[0].name, f"with the kernel, the same {len(natives)} times, {digests.pop()[:16]}…"


def list_extras(built: Distribution, everything: bool) -> list[str]:
    """The extras that users install, as the wheel has them."""
    extras = builds.read_metadata(built.wheel).get("Provides-Extra", [])
    left_out = {*smoke.DEVELOPMENT, *(() if everything else smoke.HEAVY)}
    return [extra for extra in extras if extra not in left_out]


def try_environment(name: str, built: dict[str, Distribution], folder: Path) -> str:
    """Install one of the distributions, with one of the extras, and use it."""
    environment = environments.create(folder)
    part, _, extra = name.rstrip("]").partition("[")
    wheels = [built["ir3de"].wheel]
    if part in ("gateway", "lab"):
        wheels.append(built["ir3de-gateway"].wheel)
    if part == "lab":
        wheels.append(built["ir3de-lab"].wheel)
    environments.install(environment, *wheels, extra=extra if part == "gateway" else "" if part in PARTS else part)
    size = environments.measure(environment)
    smoke.try_base(environment, VERSION)
    if part == "base":
        environments.check_base(size)
        smoke.try_hint(environment)
    elif part == "gateway":
        smoke.GATEWAY_FEATURES[extra](environment)
    elif part == "lab":
        smoke.try_laboratory(environment)
    else:
        smoke.FEATURES[part](environment)
    return f"{size.packages} packages, {size.megabytes:.0f} MB, works"


def try_sdist(work: Path, everything: bool) -> str:
    """The tests of the sdist, from the folder it was unpacked into."""
    (unpacked,) = (work / "unpacked" / "ir3de").iterdir()
    return environments.run_tests(unpacked, *(() if everything else QUICK_TESTS))


if __name__ == "__main__":
    main()
