// Before the first paint, so that nothing flashes: the theme chosen here, or the system's.
(function () {
  let chosen = null;
  try {
    chosen = localStorage.getItem("ir3de-theme");
  } catch {
    // storage may be off
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
