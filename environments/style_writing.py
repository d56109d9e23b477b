"""Writing in the style a user prefers now; the preference drifts, and nobody says so.

After the simulated online learning of SAO (arXiv 2607.07508): reward = quality x preference. The judge is a
parser of a small controlled language, not a keyword counter, so that only a whole sentence about the topic
that is marked with exactly one style can be paid.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar, cast

import numpy as np
from sao_bench.environments._draws import pick

from sao_bench.environment import Message, TextEnv, value_of
from sao_bench.errors import UserError
from sao_bench.types import Channel, Value

T = TypeVar("T")

STYLES = ("academic", "cute", "chuunibyou", "classical")
USERS = ("ann", "bob", "cai", "dee")
HABITS = dict(zip(USERS, STYLES, strict=True))
"""The style each user leans to in the demonstrations (not in the reward)."""

TOPICS: dict[str, tuple[str, ...]] = {
    "sea": ("wave", "shore", "foam"),
    "cat": ("paw", "tail", "milk"),
    "tea": ("cup", "leaf", "steam"),
    "moon": ("cloud", "dusk", "tide"),
    "ship": ("sail", "crew", "mast"),
    "king": ("crown", "sword", "throne"),
    "snow": ("frost", "roof", "hill"),
    "star": ("sky", "night", "comet"),
}
"""Topic noun -> its related nouns. A hard topic must be joined by one of them."""

EASY, HARD = ("sea", "cat", "tea", "moon"), ("ship", "king", "snow", "star")

MARKERS: dict[str, dict[str, tuple[str, ...]]] = {
    "academic": {
        "opener": ("thus", "hence", "indeed"),
        "adjective": ("formal", "latent", "finite"),
        "verb": ("varies", "scales", "tends"),
        "closer": ("ergo", "viz", "notably"),
    },
    "cute": {
        "opener": ("aww", "yay", "hehe"),
        "adjective": ("fluffy", "teeny", "cozy"),
        "verb": ("wiggles", "boops", "giggles"),
        "closer": ("nya", "uwu", "teehee"),
    },
    "chuunibyou": {
        "opener": ("behold", "begone", "kneel"),
        "adjective": ("cursed", "sealed", "fated"),
        "verb": ("awakens", "devours", "smites"),
        "closer": ("mortals", "muhaha", "fools"),
    },
    "classical": {
        "opener": ("lo", "alas", "hark"),
        "adjective": ("noble", "olden", "fair"),
        "verb": ("sleepeth", "shineth", "waneth"),
        "closer": ("forsooth", "verily", "milord"),
    },
}
"""Style -> slot of the sentence -> its markers. No word belongs to two styles or to the plain words."""

PLAIN: dict[str, tuple[str, ...]] = {
    "determiner": ("the", "my", "our", "this", "that", "your"),
    "adjective": ("old", "calm", "small", "deep", "blue", "cold"),
    "verb": ("sleeps", "sings", "waits", "shines", "moves", "rests", "glows"),
    "adverb": ("here", "now", "again", "softly", "alone"),
    "preposition": ("of", "by", "near", "with", "under", "in"),
}

_TAGS = {"opener": "O", "adjective": "A", "verb": "V", "closer": "C"}
_TAGS |= {"determiner": "D", "adverb": "B", "preposition": "P"}
_TAG_OF = {word: _TAGS[slot] for slot, words in PLAIN.items() for word in words}
_TAG_OF |= {w: _TAGS[slot] for slots in MARKERS.values() for slot, words in slots.items() for w in words}
_STYLE_OF = {word: s for s, slots in MARKERS.items() for words in slots.values() for word in words}
_SHAPE = re.compile(r"[A-Za-z][a-z]*(?:,? [a-z]+)*[.!~]")
_SENTENCE = re.compile(r"(?:O,)?DA?N(?:PD?A?R)?VB?(?:PD?A?R)?(?:,C)?")
MAX_LENGTH, MAX_MARKERS = 80, 2

SLOT_SHARE = {"opener": 0.4, "adjective": 0.2, "verb": 0.15, "closer": 0.25}
"""Where the demonstrations mark the style."""

BAD_SHARE = {"easy": 0.05, "hard": 0.33}
"""Share of the demonstrations that the judge would not pay, so that there is something to learn."""


def judge(reply: str, topic: str, offers: tuple[str, ...]) -> dict[str, Any]:
    """Take a reply apart.

    Returns: `well_formed` (one sentence of the controlled language: opener, determiner, adjective, noun,
    place, verb, adverb, place, closer; ASCII, at most `MAX_LENGTH` characters, no word twice but
    determiners), `on_topic` (its noun is the topic and, for a hard topic, a related noun is there),
    `one_style` (1 to `MAX_MARKERS` markers, all of one style), `on_offer` (that style is offered), each 0
    or 1; `quality`, their product; `style`, the marked style or None.
    """
    words = (
        re.findall("[a-z]+|,", reply.lower()) if len(reply) <= MAX_LENGTH and _SHAPE.fullmatch(reply) else []
    )
    related = TOPICS[topic]
    tags = "".join(
        "," if w == "," else "N" if w == topic else "R" if w in related else _TAG_OF.get(w, "?")
        for w in words
    )
    content = [w for w, tag in zip(words, tags, strict=True) if tag not in ",D"]
    markers = [w for w in content if w in _STYLE_OF]
    styles = {_STYLE_OF[w] for w in markers}
    style = styles.pop() if len(styles) == 1 and len(markers) <= MAX_MARKERS else None
    parts: dict[str, Any] = {
        "well_formed": int(bool(_SENTENCE.fullmatch(tags)) and len(set(content)) == len(content)),
        "on_topic": int("N" in tags and ("R" in tags or topic in EASY)),
        "one_style": int(style is not None),
        "on_offer": int(style in offers),
    }
    return {**parts, "quality": math.prod(parts.values()), "style": style}


def preferred(values: Mapping[str, Value], user: str) -> str:
    """Return the style that a user prefers under a concept."""
    own = "same" if user == "solo" else _value(values, f"reward.preference.{user}")
    return str(_value(values, "reward.preference") if own == "same" else own)


class StyleWriting(TextEnv):
    """Write one sentence on a topic, in one of the styles on offer; the judge pays what is preferred now.

    Observation: `[user] topic style/style:`, such as `ann sea cute/classical:` or, for `solo`,
    `sea cute/classical:`. With `template="chat"` the same task as an instruction that states the rules of
    the controlled language, for a general instruct model.

    Action: one sentence of the controlled language (see `judge`), such as `lo, the sea sleeps.`

    Reward: quality (0 or 1) x preference (1 if the marked style is the one now preferred by this user, else
    `reward.base`). With probability `reward.noise` it is replaced by a fair coin. `score` is before noise.

    Episode end: terminated after one turn.

    Oracle: the preferred style where it is on offer (probability offers/4), else any offered style: the
    expectation is offers/4 + (1 - offers/4) x base. Floor: the best constant sentence names one topic and
    one style: P(topic) x offers/4 x the mean payoff of that style over the users, maximised.

    Versions: v0.
    """

    id = "sao_bench/StyleWriting-v0"
    max_turns = 1
    max_reply_tokens = 48
    # Fewer, wider heads and a narrower MLP train a third faster than the defaults and write as well.
    tiny_config: ClassVar[Mapping[str, Any]] = {
        "heads": 2,
        "kv_heads": 1,
        "head_dim": 32,
        "intermediate_size": 128,
    }
    channels: ClassVar[tuple[Channel, ...]] = (
        Channel(
            "reward.preference", "choice", "real", "cute", "the style that is paid in full", choices=STYLES
        ),
        *(
            Channel(
                f"reward.preference.{user}",
                "choice",
                "real",
                "same",
                f"the style that {user} prefers; `same` follows reward.preference",
                choices=("same", *STYLES),
            )
            for user in USERS
        ),
        Channel("reward.base", "float", "real", 0.2, "payment of a good reply in another style", 0.0, 1.0),
        Channel(
            "reward.noise", "float", "real", 0.0, "probability that a fair coin is paid instead", 0.0, 1.0
        ),
        Channel(
            "user.mixture",
            "simplex",
            "virtual",
            {"solo": 1.0},
            "who asks; solo shows no id",
            choices=("solo", *USERS),
        ),
        Channel(
            "task.mixture",
            "simplex",
            "virtual",
            {"easy": 0.5, "hard": 0.5},
            "share of topics that need a related noun too (hard)",
            choices=("easy", "hard"),
        ),
        Channel("task.offers", "int", "virtual", 2, "number of styles that a prompt offers", 2, 4),
        Channel(
            "latency.reply", "float", "virtual", 0.5, "median seconds until the judge answers", 0.0, 60.0
        ),
        Channel("latency.tail", "float", "virtual", 0.5, "sigma of the log-normal latency", 0.0, 3.0),
    )

    def __init__(self, template: Literal["short", "chat"] = "short") -> None:
        if template not in ("short", "chat"):
            raise UserError(f"{self.id}: template {template!r} is not one of: short, chat")
        super().__init__()
        self.template = template
        self._task: dict[str, Any] = {}
        self._parts: dict[str, Any] = {}
        self._score = 0.0

    def begin(self, task: Any) -> str:
        """Draw user, difficulty, topic, offers, noise and latency (the same draws under every concept)."""
        values = self.concept.values
        user, difficulty, topic, noise, coin = self.rng.random(5)
        order = self.rng.permutation(len(STYLES))[: int(cast(int, values["task.offers"]))]
        topics = EASY if pick(values["task.mixture"], ("easy", "hard"), difficulty) == "easy" else HARD
        drawn = {
            "user": pick(values["user.mixture"], ("solo", *USERS), user),
            "topic": topics[int(topic * len(topics))],
            "offers": [STYLES[i] for i in order],
        }
        self._task = drawn if task is None else _valid_task(task)
        self._coin = float(coin < 0.5) if noise < cast(float, values["reward.noise"]) else None
        tail = math.exp(cast(float, values["latency.tail"]) * self.rng.standard_normal())
        self._latency_s = cast(float, values["latency.reply"]) * tail
        self._parts, self._score = {}, 0.0
        return prompt(**self._task) if self.template == "short" else instruction(**self._task)

    def respond(self, action: str) -> tuple[str, float, bool, bool]:
        """Judge the reply and end the episode."""
        self._parts = judge(action, self._task["topic"], tuple(self._task["offers"]))
        match = self._parts["style"] == preferred(self.concept.values, self._task["user"])
        self._parts["preference"] = 1.0 if match else float(cast(float, self.concept.values["reward.base"]))
        self._score = self._parts["quality"] * self._parts["preference"]
        self.latency_s = self._latency_s
        return "", self._score if self._coin is None else self._coin, True, False

    def truth(self) -> dict[str, Any]:
        """Return score, solved (good and preferred), task and the parts of the judgement."""
        solved = bool(self._parts.get("quality")) and self._parts["style"] == preferred(
            self.concept.values, self._task["user"]
        )
        return {"score": self._score, "solved": solved, "task": dict(self._task), "parts": dict(self._parts)}

    def oracle_action(self) -> str:
        """Return a plain good sentence in the preferred style, or in the first on offer."""
        topic, offers = self._task["topic"], self._task["offers"]
        wanted = preferred(self.concept.values, self._task["user"])
        style = wanted if wanted in offers else offers[0]
        return f"{MARKERS[style]['opener'][0]}, the {topic} of {TOPICS[topic][0]} rests."

    @classmethod
    def oracle(cls, values: Mapping[str, Value]) -> float:
        """Return J* = offers/4 + (1 - offers/4) x base: the preferred style is offered or it is not."""
        offered = cast(int, _value(values, "task.offers")) / len(STYLES)
        return offered + (1 - offered) * cast(float, _value(values, "reward.base"))

    @classmethod
    def floor(cls, values: Mapping[str, Value]) -> float:
        """Return b = max P(topic) x offers/4 x max over styles of the users' mean payoff."""
        offered = cast(int, _value(values, "task.offers")) / len(STYLES)
        base = cast(float, _value(values, "reward.base"))
        users = cast(Mapping[str, float], _value(values, "user.mixture"))
        tasks = cast(Mapping[str, float], _value(values, "task.mixture"))
        topic = max(tasks.get("easy", 0.0) / len(EASY), tasks.get("hard", 0.0) / len(HARD))
        lover = {s: math.fsum(p for u, p in users.items() if preferred(values, u) == s) for s in STYLES}
        return topic * offered * max(share + (1 - share) * base for share in lover.values())

    @classmethod
    def demonstration(cls, rng: np.random.Generator) -> list[Message]:
        """Return one imperfect exchange; every style has an equal share, each user leans to one."""
        user = "solo" if rng.random() < 0.5 else _one(rng, USERS)
        topic = _one(rng, EASY if rng.random() < 0.5 else HARD)
        offers = [STYLES[i] for i in rng.permutation(len(STYLES))[: _one(rng, (2, 2, 3, 4))]]
        habit = HABITS.get(user)
        style = habit if habit in offers and rng.random() < 0.6 else _one(rng, offers)
        bad = rng.random() < BAD_SHARE["easy" if topic in EASY else "hard"]
        reply = _spoiled(rng, topic, style, offers) if bad else _compose(rng, topic, style)
        return [
            {"role": "user", "content": prompt(user, topic, offers)},
            {"role": "assistant", "content": reply},
        ]


