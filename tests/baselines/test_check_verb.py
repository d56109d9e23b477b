"""`check` takes an environment, an algorithm, or the path of a class; what it does not know is one line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from sao_bench import cli
from sao_bench.algorithm_checks import CHECKS

Verb = Callable[..., tuple[Any, str, str]]


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Verb:
    def run(*arguments: str) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["sao_bench", "check", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return run


@pytest.mark.parametrize("name", ["rloo", "sao_bench.baselines.rloo:RLOO"])
def test_an_algorithm_by_name_or_by_path(check: Verb, name: str) -> None:
    status, out, _ = check(name)
    assert status == 0
    assert [line.split(":")[0] for line in out.splitlines()] == [f"ok   {promise}" for promise in CHECKS]


def test_an_environment_by_name(check: Verb) -> None:
    status, out, _ = check("sao_bench/StyleWriting-v0", "--episodes", "16")
    assert status == 0 and out.startswith("ok   declaration: sao_bench/StyleWriting-v0")


def test_a_broken_algorithm_exits_with_1(check: Verb) -> None:
    status, out, _ = check("tests.baselines.test_every_algorithm:OwnMean")
    assert status == 1
    assert [line.split(":")[0] for line in out.splitlines() if line.startswith("FAIL")] == [
        "FAIL micro-batch"
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("running_men", "unknown environment or algorithm 'running_men' (did you mean 'running_mean'?)"),
        ("StyleWriting-v0", "(did you mean 'sao_bench/StyleWriting-v0'?)"),
        ("nowhere:Thing", "cannot import environment or algorithm 'nowhere:Thing'"),
        (
            "json:JSONDecoder",
            "not a subclass of sao_bench.environment.TextEnv or sao_bench.algorithm.Algorithm",
        ),
    ],
)
def test_what_it_does_not_know_is_one_line(check: Verb, name: str, message: str) -> None:
    status, out, err = check(name)
    assert (status, out) == (2, "") and err.count("\n") == 1 and message in err
