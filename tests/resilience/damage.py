"""Damage as files meet it: bytes flipped and lost, numbers replaced, JSON reshaped, lines cut, doubled, out of order."""

import copy
import json
import random
import re

POEM = "Shall I compare thee to a summer's day?\nThou art more lovely and more temperate:\n"
NUMBER = re.compile(rb"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
NUMBERS = (
    b"0", b"-1", b"-0.0", b"1e308", b"-1e308", b"1e-308", b"5e-324", b"1e999", b"NaN", b"Infinity", b"-Infinity",
    b"9007199254740993", b"9223372036854775808", b"1" * 400, b"2.5", b"1_000", b"1,000", b"0x10", b"true", b"null",
    b'"7"', b'""', b"", b"-", "\u0663".encode(), "\u00bd".encode(), b"1e5", b"100000000", b"3600000000000",
)  # fmt: skip
VALUES = (
    None, True, False, 0, -1, 1, 2, 0.5, -2.5, 1e308, 1e-308, 1e300, 10**30, 2**63, 2**31, float("nan"), float("inf"),
    -float("inf"), "", "abc", "7", "nan", "1e999", "../../etc/passwd", "<b>", "\ud800", "a\0b", "x" * 5000, [], {}, [[]],
    [1, 2], [None], ["a"], {"a": 1}, {"a": {"b": []}}, [float("nan")], "2024-01-01T00:00:00", [0] * 3, 10**400,
)  # fmt: skip
JUNK = (
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\r",
    b"\r\n",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"=",
    b"e",
)


def damaged(sample: bytes, rng: random.Random) -> bytes:
    """The sample with one to four faults."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        sample = rng.choice(KINDS)(sample, rng)
    return sample


def _bytes(sample, rng):
    """A stretch lost, doubled, overwritten or flipped."""
    if not sample:
        return rng.choice((b"", b"\0", POEM.encode(), b"{}", b"[]", b"null"))
    start = rng.randrange(len(sample))
    stop = min(len(sample), start + rng.choice((1, 1, 2, 8, 64, 1 << 20)))
    between = rng.choice(
        (b"", sample[start:stop] * 2, rng.choice(JUNK), rng.randbytes(rng.randrange(1, 9)), POEM.encode())
    )
    return sample[:start] + between + sample[stop:]


def _numbers(sample, rng):
    """Up to three numbers of the text become others."""
    for _ in range(rng.randrange(1, 4)):
        found = list(NUMBER.finditer(sample))
        if not found:
            return _bytes(sample, rng)
        one = rng.choice(found)
        sample = sample[: one.start()] + rng.choice(NUMBERS) + sample[one.end() :]
    return sample


def _lines(sample, rng):
    """Lines lost, doubled, swapped, cut, or strange ones between them."""
    lines = sample.splitlines(keepends=True)
    if len(lines) < 2:
        return _structure(sample, rng)
    at = rng.randrange(len(lines))
    kind = rng.randrange(6)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(at, lines[at])
    elif kind == 2:
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 3:
        lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
    elif kind == 4:
        lines.insert(
            at, rng.choice((b"\n", POEM.encode(), b'"\n', b",,,,,,\n", b"x" * 300_000 + b"\n", b"[" * 3000))
        )
    else:
        lines = lines[:at]
    return b"".join(lines)


def _structure(sample, rng):
    """JSON, or one line of JSON Lines, with values replaced, removed, renamed, nested, repeated or exchanged."""
    lines = [sample]
    at = 0
    try:
        value = json.loads(sample)
    except (ValueError, RecursionError):
        lines = sample.splitlines(keepends=True) or [b""]
        at = rng.randrange(len(lines))
        try:
            value = json.loads(lines[at])
        except (ValueError, RecursionError):
            return _numbers(sample, rng)
    value = _reshaped(value, rng)
    lines[at] = json.dumps(value).encode() + (b"\n" if len(lines) > 1 else b"")
    return b"".join(lines)


def _places(value, found=None):
    """(container, key) of every value within."""
    found = [] if found is None else found
    for key in (
        list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    ):
        found.append((value, key))
        _places(value[key], found)
    return found


def _reshaped(value, rng):
    places = _places(value)
    if not places or rng.random() < 0.02:
        return rng.choice(([value], {"a": value}, *VALUES))
    container, key = rng.choice(places)
    old = container[key]
    kind = rng.randrange(9)
    if kind == 0:
        del container[key]
    elif kind == 1 and isinstance(container, dict):
        container[f"{key}_x"] = container.pop(key)
    elif kind == 2:
        container[key] = rng.choice(([old], {"a": old}, [old, old], str(old)))
    elif kind == 3 and isinstance(old, list) and old:
        container[key] = rng.choice(
            (old[:-1], old * 2, old[::-1], [*old, None], [*old, old[0], old[-1]], old[:1])
        )
    elif kind == 4:
        other, name = rng.choice(places)
        container[key] = copy.deepcopy(other[name]) if name in _keys(other) else None
    elif kind == 5 and _is_moderate(old):
        container[key] = rng.choice(
            (-old, old * 1e6, old * 1000, old / 1000, old + 0.5, -old - 1, old * 10**30, str(old))
        )
    else:
        container[key] = copy.deepcopy(rng.choice(VALUES))
    return value


def _is_moderate(value):
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e200


def _keys(container):
    return container if isinstance(container, dict) else range(len(container))


KINDS = (_bytes, _numbers, _numbers, _lines, _structure, _structure, _structure)
