"""A run as a card with published figures would give it: BabelStream #137's triad, stas00/ml-engineering's best product."""

from probes import store


def timing(seconds):
    return {
        "median_s": seconds,
        "p10_s": seconds,
        "p90_s": seconds,
        "best_s": seconds,
        "samples": 10,
        "mode": "graph",
    }


def case(probe, name, value, unit, *, parameters, seconds=1e-3, **more):
    plain = {"bytes_per_call": None, "flop_per_call": None, "error": 0.0, "tags": [], "extra": {}}
    return {
        "probe": probe,
        "case": name,
        "value": value,
        "unit": unit,
        "parameters": parameters,
        "timing": timing(seconds),
        **plain,
        **more,
    }


def a100(bandwidth=1774e9, rate=271e12):
    weight = 28_672 * 4096 * 2
    skinny = {"format": "bf16", "tokens": 1, "n": 28_672, "k": 4096}
    return {
        "kind": store.KIND,
        "schema": store.SCHEMA,
        "id": "20260101T000000-a100-000001",
        "started": "2026-01-01T00:00:00+00:00",
        "seconds": 40.0,
        "depth": "quick",
        "status": "complete",
        "device": {
            "kind": "cuda",
            "name": "NVIDIA A100-SXM4-80GB",
            "uuid": "GPU-1",
            "key": "GPU-1",
            "cache_bytes": 40 << 20,
            "catalogue": "a100-sxm4-80gb",
        },
        "software": {"torch": "2.9.0"},
        "state": {"remarks": []},
        "problems": [],
        "cases": [
            case("bandwidth", "triad", bandwidth, "B/s", parameters={"kernel": "triad", "bytes": 1 << 30}),
            case("bandwidth", "copy", 5e12, "B/s", parameters={"kernel": "copy", "bytes": 1 << 30}),
            case(
                "skinny_gemm",
                "bf16 gate_up x1",
                1.6e12,
                "B/s",
                parameters=skinny,
                seconds=weight / 1.6e12,
                bytes_per_call=weight,
            ),
            case(
                "sustained",
                "bf16 sustained",
                rate,
                "FLOP/s",
                parameters={"format": "bf16"},
                extra={"burst": 280e12},
            ),
            case("launch", "graph node", 1.2e-6, "s", parameters={"way": "graph"}),
            case("launch", "eager", 6e-6, "s", parameters={"way": "eager"}),
        ],
    }
