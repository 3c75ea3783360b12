"""`mlayer certify-images`: clean, attacked and certified accuracy of a kept network of images."""

from __future__ import annotations

import math
from pathlib import Path

import click

from mlayer.cli import show
from mlayer.cli.options import FILE, Mistake, common


@click.command("certify-images")
@click.argument("model", type=FILE)
@click.option("--eps", type=float, help="L-infinity radius in pixel values; the file's own if not given.")
@click.option("--data", type=FILE, help="Folder of MNIST, CIFAR-10, ...; $MLAYER_DATA if not given.")
@click.option("--images", type=click.IntRange(min=1), help="The first test images only.")
@common
def command(  # noqa: PLR0917 - click gives them by name
    model: Path, eps: float | None, data: Path | None, images: int | None, quiet: bool, as_json: bool
) -> None:
    """Certify and attack the network in the file MODEL on the test images of the set it was trained on.

    MODEL is a file that `mlayer reproduce certified_networks` or `mlayer reproduce certified` kept. Certified
    are those images for which it is proved that no change of all pixels by up to --eps, within [0, 1],
    changes the class.
    """
    if eps is not None and not 0 <= eps < math.inf:
        raise Mistake(f"--eps must be a finite number of at least 0; got {eps}. For example --eps 0.1")
    if data is not None and not data.is_dir():
        raise Mistake(f"there is no folder {data}; --data names the one with the data")
    from mlayer.experiments.shared.kept_network import certify_again

    with show.bar("certifying", quiet) as bar:
        found = certify_again(model, eps, data=data, images=images, progress=lambda part: bar(part, 1.0, ""))
    if as_json:
        show.emit_json(found)
        return
    columns = ("set", "eps", "head", "test_images", "clean", "attacked", "certified", "false_certificates")
    shown = [name for name in columns if name in found]
    show.table(shown, [[f"{found[k]:.5g}" if isinstance(found[k], float) else str(found[k]) for k in shown]])
