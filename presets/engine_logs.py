"""Public start-up logs of serving engines as typed records, and how each was read.

Two tables hold what the logs state (one row a log); a third says which rows can test what. Facts that a log states in words,
or that follow from it, stand in `measurements/engine_log_readings.toml` with the sentence that justifies them.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from calc.errors import InputError
from calc.memory.engines.sglang_defaults import sglang_version
from calc.memory.engines.versions import release
from calc.units import GIB, MIB

LOG_TABLES = ("engine_logs.csv", "engine_logs_more.csv")
ROLES_TABLE = "engine_log_models.csv"
READINGS = Path(__file__).parent / "measurements" / "engine_log_readings.toml"

# Keys of a reading that are about it; all others are start-up settings.
ABOUT_THE_READING = (
    "config",
    "because",
    "unusable",
    "inferred",
    "only_cache",
    "hidden",
    "miss",
    "tp",
    "foreign",
)
LEGACY_RELEASE = "0.7.3"  # a V0 log without version or date: its last years' middle


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLog:
    """One public log: its configuration as stated, and what the engine reported. Bytes per GPU; None: not stated."""

    case_id: str
    source: str
    engine: str
    version: str
    model: str
    gpu: str
    tp: int
    pp: int
    dp: int
    ep: bool
    weight_format: str
    kv_dtype: str
    utilization: float | None
    max_model_len: int | None
    block_size: int | None
    flags: str
    notes: str
    weights_bytes: float | None
    stored_error: float | None
    activation_bytes: float | None
    non_torch_bytes: float | None
    kv_bytes: float | None
    tokens: int | None
    blocks: int | None
    concurrency: float | None
    total_bytes: float | None
    free_bytes: float | None
    label_gb: int | None
    needed_bytes: float | None
    failed: bool
    config: str
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a log was read beyond its columns: a model shape, settings, why, or why it cannot be used.

    `inferred`: a setting that the log does not show was concluded from the pool itself, so that the row tests less.
    `hidden`: a flag that decides the activation peak and that the log does not show.
    `foreign`: what outside the engine made it fail, which no ledger can tell.
    `miss`: the kind of a known miss of the pool. `tp`: the degree, where only the log's words show it.
    `only_cache`: why the config's weights are not the log's (its caches are).
    """

    config: str | None
    settings: Mapping[str, Any]
    because: str
    unusable: str
    inferred: bool
    only_cache: str
    hidden: str
    foreign: str
    miss: str
    tp: int | None


def first_number(text: str) -> float | None:
    """The first number of a cell ("~50", "40.39/40.35/40.12", "31.04"), or None."""
    found = re.search(r"-?\d[\d,]*\.?\d*", text)
    return float(found[0].replace(",", "")) if found else None


def gib_cell(text: str) -> float | None:
    """A cell in GiB, unless it says MiB; of several ranks the last number's rank binds and is taken as the smallest."""
    if text.startswith("~"):
        return None  # the log's author rounded it
    exact = re.search(r"\((\d+) B\)", text)
    if exact:
        return float(exact[1])
    numbers = [float(n) for n in re.findall(r"-?\d+\.?\d*", text)]
    if not numbers:
        return None
    if "MiB" in text:
        return numbers[0] * MIB
    return (min(numbers) if "/" in text else numbers[0]) * GIB


def _whole(text: str) -> int | None:
    number = first_number(text)
    return None if number is None else int(number)


def read_logs(folder: Path) -> tuple[EngineLog, ...]:
    """Every row of the two log tables, in order, with the roles that the third table gives it."""
    roles: dict[str, tuple[str, tuple[str, ...]]] = {}
    with (folder / ROLES_TABLE).open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            roles[row["case_id"]] = (row["config"], tuple(row["roles"].split()))
    logs: list[EngineLog] = []
    for table in LOG_TABLES:
        with (folder / table).open(newline="", encoding="utf-8") as file:
            logs += [_log(row, *roles.get(row["case_id"], ("", ()))) for row in csv.DictReader(file)]
    return tuple(logs)


def _free_bytes(card: str) -> float | None:
    """Free memory before loading that a card's description states, directly or as what was left and what was used."""
    rest = re.search(r"free ([\d.]+) after ([\d.]+) used", card)
    if rest:
        return (float(rest[1]) + float(rest[2])) * GIB
    free = re.search(r"([\d.]+) (?:GB |GiB )?free", card)
    return float(free[1]) * GIB if free else None


