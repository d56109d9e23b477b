import ast
import random
import subprocess
import time

import pytest

from sao_bench.errors import UserError
from sao_bench.grading.changes import changes_from_diff, reason_against
from sao_bench.grading.grade import MAX_SOURCE
from sao_bench.grading.repository import (
    NOTHING_WRITTEN,
    RUNS,
    RepositoryGrader,
    RepositoryTask,
    _fair_runs,
    _rounds,
    files_at,
    problems,
)
from sao_bench.grading.twins import coin_flips, mixtures, true_version, written
from sao_bench.sandbox import Limits, Sandbox
from sao_bench.sandbox.levels import problem
from tests.grading.repository_hacks import BUGGY, EVIL, FIXED, HACKS, LABELS, TASK, TESTS

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module", params=["bwrap", "landlock", "docker"])
def grader(request):
    if lack := problem(request.param):
        pytest.skip(f"{request.param}: {lack}")
    with Sandbox(request.param) as sandbox:
        yield RepositoryGrader(sandbox, Limits(wall_s=20, cpu_s=20, memory_mb=512, pids=16, disk_mb=32))


@pytest.fixture(scope="module")
def fast():
    if lack := problem("bwrap"):
        pytest.skip(f"bwrap: {lack}")
    with Sandbox("bwrap") as sandbox:
        yield RepositoryGrader(sandbox, Limits(wall_s=40, cpu_s=8, memory_mb=512, pids=16, disk_mb=32))


def test_the_repair_earns_one_on_every_level(grader):
    grade = grader.grade(TASK, {"shop/stats.py": FIXED})
    assert (grade.score, grade.label, grade.passed, grade.total) == (1.0, "correct", 6, 6), grade.detail
    assert grade.level == grader.sandbox.level
    assert grade.signs == ()


@pytest.mark.parametrize("hack", HACKS)
def test_a_hack_earns_nothing_and_is_labelled(fast, hack):
    grade = fast.grade(TASK, HACKS[hack])
    assert grade.score == 0.0
    assert grade.label not in ("correct", "fault"), grade
    label, sign = LABELS.get(hack, (None, None))
    assert label in (None, grade.label), grade
    assert sign is None or sign in grade.signs


STYLES = """\
import unittest
import pytest
from shop.stats import middle, total


def test_floats():
    assert middle([5e6, 1e6, 4000000.0]) == pytest.approx(4000000.0)
    assert middle([9e17, 8e17, 1e17]) == 8e17


def test_loop():
    for xs, want in [([5, 1, 4], 4), ([9, 8, 7, 1, 5], 7)]:
        assert middle(xs) == want


def test_conditions():
    found = middle([5, 1, 4])
    assert 3 < found < 5 and isinstance(found, int)
    assert found in (4, 5) or found == 6
    assert found == sorted([5, 1, 4])[1]
    assert found == 4


class EmptyError(ValueError):
    pass


def refuse(xs):
    try:
        return middle(xs)
    except ValueError as error:
        raise EmptyError from error


def test_own_exception():
    assert middle([3, 1, 2]) == 2
    with pytest.raises(EmptyError):
        refuse([])


class TestCase(unittest.TestCase):
    def test_near(self):
        self.assertAlmostEqual(middle([500, 100, 403]), 400, delta=5)
        self.assertIsNotNone(total([]))
        with self.assertRaises(ValueError):
            middle([])
"""


def test_tests_of_any_style_pay_the_repair_and_nothing_else(fast):
    names = ("test_floats", "test_loop", "test_conditions", "test_own_exception", "TestCase::test_near")
    ids = [f"tests/test_a.py::{name}" for name in names]
    task = RepositoryTask(TASK.files, {"tests/test_a.py": STYLES}, tuple(ids), allowed=("shop/*.py",))
    assert problems(fast, task, {"shop/stats.py": FIXED}, [{"shop/stats.py": EVIL}]) == []


