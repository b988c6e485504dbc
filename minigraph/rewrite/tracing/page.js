"use strict";
// The trace, as page.py writes it. A line is [text, type, role, names read, names written, source line, depth]. The rows of
// a step are those of step `base` with splices: [position, number of rows that go, line, identity, line, identity, ...].
const data = JSON.parse(document.getElementById("data").textContent);
const [TEXT, TYPE, ROLE, READS, WRITES, SITE, DEPTH] = [0, 1, 2, 3, 4, 5, 6];
const ROW = 24; // height of a row in pixels, as in page.css
const LANE = 11; // distance of two lanes in pixels
const LONGEST = 400; // most rows that a lane is long
const NEAR = 12; // most rows to a near reader
const LATE = 60; // most characters before the type of an operator; behind more it is written first
const MOST_DECLARATIONS = 8; // more are folded into one row
const $ = (id) => document.getElementById(id);
const view = { step: 0, chosen: null, unfolded: false, hits: [], found: new Set(), hit: -1 };
let panes = [];

// ---- states of programs

const states = new Map();

function rowsOf(step) {
  const missing = [];
  let at = step;
  for (; at >= 0 && !states.has(at); at = data.steps[at].base) missing.push(at);
  let rows = at < 0 ? [] : states.get(at);
  for (const each of missing.reverse()) {
    rows = spliced(rows, data.steps[each].rows);
    states.set(each, rows);
  }
  return rows;
}

function spliced(old, splices) {
  if (!splices.length) return old;
  const rows = [];
  let at = 0;
  for (const splice of splices) {
    while (at < splice[0]) rows.push(old[at++]);
    at += splice[1];
    for (let i = 2; i < splice.length; i += 2) rows.push({ line: data.lines[splice[i]], key: splice[i + 1] });
  }
  while (at < old.length) rows.push(old[at++]);
  return rows;
}

// Both states in one list: rows that went stand where they were.
function merged(before, after) {
  const old = new Map(before.map((row) => [row.key, row]));
  const now = new Set(after.map((row) => row.key));
  const done = new Set();
  const items = [];
  let at = 0;
  const skip = () => {
    for (; at < before.length && (done.has(before[at].key) || !now.has(before[at].key)); at++)
      if (!now.has(before[at].key)) items.push({ ...before[at], mark: "removed" });
  };
  for (const row of after) {
    skip();
    const was = old.get(row.key);
    const mark = !was ? "added" : was.line !== row.line ? "changed" : before[at].key !== row.key ? "moved" : "";
    items.push({ ...row, mark, old: was && was.line !== row.line ? was.line : null });
    done.add(row.key);
  }
  skip();
  return items;
}

// Two states beside each other: equal results stand in one row, a gap where the other program has none.
function aligned(left, right) {
  const labels = (rows) => {
    const seen = new Map();
    return rows.map(({ line }) => {
      const label = `${line[TYPE]}|${line[WRITES]}`;
      seen.set(label, (seen.get(label) || 0) + 1);
      return `${label}#${seen.get(label)}`;
    });
  };
  const places = new Map(labels(right).map((label, at) => [label, at]));
  const pairs = increasing(labels(left).flatMap((label, at) => (places.has(label) ? [[at, places.get(label)]] : [])));
  const [a, b] = [[], []];
  let [i, j] = [0, 0];
  for (const [x, y] of [...pairs, [left.length, right.length]]) {
    for (; i < x; i++) a.push({ ...left[i], mark: "removed" }), b.push({ gap: true, key: `g${i}` });
    for (; j < y; j++) b.push({ ...right[j], mark: "added" }), a.push({ gap: true, key: `g${j}` });
    if (x === left.length) break;
    const differ = left[x].line[TEXT] !== right[y].line[TEXT];
    a.push({ ...left[x], mark: differ ? "changed" : "", old: differ ? right[y].line : null });
    b.push({ ...right[y], mark: differ ? "changed" : "", old: differ ? left[x].line : null });
    [i, j] = [x + 1, y + 1];
  }
  return [a, b];
}

