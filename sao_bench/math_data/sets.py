"""The table of data sets: where each one is, and which columns hold the problem and the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sao_bench.errors import unknown


@dataclass(frozen=True, slots=True)
class MathSet:
    """One data set.

    `problem` and `answer` are columns in order of preference; `a.b` is field b of the object in column a.
    `hub` is the id that is loaded where a source is `hub`. `size` is the number of rows once duplicates are
    gone (0: not fixed). `answer_type` None is told from each answer. `low` and `high` bound whole answers.
    `checks` says why a row is damaged in a way of this set's own, or returns "".
    """

    name: str
    about: str
    problem: tuple[str, ...]
    answer: tuple[str, ...]
    hub: str | None = None
    config: str | None = None
    split: str = "train"
    size: int = 0
    answer_type: str | None = None
    low: int | None = None
    high: int | None = None
    after: str = ""
    """The mark that the answer stands behind, at the end of a worked solution."""
    numeric: bool = False
    """Whether every answer is a number."""
    latex: bool = True
    """Whether dollar signs are math delimiters; in GSM8K they are money."""
    checks: Callable[[dict[str, object]], str] = field(default=lambda row: "")


IMO_CATEGORIES = ("Algebra", "Combinatorics", "Geometry", "Number theory")


def _imo(row: dict[str, object]) -> str:
    category = str(row.get("Category", "Algebra")).strip()
    if category.casefold() not in map(str.casefold, IMO_CATEGORIES):
        return f"shifted columns: category {category[:40]!r}"
    return ""


AIME = {
    "problem": ("problem", "Problem"),
    "answer": ("answer", "Answer", "solution"),
    "size": 30,
    "answer_type": "integer",
    "low": 0,
    "high": 999,
}
MATHARENA = {"problem": ("problem",), "answer": ("answer",), "size": 30}

SETS: dict[str, MathSet] = {
    s.name: s
    for s in (
        MathSet("aime_2024", "AIME I and II of 2024", hub="HuggingFaceH4/aime_2024", **AIME),  # type: ignore[arg-type]
        MathSet("aime_2025", "AIME I and II of 2025", hub="MathArena/aime_2025", **AIME),  # type: ignore[arg-type]
        MathSet(
            "beyond_aime",
            "harder than AIME, whole answers",
            ("problem",),
            ("answer",),
            hub="ByteDance-Seed/BeyondAIME",
            split="test",
            size=100,
            answer_type="integer",
        ),
        MathSet("hmmt_feb_2025", "HMMT February 2025", hub="MathArena/hmmt_feb_2025", **MATHARENA),  # type: ignore[arg-type]
        MathSet("hmmt_nov_2025", "HMMT November 2025", hub="MathArena/hmmt_nov_2025", **MATHARENA),  # type: ignore[arg-type]
        MathSet(
            "imo_answerbench",
            "IMOAnswerBench, short answers to problems of IMO level",
            ("Problem",),
            ("Short Answer",),
            size=400,
            checks=_imo,
        ),
        MathSet(
            "dapo",
            "DAPO-Math-17k, published 100 times over",
            ("prompt", "problem"),
            ("reward_model.ground_truth", "answer"),
            hub="BytedTsinghua-SIA/DAPO-Math-17k",
            size=17_917,
        ),
        MathSet(
            "deepmath",
            "DeepMath-103K",
            ("question",),
            ("final_answer",),
            hub="zwhe99/DeepMath-103K",
            size=103_022,
        ),
        MathSet(
            "gsm8k",
            "GSM8K, answers after ####",
            ("question",),
            ("answer",),
            hub="openai/gsm8k",
            config="main",
            after="####",
            numeric=True,
            latex=False,
        ),
    )
}


def math_set(name: str) -> MathSet:
    """Return a data set of the table.

    Raises:
        UserError: no such set; the message lists them.
    """
    if name not in SETS:
        raise unknown("data set", name, SETS)
    return SETS[name]
