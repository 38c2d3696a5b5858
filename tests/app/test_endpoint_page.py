"""The page An endpoint: a saved run shows its finding, a refused address its reason, a calibration becomes the profile."""

import json
import time

import pytest
from reading import is_filled_in, names_shown, text_of, titles

from calc.endpoint.plan import TestPlan
from calc.endpoint.run import run_from_json
from calc.endpoint.samples import Sample
from calc.formulas import FORMULAS
from pages import _endpoint_job as job
from pages import _endpoint_opinion
from pages._origins import ORIGINS
from presets import accelerators, profiles
from presets.profiles.calibrated import save_calibration
from probes.endpoint.second_opinion import Opinion

pytestmark = pytest.mark.app
QUERY = {"model": "Qwen/Qwen3-8B", "gpu": "h100-sxm5-80gb", "fidelity": "expected"}
PLAN = TestPlan(prompt_lengths=(256, 1024, 4096), concurrency=(1, 4))


def made_up_record():
    """A server with TTFT = 20 ms + 50 µs a token and 12 ms a token, a third slower with four at a time."""
    samples, clock = [], 0.0

    def add(stage, prompt, made, tpot, start):
        first = start + 0.02 + 5e-5 * prompt
        last = first + tpot * (made - 1)
        samples.append(
            Sample(
                stage=stage,
                scheduled_s=start,
                start_s=start,
                first_s=first,
                last_s=last,
                end_s=last,
                asked_tokens=made,
                prompt_tokens=prompt,
                output_tokens=made,
                cached_tokens=0,
                chunks=made,
            )
        )
        return last

    for prompt in (256, 1024, 4096):
        for _ in range(3):
            clock = add("prefill", prompt, 8, 0.012, clock)
    for _ in range(5):
        clock = add("decode", 256, 128, 0.012, clock)
    for users in (1, 4):
        ends = [clock + 0.001 * u for u in range(users)]
        for number in range(32):
            ends[number % users] = add(
                f"concurrency {users}", 512, 64, 0.012 * (1 + users / 12), ends[number % users]
            )
        clock = max(ends)
    return {
        "kind": "ridgebeam endpoint run",
        "schema": 1,
        "target": "http://127.0.0.1:8000",
        "api": "openai",
        "model": "qwen <b>8b</b>",
        "server": {"slots": None},
        "plan": PLAN.as_json(),
        "wall_s": clock,
        "samples": [s.as_json() for s in samples],
        "server_means": {},
        "waiting": {},
        "client": {"loop_lag_p99_s": 0.001},
        "notes": [],
    }


def captions(app):
    return " ".join(text_of(caption) for caption in app.caption)


@pytest.fixture
def measured(open_page, monkeypatch, tmp_path):
    monkeypatch.setenv("RIDGEBEAM_DATA_DIR", str(tmp_path))
    app = open_page("endpoint.py", **QUERY)
    record = json.loads(json.dumps(made_up_record()))
    app.session_state[job.RUN_KEY] = run_from_json(record)
    app.session_state[job.RECORD_KEY] = record
    app.run()
    assert not app.exception, app.exception
    return app


def test_before_a_run_the_page_says_what_will_be_sent(open_page):
    app = open_page("endpoint.py", **QUERY)
    assert "Nothing is measured yet" in titles(app)[0]
    assert "Nothing is sent before you press the button" in captions(app)


def test_the_title_is_the_speed_and_its_share_of_the_limit(measured):
    (title,) = titles(measured)
    assert "83.3 tokens/s per user" in title  # 1 / 12 ms
    assert "% of the bandwidth limit" in title
    metrics = {m.label: m.value for m in measured.metric}
    assert metrics["TPOT alone"] == "12 ms"
    assert metrics["Prefill"] == "20,000 tokens/s"  # 1 / 50 µs
    assert not measured.error


