"""No test depends on what differs between machines: last bits, seconds, the number of cores.

Read from the syntax of the tests. A library may round otherwise for another batch, another row of it, another
thread count or processor, so two results may be compared to the bit only where one repeats the other, or was
copied, or read back from a file. Three kinds need a reason on their line or above it, `# exact: why`:

- an exact comparison of two results of which one was computed from a part of the data (a row, a slice, a
  permutation, a repetition) and the other was not;
- one of two places of the same result;
- one of two texts or files, which may hold numbers that were computed.

What is equal by chance here is provoked by `python tools/machines.py` (tests/other_bits.py), which no reading
replaces. Nobody asks how many cores there are, and clocks and limits shorter than a hang are for tests marked
slow, or have `# clock: why` there.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
HANGS = 600  # seconds: an end that nobody waits for says that something hangs, no more
EXACT = {"equal", "array_equal", "array_equiv", "assert_array_equal", "assert_equal"}
NUMBERS = {"tolist", "item", "float", "tobytes"}
TEXTS = {"read_text", "read_bytes", "to_csv", "getvalue"}
PARTS = {
    *("array_split", "cat", "chunk", "concat", "concatenate", "flip", "hstack", "index_select"),
    *(
        "permutation",
        "randperm",
        "repeat",
        "repeat_interleave",
        "reversed",
        "roll",
        "split",
        "stack",
        "vstack",
    ),
}
CLOCKS = {"time", "time_ns", "monotonic", "perf_counter", "perf_counter_ns", "process_time", "thread_time"}
CORES = {"cpu_count", "process_cpu_count", "sched_getaffinity", "getloadavg"}
LIMITS = {"alarm", "no_hang"}
DEPTH = 3  # assignments that are followed back from a comparison
Values = dict[str, list[ast.expr]]


def called(node: ast.AST) -> str:
    """The name of the function that is called, without its module; empty for other expressions."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def is_zero(call: ast.Call, name: str) -> bool:
    given = [keyword.value for keyword in call.keywords if keyword.arg == name]
    return any(isinstance(value, ast.Constant) and value.value == 0 for value in given)


def compared(node: ast.AST) -> list[ast.expr]:
    """The two sides of an exact comparison of numbers, texts or files; nothing for other expressions."""
    if isinstance(node, ast.Call):
        if called(node) in EXACT:
            method = len(node.args) == 1 and isinstance(node.func, ast.Attribute)
            return [node.func.value, *node.args] if method else node.args[:2]  # type: ignore[attr-defined]
        if is_zero(node, "rtol") and is_zero(node, "atol"):
            return node.args[:2]
        if called(node) == "all" and isinstance(node.func, ast.Attribute):
            node = node.func.value
            return sides(node) if isinstance(node, ast.Compare) else []
    if isinstance(node, ast.Compare):
        both = sides(node)
        return both if {called(side) for side in both} & (NUMBERS | TEXTS) else []
    return []


def sides(node: ast.Compare) -> list[ast.expr]:
    return [node.left, node.comparators[0]] if [type(op) for op in node.ops] == [ast.Eq] else []


def assignments(function: ast.AST) -> Values:
    found: Values = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            whole = node.value.elts if isinstance(node.value, ast.Tuple) else []
            values = whole if len(whole) == len(names) else [node.value] * len(names)
            for name, value in zip(names, values, strict=True):
                if isinstance(name, ast.Name):
                    found.setdefault(name.id, []).append(value)
    return found


def is_part(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript):
        key = isinstance(node.slice, ast.JoinedStr) or (
            isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
        )
        return not key and "None" not in ast.unparse(node.slice)
    return called(node) in PARTS


def parts(expression: ast.expr, values: Values, depth: int = DEPTH) -> set[str]:
    """Parts of something that are given to the functions that compute an expression."""
    found = set()
    for node in ast.walk(expression):
        if isinstance(node, ast.Call) and called(node) not in PARTS:
            for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                given = [argument]
                for name in ast.walk(argument):
                    given += values.get(name.id, []) if isinstance(name, ast.Name) else []
                found |= {ast.unparse(part) for one in given for part in ast.walk(one) if is_part(part)}
        if depth and isinstance(node, ast.Name):
            for value in values.get(node.id, []):
                found |= parts(value, values, depth - 1)
    return found


