/* The attention weights as a heatmap on a canvas, with the sums of some columns in the margin. */
import { cut, isRtl, onPoint, point } from "./draw.js";

export const NAMES = { sos: "<sos>", eos: "<eos>" };
const LABEL = 120, MARGIN = 44, FONT = "12px system-ui, sans-serif";
let shown = null, cursor = 0;

/* A color-blind-safe scale of −1 to 1: blue, white, orange. */
export function diverging(value) {
  const end = value < 0 ? [33, 102, 172] : [179, 88, 6], size = Math.min(1, Math.abs(value));
  return `rgb(${end.map((one) => Math.round(247 + size * (one - 247)))})`;
}

/* Black or white, whichever has a contrast of 4.5 or more on a color. */
export function textOn(color) {
  const [r, g, b] = color.match(/\d+/g).map((one) => (one / 255) ** 2.2);
  return .2126 * r + .7152 * g + .0722 * b > .18 ? "#000" : "#fff";
}

/* A row with one weight changed and the others in proportion. */
export function moved(weights, column, weight) {
  const value = Math.max(0, Math.min(1, weight)), sum = weights.reduce((all, one) => all + one, 0) || 1, rest = sum - weights[column];
  return weights.map((one, i) => i === column ? value : rest > 0 ? one * (1 - value) / rest : (1 - value) / Math.max(1, weights.length - 1));
}

