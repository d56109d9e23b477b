"""Right values by hand: what each baseline does beyond the estimators and losses that it is made of."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from sao_bench import registry
from sao_bench.batch import Batch
from sao_bench.errors import UserError
from sao_bench.seeding import generator
from sao_bench.types import Concept, Trajectory, Turn

GRPO_STD = {"eps_low": 0.2, "eps_high": 0.2, "dual_c": None, "group_size": 8, "minibatches": 1}
SAO = {
    "eps_low": 0.3, "eps_high": 5.0, "alpha": 1.5, "critic_updates": 2, "critic_freeze": "attention",
    "critic_lr": 5e-6, "policy_lr": 1e-6, "critic_warmup": 10, "values_read": "before", "group_size": 1,
    "critic_lambda": 1.0, "gamma": 1.0, "aggregate": "token_mean",
}  # fmt: skip
DEFAULTS: dict[str, dict[str, Any]] = {
    "reinforce": {"group_size": 1, "aggregate": "seq_mean_token_sum_norm", "aggregate_constant": 1.0},
    "running_mean": {"window": 128, "eps_low": 0.3, "eps_high": 5.0, "group_size": 1},
    "ema": {"decay": 0.95, "eps_low": 0.3, "eps_high": 5.0},
    "batch_mean": {"delta": 5e-3, "aggregate": "seq_mean_token_mean"},
    "spo": {"half_life": 0.06, "rho_min": 0.875, "rho_max": 0.96, "eps_low": 0.2, "eps_high": 0.28},
    "grpo": {**GRPO_STD, "aggregate": "seq_mean_token_mean"},
    "grpo_clip_higher": {**GRPO_STD, "eps_high": 0.28, "aggregate": "token_mean"},
    "grpo_dis": {"eps_low": 0.3, "eps_high": 5.0, "group_size": 8, "aggregate": "token_mean"},
    "dr_grpo": {**GRPO_STD, "aggregate": "seq_mean_token_sum_norm", "aggregate_constant": None},
    "dapo": {**GRPO_STD, "eps_high": 0.28, "refill_limit": 10, "overlong_cache": None},
    "rloo": {"group_size": 4, "aggregate": "seq_mean_token_sum_norm"},
    "reinforce_pp": {"eps_low": 0.2, "eps_high": 0.2, "gamma": 1.0, "group_size": 1},
    "gspo": {**GRPO_STD, "eps_low": 3e-4, "eps_high": 4e-4, "aggregate": "seq_mean_token_mean"},
    "cispo": {"eps_high": 5.0, "group_size": 8},
    "tis": {**GRPO_STD, "cap": 2.0, "minibatches": 4},
    "icepop": {**GRPO_STD, "band_low": 0.5, "band_high": 2.0, "minibatches": 4},
    "decoupled_ppo": {**GRPO_STD, "eps_low": 0.4, "eps_high": 0.4, "behavior_cap": 5.0, "minibatches": 4},
    "decoupled_ppo_critic": {"eps_high": 0.4, "minibatches": 4, "critic_updates": 4, "group_size": 1},
    "m2po": {"tau": 0.04, "group_size": 8, "aggregate": "token_mean"},
    "vapo": {"alpha": 0.05, "eps_low": 0.2, "eps_high": 0.28, "critic_freeze": "none", "critic_updates": 1},
    "ppo_critic": {"alpha": 0.05, "eps_high": 0.28, "minibatches": 4, "critic_fits": "minibatches"},
    "sao": SAO,
    "sao_k1": {**SAO, "critic_updates": 1},
    "sao_full_critic": {**SAO, "critic_freeze": "none"},
    "sao_no_dis": SAO,
    "sao_no_skip": SAO,
    "sao_step_average": SAO,
    "sao_last_token": SAO,
    "sao_no_pretraining": {**SAO, "value_pretrain_episodes": 0},
    "sao_values_after": {**SAO, "values_read": "after"},
    "clairvoyant_restart": SAO,
    "concept_expert": SAO,
    "frozen": {"group_size": 1},
    "random_reward": {"window": 128, "probability": 0.5},
}


def test_every_algorithm_has_its_defaults_pinned() -> None:
    assert set(DEFAULTS) == set(registry.algorithms())


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_defaults_are_those_of_the_source(name: str) -> None:
    found = registry.algorithm(name).Config().model_dump()
    assert {key: found[key] for key in DEFAULTS[name]} == DEFAULTS[name]


def episode(index: int, reward: float, tokens: int = 2, group: int = 0, **fields: Any) -> Trajectory:
    turn = Turn([5], list(range(6, 6 + tokens)), [-1.0] * tokens, [0] * tokens, reward)
    values = {"terminated": True, "truncated": False, "prompt": "p", **fields}
    return Trajectory(
        index, group, 0.0, 40 + index, Concept.of({}), [turn], values.pop("terminated"), values.pop("truncated"),
        "terminated", reward, False, {}, **values,
    )  # fmt: skip


def made(name: str, **config: Any) -> Any:
    cls = registry.algorithm(name)
    algorithm = cls(cls.Config(**config))
    algorithm.bind(8, 10)
    return algorithm


def first_tokens(advantages_BT: torch.Tensor) -> list[float]:
    """Advantages at the first action token (index 1)."""
    return advantages_BT[:, 1].tolist()


def judged(name: str, rewards: list[float], **config: Any) -> list[float]:
    algorithm = made(name, **config)
    rows = [episode(i, reward) for i, reward in enumerate(rewards)]
    for row in rows:
        algorithm.on_arrival(row)
    advantages = algorithm.advantages(Batch.of(rows))
    assert torch.equal(advantages[:, 0], torch.zeros(len(rows)))
    assert torch.equal(advantages[:, 1], advantages[:, 2])
    return first_tokens(advantages)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("reinforce", [1, 0, 1, 1]),
        ("running_mean", [1, -1, 0.5, 1 / 3]),
        ("ema", [1, -0.05, 1 - 0.0475, 1 - (0.95 * 0.0475 + 0.05)]),
        ("batch_mean", [0.25, -0.75, 0.25, 0.25]),
        ("grpo", [0.25 / 0.500001, -0.75 / 0.500001, 0.25 / 0.500001, 0.25 / 0.500001]),
        ("dr_grpo", [0.25, -0.75, 0.25, 0.25]),
        ("rloo", [1 - 2 / 3, -1, 1 - 2 / 3, 1 - 2 / 3]),
        ("frozen", [0, 0, 0, 0]),
    ],
)
def test_advantages_of_four_rewards(name: str, expected: list[float]) -> None:
    assert judged(name, [1, 0, 1, 1]) == pytest.approx(expected, abs=1e-6)


def test_reinforce_pp_whitens_over_tokens_with_the_population_std() -> None:
    """Returns 1, 1 | 0, 0, 0, 0 over six tokens: mean 1/3, variance 2/9."""
    algorithm = made("reinforce_pp")
    advantages = algorithm.advantages(Batch.of([episode(0, 1.0, 2), episode(1, 0.0, 4)]))
    std = math.sqrt(2) / 3
    assert first_tokens(advantages) == pytest.approx([(2 / 3) / std, (-1 / 3) / std], abs=1e-5)


def test_a_fault_leaves_its_group() -> None:
    rows = [episode(0, 1.0), episode(1, 0.0), episode(2, 9.0, fault={"stage": "step", "kind": "x"})]
    assert first_tokens(made("dr_grpo").advantages(Batch.of(rows))) == pytest.approx([0.5, -0.5, 0])
    assert first_tokens(made("rloo").advantages(Batch.of(rows))) == pytest.approx([1, -1, 0])
    assert first_tokens(made("batch_mean").advantages(Batch.of(rows))) == pytest.approx([0.5, -0.5, 0])


def test_dr_grpo_divides_by_the_token_budget() -> None:
    batch = Batch.of([episode(0, 1.0, 4), episode(1, 0.0, 2)])
    assert made("dr_grpo").denominator(batch).value == 10 * 2
    assert made("dr_grpo", aggregate_constant=7).denominator(batch).value == 7 * 2
    cls = registry.algorithm("dr_grpo")
    with pytest.raises(UserError, match="norm_constant"):
        cls(cls.Config()).denominator(batch)


# -- SPO ------------------------------------------------------------------------------------------


def test_spo_forgets_as_far_as_the_policy_has_moved() -> None:
    """Prior 4/8; R = 1 at version 0, then R = 0 after a divergence of 0.006: rho = 2^-0.1 = 0.933."""
    spo = made("spo")
    assert spo.judge(episode(0, 1.0)) == pytest.approx(0.5)
    # No move between the first two visits: rho is at its upper bound.
    counts = (0.96 * 4 + 1, 0.96 * 4)
    assert spo.memory.counts["p"] == pytest.approx(counts)
    batch = Batch.of([episode(0, 1.0)])
    log_r = 0.1
    batch.proximal_logp_BT = torch.full_like(batch.behavior_logp_BT, -1.0)
    spo.updated(batch.proximal_logp_BT + log_r, batch)
    moved = math.exp(log_r) - 1 - log_r
    later = episode(1, 0.0)
    later.turns[0].policy_versions = [1, 1]
    assert spo.judge(later) == pytest.approx(-counts[0] / sum(counts))
    rho = 2 ** (-moved / 0.06)
    assert 0.875 < rho < 0.96
    assert spo.memory.counts["p"] == pytest.approx((rho * counts[0], rho * counts[1] + 1), rel=1e-6)
    other = episode(2, 1.0, prompt="another")
    assert spo.judge(other) == pytest.approx(0.5)


def test_spo_normalises_over_trajectories() -> None:
    """0.5 and -4.84/8.68 are two numbers: whitened they are 1 and -1 whatever their lengths."""
    algorithm = made("spo")
    rows = [episode(0, 1.0, 2), episode(1, 0.0, 6)]
    for row in rows:
        algorithm.on_arrival(row)
    assert first_tokens(algorithm.advantages(Batch.of(rows))) == pytest.approx([1, -1], abs=1e-5)


# -- DAPO -----------------------------------------------------------------------------------------


def group(number: int, rewards: list[float]) -> list[Trajectory]:
    return [episode(number * len(rewards) + i, r, group=number) for i, r in enumerate(rewards)]


def test_dapo_refills_up_to_ten_batches_and_then_trains_on_what_there_is() -> None:
    dapo = made("dapo", group_size=4)
    assert dapo.accept(group(0, [1, 0, 1, 1])) is None
    # Batches of 8, groups of 4: 20 groups may be seen, one is used up.
    assert [dapo.accept(group(n, [1, 1, 1, 1])) for n in range(1, 20)] == ["equal rewards"] * 19
    filler = group(20, [1, 1, 1, 1])
    assert dapo.accept(filler) is None
    batch = Batch.of([*group(0, [1, 0, 1, 1]), *filler])
    assert dapo.action_mask(batch).any(1).tolist() == [True] * 4 + [False] * 4
    assert dapo.metrics() == {"dropped_groups": 19.0, "unfilled_groups": 1.0}
    assert dapo.accept(group(21, [0, 0, 0, 0])) == "equal rewards"
    assert dapo.metrics() == {"dropped_groups": 1.0, "unfilled_groups": 0.0}


def test_dapo_does_not_count_a_fault_as_a_different_reward() -> None:
    rows = group(0, [1, 1, 1, 0])
    rows[3].fault = {"stage": "step", "kind": "x"}
    assert made("dapo").accept(rows) == "equal rewards"


def test_dapo_penalises_length_and_masks_truncation() -> None:
    """Budget 10, cache 2: 8 tokens cost nothing, 9 cost 1/2, 10 cost 1. Rewards 1, 0.5, 0: mean 0.5, std 0.5."""
    dapo = made("dapo")
    rows = [episode(0, 1.0, 8), episode(1, 1.0, 9), episode(2, 1.0, 10, truncated=True, terminated=False)]
    batch = Batch.of(rows)
    batch.action_mask_BT = dapo.action_mask(batch)
    assert batch.action_mask_BT.sum(1).tolist() == [8, 9, 0]
    assert first_tokens(dapo.advantages(batch)) == pytest.approx([1, 0, 0], abs=1e-5)
    kept = made("dapo", mask_truncated=False)
    assert kept.action_mask(Batch.of(rows)).sum(1).tolist() == [8, 9, 10]
    with pytest.raises(UserError, match="over-long cache"):
        made("dapo", overlong_cache=11)


# -- losses ---------------------------------------------------------------------------------------


def test_dual_clip_is_an_option_of_the_clip_losses() -> None:
    """A = -1 and r = e^2: the plain objective is -7.39, held at -3 by the dual clip."""
    for name, config in (("grpo", {"aggregate": "token_mean"}), ("reinforce_pp", {}), ("tis", {})):
        batch = Batch.of([episode(0, 1.0, 1)])
        batch.advantages_BT = torch.tensor([[0.0, -1.0]])
        batch.proximal_logp_BT = batch.behavior_logp_BT
        logp_BT = batch.behavior_logp_BT + 2.0
        plain, dual = made(name, **config), made(name, dual_c=3.0, **config)
        assert float(plain.loss(logp_BT, batch, plain.denominator(batch)).loss) == pytest.approx(math.e**2)
        assert float(dual.loss(logp_BT, batch, dual.denominator(batch)).loss) == pytest.approx(3)


def test_ppo_clips_around_the_proximal_policy_and_reports_the_behaviour_policy() -> None:
    """mu = e^-1, pi_prox = pi = e^-3: the ratio is 1, so nothing is clipped, while pi/mu is e^-2."""
    ppo, vapo = made("ppo_critic"), made("vapo")
    batch = Batch.of([episode(0, 1.0, 1)])
    batch.advantages_BT = torch.tensor([[0.0, -1.0]])
    logp_BT = (batch.behavior_logp_BT - 2.0).requires_grad_()
    batch.proximal_logp_BT = logp_BT.detach()
    found = ppo.loss(logp_BT, batch, ppo.denominator(batch))
    (gradient,) = torch.autograd.grad(found.loss, logp_BT)
    assert gradient[0].tolist() == pytest.approx([0, 1]) and int(found.stats["clipped_sum"]) == 0
    assert float(found.stats["ratio_sum"]) == pytest.approx(math.exp(-2))
    stale = vapo.loss(logp_BT, batch, vapo.denominator(batch))
    assert int(stale.stats["clipped_sum"]) == 1 and float(stale.loss.detach()) == pytest.approx(0.8)


# -- SAO's ablations ------------------------------------------------------------------------------


def two_turns() -> Batch:
    """Action tokens at 1, 2 and 4, an observation at 3; rewards 0 and 1; alpha 1.5, so lambda is 1 - 1/4.5."""
    turns = [Turn([5], [6, 7], [-1, -1], [0, 0], 0.0), Turn([8], [9], [-1], [0], 1.0)]
    batch = Batch.of([Trajectory(0, 0, 0.0, 0, Concept.of({}), turns, True, False, "", 1.0, True, {})])
    batch.values_BT = torch.tensor([[0.0, 0.2, 0.4, 0.9, 0.5]])
    batch.final_values_B = torch.zeros(1)
    return batch


LAMBDA = 1 - 1 / 4.5


def test_sao_skips_the_observation_and_the_ablation_does_not() -> None:
    sao, no_skip = made("sao"), made("sao_no_skip")
    batch = two_turns()
    batch.value_mask_BT = sao.value_mask(batch)
    a4 = 1 - 0.5
    a2 = (0.5 - 0.4) + LAMBDA * a4
    assert sao.advantages(batch)[0].tolist() == pytest.approx([0, 0.2 + LAMBDA * a2, a2, 0, a4], abs=1e-6)
    batch.value_mask_BT = no_skip.value_mask(batch)
    assert batch.value_mask_BT[0].tolist() == [False, True, True, True, True]
    a3 = (0.5 - 0.9) + LAMBDA * a4
    a2 = (0.9 - 0.4) + LAMBDA * a3
    assert no_skip.advantages(batch)[0].tolist() == pytest.approx([0, 0.2 + LAMBDA * a2, a2, 0, a4], abs=1e-6)
    assert no_skip.value_targets(batch)[0].tolist() == pytest.approx([0, 1, 1, 1, 1], abs=1e-6)
    assert sao.value_targets(batch)[0].tolist() == pytest.approx([0, 1, 1, 0, 1], abs=1e-6)


@pytest.mark.parametrize(("name", "value"), [("sao_step_average", 0.3), ("sao_last_token", 0.4)])
def test_values_of_steps(name: str, value: float) -> None:
    """Two turns of values (0.3 or 0.4) and 0.5; every token of a turn gets its turn's advantage."""
    second = 1 - 0.5
    first = (0.5 - value) + LAMBDA * second
    found = made(name).advantages(two_turns())[0].tolist()
    assert found == pytest.approx([0, first, first, 0, second], abs=1e-6)


