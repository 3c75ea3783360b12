"""The tables of results/expm_profile.json and expm_balancing.json, for benchmarks/write_tables.py."""

from __future__ import annotations

from typing import Any

PRODUCTS = "products"
WANTED = {"avx512": 28, "avx2": 20}


def bound_table(bounds: dict[str, dict[str, float]], names: dict[str, str]) -> list[str]:
    """Geometric means over torch, measured and at the floors."""
    lines = [
        "| geometric mean over torch, float32 forward + backward | wanted | measured "
        "| if every cell took 1.6 times its floors | if every cell took its floors |",
        "|---|---|---|---|---|",
    ]
    for isa, found in bounds.items():
        means = (found[name] for name in ("measured", "at 1.6 times the floors", "at the floors"))
        lines.append(f"| {names[isa]} | {WANTED[isa]} | " + " | ".join(f"{x:.1f}" for x in means) + " |")
    return lines


def shares_table(rows: list[dict[str, Any]], name: str) -> list[str]:
    """The shares of the time of each cell, and the rate of the products in it."""
    parts = list(rows[0]["shares"])
    heads = ["n", "batch", "time, us", "over the floors", *(f"{part}, %" for part in parts)]
    heads.append("rate of the products")
    lines = [f"{name}:", "", "| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in rows:
        floors = row["floor_autograd"] + row["floor_products"]
        share = row["shares"][PRODUCTS]
        rate = row["floor_products"] / (row["seconds"] * share) if share else 0.0
        cells = [
            f"{row['n']}",
            f"{row['batch']}",
            f"{row['seconds'] * 1e6:,.0f}",
            f"{row['seconds'] / floors:.2f}",
            *(f"{100 * row['shares'][part]:.0f}" for part in parts),
            f"{rate:.2f}" if row["batch"] > 1 else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def complex_table(sets: dict[str, dict[str, Any]], names: dict[str, str]) -> list[str]:
    """Products of complex matrices with many squarings: how many, and what one takes, ours and torch's."""
    lines = [
        "| complex128, forward | n | norm | torch's time over ours | our products | torch's "
        "| time of one, torch's over ours | share of products, % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for isa, entry in sets.items():
        for row in entry["complex"]:
            ratio = row["torch_seconds"] / row["seconds"]
            each = ratio * row["products"] / row["torch_products"]
            lines.append(
                f"| {names[isa]} | {row['n']} | {row['norm']:g} | {ratio:.2f} | {row['products']} "
                f"| {row['torch_products']} | {each:.2f} | {100 * row['shares'][PRODUCTS]:.0f} |"
            )
    return lines


def profile_tables(content: dict[str, Any], names: dict[str, str], source: str) -> str:
    """Everything of the file."""
    lines = [*bound_table(content["bounds"], names), ""]
    for isa, entry in content["sets"].items():
        lines += [*shares_table(entry["cells"], names[isa]), ""]
    return "\n".join([*lines, *complex_table(content["sets"], names), "", source])


def balancing_table(rows: list[dict[str, Any]]) -> list[str]:
    """The time with balancing over that without, for each size and batch."""
    norms = sorted({row["norm"] for row in rows})
    found = {(row["n"], row["batch"], row["norm"]): row["ratio"] for row in rows}
    heads = ["n", "batch", *(f"norm {norm:g}" for norm in norms)]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for n, batch in dict.fromkeys((row["n"], row["batch"]) for row in rows):
        ratios = " | ".join(f"{found[n, batch, norm]:.2f}" for norm in norms)
        lines.append(f"| {n} | {batch} | {ratios} |")
    return lines
