"""Any causal LM folder takes the place of the tiny model: other architecture, tokenizer, template, stop tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from sao_bench.tiny import tokenizer
from tests.helpers import small_run

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def model(kind: str, vocabulary: int) -> PreTrainedModel:
    torch.manual_seed(0)
    if kind == "llama":
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=vocabulary, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=1024,
            )
        )  # fmt: skip
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=vocabulary, n_embd=32, n_layer=2, n_head=2, n_positions=1024)
    )


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_another_model_with_its_own_chat_template_trains(
    schedule_file: Callable[..., Path], tmp_path: Path, kind: str
) -> None:
    chatml = tokenizer()
    chatml.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    chatml.chat_template = CHATML
    chatml.eos_token = "<|im_end|>"
    folder = tmp_path / "model"
    chatml.save_pretrained(folder)
    one = model(kind, len(chatml))
    one.generation_config.eos_token_id = [chatml.eos_token_id, 4]
    one.save_pretrained(folder)
    settings = ("batch_size=8", "cost.slots=8", "cost.workers=16", "env.template=chat", "max_reply_tokens=6",
                "algorithm.value_pretrain_episodes=8", "algorithm.critic_warmup=1")  # fmt: skip
    run = small_run(schedule_file(32), tmp_path / "runs", *settings, algorithm="sao", model=str(folder))
    assert run.status["state"] == "finished"
    assert run.manifest["critic"]["attention_modules"] == 2
    assert [u["kind"] for u in run.lines("updates")] == ["critic", "policy", "policy", "policy"]
    # The engine's log-probabilities are the learner's: at the version that sampled a token the ratio is 1.
    first = next(u for u in run.lines("updates") if u["kind"] == "policy")
    assert first["staleness"]["max"] == 0
    assert first["metrics"]["ratio_q99"] == pytest.approx(1, abs=1e-4)
    assert all(e["turns"][0]["prompt_tokens"] > 100 for e in run.lines("episodes"))


def test_a_prompt_that_the_model_cannot_see_whole_is_refused(
    schedule_file: Callable[..., Path], tmp_path: Path
) -> None:
    words = tokenizer()
    folder = tmp_path / "model"
    words.save_pretrained(folder)
    GPT2LMHeadModel(
        GPT2Config(vocab_size=len(words), n_embd=8, n_layer=1, n_head=1, n_positions=16)
    ).save_pretrained(folder)
    with pytest.raises(AssertionError, match=r"leaves no room for a reply in the model's 16 positions"):
        small_run(schedule_file(32), tmp_path / "runs", "batch_size=8", model=str(folder))
