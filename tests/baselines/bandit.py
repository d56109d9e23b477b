"""A bandit in text: say L and earn 1, say anything else and earn nothing; and a model small enough for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3ForCausalLM

from sao_bench import algorithm_subject
from sao_bench.algorithm_subject import END
from sao_bench.environment import Message, TextEnv
from sao_bench.tiny import SPECIALS, TEMPLATE
from sao_bench.types import Channel, Value


class Bandit(TextEnv):
    """Two arms, L and R."""

    id: ClassVar[str] = "tests/Bandit-v0"
    channels: ClassVar[tuple[Channel, ...]] = (
        Channel("reward.arm", "choice", "real", "L", "the arm that pays", choices=("L", "R")),
    )
    max_reply_tokens: ClassVar[int] = 4

    def begin(self, task: Any) -> str:
        self._score = 0.0
        return "?"

    def respond(self, action: str) -> tuple[str, float, bool, bool]:
        self._score = float(action[:1] == self.concept.values["reward.arm"])
        return "", self._score, True, False

    def truth(self) -> dict[str, Any]:
        return {"score": self._score, "solved": self._score == 1, "task": {}, "parts": {}}

    def oracle_action(self) -> str:
        return str(self.concept.values["reward.arm"])

    @classmethod
    def oracle(cls, values: Mapping[str, Value]) -> float:
        return 1.0

    @classmethod
    def floor(cls, values: Mapping[str, Value]) -> float:
        return 0.0

    @classmethod
    def demonstration(cls, rng: np.random.Generator) -> list[Message]:
        return [{"role": "user", "content": "?"}, {"role": "assistant", "content": "LR"[rng.integers(2)]}]


def tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {token: i for i, token in enumerate((*SPECIALS, *"LR?"))}
    fast = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    fast.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    fast.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=fast, pad_token="<pad>", unk_token="<unk>", eos_token="<|end|>",
        additional_special_tokens=["<|user|>", "<|assistant|>"], chat_template=TEMPLATE,
    )  # fmt: skip


def random_policy(seed: int = 0) -> Qwen3ForCausalLM:
    """Return an untrained model with about 3,000 parameters."""
    return algorithm_subject.random_policy(seed, len(SPECIALS) + len("LR?"))


def save_policy(folder: Path) -> Path:
    """Write the untrained model as a model folder."""
    model = random_policy()
    model.generation_config = GenerationConfig(eos_token_id=END, pad_token_id=0, do_sample=True)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder
