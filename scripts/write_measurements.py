"""Restate public serving measurements as our own table of facts: presets/measurements/serving.csv.

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


def main() -> None:
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


if __name__ == "__main__":
    main()
