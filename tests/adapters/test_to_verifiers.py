"""Our environments as `verifiers` tasksets: exported, loaded and played by the installed package."""

from __future__ import annotations

import asyncio
import importlib
import io
import json
import os
import subprocess
import sys
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("verifiers.v1")
import verifiers.v1 as vf

from sao_bench import registry
from sao_bench.adapters.to_verifiers import DriftEnv, DriftTaskset
from sao_bench.cli import main
from sao_bench.errors import UserError
from sao_bench.seeding import derive
from sao_bench.traces import oracle_actor, play
from tests.adapters import schedules
from tests.adapters.environments import Toll
from tests.adapters.model_server import CUT, ModelServer, TokenServer

ROOT = Path(__file__).parents[2]
TOLL = "tests.adapters.environments:Toll"


def export(*arguments: str) -> SimpleNamespace:
    """Run `python -m sao_bench export verifiers ...` in this process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        mock.patch.object(sys, "argv", ["sao_bench", "export", "verifiers", *arguments]),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return SimpleNamespace(returncode=ended.value.code, stdout=out.getvalue(), stderr=err.getvalue())


def load(folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> DriftEnv:
    """Load an exported taskset by its id, as any user of verifiers does."""
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    for module in [name for name in sys.modules if name.partition(".")[0] == folder.name]:
        del sys.modules[module]
    name = folder.name.replace("_", "-")
    config = vf.resolve_env_config({"taskset": {"id": name, **settings.pop("taskset", {})}, **settings})
    env = vf.load_environment(config)
    assert isinstance(env, DriftEnv)
    return env


def run(env: DriftEnv, model: Any, tasks: list[Any]) -> list[Any]:
    """Play tasks one after the other with the model at a URL, or of a client; returns their episodes."""
    client = vf.EvalClientConfig(base_url=model) if isinstance(model, str) else model
    context = vf.ModelContext(model="scripted", client=client)

    async def all_of_them() -> list[Any]:
        async with env.serving():
            return [await env.run_episode(task, context) for task in tasks]

    return asyncio.run(all_of_them())


def toll_policy(messages: list[dict[str, Any]]) -> str:
    """Say the number that was shown plus the tax of phase 0."""
    return messages[-1]["content"].removeprefix("n = ")


@pytest.fixture
def toll(tmp_path: Path) -> Path:
    path, name = schedules.write(tmp_path), ("--id", "toll-drift")
    result = export(TOLL, "--drift", str(path), "--out", str(tmp_path), *name, "--seed", "7")
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(tmp_path / "toll_drift")
    return tmp_path / "toll_drift"


def test_load_environment_finds_the_exported_taskset(toll: Path, monkeypatch: pytest.MonkeyPatch):
    env = load(toll, monkeypatch)
    assert isinstance(env.taskset, DriftTaskset)
    # A plain EnvConfig that names the taskset is enough, too.
    assert isinstance(vf.load_environment(vf.EnvConfig(taskset={"id": "toll-drift"})), DriftEnv)
    tasks = list(env.taskset)
    assert [task.data.idx for task in tasks] == list(range(8))
    assert [task.data.episode["phase"] for task in tasks] == [0] * 4 + [1] * 4
    for index, task in enumerate(tasks):
        own = Toll()
        observation, _ = own.reset(seed=derive(7, "train", index))
        assert task.data.prompt == observation
        assert task.data.episode["seed"] == derive(7, "train", index)
        concept = Toll.complete_concept({"tax": 3 if index >= 4 else 0})
        assert task.data.episode["concept"] == concept.hash
        assert "tax" not in task.data.model_dump_json()
    assert len({task.key for task in tasks}) == 8
    project = tomllib.loads((toll / "pyproject.toml").read_text())["project"]
    assert (project["name"], project["dependencies"]) == ("toll-drift", ["sao-bench[verifiers]"])


def test_rewards_by_turn_truncation_and_clock_are_declared(toll: Path, monkeypatch: pytest.MonkeyPatch):
    env = load(toll, monkeypatch)
    tasks = list(env.taskset)
    with ModelServer(toll_policy) as model:
        before, after = run(env, model.url, [tasks[1], tasks[6]])
    for episode, reward, score in ((before, 1.5, 1.5), (after, 0.0, 0.0)):
        (trace,) = episode.traces
        assert episode.ok
        assert trace.reward == reward
        assert trace.is_truncated  # Toll ends by running out of turns
        assert trace.num_turns == 3
        record = trace.info["sao_bench"]
        assert (record["truncated"], record["terminated"], record["stop_reason"]) == (True, False, "turns")
        assert [turn["reward"] for turn in record["turns"]] == [reward / 3] * 3
        assert [turn["latency_s"] for turn in record["turns"]] == [0.25, 0.5, 0.75]
        assert record["score"] == score
        assert trace.metrics["sao_bench/score"] == score
    assert before.traces[0].info["sao_bench"]["solved"] is True
    assert [e.traces[0].info["sao_bench"]["phase"] for e in (before, after)] == [0, 1]
    # The model was shown the observations and its own replies, and nothing else.
    for messages in model.seen:
        for message in messages:
            assert set(message) == {"role", "content"}
            assert message["content"].removeprefix("n = ").isdigit()


def test_rewards_equal_ours_for_the_same_seed_and_actions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    name = "sao_bench/StyleWriting-v0"
    path = schedules.write(tmp_path, schedules.STYLE)
    result = export(name, "--drift", str(path), "--out", str(tmp_path), "--id", "styles")
    assert result.returncode == 0, result.stderr
    env = load(tmp_path / "styles", monkeypatch)
    ours = []
    for index in range(8):
        style = "cute" if index < 4 else "classical"
        concept = {"reward.preference": style, "reward.noise": 0.5}
        ours.append(play(registry.environment(name)(), derive(0, "train", index), concept, oracle_actor))
    script = {trace.observations[0]: trace.actions[0] for trace in ours}
    assert len(script) == 8
    with ModelServer(lambda messages: script[messages[-1]["content"]]) as model:
        episodes = run(env, model.url, list(env.taskset))
    assert [e.traces[0].reward for e in episodes] == [trace.rewards[0] for trace in ours]
    assert len({trace.rewards[0] for trace in ours}) > 1
    for episode, trace in zip(episodes, ours, strict=True):
        record = episode.traces[0].info["sao_bench"]
        truth = json.loads(trace.truth)
        assert (record["score"], record["solved"], record["parts"]) == (
            truth["score"], truth["solved"], truth["parts"],
        )  # fmt: skip
        assert record["turns"][0]["latency_s"] == trace.latencies[-1]
        assert (record["terminated"], episode.traces[0].is_truncated) == (True, False)


def test_a_fault_is_an_error_and_has_no_reward(toll: Path, monkeypatch: pytest.MonkeyPatch):
    env = load(toll, monkeypatch)
    with ModelServer(lambda messages: "break") as model:
        (episode,) = run(env, model.url, [next(iter(env.taskset))])
    (trace,) = episode.traces
    assert (episode.ok, trace.ok, trace.rewards) == (False, False, {})
    assert trace.errors[0].type == "EnvironmentFaultError"
    assert trace.errors[0].message == "tool: timeout"
    record = trace.info["sao_bench"]
    assert record["fault"] == {"stage": "tool", "kind": "timeout"}
    assert (record["reward_valid"], record["stop_reason"]) == (False, "fault")


def test_the_other_sides_limits_truncate(toll: Path, monkeypatch: pytest.MonkeyPatch):
    with ModelServer(lambda messages: "stop" + CUT) as model:
        env = load(toll, monkeypatch)
        (cut,) = run(env, model.url, [next(iter(env.taskset))])
    assert cut.traces[0].is_truncated
    record = cut.traces[0].info["sao_bench"]
    assert (record["terminated"], record["truncated"], record["stop_reason"]) == (False, True, "length")
    with ModelServer(toll_policy) as model:
        env = load(toll, monkeypatch, agent={"max_turns": 2})
        (short,) = run(env, model.url, [next(iter(env.taskset))])
    assert (short.ok, short.traces[0].reward, short.traces[0].is_truncated) == (True, 1.0, True)
    record = short.traces[0].info["sao_bench"]
    assert (record["truncated"], record["stop_reason"], len(record["turns"])) == (True, "max_turns", 2)


def test_a_model_that_fails_gives_no_reward(toll: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(messages: list[dict[str, Any]]) -> str:
        raise RuntimeError("the server answers nothing")

    env = load(toll, monkeypatch)
    with ModelServer(fail) as model:
        (episode,) = run(env, model.url, [next(iter(env.taskset))])
    (trace,) = episode.traces
    assert (episode.ok, trace.rewards) == (False, {})
    record = trace.info["sao_bench"]
    assert record["fault"] == {"stage": "model", "kind": trace.errors[-1].type}
    assert (record["reward_valid"], record["stop_reason"], record["turns"]) == (False, "fault", [])


def test_a_training_client_gets_the_tokens_of_our_own_rollouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What prime-rl trains on: token ids, their mask and log-probabilities, turn by turn."""
    pytest.importorskip("renderers")
    from sao_bench.chat import ChatFormat

    model = ROOT / "sao_bench" / "checkpoints" / "math_tool"
    chat = ChatFormat.load(model)
    trace = play(registry.environment("sao_bench/MathTool-v0")(), derive(0, "train", 0), {}, oracle_actor)
    assert len(trace.actions) > 1
    script = dict(zip(trace.observations, trace.actions, strict=False))
    assert export("sao_bench/MathTool-v0", "--out", str(tmp_path), "--id", "maths").returncode == 0
    env = load(tmp_path / "maths", monkeypatch)
    with TokenServer(lambda messages: script[messages[-1]["content"]], chat.tokenizer) as server:
        client = vf.TrainClientConfig(base_url=server.url, renderer_model_name=str(model))
        (episode,) = run(env, client, [next(iter(env.taskset))])
    (found,) = episode.traces
    assert (found.errors, found.reward) == ([], sum(trace.rewards))
    history: list[int] = []
    prompts, said = [], []
    for observation, action in zip(trace.observations, trace.actions, strict=False):
        history += chat.observation_ids(observation, ended=True) if history else chat.prompt_ids(observation)
        prompts.append(list(history))
        said.append([*chat.tokenizer.encode(action, add_special_tokens=False), chat.tokenizer.eos_token_id])
        history += said[-1]
    assert server.prompts == prompts
    assert [token for node in found.nodes for token in node.token_ids] == history
    sampled = [node for node in found.nodes if node.sampled]
    assert [[t for t, mine in zip(n.token_ids, n.mask, strict=True) if mine] for n in sampled] == said
    assert [node.logprobs for node in sampled] == [[-0.5] * len(action) for action in said]
    assert not any(mine for node in found.nodes if not node.sampled for mine in node.mask)


