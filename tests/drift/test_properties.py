"""Random schedules: purity, edges, bounds, simplexes, composition; what the JSON Schema takes and refuses."""

import copy
import itertools
import json
import pickle
import random
import tempfile
from pathlib import Path

import jsonschema
import pytest
from drift_world import CHANNELS, load_text, write
from hypothesis import given, settings
from hypothesis import strategies as st

from sao_bench.drift import load
from sao_bench.drift.schema import SCHEMA_FILE, json_schema
from sao_bench.drift.schema import text as schema_text
from sao_bench.errors import UserError
from sao_bench.types import Concept

PROFILE = settings(max_examples=40, deadline=None, derandomize=True)
VALIDATOR = jsonschema.Draft202012Validator(json_schema())
RUNS_ON = ("cycle", "markov", "poisson", "walk")


def value(channel):
    match channel.type:
        case "bool":
            return st.booleans()
        case "choice":
            return st.sampled_from(channel.choices)
        case "int":
            return st.integers(int(channel.low), int(channel.high))
        case "simplex":
            return st.lists(st.integers(0, 8), min_size=3, max_size=3).filter(any).map(_shares)
    low, high = (-5.0, 5.0) if channel.low is None else (channel.low, channel.high)
    return st.floats(low, high, allow_subnormal=False).map(lambda x: x + 0.0)  # no -0.0


def _shares(weights):
    return {name: w / sum(weights) for name, w in zip(("easy", "hard", "odd"), weights, strict=True)}


@st.composite
def distinct_values(draw, channel):
    return draw(st.lists(value(channel), min_size=2, max_size=3, unique_by=json.dumps))


