"""Fitted profiles: one for every accelerator and engine, ranges that widen as evidence thins, and the stored fit's own bars."""

import json

import numpy as np
import pytest

from calc.architectures import parse
from calc.engine import Engine
from calc.errors import InputError, UnsupportedArchitecture
from calc.layout import Layout
from calc.operators import ForwardPass
from calc.profile import Evidence
from calc.step import StepModel
from calc.step.spread import spread_factor
from presets import accelerators, models, profiles

ENGINES = [str(engine) for engine in Engine]
SPEC = models.load("meta-llama/Meta-Llama-3.1-8B")


@pytest.mark.parametrize("engine", ENGINES)
def test_every_accelerator_of_the_catalogue_gets_an_answer_with_a_range(engine):
    for device in accelerators.load_all():
        profile = profiles.load(device, engine)
        step = StepModel.of(SPEC, device, Layout(), profile).step(ForwardPass.decode(4.0, 1000.0))
        low, best, high = (
            float(np.asarray(v)[0]) for v in (step.total.low, step.total.best, step.total.high)
        )
        assert 0 < low < best < high < 100 * best
        assert step.evidence in tuple(Evidence)


def test_every_bundled_architecture_gets_an_answer():
    device = accelerators.load("h100-sxm5-80gb")
    profile = profiles.load(device, "vllm")
    for model_id in models.preset_ids():
        if model_id in ("textbook-13b", "example-8b"):
            continue
        spec = models.load(model_id)
        asked = StepModel.of(spec, device, Layout(tp=8), profile)
        for step in (ForwardPass.decode(8.0, 4000.0), ForwardPass.prefill(2048.0)):
            total = float(asked.step(step).total.best[0])
            assert total > 0 or spec.decoder is None
            assert np.isfinite(total)


@pytest.mark.reference
def test_every_readable_reference_config_gets_a_step_and_a_serving_point(reference):
    """What the architectures refuse by name is refused here too; nothing else fails."""
    device = accelerators.load("h100-sxm5-80gb")
    profile = profiles.load(device, "vllm")
    timed, refused = 0, 0
    for path in sorted((reference / "configs").glob("*.json")):
        try:
            spec = parse(json.loads(path.read_text()), model_id=path.stem)
        except UnsupportedArchitecture:
            refused += 1
            continue
        model = StepModel.of(spec, device, Layout(), profile)
        step = ForwardPass.prefill(512.0) if spec.decoder is None else ForwardPass.decode(4.0, 1000.0)
        total = model.step(step).total
        assert 0 < float(total.low[0]) < float(total.best[0]) < float(total.high[0]), path.stem
        if spec.decoder is not None:
            point = model.serving(input_tokens=500.0, output_tokens=100.0, concurrency=4.0)
            assert 0 < float(point.tpot_s.low[0]) < float(point.tpot_s.high[0]), path.stem
        timed += 1
    assert timed > 200
    assert refused < 20


def test_the_range_widens_as_evidence_thins():
    cases = [
        profiles.load("h100-sxm5-80gb", "tensorrt-llm", model_id="meta-llama/Meta-Llama-3.1-8B"),
        profiles.load("h100-sxm5-80gb", "tensorrt-llm"),
        profiles.load("a100-sxm4-80gb", "tensorrt-llm"),
        profiles.load("tpu-v5e", "tensorrt-llm"),
    ]
    assert [p.evidence for p in cases] == [
        Evidence.SAME_MODEL_AND_GPU,
        Evidence.SAME_FAMILY,
        Evidence.RELATED,
        Evidence.DATASHEET,
    ]
    widths = [spread_factor(SPEC, p) for p in cases]
    assert widths == sorted(widths)
    assert len(set(widths)) == 4


def test_families_follow_memory_and_market():
    expected = {
        "h100-sxm5-80gb": "hopper",
        "h200-sxm-141gb": "hopper",
        "b200-sxm-180gb": "blackwell",
        "b300-sxm-288gb": "blackwell",
        "a100-sxm4-80gb": "ampere",
        "rtx-a6000": "ampere-gddr",
        "rtx-3090": "ampere-geforce",
        "rtx-4090": "ada-geforce",
        "l40s": "ada",
        "rtx-5090": "blackwell-geforce",
        "rtx-pro-6000-blackwell-ws": "blackwell-gddr",
        "dgx-spark-gb10": "gb10",
        "mi300x": "cdna",
        "apple-m3-max": "apple",
        "epyc-9654": "cpu",
    }
    assert {gpu: profiles.family_of(accelerators.load(gpu)) for gpu in expected} == expected


