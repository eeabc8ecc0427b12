"use strict";
/* The theme of the page: that of the system, until the reader chooses one. `themed` is called after each change. */
let themed = () => {};

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  themed();
}

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
prefersDark.onchange = (event) => setTheme(event.matches ? "dark" : "light");
document.getElementById("theme").onclick = () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
setTheme(prefersDark.matches ? "dark" : "light");