// The longest run of pairs whose second numbers increase.
function increasing(pairs) {
  const ends = [];
  const before = [];
  pairs.forEach(([, y], at) => {
    let [low, high] = [0, ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (pairs[ends[middle]][1] < y) low = middle + 1;
      else high = middle;
    }
    before.push(low ? ends[low - 1] : -1);
    ends[low] = at;
  });
  const found = [];
  for (let at = ends.length ? ends[ends.length - 1] : -1; at >= 0; at = before[at]) found.push(pairs[at]);
  return found.reverse();
}

function folded(items) {
  const declared = items.filter((item) => !item.gap && item.line[ROLE] === "declared" && item.line[DEPTH] === 0);
  if (declared.length <= MOST_DECLARATIONS) return items;
  const kinds = new Map();
  for (const { line } of declared) kinds.set(line[TYPE], (kinds.get(line[TYPE]) || 0) + 1);
  const text = `${declared.length} declarations: ${[...kinds].map(([kind, count]) => `${count} ${kind}`).join(", ")}`;
  const fold = { fold: true, key: "fold", text: `${view.unfolded ? "\u25be" : "\u25b8"} ${text}` };
  const kept = view.unfolded ? items : items.filter((item) => item.mark || !declared.includes(item));
  return [fold, ...kept];
}

// ---- lanes

// Each value, from the row that writes it to those that read it. `drawn` are the readers that its lane leads to.
function valuesOf(items) {
  const values = [];
  const current = new Map();
  items.forEach((item, at) => {
    if (!item.line || item.mark === "removed") return;
    for (const name of item.line[READS]) {
      const value = current.get(name);
      if (value) value.readers.push(at);
    }
    for (const name of item.line[WRITES]) {
      const value = { name, from: at, readers: [], drawn: [], role: item.line[ROLE], lane: -1 };
      current.set(name, value);
      values.push(value);
    }
  });
  return values;
}

// Gives lanes to values, those of short ones next to the rows. A value for which no lane is left leads to near readers only.
function assignLanes(values, rows, most) {
  const taken = [];
  const length = ({ from, drawn }) => (drawn.length ? drawn[drawn.length - 1] - from : 0);
  const isDeclared = ({ role }) => Number(role === "declared");
  for (const far of [LONGEST, NEAR]) {
    const open = values.filter((value) => value.lane < 0);
    for (const value of open) value.drawn = value.readers.filter((at) => at - value.from <= far);
    open.sort((a, b) => isDeclared(a) - isDeclared(b) || length(a) - length(b) || a.from - b.from);
    for (const value of open) {
      const end = value.from + length(value);
      const isWhole = far === NEAR || value.drawn.length === value.readers.length;
      for (let lane = 0; lane < most && value.lane < 0 && end > value.from && isWhole; lane++) {
        taken[lane] = taken[lane] || new Uint8Array(rows);
        if (taken[lane].subarray(value.from, end).includes(1)) continue;
        taken[lane].fill(1, value.from, end);
        value.lane = lane;
      }
    }
  }
  return taken.length;
}

// ---- a list of rows

