// §3 The model, as in jax_transformer/models. It computes one position at a time: x is the vector of
// a position, a Float32Array, and several positions are an array of vectors.
//
// `changes` is what a reader may change: { dropped, temperature, scaled, positions, radius }.
// `sown` collects attention weights: sown["encoder_0/self_attention"][query][head][key].

// ---- models/attention.py ----

// softmax(q K^T / sqrt(d_k)) of one query, equation (1) of §3.2.1. mask(k): true if it may attend.
function attentionWeights(query, keys, mask, changes) {
  const scale = (changes.scaled ? query.length ** -0.5 : 1) / changes.temperature;
  const scores = keys.map((key, k) => (mask(k) ? dot(query, key) * scale : -Infinity));
  return softmax(scores);
}

// The mean of the values under the weights, the rest of equation (1).
function weightedValues(weights, values) {
  const mean = new Float32Array(values[0].length);
  values.forEach((value, k) => {
    for (let i = 0; i < mean.length; i++) mean[i] += weights[k] * value[i];
  });
  return mean;
}

// MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O (§3.2.2).
class MultiHeadAttention {
  constructor(parameters, name, numHeads) {
    Object.assign(this, { name, numHeads });
    for (const map of ["query", "key", "value", "output"]) {
      this[map] = dense(parameters, `${name}/${map}`);
    }
  }

  // x W^K and x W^V of every head.
  keysValues(x) {
    return { keys: this.split(this.key(x)), values: this.split(this.value(x)) };
  }

  // Let x attend to positions, given by their `keysValues`.
  attend(x, attended, mask, changes, sown) {
    const weights = this.split(this.query(x)).map((query, h) =>
      attentionWeights(query, attended.map((position) => position.keys[h]), mask, changes));
    (sown[this.name] ??= []).push(weights);
    const heads = weights.map((own, h) =>
      weightedValues(own, attended.map((position) => position.values[h])));
    heads.forEach((head, h) => { if (changes.dropped.has(`${this.name} ${h}`)) head.fill(0); });
    return this.output(new Float32Array(heads.flatMap((head) => [...head])));
  }

  split(x) {
    const width = x.length / this.numHeads;
    const starts = Array.from({ length: this.numHeads }, (_, h) => h * width);
    return starts.map((start) => x.subarray(start, start + width));
  }
}

// Restricted attention (§4): positions at most `radius` from position i, all of them if it is 0.
const near = (i, radius) => (k) => !radius || Math.abs(i - k) <= radius;

// ---- models/layers.py ----

// sin(position f) and cos(position f) for each frequency f, alternating.
function sinesAndCosines(position, frequencies) {
  const angles = frequencies.map((f) => Math.fround(position * Math.fround(f)));
  return angles.flatMap((angle) => [Math.sin(angle), Math.cos(angle)]);
}

// PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i+1) = cos(the same) (§3.5).
function positionalEncoding(position, dModel) {
  const exponents = Array.from({ length: dModel / 2 }, (_, i) => 2 * i / dModel);
  return sinesAndCosines(position, exponents.map((exponent) => 10000 ** -exponent));
}

// LayerNorm(x + Sublayer(x)) of §3.1, with `after` the norm; in a relative of the paper's model it
// stands `before` the sub-layer.
function addNorm(parameters, name, config) {
  const norm = layerNorm(parameters, `${name}/norm`, config.norm_epsilon);
  const same = (x) => x, add = (x, y) => x.map((v, i) => v + y[i]);
  return config.norm_position === "pre"
    ? { before: norm, after: add }
    : { before: same, after: (x, y) => norm(add(x, y)) };
}

function layerNorm(parameters, name, epsilon) {
  const scale = parameters[`${name}/scale`], bias = parameters[`${name}/bias`];
  return (x) => {
    const mean = sum(x) / x.length;
    const deviation = Math.sqrt(sum(x.map((v) => (v - mean) ** 2)) / x.length + epsilon);
    return x.map((v, i) => (v - mean) / deviation * scale[i] + bias[i]);
  };
}

// FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (§3.3).
function feedForward(parameters, name, config) {
  const inner = dense(parameters, `${name}/inner`), outer = dense(parameters, `${name}/outer`);
  return (x) => outer(inner(x).map(ACTIVATIONS[config.activation]));
}

const ACTIVATIONS = {
  relu: (v) => Math.max(0, v),
  swish: (v) => v / (1 + Math.exp(-v)),
  gelu: (v) => v * (1 + erf(v / Math.SQRT2)) / 2,
};

// One matrix E: token -> E[token] sqrt(d_model), and h -> h E^T (§3.4).
class Embedding {
  constructor(matrix, dModel) {
    const starts = Array.from({ length: matrix.length / dModel }, (_, token) => token * dModel);
    this.rows = starts.map((start) => matrix.subarray(start, start + dModel));
  }

  embed(token) {
    return this.rows[token].map((v) => v * this.rows[token].length ** 0.5);
  }

  logits(hidden) {
    return new Float32Array(this.rows.map((row) => dot(row, hidden)));
  }
}

// ---- models/transformer.py ----

// Self-attention, then a feed-forward network, each in Add & Norm: Figure 1, left (§3.1).
class EncoderLayer {
  constructor(parameters, name, config) {
    this.selfAttention = new MultiHeadAttention(parameters, `${name}/self_attention`, config.num_heads);
    this.selfAttentionNorm = addNorm(parameters, `${name}/self_attention_norm`, config);
    this.feedForward = feedForward(parameters, `${name}/feed_forward`, config);
    this.feedForwardNorm = addNorm(parameters, `${name}/feed_forward_norm`, config);
  }

  apply(xs, changes, sown) {
    const inputs = xs.map(this.selfAttentionNorm.before);
    const attended = inputs.map((input) => this.selfAttention.keysValues(input));
    return xs.map((x, i) => {
      const mask = near(i, changes.radius);
      const attention = this.selfAttention.attend(inputs[i], attended, mask, changes, sown);
      x = this.selfAttentionNorm.after(x, attention);
      return this.feedForwardNorm.after(x, this.feedForward(this.feedForwardNorm.before(x)));
    });
  }
}

// Like `EncoderLayer`, with attention over the encoder's output between: Figure 1, right (§3.1).
class DecoderLayer extends EncoderLayer {
  constructor(parameters, name, config) {
    super(parameters, name, config);
    this.crossAttention = new MultiHeadAttention(parameters, `${name}/cross_attention`, config.num_heads);
    this.crossAttentionNorm = addNorm(parameters, `${name}/cross_attention_norm`, config);
  }

  // x: the newest position. cached: keys and values of those before it. memory: of the source.
  apply(x, cached, memory, changes, sown) {
    const input = this.selfAttentionNorm.before(x);
    const attended = [...cached, this.selfAttention.keysValues(input)];
    const mask = near(cached.length, changes.radius);
    const attention = this.selfAttention.attend(input, attended, mask, changes, sown);
    x = this.selfAttentionNorm.after(x, attention);
    const query = this.crossAttentionNorm.before(x);
    const overSource = this.crossAttention.attend(query, memory, () => true, changes, sown);
    x = this.crossAttentionNorm.after(x, overSource);
    x = this.feedForwardNorm.after(x, this.feedForward(this.feedForwardNorm.before(x)));
    return { x, attended };
  }
}

// The model of Figure 1. parameters: arrays by their names in the Flax module. marks: for a parser
// that counts words (§6.3), 1 for each source token that begins one, and each tag that completes one.
class Transformer {
  constructor(config, parameters, marks = {}) {
    Object.assign(this, { config, marks, positionTable: parameters.position_table });
    const embedding = (name) => new Embedding(parameters[`${name}/matrix`], config.d_model);
    const own = (name, shared) => (parameters[`${name}/matrix`] ? embedding(name) : shared);
    this.embedding = embedding("embedding");
    this.targetEmbedding = own("target_embedding", this.embedding);
    this.outputEmbedding = own("output_embedding", this.targetEmbedding);
    const layers = (Layer, stack, count) => Array.from(
      { length: count }, (_, i) => new Layer(parameters, `${stack}_${i}`, config));
    this.encoder = layers(EncoderLayer, "encoder", config.num_layers);
    this.decoder = layers(DecoderLayer, "decoder", config.decoder_layers || config.num_layers);
    const topNorm = (stack) => (config.norm_position === "pre"
      ? layerNorm(parameters, `${stack}_norm`, config.norm_epsilon) : (x) => x);
    this.encoderNorm = topNorm("encoder");
    this.decoderNorm = topNorm("decoder");
    this.outputBias = parameters.output_bias;
  }

