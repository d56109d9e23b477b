"""Schedules that the adapter tests write to disk."""

from pathlib import Path

TOLL = """\
schema: sao-bench-drift/1
id: toll
env: tests.adapters.environments:Toll
clock: {clock}
horizon: 8
seed: 0
channels:
  tax:
    start: 0
    events:
      - {{at: 4, shape: step, to: 3}}
"""

STYLE = """\
schema: sao-bench-drift/1
id: styles
env: sao_bench/StyleWriting-v0
clock: episode
horizon: 8
seed: 3
channels:
  reward.preference:
    start: cute
    events:
      - {at: 4, shape: step, to: classical}
  reward.noise: {start: 0.5, events: []}
"""


def write(folder: Path, text: str = TOLL, clock: str = "episode") -> Path:
    """Write a schedule and return its path."""
    path = folder / "drift.yaml"
    path.write_text(text.format(clock=clock) if "{clock}" in text else text)
    return path
