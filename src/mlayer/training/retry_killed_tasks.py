"""Tasks through joblib when processes may be killed: finished ones are kept, lost ones are tried again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from traceback import format_exception
from typing import Any

from mlayer.errors import ArgumentError, ArgumentTypeError, MLayerError

# First all together, then what is missing once more, then each alone: one that kills its process every time
# must not end the others. Alone twice: one that was lost with others may meet its own accident only then.
_TOGETHER, _ALONE = 2, 2
# What would end a loop over results instead of being raised by it.
_ENDS = (StopIteration, StopAsyncIteration)


class RunFailedError(MLayerError, RuntimeError):
    """A run in another process ended with an error that cannot be brought back; its traceback is a note."""


def sendable(error: BaseException, what: str) -> BaseException:
    """``error`` with a note of the run, or one that says the same if it cannot be carried back as it is.

    A worker that cannot send its error, or whose error cannot be built again, would look like a killed one.
    ``sys.exit`` of a worker would end the program that waits for it, with whatever code; so would the other
    errors that only ask for an end, and StopIteration would end the loop over results.
    """
    if isinstance(error, KeyboardInterrupt):  # of a person, who has interrupted all processes
        error.add_note(what)
        return error
    from multiprocessing.reduction import ForkingPickler

    from joblib.externals.loky.backend.reduction import dumps

    try:
        error.add_note(what)
        came = ForkingPickler.loads(dumps(error))
        str(came)
    except Exception:  # any exception of a user's class
        came = None
    if type(came) is type(error) and isinstance(error, Exception) and not isinstance(error, _ENDS):
        return error
    failed = RunFailedError(f"{what} ended with {type(error).__name__}: {words(error)}")
    failed.add_note(_told(error)[-2000:])
    return failed


def words(error: BaseException) -> str:
    """The message of an error, whatever its class makes of that."""
    try:
        return str(error)
    except Exception as another:
        return f"(no message: its __str__ raises {type(another).__name__})"


def _told(error: BaseException) -> str:
    try:
        return "".join(format_exception(error))
    except Exception as another:  # of a class that has other errors inside, say
        return f"(no traceback: {type(another).__name__})"


class Packed:
    """Arguments on their way to another process. What cannot go there, or not be made there, is named.

    joblib alone would end in a raw error of pickle, or, where only unpacking fails, in a dead process.
    """

    def __init__(self, **arguments: Any) -> None:
        self._data = {name: _dumped(name, "an object that", value) for name, value in arguments.items()}

    def __call__(self) -> list[Any]:
        """The arguments, in their order."""
        return [_loaded(name, "an object that", data) for name, data in self._data.items()]


def check_sendable(argument: str, value: Any, what: str) -> None:
    """Raise if joblib cannot carry ``value`` to another process and make it there again."""
    what = f"a callable that returns {what}"
    _loaded(argument, what, _dumped(argument, what, value))


def _dumped(argument: str, what: str, value: Any) -> bytes:
    from joblib.externals.loky.backend.reduction import dumps

    with _refused(argument, what):
        return bytes(dumps(value))


def _loaded(argument: str, what: str, data: bytes) -> Any:
    from multiprocessing.reduction import ForkingPickler

    with _refused(argument, what):
        return ForkingPickler.loads(data)


@contextmanager
def _refused(argument: str, what: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # any exception of a user's class
        raise ArgumentTypeError(
            argument,
            f"{what} can be pickled and made again, to go between processes",
            f"one with a part that cannot ({type(error).__name__}: {words(error)[:200]})",
            "Keep locks, files and generators out of it, or use n_jobs=1.",
        ) from None


def all_done(tasks: Sequence[Any], n_jobs: int | None, found: dict[int, Any]) -> None:
    """Fill ``found`` with the results of joblib's tasks; one is missing if its process was killed every time.

    Task i returns (i, result); results are filled in as they come.
    """
    for _ in range(_TOGETHER):
        missing = [task for i, task in enumerate(tasks) if i not in found]
        if not missing or _gathered(missing, n_jobs, found):
            return
    for i, task in enumerate(tasks):
        if i not in found:
            any(_gathered([task], n_jobs, found) for _ in range(_ALONE))


def _gathered(tasks: Iterable[Any], n_jobs: int | None, found: dict[int, Any]) -> bool:
    """Add results to ``found`` as they come; False if a process was lost."""
    import joblib

    parallel = joblib.Parallel(n_jobs=n_jobs, mmap_mode="c", return_as=_one_by_one(n_jobs))
    try:
        for i, result in parallel(tasks):
            found[i] = result  # noqa: PERF403 - one by one: those before a loss are kept
    except Exception as error:
        if not _is_loss(error):
            raise
        return False
    return True


def _one_by_one(n_jobs: int | None) -> str:
    """Results as they come, where the back end can; Ray's returns all at the end."""
    import joblib

    backend = joblib.Parallel(n_jobs=n_jobs)._backend
    return "generator_unordered" if getattr(backend, "supports_return_generator", False) else "list"


def _is_loss(error: BaseException) -> bool:
    """Whether a process failed, not the work: the errors of Loky, Ray and Dask."""
    if isinstance(error, BrokenExecutor):
        return True
    kinds = {kind.__name__ for kind in type(error).__mro__}
    ray = {"WorkerCrashedError", "RayActorError", "ActorDiedError", "OutOfMemoryError", "NodeDiedError"}
    ray |= {"ObjectLostError", "LocalRayletDiedError"}  # the machine that held a result is gone
    dask = {"KilledWorker", "CommClosedError", "FutureCancelledError", "FuturesCancelledError"}
    return bool(kinds & (ray | dask)) and "torch" not in type(error).__module__


def stays_here(n_jobs: int | None) -> bool:
    """Whether the tasks run in this process: one by one, or in its threads."""
    import joblib

    parallel = joblib.Parallel(n_jobs=n_jobs)
    if parallel.n_jobs == 1 or getattr(parallel._backend, "uses_threads", False):
        return True
    if type(parallel._backend).__name__ == "MultiprocessingBackend":  # its subclass of Ray notices
        raise ArgumentError(
            "the back end of joblib",
            "one that notices when a process is killed",
            "'multiprocessing', which would wait for it without end",
            "Use 'loky', which is joblib's own choice, 'ray' or 'dask'.",
        )
    return False
