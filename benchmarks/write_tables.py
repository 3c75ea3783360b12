"""Writes the tables of README.md and of the docs from results/: python benchmarks/write_tables.py [--check].

A table stands between two comment lines, <!-- name --> and <!-- /name -->, on the page that PAGES names.
With --check nothing is written and the exit code says whether every page is up to date. Pictures and
results/report.html are drawn again by benchmarks/redraw.py.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import ratio_tables
from certified_table import certified_table, layers_table, optimizers_table, recipes_table
from expm_profile_table import balancing_table, profile_tables
from formulas import table as formulas_table

from mlayer.experiments.running.registry import EXPERIMENTS, all_rows, experiment
from mlayer.experiments.running.rows import PaperRow
from mlayer.experiments.shared.pictures import SET_TITLES
from mlayer.report.reproduction import BEYOND

ROOT = Path(__file__).resolve().parents[1]

# README's table: at most ten figures; every other one is on the page of results.
HEADLINES = (
    "spiral.extra_turn_accuracy",
    "periodic.figure_rmse_max",
    "determinant3.best_mse",
    "images.cifar10.our_recipe",
    "rivals.cifar10.ReLU.m_layer_ahead_by",
    "rivals.cifar10.plain.ReLU.m_layer_ahead_by",
    "robustness.median_ratio",
    "robustness.median_part_of_attack",
)
# Results from before they named their commit, or by one of a history that this repository does not have.
EARLIER = "earlier"
NOT_HERE = ("378fa7feafdd", "3d353351a9b1", "604a72d")
SPEED = "float32 forward+backward, geometric mean over torch"


def read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((ROOT / "results" / f"{name}.json").read_text())
    return content


def circumstances(facts: dict[str, Any]) -> str:
    others = "".join(f", {name} {version}" for name, version in facts.get("others", {}).items())
    threads = "1 thread" if facts["threads"] == 1 else f"{facts['threads']} threads"
    # Older results recorded the command as it was typed inside benchmarks/, without the folder.
    command = re.sub(r"^python (?=\w+\.py)", "python benchmarks/", facts["command"])
    return f"`{command}`, {threads}, {facts['path']}, torch {facts['torch']}{others}, {facts['date']}."


ISA_NAMES = {"avx512": "AVX-512", "avx2": "AVX2"}


def ratio(cell: dict[str, Any] | None, kind: str) -> str:
    """Times slower than mlayer, of torch."""
    if cell is None:
        return ""
    return f"{cell[kind]['torch']['median'] / cell[kind]['mlayer']['median']:.0f} x"


def floors(cell: dict[str, Any] | None) -> tuple[str, str]:
    """Forward+backward as a multiple of both floors, and as a fraction of the large-product rate."""
    if cell is None or cell["floor_products"] is None:
        return "", ""
    time = cell["both"]["mlayer"]["median"]
    floor = cell["both"]["empty"]["median"] + cell["floor_products"]
    return f"{time / floor:.2f}", f"{cell['floor_products'] / time:.2f}"


def expm() -> str:
    content = read("expm")
    sets = content["sets"]
    found = {
        isa: {(c["n"], c["batch"]): c for c in s["cells"] if (c["dtype"], c["path"]) == ("float32", "auto")}
        for isa, s in sets.items()
    }
    kinds = ("torch, forward", "torch, forward + backward", "over the floors", "of the large product")
    heads = [f"{ISA_NAMES[isa]}: {kind}" for isa in sets for kind in kinds]
    lines = ["| n | batch | " + " | ".join(heads) + " |", "|---" * (len(heads) + 2) + "|"]
    for place in next(iter(found.values())):
        row = []
        for isa in sets:
            cell = found[isa].get(place)
            row += [ratio(cell, "forward"), ratio(cell, "both"), *floors(cell)]
        lines.append(f"| {place[0]} | {place[1]} | " + " | ".join(row) + " |")
    lines += ["", errors([c for cells in found.values() for c in cells.values()])]
    for isa, s in sets.items():
        held = " ".join(f"{name}={value}" for name, value in s["held"].items())
        source = circumstances(s["circumstances"] | {"command": content["circumstances"]["command"]})
        lines += ["", f"{ISA_NAMES[isa]} ({held}): {source}", "", *targets(s)]
    missing = content["circumstances"]["unmeasured"]
    if missing:
        lines += ["", f"Not measured, or not in full: {', '.join(missing)}."]
    return "\n".join(lines)


def errors(cells: list[dict[str, Any]]) -> str:
    def worst(kind: str, name: str) -> str:
        return f"{max(c[kind][name] for c in cells):.1e}"

    parts = [
        f"{worst('forward_error', name)} and {worst('gradient_error', name)} ({name})"
        for name in ("mlayer", "torch")
    ]
    return f"Largest relative error of value and gradient on these matrices, against Arb: {', '.join(parts)}."


def targets(content: dict[str, Any]) -> list[str]:
    lines = ["| goal | wanted | measured | |", "|---|---|---|---|"]
    for t in content["targets"]:
        sign = "<=" if t["at_most"] else ">="
        reached = f"{t['reached']:.3g}"
        claim = re.sub(r"^seconds a (?=row)", "seconds per ", t["claim"])  # as an older result has it
        lines.append(
            f"| {claim} | {sign} {t['wanted']:g} | {reached} | {'yes' if t['holds'] else 'missed'} |"
        )
    return lines


def accuracy() -> str:
    content = read("accuracy")
    facts, missed = content["circumstances"], []
    for row in content["rows"]:
        for k, what in enumerate(("value", "derivative")):
            mine, theirs = row["mlayer"][k], row["scipy"][k]
            if mine > max(4.0, 2 * theirs):
                missed.append(
                    f"| {row['name']} | {what} | {mine:.2g} | {theirs:.2g} | {row['condition']:.2g} |"
                )
    count, failed = content["matrices"], content["failures"]
    source = (
        f"{count} matrices, value and derivative: {failed['mlayer']} failures, SciPy's {failed['scipy']}. "
        f"Errors beyond 4 units and twice SciPy's: {len(missed)} of {2 * count} cases{':' if missed else '.'}"
    )
    heads = ["| matrix | | ours | SciPy | condition number |", "|---|---|---|---|---|"]
    table = [*heads, *missed, ""] if missed else []
    random = random_matrices(content["random"], heads) if "random" in content else []
    return "\n".join([source, "", *table, *random, *targets(content), "", circumstances(facts)])


def random_matrices(found: dict[str, Any], heads: list[str]) -> list[str]:
    """The distribution of the errors of random matrices, and the cases that break the rule."""
    broken, beyond = found["broken"], found["beyond_4"]
    columns = list(found["errors"]["mlayer"])
    lines = [
        f"{found['cases'] // 2} random matrices, {found['of_each_kind']} of each of {found['kinds']} kinds, "
        f"value and derivative: our error is beyond 4 units and twice SciPy's in {broken['mlayer']} of "
        f"{found['cases']} cases, SciPy's beyond 4 units and twice ours in {broken['scipy']}.",
        "",
        "| | beyond 4 | " + " | ".join(columns) + " |",
        "|---" * (2 + len(columns)) + "|",
    ]
    for who, name in (("mlayer", "mlayer"), ("scipy", "SciPy")):
        values = " | ".join(f"{found['errors'][who][column]:.2g}" for column in columns)
        lines.append(f"| {name} | {beyond[who]} | {values} |")
    rows = [
        f"| {row['name']} | {what} | {mine:.2g} | {theirs:.2g} | {row['condition']:.2g} |"
        for row in found["rows"]
        for what, mine, theirs in zip(("value", "derivative"), row["mlayer"], row["scipy"], strict=True)
        if mine > max(4.0, 2 * theirs)
    ]
    return [*lines, "", *heads, *rows, ""] if rows else [*lines, ""]


def large_norms() -> str:
    content = read("expm_large_norm")
    norms = sorted({row["norm"] for row in content["rows"]})
    found = {(row["kind"], row["n"], row["norm"]): row for row in content["rows"]}
    lines = [
        "| dtype | n | " + " | ".join(f"norm {norm:g}" for norm in norms) + " |",
        "|---" * (2 + len(norms)) + "|",
    ]
    for kind, n in dict.fromkeys((row["kind"], row["n"]) for row in content["rows"]):
        cells = (found[kind, n, norm] for norm in norms)
        ratios = " | ".join(f"{cell['forward']:.1f}, {cell['forward+backward']:.1f}" for cell in cells)
        lines.append(f"| {'float64' if kind == 'real' else 'complex128'} | {n} | {ratios} |")
    return "\n".join([*lines, "", circumstances(content["circumstances"])])


def balancing() -> str:
    content = read("expm_balancing")
    source = circumstances(content["circumstances"])
    return "\n".join([*balancing_table(content["rows"]), "", *targets(content), "", source])


def expm_profile() -> str:
    content = read("expm_profile")
    return profile_tables(content, ISA_NAMES, circumstances(content["circumstances"]))


def layer() -> str:
    content = read("layer")
    shares = (
        f"At batch 256 the exponential and its derivative take {content['share_of_exponential']:.0%} "
        f"of a step, writing and reading M and similar arrays {content['share_of_passes']:.0%}."
    )
    return "\n".join([*targets(content), "", f"{shares} {circumstances(content['circumstances'])}"])


def comparison(rows: Iterable[PaperRow], *, command: bool) -> list[str]:
    """The measured figures next to the paper's, with the command that measured each if that is wanted."""
    summary = read("summary")
    figures = {name: entry["value"] for name, entry in summary.items()}
    more = " command |" if command else ""
    lines = ["| | paper | here | goal |" + more, "|---|---|---|---|" + ("---|" if command else "")]
    for row in rows:
        entry = summary.get(row.name, summary.get(f"{row.name}.mean"))
        if entry is not None and row.value(figures) is not None:  # None: not trained in full
            lines.append(
                f"| {row.what} | {row.paper} | {row.here(figures)} | {row.goal(figures)} |"
                + (f" `{entry['command']}` |" if command else "")
            )
    return lines


