"""What is claimed, and what would decide it: fixed before the judging seeds run (docs/REPLICATION.md).

A claim is one or more comparisons of two arms on one number per seed. An arm is an algorithm on a stage; arms that
several claims need run once. Claims: SAO (arXiv 2607.07508).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

DEVELOPMENT_SEEDS = range(10)
"""For choosing settings; they never judge."""
JUDGING_SEEDS = range(100, 110)
QUICK_SEEDS = range(10, 12)
"""Apart from both, so that an indicative card can be looked at before the judging seeds run."""

COLLAPSE_SHARE = 0.5
"""A run has collapsed if the mean of its last 20 updates is under this share of its running maximum (or not finite)."""


@dataclass(frozen=True)
class Stage:
    """Where arms are compared: a schedule, a batch, a lag, a length.

    `seconds` are process-seconds of one thread: `start` of a run, and of a batch `with_critic` and `without`.
    """

    id: str
    about: str
    drift: str
    batch_size: int
    max_staleness: int
    batches: int
    seconds: Mapping[str, float]
    time_scale: float = 1.0
    settings: tuple[str, ...] = ()

    @property
    def episodes(self) -> int:
        """Training episodes of a run."""
        return self.batch_size * self.batches

    @property
    def set(self) -> list[str]:
        """What `run --set` would be given.

        At most (S + 1) B trajectories are outstanding, and there are workers for all of them: the lag is as
        large as S allows. Up to S = 4 the tier's own proportion of slots to workers is kept.
        """
        workers = (
            2 * self.batch_size if self.max_staleness <= 4 else (self.max_staleness + 1) * self.batch_size
        )
        own = [
            f"batch_size={self.batch_size}", f"max_staleness={self.max_staleness}", f"cost.workers={workers}",
            f"cost.slots={3 * workers // 4}", "checkpoint_every=25",
        ]  # fmt: skip
        return [*own, *self.settings]


@dataclass(frozen=True)
class Arm:
    """An algorithm on a stage."""

    stage: str
    algorithm: str

    def __str__(self) -> str:
        return f"{self.stage}/{self.algorithm}"


@dataclass(frozen=True)
class Comparison:
    """The arm that is claimed to have more of a metric, the other arm (or a constant), and the least that matters."""

    better: Arm | float
    other: Arm | float
    metric: str
    least: float
    """Smallest effect of interest, in the metric's unit."""


@dataclass(frozen=True)
class Claim:
    """What the paper says, and the comparisons that must all hold."""

    id: str
    sentence: str
    comparisons: tuple[Comparison, ...]
    facts: tuple[str, ...] = ()
    """Metrics that are printed beside a claim that does not hold."""

    @property
    def arms(self) -> list[Arm]:
        """The arms it needs."""
        sides = [side for c in self.comparisons for side in (c.better, c.other)]
        return list(dict.fromkeys(side for side in sides if isinstance(side, Arm)))


_SORTED = ("micro_batch=16",)
"""Lengths differ by a factor of three: in parts, which are sorted by length, less is padded (the sum is the same)."""

STAGES: tuple[Stage, ...] = (
    Stage(
        "tool", "multi-turn tool use, no drift, S = 4", "tool_use.yaml", 64, 4, 100,
        {"start": 25.0, "with_critic": 1.55, "without": 0.95}, settings=_SORTED,
    ),
    Stage(
        "lag", "writing, no drift, S = 16 and kept full", "stationary", 64, 16, 150,
        {"start": 12.0, "with_critic": 0.45, "without": 0.25},
    ),
    Stage(
        "switch", "writing, the preference jumps twice, phases of 75 updates, S = 4", "style_switch", 64, 4, 225,
        {"start": 15.0, "with_critic": 0.45, "without": 0.25}, time_scale=0.5,
    ),
    Stage(
        "long", "writing, no drift, S = 4, 1,000 policy updates", "stationary", 32, 4, 1020,
        {"start": 12.0, "with_critic": 0.25, "without": 0.15},
    ),
)  # fmt: skip

_SHORT_START = ("algorithm.critic_warmup=5", "algorithm.value_pretrain_episodes=128")
_SHORT_SECONDS = {"start": 9.0, "with_critic": 0.25, "without": 0.15}
QUICK: Mapping[str, Mapping[str, object]] = {
    "tool": {
        "batch_size": 32, "batches": 40, "settings": _SORTED + _SHORT_START,
        "seconds": {"start": 14.0, "with_critic": 0.75, "without": 0.45},
    },
    "lag": {"batch_size": 32, "batches": 60, "settings": _SHORT_START, "seconds": _SHORT_SECONDS},
    "switch": {
        "batch_size": 32, "batches": 90, "settings": _SHORT_START, "seconds": _SHORT_SECONDS,
        "about": "writing, the preference jumps twice, phases of 30 updates, S = 4", "time_scale": 0.1,
    },
    "long": {
        "batches": 150, "settings": _SHORT_START, "seconds": _SHORT_SECONDS,
        "about": "writing, no drift, S = 4, 145 policy updates",
    },
}  # fmt: skip
"""What `--quick` changes in each stage."""


