"""Batches form in order of arrival, and staleness stays within its bound whatever arrives when."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sao_bench.buffer import Buffer
from sao_bench.seeding import generator
from sao_bench.types import Concept, Trajectory, Turn


def trajectory(index: int, group: int, version: int) -> Trajectory:
    turn = Turn([1], [2], [-0.5], [version], 1.0)
    return Trajectory(
        index, group, index, 0, Concept.of({}), [turn], True, False, "terminated", 1.0, True, {}
    )


def test_a_batch_is_the_first_to_arrive_in_order_of_arrival() -> None:
    buffer = Buffer(2, 1)
    for group in range(4):
        buffer.dispatch(group, 1)
        buffer.sampled(group, 0)
    for group in (3, 1):
        assert buffer.arrive(trajectory(group, group, 0))
    buffer.arrive(trajectory(0, 0, 0))
    batch = buffer.take(version=0)
    assert batch is not None
    assert [t.index for t in batch] == [3, 1]


def test_the_learner_waits_for_a_unit_that_would_pass_its_bound_and_takes_it_first() -> None:
    buffer = Buffer(1, max_staleness=1)
    for group, version in ((0, 0), (1, 0)):
        buffer.dispatch(group, 1)
        buffer.sampled(group, version)
    buffer.arrive(trajectory(1, 1, 0))
    assert buffer.take(0) is not None
    buffer.trained()
    buffer.dispatch(2, 1)
    buffer.sampled(2, 1)
    buffer.arrive(trajectory(2, 2, 1))
    # Trajectory 0 is still out. At version 1 it is 1 old; another update without it would make it 2 old.
    assert buffer.take(1) is None
    buffer.arrive(trajectory(0, 0, 0))
    batch = buffer.take(1)
    assert batch is not None and [t.index for t in batch] == [0]


def test_ignoring_staleness_never_waits() -> None:
    buffer = Buffer(1, max_staleness=0, on_stale="ignore")
    buffer.dispatch(0, 1)
    buffer.sampled(0, 0)
    buffer.arrive(trajectory(0, 0, 0))
    assert buffer.take(version=5) is not None


def test_overdue_names_what_the_next_publish_takes_past_the_bound() -> None:
    buffer = Buffer(1, max_staleness=2, on_stale="drop")
    for group, version in ((0, 0), (1, 1)):
        buffer.dispatch(group, 1)
        buffer.sampled(group, version)
    assert [u.group for u in buffer.overdue(version=2)] == [0]


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    batch_units=st.integers(1, 5),
    group=st.sampled_from([1, 3]),
    max_staleness=st.integers(0, 4),
    sigma=st.sampled_from([0.0, 0.5, 3.0]),
    workers=st.integers(1, 40),
)
def test_staleness_never_passes_its_bound_and_nothing_stalls(
    seed: int, batch_units: int, group: int, max_staleness: int, sigma: float, workers: int
) -> None:
    """Random durations with a tail up to lognormal(3), random learner cost, and the buffer alone decides."""
    rng = generator(seed, "buffer-test")
    size, total = batch_units * group, 30 * batch_units
    buffer = Buffer(size, max_staleness)
    events: list[tuple[float, int, int, int]] = []
    now, version, dispatched, consumed, learner_free = 0.0, 0, 0, 0, True
    live, worst = 0, 0
    while consumed < total * group:
        while dispatched < total and live + group <= max(workers, group) and buffer.admits(group):
            buffer.dispatch(dispatched, group)
            for member in range(group):
                first = now + rng.random() * 0.3
                heapq.heappush(events, (first, 0, dispatched, member))
            live += group
            dispatched += 1
        if learner_free and (batch := buffer.take(version, last=dispatched == total)) is not None:
            assert len(batch) == size or dispatched == total
            worst = max(worst, *(version - t.oldest_version for t in batch))
            consumed += len(batch)
            learner_free = False
            heapq.heappush(events, (now + rng.random(), 2, 0, 0))
            continue
        assert events, "stalled"
        now, kind, unit, member = heapq.heappop(events)
        if kind == 0:
            buffer.sampled(unit, version)
            heapq.heappush(events, (now + float(rng.lognormal(0, sigma)), 1, unit, version * group + member))
        elif kind == 1:
            buffer.arrive(trajectory(unit * group + member % group, unit, member // group))
            live -= 1
        else:
            version += 1
            buffer.trained()
            learner_free = True
    assert worst <= max_staleness
    assert consumed == total * group


def test_admission_counts_the_batch_in_training() -> None:
    buffer = Buffer(2, max_staleness=0)
    for group in range(2):
        assert buffer.admits(1)
        buffer.dispatch(group, 1)
        buffer.sampled(group, 0)
        buffer.arrive(trajectory(group, group, 0))
    assert not buffer.admits(1)
    assert buffer.take(0) is not None
    assert not buffer.admits(1)
    buffer.trained()
    assert buffer.admits(1)


def test_a_restored_buffer_forms_the_same_batches() -> None:
    buffer = Buffer(2, 1)
    for group in range(3):
        buffer.dispatch(group, 1)
        buffer.sampled(group, 0)
    buffer.arrive(trajectory(2, 2, 0))
    buffer.arrive(trajectory(0, 0, 0))
    copy = Buffer(2, 1)
    copy.load_state_dict(buffer.state_dict())
    first, second = buffer.take(0), copy.take(0)
    assert first is not None and second is not None
    assert [t.index for t in first] == [t.index for t in second] == [2, 0]
    assert buffer.outstanding == copy.outstanding == 3
    assert pytest.approx(first[0].reward) == 1.0