def test_a_group_shares_tick_and_task_but_not_noise(toll: Path, monkeypatch: pytest.MonkeyPatch):
    env = load(toll, monkeypatch, taskset={"group_size": 2})
    tasks = list(env.taskset)
    assert [task.data.episode["t"] for task in tasks] == [0, 2, 4, 6]
    with ModelServer(toll_policy) as model:
        episodes = run(env, model.url, [tasks[1], tasks[1], tasks[1]])
    records = [e.traces[0].info["sao_bench"] for e in episodes]
    assert [record["index"] for record in records] == [2, 3, 2]
    assert [record["t"] for record in records] == [2, 2, 2]
    assert [record["seed"] for record in records[:2]] == [derive(7, "train", 2), derive(7, "train", 3)]
    first = {json.dumps(e.traces[0].messages[0].model_dump()) for e in episodes}
    assert len(first) == 1


def test_the_order_of_tasks_is_time(toll: Path, monkeypatch: pytest.MonkeyPatch):
    env = load(toll, monkeypatch)
    with pytest.raises(UserError, match="the order of its tasks is the drift clock; do not shuffle it"):
        env.taskset.shuffle(0)
    assert [task.data.episode["index"] for task in env.taskset.skip(3).take(2)] == [3, 4]


def test_an_endless_taskset_goes_on_with_the_last_concept(toll: Path, monkeypatch: pytest.MonkeyPatch):
    taskset = load(toll, monkeypatch, taskset={"endless": True}).taskset
    assert not taskset.bounded
    episodes = [task.data.episode for task in taskset.take(20)]
    assert [episode["index"] for episode in episodes] == list(range(20))
    assert {episode["concept"] for episode in episodes[4:]} == {Toll.complete_concept({"tax": 3}).hash}
    assert len({episode["seed"] for episode in episodes}) == 20


