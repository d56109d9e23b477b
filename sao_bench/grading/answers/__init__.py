r"""Typed maths answers: `judge(gold, reply, type)` says correct, incorrect or not judged.

The answer of a reply is its last complete `\boxed{...}` after the thinking; a reply without a box has no
answer and is incorrect, whatever its prose says. Numbers, polynomials and rational functions are decided
by exact arithmetic, other formulas at 400 digits; only what this package's own parser cannot read goes to a
computer algebra system, in a child process with a deadline.
"""

from sao_bench.grading.answers.cases import Case, check, read_cases
from sao_bench.grading.answers.extract import boxed_answer
from sao_bench.grading.answers.judge import ANSWER_TYPES, AnswerType, Judgement, Verdict, judge

__all__ = [
    "ANSWER_TYPES",
    "AnswerType",
    "Case",
    "Judgement",
    "Verdict",
    "boxed_answer",
    "check",
    "judge",
    "read_cases",
]
