"""Does an environment keep the promises that make drift measurable? `check_drift_env` tries each of them.

Gymnasium's own `check_env` looks at the unwrapped environment and knows nothing of concepts; this one plays
the wrapped environment, as a trainer does, over many seeds and random concepts.
"""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from sao_bench import registry
from sao_bench.environment import TextEnv
from sao_bench.errors import UserError
from sao_bench.seeding import derive, generator
from sao_bench.traces import Actor, Concept, PromiseError, oracle_actor, play, replay, sample
from sao_bench.types import Channel

GARBAGE: tuple[Any, ...] = (
    "",
    None,
    0,
    b"bytes",
    "\ud800 lone surrogate \udfff",
    "\0\0",
    " \n\t ",
    "zxqv " * 50,
    "\u2603\U0001f600\u4e2d\u202e",
    "a" * 300_000,
    '{"name": null, "arguments": [[[',
    "</s><|im_end|><|end|>",
    "%s%n{0}{{}}${HOME}`id`",
)

EFFECT_EPISODES = 300
"""Episodes in which a channel must change something once; rare ones (one user's taste) need many."""


@dataclass(frozen=True)
class Check:
    """One promise: its name, whether it is kept, and what was seen."""

    name: str
    passed: bool
    detail: str

    def __str__(self) -> str:
        return f"{'ok  ' if self.passed else 'FAIL'} {self.name}: {' '.join(self.detail.split())}"


