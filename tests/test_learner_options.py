"""Every option of the learner does what its docstring says: each test fails if the option is passed over."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from sao_bench import registry
from sao_bench.algorithm_subject import Subject, weights
from sao_bench.batch import Batch
from sao_bench.estimators import group_relative, has_signal
from sao_bench.learner import Learner
from sao_bench.losses import batch_mean_is
from sao_bench.types import Concept, Trajectory, Turn

SAO = Subject(registry.algorithm("sao"))


def gradient_norm(model: Any) -> float:
    return float(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm())


def updated(**options: Any) -> tuple[Learner, dict[str, Any]]:
    one = SAO.learner(**options)
    return one, one.update(SAO.trajectories())


def critic_weights(one: Learner) -> Tensor:
    return torch.cat([p.detach().flatten() for p in one.critic.parameters()])  # type: ignore[union-attr]


def test_each_gradient_is_clipped_to_its_own_norm() -> None:
    one, metrics = updated(max_grad_norm=1e-3, critic_max_grad_norm=1e-2)
    assert metrics["policy_grad_norm"] > 2e-3 and metrics["critic_grad_norm"] > 2e-2
    assert gradient_norm(one.policy) == pytest.approx(1e-3, rel=1e-3)
    assert gradient_norm(one.critic) == pytest.approx(1e-2, rel=1e-3)


def test_a_gradient_that_is_not_finite_is_recorded_and_not_applied() -> None:
    one, made = SAO.learner(), SAO.trajectories()
    made[0].turns[0].reward = math.inf
    policy, critic = weights(one), critic_weights(one)
    metrics = one.update(made)
    assert metrics["policy_grad_norm"] is None and metrics["critic_grad_norm"] is None
    assert torch.equal(weights(one), policy) and torch.equal(critic_weights(one), critic)
    assert one.optimizer_steps == 1


def test_the_optimizers_are_given_their_options() -> None:
    one = SAO.learner(betas=(0.5, 0.6), weight_decay=0.25, adam_eps=0.125, critic_lr=0.0625)
    for optimizer, lr in ((one._policy_optimizer, 1e-3), (one._critic_optimizer, 0.0625)):
        (group,) = optimizer.param_groups
        assert (group["lr"], group["betas"], group["eps"]) == (lr, (0.5, 0.6), 0.125)
        assert group["weight_decay"] == 0.25


@pytest.mark.parametrize("epochs", [1, 3])
def test_value_pretraining_passes_over_its_rollouts_that_often(
    epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, step = [], Learner._critic_step
    monkeypatch.setattr(Learner, "_critic_step", lambda self, *a: steps.append(1) or step(self, *a))
    one = SAO.learner(value_pretrain_epochs=epochs)
    one.pretrain_critic(SAO.trajectories(), 6)
    assert len(steps) == epochs * math.ceil(SAO.count / 6)


def test_the_value_clip_holds_back_the_second_fit() -> None:
    """The first fit starts at the values that were read; the second is past a clip as narrow as this one."""
    first = critic_weights(updated(critic_updates=1)[0])
    clipped, free = (critic_weights(updated(value_clip=clip)[0]) for clip in (1e-9, None))
    assert torch.equal(critic_weights(updated(critic_updates=1, value_clip=1e-9)[0]), first)
    assert not torch.allclose(clipped, free, atol=1e-6)


def test_half_of_the_squared_error_is_half_of_it() -> None:
    half, whole = (updated(value_half=on)[1]["value_loss"] for on in (True, False))
    assert whole == pytest.approx(2 * half, rel=1e-6)


def test_policy_loss_is_a_mean_over_the_minibatches_that_there_are() -> None:
    subject = Subject(registry.algorithm("ppo_critic"))
    made = subject.trajectories()[:2]
    few, many = (subject.learner(minibatches=n, critic_updates=0).update(made) for n in (2, 8))
    assert many["policy_loss"] == pytest.approx(few["policy_loss"], rel=1e-5)


def two_turns() -> Batch:
    turns = [
        Turn([5, 6], [7, 8, 4], [-0.1, -0.2, -0.3], [0, 0, 1], 0.5),
        Turn([9], [10, 4], [-0.4, -0.5], [1, 1], 1.0),
    ]
    made = Trajectory(3, 3, 3, 0, Concept.of({}), turns, False, True, "turns", 1.5, True, {}, tail_ids=[9, 9])
    batch = Batch.of([made])
    batch.values_BT, batch.final_values_B = torch.zeros(1, 10), torch.zeros(1)
    return batch


@pytest.mark.parametrize(("counts", "length"), [("trajectory", 5), ("turn", 2.5)])
def test_the_length_of_lambda(counts: Any, length: float) -> None:
    """l = 5 action tokens, or 5 / 2 per turn; with V = 0, A is a decaying sum of the rewards."""
    sao = registry.algorithm("sao")
    lam = 1 - 1 / (1.5 * length)
    A = [0.5 * lam**2 + lam**4, 0.5 * lam + lam**3, 0.5 + lam**2, lam, 1.0]
    found = sao(sao.Config(lambda_length=counts)).advantages(two_turns())
    assert found[0, [2, 3, 4, 6, 7]].tolist() == pytest.approx(A, rel=1e-6)


def test_whitened_advantages_have_mean_0_and_deviation_1_over_the_action_tokens() -> None:
    sao, batch = registry.algorithm("sao"), two_turns()
    found = sao(sao.Config(whiten=True)).advantages(batch)[batch.action_mask_BT]
    assert float(found.mean()) == pytest.approx(0, abs=1e-6)
    assert float(found.std(correction=0)) == pytest.approx(1, rel=1e-5)


def test_an_observation_at_the_end_is_in_the_batch_and_is_the_state_that_is_bootstrapped_from() -> None:
    batch = two_turns()
    assert batch.token_ids_BT[0].tolist() == [5, 6, 7, 8, 4, 9, 10, 4, 9, 9]
    assert batch.action_mask_BT[0, 8:].tolist() == [False, False] and batch.lengths_B.tolist() == [10]
    assert batch.rewards_BT[0, 7:].tolist() == [1.0, 0.0, 0.0]
    made = SAO.trajectories()
    longer = SAO.trajectories()
    for t in longer:
        t.terminated, t.truncated, t.tail_ids = False, True, [9, 9, 9]
    for t in made:
        t.terminated, t.truncated = False, True

    def targets(made: list[Trajectory], truncation: str) -> list[float]:
        one = SAO.learner(truncation=truncation)
        batch = one._batch(made)
        one._read_values(batch)
        found = one.algorithm.value_targets(batch)
        return [round(x, 5) for x in found[batch.action_mask_BT].tolist()]

    assert targets(longer, "terminal") == targets(made, "terminal")
    assert targets(longer, "bootstrap") != targets(made, "bootstrap")


def test_groups_are_equal_up_to_1e_9_and_have_a_signal_as_groups() -> None:
    ids = torch.tensor([0, 0, 1, 1])
    rewards = torch.tensor([0.0, 1e-6, 0.0, 1e-10], dtype=torch.float64)
    found = group_relative(rewards, ids).tolist()
    assert found[0] < -0.1 and found[1] > 0.1 and found[2:] == [0, 0]
    same = has_signal(torch.tensor([0, 0.5, 1, 0.3, 0.3]), torch.tensor([7, 7, 7, 2, 2]))
    assert same.tolist() == [True, True, True, False, False]


def test_batch_mean_keeps_a_trajectory_at_the_bound() -> None:
    logp_BT = torch.log(torch.tensor([[0.5, 0.5]], dtype=torch.float64)).requires_grad_()
    mask_BT = torch.ones(1, 2, dtype=torch.bool)
    output = batch_mean_is(logp_BT, logp_BT.detach(), torch.ones(1, 2), mask_BT, delta=0.0)
    assert float(output.loss.detach()) != 0
