"""The documentation site that `make docs` builds from the Markdown, the notebooks and docstrings.

The source folder is the repository, so that a relative link has the same target here and there. A
link to a file that is not a page becomes one into the repository. The notebooks show the outputs
that are stored in them; `tests/test_notebooks.py` compares these with new ones.
"""

import ast
import dataclasses
import inspect
import os
import re
import textwrap
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx import addnodes
from sphinx.application import Sphinx

import jax_transformer
from jax_transformer.declared import Declared, annotations, meaning
from jax_transformer.errors import InputError
from jax_transformer.viewer.live_page import live_page
from jax_transformer.viewer.page import page
from tools import live_demo

ROOT = Path(__file__).parents[1]
ADDRESSES = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
FILES = ADDRESSES["Changelog"].removesuffix("CHANGELOG.md")  # in the repository
README = {"the-paper-by-file": "docs/api/index"}  # its other parts are in docs/index
# In a docstring: an example, indented code, or prose; in prose, the start of what explains an
# argument, or a difference; an argument in reStructuredText.
BLOCK = re.compile(r"(>>>.*\n(?:.+\n)*)|((?: {4}.*\n+)+)|((?:.+\n)+)")
FIELD = re.compile(r"^(?=(?:[a-z]\w*, )*[a-z]\w*: |Differs: )", re.MULTILINE)
ITEM = ":Parameters:\n\n    * **{}**: {}"

project = "jax_transformer"
html_title = f"{project} {jax_transformer.__version__}"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**", "notebooks/*.ipynb"]
exclude_patterns = [".*", "README.md", "build", "runs"]  # README.md is included in pages
nb_execution_mode = "off"
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
autodoc_default_options = {
    "members": True,
    "member-order": "bysource",
    "special-members": "__call__",
    "exclude-members": "dtype, fill",
}
python_maximum_signature_line_length = 80
highlight_language = "text"  # of a block that names none
smartquotes = False  # which would join the hyphens of flags
suppress_warnings = ["ref.python"]  # `linearize` is a module and its function
html_theme = "furo"
html_show_copyright = False
html_copy_source = False
html_math_renderer = "mathml"  # which browsers draw without a script and without network


def link_from_root(app: Sphinx, path: Path, page: str, content: list[str]) -> None:
    """Let the links of README.md, which pages in other folders include, start from the root."""
    content[0] = re.sub(r"\]\((?=#)", "](/README.md", content[0])
    content[0] = re.sub(r"\]\((?!\w+:|/)", "](/", content[0])


def link_files(app: Sphinx, document: nodes.document) -> None:
    """Lead links to README.md and to folders to pages, and to other files into the repository."""
    links: list[Any] = [*document.findall(addnodes.pending_xref)]
    links += document.findall(addnodes.download_reference)
    for link in (link for link in links if link["reftype"] == "myst"):
        path, file = app.env.relfn2path(link["reftarget"], link["refdoc"])
        if link["reftarget"] == "README":
            link["reftarget"] = README.get(link["reftargetid"], "docs/index")
        elif f"{path}/index" in app.env.found_docs:
            link.attributes |= {"refdomain": "doc", "reftarget": f"{path}/index"}
            link["reftargetid"] = None
        elif not link["refdomain"] and os.path.exists(file):
            link.replace_self(nodes.reference("", "", *link.children, refuri=FILES + path))


def signature(app: Sphinx, what: str, name: str, thing: Any, *_: Any) -> tuple[str, str] | None:
    """Return a signature with the annotations of the source, such as Float[Array, "B T"]."""
    of_source = what in ("class", "function", "method")
    if not of_source or not str(thing.__module__).startswith("jax_transformer"):
        return None
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(thing)))
    tree: Any = ast.parse(re.sub(r'(?<=, ") (?=\w)', "", source)).body[0]  # one axis is " B"
    if what != "class":
        del tree.args.args[: what == "method"]
        return f"({ast.unparse(tree.args)})", ast.unparse(tree.returns).strip("'")
    declared = issubclass(thing, Declared)  # its fields are listed by `docstring`
    if declared or not (dataclasses.is_dataclass(thing) or hasattr(thing, "_fields")):
        return "", ""
    fields = [ast.unparse(part) for part in tree.body if isinstance(part, ast.AnnAssign)]
    return f"({', '.join(field for field in fields if field[0] != '_')})", ""


def docstring(app: Sphinx, what: str, name: str, thing: Any, _: Any, lines: list[str]) -> None:
    """Write a docstring as reStructuredText, with a list of the arguments that it explains."""
    done = list[str]()
    for example, code, prose in BLOCK.findall("\n".join([*lines, ""])):
        done += [example, f".. code-block:: python\n    :force:\n\n{code}" if code else ""]
        for part in FIELD.split(prose) if what != "module" else [prose]:
            if part.startswith("Differs: ") or what == "module" or not FIELD.match(part):
                done.append(re.sub("^Differs", ":Differs", plain(part)))
                continue
            first, *rest = re.split(r"(?<=[.:])\n(?! )", part, maxsplit=1)
            names, _, text = first.partition(": ")
            done += [ITEM.format(names, plain(text)), *map(plain, rest)]
    if isinstance(thing, type) and issubclass(thing, Declared) and thing.inside:
        for part, hint in annotations(thing).items():
            done.append(ITEM.format(f"{part} = {getattr(thing, part)!r}", plain(meaning(hint))))
    text = re.sub(r"(^    \* .*\n+):Parameters:\n+", r"\1", "\n\n".join(done), flags=re.MULTILINE)
    lines[:] = [*text.split("\n"), ""]


def plain(text: str) -> str:
    """Return a paragraph in which nothing has a meaning but `code`; public names become links."""
    parts = re.split("`(.+?)`", " ".join(text.split()))
    parts[::2] = [re.sub(r"([*|_`\\])", r"\\\1", part) for part in parts[::2]]
    for i in range(1, len(parts), 2):
        name = re.fullmatch(r"(?:jt\.)?([\w.]+)", parts[i])
        parts[i] = f":py:obj:`{parts[i]} <.{name[1]}>`" if name else f"``{parts[i]}``"
    return "".join(parts)


def formula(translator: Any, node: nodes.Node) -> None:
    """Write a formula as MathML."""
    block = isinstance(node, nodes.math_block)
    translator.body.append(tex2mathml(node.astext(), as_block=block))
    raise nodes.SkipNode


def skip(app: Sphinx, what: str, name: str, thing: Any, *_: Any) -> bool | None:
    """Leave out the fields of a tuple, which its signature shows."""
    return True if isinstance(thing, type(jax_transformer.Batch.source)) else None


def write_live_page(app: Sphinx) -> None:
    """Write docs/live.html, the page that runs the model of a run, or that of docs/live."""
    try:
        model = jax_transformer.load(app.config.live_run) if app.config.live_run else None
        shown = live_page(model, model.config.decoding) if model else None
    except InputError as error:
        raise SystemExit(f"make docs RUN=...: {error}") from None
    file = Path(app.outdir, "docs", "live.html")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(shown or page("live_page.html", live_demo.read()[0]), encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Connect these functions."""
    app.add_config_value("live_run", "", "html", types=str)
    app.connect("builder-inited", write_live_page)
    app.connect("include-read", link_from_root)
    app.connect("doctree-read", link_files, priority=100)  # before linked files are copied
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-process-docstring", docstring)
    app.connect("autodoc-skip-member", skip)
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
