"""GuideLLM as a child: a stand-in of the same manners here, the program itself where it is installed (marked peers)."""

import json
import shutil
import stat
import sys
import textwrap
from types import SimpleNamespace

import pytest
from test_summary import sample

from calc.endpoint.summary import level_of
from calc.errors import ProbeError
from probes.endpoint import second_opinion as module
from probes.endpoint.safety import ApiKey, Policy, checked_target
from probes.endpoint.second_opinion import Asked, Opinion, second_opinion

TARGET = checked_target("http://127.0.0.1:9", Policy())
ASKED = Asked(streams=(1, 4), input_tokens=64, output_tokens=8, limit_s=20.0)
HONEST = """
    spec = json.loads(pathlib.Path(sys.argv[sys.argv.index("-c") + 1]).read_text())["spec"]
    prompts = pathlib.Path(spec["data"][0]["path"]).read_text().splitlines()
    def stat(median, mean=None): return {"successful": {"median": median, "mean": median if mean is None else mean}}
    benchmarks = [
        {
            "config": {"strategy": {"type_": "concurrent", "streams": streams}},
            "metrics": {
                "prompt_token_count": stat(64), "output_token_count": stat(8), "request_concurrency": stat(streams * 0.9),
                "time_to_first_token_ms": stat(40 * streams), "inter_token_latency_ms": stat(8.0),
                "output_tokens_per_second": stat(100.0 * streams), "time_per_output_token_ms": stat(13.0),
            },
        }
        for streams in spec["profile"]["streams"]
    ]
    told = {"target": spec["backend"]["target"], "prompts": len(set(prompts)), "offline": os.environ["HF_HUB_OFFLINE"]}
    text = json.dumps({"metadata": {}, "config": told, "benchmarks": benchmarks})
    pathlib.Path(spec["outputs"][0]["path"]).write_text(text)
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """A program named guidellm, first on the path, that does what it is told to."""

    def made(body):
        program = tmp_path / "bin/guidellm"
        program.parent.mkdir(exist_ok=True)
        head = f"#!{sys.executable}\nimport json, os, pathlib, sys, time\n"
        program.write_text(head + textwrap.dedent(body))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(program.parent))

    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _: None)
    return made


def test_what_is_asked_and_what_comes_back(stand_in):
    stand_in(HONEST)
    opinion = second_opinion(TARGET, ASKED, model="tiny", key=ApiKey())
    assert opinion.by_streams == {
        1: {"ttft_s": pytest.approx(0.040), "tpot_s": pytest.approx(0.008), "tokens_per_s": 100.0},
        4: {"ttft_s": pytest.approx(0.160), "tpot_s": pytest.approx(0.008), "tokens_per_s": 400.0},
    }
    assert opinion.input_tokens == {1: 64, 4: 64}
    told = json.loads(opinion.text)["config"]
    assert told["target"] == TARGET.shown
    assert told["offline"] == "1"
    assert told["prompts"] == ASKED.requests * 2  # no prompt twice


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("sys.exit('no such option: -c')", "ended with code 1: no such option"),
        ("os.kill(os.getpid(), 9)", "ended by SIGKILL"),
        ("pass", "left no result"),
        (HONEST.replace('path"]).write_text(text)', "path\"]).write_text('{broken')"), "another form"),
        (HONEST.replace('"strategy"', '"plan"'), "another form"),
        (HONEST.replace('"benchmarks": benchmarks', '"benchmarks": 5'), "another form"),
    ],
    ids=["refuses", "killed", "silent", "broken", "renamed", "not a list"],
)
def test_a_child_that_fails_is_told_in_words(stand_in, body, says):
    stand_in(body)
    with pytest.raises(ProbeError, match=says) as failed:
        second_opinion(TARGET, ASKED, model="tiny", key=ApiKey())
    assert failed.value.next_step


def test_a_child_that_never_ends_is_ended_with_its_own(stand_in, monkeypatch, tmp_path):
    stand_in(f"""
    import subprocess
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(child.pid))
    time.sleep(600)
    """)
    monkeypatch.setattr(module, "SPARE_S", 2.0)
    with pytest.raises(ProbeError, match="did not end within 3 s"):
        second_opinion(
            TARGET, Asked(streams=(1,), input_tokens=8, output_tokens=2, limit_s=1.0), model="", key=ApiKey()
        )
    grandchild = int((tmp_path / "pid").read_text())
    assert module.start_time(grandchild) is None


def test_absent_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(module, "command", lambda: None)
    with pytest.raises(ProbeError, match="not installed") as absent:
        second_opinion(TARGET, ASKED, model="", key=ApiKey())
    assert "loadtest" in absent.value.next_step


def test_a_key_never_goes_to_another_program(stand_in):
    stand_in("raise SystemExit('started')")
    with pytest.raises(ProbeError, match="takes an API key from a file") as refused:
        second_opinion(TARGET, ASKED, model="", key=ApiKey("sk-secret"))
    assert "sk-secret" not in str(refused.value)


def test_rows_stand_beside_ours_with_the_difference_in_words():
    level = level_of([sample(t, t + 0.2, t + 1.0, tokens=9) for t in range(8)], concurrency=1)
    report = SimpleNamespace(levels=[SimpleNamespace(level=level)])
    theirs = {"ttft_s": 2 * level.ttft_s.p50, "tpot_s": level.tpot_s.p50, "tokens_per_s": level.tokens_per_s}
    rows = Opinion(
        by_streams={level.concurrency: theirs, 999: {"tpot_s": 1.0}}, input_tokens={}, text=""
    ).rows(report)
    by = {(row["concurrency"], row["figure"]): row for row in rows}
    assert by[level.concurrency, "ttft_s"]["theirs_over_ours"] == pytest.approx(2.0)
    assert by[level.concurrency, "tpot_s"]["theirs_over_ours"] == pytest.approx(1.0)
    assert by[999, "tpot_s"]["theirs_over_ours"] is None  # we did not measure that level
    assert all("Ours" in row["definitions"] for row in rows)


@pytest.mark.endpoint
@pytest.mark.peers
@pytest.mark.skipif(shutil.which("guidellm") is None, reason="guidellm is not on the path")
def test_guidellm_itself_measures_the_same_server(llama_url):
    opinion = second_opinion(checked_target(llama_url, Policy()), ASKED, model="tiny", key=ApiKey())
    assert set(opinion.by_streams) == {1, 4}
    for figures in opinion.by_streams.values():
        assert set(figures) == {"ttft_s", "tpot_s", "tokens_per_s"}
        assert all(value > 0 for value in figures.values())
