// The page of a model that runs in a worker: the request, and what is drawn of its reports.

const { source, target } = data;
const textOf = (vocabulary, token) => vocabulary.pieces[token].replaceAll("\u2581", " ");
const worker = new Worker(URL.createObjectURL(new Blob([byId("worker").textContent])));
const NOTES = ["encoder_L/self_attention", "decoder_L/self_attention", "decoder_L/cross_attention"];
const HINTS = [
  ["encoder self-attention", "Each token sees the whole source."],
  ["decoder self-attention", "A position of the decoder reads one token and predicts the next; it sees no later position."],
  ["cross-attention", "A position of the decoder reads one token and predicts the next; it sees the whole source."],
];
const PAUSE = matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 90;  // ms between pieces
// What the newest request has given so far: hypotheses by number, and the one whose path is shown.
let search = { number: 0, nodes: [], tip: 0, reports: [] };
const dropped = new Set();

// ---- what a reader can change ----

const { config, decoding } = data;
const CONTROLS = {
  temperature: ["§3.2.1", "temperature of the softmax", { min: -2, max: 2, step: 0.5 }, 0, (v) => 2 ** v],
  scaled: ["§3.2.1", "divide scores by √d_k", null, true],
  positions: ["§3.5", "position encodings", null, true],
  radius: ["§4", "self-attention’s radius", { min: 0, max: 8 }, config.attention_radius, (v) => v || "all"],
  beam_size: ["§6.1", "beam", { min: 1, max: Math.max(8, decoding.beam_size) }, decoding.beam_size, (v) => v],
  alpha: ["§6.1", "length penalty α", { min: 0, max: Math.max(2, decoding.alpha), step: 0.1 }, decoding.alpha, (v) => v],
};

function makeControls() {
  for (const [name, [section, text, range, usual, show]] of Object.entries(CONTROLS)) {
    const input = element("input", { id: name, type: range ? "range" : "checkbox", ...range });
    const value = element("output");
    const write = () => { if (show) value.textContent = show(Number(input.value)); };
    Object.assign(input, range ? { value: usual } : { checked: usual });
    input.addEventListener("input", write);
    input.addEventListener("change", () => run());
    write();
    byId("controls").append(element("label", {},
      element("span", {}, `${text} `, element("small", {}, section)), range ? value : input, ...(range ? [input] : [])));
  }
}

function settingsOf(read, heads) {
  return {
    changes: {
      dropped: heads, temperature: 2 ** read("temperature"), scaled: read("scaled"),
      positions: read("positions"), radius: read("radius"),
    },
    decoding: { ...decoding, beam_size: read("beam_size"), alpha: read("alpha") },
  };
}

const usual = () => settingsOf((name) => CONTROLS[name][3], new Set());
const chosen = () => settingsOf((name) => {
  const input = byId(name);
  return input.type === "checkbox" ? input.checked : Number(input.value);
}, dropped);
const isChanged = () => dropped.size > 0 || JSON.stringify(chosen()) !== JSON.stringify(usual());

// The names of the heads that are picked: one, or all of the layer.
function picked(head = state.head) {
  const name = NOTES[state.view].replace("L", state.layer);
  const heads = head < 0 ? Array.from({ length: config.num_heads }, (_, h) => h) : [head];
  return heads.map((h) => `${name} ${h}`);
}

byId("drop").addEventListener("click", () => {
  const heads = picked(), all = heads.every((name) => dropped.has(name));
  heads.forEach((name) => (all ? dropped.delete(name) : dropped.add(name)));
  run();
});

byId("reset").addEventListener("click", () => {
  dropped.clear();
  byId("controls").replaceChildren();
  makeControls();
  run();
});

// ---- requests and reports ----

function run(example) {
  const text = byId("text").value.trim();
  search = { number: search.number + 1, nodes: [{ children: [] }], tip: 0, reports: [], example };
  byId("status").textContent = text ? "" : "Type a sentence first.";
  byId("note").textContent = example?.note ?? "";
  byId("reset").disabled = !isChanged();
  const names = [...dropped].map((name) => name.replace(/_(\d+)/, (_, i) => ` layer ${+i + 1}`)
    .replace(/\/(\w+)_attention (\d+)/, (_, kind, h) => `, ${kind}-attention, head ${+h + 1}`));
  byId("dropped").textContent = names.length ? `Dropped (§3.2.2): ${names.join("; ")}.` : "";
  const request = { number: search.number, text, ...chosen() };
  worker.postMessage(isChanged() ? { ...request, usual: usual() } : request);
}