  // The encoder's hidden state of every source token.
  encode(source, changes, sown) {
    let word = -1;
    const xs = source.map((token, position) => {
      word += this.marks.source?.[token] ?? 0;
      return this.embed(this.embedding, token, position, word, changes);
    });
    return this.encoder.reduce((x, layer) => layer.apply(x, changes, sown), xs).map(this.encoderNorm);
  }

  // The keys and values of every decoder layer for what `encode` gave.
  remember(encoded) {
    return this.decoder.map((layer) => encoded.map((x) => layer.crossAttention.keysValues(x)));
  }

  emptyCache() {
    return { layers: this.decoder.map(() => []), word: 0 };
  }

  // The logits of the token that follows `token`, and the cache with `token` added.
  decodeStep(memory, cache, token, changes, sown) {
    const word = cache.word + (this.marks.target?.[token] ?? 0);
    let x = this.embed(this.targetEmbedding, token, cache.layers[0].length, word, changes);
    const layers = this.decoder.map((layer, i) => {
      const after = layer.apply(x, cache.layers[i], memory[i], changes, sown);
      x = after.x;
      return after.attended;
    });
    let logits = this.outputEmbedding.logits(this.decoderNorm(x));
    if (this.outputBias) logits = logits.map((v, i) => v + this.outputBias[i]);
    return { logits, cache: { layers, word } };
  }

  embed(embedding, token, position, word, changes) {
    const x = embedding.embed(token);
    if (!changes.positions) return x;
    const encoding = this.encoding(position, word);
    return x.map((v, i) => v + encoding[i]);
  }

  encoding(position, word) {
    const { positionTable: table, config: { d_model: dModel } } = this;
    if (table) return table.subarray(position * dModel, (position + 1) * dModel);
    if (!this.marks.source) return positionalEncoding(position, dModel);
    // parsing/word_positions.py: half of the encoding is the word's number.
    const exponents = Array.from({ length: dModel / 4 }, (_, i) => i / (dModel / 4 - 1 || 1));
    const frequencies = exponents.map((exponent) => Math.PI * 100 ** -exponent);
    return [...positionalEncoding(position, dModel / 2), ...sinesAndCosines(word, frequencies)];
  }
}

// ---- arithmetic ----

// x W + b for a matrix W of inputs by outputs; b may be missing.
function dense(parameters, name) {
  const kernel = parameters[`${name}/kernel`], bias = parameters[`${name}/bias`];
  return (x) => {
    const y = new Float32Array(kernel.length / x.length);
    if (bias) y.set(bias);
    for (let i = 0, at = 0; i < x.length; i++) {
      const factor = x[i];
      for (let j = 0; j < y.length; j++, at++) y[j] += factor * kernel[at];
    }
    return y;
  };
}

function dot(x, y) {
  let total = 0;
  for (let i = 0; i < x.length; i++) total += x[i] * y[i];
  return total;
}

const sum = (x) => x.reduce((total, v) => total + v, 0);

function softmax(scores) {
  const highest = scores.reduce((a, b) => Math.max(a, b));
  const powers = scores.map((score) => Math.exp(score - highest));
  const total = sum(powers);
  return powers.map((power) => power / total);
}

// Abramowitz and Stegun's approximation 7.1.26, right to 1.5e-7.
function erf(v) {
  const t = 1 / (1 + 0.3275911 * Math.abs(v));
  const terms = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];
  return Math.sign(v) * (1 - terms.reduce((all, term) => (all + term) * t, 0) * Math.exp(-v * v));
}
