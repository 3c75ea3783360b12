"""ONNX export: plain matrix products and one loop, any batch of one row or more."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count

import torch

from mlayer.checks import brief, file_path
from mlayer.disk import checked_target, replace_file
from mlayer.errors import ArgumentError, ArgumentTypeError, MissingPackageError
from mlayer.files.store import PathLike
from mlayer.nn.layer import MLayer, check_layer

# While the graph is made: names that nothing in it has.
_INPUT, _OUTPUT = "mlayer_input", "mlayer_output"


def export_onnx(
    layer: MLayer,
    path: PathLike,
    *,
    input_name: str = "x",
    output_name: str = "p",
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write ``layer`` as an ONNX model from (batch, in_features) to (batch, out_features), one row or more.

    The exponential is part of the graph, as matrix products and a loop over its squarings: large inputs are
    as accurate as in torch, but a result that overflows may hold NaN in addition to infinities. A structure
    is written out as plain matrices. Needs ``pip install 'mlayer[onnx]'``.

    Args:
        layer: the layer, float32 or float64.
        path: where to; usually ending in ``.onnx``.
        input_name: of the graph's input.
        output_name: of the graph's output.
        metadata: texts to keep in the file, by name.
    """
    target = file_path("path", path)
    checked_target(target)  # before some seconds of work
    if metadata is not None and not (
        isinstance(metadata, Mapping) and all(map(_is_text, (*metadata, *metadata.values())))
    ):
        hint = 'For example {"made by": "me"}.'
        raise ArgumentTypeError("metadata", "texts by name, in Unicode, or None", brief(metadata), hint)
    with _silence():
        program = _program(layer, input_name, output_name)
        if metadata:
            program.model.metadata_props.update(metadata)
        replace_file(target, lambda temporary: program.save(str(temporary)))


def _program(layer: MLayer, input_name: str, output_name: str) -> torch.onnx.ONNXProgram:
    check_layer(layer, "Other modules go through torch.onnx.export themselves.")
    for argument, name in (("input_name", input_name), ("output_name", output_name)):
        if not _is_text(name) or not name:
            raise ArgumentTypeError(argument, "a name", brief(name), "For example 'x'.")
    if input_name == output_name:
        raise ArgumentError("output_name", "different from input_name", repr(output_name), "For example 'p'.")
    dtype = layer.readout.dtype
    if dtype not in (torch.float32, torch.float64):
        raise ArgumentTypeError(
            "layer", "float32 or float64", str(dtype), "Convert a copy: copy.deepcopy(layer).float()."
        )
    for package in ("onnx", "onnxscript"):
        if find_spec(package) is None:
            raise MissingPackageError("mlayer.export_onnx", package, "pip install 'mlayer[onnx]'")
    plain = layer.with_structure("full").cpu().eval().requires_grad_(False)
    example = torch.zeros(2, layer.in_features, dtype=dtype)
    program = torch.onnx.export(
        plain,
        (example,),
        input_names=[_INPUT],
        output_names=[_OUTPUT],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    _drop_unused_constants(program)
    _name(program, input_name, output_name)
    return program


def _name(program: torch.onnx.ONNXProgram, input_name: str, output_name: str) -> None:
    """Name the input and the output; what has such a name inside gets another."""
    graph = program.model.graph
    inside = [*graph.initializers.values()]
    for node in graph.all_nodes():  # those of loops too
        inside += node.outputs
        for attribute in node.attributes.values():
            if attribute.type.name == "GRAPH":
                inside += [*attribute.value.inputs, *attribute.value.initializers.values()]
    taken = {value.name for value in inside} | {input_name, output_name}
    ends = {id(graph.inputs[0]), id(graph.outputs[0])}
    for value in inside:
        if value.name in (input_name, output_name) and id(value) not in ends:
            name = next(new for k in count(1) if (new := f"inner_{k}") not in taken)
            taken.add(name)
            value.name = name
    graph.inputs[0].name, graph.outputs[0].name = input_name, output_name


def _is_text(value: object) -> bool:
    """Whether a value is a text that the file can hold: half of a pair of surrogates is none."""
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)


def _drop_unused_constants(program: torch.onnx.ONNXProgram) -> None:
    """Remove constants of the exporter that no node reads: onnxruntime would warn of each at every start."""
    graph = program.model.graph
    for name, value in list(graph.initializers.items()):
        if not value.uses() and all(value is not output for output in graph.outputs):
            del graph.initializers[name]


@contextmanager
def _silence() -> Iterator[None]:
    """The exporter warns and logs about its own insides, which the user can do nothing about."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "torch.export")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