def test_without_a_schedule_the_world_stands_still_and_never_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    result = export(TOLL, "--out", str(tmp_path), "--set", "template=x")
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert export(TOLL, "--out", str(tmp_path), "--id", "toll-still").returncode == 0
    env = load(tmp_path / "toll_still", monkeypatch)
    assert not env.taskset.bounded
    assert {task.data.episode["phase"] for task in env.taskset.take(20)} == {0}


def test_an_edited_schedule_is_refused(toll: Path, monkeypatch: pytest.MonkeyPatch):
    path = toll / "toll_drift" / "schedule" / "drift.yaml"
    path.write_text(path.read_text().replace("at: 4", "at: 5"))
    with pytest.raises(UserError, match="not the one that was exported"):
        load(toll, monkeypatch)


def test_a_schedule_travels_with_what_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    name, drift = "sao_bench/StyleWriting-v0", ("--drift", "replay_trends")
    result = export(name, *drift, "--out", str(tmp_path), "--id", "trends")
    assert result.returncode == 0, result.stderr
    from sao_bench.drift import load as load_schedule

    env = load(tmp_path / "trends", monkeypatch)
    assert env.taskset.clock.schedule.hash == load_schedule("replay_trends").hash
    assert len(list((tmp_path / "trends").rglob("*.csv"))) >= 1


