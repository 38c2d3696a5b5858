"""Encoders: BERT, RoBERTa and XLM-RoBERTa as embedders, rerankers and masked language models. They keep no cache.

Source: modelling code in transformers 5.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from calc.architectures.assembly import architecture, even_head_dim, model_dtype, n_labels, runs
from calc.architectures.config_reader import ConfigReader
from calc.architectures.family import Family
from calc.architectures.layers import grouped_attention, plain_mlp
from calc.architectures.tensors import Weights, embedding, linear, norm, norms, tensor, vector
from calc.errors import UnsupportedArchitecture
from calc.model import Block, ModelSpec, Part, Role, Split, Stack


def parse_bert(config: ConfigReader, *, default: str) -> ModelSpec:
    """BERT's shape: learned positions, biases everywhere, norms behind each sublayer; the head by the class name."""
    width, n_heads = config.int("hidden_size"), config.int("num_attention_heads")
    config.expect("position_embedding_type", "absolute")
    config.expect("add_cross_attention", False)
    config.expect("is_decoder", False)
    config.expect("embedding_size", width)
    config.raw("tie_word_embeddings")
    attention = grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=even_head_dim(config, width, n_heads),
        qkv_bias=True,
        out_bias=True,
        prefix="attention",
        names=("self.query", "self.key", "self.value", "output.dense"),
        causal=False,
    )
    mlp = plain_mlp(
        width=width,
        intermediate=config.int("intermediate_size"),
        bias=True,
        prefix="",
        names=("intermediate.dense", "output.dense"),
    )
    block = Block(
        sublayers=(attention, mlp),
        norms=norms(width, "attention.output.LayerNorm", "output.LayerNorm", bias=True),
    )
    name = architecture(config, default)
    vocab = config.int("vocab_size")
    positions = config.int("max_position_embeddings")
    head, lm_head = _heads(config, name, width, vocab)
    tables = tensor("position_embeddings", positions, width, part=Part.POSITION) + tensor(
        "token_type_embeddings", config.int("type_vocab_size", default=2), width, part=Part.POSITION
    )
    stack = Stack(
        role=Role.ENCODER,
        width=width,
        runs=runs([block] * config.layers()),
        weights=tables + norm("embeddings.LayerNorm", width, bias=True) + head,
        path="encoder.layer",
    )
    return ModelSpec(
        id=config.model_id,
        architecture=name,
        model_type=config.str("model_type", default="bert"),
        vocab_size=vocab,
        width=width,
        embeddings=embedding("embeddings.word_embeddings", vocab, width),
        lm_head=lm_head,
        tied=bool(lm_head),
        stacks=(stack,),
        max_positions=positions,
        dtype=model_dtype(config),
    )


def _heads(config: ConfigReader, name: str, width: int, vocab: int) -> tuple[Weights, Weights]:
    """(what stands behind the layers, the bias of a tied output head) for the classes that serve."""
    part = Part.PROJECTOR
    if name.endswith("ForMaskedLM"):
        config.expect("tie_word_embeddings", True)
        transform = linear("head.dense", width, width, part, bias=True) + norm(
            "head.layer_norm", width, bias=True
        )
        return transform, vector("lm_head.bias", vocab, Part.LM_HEAD, Split.VOCAB)
    pooler = linear("pooler.dense", width, width, part, bias=True)
    if name.endswith("ForSequenceClassification"):
        labels = n_labels(config)
        return pooler + linear("classifier", width, labels, part, bias=True), ()
    if name.endswith("Model") and not name.endswith("HeadModel"):
        return pooler, ()
    raise UnsupportedArchitecture(
        config.path + "architectures",
        name,
        "known heads are Model, ForMaskedLM and ForSequenceClassification",
    )


FAMILIES: Final = (
    Family(
        model_types=("bert",), parse=partial(parse_bert, default="BertModel"), architectures=("BertModel",)
    ),
    Family(
        model_types=("roberta", "xlm-roberta", "camembert"),
        parse=partial(parse_bert, default="RobertaModel"),
        architectures=("RobertaModel", "XLMRobertaModel"),
    ),
)
