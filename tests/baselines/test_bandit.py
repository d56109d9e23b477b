"""Every algorithm solves a bandit from a random start, through the real loop; the controls do not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sao_bench import registry
from sao_bench.models import load_policy
from sao_bench.records import Run
from tests.baselines.bandit import save_policy
from tests.helpers import small_run

SCHEDULE = """\
schema: sao-bench-drift/1
id: bandit
env: tests.baselines.bandit:Bandit
clock: episode
horizon: {horizon}
seed: 0
channels:
  reward.arm: {{start: L, events: [{events}]}}
"""
SETTINGS = (
    "batch_size=32",
    "max_staleness=0",
    "cost.slots=32",
    "cost.workers=64",
    "algorithm.policy_lr=0.02",
)
CRITIC = (
    "algorithm.critic_lr=0.02",
    "algorithm.critic_warmup=2",
    "algorithm.value_pretrain_episodes=64",
    "algorithm.value_pretrain_epochs=1",
)
FAST = ("sao", "grpo", "dapo", "spo")
CONTROLS = ("frozen", "random_reward")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_policy(tmp_path_factory.mktemp("bandit"))


def play(model: Path, folder: Path, name: str, *settings: str, horizon: int = 960, events: str = "") -> Run:
    folder.mkdir(exist_ok=True)
    file = folder / "bandit.yaml"
    file.write_text(SCHEDULE.format(horizon=horizon, events=events))
    own = CRITIC if registry.algorithm(name).needs_critic else ()
    if name == "sao_no_pretraining":
        own = CRITIC[:2]
    return small_run(file, folder, *SETTINGS, *own, *settings, algorithm=name, model=str(model))


def scores(run: Run) -> list[float]:
    return [episode["score"] for episode in run.lines("episodes")]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@pytest.mark.parametrize(
    "name",
    [
        name if name in FAST else pytest.param(name, marks=pytest.mark.slow)
        for name in sorted(registry.algorithms())
        if name not in CONTROLS
    ],
)
def test_it_learns_which_arm_pays(model: Path, tmp_path: Path, name: str) -> None:
    found = scores(play(model, tmp_path, name))
    assert mean(found[:32]) < 0.4
    assert mean(found[-128:]) > 0.8


def test_the_frozen_policy_keeps_its_weights(model: Path, tmp_path: Path) -> None:
    run = play(model, tmp_path, "frozen", horizon=192)
    before, after = load_policy(model)[0], load_policy(run.folder / "checkpoints" / "final")[0]
    assert all(torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True))
    assert len(list(run.lines("updates"))) == 6


def test_a_coin_teaches_nothing_about_the_arms(model: Path, tmp_path: Path) -> None:
    run = play(model, tmp_path, "random_reward", horizon=480)
    before, after = load_policy(model)[0], load_policy(run.folder / "checkpoints" / "final")[0]
    assert any(not torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True))
    assert mean(scores(run)[-128:]) < 0.5


def test_dropped_groups_are_recorded_and_refilled(model: Path, tmp_path: Path) -> None:
    run = play(model, tmp_path, "dapo", horizon=480)
    updates = list(run.lines("updates"))
    dropped = [d["index"] for u in updates for d in u["dropped"]]
    assert dropped and {d["reason"] for u in updates for d in u["dropped"]} == {"equal rewards"}
    assert {len(u["consumed"]) for u in updates[:-1]} == {32}
    rewards = {e["index"]: e["score"] for e in run.lines("episodes")}

    def kinds(indices: list[int]) -> set[int]:
        groups = {index // 8 for index in indices}
        return {len({rewards[8 * group + member] for member in range(8)}) for group in groups}

    full = [u for u in updates if not u["metrics"]["unfilled_groups"]]
    assert len(full) > 3 and all(kinds(u["consumed"]) == {2} for u in full)
    assert kinds(dropped) == {1}
    assert sum(u["metrics"]["dropped_groups"] for u in updates) == len(dropped) / 8


def test_the_restart_comes_with_the_phase_though_nobody_is_notified(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sao_bench.learner import Learner

    fresh: list[int] = []
    original = Learner._fresh_optimizers

    def note(self: Learner) -> None:
        fresh.append(self.optimizer_steps)
        original(self)

    monkeypatch.setattr(Learner, "_fresh_optimizers", note)
    events = "{at: 128, shape: step, to: R}"
    play(model, tmp_path / "a", "clairvoyant_restart", horizon=256, events=events)
    # Batches of 32, two of them critic-only; the batch in which episode 128 arrives is the fifth.
    assert fresh == [2]
    play(model, tmp_path / "b", "sao", horizon=256, events=events)
    assert fresh == [2]
