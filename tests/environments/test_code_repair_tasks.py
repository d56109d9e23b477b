import ast
import itertools
import time

import pytest
from sao_bench.environments._code_grammar import DIFFICULTIES, FAMILIES, SHAPES, Writer, inputs
from sao_bench.environments._code_mutations import clone, mutants, neighbours, same, text_of
from sao_bench.environments._code_running import MAX_TURNS, TooLargeError, alike, run_source
from sao_bench.environments._code_tasks import (
    Example,
    RepairTask,
    TaskKey,
    build_tasks,
    judge,
    make_task,
    problems,
    split_of,
)

from sao_bench.environments import _code_cache, _code_tasks
from sao_bench.errors import UserError
from sao_bench.seeding import generator

KEYS = [
    TaskKey(0, split, family, difficulty, index)
    for split, family, difficulty, index in itertools.product(
        ("train", "test"), FAMILIES, DIFFICULTIES[:4], range(2)
    )
]
HAND = RepairTask(
    key=TaskKey(0, "train", "operator", 1, 0),
    entry="f",
    words="a over b",
    base="def f(a,b):\n return a*b\n",
    gold="def f(a,b):\n return a//b\n",
    tests=(
        Example((6, 2), None, 3, fails=True, visible=True),
        Example((0, 5), None, 0, fails=False, visible=True),
        Example((9, 3), None, 3, fails=True, visible=False),
        Example((5, 1), None, 5, fails=False, visible=False),
        Example((4, 0), "ZeroDivisionError", None, fails=True, visible=False),
    ),
    controls=("def f(a,b):\n return 3\n",),
)


def mutated(source):
    return {(family, text_of(tree)) for family, tree in mutants(ast.parse(source))}


# -- mutations -----------------------------------------------------------------------------------------------


def test_every_bug_of_a_small_function_by_hand():
    assert mutated("def f(a,b):\n return a-b\n") == {
        *(("operator", f"def f(a,b):\n return a{sign}b\n") for sign in ("+", "*", "//", "%")),
        ("variable", "def f(a,b):\n return b-b\n"),
        ("variable", "def f(a,b):\n return a-a\n"),
    }
    assert mutated("def f(a):\n return 0 if a>4 else a\n") == {
        ("constant", "def f(a):\n return 1 if a>4 else a\n"),
        ("constant", "def f(a):\n return 0 if a>5 else a\n"),
        ("constant", "def f(a):\n return 0 if a>3 else a\n"),
        ("condition", "def f(a):\n return 0 if a<=4 else a\n"),
        ("branch", "def f(a):\n return 0\n"),
        ("branch", "def f(a):\n return a\n"),
    }


def test_bugs_of_statements_by_hand():
    source = "def f(a):\n if a>2:\n  a=2\n a*=a\n return a\n"
    found = mutated(source)
    assert ("branch", "def f(a):\n a*=a\n return a\n") in found
    assert {text for family, text in found if family == "order"} == {
        "def f(a):\n a*=a\n if a>2:\n  a=2\n return a\n"
    }
    assert not any("return" in text.splitlines()[-2] for _, text in found)
    # What is called is no variable; a helper's variables are its own.
    calls = "def g(x):\n return x+x\ndef f(a,b):\n return g(a)+g(b)\n"
    assert {text for family, text in mutated(calls) if family == "variable"} == {
        "def g(x):\n return x+x\ndef f(a,b):\n return g(b)+g(b)\n",
        "def g(x):\n return x+x\ndef f(a,b):\n return g(a)+g(a)\n",
    }


def test_mutations_leave_their_tree_alone_and_neighbours_hold_the_mutants():
    for key in KEYS[::7]:
        tree = ast.parse(make_task(key).gold)
        before = ast.dump(tree)
        bugs = {ast.dump(variant) for _, variant in mutants(tree)}
        near = {ast.dump(variant) for variant in neighbours(tree)}
        assert ast.dump(tree) == before and before not in bugs
        assert bugs <= near
        assert same(tree, clone(tree)) and clone(tree).body[0] is not tree.body[0]
        next(mutants(tree))  # left half-way
        assert ast.dump(tree) == before


# -- the grammar ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_shape_fits_its_family_reads_back_and_runs(difficulty, family):
    for number, shape in enumerate(SHAPES[difficulty][family]):
        fits = 0
        for i in range(4):
            rng = generator(i, "test.shape", number)
            program = shape(Writer(rng))
            tree = ast.parse(program.source)
            assert same(tree, ast.parse(text_of(tree)))
            fits += any(found == family for found, _ in mutants(tree))
            calls = inputs(rng, program.kinds, 12)
            assert len({str(call) for call in calls}) == len(calls)
            assert len(run_source(program.source, program.entry, calls)) == len(calls)
            assert f"def {program.entry}(" in program.source and program.words
        assert fits


