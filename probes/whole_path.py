"""The whole path on this device: the reference engine with each serving idea off and on, measured like any other probe.

Cache, quantised weights, drafts in this process; static and continuous batching through the HTTP server of a process of
its own and the load test that `ridgebeam bench` runs. The model is the shape of the scenario's (Qwen3-0.6B's where that is
of another kind), scaled down to what the device can run in a minute or two, with random weights: speed does not depend on
them, the text means nothing. What the step model predicts for each line is worked out beside it (`probes.whole_path_table`).
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from calc.errors import UnsupportedArchitecture
from presets import models
from probes.endpoint.client import EndpointClient, Limits
from probes.endpoint.dialects import Api, Ask
from probes.endpoint.safety import Policy, checked_target
from probes.engine.cache import Piece
from probes.engine.decoder import Decoder
from probes.engine.generate import Generated, generate, generate_with_drafts, generate_without_cache
from probes.engine.sampling import Sampling
from probes.engine.shape import DecoderShape, shape_of
from probes.engine_server.loading import DTYPES, config_of_shape, parameters_of, random_weights, scaled_down
from probes.harness import Bench, Case, Measurement

ROOT = Path(__file__).resolve().parents[1]
SHAPE = "Qwen/Qwen3-0.6B"
PARAMETERS = {"cpu": 3_000_000}
GPU_PARAMETERS = 600_000_000
PROMPT, ANSWER = 32, 256
SHORT_ANSWER = 64
SCHEMES = ("none", "int8", "int4-g128", "fp8")
DRAFTS = (1, 2, 4)
DRAFTED_TOKENS = 160
DRAFT_SHARE = 4  # the draft is the first quarter of the layers
CONCURRENCY = (1, 4, 16)
LEVEL_INPUT, LEVEL_OUTPUT = 64, 16
LEVEL_REQUESTS = 140  # a P99 needs a hundred in the steady window
SLOTS = 16
MIXED_REQUESTS, MIXED_USERS = 64, 16
MIXED_INPUT = (16, 128)
MIXED_OUTPUT = (8, 16, 24, 128)  # most answers are short, some are long: what static batching suffers from
PATIENCE_S = 0.05
SERVER_LIFE_S = 240.0
BENCH_LIMIT_S = 200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The decoder that every case runs, made once."""

    source: str
    shape: DecoderShape
    dtype: str
    device: torch.device

    def decoder(self, *, scheme: str = "none", layers: int | None = None) -> Decoder:
        """With all layers or the first ones, and weights in a scheme. Equal seeds: parts of one and the same model."""
        weights = random_weights(self.shape, dtype=DTYPES[self.dtype], device=self.device)
        shape = replace(self.shape, layers=layers or self.shape.layers)
        return Decoder(shape, weights, quantization=None if scheme == "none" else scheme)

    @property
    def parameters(self) -> dict[str, Any]:
        """What a prediction needs to know."""
        torch_name = str(DTYPES[self.dtype]).removeprefix("torch.")
        return {
            "source": self.source,
            "config": config_of_shape(self.shape, dtype=torch_name),
            "dtype": self.dtype,
        }


def cases(bench: Bench) -> list[Case]:
    """All lines of the tables. Essential: each is wanted, and each is bounded by its tokens."""
    source, shape = _shape((bench.model or {}).get("id"))
    shape = scaled_down(shape, PARAMETERS.get(bench.device.kind, GPU_PARAMETERS))
    model = Model(source=source, shape=shape, dtype=bench.device.sixteen_bit, device=bench.device.device)
    found: list[tuple[str, dict[str, Any], Callable[[], Measurement]]] = [
        ("without a cache", {"tokens": ANSWER}, partial(_cache, model, generate_without_cache)),
        ("with a cache", {"tokens": ANSWER}, partial(_cache, model, generate)),
    ]
    found += [(f"weights {name}", {"scheme": name}, partial(_quantised, model, name)) for name in SCHEMES]
    found += [(f"{count} drafts", {"drafts": count}, partial(_speculation, model, count)) for count in DRAFTS]
    for family in ("static", "vllm"):
        found.append((f"{family} levels", {"family": family}, partial(_levels, model, family)))
        found.append((f"{family} mixed lengths", {"family": family}, partial(_mixed, model, family)))
    return [
        Case(name=name, run=run, parameters={**parameters, **model.parameters}, essential=True)
        for name, parameters, run in found
    ]


