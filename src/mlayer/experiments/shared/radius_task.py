"""One image set at one L-infinity radius."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mlayer.datasets import ImageSet
from mlayer.datasets import images as load_images
from mlayer.errors import MissingDataError
from mlayer.experiments.running.protocol import Results, RunContext

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

    def images(self, context: RunContext, results: Results) -> ImageSet | None:
        """The images; None where their files are missing, which the results then say."""
        try:
            return load_images(self.set, context.data)
        except MissingDataError as error:
            results["left_out"][self.name] = str(error)
            return None


def sets_of_tasks(config: Any) -> tuple[str, ...]:
    """The image sets of a configuration's tasks: ``needs`` of an experiment."""
    return tuple(task.set for task in config.tasks)
