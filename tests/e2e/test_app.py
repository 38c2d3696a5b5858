"""The main job in a browser: paste an id, change the traffic, read the answer, pass on the link."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from pages._registry import PAGES

pytestmark = pytest.mark.e2e

FINDINGS = {
    "size": "A100 SXM4 80GB serve this",
    "compare": "At 30 tokens/s per user",
    "fleet": "4 deployments with 100 requests/s",
    "simulate": "What will users really feel",
    "model": "13 billion parameters",
    "batch-size": "ends it:",
    "memory": "The newest vLLM will log",
    "roofline": "Decode stays memory-bound at any batch; prefill crosses the ridge at 173 tokens",
    "scheduler": "Static batching wastes 65% of the slots; continuous batching wastes",
    "paged-kv": "Reserving 4,096 tokens fits",
    "speculative": "4 drafts at 80% acceptance: 3.36 tokens a pass",
    "queueing": "At 80% load the mean is 5 times",
    "quantisation": "weights decode",
    "accuracy": "public points that were not fitted",
    "methods": "formulas",
}
CHARTS = {
    "size": 1,
    "compare": 1,
    "fleet": 1,
    "simulate": 0,
    "model": 2,
    "memory": 5,
    "roofline": 1,
    "batch-size": 1,
    "scheduler": 1,
    "paged-kv": 3,
    "speculative": 2,
    "queueing": 1,
    "quantisation": 4,
    "accuracy": 1,
    "methods": 0,
}
expect.set_options(timeout=30_000)  # a busy machine takes its time; nothing here asserts how long


# What axe finds in Streamlit's own markup: the drop zone of its uploader, its keyboard hints, formulas that
# scroll sideways.
STREAMLITS_OWN = {
    "presentation-role-conflict": "stFileUploaderDropzo",
    "color-contrast": "<kbd",
    "scrollable-region-focusable": ("katex-display", "stMarkdownContainer"),
}


# Streamlit writes white on the primary colour whatever that is; on a dark ground it must be light enough to be read as text.
WHITE_ON_PRIMARY = {"fgColor": "#ffffff", "bgColor": "#1098ad"}


def own_violations(page, *rules):
    """(rule, markup) of what axe-core finds and Streamlit did not make; of all its rules where none are named."""
    options = {"runOnly": list(rules)} if rules else None
    return [
        (found["id"], node["html"][:200])
        for found in Axe().run(page, options=options).response["violations"]
        for node in found["nodes"]
        if not any(mark in node["html"] for mark in _marks(found["id"]))
        and not any((check["data"] or {}).items() >= WHITE_ON_PRIMARY.items() for check in node["any"])
    ]


def _marks(rule):
    marks = STREAMLITS_OWN.get(rule, ())
    return (marks,) if isinstance(marks, str) else marks


def title(page):
    return page.get_by_role("heading", level=1)


def settled(page):
    """No rerun is under way."""
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
    expect(page.locator("[data-stale='true']")).to_have_count(0)


def set_box(page, label, value):
    box = page.locator(f"input[aria-label='{label}']")
    box.fill(value)
    box.press("Enter")


def choose_model(page, model_id):
    box = page.get_by_role("combobox", name="Model")
    box.click()
    box.fill(model_id)
    box.press("Enter")


def metric(page, label):
    box = page.get_by_test_id("stMetric").filter(has_text=label)
    return box.get_by_test_id("stMetricValue")


def copied_link(page):
    page.get_by_role("button", name="Copy link").click()
    link = page.get_by_test_id("stCode").inner_text().strip()
    page.keyboard.press("Escape")
    return link


def test_a_deep_link_as_the_first_request_of_a_fresh_server(page, fresh_url):
    page.goto(f"{fresh_url}/batch-size?model=Qwen/Qwen3-8B&gpu=h100-sxm5-80gb&rate=3&tpot_ms=none")
    expect(title(page)).to_contain_text("Batch")
    expect(page.get_by_role("spinbutton", name="Requests per second, at peak")).to_have_value("3")
    expect(page.get_by_role("combobox", name="Accelerator")).to_have_value("h100-sxm5-80gb")
    expect(page.get_by_role("textbox", name="Target: TPOT, ms")).to_have_value("none")
    expect(page.get_by_text("frame", exact=True)).to_have_count(0)  # the automatic menu of files


def test_the_main_job_and_its_link(page, base_url, another_visitor):
    page.goto(base_url)
    expect(title(page)).to_contain_text("x A100")
    before = title(page).inner_text()
    choose_model(page, " https://huggingface.co/qwen/qwen3-8b ")
    expect(title(page)).not_to_have_text(before)
    before = title(page).inner_text()
    set_box(page, "Requests per second, at peak", "200")
    expect(title(page)).not_to_have_text(before)
    targeted = title(page).inner_text()
    set_box(page, "Target: TPOT, ms", "")
    expect(title(page)).not_to_have_text(targeted)  # without a target another limit binds
    settled(page)
    answer, gpus = title(page).inner_text(), metric(page, "GPUs").inner_text()
    assert re.match(rf"{gpus} x A100", answer)
    link = copied_link(page)
    assert "rate=200" in link
    assert "tpot_ms=none" in link
    fresh = another_visitor(link)
    expect(title(fresh)).to_have_text(answer)
    expect(metric(fresh, "GPUs")).to_have_text(gpus)


def test_the_scenario_stays_across_pages_and_back(page, base_url):
    page.goto(f"{base_url}/?rate=25")
    expect(title(page)).to_contain_text("x A100")
    rate = page.get_by_role("spinbutton", name="Requests per second, at peak")
    expect(rate).to_have_value("25")  # the browser takes a moment to show what the link says
    settled(page)
    answer = title(page).inner_text()
    page.get_by_role("button", name="Understand").click()
    page.get_by_role("menuitem", name="Queueing").click()
    expect(title(page)).to_contain_text("At 80% load")
    expect(rate).to_have_value("25")
    page.go_back()
    expect(title(page)).to_have_text(answer)
    assert "rate=25" in page.url


def test_a_pasted_config_is_asked_for_again_by_the_link(page, base_url, another_visitor):
    page.goto(base_url)
    expect(title(page)).to_contain_text("A100")
    page.get_by_text("More: paste a config.json, revision").click()
    box = page.get_by_role("textbox", name="config.json, pasted")
    box.fill("a poem, not a config")
    box.press("Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text("JSON")
    expect(page.get_by_role("spinbutton", name="Requests per second, at peak")).to_be_visible()
    link = copied_link(page)
    assert "pasted=1" in link
    expect(another_visitor(link).get_by_text("Paste it again")).to_be_visible()


def test_a_ready_scenario_leads_to_its_page(page, base_url):
    page.goto(base_url)
    expect(title(page)).to_contain_text("A100")
    page.get_by_role("button", name="Examples").click()
    page.get_by_text("A simple endpoint").click()
    expect(title(page)).to_contain_text("At 80% load")
    expect(page.get_by_role("spinbutton", name="Requests per second, at peak")).to_have_value("40")


def test_save_and_load_bring_everything_back(page, base_url, tmp_path):
    page.goto(f"{base_url}/?rate=77&out=128")
    expect(title(page)).to_contain_text("A100")
    answer = title(page).inner_text()
    page.get_by_role("button", name="File").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save scenario").click()
    saved = tmp_path / "scenario.json"
    download.value.save_as(saved)
    page.goto(base_url)
    expect(title(page)).to_contain_text("x A100")
    expect(title(page)).not_to_have_text(answer)
    page.get_by_role("button", name="File").click()
    page.locator("input[type=file]").last.set_input_files(saved)
    expect(title(page)).to_have_text(answer)


@pytest.mark.parametrize("entry", PAGES, ids=[entry.url_path for entry in PAGES])
def test_each_page_draws_its_charts_with_words_and_fits_phone_and_dark(page, base_url, entry):
    page.goto(f"{base_url}/{entry.url_path}")
    finding = FINDINGS.get(
        entry.url_path, re.compile(r"\w{3,}")
    )  # what a machine measures differs from one to the next
    expect(title(page)).to_contain_text(finding)
    expect(page.get_by_text("Page not found")).to_have_count(0)
    charts = page.locator(".js-plotly-plot")
    if entry.url_path in CHARTS:
        expect(charts).to_have_count(CHARTS[entry.url_path])
    figures = page.get_by_role("figure").all()
    assert len(figures) == charts.count()
    for figure in figures:
        assert len(figure.get_attribute("aria-label")) > 40
    assert not own_violations(page)
    for ranges in page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot')].map(p => [p.layout.xaxis, p.layout.yaxis])"
    ):
        for axis in ranges:
            low, high = axis["range"]
            assert low != high
            if axis.get("type") == "log":
                assert -9 <= low < high < 16  # powers of ten from ns to FLOP/s, not 10^304
    page.set_viewport_size({"width": 390, "height": 844})
    expect(title(page)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme="dark")
    page.reload()
    expect(title(page)).to_contain_text(finding)
    background = page.get_by_test_id("stApp").evaluate("e => getComputedStyle(e).backgroundColor")
    assert background == "rgb(15, 21, 25)"  # the dark palette of .streamlit/config.toml
    settled(page)
    assert not own_violations(page, "color-contrast")


def test_the_batch_chart_is_logarithmic_over_its_batches(page, base_url):
    page.goto(f"{base_url}/batch-size?fidelity=textbook&kv_gb=50")
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    low, high = page.evaluate("document.querySelector('.js-plotly-plot').layout.xaxis.range")
    assert (low, round(high, 2)) == (0, 2.49)  # 1 to twice the 153 of the compute line


def test_a_click_on_a_dot_of_the_roofline_shows_its_maths(page, base_url):
    page.goto(f"{base_url}/roofline")
    expect(title(page)).to_contain_text("memory-bound")
    points = page.locator(".js-plotly-plot .scatterlayer .point")
    expect(points.first).to_be_visible()
    settled(page)
    points.first.click(force=True)
    expect(page.get_by_text("At the datasheet's peaks", exact=True)).to_be_visible()
    expect(page.locator('input[aria-label="An operator\'s maths"]')).not_to_have_value("")
