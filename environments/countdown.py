"""Countdown: reach a target from a few numbers; which operators and numbers must be used drifts.

An answer is one expression, graded exactly: nothing but the numbers that were given, each at most once.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from operator import itemgetter
from typing import Any, ClassVar, Literal, cast

import numpy as np
from sao_bench.environments._arithmetic import ExpressionError
from sao_bench.environments._draws import channel, pick, pick_of
from sao_bench.environments._single_turn import VERDICT_CHANNELS, SingleTurn

from sao_bench.environment import Message, value_of
from sao_bench.environments import _arithmetic as arithmetic
from sao_bench.errors import UserError
from sao_bench.types import Channel, Value

Numbers = tuple[int, ...]
KINDS = {"sums": "+-", "products": "+-*/"}
"""Kind of task -> the operators that its target is made with (as far as the verifier takes them)."""

OPERATORS = {"all": "+-*/", "no_minus": "+*/", "no_times": "+-/"}
TEMPLATES = {"arrow": "{0} -> {1}", "words": "make {1} from {0}", "equation": "{1} = ? ({0})"}
MAX_TARGET = 999

HABITS = {"careful": 0.45, "hasty": 0.45, "guess": 0.1}
"""Who is seen in the demonstrations: right with all numbers, near with one or two, anywhere with all."""

_ODD = re.compile(r"[^-+*/() 0-9]|[0-9)] *\(|\) *[0-9]|(?:^|[-+*/(]) *-")
"""What an answer may not have: other characters, products without a sign, a sign before a number."""


def judge(reply: str, numbers: Numbers, target: int, strictness: str, operators: str) -> dict[str, int]:
    """Take an answer apart.

    Returns: `well_formed` (an expression with a value, only + - * / and parentheses), `on_numbers` (each number
    once, or at most once under `any`), `on_operators` (none but `operators`), `on_target`, each 0 or 1.
    """
    parts = dict.fromkeys(("well_formed", "on_numbers", "on_operators", "on_target"), 0)
    if _ODD.search(reply):
        return parts
    try:
        value = arithmetic.constant(arithmetic.linear(reply))
    except ExpressionError:
        return parts
    used, given = Counter(arithmetic.numbers(reply)), Counter(map(Fraction, numbers))
    return {
        "well_formed": 1,
        "on_numbers": int(used <= given if strictness == "any" else used == given),
        "on_operators": int(set(reply) & set("+-*/") <= set(operators)),
        "on_target": int(value == target),
    }


class Countdown(SingleTurn):
    """Write an expression of the given numbers that has the target's value; the rules drift.

    Observation: numbers in ascending order and the target, `3 7 9 -> 36`. With `template="chat"` the task comes
    with instructions for a general instruct model.

    Action: one expression, `(7-3)*9`, with + - * / and parentheses.

    Reward: 1 for an expression that keeps the rules of today and has the value of the target, else 0 (`judge`).
    With probability `reward.noise` it is replaced by a fair coin. `score` is before noise.

    Episode end: terminated after one turn.

    Oracle: 1, every target is made from all its numbers with the operators that are allowed. Floor: always the
    same expression: the likeliest pair of numbers and target, counted exactly over all tasks.

    Versions: v0.
    """

    id = "sao_bench/Countdown-v0"
    max_reply_tokens = 32
    # The targets have to be known, and there are thousands: more conversations per update than elsewhere.
    tiny_config: ClassVar[Mapping[str, Any]] = {
        "heads": 2,
        "kv_heads": 1,
        "head_dim": 32,
        "updates": 1500,
        "batch_size": 64,
    }
    channels: ClassVar[tuple[Channel, ...]] = (
        channel(
            "task.mixture", "virtual", {"sums": 0.5, "products": 0.5}, "what targets are made with", *KINDS
        ),
        channel("task.difficulty", "virtual", 3, "how many numbers are given", 2, 4),
        channel("task.range", "virtual", 9, "the largest number", 4, 9),
        channel("obs.template", "virtual", "arrow", "the wording of tasks", *TEMPLATES),
        channel(
            "verifier.strictness", "real", "all", "how many of the numbers have to be used", "all", "any"
        ),
        channel("verifier.operators", "real", "all", "which operators are allowed", *OPERATORS),
        *VERDICT_CHANNELS,
    )

    def __init__(self, template: Literal["short", "chat"] = "short") -> None:
        if template not in ("short", "chat"):
            raise UserError(f"{self.id}: template {template!r} is not one of: short, chat")
        super().__init__()
        self.template = template
        self._numbers: Numbers = ()
        self._target = 0

    def ask(self, task: Any, share: float) -> str:
        """Draw numbers and target, or take them; the rules of today hold for the episode."""
        values = self.concept.values
        self._rules = {
            "strictness": str(values["verifier.strictness"]),
            "operators": OPERATORS[str(values["verifier.operators"])],
        }
        if task is None:
            size, largest = (int(cast(int, values[f"task.{name}"])) for name in ("difficulty", "range"))
            kind = pick(values["task.mixture"], tuple(KINDS), share)
            self._numbers, self._target = _draw(
                self.rng, size, largest, _allowed(kind, self._rules["operators"])
            )
        else:
            self._numbers, self._target = _valid_task(task, self._rules["operators"])
        text = TEMPLATES[str(values["obs.template"])].format(" ".join(map(str, self._numbers)), self._target)
        return text if self.template == "short" else f"{INSTRUCTION}\n\n{text}"

    def verdict(self, action: str) -> dict[str, int]:
        """Judge the expression."""
        return judge(action.strip(" "), self._numbers, self._target, **self._rules)

    def truth(self) -> dict[str, Any]:
        """Return score, solved, task and the parts of the judgement."""
        return self._truth({"numbers": list(self._numbers), "target": self._target})

    def oracle_action(self) -> str:
        """Return an expression that is paid, with the fewest numbers that may be used."""
        for numbers in _subsets(self._numbers) if self._rules["strictness"] == "any" else ():
            if found := reachable(numbers, self._rules["operators"]).get(Fraction(self._target)):
                return found
        return reachable(self._numbers, self._rules["operators"])[Fraction(self._target)]

    @classmethod
    def oracle(cls, values: Mapping[str, Value]) -> float:
        """Return J* = 1: every target can be reached."""
        return 1.0

    @classmethod
    def floor(cls, values: Mapping[str, Value]) -> float:
        """Return b = max over expressions of P(its numbers are given and its value is the target).

        Under `any` an expression of fewer numbers is paid wherever all of them are among those given.
        """
        shares = cast(Mapping[str, float], value_of(values, "task.mixture", cls.channels))
        size, largest = (
            int(cast(int, value_of(values, f"task.{n}", cls.channels))) for n in ("difficulty", "range")
        )
        operators = OPERATORS[str(value_of(values, "verifier.operators", cls.channels))]
        mass: defaultdict[tuple[Numbers, int], float] = defaultdict(float)
        for kind, share in shares.items():
            for task, p in _distribution(size, largest, _allowed(kind, operators)).items() if share else ():
                mass[task] += share * p
        if value_of(values, "verifier.strictness", cls.channels) == "any":
            for (numbers, target), p in list(mass.items()):
                for fewer in _subsets(numbers):
                    if target in reachable(fewer, operators):
                        mass[fewer, target] += p
        return max(mass.values())

    @classmethod
    def demonstration(cls, rng: np.random.Generator) -> list[Message]:
        """Return one exchange with a player who is careful, hasty (a number or a pair will do) or guesses."""
        concept: dict[str, Value] = {
            "task.difficulty": int(pick_of(rng, {"2": 0.2, "3": 0.8})),
            "obs.template": pick_of(rng, {"arrow": 0.7, "words": 0.15, "equation": 0.15}),
            "verifier.operators": pick_of(rng, {"all": 0.6, "no_minus": 0.2, "no_times": 0.2}),
        }
        env = cls()
        observation, _ = env.reset(seed=int(rng.integers(2**62)), options={"concept": concept})
        habit = pick_of(rng, HABITS)
        if habit == "careful":
            reply = env.oracle_action()
        elif habit == "hasty":
            reply = _nearest(env._numbers, env._target, env._rules["operators"])
        else:
            reply = _guess(rng, env._numbers, env._rules["operators"])
        return [{"role": "user", "content": observation}, {"role": "assistant", "content": reply}]


INSTRUCTION = (
    "Write one arithmetic expression of the given numbers whose value is the target, with + - * / and"
    " parentheses. Use each number at most once; the verifier may want all of them, and may refuse - or *."
    " Reply with the expression alone, such as (7-3)*9."
)


@lru_cache(maxsize=8192)
def reachable(numbers: Numbers, operators: str) -> dict[Fraction, str]:
    """Return every value that an expression of all the numbers has, with one such expression.

    Args:
        numbers: 1 to 4 of them in ascending order; each is used once.
        operators: the ones that may be used, of + - * /.
    """
    if len(numbers) == 1:
        return {Fraction(numbers[0]): str(numbers[0])}
    found: dict[Fraction, str] = {}
    for picked in range(1, 2 ** len(numbers) - 1):
        left = tuple(n for i, n in enumerate(numbers) if picked >> i & 1)
        right = tuple(n for i, n in enumerate(numbers) if not picked >> i & 1)
        pairs = itertools.product(reachable(left, operators).items(), reachable(right, operators).items())
        for ((a, first), (b, second)), operator in itertools.product(pairs, operators):
            value = _apply(operator, a, b)
            if value is not None and value not in found:
                found[value] = f"{_wrap(first, operator, False)}{operator}{_wrap(second, operator, True)}"
    return found


def _apply(operator: str, a: Any, b: Any) -> Any:
    match operator:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
    return a / b if b else None


def _wrap(text: str, operator: str, right: bool) -> str:
    """Put an operand into parentheses if it needs them."""
    depth, signs = 0, set()
    for character in text:
        depth += (character == "(") - (character == ")")
        if not depth and character in "+-*/":
            signs.add(character)
    loose, tight = signs & {"+", "-"}, signs & {"*", "/"}
    if (loose and (operator in "*/" or (right and operator == "-"))) or (tight and right and operator == "/"):
        return f"({text})"
    return text


def _subsets(numbers: Numbers) -> list[Numbers]:
    """Return the smaller collections of some numbers, the smallest first, each once."""
    sizes = range(1, len(numbers))
    return [part for size in sizes for part in sorted(set(itertools.combinations(numbers, size)))]


def _allowed(kind: str, operators: str) -> str:
    return "".join(sign for sign in KINDS[kind] if sign in operators)


def _chain(numbers: Numbers, signs: tuple[str, ...]) -> int | None:
    """Return the value of n1 s1 n2 s2 n3 ... from left to right, if all steps are whole, positive and small."""
    value = numbers[0]
    for sign, number in zip(signs, numbers[1:], strict=True):
        if sign == "/" and value % number:
            return None
        value = value // number if sign == "/" else _apply(sign, value, number)
        if not 0 < value <= MAX_TARGET:
            return None
    return value


def _draw(rng: np.random.Generator, size: int, largest: int, signs: str) -> tuple[Numbers, int]:
    """Return numbers in ascending order and a target: a uniform draw of a chain that holds."""
    while True:
        draws = rng.random(2 * size - 1).tolist()
        numbers = tuple(1 + int(draw * largest) for draw in draws[:size])
        target = _chain(numbers, tuple(signs[int(draw * len(signs))] for draw in draws[size:]))
        if target is not None:
            return tuple(sorted(numbers)), target


@lru_cache(maxsize=32)
def _distribution(size: int, largest: int, signs: str) -> dict[tuple[Numbers, int], float]:
    """Return the probability of every task (numbers in ascending order, target) that `_draw` makes."""
    count: Counter[tuple[Numbers, int]] = Counter()
    steps = list(itertools.product(signs, repeat=size - 1))
    for numbers in itertools.product(range(1, largest + 1), repeat=size):
        key = tuple(sorted(numbers))
        count.update((key, target) for step in steps if (target := _chain(numbers, step)) is not None)
    total = count.total()
    return {task: n / total for task, n in count.items()}


def _guess(rng: np.random.Generator, numbers: Numbers, operators: str) -> str:
    """Return an expression of all the numbers, whatever its value."""
    parts = [str(numbers[i]) for i in rng.permutation(len(numbers))]
    text = parts[0]
    for part in parts[1:]:
        sign = operators[int(rng.integers(len(operators)))]
        text = f"{_wrap(text, sign, False)}{sign}{part}"
    return text


def _nearest(numbers: Numbers, target: int, operators: str) -> str:
    """Return the expression of one or two of three or more numbers (one of two) that comes nearest to the target."""
    values = (reachable(part, operators) for part in _subsets(numbers) if len(part) <= 2)
    near = ((abs(value - target), text) for found in values for value, text in found.items())
    return min(near, key=itemgetter(0))[1]


def _valid_task(task: Any, operators: str) -> tuple[Numbers, int]:
    """Return numbers and target of a task given to `reset`."""
    form = '{"numbers": [2 to 4 whole numbers from 1 to 99], "target": 1 to 999}'
    if not isinstance(task, Mapping) or set(task) != {"numbers", "target"}:
        raise UserError(f"{Countdown.id}: task {task!r} is not of the form {form}")
    numbers, target = task["numbers"], task["target"]
    whole = isinstance(numbers, list | tuple) and all(type(n) is int and 1 <= n <= 99 for n in numbers)
    if not whole or not 2 <= len(numbers) <= 4:
        raise UserError(f"{Countdown.id}: task numbers {numbers!r} are not of the form {form}")
    if type(target) is not int or not 1 <= target <= MAX_TARGET:
        raise UserError(f"{Countdown.id}: task target {target!r} is not of the form {form}")
    ordered = tuple(sorted(numbers))
    if Fraction(target) not in reachable(ordered, operators):
        raise UserError(f"{Countdown.id}: {target} cannot be reached from {list(ordered)} with {operators}")
    return ordered, target
