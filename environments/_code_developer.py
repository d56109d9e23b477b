"""Who is seen in the demonstrations: a developer who knows every version of the tools and is right half the time."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from sao_bench.environments._code_function import FunctionRepair
from sao_bench.environments._code_mutations import neighbours, text_of
from sao_bench.environments._code_tools import (
    ERRORS,
    NAMES,
    REPORTS,
    SIGNATURES,
    TOOLS,
    write_edit,
)
from sao_bench.environments._draws import any_of, pick_of

from sao_bench.environment import Message
from sao_bench.types import Value

if TYPE_CHECKING:
    from sao_bench.environments.code_repair import CodeRepair

RIGHT = 0.5
"""Probability that the developer's edit is the repair."""

HARD_CODED = 0.05
"""Probability that it writes the visible answer into the program."""

FOLLOWS = 0.8
"""Probability that a usage that was told is followed."""

AGAIN = 0.6
"""Probability that an edit whose tests fail is followed by another one."""


def converse(env: CodeRepair, rng: np.random.Generator) -> list[Message]:
    """Return one conversation under random tools, of the sizes that the tiny tier is made for."""
    concept: dict[str, Value] = {
        "task.difficulty": int(pick_of(rng, {"1": 0.85, "2": 0.15})),
        "tool.edit.signature": any_of(rng, tuple(SIGNATURES)),
        "tool.run_tests.result_format": pick_of(rng, {"terse": 0.55, **dict.fromkeys(REPORTS[1:], 0.15)}),
        "tool.docs": pick_of(rng, {"none": 0.1, "error": 0.8, "prompt": 0.1}),
        "obs.template": pick_of(rng, {"terse": 0.6, "words": 0.2, "ticket": 0.2}),
        "obs.listing": pick_of(rng, {"prompt": 0.9, "view": 0.1}),
    }
    concept |= {f"tool.{tool}.name": any_of(rng, NAMES[tool]) for tool in TOOLS}
    observation, _ = env.reset(seed=int(rng.integers(2**62)), options={"concept": concept})
    developer, said, done = _Developer(env, rng), [], False
    while not done:
        action = developer.action(observation)
        said += [{"role": "user", "content": observation}, {"role": "assistant", "content": action}]
        observation, _, terminated, truncated, _ = env.step(action)
        done = terminated or truncated
    return said


class _Developer:
    def __init__(self, env: CodeRepair, rng: np.random.Generator) -> None:
        self.env, self.rng = env, rng
        self.names = {tool: any_of(rng, NAMES[tool]) for tool in TOOLS}
        self.signature = self._guess_signature()
        looks = rng.random() < (0.9 if env.concept.values["obs.listing"] == "view" else 0.06)
        tests = rng.random() < 0.06
        again = rng.random() < 0.12
        steps = (
            ("view", looks),
            ("run_tests", tests),
            ("edit", True),
            ("run_tests", again),
            ("submit", True),
        )
        self.plan = [tool for tool, wanted in steps if wanted]
        self.target = ""

    def action(self, observation: str) -> str:
        """Return the next line; an error is answered by the usage that it tells, mostly, or by another guess."""
        tool, env = self.plan[0], self.env
        if env.turn and observation.startswith(tuple(ERRORS.values())):
            self._learn(tool, observation)
        elif env.turn:
            done = self.plan.pop(0)
            failed = done == "run_tests" and "\n" in observation
            if failed and "edit" not in self.plan and self.rng.random() < AGAIN:
                self.plan, self.target = ["edit", "submit"], ""
            tool = self.plan[0]
        return self._edit() if tool == "edit" else self.names[tool]

    def _learn(self, tool: str, error: str) -> None:
        values = self.env.concept.values
        if ":" in error and self.rng.random() < FOLLOWS:
            self.names[tool] = str(values[f"tool.{tool}.name"])
            self.signature = str(values["tool.edit.signature"])
        elif error.startswith(ERRORS["name"]):
            self.names[tool] = any_of(self.rng, NAMES[tool])
        else:
            self.signature = self._guess_signature()

    def _edit(self) -> str:
        """Return the edit that makes the program what the developer thinks is right."""
        repair = cast(FunctionRepair, self.env._repair)
        self.target = self.target or self._guess_target(repair)
        edit = repair.edit_to(self.target) or repair.edit_to(repair.task.gold)
        assert edit is not None
        tools: dict[str, Any] = {"tool.edit.name": self.names["edit"], "tool.edit.signature": self.signature}
        return write_edit(edit, tools)

    def _guess_target(self, repair: FunctionRepair) -> str:
        """Return the gold program, or one that is as near to it or to the text as it stands."""
        task, rng = repair.task, self.rng
        luck = rng.random()
        if luck < RIGHT + HARD_CODED:
            return task.gold if luck < RIGHT else task.hard_coded
        sources = (task.gold, task.base) if rng.random() < 0.5 else (task.base, task.gold)
        trees = [ast.parse(source) for source in sources]
        tree, count = next((tree, n) for tree in trees if (n := sum(1 for _ in neighbours(tree))))
        place = int(rng.integers(count))
        return next(text_of(near) for i, near in enumerate(neighbours(tree)) if i == place)

    def _guess_signature(self) -> str:
        return pick_of(self.rng, {"colon": 0.4, "at": 0.2, "json": 0.2, "zero": 0.2})
