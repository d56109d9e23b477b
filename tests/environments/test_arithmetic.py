"""Exact arithmetic: expressions, the calculator's signatures, and four notations of a number."""

from fractions import Fraction

import pytest
from sao_bench.environments._arithmetic import ExpressionError

from sao_bench.environments import _arithmetic as arithmetic
from sao_bench.environments import math_tool as mt


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12*7", 84),
        (" 2 + 3 * 4 ", 14),
        ("(2+3)*4", 20),
        ("2-3-4", -5),
        ("8/4/2", 1),
        ("1/3+1/6", Fraction(1, 2)),
        ("-3*-(2-5)", -9),
        ("0.1+0.2", Fraction(3, 10)),
        ("2(3)(4)", 24),
        ("--2", 2),
        ("(" * 50 + "1" + ")" * 50, 1),
    ],
)
def test_expressions_have_their_exact_value(text, value):
    assert arithmetic.constant(arithmetic.linear(text)) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1+",
        "*2",
        "+2",
        "(1",
        "1)",
        "()",
        "1 2",
        "1.",
        ".5",
        "1e5",
        "2**3",
        "2^3",
        "1//2",
        "1/0",
        "1/(2-2)",
        "x",
        "x-x+1/x",
        "x*x",
        "__import__('os')",
        "9" * 30,
        "1/" + "9" * 20,
        "\u0661+1",  # Arabic digit one
        "1\u00d72",
        "1+" * 60 + "1",
        "(" * 100_000,
    ],
)
def test_other_texts_have_none(text):
    with pytest.raises(ExpressionError):
        arithmetic.constant(arithmetic.linear(text))


@pytest.mark.parametrize(
    ("arguments", "signature", "value"),
    [
        ("12-7", "infix", 5),
        ("(12-7)", "infix", 5),
        ("- 12 7", "prefix", 5),
        ("(-, 12, 7)", "prefix", 5),
        ("- 12 7", "swapped", -5),
        ("/ 4 12", "swapped", 3),
        ("12 7 -", "postfix", 5),
        ("12 (3+4) -", "postfix", 5),
        ("3x+4=10", "infix", 2),
        ("10=4+3x", "infix", 2),
        ("2(x-1)=x/2", "infix", Fraction(4, 3)),
        ("= 3x+4 10", "prefix", 2),
        ("= 10 3x+4", "swapped", 2),
        ("3x-4 -10 =", "postfix", -2),
        ("x=0.5", "infix", Fraction(1, 2)),
    ],
)
def test_the_calculator_takes_its_signature(arguments, signature, value):
    assert mt.calculate(arguments, signature) == value


@pytest.mark.parametrize(
    ("arguments", "signature"),
    [
        ("- 12 7", "infix"),
        ("12 7 -", "infix"),
        ("12-7", "prefix"),
        ("12-7", "postfix"),
        ("12 7 -", "prefix"),
        ("- 12 7", "postfix"),
        ("- 12", "prefix"),
        ("- 12 7 3", "prefix"),
        ("- x 3", "prefix"),
        ("/ 1 0", "prefix"),
        ("/ 0 1", "swapped"),
        ("3x=3x", "infix"),
        ("3x=3x+1", "infix"),
        ("1=1", "infix"),
        ("x=1=1", "infix"),
        ("3x", "infix"),
        ("=", "infix"),
    ],
)
def test_the_calculator_refuses_the_rest(arguments, signature):
    with pytest.raises(ExpressionError):
        mt.calculate(arguments, signature)


@pytest.mark.parametrize(
    ("value", "decimal", "fraction", "words", "hexadecimal"),
    [
        (0, "0", "0/1", "zero", "0x0"),
        (84, "84", "84/1", "eighty-four", "0x54"),
        (-45, "-45", "-45/1", "minus forty-five", "-0x2d"),
        (Fraction(5, 2), "2.5", "5/2", "five over two", "0x5/0x2"),
        (Fraction(-1, 2), "-0.5", "-1/2", "minus one over two", "-0x1/0x2"),
        (1013, "1013", "1013/1", "one thousand thirteen", "0x3f5"),
        (990_700, "990700", "990700/1", "nine hundred ninety thousand seven hundred", "0xf1dec"),
        (Fraction(1, 3), "0.333333", "1/3", "one over three", "0x1/0x3"),
        (Fraction(-2, 3), "-0.666667", "-2/3", "minus two over three", "-0x2/0x3"),
    ],
)
def test_four_notations(value, decimal, fraction, words, hexadecimal):
    value = Fraction(value)
    written = [arithmetic.write(value, notation) for notation in arithmetic.NOTATIONS]
    assert written == [decimal, fraction, words, hexadecimal]
    assert arithmetic.read(fraction) == arithmetic.read(hexadecimal) == value
    assert arithmetic.read(words) is None


def test_no_two_numbers_are_spelled_alike():
    spelled = {arithmetic.write(Fraction(n), "words") for n in range(-11_000, 11_000)}
    assert len(spelled) == 22_000
