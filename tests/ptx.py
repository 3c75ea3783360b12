"""Executes the PTX of a kernel on the CPU, one block at a time, with the checks that a GPU does not make.

All threads of a block advance together, instruction by instruction, as numpy arrays. The part of PTX that our
kernels use is here; anything else raises. Checked on the way: loads and stores stay inside their buffers,
branches are taken by all threads of a block or by none, and between two barriers no warp touches a word of
shared memory that another warp has written, nor writes one that another has read. Registers and shared memory
start as NaN.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

WARP = 32
POISON = np.uint32(0x7FC0DEAD)
_INSTRUCTION = re.compile(r"(?:@(!?)(%p\d+)\s+)?([a-z][\w.]*)\s*(.*);$")
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    # Of two numbers one of which is NaN, PTX takes the other.
    "max": np.fmax,
    "min": np.fmin,
}
_BITS: dict[str, Callable[[Any, Any], Any]] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_TYPES = {
    "f32": np.float32,
    "b32": np.uint32,
    "u32": np.uint32,
    "s32": np.int32,
    "b64": np.uint64,
    "u64": np.uint64,
    "s64": np.int64,
    "b16": np.uint16,
    "u16": np.uint16,
    "s16": np.int16,
}


class FaultError(Exception):
    """The program did what it must not do."""


@dataclass(frozen=True)
class Instruction:
    """One line of PTX."""

    text: str
    guard: str | None
    negated: bool
    name: tuple[str, ...]
    operands: tuple[str, ...]


@dataclass
class Program:
    """A kernel, ready to run."""

    instructions: list[Instruction]
    labels: dict[str, int]
    parameters: list[str]
    threads: int

    @classmethod
    def parse(cls, text: str) -> Program:
        """Read one kernel."""
        instructions: list[Instruction] = []
        labels: dict[str, int] = {}
        for raw in text.splitlines():
            line = raw.split("//")[0].strip()
            if match := re.match(r"(\$L\w+):", line):
                labels[match[1]] = len(instructions)
            elif (match := _INSTRUCTION.match(line)) and not line.startswith("."):
                operands = tuple(_operands(match[4]))
                instructions.append(
                    Instruction(line, match[2], match[1] == "!", tuple(match[3].split(".")), operands)
                )
        parameters = re.findall(r"\.param \.\w+ [^,)]*?(\w+_param_\d+)", text)
        threads = re.search(r"\.reqntid (\d+)", text)
        assert threads is not None
        return cls(instructions, labels, parameters, int(threads[1]))


def _operands(text: str) -> list[str]:
    """Split at the commas that are not inside braces."""
    return [part.strip() for part in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", text)]


@dataclass
class Block:
    """The state of one block while it runs."""

    program: Program
    memory: Sequence[tuple[int, np.ndarray]]  # address, bytes
    arguments: dict[str, int]
    number: int
    shared_bytes: int
    registers: dict[str, np.ndarray] = field(default_factory=dict)
    epoch: int = 1
    executed: int = 0

    def __post_init__(self) -> None:
        words = self.shared_bytes // 4
        self.shared = np.full(words, POISON)
        self.written = np.zeros((2, words), dtype=np.int64)  # epoch, warp
        self.read = np.zeros((2, words), dtype=np.int64)  # epoch, warps as bits
        self.lane = np.arange(self.program.threads)
        self.warp = self.lane // WARP

    # ---- Registers. -------------------------------------------------------------------------------

    def get(self, name: str, kind: str) -> np.ndarray:
        dtype = np.dtype(_TYPES[kind])
        if name.startswith("%tid"):
            return self.lane.astype(np.uint32)
        if name.startswith("%ctaid"):
            return np.full(len(self.lane), self.number if name.endswith("x") else 0, dtype=np.uint32)
        if name.startswith("%"):
            value = self.registers.get(name)
            if value is None:
                raise FaultError(f"{name} is read before it is written")
            if value.dtype.itemsize < dtype.itemsize:
                return value.astype(dtype)
            return value[: len(self.lane)].view(dtype)
        if name.startswith("0f"):
            return np.full(len(self.lane), int(name[2:], 16), dtype=np.uint32).view(np.float32)
        if name == "global_smem":
            return np.zeros(len(self.lane), dtype=np.uint32)
        return np.full(
            len(self.lane), int(name, 0) & (2 ** (8 * dtype.itemsize) - 1), f"u{dtype.itemsize}"
        ).view(dtype)

    def set(self, name: str, value: np.ndarray, mask: np.ndarray) -> None:
        kind = np.uint64 if name.startswith("%rd") else np.uint16 if name.startswith("%rs") else np.uint32
        bits = np.ascontiguousarray(value)
        bits = bits.view(kind) if bits.dtype.itemsize == np.dtype(kind).itemsize else bits.astype(kind)
        old = self.registers.get(name)
        if old is None:
            old = np.full(len(self.lane), POISON, dtype=np.uint32).astype(kind)
        self.registers[name] = np.where(mask, bits, old)

    def predicate(self, name: str) -> np.ndarray:
        value = self.registers.get(name)
        if value is None:
            raise FaultError(f"{name} is read before it is written")
        return value

    # ---- Memory. ----------------------------------------------------------------------------------

    def address(self, operand: str, kind: str) -> np.ndarray:
        base, _, offset = operand.strip("[] ").partition("+")
        return self.get(base.strip(), kind).astype(np.int64) + int(offset or 0)

    def touch_shared(self, words: np.ndarray, mask: np.ndarray, write: bool) -> None:
        if (words[mask] < 0).any() or (words[mask] >= len(self.shared)).any():
            raise FaultError("an access outside shared memory")
        w, q = words[mask], self.warp[mask]
        if ((self.written[0, w] == self.epoch) & (self.written[1, w] != q)).any():
            raise FaultError("a word of shared memory that another warp wrote since the last barrier")
        if write:
            if ((self.read[0, w] == self.epoch) & ((self.read[1, w] & ~(1 << q)) != 0)).any():
                raise FaultError("a write to a word that another warp read since the last barrier")
            self.written[0, w], self.written[1, w] = self.epoch, q
        else:
            stale = self.read[0, w] != self.epoch
            self.read[1, w[stale]] = 0
            self.read[0, w] = self.epoch
            np.bitwise_or.at(self.read[1], w, 1 << q)

    def global_words(self, addresses: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        for start, data in self.memory:
            inside = (addresses >= start) & (addresses + 4 <= start + data.nbytes)
            if inside[mask].all():
                return data, (addresses - start) // 4
        raise FaultError("an access outside every buffer")

    # ---- Running. ---------------------------------------------------------------------------------

    def run(self, most: int = 2_000_000) -> None:
        counter = 0
        while True:
            step = self.program.instructions[counter]
            counter += 1
            self.executed += 1
            if self.executed > most:
                raise FaultError("no end")
            mask = np.ones(len(self.lane), dtype=bool)
            if step.guard is not None:
                mask = self.predicate(step.guard) ^ step.negated
            if step.name[0] == "ret":
                return
            if step.name[0] == "bra":
                if mask.any() != mask.all():
                    raise FaultError("a branch that only some threads take")
                if mask.all():
                    counter = self.program.labels[step.operands[0]]
                continue
            try:
                self.execute(step, mask)
            except FaultError as fault:
                raise FaultError(f"{fault}: {step.text}") from None

    def execute(self, step: Instruction, mask: np.ndarray) -> None:
        name, kind, o = step.name[0], step.name[-1], step.operands
        if name == "bar":
            self.epoch += 1
        elif name == "ld" and step.name[1] == "param":
            self.set(o[0], np.full(len(self.lane), self.arguments[o[1].strip("[]")], np.int64), mask)
        elif name == "ld":
            self.load(step, mask)
        elif name == "st":
            self.store(step, mask)
        elif name == "shfl":
            value = self.get(o[1], "b32")
            self.set(o[0], value[self.lane ^ int(o[2])], mask)
        elif kind == "pred":
            self.logic(name, o, mask)
        elif name == "setp":
            self.compare(step.name[1], kind, o, mask)
        elif name == "selp":
            self.set(o[0], np.where(self.predicate(o[3]), self.get(o[1], kind), self.get(o[2], kind)), mask)
        else:
            self.set(o[0], self.arithmetic(step, kind, o), mask)

    def load(self, step: Instruction, mask: np.ndarray) -> None:
        targets = step.operands[0].strip("{} ").replace(" ", "").split(",")
        shared = step.name[1] == "shared"
        addresses = self.address(step.operands[1], "u32" if shared else "u64")
        for place, target in enumerate(targets):
            if shared:
                words = addresses // 4 + place
                self.touch_shared(words, mask, write=False)
                self.set(target, self.shared[np.where(mask, words, 0)], mask)
            else:
                data, words = self.global_words(addresses + 4 * place, mask)
                self.set(target, data[np.where(mask, words, 0)], mask)

    def store(self, step: Instruction, mask: np.ndarray) -> None:
        sources = step.operands[1].strip("{} ").replace(" ", "").split(",")
        shared = step.name[1] == "shared"
        addresses = self.address(step.operands[0], "u32" if shared else "u64")
        for place, source in enumerate(sources):
            value = self.get(source, "b32")
            if shared:
                words = addresses // 4 + place
                self.touch_shared(words, mask, write=True)
                self.shared[words[mask]] = value[mask]
            elif mask.any():
                data, words = self.global_words(addresses + 4 * place, mask)
                data[words[mask]] = value[mask]

    def logic(self, name: str, o: tuple[str, ...], mask: np.ndarray) -> None:
        if name == "mov":
            value = np.full(len(self.lane), o[1] not in ("0", "false"))
        elif name == "not":
            value = ~self.predicate(o[1])
        else:
            value = _BITS[name](self.predicate(o[1]), self.predicate(o[2]))
        self.registers[o[0]] = np.where(mask, value, self.registers.get(o[0], False))

    def compare(self, relation: str, kind: str, o: tuple[str, ...], mask: np.ndarray) -> None:
        left, right = self.get(o[1], kind), self.get(o[2], kind)
        value = _COMPARE[relation[:2]](left, right)
        if kind == "f32" and relation.endswith("u"):  # true for NaN
            value |= np.isnan(left) | np.isnan(right)
        elif kind == "f32" and relation == "ne":
            value &= ~(np.isnan(left) | np.isnan(right))
        self.registers[o[0]] = np.where(mask, value, self.registers.get(o[0], False))

    def arithmetic(self, step: Instruction, kind: str, o: tuple[str, ...]) -> np.ndarray:
        name = step.name[0]
        if name == "cvt":
            return self.get(o[1], kind).astype(_TYPES[step.name[-2]])
        if "wide" in step.name:
            wide = {"s32": np.int64, "u32": np.uint64}[kind]
            product = self.get(o[1], kind).astype(wide) * self.get(o[2], kind).astype(wide)
            return product + self.get(o[3], "s64").astype(wide) if name == "mad" else product
        x = self.get(o[1], kind)
        if name in ("mov", "abs", "neg", "sqrt", "not"):
            unary: dict[str, Callable[[Any], Any]] = {
                "mov": np.copy,
                "abs": np.abs,
                "neg": np.negative,
                "sqrt": np.sqrt,
                "not": np.bitwise_not,
            }
            return unary[name](x)
        y = self.get(o[2], kind)
        if name == "fma":
            # Exact product and one rounding: float64 holds the product of two float32 numbers.
            z = self.get(o[3], kind)
            return (x.astype(np.float64) * y.astype(np.float64) + z.astype(np.float64)).astype(np.float32)
        if name == "mad":
            return x * y + self.get(o[3], kind)
        if name in ("shl", "shr"):
            return (np.left_shift if name == "shl" else np.right_shift)(x, y)
        if name == "bfe":
            width = int(o[3])
            bits = (self.get(o[1], "u32") >> self.get(o[2], "u32")) & np.uint32(2**width - 1)
            if kind == "s32":
                return (
                    bits.astype(np.int64) - ((bits >> (width - 1)) & 1).astype(np.int64) * 2**width
                ).astype(np.int32)
            return bits
        if name in _BITS:
            return _BITS[name](x, y)
        if name in _ARITHMETIC:
            return _ARITHMETIC[name](x, y)
        raise FaultError("an instruction that is not known here")


def run(text: str, arguments: Sequence[np.ndarray | int], blocks: int, shared_bytes: int) -> int:
    """Run a kernel over all its blocks, changing the arrays in place; returns the instructions executed."""
    program = Program.parse(text)
    memory, values, address = [], {}, 4096
    for parameter, argument in zip(program.parameters, [*arguments, 0, 0], strict=False):
        if isinstance(argument, int):
            values[parameter] = argument
            continue
        words = argument.view(np.uint32).reshape(-1)
        memory.append((address, words))
        values[parameter] = address
        address += (words.nbytes // 256 + 2) * 256
    executed = 0
    with np.errstate(all="ignore"):
        for number in range(blocks):
            block = Block(program, memory, values, number, shared_bytes)
            block.run()
            executed += block.executed
    return executed
