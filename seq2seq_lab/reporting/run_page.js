"use strict";
/* The figure as a file of its own: black on white. */
function svgText(figure) {
  const copy = figure.querySelector("svg").cloneNode(true);
  copy.setAttribute("style", "color: #000; background: #fff");
  return new XMLSerializer().serializeToString(copy);
}

function button(text, onclick) {
  return Object.assign(document.createElement("button"), { type: "button", textContent: text, onclick });
}

for (const figure of document.querySelectorAll("figure")) {
  const bar = Object.assign(document.createElement("figcaption"), { className: "bar" });
  const copy = button("copy as SVG", async () => {
    await navigator.clipboard.writeText(svgText(figure));
    copy.textContent = "copied";
  });
  const save = button("save as SVG", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([svgText(figure)], { type: "image/svg+xml" }));
    link.download = `${figure.dataset.name}.svg`;
    link.click();
    URL.revokeObjectURL(link.href);
  });
  bar.append(copy, save);
  figure.append(bar);
}
