// The nodes of a cluster: all of them in a table, and what is on each of the others.

import { html } from "./preact.js";
import { DeviceBar } from "./bars.js";
import { bytes, count, duration, tokens } from "./format.js";
import { State, useClock } from "./widgets.js";

const WELL = new Set(["ready", "loading", "reserved"]);

/** All nodes; nothing where the daemon is in no cluster. */
export function Nodes({ cluster }) {
  if (!cluster?.nodes.length) return null;
  return html`<section class="card" aria-labelledby="nodes">
    <header><h2 id="nodes">Nodes</h2><span class="small muted">seen from ${cluster.node}</span></header>
    ${!cluster.connected && html`<div class="note warn">This node does not hear the others: ${cluster.unable}.</div>`}
    <table class="stack">
      <thead>
        <tr>
          <th scope="col">Node</th><th scope="col">State</th><th scope="col">Models</th>
          <th scope="col" class="number">Requests</th><th scope="col" class="number">Waiting</th>
          <th scope="col" class="number">Free for models</th>
        </tr>
      </thead>
      <tbody>${cluster.nodes.map((one) => html`<${NodeRow} key=${one.name} node=${one} />`)}</tbody>
    </table>
  </section>`;
}

function NodeRow({ node }) {
  const waiting = node.models.reduce((sum, one) => sum + one.waiting, 0);
  const models = node.models.filter((one) => WELL.has(one.state)).map((one) => one.id);
  return html`<tr>
    <th scope="row"><span class="break">${node.name}</span>${node.here && html` <span class="muted small">this one</span>`}</th>
    <td data-name="State"><${NodeState} node=${node} /></td>
    <td data-name="Models" class=${models.length ? "break" : "break nothing"}>${models.join(", ") || "–"}</td>
    <td data-name="Requests" class="number">${count(node.requests)}</td>
    <td data-name="Waiting" class="number">${count(waiting)}</td>
    <td data-name="Free for models" class="number">${bytes(node.free_bytes)}</td>
  </tr>`;
}

function NodeState({ node }) {
  const kind = { ready: "ready", draining: "busy" }[node.state] ?? "broken";
  return html`<span class=${`state ${kind}`}>${node.state}</span>${node.state !== "away" && !node.asked && html` <span class="small muted">as last told</span>`}`;
}

/** What is on each of the other nodes. */
export function Others({ cluster }) {
  const others = (cluster?.nodes ?? []).filter((one) => !one.here);
  return others.map((one) => html`<${OnNode} key=${one.name} node=${one} />`);
}

function OnNode({ node }) {
  const drawn = node.devices.filter((one) => one.usable_bytes !== null);
  return html`<section class="card" aria-label=${`Node ${node.name}`}>
    <header>
      <h2>${node.name} <span class="muted small">${node.address}</span></h2>
      <${NodeState} node=${node} />
    </header>
    ${!node.asked && html`<div class="note warn">${why(node)}</div>`}
    ${drawn.map((device) => html`<${DeviceBar} key=${device.name} device=${device} of=${node.name} />`)}
    ${node.models.length
      ? html`<${ModelsOf} node=${node} />`
      : html`<p class="empty">${node.state === "away" ? "What it has is not known." : "No model is loaded there."}</p>`}
  </section>`;
}

/** Why there is no more to see of a node. */
function why(node) {
  const heard = node.heard_s === null ? "" : ` It was last heard ${duration(node.heard_s)} ago.`;
  return `Of ${node.name} there is only what it last told: ${node.why}.${heard}`;
}

function ModelsOf({ node }) {
  const at = useClock();
  return html`<table class="stack">
    <thead>
      <tr>
        <th scope="col">Model</th><th scope="col">State</th><th scope="col" class="number" title="tokens of one request at most">Context</th>
        <th scope="col" class="number">At work</th><th scope="col" class="number">Waiting</th>
        <th scope="col" class="number" title="–: when its room is needed, or when it is unloaded there">Leaves in</th>
      </tr>
    </thead>
    <tbody>
      ${node.models.map(
        (one) => html`<tr key=${one.id}>
          <th scope="row"><span class="break">${one.id}</span></th>
          <td data-name="State"><${State} of=${one.state} stage=${one.stage} />${one.error && html` <code class="small">${one.error.code}</code>`}</td>
          <td data-name="Context" class="number">${tokens(one.n_ctx)}</td>
          <td data-name="At work" class="number">${`${one.leases}${one.n_slots ? ` of ${one.n_slots}` : ""}`}</td>
          <td data-name="Waiting" class="number">${count(one.waiting)}</td>
          <td data-name="Leaves in" class="number">${one.pinned ? "pinned" : one.expires_at ? duration(one.expires_at - at) : "–"}</td>
        </tr>`,
      )}
    </tbody>
  </table>`;
}
