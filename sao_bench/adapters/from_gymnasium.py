"""Any Gymnasium environment over text, as an environment of ours."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import gymnasium

from sao_bench.adapters.imported import Answer, IllegalActionError, Imported, Score, build, plain, text_of
from sao_bench.environment import TextEnv
from sao_bench.errors import UserError
from sao_bench.types import Channel

SOLVED_KEYS = ("solved", "is_success", "success")
"""Keys of `info` that say whether the task was solved."""


class GymnasiumText(Imported):
    """A Gymnasium environment, played as text; made by `from_gymnasium`.

    Reward, `terminated` and `truncated` are the original's. Its `info` is kept for the evaluator
    (`truth()["parts"]["info"]`), not shown to the agent; `info["fault"]` is a fault here too. A channel of the same
    name as one of its reset options is passed there.
    """

    task_keys = ("seed", "options")
    maker: ClassVar[Callable[[], gymnasium.Env[Any, Any]]]
    parse: ClassVar[Callable[[str], Any] | None] = None
    render_text: ClassVar[Callable[[Any], str] | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.original = type(self).maker()

    def open(self, task: dict[str, Any]) -> str:
        """Reset the original with the task's seed and options, and the channels."""
        options = {**task.get("options", {}), **self._options()}
        observation, info = self.original.reset(seed=task.get("seed", self._seed), options=options or None)
        self._note(info)
        return self._text(observation)

    def _options(self) -> dict[str, Any]:
        inner = self.original.unwrapped
        if isinstance(inner, TextEnv):
            return {"concept": self.concept} if self.channels else {}
        return {name: plain(value) for name, value in self.concept.values.items()}

    def answer(self, action: str) -> Answer:
        """Step the original, if the action is in its space."""
        parse = type(self).parse
        try:
            taken = action if parse is None else parse(action)
        except (ValueError, KeyError, TypeError) as error:
            raise IllegalActionError(f"{action!r:.200} is not an action ({error})") from error
        if taken not in self.original.action_space:
            raise IllegalActionError(f"{action!r:.200} is not in {self.original.action_space}")
        observation, reward, terminated, truncated, info = self.original.step(taken)
        self._note(info)
        return Answer(self._text(observation), float(reward), bool(terminated), bool(truncated))

    def _text(self, observation: Any) -> str:
        render = type(self).render_text
        return text_of(observation) if render is None else render(observation)

    def _note(self, info: Mapping[str, Any]) -> None:
        inner = self.original.unwrapped
        self.latency_s = float(getattr(inner, "latency_s", 0.0))
        if isinstance(info.get("fault"), Mapping):
            self.fault = {str(key): str(value) for key, value in info["fault"].items()}
        if isinstance(inner, TextEnv):
            truth = inner.truth()
            self.score, self.solved, self.parts = truth["score"], truth["solved"], dict(truth["parts"])
            return
        self.parts["info"] = plain(info)
        told = [bool(info[key]) for key in SOLVED_KEYS if key in info]
        self.solved = told[0] if told else self.solved


def from_gymnasium(
    env: str | Callable[[], gymnasium.Env[Any, Any]],
    *,
    id: str | None = None,
    max_turns: int | None = None,
    channels: Sequence[Channel] = (),
    parse: Callable[[str], Any] | None = None,
    render: Callable[[Any], str] | None = None,
    oracle: Score = 1.0,
    floor: Score = 0.0,
    oracle_policy: Callable[[Any], str] | None = None,
    solved_score: float = 1.0,
    max_reply_tokens: int = 64,
    **make_options: Any,
) -> type[GymnasiumText]:
    """Make a `TextEnv` class of a Gymnasium environment.

    Args:
        env: a registered id (`module:Name-v0` imports `module` first), or a function that makes one.
        id: our name for it; the registered id unless given.
        max_turns: most actions of an episode; the registered `max_episode_steps` unless given.
        channels: what can drift; each is passed as the reset option of its name. A text environment of ours that
            comes back through Gymnasium has its own channels.
        parse: text to action, where the action space is not text (`int` for a Discrete space); a ValueError makes
            an error observation.
        render: observation to text; a string is taken as it stands, anything else as JSON, unless given.
        oracle: J* of a concept.
        floor: b of a concept.
        oracle_policy: what the best policy would say, given our environment (`env.original` is the one wrapped).
        solved_score: the score that counts as solved, where `info` has none of `solved`, `is_success`, `success`.
        max_reply_tokens: token budget of an action in the tiny tier.
        make_options: arguments of `gymnasium.make`.

    Raises:
        UserError: it cannot be made; its actions are not text and there is no `parse`; nothing bounds its episodes.
    """
    maker = _maker(env, make_options)
    sample = maker()
    inner, spec = sample.unwrapped, sample.spec
    name = id or (spec.id if spec else None) or getattr(inner, "id", "") or type(inner).__name__
    own = type(inner) if isinstance(inner, TextEnv) else None
    if parse is None and not isinstance(sample.action_space.sample(), str):
        raise UserError(
            f"{name}: its actions are {sample.action_space}, not text; pass parse= (text to action)"
        )
    turns = max_turns or (spec.max_episode_steps if spec else None) or (own.max_turns if own else None)
    if turns is None:
        raise UserError(f"{name}: nothing bounds its episodes; pass max_turns=")
    sample.close()
    cls: type[GymnasiumText] = build(
        GymnasiumText,
        "".join(c for c in name.title() if c.isalnum()) or "Imported",
        __doc__=_about(inner),
        id=name,
        maker=maker,
        max_turns=turns,
        max_reply_tokens=max_reply_tokens,
        channels=tuple(own.channels if own and not channels else channels),
        parse=parse,
        render_text=render,
        oracle_score=own.oracle if own and oracle == 1.0 else oracle,
        floor_score=own.floor if own and floor == 0.0 else floor,
        oracle_policy=oracle_policy
        or ((lambda env: env.original.unwrapped.oracle_action()) if own else None),
        solved_score=solved_score,
    )
    return cls


def _about(inner: Any) -> str:
    return inspect.getdoc(type(inner)) or f"{type(inner).__name__}, imported from Gymnasium."


def _maker(
    env: str | Callable[[], gymnasium.Env[Any, Any]], options: Mapping[str, Any]
) -> Callable[[], gymnasium.Env[Any, Any]]:
    if not isinstance(env, str):
        if options:
            raise UserError(
                f"options {', '.join(options)} are for a registered id; bind them in the function"
            )
        return env
    try:
        spec = gymnasium.spec(env)
        gymnasium.make(spec, **options).close()
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise UserError(f"gymnasium cannot make {env!r}: {str(error).splitlines()[0]}") from error
    return lambda: gymnasium.make(env, **options)
