/* Draws the report from the JSON in the page. Texts of runs are only ever put into text nodes and attributes, never
 * into markup. */
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const runs = data.runs;
const SVG = document.getElementById("space").namespaceURI;
const N_COLOURS = 7;
const MOST_ROWS = 2000;
const DASHES = ["", "7 4", "2 3", "9 3 2 3", "12 5", "5 2 1 2 1 2", "1 5", "14 3 5 3", "4 8"];

/* What the reader has chosen. */
const state = { x: "epochs", log: false, hidden: new Set(), run: 0, tensor: null, paper: false };
const drawers = []; /* what is drawn again if the width or a choice changes */

/* ---- elements ------------------------------------------------------------------------------ */

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/* A text in a chart. anchor: which end of it stands at the point. */
const word = (x, y, anchor, text) => s("text", { x, y, "text-anchor": anchor }, text);

/* A curve in the colour and dashes of a line. */
const curve = (d, line, style = "") =>
  s("path", {
    class: "curve",
    d,
    style: `stroke: ${line.colour}${style}`,
    "stroke-dasharray": line.dash || null,
  });

const figureOf = (title, ...parts) => h("figure", {}, h("h3", {}, title), ...parts);

/* A paragraph beside the matter. */
const soft = (...words) => h("p", { class: "soft" }, ...words);

/* Where a chart says what the reader points at. */
const readoutOf = words => h("p", { class: "readout soft", "aria-live": "polite" }, words);

/* A table in a box that scrolls sideways. The first cell of a row is its name. */
function table(head, rows, kind) {
  const line = (cells, tag) =>
    h(
      "tr",
      {},
      ...cells.map((cell, i) =>
        cell instanceof Node
          ? cell
          : h(tag || (i ? "td" : "th"), { class: String(cell).length > 24 && "wrapped" }, cell),
      ),
    );
  return h(
    "div",
    { class: `scroll ${kind || ""}`, tabindex: 0, role: "region", "aria-label": "table" },
    h("table", {}, h("thead", {}, line(head, "th")), h("tbody", {}, ...rows.map(row => line(row)))),
  );
}

/* A chart's numbers, which are made when somebody opens them: they may be thousands of rows. */
function numbers(make) {
  const details = h("details", {}, h("summary", {}, "Numbers"));
  const refresh = () => {
    if (details.children.length > 1) details.lastChild.remove();
    if (details.open) details.append(make());
  };
  details.addEventListener("toggle", refresh);
  return { details, refresh };
}

/* ---- numbers in words ----------------------------------------------------------------------- */

const there = value => typeof value === "number" && isFinite(value);

function plain(value) {
  if (!there(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2);
  return size >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(4));
}

function bytes(value) {
  if (!there(value)) return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  for (; value >= 1000 && unit < 5; unit++) value /= 1000;
  return `${+value.toPrecision(3)} ${units[unit]}`;
}

const percent = value => (there(value) ? `${+(100 * value).toFixed(2)} %` : "–");
const ms = value => (there(value) ? `${plain(value)} ms` : "–");
const steps = n => (n === 1 ? "1 step" : `${n.toLocaleString("en")} steps`);
const last = list => (list || []).reduce((found, value) => (there(value) ? value : found), null);

/* ---- runs ----------------------------------------------------------------------------------- */

/* A folder's own name, or its whole path if another run's folder has the same name. */
function nameRuns() {
  const short = runs.map(run => run.path.replace(/\/+$/, "").split("/").pop() || run.path);
  runs.forEach((run, i) => {
    run.name = short.filter(name => name === short[i]).length > 1 ? run.path : short[i];
    run.colour = `var(--c${i % N_COLOURS})`;
    run.dash = DASHES[Math.floor(i / N_COLOURS) % DASHES.length];
    run.index = i;
  });
}

const shown = () => runs.filter(run => !state.hidden.has(run.index));

function stateOf(run) {
  if (run.finished) return "finished";
  const done = run.totals.steps;
  return run.planned ? `not finished: ${done} of ${steps(run.planned)}` : `not finished: ${steps(done)} so far`;
}

/* Settings of a run by name; without run.json, as far as the summary has them. */
function settings(run) {
  const all = {};
  for (const name of ["net", "data", "codec", "workers", "batch", "seed"])
    if (name in run.summary) all[name] = run.summary[name];
  return Object.assign(all, run.options);
}

const accuracyOf = run => (run.summary.test_accuracy >= 0 ? run.summary.test_accuracy : last(run.tests.test_accuracy));

/* How much less than float32 would send. */
function fewer(dense, sent) {
  if (!(sent > 0) || !(dense > 0)) return "–";
  const times = dense / sent,
    text = value => +value.toPrecision(3);
  if (times > 0.95 && times < 1.05) return "as float32";
  return times > 1 ? `${text(times)} times fewer` : `${text(1 / times)} times more`;
}

