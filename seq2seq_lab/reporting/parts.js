"use strict";
/* Parts of all pages: elements, and figures that can be copied and saved. */
const at = (id) => document.getElementById(id);

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const measuring = document.createElement("canvas").getContext("2d");
function widthOf(text, font = "13px system-ui, sans-serif") {
  measuring.font = font;
  return measuring.measureText(text).width;
}

/* A text that keeps its direction apart from the text around it. */
function isolated(text) { return element("bdi", { textContent: text }); }

function download(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

/* The picture of an SVG text as a PNG file with two pixels for each of its own. */
async function pngOf(svg) {
  const image = new Image();
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(svg);
  await image.decode();
  const canvas = element("canvas", { width: 2 * image.width, height: 2 * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

/* Buttons that copy and save a figure. `svgOf` returns its SVG text, black on white, or a promise of it. */
function savingBar(name, svgOf) {
  const button = (textContent, onclick) => element("button", { type: "button", textContent, onclick });
  const copy = button("copy as SVG", async () => {
    await navigator.clipboard.writeText(await svgOf());
    copy.textContent = "copied";
  });
  return element("div", { className: "bar saving" }, copy,
    button("save as SVG", async () => download(new Blob([await svgOf()], { type: "image/svg+xml" }), `${name}.svg`)),
    button("save as PNG", async () => download(await pngOf(await svgOf()), `${name}.png`)));
}
