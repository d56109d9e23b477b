"""The shapes of drift by name; each is one class with its keys and its compiled form."""

from sao_bench.drift.shapes.base import Piece, Shape
from sao_bench.drift.shapes.blip import Blip, Burst
from sao_bench.drift.shapes.mix import Mix
from sao_bench.drift.shapes.ramp import Ramp
from sao_bench.drift.shapes.replay import Replay
from sao_bench.drift.shapes.step import Step
from sao_bench.drift.shapes.switching import Cycle, Markov, Poisson
from sao_bench.drift.shapes.walk import Walk

SHAPES: dict[str, type[Shape]] = {
    shape.name: shape for shape in (Step, Mix, Ramp, Cycle, Markov, Poisson, Walk, Blip, Burst, Replay)
}

__all__ = ["SHAPES", "Piece", "Shape"]
