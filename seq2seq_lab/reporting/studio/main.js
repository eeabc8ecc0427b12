/* The page: its state, the questions that follow from it, and the views of the answers. */
import { ask, askPage, hasAnswer, readSaved, Refused, watch } from "./ask.js";
import { showDifference } from "./compare.js";
import { button, choice, cut, fileOf, keepFocus, numeral, scrolling, signed, table } from "./draw.js";
import { drawMap, NAMES } from "./map.js";
import { showPicker } from "./picker.js";
import { drawStep, hasPieces, scopeOf, TABS } from "./step.js";
import { drawTree, treeTable } from "./tree.js";
import { columnsOf, drawWords, outputWords, wordLinks, wordOf, wordsTable } from "./words.js";

const INCOMPLETE = "The address is not complete, or names what this page does not have.";
const KEPT = ["run", "other", "sentence", "search", "size", "prefix", "change"];
const versions = []; // the versions of the sentence, and the one that is shown
let now = -1, newest = 0, runs = [], live = true, traced = null, gold = [], step = 0, tab = "next", byWord = null, maps = {}, listed = "";

const shown = () => versions[now];
const isSized = (search) => ["beam", "sampling"].includes(search), sizeOf = ({ search, size }) => isSized(search) ? size : null;
const bodyOf = (version) => ({ run: version.run, sentence: version.sentence, search: version.search, size: sizeOf(version), prefix: version.prefix, change: version.change });

/* ---- versions: a new one, back and forth */

/* Show a new version, and return whether the question was answered. */
async function go(changes, label) {
  const version = { ...(shown() ?? { run: 0, other: null, search: "own", size: 5, prefix: [], change: null }), ...changes, label };
  if (version.other === version.run) version.other = null;
  return show(version, () => {
    versions.splice(now + 1);
    now = versions.push(version) - 1;
  });
}

async function show(version, accept) {
  const mine = ++newest;
  document.body.setAttribute("aria-busy", true);
  try {
    const answer = await ask("trace", bodyOf(version)), links = await goldLinks(version, answer);
    if (mine !== newest) return true;
    accept();
    traced = answer;
    gold = links;
    version.logProb = answer.outputs[0]?.log_prob ?? null;
    problem("");
    step = version.step = Math.min(version.step ?? step, Math.max(0, answer.steps.length - 1));
    keepFocus(draw);
    return true;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    problem(error.message);
    at("size").value = shown()?.size;
  } finally {
    if (mine === newest) document.body.removeAttribute("aria-busy");
  }
}

function problem(text) {
  at("problem").hidden = !text;
  at("problem").textContent = text;
  if (text) at("problem").scrollIntoView({ block: "nearest" });
}

/* The gold links between the tokens of the source and of the best output, if the run recorded this output with them. */
async function goldLinks({ run, sentence }, answer) {
  const body = { run, sentence }, output = answer.outputs[0];
  if (!output?.attention || !live && !hasAnswer("gold", body)) return [];
  const known = await ask("gold", body);
  return known?.tokens.every((text, i) => text === output.tokens[i]?.text) ? known.links : [];
}

function back(to) {
  if (versions[to]) show(versions[to], () => { now = to; });
}

const best = () => traced.outputs[0];
const idsBefore = (t) => best().tokens.slice(0, t).map((one) => one.id);
const forceAll = (prefix, text, step = prefix.length) => go({ prefix, step }, step ? `forced “${text}” at ${step}` : "nothing forced");
const force = (one) => forceAll([...idsBefore(step), ...(one.ids.length ? one.ids : [one.id])], one.word ?? one.text, step + 1);
const forceText = (text) => forceAll([...idsBefore(step), text], text);
const where = ({ scope }, t) => scope === "all" ? "at every step" : `${scope === "from" ? "from" : "at"} step ${t + 1}`;
const change = (given, what = `changed attention: ${given.kind}`) => go({ change: given, step }, `${what} ${where(given, step)}${shown().change ? ", instead of the last one" : ""}`);

