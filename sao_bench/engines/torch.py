"""The `torch` engine: continuous batching over a key-value cache, for any Hugging Face causal LM.

Live requests occupy the first `len(live)` rows of the cache, without holes: when one finishes, the last
row moves into its place, so every forward pass works on a slice. One `step` is one decode round: new
requests are prefilled and give their first token, all others give their next token. A sampled token's
log-probability is exact for the distribution it was drawn from, and carries the version of the weights.

Draws do not depend on which requests share a batch: each request brings its own uniforms, one per token,
inverted through the cumulative distribution.

The cache of a finished action is kept until the weights change: the next turn of the same trajectory begins with the
same tokens, and only what is new is prefilled.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from sao_bench.models import cache_argument

StopReason = Literal["stop", "length"]

FILL_TOKENS = 4096
"""Most tokens of a pass that fills cache rows from their beginning, padding counted: what it works on stays small."""


@dataclass(slots=True)
class Request:
    """One action to sample.

    `key` is the trajectory's, in each of its turns. `prompt_ids` is the whole token history; `uniforms` has one
    number in [0, 1) per token that may be sampled, so its length is the budget of new tokens.
    """

    key: int
    prompt_ids: Sequence[int]
    uniforms: Sequence[float]


@dataclass(slots=True)
class Completion:
    """A finished action: tokens, their log-probabilities and weight versions, and why it ended."""

    key: int
    action_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    stop_reason: StopReason = "length"


@dataclass(slots=True)
class _Slot:
    request: Request
    done: Completion
    length: int
    """Tokens whose keys and values are in the cache."""

    def tokens(self) -> list[int]:
        return [*self.request.prompt_ids, *self.done.action_ids]


@dataclass(slots=True)
class _Prefix:
    """What the cache holds of a trajectory between two of its turns: tokens, and each layer's keys and values."""

    tokens: list[int]
    layers: list[tuple[Tensor, Tensor]]


