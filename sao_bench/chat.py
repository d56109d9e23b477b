"""Conversations to tokens and back, for any Hugging Face tokenizer and chat template.

Tokens in, tokens out: a trajectory is `prompt_ids`, an action as it was sampled, `observation_ids`, an
action, ... laid end to end. Nothing that was sampled is decoded and tokenised again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase

from sao_bench.errors import UserError

_REPLY = "[[reply]]"


class ChatFormat:
    """The token format of one tokenizer: what surrounds the texts of a conversation.

    Args:
        tokenizer: any tokenizer with or without a chat template. Without one the text itself and a newline
            are the prompt, after the tokenizer's own opening tokens (such as BOS).
        generation_config: its `eos_token_id` (one or a list) adds stop tokens.
        template_options: passed on to the chat template, such as `{"enable_thinking": False}`.

    Attributes:
        stop_ids: tokens that end an action: the tokenizer's EOS, those of the generation config, and the
            token with which the template closes a reply.
        pad_id: the padding token, or a stop token where there is none (masks come from lengths).

    Raises:
        UserError: there is no stop token, or the template does not keep the text of a reply.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        generation_config: GenerationConfig | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self._options = dict(template_options or {})
        self._added = sorted(
            (token.content for token in tokenizer.added_tokens_decoder.values()), key=len, reverse=True
        )
        self._prompt = lru_cache(maxsize=8192)(self._prompt_ids)
        self._after = lru_cache(maxsize=8192)(self._after_reply)
        stops = {*_ids(tokenizer.eos_token_id), *_ids(getattr(generation_config, "eos_token_id", None))}
        closing = self._after("")[:1] if tokenizer.chat_template else ()
        stops |= {token for token in closing if token in tokenizer.added_tokens_decoder}
        if not stops:
            raise UserError("the tokenizer names no stop token: set eos_token in its tokenizer_config.json")
        self.stop_ids: frozenset[int] = frozenset(stops)
        pad = tokenizer.pad_token_id
        self.pad_id: int = int(pad) if isinstance(pad, int) else min(stops)
        self._dropped = self.stop_ids | set(tokenizer.all_special_ids)

    @classmethod
    def load(cls, folder: str | Path, template_options: Mapping[str, Any] | None = None) -> ChatFormat:
        """Read tokenizer and generation config of a local model folder.

        Raises:
            UserError: there is no tokenizer in the folder.
        """
        if not Path(folder).is_dir():
            raise UserError(f"no tokenizer in {folder}: no such folder")
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError) as error:
            raise UserError(f"no tokenizer in {folder}: {str(error).splitlines()[0]}") from error
        saved = (Path(folder) / "generation_config.json").is_file()
        generation = GenerationConfig.from_pretrained(folder, local_files_only=True) if saved else None
        return cls(tokenizer, generation, template_options)

    def prompt_ids(self, observation: str, system: str | None = None) -> list[int]:
        """Return the tokens before the first action: system text, first observation, opening of the reply."""
        return list(self._prompt(self._plain(observation), system))

    def observation_ids(self, observation: str, ended: bool) -> list[int]:
        """Return the tokens between an action and the next one.

        Args:
            observation: what the environment answered.
            ended: whether the action's last token was a stop token; if so the closing of the reply is not
                said twice.
        """
        ids = self._after(self._plain(observation))
        return list(ids[1:] if ended and ids[:1] and ids[0] in self.stop_ids else ids)

    def decode(self, action_ids: Sequence[int]) -> str:
        """Return the text of an action, without stop and other special tokens."""
        kept = [token for token in action_ids if token not in self._dropped]
        return str(self.tokenizer.decode(kept, clean_up_tokenization_spaces=False))

    def _prompt_ids(self, observation: str, system: str | None) -> tuple[int, ...]:
        opening = [{"role": "system", "content": system}] if system is not None else []
        if self.tokenizer.chat_template:
            return self._encode(self._render([*opening, {"role": "user", "content": observation}]))
        text = "".join(f"{message['content']}\n" for message in opening) + observation + "\n"
        return tuple(self.tokenizer.encode(text, add_special_tokens=True))

    def _after_reply(self, observation: str) -> tuple[int, ...]:
        """Return what a template puts after a reply that is followed by `observation`."""
        if not self.tokenizer.chat_template:
            return self._encode(f"\n{observation}\n")
        dummy = [{"role": "user", "content": "x"}, {"role": "assistant", "content": _REPLY}]
        text = self._render([*dummy, {"role": "user", "content": observation}])
        if _REPLY not in text:
            raise UserError("the chat template leaves out the text of an assistant's reply")
        return self._encode(text.partition(_REPLY)[2])

    def _render(self, messages: list[dict[str, str]]) -> str:
        text = self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False, **self._options
        )
        return str(text)

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def _plain(self, text: str) -> str:
        """Break up the names of special tokens, so that an observation cannot speak for the assistant."""
        for name in self._added:
            if len(name) > 1 and name in text:
                text = text.replace(name, f"{name[0]} {name[1:]}")
        return text


def _ids(value: Any) -> Iterable[int]:
    if value is None:
        return ()
    return (int(value),) if isinstance(value, int) else map(int, value)
