"""Decoding options are declared once: a command, a method, a server and a guide have the same."""

import inspect
import json
import re
import subprocess
import sys
from typing import Any, get_type_hints

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


CONSTRAINT = """
from dataclasses import dataclass
from typing import Annotated
import jax.numpy as jnp
from jax_transformer.declared import Meaning
from jax_transformer.decoding import constraints, request

@dataclass(frozen=True)
class More(request.Request):
    without_id: Annotated[request.Count, Meaning("1 + an id that no output contains.")] = 0

def not_the_id(unwanted, space):
    allowed = jnp.arange(space.size) != unwanted - 1
    return constraints.Mask((), lambda memory, *_: memory, lambda *_: allowed[None])

request.Request = More
constraints.CONSTRAINTS["without_id"] = constraints.Constraint(not_the_id)
"""
# What any program would do with the option, by each door.
DOORS = """
import contextlib, io, json, sys
import jax_transformer as jt
from experiments import cli
run, line = sys.argv[1:]
model = jt.load(run)
free = model.translate([line], n_best=1)[0][0].tokens[0]
unwanted = 1 + free
found = model.translate([line], n_best=1, without_id=unwanted)[0][0]
from servers import served
from jax_transformer.serving.guard import Limits
from jax_transformer.serving.service import Service
service = Service(model, model.config)
with served(service, Limits()) as (client, _):
    answer = client.post("/translate", json={"lines": [line], "without_id": unwanted})
service.batcher.close()
sys.argv = ["translate", f"--workdir={run}", f"--without_id={unwanted}"]
sys.stdin = io.TextIOWrapper(io.BytesIO(line.encode()))
from experiments import translate
rest = cli.parse_flags(sys.argv)
with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")) as out:
    code = translate.main(rest)
out.flush()
written = out.buffer.getvalue().decode()
assert code == 0, code
print(json.dumps([free, found.tokens, found.text, written, answer.json()]))
"""


@pytest.mark.slow
def test_a_constraint_is_a_mask_and_a_row_and_works_through_all_three_doors(small_run):
    line = "we know that it rains"
    program = [sys.executable, "-c", CONSTRAINT + DOORS, str(small_run), line]
    own: Any = process_arguments("translate") | {"args": program}
    own["env"] |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'serving'}"}
    done = subprocess.run(**own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    free, tokens, text, written, answer = json.loads(done.stdout.splitlines()[-1])
    assert free not in tokens
    assert written == f"{text}\n"
    assert [[each["text"] for each in line] for line in answer["outputs"]] == [[text]]
