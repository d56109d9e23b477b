"""The learner: hand-checked pieces, and what must not change its result."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from sao_bench import learner as learner_module
from sao_bench import registry
from sao_bench.batch import Batch
from sao_bench.engines.torch import TorchEngine
from sao_bench.errors import UserError
from sao_bench.evaluation import evaluate
from sao_bench.learner import Learner
from sao_bench.models import Critic, freeze_critic, token_logprobs
from sao_bench.rollout import Rollout
from sao_bench.types import Concept, Trajectory, Turn

ENV = "sao_bench/StyleWriting-v0"


@pytest.fixture(scope="module")
def rollouts(tiny: Any) -> list[Trajectory]:
    policy, chat = tiny
    environment = registry.environment(ENV)
    engine = TorchEngine(policy, chat.stop_ids, slots=32)
    return evaluate(engine, Rollout(environment, chat, 0, 48, 1024), environment.default_concept(), range(32))


def learner(policy: Any, name: str = "sao", micro_batch: int = 64, **config: Any) -> Learner:
    cls = registry.algorithm(name)
    return Learner(policy, cls(cls.Config(policy_lr=1e-3, **config)), micro_batch=micro_batch)


def weights(model: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()]).clone()


def hand_trajectory() -> Trajectory:
    turns = [
        Turn([5, 6], [7, 8, 4], [-0.1, -0.2, -0.3], [0, 0, 1], 0.5),
        Turn([9], [10, 4], [-0.4, -0.5], [1, 1], 1.0),
    ]
    return Trajectory(3, 3, 3, 0, Concept.of({}), turns, True, False, "terminated", 1.5, True, {})


def test_a_batch_lays_turns_end_to_end() -> None:
    batch = Batch.of([hand_trajectory()])
    assert batch.token_ids_BT.tolist() == [[5, 6, 7, 8, 4, 9, 10, 4]]
    assert batch.action_mask_BT.int().tolist() == [[0, 0, 1, 1, 1, 0, 1, 1]]
    assert batch.rewards_BT.tolist() == [[0, 0, 0, 0, 0.5, 0, 0, 1.0]]
    assert batch.behavior_logp_BT[0, [2, 7]].tolist() == pytest.approx([-0.1, -0.5])
    assert batch.rewards_B.tolist() == [1.5]


def test_a_fault_is_masked_and_not_averaged_as_zero() -> None:
    broken = hand_trajectory()
    broken.fault = {"stage": "step", "kind": "grader"}
    batch = Batch.of([broken, hand_trajectory()])
    assert batch.action_mask_BT.sum(1).tolist() == [0, 5]


def test_sao_advantage_by_hand() -> None:
    """Two turns, gamma 1; l = 5 action tokens, so lambda = 1 - 1 / 7.5."""
    sao = registry.algorithm("sao")
    algorithm = sao(sao.Config())
    batch = Batch.of([hand_trajectory()])
    values = {2: 0.1, 3: 0.2, 4: 0.3, 6: 0.4, 7: 0.6}
    batch.values_BT = torch.zeros(1, 8)
    for t, v in values.items():
        batch.values_BT[0, t] = v
    batch.final_values_B = torch.tensor([9.0])
    lam = 1 - 1 / 7.5
    a7 = 1.0 - 0.6
    a6 = (0.6 - 0.4) + lam * a7
    a4 = (0.5 + 0.4 - 0.3) + lam * a6
    a3 = (0.3 - 0.2) + lam * a4
    a2 = (0.2 - 0.1) + lam * a3
    assert algorithm.advantages(batch)[0].tolist() == pytest.approx([0, 0, a2, a3, a4, 0, a6, a7], abs=1e-6)
    assert algorithm.value_targets(batch)[0].tolist() == pytest.approx(
        [0, 0, 1.5, 1.5, 1.5, 0, 1, 1], abs=1e-6
    )


def test_truncation_bootstraps_only_where_it_is_asked_to() -> None:
    sao = registry.algorithm("sao")
    batch = Batch.of([hand_trajectory()])
    batch.truncated_B = torch.tensor([True])
    batch.values_BT, batch.final_values_B = torch.zeros(1, 8), torch.tensor([2.0])
    terminal = sao(sao.Config()).value_targets(batch)
    bootstrap = sao(sao.Config(truncation="bootstrap")).value_targets(batch)
    assert (bootstrap - terminal)[0, [2, 7]].tolist() == pytest.approx([2.0, 2.0])


def test_log_probabilities_are_those_of_a_plain_forward_pass(policy: Any) -> None:
    ids = torch.tensor([[3, 20, 30, 40, 4, 0], [3, 20, 50, 4, 0, 0]])
    mask = torch.tensor([[0, 0, 1, 1, 1, 0], [0, 0, 1, 1, 0, 0]], dtype=torch.bool)
    with torch.no_grad():
        found, entropy = token_logprobs(policy, ids, mask, 0.5)
        full = torch.log_softmax(policy(ids).logits / 0.5, -1)
    for b, t in mask.nonzero().tolist():
        assert float(found[b, t]) == pytest.approx(float(full[b, t - 1, ids[b, t]]), abs=1e-5)
        p = full[b, t - 1]
        assert float(entropy[b, t]) == pytest.approx(float(-(p.exp() * p).sum()), abs=1e-5)
    assert found[~mask].abs().sum() == 0


def test_parts_hold_no_more_trajectories_and_tokens_than_they_may() -> None:
    def of(length: int) -> Trajectory:
        made = hand_trajectory()
        made.turns = [Turn([5], [7] * (length - 1), [-0.1] * (length - 1), [0] * (length - 1), 1.0)]
        return made

    batch = Batch.of([of(n) for n in (9, 3, 2, 3, 5, 4)])

    def cut(size: int, tokens: int) -> list[list[int]]:
        parts = list(batch.parts(size, tokens))
        for index, part in parts:
            assert part.token_ids_BT.shape == (len(index), int(batch.lengths_B[index].max()))
        return [batch.lengths_B[index].tolist() for index, _ in parts]

    assert cut(64, 1000) == [[2, 3, 3, 4, 5, 9]]
    assert cut(4, 1000) == [[2, 3, 3, 4], [5, 9]]
    assert cut(64, 9) == [[2, 3, 3], [4], [5], [9]]
    assert cut(64, 16) == [[2, 3, 3, 4], [5], [9]]
    assert cut(2, 7) == [[2, 3], [3], [4], [5], [9]]
    assert cut(64, 1) == [[2], [3], [3], [4], [5], [9]]


@pytest.mark.parametrize("name", ["sao", "running_mean", "grpo_dis", "grpo_clip_higher"])
def test_the_result_does_not_depend_on_the_micro_batch_size(tiny: Any, rollouts: Any, name: str) -> None:
    group = [copy.copy(t) for t in rollouts]
    for t in group:
        t.group = t.index // 8
    found = []
    for micro_batch, micro_tokens in ((32, 4096), (5, 4096), (1, 4096), (32, 100)):
        one = learner(copy.deepcopy(tiny[0]), name, micro_batch)
        one.micro = micro_batch, micro_tokens
        for t in group:
            one.algorithm.on_arrival(t)
        metrics = one.update(group)
        found.append((weights(one.policy), metrics, weights(one.critic) if one.critic else torch.zeros(1)))
    for w, metrics, critic in found[1:]:
        # Adam divides by the gradient's size, so a last-bit difference can show as a fraction of the step.
        assert torch.allclose(w, found[0][0], atol=2e-5)
        assert torch.allclose(critic, found[0][2], atol=2e-5)
        assert metrics["policy_loss"] == pytest.approx(found[0][1]["policy_loss"], rel=1e-4, abs=1e-6)
        assert metrics["policy_grad_norm"] == pytest.approx(found[0][1]["policy_grad_norm"], rel=1e-3)


@pytest.mark.parametrize("read", ["before", "after"])
def test_a_kept_forward_pass_gives_what_a_new_one_gives(
    tiny: Any, rollouts: Any, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    for limit in (0, learner_module.SMALL):
        monkeypatch.setattr(learner_module, "SMALL", limit)
        torch.manual_seed(0)
        one = learner(
            copy.deepcopy(tiny[0]), critic_warmup=0, critic_lr=1e-2, values_read=read, micro_batch=8
        )
        calls: list[int] = []
        assert one.critic is not None
        one.critic.register_forward_hook(lambda *_, seen=calls: seen.append(1))
        one.pretrain_critic(rollouts, 16)
        metrics = [one.update(rollouts) for _ in range(2)]
        metrics = [{k: v for k, v in found.items() if k != "gradient_cosine"} for found in metrics]
        runs.append((metrics, weights(one.policy), weights(one.critic), len(calls)))
    (new, *new_weights, new_calls), (kept, *kept_weights, kept_calls) = runs
    assert kept == new
    assert all(torch.equal(a, b) for a, b in zip(kept_weights, new_weights, strict=True))
    assert kept_calls < new_calls


def test_an_update_without_advantage_changes_nothing(tiny: Any, rollouts: Any) -> None:
    one = learner(copy.deepcopy(tiny[0]), "grpo_dis")
    group = [copy.copy(t) for t in rollouts]
    for t in group:
        t.group = t.index // 8
    one.update(group)
    before = weights(one.policy)
    equal = [copy.deepcopy(t) for t in group]
    for t in equal:
        t.turns[0].reward = 1.0
    metrics = one.update(equal)
    assert torch.equal(weights(one.policy), before)
    assert metrics["zero_advantage_share"] == 1.0 and metrics["policy_grad_norm"] == 0.0


def test_an_all_masked_update_changes_nothing_and_is_finite(tiny: Any, rollouts: Any) -> None:
    one = learner(copy.deepcopy(tiny[0]), "sao")
    before = weights(one.policy)
    far = [copy.deepcopy(t) for t in rollouts]
    for t in far:
        t.turns[0].behavior_logprobs = [-200.0] * len(t.turns[0].action_ids)
    metrics = one.update(far)
    assert torch.equal(weights(one.policy), before)
    assert metrics["mask_ratio"] == 1.0 and metrics["policy_loss"] == 0.0


def test_frozen_attention_keeps_its_weights_and_the_rest_trains(tiny: Any, rollouts: Any) -> None:
    one = learner(copy.deepcopy(tiny[0]), "sao", critic_lr=1e-2)
    assert one.critic is not None
    before = {n: p.detach().clone() for n, p in one.critic.named_parameters()}
    one.update(rollouts, train_policy=False)
    one.update(rollouts, train_policy=False)
    moved = {n for n, p in one.critic.named_parameters() if not torch.equal(p, before[n])}
    assert not any("self_attn" in n for n in moved)
    assert any("mlp" in n for n in moved) and "head.weight" in moved and any("norm" in n for n in moved)
    assert one.critic_parameters["attention_modules"] == 2
    frozen = sum(p.numel() for n, p in before.items() if "self_attn" in n)
    assert one.critic_parameters["frozen"] == frozen


def test_freezing_nothing_is_an_error(policy: Any) -> None:
    critic = Critic(policy)
    for layer in critic.backbone.layers:
        layer._modules["token_mixer"] = layer._modules.pop("self_attn")
    with pytest.raises(UserError, match="no attention module"):
        freeze_critic(critic, "attention")


def test_critic_only_warm_up_leaves_the_policy_alone_and_learns_values(tiny: Any, rollouts: Any) -> None:
    one = learner(copy.deepcopy(tiny[0]), "sao", critic_lr=3e-3)
    before = weights(one.policy)
    losses = [one.update(rollouts, train_policy=False)["value_loss"] for _ in range(12)]
    assert torch.equal(weights(one.policy), before)
    assert losses[-1] < 0.5 * losses[0]


def test_the_order_of_reading_values_is_an_option(tiny: Any, rollouts: Any) -> None:
    spread = {}
    for order in ("before", "after"):
        one = learner(copy.deepcopy(tiny[0]), "sao", critic_lr=5e-3, critic_updates=60, values_read=order)
        spread[order] = one.update(rollouts)["advantage_std"]
    # Fitting first and reading after fits the noise of the very batch that is judged.
    assert spread["after"] < 0.7 * spread["before"]


def test_explained_variance_of_constant_returns_is_undefined(tiny: Any, rollouts: Any) -> None:
    equal = [copy.deepcopy(t) for t in rollouts]
    for t in equal:
        t.turns[0].reward = 1.0
    assert learner(copy.deepcopy(tiny[0]), "sao").update(equal)["explained_variance"] is None


def test_a_checkpoint_holds_the_critic_and_its_optimizer(tiny: Any, rollouts: Any) -> None:
    first = learner(copy.deepcopy(tiny[0]), "sao")
    first.update(rollouts)
    second = learner(copy.deepcopy(tiny[0]), "sao")
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert first.update(rollouts) == second.update(rollouts)
    assert first.critic is not None and second.critic is not None
    assert torch.equal(weights(first.critic), weights(second.critic))
    assert torch.equal(weights(first.policy), weights(second.policy))
