"use strict";
const ALL = 1; // the choice of all columns
let data; // see page_data in page.py
let visible = new Set(); // numbers of the runs that the table shows
const hidden = new Set(); // numbers of the groups that the legend switched off

/* --- parts of a page --- */

function fill(select, texts, chosen = 0) {
  select.replaceChildren(...texts.map((text, value) => Object.assign(new Option(text, value), { dir: "auto" })));
  select.selectedIndex = Math.min(chosen, texts.length - 1);
}

function empty(id, text) {
  const section = at(id);
  section.replaceChildren(section.querySelector("h2"), element("p", { className: "note", textContent: text }));
}

async function unpack(id) {
  const bytes = Uint8Array.from(atob(at(id).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

/* --- the table of runs --- */

const sorting = { column: null, down: true };

let keeps = () => true; // the last filter that could be parsed

function readFilter() {
  let problem = "";
  try {
    keeps = parseFilter(at("filter").value, data.columns);
  } catch (error) {
    if (!(error instanceof FilterError)) throw error;
    problem = `${error.message}. The table keeps the last filter without a mistake.`;
  }
  at("problem").hidden = !problem;
  at("problem").textContent = problem;
  at("filter").ariaInvalid = String(Boolean(problem));
}

function groupOf(run) { return data.groups.findIndex((group) => group.runs.includes(run)); }

function showRuns() {
  readFilter();
  const found = data.runs.map((_, run) => run).filter(keeps);
  visible = new Set(found);
  const { column, down } = sorting;
  if (column !== null) {
    const values = data.columns[column].values;
    const missing = (run) => values[run] === null;
    found.sort((one, other) => missing(one) - missing(other) || (down ? -1 : 1) * compare(values[one], values[other]));
  }
  const columns = data.columns.map((one, index) => ({ ...one, index })).filter((one) => one.shown <= at("columns").value);
  const head = element("tr", {}, ...columns.map((one) => {
    const cell = element("th", { scope: "col" }, element("button", {
      type: "button", textContent: one.label + (one.index === column ? (down ? " ↓" : " ↑") : ""),
      onclick: () => {
        sorting.down = one.index === column ? !down : one.kind === "score";
        sorting.column = one.index;
        showRuns();
        at("table").querySelector(`[data-column="${one.index}"] button`).focus();
      },
    }));
    cell.dataset.column = one.index;
    cell.ariaSort = one.index !== column ? "none" : down ? "descending" : "ascending";
    return cell;
  }));
  const rows = found.map((run) => element("tr", {}, ...columns.map((one, position) => {
    const cell = element("td", { className: typeof one.values[run] === "number" ? "number" : "" });
    if (position === 0) cell.append(dot(data.groups[groupOf(run)].color));
    cell.append(isolated(one.texts[run]));
    return cell;
  })));
  at("table").replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
  at("shown").textContent = `${found.length} of ${data.runs.length} runs. The curves show these runs. Click a heading to sort.`;
  drawCurves();
}

function compare(one, other) {
  return typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other));
}

function dot(color) {
  const made = element("span", { className: "dot" });
  made.style.background = color;
  return made;
}

function showLegend() {
  at("legend").replaceChildren(...data.groups.map((group, index) => {
    const button = element("button", { type: "button", ariaPressed: String(!hidden.has(index)) }, dot(group.color), isolated(group.label));
    button.onclick = () => {
      hidden.has(index) ? hidden.delete(index) : hidden.add(index);
      button.ariaPressed = String(!hidden.has(index));
      drawCurves();
      drawBars();
    };
    return button;
  }));
}

/* --- figures --- */

function draw(id, traces, layout) {
  if (!window.Plotly) return;
  const style = getComputedStyle(document.documentElement), line = style.getPropertyValue("--line");
  const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, automargin: true };
  Plotly.react(id, traces, {
    paper_bgcolor: "transparent", plot_bgcolor: "transparent", font: { color: style.getPropertyValue("--text") },
    showlegend: false, margin: { l: 55, r: 15, t: 15, b: 45 }, ...layout,
    xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis },
  }, { responsive: true, displayModeBar: false });
}

