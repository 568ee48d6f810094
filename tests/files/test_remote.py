"""Addresses: passwords and keys never appear in messages."""

from pathlib import Path

import pytest

from ir3de.corpora import read_texts
from ir3de.errors import ArtifactError, InputError
from ir3de.files.remote import hide_secrets, open_fsspec
from ir3de_gateway.admin.router_source import AddressSource, FetchBudget

SECRET = "sesame"


@pytest.mark.parametrize(
    "address",
    ["ftp://u:sesame@host/a", "ftp://u:x@sesame@host/a", "simplecache::ftp://u:sesame@host/a", "s3://b/a?key=sesame"],
)
def test_secrets_are_hidden(address: str) -> None:
    assert SECRET not in hide_secrets(address)
    assert SECRET not in hide_secrets(f"error in {address}: try again") and "try again" in hide_secrets("try again")


def test_an_unknown_scheme_is_refused_without_its_password() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(InputError, match=r"cannot open nosuch://host/a: .*s3://") as refused:
        open_fsspec(f"nosuch://u:{SECRET}@host/a?key={SECRET}")
    assert SECRET not in str(refused.value)
    pytest.importorskip("pyarrow")
    with pytest.raises(InputError, match=r"nosuch://host/a: cannot be read .cannot open nosuch") as refused:
        list(read_texts([f"nosuch://u:{SECRET}@host/a"]))
    assert SECRET not in str(refused.value)


def test_what_a_file_system_says_is_shown_without_its_password(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")

    class Talkative(fsspec.AbstractFileSystem):  # type: ignore[misc]
        def open(self, path: str, *_: object, **__: object) -> object:
            raise PermissionError(f"no access to talk://u:{SECRET}@host/{path}?key={SECRET}")

    fsspec.register_implementation("talk", Talkative, clobber=True)
    with pytest.raises(
        ArtifactError, match=r"cannot read talk://host/r/router.json: PermissionError: no acc"
    ) as refused:
        AddressSource(f"talk://u:{SECRET}@host/r", tmp_path).read_header(FetchBudget())
    assert SECRET not in str(refused.value)
