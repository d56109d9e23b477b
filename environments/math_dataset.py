r"""Problems of public maths data sets, graded by typed answers; mixture of sets and form of answers drift.

`MathDataset` plays made-up rows in the schemas of the real sets. Real ones: `MathDataset.with_sets({"gsm8k":
"train.jsonl"})`, or `sao_bench.environments.math_dataset:sets.yaml` wherever an environment is named.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
from sao_bench.environments._draws import any_of, channel, pick, pick_of
from sao_bench.environments._single_turn import VERDICT_CHANNELS, SingleTurn

from sao_bench.environment import Message, value_of
from sao_bench.errors import UserError
from sao_bench.grading.answers import boxed_answer, judge
from sao_bench.grading.answers.extract import after_thinking
from sao_bench.grading.answers.typesetting import plain
from sao_bench.math_data import SETS, MathRow, Rows, load, made_up, read_mapping
from sao_bench.types import Channel, Value

log = logging.getLogger("sao_bench")

TEMPLATES = {"plain": "{0}", "question": "Q: {0}", "task": "{0} Solve it."}
FORMS = {
    "box": "\\boxed{{{0}}}",
    "last_box": "\\boxed{{{0}}}",
    "answer": "Answer: {0}",
    "hash": "#### {0}",
    "any": "\\boxed{{{0}}}",
}
"""Form of an answer -> how it is written. `last_box` takes text around the box, `any` each of the other three."""

STRICTNESS = ("value", "any_form", "literal")
NUMBERS = ("integer", "rational", "decimal")
INSTRUCTION = "Think step by step. End with the final answer, and nothing after it: \\boxed{answer}"

_COMPUTED = re.compile(r"[*^!|]|\\(?!frac(?![a-z])|text|mathrm|%)|[\d)}]\s*[-+(]")
"""What a number that is written out does not have: an operation."""


def answer_in(reply: str, form: str) -> str | None:
    """Return the answer of a reply in a form, or None. Thinking before it does not count."""
    if form == "last_box":
        return boxed_answer(reply)
    if form == "any":
        found = (answer_in(reply, each) for each in ("box", "answer", "hash"))
        return next((answer for answer in found if answer is not None), None)
    said = after_thinking(reply).strip()
    before, after = FORMS[form].format("\0").split("\0")
    answer = said[len(before) : len(said) - len(after)].strip()
    formed = said.startswith(before) and said.endswith(after) and "\n" not in said
    return answer if formed and answer and boxed_answer(f"\\boxed{{{answer}}}") == answer else None


def literal(answer: str) -> str:
    """Return an answer's text without math delimiters and with single spaces."""
    return " ".join(answer.strip("$ ").split())


def shortest(row: MathRow) -> str:
    """Return the gold answer as short as a typed verifier takes it."""
    if row.type == "integer":
        return literal(row.answer).replace(",", "")
    return re.sub(r"\\[dt]?frac\{(\d+)\}\{(\d+)\}", r"\1/\2", literal(row.answer))


def is_right(row: MathRow, answer: str, strictness: str) -> bool | None:
    """Return whether an answer is right; None if the machinery cannot judge this row at all."""
    if strictness == "literal":
        return literal(answer) == literal(row.answer)
    if strictness == "value" and row.type in NUMBERS:
        last = plain(answer).rpartition("=")[2]
        if _COMPUTED.search(last) or (row.type == "integer" and re.search(r"/|\\frac", last)):
            return False
    verdict = judge(row.answer, f"\\boxed{{{answer}}}", row.type).verdict
    if verdict == "not_judged" and judge(row.answer, "\\boxed{7919}", row.type).verdict == "not_judged":
        return None
    return verdict == "correct"


