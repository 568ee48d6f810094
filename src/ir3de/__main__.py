"""`ir3de` and `python -m ir3de`: the command line. Ctrl-C ends it without a traceback, also while it imports."""

from __future__ import annotations

import os

INTERRUPTED_EXIT_CODE = 130  # 128 + SIGINT, as in a shell

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
        signal.signal(signal.SIGINT, handler)  # from here on commands tidy up
    run_commands()


def _leave(*_: object) -> None:
    os._exit(INTERRUPTED_EXIT_CODE)  # nothing is open yet, or all is written


if __name__ == "__main__":
    main()
