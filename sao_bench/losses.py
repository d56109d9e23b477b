"""Policy and value losses: pure tensor functions over action tokens.

Shape legend: B = trajectory, T = token position. Every policy loss takes `logp_BT` (log pi of the sampled
tokens, with gradient), `behavior_logp_BT` (log mu as recorded by the engine that sampled them),
`advantages_BT` and `action_mask_BT`; what lies off the mask is never read, NaN included. r = pi/mu, sg =
stop-gradient. `proximal_logp_BT` is log pi_prox, the learner when the batch was formed; None means that the
batch is used once, so that pi/pi_prox is 1 and its gradient that of log pi.

A loss does not depend on how its batch is cut into micro-batches of whole trajectories: pass the whole
batch's `Denominator` to each and add up the losses and, entry by entry, the statistics.

Sources: SAO/DIS (arXiv 2607.07508), PPO (arXiv 1707.06347), dual clip (arXiv 1912.09729), DAPO clip-higher
(arXiv 2503.14476), GSPO (arXiv 2507.18071), CISPO (arXiv 2506.13585), TIS (Yao et al. 2025), IcePop (Ling
team 2025), decoupled PPO (AReaL, arXiv 2505.24298), M2PO (arXiv 2510.01161).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sao_bench.aggregation import (
    AGGREGATIONS,
    Denominator,
    LossOutput,
    aggregate_tokens,
    merge_stats,
    summarise,
)
from sao_bench.errors import UserError

__all__ = [
    "AGGREGATIONS", "Denominator", "LossOutput", "aggregate_tokens", "batch_mean_is", "cispo",
    "decoupled_ppo", "dis", "gspo", "icepop", "m2po", "m2po_keep", "merge_stats", "ppo_clip", "reinforce",
    "summarise", "tis", "value_loss",
]  # fmt: skip


def reinforce(
    logp_BT: Tensor, behavior_logp_BT: Tensor, advantages_BT: Tensor, action_mask_BT: Tensor, **how: Any
) -> LossOutput:
    """REINFORCE: `-A log pi`, no ratio. `how`: `aggregate`, `norm_constant`, `denominator`."""
    t = _Tokens.of(logp_BT, behavior_logp_BT, advantages_BT, action_mask_BT)
    return t.output(-t.advantage * t.logp, **how)


def dis(
    logp_BT: Tensor,
    behavior_logp_BT: Tensor,
    advantages_BT: Tensor,
    action_mask_BT: Tensor,
    *,
    eps_low: float = 0.3,
    eps_high: float = 5.0,
    **how: Any,
) -> LossOutput:
    """SAO's double-sided importance sampling: `-sg(f(r)) A log pi`, f(r) = r inside the band, else 0.

    The band (1 - eps_low, 1 + eps_high) is open and the same for both signs of A. Masked tokens stay in
    the denominator. f is detached: attached, the gradient would pick up a log pi term.
    `how`: `aggregate`, `norm_constant`, `denominator`.
    """
    t = _Tokens.of(logp_BT, behavior_logp_BT, advantages_BT, action_mask_BT)
    r = t.ratio.detach()
    inside = (r > 1 - eps_low) & (r < 1 + eps_high)
    return t.output(_only(inside, -r * t.advantage * t.logp), masked=~inside, **how)


def cispo(
    logp_BT: Tensor,
    behavior_logp_BT: Tensor,
    advantages_BT: Tensor,
    action_mask_BT: Tensor,
    *,
    eps_high: float = 5.0,
    **how: Any,
) -> LossOutput:
    """CISPO: `-sg(min(r, 1 + eps_high)) A log pi`. `how`: `aggregate`, `norm_constant`, `denominator`."""
    t = _Tokens.of(logp_BT, behavior_logp_BT, advantages_BT, action_mask_BT)
    r = t.ratio.detach()
    return t.output(-r.clamp(max=1 + eps_high) * t.advantage * t.logp, clipped=r > 1 + eps_high, **how)


def ppo_clip(
    logp_BT: Tensor,
    behavior_logp_BT: Tensor,
    advantages_BT: Tensor,
    action_mask_BT: Tensor,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    dual_c: float | None = None,
    **how: Any,
) -> LossOutput:
    """PPO's clipped surrogate on r = pi/mu; `dual_c` bounds the objective of A < 0 below by `dual_c A`.

    `how`: `aggregate`, `norm_constant`, `denominator`.
    """
    t = _Tokens.of(logp_BT, behavior_logp_BT, advantages_BT, action_mask_BT)
    objective, clipped = _clipped(t.ratio, t.advantage, eps_low, eps_high, dual_c)
    return t.output(-objective, clipped=clipped, **how)


def gspo(
    logp_BT: Tensor,
    behavior_logp_BT: Tensor,
    advantages_BT: Tensor,
    action_mask_BT: Tensor,
    *,
    eps_low: float = 3e-4,
    eps_high: float = 4e-4,
    dual_c: float | None = None,
    aggregate: str = "seq_mean_token_mean",
    **how: Any,
) -> LossOutput:
    """GSPO: the clipped surrogate on one ratio per sequence, the geometric mean of r over its tokens.

    The ratio is shared by the tokens and the gradient flows through it to all of them (the GSPO-token form
    would not). `how`: `norm_constant`, `denominator`.
    """
    t = _Tokens.of(logp_BT, behavior_logp_BT, advantages_BT, action_mask_BT)
    mean_B1 = t.log_ratio.sum(1, keepdim=True) / t.mask.sum(1, keepdim=True).clamp(min=1)
    ratio_BT = _exp(mean_B1).expand_as(t.log_ratio)
    objective, clipped = _clipped(ratio_BT, t.advantage, eps_low, eps_high, dual_c)
    return t.output(-objective, clipped=clipped, aggregate=aggregate, **how)


def tis(
    logp_BT: Tensor,
    behavior_logp_BT: Tensor,
    advantages_BT: Tensor,
    action_mask_BT: Tensor,
    *,
    proximal_logp_BT: Tensor | None = None,
    cap: float = 2.0,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    dual_c: float | None = None,
    **how: Any,
) -> LossOutput:
    """Truncated importance sampling: the clip loss on pi/pi_prox times `min(pi_prox/mu, cap)`.

    `how`: `aggregate`, `norm_constant`, `denominator`.
    """
    t = _Tokens.of(logp_BT, behavior_logp_BT, advantages_BT, action_mask_BT, proximal_logp_BT)
    objective, clipped = _clipped(t.proximal_ratio, t.advantage, eps_low, eps_high, dual_c)
    return t.output(-t.correction.clamp(max=cap) * objective, clipped=clipped, **how)


def icepop(
    logp_BT: Tensor,
    behavior_logp_BT: Tensor,
    advantages_BT: Tensor,
    action_mask_BT: Tensor,
    *,
    proximal_logp_BT: Tensor | None = None,
    band_low: float = 0.5,
    band_high: float = 2.0,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    dual_c: float | None = None,
    **how: Any,
) -> LossOutput:
    """IcePop: the clip loss on pi/pi_prox times pi_prox/mu inside the closed band, 0 outside it.

    Dropped tokens stay in the denominator. `how`: `aggregate`, `norm_constant`, `denominator`.
    """
    t = _Tokens.of(logp_BT, behavior_logp_BT, advantages_BT, action_mask_BT, proximal_logp_BT)
    objective, clipped = _clipped(t.proximal_ratio, t.advantage, eps_low, eps_high, dual_c)
    w = t.correction
    inside = (w >= band_low) & (w <= band_high)
    return t.output(_only(inside, -w * objective), masked=~inside, clipped=clipped, **how)


def decoupled_ppo(
    logp_BT: Tensor,
    behavior_logp_BT: Tensor,
    advantages_BT: Tensor,
    action_mask_BT: Tensor,
    *,
    proximal_logp_BT: Tensor | None = None,
    eps_low: float = 0.4,
    eps_high: float = 0.4,
    behavior_cap: float = 5.0,
    dual_c: float | None = None,
    **how: Any,
) -> LossOutput:
    """AReaL's decoupled objective: `pi_prox/mu` times the clip loss on pi/pi_prox.

    Tokens with pi_prox/mu above `behavior_cap` are dropped and stay in the denominator.
    `how`: `aggregate`, `norm_constant`, `denominator`.
    """
    return icepop(
        logp_BT, behavior_logp_BT, advantages_BT, action_mask_BT, proximal_logp_BT=proximal_logp_BT,
        band_low=0.0, band_high=behavior_cap, eps_low=eps_low, eps_high=eps_high, dual_c=dual_c, **how,
    )  # fmt: skip


@torch.no_grad()
def m2po_keep(logp_BT: Tensor, behavior_logp_BT: Tensor, action_mask_BT: Tensor, tau: float = 0.04) -> Tensor:
    """Return the tokens that M2PO keeps: the largest (log r)^2 go until the mean of the rest is below tau.

    Never all: the token with the smallest stays. Of equal ones the later position goes first. The choice is
    over the whole batch, so make it once and cut it with the batch.
    """
    mask_BT = action_mask_BT.bool()
    square_N = (logp_BT - behavior_logp_BT)[mask_BT].double().square()
    sorted_N, order_N = square_N.sort(stable=True)
    count_N = torch.arange(1, len(square_N) + 1, dtype=torch.float64, device=square_N.device)
    stays_N = sorted_N.cumsum(0) / count_N < tau
    stays_N[:1] = True
    keep_BT = torch.zeros_like(mask_BT)
    keep_BT[mask_BT] = torch.zeros_like(stays_N).scatter(0, order_N, stays_N)
    return keep_BT


def m2po(
    logp_BT: Tensor,
    behavior_logp_BT: Tensor,
    advantages_BT: Tensor,
    action_mask_BT: Tensor,
    *,
    tau: float = 0.04,
    keep_BT: Tensor | None = None,
    **how: Any,
) -> LossOutput:
    """M2PO: the unclipped surrogate `-r A` over the tokens of `m2po_keep`; all tokens in the denominator.

    A micro-batch must get its cut of the whole batch's `keep_BT`; None computes it from what is given.
    `how`: `aggregate`, `norm_constant`, `denominator`.
    """
    t = _Tokens.of(logp_BT, behavior_logp_BT, advantages_BT, action_mask_BT)
    keep = m2po_keep(logp_BT, behavior_logp_BT, t.mask, tau) if keep_BT is None else keep_BT.bool()
    return t.output(_only(keep, -t.ratio * t.advantage), masked=~keep, **how)


def batch_mean_is(
    logp_BT: Tensor,
    behavior_logp_BT: Tensor,
    advantages_BT: Tensor,
    action_mask_BT: Tensor,
    *,
    delta: float = 5e-3,
    aggregate: str = "seq_mean_token_mean",
    **how: Any,
) -> LossOutput:
    """FlashREINFORCE: `-sg(r) A log pi` over the trajectories whose binary KL(mu||pi) is at most delta.

    The KL of a trajectory is the mean over its action tokens of the KL between the two Bernoulli
    distributions "this token or another". Divisors keep the counts from before the filter.
    `how`: `norm_constant`, `denominator`.
    """
    t = _Tokens.of(logp_BT, behavior_logp_BT, advantages_BT, action_mask_BT)
    kl_B1 = t.binary_kl().sum(1, keepdim=True) / t.mask.sum(1, keepdim=True).clamp(min=1)
    keep = (kl_B1 <= delta).expand_as(t.mask)
    per_token = _only(keep, -t.ratio.detach() * t.advantage * t.logp)
    return t.output(per_token, masked=~keep, aggregate=aggregate, **how)


def value_loss(
    values_BT: Tensor,
    returns_BT: Tensor,
    action_mask_BT: Tensor,
    *,
    old_values_BT: Tensor | None = None,
    clip: float | None = None,
    half: bool = True,
    aggregate: str = "token_mean",
    norm_constant: float | None = None,
    denominator: Denominator | None = None,
) -> LossOutput:
    """Squared error of the values on action tokens, halved by default.

    With `clip`, the larger of the plain error and that of the value held within `clip` of `old_values_BT`
    (PPO2). The paper of SAO names neither; the defaults are half and no clip.

    Raises:
        UserError: `clip` without `old_values_BT`.
    """
    mask_BT = action_mask_BT.bool()
    error_BT = _only(mask_BT, values_BT - returns_BT).square()
    clipped_BT = torch.zeros_like(mask_BT)
    if clip is not None:
        if old_values_BT is None:
            raise UserError("the value clip needs old_values_BT, the values before the first fit")
        held_BT = old_values_BT + (values_BT - old_values_BT).clamp(-clip, clip)
        held_error_BT = _only(mask_BT, held_BT - returns_BT).square()
        clipped_BT = held_error_BT > error_BT
        error_BT = torch.maximum(error_BT, held_error_BT)
    denominator = _denominator(mask_BT, aggregate, norm_constant, denominator)
    loss = aggregate_tokens(error_BT * (0.5 if half else 1.0), mask_BT, denominator)
    stats = {
        "tokens": mask_BT.sum(),
        "value_error_sum": error_BT.detach().sum(),
        "value_clipped_sum": clipped_BT.sum(),
    }
    return LossOutput(loss, stats)


@dataclass(frozen=True, slots=True, eq=False)
class _Tokens:
    """A batch with everything off the mask replaced by 0, so that no NaN or infinity can come from there."""

    logp: Tensor
    behavior: Tensor
    advantage: Tensor
    mask: Tensor
    proximal: Tensor

    @classmethod
    def of(
        cls, logp: Tensor, behavior: Tensor, advantages: Tensor, mask: Tensor, proximal: Tensor | None = None
    ) -> _Tokens:
        mask = mask.bool()
        proximal = logp if proximal is None else proximal
        clean = [_only(mask, x) for x in (logp, behavior.detach(), advantages.detach(), proximal.detach())]
        return cls(clean[0], clean[1], clean[2], mask, clean[3])

    @property
    def log_ratio(self) -> Tensor:
        return self.logp - self.behavior

    @property
    def ratio(self) -> Tensor:
        """Pi/mu, with gradient."""
        return _exp(self.log_ratio)

    @property
    def proximal_ratio(self) -> Tensor:
        """Pi/pi_prox, with gradient."""
        return _exp(self.logp - self.proximal)

    @property
    def correction(self) -> Tensor:
        """pi_prox/mu, no gradient."""
        return _exp(self.proximal - self.behavior)

    def binary_kl(self) -> Tensor:
        """KL(mu||pi) of "this token or another", per token; 0 off the mask."""
        pi, mu = self.logp.detach(), self.behavior
        tiny = torch.finfo(pi.dtype).eps
        other_pi, other_mu = ((-torch.expm1(x)).clamp(min=tiny) for x in (pi, mu))
        return _only(self.mask, mu.exp() * (mu - pi) + other_mu * (other_mu / other_pi).log())

    def _count(self, where: Tensor | None) -> Tensor:
        return (torch.zeros_like(self.mask) if where is None else where & self.mask).sum()

    def output(
        self,
        per_token: Tensor,
        *,
        masked: Tensor | None = None,
        clipped: Tensor | None = None,
        aggregate: str = "token_mean",
        norm_constant: float | None = None,
        denominator: Denominator | None = None,
    ) -> LossOutput:
        """Aggregate, and count what monitoring needs.

        `masked` tokens were taken out of the loss by a trust region; `clipped` ones sit on a clip: flat for
        the clip losses, at the cap for CISPO.
        """
        denominator = _denominator(self.mask, aggregate, norm_constant, denominator)
        loss = aggregate_tokens(per_token, self.mask, denominator)
        log_r = self.log_ratio.detach()
        r = _exp(log_r)
        stats = {
            "tokens": self.mask.sum(),
            "masked_sum": self._count(masked),
            "clipped_sum": self._count(clipped),
            "ratio_sum": _only(self.mask, r).sum(),
            "log_ratio_square_sum": log_r.square().sum(),
            # k1 and k3 estimators of KL(mu||pi) on tokens sampled from mu (Schulman, 2020).
            "kl_k1_sum": -log_r.sum(),
            "kl_k3_sum": _only(self.mask, r - 1 - log_r).sum(),
            "log_ratios": log_r[self.mask],
        }
        return LossOutput(loss, stats)


def _clipped(
    ratio: Tensor, advantage: Tensor, eps_low: float, eps_high: float, dual_c: float | None
) -> tuple[Tensor, Tensor]:
    """Return the clipped objective per token and where it is flat (no gradient)."""
    plain = ratio * advantage
    objective = torch.minimum(plain, ratio.clamp(1 - eps_low, 1 + eps_high) * advantage)
    flat = ((advantage > 0) & (ratio > 1 + eps_high)) | ((advantage < 0) & (ratio < 1 - eps_low))
    if dual_c is not None:
        floor = torch.where(advantage < 0, dual_c * advantage, -torch.inf)
        flat = flat | (objective < floor)
        objective = torch.maximum(objective, floor)
    return objective, flat


def _exp(x: Tensor) -> Tensor:
    """Exponential that saturates at the root of the largest number: finite, and so are its products."""
    return x.clamp(max=math.log(torch.finfo(x.dtype).max) / 2).exp()


def _denominator(
    mask_BT: Tensor, aggregate: str, constant: float | None, given: Denominator | None
) -> Denominator:
    if given is None:
        return Denominator.of(mask_BT, aggregate, constant)
    if given.how != aggregate:
        raise UserError(f"the denominator was counted for {given.how!r}, the loss aggregates {aggregate!r}")
    return given


def _only(mask: Tensor, x: Tensor) -> Tensor:
    return torch.where(mask, x, torch.zeros_like(x))