class Pane {
  constructor(number) {
    this.number = number;
    this.element = make("section", "pane");
    this.title = make("h2");
    this.list = make("div", "list");
    this.list.tabIndex = 0;
    this.list.setAttribute("role", "listbox");
    this.rows = make("div", "rows");
    this.rows.setAttribute("role", "presentation");
    this.map = make("div", "map");
    this.svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.svg.setAttribute("aria-hidden", "true");
    this.rows.append(this.svg);
    this.list.append(this.rows);
    this.element.append(this.title, this.list, this.map);
    this.shown = new Map();
    this.items = [];
    this.list.addEventListener("scroll", () => {
      this.draw(false);
      for (const other of panes) if (other !== this) other.list.scrollTop = this.list.scrollTop;
    });
    this.list.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) choose(Number(row.dataset.at), this);
    });
  }

  show(title, items) {
    this.title.textContent = title;
    this.list.setAttribute("aria-label", title);
    this.items = items;
    const width = this.list.clientWidth || 800;
    this.values = valuesOf(items);
    const used = assignLanes(this.values, items.length, width < 480 ? 3 : width < 800 ? 6 : 10);
    this.lanes = (used + 1) * LANE; // the outermost is kept for values of the chosen row that have none
    this.reads = new Map();
    this.writes = new Map();
    for (const value of this.values) {
      push(this.writes, value.from, value);
      for (const at of value.readers) push(this.reads, at, value);
    }
    this.rows.style.height = `${items.length * ROW + 8}px`;
    this.draw(true);
    this.drawMap();
  }

  // Draws the rows in sight. A row keeps its element as long as it is in sight, so that it glides to its new place.
  draw(isStep) {
    const first = Math.max(0, Math.floor(this.list.scrollTop / ROW) - 6);
    const last = Math.min(this.items.length, first + Math.ceil(this.list.clientHeight / ROW) + 14);
    const kept = new Map();
    for (let at = first; at < last; at++) {
      const item = this.items[at];
      const key = `${item.key}${item.mark === "removed" ? "-" : ""}`;
      let row = this.shown.get(key);
      if (!row) {
        row = make("div", isStep ? "row fresh" : "row");
        row.setAttribute("role", "option");
        this.rows.append(row);
        if (isStep) requestAnimationFrame(() => requestAnimationFrame(() => row.classList.remove("fresh")));
      }
      this.fill(row, item, at);
      kept.set(key, row);
    }
    for (const [key, row] of this.shown) if (kept.get(key) !== row) row.remove();
    this.shown = kept;
    this.drawLanes(first, last);
  }

  fill(row, item, at) {
    row.style.transform = `translateY(${at * ROW}px)`;
    row.dataset.at = at;
    row.id = `row-${this.number}-${at}`;
    row.setAttribute("aria-posinset", at + 1);
    row.setAttribute("aria-setsize", this.items.length);
    row.setAttribute("aria-selected", view.chosen === at);
    const fresh = row.classList.contains("fresh") ? " fresh" : "";
    row.className = `row ${this.classes(item, at)}${fresh}`;
    if (row.item !== item || row.lanes !== this.lanes) {
      row.item = item;
      row.lanes = this.lanes;
      row.replaceChildren(...this.parts(item));
    }
  }

  classes(item, at) {
    if (item.gap) return "gap";
    if (item.fold) return "fold";
    const names = [`role-${item.line[ROLE]}`, item.mark || ""];
    if (item.line[DEPTH]) names.push("inner");
    if (this.near && this.near.has(at)) names.push("near");
    if (view.found.has(at)) names.push("found");
    if (item.matched) names.push("matched");
    return names.join(" ");
  }

  parts(item) {
    const lanes = make("span", "lanes");
    lanes.style.width = `${this.lanes + 10}px`;
    if (item.gap) return [lanes];
    if (item.fold) return [lanes, make("span", "text", item.text)];
    const mark = make("span", "mark");
    const sign = { added: "+", removed: "\u2212", changed: "~", moved: "\u2195" }[item.mark] || "";
    mark.append(make("span", "", sign));
    const said = item.mark ? `${item.mark}: ` : "";
    const text = make("span", item.line[TEXT].indexOf(`${item.line[TYPE]}(`) > LATE ? "text late" : "text");
    text.title = `${said}${item.line[ROLE]}`;
    text.style.setProperty("--depth", item.line[DEPTH]);
    text.append(...tokens(item.line, item.mark === "changed" ? item.old : null));
    return [lanes, mark, text];
  }

  drawLanes(first, last) {
    const dot = this.lanes + 4;
    const y = (at) => at * ROW + ROW / 2;
    const drawn = [];
    const strong = new Set(view.chosen === null ? [] : [
      ...(this.reads.get(view.chosen) || []), ...(this.writes.get(view.chosen) || []),
    ]);
    const draw = (value, x, readers, look) => {
      const end = readers[readers.length - 1];
      if (end === undefined || end < first || value.from > last) return;
      const [top, bottom] = [Math.max(y(value.from) + 3, y(first - 4)), Math.min(y(end) - 3, y(last + 4))];
      let path = top > y(value.from) + 3 ? `M${x} ${top}` : `M${dot} ${top}H${x + 5}Q${x} ${top} ${x} ${top + 5}`;
      path += `V${bottom - 5}`;
      let heads = "";
      for (const at of readers) {
        if (at < first - 4 || at > last + 4) continue;
        path += `M${x} ${y(at) - 8}Q${x} ${y(at) - 3} ${x + 5} ${y(at) - 3}H${dot - 6}`;
        heads += `M${dot - 8} ${y(at) - 6}l4.500 3l-4.500 3z`;
      }
      const kind = `lane role-${value.role}${strong.has(value) ? " strong" : ""}`;
      drawn.push(`<path class="${kind}" style="stroke: var(--role)" d="${path}"${look}/>`);
      drawn.push(`<path class="${kind}" style="fill: var(--role); stroke: none" d="${heads}"/>`);
    };
    for (const value of this.values) {
      if (value.lane >= 0) draw(value, dot - (value.lane + 1) * LANE, value.drawn, "");
      const others = strong.has(value) && (value.lane < 0 ? value.readers : value.readers.slice(value.drawn.length));
      if (others) draw(value, 4, others, ' stroke-dasharray="3 3"');
    }
    for (let at = first; at < last; at++) {
      const { line, mark } = this.items[at];
      if (!line) continue;
      const kind = `dot role-${line[ROLE]}`;
      const look = mark === "removed" ? "fill: var(--page); stroke: var(--role)" : "fill: var(--role)";
      drawn.push(`<circle class="${kind}" style="${look}" cx="${dot}" cy="${y(at)}" r="${line[ROLE] === "declared" ? 2.5 : 4}"/>`);
    }
    this.svg.setAttribute("class", strong.size ? "chosen" : "");
    this.svg.setAttribute("width", this.lanes + 10);
    this.svg.setAttribute("height", this.items.length * ROW);
    this.svg.innerHTML = drawn.join("");
  }

  // Marks beside the scroll bar where lines have changed or are found.
  drawMap() {
    const colors = { added: "--added", removed: "--removed", changed: "--changed" };
    const marks = [];
    const height = this.list.clientHeight;
    const scale = Math.min(ROW, height / Math.max(1, this.items.length));
    const put = (at, color) => {
      const mark = make("i");
      mark.style.top = `${Math.round(at * scale)}px`;
      mark.style.background = `var(${color})`;
      marks.push(mark);
    };
    let latest = [-9, ""];
    this.items.forEach((item, at) => {
      const color = colors[item.mark];
      if (!color || (color === latest[1] && (at - latest[0]) * scale < 3)) return;
      latest = [at, color];
      put(at, color);
    });
    for (const at of view.hits) put(at, "--accent");
    this.map.style.top = `${this.list.offsetTop}px`;
    this.map.style.height = `${height}px`;
    this.map.replaceChildren(...marks);
  }

  reveal(at) {
    const [top, height] = [at * ROW, this.list.clientHeight];
    if (top < this.list.scrollTop + ROW || top > this.list.scrollTop + height - 3 * ROW)
      this.list.scrollTop = Math.max(0, top - height / 3);
  }
}

