"""Answer the parts of `ir3de bench alternatives` on another machine, side by side.

    PYTHONPATH=src:lab/src python lab/scripts/answer_parts.py "SetFit, MiniLM" answers/

The folder holds the parts that the benchmark wrote, such as `banking77-few.json`; the encoder lies at the path that
they name. The router's packages must be installed for the Python that runs this script. Bring the folder back, and the
benchmark takes these answers as its own, because each names the requests and the code that it depends on. Answers that
are there are not asked for again, so the script can be stopped and started again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from ir3de_lab.benchmarks import alternatives
from ir3de_lab.benchmarks.alternatives import ALTERNATIVES, Alternative, Environment, ask

REGIMES = ("all", "few")  # what the names of parts end with; "few" holds 8 and 6 prompts an expert
ALONE = "use_setfit.py"  # others with an encoder would write one file of vectors all at once


def list_parts(router: Alternative, folder: Path) -> dict[Path, Path]:
    """The parts that this router is asked, each with the file of its answers."""
    found = {}
    for part in sorted(folder.glob("*.json")):
        data, _, regime = part.stem.rpartition("-")
        if regime not in REGIMES or "-" in data:  # answers, or the requests that are timed
            continue
        requests = json.loads(part.read_text(encoding="utf-8"))["requests"]
        if not router.encoder or max(len(one["texts"]) for one in requests) <= alternatives.MOST_ENCODED:
            found[part] = part.with_name(f"{router.key}-{part.name}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [one.name for one in ALTERNATIVES if one.script == ALONE or not (one.encoder or one.extra)]
    parser.add_argument("router", choices=names, help="as it is named in the tables")
    parser.add_argument("answers", type=Path, metavar="FOLDER", help="with the parts; the answers go there too")
    given = parser.parse_args()
    router = next(one for one in ALTERNATIVES if one.name == given.router)
    parts, here, begun = list_parts(router, given.answers), Environment(Path(sys.executable), 0, 0.0, {}), time.time()
    if not parts:
        parser.error(f"{given.answers} has no parts for {router.name}: ir3de bench alternatives --kept writes them")
    with ThreadPoolExecutor(len(parts)) as pool:
        running = {pool.submit(ask, router, here, part, kept): part.stem for part, kept in parts.items()}
        for done in as_completed(running):
            done.result()
            print(f"{running[done]}: answered after {time.time() - begun:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
