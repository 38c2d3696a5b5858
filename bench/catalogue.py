"""Seconds to find one accelerator, the whole catalogue and the prices, each from nothing (target: 0.05 s)."""

from bench._timing import median_s
from presets import accelerators, prices


def _forgotten(call):
    """The call after everything that the catalogue remembers was dropped."""

    def run():
        for name in ("_records", "_index", "_names", "_load"):
            getattr(accelerators, name).cache_clear()
        prices.snapshot.cache_clear()
        return call()

    return run


def rows():
    yield "one accelerator by id", median_s(_forgotten(lambda: accelerators.load("apple-m3-max"))), "s"
    yield (
        "one accelerator by a name",
        median_s(_forgotten(lambda: accelerators.load("NVIDIA H100 PCIe"))),
        "s",
    )
    yield "the whole catalogue", median_s(_forgotten(accelerators.load_all)), "s"
    yield "the price snapshot", median_s(_forgotten(prices.snapshot)), "s"
