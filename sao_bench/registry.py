"""Names to classes, by walking the content folders: adding a file is all it takes to add a name.

An environment is a subclass of `TextEnv` with an `id`; an algorithm is a subclass of `Algorithm` with a
`name`. Anything else can be named as `package.module:Class`. A file that cannot be imported is left out, with one
line of warning that names it, so that it takes nothing but itself away.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import pkgutil
import traceback
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from sao_bench.errors import UserError, unknown

if TYPE_CHECKING:
    from sao_bench.algorithm import Algorithm
    from sao_bench.environment import TextEnv
    from sao_bench.executors import Executor

log = logging.getLogger("sao_bench")


@cache
def environments() -> dict[str, type[TextEnv]]:
    """Return every environment of `environments/` by id, without importing torch."""
    from sao_bench.environment import TextEnv

    return _by_name("environments", TextEnv, "id")


@cache
def algorithms() -> dict[str, type[Algorithm]]:
    """Return SAO and every algorithm of `baselines/` by name."""
    from sao_bench.algorithm import Algorithm

    sao = _in_module(importlib.import_module("sao_bench.sao"), Algorithm)
    return {**_by_name("baselines", Algorithm, "name"), **{cls.name: cls for cls in sao}}


@cache
def executors() -> dict[str, type[Executor]]:
    """Return every executor of `sao_bench/executors/` by name."""
    from sao_bench.executors import Executor

    return _by_name("executors", Executor, "name")


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


def environment_or_algorithm(name: str) -> type[TextEnv] | type[Algorithm]:
    """Return the class of an environment's id, of an algorithm's name, or of `package.module:Class`.

    Raises:
        UserError: the name is unknown; the message lists the known ones.
    """
    from sao_bench.algorithm import Algorithm
    from sao_bench.environment import TextEnv

    def known() -> dict[str, Any]:
        return {**environments(), **algorithms()}

    return cast(
        "type[TextEnv] | type[Algorithm]",
        _find("environment or algorithm", name, (TextEnv, Algorithm), known),
    )


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
    name, _, attribute = path.partition(":")
    module = _import(name, f"{what} {path!r}")
    if not hasattr(module, attribute):
        raise UserError(f"cannot import {what} {path!r}: {name} has no {attribute!r}")
    found = getattr(module, attribute)
    if not (inspect.isclass(found) and issubclass(found, base)):
        bases = base if isinstance(base, tuple) else (base,)
        names = " or ".join(f"{cls.__module__}.{cls.__name__}" for cls in bases)
        raise UserError(f"{path!r} is not a subclass of {names}")
    return found


def _by_name(folder: str, base: Any, attribute: str) -> dict[str, Any]:
    """Return the classes of a folder; of two with one name the first file's stays, and a line of warning says so."""
    found: dict[str, Any] = {}
    for cls in _classes(folder, base):
        name = getattr(cls, attribute)
        if name and name in found and found[name] is not cls:
            files = [f"{folder}/{c.__module__.rpartition('.')[2]}.py" for c in (cls, found[name])]
            log.warning("left out: %s: %s %r is that of %s too", files[0], attribute, name, files[1])
        elif name:
            found[name] = cls
    return found


def _classes(folder: str, base: Any) -> list[Any]:
    package = importlib.import_module(f"sao_bench.{folder}")
    names = [m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")]
    found = []
    for name in sorted(names):
        try:
            found += _in_module(_import(f"{package.__name__}.{name}", f"{folder}/{name}.py"), base)
        except UserError as error:
            log.warning("left out: %s", error)
    return found


def _import(module: str, what: str) -> ModuleType:
    """Import somebody's module; whatever it raises is the finding, told in one line."""
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        inside = [f for f in frames if "importlib" not in f.filename and f.filename != __file__]
        place = f", line {inside[-1].lineno} of {Path(inside[-1].filename).name}" if inside else ""
        reason = " ".join(str(error).split())
        raise UserError(f"cannot import {what}{place}: {type(error).__name__}: {reason}") from error


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