function make(tag, name = "", text = "") {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text) element.textContent = text;
  return element;
}

function push(map, key, value) {
  if (!map.has(key)) map.set(key, []);
  map.get(key).push(value);
}

// The text of a line: its type stands out, and so does what is not as in the line `old`.
function tokens(line, old) {
  const text = line[TEXT];
  const head = line[ROLE] === "declared" ? 0 : Math.max(0, text.indexOf(`${line[TYPE]}(`));
  const tail = text.indexOf(" {", head);
  const cuts = [0, head, head + line[TYPE].length, tail < 0 ? text.length : tail, text.length];
  const kinds = ["", "type", "", "rest"];
  const [from, to] = old ? differing(old[TEXT], text) : [0, 0];
  return kinds.flatMap((kind, at) => {
    const [start, end] = [cuts[at], cuts[at + 1]];
    const inner = [start, Math.min(Math.max(from, start), end), Math.max(Math.min(to, end), start), end];
    return [0, 1, 2].filter((part) => inner[part] < inner[part + 1]).map((part) =>
      make("span", part === 1 ? `${kind} differs` : kind, text.slice(inner[part], inner[part + 1])));
  });
}

// Where a text differs from another: from its first to its last character that is not the same.
function differing(old, text) {
  let [start, end] = [0, 0];
  while (start < text.length && text[start] === old[start]) start++;
  const most = Math.min(text.length, old.length) - start;
  while (end < most && text.at(-1 - end) === old.at(-1 - end)) end++;
  const isWord = (at) => /[\w.@]/.test(text[at] || "");
  while (start > 0 && isWord(start) && isWord(start - 1)) start--; // whole names and numbers
  let stop = text.length - end;
  while (stop < text.length && isWord(stop) && isWord(stop - 1)) stop++;
  return [start, stop];
}

