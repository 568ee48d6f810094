"""Files: atomic writes and checked reads; the modules add tensors, the ledger, addresses, formats and saved routers."""

from ir3de.files.package import export_lazily

TYPE_CHECKING = False  # see `package`
if TYPE_CHECKING:
    from ir3de.files.atomic import (
        FolderBusyError,
        Header,
        check_file,
        check_kind,
        check_seal,
        check_sha256,
        copy,
        find_kind,
        lock_folder,
        make_folder,
        open_atomic,
        parse_json,
        read,
        read_json,
        seal,
        to_json,
        user_cache,
        write,
    )
else:
    __getattr__, __dir__ = export_lazily(
        __name__,
        {
            "atomic": "FolderBusyError Header check_file check_kind check_seal check_sha256 copy find_kind lock_folder "
            "make_folder open_atomic parse_json read read_json seal to_json user_cache write"
        },
    )

__all__ = [
    "FolderBusyError",
    "Header",
    "check_file",
    "check_kind",
    "check_seal",
    "check_sha256",
    "copy",
    "find_kind",
    "lock_folder",
    "make_folder",
    "open_atomic",
    "parse_json",
    "read",
    "read_json",
    "seal",
    "to_json",
    "user_cache",
    "write",
]
