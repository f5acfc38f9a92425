"""The exceptions a user of lbo can meet; each message states the rule, what came, and the cure."""


class LboError(Exception):
    """Any error that lbo raises on purpose."""


class MissingExtra(LboError, ImportError):
    """An optional package is needed that is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"This needs the package {package!r}, which is not installed. "
                         f"Run: pip install 'lbo[{extra}]'")  # fmt: skip


class SpaceError(LboError, ValueError):
    """A search space that cannot be searched, or that contradicts its own past."""


class StreamError(LboError, ValueError):
    """A stream or task asked for something that its past forbids."""


class MemoryDamaged(LboError):
    """A stored memory that does not read back as what was written."""


class CannotWrite(LboError, OSError):
    """A file or folder of results cannot be written where it was asked for."""

    def __init__(self, path: object, error: OSError) -> None:
        super().__init__(f"{str(path)!r} cannot be written to: {error.strerror}. Name another place for the results.")