export function drawMap(container, { x, y, z, links = [], margins = {}, color = viridis, row = null, pick = () => {}, edit = null, pointing = false, name = "map" }) {
  const values = element("p", { className: "values", ariaLive: "polite" }), canvas = element("canvas", { tabIndex: 0 });
  const cell = Math.max(x.length > 150 ? 5 : 13, Math.min(28, Math.floor(Math.max(320, container.clientWidth - LABEL - 180) / x.length))), sums = Object.entries(margins);
  const rtl = isRtl(x), named = cell >= 9;
  const left = Math.min(LABEL, 14 + Math.max(...y.map((text) => widthOf(text, FONT)))), above = Math.max(sums.length ? 92 : 8, named ? Math.min(LABEL, 14 + Math.max(...x.map((text) => widthOf(text, FONT)))) : 0);
  const width = left + cell * x.length + (sums.length ? 8 + sums.length * MARGIN : 0) + 6, height = above + cell * y.length + 4, scale = Math.min(devicePixelRatio || 1, 2, 8000 / Math.max(width, height));
  const across = (column) => left + cell * (rtl ? x.length - 1 - column : column);
  let at = { row: row ?? 0, column: Math.min(cursor, x.length - 1) }, preview = null, pointed = null;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  canvas.dataset.name = name;
  canvas.setAttribute("role", "application");
  canvas.ariaLabel = "heatmap of attention: arrow keys move, Enter chooses the step" + (edit ? ", plus and minus change a weight of the chosen step" : "");
  const pen = canvas.getContext("2d");
  function paint() {
    const style = getComputedStyle(document.documentElement), text = style.getPropertyValue("--text"), faint = style.getPropertyValue("--faint"), accent = `rgb(${style.getPropertyValue("--accent")})`;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = FONT;
    z.forEach((weights, i) => (preview?.row === i ? preview.weights : weights).forEach((weight, j) => {
      pen.fillStyle = color(weight);
      pen.fillRect(across(j), above + cell * i, cell + .4, cell + .4);
    }));
    for (const [lineWidth, color] of [[4, "#000"], [2, "#fff"]]) for (const [column, i] of links) {
      pen.strokeStyle = color;
      pen.lineWidth = lineWidth;
      pen.strokeRect(across(column) + 1, above + cell * i + 1, cell - 2, cell - 2);
    }
    pen.textBaseline = "middle";
    if (named) y.forEach((name, i) => {
      pen.fillStyle = text;
      pen.textAlign = "right";
      pen.fillText(cut(name, left - 10), left - 6, above + cell * (i + .5));
    });
    pen.textAlign = "left";
    const turned = (name, center, room = above - 10) => {
      pen.save();
      pen.translate(center, above - 5);
      pen.rotate(-Math.PI / 2);
      pen.fillText(cut(name, room), 0, 0);
      pen.restore();
    };
    if (named) x.forEach((name, j) => turned(name, across(j) + cell / 2));
    sums.forEach(([name, column], k) => {
      const start = left + cell * x.length + 8 + k * MARGIN;
      pen.fillStyle = faint;
      turned(NAMES[name] ?? name, start + MARGIN / 2, above);
      if (named) column.slice(0, z.length).forEach((sum, i) => pen.fillText(sum.toFixed(2), start + 8, above + cell * (i + .5)));
    });
    pen.strokeStyle = accent;
    pen.lineWidth = 2;
    if (row !== null && row < y.length) pen.strokeRect(left, above + cell * row, cell * x.length, cell);
    pen.strokeStyle = "#fff";
    if (pointed) pen.strokeRect(...pointed);
    pen.strokeStyle = text;
    if (document.activeElement === canvas) pen.strokeRect(across(at.column) + 1, above + cell * at.row + 1, cell - 2, cell - 2);
  }
  function say() {
    cursor = at.column;
    values.replaceChildren(`${at.row + 1}: `, isolated(y[at.row]), " → ", isolated(x[at.column]), `: ${(preview?.weights ?? z[at.row])[at.column].toFixed(3)}`);
    for (const [name, column] of sums) values.append(`; on ${name} ${column[at.row].toFixed(2)}`);
  }
  const cellOf = (event) => {
    const box = canvas.getBoundingClientRect(), j = Math.floor((event.clientX - box.left - left) / cell), i = Math.floor((event.clientY - box.top - above) / cell);
    return j < 0 || i < 0 || j >= x.length || i >= y.length ? null : { row: i, column: rtl ? x.length - 1 - j : j };
  };
  let drag = null;
  const pull = (weight) => { preview = { row: drag.row, column: drag.column, weights: moved(z[drag.row], drag.column, weight) }; };
  canvas.onpointerdown = (event) => {
    const found = cellOf(event);
    if (!found) return;
    at = found;
    drag = { ...found, from: event.clientX };
    canvas.setPointerCapture(event.pointerId);
  };
  canvas.onpointermove = (event) => {
    if (drag && edit && drag.row === row && Math.abs(event.clientX - drag.from) > 3) pull(z[drag.row][drag.column] + (event.clientX - drag.from) / 120);
    else if (!drag) {
      const found = cellOf(event);
      if (!found) return;
      at = found;
      if (pointing) point("source", at.column);
    }
    paint();
    say();
  };
  canvas.onpointerup = canvas.onpointercancel = () => {
    if (!drag) return;
    const { row: chosen } = drag, given = preview;
    drag = preview = null;
    if (given) edit(given.weights);
    else pick(chosen);
  };
  canvas.onpointerleave = () => { if (!drag) point("source", null); };
  canvas.onkeydown = (event) => {
    const side = rtl ? -1 : 1, move = { ArrowRight: [0, side], ArrowLeft: [0, -side], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    const more = { "+": .1, "=": .1, "-": -.1 }[event.key];
    if (move) at = { row: Math.max(0, Math.min(y.length - 1, at.row + move[0])), column: Math.max(0, Math.min(x.length - 1, at.column + move[1])) };
    else if (event.key === "Enter") pick(at.row);
    else if (more && edit && at.row === row) edit(moved(z[row], at.column, z[row][at.column] + more));
    else return;
    event.preventDefault();
    paint();
    say();
  };
  canvas.onblur = paint;
  canvas.onfocus = () => { paint(); say(); };
  container.append(values, element("div", { className: "scroll" }, canvas), rowTable({ x, y, z, links, scale: color === viridis ? "attention weight" : "" }));
  paint();
  if (name === "map") shown = { mark: (side, index) => {
    pointed = !pointing || index === null ? null : side === "source" ? [across(index), above, cell, cell * y.length] : [left, above + cell * index, cell * x.length, cell];
    paint();
  } };
  return { paint, svg: (title) => heatmapSvg({ x, y, z, links, directions: [rtl ? "rtl" : "ltr", "ltr"], color }, title) };
}

onPoint((side, index) => shown?.mark(side, index));
