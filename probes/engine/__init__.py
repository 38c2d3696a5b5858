"""A reference engine: every serving idea of the calculators running for real, on a small model, in code to read in an evening.

Read in this order:

    shape.py       what the decoder looks like: numbers out of a config.json
    checkpoint.py  weights out of a folder of safetensors
    quantized.py   weights in int8, int4 and fp8
    cache.py       keys and values in blocks, and where each token of a pass reads and writes
    decoder.py     the forward pass
    sampling.py    from logits to a token; the acceptance rule of speculative decoding
    generate.py    one sequence: without a cache, with one, paged, with drafts
    scheduler.py   many sequences: who computes what in the next pass (vLLM's rules, nano-vllm's, static)
    engine.py      the loop around the passes, and the record that the simulator is checked against

`probes.engine_server` finds a model for it and puts it behind HTTP; `probes.engine_record` plays a recorded run in the simulator. It measures and explains; it is no production engine. docs/engine.md says what it lacks.
"""
