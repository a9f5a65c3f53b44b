// Keeps the store as the daemon is. Nothing is asked while the tab is hidden.

import { Refused, call, events, get, told } from "./api.js";
import { now, put, putIn } from "./store.js";

const LOOK_MS = 3000; // between two looks at the devices, and at what has come of running requests
const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 10000;

let following = null; // the controller of the stream of events
const watched = { memory: 0, nodes: 0, speeds: 0 }; // parts of the page that show it
let timer = 0;
let asking = false; // for the nodes

/** Follow the daemon from now on. */
export function begin() {
  document.addEventListener("visibilitychange", () => (document.hidden ? pause() : resume()));
  if (!document.hidden) resume();
}

/** Ask again: after a key was given. */
export function resume() {
  pause();
  following = new AbortController();
  follow(following.signal);
  tick();
}

function pause() {
  following?.abort();
  following = null;
  put({ connected: false });
  clearTimeout(timer);
  timer = 0;
}

async function follow(signal) {
  let wait = FIRST_RETRY_MS;
  while (!signal.aborted) {
    try {
      put({ cluster: null }); // a daemon that is in no cluster stays so until it ends
      await refreshStatus(signal);
      const response = await call("GET", "/api/v1/events", undefined, { signal });
      put({ connected: true, failure: null, locked: false, denied: null });
      wait = FIRST_RETRY_MS;
      for await (const { event, data } of events(response)) heard(event, data);
    } catch (error) {
      if (signal.aborted) return;
      put({ connected: false, failure: told(error) });
      if (error instanceof Refused && error.status === 401) return;
      if (error instanceof Refused && error.status === 403) return deny(error, signal);
    }
    if (signal.aborted) return;
    put({ connected: false });
    await new Promise((go) => setTimeout(go, wait));
    wait = Math.min(wait * 2, LAST_RETRY_MS);
  }
}

/** A key that may use models, and not look: only their names are known. */
async function deny(error, signal) {
  put({ denied: error.message });
  try {
    const { data } = await get("/v1/models", { signal });
    put({ names: data.map((one) => one.id) });
  } catch {
    // it may not even do that
  }
}

export async function refreshStatus(signal) {
  put({ status: await get("/api/v1/status", { signal }) });
}

function heard(event, data) {
  if (event === "snapshot") {
    put({
      known: true,
      models: new Map(data.models.map((one) => [one.id, one])),
      requests: new Map(data.requests.map((one) => [one.id, one])),
    });
  } else if (event === "model") {
    const before = now().models.get(data.id);
    putIn("models", data.id, data);
    if (before?.state !== data.state) lookSoon();
  } else if (event === "model_removed") putIn("models", data.id, null);
  else if (event === "request") putIn("requests", data.id, data);
  else if (event === "request_done") {
    put({ ended: now().ended + 1 });
    putIn("requests", data.id, null);
  }
}

/** Look at it until the returned function is called: `memory`, the devices; `nodes`, of a cluster; `speeds`, of requests. */
export function watch(what) {
  watched[what] += 1;
  if (watched[what] === 1) tick();
  return () => {
    watched[what] -= 1;
  };
}

function lookSoon() {
  if (!timer) return;
  clearTimeout(timer);
  timer = setTimeout(tick, 150);
}

async function tick() {
  clearTimeout(timer);
  timer = 0;
  if (!(watched.memory || watched.nodes || watched.speeds) || document.hidden || now().locked || now().denied || !following) return;
  const { signal } = following;
  try {
    await Promise.all([
      watched.memory && lookAtMemory(signal),
      watched.nodes && lookAtNodes(signal),
      watched.speeds && lookAtSpeeds(signal),
    ]);
  } catch {
    // the stream of events says what is wrong
  }
  if (signal.aborted) return;
  clearTimeout(timer);
  timer = setTimeout(tick, LOOK_MS);
}

async function lookAtMemory(signal) {
  put({ memory: await get("/api/v1/memory", { signal }) });
}

/** In no cluster, once is enough; a node may take seconds to answer. */
async function lookAtNodes(signal) {
  if (asking || now().cluster?.node === null) return;
  asking = true;
  try {
    put({ cluster: await get("/api/v1/cluster/nodes", { signal }) });
  } finally {
    asking = false;
  }
}

/** What has come of running requests is no event; one that has ended meanwhile stays away. */
async function lookAtSpeeds(signal) {
  if (![...now().requests.values()].some((one) => one.state === "running")) return;
  const { requests } = await get("/api/v1/requests", { signal });
  const fresh = new Map(requests.map((one) => [one.id, one]));
  put({ requests: new Map([...now().requests].map(([id, one]) => [id, fresh.get(id) ?? one])) });
}
