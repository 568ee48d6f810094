"""The whole programme within its minutes: fuzzers first, two at a time, then one fault after the other."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ir3de_lab.benchmarks.gateway.processes import require_extra
from ir3de_lab.benchmarks.trust import parsers
from ir3de_lab.benchmarks.trust.crossing import running as crossing
from ir3de_lab.benchmarks.trust.doors import MAKERS, fuzz_door
from ir3de_lab.benchmarks.trust.doors import NAMES as DOORS
from ir3de_lab.benchmarks.trust.faults import FAULTS
from ir3de_lab.benchmarks.trust.kills import KILLS
from ir3de_lab.benchmarks.trust.traffic import Fault

FUZZING_SHARE = 0.5  # of the minutes
DOOR_WEIGHT = 3  # a door gets as much time as so many parsers of files
AT_ONCE = 2
LONG_MINUTES = 10.0  # from which on every write and every file has its turn
Progress = Callable[[str], None]


def all_names() -> tuple[str, ...]:
    """Everything that the programme has."""
    return (*DOORS, crossing.NAME, *parsers.names(), *FAULTS, *KILLS)


def run_programme(
    minutes: float, seed: int, keep: Path | None, only: Sequence[str] = (), progress: Progress = lambda _: None
) -> dict[str, Any]:
    """The campaigns and faults, as they are kept."""
    require_extra()
    chosen = [name for name in all_names() if not only or name in only]
    campaigns = list(_fuzz(chosen, minutes, seed, keep, progress))
    rounds = 1 if minutes < LONG_MINUTES else max(2, round(minutes / 15))
    faults = []
    for name in chosen:
        if name in FAULTS or name in KILLS:
            progress(name)
            faults.append(inject(name, rounds).to_dict())
    return {"seed": seed, "minutes": minutes, "campaigns": campaigns, "faults": faults}


def inject(name: str, rounds: int) -> Fault:
    """Inject one kind of fault or kill, in a folder of its own."""
    fault = Fault(name)
    with tempfile.TemporaryDirectory() as place:
        try:
            {**FAULTS, **KILLS}[name](fault, Path(place), rounds)
        except Exception as error:  # a scenario that cannot go on is a finding, not the end of the programme
            fault.problems.append(f"{type(error).__name__}: {error}"[:500])
    return fault


def _fuzz(
    chosen: Sequence[str], minutes: float, seed: int, keep: Path | None, progress: Progress
) -> Iterator[dict[str, Any]]:
    names = [name for name in chosen if name not in FAULTS and name not in KILLS]
    weights = {name: DOOR_WEIGHT if name in (*DOORS, crossing.NAME) else 1 for name in names}
    total = FUZZING_SHARE * minutes * 60 * AT_ONCE / max(1, sum(weights.values()))

    def one(name: str) -> dict[str, Any]:
        progress(name)
        seconds = weights[name] * total
        if name == crossing.NAME:
            return asdict(crossing.cross(seed, seconds))
        if name in DOORS:
            found = asdict(fuzz_door(name, seed, seconds))
            for finding in found["findings"]:
                _keep_request(name, seed, finding, keep)
            return found
        return {"name": name, "seed": seed, **_fuzz_files(name, seed, seconds, keep)}

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(one, names)


def _fuzz_files(name: str, seed: int, seconds: float, keep: Path | None) -> dict[str, Any]:
    module = ["-P", "-m", "ir3de_lab.benchmarks.trust.parsers"]
    options = [f"--parser={name}", f"--seed={seed}", f"--seconds={seconds}", *([f"--keep={keep}"] if keep else [])]
    ended = subprocess.run([sys.executable, *module, *options], capture_output=True, text=True, check=False)
    if ended.returncode == 0:
        return dict(json.loads(ended.stdout))
    what = f"the process of the parser ended with exit code {ended.returncode}: {ended.stderr[-500:]}"
    return {"inputs": 0, "accepted": 0, "refused": 0, "findings": [{"number": -1, "what": what}]}


def _keep_request(name: str, seed: int, finding: dict[str, Any], keep: Path | None) -> None:
    if keep is not None and finding["number"] >= 0:
        keep.mkdir(parents=True, exist_ok=True)
        path = keep / f"{name.replace(' ', '-')}-{seed}-{finding['number']}.bin"
        path.write_bytes(MAKERS[name](seed, finding["number"]))
        finding["kept"] = str(path)