function faded(color, alpha) {
  return color + Math.round(255 * alpha).toString(16).padStart(2, "0");
}

/* The mean of lines and its standard deviation at the steps that all of them have. */
function band(lines) {
  const tables = lines.map((line) => new Map(line.x.map((x, i) => [x, line.y[i]])));
  const x = lines[0].x.filter((step) => tables.every((table) => table.has(step)));
  const values = x.map((step) => tables.map((table) => table.get(step)));
  const mean = values.map((all) => all.reduce((sum, value) => sum + value, 0) / all.length);
  const deviation = values.map((all, i) =>
    all.length > 1 ? Math.sqrt(all.reduce((sum, value) => sum + (value - mean[i]) ** 2, 0) / (all.length - 1)) : 0);
  return { x, mean, deviation };
}

function drawCurves() {
  if (!data.curves.length) return;
  const curve = data.curves[at("metric").value], traces = [];
  data.groups.forEach((group, index) => {
    const runs = group.runs.filter((run) => visible.has(run) && curve.lines[run].x.length);
    if (hidden.has(index) || !runs.length) return;
    const lines = runs.map((run) => curve.lines[run]);
    const { x, mean, deviation } = band(lines);
    const each = at("single").checked || runs.length === 1 || !x.length;
    if (each) {
      runs.forEach((run, i) => traces.push({
        ...lines[i], mode: lines[i].x.length > 30 ? "lines" : "lines+markers", line: { color: group.color },
        hovertemplate: data.runs[run] + "<br>step %{x}: %{y:.4g}<extra></extra>",
      }));
    } else {
      const edge = (sign) => mean.map((value, i) => value + sign * deviation[i]);
      traces.push(
        { x, y: edge(1), mode: "lines", line: { width: 0 }, hoverinfo: "skip" },
        { x, y: edge(-1), mode: "lines", line: { width: 0 }, fill: "tonexty", fillcolor: faded(group.color, 0.2), hoverinfo: "skip" },
        { x, y: mean, mode: x.length > 30 ? "lines" : "lines+markers", line: { color: group.color }, customdata: deviation,
          hovertemplate: group.label + `, ${runs.length} runs<br>step %{x}: %{y:.4g} ± %{customdata:.2g} std<extra></extra>` });
    }
  });
  draw("curve", traces, { xaxis: { title: { text: "step" } }, yaxis: { title: { text: curve.label } }, hovermode: "closest" });
}

function drawBars() {
  if (!data.groupings.length) return;
  const one = data.groupings[at("grouping").value];
  const [low, high] = one.limits ?? [-Infinity, Infinity], traces = [];
  one.bars.forEach((rows, index) => {
    if (hidden.has(index) || !rows.length) return;
    const { label, color } = data.groups[index];
    const interval = (row) => row.confidence ?? 0;
    traces.push({
      type: "bar", x: rows.map((row) => row.group), y: rows.map((row) => row.value), marker: { color: color },
      error_y: {
        type: "data", symmetric: false, thickness: 1.2, width: 3,
        array: rows.map((row) => Math.min(interval(row), high - row.value)),
        arrayminus: rows.map((row) => Math.min(interval(row), row.value - low)),
      },
      text: rows.map((row) => `${label}<br>${row.group}: ${row.text}, ${row.count} examples`), textposition: "none",
      hovertemplate: "%{text}<extra></extra>",
    });
  });
  const range = one.limits ? { range: [low, high + 0.03 * (high - low)] } : {};
  draw("bars", traces, {
    barmode: "group", xaxis: { title: { text: one.axis }, type: "category", categoryorder: "array", categoryarray: one.order }, yaxis: { title: { text: `${data.split} ${one.metric}` }, ...range },
  });
}

