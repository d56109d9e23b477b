"""What holds for every registered algorithm, on a batch made by hand."""

from __future__ import annotations

import copy
import io
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from sao_bench import registry
from sao_bench.batch import Batch
from sao_bench.learner import Learner
from sao_bench.models import token_logprobs
from sao_bench.seeding import generator
from sao_bench.types import Concept, Trajectory, Turn
from tests.baselines.bandit import END, random_policy

NAMES = sorted(registry.algorithms())
GROUPED = [name for name in NAMES if registry.algorithm(name).Config().group_size > 1]
POLICY = random_policy(3, vocabulary=24)
TEMPERATURE = 0.7


def trajectory(index: int, first: int = 0) -> Trajectory:
    """One to three turns of one to five tokens, one of them a single token; some are truncated."""
    rng = generator(7, "batch", first + index)
    turns = []
    for number in range(1 + index % 3):
        size = 1 if number == 1 else int(rng.integers(1, 6))
        action = [*rng.integers(5, 24, size - 1).tolist(), END]
        prompt = rng.integers(5, 24, int(rng.integers(1, 4))).tolist()
        turns.append(Turn(prompt, action, [0.0] * size, [0] * size, float(rng.integers(0, 2))))
    turns[0].reward += index % 2
    truncated = index % 5 == 4
    return Trajectory(
        first + index, (first + index) // 8, 0.0, 100 + first + index, Concept.of({}), turns, not truncated, truncated,
        "terminated", 0.0, False, {}, prompt=f"prompt {index % 4}",
    )  # fmt: skip


def trajectories(first: int = 0, noise: float = 0.3) -> list[Trajectory]:
    """Two groups of eight, scored by the model itself and moved by a little noise, as if they were stale."""
    made = [trajectory(index, first) for index in range(16)]
    score(made, 1.0)
    rng = generator(7, "noise", first)
    for t in made:
        for turn in t.turns:
            turn.behavior_logprobs = [min(x + noise * rng.normal(), -1e-3) for x in turn.behavior_logprobs]
    return made


def score(made: Sequence[Trajectory], temperature: float) -> None:
    """Record the model's own log-probabilities as the behaviour policy's."""
    batch = Batch.of(made)
    with torch.no_grad():
        logp_BT, _ = token_logprobs(POLICY, batch.token_ids_BT, batch.action_mask_BT, temperature)
    for row, t in enumerate(made):
        values = iter(logp_BT[row][batch.action_mask_BT[row]].tolist())
        for turn in t.turns:
            turn.behavior_logprobs = [next(values) for _ in turn.action_ids]


def learner(name: str, micro_batch: int = 64, temperature: float = 1.0, **config: Any) -> Learner:
    cls = registry.algorithm(name)
    known = {k: v for k, v in config.items() if k in cls.Config.model_fields}
    algorithm = cls(cls.Config(policy_lr=1e-3, **known))
    algorithm.bind(16, 6)
    return Learner(copy.deepcopy(POLICY), algorithm, micro_batch=micro_batch, temperature=temperature)


def arrive(one: Learner, made: Sequence[Trajectory]) -> None:
    for t in made:
        one.algorithm.on_arrival(t)


def weights(one: Learner) -> torch.Tensor:
    models = [one.policy] if one.critic is None else [one.policy, one.critic]
    return torch.cat([p.detach().flatten() for model in models for p in model.parameters()]).clone()


def updated(name: str, made: Sequence[Trajectory], order: Sequence[int] | None = None, **options: Any) -> Any:
    """Return (metrics, weights) after one update."""
    one = learner(name, **options)
    arrive(one, made)
    metrics = one.update(list(made) if order is None else [made[i] for i in order])
    return metrics, weights(one)


def same(a: Any, b: Any) -> None:
    """Two updates are the same up to the order in which numbers are added."""
    assert a[0].keys() == b[0].keys()
    for key in ("policy_loss", "policy_grad_norm", "advantage_mean", "advantage_std", "value_loss"):
        if key in a[0]:
            assert a[0][key] == pytest.approx(b[0][key], rel=1e-4, abs=1e-6), key
    # Adam divides by the gradient's size: a last-bit difference can show as a fraction of the step (1e-3).
    assert torch.allclose(a[1], b[1], atol=5e-5)


@pytest.mark.parametrize("name", NAMES)
def test_an_update_is_finite_and_moves_the_policy(name: str) -> None:
    one = learner(name)
    made = trajectories()
    arrive(one, made)
    before = torch.cat([p.detach().flatten() for p in one.policy.parameters()]).clone()
    metrics = one.update(made)
    after = torch.cat([p.detach().flatten() for p in one.policy.parameters()])
    assert metrics["policy_loss"] is not None and metrics["policy_grad_norm"] is not None
    assert bool(torch.isfinite(after).all())
    assert bool((before == after).all()) == (name == "frozen")


@pytest.mark.parametrize("name", NAMES)
def test_its_memory_survives_a_checkpoint_exactly(name: str) -> None:
    first = learner(name)
    made, later = trajectories(), trajectories(first=16)
    arrive(first, made)
    first.update(made)
    arrive(first, later[:9])
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = learner(name)
    second.load_state_dict(torch.load(file, weights_only=True))
    for one in (first, second):
        arrive(one, later[9:])
    assert first.update(later) == second.update(later)
    assert torch.equal(weights(first), weights(second))
    assert first.algorithm.state_dict() == second.algorithm.state_dict()


