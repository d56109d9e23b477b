"""A `verifiers` environment as ours: one written for verifiers alone, and two of ours that went out and come back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("verifiers.v1")

from sao_bench import registry
from sao_bench.adapters.dispatch import DriftClock
from sao_bench.adapters.export_verifiers import export_verifiers
from sao_bench.adapters.from_verifiers import from_verifiers
from sao_bench.errors import UserError
from sao_bench.seeding import derive
from sao_bench.traces import Trace, oracle_actor, play, replay
from sao_bench.types import Channel
from tests.adapters import schedules
from tests.adapters.environments import Toll

SPELL = """\
import verifiers.v1 as vf


class Data(vf.TaskData):
    answer: str


class SpellTask(vf.Task[Data]):
    @vf.reward(weight=1.0)
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == self.data.answer)

    @vf.reward(weight=0.25)
    async def short(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply) < 10)

    @vf.metric
    async def length(self, trace: vf.Trace) -> float:
        if trace.last_reply == "raise":
            raise ValueError("no length")
        return float(len(trace.last_reply))


class Config(vf.TasksetConfig):
    upper: bool = False


class SpellTaskset(vf.Taskset[SpellTask, Config]):
    def load(self):
        for word in ("ant", "bee", "cat"):
            answer = word.upper() if self.config.upper else word
            yield SpellTask(Data(prompt=f"spell {word}", system_prompt="Be brief.", answer=answer))


__all__ = ["SpellTaskset"]
"""
UPPER = Channel("taskset.upper", "bool", "real", False, "capitals are wanted")
TOLL = "tests.adapters.environments:Toll"


@pytest.fixture
def spell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "tests_spell.py").write_text(SPELL)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "tests-spell"


@pytest.fixture
def toll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = schedules.write(tmp_path)
    name = f"toll-{abs(hash(tmp_path)) % 10**9}"
    monkeypatch.syspath_prepend(
        str(export_verifiers(TOLL, tmp_path, drift=path, name=name, clock=DriftClock.load(TOLL, path)))
    )
    return name


def test_a_verifiers_task_is_played_and_paid_as_there(spell: str):
    cls = from_verifiers(spell, max_turns=4, oracle=1.25, solved_score=1.25)
    env = cls()
    for index, word in enumerate(("ant", "bee", "cat")):
        trace = play(env, 0, None, replay([word]), {"idx": index})
        assert trace.observations[0] == f"Be brief.\n\nspell {word}"
        assert trace.rewards == (1.25,)
        assert trace.ends == ((True, False),)
        truth = json.loads(trace.truth)
        assert truth["solved"] is True
        assert truth["task"] == {"idx": index}
        assert truth["parts"]["rewards"] == {"right": 1.0, "short": 0.25}
        assert truth["parts"]["metrics"] == {"length": 3.0}
    assert play(env, 0, None, replay(["something long"]), {"idx": 0}).rewards == (0.0,)


def test_the_seed_decides_the_task(spell: str):
    cls = from_verifiers(spell, max_turns=4)
    first = [cls().reset(seed=seed)[0] for seed in range(12)]
    assert first == [cls().reset(seed=seed)[0] for seed in range(12)]
    assert len(set(first)) == 3
    with pytest.raises(UserError, match=r"task idx 3 is not one of 0\.\.2"):
        cls().reset(seed=0, options={"task": {"idx": 3}})


def test_a_channel_is_a_setting(spell: str):
    env = from_verifiers(spell, max_turns=4, channels=[UPPER])()
    for upper, reward in ((False, 0.25), (True, 1.25), (False, 0.25)):
        assert play(env, 0, {"taskset.upper": upper}, replay(["BEE"]), {"idx": 1}).rewards == (reward,)


def test_an_error_there_is_a_fault_here(spell: str):
    env = from_verifiers(spell, max_turns=4)()
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step("raise")
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info == {"fault": {"stage": "step", "kind": "TaskError"}, "reward_valid": False}
    assert "no length" in env.truth()["parts"]["errors"][0]


def test_many_episodes_at_once_and_abandoned_ones(spell: str):
    cls = from_verifiers(spell, max_turns=4)
    envs = [cls() for _ in range(12)]
    words = [env.reset(seed=seed)[0].split()[-1] for seed, env in enumerate(envs)]
    envs[0].reset(seed=1)  # the first one is abandoned half-way
    rewards = [env.step(word)[1] for env, word in zip(envs[1:], words[1:], strict=True)]
    assert rewards == [1.25] * 11
    assert envs[0].step(words[1])[1] == 1.25


def test_toll_goes_out_and_comes_back_the_same(toll: str):
    cls = from_verifiers(toll, max_turns=Toll.max_turns)
    for index in range(8):
        ours = play(Toll(), derive(0, "train", index), {"tax": 3 if index >= 4 else 0}, oracle_actor)
        back = play(cls(), 0, None, replay(ours.actions), {"idx": index})
        assert back.observations[:3] == ours.observations[:3]
        assert back.ends == ours.ends == ((False, False), (False, False), (False, True))
        # verifiers pays at the end; the rewards by turn come with the record.
        assert (sum(back.rewards), back.score) == (sum(ours.rewards), ours.score)
        record = json.loads(back.truth)["parts"]["record"]
        assert tuple(turn["reward"] for turn in record["turns"]) == ours.rewards
        assert (record["index"], record["phase"]) == (index, int(index >= 4))


def test_a_fault_of_ours_comes_back_as_it_was(toll: str):
    env = from_verifiers(toll, max_turns=3)()
    env.reset(seed=0, options={"task": {"idx": 0}})
    info = env.step("break")[4]
    assert info == {"fault": {"stage": "tool", "kind": "timeout"}, "reward_valid": False}


def test_style_writing_goes_out_and_comes_back_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    name, path = "sao_bench/StyleWriting-v0", schedules.write(tmp_path, schedules.STYLE)
    folder = export_verifiers(
        name, tmp_path, drift=path, name="styles-back", clock=DriftClock.load(name, path)
    )
    monkeypatch.syspath_prepend(str(folder))
    env = from_verifiers("styles-back", max_turns=1)()
    for index in range(8):
        concept = {"reward.preference": "cute" if index < 4 else "classical", "reward.noise": 0.5}
        ours = play(registry.environment(name)(), derive(0, "train", index), concept, oracle_actor)
        back = play(env, 5, None, replay(ours.actions), {"idx": index})
        assert _same(ours, back)
        assert back.score == ours.score


def _same(ours: Trace, back: Trace) -> bool:
    """Whether two traces agree but for the latency of the reset, which verifiers has no word for."""
    return (ours.observations, ours.rewards, ours.ends, ours.latencies[1:], ours.infos) == (
        back.observations,
        back.rewards,
        back.ends,
        back.latencies[1:],
        back.infos,
    )


TWO_SEATS = (
    SPELL.replace('__all__ = ["SpellTaskset"]', "")
    + """

