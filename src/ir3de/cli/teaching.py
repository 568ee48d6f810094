"""--teacher: what labels the texts of --unlabelled, what that will cost, and what it brought."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

import ir3de
from ir3de.cli import lib
from ir3de.cli.counting import check_sources
from ir3de.cli.domains import read_prompts
from ir3de.cli.formats import FAINT, line
from ir3de.cli.options import TextOptions, gather_options
from ir3de.cli.output import Block, Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ir3de.fitting.teaching_report import Teaching


@dataclass(frozen=True)
class GivenTeacher:
    """The teacher as it is named on the command line; true if there is one."""

    unlabelled: tuple[str, ...]
    teacher: str | None
    answers: Path | None
    yes: bool

    def __bool__(self) -> bool:
        return self.teacher is not None

    def prepare(self, router_path: Path, texts: TextOptions, out: Output) -> lib.lessons.Lesson | None:
        """What the teacher is to label. Rejects what is wrong before anything is read."""
        if self.teacher is None:
            if self.unlabelled or self.answers:
                raise click.UsageError("--unlabelled needs a teacher that labels these texts: add --teacher minilm-l6")
            return None
        if not self.unlabelled:
            raise click.UsageError("--teacher needs texts to label: name them with --unlabelled PATH")
        check_sources({"unlabelled": self.unlabelled})
        return lib.lessons.Lesson(
            lib.lessons.find_teacher(self.teacher),
            read_prompts("unlabelled", self.unlabelled, texts, out),
            self.find_answers(router_path),
            confirm=lambda cost: self._confirm(cost, out),
        )

    def prepare_traffic(self, candidate_path: Path | None, out: Output) -> lib.lessons.Lesson | None:
        """The same for the requests of a journal, which are read later. Without a path, only --answers keeps any."""
        if self.teacher is None:
            if self.answers:
                raise click.UsageError("--answers is the file of a teacher's answers: add --teacher minilm-l6")
            return None
        teacher, answers = lib.lessons.find_teacher(self.teacher), self.answers and self.answers.expanduser()
        if candidate_path is not None:
            answers = self.find_answers(candidate_path)
        return lib.lessons.Lesson(teacher, (), answers, confirm=lambda cost: self._confirm(cost, out))

    def find_answers(self, router_path: Path) -> Path:
        """The file that keeps the teacher's answers."""
        folder = router_path.expanduser()
        return (self.answers or folder.with_name(f"{folder.name}.answers.jsonl")).expanduser()

    def _confirm(self, cost: dict[str, int], out: Output) -> None:
        requests, sent, received = (f"{cost[name]:,}" for name in ("requests", "tokens_sent", "tokens_received"))
        out.remark(f"{self.teacher} will get {requests} requests: about {sent} tokens sent, {received} received")
        if not self.yes and not out.quiet and not out.as_json and sys.stdin.isatty() and sys.stderr.isatty():
            click.confirm("start?", default=True, abort=True, err=True)

    @contextmanager
    def labelling(self, router_path: Path | None) -> Iterator[None]:
        """Report what is kept when labelling is stopped. Answers under the usual name go once the router is saved."""
        try:
            yield
        except KeyboardInterrupt as stopped:
            if stopped.args:
                click.echo(str(stopped), err=True)
            raise
        if self and self.answers is None and router_path is not None:
            self.find_answers(router_path).unlink(missing_ok=True)


_NAMED = click.option(
    "--teacher",
    metavar="NAME",
    help="What labels them: a sentence encoder (minilm-l6, a folder, a hub id) or a chat endpoint, "
    "http://host/v1#model, whose key is in IR3DE_TEACHER_KEY.",
)
_ANSWERS = click.option(
    "--answers",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="File that keeps what the teacher answered. If the command is stopped, run it again: it continues from "
    "there.  [default: ROUTER.answers.jsonl, deleted in the end]",
)
_YES = click.option("--yes", is_flag=True, help="Start a chat endpoint without asking.")
_UNLABELLED = click.option(
    "--unlabelled",
    multiple=True,
    metavar="PATH",
    help="Texts without labels, such as traffic, for --teacher to label; may be repeated.",
)
teacher_options = gather_options("taught", GivenTeacher, _UNLABELLED, _NAMED, _ANSWERS, _YES)


def _name_traffic(teacher: str | None, answers: Path | None, yes: bool) -> GivenTeacher:
    return GivenTeacher((), teacher, answers, yes)


_TRAFFIC = click.option(
    "--teacher",
    metavar="NAME",
    help="What labels requests without a label: a sentence encoder (minilm-l6, a folder, a hub id) or a chat "
    "endpoint, http://host/v1#model, whose key is in IR3DE_TEACHER_KEY.",
)
_PROPOSING = click.option(
    "--teacher",
    metavar="NAME",
    help="What proposes labels: a sentence encoder (minilm-l6, a folder, a hub id) or a chat endpoint, "
    "http://host/v1#model, whose key is in IR3DE_TEACHER_KEY.",
)
_PROPOSED = click.option(
    "--answers",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="File that keeps what the teacher answered, for the next time.",
)
proposing_options = gather_options("taught", _name_traffic, _PROPOSING, _PROPOSED, _YES)
traffic_teacher_options = gather_options("taught", _name_traffic, _TRAFFIC, _ANSWERS, _YES)


def view_teaching(router: ir3de.Router) -> Iterator[Block]:
    """What the teacher of a fit brought, and the texts that were left out."""
    return view_report(router.teaching)


def view_report(found: Teaching | None) -> Iterator[Block]:
    """What a teacher brought, and the texts that were left out."""
    if found is None:
        return
    yield line((found.describe(), "" if found.is_used else "yellow"))
    if left_out := found.describe_left_out():
        yield line((left_out, FAINT))
