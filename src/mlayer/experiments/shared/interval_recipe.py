"""The recipe of a certified training on interval bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from mlayer.certificates.networks.certifier import Effort
from mlayer.datasets import Split
from mlayer.experiments.shared.image_augmentation import Augmentation
from mlayer.experiments.shared.interval_loss import BoundedNetwork, IntervalCrossEntropy
from mlayer.experiments.shared.interval_network import HEADS, interval_network
from mlayer.training import Settings


@dataclass(frozen=True)
class IntervalRecipe:
    """The recipe of a network."""

    channels: tuple[int, int] = (16, 32)  # of the two convolutions
    features: int = 64  # that reach the head
    matrix_size: int = 8  # n of the M-layer
    embedding_size: int = 16  # d of the M-layer
    epochs: int = 20  # of one cycle of the learning rate
    learning_rate: float = 2e-3  # its largest, of Adam
    gradient_clip: float = 5.0  # largest norm of a gradient
    batch_size: int = 128  # of the optimizer
    start: float = 0.04  # the part of the training with radius 0
    ramp: float = 0.5  # the part of the training over which the radius then grows
    stretch: float = 1.0  # the radius while training, as a multiple of the one in the test
    bounded: float = 0.5  # the share of the bounds in the loss, at the end of the ramp
    validation: int = 5000  # training images that are set aside
    augmentation: Augmentation = field(default_factory=Augmentation)  # of training images
    efforts: tuple[Effort, ...] = ("intervals", "margins")  # of the certificates

    heads = HEADS  # that it can train
    judged = "certified"  # what the validation accuracy is

    def model(
        self, training: Split, shape: tuple[int, ...], *, classes: int, head: str, seed: int
    ) -> BoundedNetwork:
        """The network to be trained, with its bounds."""
        network = interval_network(
            (shape[2], shape[0], shape[1]),
            classes,
            head,
            channels=self.channels,
            features=self.features,
            matrix_size=self.matrix_size,
            embedding_size=self.embedding_size,
            generator=torch.Generator().manual_seed(seed),
        )
        return BoundedNetwork(network, shape)

    def settings(self, examples: int, eps: float, seed: int) -> Settings:
        """The settings of `mlayer.training.train` for a network that is to be certified at eps."""
        batches = self.epochs * math.ceil(examples / self.batch_size)
        loss = IntervalCrossEntropy(
            self.stretch * eps, eps, round(self.start * batches), round(self.ramp * batches), self.bounded
        )
        return Settings(
            epochs=self.epochs,
            batch_size=self.batch_size,
            loss=loss,
            optimizer="adam",
            learning_rate=self.learning_rate,
            schedule="one_cycle",
            gradient_clip=self.gradient_clip,
            metrics=("accuracy",),  # of the bounds: see the loss
            monitor="accuracy",
            seed=seed,
        )
