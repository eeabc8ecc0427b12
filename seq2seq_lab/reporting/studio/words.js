/* Source words, links, and output words whose height is their probability. */
import { cut, isRtl, line, onPoint, point, roving, share, table } from "./draw.js";

const LINKS = 92, BARS = 46, LINE = 22, GAP = 10, NARROW = 17, LONGEST = 130;
let shown = null;

/* The words of an output; the last one is <eos> if the output ended. */
export function outputWords(output) {
  const words = output.words.map((text, i) => ({ text, logProb: output.word_log_probs[i], step: output.tokens.findIndex((one) => one.word === i) }));
  const last = output.tokens.length - 1;
  if (output.ended && last >= 0 && output.tokens[last].kind === "eos") words.push({ text: "<eos>", logProb: output.log_probs[last], step: last });
  return words;
}

export function wordOf(output, step) {
  const found = output.tokens[step]?.word ?? null;
  return found === null && output.tokens[step]?.kind === "eos" ? output.words.length : found;
}

export function columnsOf(source) {
  return source.word_column_names.length ? source.word_column_names : source.column_names.length ? source.column_names : source.words;
}

/* The centers of words over a width, in the order of reading; words that do not fit are turned. */
function places(texts, width, rtl) {
  const longest = Math.max(LONGEST, width / Math.max(1, texts.length) - 2 * GAP), widths = texts.map((text) => Math.min(longest, widthOf(text)) + GAP), total = widths.reduce((sum, one) => sum + one, 0);
  const turned = total > width, each = Math.max(NARROW, width / Math.max(1, texts.length));
  const sizes = turned ? texts.map(() => each) : widths, spare = turned ? 0 : (width - total) / Math.max(1, texts.length);
  let left = 0;
  const centers = sizes.map((size) => { const center = left + (size + spare) / 2; left += size + spare; return center; });
  return { turned, longest: turned ? LONGEST : longest, sizes: sizes.map((size) => size + spare), width: left, centers: rtl ? centers.map((center) => left - center) : centers };
}

function labelHeight(texts, turned) { return turned ? 12 + Math.min(LONGEST, Math.max(0, ...texts.map((text) => widthOf(text)))) : LINE; }

function label(text, center, top, height, { turned, longest }, upward) {
  const short = cut(text, longest);
  const at = turned ? { transform: `translate(${center + 4} ${upward ? top + height - 5 : top + 5}) rotate(-90)`, "text-anchor": upward ? "start" : "end" }
    : { x: center, y: top + 15, "text-anchor": "middle" };
  return svg("text", at, short);
}

function drawImage(container, source, output) {
  const [rows, columns] = source.grid, cells = svg("svg", { viewBox: `0 0 ${columns} ${rows}`, width: "100%", height: "100%", preserveAspectRatio: "none" });
  const boxes = Array.from({ length: rows * columns }, (_, i) => svg("rect", { x: i % columns, y: Math.floor(i / columns), width: 1, height: 1, fill: "#000", opacity: 0 }));
  cells.append(...boxes);
  container.append(element("div", { className: "photo" }, element("img", { src: source.image, alt: "the image that the model reads" }), cells));
  const weights = output.attention;
  onImage = (step) => boxes.forEach((box, i) => box.setAttribute("opacity", weights?.[step] ? Math.max(0, .75 * (1 - weights[step][i] / Math.max(...weights[step]))) : 0));
}
let onImage = () => {};

/* Gold links between tokens as (column, row) cells between words. */
export function wordLinks({ source, outputs: [output] }, links) {
  const found = links.map(([column, row]) => [source.tokens[column]?.word, output.tokens[row]?.word]).filter((pair) => pair.every((word) => typeof word === "number"));
  return [...new Map(found.map(([column, row]) => [`${column},${row}`, [column + 1, row]])).values()];
}

