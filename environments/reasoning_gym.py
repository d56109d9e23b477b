"""Any generator of reasoning-gym as a drifting environment: mixture, level and form of the answer change.

`ReasoningGym` has six light generators. Any others, by name: `ReasoningGym.with_generators(["maze", "gcd"])`, or
`sao_bench.environments.reasoning_gym:maze+gcd` wherever an environment is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, ClassVar, Literal, cast

import numpy as np
from sao_bench.environments._draws import any_of, channel, pick, pick_of
from sao_bench.environments._reasoning import (
    FORMULAS,
    GAMES,
    LEVELS,
    SEVERAL,
    Item,
    ScorerFaultError,
    checked,
    draw,
    is_right,
    item,
    library,
    squeezed,
)
from sao_bench.environments._single_turn import VERDICT_CHANNELS, SingleTurn

from sao_bench.environment import Message, value_of
from sao_bench.errors import UserError
from sao_bench.seeding import generator
from sao_bench.types import Channel, Value

LIGHT = ("chain_sum", "coin_flip", "gcd", "leg_counting", "products", "spell_backward")
"""Generators with short prompts and answers, which a model of 0.1M parameters can learn in part."""

FORMATS = {
    "plain": ("", ""),
    "equals": ("= ", ""),
    "tag": ("<answer>", "</answer>"),
    "box": ("\\boxed{", "}"),
    "any": ("", ""),
}
"""Form of an answer -> what stands before and after it. `any` takes each of the others."""

FLOOR_ITEMS = 256
SLOW_FLOOR_ITEMS = 32
"""Items a generator's constant answers are tried on; fewer where a scorer has to be asked."""

INSTRUCTION = "Reply with the final answer alone: no reasoning, no other text."


def answer_in(reply: str, form: str) -> str:
    """Return the answer of a reply in a form; the empty text if the reply does not have it."""
    text = reply.strip()
    if form == "any":
        dressed = (answer_in(text, each) for each in ("equals", "tag", "box"))
        return next((answer for answer in dressed if answer), text)
    before, after = FORMATS[form]
    formed = text.startswith(before) and text.endswith(after) and len(text) > len(before) + len(after)
    return text[len(before) : len(text) - len(after)].strip() if formed else ""


def _channels(generators: Sequence[str], level: int) -> tuple[Channel, ...]:
    shares = {name: 1 / len(generators) for name in generators}
    return (
        channel("task.mixture", "virtual", shares, "which generator makes the task", *generators),
        channel("task.level", "virtual", level, "level of the generators' curricula", 0, LEVELS - 1),
        channel("verifier.format", "real", "plain", "the form an answer has to have", *FORMATS),
        channel(
            "verifier.strictness",
            "real",
            "exact",
            "to the letter, or without regard to case, idle white space and a final period",
            "exact",
            "loose",
        ),
        *VERDICT_CHANNELS,
    )


