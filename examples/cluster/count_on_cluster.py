"""Count a domain's files on an existing Ray cluster, and save the statistics: see README.md."""

import sys
from pathlib import Path

import ir3de
from ir3de.engines import RayEngine, collect_files

address, target, *files = sys.argv[1:]
# Ray sends this machine's IR3DE to every node. Its dependencies must be there, or be named in "pip" as well.
engine = RayEngine(address, runtime_env={"py_modules": [str(Path(ir3de.__file__).parent)]})

collected = collect_files(files, engine=engine, checkpoint=f"{target}.progress", skip_bad=100)
ir3de.Contribution.of(collected.statistics).save(target)
collected.discard_checkpoints()  # the result is safe
print(f"{collected.statistics}: {collected.records:,} records, {collected.skipped:,} of them skipped")
