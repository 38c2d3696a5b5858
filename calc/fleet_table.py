"""A fleet as a table: rows of text (a CSV file, an edited grid) to `FleetRow`s and `Stock`s, and results back to rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from calc.errors import InputError
from calc.fleet import Fleet, FleetRow, Stock
from calc.scenario import Scenario
from calc.scenario_text import apply_settings

# Column -> scenario field; the rest of the columns are the row's own.
SETTINGS: Mapping[str, str] = {
    "model": "model",
    "rate_per_s": "rate_per_s",
    "users": "users",
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "prefix_share": "prefix_share",
    "reuse_after_s": "reuse_after_s",
    "kv_offload": "kv_offload",
    "arrival_cv": "arrival_cv",
    "peak_factor": "peak_factor",
    "ttft_s": "ttft_s",
    "tpot_s": "tpot_s",
    "e2e_s": "e2e_s",
    "percentile": "percentile",
    "headroom": "headroom",
    "quantization": "quantization",
    "kv_dtype": "kv_dtype",
    "engine": "engine",
    "tp": "tp",
    "adapters": "adapters",
    "adapter_rank": "adapter_rank",
    "usd_per_gpu_hour": "usd_per_gpu_hour",
}
OWN = ("name", "region", "gpu")
COLUMNS = (*OWN, *SETTINGS)
LONGEST_COUNT = 9  # digits
NEEDED = ("model", "input_tokens", "output_tokens")


def fleet_rows(records: Iterable[Mapping[str, object]], base: Scenario) -> tuple[FleetRow, ...]:
    """Rows of text to deployments; `base` fills what a row leaves empty. `gpu` may name several, separated by spaces.

    Raises `InputError` that names the row and the column.
    """
    rows = []
    for number, record in enumerate(records, start=1):
        cells = {str(key).strip(): _text(value) for key, value in record.items() if key is not None}
        if not any(cells.values()):
            continue
        unknown = sorted(set(cells) - set(COLUMNS))
        if unknown:
            raise InputError(f"row {number}", unknown[0], f"the columns are {', '.join(COLUMNS)}")
        for name in NEEDED:
            if not cells.get(name):
                raise InputError(f"row {number}, {name}", "", "it must be given")
        if not (cells.get("rate_per_s") or cells.get("users")):
            raise InputError(f"row {number}, rate_per_s", "", "give requests per second, or users")
        settings = [(SETTINGS[name], cells[name]) for name in SETTINGS if cells.get(name)]
        settings.append(("traffic", "rate" if cells.get("rate_per_s") else "users"))
        try:
            scenario = apply_settings(replace(base, config_text="", revision=""), tuple(settings))
        except InputError as error:
            raise InputError(f"row {number}, {error.field}", error.got, error.allowed) from error
        rows.append(
            FleetRow(
                name=cells.get("name") or cells["model"],
                region=cells.get("region", ""),
                scenario=scenario,
                gpus=tuple(cells.get("gpu", "").split()),
            )
        )
    return tuple(rows)


def stocks_of(texts: Iterable[str]) -> tuple[Stock, ...]:
    """Stocks from "GPU=N" or "REGION:GPU=N"."""
    stocks = []
    for text in texts:
        left, equals, count = text.rpartition("=")
        region, colon, gpu = left.rpartition(":")
        if not equals or not (count.strip().isdecimal() and len(count.strip()) <= LONGEST_COUNT):
            raise InputError("stock", text, "write GPU=N or REGION:GPU=N")
        stocks.append(Stock(gpu=gpu.strip(), most=int(count), region=region.strip() if colon else ""))
    return tuple(stocks)


def placed_rows(fleet: Fleet) -> list[dict[str, object]]:
    """The result as rows, one per deployment: plain values, None where there is none."""
    rows: list[dict[str, object]] = []
    for place in fleet.placed:
        found = place.answer
        rows.append(
            {
                "name": place.row.name,
                "region": place.row.region,
                "model": place.row.scenario.model,
                "gpu": None if found is None else found.inputs.offer.accelerator.id,
                "gpus": place.gpus,
                "layout": None if found is None else found.layout.label,
                "replicas": None if found is None or found.fleet is None else found.fleet.replicas,
                "utilization": None if found is None or found.fleet is None else found.fleet.utilization,
                "binding_limit": None
                if found is None or found.sequences is None
                else str(found.sequences.binding),
                "ttft_s": None if found is None or found.ttft_s is None else found.ttft_s.as_json(),
                "tpot_s": None if found is None or found.tpot_s is None else found.tpot_s.as_json(),
                "usd_per_hour": place.usd_per_hour,
                "why": place.why or None,
            }
        )
    return rows


def _text(value: object) -> str:
    """A cell as text: whole numbers without a point, nothing for what is missing."""
    if value is None or (isinstance(value, float) and value != value):  # noqa: PLR0124 - a grid's empty cell is not a number
        return ""
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    return str(value).strip()
