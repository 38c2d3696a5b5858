"""Restate public measurements as our own tables of facts: presets/measurements/serving.csv and points.csv.

Points are single runs: one user on consumer cards, Apple and DGX Spark, static batches, and maximum-load envelopes
(RIDGEBEAM_CASES/perf_points.csv, each with its address; kernels/e2e_accelmark.csv, Apache-2.0).

Reads RIDGEBEAM_REFERENCE/kernels/e2e_serving_agg.csv (Apache-2.0, NVIDIA aiconfigurator 0.12.0) and
RIDGEBEAM_CASES/e2e_rows.csv (true GPU counts and which rows are clean). Copies and rows whose layout is unknown are left out.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = Path(os.environ.get("RIDGEBEAM_REFERENCE", ROOT / "../shared/reference"))
CASES = Path(os.environ.get("RIDGEBEAM_CASES", ROOT / "../shared/cases"))
OUT = ROOT / "presets/measurements/serving.csv"

ACCELERATORS = {
    "b200_sxm": "b200-sxm-180gb",
    "b300_sxm": "b300-sxm-288gb",
    "gb200": "gb200-gpu",
    "h100_sxm": "h100-sxm5-80gb",
    "h200_sxm": "h200-sxm-141gb",
}
ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}
# The checkpoint that was served, by published model and weight format. Empty: the model itself, requantised.
CHECKPOINTS = {
    ("MiniMaxAI/MiniMax-M2.5", "nvfp4"): "nvidia/MiniMax-M2.5-NVFP4",
    ("Qwen/Qwen3.5-397B-A17B", "nvfp4"): "nvidia/Qwen3.5-397B-A17B-NVFP4",
    ("deepseek-ai/DeepSeek-V3", "nvfp4"): "nvidia/DeepSeek-V3.1-NVFP4",
    ("deepseek-ai/DeepSeek-R1", "nvfp4"): "nvidia/DeepSeek-V3.1-NVFP4",
    ("moonshotai/Kimi-K2.5", "nvfp4"): "nvidia/Kimi-K2.5-NVFP4",
    ("zhipuai/GLM-5", "nvfp4"): "nvidia/GLM-5.1-NVFP4",
    ("zhipuai/GLM-5", "fp8"): "zai-org/GLM-5-FP8",
    ("zhipuai/GLM-5", "bf16"): "zai-org/GLM-5",
}
SAME = {
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-ai/DeepSeek-R1",
    "nvidia/DeepSeek-V3.1-NVFP4": "deepseek-ai/DeepSeek-V3",
    "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B",
    "Qwen/Qwen3-235B-A22B-FP8": "Qwen/Qwen3-235B-A22B",
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B",
    "meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
}
NATIVE = {
    ("MiniMaxAI/MiniMax-M2.5", "fp8"),
    ("deepseek-ai/DeepSeek-V3", "fp8"),
    ("deepseek-ai/DeepSeek-R1", "fp8"),
    ("moonshotai/Kimi-K2.5", "int4"),
    ("openai/gpt-oss-120b", "mxfp4"),
}
FORMATS = {"": "bf16", "fp8": "fp8", "fp8_block": "fp8-block", "nvfp4": "nvfp4", "int4_wo": "int4"}
UNKNOWN_LAYOUT = {"disaggregated", "replica concurrency", "copy"}
COLUMNS = (
    "row", "model", "checkpoint", "quantization", "kv_dtype", "accelerator", "engine", "version", "date", "class",
    "gpus", "attention_dp", "expert_parallel", "input_tokens", "output_tokens", "concurrency", "ttft_s", "tpot_s", "use",
    "source",
)  # fmt: skip


def kv_dtype(model: str, weights: str, system: str, engine: str) -> str:
    """The cache format is not recorded; this is what memory capacity in the same rows implies, else the engine's default."""
    blackwell = system.startswith(("b", "gb"))
    if "Llama-3.1-8B" in model or (weights == "bf16" and "Qwen3.5" not in model):
        return "bf16"
    if model.startswith("openai/gpt-oss") or "MiniMax" in model:
        return "fp8" if blackwell else "bf16"
    if "DeepSeek" in model:
        return "bf16" if engine == "sglang" and system == "h200_sxm" else "fp8"
    if "Kimi" in model:
        return "bf16" if weights == "int4" else "fp8"
    return "fp8" if weights.startswith(("fp8", "nvfp4")) else "bf16"