def prompt(user: str, topic: str, offers: list[str]) -> str:
    """Return the short observation."""
    return f"{'' if user == 'solo' else user + ' '}{topic} {'/'.join(offers)}:"


def instruction(user: str, topic: str, offers: list[str]) -> str:
    """Return the observation of `template="chat"`: the task and the rules of the controlled language."""
    lines = [
        f"{'A user' if user == 'solo' else 'User ' + user} asks for one short sentence about the {topic}"
        f" in one of these styles, the one you think is liked best: {', '.join(offers)}.",
        "Form: [opener,] determiner [adjective] noun [place] verb [adverb] [place] [, closer] one of .!~",
        f"The noun is {topic}. A place is a preposition, maybe a determiner and an adjective, and one of: "
        f"{', '.join(TOPICS[topic])}." + ("" if topic in EASY else " A place is needed."),
        f"Mark exactly one style with 1 or {MAX_MARKERS} of its own words:",
        *(f"- {s}: " + "; ".join(f"{slot} {', '.join(w)}" for slot, w in MARKERS[s].items()) for s in offers),
        "Other words: " + "; ".join(f"{slot} {', '.join(words)}" for slot, words in PLAIN.items()) + ".",
        "Use no other word, none twice but determiners. Reply with the sentence alone.",
    ]
    return "\n".join(lines)