def test_turns_without_an_observation_between_them_are_still_two() -> None:
    batch = two_turns()
    turns = batch.trajectories[0].turns
    turns[1].prompt_ids = []
    joined = Batch.of(batch.trajectories)
    joined.values_BT = torch.tensor([[0.0, 0.2, 0.4, 0.5]])
    second = 1 - 0.5
    first = (0.5 - 0.3) + LAMBDA * second
    found = made("sao_step_average").advantages(joined)[0].tolist()
    assert found == pytest.approx([0, first, first, second], abs=1e-6)


def test_without_dis_every_ratio_counts() -> None:
    """r = e^3 is above the band (6) and r = e^-3 below it: SAO's loss drops both, the ablation neither."""
    batch = Batch.of([episode(0, 1.0, 2)])
    batch.advantages_BT = torch.tensor([[0.0, 1.0, 1.0]])
    gradients = {}
    for name in ("sao", "sao_no_dis"):
        logp_BT = (batch.behavior_logp_BT + torch.tensor([[0.0, 3.0, -3.0]])).requires_grad_()
        algorithm = made(name)
        loss = algorithm.loss(logp_BT, batch, algorithm.denominator(batch)).loss
        gradients[name] = torch.autograd.grad(loss, logp_BT)[0][0].tolist()
    assert gradients["sao"] == [0, 0, 0]
    assert gradients["sao_no_dis"] == pytest.approx([0, -math.exp(3) / 2, -math.exp(-3) / 2], rel=1e-5)


