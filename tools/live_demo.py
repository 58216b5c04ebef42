"""Write docs/live/demo.json.xz, the model that the first page of the site runs.

python -m tools.live_demo --workdir=runs/demo

The file has what the page of the run contains, with weights of 8 bits. For its test it also has 20
sentences with the outputs of the run, whose weights were not rounded.
"""

import argparse
import base64
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np

import jax_transformer as jt
from jax_transformer.demo import sentence_pairs
from jax_transformer.errors import InputError
from jax_transformer.viewer.live_page import live_content

FILE = Path(__file__).parents[1] / "docs" / "live" / "demo.json.xz"
ROW = 128  # weights with one scale


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description="Write the model that the site runs.")
    parser.add_argument("--workdir", required=True)
    try:
        model = jt.load(parser.parse_args().workdir)
        model.run.task.require("translates", "translate")
        content = live_content(model, model.config.decoding)
    except InputError as error:
        parser.error(str(error))
    rows = np.frombuffer(base64.b64decode(content["weights"]), "<f2").reshape(-1, ROW)
    scales = np.abs(rows).max(axis=1, keepdims=True).astype("<f4") / 127
    integers = np.rint(rows / np.where(scales > 0, scales, 1)).astype(np.int8)
    content |= {"weights": _base64(integers), "scales": _base64(scales)}
    lines = [source for source, _ in sentence_pairs("test")[:20]]
    outputs = [
        {
            "source": line,
            "source_tokens": model.vocabulary.encode(line, eos=True),
            "tokens": [*best.tokens],
            "text": best.text,
        }
        for line, (best,) in zip(lines, model.translate(lines, n_best=1), strict=True)
    ]
    text = json.dumps({"content": content, "outputs": outputs}, ensure_ascii=False)
    FILE.write_bytes(lzma.compress(text.encode(), preset=9))


def read() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return what the page contains, with weights in float16 again, and the outputs of the run."""
    content, outputs = json.loads(lzma.decompress(FILE.read_bytes())).values()
    integers = np.frombuffer(base64.b64decode(content["weights"]), np.int8).reshape(-1, ROW)
    scales = np.frombuffer(base64.b64decode(content.pop("scales")), "<f4")[:, None]
    return content | {"weights": _base64((integers * scales).astype("<f2"))}, outputs


def _base64(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")


if __name__ == "__main__":
    main()
