"""Small schedules from bug reports of other projects: each file's first line says what must come out."""

from collections import Counter
from pathlib import Path

import pytest

from sao_bench.drift import load
from sao_bench.errors import UserError

CASES = Path(__file__).parent / "cases"
REFUSED = {
    "duplicate_key": ":7:1: duplicate key 'horizon' (lines 6 and 7)",
    "never_fires": ":11:14: the event at 1500 lies past the horizon of 1000 and can never fire",
    "unknown_key": ":8:36: unknown key 'evnts' in channel `reward.preference` (did you mean 'events'?)",
}


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_case_comes_out_as_its_first_line_says(path):
    verdict = path.read_text().partition(":")[0]
    if path.stem in REFUSED:
        assert verdict == "# refused"
        with pytest.raises(UserError) as error:
            load(path)
        assert REFUSED[path.stem] in str(error.value)
    else:
        assert verdict == "# accepted"
        load(path)


def test_a_mix_leaks_nothing_at_its_edges():
    at = load(CASES / "closing_edge.yaml").at
    values = [at(t).values["reward.preference"] for t in range(1000)]
    old, new = values[0], values[-1]
    assert old != new and set(values) == {old, new}
    assert set(values[:400]) == {old} and set(values[600:]) == {new}
    quarters = [Counter(values[start : start + 50])[new] for start in range(400, 600, 50)]
    assert quarters == sorted(quarters) and 0 < quarters[0] + quarters[1] < quarters[2] + quarters[3] < 100


def test_an_exponent_is_a_number():
    at = load(CASES / "exponent_number.yaml").at
    assert [at(t).values["reward.noise"] for t in (0, 99, 100, 999)] == [1e-5, 1e-5, 0.2, 0.2]
