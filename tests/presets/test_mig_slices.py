"""MIG slices against the driver's own listings."""

import pytest

from calc.errors import InputError
from presets import accelerators
from presets.accelerators.mig import mig_profiles

GIB = 2**30

# nvidia-smi mig -lgip on an H100 SXM 80 GB: profile, instances, GiB, SMs (a public note of 2026-06-11)
H100_LISTING = [
    ("1g.10gb", 7, 9.75, 16),
    ("1g.20gb", 4, 19.62, 26),
    ("2g.20gb", 3, 19.62, 32),
    ("3g.40gb", 2, 39.50, 60),
    ("4g.40gb", 1, 39.50, 64),
    ("7g.80gb", 1, 79.25, 132),
]


@pytest.mark.parametrize(("profile", "instances", "gib", "sms"), H100_LISTING)
def test_h100_slices_have_the_listed_memory_and_sms(profile, instances, gib, sms):
    part = accelerators.load(f"h100-sxm5-80gb:{profile}")
    assert part.sm_count == sms
    assert part.driver_memory_bytes == pytest.approx(gib * GIB, rel=0.025)
    # what the driver lists bounds what the runtime can hand out, within a hundredth
    assert part.cuda_memory.low <= gib * GIB <= part.cuda_memory.high * 1.02
    assert {p.name: p.instances for p in mig_profiles("h100-sxm5-80gb")}[profile] == instances
    whole = accelerators.load("h100-sxm5-80gb")
    assert part.flop_per_s_16bit.flop_per_s == pytest.approx(whole.flop_per_s_16bit.flop_per_s * sms / 132)


def test_a100_slices_have_the_documented_sizes():
    # 1g.5gb 4864 MiB and 14 SMs, 3g.20gb 20096 to 20224 MiB and 42 SMs (user guide, driver's output)
    small, half = accelerators.load("a100-sxm4-40gb:1g.5gb"), accelerators.load("a100-sxm4-40gb:3g.20gb")
    assert (small.sm_count, half.sm_count) == (14, 42)
    assert small.cuda_memory.low <= 4864 * 2**20 <= small.driver_memory_bytes
    assert half.cuda_memory.low <= 20096 * 2**20 <= half.cuda_memory.high * 1.01


@pytest.mark.parametrize(
    ("gpu_id", "names"),
    [
        ("h200-sxm-141gb", ["1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"]),
        ("b200-sxm-180gb", ["1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"]),
        ("a30", ["1g.6gb", "2g.12gb", "4g.24gb"]),
        ("rtx-pro-6000-blackwell-server", ["1g.24gb", "2g.48gb", "4g.96gb"]),
        ("rtx-4090", []),
        ("l40s", []),
    ],
)
def test_profiles_are_those_of_the_user_guide(gpu_id, names):
    assert [profile.name for profile in mig_profiles(gpu_id)] == names


def test_every_slice_of_every_card_loads_and_is_a_part_of_its_card():
    for part_id in accelerators.all_ids():
        whole = accelerators.load(part_id)
        for profile in mig_profiles(part_id):
            part = accelerators.load(f"{part_id}:{profile.name}")
            assert part.id == f"{part_id}:{profile.name}"
            assert part.cuda_memory.high < whole.cuda_memory.high
            assert part.bandwidth_bytes_per_s <= whole.bandwidth_bytes_per_s
            assert part.flop_per_s_16bit.flop_per_s <= whole.flop_per_s_16bit.flop_per_s
            assert profile.instances * profile.memory_share <= 1
            assert (part.node_size, part.link_bytes_per_s) == (1, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("h100:9g.90gb", "3g.40gb"),
        ("rtx-4090:1g.5gb", "no MIG profiles"),
        ("h100:", "3g.40gb"),
        ("nope:1g.5gb", "nearest"),
    ],
)
def test_an_unknown_slice_names_those_there_are(text, words):
    with pytest.raises(InputError, match=words):
        accelerators.load(text)
