/* The tree of a search: a column per step, the best output in the first row; the width of a box is its probability. */
import { cut, numeral, roving, share, table } from "./draw.js";

const WIDTH = 76, HEIGHT = 22, ACROSS = 14, DOWN = 6, TOP = 18;

/* The row of each node. The outputs come first; each branch takes the first row below its parent that is free at its steps. */
function rowsOf(tree, children) {
  const order = new Map(), best = (node) => {
    if (!order.has(node.id)) order.set(node.id, Math.min(node.output ?? Infinity, ...children[node.id].map(best)));
    return order.get(node.id);
  };
  for (const node of [...tree].reverse()) best(node);
  const rows = new Array(tree.length), busy = [];
  const free = (row, from, to) => !(busy[row] ?? []).some(([first, last]) => first <= to && from <= last);
  const take = (node, lowest) => {
    const chain = [node];
    const later = [];
    for (;;) {
      const next = [...children[chain[chain.length - 1].id]].sort((a, b) => order.get(a.id) - order.get(b.id) || b.total - a.total);
      if (!next.length) break;
      chain.push(next[0]);
      later.push(...next.slice(1));
    }
    const from = node.step, to = chain[chain.length - 1].step;
    let row = lowest;
    while (!free(row, from, to)) row++;
    (busy[row] ??= []).push([from, to]);
    for (const one of chain) rows[one.id] = row;
    return [row, later.sort((a, b) => order.get(a.id) - order.get(b.id) || a.step - b.step)];
  };
  const waiting = [[tree[0], 0]];
  while (waiting.length) {
    waiting.sort(([a], [b]) => order.get(a.id) - order.get(b.id) || a.step - b.step);
    const [node, lowest] = waiting.shift(), [row, later] = take(node, lowest);
    waiting.push(...later.map((one) => [one, row + 1]));
  }
  return rows;
}

function endOf(node) { return node.state === "finished" ? `output ${node.output + 1}` : node.state === "pruned" ? `pruned: ${node.reason}` : null; }

function describe(node) {
  const p = node.step ? `${share(node.log_prob)} after the words before it; ` : "";
  return `${node.text}: ${p}log p so far ${numeral(node.total)}; ${endOf(node) ?? `rank ${node.rank}`}`;
}

/* Draw into an element. `force(ids, text)`: called with the tokens and the text of a chosen box. */
export function drawTree(container, note, traced, step, force) {
  const { tree } = traced;
  container.replaceChildren();
  note.textContent = `${force ? "Choose a box to force these words. " : ""}Dashed: pruned. Filled: probability.`;
  if (!tree.length) return;
  const children = tree.map(() => []);
  for (const node of tree) if (node.parent !== null) children[node.parent].push(node);
  const rows = rowsOf(tree, children), best = new Set();
  for (let node = tree.find((one) => one.output === 0); node; node = tree[node.parent]) best.add(node.id);
  const steps = Math.max(...tree.map((node) => node.step)), width = (steps + 1) * (WIDTH + ACROSS), height = TOP + (Math.max(...rows) + 1) * (HEIGHT + DOWN);
  const x = (node) => node.step * (WIDTH + ACROSS), y = (node) => TOP + rows[node.id] * (HEIGHT + DOWN);
  const figure = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "tree of the search" });
  for (let step = 1; step <= steps; step++) figure.append(svg("text", { class: "unread", x: step * (WIDTH + ACROSS) + WIDTH / 2, y: 12, "text-anchor": "middle" }, String(step)));
  figure.prepend(svg("rect", { class: "now", x: (step + 1) * (WIDTH + ACROSS) - ACROSS / 2, y: 0, width: WIDTH + ACROSS, height }));
  const ids = (node) => node.parent === null ? [] : [...ids(tree[node.parent]), node.token];
  for (const node of tree) if (node.parent !== null) {
    const from = tree[node.parent], left = x(from) + WIDTH, a = y(from) + HEIGHT / 2, b = y(node) + HEIGHT / 2, right = x(node);
    figure.append(svg("path", { class: `edge${best.has(node.id) ? " best" : ""}`, d: `M${left} ${a}C${left + ACROSS} ${a} ${right - ACROSS} ${b} ${right} ${b}` }));
  }
  const boxes = tree.map((node) => {
    const made = svg("g", { class: `node ${node.state}${best.has(node.id) ? " best" : ""}${node.forced ? " forced" : ""}`, role: "button", "aria-label": describe(node) });
    made.append(svg("rect", { class: "box", x: x(node), y: y(node), width: WIDTH, height: HEIGHT, rx: 3 }),
      svg("rect", { class: "fill", x: x(node) + 1, y: y(node) + 1, width: Math.max(.5, (WIDTH - 2) * Math.exp(node.log_prob)), height: HEIGHT - 2, rx: 2 }),
      svg("text", { x: x(node) + 5, y: y(node) + 15 }, cut(node.text, WIDTH - 8)), svg("title", {}, describe(node)));
    made.onclick = () => force?.(ids(node), node.text);
    made.onfocus = made.onmouseenter = () => { note.textContent = describe(node); };
    made.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); made.onclick(); } });
    return made;
  });
  figure.append(...boxes);
  const beside = (node, step) => tree.filter((one) => one.step === node.step && Math.sign(rows[one.id] - rows[node.id]) === step)
    .sort((a, b) => step * (rows[a.id] - rows[b.id]))[0]?.id;
  roving("node", boxes, (index, key) => {
    const node = tree[index];
    if (key === "ArrowLeft") return node.parent ?? undefined;
    if (key === "ArrowRight") return [...children[index]].sort((a, b) => rows[a.id] - rows[b.id])[0]?.id;
    return { ArrowDown: () => beside(node, 1), ArrowUp: () => beside(node, -1), Home: () => 0 }[key]?.();
  });
  container.append(figure);
  container.scrollLeft = (step + 1.5) * (WIDTH + ACROSS) - container.clientWidth / 2;
}

export function treeTable(traced) {
  const text = (node) => node.parent === null ? "" : `${text(traced.tree[node.parent])} ${node.text}`;
  return table(["step", "words", "log p", "log p so far", "rank", "state"], traced.tree.map((node) =>
    [node.step, text(node), node.log_prob, node.total, node.rank, endOf(node) ?? node.state]));
}
