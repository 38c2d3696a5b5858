"""What each tool answers for a serving point: time per output token, and to the first one; asked as its own documents say."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

from scripts.compare_peers_document import Said

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 240
CONFIGS = {
    "meta-llama/Meta-Llama-3.1-8B": "meta-llama__Meta-Llama-3.1-8B.json",
    "Qwen/Qwen3-32B": "Qwen__Qwen3-32B.json",
    "meta-llama/Meta-Llama-3.1-70B": "meta-llama__Llama-3.3-70B-Instruct.json",
    "Qwen/Qwen3-235B-A22B": "Qwen__Qwen3-235B-A22B.json",
    "openai/gpt-oss-120b": "openai__gpt-oss-120b.json",
}
# aiconfigurator's README asks for the id of the quantised checkpoint; these are among those that it carries.
QUANTIZED_IDS = {
    ("meta-llama/Meta-Llama-3.1-70B", "fp8"): "nvidia/Llama-3.1-70B-Instruct-FP8",
    ("Qwen/Qwen3-235B-A22B", "fp8-block"): "Qwen/Qwen3-235B-A22B-FP8",
}
H200 = {
    "flops": 989,
    "memory": 141,
    "bandwidth": 4800,
    "link": 450,
}  # NVIDIA's data sheet, for tools without the card
OLD_TENSORRT_LLM = "1.1"  # what a row without a release is taken as, by date


def run(words, read, *, directory=None):
    """Run a program; `read` finds the answers in what it printed."""
    started = time.perf_counter()
    try:
        done = subprocess.run(
            [str(word) for word in words],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            cwd=directory,
        )
    except subprocess.TimeoutExpired:
        return Said(None, LIMIT_S, f"no answer in {LIMIT_S} s")
    wall = time.perf_counter() - started
    try:
        tpot_s, ttft_s = read(done.stdout)
    except (ValueError, KeyError, IndexError, AttributeError, TypeError):
        return Said(None, wall, last_error(done.stderr or done.stdout or "no output"))
    return Said(tpot_s, wall, ttft_s=ttft_s)


def last_error(text):
    """The line that names the error, cut to what a table holds."""
    lines = text.strip().splitlines()
    named = [line for line in lines if re.match(r"\w*(Error|Exception)\b", line)]
    return (named or lines)[-1].split(". ")[0][:100]


def installed(arguments, tool):
    """The folder of a tool's programs, or None."""
    home = arguments.peers / f"venv-{tool}" / "bin"
    return home if home.is_dir() else None


def config_of(arguments, point):
    return arguments.reference / "configs" / CONFIGS[point.model]


def ask_ridgebeam(point):
    """Our own command line, from the pinned release of the engine on."""
    release = point.version or (OLD_TENSORRT_LLM if point.engine == "tensorrt-llm" else "")
    words = [sys.executable, ROOT / "cli.py", "serve-point", point.checkpoint, "--json"]
    words += ["--gpu", point.accelerator, "--tp", point.layout.tp]
    words += ["--ep", point.layout.ep] if point.layout.ep else []
    words += ["--engine", point.engine, *(["--engine-version", release] if release else [])]
    words += ["--input", f"{point.input_tokens:.0f}", "--output", f"{point.output_tokens:.0f}"]
    words += ["--concurrency", f"{point.concurrency:.0f}", "--kv-dtype", point.kv_dtype]
    words += ["--quantization", point.quantization] if point.quantization else []

    def read(text):
        found = json.loads(text)
        return found["tpot_s"]["best"], found["ttft_s"]["best"]

    return run(words, read, directory=ROOT)


def ask_aiconfigurator(arguments, point):
    if (home := installed(arguments, "aiconfigurator")) is None:
        return Said(None, 0.0, "not installed")
    system = {"h100-sxm5-80gb": "h100_sxm", "h200-sxm-141gb": "h200_sxm"}[point.accelerator]
    backend = {"tensorrt-llm": "trtllm"}.get(point.engine, point.engine)
    name = QUANTIZED_IDS.get((point.model, point.quantization), point.model)
    cache = {"fp8": "fp8", "bf16": "bfloat16"}[point.kv_dtype]
    words = [home / "aiconfigurator", "cli", "estimate", "--model-path", name, "--system", system]
    words += [
        "--backend",
        backend,
        "--isl",
        f"{point.input_tokens:.0f}",
        "--osl",
        f"{point.output_tokens:.0f}",
    ]
    words += ["--batch-size", f"{point.concurrency:.0f}", "--tp-size", point.layout.tp]
    words += ["--kvcache-quant-mode", cache]
    if point.model_class == "experts":
        words += ["--moe-tp-size", point.layout.tp, "--moe-ep-size", 1]

    def read(text):
        return tuple(float(re.search(rf"{name}:\s+([\d.,]+) ms", text)[1]) / 1e3 for name in ("TPOT", "TTFT"))

    return run(words, read)


