"""Compiled functions on disk that the next process runs without tracing them again.

JAX's own cache is asked with what a function lowers to, so each process traces and lowers first,
which for a training step is most of a second start. Here a function is known by what it is made
of: its code, all that it closes over, and the shapes it is called with. What cannot be told so
is compiled as ever, through JAX's cache.
"""

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import os
import pickle
import re
import sys
import types
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable
from jax.experimental.compilation_cache import compilation_cache

# Libraries whose code a function may run without closing over it.
_LIBRARIES = ("jax", "jaxlib", "flax", "optax", "numpy")
_DIGEST_BYTES = 16
_settings: dict[str, Any] = {"folder": None, "runs_on": ()}


def keep_in(folder: Path | None, *runs_on: Any) -> None:
    """Keep functions of this process there; None: nowhere.

    runs_on: what they are compiled for beside the device, such as the kind of processor.
    """
    _settings.update(folder=folder, runs_on=runs_on)


class KeptFunction:
    """A pure function for one device, compiled for each shapes of its arguments when they come."""

    def __init__(self, function: Callable[..., Any], device: Any, **options: Any) -> None:
        """device: one of JAX's; options: of jax.jit."""
        self._function, self._device, self._options = function, device, options
        self._compiled: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Its result; compiles if need be."""
        return self.compiled(*arguments)(*arguments)

    def compiled(self, *arguments: Any) -> Callable[..., Any]:
        """What takes arguments of the shapes that these have, from memory, from disk or new."""
        leaves, structure = jax.tree.flatten(arguments)
        shapes = tuple((x.shape, x.dtype, getattr(x, "weak_type", False)) for x in leaves)
        found = self._compiled.get((structure, shapes))
        if found is None:
            found = self._kept_or_new(arguments, str((structure, shapes)))
            self._compiled[structure, shapes] = found
        return found

    def _kept_or_new(self, arguments: Any, called_with: str) -> Callable[..., Any]:
        lower = jax.jit(self._function, **self._options).lower
        path = self._path(called_with)
        if path is None:
            return lower(*arguments).compile()
        with contextlib.suppress(FileNotFoundError):
            try:
                return _read(path, self._device)
            except Exception:  # whatever is wrong with a file, there is another way
                path.unlink(missing_ok=True)
        lowered = lower(*arguments)
        # What came out of JAX's cache does not run again after being serialized.
        with _without_the_cache_of_jax():
            compiled = lowered.compile()
        # The disk is full, or JAX cannot serialize this one: then it is not kept.
        with contextlib.suppress(OSError, ValueError, NotImplementedError):
            _write(path, compiled)
        return compiled

    def _path(self, called_with: str) -> Path | None:
        """Its file; None where nothing is kept, or where it cannot be told what it is made of."""
        if _settings["folder"] is None or self._device.platform != "cpu":
            return None  # on other devices it was never tried
        try:
            made_of, packages = description((self._function, self._options))
        except NotDescribedError:
            return None
        state = {name: value for name, value in jax.config.values.items() if "cache" not in name}
        key = [
            *(made_of, called_with, _settings["runs_on"], sys.version),
            *(_code_of(name) for name in sorted({*packages, *_LIBRARIES})),
            *(os.environ.get("XLA_FLAGS", ""), repr(sorted(state.items())), str(self._device)),
        ]
        function: Any = getattr(self._function, "func", self._function)  # of a partial
        name = re.sub(r"\W+", "_", function.__qualname__)
        return _settings["folder"] / f"{name}-{_digest(repr(key).encode()).hex()}.function"


class NotDescribedError(Exception):
    """Of some value it cannot be told what it is made of."""


def description(value: Any) -> tuple[str, set[str]]:
    """(what a value is made of, the packages whose code that refers to).

    Equal in every process for equal values. Knows numbers, texts, arrays, containers,
    dataclasses, Flax modules that are not bound, and functions with what they close over.

    Raises NotDescribedError for anything else.
    """
    packages: set[str] = set()
    return repr(_described(value, packages, [])), packages


def _described(value: Any, packages: set[str], above: list[Any]) -> Any:
    for level, one in enumerate(above):
        if one is value:
            return f"that of level {level}"
    known = functools.partial(_described, packages=packages, above=[*above, value])
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        if jnp.issubdtype(value.dtype, jax.dtypes.extended):
            raise NotDescribedError(f"an array of {value.dtype}")
        array = np.asarray(value)
        return str(array.dtype), array.shape, _digest(array.tobytes())
    if isinstance(value, np.dtype):
        return str(value)
    if isinstance(value, tuple | list):
        return _name(type(value), packages), *map(known, value)
    if isinstance(value, dict):
        return "dict", *((known(key), known(item)) for key, item in value.items())
    if isinstance(value, functools.partial):
        return "partial", known(value.func), known(value.args), known(value.keywords)
    if isinstance(value, types.MethodType):
        return "method", known(value.__self__), known(value.__func__)
    if isinstance(value, types.FunctionType):
        return (
            *(_name(value, packages), value.__code__.co_firstlineno),
            *(known(value.__defaults__), known(value.__kwdefaults__)),
            *(known(cell.cell_contents) for cell in value.__closure__ or () if _is_full(cell)),
        )
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value)]
        if isinstance(value, nn.Module):
            if value.scope is not None:
                raise NotDescribedError("a module that is bound to its parameters")
            fields = [name for name in fields if name not in ("parent", "name")]
        return _name(type(value), packages), *((f, known(getattr(value, f))) for f in fields)
    return _name(value, packages)  # a class, or a function that is no closure


def _name(value: Any, packages: set[str]) -> str:
    """Where a class or a function is defined, which then has to be the one found there."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not module or not name or module == "__main__" or module not in sys.modules:
        raise NotDescribedError(f"{value!r}")
    if "<" not in name:  # an inner one is part of the code around it
        found: Any = sys.modules[module]
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is None or (found is not value and inspect.unwrap(found) is not value):
            raise NotDescribedError(f"{module}.{name}, of which there is another")
    elif not isinstance(value, types.FunctionType):
        raise NotDescribedError(f"{value!r}")
    packages.add(module.partition(".")[0])
    return f"{module}.{name}"