/* Draw into an element. `step`: the chosen one; `gold`: (column, word) pairs; `marked`: the words that differ from an earlier output; `pick(step)`, `attend(column)`. */
export function drawWords(container, traced, { step, gold = [], marked = new Set(), pick, attend }) {
  container.replaceChildren();
  onImage = () => {};
  if (!traced.outputs.length) return;
  const { source } = traced, output = traced.outputs[0], names = columnsOf(source), words = outputWords(output);
  if (source.image) drawImage(container, source, output);
  const room = Math.max(240, container.clientWidth - 4), sourceRtl = isRtl(source.words), outputRtl = isRtl(output.words);
  const over = source.grid ? [] : names;
  const top = places(over, room, sourceRtl), bottom = places(words.map((one) => one.text), room, outputRtl);
  const width = Math.max(room, top.width, bottom.width), above = over.length ? labelHeight(over, top.turned) : 0;
  const linked = over.length && output.links.length ? LINKS : 8, base = above + linked + BARS, below = labelHeight(words.map((one) => one.text), bottom.turned);
  const figure = svg("svg", { width, height: base + below + 4, viewBox: `0 0 ${width} ${base + below + 4}`, role: "group", "aria-label": "source and output words" });
  const busy = Math.max(over.length, words.length) > 30 ? .25 : 0; // links thin out
  const curve = (column, word) => {
    const x = top.centers[column], y = bottom.centers[word], from = above, to = above + linked, middle = (from + to) / 2;
    return `M${x} ${from}C${x} ${middle} ${y} ${middle} ${y} ${to}`;
  };
  const links = output.links.filter((one) => one.weight >= busy && over.length && one.word < words.length).map((one) => {
    const path = svg("path", { class: "link", d: curve(one.column, one.word), "stroke-width": Math.max(.6, 5 * one.weight), opacity: .25 + .75 * one.weight });
    figure.append(path);
    return { path, ...one };
  });
  figure.append(...gold.map(([column, word]) => svg("path", { class: "gold", d: curve(column, word) })));
  const group = (className, label) => svg("g", { class: className, role: "button", "aria-label": label });
  const heads = over.map((text, i) => {
    const made = group("word", text);
    made.append(svg("rect", { class: "hit", x: top.centers[i] - top.sizes[i] / 2, y: 0, width: top.sizes[i], height: above, rx: 3 }), label(text, top.centers[i], 0, above, top, true), svg("title", {}, text));
    made.onclick = () => attend(i);
    return made;
  });
  const feet = words.map((word, i) => {
    const p = Math.exp(word.logProb), made = group(`word${wordOf(output, step) === i ? " step" : ""}${marked.has(i) ? " marked" : ""}`, `${word.text}, probability ${share(word.logProb)}`);
    const size = bottom.sizes[i], bar = Math.min(34, size - 3);
    made.append(svg("rect", { class: "bar-p", x: bottom.centers[i] - bar / 2, y: base - (BARS - 6) * p, width: bar, height: Math.max(1, (BARS - 6) * p) }),
      svg("rect", { class: "hit", x: bottom.centers[i] - size / 2, y: base - BARS + 4, width: size, height: BARS + below - 4, rx: 3 }),
      label(word.text, bottom.centers[i], base, below, bottom, false), svg("title", {}, `${word.text}: ${share(word.logProb)}`));
    made.onclick = () => pick(word.step);
    return made;
  });
  figure.append(svg("line", { class: "axis", x1: 0, x2: width, y1: base + .5, y2: base + .5 }), ...heads, ...feet);
  for (const [side, groups] of [["source", heads], ["output", feet]]) groups.forEach((one, i) => {
    one.onmouseenter = one.onfocus = () => point(side, i);
    one.onmouseleave = one.onblur = () => point(side, null);
    one.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); one.onclick(); } });
  });
  roving("source", heads, line(heads.length, sourceRtl));
  roving("output", feet, line(feet.length, outputRtl), Math.max(0, wordOf(output, step)));
  container.append(figure);
  shown = { heads, feet, links, words };
}

onPoint((side, index) => {
  if (!shown) return;
  const { heads, feet, links, words } = shown, own = (one) => side === "source" ? one.column === index : one.word === index;
  heads.forEach((one, i) => one.classList.toggle("chosen", index !== null && (side === "source" ? i === index : links.some((link) => own(link) && link.column === i))));
  feet.forEach((one, i) => one.classList.toggle("chosen", index !== null && (side === "output" ? i === index : links.some((link) => own(link) && link.word === i))));
  links.forEach((one) => one.path.classList.toggle("dim", index !== null && !own(one)));
  if (side === "output" && index !== null) onImage(words[index]?.step);
});

export function wordsTable(traced) {
  const output = traced.outputs[0], names = columnsOf(traced.source);
  if (!output) return "";
  return table(["", "output word", "log p", "probability", "attends most to"], outputWords(output).map((word, i) => {
    const most = output.links.filter((one) => one.word === i).map((one) => `${names[one.column]} (${one.weight.toFixed(2)})`).join(", ");
    return [i + 1, word.text, word.logProb, share(word.logProb), most];
  }));
}
