"""The changes that /admin can make: each returns the new state, or raises the reason to reject it."""

from __future__ import annotations

import base64
import binascii
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from ir3de.errors import InputError, IR3DEError, name_some
from ir3de.serving import ScorerChoice, check_scheme, hide_user, holds_statistics, read_header
from ir3de_gateway.admin.fit_process import FitOrder, fit
from ir3de_gateway.admin.router_source import LoadedRouter, RouterFollower, is_address
from ir3de_gateway.admin.state import RouterChoice, State, StateFolder
from ir3de_gateway.api_errors import ApiError, validate
from ir3de_gateway.config.document import Config
from ir3de_gateway.config.experts import ExpertConfig, Name, Part
from ir3de_gateway.config.findings import list_variables
from ir3de_gateway.experts.snapshot import Snapshot, apply_routing_settings

EXPERT_VARIABLE_PREFIX = "IR3DE_EXPERT_"  # /admin may send the values of variables with this prefix to experts


class Upload(Part):
    """A file of texts or statistics."""

    name: Annotated[str, Field(min_length=1, max_length=1_000)]
    """Its suffix determines the format: law.jsonl.gz, law.txt, law.stats"""
    content: str
    """The file in base64."""


class ExpertAddition(Part):
    """An expert to add, or more texts or another endpoint for one that exists."""

    name: Name
    """The name by which clients request it."""
    upstream: dict[str, Any] | None = None
    """Its endpoint, as in the configuration file; a new expert needs one."""
    texts: list[str] | None = None
    """Prompts of its domain."""
    file: Upload | None = None
    """Or a file with prompts, or with their statistics."""
    merge: Annotated[bool, Field(strict=True)] = False
    """Extend an expert that exists: add texts to its domain, or replace its endpoint."""
    scorer: ScorerChoice = "keep"
    """Whether the router keeps its scorer, or chooses it again as a fit does."""


class RouterReplacement(Part):
    """A router in place of the configured one."""

    path: Annotated[str, Field(min_length=1, max_length=4_000)]
    """The absolute path of a folder, or an address."""


@dataclass(frozen=True)
class CandidateRouter:
    """The configured candidate, and where it comes from."""

    follower: RouterFollower
    loaded: LoadedRouter


@dataclass(frozen=True, kw_only=True)
class AdminState(Snapshot):
    """What serves, and where it comes from: the configuration file, the changes made by /admin, the router's files."""

    base: Config  # as in the configuration file
    state: State
    stamp: object  # of the state file
    follower: RouterFollower
    loaded: LoadedRouter  # without the configuration's threshold and default
    trial: CandidateRouter | None = None  # the configured candidate, also where its trial has ended

    def apply_drains(self) -> None:
        """Set which replicas are drained. Their requests in flight go on."""
        for name, expert in self.experts.items():
            labels = self.state.drained.get(name, ())
            for replica in expert.replicas:
                replica.set_drained(replica.label in labels)

    def put_in_force(self) -> AdminState:
        """The same, once its routers are noted as those that serve: what was fetched before them is deleted."""
        self.follower.put_in_force(self.loaded)
        if self.trial is not None:
            self.trial.follower.put_in_force(self.trial.loaded)
        return self

    def with_router(self, loaded: LoadedRouter) -> AdminState:
        """The same with a router that was published meanwhile."""
        router = apply_routing_settings(loaded.router, self.config)
        return replace(self, loaded=loaded, router=router, digest=loaded.digest).with_trial(self.trial)

    def with_trial(self, trial: CandidateRouter | None) -> AdminState:
        """The same with a candidate, which decides unless its trial has ended, or it serves already."""
        candidate, ended = None, self.state.candidate
        if trial is not None and trial.loaded.digest not in (self.digest, None if ended is None else ended.digest):
            self._check_candidate(trial)
            router = apply_routing_settings(trial.loaded.router, self.config)
            candidate = Snapshot(self.config, router, trial.loaded.digest, self.experts)
        return replace(self, trial=trial, candidate=candidate)

    def _check_candidate(self, trial: CandidateRouter) -> None:
        """Reject a candidate with experts that have no endpoint, unless the live router knows them, too."""
        known = {*self.experts, *self.router.experts}
        if missing := [name for name in trial.loaded.router.experts if name not in known]:
            raise InputError(
                f"the candidate {trial.follower.shown} knows {name_some(missing)}, but there is no such expert: add "
                "its endpoint (experts), or name another candidate (routing.candidate)"
            )


