"use strict";
const at = (id) => document.getElementById(id);
const BATCH = 50; // outputs shown at once
const VIRIDIS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"]
  .map((color) => [1, 3, 5].map((start) => parseInt(color.slice(start, start + 2), 16)));
let data; // see page_data in page.py
let visible = new Set(); // numbers of the runs that the table shows
const hidden = new Set(); // numbers of the groups that the legend switched off

/* --- parts of a page --- */

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function fill(select, texts, chosen = 0) {
  select.replaceChildren(...texts.map((text, value) => Object.assign(new Option(text, value), { dir: "auto" })));
  select.selectedIndex = Math.min(chosen, texts.length - 1);
}

/* A text that keeps its direction apart from the text around it. */
function isolated(text) { return element("bdi", { textContent: text }); }

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

function groupOf(run) { return data.groups.findIndex((group) => group.runs.includes(run)); }

function showRuns() {
  const terms = at("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (run) => data.columns.map((one) => one.label + "=" + one.texts[run]).join(" ").toLowerCase();
  const found = data.runs.map((_, run) => run).filter((run) => terms.every((term) => text(run).includes(term)));
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
    barmode: "group", xaxis: { title: { text: one.axis }, type: "category" }, yaxis: { title: { text: "test " + one.metric }, ...range },
  });
}

function drawSettings() {
  const { axes } = data, scores = axes[axes.length - 1].values;
  if (axes.length < 2) return;
  at("parallel").style.minWidth = `${Math.max(9 * axes.length, 20)}rem`;
  draw("parallel", [{ type: "parcoords", dimensions: axes, line: { color: scores, colorscale: "Viridis", showscale: true } }],
    { margin: { l: 90, r: 40, t: 60, b: 30 } });
}

/* --- attention --- */

function viridis(weight) {
  const position = Math.max(0, Math.min(1, weight)) * (VIRIDIS.length - 1), low = Math.min(Math.floor(position), VIRIDIS.length - 2);
  const mixed = VIRIDIS[low].map((one, i) => Math.round(one + (position - low) * (VIRIDIS[low + 1][i] - one)));
  return `rgb(${mixed})`;
}

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
      container.replaceChildren(...(reached.length ? heatmap(reached[reached.length - 1])
        : [element("p", { className: "note", textContent: "no validation yet" })]));
    }
  }
  const frames = framesOf(example);
  at("scale").hidden = at("pointing").hidden = frames.length === 0; // pictures have their own scale
  at("gold").hidden = !frames.some((frame) => frame.links.length);
}

/* Sentences and a table of cells. A chosen word or cell marks its row and column; a word shades those that it is linked to. */
function heatmap({ x, y, z, links, directions }) {
  const gold = new Set(links.map(([column, row]) => column + "," + row));
  const values = element("p", { className: "values", ariaLive: "polite" });
  const sentence = (texts, name, dir) => {
    const spans = texts.map((text, i) => element("span", { tabIndex: i ? -1 : 0 }, isolated(text)));
    const made = element("div", { className: "sentence", role: "group", ariaLabel: name, dir });
    spans.forEach((span) => made.append(span, " "));
    return [made, spans];
  };
  const [columns, columnSpans] = sentence(x, "columns", directions[0]), [rows, rowSpans] = sentence(y, "rows", directions[1]);
  const columnHeads = x.map((text) => element("th", { scope: "col" }, isolated(text)));
  const rowHeads = y.map((text) => element("th", { scope: "row", title: text }, isolated(text)));
  const cells = z.map((weights, row) => weights.map((weight, column) => {
    const cell = element("td", { className: gold.has(column + "," + row) ? "link" : "" });
    cell.style.background = viridis(weight);
    cell.onmouseenter = () => choose(column, row);
    return cell;
  }));
  const percent = (weight) => weight.toFixed(2);
  const best = (weights, names) => weights.map((weight, i) => [weight, names[i]]).sort((a, b) => b[0] - a[0]).slice(0, 4)
    .filter(([weight]) => weight >= 0.01).flatMap(([weight, name], i) => [i ? ", " : "", isolated(name), ` ${percent(weight)}`]);
  function choose(column, row) {
    columnSpans.forEach((span, i) => {
      span.classList.toggle("chosen", i === column);
      span.style.background = row === null || column !== null ? "" : `rgba(var(--accent), ${z[row][i]})`;
    });
    rowSpans.forEach((span, i) => {
      span.classList.toggle("chosen", i === row);
      span.style.background = column === null || row !== null ? "" : `rgba(var(--accent), ${z[i][column]})`;
    });
    columnHeads.forEach((head, i) => head.classList.toggle("chosen", i === column));
    rowHeads.forEach((head, i) => head.classList.toggle("chosen", i === row));
    values.replaceChildren(...(column !== null && row !== null
      ? [isolated(y[row]), " → ", isolated(x[column]), `: ${percent(z[row][column])}`]
      : row !== null ? [isolated(y[row]), " → ", ...best(z[row], x)]
      : [isolated(x[column]), " ← ", ...best(z.map((weights) => weights[column]), y)]));
  }
  function listen(spans, others, dir, chosen) {
    const step = dir === "rtl" ? -1 : 1;
    spans.forEach((span, i) => {
      span.onmouseenter = span.onfocus = () => chosen(i);
      span.onkeydown = (event) => {
        const next = { ArrowRight: spans[i + step], ArrowLeft: spans[i - step], Home: spans[0], End: spans[spans.length - 1],
          ArrowDown: others[Math.min(i, others.length - 1)], ArrowUp: others[Math.min(i, others.length - 1)] }[event.key];
        if (next) {
          event.preventDefault();
          next.focus();
        }
      };
    });
  }
  listen(columnSpans, rowSpans, directions[0], (column) => choose(column, null));
  listen(rowSpans, columnSpans, directions[1], (row) => choose(null, row));
  const table = element("table", { className: "cells", dir: directions[0] },
    element("thead", {}, element("tr", {}, element("td"), ...columnHeads)),
    element("tbody", {}, ...cells.map((line, row) => element("tr", {}, rowHeads[row], ...line))));
  table.style.setProperty("--cell", `${Math.max(14, Math.min(30, Math.round(480 / x.length)))}px`);
  return [columns, rows, values, element("div", { className: "grid" }, table)];
}

