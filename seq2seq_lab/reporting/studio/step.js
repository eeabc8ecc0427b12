/* One step of the output: the next words, a row of attention to change, a contrast of two words, and similar states. */
import { Refused } from "./ask.js";
import { button, choice, head, isRtl, numeral, roving, share, signed, table } from "./draw.js";
import { diverging, moved, textOn } from "./map.js";

const KINDS = [["uniform", "equal weights"], ["only_max", "all weight on the largest"], ["zero_out_max", "without the largest"],
  ["permute", "in another order"], ["previous", "those of the step before"], ["keep_max_uniform_others", "the largest, the others equal"], ["zero_out", "no weight at all"]];
const SCOPES = [["step", "this step only"], ["from", "from here on"], ["all", "every step"]];
const METHODS = { grad_x_input: ["gradient × input", "by the gradient of each embedding, times the embedding"], integrated_gradients: ["integrated gradients", "by this gradient, averaged from embeddings of 0"],
  occlusion: ["without the word", "by the change if the embedding is 0"], value_zeroing: ["value zeroing", "by the change if attention reads 0"], attention: ["attention", ""] };
const chosen = { kind: "uniform", scope: "step", method: "occlusion", against: null, state: "decoder", open: false };
export const TABS = { next: "Next words", attention: "Move attention", contrast: "Why this word?", neighbors: "Similar states" };

const pieces = (one) => one.pieces.length > 1 ? one.pieces.join(" · ") : "";
const wordIn = (one) => one.word ?? one.text;

/* The most probable words of a step, each with a bar; after a change, with the bar before it. */
function nextWords(panel, { traced, step, force, forceText, live: hasServer, question }) {
  const live = hasServer && traced.search !== null;
  const now = traced.steps[step], before = traced.changed?.before_steps[step];
  const earlier = new Map(before?.top.map((one) => [one.id, one]) ?? []), later = new Map(now.top.map((one) => [one.id, one]));
  const all = [...now.top, ...[...earlier.values()].filter((one) => !later.has(one.id))];
  const meter = (one, className, name) => element("div", { className: `meter ${className}`, title: one ? `${name}${share(one.log_prob)}` : "" });
  const rows = all.map((one) => {
    const name = live ? button(wordIn(one), () => force(one), { title: pieces(one) }) : element("span", { textContent: wordIn(one) });
    if (one.id === now.token) name.className = "forced-word";
    const bars = element("div"), cells = [];
    for (const [found, className, label] of before ? [[earlier.get(one.id), "before", "before: "], [later.get(one.id), "", "now: "]] : [[one, "", ""]]) {
      const bar = meter(found, className, label);
      bar.style.width = `${found ? 100 * Math.exp(found.log_prob) : 0}%`;
      bars.append(bar);
      cells.push(element("td", { className: "number", textContent: found ? share(found.log_prob) : "not in the top 10" }));
    }
    return element("tr", {}, element("td", { dir: "auto" }, name), ...cells, element("td", {}, bars));
  });
  const heads = ["word", ...(before ? ["before", "now"] : ["p"]), ""].map(head);
  const input = element("input", { ariaLabel: "a word to force", placeholder: "another word", dir: "auto", autocomplete: "off" });
  const form = element("form", { className: "bar" }, input, element("button", { textContent: "force it" }));
  form.onsubmit = (event) => {
    event.preventDefault();
    if (input.value.trim()) forceText(input.value.trim());
  };
  panel.append(element("table", { className: "bars" }, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows)), live ? form : "",
    element("p", { className: "note", textContent: `Entropy ${now.entropy.toFixed(2)} nats.${live ? " Choose a word to force it here; the search continues after it." : ""}` }));
  if (!live) return;
  const buttons = rows.map((row) => row.querySelector("button"));
  roving("next", buttons, (index, key) => ({ ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: buttons.length - 1 })[key]);
  if (hasPieces(traced)) completeWords(all, buttons, force, () => question("alternatives", { step }));
}

/* Whether a word of the input or of an output has several tokens. */
export function hasPieces({ source, outputs }) {
  return [source.tokens, ...outputs.map((one) => one.tokens)].some((tokens) => tokens.some((one, i) => i && one.word !== null && one.word === tokens[i - 1].word && one.kind === "word" && tokens[i - 1].kind === "word"));
}

/* Write whole words in place of their first pieces; they force all pieces. */
async function completeWords(all, buttons, force, question) {
  let found;
  try {
    found = await question();
  } catch (error) {
    if (error instanceof Refused) return; // the pieces stay
    throw error;
  }
  for (const one of found) {
    const index = all.findIndex((other) => other.id === one.id);
    if (index >= 0 && one.word !== null) Object.assign(buttons[index], { textContent: one.word, title: one.pieces.join(" · "), onclick: () => force(one) });
  }
}

