"""The catalogue: everything loads, names resolve, bad records are refused by name, and the numbers hang together."""

import pytest

from calc.accelerator import Confirmation
from calc.errors import InputError
from calc.provenance import Provenance
from presets import accelerators
from presets.accelerators.record import read_record

TEXTBOOK = ("a100-textbook", "h100-textbook", "example-gpu")


def test_all_140_parts_and_the_three_made_up_ones_load():
    assert len(accelerators.all_ids()) == 143
    loaded = accelerators.load_all()
    assert [a.id for a in loaded] == list(accelerators.all_ids())
    assert {a.id for a in loaded if a.confirmation is Confirmation.MADE_UP} == set(TEXTBOOK)


def test_the_textbook_devices_are_the_lessons_round_figures():
    # cases/textbook.toml: "A100" 312e12 and 2.04e12, "H100" 989e12 and 3.35e12, Example GPU 48 GB, 1000 GB/s, 100e12
    figures = [
        (a.flop_per_s_16bit.flop_per_s, a.bandwidth_bytes_per_s, a.cuda_memory.best)
        for a in map(accelerators.load, TEXTBOOK)
    ]
    assert figures == [(312e12, 2.04e12, 80e9), (989e12, 3.35e12, 80e9), (100e12, 1000e9, 48e9)]


@pytest.mark.parametrize(
    ("typed", "part_id"),
    [
        ("H100", "h100-sxm5-80gb"),
        (" h100-sxm5-80gb ", "h100-sxm5-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("nvidia h100 pcie", "h100-pcie-80gb"),
        ("A100-80GB", "a100-sxm4-80gb"),
        ("RTX4090", "rtx-4090"),
        ("GeForce RTX 4090", "rtx-4090"),
        ("Mi300X", "mi300x"),
        ("Apple-M3-Max", "apple-m3-max"),
        ("tpu_v5e", "tpu-v5e"),
        ("A100-SXM-40GB", "a100-sxm4-40gb"),
        ("NVIDIA H200-NVL-141GB", "h200-nvl-141gb"),
        ("L40S 48GB", "l40s"),
        ("4090 24GB", "rtx-4090"),
        ("AMD Instinct MI300X 192GB HBM3", "mi300x"),
        ("H800-SXM", "h800-sxm5-80gb"),
    ],
)
def test_names_are_matched_without_case_and_punctuation(typed, part_id):
    assert accelerators.load(typed).id == part_id


def test_no_name_stands_for_two_parts():
    owners = {}
    for file in accelerators.FILES:
        for part_id, record in accelerators._records(file).items():
            names = {
                accelerators.matching_key(n)
                for n in (
                    part_id,
                    record["name"],
                    *record.get("aliases", ()),
                    *record.get("reported_as", ()),
                )
            }
            for name in names:
                owners.setdefault(name, set()).add(part_id)
    assert {name: parts for name, parts in owners.items() if len(parts) > 1} == {}


def test_the_glance_at_the_lines_sees_what_the_files_say():
    seen = {
        part_id: (file, (part_id, record["name"], *record.get("aliases", ()), *record.get("reported_as", ())))
        for file in accelerators.FILES
        for part_id, record in accelerators._records(file).items()
    }
    assert accelerators._index() == seen


def test_an_unknown_id_names_the_three_nearest():
    with pytest.raises(InputError) as caught:
        accelerators.load("h100-sxm-80gb-x")
    assert "h100-sxm5-80gb" in caught.value.allowed
    assert caught.value.allowed.count(",") == 2
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("typed", ["L40S 24GB", "4090 48GB", "H100 12GB", "NVIDIA", "80GB"])
def test_a_name_with_another_memory_than_the_parts_own_is_refused(typed):
    with pytest.raises(InputError):
        accelerators.load(typed)


@pytest.mark.parametrize("typed", ["", "   ", "🙂", "x" * 10_000, "../../etc/passwd", "[vendor]"])
def test_nonsense_is_refused_not_matched(typed):
    with pytest.raises(InputError):
        accelerators.load(typed)


GOOD = {
    "vendor": "V",
    "checked_on": "2026-11-29",
    "name": "N",
    "arch": "A",
    "memory": {"label_gb": 10},
    "bandwidth_gb_per_s": 100,
}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"bandwidth_gb_per_s": "fast"}, "bandwidth_gb_per_s"),
        ({"bandwidth_gb_per_s": -1}, "bandwidth_bytes_per_s"),
        ({"bandwidth_gb_per_s": float("nan")}, "bandwidth_bytes_per_s"),
        ({"bandwidth_gb_per_s": None}, "bandwidth_gb_per_s"),
        ({"bandwith": 3}, "bandwith"),
        ({"memory": {"gb": 10}}, "memory"),
        ({"memory": {"label_gb": 10, "driver_mib": 9000, "runtime_gib": [10, 11]}}, "cuda_memory_bytes"),
        ({"memory": {"label_gb": 10, "runtime_gib": [9, 8]}}, "cuda_memory_bytes"),
        ({"tflops": {"bf17": 3}}, "rates"),
        ({"tflops": {"bf16": 0}}, "flop_per_s"),
        ({"tflops_assumed": {"bf16": {"value": 3}}}, "tflops_assumed.bf16"),
        ({"memory": {"label_gb": "ten"}}, "memory.label_gb"),
        ({"tflops": {"bf16": "x"}}, "tflops.bf16"),
        ({"node_size": 0}, "node_size"),
        ({"link": {"kind": "x", "gb_per_s": 3, "topology": "star"}}, "link_topology"),
        ({"year": True}, "year"),
    ],
)
def test_a_bad_record_is_refused_by_record_and_field(change, field):
    with pytest.raises(InputError) as caught:
        read_record("part-x", GOOD | change)
    assert caught.value.field == f"part-x.{field}"


def test_parts_without_a_published_16_bit_rate_have_an_assumed_one_with_a_range_and_a_reason():
    assumed = [a for a in accelerators.load_all() if a.flop_per_s_16bit.provenance is Provenance.ASSUMED]
    assert len(assumed) == 31  # P40, RTX 4000 Ada, GB10, 19 Apple parts, 8 CPUs, WSE-3
    for part in assumed:
        rate = part.flop_per_s_16bit
        assert rate.range_factor >= 1.2
        assert len(rate.reason) > 20
        assert rate.estimate.low < rate.flop_per_s < rate.estimate.high
