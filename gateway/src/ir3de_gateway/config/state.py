"""What outlives a gateway, and what several machines share: `state` of the configuration."""

from __future__ import annotations

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Discriminator, Field, Tag, model_validator

from ir3de.errors import InputError
from ir3de_gateway.config.experts import FilePath, Part, Variable, read_variable

STORE_TAG, FOLDER_TAG = TAGS = ("(store)", "(folder)")  # pydantic puts them among the names of fields
SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster")


class SharedState(Part):
    """A store that several machines share, and what to do while it is away."""

    store: str | None = None
    """Address of a Redis or Valkey, without a password: redis://host:6379/0, rediss:// for TLS, unix:///path,
    redis+cluster:// for a cluster."""
    store_env: Variable | None = None
    """Environment variable that holds the address, where it has a password."""
    prefix: str = Field("ir3de", pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    """How the keys in the store begin. Gateways with the same prefix share everything."""
    timeout: float = Field(1.0, gt=0, le=60)
    """Seconds to wait for the store; then it is away, until it answers again."""
    on_failure: Literal["open", "closed"] = "open"
    """While the store is away: `open` lets each worker admit requests of keys by itself, within `allowance`; `closed`
    answers them with an error. Requests without counted keys go on in both cases."""
    allowance: float = Field(0.2, gt=0, le=1)
    """The share of each limit of a key that each worker may use by itself while the store is away."""
    folder: FilePath | None = None
    """Folder of this machine: routers that were fetched or made through /admin; by default `ir3de-state` next to this
    file."""

    @model_validator(mode="after")
    def _has_one_address(self) -> Self:
        if (self.store is None) == (self.store_env is None):
            raise ValueError("state needs either `store` or `store_env`: the address of the store")
        if self.store is not None:
            check_address(self.store)
            if urlsplit(self.store).password:
                raise ValueError("state.store has a password: put the address into a variable, named in store_env")
        return self

    def read_address(self) -> str:
        """The address of the store; an `InputError` if the variable has none."""
        if self.store is not None:
            return self.store
        address = read_variable(self.store_env)
        if address is None:
            raise InputError(f"state.store_env: the variable {self.store_env} is not set: it holds the store's address")
        try:
            check_address(address)
        except ValueError as error:
            raise InputError(f"the variable {self.store_env}: {error}") from None
        return address


def _find_kind(value: object) -> str:
    return STORE_TAG if isinstance(value, dict | SharedState) else FOLDER_TAG


StateLocation = Annotated[
    Annotated[SharedState, Tag(STORE_TAG)] | Annotated[FilePath, Tag(FOLDER_TAG)], Discriminator(_find_kind)
]


def check_address(address: str) -> None:
    """Raise a `ValueError` unless it is the address of a store."""
    try:
        parts = urlsplit(address)
        has_host = bool(parts.hostname) if parts.scheme != "unix" else parts.path.startswith("/")
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"the address of the store cannot be read: {error}") from None
    if parts.scheme not in SCHEMES:
        found = parts.scheme or "none"
        raise ValueError(f"the address of the store begins with one of {', '.join(SCHEMES)}, and not {found!r}")
    if not has_host:
        raise ValueError("the address of the store names no host: redis://host:6379/0")
