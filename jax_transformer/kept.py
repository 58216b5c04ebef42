"""Compiled functions on disk that the next process runs without tracing them again.

JAX's own cache is asked with what a function lowers to, so each process traces and lowers first,
which for a training step is most of a second start. Here a function is known by what it is made
of: its code, all that it closes over, and the shapes it is called with. What cannot be told so
is compiled as ever, through JAX's cache. One thing is not looked at: globals that a program
changes while it runs. That is for notebooks, which keep nothing unless they ask for it.
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
import time
import types
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable
from jax.experimental.compilation_cache import compilation_cache

# What a function may run without closing over it. Libraries change as a whole, when installed.
_LIBRARIES = ("jax", "jaxlib", "flax", "optax", "numpy")
_OWN = __name__.partition(".")[0]
_LOADED = time.time()
_DIGEST_BYTES = 16
_SUFFIX = ".function"
_kept: dict[str, Any] = {"folder": None, "runs_on": ()}


def keep_in(folder: Path | None, *runs_on: Any, days: int = 30) -> None:
    """Keep functions of this process there, and remove those not used for so long; None: nowhere.

    runs_on: what they are compiled for beside the device, such as the kind of processor.
    """
    _kept.update(folder=folder, runs_on=runs_on)
    for path in folder.glob(f"*{_SUFFIX}") if folder else ():
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - days * 86_400:
                path.unlink()


class KeptFunction:
    """A pure function for one device, compiled for each shapes of its arguments when they come."""

    def __init__(self, function: Callable[..., Any], device: Any, **options: Any) -> None:
        """device: one of JAX's; options: of jax.jit."""
        self._function, self._device, self._options = function, device, options
        self._jitted = jax.jit(function, **options)
        self._compiled: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Its result; compiles if need be."""
        return self.compiled(*arguments)(*arguments)

    def compiled(self, *arguments: Any) -> Callable[..., Any]:
        """What takes arguments of the shapes that these have, from memory, from disk or new."""
        told: Any = jax.config
        if told.jax_disable_jit or told.jax_debug_nans or told.jax_debug_infs:
            return self._jitted  # which runs operation by operation, or does so to find one
        leaves, structure = jax.tree.flatten(arguments)
        shapes = tuple((x.shape, x.dtype, getattr(x, "weak_type", False)) for x in leaves)
        key = structure, shapes, _settings()
        found = self._compiled.get(key)
        if found is None:
            self._compiled[key] = found = self._kept_or_new(arguments, str(key))
        return found

    def _kept_or_new(self, arguments: Any, called_with: str) -> Callable[..., Any]:
        path = self._path(called_with)
        if path is None:
            return self._jitted.lower(*arguments).compile()
        # Whatever is wrong with a file or a disk, there is another way.
        with contextlib.suppress(Exception):
            try:
                return _read(path, self._device, jax.tree.structure((arguments, {})))
            except Exception:
                path.unlink(missing_ok=True)
        lowered = self._jitted.lower(*arguments)
        # What came out of JAX's cache does not run again after being serialized.
        with _without_the_cache_of_jax():
            compiled = lowered.compile()
        # Nor can JAX serialize all that it compiles, such as calls back to Python.
        with contextlib.suppress(Exception):
            _write(path, compiled)
        return compiled

    def _path(self, called_with: str) -> Path | None:
        """Its file; None where nothing is kept, or where it cannot be told what it is made of."""
        if _kept["folder"] is None or self._device.platform != "cpu":
            return None  # on other devices it was never tried
        try:
            made_of, packages = description((self._function, self._options))
            code = [_code_of(name) for name in sorted({*packages, *_LIBRARIES, _OWN})]
        except NotDescribedError:
            return None
        xla = os.environ.get("XLA_FLAGS", ""), str(self._device)
        key = made_of, code, called_with, _kept["runs_on"], sys.version, xla
        function: Any = getattr(self._function, "func", self._function)  # of a partial
        name = re.sub(r"\W+", "_", getattr(function, "__qualname__", type(function).__name__))
        return _kept["folder"] / f"{name[:80]}-{_digest(repr(key).encode()).hex()}{_SUFFIX}"


def _settings() -> str:
    """What JAX and Flax are told, on which a trace may depend."""
    of_jax = [(name, value) for name, value in jax.config.values.items() if "cache" not in name]
    of_flax = [(name, getattr(flax.config, name)) for name in dir(flax.config) if name[0] != "_"]
    return repr((sorted(of_jax), [pair for pair in of_flax if not callable(pair[1])]))


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
    if type(value) in (type(None), bool, int, float, complex, str, bytes):
        return repr(value)
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        if jnp.issubdtype(value.dtype, jax.dtypes.extended) or value.dtype == object:
            raise NotDescribedError(f"an array of {value.dtype}")
        kind = type(value).__name__, str(value.dtype), getattr(value, "weak_type", False)
        return *kind, value.shape, _digest(np.asarray(value).tobytes())
    if isinstance(value, np.dtype):
        return str(value)
    if isinstance(value, tuple | list):
        return _name(type(value), packages), *map(known, value)
    if type(value) is dict:
        return "dict", *((known(key), known(item)) for key, item in value.items())
    if isinstance(value, functools.partial):
        return "partial", known(value.func), known(value.args), known(value.keywords)
    if isinstance(value, types.MethodType):
        return "method", known(value.__self__), known(value.__func__)
    if isinstance(value, types.FunctionType):
        packages.add(value.__globals__["__name__"].partition(".")[0])  # where its wrapper is
        # By their places, for a line may hold two functions that have one name.
        code = repr((value.__code__.co_code, list(value.__code__.co_positions()))).encode()
        return (
            *(_name(value, packages), _digest(code)),
            *(known(value.__defaults__), known(value.__kwdefaults__)),
            *(known(_content(cell)) for cell in value.__closure__ or ()),
        )
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value)]
        if isinstance(value, nn.Module):
            if value.scope is not None:
                raise NotDescribedError("a module that is bound to its parameters")
            fields.remove("parent")
        elif not set(getattr(value, "__dict__", ())) <= {*fields}:
            raise NotDescribedError(f"{value!r}, which has more than its fields")
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


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        raise NotDescribedError("a variable that is not set yet") from None


@functools.cache
def _code_of(package: str) -> str:
    """A digest of the files of a package: of their content, of a library's of size and time.

    Raises NotDescribedError where there are none, or one is newer than what is loaded of it.
    """
    if package in sys.stdlib_module_names:
        return package  # of the interpreter
    origin = getattr(sys.modules.get(package), "__file__", None)
    if not origin:
        raise NotDescribedError(f"the package {package}, which has no files")
    top = Path(origin)
    found = []
    for path in sorted(top.parent.rglob("*.py")) if top.name == "__init__.py" else [top]:
        stat = path.stat()
        if stat.st_ctime > _LOADED:
            raise NotDescribedError(f"{path}, which was changed since")
        name, whole = str(path.relative_to(top.parent)), package not in _LIBRARIES
        found.append((name, path.read_bytes() if whole else (stat.st_size, stat.st_mtime_ns)))
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


def _read(path: Path, device: Any, structure: Any) -> Callable[..., Any]:
    """What `_write` wrote, for arguments of this structure. Raises where it is not there."""
    written = path.read_bytes()
    digest, content = written[:_DIGEST_BYTES], written[_DIGEST_BYTES:]
    if digest != _digest(content):
        raise ValueError("damaged")
    serialized = pickle.loads(zlib.decompress(content))
    loaded = serialize_executable.deserialize_and_load(
        *serialized, backend=device.client, execution_devices=[device]
    )
    if loaded.in_tree != structure:  # which knows of a NamedTuple its class, and not only the name
        raise ValueError("of another structure")
    with contextlib.suppress(OSError):
        os.utime(path)  # used: it stays
    return loaded


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
