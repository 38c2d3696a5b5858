"""What each tool answers about memory: bytes of a long sequence on every counted config, and the pool of public start-up logs."""

import csv
import json
import statistics
import subprocess
import time
from pathlib import Path

from calc.architectures import parse
from calc.engine import Engine
from calc.errors import InputError
from calc.memory.kv import sequence_bytes
from calc.model import Mixer
from calc.parameters import count_parameters
from presets import engine_memory
from presets.engine_log_cards import card_of, named_card
from presets.engine_log_check import ledger_of
from presets.engine_log_models import spec_of
from presets.engine_log_settings import engine_of, layout_of, quantization_of, settings_of
from presets.engine_logs import is_legacy, read_logs
from scripts.compare_peers_document import Cache, Log

TOKENS = 32_768
LIMIT_S = 240
# How a library refuses a question, as an answer that counts; anything else ends the run and is seen.
REFUSALS = """
REFUSALS = (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""
KVFIT = """
import json, sys
from kvfit.architectures import estimate_cache
out = {}
for file in json.load(sys.stdin):
    try:
        out[file] = estimate_cache(json.load(open(file)), context_tokens=32768).total_bytes
    except REFUSALS:
        out[file] = None
print(json.dumps(out))
"""
# hf-mem reads configs from the hub only; this is the function that it hands them to, with its choice of the text part.
HF_MEM = """
import json, sys
from hf_mem.safetensors.kv_cache import compute_safetensors_kv_cache_size as size
out = {}
for file in json.load(sys.stdin):
    config = json.load(open(file))
    names = config.get("architectures") or []
    config = config["text_config"] if any("ConditionalGeneration" in n for n in names) and "text_config" in config else config
    named = any("ForCausalLM" in n or "ForConditionalGeneration" in n for n in names)
    try:
        out[file] = size(config, "BF16", 32768) if named else None
    except REFUSALS:
        out[file] = None
print(json.dumps(out))
"""
# ridgepoint reads configs and counts of parameters from the hub; both are handed to it here in place of the download.
RIDGEPOINT = """
import json, sys
import ridgepoint, ridgepoint.hf as hf
out = {}
for case in json.load(sys.stdin):
    hf._download_json = lambda repo, name, revision, case=case: json.load(open(case["config"]))
    hf._params_from_index = lambda *rest, case=case: case["parameters"]
    try:
        said = ridgepoint.fit("asked/here", case["ridgepoint"], count=case["gpus"], dtype=case["ridgepoint_dtype"], ctx=case["length"], as_json=True)
        out[case["id"]] = json.loads(said)["memory"]["kv_pool_bytes"]["best"] / case["gpus"]
    except REFUSALS:
        out[case["id"]] = None
print(json.dumps(out))
"""
AICONFIGURATOR = """
import contextlib, io, json, logging, sys
logging.disable(logging.CRITICAL)
cases = json.load(sys.stdin)
out = {}
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    from aiconfigurator_core.sdk.memory import estimate_kv_cache
    for case in cases:
        try:
            said = estimate_kv_cache(
                case["folder"], case["aiconfigurator"], "vllm", case["database"], max_num_tokens=case["batched"], max_batch_size=256,
                memory_fraction_kind="of_total", memory_fraction_value=0.9, tp_size=case["gpus"],
                gpu_memory_capacity_bytes_override=case["capacity"], **case["formats"],
            )
            out[case["id"]] = said["total_kv_size_bytes"]
        except REFUSALS:
            out[case["id"]] = None
print(json.dumps(out))
"""
RIDGEPOINT_CARDS = {
    "rtx-3090": "rtx3090-24gb",
    "rtx-4090": "rtx4090-24gb",
    "rtx-5090": "rtx5090-32gb",
    "a100-sxm4-40gb": "a100-40gb",
    "a100-pcie-40gb": "a100-40gb",
    "a100-sxm4-80gb": "a100-80gb",
    "l40s": "l40s-48gb",
    "h100-sxm5-80gb": "h100-80gb",
    "h200-sxm-141gb": "h200-141gb",
}
AICONFIGURATOR_CARDS = {
    "a100-sxm4-80gb": "a100_sxm",
    "l40s": "l40s",
    "h100-sxm5-80gb": "h100_sxm",
    "h200-sxm-141gb": "h200_sxm",
    "rtx-pro-6000-blackwell-server": "rtx_pro_6000_server",
}
AICONFIGURATOR_DATABASES = {"a100_sxm": "0.14.0"}  # others: the newest
NEWEST_DATABASE = "0.24.0"


def asked(arguments, tool, code, questions):
    """What a tool's library prints for all questions at once, and its wall time; None where it is not installed."""
    python = arguments.peers / f"venv-{tool}/bin/python"
    if not python.exists():
        return {}, None
    started = time.perf_counter()
    done = subprocess.run(
        [python, "-c", REFUSALS + code],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return json.loads(done.stdout or "{}"), time.perf_counter() - started


def state_counts(arguments):
    """Bytes of a 32,768-token sequence on every config with a counted truth, by tool."""
    with (arguments.reference / "kv_truth.csv").open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["kv_bytes_per_token_bf16"]]
    files = [str(arguments.reference / "configs" / row["file"]) for row in rows]
    started = time.perf_counter()
    ours = {file: our_bytes(row, file) for row, file in zip(rows, files, strict=True)}
    answers = {"Ridgebeam": (ours, time.perf_counter() - started)}
    for tool, code in (("kvfit", KVFIT), ("hf-mem", HF_MEM)):
        answers[tool] = asked(arguments, tool, code, files)
    return [counted(name, *found, rows, files) for name, found in answers.items() if found[1] is not None]


