"""§6.1 Searches of lines that come one by one: each is answered once its own output is done."""

import logging
from bisect import insort
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from jax_transformer.decoding.batches import padded, padded_length
from jax_transformer.decoding.line_search import (
    Hypothesis,
    Line,
    LineSearch,
    Sentence,
    Translation,
    hypotheses,
    not_finite,
)
from jax_transformer.decoding.stream_search import StreamSearch, spoiled
from jax_transformer.errors import reason_of

logger = logging.getLogger(__name__)


def sizes(full: int, devices: int) -> list[int]:
    """Return the numbers of slots to compile searches for, each about twice the one before.

    On a CPU a step takes nearly as long for an empty slot as for one with a line.

    >>> sizes(42, devices=2)
    [2, 4, 8, 16, 42]
    """
    smaller = (devices * 2**power for power in range(16))
    return [*(size for size in smaller if 2 * size < full), -(-full // devices) * devices]


def steps(size: int, width: int) -> int:
    """Return the steps of a search before other lines may enter it, and other searches go on.

    size, width: its slots, and the length of their sources. A call costs as much as some steps of
    few short slots, so more of these are done together.
    """
    return max(8192 // (size * width), 4)


class Answer(Future[list[list[Translation]]]):
    """The outputs of a line that are to come. left: True once nobody waits for them."""

    left = False


@dataclass(eq=False)
class _Entry:
    """A line; its result is running once it has a slot.

    turn: lower ones enter first. alone: True after a search without an output, whose slot another
      line may have left with NaN; only a search in slots of its own decides.
    """

    sentence: Sentence
    result: Answer
    turn: int
    alone: bool = False


class _Done(NamedTuple):
    """A line whose search has ended; its search was not complete if it was too long for it."""

    entry: _Entry
    complete: bool
    best: list[Hypothesis]


class _Pool:
    """Slots of one size and length on the devices, and the lines in them.

    spoiled: True if no more lines may enter: a cache with NaN would spoil what comes after it.
    """

    def __init__(self, search: LineSearch, stream: StreamSearch, size: int, width: int) -> None:
        self.size, self.lines, self.spoiled = size, dict[int, _Entry](), False
        self._search, self._stream = search, stream
        self._shape = size, width  # as many lines may enter as there are slots
        self._numbers = [*range(2 * size)]  # those that no line has
        self._busy = [0] * search.devices.count  # lines of each device
        self._slots = stream.empty(search.params, self._shape, size)

    def advance(self, new: Sequence[_Entry], steps: int) -> list[_Done]:
        """Search until every new line has a slot, then at most `steps` steps more.

        Returns the lines that are done. The next call waits for them, though the devices have no
        work meanwhile: lines that come in their place would else wait for two calls, and each call
        would have half of the lines.
        """
        rows, devices = self.size, range(len(self._busy))
        tokens: list[list[int]] = [[] for _ in range(rows)]
        number, following = np.full(rows, -1, np.int32), [*devices]  # next row of each device
        for entry in new:
            device = min((d for d in devices if following[d] < rows), key=self._busy.__getitem__)
            row = following[device]
            tokens[row], number[row] = entry.sentence.tokens, self._numbers.pop()
            self.lines[int(number[row])] = entry
            following[device] += len(devices)
            self._busy[device] += 1
        source = padded(tokens, self._shape, self._search.vocabulary)
        arguments = self._slots, source, number, steps
        self._slots, outputs = self._stream.advance(self._search.params, *arguments, parts=8)
        ended, number, found = self._stream.ended(outputs)
        self.spoiled |= spoiled(found)
        for device in ended:
            self._busy[device] -= 1
        self._numbers += number.tolist()
        each = zip(number.tolist(), found.complete.tolist(), hypotheses(found), strict=True)
        return [_Done(self.lines.pop(number), done, best) for number, done, best in each]


@dataclass(eq=False)
class _Group:
    """The lines of one length.

    sizes: the numbers of slots in use. longer: where lines go that turn out too long for this
      search. to_compile: sizes that come into use once they are compiled.
    """

    search: LineSearch
    stream: StreamSearch
    sizes: list[int]
    width: int
    longer: "_Group | None" = None
    to_compile: list[int] = field(default_factory=list)
    waiting: list[_Entry] = field(default_factory=list)
    pools: list[_Pool] = field(default_factory=list)

    @property
    def busy(self) -> bool:
        """True if there is something to do."""
        return bool(self.total or self.to_compile)

    @property
    def lines(self) -> int:
        """The number of lines in search."""
        return sum(len(pool.lines) for pool in self.pools)

    @property
    def total(self) -> int:
        """The number of lines in search, and of those that wait."""
        return self.lines + len(self.waiting)

    def pool(self, size: int) -> _Pool:
        """Return the slots of a size that may be filled."""
        found = (pool for pool in self.pools if pool.size == size and not pool.spoiled)
        if (pool := next(found, None)) is None:
            self.pools.append(pool := _Pool(self.search, self.stream, size, self.width))
        return pool

    def compile(self) -> None:
        """Compile a size and use it: the next if there are no lines, or one that these need."""
        sizes = self.to_compile  # `close`, which another thread calls, has a list of its own
        own, total = max(self.sizes, default=0), self.total
        # Not each in between: lines wait meanwhile.
        suits = (size for size in sizes if total <= size or 4 * own <= size)
        size = next(suits, max(sizes, default=0))
        if size and (not total or own < min(total, size)):
            sizes.remove(size)
            pool = _Pool(self.search, self.stream, size, self.width)
            pool.advance([], 0)
            self.pools.append(pool)
            self.sizes = sorted([*self.sizes, size])
            self.free(total)

    def free(self, lines: int) -> None:
        """Free slots without lines that are many for so many; making others takes some steps."""
        size = max(lines, min(self.sizes, default=0))
        few = [pool for pool in self.pools if pool.size <= 4 * size and not pool.spoiled]
        self.pools = [pool for pool in self.pools if pool.lines or pool in few]

    def advance(self, done: list[_Done], *, others: bool) -> int:
        """Let lines enter the smallest slots for all; return their number.

        Those in slots of another size stay there until they are done. Lines that are done are
        appended to `done`, which has those of some slots if the search in others fails.
        others: True if lines of other lengths wait for their turn, so that it has to end soon.
        """
        sizes = (size for size in self.sizes if self.total <= size)
        filled = (pool for pool in self.pools if pool.lines)
        into = max(filled, key=attrgetter("size"), default=None)
        if self.waiting or not into:
            into = self.pool(next(sizes, self.sizes[-1]))
        # Of lines beyond the free slots few, because the call ends once each has one.
        beyond = 0 if others else max(into.size // 4, 1)
        most, began = min(into.size - len(into.lines) + beyond, into.size), 0
        alone = bool(self.waiting) and self.waiting[0].alone
        if alone:
            most, into = 1, _Pool(self.search, self.stream, self.sizes[0], self.width)
            into.spoiled = True
            self.pools.append(into)
        new = list[_Entry]()
        while self.waiting and self.waiting[0].alone == alone and len(new) < most:
            entry = self.waiting.pop(0)
            if entry.result.running():  # it comes from a shorter search, or from a spoiled one
                if entry.result.left:
                    entry.result.set_result([])
                else:
                    new.append(entry)
            elif entry.result.set_running_or_notify_cancel():
                new.append(entry)
                began += 1
        rest = [pool for pool in self.pools if pool.lines and pool is not into]
        for pool, own in ((into, new), *((pool, []) for pool in rest)):
            # Lines that wait must find slots in `into` soon, so it does no more than they need.
            waits = self.waiting and pool is into and not others
            done += pool.advance(own, 0 if waits else steps(pool.size, self.width))
        self.free(into.size)
        return began


class LiveSearch:
    """Searches without options that lines enter and leave while they run.

    Lines of each length have searches of their own, which take turns, so that a long line does not
    hold up a short one. Outputs are those of `LineSearch.search`.
    """

    def __init__(self, search: LineSearch, n_best: int) -> None:
        """Take the search of lines, and the number of outputs that its program has."""
        self._search = search
        usual, full = search.streams_for(n_best)
        self._groups = list[_Group]()
        self._by_width: dict[int, _Group] = {}
        # One program serves all lines whose output is longer than usual, because they are few.
        widest, longest = search.max_source, None
        if full.length(widest) > usual.length(widest):
            longest = _Group(search, full, sizes(1, search.devices.count), widest)
            self._groups.append(longest)
        for width in sorted(search.batches.lengths(), reverse=True):
            own = sizes(max(search.batches.tokens // width, 1), search.devices.count)
            group = self._by_width[width] = _Group(search, usual, own, width, longest)
            self._groups.append(group)
            longest = longest or group

    @property
    def busy(self) -> bool:
        """True if there are lines, or searches to compile."""
        return any(group.busy for group in self._groups)

    @property
    def total(self) -> int:
        """The number of lines in search, and of those that wait."""
        return sum(group.total for group in self._groups)

    def add(self, lines: Sequence[tuple[Line, Answer, int]]) -> None:
        """Let lines wait for their slots; the outputs of each become its result, a list of one.

        lines: (line, result, turn). They are read together: reading gives up Python's lock, which
        the threads that handle requests may keep for milliseconds.
        """
        try:
            sentences = self._search.read([line for line, _, _ in lines])
        except BaseException as error:
            if lines[1:]:
                for each in lines:
                    self.add([each])
            elif lines[0][1].set_running_or_notify_cancel():
                lines[0][1].set_exception(error)
            return
        for sentence, (_, result, turn) in zip(sentences, lines, strict=True):
            if sentence.tokens:
                width = padded_length(len(sentence.tokens) + 1, self._search.max_source)
                entry = _Entry(sentence, result, turn)
                insort(self._by_width[width].waiting, entry, key=attrgetter("turn"))
            elif result.set_running_or_notify_cancel():
                result.set_result([[]])

    def advance(self) -> tuple[int, int]:
        """Do some steps for the lines whose turn it is.

        Returns the number of lines that have entered, and of those that were searched together.
        """
        busy = [group for group in self._groups if group.busy]
        if not busy:  # another thread has called `close`
            return 0, 0
        busy.sort(key=lambda group: not group.total)
        group = busy[0]
        self._groups.remove(group)
        self._groups.append(group)
        for other in self._groups:  # the slots of one length alone stay without lines
            if other is not group and not other.total:
                other.free(0)
        before, began, done = group.lines, 0, list[_Done]()
        try:
            group.compile()
        except Exception as error:  # other sizes serve all lines, if more slowly
            logger.warning(f"a search of more lines cannot be compiled: {reason_of(error)}")
        try:
            began = group.advance(done, others=any(other.total for other in busy[1:]))
        except BaseException as error:  # of any kind: the clients are answered, others go on
            inside = (entry for pool in group.pools for entry in pool.lines.values())
            for entry in (*inside, *group.waiting):
                if entry.result.running() or entry.result.set_running_or_notify_cancel():
                    entry.result.set_exception(error)
            group.pools, group.waiting = [], []
        finished = list[_Done]()
        for each in done:
            entry = each.entry
            if entry.result.left:
                entry.result.set_result([])
            elif not each.complete and group.longer:
                group.longer.waiting.append(entry)
            elif each.best:
                finished.append(each)
            elif entry.alone:
                error = not_finite(entry.sentence.line.place, "an output")
                entry.result.set_exception(error)
            else:
                entry.alone = True
                group.waiting.insert(0, entry)
        self._answer(finished)
        return began, before + began

    def _answer(self, done: Sequence[_Done]) -> None:
        sentences = [each.entry.sentence for each in done]
        try:
            outputs = [self._search.written(each.entry.sentence, each.best) for each in done]
            completed = self._search.completed(sentences, outputs)
        except BaseException as error:
            if done[1:]:
                for each in done:
                    self._answer([each])
            else:
                done[0].entry.result.set_exception(error)
            return
        for each, own in zip(done, completed, strict=True):
            each.entry.result.set_result([own])

    def warm_up(self) -> Iterator[tuple[int, int]]:
        """Compile the smallest search of each length; yield (slots, length of sources) of each.

        `advance` compiles the others, one at a time, once no line is there or a length has more
        lines than its largest search has slots.
        """
        for group in self._groups:
            group.sizes, group.to_compile = [], group.sizes + group.to_compile
            group.compile()
            yield group.sizes[0], group.width

    def close(self) -> None:
        """Compile no more."""
        for group in self._groups:
            group.to_compile = []