worker.onmessage = ({ data: report }) => {
  if (report.number !== search.number) return;
  search.reports.push(report);
  if (search.reports.length === 1) next(search);
};
worker.onerror = (event) => { byId("status").textContent = event.message; };

// Draw the reports one after another, so that a person can follow.
function next(own) {
  if (own !== search || !own.reports.length) return;
  const [report] = own.reports;
  if (report.done) finish(report);
  else grow(report);
  setTimeout(() => {
    own.reports.shift();
    next(own);
  }, report.done ? 0 : PAUSE);
}

function grow({ read, written, best }) {
  read.forEach(({ id, ...rest }) => Object.assign(search.nodes[id], rest));
  for (const node of written) {
    search.nodes[node.id] = { ...node, children: [] };
    const { children } = search.nodes[node.parent];
    children.push(node.id);
    children.sort((a, b) => search.nodes[b].logProb - search.nodes[a].logProb);
  }
  Object.assign(search, { best, tip: written[0]?.id ?? best });
  drawOutput();
  drawCandidates(path().length - 2);
  drawTree();
  byId("beam").hidden = false;
}

function finish({ tokens, encoder, seconds, output, before }) {
  Object.assign(search, { tokens, encoder, tip: search.best });
  const steps = path().length - 1, { logProb, score } = search.nodes[search.best];
  byId("status").textContent = `${steps} pieces, ${(1000 * seconds / steps).toFixed(1)} ms each; `
    + `log P ${logProb.toFixed(2)}, score ${score.toFixed(2)}`;
  byId("before").hidden = !before;
  byId("before").textContent = before === output ? "This changes nothing in the output."
    : `As it was trained: ${before}`;
  byId("attention").hidden = false;
  choose(search.best);
  if (search.example) lookAt(search.example);
}

// ---- drawing ----

// The hypotheses from the beginning to the one that is shown.
function path(id = search.tip) {
  const node = search.nodes[id];
  return id === 0 ? [node] : [...path(node.parent), node];
}

// Show the path to a hypothesis.
function choose(id) {
  const { view = 2, side, index, pinned } = state;
  search.tip = id;
  drawOutput();
  showViews({ heads: config.num_heads, views: viewsOf() }, view);
  if (pinned && index < shown.views[view][side].length) {
    Object.assign(state, { side, index, pinned });
    draw();
  }
  drawTree();
}

function viewsOf() {
  const read = path().filter((node) => node.attention), named = path().slice(1);
  const sources = search.tokens.map((token) => ({ text: textOf(source, token) }));
  const targets = read.map((node, i) => ({
    text: textOf(target, node.token ?? target.bos_id),
    writes: named[i] && textOf(target, named[i].token).trim(),
  }));
  return HINTS.map(([name, hint], view) => {
    const queries = view ? targets : sources, keys = view === 1 ? targets : sources;
    const counts = view ? config.decoder_layers || config.num_layers : config.num_layers;
    const layers = Array.from({ length: counts }, (_, layer) => {
      const full = NOTES[view].replace("L", layer);
      const rows = view ? read.map((node) => node.attention[full][0]) : search.encoder[full];
      const weights = new Float32Array(config.num_heads * queries.length * keys.length);
      rows.forEach((heads, q) => heads.forEach((row, h) =>
        weights.set(row, (h * queries.length + q) * keys.length)));
      return () => weights;
    });
    return { name, hint, queries, keys, layers };
  });
}

function drawOutput() {
  const nodes = path().slice(1);
  byId("output").replaceChildren(...nodes.map((node, step) => {
    const text = textOf(target, node.token), end = node.token === target.eos_id;
    const button = element("button", { type: "button", className: end ? "end" : "" }, text.trimStart());
    button.classList.toggle("space", text.startsWith(" ") && step > 0);
    button.addEventListener("click", () => lookAtStep(step));
    return button;
  }));
}

function lookAtStep(step) {
  if (!search.tokens) return;
  if (state.view === 0) {
    state.view = 2;
    pickers();
    tokens();
  }
  Object.assign(state, { side: "queries", index: step, pinned: true });
  draw();
}