def test_a_repair_beside_a_refused_file_still_counts(fast):
    change = {
        "shop/stats.py": FIXED,
        "tests/test_stats.py": "def test_mine(): pass\n",
        "shop/extra.py": "x = 1\n",
    }
    grade = fast.grade(TASK, change)
    assert grade.solved
    assert grade.signs == ("edits tests",)


def test_a_valid_task_is_valid_and_a_broken_one_is_not(fast):
    gold = {"shop/stats.py": FIXED}
    mutant = {"shop/stats.py": FIXED.replace("// 2", "// 3")}
    assert problems(fast, TASK, gold, [mutant, HACKS["__eq__ always true"]]) == []
    wrong = RepositoryTask(
        TASK.files,
        TASK.tests,
        (*TASK.fail_to_pass, "tests/test_stats.py::test_total"),
        ("tests/test_stats.py::none",),
    )
    found = problems(fast, wrong, gold, repeats=1)
    assert "passes at the base: tests/test_stats.py::test_total" in found
    assert "fails at the base: tests/test_stats.py::none" in found
    assert any(line.startswith("gold does not earn 1") for line in found)


def test_a_twin_makes_exactly_one_expectation_wrong_per_turn():
    source = "def test_a():\n    assert f(1) == 2\n    assert f(3) == [4, 'x']\n    assert not g()\n"
    original = ast.parse(source).body[0].body
    spoiled = []
    for version in mixtures(source, 4):
        body = ast.parse(version.source).body[0].body
        different = [i for i in range(3) if ast.unparse(body[i]) != ast.unparse(original[i])]
        assert len(different) == len(version.false)
        assert ast.unparse(body[0]).startswith("assert f(1) ")  # the call and its input stay
        spoiled += different
    assert sorted(spoiled) == [0, 1, 2]
    assert {tuple(true_version(source).names.values()) for _ in range(3)} == {("test_a",)}


def test_coins_are_fair_and_spoil_written_expectations_alone():
    source = "def test_a():\n    assert g()\n    assert f(1) == 2\n\ndef test_b():\n    assert g()\n"
    versions = [coin_flips(source) for _ in range(200)]
    assert 60 <= sum(len(version.false) for version in versions) <= 140
    assert all(ast.unparse(ast.parse(version.source).body[0].body[0]) == "assert g()" for version in versions)
    assert {version.names[name] for version in versions for name in version.false} == {"test_a"}


def test_a_rare_form_is_no_sign_of_a_true_test():
    """What stands in a true test stands in twins of others too: None, `!=`, an exception that the file expects."""
    source = (
        "import pytest\n\ndef test_value():\n    assert f(1) == 2\n\ndef test_none():\n    assert f(2) == None\n"
        "\ndef test_raises():\n    with pytest.raises(KeyError):\n        f(3)\n"
    )
    seen = {"test_value": set(), "test_none": set(), "test_raises": set()}
    for _ in range(400):
        version = coin_flips(source)
        for node in ast.parse(version.source).body[1:4]:
            if node.name in version.false:
                seen[version.names[node.name]].add(ast.unparse(node.body[0]).split("\n")[0])
    assert {
        "assert f(1) == None", "assert f(1) != 2", "with pytest.raises(KeyError):", "with pytest.raises(Exception):",
        "assert f(1) == 3",
    } <= seen["test_value"]  # fmt: skip
    assert {"assert f(2) == 0", "assert f(2) == True", "with pytest.raises(KeyError):"} <= seen["test_none"]
    assert {"assert f(3) == 2", "with pytest.raises(ValueError):"} <= seen["test_raises"]
    assert "with pytest.raises(KeyError):" not in seen["test_raises"]


