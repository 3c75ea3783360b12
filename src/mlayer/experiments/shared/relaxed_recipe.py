"""The recipe of a certified training of a network with one layer of ReLUs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from mlayer.certificates.networks.certifier import Effort
from mlayer.datasets import Split
from mlayer.experiments.shared.image_augmentation import Augmentation
from mlayer.experiments.shared.image_training import colors
from mlayer.experiments.shared.pooled_network import pooled_network
from mlayer.experiments.shared.relaxed_loss import PooledModel, RelaxedCrossEntropy
from mlayer.training import Settings


@dataclass(frozen=True)
class RelaxedRecipe:
    """The recipe of a network of `pooled_network`, trained on `RelaxedCrossEntropy`."""

    channels: int = 96  # of the convolution
    patch: int = 6  # its size, at every second pixel
    pool: tuple[int, int] = (5, 3)  # the size and the stride of the averages behind it
    matrix_size: int = 24  # n of the M-layer
    embedding_size: int = 64  # d of the M-layer
    epochs: int = 40  # of one cycle of the learning rate
    learning_rate: float = 3e-4  # its largest, of Muon
    weight_decay: float = 0.3  # of the optimizer
    batch_size: int = 128  # of the optimizer
    ramp: float = 0.1  # the part of the training over which the radius grows from 0
    chords: float = 0.5  # weight of what the ReLUs' chords lose
    rest: float = 1.0  # weight of the M-layer's rest of third order
    validation: int = 5000  # training images that are set aside
    augmentation: Augmentation = field(default_factory=Augmentation)  # of training images
    efforts: tuple[Effort, ...] = ("zonotopes",)  # of the certificates

    heads = ("M-layer", "linear")  # that it can train
    judged = "attacked"  # what the validation accuracy is: under a quick attack

    def model(
        self, training: Split, shape: tuple[int, ...], *, classes: int, head: str, seed: int
    ) -> PooledModel:
        """The network to be trained, on standardized images."""
        network = pooled_network(
            (shape[2], shape[0], shape[1]),
            classes,
            head,
            channels=self.channels,
            patch=self.patch,
            pool=self.pool,
            matrix_size=self.matrix_size,
            embedding_size=self.embedding_size,
            generator=torch.Generator().manual_seed(seed),
        )
        return PooledModel(network, shape, *colors(training, shape))

    def settings(self, examples: int, eps: float, seed: int) -> Settings:
        """The settings of `mlayer.training.train` for a network that is to be certified at eps."""
        batches = self.epochs * math.ceil(examples / self.batch_size)
        return Settings(
            epochs=self.epochs,
            batch_size=self.batch_size,
            loss=RelaxedCrossEntropy(eps, round(self.ramp * batches), self.chords, self.rest),
            optimizer="muon",
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            schedule="one_cycle",
            metrics=("accuracy",),  # under attack: see the loss
            monitor="accuracy",
            restore_best=False,  # the attack is not the certificate, and the last epochs are alike
            seed=seed,
        )