class TwoConfig(vf.EnvConfig):
    one: vf.AgentConfig = vf.AgentConfig()
    two: vf.AgentConfig = vf.AgentConfig()


class TwoEnv(vf.Env[TwoConfig]):
    async def run(self, task, agents):
        await agents.one.run(task)


__all__ = ["SpellTaskset", "TwoEnv"]
"""
)
TOOLS = SPELL.replace(
    "    def load(self):",
    """    @classmethod
    def toolsets(cls, config):
        class Tools(vf.Toolset[vf.ToolsetConfig]):
            @vf.tool
            def echo(self, text: str) -> str:
                return text
        return [Tools(vf.ToolsetConfig())]

    def load(self):""",
)


@pytest.mark.parametrize(
    ("name", "source", "said"),
    [
        ("tests-nowhere", "", "verifiers cannot load 'tests-nowhere'"),
        ("tests-two", TWO_SEATS, "it has 2 seats (one, two); a text environment plays one"),
        ("tests-tools", TOOLS, "it has tool servers (MCP)"),
        ("tests-forever", SPELL.replace("    def load", "    INFINITE = True\n\n    def load"), "pass tasks="),
    ],
)  # fmt: skip
def test_what_cannot_be_carried_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str, said: str
):
    if source:
        (tmp_path / f"{name.replace('-', '_')}.py").write_text(source)
        monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError) as caught:
        from_verifiers(name, max_turns=2)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_channel_needs_a_place_and_few_values(spell: str):
    with pytest.raises(UserError, match="verifiers cannot load 'tests-spell'"):
        from_verifiers(spell, max_turns=2, channels=[Channel("taskset.no", "bool", "real", True, "nothing")])
    smooth = Channel("taskset.upper", "float", "real", 0.5, "continuous", 0.0, 1.0)
    with pytest.raises(UserError, match=r"'taskset\.upper' is continuous"):
        from_verifiers(spell, max_turns=2, channels=[smooth])
