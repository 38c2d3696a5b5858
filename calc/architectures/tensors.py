"""The weights of common layers as tuples of `Weight`: matrices, norms, embeddings."""

from __future__ import annotations

from calc.model import Part, Split, Weight

Weights = tuple[Weight, ...]


def linear(
    name: str, n_in: int, n_out: int, part: Part, split: Split = Split.REPLICATED, *, bias: bool = False
) -> Weights:
    """A matrix (n_out, n_in) and, with `bias`, its vector. The bias of a row split is added once: replicated."""
    matrix = Weight(name=name, shape=(n_out, n_in), part=part, split=split)
    if not bias:
        return (matrix,)
    bias_split = Split.REPLICATED if split is Split.ROW else split
    return matrix, Weight(name=f"{name}.bias", shape=(n_out,), part=part, split=bias_split)


def vector(name: str, size: int, part: Part = Part.NORM, split: Split = Split.REPLICATED) -> Weights:
    """One vector."""
    return (Weight(name=name, shape=(size,), part=part, split=split),)


def tensor(name: str, *shape: int, part: Part, split: Split = Split.REPLICATED) -> Weights:
    """One tensor of any shape."""
    return (Weight(name=name, shape=shape, part=part, split=split),)


def norm(name: str, width: int, *, bias: bool = False) -> Weights:
    """The scale of an RMSNorm; with `bias`, scale and shift of a LayerNorm."""
    scale = Weight(name=name, shape=(width,), part=Part.NORM)
    if not bias:
        return (scale,)
    return scale, Weight(name=f"{name}.bias", shape=(width,), part=Part.NORM)


def norms(width: int, *names: str, bias: bool = False) -> Weights:
    """Several norms of one width."""
    return tuple(weight for name in names for weight in norm(name, width, bias=bias))


def embedding(name: str, vocab_size: int, width: int, *, tied: bool = False) -> Weights:
    """The input embedding, divided along the vocabulary under tensor parallelism; `tied`: the output head as well."""
    return (Weight(name=name, shape=(vocab_size, width), part=Part.EMBEDDING, split=Split.VOCAB, tied=tied),)


def lm_head(name: str, vocab_size: int, width: int, *, bias: bool = False) -> Weights:
    """The output head."""
    return linear(name, width, vocab_size, Part.LM_HEAD, Split.VOCAB, bias=bias)