def of_text(expression: ast.expr, values: Values) -> set[str]:
    """The text or file that an expression is, by its own name or one it was given."""
    known = values.get(expression.id, []) if isinstance(expression, ast.Name) else [expression]
    return {ast.unparse(one) for one in known if called(one) in TEXTS}


def written_out(expression: ast.expr, values: Values) -> bool:
    """A number or a list that stands in the test, computed by nobody."""
    names = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
    calls = any(isinstance(node, ast.Call | ast.Subscript) for node in ast.walk(expression))
    return not calls and names <= {"math", "np", "torch"} - set(values)


def doubtful(node: ast.AST, values: Values) -> bool:
    both = compared(node)
    if len(both) < 2 or any(written_out(side, values) or called(side) == "approx" for side in both):
        return False
    texts = [of_text(side, values) for side in both]
    if all(texts):
        return not texts[0] & texts[1]
    if any(texts):
        return False
    if parts(both[0], values) != parts(both[1], values):
        return True
    one, other = both
    places = isinstance(one, ast.Subscript) and isinstance(other, ast.Subscript)
    return places and is_part(one) and ast.dump(one.value) == ast.dump(other.value)  # type: ignore[attr-defined]


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """The functions of a module and the methods of its classes; inner ones belong to them."""
    for node in tree.body:
        body = node.body if isinstance(node, ast.ClassDef) else [node]
        yield from (one for one in body if isinstance(one, ast.FunctionDef))


def of_bits(tree: ast.Module) -> Iterator[ast.expr]:
    for function in functions(tree):
        nodes = list(ast.walk(function))
        exact = [node for node in nodes if isinstance(node, ast.expr) and compared(node)]
        values = assignments(function) if exact else {}
        negated = [node for node in nodes if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)]
        denied = {id(node.operand) for node in negated}  # that two things differ is no claim about bits
        yield from (node for node in exact if id(node) not in denied and doubtful(node, values))


def of_time(tree: ast.Module) -> Iterator[ast.expr]:
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    slow = {
        id(node)
        for function in functions(tree)
        if any("slow" in ast.unparse(mark) for mark in function.decorator_list)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or id(node) in slow:
            continue
        limits = [keyword.value for keyword in node.keywords if keyword.arg in ("timeout", "deadline")]
        limits += node.args[:1] if called(node) in LIMITS else []
        known = [constants.get(limit.id, limit) if isinstance(limit, ast.Name) else limit for limit in limits]
        numbers = [limit.value for limit in known if isinstance(limit, ast.Constant)]
        short = [x for x in numbers if isinstance(x, int | float) and 0 < x < HANGS]
        module = ast.unparse(node.func).rpartition(".")[0]
        if short or (called(node) in CLOCKS and module in ("time", "")):
            yield node


def of_cores(tree: ast.Module) -> Iterator[ast.expr]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call) and called(node) in CORES)


@dataclass(frozen=True)
class Rule:
    find: Callable[[ast.Module], Iterator[ast.expr]]
    reason: str  # what the line has to say; empty where no reason is good enough
    words: str
    names: set[str]  # a file without any of them keeps the rule


RULES = {
    "bits": Rule(
        of_bits,
        "# exact: ",
        "another batch, row or path may round otherwise: compare within rounding",
        EXACT | NUMBERS | TEXTS | {"atol=0", ".all("},
    ),
    "seconds": Rule(
        of_time,
        "# clock: ",
        "another machine is slower or busier: mark the test slow",
        LIMITS | {"timeout", "deadline"} | {f"{name}(" for name in CLOCKS},
    ),
    "cores": Rule(of_cores, "", "another machine has another number of cores", CORES),
}