def write_serving() -> None:
    with (REFERENCE / "kernels/e2e_serving_agg.csv").open() as stream:
        measured = list(csv.DictReader(stream))
    with (CASES / "e2e_rows.csv").open() as stream:
        judged = list(csv.DictReader(stream))
    out = []
    for index, (row, verdict) in enumerate(zip(measured, judged, strict=True)):
        if verdict["use"] in UNKNOWN_LAYOUT or not row["concurrency"]:
            continue
        model = SAME.get(row["model"], row["model"])
        weights = FORMATS[row["gemm_quant_mode"]]
        if row["model"] == "openai/gpt-oss-120b":
            weights = "mxfp4"
        if model == "Qwen/Qwen3.5-397B-A17B" and row["moe_quant_mode"] == "fp8_block":
            weights = "fp8-block"
        family = weights.split("-")[0]
        checkpoint = CHECKPOINTS.get((model, family), "")
        native = (model, family) in NATIVE or bool(checkpoint) or weights == "bf16"
        gpus = int(verdict["gpus"])
        out.append(
            {
                "row": index,
                "model": model,
                "checkpoint": checkpoint or model,
                "quantization": "" if native else weights,
                "kv_dtype": kv_dtype(model, weights, row["system"], row["backend"]),
                "accelerator": ACCELERATORS[row["system"]],
                "engine": ENGINES[row["backend"]],
                "version": row["backend_version"],
                "date": row["measured"],
                "class": {"dense": "dense", "MoE": "experts", "MLA": "latent"}[
                    verdict["class"] or klass(model)
                ],
                "gpus": gpus,
                "attention_dp": verdict["attention_dp"],
                "expert_parallel": verdict["expert_parallel"],
                "input_tokens": row["isl"],
                "output_tokens": row["osl"],
                "concurrency": f"{float(row['concurrency']):g}",
                "ttft_s": f"{float(row['ttft_ms']) / 1e3:.5g}",
                "tpot_s": f"{float(row['tpot_ms']) / 1e3:.5g}",
                "use": verdict["use"],
                "source": "vendor" if row["source"] == "vendor_gap_analysis" else "inferencex",
            }
        )
    with OUT.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(out)
    print(f"{len(out)} rows, {sum(r['use'] == 'clean' for r in out)} clean -> {OUT}")


def klass(model: str) -> str:
    if any(name in model for name in ("DeepSeek", "Kimi", "GLM")):
        return "MLA"
    return "MoE" if any(name in model for name in ("MiniMax", "A17B", "A22B", "gpt-oss")) else "dense"