@pytest.mark.parametrize("name", NAMES)
def test_the_micro_batch_size_changes_nothing(name: str) -> None:
    made = trajectories()
    whole = updated(name, made, delta=1e-3)
    same(updated(name, made, micro_batch=5, delta=1e-3), whole)
    same(updated(name, made, micro_batch=1, delta=1e-3), whole)


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_the_batch_changes_nothing(name: str) -> None:
    """Within one minibatch; how a batch is cut into minibatches does follow the order of arrival."""
    made = trajectories()
    order = generator(7, "order").permutation(16).tolist()
    options = {"minibatches": 1, "critic_fits": "same", "critic_updates": 1}
    same(updated(name, made, order, **options), updated(name, made, **options))


@pytest.mark.parametrize("name", NAMES)
def test_padding_changes_nothing_even_if_it_is_the_stop_token(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trajectories()
    plain = updated(name, made)
    original = Batch.of

    def wide(rows: Sequence[Trajectory]) -> Batch:
        batch = original(rows)
        lengths = batch.lengths_B[:, None]
        for field in ("token_ids_BT", "action_mask_BT", "behavior_logp_BT", "rewards_BT", "turn_ids_BT"):
            setattr(batch, field, torch.nn.functional.pad(getattr(batch, field), (0, 9)))
        beyond = torch.arange(batch.token_ids_BT.shape[1]) >= lengths
        batch.token_ids_BT[beyond] = END
        return batch

    monkeypatch.setattr(Batch, "of", staticmethod(wide))
    same(updated(name, made), plain)


@pytest.mark.parametrize("name", NAMES)
def test_an_update_of_faults_only_is_counted_and_changes_nothing(name: str) -> None:
    one = learner(name)
    made = trajectories()
    arrive(one, made)
    one.update(made)
    before = weights(one)
    broken = trajectories(first=16)
    for t in broken:
        t.fault = {"stage": "step", "kind": "grader"}
    arrive(one, broken)
    metrics = one.update(broken)
    assert torch.equal(weights(one), before)
    assert metrics["policy_loss"] == 0 and metrics["policy_grad_norm"] == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_among_others_moves_nobody_elses_advantage(name: str) -> None:
    """A fault counts as absent, not as a reward of 0: its reward and its tokens do not matter."""
    made = trajectories()
    made[3].fault = {"stage": "step", "kind": "grader"}
    other = copy.deepcopy(made)
    other[3].turns[0].reward = 50.0
    same(updated(name, other), updated(name, made))


@pytest.mark.parametrize("name", [*GROUPED, "batch_mean", "frozen"])
def test_equal_rewards_change_nothing(name: str) -> None:
    one = learner(name, overlong_cache=1e-3)
    made = trajectories()
    for t in made:
        for turn in t.turns:
            turn.reward = 1 / len(t.turns)
    before = weights(one)
    metrics = one.update(made)
    assert torch.equal(weights(one), before)
    assert metrics["zero_advantage_share"] == 1.0


@pytest.mark.parametrize("name", NAMES)
def test_truncation_is_no_termination_only_where_it_is_said(name: str) -> None:
    made = trajectories()
    cut = copy.deepcopy(made)
    for t in cut:
        t.terminated, t.truncated = False, True
    one = learner(name)
    arrive(one, cut)
    metrics = one.update(cut)
    if name == "dapo":
        assert metrics["policy_loss"] == 0 and metrics["policy_grad_norm"] == 0
        return
    same((metrics, weights(one)), updated(name, made))


@pytest.mark.parametrize("name", NAMES)
def test_actions_of_one_token(name: str) -> None:
    made = trajectories()
    for t in made:
        t.turns = t.turns[:1]
        turn = t.turns[0]
        turn.action_ids, turn.behavior_logprobs, turn.policy_versions = [END], [-1.0], [0]
    metrics, after = updated(name, made)
    assert bool(torch.isfinite(after).all()) and metrics["policy_loss"] is not None


@pytest.mark.parametrize("name", NAMES)
def test_an_observation_at_the_end_changes_nothing(name: str) -> None:
    made = trajectories()
    longer = copy.deepcopy(made)
    for t in longer:
        t.tail_ids = [9, 9, 9]
    same(updated(name, longer), updated(name, made))


@pytest.mark.parametrize("name", NAMES)
def test_temperature_is_the_same_on_both_sides(name: str) -> None:
    """Scored at the temperature that it was sampled at, a fresh batch has ratio 1; at another it has not."""
    made = trajectories()
    score(made, TEMPERATURE)
    right, _ = updated(name, made, temperature=TEMPERATURE, minibatches=1)
    wrong, _ = updated(name, made, temperature=1.0, minibatches=1)
    assert right["ratio_q1"] == pytest.approx(1, abs=1e-5) and right["ratio_q99"] == pytest.approx(
        1, abs=1e-5
    )
    assert abs(wrong["ratio_q99"] - 1) > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_versions_inside_a_trajectory_may_differ(name: str) -> None:
    """What counts is the log-probability recorded with each token, not the number of its version."""
    made = trajectories()
    mixed = copy.deepcopy(made)
    for t in mixed:
        for turn in t.turns:
            turn.policy_versions = [3 + i for i in range(len(turn.action_ids))]
    same(updated(name, mixed), updated(name, made))
