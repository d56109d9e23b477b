"""The `simulated` executor: real learning in virtual time.

A discrete-event simulation. Tokens, gradients and environments are real; how long things take is a cost model.
So staleness, stragglers, group barriers and idle time are controlled variables, a laptop can play a cluster,
and two runs with one seed are equal to the bit.

        dispatch ---> engine queue ---> decode round ---> environment ---> buffer ---> learner ---> publish
           ^            a free slot      all live slots    its latency      a batch     its cost       |
           |                                                                                           |
           +-------- a free worker, and at most (S+1)*B trajectories outstanding <--- a batch is done -+
                                                                          new weights ---> engine, between rounds

    dispatch waits for   a free worker and for admission; unblocked by an arrival, or by a publish
    engine   waits for   requests; unblocked by a dispatch or by an environment's answer
    learner  waits for   a batch that leaves every staleness deadline feasible; unblocked by an arrival

Events of one instant are handled before anything new starts, in the order round, answer (by dispatch index),
publish; so a batch is ordered by arrival with ties by dispatch index. All six clocks can be kept; `wall_s` is
virtual.
"""

from __future__ import annotations

import heapq
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

from sao_bench.engines.torch import Completion
from sao_bench.executors import Executor
from sao_bench.rollout import Episode
from sao_bench.types import CLOCKS

if TYPE_CHECKING:
    from sao_bench.trainer import Trainer

ROUND, ANSWER, PUBLISH = 0, 1, 2


class SimulatedExecutor(Executor):
    """Discrete events, one process, one thread.

    Args:
        trainer: supplies what is run; the executor decides when.
    """

    name: ClassVar[str] = "simulated"
    clocks: ClassVar[tuple[str, ...]] = CLOCKS

    def __init__(self, trainer: Trainer):
        super().__init__(trainer)
        self.cost = trainer.config.cost
        self.now = 0.0
        self.episodes: dict[int, Episode] = {}
        self._events: list[tuple[float, int, int, Any]] = []
        self._engine_busy = False
        self._learner_busy = False
        self._learner_idle_since = 0.0
        self._engine_busy_s = 0.0
        self._checkpoint_due = False

    def run(self) -> None:
        """Run until every dispatched episode is consumed (or the trainer asks to stop)."""
        self._start()
        while self._events and not self.trainer.stopping:
            self.now = self._events[0][0]
            while self._events and self._events[0][0] == self.now:
                _, kind, index, payload = heapq.heappop(self._events)
                (self._round_done, self._answered, self._published)[kind](index, payload)
            self._start()
            if self._checkpoint_due:
                self._checkpoint_due = False
                self.trainer.save(self)
        assert self.trainer.stopping or self.trainer.finished, (
            "the simulation stalled with episodes outstanding"
        )

    # -- what can start now -----------------------------------------------------------------------

    def _start(self) -> None:
        self._start_dispatch()
        self._start_learner()
        self._start_engine()

    def _start_dispatch(self) -> None:
        while size := self.trainer.next_unit(self.now):
            if len(self.episodes) + size > max(self.cost.workers, size) or not self.trainer.buffer.admits(
                size
            ):
                return
            for episode in self.trainer.dispatch(size, self.now):
                self.episodes[episode.plan.index] = episode
                self._submit(episode)

    def _start_learner(self) -> None:
        if self._learner_busy or (batch := self.trainer.next_batch(self.now)) is None:
            return
        for index in self.trainer.drop_overdue():
            self._forget(index)
        train_policy = self.trainer.trains_policy
        duration = self.trainer.critic_updates * self.cost.critic_update_s
        duration += (self.cost.policy_update_s + self.cost.sync_s) if train_policy else 0.0
        self.trainer.learn(
            batch, self.now, self.now + duration, self.now - self._learner_idle_since, self._engine_busy_s
        )
        self._learner_busy = True
        self._push(duration, PUBLISH, 0, train_policy)

    def _start_engine(self) -> None:
        engine = self.trainer.engine
        if self._engine_busy or not engine.busy:
            return
        completions, prefilled = engine.step()
        for key in engine.just_started(completions):
            self.trainer.sampled(self.episodes[key].plan.group)
        duration = self.cost.decode_s + prefilled * self.cost.prefill_s
        self._engine_busy = True
        self._engine_busy_s += duration
        self._push(duration, ROUND, 0, completions)

    # -- what happened ----------------------------------------------------------------------------

    def _round_done(self, _: int, completions: list[Completion]) -> None:
        self._engine_busy = False
        for completion in completions:
            episode = self.episodes.get(completion.key)
            if episode is not None:
                self.trainer.answer(episode, completion, self.now)
                self._push(episode.latency_s, ANSWER, completion.key, None)

    def _answered(self, index: int, _: None) -> None:
        episode = self.episodes.get(index)
        if episode is None:
            return
        if episode.trajectory is None:
            self._submit(episode)
            return
        del self.episodes[index]
        episode.trajectory.arrived_s = self.now
        self.trainer.arrive(episode.trajectory)

    def _published(self, _: int, train_policy: bool) -> None:
        self.trainer.publish(train_policy)
        self._learner_busy = False
        self._learner_idle_since = self.now
        self._checkpoint_due = self.trainer.batches % self.trainer.config.checkpoint_every == 0

    def _submit(self, episode: Episode) -> None:
        assert episode.request is not None
        self.trainer.engine.submit(episode.request)

    def _forget(self, index: int) -> None:
        if self.episodes.pop(index, None) is not None:
            self.trainer.engine.abort({index})

    def _push(self, delay: float, kind: int, index: int, payload: Any) -> None:
        heapq.heappush(self._events, (self.now + delay, kind, index, payload))

    # -- checkpoint -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return clock, pending events and live episodes as plain data."""

        def plain(payload: Any) -> Any:
            return [asdict(completion) for completion in payload] if isinstance(payload, list) else payload

        return {
            "now": self.now,
            "events": [(time, kind, index, plain(payload)) for time, kind, index, payload in self._events],
            "episodes": [episode.state_dict() for episode in self.episodes.values()],
            "engine_busy": self._engine_busy,
            "engine_busy_s": self._engine_busy_s,
            "learner_busy": self._learner_busy,
            "learner_idle_since": self._learner_idle_since,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""

        def restore(payload: Any) -> Any:
            return (
                [Completion(**completion) for completion in payload] if isinstance(payload, list) else payload
            )

        self.now = state["now"]
        self._events = [
            (time, kind, index, restore(payload)) for time, kind, index, payload in state["events"]
        ]
        heapq.heapify(self._events)
        restored = [Episode.restore(self.trainer.rollout, saved) for saved in state["episodes"]]
        self.episodes = {episode.plan.index: episode for episode in restored}
        self._engine_busy = state["engine_busy"]
        self._engine_busy_s = state["engine_busy_s"]
        self._learner_busy = state["learner_busy"]
        self._learner_idle_since = state["learner_idle_since"]
