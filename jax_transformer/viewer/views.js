// The views of attention: pickers of attention, layer and head, and the tokens with their weights.

const ROW = 30;  // height of a token, as in the style sheet
const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
// What is shown of each attention: { name, hint, queries, keys, layers }, where a weight is
// layers[layer][query][head][key].
const shown = { views: [], isDropped: () => false, drawn: () => {} };
// What is picked. Head 0 is the mean of all. The token `index` of a side is active, none if it is -1.
const state = { view: 2, layer: Infinity, head: 0, side: "queries", index: 1, pinned: false };
// As a view opens: in the decoder the first query reads no word, so the second is active.
const SECOND = { side: "queries", index: 1, pinned: false };

const current = () => shown.views[state.view];

// Show what these changes of the state pick.
function look(changes) {
  Object.assign(state, changes);
  const { hint, layers } = current();
  state.layer = Math.min(state.layer, layers.length - 1);  // stacks may differ in their layers
  state.index = Math.min(state.index, current()[state.side].length - 1);
  byId("hint").textContent = hint;
  picker("views", "view", shown.views.map((view) => view.name), SECOND);
  picker("layers", "layer", layers.map((_, layer) => layer + 1));
  picker("heads", "head", ["mean", ...layers[0][0].map((_, h) => h + 1)], {}, thumbnail);
  tokens("queries", "from");
  tokens("keys", "to");
  draw();
}

function weight(query, key, head = state.head) {
  const heads = current().layers[state.layer][query];
  const rows = head ? [heads[head - 1]] : heads;
  return rows.reduce((total, row) => total + (row[key] ?? 0), 0) / rows.length;  // 0 of later tokens
}

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function picker(id, part, names, changes = {}, icon = () => "") {
  byId(id).replaceChildren(...names.map((name, value) => {
    const input = element("input", { type: "radio", name: part, checked: value === state[part] });
    input.addEventListener("change", () => {
      look({ ...changes, [part]: value });
      byId(id).querySelector(":checked").focus();  // it was made anew
    });
    return element("label", {}, input, icon(value), name);
  }));
}

function thumbnail(head) {
  const { queries, keys } = current();
  const canvas = element("canvas", { width: keys.length, height: queries.length });
  canvas.classList.toggle("dropped", shown.isDropped(head));
  canvas.setAttribute("aria-hidden", "true");
  const context = canvas.getContext("2d");
  context.fillStyle = "#4a90f0";  // on dark and light
  queries.forEach((_, q) => keys.forEach((_, k) => {
    context.globalAlpha = weight(q, k, head);
    context.fillRect(k, q, 1, 1);
  }));
  return canvas;
}

function tokens(side, title) {
  const buttons = current()[side].map(({ text, writes }, index) => {
    const button = element("button", { className: "token", type: "button" },
      element("span", { className: "text" }, text),
      ...(writes === undefined ? [] : [element("small", {}, `→ ${writes}`)]),
      element("span", { className: "weight" }));
    const show = () => { if (!state.pinned) activate({ side, index }); };
    button.addEventListener("mouseenter", show);
    button.addEventListener("focus", show);
    button.addEventListener("click", () => {
      const again = state.pinned && state.side === side && state.index === index;
      activate({ side, index, pinned: !again });
    });
    return button;
  });
  byId(side).replaceChildren(element("h2", {}, title), ...buttons);
}

function activate(changes) {
  Object.assign(state, changes);
  draw();
}

// Let the arrow keys move among the buttons of a box: up and down in their order, and to what
// `left` and `right` give for a button.
function moveByArrows(box, left, right) {
  box.addEventListener("keydown", (event) => {
    const all = [...box.querySelectorAll("button")], here = all.indexOf(event.target);
    const goals = {
      ArrowUp: () => all[here - 1], ArrowDown: () => all[here + 1], ArrowLeft: left, ArrowRight: right,
    };
    if (!(event.key in goals)) return;
    event.preventDefault();
    goals[event.key](event.target)?.focus();
  });
}

function beside(side) {
  return (button) => {
    const row = [...button.parentElement.children].indexOf(button), others = byId(side).children;
    return others[Math.min(row, others.length - 1)];
  };
}

// Lines between tokens, and the weights of those that the active token attends to, or that attend to it.
function draw() {
  if (!shown.views.length) return;
  const { queries, keys } = current(), { side, index, pinned } = state, active = index >= 0;
  const shareOf = (i) => (side === "queries" ? weight(index, i) : weight(i, index));
  const lines = queries.flatMap((_, q) => keys.map((_, k) => [q, k]))
    .filter(([q, k]) => !active || (side === "queries" ? q : k) === index)
    .map(([q, k]) => [(q + 0.5) * ROW, (k + 0.5) * ROW, weight(q, k)]).filter(([, , w]) => w >= 0.02);
  byId("lines").style.height = `${ROW * Math.max(queries.length, keys.length)}px`;
  byId("lines").innerHTML = lines.map(([from, to, w]) =>
    `<line x1="0" y1="${from}" x2="100%" y2="${to}" opacity="${w}"/>`).join("");
  for (const box of [byId("queries"), byId("keys")]) {
    box.querySelectorAll(".token").forEach((token, i) => {
      const own = box.id === side, w = active && !own ? shareOf(i) : null;
      token.classList.toggle("active", own && i === index);
      token.setAttribute("aria-pressed", pinned && own && i === index);
      token.querySelector(".weight").textContent = w === null ? "" : w.toFixed(3);
      token.style.setProperty("--weight", `${100 * w}%`);
    });
  }
  byId("description").textContent = active ? description(shareOf)
    : "No token is chosen: all weights of 0.02 and more are drawn.";
  shown.drawn();
}

function description(shareOf) {
  const { queries, keys } = current(), isQuery = state.side === "queries";
  const ours = (isQuery ? queries : keys)[state.index];
  const quoted = (text) => `“${text.trim()}”`;
  const list = (isQuery ? keys : queries).map(({ text }, i) => [shareOf(i), text])
    .sort((a, b) => b[0] - a[0]).filter(([w]) => w >= 0.005).slice(0, 5)
    .map(([w, text]) => `${quoted(text)} ${w.toFixed(3)}`).join(", ");
  const doing = ours.writes === undefined ? "" : ` (reads this, writes ${quoted(ours.writes)})`;
  return isQuery ? `${quoted(ours.text)}${doing} attends to ${list}`
    : `${quoted(ours.text)} is attended to by ${list || "no token"}`;
}

moveByArrows(byId("map"), beside("queries"), beside("keys"));
const release = () => activate({ index: -1, pinned: false });
byId("map").addEventListener("mouseleave", () => { if (!state.pinned) release(); });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") release(); });