def _shape(wanted: str | None) -> tuple[str, DecoderShape]:
    """The bundled model of that name and its shape, or the reference model's where it is of a kind the engine has not."""
    for source in (wanted, SHAPE):
        config = models.config_of(source) if source else None
        if source and config is not None:
            with suppress(UnsupportedArchitecture):
                return source, shape_of(config)
    raise RuntimeError(f"{SHAPE} is not bundled")


def _prompt(model: Model, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(model.shape.vocabulary), k=PROMPT)  # noqa: S311 - a prompt, no secret


def _cache(model: Model, path: Callable[..., Generated]) -> Measurement:
    decoder, prompt = model.decoder(), _prompt(model)
    path(decoder, prompt, 4)
    found = path(decoder, prompt, ANSWER)
    return Measurement(
        value=found.stamps_s[-1],
        unit="s",
        extra={"ttft_s": found.ttft_s, "tpot_s": found.tpot_s, "prompt": PROMPT},
    )


def _quantised(model: Model, scheme: str) -> Measurement:
    """TPOT with the weights in a scheme, and how far the logits of a fixed text move."""
    decoder, prompt = model.decoder(scheme=scheme), _prompt(model)
    text = [Piece(tokens=random.Random(7).choices(range(model.shape.vocabulary), k=128), start=0)]  # noqa: S311 - the same
    exact = model.decoder().logits(text, every_token=True)
    moved = decoder.logits(text, every_token=True)
    generate(decoder, prompt, 4)
    found = generate(decoder, prompt, SHORT_ANSWER)
    return Measurement(
        value=found.tpot_s,
        unit="s",
        extra={
            "ttft_s": found.ttft_s,
            "weight_bytes": decoder.weight_bytes,
            "logit_error": float((moved - exact).norm() / exact.norm()),
            "same_argmax": float((moved.argmax(-1) == exact.argmax(-1)).float().mean()),
            "prompt": PROMPT,
        },
    )