const fewerUp = run => fewer(run.totals.dense_bytes, run.totals.bytes_up);
const fewerDown = run => fewer(run.totals.dense_bytes, run.totals.bytes_down);

/* Runs that learn the same thing. Only these are compared. */
const isLike = (a, b) => ["net", "data"].every(name => String(settings(a)[name]) === String(settings(b)[name]));

/* What `of` says of a run, less what it says of the first run. */
function toFirst(run, of, text) {
  if (run === runs[0] || !isLike(run, runs[0]) || !there(of(run)) || !there(of(runs[0]))) return "–";
  return text(of(run), of(runs[0]));
}

const signed = value => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
const objectiveOf = run => run.summary.objective;
const stepOf = run => run.totals.step_ms;

/* The columns of results. What is null in all runs is left out. */
const RESULTS = [
  ["test accuracy", run => percent(accuracyOf(run))],
  ["to the first, points", run => toFirst(run, accuracyOf, (a, b) => signed(100 * (a - b))), runs.length > 1],
  ["objective", run => (there(objectiveOf(run)) ? plain(objectiveOf(run)) : null)],
  ["bytes up", run => bytes(run.totals.bytes_up)],
  ["up, beside float32", fewerUp],
  ["bytes down", run => bytes(run.totals.bytes_down)],
  ["down, beside float32", fewerDown],
  ["train loss", run => plain(there(run.summary.train_loss) ? run.summary.train_loss : last(run.series.loss))],
  ["ms a step", run => plain(stepOf(run))],
  ["to the first", run => toFirst(run, stepOf, (a, b) => `${+(a / b).toPrecision(3)} times`), runs.length > 1],
  ["state", run => stateOf(run), runs.length === 1 || runs.some(run => !run.finished)],
  ["steps dropped", run => (run.totals.dropped ? String(run.totals.dropped) : null)],
].filter(([, of, wanted = true]) => wanted && runs.some(run => of(run) !== null));

const MORE = [
  ["steps done", run => run.totals.steps.toLocaleString("en")],
  ["seconds", run => plain(run.totals.seconds)],
  ["images/s", run => (there(run.summary.images_per_second) ? plain(run.summary.images_per_second) : null)],
  ["parameters' hash", run => run.summary.parameter_hash || null],
].filter(([, of]) => runs.some(run => of(run) !== null));

/* ---- what came out --------------------------------------------------------------------------- */

const sent = run =>
  run.totals.bytes_up > 0
    ? `bytes beside float32: up ${fewerUp(run)}, down ${fewerDown(run)}`
    : "nothing was sent between workers";

/* The run for which `of` is largest. */
function most(list, of) {
  const known = list.filter(run => there(of(run)));
  return known.length ? known.reduce((best, run) => (of(run) > of(best) ? run : best)) : null;
}

/* What came out, in a sentence or two. */
function verdict() {
  const [first] = runs,
    like = runs.filter(run => isLike(run, first));
  if (runs.length === 1)
    return (
      `${there(accuracyOf(first)) ? `${percent(accuracyOf(first))} test accuracy after ` : ""}` +
      `${steps(first.totals.steps)}; ${sent(first)}.`
    );
  const best = most(like, accuracyOf) || most(like, run => (there(objectiveOf(run)) ? -objectiveOf(run) : null));
  const least = most(like, run =>
    run.totals.bytes_up > 0 ? -(run.totals.bytes_up + run.totals.bytes_down) / run.totals.dense_bytes : null,
  );
  const words = [];
  if (best)
    words.push(
      there(accuracyOf(best))
        ? `${best.name} has the best test accuracy, ${percent(accuracyOf(best))}.`
        : `${best.name} has the least objective, ${plain(objectiveOf(best))}.`,
    );
  if (least) {
    const gap = toFirst(least, accuracyOf, (a, b) => ` (${signed(100 * (a - b))} points to ${first.name})`);
    words.push(
      `${least.name} moved the fewest bytes (${sent(least)})` +
        `${there(accuracyOf(least)) ? `, and has ${percent(accuracyOf(least))}${gap === "–" ? "" : gap}` : ""}.`,
    );
  }
  const others = runs.length - like.length,
    going = runs.filter(run => !run.finished).length;
  if (others) words.push(`Not compared, because networks or data differ: ${others} of ${runs.length} runs.`);
  if (going) words.push(`Not finished: ${going} of ${runs.length} runs.`);
  return words.join(" ");
}

