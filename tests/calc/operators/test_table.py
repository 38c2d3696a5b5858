"""The operator table against closed forms over the spec, and against itself under broadcasting and sharding."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.errors import InputError
from calc.layout import Layout
from calc.memory.kv import kv_bytes_per_token
from calc.operators import FEATURES, ForwardPass, Kind, Operator, Operators, compile_operators
from calc.parameters import count_parameters
from calc.quantization import weight_bytes
from presets import models

LLAMA_8B = models.load("meta-llama/Meta-Llama-3.1-8B")
LLAMA_70B = models.load("meta-llama/Meta-Llama-3.1-70B")


def matmul_parameters(spec):
    """Parameters that take part in a matrix product for every token: all but input embedding and norms."""
    counted = count_parameters(spec)
    return counted.total - counted.embedding - counted.parts["norm"]


@pytest.mark.parametrize("spec", [LLAMA_8B, LLAMA_70B])
def test_decode_flop_are_two_per_parameter_and_token_plus_attention(spec):
    batch, context = 16, 1000
    table = compile_operators(spec, Layout()).evaluate(ForwardPass.decode(batch, context))
    attention = 4 * (spec.width) * (context + 1) * spec.decoder.n_layers * batch
    assert table.total("flop")[0] == pytest.approx(2 * matmul_parameters(spec) * batch + attention)


def test_prefill_flop_count_causal_attention_and_one_row_of_logits():
    tokens = 777
    spec = LLAMA_8B
    table = compile_operators(spec, Layout()).evaluate(ForwardPass.prefill(tokens))
    head = spec.vocab_size * spec.width
    attention = 4 * spec.width * tokens * (tokens + 1) / 2 * spec.decoder.n_layers
    expected = 2 * (matmul_parameters(spec) - head) * tokens + 2 * head + attention
    assert table.total("flop")[0] == pytest.approx(expected)


@pytest.mark.parametrize("quantization", [None, "fp8", "awq", "nvfp4"])
def test_a_decode_step_reads_every_stored_weight_but_the_embedding_and_norms(quantization):
    spec = LLAMA_8B
    read = compile_operators(spec, Layout(), quantization=quantization).evaluate(ForwardPass.decode(1, 10))
    counted = count_parameters(spec)
    stored = weight_bytes(spec, quantization).stored - 2 * (counted.embedding + counted.parts["norm"])
    assert read.total("weight_bytes")[0] == pytest.approx(stored)


def test_cached_bytes_read_are_those_of_the_logical_cache():
    table = compile_operators(LLAMA_8B, Layout(), kv_dtype="fp8").evaluate(ForwardPass.decode(3, 5000))
    per_token = kv_bytes_per_token(LLAMA_8B, kv_dtype="fp8")
    assert table.total("kv_bytes")[0] == pytest.approx(3 * (5000 + 1) * per_token)  # read, and one written


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_ranks_together_do_the_whole_work(tp):
    step = ForwardPass.mixed(8, 2000, prompt_tokens=512)
    alone = compile_operators(LLAMA_70B, Layout()).evaluate(step)
    shared = compile_operators(LLAMA_70B, Layout(tp=tp)).evaluate(step)
    for column in ("flop", "weight_bytes", "kv_bytes"):
        assert tp * shared.total(column)[0] == pytest.approx(alone.total(column)[0])
    assert alone.total("message_bytes")[0] == 0
    reduced = 2 * LLAMA_70B.decoder.n_layers * 2 * LLAMA_70B.width * 520
    gathered = 2 * LLAMA_70B.vocab_size * 9
    assert shared.total("message_bytes")[0] == pytest.approx(reduced + gathered)


def test_kv_heads_are_replicated_past_their_number():
    step = ForwardPass.decode(1, 1000)
    eight = compile_operators(LLAMA_8B, Layout(tp=8)).evaluate(step).total("kv_bytes")[0]
    sixteen = compile_operators(LLAMA_8B, Layout(tp=16)).evaluate(step).total("kv_bytes")[0]
    assert sixteen == eight


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 50_000)), min_size=1, max_size=6))
def test_an_axis_of_candidates_gives_what_each_gives_alone(points):
    operators = compile_operators(LLAMA_8B, Layout(tp=2))
    batch, context = (np.array(axis, dtype=float) for axis in zip(*points, strict=True))
    together = operators.evaluate(ForwardPass.decode(batch, context))
    for index, (b, c) in enumerate(points):
        alone = operators.evaluate(ForwardPass.decode(b, c))
        for column in ("flop", "weight_bytes", "activation_bytes", "kv_bytes", "message_bytes", "kernels"):
            assert getattr(together, column)[:, index] == pytest.approx(getattr(alone, column)[:, 0])


def test_models_side_by_side_give_what_each_gives_alone():
    tables = [compile_operators(LLAMA_8B, Layout()), compile_operators(LLAMA_70B, Layout(tp=4))]
    step = ForwardPass.mixed(np.array([4.0, 9.0]), np.array([100.0, 900.0]), prompt_tokens=256)
    joined = Operators.side_by_side(tables).evaluate(step)
    for index, operators in enumerate(tables):
        alone = operators.evaluate(step)
        for column in ("flop", "weight_bytes", "kv_bytes", "message_bytes"):
            assert joined.total(column)[index] == pytest.approx(alone.total(column)[index])
        for name in FEATURES:
            assert joined.operators.features[name][index] == operators.features[name][0]


@pytest.mark.parametrize(
    ("quantization", "narrow"), [(None, 2.0), ("fp8", 1.0), ("nvfp4", 9 / 16), ("awq", 2.0)]
)
def test_a_product_streams_what_it_computes_with_and_quantises_its_inputs_before(quantization, narrow):
    """Gate and up of Llama 3.1 8B by hand: 4,096 inputs in the type that is multiplied, 28,672 outputs in 16 bits."""
    table = compile_operators(LLAMA_8B, Layout(), quantization=quantization).evaluate(ForwardPass.prefill(10))
    row = table.operators.names.index("gate and up projection")
    streamed = 10 * (narrow * 4096 + 2 * 28672)
    assert table.streamed_bytes[row, 0] == table.activation_bytes[row, 0] == pytest.approx(streamed)
    quantised = 10 * (2 + narrow) * 4096 if narrow < 2 else 0  # read in 16 bits, written
    assert table.passed_bytes[row, 0] == pytest.approx(quantised)
    norm = table.operators.names.index("norm")
    assert table.streamed_bytes[norm, 0] == 0
    assert table.passed_bytes[norm, 0] == table.activation_bytes[norm, 0] > 0


def expert_row(**more):
    return Operator(
        name="experts",
        group="g",
        kind=Kind.EXPERTS,
        weight_bytes=1.0,
        n_experts=64,
        top_k=6,
        kernels=1,
        **more,
    )


def test_touched_experts_are_the_mean_of_random_draws():
    operators = Operators.of([expert_row()], {})
    generator = np.random.default_rng(7)
    for tokens in (1, 3, 16, 200):
        draws = [
            len({e for _ in range(tokens) for e in generator.choice(64, 6, replace=False)})
            for _ in range(300)
        ]
        share = operators.evaluate(ForwardPass.decode(tokens, 1)).weight_bytes[0, 0]
        assert share == pytest.approx(np.mean(draws) / 64, rel=0.03)


def test_a_routing_factor_never_undercuts_one_token_nor_exceeds_uniform():
    operators = Operators.of([expert_row()], {})
    for tokens in (1.0, 8.0, 1000.0):
        step = ForwardPass.decode(tokens, 1)
        uniform = operators.evaluate(step).weight_bytes[0, 0]
        skewed = operators.evaluate(step, routing_factor=0.6).weight_bytes[0, 0]
        assert 6 / 64 - 1e-12 <= skewed <= uniform
    first = operators.evaluate(ForwardPass.decode(1, 1), routing_factor=0.6).weight_bytes[0, 0]
    assert first == pytest.approx(6 / 64)


def test_a_fuller_expert_rank_does_more_work():
    operators = Operators.of([expert_row(flop_per_token=10.0)], {})
    even = operators.evaluate(ForwardPass.decode(4, 1))
    skewed = operators.evaluate(ForwardPass.decode(4, 1), imbalance=1.5)
    assert skewed.flop[0, 0] == pytest.approx(1.5 * even.flop[0, 0])
    assert even.weight_bytes[0, 0] < skewed.weight_bytes[0, 0] <= 1.0


@pytest.mark.parametrize(
    ("quantization", "element_bytes"), [("nvfp4", 9 / 16), ("fp8", 1), ("fp8-block", 2), (None, 2)]
)
def test_tokens_are_gathered_as_the_experts_read_them_and_come_back_in_16_bits(quantization, element_bytes):
    spec = models.load("Qwen/Qwen3-30B-A3B")
    layout = Layout(tp=4, ep=4, attention_dp=4)
    table = compile_operators(spec, layout, quantization=quantization).evaluate(ForwardPass.decode(10, 100))
    message = {row["name"]: row["message_bytes"] for row in table.rows()}
    assert message["expert dispatch"] == pytest.approx(4 * 10 * 2048 * element_bytes)
    assert message["expert combine"] == 4 * 10 * 2048 * 2


def test_adapters_add_two_thin_products_per_matrix():
    plain = compile_operators(LLAMA_8B, Layout()).evaluate(ForwardPass.decode(1, 10))
    served = compile_operators(LLAMA_8B, Layout(), lora_rank=16, lora_adapters=3)
    adapted = served.evaluate(ForwardPass.decode(1, 10))
    h, kv, f = 4096, 1024, 14336
    elements = 32 * 16 * ((h + h) + 2 * (h + kv) + (h + h) + 3 * (h + f))
    assert adapted.total("flop")[0] - plain.total("flop")[0] == pytest.approx(2 * elements)
    assert adapted.total("weight_bytes")[0] - plain.total("weight_bytes")[0] == pytest.approx(
        3 * 2 * elements
    )


def test_a_model_of_totals_only_is_refused():
    with pytest.raises(InputError, match="textbook"):
        compile_operators(models.load("textbook-13b"), Layout())


def test_an_unknown_cache_format_is_refused():
    with pytest.raises(InputError, match="kv_dtype"):
        compile_operators(LLAMA_8B, Layout(), kv_dtype="fp5")
