"""`ir3de` and `python -m ir3de`: the command line. Ctrl-C ends it without a traceback, also while it imports."""

from __future__ import annotations

import os
import sys

INTERRUPTED_EXIT_CODE = 130  # 128 + SIGINT, as in a shell
INTERRUPT_DELAY_S = 0.05

try:
    import signal
except KeyboardInterrupt:  # this early there is no handler yet
    os._exit(INTERRUPTED_EXIT_CODE)


def main() -> None:
    """Import the command line and run it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job of a shell: it stays so
        _run()
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        _run(signal.default_int_handler)
    except KeyboardInterrupt:
        os._exit(INTERRUPTED_EXIT_CODE)
    finally:
        signal.signal(signal.SIGINT, _leave)  # for what Python does at its end


def _run(handler: signal._HANDLER | None = None) -> None:
    from ir3de.cli import main as run_commands

    if handler is not None:
        sys.unraisablehook = _interrupt_again
        signal.signal(signal.SIGINT, handler)  # from here on commands tidy up
    run_commands()


def _interrupt_again(lost: sys.UnraisableHookArgs) -> None:
    """Python drops a Ctrl-C that comes in a finaliser or in a callback, of which imports have many: it comes again."""
    if not issubclass(lost.exc_type, KeyboardInterrupt) or os.name != "posix":
        sys.__unraisablehook__(lost)
        return
    import threading

    # later and from elsewhere: here it would be dropped once more. A signal also ends a read that waits
    again = threading.Timer(INTERRUPT_DELAY_S, os.kill, (os.getpid(), signal.SIGINT))
    again.daemon = True
    again.start()


def _leave(*_: object) -> None:
    os._exit(INTERRUPTED_EXIT_CODE)  # nothing is open yet, or all is written


if __name__ == "__main__":
    main()
