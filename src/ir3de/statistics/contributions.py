"""One owner's statistics of a domain, as the file they came in; and what an expert has been given of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ir3de.errors import ArtifactError, InputError
from ir3de.statistics.domain import MAX_COUNT, Statistics
from ir3de.statistics.files import read_sample, read_statistics, statistics_bytes
from ir3de.statistics.sample import Sample
from ir3de.storage import files
from ir3de.storage.cores import count_cores
from ir3de.storage.ledger import Given

DIGEST_SHOWN = 12  # characters of the digest that an id is made of where none is given
LONGEST_OWNER = 200
MOST_IN_RECIPE = 32
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, eq=False)
class Contribution:
    """One owner's statistics of a domain, with a name of their own, so that they can be taken out again.

    >>> import ir3de
    >>> berlin = ir3de.Contribution.of(ir3de.collect(["Is this contract void?"]), owner="Berlin")
    >>> berlin
    Contribution(2a8d70c1c017 of 'Berlin', 1 prompt, 5 tokens)
    >>> router = ir3de.Router.fit({"law": ["Can my landlord evict me?"], "maths": ["Solve 3x = 12."]})
    >>> router.merge("law", berlin)
    >>> router.remove("law", contribution=berlin.id)
    """

    id: str
    owner: str
    digest: str  # of the statistics: what two contributions are the same by
    prompts: int
    tokens: int
    kept: int  # prompts in the sample
    sample_digest: str | None  # of those
    parts: tuple[str, ...]  # digests of the contributions that were merged into it
    recipe: Mapping[str, Any]  # how it was collected, as far as that is known
    sha256: str  # of the file
    content: Callable[[], bytes] = field(repr=False)  # the file's bytes
    origin: Path = field(repr=False, default=Path("contribution.stats"))  # where they lie, if in a file
    in_file: bool = field(repr=False, default=False)

    @classmethod
    def of(
        cls,
        statistics: Statistics,
        *,
        owner: str = "",
        id: str | None = None,  # noqa: A002 - what it is called everywhere else
        recipe: Mapping[str, Any] | None = None,
        parts: Iterable[str] = (),
    ) -> Contribution:
        """Statistics as a contribution; the id is made of their digest unless one is given."""
        if statistics.tokens == 0:
            raise InputError("a contribution needs at least one text, and these statistics have none")
        named = statistics.digest[:DIGEST_SHOWN] if id is None else id
        more: dict[str, Any] = {"id": checked_id(named), "owner": checked_owner(owner)}
        more |= {"recipe": _checked_recipe(recipe or {}), "parts": sorted(parts)}
        content = statistics_bytes(statistics, more)
        header = read_statistics(content, cls.origin, known=True)[1]
        return _described(statistics, header, hashlib.sha256(content).hexdigest(), lambda: content, cls.origin)

    @classmethod
    def load(cls, path: str | Path) -> Contribution:
        """Read a file that `ir3de collect` or `save` wrote; damage of any kind is found by its hashes."""
        path = Path(path).expanduser()
        content = files.read(path)
        statistics, header = read_statistics(content, path)
        sha256 = hashlib.sha256(content).hexdigest()
        again = partial(_read_again, path, sha256)
        return replace(_described(statistics, header, sha256, again, path), in_file=True)

    def save(self, path: str | Path) -> Path:
        """Write the file."""
        path = Path(path).expanduser()
        files.make_folder(path.parent)
        files.write(path, self.content())
        return path

    def statistics(self, *, thorough: bool = False) -> Statistics:
        """What was contributed, read at every call, so that a thousand of them take no memory.

        The file is checked against the hash it had when it came; `thorough` also its content against its own digest.
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
    def given(self) -> Given:
        """As a ledger tells of it."""
        return Given(self.digest, self.prompts, self.tokens, self.id, self.owner)

    def __repr__(self) -> str:
        prompts = "1 prompt" if self.prompts == 1 else f"{self.prompts:,} prompts"
        return (
            f"Contribution({self.id}{f' of {self.owner!r}' if self.owner else ''}, {prompts}, {self.tokens:,} tokens)"
        )


