"""Advantages against values worked out by hand, a plain loop, and what must not matter."""

import json
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sao_bench import estimators as E
from sao_bench.errors import UserError
from sao_bench.metrics import explained_variance


def f64(*rows):
    return torch.tensor(rows[0] if len(rows) == 1 else rows, dtype=torch.float64)


def same(found: Tensor, expected, rtol=1e-12, atol=1e-12):
    expected = torch.as_tensor(expected, dtype=found.dtype)
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol)


def loop_gae(values, rewards, mask, gamma, lam_B, bootstrap_B):
    """The definition, one token at a time."""
    advantages = torch.zeros_like(values)
    for b in range(len(values)):
        following, following_value, pending = 0.0, float(bootstrap_B[b]), 0.0
        for t in reversed(range(values.shape[1])):
            pending += float(rewards[b, t])
            if mask[b, t]:
                delta = pending + gamma * following_value - float(values[b, t])
                following = delta + gamma * float(lam_B[b]) * following
                following_value, pending = float(values[b, t]), 0.0
                advantages[b, t] = following
    return advantages


@st.composite
def episodes(draw):
    B, T = draw(st.integers(1, 4)), draw(st.integers(1, 17))
    g = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    values = torch.randn(B, T, generator=g, dtype=torch.float64)
    rewards = torch.randn(B, T, generator=g, dtype=torch.float64)
    mask = torch.rand(B, T, generator=g) < draw(st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    lam = torch.rand(B, generator=g, dtype=torch.float64)
    lam[0] = draw(st.sampled_from([0.0, 1e-9, 0.5, 1.0]))
    gamma = draw(st.sampled_from([1.0, 0.99, 0.5]))
    return values, rewards, mask, gamma, lam, torch.randn(B, generator=g, dtype=torch.float64)


class TestSkipObservationGae:
    # Two action tokens (indices 1 and 3) with V .5 and .25; rewards 0 + 1 (observation) and 0 + 2 (after the
    # last action); the 3 before the first action enters nothing, and neither do the values 9, 7, 8.
    values = f64([[9.0, 0.5, 7.0, 0.25, 8.0]])
    rewards = f64([[3.0, 0.0, 1.0, 0.0, 2.0]])
    mask = torch.tensor([[0, 1, 0, 1, 0]])

    def test_by_hand(self):
        # delta = 2 - .25 = 1.75 and 1 + .5 * .25 - .5 = .625; A = .625 + .5 * .5 * 1.75.
        advantages, returns = E.skip_observation_gae(self.values, self.rewards, self.mask, 0.5, 0.5)
        same(advantages, [[0, 1.0625, 0, 1.75, 0]])
        same(returns, [[0, 1.5625, 0, 2.0, 0]])

    def test_bootstrap_by_hand(self):
        # delta = 2 + .5 * .8 - .25 = 2.15; A = .625 + .25 * 2.15.
        advantages, _ = E.skip_observation_gae(self.values, self.rewards, self.mask, 0.5, 0.5, f64([0.8]))
        same(advantages, [[0, 1.1625, 0, 2.15, 0]])

    def test_returns_at_lambda_one_are_rewards_to_go(self):
        _, returns = E.skip_observation_gae(self.values, self.rewards, self.mask)
        same(returns, [[0, 3.0, 0, 2.0, 0]])

    @settings(max_examples=60, deadline=None)
    @given(episodes())
    def test_equals_the_loop(self, episode):
        values, rewards, mask, gamma, lam, bootstrap = episode
        found, returns = E.skip_observation_gae(values, rewards, mask, gamma, lam, bootstrap)
        same(found, loop_gae(values, rewards, mask, gamma, lam, bootstrap), rtol=1e-9, atol=1e-11)
        same(returns, torch.where(mask, found + values, 0.0))

    @settings(max_examples=30, deadline=None)
    @given(episodes(), st.integers(1, 5))
    def test_padding_order_and_company_do_not_matter(self, episode, extra):
        values, rewards, mask, gamma, lam, bootstrap = episode
        whole, _ = E.skip_observation_gae(values, rewards, mask, gamma, lam, bootstrap)
        pad = torch.nn.functional.pad
        padded, _ = E.skip_observation_gae(
            pad(values, (0, extra), value=torch.nan), pad(rewards, (0, extra)), pad(mask, (0, extra)),
            gamma, lam, bootstrap,
        )  # fmt: skip
        same(padded[:, : values.shape[1]], whole)
        assert not padded[:, values.shape[1] :].any()
        order = torch.arange(len(values)).flip(0)
        flipped, _ = E.skip_observation_gae(
            values[order], rewards[order], mask[order], gamma, lam[order], bootstrap[order]
        )
        same(flipped[order], whole)
        alone, _ = E.skip_observation_gae(values[:1], rewards[:1], mask[:1], gamma, lam[:1], bootstrap[:1])
        same(alone, whole[:1])

    @pytest.mark.parametrize("lam", [0.0, 1e-12, 1e-3, 1.0])
    def test_long_trajectories_stay_exact(self, lam):
        T = 5000
        values, mask = torch.full((1, T), 0.25, dtype=torch.float64), torch.ones(1, T)
        rewards = torch.zeros(1, T, dtype=torch.float64)
        rewards[0, -1] = 1.0
        advantages, returns = E.skip_observation_gae(values, rewards, mask, 1.0, lam)
        # Every delta is 0 but the last, .75: A at distance d is .75 lam^d.
        assert advantages.isfinite().all()
        same(advantages[0, -3:], [0.75 * lam**2, 0.75 * lam, 0.75])
        same(advantages[0, 0], 0.75 * lam ** (T - 1))
        same(returns[0, 0], 0.25 + 0.75 * lam ** (T - 1))

    def test_no_gradient_and_no_change_of_inputs(self):
        values = self.values.clone().requires_grad_()
        advantages, returns = E.skip_observation_gae(values, self.rewards, self.mask)
        assert not advantages.requires_grad and not returns.requires_grad
        same(values.detach(), self.values)

    def test_equal_returns_stay_equal_in_single_precision(self):
        values = torch.randn(8, 300, generator=torch.Generator().manual_seed(0))
        rewards = torch.zeros(8, 300)
        rewards[:, -1] = 0.7
        _, returns = E.skip_observation_gae(values, rewards, torch.ones(8, 300))
        assert returns.dtype == torch.float32 and returns.unique().tolist() == [torch.tensor(0.7).item()]
        assert explained_variance(values.numpy(), returns.numpy()) is None

    def test_half_precision_values_give_single_precision(self):
        advantages, _ = E.skip_observation_gae(self.values.bfloat16(), self.rewards, self.mask, 0.5, 0.5)
        assert advantages.dtype == torch.float32
        same(advantages, [[0, 1.0625, 0, 1.75, 0]])

    def test_faster_than_a_loop_over_tokens(self):
        """7 to 10 times on one CPU thread; the bound leaves room for a busy machine."""
        B, T = 128, 1024
        g = torch.Generator().manual_seed(0)
        values, mask = torch.randn(B, T, generator=g), torch.rand(B, T, generator=g) < 0.7
        rewards = torch.zeros(B, T)
        rewards[:, -1] = 1

        def loop():
            advantages, following, value, pending = torch.zeros(B, T), *torch.zeros(3, B).unbind()
            for t in reversed(range(T)):
                pending = pending + rewards[:, t]
                new = pending + value - values[:, t] + 0.9 * following
                advantages[:, t] = torch.where(mask[:, t], new, 0.0)
                following = torch.where(mask[:, t], new, following)
                value = torch.where(mask[:, t], values[:, t], value)
                pending = torch.where(mask[:, t], 0.0, pending)
            return advantages

        def best(function):
            times = []
            for _ in range(4):
                start = time.perf_counter()
                result = function()
                times.append(time.perf_counter() - start)
            return min(times), result

        scan_s, scanned = best(lambda: E.skip_observation_gae(values, rewards, mask, 1.0, 0.9)[0])
        loop_s, looped = best(loop)
        torch.testing.assert_close(scanned, looped, rtol=1e-4, atol=1e-4)
        assert loop_s / scan_s > 2


class TestAblations:
    mask = torch.tensor([[0, 1, 1, 0, 1, 1]])
    values = f64([[9.0, 1.0, 3.0, 9.0, 2.0, 6.0]])
    rewards = f64([[0.0, 0.0, 0.0, 1.0, 0.0, 2.0]])

    def test_step_average_by_hand(self):
        # V = 2 and 4, rewards 1 and 2: delta = -2 and 1 + 4 - 2 = 3; A = 3 + .5 * -2 = 2.
        advantages, returns = E.step_gae(self.values, self.rewards, self.mask, 1.0, 0.5, value="mean")
        same(advantages, [[0, 2, 2, 0, -2, -2]])
        same(returns, [[0, 4, 4, 0, 2, 2]])

    def test_last_token_by_hand(self):
        # V = 3 and 6: delta = -4 and 1 + 6 - 3 = 4; A = 4 - 2 = 2.
        advantages, returns = E.step_gae(self.values, self.rewards, self.mask, 1.0, 0.5, value="last")
        same(advantages, [[0, 2, 2, 0, -4, -4]])
        same(returns, [[0, 5, 5, 0, 2, 2]])

    @settings(max_examples=30, deadline=None)
    @given(episodes(), st.sampled_from(["mean", "last"]))
    def test_turns_of_one_token_are_tokens(self, episode, value):
        values, rewards, mask, gamma, lam, bootstrap = episode
        arguments = (values, rewards, mask, gamma, lam, bootstrap)
        tokens, _ = E.skip_observation_gae(*arguments)
        same(E.step_gae(*arguments, value=value, turn_start_BT=mask)[0], tokens)

    def test_unknown_step_value(self):
        with pytest.raises(UserError, match=r"unknown step value 'mea' \(did you mean 'mean'\?\)"):
            E.step_gae(self.values, self.rewards, self.mask, value="mea")

    def test_no_skip_reads_observations(self):
        # Three positions after the prompt: delta = 1 - 1 = 0, 1 - .25 = .75, .25 - .5 = -.25;
        # A(1) = -.25 + .5 * .75, and the observation's own advantage is not given out.
        values, rewards = f64([[0.0, 0.5, 0.25, 1.0]]), f64([[0.0, 0.0, 0.0, 1.0]])
        mask, valid = torch.tensor([[0, 1, 0, 1]]), torch.ones(1, 4)
        advantages, returns = E.standard_gae(values, rewards, mask, valid, 1.0, 0.5)
        same(advantages, [[0, 0.125, 0, 0]])
        same(returns, [[0, 0.625, 0, 1]])

    def test_token_return(self):
        # By hand: 2, .5 * 2 = 1, then 1 (on the observation) + .5 = 1.5, then .75.
        same(E.token_return(self.rewards, self.mask, 0.5), [[0, 0.75, 1.5, 0, 1.0, 2.0]])


@pytest.mark.parametrize(
    ("length", "alpha", "lam"),
    [(1, 1.5, 1 / 3), (100, 1.5, 1 - 1 / 150), (10, 0.05, 0.0), (40, 0.05, 0.5), (0, 1.5, 0.0)],
)
def test_length_adaptive_lambda(length, alpha, lam):
    same(E.length_adaptive_lambda(length, alpha), lam)
    same(E.length_adaptive_lambda(torch.tensor([length, length]), alpha), [lam, lam])


def test_length_adaptive_lambda_refuses_alpha():
    with pytest.raises(UserError, match="alpha"):
        E.length_adaptive_lambda(3, 0.0)


class TestGroups:
    ids = torch.tensor([7, 7, 7, 7])

    def test_group_relative_by_hand(self):
        # Mean .25; variance (.5625 + 3 * .0625) / 3 = .25, or / 4 = .1875.
        rewards = f64([1.0, 0, 0, 0])
        same(E.group_relative(rewards, self.ids, eps=0.0), [1.5, -0.5, -0.5, -0.5])
        same(E.group_relative(rewards, self.ids, eps=0.5), [0.75, -0.25, -0.25, -0.25])
        same(E.group_relative(rewards, self.ids, scale="none"), [0.75, -0.25, -0.25, -0.25])
        same(E.group_relative(rewards, self.ids, ddof=0, eps=0.0)[0], 0.75 / 0.1875**0.5)

    def test_equal_single_precision_rewards_give_exactly_zero(self):
        rewards, ids = torch.full((7,), 0.1), torch.zeros(7, dtype=torch.int64)
        for scale in ("std", "none"):
            assert E.group_relative(rewards, ids, scale=scale).tolist() == [0.0] * 7
        assert E.leave_one_out(rewards, ids).abs().max() < 1e-12
        assert not E.has_signal(rewards, ids).any()
        assert E.whiten(rewards).abs().max() < 1e-6
        assert E.batch_mean(rewards).abs().max() < 1e-12

    def test_leave_one_out_by_hand(self):
        ids = torch.tensor([2, 5, 2, 5, 2])
        same(E.leave_one_out(f64([1.0, 0, 0, 1, 0.5]), ids), [0.75, -1, -0.75, 1, 0])

    @pytest.mark.parametrize("estimator", [E.group_relative, E.leave_one_out])
    def test_a_group_of_one(self, estimator):
        rewards, ids = f64([1.0, 0, 1]), torch.tensor([0, 0, 3])
        with pytest.raises(UserError, match="group 3 has one rollout"):
            estimator(rewards, ids)
        assert estimator(rewards, ids, allow_singletons=True)[2] == 0

    def test_unknown_scale(self):
        with pytest.raises(UserError, match="unknown scale"):
            E.group_relative(f64([1.0, 0, 0, 0]), self.ids, scale="sd")

    def test_a_missing_reward_is_not_hidden(self):
        assert E.group_relative(f64([1.0, torch.nan, 0, 0]), self.ids).isnan().all()

    def test_has_signal(self):
        ids = torch.tensor([0, 1, 0, 1])
        assert E.has_signal(f64([1.0, 1, 1, 0]), ids).tolist() == [False, True, False, True]

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=6, max_size=6), st.permutations(range(6)))
    def test_order_does_not_matter(self, rewards, order):
        ids, rewards, order = torch.tensor([4, 4, 9, 9, 9, 4]), f64(rewards), torch.tensor(order)
        for estimator in (E.group_relative, E.leave_one_out):
            same(estimator(rewards[order], ids[order]), estimator(rewards, ids)[order])


