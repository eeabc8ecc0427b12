/* Two runs for one sentence: their outputs side by side, where they part, and how their attention differs. */
import { ask, Refused } from "./ask.js";
import { isRtl, numeral, scrolling, share, table } from "./draw.js";
import { diverging, drawMap } from "./map.js";

const END = "(nothing)";

/* Words of an output; those that the other output does not have are marked. */
function sentence(pairs, side, words) {
  const line = element("span", { dir: isRtl(words) ? "rtl" : "ltr" });
  for (const pair of pairs) if (pair[side] !== null) line.append(element(pair.same ? "span" : "mark", { textContent: words[pair[side]] }), " ");
  return line;
}

/* Show how two runs differ for the sentence of a version; `size`: that of the search. Return the map of the difference. */
export async function showDifference(section, place, version, size, runs, columns) {
  section.hidden = version.other === null;
  if (section.hidden) return null;
  let answer;
  try {
    answer = await ask("difference", { run: version.run, other: version.other, sentence: version.sentence, search: version.search, size });
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    place.replaceChildren(element("p", { className: "problem", textContent: error.message }));
    return null;
  }
  const names = [runs[version.run].name, runs[version.other].name], { a, b, words, parting, log_probs: scores } = answer;
  const percent = (value) => value === null ? "–" : `${share(value)} (${numeral(value)})`;
  const parts = [table(["run", "output", ...names.map((name) => `log p by ${name}`)], [
    [names[0], sentence(words, "before", a.words), scores[0][0], scores[1][0]], [names[1], sentence(words, "after", b.words), scores[0][1], scores[1][1]]])];
  if (parting) parts.push(element("p", {}, "They part at word ", String(parting.word + 1), "; the probability that each run gives to both words:"), table(["run", ...parting.words], names.map((name, i) => [name, ...parting.log_probs[i].map(percent)])));
  else parts.push(element("p", { textContent: `Both outputs have the same words${a.words.length === b.words.length ? "" : " up to a length limit"}.` }));
  place.replaceChildren(...parts.map((one, i) => one.tagName === "TABLE" ? scrolling(i ? "probabilities where the runs part" : "outputs of the two runs", one) : one));
  if (version.prefix.length || version.change) place.append(element("p", { className: "note", textContent: "Both are without forced words and changes." }));
  if (!answer.attention) {
    place.append(element("p", { className: "note", textContent: answer.no_attention }));
    return null;
  }
  const rows = words.map(({ before, after, same }) => same ? a.words[before] : `${before === null ? END : a.words[before]} / ${after === null ? END : b.words[after]}`);
  place.append(element("p", { className: "bar scale" }, element("span", {}, isolated(names[0]), " attends more"), element("i", { className: "two-sided" }), element("span", {}, isolated(names[1]), " attends more")));
  return drawMap(place, { x: columns, y: rows, z: answer.attention.map((row) => row.map((one) => one ?? 0)), color: diverging, name: "difference" });
}
