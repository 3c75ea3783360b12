"""The error family. One message form: which argument, what it must be, what came, what to do."""

from __future__ import annotations

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "FileFormatError",
    "KernelError",
    "MLayerError",
    "MissingDataError",
    "MissingPackageError",
]


class MLayerError(Exception):
    """Base of every error that mlayer raises on purpose."""


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
    """The compiled kernel is not to be had, or failed."""


class FileFormatError(MLayerError, ValueError):
    """A file cannot be read as what it should be: foreign, truncated, changed or too new."""

    def __init__(self, path: object, must_be: str, got: str, hint: str) -> None:
        super().__init__(_message(f"the file {path}", must_be, got, hint))
        self.path = path


class MissingDataError(MLayerError, FileNotFoundError):
    """A file of a data set is not where it is looked for, and could not be fetched."""


class MissingPackageError(MLayerError, ImportError):
    """A feature needs a package that is not installed."""

    def __init__(self, feature: str, package: str, install: str) -> None:
        super().__init__(
            f"{feature} needs the package {package}, which is not installed. Install it: {install}"
        )


def _message(argument: str, must_be: str, got: str, hint: str) -> str:
    return f"{argument} must be {must_be}; got {got}. {hint}"
