"""A toy model, a batch made by hand and an algorithm under test: what `sao_bench.algorithm_checks` tries things on."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from sao_bench.algorithm import Algorithm
from sao_bench.batch import Batch
from sao_bench.learner import Learner
from sao_bench.models import token_logprobs
from sao_bench.seeding import generator
from sao_bench.tiny import SPECIALS
from sao_bench.types import Concept, Trajectory, Turn

END = SPECIALS.index("<|end|>")
VOCABULARY = 24
REPLY_TOKENS = 6


def random_policy(seed: int = 0, vocabulary: int = VOCABULARY) -> Qwen3ForCausalLM:
    """Return an untrained model with about 3,000 parameters."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocabulary, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, intermediate_size=32, max_position_embeddings=64,
        tie_word_embeddings=False, bos_token_id=None, eos_token_id=END, pad_token_id=0, dtype="float32",
    )  # fmt: skip
    return Qwen3ForCausalLM(config).float().eval()


class Updated(NamedTuple):
    """What one update gave: its metrics, and all weights after it."""

    metrics: dict[str, Any]
    weights: Tensor

    @property
    def idle(self) -> bool:
        """Whether the policy was given nothing to learn."""
        return self.metrics["policy_loss"] == 0 and self.metrics["policy_grad_norm"] == 0


class WideLearner(Learner):
    """Lays batches out wider than they are, with the stop token as padding."""

    def _batch(self, trajectories: Sequence[Trajectory]) -> Batch:
        batch = Batch.of(trajectories)
        for name in ("token_ids_BT", "action_mask_BT", "behavior_logp_BT", "rewards_BT", "turn_ids_BT"):
            setattr(batch, name, torch.nn.functional.pad(getattr(batch, name), (0, 9)))
        beyond_BT = torch.arange(batch.token_ids_BT.shape[1]) >= batch.lengths_B[:, None]
        batch.token_ids_BT[beyond_BT] = END
        batch.action_mask_BT = self.algorithm.action_mask(batch)
        batch.value_mask_BT = self.algorithm.value_mask(batch)
        return batch


@dataclass(frozen=True)
class Subject:
    """An algorithm under test, and the batch it is tested on."""

    cls: type[Algorithm]

    @property
    def group_size(self) -> int:
        """Rollouts per prompt, by the algorithm's defaults."""
        return int(self.cls.Config().group_size)

    @property
    def count(self) -> int:
        """Trajectories of a batch: at least two groups."""
        return self.group_size * max(2, 16 // self.group_size)

    def trajectories(self, first: int = 0, noise: float = 0.3) -> list[Trajectory]:
        """Return a batch, scored by the model itself and moved by a little noise, as if it were stale."""
        made = [self._trajectory(index, first) for index in range(self.count)]
        score(made, 1.0)
        rng = generator(7, "batch.noise", first)
        for t in made:
            for turn in t.turns:
                turn.behavior_logprobs = [
                    min(x + noise * rng.normal(), -1e-3) for x in turn.behavior_logprobs
                ]
        return made

    def _trajectory(self, index: int, first: int) -> Trajectory:
        """One to three turns of one to five tokens, the second a single token; some are truncated."""
        rng = generator(7, "batch", first + index)
        turns = []
        for number in range(1 + index % 3):
            size = 1 if number == 1 else int(rng.integers(1, 6))
            action = [*rng.integers(5, VOCABULARY, size - 1).tolist(), END]
            prompt = rng.integers(5, VOCABULARY, int(rng.integers(1, 4))).tolist()
            turns.append(Turn(prompt, action, [0.0] * size, [0] * size, float(rng.integers(0, 2))))
        turns[0].reward += index % 2
        truncated = index % 5 == 4
        return Trajectory(
            first + index, (first + index) // self.group_size, 0.0, 100 + first + index, Concept.of({}), turns,
            not truncated, truncated, "terminated", 0.0, False, {}, prompt=f"prompt {index % 4}",
        )  # fmt: skip

    def learner(
        self,
        micro_batch: int = 64,
        temperature: float = 1.0,
        kind: type[Learner] = Learner,
        reply_tokens: int = REPLY_TOKENS,
        **config: Any,
    ) -> Learner:
        """Return a learner of the toy model; options that the algorithm does not have are passed over."""
        known = {k: v for k, v in config.items() if k in self.cls.Config.model_fields}
        algorithm = self.cls(self.cls.Config(policy_lr=1e-3, **known))
        algorithm.bind(self.count, reply_tokens)
        one = kind(copy.deepcopy(POLICY), algorithm, micro_batch=micro_batch, temperature=temperature)
        if one.critic is not None:
            # Not the zero head of a new critic: what it says of a state must show in every check.
            weight = one.critic.head.weight
            weight.data = torch.tensor(generator(7, "head").normal(size=tuple(weight.shape))).to(weight)
        return one

    def update(
        self, made: Sequence[Trajectory], order: Sequence[int] | None = None, **options: Any
    ) -> Updated:
        """Return what one update of a new learner gives, the batch consumed in `order`."""
        one = self.learner(**options)
        arrive(one, made)
        metrics = one.update(list(made) if order is None else [made[i] for i in order])
        return Updated(metrics, weights(one))


POLICY = random_policy(3)


def score(made: Sequence[Trajectory], temperature: float) -> None:
    """Record the toy model's own log-probabilities as the behaviour policy's."""
    batch = Batch.of(made)
    with torch.no_grad():
        logp_BT, _ = token_logprobs(POLICY, batch.token_ids_BT, batch.action_mask_BT, temperature)
    for row, t in enumerate(made):
        values = iter(logp_BT[row][batch.action_mask_BT[row]].tolist())
        for turn in t.turns:
            turn.behavior_logprobs = [next(values) for _ in turn.action_ids]


def arrive(one: Learner, made: Sequence[Trajectory]) -> None:
    """Show trajectories to the algorithm in order of arrival."""
    for t in made:
        one.algorithm.on_arrival(t)


def weights(one: Learner) -> Tensor:
    """Return all weights of policy and critic as one vector (a copy)."""
    models = [one.policy] if one.critic is None else [one.policy, one.critic]
    return torch.cat([p.detach().flatten() for model in models for p in model.parameters()]).clone()
