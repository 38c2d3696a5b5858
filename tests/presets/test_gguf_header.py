"""The reader of headers against the gguf library's, and against headers that lie."""

import struct
from itertools import pairwise

import numpy as np
import pytest
from gguf import GGUFReader
from gguf_files import Q, llama_tensors, write_header, write_whole
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.errors import SourceError, SourceFault
from presets import gguf_header
from presets.gguf_header import MAX_HEADER_BYTES, first_part, read_header

TINY = {
    "num_hidden_layers": 2,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
}


def over(data):
    return lambda start, stop: data[start:stop]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return write_whole(
        tmp_path_factory.mktemp("gguf") / "small.gguf", "llama", TINY, llama_tensors(TINY)
    ).read_bytes()


@pytest.mark.parametrize("kind", [Q.F16, Q.Q4_0, Q.Q8_0, Q.Q2_K, Q.Q6_K, Q.IQ4_XS, Q.MXFP4, Q.TQ2_0])
def test_tensors_are_those_that_the_library_reads(tmp_path, kind):
    path = write_whole(tmp_path / "m.gguf", "llama", TINY, llama_tensors(TINY, kind))
    header = read_header(over(path.read_bytes()), file="m.gguf")
    theirs = GGUFReader(path)
    assert header.data_start == theirs.data_offset
    assert [(t.name, t.format, t.elements, t.stored_bytes) for t in header.tensors] == [
        (t.name, t.tensor_type.name, t.n_elements, t.n_bytes) for t in theirs.tensors
    ]
    assert [header.data_start + t.offset for t in header.tensors] == [t.data_offset for t in theirs.tensors]
    assert header.end <= path.stat().st_size
    for key, value in header.fields.items():
        assert theirs.fields[key].contents() == (list(value) if isinstance(value, tuple) else value)
    assert header.lengths["tokenizer.ggml.tokens"] == 50


def test_large_vocabularies_are_walked_over_in_growing_windows(tmp_path):
    path = write_header(tmp_path / "m.gguf", "llama", TINY, llama_tensors(TINY), n_tokens=200_000)
    data, asked = path.read_bytes(), []

    def fetch(start, stop):
        asked.append((start, stop))
        return data[start:stop]

    header = read_header(fetch, file="m.gguf")
    assert header.lengths["tokenizer.ggml.tokens"] == 200_000
    assert len(header.tensors) == len(llama_tensors(TINY))
    assert asked[0] == (0, 1 << 20)
    assert len(asked) <= 6
    assert all(stop <= begin for (_, stop), (begin, _) in pairwise(asked))


@settings(max_examples=60, deadline=None)
@given(window=st.integers(1, 5000))
def test_the_size_of_windows_does_not_matter(small, window):
    original = gguf_header.FIRST_WINDOW_BYTES
    gguf_header.FIRST_WINDOW_BYTES = window
    try:
        assert read_header(over(small), file="m") == read_header(over(small + bytes(9)), file="m")
    finally:
        gguf_header.FIRST_WINDOW_BYTES = original


def refused(data, message):
    with pytest.raises(SourceError, match=message) as caught:
        read_header(over(data), file="m.gguf")
    assert caught.value.fault is SourceFault.UNREADABLE
    assert caught.value.next_step
    assert "m.gguf" in str(caught.value)


def head(version=3, tensors=0, fields=0):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, fields)


