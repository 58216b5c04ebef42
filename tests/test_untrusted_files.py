"""No line of the code executes what it has read."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
BUILTINS = {"eval", "exec", "compile", "__import__"}
YAML = {"load", "load_all", "full_load", "full_load_all", "unsafe_load", "unsafe_load_all"}
SAFE_LOADER = {"Loader": {"SafeLoader", "CSafeLoader"}}


def executing(source: str) -> Iterator[tuple[int, str]]:
    """(line, what) of all that may run code that comes out of a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            names = [node.module or "", *names] if isinstance(node, ast.ImportFrom) else names
            yield from ((node.lineno, n) for n in names if set(n.split(".")) & MODULES)
        if isinstance(node, ast.Call):
            function = ast.unparse(node.func)
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if executes(function, given):
                yield node.lineno, function


def executes(function: str, given: dict[str | None, str]) -> bool:
    """Whether a call with these keyword arguments may run what it reads."""
    owner, _, name = function.rpartition(".")
    if owner in ("", "builtins"):
        return name in BUILTINS
    if owner == "torch" and name == "load":
        return given.get("weights_only") != "True"
    if owner == "yaml" and name in YAML:
        return given.get("Loader", "").rpartition(".")[2] not in SAFE_LOADER["Loader"]
    return name == "read_pickle" or given.get("allow_pickle", "False") != "False"


@pytest.mark.parametrize("package", ["jax_transformer", "experiments"])
def test_nothing_that_was_read_is_executed(package):
    files = sorted((ROOT / package).rglob("*.py"))
    assert len(files) > 15
    found = {path: list(executing(path.read_text(encoding="utf-8"))) for path in files}
    assert {path: what for path, what in found.items() if what} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from marshal import loads",
        "from multiprocessing import shelve",
        "import six.moves.cPickle as p",
        "def f(x):\n    return eval(x)",
        "exec(open('file').read())",
        "import builtins; builtins.eval('1')",
        "yaml.load(file)",
        "yaml.load(file, Loader=yaml.Loader)",
        "np.load(path, allow_pickle=True)",
        "numpy.lib.format.read_array(file, allow_pickle=flag)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "pd.read_pickle(path)",
    ],
)
def test_each_way_to_execute_would_be_found(source):
    assert list(executing(source))


@pytest.mark.parametrize(
    "source",
    [
        "re.compile('a')",
        "step.lower(x).compile()",
        "np.load(path)",
        "np.load(path, allow_pickle=False)",
        "torch.load(path, weights_only=True)",
        "yaml.safe_load(file)",
        "yaml.load(file, Loader=yaml.SafeLoader)",
    ],
)
def test_what_reads_only_data_is_left_alone(source):
    assert not list(executing(source))
