"""Names to classes, by walking the content folders: adding a file is all it takes to add a name.

An environment is a subclass of `TextEnv` with an `id`; an algorithm is a subclass of `Algorithm` with a
`name`. Anything else can be named as `package.module:Class`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from sao_bench.errors import UserError, unknown

if TYPE_CHECKING:
    from sao_bench.algorithm import Algorithm
    from sao_bench.environment import TextEnv
    from sao_bench.executors import Executor


@cache
def environments() -> dict[str, type[TextEnv]]:
    """Return every environment of `environments/` by id, without importing torch."""
    from sao_bench.environment import TextEnv

    return {cls.id: cls for cls in _classes("environments", TextEnv) if cls.id}


@cache
def algorithms() -> dict[str, type[Algorithm]]:
    """Return SAO and every algorithm of `baselines/` by name."""
    from sao_bench.algorithm import Algorithm

    found = [
        *_classes("baselines", Algorithm),
        *_in_module(importlib.import_module("sao_bench.sao"), Algorithm),
    ]
    return {cls.name: cls for cls in found if cls.name}


@cache
def executors() -> dict[str, type[Executor]]:
    """Return every executor of `sao_bench/executors/` by name."""
    from sao_bench.executors import Executor

    return {cls.name: cls for cls in _classes("executors", Executor) if cls.name}


@cache
def schedules() -> dict[str, Path]:
    """Return the shipped drift schedules by file stem."""
    import sao_bench.drift_schedules as folder

    return {path.stem: path for path in sorted(Path(folder.__path__[0]).glob("*.yaml"))}


def environment(name: str) -> type[TextEnv]:
    """Return the environment class of an id or of `package.module:Class`.

    Raises:
        UserError: the name is unknown; the message lists the known ones.
    """
    from sao_bench.environment import TextEnv

    return _find("environment", name, TextEnv, environments)


def algorithm(name: str) -> type[Algorithm]:
    """Return the algorithm class of a name or of `package.module:Class`.

    Raises:
        UserError: the name is unknown; the message lists the known ones.
    """
    from sao_bench.algorithm import Algorithm

    return _find("algorithm", name, Algorithm, algorithms)


def executor(name: str) -> type[Executor]:
    """Return the executor class of a name or of `package.module:Class`.

    Raises:
        UserError: the name is unknown; the message lists the known ones.
    """
    from sao_bench.executors import Executor

    return _find("executor", name, Executor, executors)


def _find(what: str, name: str, base: Any, known: Any) -> Any:
    if ":" in name:
        return _import_class(what, name, base)
    if name not in known():
        raise unknown(what, name, known())
    return known()[name]


def _import_class(what: str, path: str, base: Any) -> Any:
    module, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"cannot import {what} {path!r}: {error}") from error
    if not (inspect.isclass(found) and issubclass(found, base)):
        raise UserError(f"{path!r} is not a subclass of {base.__module__}.{base.__name__}")
    return found


def _classes(folder: str, base: Any) -> list[Any]:
    package = importlib.import_module(f"sao_bench.{folder}")
    names = [m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")]
    return [
        cls
        for name in sorted(names)
        for cls in _in_module(importlib.import_module(f"{package.__name__}.{name}"), base)
    ]


def _in_module(module: ModuleType, base: Any) -> list[Any]:
    def own(item: Any) -> bool:
        inside = getattr(item, "__module__", "")
        return (
            inspect.isclass(item)
            and issubclass(item, base)
            and (inside + ".").startswith(module.__name__ + ".")
        )

    return [cls for _, cls in inspect.getmembers(module, own)]


def register_with_gymnasium() -> None:
    """Make every environment of the folder reachable through `gymnasium.make`."""
    import gymnasium

    for name, cls in environments().items():
        if name not in gymnasium.registry:
            gymnasium.register(
                id=name, entry_point=cast(Any, cls), disable_env_checker=True, order_enforce=False
            )