def test_programs_grow_with_difficulty():
    nodes = {
        d: sum(len(list(ast.walk(ast.parse(make_task(TaskKey(0, "train", f, d, 0)).gold)))) for f in FAMILIES)
        for d in DIFFICULTIES
    }
    assert sorted(nodes.values()) == list(nodes.values())
    assert nodes[5] > 4 * nodes[1]


# -- running what is trusted ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "r=9\n for x in xs:\n  r*=r\n return r",  # 9 to the power 2^8
        "r=[]\n for x in xs:\n  xs.append(x)\n return r",  # never ends
        "r=[]\n for x in xs:\n  r.append(r)\n return r",  # holds itself
        "r='ab'\n for x in xs:\n  r+=r\n return r",
        "r=0\n for i in range(xs[0]**9):\n  r+=1\n return r",
    ],
)
def test_what_grows_without_bound_is_stopped(body):
    with pytest.raises(TooLargeError):
        run_source(f"def f(xs):\n {body}\n", "f", [[[9] * 8]])


def test_outcomes_are_values_and_exceptions_and_inputs_stay():
    given = [[[3, 1]], [[]]]
    found = run_source("def f(xs):\n r=xs[0]\n xs.append(r)\n return xs\n", "f", given)
    assert found == [(None, [3, 1, 3]), ("IndexError", None)]
    assert given == [[[3, 1]], [[]]]
    assert run_source("def f(n):\n for i in range(n):\n  n+=1\n return n\n", "f", [[MAX_TURNS], [0]]) == [
        (None, 2 * MAX_TURNS),
        (None, 0),
    ]
    assert not alike((None, 1), (None, True)) and not alike((None, None), ("ValueError", None))


def test_trusted_programs_have_no_builtins():
    assert run_source("def f(a):\n return open(a)\n", "f", [["x"]]) == [("NameError", None)]


# -- tasks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_a_task_is_valid_and_its_bug_is_of_its_family(key):
    task = make_task(key)
    assert problems(task) == []
    bugs = {text_of(tree) for family, tree in mutants(ast.parse(task.gold)) if family == key.family}
    assert task.base in bugs
    assert split_of(task.gold) == key.split
    failing = [test for test in task.tests if test.fails]
    assert len(failing) >= 3 and sum(test.visible for test in failing) == 1
    assert task.tests[0].visible and task.tests[0].fails and task.tests[0].raises is None
    # Independently of `problems`: plain Python says which tests the two programs pass.
    for source, right in ((task.base, lambda test: not test.fails), (task.gold, lambda test: True)):
        space = {}
        exec(source, space)
        for test in task.tests:
            try:
                outcome = (None, space[task.entry](*ast.literal_eval(repr(test.args))))
            except Exception as error:
                outcome = (type(error).__name__, None)
            assert test.passes(outcome, exact=True) == right(test)


def test_tasks_depend_on_every_part_of_their_key_and_on_nothing_else():
    key = TaskKey(3, "train", "constant", 2, 5)
    first = make_task(key)
    make_task(TaskKey(3, "train", "constant", 2, 6))
    make_task.cache_clear()
    assert make_task(key) == first
    others = [
        make_task(TaskKey(s, "train", "constant", 2, i)).gold for s, i in ((4, 5), (3, 6), (4, 4), (2, 6))
    ]
    assert first.gold not in others and len(set(others)) == 4


def test_problems_are_found():
    assert problems(HAND) == []

    def broken(**change):
        return problems(RepairTask(**{**{n: getattr(HAND, n) for n in HAND.__dataclass_fields__}, **change}))

    assert broken(base=HAND.gold)[:1] == ["passes at the base: (6, 2)"]
    assert "the gold program fails a test" in broken(gold=HAND.base)
    assert broken(controls=(*HAND.controls, "def f(a,b):\n return a//b+0\n")) == [
        "earns without the repair: 'def f(a,b):\\n return a//b+0\\n'"
    ]
    flipped = (Example((0, 5), None, 7, fails=False, visible=False), *HAND.tests[:1])
    assert "fails at the base: (0, 5)" in broken(tests=flipped)
    assert "two tests make the same call" in broken(tests=(*HAND.tests, HAND.tests[0]))