/* The figure of a plot as SVG text, black on white. */
async function plotSvg(id) {
  const { data: traces, layout, offsetWidth, offsetHeight } = at(id);
  const page = { paper_bgcolor: "#fff", plot_bgcolor: "#fff", font: { color: "#000" } };
  const url = await Plotly.toImage({ data: traces, layout: { ...layout, ...page } }, { format: "svg", width: offsetWidth, height: offsetHeight });
  return decodeURIComponent(url.slice(url.indexOf(",") + 1));
}

function drawSettings() {
  const { axes } = data, scores = axes[axes.length - 1].values;
  if (axes.length < 2) return;
  at("parallel").style.minWidth = `${Math.max(9 * axes.length, 20)}rem`;
  draw("parallel", [{ type: "parcoords", dimensions: axes, line: { color: scores, colorscale: "Viridis", showscale: true } }],
    { margin: { l: 90, r: 40, t: 60, b: 30 } });
}

/* The settings and facts in which two runs differ. */
function showDifference() {
  const [one, other] = [0, 1].map((index) => Number(at("diff" + index).value));
  const found = data.columns.filter(({ kind, texts }) => kind !== "score" && kind !== "name" && texts[one] !== texts[other]);
  const line = (tag, texts) => element("tr", {}, ...texts.map((text) => element(tag, {}, isolated(text))));
  at("diff").replaceChildren(
    element("thead", {}, line("th", ["setting or fact", data.runs[one], data.runs[other]])),
    element("tbody", {}, ...found.map(({ label, texts }) => line("td", [label, texts[one], texts[other]]))));
  at("diff-count").textContent = found.length ? "" : "These two runs differ in nothing that is recorded.";
}

/* --- attention --- */

function framesOf(example) {
  return Object.values(example.maps).flatMap((map) => map.frames ?? []);
}

function stepsOf(example) {
  return [...new Set(framesOf(example).map((frame) => frame.step).filter((step) => step !== undefined))].sort((a, b) => a - b);
}

function chooseExample() {
  const example = data.attention[at("example").value], runs = Object.keys(example.maps).map(Number), steps = stepsOf(example);
  for (const index of [0, 1]) {
    const select = at("map" + index), before = Number(select.value);
    const other = runs.findIndex((run) => groupOf(run) !== groupOf(runs[0]));
    const second = other < 0 ? Math.min(1, runs.length - 1) : other;
    select.replaceChildren(...runs.map((run) => new Option(data.runs[run], run)));
    select.selectedIndex = runs.includes(before) && select.dataset.set ? runs.indexOf(before) : index * second;
    select.dataset.set = "true";
  }
  document.querySelectorAll(".map")[1].hidden = runs.length < 2;
  at("slider").hidden = steps.length < 2;
  at("step").max = Math.max(0, steps.length - 1);
  at("step").value = at("step").max;
  drawMaps();
}

function drawMaps() {
  const example = data.attention[at("example").value], steps = stepsOf(example), step = steps[at("step").value];
  at("steps").textContent = steps.length ? step.toLocaleString("en") : "";
  for (const index of [0, 1]) {
    const map = example.maps[at("map" + index).value], container = at("heat" + index);
    if (map.picture) {
      container.replaceChildren(element("img", { src: "data:image/png;base64," + map.picture, alt: example.title }));
    } else {
      const reached = map.frames.filter((frame) => frame.step === undefined || frame.step <= step);
      const last = reached[reached.length - 1];
      const note = element("p", { className: "note", textContent: last?.note ?? "" });
      container.replaceChildren(...(last ? [...heatmap(last), note, rowTable(last), savingBar("attention", () => heatmapSvg(last, example.title))]
        : [element("p", { className: "note", textContent: "no picture yet" })]));
    }
  }
  const frames = framesOf(example);
  at("scale").hidden = at("pointing").hidden = frames.length === 0; // pictures have their own scale
  at("unit").textContent = frames[0]?.scale ?? "";
  at("gold").hidden = !frames.some((frame) => frame.links.length);
  at("to-output").hidden = !data.examples.some(({ inputs }) => inputs.some(([input]) => input === example.title));
}

