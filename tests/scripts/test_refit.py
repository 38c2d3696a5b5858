"""Small refits with the fitting scripts: the constants come out physical and the errors small, from the data alone."""

import sys
from pathlib import Path

import numpy as np
import pytest

from presets import measurements, models, profiles

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture(autouse=True)
def scripts_importable(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    yield
    for name in ("fit_constants", "fit_kernels", "fit_serving", "fit_points"):
        sys.modules.pop(name, None)


@pytest.mark.reference
def test_gemm_curves_of_one_system_refit(reference, monkeypatch):
    import fit_kernels

    rows = [r for r in fit_kernels.read(reference / "kernels/gemm.csv") if r["system"] == "h100_sxm"]
    monkeypatch.setattr(fit_kernels, "read", lambda path: rows)
    curves = fit_kernels.gemm_curves(reference / "kernels")
    assert {c["format"] for c in curves} == {"bfloat16", "fp8", "fp8_block"}
    for curve in curves:
        assert curve["median_error"] < 0.12
        assert 0.7 < curve["constants"]["bandwidth"] <= 1
        assert 0.4 < curve["constants"]["compute"] <= 1
        assert 2 < curve["constants"]["floor_us"] < 20


@pytest.mark.reference
def test_measured_products_stream_their_activations_and_quantise_before(reference, monkeypatch):
    """Shapes held out, 8- and 4-bit products of three engines on a B200: measured times lie nearer with it than one after the other."""
    import fit_kernels

    rows = [
        r
        for r in fit_kernels.read(reference / "kernels/gemm.csv")
        if r["system"] == "b200_sxm" and r["gemm_dtype"] in fit_kernels.PRODUCTS
    ]
    monkeypatch.setattr(fit_kernels, "read", lambda path: rows)

    def error():
        return np.median(np.abs(np.concatenate([c["errors"] for c in fit_kernels.gemm_curves(reference)])))

    streamed = error()
    monkeypatch.setattr(
        fit_kernels,
        "product_bytes",
        lambda inputs, outputs, stored: {
            "activation_bytes_per_token": 0.0,
            "quantised_bytes_per_token": 2 * (inputs + outputs),
        },
    )
    assert streamed < 0.95 * error()


def test_one_model_refits_and_predicts_the_other_engine():
    from fit_serving import Fit, rows_of

    clean = [m for m in measurements.serving() if m.use == "clean" and m.model == "Qwen/Qwen3-32B"]
    links = {family: (device.all_reduce, device.all_gather) for family, device in profiles.devices().items()}
    fit = Fit(rows_of(clean, models.load), links)
    seen = np.array([row.engine == "tensorrt-llm" for row in fit.rows])
    constants = fit.solve(seen, stride=3, rounds=1, nfev=4)
    errors = np.abs(fit.settled(constants) / fit.tpot - 1)
    assert errors[seen].mean() < 0.08
    assert errors[~seen].mean() < 0.25  # another engine's overhead from priors alone
    shares = [p.limit == 1 for p in fit.params]
    assert np.all(constants[shares] <= 1)
