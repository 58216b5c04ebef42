"""The names that may be in a file of torch.save, and what a call of each makes.

Nothing else can be called. The functions get texts, numbers, plain containers and arrays from
pickles.py, and return such values; each accepts only the arguments that torch.save writes.
"""

from functools import partial
from typing import Any

from jax_transformer.formats.pickled_objects import Name, Record, checked_key
from jax_transformer.formats.torch_tensors import (
    STORAGE_TYPES,
    TENSOR_TYPES,
    TENSORS,
    Arguments,
    numpy_array,
    numpy_scalar,
    numpy_type,
    tensor_with_attributes,
)

BUILTINS = ("builtins", "__builtin__")  # the second is Python 2's name, which protocol 2 has


def _device(arguments: Arguments) -> Any:
    match arguments:
        case (str(kind),):
            return kind
        case (str(kind), int(index)):
            return f"{kind}:{index}"
    return NotImplemented


def _size(arguments: Arguments) -> Any:
    match arguments:
        case (tuple(size),):
            return size
    return NotImplemented


def _empty_dictionary(arguments: Arguments) -> Any:
    """Return what OrderedDict() and defaultdict(list) are at first."""
    match arguments:
        case () | (None,) | (str(),):
            return {}
    return NotImplemented


def _set(kind: type, arguments: Arguments) -> Any:
    match arguments:
        case (list(items),):
            return kind(map(checked_key, items))
    return NotImplemented


def _encoded(arguments: Arguments) -> Any:
    """Return bytes, which protocol 2 writes as text."""
    match arguments:
        case (str(text), str(encoding)) if encoding in ("latin1", "latin-1"):
            return text.encode("latin-1") if not text or max(text) < "\u0100" else NotImplemented
    return NotImplemented


def _no_bytes(arguments: Arguments) -> Any:
    return NotImplemented if arguments else b""


def _type_of_none(arguments: Arguments) -> Any:
    match arguments:
        case (None,):
            return "NoneType"
    return NotImplemented


def _attributes(text: str, arguments: Arguments) -> Any:
    """Return an object that becomes the dictionary of its attributes."""

    def finish(state: Any) -> Any:
        if state is None:
            return {}
        return state if type(state) is dict else NotImplemented

    return NotImplemented if arguments else Record(text, finish)


def _configuration(text: str, arguments: Arguments) -> Any:
    """Return an object of OmegaConf that becomes its content: a container or one value."""

    def finish(state: Any) -> Any:
        if type(state) is not dict:
            return NotImplemented
        return state.get("_content", state.get("_val", NotImplemented))

    return NotImplemented if arguments else Record(text, finish)


_CALLS = {
    **TENSORS,
    "torch._tensor._rebuild_from_type": tensor_with_attributes,
    "torch._tensor._rebuild_from_type_v2": tensor_with_attributes,
    "torch.tensor._rebuild_from_type": tensor_with_attributes,
    "torch.Size": _size,
    "torch.device": _device,
    "collections.OrderedDict": _empty_dictionary,
    "collections.defaultdict": _empty_dictionary,
    "_codecs.encode": _encoded,
    "numpy.dtype": numpy_type,
}
for _core in ("core", "_core"):
    _CALLS[f"numpy.{_core}.multiarray.scalar"] = numpy_scalar
    _CALLS[f"numpy.{_core}.multiarray._reconstruct"] = numpy_array
for _module in BUILTINS:
    _CALLS[f"{_module}.set"] = partial(_set, set)
    _CALLS[f"{_module}.frozenset"] = partial(_set, frozenset)
    _CALLS[f"{_module}.bytes"] = _no_bytes
    _CALLS[f"{_module}.type"] = _type_of_none

_METERS = [f"{kind}Meter" for kind in ("Average", "Stopwatch", "Sum", "Time")]
_ATTRIBUTES = [
    "argparse.Namespace",
    "omegaconf.base.Metadata",
    "omegaconf.base.ContainerMetadata",
    *(f"fairseq.{module}.{meter}" for module in ("meters", "logging.meters") for meter in _METERS),
]
_NODES = ("Any", "Boolean", "Bytes", "Float", "Integer", "InterpolationResult", "String")
_CONFIGURATIONS = [
    "omegaconf.dictconfig.DictConfig",
    "omegaconf.listconfig.ListConfig",
    "omegaconf.base.UnionNode",
    *(f"omegaconf.nodes.{kind}Node" for kind in _NODES),
]
_PLAIN_TYPES = ("bool", "dict", "float", "int", "list", "long", "object", "str", "tuple")
_FAIRSEQ_CONFIGS = [
    *("Checkpoint", "CommonEval", "Common", "Dataset", "DistributedTraining", "EMA", "EvalLM"),
    *("Fairseq", "FairseqBMUF", "Generation", "Interactive", "Optimization"),
]
# Names that may be values but not be called, such as the types that OmegaConf's objects mention.
_VALUES = [
    *STORAGE_TYPES,
    *TENSOR_TYPES,
    "torch.bool",
    "torch.bfloat16",
    "torch.Tensor",
    "torch.nn.parameter.Parameter",
    "numpy.ndarray",
    *(f"typing.{name}" for name in ("Any", "Dict", "List", "Optional", "Tuple", "Union")),
    *(f"{module}.{name}" for module in BUILTINS for name in _PLAIN_TYPES),
    *(f"fairseq.dataclass.configs.{name}Config" for name in _FAIRSEQ_CONFIGS),
]


def _pair(text: str) -> tuple[str, str]:
    module, _, name = text.rpartition(".")
    return module, name


NAMES = {
    **{_pair(text): Name(text) for text in _VALUES},
    **{_pair(text): Name(text, call) for text, call in _CALLS.items()},
    **{_pair(text): Name(text, partial(_attributes, text)) for text in _ATTRIBUTES},
    **{_pair(text): Name(text, partial(_configuration, text)) for text in _CONFIGURATIONS},
}