function attend(column) {
  if (!live || !traced.search || traced.source.columns !== "tokens") return;
  const word = column - 1, last = traced.source.word_column_names.length - 1;
  if (word >= 0 && column < last) change({ kind: `word=${word}`, ...scopeOf(step) }, `all attention on “${traced.source.words[word]}”`);
}

/* ---- what is shown */

function draw() {
  const version = shown();
  at("run").value = version.run;
  at("other").value = version.other ?? "";
  for (const option of at("other").options) option.disabled = option.value === String(version.run);
  at("sentence").value = at("saved").value = version.sentence;
  at("search").value = version.search;
  at("size").value = version.size;
  at("size").disabled = !isSized(version.search);
  at("reads").textContent = runs[version.run].reads;
  for (const id of ["search", "size"]) at(id).parentNode.hidden = !runs[version.run].searches;
  at("search-part").hidden = !traced.tree.length;
  at("undo").disabled = now <= 0;
  at("redo").disabled = now >= versions.length - 1;
  summary();
  at("words-table").replaceChildren(wordsTable(traced));
  at("tree-table").replaceChildren(treeTable(traced));
  views();
  historyList();
  const pair = `${version.run} ${version.other}`;
  if (pair !== listed) examples();
  listed = pair;
  compare(version);
  if (!at("export").firstChild) exports();
  at("save-search").hidden = !traced.tree.length;
  at("save-attention").hidden = !best()?.attention;
  at("copy-command").hidden = runs[version.run].reads === "Image"; // the files of the images are temporary
  writeAddress(versions[1] ? "pushState" : "replaceState");
}

/* The sentences of the runs that are shown. */
function examples() {
  if (at("examples").open) showPicker(at("picker"), shown()?.run ?? 0, shown()?.other ?? null, (sentence) => go({ sentence, prefix: [], change: null, step: 0 }, `“${sentence}”`));
}

async function compare(version) {
  const map = await showDifference(at("comparison"), at("difference"), version, sizeOf(version), runs, columnsOf(traced.source));
  if (shown() === version && map) maps.difference = map;
}

function summary() {
  const output = best(), version = shown(), { changed } = traced;
  const facts = [runs[version.run].name, runs[version.run].facts, traced.search ? `search: ${traced.search.name}` : ""].filter(Boolean);
  at("facts").textContent = facts.join("; ");
  if (!output) {
    at("summary").textContent = "There is no output.";
    return;
  }
  at("summary").replaceChildren(isolated(output.text || "(empty)"), " ", element("span", { className: "score", textContent: `log p ${numeral(output.log_prob, 3)}${traced.search && output.score !== output.log_prob ? `, score of the search ${numeral(output.score, 3)}` : ""}${traced.limit ? `. ${traced.limit}` : ""}` }));
  const parts = [];
  if (changed) {
    const row = (name, text, [without, changedTo]) => [name, text, without, changedTo, signed(changedTo - without)];
    parts.push(changed.scope, scrolling("outputs before and after", table(["", "output", "log p without the change", "log p with it", "Δ"],
      [row("before", changed.before.text, changed.old_log_probs), row("now", output.text, changed.new_log_probs)])));
  }
  const back = [];
  if (version.other !== null) back.push(button(`compared with ${runs[version.other].name}: show the two runs`, () => at("comparison").scrollIntoView()));
  if (traced.prefix.length) parts.push("Forced: “", isolated(traced.prefix.map((one) => one.text).join(" ")), "”. ");
  const unknown = traced.source.unknown_words.flatMap((one, i) => [i ? "”, “" : "“", isolated(one.replaceAll("\t", "\\t"))]);
  if (unknown.length) parts.push("Not in the vocabulary: ", ...unknown, "”. ");
  if (live && changed) back.push(button("attention as before", () => go({ change: null }, "attention as before")));
  if (live && traced.prefix.length) back.push(button("force nothing", () => go({ prefix: [] }, "nothing forced")));
  if (back.length) parts.push(element("div", { className: "bar" }, ...back));
  at("versions").replaceChildren(...parts);
}