def stages(quick: bool) -> dict[str, Stage]:
    """Return the stages by id."""
    if not quick:
        return {stage.id: stage for stage in STAGES}
    return {stage.id: replace(stage, **QUICK[stage.id]) for stage in STAGES}  # type: ignore[arg-type]


def seeds(quick: bool) -> list[int]:
    """Return the seeds that judge."""
    return list(QUICK_SEEDS if quick else JUDGING_SEEDS)


def schedule(stage: Stage) -> str:
    """Return a stage's schedule: a file beside this module, or a shipped name."""
    own = Path(__file__).with_name("schedules") / stage.drift
    return str(own) if own.is_file() else stage.drift


def _tool(algorithm: str) -> Arm:
    return Arm("tool", algorithm)


def _lag(algorithm: str) -> Arm:
    return Arm("lag", algorithm)


SCORE = 0.02
"""Two hundredths of the way from floor to oracle."""
RETAINED = 0.1
EXPLAINED_VARIANCE = 0.05
LOG_NORM = 0.1
"""About a tenth of the gradient norm."""
UPDATES = 5.0

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "a", "Clip-higher GRPO degrades or collapses under high staleness where GRPO with DIS does not.",
        (Comparison(_lag("grpo_dis"), _lag("grpo_clip_higher"), "late_score", SCORE),),
        ("collapsed", "retained", "masked", "clipped", "staleness"),
    ),
    Claim(
        "b", "SAO is at least as good as GRPO with DIS at equal samples.",
        (Comparison(_tool("sao"), _tool("grpo_dis"), "score", SCORE),),
        ("late_score", "explained_variance", "masked", "critic_only"),
    ),
    Claim(
        "c", "Two critic updates per policy update (K = 2) are better than one.",
        (Comparison(_tool("sao"), _tool("sao_k1"), "score", SCORE),),
        ("late_score", "explained_variance", "critic_only"),
    ),
    Claim(
        "d", "A critic with frozen attention is better than one that trains all its parameters, and has the "
        "smaller gradient norm.",
        (
            Comparison(_tool("sao"), _tool("sao_full_critic"), "score", SCORE),
            Comparison(_tool("sao_full_critic"), _tool("sao"), "log_critic_norm", LOG_NORM),
        ),
        ("late_score", "explained_variance", "critic_only"),
    ),
    Claim(
        "e", "A critic is better than a running mean of rewards.",
        (Comparison(_tool("sao"), _tool("running_mean"), "score", SCORE),),
        ("late_score", "explained_variance", "critic_only"),
    ),
    Claim(
        "f", "Token-level GAE that skips observations is better than step averages and than last-token step values.",
        (
            Comparison(_tool("sao"), _tool("sao_step_average"), "score", SCORE),
            Comparison(_tool("sao"), _tool("sao_last_token"), "score", SCORE),
        ),
        ("late_score", "explained_variance", "critic_only"),
    ),
    Claim(
        "g", "After a switch of the preference SAO recovers faster than the running mean.",
        (Comparison(Arm("switch", "running_mean"), Arm("switch", "sao"), "recovery", UPDATES),),
        ("recovered", "score", "explained_variance"),
    ),
    Claim(
        "h", "SAO is stable for 1,000 updates.",
        (Comparison(Arm("long", "sao"), COLLAPSE_SHARE, "retained", RETAINED),),
        ("collapsed", "late_score", "masked"),
    ),
    Claim(
        "i", "The critic method without DIS collapses.",
        (
            Comparison(_lag("sao"), _lag("sao_no_dis"), "retained", RETAINED),
            Comparison(COLLAPSE_SHARE, _lag("sao_no_dis"), "retained", RETAINED),
        ),
        ("collapsed", "late_score", "masked", "staleness"),
    ),
    Claim(
        "j", "Explained variance is higher with K = 2.",
        (Comparison(_tool("sao"), _tool("sao_k1"), "explained_variance", EXPLAINED_VARIANCE),),
        ("value_loss",),
    ),
)  # fmt: skip


def arms() -> list[Arm]:
    """Return every arm once, in the order in which the claims name them."""
    return list(dict.fromkeys(arm for claim in CLAIMS for arm in claim.arms))