// ---- the page

const signed = (number) => (number > 0 ? `+${number.toLocaleString("en")}` : `\u2212${(-number).toLocaleString("en")}`);

function places() {
  const track = data.steps[view.step].track;
  const idle = $("idle").checked;
  const first = data.steps.findIndex((step) => step.track === track);
  return data.steps.flatMap((step, at) =>
    step.track === track && (idle || step.changed || at === first || at === view.step) ? [at] : []);
}

const counted = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
const counts = new Map();

function countsOf(at) {
  if (!counts.has(at)) {
    const found = { added: 0, removed: 0, changed: 0, moved: 0 };
    const { base, changed, rows } = data.steps[at];
    if (changed && base >= 0 && rows.length)
      for (const { mark } of merged(rowsOf(base), rowsOf(at))) if (mark) found[mark]++;
    counts.set(at, found);
  }
  return counts.get(at);
}

function sizes(at) {
  const { added, removed, changed, moved } = countsOf(at);
  return [["plus", "+", added], ["minus", "\u2212", removed], ["swap", "~", changed], ["swap", "\u2195", moved]]
    .filter(([, , count]) => count).map(([kind, sign, count]) => make("span", kind, `${sign}${count}`));
}

function go(step, keepScroll = false) {
  view.step = step;
  view.chosen = null;
  try {
    history.replaceState(null, "", `#${step}`);
  } catch {
    // a frame in a notebook has no address
  }
  drawControls();
  drawStep();
  drawPanes(keepScroll);
}

function drawControls() {
  const { track } = data.steps[view.step];
  $("track").value = track;
  const shown = places();
  $("slider").max = shown.length - 1;
  $("slider").value = shown.indexOf(view.step);
  $("slider").setAttribute("aria-valuetext", `${view.step} ${data.steps[view.step].name}`);
  $("position").textContent = `${shown.indexOf(view.step) + 1} / ${shown.length}`;
  const most = Math.max(1, ...shown.map((at) => data.steps[at].operators));
  const width = $("course").clientWidth - 16; // the slider's knob stands 8 pixels from the edges at the ends
  const gap = width / Math.max(1, shown.length - 1);
  const bar = Math.min(14, Math.max(1, 0.7 * gap));
  $("course").innerHTML = shown.map((at, place) => {
    const kind = `${data.steps[at].wrong ? "wrong" : ""} ${at === view.step ? "now" : ""}`;
    const height = Math.max(1, (21 * data.steps[at].operators) / most);
    return `<rect class="${kind}" x="${8 + place * gap - bar / 2}" y="${22 - height}" width="${bar}" height="${height}"/>`;
  }).join("");
  $("steps").replaceChildren(...shown.map((at) => {
    const step = data.steps[at];
    const button = make("button", `${step.inside.length ? "inside " : ""}${step.changed ? "" : "idle "}${step.wrong ? "wrong" : ""}`);
    const size = make("span", "size");
    sizes(at).forEach((each) => size.append(each, " "));
    button.append(make("span", "number", String(at)), make("span", "name", step.name), size);
    button.type = "button";
    button.title = [...step.inside, step.name].join(" / ");
    if (at === view.step) button.setAttribute("aria-current", "step");
    button.addEventListener("click", () => go(at));
    const item = make("li");
    item.append(button);
    return item;
  }));
  const current = $("steps").querySelector("[aria-current]");
  if (current) current.scrollIntoView({ block: "nearest" });
}

