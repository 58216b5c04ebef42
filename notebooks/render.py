"""Run the notebooks from a clean kernel and save their outputs, without what changes each time.

python notebooks/render.py [--run runs/demo] [notebook.ipynb ...]
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def execute(path: Path, folder: Path, **environment: str) -> Any:
    """The notebook with its outputs, run in `folder` with this repository on the path.

    Raises nbclient's CellExecutionError where a cell does.
    """
    notebook = nbformat.read(path, as_version=4)
    # The kernel must not inherit settings of the caller, such as the fake devices of a test.
    inherited = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "PYTHONPATH")}
    client = NotebookClient(
        notebook,
        kernel_name=KERNEL["name"],
        timeout=3600,  # seconds for a cell; one trains a model
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
    )
    client.execute(
        env={
            **inherited,
            "PYTHONPATH": str(HERE.parent),
            "IPYTHONDIR": str(folder / ".ipython"),  # nobody's own start-up files
            "JAX_PLATFORMS": "cpu",
            **environment,
        }
    )
    return notebook


def clean(notebook: Any) -> Any:
    """The notebook without metadata that depends on the machine or the time."""
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        cell.metadata = {}
        if "outputs" in cell:
            cell.outputs = _joined(cell.outputs)
    return notebook


def _joined(outputs: list[Any]) -> list[Any]:
    """Join printed text, which may arrive in one piece or in several."""
    joined: list[Any] = []
    for output in outputs:
        if "metadata" in output:
            output.metadata = {}
        stream = output.get("name")  # of printed text alone
        if stream and joined and joined[-1].get("name") == stream:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def main() -> None:
    """Run each notebook and write it back, whole or not at all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", help="the run folder for look_inside.ipynb")
    parser.add_argument("notebooks", nargs="*", type=Path, default=sorted(HERE.glob("*.ipynb")))
    arguments = parser.parse_args()
    environment = {"TRANSFORMER_RUN": str(Path(arguments.run).absolute())} if arguments.run else {}
    for path in arguments.notebooks:
        with tempfile.TemporaryDirectory() as folder:
            notebook = clean(execute(path, Path(folder), **environment))
        path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
        print(f"{path}: {path.stat().st_size / 1024:.0f} KB", file=sys.stderr)


if __name__ == "__main__":
    main()
