"""Rolling out a fixed policy, off every clock: probes, the frozen start, value pre-training."""

from __future__ import annotations

from collections.abc import Iterable

from sao_bench.engines.torch import TorchEngine
from sao_bench.rollout import Rollout
from sao_bench.types import Concept, Trajectory


def evaluate(
    engine: TorchEngine, rollout: Rollout, concept: Concept, indices: Iterable[int]
) -> list[Trajectory]:
    """Play the episodes of `indices` under one concept; returns them in the order of `indices`."""
    episodes = {index: rollout.begin(index, concept) for index in indices}
    for episode in episodes.values():
        assert episode.request is not None
        engine.submit(episode.request)
    while engine.busy:
        for completion in engine.step()[0]:
            episode = episodes[completion.key]
            episode.answer(completion)
            if episode.request is not None:
                engine.submit(episode.request)
    finished = [episode.trajectory for episode in episodes.values()]
    return [trajectory for trajectory in finished if trajectory is not None]