@dataclass(frozen=True)
class Report:
    """What `check_drift_env` found, a `Check` per promise."""

    env: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether every promise is kept."""
        return all(check.passed for check in self.checks)

    @property
    def failures(self) -> list[Check]:
        """The promises that are broken."""
        return [check for check in self.checks if not check.passed]

    def lines(self) -> list[str]:
        """Return one line per check."""
        return [str(check) for check in self.checks]


@dataclass(frozen=True)
class _Subject:
    env_class: type[TextEnv]
    episodes: int

    def make(self) -> gymnasium.Env[str, str]:
        """Return a new wrapped environment, through `gymnasium.make` and its registry where it is there."""
        cls = self.env_class
        if registry.environments().get(cls.id) is cls:
            registry.register_with_gymnasium()
            return gymnasium.make(cls.id)
        name = cls.id or f"check/{cls.__name__}-v0"
        spec = EnvSpec(
            name, entry_point=lambda **options: cls(**options), disable_env_checker=True, order_enforce=False
        )
        return gymnasium.make(spec)

    def seeds(self, count: int | None = None) -> list[int]:
        return [derive(0, "checks.episode", i) for i in range(count or self.episodes)]

    def concept(self, *index: int | str) -> Concept:
        """Return random values for all channels (the same for the same index)."""
        rng = generator(0, "checks.concept", *index)
        return {channel.name: sample(channel, rng) for channel in self.env_class.channels}

    def concepts(self, count: int) -> list[Concept]:
        """Return the default concept and `count` random ones, without reward noise."""
        return [self.calm, *({**self.concept("any", i), **self.calm} for i in range(count))]

    @property
    def calm(self) -> Concept:
        """Return what switches reward noise off."""
        return {c.name: 0.0 for c in self.env_class.channels if c.name == "reward.noise"}


# -- the promises: each returns what was seen, or raises PromiseError ----------------------------------------


def _declaration(s: _Subject) -> str:
    cls = s.env_class
    names = [c.name for c in cls.channels]
    if not cls.id or cls.max_turns < 1 or len(set(names)) < len(names):
        raise PromiseError(f"id {cls.id!r}, max_turns {cls.max_turns}, channels {names}: empty or doubled")
    for channel in cls.channels:
        if problem := channel.problem(channel.default):
            raise PromiseError(f"default of {channel.name}: {problem}")
        if not channel.description:
            raise PromiseError(f"{channel.name} has no description")
    return f"{cls.id}, {len(names)} channels, at most {cls.max_turns} turn(s)"


def _gymnasium(s: _Subject) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(s.make().unwrapped)
    if caught:
        raise PromiseError(f"{len(caught)} warning(s), the first: {caught[0].message}")
    return "gymnasium's check_env passes without a warning"


def _misuse(s: _Subject) -> str:
    env = s.make()
    refused: list[dict[str, Any]] = [{"concept": {"no.such.channel": 1}}, {"no_such_option": 1}]
    refused += [{"concept": {c.name: object()}} for c in s.env_class.channels]
    for options in refused:
        try:
            env.reset(seed=0, options=options)
        except UserError:
            continue
        raise PromiseError(f"reset(options={options}) is accepted")
    play(env, 0, None, replay([""]))
    for _ in range(2):
        try:
            env.step("")
        except ResetNeeded:
            continue
        raise PromiseError("step() after the end does not raise ResetNeeded")
    return "unknown options, channels and values are refused; step() after the end raises ResetNeeded"


def _effects(s: _Subject) -> str:
    dead, seen = [], Counter[str]()
    for channel in s.env_class.channels:
        field = next(_differences(s, channel), None)
        if field is None:
            dead.append(channel.name)
        else:
            seen[field] += 1
    if dead:
        raise PromiseError(f"nothing changes over {EFFECT_EPISODES} episodes with: {', '.join(dead)}")
    return f"every channel has an effect ({', '.join(f'{n} first in {field}' for field, n in seen.items())})"


def _differences(s: _Subject, channel: Channel) -> Iterator[str]:
    """Yield what differs between two values of a channel, all else equal, the same being said."""
    env = s.make()
    for i, seed in enumerate(s.seeds(EFFECT_EPISODES)):
        rng = generator(0, "checks.values", channel.name, i)
        background = {**s.concept("background", channel.name, i), **s.calm} if i % 4 else {}
        first = {**background, channel.name: sample(channel, rng)}
        second = {**background, channel.name: sample(channel, rng)}
        a = play(env, seed, first, oracle_actor)
        if field := a.difference(play(env, seed, second, replay(a.actions))):
            yield field


def _determinism(s: _Subject) -> str:
    used, seen = s.make(), set()
    for i, seed in enumerate(s.seeds(max(8, s.episodes // 4))):
        concept = s.concept("determinism", i)
        fresh = play(s.make(), seed, concept, oracle_actor)
        used.reset(seed=i, options={"concept": s.concept("before", i)})  # abandoned half-way
        if i % 2:
            used.step("zxqv")
        again = play(used, seed, concept, replay(fresh.actions))
        if (field := fresh.difference(again)) or fresh.truth != again.truth:
            raise PromiseError(f"seed {seed}: {field or 'truth'} depends on the episode before")
        tasked = [play(env, seed, concept, replay(fresh.actions), fresh.task) for env in (used, s.make())]
        if tasked[0].difference(tasked[1]) or tasked[0].task != fresh.task:
            raise PromiseError(
                f"seed {seed}: the task {fresh.task!r} does not decide the episode when given back"
            )
        if tasked[0].observations[0] != fresh.observations[0]:
            raise PromiseError(f"seed {seed}: the task given back begins with another observation")
        seen.add((fresh.observations[0], str(fresh.task)))
    if len(seen) == 1:
        raise PromiseError("every seed gives the same task")
    return "(seed, task, concept) decide an episode, whatever came before"


def _plain(s: _Subject) -> str:
    default = s.env_class.default_concept()
    for seed in s.seeds(max(8, s.episodes // 4)):
        plain = play(s.make(), seed, None, oracle_actor)
        for concept in (dict(default.values), default):
            same = play(s.make(), seed, concept, replay(plain.actions))  # type: ignore[arg-type]
            if (field := plain.difference(same)) or plain.truth != same.truth:
                raise PromiseError(
                    f"seed {seed}: {field or 'truth'} differs between no concept and the default one"
                )
    return "the default concept is the plain environment"


def _info(s: _Subject) -> str:
    env, pairs = s.make(), 0
    for i, seed in enumerate(s.seeds()):
        first, second = s.concept("info", i, 0), s.concept("info", i, 1)
        if i % 2:
            # Only what is right changes: the agent may then see the same, and must be told the same.
            real = {c.name for c in s.env_class.channels if c.kind == "real"}
            second = {name: (second if name in real else first)[name] for name in first}
        a = play(env, seed, first, oracle_actor)
        b = play(env, seed, second, replay(a.actions))
        for turn in range(min(len(a.infos), len(b.infos))):
            if a.observations[: turn + 1] != b.observations[: turn + 1] or a.ends[:turn] != b.ends[:turn]:
                break
            pairs += 1
            if a.infos[turn] != b.infos[turn]:
                raise PromiseError(
                    f"seed {seed}, turn {turn}: info tells concepts apart: {a.infos[turn]} | {b.infos[turn]}"
                )
    return f"info is JSON and the same under two concepts wherever the observations are ({pairs} compared)"


def _rewards(s: _Subject) -> str:
    env = s.make()
    for concept in s.concepts(3):
        for seed in s.seeds(max(8, s.episodes // 8)):
            trace = play(env, seed, concept, oracle_actor)
            if not math.isclose(math.fsum(trace.rewards), trace.score, abs_tol=1e-9):
                raise PromiseError(
                    f"seed {seed}: rewards {trace.rewards}, but truth() says score {trace.score}"
                )
            if not isinstance(json.loads(trace.truth)["solved"], bool):
                raise PromiseError("truth()['solved'] is not a bool")
    return "without noise the rewards sum to the score"


def _oracle(s: _Subject) -> str:
    env, seen = s.make(), []
    for concept in s.concepts(3):
        claimed = s.env_class.oracle(concept)
        scores = np.array([play(env, seed, concept, oracle_actor).score for seed in s.seeds()])
        if abs(scores.mean() - claimed) > _tolerance(scores):
            raise PromiseError(
                f"oracle() says {claimed:.4f}, oracle_action() earns {scores.mean():.4f} under {concept}"
            )
        seen.append(f"{scores.mean():.3f} of {claimed:.3f}")
    return f"oracle_action() earns the oracle: {', '.join(seen)}"


def _maximum(s: _Subject) -> str:
    env = s.make()
    for i, seed in enumerate(s.seeds()):
        concept, other = s.concepts(2)[i % 3], s.concept("other", i)
        best = play(env, seed, concept, oracle_actor)
        rival = play(env, seed, other, oracle_actor)
        for actions in (rival.actions, rival.actions[:1], best.actions[:1]):
            if (trace := play(env, seed, concept, replay(actions))).score > best.score + 1e-9:
                raise PromiseError(f"seed {seed}: {actions!r} earns {trace.score}, the oracle {best.score}")
    return "in no episode did another concept's oracle, or a constant, earn more"


def _floor(s: _Subject) -> str:
    env, seen = s.make(), []
    for concept in s.concepts(1):
        floor, oracle = s.env_class.floor(concept), s.env_class.oracle(concept)
        if not 0 <= floor <= oracle + 1e-12:
            raise PromiseError(f"floor {floor}, oracle {oracle} under {concept}")
        first = Counter(play(env, seed, concept, oracle_actor).actions[0] for seed in s.seeds())
        best = 0.0
        for action, _ in first.most_common(8):
            scores = np.array([play(env, seed, concept, replay([action])).score for seed in s.seeds()])
            best = max(best, float(scores.mean()))
            if scores.mean() > floor + _tolerance(scores):
                raise PromiseError(f"always {action!r} earns {scores.mean():.4f}, floor() says {floor:.4f}")
        seen.append(f"{best:.3f}, floor {floor:.3f}")
    return f"the best of 8 constant answers earned {'; '.join(seen)}"


def _garbage(s: _Subject) -> str:
    env = s.make()
    for concept in s.concepts(1):
        for seed in s.seeds(2):
            echo: Actor = lambda env, observation, turn: observation  # noqa: E731
            for actor in (*(replay([junk]) for junk in GARBAGE), echo):
                trace = play(env, seed, concept, actor)
                if trace.score or any(trace.rewards):
                    raise PromiseError(f"{trace.actions[0]!r:.60} earns {trace.score}")
    return f"{len(GARBAGE)} kinds of garbage and the prompt itself earn 0 and never raise"


def _junk(s: _Subject) -> str:
    env = s.make()
    shapes: tuple[Callable[[str], str], ...] = (
        lambda text: text + " zxqv",
        lambda text: "zxqv " + text,
        lambda text: text + "\n" + "zxqv " * 40,
        lambda text: text + "\u2603",
    )
    clean = dirty = 0.0
    for seed in s.seeds(max(8, s.episodes // 4)):
        best = play(env, seed, None, oracle_actor)
        for shape in shapes:
            trace = play(env, seed, None, replay([shape(str(action)) for action in best.actions]))
            clean, dirty = clean + best.score, dirty + trace.score
            if trace.score > best.score or (best.score > 0 and trace.score == best.score):
                raise PromiseError(
                    f"seed {seed}: {trace.actions[-1]!r:.80} earns {trace.score}, as the clean one"
                )
    return f"the oracle's answer with junk added earns {dirty / clean if clean else 0:.3f} of the oracle"


def _demonstrations(s: _Subject) -> str:
    for i in range(s.episodes):
        first, again = (s.env_class.demonstration(generator(0, "checks.demo", i)) for _ in range(2))
        if first != again:
            raise PromiseError("equal generators give different demonstrations")
        roles = [message["role"] for message in first]
        if not roles or len(roles) % 2 or roles != ["user", "assistant"] * (len(roles) // 2):
            raise PromiseError(f"roles {roles} do not alternate user, assistant")
    return "demonstrations alternate user and assistant, and depend on their generator alone"


def _tolerance(scores: np.ndarray) -> float:
    """Four standard errors, and one episode's worth for what a finite sample has not met."""
    return 4 * float(scores.std()) / math.sqrt(len(scores)) + 1 / len(scores)


