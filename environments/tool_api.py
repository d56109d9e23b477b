"""A shop's API whose names, signatures, return shapes and deprecation rules drift.

Nothing can be known without a call: prices, stocks and receipts are drawn for each episode. What is learnt is
the API of today, and what it does with yesterday's calls.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import numpy as np
from sao_bench.environments._draws import any_of, channel, pick, pick_of

from sao_bench.environment import Message, TextEnv, value_of
from sao_bench.errors import UserError
from sao_bench.types import Channel, Value

NAMES = {
    "price": ("price", "cost", "quote"),
    "stock": ("stock", "level", "left"),
    "order": ("order", "buy", "cart"),
}
"""Tool -> the names it can have, the first being that of its first version. No name belongs to two tools."""

KINDS = tuple(NAMES)
FORMS = {
    "price": {"plain": "{item}", "item": "item={item}", "sku": "sku={item}"},
    "stock": {"plain": "{item}", "item": "item={item}", "sku": "sku={item}"},
    "order": {
        "plain": "{item} {count}",
        "swapped": "{count} {item}",
        "item": "item={item} n={count}",
        "sku": "sku={item} qty={count}",
    },
}
"""Tool -> signature -> how its arguments are laid out."""

SHAPES = {
    "price": {"bare": "{0}", "record": "{{price: {0}}}", "list": "[{1}, {0}]", "cents": "{0}00"},
    "stock": {"bare": "{0}", "record": "{{stock: {0}}}", "list": "[{1}, {0}]", "text": "{0} left"},
    "order": {"bare": "{0}", "record": "{{receipt: {0}}}", "list": "[{1}, {0}]", "text": "no. {0}"},
}
"""Tool -> shape of what it returns: {0} is the value, {1} the item. A price in cents must be converted."""

TEMPLATES = {
    "terse": {"price": "{item} price?", "stock": "{item} stock?", "order": "{count} {item} please"},
    "polite": {
        "price": "how much is {item}?",
        "stock": "how many {item} are left?",
        "order": "i would like {count} {item}",
    },
    "ticket": {"price": "#price {item}", "stock": "#stock {item}", "order": "#order {item} x{count}"},
}
DEPRECATIONS = ("reject", "ignore", "coerce", "warn")
ERRORS = {"name": "no tool", "call": "bad call", "item": "no item"}
ERROR_COST, WARNING_COST = 0.2, 0.1
"""What an error, and a warning, take off the payment of a request that is done."""

LOW, COUNT = 10, 90
"""Values are uniform on LOW .. LOW + COUNT - 1."""

FOLLOWS, GIVES_UP, PATIENCE = 0.6, 0.35, 2
"""The clerk of the demonstrations: how often it does what an error says, or gives up instead; calls at most."""

_LETTERS = "bcdfghjklmnpqrstvwxz"
_CALL = re.compile(r"([a-z]+)(?:\s+|(?=\())(.+)")
_SLOTS = {"item": "(?P<item>[a-z]{1,12})", "count": "(?P<count>[0-9]{1,4})"}
_PARSERS = {
    tool: {name: re.compile(form.format(**_SLOTS)) for name, form in forms.items()}
    for tool, forms in FORMS.items()
}
_TOOL_OF = {name: tool for tool, names in NAMES.items() for name in names}


@dataclass(frozen=True, slots=True)
class Call:
    """A call that some version of the API takes: tool, the name and the signature it was made with."""

    tool: str
    name: str
    signature: str
    item: str
    count: int


def parse(line: str) -> Call | str:
    """Return the call of a line, `name arguments` or `name(arguments)`, or which error it is.

    Errors: `name`, there was never such a tool; `call`, its arguments are of no version.
    """
    found = _CALL.fullmatch(line)
    tool = _TOOL_OF.get(found[1]) if found else None
    if not found or not tool:
        return "name"
    text = found[2].removeprefix("(").removesuffix(")") if found[2].startswith("(") else found[2]
    text = re.sub(r"\s*,\s*|\s+", " ", text)
    for signature, form in _PARSERS[tool].items():
        if given := form.fullmatch(text):
            count = int(given["count"]) if "count" in form.groupindex else 0
            return Call(tool, found[1], signature, given["item"], count)
    return "call"


def _tool_channels() -> tuple[Channel, ...]:
    """Return name, signature and result format of every tool."""
    return tuple(
        made
        for tool in KINDS
        for made in (
            channel(f"tool.{tool}.name", "real", tool, f"the name of the {tool} tool", *NAMES[tool]),
            channel(
                f"tool.{tool}.signature", "real", "plain", f"the arguments of the {tool} tool", *FORMS[tool]
            ),
            channel(
                f"tool.{tool}.result_format", "real", "bare", f"what the {tool} tool returns", *SHAPES[tool]
            ),
        )
    )


class ToolAPI(TextEnv):
    """Serve a customer's request through a shop's API that changes without notice.

    Observation: a request, `kvt price?`, `kvt stock?` or `3 kvt please` (an item is a made-up code), then what
    the API returns. With `template="chat"` the request comes with instructions for a general instruct model.

    Action: a call such as `price kvt` or `order kvt 3` (also `order(kvt, 3)`), or `answer 42`, which is final:
    the price, the stock or, after an order, the number of its receipt.

    Reward: a request that is done is paid 1 - 0.2 x errors - 0.1 x warnings, else 0. It is done if the answer
    is right and exactly what was asked for was ordered. With probability `reward.noise` a fair coin is paid for
    the answer instead. `score` is before noise.

    Episode end: terminated by an answer; truncated after five turns.

    Deprecation: a call with another name or signature of a tool than today's is one of another version.
    `tool.deprecation` says what becomes of it: `reject` answers an error, `ignore` says `ok` and does nothing,
    `coerce` takes it, `warn` takes it and tells today's usage, for a tenth.

    Oracle: one call that is taken in full and the answer: 1. Floor: an answer without a call, which is right
    with probability 1/90 for a price or a stock and never for an order.

    Versions: v0.
    """

    id = "sao_bench/ToolAPI-v0"
    max_turns = 5
    max_reply_tokens = 32
    tiny_config: ClassVar[Mapping[str, Any]] = {
        "heads": 4,
        "kv_heads": 4,
        "head_dim": 16,
        "intermediate_size": 128,
        "updates": 1500,
    }
    channels: ClassVar[tuple[Channel, ...]] = (
        channel("task.mixture", "virtual", dict.fromkeys(KINDS, 1 / 3), "what is asked for", *KINDS),
        channel("task.difficulty", "virtual", 3, "letters of an item's code", 2, 8),
        *_tool_channels(),
        channel(
            "tool.deprecation", "real", "reject", "what becomes of another version's call", *DEPRECATIONS
        ),
        channel("tool.docs", "virtual", "error", "where today's usage is told", "none", "error", "prompt"),
        channel("obs.template", "virtual", "terse", "the wording of requests", *TEMPLATES),
        channel("reward.noise", "real", 0.0, "probability that a fair coin is paid instead", 0.0, 1.0),
        channel("latency.tool", "virtual", 0.5, "median seconds until the API replies", 0.0, 60.0),
        channel("latency.tail", "virtual", 0.5, "sigma of the log-normal latency", 0.0, 3.0),
    )

    def __init__(self, template: Literal["short", "chat"] = "short") -> None:
        if template not in ("short", "chat"):
            raise UserError(f"{self.id}: template {template!r} is not one of: short, chat")
        super().__init__()
        self.template = template
        self._task: dict[str, Any] = {}

    def begin(self, task: Any) -> str:
        """Draw request, values, noise and latencies (the same draws under every concept)."""
        values = self.concept.values
        kind, count, value, noise, coin, *letters = self.rng.random(13).tolist()
        self._tails = self.rng.standard_normal(self.max_turns).tolist()
        length = int(cast(int, values["task.difficulty"]))
        self._task = {
            "kind": pick(values["task.mixture"], KINDS, kind),
            "item": "".join(_LETTERS[int(draw * len(_LETTERS))] for draw in letters[:length]),
            "count": 1 + int(count * 9),
            "value": LOW + int(value * COUNT),
        }
        if task is not None:
            self._task = _valid_task(task)
        self._coin = float(coin < 0.5) if noise < cast(float, values["reward.noise"]) else None
        self._errors = self._warnings = 0
        self._orders: list[tuple[str, int]] = []
        self._known = self._done = False
        request = TEMPLATES[str(values["obs.template"])][self._task["kind"]].format(**self._task)
        if values["tool.docs"] == "prompt":
            request = f"[{usage(self._task['kind'], values)}] {request}"
        return request if self.template == "short" else f"{INSTRUCTION}\n\n{request}"

    def respond(self, action: str) -> tuple[str, float, bool, bool]:
        """Run a call, or judge an answer and end the episode."""
        action = action.strip()
        if action.startswith("answer "):
            self.latency_s = 0.0
            wanted = [(self._task["item"], self._task["count"])] if self._task["kind"] == "order" else []
            self._done = action[7:] == str(self._task["value"]) and self._orders == wanted
            return "", self._score() if self._coin is None else self._coin, True, False
        median = cast(float, self.concept.values["latency.tool"])
        tail = cast(float, self.concept.values["latency.tail"])
        self.latency_s = median * math.exp(tail * self._tails[self.turn - 1])
        call = parse(action)
        return self._fail(call) if isinstance(call, str) else self._run(call), 0.0, False, False

    def _run(self, call: Call) -> str:
        """Answer a call of any version."""
        values = self.concept.values
        renamed = call.name != values[f"tool.{call.tool}.name"]
        old = renamed or call.signature != values[f"tool.{call.tool}.signature"]
        rule = values["tool.deprecation"] if old else "coerce"
        if rule == "reject":
            return self._fail("name" if renamed else "call", call.tool)
        if rule == "ignore":
            return "ok"
        if call.tool == "order":
            self._orders.append((call.item, call.count))
        elif call.item != self._task["item"]:
            return self._fail("item", call.tool)
        value = self._task["value"] if self._fits(call) else LOW + (self._task["value"] + 37) % COUNT
        self._known = self._known or self._fits(call)
        result = SHAPES[call.tool][str(values[f"tool.{call.tool}.result_format"])].format(value, call.item)
        if rule == "warn":
            self._warnings += 1
            return f"{result} (old: use {usage(call.tool, values)})"
        return result

    def _fits(self, call: Call) -> bool:
        """Return whether a call does what was asked for; another one has another value."""
        asked = (self._task["kind"], self._task["item"])
        return (call.tool, call.item) == asked and call.count in (0, self._task["count"])

    def _fail(self, error: str, tool: str = "") -> str:
        self._errors += 1
        if self.concept.values["tool.docs"] == "none":
            return ERRORS[error]
        return f"{ERRORS[error]}: {usage(tool or self._task['kind'], self.concept.values)}"

    def _score(self) -> float:
        paid = 1.0 - ERROR_COST * self._errors - WARNING_COST * self._warnings
        return paid if self._done else 0.0

    def truth(self) -> dict[str, Any]:
        """Return score, solved, task and parts: `done` (0 or 1), `errors`, `warnings` and `orders`."""
        parts = {
            "done": int(self._done),
            "errors": self._errors,
            "warnings": self._warnings,
            "orders": len(self._orders),
        }
        return {"score": self._score(), "solved": self._done, "task": dict(self._task), "parts": parts}

    def oracle_action(self) -> str:
        """Return the first version's call where every version is taken, else today's; then the answer."""
        if self._known:
            return f"answer {self._task['value']}"
        values, kind = self.concept.values, self._task["kind"]
        if values["tool.deprecation"] == "coerce":
            return f"{kind} {FORMS[kind]['plain'].format(**self._task)}"
        return call_of(self._task, str(values[f"tool.{kind}.name"]), str(values[f"tool.{kind}.signature"]))

    @classmethod
    def oracle(cls, values: Mapping[str, Value]) -> float:
        """Return J* = 1: today's call is always taken in full."""
        return 1.0

    @classmethod
    def floor(cls, values: Mapping[str, Value]) -> float:
        """Return b = (1 - P(order)) / 90: one constant answer, nothing called."""
        shares = cast(Mapping[str, float], value_of(values, "task.mixture", cls.channels))
        return (shares.get("price", 0.0) + shares.get("stock", 0.0)) / COUNT

    @classmethod
    def demonstration(cls, rng: np.random.Generator) -> list[Message]:
        """Return the conversation of a clerk who has seen every version and guesses which is today's."""
        concept: dict[str, Value] = {
            "task.difficulty": int(pick_of(rng, {"2": 0.3, "3": 0.7})),
            "tool.deprecation": pick_of(rng, {"reject": 0.7, "ignore": 0.1, "coerce": 0.1, "warn": 0.1}),
            "tool.docs": pick_of(rng, {"none": 0.25, "error": 0.65, "prompt": 0.1}),
            "obs.template": pick_of(rng, {"terse": 0.7, "polite": 0.15, "ticket": 0.15}),
        }
        for tool in KINDS:
            concept[f"tool.{tool}.name"] = any_of(rng, NAMES[tool])
            concept[f"tool.{tool}.signature"] = any_of(rng, tuple(FORMS[tool]))
            shapes = [name for name in SHAPES[tool] if name != "bare"]
            concept[f"tool.{tool}.result_format"] = (
                "bare" if rng.random() < 0.5 else any_of(rng, tuple(shapes))
            )
        env = cls()
        observation, _ = env.reset(seed=int(rng.integers(2**62)), options={"concept": concept})
        clerk, said, done = _Clerk(env, rng), [], False
        while not done:
            action = clerk.action(observation)
            said += [{"role": "user", "content": observation}, {"role": "assistant", "content": action}]
            observation, _, terminated, truncated, _ = env.step(action)
            done = terminated or truncated
        return said


