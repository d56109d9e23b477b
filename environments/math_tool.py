"""Arithmetic and equations with a calculator whose name, argument order and notation drift.

The numbers are easy to copy and hard to compute, so that the way to be paid is to know how the tool is called
today. That a tool has changed is seen only by its errors, or, where an argument order was swapped, not at all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Literal, cast

import numpy as np
from sao_bench.environments._arithmetic import NOTATIONS, ExpressionError, Linear
from sao_bench.environments._draws import any_of, channel, pick, pick_of

from sao_bench.environment import Message, TextEnv, value_of
from sao_bench.environments import _arithmetic as arithmetic
from sao_bench.errors import UserError
from sao_bench.types import Channel, Value

KINDS = ("add", "sub", "mul", "div", "linear")
OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
NAMES = ("calc", "eval", "compute", "solve")
USAGE = {"infix": "{0}{1}{2}", "prefix": "{1} {0} {2}", "swapped": "{1} {2} {0}", "postfix": "{0} {2} {1}"}
"""Signature -> how left operand {0}, operator {1} and right operand {2} are laid out."""

SIGNATURES = tuple(USAGE)
TEMPLATES = {
    "terse": {"ask": "{0}", "result": "{0}", "name": "no tool", "call": "bad call", "usage": ": {0}"},
    "words": {
        "ask": "what is {0}?",
        "result": "it is {0}",
        "name": "i know no such tool",
        "call": "that did not work",
        "usage": ", try {0}",
    },
    "code": {
        "ask": ">>> {0}",
        "result": "out: {0}",
        "name": "NameError",
        "call": "SyntaxError",
        "usage": ", usage: {0}",
    },
}
"""Wording of the task, of a result, of the two errors and of the usage that may follow an error."""

HALVES = 0.2
"""Share of equations whose solution is not whole but a half."""

WASTE = 0.2
"""What an error takes off the payment of a right answer."""

_TASK = re.compile(r"([0-9]{1,9})([-+*/])([0-9]{1,9})|([0-9]{1,9}x(?:[-+][0-9]{1,9})?)(=)(-?[0-9]{1,9})")
_CALL = re.compile(r"([a-z]+)(?:\s+|(?=\())(.+)")
_PREFIX = re.compile(r"([-+*/=])[ ,]+([^ ,]+)[ ,]+([^ ,]+)")
_POSTFIX = re.compile(r"([^ ,]+)[ ,]+([^ ,]+)[ ,]+([-+*/=])")


def calculate(arguments: str, signature: str) -> Fraction:
    """Return what the calculator makes of the arguments of a call.

    Args:
        arguments: an expression such as `12*7`, or an equation in x such as `3x+4=10`.
        signature: one of `SIGNATURES`: `infix` takes it so; the others take operator and two operands apart,
            as in `* 12 7`, swapped `* 7 12` and postfix `12 7 *`, for an equation `= 3x+4 10`.

    Raises:
        ExpressionError: the arguments are not of this form, or have no value below 10^12.
    """
    if signature == "infix":
        left, equals, right = arguments.partition("=")
        if equals:
            return arithmetic.root(arithmetic.linear(left), arithmetic.linear(right))
        return arithmetic.constant(arithmetic.linear(arguments))
    if arguments.startswith("(") and arguments.endswith(")"):
        arguments = arguments[1:-1]
    parts = (_POSTFIX if signature == "postfix" else _PREFIX).fullmatch(arguments)
    if parts is None:
        raise ExpressionError(f"not of the form {USAGE[signature]}")
    a, b, c = parts.groups()
    left, operator, right = {"prefix": (b, a, c), "swapped": (c, a, b), "postfix": (a, c, b)}[signature]
    return _apply(operator, arithmetic.linear(left), arithmetic.linear(right))


def right_answer(text: str, value: Fraction, strictness: str) -> bool:
    """Return whether the verifier takes `text` for `value`.

    Args:
        text: what follows the word `answer`.
        value: the true value.
        strictness: `tolerance` takes any notation within 1%, `exact` any notation of the very value, `format`
            only its plain decimal.
    """
    if strictness == "format":
        return text == arithmetic.write(value, "decimal")
    number = arithmetic.read(text)
    if number is None:
        return text == arithmetic.write(value, "words")
    return abs(number - value) * 100 <= abs(value) if strictness == "tolerance" else number == value


class MathTool(TextEnv):
    """Compute or solve with a calculator whose name, argument order and notation change unannounced.

    Observation: a task such as `12*7` or the equation `3x+4=10`; after a call the result (`84`) or an error
    (`no tool`, `bad call`), which may name the usage of today (`no tool: compute + a b`). With
    `template="chat"` the task comes with instructions for a general instruct model.

    Action: a call, `calc * 12 7` or `calc(* 12 7)`, or `answer 84`, which is final. Name and argument order are
    what the channels say: `calc 12*7` (infix), `calc * 7 12` (swapped), `calc 12 7 *` (postfix). Anything else
    is an error that costs a turn.

    Reward: a right answer is paid 1 - `WASTE` (0.2) x number of errors, a wrong one 0. What is right depends
    on `verifier.strictness` (see `right_answer`). With probability `reward.noise` a fair coin is paid for the
    answer instead. `score` is before noise.

    Episode end: terminated by an answer; truncated after four turns.

    Oracle: one right call and its result as the answer, without an error: 1. Floor: always the same answer,
    the likeliest value (under `tolerance` the likeliest window of 1%) of the distribution of answers.

    Versions: v0.
    """

    id = "sao_bench/MathTool-v0"
    max_turns = 4
    max_reply_tokens = 48
    tiny_config: ClassVar[Mapping[str, Any]] = {
        **{
            "hidden_size": 64,
            "layers": 2,
            "heads": 4,
            "kv_heads": 2,
            "head_dim": 16,
            "intermediate_size": 192,
        },
        **{"updates": 1500, "batch_size": 32, "learning_rate": 6e-3},
    }
    channels: ClassVar[tuple[Channel, ...]] = (
        channel(
            "task.mixture",
            "virtual",
            dict.fromkeys(KINDS, 0.2),
            "what is to be done: operator or equation",
            *KINDS,
        ),
        channel("task.difficulty", "virtual", 2, "digits of the operands (a factor has at most 2)", 1, 4),
        channel("tool.calc.name", "real", "calc", "the name that the calculator answers to", *NAMES),
        channel("tool.calc.signature", "real", "prefix", "the order of operands and operator", *SIGNATURES),
        channel("tool.calc.result_format", "real", "decimal", "the notation of results", *NOTATIONS),
        channel(
            "tool.calc.docs", "virtual", "error", "where today's usage is told", "none", "error", "prompt"
        ),
        channel("obs.template", "virtual", "terse", "the wording of tasks, results and errors", *TEMPLATES),
        channel(
            "verifier.strictness",
            "real",
            "exact",
            "which answers count as right",
            "tolerance",
            "exact",
            "format",
        ),
        channel("reward.noise", "real", 0.0, "probability that a fair coin is paid instead", 0.0, 1.0),
        channel("latency.tool", "virtual", 0.5, "median seconds until the tool replies", 0.0, 60.0),
        channel("latency.tail", "virtual", 0.5, "sigma of the log-normal latency", 0.0, 3.0),
    )

    def __init__(self, template: Literal["short", "chat"] = "short") -> None:
        if template not in ("short", "chat"):
            raise UserError(f"{self.id}: template {template!r} is not one of: short, chat")
        super().__init__()
        self.template = template
        self._expression = ""
        self._value = Fraction(0)

    def begin(self, task: Any) -> str:
        """Draw task, noise and latencies (the same draws under every concept)."""
        values = self.concept.values
        kind, noise, coin, *operands = self.rng.random(8).tolist()
        self._tails = self.rng.standard_normal(self.max_turns).tolist()
        if task is None:
            digits = int(cast(int, values["task.difficulty"]))
            self._expression = _draw(pick(values["task.mixture"], KINDS, kind), digits, operands)
        else:
            self._expression = _valid_task(task)
        self._value = _solve(self._expression)
        self._coin = float(coin < 0.5) if noise < cast(float, values["reward.noise"]) else None
        self._result: Fraction | None = None
        self._errors, self._solved = 0, False
        self._wording = TEMPLATES[str(values["obs.template"])]
        ask = self._wording["ask"].format(self._expression)
        if values["tool.calc.docs"] == "prompt":
            ask = f"[{usage(values)}] {ask}"
        return ask if self.template == "short" else f"{INSTRUCTION}\n\n{ask}"

    def respond(self, action: str) -> tuple[str, float, bool, bool]:
        """Run a call, or judge an answer and end the episode."""
        action = action.strip()
        if action.startswith("answer "):
            self.latency_s = 0.0
            strictness = str(self.concept.values["verifier.strictness"])
            self._solved = right_answer(action[7:], self._value, strictness)
            return "", self._score() if self._coin is None else self._coin, True, False
        median = cast(float, self.concept.values["latency.tool"])
        tail = cast(float, self.concept.values["latency.tail"])
        self.latency_s = median * math.exp(tail * self._tails[self.turn - 1])
        return self._call(action), 0.0, False, False

    def _call(self, action: str) -> str:
        values = self.concept.values
        call = _CALL.fullmatch(action)
        error = "call" if call and call[1] == values["tool.calc.name"] else "name"
        if call and error == "call":
            try:
                self._result = calculate(call[2], str(values["tool.calc.signature"]))
                return self._wording["result"].format(self.shown())
            except ExpressionError:
                pass
        self._errors += 1
        told = values["tool.calc.docs"] != "none"
        return self._wording[error] + (self._wording["usage"].format(usage(values)) if told else "")

    def shown(self) -> str:
        """Return the last result as the tool writes it, or nothing."""
        notation = str(self.concept.values["tool.calc.result_format"])
        return "" if self._result is None else arithmetic.write(self._result, notation)

    def _score(self) -> float:
        return 1.0 - WASTE * self._errors if self._solved else 0.0

    def truth(self) -> dict[str, Any]:
        """Return score, solved, task and parts: `right` (0 or 1) and the number of `errors`."""
        parts = {"right": int(self._solved), "errors": self._errors}
        return {
            "score": self._score(),
            "solved": self._solved,
            "task": {"expression": self._expression},
            "parts": parts,
        }

    def oracle_action(self) -> str:
        """Return the right call, or, with its result or no turn left, the answer."""
        values = self.concept.values
        known = self._result == self._value
        if not known and self.turn < self.max_turns - 1:
            return f"{values['tool.calc.name']} {arguments(self._expression, str(values['tool.calc.signature']))}"
        plain = values["verifier.strictness"] == "format" or not known
        return f"answer {arithmetic.write(self._value, 'decimal') if plain else self.shown()}"

    @classmethod
    def oracle(cls, values: Mapping[str, Value]) -> float:
        """Return J* = 1: everything can be computed and called without an error."""
        return 1.0

    @classmethod
    def floor(cls, values: Mapping[str, Value]) -> float:
        """Return b = max over answers t of P(t is right), from the exact distribution of the values."""
        digits = int(cast(int, value_of(values, "task.difficulty", cls.channels)))
        shares = cast(Mapping[str, float], value_of(values, "task.mixture", cls.channels))
        held = [(share, *_distribution(kind, digits)) for kind, share in shares.items() if share]
        twice, place = np.unique(np.concatenate([values for _, values, _ in held]), return_inverse=True)
        p = np.bincount(place, weights=np.concatenate([share * p for share, _, p in held]))
        if value_of(values, "verifier.strictness", cls.channels) != "tolerance":
            return float(p.max())
        sides = [(twice[twice > 0], p[twice > 0]), (-twice[twice < 0][::-1], p[twice < 0][::-1])]
        return max(float(p[twice == 0].sum()), *(_window(values, p) for values, p in sides))

    @classmethod
    def demonstration(cls, rng: np.random.Generator) -> list[Message]:
        """Return the conversation of a user who guesses names and argument orders, and slips at times."""
        concept: dict[str, Value] = {
            "task.difficulty": int(pick_of(rng, {"1": 0.2, "2": 0.7, "3": 0.1})),
            "tool.calc.name": any_of(rng, NAMES),
            "tool.calc.signature": any_of(rng, SIGNATURES),
            "tool.calc.result_format": pick_of(
                rng, {"decimal": 0.4, "fraction": 0.2, "words": 0.2, "hex": 0.2}
            ),
            "tool.calc.docs": pick_of(rng, {"none": 0.2, "error": 0.7, "prompt": 0.1}),
            "obs.template": pick_of(rng, {"terse": 0.6, "words": 0.2, "code": 0.2}),
        }
        env = cls()
        observation, _ = env.reset(seed=int(rng.integers(2**62)), options={"concept": concept})
        user, said, done = _User(env, rng), [], False
        while not done:
            action = user.action(observation)
            said += [{"role": "user", "content": observation}, {"role": "assistant", "content": action}]
            observation, _, terminated, truncated, _ = env.step(action)
            done = terminated or truncated
        return said


INSTRUCTION = f"""Compute the value, or solve for x. You have a calculator. To use it, reply with one line: its \
name and its arguments. Its name is one of {", ".join(NAMES)}; its argument order is one of: 12*7 (infix), \
* 12 7 (prefix), * 7 12 (swapped prefix), 12 7 * (postfix); for an equation the operator is =. Both may have \
changed since you last used it. When you know the value, reply with: answer VALUE
Reply with one line, a call or the answer, and nothing else. You have {MathTool.max_turns} lines; errors cost."""


def usage(values: Mapping[str, Value]) -> str:
    """Return today's usage of the tool, such as `calc a+b`."""
    form = USAGE[str(values["tool.calc.signature"])]
    return f"{values['tool.calc.name']} {form.format('a', '+', 'b')}"


