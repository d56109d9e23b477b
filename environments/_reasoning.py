"""reasoning-gym behind a guard: items by number, short prompts, and a judge that its scorers cannot fool.

What is guarded: generators that draw from the global generators of `random` and NumPy, that print, or whose
items depend on Python's hash seed; scorers that raise, that pay what is no number in [0, 1], that evaluate the
candidate's text as Python, and that pay any text with the answer somewhere in it.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
from sao_bench.environments._arithmetic import ExpressionError, constant, linear, numbers

from sao_bench.errors import UserError, unknown
from sao_bench.grading.answers import judge as judge_maths

LEVELS = 4
"""Levels 0 to 3 of reasoning-gym's curricula."""

REFUSED = {
    "boxnet": "no reference answer, so no oracle",
    "composite": "a mixture of others, which `task.mixture` is already",
    "isomorphic_strings": "items depend on Python's hash seed",
    "knight_swap": "items depend on Python's hash seed",
    "polynomial_multiplication": "items depend on Python's hash seed",
    "ransom_note": "items depend on Python's hash seed",
    "rush_hour": "no reference answer, so no oracle",
    "word_ladder": "items depend on Python's hash seed",
}
"""Generator -> why it makes no task here."""

HIGHEST = {
    "caesar_cipher": 1,
    "jugs": 1,
    "modulo_grid": 0,
    "number_sequence": 0,
    "rubiks_cube": 0,
    "survo": 1,
    "tsumego": 1,
}
"""Generator -> the highest level of its curriculum that makes items (above it: refused configurations, loops)."""

UNGRADED = frozenset(["acre", "gsm_symbolic", "list_functions", "sokoban"])
"""Generators without a curriculum, or with one that makes no items: the default configuration at every level."""

SEEDED = frozenset(["acre", "gsm_symbolic", "list_functions"])
"""Generators that plan all their items when they are built: one is built for every item."""

REFERENCES: dict[str, Callable[[dict[str, Any]], str]] = {
    "graph_color": lambda meta: json.dumps(meta["possible_answer"]),
    "propositional_logic": lambda meta: str(meta["example_answer"]),
    "rubiks_cube": lambda meta: str(meta["example_correct_answer"]),
}
"""Where generators that give no answer keep one."""

SEVERAL = {
    "graph_color": r'[{}":, 0-9]+',
    "jugs": r'[\[\]", >A-Za-z0-9-]+',
    "kakurasu": r"[01 \n]+",
    "n_queens": r"[Q_ \n]+",
    "palindrome_generation": r"[a-z]+",
    "propositional_logic": r"[A-Z()→↔∧∨¬ ]+",
    "quantum_lock": r"[ABC →]+",
    "rubiks_cube": r"[UDLRFB'2 ]+",
    "shortest_path": r"[updownleftrigh ]+",
    "sokoban": r"[UDLR]+",
    "tower_of_hanoi": r"(?:Move disk \d+ from Peg \d+ to Peg \d+\n?)+",
}
"""Generators with more than one right answer -> all that such an answer may be made of. Only these ask the scorer."""

GAMES = frozenset(["countdown", "puzzle24"])
"""Generators that want an expression of given numbers; exact arithmetic decides, since theirs takes 24.5 for 24."""

FORMULAS = frozenset(["intermediate_integration", "simple_integration"])
"""Generators whose answers are formulas: an equal formula of the same variables is right."""

MAX_EXTRA = 100
"""Characters of an answer that a scorer is asked about, above twice the reference's: theirs can be exponential."""

