"""Made-up rows in the schemas of the real sets: small sums in the place of olympiad problems.

They are no part of any published set; they let everything run where no data is at hand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from sao_bench.errors import unknown
from sao_bench.math_data.rows import Rows, take
from sao_bench.seeding import generator

COUNT = 60
"""Rows of each set."""

Draw = Callable[[np.random.Generator, str], dict[str, Any]]


@cache
def made_up(name: str) -> Rows:
    """Return the made-up rows of a set.

    Raises:
        UserError: no such set.
    """
    return take(name, raw(name))


def raw(name: str) -> list[dict[str, Any]]:
    """Return `COUNT` made-up rows in the columns of a set, no problem twice.

    Raises:
        UserError: no such set.
    """
    if name not in _DRAWS:
        raise unknown("data set", name, _DRAWS)
    rng = generator(0, "math_data.made_up", name)
    rows: dict[str, dict[str, Any]] = {}
    while len(rows) < COUNT:
        row = _DRAWS[name](rng, f"made-up-{len(rows) + 1}")
        key = {k: v for k, v in row.items() if v != f"made-up-{len(rows) + 1}" and k != "extra_info"}
        rows.setdefault(json.dumps(key, sort_keys=True), row)
    return list(rows.values())


def _pair(rng: np.random.Generator, low: int, high: int) -> tuple[int, int]:
    return int(rng.integers(low, high)), int(rng.integers(low, high))


def _aime_2024(rng: np.random.Generator, mark: str) -> dict[str, Any]:
    a, b = int(rng.integers(10, 100)), int(rng.integers(2, 10))
    text = f"What is {a} mod {b}?"
    return {
        "id": mark,
        "problem": text,
        "solution": f"{a} = {a // b} * {b} + {a % b}",
        "answer": str(a % b),
        "year": "0",
    }


def _aime_2025(rng: np.random.Generator, mark: str) -> dict[str, Any]:
    a, b = _pair(rng, 10, 100)
    return {
        "problem_idx": mark,
        "problem": f"What is {a} + {b}?",
        "answer": a + b,
        "problem_type": ["Number Theory"],
    }


def _beyond_aime(rng: np.random.Generator, mark: str) -> dict[str, Any]:
    a, b = int(rng.integers(2, 60)), int(rng.integers(2, 6))
    return {"problem": f"Find ${a}^{b}$.", "answer": a**b, "id": mark}


def _hmmt_feb(rng: np.random.Generator, mark: str) -> dict[str, Any]:
    a, b = _pair(rng, 2, 20)
    value = Fraction(1, a) + Fraction(1, b)
    answer = str(value) if value.denominator == 1 else f"\\frac{{{value.numerator}}}{{{value.denominator}}}"
    problem = f"Find $1/{a} + 1/{b}$."
    return {"problem_idx": mark, "problem": problem, "answer": answer, "problem_type": ["Algebra"]}


def _hmmt_nov(rng: np.random.Generator, mark: str) -> dict[str, Any]:
    a, b = sorted(_pair(rng, 1, 20))
    problem = f"Solve $x^2-{a + b}x+{a * b}=0$."
    answer = f"{a}, {b}" if a != b else str(a)
    return {"problem_idx": mark, "problem": problem, "answer": answer, "problem_type": ["Algebra"]}


def _imo(rng: np.random.Generator, mark: str) -> dict[str, Any]:
    x, y = _pair(rng, 1, 20)
    return {
        "Problem ID": mark,
        "Problem": f"Find $(x,y)$: $x+y={x + y}$, $x-y={x - y}$.",
        "Short Answer": f"$({x},{y})$",
        "Category": "Algebra",
        "Subcategory": "Equation",
        "Source": "made up",
    }


DAPO_HEAD = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer:"
    " $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
DAPO_TAIL = '\n\nRemember to put your answer on its own line after "Answer:".'


def _dapo(rng: np.random.Generator, mark: str) -> dict[str, Any]:
    a, b = _pair(rng, 2, 20)
    return {
        "data_source": "made_up",
        "prompt": [{"role": "user", "content": f"{DAPO_HEAD}Compute ${a} \\cdot {b}$.{DAPO_TAIL}"}],
        "ability": "MATH",
        "reward_model": {"ground_truth": str(a * b), "style": "rule"},
        "extra_info": {"index": mark},
    }


def _deepmath(rng: np.random.Generator, mark: str) -> dict[str, Any]:
    n = int(rng.integers(2, 500))
    prime = n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1))
    return {
        "question": f"Is {n} a prime?",
        "final_answer": "Yes" if prime else "No",
        "difficulty": 1.0,
        "topic": mark,
    }


def _gsm8k(rng: np.random.Generator, mark: str) -> dict[str, Any]:
    name = str(rng.choice(["Ann", "Ben", "Cleo", "Dan"]))
    a, b = int(rng.integers(2, 10)), int(rng.integers(100, 400))
    text = f"{name} buys {a} bikes at ${b} each. How many dollars is that?"
    return {"question": text, "answer": f"{a} * {b} = <<{a}*{b}={a * b}>>{a * b}\n#### {a * b:,}"}


_DRAWS: dict[str, Draw] = {
    "aime_2024": _aime_2024,
    "aime_2025": _aime_2025,
    "beyond_aime": _beyond_aime,
    "hmmt_feb_2025": _hmmt_feb,
    "hmmt_nov_2025": _hmmt_nov,
    "imo_answerbench": _imo,
    "dapo": _dapo,
    "deepmath": _deepmath,
    "gsm8k": _gsm8k,
}
