"use strict";
/* The filter of the table of runs.
 *
 *   any = all ("|" all)*        all = one ("&"? one)*        one = "!" one | "(" any ")" | NAME OPERATOR VALUE | "~"? TEXT
 *
 * A name is the label of a column, or a part of it that no other column has. TEXT is in one of the cells. */
const OPERATORS = ["!=", "<=", ">=", "=", "<", ">", "~"];
const TOKEN = /\s*(?:"([^"]*)"|(!=|<=|>=|[=<>~&|()!])|([^\s"&|()<>=!~]+))/y;
const COMPARISONS = {
  "<": (one, other) => one < other, "<=": (one, other) => one <= other,
  ">": (one, other) => one > other, ">=": (one, other) => one >= other,
};

class FilterError extends Error {}

function tokensOf(text) {
  const tokens = [], end = text.trimEnd().length;
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < end) {
    const start = TOKEN.lastIndex, found = TOKEN.exec(text);
    if (!found) throw new FilterError(`A quotation mark is not closed: ${text.slice(start).trim()}`);
    tokens.push(found[2] ? { operator: found[2] } : { text: found[1] ?? found[3] });
  }
  return tokens;
}

/* A number, or the share that a percentage stands for; NaN for other texts. */
function numberOf(text) {
  const bare = text.replaceAll(",", "");
  return bare === "" ? NaN : bare.endsWith("%") ? Number(bare.slice(0, -1)) / 100 : Number(bare);
}

function columnOf(name, columns) {
  const plain = (text) => text.toLowerCase().replaceAll("_", " "), wanted = plain(name);
  const rules = [(label) => label === wanted, (label) => label.endsWith("." + wanted), (label) => label.includes(wanted)];
  for (const rule of rules) {
    const found = columns.filter((one) => rule(plain(one.label)));
    if (found.length === 1) return found[0];
    if (found.length) throw new FilterError(`${name} is a part of several columns: ${found.map((one) => one.label).join(", ")}`);
  }
  const main = columns.filter((one) => one.shown === 0), more = columns.length - main.length;
  throw new FilterError(`${name} is not a column. Columns: ${main.map((one) => one.label).join(", ")}, and ${more} that "Columns: all" shows`);
}

function comparison(column, operator, wanted) {
  const cell = (run) => column.texts[run].toLowerCase(), text = wanted.toLowerCase(), number = numberOf(wanted);
  const value = (run) => typeof column.values[run] === "number" ? column.values[run] : numberOf(column.texts[run]);
  const equal = (run) => cell(run) === text || value(run) === number;
  if (operator === "~") return (run) => cell(run).includes(text);
  if (operator === "=") return equal;
  if (operator === "!=") return (run) => !equal(run);
  if (Number.isNaN(number)) throw new FilterError(`${column.label}${operator}${wanted}: ${wanted} is not a number`);
  return (run) => COMPARISONS[operator](value(run), number);
}

/* Return a function of the number of a run that says whether a filter keeps it; an empty filter keeps all. */
function parseFilter(text, columns) {
  const tokens = tokensOf(text);
  let next = 0;
  const is = (...operators) => next < tokens.length && operators.includes(tokens[next].operator);
  const word = (after) => {
    if (tokens[next]?.text === undefined) throw new FilterError(`A name or a value is missing after ${after}`);
    return tokens[next++].text;
  };
  function one() {
    if (is("!")) {
      next++;
      const inner = one();
      return (run) => !inner(run);
    }
    if (is("(")) {
      next++;
      const inner = any();
      if (!is(")")) throw new FilterError("A closing parenthesis is missing");
      next++;
      return inner;
    }
    const before = next ? tokens[next - 1].operator ?? tokens[next - 1].text : "the start";
    const every = is("~");
    next += every;
    const name = word(every ? "~" : before);
    if (!every && is(...OPERATORS)) {
      const operator = tokens[next++].operator;
      return comparison(columnOf(name, columns), operator, word(operator));
    }
    return (run) => columns.some((column) => column.texts[run].toLowerCase().includes(name.toLowerCase()));
  }
  function all() {
    const parts = [one()];
    while (next < tokens.length && !is("|", ")")) {
      next += is("&");
      parts.push(one());
    }
    return (run) => parts.every((part) => part(run));
  }
  function any() {
    const parts = [all()];
    while (is("|")) {
      next++;
      parts.push(all());
    }
    return (run) => parts.some((part) => part(run));
  }
  if (!tokens.length) return () => true;
  const found = any();
  if (next < tokens.length) throw new FilterError("A parenthesis is closed that is not open");
  return found;
}
