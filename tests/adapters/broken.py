"""Imports what does not exist: a package that is broken inside."""

import no_such_module  # noqa: F401
