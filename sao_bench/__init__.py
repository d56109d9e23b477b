"""sao_bench: online learning in LLM reinforcement learning, while the world drifts."""

__version__ = "0.1.0"

from sao_bench.registry import register_with_gymnasium

register_with_gymnasium()
