// The frame: which page is shown, the menu, the key, the colours.

import { html, render, useEffect, useRef, useState } from "./preact.js";
import { begin, resume } from "./live.js";
import { hasKey, useKey } from "./api.js";
import { put, useStore } from "./store.js";
import { applyTheme } from "./theme.js";
import { Overview } from "./overview.js";
import { Models } from "./models.js";
import { Model } from "./model.js";
import { Requests } from "./requests.js";
import { Playground } from "./playground.js";
import { Logs } from "./logs.js";
import { Settings } from "./settings.js";

const PAGES = {
  overview: ["Overview", Overview],
  models: ["Models", Models],
  requests: ["Requests", Requests],
  playground: ["Playground", Playground],
  logs: ["Logs", Logs],
  settings: ["Settings", Settings],
};

const BLIND = new Set(["playground", "settings"]); // of use with a key that may not look

/** `#/models/owner%2Frepo` → {page: "models", rest: "owner/repo"}. */
function place() {
  const [, page = "", rest = ""] = location.hash.match(/^#\/([a-z]+)(?:\/(.*))?$/) ?? [];
  try {
    return { page: Object.hasOwn(PAGES, page) ? page : "overview", rest: decodeURIComponent(rest) };
  } catch {
    return { page: "overview", rest: "" };
  }
}

function App() {
  const state = useStore();
  const [at, setAt] = useState(place);
  const main = useRef(null);
  useEffect(() => {
    const moved = () => {
      setAt(place());
      main.current?.focus();
      scrollTo(0, 0);
    };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  const [name, Page] = at.page === "models" && at.rest ? ["Model", Model] : PAGES[at.page];
  useEffect(() => {
    document.title = `${at.rest || name} – llama-supervisor`;
  }, [at.rest, name]);
  return html`<div class="frame">
    <${Side} page=${at.page} state=${state} />
    <main id="content" ref=${main} tabindex="-1">
      ${!state.connected && state.failure && !state.locked && !state.denied && html`<div class="offline" role="status">${state.failure} Trying again …${state.known ? " What is shown is what was last known." : ""}</div>`}
      ${state.denied && !BLIND.has(at.page)
        ? html`<${Denied} reason=${state.denied} name=${name} />`
        : html`<${Page} key=${`${at.page}/${at.rest}`} target=${at.rest} />`}
    </main>
    ${state.locked && html`<${KeyDialog} />`}
  </div>`;
}

/** In place of a page that the key may not see. */
function Denied({ reason, name }) {
  return html`<div class="head"><h1>${name}</h1></div>
    <div class="note warn" role="status">
      <strong>With this key there is nothing to see here</strong>
      <div>${reason}</div>
      <div><a href="#/playground">The playground</a> works with it; another key can be given in <a href="#/settings">the settings</a>.</div>
    </div>`;
}

function Side({ page, state }) {
  const models = [...state.models.values()].filter((one) => one.state === "ready").length;
  const counts = { models, requests: state.requests.size };
  const menu = useRef(null);
  useEffect(() => menu.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }), [page]);
  return html`<header class="side">
    <a class="brand" href="#/overview" aria-label="llama-supervisor"><img src="/ui/icon.svg" alt="" /><span>llama-supervisor</span></a>
    <nav aria-label="Pages">
      <ul class="menu" ref=${menu}>
        ${Object.entries(PAGES).map(
          ([id, [name]]) => html`<li key=${id}>
            <a href=${`#/${id}`} aria-current=${id === page ? "page" : undefined}>${name}
              ${counts[id] > 0 && html`<span class="count" aria-hidden="true">${counts[id]}</span>`}
            </a>
          </li>`,
        )}
      </ul>
    </nav>
    <div class="foot">
      <span class=${`state ${state.connected ? "ready" : "busy"}`}>${state.connected ? "live" : state.denied ? "may not look" : "not connected"}</span>
      ${state.status && html`<span>version ${state.status.version}</span>`}
      <a href="/docs">The HTTP interface</a>
    </div>
  </header>`;
}

/** Asks for the key that the daemon wants. It is kept for this tab alone. */
function KeyDialog() {
  const dialog = useRef(null);
  const [wrong] = useState(hasKey());
  useEffect(() => dialog.current.showModal(), []);
  const submit = (event) => {
    event.preventDefault();
    useKey(new FormData(event.target).get("key"));
    dialog.current.close();
    put({ locked: false });
    resume();
  };
  return html`<dialog ref=${dialog} aria-labelledby="key-title" onCancel=${(event) => event.preventDefault()}>
    <form onSubmit=${submit}>
      <h2 id="key-title">This daemon asks for a key</h2>
      ${wrong && html`<p class="bad">The last one was not taken: it is wrong, expired or revoked.</p>`}
      <label>API key<input name="key" type="password" autocomplete="off" required /></label>
      <p class="small muted">It is kept in this tab and sent to this daemon alone. Make one with <code>supervisor keys add</code>.</p>
      <div class="row"><button class="main">Go on</button></div>
    </form>
  </dialog>`;
}

applyTheme();
begin();
const app = document.getElementById("app");
app.replaceChildren();
render(html`<${App} />`, app);
