// §5.1 The map from text to token ids, as in jax_transformer/data: what `readable` does, then
// byte-pair encoding as sentencepiece does it, with its normalization.

const SPACE = "\u2581";
const UNREADABLE = "\u2585";  // which sentencepiece never has a piece for
const ANY_SPACE = /[\s\x1c-\x1f\x85\u200b\u2581]/g;
const utf8 = (text) => new TextEncoder().encode(text);
const fromUtf8 = (bytes) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
const nameOfByte = (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;

// content: what viewer/live_page.py writes: { pieces, unk_id, ... }, and of the model of sentencepiece
// `scores`, the pieces that text is cut into, and `whole`, those of them that are never merged.
class Vocabulary {
  constructor(content) {
    Object.assign(this, content);
    this.scores = new Map(Object.entries(content.scores));
    const reserved = [content.pad_id, content.bos_id, content.eos_id, content.unk_id];
    const usual = this.pieces.map((piece, id) => [piece, id]).filter(([, id]) => !reserved.includes(id));
    this.ids = new Map(usual);
    this.letters = new Set([...this.ids.keys()].filter((piece) => !this.isByte(piece)).join(""));
    this.rules = content.charsmap && new CharacterMap(content.charsmap);
    // A character, or a piece that a user has defined, the longest first.
    this.symbol = new RegExp([...content.whole.map(RegExp.escape), "."].join("|"), "su");
  }

  // The ids of a line's pieces, without the end mark; none if there is nothing to read.
  encode(line) {
    return this.cut(this.readable(line)).map((piece) => this.ids.get(piece) ?? this.unk_id);
  }

  // The ids of each word of a tree, which begins once.
  encodeWords(words) {
    return words.map((word) => {
      const ids = this.encode(word.replace(ANY_SPACE, (c) => (this.becomesSpace(c) ? UNREADABLE : c)));
      return ids.length ? ids : this.encode(UNREADABLE);
    });
  }

  // White space that the vocabulary does not have becomes a space; a letter with separate marks
  // becomes one letter.
  readable(line) {
    if (!/[^\p{M}\p{Z}\p{Cc}\p{Cf}]/u.test(line)) return "";
    const composed = line.replace(/[^][\p{M}\u1160-\u11ff]*/gu, (letter) => {
      const one = letter.normalize("NFC");
      return one === letter || [...letter].every((each) => this.knows(each)) ? letter : one;
    });
    const marked = composed.replace(ANY_SPACE, (c) => (this.becomesSpace(c) ? "\n" : c));
    return marked.replace(/(?<! ) *\n[ \n]*/g, "\n").replace(/^\n|\n$/g, "").replace(/\n/g, " ");
  }

  becomesSpace(c) {
    return /[\n\r\u2581]/.test(c) || (c !== " " && !this.knows(c));
  }

  knows(character) {
    const pieces = this.cut(character).filter((piece) => piece !== SPACE);
    const usual = (piece) => this.ids.has(piece) && !this.isByte(piece);
    return this.letters.has(character) || (pieces.length > 0 && pieces.every(usual));
  }

  isByte(piece) {
    return /^<0x..>$/.test(piece) && !this.scores.has(piece);
  }

  // The pieces of a text. Of all pairs of neighbours that make a piece, the one with the highest
  // score is merged, and of equal ones the first, until there are none.
  cut(text) {
    const symbols = this.normalized(text).match(new RegExp(this.symbol, "gsu")) ?? [];
    for (;;) {
      let place = -1, highest = -Infinity;
      for (let i = 0; i + 1 < symbols.length; i++) {
        const score = this.scores.get(symbols[i] + symbols[i + 1]);
        const frozen = this.whole.includes(symbols[i]) || this.whole.includes(symbols[i + 1]);
        if (score > highest && !frozen) [place, highest] = [i, score];
      }
      if (place < 0) return this.known(symbols);
      symbols.splice(place, 2, symbols[place] + symbols[place + 1]);
    }
  }

  // Unknown neighbours are one piece, or each of their bytes is one.
  known(symbols) {
    const pieces = [], isKnown = (piece) => this.scores.has(piece) || this.isByte(piece);
    for (const symbol of symbols) {
      if (isKnown(symbol)) pieces.push(symbol);
      else if (this.byte_fallback) pieces.push(...[...utf8(symbol)].map(nameOfByte));
      else pieces.push((pieces.length && !isKnown(pieces.at(-1)) ? pieces.pop() : "") + symbol);
    }
    return pieces;
  }

  normalized(text) {
    let made = "";
    for (let rest = text; rest;) {
      const [symbol] = rest.match(this.symbol), isWhole = this.whole.includes(symbol);
      const rule = this.rules && !isWhole && this.rules.longest(rest);
      const { from, to } = rule || { from: symbol, to: symbol };
      const extra = !this.extra_spaces && (made === "" || made.endsWith(" "));
      made += extra ? to.replace(/^ +/, "") : to;
      rest = rest.slice(from.length);
    }
    if (made && this.dummy_prefix) made = ` ${made}`;
    if (this.escapes) made = made.replaceAll(" ", SPACE);
    return this.extra_spaces ? made : made.replace(this.escapes ? /\u2581+$/ : / +$/, "");
  }
}

// sentencepiece's compiled rules: a trie of what is replaced, as a double array (Darts), and the
// texts that replace it.
class CharacterMap {
  constructor(base64) {
    const bytes = Uint8Array.fromBase64(base64), size = new DataView(bytes.buffer).getUint32(0, true);
    this.units = new Uint32Array(bytes.buffer, 4, size / 4);
    this.texts = bytes.subarray(4 + size);
  }

  // The longest beginning of a text that has a rule, and the text that replaces it.
  longest(text) {
    const bytes = utf8(text.slice(0, 20)), offset = (unit) => (unit >>> 10) << ((unit & 512) >>> 6);
    let place = offset(this.units[0]), rule = null;
    for (let i = 0; i < bytes.length; i++) {
      place ^= bytes[i];
      const unit = this.units[place];
      if ((unit & 0x800000ff) !== bytes[i]) break;
      place ^= offset(unit);
      if (unit & 256) rule = { start: this.units[place] & 0x7fffffff, length: i + 1 };
    }
    if (!rule) return null;
    const to = this.texts.subarray(rule.start, this.texts.indexOf(0, rule.start));
    return { from: fromUtf8(bytes.subarray(0, rule.length)), to: fromUtf8(to) };
  }
}