@st.composite
def event(draw, channel, at, room):
    """Draw an event that begins at `at` and fits into `room` ticks (at least 8)."""
    shapes = ["step", "mix", "blip", "burst", "cycle", "markov", "poisson"]
    shapes += ["ramp"] if channel.type in ("float", "int", "simplex") else []
    shapes += ["walk"] if channel.type in ("float", "int") and channel.low is not None else []
    shape = draw(st.sampled_from(shapes))
    found = {"at": at, "shape": shape}
    if shape in ("step", "mix", "blip", "burst", "ramp"):
        found["to"] = draw(value(channel))
    if shape in ("mix", "blip", "ramp"):
        found["width"] = draw(st.integers(1, room))
    match shape:
        case "mix":
            found["curve"] = draw(st.sampled_from(["linear", "sigmoid"]))
        case "ramp":
            found["curve"] = draw(st.sampled_from(["linear", "cosine", "exponential"]))
        case "burst":
            found["width"] = draw(st.integers(1, 2))
            found["every"] = draw(st.integers(3, 4))
            found["count"] = draw(st.integers(1, (room - 2) // 4 + 1))
        case "cycle":
            found["values"] = draw(distinct_values(channel))
            found["period"] = draw(st.integers(1, room - 3))
            found["jitter"] = draw(st.integers(0, min(2, (found["period"] - 1) // 2)))
        case "markov":
            found["values"] = draw(distinct_values(channel))
            found["stay"] = draw(st.floats(0, 0.9))
            found["dwell"] = draw(st.integers(1, room - 1))
        case "poisson":
            found["values"] = draw(distinct_values(channel))
            found["rate"] = draw(st.floats(1, 1000))
        case "walk":
            found["step"] = draw(st.floats(0.01, 3))
            found["every"] = draw(st.integers(1, room - 1))
            found["pull"] = draw(st.sampled_from([0, 0.1, 1]))
    return found


def length(item):
    if item["shape"] == "burst":
        return (item["count"] - 1) * item["every"] + item["width"]
    return item.get("width", 9 if item["shape"] in RUNS_ON else 1)


@st.composite
def layer(draw, channel, horizon):
    """Draw the start and the events of a channel; each fits before the next."""
    found = {"events": []}
    if draw(st.booleans()):
        found["start"] = draw(value(channel))
    t = draw(st.integers(0, 20))
    while horizon - t >= 8 and len(found["events"]) < 4 and draw(st.integers(0, 3)):
        room = draw(st.integers(8, max(8, min(60, horizon - t))))
        item = draw(event(channel, t, room))
        found["events"].append(item)
        t += max(length(item), room) + draw(st.integers(0, 20))
    return found


@st.composite
def documents(draw):
    horizon = draw(st.integers(20, 200))
    names = draw(st.lists(st.sampled_from(sorted(CHANNELS)), unique=True, min_size=1, max_size=5))
    found = {
        "schema": "sao-bench-drift/1",
        "id": "random",
        "env": "drift_world:World",
        "clock": draw(st.sampled_from(["episode", "wall_s", "sample"])),
        "horizon": horizon,
        "seed": draw(st.integers(0, 5)),
        "channels": {name: draw(layer(CHANNELS[name], horizon)) for name in names},
    }
    if draw(st.booleans()):
        every = draw(st.integers(1, horizon))
        found["probe"] = {"every": every, "episodes": 4, "concepts": ["seen", "next"]}
    return found


def compiled(document, **options):
    return load_text(json.dumps(document), **options)


def path(schedule, ticks):
    return [schedule.at(t) for t in ticks]


@PROFILE
@given(documents(), st.randoms(use_true_random=False))
def test_at_is_pure(document, rng):
    """The same for any order of calls, another worker (a fresh load) and a resume (a pickled copy)."""
    ticks = list(range(document["horizon"] + 5))
    expected = path(compiled(document), ticks)
    shuffled = ticks * 2
    rng.shuffle(shuffled)
    schedule = compiled(document)
    assert all(schedule.at(t) == expected[t] for t in shuffled)
    assert path(pickle.loads(pickle.dumps(schedule)), ticks) == expected
    assert schedule.at(10**12) == expected[-1] == schedule.at(float("inf"))


@PROFILE
@given(documents())
def test_values_stay_what_the_channel_holds(document):
    """Inside bounds everywhere; a mixture stays one; the hash is that of the values."""
    schedule = compiled(document)
    for concept in path(schedule, range(document["horizon"] + 1)):
        for name, held in concept.values.items():
            assert CHANNELS[name].problem(held) is None
            assert (
                type(held)
                is {"float": float, "int": int, "bool": bool, "choice": str, "simplex": dict}[
                    CHANNELS[name].type
                ]
            )
        assert Concept.of(concept.values, concept.phase) == concept


@PROFILE
@given(documents())
def test_every_window_is_exact_at_both_edges(document):
    schedule = compiled(document)
    for name, content in document["channels"].items():
        held = CHANNELS[name].default if "start" not in content else content["start"]
        for item, following in itertools.zip_longest(content["events"], content["events"][1:]):
            start, end, shape, before = item["at"], item["at"] + length(item), item["shape"], held
            if shape in RUNS_ON:
                held = schedule.at(following["at"] - 1).values[name] if following else None
            elif shape not in ("blip", "burst"):
                held = item["to"]
            if shape in ("mix", "ramp"):
                assert schedule.share(name, start) == 0 and schedule.share(name, end) == 1
                assert same(schedule.at(start).values[name], before)
                assert same(schedule.at(end).values[name], item["to"])
                assert (
                    same(schedule.at(end - 1).values[name], item["to"]) or schedule.share(name, end - 1) < 1
                )
            if shape in ("blip", "burst"):
                assert same(schedule.at(start).values[name], item["to"])
                assert same(schedule.at(end - 1).values[name], item["to"])
                if following is None or following["at"] > end:
                    assert same(schedule.at(end).values[name], before)
            if shape == "step":
                assert same(schedule.at(start).values[name], item["to"])


def same(one, other):
    if isinstance(one, dict) and isinstance(other, dict):
        return all(one.get(k, 0.0) == other.get(k, 0.0) for k in one.keys() | other.keys())
    return one == other


@PROFILE
@given(documents())
def test_describe_counts_every_tick(document):
    schedule = compiled(document)
    concepts = path(schedule, range(document["horizon"]))
    about = schedule.describe()
    counts = {entry["hash"]: entry["ticks"] for entry in about["concepts"]}
    assert counts == {h: sum(c.hash == h for c in concepts) for h in {c.hash for c in concepts}}
    assert [p["ticks"] for p in about["phases"]] == [p.end - p.start for p in schedule.phases()]
    assert [c.phase for c in concepts] == [p.index for p in schedule.phases() for _ in range(p.start, p.end)]
    seven = schedule.describe(7)
    assert sum(entry["ticks"] for entry in seven["concepts"]) == 7
    budget = schedule.variation_budget()
    assert budget["total"] >= 0 and (budget["total"] == 0) == (
        not any(v > 0 for v in budget["channels"].values())
    )


@PROFILE
@given(documents(), st.randoms(use_true_random=False))
def test_words_and_order_change_nothing(document, rng):
    other = copy.deepcopy(document)
    other |= {"id": "other", "description": "words", "shows": "more words", "version": 7}
    names = list(other["channels"])
    rng.shuffle(names)
    other["channels"] = {name: other["channels"][name] for name in names}
    for content in other["channels"].values():
        rng.shuffle(content["events"])
    one, two = compiled(document), compiled(dict(sorted(other.items(), reverse=True)))
    assert one.hash == two.hash
    ticks = range(document["horizon"] + 1)
    assert path(one, ticks) == path(two, ticks)


@PROFILE
@given(documents(), documents())
def test_include_equals_its_expansion(document, part):
    part = {
        "schema": part["schema"],
        "channels": {k: v for k, v in part["channels"].items() if not v["events"]},
    }
    part["channels"] |= {k: {"start": 1.25} for k in ("latency.scale",)}
    part["channels"] = {k: v for k, v in part["channels"].items() if k not in document["channels"]}
    pasted = document | {"channels": document["channels"] | part["channels"]}
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), json.dumps(part), "part.yaml")
        own = write(Path(folder), json.dumps(document | {"include": ["part.yaml"]}))
        one, two = load(own), compiled(pasted)
    assert one.hash == two.hash
    ticks = range(document["horizon"] + 1)
    assert path(one, ticks) == path(two, ticks)


@PROFILE
@given(st.data())
def test_sequence_equals_its_expansion(data):
    names = data.draw(st.lists(st.sampled_from(sorted(CHANNELS)), unique=True, min_size=1, max_size=3))
    sequence, expanded, t = [], {name: {"events": []} for name in names}, 0
    held = {name: CHANNELS[name].default for name in names}
    for _ in range(data.draw(st.integers(1, 4))):
        ticks = data.draw(st.integers(10, 40))
        segment = {"for": ticks}
        for name in names:
            if data.draw(st.booleans()):
                continue
            if data.draw(st.booleans()):
                to = data.draw(value(CHANNELS[name]))
                segment[name] = to
                if t == 0:
                    expanded[name]["start"] = to
                elif held[name] is None or not same(held[name], to):
                    expanded[name]["events"].append({"at": t, "shape": "step", "to": to})
                held[name] = to
            else:
                item = data.draw(event(CHANNELS[name], t, ticks))
                expanded[name]["events"].append(item)
                segment[name] = {key: v for key, v in item.items() if key != "at"}
                if item["shape"] not in ("blip", "burst"):
                    held[name] = item.get("to")
        sequence.append(segment)
        t += ticks
    head = {"schema": "sao-bench-drift/1", "id": "s", "env": "drift_world:World", "clock": "episode"}
    named = {name for segment in sequence for name in segment if name != "for"}
    one = compiled(head | {"sequence": sequence})
    two = compiled(head | {"horizon": t, "channels": {n: c for n, c in expanded.items() if n in named}})
    assert one.hash == two.hash
    assert path(one, range(t + 1)) == path(two, range(t + 1))


@PROFILE
@given(st.data())
def test_order_of_overlays_does_not_matter_where_priorities_differ(data):
    horizon = data.draw(st.integers(20, 80))
    base = {"start": 1.0, "events": data.draw(layer(CHANNELS["latency.scale"], horizon))["events"]}
    overlays = []
    for priority in data.draw(st.lists(st.integers(-9, 9), unique=True, min_size=2, max_size=4)):
        content = data.draw(layer(CHANNELS["latency.scale"], horizon)) | {"start": 1.5}
        op = data.draw(st.sampled_from(["set", "add", "mul"]))
        overlays.append({"priority": priority, "op": op, "channels": {"latency.scale": content}})
    head = {"schema": "sao-bench-drift/1", "id": "o", "env": "drift_world:World", "clock": "episode"}
    document = head | {"horizon": horizon, "channels": {"latency.scale": base}, "overlay": overlays}
    one, two = compiled(document), compiled(document | {"overlay": overlays[::-1]})
    assert one.hash == two.hash and path(one, range(horizon)) == path(two, range(horizon))
    for t in range(horizon):
        held = {layer.priority: layer.value(t) for layer in one.tracks[0].layers if layer.op != "base"}
        expected = one.tracks[0].layers[0].value(t)
        for part in sorted(overlays, key=lambda o: o["priority"]):
            other = held[part["priority"]]
            expected = {"set": other, "add": expected + other, "mul": expected * other}[part["op"]]
        assert one.at(t).values["latency.scale"] == expected


@PROFILE
@given(documents(), st.sampled_from([0.5, 2.0, 3.7]))
def test_time_scale_stretches_the_clock(document, factor):
    document["channels"] = {
        name: content
        for name, content in document["channels"].items()
        if all(e["shape"] in ("step", "ramp") for e in content["events"])
    }
    one, two = compiled(document), compiled(document, time_scale=factor)
    assert two.horizon == round(document["horizon"] * factor)
    assert [p.start for p in two.phases()] == [round(p.start * factor) for p in one.phases()]
    if one.probe:
        assert two.probe.every == max(1, round(one.probe.every * factor)) and two.probe.episodes == 4


# -- JSON Schema ----------------------------------------------------------------------------------------


def test_the_shipped_schema_is_the_loaders_own():
    assert SCHEMA_FILE.read_text() == schema_text()
    jsonschema.Draft202012Validator.check_schema(json_schema())


@PROFILE
@given(documents())
def test_schema_accepts_what_the_loader_accepts(document):
    compiled(document)
    assert not list(VALIDATOR.iter_errors(document))


WRONG_TYPES = (None, [], {"a": {}}, [[1]])


def spots(node, trail=()):
    """Yield (parent, key) of every value of a document, simplexes aside."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in list(items):
        if key in ("to", "start") and isinstance(child, dict):
            continue
        yield node, key, (*trail, key)
        if key != "values":
            yield from spots(child, (*trail, key))


@PROFILE
@given(documents(), st.integers(0, 10**6), st.sampled_from(["misspell", "drop", "type", "add"]))
def test_schema_and_loader_refuse_the_same_structural_errors(document, pick, how):
    broken = copy.deepcopy(document)
    parent, key, trail = (found := list(spots(broken)))[pick % len(found)]
    optional = {"seed", "start", "events", "channels", "probe", "curve", "jitter", "pull"}
    named = len(trail) == 2 and trail[0] == "channels"
    if how in ("misspell", "drop") and (
        isinstance(parent, list) or named or (how == "drop" and key in optional)
    ):
        how = "type"
    match how:
        case "misspell":
            parent[f"{key}x"] = parent.pop(key)
        case "drop":
            del parent[key]
        case "type":
            parent[key] = random.Random(pick).choice(WRONG_TYPES)
            if (key, parent[key]) in (("events", []), ("channels", {"a": {}})):  # right in structure
                parent[key] = None
        case "add":
            target = (
                parent[key] if isinstance(parent[key], dict) and not named and key != "channels" else broken
            )
            target["surprise"] = 1
    with pytest.raises(UserError):
        compiled(broken)
    assert list(VALIDATOR.iter_errors(broken)), (how, trail)
