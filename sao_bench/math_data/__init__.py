"""Rows of public maths data sets from local files or the hub: read, typed, de-duplicated, damage reported."""

from sao_bench.math_data.made_up import made_up
from sao_bench.math_data.rows import Damage, MathRow, Rows, load, read_mapping, survey, take
from sao_bench.math_data.sets import SETS, MathSet, math_set

__all__ = [
    "SETS",
    "Damage",
    "MathRow",
    "MathSet",
    "Rows",
    "load",
    "made_up",
    "math_set",
    "read_mapping",
    "survey",
    "take",
]