def _is_full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # not set yet
        return False


@functools.cache
def _code_of(package: str) -> str:
    """A digest of the files of a package: of their content, of a library's of size and time."""
    origin = getattr(sys.modules.get(package), "__file__", None)
    if not origin:
        return package  # of the interpreter
    top = Path(origin)
    files = sorted(top.parent.rglob("*.py")) if top.name == "__init__.py" else [top]
    found = []
    for path in files:
        stat = path.stat()
        size_and_time = stat.st_size, stat.st_mtime_ns
        own = package not in _LIBRARIES
        found.append((str(path.relative_to(top.parent)), own or size_and_time))
        found.append(_digest(path.read_bytes()) if own else b"")
    return _digest(repr(found).encode()).hex()


@contextlib.contextmanager
def _without_the_cache_of_jax() -> Iterator[None]:
    told: Any = jax.config
    before = told.jax_enable_compilation_cache
    try:
        told.update("jax_enable_compilation_cache", False)
        compilation_cache.reset_cache()  # it looks at the setting once
        yield
    finally:
        told.update("jax_enable_compilation_cache", before)
        compilation_cache.reset_cache()


def _write(path: Path, compiled: jax.stages.Compiled) -> None:
    content = zlib.compress(pickle.dumps(serialize_executable.serialize(compiled)), level=1)
    building = path.with_name(f"{path.name}.{uuid4().hex}")
    try:
        building.write_bytes(_digest(content) + content)
        building.replace(path)
    finally:
        building.unlink(missing_ok=True)


def _read(path: Path, device: Any) -> Callable[..., Any]:
    """What `_write` wrote. Raises where that is not what is there."""
    written = path.read_bytes()
    digest, content = written[:_DIGEST_BYTES], written[_DIGEST_BYTES:]
    if digest != _digest(content):
        raise ValueError("damaged")
    serialized = pickle.loads(zlib.decompress(content))
    loaded = serialize_executable.deserialize_and_load(
        *serialized, backend=device.client, execution_devices=[device]
    )
    with contextlib.suppress(OSError):
        os.utime(path)  # used: it stays
    return loaded


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
