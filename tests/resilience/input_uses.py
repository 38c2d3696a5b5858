"""What pages and commands make of each thing that is handed in: `use_...` reads the bytes and returns the numbers shown."""

import io
import json
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np
from input_samples import GPU

from calc.answer import answer
from calc.custom_accelerator import accelerator_as_json, accelerator_from_json, accelerator_from_text
from calc.endpoint.calibration import calibrate, observations_of
from calc.endpoint.html import report_html
from calc.endpoint.report import report_of
from calc.endpoint.run import run_from_text
from calc.endpoint.tables import level_rows, prompt_rows, report_json
from calc.fleet_table import fleet_rows
from calc.layout import Layout
from calc.memory import kv
from calc.memory.engines import EngineSettings, ledger
from calc.memory.log_comparison import compare, settings_from_log
from calc.memory.logs import read_log
from calc.operators import ForwardPass
from calc.parameters import count_parameters
from calc.quantization import stored_bytes
from calc.scenario import Scenario
from calc.scenario_text import from_json, from_query, to_json, to_query
from calc.step import StepModel
from presets import accelerators, hub, models, profiles
from presets.fleet_file import read_fleet_text
from presets.gguf_file import read_local_gguf
from presets.hub_cache import PUBLIC, HubCache
from presets.load_test_files import read_load_test
from presets.profiles.calibrated import with_calibration
from presets.resolve import resolve
from presets.sources import read_config_text
from presets.tensor_files import matrices, read_matrix, tensor_list
from presets.traces import uploaded_trace
from probes import measured, store


def text_of(data):
    """Bytes as every page decodes an upload."""
    return data.decode("utf-8", errors="replace")


def in_a_file(data, name, read):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        return read(path)


@cache
def small_model(accelerator_id=GPU):
    return step_model(accelerators.load(accelerator_id), None)


@cache
def small_spec():
    return models.load("Qwen/Qwen3-0.6B")


def step_model(accelerator, profile):
    found = profile or profiles.load(accelerator if accelerator.arch else GPU)
    return StepModel.of(small_spec(), accelerator, Layout(), found)


def times(model):
    """What a step of decode, a prompt and a served request take."""
    decode = model.step(ForwardPass.decode(4.0, 1000.0)).total
    prompt = model.step(ForwardPass.prefill(512.0)).total
    return positive(decode.low, decode.best, decode.high, prompt.low, prompt.best, prompt.high)


def positive(*values):
    numbers = np.concatenate([np.ravel(np.asarray(value, dtype=float)) for value in values])
    assert np.all(numbers > 0), numbers
    return numbers


def use_config(data):
    spec = read_config_text(data).spec
    count = count_parameters(spec)
    assert 0 < count.active <= count.total
    assert stored_bytes(spec).stored > 0
    assert kv.sequence_bytes(spec, 1000) >= kv.sequence_bytes(spec, 1) >= 0
    return count


def use_scenario_file(data):
    scenario = from_json(text_of(data))
    assert from_json(to_json(scenario)) == scenario
    return shown_answer(scenario)


def use_link(data):
    scenario, problems = from_query(dict(parse_qsl(text_of(data), keep_blank_values=True)))
    assert all(isinstance(problem, str) and len(problem) < 700 for problem in problems)
    assert from_query(to_query(scenario))[1] == ()
    return shown_answer(scenario)


def shown_answer(scenario):
    """The answer that a page would show, on one accelerator and without suggestions that cost seconds."""
    found = answer(replace(resolve(scenario), catalogue=(), engine_offers=()))
    return (
        found.memory,
        found.sequences,
        found.decode,
        found.prefill,
        found.fleet,
        found.ttft_s,
        found.tpot_s,
        found.cost,
    )


def use_accelerator_json(data):
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):
        return None
    accelerator = accelerator_from_json(record)
    assert accelerator_from_json(json.loads(json.dumps(accelerator_as_json(accelerator)))) == accelerator
    return times(step_model(accelerator, None)), accelerator.cuda_memory


def use_accelerator_text(data):
    accelerator = accelerator_from_text(text_of(data))
    assert accelerator_from_text(accelerator.id) == accelerator
    return times(step_model(accelerator, None))


