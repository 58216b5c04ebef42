const ROW = 30;  // height of a token, as in the style sheet
const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
// What is shown: the number of heads, and of each attention { name, hint, queries, keys, layers }.
// layers[i]() is the weights of a layer, heads by queries by keys.
const shown = { heads: 0, views: [], isDropped: () => false, drawn: () => {} };
const state = { layer: Infinity, head: -1 };  // the last layer: see turnTo

// Show other views, with the layer and head that are picked.
function showViews(changes, view) {
  Object.assign(shown, changes);
  turnTo(view);
  tokens();
  pickers();
  draw();
}

// The second query is chosen at first: in the decoder the first reads no word. The encoder may have
// more layers than the decoder, or fewer.
function turnTo(view) {
  state.layer = Math.min(state.layer, shown.views[view].layers.length - 1);
  const index = Math.min(1, shown.views[view].queries.length - 1);
  Object.assign(state, { view, side: "queries", index, pinned: false });
}

function weight(query, key, head = state.head) {
  const { queries, keys } = shown.views[state.view];
  const all = shown.views[state.view].layers[state.layer]();
  const at = (h) => all[(h * queries.length + query) * keys.length + key];
  if (head >= 0) return at(head);
  let sum = 0;
  for (let h = 0; h < shown.heads; h++) sum += at(h);
  return sum / shown.heads;
}

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function radios(id, names, chosen, choose, extra = () => []) {
  const box = byId(id);
  box.querySelectorAll("label").forEach((label) => label.remove());
  names.forEach(([value, text]) => {
    const input = element("input", { type: "radio", name: id, value, checked: value === chosen });
    input.addEventListener("change", () => { choose(value); draw(); });
    const label = element("label", {}, input, element("span", {}, ...extra(value), text));
    label.classList.toggle("dropped", id === "heads" && shown.isDropped(value));
    box.append(label);
  });
}

function thumbnail(head) {
  const { queries, keys } = shown.views[state.view];
  const canvas = element("canvas", { width: keys.length, height: queries.length });
  canvas.setAttribute("aria-hidden", "true");
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--focus");
  queries.forEach((_, q) => keys.forEach((_, k) => {
    context.globalAlpha = weight(q, k, head);
    context.fillRect(k, q, 1, 1);
  }));
  return canvas;
}

// Only what changes is made anew: the input that was just used has to keep the focus.
function pickers() {
  const views = shown.views.map((view, i) => [i, view.name]);
  radios("views", views, state.view, (value) => {
    turnTo(value);
    tokens();
    layerPicker();
  });
  layerPicker();
}

function layerPicker() {
  const layers = shown.views[state.view].layers.map((_, i) => [i, `${i + 1}`]);
  radios("layers", layers, state.layer, (value) => { state.layer = value; headPicker(); });
  headPicker();
}

function headPicker() {
  const heads = [[-1, "mean"], ...Array.from({ length: shown.heads }, (_, i) => [i, `${i + 1}`])];
  radios("heads", heads, state.head, (value) => { state.head = value; }, (h) => [thumbnail(h)]);
}

function tokens() {
  const view = shown.views[state.view];
  byId("hint").textContent = view.hint;
  for (const side of ["queries", "keys"]) {
    const box = byId(side);
    box.replaceChildren(element("h2", {}, side === "queries" ? "from" : "to"));
    view[side].forEach((token, index) => {
      const button = element("button", { className: "token", type: "button" },
        element("span", { className: "text" }, token.text));
      if (token.writes !== undefined) button.append(element("small", {}, `→ ${token.writes}`));
      button.append(element("span", { className: "weight" }));
      const show = () => { if (!state.pinned) { Object.assign(state, { side, index }); draw(); } };
      button.addEventListener("mouseenter", show);
      button.addEventListener("focus", show);
      button.addEventListener("click", () => {
        const again = state.pinned && state.side === side && state.index === index;
        Object.assign(state, { side, index, pinned: !again });
        draw();
      });
      button.addEventListener("keydown", (event) => move(event, side, index));
      box.append(button);
    });
  }
}

function move(event, side, index) {
  const other = side === "queries" ? "keys" : "queries";
  const goal = {
    ArrowUp: [side, index - 1], ArrowDown: [side, index + 1],
    ArrowLeft: ["queries", index], ArrowRight: ["keys", index],
  }[event.key];
  if (!goal || (goal[0] === side && goal[1] === index)) return;
  const there = byId(goal[0]).querySelectorAll(".token");
  const next = there[goal[0] === other ? Math.min(goal[1], there.length - 1) : goal[1]];
  event.preventDefault();
  if (next) next.focus();
}

function line(query, key, opacity) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "line");
  const ends = { x1: 0, y1: (query + 0.5) * ROW, x2: 100, y2: (key + 0.5) * ROW, opacity };
  Object.entries(ends).forEach(([name, value]) => made.setAttribute(name, value));
  return made;
}

function draw() {
  if (!shown.views.length) return;
  const { queries, keys } = shown.views[state.view];
  const active = state.side !== null;
  const height = ROW * Math.max(queries.length, keys.length);
  const svg = byId("lines");
  svg.setAttribute("viewBox", `0 0 100 ${height}`);
  svg.style.height = `${height}px`;
  const drawn = [];
  queries.forEach((_, q) => keys.forEach((_, k) => {
    const visible = !active || (state.side === "queries" ? q : k) === state.index;
    const w = visible ? weight(q, k) : 0;
    if (w >= 0.02) drawn.push(line(q, k, w));
  }));
  svg.replaceChildren(...drawn);
  for (const side of ["queries", "keys"]) {
    byId(side).querySelectorAll(".token").forEach((token, i) => {
      token.classList.toggle("active", active && side === state.side && i === state.index);
      token.setAttribute("aria-pressed", state.pinned && token.classList.contains("active"));
      const w = !active || side === state.side ? null
        : side === "keys" ? weight(state.index, i) : weight(i, state.index);
      token.querySelector(".weight").textContent = w === null ? "" : w.toFixed(3);
      token.style.background = w === null ? ""
        : `color-mix(in srgb, var(--accent) ${(100 * w).toFixed(1)}%, transparent)`;
    });
  }
  describe(active);
  shown.drawn();
}

function describe(active) {
  const view = shown.views[state.view];
  if (!active) {
    byId("description").textContent = "No token is chosen: all weights of 0.02 and more are drawn.";
    return;
  }
  const quoted = (token) => `“${token.text.trim()}”`;
  const ours = view[state.side][state.index];
  const others = state.side === "queries" ? view.keys : view.queries;
  const ranked = others.map((token, i) => [
    state.side === "queries" ? weight(state.index, i) : weight(i, state.index), token,
  ]).sort((a, b) => b[0] - a[0]).filter(([w]) => w >= 0.005).slice(0, 5);
  const list = ranked.map(([w, token]) => `${quoted(token)} ${w.toFixed(3)}`).join(", ");
  const doing = ours.writes === undefined ? "" : ` (reads this, writes “${ours.writes.trim()}”)`;
  byId("description").textContent = state.side === "queries"
    ? `${quoted(ours)}${doing} attends to ${list}`
    : `${quoted(ours)} is attended to by ${list || "no token"}`;
}

function release() {
  Object.assign(state, { side: null, pinned: false });
  draw();
}
byId("map").addEventListener("mouseleave", () => { if (!state.pinned) release(); });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") release(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  if (shown.views.length) headPicker();
});