def made_by(entry: dict[str, Any]) -> str:
    """The commit behind a figure, and those of its parts where they differ."""

    def name(commit: str | None) -> str:
        return EARLIER if commit is None or commit.rstrip("+") in NOT_HERE else commit

    own = name(entry.get("commit"))
    others = sorted({name(part) for part in entry.get("parts", ())} - {own})
    return f"{own}, parts {', '.join(others)}" if others else own


def paper() -> str:
    """A section for each experiment that was run: those with a figure or table of the paper first."""
    sections: tuple[list[str], list[str]] = ([], [])
    for name in EXPERIMENTS:
        if not (ROOT / "results" / f"{name}.json").is_file():
            continue
        module, record = experiment(name), read(name)
        place, _, section = module.IN_PAPER.partition("; ")
        title = f"{place}: {module.TITLE}" if place else module.TITLE
        state = "" if record.get("complete", True) else " Not complete: these are the finished parts."
        said = (
            f"{section[:1].upper()}{section[1:]}. `{record['command']}`, {made_by(record)}, {record['date']}."
        )
        picture = f"Picture: `results/{name}.png`."
        head = f"{'##' if place else '###'} {title}\n\n{said} {picture}{state}\n"
        sections[not place].append("\n".join([head, *comparison(module.ROWS, command=False), ""]))
    return "\n".join([missed_goals(), *sections[0], f"## {BEYOND}\n", *sections[1]]).rstrip("\n")


