#!/bin/sh
# Have this container be a node of a cluster, and serve with the words that are given.
#
#   NODE_NAME   what it is called there
#   NODE_HOST   name or address at which other nodes reach it; an address of this container
#   FIRST_NODE  URL of the first node's daemon; empty or unset: this is the first node
#
# A node that is in a cluster already stays in it. One that cannot join ends with an error, to be started again.

set -eu

if [ ! -e "$SUPERVISOR_HOME/cluster/cluster.json" ]; then
    if [ -z "${FIRST_NODE:-}" ]; then
        supervisor cluster init --name "$NODE_NAME" --host "$NODE_HOST" \
            --port "${NODE_PORT:-8586}" --store-port "${STORE_PORT:-8587}"
    else
        token=$(supervisor cluster invite --url "$FIRST_NODE" --expires 5m)
        supervisor cluster join "$token" --name "$NODE_NAME" --host "$NODE_HOST" --port "${NODE_PORT:-8586}"
    fi
fi
exec supervisor serve "$@"
