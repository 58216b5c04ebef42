// The page of a model that runs in a worker: the requests, and what is drawn of the reports.

const { config, decoding, source, target } = data;
const worker = new Worker(URL.createObjectURL(new Blob([byId("worker").textContent])));
// Of browsers that cannot run the model, the reason, which stays on the page.
let broken = Uint8Array.fromBase64 && self.Float16Array && RegExp.escape ? ""
  : "This browser is too old for the model: it lacks Uint8Array.fromBase64, Float16Array or RegExp.escape.";
const pause = matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 90;  // ms between pieces
// The newest request: hypotheses by number, and the one whose path is shown.
let search = { number: 0, nodes: [], tip: 0 };

const textOf = (vocabulary, token) => vocabulary.pieces[token].replaceAll("\u2581", " ");
const BYTE = /^<0x([0-9A-F]{2})>$/;

// The text of an output; pieces of bytes in a row are letters.
function outputText(tokens) {
  const bytes = new TextEncoder(), pieces = tokens.map((token) => textOf(target, token));
  const all = pieces.flatMap((piece) =>
    (BYTE.test(piece) ? [parseInt(BYTE.exec(piece)[1], 16)] : [...bytes.encode(piece)]));
  return new TextDecoder().decode(new Uint8Array(all)).trim();
}
const nameOf = (view, layer) => data.views[view][1].replace("{}", layer);

// ---- what a reader can change ----

const usual = {
  temperature: 1, scaled: true, positions: true, radius: config.attention_radius,
  beam_size: decoding.beam_size, alpha: decoding.alpha,
};
const chosen = {};
const dropped = new Map();  // heads, and how they are called

function set(input, value) {
  chosen[input.id] = value;
  if (input.type === "checkbox") {
    input.checked = value;
  } else {
    input.max = Math.max(input.max, value);
    input.value = input.previousElementSibling.textContent = value;
  }
}

function reset() {
  dropped.clear();
  Object.entries(usual).forEach(([name, value]) => set(byId(name), value));
}

// The names of the heads that are picked, one or all of the layer, and how they are called.
function picked(head = state.head) {
  const heads = head ? [head] : Array.from({ length: config.num_heads }, (_, h) => h + 1);
  return heads.map((h) => [
    `${nameOf(state.view, state.layer)} ${h - 1}`,
    `${data.views[state.view][0]}, layer ${state.layer + 1}, head ${h}`,
  ]);
}

const areDropped = (heads) => heads.every(([name]) => dropped.has(name));

// ---- requests and reports ----

function run(example) {
  const text = byId("text").value.trim(), settings = { ...decoding, ...chosen, dropped };
  const before = { ...decoding, ...usual, dropped: new Map() };
  const changed = dropped.size > 0 || Object.keys(usual).some((name) => chosen[name] !== usual[name]);
  const root = { token: target.bos_id, logProb: 0, children: [] };
  search = { number: search.number + 1, nodes: [root], tip: 0, times: [], example };
  byId("status").textContent = broken;
  byId("before").textContent = "";
  byId("note").textContent = example?.note ?? "";
  byId("dropped").textContent = dropped.size ? `Dropped: ${[...dropped.values()].join("; ")}.` : "";
  worker.postMessage({ number: search.number, text, pause, settings, usual: changed && before });
  if (shown.views.length) look({});  // with the heads that are dropped now
}

worker.onmessage = ({ data: report }) => {
  if (report.number !== search.number) return;
  if (report.empty) {
    byId("status").textContent = "There is nothing to read; type a sentence.";
    byId("output").replaceChildren();
    byId("candidates").replaceChildren();
    byId("after").textContent = "";
    byId("attention").hidden = byId("beam").hidden = true;
  } else if (report.done) finish(report);
  else grow(report);
};
worker.onerror = (event) => {
  byId("status").textContent = broken ||= event.message || "The model could not be started in a worker here.";
};

function grow({ read, written, best, milliseconds }) {
  read.forEach(({ id, ...rest }) => Object.assign(search.nodes[id], rest));
  for (const node of written) {
    search.nodes[node.id] = { ...node, children: [] };
    search.nodes[node.parent].children.push(node.id);
  }
  search.times.push(milliseconds);
  search.best = best;
  drawPath(written[0]?.id ?? best);
  drawCandidates(path().length - 2);
}

function finish({ tokens, isCut, encoder, before }) {
  Object.assign(search, { tokens, encoder });
  const { nodes, best, times, example } = search;
  const milliseconds = times.reduce((total, time) => total + time, 0) / times.length;
  byId("status").textContent = `${times.length} steps of ${milliseconds.toFixed(1)} ms; `
    + `log P ${nodes[best].logProb.toFixed(2)}, score ${nodes[best].score.toFixed(2)}`
    + (isCut ? `; read the first ${data.max_source - 1} tokens only` : "");
  byId("attention").hidden = false;
  choose(best);
  if (before) {
    const [ours, theirs] = [path().slice(1).map((node) => node.token), before].map((output) =>
      outputText(output.slice(0, -1)));
    byId("before").textContent = ours === theirs ? "This changes nothing in the output."
      : `As it was trained: ${theirs}`;
  }
  if (example) lookFor(example);
}

// ---- drawing ----

// The hypotheses from the beginning to the one that is shown.
function path(id = search.tip) {
  const node = search.nodes[id];
  return id === 0 ? [node] : [...path(node.parent), node];
}

// Show the path to a hypothesis.
function choose(id) {
  drawPath(id);
  shown.views = viewsOf();
  look(state.pinned ? {} : SECOND);
}

