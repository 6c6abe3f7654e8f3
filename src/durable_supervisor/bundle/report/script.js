
"use strict";
(() => {
  // Only reads the page and sets classes: what a program printed is never made into markup again.
  const byId = (id) => document.getElementById(id);
  const pane = byId("output"), query = byId("q"), count = byId("n");
  const lines = Array.from(pane.getElementsByClassName("l"));
  const texts = lines.map((line) => line.lastElementChild.textContent.toLowerCase());
  let hits = [], now = -1, wait = 0;

  const shown = (line) =>
    !(pane.classList.contains("only-o") && line.classList.contains("e")) &&
    !(pane.classList.contains("only-e") && line.classList.contains("o"));

  // The Range of a stretch of a line's text, over the spans that colour it.
  const range = (line, from, to) => {
    const walker = document.createTreeWalker(line.lastElementChild, NodeFilter.SHOW_TEXT);
    const found = document.createRange();
    let at = 0, began = false;
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const end = at + node.length;
      if (!began && from < end) { found.setStart(node, from - at); began = true; }
      if (began && to <= end) { found.setEnd(node, to - at); return found; }
      at = end;
    }
    return null;
  };

  const paint = (word) => {
    if (!window.Highlight || !CSS.highlights) return;
    CSS.highlights.delete("found");
    if (!word) return;
    const ranges = [];
    for (const index of hits.slice(0, 2000)) {
      for (let at = texts[index].indexOf(word); at >= 0; at = texts[index].indexOf(word, at + word.length)) {
        const one = range(lines[index], at, at + word.length);
        if (one) ranges.push(one);
      }
    }
    CSS.highlights.set("found", new Highlight(...ranges));
  };

  const go = (step) => {
    if (!hits.length) return;
    if (now >= 0) lines[hits[now]].classList.remove("now");
    now = (now + step + hits.length) % hits.length;
    const line = lines[hits[now]];
    line.classList.add("now");
    line.scrollIntoView({ block: "center" });
    count.value = `${now + 1} / ${hits.length}`;
  };

  const find = () => {
    for (const index of hits) lines[index].classList.remove("hit", "now");
    const word = query.value.toLowerCase();
    hits = [];
    now = -1;
    if (word) texts.forEach((text, index) => { if (text.includes(word) && shown(lines[index])) hits.push(index); });
    for (const index of hits) lines[index].classList.add("hit");
    paint(word);
    count.value = word ? (hits.length ? "" : "no match") : "";
    if (hits.length) go(1);
  };

  query.addEventListener("input", () => { clearTimeout(wait); wait = setTimeout(find, 120); });
  query.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); go(event.shiftKey ? -1 : 1); }
    if (event.key === "Escape") { query.value = ""; find(); pane.focus(); }
  });
  byId("next").addEventListener("click", () => go(1));
  byId("prev").addEventListener("click", () => go(-1));
  for (const choice of document.getElementsByName("s")) {
    choice.addEventListener("change", () => {
      pane.classList.remove("only-o", "only-e");
      if (choice.value !== "both") pane.classList.add(`only-${choice.value}`);
      find();
    });
  }
  byId("wrap").addEventListener("change", (event) => pane.classList.toggle("nowrap", !event.target.checked));
  byId("times").addEventListener("change", (event) => pane.classList.toggle("notimes", !event.target.checked));
  document.addEventListener("keydown", (event) => {
    if (event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") { event.preventDefault(); query.focus(); query.select(); }
    if (event.key === "n") go(1);
    if (event.key === "N") go(-1);
  });
  document.querySelector(".bar").hidden = false;
  const asked = /^#q=(.*)$/.exec(location.hash);  // report.html#q=words
  if (asked) {
    try { query.value = decodeURIComponent(asked[1]); } catch { query.value = asked[1]; }
    find();
  }
})();
