"""`step`: the value jumps."""

from typing import Any, ClassVar

from sao_bench.drift.fields import Key
from sao_bench.drift.shapes.base import Constant, Context, Piece, Shape


class Step(Shape):
    """The channel holds `to` from `at` on."""

    name = "step"
    summary = "the value jumps to `to` at `at` and stays"
    keys: ClassVar = (Key("to", "value", "the value held from `at` on"),)

    @classmethod
    def compile(cls, params: dict[str, Any], context: Context) -> Piece:
        """Return the step."""
        return Constant(context.start, params["to"], context.origin, event=True)
