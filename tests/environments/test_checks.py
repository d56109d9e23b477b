"""`check_drift_env` passes a sound environment, and each way to break a promise is found by name."""

import itertools
import json
import random

import pytest

from sao_bench.checks import CHECKS, check_drift_env
from sao_bench.environment import TextEnv, value_of
from sao_bench.seeding import generator
from sao_bench.traces import sample
from sao_bench.types import Channel, Concept

COLOURS = ("red", "blue", "green", "black")


class Repeat(TextEnv):
    """Say the colour that is shown, or the one after it if `reward.shift` is on. Two turns."""

    id = "test/Repeat-v0"
    max_turns = 2
    channels = (
        Channel("reward.shift", "bool", "real", False, "pay the next colour instead"),
        Channel("latency.reply", "float", "virtual", 0.5, "seconds", 0.0, 9.0),
    )

    def begin(self, task):
        self.colour = COLOURS[self.rng.integers(4)] if task is None else task
        self.said = []
        return f"say: {self.colour}"

    def right(self):
        shift = self.concept.values["reward.shift"]
        return COLOURS[(COLOURS.index(self.colour) + shift) % 4]

    def respond(self, action):
        self.latency_s = self.concept.values["latency.reply"]
        self.said.append(float(action == self.right()))
        return "again", self.said[-1] / 2, len(self.said) == 2, False

    def truth(self):
        return {"score": sum(self.said) / 2, "solved": sum(self.said) == 2, "task": self.colour, "parts": {}}

    def oracle_action(self):
        return self.right()

    @classmethod
    def oracle(cls, values):
        return 1.0

    @classmethod
    def floor(cls, values):
        return 0.25

    @classmethod
    def demonstration(cls, rng):
        said = [{"role": "user", "content": "say: red"}, {"role": "assistant", "content": "red"}]
        return said * int(rng.integers(1, 3))


class Tiny(Repeat):
    tiny_config = {"hidden_size": 16, "intermediate_size": 16, "updates": 3, "batch_size": 4, "heldout": 8}  # noqa: RUF012


class DeadChannel(Repeat):
    channels = (*Repeat.channels, Channel("task.nothing", "int", "virtual", 1, "does nothing", 0, 9))


class BadDefault(Repeat):
    channels = (Repeat.channels[0], Channel("latency.reply", "float", "virtual", 10.0, "seconds", 0.0, 9.0))


class LeakyInfo(Repeat):
    def step(self, action):
        *rest, _ = super().step(action)
        return (*rest, {"hint": self.right()})


class LeakyKey(Repeat):
    def reset(self, **options):
        return super().reset(**options)[0], {"score": 0}


class NamesChannel(Repeat):
    def reset(self, **options):
        return super().reset(**options)[0], {"now": ["reward.shift"]}


class Remembers(Repeat):
    episodes = 0

    def begin(self, task):
        self.episodes += 1
        return super().begin(task) + "!" * (self.episodes > 1)


class GlobalCounter(Repeat):
    counter = itertools.count()

    def begin(self, task):
        return f"{super().begin(task)} {next(self.counter)}"


class IgnoresTask(Repeat):
    def begin(self, task):
        super().begin(None if task is None else random.choice(COLOURS))
        return f"say: {self.colour}"


class SameTask(Repeat):
    def begin(self, task):
        return super().begin("red")


class DefaultDiffers(Repeat):
    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed, options=options)
        return observation + "?" * ("concept" in (options or {})), info


class BigOracle(Repeat):
    @classmethod
    def oracle(cls, values):
        return 1.5


class WeakOracle(Repeat):
    def oracle_action(self):
        return self.right() if self.concept.values["latency.reply"] > 4 else "red"


class LowFloor(Repeat):
    @classmethod
    def floor(cls, values):
        return 0.0


class FloorAboveOracle(Repeat):
    @classmethod
    def floor(cls, values):
        return 1.25


class Raises(Repeat):
    def respond(self, action):
        return super().respond(action if len(action) < 1000 else action[10**9])


class PaysGarbage(Repeat):
    def respond(self, action):
        return super().respond(action or self.right())


class PaysEcho(Repeat):
    def respond(self, action):
        return super().respond(self.right() if action.startswith("say") else action)


