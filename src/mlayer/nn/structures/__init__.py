"""Structures: which matrices the generators and the matrix bias may be.

A structure maps free parameters to matrices, `dense`, and back, `free`. The layer stores the free
parameters; everything else in mlayer reads the matrices. A new structure is a subclass of `Structure`
and, if files should know its name, a row in `named.STRUCTURES`; `mlayer.nn` exports its class.
"""

from mlayer.nn.structures.named import STRUCTURES, as_structure, structure_from_config
from mlayer.nn.structures.parametrized import Parametrized
from mlayer.nn.structures.structure import Structure

__all__ = ["STRUCTURES", "Parametrized", "Structure", "as_structure", "structure_from_config"]
