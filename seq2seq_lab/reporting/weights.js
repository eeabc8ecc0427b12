"use strict";
/* Attention weights as colors, as a table in words, and as an SVG file. */
const VIRIDIS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"]
  .map((color) => [1, 3, 5].map((start) => parseInt(color.slice(start, start + 2), 16)));

function viridis(weight) {
  const position = Math.max(0, Math.min(1, weight)) * (VIRIDIS.length - 1), low = Math.min(Math.floor(position), VIRIDIS.length - 2);
  const mixed = VIRIDIS[low].map((one, i) => Math.round(one + (position - low) * (VIRIDIS[low + 1][i] - one)));
  return `rgb(${mixed})`;
}

/* A table that says in words what each row attends to; with gold links, whether that is right. */
function rowTable({ x, y, z, links, scale }) {
  if (scale !== "attention weight") return "";
  const gold = y.map((_, row) => links.filter(([, other]) => other === row).map(([column]) => column));
  const known = links.length > 0, heads = ["row", "output", "attends most to (weight)", ...(known ? ["gold alignment", ""] : [])];
  const rows = z.map((weights, row) => {
    const top = weights.indexOf(Math.max(...weights)), verdict = gold[row].includes(top) ? "right" : "wrong";
    const cells = [row + 1, y[row], `${x[top]} (${weights[top].toFixed(2)})`];
    if (known) cells.push(gold[row].map((column) => x[column]).join(", "), gold[row].length ? verdict : "");
    return element("tr", {}, ...cells.map((cell) => element("td", {}, isolated(cell))));
  });
  const head = element("tr", {}, ...heads.map((textContent) => element("th", { scope: "col", textContent })));
  return element("details", {}, element("summary", { textContent: "what each row attends to" }), element("div", { className: "scroll" },
    element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows))));
}

/* A heatmap as SVG text, black on white. */
function heatmapSvg({ x, y, z, links, directions, color = viridis }, title) {
  const size = 20, top = 30, widest = (texts) => 10 + Math.max(...texts.map((text) => widthOf(text, "13px sans-serif")));
  const left = widest(y), above = top + widest(x), width = Math.max(left + size * x.length, widest([title])) + 10;
  const height = above + size * y.length + 10;
  const across = (column) => left + size * (directions[0] === "rtl" ? x.length - 1 - column : column);
  const figure = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "sans-serif", "font-size": 13 },
    svg("rect", { width, height, fill: "#fff" }), svg("text", { x: 5, y: 18 }, title));
  x.forEach((text, column) => {
    const place = across(column) + size / 2 + 4;
    figure.append(svg("text", { transform: `translate(${place} ${above - 5}) rotate(-90)` }, text));
  });
  y.forEach((text, row) => figure.append(svg("text", { x: left - 5, y: above + size * row + 15, "text-anchor": "end" }, text)));
  const cell = (column, row, more) => svg("rect", { x: across(column), y: above + size * row, width: size, height: size, ...more });
  z.forEach((weights, row) => weights.forEach((weight, column) => figure.append(cell(column, row, { fill: color(weight) }))));
  for (const [column, row] of links) {
    figure.append(cell(column, row, { fill: "none", stroke: "#000", "stroke-width": 4 }), cell(column, row, { fill: "none", stroke: "#fff", "stroke-width": 2 }));
  }
  return new XMLSerializer().serializeToString(figure);
}