def _compose(rng: np.random.Generator, topic: str, style: str | None, related: bool | None = None) -> str:
    """Return a random sentence of the language, marked with `style` (or unmarked)."""
    slots = [
        pick(SLOT_SHARE, tuple(SLOT_SHARE), rng.random()) for _ in range(2 if rng.random() < 0.15 else 1)
    ]

    def word(slot: str, chance: float) -> str:
        if style and slot in slots:
            return _one(rng, MARKERS[style][slot])
        return _one(rng, PLAIN[slot]) if slot in PLAIN and rng.random() < chance else ""

    place = ""
    if topic in HARD if related is None else related:
        place = f"{_one(rng, PLAIN['preposition'])} {_one(rng, TOPICS[topic])}"
    early = rng.random() < 0.5
    opener, closer = word("opener", 0), word("closer", 0)
    middle = [
        "the" if rng.random() < 0.4 else _one(rng, PLAIN["determiner"]),
        word("adjective", 0.1),
        topic,
        place if early else "",
        word("verb", 1.0),
        word("adverb", 0.1),
        "" if early else place,
    ]
    end = {"cute": "~", "chuunibyou": "!"}.get(style or "", ".") if rng.random() < 0.7 else "."
    return f"{opener and opener + ', '}{' '.join(filter(None, middle))}{closer and ', ' + closer}{end}"