def ask_servcalc(arguments, point):
    if (home := installed(arguments, "servcalc")) is None:
        return Said(None, 0.0, "not installed")
    if point.layout.gpus_per_replica > 1:
        return Said(None, 0.0, "plans one GPU")
    gpu = {"h100-sxm5-80gb": "H100 80GB", "h200-sxm-141gb": "H200"}[point.accelerator]
    words = [
        home / "servcalc",
        "estimate",
        config_of(arguments, point),
        "--gpu",
        gpu,
        "--engine",
        "vllm",
        "--json",
    ]
    words += ["--prompt", f"{point.input_tokens:.0f}", "--gen", f"{point.output_tokens:.0f}"]
    words += ["--concurrency", f"{point.concurrency:.0f}", "--kv-bits", 8 if point.kv_dtype == "fp8" else 16]
    words += ["--quant", point.quantization] if point.quantization else []

    def read(text):
        found = json.loads(text)["points"][0]
        return found["itl_ms"]["mid"] / 1e3, found["ttft_ms"]["mid"] / 1e3

    return run(words, read)


def ask_genz(arguments, point):
    if (home := installed(arguments, "genz-llm")) is None:
        return Said(None, 0.0, "not installed")
    if point.model == "openai/gpt-oss-120b":
        return Said(None, 0.0, "one number format for all weights and layers")
    config = json.loads(config_of(arguments, point).read_text())
    shape = {
        "vocab_size": config["vocab_size"],
        "hidden_size": config["hidden_size"],
        "intermediate_size": config["intermediate_size"],
        "num_ffi": 2,
        "num_decoder_layers": config["num_hidden_layers"],
        "num_attention_heads": config["num_attention_heads"],
        "num_key_value_heads": config["num_key_value_heads"],
        "head_dim": config.get("head_dim"),
    }
    if "num_experts" in config:
        shape |= {
            "num_experts": config["num_experts"],
            "expert_top_k": config["num_experts_per_tok"],
            "moe_intermediate_size": config["moe_intermediate_size"],
        }
    card = {
        "Flops": H200["flops"],
        "Memory_size": H200["memory"],
        "Memory_BW": H200["bandwidth"],
        "ICN": H200["link"],
        "real_values": True,
    }
    system = {"h100-sxm5-80gb": "H100_GPU", "h200-sxm-141gb": card}[point.accelerator]
    bits = "fp8" if point.quantization else "bf16"
    shared = f"batch_size={point.concurrency:.0f},system_name={system!r},bits={bits!r},tensor_parallel={point.layout.tp}"
    code = (
        "import io,contextlib\nfrom GenZ import decode_moddeling\n"
        f"from GenZ.Models.default_models import ModelConfig\nm=ModelConfig(model='asked',**{shape!r})\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        f"    r=decode_moddeling(model=m,Bb=1,input_tokens={point.input_tokens:.0f},"
        f"output_tokens={point.output_tokens / 2:.0f},{shared})\n"
        "print('TPOT',float(r['Latency']))"
    )
    return run([home / "python", "-c", code], lambda text: (float(text.split("TPOT")[1]) / 1e3, None))


def ask_llm_analysis(arguments, point):
    if (home := installed(arguments, "llm-analysis")) is None:
        return Said(None, 0.0, "not installed")
    config = json.loads(config_of(arguments, point).read_text())
    width = config.get("moe_intermediate_size", config["intermediate_size"])
    shape = {
        "name": "asked",
        "num_layers": config["num_hidden_layers"],
        "n_head": config["num_attention_heads"],
        "hidden_dim": config["hidden_size"],
        "vocab_size": config["vocab_size"],
        "max_seq_len": config["max_position_embeddings"],
        "num_key_value_heads": config["num_key_value_heads"],
        "ffn_embed_dim": width,
        "expansion_ratio": width / config["hidden_size"],
        "model_type": "llama",
        "moe_num_experts": config.get("num_experts", config.get("num_local_experts", 1)),
        "moe_top_k": config.get("num_experts_per_tok", 1),
    }
    card = {
        "name": "h200-sxm-141gb",
        "mem_per_GPU_in_GB": H200["memory"],
        "hbm_bandwidth_in_GB_per_sec": H200["bandwidth"],
        "intra_node_bandwidth_in_GB_per_sec": H200["link"],
        "intra_node_min_message_latency": 8e-6,  # what it states for the H100
        "peak_fp16_TFLOPS": H200["flops"],
    }
    gpu = {"h100-sxm5-80gb": "h100-sxm-80gb"}.get(point.accelerator, card["name"])
    experts = "w4a16e16" if point.model == "openai/gpt-oss-120b" else "w16a16e16"
    bits = "w8a8e16" if point.quantization else experts
    code = (
        "import json,tempfile,io,contextlib\nfrom llm_analysis import config\nfrom llm_analysis.analysis import infer\n"
        f"card=config.GPUConfig(**{card!r});config.gpu_configs[card.name]=card\n"
        f"p=tempfile.NamedTemporaryFile('w',suffix='.json',delete=False);json.dump({shape!r},p);p.close()\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        f"    r=infer(model_name=p.name,gpu_name={gpu!r},dtype_name={bits!r},log_level='ERROR',"
        f"batch_size_per_gpu={point.concurrency:.0f},tp_size={point.layout.tp},seq_len={point.input_tokens:.0f},"
        f"num_tokens_to_generate={point.output_tokens:.0f},kv_cache_dtype_bytes={1 if point.kv_dtype == 'fp8' else 2},"
        "flops_efficiency=0.7,hbm_memory_efficiency=0.9)\nprint('TPOT', r['decode_latency'])"
    )
    return run([home / "python", "-c", code], lambda text: (float(text.split("TPOT")[1]), None))


TIME_TOOLS = {
    "aiconfigurator": ask_aiconfigurator,
    "servcalc": ask_servcalc,
    "genz-llm": ask_genz,
    "llm-analysis": ask_llm_analysis,
}