def test_an_engine_that_nobody_fitted_is_refused_by_name():
    with pytest.raises(InputError, match="engine"):
        profiles.load("h100-sxm5-80gb", "tgi")


def test_a_file_that_is_no_profile_is_refused(tmp_path):
    path = tmp_path / "profile.json"
    for text in ("not json", "[]", "{}"):
        path.write_text(text)
        with pytest.raises(InputError, match="profile"):
            profiles.read_over(profiles.load("l40s", "vllm"), path)


def test_a_profile_file_is_read_back(tmp_path):
    import json

    path = tmp_path / "profile.json"
    path.write_text(json.dumps(profiles.load("l40s", "vllm").as_json()))
    assert profiles.read_over(profiles.load("h100", "vllm"), path) == profiles.load("l40s", "vllm")


def test_old_engine_versions_are_slower():
    spec = models.load("deepseek-ai/DeepSeek-V3")
    device = accelerators.load("h200-sxm-141gb")
    step = ForwardPass.decode(8.0, 1000.0)
    loaded = [profiles.load(device, "tensorrt-llm", engine_version=v) for v in ("1.1.0rc2", "1.2.0")]
    models_of = [StepModel.of(spec, device, Layout(tp=8), profile) for profile in loaded]
    seconds = [float(model.step(step).total.best[0]) for model in models_of]
    assert seconds[0] > 1.1 * seconds[1]


def test_fitted_numbers_carry_their_error_and_source_and_others_say_assumed():
    found = [*profiles.devices().values(), *profiles.engines()]
    kinds = {"fitted": 0, "assumed": 0}
    for profile in found:
        for number in profile.numbers.values():
            kinds[str(number.provenance)] += 1
            if number.provenance == "fitted":
                assert number.source
                assert number.error is not None
                assert 0 < number.error < 0.4
    assert kinds["fitted"] > 100


def test_measured_links_carry_the_error_of_their_fit():
    for family in ("hopper", "blackwell", "ampere", "blackwell-gddr"):
        curves = profiles.devices()[family].all_reduce
        assert [curve.ranks for curve in curves] == [2, 4, 8]
        assert all(curve.error is not None and curve.error < 0.2 for curve in curves)
        assert all(0 < curve.alpha_s < 60e-6 for curve in curves)


def test_a_file_larger_than_any_profile_is_not_read(tmp_path):
    path = tmp_path / "profile.json"
    with path.open("wb") as file:
        file.truncate(profiles.LARGEST_BYTES + 1)
    with pytest.raises(InputError, match="at most 16,000,000 bytes"):
        profiles.read_over(profiles.load("l40s", "vllm"), path)


def test_engines_for_one_user_start_a_prompt_at_once():
    """llama.cpp's first token came 3.3 and 3.9 ms after its own prompt time (docs/accuracy.md, Endpoints), and waits for no steps."""
    cpu = accelerators.load("epyc-9654")
    for engine in ("llama.cpp", "ollama", "mlx", "exllamav2"):
        profile = profiles.load(cpu, engine)
        assert 0.003 < profile.number("ttft.server_s") < 0.005
        assert profile.number("ttft.steps") == 0.0
        assert profile.number("ttft.prefill") == 1.0
    model = StepModel.of(SPEC, cpu, Layout(), profiles.load(cpu, "llama.cpp"))
    point = model.serving(input_tokens=128.0, output_tokens=64.0, concurrency=1.0)
    prompt_s = float(point.prefill_s[0])
    assert float(point.ttft_s.best[0]) == pytest.approx(prompt_s + 0.004)


def test_families_that_kernel_tables_alone_tell_about_are_not_called_measured():
    """RTX PRO 6000: its decode attention reaches 0.97 of the bandwidth in all six tables, and no serving point is of it."""
    profile = profiles.load("rtx-pro-6000-blackwell-server", "tensorrt-llm")
    assert profile.engine.families == ("blackwell-gddr",)
    assert profile.number("attention.bandwidth") == pytest.approx(0.97, abs=0.01)
    assert profile.evidence in (Evidence.RELATED, Evidence.DATASHEET)