def arguments(expression: str, signature: str) -> str:
    """Return the arguments of the call that computes a task."""
    return USAGE[signature].format(*_split(expression))


def _split(expression: str) -> tuple[str, str, str]:
    """Return left operand, operator (`=` for an equation) and right operand of a task."""
    found = _TASK.fullmatch(expression)
    assert found is not None
    left, operator, right = (part for part in found.groups() if part is not None)
    return left, operator, right


def _apply(operator: str, left: Linear, right: Linear) -> Fraction:
    if operator == "=":
        return arithmetic.root(left, right)
    return arithmetic.constant(arithmetic.combine(operator, left, right))


def _solve(expression: str) -> Fraction:
    left, operator, right = _split(expression)
    return _apply(operator, arithmetic.linear(left), arithmetic.linear(right))


def _range(digits: int) -> tuple[int, int]:
    """Return the smallest number of so many digits, and how many there are."""
    return 10 ** (digits - 1), 9 * 10 ** (digits - 1)


def _draw(kind: str, digits: int, draws: list[float]) -> str:
    """Return a task from five numbers in [0, 1)."""
    low, count = _range(digits)
    a, b = (low + int(draw * count) for draw in draws[:2])
    if kind == "linear":
        half = draws[2] < HALVES
        slope = 2 * (1 + int(draws[3] * 4)) if half else 2 + int(draws[3] * 8)
        shift = b if draws[4] < 0.5 else -b
        return f"{slope}x{shift:+d}={slope * a + (slope // 2 if half else 0) + shift}"
    if kind == "mul":
        low, count = _range(min(digits, 2))
        b = low + int(draws[1] * count)
    elif kind == "div":
        b = 2 + int(draws[1] * 8)
        a *= b
    return f"{a}{OPERATORS[kind]}{b}"


