import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.errors import InputError
from presets.model_ids import (
    HubReference,
    cleaned,
    is_file_name,
    is_repo_id,
    is_revision,
    looks_like_path,
    nearest,
    parse_reference,
)

QWEN = "Qwen/Qwen3-0.6B"


@pytest.mark.parametrize(
    "pasted",
    [
        QWEN,
        f"  {QWEN}\t",
        f'"{QWEN}"',
        f"`{QWEN}`",
        "Qwen / Qwen3-0.6B",
        f"\u200b{QWEN}\u00a0",
        f"https://huggingface.co/{QWEN}",
        f"http://huggingface.co/{QWEN}/",
        f"huggingface.co/{QWEN}",
        f"www.huggingface.co/{QWEN}",
        f"hf.co/{QWEN}",
        f"https://hf.co/{QWEN}?library=transformers",
        f"https://huggingface.co/{QWEN}#model-card",
        f"https://huggingface.co/{QWEN}/tree/main",
        f"https://huggingface.co/{QWEN}/blob/main/config.json",
        f"https://huggingface.co/{QWEN}/resolve/main/config.json?download=true",
        f"https://huggingface.co/{QWEN}/raw/main/config.json",
        f"https://huggingface.co/{QWEN}/discussions/4",
        f"hf://{QWEN}",
        f"hf://models/{QWEN}",
    ],
)
def test_every_way_of_pasting_an_id_is_understood(pasted):
    assert parse_reference(pasted) == HubReference(repo_id=QWEN)


@pytest.mark.parametrize(
    ("pasted", "expected"),
    [
        (f"{QWEN}@refs/pr/3", HubReference(repo_id=QWEN, revision="refs/pr/3")),
        (f"https://huggingface.co/{QWEN}/tree/v1.0", HubReference(repo_id=QWEN, revision="v1.0")),
        (
            f"https://huggingface.co/{QWEN}/tree/refs%2Fpr%2F3",
            HubReference(repo_id=QWEN, revision="refs/pr/3"),
        ),
        (f"https://huggingface.co/{QWEN}/commit/0a1b2c3", HubReference(repo_id=QWEN, revision="0a1b2c3")),
        ("gpt2", HubReference(repo_id="gpt2")),
        ("https://huggingface.co/gpt2/tree/main", HubReference(repo_id="gpt2")),
        ("me/model-GGUF:Q4_K_M", HubReference(repo_id="me/model-GGUF", quantization="Q4_K_M")),
        ("hf.co/me/model-GGUF:Q4_K_M", HubReference(repo_id="me/model-GGUF", quantization="Q4_K_M")),
        ("me/model-GGUF/sub/m.Q8_0.gguf", HubReference(repo_id="me/model-GGUF", file="sub/m.Q8_0.gguf")),
        (
            "https://huggingface.co/me/model-GGUF/blob/main/m.Q8_0.gguf",
            HubReference(repo_id="me/model-GGUF", file="m.Q8_0.gguf"),
        ),
    ],
)
def test_revisions_files_and_quantisations_are_read_from_the_paste(pasted, expected):
    assert parse_reference(pasted) == expected


@pytest.mark.parametrize(
    "pasted",
    [
        "",
        "   ",
        "Shall I compare thee to a summer's day?",
        "Shall I compare thee\nto a summer's day?",
        "x" * 600,
        "a/b/c",
        "../../etc/passwd",
        "Qwen/..",
        "Qwen/Qwen3--0.6B",
        "-rf/x",
        "me/model.git",
        "me/model@../../x",
        "me/model@a b",
        "me/model:../x",
        "me/model\r\nHost: evil",
        "https://evil.example/Qwen/Qwen3-0.6B",
        "https://huggingface.co@evil.example/Qwen/Qwen3-0.6B",
        "https://huggingface.co.evil.example/Qwen/Qwen3-0.6B",
        "http://169.254.169.254/latest/meta-data",
        "file:///etc/passwd",
        "http://[broken/x",
        "https://huggingface.co]/x",
        "ftp://huggingface.co/Qwen/Qwen3-0.6B",
        "datasets/squad/plain",
        "https://huggingface.co/datasets/rajpurkar/squad",
        "https://huggingface.co/spaces/me/app",
        "https://huggingface.co/me/model/blob/main/%2e%2e/%2e%2e/x.gguf",
    ],
)
def test_what_names_no_model_is_refused_without_being_sent(pasted):
    with pytest.raises(InputError):
        parse_reference(pasted)


def test_datasets_and_spaces_are_refused_by_name():
    with pytest.raises(InputError, match="datasets are not models"):
        parse_reference("https://huggingface.co/datasets/rajpurkar/squad")


def test_the_host_of_hf_endpoint_is_understood_too(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example:8443")
    assert parse_reference(f"https://mirror.example:8443/{QWEN}/tree/main").repo_id == QWEN


@settings(max_examples=300, deadline=None)
@given(
    st.text(max_size=120)
    | st.builds(
        "{}{}".format,
        st.sampled_from(
            ["https://huggingface.co/", "http://", "hf.co/", "hf://", "a/b@", "a/b:", "a/b/tree/"]
        ),
        st.text("aZ0._-/@:%[]?#. \n", max_size=40),
    )
)
def test_nothing_but_strict_patterns_ever_comes_out(text):
    try:
        reference = parse_reference(text)
    except InputError:
        return
    assert is_repo_id(reference.repo_id)
    assert reference.revision is None or is_revision(reference.revision)
    assert reference.file is None or is_file_name(reference.file)
    assert not set(reference.repo_id) & set(" \\?#%&:@\r\n")


@pytest.mark.parametrize(
    "path", ["/x/config.json", "./x", "../x", "~/x", "C:\\x", "config.json", "m.gguf", ".\\m"]
)
def test_paths_are_told_from_ids(path):
    assert looks_like_path(path)


@pytest.mark.parametrize("text", [QWEN, "gpt2", "me/model/m.gguf", f"https://huggingface.co/{QWEN}"])
def test_ids_are_told_from_paths(text):
    assert not looks_like_path(text)


def test_cleaned_keeps_what_matters():
    assert cleaned(" “Qwen/Qwen3-0.6B” ") == QWEN


def test_nearest_finds_ids_without_case_and_owner():
    known = ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B", "meta-llama/Llama-3.1-8B-Instruct", "textbook-13b")
    assert nearest("qwen/qwen3-06b", known)[0] == "Qwen/Qwen3-0.6B"
    assert nearest("Llama-3.1-8B-instruct", known)[0] == "meta-llama/Llama-3.1-8B-Instruct"
    assert nearest("somebody/entirely-else", known) == ()