@pytest.mark.parametrize(
    ("clock", "arguments", "said"),
    [
        ("optimizer_step", (), "cannot keep the clock 'optimizer_step'; allowed: episode"),
        ("episode", ("--id", "Toll Drift"), "use lower-case letters and digits"),
        ("episode", ("--time-scale", "0"), "time scale 0.0 is not allowed"),
    ],
)
def test_a_wrong_export_is_one_line_and_writes_nothing(
    tmp_path: Path, clock: str, arguments: tuple[str, ...], said: str
):
    path, out = schedules.write(tmp_path, clock=clock), tmp_path / "out"
    result = export(TOLL, "--drift", str(path), "--out", str(out), *arguments)
    assert result.returncode == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not out.exists() or not list(out.iterdir())


def test_an_export_overwrites_nothing(toll: Path):
    result = export(TOLL, "--out", str(toll.parent), "--id", "toll-drift")
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "exists; choose another --id or --out" in result.stderr


def test_the_environment_server_plays_it(toll: Path, monkeypatch: pytest.MonkeyPatch):
    """What a trainer talks to: tasks go out as plain data, traces come back over the wire."""
    from verifiers.v1.serve.client import EnvClient
    from verifiers.v1.serve.server import EnvServer

    env = load(toll, monkeypatch)
    task = list(env.taskset)[6]

    async def served(url: str) -> Any:
        server = EnvServer(config=env.config, address="tcp://127.0.0.1:*")
        running = asyncio.create_task(server.run())
        client = EnvClient(server.address)
        try:
            return await client.run(
                task_data=task.data.model_dump(),
                client=vf.EvalClientConfig(base_url=url),
                model="scripted",
                sampling=vf.SamplingConfig(),
            )
        finally:
            await client.close()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    with ModelServer(lambda messages: str(int(toll_policy(messages)) + 3)) as model:
        episode = asyncio.run(served(model.url))
    (trace,) = episode.traces
    assert (episode.ok, trace.reward, trace.is_truncated) == (True, 1.5, True)
    assert trace.info["sao_bench"]["seed"] == derive(7, "train", 6)
    assert trace.info["sao_bench"]["phase"] == 1
    assert trace.task.data.model_extra["episode"]["concept"] == Toll.complete_concept({"tax": 3}).hash


def test_the_evaluation_program_runs_it(toll: Path, tmp_path: Path):
    with ModelServer(toll_policy) as model:
        command = [
            str(Path(sys.executable).with_name("vf-eval")),
            "toll-drift",
            "-m",
            "scripted",
            "--no-push",
        ]
        command += ["--client.base-url", model.url, "--client.api-key-var", "NO_KEY", "-o", "out"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(toll), str(ROOT)))}
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=120)
    (file,) = (tmp_path / "out").rglob("traces.jsonl")
    traces = [trace for line in file.read_text().splitlines() for trace in json.loads(line)["traces"]]
    rewards = {
        trace["info"]["sao_bench"]["index"]: trace["rewards"]["sao_bench"]["score"] for trace in traces
    }
    assert rewards == {0: 1.5, 1: 1.5, 2: 1.5, 3: 1.5, 4: 0.0, 5: 0.0, 6: 0.0, 7: 0.0}