def test_batch_mean():
    same(E.batch_mean(f64([1.0, 0, 0, 1, 0.5])), [0.5, -0.5, -0.5, 0.5, 0])


def test_whiten_by_hand():
    # Masked in: 1, 3; mean 2, population std 1.
    found = E.whiten(f64([[1.0, 50.0], [3.0, torch.nan]]), torch.tensor([[1, 0], [1, 0]]), eps=1.0)
    same(found, [[-0.5, 0], [0.5, 0]])
    assert E.whiten(f64([[1.0, 2.0]]), torch.zeros(1, 2)).tolist() == [[0.0, 0.0]]
    same(E.whiten(f64([1.0, 3.0]), eps=0.0), [-1.0, 1.0])


@pytest.mark.parametrize(
    ("length", "penalty"), [(0, 0.0), (80, 0.0), (90, -0.5), (95, -0.75), (100, -1.0), (200, -1.0)]
)
def test_overlong_penalty(length, penalty):
    assert E.overlong_penalty(length, 100) == penalty
    with pytest.raises(UserError):
        E.overlong_penalty(length, 100, 0)


class TestTrackers:
    def test_running_mean_by_hand(self):
        # Window 2: means of nothing, {1}, {1, 0}, {0, 1}.
        same(E.running_mean(f64([1.0, 0, 1, 1]), 2), [1, -1, 0.5, 0.5])

    def test_ema_by_hand(self):
        # b: 0, .5, .25, .625 with decay .5.
        same(E.ema(f64([1.0, 0, 1, 1]), 0.5), [1, -0.5, 0.75, 0.375])

    def test_spo_by_hand(self):
        # D = .06 halves, but rho is held at .875: (4.5, 3.5). D = 0 would keep all, but rho is held at .96.
        events = [["x", 1.0, 0.06], ["x", 0.0, 0.0], ["y", 1.0, 0.0], ["x", 1.0, 0.0]]
        alpha, beta = 0.96 * 4.5, 0.96 * 3.5 + 1
        same(E.spo(events), [0.5, -0.5625, 0.5, 1 - alpha / (alpha + beta)])

    @pytest.mark.parametrize("make", [lambda: E.RunningMean(3), E.ExponentialMean])
    def test_resume_midway(self, make):
        rewards = [1.0, 0.0, 0.25, 1.0, 0.0, 0.5]
        whole, first, second = make(), make(), make()
        expected = [whole.update(r) for r in rewards]
        found = [first.update(r) for r in rewards[:3]]
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert found + [second.update(r) for r in rewards[3:]] == expected

    def test_beta_tracker_resumes(self):
        first, second = E.BetaTracker(), E.BetaTracker()
        first.update("x", 1.0, 0.02)
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert second.update("x", 0.0, 0.01) == first.update("x", 0.0, 0.01)
        assert second.baseline("x") == first.baseline("x") != second.baseline("new") == 0.5

    @pytest.mark.parametrize(
        "make",
        [lambda: E.RunningMean(0), lambda: E.ExponentialMean(1.0), lambda: E.BetaTracker(rho_min=0.99)],
    )
    def test_refusals(self, make):
        with pytest.raises(UserError):
            make()
