"""Runs chosen tests of a repository inside the sandbox and writes their outcomes to a file. Sent as source.

One JSON line on stdin: `tests` (paths), `result` (file name), `order` (seed). The candidate's code runs in
this process: what it writes here is checked against canaries and twins by the grader.
"""

from __future__ import annotations

import json
import os
import random
import sys
from typing import Any

INI = "[pytest]\naddopts =\n"


class Recorder:
    """Collects one outcome per test and shuffles the order."""

    def __init__(self, order: int):
        self.order = order
        self.outcomes: dict[str, str] = {}
        self.errors: list[str] = []

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Shuffle: a valid test passes in any order."""
        random.Random(self.order).shuffle(items)

    def pytest_collectreport(self, report: Any) -> None:
        """Keep why a file could not be imported."""
        if report.failed:
            self.errors.append(str(report.longrepr)[-500:])

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Passed means that set-up, call and tear-down all passed, and nothing was skipped or expected to fail."""
        fine = report.outcome == "passed" and not hasattr(report, "wasxfail")
        previous = self.outcomes.get(report.nodeid, "passed")
        self.outcomes[report.nodeid] = "passed" if fine and previous == "passed" else "failed"


def main() -> None:
    """Serve one request."""
    request = json.loads(sys.stdin.readline())
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import pytest

    dump, leave = json.dumps, os._exit
    home = os.getcwd()  # noqa: PTH109
    with open("own.ini", "w") as stream:  # noqa: PTH123
        stream.write(INI)
    os.chdir("repo")
    sys.path += [f"{home}/repo", f"{home}/repo/src"]
    recorder = Recorder(request["order"])
    options = [
        "-c",
        f"{home}/own.ini",
        "--rootdir",
        f"{home}/repo",
        "--noconftest",
        "--import-mode=importlib",
    ]
    pytest.main([*options, "-q", "-p", "no:cacheprovider", *request["tests"]], plugins=[recorder])
    with open(f"{home}/{request['result']}", "w") as stream:  # noqa: PTH123
        stream.write(dump({"outcomes": recorder.outcomes, "errors": recorder.errors}))
    leave(0)


if __name__ == "__main__":
    main()