POINTS_OUT = ROOT / "presets/measurements/points.csv"
POINT_GROUPS = (
    "amd",
    "xdai",
    "spark",
    "gptfast",
    "mlc",
    "exl2",
    "apple",
    "lmsys",
    "nim",
    "trt10",
    "trt12",
    "mlperf51",
)
POINT_COLUMNS = (
    "id", "group", "model", "quantization", "kv_dtype", "accelerator", "gpus", "tp", "pp", "attention_dp", "ep", "engine",
    "version", "batch", "depth", "prompt_tokens", "output_tokens", "metric", "value", "source",
)  # fmt: skip
POINT_ACCELERATORS = {
    "MI300X": "mi300x", "Apple M1 Pro 14c": "apple-m1-pro", "Apple M3 Pro 18c": "apple-m3-pro", "RTX-3090Ti": "rtx-3090-ti",
    "RTX-4090": "rtx-4090", "A100-SXM-80GB (330 W)": "a100-sxm4-80gb", "GB10 (DGX Spark)": "dgx-spark-gb10",
    "RTX-PRO-6000-WS": "rtx-pro-6000-blackwell-ws", "RTX-5090": "rtx-5090", "A100-PCIe": "a100-pcie-80gb",
    "RX-7900XTX": "rx-7900-xtx", "3080 10GB": "rtx-3080-10gb", "4090 24GB": "rtx-4090", "3090 24GB": "rtx-3090",
    "RTX 4000 Ada 20GB": "rtx-4000-ada", "RTX 5000 Ada 32GB": "rtx-5000-ada", "RTX A6000 48GB": "rtx-a6000",
    "RTX 6000 Ada 48GB": "rtx-6000-ada", "A40 48GB": "a40", "L40S 48GB": "l40s", "A100 SXM 80GB": "a100-sxm4-80gb",
    "H100 PCIe 80GB": "h100-pcie-80gb", "M1 Max 32-Core GPU 64GB": "apple-m1-max",
    "M2 Ultra 76-Core GPU 192GB": "apple-m2-ultra", "M3 Max 40-Core GPU 64GB": "apple-m3-max",
    "M1 7-Core GPU 8GB": "apple-m1",
    "H100-SXM": "h100-sxm5-80gb", "H200": "h200-sxm-141gb", "B200": "b200-sxm-180gb", "GB200": "gb200-gpu",
    "RTX-PRO-6000-Server": "rtx-pro-6000-blackwell-server", "NVIDIA B200-SXM-180GB": "b200-sxm-180gb",
    "NVIDIA H100-SXM-80GB": "h100-sxm5-80gb", "AMD Instinct MI325X 256GB HBM3e": "mi325x",
    "AMD Instinct MI300X 192GB HBM3": "mi300x", "NVIDIA H200-NVL-141GB": "h200-nvl-141gb",
    "Virtualized NVIDIA H200-SXM-141GB": "h200-sxm-141gb",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtx-pro-6000-blackwell-server", "NVIDIA GB300": "gb300-gpu",
    "NVIDIA GB200": "gb200-gpu", "NVIDIA L40S": "l40s",
}  # fmt: skip
ACCELMARK = {
    "NVIDIA A100-SXM4-40GB": "a100-sxm4-40gb", "NVIDIA A100-SXM4-80GB": "a100-sxm4-80gb",
    "NVIDIA A800-SXM4-80GB": "a800-sxm4-80gb", "NVIDIA GeForce RTX 3090": "rtx-3090", "NVIDIA GeForce RTX 4090": "rtx-4090",
    "NVIDIA GeForce RTX 4090 D": "rtx-4090-d", "NVIDIA GeForce RTX 5090": "rtx-5090", "NVIDIA H100 80GB HBM3": "h100-sxm5-80gb",
    "NVIDIA L4": "l4", "NVIDIA RTX 6000 Ada Generation": "rtx-6000-ada", "NVIDIA RTX A6000": "rtx-a6000",
    "Tesla V100S-PCIE-32GB": "v100s-pcie-32gb",
}  # fmt: skip
POINT_MODELS = {
    "amd/Llama-3.1-70B-Instruct-FP8-KV": "meta-llama/Meta-Llama-3.1-70B",
    "meta-llama/Llama-2-7b": "meta-llama/Llama-2-7b-hf", "meta-llama/Llama-2-70b": "meta-llama/Llama-2-70b-hf",
    "codellama/CodeLlama-34b": "codellama/CodeLlama-34b-Instruct-hf", "TinyLlama-1.1B": "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "huggyllama/llama-13b": "meta-llama/Llama-2-13b-hf", "meta-llama/Llama-3.1-8B": "meta-llama/Meta-Llama-3.1-8B",
    "meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B", "meta-llama/Llama-3.1-405B": "meta-llama/Llama-3.1-405B-Instruct-FP8",
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B",
    "meta-llama/Llama-3.1-70B-Instruct": "meta-llama/Meta-Llama-3.1-70B",
    "Qwen/Qwen2.5-Coder-7B": "Qwen/Qwen2.5-7B",
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": "Qwen/Qwen3-30B-A3B", "meta-llama/Meta-Llama-3-8B": "meta-llama/Meta-Llama-3.1-8B",
    "meta-llama/Meta-Llama-3-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B",
    "meta-llama/Meta-Llama-3-70B-Instruct": "meta-llama/Meta-Llama-3-70B", "nvidia/Llama-3.3-70B-Instruct": "meta-llama/Llama-3.3-70B-Instruct",
    "nvidia/Llama-3.3-70B-Instruct-FP4": "meta-llama/Llama-3.3-70B-Instruct",
    "nvidia/Llama-3.1-405B-Instruct": "meta-llama/Llama-3.1-405B-Instruct-FP8", "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Meta-Llama-3.1-8B",
    "nvidia/Qwen3-30B-A3B-FP4": "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-R1-0528": "deepseek-ai/DeepSeek-R1",
    "nvidia/Qwen3-235B-A22B": "Qwen/Qwen3-235B-A22B", "llama3.1-8b": "meta-llama/Meta-Llama-3.1-8B", "llama2-70b-99": "meta-llama/Llama-2-70b-hf",
    "mixtral-8x7b": "mistralai/Mixtral-8x7B-v0.1", "llama3.1-405b": "meta-llama/Llama-3.1-405B-Instruct-FP8",
}  # fmt: skip
# The nearest stored format by bytes per weight; llama.cpp's Q4_K_M is mostly q4_k.
POINT_FORMATS = {
    "": "", "bf16": "", "fp16": "", "F16": "", "BF16": "", "FP16": "", "fp8": "fp8", "fp8(act)/mxfp4": "", "mxfp4": "", "nvfp4": "nvfp4", "fp4": "nvfp4",
    "Q4_K_M": "q4_k", "Q8_0": "q8_0", "Q4_0": "q4_0", "int8": "int8-weight", "int4 g32": "int4-g32", "int4": "int4-g32",
    "EXL2 3.0 bpw": "iq3_xxs", "EXL2 4.0 bpw": "iq4_xs", "EXL2 5.0 bpw": "q5_k", "EXL2 2.5 bpw": "iq2_s",
    "GPTQ 4-bit g128": "gptq",
}  # fmt: skip
POINT_ENGINES = {
    "llama.cpp": "llama.cpp", "Ollama": "ollama", "gpt-fast": "gpt-fast", "MLC": "mlc", "ExLlamaV2": "exllamav2",
    "vLLM": "vllm", "vLLM (ROCm)": "vllm", "SGLang": "sglang", "TensorRT-LLM": "tensorrt-llm", "NIM": "tensorrt-llm",
}  # fmt: skip
METRICS = {
    "decode_speed": "decode_tokens_per_s", "decode_throughput_total": "decode_tokens_per_s",
    "prefill_speed": "prefill_tokens_per_s", "batch_end_to_end_latency": "batch_latency_s", "ITL_mean": "tpot_s",
    "TTFT_mean": "ttft_s", "output_throughput_total": "most_tokens_per_s", "output_throughput_per_gpu": "most_tokens_per_s",
    "tokens_per_s_offline": "most_tokens_per_s",
}  # fmt: skip
ACCELMARK_PROMPT = {"suite_A": 280, "suite_B": 280, "suite_D": 28600}
MLPERF_LENGTHS = {  # means of the benchmark's data sets: CNN/DailyMail, OpenOrca, mixed OpenOrca/GSM8K/MBXP, LongBench and others
    "llama3.1-8b": (778, 128), "llama2-70b-99": (294, 294), "mixtral-8x7b": (290, 144), "llama3.1-405b": (9400, 684),
}  # fmt: skip
ASSUMED_PROMPT, ASSUMED_CONTEXT = (
    2048,
    256,
)  # where a page states no lengths; ExLlamaV2 decodes behind a short prompt


