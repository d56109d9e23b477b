"""Repair a small program by tools whose names, edit format and reports drift; hidden tests decide.

Programs, bugs, issue texts and tests are drawn from a seeded grammar, so that tasks never run out and belong to nobody.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, cast

import numpy as np
from sao_bench.environments._code_developer import converse
from sao_bench.environments._code_function import FunctionRepair, Repair, Verdict
from sao_bench.environments._code_grammar import FAMILIES
from sao_bench.environments._code_sandbox import require
from sao_bench.environments._code_tasks import SPLITS, STRICTNESS, TaskKey, check_key, make_task
from sao_bench.environments._code_tools import (
    ERRORS,
    NAMES,
    REPORTS,
    SIGNATURES,
    TOOLS,
    Call,
    changed,
    numbered,
    parse,
    usage,
    write_edit,
)
from sao_bench.environments._draws import channel, pick

from sao_bench.environment import Message, TextEnv
from sao_bench.errors import UserError
from sao_bench.types import Channel, Value

TEMPLATES = {
    "terse": "want {entry}: {words}\n{report}",
    "words": "{entry} should give {words}. now:\n{report}",
    "ticket": "#bug {report}\n#goal {entry}: {words}",
}
"""Wording of an issue."""

ERROR_COST = 0.2
"""What an error takes off the payment of a repair."""

TURNS = {"function": 6, "repository": 24}
INDEX_BITS = 31


class CodeRepair(TextEnv):
    """Repair a small function whose tools change without notice; hidden tests decide.

    Observation: the numbered lines of a program with one bug, and an issue: what is wanted, and the report of a
    test that fails. Then what the tools answer. With `template="chat"` instructions for a general instruct model
    come first, and code is indented by four.

    Action: a call, in the names and the signature of today: `view`, `edit 2: return a-b` (lines `2-3` too),
    `run_tests`, which runs the visible tests, or `submit`, which is final. Anything else is an error that costs a
    turn.

    Reward: a submitted program that passes is paid 1 - 0.2 x errors, else 0. What has to pass depends on
    `verifier.strictness`: the visible FAIL_TO_PASS test, every FAIL_TO_PASS, also every PASS_TO_PASS (`all`),
    also by the right exception (`exact`). With probability `reward.noise` a fair coin is paid for the
    submission instead. `score` is before noise.

    Episode end: terminated by `submit`; truncated after six turns.

    Grading: what a model wrote runs in a sandbox only, which is shared by the process and starts when it is
    first needed; a fault of the sandbox is a fault of the episode, not a 0. Without any sandbox there is no
    environment.

    Oracle: one edit that restores the program, then `submit`: 1. Floor: no constant reply both edits and submits: 0.

    Versions: v0.

    Args:
        template: `short` or `chat`.
        size: `function`, or `repository` for a package of several files with a test suite (24 turns).
        split: `train` or `test`; no program is in both.
        seed: of the set of tasks.
    """

    id = "sao_bench/CodeRepair-v0"
    max_turns = max(TURNS.values())
    max_reply_tokens = 72
    tiny_config: ClassVar[Mapping[str, Any]] = {
        # Keys of its own for each head: an edit copies most of a line.
        "kv_heads": 4,
        "updates": 1500,
    }
    channels: ClassVar[tuple[Channel, ...]] = (
        channel(
            "task.mixture",
            "virtual",
            dict.fromkeys(FAMILIES, 1 / len(FAMILIES)),
            "the family of the bug",
            *FAMILIES,
        ),
        channel("task.difficulty", "virtual", 1, "size and depth of the program", 1, 5),
        *(
            channel(f"tool.{tool}.name", "real", tool, f"the name that {tool} answers to", *NAMES[tool])
            for tool in TOOLS
        ),
        channel(
            "tool.edit.signature", "real", "colon", "how an edit names its line and its text", *SIGNATURES
        ),
        channel(
            "tool.run_tests.result_format", "virtual", "terse", "how failed tests are reported", *REPORTS
        ),
        channel("tool.docs", "virtual", "error", "where today's usage is told", "none", "error", "prompt"),
        channel("obs.template", "virtual", "terse", "the wording of issues", *TEMPLATES),
        channel("obs.listing", "virtual", "prompt", "where the program is shown", "prompt", "view"),
        channel("verifier.strictness", "real", "all", "which tests have to pass", *STRICTNESS),
        channel("reward.noise", "real", 0.0, "probability that a fair coin is paid instead", 0.0, 1.0),
        channel("latency.reply", "virtual", 0.5, "median seconds until a tool replies", 0.0, 60.0),
        channel("latency.tail", "virtual", 0.5, "sigma of the log-normal latency", 0.0, 3.0),
    )

    def __init__(
        self,
        template: Literal["short", "chat"] = "short",
        size: Literal["function", "repository"] = "function",
        split: Literal["train", "test"] = "train",
        seed: int = 0,
    ) -> None:
        allowed = {"template": ("short", "chat"), "size": tuple(TURNS), "split": SPLITS}
        for name, given in {"template": template, "size": size, "split": split}.items():
            if given not in allowed[name]:
                raise UserError(f"{self.id}: {name} {given!r} is not one of: {', '.join(allowed[name])}")
        if type(seed) is not int or seed < 0:
            raise UserError(f"{self.id}: seed {seed!r} is not a whole number from 0")
        require()
        super().__init__()
        self.template, self.size, self.split, self.seed = template, size, split, seed
        self._key = TaskKey(seed, split, FAMILIES[0], 1, 0)
        self._repair: Repair

    def begin(self, task: Any) -> str:
        """Draw task, noise and latencies (the same draws under every concept)."""
        values = self.concept.values
        family, index, noise, coin = self.rng.random(4).tolist()
        self._tails = self.rng.standard_normal(TURNS[self.size]).tolist()
        self._key = TaskKey(
            self.seed,
            self.split,
            pick(values["task.mixture"], FAMILIES, family),
            int(cast(int, values["task.difficulty"])),
            int(index * 2**INDEX_BITS),
        )
        if task is not None:
            self._key = _valid_task(task)
        self._repair = self._start()
        self._coin = float(coin < 0.5) if noise < cast(float, values["reward.noise"]) else None
        self._errors = self._edits = self._test_runs = 0
        self._viewed: set[str] = set()
        self._verdict = Verdict(False, "not submitted", 0, 0)
        return self._prompt()

    def _start(self) -> Repair:
        if self.size == "repository":
            from sao_bench.environments._code_repository import RepositoryRepair

            return RepositoryRepair(self._key)
        return FunctionRepair(make_task(self._key), indent=1 if self.template == "short" else 4)

    def _prompt(self) -> str:
        values, several = self.concept.values, len(self._repair.files) > 1
        entry, words, failed = self._repair.issue(str(values["tool.run_tests.result_format"]))
        parts = [TEMPLATES[str(values["obs.template"])].format(entry=entry, words=words, report=failed)]
        if several:
            parts.insert(0, "\n".join(self._repair.files))
        elif values["obs.listing"] == "prompt":
            parts.insert(0, numbered(self._repair.files[""]))
        if values["tool.docs"] == "prompt":
            parts.insert(0, f"[{' | '.join(usage(tool, values, several) for tool in TOOLS)}]")
        if self.template == "chat":
            parts.insert(0, instruction(several) + "\n")
        return "\n".join(parts)

    def respond(self, action: str) -> tuple[str, float, bool, bool]:
        """Answer a call, or judge what is submitted and end the episode."""
        median = cast(float, self.concept.values["latency.reply"])
        tail = cast(float, self.concept.values["latency.tail"])
        self.latency_s = median * math.exp(tail * self._tails[self.turn - 1])
        call = parse(action.strip(), self.concept.values)
        last = self.turn >= TURNS[self.size]
        if not isinstance(call, Call):
            return self._fail(call.error, call.tool), 0.0, False, last
        if call.tool == "submit":
            self._verdict = self._repair.submit(str(self.concept.values["verifier.strictness"]))
            self._note(self._verdict.fault)
            return "", self._score() if self._coin is None else self._coin, True, False
        answers = {"view": self._view, "edit": self._edit, "run_tests": self._run_tests}
        return answers[call.tool](call), 0.0, False, last

    def _view(self, call: Call) -> str:
        if call.file not in self._repair.files:
            return self._fail("file" if call.file else "call", "view")
        self._viewed.add(call.file)
        return numbered(self._repair.files[call.file])

    def _edit(self, call: Call) -> str:
        if call.file not in self._repair.files:
            return self._fail("file" if call.file else "call", "edit")
        lines = changed(self._repair.files[call.file], call)
        if lines is None:
            return self._fail("line", "edit")
        self._repair.files[call.file] = lines
        self._edits += 1
        return "ok"

    def _run_tests(self, call: Call) -> str:
        self._test_runs += 1
        found = self._repair.test(str(self.concept.values["tool.run_tests.result_format"]))
        self._note(found.fault)
        return "\n".join([*found.reports, f"{found.passed} passed"])

    def _fail(self, error: str, tool: str) -> str:
        self._errors += 1
        if self.concept.values["tool.docs"] == "none":
            return ERRORS[error]
        return f"{ERRORS[error]}: {usage(tool, self.concept.values, len(self._repair.files) > 1)}"

    def _note(self, fault: Mapping[str, str] | None) -> None:
        """Mark the episode where the machinery, not the program, failed."""
        if fault:
            self.fault = {"stage": fault["stage"], "kind": fault["kind"]}

    def _score(self) -> float:
        return 1.0 - ERROR_COST * self._errors if self._verdict.earned else 0.0

    def truth(self) -> dict[str, Any]:
        """Return score, solved, task and parts.

        Parts: `label` (why the submission earned what it did), `fail_to_pass` and `pass_to_pass` (how many
        passed), `errors`, `edits`, `test_runs`, and `signs` of cheating, which are reported and not judged.
        """
        verdict, key = self._verdict, self._key
        parts = {
            "label": verdict.label,
            "fail_to_pass": verdict.failing,
            "pass_to_pass": verdict.passing,
            "errors": self._errors,
            "edits": self._edits,
            "test_runs": self._test_runs,
            "signs": list(verdict.signs),
        }
        task = {name: getattr(key, name) for name in TaskKey.__dataclass_fields__}
        return {"score": self._score(), "solved": verdict.earned, "task": task, "parts": parts}

    def oracle_action(self) -> str:
        """Return the call that looks where one has to, then the edit that is missing, then the submission."""
        values = self.concept.values
        edit = self._repair.next_edit(str(values["verifier.strictness"]))
        if edit is None:
            return str(values["tool.submit.name"])
        hidden = edit.file or values["obs.listing"] == "view"
        if hidden and edit.file not in self._viewed and self.turn < TURNS[self.size] - 2:
            return f"{values['tool.view.name']} {edit.file}".rstrip()
        return write_edit(edit, values)

    @classmethod
    def oracle(cls, values: Mapping[str, Value]) -> float:
        """Return J* = 1: every bug can be repaired without an error."""
        return 1.0

    @classmethod
    def floor(cls, values: Mapping[str, Value]) -> float:
        """Return b = 0: who submits at once submits the bug, who always edits never submits."""
        return 0.0

    @classmethod
    def demonstration(cls, rng: np.random.Generator) -> list[Message]:
        """Return the conversation of a developer who has seen every version of the tools and errs half the time."""
        return converse(cls(), rng)


def instruction(several: bool) -> str:
    """Return the instructions for a general instruct model; `several`: the program has several files."""
    limit = TURNS["repository" if several else "function"]
    what, file, named = ("package", "FILE ", '"file", ') if several else ("program", "", "")
    return "\n".join(
        [
            f"Repair the Python {what}: it has one bug. Reply with one tool call and nothing else; you have {limit}"
            " calls. Each tool has one of these names, which may have changed:",
            f"- {' or '.join(NAMES['view'])} {file}: shows numbered lines.".replace(" :", ":"),
            f"- {' or '.join(NAMES['edit'])}: replaces line N, or lines N-M, by TEXT, in one of these forms:"
            f' {file}N: TEXT, or TEXT @{file}N, or a JSON object with {named}"line" and "text". TEXT may have'
            " several lines; it is indented as the first line that it replaces, unless it begins with a space."
            " Lines are counted from 1, at times from 0.",
            f"- {' or '.join(NAMES['run_tests'])}: runs the visible tests.",
            f"- {' or '.join(NAMES['submit'])}: ends the repair; hidden tests decide.",
            "An error may tell today's usage, and costs. In the wording of issues, `over` is // and `mod` is %.",
        ]
    )


def _valid_task(task: Any) -> TaskKey:
    """Return the key of a task given to `reset`."""
    fields = tuple(TaskKey.__dataclass_fields__)
    if not isinstance(task, Mapping) or set(task) != set(fields):
        raise UserError(f"{CodeRepair.id}: task {task!r} is not a mapping of {', '.join(fields)}")
    key = TaskKey(**{str(name): value for name, value in task.items()})
    try:
        check_key(key)
    except UserError as error:
        raise UserError(f"{CodeRepair.id}: {error}") from error
    return key
