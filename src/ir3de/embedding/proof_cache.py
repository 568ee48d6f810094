"""Proofs made on this machine, because it has another version of the fast engine than the saved proof is about.

A proof takes seconds, so it is made once for each tokenizer and engine, not at every load.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from contextlib import suppress

from ir3de.embedding.proof import Proof
from ir3de.errors import ArtifactError
from ir3de.storage import files

KIND, VERSION = "ir3de.proof", 1


def get_proof(tokenizer_sha256: str, engine_version: str, make: Callable[[], Proof | None]) -> Proof | None:
    """The proof from this user's cache; otherwise it is made, and kept there. None: the engine may not be used."""
    unicode_version = unicodedata.unidata_version  # a proof walks through Unicode as this Python knows it
    name = f"{tokenizer_sha256[:32]}-{engine_version}-unicode-{unicode_version}.json"
    path = files.user_cache("proofs") / name
    with suppress(ArtifactError, KeyError, TypeError):  # a cache that cannot be read is not there
        header = files.read_json(path, kind=KIND, version=VERSION)
        files.check_seal(header, path)
        return None if header["proof"] is None else Proof(**header["proof"])
    proof = make()
    with suppress(ArtifactError):  # a home folder may be read-only
        files.make_folder(path.parent)
        described = None if proof is None else proof.to_dict()
        files.write(path, files.to_json(files.seal({"kind": KIND, "version": VERSION, "proof": described})))
    return proof
