"""The notebooks run from a clean kernel, and what is committed is what they show."""

import ast
import importlib.util
import re
import shutil
import socket
import subprocess
from itertools import chain
from pathlib import Path

import pytest

import jax_transformer

nbformat = pytest.importorskip("nbformat", reason="the extra [notebooks] is not installed")
pytest.importorskip("nbclient", reason="the extra [notebooks] is not installed")

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
BYTES = 800 * 1024

_spec = importlib.util.spec_from_file_location("render", ROOT / "notebooks" / "render.py")
assert _spec is not None
assert _spec.loader is not None
render = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(render)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook):
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def images(notebook):
    """The PNG pictures of each cell."""
    return [
        [
            output.data["image/png"]
            for output in cell.outputs
            if "image/png" in output.get("data", {})
        ]
        for cell in code_cells(notebook)
    ]


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def committed(request):
    return nbformat.read(request.param, as_version=4)


@pytest.fixture(scope="module")
def cache(shared_folder):
    """Variables by which a kernel and its commands share what they compile with the others."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(shared_folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


@pytest.fixture(scope="module")
def executed(made_once, cache):
    """The folder where a notebook was run; the notebook with its outputs is in it."""

    def execute(path):
        def make(folder):
            done = render.clean(render.execute(path, folder, **cache))
            nbformat.write(done, folder / path.name)

        return made_once(path.stem, make)

    return execute


@pytest.mark.release
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_a_clean_kernel_and_shows_what_is_committed(executed, path):
    """Cells assert what they claim; this tests that each prints and draws as much as committed."""
    notebook = nbformat.read(executed(path) / path.name, as_version=4)
    committed = nbformat.read(path, as_version=4)
    assert [cell.source for cell in notebook.cells] == [cell.source for cell in committed.cells]
    assert list(map(len, images(notebook))) == list(map(len, images(committed)))
    for ours, theirs in zip(code_cells(notebook), code_cells(committed), strict=True):
        kinds = [[output.output_type for output in cell.outputs] for cell in (ours, theirs)]
        assert kinds[0] == kinds[1], ours.source
    assert not [output for output in outputs(notebook) if output.get("name") == "stderr"]


@pytest.mark.release
def test_look_inside_loads_a_run_that_is_there_instead_of_training(executed, cache, tmp_path):
    path = ROOT / "notebooks" / "look_inside.ipynb"
    folder = executed(path)
    notebook = nbformat.read(path, as_version=4)
    first = next(i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code")
    notebook.cells = notebook.cells[: first + 1]
    nbformat.write(notebook, tmp_path / "start.ipynb")
    (tmp_path / "elsewhere").mkdir()
    moved = shutil.copytree(folder / "runs" / "brief", tmp_path / "mine")
    loaded = render.execute(
        tmp_path / "start.ipynb", tmp_path / "elsewhere", TRANSFORMER_RUN=str(moved), **cache
    )
    assert "steps [400]" in outputs(loaded)[0].text
    assert not (tmp_path / "elsewhere" / "runs").exists()


def test_look_inside_takes_the_run_that_is_named_and_no_other(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib.pyplot")  # which starts a process itself
    notebook = nbformat.read(ROOT / "notebooks" / "look_inside.ipynb", as_version=4)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("trained another"))
    monkeypatch.setenv("TRANSFORMER_RUN", str(tmp_path / "missing"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(jax_transformer.InputError, match="missing"):
        exec(code_cells(notebook)[0].source, {})  # noqa: S102


def test_what_a_notebook_imports_is_there(committed):
    found = 0
    for node in ast.walk(ast.parse("\n".join(cell.source for cell in code_cells(committed)))):
        if isinstance(node, ast.ImportFrom):
            assert node.module
            module = importlib.import_module(node.module)
            assert all(hasattr(module, name.name) for name in node.names), ast.unparse(node)
            found += len(node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "jt":
            assert hasattr(jax_transformer, node.attr), ast.unparse(node)
            found += 1
    assert found > 2


def test_committed_outputs_are_whole_and_without_errors(committed):
    cells = code_cells(committed)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(map(len, images(committed))) >= 7
    assert sum(bool(cell.outputs) for cell in cells) >= 0.8 * len(cells)
    for output in outputs(committed):
        assert output.output_type in ("stream", "display_data"), output
        assert output.get("name") != "stderr"


def test_committed_notebooks_are_small_and_tell_nothing_of_the_machine(committed):
    text = nbformat.writes(committed)
    assert len(text.encode()) < BYTES
    for picture in chain.from_iterable(images(committed)):
        text = text.replace(picture.replace("\n", "\\n"), "")
    assert len(text) < 0.1 * BYTES  # or the pictures were not taken out
    assert not re.findall(r"/(?:home|root|tmp|Users|usr|opt|work|var|mnt)/|[A-Z]:\\\\", text)
    assert str(ROOT) not in text
    printed = "".join(output.get("text", "") for output in outputs(committed))
    assert not re.search(rf"\b{re.escape(socket.getfqdn())}\b", printed)
    assert not re.findall(r"\w+://|\b\d+\.\d+\.\d+\.\d+\b|\blocalhost\b", printed)
