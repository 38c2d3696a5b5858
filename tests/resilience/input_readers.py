"""Every way in for text and files of others, in one table: valid samples, and a use as the product makes of them.

A `use` reads the bytes, does with the result what pages and commands do, and returns the numbers that a person would
see. It may raise what `errors` names and nothing else; what it returns must be finite and of a believable sign.
"""

import gzip
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlencode

import numpy as np
from input_samples import (
    EVENTS,
    GPU,
    LLAMA,
    LOAD_TESTS,
    LOGS,
    METRICS,
    OLLAMA,
    PRICES,
    SSE,
    TRACES,
    csv_of,
    gguf_file,
    load_test_run,
    measured_run,
    probed_profile_file,
    profile_file,
)
from input_uses import (
    text_of,
    use_accelerator_json,
    use_accelerator_text,
    use_calibration,
    use_config,
    use_endpoint_run,
    use_fleet,
    use_gguf,
    use_hub_cache,
    use_link,
    use_load_test,
    use_log,
    use_probe_run,
    use_profile,
    use_scenario_file,
    use_tensors,
    use_trace,
)
from published_run import a100
from safetensors.numpy import save

from calc.custom_accelerator import accelerator_as_json
from calc.errors import RidgebeamError
from calc.fleet_table import stocks_of
from calc.scenario import Scenario
from calc.scenario_text import to_json, to_query
from presets import accelerators, models, profiles
from presets.checkpoint import parse_header, shards_of
from presets.fleet_file import EXAMPLE
from presets.hub_cache import FORMAT
from presets.hub_client import json_object
from presets.hub_faults import Asked
from presets.model_ids import parse_reference
from presets.prices import read_snapshot
from probes import events
from probes.endpoint.dialects import Api, read_line
from probes.endpoint.discovery import means_between, parse_metrics

ASKED = Asked(repo_id="me/model", revision=None, what="config.json", hub="hub", with_token=False)


@dataclass(frozen=True, kw_only=True)
class Reader:
    """One way in: valid samples, the use that the product makes, and the errors that damage may give."""

    name: str
    use: Callable[[bytes], object]
    samples: tuple[bytes, ...]
    errors: tuple[type[Exception], ...] = (RidgebeamError,)
    cost: int = 1  # rounds are divided by it


