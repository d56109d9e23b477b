"""A `verifiers` harness that is one chat completion per turn, in the process of the environment server.

The bundled harnesses launch a program in a runtime for every turn; an environment over text needs none.
"""

from __future__ import annotations

from typing import Any

from sao_bench.adapters import require

vf = require("verifiers.v1", "verifiers")

TIMEOUT_S = 3600.0
"""Longest wait for one reply; the agent's own time limits are shorter where they are set."""


class ChatHarnessConfig(vf.HarnessConfig):  # type: ignore[name-defined]
    """No settings of its own."""


class ChatHarness(vf.Harness[ChatHarnessConfig]):  # type: ignore[name-defined]
    """One request to the model per segment, over the interception endpoint; it runs no code and needs no runtime."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: Any,
        **_: Any,
    ) -> Any:
        """Ask the model once; a refused or failed request is the exit code 1 (the trace holds the cause)."""
        import httpx
        from verifiers.v1.dialects.chat import message_to_wire

        system, prompt = self.resolve_prompt(data)
        messages = [] if system is None else [{"role": "system", "content": system}]
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message_to_wire(message) for message in prompt or []]
        # Reading the certificates takes longer than a turn; the endpoint is mostly plain HTTP on this host.
        secure = endpoint.startswith("https:")
        async with httpx.AsyncClient(timeout=TIMEOUT_S, verify=secure) as client:
            answer = await client.post(
                f"{endpoint}/chat/completions",
                headers={"authorization": f"Bearer {secret}"},
                json={"model": ctx.model, "messages": messages},
            )
        failed = answer.is_error
        return vf.ProgramResult(exit_code=int(failed), stdout="", stderr=answer.text if failed else "")


__all__ = ["ChatHarness"]