def test_the_lambda_of_vapo_is_zero_for_short_trajectories() -> None:
    """l = 3 <= 1/0.05: the advantage is the one-step error."""
    assert made("vapo").advantages(two_turns())[0].tolist() == pytest.approx([0, 0.2, 0.1, 0, 0.5], abs=1e-6)


# -- controls -------------------------------------------------------------------------------------


def test_the_coin_depends_on_the_episode_alone_and_is_fair() -> None:
    heads = [generator(40 + i, "random_reward").random() < 0.5 for i in range(400)]
    assert 160 < sum(heads) < 240
    expected, before = [], []
    for head in heads[:6]:
        expected.append(head - (sum(before) / len(before) if before else 0.0))
        before.append(head)
    assert judged("random_reward", [0.0] * 6) == pytest.approx(expected, abs=1e-6)
    assert judged("random_reward", [1.0, 0.0] * 3) == pytest.approx(expected, abs=1e-6)


def test_the_clairvoyant_asks_for_a_restart_once_per_phase_and_remembers_it() -> None:
    control = made("clairvoyant_restart")
    control.on_concept_change(Concept.of({}, 0))
    assert not control.restart
    control.on_concept_change(Concept.of({}, 1))
    again = made("clairvoyant_restart")
    again.load_state_dict(control.state_dict())
    assert control.restart and again.restart
