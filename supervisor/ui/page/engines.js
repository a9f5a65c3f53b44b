// The installations of llama-server, and which of them starts the next models.

import { html, useEffect, useState } from "./preact.js";
import { get, post } from "./api.js";
import { refreshStatus } from "./live.js";
import { clock } from "./format.js";
import { Act, Code, Problem } from "./widgets.js";

export function Engines({ status }) {
  const [engines, setEngines] = useState(null);
  const [error, setError] = useState(null);
  const took = (answer) => setEngines(answer.engines);
  useEffect(() => {
    get("/api/v1/engines").then(took, setError);
  }, []);
  const use = async (name) => {
    took(await post("/api/v1/engines/use", { name }));
    await refreshStatus();
  };
  const named = status?.engine && !["chosen", "installed"].includes(status.engine.source);
  return html`<section class="card" aria-labelledby="engines">
    <header><h2 id="engines">Engines</h2><span class="small muted">the chosen one starts the next models; those that are loaded stay with theirs</span></header>
    <${Problem} error=${error} />
    ${named && html`<p class="small muted">In use now is <code class="break">${status.engine.path}</code>, named by ${status.engine.source}, which goes before the choice here.</p>`}
    ${engines?.length > 0 && html`<${EngineTable} engines=${engines} use=${use} onError=${setError} />`}
    ${engines?.length === 0 && html`<p class="empty">None is installed here.</p>`}
    <details>
      <summary>Build or install another one</summary>
      <${Code} label="For the best back end of this machine" text="supervisor engine build --no-use" />
    </details>
  </section>`;
}

function EngineTable({ engines, use, onError }) {
  return html`<table class="stack">
    <thead>
      <tr><th scope="col">Engine</th><th scope="col">Build</th><th scope="col">Back end</th><th scope="col">From</th>
        <th scope="col">Installed</th><th scope="col"><span class="unseen">Actions</span></th></tr>
    </thead>
    <tbody>
      ${engines.map(
        (one) => html`<tr key=${one.name}>
          <th scope="row" class="break">${one.name}</th>
          <td data-name="Build">${one.build ? `b${one.build}` : "–"}</td>
          <td data-name="Back end">${one.backend}</td>
          <td data-name="From" class="break">${one.source}</td>
          <td data-name="Installed">${clock(one.made_at)}</td>
          <td class="actions">
            ${one.current
              ? html`<span class="pill">chosen</span>`
              : html`<${Act} class="quiet" aria-label=${`Use ${one.name}`} onError=${onError} run=${() => use(one.name)}>Use</${Act}>`}
          </td>
        </tr>`,
      )}
    </tbody>
  </table>`;
}
