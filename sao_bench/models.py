"""Policy and critic: any Hugging Face causal LM, read and scored the same way by engine and learner.

Shapes: B = trajectory, T = token. A quantity of token t (log-probability, value) is stored under index t
and comes from the model's output at position t-1, the state before the token is chosen.
"""

from __future__ import annotations

import copy
import inspect
import re
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging

from sao_bench.errors import UserError

ATTENTION = re.compile(r"(^|[._])(self_attn|self_attention|attention|attn)($|\.)")
"""Module names that count as attention, over the decoder families of `transformers`."""


def load_policy(path: Path, dtype: torch.dtype = torch.float32) -> tuple[PreTrainedModel, Any]:
    """Load an `AutoModelForCausalLM` folder and its tokenizer, from disk only.

    Raises:
        UserError: the folder does not exist, is not a model, or has layers the engine cannot cache.
    """
    if not (path / "config.json").is_file():
        raise UserError(f"model {path}: not a model folder (it has no config.json)")
    logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(path, local_files_only=True, dtype=dtype)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise UserError(f"model {path}: {' '.join(str(error).split())[:300]}") from error
    if not tokenizer.encode("a", add_special_tokens=False):
        raise UserError(f"model {path}: its tokenizer makes no token of a letter; are its files there?")
    layers = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    if layers != {"full_attention"}:
        raise UserError(
            f"model {path}: layer types {', '.join(sorted(layers))}; the engine takes full_attention only"
        )
    return model.eval(), tokenizer


def cache_argument(model: PreTrainedModel) -> str:
    """Return the name under which `model.forward` takes its key-value cache (it changed in 5.x)."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def token_logprobs(
    model: PreTrainedModel, token_ids_BT: Tensor, action_mask_BT: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Score the action tokens of right-padded sequences.

    Returns:
        log-probabilities (B, T) and entropies (B, T, detached) of the distribution that action tokens are
        sampled from at `temperature`; 0 outside the action mask. Padding on the right needs no attention
        mask: under causal attention no real token can see it.
    """
    first = _first_action(action_mask_BT)
    kept = token_ids_BT.shape[1] - first + 1
    logits = model(input_ids=token_ids_BT, logits_to_keep=kept, use_cache=False).logits[:, :-1]
    mask = action_mask_BT[:, first:].bool()
    logprobs = torch.log_softmax(logits[mask].float() / temperature, dim=-1)
    taken = logprobs.gather(1, token_ids_BT[:, first:][mask][:, None])[:, 0]
    entropy = -(logprobs.detach().exp() * logprobs.detach()).sum(-1)
    shape = token_ids_BT.shape
    full = action_mask_BT.bool().clone()
    return (
        torch.zeros(shape, dtype=taken.dtype).masked_scatter(full, taken),
        torch.zeros(shape, dtype=taken.dtype).masked_scatter(full, entropy),
    )


def _first_action(action_mask_BT: Tensor) -> int:
    columns = action_mask_BT.any(0).nonzero()
    return int(columns[0]) if len(columns) else action_mask_BT.shape[1]


class Critic(nn.Module):
    """The policy's decoder with a scalar head that starts at zero.

    Args:
        policy: copied, without its language-model head.
    """

    def __init__(self, policy: PreTrainedModel):
        super().__init__()
        self.backbone: nn.Module = copy.deepcopy(policy.base_model)
        self.head = nn.Linear(int(policy.config.hidden_size), 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, token_ids_BT: Tensor) -> Tensor:
        """Return values (B, T+1): column t is the state before token t; column 0 is 0 (no state)."""
        hidden = self.backbone(input_ids=token_ids_BT, use_cache=False).last_hidden_state
        values = self.head(hidden)[..., 0].float()
        return torch.cat([torch.zeros_like(values[:, :1]), values], dim=1)


def freeze_critic(critic: Critic, what: Literal["attention", "none", "backbone"]) -> dict[str, int]:
    """Freeze part of the critic; the scalar head always trains.

    `attention` keeps MLP/MoE and norms training; norms inside an attention module (such as Qwen3's q_norm)
    belong to attention. `backbone` freezes all but the head, `none` nothing.

    Returns:
        `{"frozen": parameters, "trained": parameters, "attention_modules": modules that were matched}`.

    Raises:
        UserError: no module looks like attention, so nothing would be frozen.
    """
    modules = {name for name, _ in critic.backbone.named_modules() if ATTENTION.search(name)}
    roots = {name for name in modules if not any(name.startswith(other + ".") for other in modules)}
    for name, parameter in critic.backbone.named_parameters():
        inside = any(name.startswith(root + ".") for root in roots)
        parameter.requires_grad_(not (what == "backbone" or (what == "attention" and inside)))
    frozen = sum(p.numel() for p in critic.parameters() if not p.requires_grad)
    if what == "attention" and not frozen:
        kinds = sorted({type(m).__name__ for m in critic.backbone.modules()})
        raise UserError(f"critic: no attention module found to freeze among {', '.join(kinds)[:200]}")
    trained = sum(p.numel() for p in critic.parameters() if p.requires_grad)
    return {"frozen": frozen, "trained": trained, "attention_modules": len(roots)}
