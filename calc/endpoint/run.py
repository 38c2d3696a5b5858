"""A run as it lies in a file: `EndpointRun`, read back with every field checked, and its samples by stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calc.endpoint.plan import TestPlan, plan_from_json
from calc.endpoint.samples import SCHEMA_VERSION, Sample, sample_from_json
from calc.errors import InputError
from calc.json_text import NOT_JSON, parse_json
from calc.typed_fields import check_value

KIND = "ridgebeam endpoint run"
LARGEST_CHARS = 50_000_000
NULL_SERVER = ("streams", "cpu_s", "delay_p50_s")
"""What is said of the client against a server that does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRun:
    """What was measured, where, and with what plan. `server`: facts that the server told; `client`: the client's own cost."""

    target: str
    api: str
    model: str
    plan: TestPlan
    samples: tuple[Sample, ...]
    server: Mapping[str, Any]
    server_means: Mapping[str, Mapping[str, float]]
    waiting: Mapping[str, float]
    client: Mapping[str, Any]
    notes: tuple[str, ...]
    wall_s: float

    def stage(self, name: str) -> tuple[Sample, ...]:
        return tuple(sample for sample in self.samples if sample.stage == name)

    @property
    def slots(self) -> int | None:
        """How many requests the server works on at a time, where it says."""
        found = self.server.get("slots")
        return found if isinstance(found, int) and found > 0 else None


def run_from_json(data: object) -> EndpointRun:
    """Read a run back; raises InputError naming what is wrong with it."""
    if not isinstance(data, Mapping) or data.get("kind") != KIND:
        raise InputError("run", type(data).__name__, f"kind must be {KIND!r}")
    if data.get("schema") != SCHEMA_VERSION:
        raise InputError("run schema", data.get("schema"), f"this version reads {SCHEMA_VERSION}")
    for name in ("samples", "notes"):
        if not isinstance(data.get(name), list):
            raise InputError(f"run {name}", data.get(name), "it must be a list")
    for name in ("plan", "server", "server_means", "waiting", "client"):
        if not isinstance(data.get(name), Mapping):
            raise InputError(f"run {name}", data.get(name), "it must be an object")
    check_value("run waiting", data["waiting"], "Mapping[str, float]")
    for stage, means in data["server_means"].items():
        check_value(f"run server_means {stage}", means, "Mapping[str, float]")
    _check_client(data["client"])
    wall_s = data.get("wall_s", 0.0)
    check_value("run wall_s", wall_s, "float")
    return EndpointRun(
        target=str(data.get("target", "")),
        api=str(data.get("api", "")),
        model=str(data.get("model", "")),
        plan=plan_from_json(data["plan"]),
        samples=tuple(sample_from_json(entry) for entry in data["samples"]),
        server=data["server"],
        server_means=data["server_means"],
        waiting=data["waiting"],
        client=data["client"],
        notes=tuple(str(note) for note in data["notes"]),
        wall_s=float(wall_s),
    )


def _check_client(client: Mapping[str, Any]) -> None:
    """The client's own cost, as far as it was measured: numbers, and those of its null server."""
    null = client.get("null_server")
    check_value(
        "run client",
        {k: v for k, v in client.items() if k.endswith("_s") and v is not None},
        "Mapping[str, float]",
    )
    if null is not None:
        check_value("run null_server", null, "Mapping[str, float]")
        missing = [name for name in NULL_SERVER if name not in null]
        if missing:
            raise InputError(f"run null_server {missing[0]}", None, "it must be given")


def run_from_text(text: str) -> EndpointRun:
    """The same from a file's text; a report that holds its run is read too."""
    if len(text) > LARGEST_CHARS:
        raise InputError("run", f"{len(text)} characters", f"at most {LARGEST_CHARS} are read")
    try:
        data = parse_json(text, finite=True)
    except NOT_JSON:
        raise InputError("run", text[:40], "it must be a JSON file that a load test wrote") from None
    return run_from_json(bare_run(data))


def bare_run(data: object) -> object:
    """The run itself, where a report holds it."""
    if isinstance(data, Mapping) and isinstance(data.get("run"), Mapping):
        return data["run"]
    return data