def _spoiled(rng: np.random.Generator, topic: str, style: str, offers: list[str]) -> str:
    """Return a reply with one fault that the judge does not pay."""
    faults = ["topic", "unmarked", "cut"]
    faults += ["related"] * 6 if topic in HARD else []
    faults += ["style"] if len(offers) < len(STYLES) else []
    match _one(rng, faults):
        case "topic":
            return _compose(rng, _one(rng, [t for t in TOPICS if t != topic]), style)
        case "unmarked":
            return _compose(rng, topic, None)
        case "related":
            return _compose(rng, topic, style, related=False)
        case "style":
            return _compose(rng, topic, _one(rng, [s for s in STYLES if s not in offers]))
    return _compose(rng, topic, style)[:-1].rsplit(" ", 2)[0] + "."


def _one(rng: np.random.Generator, items: Sequence[T]) -> T:
    return items[int(rng.integers(len(items)))]


def _valid_task(task: Any) -> dict[str, Any]:
    """Return a checked copy of a task given to `reset`."""
    form = '{"user": solo or a user, "topic": a topic, "offers": [2 to 4 different styles]}'
    if not isinstance(task, Mapping) or set(task) != {"user", "topic", "offers"}:
        raise UserError(f"{StyleWriting.id}: task {task!r} is not of the form {form}")
    offers = task["offers"]
    for what, value, known in (
        ("user", task["user"], ("solo", *USERS)),
        ("topic", task["topic"], tuple(TOPICS)),
    ):
        if value not in known:
            raise UserError(f"{StyleWriting.id}: task {what} {value!r} is not one of: {', '.join(known)}")
    chosen = [style for style in STYLES if isinstance(offers, list | tuple) and style in offers]
    if not 2 <= len(chosen) == len(offers):
        raise UserError(f"{StyleWriting.id}: task offers {offers!r} are not 2 to 4 of: {', '.join(STYLES)}")
    return {"user": task["user"], "topic": task["topic"], "offers": list(offers)}


def _value(values: Mapping[str, Value], name: str) -> Value:
    return value_of(values, name, StyleWriting.channels)