/* The attention of two runs for an input. */
function goToAttention(title, runs) {
  at("example").value = data.attention.findIndex((one) => one.title === title); // an option collapses white space
  at("example").onchange();
  runs.forEach((run, index) => setControl(at("map" + index), data.runs[run]));
  goTo("attention");
}

/* The outputs for the input of the attention that is shown. */
function goToOutput() {
  const { title } = data.attention[at("example").value];
  const set = data.examples.findIndex(({ inputs }) => inputs.some(([input]) => input === title));
  setControl(at("set"), data.examples[set].label);
  ["left", "right"].forEach((id, index) => setControl(at(id), valueOf(at("map" + index))));
  setControl(at("wrong"), "off");
  setControl(at("words"), title);
  goTo("outputs");
}

function goTo(id) {
  at(id).scrollIntoView();
  [...at(id).querySelectorAll("select")].find((one) => one.checkVisibility()).focus({ preventScroll: true });
  section = id;
  writeView();
}

/* --- start --- */

function on(ids, event, action) {
  for (const id of ids) at(id)["on" + event] = action;
}

function drawFigures() {
  drawCurves();
  drawBars();
  drawSettings();
}

async function start() {
  data = JSON.parse(await unpack("data"));
  for (const [label, value] of Object.entries(data.shared)) {
    const texts = data.runs.map(() => value);
    data.columns.push({ label, kind: "setting", shown: ALL, texts, values: texts });
  }
  themed = drawFigures;

  fill(at("metric"), data.curves.map((curve) => curve.label));
  on(["metric", "single"], "change", drawCurves);
  if (!data.curves.length) empty("curves", "These runs have no curves.");
  fill(at("grouping"), data.groupings.map((one) => one.label));
  on(["grouping"], "change", drawBars);
  if (!data.groupings.length) empty("groupings", "These runs have no metrics by group.");
  if (data.axes.length < 2) empty("settings", "All runs have the same settings.");
  for (const [id, name] of [["curve", "curves"], ["bars", "groups"], ["parallel", "settings"]]) {
    const plot = at(id); // the settings scroll in a box of their own
    if (plot) (plot.closest(".scroll") ?? plot).after(savingBar(name, () => plotSvg(id)));
  }
  if (data.runs.length > 1) {
    [0, 1].forEach((index) => fill(at("diff" + index), data.runs, index ? data.groups[1]?.runs[0] ?? 1 : 0));
    on(["diff0", "diff1"], "change", showDifference);
    showDifference();
  } else empty("difference", "There is one run.");
  showLegend();
  on(["filter"], "input", showRuns);
  on(["columns"], "change", showRuns);
  showRuns();
  const shared = Object.entries(data.shared);
  at("shared-count").textContent = `${shared.length} settings that all runs share`;
  at("shared").replaceChildren(...shared.map(([key, value]) => element("div", {}, isolated(`${key}=${value}`))));

  if (data.attention.length) {
    fill(at("example"), data.attention.map((example) => example.title));
    on(["example"], "change", chooseExample);
    on(["map0", "map1"], "change", drawMaps);
    on(["step"], "input", drawMaps);
    on(["to-output"], "click", goToOutput);
    chooseExample();
  } else empty("attention", "These runs have no attention weights.");

  if (data.examples.length) {
    fill(at("set"), data.examples.map((one) => one.label));
    at("sets").hidden = data.examples.length < 2;
    on(["set"], "change", chooseSet);
    const first = () => { batches = 1; showOutputs(); };
    on(["left", "right", "order", "mark", "wrong"], "change", first);
    on(["words"], "input", first);
    on(["more"], "click", () => { batches++; showOutputs(); });
    chooseSet();
  } else empty("outputs", "These runs have no outputs.");
  keepView();

  document.head.append(element("script", { textContent: await unpack("plotly") }));
  drawFigures();
  at(section)?.scrollIntoView(); // the plots have their height now
  document.documentElement.dataset.ready = "true";
}
