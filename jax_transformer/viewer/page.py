"""Pages of one file, which contain all that they need: HTML, style, scripts and data."""

import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
_INCLUDED = re.compile(r"@([a-z_]+\.(?:css|html|js))@")


def page(template: str, content: Any) -> str:
    """Return a page of this folder as text, with its parts and its data.

    template: the name of a file with `@NAME@` for each file that is a part of it, perhaps of other
      pages too, and `@DATA@` in a script element for the content, in JSON.
    """
    text = _INCLUDED.sub(lambda found: _read(found[1]), _read(template))
    encoded = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":  # the JSON must not end the element that it stands in
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    before, after = text.split("@DATA@")
    return before + encoded + after


def _read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
