"""Computer algebra in a killable child: the last resort for formulas that `formula.parse` cannot read.

The child is started on first use, answers one question at a time and is killed at the deadline (a signal
alarm inside a library does not stop a runaway power). It dies with this process.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import select
import subprocess
import sys
import threading
import time
from typing import Any

from sao_bench.grading.answers.deadline import Deadline
from sao_bench.grading.answers.typesetting import ROW
from sao_bench.grading.answers.vocabulary import FUNCTIONS, GREEK, LISTED

DEADLINE_S = 5.0
START_DEADLINE_S = 90.0
MAX_CHARACTERS = 2000
MAX_COMMANDS = 200
BUSY = 2
"""The deadline is processor time; on a busy machine the parent waits so many times longer, and no more."""

CHILD = r"""
import ctypes, json, resource, signal, sys, time
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # die with the parent, even in the middle of a question
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
try:
    import random
    import sympy
    from math_verify import LatexExtractionConfig, parse
except ImportError as error:
    print(json.dumps({"missing": error.name}), flush=True)
    raise SystemExit(0)
def read(text):
    whole = {"extraction_config": [LatexExtractionConfig()], "fallback_mode": "no_fallback"}  # no last number of a text
    items = parse("$" + text + "$", parsing_timeout=None, **whole)
    found = [item for item in items if isinstance(item, sympy.Expr)]
    if not found or long(found[0], sympy.Product):
        return None
    value = found[0].doit()
    return None if long(value, sympy.Sum) else value

def long(formula, kind):  # a product is multiplied out term by term, and so is a sum without a closed form
    counts = [last - first for part in formula.atoms(kind) for _, first, last in part.limits]
    return any(count.is_finite and count.is_number and count > TERMS for count in counts)

def differ_widely(a, b, symbols):  # real values on both sides of the kinks that functions have
    if a.has(*OPEN) or b.has(*OPEN):
        return False
    signal.setitimer(signal.ITIMER_VIRTUAL, WIDE_S)
    try:
        for shift in range(len(WIDE)):
            point = {s: WIDE[shift * (2 * n + 1) % len(WIDE)] for n, s in enumerate(symbols)}
            x, y = (sympy.N(side.subs(point), 60) for side in (a, b))
            if x.is_real and y.is_real and abs(x - y) > sympy.Float("1e-30", 60) * max(abs(x), abs(y)):
                return True
    except Exception:
        pass  # too slow, or not defined there
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return False

def late(*_):
    raise TimeoutError

signal.signal(signal.SIGVTALRM, late)
TERMS = 10**5
WIDE_S = 0.3
OPEN = (sympy.Sum, sympy.Product, sympy.Integral, sympy.Limit, sympy.Derivative)
WIDE = [sympy.Rational(n) for n in "-1 1 -2 2 -17/2 8 -30 61/2 -151 150 -1201/2 1200 0".split()]

def same(a, b):
    a, b = read(a), read(b)
    if a is None or b is None:
        return None
    symbols = sorted(a.free_symbols | b.free_symbols, key=str)
    draw = random.Random(0)
    decided = 0
    for _ in range(6 if symbols else 1):
        point = {s: sympy.Rational(draw.randint(1, 900), 211) for s in symbols}
        x, y = (sympy.N(side.subs(point), 60) for side in (a, b))
        if not (x.is_number and y.is_number and x.is_finite and y.is_finite):
            continue
        if abs(x - y) > sympy.Float("1e-40", 60) * max(abs(x), abs(y)):
            return False
        decided += 1
    if not decided:
        return None
    return not (symbols and differ_widely(a, b, symbols))

same(r"\int_0^1 x dx", r"\sum_{k=1}^{3} k")  # what is loaded late is loaded before the first question
print(json.dumps({"ready": True}), flush=True)

for line in sys.stdin:
    question = json.loads(line)
    start = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, question["deadline_s"])
    try:
        answer = same(question["a"], question["b"])
    except Exception:
        answer = None
    signal.setitimer(signal.ITIMER_PROF, 0)
    print(json.dumps({"same": answer, "spent_s": time.process_time() - start}), flush=True)
