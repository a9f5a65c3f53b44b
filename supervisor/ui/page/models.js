// All models, and the search for one to load. Without words it offers what is on disk and not in the table below.

import { html, useEffect, useState } from "./preact.js";
import { get } from "./api.js";
import { useStore } from "./store.js";
import { bytes } from "./format.js";
import { Problem, State, placeOf } from "./widgets.js";
import { useSummary } from "./history.js";
import { ModelTable } from "./overview.js";

const MOST = 60; // rows of the search that are shown

export function Models() {
  const { models } = useStore();
  const [error, setError] = useState(null);
  const summary = useSummary();
  const all = [...models.values()];
  return html`
    <div class="head"><h1>Models</h1></div>
    <${Problem} error=${error} />
    <${Search} models=${all} />
    <section class="card" aria-labelledby="all-models">
      <header><h2 id="all-models">Known models</h2><span class="small muted">configured, built in, or loaded before</span></header>
      ${all.length ? html`<${ModelTable} models=${all} summary=${summary} onError=${setError} />` : html`<p class="empty">None is known yet.</p>`}
    </section>
  `;
}

/** Finds what can be loaded: known models, files on disk, and whatever else `load` takes. */
function Search({ models }) {
  const [text, setText] = useState("");
  const disk = useDisk();
  const found = matching(text, models, disk);
  const submit = (event) => {
    event.preventDefault();
    if (text.trim()) location.hash = placeOf(found.exact ?? text.trim());
  };
  return html`<section class="card" aria-labelledby="search">
    <header><h2 id="search">Plan and load</h2><span class="small muted">Nothing is loaded or downloaded before you say so.</span></header>
    <form class="row end" onSubmit=${submit} role="search">
      <label class="grow">A model's name, a file, or owner/repo:quant of the hub
        <input type="search" value=${text} onInput=${(event) => setText(event.target.value)} autocomplete="off" spellcheck="false" />
      </label>
      <button class="main" disabled=${!text.trim()}>Plan</button>
    </form>
    ${found.rows.length > 0 &&
    html`<ul class="finds" aria-label="What is here">
      ${found.rows.map(
        (row) => html`<li key=${row.target}>
          <a href=${placeOf(row.target)}><span class="break">${row.name}</span>
            <span class="small muted">${row.state ? html`<${State} of=${row.state} />` : row.told}</span></a>
        </li>`,
      )}
    </ul>`}
    ${text && !found.rows.length && html`<p class="small muted">Nothing here has this name. Plan asks the hub, if it is a model of the hub, or opens the file.</p>`}
  </section>`;
}

function useDisk() {
  const [disk, setDisk] = useState([]);
  useEffect(() => {
    get("/api/v1/disk").then((answer) => setDisk(answer.models), () => setDisk([]));
  }, []);
  return disk;
}

function matching(text, models, disk) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (...names) => words.every((word) => names.some((name) => name.toLowerCase().includes(word)));
  const known = models
    .filter((one) => words.length && fits(one.id, ...one.aliases))
    .map((one) => ({ target: one.id, name: one.id, state: one.state, told: "" }));
  const taken = new Set(models.flatMap((one) => [one.id, one.path, one.hub]));
  const files = disk
    .filter((one) => !one.problem && !one.missing.length && !taken.has(one.name) && !taken.has(one.path) && fits(one.name))
    .map((one) => ({ target: one.name, name: one.name, state: "", told: `${one.store}, ${bytes(one.size_bytes)}` }));
  const rows = [...known, ...files].slice(0, MOST);
  return { rows, exact: rows.length === 1 ? rows[0].target : undefined };
}
