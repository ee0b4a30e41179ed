// Reloads the page of a run in progress every 30 seconds, where the reader asks for it, and tells how old the page is.
(() => {
  const part = document.getElementById("renewal"), box = document.getElementById("reload");
  const written = Number(part.dataset.written), loaded = Date.now();
  const name = "mvcl " + location.pathname;
  const kept = (store, value) => {
    try {
      if (value !== undefined) window[store].setItem(name, value);
      return window[store].getItem(name);
    } catch {
      return null; // a browser may keep nothing for files
    }
  };
  const label = (element) => element.id || element.getAttribute("aria-label") || element.textContent;
  const focusable = () => [...document.querySelectorAll("a, button, input, summary, [tabindex]")];
  const folds = () => [...document.querySelectorAll("details")];

  part.hidden = false;
  box.checked = kept("localStorage") === "on";
  box.addEventListener("change", () => kept("localStorage", box.checked ? "on" : "off"));
  const place = JSON.parse(kept("sessionStorage") || "null");
  if (place) {
    kept("sessionStorage", "null");
    const open = folds();
    place.open.forEach((index) => open[index] && (open[index].open = true));
    const found = place.focus && focusable().find((e) => e.tagName === place.focus[0] && label(e) === place.focus[1]);
    if (found) found.focus({ preventScroll: true });
    scrollTo({ top: place.top, behavior: "instant" });
    const said = "Reloaded. " + part.parentElement.querySelector("p").textContent;
    setTimeout(() => (document.getElementById("announced").textContent = said), 500);
  }
  const words = (seconds) => (seconds < 90 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`);
  const tick = () => {
    const age = Math.max(0, Date.now() / 1000 - written);
    const old = age > 300 ? ": the run may have stopped; mvcl report writes its state" : "";
    document.getElementById("age").textContent = `This page is ${words(age)} old${old}.`;
    if (!box.checked || document.hidden || Date.now() - loaded < 30000 || String(getSelection())) return;
    const at = document.activeElement, focus = at && at !== document.body ? [at.tagName, label(at)] : null;
    const open = folds().flatMap((fold, index) => (fold.open ? [index] : []));
    kept("sessionStorage", JSON.stringify({ top: scrollY, open, focus }));
    location.reload();
  };
  tick();
  setInterval(tick, 5000);
})();
