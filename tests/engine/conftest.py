import sys
from pathlib import Path

import pytest
import torch
from models import decoder_of, save_llama, save_qwen3

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1] / "endpoint")
)  # the load test's own way to run a coroutine


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Models this small are slower on several threads, and far slower beside other tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", params=["qwen3", "llama"])
def pair(request, tmp_path_factory):
    """(transformers' model, the engine's decoder, the folder) on the same weights."""
    folder = tmp_path_factory.mktemp(request.param)
    model = (save_qwen3 if request.param == "qwen3" else save_llama)(folder)
    return model, decoder_of(folder), folder


@pytest.fixture(scope="session")
def decoder(tmp_path_factory):
    """A Qwen3 decoder alone."""
    folder = tmp_path_factory.mktemp("decoder")
    save_qwen3(folder)
    return decoder_of(folder)
