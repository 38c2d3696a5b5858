"""The reference engine on this processor, beside what the measured profile predicts; writes the tables of docs/engine.md.

Bar: continuous batching has at least 1.5 times the throughput of static on mixed lengths, 16 at once. One thread, so that
the load test's client has a processor of its own. The run is a job of the probes, as on the page This GPU.
"""

import os
import time
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "engine.md"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->"
TITLES = {
    "cache": "256 tokens after a prompt of 32, with and without a KV cache",
    "weights": "Before and after quantisation, one sequence",
    "drafts": "Speculative decoding: tokens of a checking pass; predicted is the formula at the acceptance of single drafts",
    "levels": "Static against continuous batching, prompts of 64 tokens and answers of 16, by `ridgebeam bench`",
    "mixed": "Mixed lengths (prompts of 16 to 128, answers of 8, 16, 24 or 128 tokens), 16 users",
}


def rows():
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from probes import jobs, store
    from probes.whole_path_table import lines, markdown

    job = jobs.start(jobs.whole_path_request(device="cpu"))
    while (found := jobs.progress(job)).running:
        time.sleep(0.5)
    if found.run_id is None:
        raise SystemExit(f"{found.message} {jobs.stderr_of(job)}")
    run = store.load(found.run_id)
    for problem in run["problems"]:
        print(f"  {problem['probe']} {problem['case']}: {problem['kind']}: {problem['message']}")
    measured = lines(run)
    for line in measured:
        yield f"{line.table}: {line.what}", line.measured, line.unit
        if line.predicted is not None:
            yield "  predicted", line.predicted, line.unit
    mixed = {line.what: line.measured for line in measured if line.table == "mixed"}
    if len(mixed) == 2:
        yield "continuous over static, mixed lengths (bar 1.5)", mixed["continuous"] / mixed["static"], "x"
    write(run, measured, markdown)


def write(run, measured, markdown):
    """Put the tables of this run between the marks of the document."""
    case = next(case for case in run["cases"] if case["probe"] == "whole_path")
    shape = case["parameters"]["config"]
    how = (
        f"Measured {run['started'][:10]} on {run['device']['name']}, {os.environ['OMP_NUM_THREADS']} thread, torch "
        f"{run['software']['torch']}, by `python -m bench engine`: random weights in {case['parameters']['dtype']}, "
        f"{shape['num_hidden_layers']} layers of width {shape['hidden_size']}, vocabulary {shape['vocab_size']:,}. "
        f"Load when it ended: {os.getloadavg()[0]:.0f} on {os.cpu_count()} processors; above one each, other work ran beside it."
    )
    text = [how, ""]
    for table, title in TITLES.items():
        text += [f"**{title}**", "", *markdown(measured, table), ""]
    before, rest = DOCUMENT.read_text(encoding="utf-8").split(BEGIN)
    DOCUMENT.write_text(before + BEGIN + "\n".join(text) + END + rest.split(END)[1], encoding="utf-8")
