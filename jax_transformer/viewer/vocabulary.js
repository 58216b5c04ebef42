// §5.1 The map from text to token ids, as in jax_transformer/data: what `readable` does, then
// byte-pair encoding as sentencepiece does it, with its normalization.

const SPACE = "\u2581";
const [NORMAL, UNKNOWN, USER_DEFINED, UNUSED, BYTE] = [1, 2, 4, 5, 6];  // kinds of pieces
const utf8 = (text) => new TextEncoder().encode(text);
const fromUtf8 = (bytes) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
const firstOf = (text) => String.fromCodePoint(text.codePointAt(0));

// content: { pieces, texts, unk_id, ... }, the piece of each id and the texts of those that add
// another text than it, a number for a byte; of a vocabulary that cuts text also its `model`.
class Vocabulary {
  constructor(content) {
    Object.assign(this, content);
    this.known = new Map();
    if (!content.model) return;
    this.model = new BytePairs(content.model);
    const reserved = [content.pad_id, content.bos_id, content.eos_id, content.unk_id];
    const usual = this.pieces.map((piece, id) => [piece, id]).filter(([, id]) => !reserved.includes(id));
    this.ids = new Map(usual);
    const texts = this.pieces.map((_, id) => this.text(id));
    this.letters = new Set(texts.filter((text) => typeof text === "string").join(""));
  }

  text(id) {
    return this.texts[id] ?? this.pieces[id]?.replaceAll(SPACE, " ") ?? "";
  }

  // The ids of a line's pieces, without the end mark; none if there is nothing to read.
  encode(line) {
    return this.idsOf(this.readable(line));
  }

  idsOf(text) {
    return this.model.cut(text).map(({ piece, index }) =>
      (this.model.own_ids ? index : this.ids.get(piece) ?? this.unk_id));
  }

  decode(ids) {
    const texts = ids.map((id) => this.text(id));
    const bytes = texts.flatMap((text) => (typeof text === "number" ? text : [...utf8(text)]));
    const text = fromUtf8(Uint8Array.from(bytes)).trim();
    const unknown = this.text(this.unk_id), sign = unknown.trim();
    if (sign === unknown || !ids.includes(this.unk_id)) return text;
    return text.split(sign).map((part) => part.trim()).join(unknown).replaceAll("  ", " ").trim();
  }

  // White space that the vocabulary does not have becomes a space; a letter with separate marks
  // becomes one letter.
  readable(line) {
    if (!/[\p{L}\p{N}\p{P}\p{S}\p{Cs}]/u.test(line)) return "";
    const composed = line.replace(/[^][\p{M}\u1160-\u11ff]*/gu, (letter) => {
      const one = letter.normalize("NFC");
      return one === letter || [...letter].every((each) => this.knows(each)) ? letter : one;
    });
    const isSpace = (c) => /[\n\r\u2581]/.test(c) || (c !== " " && !this.knows(c));
    const marked = composed.replace(/[\s\x1c-\x1f\x85\u200b\u2581]/g, (c) => (isSpace(c) ? "\n" : c));
    return marked.replace(/ *\n[ \n]*/g, "\n").replace(/^\n|\n$/g, "").replace(/\n/g, " ");
  }

  knows(character) {
    if (!this.known.has(character)) {
      const ids = this.idsOf(character).filter((id) => this.text(id) !== " ");
      const usual = (id) => id !== this.unk_id && typeof this.text(id) === "string";
      this.known.set(character, this.letters.has(character) || (ids.length > 0 && ids.every(usual)));
    }
    return this.known.get(character);
  }
}

// model: as `BytePairModel` in jax_transformer/data/vocabularies/sentencepiece.py.
class BytePairs {
  constructor(model) {
    Object.assign(this, model);
    const kindOf = (kinds) => model.pieces.map((piece, index) => [piece, index])
      .filter(([, index]) => kinds.includes(model.kinds[index]));
    this.index = new Map(kindOf([NORMAL, USER_DEFINED, UNUSED]));
    this.byte = new Map(kindOf([BYTE]));
    this.unknown = model.kinds.indexOf(UNKNOWN);
    this.whole = kindOf([USER_DEFINED]).map(([piece]) => piece).sort((a, b) => b.length - a.length);
    this.charsmap = model.charsmap && new CharacterMap(model.charsmap);
  }

  // The { piece, index } of each piece of a text. Of all pairs of neighbours that make a piece, the
  // one with the highest score is merged, and of equal ones the first, until there are none.
  cut(text) {
    const symbols = this.symbols(this.normalized(text)), merged = new Map();
    for (;;) {
      let place = -1, highest = -Infinity;
      for (let i = 0; i + 1 < symbols.length; i++) {
        const score = this.scores[this.index.get(symbols[i] + symbols[i + 1])];
        const frozen = this.whole.includes(symbols[i]) || this.whole.includes(symbols[i + 1]);
        if (score > highest && !frozen) [place, highest] = [i, score];
      }
      if (place < 0) break;
      const pair = symbols.slice(place, place + 2);
      merged.set(pair.join(""), pair);
      symbols.splice(place, 2, pair.join(""));
    }
    return this.named(symbols.flatMap((symbol) => this.used(symbol, merged)));
  }

  // A symbol itself, or what it was merged from if it is a piece that is not to be used.
  used(symbol, merged) {
    const split = this.kinds[this.index.get(symbol)] === UNUSED && merged.get(symbol);
    return split ? split.flatMap((part) => this.used(part, merged)) : [symbol];
  }

  // Unknown neighbours are one piece, or each of their bytes is one.
  named(symbols) {
    const cut = [];
    for (const piece of symbols) {
      const index = this.index.get(piece) ?? this.unknown, last = cut.at(-1);
      if (index !== this.unknown) {
        cut.push({ piece, index });
      } else if (this.byte_fallback) {
        for (const byte of utf8(piece)) {
          const name = `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
          cut.push({ piece: name, index: this.byte.get(name) });
        }
      } else if (last?.index === index) {
        last.piece += piece;
      } else {
        cut.push({ piece, index });
      }
    }
    return cut;
  }

  // The characters of a normalized text; a piece that a user has defined is one symbol.
  symbols(text) {
    const symbols = [];
    for (let rest = text; rest; rest = rest.slice(symbols.at(-1).length)) {
      symbols.push(this.wholeOf(rest) ?? firstOf(rest));
    }
    return symbols;
  }

  wholeOf(text) {
    return this.whole.find((piece) => text.startsWith(piece));
  }

  normalized(text) {
    let made = "";
    for (let rest = text; rest;) {
      const own = this.wholeOf(rest) ?? firstOf(rest);
      const rule = this.wholeOf(rest) ? null : this.charsmap && this.charsmap.longest(rest);
      const { part, length } = rule || { part: own, length: own.length };
      const extra = !this.extra_spaces && (made === "" || made.endsWith(" "));
      made += extra ? part.replace(/^ +/, "") : part;
      rest = rest.slice(length);
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
    const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
    const words = new DataView(bytes.buffer), size = words.getUint32(0, true);
    this.units = Uint32Array.from({ length: size / 4 }, (_, i) => words.getUint32(4 + 4 * i, true));
    this.texts = bytes.subarray(4 + size);
  }

  // The text of the rule for the longest beginning of a text, and the length of that beginning.
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
    const part = fromUtf8(this.texts.subarray(rule.start, this.texts.indexOf(0, rule.start)));
    return { part, length: fromUtf8(bytes.slice(0, rule.length)).length };
  }
}
