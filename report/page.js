"use strict";
const D = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const ROW = 84, HEIGHT = 46, READABLE = 0.42, TABLE_ROW = 30;
const element = (name, props = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(props)) {
    if (key === "style" || key.startsWith("data-") || key.startsWith("aria-")) made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children.filter((child) => child !== null));
  return made;
};
const escape = (text) => String(text).replace(/[&<>"]/g, (one) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[one]);
const colour = (backend) => `--c: var(${D.colours[backend] ?? "--runtime"})`;
const swatch = (backend) => element("span", { className: "swatch", style: colour(backend) });
const bytes = (count) => {
  if (count === null) return "?";
  let amount = count;
  for (const unit of ["B", "KiB", "MiB"]) {
    if (amount < 1024) return unit === "B" ? `${amount} B` : `${amount.toFixed(1)} ${unit}`;
    amount /= 1024;
  }
  return `${amount.toFixed(1)} GiB`;
};
const quantity = (count) => {
  for (const [unit, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (count >= size) return `${(count / size).toFixed(count / size < 10 ? 2 : 1)} ${unit}`;
  }
  return String(count);
};
const total = (tensors) => tensors.reduce((sum, tensor) => sum + (tensor[2] ?? 0), 0);
const opByName = new Map(D.operators.map((one, index) => [one.node, index]));

/* The graph: vertices [kind, name, backend, x, layer, width, title, subtitle, members, inputs, constants, outputs]. */
const views = {};
for (const [name, view] of Object.entries(D.views)) {
  const layers = [];
  const vertices = view.vertices.map(([kind, title, backend, x, layer, width, label, note, members, inputs, constants, outputs], index) => {
    (layers[layer] ??= []).push(index);
    return { kind, name: title, backend, x, y: layer * ROW, width, label, note, members, inputs, constants, outputs, out: [], into: [] };
  });
  const edges = view.edges.map(([source, target, bends, size], index) => {
    const from = vertices[source], to = vertices[target];
    let path = `M${from.x} ${from.y + HEIGHT}`, x = from.x, y = from.y + HEIGHT;
    const curve = (nextX, nextY) => {
      const middle = (y + nextY) / 2;
      path += `C${x} ${middle} ${nextX} ${middle} ${nextX} ${nextY}`;
    };
    for (let i = 0; i < bends.length; i += 2) {
      const top = bends[i + 1] * ROW;
      curve(bends[i], top);
      path += `V${top + HEIGHT}`;
      x = bends[i];
      y = top + HEIGHT;
    }
    const label = { x: (x + to.x) / 2, y: (y + to.y) / 2 + 4 };
    curve(to.x, to.y);
    from.out.push(index);
    to.into.push(index);
    return { source, target, path, label, size, top: from.y, bottom: to.y + HEIGHT };
  });
  const width = Math.max(1, ...vertices.map((one) => one.x + one.width / 2));
  const vertexOf = new Map();
  vertices.forEach((one, index) => one.members.forEach((member) => vertexOf.set(member, index)));
  views[name] = { vertices, edges, layers, vertexOf, width, height: Math.max(1, layers.length * ROW - ROW + HEIGHT) };
}
let view = null, scale = 1, left = 0, top_ = 0, drawn = null, selected = null, hits = new Set(), pending = false;
const canvas = $("canvas"), world = $("world"), map = $("map");

function show(name, keep = false) {
  view = views[name];
  drawn = null;
  selected = null;
  for (const one of ["regions", "operators"]) $(`show-${one}`).setAttribute("aria-pressed", one === name);
  search(false);
  if (!keep) {
    fit(0.75);
    overview();
  }
}
function fit(least) {
  const { clientWidth, clientHeight } = canvas;
  const edge = 24, across = (clientWidth - 2 * edge) / view.width;
  scale = Math.min(1.1, across, (clientHeight - 2 * edge) / view.height);
  if (scale < least) scale = Math.min(least, Math.max(scale, across), 1.1);
  left = (clientWidth - view.width * scale) / 2;
  top_ = Math.max(edge, (clientHeight - view.height * scale) / 2);
  schedule();
}
function zoom(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const next = Math.min(2.5, Math.max(0.004, scale * factor));
  left = x - ((x - left) * next) / scale;
  top_ = y - ((y - top_) * next) / scale;
  scale = next;
  schedule();
}
function schedule() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    world.setAttribute("transform", `translate(${left} ${top_}) scale(${scale})`);
    draw();
    drawMap();
  });
}
/* Only what is near the window is in the document; it is drawn anew when the window leaves that neighbourhood. */
function draw() {
  const { clientWidth, clientHeight } = canvas;
  const from = -top_ / scale, to = (clientHeight - top_) / scale, close = scale >= READABLE;
  const west = -left / scale, east = (clientWidth - left) / scale;
  if (drawn && drawn.view === view && drawn.close === close && drawn.selected === selected && drawn.hits === hits
      && from >= drawn.from && to <= drawn.to && west >= drawn.west && east <= drawn.east
      && to - from > (drawn.to - drawn.from) / 8) return;
  const margin = to - from, side = east - west;
  drawn = { view, close, selected, hits, from: from - margin, to: to + margin, west: west - side, east: east + side };
  const first = Math.max(0, Math.floor((drawn.from - HEIGHT) / ROW)), last = Math.min(view.layers.length - 1, Math.ceil(drawn.to / ROW));
  const parts = [];
  for (let layer = first; layer <= last; layer++) {
    for (const index of view.layers[layer] ?? []) {
      const one = view.vertices[index];
      if (one.x + one.width / 2 >= drawn.west && one.x - one.width / 2 <= drawn.east) parts.push(box(one, index, close));
    }
  }
  $("nodes").innerHTML = parts.join("");
  let path = "", sizes = "";
  for (const edge of view.edges) {
    if (edge.bottom < drawn.from || edge.top > drawn.to) continue;
    path += edge.path;
    if (close && view === views.regions) sizes += `<text x="${edge.label.x}" y="${edge.label.y}">${bytes(edge.size)}</text>`;
  }
  $("edges").innerHTML = `<path d="${path}"/>`;
  $("sizes").innerHTML = sizes;
  const near = selected === null ? [] : [...view.vertices[selected].into, ...view.vertices[selected].out];
  $("marks").innerHTML = `<path d="${near.map((index) => view.edges[index].path).join("")}"/>`;
}
function box(one, index, close) {
  const x = one.x - one.width / 2;
  const marks = `${close ? "box" : "box far"}${hits.has(index) ? " hit" : ""}${selected === index ? " selected" : ""}${one.kind === "input" || one.kind === "output" ? " io" : ""}`;
  const start = `<g class="${marks}" data-vertex="${index}" style="${colour(one.backend)}"><rect x="${x}" y="${one.y}" width="${one.width}" height="${HEIGHT}"/>`;
  if (!close) return `${start}</g>`;
  return `${start}<rect class="stripe" x="${x}" y="${one.y}" width="5" height="${HEIGHT}"/><text x="${x + 14}" y="${one.y + 20}">${escape(one.label)}</text><text x="${x + 14}" y="${one.y + 36}">${escape(one.note)}</text><title>${escape(one.name)}</title></g>`;
}