/* The words of the best output that the output before a change does not have. */
function marked() {
  return new Set(traced.changed?.words.filter((one) => !one.same && one.after !== null).map((one) => one.after) ?? []);
}

function views() {
  drawWords(at("words"), traced, { step, gold: wordLinks(traced, gold), marked: marked(), pick, attend });
  at("hint").textContent = traced.no_attention ?? `Choose an output word to see its step.${live && traced.search && traced.source.columns === "tokens" ? " Choose a source word to give it all attention in the steps of “Move attention”." : ""}${gold.length ? " Dotted, and outlined below: the gold alignment." : ""}`;
  drawTree(at("tree"), at("tree-note"), traced, step, live ? forceAll : null);
  steps();
  heatmaps();
}

function pick(index) {
  step = Math.max(0, Math.min(traced.steps.length - 1, index));
  shown().step = step; // undo returns to it
  keepFocus(views);
  writeAddress();
}

function steps() {
  const count = traced.steps.length, output = best();
  at("step-head").textContent = count ? `Step ${step + 1} of ${count}` : "Step";
  const context = idsBefore(step).length ? output.tokens.slice(0, step).map((one) => one.text).join(" ") : "the beginning";
  const arrow = (text, index, disabled, label) => {
    const made = button(text, () => pick(index), { disabled, ariaLabel: label });
    made.dataset.name = label;
    return made;
  };
  at("steps").replaceChildren(arrow("←", step - 1, step === 0, "previous step"), arrow("→", step + 1, step >= count - 1, "next step"),
    element("span", { className: "note" }, "after ", isolated(context)));
  const names = Object.keys(TABS).filter((name) => name === "next" || live && (traced.search || name === "contrast"));
  if (!names.includes(tab)) tab = "next";
  const tabs = names.map((name) => {
    const made = button(TABS[name], () => { tab = name; steps(); at("tabs").querySelector("[aria-selected=true]").focus(); writeAddress(); }, { role: "tab", id: `tab-${name}`, tabIndex: name === tab ? 0 : -1, ariaSelected: name === tab });
    made.setAttribute("aria-controls", "panel");
    made.onkeydown = (event) => {
      const next = names[names.indexOf(name) + ({ ArrowRight: 1, ArrowLeft: -1 }[event.key] ?? 0)];
      if (next && next !== name) {
        event.preventDefault();
        at(`tab-${next}`).click();
      }
    };
    return made;
  });
  at("tabs").replaceChildren(...tabs);
  at("panel").setAttribute("aria-labelledby", `tab-${tab}`);
  drawStep(at("panel"), tab, { traced, step, live, force, forceText, change, question: (name, more) => ask(name, { ...bodyOf(shown()), ...more }) });
}

function heatmaps() {
  const place = at("map"), output = best(), words = (byWord ?? hasPieces(traced)) && output?.word_attention?.length && traced.source.word_column_names.length;
  place.replaceChildren();
  delete maps.attention;
  at("attention").hidden = !output?.attention;
  if (!output?.attention) return;
  const rows = words ? outputWords(output).map((one) => one.text) : output.tokens.map((one) => one.text), z = words ? output.word_attention : output.attention;
  const mean = (column) => rows.map((_, i) => {
    const own = column.filter((_, t) => wordOf(output, t) === i);
    return own.reduce((sum, one) => sum + one, 0) / Math.max(1, own.length);
  });
  const margins = words ? Object.fromEntries(Object.entries(output.margins).map(([name, column]) => [name, mean(column)])) : output.margins;
  const starts = words ? outputWords(output).map((one) => one.step) : null;
  place.append(element("div", { className: "bar scale" }, ...(traced.source.word_column_names.length ? [choice([["words", "words"], ["tokens", "tokens"]], words ? "words" : "tokens", (value) => { byWord = value === "words"; heatmaps(); }, "rows and columns")] : []),
    element("span", { textContent: "0" }), element("i"), element("span", { textContent: Object.keys(margins).length ? `1. On the right: the sums on ${Object.keys(margins).map((one) => NAMES[one] ?? one).join(", ")}.` : "1" }), ...(live && traced.search && !words ? [element("span", { textContent: "drag a cell of the chosen row to change it" })] : [])));
  maps.attention = drawMap(place, { x: words ? traced.source.word_column_names : traced.source.column_names, y: rows.slice(0, z.length), z, links: words ? wordLinks(traced, gold) : gold, margins, row: words ? wordOf(output, step) : step, pointing: words,
    pick: (row) => pick(starts ? starts[row] : row), edit: live && traced.search && !words ? (weights) => change({ kind: "weights", weights, ...scopeOf(step) }) : null });
}

