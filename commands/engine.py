"""`ridgebeam engine`: serve the reference engine on this machine, so that the load test can be tried on it."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from calc.errors import ProbeError
from commands.arguments import OK, UNAVAILABLE, positive, tokens, verb

ROOT = Path(__file__).resolve().parents[1]


def add(verbs: Any) -> None:
    parser = verb(verbs, "engine", run, "serve the reference engine on 127.0.0.1, to try the load test on")
    parser.add_argument(
        "source",
        metavar="SOURCE",
        nargs="?",
        default="Qwen/Qwen3-0.6B",
        help="a Qwen3 or Llama: folder, preset, hub id",
    )
    parser.add_argument("--scheduler", default="vllm", choices=("vllm", "nano-vllm", "static"))
    parser.add_argument("--port", type=int, default=8010, help="0: any that is free")
    parser.add_argument("--device", default="auto", help="auto, cuda:0, mps, cpu")
    parser.add_argument("--dtype", default="", choices=("", "fp32", "bf16", "fp16"))
    parser.add_argument("--quantization", choices=("int8", "int4-g128", "fp8"))
    parser.add_argument("--random", action="store_true", help="random weights, without asking the hub")
    parser.add_argument(
        "--parameters", type=tokens, metavar="N", help="most random weights; default: by device"
    )
    parser.add_argument("--max-seqs", type=tokens, help="requests at once; slots of a static batch")
    parser.add_argument("--token-budget", type=tokens, help="tokens of a pass")
    parser.add_argument("--block-size", type=tokens, default=16, help="tokens of a cache block")
    parser.add_argument("--blocks", type=tokens, help="blocks of the cache; default: by memory")
    parser.add_argument("--no-prefix-cache", action="store_true")
    parser.add_argument("--batch-timeout-s", type=positive, default=0.05, help="patience of a static batch")
    parser.add_argument("--threads", type=tokens, help="of the processor")
    parser.add_argument("--seconds", type=positive, help="stop after that long; default: when interrupted")


def run(arguments: argparse.Namespace) -> int:
    process = subprocess.Popen(  # noqa: S603 - our own argv, no shell
        words_of(arguments), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        ready = _report(process.stdout.readline() if process.stdout else "")
        if "url" in ready and not arguments.json:
            print(f"{ready['model']} at {ready['url']} ({ready['weights']}; scheduler {ready['scheduler']}).")
            print(f"Try: ridgebeam bench {ready['url']} --quick")
        elif "url" in ready:
            print(json.dumps(ready), flush=True)
        sys.stdout.flush()
        process.wait()
    except KeyboardInterrupt:
        return OK
    finally:
        for pipe in (process.stdin, process.stdout):  # it ends when its standard input closes
            if pipe is not None:
                pipe.close()
        process.wait()
    if "url" not in ready:
        error = ready.get("error", {})
        raise _RefusedError(
            str(error.get("message") or "The engine did not start."), process.returncode or UNAVAILABLE
        )
    return OK


class _RefusedError(ProbeError):
    """What the engine's process said when it refused, with its exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


def _report(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def words_of(arguments: argparse.Namespace) -> list[str]:
    """The command of the engine's own process: torch is never imported here."""
    words = [sys.executable, "-m", "probes.engine_server", arguments.source, "--with-parent"]
    for name, value in vars(arguments).items():
        if name in {"verb", "run", "json", "source"} or value is None or value is False or value == "":
            continue
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            words.append(str(value))
    return words