INSTRUCTION = "\n".join(
    [
        "Serve the customer's request through the shop's API; reply with one line, a call or the final answer.",
        "The API changes: each tool has one of these names and one of these signatures, which may differ from"
        " the last time. A call of another version may be refused, ignored, taken, or taken with a warning.",
        *(
            f"- {tool}: {', '.join(NAMES[tool])}; "
            + ", ".join(form.format(item="ITEM", count="COUNT") for form in FORMS[tool].values())
            for tool in KINDS
        ),
        "End with: answer NUMBER (the price, not in cents; the stock; or the receipt's number of the order).",
        "Order what is asked for once. Errors and warnings cost.",
    ]
)


def call_of(task: Mapping[str, Any], name: str, signature: str) -> str:
    """Return the call that a task needs, in one version."""
    return f"{name} {FORMS[task['kind']][signature].format(**task)}"


def usage(tool: str, values: Mapping[str, Value]) -> str:
    """Return today's usage of a tool, such as `buy sku=item qty=n`."""
    form = FORMS[tool][str(values[f"tool.{tool}.signature"])]
    return f"{values[f'tool.{tool}.name']} {form.format(item='item', count='n')}"


def _valid_task(task: Any) -> dict[str, Any]:
    """Return a checked copy of a task given to `reset`."""
    form = '{"kind": price, stock or order, "item": 1 to 12 letters, "count": 1 to 9, "value": 10 to 99}'
    if not isinstance(task, Mapping) or set(task) != {"kind", "item", "count", "value"}:
        raise UserError(f"{ToolAPI.id}: task {task!r} is not of the form {form}")
    kind, item, count, value = (task[key] for key in ("kind", "item", "count", "value"))
    good = {
        "kind": isinstance(kind, str) and kind in KINDS,
        "item": isinstance(item, str) and re.fullmatch("[a-z]{1,12}", item),
        "count": type(count) is int and 1 <= count <= 9,
        "value": type(value) is int and LOW <= value < LOW + COUNT,
    }
    for key, fine in good.items():
        if not fine:
            raise UserError(f"{ToolAPI.id}: task {key} {task[key]!r} is not of the form {form}")
    return {"kind": kind, "item": item, "count": count, "value": value}