/* The overview beside the graph, squeezed to its height. */
let picture = null;
function overview() {
  const ratio = window.devicePixelRatio || 1;
  map.width = map.clientWidth * ratio;
  map.height = map.clientHeight * ratio;
  picture = document.createElement("canvas");
  picture.width = map.width;
  picture.height = map.height;
  const pen = picture.getContext("2d"), style = getComputedStyle(document.documentElement);
  const across = (picture.width - 16 * ratio) / view.width, down = (picture.height - 16 * ratio) / view.height;
  for (const one of view.vertices) {
    pen.fillStyle = style.getPropertyValue(D.colours[one.backend] ?? "--runtime");
    pen.fillRect(8 * ratio + (one.x - one.width / 2) * across, 8 * ratio + one.y * down,
      Math.max(2, one.width * across), Math.max(1, HEIGHT * down));
  }
}
function drawMap() {
  if (!picture || !map.width) return;
  const pen = map.getContext("2d"), ratio = window.devicePixelRatio || 1;
  pen.clearRect(0, 0, map.width, map.height);
  pen.drawImage(picture, 0, 0);
  const down = (map.height - 16 * ratio) / view.height, y = 8 * ratio + (-top_ / scale) * down;
  const height = (canvas.clientHeight / scale) * down;
  pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--ink");
  pen.lineWidth = 1.5 * ratio;
  const start = Math.max(1, y), end = Math.min(map.height - 1, y + height);
  pen.strokeRect(2, start, map.width - 4, Math.max(3, end - start));
}
function jump(event) {
  const share = (event.offsetY - 8) / (map.clientHeight - 16);
  top_ = canvas.clientHeight / 2 - share * view.height * scale;
  schedule();
}
map.addEventListener("pointerdown", (event) => { map.setPointerCapture(event.pointerId); jump(event); });
map.addEventListener("pointermove", (event) => { if (event.buttons) jump(event); });