/* --- outputs --- */

let batches = 1;

/* The numbers of the words of a text that are not in a longest common subsequence with another text. */
function different(words, others) {
  const best = Array.from({ length: words.length + 1 }, () => new Uint16Array(others.length + 1));
  for (let i = words.length - 1; i >= 0; i--)
    for (let j = others.length - 1; j >= 0; j--)
      best[i][j] = words[i] === others[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
  const found = new Set(words.keys());
  for (let i = 0, j = 0; i < words.length && j < others.length;) {
    if (words[i] === others[j]) { found.delete(i); i++; j++; }
    else if (best[i + 1][j] >= best[i][j + 1]) i++;
    else j++;
  }
  return found;
}

/* The words of a text with the spaces after them; in scripts without spaces between words, its letters with their marks. */
function wordsOf(text) {
  const unspaced = /[\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\p{sc=Thai}\p{sc=Lao}\p{sc=Khmr}\p{sc=Mymr}\p{sc=Tibt}]/u;
  const letters = (word) => [...new Intl.Segmenter().segment(word)].map((one) => one.segment);
  return (text.match(/\S+\s*/g) ?? []).flatMap((word) => {
    if (!unspaced.test(word)) return [word];
    const parts = letters(word.trimEnd());
    parts[parts.length - 1] += word.slice(word.trimEnd().length);
    return parts;
  });
}

function marked(text, other) {
  const words = wordsOf(text), bare = (all) => all.map((word) => word.trim());
  const found = different(bare(words), bare(wordsOf(other)));
  const parts = (word) => [element("mark", { textContent: word.trimEnd() }), word.slice(word.trimEnd().length)];
  return words.flatMap((word, i) => found.has(i) ? parts(word) : [word]);
}

function chooseSet() {
  const { runs, second } = data.examples[at("set").value], names = runs.map((run) => data.runs[run]);
  fill(at("left"), names);
  fill(at("right"), names, second);
  batches = 1;
  showOutputs();
}

function showOutputs() {
  const { runs, inputs, outputs, scores, total, score, note } = data.examples[at("set").value];
  const one = Number(at("left").value), other = Number(at("right").value), words = at("words").value.toLowerCase();
  const found = inputs.map((_, i) => i).filter((i) =>
    [...inputs[i], outputs[one][i], outputs[other][i]].some((text) => text.toLowerCase().includes(words)));
  const gain = (i) => scores[one][i] - scores[other][i];
  const orders = { better: (i) => -gain(i), worse: gain, low: (i) => scores[one][i] }, order = orders[at("order").value];
  if (order) found.sort((i, j) => order(i) - order(j));
  const labels = ["input", "reference", data.runs[runs[one]], data.runs[runs[other]]];
  const rows = found.slice(0, batches * BATCH).map((i) => {
    const output = (run, rival) => [
      ...marked(outputs[run][i], at("mark").value === "other" ? outputs[rival][i] : inputs[i][1]),
      " ", element("bdi", { className: "score", textContent: `(${scores[run][i]})` })];
    const contents = [[inputs[i][0]], [inputs[i][1]], output(one, other), output(other, one)];
    return element("tr", {}, ...contents.map((content, column) => {
      const cell = element("td", { dir: "auto" }, ...content);
      cell.dataset.label = labels[column];
      return cell;
    }));
  });
  const head = element("tr", {}, ...labels.map((text) => element("th", { scope: "col" }, isolated(text))));
  at("texts").replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
  const cut = inputs.length < total ? ` (the first of ${total})` : "";
  at("count").textContent = `${found.length} of ${inputs.length} examples${cut}; ${rows.length} shown. In parentheses: ${score}. ${note}`;
  at("more").hidden = rows.length === found.length;
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
  themed = drawFigures;

  fill(at("metric"), data.curves.map((curve) => curve.label));
  on(["metric", "single"], "change", drawCurves);
  if (!data.curves.length) empty("curves", "These runs have no curves.");
  fill(at("grouping"), data.groupings.map((one) => one.label));
  on(["grouping"], "change", drawBars);
  if (!data.groupings.length) empty("groupings", "These runs have no metrics by group.");
  if (data.axes.length < 2) empty("settings", "All runs have the same settings.");
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
    chooseExample();
  } else empty("attention", "These runs have no attention weights.");

  if (data.examples.length) {
    fill(at("set"), data.examples.map((one) => one.label));
    at("sets").hidden = data.examples.length < 2;
    on(["set"], "change", chooseSet);
    const first = () => { batches = 1; showOutputs(); };
    on(["left", "right", "order", "mark"], "change", first);
    on(["words"], "input", first);
    on(["more"], "click", () => { batches++; showOutputs(); });
    chooseSet();
  } else empty("outputs", "These runs have no outputs.");

  document.head.append(element("script", { textContent: await unpack("plotly") }));
  drawFigures();
  document.documentElement.dataset.ready = "true";
}

start();
