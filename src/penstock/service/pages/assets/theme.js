// Before anything is drawn: the theme somebody chose, else that of the system.
"use strict";
(() => {
  const kept = localStorage.getItem("penstock-theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