def _speculation(model: Model, drafts: int) -> Measurement:
    """Tokens of a checking pass by count, and the share of tried drafts that were kept."""
    decoder, draft = model.decoder(), model.decoder(layers=max(1, model.shape.layers // DRAFT_SHARE))
    sampling = Sampling(temperature=1.0, seed=5)
    prompt = _prompt(model)
    alone = generate(decoder, prompt, SHORT_ANSWER, sampling=sampling)
    found = generate_with_drafts(decoder, draft, prompt, DRAFTED_TOKENS, drafts=drafts, sampling=sampling)
    kept, passes = sum(found.accepted), len(found.accepted)
    refused = sum(accepted < drafts for accepted in found.accepted)
    acceptance = kept / max(1, kept + refused)
    return Measurement(
        value=1 + kept / passes,
        unit="tokens",
        extra={
            "acceptance": acceptance,
            "passes": passes,
            "speedup": alone.tpot_s / found.tpot_s,
        },
    )


@contextmanager
def _server(model: Model, family: str) -> Any:
    """The address of the engine in a process of its own, on this device."""
    words = ["--random", "--parameters", str(parameters_of(model.shape)), "--device", str(model.device)]
    words += ["--dtype", model.dtype, "--scheduler", family, "--max-seqs", str(SLOTS), "--port", "0"]
    words += ["--seconds", str(SERVER_LIFE_S), "--with-parent", "--threads", str(torch.get_num_threads())]
    words += ["--batch-timeout-s", str(PATIENCE_S)]
    if family != "static":
        words.append(
            "--no-prefix-cache"
        )  # the prompts are new ones: nothing to hit, and static batching has none
    process = subprocess.Popen(  # noqa: S603 - our own module, arguments are a list
        [sys.executable, "-m", "probes.engine_server", model.source, *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )
    try:
        ready = json.loads((process.stdout.readline() if process.stdout else "") or "{}")
        if "url" not in ready:
            raise RuntimeError(str(ready.get("error") or "the engine's server did not start"))
        yield str(ready["url"])
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()


def _levels(model: Model, family: str) -> Measurement:
    """Throughput and TTFT at each concurrency, by `ridgebeam bench`."""
    with _server(model, family) as url:
        asked = ["bench", url, "--api", "openai-completions", "--quick", "--prompts", "64", "--json"]
        asked += ["--concurrency", ",".join(map(str, CONCURRENCY)), "--requests", str(LEVEL_REQUESTS)]
        asked += ["--input", str(LEVEL_INPUT), "--output", str(LEVEL_OUTPUT), "--limit-s", str(BENCH_LIMIT_S)]
        done = subprocess.run(  # noqa: S603 - our own verb
            [sys.executable, "-m", "cli", *asked],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=BENCH_LIMIT_S + 30,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(
            f"the load test ended with {done.returncode}: {done.stdout[-200:]} {done.stderr[-200:]}"
        )
    levels = [row for row in json.loads(done.stdout)["levels"] if row.get("concurrency")]
    return Measurement(
        value=float(levels[-1]["tokens_per_s"]),
        unit="tokens/s",
        extra={"levels": levels, "input": LEVEL_INPUT, "output": LEVEL_OUTPUT, "slots": SLOTS},
    )


def mixed_traffic() -> list[tuple[int, int]]:
    """(prompt tokens, answer tokens) of each request, the same in every run."""
    draw = random.Random(16)  # noqa: S311 - lengths, no secret
    return [(draw.randint(*MIXED_INPUT), draw.choice(MIXED_OUTPUT)) for _ in range(MIXED_REQUESTS)]


def _mixed(model: Model, family: str) -> Measurement:
    """Tokens a second of mixed lengths, 16 users in a closed loop, through the load test's client."""
    traffic = mixed_traffic()
    with _server(model, family) as url:
        asyncio.run(_users(url, traffic[:2]))
        began = time.perf_counter()
        samples = asyncio.run(_users(url, traffic))
        spent = time.perf_counter() - began
    if any(sample.output_tokens != answer for sample, (_, answer) in zip(samples, traffic, strict=True)):
        raise RuntimeError("some requests did not get their whole answer")
    ttft = sorted(sample.first_s - sample.start_s for sample in samples)
    return Measurement(
        value=sum(answer for _, answer in traffic) / spent,
        unit="tokens/s",
        extra={
            "ttft_p50_s": ttft[len(ttft) // 2],
            "ttft_p99_s": ttft[-1],
            "users": MIXED_USERS,
            "slots": SLOTS,
            "traffic": traffic,
        },
    )


async def _users(url: str, traffic: Sequence[tuple[int, int]]) -> list[Any]:
    """Samples in the order of `traffic`; each user sends the next request when its answer is complete."""
    samples: dict[int, Any] = {}
    waiting = list(enumerate(traffic))[::-1]
    letters = random.Random(3)  # noqa: S311 - text, no secret
    limits = Limits(first_byte_s=BENCH_LIMIT_S, silence_s=BENCH_LIMIT_S, request_s=BENCH_LIMIT_S)
    async with EndpointClient.open(checked_target(url, Policy()), Api.COMPLETIONS, limits=limits) as client:

        async def user() -> None:
            while waiting:
                number, (prompt, answer) = waiting.pop()
                text = "".join(letters.choices("abcdefghijklmnopqrstuvwxyz", k=prompt))
                samples[number] = await client.ask(
                    Ask(model="", prompt=text, max_tokens=answer), stage="mixed"
                )

        await asyncio.gather(*(user() for _ in range(MIXED_USERS)))
    return [samples[number] for number in range(len(traffic))]
