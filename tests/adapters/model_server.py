"""A small OpenAI-compatible server that answers from a script: what a policy would say, with no policy."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Policy = Callable[[list[dict[str, Any]]], str]
"""Messages -> reply; a reply that ends in `CUT` is one that ran out of tokens."""

CUT = "<cut>"


class ModelServer:
    """Serves `/v1/chat/completions` until it is closed; keeps the messages of every request in `seen`."""

    def __init__(self, policy: Policy):
        self.policy = policy
        self.seen: list[list[dict[str, Any]]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                answer = json.dumps(server.answer(body)).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""
        self.seen.append(body["messages"])
        return completion(body["model"], self.policy(body["messages"]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self._http.shutdown()
        self._http.server_close()


class TokenServer(ModelServer):
    """Serves tokens for tokens, as vLLM's `/inference/v1/generate`; keeps every prompt in `prompts`."""

    def __init__(self, policy: Policy, tokenizer: Any):
        self.tokenizer = tokenizer
        self.prompts: list[list[int]] = []
        super().__init__(policy)

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        self.prompts.append(body["token_ids"])
        shown = (
            self.tokenizer.decode(body["token_ids"]).rpartition("<|user|>")[2].removesuffix("<|assistant|>")
        )
        ids = self.tokenizer.encode(
            self.policy([{"role": "user", "content": shown}]), add_special_tokens=False
        )
        ids.append(self.tokenizer.eos_token_id)
        content = [{"token": f"token_id:{token}", "logprob": -0.5} for token in ids]
        choice = {"index": 0, "finish_reason": "stop", "token_ids": ids, "logprobs": {"content": content}}
        return {"request_id": "scripted", "choices": [choice]}


def completion(model: str, reply: str) -> dict[str, Any]:
    """Return a chat completion as the API has it."""
    cut = reply.endswith(CUT)
    return {
        "id": "scripted",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": reply.removesuffix(CUT)},
                "finish_reason": "length" if cut else "stop",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
