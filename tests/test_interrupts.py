"""Ctrl-C: heeded and quiet, even where a C library loses it."""

import ctypes
import signal
import sys

import pytest

from lbo.interrupts import interrupts

CALLBACK = ctypes.CFUNCTYPE(None)


@CALLBACK
def struck():
    signal.raise_signal(signal.SIGINT)


@CALLBACK
def at_fault():
    raise ValueError("a fault of the callback")


@pytest.fixture(autouse=True)
def _interruptible():
    """Python's own handling of Ctrl-C, also where the tests were started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def state():
    return signal.getsignal(signal.SIGINT), sys.unraisablehook


def test_an_interrupt_is_raised_at_once_and_nothing_stays_changed():
    before = state()
    with interrupts() as heed:
        heed()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert state() == before


def test_an_interrupt_that_a_callback_lost_is_heeded_and_not_printed(monkeypatch):
    printed = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: printed.append(lost.exc_type))
    with interrupts() as heed:
        struck()
        assert not printed
        with pytest.raises(KeyboardInterrupt):
            heed()
    struck()
    assert printed == [KeyboardInterrupt]  # the control: outside it is printed


def stumble():
    try:
        signal.raise_signal(signal.SIGINT)
    except BaseException:
        raise IndexError("of a library that was struck") from None


def test_an_error_that_a_library_makes_of_an_interrupt_is_an_interrupt():
    before = state()
    with pytest.raises(KeyboardInterrupt), interrupts():
        stumble()
    assert state() == before


def test_an_error_of_its_own_stays_one():
    with pytest.raises(ZeroDivisionError), interrupts():
        _ = 1 / 0


def test_other_faults_of_a_callback_are_still_printed(monkeypatch):
    printed = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: printed.append(lost.exc_type))
    with interrupts():
        at_fault()
    assert printed == [ValueError]
