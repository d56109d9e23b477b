"""Units after a number: which words are units, and where a value ends and its unit begins."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sao_bench.grading.answers.typesetting import QUOTE, UNQUOTE
from sao_bench.grading.answers.vocabulary import word_set

SHORT = word_set(
    "m s g h l L N J W V A K C F T Hz kg mg cm mm km nm dm um ft in yd mi lb lbs oz hr hrs min mins sec secs ms mL ml "
    "cc kW kJ kN kV kHz MHz GHz eV Pa kPa atm bar mol M mph kph kmh rpm rad deg sq cu pt pts am pm USD EUR GBP ha gal "
    "qt cal kcal dB AU mm cL dL kmph fps psi nC mC mA mV mW MW GW MB GB KB TB yr yrs wk wks mo ct cts cent"
)
"""Read as units only beside plain numbers or inside `\\text{}`: elsewhere letters are variables."""
MEASURES = word_set(
    "meter metre kilometer kilometre centimeter centimetre millimeter millimetre inch inches foot feet yard mile acre "
    "hectare gram kilogram milligram ton tonne pound ounce liter litre milliliter millilitre gallon quart pint cup "
    "second minute hour day week month year decade century millisecond newton joule watt volt ampere amp kelvin "
    "celsius fahrenheit pascal hertz ohm mole degree radian unit square cubic sqft dollar cent euro penny "
    "pence yen rupee yuan franc peso buck dime nickel percent percentage point calorie byte bit knot per"
)
COUNTED = word_set(
    "apple orange banana pear peach lemon cookie cake pie egg candy person people man men woman women child children "
    "boy girl kid student teacher friend player member worker adult passenger guest customer visitor book page word "
    "letter pencil pen marble ball card coin bead stamp sticker toy box boxes bag basket bottle jar can car bus buses "
    "truck bike bicycle train trip dog cat bird fish chicken cow horse sheep pig rabbit animal duck flower tree plant "
    "rose seed ticket shirt pair piece slice item object way time step turn game match matches goal class classes "
    "lesson room house table chair seat row column side edge vertex vertices face triangle square rectangle circle "
    "diagonal angle line number integer digit solution value element subset set permutation combination "
    "arrangement outcome path route function sequence term pattern possibility possibilities choice case question "
    "problem test vote team club group block tile cube layer stick brick gift present photo picture song movie "
    "sandwich sandwiches pizza muffin cupcake doughnut donut brownie"
)
MULTIPLIERS = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
COMMANDS = frozenset([r"\Omega", r"\mu"])
SYMBOLS = "€£¥₹$"
TOKEN = re.compile(
    rf"(?P<text>{QUOTE}[^{QUOTE}{UNQUOTE}]*{UNQUOTE})|(?P<word>[a-zA-Z]+)|(?P<command>\\[a-zA-Z]+)"
    r"|(?P<power>\^\s*(?:\{\s*-?\d\s*\}|-?\d(?!\d)))|(?P<number>\d+)|(?P<space>\s+)|(?P<other>.)",
    re.S,
)
PROSE = re.compile(r"[a-zA-Z]+|[^a-zA-Z]")
PROSE_MARKS = frozenset(" ./()*^{}-2345%" + SYMBOLS)


@dataclass(frozen=True, slots=True)
class Measured:
    """A value without its unit, the factor of words such as `million`, and whether it is a percentage."""

    value: str
    factor: int = 1
    percent: bool = False


def is_unit(word: str, letters: bool) -> bool:
    """Whether a word is a unit or a counted thing; short ones only where letters are no variables."""
    if letters and (word in SHORT or word.lower() in ("cup", "ton", "day", "way")):
        return True
    lower = word.lower()
    if len(lower) < 4 and not letters:
        return False
    known = (lower, lower.removesuffix("s"), lower.removesuffix("es"))
    return lower in MULTIPLIERS or any(word in MEASURES or word in COUNTED for word in known)


def without_units(text: str, letters: bool) -> Measured:
    r"""Split `5 square metres`, `3\text{ million dollars}` or `5€` after the value.

    Args:
        text: an answer with its prose marked.
        letters: whether single letters can be units outside of prose, as beside a number.
    """
    tokens = [(match.lastgroup or "", match.group()) for match in TOKEN.finditer(text)]
    start = len(tokens)
    words: list[str] = []
    for position in range(len(tokens) - 1, -1, -1):
        kind, token = tokens[position]
        found = _unit_words(kind, token, letters)
        if found is None:
            break
        if found:
            start = position
            words += found
    value = "".join(token for _, token in tokens[:start])
    if {*words} <= {"per"} or not value.strip() or value.rstrip().endswith(("/", "*", "^", "_", "\\")):
        return Measured(text)
    factor = 1
    for word in words:
        factor *= MULTIPLIERS.get(word.lower(), 1)
    return Measured(value.strip(), factor, any(word in ("percent", "%") for word in words))


def _unit_words(kind: str, token: str, letters: bool) -> list[str] | None:
    """Return the unit words of a token, none for what may stand between units, None for anything else."""
    if kind in ("space", "power") or (kind == "other" and token in "./*·"):
        return []
    if kind == "other" and token in SYMBOLS:
        return [token]
    if kind == "command":
        return [token] if letters and token in COMMANDS else None
    if kind == "word":
        return [token] if is_unit(token, letters) else None
    if kind != "text":
        return None
    pieces = PROSE.findall(token[1:-1])
    words = [piece for piece in pieces if piece.isalpha() or piece == "%"]
    fits = all(is_unit(piece, True) if piece.isalpha() else piece in PROSE_MARKS for piece in pieces)
    return words if fits else None
