"""A fleet's table as a file: one that is not there says what to write, and what it says is read."""

import pytest

from calc.errors import InputError
from presets.fleet_file import read_fleet_file


def test_a_file_that_is_not_there_says_which_header_to_write(tmp_path):
    path = tmp_path / "deployments.csv"
    with pytest.raises(InputError, match="there is no such file") as error:
        read_fleet_file(path)
    header = error.value.next_step.split()[-1].rstrip(".")
    path.write_text(f"{header}\nchat,eu,Qwen/Qwen3-0.6B,5,512,128,0.05\n")
    assert read_fleet_file(path)[0]["model"] == "Qwen/Qwen3-0.6B"
