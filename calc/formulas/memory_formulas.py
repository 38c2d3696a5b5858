"""Formulas of memory: weights, KV cache, what fits, bits with scales."""

from __future__ import annotations

from calc import batching, quantization_error, textbook
from calc.formulas.record import Example, Formula, Symbol
from calc.formulas.symbols import named

TOPIC = "Memory"

MEMORY_FORMULAS = (
    Formula(
        id="weight_bytes",
        title="Bytes of the weights",
        topic=TOPIC,
        result=Symbol(name="weight_bytes", latex="M_w", meaning="bytes of the weights", unit="byte"),
        template=r"${params} \cdot ${bytes_per_param}",
        parameters=named("params", "bytes_per_param"),
        function=textbook.weight_bytes,
        example=Example(
            inputs={"params": 13e9, "bytes_per_param": 2},
            value=26e9,
            rel=1e-9,
            source="Kwon et al. 2023 (arXiv 2309.06180), table 1: OPT-13B takes 26 GB",
        ),
    ),
    Formula(
        id="kv_bytes_per_token",
        title="KV cache of one token",
        topic=TOPIC,
        result=Symbol(name="kv_bytes_per_token", latex="k", meaning="cache bytes per token", unit="byte"),
        template=r"2 \cdot ${layers} \cdot ${n_kv_heads} \cdot ${head_dim} \cdot ${bytes_per_element}",
        parameters=named("layers", "n_kv_heads", "head_dim", "bytes_per_element"),
        function=textbook.kv_bytes_per_token,
        example=Example(
            inputs={"layers": 40, "n_kv_heads": 40, "head_dim": 128, "bytes_per_element": 2},
            value=819_200,
            rel=0.0,
            source="Kwon et al. 2023 (arXiv 2309.06180), section 3: 800 KB per token for OPT-13B (in KiB)",
        ),
    ),
    Formula(
        id="cached_bytes_per_token",
        title="Cache of one token in layers of one kind",
        topic=TOPIC,
        result=Symbol(
            name="cached_bytes_per_token",
            latex="k_l",
            meaning="cache bytes per token of these layers",
            unit="byte",
        ),
        template=r"${layers} \cdot ${cached_elements} \cdot ${bytes_per_element}",
        parameters=named("layers", "cached_elements", "bytes_per_element"),
        function=textbook.cached_bytes_per_token,
        example=Example(
            inputs={"layers": 61, "cached_elements": 576, "bytes_per_element": 2},
            value=70_272,
            rel=0.0,
            source="Zhao et al. 2025 (arXiv 2505.09343), table 1: 70.272 KB per token for DeepSeek-V3",
        ),
    ),
    Formula(
        id="sequence_kv_bytes",
        title="KV cache of one sequence",
        topic=TOPIC,
        result=Symbol(
            name="sequence_kv_bytes", latex="M_{seq}", meaning="cache of one sequence", unit="byte"
        ),
        template=r"${tokens} \cdot ${kv_bytes_per_token}",
        parameters=named("tokens", "kv_bytes_per_token"),
        function=textbook.sequence_kv_bytes,
        example=Example(
            inputs={"tokens": 2048, "kv_bytes_per_token": 819_200},
            value=1.6 * 1024**3,
            rel=0.03,
            source="Kwon et al. 2023 (arXiv 2309.06180), section 3: 1.6 GB for 2,048 tokens of OPT-13B",
        ),
    ),
    Formula(
        id="cache_bytes",
        title="Memory left for the cache",
        topic=TOPIC,
        result=Symbol(name="cache_bytes", latex="M_{kv}", meaning="bytes left for the cache", unit="byte"),
        template=r"${memory_bytes} - ${weight_bytes} - ${reserved_bytes}",
        parameters=named("memory_bytes", "weight_bytes", "reserved_bytes"),
        function=textbook.cache_bytes,
        example=Example(
            inputs={"memory_bytes": 48e9, "weight_bytes": 16e9, "reserved_bytes": 0.0},
            value=32e9,
            rel=1e-9,
            source="worked case memory-example-8b",
        ),
    ),
    Formula(
        id="tokens_that_fit",
        title="Tokens that fit",
        topic=TOPIC,
        result=Symbol(name="tokens_that_fit", latex="T", meaning="tokens that the cache holds"),
        template=r"\left\lfloor \frac{${cache_bytes}}{${kv_bytes_per_token}} \right\rfloor",
        parameters=named("cache_bytes", "kv_bytes_per_token"),
        function=textbook.tokens_that_fit,
        example=Example(
            inputs={"cache_bytes": 50e9, "kv_bytes_per_token": 819_200},
            value=61_035,
            rel=0.0,
            source="worked case capacity-13b-a100",
        ),
    ),
    Formula(
        id="sequences_reserved",
        title="Sequences when the longest length is reserved",
        topic=TOPIC,
        result=Symbol(name="sequences_reserved", latex="N_{reserved}", meaning="sequences that fit"),
        template=r"\left\lfloor \frac{${tokens}}{${reserved_tokens}} \right\rfloor",
        parameters=named("tokens", "reserved_tokens"),
        function=textbook.sequences_reserved,
        example=Example(
            inputs={"tokens": 61_035, "reserved_tokens": 4096},
            value=14,
            rel=0.0,
            source="worked case capacity-13b-a100",
        ),
    ),
    Formula(
        id="sequences_paged",
        title="Sequences with a paged cache",
        topic=TOPIC,
        result=Symbol(name="sequences_paged", latex="N_{paged}", meaning="sequences that fit"),
        template=r"\left\lfloor \frac{\lfloor ${tokens} / ${block_size} \rfloor}"
        r"{\lceil ${sequence_tokens} / ${block_size} \rceil} \right\rfloor",
        parameters=named("tokens", "sequence_tokens", "block_size"),
        function=textbook.sequences_paged,
        example=Example(
            inputs={"tokens": 61_035, "sequence_tokens": 768, "block_size": 16},
            value=79,
            rel=0.0,
            source="worked case capacity-13b-a100",
        ),
    ),
    Formula(
        id="largest_paged_waste",
        title="Most slots that a paged sequence wastes",
        topic=TOPIC,
        result=Symbol(name="largest_paged_waste", latex="w_{max}", meaning="empty token slots"),
        template="${block_size} - 1",
        parameters=named("block_size"),
        function=batching.largest_paged_waste,
        example=Example(
            inputs={"block_size": 16},
            value=15,
            rel=0.0,
            source="Kwon et al. 2023 (arXiv 2309.06180), section 4.3: waste stays within one block",
        ),
    ),
    Formula(
        id="bits_per_weight",
        title="Bits per weight with scales",
        topic=TOPIC,
        result=Symbol(name="bits_per_weight", latex="b_w", meaning="stored bits of one weight"),
        template=r"${bits} + \frac{${scale_bits}}{${group}}",
        parameters=named("bits", "scale_bits", "group"),
        function=quantization_error.bits_per_weight,
        example=Example(
            inputs={"bits": 4, "scale_bits": 8, "group": 32},
            value=4.25,
            rel=0.0,
            source="gpt-oss model card (OpenAI 2025): MXFP4 weights take 4.25 bits per parameter",
        ),
    ),
    Formula(
        id="float_spacing",
        title="Gap between neighbouring floats",
        topic=TOPIC,
        result=Symbol(name="float_spacing", latex=r"\Delta", meaning="gap to the next value"),
        template=r"2^{\lfloor \log_2 ${at} \rfloor - (${significand_bits} - 1)}",
        parameters=named("at", "significand_bits"),
        function=quantization_error.float_spacing,
        example=Example(
            inputs={"at": 1.0, "significand_bits": 8},
            value=0.0078125,
            rel=0.0,
            source="PyTorch documentation, torch.finfo: eps of bfloat16 is 0.0078125",
        ),
    ),
)