def faults(text: str, rule: str, tree: ast.Module | None = None) -> list[tuple[int, str]]:
    """Lines that break a rule and carry no reason."""
    lines, found = text.splitlines(), {}
    if not any(name in text for name in RULES[rule].names):
        return []
    for node in RULES[rule].find(tree or ast.parse(text)):
        above = lines[node.lineno - 2] if lines[node.lineno - 2].lstrip().startswith("#") else ""
        own = "\n".join([above, *lines[node.lineno - 1 : node.end_lineno]])
        reason = RULES[rule].reason
        if not reason or not own.partition(reason)[2].strip():
            found[node.lineno] = RULES[rule].words
    return sorted(found.items())


def test_no_test_depends_on_the_machine() -> None:
    found = []
    for file in sorted(TESTS.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text)
        for name, rule in RULES.items():
            place = file.relative_to(TESTS.parent)
            excuse = f"; or say why not: {rule.reason}..." if rule.reason else ""
            found += [f"{place}:{line}: {words}{excuse}" for line, words in faults(text, name, tree)]
    assert found == []


PLANTED = {
    "one row and all": ("bits", "y = f(x)\n    assert torch.equal(f(x[2:3]), y[2:3])"),
    "one row and all, as lists": ("bits", "assert f(x[:1]).tolist() == f(x)[:1].tolist()"),
    "the other way round": ("bits", "a, b = f(x), f(x.flip(0))\n    assert np.array_equal(a, b[::-1])"),
    "assigned before": ("bits", "rows = x[:4]\n    few = f(rows)\n    assert few.equal(f(x)[:4])"),
    "two places": ("bits", "y = f(x)\n    assert torch.equal(y[0], y[2])"),
    "no tolerance": ("bits", "assert_close(f(x[order]), f(x)[order], rtol=0, atol=0)"),
    "every element": ("bits", "assert (f(torch.cat([x, x])) == f(y)).all()"),
    "two files": ("bits", "assert one.read_text() == other.read_text()"),
    "two tables": ("bits", "kept = one.to_csv()\n    assert kept == other.to_csv()"),
    "a clock": ("seconds", "begun = time.time()\n    f()\n    assert time.time() - begun < 1"),
    "a short limit": ("seconds", "subprocess.run(command, timeout=20)"),
    "a short alarm": ("seconds", "signal.alarm(30)"),
    "cores": ("cores", "assert workers() == os.cpu_count()"),
}
ALLOWED = {
    "a repetition": ("bits", "assert torch.equal(f(x), f(x))"),
    "a copy": ("bits", "before = x.clone()\n    f(x)\n    assert torch.equal(x, before)"),
    "a repetition on a part": ("bits", "assert torch.equal(f(x[:2]), f(x[:2]))"),
    "a tolerance": ("bits", "assert f(x[0]).tolist() == pytest.approx(f(x)[0].tolist())"),
    "a number": ("bits", "assert (f(x[0]) == 0).all()"),
    "a list": ("bits", "assert f(x[:2]).tolist() == [1.0, math.inf]"),
    "different": ("bits", "assert not torch.equal(f(x[0]), f(x[1]))"),
    "a file as it was": ("bits", "old = file.read_bytes()\n    f()\n    assert file.read_bytes() == old"),
    "a reason": ("bits", "assert torch.equal(f(x[0]), f(x)[0])  # exact: the kernel's own loop"),
    "an end to a hang": ("seconds", "subprocess.run(command, timeout=900)"),
    "a clock's reason": ("seconds", "now = time.time()  # clock: an attribute that is never the same"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str) -> None:
    rule, body = PLANTED[name]
    assert faults(f"def test() -> None:\n    {body}\n", rule)


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_right_needs_no_reason(name: str) -> None:
    rule, body = ALLOWED[name]
    assert faults(f"def test() -> None:\n    {body}\n", rule) == []


def test_slow_tests_may_look_at_the_clock() -> None:
    body = "def test() -> None:\n    assert time.monotonic() < 5\n"
    assert faults(body, "seconds")
    assert faults(f"@pytest.mark.slow\n{body}", "seconds") == []
