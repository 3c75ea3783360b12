"""Formulas that nobody should run: what the tests of every reader of formulas share."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CANARY = "mlayer_ran_this"


def programs(canary: str) -> list[str]:
    """Python that leaves a file behind if anything in it is run."""
    touch = f"open({canary!r}, 'w').close()"
    shell = f"touch {canary}"
    return [
        f"__import__('os').system({shell!r})",
        f"__import__('os').system({shell!r}) + x",
        f"x*__import__('os').system({shell!r})",
        f"[__import__('os').system({shell!r})][0]",
        f"({touch}, x)[1]",
        f"(lambda: {touch})()",
        f"(lambda x=__import__('os').system({shell!r}): x)()",
        f"[{touch} for _ in 'a']",
        f"{{k: {touch} for k in 'a'}}",
        f"x if {touch} else x",
        f"{touch} or x",
        f"x & {touch}",
        f"exec({touch!r})",
        f"eval({touch!r})",
        f"compile({touch!r}, '', 'exec')",
        f"globals()['__builtins__']['exec']({touch!r})",
        f"().__class__.__base__.__subclasses__()[0]({touch})",
        f"f'{{{touch}}}'",
        f"sin({touch})",
        f"exp(x).__class__.__mro__[-1].__subclasses__()[0]({touch})",
        f"Symbol('x').subs(x, {touch})",
        f"sympify({touch!r})",
        f"parse_expr({touch!r})",
        f"S({touch!r})",
        f"lambdify(x, {touch!r})",
        f"x := {touch}",
        f"import os; os.system({shell!r})",
        f"x\n{touch}",
        f"x;{touch}",
        f"x#\n{touch}",
        f"@{touch}",
        f"getattr(x, '__init__')({touch})",
        f"x.__class__({touch})",
        f"Function('f')({touch})",
        f"Lambda(x, {touch})(x)",
        f"await {touch}",
        f"(yield {touch})",
        f"*{touch},",
        f"**{touch}",
        f"print({touch})",
    ]


_ROOTS = "+".join(f"sqrt({k})" for k in (2, 3, 5, 7, 11, 13, 17, 19, 23))

BOMBS = [
    # Short, and millions of terms for an algebra that takes roots for variables.
    f"({_ROOTS})**20*x",
    f"(({_ROOTS})*x + y)**20",
    "x" + "".join(f"*({_ROOTS}+sqrt({k}))" for k in (26, 29, 31, 33, 34, 35, 37, 38)),
    f"x/({_ROOTS})**20",
    # Constants that sympy evaluates in twice the time for each operation.
    *(f"{before * 60}2{after * 60}*x" for before, after in (("exp(-", ")"), ("(1+", ")**(1/3)"))),
    f"{'1/(sqrt(2)+' * 40}1{')' * 40}*x",
    f"{'cos(-sqrt(2)*' * 60}1{')' * 60}*x",
    f"{'sqrt(3)*(sqrt(5)+' * 60}1{')' * 60}*x",
    "1e999999999*x",
    "1e-999999999*x",
    "x*1e" + "9" * 4000,
    "sinh(1e9)*x",
    "exp(1e9)*x",
    "cosh(10**300)*x",
    "10**1000*x",
    "x/10**1000",
    "9**9**9*x",
    "9**9**9**9**9",
    "2**(2**(2**(2**(2**2))))",
    "x**(9**9**9)",
    "(2*x)**1000000000",
    "(sqrt(2)*x)**999999999",
    "((10**300*x)**400)**400",
    "exp(exp(exp(exp(9))))*x",
    "sin(exp(exp(99)))*x",
    "(x/7**700 + 1)**1000",
    "(x + 1)**(10**9)",
    "((x + y)**1000)**1000",
    "(((x+1)**99+1)**99+1)**99",
    "(x+y+1)**100000",
    "(exp(x) + exp(y) + x)**5000",
    "cos(x)**100000",
    "+".join(f"x/{k}**700" for k in range(3, 1500, 2)),
    "*".join(f"(7**700*x + {k})" for k in range(400)),
    "*".join(["sqrt(10**300 + 7)"] * 4000),
    "9" * 100_000,
    "1" + "_1" * 40_000,
    "0." + "1" * 90_000,
    "(" * 50_000 + "x" + ")" * 49_000,
    "(" * 5_000 + "x" + ")" * 5_000,
    "-" * 99_000 + "x",
    "~" * 99_000 + "x",
    "not " * 24_000 + "x",
    "x**" * 30_000 + "x",
    "x^" * 45_000 + "x",
    "x" * 200_000,
    "x+" * 200_000 + "x",
    "sin(" * 20_000 + "x" + ")" * 20_000,
    "x >> " * 19_000 + "x",
    "x" + " " * 99_000,
    "[" * 99_000,
    "1" * 4_000 + "x",
    "exp(1e300*x)*1e300",
    "1e308*x*y + 1e308",
    "1e39*x",
    "1e-320*x",
    "x/(sin(1)**2 + cos(1)**2 - 1)",
    "0**-1*x",
    "(-2)**0.5*x",
    "sqrt(-1)*x",
    "2**0.3333333333333333333333333333333*x",
    "(2/3)**0.7182818284590452353602874713527*x",
]

ODDITIES = [
    "",
    " ",
    "\x00",
    "x\x00",
    "\ud800",
    "\u202ex",
    "x\u200b",
    "\x1b[31mx",
    "\uff11*x",
    "x\u00b2",
    "2x",
    "x y",
    "0x10*x",
    "1j*x",
    "x''",
    "'x'",
    "b'x'",
    "None",
    "True",
    "...",
    "x.y",
    "x[0]",
    "x if x else x",
    "x == y",
    "x < y",
    "x @ y",
    "x // y",
    "x % y",
    "lambda: x",
    "nan*x",
    "inf*x",
    "oo*x",
    "zoo",
    "I*x",
    "gamma(x)",
    "exp",
    "exp()",
    "exp(x, y)",
    "exp(x=1)",
    "sin x",
    "1..2",
    "1e",
    "1e+",
    ".",
    "_",
    "__class__",
    "x**",
    ")x(",
    "\\",
    "x\\\n+y",
]


HANGS = 900  # seconds: for ever, to a test; how fast a machine is, or how busy, must not matter


@contextmanager
def no_hang() -> Iterator[None]:
    """Fails what would run for ever; no claim about speed."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"still at work after {HANGS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(HANGS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