@pytest.mark.parametrize(
    ("body", "visible", "hidden", "everything", "exact"),
    [
        ("a//b", 1, 1, 1, 1),
        ("a*b", 0, 0, 0, 0),
        ("3", 1, 0, 0, 0),
        ("3 if b else 1/0", 1, 1, 0, 0),
        ("a//b if b else []+0", 1, 1, 1, 0),
        ("a//b if b else 0", 1, 0, 0, 0),
    ],
)
def test_strictness_by_hand(body, visible, hidden, everything, exact):
    outcomes = run_source(f"def f(a,b):\n return {body}\n", "f", [test.args for test in HAND.tests])
    earned = [judge(HAND, outcomes, level)[0] for level in ("visible", "hidden", "all", "exact")]
    assert earned == [visible, hidden, everything, exact]


def test_judge_counts_what_passed():
    outcomes = [(None, 3), (None, 0), (None, 3), (None, 9), ("ZeroDivisionError", None)]
    assert judge(HAND, outcomes, "all") == (False, 3, 1)
    assert judge(HAND, outcomes, "hidden") == (True, 3, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"split": "dev"}, "task split 'dev' is not one of: train, test"),
        ({"family": "typo"}, "task family 'typo' is not one of: operator, "),
        ({"difficulty": 6}, "task difficulty 6 is not one of: 1, 2, 3, 4, 5"),
        ({"index": -1}, "index -1 must be whole numbers from 0"),
        ({"seed": True}, "task seed True"),
    ],
)
def test_a_wrong_key_is_one_clear_line(change, message):
    fields = {"seed": 0, "split": "train", "family": "order", "difficulty": 1, "index": 0}
    with pytest.raises(UserError, match=message):
        make_task(TaskKey(**{**fields, **change}))


# -- sets of tasks and the cache -----------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SAO_BENCH_CACHE", str(tmp_path))
    return tmp_path / "code_repair"


def test_a_set_comes_back_whole_from_the_cache(cache, monkeypatch):
    first = build_tasks(20, seed=1, difficulties={1: 1.0})
    assert len({task.key.name for task in first}) == 20
    assert build_tasks(0) == []
    (file,) = cache.iterdir()
    monkeypatch.setattr(_code_tasks, "make_task", None)  # nothing may be made again
    assert build_tasks(20, seed=1, difficulties={1: 1.0}) == first
    assert build_tasks(7, seed=1, difficulties={1: 1.0}) == first[:7]
    assert RepairTask.from_json(first[0].to_json()) == first[0]
    assert file.read_text().startswith('{"content":')


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"content": [], "hash": "0"}', "\udce9"])
def test_a_damaged_entry_is_built_anew(cache, damage):
    first = build_tasks(3, difficulties={1: 1.0})
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage.encode(errors="surrogateescape"))
    assert build_tasks(3, difficulties={1: 1.0}) == first
    assert file.read_bytes() == whole


def test_one_changed_character_of_an_entry_is_noticed(cache):
    calls = []

    def build():
        calls.append(1)
        return {"answer": 42}

    assert _code_cache.cached("code_repair", "q", build) == {"answer": 42}
    assert _code_cache.cached("code_repair", "q", build) == {"answer": 42}
    assert len(calls) == 1
    (file,) = cache.iterdir()
    file.write_text(file.read_text().replace("42", "43"))
    assert _code_cache.cached("code_repair", "q", build) == {"answer": 42}
    assert len(calls) == 2
    assert _code_cache.cached("code_repair", "another", build) == {"answer": 42}
    assert len(calls) == 3


def test_a_cache_that_cannot_be_written_is_slow_not_wrong(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SAO_BENCH_CACHE", str(tmp_path / "file"))
    assert _code_cache.cached("code_repair", "q", lambda: [1]) == [1]


def test_shares_of_families_and_difficulties_are_kept(cache):
    tasks = build_tasks(40, families={"order": 0.5, "branch": 0.5}, difficulties={1: 0.5, 2: 0.5})
    assert {task.key.family for task in tasks} == {"order", "branch"}
    assert {task.key.difficulty for task in tasks} == {1, 2}
    with pytest.raises(UserError, match="count -1 is not a whole number from 0"):
        build_tasks(-1)
    with pytest.raises(UserError, match="split 'dev' is not one of"):
        build_tasks(1, split="dev")


def test_the_splits_share_no_program(cache):
    train, test = (
        {task.gold for task in build_tasks(60, split=split, difficulties={1: 0.5, 2: 0.5})}
        for split in ("train", "test")
    )
    assert len(train) > 40 and len(test) > 20 and not train & test


@pytest.mark.slow
def test_a_thousand_validated_tasks_take_less_than_two_minutes(cache):
    begun = time.process_time()
    tasks = build_tasks(1000)
    assert time.process_time() - begun < 120
    assert len({task.key.name for task in tasks}) == 1000
