// API keys: who may use the daemon, and what they have used.

import { html, useEffect, useState } from "./preact.js";
import { adopt, get, post, remove } from "./api.js";
import { resume } from "./live.js";
import { put } from "./store.js";
import { clock, count } from "./format.js";
import { Act, Code, Problem } from "./widgets.js";

const SCOPES = { infer: "use models (infer)", read: "look (read)", manage: "manage" };

export function Keys() {
  const [keys, setKeys] = useState(null);
  const [error, setError] = useState(null);
  const [fresh, setFresh] = useState(null);
  const look = () => get("/api/v1/keys").then((answer) => setKeys(answer.keys), setError);
  useEffect(() => {
    look();
  }, []);
  const changed = async (answer) => {
    if (answer?.key) {
      const taken = await adopt(answer.key);
      setFresh({ ...answer, taken });
      if (taken) {
        put({ locked: false });
        resume();
      }
    }
    await look();
  };
  const alive = (keys ?? []).filter((one) => one.state !== "revoked");
  return html`<section class="card" aria-labelledby="keys">
    <header><h2 id="keys">Keys</h2><span class="small muted">added while the daemon runs; those of the file are not listed</span></header>
    <${Problem} error=${error} />
    ${fresh && html`<div class="note"><strong>The key ${fresh.name}, shown this once: copy it now</strong>${fresh.taken && html`<div>This tab goes on with it. Any other client needs it, or another one, from now on.</div>`}<${Code} label="Key" text=${fresh.key} /></div>`}
    ${alive.length > 0 && html`<${KeyTable} keys=${alive} changed=${changed} onError=${setError} />`}
    ${keys && !alive.length && html`<p class="empty">There is none. With the first one, every request needs a key; this tab goes on with the one that you add here.</p>`}
    ${keys && html`<${NewKey} changed=${changed} onError=${setError} first=${!alive.length} />`}
  </section>`;
}

function KeyTable({ keys, changed, onError }) {
  return html`<table class="stack">
    <thead>
      <tr><th scope="col">Name</th><th scope="col">May</th><th scope="col">State</th><th scope="col" class="number">Requests</th>
        <th scope="col" class="number">Tokens</th><th scope="col"><span class="unseen">Actions</span></th></tr>
    </thead>
    <tbody>
      ${keys.map(
        (one) => html`<tr key=${one.name}>
          <th scope="row">${one.name}</th>
          <td data-name="May">${one.scopes.map((scope) => SCOPES[scope]).join(", ")}${one.models.length ? ` (${one.models.join(", ")})` : ""}</td>
          <td data-name="State">${one.state}${one.expires_at ? `, until ${clock(one.expires_at)}` : ""}</td>
          <td class="number" data-name="Requests">${count(one.usage.requests)}</td>
          <td class="number" data-name="Tokens">${count(one.usage.prompt_tokens + one.usage.completion_tokens)}</td>
          <td class="actions">
            <${Act} class="quiet" aria-label=${`Rotate ${one.name}`} onError=${onError} run=${async () => changed(await post(`/api/v1/keys/${one.name}/rotate`))}>Rotate</${Act}>
            <${Act} class="quiet danger" aria-label=${`Revoke ${one.name}`} onError=${onError} run=${async () => { await remove(`/api/v1/keys/${one.name}`); await changed(); }}>Revoke</${Act}>
          </td>
        </tr>`,
      )}
    </tbody>
  </table>`;
}

function NewKey({ changed, onError, first }) {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState(first ? ["infer", "read", "manage"] : ["infer"]);
  const toggle = (scope) => setScopes((all) => (all.includes(scope) ? all.filter((one) => one !== scope) : [...all, scope]));
  const add = async () => {
    const answer = await post("/api/v1/keys", { name, scopes });
    setName("");
    await changed(answer);
  };
  return html`<fieldset>
    <legend class="unseen">A new key</legend>
    <label>Name<input value=${name} maxlength="64" onInput=${(event) => setName(event.target.value)} autocomplete="off" /></label>
    ${Object.entries(SCOPES).map(
      ([scope, told]) => html`<label class="check" key=${scope}><input type="checkbox" checked=${scopes.includes(scope)} onChange=${() => toggle(scope)} />${told}</label>`,
    )}
    <${Act} run=${add} onError=${onError} disabled=${!name || !scopes.length}>Add a key</${Act}>
  </fieldset>`;
}
