// The trained model in a Web Worker, so that the page never waits for it.

// content: what jax_transformer/viewer/live_page.py writes.
class Trained {
  constructor(content) {
    const values = floats(content.weights), parameters = {};
    let start = 0;
    for (const [name, size] of content.parameters) {
      parameters[name] = values.subarray(start, start += size);
    }
    this.model = new Transformer(content.config, parameters, content.marks);
    this.source = new Vocabulary(content.source);
    this.target = new Vocabulary(content.target);
    this.parses = content.parses;
    this.longest = content.max_source;
  }

  // The tokens of a sentence, cut to the longest that the model reads. A parser reads word by word.
  encode(text) {
    const { pad_id: pad, eos_id: eos, unk_id: unk } = this.source;
    const words = this.parses ? text.split(/[ \t\r\n]+/).filter((word) => word) : [text];
    const cut = words.map((word) => this.source.encode(word));
    const tokens = cut.flatMap((ids) => (this.parses && !ids.length ? [unk] : ids));
    return [...tokens.slice(0, this.longest - 1), ...(eos === pad ? [] : [eos])];
  }

  // Yield what `beamSearch` does, with the attention weights of each hypothesis that was read.
  * search(tokens, changes, decoding, sown = {}) {
    const memory = this.model.remember(this.model.encode(tokens, changes, sown));
    const step = (token, state) => {
      const attention = {}, cache = state ?? this.model.emptyCache();
      const after = this.model.decodeStep(memory, cache, token, changes, attention);
      return { logits: after.logits, state: after.cache, attention };
    };
    const limit = tokens.length + decoding.max_extra_length;
    yield* beamSearch(step, limit, decoding, this.target.bos_id, this.target.eos_id);
  }

  // Yield what the page draws: hypotheses by their numbers, in the order in which they were made.
  // request: { text, changes, decoding }, and `usual`, the last two as the model was trained, if they
  // are others.
  * reports({ text, changes, decoding, usual }) {
    const tokens = this.encode(text), encoder = {}, numbers = new Map();
    const numberOf = (hypothesis) => {
      if (!numbers.has(hypothesis)) numbers.set(hypothesis, numbers.size);
      return numbers.get(hypothesis);
    };
    if (tokens.every((token) => token === this.source.eos_id)) {
      yield { empty: true };
      return;
    }
    let time = 0, steps = 0, started = performance.now(), last = null;
    for (const { read, written, best } of this.search(tokens, changes, decoding, encoder)) {
      time += performance.now() - started;
      steps++;
      yield {
        read: read.map(({ hypothesis, logProbs, attention }) => ({
          id: numberOf(hypothesis),
          attention,
          candidates: largest(logProbs, 6).map((token) => ({ token, p: Math.exp(logProbs[token]) })),
        })),
        written: written.map((hypothesis) => {
          const { parent, token, logProb, score } = hypothesis;
          return { id: numberOf(hypothesis), parent: numberOf(parent), token, logProb, score };
        }),
        best: best && numberOf(best),
      };
      last = best;
      started = performance.now();
    }
    const before = usual && [...this.search(tokens, usual.changes, usual.decoding)].at(-1).best;
    const textOf = (hypothesis) => this.target.decode(tokensOf(hypothesis));
    yield {
      done: true, tokens, encoder, steps, milliseconds: time / steps,
      output: textOf(last), before: before && textOf(before),
    };
  }
}

let trained = null, newest = 0;
self.onmessage = ({ data }) => {
  trained ??= new Trained(data.content);
  if (data.text !== undefined) answer(data).catch((error) => setTimeout(() => { throw error; }));
};

async function answer(request) {
  const mine = ++newest;
  for (const report of trained.reports(request)) {
    self.postMessage({ number: request.number, ...report });
    await new Promise((resume) => setTimeout(resume));
    if (mine !== newest) return;  // a newer request has come
  }
}

function tokensOf(hypothesis) {
  return hypothesis.parent ? [...tokensOf(hypothesis.parent), hypothesis.token] : [];
}

// Numbers of 16 bits in base64, as float32.
function floats(base64) {
  const text = atob(base64), halves = new Uint16Array(text.length / 2);
  for (let i = 0; i < halves.length; i++) {
    halves[i] = text.charCodeAt(2 * i) | text.charCodeAt(2 * i + 1) << 8;
  }
  const value = (half) => {
    const exponent = half >> 10 & 31, fraction = half & 1023;
    const size = exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction;
    return half >> 15 ? -size : size;
  };
  const table = Float32Array.from({ length: 65536 }, (_, half) => value(half));
  return Float32Array.from(halves, (half) => table[half]);
}
