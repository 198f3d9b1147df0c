#!/bin/bash
# systemd understands the parameter server's unit, and its sandbox stays closed. Usage: service.sh SOURCE_DIR
set -euo pipefail
unit=$1/packaging/gradwire-server.service
command -v systemd-analyze >/dev/null || { echo "skipped: systemd-analyze is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The tool and the manual pages are not installed here, so leave them out of the unit.
sed 's/^ExecStart=gradwire /ExecStart=true /; /^Documentation=/d' "$unit" >"$work/gradwire-server.service"
said=$(systemd-analyze verify --man=no "$work/gradwire-server.service" 2>&1) || { echo "$said"; exit 1; }
[ -z "$said" ] || { echo "$said"; exit 1; }
# The threshold is the exposure, from 0 to 10, times 10. A server that needs the network and a user has 1.4.
if ! systemd-analyze security --offline=yes --threshold=20 --no-pager "$work/gradwire-server.service" \
    >"$work/said" 2>/dev/null; then
    grep -v '^✓' "$work/said"
    echo "the sandbox is more open than it was; see systemd.exec(5)"
    exit 1
fi
tail -n 1 "$work/said"