def missed_goals() -> str:
    """The rows of all experiments whose goal was missed, in one table."""
    figures = {name: entry["value"] for name, entry in read("summary").items()}
    missed = [row for row in all_rows() if row.goal(figures).endswith("missed")]
    return "\n".join(["## Goals that were missed", "", *comparison(missed, command=True), ""])


def headlines() -> str:
    lines = comparison((row for row in all_rows() if row.name in HEADLINES), command=True)
    content = read("expm")
    for isa, measured in content["sets"].items():
        speed = next(target for target in measured["targets"] if target["claim"] == SPEED)
        state = "met" if speed["holds"] else "missed"
        lines.append(
            f"| `expm` with {ISA_NAMES[isa]}: {SPEED} | | {speed['reached']:.3g} x "
            f"| ≥ {speed['wanted']:g}: {state} | `{content['circumstances']['command']}` |"
        )
    facts = content["circumstances"]
    source = f"`expm` was measured on {facts['date']};"
    return "\n".join(
        [*lines, "", f"{source} [results](docs/results.md) names the commits of the other rows."]
    )


def loop() -> str:
    content = read("loop")
    return "\n".join([*targets(content), "", circumstances(content["circumstances"])])


def tables() -> str:
    content = read("tables")
    names = list(content["mean_rank"])
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for table, entry in content["tables"].items():
        methods = entry["methods"]
        cells = [f"{methods[name]['mean']:.3f} ({methods[name]['rank']:g})" for name in names]
        lines.append(f"| {table} | " + " | ".join(cells) + " |")
    lines.append("| mean rank | " + " | ".join(f"{content['mean_rank'][name]:.2f}" for name in names) + " |")
    facts = content["setting"]
    source = f"`{facts['command']}`, scikit-learn {facts['scikit-learn']}, {facts['date']}."
    return "\n".join([*lines, "", source])