function historyList() {
  at("history").replaceChildren(...versions.map((version, index) => {
    const before = versions[index - 1], same = before && before.sentence === version.sentence && before.run === version.run && before.other === version.other && before.logProb !== null && version.logProb !== null;
    const made = button(`${cut(version.label.slice(0, 200), 600)}${same ? `, Δ log p ${signed(version.logProb - before.logProb)}` : ""}`, () => back(index));
    if (index === now) made.setAttribute("aria-current", true);
    return element("li", {}, made);
  }));
}

/* ---- the address, and files to take along */

/* Each version is an entry of the browser's history. */
function writeAddress(entry = "replaceState") {
  if (location.protocol === "about:") return; // in a notebook
  const state = new URLSearchParams({ step, tab });
  for (const name of KEPT) if (shown()[name] !== null && shown()[name]?.length !== 0) state.set(name, JSON.stringify(shown()[name]));
  shown().address = `#${state}`;
  if (location.hash !== shown().address) history[entry](null, "", shown().address);
}

/* What the address chooses; null if it is not complete, or names something that the page does not have. */
function readAddress() {
  const found = {};
  try {
    for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
      if (![...KEPT, "step", "tab"].includes(name)) return null;
      found[name] = name === "tab" ? value : JSON.parse(value);
    }
  } catch {
    return null;
  }
  const { run = 0, other = 0, sentence = "", step = 0, tab: chosen = tab } = found;
  if (!(run in runs && other in runs && typeof sentence === "string" && step >>> 0 === step && chosen in TABS)) return null;
  if (live) tab = chosen;
  return found;
}

/* The command that prints what the page shows. */
function command() {
  const { run, sentence, prefix, change, search, size } = shown(), text = JSON.stringify;
  const more = { search: (runs[run].searches?.[search] ?? []).map((one) => one.replace("{}", size)), ...(prefix.length && { prefix }), ...(change && { change }) };
  const code = `import json, seq2seq_lab; run = ${runs[run].code}; print(json.dumps(run.trace(${text(sentence)}, **json.loads(${text(text(more))})).as_json()))`;
  return `python -c '${code.replaceAll("'", "'\\''")}'`;
}

function exports() {
  const copied = (name, textOf) => button(name, async ({ target }) => {
    await navigator.clipboard.writeText(textOf());
    target.textContent = "copied";
  });
  const figure = (id) => () => fileOf(at(id).querySelector("svg[role=group]"));
  const rows = [["words", figure("words")], ["search", figure("tree")], ["attention", () => maps.attention.svg(best().text)]].map(([name, svgOf]) => {
    const bar = savingBar(`studio_${name}`, svgOf);
    bar.id = `save-${name}`;
    bar.prepend(element("span", { textContent: `${name}:` }));
    return bar;
  });
  const asCommand = copied("copy as command", command);
  asCommand.id = "copy-command";
  const several = element("textarea", { ariaLabel: "sentences, one per line", dir: "auto" }), save = button("save as one page", async () => {
    try {
      const { run, other, search } = shown(), sentences = several.value.split("\n").filter((one) => one.trim());
      download(await askPage("export", { run, other, search, size: sizeOf(shown()), sentences }), "studio.html");
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      problem(error.message);
    }
  });
  const known = () => [...new Set(versions.map((one) => one.sentence))].join("\n");
  const part = element("details", { className: "live" }, element("summary", { textContent: "a page without a server" }), several, element("div", { className: "bar" }, save, element("span", { className: "note", textContent: "at most 20 lines" })));
  part.ontoggle = () => { if (!several.value) several.value = known(); };
  at("export").replaceChildren(element("div", { className: "bar" }, copied("copy the address", () => location.href), asCommand), ...rows, part);
}

