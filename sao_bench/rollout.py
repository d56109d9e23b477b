"""One episode: concept -> reset -> (engine samples, environment answers)* -> trajectory.

An `Episode` holds no clock and no random state of its own, so an executor can interleave thousands of them.
It is rebuilt after a resume by replaying its replies: (seed, task, concept) and the replies decide it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sao_bench.chat import ChatFormat
from sao_bench.engines.torch import Completion, Request
from sao_bench.environment import TextEnv
from sao_bench.errors import UserError
from sao_bench.seeding import derive, generator
from sao_bench.types import Concept, Trajectory, Turn, concept_state, restore_concept


@dataclass(frozen=True, slots=True)
class Rollout:
    """What all episodes of a run share.

    Attributes:
        environment: class of the environment.
        chat: turns text into tokens and back.
        seed: the run's seed; episode seeds and sampling draws derive from it and the episode's index.
        budget: tokens per action.
        context: tokens that the model can see at most.
        stream: keeps training, probes and value pre-training apart.
        env_options: arguments of the environment's constructor.
    """

    environment: type[TextEnv]
    chat: ChatFormat
    seed: int
    budget: int
    context: int
    stream: str = "train"
    env_options: dict[str, Any] = field(default_factory=dict)

    def begin(
        self,
        index: int,
        concept: Concept,
        *,
        group: int | None = None,
        t: float = 0.0,
        task: Any = None,
        **fields: Any,
    ) -> Episode:
        """Start the episode of a dispatch index: its environment is reset and its first request is ready.

        `task` makes a member of a group face the task of the first; its noise and latency stay its own.
        """
        plan = EpisodePlan(index, index if group is None else group, t, concept, task, **fields)
        return Episode(self, plan)


@dataclass(slots=True)
class EpisodePlan:
    """What is decided when an episode is dispatched."""

    index: int
    group: int
    t: float
    concept: Concept
    task: Any = None
    clocks: dict[str, float] = field(default_factory=dict)
    dispatched_s: float = 0.0


class Episode:
    """An episode in progress.

    Attributes:
        request: what the engine has to sample next, or None once the episode has ended.
        latency_s: virtual seconds that the environment's last answer takes.
        trajectory: the finished episode, or None.
    """

    def __init__(self, rollout: Rollout, plan: EpisodePlan):
        self._rollout = rollout
        self.plan = plan
        self.seed = derive(rollout.seed, rollout.stream, plan.index)
        self._env = rollout.environment(**rollout.env_options)
        options = {"concept": plan.concept} | ({} if plan.task is None else {"task": plan.task})
        self.prompt, _ = self._env.reset(seed=self.seed, options=options)
        self._began = self._env.concept
        self.task = self._env.truth()["task"]
        self.latency_s = self._env.latency_s
        self.turns: list[Turn] = []
        self.trajectory: Trajectory | None = None
        self._history: list[int] = []
        self._ended_with_stop = True
        self._new_ids = rollout.chat.prompt_ids(self.prompt)
        if len(self._new_ids) >= rollout.context:
            raise UserError(
                f"{rollout.environment.id}: a prompt of {len(self._new_ids)} tokens leaves no room for a reply in the"
                f" model's {rollout.context} positions; use a model with a longer context or a shorter template"
            )
        self.request: Request | None = self._next_request()

    def answer(self, completion: Completion, concept: Concept | None = None) -> None:
        """Hand a sampled action to the environment; afterwards there is a next request or a trajectory.

        `concept` is the one of this moment; its `intra_episode` channels move the environment first.
        """
        if concept is not None:
            self._env.move(concept)
        reply = self._rollout.chat.decode(completion.action_ids)
        self._act(
            reply, completion.action_ids, completion.logprobs, completion.versions, completion.stop_reason
        )

    def _act(
        self, reply: str, ids: list[int], logprobs: list[float], versions: list[int], stop_reason: str
    ) -> None:
        observation, reward, terminated, truncated, info = self._env.step(reply)
        self.latency_s = self._env.latency_s
        moved = None if self._env.concept is self._began else dict(self._env.concept.values)
        self.turns.append(Turn(self._new_ids, ids, logprobs, versions, reward, reply, moved))
        self._history += [*self._new_ids, *ids]
        self._ended_with_stop = stop_reason == "stop"
        self.request = None
        if terminated:
            cut = not self._ended_with_stop
            self._finish(not cut, cut or truncated, "length" if cut else "terminated", info)
            return
        self._new_ids = self._rollout.chat.observation_ids(observation, self._ended_with_stop)
        fits = len(self._history) + len(self._new_ids) < self._rollout.context
        if truncated:
            self._finish(False, True, "turns", info, self._new_ids if fits else [])
        elif not fits:
            self._finish(False, True, "context", info)
        else:
            self.request = self._next_request()

    def _next_request(self) -> Request:
        prompt = [*self._history, *self._new_ids]
        budget = max(1, min(self._rollout.budget, self._rollout.context - len(prompt)))
        draws = generator(
            self._rollout.seed, f"{self._rollout.stream}.sample", self.plan.index, len(self.turns)
        )
        return Request(self.plan.index, prompt, draws.random(budget).tolist())

    def _finish(
        self,
        terminated: bool,
        truncated: bool,
        stop_reason: str,
        info: dict[str, Any],
        tail: Sequence[int] = (),
    ) -> None:
        truth = self._env.truth()
        plan = self.plan
        self.trajectory = Trajectory(
            index=plan.index,
            group=plan.group,
            t=plan.t,
            seed=self.seed,
            concept=plan.concept,
            turns=self.turns,
            terminated=terminated,
            truncated=truncated,
            stop_reason=stop_reason,
            score=float(truth["score"]),
            solved=bool(truth["solved"]),
            clocks=plan.clocks,
            prompt=self.prompt,
            parts=truth["parts"],
            fault=info.get("fault"),
            tail_ids=list(tail),
            dispatched_s=plan.dispatched_s,
        )

    # -- checkpoint -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the plan and the turns so far as plain data."""
        plan = asdict(self.plan)
        plan["concept"] = concept_state(self.plan.concept)
        return {
            "plan": plan,
            "turns": [asdict(turn) for turn in self.turns],
            "stopped": self._ended_with_stop,
        }

    @classmethod
    def restore(cls, rollout: Rollout, state: dict[str, Any]) -> Episode:
        """Rebuild an episode by replaying its replies."""
        plan = dict(state["plan"])
        episode = cls(rollout, EpisodePlan(**{**plan, "concept": restore_concept(plan["concept"])}))
        for number, turn in enumerate(state["turns"]):
            last = number == len(state["turns"]) - 1
            stop = (
                "stop"
                if (state["stopped"] if last else turn["action_ids"][-1] in rollout.chat.stop_ids)
                else "length"
            )
            if turn["moved"] is not None:
                episode._env.move(Concept.of(turn["moved"]))
            episode._act(
                turn["reply"], turn["action_ids"], turn["behavior_logprobs"], turn["policy_versions"], stop
            )
        return episode
