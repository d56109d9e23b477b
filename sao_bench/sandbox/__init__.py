"""Running code that a model wrote: a ladder of isolation levels, each proven by a self-test at start.

`docker`, then `bwrap`, then `landlock` (with rlimits, a system call filter and a supervisor), then refusal.
The level reached is in every `Result`. There is no isolation inside Python itself.

Order of magnitude on one core: a bubblewrap sandbox starts in 10 ms, with a Python in 20 to 35 ms, a
Landlock one in 50 ms, a container in 300 ms. Started ahead (`Sandbox.warm`), none of that is waited for.
"""

from sao_bench.sandbox.limits import LevelName, Limits, Result, SandboxFaultError
from sao_bench.sandbox.pool import WarmPool
from sao_bench.sandbox.sandbox import Sandbox

__all__ = ["LevelName", "Limits", "Result", "Sandbox", "SandboxFaultError", "WarmPool"]
