"""The search for batch shapes against brute force, hand-made corpora and real lengths."""

import numpy as np
import pytest
from real_data import words_of

from jax_transformer.data.batching import Shape, assign_shapes, learn_shapes, plan_epoch


def small_corpus(seed):
    """Pairs with up to six lengths a side, so that all choices of shapes can be tried."""
    random = np.random.default_rng(seed)
    source = random.integers(2, 8, 60)
    return source, (source + random.integers(-2, 3, 60)).clip(2, 7)


def padded(corners, source, target):
    """Tokens of all pairs in the cheapest of these (source, target) corners; inf where one fits."""
    return sum(
        min((a + b for a, b in corners if s <= a and t <= b), default=float("inf"))
        for s, t in zip(source.tolist(), target.tolist(), strict=True)
    )


def corners_of(source, target, most):
    shapes = learn_shapes(source, target, most=most, batch_tokens=40, multiple=1)
    return [(shape.source, shape.target) for shape in shapes]


def all_corners(source, target):
    return [(s, t) for s in range(2, source.max() + 1) for t in range(2, target.max() + 1)]


@pytest.mark.parametrize("seed", range(6))
def test_each_further_shape_saves_as_much_padding_as_any_other_could(seed):
    source, target = small_corpus(seed)
    for most in range(1, 6):
        before, after = (corners_of(source, target, count) for count in (most, most + 1))
        assert set(before) < set(after)
        assert padded(after, source, target) == min(
            padded([*before, corner], source, target) for corner in all_corners(source, target)
        )


@pytest.mark.parametrize(
    ("multiple", "rows", "batches"),
    [
        (1, 250, 4),  # 256 would fit, and leave 24 rows of the fourth batch empty
        (8, 256, 4),  # 248 would leave eight pairs for a fifth batch
    ],
)
def test_rows_are_those_that_the_pairs_fill(multiple, rows, batches):
    lengths = np.full(1000, 10)
    shapes = learn_shapes(lengths, lengths, most=9, batch_tokens=2560, multiple=multiple)
    assert shapes == [Shape(10, 10, rows)]
    plan = plan_epoch(assign_shapes(lengths, lengths, shapes), shapes, shuffle=(0, 0))
    assert len(plan) == batches


@pytest.mark.parametrize("longest", [(9, 3), (3, 200), (90, 131), (1, 1)])
def test_pairs_that_are_only_announced_have_a_shape_too(longest):
    source, target = small_corpus(2)
    shapes = learn_shapes(source, target, most=3, batch_tokens=60, multiple=1, longest=longest)
    expected = max(longest[0], source.max()), max(longest[1], target.max())
    assert shapes[-1][:2] == expected
    assert len(shapes) == 3


@pytest.mark.parametrize(("name", "least"), [("multi30k/tok", 0.935), ("tatoeba_deu_eng", 0.94)])
def test_nearly_all_tokens_of_real_epochs_are_real_in_23_shapes(name, least):
    """For 1 and 8 devices; whole epochs as planned, batches that are not full included."""
    source, target = words_of(name)
    for multiple, batch_tokens in [(1, 1536), (1, 4096), (8, 4096)]:
        shapes = learn_shapes(source, target, most=23, batch_tokens=batch_tokens, multiple=multiple)
        plan = plan_epoch(assign_shapes(source, target, shapes), shapes, shuffle=(1, 0))
        computed = sum(shapes[i].rows * sum(shapes[i][:2]) for i in plan.shapes.tolist())
        share = int(source.sum() + target.sum()) / computed
        sizes = [shapes[i].rows * max(shapes[i][:2]) for i in plan.shapes.tolist()]
        assert len(shapes) <= 23
        assert share > least
        assert 0.8 * batch_tokens < np.mean(sizes) <= batch_tokens