/* The row of a step with a slider for each column. */
function editor(panel, { traced, step, change }) {
  const weights = traced.outputs[0].attention?.[step], names = traced.source.column_names;
  if (!weights) {
    panel.append(element("p", { textContent: traced.no_attention ?? "This step has no attention weights." }));
    return;
  }
  const scope = choice(SCOPES, chosen.scope, (value) => { chosen.scope = value; }, "which steps");
  const apply = (more) => change({ ...more, step: chosen.scope === "all" ? null : step, scope: chosen.scope });
  const kind = choice(KINDS, chosen.kind, (value) => { chosen.kind = value; }, "kind of change");
  const rows = weights.map((weight, column) => {
    const slider = element("input", { type: "range", min: 0, max: 1, step: .01, value: weight, ariaLabel: `weight on ${names[column]}` }), value = element("span", { textContent: weight.toFixed(2) });
    slider.oninput = () => { value.textContent = Number(slider.value).toFixed(2); };
    slider.onchange = () => apply({ kind: "weights", weights: moved(weights, column, Number(slider.value)) });
    return element("tr", {}, element("td", {}, isolated(names[column])), element("td", {}, slider), element("td", { className: "number" }, value),
      element("td", {}, button("all weight", () => apply({ kind: "weights", weights: weights.map((_, i) => Number(i === column)) }), { ariaLabel: `all weight on ${names[column]}` })));
  });
  panel.append(element("div", { className: "bar" }, element("label", {}, "Change ", scope)),
    element("div", { className: "bar" }, kind, button("apply", () => apply({ kind: chosen.kind }))),
    element("div", { className: "limited" }, element("table", { className: "rows" }, element("tbody", {}, ...rows))),
    element("p", { className: "note", textContent: "The other weights change in proportion. A click on a source word gives it all weight." }));
}

export function scopeOf(step) { return { step: chosen.scope === "all" ? null : step, scope: chosen.scope }; }

/* Run a question and show its answer in an element. */
async function fill(place, question, show) {
  place.replaceChildren(element("p", { className: "note", textContent: "computing …" }));
  try {
    const answer = await question();
    place.replaceChildren(...show(answer));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    place.replaceChildren(element("p", { className: "problem", textContent: error.message }));
  }
}

/* What favors the word of a step over another one. */
function contrast(panel, { traced, step, question }) {
  const now = traced.steps[step], others = now.top.filter((one) => one.id !== now.token), place = element("div");
  const own = now.top.find((one) => one.id === now.token)?.text ?? traced.outputs[0].tokens[step].text;
  if (!others.some((one) => one.id === chosen.against)) chosen.against = others[0].id;
  const show = () => fill(place, () => question("contrast", { step, against: chosen.against, method: chosen.method }), ({ words, scores }) => {
    const most = Math.max(1e-9, ...scores.map(Math.abs)), other = others.find((one) => one.id === chosen.against);
    const spans = words.map((text, i) => {
      const made = element("span", { className: "shade", textContent: text, title: signed(scores[i]) });
      const color = made.style.background = diverging(scores[i] / most);
      made.style.color = textOn(color);
      return made;
    });
    const details = element("details", { open: chosen.open, ontoggle: () => { chosen.open = details.open; } }, element("summary", { textContent: "as a table" }), table(["word", "score"], words.map((word, i) => [word, scores[i]])));
    return [element("p", { dir: isRtl(words) ? "rtl" : "ltr" }, ...spans.flatMap((one) => [one, " "])),
      chosen.method === "attention" ? element("p", { className: "note", textContent: "The weights of this step favor neither word." })
        : element("p", { className: "note" }, "Orange favors ", isolated(own), ", blue favors ", isolated(other.text), `, ${METHODS[chosen.method][1]}. Methods often disagree. log p differs by `, numeral(traced.outputs[0].log_probs[step] - other.log_prob), "."),
      details];
  });
  const select = (options, name, label) => choice(options, chosen[name], (value) => { chosen[name] = name === "against" ? Number(value) : value; show(); }, label);
  panel.append(element("div", { className: "bar" }, element("label", {}, isolated(own), " and not ", select(others.map((one) => [one.id, wordIn(one)]), "against", "the other word")),
    element("label", {}, "by ", select(Object.entries(METHODS).map(([name, [label]]) => [name, label]), "method", "method"))), place);
  show();
}

/* The states of the training data nearest to a state of a step; for the encoder, to that of the source word attended to most. */
function neighbors(panel, { traced, step, question }) {
  const place = element("div"), states = [["decoder", "state of the decoder"], ["context", "context of attention"], ["encoder", "encoder output of the word with most attention"]];
  const weights = traced.outputs[0].attention?.[step], position = () => chosen.state === "encoder" && weights ? weights.indexOf(Math.max(...weights)) : step;
  const show = () => fill(place, () => question("neighbors", { step: position(), state: chosen.state, count: 10 }), (answer) => [
    element("p", {}, `${Math.round(100 * answer.same_next)}% of the ${answer.neighbors.length} nearest states also continue with `, isolated(answer.next), `. ${answer.limited || `${answer.states.toLocaleString("en")} states were compared.`}`),
    element("div", { className: "limited" }, table(["cosine", "after", "next", "sentence pair"], answer.neighbors.map((one) =>
      [one.similarity, one.word, one.same_next ? element("strong", { textContent: one.next }) : one.next, `${one.source} → ${one.target}`])))]);
  panel.append(element("div", { className: "bar" }, choice(states.slice(0, weights ? 3 : 1), chosen.state, (value) => { chosen.state = value; }, "state"), button("find similar states", show)), place);
  place.append(element("p", { className: "note", textContent: "The first search can take minutes." }));
}

/* Show a tab of a step in an element. */
export function drawStep(panel, tab, context) {
  panel.replaceChildren();
  if (!context.traced.steps[context.step]) {
    panel.append(element("p", { className: "note", textContent: "This task has no steps." }));
    return;
  }
  ({ next: nextWords, attention: editor, contrast, neighbors })[tab](panel, context);
}
