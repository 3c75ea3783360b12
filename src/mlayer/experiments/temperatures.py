"""Melbourne's daily minimum temperatures, from the authors' notebook: train on 9/10, forecast the rest.

    mlayer reproduce temperatures           some minutes on one core; needs daily-min-temperatures.csv
    mlayer reproduce temperatures --full    the same
    mlayer reproduce temperatures --smoke   seconds; takes synthetic temperatures if the file is missing

Expected: the notebook shows a curve and gives no figure. As there, the series is the mean of seven days less
the mean of all, M has n = 10, and the last tenth (a year) is forecast.
    notebook        d = 2, with bias; RMSprop 1e-5, batch 128, 1000 epochs, days 0, 1, ... as inputs
    ours            time in years, waves found by a spectrum and least squares (`spectral`); how many of
                    them at most is chosen by forecasts of the last three years of the training part, each
                    from the years before it
    harmonic        least squares of a constant, the year and the half year, whose periods are given
    climatology     the mean of that day of the year over the training part
    seasonal naive  the value of 365 days before
One year is one draw. So all but the nets are also compared over five origins: the first 5, 6, 7, 8 and 9
years are known, the year after them is forecast, and no mean of seven days reaches into that year.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mlayer.datasets import Series, temperatures
from mlayer.errors import MissingDataError, MLayerError
from mlayer.experiments.running.protocol import Results, RunContext
from mlayer.experiments.running.rows import paper_rows
from mlayer.experiments.shared.dense import dense_net, parameter_count
from mlayer.experiments.shared.pictures import Figure, canvas, colors, is_narrow
from mlayer.experiments.shared.spectral import spectral_layer, waves_of
from mlayer.experiments.shared.wave_baselines import known_frequencies
from mlayer.nn.layer import MLayer
from mlayer.training import Settings

TITLE = "Melbourne's minimum temperatures"
IN_PAPER = "; the authors' notebook"
CAPTION = (
    "Daily minimum temperatures of Melbourne, means of seven days; the gray part is the training data, the "
    "last year was held out. The legend has the root mean squared errors of the forecasts."
)
EXPECTED = {"figure": "a curve that continues the seasons; no number is given"}
WEEK, YEAR = 7, 365
# Forecasts that are compared over several origins.
_ROLLING = {
    "ours": "ours",
    "harmonic": "harmonic regression",
    "climatology": "climatology",
    "seasonal_naive": "seasonal naive",
}
ROWS = paper_rows(
    "Temperatures, ",
    "temperatures",
    (
        ("last year: root mean squared error of ours, °C", "a picture", "rmse", ".2f", {}),
        ("last year: harmonic regression", "", "harmonic_rmse", ".2f", {}),
        ("last year: climatology", "", "climatology_rmse", ".2f", {}),
        ("last year: seasonal naive", "", "seasonal_naive_rmse", ".2f", {}),
        ("last year: DNN", "", "dnn_rmse", ".2f", {}),
        ("last year: M-layer, notebook's recipe", "a picture", "notebook_rmse", ".2f", {}),
        *(
            (f"mean of five origins: {title}", "", f"rolling_{name}_rmse", ".3f", {})
            for name, title in _ROLLING.items()
        ),
    ),
)


@dataclass(frozen=True)
class Config:
    """The models that are trained."""

    seed: int = 0  # of the weights
    matrix_size: int = 10  # n
    waves: tuple[int, ...] = (1, 2, 3)  # how many at most, to choose from
    # years that are known, each for one forecast of the year after them
    origins: tuple[int, ...] = (5, 6, 7, 8, 9)
    notebook_epochs: int = 1000  # of the notebook's recipe
    dnn_epochs: int = 500  # of the dense net
    made_up: bool = False  # take synthetic temperatures if the file is missing


SCALES = {
    "smoke": Config(waves=(1,), origins=(5, 6), notebook_epochs=2, dnn_epochs=2, made_up=True),
    "default": Config(),
    "full": Config(),
}


def needs(config: Config) -> tuple[str, ...]:
    """The series, unless a synthetic one may replace it."""
    return () if config.made_up else ("temperatures",)


def run(config: Config, context: RunContext) -> Results:
    """All forecasts of the last tenth."""
    series, source = _series(config, context)
    smooth = _smoothed(series)
    cut = 9 * len(smooth) // 10
    past, future = smooth[:cut], smooth[cut:]
    forecasts: dict[str, dict[str, Any]] = {
        "seasonal_naive": {"values": smooth[cut - YEAR : len(smooth) - YEAR]},
        "climatology": {"values": _climatology(past, len(smooth))[cut:]},
        "harmonic": {"values": _harmonic(past, len(smooth))[cut:]},
    }
    context.say("ours")
    forecasts["ours"] = _ours(past, len(smooth), config)
    forecasts["dnn"] = _dnn(past, len(smooth), config, context)
    forecasts["notebook"] = _notebook(past, len(smooth), config, context)
    results: Results = {"source": source, "days": len(smooth), "training_days": cut, "forecasts": {}}
    for name, forecast in forecasts.items():
        values = forecast.pop("values")
        error = (values[-len(future) :] - future).square().mean().sqrt().item()
        results["forecasts"][name] = {
            **forecast,
            "rmse": error if math.isfinite(error) else None,
            "curve": [round(v, 3) for v in values.nan_to_num(99.0).clamp(-99, 99).tolist()],
        }
    results["rolling"] = _rolling(smooth, config)
    results["series"] = [round(v, 3) for v in smooth.tolist()]
    return results


def _series(config: Config, context: RunContext) -> tuple[Tensor, str]:
    try:
        real: Series = temperatures(context.data)
    except MissingDataError:
        if not config.made_up:
            raise
        day = torch.arange(10 * YEAR, dtype=torch.float64)
        noise = torch.randn(
            len(day), generator=torch.Generator().manual_seed(config.seed), dtype=torch.float64
        )
        return 11 + 4 * torch.cos(2 * math.pi * (day - 30) / 365.25) + 2.5 * noise, "made up"
    return real.values, "daily-min-temperatures.csv"


def _smoothed(values: Tensor) -> Tensor:
    """The series as in the notebook: less the mean of all days, means of seven days."""
    return (values - values.mean()).unfold(0, WEEK, 1).mean(1)


def _climatology(past: Tensor, length: int) -> Tensor:
    days = torch.arange(length) % YEAR
    means = torch.stack([past[days[: len(past)] == day].mean() for day in range(YEAR)])
    return means[days]


def _years(length: int) -> Tensor:
    return torch.arange(length, dtype=torch.float64)[:, None] / 365.25


def _harmonic(past: Tensor, length: int) -> Tensor:
    """A constant, the year and the half year, by least squares."""
    x, new = (_years(count)[:, 0].numpy() for count in (len(past), length))
    values = known_frequencies(x, past.numpy(), new, (1.0, 2.0))
    return torch.from_numpy(values)


def _rolling(smooth: Tensor, config: Config) -> list[dict[str, Any]]:
    """Errors of forecasts of one year from several origins."""
    rows = []
    for years in config.origins:
        first = years * YEAR
        last = min(first + YEAR, len(smooth))
        past = smooth[: first - WEEK + 1]  # later means hold days after the origin
        forecasts = {
            "ours": _ours(past, last, config)["values"],
            "harmonic": _harmonic(past, last),
            "climatology": _climatology(past, last),
            "seasonal_naive": torch.cat([smooth[:YEAR], smooth[: last - YEAR]]),
        }
        error = {
            name: (values[first:last] - smooth[first:last]).square().mean().sqrt().item()
            for name, values in forecasts.items()
        }
        rows.append({"years": years, "days": last - first, **error})
    return rows


def _ours(past: Tensor, length: int, config: Config) -> dict[str, Any]:
    """The most waves that forecast the last years of the past best, then fitted to all of it.

    Three years, because one is one draw; fewer where less than two years would be left to learn from.
    """
    cuts = [len(past) - k * YEAR for k in (1, 2, 3)]
    cuts = [cut for cut in cuts if cut > 2 * YEAR - WEEK] or cuts[:1]

    def error(most: int, cut: int) -> float:
        forecast = _values(_fit(past[:cut], most, config), _years(cut + YEAR))[cut:]
        return (forecast - past[cut : cut + YEAR]).square().mean().sqrt().item()

    errors = {most: statistics.mean(error(most, cut) for cut in cuts) for most in config.waves}
    most = min(errors, key=lambda each: errors[each])
    model = _fit(past, most, config)
    return {
        "values": _values(model, _years(length)),
        "parameters": parameter_count(model),
        "waves": most,
        "validation_rmse": errors[most],
    }


def _fit(past: Tensor, most: int, config: Config) -> nn.Module:
    waves = waves_of(_years(len(past)).numpy(), past.numpy(), most)
    if waves is None:
        raise MLayerError("no wave was found in the temperatures")
    return spectral_layer(waves, config.matrix_size)


def _dnn(past: Tensor, length: int, config: Config, context: RunContext) -> dict[str, Any]:
    model = dense_net((1, 50, 50, 10, 1), "relu", torch.Generator().manual_seed(config.seed))
    settings = Settings(
        epochs=config.dnn_epochs, batch_size=128, learning_rate=3e-3, schedule="cosine", seed=config.seed
    )
    x = _years(length).float()
    x = (x - x[: len(past)].mean()) / x[: len(past)].std()
    context.train(model, (x[: len(past)], past[:, None].float()), settings, "dnn")
    return {"values": _values(model, x), "parameters": parameter_count(model)}


def _notebook(past: Tensor, length: int, config: Config, context: RunContext) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(config.seed)
    model = MLayer(1, 1, config.matrix_size, 2, generator=generator)
    with torch.no_grad():  # T and B: -10 on the diagonal, noise 0.01; U: N(0, 0.05^2); S: Glorot; u, V: 0
        assert model.free_matrix_bias is not None
        for parameter in (model.free_generators, model.free_matrix_bias):
            nn.init.normal_(parameter, 0.0, 0.01, generator=generator)
            parameter.diagonal(dim1=-2, dim2=-1).sub_(10.0)
        nn.init.xavier_uniform_(model.readout.flatten(1), generator=generator)
        for bias in (model.embedding_bias, model.output_bias):
            assert bias is not None
            bias.zero_()
    settings = Settings(
        epochs=config.notebook_epochs,
        batch_size=128,
        optimizer="rmsprop",
        optimizer_options={"alpha": 0.9, "eps": 1e-7},
        learning_rate=1e-5,
        seed=config.seed,
        on_divergence="stop",
    )
    x = torch.arange(length, dtype=torch.float32)[:, None]
    outcome = context.train(model, (x[: len(past)], past[:, None].float()), settings, "notebook")
    return {
        "values": _values(model, x),
        "parameters": parameter_count(model),
        "epochs": len(outcome.history),
        "stopped": outcome.stopped,
        "message": outcome.message,
    }


@torch.no_grad()
def _values(model: nn.Module, x: Tensor) -> Tensor:
    outputs: Tensor = model(x)[:, 0].double()
    return outputs


def headline(results: Results) -> dict[str, float]:
    """The figures for the summary; forecasts that are not finite are left out."""
    forecasts = results["forecasts"].items()
    found = {f"temperatures.{'' if k == 'ours' else f'{k}_'}rmse": v["rmse"] for k, v in forecasts}
    for name in _ROLLING:
        found[f"temperatures.rolling_{name}_rmse"] = statistics.mean(row[name] for row in results["rolling"])
    wins = sum(row["ours"] < row["harmonic"] for row in results["rolling"])
    found["temperatures.rolling_wins_over_harmonic"] = float(wins)
    return {name: value for name, value in found.items() if value is not None}


def plot(results: Results) -> Figure:
    """The series, and the forecasts of its last tenth."""
    figure = canvas(13, 6.4)
    whole, last = figure.subplots(2, 1)
    series, cut = results["series"], results["training_days"]
    days = list(range(results["days"]))
    for axis in (whole, last):
        axis.axvspan(0, cut, color=colors().shade)
        axis.plot(
            days, series, color=colors().ink, linewidth=0.7, alpha=0.6, label="measured, means of 7 days"
        )
        axis.set_ylabel("°C from the mean")
    styles = {
        "ours": ("M-layer, ours", colors().m_layer, "-"),
        "dnn": ("DNN", colors().net, "-"),
        "notebook": ("M-layer, notebook's recipe", colors().m_layer_of_others, "--"),
        "seasonal_naive": ("seasonal naive", colors().green, "-."),
        "climatology": ("climatology", colors().pink, "-"),
        "harmonic": ("harmonic regression", colors().soft, ":"),
    }
    for name, (label, color, line) in styles.items():
        forecast = results["forecasts"][name]
        curve, rmse = forecast["curve"], forecast["rmse"]
        error = "no number" if rmse is None else f"{rmse:.2f} °C"
        place = days[-len(curve) :]
        last.plot(place, curve, color=color, linestyle=line, linewidth=1.4, label=f"{label}: {error}")
        if name in ("ours", "dnn"):
            whole.plot(place, curve, color=color, linewidth=1.4, label=label)
    limit = 1.3 * max(map(abs, series))
    whole.set(xlim=(0, len(days)), ylim=(-limit, limit))
    last.set(xlim=(cut - 120, len(days)), ylim=(-limit, limit), xlabel="day; trained on the gray part")
    whole.legend(loc="upper right", ncols=2, fontsize="small")
    # Next to the curves, which leave no corner free.
    figure.legend(
        *last.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=1 if is_narrow() else 2,
        fontsize="small",
        title="root mean squared error of the forecast",
    )
    return figure
