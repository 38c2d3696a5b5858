"""Side by side with other planners: the same questions, their answers, ours, the measured truth; writes docs/compare.md.

Each tool runs with its own interpreter in a virtual environment of its own, PEERS/venv-NAME, made by hand:
    python -m venv PEERS/venv-kvfit && PEERS/venv-kvfit/bin/pip install kvfit==0.3.0
    (the same for aiconfigurator==0.12.0, servcalc==0.1.0, ridgepoint==0.1.2, genz-llm==0.0.16, llm-analysis==0.2.2, hf-mem==0.5.6)
Nothing is fetched while it runs. What is not installed, or cannot answer, is listed as such.

Usage: python scripts/compare_peers.py --peers PEERS --reference REFERENCE [--points 9] [--out FILE]
"""

import argparse
import csv
import json
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from calc.architectures import parse
from calc.errors import InputError
from calc.memory.kv import sequence_bytes
from calc.model import Mixer
from presets import accuracy, measurements
from scripts.compare_peers_document import GROUPS, Said, document

TARGET = ROOT / "docs/compare.md"
TOKENS = 32_768
LIMIT_S = 90
CONFIGS = {
    "meta-llama/Meta-Llama-3.1-8B": "meta-llama__Meta-Llama-3.1-8B.json",
    "Qwen/Qwen3-32B": "Qwen__Qwen3-32B.json",
    "meta-llama/Meta-Llama-3.1-70B": "meta-llama__Llama-3.3-70B-Instruct.json",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--points", type=int, default=9)
    parser.add_argument("--out", type=Path, default=TARGET)
    arguments = parser.parse_args()
    points = chosen_points(arguments.points)
    tools = {
        "aiconfigurator": ask_aiconfigurator,
        "servcalc": ask_servcalc,
        "genz-llm": ask_genz,
        "llm-analysis": ask_llm_analysis,
    }
    table = {name: [ask(arguments, point) for point in points] for name, ask in tools.items()}
    started = time.perf_counter()
    predicted = {c.id: c.best for c in accuracy.comparisons()}
    ours = [
        Said(predicted[f"serving-{p.row}-tpot"], (time.perf_counter() - started) / len(predicted))
        for p in points
    ]
    arguments.out.write_text(
        document(points, ours, table, state_counts(arguments), memory_answers(arguments))
    )
    print(arguments.out)
    return 0


def chosen_points(wanted: int) -> list[measurements.ServingMeasurement]:
    """Clean rows of the groups, evenly spread over each group's list, so that nobody picks them."""
    rows = [m for m in measurements.serving() if m.use == "clean"]
    points = []
    for group in GROUPS:
        alike = sorted(
            (m for m in rows if (m.model, m.accelerator, m.engine) == group),
            key=lambda m: (m.layout.tp, m.input_tokens, m.output_tokens, m.concurrency),
        )
        share = max(1, wanted // len(GROUPS))
        points += [alike[int((i + 0.5) * len(alike) / share)] for i in range(share)]
    return points


def run(arguments, tool, words, read):
    """Run a tool's own program or interpreter; `read` finds the answer in what it printed."""
    home = arguments.peers / f"venv-{tool}" / "bin"
    if not home.is_dir():
        return Said(None, 0.0, "not installed")
    started = time.perf_counter()
    try:
        done = subprocess.run(
            [str(home / words[0]), *words[1:]], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Said(None, LIMIT_S, f"no answer in {LIMIT_S} s")
    wall = time.perf_counter() - started
    try:
        return Said(read(done.stdout), wall)
    except (ValueError, KeyError, IndexError, AttributeError, TypeError):
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        return Said(None, wall, last[:140])


def ask_aiconfigurator(arguments, point):
    system = {"h100-sxm5-80gb": "h100_sxm", "h200-sxm-141gb": "h200_sxm"}[point.accelerator]
    backend = {"tensorrt-llm": "trtllm"}.get(point.engine, point.engine)
    words = [
        "aiconfigurator",
        "cli",
        "estimate",
        "--model-path",
        point.model,
        "--system",
        system,
        "--backend",
        backend,
    ]
    words += ["--isl", f"{point.input_tokens:.0f}", "--osl", f"{point.output_tokens:.0f}"]
    words += ["--batch-size", f"{point.concurrency:.0f}", "--tp-size", str(point.layout.tp)]
    if point.quantization == "fp8":
        words += ["--gemm-quant-mode", "fp8"]
    if point.kv_dtype == "fp8":
        words += ["--kvcache-quant-mode", "fp8"]
    return run(
        arguments,
        "aiconfigurator",
        words,
        lambda text: float(re.search(r"TPOT:\s+([\d.]+) ms", text)[1]) / 1e3,
    )


def ask_servcalc(arguments, point):
    if point.layout.gpus_per_replica > 1:
        return Said(None, 0.0, "plans one GPU")
    gpu = {"h100-sxm5-80gb": "H100 80GB", "h200-sxm-141gb": "H200"}[point.accelerator]
    config = str(arguments.reference / "configs" / CONFIGS[point.model])
    words = ["servcalc", "estimate", config, "--gpu", gpu, "--engine", "vllm", "--json"]
    words += ["--prompt", f"{point.input_tokens:.0f}", "--gen", f"{point.output_tokens:.0f}"]
    words += ["--concurrency", f"{point.concurrency:.0f}"]
    if point.quantization:
        words += ["--quant", point.quantization]
    return run(
        arguments, "servcalc", words, lambda text: json.loads(text)["points"][0]["itl_ms"]["mid"] / 1e3
    )


def ask_genz(arguments, point):
    names = {
        "meta-llama/Meta-Llama-3.1-8B": "meta-llama/Llama-3.1-8B",
        "meta-llama/Meta-Llama-3.1-70B": "llama_70b",
    }
    system = {"h100-sxm5-80gb": "H100_GPU", "h200-sxm-141gb": None}[point.accelerator]
    if point.model not in names or system is None:
        return Said(None, 0.0, "knows neither this model nor this card by name")
    code = (
        "import io,contextlib\nfrom GenZ import decode_moddeling\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        f"    r=decode_moddeling(model={names[point.model]!r},batch_size={point.concurrency:.0f},"
        f"input_tokens={point.input_tokens:.0f},output_tokens={point.output_tokens / 2:.0f},Bb=1,"
        f"system_name={system!r},bits={'fp8' if point.quantization == 'fp8' else 'bf16'!r},"
        f"tensor_parallel={point.layout.tp})\nprint('TPOT',float(r['Latency']))"
    )
    return run(arguments, "genz-llm", ["python", "-c", code], lambda text: float(text.split("TPOT")[1]) / 1e3)


def ask_llm_analysis(arguments, point):
    if point.accelerator != "h100-sxm5-80gb":
        return Said(None, 0.0, "has no such card")
    config = json.loads((arguments.reference / "configs" / CONFIGS[point.model]).read_text())
    shape = {
        "name": "asked",
        "num_layers": config["num_hidden_layers"],
        "n_head": config["num_attention_heads"],
        "hidden_dim": config["hidden_size"],
        "vocab_size": config["vocab_size"],
        "max_seq_len": config["max_position_embeddings"],
        "num_key_value_heads": config["num_key_value_heads"],
        "ffn_embed_dim": config["intermediate_size"],
        "model_type": "llama",
    }
    bits = "w8a8e16" if point.quantization == "fp8" else "w16a16e16"
    code = (
        "import json,tempfile,io,contextlib\nfrom llm_analysis.analysis import infer\n"
        f"p=tempfile.NamedTemporaryFile('w',suffix='.json',delete=False);json.dump({shape!r},p);p.close()\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        f"    r=infer(model_name=p.name,gpu_name='h100-sxm-80gb',dtype_name={bits!r},log_level='ERROR',"
        f"batch_size_per_gpu={point.concurrency:.0f},tp_size={point.layout.tp},seq_len={point.input_tokens:.0f},"
        f"num_tokens_to_generate={point.output_tokens:.0f},flops_efficiency=0.7,hbm_memory_efficiency=0.8)\n"
        "print('TPOT', r['decode_latency'])"
    )
    return run(arguments, "llm-analysis", ["python", "-c", code], lambda text: float(text.split("TPOT")[1]))


def state_counts(arguments):
    """Bytes of a 32,768-token sequence on every config with a counted truth: right, wrong, refused; ours and kvfit's."""
    with (arguments.reference / "kv_truth.csv").open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["kv_bytes_per_token_bf16"]]
    code = (
        "import json,sys\nfrom kvfit.architectures import estimate_cache\nout={}\n"
        "for f in json.load(sys.stdin):\n"
        "    try: out[f]=estimate_cache(json.load(open(f)),context_tokens=32768).total_bytes\n"
        "    except Exception as e: out[f]=None\nprint(json.dumps(out))"
    )
    files = [str(arguments.reference / "configs" / row["file"]) for row in rows]
    theirs, wall = {}, 0.0
    python = arguments.peers / "venv-kvfit/bin/python"
    if python.exists():
        started = time.perf_counter()
        done = subprocess.run(
            [python, "-c", code],
            input=json.dumps(files),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        theirs, wall = json.loads(done.stdout or "{}"), time.perf_counter() - started
    counts = {"ours": [0, 0, 0], "kvfit": [0, 0, 0]}
    started = time.perf_counter()
    for row, file in zip(rows, files, strict=True):
        true = truths(row)
        for name, answer in (("ours", our_bytes(row, file)), ("kvfit", theirs.get(file))):
            counts[name][2 if answer is None else 0 if answer in true else 1] += 1
    return len(rows), counts, wall, time.perf_counter() - started


def our_bytes(row, file):
    """Our bytes of the sequence; None where the config is refused, -1 where recurrent state is counted in another format."""
    try:
        spec = parse(json.loads(Path(file).read_text()), model_id=row["model_id"])
        found = sequence_bytes(spec, TOKENS)
    except InputError:
        return None
    wide = any(isinstance(s, Mixer) and s.recurrent_format == "fp32" for _, s in spec.decoder_sublayers())
    return found if found == truths(row)[wide] else -1


def truths(row):
    """The counted bytes, with recurrent state in 16 and in 32 bits."""
    window = min(TOKENS, int(row["window_size"] or 0)) * int(row["kv_bytes_per_token_window_part"])
    growing = (
        int(row["kv_bytes_per_token_bf16"]) + int(row["indexer_bytes_per_token_bf16"])
    ) * TOKENS + window
    conv, recurrent = int(row["state_conv_elems"]), int(row["state_recurrent_elems"])
    return growing + 2 * conv + 2 * recurrent, growing + 2 * conv + 4 * recurrent


def memory_answers(arguments):
    """KV pool of Llama 3 70B in 16 bit on four H100 at 0.9: ridgepoint's own home case, and our ledger."""
    from calc.engine import Engine
    from calc.layout import Layout
    from calc.memory.engines import EngineSettings, ledger
    from presets import accelerators, models

    words = [
        "ridgepoint",
        "fit",
        "llama-3-70b",
        "--gpu",
        "h100-80gb:4",
        "--engine",
        "vllm",
        "--ctx",
        "8192",
        "--json",
    ]
    said = run(
        arguments, "ridgepoint", words, lambda text: json.loads(text)["memory"]["kv_pool_bytes"]["best"]
    )
    started = time.perf_counter()
    found = ledger(
        models.load("meta-llama/Meta-Llama-3-70B"),
        accelerators.load("h100-sxm5-80gb"),
        Layout(tp=4),
        EngineSettings(engine=Engine.VLLM, memory_utilization=0.9, max_model_len=8192),
        nearest=False,
    )
    return said, found.kv.available_bytes * 4, time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