function drawStep() {
  const step = data.steps[view.step];
  const old = step.base >= 0 ? data.steps[step.base] : null;
  const change = (what) => (old && step[what] !== old[what] ? ` (${signed(step[what] - old[what])})` : "");
  const parts = [make("strong", "", step.name)];
  if (step.inside.length) parts.push(make("span", "muted", `in ${step.inside.join(" / ")}`));
  parts.push(...sizes(view.step));
  if (step.changed && !countsOf(view.step).added && !step.rows.length) parts.push(make("span", "muted", "no line changed"));
  if (!step.changed && step.name !== "start") parts.push(make("span", "muted", "changed nothing"));
  if (step.matched.length) parts.push(make("span", "", `\u25ce ${step.matched.length} matched`));
  parts.push(make("span", "", `${counted(step.operators, "operator")}${change("operators")}`));
  parts.push(make("span", "", `${counted(step.bytes, "byte")} moved${change("bytes")}`));
  if (step.ms) parts.push(make("span", "", `${step.ms.toLocaleString("en", { maximumSignificantDigits: 3 })} ms`));
  if (step.difference !== null)
    parts.push(make("span", step.wrong ? "bad" : "muted", step.difference === "none"
      ? "no value differs" : `largest difference: ${step.difference}`));
  for (const error of step.errors) parts.push(make("span", "bad", error));
  if (step.site) parts.push(make("code", "", step.site));
  $("step").replaceChildren(...parts);
}

function drawPanes(keepScroll) {
  const step = data.steps[view.step];
  const other = $("other").value;
  const against = other === "before" ? step.base : other === "" ? -1 : Number(other);
  const isDouble = other !== "" && against >= 0;
  while (panes.length < (isDouble ? 2 : 1)) {
    panes.push(new Pane(panes.length));
    $("panes").append(panes.at(-1).element);
  }
  while (panes.length > (isDouble ? 2 : 1)) panes.pop().element.remove();
  const title = (at) => `${data.tracks[data.steps[at].track]} after step ${at}: ${data.steps[at].name}`;
  const now = rowsOf(view.step);
  document.body.classList.add("moving");
  if (isDouble) {
    const [left, right] = aligned(rowsOf(against), now);
    panes[0].show(title(against), foldedTogether(left, right)[0]);
    panes[1].show(title(view.step), foldedTogether(left, right)[1]);
  } else {
    const items = step.base >= 0 && step.changed ? merged(rowsOf(step.base), now) : now.map((row) => ({ ...row, mark: "" }));
    const matched = new Set(step.matched);
    for (const item of items) item.matched = matched.has(item.key);
    panes[0].show(title(view.step), folded(items));
  }
  search(false);
  drawDetails();
  for (const pane of panes) pane.list.scrollTop = panes.at(-1).list.scrollTop;
  if (!keepScroll) {
    const at = panes.at(-1).items.findIndex((item) => item.mark || item.gap);
    if (at >= 0) panes.forEach((pane) => pane.reveal(at));
  }
  clearTimeout(drawPanes.timer);
  drawPanes.timer = setTimeout(() => document.body.classList.remove("moving"), 300);
}

