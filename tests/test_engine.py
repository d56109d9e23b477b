"""The engine samples from the distribution it says it samples from, whatever shares its batch."""

from __future__ import annotations

import copy
import math
from collections import Counter
from typing import Any

import pytest
import torch

from sao_bench.engines import torch as torch_engine
from sao_bench.engines.torch import Completion, Request, TorchEngine
from sao_bench.models import token_logprobs
from sao_bench.seeding import generator

PROMPTS = [
    "sea cute/classical:",
    "ann ship academic/cute/chuunibyou:",
    "tea cute:",
    "bob moon classical/cute:",
]


def requests(chat: Any, count: int, budget: int = 40) -> list[Request]:
    return [
        Request(i, chat.prompt_ids(PROMPTS[i % 4]), generator(7, "draws", i).random(budget - i % 5).tolist())
        for i in range(count)
    ]


def drain(engine: TorchEngine, after_round: Any = None) -> dict[int, Completion]:
    done, rounds = {}, 0
    while engine.busy:
        done |= {c.key: c for c in engine.step()[0]}
        rounds += 1
        if after_round:
            after_round(rounds)
    return done


def rescored(model: Any, request: Request, completion: Completion, temperature: float = 1.0) -> list[float]:
    ids = torch.tensor([[*request.prompt_ids, *completion.action_ids]])
    mask = torch.zeros_like(ids, dtype=torch.bool)
    mask[:, len(request.prompt_ids) :] = True
    with torch.no_grad():
        logp, _ = token_logprobs(model, ids, mask, temperature)
    return logp[mask].tolist()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_agree_with_the_learner_for_mixed_lengths_and_refilled_slots(
    tiny: Any, temperature: float
) -> None:
    model, chat = tiny
    asked = requests(chat, 40)
    engine = TorchEngine(copy.deepcopy(model), chat.stop_ids, slots=6, temperature=temperature)
    for request in asked:
        engine.submit(request)
    done = drain(engine)
    assert sorted(done) == list(range(40))
    assert len({len(c.action_ids) for c in done.values()}) > 5
    for request in asked:
        completion = done[request.key]
        expected = rescored(model, request, completion, temperature)
        assert completion.logprobs == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("fill_tokens", [1, 100, 4096])
def test_after_a_swap_each_logprob_is_that_of_the_version_it_names(
    tiny: Any, monkeypatch: pytest.MonkeyPatch, fill_tokens: int
) -> None:
    monkeypatch.setattr(torch_engine, "FILL_TOKENS", fill_tokens)
    model, chat = tiny
    weights = {0: copy.deepcopy(model)}
    for version in (1, 2):
        weights[version] = copy.deepcopy(model)
        for parameter in weights[version].parameters():
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(version))
            parameter.data += 0.05 * version * noise * parameter.data.std()
    asked = requests(chat, 30)
    engine = TorchEngine(copy.deepcopy(model), chat.stop_ids, slots=8)
    for request in asked:
        engine.submit(request)
    swaps = {7: 1, 19: 2}
    done = drain(
        engine, lambda r: r in swaps and engine.load_weights(swaps[r], weights[swaps[r]].state_dict())
    )
    spanning = 0
    for request in asked:
        completion = done[request.key]
        assert completion.versions == sorted(completion.versions)
        spanning += len(set(completion.versions)) > 1
        scores = {v: rescored(weights[v], request, completion) for v in set(completion.versions)}
        expected = [scores[v][i] for i, v in enumerate(completion.versions)]
        assert completion.logprobs == pytest.approx(expected, abs=1e-4)
    assert spanning >= 8


