import json
import math
from collections import defaultdict

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sao_bench.environments.style_writing import EASY, HABITS, STYLES, USERS, StyleWriting
from transformers import AutoModelForCausalLM, AutoTokenizer

from sao_bench import registry, tiny
from sao_bench.chat import ChatFormat
from sao_bench.engines.torch import TorchEngine
from sao_bench.errors import UserError
from sao_bench.evaluation import evaluate
from sao_bench.rollout import Rollout
from tests.helpers import small_run

SHIPPED = tiny.Path(tiny.__file__).parent / "checkpoints" / "style_writing"
SMALL = {"hidden_size": 16, "intermediate_size": 32, "head_dim": 8, "heads": 2, "kv_heads": 1, "heldout": 64}


LIFTS = {
    "code_repair": ("code_tools", 6_400),
    "countdown": ("countdown_rules", 12_800),
    "math_dataset": ("math_sets_form", 7_200),
    "math_tool": ("tool_rename", 6_400),
    "reasoning_gym": ("reasoning_format", 7_200),
    "tool_api": ("shop_update", 6_400),
}
"""Checkpoint -> a schedule that holds the default concept, and the episode by which it has been learnt."""


class Short(StyleWriting):
    """The same demonstrations, a model that trains in a second."""

    tiny_config = SMALL | {"updates": 30, "batch_size": 16, "learning_rate": 2e-2, "warmup": 5}


class Talk(StyleWriting):
    """Demonstrations of two turns."""

    tiny_config = SMALL | {"updates": 2, "batch_size": 2}

    @classmethod
    def demonstration(cls, rng):
        first, second = super().demonstration(rng), super().demonstration(rng)
        return [*first, *second]


def test_every_printable_character_is_one_token_and_comes_back(tmp_path):
    tokenizer = tiny.tokenizer()
    tokenizer.save_pretrained(tmp_path)
    for tok in (tokenizer, AutoTokenizer.from_pretrained(tmp_path)):
        ids = tok.encode(tiny.CHARACTERS, add_special_tokens=False)
        assert ids == list(range(5, 5 + 96))
        assert tok.decode(ids, clean_up_tokenization_spaces=False) == tiny.CHARACTERS
        assert tok.encode("\u00e9\u2603", add_special_tokens=False) == [1, 1]
        assert tok.encode("<|end|><pad>") == [4, 0]
        assert (tok.pad_token_id, tok.eos_token_id, len(tok)) == (0, 4, 101)


def test_labels_are_the_replies_and_their_stop_tokens():
    chat = ChatFormat(tiny.tokenizer())
    conversation = [
        {"role": "user", "content": "ab"},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": "d"},
        {"role": "assistant", "content": ""},
    ]
    a, b, c, d = (6 + ord(letter) - 32 for letter in "abcd")
    tokens, labels = tiny.tokens_and_labels(chat, conversation)
    assert tokens == [2, a, b, 3, c, 4, 2, d, 3, 4]
    assert labels == [-100, -100, -100, -100, c, 4, -100, -100, -100, 4]


def test_loss_is_the_mean_over_labels_and_padding_changes_nothing():
    chat = ChatFormat(tiny.tokenizer())
    torch.manual_seed(0)
    model = tiny.Qwen3ForCausalLM(tiny._model_config(tiny.TinyConfig(), chat)).eval()
    rows = [tiny.tokens_and_labels(chat, c) for c in tiny.demonstrations(StyleWriting, 0, "test", 4)]
    together, count = tiny.loss(model, rows, chat.pad_id)
    apart = 0.0
    for tokens, labels in rows:
        logp = torch.log_softmax(model(input_ids=torch.tensor([tokens])).logits[0], -1)
        apart -= sum(logp[t - 1, label].item() for t, label in enumerate(labels) if label != -100)
    assert count == sum(label != -100 for _, labels in rows for label in labels)
    assert together.item() == pytest.approx(apart, rel=1e-5)
    # Before training every character is about equally likely.
    assert together.item() / count == pytest.approx(math.log(101), rel=0.02)


