"""The /admin endpoints that add, change, rotate and remove keys of clients."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from threading import Event
from time import time
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ir3de.errors import name_some
from ir3de_gateway.admin.changes import AdminState, Changed
from ir3de_gateway.admin.routes import get_administration, make_change, read, respond
from ir3de_gateway.admin.state import StateFolder
from ir3de_gateway.api_errors import ApiError, validate
from ir3de_gateway.config.experts import Name, Part
from ir3de_gateway.keys.key_changes import OVERLAP_S, KeyChanges, hash_secret, make_secret
from ir3de_gateway.keys.keys_file import Hash, KeyEntry, KeyLimits, Moment, Scope
from ir3de_gateway.keys.registry import KeyRegistry, describe_key, format_moment

_CONTROLS = ("merge", "rotate", "overlap")


class KeyAddition(Part):
    """A key to add, or a change of one that exists."""

    name: Name
    """Its name, for logs, metrics and traces."""
    hash: Hash | None = None
    """SHA-256 of a key that you have made, sha256:…; without it, the gateway makes one, and the answer has it."""
    scopes: tuple[Scope, ...] = ("inference", "route", "models")
    """What it may do."""
    experts: tuple[str, ...] | None = None
    """The experts that may answer it; by default all."""
    expires: Moment | None = None
    """The day until which it works (UTC), or the moment."""
    disabled: Annotated[bool, Field(strict=True)] = False
    """Whether it is rejected."""
    limits: KeyLimits = KeyLimits()
    """How much it may use."""
    merge: Annotated[bool, Field(strict=True)] = False
    """Change the given fields of a key that exists; its secret stays."""
    rotate: Annotated[bool, Field(strict=True)] = False
    """Give a key that exists a new secret. The one before works for some time."""
    overlap: float = Field(OVERLAP_S, ge=0, le=31_536_000)
    """Seconds that the secret before works after a rotation."""

    def list_fields(self) -> dict[str, Any]:
        """The fields of a key that were given."""
        return {name: getattr(self, name) for name in self.model_fields_set if name not in _CONTROLS}


async def add_key(request: Request) -> Response:
    """Add a key, or change or rotate one that exists. The answer has its secret, if the gateway has made one."""
    administration, keys, given = get_administration(request), _get_keys(request), await read(KeyAddition, request)
    secret = None
    if given.hash is None and (given.rotate or not given.merge):
        secret = make_secret()
        given = validate(KeyAddition, given.model_dump(mode="json", exclude_unset=True) | {"hash": hash_secret(secret)})
    elif given.hash is not None and given.merge and not given.rotate:
        raise ApiError(422, "hash: send rotate: true to give the key another secret", "invalid_field", "hash")
    action = "rotate key" if given.rotate else "change key" if given.merge else "add key"
    await make_change(request, partial(change_key, given, keys), action=action, key=given.name)
    key = next(key for key in keys.list_all() if key.name == given.name)
    shown = await describe_key(key, list(administration.current.experts))
    is_new = not given.rotate and not given.merge
    return respond(administration, shown | ({"key": secret} if secret else {}), status=201 if is_new else 200)


async def remove_key(request: Request) -> Response:
    """Remove a key. What it has used stays known by its name."""
    administration, keys, name = get_administration(request), _get_keys(request), request.path_params["name"]
    if name == request.state.key.name:
        raise ApiError(409, f"{name!r} is the key of this request: remove it with another one", "key_in_use")
    await make_change(request, partial(drop_key, name, keys), action="remove key", key=name)
    return respond(administration, {"name": name, "removed": True})


def change_key(given: KeyAddition, keys: KeyRegistry, now: AdminState, folder: StateFolder, stop: Event) -> Changed:
    """The state with a new key, or with a change of one that exists."""
    changes, before = now.state.key_changes, _find_entry(given.name, keys, now.state.key_changes)
    is_change = given.merge or given.rotate
    if before is None and is_change:
        message = f"no key {given.name!r} to change: leave out merge and rotate to add it"
        raise ApiError(404, message, "key_not_found", "name")
    if before is not None and not is_change:
        message = f"the key {given.name!r} exists already: send rotate: true for a new secret, or merge: true"
        raise ApiError(409, message, "exists")
    if unknown := sorted(set(given.experts or ()) - set(now.experts)):
        message = f"experts: there is no expert {unknown[0]!r}: there are {name_some(list(now.experts))}"
        raise ApiError(422, message, "invalid_field", "experts")
    fields = given.list_fields()
    if before is not None:
        fields = {name: getattr(before, name) for name in before.model_fields_set} | fields
    if given.rotate and before is not None:
        until = format_moment(time() + given.overlap)
        old = {"hash": before.hash, "key_env": before.key_env, "expires": until}
        fields |= {"key_env": None, "previous": old if given.overlap else None}
    changes = changes.with_key(KeyEntry.model_validate(fields))
    changes.apply_to(keys.file)  # raises if they do not fit together
    return _put(now, changes)


def drop_key(name: str, keys: KeyRegistry, now: AdminState, folder: StateFolder, stop: Event) -> Changed:
    """The state without a key."""
    if _find_entry(name, keys, now.state.key_changes) is None:
        raise ApiError(404, f"no key {name[:200]!r}: GET /admin/keys lists them", "key_not_found")
    return _put(now, now.state.key_changes.without(name, keys.file))


def _put(now: AdminState, changes: KeyChanges) -> Changed:
    return Changed(replace(now.state, keys=changes.changed, removed_keys=changes.removed))


def _find_entry(name: str, keys: KeyRegistry, changes: KeyChanges) -> KeyEntry | None:
    """The key of that name. Those in variables cannot be changed."""
    found = next((entry for entry in changes.apply_to(keys.file).keys if entry.name == name), None)
    if found is None and any(key.name == name and key.origin == "environment" for key in keys.list_all()):
        raise ApiError(409, f"the key {name!r} is in a variable of the gateway: change it there", "key_in_variable")
    return found


def _get_keys(request: Request) -> KeyRegistry:
    keys: KeyRegistry = request.app.state.gateway.keys
    if keys.path is None:
        message = "this gateway has no keys file: name one in server.keys_file, `keys: []` is enough, and restart it"
        raise ApiError(409, message, "no_keys_file")
    return keys


routes = [
    Route("/admin/keys", add_key, methods=["POST"]),
    Route("/admin/keys/{name:path}", remove_key, methods=["DELETE"]),
]
