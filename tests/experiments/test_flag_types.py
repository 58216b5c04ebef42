"""Values of flags as commands take them."""

import pytest
from commands import flag_value, only_error

PATHS = {
    "train": ["workdir", "data_dir", "treebank_dir"],
    "prepare": ["workdir", "data_dir"],
    "table3": ["workdir"],
    "average": ["workdir"],
    "translate": ["workdir", "prefixes", "ensemble"],
    "serve": ["workdir", "token_file", "ensemble"],
    "import_model": ["workdir", "input"],
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
    """The value of a flag that is given once; some may be given several times."""
    value = flag_value(command, flag, text)
    return value[0] if isinstance(value, list) else value


@pytest.mark.parametrize(("command", "flag"), pairs(PATHS) + pairs(LISTS))
def test_a_path_may_begin_with_the_home_folder(command, flag, home):
    assert paths_of(command, flag, "~/a~b") == f"{home}/a~b"
    assert paths_of(command, flag, "gs://bucket/~/a") == "gs://bucket/~/a"


def test_a_path_with_commas_is_one_path(home):
    assert flag_value("train", "train_source", "a,~b") == ["a,~b"]


def test_a_user_who_is_not_there_is_a_mistake():
    error = only_error("translate", "--workdir=~nobody-here/run")
    assert "--workdir=~nobody-here/run" in error
    assert "./~nobody-here/run" in error


GIVEN_TWICE = {
    "train": ["--seed=1", "--seed=1"],
    "prepare": ["--treebank_dir=a", "--treebank_dir=b"],
    "evaluate": ["--source=a", "--source", "b"],
    "translate": ["--temperature=1", "--temperature=2"],
    "serve": ["--port=1", "--port=1"],
    "export": ["--workdir=a", "--workdir=a"],
    "score": ["--checkpoint=best", "--checkpoint=last"],
}
BOOLEANS = [("translate", ["--scores", "--noscores"]), ("evalb", ["--param=a", "--param=a"])]


@pytest.mark.parametrize(("command", "given"), [*GIVEN_TWICE.items(), *BOOLEANS])
def test_a_flag_of_one_value_is_given_once(command, given):
    error = only_error(command, *given)
    assert given[0].partition("=")[0] in error
    assert "2 times" in error


@pytest.mark.parametrize(("command", "flag"), pairs(INTEGERS))
def test_numbers_are_written_in_ascii_digits(command, flag):
    assert flag_value(command, flag, "12") == 12
    assert f"flag --{flag}=\u0661\u0662: " in only_error(command, f"--{flag}=\u0661\u0662")
