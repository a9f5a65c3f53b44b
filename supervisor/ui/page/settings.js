// The configuration in force, the keys, the engine, this page.

import { html, useEffect, useState } from "./preact.js";
import { get, hasKey, post, useKey } from "./api.js";
import { useStore } from "./store.js";
import { refreshStatus, resume } from "./live.js";
import { clock } from "./format.js";
import { Act, Problem } from "./widgets.js";
import { THEMES, applyTheme, theme } from "./theme.js";
import { Engines } from "./engines.js";
import { Keys } from "./keys.js";

const FOUND = { chosen: "chosen among those below", installed: "installed by this program" };
const CHANGES = ["added", "removed", "relaunched", "adjusted", "restart_needed"];

export function Settings() {
  const { status } = useStore();
  return html`
    <div class="head"><h1>Settings</h1></div>
    <div class="columns">
      <${Daemon} status=${status} />
      <${ThisPage} />
    </div>
    <${Configuration} status=${status} />
    <${Engines} status=${status} />
    <${Keys} />
  `;
}

function Daemon({ status }) {
  if (!status) return html`<section class="card"><p class="empty">Not connected.</p></section>`;
  const engine = status.engine;
  const rows = [
    ["Version", status.version],
    ["Address", status.url],
    ["Process", status.pid],
    ["Started", clock(status.started_at)],
    ["For clients", `${location.origin}/v1`],
    ["Engine", engine ? engine.path : "none found; `supervisor doctor` says what to do"],
    ["Build", engine?.build && `b${engine.build}`],
    ["Found", engine && (FOUND[engine.source] ?? `named by ${engine.source}`)],
  ].filter(([, value]) => value);
  return html`<section class="card" aria-labelledby="daemon">
    <header><h2 id="daemon">Daemon</h2></header>
    <dl class="facts">${rows.map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl>
  </section>`;
}

function ThisPage() {
  const [name, setName] = useState(theme());
  const choose = (event) => {
    applyTheme(event.target.value);
    setName(event.target.value);
  };
  const forget = () => {
    useKey("");
    resume();
  };
  return html`<section class="card" aria-labelledby="page">
    <header><h2 id="page">This page</h2></header>
    <fieldset>
      <legend class="unseen">How it looks</legend>
      <label>Colours
        <select value=${name} onChange=${choose}>
          ${Object.entries(THEMES).map(([id, told]) => html`<option key=${id} value=${id}>${told}</option>`)}
        </select>
      </label>
      ${hasKey() && html`<button type="button" onClick=${forget}>Forget the key</button>`}
    </fieldset>
    <p class="small muted">It asks nobody but this daemon, and nothing while its tab is hidden.</p>
  </section>`;
}

/** What counts, and where each value comes from; and the file taken over anew. */
function Configuration({ status }) {
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const [words, setWords] = useState("");
  const [defaults, setDefaults] = useState(false);
  const [said, setSaid] = useState("");
  const loadedAt = status?.config.loaded_at;
  useEffect(() => {
    get("/api/v1/config").then(setAnswer, setError);
  }, [loadedAt]);
  const reload = async () => {
    setSaid("");
    const changes = await post("/api/v1/config/reload");
    const told = CHANGES.filter((name) => changes[name].length).map((name) => `${name.replace("_", " ")}: ${changes[name].join(", ")}`);
    setSaid(told.length ? told.join("; ") : "Read again; nothing changed.");
    await refreshStatus();
  };
  const wanted = words.toLowerCase();
  const values = (answer?.values ?? []).filter(
    (row) => row.key.toLowerCase().includes(wanted) && (defaults || row.origin !== "default"),
  );
  return html`<section class="card" aria-labelledby="configuration">
    <header>
      <h2 id="configuration">Configuration</h2>
      <span class="small muted break">${answer ? `${answer.path ?? "no file; the defaults"}${loadedAt ? `, read ${clock(loadedAt)}` : ""}` : ""}</span>
    </header>
    <div class="row end">
      <label class="grow">Only keys with<input type="search" value=${words} onInput=${(event) => setWords(event.target.value)} /></label>
      <label class="check"><input type="checkbox" checked=${defaults} onChange=${() => setDefaults(!defaults)} />Defaults too</label>
      <${Act} run=${reload} onError=${setError}>Read the file again</${Act}>
    </div>
    <${Problem} error=${error ?? status?.config.error} title=${error ? "" : "The last reload was refused"} />
    ${said && html`<p role="status">${said}</p>`}
    ${status?.config.restart_needed.length > 0 && html`<p class="warn">Counts from the next start on: ${status.config.restart_needed.join(", ")}</p>`}
    ${answer && (values.length ? html`<${SettingsTable} values=${values} path=${answer.path} />` : html`<p class="empty">Nothing is set; the defaults count.</p>`)}
  </section>`;
}

/** Values with their origin; a place in the file is its line. */
export function SettingsTable({ values, path }) {
  return html`<table class="stack">
    <thead><tr><th scope="col">Key</th><th scope="col">Value</th><th scope="col">From</th></tr></thead>
    <tbody>
      ${values.map(
        (row) => html`<tr key=${row.key}>
          <th scope="row" class="break"><code>${row.key}</code></th>
          <td data-name="Value" class="break"><code>${JSON.stringify(row.value)}</code></td>
          <td data-name="From" class=${row.origin === "default" ? "muted" : ""}>${origin(row, path)}</td>
        </tr>`,
      )}
    </tbody>
  </table>`;
}

function origin(row, path) {
  if (path && row.place.startsWith(`${path}:`)) {
    const line = row.place.slice(path.length + 1).split(":")[0];
    return `${row.origin}, line ${line}`;
  }
  return row.place ? `${row.origin} ${row.place}` : row.origin;
}
