"""A llama.cpp server on loopback with a small random-weight model, in a process of its own with a limited life.

`python llama_server.py MODEL.gguf SLOTS LIFE_S [CONTEXT]` prints the address it listens on.
"""

import itertools
import sys
import time

import numpy as np

EMBEDDING, HEADS, KV_HEADS, FEED_FORWARD, CONTEXT = 256, 8, 2, 704, 4096


def vocabulary():
    """Byte tokens, single letters, and consonant-vowel pieces, in SentencePiece's form."""
    tokens, types, scores = [b"<unk>", b"<s>", b"</s>"], [2, 3, 3], [0.0] * 3
    for value in range(256):
        tokens.append(f"<0x{value:02X}>".encode())
        types.append(6)
        scores.append(0.0)
    base = ["\u2581", *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:;!?'\"()-_/\n"]
    pieces = [c + v for c in "bcdfghklmnprstvz" for v in "aeiou"]
    pairs = [a + b for a, b in itertools.product(pieces, pieces)][:1200]
    words = base + pieces + ["\u2581" + p for p in pieces] + pairs + ["\u2581" + p for p in pairs]
    for rank, word in enumerate(dict.fromkeys(words)):
        tokens.append(word.encode())
        types.append(1)
        scores.append(-float(rank) if len(word) == 1 else -float(len(words) - rank) * 0.01)
    while len(tokens) % 64:
        tokens.append(f"[PAD{len(tokens)}]".encode())
        types.append(5)
        scores.append(-1e4)
    return tokens, types, scores


def write_model(
    path, *, layers=4, embedding=EMBEDDING, heads=HEADS, kv_heads=KV_HEADS, feed_forward=FEED_FORWARD
):
    """A Llama of random 16-bit weights."""
    import gguf

    rng = np.random.default_rng(0)
    tokens, types, scores = vocabulary()
    head = embedding // heads
    w = gguf.GGUFWriter(str(path), "llama")
    w.add_name("random-llama")
    w.add_context_length(CONTEXT)
    w.add_embedding_length(embedding)
    w.add_block_count(layers)
    w.add_feed_forward_length(feed_forward)
    w.add_head_count(heads)
    w.add_head_count_kv(kv_heads)
    w.add_rope_dimension_count(head)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(10000.0)
    w.add_vocab_size(len(tokens))
    w.add_file_type(1)
    w.add_tokenizer_model("llama")
    w.add_token_list(tokens)
    w.add_token_scores(scores)
    w.add_token_types(types)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.add_add_bos_token(True)
    w.add_add_eos_token(False)
    w.add_chat_template("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:")

    def matrix(name, *shape):
        values = rng.standard_normal(shape, dtype=np.float32) * (0.5 / np.sqrt(shape[-1]))
        w.add_tensor(name, values.astype(np.float16))

    def ones(name):
        w.add_tensor(name, np.ones(embedding, np.float32))

    matrix("token_embd.weight", len(tokens), embedding)
    ones("output_norm.weight")
    matrix("output.weight", len(tokens), embedding)
    for layer in range(layers):
        p = f"blk.{layer}."
        ones(p + "attn_norm.weight")
        ones(p + "ffn_norm.weight")
        matrix(p + "attn_q.weight", embedding, embedding)
        matrix(p + "attn_k.weight", kv_heads * head, embedding)
        matrix(p + "attn_v.weight", kv_heads * head, embedding)
        matrix(p + "attn_output.weight", embedding, embedding)
        matrix(p + "ffn_gate.weight", feed_forward, embedding)
        matrix(p + "ffn_up.weight", feed_forward, embedding)
        matrix(p + "ffn_down.weight", embedding, feed_forward)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def serve(path, slots, life_s, context=CONTEXT, threads=1):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = {"tiny"}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = slots
    params.n_ctx = context * slots
    params.cpuparams.n_threads = threads
    params.endpoint_metrics = params.endpoint_slots = True
    params.n_gpu_layers = 0
    server = xllamacpp.Server(params)
    print(f"listening {server.listening_address}", flush=True)
    time.sleep(life_s)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), *(int(word) for word in sys.argv[4:]))
