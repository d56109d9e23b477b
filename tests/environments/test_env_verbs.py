"""The verbs `env` and `tiny`, run in this process."""

import io
import json
import sys

import pytest

from sao_bench import cli

NAME = "sao_bench/StyleWriting-v0"


@pytest.fixture
def sao_bench(monkeypatch, capsys):
    """Return a function that runs a command line: (exit status, stdout, stderr)."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["sao_bench", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return run


def truth(out):
    return json.loads(out.partition("truth: ")[2])


def test_list_and_show(sao_bench):
    status, out, _ = sao_bench("env", "list")
    assert status == 0
    assert f"{NAME}  channels 12, turns <= 1: Write one sentence" in out
    status, out, _ = sao_bench("env", "show", NAME)
    assert status == 0
    assert "reward.base: real float (0.0..1.0), default 0.2" in out
    assert "defaults: oracle 0.6000, floor 0.0625" in out


def test_play_as_the_oracle(sao_bench):
    status, out, _ = sao_bench(
        "env", "play", NAME, "--oracle", "--set", "task.offers=4", "--set", "reward.preference=classical"
    )
    assert status == 0
    assert truth(out)["score"] == 1.0
    assert truth(out)["parts"]["style"] == "classical"
    assert "reward: 1 after " in out


def test_play_from_a_file(sao_bench, tmp_path):
    (tmp_path / "actions").write_text("lo, the sea sleeps.\nnever said\n")
    status, out, _ = sao_bench("env", "play", NAME, "--actions", tmp_path / "actions", "--seed", 3)
    assert status == 0
    assert "action: lo, the sea sleeps." in out and "never said" not in out
    assert "terminated" in out
    (tmp_path / "none").write_text("")
    status, out, _ = sao_bench("env", "play", NAME, "--actions", tmp_path / "none")
    assert status == 0
    assert truth(out)["parts"] == {}


def test_actions_escape_newlines_and_backslashes_and_may_come_from_standard_input(
    sao_bench, tmp_path, monkeypatch
):
    (tmp_path / "actions").write_text(r"one\ntwo \\nu \boxed{7} \\\\" + "\n")
    _, out, _ = sao_bench("env", "play", NAME, "--actions", tmp_path / "actions")
    assert "action: one\ntwo \\nu \\boxed{7} \\\\\n" in out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"typed\n")))
    _, out, _ = sao_bench("env", "play", NAME, "--actions", "-")
    assert "action: typed\n" in out and "no more actions" not in out


def test_actions_that_run_out_are_said_to(sao_bench, tmp_path):
    (tmp_path / "none").write_text("")
    _, out, _ = sao_bench("env", "play", NAME, "--actions", tmp_path / "none")
    assert "not ended: there are no more actions" in out


def test_what_an_environment_raises_is_told_in_one_line(sao_bench, tmp_path):
    (tmp_path / "bad").write_text("zxqv" * 300 + "\n")
    name = "tests.environments.test_checks:Raises"
    status, out, err = sao_bench("env", "play", name, "--actions", tmp_path / "bad")
    assert status == 2 and out.startswith("observation: ")
    assert err.startswith(f"error: {name} raised IndexError: ") and err.count("\n") == 1


def test_check_passes_and_fails(sao_bench):
    status, out, _ = sao_bench("env", "check", NAME, "--episodes", 40)
    assert status == 0
    assert all(line.startswith("ok ") for line in out.splitlines())
    status, out, _ = sao_bench("env", "check", "tests.environments.test_checks:LowFloor", "--episodes", 100)
    assert status == 1
    assert [line.split(":")[0] for line in out.splitlines() if not line.startswith("ok ")] == ["FAIL floor"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["env", "show", "sao_bench/StyleWritin-v0"], "did you mean 'sao_bench/StyleWriting-v0'"),
        (["env", "show", "stylewriting"], "did you mean 'sao_bench/StyleWriting-v0'"),
        (["env", "check", "no_module:Env"], "cannot import environment 'no_module:Env'"),
        (["env", "check", "json:JSONDecoder"], "is not a subclass of sao_bench.environment.TextEnv"),
        (["env", "play", NAME, "--set", "reward.base"], "is not of the form name=value"),
        (["env", "play", NAME, "--set", "reward.base=2"], "2 is outside [0.0, 1.0]"),
        (["env", "play", NAME, "--actions", "absent"], "cannot read 'absent': no such file"),
        (["env", "play", NAME, "--actions", "absent", "--oracle"], "exclude each other"),
        (["tiny", "path", "nothing"], "unknown environment 'nothing'"),
        (["tiny", "rebuild", NAME, "--out", "."], "is not a tiny checkpoint"),
    ],
)
def test_wrong_input_is_one_line_and_status_2(sao_bench, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    status, _, err = sao_bench(*arguments)
    assert status == 2
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err
    assert list(tmp_path.iterdir()) == []


def test_tiny_rebuild_and_path(sao_bench, tmp_path):
    status, out, _ = sao_bench(
        "tiny", "rebuild", "tests.environments.test_checks:Tiny", "--out", tmp_path / "model"
    )
    assert status == 0
    record = json.loads((tmp_path / "model" / "build.json").read_text())
    assert f"held-out loss {record['heldout_loss']:.4f} nats a token" in out
    status, out, _ = sao_bench("tiny", "path", NAME)
    assert status == 0
    assert out.rstrip().endswith("style_writing")
