"""Milliseconds for one ledger of each engine (target: 1 ms), a refusal with its nearest changes, a pasted log."""

from bench._timing import median_s
from calc.engine import Engine
from calc.layout import Layout
from calc.memory.engines import EngineSettings, ledger
from calc.memory.logs import read_log
from presets import accelerators, models

LOG = "\n".join(["INFO Available KV cache memory: 55.15 GiB"] + ["INFO loading weights"] * 2000)


def rows():
    card = accelerators.load("h100-sxm5-80gb")
    roomy = accelerators.load("gb300-gpu")
    small = accelerators.load("rtx-4090")
    spec = models.load("meta-llama/Meta-Llama-3.1-8B")
    large = models.load("meta-llama/Llama-3.3-70B-Instruct")
    for engine in Engine:
        chosen = EngineSettings(engine=engine, max_model_len=8192)
        seconds = median_s(lambda chosen=chosen: ledger(spec, card, Layout(), chosen), repeats=51)
        yield f"one ledger, {engine}", 1e3 * seconds, "ms"
    for name in ("Qwen/Qwen3.5-397B-A17B", "google/gemma-3-27b-it", "deepseek-ai/DeepSeek-V3"):
        if models.find(name) is not None:
            hybrid = models.load(name)
            seconds = median_s(
                lambda hybrid=hybrid: ledger(hybrid, roomy, Layout(tp=8), EngineSettings(max_model_len=8192)),
                repeats=51,
            )
            yield f"one ledger, vllm, {name}", 1e3 * seconds, "ms"
    refused = median_s(lambda: ledger(large, small, Layout(), EngineSettings()), repeats=11)
    yield "a refusal with its three nearest changes", 1e3 * refused, "ms"
    plain = median_s(lambda: ledger(large, small, Layout(), EngineSettings(), nearest=False), repeats=51)
    yield "a refusal without them", 1e3 * plain, "ms"
    yield "a pasted log of 2,000 lines", 1e3 * median_s(lambda: read_log(LOG), repeats=11), "ms"