const facts = pairs =>
  h("dl", { class: "facts" }, ...pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

/* Results come first. Of the settings, those that are the same in all runs are said once. */
function overview() {
  const all = runs.map(settings);
  const names = [...new Set(all.flatMap(Object.keys))];
  const text = (i, name) => (name in all[i] ? String(all[i][name]) : "–");
  const differs = names.filter(name => all.some((_, i) => text(i, name) !== text(0, name)));
  const common = names.filter(name => !differs.includes(name)).map(name => [name, text(0, name)]);
  const cell = (run, [name, of]) =>
    name === "state" && !run.finished ? h("td", { class: "unfinished" }, of(run)) : of(run) || "–";
  const section = h("section", {}, h("h2", {}, "Results"), h("p", {}, verdict()));
  if (runs.length === 1) {
    const [run] = runs;
    section.append(
      run.finished ? "" : h("p", { class: "unfinished" }, stateOf(run)),
      facts([...RESULTS, ...MORE].map(([name, of]) => [name, of(run) || "–"])),
      h("h3", {}, "Settings"),
      facts(common),
    );
  } else {
    section.append(
      table(
        ["run", ...RESULTS.map(([name]) => name)],
        runs.map(run => [run.name, ...RESULTS.map(column => cell(run, column))]),
        "pinned results",
      ),
      h("h3", {}, "What differs"),
      table(
        ["run", ...differs, ...MORE.map(([name]) => name)],
        runs.map((run, i) => [
          run.name,
          ...differs.map(name => text(i, name)),
          ...MORE.map(([, of]) => of(run) || "–"),
        ]),
        "pinned results",
      ),
    );
    if (common.length) section.append(h("h3", {}, "The same in all runs"), facts(common));
  }
  const notes = runs.flatMap(run => run.notes.map(note => h("li", {}, `${run.name}: ${note}`)));
  if (notes.length) section.append(h("ul", { class: "notes" }, ...notes));
  return section;
}

/* ---- scales ---------------------------------------------------------------------------------- */

function niceTicks(low, high, most) {
  const raw = (high - low) / most || 1;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = unit * [1, 2, 5, 10].find(n => n * unit >= raw * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) ticks.push(i * step);
  return ticks;
}

function logTicks(low, high, most) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++)
    for (const n of [1, 2, 5]) if (n * 10 ** power >= low && n * 10 ** power <= high) ticks.push(n * 10 ** power);
  const every = ticks.filter(tick => Number.isInteger(Math.log10(tick) + 1e-12) || ticks.length <= most);
  return every.length ? every.filter((_, i) => i % Math.ceil(every.length / most) === 0) : [low, high];
}