@dataclass(frozen=True, eq=False)
class Holding:
    """What an expert's statistics are the sum of: texts counted here, and contributions in the order of their ids."""

    own: Statistics | None
    contributions: tuple[Contribution, ...]

    def with_more(self, more: Iterable[Contribution], expert: str) -> Holding:
        """With these as well; what is there already is refused, by its hash."""
        more = list(more)
        holders((*self.contributions, *more), f"'{expert}' has this contribution already:")
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
        """The contribution of that id, and what is left without it."""
        found = [one for one in self.contributions if one.id == contribution]
        if not found:
            names = ", ".join(one.id for one in self.contributions[:20]) or "none"
            merged = next((one.id for one in self.contributions if contribution in one.parts), None)
            inside = f"; it was merged into {merged}, and only that can be taken out" if merged else ""
            raise InputError(f"'{expert}' has no contribution '{contribution}': it has {names}{inside}")
        if self.own is None and len(self.contributions) == 1:
            raise InputError(
                f"{contribution} is all that '{expert}' has: take the expert out (`ir3de remove ROUTER {expert}`)"
            )
        return found[0], replace(self, contributions=tuple(one for one in self.contributions if one is not found[0]))

    def sample(self) -> Sample | None:
        """The prompts of all of them together."""
        kept = [one for one in self.contributions if one.kept]
        workers = min(count_cores(), len(kept))
        with ThreadPoolExecutor(max(1, workers), thread_name_prefix="ir3de-sample") as pool:
            found = list(pool.map(_sample_of, [kept[worker::workers] for worker in range(workers)]))
        if self.own is not None and self.own.sample is not None:
            found.append(self.own.sample)
        return Sample.together(found) if found else None

    def total(self) -> Statistics:
        """The sum of everything, from scratch, every hash checked."""
        total = self.own
        for one in self.contributions:
            found = one.statistics(thorough=True)
            total = found if total is None else total + found
        assert total is not None
        return total


def _sample_of(contributions: Iterable[Contribution]) -> Sample:
    samples = (one.sample() for one in contributions)
    return Sample.together(sample for sample in samples if sample is not None)


def holders(contributions: Iterable[Contribution], complaint: str) -> dict[str, str]:
    """Which contribution holds which statistics, by their digests; the same twice are refused."""
    found: dict[str, str] = {}
    for one in contributions:
        for digest in (one.digest, *one.parts):
            if digest in found:
                raise InputError(
                    f"{complaint} {one.id} holds the statistics {digest[:16]}, which are in contribution "
                    f"{found[digest]}. Nothing is counted twice"
                )
        found |= dict.fromkeys((one.digest, *one.parts), one.id)
    return found


def describe_contribution(contribution: Contribution, file: Mapping[str, str]) -> dict[str, Any]:
    """As a router's header tells of it."""
    return {
        "id": contribution.id,
        "owner": contribution.owner,
        "digest": contribution.digest,
        "prompts": contribution.prompts,
        "tokens": contribution.tokens,
        "kept": contribution.kept,
        "sample_digest": contribution.sample_digest,
        "parts": list(contribution.parts),
        "recipe": dict(contribution.recipe),
        "file": dict(file),
    }


def restore_contribution(described: Mapping[str, Any], folder: Path) -> Contribution:
    """The contribution that a router's header tells of; its file is read when it is needed."""
    fields = {**described, "parts": tuple(described["parts"])}
    file = fields.pop("file")
    path = folder / Path(file["name"]).name
    again = partial(files.read, path, sha256=file["sha256"])
    return Contribution(**fields, sha256=file["sha256"], content=again, origin=path, in_file=True)


def checked_id(value: object) -> str:
    """Refuse what cannot be a contribution's id."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise InputError(
            "a contribution's id is up to 64 letters, digits, points, dashes and underscores, and begins with a letter "
            f"or digit, found {value!r}"
        )
    return value


def checked_owner(value: object) -> str:
    """Refuse what cannot be an owner's label."""
    if not isinstance(value, str) or len(value) > LONGEST_OWNER or not value.isprintable():
        raise InputError(f"an owner's label is up to {LONGEST_OWNER} printable characters, found {value!r:.80}")
    return value


def _checked_recipe(value: object) -> dict[str, Any]:
    """Refuse all but a few plain values: they are shown, and stand in the router's header among its own."""
    if (
        not isinstance(value, Mapping)
        or len(value) > MOST_IN_RECIPE
        or not all(_plain(part) for pair in value.items() for part in pair)
    ):
        raise InputError(f"a recipe is up to {MOST_IN_RECIPE} names with a number or a short text, found {value!r:.80}")
    return dict(value)


def _plain(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST_OWNER and value.isprintable()
    return value is None or (isinstance(value, (bool, int, float)) and abs(value) <= MAX_COUNT)


def _checked_parts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and _DIGEST.fullmatch(one) for one in value):
        raise InputError(f"the parts of a contribution are SHA-256 digests, found {value!r:.80}")
    return tuple(value)


def _described(
    statistics: Statistics, header: Mapping[str, Any], sha256: str, content: Callable[[], bytes], path: Path
) -> Contribution:
    try:
        return Contribution(
            checked_id(header.get("id", statistics.digest[:DIGEST_SHOWN])),
            checked_owner(header.get("owner", "")),
            statistics.digest,
            statistics.prompts,
            statistics.tokens,
            0 if statistics.sample is None else len(statistics.sample),
            None if statistics.sample is None else statistics.sample.digest,
            _checked_parts(header.get("parts", [])),
            _checked_recipe(header.get("recipe", {})),
            sha256,
            content,
            path,
        )
    except (InputError, TypeError, ValueError) as error:
        raise ArtifactError(f"{path} is damaged: {error}. Copy it again from where it came from") from error


def _read_again(path: Path, sha256: str) -> bytes:
    content = files.read(path)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ArtifactError(f"{path} has changed since it was read: nothing was done. Try again once it stays as it is")
    return content