def use_probe_run(data):
    from pages import _probe_figures, _probe_results

    run = store.checked(store.from_text(text_of(data)))
    shown = [_probe_results.run_metrics(run), _probe_results.data_rows(run), _probe_results.name_of(run)]
    shown += [
        _probe_figures.attention_rows(run),
        store.unsteady(run),
        store.findings_of(run),
        store.compare(run, run),
    ]
    shown += [
        _probe_figures.sizes_figure(run) is None,
        _probe_figures.curve_figure(run) is None,
        store.export_text(run),
    ]
    bars = _probe_figures.bars_of(run)
    shown += [_probe_figures.bars_finding(bars, peak_name="peak"), bars]
    shown += [store.whole_path(run)]
    profile = profiles.load(GPU)
    device = measured.device_profile(run, profile.device)
    torch = measured.torch_profile(run)
    accelerator = store.accelerator_of(run)
    return (
        shown,
        times(step_model(accelerator, replace(profile, device=device))),
        times(step_model(accelerator, torch)),
    )


def use_endpoint_run(data):
    from pages import _endpoint_figures

    run = run_from_text(text_of(data))
    report = report_of(run, model=small_model(), slo=Scenario(ttft_s=1.0).slo)
    shown = [report_json(report), level_rows(report), prompt_rows(report), len(report_html(report))]
    if report.prompts:
        shown.append(_endpoint_figures.prompt_finding(report))
    if any(row.level.ttft_s is not None and row.level.concurrency for row in report.levels):
        shown.append(_endpoint_figures.level_finding(report))
    return shown, calibrate(small_model(), observations_of(run)).as_json()


def use_load_test(data):
    found = read_load_test(text_of(data))
    return found.observations, calibrate(small_model(), found.observations * 3).as_json()


def use_trace(data):
    from calc.simulation.rules import engine_rules
    from calc.simulation.run import simulate
    from calc.simulation.step_table import StepTable

    requests = uploaded_trace(data, name="trace").requests
    assert np.all(np.diff(requests.arrival_s) >= 0)
    positive(requests.input_tokens, requests.output_tokens)
    if int(requests.input_tokens.sum() + requests.output_tokens.sum()) > 20_000:
        return requests.arrival_s
    step = StepTable.affine(fixed_s=1e-3, prefill_s=1e-5, decode_s=1e-5, kv_s=0.0)
    found = simulate(requests, engine_rules("vllm", num_blocks=4096, max_seqs=8), step, compiled=False)
    return requests.arrival_s, found.spread("ttft_s")


def use_fleet(data):
    rows = fleet_rows(read_fleet_text(data.decode("utf-8-sig", errors="replace")), Scenario())
    return [row.scenario for row in rows]


def use_log(data):
    log = read_log(text_of(data))
    settings = settings_from_log(log, EngineSettings())
    return compare(log, ledger(small_spec(), accelerators.load(GPU), Layout(), settings))


def use_gguf(data):
    found = in_a_file(data, "m.gguf", read_local_gguf)
    return count_parameters(found.spec), found.checkpoint, kv.sequence_bytes(found.spec, 100)


def use_tensors(data):
    file = io.BytesIO(data)
    return [
        read_matrix(file, tensor, name="n", most_values=64)
        for tensor in matrices(tensor_list(file, name="n"))
    ]


def use_profile(data):
    fitted = profiles.load(GPU)
    profile = in_a_file(data, "profile.json", lambda path: profiles.read_over(fitted, path))
    return times(step_model(accelerators.load(GPU), profile))


def use_calibration(data):
    import os

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "endpoints/profiles/endpoint-m-000001.json"
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        before = os.environ.get("RIDGEBEAM_DATA_DIR")
        os.environ["RIDGEBEAM_DATA_DIR"] = folder
        try:
            profile = with_calibration(
                profiles.load(GPU), "endpoint-m-000001", accelerator_id=GPU, model_id="m"
            )
        finally:
            os.environ.pop("RIDGEBEAM_DATA_DIR")
            if before is not None:
                os.environ["RIDGEBEAM_DATA_DIR"] = before
    return times(step_model(accelerators.load(GPU), profile))


def use_hub_cache(data):
    with tempfile.TemporaryDirectory() as folder:
        cache_ = HubCache(folder=Path(folder))
        key = ("http://hub", "me/model", "")
        cache_.put(key, PUBLIC, "{}")
        (path,) = Path(folder).glob("*.json")
        path.write_bytes(data)
        entry = HubCache(folder=Path(folder)).get(key, PUBLIC, stale=True)
        model = None if entry is None else hub._loaded(entry)
        return entry, None if model is None else model.checkpoint
