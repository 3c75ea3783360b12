"""One image set at one L-infinity radius."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Recipe = TypeVar("Recipe")


@dataclass(frozen=True)
class RadiusTask(Generic[Recipe]):
    """A task of the experiments with certified training.

    >>> task = RadiusTask("cifar10", "2/255", None)
    >>> task.name, task.eps == 2 / 255
    ('cifar10_2_255', True)
    """

    set: str  # of images
    radius: str  # as it is written, "2/255" or "0.1"
    recipe: Recipe  # of the training

    @property
    def eps(self) -> float:
        """The radius as a number."""
        numerator, _, denominator = self.radius.partition("/")
        return float(numerator) / float(denominator or 1)

    @property
    def name(self) -> str:
        """The name of the task in results."""
        return f"{self.set}_{self.radius.replace('/', '_')}"
