"""One run: schedule, environment, engine, learner, buffer and run folder, put together.

The trainer supplies the steps (dispatch, answer, arrive, learn, publish, probe, checkpoint); an executor decides
when each happens. Nothing here knows an algorithm or an environment by name.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from sao_bench.algorithm import Algorithm
from sao_bench.buffer import Buffer, Unit
from sao_bench.chat import ChatFormat
from sao_bench.config import RunConfig
from sao_bench.drift import DriftSchedule
from sao_bench.engines.torch import Completion, TorchEngine
from sao_bench.environment import TextEnv
from sao_bench.errors import UserError
from sao_bench.evaluation import evaluate
from sao_bench.learner import Learner
from sao_bench.models import load_policy
from sao_bench.records import RunWriter, episode_record, finite
from sao_bench.rollout import Episode, Rollout
from sao_bench.types import Concept, Trajectory

START_EPISODES = 128
"""Episodes per phase that score the frozen starting policy."""


class Trainer:
    """Everything one run holds.

    Args:
        config: the resolved configuration.
        algorithm: built from `config.options`.
        schedule: compiled; its environment is the run's.
        environment: the environment's class.
        model: folder of the starting policy.
        writer: the run folder.
        progress: called after every batch with what a progress bar shows.
    """

    def __init__(
        self,
        config: RunConfig,
        algorithm: Algorithm,
        schedule: DriftSchedule,
        environment: type[TextEnv],
        model: Path,
        writer: RunWriter,
        progress: Callable[[dict[str, Any]], None] = lambda _: None,
    ):
        self.config = config
        self.algorithm = algorithm
        self.schedule = schedule
        self.environment = environment
        self.writer = writer
        self.progress = progress
        policy, tokenizer = load_policy(model)
        self.chat = ChatFormat(tokenizer, policy.generation_config)
        self.learner = Learner(
            policy,
            algorithm,
            temperature=config.temperature,
            micro_batch=config.micro_batch,
            micro_tokens=config.micro_tokens,
        )
        self.engine = self._new_engine(copy.deepcopy(policy), config.cost.slots)
        self.buffer = Buffer(config.batch_size, config.max_staleness, config.on_stale)
        self.rollout = Rollout(
            environment,
            self.chat,
            config.seed,
            config.max_reply_tokens or environment.max_reply_tokens,
            getattr(policy.config, "max_position_embeddings", 1 << 20),
            env_options=config.env_options,
        )
        algorithm.bind(config.batch_size, self.rollout.budget)
        self.stopping = False
        self.version = 0
        self.dispatched = 0
        self.consumed = 0
        self.batches = 0
        self.updates = 0
        self._group = 0
        self._phase = -1
        self._next_probe = 0
        self._counts = Counter({"sample": 0, "env_step": 0})
        self._dropped: list[dict[str, Any]] = []
        self._bounds: dict[str, tuple[float, float]] = {}
        self._concepts: dict[tuple[int, str], Concept] = {}

    # -- before the first episode -----------------------------------------------------------------

    def start(self) -> dict[str, Any]:
        """Score the starting policy on every phase and pre-train the critic, off the clock.

        Returns:
            what the manifest keeps of it: `start_score` by concept hash, `extra_episodes`, `critic`.
        """
        concepts = {
            c.hash: c for c in (self._concept_of_phase(p) for p in range(len(self.schedule.phases())))
        }
        scores = {key: self._evaluate(concept, START_EPISODES, "start") for key, concept in concepts.items()}
        extra = {"start": START_EPISODES * len(concepts), "value_pretraining": 0}
        critic: dict[str, Any] = {}
        if self.algorithm.needs_critic:
            critic = dict(self.learner.critic_parameters)
            count = self.algorithm.config.value_pretrain_episodes
            if count:
                concept = self._concept_at(0)
                found = evaluate(self._evaluation_engine(), self._stream("pretrain"), concept, range(count))
                critic["pretraining"] = self.learner.pretrain_critic(found, self.config.batch_size)
                extra["value_pretraining"] = count
        means = {key: finite(sum(t.score for t in found) / len(found)) for key, found in scores.items()}
        return {"start_score": means, "extra_episodes": extra, "critic": critic}

    # -- dispatch ---------------------------------------------------------------------------------

    def clocks(self, now: float) -> dict[str, float]:
        """Return all six clocks."""
        return {
            "episode": self.dispatched,
            "sample": self._counts["sample"],
            "optimizer_step": self.learner.optimizer_steps,
            "policy_version": self.version,
            "wall_s": now,
            "env_step": self._counts["env_step"],
        }

    def next_unit(self, now: float) -> int:
        """Return how many episodes the next unit has; 0 when the schedule (or `until`) is exhausted."""
        size = self.algorithm.config.group_size
        if self.dispatched + size > (self.config.until or self.dispatched + size):
            return 0
        by_episode = self.schedule.clock == "episode"
        end = self.clocks(now)[self.schedule.clock] + (size if by_episode else 1)
        return size if end <= self.schedule.horizon else 0

    def dispatch(self, size: int, now: float) -> list[Episode]:
        """Start a unit: consecutive ticks, one concept and one task, bound now."""
        clocks = self.clocks(now)
        t = clocks[self.schedule.clock]
        self._probe_until(t)
        concept = self._concept_at(t)
        if concept.phase != self._phase:
            self._phase = concept.phase
            if self.schedule.notify != "none" or self.algorithm.clairvoyant:
                self.algorithm.on_concept_change(concept)
        episodes: list[Episode] = []
        for member in range(size):
            task = episodes[0].task if member else None
            clocks_now = {**clocks, "episode": self.dispatched}
            episodes.append(
                self.rollout.begin(
                    self.dispatched,
                    concept,
                    group=self._group,
                    t=t,
                    task=task,
                    clocks=clocks_now,
                    dispatched_s=now,
                )
            )
            self.dispatched += 1
        self.buffer.dispatch(self._group, size)
        self._group += 1
        return episodes

    # -- rollouts ---------------------------------------------------------------------------------

    def sampled(self, group: int) -> None:
        """Note that a group has a token of the engine's present version."""
        self.buffer.sampled(group, self.engine.version)

    def answer(self, episode: Episode, completion: Completion, now: float) -> None:
        """Let the environment answer an action, under what its `intra_episode` channels hold by now."""
        concept = None
        if self.environment.moves():
            tick = self.clocks(now)[self.schedule.clock]
            concept = self._concept_at(min(tick, self.schedule.horizon - 1))
        self._counts["sample"] += len(completion.action_ids)
        self._counts["env_step"] += 1
        episode.answer(completion, concept)

    def arrive(self, trajectory: Trajectory) -> None:
        """Record a finished episode, show it to the algorithm, and buffer it."""
        oracle, floor = self._oracle_and_floor(trajectory.concept)
        self.writer.append("episodes", episode_record(trajectory, oracle, floor))
        self.algorithm.on_arrival(trajectory)
        if self.buffer.arrive(trajectory):
            unit = self.buffer.units[trajectory.group]
            if reason := self.algorithm.accept(unit.members):
                self._drop(unit, reason)

    # -- learning ---------------------------------------------------------------------------------

    @property
    def trains_policy(self) -> bool:
        """Whether the batch taken last is one that trains the policy (not critic-only warm-up)."""
        return not self.algorithm.needs_critic or self.batches >= self.algorithm.config.critic_warmup

    @property
    def critic_updates(self) -> int:
        """Critic updates per batch."""
        return self.algorithm.config.critic_updates if self.algorithm.needs_critic else 0

    @property
    def finished(self) -> bool:
        """Whether everything that was dispatched is consumed or dropped."""
        return not self.buffer.units

    def next_batch(self, now: float) -> list[Trajectory] | None:
        """Form the next batch, or None where the learner has to wait."""
        return self.buffer.take(self.version, last=self.next_unit(now) == 0)

    def drop_overdue(self) -> list[int]:
        """Drop the live units that the coming publish takes past S (`on_stale: drop`); returns their episodes."""
        if self.config.on_stale != "drop" or not self.trains_policy:
            return []
        return [index for unit in self.buffer.overdue(self.version) for index in self._drop(unit, "stale")]

    def learn(
        self, batch: Sequence[Trajectory], started_s: float, finished_s: float, idle_s: float, engine_s: float
    ) -> None:
        """Update from a batch and record it; its weights are published later."""
        train_policy = self.trains_policy
        staleness = [self.version - t.oldest_version for t in batch]
        metrics = self.learner.update(batch, train_policy)
        self.batches += 1
        self.updates += int(train_policy)
        self.consumed += len(batch)
        record = {
            "kind": "policy" if train_policy else "critic",
            "batch": self.batches,
            "update": self.updates,
            "version": self.version + int(train_policy),
            "episodes": self.consumed,
            "consumed": [t.index for t in batch],
            "dropped": self._dropped,
            "started_s": finite(started_s),
            "finished_s": finite(finished_s),
            "learner_idle_s": finite(idle_s),
            "engine_busy_s": finite(engine_s),
            "reward_mean": finite(_mean([t.reward for t in batch if t.reward_valid])),
            "score_mean": finite(_mean([t.score for t in batch if t.reward_valid])),
            "response_tokens_mean": finite(_mean([float(t.action_tokens) for t in batch])),
            "faults": sum(not t.reward_valid for t in batch),
            "phase_mix": _histogram([t.concept.phase for t in batch]),
            "staleness": {
                "max": max(staleness),
                "mean": finite(_mean([float(s) for s in staleness])),
                "hist": _histogram(staleness),
                "phases_max": max(self._phase - t.concept.phase for t in batch),
            },
            "metrics": metrics,
        }
        self._dropped = []
        self.writer.append("updates", record)
        self.progress({**record, "consumed": self.consumed, "phase": self._phase})

    def publish(self, train_policy: bool) -> None:
        """Give the engine the new weights, if the policy was trained."""
        self.buffer.trained()
        if train_policy:
            self.version += 1
            self.engine.load_weights(self.version, self.learner.policy.state_dict())

    def _drop(self, unit: Unit, reason: str) -> list[int]:
        self.buffer.discard(unit.group)
        first = self._first_index(unit)
        indices = list(range(first, first + unit.size))
        self._dropped += [{"index": index, "reason": reason} for index in indices]
        self.consumed += unit.size
        return indices

    def _first_index(self, unit: Unit) -> int:
        return unit.group * self.algorithm.config.group_size

    # -- probes -----------------------------------------------------------------------------------

    def _probe_until(self, t: float) -> None:
        probe = self.schedule.probe
        while probe is not None and t >= self._next_probe:
            self.probe(self._next_probe)
            self._next_probe += probe.every

    def probe(self, t: float) -> None:
        """Score the published policy on the probe's concepts, off the clock."""
        probe = self.schedule.probe
        assert probe is not None
        current = self._concept_at(min(t, self.schedule.horizon - 1))
        roles: list[tuple[str, Concept]] = []
        if "seen" in probe.concepts:
            roles += [("seen", self._concept_of_phase(phase)) for phase in range(current.phase + 1)]
        if "current" in probe.concepts:
            roles.append(("current", current))
        if "next" in probe.concepts and current.phase + 1 < len(self.schedule.phases()):
            roles.append(("next", self._concept_of_phase(current.phase + 1)))
        scores: dict[str, float | None] = {}
        for role, concept in roles:
            if concept.hash not in scores:
                found = self._evaluate(concept, probe.episodes, "probe")
                scores[concept.hash] = finite(_mean([x.score for x in found]))
            oracle, floor = self._oracle_and_floor(concept)
            record = {
                "t": t,
                "version": self.version,
                "role": role,
                "phase": concept.phase,
                "concept": concept.hash,
                "score": scores[concept.hash],
                "oracle": finite(oracle),
                "floor": finite(floor),
                "n": probe.episodes,
            }
            self.writer.append("probes", record)

    def _concept_at(self, t: float) -> Concept:
        """Return the concept of a tick, with every channel of the environment."""
        scheduled = self.schedule.at(t)
        key = (scheduled.phase, scheduled.hash)
        if key not in self._concepts:
            # One entry is enough: consecutive ticks mostly share a concept, and a ramp never comes back.
            self._concepts = {key: self.environment.complete_concept(scheduled)}
        return self._concepts[key]

    def _concept_of_phase(self, phase: int) -> Concept:
        """Return a phase's concept where its opening drift is complete: at its last tick."""
        return self._concept_at(self.schedule.phases()[phase].end - 1)

    def _evaluate(self, concept: Concept, episodes: int, stream: str) -> list[Trajectory]:
        return evaluate(self._evaluation_engine(), self._stream(stream), concept, range(episodes))

    def _stream(self, stream: str) -> Rollout:
        return replace(self.rollout, stream=stream)

    def _evaluation_engine(self) -> TorchEngine:
        return self._new_engine(self.engine.model, self.config.cost.slots)

    def _new_engine(self, model: PreTrainedModel, slots: int) -> TorchEngine:
        return TorchEngine(
            model,
            self.chat.stop_ids,
            slots=slots,
            temperature=self.config.temperature,
            on_swap=self.config.on_swap,
        )

    def _oracle_and_floor(self, concept: Concept) -> tuple[float, float]:
        if concept.hash not in self._bounds:
            values = concept.values
            self._bounds[concept.hash] = (self.environment.oracle(values), self.environment.floor(values))
        return self._bounds[concept.hash]

    def finish(self) -> None:
        """Take the closing probe and save the trained policy as a model folder."""
        if self._dropped:
            # What was dropped after the last batch has no update's record to go to.
            self.writer.event("dropped", episodes=self._dropped)
        if self.schedule.probe is not None and not self.config.until:
            self.probe(self.schedule.horizon)
        final = self.writer.folder / "checkpoints" / "final"
        self.learner.policy.save_pretrained(final)
        self.chat.tokenizer.save_pretrained(final)

    # -- checkpoint -------------------------------------------------------------------------------

    def save(self, executor: Any) -> None:
        """Write `checkpoints/state.pt`, whole or not at all."""
        path = self.writer.folder / "checkpoints" / "state.pt"
        torch.save(
            {"trainer": self.state_dict(), "executor": executor.state_dict()}, path.with_suffix(".new")
        )
        path.with_suffix(".new").replace(path)
        self.writer.event("checkpoint", batches=self.batches, consumed=self.consumed)

    def restore(self, executor: Any) -> None:
        """Go back to the last checkpoint.

        Raises:
            UserError: the folder has none.
        """
        path = self.writer.folder / "checkpoints" / "state.pt"
        if not path.is_file():
            raise UserError(
                f"{self.writer.folder} has no checkpoint to resume from; start it again under another --id"
            )
        state = torch.load(path, weights_only=True)
        self.load_state_dict(state["trainer"])
        executor.load_state_dict(state["executor"])

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the executor's state, as plain data and tensors."""
        return {
            "learner": self.learner.state_dict(),
            "engine": self.engine.state_dict(),
            "buffer": self.buffer.state_dict(),
            "counters": {name: getattr(self, name) for name in _COUNTERS},
            "counts": dict(self._counts),
            "dropped": self._dropped,
            "files": self.writer.offsets(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict` and cut the run folder back to it."""
        self.learner.load_state_dict(state["learner"])
        self.engine.load_state_dict(state["engine"])
        self.buffer.load_state_dict(state["buffer"])
        for name in _COUNTERS:
            setattr(self, name, state["counters"][name])
        self._counts = Counter(state["counts"])
        self._dropped = state["dropped"]
        self.writer.truncate_to(state["files"])


_COUNTERS = ("version", "dispatched", "consumed", "batches", "updates", "_group", "_phase", "_next_probe")


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _histogram(values: Sequence[int]) -> dict[str, int]:
    return {str(value): count for value, count in sorted(Counter(values).items())}