def _log(row: dict[str, str], config: str, roles: tuple[str, ...]) -> EngineLog:
    notes = row["notes"] or ""
    needed = re.search(r"([\d.]+) GiB KV (?:cache )?(?:is )?needed", notes)
    stored = re.search(r"stored bytes against loaded weights ([+-][\d.]+)%", notes)
    card = row["gpu"]
    total = re.search(r"total ([\d.]+) ?GiB|of ([\d.]+) GiB|\(([\d.]+) GiB", card)
    label = re.search(r"(\d+) ?GB", card)
    return EngineLog(
        case_id=row["case_id"],
        source=row["url"],
        engine=row["engine"],
        version=row["engine_version"],
        model=row["model_id"],
        gpu=row["gpu"],
        tp=_whole(row["tp"]) or 1,
        pp=_whole(row["pp"]) or 1,
        dp=_whole(row["dp"]) or 1,
        ep=row["ep"].startswith("on"),
        weight_format=row["weight_dtype_or_quant"],
        kv_dtype=row["kv_dtype"],
        utilization=first_number(row["gpu_memory_utilization(or_mem_fraction_static)"]),
        max_model_len=_whole(row["max_model_len"]),
        block_size=_whole(row["block_size"]),
        flags=row["other_flags"] or "",
        notes=notes,
        weights_bytes=gib_cell(row["reported_weights_gib_per_gpu"]),
        stored_error=float(stored[1]) / 100 if stored else None,
        activation_bytes=gib_cell(row["reported_activation_gib"]),
        non_torch_bytes=gib_cell(row["reported_nontorch_gib"]),
        kv_bytes=gib_cell(row["reported_kv_gib_per_gpu"]),
        tokens=_whole(row["reported_kv_tokens"]),
        blocks=_whole(row["reported_gpu_blocks"]),
        concurrency=first_number(row["reported_max_concurrency"]),
        total_bytes=float(total[1] or total[2] or total[3]) * GIB if total else None,
        free_bytes=_free_bytes(card),
        label_gb=int(label[1]) if label else None,
        needed_bytes=float(needed[1]) * GIB if needed else None,
        failed="FAILED" in notes,
        config=config,
        roles=roles,
    )


@cache
def readings() -> dict[str, Reading]:
    """The readings by case id."""
    table = tomllib.loads(READINGS.read_text(encoding="utf-8"))
    return {
        case_id: Reading(
            config=entry.get("config"),
            settings={k: v for k, v in entry.items() if k not in ABOUT_THE_READING},
            because=entry.get("because", ""),
            unusable=entry.get("unusable", ""),
            inferred=entry.get("inferred", False),
            only_cache=entry.get("only_cache", ""),
            hidden=entry.get("hidden", ""),
            foreign=entry.get("foreign", ""),
            miss=entry.get("miss", ""),
            tp=entry.get("tp"),
        )
        for case_id, entry in table["readings"].items()
    }


@cache
def shapes() -> dict[str, Mapping[str, Any]]:
    """Configs of models that the logs name and that no bundled preset has, by name."""
    table: dict[str, Mapping[str, Any]] = tomllib.loads(READINGS.read_text(encoding="utf-8"))["shapes"]
    return table


def flag_number(log: EngineLog, *names: str) -> float | None:
    """The number beside a flag in the log's flags ("max_num_seqs 4"), the first of `names` that is there."""
    for name in names:
        found = re.search(rf"{re.escape(name)}\s*[=:]?\s*([\d.]+)", f"{log.flags}; {log.notes}")
        if found:
            return float(found[1])
    return None


def release_of(log: EngineLog) -> str | None:
    """The release that a log ran: as stated, or the newest one of the month that it states; None where neither is."""
    if "sglang" in log.engine:
        try:
            return ".".join(map(str, sglang_version(log.version or None)))
        except InputError:
            return None
    try:
        return ".".join(map(str, release(log.version)))
    except InputError:
        return LEGACY_RELEASE if is_legacy(log) else None


def is_legacy(log: EngineLog) -> bool | None:
    """Whether a vLLM log says that the V0 or the V1 engine ran."""
    if "V0" in log.version:
        return True
    return False if "V1" in log.version else None
