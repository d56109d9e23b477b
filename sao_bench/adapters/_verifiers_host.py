"""Where `verifiers` runs, seen from a synchronous environment: an event loop in a thread, and a model that asks back.

verifiers calls a model; an environment of ours is called by one. The host turns that round: it serves an
OpenAI-compatible endpoint, and whoever plays the environment answers what verifiers asks there.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import queue
import sys
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, NamedTuple

from sao_bench.adapters import _verifiers_chat, require

vf = require("verifiers.v1", "verifiers")

CHAT = "sao_bench_chat"
"""Id of our harness; verifiers finds a plugin as a top-level module of that name."""
sys.modules.setdefault(CHAT, _verifiers_chat)


class Asked(NamedTuple):
    """The model is asked for a reply."""

    messages: list[dict[str, Any]]
    reply: asyncio.Future[str]


class Ended(NamedTuple):
    """The episode is over; `error` is what escaped from verifiers, if anything did."""

    episode: Any
    error: Exception | None = None


class Session:
    """One episode in progress."""

    def __init__(self, host: Host):
        self._host = host
        self.events: queue.Queue[Asked | Ended] = queue.Queue()
        self.asked: Asked | None = None
        self.work: asyncio.Task[None] | None = None

    def next(self, timeout_s: float) -> Asked | Ended:
        """Wait for what comes next.

        Raises:
            TimeoutError: nothing does.
        """
        try:
            event = self.events.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError(f"verifiers is silent for {timeout_s:g} s") from None
        self.asked = event if isinstance(event, Asked) else None
        return event

    def say(self, text: str) -> None:
        """Answer what was asked."""
        assert self.asked is not None
        reply, self.asked = self.asked.reply, None
        self._host.loop.call_soon_threadsafe(_settle, reply, text)

    def cancel(self) -> None:
        """Give the episode up, if it is still played."""
        asked, self.asked = self.asked, None

        def give_up() -> None:
            if self.work is not None:
                self.work.cancel()
            if asked is not None:
                _settle(asked.reply, "")

        # A finaliser may run after the loop's thread is gone, when the process ends.
        if self._host.loop.is_running():
            self._host.loop.call_soon_threadsafe(give_up)


class Host:
    """The loop, the endpoint and the environments that are being served."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="sao_bench-verifiers", daemon=True).start()
        self._sessions: dict[str, Session] = {}
        self._environments: dict[str, tuple[Any, list[Any]]] = {}
        self._held: list[asyncio.Task[None]] = []
        self._lock = threading.Lock()
        self._url = self._wait(self._listen())

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def environment(self, config: dict[str, Any], count: int | None) -> tuple[Any, list[Any]]:
        """Return the environment of a configuration, being served, and (the first `count` of) its tasks."""
        key = json.dumps([config, count], sort_keys=True, default=str)
        with self._lock:
            if key not in self._environments:
                env = vf.load_environment(vf.resolve_env_config(json.loads(json.dumps(config, default=str))))
                tasks = list(itertools.islice(env.taskset, count))
                self._wait(self._serve(env))
                self._environments[key] = (env, tasks)
        return self._environments[key]

    def play(self, env: Any, task: Any) -> Session:
        """Start an episode."""
        session = Session(self)
        traces: list[str] = []
        context = vf.ModelContext(
            model="agent", client=vf.EvalClientConfig(base_url=self._url, api_key_var="-")
        )

        def minted(trace: Any) -> None:
            traces.append(trace.id)
            self._sessions[trace.id] = session

        async def work() -> None:
            try:
                session.events.put(Ended(await env.run_episode(task, context, on_trace=minted)))
            except Exception as error:
                session.events.put(Ended(None, error))
            finally:
                for name in traces:
                    self._sessions.pop(name, None)

        async def begin() -> None:
            session.work = asyncio.create_task(work())

        self._wait(begin())
        return session

    async def _serve(self, env: Any) -> None:
        """Hold what an environment serves, for as long as the process lives, in a task of its own."""
        ready: asyncio.Future[None] = self.loop.create_future()

        async def hold() -> None:
            try:
                async with env.serving():
                    ready.set_result(None)
                    await asyncio.Event().wait()
            except Exception as error:
                if ready.done():
                    raise
                ready.set_exception(error)

        self._held.append(asyncio.create_task(hold()))
        await ready

    async def _listen(self) -> str:
        from aiohttp import web

        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/v1/chat/completions", self._complete)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}/v1"

    async def _complete(self, request: Any) -> Any:
        from aiohttp import web

        # verifiers sends the id of the trace with every request, so that one client serves all episodes.
        session = self._sessions.get(request.headers.get("X-Session-ID", ""))
        if session is None:
            return web.json_response({"error": {"message": "the episode is over"}}, status=410)
        body = await request.json()
        reply: asyncio.Future[str] = self.loop.create_future()
        session.events.put(Asked(body["messages"], reply))
        return web.json_response(_completion(body["model"], await reply))


def _settle(reply: asyncio.Future[str], text: str) -> None:
    if not reply.done():
        reply.set_result(text)


@cache
def host() -> Host:
    """Return the process's host; the first call starts it."""
    return Host()


def _completion(model: str, text: str) -> dict[str, Any]:
    """Return a chat completion as the API has it; tokens are not counted here."""
    message = {"role": "assistant", "content": text}
    return {
        "id": "sao_bench",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }
