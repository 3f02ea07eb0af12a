// Keeps #live as the log has it: whenever the gateway says that something changed, the page asks
// for itself and takes that part over. Without scripts the pages work; they are not live then.
"use strict";
(() => {
  const EVERY_MS = 400;
  const AGAIN_MS = 1000;
  const changes = `/v1/tenants/${encodeURIComponent(document.body.dataset.tenant)}/changes`;
  const pulse = document.getElementById("pulse");
  const said = document.getElementById("said");
  let last = 0, timer = 0, busy = false, dirty = false, pressed = false, shown = new Set();

  const beat = (state, word) => {
    if (pulse.dataset.state === state) return;
    pulse.dataset.state = state;
    pulse.querySelector(".word").textContent = word;
  };

  const refresh = () => {
    dirty = true;
    if (busy || pressed || document.hidden || timer) return;
    const wait = last + EVERY_MS - Date.now();
    if (wait > 0) {
      timer = setTimeout(() => { timer = 0; refresh(); }, wait);
      return;
    }
    busy = true;
    dirty = false;
    last = Date.now();
    const done = () => { busy = false; if (dirty) refresh(); };
    htmx.ajax("GET", location.href, { target: "#live", select: "#live", swap: "outerHTML" })
      .then(done, done);
  };

  const connect = () => {
    const source = new EventSource(changes);
    source.addEventListener("open", () => beat("live", "live"));
    source.addEventListener("changed", refresh);
    source.addEventListener("error", () => {
      beat("lost", "reconnecting");
      // A network that is away is tried again by the browser; what was refused, by us.
      if (source.readyState === EventSource.CLOSED) setTimeout(connect, AGAIN_MS);
    });
  };

  // What somebody is pressing is not taken away from under the pointer.
  addEventListener("pointerdown", () => { pressed = true; });
  for (const name of ["pointerup", "pointercancel", "blur"]) {
    addEventListener(name, () => {
      setTimeout(() => { pressed = false; if (dirty) refresh(); }, 50);
    });
  }
  document.addEventListener("visibilitychange", () => { if (dirty) refresh(); });

  const rows = () => new Set([...document.querySelectorAll("#live .row")].map((row) => row.id));
  const opened = new Map();
  document.body.addEventListener("htmx:beforeSwap", () => {
    shown = rows();
    for (const one of document.querySelectorAll("#live details[id]")) opened.set(one.id, one.open);
  });
  document.body.addEventListener("htmx:afterSwap", () => {
    for (const [id, open] of opened) {
      const one = document.getElementById(id);
      if (one) one.open = open;
    }
    if (shown.size) for (const id of rows()) {
      if (!shown.has(id)) document.getElementById(id).classList.add("new");
    }
    tell();
  });

  let gone = 0;
  document.body.addEventListener("said", (event) => {
    said.textContent = event.detail.text;
    said.dataset.kind = event.detail.kind;
    clearTimeout(gone);
    gone = setTimeout(() => { said.textContent = ""; }, event.detail.kind === "wrong" ? 12000 : 4000);
    const note = document.getElementById("note");
    if (note && event.detail.kind === "done") note.value = "";
    refresh();
  });
  document.body.addEventListener("htmx:sendError", (event) => {
    if (event.detail.requestConfig.verb === "get") return;
    said.textContent = "The gateway does not answer. Nothing is known about this command.";
    said.dataset.kind = "wrong";
  });

  const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const relative = (ms) => {
    const seconds = Math.round(Math.abs(ms) / 1000);
    if (seconds < 1) return "now";
    const at = UNITS.findIndex(([, size]) => seconds >= size);
    const [unit, size] = UNITS[at];
    let text = `${Math.floor(seconds / size)} ${unit}`;
    if (at < 2 && UNITS[at + 1]) {
      const rest = Math.floor((seconds % size) / UNITS[at + 1][1]);
      if (rest) text += ` ${rest} ${UNITS[at + 1][0]}`;
    }
    return ms < 0 ? `${text} ago` : `in ${text}`;
  };
  const tell = () => {
    const now = Date.now();
    for (const one of document.querySelectorAll("[data-at]")) {
      const text = relative(Number(one.dataset.at) - now);
      if (one.textContent !== text) one.textContent = text;
    }
  };
  setInterval(tell, 1000);

  addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, select, textarea");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const search = document.getElementById("q");
      if (search) { event.preventDefault(); search.focus(); search.select(); }
    }
  });

  connect();
})();
