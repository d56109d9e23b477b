"""Runs that another machine has done: what a card folder keeps of them is all that a verdict needs."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sao_bench.errors import UserError
from sao_bench.files import read_text
from sao_bench.replicate.claims import Arm
from sao_bench.replicate.measures import METRICS, Values

COLUMNS = ["stage", "algorithm", "seed", "metric", "value"]


def read(folder: Path, plan: Mapping[str, Any]) -> dict[Arm, dict[int, Values]]:
    """Return the metrics of every run that a card folder (`card.json`, `values.csv`) holds.

    Args:
        folder: what `replicate` wrote, here or on another machine.
        plan: what decides the numbers; the folder's must be the same.

    Raises:
        UserError: it is no card folder, is damaged, or was made by another plan.
    """
    where = f"--with {folder}"
    try:
        made = json.loads(read_text(folder / "card.json"))
        same = made["plan"] == plan
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(f"{where}: card.json is damaged ({' '.join(str(error).split())[:100]})") from error
    if not same:
        raise UserError(f"{where}: it holds the runs of another plan")
    lines = csv.DictReader(read_text(folder / "values.csv").splitlines())
    if lines.fieldnames != COLUMNS:
        raise UserError(f"{where}: values.csv: expected the columns {', '.join(COLUMNS)}")
    found: dict[Arm, dict[int, dict[str, float | None]]] = {}
    for number, line in enumerate(lines, 2):
        try:
            arm, seed, metric = Arm(line["stage"], line["algorithm"]), int(line["seed"]), line["metric"]
            if metric not in METRICS:
                raise ValueError(f"unknown metric {metric!r}")
            if str(arm) not in plan["arms"]:
                raise ValueError(f"the plan has no arm {arm}")
            if line["value"] is None or None in line:
                raise ValueError(f"expected {len(COLUMNS)} columns")
            if metric in found.get(arm, {}).get(seed, {}):
                raise ValueError(f"{metric} of {arm}/s{seed} a second time")
            value = float(line["value"]) if line["value"] else None
        except (ValueError, TypeError) as error:
            reason = " ".join(str(error).split())[:100]
            raise UserError(f"{where}: values.csv, line {number}: {reason}") from error
        found.setdefault(arm, {}).setdefault(seed, {})[metric] = value
    return {arm: {s: _whole(where, arm, s, v) for s, v in mine.items()} for arm, mine in found.items()}


def _whole(where: str, arm: Arm, seed: int, values: Values) -> Values:
    missing = [name for name in METRICS if name not in values]
    if missing:
        raise UserError(f"{where}: values.csv: {arm}/s{seed} has no {missing[0]}")
    return values
