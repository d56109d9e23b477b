"""Does an algorithm keep the promises of its kind? `check_algorithm` tries each of them on a batch made by hand.

Every check trains a random model of about 3,000 parameters for an update or two, through the real `Learner`.
The loop knows no algorithm by name, and neither do these checks: what an algorithm declares (its group size, its
config) decides which of two behaviours is right.
"""

from __future__ import annotations

import copy
import inspect
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from sao_bench import conformance
from sao_bench.algorithm import Algorithm
from sao_bench.algorithm_subject import END, Subject, Updated, WideLearner, arrive, score, weights
from sao_bench.batch import Batch
from sao_bench.checks import Check, Report
from sao_bench.seeding import generator
from sao_bench.traces import PromiseError
from sao_bench.types import Trajectory

TEMPERATURE = 0.7


def promise(kept: bool, otherwise: str) -> None:
    """Raise `PromiseError` unless a promise is kept."""
    if not kept:
        raise PromiseError(otherwise)


def same(a: Updated, b: Updated, what: str) -> None:
    """Promise that two updates are one, up to the order in which numbers are added."""
    promise(a.metrics.keys() == b.metrics.keys(), f"{what}: other metrics are recorded")
    for key in ("policy_loss", "policy_grad_norm", "advantage_mean", "advantage_std", "value_loss"):
        x, y = a.metrics.get(key), b.metrics.get(key)
        if x is None or y is None:
            promise(x is y, f"{what}: {key} is {x} instead of {y}")
        else:
            promise(abs(x - y) <= 1e-6 + 1e-4 * abs(y), f"{what}: {key} is {x:.9g} instead of {y:.9g}")
    # Adam divides by the gradient's size: a last-bit difference can show as a fraction of the step (1e-3).
    gap = float((a.weights - b.weights).abs().max())
    promise(gap <= 5e-5, f"{what}: weights differ by {gap:.2g}")


# -- the promises: each returns what was seen, or raises PromiseError ----------------------------------------


def _learns(s: Subject) -> str:
    one, made = s.learner(), s.trajectories()
    arrive(one, made)
    before = weights(one)
    metrics = one.update(made)
    promise(
        metrics["policy_loss"] is not None and bool(torch.isfinite(weights(one)).all()),
        "an update is not finite",
    )
    silent = metrics["zero_advantage_share"] == 1
    moved = not torch.equal(before, weights(one))
    promise(
        moved != silent,
        f"weights {'move' if moved else 'stay'} with advantages of {'0' if silent else 'some size'}",
    )
    return "an update is finite and moves the policy" if moved else "never learns: no advantage, no movement"


