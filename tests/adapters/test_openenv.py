"""An OpenEnv server of ours, really started and played through OpenEnv's own client; and back as ours."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openenv.core")
from openenv.core import GenericEnvClient

from sao_bench import registry
from sao_bench.adapters.dispatch import DriftClock
from sao_bench.adapters.from_openenv import from_openenv
from sao_bench.errors import UserError
from sao_bench.seeding import derive
from sao_bench.traces import oracle_actor, play, replay
from tests.adapters import schedules
from tests.adapters.environments import Toll

ROOT = Path(__file__).parents[2]


class Server:
    """`python -m sao_bench serve openenv ...` on a free port."""

    def __init__(self, *arguments: str):
        command = [sys.executable, "-m", "sao_bench", "serve", "openenv", *arguments, "--port", "0"]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.url = line.split()[-1]
        deadline = time.monotonic() + 30
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=1).read()
                return
            except OSError:
                assert time.monotonic() < deadline, line
                time.sleep(0.05)

    def client(self) -> Any:
        return GenericEnvClient(base_url=self.url, message_timeout_s=20).sync()

    def get(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, {"content-type": "application/json"})
        return json.loads(urllib.request.urlopen(request, timeout=10).read())

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture(scope="module")
def toll(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = schedules.write(tmp_path_factory.mktemp("toll"))
    server = Server("tests.adapters.environments:Toll", "--drift", str(path), "--seed", "7")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def styles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = schedules.write(tmp_path_factory.mktemp("styles"), schedules.STYLE)
    server = Server("sao_bench/StyleWriting-v0", "--drift", str(path))
    yield server
    server.stop()


def test_an_episode_is_the_one_that_our_rollouts_would_begin(toll: Server):
    for index, tax in ((0, 0), (3, 0), (4, 3), (7, 3)):
        seed = derive(7, "train", index)
        ours = play(Toll(), seed, {"tax": tax}, oracle_actor)
        with toll.client() as client:
            result = client.reset(index=index)
            assert result.observation["text"] == ours.observations[0]
            for turn, action in enumerate(ours.actions):
                assert not result.done
                result = client.step({"text": action})
                assert result.observation["text"] == ours.observations[turn + 1]
                assert result.reward == ours.rewards[turn] == 0.5
                assert result.observation["latency_s"] == ours.latencies[turn + 1]
            # Toll runs out of turns: OpenEnv's `done` alone would call this an end of the task.
            assert result.done
            assert (result.observation["terminated"], result.observation["truncated"]) == (False, True)
            record = client.state()["episode"]
        assert (record["index"], record["t"], record["seed"]) == (index, index, seed)
        assert record["phase"] == (1 if index >= 4 else 0)
        assert record["stop_reason"] == "turns"
        assert [turn["reward"] for turn in record["turns"]] == [0.5, 0.5, 0.5]
        assert (record["score"], record["solved"]) == (1.5, True)


def test_nothing_that_the_agent_sees_tells_the_concept(toll: Server):
    with toll.client() as client:
        texts = [json.dumps(client.reset(index=5).observation)]
        texts.append(json.dumps(client.step({"text": "0"}).observation))
        concept = client.state()["episode"]["concept"]
    assert concept == DriftClock(Toll).environment.complete_concept({"tax": 3}).hash
    for text in texts:
        assert concept not in text
        assert not any(word in text for word in ("tax", "phase", "concept", "score", "solved", "index"))


def test_the_clock_counts_for_all_sessions_and_never_runs_back(tmp_path: Path):
    server = Server("tests.adapters.environments:Toll", "--drift", str(schedules.write(tmp_path)))
    try:
        with server.client() as one, server.client() as two:
            one.reset()
            two.reset()
            assert [c.state()["episode"]["index"] for c in (one, two)] == [0, 1]
            one.reset(index=4)
            two.reset(index=2)
            one.reset()
            assert one.state()["episode"]["index"] == 5
            one.reset(index=7)
            with pytest.raises(RuntimeError, match=r"episode 8 is outside the schedule's 0\.\.7"):
                one.reset()
            assert one.state()["dispatched"] == 8
            assert one.state()["episode"]["index"] == 7  # the session goes on with what it had
    finally:
        server.stop()


def test_a_fault_is_declared_and_is_no_reward_of_zero(toll: Server):
    with toll.client() as client:
        client.reset(index=0)
        result = client.step({"text": "break"})
        assert result.done
        seen = result.observation
        assert seen["fault"] == {"stage": "tool", "kind": "timeout"}
        assert (seen["reward_valid"], seen["terminated"], seen["truncated"]) == (False, False, True)
        assert client.state()["episode"]["stop_reason"] == "fault"


def test_an_end_of_the_task_and_a_cut_reply_differ(toll: Server):
    ends = []
    with toll.client() as client:
        for complete in (True, False):
            client.reset(index=0)
            seen = client.step({"text": "stop", "complete": complete}).observation
            ends.append((seen["terminated"], seen["truncated"]))
            ends.append(client.state()["episode"]["stop_reason"])
    assert ends == [(True, False), "terminated", (False, True), "length"]


def test_garbage_is_legal_text_and_a_malformed_action_leaves_the_episode_as_it_is(toll: Server):
    with toll.client() as client:
        client.reset(index=0)
        for garbage in ("", "\0\0", "</s><|im_end|>", "a" * 300_000):
            client.reset(index=0)
            assert client.step({"text": garbage}).reward == 0.0
        for malformed in ({"text": 5}, {}, {"text": "1", "other": 1}):
            with pytest.raises(RuntimeError, match="VALIDATION_ERROR"):
                client.step(malformed)
        assert client.state()["step_count"] == 1
        for _ in range(2):
            client.step({"text": "1"})
        with pytest.raises(RuntimeError, match="call reset"):
            client.step({"text": "1"})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"indeks": 1}, "unknown reset argument 'indeks'; known: episode_id, index, seed, split"),
        ({"index": -1}, "index -1 is not a whole number"),
        ({"seed": "x"}, "seed 'x' is not a whole number"),
        ({"split": "test", "index": 0}, "unknown stream 'test'"),
        ({"split": "probe"}, "split 'probe' needs an index"),
    ],
)
def test_a_wrong_reset_is_one_line(toll: Server, arguments: dict[str, Any], said: str):
    with toll.client() as client, pytest.raises(RuntimeError) as caught:
        client.reset(**arguments)
    assert said in str(caught.value)


def test_openenvs_own_validator_passes(toll: Server):
    validator = Path(sys.executable).with_name("openenv")
    result = subprocess.run([validator, "validate", "--url", toll.url], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
    assert toll.get("/metadata")["name"] == "tests/Toll-v0"


def test_a_taken_port_is_one_line():
    from sao_bench.adapters.to_openenv import serve

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            serve(DriftClock(Toll), port=port)


def test_schema_and_task_api(toll: Server):
    schema = toll.get("/schema")
    assert schema["action"]["required"] == ["text"]
    assert {"truncated", "terminated", "fault", "latency_s"} <= set(schema["observation"]["properties"])
    (name,) = toll.get("/list_environments")
    assert [split["name"] for split in toll.get(f"/{name}/splits")] == ["train", "probe"]
    assert toll.get(f"/{name}/num_tasks", {"split": "probe"}) == {"num_tasks": 8}
    task = toll.get(f"/{name}/task", {"split": "probe", "index": 6})["task"]
    assert (task["phase"], task["seed"]) == (1, derive(7, "probe", 6))
    assert "tax" not in json.dumps(task)


def test_style_writing_goes_out_and_comes_back_the_same(styles: Server):
    cls = from_openenv(
        styles.url, id="back/StyleWriting-v0", max_turns=1, action_field="text", observation_field="text"
    )
    own, env = registry.environment("sao_bench/StyleWriting-v0"), cls()
    try:
        for index in range(8):
            for seed in (3, 2**62 + 1):
                concept = {"reward.preference": "cute" if index < 4 else "classical", "reward.noise": 0.5}
                ours = play(own(), seed, concept, oracle_actor)
                back = play(env, seed, None, replay(ours.actions), {"seed": seed, "index": index})
                assert ours.difference(back) is None
                assert back.score == ours.score
                assert json.loads(back.truth)["parts"]["style"] == json.loads(ours.truth)["parts"]["style"]
    finally:
        env.close()


def test_truncation_fault_and_refused_actions_come_back(toll: Server):
    cls = from_openenv(toll.url, id="back/Toll-v0", max_turns=9, observation_field="text")
    env = cls()
    try:
        env.reset(seed=0, options={"task": {"index": 0}})
        observation, reward, terminated, truncated, info = env.step("not JSON")
        assert observation.startswith("error: an action is a JSON object")
        assert (reward, terminated, truncated, info) == (0.0, False, False, {})
        assert env.step('{"text": 5}')[0].startswith("error: the server refuses the action")
        ends = [env.step('{"text": "0"}')[2:4] for _ in range(3)]
        assert ends == [(False, False), (False, False), (False, True)]
        env.reset(seed=0, options={"task": {"index": 0}})
        info = env.step('{"text": "break"}')[4]
        assert info == {"fault": {"stage": "tool", "kind": "timeout"}, "reward_valid": False}
        assert env.truth()["parts"]["state"]["episode"]["stop_reason"] == "fault"
        # An argument that the server refuses is its failure to begin an episode.
        env.reset(seed=0, options={"task": {"index": 99}})
        assert env.step("x")[4]["fault"] == {"stage": "reset", "kind": "server_error"}
    finally:
        env.close()


def test_an_environment_per_episode_needs_no_session_per_episode(toll: Server):
    cls = from_openenv(toll.url, id="back/Toll-v0", max_turns=9, action_field="text")
    threads = threading.active_count()
    for _ in range(20):
        env = cls()
        env.reset(seed=0, options={"task": {"index": 0}})
        env.step("stop")
    for _ in range(20):  # dropped half-way
        cls().reset(seed=0, options={"task": {"index": 0}})
    assert threading.active_count() <= threads + 2
    cls.sessions.close()
    assert threading.active_count() <= threads


def test_a_dead_server_is_a_fault(tmp_path: Path):
    server = Server("tests.adapters.environments:Toll", "--drift", str(schedules.write(tmp_path)))
    env = from_openenv(server.url, id="back/Toll-v0", max_turns=9, action_field="text")()
    env.reset(seed=0)
    server.process.kill()
    server.process.wait()
    _, _, terminated, truncated, info = env.step("1")
    assert (terminated, truncated, info["reward_valid"]) == (False, True, False)
    assert info["fault"]["stage"] == "step"
    _, info = env.reset(seed=1)
    assert info["fault"]["stage"] == "reset"


@pytest.mark.parametrize(
    ("url", "turns", "said"), [("localhost:8000", 1, "is not a URL"), ("http://localhost", 0, "max_turns 0")]
)
def test_a_wrong_import_is_one_line(url: str, turns: int, said: str):
    with pytest.raises(UserError, match=said):
        from_openenv(url, id="x", max_turns=turns)
