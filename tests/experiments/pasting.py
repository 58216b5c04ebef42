"""Paste the code of a guide as a person would, block after block, with toy sizes.

Shell goes into bash and Python into one session. In bash `python -m experiments.NAME` is a small
program that sends its arguments and its input here, where the command runs in this process: that
saves the start of Python and JAX for each command.
"""

import contextlib
import io
import json
import os
import re
import runpy
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from commands import ROOT, TIMEOUT, run_command

# What a guide gives -> what is enough to see that it runs.
TOYS = {
    r"training\.(steps|warmup_steps|evaluate_steps|checkpoint_steps)=\d+": r"training.\1=2",
    r"samples=(16|32)\b": "samples=3",
    r"beam_size=12\b": "beam_size=3",
    r"\b(5000|14500)\b": "100",
    "epochs=2": "epochs=1",
}
# With something to fill in.
NOT_PASTED = re.compile(r"\.\.\.$", re.MULTILINE)

PYTHON = f"""\
#!{sys.executable} -ISE
import json, os, socket, sys
arguments = sys.argv[1:]
if not (arguments[0] == "-c" or arguments[1].partition(".")[0] in ("experiments", "tools")):
    os.execv("{sys.executable}", ["python", *arguments])
request = [arguments, os.getcwd(), sys.stdin.buffer.read().decode()]
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(os.environ["PASTING"])
    connection.sendall(json.dumps(request).encode())
    connection.shutdown(socket.SHUT_WR)
    code, out, err = json.loads(connection.makefile("rb").read())
sys.stdout.buffer.write(out.encode())
sys.stderr.buffer.write(err.encode())
sys.exit(code)
"""


class Block(NamedTuple):
    """A block of code: its language, "" for shell, and its text without prompts and outputs."""

    language: str
    code: str


class Pasted(NamedTuple):
    """What a pasted block wrote."""

    output: str
    errors: str


def guide_blocks(name: str) -> list[Block]:
    """The blocks of docs/NAME.md that are code to paste, in order."""
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    found = [Block(*pair) for pair in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)]
    return [Block(block.language, _typed(block.code)) for block in found if _is_code(block)]


def _is_code(block: Block) -> bool:
    return block.language in ("", "python") and not NOT_PASTED.search(block.code)


def _typed(code: str) -> str:
    """What is typed: if there are prompts, the lines after them, with those that continue one."""
    if not re.search(r"^\$ ", code, re.M):
        return code
    return "".join(re.findall(r"^\$ ((?:.*\\\n)*.*\n)", code, re.M))


class Session:
    """A terminal and a Python session in one folder."""

    def __init__(self, folder: Path) -> None:
        """Put the small program into a folder of its own."""
        self.folder, self.names = folder, dict[str, Any]()
        programs = folder.parent / "programs"
        programs.mkdir()
        (programs / "python").write_text(PYTHON, encoding="utf-8")
        (programs / "python").chmod(0o755)
        self._variables = programs / "variables"
        self._variables.touch()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(programs / "socket"))
        self._socket.listen()
        self._socket.settimeout(0.05)
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self._environment = os.environ | {"PATH": path, "PASTING": str(programs / "socket")}
        self._environment["PYTHONPATH"] = str(ROOT)

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    def paste(self, block: Block) -> Pasted:
        """Run a block with toy sizes; a command or a line that fails is an AssertionError."""
        code = block.code
        for written, toy in TOYS.items():
            code = re.sub(written, toy, code)
        if block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(code, "guide", "exec"), self.names)  # noqa: S102
            return Pasted(output.getvalue(), "")
        return self._shell(code)

    def _shell(self, code: str) -> Pasted:
        """Run shell code with the variables of the code before; `pip` does nothing."""
        script = f"pip() {{ :; }}\n. {self._variables}\nset -eo pipefail\n{code}\n"
        script += f"declare -p DATA SMALL 2>/dev/null > {self._variables} || true\n"
        paths = [self.folder.parent / name for name in ("output", "errors")]
        with paths[0].open("wb") as output, paths[1].open("wb") as errors:
            shell = subprocess.Popen(
                ["bash", "-c", script],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )
            while shell.poll() is None:
                with contextlib.suppress(TimeoutError):
                    self._answer(self._socket.accept()[0])
        pasted = Pasted(*(path.read_text(encoding="utf-8") for path in paths))
        assert shell.returncode == 0, "\n".join([code, *pasted])
        return pasted

    def _answer(self, connection: socket.socket) -> None:
        """Run the command that the small program sends, and send what it writes."""
        connection.settimeout(TIMEOUT)
        with connection:
            arguments, folder, stdin = json.loads(connection.makefile("rb").read())
            with contextlib.chdir(folder):
                answer = self._run(arguments, stdin)
            connection.sendall(json.dumps(answer).encode())

    def _run(self, arguments: list[str], stdin: str) -> list[Any]:
        """Run what comes after `python`: -m experiments.NAME, -m tools.NAME or -c CODE."""
        what, name, *rest = arguments
        if name.startswith("experiments."):
            return [
                *run_command(
                    name.removeprefix("experiments."), *rest, stdin=stdin.encode(), fails=None
                )
            ]
        before = sys.argv
        sys.argv = [name, *rest]
        try:
            with contextlib.redirect_stdout(io.StringIO()) as output:
                if what == "-c":
                    exec(compile(name, "guide", "exec"), {})  # noqa: S102
                else:
                    sys.modules.pop(name, None)
                    runpy.run_module(name, run_name="__main__")
        finally:
            sys.argv = before
        return [0, output.getvalue(), ""]
