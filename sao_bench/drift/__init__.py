"""The drift language: schedules as data, compiled to pure functions from a tick to a concept."""

from sao_bench.drift.loading import load, load_all
from sao_bench.drift.reading import Probe
from sao_bench.drift.schedule import DriftSchedule, Phase
from sao_bench.drift.track import Change

__all__ = ["Change", "DriftSchedule", "Phase", "Probe", "load", "load_all"]