// Declarations of two programs are folded row by row, so that the others stay beside each other.
function foldedTogether(left, right) {
  const isDeclared = (item) => item.gap || item.line[ROLE] === "declared";
  const kept = left.map((item, at) => view.unfolded || !(isDeclared(item) && isDeclared(right[at])));
  const count = kept.filter((is) => !is).length;
  const text = `${view.unfolded ? "\u25be" : "\u25b8"} declarations${view.unfolded ? "" : `: ${count} rows`}`;
  return [left, right].map((side) => [{ fold: true, key: "fold", text }, ...side.filter((_, at) => kept[at])]);
}

function choose(at, pane = panes.at(-1)) {
  if (at < 0 || at >= pane.items.length) return;
  if (pane.items[at].fold) {
    view.unfolded = !view.unfolded;
    view.chosen = null;
    drawPanes(true);
    return;
  }
  view.chosen = at;
  for (const each of panes) {
    each.near = new Set([
      ...(each.reads.get(at) || []).map((value) => value.from),
      ...(each.writes.get(at) || []).flatMap((value) => value.readers),
    ]);
    each.list.setAttribute("aria-activedescendant", `row-${each.number}-${at}`);
    each.draw(false);
  }
  drawDetails();
  panes.forEach((each) => each.reveal(at));
}

function drawDetails() {
  const at = view.chosen;
  const pane = panes.find((each) => at !== null && each.items[at] && each.items[at].line);
  $("details").hidden = !pane;
  if (!pane) {
    for (const each of panes) each.near = null;
    return;
  }
  const item = (panes.at(-1).items[at].line ? panes.at(-1) : pane).items[at];
  const shown = item.line && panes.at(-1).items[at] === item ? panes.at(-1) : pane;
  const { line } = item;
  const head = make("div", `head role-${line[ROLE]}`);
  head.append(make("strong", "", line[TYPE]), make("span", "muted", line[ROLE]));
  if (item.mark) head.append(make("span", "muted", item.mark));
  if (line[SITE] >= 0) head.append(make("span", "muted", `from ${data.sites[line[SITE]]}`));
  const close = make("button", "close", "\u00d7");
  close.type = "button";
  close.setAttribute("aria-label", "Close the details");
  close.addEventListener("click", () => unchoose());
  head.append(close);
  const parts = [head];
  if (item.old) parts.push(make("pre", "old", `\u2212 ${item.old[TEXT]}`), make("pre", "new", `+ ${line[TEXT]}`));
  else parts.push(make("pre", "", line[TEXT]));
  const link = (label, pairs) => {
    if (!pairs.length) return;
    const paragraph = make("p");
    paragraph.append(make("span", "muted", `${label} `));
    for (const [name, to] of pairs.slice(0, 60)) {
      const button = make("button", "", name);
      button.type = "button";
      button.addEventListener("click", () => choose(to, shown));
      paragraph.append(button);
    }
    if (pairs.length > 60) paragraph.append(`and ${pairs.length - 60} more`);
    parts.push(paragraph);
  };
  const typed = (to) => shown.items[to].line[TYPE];
  link("reads", (shown.reads.get(at) || []).map((value) => [`${data.names[value.name]} of ${typed(value.from)}`, value.from]));
  link("read by", (shown.writes.get(at) || []).flatMap((value) => value.readers.map((to) => [typed(to), to])));
  $("details").replaceChildren(...parts);
}

function unchoose() {
  view.chosen = null;
  for (const pane of panes) {
    pane.near = null;
    pane.draw(false);
  }
  drawDetails();
}

function search(isNew) {
  const wanted = $("search").value.trim().toLowerCase();
  const items = panes.at(-1).items;
  const found = ({ line }) => line && (
    line[TEXT].toLowerCase().includes(wanted) || (line[SITE] >= 0 && data.sites[line[SITE]].toLowerCase().includes(wanted)));
  view.hits = wanted ? items.flatMap((item, at) => (found(item) ? [at] : [])) : [];
  view.found = new Set(view.hits);
  view.hit = -1;
  $("hits").textContent = wanted ? `${view.hits.length} found` : "";
  for (const pane of panes) {
    pane.draw(false);
    pane.drawMap();
  }
  if (isNew && view.hits.length) nextHit(1);
}

