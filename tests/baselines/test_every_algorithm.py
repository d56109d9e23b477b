"""What holds for every registered algorithm; and a broken one fails the check that it should."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sao_bench import registry
from sao_bench.algorithm import Algorithm, over, policy_inputs, spread
from sao_bench.algorithm_checks import CHECKS, check_algorithm, operations, try_check
from sao_bench.batch import Batch
from sao_bench.losses import Denominator, LossOutput, reinforce
from sao_bench.sao import SAO, SAOConfig

NAMES = sorted(registry.algorithms())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("promise", CHECKS)
def test_every_algorithm_keeps_every_promise(promise: str, name: str) -> None:
    check = try_check(promise, registry.algorithm(name))
    assert check.passed, check.detail


def details(promise: str) -> dict[str, str]:
    return {name: try_check(promise, registry.algorithm(name)).detail for name in NAMES}


def test_only_the_frozen_policy_stays_and_only_dapo_masks_truncated_trajectories() -> None:
    assert [n for n, d in details("learns").items() if d.startswith("never learns")] == ["frozen"]
    assert [n for n, d in details("truncation").items() if d.endswith("are masked")] == ["dapo"]


def test_vectors_are_those_of_an_algorithms_own_parts() -> None:
    assert {"adv.skip_observation_gae", "adv.length_adaptive_lambda", "loss.dis"} <= operations(SAO)
    assert "loss.cispo" not in operations(SAO)
    assert {"adv.group_relative", "loss.cispo"} <= operations(registry.algorithm("cispo"))
    assert "adv.leave_one_out" in details("vectors")["rloo"]


class Plain(Algorithm):
    """REINFORCE: keeps every promise; each class below breaks one."""

    def advantages(self, batch: Batch) -> Tensor:
        return spread(batch.rewards_B, batch)

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        return reinforce(*policy_inputs(logp_BT, batch), **over(denominator))


class FirstIsBest(Plain):
    """Looks at the place in the batch."""

    def advantages(self, batch: Batch) -> Tensor:
        return spread(batch.rewards_B - batch.rewards_B[0], batch)


class OwnMean(Plain):
    """Divides by what it is given instead of by the whole batch."""

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        return super().loss(logp_BT, batch, Denominator.of(batch.action_mask_BT, "token_mean"))


class Forgetful(Plain):
    """Has a memory that no checkpoint holds."""

    seen = 0.0

    def on_arrival(self, trajectory: Any) -> None:
        self.seen += 0.1

    def advantages(self, batch: Batch) -> Tensor:
        return spread(batch.rewards_B - self.seen, batch)


class PadIsEnd(Plain):
    """Finds padding by the token's id."""

    def loss(self, logp_BT: Tensor, batch: Batch, denominator: Denominator) -> LossOutput:
        penalty = 0.1 * (batch.token_ids_BT == 0).sum()
        output = super().loss(logp_BT, batch, denominator)
        return LossOutput(output.loss + penalty, output.stats)


class LeftOnly(Plain):
    """Takes column 0 for the first token."""

    def advantages(self, batch: Batch) -> Tensor:
        return super().advantages(batch) * (1 + batch.behavior_logp_BT[:, 1:2].abs())


class FaultIsZero(Plain):
    """Counts a fault as a reward in the mean."""

    def advantages(self, batch: Batch) -> Tensor:
        return spread(batch.rewards_B - batch.rewards_B.mean(), batch)


class CutIsFree(Plain):
    """Pays for running out of time."""

    def advantages(self, batch: Batch) -> Tensor:
        return spread(batch.rewards_B + batch.truncated_B.float(), batch)


class VersionWeighs(Plain):
    """Looks at version numbers."""

    def advantages(self, batch: Batch) -> Tensor:
        newest = [t.turns[0].policy_versions[-1] for t in batch.trajectories]
        return spread(batch.rewards_B * (1.0 + torch.tensor(newest)), batch)


class Greedy(Plain):
    """Looks at what follows the last action."""

    def advantages(self, batch: Batch) -> Tensor:
        return spread(
            batch.rewards_B + torch.tensor([float(len(t.tail_ids)) for t in batch.trajectories]), batch
        )


class Whitens(Plain):
    """Divides by a spread that is 0 for one token."""

    def advantages(self, batch: Batch) -> Tensor:
        lengths_B = batch.action_tokens_B.float()
        return spread(batch.rewards_B / (lengths_B.max() - lengths_B.min()), batch)


class GroupsWithoutBaseline(Plain):
    """A group of equal rewards still has an advantage."""

    Config = registry.algorithm("grpo").Config


class NumberedGroups(Plain):
    """Looks at the number of a group."""

    def advantages(self, batch: Batch) -> Tensor:
        return spread(batch.rewards_B * (1 + batch.group_ids_B.float()), batch)


class Raises(Plain):
    """Fails on its own."""

    def advantages(self, batch: Batch) -> Tensor:
        raise ZeroDivisionError("by hand")


class BootstrapConfig(SAOConfig):
    """A truncated trajectory goes on."""

    truncation: Any = "bootstrap"


class Bootstraps(SAO):
    """SAO with truncation as its other option."""

    name = ""
    Config = BootstrapConfig


@pytest.mark.parametrize(
    ("cls", "promises"),
    [
        (Plain, set()),
        (FirstIsBest, {"order", "group order"}),
        (OwnMean, {"micro-batch"}),
        (Forgetful, {"memory"}),
        (PadIsEnd, {"micro-batch", "padding", "all masked"}),
        (LeftOnly, {"padding side"}),
        (FaultIsZero, {"fault"}),
        (CutIsFree, {"truncation"}),
        (VersionWeighs, {"versions"}),
        (Greedy, {"tail"}),
        (Whitens, {"one token"}),
        (GroupsWithoutBaseline, {"equal rewards"}),
        (NumberedGroups, {"group order"}),
        (Raises, set(CHECKS) - {"vectors"}),
        (Bootstraps, set()),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_a_broken_algorithm_fails_the_checks_that_it_should(cls: type[Algorithm], promises: set[str]) -> None:
    report = check_algorithm(cls)
    assert {check.name for check in report.failures} == promises, report.lines()
