"""Contributions: one owner's statistics of a domain, in a file with an id; and holdings, all that one expert has."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from ir3de import files
from ir3de.errors import ArtifactError, InputError
from ir3de.files.atomic import count_cores
from ir3de.files.ledger import TAUGHT, ContributionRecord
from ir3de.statistics.domain import MAX_COUNT, Statistics
from ir3de.statistics.files import encode_statistics, read_sample, read_statistics
from ir3de.statistics.sample import Sample

ID_CHARACTERS = 12  # of the digest, which make the id where none is given
MAX_OWNER_CHARACTERS = 200
MAX_RECIPE_ENTRIES = 32
TEACHER = "teacher"  # the entry of a recipe that names the teacher who labelled the prompts
FEEDBACK = "feedback"  # the entry of a recipe that names the author who labelled requests
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, eq=False)
class Contribution:
    """One owner's statistics of a domain, with an id by which they can be taken out again.

    >>> import ir3de
    >>> berlin = ir3de.Contribution.of(ir3de.collect(["Is this contract void?"]), owner="Berlin")
    >>> berlin
    Contribution(8c8b8ad1b1b8 of 'Berlin', 1 prompt, 5 tokens)
    >>> router = ir3de.Router.fit({"law": ["Can my landlord evict me?"], "maths": ["Solve 3x = 12."]})
    >>> router.merge("law", berlin)
    >>> router.remove("law", contribution=berlin.id)
    """

    id: str
    owner: str
    digest: str  # of the statistics: two contributions with the same digest are the same
    prompts: int
    tokens: int
    kept: int  # prompts in the sample
    sample_digest: str | None
    parts: tuple[str, ...]  # digests of the contributions that were merged into it
    recipe: Mapping[str, Any]  # how it was collected, as far as the file records it
    sha256: str  # of the file
    content: Callable[[], bytes] = field(repr=False)  # the file's bytes
    origin: Path = field(repr=False, default=Path("contribution.stats"))  # the file's path, if `in_file`
    in_file: bool = field(repr=False, default=False)

    @classmethod
    def of(
        cls,
        statistics: Statistics,
        *,
        owner: str = "",
        id: str | None = None,  # noqa: A002 - its name everywhere else
        recipe: Mapping[str, Any] | None = None,
        parts: Iterable[str] = (),
    ) -> Contribution:
        """Make statistics a contribution. Without an id, the beginning of their digest is the id."""
        if statistics.tokens == 0:
            raise InputError("a contribution needs at least one text, but these statistics have none")
        more = {
            "id": check_id(statistics.digest[:ID_CHARACTERS] if id is None else id),
            "owner": check_owner(owner),
            "recipe": _check_recipe(recipe or {}),
            "parts": sorted(parts),
        }
        content = encode_statistics(statistics, more, with_windows=True)
        header = read_statistics(content, cls.origin, known=True)[1]
        return _build(statistics, header, hashlib.sha256(content).hexdigest(), lambda: content, cls.origin)

    @classmethod
    def load(cls, path: str | Path) -> Contribution:
        """Read a file that `ir3de collect` or `save` wrote. Its hashes reveal any damage."""
        path = Path(path).expanduser()
        content = files.read(path)
        statistics, header = read_statistics(content, path)
        sha256 = hashlib.sha256(content).hexdigest()
        return replace(_build(statistics, header, sha256, partial(_reread, path, sha256), path), in_file=True)

    def save(self, path: str | Path) -> Path:
        """Write the file."""
        path = Path(path).expanduser()
        files.make_folder(path.parent)
        files.write(path, self.content())
        return path

    def statistics(self, *, thorough: bool = False) -> Statistics:
        """Read the statistics. They are not kept, so that a thousand contributions take no memory.

        The file is checked against the hash it had at first; with `thorough`, also its content against its digest.
        """
        return read_statistics(self.content(), self.origin, known=not thorough)[0]

    def sample(self) -> Sample | None:
        """The prompts that came with it."""
        if self.sample_digest is None:
            return None
        return read_sample(self.origin, self.sample_digest) if self.in_file else self.statistics().sample

    def without_sample(self) -> Contribution:
        """The same without any prompt."""
        if not self.kept:
            return self
        bare = self.statistics().without_sample()
        return Contribution.of(bare, owner=self.owner, id=self.id, recipe=self.recipe, parts=self.parts)

    @property
    def given(self) -> ContributionRecord:
        """The contribution as a ledger entry names it."""
        kind = TAUGHT if self.is_taught else ""
        return ContributionRecord(self.digest, self.prompts, self.tokens, self.id, self.owner, kind)

    @property
    def is_taught(self) -> bool:
        """Whether a teacher labelled the prompts."""
        return TEACHER in self.recipe

    @property
    def is_feedback(self) -> bool:
        """Whether the prompts are requests that somebody labelled."""
        return FEEDBACK in self.recipe

    @property
    def holds(self) -> tuple[str, ...]:
        """What may be counted only once. Two people may label the same prompt, and their feedback is equal then."""
        if self.is_feedback:
            return (hashlib.sha256(f"{self.digest} {self.id}".encode()).hexdigest(),)
        return self.digest, *self.parts

    def __reduce__(self) -> tuple[type[Contribution], tuple[Any, ...]]:
        """A pickled contribution brings the bytes of its file along."""
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        return Contribution, (*(given | {"content": partial(bytes, self.content()), "in_file": False}).values(),)

    def __repr__(self) -> str:
        prompts = "1 prompt" if self.prompts == 1 else f"{self.prompts:,} prompts"
        return (
            f"Contribution({self.id}{f' of {self.owner!r}' if self.owner else ''}, {prompts}, {self.tokens:,} tokens)"
        )


@dataclass(frozen=True, eq=False)
class Holding:
    """Everything one expert was given: texts counted here, and contributions in the order of their ids."""

    own: Statistics | None
    contributions: tuple[Contribution, ...]

    def with_more(self, more: Iterable[Contribution], expert: str) -> Holding:
        """Add contributions. Raises an error for those that are there already, by their digests."""
        more = list(more)
        find_holders((*self.contributions, *more), f"'{expert}' has this contribution already:")
        known = {contribution.id: contribution for contribution in self.contributions}
        for one in more:
            if one.id in known:
                raise InputError(
                    f"'{expert}' has another contribution with the id {one.id} ({known[one.id].digest[:16]}, this one "
                    f"is {one.digest[:16]}): collect this one with another --id, or remove the other first"
                )
            known[one.id] = one
        return Holding(self.own, tuple(known[name] for name in sorted(known)))

    def without(self, contribution: str, expert: str) -> tuple[Contribution, Holding]:
        """Take out the contribution of that id: the contribution, and what is left, which must not be nothing."""
        found, left = self.take(contribution, expert)
        if self.own is None and not left.contributions:
            raise InputError(
                f"{contribution} is all that '{expert}' has: take the expert out (`ir3de remove ROUTER {expert}`)"
            )
        return found, left

    def take(self, contribution: str, expert: str) -> tuple[Contribution, Holding]:
        """The contribution of that id, and what is left without it."""
        found = [one for one in self.contributions if one.id == contribution]
        if not found:
            names = ", ".join(one.id for one in self.contributions[:20]) or "none"
            merged = next((one.id for one in self.contributions if contribution in one.parts), None)
            inside = f"; it was merged into {merged}, and only that can be taken out" if merged else ""
            raise InputError(f"'{expert}' has no contribution '{contribution}': it has {names}{inside}")
        return found[0], replace(self, contributions=tuple(one for one in self.contributions if one is not found[0]))

    @property
    def taught_prompts(self) -> int:
        """How many prompts a teacher labelled."""
        return sum(one.prompts for one in self.contributions if one.is_taught)

    def sample(self) -> Sample | None:
        """The prompts of all of them together."""
        kept = [one for one in self.contributions if one.kept]
        workers = min(count_cores(), len(kept))
        with ThreadPoolExecutor(max(1, workers), thread_name_prefix="ir3de-sample") as pool:
            found = list(pool.map(_join_samples, [kept[worker::workers] for worker in range(workers)]))
        if self.own is not None and self.own.sample is not None:
            found.append(self.own.sample)
        return Sample.join(found) if found else None

    def total(self) -> Statistics:
        """Add everything up from scratch, and check every hash."""
        total = self.own
        for one in self.contributions:
            found = one.statistics(thorough=True)
            total = found if total is None else total + found
        assert total is not None
        return total


def _join_samples(contributions: Iterable[Contribution]) -> Sample:
    samples = (one.sample() for one in contributions)
    return Sample.join(sample for sample in samples if sample is not None)


def find_holders(contributions: Iterable[Contribution], error: str) -> dict[str, str]:
    """Map each digest of statistics to the id of the contribution that holds it. Duplicates raise the error."""
    found: dict[str, str] = {}
    for one in contributions:
        for digest in one.holds:
            if digest in found:
                raise InputError(
                    f"{error} {one.id} holds the statistics {digest[:16]}, which are in contribution "
                    f"{found[digest]}. Nothing is counted twice"
                )
        found |= dict.fromkeys(one.holds, one.id)
    return found


def describe_contribution(contribution: Contribution, file: Mapping[str, str]) -> dict[str, Any]:
    """The contribution as a router's header names it."""
    names = ("id", "owner", "digest", "prompts", "tokens", "kept", "sample_digest")
    values = {name: getattr(contribution, name) for name in names}
    return {**values, "parts": list(contribution.parts), "recipe": dict(contribution.recipe), "file": dict(file)}