/* Moving, zooming, choosing. */
let grip = null;
canvas.addEventListener("pointerdown", (event) => {
  grip = { x: event.clientX, y: event.clientY, left, top: top_, moved: false };
});
window.addEventListener("pointermove", (event) => {
  if (!grip) return;
  const x = event.clientX - grip.x, y = event.clientY - grip.y;
  if (!grip.moved && Math.hypot(x, y) < 4) return;
  grip.moved = true;
  canvas.classList.add("moving");
  left = grip.left + x;
  top_ = grip.top + y;
  schedule();
});
window.addEventListener("pointerup", (event) => {
  if (grip && !grip.moved) {
    const found = event.target.closest?.("[data-vertex]");
    choose(found ? Number(found.dataset.vertex) : null);
  }
  grip = null;
  canvas.classList.remove("moving");
});
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const bounds = canvas.getBoundingClientRect();
  if (event.shiftKey) { top_ -= event.deltaY; left -= event.deltaX; schedule(); }
  else zoom(Math.exp(-event.deltaY * 0.0016), event.clientX - bounds.left, event.clientY - bounds.top);
}, { passive: false });
canvas.addEventListener("keydown", (event) => {
  const steps = { ArrowUp: [0, 80], ArrowDown: [0, -80], ArrowLeft: [80, 0], ArrowRight: [-80, 0] };
  if (steps[event.key]) { event.preventDefault(); left += steps[event.key][0]; top_ += steps[event.key][1]; schedule(); }
  if (event.key === "+") zoom(1.3);
  if (event.key === "-") zoom(1 / 1.3);
});
function centre(index) {
  const one = view.vertices[index];
  if (scale < 0.6) scale = 0.8;
  left = canvas.clientWidth / 2 - one.x * scale;
  top_ = canvas.clientHeight / 2 - (one.y + HEIGHT / 2) * scale;
  schedule();
}
function choose(index, move = false) {
  selected = index;
  if (index === null) about();
  else details(view.vertices[index]);
  if (move && index !== null) centre(index);
  markRow(index !== null && view.vertices[index].kind === "operator" ? view.vertices[index].members[0] : null);
  schedule();
}
function chooseOperator(number) {
  if (view !== views.operators) { show("operators", true); overview(); }
  const index = view.vertexOf.get(number);
  if (index === undefined) operatorPanel(number);
  else choose(index, true);
}
function search(move = true) {
  const text = $("search").value.trim().toLowerCase();
  hits = new Set();
  if (text) {
    view.vertices.forEach((one, index) => {
      const types = one.members.map((member) => `${D.operators[member].node} ${D.operators[member].op} ${D.operators[member].composite}`);
      if (`${one.name} ${one.backend} ${types.join(" ")}`.toLowerCase().includes(text)) hits.add(index);
    });
  }
  $("hits").textContent = text ? `${hits.size} found` : "";
  if (move && hits.size) centre([...hits][0]);
  schedule();
}
let turn = 0;
$("search").addEventListener("input", () => { turn = 0; search(); });
$("search").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && hits.size) { choose([...hits][turn % hits.size], true); turn += 1; }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !["INPUT", "SELECT"].includes(document.activeElement.tagName)) { event.preventDefault(); $("search").focus(); }
  if (event.key === "Escape") choose(null);
});
$("show-regions").addEventListener("click", () => { show("regions"); about(); });
$("show-operators").addEventListener("click", () => { show("operators"); about(); });
$("zoom-in").addEventListener("click", () => zoom(1.3));
$("zoom-out").addEventListener("click", () => zoom(1 / 1.3));
$("zoom-fit").addEventListener("click", () => fit(0));

