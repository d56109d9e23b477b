"""The tiny tier: a character-level causal LM, warm-started on an environment's own demonstrations.

It speaks every interface that a large model speaks (a `transformers` folder with safetensors, a
`tokenizers` file, a chat template), at 0.1M parameters, so that whole learning curves fit on a laptop.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch.nn import functional
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

from sao_bench._content import cache_folder
from sao_bench.chat import ChatFormat
from sao_bench.environment import Message, TextEnv
from sao_bench.errors import UserError, did_you_mean
from sao_bench.seeding import derive, generator

SPECIALS = ("<pad>", "<unk>", "<|user|>", "<|assistant|>", "<|end|>")
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))
TEMPLATE = (
    "{% for m in messages %}"
    "{% if m.role == 'assistant' %}<|assistant|>{{ m.content }}<|end|>"
    "{% else %}<|user|>{{ m.content }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
IGNORED = -100


@dataclass(frozen=True)
class TinyConfig:
    """Sizes of the model and of its warm start; an environment overrides them in `tiny_config`."""

    hidden_size: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    intermediate_size: int = 192
    max_positions: int = 1024
    updates: int = 3000
    batch_size: int = 32
    learning_rate: float = 6e-3
    warmup: int = 50
    heldout: int = 512

    @classmethod
    def of(cls, env_class: type[TextEnv]) -> TinyConfig:
        """Return the configuration of an environment.

        Raises:
            UserError: `tiny_config` names an unknown field.
        """
        known = asdict(cls())
        for name in env_class.tiny_config:
            if name not in known:
                raise UserError(
                    f"{env_class.id}: unknown tiny_config field {name!r}{did_you_mean(name, known)};"
                    f" known: {', '.join(known)}"
                )
        return replace(cls(), **env_class.tiny_config)


def tokenizer() -> PreTrainedTokenizerFast:
    """Return the character tokenizer: printable ASCII and newline, one token each, and five specials."""
    vocabulary = {token: i for i, token in enumerate((*SPECIALS, *CHARACTERS))}
    fast = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    fast.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    fast.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=fast,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token="<|end|>",
        additional_special_tokens=["<|user|>", "<|assistant|>"],
        chat_template=TEMPLATE,
        model_max_length=int(1e9),
    )


def demonstrations(env_class: type[TextEnv], seed: int, stream: str, count: int) -> list[list[Message]]:
    """Return `count` conversations of an environment; conversation i depends on (seed, stream, i) alone."""
    return [env_class.demonstration(generator(seed, f"tiny.{stream}", i)) for i in range(count)]


def fingerprint(env_class: type[TextEnv], seed: int = 0) -> str:
    """Hash what a checkpoint is made from: sizes, vocabulary, template and 256 of the demonstrations.

    Demonstrations stand for the code that writes them, so that a comment changes nothing.
    """
    recipe = [
        asdict(TinyConfig.of(env_class)),
        CHARACTERS,
        TEMPLATE,
        demonstrations(env_class, seed, "train", 256),
    ]
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]


def tokens_and_labels(chat: ChatFormat, conversation: list[Message]) -> tuple[list[int], list[int]]:
    """Return the tokens of a conversation, as a rollout would lay them out, and their labels.

    Labels are the token ids where the policy speaks (replies and their stop token), else `IGNORED`.
    """
    tokens: list[int] = []
    labels: list[int] = []
    for i, message in enumerate(conversation):
        if message["role"] == "assistant":
            action = [*chat.tokenizer.encode(message["content"], add_special_tokens=False)]
            action.append(int(chat.tokenizer.eos_token_id))
            tokens += action
            labels += action
        else:
            text = message["content"]
            new = chat.prompt_ids(text) if i == 0 else chat.observation_ids(text, ended=True)
            tokens += new
            labels += [IGNORED] * len(new)
    return tokens, labels


def loss(
    model: Qwen3ForCausalLM, rows: list[tuple[list[int], list[int]]], pad_id: int
) -> tuple[torch.Tensor, int]:
    """Return the summed cross entropy (nats) over the labelled tokens of conversations, and their number."""
    length = max(len(tokens) for tokens, _ in rows)
    ids_BT = torch.tensor([tokens + [pad_id] * (length - len(tokens)) for tokens, _ in rows])
    labels_BT = torch.tensor([labels + [IGNORED] * (length - len(labels)) for _, labels in rows])
    # Right padding under a causal mask: no labelled position can see a pad, so no attention mask.
    hidden_BTD = model.model(input_ids=ids_BT, use_cache=False).last_hidden_state[:, :-1]
    said_BT = labels_BT[:, 1:] != IGNORED
    logits_ND = model.lm_head(hidden_BTD[said_BT])
    return functional.cross_entropy(logits_ND, labels_BT[:, 1:][said_BT], reduction="sum"), int(said_BT.sum())


@torch.no_grad()
def heldout_loss(env_class: type[TextEnv], folder: Path, seed: int = 0) -> float:
    """Return nats per action token of a checkpoint on conversations that training never draws."""
    chat = ChatFormat.load(folder)
    with _no_bars():
        model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    count = TinyConfig.of(env_class).heldout
    rows = [tokens_and_labels(chat, c) for c in demonstrations(env_class, seed, "heldout", count)]
    with one_thread():
        sums = [loss(model, rows[i : i + 64], chat.pad_id) for i in range(0, count, 64)]
    return math.fsum(float(total) for total, _ in sums) / sum(n for _, n in sums)


def train(env_class: type[TextEnv], config: TinyConfig, seed: int, progress: Any = None) -> Qwen3ForCausalLM:
    """Return the warm-started model: AdamW, linear warm-up, cosine decay, every batch freshly drawn."""
    chat = ChatFormat(tokenizer())
    torch.manual_seed(derive(seed, "tiny.weights"))
    model = Qwen3ForCausalLM(_model_config(config, chat)).float().train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    for update in range(config.updates):
        start = update * config.batch_size
        rows = [
            tokens_and_labels(chat, env_class.demonstration(generator(seed, "tiny.train", start + i)))
            for i in range(config.batch_size)
        ]
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * _schedule(update, config)
        total, count = loss(model, rows, chat.pad_id)
        optimizer.zero_grad(set_to_none=True)
        (total / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if progress:
            progress(update + 1, total.item() / count)
    return model.eval()


def build(
    env_class: type[TextEnv], folder: str | Path, seed: int = 0, progress: Any = None
) -> dict[str, Any]:
    """Warm-start a model for any environment and write it to `folder`, whole or not at all.

    Args:
        env_class: the environment whose demonstrations are learned; `tiny_config` sets the sizes.
        folder: a Hugging Face model folder to write, with `build.json` beside the weights. An older
            folder of this kind is replaced.
        seed: of weights and demonstrations; the same seed gives the same bytes on one machine.
        progress: called with (updates done, training loss) after every update.

    Returns: the contents of `build.json`.

    Raises:
        UserError: `folder` is something else, or cannot be written.
    """
    target = Path(folder)
    if target.exists() and not (target / "build.json").is_file():
        raise UserError(f"{target} exists and is not a tiny checkpoint: name another folder")
    config = TinyConfig.of(env_class)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror}") from error
    try:
        with one_thread():
            model = train(env_class, config, seed, progress)
        record = _save(env_class, model, config, seed, draft)
        for path in (draft, *draft.iterdir()):
            path.chmod(0o755 if path.is_dir() else 0o644)
        if target.exists():
            shutil.rmtree(target)
        draft.replace(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return record


def checkpoint(env_class: type[TextEnv]) -> Path:
    """Return the folder of an environment's warm-started model.

    The shipped one if it was made from today's demonstrations and sizes; else one that is built once (and
    said so in a line) into the cache: `$SAO_BENCH_CACHE`, or `sao_bench` in the user's cache folder.
    """
    name, mark = env_class.__module__.rpartition(".")[2], fingerprint(env_class)
    shipped = Path(__file__).parent / "checkpoints" / name
    cached = cache_folder() / "tiny" / f"{name}-{mark}"
    for folder in (shipped, cached):
        if (folder / "build.json").is_file():
            record = json.loads((folder / "build.json").read_text())
            if (record["env"], record["fingerprint"]) == (env_class.id, mark):
                return folder
    print(f"building the tiny model of {env_class.id or name} once, into {cached} (minutes)", flush=True)
    build(env_class, cached)
    return cached


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: sums are then added in one order, and small matrices run faster."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _no_bars() -> Iterator[None]:
    """Keep transformers from drawing a progress bar for one small file."""
    before = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if before:
            logging.enable_progress_bar()


def _model_config(config: TinyConfig, chat: ChatFormat) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=len(SPECIALS) + len(CHARACTERS),
        hidden_size=config.hidden_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_dim,
        intermediate_size=config.intermediate_size,
        max_position_embeddings=config.max_positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=chat.tokenizer.eos_token_id,
        pad_token_id=chat.pad_id,
        dtype="float32",
    )


def _schedule(update: int, config: TinyConfig) -> float:
    if update < config.warmup:
        return (update + 1) / config.warmup
    done = (update - config.warmup) / max(1, config.updates - config.warmup)
    return 0.5 * (1 + math.cos(math.pi * done)) * 0.98 + 0.02


def _save(
    env_class: type[TextEnv], model: Qwen3ForCausalLM, config: TinyConfig, seed: int, folder: Path
) -> dict[str, Any]:
    chat = ChatFormat(tokenizer())
    model.generation_config = GenerationConfig(
        eos_token_id=chat.tokenizer.eos_token_id, pad_token_id=chat.pad_id, do_sample=True
    )
    with _no_bars():
        model.save_pretrained(folder)
    chat.tokenizer.save_pretrained(folder)
    record = {
        "env": env_class.id,
        "seed": seed,
        "fingerprint": fingerprint(env_class, seed),
        "config": asdict(config),
        "parameters": sum(p.numel() for p in model.parameters()),
        "heldout_loss": heldout_loss(env_class, folder, seed),
    }
    (folder / "build.json").write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
    return record
