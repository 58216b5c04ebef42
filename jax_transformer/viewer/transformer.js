// §3 The model, as in jax_transformer/models. It computes one position at a time: x is the vector of
// a position, a Float32Array, and several positions are an array of vectors.
//
// `changes` is what a reader may change: { dropped, temperature, scaled, positions, radius }.
// `sown` collects attention weights: sown["encoder_0/self_attention"][query][head][key].

// ---- models/attention.py ----

// softmax(q K^T / sqrt(d_k)) of one query, equation (1) of §3.2.1. mask(k): true if it may attend.
function attentionWeights(query, keys, mask, changes) {
  const scale = (changes.scaled ? query.length ** -0.5 : 1) / changes.temperature;
  return softmax(keys.map((key, k) => (mask(k) ? dot(query, key) * scale : -Infinity)));
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
    const { numHeads } = this;
    return { keys: parts(this.key(x), numHeads), values: parts(this.value(x), numHeads) };
  }

  // Let x attend to positions, given by their `keysValues`.
  attend(x, attended, mask, changes, sown) {
    const weights = parts(this.query(x), this.numHeads).map((query, h) =>
      attentionWeights(query, attended.map((position) => position.keys[h]), mask, changes));
    (sown[this.name] ??= []).push(weights);
    const heads = weights.map((own, h) =>
      weightedValues(own, attended.map((position) => position.values[h])));
    heads.forEach((head, h) => { if (changes.dropped.has(`${this.name} ${h}`)) head.fill(0); });
    return this.output(new Float32Array(heads.flatMap((head) => [...head])));
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

// LayerNorm(x + Sublayer(x)) (§3.1); in a relative of the paper's model, x + Sublayer(LayerNorm(x)).
// `before` gives what the sub-layer reads.
class AddNorm {
  constructor(parameters, name, config) {
    const norm = layerNorm(parameters, `${name}/norm`, config), same = (x) => x;
    [this.before, this.after] = config.norm_position === "pre" ? [norm, same] : [same, norm];
  }

  apply(x, sublayer) {
    return this.after(add(x, sublayer(this.before(x))));
  }
}

function layerNorm(parameters, name, config) {
  const scale = parameters[`${name}/scale`], bias = parameters[`${name}/bias`];
  return (x) => {
    const mean = sum(x) / x.length, variance = sum(x.map((v) => (v - mean) ** 2)) / x.length;
    const deviation = Math.sqrt(variance + config.norm_epsilon);
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

// ---- models/transformer.py ----

// Self-attention, then a feed-forward network, each in Add & Norm: Figure 1, left (§3.1).
class EncoderLayer {
  constructor(parameters, name, config) {
    this.selfAttention = new MultiHeadAttention(parameters, `${name}/self_attention`, config.num_heads);
    this.selfAttentionNorm = new AddNorm(parameters, `${name}/self_attention_norm`, config);
    this.feedForward = feedForward(parameters, `${name}/feed_forward`, config);
    this.feedForwardNorm = new AddNorm(parameters, `${name}/feed_forward_norm`, config);
  }

  apply(xs, changes, sown) {
    const attended = xs.map((x) => this.selfAttention.keysValues(this.selfAttentionNorm.before(x)));
    return xs.map((x, i) => {
      x = this.selfAttentionNorm.apply(x, (input) =>
        this.selfAttention.attend(input, attended, near(i, changes.radius), changes, sown));
      return this.feedForwardNorm.apply(x, this.feedForward);
    });
  }
}

// Like `EncoderLayer`, with attention over the encoder's output between: Figure 1, right (§3.1).
class DecoderLayer extends EncoderLayer {
  constructor(parameters, name, config) {
    super(parameters, name, config);
    this.crossAttention = new MultiHeadAttention(parameters, `${name}/cross_attention`, config.num_heads);
    this.crossAttentionNorm = new AddNorm(parameters, `${name}/cross_attention_norm`, config);
  }

  // x: the newest position. cached: keys and values of those before it. memory: of the source.
  apply(x, cached, memory, changes, sown) {
    const own = this.selfAttention.keysValues(this.selfAttentionNorm.before(x));
    const attended = [...cached, own], mask = near(cached.length, changes.radius);
    x = this.selfAttentionNorm.apply(x, (input) =>
      this.selfAttention.attend(input, attended, mask, changes, sown));
    x = this.crossAttentionNorm.apply(x, (input) =>
      this.crossAttention.attend(input, memory, () => true, changes, sown));
    return { x: this.feedForwardNorm.apply(x, this.feedForward), attended };
  }
}

// The model of Figure 1. parameters: arrays by their names in the Flax module. marks: for a parser
// that counts words (§6.3), 1 for each source token that begins one, and each tag that completes one.
class Transformer {
  constructor(config, parameters, marks = {}) {
    Object.assign(this, { config, marks, outputBias: parameters.output_bias });
    const rows = (name, table = parameters[name]) => table && parts(table, table.length / config.d_model);
    this.positionTable = rows("position_table");
    // Matrices E with a row for each token, one for all unless the model has more of them (§3.4).
    this.embedding = rows("embedding/matrix");
    this.targetEmbedding = rows("target_embedding/matrix") ?? this.embedding;
    this.outputEmbedding = rows("output_embedding/matrix") ?? this.targetEmbedding;
    const layers = (Layer, stack, count) => Array.from(
      { length: count }, (_, i) => new Layer(parameters, `${stack}_${i}`, config));
    this.encoder = layers(EncoderLayer, "encoder", config.num_layers);
    this.decoder = layers(DecoderLayer, "decoder", config.decoder_layers || config.num_layers);
    const topNorm = (stack) => (config.norm_position === "pre"
      ? layerNorm(parameters, `${stack}_norm`, config) : (x) => x);
    this.encoderNorm = topNorm("encoder");
    this.decoderNorm = topNorm("decoder");
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
    const hidden = this.decoderNorm(x);
    const logits = new Float32Array(this.outputEmbedding.map((row) => dot(row, hidden)));  // h E^T
    return { logits: add(logits, this.outputBias), cache: { layers, word } };
  }

  // E[token] sqrt(d_model) (§3.4), and the position encoding.
  embed(embedding, token, position, word, changes) {
    const x = embedding[token].map((v) => v * this.config.d_model ** 0.5);
    return add(x, changes.positions && this.encoding(position, word));
  }

  encoding(position, word) {
    const { d_model: dModel } = this.config;
    if (this.positionTable) return this.positionTable[position];
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

// x + y, or x if there is no y.
const add = (x, y) => (y ? x.map((v, i) => v + y[i]) : x);
const sum = (x) => x.reduce((total, v) => total + v, 0);
const softmax = (x) => logSoftmax(x).map(Math.exp);

function logSoftmax(x) {
  const highest = x.reduce((a, b) => Math.max(a, b));
  const total = highest + Math.log(sum(x.map((v) => Math.exp(v - highest))));
  return x.map((v) => v - total);
}

// An array in a number of parts of one length.
function parts(x, count) {
  const length = x.length / count;
  return Array.from({ length: count }, (_, i) => x.subarray(i * length, (i + 1) * length));
}

// Abramowitz and Stegun's approximation 7.1.26, right to 1.5e-7.
function erf(v) {
  const t = 1 / (1 + 0.3275911 * Math.abs(v));
  const terms = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];
  return Math.sign(v) * (1 - terms.reduce((all, term) => (all + term) * t, 0) * Math.exp(-v * v));
}