class TorchEngine:
    """Samples with one copy of the weights.

    Args:
        model: the engine's own copy; `load_weights` replaces its weights.
        stop_ids: a sampled stop token ends the action and is part of it.
        slots: requests that decode together; the rest queue. As many trajectories are kept between turns.
        temperature: logits are divided by it; log-probabilities are those of the divided distribution.
        on_swap: `recompute` the cache of live requests under new weights (then every log-probability equals the
            learner's at the version it names), or `keep` the old keys and values (cheaper, and approximate).
    """

    def __init__(
        self,
        model: PreTrainedModel,
        stop_ids: Collection[int],
        *,
        slots: int = 128,
        temperature: float = 1.0,
        on_swap: Literal["recompute", "keep"] = "recompute",
    ):
        self.model = model.eval()
        self.stop_ids = frozenset(stop_ids)
        self.slots = slots
        self.temperature = temperature
        self.on_swap = on_swap
        self.version = 0
        self.queue: deque[Request] = deque()
        self.live: list[_Slot] = []
        self.prefilled = 0
        """Prompt tokens that went through the model so far."""
        self._prefixes: dict[int, _Prefix] = {}
        count = model.config.num_hidden_layers
        self._layers = [_SlotLayer(slots, last=i == count - 1) for i in range(count)]
        self._cache_argument = cache_argument(model)

    @property
    def busy(self) -> bool:
        """Whether a `step` would do anything."""
        return bool(self.live or self.queue)

    def submit(self, request: Request) -> None:
        """Queue one request; it enters a slot at the next `step` that has one free."""
        self.queue.append(request)

    def load_weights(self, version: int, state: Mapping[str, Tensor]) -> None:
        """Swap in new weights; takes effect at the next `step`, also for requests in mid-action."""
        with torch.no_grad():
            for name, target in self.model.state_dict().items():
                target.copy_(state[name])
        self.version = version
        self._prefixes.clear()
        if self.on_swap == "recompute" and self.live:
            self._fill([slot.tokens()[: slot.length] for slot in self.live], 0, want_logits=False)

    def abort(self, keys: Collection[int]) -> None:
        """Forget requests, live, queued or between two turns; their slots are free at once."""
        for key in keys:
            self._prefixes.pop(key, None)
        self.queue = deque(request for request in self.queue if request.key not in keys)
        self._release([row for row, slot in enumerate(self.live) if slot.request.key in keys])

    def step(self) -> tuple[list[Completion], int]:
        """Run one decode round over all live slots.

        Returns:
            the actions that ended in this round, and the number of prompt tokens of those that began: the cost
            model of virtual time knows no kept prefixes.
        """
        old = len(self.live)
        admitted = [self.queue.popleft() for _ in range(min(self.slots - old, len(self.queue)))]
        if not old and not admitted:
            return [], 0
        if old:
            inputs = [slot.done.action_ids[-1:] for slot in self.live]
            logits = self._extend(inputs, 0, [slot.length for slot in self.live])
            for slot in self.live:
                slot.length += 1
            self._sample(logits, self.live)
        for group in self._admit(admitted):
            starts = [slot.length for slot in group]
            inputs = [slot.tokens()[slot.length :] for slot in group]
            row = len(self.live)
            logits = self._extend(inputs, row, starts) if any(starts) else self._fill(inputs, row)
            self.prefilled += sum(map(len, inputs))
            for slot in group:
                slot.length = len(slot.request.prompt_ids)
            self.live += group
            self._sample(logits, group)
        ended = [row for row, slot in enumerate(self.live) if self._ended(slot)]
        completions = [self.live[row].done for row in ended]
        self._keep(ended)
        self._release(ended)
        return completions, sum(len(request.prompt_ids) for request in admitted)

    def just_started(self, completions: Sequence[Completion]) -> list[int]:
        """Return the keys of requests that got their first token in the last `step`, given what it completed."""
        actions = [*(slot.done for slot in self.live), *completions]
        return [action.key for action in actions if len(action.action_ids) == 1]

    def _admit(self, requests: Sequence[Request]) -> list[list[_Slot]]:
        """Return slots for the rows after the live ones: those that begin at 0, and those whose prefix is put back."""
        groups: tuple[list[_Slot], list[_Slot]] = ([], [])
        known = []
        for request in requests:
            prefix = self._prefixes.pop(request.key, None)
            if prefix is None or prefix.tokens != list(request.prompt_ids[: len(prefix.tokens)]):
                groups[0].append(_Slot(request, Completion(request.key), 0))
            else:
                groups[1].append(_Slot(request, Completion(request.key), len(prefix.tokens)))
                known.append(prefix.layers)
        row = len(self.live) + len(groups[0])
        for place, layers in enumerate(known):
            for layer, (keys, values) in zip(self._layers, layers, strict=True):
                layer.put(row + place, keys, values)
        return [group for group in groups if group]

    def _keep(self, rows: list[int]) -> None:
        """Keep what the cache holds of some rows; of more trajectories than there are slots, the oldest goes."""
        for row in rows:
            slot = self.live[row]
            layers = [layer.get(row, slot.length) for layer in self._layers]
            self._prefixes[slot.request.key] = _Prefix(slot.tokens()[: slot.length], layers)
        while len(self._prefixes) > self.slots:
            del self._prefixes[next(iter(self._prefixes))]

    def _ended(self, slot: _Slot) -> bool:
        if slot.done.action_ids[-1] in self.stop_ids:
            slot.done.stop_reason = "stop"
            return True
        return len(slot.done.action_ids) >= len(slot.request.uniforms)

    def _sample(self, logits: Tensor, slots: list[_Slot]) -> None:
        logprobs = torch.log_softmax(logits.float() / self.temperature, dim=-1).numpy()
        cumulative = np.cumsum(np.exp(logprobs, dtype=np.float64), axis=1)
        draws = np.array([slot.request.uniforms[len(slot.done.action_ids)] for slot in slots])
        targets = draws * cumulative[:, -1]
        tokens = np.minimum((cumulative <= targets[:, None]).sum(1), cumulative.shape[1] - 1)
        taken = logprobs[np.arange(len(slots)), tokens]
        for slot, token, logprob in zip(slots, tokens.tolist(), taken.tolist(), strict=True):
            slot.done.action_ids.append(token)
            slot.done.logprobs.append(logprob)
            slot.done.versions.append(self.version)

    def _extend(self, inputs: list[list[int]], row: int, starts: list[int]) -> Tensor:
        """Run tokens through rows `row`.. of the cache from positions `starts`; logits (rows, V) of each last one."""
        rows = slice(row, row + len(inputs))
        reach = max(start + len(tokens) for start, tokens in zip(starts, inputs, strict=True))
        positions = torch.tensor(starts)[:, None] + torch.arange(max(map(len, inputs)))
        visible = torch.arange(reach) <= positions[:, None, :, None]
        lowest = torch.finfo(self.model.dtype).min
        mask = torch.zeros(visible.shape, dtype=self.model.dtype).masked_fill(~visible, lowest)
        return self._forward(
            inputs, positions, mask, _View(torch.arange(row, rows.stop), positions, (rows, reach))
        )

    def _fill(self, inputs: list[list[int]], row: int, want_logits: bool = True) -> Tensor:
        """Run whole histories through rows `row`.. of the cache, like lengths together; logits (rows, V) or (0,)."""
        order = sorted(range(len(inputs)), key=lambda i: len(inputs[i]))
        found: list[Tensor] = []
        for places in _chunks(order, [len(tokens) for tokens in inputs]):
            tokens = [inputs[i] for i in places]
            positions = torch.arange(len(tokens[-1])).expand(len(tokens), -1)
            view = _View(torch.tensor(places) + row, positions, fill_only=not want_logits)
            with contextlib.suppress(_FilledError):
                # Rows that all start at 0 need no mask: plain causal attention, which has a faster kernel.
                found.append(self._forward(tokens, positions, None, view))
        return torch.cat(found)[torch.tensor(order).argsort()] if found else torch.empty(0)

    @torch.no_grad()
    def _forward(
        self, inputs: list[list[int]], positions: Tensor, mask: Tensor | None, view: _View
    ) -> Tensor:
        """Run right-padded tokens; logits (rows, V) of each row's last one."""
        width = positions.shape[1]
        ids = torch.tensor([tokens + [0] * (width - len(tokens)) for tokens in inputs])
        ends, place = torch.tensor([len(tokens) - 1 for tokens in inputs]).unique(return_inverse=True)
        for layer in self._layers:
            layer.view = view
        output = self.model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            use_cache=True,
            logits_to_keep=ends,
            **{self._cache_argument: Cache(layers=list(self._layers))},
        )
        return output.logits[torch.arange(len(inputs)), place]

    def _release(self, rows: list[int]) -> None:
        for row in sorted(rows, reverse=True):
            last = self.live.pop()
            if row < len(self.live):
                self.live[row] = last
                for layer in self._layers:
                    layer.move(len(self.live), row)

    # -- checkpoint -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next rounds depend on, the weights included, as plain data and tensors."""
        return {
            "version": self.version,
            "weights": {name: value.clone() for name, value in self.model.state_dict().items()},
            "queue": [_plain(request) for request in self.queue],
            "live": [(_plain(slot.request), asdict(slot.done), slot.length) for slot in self.live],
            "prefilled": self.prefilled,
            "prefixes": [(key, prefix.tokens, prefix.layers) for key, prefix in self._prefixes.items()],
            "cache": [layer.state_dict() for layer in self._layers],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`; the rounds that follow are bit-identical to those of the original."""
        self.model.load_state_dict(state["weights"])
        self.version = state["version"]
        self.queue = deque(Request(**request) for request in state["queue"])
        self.live = [
            _Slot(Request(**request), Completion(**done), length) for request, done, length in state["live"]
        ]
        self.prefilled = state["prefilled"]
        self._prefixes = {key: _Prefix(tokens, layers) for key, tokens, layers in state["prefixes"]}
        for layer, saved in zip(self._layers, state["cache"], strict=True):
            layer.load_state_dict(saved)


def _plain(request: Request) -> dict[str, Any]:
    return {"key": request.key, "prompt_ids": list(request.prompt_ids), "uniforms": list(request.uniforms)}


def _chunks(order: Sequence[int], lengths: Sequence[int]) -> Iterator[list[int]]:
    """Cut `order` (by rising length) into runs of at most `FILL_TOKENS` tokens, padding counted."""
    chunk: list[int] = []
    for i in order:
        if chunk and (len(chunk) + 1) * lengths[i] > FILL_TOKENS:
            yield chunk
            chunk = []
        chunk.append(i)
    if chunk:
        yield chunk


class _FilledError(Exception):
    """Ends a forward pass once the last layer has its keys and values: nothing else of it is wanted."""


@dataclass(slots=True)
class _View:
    """Where a pass writes, (row,) and (row, position), and what it reads; without `read`, only what it writes."""

    rows: Tensor
    positions: Tensor
    read: tuple[slice, int] | None = None
    """Rows, and how many of their positions."""
    fill_only: bool = False


class _SlotLayer(CacheLayerMixin):
    """One layer's keys and values, (slots, heads, length, width); grows in length as needed."""

    is_sliding = False

    def __init__(self, slots: int, last: bool) -> None:
        super().__init__()
        self.slots = slots
        self.last = last
        self.keys: Tensor
        self.values: Tensor
        self.view = _View(torch.empty(0), torch.empty(0))

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys = key_states.new_zeros(self.slots, key_states.shape[1], 0, key_states.shape[3])
        self.values = value_states.new_zeros(self.slots, value_states.shape[1], 0, value_states.shape[3])
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        view = self.view
        self._grow(int(view.positions.max()) + 1)
        index = (view.rows[:, None], slice(None), view.positions)
        self.keys[index] = key_states.transpose(1, 2)
        self.values[index] = value_states.transpose(1, 2)
        if self.last and view.fill_only:
            raise _FilledError
        if view.read is None:
            return key_states, value_states
        rows, reach = view.read
        return self.keys[rows, :, :reach], self.values[rows, :, :reach]

    def _grow(self, length: int) -> None:
        have = self.keys.shape[2]
        if length > have:
            # In steps of 64, so that growth is rare; positions past a row's length are masked.
            extra = -(-length // 64) * 64 - have
            self.keys = torch.nn.functional.pad(self.keys, (0, 0, 0, extra))
            self.values = torch.nn.functional.pad(self.values, (0, 0, 0, extra))

    def move(self, source: int, target: int) -> None:
        """Copy one row over another."""
        if self.is_initialized:
            self.keys[target] = self.keys[source]
            self.values[target] = self.values[source]

    def get(self, row: int, length: int) -> tuple[Tensor, Tensor]:
        """Return a copy of the first `length` keys and values of a row."""
        return self.keys[row, :, :length].clone(), self.values[row, :, :length].clone()

    def put(self, row: int, keys: Tensor, values: Tensor) -> None:
        """Write what `get` returned into a row."""
        length = keys.shape[1]
        self._grow(length)
        self.keys[row, :, :length], self.values[row, :, :length] = keys, values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.view.read[1] if self.view.read else self.view.positions.shape[1], 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return -1

    def state_dict(self) -> dict[str, Tensor] | None:
        return {"keys": self.keys.clone(), "values": self.values.clone()} if self.is_initialized else None

    def load_state_dict(self, state: Mapping[str, Tensor] | None) -> None:
        if state is not None:
            self.keys, self.values = state["keys"].clone(), state["values"].clone()
            self.is_initialized = True
