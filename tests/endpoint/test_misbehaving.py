"""A server that misbehaves: each way is measured rightly, or tagged or named. Times are only bounded from below, by sleeps
that the server makes after its last piece was read, or compared with each other."""

import pytest
from event_loop import finished

from calc.endpoint.samples import Fault, Tag
from probes.endpoint.client import EndpointClient, Limits
from probes.endpoint.dialects import Api, Ask
from probes.endpoint.safety import ApiKey, Policy, checked_target

pytestmark = pytest.mark.endpoint
QUICK = Limits(connect_s=2, first_byte_s=1.5, silence_s=1.0, request_s=2.0)


def asked(server, behaviour, *, api=Api.CHAT, tokens=8, key=None, limits=QUICK):
    async def once():
        target = checked_target(server.url, Policy())
        async with EndpointClient.open(target, api, key=key, limits=limits) as client:
            server.follow(client)
            return await client.ask(Ask(model=behaviour, prompt="hello", max_tokens=tokens), stage="test")

    return finished(once())


def test_a_plain_stream_has_no_fault_and_the_servers_counts(scripted):
    sample = asked(scripted, "steady")
    assert (sample.fault, sample.output_tokens, sample.prompt_tokens, sample.cached_tokens) == (
        None,
        8,
        40,
        0,
    )
    assert sample.tpot_s == pytest.approx((sample.last_s - sample.first_s) / 7)
    assert not {Tag.BUFFERED, Tag.MERGED, Tag.ROLE_FIRST, Tag.NO_USAGE, Tag.NO_DONE} & set(sample.tags)


def test_a_role_is_not_a_token(scripted):
    sample = asked(scripted, "role_first")
    assert sample.ttft_s >= 0.3  # the role came at once, the first token after 0.3 s
    assert Tag.ROLE_FIRST in sample.tags
    assert sample.chunks == 8


def test_reasoning_is_a_token_and_null_content_is_not(scripted):
    sample = asked(scripted, "role_with_null", tokens=2)
    assert sample.ttft_s >= 0.2
    assert sample.chunks == 2
    assert sample.tpot_s >= 0.05  # from the reasoning to the content


def test_a_tool_call_is_a_token(scripted):
    assert asked(scripted, "tool_call", tokens=2).chunks == 2


def test_tokens_are_counted_by_the_server_not_by_chunk(scripted):
    sample = asked(scripted, "merged", tokens=20)
    assert (sample.output_tokens, sample.chunks) == (20, 4)
    assert Tag.MERGED in sample.tags
    assert sample.tpot_s == pytest.approx((sample.last_s - sample.first_s) / 19)


def test_a_first_chunk_of_several_tokens_is_not_counted_as_one(scripted):
    sample = asked(scripted, "running_counts", tokens=6)
    assert sample.first_chunk_tokens == 3
    assert sample.tpot_s == pytest.approx((sample.last_s - sample.first_s) / 3)


def test_empty_chunks_are_no_tokens(scripted):
    sample = asked(scripted, "empty_chunks", tokens=5)
    assert sample.chunks == 5
    assert Tag.EMPTY_CHUNKS in sample.tags
    assert sample.last_s <= sample.end_s - 0.02  # the last empty chunk came later


def test_without_counts_there_is_a_ttft_but_no_tpot(scripted):
    sample = asked(scripted, "no_usage")
    assert sample.ok
    assert sample.tpot_s is None
    assert Tag.NO_USAGE in sample.tags


def test_comments_other_fields_and_cuts_within_characters(scripted):
    sample = asked(scripted, "comments", tokens=4)
    assert (sample.fault, sample.chunks, sample.output_tokens) == (None, 4, 4)
    assert sample.ttft_s >= 0.05


def test_a_gateway_that_buffers_is_not_a_fast_decoder(scripted):
    sample = asked(scripted, "gateway", tokens=32)
    assert Tag.BUFFERED in sample.tags
    assert sample.tpot_s is None
    assert not sample.measures_prefill


def test_a_cached_prompt_measures_no_prefill(scripted):
    sample = asked(scripted, "cached", tokens=2)
    assert Tag.CACHED in sample.tags
    assert not sample.measures_prefill


def test_a_finish_reason_without_an_end_mark_is_tagged(scripted):
    sample = asked(scripted, "no_done", tokens=3)
    assert sample.ok
    assert Tag.NO_DONE in sample.tags


@pytest.mark.parametrize(
    ("behaviour", "fault"),
    [
        ("dropped", Fault.DROPPED),
        ("limited", Fault.RATE_LIMITED),
        ("overloaded", Fault.OVERLOADED),
        ("too_long", Fault.TOO_LONG),
        ("slow_headers", Fault.SLOW_HEADERS),
        ("wrong_type", Fault.NOT_A_STREAM),
        ("page", Fault.NOT_A_STREAM),
        ("never_ends", Fault.NEVER_ENDS),
        ("stalls", Fault.STALLED),
        ("floods", Fault.TOO_MUCH),
        ("error_in_stream", Fault.ERROR_IN_STREAM),
        ("nothing", Fault.NOTHING),
        ("not_json", Fault.ERROR_IN_STREAM),
        ("redirect", Fault.REDIRECT),
        ("leaks_key", Fault.CREDENTIALS),
    ],
)
def test_failures_by_name(scripted, behaviour, fault):
    sample = asked(scripted, behaviour)
    assert sample.fault == fault
    assert not sample.ok


def test_a_closed_port_is_refused_by_name():
    async def once():
        async with EndpointClient.open(checked_target("http://127.0.0.1:9", Policy()), Api.CHAT) as client:
            return await client.ask(Ask(model="m", prompt="p", max_tokens=1), stage="test")

    assert finished(once()).fault == Fault.REFUSED


def test_the_key_goes_into_one_header_and_never_comes_back(scripted):
    key = ApiKey("sk-very-secret-123")
    sample = asked(scripted, "leaks_key", key=key)
    assert scripted.headers[-1]["authorization"] == "Bearer sk-very-secret-123"
    assert "sk-very-secret" not in f"{sample!r} {key!r} {key} {scripted.bodies!r}"
    assert "•••" in sample.detail


def test_ollamas_durations_cover_uncached_tokens_only(scripted):
    sample = asked(scripted, "ollama", api=Api.OLLAMA, tokens=10)
    assert sample.ok
    assert (sample.prompt_tokens, sample.cached_tokens, sample.output_tokens) == (100, 60, 10)
    assert sample.server["prompt_n"] == 40
    assert sample.server["prompt_s"] / sample.server["prompt_n"] == pytest.approx(0.002)
    assert sample.server["per_token_s"] == pytest.approx(0.005)
    assert Tag.CACHED in sample.tags
