"""The names that docs/stability.md promises, as tests/public_names.txt records them."""

import inspect
import os
import re
from pathlib import Path
from typing import Any

import flax.linen as nn
from commands import ROOT, flag_names
from pydantic import BaseModel

import jax_transformer
from experiments.__main__ import commands
from jax_transformer.config import SETTINGS
from jax_transformer.declared import Declared
from jax_transformer.serving import app, schemas

jt: Any = jax_transformer
INHERITED = {*dir(nn.Module), *dir(tuple), *dir(Exception), "name", "parent", "scope"}


def parts(thing: Any) -> set[str]:
    """The arguments of a function, or the fields, properties and methods of a class."""
    if inspect.isfunction(thing):
        return {*inspect.signature(thing).parameters} - {"self"}
    if not inspect.isclass(thing) or issubclass(thing, Declared):  # whose fields are settings
        return set()
    fields = getattr(thing, "__dataclass_fields__", ())
    return {name for name in [*fields, *dir(thing)] if name[0] != "_"} - INHERITED


def public_names() -> list[str]:
    things = {f"jt.{name}": getattr(jt, name) for name in dir(jt) if name[0] != "_"}
    methods = inspect.getmembers(jt.TrainedModel, inspect.isfunction)
    things |= {f"jt.TrainedModel.{name}": method for name, method in methods if name[0] != "_"}
    names = {f"{name}.{part}" for name, thing in things.items() for part in parts(thing)}
    names |= {f"--experiment={name}" for name in jt.experiments()}
    names |= {f"--set={name}" for name in SETTINGS}
    for name in commands(ROOT / "experiments"):
        names |= {name, *(f"{name} --{flag}" for flag in flag_names(name))}
    paths = re.findall(r'@app\.(\w+)\("(/\w*)"', Path(app.__file__).read_text("utf-8"))
    names |= {f"server {method.upper()} {path}" for method, path in paths}
    for name, kind in vars(schemas).items():
        if inspect.isclass(kind) and issubclass(kind, BaseModel):
            names |= {f"server {name}.{field}" for field in kind.model_fields}
    return sorted(names | {*things})


def test_a_public_name_that_is_gone_is_in_the_changelog():
    """RENEW=1 writes the file anew; it, too, requires the changelog's line of a name that went."""
    file, now = ROOT / "tests" / "public_names.txt", public_names()
    recorded = file.read_text("utf-8").splitlines()
    newest = (ROOT / "CHANGELOG.md").read_text("utf-8").split("\n## ")[1]
    assert not [name for name in recorded if name not in now and f"`{name}`" not in newest]
    if os.environ.get("RENEW"):
        file.write_text("\n".join([*now, ""]), encoding="utf-8")
    else:
        assert now == recorded
