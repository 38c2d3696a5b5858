"""Refresh presets/price_snapshot.toml from gpuhunt's public catalogues, and say what changed.

    pip install gpuhunt
    python scripts/refresh_prices.py [--file presets/price_snapshot.toml] [--dry-run]

What gpuhunt lists replaces the snapshot's prices of the same accelerator, cloud and kind; everything else stays, with
its own date. gpuhunt names a GPU without its form ("H100" is SXM, PCIe or either), so an offer is taken only where
its instance name, or its cloud's habit, tells which part it is; the rest is counted and left out. Prices only:
gpuhunt's memory fields are not used beyond telling the 40 GB part from the 80 GB one.
"""

import argparse
import datetime as dt
import json
import logging
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from calc.errors import InputError, RidgebeamError
from presets import accelerators, prices
from presets.prices import Price, PriceKind

SOURCE = "https://github.com/dstackai/gpuhunt"

# (gpuhunt's name, its GB) -> our id, where the name leaves no choice.
SINGLE = {
    ("A10", 24): "a10",
    ("A10G", 24): "a10g",
    ("A16", 16): "a16",
    ("A40", 48): "a40",
    ("A4000", 16): "rtx-a4000",
    ("A5000", 24): "rtx-a5000",
    ("A6000", 48): "rtx-a6000",
    ("H100NVL", 94): "h100-nvl-94gb",
    ("H200", 141): "h200-sxm-141gb",
    ("H200NVL", 141): "h200-nvl-141gb",
    ("B200", 180): "b200-sxm-180gb",
    ("GB200", 186): "gb200-gpu",
    ("B300", 270): "b300-sxm-288gb",
    ("GB300", 270): "gb300-gpu",
    ("GH200", 96): "gh200-96gb",
    ("L4", 24): "l4",
    ("L40", 48): "l40",
    ("L40S", 48): "l40s",
    ("RTX2080Ti", 11): "rtx-2080-ti",
    ("RTX3060", 12): "rtx-3060-12gb",
    ("RTX3070", 8): "rtx-3070",
    ("RTX3080", 10): "rtx-3080-10gb",
    ("RTX3080Ti", 12): "rtx-3080-ti",
    ("RTX3090", 24): "rtx-3090",
    ("RTX3090Ti", 24): "rtx-3090-ti",
    ("RTX4060", 8): "rtx-4060",
    ("RTX4060Ti", 16): "rtx-4060-ti-16gb",
    ("RTX4070", 12): "rtx-4070",
    ("RTX4070Ti", 12): "rtx-4070-ti",
    ("RTX4070TiSUPER", 16): "rtx-4070-ti-super",
    ("RTX4080", 16): "rtx-4080",
    ("RTX4080SUPER", 16): "rtx-4080-super",
    ("RTX4090", 24): "rtx-4090",
    ("RTX5060Ti", 16): "rtx-5060-ti-16gb",
    ("RTX5070", 12): "rtx-5070",
    ("RTX5070Ti", 16): "rtx-5070-ti",
    ("RTX5080", 16): "rtx-5080",
    ("RTX5090", 32): "rtx-5090",
    ("RTX4000Ada", 20): "rtx-4000-ada",
    ("RTX6000Ada", 48): "rtx-6000-ada",
    ("T4", 16): "t4",
    ("MI210", 64): "mi210",
    ("MI300A", 128): "mi300a",
    ("MI300X", 192): "mi300x",
    ("MI325X", 256): "mi325x",
    ("MI325X", 288): "mi325x",  # gpuhunt carries the announced size
    ("MI350X", 288): "mi350x",
    ("MI355X", 288): "mi355x",
    ("Gaudi2", 96): "gaudi2",
    ("Gaudi3", 128): "gaudi3-oam",
    ("v3", 0): "tpu-v3",
    ("v4", 0): "tpu-v4",
    ("v5litepod", 0): "tpu-v5e",
    ("v5p", 0): "tpu-v5p",
    ("v6e", 0): "tpu-v6e",
}
# (gpuhunt's name, its GB) -> form -> our id.
BY_FORM = {
    ("A100", 40): {"sxm": "a100-sxm4-40gb", "pcie": "a100-pcie-40gb"},
    ("A100", 80): {"sxm": "a100-sxm4-80gb", "pcie": "a100-pcie-80gb"},
    ("H100", 80): {"sxm": "h100-sxm5-80gb", "pcie": "h100-pcie-80gb"},
    ("V100", 16): {"sxm": "v100-sxm2-16gb", "pcie": "v100-pcie-16gb"},
    ("V100", 32): {"sxm": "v100-sxm2-32gb", "pcie": "v100-pcie-32gb"},
    ("P100", 16): {"sxm": "p100-sxm2-16gb", "pcie": "p100-pcie-16gb"},
    ("RTXPRO6000", 96): {"server": "rtx-pro-6000-blackwell-server", "ws": "rtx-pro-6000-blackwell-ws"},
}
# What an instance's own name says about the form, in the order in which it is looked for.
FORM_WORDS = (
    ("pcie", "pcie"),
    ("sxm", "sxm"),
    ("hbm3", "sxm"),
    ("hgx", "sxm"),
    ("server edition", "server"),
    ("workstation", "ws"),
)
# (cloud, start of the instance name) -> form: what the clouds' own documents say of these series.
FORM_HABITS = (
    ("aws", "p3", "sxm"),
    ("aws", "p4", "sxm"),
    ("aws", "p5", "sxm"),
    ("aws", "g7", "server"),
    ("azure", "Standard_ND", "sxm"),
    ("azure", "Standard_NC", "pcie"),
    ("gcp", "a2-", "sxm"),
    ("gcp", "a3-", "sxm"),
    ("gcp", "g4-", "server"),
    ("oci", "BM.GPU", "sxm"),
    ("nebius", "gpu-h100", "sxm"),
    ("lambdalabs", "gpu_8x_a100", "sxm"),
    ("lambdalabs", "gpu_8x_v100", "sxm"),
)
CLOUD_NAMES = {"lambdalabs": "lambda", "vastai": "vast.ai"}
MARKETPLACES = {"vastai", "lium", "cloudrift"}


