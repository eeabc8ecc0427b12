"use strict";
/* The view in the address: #section=…&filter=…, with the controls that the reader changed. */
const CONTROLS = ["filter", "columns", "diff0", "diff1", "metric", "single", "grouping", "example", "map0", "map1", "step", "set",
  "left", "right", "words", "order", "mark", "wrong"];
const unchanged = {}; // the values of the controls at the start
let section = "";

const controls = () => CONTROLS.filter((id) => at(id)); // a section without data has none

function valueOf(control) {
  if (control.type === "checkbox") return control.checked ? "on" : "off";
  return control.options ? control.options[control.selectedIndex]?.text ?? "" : control.value;
}

/* Set a control as if the reader had, and return whether it has this value now. */
function setControl(control, value) {
  if (valueOf(control) === value) return true;
  if (control.type === "checkbox") control.checked = value === "on";
  else if (control.options) {
    const index = [...control.options].findIndex((option) => option.text === value);
    if (index < 0) return false;
    control.selectedIndex = index;
  } else control.value = value;
  (control.onchange ?? control.oninput)?.call(control);
  return true;
}

function writeView() {
  const state = new URLSearchParams(), { column, down } = sorting;
  if (section) state.set("section", section);
  for (const id of controls()) if (valueOf(at(id)) !== unchanged[id]) state.set(id, valueOf(at(id)));
  if (column !== null) state.set("sort", (down ? "-" : "") + data.columns[column].label);
  for (const index of hidden) state.append("hide", data.groups[index].label);
  const text = state.toString();
  if (text !== location.hash.slice(1)) history.replaceState(null, "", text ? "#" + text : location.pathname + location.search);
}

function readView() {
  const text = location.hash.slice(1);
  if (text && !text.includes("=")) { // a link to a section keeps the view
    section = text;
    writeView();
    return;
  }
  const state = new URLSearchParams(text), unknown = [];
  section = state.get("section") ?? "";
  const sort = state.get("sort"), label = sort?.replace(/^-/, "");
  sorting.column = sort === null ? null : data.columns.findIndex((one) => one.label === label);
  sorting.down = sort?.startsWith("-") ?? true;
  if (sorting.column === -1) {
    unknown.push(`sort=${label}`);
    sorting.column = null;
  }
  hidden.clear();
  for (const name of state.getAll("hide")) {
    const index = data.groups.findIndex((group) => group.label === name);
    index < 0 ? unknown.push(`hide=${name}`) : hidden.add(index);
  }
  for (const id of controls()) {
    const value = state.get(id) ?? unchanged[id];
    if (!setControl(at(id), value)) unknown.push(`${id}=${value}`);
  }
  showLegend();
  showRuns();
  at("view").hidden = !unknown.length;
  at("view").textContent = `This page does not have all that its address names: ${unknown.join("; ")}`;
  at(section)?.scrollIntoView();
}

function keepView() {
  for (const id of controls()) unchanged[id] = valueOf(at(id));
  readView();
  for (const event of ["change", "input", "click"]) document.addEventListener(event, writeView);
  addEventListener("hashchange", readView);
}
