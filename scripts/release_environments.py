"""Clean environments: a wheel, what it needs as wheels, and nothing of the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from release_builds import ReleaseError

MAX_BASE_PACKAGES = 24
MAX_BASE_MB = 190
NO_WHEELS = ("langdetect",)  # the laboratory's: its authors publish sources only
OWN_VARIABLES = (
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "PYTHONSTARTUP",
    "IR3DE_CONFIG",
    "IR3DE_DEBUG",
    "IR3DE_KERNEL",
)


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and an empty folder in which its commands run."""

    folder: Path
    work: Path

    def run(self, *command: object, code: int = 0) -> str:
        """Run a program of the environment; its output. Another exit code than `code` is an error."""
        program, *arguments = map(str, command)
        done = subprocess.run(
            [self.find(program), *arguments],
            cwd=self.work,
            env=self.variables(),
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=900,
            check=False,
        )
        if done.returncode != code:
            said = f"{done.stdout[-2_000:]}{done.stderr[-4_000:]}"
            raise ReleaseError(
                f"{program} {' '.join(arguments)[:200]} exits with {done.returncode}, not {code}:\n{said}"
            )
        return done.stdout + (done.stderr if code else "")

    def find(self, program: str) -> str:
        """The path of one of its programs."""
        name, folder = (f"{program}.exe", "Scripts") if os.name == "nt" else (program, "bin")
        return str(self.folder / folder / name)

    def variables(self) -> dict[str, str]:
        """Those of this process, without what would let the checkout shine through."""
        kept = {name: value for name, value in os.environ.items() if name not in OWN_VARIABLES}
        return {**kept, "PYTHONUTF8": "1", "NO_COLOR": "1", "XDG_STATE_HOME": str(self.work / "state")}


@dataclass(frozen=True)
class Size:
    """What `pip list` lists, pip itself included, and what all files of site-packages take."""

    packages: int
    megabytes: float


def create(folder: Path) -> Environment:
    """An empty environment, with pip and nothing else."""
    work = folder / "work"
    venv.create(folder / "venv", with_pip=True, clear=True)
    work.mkdir(parents=True)
    environment = Environment(folder / "venv", work)
    environment.run("python", "-m", "pip", "uninstall", "--quiet", "--yes", "setuptools")  # Python 3.11 brings it along
    return environment


def install(environment: Environment, *wheels: Path, extra: str = "") -> None:
    """Install wheels, the last one with an extra; what they need comes as wheels too."""
    *others, main = wheels
    name = main.name.split("-")[0].replace("_", "-")
    asked = f"{name}[{extra}] @ {main.resolve().as_uri()}" if extra else f"{name} @ {main.resolve().as_uri()}"
    environment.run(
        "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:",
        f"--no-binary={','.join(NO_WHEELS)}", *(path.resolve() for path in others), asked,
    )  # fmt: skip


def measure(environment: Environment) -> Size:
    """Count the packages and megabytes, as a user would with `pip list` and `du --apparent-size`."""
    packages = json.loads(
        environment.run("python", "-m", "pip", "list", "--format=json", "--disable-pip-version-check")
    )
    folder = environment.run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    taken = sum(path.lstat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return Size(len(packages), taken / 1_000_000)


def check_base(size: Size) -> None:
    """Refuse a base install that has grown."""
    if size.packages > MAX_BASE_PACKAGES or size.megabytes > MAX_BASE_MB:
        raise ReleaseError(
            f"the base install has {size.packages} packages and {size.megabytes:.0f} MB, "
            f"more than {MAX_BASE_PACKAGES} and {MAX_BASE_MB}: what has been added?"
        )


def run_tests(unpacked: Path, *chosen: str) -> str:
    """Run the tests of an unpacked sdist, in this environment but with its own sources; the last line they print."""
    sources = os.pathsep.join(str(unpacked / folder) for folder in ("src", "gateway/src", "lab/src"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *chosen],
        cwd=unpacked,
        env={**os.environ, "PYTHONPATH": sources},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ReleaseError(f"tests of the sdist fail:\n{done.stdout[-6_000:]}")
    return done.stdout.strip().splitlines()[-1].strip("= ")