def part_id(item) -> str | None:
    """Our id of an offer's accelerator; None where gpuhunt's name leaves the part open or is unknown here."""
    key = (item.gpu_name, round(item.gpu_memory or 0))
    if key in SINGLE:
        return SINGLE[key]
    forms = BY_FORM.get(key)
    return forms.get(form_of(item)) if forms else None


def form_of(item) -> str | None:
    name = item.instance_name.lower()
    for word, form in FORM_WORDS:
        if word in name:
            return form
    for cloud, start, form in FORM_HABITS:
        if item.provider == cloud and item.instance_name.startswith(start):
            return form
    return None


def kind_of(item) -> PriceKind:
    """RunPod's community offers stand under a country, its own data centres under their names."""
    if item.spot:
        return PriceKind.SPOT
    community = item.provider == "runpod" and len(item.location) == 2
    return PriceKind.MARKETPLACE if community or item.provider in MARKETPLACES else PriceKind.ON_DEMAND


def read_offers(items: Iterable, today: dt.date) -> tuple[list[Price], Counter]:
    """The cheapest region's price of each accelerator, cloud, kind and count; and what was left out, by GPU name."""
    cheapest: dict[tuple, Price] = {}
    left_out: Counter = Counter()
    for item in items:
        if not item.gpu_count or not item.price:
            continue
        found = part_id(item)
        if found is None:
            left_out[f"{item.provider} {item.gpu_name} {item.gpu_memory:g} GB"] += 1
            continue
        try:
            price = Price(
                gpu_id=found,
                cloud=CLOUD_NAMES.get(item.provider, item.provider),
                kind=kind_of(item),
                usd_per_hour=item.price,
                gpus_per_instance=item.gpu_count,
                instance=f"{item.instance_name} {item.location}",
                date=today,
                source_url=SOURCE,
            )
        except InputError:
            left_out[f"{item.provider} {item.gpu_name}: no believable price"] += 1
            continue
        key = (price.gpu_id, price.cloud, price.kind, price.gpus_per_instance)
        if key not in cheapest or price.usd_per_hour < cheapest[key].usd_per_hour:
            cheapest[key] = price
    return list(cheapest.values()), left_out