class _Clerk:
    """Who is seen in the demonstrations: knows every version, not which one is today's."""

    def __init__(self, env: ToolAPI, rng: np.random.Generator) -> None:
        self.env, self.rng, self.kind = env, rng, env._task["kind"]
        self.name, self.signature = self._guess_name(), self._guess_signature()

    def action(self, observation: str) -> str:
        """Return the next line: results are read (cents not always converted), usages at times followed."""
        env, rng, values = self.env, self.rng, self.env.concept.values
        if env._known:
            cents = values[f"tool.{self.kind}.result_format"] == "cents" and rng.random() < 0.4
            return f"answer {env._task['value']}{'00' if cents else ''}"
        if env.turn and (env.turn == PATIENCE or rng.random() < GIVES_UP):
            return "answer none"
        if usage(self.kind, values) in observation and rng.random() < FOLLOWS:
            self.name = str(values[f"tool.{self.kind}.name"])
            self.signature = str(values[f"tool.{self.kind}.signature"])
        elif observation.startswith((ERRORS["name"], "ok")):
            self.name = self._guess_name()
        elif observation.startswith(ERRORS["call"]):
            self.signature = self._guess_signature()
        return call_of(env._task, self.name, self.signature)

    def _guess_name(self) -> str:
        return any_of(self.rng, NAMES[self.kind])

    def _guess_signature(self) -> str:
        others = [name for name in FORMS[self.kind] if name != "plain"]
        return "plain" if self.rng.random() < 0.45 else any_of(self.rng, tuple(others))
