// What the page knows, in one place. Whoever shows a part of it is told of every change.

import { useEffect, useState } from "./preact.js";

const state = {
  locked: false, // a key is needed
  connected: false,
  failure: null, // why it is not connected
  denied: null, // the key may not look: what the daemon says of it
  known: false, // models and requests are those of the daemon
  status: null, // GET /api/v1/status
  models: new Map(), // by id
  requests: new Map(), // by number
  ended: 0, // requests that have ended since the page was opened
  names: [], // of models, for a key that may not look
  memory: null, // GET /api/v1/memory
  cluster: null, // GET /api/v1/cluster/nodes
  loads: new Map(), // by target: {status, error, done} of loads begun here
};
const listeners = new Set();

export function now() {
  return state;
}

/** Change parts of the state, and tell. */
export function put(changes) {
  Object.assign(state, changes);
  for (const listener of listeners) listener();
}

/** Change one of the maps; null removes an entry. */
export function putIn(name, key, value) {
  const map = new Map(state[name]);
  if (value === null) map.delete(key);
  else map.set(key, value);
  put({ [name]: map });
}

/** The state, for a component: it is drawn again after a change, at most once per frame. */
export function useStore() {
  const [, draw] = useState(0);
  useEffect(() => {
    let frame = 0;
    const changed = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        draw((number) => number + 1);
      });
    };
    listeners.add(changed);
    return () => {
      listeners.delete(changed);
      cancelAnimationFrame(frame);
    };
  }, []);
  return state;
}
