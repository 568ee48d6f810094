"""Checks that configuration, router and endpoints fit together: before serving, and for `config validate`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from ir3de.errors import ArtifactError, InputError, name_some
from ir3de.serving import find_kind
from ir3de_gateway.admin.state import STATE, StateFolder, find_state_folder
from ir3de_gateway.config.document import Config, RouterConfig
from ir3de_gateway.config.experts import ExpertConfig, read_variable
from ir3de_gateway.config.findings import Finding, split_path, suggest_name
from ir3de_gateway.config.load import list_client_variables, read_document
from ir3de_gateway.config.prices import check_price_file
from ir3de_gateway.hooks.hook import load_function
from ir3de_gateway.keys.keys_file import check_keys_file
from ir3de_gateway.keys.registry import list_environment_keys
from ir3de_gateway.stages.accept import is_loopback
from ir3de_gateway.store.contract import StoreUnavailableError
from ir3de_gateway.store.limits import check_usage_files
from ir3de_gateway.store.shared.connection import check_store
from ir3de_gateway.telemetry.logs import STANDARD_OUTPUT, explain_unwritable
from ir3de_gateway.translation.translation import ANTHROPIC_VERSION

PING_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class RouterFacts:
    """Facts about a router, from its folder."""

    path: str
    digest: str  # SHA-256 over all of it
    experts: tuple[str, ...]
    tells_out_of_domain: bool  # whether it can find a prompt out of domain


class CheckedConfig(NamedTuple):
    """A configuration, the router it names, and their problems."""

    config: Config
    router: RouterFacts | None
    findings: list[Finding]

    @property
    def errors(self) -> list[str]:
        return [str(finding) for finding in self.findings if finding.level == "error"]

    def with_lines(self, path: Path | None) -> CheckedConfig:
        """The same, with the findings' lines in the configuration file.

        The experts may differ from those of the file, so they are looked up by name.
        """
        if path is None or all(finding.line is not None for finding in self.findings):
            return self
        document = read_document(path)
        written = document.value.get("experts") or [] if isinstance(document.value, dict) else []
        places = {one.get("name"): place for place, one in enumerate(written) if isinstance(one, dict)}

        def find_line(where: str) -> int | None:
            fields = split_path(where)
            if len(fields) > 1 and fields[0] == "experts" and isinstance(fields[1], int):
                place = places.get(self.config.experts[fields[1]].name)
                return None if place is None else document.line(("experts", place, *fields[2:]))
            return document.line(fields) if document.has(fields) else None

        found = [replace(one, line=one.line or find_line(one.where)) for one in self.findings]
        return self._replace(findings=found)


def check_config(
    config: Config, path: Path | None, *, is_dry_run: bool = True, needs_router: bool = True
) -> CheckedConfig:
    """Check a configuration against the saved admin state and the router; in a dry run, also its hooks and the folder.

    With `needs_router`, a router that cannot be read is an error; otherwise it is a finding.
    """
    config, unpriced = check_price_file(config)
    config, findings = apply_admin_state(config, path)
    router, findings = None, [*unpriced, *findings]
    try:
        router = read_router_facts(config.router.path, config.routing.threshold)
    except ArtifactError as error:
        if needs_router:
            raise
        findings.append(Finding("error", "router.path", str(error)))
    findings += [*check_consistency(config, router), *check_usage(config, path)]
    if is_dry_run:  # workers load the hooks themselves, and use what they can of the folder
        findings += [*_check_hooks(config), *check_state_folder(config, path), *check_store_address(config)]
    return CheckedConfig(config, router, findings).with_lines(path)


def apply_admin_state(config: Config, path: Path | None) -> tuple[Config, list[Finding]]:
    """The configuration with the changes made through /admin, and a warning that names them."""
    where = find_state_folder(config, path)
    if where is None or not (state := StateFolder(where).read()).changes:
        return config, []
    own = set(config.by_name)
    added = [expert.name for expert in state.experts if expert.name not in own]
    instead = [expert.name for expert in state.experts if expert.name in own]
    drained = [f"{label} of {name}" for name, labels in state.drained.items() for label in labels]
    changes = (("added", added), ("changed", instead), ("removed", state.removed), ("drained", drained))
    listed = [f"{what} {', '.join(names)}" for what, names in changes if names]
    listed += ["a router in place of the configured one"] if state.router is not None else []
    if not listed:
        return config, []
    message = f"changes made through /admin apply: {'; '.join(listed)}. Delete {where / STATE} to drop them"
    return state.apply_to(config, where), [Finding("warning", "state", message)]


def read_router_facts(path: str, threshold: float | None = None) -> RouterFacts | None:
    """Check the files of a router's folder against their hashes; None for an address, which the gateway checks.

    `threshold` is the one to serve it with, if that is not its own.
    """
    if "://" in path:
        return None
    from ir3de.serving import holds_router, inspect_router, read_expert_names

    if not holds_router(path):
        raise ArtifactError(
            f"no router at {path}: make one with `ir3de fit {path} name=texts …`, or correct router.path"
        )
    found = inspect_router(path)
    if not found.routes:
        broken = ", ".join(file.name for file in found.files if file.state in ("missing", "damaged"))
        raise ArtifactError(f"the router at {path} is damaged ({broken}): copy it again from its origin")
    names = read_expert_names(path)
    return RouterFacts(path, str(found.header["sha256"]), names, found.tells_out_of_domain(threshold))


def check_router_path(path: Path) -> list[Finding]:
    """The router that a configuration file names, if it cannot be read; the file may be wrong elsewhere."""
    document = read_document(path)
    try:
        router = RouterConfig.model_validate(document.value["router"], context={"folder": path.parent})
        read_router_facts(router.path)
    except ArtifactError as error:
        return [Finding("error", "router.path", str(error), document.line(("router", "path")))]
    except (KeyError, TypeError, ValueError):  # which the caller reports
        pass
    return []


def check_consistency(config: Config, router: RouterFacts | None) -> list[Finding]:
    """Problems between configuration and router, and with access from other machines."""
    findings = [] if router is None else list(_check_names(config, router.experts))
    if router is not None and config.routing.out_of_domain == "refuse" and not router.tells_out_of_domain:
        text = "has no effect: this router finds no prompt out of domain. Fit it from texts, with at least two prompts"
        findings.append(Finding("warning", "routing.out_of_domain", f"{text} of an expert (docs/confidence.md)"))
    findings += _find_free_experts(config)
    if config.logs.prompts and config.logs.decisions is None:
        findings.append(Finding("warning", "logs.prompts", "has no effect without logs.decisions: name a file there"))
    if config.routing.explore and config.feedback.folder is None:
        text = "explores for nothing, because no journal is kept: name a folder in feedback.folder"
        findings.append(Finding("warning", "routing.explore", text))
    if config.routing.candidate is not None and config.feedback.folder is None:
        text = "is only counted, because no journal is kept: name a folder in feedback.folder to have it judged"
        findings.append(Finding("warning", "routing.candidate", text))
    if refused := find_host_error(config):
        findings.append(Finding("error", "server.host", refused))
    findings += _check_logs(config)
    return [*findings, *check_keys_file(config)]


def _check_logs(config: Config) -> list[Finding]:
    """Logs that cannot be written: the gateway would not start."""
    named = (("logs.access", config.logs.access), ("logs.decisions", config.logs.decisions))
    files = [(where, Path(file)) for where, file in named if file not in (None, STANDARD_OUTPUT) and file]
    problems = [(where, explain_unwritable(file)) for where, file in files]
    return [Finding("error", where, problem) for where, problem in problems if problem]


def _find_free_experts(config: Config) -> list[Finding]:
    """Experts without a price among others that have one: their answers would count as free."""
    unpriced = [(index, one.name) for index, one in enumerate(config.experts) if "price" not in one.model_fields_set]
    if len(unpriced) == len(config.experts):
        return []
    text = "has no price while others have: its answers count as free. Name its price, or set price: {} if it is free"
    return [Finding("warning", f"experts.{index}.price", f"{name} {text}") for index, name in unpriced]


def _check_hooks(config: Config) -> list[Finding]:
    """Hooks that cannot be loaded. This runs the code of their modules, as serving does."""
    findings = []
    for kind, hooks in (("before", config.hooks.before), ("after", config.hooks.after)):
        for place, hook in enumerate(hooks):
            try:
                if hook.call is not None:
                    load_function(hook.call)
            except InputError as error:
                findings.append(Finding("error", f"hooks.{kind}.{place}.call", str(error)))
    return findings


def check_state_folder(config: Config, path: Path | None) -> list[Finding]:
    """A warning if the state folder cannot be written. It is not created."""
    where = find_state_folder(config, path)
    if where is None:
        return []
    nearest = next(folder for folder in (where, *where.resolve().parents) if find_kind(folder))
    if find_kind(nearest) == "folder" and os.access(nearest, os.W_OK | os.X_OK):
        return []
    lost = "changes made through /admin, pins and what keys have used end with the gateway"
    alone = ", and each worker counts keys alone" if config.server.workers > 1 and config.server.keys_file else ""
    return [Finding("warning", "state", f"{where} cannot be written: {lost}{alone}")]


def check_store_address(config: Config) -> list[Finding]:
    """An error if the shared store cannot be used; a warning if it does not answer now."""
    if (shared := config.shared_state) is None:
        return []
    try:
        check_store(shared.read_address(), shared.prefix, shared.timeout)
    except InputError as error:
        return [Finding("error", "state.store", str(error))]
    except StoreUnavailableError as error:
        return [Finding("warning", "state.store", str(error))]
    return []


def check_usage(config: Config, path: Path | None) -> list[Finding]:
    """An error if the usage of keys is damaged: the gateway would not start."""
    where = find_state_folder(config, path)
    if where is None or config.server.keys_file is None:
        return []
    try:
        check_usage_files(where)
    except InputError as error:
        return [Finding("error", "state", str(error))]
    except OSError:  # a file that cannot be read is not counted
        pass
    return []


def find_host_error(config: Config) -> str | None:
    """Why the gateway must not listen on its host: other machines need a key, or server.open."""
    server = config.server
    if is_loopback(server.host) or server.open or server.keys_file or list_environment_keys(server):
        return None
    names = " or ".join(list_client_variables(config))
    return (
        f"{server.host or 'every interface'} can be reached from other machines, and clients need no key: put one into "
        f"the environment variable {names}, name a file of keys in server.keys_file, or set server.open: true (--open) "
        "to allow access without a key"
    )


def ping_experts(experts: Sequence[ExpertConfig]) -> list[Finding]:
    """Request the models of all endpoints, in parallel: an error if an endpoint cannot serve, otherwise a warning."""
    endpoints = [one for index, expert in enumerate(experts) for one in _split_into_replicas(index, expert)]
    with ThreadPoolExecutor(max_workers=max(1, min(32, len(endpoints)))) as pool:
        problems = list(pool.map(_ping, [endpoint for _, endpoint in endpoints]))
    return [
        Finding(problem[0], where, f"{expert.name} at {expert.base_url}: {problem[1]}")
        for (where, expert), problem in zip(endpoints, problems, strict=True)
        if problem is not None
    ]


def _split_into_replicas(index: int, expert: ExpertConfig) -> list[tuple[str, ExpertConfig]]:
    """The field of each address, and an expert that has only this one."""
    if not expert.replicas:
        return [(f"experts.{index}.base_url", expert)]
    own = [(replica.base_url, replica.api_key_env or expert.api_key_env) for replica in expert.list_replicas()]
    copies = [expert.model_copy(update={"base_url": url, "api_key_env": key, "replicas": ()}) for url, key in own]
    return [(f"experts.{index}.replicas.{place}", copy) for place, copy in enumerate(copies)]


def _ping(expert: ExpertConfig) -> tuple[Literal["error", "warning"], str] | None:
    """The problem of an endpoint; None if it has none."""
    key = read_variable(expert.api_key_env)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    if "messages" in expert.capabilities:  # Anthropic's API needs these
        headers |= {"anthropic-version": ANTHROPIC_VERSION, **({"x-api-key": key} if key else {})}
    try:
        with urlopen(Request(f"{expert.base_url}/models", headers=headers), timeout=PING_TIMEOUT_S) as response:
            models = [str(model["id"]) for model in json.load(response)["data"]]
    except HTTPError as error:
        error.close()
        is_rejected = error.code in (401, 403)
        # 404 and the like are warnings: a server may have no /models
        level: Literal["error", "warning"] = "error" if is_rejected or error.code >= 500 else "warning"
        return level, f"/models answers {error.code}" + (": is its key right?" if is_rejected else "")
    except (URLError, TimeoutError) as error:
        is_late = isinstance(error, TimeoutError) or isinstance(error.reason, TimeoutError)
        return "error", f"no answer within {PING_TIMEOUT_S:g} s" if is_late else "nothing answers there"
    except (OSError, HTTPException) as error:
        return "error", f"no answer: {error}"
    except (ValueError, KeyError, TypeError):
        return "warning", "/models does not answer as OpenAI's API does"
    if expert.served_model in models:
        return None
    listed = ", ".join(models[:10]) or "none"
    return "warning", f"has no model {expert.served_model!r}, only {listed}: name one in `model`"


def _check_names(config: Config, known: Sequence[str]) -> Iterator[Finding]:
    """Experts without an endpoint, and experts that the router does not know."""
    named = config.by_name
    if not set(known) & set(named):
        yield Finding("error", "experts", f"the router knows none of them: use its names, {name_some(known)}")
        return
    if missing := [name for name in known if name not in named]:
        text = f"no endpoint for {name_some(missing)}, which the router knows: such prompts go to another candidate, to"
        yield Finding("warning", "experts", f"{text} routing.default, or get an error")
    for index, name in enumerate(named):
        if name not in known:
            text = f"the router does not know {name!r}: {suggest_name(name, missing)}it answers only requests by name, "
            yield Finding("warning", f"experts.{index}.name", f"{text}as default or as fallback")
