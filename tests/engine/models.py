"""Small models for the engine's tests: transformers' own Qwen3 and Llama with random weights, saved as checkpoints."""

from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

from probes.engine.checkpoint import load_weights
from probes.engine.decoder import Decoder
from probes.engine.shape import shape_of
from probes.engine_server.loading import config_of

LICENCE = Path(__file__).resolve().parents[2] / "LICENSE"
VOCABULARY = 320
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.1,  # wide, so that answers do not settle into one token
    "max_position_embeddings": 4096,
}
STRETCHED = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def save_qwen3(folder):
    torch.manual_seed(1)
    config = Qwen3Config(**SIZES, head_dim=32, tie_word_embeddings=True)
    return _saved(AutoModelForCausalLM.from_config(config), folder)


def save_llama(folder):
    torch.manual_seed(2)
    config = LlamaConfig(
        **SIZES, tie_word_embeddings=False, attention_bias=True, mlp_bias=True, rope_parameters=STRETCHED
    )
    model = AutoModelForCausalLM.from_config(config)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight, std=0.1)
    return _saved(model, folder)


def _saved(model, folder):
    model.eval().save_pretrained(folder)
    return model


def decoder_of(folder, *, dtype=torch.float32, quantization=None):
    weights = load_weights(folder, dtype=dtype, device=torch.device("cpu"))
    return Decoder(shape_of(config_of(str(folder))), weights, quantization=quantization)


def prompts(count, *, seed=0, shortest=3, longest=60):
    """Random prompts; every third begins with the same 33 tokens, so that a prefix cache has something to hit."""
    numbers = np.random.default_rng(seed)
    shared = numbers.integers(0, VOCABULARY, 33).tolist()
    found = []
    for i in range(count):
        own = numbers.integers(0, VOCABULARY, int(numbers.integers(shortest, longest))).tolist()
        found.append(shared + own if i % 3 == 0 else own)
    return found


def trained_model(folder, *, steps=120):
    """A Qwen3 that has learned the beginning of this project's licence: its predictions are as sure as a real model's."""
    torch.manual_seed(3)
    sizes = SIZES | {"vocab_size": 256, "initializer_range": 0.02}
    model = AutoModelForCausalLM.from_config(Qwen3Config(**sizes, head_dim=32, tie_word_embeddings=True))
    text = list(LICENCE.read_bytes())[:2000]
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3)
    rates = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / 10) * (1 - step / steps)
    )
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        starts = torch.randint(0, len(text) - 65, (8,), generator=generator).tolist()
        batch = torch.tensor([text[at : at + 64] for at in starts])
        model(batch, labels=batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        rates.step()
    return _saved(model, folder), text
