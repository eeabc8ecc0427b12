/* What several views use: tables, numbers, directions, and the word that is pointed at. */
export function head(textContent) { return textContent ? element("th", { scope: "col", textContent }) : element("td"); }

/* A part that scrolls sideways, which the keyboard can reach. */
export function scrolling(name, ...children) { return element("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: name }, ...children); }

export function table(heads, rows, className = "") {
  const cell = (content) => {
    const made = element("td", { className: typeof content === "number" ? "number" : "" });
    made.append(content instanceof Node ? content : isolated(typeof content === "number" ? numeral(content) : content ?? ""));
    return made;
  };
  return element("table", { className },
    element("thead", {}, element("tr", {}, ...heads.map(head))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map(cell)))));
}

export function numeral(value, digits = 2) { return (Number.isInteger(value) ? String(value) : value.toFixed(digits)).replace(/^-(?=0[.0]*$)/, "").replace("-", "−"); }
export function share(logProb) {
  const p = Math.exp(logProb);
  return p >= 0.0995 ? `${(100 * p).toFixed(0)}%` : p >= 0.001 ? `${(100 * p).toFixed(1)}%` : p >= 1e-6 ? `${Number((100 * p).toPrecision(1))}%` : "<0.0001%";
}
export function signed(value) { return (value > -.005 ? "+" : "−") + Math.abs(value).toFixed(2); }
/* Whether most words are written from right to left. */
export function isRtl(words) {
  const letters = words.filter((one) => one[0] !== "<").flatMap((one) => one.match(/\p{L}/u) ?? []);
  return letters.filter((one) => /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(one)).length > letters.length / 2;
}
export function button(textContent, onclick, more = {}) { return element("button", { type: "button", textContent, onclick, ...more }); }
export function choice(options, value, onchange, label) {
  const made = element("select", { ariaLabel: label }, ...options.map(([value, text]) => element("option", { value, textContent: text })));
  made.value = value;
  made.onchange = () => onchange(made.value);
  return made;
}

export function cut(text, width) {
  if (widthOf(text) <= width) return text;
  const letters = [...text];
  while (letters.length > 1 && widthOf(letters.join("") + "…") > width) letters.pop();
  return letters.join("") + "…";
}

/* The word that is pointed at, in all views: "source" and a column, or "output" and a word; null for none. */
const watchers = [];
export function onPoint(watcher) { watchers.push(watcher); }
export function point(side, index) { for (const watcher of watchers) watcher(side, index); }

/* Draw again, and keep the focus on the element with the same name or label; if it is gone, on the output. */
export function keepFocus(draw) {
  const active = document.activeElement, name = active?.dataset?.name, label = active?.getAttribute?.("aria-label");
  draw();
  if (!active || active === document.body || active.isConnected) return;
  const again = document.querySelector(name ? `[data-name="${CSS.escape(name)}"]` : label ? `[aria-label="${CSS.escape(label)}"]` : "none") ?? at("output-head");
  if (name) for (const one of again.parentNode.querySelectorAll('[data-name][tabindex="0"]')) one.setAttribute("tabindex", -1);
  if (again.getAttribute("tabindex") === "-1" && again.id !== "output-head") again.setAttribute("tabindex", 0);
  again.focus({ preventScroll: true });
}

/* Keys that move the focus among elements of which one can be reached with Tab. */
export function roving(name, elements, moves, first = 0) {
  elements.forEach((one, index) => {
    one.dataset.name = `${name} ${index}`;
    one.setAttribute("tabindex", index === first ? 0 : -1);
    one.addEventListener("keydown", (event) => {
      const next = moves(index, event.key);
      if (next === undefined || !elements[next]) return;
      event.preventDefault();
      elements.forEach((other, i) => other.setAttribute("tabindex", i === next ? 0 : -1));
      elements[next].focus();
    });
  });
}
export function line(count, rtl = false) {
  const step = rtl ? -1 : 1;
  return (index, key) => ({ ArrowRight: index + step, ArrowLeft: index - step, Home: 0, End: count - 1 })[key];
}

/* An SVG element as a file of its own, in the light theme. */
export function fileOf(figure) {
  const theme = document.documentElement.dataset.theme;
  setTheme("light");
  const copy = figure.cloneNode(true), own = [figure, ...figure.querySelectorAll("*")], copies = [copy, ...copy.querySelectorAll("*")];
  own.forEach((one, index) => {
    const style = getComputedStyle(one);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family", "font-weight", "text-anchor"])
      copies[index].setAttribute(name, style.getPropertyValue(name));
    for (const name of ["tabindex", "class", "role"]) copies[index].removeAttribute(name);
  });
  copy.style.background = "#fff";
  setTheme(theme);
  return new XMLSerializer().serializeToString(copy);
}
