"""The error family. One message form: which argument, what it must be, what it was, what to do."""

from __future__ import annotations

from typing import Any

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "FileFormatError",
    "KernelError",
    "MLayerError",
    "MissingDataError",
    "MissingPackageError",
    "UnwritableError",
]


class MLayerError(Exception):
    """Base of every error that mlayer raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as it is: joblib brings the errors of its processes back that way.

        >>> import pickle
        >>> pickle.loads(pickle.dumps(ArgumentError("n", "above 0", "-1", "Use 1.")))
        ArgumentError('n must be above 0; got -1. Use 1.')
        """
        attributes = dict(self.__dict__)
        if isinstance(self, OSError):
            attributes["errno"] = self.errno
        return _copy, (type(self), self.args, attributes)


def _copy(kind: type[MLayerError], args: tuple[Any, ...], attributes: dict[str, Any]) -> MLayerError:
    error = kind.__new__(kind)
    error.args = args
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


class ArgumentError(MLayerError, ValueError):
    """An argument has the right type but a value that cannot be used."""

    def __init__(self, argument: str, must_be: str, got: str, hint: str) -> None:
        super().__init__(_message(argument, must_be, got, hint))
        self.argument = argument


class ArgumentTypeError(MLayerError, TypeError):
    """An argument has a type that cannot be used."""

    def __init__(self, argument: str, must_be: str, got: str, hint: str) -> None:
        super().__init__(_message(argument, must_be, got, hint))
        self.argument = argument


class KernelError(MLayerError, RuntimeError):
    """The compiled kernel is not available, or failed."""


class FileFormatError(MLayerError, ValueError):
    """A file cannot be read as what it should be: foreign, truncated, changed or too new."""

    def __init__(self, path: object, must_be: str, got: str, hint: str) -> None:
        super().__init__(_message(f"the file {path}", must_be, got, hint))
        self.path = path


def check_format(path: object, version: int, known: int, layout: str = "format") -> None:
    """Raise if a file has a later version of its layout than this program knows."""
    if version > known:
        raise FileFormatError(
            path,
            f"of {layout} {known} or older",
            f"{layout} {version}, written by a newer mlayer",
            "Upgrade: pip install --upgrade mlayer",
        )


class UnwritableError(MLayerError, OSError):
    """The system refused to write a file: a full disk, a folder without permission or without the disk.

    Attributes:
        why: the system's reason.
        errno: the system's number of it.
    """

    def __init__(self, path: object, error: OSError, hint: str = "") -> None:
        self.why = error.strerror or str(error)
        super().__init__(
            _message(
                f"the file {path}",
                "in a place that can be written",
                f"{type(error).__name__}: {self.why}",
                hint or "What was there is unchanged: free some space or name another place, then try again.",
            )
        )
        self.errno = error.errno


class MissingDataError(MLayerError, FileNotFoundError):
    """A file of a data set is not where it is looked for, and could not be fetched."""


class MissingPackageError(MLayerError, ImportError):
    """A feature needs a package that is not installed."""

    def __init__(self, feature: str, package: str, install: str) -> None:
        super().__init__(
            f"{feature} needs the package {package}, which is not installed. Install it: {install}"
        )


_LONGEST = 600  # characters of a wrong value that a message shows
_LONGEST_QUOTED = 300  # characters of another error that a message quotes


def in_one_line(error: object) -> str:
    r"""The message of another error, as a part of a sentence.

    Those of libraries may have many lines, and quote bytes of a file or a server that would steer a terminal.

    >>> in_one_line(RuntimeError("Error(s) in loading:\n\tsize mismatch"))
    'Error(s) in loading: size mismatch'
    >>> print(in_one_line("Not \x1b[31mFound"))
    Not \x1b[31mFound
    """
    said = " ".join(str(error).split())[:_LONGEST_QUOTED] or type(error).__name__
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in said)


def _message(argument: str, must_be: str, got: str, hint: str) -> str:
    if len(got) > _LONGEST:
        got = f"{got[: _LONGEST // 2]} ... {got[-_LONGEST // 4 :]} ({len(got)} characters)"
    return f"{argument} must be {must_be}; got {got}. {hint}"
