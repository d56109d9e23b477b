"""The one exception a user is meant to see."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Wrong input. The command line prints its message on one line and exits with 2."""


def unknown(what: str, name: str, known: Iterable[str]) -> UserError:
    """Return the error for a name that does not exist: what it is, the nearest name, all names."""
    names = sorted(known)
    return UserError(
        f"unknown {what} {name!r}{did_you_mean(name, names)}; known: {', '.join(names) or 'none'}"
    )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the nearest known name, or an empty string."""
    names = list(known)
    inside = [k for k in names if len(name) > 2 and name.lower() in k.lower()]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6) or sorted(inside, key=len)
    return f" (did you mean {near[0]!r}?)" if near else ""