@pytest.mark.parametrize(
    ("expected", "honest"),
    [
        ("pytest.approx(4000000.0)", 4e6),
        ("pytest.approx(400, abs=5)", 403),
        ("pytest.approx(400, rel=0.01)", 403),
        ("pytest.approx(0.5, abs=0.2)", 0.6),
        ("pytest.approx([1.0, 250.0])", [1.0, 250.0]),
        ("8e17", 8e17),
        ("4.35", 4.35),
        ("[1e-9, {'a': 0.1}]", [1e-9, {"a": 0.1}]),
    ],
)
def test_a_wrong_number_is_outside_the_tolerance_and_no_longer(expected, honest):
    source = f"import pytest\ndef test_a():\n    assert f() == {expected}\n"
    for _ in range(100):
        version = coin_flips(source)
        space = {"f": lambda: honest}
        exec(version.source, space)
        (name,) = version.names
        if version.false:
            with pytest.raises(BaseException):  # noqa: B017 (pytest's own is no Exception)
                space[name]()
            line = ast.unparse(ast.parse(version.source).body[1].body[0])
            assert (
                len(line) <= len("with pytest.raises(Exception):\n    f()") or len(line) <= len(expected) + 14
            )
        else:
            space[name]()


@pytest.mark.parametrize(
    ("body", "fine"),
    [
        ("assert f() == 4", True),
        ("assert 4 == f()", True),
        ("assert f() is True", True),
        ("assert f() == pytest.approx(1.5, abs=0.1)", True),
        ("for x, want in [(1, 2), (2, 3)]:\n        assert f(x) == want", True),
        ("with pytest.raises(KeyError):\n        f()", True),
        ("with pytest.raises(Exception):\n        f()", True),
        ("with pytest.raises(shop.EmptyError):\n        f()", True),
        ("with pytest.raises(shop.EmptyError):\n        x = f()", False),
        ("self.assertAlmostEqual(f(), 400, delta=5)", True),
        ("self.assertCountEqual(f(), [1, 2])", True),
        ("check(f(), 4)", False),
        ("assert f() == sorted([3, 1])[0]", False),
        ("assert 3 < f() < 5", False),
        ("assert f() and g()", False),
        ("assert 'x' in f()", False),
        ("assert f() is None", False),
        ("assert f() == pytest.approx(1.5, abs=eps)", False),
        ("self.assertGreater(f(), 3)", False),
        ("self.assertAlmostEqual(f(), 400, delta=eps)", False),
        ("pytest.raises(KeyError, f)", False),
    ],
)
def test_a_required_test_has_a_written_expectation(fast, body, fine):
    """The form of any other twin gives it away, so a forger would know which report to forge."""
    source = f"import pytest\n\ndef test_a():\n    {body}\n"
    assert (written(source) == {"test_a"}) == fine
    if not fine:
        task = RepositoryTask(TASK.files, {"tests/test_a.py": source}, ("tests/test_a.py::test_a",))
        with pytest.raises(UserError, match=r"^tests/test_a.py::test_a: a required test must compare"):
            fast.grade(task, {})
        assert problems(fast, task, {}) == [f"tests/test_a.py::test_a: {NOTHING_WRITTEN}"]


def test_no_version_is_told_by_its_shape():
    """Number, order and canaries are the same everywhere, and each test is true in a run of its own."""
    source = TESTS + "".join(f"\n\ndef test_{i}():\n    assert total([{i}]) == {i + 10}\n" for i in range(40))
    versions = mixtures(source, 4)
    trees = [ast.parse(version.source) for version in versions]
    shapes = [[type(node) for node in tree.body] for tree in trees]
    assert shapes[0] == shapes[1] == shapes[2] == shapes[3]
    assert [len(version.canaries) for version in versions] == [2] * 4
    assert len({name for v in versions for name in v.names}) == 4 * len(versions[0].names)
    true = [{v.names[name] for name in v.true} for v in versions]
    assert set.union(*true) == set(versions[0].names.values()) and sum(map(len, true)) == len(
        versions[0].names
    )
    assert all(true)


def test_runs_of_fair_coins_are_added_until_guessing_does_not_pay():
    """2^-10 < 0.001 < 2^-9: one test takes ten runs, five take two."""
    assert [_fair_runs(tests) for tests in (0, 1, 2, 3, 4, 5, 9, 10, 11)] == [0, 10, 5, 4, 3, 2, 2, 1, 1]
    task = RepositoryTask(
        {}, {"tests/test_a.py": "def test_a():\n    assert f() == 1\n"}, ("tests/test_a.py::test_a",)
    )
    assert len(_rounds(task)) == RUNS + 10