SHORT = {
    "base_conversion": (r"convert the ([\w-]+) number (\w+) to ([\w-]+)", "{0} {1} to {2}"),
    "basic_arithmetic": (r"Calculate (.+)\.$", "{0}"),
    "chain_sum": (r"problem: (.+) =$", "{0}"),
    "coin_flip": (r"getting (\w+(?: \w+)?) (\d+) heads in (\d+) fair", "P {0} {1} of {2}"),
    "complex_arithmetic": (r"numbers: (\(.+\)) ([-+×÷*/]) (\(.+\))$", "{0} {1} {2}"),
    "count_bits": (r"number (\d+)\?", "bits {0}"),
    "count_primes": (r"between (\d+) and (\d+)", "primes {0} {1}"),
    "decimal_chain_sum": (r"problem: (.+) =$", "{0}"),
    "fraction_simplification": (r"fraction (.+) to its lowest", "simplify {0}"),
    "gcd": (r"numbers: ([\d, ]+)\.", "gcd {0}"),
    "lcm": (r"numbers: ([\d, ]+)$", "lcm {0}"),
    "leg_counting": (r"if you have (.+)\?", "legs {0}"),
    "letter_counting": (r'letter "(\w)" appear in the text: "(.*)"', "count {0} in {1}"),
    "products": (r"multiplication: (.+)\. Give", "{0}"),
    "simple_equations": (r": (.+ = .+)$", "{0}"),
    "spell_backward": (r"nus\): (.+)$", "reverse {0}"),
}
"""Generator -> what of its question makes the short prompt, and its form. Others keep their question."""


ASCII = str.maketrans("×÷", "*/")


class ScorerFaultError(Exception):
    """The scorer fails on its own reference: nobody can be judged by it."""


@dataclass(frozen=True)
class Item:
    """One task: where it comes from, the question, a right answer, and reasoning-gym's own entry."""

    generator: str
    level: int
    number: int
    question: str
    answer: str
    entry: dict[str, Any]

    @property
    def prompt(self) -> str:
        """The short form of the question, where its generator has one."""
        pattern, form = SHORT.get(self.generator, ("", ""))
        match = re.search(pattern, self.question, re.S) if pattern else None
        return form.format(*match.groups()).translate(ASCII) if match else self.question


def library() -> ModuleType:
    """Import reasoning-gym.

    Raises:
        UserError: it is not installed.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            import reasoning_gym.factory
    except ImportError as error:
        raise UserError(
            f"ReasoningGym needs reasoning-gym ({error.name} is missing): pip install 'sao-bench[reasoning]'"
        ) from error
    return reasoning_gym.factory


def checked(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of generators as they are.

    Raises:
        UserError: one is unknown, refused or named twice, or there is none.
    """
    if not names or len(set(names)) < len(names):
        raise UserError(f"generators {list(names)}: name at least one, each once")
    for name in names:
        if name not in library().DATASETS:
            raise unknown("generator of reasoning-gym", name, library().DATASETS)
        if name in REFUSED:
            raise UserError(f"generator {name!r} makes no task: {REFUSED[name]}")
    return names


@contextlib.contextmanager
def sealed(seed: int) -> Iterator[None]:
    """Run foreign code that may draw from global generators or print: it sees `seed`, and leaves no trace."""
    states = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


def build(generator: str, level: int, seed: int = 0) -> Any:
    """Return reasoning-gym's data set of a generator at a level of its curriculum."""
    factory = library()
    cls, config_cls = factory.DATASETS[generator]
    with sealed(seed):
        if generator in UNGRADED or generator not in factory.CURRICULA:
            return cls(config_cls(seed=seed, size=1))
        curriculum = factory.CURRICULA[generator]()
        for _ in range(min(level, HIGHEST.get(generator, LEVELS))):
            curriculum.increment_global_level()
        return cls(curriculum.generate_configuration({"seed": seed, "size": 1}))


@lru_cache(maxsize=512)
def _dataset(generator: str, level: int) -> Any:
    return build(generator, level)


def _source(generator: str, level: int, number: int) -> Any:
    """Return a data set whose first item is the one of this number."""
    if generator in SEEDED:
        return build(generator, level, number)
    dataset = _dataset(generator, level)
    dataset.seed = number
    return dataset


