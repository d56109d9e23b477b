"""A small OpenAI-compatible server that answers from a script: what a policy would say, with no policy."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Policy = Callable[[list[dict[str, Any]]], str]
"""Messages -> reply; a reply that ends in `CUT` is one that ran out of tokens."""

CUT = "<cut>"


class ModelServer:
    """Serves `/v1/chat/completions` until it is closed; keeps the messages of every request."""

    def __init__(self, policy: Policy):
        self.seen: list[list[dict[str, Any]]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                server.seen.append(body["messages"])
                reply = policy(body["messages"])
                answer = json.dumps(completion(body["model"], reply)).encode()
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

    def __enter__(self) -> ModelServer:
        return self

    def __exit__(self, *_: Any) -> None:
        self._http.shutdown()
        self._http.server_close()


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
