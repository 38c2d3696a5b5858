"""Rates, bandwidths and totals that other projects publish, restated as figures, with our id for each part.

Read on 2026-11-29 from the released packages named. None of them is a source of the catalogue: they are what it is
checked against.
"""

# aiconfigurator-core 0.12.0 (Apache-2.0), systems/*.yaml: bandwidth GB/s, dense TFLOP/s by format, W, bytes of memory.
AICONFIGURATOR = {
    "a100-pcie-80gb": {"bandwidth": 1935, "bf16": 312, "int8": 624, "power": 300, "memory": 85899345920},
    "a100-sxm4-80gb": {"bandwidth": 2039, "bf16": 312, "int8": 624, "power": 400, "memory": 85899345920},
    "a30": {"bandwidth": 933, "bf16": 165, "int8": 330, "power": 165, "memory": 25769803776},
    "h100-pcie-80gb": {
        "bandwidth": 2000, "bf16": 756.5, "int8": 1513, "fp8": 1513, "power": 350, "memory": 85899345920,
    },
    "h100-sxm5-80gb": {
        "bandwidth": 3350, "bf16": 989, "int8": 1978, "fp8": 1978, "power": 700, "memory": 85899345920,
    },
    "h200-sxm-141gb": {
        "bandwidth": 4800, "bf16": 989, "int8": 1978, "fp8": 1978, "power": 700, "memory": 151397597184,
    },
    "l4": {"bandwidth": 300, "bf16": 121, "int8": 242, "fp8": 242, "power": 72, "memory": 25769803776},
    "l40s": {"bandwidth": 864, "bf16": 362.05, "int8": 733, "fp8": 733, "power": 350, "memory": 48305799168},
    "b200-sxm-180gb": {
        "bandwidth": 7700, "bf16": 2250, "int8": 4500, "fp8": 4500, "fp4": 9000, "power": 1000, "memory": 193273528320,
    },
    "b300-sxm-288gb": {
        "bandwidth": 7750, "bf16": 2250, "int8": 153.5, "fp8": 4500, "fp4": 14000, "power": 1100, "memory": 288400343040,
    },
    "gb200-gpu": {
        "bandwidth": 8000, "bf16": 2500, "int8": 5000, "fp8": 5000, "fp4": 10000, "power": 1200, "memory": 198674743296,
    },
    "gb300-gpu": {
        "bandwidth": 8000, "bf16": 2500, "int8": 165, "fp8": 5000, "fp4": 15000, "power": 1400, "memory": 298013687808,
    },
    "rtx-pro-6000-blackwell-server": {
        "bandwidth": 1792, "bf16": 467.8, "int8": 935.6, "fp8": 935.6, "fp4": 1871.2, "power": 600,
        "memory": 102641958912,
    },
    "arc-pro-b60": {"bandwidth": 456, "bf16": 98.304, "int8": 197, "power": 200},
}  # fmt: skip

# torchtitan 0.3.0 (BSD-3-Clause), tools/utils.py get_peak_flops: bf16 TFLOP/s; MI250X there is one die.
TORCHTITAN = {
    "a100-sxm4-80gb": {"bf16": 312},
    "a100-pcie-80gb": {"bf16": 312},
    "rtx-a6000": {"bf16": 154.85},
    "h100-nvl-94gb": {"bf16": 835},
    "h100-pcie-80gb": {"bf16": 756},
    "h100-sxm5-80gb": {"bf16": 989},
    "h200-sxm-141gb": {"bf16": 989},
    "h20-sxm-96gb": {"bf16": 148},
    "gb200-gpu": {"bf16": 2500},
    "gb300-gpu": {"bf16": 2500},
    "b200-sxm-180gb": {"bf16": 2250},
    "b300-sxm-288gb": {"bf16": 2250},
    "mi355x": {"bf16": 2500},
    "mi300x": {"bf16": 1300},
    "mi325x": {"bf16": 1300},
    "mi250x": {"bf16": 191.5},
    "max-1550": {"bf16": 340.8},
    "l40s": {"bf16": 362},
}

