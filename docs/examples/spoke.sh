#!/bin/sh
# This program's own spoke, as the conformance runner starts a spoke (docs/protocol.md, section 12):
#   spawnmesh conformance --spoke -- docs/examples/spoke.sh
# It joins with $SPAWNMESH_TOKEN the first time and keeps everything in $SPAWNMESH_STATE. The policy allows every
# command, and agents have the user of the spoke: only the runner is on the other side, and they write where it looks. SPAWNMESH names the program where it is not on the PATH.
set -eu
mesh="${SPAWNMESH:-spawnmesh}"
if [ ! -e "$SPAWNMESH_STATE/joined" ]; then
	"$mesh" --data-dir "$SPAWNMESH_STATE" spoke policy init --preset open --force
	printf 'isolation: none\nallow_root_agents: true\n' >>"$SPAWNMESH_STATE/policy.yaml"
	printf '%s\n' "$SPAWNMESH_TOKEN" | "$mesh" --data-dir "$SPAWNMESH_STATE" spoke join --yes
	touch "$SPAWNMESH_STATE/joined"
fi
exec "$mesh" --data-dir "$SPAWNMESH_STATE" spoke run --heartbeat 1s
