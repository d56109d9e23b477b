"""The learner: one batch in, new weights out. Knows no algorithm by name.

One policy batch: read V -> K critic fits -> advantages -> policy step. The advantages come from V as it was read
before the fits; with `values_read: after` it is read again. Every loss is a sum over micro-batches with one global
denominator, so the micro-batch size changes memory and not the result.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from sao_bench.algorithm import Algorithm
from sao_bench.batch import Batch
from sao_bench.losses import Denominator, merge_stats, summarise, value_loss
from sao_bench.metrics import explained_variance
from sao_bench.models import Critic, freeze_critic, token_logprobs
from sao_bench.records import finite
from sao_bench.types import Trajectory

SMALL = 20_000_000
"""Up to this many parameters memory is spent freely: the cosine of consecutive gradients (a copy of them) and the
critic's activations of a whole batch are kept."""


class Learner:
    """Policy, critic and their optimizers.

    Args:
        policy: trained in place.
        algorithm: supplies advantages and losses.
        temperature: of the distribution that actions are sampled from.
        micro_batch: most trajectories of a forward and backward pass.
        micro_tokens: most tokens of one, padding counted.
    """

    def __init__(
        self,
        policy: PreTrainedModel,
        algorithm: Algorithm,
        *,
        temperature: float = 1.0,
        micro_batch: int = 64,
        micro_tokens: int = 4096,
    ):
        self.policy = policy
        self.algorithm = algorithm
        self.temperature = temperature
        self.micro = micro_batch, micro_tokens
        self.optimizer_steps = 0
        self.critic: Critic | None = None
        self.critic_parameters: dict[str, int] = {}
        config = algorithm.config
        self._policy_optimizer = _adamw(policy, config.policy_lr, config)
        if algorithm.needs_critic:
            self.critic = Critic(policy)
            self.critic_parameters = freeze_critic(self.critic, config.critic_freeze)
            self._critic_optimizer = _adamw(self.critic, config.critic_lr, config)
        self._previous_gradient: Tensor | None = None
        self._read: list[Tensor] = []
        """V of each part as it was read, with its graph: the first fit begins from it and saves a forward pass."""
        self._expert = algorithm.expert
        self._experts: dict[str, dict[str, Any]] = {}
        """Weights and optimizers of the experts that are not at work; "" is the start, once there are several."""

    def update(self, trajectories: Sequence[Trajectory], train_policy: bool = True) -> dict[str, Any]:
        """Learn from one batch.

        Args:
            trajectories: in order of arrival.
            train_policy: False for critic-only warm-up.

        Returns:
            the metrics of this update (docs/GLOSSARY.md); an undefined one is None.
        """
        if self.algorithm.restart:
            self._fresh_optimizers()
        if self.algorithm.expert != self._expert:
            self._change_expert(self.algorithm.expert)
        batch = self._batch(trajectories)
        metrics: dict[str, Any] = {}
        if self.critic is None:
            metrics |= self._train_policy(batch)
        else:
            self._read_values(batch, to_fit=True)
            metrics |= self._value_metrics(batch)
            targets = self.algorithm.value_targets(batch)
            # V is in the batch by now: a fit before the policy step does not change what the policy learns from.
            metrics |= self._fit_critic(batch, targets)
            if self.algorithm.config.values_read == "after":
                self._read_values(batch)
            if train_policy:
                metrics |= self._train_policy(batch)
        metrics |= self.algorithm.metrics()
        return {name: finite(value) for name, value in metrics.items()}

    def pretrain_critic(self, trajectories: Sequence[Trajectory], batch_size: int) -> dict[str, Any]:
        """Fit the critic to rollouts of the starting policy; returns the metrics of the last batch."""
        metrics: dict[str, Any] = {}
        for _ in range(self.algorithm.config.value_pretrain_epochs):
            for start in range(0, len(trajectories), batch_size):
                batch = self._batch(trajectories[start : start + batch_size])
                self._read_values(batch, to_fit=True)
                metrics = self._value_metrics(batch)
                metrics["value_loss"], metrics["critic_grad_norm"] = self._critic_step(
                    batch, self.algorithm.value_targets(batch)
                )
        return {name: finite(value) for name, value in metrics.items()}

    def _batch(self, trajectories: Sequence[Trajectory]) -> Batch:
        """Lay out a batch, with the masks that the algorithm trains policy and critic on."""
        batch = Batch.of(trajectories)
        batch.action_mask_BT = self.algorithm.action_mask(batch)
        batch.value_mask_BT = self.algorithm.value_mask(batch)
        return batch

    def _fresh_optimizers(self) -> None:
        """Forget every moment; weights stay."""
        config = self.algorithm.config
        self._policy_optimizer = _adamw(self.policy, config.policy_lr, config)
        if self.critic is not None:
            self._critic_optimizer = _adamw(self.critic, config.critic_lr, config)
        self.algorithm.restart = False

    def _change_expert(self, name: str) -> None:
        """Put the weights and optimizers at work away, and go on with those of another name."""
        self._experts[self._expert] = copy.deepcopy(self._parts_state())
        # A copy: an optimizer goes on in the tensors that it is given.
        self._load_parts(copy.deepcopy(self._experts.get(name) or self._experts[""]))
        self._experts.pop(name, None)
        self._expert = name
        self._previous_gradient = None

    # -- policy -----------------------------------------------------------------------------------

    def _train_policy(self, batch: Batch) -> dict[str, Any]:
        """Compute advantages, step the policy, and say what happened."""
        config = self.algorithm.config
        batch.advantages_BT = self.algorithm.advantages(batch)
        if self.algorithm.needs_proximal:
            batch.proximal_logp_BT = self._current_logp(batch)
        norms: list[float] = []
        stats: list[dict[str, Tensor]] = []
        loss = 0.0
        cut = _split(batch, config.minibatches)
        for _, minibatch in cut:
            part_loss, norm = self._policy_gradient(minibatch, stats)
            loss += part_loss / len(cut)
            norms.append(norm)
            # A gradient of exactly zero (every token masked, or no advantage) must change nothing, and Adam's
            # momentum would. A non-finite one is recorded, as None, and not applied.
            if norm > 0 and math.isfinite(norm):
                self._policy_optimizer.step()
            # Counted all the same: a schedule may run on this clock, and must not stand still.
            self.optimizer_steps += 1
        if self.algorithm.needs_updated_logp:
            self.algorithm.updated(self._current_logp(batch), batch)
        return {
            **_policy_metrics(summarise(merge_stats(stats))),
            **_advantage_metrics(batch),
            "policy_loss": loss,
            "policy_grad_norm": sum(norms) / len(norms),
            "gradient_cosine": self._gradient_cosine(),
        }

    def _policy_gradient(self, batch: Batch, stats: list[dict[str, Tensor]]) -> tuple[float, float]:
        """Accumulate the gradient of one minibatch and clip it; returns the loss and the norm before clipping."""
        config = self.algorithm.config
        self._policy_optimizer.zero_grad()
        denominator = self.algorithm.denominator(batch)
        if self.algorithm.needs_current_logp:
            self.algorithm.prepare(self._current_logp(batch), batch)
        total = 0.0
        for _, part in batch.parts(*self.micro):
            logp_BT, entropy_BT = self._logprobs(part)
            output = self.algorithm.loss(logp_BT, part, denominator)
            output.loss.backward()
            total += float(output.loss.detach())
            stats.append({**output.stats, "entropy_sum": entropy_BT.sum()})
        return total, float(nn.utils.clip_grad_norm_(self.policy.parameters(), config.max_grad_norm))

    def _gradient_cosine(self) -> float | None:
        """Return the cosine between this update's and the last update's gradient (of the last minibatch)."""
        gradients = [p.grad.flatten() for p in self.policy.parameters() if p.grad is not None]
        if not gradients or sum(g.numel() for g in gradients) > SMALL:
            return None
        now, before = torch.cat(gradients), self._previous_gradient
        self._previous_gradient = now
        if before is None or not now.any() or not before.any():
            return None
        return float(torch.nn.functional.cosine_similarity(now, before, dim=0))

    def _logprobs(self, part: Batch) -> tuple[Tensor, Tensor]:
        return token_logprobs(self.policy, part.token_ids_BT, part.action_mask_BT, self.temperature)

    @torch.no_grad()
    def _current_logp(self, batch: Batch) -> Tensor:
        logp_BT = torch.zeros_like(batch.behavior_logp_BT)
        for index, part in batch.parts(*self.micro):
            batch.put(logp_BT, index, self._logprobs(part)[0])
        return logp_BT

    # -- critic -----------------------------------------------------------------------------------

    def _read_values(self, batch: Batch, to_fit: bool = False) -> None:
        """Read V; `to_fit` keeps the graph for a fit on the same batch, where the critic is small enough."""
        assert self.critic is not None
        whole = self.algorithm.config.critic_fits == "same" and self.algorithm.config.critic_updates > 0
        keep = to_fit and whole and sum(self.critic_parameters[k] for k in ("frozen", "trained")) <= SMALL
        self._read = []
        batch.values_BT = torch.zeros_like(batch.behavior_logp_BT)
        batch.final_values_B = torch.zeros(len(batch.trajectories))
        for index, part in batch.parts(*self.micro):
            assert part.value_mask_BT is not None
            with torch.set_grad_enabled(keep):
                values = self.critic(part.token_ids_BT)
            if keep:
                self._read.append(values)
            values = values.detach()
            batch.put(batch.values_BT, index, torch.where(part.value_mask_BT, values[:, :-1], 0.0))
            batch.final_values_B[index] = values.gather(1, part.lengths_B[:, None])[:, 0]

    def _fit_critic(self, batch: Batch, targets_BT: Tensor) -> dict[str, Any]:
        """Run the K critic updates."""
        config = self.algorithm.config
        if not config.critic_updates:
            return {}
        if config.critic_fits == "minibatches":
            count = config.critic_updates
            steps = [
                (part, targets_BT[index, : part.token_ids_BT.shape[1]])
                for index, part in _split(batch, count)
            ]
        else:
            steps = [(batch, targets_BT)] * config.critic_updates
        losses, norms = zip(*(self._critic_step(part, targets) for part, targets in steps), strict=True)
        return {"value_loss": losses[0], "critic_grad_norm": sum(norms) / len(norms)}

    def _critic_step(self, batch: Batch, targets_BT: Tensor) -> tuple[float, float]:
        """Take one optimizer step on the critic; returns the loss before it and the gradient's norm."""
        assert self.critic is not None
        config = self.algorithm.config
        self._critic_optimizer.zero_grad()
        assert batch.value_mask_BT is not None
        denominator = Denominator.of(batch.value_mask_BT, "token_mean")
        total = 0.0
        read, self._read = iter(self._read), []
        for index, part in batch.parts(*self.micro):
            assert part.value_mask_BT is not None
            known = next(read, None)
            values = (self.critic(part.token_ids_BT) if known is None else known)[:, :-1]
            output = value_loss(
                values,
                targets_BT[index, : values.shape[1]],
                part.value_mask_BT,
                old_values_BT=part.values_BT,
                clip=config.value_clip,
                half=config.value_half,
                denominator=denominator,
            )
            output.loss.backward()
            total += float(output.loss.detach())
        trained = [p for p in self.critic.parameters() if p.requires_grad]
        norm = float(nn.utils.clip_grad_norm_(trained, config.critic_max_grad_norm))
        if norm > 0 and math.isfinite(norm):
            self._critic_optimizer.step()
        return total, norm

    def _value_metrics(self, batch: Batch) -> dict[str, Any]:
        """Return how well V, as read, predicts the returns of this batch."""
        assert batch.values_BT is not None
        mask = batch.action_mask_BT
        values = batch.values_BT[mask]
        returns = self.algorithm.value_targets(batch)[mask]
        return {
            "explained_variance": explained_variance(values.double().numpy(), returns.double().numpy()),
            "value_mean": float(values.mean()) if len(values) else None,
        }

    # -- checkpoints --------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return weights, optimizers and counters, critic included."""
        return {
            **self._parts_state(),
            "optimizer_steps": self.optimizer_steps,
            "previous_gradient": self._previous_gradient,
            "algorithm": self.algorithm.state_dict(),
            "expert": self._expert,
            "experts": self._experts,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._load_parts(state)
        self.optimizer_steps = state["optimizer_steps"]
        self._previous_gradient = state["previous_gradient"]
        self.algorithm.load_state_dict(state["algorithm"])
        self._expert = state["expert"]
        self._experts = dict(state["experts"])

    def _parts_state(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self._parts().items()}

    def _load_parts(self, state: Mapping[str, Any]) -> None:
        for name, part in self._parts().items():
            part.load_state_dict(state[name])

    def _parts(self) -> dict[str, Any]:
        """Return what is trained, and what trains it."""
        parts: dict[str, Any] = {"policy": self.policy, "policy_optimizer": self._policy_optimizer}
        if self.critic is not None:
            parts |= {"critic": self.critic, "critic_optimizer": self._critic_optimizer}
        return parts


def _adamw(module: nn.Module, lr: float, config: Any) -> torch.optim.Optimizer:
    trained = [p for p in module.parameters() if p.requires_grad]
    return torch.optim.AdamW(
        trained,
        lr=lr,
        betas=config.betas,
        eps=config.adam_eps,
        weight_decay=config.weight_decay,
        foreach=True,
    )


def _split(batch: Batch, count: int) -> list[tuple[Tensor, Batch]]:
    """Cut a batch into `count` minibatches in order of arrival."""
    indices = torch.arange(len(batch.trajectories)).tensor_split(count)
    return [(index, batch.rows(index)) for index in indices if len(index)]


def _policy_metrics(rates: Mapping[str, float]) -> dict[str, Any]:
    """Name the rates per action token as the glossary does."""
    names = {
        "masked": "mask_ratio",
        "clipped": "clip_fraction",
        "kl_k3": "kl_behavior",
        "ratio": "ratio_mean",
    }
    return {names.get(name, name): value for name, value in rates.items() if name != "kl_k1"}


def _advantage_metrics(batch: Batch) -> dict[str, Any]:
    """Return mean, spread and the share of trajectories without any advantage."""
    advantages, mask = batch.advantages_BT, batch.action_mask_BT
    assert advantages is not None
    taken = advantages[mask]
    return {
        "advantage_mean": float(taken.mean()) if len(taken) else None,
        "advantage_std": float(taken.std(correction=0)) if len(taken) else None,
        "zero_advantage_share": float(
            (torch.where(mask, advantages, 0.0).abs().amax(1) <= 1e-9).float().mean()
        ),
    }
