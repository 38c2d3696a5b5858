"""How many devices one host holds: by the board for data centre parts, by PCIe slots for cards that come alone."""

from __future__ import annotations

import pytest

from presets import accelerators


@pytest.mark.parametrize(
    ("gpu", "devices"),
    [
        ("rtx-4090", 4),
        ("rtx-6000-ada", 4),
        ("rx-7900-xtx", 4),
        ("l40s", 8),
        ("h100-sxm5-80gb", 8),
        ("gb200-gpu", 4),
        ("jetson-agx-orin-64gb", 1),
        ("apple-m4-max", 1),
        ("epyc-9654", 1),
        ("a16", 1),  # four dies on one card: the record speaks of one die
        ("h100-sxm5-80gb:1g.10gb", 1),
        ("a30:1g.6gb", 1),
    ],
)
def test_devices_of_a_host(gpu, devices):
    assert accelerators.load(gpu).host_devices == devices
