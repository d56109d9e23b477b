"""The per-concept expert: nothing learned under one concept reaches another, and nothing is forgotten."""

from __future__ import annotations

import copy
import io
from typing import Any

import torch

from sao_bench import registry
from sao_bench.algorithm_subject import Subject, arrive, weights
from sao_bench.learner import Learner
from sao_bench.types import Concept, Trajectory

A, B = {"reward.arm": "L"}, {"reward.arm": "R"}
EXPERT = Subject(registry.algorithm("concept_expert"))


def batch(phase: int, values: Any, first: int = 0) -> list[Trajectory]:
    made = EXPERT.trajectories(first)
    for t in made:
        t.concept = Concept.of(values, phase)
    return made


def learn(one: Learner, made: list[Trajectory]) -> dict[str, Any]:
    arrive(one, made)
    return one.update(made)


def after_phase_0() -> Learner:
    """Told of concept A, and trained on it twice; the critic was fitted before, as pre-training does."""
    one = EXPERT.learner()
    one.pretrain_critic(batch(0, A), 16)
    one.algorithm.on_concept_change(Concept.of(A, 0))
    learn(one, batch(0, A))
    learn(one, batch(0, A, 16))
    return one


def test_a_new_concept_begins_where_the_run_did() -> None:
    one = after_phase_0()
    one.algorithm.on_concept_change(Concept.of(B, 1))
    found = learn(one, batch(1, B, 32))
    fresh = EXPERT.learner()
    fresh.pretrain_critic(batch(0, A), 16)
    fresh.algorithm.on_concept_change(Concept.of(B, 1))
    expected = learn(fresh, batch(1, B, 32))
    assert torch.equal(weights(one), weights(fresh))
    assert {**found, "gradient_cosine": None} == {**expected, "gradient_cosine": None}


def test_a_concept_that_comes_back_goes_on_with_its_own_weights_and_moments() -> None:
    one = after_phase_0()
    straight = after_phase_0()
    trained = weights(one)
    one.algorithm.on_concept_change(Concept.of(B, 1))
    learn(one, batch(1, B, 32))
    assert not torch.equal(weights(one), trained)
    one.algorithm.on_concept_change(Concept.of(A, 2))
    learn(one, batch(1, B, 48))  # All of the phase before: masked.
    assert torch.equal(weights(one), trained)
    learn(one, batch(2, A, 64))
    learn(straight, batch(0, A, 64))
    assert torch.equal(weights(one), weights(straight))


def test_only_tokens_of_the_phase_in_force_count() -> None:
    one = after_phase_0()
    one.algorithm.on_concept_change(Concept.of(B, 1))
    mixed = [*batch(0, A, 32)[:8], *batch(1, B, 32)[8:]]
    other = copy.deepcopy(mixed)
    for t in other[:8]:
        t.turns[0].reward += 10.0
    two = after_phase_0()
    two.algorithm.on_concept_change(Concept.of(B, 1))
    learn(one, mixed)
    learn(two, other)
    assert torch.equal(weights(one), weights(two))


def test_a_checkpoint_holds_all_experts() -> None:
    one = after_phase_0()
    one.algorithm.on_concept_change(Concept.of(B, 1))
    learn(one, batch(1, B, 32))
    file = io.BytesIO()
    torch.save(one.state_dict(), file)
    file.seek(0)
    two = EXPERT.learner()
    two.load_state_dict(torch.load(file, weights_only=True))
    for learner in (one, two):
        learner.algorithm.on_concept_change(Concept.of(A, 2))
        learn(learner, batch(2, A, 48))
    assert torch.equal(weights(one), weights(two))
