"""`python -m probes.engine_server`: load a model, run its engine in a thread, serve it on 127.0.0.1 until told to stop.

When it is ready, one line on standard output says where: a JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading

from calc.errors import ProbeError, RidgebeamError
from calc.simulation.rules import EngineRules, engine_rules
from probes.listening import LOOPBACK, listening_socket
from probes.processes import end_with_parent

KV_SHARE = 0.25  # of the memory that the weights leave free on their device
MOST_TOKENS = 65_536  # of cache, unless more blocks are asked for


def main(words: list[str]) -> int:
    """Serve until the time is over or the process is interrupted; errors that a person can act on become a message."""
    arguments = _parser().parse_args(words)
    if arguments.with_parent:
        end_with_parent()
    try:
        return _serve(arguments)
    except RidgebeamError as error:
        print(json.dumps({"error": {"kind": type(error).__name__, "message": str(error)}}), flush=True)  # noqa: T201 - its report
        return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="probes.engine_server")
    parser.add_argument("source", nargs="?", default="Qwen/Qwen3-0.6B")
    parser.add_argument("--scheduler", default="vllm")
    parser.add_argument("--port", type=int, default=8010)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="")
    parser.add_argument("--quantization")
    parser.add_argument("--random", action="store_true")
    parser.add_argument("--parameters", type=int)
    parser.add_argument("--max-seqs", type=int)
    parser.add_argument("--token-budget", type=int)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--blocks", type=int)
    parser.add_argument("--no-prefix-cache", action="store_true")
    parser.add_argument("--batch-timeout-s", type=float, default=0.05)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--with-parent", action="store_true", help="end when standard input closes")
    return parser


def _serve(arguments: argparse.Namespace) -> int:
    try:
        import torch
        import uvicorn
    except ImportError as error:
        raise ProbeError(
            f"The engine needs {error.name}.", next_step="Install it with: pip install -e '.[probe]'"
        ) from error
    from probes.engine.engine import Engine
    from probes.engine_server.loading import Wanted, load, parameters_of
    from probes.engine_server.routes import Service, application
    from probes.engine_server.text import tokenizer_of
    from probes.torch_device import TorchDevice

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    listening = listening_socket(arguments.port)
    loaded = load(
        Wanted(
            source=arguments.source,
            device=arguments.device,
            dtype=arguments.dtype,
            quantization=arguments.quantization,
            random=arguments.random,
            parameters=arguments.parameters,
        )
    )
    shape = loaded.decoder.shape
    token_bytes = 2 * shape.layers * shape.kv_heads * shape.head_dim * loaded.decoder.dtype.itemsize
    free_bytes = TorchDevice(str(loaded.decoder.device)).free_bytes()
    engine = Engine(loaded.decoder, rules_of(arguments, _cache_blocks(arguments, token_bytes, free_bytes)))
    service = Service(engine=engine, tokenizer=tokenizer_of(loaded.folder), name=loaded.name)
    thread = threading.Thread(target=engine.run, name="engine", daemon=True)
    thread.start()
    server = uvicorn.Server(
        uvicorn.Config(application(service), log_level="warning", lifespan="off", timeout_graceful_shutdown=2)
    )
    if arguments.seconds:
        threading.Timer(arguments.seconds, lambda: setattr(server, "should_exit", True)).start()
    ready = {
        "url": f"http://{LOOPBACK}:{listening.getsockname()[1]}",
        "model": loaded.name,
        "weights": loaded.note,
        "parameters": parameters_of(shape),
        "weight_bytes": loaded.decoder.weight_bytes,
        "scheduler": str(engine.rules.family),
        "cache_tokens": engine.rules.num_blocks * engine.rules.block_size,
    }
    print(json.dumps(ready), flush=True)  # noqa: T201 - whoever started this waits for it
    server.run(sockets=[listening])
    engine.close()
    return 0


def _cache_blocks(arguments: argparse.Namespace, token_bytes: int, free_bytes: int) -> int:
    tokens = min(MOST_TOKENS, int(KV_SHARE * free_bytes / token_bytes))
    return int(arguments.blocks or max(1, tokens // arguments.block_size))


def rules_of(arguments: argparse.Namespace, blocks: int) -> EngineRules:
    """The scheduler's settings; those that its family does not have are refused there."""
    settings: dict[str, object] = {"block_size": arguments.block_size}
    if arguments.scheduler == "static":
        settings |= {"batch_size": arguments.max_seqs, "batch_timeout_s": arguments.batch_timeout_s}
    else:
        settings |= {
            "max_seqs": arguments.max_seqs,
            "token_budget": arguments.token_budget,
            "prefix_cache": not arguments.no_prefix_cache,
        }
    return engine_rules(arguments.scheduler, num_blocks=blocks, **settings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