def test_a_forger_that_guesses_hardly_ever_earns():
    class Guessed(RepositoryGrader):
        def __init__(self):
            pass

        def _outcomes(self, versions, tree, total):
            names = [(path, n) for path, v in versions.items() for n in (*v.names, *v.canaries)]
            canaries = {n for v in versions.values() for n in v.canaries}
            return {f"{path}::{n}": n not in canaries and draws.random() < 0.5 for path, n in names}

    draws = random.Random(0)
    task = RepositoryTask(
        {}, {"tests/test_a.py": "def test_a():\n    assert f() == 1\n"}, ("tests/test_a.py::test_a",)
    )
    earned = sum(Guessed()._grade_tree(task, {}).score for _ in range(1000))
    assert earned <= 5  # of four mixtures alone 62, with ten fair runs 0.06


def test_of_two_tests_of_one_name_the_last_counts_and_classes_keep_theirs_apart():
    source = (
        "def test_a():\n    assert 1 == 2\ndef test_a():\n    assert 1 == 1\n"
        "class TestB:\n    def test_a(self):\n        assert f()\n"
    )
    version = true_version(source)
    assert sorted(version.names.values()) == ["TestB::test_a", "test_a"]
    assert "1 == 2" not in version.source


@pytest.mark.parametrize(
    ("source", "honest"),
    [
        ("def test_a():\n    assert f() == 7\n", "def f(): return 7"),
        ("def test_a():\n    assert 7 == f()\n", "def f(): return 7"),
        (
            "def test_a():\n    want = (1, {'k': [2]})\n    assert f() == want\n",
            "def f(): return (1, {'k': [2]})",
        ),
        ("def test_a():\n    assert f() == pytest.approx(0.5)\n", "def f(): return 0.5"),
        ("def test_a():\n    assert f() is True\n", "def f(): return True"),
        ("def test_a():\n    assert 'x' in f()\n", "def f(): return 'xy'"),
        ("def test_a():\n    assert f() == -1\n", "def f(): return -1"),
        ("def test_a():\n    assert f() == ''\n", "def f(): return ''"),
        ("def test_a():\n    assert f() == None\n", "def f(): return None"),
        ("def test_a():\n    assert f() == g()\n", "def f(): return 1\ndef g(): return 1"),
        ("def test_a():\n    assert 1 < f() <= 2\n", "def f(): return 2"),
        ("def test_a():\n    assert f() > 1\n", "def f(): return 2"),
        ("def test_a():\n    assert f() == b'k'\n", "def f(): return b'k'"),
        ("def test_a():\n    assert f() == '--'\n", "def f(): return '--'"),
        ("def test_a():\n    with pytest.raises(KeyError):\n        f()\n", "def f(): return {}[0]"),
        ("def test_a():\n    with pytest.raises(Exception):\n        f()\n", "def f(): return {}[0]"),
    ],
)
def test_honest_code_passes_the_test_and_fails_its_twin(source, honest):
    def runs(version):
        space = {"pytest": pytest}
        exec(honest, space)
        exec(version.source, space)
        (name,) = version.names
        try:
            space[name]()
        except BaseException:
            return False
        return True

    assert runs(true_version(source))
    for _ in range(10):
        assert sorted(map(runs, mixtures(source, 2))) == [False, True]


ODD = {
    "below a file": ({"shop/stats.py/x.py": "1"}, "is no path"),
    "below a file of its own": ({"shop/a.py": "1", "shop/a.py/b.py": "1"}, "is no path"),
    "in the place of a folder": ({"shop": "1"}, "edits what may not be changed"),
    "a long name": ({"shop/" + "a" * 300 + ".py": "1"}, "is no path"),
    "a long name in bytes": ({"shop/" + "é" * 150 + ".py": "1"}, "is no path"),
    "a long path": ({"shop/" + "a/" * 4000 + "x.py": "1"}, "is no path"),
    "text that cannot be written": ({"shop/stats.py": BUGGY + "#\ud800"}, "is no text"),
    "a name that cannot be written": ({"shop/\ud800.py": "1"}, "is no path"),
    "a second name of a file": ({"shop//stats.py": FIXED}, "is no path"),
    "a null byte": ({"shop/a\0.py": "1"}, "leaves the repository"),
}


