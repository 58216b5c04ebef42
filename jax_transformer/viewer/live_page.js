// The page of a model that runs in a worker: the requests, and what is drawn of the reports.

const { config, decoding, source, target } = data;
const worker = new Worker(URL.createObjectURL(new Blob([byId("worker").textContent])));
const PAUSE = matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 90;  // ms between pieces
// The newest request: hypotheses by number, the one whose path is shown, reports that are not drawn.
let search = { number: 0, nodes: [], tip: 0, reports: [] };

const textOf = (vocabulary, token) => vocabulary.pieces[token].replaceAll("\u2581", " ");
const nameOf = (view, layer) => data.views[view][1].replace("{}", layer);

// ---- what a reader can change ----

const dropped = new Map();  // heads, and how they are called
const CONTROLS = {
  temperature: {
    text: "temperature of the softmax", section: "§3.2.1", usual: 0,
    range: { min: -2, max: 2, step: 0.5 }, show: (exponent) => 2 ** exponent,
  },
  scaled: { text: "divide scores by √d_k", section: "§3.2.1", usual: true },
  positions: { text: "position encodings", section: "§3.5", usual: true },
  radius: {
    text: "radius of self-attention", section: "§4", usual: config.attention_radius,
    range: { min: 0, max: Math.max(8, config.attention_radius) }, show: (radius) => radius || "all",
  },
  beam_size: {
    text: "beam", section: "§6.1", usual: decoding.beam_size,
    range: { min: 1, max: Math.max(8, decoding.beam_size) },
  },
  alpha: {
    text: "length penalty α", section: "§6.1", usual: decoding.alpha,
    range: { min: 0, max: Math.max(2, decoding.alpha), step: 0.05 },
  },
};

function makeControls() {
  const rows = Object.entries(CONTROLS).map(([id, control]) => {
    const { text, section, usual, range, show = (value) => value } = control;
    const input = element("input", { id, type: range ? "range" : "checkbox", ...range });
    const name = element("span", {}, `${text} `, element("small", {}, section));
    const value = element("output");
    const write = () => { value.textContent = show(Number(input.value)); };
    Object.assign(input, range ? { value: usual } : { checked: usual });
    // The slider may not have the usual value itself.
    const first = input.value;
    control.read = () => (!range ? input.checked : input.value === first ? usual : Number(input.value));
    if (range) write();
    input.addEventListener("input", range ? write : () => {});
    input.addEventListener("change", () => run());
    return element("label", {}, name, ...(range ? [value] : []), input);
  });
  byId("controls").replaceChildren(...rows);
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

const usualSettings = () => settingsOf((name) => CONTROLS[name].usual, new Map());
const chosenSettings = () => settingsOf((name) => CONTROLS[name].read(), dropped);

// The names of the heads that are picked, one or all of the layer, and how they are called.
function picked(head = state.head) {
  const heads = head < 0 ? Array.from({ length: config.num_heads }, (_, h) => h) : [head];
  return heads.map((h) => [
    `${nameOf(state.view, state.layer)} ${h}`,
    `${data.views[state.view][0]}, layer ${state.layer + 1}, head ${h + 1}`,
  ]);
}

const areDropped = (heads) => heads.every(([name]) => dropped.has(name));

byId("drop").addEventListener("click", () => {
  const heads = picked(), all = areDropped(heads);
  heads.forEach(([name, called]) => (all ? dropped.delete(name) : dropped.set(name, called)));
  run();
});

byId("reset").addEventListener("click", () => {
  dropped.clear();
  makeControls();
  run();
});

// ---- requests and reports ----

function run(example) {
  const text = byId("text").value.trim(), usual = usualSettings(), chosen = chosenSettings();
  const changed = dropped.size > 0 || JSON.stringify(chosen) !== JSON.stringify(usual);
  search = { number: search.number + 1, nodes: [{ children: [] }], tip: 0, reports: [], example };
  byId("status").textContent = byId("before").textContent = "";
  byId("note").textContent = example?.note ?? "";
  const heads = [...dropped.values()].join("; ");
  byId("dropped").textContent = heads && `Dropped (§3.2.2): ${heads}.`;
  worker.postMessage({ number: search.number, text, ...chosen, usual: changed && usual });
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
  if (report.empty) byId("status").textContent = "There is nothing to read; type a sentence.";
  else if (report.done) finish(report);
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

function finish({ tokens, encoder, steps, milliseconds, output, before }) {
  Object.assign(search, { tokens, encoder, tip: search.best });
  const { logProb, score } = search.nodes[search.best];
  byId("status").textContent = `${steps} steps of ${milliseconds.toFixed(1)} ms; `
    + `log P ${logProb.toFixed(2)}, score ${score.toFixed(2)}`
    + (tokens.length < data.max_source ? "" : `; read the first ${data.max_source} tokens only`);
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

// What views.js shows, of the path that is shown.
function viewsOf() {
  const read = path().filter((node) => node.attention), written = path().slice(1);
  const sources = search.tokens.map((token) => ({ text: textOf(source, token) }));
  const targets = read.map((node, i) => ({
    text: textOf(target, node.token ?? target.bos_id),
    writes: written[i] && textOf(target, written[i].token).trim(),
  }));
  return data.views.map(([name, , hint], view) => {
    const queries = view ? targets : sources, keys = view === 1 ? targets : sources;
    const count = view ? config.decoder_layers || config.num_layers : config.num_layers;
    const layers = Array.from({ length: count }, (_, layer) => {
      const full = nameOf(view, layer);
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
  [...byId("output").children].forEach((button, i) => button.classList.toggle("active", i === step));
  if (!node?.candidates) return;
  byId("after").textContent = `after “${textOf(target, node.token ?? target.bos_id).trim()}”`;
  byId("candidates").replaceChildren(...node.candidates.map(({ token, p }) => {
    const bar = element("span", { className: "bar" });
    bar.style.width = `${Math.max(1, 100 * p)}%`;
    const share = element("span", { className: "p" }, `${(100 * p).toFixed(1)}%`);
    return element("li", { className: token === written ? "chosen" : "" },
      element("span", {}, textOf(target, token)), bar, share);
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
  const heads = state.head < 0 ? "all heads" : "this head";
  byId("drop").textContent = `${areDropped(picked()) ? "Restore" : "Drop"} ${heads}`;
  if (state.view && state.side === "queries") drawCandidates(state.index);
}

// ---- the beginning ----

Object.assign(shown, { drawn, isDropped: (head) => areDropped(picked(head)) });
byId("facts").textContent = `${data.facts}.`;
byId("words").textContent = data.hint && `${data.hint}.`;
if (data.parses) {
  byId("text-label").textContent = "Type words and punctuation with spaces between";
  byId("go").textContent = "Parse";
  byId("facts").append(" The search here is not constrained, so an output may not be a tree.");
}
byId("heads").parentElement.append(byId("drop-row"));
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
delete data.weights;
if (data.examples.length) byId("examples").querySelector("button").click();