def counted(name, found, wall, rows, files):
    """How many of a tool's answers are exact, more and less; which are refused; its largest factors."""
    exact, more, less, refused = 0, {}, {}, []
    for row, file in zip(rows, files, strict=True):
        answer, true = found.get(file), truths(row)
        if answer is None:
            refused.append(row["model_id"])
        elif answer in true:
            exact += 1
        elif answer > max(true):
            more[row["model_id"]] = answer / max(true)
        else:
            less[row["model_id"]] = answer / min(true)
    return Cache(name, len(rows), exact, more, less, refused, wall)


def our_bytes(row, file):
    """Our bytes of the sequence; None where the config is refused, 0 where recurrent state is counted in another format."""
    try:
        spec = parse(json.loads(Path(file).read_text()), model_id=row["model_id"])
        found = sequence_bytes(spec, TOKENS)
    except InputError:
        return None
    wide = any(isinstance(s, Mixer) and s.recurrent_format == "fp32" for _, s in spec.decoder_sublayers())
    return found if found == truths(row)[wide] or found not in truths(row) else 0


def truths(row):
    """The counted bytes, with recurrent state in 16 and in 32 bits."""
    window = min(TOKENS, int(row["window_size"] or 0)) * int(row["kv_bytes_per_token_window_part"])
    growing = (
        int(row["kv_bytes_per_token_bf16"]) + int(row["indexer_bytes_per_token_bf16"])
    ) * TOKENS + window
    conv, recurrent = int(row["state_conv_elems"]), int(row["state_recurrent_elems"])
    return growing + 2 * conv + 2 * recurrent, growing + 2 * conv + 4 * recurrent


def pools(arguments):
    """Every public vLLM log that all of it can be asked of the other tools: a published config in 16 bit or FP8, tensor parallel
    only, nine tenths of a card that one of them lists, and a pool that was logged and that our checks use."""
    configs = arguments.reference / "configs"
    logged = {row.case_id: row for row in engine_memory.rows() if row.check == "pool"}
    cases, logs = [], []
    for log in read_logs(arguments.cases):
        row = logged.get(log.case_id)
        if row is None or row.inferred or not is_common(log, configs):
            continue
        found = question(log, configs, arguments.peers)
        if not (found["ridgepoint"] or found["aiconfigurator"]):
            continue
        started = time.perf_counter()
        ours = float(ledger_of(log, configs).tightest.kv.best)
        wall = time.perf_counter() - started
        cases.append(found)
        logs.append((log, row, ours, wall))
    said = {}
    for tool, code in (("ridgepoint", RIDGEPOINT), ("aiconfigurator", AICONFIGURATOR)):
        said[tool] = asked(arguments, tool, code, [case for case in cases if case[tool]])
    table = [
        Log(
            log.case_id,
            log.model,
            f"{found['gpus']} x {card_of(log).id}",
            log.version or "not stated",
            row.logged,
            {"Ridgebeam": ours, **{tool: answers.get(log.case_id) for tool, (answers, _) in said.items()}},
            row.miss,
        )
        for found, (log, row, ours, _) in zip(cases, logs, strict=True)
    ]
    walls = {"Ridgebeam": statistics.median(wall for *_, wall in logs)}
    return table, walls | {tool: wall for tool, (_, wall) in said.items() if wall is not None}


def is_common(log, configs):
    """Whether a log's start can be put to all tools: vLLM at 0.9, a published config as it is, tensor parallel only."""
    settings, layout = settings_of(log), layout_of(log)
    return (
        engine_of(log) is Engine.VLLM
        and bool(log.config)
        and (configs / f"{log.config}.json").exists()
        and log.utilization == 0.9
        and layout.pp == layout.dp == 1
        and settings.kv_dtype is None
        and named_card(log) is not None
        and log.model.split("/")[-1].split("-")[0].lower() in log.config.lower()
        and quantization_of(log, spec_of(log, configs)) in {None, "fp8", "fp8-block", "fp8-channel"}
    )


def question(log, configs, peers):
    """One log's start in the words of the other tools."""
    spec, settings, layout = spec_of(log, configs), settings_of(log), layout_of(log)
    spread = layout.ep or 1
    narrow = quantization_of(log, spec) is not None
    folder = peers / "configs" / log.config
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_bytes((configs / f"{log.config}.json").read_bytes())
    card = card_of(log).id
    system = AICONFIGURATOR_CARDS.get(card)
    whole = settings.max_model_len or 8192
    return {
        "id": log.case_id,
        "config": str(configs / f"{log.config}.json"),
        "folder": str(folder),
        "parameters": int(count_parameters(spec).total),
        "gpus": layout.tp,
        "length": whole,
        "batched": settings.max_batched_tokens or (whole if is_legacy(log) else 8192),
        "capacity": int(log.total_bytes) if log.total_bytes else None,
        "ridgepoint": RIDGEPOINT_CARDS.get(card),
        "ridgepoint_dtype": "fp8" if narrow else "fp16",
        "aiconfigurator": system,
        "database": AICONFIGURATOR_DATABASES.get(system, NEWEST_DATABASE),
        "formats": ({"gemm_quant_mode": "fp8", "moe_quant_mode": "fp8_block"} if narrow else {})
        | ({"moe_tp_size": layout.tp // spread, "moe_ep_size": spread} if spec.has_experts else {}),
    }