def merged(old: Iterable[Price], new: Iterable[Price]) -> list[Price]:
    """The new prices, and of the old ones those that no new price of the same accelerator, cloud and kind replaces."""
    new = list(new)
    replaced = {(p.gpu_id, p.cloud, p.kind) for p in new}
    return [p for p in old if (p.gpu_id, p.cloud, p.kind) not in replaced] + new


def as_toml(all_prices: Iterable[Price], head: str) -> str:
    """The snapshot file's text: one block for each source and date, in the order of first appearance."""
    readings: dict[tuple, list[str]] = {}
    for p in all_prices:
        fields = [f"gpu = {json.dumps(p.gpu_id)}", f"cloud = {json.dumps(p.cloud)}"]
        fields += [f"instance = {json.dumps(p.instance, ensure_ascii=False)}"] if p.instance else []
        fields += [f"gpus = {p.gpus_per_instance}"] if p.gpus_per_instance != 1 else []
        fields.append(f"usd_per_hour = {p.usd_per_hour:.10g}")
        fields += [f'kind = "{p.kind}"'] if p.kind is not PriceKind.ON_DEMAND else []
        fields += [f"note = {json.dumps(p.note)}"] if p.note else []
        fields += [f"doubtful = {json.dumps(p.doubtful)}"] if p.doubtful else []
        readings.setdefault((p.source_url, p.date), []).append("    { " + ", ".join(fields) + " },")
    blocks = [
        f'[[reading]]\nsource = "{url}"\ndate = {date}\nprices = [\n' + "\n".join(lines) + "\n]\n"
        for (url, date), lines in readings.items()
    ]
    return head + "\n".join(blocks)


def comment_head(text: str) -> str:
    """The comment at the top of the file, kept as it is."""
    lines = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            break
        lines.append(line)
    return "\n".join(lines).rstrip() + "\n\n"


def fetch():
    """Every GPU offer of gpuhunt's published catalogues; exits with words where they cannot be had."""
    try:
        from gpuhunt import Catalog, GPUHuntError
    except ImportError:
        sys.exit("gpuhunt is not installed: pip install gpuhunt. The snapshot stays as it is.")
    logging.getLogger("gpuhunt").setLevel(logging.CRITICAL)  # it prints a traceback for each cloud it misses
    catalog = Catalog(auto_reload=False)
    try:
        catalog.load()
    except (GPUHuntError, OSError) as error:
        sys.exit(f"gpuhunt's catalogues cannot be reached from here ({error}). The snapshot stays as it is.")
    return catalog.query(min_gpu_count=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", type=Path, default=prices.SNAPSHOT_FILE)
    parser.add_argument("--dry-run", action="store_true", help="say what would change, write nothing")
    arguments = parser.parse_args()
    text = arguments.file.read_text(encoding="utf-8")
    try:
        old = prices.read_snapshot(text)
    except RidgebeamError as error:
        sys.exit(f"{arguments.file}: {error}")
    today = dt.datetime.now(tz=dt.UTC).date()
    new, left_out = read_offers(fetch(), today)
    result = merged(old, new)
    print(f"{len(new)} prices read, {len(result) - len(new)} kept from before, dated {today}.")
    for name, count in left_out.most_common(20):
        print(f"  left out: {name} ({count} offers)")
    for price in result:
        if price.gpu_id not in accelerators.all_ids():
            sys.exit(f"{price.gpu_id} is not in the catalogue")
    if not new:
        sys.exit("Nothing was read. The snapshot stays as it is.")
    if not arguments.dry_run:
        arguments.file.write_text(as_toml(result, comment_head(text)), encoding="utf-8")


if __name__ == "__main__":
    main()
