// Captured prompts and answers, where some are kept: shown, sent again, deleted.

import { html, useEffect, useState } from "./preact.js";
import { get, post, remove } from "./api.js";
import { clock, duration } from "./format.js";
import { Act, Problem } from "./widgets.js";

const PATH = "/api/v1/captures";

/** Nothing at all where nothing is captured, or somebody else may look. */
export function Captured({ models }) {
  const [found, setFound] = useState(null);
  const [open, setOpen] = useState(null);
  const [error, setError] = useState(null);
  const look = async () => setFound(await get(`${PATH}?limit=20`));
  useEffect(() => {
    look().catch(() => {});
  }, []);
  if (!found || !(found.on || found.captures.length)) return null;
  const show = async (one) => setOpen(await get(`${PATH}/${one.id}`));
  const forget = async (one) => {
    await remove(`${PATH}/${one.id}`);
    setOpen(null);
    await look();
  };
  return html`<section class="card" aria-labelledby="captured">
    <header>
      <h2 id="captured">Captured</h2>
      <${Act} class="quiet" run=${look} onError=${setError}>Look again</${Act}>
    </header>
    <${Problem} error=${error} />
    ${found.captures.length ? html`<${Rows} rows=${found.captures} show=${show} onError=${setError} />` : html`<p class="empty">No request was captured yet.</p>`}
    ${open && html`<${One} key=${open.id} one=${open} models=${models} forget=${forget} />`}
  </section>`;
}

function Rows({ rows, show, onError }) {
  return html`<table class="stack">
    <caption class="unseen">Captured requests</caption>
    <thead>
      <tr><th scope="col">Captured request</th><th scope="col">Model</th><th scope="col">Path</th><th scope="col">Outcome</th>
        <th scope="col" class="number">Took</th><th scope="col"><span class="unseen">Actions</span></th></tr>
    </thead>
    <tbody>
      ${rows.map(
        (one) => html`<tr key=${one.id}>
          <th scope="row"><span title=${one.request_id}>${clock(one.at)}</span>${one.key && html` <span class="pill">${one.key}</span>`}</th>
          <td data-name="Model" class="break">${one.model ?? "–"}</td>
          <td data-name="Path"><code>${one.path}</code></td>
          <td data-name="Outcome" class=${one.code ? "bad" : ""}>${one.code ?? one.finish ?? one.status}</td>
          <td class="number" data-name="Took">${duration(one.seconds)}</td>
          <td class="actions"><${Act} class="quiet" aria-label=${`Show captured request ${one.id}`} run=${() => show(one)} onError=${onError}>Show</${Act}></td>
        </tr>`,
      )}
    </tbody>
  </table>`;
}

function One({ one, models, forget }) {
  const [model, setModel] = useState(one.model ?? "");
  const [again, setAgain] = useState(null);
  const [error, setError] = useState(null);
  const names = models.includes(model) || !model ? models : [model, ...models];
  const left = [...one.request_left_out.map((what) => `${what} of the request`), ...one.answer_left_out.map((what) => `${what} of the answer`)];
  const replay = async () => {
    setError(null);
    setAgain(await post(`${PATH}/${one.id}/replay`, { model, stream: false }));
  };
  return html`<div role="group" aria-label=${`Captured request ${one.id}`}>
    <h3>Captured request ${one.id}</h3>
    ${left.length > 0 && html`<p class="small muted">Not kept: ${left.join(", ")}.</p>`}
    <h4>Request</h4><pre class="code" tabindex="0">${shown(one.request)}</pre>
    <h4>Answer</h4><pre class="code" tabindex="0">${one.answer === null ? "none" : shown(one.answer)}</pre>
    <${Problem} error=${error} />
    <div class="row">
      ${one.replayable &&
      html`<label>Model<select value=${model} onChange=${(event) => setModel(event.target.value)}>
          ${names.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
        </select></label>
        <${Act} run=${replay} onError=${setError}>Send again</${Act}>`}
      <${Act} class="quiet danger" run=${() => forget(one)} onError=${setError}>Delete</${Act}>
    </div>
    ${again && html`<h4>New answer</h4><pre class="code" tabindex="0">${shown(again)}</pre>`}
  </div>`;
}

function shown(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}