def text(value):
    return struct.pack("<Q", len(value)) + value


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "does not begin with GGUF|ends inside"),
        (b"PK\x03\x04" + bytes(100), "does not begin with GGUF"),
        (b"GGUF\x03", "ends inside its header"),
        (head(version=1), "its version is 1"),
        (head(version=4), "its version is 4"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (head(tensors=1 << 60), "claims 1152921504606846976 tensors"),
        (head(fields=1 << 60), "claims 1152921504606846976 fields"),
        (head(fields=1) + struct.pack("<Q", 1 << 62), "bytes in a text"),
        (head(fields=1) + text(b"key") + struct.pack("<I", 99), "type 99"),
        (head(fields=1) + text(b"key") + struct.pack("<IQ", 8, 1 << 40), "bytes in a text"),
        (head(fields=1) + text(b"key") + struct.pack("<IIQ", 9, 4, 1 << 61), "entries of 'key'"),
        (head(fields=1) + text(b"key") + struct.pack("<IIQ", 9, 9, 1), "an array of type 9"),
        (head(fields=1) + text(b"key") + struct.pack("<IIQ", 9, 12, 1 << 26), "longer than 128 MiB"),
        (head(fields=1) + text(b"key") + struct.pack("<IIQ", 9, 8, 1 << 22), "claims 4194304 entries"),
        (head(fields=1) + text(b"key") + struct.pack("<IIQ", 9, 8, 1 << 20), "ends inside"),
        (head(fields=2) + 2 * (text(b"key") + struct.pack("<IB", 0, 1)), "states 'key' twice"),
        (head(fields=1) + text(b"general.alignment") + struct.pack("<II", 4, 3), "alignment is 3"),
        (head(fields=1) + text(b"general.alignment") + struct.pack("<II", 4, 0), "alignment is 0"),
        (head(fields=1) + text(b"general.alignment") + text(b"x"), "alignment is 0"),
        (head(tensors=1) + text(b"t") + struct.pack("<I", 0), "0 dimensions"),
        (head(tensors=1) + text(b"t") + struct.pack("<I", 1 << 30), "1073741824 dimensions"),
        (head(tensors=1) + text(b"t") + struct.pack("<IQIQ", 1, 0, 0, 0), "the shape"),
        (head(tensors=1) + text(b"t") + struct.pack("<IQQIQ", 2, 1 << 40, 1 << 40, 0, 0), "the shape"),
        (head(tensors=1) + text(b"t") + struct.pack("<IQIQ", 1, 32, 0, 1 << 62), "the shape"),
        (head(tensors=1) + text(b"t") + struct.pack("<IQIQ", 1, 32, 999, 0), "type 999"),
        (head(tensors=1) + text(b"t") + struct.pack("<IQIQ", 1, 33, int(Q.Q4_0), 0), "no multiple of 32"),
        (
            head(tensors=2) + 2 * (text(b"t") + struct.pack("<IQIQ", 1, 32, 0, 0)),
            "lists the tensor 't' twice",
        ),
    ],
)
def test_a_header_that_lies_is_refused_with_what_is_wrong(data, message):
    refused(data, message)


def test_a_file_cut_anywhere_in_its_header_is_refused(small):
    end = small.index(b"output_norm.weight")
    for stop in np.linspace(0, end, 60).astype(int):
        with pytest.raises(SourceError):
            read_header(over(small[:stop]), file="m.gguf")


@settings(max_examples=300, deadline=None)
@given(position=st.integers(0, 6000), junk=st.binary(min_size=1, max_size=12))
def test_no_damage_escapes_as_another_error(small, position, junk):
    data = small[:position] + junk + small[position + len(junk) :]
    try:
        read_header(over(data), file="m.gguf")
    except SourceError:
        return


def test_no_more_is_fetched_than_the_cap():
    long_texts = head(fields=1) + text(b"key") + struct.pack("<IIQ", 9, 8, 1 << 20)
    piece = text(bytes(1016))
    asked = []

    def endless(start, stop):
        asked.append(stop)
        begin = max(start - len(long_texts), 0) % len(piece)
        body = piece[begin:] + piece * ((stop - start) // len(piece) + 1)
        return (long_texts + body if start == 0 else body)[: stop - start]

    with pytest.raises(SourceError, match="longer than 128 MiB"):
        read_header(endless, file="m.gguf")
    assert max(asked) <= MAX_HEADER_BYTES


def test_parts_are_named_after_the_first():
    assert first_part("m-00003-of-00007.gguf") == "m-00001-of-00007.gguf"
    assert first_part("m.gguf") == "m.gguf"
