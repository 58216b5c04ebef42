"""What a user sees of a mistake."""

from collections.abc import Callable
from typing import Any

import pytest

from jax_transformer.errors import InputError


def refusal(call: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """The message of the InputError that the call raises: one line."""
    with pytest.raises(InputError) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)
