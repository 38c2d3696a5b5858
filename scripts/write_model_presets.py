"""Writes presets/model_configs.json: the config fields that ConfigReader read, of popular models, as facts with source.

Usage: python scripts/write_model_presets.py [folder with configs and INDEX.csv]

The folder holds one config.json per model (`<org>__<name>.json`) and an INDEX.csv with the place that each was read
from. Models that public measurements name and the folder lacks are stated in further_models.json, each with its source.
Only fields that an adapter read are kept, so that a preset parses to the same spec as its full config; the script
checks that it does.
"""

import csv
import json
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from calc.architectures import parse, parse_reader, read_config

OUT = ROOT / "presets" / "model_configs.json"
POPULAR = ROOT / "scripts" / "popular_models.txt"
FURTHER = ROOT / "scripts" / "further_models.json"


def main() -> None:
    default = Path(os.environ.get("RIDGEBEAM_REFERENCE", ROOT / "../shared/reference")) / "configs"
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    with (folder / "INDEX.csv").open(newline="") as lines:
        index = {row["model_id"]: row for row in csv.DictReader(lines)}
    presets = {}
    for model_id in POPULAR.read_text().split():
        row = index[model_id]
        config = json.loads((folder / row["file"]).read_text())
        beside = folder.parent / "hf_quant_configs" / row["file"]
        wanted = beside.is_file() and "quantization_config" not in config
        quantised = one_expert_each(json.loads(beside.read_text())) if wanted else None
        presets[model_id] = {**provenance(row), "config": fields_read(config, model_id)}
        if quantised is not None:
            presets[model_id]["hf_quant_config"] = quantised
    for model_id, entry in json.loads(FURTHER.read_text()).items():
        presets[model_id] = {"source": entry["source"], "config": fields_read(entry["config"], model_id)}
    OUT.write_text(json.dumps(presets, indent=1, sort_keys=True) + "\n")
    print(f"{len(presets)} models, {OUT.stat().st_size:,} bytes")


def one_expert_each(rules: dict) -> dict:
    """Rules that list every expert of a layer with the same format, with one expert for all of them."""
    layers = rules.get("quantization", {}).get("quantized_layers")
    if not layers:
        return rules
    kept = {re.sub(r"\.experts\.\d+\.", ".experts.0.", name): entry for name, entry in layers.items()}
    return {**rules, "quantization": {**rules["quantization"], "quantized_layers": kept}}


def provenance(row: dict[str, str]) -> dict[str, str]:
    """Where the fields were read, and the hub revision where it is known to be equal."""
    revision = re.search(r"hub revision ([0-9a-f]+)", row["fidelity"])
    return {"source": row["source_url"], **({"revision": revision[1]} if revision else {})}


def fields_read(config: dict, model_id: str) -> dict:
    """The fields that the adapter reads, nested as they were; refuses to write a preset that parses differently."""
    reader = read_config(config, model_id=model_id)
    spec = parse_reader(reader)
    kept = kept_fields(config, reader.read, "")
    if parse(kept, model_id=model_id) != spec:
        raise SystemExit(f"{model_id}: the fields that were read do not give the same spec")
    return kept


def kept_fields(fields: dict, read: set[str], path: str) -> dict:
    kept = {}
    for name, value in fields.items():
        below = {one for one in read if one.startswith(f"{path}{name}.")}
        if isinstance(value, dict) and below:
            kept[name] = kept_fields(value, below, f"{path}{name}.")
        elif path + name in read and value is not None:
            kept[name] = value
    return kept


if __name__ == "__main__":
    main()