function nextHit(direction) {
  if (!view.hits.length) return;
  view.hit = (view.hit + direction + view.hits.length) % view.hits.length;
  $("hits").textContent = `${view.hit + 1} of ${view.hits.length}`;
  choose(view.hits[view.hit]);
}

function move(direction) {
  const shown = places();
  const at = shown.indexOf(view.step) + direction;
  if (at >= 0 && at < shown.length) go(shown[at]);
}

function moveTrack(direction) {
  const track = data.steps[view.step].track + direction;
  if (track >= 0 && track < data.tracks.length) openTrack(track);
}

function openTrack(track) {
  const own = data.steps.flatMap((step, at) => (step.track === track ? [at] : []));
  go(own.find((at) => data.steps[at].changed && data.steps[at].base >= 0) ?? own[0]);
}

document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || !data.steps.length) return;
  const isSearch = event.target === $("search");
  if (event.key === "Escape") {
    if (isSearch) $("search").value = "", search(true), $("search").blur();
    else unchoose();
  } else if (isSearch) {
    if (event.key === "Enter") nextHit(event.shiftKey ? -1 : 1);
    else return;
  } else if (event.target.tagName === "SELECT" || event.target === $("slider")) {
    return; // they have their own use for arrows
  } else if (event.key === "ArrowLeft") move(-1);
  else if (event.key === "ArrowRight") move(1);
  else if (event.key === "ArrowDown") choose(view.chosen === null ? 0 : view.chosen + 1);
  else if (event.key === "ArrowUp") choose(view.chosen === null ? 0 : view.chosen - 1);
  else if (event.key === "[") moveTrack(-1);
  else if (event.key === "]") moveTrack(1);
  else if (event.key === "/") $("search").focus();
  else return;
  event.preventDefault();
});

$("slider").addEventListener("input", () => go(places()[$("slider").value]));
$("course").addEventListener("click", (event) => {
  const shown = places();
  const { left, width } = $("course").getBoundingClientRect();
  const share = (event.clientX - left - 8) / (width - 16);
  go(shown[Math.round(Math.min(Math.max(share, 0), 1) * (shown.length - 1))]);
});
$("back").addEventListener("click", () => move(-1));
$("forth").addEventListener("click", () => move(1));
$("track").addEventListener("change", () => openTrack(Number($("track").value)));
$("other").addEventListener("change", () => {
  view.chosen = null;
  drawPanes(false);
});
$("idle").addEventListener("change", drawControls);
$("search").addEventListener("input", () => search(true));
$("hit-before").addEventListener("click", () => nextHit(-1));
$("hit-after").addEventListener("click", () => nextHit(1));
new ResizeObserver(() => panes.length && drawPanes(true)).observe($("panes"));
new ResizeObserver(() => panes.length && drawControls()).observe($("course"));

data.tracks.forEach((title, track) => $("track").append(new Option(title, track)));
$("other").append(new Option("nothing: marks in one list", ""), new Option("the step before", "before"));
data.tracks.forEach((title, track) => {
  const group = make("optgroup");
  group.label = title;
  data.steps.forEach((step, at) => {
    const isFirst = at === data.steps.findIndex((each) => each.track === track);
    if (step.track === track && (step.changed || isFirst)) group.append(new Option(`${at}: ${step.name}`, at));
  });
  $("other").append(group);
});
const roles = new Set(data.lines.map((line) => line[ROLE]));
$("legend").append(...[...roles].map((role) => make("li", `role-${role}`, role)));
const asked = Number(location.hash.slice(1));
if (!data.steps.length) {
  $("step").textContent = "No program was rewritten.";
  for (const each of document.querySelectorAll("button, input, select")) each.disabled = true;
} else if (location.hash && data.steps[asked]) go(asked);
else openTrack(0);
