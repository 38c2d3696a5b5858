"""`ridgebeam bench` around a load test that has ended: what was measured is kept, whatever cannot be made of it."""

import json
from dataclasses import replace

import pytest
from test_summary import sample

from calc.endpoint.plan import TestPlan
from calc.endpoint.run import EndpointRun
from cli import main
from commands import bench

URL = "http://127.0.0.1:9"
ASKED = ["bench", URL, "--concurrency", "1", "--prompts", "64", "--json"]


@pytest.fixture
def measured(monkeypatch):
    """A run of two requests, too few to fit anything to."""
    run = EndpointRun(
        target=URL,
        api="openai",
        model="m",
        plan=TestPlan(prompt_lengths=(64,), concurrency=(1,)),
        samples=tuple(replace(sample(at, at + 1, at + 2), stage="concurrency 1") for at in (0, 2)),
        server={},
        server_means={},
        waiting={},
        client={},
        notes=(),
        wall_s=4.0,
    )
    monkeypatch.setattr(
        bench, "_measure", lambda question: (run, {"kind": "the record", "url": question.url})
    )


def test_a_run_that_nothing_can_be_fitted_to_is_written_all_the_same(measured, capsys, tmp_path):
    out, profile = tmp_path / "run.json", tmp_path / "profile.json"
    words = [
        "--source",
        "Qwen/Qwen3-0.6B",
        "--gpu",
        "h100-sxm",
        "--calibrate",
        str(profile),
        "--out",
        str(out),
    ]
    assert main([*ASKED, *words]) != 0
    assert "error" in json.loads(capsys.readouterr().out)
    assert json.loads(out.read_text(encoding="utf-8"))["run"] == {"kind": "the record", "url": URL}
    assert not profile.exists()


@pytest.mark.parametrize(
    ("name", "begins"), [("r.html", "<!"), ("r.csv", "concurrency,"), ("r.json", "{"), ("r", "{")]
)
def test_the_ending_names_the_format(measured, tmp_path, name, begins):
    assert main([*ASKED, "--out", str(tmp_path / name)]) == 0
    assert (tmp_path / name).read_text(encoding="utf-8").lower().startswith(begins)


def test_a_file_that_cannot_be_written_is_named(measured, capsys, tmp_path):
    assert main([*ASKED, "--out", str(tmp_path / "no folder/run.json")]) == 2
    assert "--out: got" in json.loads(capsys.readouterr().out)["error"]["message"]