// What views.js shows, of the path that is shown.
function viewsOf() {
  const read = path().filter((node) => node.attention), written = path().slice(1);
  const sources = search.tokens.map((token) => ({ text: textOf(source, token) }));
  const targets = read.map((node, i) => ({
    text: textOf(target, node.token),
    writes: written[i] && textOf(target, written[i].token).trim(),
  }));
  return data.views.map(([name, , hint], view) => {
    const count = view ? config.decoder_layers || config.num_layers : config.num_layers;
    const names = Array.from({ length: count }, (_, layer) => nameOf(view, layer));
    return {
      name, hint, queries: view ? targets : sources, keys: view === 1 ? targets : sources,
      layers: names.map((full) =>
        (view ? read.map((node) => node.attention[full][0]) : search.encoder[full])),
    };
  });
}

function drawPath(tip) {
  search.tip = tip;
  byId("beam").hidden = false;
  byId("tree").replaceChildren(element("ul", {}, treeOf(0, new Set(path()))));
  byId("output").replaceChildren(...path().slice(1).map(({ token }, step) => {
    const text = textOf(target, token), button = element("button", { type: "button" }, text.trimStart());
    button.classList.toggle("space", text.startsWith(" ") && step > 0);
    button.classList.toggle("end", token === target.eos_id);
    button.addEventListener("click", () => lookAtStep(step));
    return button;
  }));
}

function lookAtStep(step) {
  if (search.tokens) look({ view: state.view || 2, side: "queries", index: step, pinned: true });
}

function drawCandidates(step) {
  const node = path()[step], written = path()[step + 1]?.token;
  if (!node) return;  // of an output that is no longer shown
  const { token: last, candidates } = node;
  [...byId("output").children].forEach((button, i) => button.classList.toggle("active", i === step));
  if (!candidates) return;
  byId("after").textContent = `after “${textOf(target, last).trim()}”`;
  byId("candidates").replaceChildren(...candidates.map(({ token, p }) => {
    const bar = element("div"), percent = `${(100 * p).toFixed(1)}%`;
    bar.style.width = percent;
    return element("li", { className: token === written ? "chosen" : "" },
      element("span", {}, textOf(target, token)), bar, percent);
  }));
}

// A hypothesis and all that continue it, as an item of a list. onPath: the nodes of the path that is shown.
function treeOf(id, onPath) {
  const { token, logProb, score, children } = search.nodes[id], text = textOf(target, token);
  const button = element("button", { type: "button", tabIndex: id === search.tip ? 0 : -1 },
    score === undefined ? text : `${text} ${score.toFixed(2)}`);
  button.title = `log P ${logProb.toFixed(2)}`;
  button.classList.toggle("path", onPath.has(search.nodes[id]));
  button.classList.toggle("ended", score !== undefined);
  button.addEventListener("click", () => {
    if (!search.tokens || !id) return;
    choose(id);
    lookAtStep(path().length - 2);
    byId("tree").querySelector("[tabindex='0']").focus();
  });
  const best = children.toSorted((a, b) => search.nodes[b].logProb - search.nodes[a].logProb);
  const items = best.map((child) => treeOf(child, onPath));
  return element("li", {}, button, ...(items.length ? [element("ul", {}, ...items)] : []));
}

// Turn to the layer and head in which the piece that writes `word` attends most to the piece `attends`.
function lookFor({ view, word, attends }) {
  const { queries, keys, layers } = shown.views[view];
  let most = 0, found = null;
  layers.forEach((rows, layer) => rows.forEach((heads, index) => heads.forEach((weights, h) => {
    if (dropped.has(`${nameOf(view, layer)} ${h}`)) return;
    weights.forEach((w, key) => {
      if (w <= most || queries[index].writes !== word || keys[key].text.trim() !== attends) return;
      [most, found] = [w, { view, layer, head: h + 1, side: "queries", index, pinned: false }];
    });
  })));
  if (found) look(found);
  else byId("note").textContent = "";  // of another translation
}

shown.isDropped = (head) => areDropped(picked(head));
shown.drawn = () => {
  const heads = state.head ? "this head" : "all heads";
  byId("drop").textContent = `${areDropped(picked()) ? "Restore" : "Drop"} ${heads}`;
  if (state.view && state.side === "queries" && state.index >= 0) drawCandidates(state.index);
};

// ---- what a reader does ----

byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
byId("controls").addEventListener("input", ({ target: input }) =>
  set(input, input.type === "checkbox" ? input.checked : Number(input.value)));
byId("controls").addEventListener("change", () => run());
byId("reset").addEventListener("click", () => {
  reset();
  run();
});
byId("drop").addEventListener("click", () => {
  const heads = picked(), all = areDropped(heads);
  heads.forEach(([name, called]) => (all ? dropped.delete(name) : dropped.set(name, called)));
  run();
});
// In the tree: to the parent and to the best child.
moveByArrows(byId("tree"),
  (button) => button.closest("ul").parentElement.querySelector("button"),
  (button) => button.parentElement.querySelector(":scope > ul button"));

// ---- the beginning ----

byId("facts").textContent = `${data.facts}.`;
byId("words").textContent = data.hint && `${data.hint}.`;
if (data.parses) {
  byId("text-label").textContent = "Type words and punctuation with spaces between";
  byId("go").textContent = "Parse";
  byId("facts").append(" The search here is not constrained, so an output may not be a tree,"
    + " and words are read as they are typed: write -LRB- for an opening bracket.");
}
byId("heads").parentElement.append(byId("drop-row"));
byId("change").open = matchMedia("(min-width: 60rem)").matches;
for (const example of data.examples) {
  const button = element("button", { type: "button" }, example.text);
  button.addEventListener("click", () => {
    byId("text").value = example.text;
    run(example);
  });
  byId("examples").append(button);
}
reset();
worker.postMessage({ content: data });
delete data.weights;
byId("data").remove();
byId("examples").querySelector("button")?.click();
