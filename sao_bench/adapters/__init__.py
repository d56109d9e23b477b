"""Adapters both ways: our environments for `verifiers` and OpenEnv, theirs and Gymnasium's as ours.

What the other side has no word for (truncation, faults, the drift clock, rewards per turn, the concept) travels
in declared fields, or is refused with one line; docs/ADAPTERS.md says which. Nothing here imports `verifiers` or
`openenv` before it is used.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from sao_bench.errors import UserError


def require(module: str, extra: str) -> ModuleType:
    """Import a module of an optional package.

    Raises:
        UserError: it is not installed; the line names the extra.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A module that is missing inside an installed package is somebody's bug, and stays one.
        if error.name is None or not (module + ".").startswith(error.name + "."):
            raise
        raise UserError(
            f"this adapter needs the package {module.partition('.')[0]!r}: pip install 'sao-bench[{extra}]'"
        ) from error
