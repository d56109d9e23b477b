"""Shared fixtures: the shipped tiny model, and small schedules written to disk."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

torch.set_num_threads(1)

SCHEDULE = """\
schema: sao-bench-drift/1
id: small
env: sao_bench/StyleWriting-v0
clock: episode
horizon: {horizon}
seed: 0
channels:
  reward.preference:
    start: cute
    events:
      - {{at: {at}, shape: step, to: chuunibyou}}
  latency.tail: {{start: {tail}, events: []}}
{extra}
"""


@pytest.fixture(scope="session")
def tiny() -> tuple[Any, Any]:
    """The shipped policy of StyleWriting and its chat format; copy the policy before training it."""
    from sao_bench import registry, tiny
    from sao_bench.chat import ChatFormat
    from sao_bench.models import load_policy

    policy, tokenizer = load_policy(tiny.checkpoint(registry.environment("sao_bench/StyleWriting-v0")))
    return policy, ChatFormat(tokenizer, policy.generation_config)


@pytest.fixture
def policy(tiny: tuple[Any, Any]) -> Any:
    """A fresh copy of the shipped policy."""
    return copy.deepcopy(tiny[0])


@pytest.fixture
def schedule_file(tmp_path: Path) -> Callable[..., Path]:
    """Write a schedule with one step of the preference half-way."""

    def write(horizon: int = 256, tail: float = 0.5, extra: str = "") -> Path:
        path = tmp_path / "small.yaml"
        path.write_text(SCHEDULE.format(horizon=horizon, at=horizon // 2, tail=tail, extra=extra))
        return path

    return write
