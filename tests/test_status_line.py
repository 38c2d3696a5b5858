"""How far a long command is: told on a terminal's standard error, and nowhere else."""

import json
import sys

import pytest

from calc.simulation.run import Simulation
from cli import main
from commands.patience import patience
from commands.status_line import WIDTH, StatusLine

RUN = ("simulate", "--step-ms", "5,0.01,0.1,0", "--rate", "8", "--input", "64", "--output", "32")


@pytest.fixture
def short_slices(monkeypatch):
    """Slices of 20 passes, so that a small run has several."""
    whole = Simulation.advance
    monkeypatch.setattr(Simulation, "advance", lambda self, passes=20: whole(self, min(passes, 20)))


def _on_a_terminal(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


@pytest.mark.parametrize("more", [(), ("--find", "rate", "--tpot", "1", "--ttft", "5")])
def test_a_simulation_tells_a_terminal_how_far_it_is(monkeypatch, capsys, short_slices, more):
    _on_a_terminal(monkeypatch)
    code = main([*RUN, "--requests", "60", "--json", *more])
    out, err = capsys.readouterr()
    record = json.loads(out)
    assert (code, record["requests"]) == (0, 60)
    told = [line.rstrip() for line in err.split("\r")]
    assert ("requests/s on 1 replica(s)" if more else "% of the requests have their answer") in told[0]
    assert told[-2:] == ["", ""]  # the line is blank before the answer comes


def test_a_pipe_hears_nothing(capsys, short_slices):
    assert main([*RUN, "--requests", "60", "--json"]) == 0
    assert "%" not in capsys.readouterr().err


def test_a_line_is_cut_to_its_width_and_not_written_when_nobody_looks(monkeypatch, capsys):
    StatusLine().say("unseen")
    assert capsys.readouterr().err == ""
    _on_a_terminal(monkeypatch)
    line = StatusLine()
    line.clear()  # nothing stands there yet
    line.say("x" * 200)
    assert capsys.readouterr().err == "x" * WIDTH + "\r"


def test_who_is_told_how_far_it_is_is_not_asked_for_patience(monkeypatch, capsys):
    _on_a_terminal(monkeypatch)
    with patience(after_s=60.0) as told:
        told("12% done")
    assert capsys.readouterr().err == f"{'12% done':<{WIDTH}}\r{' ' * WIDTH}\r"