class PaysJunk(Repeat):
    def respond(self, action):
        return super().respond(self.right() if self.right() in action else action)


class Endless(Repeat):
    def step(self, action):
        observation, reward, _, _, info = super().step(action)
        return observation, reward, False, False, info


class NoResetNeeded(Repeat):
    def step(self, action):
        return super().step(action) if self._running else ("", 0.0, True, False, {})


class ScoreDiffers(Repeat):
    def truth(self):
        return super().truth() | {"score": sum(self.said)}


class TimeRunsBack(Repeat):
    def respond(self, action):
        answer = super().respond(action)
        self.latency_s = -1.0
        return answer


class AcceptsAnything(Repeat):
    @classmethod
    def complete_concept(cls, concept):
        values = concept.values if isinstance(concept, Concept) else (concept or {})
        return Concept.of({c.name: value_of(values, c.name, cls.channels) for c in cls.channels})


class Monologue(Repeat):
    @classmethod
    def demonstration(cls, rng):
        return [{"role": "assistant", "content": "red"}]


class Unsteady(Repeat):
    @classmethod
    def demonstration(cls, rng):
        return [{"role": "user", "content": str(random.random())}, {"role": "assistant", "content": "red"}]


class Exits(Repeat):
    def respond(self, action):
        if len(action) > 99:
            raise SystemExit(0)
        return super().respond(action)


def test_a_sound_environment_passes_every_check():
    report = check_drift_env(Repeat, episodes=32)
    assert report.ok, report.lines()
    assert [check.name for check in report.checks] == list(CHECKS)
    assert len(report.lines()) == len(CHECKS)
    assert all(line.startswith("ok ") for line in report.lines())


@pytest.mark.parametrize(
    ("env_class", "check", "words"),
    [
        (DeadChannel, "effects", "task.nothing"),
        (BadDefault, "declaration", "10.0 is outside"),
        (LeakyInfo, "info", "tells concepts apart"),
        (LeakyKey, "info", "info shows 'score'"),
        (NamesChannel, "info", "info shows 'reward.shift'"),
        (Remembers, "determinism", "depends on the episode before"),
        (GlobalCounter, "determinism", "depends on the episode before"),
        (IgnoresTask, "determinism", "given back"),
        (SameTask, "determinism", "every seed gives the same task"),
        (DefaultDiffers, "plain", "observations"),
        (BigOracle, "oracle", "says 1.5000"),
        (WeakOracle, "maximum", "the oracle 0.0"),
        (LowFloor, "floor", "floor() says 0.0000"),
        (FloorAboveOracle, "floor", "floor 1.25"),
        (Raises, "garbage", "IndexError"),
        (Exits, "garbage", "raised SystemExit: 0"),
        (PaysGarbage, "garbage", "'' earns"),
        (PaysEcho, "garbage", "say: "),
        (PaysJunk, "junk", "as the clean one"),
        (Endless, "rewards", "not over"),
        (NoResetNeeded, "misuse", "ResetNeeded"),
        (ScoreDiffers, "rewards", "truth() says score"),
        (TimeRunsBack, "rewards", "time runs backwards"),
        (AcceptsAnything, "misuse", "is accepted"),
        (Monologue, "demonstrations", "do not alternate"),
        (Unsteady, "demonstrations", "different demonstrations"),
    ],
)
def test_every_broken_promise_is_found(env_class, check, words):
    report = check_drift_env(env_class, episodes=100)
    found = {broken.name: broken.detail for broken in report.failures}
    assert not report.ok
    assert check in found, report.lines()
    assert words in found[check]


def test_random_values_are_legal_for_every_type_of_channel():
    channels = (
        Channel("a", "bool", "real", True, "-"),
        Channel("b", "int", "real", 3, "-", 2, 5),
        Channel("c", "float", "real", 0.0, "-", -1.0, 0.5),
        Channel("d", "float", "real", 0.0, "-"),
        Channel("e", "choice", "real", "x", "-", choices=("x", "y")),
        Channel("f", "simplex", "virtual", {"x": 1.0}, "-", choices=("x", "y", "z")),
    )
    for channel in channels:
        drawn = [sample(channel, generator(0, "test", i)) for i in range(100)]
        assert all(channel.problem(value) is None for value in drawn)
        assert len({json.dumps(value) for value in drawn}) > 1
