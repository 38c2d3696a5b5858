"""Wall time of whole commands, interpreter start included (targets: --help 0.25 s, model 0.4 s)."""

import subprocess
import sys

from bench._timing import median_s

COMMANDS = (
    ["--help"],
    ["model", "Qwen/Qwen3-0.6B", "--json"],
    ["fit", "Qwen/Qwen3-0.6B", "--gpu", "rtx-4090", "--json"],
    [
        "plan",
        "textbook-13b",
        "--gpu",
        "a100-textbook",
        "--rate",
        "10",
        "--input",
        "512",
        "--output",
        "256",
        "--json",
    ],
)


def rows():
    def run(words):
        return lambda: subprocess.run(
            [sys.executable, "-m", "cli", *words], stdout=subprocess.DEVNULL, check=True
        )

    yield "python -c pass", median_s(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)), "s"
    for words in COMMANDS:
        yield "ridgebeam " + " ".join(words[:2]), median_s(run(words)), "s"