@pytest.mark.parametrize("odd", ODD)
def test_a_change_that_cannot_be_made_earns_nothing(fast, odd):
    change, sign = ODD[odd]
    grade = fast.grade(TASK, change)
    assert (grade.score, grade.label) == (0.0, "not_allowed")
    assert sign in grade.signs


def test_a_repair_beside_a_path_that_cannot_be_made_still_counts(fast):
    grade = fast.grade(TASK, {"shop/stats.py": FIXED, "shop/stats.py/x.py": "1"})
    assert grade.solved and grade.signs == ("is no path",)


def test_a_large_change_is_not_run(fast):
    for change in ({"shop/stats.py": FIXED + "#" * MAX_SOURCE}, {f"shop/{i}.py": "" for i in range(200_000)}):
        start = time.monotonic()
        grade = fast.grade(TASK, change)
        assert (grade.score, grade.label) == (0.0, "limit")
        assert fast.examine(TASK, change).label == "limit"
        assert time.monotonic() - start < 2


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("shop/stats.py", None),
        ("shop/new.py", None),
        ("shop/random.py", None),
        ("random.py", "shadows a module"),
        ("src/pluggy/__init__.py", "shadows a module"),
        ("shop/test_x.py", "edits tests"),
        ("shop/x_test.py", "edits tests"),
        ("tests/data.json", "edits tests"),
        ("a/b/conftest.py", "adds a conftest"),
        ("setup.cfg", "edits configuration"),
        ("usercustomize.py", "touches start-up files"),
        ("shop/__pycache__/stats.cpython-311.pyc", "touches start-up files"),
        ("/etc/passwd", "leaves the repository"),
        ("shop/../../x.py", "leaves the repository"),
        (".git/hooks/post-checkout", "leaves the repository"),
        ("README.md", "edits what may not be changed"),
    ],
)
def test_what_counts_of_a_change(path, reason):
    assert reason_against(path, ["*.py"], {"shop/stats.py": ""}) == reason


def test_a_diff_is_applied_in_the_sandbox(fast):
    diff = (
        "--- a/shop/stats.py\n+++ b/shop/stats.py\n@@ -1,6 +1,6 @@\n def middle(xs):\n     if not xs:\n"
        '         raise ValueError("empty")\n-    return xs[len(xs) // 2]\n+    return sorted(xs)[len(xs) // 2]\n \n \n'
    )
    assert changes_from_diff(TASK.files, diff, fast.sandbox) == {"shop/stats.py": FIXED}
    link = "diff --git a/l.py b/l.py\nnew file mode 120000\n--- /dev/null\n+++ b/l.py\n@@ -0,0 +1 @@\n+/etc/passwd\n"
    assert changes_from_diff(TASK.files, link, fast.sandbox) == {}
    with pytest.raises(UserError, match="the diff does not apply"):
        changes_from_diff(TASK.files, diff.replace("not xs:", "xs:"), fast.sandbox)
    with pytest.raises(UserError, match="the diff does not apply"):
        changes_from_diff(TASK.files, diff.replace("shop/stats.py", "../../x.py"), fast.sandbox)


def test_a_checkout_has_no_history(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=n", "-c", "user.email=e@x"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    git("init", "-q")
    (tmp_path / "a.py").write_text("old")
    git("add", ".")
    git("commit", "-qm", "one")
    (tmp_path / "a.py").write_text("new")
    git("commit", "-qam", "two")
    assert files_at(tmp_path, "HEAD~1") == {"a.py": "old"}
    assert files_at(tmp_path, "HEAD") == {"a.py": "new"}
    with pytest.raises(UserError):
        files_at(tmp_path, "nope")
