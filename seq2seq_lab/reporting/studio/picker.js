/* The test sentences of a run: sorted, filtered, chosen. */
import { ask, Refused } from "./ask.js";
import { button, choice, head, numeral } from "./draw.js";

const SHOWN = 100;
const [INPUT, REFERENCE, OUTPUT, SCORE, WORDS, PHENOMENA, AER, LOOP] = [0, 1, 2, 3, 4, 5, 6, 7];
let wanted = { order: "score", phenomenon: "", text: "" };

const low = (column) => (row) => row[column] ?? Infinity, high = (column) => (row) => -(row[column] ?? -Infinity);
const ORDERS = { score: ["lowest score", low(SCORE)], place: ["as in the test set", null], short: ["shortest", low(WORDS)], long: ["longest", high(WORDS)], aer: ["highest AER", high(AER)],
  loops: ["loops first", high(LOOP)], differ: ["where the runs differ most", null] };

/* Show the test sentences of a run in an element; `go(sentence)` is called with the one that is chosen. */
export async function showPicker(container, run, other, go) {
  container.replaceChildren(element("p", { className: "note", textContent: "reading …" }));
  let answer, second;
  try {
    answer = await ask("sentences", { run });
    second = other === null ? null : await ask("sentences", { run: other });
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    container.replaceChildren(element("p", { className: "problem", textContent: error.message }));
    return;
  }
  const byInput = new Map(second?.rows.map((row) => [row[INPUT], row])), { rows } = answer;
  const twins = new Map(rows.map((row, i) => [row, second?.rows[i]?.[INPUT] === row[INPUT] ? second?.rows[i] : byInput.get(row[INPUT])]));
  const gap = (row) => twins.get(row) ? -Math.abs((row[SCORE] ?? 0) - (twins.get(row)[SCORE] ?? 0)) : Infinity;
  const has = (column) => rows.some((row) => row[column] !== null);
  const orders = Object.entries(ORDERS).filter(([name]) => !(name === "aer" && !has(AER)) && !(name === "loops" && !has(LOOP)) && !(name === "differ" && !second));
  const phenomena = [...new Set(rows.flatMap((row) => row[PHENOMENA].split(",").map((one) => one.trim()).filter(Boolean)))].sort();
  if (!orders.some(([name]) => name === wanted.order)) wanted.order = "score";
  if (!phenomena.includes(wanted.phenomenon)) wanted.phenomenon = "";
  const list = element("div", { className: "limited" }), count = element("p", { className: "note" });
  function show() {
    const text = wanted.text.toLowerCase(), order = wanted.order === "differ" ? gap : ORDERS[wanted.order][1];
    const found = rows.filter((row) => (!wanted.phenomenon || row[PHENOMENA].split(",").map((one) => one.trim()).includes(wanted.phenomenon)) &&
      (!text || [row[INPUT], row[REFERENCE], row[OUTPUT]].some((one) => one.toLowerCase().includes(text))));
    if (order) found.sort((a, b) => order(a) - order(b));
    const heads = ["sentence", "output", ...(second ? ["output of the second run"] : []), "score", ...(has(AER) ? ["AER"] : []), "words"];
    list.replaceChildren(element("table", {}, element("thead", {}, element("tr", {}, ...heads.map(head))),
      element("tbody", {}, ...found.slice(0, SHOWN).map((row) => {
        const cells = [row[OUTPUT], ...(second ? [twins.get(row)?.[OUTPUT] ?? "–"] : []), row[SCORE], ...(has(AER) ? [row[AER]] : []), row[WORDS]];
        return element("tr", {}, element("td", { dir: "auto" }, button(row[INPUT], () => go(row[INPUT]))),
          ...cells.map((cell) => typeof cell === "number" ? element("td", { className: "number", textContent: numeral(cell) }) : element("td", { dir: "auto", textContent: cell ?? "–" })));
      }))));
    count.textContent = `${found.length} of ${rows.length}${answer.total > rows.length ? ` (the first of ${answer.total})` : ""}; ${Math.min(SHOWN, found.length)} shown. ${answer.note}`;
  }
  if (!rows.length) {
    container.replaceChildren(element("p", { className: "note", textContent: `No test sentences: ${answer.note}` }));
    return;
  }
  const filter = element("input", { type: "search", value: wanted.text, ariaLabel: "text to search" });
  filter.oninput = () => { wanted.text = filter.value; show(); };
  container.replaceChildren(element("div", { className: "bar" },
    element("label", {}, "Order ", choice(orders.map(([name, [label]]) => [name, label]), wanted.order, (value) => { wanted.order = value; show(); }, "order")),
    ...(phenomena.length ? [element("label", {}, "Phenomenon ", choice([["", "any"], ...phenomena.map((one) => [one, one])], wanted.phenomenon, (value) => { wanted.phenomenon = value; show(); }, "phenomenon"))] : []),
    element("label", {}, "Filter ", filter)), list, count);
  show();
}
