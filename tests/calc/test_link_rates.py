"""Messages run over the links that join their ranks: a peer's own link in a mesh, the bus past a bridge, a rack as one."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from calc.custom_accelerator import typed_accelerator
from calc.layout import Layout
from calc.operators import KINDS, ForwardPass, Kind
from calc.step import Fidelity, StepModel
from calc.step.links import (
    PCIE_HOSTS,
    PCIE_SPREAD,
    across_hosts,
    datasheet_links,
    node_bytes_per_s,
    profile_links,
)
from calc.step.rates import link_bytes_per_s
from presets import accelerators, models, profiles


@pytest.mark.parametrize(
    ("gpu_id", "devices", "gb_per_s"),
    [
        ("mi300x", 2, 64),
        ("mi300x", 8, 448),
        ("a100-pcie-80gb", 2, 300),
        ("a100-pcie-80gb", 4, 16 * 1.969),  # PCIe 4.0 x16: the bridge joins two only
        ("gb200-gpu", 8, 900),
        ("h100-sxm5-80gb", 8, 450),
        ("l4", 2, 16 * 1.969),
        ("rtx-5090", 2, 16 * 3.938),
    ],
)
def test_a_message_runs_at_the_rate_of_the_links_that_join_its_ranks(gpu_id, devices, gb_per_s):
    assert link_bytes_per_s(accelerators.load(gpu_id), devices) == pytest.approx(gb_per_s * 1e9)


def test_the_bound_takes_each_message_by_its_own_ranks():
    table = SimpleNamespace(
        operators=SimpleNamespace(numbers={"ranks": np.array([[2.0], [8.0]])}),
        message_bytes=np.array([[64e9, 128e9], [448e9, 0.0]]),
    )
    seconds = datasheet_links(accelerators.load("mi300x"))(table, np.array([0, 1]))
    assert seconds == pytest.approx(np.array([[1.0, 2.0], [1.0, 0.0]]))


def test_a_typed_link_serves_its_node():
    typed = typed_accelerator(
        name="x", memory_bytes=80e9, bandwidth_bytes_per_s=2e12, flop_per_s_16bit=3e14, link_bytes_per_s=2e11
    )
    assert link_bytes_per_s(typed, 8) == 2e11


def message_seconds(gpu_id, ranks, size, **more):
    """Seconds of one all-reduce of `size` bytes under vLLM's profile."""
    table = SimpleNamespace(
        operators=SimpleNamespace(
            numbers={"ranks": np.array([[float(ranks)]])},
            kind_index=np.array([[KINDS.index(Kind.ALL_REDUCE)]]),
        ),
        units=np.ones((1, 1)),
        message_bytes=np.array([[size]]),
    )
    links = profile_links(accelerators.load(gpu_id), profiles.load(gpu_id, "vllm"), **more)
    return float(links(table, np.array([0]))[0, 0])


def test_cards_without_links_share_their_hosts_bus_and_not_the_network():
    """16 MiB between two RTX PRO 6000: 474 us on the kernel tables' host, all engines; other hosts are up to 2.7 times slower."""
    factor = profiles.load("rtx-pro-6000-blackwell-server", "vllm").number("collectives.factor")
    seconds = message_seconds("rtx-pro-6000-blackwell-server", 2, 2**24) / factor
    assert 474e-6 < seconds < 474e-6 * PCIE_HOSTS * 1.05
    within, across = (message_seconds("rtx-4090", 2, 2**24, nodes=n) for n in (1, 2))
    assert within > across  # PCIe 4.0 x16 that all cards of a host share, against a slot of one's own


def test_linked_gpus_do_not_pay_for_other_hosts_buses():
    """H100 over NVSwitch, 16 MiB over 8 GPUs: 92 us by the fastest kernel of the tables."""
    factor = profiles.load("h100-sxm5-80gb", "vllm").number("collectives.factor")
    assert message_seconds("h100-sxm5-80gb", 8, 2**24) / factor == pytest.approx(92.4e-6, rel=0.15)


def test_a_host_that_nobody_knows_widens_the_range():
    """Over PCIe, within and beyond a bridge; never where a switch joins the GPUs, nor for one GPU."""
    spec = models.load("meta-llama/Meta-Llama-3.1-8B")

    def width(gpu_id, tp):
        device = accelerators.load(gpu_id)
        total = (
            StepModel.of(spec, device, Layout(tp=tp), profiles.load(device, "vllm"))
            .step(ForwardPass.decode(8.0, 1000.0))
            .total
        )
        return float(total.high[0] / total.best[0])

    for gpu_id in ("l40s", "rtx-4090"):
        assert width(gpu_id, 2) == pytest.approx(PCIE_SPREAD * width(gpu_id, 1))
    assert width("h100-sxm5-80gb", 2) == pytest.approx(width("h100-sxm5-80gb", 1))
    assert width("rtx-a6000", 4) > width("rtx-a6000", 2)


@pytest.mark.parametrize("gpu", ["l40s", "h100-sxm5-80gb"])
def test_sixteen_gpus_of_hosts_of_eight_are_two_hosts_whether_said_or_not(gpu):
    """A host of eight does not become one of sixteen because nobody said that there are two."""
    card, spec = accelerators.load(gpu), models.load("Qwen/Qwen3-30B-A3B")
    wide = Layout(tp=16, ep=16, attention_dp=16)
    points = [
        StepModel.of(spec, card, layout, profiles.load(card, "vllm")).serving(
            input_tokens=4000.0, output_tokens=200.0, concurrency=64.0
        )
        for layout in (wide, replace(wide, nodes=2))
    ]
    said, unsaid = (float(np.ravel(point.tpot_s.best)[0]) for point in points)
    assert said == unsaid
    assert across_hosts(replace(wide, nodes=4), card).nodes == 4
    assert across_hosts(Layout(tp=8), card).nodes == 1
    assert (
        across_hosts(Layout(tp=64), accelerators.load("gb200-gpu")).nodes == 1
    )  # a rack of 72 is one domain


@pytest.mark.parametrize(
    ("gpu", "gb_per_s"),
    [
        ("h100-sxm5-80gb", 50.0),  # ConnectX-7: 400 Gb/s
        ("a100-sxm4-80gb", 16 * 1.969),  # PCIe 4.0 x16
        ("quadro-rtx-8000", 16 * 0.985),  # PCIe 3.0 x16
    ],
)
def test_a_network_is_no_quicker_than_the_slot_before_it(gpu, gb_per_s):
    size = 2.0**30
    assert node_bytes_per_s(accelerators.load(gpu)) == pytest.approx(gb_per_s * 1e9, rel=1e-3)
    assert message_seconds(gpu, 8, size, nodes=8, gpus=8) > size / (gb_per_s * 1e9)


def test_no_first_token_comes_sooner_than_at_every_peak_however_the_cards_are_joined():
    """Eight cards of PCIe 3.0 in hosts of four: their messages were timed as over ports of 50 GB/s, three times the slot's rate."""
    spec, card = models.load("TinyLlama/TinyLlama-1.1B-Chat-v1.0"), accelerators.load("quadro-rtx-8000")
    real, bound = (
        StepModel.of(spec, card, Layout(tp=8), profiles.load(card, "vllm"), fidelity=fidelity).serving(
            input_tokens=8000, output_tokens=128, concurrency=np.array([1.0, 4.0, 32.0])
        )
        for fidelity in (Fidelity.EXPECTED, Fidelity.ROOFLINE)
    )
    assert np.all(bound.ttft_s.best <= real.ttft_s.best)
    assert np.all(bound.e2e_s.best <= real.e2e_s.best)
