"""Decoding options are declared once: a command, a method, a server and a guide have the same."""

import inspect
import re
import subprocess
from typing import get_type_hints

import pytest
from commands import ROOT, process_arguments

from jax_transformer.decoding.request import Options, options
from jax_transformer.runs.model import TrainedModel

pytest.importorskip("fastapi", reason="serves: pip install -e '.[serve]'")

from jax_transformer.serving.schemas import TranslateRequest

GUIDE = ROOT / "docs" / "decoding.md"
# Flags of the model and of the program.
OTHERS = {"workdir", "checkpoint", "set", "ensemble", "ensemble_weights", "window", "verbosity"}


def test_every_option_has_one_name_in_help_keywords_schema_and_guide():
    own = process_arguments("translate", "--help")
    helped = subprocess.run(**own, capture_output=True, text=True, check=True).stdout
    flags = {*re.findall(r"^ +(?:-\w,)?--(?:\[no\])?(\w+):", helped, re.MULTILINE)}
    assert flags - OTHERS == {*options()}
    settings = {"beam_size", "alpha"}  # of the search, which Python changes by keyword too
    assert get_type_hints(Options).keys() - settings == {*options()}
    described = inspect.getdoc(TrainedModel.translate) or ""
    assert {name for name in options() if not re.search(rf"\b{name}\b", described)} == set()
    assert TranslateRequest.model_json_schema()["properties"].keys() - {"lines"} == {*options()}
    rows = re.findall(r"^\| (`.*?`) \| .*? \| (.*?) ?\|$", GUIDE.read_text("utf-8"), re.MULTILINE)
    excluded = {
        name: {*re.findall("`(.*?)`", others)} for names, others in rows
        for name in re.findall("`(.*?)`", names)
    }  # fmt: skip
    assert excluded.keys() == options().keys()
    declared = {(n, m) for n, option in options().items() for m in option.excludes & {*options()}}
    declared |= {("samples", "split_sentences")}  # unless one of the samples is chosen
    pairs = {(name, other) for name, others in excluded.items() for other in others - {"mbr"}}
    pairs |= {("mbr", "n_best")}
    assert {frozenset(pair) for pair in pairs} == {frozenset(pair) for pair in declared}
