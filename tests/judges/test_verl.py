"""verl as a judge: its core losses and estimators and ours on the same tensors, and where they differ by choice.

Runs where verl is installed (`.ci/test-judges` makes a virtual environment for it). Differences that are choices,
each shown here: verl also clamps CISPO's weight from below; it whitens with the sample variance, we with that of
the batch; it drops a reward that stands on an observation, we give it to the action token before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sao_bench import estimators, losses
from sao_bench.seeding import generator

pytest.importorskip("verl")
core = pytest.importorskip("verl.trainer.ppo.core_algos")
ActorConfig = pytest.importorskip("verl.workers.config").ActorConfig

B, T = 8, 12
RNG = generator(5, "verl")
LENGTHS = [1, 3, 12, 7, 5, 9, 2, 12]
MASK_BT = torch.arange(T) < torch.tensor(LENGTHS)[:, None]
TURNS_BT = MASK_BT & (torch.arange(T) % 5 != 3)
"""Action tokens with observations between them."""
MU_BT = torch.from_numpy(RNG.normal(-2, 0.6, (B, T)).clip(-6, -0.05))
PI_BT = MU_BT + torch.from_numpy(RNG.normal(0, 0.5, (B, T)))
PROX_BT = MU_BT + torch.from_numpy(RNG.normal(0, 0.5, (B, T)))
TOKEN_A_BT = torch.from_numpy(RNG.normal(size=(B, T)))
ROW_A_BT = torch.from_numpy(RNG.normal(size=(B, 1))).expand(B, T)
REWARDS_B = torch.from_numpy(RNG.normal(size=B))
GROUPS_B = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2])
AGGREGATIONS = {"token_mean": "token-mean", "seq_mean_token_mean": "seq-mean-token-mean"}


def config(**fields: Any) -> Any:
    return ActorConfig(strategy="fsdp", ppo_micro_batch_size_per_gpu=1, rollout_n=1, **fields)


def with_gradient(loss: Callable[[Tensor], Tensor]) -> tuple[float, Tensor]:
    logp_BT = PI_BT.clone().requires_grad_()
    value = loss(logp_BT)
    value.backward()
    assert logp_BT.grad is not None
    return float(value.detach()), logp_BT.grad


def agree(ours: Callable[[Tensor], Tensor], theirs: Callable[[Tensor], Tensor]) -> None:
    (a, grad_a), (b, grad_b) = with_gradient(ours), with_gradient(theirs)
    assert float(grad_b.norm()) > 0.01
    assert a == pytest.approx(b, abs=1e-5)
    assert torch.allclose(grad_a, grad_b, atol=1e-5)


def verl_loss(
    name: str, advantages_BT: Tensor, mask_BT: Tensor, how: str, **fields: Any
) -> Callable[[Tensor], Tensor]:
    weights = fields.pop("weights", None)
    old = fields.pop("old", MU_BT)
    own = config(**fields)
    return lambda logp_BT: core.get_policy_loss_fn(name)(
        old, logp_BT, advantages_BT, mask_BT.double(), AGGREGATIONS[how], own, weights
    )[0]


@pytest.mark.parametrize("how", list(AGGREGATIONS))
@pytest.mark.parametrize(("low", "high"), [(0.2, 0.2), (0.2, 0.28)])
def test_dual_clip(how: str, low: float, high: float) -> None:
    agree(
        lambda x: (
            losses.ppo_clip(
                x, MU_BT, TOKEN_A_BT, TURNS_BT, eps_low=low, eps_high=high, dual_c=3.0, aggregate=how
            ).loss
        ),
        verl_loss(
            "vanilla", TOKEN_A_BT, TURNS_BT, how, clip_ratio_low=low, clip_ratio_high=high, clip_ratio_c=3.0
        ),
    )


def test_gspo() -> None:
    agree(
        lambda x: losses.gspo(x, MU_BT, ROW_A_BT, MASK_BT, eps_low=0.1, eps_high=0.15).loss,
        verl_loss("gspo", ROW_A_BT, MASK_BT, "seq_mean_token_mean", clip_ratio_low=0.1, clip_ratio_high=0.15),
    )


def test_cispo_once_it_is_not_clamped_from_below() -> None:
    def ours(x: Tensor) -> Tensor:
        return losses.cispo(x, MU_BT, TOKEN_A_BT, TURNS_BT, eps_high=0.3).loss

    agree(
        ours, verl_loss("cispo", TOKEN_A_BT, TURNS_BT, "token_mean", clip_ratio_low=1.0, clip_ratio_high=0.3)
    )
    held = verl_loss("cispo", TOKEN_A_BT, TURNS_BT, "token_mean", clip_ratio_low=0.2, clip_ratio_high=0.3)
    assert abs(with_gradient(ours)[0] - with_gradient(held)[0]) > 1e-3


@pytest.mark.parametrize("cap", [1.5, 2.0])
def test_truncated_importance_sampling(cap: float) -> None:
    """verl: the vanilla loss against the proximal policy, times weights of the rollout correction."""
    weights = (PROX_BT - MU_BT).exp().clamp(max=cap)
    assert float((weights == cap).double().mean()) > 0.02
    agree(
        lambda x: (
            losses.tis(x, MU_BT, TOKEN_A_BT, TURNS_BT, proximal_logp_BT=PROX_BT, cap=cap, dual_c=3.0).loss
        ),
        verl_loss("vanilla", TOKEN_A_BT, TURNS_BT, "token_mean", old=PROX_BT, weights=weights),
    )


def test_a_trajectory_without_tokens_is_left_out_of_the_mean_over_sequences() -> None:
    mask_BT = TURNS_BT.clone()
    mask_BT[5:] = False
    agree(
        lambda x: (
            losses.ppo_clip(x, MU_BT, TOKEN_A_BT, mask_BT, dual_c=3.0, aggregate="seq_mean_token_mean").loss
        ),
        verl_loss("vanilla", TOKEN_A_BT, mask_BT, "seq_mean_token_mean"),
    )


@pytest.mark.parametrize("clip", [0.2, 1e9])
def test_value_loss(clip: float) -> None:
    returns_BT, old_BT = TOKEN_A_BT + 1, MU_BT
    agree(
        lambda v: losses.value_loss(v, returns_BT, TURNS_BT, old_values_BT=old_BT, clip=clip).loss,
        lambda v: core.compute_value_loss(v, returns_BT, old_BT, TURNS_BT.double(), clip)[0],
    )


# -- estimators --------------------------------------------------------------------------------------------------


def final_reward() -> Tensor:
    """The reward of each trajectory at its last action token."""
    rewards_BT = torch.zeros(B, T, dtype=torch.float64)
    last_B = (TURNS_BT * torch.arange(T)).argmax(1)
    rewards_BT[torch.arange(B), last_B] = REWARDS_B
    return rewards_BT


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.9, 0.8)])
def test_gae_skips_observations(gamma: float, lam: float) -> None:
    values_BT, rewards_BT = PROX_BT, final_reward()
    whitened_BT, theirs_BT = core.compute_gae_advantage_return(
        rewards_BT, values_BT, TURNS_BT.double(), gamma, lam
    )
    advantages_BT, returns_BT = estimators.skip_observation_gae(values_BT, rewards_BT, TURNS_BT, gamma, lam)
    assert torch.allclose(returns_BT[TURNS_BT], theirs_BT[TURNS_BT], atol=1e-5)
    assert torch.allclose(whitened(advantages_BT), whitened_BT[TURNS_BT], atol=1e-5)
    # A reward on an observation: dropped there, the token's before it here.
    rewards_BT[2, 3] += 1.0
    dropped_BT = core.compute_gae_advantage_return(rewards_BT, values_BT, TURNS_BT.double(), gamma, lam)[1]
    kept_BT = estimators.skip_observation_gae(values_BT, rewards_BT, TURNS_BT, gamma, lam)[1]
    assert torch.allclose(dropped_BT[TURNS_BT], theirs_BT[TURNS_BT])
    assert float(kept_BT[2, 2] - returns_BT[2, 2]) == pytest.approx(1.0)


def whitened(x_BT: Tensor) -> Tensor:
    """Return our whitened action tokens with the sample variance that verl divides by."""
    count = int(TURNS_BT.sum())
    return estimators.whiten(x_BT, TURNS_BT)[TURNS_BT] * math.sqrt((count - 1) / count)


def per_row(x_B: Tensor) -> Tensor:
    return torch.where(TURNS_BT, x_B[:, None], 0.0)


@pytest.mark.parametrize("scale", ["std", "none"])
def test_group_relative_advantages(scale: Any) -> None:
    ours_B = estimators.group_relative(REWARDS_B, GROUPS_B, scale=scale)
    theirs_BT, _ = core.compute_grpo_outcome_advantage(
        final_reward(), TURNS_BT.double(), GROUPS_B.numpy(), norm_adv_by_std_in_grpo=scale == "std"
    )
    assert torch.allclose(per_row(ours_B), theirs_BT, atol=1e-5)


def test_leave_one_out() -> None:
    theirs_BT, _ = core.compute_rloo_outcome_advantage(final_reward(), TURNS_BT.double(), GROUPS_B.numpy())
    assert torch.allclose(per_row(estimators.leave_one_out(REWARDS_B, GROUPS_B)), theirs_BT, atol=1e-5)


def test_reinforce_plus_plus() -> None:
    from verl.trainer.config import AlgoConfig

    theirs_BT, returns_BT = core.compute_reinforce_plus_plus_outcome_advantage(
        final_reward(), TURNS_BT.double(), AlgoConfig(gamma=1.0)
    )
    ours_BT = estimators.token_return(final_reward(), TURNS_BT)
    assert torch.allclose(ours_BT[TURNS_BT], returns_BT[TURNS_BT], atol=1e-5)
    assert torch.allclose(whitened(ours_BT), theirs_BT[TURNS_BT], atol=1e-5)
