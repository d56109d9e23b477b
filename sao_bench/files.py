"""Reading and writing where a person names the path: whatever goes wrong is one line."""

from __future__ import annotations

from pathlib import Path

from sao_bench.errors import UserError

MAX_BYTES = 64_000_000


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    """Return a regular file of UTF-8 text (a byte order mark is dropped).

    Raises:
        UserError: there is none (a folder, a pipe and a device are none), it is larger than `limit` bytes, it
            cannot be read, or it is not UTF-8.
    """
    if not path.is_file():
        what = "it is not a regular file" if path.exists() else "no such file"
        raise UserError(f"cannot read {str(path)!r}: {what}")
    try:
        if path.stat().st_size > limit:
            raise UserError(f"cannot read {str(path)!r}: it has more than {limit:,} bytes")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UserError(f"cannot read {str(path)!r}: {reason}") from error


def make_folder(path: Path) -> Path:
    """Make a folder and those above it, where they are not there; return it.

    Raises:
        UserError: it cannot be made or written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {str(path)!r}: {error.strerror}") from error
    return path