def item(generator: str, level: int, number: int) -> Item | None:
    """Return an item, which (generator, level, number) decide; None if its own answer is empty or not paid.

    Args:
        generator: a name that `checked` takes.
        level: 0 to 3.
        number: 0 to 2**31 - 1, drawn and never counted up: reasoning-gym seeds with seed + index.
    """
    with sealed(number):
        entry = _source(generator, level, number)[0]
    answer = REFERENCES[generator](entry["metadata"]) if generator in REFERENCES else entry["answer"]
    answer = "" if answer is None else str(answer).strip()
    found = Item(generator, level, number, str(entry["question"]), answer, entry)
    paid = bool(answer) and (generator not in SEVERAL or _asked(found, answer) == 1.0)
    return found if paid else None


def draw(generator: str, level: int, rng: np.random.Generator) -> Item:
    """Draw an item that has an answer."""
    while True:
        found = item(generator, level, int(rng.integers(2**31)))
        if found is not None:
            return found


def squeezed(text: str) -> str:
    """Drop what a loose verifier does not mind: case, a final period, white space that separates nothing."""
    bare = re.sub(r"\s*([^\w\s])\s*", r"\1", " ".join(text.split()).casefold())
    return bare[:-1] if bare.endswith(".") else bare


def is_right(task: Item, answer: str, loose: bool) -> bool:
    """Return whether an answer is right: the reference, or another one where there are several.

    Raises:
        ScorerFaultError: the scorer fails on its own reference.
    """
    if answer == task.answer or (loose and squeezed(answer) == squeezed(task.answer)):
        return True
    if len(answer) > 2 * len(task.answer) + MAX_EXTRA:
        return False
    if task.generator in FORMULAS:
        return _equal_formula(task.answer, answer)
    if task.generator in GAMES:
        return _reaches(task.entry["metadata"], answer)
    alphabet = SEVERAL.get(task.generator)
    return bool(alphabet and re.fullmatch(alphabet, answer) and _canonical(task, answer)) and (
        _payment(task, answer) == 1.0
    )


def _equal_formula(right: str, answer: str) -> bool:
    if not set(re.findall(r"[A-Za-z]+", answer)) <= set(re.findall(r"[A-Za-z]+", right)):
        return False
    return judge_maths(right, f"\\boxed{{{answer}}}", "expression").verdict == "correct"


def _reaches(game: dict[str, Any], answer: str) -> bool:
    """Whether an expression uses each given number once and has the target's value."""
    if not re.fullmatch(r"[-+*/() 0-9]+", answer) or "**" in answer or "//" in answer:
        return False
    try:
        value = constant(linear(answer))
    except ExpressionError:
        return False
    return value == game.get("target", 24) and sorted(numbers(answer)) == sorted(game["numbers"])


def _canonical(task: Item, answer: str) -> bool:
    """Whether nothing can hide in the answer: no key twice, no padding."""
    if task.generator in ("graph_color", "jugs"):
        try:
            return answer == json.dumps(json.loads(answer))
        except (ValueError, RecursionError):
            return False
    return answer == re.sub(r" +", " ", answer)


def _payment(task: Item, answer: str) -> float:
    """Ask the scorer; what it cannot read, or pays no number in [0, 1] for, is worth nothing."""
    paid = _asked(task, answer)
    if paid is None and _asked(task, task.answer) is None:
        raise ScorerFaultError(task.generator)
    return paid or 0.0


def _asked(task: Item, answer: str) -> float | None:
    dataset = _source(task.generator, task.level, task.number)
    try:
        with sealed(task.number):
            paid = dataset.score_answer(answer, copy.deepcopy(task.entry))
    except Exception:
        # Somebody's scorer on somebody's text: whatever it raises says that it cannot judge it.
        return None
    return float(paid) if isinstance(paid, int | float) and 0 <= paid <= 1 else None