"""


BOUNDED = r"sum|prod|int|iint|lim"
KNOWN = (
    FUNCTIONS | GREEK | LISTED | set(BOUNDED.split("|")) | {"frac", "binom", "pi", "det", "to", "rightarrow"}
) - {"partial"}
ENVIRONMENT = re.compile(r"\\(?:begin|end) ?\{[pbv]?matrix\}")
ODD = re.compile(
    r"[^\sa-zA-Z0-9+\-*/^_!(){}\[\]|.,=<>\\∞]|\.\.|(?<![\^_\d.])\d[\d.]*\s+\d|(?<![\\a-zA-Z])[a-zA-Z]{4,}"
    rf"|\\(?:{BOUNDED})(?![a-zA-Z])(?!\s*_)|\bd[a-zA-Z]\s*\}}|/\s*d[a-zA-Z]\b"
)


def askable(text: str) -> bool:
    """Whether computer algebra reads all of a formula: it drops without a word what it does not know."""
    if ENVIRONMENT.search(text):
        text = ENVIRONMENT.sub(" ", text).replace("&", ",").replace(ROW, ",") if "\\det" in text else "?"
    commands = re.findall(r"\\([a-zA-Z]*)", text)
    if len(commands) > MAX_COMMANDS:
        return False
    if not set(commands) <= KNOWN or ({"to", "rightarrow"} & set(commands) and "lim" not in commands):
        return False
    if {"int", "iint"} & set(commands) and not re.search(r"d ?\\?[a-zA-Z]", text.replace("\\", " \\")):
        return False
    if ODD.search(re.sub(rf"\\(?!(?:{BOUNDED})(?![a-zA-Z]))[a-zA-Z]+", " ", text)):
        return False
    return text.count("{") == text.count("}") and text.count("(") == text.count(")")


class UnavailableError(RuntimeError):
    """The child has no computer algebra system; `pip install sao-bench[math]` brings one."""


class Algebra:
    """One child process that says whether two LaTeX formulas are equal. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def same(self, a: str, b: str, deadline_s: float = DEADLINE_S) -> bool | None:
        """Return whether two formulas are equal; None if unknown, unreadable or past the deadline.

        Raises:
            UnavailableError: math-verify or sympy is not installed.
        """
        return self.same_by(a, b, Deadline(deadline_s))

    def same_by(self, a: str, b: str, deadline: Deadline) -> bool | None:
        """Return what `same` does; the start of the child and other threads' questions cost no time.

        Raises:
            UnavailableError: math-verify or sympy is not installed.
        """
        if max(len(a), len(b)) > MAX_CHARACTERS or not (askable(a) and askable(b)) or deadline.left() <= 0:
            return None
        with self._lock:
            child = self._running()
            answer = _asked(child, a, b, deadline.left())
            if answer is None:
                deadline.spend(deadline.left())
                self._stop()
                return None
            deadline.spend(answer["spent_s"])
            return answer["same"]

    def close(self) -> None:
        """Kill the child, if there is one."""
        with self._lock:
            self._stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            self._stop()
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-c", CHILD],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            greeting = _line(self._child, START_DEADLINE_S)
            if greeting is None or "missing" in greeting:
                self._stop()
                missing = (greeting or {}).get("missing", "a child that starts")
                raise UnavailableError(f"computer algebra needs {missing}: pip install 'sao-bench[math]'")
        return self._child

    def _stop(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None


def _asked(child: subprocess.Popen[bytes], a: str, b: str, deadline_s: float) -> dict[str, Any] | None:
    a, b = (text.replace("∞", "\\infty ").replace(ROW, "\\\\ ") for text in (a, b))
    question = json.dumps({"a": a, "b": b, "deadline_s": deadline_s}) + "\n"
    try:
        os.write(child.stdin.fileno(), question.encode())  # type: ignore[union-attr]
    except BrokenPipeError:
        return None
    return _line(child, BUSY * deadline_s)


def _line(child: subprocess.Popen[bytes], deadline_s: float) -> dict[str, Any] | None:
    """Read one JSON line from the child, or None at the deadline or at its end."""
    descriptor = child.stdout.fileno()  # type: ignore[union-attr]
    end = time.monotonic() + deadline_s
    data = b""
    while not data.endswith(b"\n"):
        if not select.select([descriptor], [], [], max(0.0, end - time.monotonic()))[0]:
            return None
        chunk = os.read(descriptor, 4096)
        if not chunk:
            return None
        data += chunk
    return json.loads(data)


ALGEBRA = Algebra()
atexit.register(ALGEBRA.close)