function drawCandidates(step) {
  const node = path()[step], written = path()[step + 1]?.token;
  byId("output").querySelectorAll("button").forEach((button, i) => button.classList.toggle("active", i === step));
  if (!node?.candidates) return;
  byId("after").textContent = `after “${textOf(target, node.token ?? target.bos_id).trim()}”`;
  byId("candidates").replaceChildren(...node.candidates.map(({ token, p }) => {
    const bar = element("span", { className: "bar" });
    bar.style.width = `${Math.max(1, 100 * p)}%`;
    return element("li", { className: token === written ? "chosen" : "" },
      element("span", {}, textOf(target, token)), bar, element("span", { className: "p" }, `${(100 * p).toFixed(1)}%`));
  }));
}

function drawTree() {
  const chain = path();
  const item = (id) => {
    const node = search.nodes[id], ended = node.score !== undefined;
    const text = textOf(target, node.token ?? target.bos_id);
    const button = element("button", { type: "button", tabIndex: id === search.tip ? 0 : -1 },
      ended ? `${text} ${node.score.toFixed(2)}` : text);
    button.title = id ? `log P ${node.logProb.toFixed(2)}` : "";
    button.classList.toggle("path", chain.includes(node));
    button.classList.toggle("ended", ended);
    button.addEventListener("click", () => {
      if (!search.tokens || !id) return;
      choose(id);
      lookAtStep(path().length - 2);
      byId("tree").querySelector("[tabindex='0']").focus();
    });
    const children = element("ul", {}, ...node.children.map(item));
    return element("li", {}, button, ...(node.children.length ? [children] : []));
  };
  byId("tree").replaceChildren(element("ul", {}, item(0)));
}

// The arrow keys move through the tree: to the parent, the best child, and the rows above and below.
byId("tree").addEventListener("keydown", (event) => {
  const all = [...byId("tree").querySelectorAll("button")], here = all.indexOf(event.target);
  const item = event.target.closest("li");
  const goal = {
    ArrowLeft: item?.parentElement.closest("li")?.querySelector("button"),
    ArrowRight: item?.querySelector("ul button"),
    ArrowUp: all[here - 1], ArrowDown: all[here + 1],
  };
  if (!(event.key in goal)) return;
  event.preventDefault();
  goal[event.key]?.focus();
});

// Turn to the layer and head in which a word attends most to another.
function lookAt({ view, word, attends }) {
  const { queries, keys, layers } = shown.views[view];
  const places = (list, name, text) => list.flatMap((token, i) =>
    ((token[name] ?? token.text).trim() === text ? [i] : []));
  let most = 0, found = null;
  layers.forEach((_, layer) => Array.from({ length: shown.heads }, (_, head) => {
    for (const q of places(queries, "writes", word)) {
      for (const k of places(keys, "text", attends)) {
        const w = layers[layer]()[(head * queries.length + q) * keys.length + k];
        if (w > most) [most, found] = [w, { layer, head, index: q }];
      }
    }
  }));
  if (!found) return;  // another translation
  Object.assign(state, found, { view, side: "queries", pinned: true });
  tokens();
  pickers();
  draw();
}

function drawn() {
  const names = picked(), many = state.head < 0 ? "all heads of this layer" : "this head";
  byId("drop").textContent = names.every((name) => dropped.has(name)) ? `Bring ${many} back` : `Drop ${many}`;
  if (state.view && state.side === "queries") drawCandidates(state.index);
}

// ---- the beginning ----

Object.assign(shown, { drawn, isDropped: (head) => picked(head).every((name) => dropped.has(name)) });
byId("facts").textContent = `${data.facts}.`;
if (data.parses) {
  byId("text-label").textContent = "Type words and punctuation with spaces between";
  byId("go").textContent = "Parse";
  byId("facts").append(" The search here is not constrained, so an output may not be a tree.");
}
byId("change").open = matchMedia("(min-width: 60rem)").matches;
byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
for (const example of data.examples) {
  const button = element("button", { type: "button", title: example.note }, example.text);
  button.addEventListener("click", () => {
    byId("text").value = example.text;
    run(example);
  });
  byId("examples").append(button);
}
makeControls();
worker.postMessage({ content: data });
if (data.examples.length) byId("examples").querySelector("button").click();
