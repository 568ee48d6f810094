"""Every command of the experiments, in order: listed with the time it took, or run with `--run`.

    python scripts/reproduce.py                       list them
    python scripts/reproduce.py --run --from run      run them, from that step on
    python scripts/reproduce.py --run --only tables   run one kind

IR3DE_DATA names the folder of suites. Steps that train or ask models need torch and want a GPU; what they make is in
results/ already, so that everything from `run` on can be done without them. Times are kept in results/reproduce.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TIMES = ROOT / "results" / "reproduce.json"
TRAINED, SETTINGS = ("clm", "clm-large", "reasoning"), ("clm", "clm-large", "reasoning", "routerdc7")
STEPS = [
    *(("train", f"ir3de bench train --setting {name} --experts experts/{name}") for name in TRAINED),
    *(("ask", f"ir3de bench outcomes --setting {name} --experts experts/{name} --no-judge") for name in TRAINED),
    *(("outcomes", f"ir3de bench outcomes --setting {name} --experts experts/{name}") for name in TRAINED),
    ("outcomes", "ir3de bench outcomes --setting routerdc7"),
    *(("encoders", f"ir3de bench run --setting {name} --only encoders") for name in SETTINGS),
    *(("run", f"ir3de bench run --setting {name} --only paper --only ours --only words") for name in SETTINGS),
    *(("curves", f"ir3de bench run --setting {name} --only curves") for name in TRAINED),
    *(("dynamic", f"ir3de bench dynamic --setting {name}") for name in TRAINED),
    *(("decentralised", f"ir3de bench decentralised --setting {name}") for name in TRAINED),
    ("tables", "ir3de bench tables"),
    ("figures", "ir3de bench figures --output docs/images/experiments"),
    ("page", "python scripts/generate_results_readme.py"),
]
KINDS = tuple(dict.fromkeys(kind for kind, _ in STEPS))
ON_GPU = ("train", "ask", "encoders")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="store_true", help="run the commands, and keep their times")
    parser.add_argument("--from", dest="first", choices=KINDS, default=KINDS[0], help="begin with this kind of step")
    parser.add_argument("--only", choices=KINDS, help="this kind of step alone")
    options = parser.parse_args()
    times: dict[str, Any] = json.loads(TIMES.read_text(encoding="utf-8")) if TIMES.is_file() else {}
    for kind, command in STEPS:
        if KINDS.index(kind) < KINDS.index(options.first) or options.only not in (None, kind):
            continue
        if options.run:
            times[command] = _run(command)
            TIMES.write_text(json.dumps(times, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{_seen(times.get(command)):>9}  {kind:14} {command}")
    if not options.run:
        print(f"\nSeconds as kept in {TIMES.relative_to(ROOT)}; steps of the kinds {', '.join(ON_GPU)} want a GPU.")


def _run(command: str) -> dict[str, Any]:
    from ir3de_lab.benchmarks.rivals import surroundings

    begin = time.perf_counter()
    program, *arguments = command.split()
    this = [sys.executable, *(["-m", program] if program == "ir3de" else []), *arguments]
    subprocess.run(this, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    found = surroundings()
    return {
        "seconds": round(time.perf_counter() - begin, 1),
        "most_memory_mb": _most_memory(),
        "processor": found["processor"],
        "cores": found["cores"],
        "accelerator": found["accelerator"],
        "date": found["date"],
    }


def _most_memory() -> int:
    """The megabytes of the largest command so far: each is a process of its own, and the kernel keeps the greatest."""
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit // 1_000_000


def _seen(record: dict[str, Any] | None) -> str:
    return "–" if record is None else f"{record['seconds']:,.0f} s"


if __name__ == "__main__":
    main()
