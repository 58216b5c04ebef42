"""Lines that enter and leave searches while they run against lines that are searched together."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tiny_translator import model_of, params_of

from jax_transformer.config import DecodingConfig
from jax_transformer.decoding import live_search
from jax_transformer.decoding.beam_search import Hypotheses
from jax_transformer.decoding.line_search import Line, LineSearch, Sentence, Translation
from jax_transformer.decoding.live_search import Answer, LiveSearch, sizes
from jax_transformer.decoding.stream_search import StreamSearch
from jax_transformer.decoding.translator import Translator
from jax_transformer.errors import InputError
from jax_transformer.parallel import Devices

WORDS = ["the", "cat", "sat", "on", "a", "mat", "katze", "die", "matte", "und", "der"]


def line(text, place="lines[0]"):
    return Line(text, place)


def add(live, text, turn=0, place="lines[0]"):
    result = Answer()
    live.add([(line(text, place), result, turn)])
    return result


def finish(live):
    while live.busy:
        live.advance()


def test_a_line_that_cannot_be_read_harms_none_that_came_with_it(translator):
    live, results = LiveSearch(translator, 1), [Answer() for _ in range(3)]
    texts = ["the cat", "a \ud800", "on a mat"]
    live.add([(line(text), result, 0) for text, result in zip(texts, results, strict=True)])
    finish(live)
    with pytest.raises(InputError, match="lone surrogate"):
        results[1].result(0)
    found = [results[i].result(0)[0][0].text for i in (0, 2)]
    assert found == [own[0].text for own in translator.search([line(texts[i]) for i in (0, 2)])]


@pytest.fixture(scope="module")
def translator(vocabulary):
    """One whose source has an embedding of its own, of which one piece is NaN."""
    model = model_of(vocabulary, tie_embeddings=False, tie_source=False)
    params = params_of(model)
    table = params["embedding"] = dict(params["embedding"])
    (name,) = table
    table[name] = np.array(table[name])
    table[name][vocabulary.encode("sat")[0]] = np.nan
    decoding = DecodingConfig(beam_size=2, max_extra_length=8, batch_tokens=144)
    return Translator(model, params, vocabulary, decoding, max_length=12, devices=Devices(2))


def test_outputs_do_not_depend_on_when_a_line_comes_nor_on_one_that_has_none(translator):
    live, random = LiveSearch(translator, 1), np.random.default_rng(4)
    bad = "cat sat on"
    texts = [" ".join(random.choice(WORDS, random.integers(0, 5))) for _ in range(60)]
    texts = [text for text in texts if "sat" not in text]
    expected = translator.search([line(text) for text in texts])
    results, failing = dict[int, Any](), dict[int, Any]()
    while len(results) < len(texts):
        for number in range(len(results), min(len(results) + random.integers(0, 9), len(texts))):
            results[number] = add(live, texts[number], turn=number)
            if number in (5, 20):
                failing[number] = add(live, bad, place=f"lines[{number}]")
        if live.busy:
            began, together = live.advance()
            assert 0 <= began <= together
    finish(live)
    for number in (5, 20):
        with pytest.raises(InputError, match=rf"^lines\[{number}\]: expected an output"):
            failing[number].result(0)
    for number, wanted in enumerate(expected):
        (found,) = results[number].result(0)
        assert [each.text for each in found] == [each.text for each in wanted]
        np.testing.assert_allclose(
            [each.score for each in found], [each.score for each in wanted], rtol=1e-4
        )


class Stream(StreamSearch):
    """A search in which a sentence takes as many steps as it has tokens; `calls` has the slots."""

    def __init__(self, usual: int) -> None:
        self.usual, self.calls = usual, list[tuple[int, int]]()

    def length(self, width):
        return min(self.usual, width + 99)

    def empty(self, params: Any, shape: Any, size: int) -> Any:
        return {"shape": (size, shape[1])}

    def advance(
        self, params: Any, slots: Any, source: Any, number: Any, steps: Any, *, parts: int = 1
    ) -> Any:
        size, width = slots.pop("shape")
        self.calls.append((size, width))
        both = zip(number.tolist(), source, strict=True)
        new = {n: int((row > 2).sum()) for n, row in both if n >= 0}
        busy = slots | new
        slotless = sorted(busy.values())[: max(len(busy) - size, 0)]  # until all have slots
        busy = {n: left - max([steps, *slotless]) for n, left in busy.items()}
        ended = [n for n, left in busy.items() if left <= 0]
        going_on = {n: left for n, left in busy.items() if left > 0}
        return going_on | {"shape": (size, width)}, ended

    def ended(self, outputs: Any) -> Any:
        numbers: Any = outputs
        count = len(numbers)
        found: Any = np.zeros((count, 1, 3)), np.zeros((count, 1)), np.zeros((count, 1))
        complete: Any = np.full(count, self.usual > 40)
        return np.zeros(count, int), np.array(numbers, int), Hypotheses(*[*found, complete])


class Letters(LineSearch):
    """A search of lines of letters on one device, with 1 to 16 slots of 24 letters."""

    max_source: Any = 48
    params: Any = None

    def __init__(self, vocabulary):
        self.streams = Stream(50), Stream(99)
        self.streams_for: Any = lambda n_best: self.streams
        self.devices: Any = SimpleNamespace(count=1)
        self.vocabulary = vocabulary
        self.batches: Any = SimpleNamespace(tokens=16 * 24, lengths=lambda: [24, 48])

    def read(self, lines):
        return [Sentence(own, [3] * len(own.text)) for own in lines]

    def written(self, sentence, found):
        return [Translation(sentence.line.text, 0.0, 0.0, 1)]

    def program(self, request):
        raise AssertionError(request)


@pytest.fixture
def fake(vocabulary):
    search = Letters(vocabulary)
    return search, search.streams


def text_of(result):
    ((output,),) = result.result(0)
    return output.text


def test_lines_enter_the_smallest_slots_for_all_in_their_turns(fake):
    search, streams = fake
    live = LiveSearch(search, 1)
    assert sizes(16, devices=1) == [1, 2, 4, 16]
    add(live, "a")
    live.advance()
    assert streams[0].calls == [(1, 24)]
    finish(live)
    late = [add(live, "b", turn=9) for _ in range(2)]
    early = [add(live, "c", turn=8) for _ in range(16)]
    given_up = add(live, "d", turn=1)
    assert given_up.cancel()
    live.advance()
    assert streams[0].calls[-1] == (16, 24)
    assert [line.running() for line in (*early, *late)] == [True] * 16 + [False] * 2
    finish(live)
    assert [text_of(line) for line in late] == ["b", "b"]
    assert add(live, "").result(0) == [[]]


def test_the_warm_up_compiles_one_search_of_each_length(fake):
    search, streams = fake
    live = LiveSearch(search, 1)
    compiled = [*live.warm_up()]
    assert sorted(compiled) == [(1, 24), (1, 48), (1, 48)]  # and one for outputs that are longer
    assert live.busy
    live.close()
    result = add(live, "a")
    finish(live)
    assert text_of(result) == "a"
    assert {size for size, _ in streams[0].calls} == {1}


def test_sizes_that_the_warm_up_left_come_into_use(fake):
    search, streams = fake
    live = LiveSearch(search, 1)
    assert [*live.warm_up()]
    assert streams[0].calls.count((4, 24)) == 0
    finish(live)
    assert streams[0].calls.count((4, 24)) == streams[0].calls.count((16, 24)) == 1
    several = [add(live, letter) for letter in "abcd"]
    finish(live)
    assert (4, 24) in streams[0].calls[-len(several) :]
    assert [text_of(each) for each in several] == [*"abcd"]


def test_a_line_does_not_wait_for_sizes_that_it_does_not_need(fake):
    search, streams = fake
    live = LiveSearch(search, 1)
    assert [*live.warm_up()]
    result = add(live, "a")
    while not result.done():
        live.advance()
    assert {size for stream in streams for size, _ in stream.calls} == {1}
    several = [add(live, letter) for letter in "abcd"]
    while not all(each.done() for each in several):
        live.advance()
    assert {size for stream in streams for size, _ in stream.calls} == {1, 4}
    finish(live)


def test_lines_wait_for_few_sizes_and_for_none_once_they_have_the_most(fake):
    search, streams = fake
    live = LiveSearch(search, 1)
    assert [*live.warm_up()]
    many = [add(live, "ab") for _ in range(40)]
    while not all(each.done() for each in many):
        live.advance()
    assert {size for size, width in streams[0].calls if width == 24} == {1, 4, 16}
    finish(live)
    assert {size for size, width in streams[0].calls if width == 24} == {1, 2, 4, 16}


def test_lines_that_are_left_need_no_slots_of_other_sizes(fake):
    search, streams = fake
    live = LiveSearch(search, 1)
    lines = [add(live, "a" * length) for length in range(1, 24)]
    while any(not each.running() and not each.done() for each in lines):
        live.advance()
    before = len(streams[0].calls)
    finish(live)
    assert {size for size, _ in streams[0].calls[before:]} == {16}


def test_a_short_line_does_not_wait_for_a_long_one(fake):
    search, _ = fake
    live = LiveSearch(search, 1)
    long = [add(live, "x" * 40) for _ in range(6)]
    live.advance()
    short = add(live, "a")
    while not short.done():
        live.advance()
    assert not any(each.done() for each in long)
    finish(live)
    assert all(each.done() for each in long)


def test_lines_that_wait_for_slots_hold_up_no_other_length(fake, monkeypatch):
    monkeypatch.setattr(live_search, "steps", lambda size, width: 4)
    search, _ = fake
    live = LiveSearch(search, 1)
    long = [add(live, "x" * 40) for _ in range(20)]
    for _ in range(8):
        add(live, "a")
        live.advance()
    assert sum(each.running() for each in long) == 8  # the slots of their length
    finish(live)
    assert all(each.done() for each in long)


def test_what_was_given_up_after_it_began_is_not_searched_again(fake):
    search, streams = fake
    streams[0].usual = 30  # so that each line goes on to a longer search
    live = LiveSearch(search, 1)
    left, other = add(live, "abc"), add(live, "abc")
    while not left.running():
        live.advance()
    waiting = add(live, "abc")
    assert [left.cancel(), waiting.cancel()] == [False, True]
    left.left = waiting.left = True
    finish(live)
    assert left.result(0) == []
    assert waiting.cancelled()
    assert text_of(other) == "abc"


def test_a_size_that_cannot_be_compiled_is_left_out_with_a_warning(fake, monkeypatch, caplog):
    search, streams = fake
    live = LiveSearch(search, 1)
    assert [*live.warm_up()]
    empty = streams[0].empty

    def refuse(params, shape, size):
        if size > 1:
            raise MemoryError("of the device")
        return empty(params, shape, size)

    monkeypatch.setattr(streams[0], "empty", refuse)
    several = [add(live, letter) for letter in "abcd"]
    finish(live)
    assert [text_of(each) for each in several] == [*"abcd"]
    assert "cannot be compiled: MemoryError: of the device" in caplog.text


def test_slots_that_cannot_be_searched_are_not_kept(fake, monkeypatch):
    search, streams = fake
    live = LiveSearch(search, 1)
    assert [*live.warm_up()]
    advance = streams[0].advance

    def refuse(params: Any, slots: Any, *rest: Any, parts: int) -> Any:
        if slots["shape"][0] == 4:
            raise MemoryError("of the device")
        return advance(params, slots, *rest, parts=parts)

    monkeypatch.setattr(streams[0], "advance", refuse)
    finish(live)
    several = [add(live, letter) for letter in "abcd"]
    finish(live)
    assert [text_of(each) for each in several] == [*"abcd"]
    assert 4 not in {pool.size for group in live._groups for pool in group.pools}


def test_a_line_goes_on_while_others_wait_for_larger_slots(fake, monkeypatch):
    search, _ = fake
    monkeypatch.setattr(live_search, "steps", lambda size, width: 4)
    live = LiveSearch(search, 1)
    early = add(live, "x" * 12)
    live.advance()
    later = [add(live, "y") for _ in range(100)]
    for _ in range(4):
        live.advance()
    assert early.done()
    assert not later[-1].running()
    live.close()
    assert live.advance() != (0, 0)


def test_a_search_that_was_closed_with_nothing_to_do_does_nothing(fake):
    live = LiveSearch(fake[0], 1)
    assert [*live.warm_up()]
    live.close()
    assert live.advance() == (0, 0)


def test_a_line_that_is_too_long_for_its_search_is_searched_in_another(fake):
    search, streams = fake
    streams[0].usual = 30
    live = LiveSearch(search, 1)
    result = add(live, "abc")
    finish(live)
    assert text_of(result) == "abc"
    assert streams[1].calls


def test_a_fault_is_told_to_its_lines_and_later_ones_are_answered(fake):
    search, streams = fake
    live = LiveSearch(search, 1)
    empty, streams[0].empty = streams[0].empty, lambda params, shape, size: {}
    first = add(live, "a")
    finish(live)
    assert isinstance(first.exception(0), KeyError)
    streams[0].empty = empty
    second = add(live, "b")
    finish(live)
    assert text_of(second) == "b"


def test_a_fault_in_some_slots_leaves_what_others_have_done(fake, monkeypatch):
    monkeypatch.setattr(live_search, "steps", lambda size, width: 4)
    search, streams = fake
    live = LiveSearch(search, 1)
    long = add(live, "x" * 20)
    live.advance()
    short = add(live, "y", turn=1)  # it needs more slots
    live.advance()
    advance = streams[0].advance

    def failing(params: Any, slots: Any, *rest: Any, parts: int) -> Any:
        if slots["shape"][0] == 1:
            raise RuntimeError("no memory")
        return advance(params, slots, *rest, parts=parts)

    monkeypatch.setattr(streams[0], "advance", failing)
    finish(live)
    assert isinstance(long.exception(0), RuntimeError)
    assert text_of(short) == "y"


def test_lines_without_an_output_are_searched_again_in_slots_of_their_own(fake, monkeypatch):
    search, streams = fake
    ended = streams[0].ended

    def not_numbers(outputs: Any) -> Any:  # as if a bad line had been in all shared slots
        devices, numbers, found = ended(outputs)
        if streams[0].calls[-1][0] > 1:
            found.scores[:] = np.nan
        return devices, numbers, found

    monkeypatch.setattr(streams[0], "ended", not_numbers)
    live = LiveSearch(search, 1)
    lines = [add(live, "xxx", turn=20) for _ in range(8)]
    (group,) = [group for group in live._groups if group.waiting]
    while not any(entry.alone for entry in group.waiting):
        live.advance()
    lines += [add(live, "new", turn=7) for _ in range(2)]
    finish(live)
    assert [text_of(each) for each in lines] == ["xxx"] * 8 + ["new"] * 2


def test_slots_without_lines_are_freed_once_they_are_many_for_the_lines(fake):
    search, _ = fake
    live = LiveSearch(search, 1)
    assert [*live.warm_up()]
    finish(live)
    several = [add(live, letter) for letter in "abcdefg"]
    finish(live)
    assert all(each.done() for each in several)
    assert 16 in {pool.size for group in live._groups for pool in group.pools}
    add(live, "a")
    finish(live)
    assert max(pool.size for group in live._groups for pool in group.pools) <= 4


def test_slots_of_a_length_without_lines_are_freed_when_another_has_some(fake):
    search, _ = fake
    live = LiveSearch(search, 1)
    for letters in (20, 40):
        several = [add(live, "x" * letters) for _ in range(16)]
        finish(live)
        assert all(each.done() for each in several)
    largest = [max((pool.size for pool in own.pools), default=0) for own in live._groups]
    assert sorted(largest) == [0, 0, 8], largest
