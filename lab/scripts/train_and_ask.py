"""Train the experts of a setting with several seeds and ask them, side by side on one accelerator.

    python lab/scripts/train_and_ask.py reasoning-1b --seeds 3 --data suites/ --experts experts/
    python lab/scripts/train_and_ask.py reasoning-1b --seeds 3 --data suites/ --experts experts/ --encoders results/

Every expert is trained by one command, and every model asked by another; as many run at once as the accelerator's
memory holds. Each command keeps what it made, so the script can be stopped and started again: it goes on where it
stopped, and an expert whose answers are there is not trained again. The base model is unpacked once, for all seeds.
What a command prints is in experts/logs/. With --encoders, the routers on an encoder choose meanwhile. Answers are
judged afterwards, by `ir3de bench outcomes`, which needs no accelerator.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ir3de.errors import IR3DEError
from ir3de_lab.experiments import held_out, settings
from ir3de_lab.experiments.answers import ANSWERS, HELD_OUT, answers_file, columns
from ir3de_lab.experiments.experts.training import BASE, base_of, finished
from ir3de_lab.experiments.settings import Setting

TRAINING_GB, ASKING_GB, ROUTING_GB = 40, 60, 8  # of the accelerator's memory that a command takes; answers need most
POLL_S = 0.5
# the command line without its entry point, so that nothing has to be installed
CALL = "from ir3de.cli import cli; from ir3de_lab.cli import bench; cli.add_command(bench); cli(prog_name='ir3de')"


@dataclass(frozen=True)
class Job:
    """One command, the memory that it takes, and the jobs that must have ended before it."""

    name: str
    arguments: tuple[str, ...]
    memory_gb: int
    after: tuple[str, ...] = ()


def list_jobs(names: Sequence[str], data: Path, experts: Path, encoders: Path | None = None) -> Iterator[Job]:
    """What is left to do: seed by seed the trainings, then the questions to each model."""
    if encoders is not None:
        where = ("--data", str(data), "--results", str(encoders), "--only", "encoders", "--ahead", "--resume")
        yield Job("encoders", ("bench", "run", "--setting", names[0], *where, "--precision", "bfloat16"), ROUTING_GB)
    for name in names:
        setting = settings.load(name)
        folder = experts / setting.name
        given = ("--setting", name, "--data", str(data), "--experts", str(folder))
        asked = [column for column in columns(setting) if not _is_answered(setting, folder, column)]
        trained = [domain for domain in setting.domains if domain in asked and not finished(folder / domain, setting)]
        for domain in trained:
            yield Job(f"{setting.name}-train-{domain}", ("bench", "train", *given, "--domain", domain), TRAINING_GB)
        for column in asked:
            after = (f"{setting.name}-train-{column}",) if column in trained else ()
            question = ("bench", "outcomes", *given, "--no-judge", "--column", column)
            yield Job(f"{setting.name}-ask-{column}", question, ASKING_GB, after)


def share_base(names: Sequence[str], experts: Path) -> None:
    """Unpack the base model for the first seed, and let the others read it there."""
    setting = settings.load(names[0])
    first = base_of(setting, experts / setting.name, device="cpu")  # this process holds no memory of the accelerator
    for name in names[1:]:  # seeds have the names of their folders
        (experts / name).mkdir(parents=True, exist_ok=True)
        if not (experts / name / BASE).exists():
            (experts / name / BASE).symlink_to(first.resolve(), target_is_directory=True)


def run(jobs: Sequence[Job], logs: Path, memory_gb: int) -> list[str]:
    """Run the jobs, as many at once as fit; the names of those that failed."""
    logs.mkdir(parents=True, exist_ok=True)
    waiting, ended, failed, begin = list(jobs), set[str](), list[str](), time.monotonic()
    running: dict[Job, subprocess.Popen[bytes]] = {}
    while waiting or running:
        for job in [job for job, process in running.items() if process.poll() is not None]:
            code = running.pop(job).returncode
            ended.add(job.name)
            failed += [job.name] if code else []
            told = "failed, see its log" if code else "done"
            print(f"{time.monotonic() - begin:7.0f} s  {job.name}: {told}", flush=True)
        lost = [job for job in waiting if set(job.after) & set(failed)]
        waiting, failed = [job for job in waiting if job not in lost], [*failed, *(job.name for job in lost)]
        for job in list(waiting):
            used = sum(one.memory_gb for one in running)
            if set(job.after) <= ended and (not running or used + job.memory_gb <= memory_gb):
                waiting.remove(job)
                with (logs / f"{job.name}.log").open("wb") as log:
                    process = subprocess.Popen(
                        [sys.executable, "-c", CALL, *job.arguments], stdout=log, stderr=subprocess.STDOUT
                    )
                running[job] = process
        time.sleep(POLL_S)
    return failed


def _is_answered(setting: Setting, folder: Path, column: str) -> bool:
    places = (ANSWERS, HELD_OUT) if column in held_out.candidates(setting) else (ANSWERS,)
    return all(answers_file(folder, column, place).is_file() for place in places)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting")
    parser.add_argument("--seeds", type=int, default=1, help="of the experts [default: 1]")
    parser.add_argument("--data", type=Path, default=os.environ.get("IR3DE_DATA"), help="folder of suites")
    parser.add_argument("--experts", type=Path, default=Path("experts"), help="each seed has its own folder in it")
    parser.add_argument("--encoders", type=Path, metavar="RESULTS", help="where routers on an encoder keep choices")
    parser.add_argument("--memory", type=int, default=132, metavar="GB", help="of the accelerator [default: 132]")
    given = parser.parse_args()
    if given.data is None:
        parser.error("name a folder of suites with --data, or in IR3DE_DATA")
    names = [given.setting, *(f"{given.setting}-seed-{seed}" for seed in range(1, given.seeds))]
    try:
        share_base(names, given.experts)
        jobs = list(list_jobs(names, given.data, given.experts, given.encoders))
    except IR3DEError as error:
        parser.error(str(error))
    failed = run(jobs, given.experts / "logs", given.memory)
    print(f"{len(jobs) - len(failed)} of {len(jobs)} jobs done")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
