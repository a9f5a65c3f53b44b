// Memory as bars: one per device, each a row of parts. The picture has its words for who does not see it.

import { html } from "./preact.js";
import { bytes, plural } from "./format.js";

/** The parts, in the order in which they stand in a bar: [field, class, name]. */
export const PARTS = [
  ["weights_bytes", "weights", "weights"],
  ["kv_bytes", "kv", "KV cache"],
  ["compute_bytes", "compute", "compute"],
  ["other_bytes", "other", "projector, draft"],
];

/** What the colours mean. `elsewhere`: the name of what is not ours. */
export function Legend({ elsewhere = "other programs" }) {
  const around = [["elsewhere", elsewhere], ["reserve", "kept back"], ["free", "free"]];
  const all = [...PARTS.map(([, kind, name]) => [kind, name]), ...around];
  return html`<ul class="legend" aria-hidden="true">
    ${all.map(([kind, name]) => html`<li key=${kind}><span class=${`key ${kind}`}></span>${name}</li>`)}
  </ul>`;
}

/** One bar. `segments`: {kind, bytes, title, first}. */
export function Bar({ segments, total, label }) {
  const shown = segments.filter((one) => one.bytes > 0);
  const whole = Math.max(total, shown.reduce((sum, one) => sum + one.bytes, 0), 1);
  return html`<div class="bar" role="img" aria-label=${label}>
    ${shown.map(
      (one, at) => html`<span
        key=${`${one.kind}-${at}`}
        class=${one.first ? `${one.kind} first` : one.kind}
        style=${{ width: `${(100 * one.bytes) / whole}%` }}
        title=${`${one.title}: ${bytes(one.bytes)}`}
      ></span>`,
    )}
  </div>`;
}

/** A device as it is now: who holds what of it. `of`: the node that it is of, where that is another one. */
export function DeviceBar({ device, of = "" }) {
  const held = device.held.map((one) => ({ ...one, sum: PARTS.reduce((sum, [field]) => sum + one[field], 0) }));
  const segments = held.flatMap((one) =>
    PARTS.map(([field, kind, name], at) => ({
      kind,
      bytes: one[field],
      title: `${one.model ?? "another model"}, ${name}`,
      first: at === 0,
    })),
  );
  const used = held.reduce((sum, one) => sum + one.sum, 0);
  const free = Math.max(0, device.usable_bytes - held.reduce((sum, one) => sum + one.sum + one.reserve_bytes, 0));
  const kept = Math.max(0, device.total_bytes - device.others_bytes - used - free);
  segments.push({ kind: "elsewhere", bytes: device.others_bytes, title: "other programs", first: true });
  segments.push({ kind: "reserve", bytes: kept, title: "kept back" });
  segments.push({ kind: "free", bytes: free, title: "free for models" });
  const words = held.map((one) => `${one.model ?? "another model"} ${bytes(one.sum)}`);
  const label =
    `${device.name}, ${bytes(device.total_bytes)}: ` +
    [...words, `other programs ${bytes(device.others_bytes)}`, `free for models ${bytes(free)}`].join(", ");
  return html`<section class="device" aria-label=${`Device ${device.name}${of && ` of ${of}`}`}>
    <header>
      <h3>${device.name} <span class="muted small">${device.description || (device.name === "CPU" ? "main memory" : device.backend)}</span></h3>
      <span class="small muted">${bytes(free)} free for models, of ${bytes(device.total_bytes)}</span>
    </header>
    <${Bar} segments=${segments} total=${device.total_bytes} label=${label} />
    <ul class="holders">
      ${held.map(
        (one, at) => html`<li key=${at}>
          <b>${one.model ?? "another model"}</b> ${bytes(one.sum)}${" "}
          <span title=${one.measured ? "as the engine accounts for it" : "as planned"}>
            (${PARTS.filter(([field]) => one[field] > 0)
              .map(([field, , name]) => `${name} ${bytes(one[field])}`)
              .join(", ") || "nothing here"})
          </span>
        </li>`,
      )}
      ${held.length === 0 && html`<li>No model is here. Other programs use ${bytes(device.others_bytes)}.</li>`}
    </ul>
  </section>`;
}

/** The same of a plan: what each device would hold. `devices`: those of GET /api/v1/memory, for their sizes. */
export function PlanBars({ plan, devices }) {
  const sizes = new Map((devices ?? []).map((one) => [one.name, one.total_bytes]));
  return html`<div class="planned device">
    ${plan.parts.map((part) => html`<${PlannedBar} key=${part.name} part=${part} total=${sizes.get(part.name)} />`)}
    <${Legend} elsewhere="in use already" />
  </div>`;
}

function PlannedBar({ part, total }) {
  const parts = {
    weights_bytes: part.weights_bytes - part.paged_bytes,
    kv_bytes: part.kv_bytes + part.recurrent_bytes,
    compute_bytes: part.compute_bytes + part.output_bytes,
    other_bytes: part.projector_bytes + part.draft_bytes,
  };
  const mine = part.total_bytes + part.left_bytes;
  const segments = PARTS.map(([field, kind, name]) => ({ kind, bytes: parts[field], title: name }));
  segments.push({ kind: "reserve", bytes: part.reserve_bytes, title: "kept back for the engine" });
  segments.push({ kind: "elsewhere", bytes: Math.max(0, (total ?? mine) - mine), title: "in use already, or kept back" });
  segments.push({ kind: "free", bytes: part.left_bytes, title: "left free" });
  const told = segments.filter((one) => one.bytes > 0).map((one) => `${one.title} ${bytes(one.bytes)}`);
  return html`<section class="device" aria-label=${`Plan for ${part.name}`}>
    <header>
      <h3>${part.name} <span class="muted small">${part.layers ? plural(part.layers, "layer") : ""}</span></h3>
      <span class="small muted">${bytes(part.total_bytes)} taken, ${bytes(part.left_bytes)} left</span>
    </header>
    <${Bar} segments=${segments} total=${total ?? mine} label=${`${part.name}: ${told.join(", ")}`} />
  </section>`;
}

/** What is missing where, of a plan that does not fit. */
export function Shortages({ shortages }) {
  return html`<div class="device">
    ${shortages.map(
      (one) => html`<section class="device" key=${one.device} aria-label=${`Shortage on ${one.device}`}>
        <header>
          <h3>${one.device}</h3>
          <span class="small muted">${bytes(one.needed_bytes)} needed, ${bytes(one.usable_bytes)} free for it</span>
        </header>
        <${Bar}
          total=${one.needed_bytes}
          label=${`${one.device}: ${bytes(one.missing_bytes)} missing`}
          segments=${[
            { kind: "weights", bytes: one.usable_bytes, title: "has room" },
            { kind: "missing", bytes: one.missing_bytes, title: "missing" },
          ]}
        />
        <span class="small bad">${bytes(one.missing_bytes)} missing</span>
      </section>`,
    )}
  </div>`;
}