/* The panel. */
function fill(...children) {
  $("panel").replaceChildren(...children.filter((child) => child !== null));
  $("panel").scrollTop = 0;
}
function about() {
  fill(element("p", { className: "muted" }, "Click a region or an operator to see what is in it, what goes in and out, and why it is where it is. Drag to move, wheel to zoom."));
}
function facts(rows) {
  const list = element("dl");
  for (const [name, value] of rows) if (value !== null && value !== "") list.append(element("dt", {}, name), element("dd", {}, value));
  return list;
}
function tensors(title, rows, open = true) {
  if (!rows.length) return null;
  const body = element("tbody");
  for (const [name, type, size] of rows) {
    body.append(element("tr", {}, element("td", { className: "mono" }, name, element("br"), element("span", { className: "muted" }, type)), element("td", { className: "number" }, bytes(size))));
  }
  return element("details", { open }, element("summary", {}, `${title} (${rows.length}, ${bytes(total(rows))})`), element("table", {}, body));
}
const tag = (backend) => element("span", { className: "tag" }, swatch(backend), backend || "nobody");
const code = (text) => element("span", { className: text.startsWith("lost-to:") ? "code" : "code real" }, text);
function whyNot(reasons) {
  if (!reasons.length) return null;
  const box_ = element("div", {}, element("h3", {}, "Why not elsewhere"));
  for (const [index, count] of reasons) {
    const [backend, kind, text, remedy] = D.reasons[index];
    box_.append(element("div", { className: "why" }, tag(backend), " ", code(kind), count > 1 ? element("span", { className: "muted" }, ` × ${count}`) : null,
      element("p", { className: "reason" }, text), element("p", { className: "muted" }, `To change it: ${remedy}.`)));
  }
  return box_;
}
function operatorPanel(number) {
  const one = D.operators[number];
  fill(element("h2", {}, swatch(one.backend), one.op), element("p", { className: "mono muted" }, one.node),
    facts([["Backend", one.backend || "nobody"], ["Region", one.region ? regionLink(one.region) : ""], ["Composite", one.composite],
      ["FLOPs", one.flops ? quantity(one.flops) : ""], ["Bytes in", bytes(total(one.inputs))], ["Bytes out", bytes(total(one.outputs))],
      ...Object.entries(one.attributes).map(([name, value]) => [name, element("code", {}, value)])]),
    whyNot(one.why.map((index) => [index, 1])), tensors("Inputs", one.inputs), tensors("Constants", one.constants), tensors("Outputs", one.outputs));
}
function regionLink(name) {
  return element("button", { className: "link mono", type: "button", onclick: () => {
    show("regions", true);
    overview();
    choose(view.vertices.findIndex((one) => one.kind === "region" && one.name === name), true);
  } }, name);
}
function details(one) {
  if (one.kind === "operator" && one.members.length) return operatorPanel(one.members[0]);
  const counts = new Map(), composites = new Map(), reasons = new Map();
  let flops = 0;
  for (const member of one.members) {
    const operator = D.operators[member];
    counts.set(operator.op, (counts.get(operator.op) ?? 0) + 1);
    if (operator.composite) composites.set(operator.composite, (composites.get(operator.composite) ?? 0) + 1);
    operator.why.forEach((index) => reasons.set(index, (reasons.get(index) ?? 0) + 1));
    flops += operator.flops;
  }
  const listed = (rows) => element("ul", {}, ...[...rows].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([name, count]) => element("li", {}, element("span", {}, name), element("span", { className: "muted" }, String(count)))));
  const kind = { region: "Region", input: "Model input", output: "Model output", operator: "Operator" }[one.kind];
  fill(element("h2", {}, swatch(one.backend), one.name), element("p", { className: "muted" }, kind),
    one.kind === "region" ? facts([["Backend", one.backend], ["Operators", String(one.members.length)], ["FLOPs", flops ? quantity(flops) : ""],
      ["Bytes in", bytes(total(one.inputs))], ["Bytes out", bytes(total(one.outputs))], ["Constants", bytes(total(one.constants))]]) : null,
    counts.size ? element("details", { open: true }, element("summary", {}, "Operators by type"), listed(counts)) : null,
    composites.size ? element("details", { open: true }, element("summary", {}, "Operators in composites"), listed(composites)) : null,
    whyNot([...reasons].sort((a, b) => b[1] - a[1])),
    tensors("Inputs", one.inputs), tensors("Outputs", one.outputs), tensors("Constants", one.constants, false),
    one.members.length ? element("details", {}, element("summary", {}, `All operators (${one.members.length})`),
      element("ul", {}, ...one.members.slice(0, 400).map((member) => element("li", {}, element("button", { className: "link mono", type: "button", onclick: () => chooseOperator(member) }, D.operators[member].node), element("span", { className: "muted" }, D.operators[member].op))))) : null);
}

/* Real refusals come first: that another backend stood before this one says little. */
function refusals(one) {
  const reasons = one.why.map((index) => D.reasons[index]), lost = ([, kind]) => kind.startsWith("lost-to:");
  return [...reasons.filter((row) => !lost(row)), ...reasons.filter(lost)].map(([backend, kind]) => `${backend} ${kind}`).join(", ");
}