def test_a_build_is_deterministic_learns_and_replaces_its_folder(tmp_path):
    seen = []
    first = tiny.build(Short, tmp_path / "a", progress=lambda update, loss: seen.append((update, loss)))
    second = tiny.build(Short, tmp_path / "b")
    other = tiny.build(Short, tmp_path / "b", seed=1)
    assert first == second
    assert first["heldout_loss"] != other["heldout_loss"]
    assert [update for update, _ in seen] == list(range(1, 31))
    # From a uniform guess, ln 101 = 4.6 nats, to the frequencies of the letters and a little more.
    assert first["heldout_loss"] < 3.0 < 4.4 < seen[0][1]
    assert first == json.loads((tmp_path / "a" / "build.json").read_text())
    weights = {name: load_file(tmp_path / name / "model.safetensors") for name in "ab"}
    assert any(not torch.equal(weights["a"][key], weights["b"][key]) for key in weights["a"])
    tiny.build(Short, tmp_path / "b")
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes(), file.name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_build_of_two_turns_trains_on_both(tmp_path):
    record = tiny.build(Talk, tmp_path / "talk")
    assert record["config"]["hidden_size"] == 16
    assert record["parameters"] == sum(
        w.numel() for w in load_file(tmp_path / "talk" / "model.safetensors").values()
    )
    chat = ChatFormat.load(tmp_path / "talk")
    tokens, labels = tiny.tokens_and_labels(chat, tiny.demonstrations(Talk, 0, "test", 1)[0])
    assert sum(label == 4 for label in labels) == 2 == tokens.count(3)


