"""The probes on this processor: repeatability, an independent stream loop, a small torch decoder, the app's memory."""

import os
import resource
import tempfile
import time

import numpy as np

from bench._timing import median_s


def rows():
    os.environ["RIDGEBEAM_DATA_DIR"] = tempfile.mkdtemp()
    from probes import readings, store

    streams = [numpy_stream()]
    started = time.perf_counter()
    first = measured(model="Qwen/Qwen3-0.6B")
    yield "quick run, whole", time.perf_counter() - started, "s"
    streams.append(numpy_stream())
    second = measured(model="Qwen/Qwen3-0.6B")
    streams.append(numpy_stream())
    one, two = (readings.readings(store.load(run)) for run in (first, second))
    for name in ("bandwidth", "compute_16bit", "kernel_s", "attention", "prefill_attention"):
        low, high = sorted((getattr(one, name), getattr(two, name)))
        yield f"two runs, {name}: difference", 100 * (high / low - 1), "%"
    yield "bandwidth by probe", two.bandwidth / 1e9, "GB/s"
    stream = max(streams)  # the quickest of three, as the probe's
    yield "bandwidth by a loop in numpy (scale, all threads)", stream / 1e9, "GB/s"
    yield "probe over numpy", two.bandwidth / stream, "x"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(10):
        measured(probes=("launch",))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    yield "memory of this process after ten more runs: growth", grown / 1024, "MiB"
    yield from decoder(store.load(second))


def measured(**request):
    from probes import jobs

    job = jobs.start(jobs.Request(device="cpu", **request))
    while (found := jobs.progress(job)).running:
        time.sleep(0.2)
    if found.run_id is None:
        raise SystemExit(found.message)
    return found.run_id


def numpy_stream(size=80 * 2**20):
    """Bytes/s of `a *= s` into another array, cut among as many threads as there are processors (numpy lets go of the GIL)."""
    from concurrent.futures import ThreadPoolExecutor

    threads = len(os.sched_getaffinity(0))
    parts = [(np.random.default_rng(i).standard_normal(size // 8 // threads)) for i in range(threads)]
    outs = [np.empty_like(part) for part in parts]
    with ThreadPoolExecutor(threads) as pool:

        def once():
            list(pool.map(lambda pair: np.multiply(pair[0], 1.5, out=pair[1]), zip(parts, outs, strict=True)))

        return 2 * sum(part.nbytes for part in parts) / median_s(once, repeats=15, warm_up=3)


def decoder(run):
    """A Qwen3 of 0.2 billion parameters by transformers in bf16, batch 1, against the step model on the run's profile."""
    import torch
    from transformers import AutoModelForCausalLM, Qwen3Config

    from calc.architectures import parse
    from calc.layout import Layout
    from calc.operators import ForwardPass
    from calc.step import StepModel
    from probes import measured as conversion

    config = Qwen3Config(
        vocab_size=32_000,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=False,
        max_position_embeddings=4096,
    )
    config.architectures = ["Qwen3ForCausalLM"]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    context = 128
    with torch.inference_mode():
        cache = model(torch.randint(0, 32_000, (1, context)), use_cache=True).past_key_values
        token = torch.zeros((1, 1), dtype=torch.long)
        times = []
        for _ in range(24):
            start = time.perf_counter()
            model(token, past_key_values=cache, use_cache=True)
            times.append(time.perf_counter() - start)
    real = float(np.median(times[4:]))
    spec = parse(config.to_dict() | {"torch_dtype": "bfloat16"}, model_id="small decoder")
    accelerator, profile = conversion.accelerator_of(run), conversion.torch_profile(run)
    step = StepModel.of(spec, accelerator, Layout(), profile)
    decode = ForwardPass.decode(1, context + 12)
    predicted = float(step.expected(decode, eager=False).total[0])
    peaks = float(step.roofline(decode).total[0])
    yield "small decoder, one token: measured", 1e3 * real, "ms"
    yield "  predicted by the measured profile", 1e3 * predicted, "ms"
    yield "  predicted over measured", predicted / real, "x"
    yield "  at the run's peaks, over measured", peaks / real, "x"