# servcalc 0.1.0 (MIT), gpus.py: bandwidth GB/s, bf16 (fp16 where there is none) TFLOP/s with FP32 accumulation.
SERVCALC = {
    "rtx-3060-12gb": {"bandwidth": 360, "16bit": 25},
    "rtx-3070": {"bandwidth": 448, "16bit": 40},
    "rtx-3080-10gb": {"bandwidth": 760, "16bit": 60},
    "rtx-3080-ti": {"bandwidth": 912, "16bit": 68},
    "rtx-3090": {"bandwidth": 936, "16bit": 71},
    "rtx-3090-ti": {"bandwidth": 1008, "16bit": 80},
    "rtx-4060": {"bandwidth": 272, "16bit": 30},
    "rtx-4060-ti-16gb": {"bandwidth": 288, "16bit": 44},
    "rtx-4070": {"bandwidth": 504, "16bit": 58},
    "rtx-4070-ti": {"bandwidth": 504, "16bit": 80},
    "rtx-4070-ti-super": {"bandwidth": 672, "16bit": 88},
    "rtx-4080": {"bandwidth": 717, "16bit": 97},
    "rtx-4080-super": {"bandwidth": 736, "16bit": 104},
    "rtx-4090": {"bandwidth": 1008, "16bit": 165},
    "rtx-5070": {"bandwidth": 672, "16bit": 62},
    "rtx-5070-ti": {"bandwidth": 896, "16bit": 88},
    "rtx-5080": {"bandwidth": 960, "16bit": 112},
    "rtx-5090": {"bandwidth": 1792, "16bit": 210},
    "t4": {"bandwidth": 320, "16bit": 65},
    "v100-sxm2-16gb": {"bandwidth": 900, "16bit": 125},
    "v100-sxm2-32gb": {"bandwidth": 900, "16bit": 125},
    "a10": {"bandwidth": 600, "16bit": 125},
    "a40": {"bandwidth": 696, "16bit": 150},
    "rtx-a6000": {"bandwidth": 768, "16bit": 155},
    "rtx-6000-ada": {"bandwidth": 960, "16bit": 364},
    "a100-sxm4-40gb": {"bandwidth": 1555, "16bit": 312},
    "a100-sxm4-80gb": {"bandwidth": 2039, "16bit": 312},
    "a800-sxm4-80gb": {"bandwidth": 2039, "16bit": 312},
    "h100-sxm5-80gb": {"bandwidth": 3350, "16bit": 989},
    "h800-sxm5-80gb": {"bandwidth": 3350, "16bit": 989},
    "h200-sxm-141gb": {"bandwidth": 4800, "16bit": 989},
    "l4": {"bandwidth": 300, "16bit": 121},
    "l40s": {"bandwidth": 864, "16bit": 362},
    "b200-sxm-180gb": {"bandwidth": 8000, "16bit": 2250},
}

# lightning-fabric 2.6.6 (Apache-2.0), utilities/throughput.py: TFLOP/s by format.
LIGHTNING = {
    "h200-sxm-141gb": {"fp32": 67, "tf32": 990, "bf16": 2000, "int8": 4000},
    "h200-nvl-141gb": {"fp32": 60, "tf32": 840, "bf16": 1700, "int8": 3300},
    "h100-nvl-94gb": {"fp32": 133.8, "tf32": 989.4, "bf16": 1978.8, "int8": 3957.8},
    "h100-sxm5-80gb": {"fp32": 66.9, "tf32": 494.7, "bf16": 989.4, "int8": 1978.9},
    "h100-pcie-80gb": {"fp32": 51.2, "tf32": 378, "bf16": 756, "int8": 1513},
    "rtx-4090": {"fp32": 82.6, "tf32": 82.6, "bf16": 82.6, "int8": 660.6, "int4": 1321.2},
    "rtx-4080": {"fp32": 48.7, "tf32": 48.7, "bf16": 48.7, "int8": 389.9, "int4": 779.8},
    "rtx-4080-super": {"fp32": 52.2, "tf32": 52.2, "bf16": 52.2, "int8": 417.6, "int4": 835.2},
    "l4": {"fp32": 30.3, "tf32": 60, "bf16": 121, "int8": 242, "int4": 484},
    "l40": {"fp32": 90.5, "tf32": 90.5, "bf16": 181, "int8": 362, "int4": 724},
    "a100-sxm4-80gb": {"fp32": 19.5, "tf32": 156, "bf16": 312, "int8": 624},
    "rtx-a6000": {"fp32": 38.7, "tf32": 77.4, "bf16": 38.7, "int8": 309.7, "int4": 619.3},
    "a40": {"fp32": 37.4, "tf32": 74.8, "bf16": 37.4, "int8": 299.3, "int4": 598.7},
    "a10g": {"fp32": 31.2, "tf32": 62.5, "bf16": 125, "int8": 250, "int4": 500},
    "rtx-3090-ti": {"fp32": 40, "tf32": 40, "bf16": 40, "int8": 320, "int4": 640},
    "rtx-3090": {"fp32": 35.6, "tf32": 35.6, "bf16": 35.6, "int8": 284, "int4": 568},
    "rtx-3080-ti": {"fp32": 34.1, "tf32": 34.1, "bf16": 34.1, "int8": 272.8, "int4": 546.6},
    "rtx-3080-10gb": {"fp32": 29.8, "tf32": 29.8, "bf16": 29.8, "int8": 238, "int4": 476},
    "rtx-3070": {"fp32": 20.3, "tf32": 20.3, "bf16": 20.3, "int8": 162.6, "int4": 325.2},
    "t4": {"fp32": 8.1, "fp16": 65, "int8": 130, "int4": 260},
    "rtx-2080-ti": {"fp32": 14.2, "fp16": 28.5, "int8": 227.7, "int4": 455.4},
    "titan-rtx": {"fp32": 16.3, "fp16": 32.6, "int8": 261, "int4": 522},
    "v100-sxm2-16gb": {"fp32": 15.7, "fp16": 125},
    "v100-pcie-16gb": {"fp32": 14, "fp16": 112},
    "v100s-pcie-32gb": {"fp32": 16.4, "fp16": 130},
}