def readers() -> tuple[Reader, ...]:
    """The table. A new way in gets a row."""
    plain = json.dumps
    some_configs = [c for name in models.preset_ids()[::6] if (c := models.config_of(name))]
    typed = "typed:memory=48GB,bandwidth=1000GB/s,16bit=100TFLOPS,8bit=200TFLOPS,link=50GB/s,node=4,power=300W,name=mine"
    calibration = {"accelerator": GPU, "model": "m", "profile": profiles.load(GPU).as_json()}
    kept = plain(
        {
            "repo_id": "me/model", "commit": None, "config": LLAMA, "hf_quant_config": None, "warnings": [],
            "checkpoint": {
                "stored_bytes": 9, "bytes_by_format": [["BF16", 9]], "elements_by_format": [["BF16", 4]],
                "n_tensors": 1, "n_files": 1, "source": "safetensors headers",
            },
        }
    )  # fmt: skip
    hub_entry = {
        "format": FORMAT,
        "key": ["http://hub", "me/model", ""],
        "read_at": time.time(),
        "text": kept,
    }
    return (
        Reader(
            name="config", use=use_config, samples=tuple(plain(c).encode() for c in (LLAMA, *some_configs))
        ),
        Reader(
            name="scenario file",
            use=use_scenario_file,
            samples=(
                to_json(Scenario()).encode(),
                to_json(Scenario(model="Qwen/Qwen3-0.6B", gpu="l4")).encode(),
            ),
            cost=8,
        ),
        Reader(
            name="link",
            use=use_link,
            samples=tuple(
                urlencode(to_query(scenario)).encode()
                for scenario in (
                    Scenario(model="Qwen/Qwen3-0.6B", gpu="l4", tp=2, tpot_s=0.03, rate_per_s=2.0, users=4),
                    Scenario(
                        traffic="users",
                        users=9,
                        output_tokens=64.0,
                        ttft_s=1.0,
                        percentile=99.0,
                        headroom=0.1,
                    ),
                    Scenario(
                        kv_bytes_per_gpu=1e10, memory_utilization=0.8, max_seqs=64, adapters=3, draft_tokens=2
                    ),
                )
            ),
            cost=8,
        ),
        Reader(
            name="typed accelerator, JSON",
            use=use_accelerator_json,
            samples=tuple(
                plain(accelerator_as_json(accelerators.load(name))).encode() for name in (GPU, "l4", "mi300x")
            ),
        ),
        Reader(name="typed accelerator, text", use=use_accelerator_text, samples=(typed.encode(),)),
        Reader(
            name="probe run",
            use=use_probe_run,
            samples=(plain(a100()).encode(), plain(measured_run()).encode()),
            cost=4,
        ),
        Reader(name="endpoint run", use=use_endpoint_run, samples=(plain(load_test_run()).encode(),), cost=4),
        Reader(
            name="load test file",
            use=use_load_test,
            samples=(*(plain(one).encode() for one in LOAD_TESTS), plain(load_test_run()).encode()),
            cost=2,
        ),
        Reader(
            name="trace",
            use=use_trace,
            samples=(*(t.encode() for t in TRACES.values()), gzip.compress(TRACES["vidur"].encode())),
        ),
        Reader(name="fleet table", use=use_fleet, samples=(csv_of(EXAMPLE).encode(),)),
        Reader(name="start-up log", use=use_log, samples=tuple(log.encode() for log in LOGS)),
        Reader(name="GGUF", use=use_gguf, samples=(gguf_file(),)),
        Reader(
            name="safetensors",
            use=use_tensors,
            samples=(save({"w": np.ones((4, 8), np.float32), "b": np.ones(8, np.float16)}),),
        ),
        Reader(
            name="safetensors header",
            use=lambda data: parse_header(data, file="f"),
            samples=(
                b'{"__metadata__": {"format": "pt"}, "w": {"dtype": "BF16", "shape": [4, 8], "data_offsets": [0, 64]}}',
            ),
        ),
        Reader(
            name="shard index",
            use=lambda data: shards_of(_object(data)),
            samples=(
                b'{"metadata": {"total_size": 64}, "weight_map": {"w": "model-00001-of-00002.safetensors"}}',
            ),
        ),
        Reader(name="profile file", use=use_profile, samples=(profile_file(), probed_profile_file())),
        Reader(name="stored calibration", use=use_calibration, samples=(plain(calibration).encode(),)),
        Reader(name="hub cache", use=use_hub_cache, samples=(plain(hub_entry).encode(),), errors=()),
        Reader(
            name="hub answer",
            use=lambda data: use_config(json.dumps(json_object(data, ASKED))),
            samples=(plain(LLAMA).encode(),),
        ),
        Reader(
            name="price snapshot", use=lambda data: read_snapshot(text_of(data)), samples=(PRICES.encode(),)
        ),
        Reader(
            name="event stream",
            use=lambda data: [read_line(Api.CHAT, line) for line in data.splitlines()],
            samples=(SSE,),
            errors=(),
        ),
        Reader(
            name="Ollama stream",
            use=lambda data: [read_line(Api.OLLAMA, line) for line in data.splitlines()],
            samples=(OLLAMA,),
            errors=(),
        ),
        Reader(
            name="server metrics",
            use=lambda data: means_between({}, parse_metrics(text_of(data))),
            samples=(METRICS.encode(),),
            errors=(),
        ),
        Reader(
            name="probe events",
            use=lambda data: [events.parse_line(line) for line in text_of(data).splitlines()],
            samples=(EVENTS,),
            errors=(),
        ),
        Reader(
            name="model id",
            use=lambda data: parse_reference(text_of(data)),
            samples=(
                b"meta-llama/Llama-2-13b-hf@main",
                b"https://huggingface.co/Qwen/Qwen3-0.6B/tree/main",
                b"a/b:Q4_K_M",
            ),
        ),
        Reader(
            name="stock",
            use=lambda data: stocks_of(text_of(data).split()),
            samples=(b"h100-sxm5-80gb=16 eu:l40s=4",),
        ),
    )


def _object(data):
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