def test_nothing_is_left_when_a_build_fails(tmp_path):
    class Fails(Short):
        @classmethod
        def demonstration(cls, rng):
            raise RuntimeError("no words")

    with pytest.raises(RuntimeError, match="no words"):
        tiny.build(Fails, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_wrong_input_is_one_clear_line(tmp_path):
    class Typo(Short):
        tiny_config = {"hiden_size": 3}  # noqa: RUF012

    with pytest.raises(
        UserError, match="unknown tiny_config field 'hiden_size' \\(did you mean 'hidden_size'"
    ):
        tiny.build(Typo, tmp_path / "model")
    (tmp_path / "mine").mkdir()
    (tmp_path / "file").write_text("x")
    for folder in ("mine", "file"):
        with pytest.raises(UserError, match="is not a tiny checkpoint"):
            tiny.build(Short, tmp_path / folder)
    with pytest.raises(UserError, match="cannot write"):
        tiny.build(Short, tmp_path / "file" / "model")


def test_a_checkpoint_is_built_once_and_rebuilt_when_the_demonstrations_change(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SAO_BENCH_CACHE", str(tmp_path))
    folder = tiny.checkpoint(Short)
    said = capsys.readouterr().out
    assert folder.is_relative_to(tmp_path)
    assert said.count("\n") == 1 and str(folder) in said
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert tiny.checkpoint(Short) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
    assert capsys.readouterr().out == ""

    class Changed(Short):
        @classmethod
        def demonstration(cls, rng):
            return [*super().demonstration(rng)[:1], {"role": "assistant", "content": "no."}]

    assert tiny.fingerprint(Changed) != tiny.fingerprint(Short)
    assert tiny.checkpoint(Changed) != folder


# -- the shipped checkpoints ---------------------------------------------------------------------------

CHECKPOINTS = tiny.Path(tiny.__file__).parent / "checkpoints"
RECORDS = {path.parent.name: json.loads(path.read_text()) for path in CHECKPOINTS.glob("*/build.json")}
every_checkpoint = pytest.mark.parametrize("name", sorted(RECORDS))


def solved(env_class, folder, count=512):
    """Play the model of a folder under the default concept; returns the share that is solved."""
    chat, model = ChatFormat.load(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    rollout = Rollout(env_class, chat, 0, env_class.max_reply_tokens, 1024, stream="start")
    with tiny.one_thread():
        found = evaluate(
            TorchEngine(model, chat.stop_ids), rollout, env_class.default_concept(), range(count)
        )
    return np.mean([trajectory.solved for trajectory in found])


def test_four_environments_have_a_shipped_model():
    assert set(RECORDS) >= {"countdown", "math_tool", "style_writing", "tool_api"}


@every_checkpoint
def test_shipped_checkpoint_belongs_to_the_environment_as_it_is(name):
    folder, record = CHECKPOINTS / name, RECORDS[name]
    env_class = registry.environment(record["env"])
    assert tiny.checkpoint(env_class) == folder
    assert record["fingerprint"] == tiny.fingerprint(env_class)
    assert record["parameters"] < 1_000_000
    assert sum(file.stat().st_size for file in folder.iterdir()) < 4_000_000
    assert {file.name for file in folder.iterdir()} >= {"model.safetensors", "tokenizer.json", "config.json"}
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.config.model_type == "qwen3"
    assert {weight.dtype for weight in model.state_dict().values()} == {torch.float32}
    assert sum(p.numel() for p in model.parameters()) == record["parameters"]


@every_checkpoint
def test_shipped_checkpoint_has_the_recorded_heldout_loss(name):
    record = RECORDS[name]
    found = tiny.heldout_loss(registry.environment(record["env"]), CHECKPOINTS / name)
    assert found == pytest.approx(record["heldout_loss"], rel=1e-4)


@pytest.mark.slow
@every_checkpoint
def test_a_full_rebuild_reaches_the_recorded_heldout_loss(name, tmp_path):
    record = RECORDS[name]
    rebuilt = tiny.build(registry.environment(record["env"]), tmp_path / "again", seed=record["seed"])
    assert rebuilt["heldout_loss"] == pytest.approx(record["heldout_loss"], rel=0.02)


@pytest.mark.parametrize("name", sorted(LIFTS))
def test_the_start_is_neither_hopeless_nor_done(name):
    assert 0.05 < solved(registry.environment(RECORDS[name]["env"]), CHECKPOINTS / name) < 0.60


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LIFTS))
def test_learning_lifts_the_start_by_20_points_over_three_seeds(name, tmp_path):
    """Share solved under the default concept, before and in the last 1,280 of its episodes."""
    schedule, until = LIFTS[name]
    env_class = registry.environment(RECORDS[name]["env"])
    default, after = env_class.default_concept().hash, []
    for seed in range(3):
        run = small_run(registry.schedules()[schedule], tmp_path / str(seed), seed=seed, until=until)
        episodes = [row for row in run.lines("episodes") if row["concept"] == default]
        after.append(np.mean([row["solved"] for row in episodes[-1280:]]))
    before = solved(env_class, CHECKPOINTS / name)
    # The row of docs/TINY_TIER.md; `-rP` shows it.
    print(f"{name}: {before:.1%} -> {np.mean(after):.1%} ({min(after):.1%} to {max(after):.1%})")
    assert np.mean(after) - before > 0.20


# -- what the writer of StyleWriting can do --------------------------------------------------------------


@pytest.fixture(scope="module")
def start():
    """What the shipped model does before any reward: [(task, parts, score, tokens)], 512 solo and 512 of users."""
    chat, model = ChatFormat.load(SHIPPED), AutoModelForCausalLM.from_pretrained(SHIPPED).eval()
    users = {"user.mixture": dict.fromkeys(USERS, 0.25)}
    envs = [StyleWriting() for _ in range(1024)]
    prompts = [
        chat.prompt_ids(env.reset(seed=i, options={"concept": users if i % 2 else {}})[0])
        for i, env in enumerate(envs)
    ]
    width = max(map(len, prompts))
    ids_BT = torch.tensor([[chat.pad_id] * (width - len(ids)) + ids for ids in prompts])
    torch.manual_seed(0)
    with tiny.one_thread():
        drawn_BT = model.generate(
            input_ids=ids_BT,
            attention_mask=(ids_BT != chat.pad_id).long(),
            max_new_tokens=StyleWriting.max_reply_tokens,
            do_sample=True,
            temperature=1.0,
            top_k=0,
        )[:, width:]
    seen = []
    for env, row in zip(envs, drawn_BT.tolist(), strict=True):
        stops = [i + 1 for i, token in enumerate(row) if token in chat.stop_ids]
        length = min(stops, default=len(row))
        env.step(chat.decode(row[:length]))
        truth = env.truth()
        seen.append((truth["task"], truth["parts"], truth["score"], length if stops else None))
    return seen


def test_the_start_writes_well_on_easy_topics_and_half_well_on_hard_ones(start):
    quality = defaultdict(list)
    for task, parts, _, _ in start:
        quality[task["topic"] in EASY].append(parts["quality"])
    assert 0.65 < np.mean(quality[True]) < 0.95
    assert 0.4 < np.mean(quality[False]) < 0.7
    assert 0.2 < np.mean([score for _, _, score, _ in start]) < 0.4


def test_no_style_is_rare_at_the_start_and_replies_end(start):
    for style in STYLES:
        assert np.mean([parts["style"] == style for _, parts, _, _ in start]) > 0.15
    assert np.mean([length is None for *_, length in start]) < 0.01


def test_the_start_knows_the_users_habits(start):
    follows = [p["style"] == HABITS[t["user"]] for t, p, *_ in start if HABITS.get(t["user"]) in t["offers"]]
    solo = [p["style"] == t["offers"][0] for t, p, *_ in start if t["user"] == "solo"]
    assert np.mean(follows) > 0.45
    assert np.mean(solo) < 0.5