def restore_contribution(described: Mapping[str, Any], folder: Path) -> Contribution:
    """The contribution that a router's header names. Its file is read when it is needed."""
    fields = {**described, "parts": tuple(described["parts"])}
    file = fields.pop("file")
    path = folder / Path(file["name"]).name
    read = partial(files.read, path, sha256=file["sha256"])
    return Contribution(**fields, sha256=file["sha256"], content=read, origin=path, in_file=True)


def check_id(value: object) -> str:
    """Raise an error unless this can be a contribution's id."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise InputError(
            "a contribution's id is up to 64 letters, digits, points, dashes and underscores, and begins with a letter "
            f"or digit, found {value!r}"
        )
    return value


def check_owner(value: object) -> str:
    """Raise an error unless this can be an owner's label."""
    if not isinstance(value, str) or len(value) > MAX_OWNER_CHARACTERS or not value.isprintable():
        raise InputError(f"an owner's label is up to {MAX_OWNER_CHARACTERS} printable characters, found {value!r:.80}")
    return value


def _check_recipe(value: object) -> dict[str, Any]:
    """Accept a few plain values only, because a recipe is shown and is written into the router's header."""
    entries = list(value.items()) if isinstance(value, Mapping) else [(None, object())]
    if len(entries) > MAX_RECIPE_ENTRIES or not all(_is_plain(part) for pair in entries for part in pair):
        most = f"up to {MAX_RECIPE_ENTRIES} names with a number or a short text"
        raise InputError(f"a recipe is {most}, found {value!r:.80}")
    return dict(entries)


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_OWNER_CHARACTERS and value.isprintable()
    return value is None or (isinstance(value, (bool, int, float)) and abs(value) <= MAX_COUNT)


def _check_parts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and _DIGEST.fullmatch(one) for one in value):
        raise InputError(f"the parts of a contribution are SHA-256 digests, found {value!r:.80}")
    return tuple(value)


def _build(
    statistics: Statistics, header: Mapping[str, Any], sha256: str, content: Callable[[], bytes], path: Path
) -> Contribution:
    try:
        return Contribution(
            check_id(header.get("id", statistics.digest[:ID_CHARACTERS])),
            check_owner(header.get("owner", "")),
            statistics.digest,
            statistics.prompts,
            statistics.tokens,
            0 if statistics.sample is None else len(statistics.sample),
            None if statistics.sample is None else statistics.sample.digest_without_sources,
            _check_parts(header.get("parts", [])),
            _check_recipe(header.get("recipe", {})),
            sha256,
            content,
            path,
        )
    except (InputError, TypeError, ValueError) as error:
        raise ArtifactError(f"{path} is damaged: {error}. Copy it again from where it came from") from error


def _reread(path: Path, sha256: str) -> bytes:
    content = files.read(path)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ArtifactError(f"{path} has changed since it was read: nothing was done. Try again once it stays as it is")
    return content