class ReasoningGym(SingleTurn):
    r"""Tasks of reasoning-gym's generators; the mixture, the level and the form of answers drift.

    Observation: the question in a short form where its generator has one, `4 + 3`, else as it is. With
    `template="chat"` the generator's own question and an instruction for a general instruct model.

    Action: the answer and nothing else, in the form of today: `7`, `= 7`, `<answer>7</answer>` or `\boxed{7}`;
    `any` takes each of them.

    Reward: 1 for a right answer in the right form, else 0: no partial credit, and no credit for an answer inside
    other text. With probability `reward.noise` it is replaced by a fair coin. `score` is before noise.

    Episode end: terminated after one turn. A scorer that fails on its own reference answer is a fault.

    Oracle: 1, items without a reference answer are not drawn. Floor: the best constant answer, tried on a fixed
    sample of each generator's items.

    Versions: v0, over reasoning-gym 0.1.25.
    """

    id = "sao_bench/ReasoningGym-v0"
    max_reply_tokens = 40
    tiny_config: ClassVar[dict[str, float]] = {"kv_heads": 4}
    generators: ClassVar[tuple[str, ...]] = LIGHT
    channels: ClassVar[tuple[Channel, ...]] = _channels(LIGHT, 0)

    def __init__(self, template: Literal["short", "chat"] = "short") -> None:
        if template not in ("short", "chat"):
            raise UserError(f"{self.id}: template {template!r} is not one of: short, chat")
        library()
        super().__init__()
        self.template = template

    @staticmethod
    def with_generators(names: Sequence[str]) -> type[ReasoningGym]:
        """Return the environment over other generators of reasoning-gym, all alike by default.

        Raises:
            UserError: a name is unknown, refused or doubled, or reasoning-gym is not installed.
        """
        return _subclass(tuple(names))

    def ask(self, task: Any, share: float) -> str:
        """Draw an item of the mixture at the level, or take the given one."""
        values = self.concept.values
        if task is None:
            name = pick(values["task.mixture"], self.generators, share)
            self._item = draw(name, int(cast(int, values["task.level"])), self.rng)
        else:
            self._item = _valid_item(self, task)
        if self.template == "chat":
            return f"{self._item.question}\n\n{INSTRUCTION}"
        return self._item.prompt

    def verdict(self, action: str) -> dict[str, int]:
        """Take the form off, then compare."""
        answer = answer_in(action, str(self.concept.values["verifier.format"]))
        try:
            right = bool(answer) and is_right(self._item, answer, self._loose)
        except ScorerFaultError as fault:
            self.fault, right = {"stage": "scoring", "kind": f"scorer of {fault}"}, False
        return {"well_formed": int(bool(answer)), "right": int(right)}

    @property
    def _loose(self) -> bool:
        return self.concept.values["verifier.strictness"] == "loose"

    def truth(self) -> dict[str, Any]:
        """Return score, solved, task (generator, level, number) and the parts of the verdict."""
        task = {"generator": self._item.generator, "level": self._item.level, "number": self._item.number}
        return self._truth(task)

    def oracle_action(self) -> str:
        """Return the reference answer in the form of today, as short as the verifier takes it."""
        before, after = FORMATS[str(self.concept.values["verifier.format"])]
        return f"{before}{_shortest(self._item, self._loose)}{after}"

    @classmethod
    def oracle(cls, values: Mapping[str, Value]) -> float:
        """Return J* = 1: every item has an answer that is paid."""
        return 1.0

    @classmethod
    def floor(cls, values: Mapping[str, Value]) -> float:
        """Return b: the best constant answer's share of right ones, over `FLOOR_ITEMS` fixed items a generator."""
        shares = cast(Mapping[str, float], value_of(values, "task.mixture", cls.channels))
        level = int(cast(int, value_of(values, "task.level", cls.channels)))
        loose = value_of(values, "verifier.strictness", cls.channels) == "loose"
        names = [name for name in cls.generators if shares.get(name, 0.0) > 0]
        candidates = {answer for name in names for answer in _likely(name, level, loose)}
        return max(
            sum(shares[name] * _hits(name, level, loose, answer) for name in names) for answer in candidates
        )

    @classmethod
    def demonstration(cls, rng: np.random.Generator) -> list[Message]:
        """Return one exchange about any generator, mostly of the first level, mostly in plain form."""
        concept: dict[str, Value] = {
            "task.level": int(pick_of(rng, {"0": 0.85, "1": 0.15})),
            "verifier.format": pick_of(rng, {"plain": 0.55, "equals": 0.15, "tag": 0.15, "box": 0.15}),
            "verifier.strictness": pick_of(rng, {"exact": 0.8, "loose": 0.2}),
            "task.mixture": {any_of(rng, cls.generators): 1.0},
        }
        env = cls()
        observation, _ = env.reset(seed=int(rng.integers(2**62)), options={"concept": concept})
        return env.demonstrated(observation, rng)


@cache
def _subclass(names: tuple[str, ...]) -> type[ReasoningGym]:
    name = "+".join(checked(names))
    body = {
        "__doc__": ReasoningGym.__doc__,
        "__module__": __name__,
        "id": ReasoningGym.id.replace("-v0", f".{'.'.join(names)}-v0"),
        "generators": names,
        "channels": _channels(names, 0),
    }
    return type(name, (ReasoningGym,), body)


def __getattr__(name: str) -> type[ReasoningGym]:
    """Make `module:maze+gcd` name the environment over these generators."""
    if name.startswith(("_", "pytest")):
        raise AttributeError(name)
    return ReasoningGym.with_generators(name.split("+"))


def _shortest(task: Item, loose: bool) -> str:
    return squeezed(task.answer) if loose else task.answer


@lru_cache(maxsize=512)
def _sample(name: str, level: int) -> tuple[Item, ...]:
    scored = name in SEVERAL or name in FORMULAS or name in GAMES
    rng = generator(0, "reasoning_gym.floor", name, level)
    return tuple(draw(name, level, rng) for _ in range(SLOW_FLOOR_ITEMS if scored else FLOOR_ITEMS))


@lru_cache(maxsize=512)
def _likely(name: str, level: int, loose: bool) -> tuple[str, ...]:
    """Return the most frequent reference answers."""
    count = Counter(_shortest(task, loose) for task in _sample(name, level))
    return tuple(answer for answer, _ in count.most_common(8))


@lru_cache(maxsize=4096)
def _hits(name: str, level: int, loose: bool, answer: str) -> float:
    """Return the share of a generator's items for which an answer is right."""
    sample = _sample(name, level)
    return sum(is_right(task, answer, loose) for task in sample) / len(sample)


def _valid_item(env: ReasoningGym, task: Any) -> Item:
    """Return the item that a task given to `reset` describes."""
    form = f'{{"generator": one of {", ".join(env.generators)}, "level": 0 to {LEVELS - 1}, "number": 0 to 2**31 - 1}}'
    good = isinstance(task, Mapping) and set(task) == {"generator", "level", "number"}
    if (
        not good
        or task["generator"] not in env.generators
        or type(task["level"]) is not int
        or not 0 <= task["level"] < LEVELS
        or type(task["number"]) is not int
        or not 0 <= task["number"] < 2**31
    ):
        raise UserError(f"{env.id}: task {task!r} is not of the form {form}")
    found = item(task["generator"], task["level"], task["number"])
    if found is None:
        raise UserError(f"{env.id}: task {task!r} has no answer")
    return found
