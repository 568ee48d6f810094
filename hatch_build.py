"""What depends on the machine that builds the package: its dependencies, and the native kernel.

`tokie`, the fast tokenizer, has wheels for Linux with glibc, for macOS, and for Windows on x86-64. Environment markers
leave out every other system but one: they cannot name the C library, so a machine with musl (Alpine) is found here.
Without `tokie` everything works with the reference tokenizer, which gives the same ids and takes longer.

The kernel is the C files in src/ir3de/kernel, which use the part of Python's API that no version changes: one wheel for
a platform serves Python 3.11 and every later one. Without a compiler the build goes on, and numpy does its work.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

PURE = "IR3DE_PURE"  # set to 1: build without the kernel
# The flags of the environment are not used: with -march=native the wheel would crash elsewhere, and with -ffast-math it
# would give other bits. A multiplication and an addition stay two operations on every processor.
FLAGS = ["-O3", "-std=c99", "-ffp-contract=off", "-fno-fast-math", "-fPIC", "-fvisibility=hidden", "-g0", "-Wall"]
LINKING = {"darwin": ["-bundle", "-undefined", "dynamic_lookup"]}  # elsewhere: a stripped shared library


def has_wheels() -> bool:
    """Whether this machine can have wheels of tokie, as far as markers cannot tell."""
    return sys.platform != "linux" or platform.libc_ver()[0] == "glibc"


class Dependencies(MetadataHookInterface):
    """Adds the fast tokenizer to the dependencies."""

    def update(self, metadata: dict[str, Any]) -> None:
        fast = [self.config["fast-tokenizer"]] if has_wheels() else []
        metadata["dependencies"] = [*self.config["dependencies"], *fast]


class Kernel(BuildHookInterface):
    """Compiles the native kernel into the wheel, or beside its sources where the install is editable."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root, "src", "ir3de", "kernel")
        name = "_native.pyd" if sys.platform == "win32" else "_native.abi3.so"
        target = folder / name
        if version != "editable":
            self._folder = Path(tempfile.mkdtemp())
            target = self._folder / name
        target.unlink(missing_ok=True)  # an older one
        try:
            compile_kernel(folder, target)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self.app.display_warning(f"ir3de is built without its native kernel, so numpy computes: {describe(error)}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{find_platform()}"
        if version != "editable":
            build_data["force_include"][str(target)] = f"ir3de/kernel/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_folder"):
            shutil.rmtree(self._folder, ignore_errors=True)


def compile_kernel(folder: Path, target: Path) -> None:
    """Compile the C files of a folder; an error if that is not possible here."""
    if os.environ.get(PURE, "0") not in ("", "0"):
        raise ValueError(f"{PURE} is set")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise ValueError("Python without its lock has no stable API yet")
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").is_file():
        raise ValueError(f"there is no Python.h in {include}")
    sources = sorted(path.name for path in folder.glob("*.c"))
    if sys.platform == "win32":
        compile_on_windows(folder, sources, include, target)
        return
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        compiler = ["cc"]
    linking = LINKING.get(sys.platform, ["-shared", "-s", "-Wl,--build-id=none"])
    architectures = shlex.split(os.environ.get("ARCHFLAGS", "")) if sys.platform == "darwin" else []
    command = [*compiler, *FLAGS, *architectures, *linking, f"-I{include}", *sources, "-o", str(target), "-lm"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)


def compile_on_windows(folder: Path, sources: list[str], include: str, target: Path) -> None:
    """The same with the compiler that setuptools finds."""
    try:
        from setuptools._distutils.ccompiler import new_compiler
    except ImportError as error:
        raise ValueError("setuptools, which finds the compiler, is not installed") from error
    libraries = str(Path(sys.base_prefix, "libs"))  # with python3.lib, the stable part
    with tempfile.TemporaryDirectory() as work:
        compiler = new_compiler()
        try:
            paths = [str(folder / source) for source in sources]
            options = ["/O2", "/fp:precise", "/std:c11"]
            objects = compiler.compile(paths, output_dir=work, include_dirs=[include], extra_postargs=options)
            exported = ["PyInit__native"]
            compiler.link_shared_object(objects, str(target), library_dirs=[libraries], export_symbols=exported)
        except Exception as error:  # its errors are classes of its own
            raise ValueError(str(error)) from error


def find_platform() -> str:
    """The platform in a wheel's name; a universal binary of macOS where ARCHFLAGS names both processors."""
    found = os.environ.get("_PYTHON_HOST_PLATFORM") or sysconfig.get_platform()
    return found.replace("-", "_").replace(".", "_")


def describe(error: Exception) -> str:
    """One line of what a failed compilation printed."""
    said = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
    lines = [line for line in said.splitlines() if "error" in line.lower()] or said.splitlines()
    return lines[0].strip() if lines else type(error).__name__