def write_points() -> None:
    """All single figures: those of the cases that we can name, and AccelMark's single streams."""
    with (CASES / "perf_points.csv").open() as stream:
        found = [point_of(row) for row in csv.DictReader(stream)]
    out = [point for point in found if point is not None] + accelmark()
    with POINTS_OUT.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, POINT_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(out)
    print(f"{len(out)} points -> {POINTS_OUT}")


def point_of(row: dict[str, str]) -> dict[str, object] | None:
    """One published figure in our terms; None where its model, accelerator or quantity is not among ours."""
    group = row["case_id"].split("-")[0]
    gpu = row["gpu"].replace("\u2011", "-")
    metric = METRICS.get(row["metric"])
    model = POINT_MODELS.get(row["model_id"], row["model_id"])
    if group not in POINT_GROUPS or metric is None or gpu not in POINT_ACCELERATORS or not model:
        return None
    if group == "nim" and metric == "most_tokens_per_s":
        return None
    local = metric != "most_tokens_per_s"
    gpus = int(float(row["n_gpus"] or 1))
    shards = shards_of(row, group, gpu, gpus)
    wide = row["tp"].startswith("DEP")
    prompt, output = lengths_of(row, group)
    value = float(row["value"])
    if row["metric"] == "output_throughput_per_gpu":
        value *= gpus
    if metric in ("tpot_s", "ttft_s"):
        value /= 1e3
    nvidia = group == "mlperf51" and "AMD" not in gpu
    return {
        "id": row["case_id"],
        "group": group,
        **checkpoint_of(row, model),
        "kv_dtype": cache_format(row, POINT_ACCELERATORS[gpu], local=local),
        "accelerator": POINT_ACCELERATORS[gpu],
        "gpus": gpus,
        "tp": shards,
        "pp": gpus // shards if local else int(float(row["pp"] or 1)),
        "attention_dp": shards if wide else 1,
        "ep": shards if wide else 0,
        "engine": "tensorrt-llm" if nvidia else POINT_ENGINES.get(row["engine"], "vllm"),
        "version": row["version"],
        "batch": row["batch_or_concurrency"] if row["batch_or_concurrency"].isdigit() else "",
        "depth": row["notes"].split("depth ")[-1] if "at depth" in row["notes"] else "0",
        "prompt_tokens": prompt,
        "output_tokens": output,
        "metric": metric,
        "value": f"{value:.6g}",
        "source": row["url"],
    }


