"""Changes of keys through /admin: they lie over the keys file, which is never written."""

from __future__ import annotations

import hashlib
import secrets
from typing import NamedTuple

from pydantic import ValidationError

from ir3de.errors import InputError
from ir3de_gateway.keys.keys_file import KeyEntry, KeysFile

KEY_BEGINNING = "sk-ir3de-"  # some clients accept only keys that begin with sk-
KEY_BYTES = 32
OVERLAP_S = 86_400.0  # that the secret before a rotation works


def make_secret() -> str:
    """A random key."""
    return KEY_BEGINNING + secrets.token_urlsafe(KEY_BYTES)


def hash_secret(secret: str) -> str:
    """The hash of a key as keys files have it."""
    return f"sha256:{hashlib.sha256(secret.encode()).hexdigest()}"


class KeyChanges(NamedTuple):
    """What /admin changed of the keys."""

    changed: tuple[KeyEntry, ...] = ()  # added, or replacing keys of the same name in the file
    removed: tuple[str, ...] = ()

    def apply_to(self, file: KeysFile) -> KeysFile:
        """The keys in force; an `InputError` if file and changes have the same secret."""
        changed = {entry.name: entry for entry in self.changed}
        kept = [changed.pop(own.name, own) for own in file.keys if own.name not in self.removed]
        try:
            return KeysFile(keys=(*kept, *changed.values()))
        except ValidationError as error:
            text = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise InputError(f"the keys file and the keys of /admin do not fit together: {text}") from None

    def with_key(self, entry: KeyEntry) -> KeyChanges:
        """The changes with that key, which replaces one of the same name."""
        others = tuple(own for own in self.changed if own.name != entry.name)
        return KeyChanges((*others, entry), tuple(name for name in self.removed if name != entry.name))

    def without(self, name: str, file: KeysFile) -> KeyChanges:
        """The changes without that key, which the file may have."""
        gone = (name,) if name not in self.removed and any(own.name == name for own in file.keys) else ()
        return KeyChanges(tuple(own for own in self.changed if own.name != name), (*self.removed, *gone))


NO_CHANGES = KeyChanges()
