"""Formulas of an engine's memory ledger: from the card to the tokens that its log prints."""

from __future__ import annotations

from calc.formulas.record import Example, Formula, Symbol
from calc.formulas.symbols import named
from calc.memory import closed_forms as ledger
from calc.units import GIB

TOPIC = "The engine's memory"


def _bytes(name: str, latex: str, meaning: str) -> Symbol:
    return Symbol(name=name, latex=latex, meaning=meaning, unit="byte")


LEDGER_FORMULAS = (
    Formula(
        id="engine_budget_bytes",
        title="What the engine may use",
        topic=TOPIC,
        result=_bytes("engine_budget_bytes", "M_g", "bytes that the engine may use of one GPU"),
        template=r"${memory_share} \cdot ${total_bytes}",
        parameters=named("memory_share", "total_bytes"),
        function=ledger.engine_budget_bytes,
        example=Example(
            inputs={"memory_share": 0.9, "total_bytes": 79.25 * GIB},
            value=71.33 * GIB,
            rel=1e-3,
            source="vLLM start-up logs: total_gpu_memory (79.25GiB) x gpu_memory_utilization (0.90) = 71.33GiB",
        ),
    ),
    Formula(
        id="kv_pool_bytes",
        title="The KV pool",
        topic=TOPIC,
        result=_bytes("kv_pool_bytes", "M_{pool}", "bytes of the KV pool of one GPU"),
        template=r"${pool_share} \cdot \left(${budget_bytes} - ${rank_weight_bytes} - ${activation_peak} - ${non_torch_bytes} - "
        r"${counted_graph_bytes} - ${other_bytes}\right)",
        parameters=named(
            "budget_bytes",
            "rank_weight_bytes",
            "activation_peak",
            "non_torch_bytes",
            "counted_graph_bytes",
            "other_bytes",
            "pool_share",
        ),
        function=ledger.kv_pool_bytes,
        example=Example(
            inputs={
                "budget_bytes": 10,
                "rank_weight_bytes": 4,
                "activation_peak": 1,
                "non_torch_bytes": 0.5,
                "counted_graph_bytes": 0.5,
                "other_bytes": 0,
                "pool_share": 1.0,
            },
            value=4.0,
            rel=1e-12,
            source="by hand",
        ),
    ),
    Formula(
        id="pool_blocks",
        title="Blocks of the pool",
        topic=TOPIC,
        result=Symbol(name="pool_blocks", latex="n_b", meaning="blocks of the pool"),
        template=r"\left\lfloor \frac{\max(${pool_bytes}, 0)}{${block_bytes}} \right\rfloor",
        parameters=named("pool_bytes", "block_bytes"),
        function=ledger.pool_blocks,
        example=Example(
            inputs={"pool_bytes": 50e9, "block_bytes": 16 * 819_200},
            value=3814,
            rel=0.0,
            source="worked case capacity-13b-a100: 61,035 tokens are 3,814 whole blocks of 16",
        ),
    ),
    Formula(
        id="reserved_pool_bytes",
        title="Whole blocks of all GPUs",
        topic=TOPIC,
        result=Symbol(
            name="reserved_pool_bytes", latex="M_{blocks}", meaning="bytes of whole blocks", unit="byte"
        ),
        template=r"${blocks} \cdot ${block_bytes} \cdot ${gpus}",
        parameters=named("blocks", "block_bytes", "gpus"),
        function=ledger.reserved_pool_bytes,
        example=Example(
            inputs={"blocks": 3814, "block_bytes": 16 * 819_200, "gpus": 1},
            value=49.99e9,
            rel=1e-3,
            source="worked case capacity-13b-a100: 3,814 whole blocks of 50 GB",
        ),
    ),
    Formula(
        id="pool_sequences",
        title="Longest sequences in the pool",
        topic=TOPIC,
        result=Symbol(name="pool_sequences", latex="N", meaning="sequences of the longest length"),
        template=r"\frac{${blocks}}{${blocks_per_sequence}}",
        parameters=named("blocks", "blocks_per_sequence"),
        function=ledger.pool_sequences,
        example=Example(
            inputs={"blocks": 3814, "blocks_per_sequence": 48},
            value=79.46,
            rel=1e-4,
            source="worked case capacity-13b-a100: 79 sequences of 48 blocks",
        ),
    ),
    Formula(
        id="running_sequences",
        title="Sequences that run where windows give blocks back",
        topic=TOPIC,
        result=Symbol(name="running_sequences", latex="N", meaning="sequences that run at once"),
        template=r"1 + \left\lfloor \frac{${blocks} - ${blocks_per_sequence}}{${blocks_while_decoding}} \right\rfloor",
        parameters=named("blocks", "blocks_per_sequence", "blocks_while_decoding"),
        function=ledger.running_sequences,
        example=Example(
            inputs={"blocks": 1000, "blocks_per_sequence": 129, "blocks_while_decoding": 65},
            value=14,
            rel=0.0,
            source="by hand: a window of 1,024 tokens, 1,024 tokens a step (129 blocks in vLLM's own test), 65 while decoding",
        ),
    ),
    Formula(
        id="pool_tokens",
        title="Tokens in the pool",
        topic=TOPIC,
        result=Symbol(name="pool_tokens", latex="T", meaning="tokens at the longest length"),
        template=r"\left\lfloor ${sequences_in_pool} \cdot ${longest_tokens_limit} \right\rfloor",
        parameters=named("sequences_in_pool", "longest_tokens_limit"),
        function=ledger.pool_tokens,
        example=Example(
            inputs={"sequences_in_pool": 3814 / 48, "longest_tokens_limit": 768},
            value=61_024,
            rel=0.0,
            source="by hand: 3,814 blocks of 16 tokens",
        ),
    ),
    Formula(
        id="activation_peak_bytes",
        title="Activation peak of the dummy step",
        topic=TOPIC,
        result=_bytes("activation_peak_bytes", "M_a", "peak that is subtracted before the pool is sized"),
        template=r"\max(${sampler_bytes}, ${forward_bytes}, ${vision_bytes}) + ${workspace_bytes} + ${kept_bytes}",
        parameters=named("sampler_bytes", "forward_bytes", "vision_bytes", "workspace_bytes", "kept_bytes"),
        function=ledger.activation_peak_bytes,
        example=Example(
            inputs={
                "sampler_bytes": 3,
                "forward_bytes": 2,
                "vision_bytes": 0,
                "workspace_bytes": 1,
                "kept_bytes": 0,
            },
            value=4.0,
            rel=1e-12,
            source="by hand",
        ),
    ),
    Formula(
        id="graph_bytes",
        title="CUDA graphs",
        topic=TOPIC,
        result=_bytes("graph_bytes", "M_{graph}", "bytes that the engine estimates for its graphs"),
        template=r"${fixed_bytes} + ${captured} \cdot ${n_layers} \cdot ${bytes_per_capture}",
        parameters=named("fixed_bytes", "captured", "n_layers", "bytes_per_capture"),
        function=ledger.graph_bytes,
        example=Example(
            inputs={"fixed_bytes": 0, "captured": 2, "n_layers": 3, "bytes_per_capture": 10},
            value=60,
            rel=1e-12,
            source="by hand",
        ),
    ),
)
