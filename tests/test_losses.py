"""Losses and gradients worked out by hand, and what must not change them."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sao_bench import losses as L
from sao_bench.errors import UserError
from sao_bench.losses import Denominator

INF, NAN = math.inf, math.nan


def f64(rows):
    return torch.tensor(rows, dtype=torch.float64)


def evaluate(loss, pi, mu, advantages, mask=None, prox=None, **options):
    """Return (loss, gradient with respect to log pi, stats) of one trajectory from probabilities."""
    logp = f64([pi]).log().requires_grad_()
    mask = torch.ones(1, len(pi)) if mask is None else torch.tensor([mask])
    if prox is not None:
        options["proximal_logp_BT"] = f64([prox]).log()
    out = loss(logp, f64([mu]).log(), f64([advantages]), mask, **options)
    (gradient,) = torch.autograd.grad(out.loss, logp)
    return out.loss.item(), gradient[0].tolist(), out.stats


def approx(x):
    return pytest.approx(x, rel=1e-12, abs=1e-12)


def test_reinforce_by_hand():
    loss, gradient, _ = evaluate(L.reinforce, [0.5, 0.25], [0.1, 0.1], [1.0, -2.0])
    assert loss == approx((math.log(2) - 2 * math.log(4)) / 2)
    assert gradient == approx([-0.5, 1.0])


class TestDis:
    def test_by_hand(self):
        # r = 2 (inside), .5 (outside, masked, still in the denominator), 1 (off the mask).
        loss, gradient, stats = evaluate(L.dis, [0.5, 0.1, 0.5], [0.25, 0.2, 0.5], [3.0, 1.0, 9.0], [1, 1, 0])
        assert loss == approx(2 * 3 * math.log(2) / 2)
        assert gradient == approx([-3.0, 0.0, 0.0])
        assert (stats["tokens"], stats["masked_sum"], stats["clipped_sum"]) == (2, 1, 0)

    @pytest.mark.parametrize("advantage", [1.0, -1.0])
    def test_band_is_open_and_blind_to_the_sign(self, advantage):
        # r = .5, just above it, 2, just below it; the band is (.5, 2).
        pi, mu = [0.5, 0.5001, 1.0, 0.9999], [1.0, 1.0, 0.5, 0.5]
        _, gradient, _ = evaluate(L.dis, pi, mu, [advantage] * 4, eps_low=0.5, eps_high=1.0)
        assert gradient == approx([0.0, -advantage * 0.5001 / 4, 0.0, -advantage * 1.9998 / 4])

    def test_gradient_is_r_a_grad_log_pi_and_nothing_else(self):
        """Attached, f(r) would add r A log pi."""
        _, gradient, _ = evaluate(L.dis, [0.02], [0.01], [1.0])
        assert gradient == approx([-2.0])


@pytest.mark.parametrize(
    ("pi", "advantage", "loss", "gradient", "clipped"),
    [
        (0.6, 1.0, -1.2, -1.2, 0),  # r 1.2, under the upper clip
        (0.8, 1.0, -1.3, 0.0, 1),  # r 1.6 clipped
        (0.8, -1.0, 1.6, 1.6, 0),  # r 1.6, the pessimistic side is not clipped
        (0.2, -1.0, 0.8, 0.0, 1),  # r .4 clipped at .8
        (0.2, 1.0, -0.4, -0.4, 0),
    ],
)
def test_ppo_clip_by_hand(pi, advantage, loss, gradient, clipped):
    found = evaluate(L.ppo_clip, [pi], [0.5], [advantage], eps_low=0.2, eps_high=0.3)
    assert (found[0], found[1], found[2]["clipped_sum"]) == (approx(loss), approx([gradient]), clipped)


def test_dual_clip_bounds_the_loss_of_negative_advantages():
    # r = 4: -r A = 4 without, c |A| = 3 and flat with it; a positive advantage is untouched.
    assert evaluate(L.ppo_clip, [0.4], [0.1], [-1.0])[:2] == (approx(4.0), approx([4.0]))
    loss, gradient, stats = evaluate(L.ppo_clip, [0.4], [0.1], [-1.0], dual_c=3.0)
    assert (loss, gradient, stats["clipped_sum"]) == (approx(3.0), [0.0], 1)
    assert evaluate(L.ppo_clip, [0.2], [0.1], [-1.0], dual_c=3.0)[:2] == (approx(2.0), approx([2.0]))
    assert evaluate(L.ppo_clip, [0.4], [0.1], [1.0], dual_c=3.0)[:2] == (approx(-1.2), [0.0])


def test_gspo_shares_the_geometric_mean():
    # r = 2 and 8, mean 4; A < 0 is not clipped above: loss 4, d(4)/d log pi_t = 4/2 for both tokens.
    loss, gradient, _ = evaluate(L.gspo, [0.2, 0.8, 0.3], [0.1, 0.1, 0.9], [-1.0, -1.0, 5.0], [1, 1, 0])
    assert (loss, gradient) == (approx(4.0), approx([2.0, 2.0, 0.0]))
    loss, gradient, stats = evaluate(L.gspo, [0.2, 0.8], [0.1, 0.1], [1.0, 1.0])
    assert (loss, gradient, stats["clipped_sum"]) == (approx(-1.0004), [0.0, 0.0], 2)


def test_cispo_keeps_the_gradient_of_capped_tokens():
    # r = 8 capped at 6, r = .01 kept.
    loss, gradient, stats = evaluate(L.cispo, [0.8, 0.001], [0.1, 0.1], [1.0, -1.0])
    assert gradient == approx([-3.0, 0.005])
    assert loss == approx((-6 * math.log(0.8) + 0.01 * math.log(0.001)) / 2)
    assert stats["clipped_sum"] == 1


@pytest.mark.parametrize(
    ("loss", "gradient"),
    [
        (L.tis, [-2.0, -2.0, -1.1, -0.25]),  # weights 4 -> 2, 2, 1, .25
        (L.icepop, [0.0, -2.0, -1.1, 0.0]),  # 4 and .25 outside [.5, 2]; 2 is inside
        (L.decoupled_ppo, [-4.0, -2.0, -1.1, -0.25]),  # all under the cap of 5
    ],
)
def test_corrections_by_hand(loss, gradient):
    prox, mu = [0.4, 0.4, 0.2, 0.1], [0.1, 0.2, 0.2, 0.4]
    pi = [0.4, 0.4, 0.22, 0.1]  # pi/pi_prox = 1 but for the third, 1.1
    found, slope, stats = evaluate(loss, pi, mu, [1.0] * 4, prox=prox)
    assert slope == approx([g / 4 for g in gradient])
    assert found == approx(sum(gradient) / 4)
    assert stats["masked_sum"] == gradient.count(0.0)


def test_decoupled_ppo_drops_above_the_cap_and_clips_pi_over_prox():
    # pi_prox/mu = 6 dropped; pi/pi_prox = 2 clipped to 1.4 times weight 2.
    found = evaluate(L.decoupled_ppo, [0.6, 0.4], [0.1, 0.1], [1.0, 1.0], prox=[0.6, 0.2])
    assert found[:2] == (approx(-1.4), [0.0, 0.0])


@pytest.mark.parametrize("loss", [L.tis, L.icepop, L.decoupled_ppo])
def test_without_a_proximal_policy_the_first_pass_is_on_policy(loss):
    pi, mu = [0.3, 0.2], [0.2, 0.2]
    assert evaluate(loss, pi, mu, [1.0, -1.0])[:2] == evaluate(loss, pi, mu, [1.0, -1.0], prox=pi)[:2]
    assert evaluate(loss, pi, mu, [1.0, -1.0])[1] == approx([-0.75, 0.5])


class TestM2po:
    def test_by_hand(self):
        # (log r)^2 = 0, 1, .01: means .337, then .005 < .04 without the largest.
        pi, mu = [0.5, 0.5, 0.5], [0.5, 0.5 * math.e, 0.5 * math.exp(-0.1)]
        loss, gradient, stats = evaluate(L.m2po, pi, mu, [1.0, 1.0, 2.0])
        assert gradient == approx([-1 / 3, 0.0, -2 * math.exp(0.1) / 3])
        assert loss == approx(sum(gradient))
        assert stats["masked_sum"] == 1

    def test_never_all_and_strictly_below(self):
        log_r = f64([[1.0, 2.0, 3.0]])
        assert L.m2po_keep(log_r, log_r * 0, torch.ones(1, 3)).tolist() == [[True, False, False]]
        log_r = f64([[0.0, 0.5]])  # mean of squares .125
        assert L.m2po_keep(log_r, log_r * 0, torch.ones(1, 2), 0.125).tolist() == [[True, False]]
        assert L.m2po_keep(log_r, log_r * 0, torch.ones(1, 2), 0.126).tolist() == [[True, True]]

    def test_off_mask_tokens_do_not_count(self):
        log_r = f64([[NAN, 0.1, 9.0]])
        assert L.m2po_keep(log_r, log_r * 0, torch.tensor([[0, 1, 1]])).tolist() == [[False, True, False]]
        assert not L.m2po_keep(log_r, log_r, torch.zeros(1, 3)).any()


class TestBatchMeanIs:
    def test_filter_by_hand(self):
        # Row 0: mu = .5, pi = .25: KL = .5 ln 2 + .5 ln(.5/.75) = .1438; row 1: KL 0; row 2 empty.
        logp = f64([[0.25, 0.25], [0.5, 0.5], [0.5, 0.5]]).log().requires_grad_()
        mu = f64([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]).log()
        mask = torch.tensor([[1, 0], [1, 1], [0, 0]])
        kl = 0.5 * math.log(2) + 0.5 * math.log(0.5 / 0.75)
        out = L.batch_mean_is(logp, mu, torch.ones_like(mu), mask, delta=kl - 1e-9)
        (gradient,) = torch.autograd.grad(out.loss, logp)
        # Mean per trajectory, then over the 2 trajectories with tokens, the filtered one included.
        assert gradient.tolist() == [approx([0.0, 0.0]), approx([-0.25, -0.25]), approx([0.0, 0.0])]
        assert out.loss.item() == approx(math.log(2) / 2)
        out = L.batch_mean_is(logp, mu, torch.ones_like(mu), mask, delta=kl + 1e-9)
        (gradient,) = torch.autograd.grad(out.loss, logp)
        assert gradient[0].tolist() == approx([-0.5 / 2, 0.0])

    def test_certain_tokens_do_not_make_the_filter_infinite(self):
        logp = torch.tensor([[0.0, -1e-9]], requires_grad=True)
        out = L.batch_mean_is(logp, torch.tensor([[-1e-9, 0.0]]), torch.ones(1, 2), torch.ones(1, 2))
        assert out.stats["masked_sum"] == 0


class TestValueLoss:
    values, returns, mask = f64([[1.0, 2.0, NAN]]), f64([[0.0, 4.0, 0.0]]), torch.tensor([[1, 1, 0]])

    def test_by_hand(self):
        leaf = self.values.clone().requires_grad_()
        out = L.value_loss(leaf, self.returns, self.mask)
        (gradient,) = torch.autograd.grad(out.loss, leaf)
        assert (out.loss.item(), gradient.tolist()) == (1.25, [[0.5, -1.0, 0.0]])
        assert L.value_loss(leaf, self.returns, self.mask, half=False).loss.item() == 2.5

    def test_clip_takes_the_larger_error(self):
        # 1 is held at .5: error (.5 - 2)^2 = 2.25 > 1, flat; 2 has not moved: error 1; 3 is held at .5, but its
        # own error is the larger: 9.
        leaf, old = f64([[1.0, 2.0, 3.0]]).requires_grad_(), f64([[0.0, 2.0, 0.0]])
        returns, mask = f64([[2.0, 1.0, 0.0]]), torch.ones(1, 3)
        out = L.value_loss(leaf, returns, mask, old_values_BT=old, clip=0.5, half=False)
        (gradient,) = torch.autograd.grad(out.loss, leaf)
        assert (out.loss.item(), gradient.tolist()) == (12.25 / 3, [[0.0, approx(2 / 3), 2.0]])
        assert out.stats["value_clipped_sum"] == 1

    def test_clip_needs_the_old_values(self):
        with pytest.raises(UserError, match="old_values_BT"):
            L.value_loss(self.values, self.returns, self.mask, clip=0.2)


class TestAggregation:
    per_token = f64([[1.0, 2.0, 4.0], [8.0, NAN, INF], [NAN, NAN, NAN]])
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0]])

    @pytest.mark.parametrize(
        ("how", "constant", "count", "value"),
        [
            ("token_mean", None, 4, 15 / 4),
            ("seq_mean_token_mean", None, 2, (7 / 3 + 8) / 2),
            ("seq_mean_token_sum_norm", 10.0, 30, 15 / 30),
        ],
    )
    def test_by_hand(self, how, constant, count, value):
        denominator = Denominator.of(self.mask, how, constant)
        assert denominator.value == count
        assert L.aggregate_tokens(self.per_token, self.mask, denominator).item() == approx(value)

    def test_refusals(self):
        with pytest.raises(UserError, match=r"did you mean 'token_mean'"):
            Denominator.of(self.mask, "token_means")
        with pytest.raises(UserError, match="positive norm_constant"):
            Denominator.of(self.mask, "seq_mean_token_sum_norm")
        with pytest.raises(UserError, match="counted for 'token_mean'"):
            denominator = Denominator.of(torch.ones(1, 1), "token_mean")
            evaluate(L.dis, [0.5], [0.5], [1.0], aggregate="seq_mean_token_mean", denominator=denominator)


POLICY_LOSSES = {
    "reinforce": L.reinforce,
    "dis": L.dis,
    "cispo": L.cispo,
    "ppo_clip": L.ppo_clip,
    "dual_clip": lambda *a, **k: L.ppo_clip(*a, dual_c=1.5, **k),
    "gspo": L.gspo,
    "tis": L.tis,
    "icepop": L.icepop,
    "decoupled_ppo": L.decoupled_ppo,
    "m2po": L.m2po,
    "batch_mean_is": lambda *a, **k: L.batch_mean_is(*a, delta=0.05, **k),
}
each_loss = pytest.mark.parametrize("loss", POLICY_LOSSES.values(), ids=POLICY_LOSSES)


def random_batch(seed, B=5, T=6):
    g = torch.Generator().manual_seed(seed)
    logp = -torch.rand(B, T, generator=g, dtype=torch.float64) * 2
    mu = (logp + 0.4 * torch.randn(B, T, generator=g, dtype=torch.float64)).clamp(max=-1e-3)
    advantages = torch.randn(B, T, generator=g, dtype=torch.float64)
    return logp, mu, advantages, torch.rand(B, T, generator=g) < 0.6


def loss_and_gradient(loss, batch, **options):
    logp = batch[0].clone().requires_grad_()
    out = loss(logp, *batch[1:], **options)
    return out.loss.detach(), torch.autograd.grad(out.loss, logp)[0], out.stats


@each_loss
@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from(L.AGGREGATIONS))
def test_micro_batches_do_not_matter(loss, seed, size, how):
    batch = random_batch(seed)
    denominator = Denominator.of(batch[3], how, 7.0)
    extra = {}
    if loss is L.m2po:
        extra["keep_BT"] = L.m2po_keep(batch[0], batch[1], batch[3])
    whole, gradient, stats = loss_and_gradient(loss, batch, aggregate=how, norm_constant=7.0)
    cuts = zip(*(x.split(size) for x in (*batch, *extra.values())), strict=True)
    parts = [
        loss_and_gradient(
            loss, cut[:4], aggregate=how, denominator=denominator, **dict(zip(extra, cut[4:], strict=True))
        )
        for cut in cuts
    ]
    torch.testing.assert_close(sum(p[0] for p in parts), whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.cat([p[1] for p in parts]), gradient, rtol=1e-12, atol=1e-12)
    merged = L.merge_stats([p[2] for p in parts])
    assert merged.keys() == stats.keys()
    for key, value in stats.items():
        torch.testing.assert_close(merged[key], value, rtol=1e-12, atol=1e-12)


@each_loss
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(L.AGGREGATIONS), st.sampled_from([NAN, INF, -INF, 0.0]))
def test_padding_order_and_what_lies_off_the_mask_do_not_matter(loss, seed, how, junk):
    batch = random_batch(seed)
    mask = batch[3]
    order = torch.arange(len(mask)).flip(0)
    pad = torch.nn.functional.pad
    options = {"aggregate": how, "norm_constant": 7.0}
    extra = {"keep_BT": L.m2po_keep(batch[0], batch[1], mask)} if loss is L.m2po else {}
    whole, gradient, _ = loss_and_gradient(loss, batch, **options, **extra)
    dirty = [torch.where(mask, x, junk) for x in batch[:3]]
    moved = [pad(x, (0, 2), value=junk)[order] for x in dirty] + [pad(mask, (0, 2))[order]]
    extra = {k: pad(v, (0, 2))[order] for k, v in extra.items()}
    found, slope, _ = loss_and_gradient(loss, moved, **options, **extra)
    torch.testing.assert_close(found, whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(slope[order][:, :-2], gradient, rtol=1e-12, atol=1e-12)
    assert not slope[:, -2:].any()


@each_loss
@pytest.mark.parametrize("how", L.AGGREGATIONS)
def test_nothing_masked_in_is_a_zero_loss_with_a_zero_gradient(loss, how):
    batch = [*random_batch(0)[:3], torch.zeros(5, 6)]
    value, gradient, stats = loss_and_gradient(loss, batch, aggregate=how, norm_constant=7.0)
    assert value == 0 and gradient.count_nonzero() == 0
    assert stats["tokens"] == 0 and L.summarise(stats) == {}


@each_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ratios_that_overflow_or_vanish_stay_finite(loss, dtype):
    logp = torch.tensor([[-0.1, -900.0, -0.2]], dtype=dtype, requires_grad=True)
    mu = torch.tensor([[-900.0, -0.1, -0.3]], dtype=dtype)
    for advantages in ([[1.0, 1.0, 1.0]], [[-1.0, -1.0, -1.0]]):
        out = loss(logp, mu, torch.tensor(advantages, dtype=dtype), torch.ones(1, 3))
        (gradient,) = torch.autograd.grad(out.loss, logp)
        assert out.loss.isfinite() and gradient.isfinite().all()


def test_dis_masks_a_token_of_probability_zero():
    loss, gradient, _ = evaluate(L.dis, [0.0, 0.5], [0.5, 0.5], [1.0, 1.0])
    assert (loss, gradient) == (approx(math.log(2) / 2), [0.0, -0.5])


@pytest.mark.parametrize("name", sorted(POLICY_LOSSES.keys() - {"dis", "cispo", "batch_mean_is"}))
def test_autograd_agrees_with_finite_differences_where_nothing_is_detached(name):
    """The surrogates whose gradient is that of their value; the three left out are stop-gradient forms."""
    loss = POLICY_LOSSES[name]
    logp, *rest = random_batch(3)
    prox = {"proximal_logp_BT": logp.clone()} if loss in (L.tis, L.icepop, L.decoupled_ppo) else {}
    _, gradient, _ = loss_and_gradient(loss, (logp, *rest), **prox)
    step = 1e-6
    for b, t in ((0, 0), (1, 2), (4, 5), (2, 3)):
        shift = torch.zeros_like(logp)
        shift[b, t] = step
        up, down = (loss(logp + s, *rest, **prox).loss for s in (shift, -shift))
        assert gradient[b, t].item() == pytest.approx(((up - down) / (2 * step)).item(), abs=1e-8)


def test_summary_by_hand():
    _, _, stats = evaluate(L.dis, [0.2, 0.1, 0.1, 0.9], [0.1, 0.1, 0.2, 0.1], [1.0] * 4, [1, 1, 1, 0])
    rates = L.summarise(stats, quantiles=(0.0, 0.5, 1.0))
    assert rates["masked"] == approx(1 / 3)
    assert rates["ratio"] == approx(3.5 / 3)
    assert rates["kl_k1"] == approx(0.0)
    assert rates["kl_k3"] == approx((3.5 - 3) / 3)
    assert rates["log_ratio_square"] == approx(2 * math.log(2) ** 2 / 3)
    assert [rates[f"ratio_q{q}"] for q in (0, 50, 100)] == approx([0.5, 1.0, 2.0])