def _channels(names: Iterable[str]) -> tuple[Channel, ...]:
    names = tuple(names)
    shares = {name: 1 / len(names) for name in names}
    return (
        channel("task.mixture", "virtual", shares, "which set the problem is from", *names),
        channel("obs.template", "virtual", "plain", "the wording around problems", *TEMPLATES),
        channel("verifier.form", "real", "box", "the form an answer has to have", *FORMS),
        channel(
            "verifier.strictness",
            "real",
            "value",
            "equal values with numbers written out, equal values in any form, or the same text",
            *STRICTNESS,
        ),
        *VERDICT_CHANNELS,
    )


class MathDataset(SingleTurn):
    r"""Problems of maths data sets with typed answers; the mixture of sets and the form of answers drift.

    Observation: the problem. With `template="chat"` an instruction for a general instruct model follows it.

    Action: the answer in the form of today, `\boxed{12}`, `Answer: 12` or `#### 12`; thinking before it, between
    `<think>` and `</think>`, does not count. Under `last_box` any text may stand around the last box; `any` takes each
    of the three forms.

    Reward: 1 if the answer is right, else 0. With probability `reward.noise` it is replaced by a fair coin.
    `score` is before noise.

    Episode end: terminated after one turn. A row that the machinery cannot judge is a fault.

    Oracle: 1, the gold answer. Floor: the most frequent answer, counted over all rows.

    Versions: v0.
    """

    id = "sao_bench/MathDataset-v0"
    max_reply_tokens = 48
    tiny_config: ClassVar[dict[str, float]] = {"kv_heads": 4, "updates": 4000}
    channels: ClassVar[tuple[Channel, ...]] = _channels(SETS)

    def __init__(self, template: Literal["short", "chat"] = "short") -> None:
        if template not in ("short", "chat"):
            raise UserError(f"{self.id}: template {template!r} is not one of: short, chat")
        super().__init__()
        self.template = template

    @classmethod
    def rows(cls) -> Mapping[str, Rows]:
        """Return the rows of every set: here, the made-up ones."""
        return _made_up_rows()

    @staticmethod
    def with_sets(sets: Mapping[str, str | Path | Iterable[str | Path]]) -> type[MathDataset]:
        """Return the environment over real sets.

        Args:
            sets: name of a set -> file, folder or hub id (`hub` is the set's own), or several of them.

        Raises:
            UserError: a set is unknown, a source cannot be read or has no usable row, or there is no set.
        """
        if not sets:
            raise UserError(f"no set is named; known: {', '.join(SETS)}")
        sources = {name: [given] if isinstance(given, str | Path) else given for name, given in sets.items()}
        return _subclass(tuple((name, tuple(map(str, given))) for name, given in sources.items()))

    def ask(self, task: Any, share: float) -> str:
        """Draw a set by its share and one of its rows, or take the given one."""
        values, loaded = self.concept.values, self.rows()
        if task is None:
            rows = loaded[pick(values["task.mixture"], tuple(loaded), share)].rows
            self._row = rows[int(self.rng.integers(len(rows)))]
        else:
            self._row = _valid_row(self, task)
        text = TEMPLATES[str(values["obs.template"])].format(self._row.problem)
        return text if self.template == "short" else f"{text}\n\n{INSTRUCTION}"

    def verdict(self, action: str) -> dict[str, int]:
        """Read the answer in the form of today, then judge it by its type."""
        answer = answer_in(action, str(self.concept.values["verifier.form"]))
        right = answer is not None and is_right(self._row, answer, self._strictness)
        if right is None:
            self.fault = {"stage": "scoring", "kind": "not judged"}
        return {"well_formed": int(answer is not None), "right": int(bool(right))}

    @property
    def _strictness(self) -> str:
        return str(self.concept.values["verifier.strictness"])

    def truth(self) -> dict[str, Any]:
        """Return score, solved, task (set and number of the row) and the parts of the verdict."""
        return self._truth({"set": self._row.set, "row": self._row.number})

    def oracle_action(self) -> str:
        """Return the gold answer in the form of today, as short as the verifier takes it."""
        gold = literal(self._row.answer) if self._strictness == "literal" else shortest(self._row)
        return FORMS[str(self.concept.values["verifier.form"])].format(gold)

    @classmethod
    def oracle(cls, values: Mapping[str, Value]) -> float:
        """Return J* = 1: the gold answer is right."""
        return 1.0

    @classmethod
    def floor(cls, values: Mapping[str, Value]) -> float:
        """Return b = max over answers of P(it is the gold answer), counted over all rows.

        Answers count as the same where their shortest texts (under `literal`: their texts) are.
        """
        shares = cast(Mapping[str, float], value_of(values, "task.mixture", cls.channels))
        as_written = value_of(values, "verifier.strictness", cls.channels) == "literal"
        mass: defaultdict[str, float] = defaultdict(float)
        for name, share in shares.items():
            rows = cls.rows()[name].rows
            for answer, count in _counts(rows, as_written).items() if share else ():
                mass[answer] += share * count / len(rows)
        return max(mass.values())

    @classmethod
    def demonstration(cls, rng: np.random.Generator) -> list[Message]:
        """Return one exchange about any set, mostly with the answer in a box."""
        name = any_of(rng, tuple(cls.rows()))
        concept: dict[str, Value] = {
            "task.mixture": {name: 1.0},
            "obs.template": pick_of(rng, {"plain": 0.7, "question": 0.15, "task": 0.15}),
            "verifier.form": pick_of(rng, {"box": 0.6, "answer": 0.2, "hash": 0.2}),
            "verifier.strictness": pick_of(rng, {"value": 0.7, "literal": 0.3}),
        }
        env = cls()
        observation, _ = env.reset(seed=int(rng.integers(2**62)), options={"concept": concept})
        return env.demonstrated(observation, rng)


