"""Ctrl-C inside a library that makes something else of it: a C library's callback forgets it, a driver stumbles."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interrupts() -> Iterator[Callable[[], None]]:
    """Ctrl-C interrupts at once, wherever it strikes.

    One that a callback lost is not printed, but raised when what is yielded is called. An error that a library makes of
    one (a database driver struck while it opened a cursor, say) is an interrupt again when it arrives here.
    """
    struck = threading.Event()

    def strike(*_: object) -> None:
        struck.set()
        raise KeyboardInterrupt

    def heed() -> None:
        if struck.is_set():
            raise KeyboardInterrupt from None

    def lost(unraisable: sys.UnraisableHookArgs) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            print_lost(unraisable)

    if threading.current_thread() is not threading.main_thread():  # where signals do not arrive
        yield heed
        return
    handle, print_lost = signal.signal(signal.SIGINT, strike), sys.unraisablehook
    sys.unraisablehook = lost
    try:
        yield heed
    except Exception:
        heed()
        raise
    finally:
        sys.unraisablehook = print_lost
        signal.signal(signal.SIGINT, handle)