MLPERF_SHARDS = {"llama3.1-405b": 8, "llama2-70b-99": 1, "mixtral-8x7b": 1, "llama3.1-8b": 1}
LLAMA2_SHARDS = {"NVIDIA H100-SXM-80GB": 2, "NVIDIA L40S": 4}


def shards_of(row: dict[str, str], group: str, gpu: str, gpus: int) -> int:
    """The tensor-parallel degree; where no page states one, all GPUs, or the fewest that MLPerf's model fits."""
    if group == "mlperf51":
        own = LLAMA2_SHARDS.get(gpu) if row["model_id"] == "llama2-70b-99" else None
        return own or MLPERF_SHARDS[row["model_id"]]
    return gpus if row["tp"].startswith("DEP") or not row["tp"] else int(float(row["tp"]))


def checkpoint_of(row: dict[str, str], model: str) -> dict[str, str]:
    """The checkpoint and what it is requantised to; some are published in the format that was served."""
    weights = POINT_FORMATS[row["weight_dtype"]]
    if model.endswith("405B-Instruct-FP8") and weights == "fp8":
        weights = ""
    if row["model_id"].startswith("deepseek-ai/DeepSeek-R1-0528"):
        weights = ""
        model = "nvidia/DeepSeek-V3.1-NVFP4" if row["weight_dtype"] == "nvfp4" else model
    return {"model": model, "quantization": weights}


BLACKWELL = ("b200", "gb200", "b300", "gb300")


def cache_format(row: dict[str, str], accelerator: str, *, local: bool) -> str:
    """The cache format: as stated, or 8 bits where a maximum was reached with 8- or 4-bit weights.

    NVIDIA's page sets it for gpt-oss too: 8 bits, except on Hopper.
    """
    narrow = POINT_FORMATS[row["weight_dtype"]] in ("fp8", "nvfp4")
    if row["model_id"].startswith("openai/gpt-oss") and accelerator.startswith(BLACKWELL):
        narrow = True
    return "fp8" if row["kv_dtype"] == "fp8" or (not local and narrow) else "bf16"


def lengths_of(row: dict[str, str], group: str) -> tuple[str, str]:
    """Prompt and output tokens; MLPerf's are the means of its data sets."""
    if group == "mlperf51":
        prompt, output = MLPERF_LENGTHS[row["model_id"]]
        return str(prompt), str(output)
    prompt_text = (row["isl"] or "").lstrip("~")
    return prompt_text or str(ASSUMED_CONTEXT if group == "exl2" else ASSUMED_PROMPT), str(
        int(float(row["osl"] or "0"))
    )


def accelmark() -> list[dict[str, object]]:
    """Single-stream runs of AccelMark's suites A, B, D; hosts flagged as slow by the kernels README are left out."""
    with (REFERENCE / "kernels/e2e_accelmark.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    out = []
    for index, row in enumerate(rows):
        if (
            row["scenario"] != "interactive"
            or row["suite"] not in ACCELMARK_PROMPT
            or row["gpu"] not in ACCELMARK
        ):
            continue
        if row["suite"] == "suite_D" and "A100-SXM4-80GB" in row["gpu"] and row["engine_version"] == "0.7.3":
            continue
        for metric, column in (("tpot_s", "tpot_ms_p50"), ("ttft_s", "ttft_ms_p50")):
            out.append(
                {
                    "id": f"accelmark-{index:03d}-{metric[:4]}",
                    "group": f"accelmark {row['suite'][-1]}",
                    "model": POINT_MODELS.get(row["model"], row["model"]),
                    "quantization": "",
                    "kv_dtype": "bf16",
                    "accelerator": ACCELMARK[row["gpu"]],
                    "gpus": row["num_gpus"],
                    "tp": row["num_gpus"],
                    "pp": 1,
                    "attention_dp": 1,
                    "ep": 0,
                    "engine": "vllm",
                    "version": row["engine_version"].split("+")[0],
                    "batch": 1,
                    "depth": 0,
                    "prompt_tokens": ACCELMARK_PROMPT[row["suite"]],
                    "output_tokens": 256,
                    "metric": metric,
                    "value": f"{float(row[column]) / 1e3:.6g}",
                    "source": "github.com/FreedomIntelligence/AccelMark 5797fc42, Apache-2.0",
                }
            )
    return out


if __name__ == "__main__":
    write_serving()
    write_points()