CHECKS: dict[str, Callable[[_Subject], str]] = {
    "declaration": _declaration,
    "gymnasium": _gymnasium,
    "misuse": _misuse,
    "effects": _effects,
    "determinism": _determinism,
    "plain": _plain,
    "info": _info,
    "rewards": _rewards,
    "oracle": _oracle,
    "maximum": _maximum,
    "floor": _floor,
    "garbage": _garbage,
    "junk": _junk,
    "demonstrations": _demonstrations,
}


def check_drift_env(env_class: type[TextEnv], episodes: int = 200) -> Report:
    """Try every promise of an environment.

    Args:
        env_class: the environment. It is played wrapped, as `gymnasium.make` gives it.
        episodes: how many seeds the statistical checks use; fewer for slow environments.

    Returns: a `Report`; an environment that raises is a failure of that check, never an exception here.
    """
    return Report(env_class.id, tuple(each_check(env_class, episodes)))


def each_check(env_class: type[TextEnv], episodes: int = 200) -> Iterator[Check]:
    """Try one promise after the other, as in `check_drift_env`; yields each as it is done."""
    for name, check in CHECKS.items():
        yield _run(name, check, env_class, episodes)


def _run(name: str, check: Callable[[_Subject], str], env_class: type[TextEnv], episodes: int) -> Check:
    try:
        return Check(name, True, check(_Subject(env_class, episodes)))
    except PromiseError as broken:
        return Check(name, False, str(broken))
    except (Exception, SystemExit) as error:
        # The subject is somebody's code: whatever it raises is the finding.
        return Check(name, False, f"raised {type(error).__name__}: {error}")