Comparison = dict[str, Any] | None  # a router before and after; None where it was not fitted again


class Changed(NamedTuple):
    """The result of a change."""

    state: State
    comparison: Comparison = None
    base: Config | None = None  # where the configuration file was read again


Change = Callable[[AdminState, StateFolder, Event], Changed]


def add_expert(more: ExpertAddition, now: AdminState, folder: StateFolder, stop: Event) -> Changed:
    """The state with a new expert, or with more for one that exists."""
    name, served, routed = more.name, more.name in now.experts, more.name in now.router.experts
    if more.texts is not None and more.file is not None:
        raise ApiError(422, "texts and file: give one of them", "invalid_field", "file")
    domain = more.texts is not None or more.file is not None
    if not more.merge and (served or (routed and domain)):
        raise ApiError(409, f"{name!r} exists already: send merge: true to extend it, or DELETE it first", "exists")
    if more.merge and not served and not routed:
        raise ApiError(404, f"no expert {name!r} to extend: leave out merge to add it", "expert_not_found", "name")
    if more.upstream is None and not served:
        raise ApiError(422, "upstream: a new expert needs an endpoint, {base_url: …}", "invalid_field", "upstream")
    if more.upstream is None and not domain:
        raise ApiError(422, "nothing to do: give upstream, texts or file", "invalid_field")
    state = now.state
    if more.upstream is not None:
        if "name" in more.upstream:
            raise ApiError(422, "upstream.name: leave it out, `name` is enough", "invalid_field", "upstream.name")
        expert = validate(ExpertConfig, {"name": name, **more.upstream}, "upstream")
        _check_variables(expert, now.base)
        state = state.with_expert(expert)
        state.apply_to(now.base, folder.path)  # raises if they do not fit together, before anything is fitted
    if not domain:
        return Changed(state)
    check_changeable(now, "leave out texts and file")
    router, found = _refit(now, folder, "more", more, stop)
    return Changed(replace(state, router=router), found)


class ReplicaChange(Part):
    """A change of a replica."""

    drain: Annotated[bool, Field(strict=True)]
    """Whether it gets no more requests; those that have begun go on to their end."""


def drain_replica(
    name: str, label: str, is_drained: bool, now: AdminState, folder: StateFolder, stop: Event
) -> Changed:
    """The state in which a replica is drained, or is not."""
    expert = now.experts.get(name)
    if expert is None:
        raise ApiError(404, f"no expert {name[:200]!r}: GET /admin/experts lists them", "expert_not_found")
    if not expert.replicas:
        message = f"{name!r} has one address, in base_url: name it in replicas to drain it, or DELETE the expert"
        raise ApiError(409, message, "no_replicas")
    labels = [replica.label for replica in expert.replicas]
    if label not in labels:
        message = f"no replica {label[:200]!r} of {name!r}: there are {', '.join(labels)}"
        raise ApiError(404, message, "replica_not_found")
    return Changed(now.state.with_drained(name, label, is_drained=is_drained))


def remove_expert(
    name: str, keep_domain: bool, scorer: ScorerChoice, now: AdminState, folder: StateFolder, stop: Event
) -> Changed:
    """The state without an expert; with `keep_domain` the router keeps its domain, and others answer its prompts."""
    config, routed = now.config, name in now.router.experts
    served = name in now.experts
    if not served and not (routed and not keep_domain):
        raise ApiError(404, f"no expert {name[:200]!r}: GET /admin/experts lists them", "expert_not_found")
    if served and len(now.experts) == 1:
        raise ApiError(409, f"{name!r} is the only expert: add another first", "last_expert")
    named = {"routing.default": config.routing.default, "routing.shadow": config.routing.shadow}
    named |= {f"the fallbacks of {other.name}": name for other in config.experts if name in other.fallbacks}
    named |= {f"the target of the alias {alias}": target for alias, target in config.aliases.items()}
    if places := [place for place, mentioned in named.items() if mentioned == name]:
        raise ApiError(
            409, f"{name!r} is named as {', '.join(places)}: change that first, then remove it", "expert_in_use"
        )
    state = now.state.without(name, now.base)
    if routed and not keep_domain:
        check_changeable(now, "remove its endpoint alone with ?domain=keep")
        if len(now.router.experts) == 1:
            raise ApiError(409, f"{name!r} is the only domain of the router: add another first", "last_expert")
        router, found = _refit(now, folder, "remove", ExpertAddition(name=name, scorer=scorer), stop)
        return Changed(replace(state, router=router), found)
    return Changed(state)


