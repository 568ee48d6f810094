"""Judges generated answers on a CPU: final numbers (GSM8K), programs (HumanEval), instructions (IFEval), labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ir3de.errors import InputError
from ir3de_lab.experiments.judging import instructions, labels, numbers, programs, sandbox
from ir3de_lab.experiments.judging.verdict import Verdict

__all__ = ["TASKS", "Verdict", "judge", "judge_all"]

TASKS: Mapping[str, Callable[[Mapping[str, Any], str], Verdict]] = {
    "gsm8k": numbers.judge,
    "humaneval": programs.judge,
    "ifeval": instructions.judge,
    "label": labels.judge,
}


def judge(task: str, row: Mapping[str, Any], answer: str) -> Verdict:
    """Judge one answer to a test row.

    >>> judge("gsm8k", {"answer": "1,250"}, "So she pays $1250.00.")
    Verdict(points=1.0, of=1.0)
    """
    if task not in TASKS:
        raise InputError(f"there is no judge of the task {task!r}; known are {', '.join(TASKS)}")
    return TASKS[task](row, answer)


def judge_all(
    task: str,
    rows: Sequence[Mapping[str, Any]],
    answers: Sequence[str],
    *,
    workers: int = 2,
    progress: Callable[[int], None] | None = None,
) -> list[Verdict]:
    """Judge an answer to each row, programs in `workers` processes at a time; `progress` is told how many are done."""
    if len(rows) != len(answers):
        raise InputError(f"{len(rows)} rows need as many answers, but {len(answers)} were given")
    if workers < 1:
        raise InputError(f"workers must be 1 or more, but was {workers}")
    if task == "humaneval" and rows:
        sandbox.check()
    verdicts = []
    # threads are enough: a program is a process of its own, and a thread waits for it
    with ThreadPoolExecutor(workers if task == "humaneval" else 1) as pool:
        for verdict in pool.map(lambda row, answer: judge(task, row, answer), rows, answers):
            verdicts.append(verdict)
            if progress is not None:
                progress(len(verdicts))
    return verdicts
