// §6.1 Beam search, as in jax_transformer/decoding/beam_search.py: the same length penalty, order of
// candidates and stopping rule. Greedy search is beam 1.

const PENALTIES = {
  gnmt: (length, alpha) => ((5 + length) / 6) ** alpha,
  length: (length, alpha) => length ** alpha,
};

// Yield after each step { read, written, best }: the hypotheses whose newest token was read, each
// with what `step` gave and log P of every next token, and those that are one token longer. A
// hypothesis is { parent, token, logProb, length }; if it has ended, it has a score, and `best` is
// the one with the highest of all so far.
//
// step(token, state) -> { logits, state, ... }; state is null at the beginning.
// maxLength: the maximum number of tokens, the end mark included.
function* beamSearch(step, maxLength, settings, bos, eos) {
  const { beam_size: size, alpha, patience, narrowing } = settings;
  const penalty = PENALTIES[settings.length_penalty];
  const enough = patience ? Math.max(Math.ceil(Number((size * patience).toFixed(6))), 1) : Infinity;
  let alive = [{ parent: null, token: bos, logProb: 0, length: 0, state: null }];
  let best = null, ended = 0;
  // Log P never rises, so a hypothesis scores at most its log P / penalty at the limit.
  const canImprove = () => alive.length > 0
    && (!best || alive[0].logProb / penalty(maxLength, alpha) > best.score);
  while (canImprove()) {
    const length = alive[0].length + 1;
    const read = alive.map((hypothesis) => {
      const { state, logits, ...rest } = step(hypothesis.token, hypothesis.state);
      return { ...rest, hypothesis, state, logProbs: logSoftmax(logits) };
    });
    let candidates = read.flatMap(({ hypothesis, state, logProbs }) => {
      const tokens = length < maxLength ? largest(logProbs, 2 * size) : [eos];
      return tokens.map((token) => ({
        parent: hypothesis, token, logProb: hypothesis.logProb + logProbs[token], length, state,
      }));
    });
    candidates.sort((a, b) => b.logProb - a.logProb);  // it is stable
    candidates = candidates.slice(0, size > 1 ? 2 * size : 1);
    if (patience) {  // hypotheses end, and with narrowing go on, only among the best
      candidates = candidates.filter(({ token }, rank) =>
        (narrowing ? rank < size - ended : token !== eos || rank < size));
    }
    const ends = candidates.filter(({ token }) => token === eos);
    ended += ends.length;
    for (const hypothesis of ends) {
      hypothesis.score = hypothesis.logProb / penalty(length, alpha);
      if (!best || hypothesis.score > best.score) best = hypothesis;
    }
    alive = candidates.filter(({ token }) => token !== eos).slice(0, size);
    yield { read, written: [...alive, ...ends], best };
    if (ended >= enough) alive = [];
  }
}

// The indices of the largest values, largest first; of equal ones the first comes first.
function largest(values, count) {
  const best = [];
  for (let index = 0; index < values.length; index++) {
    if (best.length === count && !(values[index] > values[best[count - 1]])) continue;
    let place = best.length;
    while (place > 0 && values[index] > values[best[place - 1]]) place--;
    best.splice(place, 0, index);
    best.length = Math.min(best.length, count);
  }
  return best;
}
