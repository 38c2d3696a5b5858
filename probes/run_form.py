"""The form of a probe's run, field by field: what pages and profiles read of it, and nothing that they cannot use.

A run is a file that may come from anywhere. `checked` refuses the first field that is not of its form by its name, so that
whoever reads a run afterwards finds every number that it reads, positive and finite, in the unit that it takes. Probes
that no table here names are kept as they are, beyond what all cases have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from calc.errors import InputError
from calc.typed_fields import LARGEST_COUNT, check_value, is_number

MOST_CASES: Final = 5000
MOST_ROWS: Final = 10_000  # in a list within a case
LARGEST: Final = 1e30  # of any measured number
MOST_PLAYED: Final = 100_000  # tokens, users and slots of what the simulator plays again

Check = Callable[[str, object], None]


def positive(name: str, value: object) -> None:
    """A number above 0."""
    if not is_number(value) or not 0 < value <= LARGEST:
        raise InputError(name, value, "it must be a positive number")


def share(name: str, value: object) -> None:
    """A number from 0 to 1."""
    if not is_number(value) or not 0 <= value <= 1:
        raise InputError(name, value, "it must be a number from 0 to 1")


def not_negative(name: str, value: object) -> None:
    """A number from 0."""
    if not is_number(value) or not 0 <= value <= LARGEST:
        raise InputError(name, value, "it must be a number from 0")


def text(name: str, value: object) -> None:
    """Any text."""
    check_value(name, value, "str")


def flag(name: str, value: object) -> None:
    """True or false."""
    check_value(name, value, "bool")


def count(most: int = LARGEST_COUNT) -> Check:
    """A whole number from 1."""

    def check(name: str, value: object) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise InputError(name, value, f"it must be a whole number from 1 to {most:,}")

    return check


def or_nothing(check: Check) -> Check:
    """The same, or nothing."""
    return lambda name, value: None if value is None else check(name, value)


def record(needed: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """An object with these fields, and any others."""

    def check(name: str, value: object) -> None:
        if not isinstance(value, Mapping):
            raise InputError(name, value, "it must be an object")
        for part, one in needed.items():
            one(f"{name} {part}", value.get(part))
        for part, one in (optional or {}).items():
            if part in value:
                one(f"{name} {part}", value[part])

    return check


def rows(check: Check) -> Check:
    """A list whose entries are all of one form."""

    def check_all(name: str, value: object) -> None:
        if not isinstance(value, list | tuple) or len(value) > MOST_ROWS:
            raise InputError(
                name, type(value).__name__, f"it must be a list of at most {MOST_ROWS:,} entries"
            )
        for one in value:
            check(name, one)

    return check_all


def one_of(*known: str) -> Check:
    """One of these words."""

    def check(name: str, value: object) -> None:
        if value not in known:
            raise InputError(name, value, f"it must be one of {', '.join(known)}")

    return check


def pair(name: str, value: object) -> None:
    """(prompt tokens, answer tokens) of one request."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise InputError(name, value, "it must be two counts")
    for one in value:
        PLAYED(name, one)


COUNT: Final = count()
PLAYED: Final = count(MOST_PLAYED)
TIMING: Final = record(
    dict.fromkeys(("median_s", "p10_s", "p90_s", "best_s"), positive) | {"samples": COUNT, "mode": text}
)
LEVEL: Final = record(
    {"concurrency": PLAYED, "tokens_per_s": positive}
    | {f"ttft_{name}_s": or_nothing(positive) for name in ("p50", "p90", "p99")}
)
PRODUCT: Final[Mapping[str, Check]] = {"format": text, "tokens": COUNT, "n": COUNT, "k": COUNT}
BEST: Final[Mapping[str, Check]] = {"best": positive}


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseForm:
    """What is read of a probe's cases: their unit, parameters, extras (needed, and where given), timing and bytes."""

    unit: str
    parameters: Mapping[str, Check] = field(default_factory=dict)
    where_given: Mapping[str, Check] = field(default_factory=dict)
    extra: Mapping[str, Check] = field(default_factory=dict)
    extra_where_given: Mapping[str, Check] = field(default_factory=dict)
    timed: bool = False
    counted_bytes: bool = False

    def check(self, name: str, case: Mapping[str, Any]) -> None:
        if case["unit"] != self.unit:
            raise InputError(f"{name} unit", case["unit"], f"it must be {self.unit}")
        record(self.parameters, self.where_given)(f"{name} parameters", case["parameters"])
        record(self.extra, self.extra_where_given)(f"{name} extra", case["extra"])
        if self.timed:
            TIMING(f"{name} timing", case.get("timing"))
        if self.counted_bytes:
            positive(f"{name} bytes_per_call", case.get("bytes_per_call"))