/* The table: only the rows in view are in the document. */
const columns = [
  ["#", 5, (one, index) => index, "number"], ["Node", 20, (one) => one.node, "mono"], ["Operator", 12, (one) => one.op, ""],
  ["Backend", 8, (one) => one.backend, ""], ["Region", 9, (one) => one.region, "mono"], ["Composite", 13, (one) => one.composite, "mono"],
  ["FLOPs", 7, (one) => one.flops, "number"], ["Bytes in", 7, (one) => total(one.inputs), "number"], ["Bytes out", 7, (one) => total(one.outputs), "number"],
  ["Refusals", 16, (one) => refusals(one), ""],
];
let order = { column: 0, down: false }, rows = [], reason = null, marked = null;
const head = document.querySelector("#rows thead tr"), body = document.querySelector("#rows tbody");
columns.forEach(([name, width, , kind], index) => {
  const cell = element("th", { className: kind === "number" ? "number" : "", style: `width: ${width}%`, tabIndex: 0, scope: "col" }, name);
  const sort = () => { order = { column: index, down: order.column === index ? !order.down : kind === "number" && index > 0 }; list(); };
  cell.addEventListener("click", sort);
  cell.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
  head.append(cell);
});
function list() {
  const text = $("filter").value.trim().toLowerCase(), backend = $("filter-backend").value;
  const value = columns[order.column][2], sign = order.down ? -1 : 1;
  rows = D.operators.map((one, index) => index).filter((index) => {
    const one = D.operators[index];
    return (!backend || one.backend === backend) && (reason === null || one.why.includes(reason))
      && (!text || `${one.node} ${one.op} ${one.backend} ${one.region} ${one.composite} ${columns[9][2](one)}`.toLowerCase().includes(text));
  });
  const keys = rows.length ? new Map(rows.map((index) => [index, value(D.operators[index], index)])) : new Map();
  rows.sort((a, b) => { const x = keys.get(a), y = keys.get(b); return (x < y ? -1 : x > y ? 1 : a - b) * (x === y ? 1 : sign); });
  [...head.children].forEach((cell, index) => cell.setAttribute("aria-sort", index !== order.column ? "none" : order.down ? "descending" : "ascending"));
  $("count").textContent = `${rows.length} of ${D.operators.length} operators`;
  $("filter-reason").hidden = reason === null;
  if (reason !== null) $("filter-reason").textContent = `${D.reasons[reason][0]}: ${D.reasons[reason][1]} ✕`;
  $("rows").scrollTop = 0;
  page();
}
function page() {
  const first = Math.max(0, Math.floor($("rows").scrollTop / TABLE_ROW) - 10), last = Math.min(rows.length, first + 50);
  const pad = (count) => element("tr", { "aria-hidden": "true" }, element("td", { className: "pad", colSpan: columns.length, style: `height: ${count * TABLE_ROW}px` }));
  const shown = rows.slice(first, last).map((index) => {
    const one = D.operators[index];
    const cells = columns.map(([name, , value, kind]) => {
      const found = value(one, index);
      const text = name === "FLOPs" ? (found ? quantity(found) : "") : name.startsWith("Bytes") ? bytes(found) : String(found);
      return name === "Backend" ? element("td", {}, tag(one.backend)) : element("td", { className: kind, title: kind === "number" ? "" : text }, text);
    });
    return element("tr", { "data-operator": index, className: index === marked ? "selected" : "", onclick: () => chooseOperator(index) }, ...cells);
  });
  body.replaceChildren(...(first ? [pad(first)] : []), ...shown, ...(last < rows.length ? [pad(rows.length - last)] : []));
}
function markRow(number) {
  marked = number;
  for (const row of body.children) row.classList.toggle("selected", row.dataset.operator !== undefined && Number(row.dataset.operator) === number);
}
$("rows").addEventListener("scroll", () => requestAnimationFrame(page));
$("filter").addEventListener("input", list);
$("filter-backend").addEventListener("change", list);
$("filter-reason").addEventListener("click", () => { reason = null; list(); });
for (const link of document.querySelectorAll("[data-reason]")) {
  link.addEventListener("click", () => { reason = Number(link.dataset.reason); list(); $("operators").scrollIntoView(); });
}
new ResizeObserver(() => { overview(); drawn = null; schedule(); }).observe(canvas);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { overview(); schedule(); });
show(D.start);
about();
list();
