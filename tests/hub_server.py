"""A server on 127.0.0.1 that answers as the Hugging Face hub does, with folders of this machine."""

import contextlib
import hashlib
import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

_INFO = re.compile(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?")
_FILE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


class Hub:
    """The models of a hub, and what was asked for.

    models: the folder of each revision of each OWNER/NAME. gated: names whose files nobody gets.
    breaks: how often the answer for a file still ends half-way. asked, ranges: the files that were
    asked for, and those of which only the rest was. tokens: those that came with requests.
    """

    def __init__(self) -> None:
        self.models: dict[str, dict[str, Path]] = {}
        self.gated, self.tokens = set[str](), set[str]()
        self.breaks: dict[str, int] = {}
        self.asked, self.ranges = list[str](), list[str]()

    def folder(self, name: str, revision: str) -> Path | None:
        """The folder of a branch or of a commit."""
        revisions = self.models[name]
        return revisions.get(revision) or next(
            (path for path in revisions.values() if commit(path) == revision), None
        )


def commit(folder: Path) -> str:
    """The hash that stands for the content of a folder."""
    return hashlib.sha1(str(folder).encode()).hexdigest()


class _Answer(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None: ...

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = urlsplit(self.path).path
        found = _INFO.fullmatch(path) or _FILE.fullmatch(path)
        name = found[1] if found else ""
        if not found or name not in self.hub.models:
            return self._send(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        self.hub.tokens.add(self.headers.get("Authorization", ""))
        is_file = not path.startswith("/api/")
        folder = self.hub.folder(name, unquote(found[2] if is_file else found[3] or "main"))
        if folder is None:
            return self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        if is_file:
            return self._file(name, folder, unquote(found[3]))
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        names = {file.relative_to(folder).as_posix(): file for file in files}
        answer: Any = {"id": name, "sha": commit(folder), "siblings": []}
        answer["siblings"] = [{"rfilename": name} for name in names]
        if found[2] == "tree":
            answer = [
                {"type": "file", "path": name, "size": file.stat().st_size, "oid": commit(file)}
                for name, file in names.items()
            ]
        return self._send(200, json.dumps(answer).encode())

    def _file(self, name: str, folder: Path, file: str) -> None:
        if name in self.hub.gated:
            return self._send(403, b"{}", {"X-Error-Code": "GatedRepo"})
        if not (folder / file).is_file():
            return self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"})
        content = (folder / file).read_bytes()
        etag = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": commit(folder)}
        if self.command == "GET":
            self.hub.asked.append(file)
        start = self.headers.get("Range", "")
        if self.command == "GET" and start:
            self.hub.ranges.append(file)
            first = int(start.removeprefix("bytes=").removesuffix("-"))
            etag["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
            return self._send(206, content[first:], etag, file)
        return self._send(200, content, etag, file)

    def _send(
        self, status: int, content: bytes, headers: dict[str, str] | None = None, file: str = ""
    ) -> None:
        self.send_response(status)
        for key, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.hub.breaks.get(file, 0):
            self.hub.breaks[file] -= 1
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
        else:
            self.wfile.write(content)


class Library:
    """The variables of huggingface_hub, which reads them when it is imported."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch, self._before = monkeypatch, _modules()
        for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING"))]:
            monkeypatch.delenv(name)

    def set(self, **variables: str) -> None:
        """Set variables; the next import of the library is a new one."""
        for name, value in variables.items():
            self._patch.setenv(name, value)
        for name in _modules():
            del sys.modules[name]

    def restore(self) -> None:
        """Put back the modules of other tests."""
        self.set()
        sys.modules.update(self._before)


def _modules() -> dict[str, ModuleType]:
    """The modules of the library that are imported."""
    return {n: found for n, found in sys.modules.items() if n.split(".")[0] == "huggingface_hub"}


@contextlib.contextmanager
def hub_of(library: Library, home: Path) -> Iterator[Hub]:
    """Serve a hub without models during the block, to a library whose cache is in a new folder."""
    hub = Hub()
    with _serving(hub) as address:
        library.set(HF_ENDPOINT=address, HF_HOME=str(home), NO_PROXY="127.0.0.1")
        try:
            yield hub
        finally:
            library.restore()


@contextlib.contextmanager
def _serving(hub: Hub) -> Iterator[str]:
    """Serve the hub during the block; its address."""
    own = type("Answer", (_Answer,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), own) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
