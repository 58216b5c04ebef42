// The trained model in a Web Worker, so that the page never waits for it.

// content: what jax_transformer/viewer/live_page.py writes.
class Trained {
  constructor(content) {
    const halves = new Float16Array(Uint8Array.fromBase64(content.weights).buffer);
    const values = new Float32Array(halves), parameters = {};
    let start = 0;
    for (const [name, size] of content.parameters) {
      parameters[name] = values.subarray(start, start += size);
    }
    const { parses, max_source: longest, target } = content;
    Object.assign(this, { parses, longest, target });
    this.model = new Transformer(content.config, parameters, content.marks);
    this.source = new Vocabulary(content.source);
  }

  // The tokens of a sentence, cut to the longest that the model reads. A parser reads whole words.
  encode(text) {
    const { source, parses, longest } = this, { pad_id: pad, eos_id: eos } = source;
    const words = parses ? source.encodeWords(text.match(/[^ \t-\r]+/g) ?? []) : [source.encode(text)];
    let end = 0;
    const kept = words.filter((ids, i) => (end += ids.length) < longest || !i).flat();
    this.isCut = end >= longest;
    return [...kept.slice(0, longest - 1), ...(eos === pad ? [] : [eos])];
  }

  // Yield what `beamSearch` does, with the attention weights of each hypothesis that was read.
  // settings: those of the search, and the changes of the model.
  * search(tokens, settings, sown = {}) {
    const memory = this.model.remember(this.model.encode(tokens, settings, sown));
    const step = (token, state) => {
      const attention = {}, cache = state ?? this.model.emptyCache();
      const after = this.model.decodeStep(memory, cache, token, settings, attention);
      return { logits: after.logits, state: after.cache, attention };
    };
    const limit = tokens.length + settings.max_extra_length;
    yield* beamSearch(step, limit, settings, this.target.bos_id, this.target.eos_id);
  }

  // Yield what the page draws after each step: hypotheses by their numbers, in the order in which
  // they were made; and at the end { done, ... }. usual: settings of the model as it was trained, if
  // those of the request are others.
  * reports({ text, settings, usual }) {
    const tokens = this.encode(text), { isCut } = this, encoder = {};
    if (tokens.every((token) => token === this.source.eos_id)) {
      yield { empty: true };
      return;
    }
    let count = 0, started = performance.now();
    const numberOf = (hypothesis) => hypothesis.number ??= count++;
    for (const { read, written, best } of this.search(tokens, settings, encoder)) {
      const milliseconds = performance.now() - started;
      yield {
        milliseconds,
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
      started = performance.now();
    }
    let before = null;
    for (const { best } of usual ? this.search(tokens, usual) : []) {
      before = best;
      yield null;  // nothing to draw, but a newer request may have come
    }
    yield { done: true, tokens, isCut, encoder, before: before && tokensOf(before) };
  }
}

const tokensOf = ({ parent, token }) => (parent ? [...tokensOf(parent), token] : []);

let trained = null, newest = 0;
self.onmessage = ({ data }) => {
  if (data.content) trained = new Trained(data.content);
  if (!trained) return;  // its error has been reported
  if (data.text !== undefined) answer(data).catch(reportError);
};

// request.pause: milliseconds between reports, so that a person can follow.
async function answer(request) {
  newest = request.number;
  let due = 0;
  for (const report of trained.reports(request)) {
    await new Promise((resume) => setTimeout(resume, due - performance.now()));
    if (request.number !== newest) return;  // a newer request has come
    if (!report) continue;
    self.postMessage({ number: request.number, ...report });
    due = performance.now() + request.pause;
  }
}
