"""An algorithm's id names, among the conformance operations, the loss that the algorithm itself computes."""

from __future__ import annotations

import pytest
import torch

from sao_bench import registry
from sao_bench.algorithm_subject import REPLY_TOKENS, Subject
from sao_bench.batch import Batch
from sao_bench.conformance_ops import OPS
from sao_bench.seeding import generator

LOSSES = sorted(name for name in registry.algorithms() if f"loss.{name}" in OPS)


@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_of_an_algorithm_is_its_operation(name: str) -> None:
    subject = Subject(registry.algorithm(name))
    algorithm = subject.learner().algorithm
    batch = Batch.of(subject.trajectories())
    rng = generator(7, "conformance", name)
    shape = tuple(batch.token_ids_BT.shape)
    A_BT, near_BT, far_BT = (torch.tensor(rng.normal(size=shape)) for _ in range(3))
    for field in ("behavior_logp_BT", "rewards_BT"):
        setattr(batch, field, getattr(batch, field).double())
    logp_BT = batch.behavior_logp_BT + 0.3 * near_BT
    batch.action_mask_BT = algorithm.action_mask(batch)
    batch.advantages_BT = A_BT
    batch.proximal_logp_BT = batch.behavior_logp_BT + 0.1 * far_BT
    algorithm.prepare(logp_BT, batch)
    found = algorithm.loss(logp_BT, batch, algorithm.denominator(batch)).loss
    inputs = {
        "logp": logp_BT, "behavior_logp": batch.behavior_logp_BT, "advantages": A_BT,
        "action_mask": batch.action_mask_BT,
    }  # fmt: skip
    more = {"proximal_logp": batch.proximal_logp_BT.tolist()} if algorithm.needs_proximal else {}
    if name == "spo":  # needs it to see how far an update moved; its clip is against the behaviour policy
        more.pop("proximal_logp")
    more |= {"norm_constant": REPLY_TOKENS} if name == "dr_grpo" else {}
    if name in ("reinforce", "rloo"):  # these two operations are a token mean unless told otherwise
        more |= {"aggregate": "seq_mean_token_sum_norm", "norm_constant": 1.0}
    expected = OPS[f"loss.{name}"](**{k: v.tolist() for k, v in inputs.items()}, **more)["loss"]
    assert float(found) == pytest.approx(float(expected), rel=1e-6)