def test_a_measured_server_is_worked_out(measured):
    measured.session_state["endpoint-maths"] = True
    measured.run()
    assert not measured.exception
    listed = ORIGINS["endpoint.py"]
    assert names_shown(measured, {}) == set(listed)
    for source in listed.values():
        for one in source if isinstance(source, tuple) else ():
            assert is_filled_in(measured, FORMULAS[one].result.latex), one
    lines = [line.value.strip("$\n ") for line in measured.latex]
    assert "12 " in next(line for line in lines if line.startswith(r"\mathrm{TPOT} = "))
    assert any(line.startswith("t_{pass} = ") for line in lines)  # the decode limit
    levels = len(measured.dataframe[0].value)
    shares = 2 + 2 * levels  # over the limit, over the prediction; each level's goodput and TPOT
    assert sum(line.startswith("s = ") for line in lines) == shares
    assert sum(line.startswith("r = ") for line in lines) >= levels  # tokens per second of each level


def test_an_address_that_is_refused_says_why(open_page):
    app = open_page("endpoint.py", **QUERY)
    app.text_input(key="endpoint_url").set_value("http://key@127.0.0.1:8000").run()
    assert "never in a URL" in app.error[0].value.replace("\\", "")
    assert not [b for b in app.button if b.key == "endpoint_start"]


def test_the_budget_is_stated_before_the_button_appears(open_page):
    app = open_page("endpoint.py", **QUERY)
    app.text_input(key="endpoint_url").set_value("http://127.0.0.1:8000").run()
    assert "requests" in captions(app)
    assert app.button(key="endpoint_start").label == "Send this and measure"


def test_a_dead_server_is_an_error_in_words(open_page):
    app = open_page("endpoint.py", **QUERY)
    app.text_input(key="endpoint_url").set_value("http://127.0.0.1:9").run()
    app.button(key="endpoint_start").click().run()
    for _ in range(200):
        if app.error:
            break
        time.sleep(0.2)
        app.run()
    assert "No server answers" in app.error[0].value
    assert not app.exception


def test_use_as_profile_calibrates_every_answer(measured):
    measured.button(key="endpoint_use").click().run()
    profile_id = measured.session_state["profile"]
    assert profile_id.startswith("endpoint-")
    assert not measured.error
    metrics = {m.label: m.value for m in measured.metric}
    ratio = float(metrics["Measured over predicted"].removesuffix("x"))
    assert ratio == pytest.approx(1.0, abs=0.15)  # the prediction is calibrated now


def test_a_calibration_is_for_its_model_and_accelerator_only(monkeypatch, tmp_path):
    monkeypatch.setenv("RIDGEBEAM_DATA_DIR", str(tmp_path))
    gpu = accelerators.load("h100")
    fitted = profiles.load(gpu, "vllm")
    calibrated = profiles.load(gpu, "vllm", calibration=profiles.Calibration(scalars={"decode_factor": 1.5}))
    key = save_calibration(calibrated, accelerator_id=gpu.id, model_id="a/b")
    assert profiles.with_stored_run(fitted, gpu, key, model_id="a/b").calibration.get("decode_factor") == 1.5
    assert profiles.with_stored_run(fitted, gpu, key, model_id="c/d") == fitted
    assert profiles.with_stored_run(fitted, accelerators.load("a100"), key, model_id="a/b") == fitted
    with pytest.raises(ValueError, match="no such calibration"):
        profiles.with_stored_run(fitted, gpu, "endpoint-none", model_id="a/b")
    with pytest.raises(ValueError, match="must be the id"):
        profiles.with_stored_run(fitted, gpu, "endpoint-../../x", model_id="a/b")


def test_without_guidellm_the_page_says_how_to_get_it(measured):
    assert "GuideLLM is not installed here" in captions(measured)
    assert not [button for button in measured.button if button.key == "endpoint_opinion"]


def test_guidellms_figures_stand_beside_ours(measured, monkeypatch):
    monkeypatch.setattr(_endpoint_opinion, "command", lambda: ["guidellm"])
    theirs = Opinion(by_streams={1: {"tpot_s": 0.024}}, input_tokens={1: 300.0}, text="{}")
    monkeypatch.setattr(_endpoint_opinion, "second_opinion", lambda *_, **__: theirs)
    measured.run()
    measured.button(key="endpoint_opinion").click().run()
    assert not measured.exception
    table = next(frame.value for frame in measured.dataframe if "theirs_over_ours" in frame.value)
    assert list(table["guidellm"]) == [0.024]
    assert "inter-token latency" in " ".join(text_of(line) for line in measured.markdown)
