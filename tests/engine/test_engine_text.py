"""Greedy text is the same on every path, and the same as transformers' own models on the same weights."""

import pytest
import torch
from models import decoder_of, prompts

from calc.errors import InputError, UnsupportedArchitecture
from calc.simulation.rules import engine_rules
from probes.engine.cache import Piece
from probes.engine.engine import Engine
from probes.engine.generate import generate, generate_with_drafts, generate_without_cache
from probes.engine.sampling import Sampling
from probes.engine.shape import shape_of
from probes.engine_record import play

pytestmark = pytest.mark.torch

PROMPTS = prompts(20)
TOKENS = 16
SETTINGS = {
    "vllm": {"block_size": 8, "num_blocks": 64, "token_budget": 24, "max_seqs": 6},
    "nano-vllm": {"block_size": 8, "num_blocks": 64, "token_budget": 40, "max_seqs": 6},
    "static": {"block_size": 8, "num_blocks": 400, "batch_size": 5},
}


@pytest.fixture(scope="module")
def expected(pair):
    """Transformers' greedy answers: its own model, its own cache, its own loop."""
    model, _, _ = pair
    answers = []
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            found = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=TOKENS,
                do_sample=False,
                eos_token_id=None,
            )
        answers.append(found[0, len(prompt) :].tolist())
    return answers


def test_answers_are_not_all_one_token(expected):
    """A model that repeats itself would pass everything below."""
    assert sum(len(set(answer)) > TOKENS // 2 for answer in expected) > len(expected) // 2


def test_logits_are_transformers_own(pair):
    model, decoder, _ = pair
    for prompt in PROMPTS[:4]:
        with torch.inference_mode():
            theirs = model(torch.tensor([prompt])).logits[0]
        ours = decoder.logits([Piece(tokens=prompt, start=0)], every_token=True)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "path",
    [
        generate_without_cache,
        generate,
        lambda *asked: generate(*asked, block_size=16),
        lambda *asked: generate(*asked, block_size=4, chunk=7),
    ],
    ids=["without a cache", "one piece", "paged", "paged in chunks"],
)
def test_one_sequence(pair, expected, path):
    _, decoder, _ = pair
    assert [path(decoder, prompt, TOKENS).tokens for prompt in PROMPTS] == expected


@pytest.mark.parametrize("drafts", [4])
def test_drafts_of_a_worse_model(pair, expected, drafts):
    """The draft is the same model in int4: sometimes right, often wrong."""
    _, decoder, folder = pair
    draft = decoder_of(folder, quantization="int4-g128")
    found = [generate_with_drafts(decoder, draft, prompt, TOKENS, drafts=drafts) for prompt in PROMPTS]
    assert [one.tokens for one in found] == expected
    accepted = [count for one in found for count in one.accepted]
    assert 0 < sum(accepted) < drafts * len(accepted)


@pytest.mark.parametrize("family", list(SETTINGS))
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_in_a_batch(pair, expected, family, prefix_cache):
    """All at once: the pool is small enough that prompts wait, are cut in chunks, and requests are preempted."""
    _, decoder, _ = pair
    settings = SETTINGS[family] | ({} if family == "static" else {"prefix_cache": prefix_cache})
    engine = Engine(decoder, engine_rules(family, **settings), recording=True)
    play(engine, [(0.0, prompt, TOKENS) for prompt in PROMPTS])
    assert [request.answer for request in engine.requests] == expected
    assert [request.finished for request in engine.requests] == ["length"] * len(PROMPTS)
    engine.scheduler.pages.check()
    assert engine.scheduler.pages.num_used_blocks == 0
    if family != "static":
        assert (engine.counters.cached_tokens > 0) == prefix_cache


def test_preempted_requests_say_the_same(decoder):
    rules = engine_rules("vllm", block_size=4, num_blocks=40, token_budget=32, max_seqs=8, prefix_cache=False)
    engine = Engine(decoder, rules, recording=True)
    play(engine, [(0.0, prompt, 24) for prompt in PROMPTS])
    assert engine.counters.preemptions > 0
    alone = [generate(decoder, prompt, 24).tokens for prompt in PROMPTS]
    assert [request.answer for request in engine.requests] == alone


def test_a_sample_does_not_depend_on_its_batch(decoder):
    """Each request draws from its own seed; the same as alone."""
    asked = [Sampling(temperature=0.8, top_p=0.9, seed=i) for i in range(6)]
    engine = Engine(decoder, engine_rules("vllm", **SETTINGS["vllm"]), recording=True)
    for prompt, sampling in zip(PROMPTS, asked, strict=False):
        engine.submit(prompt, TOKENS, sampling=sampling)
    engine.close()
    engine.run()
    alone = [generate(decoder, p, TOKENS, sampling=s).tokens for p, s in zip(PROMPTS, asked, strict=False)]
    assert [request.answer for request in engine.requests] == alone
    assert alone[0] != generate(decoder, PROMPTS[0], TOKENS).tokens


def test_an_end_token_ends(decoder):
    answer = generate(decoder, PROMPTS[0], TOKENS).tokens
    end = answer[5]
    for family, settings in SETTINGS.items():
        engine = Engine(decoder, engine_rules(family, **settings), recording=True)
        request = engine.submit(PROMPTS[0], TOKENS, end_tokens=(end,))
        other = engine.submit(PROMPTS[1], TOKENS)
        engine.close()
        engine.run()
        assert request.answer == answer[: answer.index(end) + 1]
        assert request.finished == "stop"
        assert (len(other.answer), other.finished) == (TOKENS, "length")


def test_what_cannot_run_is_refused(decoder):
    engine = Engine(decoder, engine_rules("vllm", block_size=8, num_blocks=4, token_budget=64, max_seqs=8))
    with pytest.raises(InputError, match="too long for the cache"):
        engine.submit(list(range(30)), 10)
    with pytest.raises(InputError, match="prompt"):
        engine.submit([99_999], 4)
    with pytest.raises(InputError, match="context length is 4096"):
        engine.submit([1, 2, 3], 5000)
    with pytest.raises(InputError, match="reference engine has"):
        Engine(decoder, engine_rules("sglang", num_blocks=64))


def test_other_architectures_are_refused_by_name():
    config = {"model_type": "gpt2", "vocab_size": 10}
    with pytest.raises(UnsupportedArchitecture, match="gpt2"):
        shape_of(config)
    sizes = {
        "vocab_size": 8,
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    with pytest.raises(UnsupportedArchitecture, match="yarn"):
        shape_of({"model_type": "llama", **sizes, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}})
    with pytest.raises(UnsupportedArchitecture, match="sliding"):
        shape_of({"model_type": "qwen3", **sizes, "use_sliding_window": True})
