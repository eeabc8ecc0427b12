"use strict";
/* The figure as a file of its own: black on white. */
function svgText(figure) {
  const copy = figure.querySelector("svg").cloneNode(true);
  copy.setAttribute("style", "color: #000; background: #fff");
  return new XMLSerializer().serializeToString(copy);
}

for (const figure of document.querySelectorAll("figure")) {
  figure.append(element("figcaption", {}, savingBar(figure.dataset.name, () => svgText(figure))));
}