@lru_cache(maxsize=32)
def _distribution(kind: str, digits: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the answers of a kind, doubled so that halves are integers, and their probabilities."""
    low, count = _range(digits)
    a = np.arange(low, low + count)
    if kind == "linear":
        return np.concatenate([2 * a, 2 * a + 1]), np.repeat([(1 - HALVES) / count, HALVES / count], count)
    if kind == "div":
        return 2 * a, np.full(count, 1 / count)
    if kind == "mul":
        low, count = _range(min(digits, 2))
        found = np.unique(np.multiply.outer(a, np.arange(low, low + count)), return_counts=True)
        return 2 * found[0], found[1] / found[1].sum()
    sums = np.arange(2 * count - 1)
    p = (count - np.abs(sums - (count - 1))) / count**2  # triangular
    return 2 * (sums + (2 * low if kind == "add" else 1 - count)), p


def _window(values: np.ndarray, p: np.ndarray) -> float:
    """Return the largest mass of positive integers v, ascending, with |t - v| <= v / 100 for some t.

    The best t may be moved up until it is 1.01 times the smallest value that it holds; 0.99 v <= t then.
    """
    if not len(values):
        return 0.0
    ends = np.searchsorted(99 * values, 101 * values, side="right")
    mass = np.concatenate([[0.0], np.cumsum(p)])
    return float((mass[ends] - mass[:-1]).max())


def _valid_task(task: Any) -> str:
    """Return the expression of a task given to `reset`."""
    form = '{"expression": "12*7" (+ - * / of two whole numbers) or "3x+4=10"}'
    if not isinstance(task, Mapping) or set(task) != {"expression"}:
        raise UserError(f"{MathTool.id}: task {task!r} is not of the form {form}")
    text = task["expression"]
    if not isinstance(text, str) or not _TASK.fullmatch(text):
        raise UserError(f"{MathTool.id}: task expression {text!r} is not of the form {form}")
    try:
        value = _solve(text)
    except ExpressionError as error:
        raise UserError(f"{MathTool.id}: task expression {text!r} has no value: {error}") from error
    if arithmetic.read(arithmetic.write(value, "decimal")) != value:
        raise UserError(f"{MathTool.id}: the value {value} of {text!r} is no decimal of at most 6 places")
    return text


class _User:
    """Who is seen in the demonstrations: knows how tools are called, not which call is right today."""

    def __init__(self, env: MathTool, rng: np.random.Generator) -> None:
        self.env, self.rng = env, rng
        self.name, self.signature = any_of(rng, NAMES), self._guess_signature()
        self.mental = rng.random() < 0.12

    def action(self, observation: str) -> str:
        """Return the next line: results are trusted, usages mostly followed, errors answered by a guess."""
        env, rng = self.env, self.rng
        values, wording, result = env.concept.values, env._wording, env._result
        if result is not None or self.mental:
            plain = self.mental or rng.random() < 0.3
            text = arithmetic.write(env._value if result is None else result, "decimal")
            return f"answer {self._slip(text if plain else env.shown())}"
        if usage(values) in observation and rng.random() < 0.75:
            self.name, self.signature = str(values["tool.calc.name"]), str(values["tool.calc.signature"])
        elif observation.startswith(wording["name"]):
            self.name = any_of(rng, NAMES)
        elif observation.startswith(wording["call"]):
            self.signature = self._guess_signature()
        return f"{self.name} {self._slip(arguments(env._expression, self.signature))}"

    def _guess_signature(self) -> str:
        return pick_of(self.rng, {"infix": 0.4, "prefix": 0.2, "swapped": 0.2, "postfix": 0.2})

    def _slip(self, text: str) -> str:
        """Return the text, once in 16 with a wrong digit."""
        places = [i for i, character in enumerate(text) if character.isdigit()]
        if not places or self.rng.random() > 1 / 16:
            return text
        place = places[int(self.rng.integers(len(places)))]
        return f"{text[:place]}{self.rng.integers(1, 10)}{text[place + 1 :]}"