def choose_router(given: RouterReplacement | None, now: AdminState, folder: StateFolder, stop: Event) -> Changed:
    """The state with another router, or with the configured one again."""
    if given is None:
        return Changed(replace(now.state, router=None))
    path = given.path
    if is_address(path):
        check_scheme(path)
        if hide_user(path) != path:
            raise ApiError(422, "path: must not hold a user or password: use the environment", "invalid_field", "path")
    elif not Path(path).is_absolute():
        raise ApiError(422, f"path: must be absolute, found {path[:200]!r}", "invalid_field", "path")
    return Changed(replace(now.state, router=RouterChoice(path)))


def check_changeable(now: AdminState, otherwise: str) -> None:
    """Reject a change of the domains of a router at an address, or of one that lacks its statistics."""
    path = now.follower.shown
    if is_address(path):
        raise ApiError(
            409,
            f"the router comes from {path}: change it where it was made, with `ir3de add` or `ir3de remove`, and "
            f"publish it again, or {otherwise}",
            "router_elsewhere",
        )
    if not is_changeable(now.loaded):
        raise ApiError(
            409,
            f"{path} is a serving copy, or came from an address without its statistics: it can route, but not change. "
            f"PUT /admin/router with the router that it was made from, or {otherwise}",
            "serving_copy",
        )


def is_changeable(loaded: LoadedRouter) -> bool:
    """Whether the statistics that changes need are there. The router may have been saved again since it was loaded."""
    try:
        return holds_statistics(loaded.folder, read_header(loaded.folder))
    except (IR3DEError, OSError):
        return not loaded.header.get("serving")  # a change will report what is wrong


def _check_variables(expert: ExpertConfig, config: Config) -> None:
    """Reject variables by which an admin could send a secret of this process to another address."""
    allowed = {name for _, name in list_variables(config.model_dump(mode="json", include={"experts"}))}
    for path, name in list_variables(expert.model_dump(mode="json", exclude={"defaults"})):
        if name not in allowed and not name.startswith(EXPERT_VARIABLE_PREFIX):
            place = f"upstream.{path[0]}"
            message = (
                f"{place}: {name} is not allowed. Use a variable that the configuration names for an expert, or one"
            )
            raise ApiError(422, f"{message} that begins with {EXPERT_VARIABLE_PREFIX}", "invalid_field", place)


def _refit(
    now: AdminState, folder: StateFolder, action: Any, more: ExpertAddition, stop: Event
) -> tuple[RouterChoice, dict[str, Any] | None]:
    """Fit the changed router into a folder of the state folder, and compare it with the original, which stays."""
    source, limits = Path(now.config.router.path).expanduser().resolve(), now.config.server.limits
    made = folder.new_router(source)
    order = FitOrder(
        str(source),
        str(made),
        action,
        more.name,
        more.texts,
        scorer_choice=more.scorer,
        threshold=now.config.routing.threshold,
        default=now.config.routing.default,
        seconds=limits.fit_seconds,
        memory_bytes=limits.fit_memory_bytes,
        text_bytes=limits.fit_text_bytes,
    )
    with tempfile.TemporaryDirectory(prefix="ir3de-upload-") as uploads:
        if more.file is not None:
            order = replace(order, file=_write_upload(more.file, Path(uploads)), file_name=more.file.name)
        found = fit(order, stop)
    choice = now.state.router
    base = choice.base if choice is not None and choice.own else now.digest
    return folder.adopt(made, base), found


def _write_upload(upload: Upload, folder: Path) -> str:
    """Write an uploaded file and return its path. Of the client's file name only the suffixes are kept: the format."""
    try:
        content = base64.b64decode(upload.content, validate=True)
    except binascii.Error as error:
        raise ApiError(422, f"file.content: must be base64 ({error})", "invalid_field", "file.content") from None
    suffixes = re.search(r"(?:\.[A-Za-z0-9]{1,16}){0,2}$", upload.name)
    path = folder / f"upload{suffixes.group() if suffixes else ''}"
    path.write_bytes(content)
    return str(path)