def test_a_pass_that_fills_rows_is_cut_by_padded_tokens_and_stops_at_the_last_keys_and_values(
    tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_engine, "FILL_TOKENS", 12)
    model, chat = tiny
    lengths = [5, 1, 3, 4, 20]
    engine = TorchEngine(copy.deepcopy(model), chat.stop_ids, slots=5)
    for key, length in enumerate(lengths):
        engine.submit(Request(key, chat.prompt_ids("sea cute:")[:1] * length, [0.5] * 9))
    shapes: list[tuple[int, ...]] = []
    engine.model.get_input_embeddings().register_forward_hook(lambda _, ids, __: shapes.append(ids[0].shape))
    engine.step()
    assert shapes == [(3, 4), (1, 5), (1, 20)]
    # A refill needs nothing of what follows the last keys and values.
    heads: list[int] = []
    engine.model.get_output_embeddings().register_forward_hook(lambda *_: heads.append(1))
    engine.load_weights(1, model.state_dict())
    assert len(shapes) == 6
    assert heads == []


def test_keeping_the_cache_over_a_swap_is_an_approximation_and_recomputing_is_not(tiny: Any) -> None:
    model, chat = tiny
    other = copy.deepcopy(model)
    for parameter in other.parameters():
        parameter.data *= 1.2
    worst = {}
    for on_swap in ("keep", "recompute"):
        engine = TorchEngine(copy.deepcopy(model), chat.stop_ids, slots=4, on_swap=on_swap)
        request = requests(chat, 1)[0]
        engine.submit(request)
        done = drain(engine, lambda r, e=engine: r == 5 and e.load_weights(1, other.state_dict()))[0]
        after = [i for i, v in enumerate(done.versions) if v == 1]
        expected = rescored(other, request, done)
        worst[on_swap] = max(abs(done.logprobs[i] - expected[i]) for i in after)
    assert worst["recompute"] < 1e-4 < worst["keep"]


def test_a_draw_does_not_depend_on_which_requests_share_the_batch(tiny: Any) -> None:
    model, chat = tiny
    together, alone = TorchEngine(model, chat.stop_ids, slots=16), TorchEngine(model, chat.stop_ids, slots=1)
    for request in requests(chat, 24):
        together.submit(request)
        alone.submit(request)
    a, b = drain(together), drain(alone)
    assert {k: c.action_ids for k, c in a.items()} == {k: c.action_ids for k, c in b.items()}


def test_tokens_are_drawn_with_the_probability_that_is_recorded(tiny: Any) -> None:
    model, chat = tiny
    prompt = chat.prompt_ids("sea cute/classical:")
    engine = TorchEngine(model, chat.stop_ids, slots=500)
    draws = generator(1, "first").random(20_000)
    for i, u in enumerate(draws):
        engine.submit(Request(i, prompt, [u]))
    done = drain(engine)
    counts = Counter(c.action_ids[0] for c in done.values())
    recorded = {c.action_ids[0]: math.exp(c.logprobs[0]) for c in done.values()}
    for token, count in counts.items():
        p = recorded[token]
        assert abs(count / 20_000 - p) <= 5 * math.sqrt(p * (1 - p) / 20_000) + 1e-9


def test_a_stop_token_is_part_of_the_action_and_a_budget_ends_it_without_one(tiny: Any) -> None:
    model, chat = tiny
    engine = TorchEngine(model, chat.stop_ids, slots=4)
    prompt = chat.prompt_ids("sea cute/classical:")
    engine.submit(Request(0, prompt, generator(3, "x").random(48).tolist()))
    engine.submit(Request(1, prompt, [0.5, 0.5, 0.5]))
    done = drain(engine)
    assert done[0].stop_reason == "stop" and done[0].action_ids[-1] in chat.stop_ids
    assert done[1].stop_reason == "length" and len(done[1].action_ids) == 3


def test_aborted_requests_leave_no_trace(tiny: Any) -> None:
    model, chat = tiny
    plain, cut = TorchEngine(model, chat.stop_ids, slots=4), TorchEngine(model, chat.stop_ids, slots=4)
    for request in requests(chat, 10):
        plain.submit(request)
        cut.submit(request)
    done = drain(cut, lambda r: r == 3 and cut.abort({1, 9}))
    assert sorted(done) == [0, 2, 3, 4, 5, 6, 7, 8]
    expected = drain(plain)
    assert all(done[k].action_ids == expected[k].action_ids for k in done)


