"use strict";
/* The attention of an example over the training: one slider for each list of frames in the page. */
for (const source of document.querySelectorAll("script.frames")) {
  const { title, frames } = JSON.parse(source.textContent), last = frames.length - 1;
  const slider = element("input", { type: "range", min: 0, max: last, value: last, step: 1 });
  const note = element("output", { className: "note" }), container = element("div");
  const show = () => {
    const frame = frames[slider.value];
    slider.ariaValueText = note.textContent = frame.note;
    container.replaceChildren(...heatmap(frame), rowTable(frame), savingBar(`attention_step_${frame.step}`, () => heatmapSvg(frame, frame.note)));
  };
  slider.oninput = show;
  source.replaceWith(element("h3", {}, isolated(title)), element("div", { className: "bar" }, element("label", {}, "Step ", slider)), note, container);
  show();
}
