"use strict";
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
  const rowHeads = y.map((text, i) => element("th", { scope: "row", title: text }, isolated(text), element("span", { className: "place", textContent: ` ${i + 1}` })));
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
      ? [`row ${row + 1}: `, isolated(y[row]), " → ", isolated(x[column]), `: ${percent(z[row][column])}`]
      : row !== null ? [`row ${row + 1}: `, isolated(y[row]), " → ", ...best(z[row], x)]
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