/* ---- start */

function controls() {
  const name = (run, index) => element("option", { value: index, textContent: run.name });
  at("run").replaceChildren(...runs.map(name));
  at("other").replaceChildren(element("option", { value: "", textContent: "no other run" }), ...runs.map(name));
  at("others").hidden = runs.length < 2;
  const fresh = (changes) => ({ sentence: at("sentence").value, prefix: [], change: null, step: 0, ...changes });
  const size = () => Number(at("size").value) || (shown()?.size ?? 5); // an empty box changes nothing
  const typed = (changes) => at("sentence").value === shown()?.sentence ? changes : fresh(changes);
  at("ask").onsubmit = (event) => {
    event.preventDefault();
    const sentence = at("sentence").value;
    go(fresh({ search: at("search").value, size: size() }), `“${sentence}”`);
  };
  at("run").onchange = async () => {
    const run = Number(at("run").value), { name, first, searches } = runs[run], changes = fresh({ run, ...(!searches && { search: "own" }) });
    await go(changes, `run ${name}`) || await go({ ...changes, ...first }, `run ${name}`);
  };
  at("other").onchange = () => go(typed({ other: at("other").value === "" ? null : Number(at("other").value) }), at("other").value === "" ? "no other run" : `compared with ${runs[at("other").value].name}`);
  at("search").onchange = () => go(typed({ search: at("search").value, prefix: [] }), `search: ${at("search").value}`);
  at("size").onchange = () => go(typed({ size: size() }), `size ${size()}`);
  at("undo").onclick = () => back(now - 1);
  at("redo").onclick = () => back(now + 1);
  at("examples").ontoggle = examples;
  at("skip").onclick = (event) => {
    event.preventDefault(); // the fragment is the state
    at("output-head").focus();
  };
  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.target.matches("textarea, input:not([type=range])") && event.target.value) return;
    const move = { z: event.shiftKey ? 1 : -1, y: 1 }[event.key.toLowerCase()];
    if (move) {
      event.preventDefault();
      back(now + move);
    }
  });
  themed = () => { for (const map of Object.values(maps)) map.paint(); };
  let width = innerWidth;
  addEventListener("resize", () => {
    if (traced && innerWidth !== width) keepFocus(views);
    width = innerWidth;
  });
}

async function start() {
  const saved = await readSaved();
  live = saved === null;
  document.body.classList.toggle("offline", !live);
  try {
    runs = live ? await ask("runs", {}) : saved.runs;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    problem(error.message);
    return;
  }
  controls();
  watch();
  const given = readAddress(), own = runs[given?.run ?? 0].first, first = { ...own, ...saved?.first, ...given };
  if (!live) {
    at("saved").hidden = false;
    at("sentence").hidden = true;
    at("saved").replaceChildren(...saved.sentences.map((text) => element("option", { value: text, textContent: text })));
    at("saved").onchange = () => go({ sentence: at("saved").value, step: 0 }, `“${at("saved").value}”`);
  }
  const has = live || hasAnswer("trace", bodyOf({ prefix: [], change: null, ...first }));
  if (!has) Object.assign(first, saved.first, { prefix: [], change: null });
  if ((first.sentence || runs[first.run ?? 0].reads === "Beginning") && !await go(first, `“${first.sentence}”`)) {
    const { textContent } = at("problem");
    await go(own, `“${own.sentence}”`);
    problem(textContent);
  }
  if (!given || !has) problem(INCOMPLETE);
  addEventListener("hashchange", () => {
    const found = readAddress(), index = versions.findLastIndex((one) => one.address === location.hash);
    if (!found) problem(INCOMPLETE);
    else if (index >= 0) back(index);
    else if (found.sentence) go({ other: null, prefix: [], change: null, ...found }, "address");
  });
}

start();
