// What the pages can do beyond links and forms: single keys, live figures, the theme, and Compare. Nothing else needs it.
"use strict";
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const one = (selector, inside = document) => inside.querySelector(selector);
const cookie = (text) => { document.cookie = `${text}; path=/; max-age=31536000; samesite=lax`; };

// Times as ages, in the reader's time zone.
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"]];
function tellTimes() {
  for (const each of all("time[datetime]")) {
    const at = new Date(each.dateTime), seconds = Math.max(0, (Date.now() - at) / 1000);
    const [size, unit] = UNITS.find(([size]) => seconds >= size) ?? [1, "s"];
    const text = `${Math.round(seconds / size)} ${unit} ago`;
    if (each.textContent !== text) each.textContent = text;
    each.title = at.toLocaleString();
  }
}

// The theme: a click goes from what is seen to the other one.
function setUpTheme() {
  const button = one("[data-theme-toggle]");
  if (!button) return;
  button.hidden = false;
  button.onclick = () => {
    const root = document.documentElement;
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    cookie(`burnish_theme=${root.dataset.theme}`);
  };
}

// Live figures: a part of the page is fetched again and put in place if nobody is at work in it.
function setUpLive() {
  const part = one("[data-live]");
  if (!part) return;
  setInterval(async () => {
    const isBusy = part.contains(document.activeElement) || one("details[open]", part) || !getSelection().isCollapsed;
    if (document.hidden || isBusy) return;
    try {
      const answer = await fetch(location.href, { redirect: "error" });
      if (!answer.ok) return;
      const fresh = one("[data-live]", new DOMParser().parseFromString(await answer.text(), "text/html"));
      if (fresh && fresh.innerHTML !== part.innerHTML) { part.innerHTML = fresh.innerHTML; tellTimes(); }
    } catch { /* the next look may succeed */ }
  }, 1000 * part.dataset.live);
}

// Single keys. `data-key` holds one or more, `data-does` says what they do.
function setUpKeys() {
  const help = one("[data-keys-help]"), dialog = one("#keys");
  if (help && dialog) {
    help.hidden = false;
    help.onclick = () => {
      const lines = [...all("[data-key]").map((each) => [each.dataset.key, each.dataset.does])];
      if (one("[data-rows]")) lines.push(["j k", "next, previous"], ["Enter", "open"]);
      if (one("[data-search]")) lines.push(["/", "to the text field"]);
      lines.push(["?", "these keys"]);
      one("dl", dialog).replaceChildren(...lines.flatMap(([keys, does]) => {
        const term = document.createElement("dt"), meaning = document.createElement("dd");
        term.append(...keys.split(" ").map((key) => Object.assign(document.createElement("kbd"), { textContent: key })));
        meaning.textContent = does;
        return [term, meaning];
      }));
      dialog.showModal();
    };
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog?.open) return;
    if (event.target.closest("input, textarea, select")) { if (event.key === "Escape") event.target.blur(); return; }
    const found = all("[data-key]").find((each) => each.dataset.key.split(" ").includes(event.key) && each.offsetParent);
    if (found) { event.preventDefault(); found.click(); }
    else if (event.key === "/" && one("[data-search]")) { event.preventDefault(); one("[data-search]").focus(); }
    else if (event.key === "?" && help) help.click();
    else if ("jk".includes(event.key) && one("[data-rows]")) {
      const links = all("[data-rows] .row-link"), at = links.indexOf(document.activeElement);
      links[Math.min(links.length - 1, Math.max(0, at + (event.key === "j" ? 1 : -1)))]?.focus();
    }
  });
}

// Compare: two streams, a vote, and the versions behind A and B.
function setUpCompare() {
  const form = one("[data-compare]");
  if (!form) return;
  const base = form.dataset.compare, sides = all("[data-sides] section"), votes = one("[data-votes]");
  const tally = {}, post = (path, fields) => fetch(`${base}/${path}`, { method: "POST", body: new URLSearchParams(fields) });
  let round = null;

  async function stream(side, version, prompt) {
    const text = one("[data-text]", side), reply = { version, text: "", turn: null };
    text.textContent = ""; text.ariaBusy = "true"; side.classList.remove("won"); one("[data-version]", side).hidden = true;
    const answer = await post("reply", { version, prompt });
    if (!answer.ok) throw new Error(await answer.text());
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        const piece = JSON.parse(line);
        if (piece.error) throw new Error(piece.error);
        if (piece.turn) reply.turn = piece.turn;
        if (piece.text) { reply.text += piece.text; text.append(piece.text); }
      }
    }
    text.ariaBusy = "false";
    return reply;
  }

  form.onsubmit = async (event) => {
    event.preventDefault();
    const { a, b, prompt } = Object.fromEntries(new FormData(form));
    const isSwapped = crypto.getRandomValues(new Uint8Array(1))[0] % 2 === 1;
    history.replaceState(null, "", `${base}?${new URLSearchParams(prompt.length > 1500 ? { a, b } : { a, b, prompt })}`);
    one("[data-sides]").hidden = false; votes.hidden = true; round = null;
    one("button", form).disabled = true;
    const versions = isSwapped ? [b, a] : [a, b];
    const found = await Promise.allSettled(sides.map((side, i) => stream(side, versions[i], prompt)));
    one("button", form).disabled = false;
    found.forEach((each, i) => { if (each.reason) one("[data-text]", sides[i]).textContent = `Not possible: ${each.reason.message}`; });
    if (found.every((each) => each.value?.turn)) { round = found.map((each) => each.value); votes.hidden = false; votes.scrollIntoView({ block: "nearest" }); document.activeElement.blur(); }
  };
  one("textarea", form).onkeydown = (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit(); };
  for (const button of all("[data-vote]")) button.onclick = async () => {
    if (!round) return;
    const [first, second] = round, vote = button.dataset.vote;
    const [better, worse] = vote === "B" ? [second, first] : [first, second];
    round = null; votes.hidden = true;
    sides.forEach((side, i) => { const chip = one("[data-version]", side); chip.textContent = `v${[first, second][i].version}`; chip.hidden = false; });
    if (vote === "skip") return;
    const both = ["A", "B"].includes(vote) ? "" : vote;
    if (!both) sides[vote === "A" ? 0 : 1].classList.add("won");
    const answer = await post("vote", { better: better.turn, worse: worse.turn, text: better.text.trim(), both });
    const winner = both || `v${better.version}`;
    if (answer.ok) tally[winner] = (tally[winner] ?? 0) + 1;
    one("[data-tally]").textContent = answer.ok ? `Recorded: ${Object.entries(tally).map(([who, n]) => `${who} ${n}`).join(", ")}` : `Not recorded: ${await answer.text()}`;
    const prompt = one("textarea", form);
    prompt.focus(); prompt.select();
  };
}

// What a click opens to write in gets the focus.
for (const each of all("details")) each.addEventListener("toggle", () => { if (each.open) one("textarea, input:not([type=hidden])", each)?.focus(); });
for (const each of all("[data-submit]")) each.addEventListener("change", () => each.form.requestSubmit());
for (const each of all("[data-scroll-end]")) each.scrollLeft = each.scrollWidth;
one(".side [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
setUpTheme(); setUpKeys(); setUpLive(); setUpCompare(); tellTimes(); setInterval(tellTimes, 10000);
