"""A run with random parameters, and the models in it."""

import pytest
from small_run import write_run

import jax_transformer as jt


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "demo")


@pytest.fixture(scope="session")
def model(run_dir):
    return jt.load(run_dir)


@pytest.fixture(scope="session")
def parser(tmp_path_factory):
    return jt.load(
        write_run(
            tmp_path_factory.mktemp("runs") / "parsing", "data.task=parsing", "decoding.beam_size=1"
        )
    )