@cache
def _made_up_rows() -> Mapping[str, Rows]:
    return {name: made_up(name) for name in SETS}


@cache
def _subclass(sets: tuple[tuple[str, tuple[str, ...]], ...]) -> type[MathDataset]:
    loaded = {name: load(name, sources) for name, sources in sets}
    for name, rows in loaded.items():
        if wrong := rows.complaints(1):
            log.warning(
                "warning: %s, left out; %s; `answers rows FILE --set %s` lists them",
                rows.summary,
                "; ".join(wrong),
                name,
            )
    body = {
        "__doc__": MathDataset.__doc__,
        "__module__": __name__,
        "id": MathDataset.id.replace("-v0", f".{'.'.join(loaded)}-v0"),
        "channels": _channels(loaded),
        "rows": classmethod(lambda cls: loaded),
    }
    return type("+".join(loaded), (MathDataset,), body)


def __getattr__(name: str) -> type[MathDataset]:
    """Make `module:sets.yaml` name the environment over the sets that the file names."""
    if not name.endswith((".yaml", ".yml")):
        raise AttributeError(f"{name}: not a YAML file of sets")
    return MathDataset.with_sets(cast(Any, read_mapping(Path(name))))


@lru_cache(maxsize=64)
def _counts(rows: tuple[MathRow, ...], as_written: bool) -> Counter[str]:
    return Counter(literal(row.answer) if as_written else shortest(row) for row in rows)


def _valid_row(env: MathDataset, task: Any) -> MathRow:
    """Return the row that a task given to `reset` names."""
    names = ", ".join(env.rows())
    if not isinstance(task, Mapping) or set(task) != {"set", "row"} or task["set"] not in env.rows():
        raise UserError(
            f'{env.id}: task {task!r} is not of the form {{"set": one of {names}, "row": number}}'
        )
    rows = _numbered(env.rows()[task["set"]].rows)
    if type(task["row"]) is not int or task["row"] not in rows:
        raise UserError(f"{env.id}: {task['set']} has no usable row {task['row']!r}")
    return rows[task["row"]]


@lru_cache(maxsize=64)
def _numbered(rows: tuple[MathRow, ...]) -> dict[int, MathRow]:
    return {row.number: row for row in rows}
