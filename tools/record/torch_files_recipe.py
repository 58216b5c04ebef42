"""Files that torch.save writes, in both of its forms, and the arrays and settings in them."""

import argparse
import io
import json
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from omegaconf import DictConfig, ListConfig, OmegaConf  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

FORMS = {"zip": True, "older": False}


def record() -> dict[str, Any]:
    """Return each file as bytes, the tensors in it, and its other values by their paths (JSON)."""
    found = {}
    for name, value in values().items():
        parts = dict(leaves(value))
        tensors = {path: part for path, part in parts.items() if isinstance(part, np.ndarray)}
        others = {path: repr(part) for path, part in parts.items() if path not in tensors}
        found |= {f"{name}/tensor/{path}": part for path, part in tensors.items()}
        found[f"{name}/others"] = json.dumps(others)
        for form, is_zip in FORMS.items():
            found[f"{name}/{form}"] = saved(value, is_zip)
    return found


def saved(value: Any, is_zip: bool, **options: Any) -> bytes:
    """Return the file that torch.save writes."""
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=is_zip, **options)
    return file.getvalue()


def values() -> dict[str, Any]:
    """Return what is saved: tensors of all kinds, plain values, and a checkpoint like fairseq's."""
    return {"tensors": tensors(), "plain": plain(), "checkpoint": checkpoint()}


def tensors() -> dict[str, Any]:
    """Return a tensor of each type, and views of one storage."""
    numbers = torch.arange(-6, 18, dtype=torch.float32).reshape(4, 6) / 4
    types = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8"]
    types += ["uint8", "bool"]
    return {
        **{kind: (numbers * 2).abs().to(getattr(torch, kind)) for kind in types},
        "negative": numbers.to(torch.int16),
        "special": torch.tensor([float("inf"), float("-inf"), float("nan"), -0.0, 1e-40]),
        "special_bfloat16": torch.tensor([float("inf"), -0.0, 3.3895e38], dtype=torch.bfloat16),
        "whole": numbers,
        "transposed": numbers.T,
        "part": numbers[1:3, ::2],
        "row": numbers[3],
        "expanded": numbers[:, 1:2].expand(4, 5),
        "overlapping": numbers.flatten().as_strided((3, 4), (2, 1), 5),
        "scalar": torch.tensor(2.5),
        "one": numbers[2, 3],
        "empty": torch.zeros(0, 3),
        "empty_part": numbers[4:],
        "parameter": nn.Parameter(numbers[:2]),
        "constant": nn.Parameter(torch.ones(2), requires_grad=False),
    }


def plain() -> dict[str, Any]:
    """Return values of all plain kinds."""
    return {
        "integers": [0, 255, 65535, -1, 2**31, -(2**40), 2**100],
        "others": (None, True, False, 0.1, float("inf"), "text \u20ac", b"\0\xff", ""),
        "nested": {"a": [{"b": ()}, [[]], {}], 3: (1, (2, [3])), 0.5: "float", None: "none"},
        "ordered": OrderedDict(z=1, a=2),
        "lists": defaultdict(list, x=[1]),
        "size": torch.Size([2, 3]),
        "numpy": [np.float64(1.5), np.int32(-3), np.bool_(True), np.float32(0.25)],
    }


def checkpoint() -> dict[str, Any]:
    """Return a checkpoint with the objects that fairseq's have: settings of three kinds."""
    torch.manual_seed(1)
    layer = nn.Linear(3, 2)
    args = argparse.Namespace(arch="transformer", layers=6, dropout=0.3, data=None)
    settings = {
        "task": {"_name": "translation", "source_lang": "en", "max": 1024, "left_pad": True},
        "optimization": {"lr": [0.0005, 1e-9], "update_freq": [1], "max_update": None},
        "common": {"seed": "${task.max}", "missing": "???", "empty": {}, "none": []},
    }
    return {
        "args": args,
        "empty": argparse.Namespace(),
        "cfg": OmegaConf.create({**settings, "model": args}, flags={"allow_objects": True}),
        "list": OmegaConf.create([1, [2, {"x": "y"}]]),
        "none": DictConfig(None),
        "model": OrderedDict(layer.state_dict(), version=torch.tensor([3.0])),
        "state": layer.state_dict(),
        "optimizer_history": [{"num_updates": 7, "lr_scheduler_state": {"best": np.float64(4.5)}}],
        "extra_state": {"metrics": [(1, "loss", "AverageMeter", {"sum": torch.tensor(1.5)})]},
    }


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Give each part that is not a container, by its path; empty containers too."""
    if isinstance(value, argparse.Namespace):
        value = vars(value)
    if isinstance(value, DictConfig | ListConfig):
        value = OmegaConf.to_container(value)
    if isinstance(value, dict | list | tuple) and value:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in pairs:
            yield from leaves(part, f"{path}/{key!r}")
    else:
        yield path, _leaf(value)


def _leaf(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.detach()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    if isinstance(value, dict | tuple):
        return type(value)() if isinstance(value, tuple) else {}
    return value.item() if isinstance(value, np.generic) else value
