"""Claims: `mlayer fit` takes at most 5 s of a core on ordinary tables, and keeps --time-limit.

    python benchmarks/fit_command.py               about three minutes on an idle machine
    python benchmarks/fit_command.py --quick       one small table; no file, no claims

Three parts, each with the whole command as a separate process, start and report included:

- seconds: processor time of a default fit of tables with up to 4,000 rows and 20 columns, less that of a fit
  of two iterations on the first of them, which is the start of Python and its libraries, and the report;
- limit: seconds over the limit asked for, with tables that take longer without one. Needs an idle machine;
- busy: while there are as many busy loops as there are cores, the default number of threads over one thread.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import table_data
from measure import Target, argument_parser, circumstances, finish

TABLES: dict[str, Callable[[], table_data.Case]] = {
    "houses": table_data.houses,
    "churn": table_data.churn,
    "law": table_data.law,
    "stores": table_data.stores,
    "twenty columns": table_data.twenty_columns,
}
LIMITS = (5, 8, 12)
# A long fit, to be cut short.
LONG = ("--effort", "thorough", "--epochs", "5000")


def fit(table: Path, target: str, *options: str, threads: int | None = 1) -> tuple[float, float]:
    """Seconds and processor seconds of a command, with compiled modules as an installed package has them."""
    environment = dict(os.environ)
    environment.pop("OMP_NUM_THREADS", None)
    if environment.pop("PYTHONDONTWRITEBYTECODE", None):
        environment.setdefault("PYTHONPYCACHEPREFIX", str(table.parent / "bytecode"))
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "mlayer", "fit", str(table), "-t", target, "-q", "--force"]
    command += ["-o", str(table.with_suffix(".safetensors")), *options]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - begin, used


@contextmanager
def busy_neighbors() -> Iterator[None]:
    """A busy loop for each core."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main() -> int:
    """Run, print, write, judge."""
    quick = argument_parser(__doc__, "a smoke run: no file, no claims").parse_args().quick
    record: dict[str, dict[str, float]] = {"seconds": {}, "limit": {}, "busy": {}}
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name, make in TABLES.items():
            case = make()
            files[name] = (Path(folder) / f"{name.replace(' ', '_')}.csv", case.target)
            case.train.to_csv(files[name][0], index=False)
        first = next(iter(files.values()))
        starts = [fit(*first, "--epochs", "2")[1] for _ in range(2 if quick else 4)][1:]  # the first warms up
        start = record["seconds"]["start and report"] = statistics.median(starts)
        print(f"start and report {start:5.2f} s of processor time")
        for name, (file, target) in list(files.items())[: 1 if quick else None]:
            record["seconds"][name] = fit(file, target)[1] - start
            print(f"{name:16} {record['seconds'][name]:5.2f} s of processor time more")
        for limit in LIMITS[: 1 if quick else None]:
            took, _ = fit(*files["twenty columns"], *LONG, "--time-limit", str(limit))
            record["limit"][str(limit)] = took / limit
            print(f"--time-limit {limit:2}   {took:5.2f} s")
        with busy_neighbors():
            turns = [
                (fit(*files["law"])[0], fit(*files["law"], threads=None)[0]) for _ in range(1 if quick else 5)
            ]
        alone, default = (statistics.median(seconds) for seconds in zip(*turns, strict=True))
        record["busy"]["default threads over one thread"] = default / alone
        print(f"beside busy loops: default threads {default:.2f} s, one thread {alone:.2f} s")
    if quick:
        print("quick: a smoke run, nothing is judged")
        return 0
    fits = [value for name, value in record["seconds"].items() if not name.endswith("report")]
    targets = [
        Target("processor seconds of the slowest default fit", 5, max(fits), at_most=True),
        Target("seconds over the limit asked for, at most", 1.2, max(record["limit"].values()), at_most=True),
        Target("beside busy loops, default threads over one", 1.3, default / alone, at_most=True),
    ]
    return finish("fit_command", {"circumstances": circumstances(), **record}, targets)


if __name__ == "__main__":
    sys.exit(main())