FORMS: Final[Mapping[str, CaseForm]] = {
    "bandwidth": CaseForm(
        unit="B/s",
        parameters={"kernel": text, "bytes": COUNT},
        where_given={"sweep": flag},
        extra_where_given=BEST,
    ),
    "skinny_gemm": CaseForm(
        unit="B/s", parameters=PRODUCT, extra_where_given=BEST, timed=True, counted_bytes=True
    ),
    "gemm": CaseForm(
        unit="FLOP/s", parameters={**PRODUCT, "shape": text}, extra_where_given=BEST, timed=True
    ),
    "sustained": CaseForm(
        unit="FLOP/s", parameters={"format": text}, extra_where_given={**BEST, "burst": positive}
    ),
    "launch": CaseForm(unit="s", parameters={"way": text}),
    "decode_attention": CaseForm(unit="B/s", parameters={"way": text, "batch": COUNT, "context": COUNT}),
    "prefill_attention": CaseForm(
        unit="FLOP/s", parameters={"backend": text, "tokens": COUNT}, extra_where_given=BEST
    ),
    "all_reduce": CaseForm(
        unit="B/s",
        parameters={"ranks": count(100_000)},
        extra={"rows": rows(record({"bytes": COUNT, "queued": record({"median_s": positive})}))},
    ),
}

# The whole path's cases, by the parameter that tells their kind.
_MODEL: Final[Mapping[str, Check]] = {"config": record({}), "dtype": text, "source": text}
WHOLE_PATH_FORMS: Final[Mapping[str, CaseForm]] = {
    "tokens": CaseForm(unit="s", parameters={**_MODEL, "tokens": PLAYED}, extra={"prompt": PLAYED}),
    "scheme": CaseForm(
        unit="s",
        parameters={**_MODEL, "scheme": text},
        extra={
            "prompt": PLAYED,
            "weight_bytes": positive,
            "ttft_s": positive,
            "logit_error": not_negative,
            "same_argmax": share,
        },
    ),
    "drafts": CaseForm(
        unit="tokens",
        parameters={**_MODEL, "drafts": count(64)},
        extra={"acceptance": share, "passes": COUNT, "speedup": positive},
    ),
    "levels": CaseForm(
        unit="tokens/s",
        parameters={**_MODEL, "family": one_of("static", "vllm")},
        extra={"levels": rows(LEVEL), "input": PLAYED, "output": PLAYED, "slots": PLAYED},
    ),
    "traffic": CaseForm(
        unit="tokens/s",
        parameters={**_MODEL, "family": one_of("static", "vllm")},
        extra={"traffic": rows(pair), "users": PLAYED, "slots": PLAYED},
    ),
}
DEVICE: Final = record(
    {},
    {
        "kind": text,
        **dict.fromkeys(("name", "uuid", "key", "catalogue", "device"), or_nothing(text)),
        **dict.fromkeys(("cache_bytes", "memory_bytes", "free_bytes"), or_nothing(not_negative)),
    },
)
STATE: Final = record(
    {},
    {
        "remarks": rows(text),
        "reason": or_nothing(text),
        "layers": rows(
            record(
                {"case": text, "measured_s": positive, "parts_s": not_negative, "ratio": or_nothing(positive)}
            )
        ),
    },
)
PROBLEM: Final = record(
    {}, dict.fromkeys(("probe", "case", "kind", "message", "next_step"), or_nothing(text))
)


def check_run(content: Mapping[str, Any]) -> None:
    """Refuse a run by the first field that is not of its form."""
    DEVICE("run device", content.get("device"))
    record({}, {"torch": or_nothing(text)})("run software", content.get("software"))
    STATE("run state", content.get("state"))
    or_nothing(record({}, {"id": or_nothing(text)}))("run model", content.get("model"))
    for name in ("cases", "problems"):
        found = content.get(name)
        if not isinstance(found, list) or len(found) > MOST_CASES:
            raise InputError(
                f"run {name}", type(found).__name__, f"it must be a list of at most {MOST_CASES} objects"
            )
    for problem in content["problems"]:
        PROBLEM("run problem", problem)
    for case in content["cases"]:
        _check_case(case)
    for name in ("started", "status", "depth"):
        text(f"run {name}", content.get(name))
    or_nothing(not_negative)("run seconds", content.get("seconds"))


def _check_case(case: object) -> None:
    record({"probe": text, "case": text, "unit": text, "value": positive})("case", case)
    if not isinstance(case, Mapping):
        return
    name = f"case {case['probe']}, {case['case']}"[:120]
    record(
        {"parameters": record({}), "extra": record({})},
        {
            "timing": or_nothing(TIMING),
            "tags": rows(text),
            "error": or_nothing(not_negative),
            "bytes_per_call": or_nothing(positive),
            "flop_per_call": or_nothing(positive),
        },
    )(name, case)
    form = _whole_path_form(case) if case["probe"] == "whole_path" else FORMS.get(case["probe"])
    if form is not None:
        form.check(name, case)


def _whole_path_form(case: Mapping[str, Any]) -> CaseForm:
    parameters, extra = case["parameters"], case["extra"]
    for told, form in WHOLE_PATH_FORMS.items():
        if told in parameters or told in extra:
            return form
    raise InputError(
        f"case {case['case'][:80]}", "no parameters", f"it must have one of {', '.join(WHOLE_PATH_FORMS)}"
    )
