"""Continuous batching as a queue: sharing at the rates that step times by batch size allow."""

from calc.queueing import LoadDependentSharing, decode_completions_per_s


def decoding_queue(*, arrivals_per_s, output_tokens, step_s, slots=None):
    """The queue whose batch of n takes `step_s[n-1]` seconds a token of each."""
    rates = decode_completions_per_s(step_s=step_s, output_tokens=output_tokens)
    return LoadDependentSharing(
        arrivals_per_s=arrivals_per_s, completions_per_s=tuple(rates.tolist()), slots=slots
    )