TABLES = {
    "aiconfigurator": AICONFIGURATOR,
    "torchtitan": TORCHTITAN,
    "servcalc": SERVCALC,
    "lightning": LIGHTNING,
}

_NOMINAL = "it counts the label in GiB; the driver reports less"
_SPARSE = "it prints the sparse rate"
_SHADER = "it prints the shader rate; the tensor cores are twice as fast"
_PAIR = "it prints the early datasheet's bridged pair of cards"
_A10 = "it prints the A10's figures for the A10G"

# (table, part, figure) -> why it differs and what is kept.
KNOWN_DIFFERENCES = {
    ("aiconfigurator", "b200-sxm-180gb", "bandwidth"): "7.7 TB/s is the HGX board's figure; 8.0 is DGX's (the range holds both)",
    ("aiconfigurator", "b300-sxm-288gb", "bandwidth"): "7.75 TB/s from 62 TB/s for 8; 8.0 kept (the range holds both)",
    ("aiconfigurator", "b300-sxm-288gb", "fp4"): "14 PF in one document; the HGX page's 108 PF dense for 8 gives 13.5",
    ("aiconfigurator", "rtx-pro-6000-blackwell-server", "bandwidth"): "1792 is the workstation card; the server page says 1597",
    ("aiconfigurator", "l4", "memory"): _NOMINAL,
    ("lightning", "h200-sxm-141gb", "tf32"): _SPARSE,
    ("lightning", "h200-sxm-141gb", "bf16"): _SPARSE,
    ("lightning", "h200-sxm-141gb", "int8"): _SPARSE,
    ("lightning", "h200-nvl-141gb", "tf32"): _SPARSE,
    ("lightning", "h200-nvl-141gb", "bf16"): _SPARSE,
    ("lightning", "h200-nvl-141gb", "int8"): _SPARSE,
    ("lightning", "h100-nvl-94gb", "fp32"): _PAIR,
    ("lightning", "h100-nvl-94gb", "tf32"): _PAIR,
    ("lightning", "h100-nvl-94gb", "bf16"): _PAIR,
    ("lightning", "h100-nvl-94gb", "int8"): _PAIR,
    ("lightning", "a10g", "fp32"): _A10,
    ("lightning", "a10g", "tf32"): _A10,
    ("lightning", "a10g", "bf16"): _A10,
    ("lightning", "a10g", "int8"): _A10,
    ("lightning", "a10g", "int4"): _A10,
    ("lightning", "rtx-a6000", "bf16"): "it prints the shader rate; the tensor cores are four times as fast",
    ("lightning", "a40", "bf16"): "it prints the shader rate; the tensor cores are four times as fast",
    ("lightning", "rtx-2080-ti", "fp16"): _SHADER,
    ("lightning", "titan-rtx", "fp16"): "it prints the shader rate; the tensor cores are four times as fast",
    **{
        ("lightning", part, "bf16"): _SHADER
        for part in (
            "rtx-4090", "rtx-4080", "rtx-4080-super", "rtx-3090-ti", "rtx-3090", "rtx-3080-ti", "rtx-3080-10gb", "rtx-3070",
        )
    },
    ("torchtitan", "max-1550", "bf16"): "sustained clock of one stack; the headline needs 1.6 GHz (kept as sustained rate)",
}  # fmt: skip