def _memory(s: Subject) -> str:
    first, made, later = s.learner(), s.trajectories(), s.trajectories(first=s.count)
    arrive(first, made)
    first.update(made)
    arrive(first, later[: s.count // 2])
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = s.learner()
    second.load_state_dict(torch.load(file, weights_only=True))
    for one in (first, second):
        arrive(one, later[s.count // 2 :])
    equal = first.update(later) == second.update(later) and torch.equal(weights(first), weights(second))
    promise(equal, "a run that was resumed from a checkpoint goes on differently")
    promise(first.algorithm.state_dict() == second.algorithm.state_dict(), "state_dict() lacks something")
    return "a checkpoint holds everything: the next update is equal to the bit"


def _micro_batch(s: Subject) -> str:
    made = s.trajectories()
    whole = s.update(made, delta=1e-3)
    for size in (5, 1):
        same(s.update(made, micro_batch=size, delta=1e-3), whole, f"micro-batches of {size}")
    return "micro-batches of 64, 5 and 1 give one update"


_ONE_CUT: dict[str, Any] = {"minibatches": 1, "critic_fits": "same", "critic_updates": 1}
"""How a batch is cut into minibatches does follow the order of arrival; within one minibatch nothing may."""


def _order(s: Subject) -> str:
    made = s.trajectories()
    order = generator(7, "order").permutation(s.count).tolist()
    same(s.update(made, order, **_ONE_CUT), s.update(made, **_ONE_CUT), "another order")
    return "the order of trajectories in a batch changes nothing"


def _group_order(s: Subject) -> str:
    made = s.trajectories()
    last = s.count // s.group_size - 1
    order = [(last - i // s.group_size) * s.group_size + i % s.group_size for i in range(s.count)]
    named = copy.deepcopy(made)
    for t in named:
        t.group = 1000 - t.group
    plain = s.update(made, **_ONE_CUT)
    same(s.update(made, order, **_ONE_CUT), plain, "groups in reverse")
    same(s.update(named, **_ONE_CUT), plain, "groups with other numbers")
    return "neither the order nor the numbers of groups change anything"


def _padding(s: Subject) -> str:
    made = s.trajectories()
    same(s.update(made, kind=WideLearner), s.update(made), "9 columns of stop tokens as padding")
    return "wider padding changes nothing, even if it is the stop token (pad == eos)"


def _padding_side(s: Subject) -> str:
    made = s.trajectories()
    left, right = (_losses(s, made, flush_right) for flush_right in (False, True))
    for name, x, y in zip(("advantages", "loss", "gradient"), left, right, strict=True):
        gap = float((x - y).abs().max())
        close = gap <= 1e-6 + 1e-5 * float(y.abs().max())
        promise(close, f"padded on the left, {name} differ by {gap:.2g}")
    return "padded on the left or on the right, advantages, loss and gradient are the same"


def _losses(s: Subject, made: Sequence[Trajectory], flush_right: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return advantages, loss and gradient by log-probability, for values and ratios drawn at random."""
    algorithm = s.learner().algorithm
    for t in made:
        algorithm.on_arrival(t)
    batch = Batch.of(made)
    rng = generator(7, "padding")
    shape = tuple(batch.token_ids_BT.shape)
    near_BT, far_BT, values_BT = (torch.tensor(rng.normal(size=shape), dtype=torch.float32) for _ in range(3))
    batch.proximal_logp_BT = batch.behavior_logp_BT + 0.02 * far_BT
    batch.values_BT, batch.final_values_B = values_BT, torch.tensor(rng.normal(size=shape[0])).float()
    logp_BT = batch.behavior_logp_BT + 0.02 * near_BT
    width = torch.arange(shape[1])
    places_BT = (width - (shape[1] - batch.lengths_B)[:, None]) % shape[1]
    if flush_right:
        for field in fields(batch):
            value = getattr(batch, field.name)
            if isinstance(value, Tensor) and value.ndim == 2:
                setattr(batch, field.name, value.gather(1, places_BT))
        logp_BT = logp_BT.gather(1, places_BT)
    batch.action_mask_BT = algorithm.action_mask(batch)
    batch.value_mask_BT = algorithm.value_mask(batch)
    batch.values_BT = torch.where(batch.value_mask_BT, batch.values_BT, 0.0)
    advantages_BT = batch.advantages_BT = algorithm.advantages(batch)
    algorithm.prepare(logp_BT, batch)
    leaf_BT = logp_BT.clone().requires_grad_()
    loss = algorithm.loss(leaf_BT, batch, algorithm.denominator(batch)).loss
    (gradient_BT,) = torch.autograd.grad(loss, leaf_BT)
    if flush_right:
        back_BT = places_BT.argsort(1)
        advantages_BT, gradient_BT = advantages_BT.gather(1, back_BT), gradient_BT.gather(1, back_BT)
    return advantages_BT, loss.detach(), gradient_BT


def _all_masked(s: Subject) -> str:
    one, made, broken = s.learner(), s.trajectories(), s.trajectories(first=s.count)
    arrive(one, made)
    one.update(made)
    before, steps = weights(one), one.optimizer_steps
    for t in broken:
        t.fault = {"stage": "step", "kind": "grader"}
    arrive(one, broken)
    found = Updated(one.update(broken), weights(one))
    promise(torch.equal(found.weights, before), "an update whose tokens are all masked moves weights")
    promise(found.idle, f"its loss is {found.metrics['policy_loss']}, not 0")
    promise(one.optimizer_steps > steps, "it is not counted")
    return "an update whose tokens are all masked has loss 0, is counted, and changes nothing"


def _fault(s: Subject) -> str:
    made = s.trajectories()
    made[3].fault = {"stage": "step", "kind": "grader"}
    other = copy.deepcopy(made)
    other[3].turns[0].reward = 50.0
    same(s.update(other), s.update(made), "a faulty episode with another reward")
    return "a faulty episode counts as absent, not as a reward"


def _equal_rewards(s: Subject) -> str:
    made = s.trajectories()
    for t in made:
        for turn in t.turns:
            turn.reward = 1 / len(t.turns)
    # A budget far above the replies, so that no penalty for length makes the rewards differ.
    one = s.learner(reply_tokens=1000)
    arrive(one, made)
    before = weights(one)
    metrics = one.update(made)
    promise(metrics["policy_loss"] is not None, "a batch of equal rewards is not finite")
    if s.group_size == 1:
        return "a batch of equal rewards is finite (no groups)"
    promise(metrics["zero_advantage_share"] == 1, "a group of equal rewards has an advantage")
    promise(torch.equal(weights(one), before), "groups of equal rewards move weights")
    return "a group of equal rewards has no advantage and changes nothing"


def _truncation(s: Subject) -> str:
    ended, cut = s.trajectories(first=s.count), s.trajectories(first=s.count)
    for a, b in zip(ended, cut, strict=True):
        a.terminated, a.truncated, b.terminated, b.truncated = True, False, False, True
    found, usual = (_second(s, batch) for batch in (cut, ended))
    if found.idle and not usual.idle:
        return "truncated trajectories are masked"
    if getattr(s.cls.Config(), "truncation", "terminal") == "bootstrap":
        promise(not torch.equal(found.weights, usual.weights), "`truncation: bootstrap` has no effect")
        return "a truncated trajectory goes on with the critic's value"
    same(found, usual, "truncated instead of terminated")
    return "a truncated trajectory ends as a terminated one does"


def _second(s: Subject, batch: Sequence[Trajectory]) -> Updated:
    """Return what the second update gives: by then a critic has values."""
    one, first = s.learner(), s.trajectories()
    for made in (first, batch):
        arrive(one, made)
        metrics = one.update(made)
    return Updated(metrics, weights(one))


def _tail(s: Subject) -> str:
    made = s.trajectories()
    for t in made:
        t.terminated, t.truncated = True, False  # of a truncated one the last state may count
    longer = copy.deepcopy(made)
    for t in longer:
        t.tail_ids = [9, 9, 9]
    same(s.update(longer), s.update(made), "an observation at the end")
    return "a trajectory that ends in an observation is one that ends before it"


def _one_token(s: Subject) -> str:
    made = s.trajectories()
    for t in made:
        t.turns = t.turns[:1]
        t.turns[0].action_ids, t.turns[0].behavior_logprobs, t.turns[0].policy_versions = [END], [-1.0], [0]
    found = s.update(made)
    finite = found.metrics["policy_loss"] is not None and bool(torch.isfinite(found.weights).all())
    promise(finite, "actions of one token give an update that is not finite")
    return "actions of one token are learned from"


def _temperature(s: Subject) -> str:
    made = s.trajectories()
    score(made, TEMPERATURE)
    right = s.update(made, temperature=TEMPERATURE, minibatches=1).metrics
    wrong = s.update(made, temperature=1.0, minibatches=1).metrics
    promise("ratio_q1" in right and "ratio_q99" in right, "no ratio is recorded")
    off = max(abs(right["ratio_q1"] - 1), abs(right["ratio_q99"] - 1))
    promise(off <= 1e-5, f"a fresh batch scored at its own temperature has ratios {off:.2g} off 1")
    promise(abs(wrong["ratio_q99"] - 1) > 1e-3, "the ratio does not see the temperature")
    return f"at temperature {TEMPERATURE} on both sides a fresh batch has ratio 1"


def _versions(s: Subject) -> str:
    made = s.trajectories()
    mixed = copy.deepcopy(made)
    for t in mixed:
        for turn in t.turns:
            turn.policy_versions = [3 + i for i in range(len(turn.action_ids))]
    same(s.update(mixed), s.update(made), "mixed versions")
    return "versions may change inside a trajectory: what counts is the log-probability of each token"


def _vectors(s: Subject) -> str:
    ops = operations(s.cls)
    cases = [case for case in conformance.load(conformance.VECTORS) if case["op"] in ops]
    failed = [verdict for verdict in conformance.run(cases) if verdict.problem]
    if failed:
        raise PromiseError(f"{len(failed)} of {len(cases)} vectors fail, {failed[0].id}: {failed[0].problem}")
    named = sorted({case["op"] for case in cases})
    return f"{len(cases)} vectors pass ({', '.join(named)})" if named else "no vectors for its parts"


def operations(cls: type[Algorithm]) -> set[str]:
    """Return the ops of conformance vectors that concern an algorithm: its own, its estimators', its losses'."""
    found = {f"{kind}.{cls.name}" for kind in ("adv", "loss")}
    modules = {sys.modules[base.__module__] for base in cls.__mro__ if issubclass(base, Algorithm)}
    for module in modules:
        for name, item in inspect.getmembers(module, inspect.isfunction):
            home = item.__module__.rpartition(".")[2]
            if home in ("estimators", "losses"):
                found.add(f"{'adv' if home == 'estimators' else 'loss'}.{name}")
    return found


CHECKS: dict[str, Callable[[Subject], str]] = {
    "learns": _learns,
    "memory": _memory,
    "micro-batch": _micro_batch,
    "order": _order,
    "group order": _group_order,
    "padding": _padding,
    "padding side": _padding_side,
    "all masked": _all_masked,
    "fault": _fault,
    "equal rewards": _equal_rewards,
    "truncation": _truncation,
    "tail": _tail,
    "one token": _one_token,
    "temperature": _temperature,
    "versions": _versions,
    "vectors": _vectors,
}


def check_algorithm(cls: type[Algorithm]) -> Report:
    """Try every promise of an algorithm, at its default config; one that raises fails the check it raised in."""
    return Report(cls.name or cls.__name__, tuple(each_check(cls)))


def each_check(cls: type[Algorithm]) -> Iterator[Check]:
    """Try one promise after the other; yields each as it is done."""
    for name in CHECKS:
        yield try_check(name, cls)


def try_check(name: str, cls: type[Algorithm]) -> Check:
    """Try one promise."""
    try:
        return Check(name, True, CHECKS[name](Subject(cls)))
    except PromiseError as broken:
        return Check(name, False, str(broken))
    except (Exception, SystemExit) as error:
        # The subject is somebody's code: whatever it raises is the finding.
        return Check(name, False, f"raised {type(error).__name__}: {error}")
