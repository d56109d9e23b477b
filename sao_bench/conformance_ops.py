"""The operations of the conformance vectors: JSON values in, named outputs of the library out.

An operation is a function whose arguments are the `inputs` and `params` of a case. Besides the names of
the estimators and losses, an algorithm's id names its own advantage and loss with its source's defaults
(`adv.grpo`, `loss.dapo`). `loss.reinforce` is the loss function's, a token mean unless told otherwise, and so is
`loss.rloo`; the algorithms sum over a trajectory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sao_bench import estimators, losses, metrics, statistics
from sao_bench.metrics import MetricOptions

Op = Callable[..., dict[str, Any]]
OPS: dict[str, Op] = {}
"""Operations by name."""


def _op(*names: str) -> Callable[[Op], Op]:
    def register(function: Op) -> Op:
        OPS.update(dict.fromkeys(names, function))
        return function

    return register


def _tensor(x: Any) -> Tensor:
    return torch.from_numpy(np.array(x, dtype=np.float64))


def _batch(*arrays: Any) -> tuple[Callable[[Tensor], Tensor], list[Tensor]]:
    """Return the arrays as (B, T), and the function that undoes it if they are one trajectory (T,)."""
    tensors = [_tensor(x) for x in arrays]
    if tensors[0].ndim > 1:
        return lambda x: x, tensors
    return lambda x: x[0], [t[None] for t in tensors]


def _ids(group_ids: list[Any]) -> Tensor:
    numbers = {name: index for index, name in enumerate(dict.fromkeys(group_ids))}
    return torch.tensor([numbers[name] for name in group_ids], dtype=torch.int64)


Gae = Callable[..., tuple[Tensor, Tensor]]


def _gae(function: Gae, arrays: list[Any], bootstrap: Any, gamma: float, lam: Any, critic_lam: Any) -> Any:
    """Advantages with the policy's lambda, returns with the critic's."""
    undo, batch = _batch(*arrays)
    last = _tensor(0.0 if bootstrap is None else bootstrap)
    advantages, _ = function(*batch, gamma, _tensor(lam), last)
    _, returns = function(*batch, gamma, _tensor(critic_lam), last)
    return {"advantages": undo(advantages), "returns": undo(returns)}


@_op("adv.skip_observation_gae", "adv.sao")
def _skip_observation_gae(
    values: Any, rewards: Any, action_mask: Any, bootstrap_value: Any = 0.0,
    gamma: float = 1.0, lam: Any = 1.0, critic_lam: Any = 1.0,
) -> dict[str, Any]:  # fmt: skip
    arrays = [values, rewards, action_mask]
    return _gae(estimators.skip_observation_gae, arrays, bootstrap_value, gamma, lam, critic_lam)


@_op("adv.standard_gae", "adv.gae")
def _standard_gae(
    values: Any, rewards: Any, action_mask: Any, valid_mask: Any = None, bootstrap_value: Any = 0.0,
    gamma: float = 1.0, lam: Any = 1.0, critic_lam: Any = 1.0,
) -> dict[str, Any]:  # fmt: skip
    valid = np.ones_like(np.array(action_mask)) if valid_mask is None else valid_mask
    arrays = [values, rewards, action_mask, valid]
    return _gae(estimators.standard_gae, arrays, bootstrap_value, gamma, lam, critic_lam)


def _step(value: str) -> Op:
    def run(
        values: Any, rewards: Any, action_mask: Any, bootstrap_value: Any = 0.0,
        gamma: float = 1.0, lam: Any = 1.0, critic_lam: Any = 1.0, turn_start: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        def function(*batch: Any) -> tuple[Tensor, Tensor]:
            start = None if turn_start is None else _batch(turn_start)[1][0]
            return estimators.step_gae(*batch, value=value, turn_start_BT=start)  # type: ignore[arg-type]

        return _gae(function, [values, rewards, action_mask], bootstrap_value, gamma, lam, critic_lam)

    return run


OPS["adv.step_average"] = _step("mean")
OPS["adv.last_token"] = OPS["adv.last_token_step"] = _step("last")


@_op("adv.length_adaptive_lambda")
def _length_adaptive_lambda(length: Any, alpha: float = 1.5) -> dict[str, Any]:
    return {"lam": estimators.length_adaptive_lambda(_tensor(length), alpha)}


@_op("adv.token_return")
def _token_return(rewards: Any, action_mask: Any, gamma: float = 1.0) -> dict[str, Any]:
    undo, (r, mask) = _batch(rewards, action_mask)
    return {"advantages": undo(estimators.token_return(r, mask, gamma))}


@_op("adv.reinforce_pp")
def _reinforce_pp(rewards: Any, action_mask: Any, gamma: float = 1.0, eps: float = 1e-8) -> dict[str, Any]:
    undo, (r, mask) = _batch(rewards, action_mask)
    return {"advantages": undo(estimators.whiten(estimators.token_return(r, mask, gamma), mask, eps))}


@_op("adv.whiten")
def _whiten(advantages: Any, action_mask: Any = None, eps: float = 1e-8) -> dict[str, Any]:
    mask = None if action_mask is None else _tensor(action_mask)
    return {"advantages": estimators.whiten(_tensor(advantages), mask, eps)}


@_op("adv.group_relative", "adv.grpo", "adv.grpo_clip_higher", "adv.grpo_dis", "adv.dapo", "adv.gspo", "adv.cispo",
     "adv.tis", "adv.icepop", "adv.m2po")  # fmt: skip
def _group_relative(rewards: Any, group_ids: Any, **params: Any) -> dict[str, Any]:
    return {"advantages": estimators.group_relative(_tensor(rewards), _ids(group_ids), **params)}


@_op("adv.dr_grpo")
def _dr_grpo(rewards: Any, group_ids: Any, **params: Any) -> dict[str, Any]:
    return _group_relative(rewards, group_ids, **{"scale": "none", **params})


@_op("adv.leave_one_out", "adv.rloo")
def _leave_one_out(rewards: Any, group_ids: Any, **params: Any) -> dict[str, Any]:
    return {"advantages": estimators.leave_one_out(_tensor(rewards), _ids(group_ids), **params)}


@_op("adv.reinforce")
def _reinforce(rewards: Any) -> dict[str, Any]:
    return {"advantages": _tensor(rewards)}


@_op("adv.batch_mean")
def _batch_mean(rewards: Any) -> dict[str, Any]:
    return {"advantages": estimators.batch_mean(_tensor(rewards))}


@_op("adv.running_mean")
def _running_mean(rewards: Any, window: int = 128) -> dict[str, Any]:
    return {"advantages": estimators.running_mean(_tensor(rewards), window)}


@_op("adv.ema")
def _ema(rewards: Any, decay: float = 0.95) -> dict[str, Any]:
    return {"advantages": estimators.ema(_tensor(rewards), decay)}


@_op("adv.spo")
def _spo(events: Any, **params: Any) -> dict[str, Any]:
    return {"advantages": estimators.spo(events, **params)}


@_op("adv.overlong_penalty")
def _overlong_penalty(length: int, limit: int, cache: float | None = None) -> dict[str, Any]:
    return {"penalty": estimators.overlong_penalty(length, limit, cache)}


def _policy_loss(function: Callable[..., losses.LossOutput], **defaults: Any) -> Op:
    """Wrap a loss: gradient with respect to `logp`; an advantage per trajectory is spread over its tokens."""

    def run(
        logp: Any,
        behavior_logp: Any,
        advantages: Any,
        action_mask: Any,
        proximal_logp: Any = None,
        **params: Any,
    ) -> dict[str, Any]:
        undo, (log_pi, log_mu, mask) = _batch(logp, behavior_logp, action_mask)
        A = _tensor(advantages)
        A = A[:, None] if np.ndim(logp) == 2 and A.ndim == 1 else A
        if proximal_logp is not None:
            params["proximal_logp_BT"] = _tensor(proximal_logp).reshape(log_pi.shape)
        leaf = log_pi.requires_grad_()
        loss, _ = function(leaf, log_mu, A.expand(log_pi.shape), mask, **{**defaults, **params})
        (gradient,) = torch.autograd.grad(loss, leaf)
        return {"loss": loss.detach(), "grad_logp": undo(gradient)}

    return run


_CLIP_HIGHER = {"eps_low": 0.2, "eps_high": 0.28}
_SEQUENCE_MEAN = {"aggregate": "seq_mean_token_mean"}

OPS |= {
    "loss.batch_mean": _policy_loss(losses.batch_mean_is),
    "loss.batch_mean_is": _policy_loss(losses.batch_mean_is),
    "loss.cispo": _policy_loss(losses.cispo),
    "loss.dapo": _policy_loss(losses.ppo_clip, **_CLIP_HIGHER),
    "loss.decoupled_ppo": _policy_loss(losses.decoupled_ppo),
    "loss.dis": _policy_loss(losses.dis),
    "loss.dr_grpo": _policy_loss(losses.ppo_clip, aggregate="seq_mean_token_sum_norm"),
    "loss.ema": _policy_loss(losses.dis),
    "loss.dual_clip": _policy_loss(losses.ppo_clip, dual_c=3.0),
    "loss.grpo": _policy_loss(losses.ppo_clip, **_SEQUENCE_MEAN),
    "loss.grpo_clip_higher": _policy_loss(losses.ppo_clip, **_CLIP_HIGHER),
    "loss.grpo_dis": _policy_loss(losses.dis),
    "loss.gspo": _policy_loss(losses.gspo),
    "loss.icepop": _policy_loss(losses.icepop),
    "loss.m2po": _policy_loss(losses.m2po),
    "loss.ppo_clip": _policy_loss(losses.ppo_clip),
    "loss.reinforce": _policy_loss(losses.reinforce),
    "loss.running_mean": _policy_loss(losses.dis),
    "loss.reinforce_pp": _policy_loss(losses.ppo_clip),
    "loss.rloo": _policy_loss(losses.reinforce),
    "loss.sao": _policy_loss(losses.dis),
    "loss.spo": _policy_loss(losses.ppo_clip, **_CLIP_HIGHER),
    "loss.tis": _policy_loss(losses.tis),
    "loss.vapo": _policy_loss(losses.ppo_clip, **_CLIP_HIGHER),
}


@_op("loss.value")
def _value_loss(
    values: Any, returns: Any, action_mask: Any, old_values: Any = None, **params: Any
) -> dict[str, Any]:
    undo, (leaf, target, mask) = _batch(values, returns, action_mask)
    old = None if old_values is None else _tensor(old_values).reshape(leaf.shape)
    loss, _ = losses.value_loss(leaf.requires_grad_(), target, mask, old_values_BT=old, **params)
    return {"loss": loss.detach(), "grad_values": undo(torch.autograd.grad(loss, leaf)[0])}


def _options(given: dict[str, Any]) -> MetricOptions:
    return dataclasses.replace(metrics.DEFAULTS, **given)


@_op("metric.prequential")
def _prequential(
    scores: Any, variant: Any = "cumulative", window: Any = None, **params: Any
) -> dict[str, Any]:
    if window is not None:
        params["prequential_window"] = window
    return {"curve": metrics.prequential(scores, variant, _options(params))}


@_op("metric.binned_curve")
def _binned_curve(scores: Any, floor: Any = 0.0, oracle: Any = 1.0, **params: Any) -> dict[str, Any]:
    return {"curve": metrics.binned_curve(scores, floor, oracle, _options(params))}


@_op("metric.dynamic_regret")
def _dynamic_regret(scores: Any, oracle: Any) -> dict[str, Any]:
    return {"regret": metrics.dynamic_regret(scores, oracle)}


@_op("metric.dip_depth")
def _dip_depth(curve: Any, drift: int, horizon: int | None = None, **params: Any) -> dict[str, Any]:
    return {"dip": metrics.dip_depth(curve, drift, horizon, _options(params))}


@_op("metric.recovery_time")
def _recovery_time(
    curve: Any, drift: int, target: float, horizon: int | None = None, **params: Any
) -> dict[str, Any]:
    return {"recovery": metrics.recovery_time(curve, drift, target, horizon, _options(params))}


@_op("metric.auac")
def _auac(curve: Any, floor: Any = 0.0, oracle: Any = 1.0) -> dict[str, Any]:
    return {"auac": metrics.auac(curve, floor, oracle)}


@_op("metric.adaptation_gain")
def _adaptation_gain(curve: Any, frozen: Any, floor: Any = 0.0, oracle: Any = 1.0) -> dict[str, Any]:
    return {"gain": metrics.adaptation_gain(curve, frozen, floor, oracle)}


@_op("metric.plasticity_loss")
def _plasticity_loss(fresh: Any, continued: Any, floor: Any = 0.0, oracle: Any = 1.0) -> dict[str, Any]:
    return {"value": metrics.plasticity_loss(fresh, continued, floor, oracle)}


@_op("metric.resilience")
def _resilience(frozen: float, pre_drift: float, oracle: float) -> dict[str, Any]:
    return metrics.resilience(frozen, pre_drift, oracle)


@_op("metric.forgetting")
def _forgetting(matrix: Any, variant: Any = "end") -> dict[str, Any]:
    return {"value": metrics.forgetting(matrix, variant)}


OPS["metric.forgetting.end"] = _forgetting
OPS["metric.forgetting.max"] = lambda matrix: _forgetting(matrix, "max")
OPS["metric.bwt"] = lambda matrix: _forgetting(matrix, "bwt")


@_op("metric.forward_transfer.zeroshot")
def _forward_transfer_zeroshot(matrix: Any, baseline: Any = 0.0) -> dict[str, Any]:
    return {"value": metrics.forward_transfer_zeroshot(matrix, baseline)}


@_op("metric.forward_transfer.auc")
def _forward_transfer_auc(curve: Any, fresh: Any, floor: Any = 0.0, oracle: Any = 1.0) -> dict[str, Any]:
    return {"value": metrics.forward_transfer_auc(curve, fresh, floor, oracle)}


@_op("metric.stability_gap")
def _stability_gap(probes: Any, phase_ends: Any) -> dict[str, Any]:
    return metrics.stability_gap(probes, phase_ends)


@_op("metric.perseveration")
def _perseveration(right_under_old: Any, right_under_new: Any) -> dict[str, Any]:
    return {"value": metrics.perseveration(right_under_old, right_under_new)}


@_op("metric.absorbed")
def _absorbed(
    zero_advantage_share: Any, best_score: Any, drift: int, horizon: int | None = None, **params: Any
) -> dict[str, Any]:
    options = _options(params)
    return {"value": metrics.absorbed(zero_advantage_share, best_score, drift, horizon, options)}


@_op("metric.detection")
def _detection(alarms: Any, drifts: Any, horizon: int) -> dict[str, Any]:
    return metrics.detection(alarms, drifts, horizon)


@_op("metric.explained_variance")
def _explained_variance(values: Any, returns: Any, mask: Any = None) -> dict[str, Any]:
    return {"value": metrics.explained_variance(values, returns, mask)}


@_op("metric.collapse")
def _collapse(series: Any, **params: Any) -> dict[str, Any]:
    return {"value": metrics.collapsed(series, _options(params))}


@_op("metric.iqm")
def _iqm(scores: Any) -> dict[str, Any]:
    return {"iqm": statistics.iqm(scores)}


@_op("metric.trimmed_mean")
def _trimmed_mean(scores: Any) -> dict[str, Any]:
    return {"value": statistics.trimmed_mean(scores)}


@_op("metric.probability_of_improvement")
def _probability_of_improvement(x: Any, y: Any) -> dict[str, Any]:
    return {"p": statistics.probability_of_improvement(x, y)}


@_op("metric.kaplan_meier_median")
def _kaplan_meier_median(times: Any, observed: Any = None) -> dict[str, Any]:
    return {"median": statistics.kaplan_meier_median(times, observed)}
