import gymnasium
import pytest
from gymnasium.error import ResetNeeded
from sao_bench.environments.style_writing import StyleWriting

from sao_bench import registry
from sao_bench.environment import UnicodeText, clean_text, value_of
from sao_bench.errors import UserError
from sao_bench.types import Concept
from tests.environments.test_checks import Repeat


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("", ""),
        ("a b\n\u00e9\u4e2d\U0001f600", "a b\n\u00e9\u4e2d\U0001f600"),
        ("\ud800x\udc00\0", "\ufffdx\ufffd\ufffd"),
        (None, ""),
        (3.5, ""),
        (b"bytes", ""),
        (["list"], ""),
    ],
)
def test_clean_text(text, clean):
    assert clean_text(text) == clean
    clean_text(text).encode("utf-8")


def test_long_text_keeps_head_and_tail_and_says_how_much_is_gone():
    assert clean_text("a" * 5 + "b" * 7 + "c" * 5, limit=10) == "aaaaa\n[... 7 characters cut ...]\nccccc"
    assert clean_text("x" * 10, limit=10) == "x" * 10


def test_unicode_text_holds_any_text():
    space = UnicodeText(5)
    assert "" in space and " \u00e9\n" in space
    assert "123456" not in space and None not in space and 3 not in space
    space.seed(1)
    first = [space.sample() for _ in range(20)]
    space.seed(1)
    assert first == [space.sample() for _ in range(20)]
    assert all(text in space for text in first) and len(set(first)) > 10


def test_a_concept_is_completed_and_checked():
    done = StyleWriting.complete_concept({"reward.base": 0.5})
    assert done.values["reward.base"] == 0.5
    assert done.values["reward.preference"] == "cute"
    assert len(done.values) == len(StyleWriting.channels)
    assert StyleWriting.complete_concept(None).hash == StyleWriting.default_concept().hash
    assert StyleWriting.complete_concept(Concept.of({"reward.base": 0.5}, 3)).phase == 3
    for wrong, message in (
        (
            {"reward.bse": 0.5},
            "unknown channel 'reward.bse' \\(did you mean 'reward.base'\\?\\); known: reward.pref",
        ),
        ({"reward.base": 1.5}, "channel 'reward.base': 1.5 is outside \\[0.0, 1.0\\]"),
        ({"task.offers": 2.5}, "channel 'task.offers': 2.5 is not an int"),
        ({"reward.preference": "gothic"}, "'gothic' is not one of: academic, cute"),
        ({"task.mixture": {"easy": 0.5}}, "sum to 0.5, not to 1"),
        ({"user.mixture": {"eve": 1.0}}, "'eve' is not one of: solo, ann"),
    ):
        with pytest.raises(UserError, match=message):
            StyleWriting().reset(options={"concept": wrong})
    assert value_of({}, "reward.base", StyleWriting.channels) == 0.2


def test_episodes_without_a_seed_follow_the_seeded_one():
    env = StyleWriting()
    first = [env.reset(seed=5)[0], *(env.reset()[0] for _ in range(8))]
    assert first == [env.reset(seed=5)[0], *(env.reset()[0] for _ in range(8))]
    assert len(set(first)) > 3


def test_turns_run_out_and_the_end_is_the_end():
    class Quiet(Repeat):
        def respond(self, action):
            return "", 0.0, False, False

    env = Quiet()
    with pytest.raises(ResetNeeded):
        env.step("before reset")
    env.reset(seed=0)
    assert env.step("x")[2:] == (False, False, {})
    assert env.step("x")[2:] == (False, True, {})
    with pytest.raises(ResetNeeded):
        env.step("x")


def test_a_fault_of_the_machinery_is_a_third_state():
    class Breaks(Repeat):
        def respond(self, action):
            if action == "crash":
                self.fault = {"stage": "scoring", "kind": "timeout"}
            return "", 0.0, action == "end", False

    env = Breaks()
    env.reset(seed=0)
    _, _, terminated, truncated, info = env.step("crash")
    assert (terminated, truncated) == (False, True)
    assert info == {"fault": {"stage": "scoring", "kind": "timeout"}, "reward_valid": False}
    with pytest.raises(ResetNeeded):
        env.step("x")
    assert env.reset(seed=0)[1] == {}
    assert env.step("end")[2:] == (True, False, {})


def test_every_environment_of_the_folder_is_made_by_gymnasium():
    registry.register_with_gymnasium()
    for name, cls in registry.environments().items():
        assert type(gymnasium.make(name).unwrapped) is cls
    env = gymnasium.make(StyleWriting.id, template="chat")
    assert "Mark exactly one style" in env.reset(seed=0)[0]