def networks() -> str:
    content = read("networks")
    heads = "| | eps | clean, % | certified, % | attacked, % | radius / attack's: median (5 %) | images |"
    lines = [heads, "|---|---|---|---|---|---|---|"]
    for name, entry in content["tasks"].items():
        for kind in ("plain", "for bounds"):
            found = entry[kind]
            share = f"{found['share']['0.5']:.2f} ({found['share']['0.05']:.2f})"
            accuracies = [found[f"{of}accuracy"] for of in ("", "certified_", "attacked_")]
            cells = " | ".join(f"{100 * value:.1f}" for value in accuracies)
            lines.append(
                f"| {name}, {kind} | {entry['task']['eps']:g} | {cells} | {share} | {found['images']} |"
            )
    return "\n".join([*lines, "", circumstances(content["circumstances"]), "", *targets(content)])


def rigorous() -> str:
    content = read("rigorous")
    names = {"image": "authors' model, held-out images", "layer": "random layers"}
    lines = [
        "| | rows | accepted | radius kept: median (5 %) | s per row: float64 | proved | checked "
        "| proof, kB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, part in content["parts"].items():
        kept = f"{part['kept']['0.5']:.4f} ({part['kept']['0.05']:.4f})"
        seconds = " | ".join(f"{part[key]:.2g}" for key in ("seconds_plain", "seconds", "seconds_check"))
        again = f"{part['claimed'] - part['refused']:,} of {part['claimed']:,}"
        lines.append(
            f"| {names[name]} | {part['rows']:,} | {again} | {kept} | {seconds} | {part['kilobytes']:.0f} |"
        )
    return "\n".join([*lines, "", circumstances(content["circumstances"]), "", *targets(content)])


def fuzz() -> str:
    content = read("reliability")
    found = {name: counts for name, counts in content.items() if name.startswith("fuzz ")}
    lines = ["| reader | tried | of these forged | refused | read | failed |", "|---|---|---|---|---|---|"]
    for name, counts in found.items():
        forged = counts.get("forged_read", 0) + counts.get("forged_refused", 0)
        accepted = counts.get("read", 0) + counts.get("forged_read", 0)
        # A failure ends the test, so that a row without figures would be missing here.
        cells = (counts["tried"], forged, counts["tried"] - accepted, accepted, 0)
        lines.append(f"| {name.removeprefix('fuzz ')} | " + " | ".join(f"{cell:,}" for cell in cells) + " |")
    total = sum(counts["tried"] for counts in found.values())
    facts = content["circumstances"]
    setting, _, command = facts["command"].partition(" python ")
    said = f"{total:,} trials, none failed; torch {facts['torch']}, {facts['date']}:"
    return "\n".join([*lines, "", said, f"`{setting}`", f"`python {command}`."])


def large_table() -> str:
    content = read("large_table")
    lines = ["| command | peak memory | processor time |", "|---|---|---|"]
    lines += [
        f"| `mlayer {name}` | {content[name]['peak_bytes'] / 1e9:.1f} GB "
        f"| {content[name]['processor_seconds']:.0f} s |"
        for name in ("fit", "predict")
    ]
    command = content.get("circumstances", content)["command"]
    source = (
        f"A csv of {content['bytes'] / 1e9:.1f} GB: {content['rows']:,} rows, {content['columns']} columns, "
        f"one epoch, one thread: `{command}`."
    )
    return "\n".join([*lines, "", source])


def user_tables() -> str:
    content = read("user_tables")
    names = ["mlayer", "boosting", "linear", "MLP", "Prophet"]
    lines = ["| | score | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for table, entry in content["tables"].items():
        methods = entry["methods"]
        best = max(round(method["score"], 3) for method in methods.values())
        cells = []
        for name in names:
            if name not in methods:
                cells.append("")
                continue
            score = f"{methods[name]['score']:.3f}"
            score = f"**{score}**" if float(score) == best else score
            cells.append(f"{score} ({methods[name]['seconds']:.1f} s)")
        lines.append(f"| {table} | {entry['score'].replace('R2', 'R^2')} | " + " | ".join(cells) + " |")
    facts = content["setting"]
    source = f"`{facts['command']}`, scikit-learn {facts['scikit-learn']}, {facts['path']}, {facts['date']}."
    return "\n".join([*lines, "", source])


def fit_command() -> str:
    content = read("fit_command")
    return "\n".join([*targets(content), "", circumstances(content["circumstances"])])


def rivals() -> str:
    """Nets of equal size and recipe, with the paired test over seeds."""
    content = read("rivals")
    figures, trainings = content["headline"], content["results"]["trainings"]
    lines = [
        "| | net | parameters | rate | test accuracy, % (seeds) | M-layer ahead by | p, paired t-test |",
        "|---|---|---|---|---|---|---|",
    ]
    seen = set()
    for row in trainings:
        key = (row["set"], row["augmented"], row["aside"], row["net"])
        if key in seen:
            continue
        seen.add(key)
        plain = "" if row["augmented"] else ".plain"
        share = f".{1 - row['aside']:g}" if row["aside"] else ""
        start = f"rivals.{row['set']}{plain}{share}.{row['net']}"
        spread = f" ± {figures[f'{start}.sd']:.2f}" if f"{start}.sd" in figures else ""
        ahead, p = (figures.get(f"{start}.{name}") for name in ("m_layer_ahead_by", "p"))
        how = f"{'augmented' if row['augmented'] else 'not augmented'}, {row['training_examples']:,} images"
        lines.append(
            f"| {SET_TITLES[row['set']]}, {how} | {row['net']} | {row['parameters']:,} "
            f"| {row['learning_rate']:g} "
            f"| {figures[f'{start}.mean']:.2f}{spread} ({figures[f'{start}.seeds']:.0f}) "
            f"| {'' if ahead is None else f'{ahead:+.2f}'} | {'' if p is None else f'{p:.2g}'} |"
        )
    source = f"`{content['command']}`, {made_by(content)}, {content['date']}."
    return "\n".join([*lines, "", source])


def heads() -> str:
    content = read("heads")
    lines = ["| head | parameters | accuracy (lowest to highest) | time per step |", "|---|---|---|---|"]
    for name, head in content["heads"].items():
        spread = f"{head['accuracy']:.3f} ({head['lowest']:.3f} to {head['highest']:.3f})"
        lines.append(f"| {name} | {head['parameters']:,} | {spread} | {head['times']:.1f} x |")
    return "\n".join([*lines, "", circumstances(content["circumstances"])])


def certified_networks() -> str:
    content = read("certified_networks")
    return certified_table(content, made_by(content))


def certified() -> str:
    content = read("certified")
    return layers_table(content, made_by(content))


def robust_optimizers() -> str:
    content = read("robust_optimizers")
    return optimizers_table(content, circumstances(content["circumstances"]))


def robust_recipes() -> str:
    content = read("robust_recipes")
    return recipes_table(content, circumstances(content["circumstances"]))


def formulas() -> str:
    return formulas_table(read("formulas"))


def with_source(name: str, lines: Callable[[dict[str, Any]], list[str]]) -> Callable[[], str]:
    """A table of results/NAME.json, and under it what measured it."""

    def written() -> str:
        content = read(name)
        facts = content.get("circumstances") or content.get("setting") or content
        return "\n".join([*lines(content), "", circumstances(facts)])

    return written


# Page -> the tables that stand on it.
PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"headlines": headlines},
    "docs/results.md": {"paper": paper},
    "docs/images.md": {"rivals": rivals},
    "docs/certificates.md": {
        "networks": networks,
        "rigorous": rigorous,
        "radii": with_source("certificates", ratio_tables.radii),
    },
    "docs/certified.md": {
        "certified": certified,
        "robust optimizers": robust_optimizers,
        "robust recipes": robust_recipes,
        "certified networks": certified_networks,
    },
    "docs/expm.md": {
        "expm": expm,
        "expm profile": expm_profile,
        "accuracy": accuracy,
        "large norms": large_norms,
        "balancing": balancing,
    },
    "docs/expm_action.md": {
        "beside scipy": with_source("expm_action", ratio_tables.beside_scipy),
        "beside forming": with_source("expm_action", ratio_tables.beside_forming),
    },
    "docs/howto/expm.md": {"in your code": with_source("expm_in_your_code", ratio_tables.in_your_code)},
    "docs/layer.md": {
        "layer": layer,
        "initializers": with_source("initializers", ratio_tables.initializers),
    },
    "docs/training.md": {"loop": loop, "rmsprop": with_source("rmsprop", ratio_tables.rmsprop)},
    "docs/estimators.md": {"tables": tables, "user_tables": user_tables, "fit_command": fit_command},
    "docs/formulas.md": {"formulas": formulas},
    "docs/when.md": {"heads": heads},
    "docs/reliability.md": {"fuzz": fuzz, "large table": large_table},
}


def spaceless(table: str) -> str:
    """The table with percents as the pages write them: 5%."""
    return re.sub(r"(?<=\d) %", "%", table)


def rewritten(text: str, page: str) -> str:
    """The page with its tables as they follow from results/."""
    for name, table in PAGES[page].items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text, count = pattern.subn(lambda m, table=table: m[1] + spaceless(table()) + "\n" + m[2], text)  # type: ignore[misc]
        if count != 1:
            raise SystemExit(f"{page} has {count} places for the table {name}, not 1")
    return text


def main() -> int:
    stale = []
    for page in PAGES:
        before = (ROOT / page).read_text()
        after = rewritten(before, page)
        if before == after:
            continue
        stale.append(page)
        if "--check" not in sys.argv[1:]:
            (ROOT / page).write_text(after)
    if "--check" in sys.argv[1:]:
        print("\n".join(f"{page} is out of date" for page in stale))
        return int(bool(stale))
    return 0


if __name__ == "__main__":
    sys.exit(main())
