"""Bounds of outputs over boxes of inputs: numbers and affine functions, rounding included."""

from mlayer.certificates.boxes.output_bounds import BoxBounds, OutputBounds

__all__ = ["BoxBounds", "OutputBounds"]