/* From values to places on the screen. */
function scale(values, from, to, { log = false, zero = false, most = 5 } = {}) {
  let low = Infinity,
    high = -Infinity;
  for (const value of values) {
    if (!there(value) || (log && value <= 0)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) [low, high] = log ? [1, 10] : [0, 1];
  if (zero && !log) low = Math.min(low, 0);
  if (low === high)
    [low, high] = log ? [low / 2, high * 2] : [low - (low ? Math.abs(low) / 10 : 0), high + (Math.abs(high) / 10 || 1)];
  const place = log ? Math.log : value => value;
  const at = value => from + ((place(value) - place(low)) / (place(high) - place(low))) * (to - from);
  return { at, ticks: log ? logTicks(low, high, most) : niceTicks(low, high, most), log };
}

/* ---- charts of lines ------------------------------------------------------------------------- */

/* The mean of a few neighbours, with the range of what was put together; the first point and the last stay as they
 * are. */
function smooth(points) {
  const most = Math.floor(points.length / 60);
  return points.map((point, i) => {
    const reach = Math.min(most, i, points.length - 1 - i);
    const near = points.slice(i - reach, i + reach + 1).filter(p => there(p.y));
    if (!near.length || !there(point.y)) return point;
    return {
      ...point,
      y: near.reduce((sum, p) => sum + p.y, 0) / near.length,
      raw: point.y,
      low: Math.min(...near.map(p => p.low)),
      high: Math.max(...near.map(p => p.high)),
    };
  });
}

const X = {
  epochs: { label: "epochs", text: plain, of: (run, series, i) => (run.epoch ? series.steps[i] / run.epoch : null) },
  seconds: { label: "seconds of training", text: plain, of: (run, series, i) => series.seconds[i] },
  bytes: { label: "bytes sent, up and down, all workers", text: bytes, of: (run, series, i) => series.bytes[i] },
  steps: { label: "steps", text: plain, of: (run, series, i) => series.steps[i] },
};

/* One field of a run's series as points. */
function pointsOf(run, series, field, x, change = value => value) {
  const list = series[field] || [];
  return list
    .map((value, i) => {
      const of = name => (there((series[field + name] || list)[i]) ? change((series[field + name] || list)[i]) : null);
      const ends = [of("_min"), of("_max")].filter(there);
      return {
        x: X[x].of(run, series, i),
        y: of(""),
        low: Math.min(...ends),
        high: Math.max(...ends),
        step: series.steps[i],
      };
    })
    .filter(point => there(point.x));
}

/* A logarithmic axis has no place for 0. */
const isDrawn = (point, x) => there(point.y) && (!x.log || point.x > 0);

function pathOf(points, x, y) {
  let path = "",
    down = false;
  for (const point of points) {
    if (isDrawn(point, x)) path += `${down ? "L" : "M"}${x.at(point.x).toFixed(1)} ${y.at(point.y).toFixed(1)}`;
    down = there(point.y);
  }
  return path;
}

function bandOf(points, x, y) {
  const good = points.filter(point => isDrawn(point, x) && there(point.low) && there(point.high));
  if (good.length < 2 || good.every(point => point.low === point.high)) return null;
  const corner = (point, value) => `${x.at(point.x).toFixed(1)} ${y.at(value).toFixed(1)}`;
  return `M${good.map(p => corner(p, p.high)).join("L")}L${good
    .reverse()
    .map(p => corner(p, p.low))
    .join("L")}Z`;
}

function axes(svg, x, y, box, chart) {
  for (const tick of y.ticks) {
    const at = y.at(tick).toFixed(1);
    svg.append(
      s("line", { class: "grid", x1: box.left, x2: box.right, y1: at, y2: at }),
      word(box.left - 6, +at + 4, "end", chart.yText(tick)),
    );
  }
  for (const tick of x.ticks) {
    const at = x.at(tick).toFixed(1),
      edge = at > box.right - 20 ? "end" : at < box.left + 8 ? "start" : "middle";
    svg.append(
      s("line", { class: "grid", x1: at, x2: at, y1: box.bottom, y2: box.bottom + 4 }),
      word(at, box.bottom + 17, edge, chart.xText(tick)),
    );
  }
  svg.append(word(box.right, box.bottom + 34, "end", chart.xLabel));
}

/* Follows the pointer and the arrow keys to the nearest of `spots` (x, y, line, text), marks it and says what it is. */
function follow(svg, readout, spots, hint) {
  const cursor = s("circle", { class: "cursor", r: 5, visibility: "hidden" });
  svg.append(cursor);
  readout.textContent = spots.length ? hint : "";
  let at = -1;
  const go = i => {
    if (i < 0 || i >= spots.length) return;
    at = i;
    cursor.setAttribute("cx", spots[i].x);
    cursor.setAttribute("cy", spots[i].y);
    cursor.setAttribute("visibility", "visible");
    readout.textContent = spots[i].text;
  };
  const nearest = (x, y, line) => {
    let best = -1,
      least = Infinity;
    spots.forEach((spot, i) => {
      const far = line === undefined || spot.line === line ? (spot.x - x) ** 2 + (spot.y - y) ** 2 : Infinity;
      if (far < least) [least, best] = [far, i];
    });
    return best;
  };
  const beside = (i, by) => (spots[i] && spots[i + by] && spots[i + by].line === spots[i].line ? i + by : i);
  svg.onpointermove = event => {
    const box = svg.getBoundingClientRect(),
      zoom = svg.viewBox.baseVal.width / box.width;
    go(nearest((event.clientX - box.left) * zoom, (event.clientY - box.top) * zoom));
  };
  svg.onfocus = () => go(at < 0 ? spots.length - 1 : at);
  svg.onkeydown = event => {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    const line = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (by) go(beside(at, by));
    else if (line && spots[at]) go(nearest(spots[at].x, spots[at].y, spots[at].line + line));
    else return;
    event.preventDefault();
  };
}

/* The points of a chart; of very many, every so many-th, and the last of each line. */
function pointsTable(chart) {
  const lines = chart.lines(),
    every = Math.ceil(lines.reduce((sum, line) => sum + line.points.length, 0) / MOST_ROWS);
  const rows = lines.flatMap(line =>
    line.points
      .filter((_, i) => i % every === 0 || i === line.points.length - 1)
      .map(p => [
        line.name,
        chart.xText(p.x),
        chart.yText(there(p.raw) ? p.raw : p.y),
        chart.yText(p.low),
        chart.yText(p.high),
      ]),
  );
  const box = table(["", chart.xLabel, "value", "least", "largest"], rows);
  if (every > 1) box.prepend(h("p", {}, `One in ${every} points of each curve; hide some runs to see more.`));
  return box;
}

/* chart: title, about, lines() -> [{name, colour, dash, points}], yText, xText, xLabel, log, zero, and
 * extra(svg, x, box) for what else is to be drawn. */
function lineChart(chart) {
  const svg = s("svg", { tabindex: 0, role: "img", "aria-label": chart.title });
  const readout = readoutOf("");
  const behind = numbers(() => pointsTable(chart));
  const figure = figureOf(chart.title, chart.about ? soft(chart.about) : null, svg, readout, behind.details);
  drawers.push(() => {
    const width = Math.max(260, widthOf(figure) - 26),
      height = Math.round(Math.min(340, Math.max(210, width * 0.55)));
    const box = { left: 58, right: width - 10, top: 12, bottom: height - 42 };
    const lines = chart.lines(),
      points = lines.flatMap(line => line.points);
    const bands = lines.length <= 4;
    const across = { log: chart.log(), zero: true, most: width < 420 ? 4 : 7 };
    const x = scale(
      points.map(p => p.x),
      box.left,
      box.right,
      across,
    );
    const heights = points.flatMap(p => (bands && there(p.y) ? [p.low, p.high] : [p.y]));
    const y = scale(heights, box.bottom, box.top, { zero: chart.zero });
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    axes(svg, x, y, box, chart);
    if (chart.extra) chart.extra(svg, x, box);
    for (const line of bands ? lines : []) {
      const band = bandOf(line.points, x, y);
      if (band) svg.append(s("path", { class: "band", d: band, style: `fill: ${line.colour}` }));
    }
    for (const line of lines) {
      svg.append(curve(pathOf(line.points, x, y), line));
      if (line.points.length <= 30)
        for (const p of line.points)
          if (isDrawn(p, x))
            svg.append(s("circle", { cx: x.at(p.x), cy: y.at(p.y), r: 3, style: `fill: ${line.colour}` }));
    }
    if (!points.length)
      svg.append(word((box.left + box.right) / 2, (box.top + box.bottom) / 2, "middle", "nothing to show"));
    const textOf = (line, p) =>
      `${line.name}: ${chart.yText(p.y)}` +
      (p.low < p.high ? ` (${chart.yText(p.low)} to ${chart.yText(p.high)})` : "") +
      ` at ${chart.xText(p.x)} ${chart.xLabel}, step ${plain(p.step)}`;
    const spots = lines.flatMap((line, i) =>
      line.points.filter(p => isDrawn(p, x)).map(p => ({ x: x.at(p.x), y: y.at(p.y), line: i, text: textOf(line, p) })),
    );
    follow(svg, readout, spots, "Point at a curve, or focus it and use the arrow keys.");
    behind.refresh();
  });
  return figure;
}

/* All runs together, by what the reader has chosen for the axis. */
function runsChart(title, about, part, field, options) {
  return lineChart({
    title,
    about,
    zero: options.zero,
    yText: options.text,
    get xLabel() {
      return X[state.x].label;
    },
    xText: value => X[state.x].text(value),
    log: () => state.log,
    lines: () =>
      shown()
        .map(run => {
          const points = pointsOf(run, run[part], field, state.x, options.change);
          return { ...run, points: options.smooth ? smooth(points) : points };
        })
        .filter(line => line.points.length),
  });
}

/* ---- choices --------------------------------------------------------------------------------- */

/* How wide something is, or will be on paper, where charts stand two in a row and letters are to be as large. */
function widthOf(element) {
  if (!state.paper) return element.clientWidth;
  return element.closest(".charts") ? 340 : 680;
}

function redraw() {
  for (const draw of drawers) draw();
}

/* Listens to an input: notes what was chosen, and draws anew. */
const choosing = note => event => {
  note(event.target);
  redraw();
};

/* A box or a button to choose, and what stands beside it. */
const choice = (type, attributes, note, ...words) =>
  h("label", {}, h("input", { type, ...attributes, onchange: choosing(note) }), ...words);

function legend() {
  const sample = run =>
    s("svg", { viewBox: "0 0 34 12", "aria-hidden": true }, curve("M1 6H33", run, "; stroke-width: 3"));
  const toggle = run => box => (box.checked ? state.hidden.delete(run.index) : state.hidden.add(run.index));
  const item = run => h("li", {}, choice("checkbox", { checked: true }, toggle(run), sample(run), run.name));
  return h("ul", { class: "legend" }, ...runs.map(item));
}

function axisSwitch() {
  const choose = name =>
    choice("radio", { name: "x", value: name, checked: name === state.x }, () => (state.x = name), name);
  return h(
    "div",
    { class: "controls" },
    h("fieldset", {}, h("legend", {}, "Against"), ...["epochs", "seconds", "bytes", "steps"].map(choose)),
    choice("checkbox", {}, box => (state.log = box.checked), "logarithmic"),
  );
}

function curves() {
  const any = (part, field) => runs.some(run => (run[part][field] || []).some(there));
  const charts = h("div", { class: "charts" });
  const add = (part, field, title, about, options) =>
    any(part, field) && charts.append(runsChart(title, about, part, field, options));
  add("tests", "test_accuracy", "Test accuracy", "At the end of each epoch.", { text: percent });
  add(
    "series",
    "loss",
    "Training loss",
    "Of each step's batch: the mean of neighbouring steps; the band goes from the least to the largest.",
    { text: plain, smooth: true },
  );
  add("series", "accuracy", "Accuracy of the training batches", "The mean of neighbouring steps.", {
    text: percent,
    smooth: true,
  });
  add("tests", "objective", "Objective", "Over the whole training set.", { text: plain });
  add(
    "counted",
    "nonzero_share",
    "Zeros in what is sent",
    "Share of the elements that travel as zero, all tensors together (TernGrad, figure 4c).",
    { text: percent, change: value => 1 - value },
  );
  return h("section", {}, h("h2", {}, "Learning"), axisSwitch(), legend(), charts);
}

/* ---- bars ------------------------------------------------------------------------------------ */

/* rows: [{name, about, bars: [[{label, value, colour}], ...], tick}] */
function barChart(title, about, rows, text, unit, head, cells) {
  const most =
    Math.max(
      ...rows.flatMap(row => [row.tick || 0, ...row.bars.map(bar => bar.reduce((sum, part) => sum + part.value, 0))]),
    ) || 1;
  const readout = readoutOf("Point at a bar, or focus the chart and use the arrow keys.");
  const spots = [];
  const share = value => `${((100 * value) / most).toFixed(3)}%`;
  const part = (row, p) => {
    const element = h("span", { style: `width: ${share(p.value)}; background: ${p.colour}` });
    const i = spots.push({ element, text: `${row.name}: ${p.label} ${text(p.value)}` }) - 1;
    element.addEventListener("pointerenter", () => go(i));
    return element;
  };
  const tick = row => (row.tick ? h("span", { class: "tick", style: `left: ${share(row.tick)}` }) : null);
  const bars = row =>
    row.bars.map((bar, i) => h("div", { class: "bar" }, ...bar.map(p => part(row, p)), i === 0 ? tick(row) : null));
  const draw = row => h("div", { class: "row" }, h("strong", {}, row.name), row.about, ...bars(row));
  let at = -1;
  const go = i => {
    if (!spots[i]) return;
    if (spots[at]) spots[at].element.classList.remove("is-at");
    at = i;
    spots[i].element.classList.add("is-at");
    readout.textContent = spots[i].text;
  };
  const axis = s("svg", { class: "axis", "aria-hidden": true });
  const chart = h(
    "div",
    {
      tabindex: 0,
      role: "img",
      "aria-label": title,
      onfocus: () => go(at < 0 ? 0 : at),
      onkeydown: event => {
        const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
        if (by) {
          go(at + by);
          event.preventDefault();
        }
      },
    },
    ...rows.map(draw),
    axis,
  );
  const figure = figureOf(title, soft(...about), chart, readout, numbers(() => table(head, cells)).details);
  drawers.push(() => {
    const wide = Math.max(200, widthOf(chart));
    axis.setAttribute("viewBox", `0 0 ${wide} 34`);
    axis.replaceChildren();
    for (const tick of niceTicks(0, most, wide < 420 ? 3 : 6)) {
      const x = (tick / most) * wide,
        edge = x > wide - 30 ? "end" : x < 20 ? "start" : "middle";
      axis.append(s("line", { class: "grid", x1: x, x2: x, y1: 0, y2: 5 }), word(x, 18, edge, text(tick)));
    }
    axis.append(word(wide, 32, "end", unit));
  });
  return figure;
}

const key = (colour, text) =>
  h("span", {}, h("span", { style: `color: ${colour}`, "aria-hidden": true }, "■ "), text, " ");

function bytesChart() {
  const rows = runs.map(run => {
    const t = run.totals;
    return {
      name: run.name,
      about: t.bytes_up
        ? `up ${bytes(t.bytes_up)} (${fewerUp(run)}), down ${bytes(t.bytes_down)} (${fewerDown(run)}), ` +
          `float32 ${bytes(t.dense_bytes)}`
        : "nothing was sent",
      bars: [
        [{ label: "float32 would send, each way,", value: t.dense_bytes || 0, colour: "var(--none)" }],
        [{ label: "up", value: t.bytes_up || 0, colour: "var(--c0)" }],
        [{ label: "down", value: t.bytes_down || 0, colour: "var(--c1)" }],
      ],
    };
  });
  return barChart(
    "Bytes on the wire",
    [
      key("var(--none)", "float32, each way"),
      key("var(--c0)", "up, workers to owners"),
      key("var(--c1)", "down, owners to workers"),
    ],
    rows,
    bytes,
    "bytes, all workers and all steps",
    ["run", "up", "down", "float32, each way"],
    runs.map(run => [run.name, ...["bytes_up", "bytes_down", "dense_bytes"].map(name => plain(run.totals[name]))]),
  );
}

function timeChart() {
  const fields = [
    ["compute", "compute_ms", "var(--c0)"],
    ["encode", "encode_ms", "var(--c4)"],
    ["waiting", "wait_ms", "var(--c1)"],
  ];
  const rows = runs.map(run => ({
    name: run.name,
    about:
      `${ms(run.totals.step_ms)} a step: ` +
      fields.map(([label, name]) => `${label} ${plain(run.totals[name])}`).join(", "),
    tick: run.totals.step_ms,
    bars: [fields.map(([label, name, colour]) => ({ label, value: run.totals[name] || 0, colour }))],
  }));
  return barChart(
    "A step's time",
    [
      ...fields.map(([label, , colour]) => key(colour, label)),
      key("var(--ink)", "mark: the whole step. "),
      "Encoding runs beside computing and waiting, so the parts may add up to more than the step ",
      "(DLGS, figures 11 to 13).",
    ],
    rows,
    ms,
    "milliseconds, mean over steps and workers",
    ["run", "step", ...fields.map(([label]) => label)],
    runs.map(run => [run.name, ms(run.totals.step_ms), ...fields.map(([, name]) => ms(run.totals[name]))]),
  );
}

/* ---- one run --------------------------------------------------------------------------------- */

function layersTable() {
  const box = h("div", {});
  drawers.push(() => {
    const run = runs[state.run],
      bits = value => (there(value) ? value.toFixed(3) : "–");
    box.replaceChildren(h("h3", {}, `Tensors of ${run.name}`));
    if (!run.layers.length) {
      box.append(soft(run.finished ? "The summary has no tensors." : "The summary is written when the run ends."));
      return;
    }
    box.append(
      soft(
        "Bits for each element in the frames of rank 0, the mean over the counted steps; entropy is of the symbols.",
      ),
      table(
        ["tensor", "elements", "nonzero", "push, bits", "push entropy", "pull, bits", "pull entropy"],
        run.layers.map(([name, elements, share, ...rest]) => [
          name,
          there(elements) ? elements.toLocaleString("en") : "–",
          percent(share),
          ...rest.map(bits),
        ]),
        "pinned",
      ),
    );
    if (run.tensors > run.layers.length) box.append(soft(`${run.tensors - run.layers.length} more are left out.`));
  });
  return box;
}

const WIRES = { small: "var(--c2)", fast: "var(--c3)" };

/* A strip over the chart: how frames were written. */
function wireStrip(run, svg, x, box) {
  run.wires.forEach(([from, wire], i) => {
    const to = i + 1 < run.wires.length ? run.wires[i + 1][0] : run.totals.steps;
    const left = x.at(from),
      width = Math.max(x.at(to), left + 1) - left,
      style = `fill: ${WIRES[wire] || "var(--none)"}`;
    svg.append(s("rect", { x: left, y: box.top - 10, width, height: 6, style }));
  });
}

function timeline() {
  const fields = [
    ["step", "step_ms", "var(--c6)", ""],
    ["compute", "compute_ms", "var(--c0)", "7 4"],
    ["waiting", "wait_ms", "var(--c1)", "2 3"],
    ["encode", "encode_ms", "var(--c4)", "9 3 2 3"],
  ];
  const wires = soft();
  const figure = lineChart({
    title: "Steps over the run",
    zero: true,
    yText: ms,
    xText: plain,
    xLabel: "steps",
    log: () => false,
    lines: () =>
      fields
        .map(([name, field, colour, dash]) => ({
          name,
          colour,
          dash,
          points: pointsOf(runs[state.run], runs[state.run].series, field, "steps"),
        }))
        .filter(line => line.points.length),
    extra: (svg, x, box) => wireStrip(runs[state.run], svg, x, box),
  });
  figure.insertBefore(
    soft(...fields.map(([name, , colour]) => key(colour, name)), "— the bands go from the least to the largest."),
    figure.children[1],
  );
  figure.insertBefore(wires, figure.lastChild);
  drawers.push(() => {
    const run = runs[state.run],
      first = run.wires.slice(0, 8).map(([from, wire]) => `${wire} from step ${from}`);
    const more = run.wire_changes - first.length;
    wires.textContent = first.length
      ? `The strip is the wire choice: ${first.join(", ")}` +
        (more > 0 ? `, and ${more} more changes.` : ".") +
        (run.wire.why ? ` At the end: ${run.wire.why}.` : "")
      : "";
  });
  return figure;
}

/* ---- histograms ------------------------------------------------------------------------------ */

const KINDS = [
  ["raw", "Gradient of rank 0", "var(--c0)"],
  ["clipped", "Clipped", "var(--c2)"],
  ["sent", "As rank 0 alone would send it", "var(--c1)"],
  ["averaged", "Average of all workers", "var(--c3)"],
];

/* One kind: a hill for each step, the first at the top; heights are square roots, so that rare values are seen. */
function ridges(kind, title, colour, all) {
  const rows = all.filter(row => row[kind]);
  const width = 260,
    line = rows.length > 12 ? 18 : 26,
    top = 34,
    left = 52,
    height = top + line * rows.length + 34;
  const reach = Math.max(...rows.map(row => row[kind][0])) || 1;
  const x = scale([-reach, reach], left, width - 8, { most: 2 });
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img", "aria-label": title });
  const spots = rows.map((row, i) => {
    const [max, ...counts] = row[kind],
      base = top + line * (i + 1),
      most = Math.sqrt(Math.max(...counts)) || 1;
    const corners = counts.flatMap((count, bin) => {
      const up = (base - (1.3 * line * Math.sqrt(count)) / most).toFixed(1);
      return [bin, bin + 1].map(edge => `${x.at(max * (edge / 32 - 1)).toFixed(1)} ${up}`);
    });
    svg.append(
      s("path", {
        class: "ridge",
        style: `fill: ${colour}; stroke: ${colour}`,
        d: `M${x.at(-max).toFixed(1)} ${base}L${corners.join("L")}L${x.at(max).toFixed(1)} ${base}`,
      }),
      word(left - 6, base, "end", row.step.toLocaleString("en")),
    );
    const all = counts.reduce((sum, count) => sum + count, 0),
      middle = counts[31] + counts[32];
    return {
      x: x.at(0),
      y: base,
      line: i,
      text:
        `step ${row.step}: ${all.toLocaleString("en")} values from ${plain(-max)} to ${plain(max)}, ` +
        `${percent(middle / (all || 1))} of them in the two bins at 0`,
    };
  });
  for (const tick of [-reach, 0, reach])
    svg.append(word(x.at(tick), height - 18, tick < 0 ? "start" : tick > 0 ? "end" : "middle", plain(tick)));
  svg.append(word(width - 8, height - 3, "end", "value of an element"), s("text", { x: 2, y: 12 }, "step"));
  const readout = readoutOf("");
  follow(svg, readout, spots, "");
  return figureOf(title, svg, readout);
}

function histograms() {
  const box = h("div", {}),
    panels = h("div", { class: "ridges" });
  const select = h("select", { onchange: choosing(list => (state.tensor = list.value)) });
  const about = soft();
  const rowsNow = () => (runs[state.run].histograms || { rows: [] }).rows.filter(row => row.tensor === state.tensor);
  const behind = numbers(() =>
    table(
      ["what", "step", "largest", "counts in 64 equal bins"],
      KINDS.flatMap(([kind]) =>
        rowsNow()
          .filter(row => row[kind])
          .map(row => [
            kind,
            String(row.step),
            plain(row[kind][0]),
            h("td", { class: "counts" }, row[kind].slice(1).join(" ")),
          ]),
      ),
    ),
  );
  box.append(
    h("h3", {}, "Gradients over the run"),
    h("div", { class: "controls" }, h("label", {}, "Tensor ", select)),
    about,
    panels,
    behind.details,
  );
  let of = -1;
  drawers.push(() => {
    const run = runs[state.run],
      all = run.histograms || { rows: [], tensors: 0 };
    const names = [...new Set(all.rows.map(row => row.tensor))];
    if (!names.includes(state.tensor)) state.tensor = names[0] || null;
    if (of !== state.run) select.replaceChildren(...names.map(name => h("option", { value: name }, name)));
    of = state.run;
    if (state.tensor) select.value = state.tensor;
    select.closest(".controls").hidden = behind.details.hidden = !names.length;
    const left = all.tensors - names.length;
    about.textContent = names.length
      ? `${state.tensor} of ${run.name}; heights are square roots of counts (TernGrad, figure 2).` +
        (rowsNow().some(row => row.sent)
          ? " What is sent is drawn again with rank 0's own numbers; those of all workers may be larger."
          : "") +
        (left > 0 ? ` ${left} more tensors are in the folder.` : "")
      : "The run has recorded no histograms.";
    const rows = rowsNow();
    panels.replaceChildren(...KINDS.filter(([kind]) => rows.some(row => row[kind])).map(kind => ridges(...kind, rows)));
    behind.refresh();
  });
  return box;
}

function oneRun() {
  const section = h("section", {}, h("h2", {}, "One run"));
  if (runs.length > 1) {
    const options = runs.map(run => h("option", { value: run.index }, run.name));
    const select = h("select", { onchange: choosing(list => (state.run = +list.value)) }, ...options);
    section.append(h("div", { class: "controls" }, h("label", {}, "Run ", select)));
  }
  const heading = h("p", {});
  drawers.push(() => {
    heading.textContent = `${runs[state.run].name}: ${stateOf(runs[state.run])}`;
  });
  section.append(heading, timeline(), h("br"), layersTable(), h("br"), histograms());
  return section;
}

/* ---- the page -------------------------------------------------------------------------------- */

nameRuns();
if (!runs.some(run => run.epoch)) state.x = "steps";
document.title = runs.length === 1 ? `Gradwire report: ${runs[0].name}` : `Gradwire report: ${runs.length} runs`;
document.getElementById("about").textContent =
  `${runs.length === 1 ? runs[0].path : `${runs.length} runs`}; made ${data.made} by Gradwire ${data.gradwire}`;
document
  .getElementById("main")
  .append(
    overview(),
    curves(),
    h("section", {}, h("h2", {}, "Cost"), h("div", { class: "charts" }, bytesChart(), timeChart())),
    oneRun(),
  );
redraw();
let wide = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth !== wide) redraw();
  wide = window.innerWidth;
});
const onPaper = paper => () => {
  state.paper = paper;
  redraw();
};
window.addEventListener("beforeprint", onPaper(true));
window.addEventListener("afterprint", onPaper(false));
