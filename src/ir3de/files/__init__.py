"""Files: atomic writes and checked reads; the modules add tensors, the ledger, addresses, formats and saved routers.

`files.read` is `files.atomic.read`, and so on, imported when it is first used: every package imports `files.package`.
"""

from importlib import import_module

TYPE_CHECKING = False  # see `package`
if TYPE_CHECKING:
    from ir3de.files.atomic import *  # noqa: F403
else:

    def __getattr__(name: str) -> object:
        return getattr(import_module("ir3de.files.atomic"), name)
