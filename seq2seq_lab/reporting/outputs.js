"use strict";
/* The outputs of two runs beside each other. */
const BATCH = 50; // outputs shown at once
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

/* A button that shows the attention for an input; nothing if the page does not have it. */
function attentionLink(input, runs) {
  if (!data.attention.some(({ title }) => title === input)) return [];
  const button = element("button", { type: "button", className: "link", textContent: "attention", ariaLabel: `attention for ${input}` });
  button.onclick = () => goToAttention(input, runs);
  return [" ", button];
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
  const isWrong = (i) => outputs[one][i] !== inputs[i][1];
  const found = inputs.map((_, i) => i).filter((i) => (!at("wrong").checked || isWrong(i)) &&
    [...inputs[i], outputs[one][i], outputs[other][i]].some((text) => text.toLowerCase().includes(words)));
  const gain = (i) => scores[one][i] - scores[other][i];
  const orders = { better: (i) => -gain(i), worse: gain, low: (i) => scores[one][i] }, order = orders[at("order").value];
  if (order) found.sort((i, j) => order(i) - order(j));
  const labels = ["input", "reference", data.runs[runs[one]], data.runs[runs[other]]];
  const rows = found.slice(0, batches * BATCH).map((i) => {
    const output = (run, rival) => [
      ...marked(outputs[run][i], at("mark").value === "other" ? outputs[rival][i] : inputs[i][1]),
      " ", element("bdi", { className: "score", textContent: `(${scores[run][i]})` })];
    const contents = [[inputs[i][0], ...attentionLink(inputs[i][0], [runs[one], runs[other]])], [inputs[i][1]], output(one, other), output(other, one)];
    return element("tr", {}, ...contents.map((content, column) => {
      const cell = element("td", { dir: "auto" }, ...content);
      cell.dataset.label = labels[column];
      return cell;
    }));
  });
  const head = element("tr", {}, ...labels.map((text) => element("th", { scope: "col" }, isolated(text))));
  at("texts").replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
  const cut = inputs.length < total ? ` (the first of ${total})` : "";
  const wrong = inputs.filter((_, i) => isWrong(i)).length;
  at("count").textContent = `${found.length} of ${inputs.length} examples${cut}; ${rows.length} shown. ${wrong} outputs of the first run ` +
    `differ from the reference. In parentheses: ${score}. ${note}`;
  at("more").hidden = rows.length === found.length;
}
