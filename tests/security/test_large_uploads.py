"""The running server and 100 MB: refused with its memory as it was; what unpacks to more is cut off, and said."""

import gzip
from pathlib import Path

import pytest
from running import app
from visitor import visiting

MB = 1_000_000
GROWTH_MB = 40  # beside what reading a page for the first time takes
PAGE, QUERY = "simulate", "sim_source=an+uploaded+trace"


@pytest.fixture(scope="module")
def served():
    with app(HOME="/proc/none", RIDGEBEAM_SHARED="1") as (server, port), visiting(port) as visitor:
        visitor.open(PAGE, QUERY)
        assert not visitor.exceptions
        yield server, visitor


def resident_mb(server, which="VmRSS"):
    status = Path(f"/proc/{server.pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(which)) / 1000


def test_a_hundred_megabytes_are_refused_and_not_held(served):
    server, visitor = served
    before = resident_mb(server)
    assert visitor.send_file("whole.csv", b"x" * (100 * MB)) == 413
    assert visitor.send_file("pieces.csv", (b"x" * MB for _ in range(100))) == 413
    assert resident_mb(server, "VmHWM") < before + GROWTH_MB


def test_only_its_own_page_sends_a_file(served):
    _, visitor = served
    assert visitor.send_file("small.csv", b"x") == 204
    assert visitor.send_file("small.csv", b"x", session="of-nobody") == 400
    assert visitor.send_file("small.csv", b"x", token="_streamlit_xsrf=guessed") == 403


def test_a_packed_trace_without_end_is_cut_off_in_the_running_server(served):
    server, visitor = served
    bomb = gzip.compress(b"arrival_s,input_tokens,output_tokens\n" + b"1" * (20 * MB), 1)
    assert len(bomb) < MB
    assert visitor.send_file("row.gz", bomb) == 204
    visitor.open(PAGE, QUERY, files={"sim_trace": ("row.gz", len(bomb))})
    assert not visitor.exceptions
    assert any("A row of a trace may hold" in said for said in visitor.said), visitor.said[-20:]
    assert resident_mb(server) < 500


BOMBS = {
    "load test": ("endpoint", "endpoint_upload", "bomb.json", b"[" * 200_000, "nested too deeply"),
    "fleet": ("fleet", "fleet-upload", "bomb.csv", b"name,model\n" * 200_000, "at most 1,000,000 are read"),
    "trace": (PAGE, "sim_trace", "bomb.json", b"{" * 200_000, "it is not JSON"),
}


@pytest.mark.parametrize(("where", "uploader", "name", "bomb", "words"), BOMBS.values(), ids=BOMBS)
def test_a_file_that_is_meant_to_hurt_is_an_error_in_words(served, where, uploader, name, bomb, words):
    _, visitor = served
    visitor.open(where, QUERY)
    assert visitor.send_file(name, bomb) == 204
    visitor.open(where, QUERY, files={uploader: (name, len(bomb))})
    assert not visitor.exceptions
    assert any(words in said for said in visitor.said), visitor.said[-20:]
