"""Rolling out a fixed policy, off every clock: probes, the frozen start, value pre-training."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from sao_bench.engines.torch import TorchEngine
from sao_bench.rollout import Episode, Rollout
from sao_bench.types import Concept, Trajectory


def evaluate(
    engine: TorchEngine, rollout: Rollout, concept: Concept, indices: Iterable[int]
) -> list[Trajectory]:
    """Play the episodes of `indices` under one concept; returns them in the order of `indices`."""
    episodes = {index: rollout.begin(index, concept) for index in indices}
    waiting = deque(episodes.values())
    # No more at a time than there are slots: then the engine still knows an episode's first turns at its next.
    for episode in [waiting.popleft() for _ in range(min(engine.slots, len(waiting)))]:
        _submit(engine, episode)
    while engine.busy:
        for completion in engine.step()[0]:
            episode = episodes[completion.key]
            episode.answer(completion)
            if episode.trajectory is None:
                _submit(engine, episode)
            elif waiting:
                _submit(engine, waiting.popleft())
    finished = [episode.trajectory for episode in episodes.values()]
    return [trajectory for trajectory in finished if trajectory is not None]


def _submit(engine: TorchEngine, episode: Episode) -> None:
    assert episode.request is not None
    engine.submit(episode.request)
