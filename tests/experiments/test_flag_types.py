"""Values of flags as commands take them."""

from pathlib import Path

import pytest
from commands import flag_value, only_error

PATHS = {
    "train": ["workdir", "data_dir", "treebank_dir"],
    "prepare": ["workdir", "data_dir"],
    "table3": ["workdir"],
    "average": ["workdir"],
    "translate": ["workdir"],
    "evaluate": ["workdir", "source"],
    "score": ["workdir", "source", "target"],
    "export": ["workdir", "output"],
    "visualize": ["workdir", "output"],
    "paper": ["runs"],
    "evalb": ["param"],
}
LISTS = {
    "train": [f"{split}_{side}" for split in ("train", "dev") for side in ("source", "trees")],
    "prepare": ["test_target", "extra_trees"],
    "table3": ["dev_target"],
    "evaluate": ["reference"],
}
INTEGERS = {
    "train": ["seed", "num_processes", "process_id", "heartbeat_seconds"],
    "average": ["last"],
    "translate": ["n_best", "window"],
    "evaluate": ["bootstrap"],
    "score": ["n_best", "window"],
    "evalb": ["cutoff_len", "max_error"],
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pairs(table):
    return [(command, flag) for command, names in table.items() for flag in names]


def paths_of(command, flag, text):
    """The value of a flag that is given once; those of training text may be given several times."""
    value = flag_value(command, flag, text)
    return value[0] if flag.startswith("train_") else value


@pytest.mark.parametrize(("command", "flag"), pairs(PATHS) + pairs(LISTS))
def test_a_path_may_begin_with_the_home_folder(command, flag, home):
    assert paths_of(command, flag, "~/a~b") == f"{home}/a~b"
    assert paths_of(command, flag, "gs://bucket/~/a") == "gs://bucket/~/a"


@pytest.mark.parametrize(("command", "flag"), pairs(LISTS))
def test_so_may_each_path_of_a_list(command, flag, home):
    expected = f"{home}/a,b,{Path('~root').expanduser()}/c"
    assert paths_of(command, flag, "~/a,b, ~root/c") == expected


def test_a_file_whose_name_has_a_comma_is_one_path(home):
    (home / "a,~b").touch()
    assert flag_value("train", "train_source", "a,~b") == ["a,~b"]


def test_a_user_who_is_not_there_is_a_mistake():
    error = only_error("translate", "--workdir=~nobody-here/run")
    assert "--workdir=~nobody-here/run" in error
    assert "./~nobody-here/run" in error


@pytest.mark.parametrize(("command", "flag"), pairs(INTEGERS))
def test_numbers_are_written_in_ascii_digits(command, flag):
    assert flag_value(command, flag, "12") == 12
    assert f"flag --{flag}=\u0661\u0662: " in only_error(command, f"--{flag}=\u0661\u0662")