def test_a_restored_engine_goes_on_to_the_bit(tiny: Any) -> None:
    model, chat = tiny
    first = TorchEngine(copy.deepcopy(model), chat.stop_ids, slots=5)
    for request in requests(chat, 17):
        first.submit(request)
    for _ in range(9):
        first.step()
    second = TorchEngine(copy.deepcopy(model), chat.stop_ids, slots=5)
    second.load_state_dict(first.state_dict())
    a, b = drain(first), drain(second)
    assert {k: c.logprobs for k, c in a.items()} == {k: c.logprobs for k, c in b.items()}


def second_turns(chat: Any, first: list[Request], done: dict[int, Completion]) -> list[Request]:
    """Return requests that go on where the first ones ended, in another order."""
    reply = chat.prompt_ids(PROMPTS[2])
    return [
        Request(r.key, [*r.prompt_ids, *done[r.key].action_ids, *reply], r.uniforms) for r in reversed(first)
    ]


def test_the_next_turn_prefills_only_what_is_new_and_samples_as_if_it_did_not(tiny: Any) -> None:
    model, chat = tiny
    knows, forgets = (TorchEngine(copy.deepcopy(model), chat.stop_ids, slots=12) for _ in range(2))
    asked = requests(chat, 12)
    for engine in (knows, forgets):
        for request in asked:
            engine.submit(request)
    done = drain(knows)
    drain(forgets)
    forgets.abort(done.keys())
    turns = second_turns(chat, asked, done)
    # One that begins otherwise than what is kept of its trajectory, and one that is not known.
    turns += [Request(99, turns[0].prompt_ids, turns[0].uniforms)]
    turns[1].prompt_ids = [turns[1].prompt_ids[1], *turns[1].prompt_ids[1:]]
    before = knows.prefilled
    for request in turns:
        knows.submit(request)
        forgets.submit(request)
    found, expected = drain(knows), drain(forgets)
    new = len(chat.prompt_ids(PROMPTS[2])) + 1
    whole = [len(request.prompt_ids) for request in turns]
    # The last sampled token has no keys and values yet: it goes through the model with the new ones.
    assert knows.prefilled - before == 11 * new + whole[1] + whole[12]
    assert forgets.prefilled - before == sum(whole)
    for request in turns:
        assert found[request.key].action_ids == expected[request.key].action_ids
        assert found[request.key].logprobs == pytest.approx(
            rescored(model, request, found[request.key]), abs=1e-4
        )


@pytest.mark.parametrize("on_swap", ["recompute", "keep"])
def test_nothing_is_kept_over_a_swap(tiny: Any, on_swap: Any) -> None:
    model, chat = tiny
    other = copy.deepcopy(model)
    for parameter in other.parameters():
        parameter.data *= 1.2
    engine = TorchEngine(copy.deepcopy(model), chat.stop_ids, slots=4, on_swap=on_swap)
    asked = requests(chat, 4)
    for request in asked:
        engine.submit(request)
    turns = second_turns(chat, asked, drain(engine))
    engine.load_weights(1, other.state_dict())
    for request in turns:
        engine.submit(request)
    for key, completion in drain(engine).items():
        request = next(r for r in turns if r.key == key)
        assert completion.logprobs == pytest.approx(rescored(other, request, completion), abs=1e-4)


def test_no_more_trajectories_are_kept_than_there_are_slots_and_a_restored_engine_has_them(tiny: Any) -> None:
    model, chat = tiny
    first = TorchEngine(copy.deepcopy(model), chat.stop_ids, slots=5)
    asked = requests(chat, 17)
    for request in asked:
        first.submit(request)
    done = drain(first)
    second = TorchEngine(copy.deepcopy(model), chat.stop_ids, slots=5)
    second.load_state_dict(first.state_dict())
    before = first.prefilled
    a, b = [], []
    for engine, found in ((first, a), (second, b)):
        for request in second_turns(chat, asked, done):
            engine.submit(request)
        found.append(drain(engine))
    assert {k: c.logprobs for k, c in a[0].items()} == {k: c.logprobs for k, c in b[0].items()}
    whole = sum(len(request.prompt_ids) for request in second_turns(chat, asked, done))
    assert 0 < whole - (first.prefilled - before) < whole / 2
    assert first.prefilled == second.prefilled
