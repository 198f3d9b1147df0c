#!/bin/bash
# Installs the packages that make-deb.sh built into a fresh Debian, and runs their tests there (debian/tests), each with
# the packages that it names and no others. Then it purges them, and looks for what they left. scripts/try-on.sh calls
# it, which makes the chroot, and has namespaces of its own.
# Usage: try-packages.sh PACKAGES ROOT        the folder of the packages, and that of the chroot
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
packages=$1
root=$2
ls "$packages"/*.deb >/dev/null

step() { printf '%s  %s\n' "$(date +%T)" "$*"; }
# Runs a command. Shows what it prints only if it fails.
quietly() { "$@" >"$root.log" 2>&1 || { cat "$root.log"; exit 1; }; }
# Boots the chroot for one command, without a network.
booted() {
    printf '#!/bin/sh\n%s\necho $? >/status\nsystemctl poweroff\n' "$*" >"$root/command"
    chmod 755 "$root/command"
    cat >"$root/etc/systemd/system/command.service" <<'UNIT'
[Service]
ExecStart=/command
StandardOutput=file:/said
StandardError=inherit
UNIT
    mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
    ln -sf ../command.service "$root/etc/systemd/system/multi-user.target.wants"
    umount "$root/proc" # else systemd would find its first process in another place, and not start
    timeout 300 systemd-nspawn --quiet --directory "$root" --boot --register=no --keep-unit --private-network \
        </dev/null >"$root.boot" 2>&1 || cat "$root.boot"
    mount -t proc proc "$root/proc"
    local status=1
    [ ! -f "$root/said" ] || cat "$root/said"
    [ ! -f "$root/status" ] || status=$(cat "$root/status")
    rm -f "$root"/{command,said,status} "$root.boot" "$root"/etc/systemd/system/{,*/}command.service
    return "$status"
}
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }
apt_get() { quietly inside apt-get -q -y --no-install-recommends "$@"; }

mount -t proc proc "$root/proc"
mkdir "$root/packages" "$root/source"
cp "$packages"/*.deb "$root/packages"
(cd "$root/packages" && dpkg-scanpackages . 2>/dev/null >Packages)
echo "deb [trusted=yes] file:/packages ./" >"$root/etc/apt/sources.list.d/gradwire.list"
cp -r "$top/packaging/debian" "$root/source/debian"
(cd "$top" && cp -r --parents tests/house/outside examples "$root/source")
inside useradd --create-home tester
apt_get update

ours=$(sed -n 's/^Package: //p' "$root/packages/Packages" | sort -u)
# Lists every file of the system, except those that apt and dpkg write for themselves.
files() {
    inside find / -xdev \( -path /proc -o -path /packages -o -path /var/cache -o -path /var/lib/apt \
        -o -path /var/lib/dpkg -o -path /var/log -o -path /tmp \) -prune -o -print | sort
}

failed=0
run_test() { # NAME DEPENDS RESTRICTIONS
    apt_get install $(sed 's/ *([^)]*)//g; s/,/ /g' <<<"$2")
    local how=(inside runuser -u tester -- sh -c)
    if [[ $3 == *isolation-container* ]]; then
        how=(booted)
    elif [[ $3 == *needs-root* ]]; then
        how=(inside sh -c)
    fi
    if "${how[@]}" "cd /source && debian/tests/$1" >"$root.log" 2>&1; then
        step "passed: $1 (with $2)"
    else
        cat "$root.log"
        step "FAILED: $1 (with $2)"
        failed=1
    fi
    # shellcheck disable=SC2086 # names are words
    apt_get purge $ours
    apt_get autoremove --purge
}
name=
while IFS= read -r line; do
    case $line in
    Tests:*) name=${line#Tests: } depends= restrictions= ;;
    Depends:*) depends=${line#Depends: } ;;
    Restrictions:*) restrictions=${line#Restrictions: } ;;
    "") [ -z "$name" ] || run_test "$name" "$depends" "$restrictions"; name= ;;
    esac
done < <(cat "$root/source/debian/tests/control"; echo)

step "all packages: install, use the service's folder, purge"
# The packages on which they depend stay, so that only their own traces are compared.
# shellcheck disable=SC2086
apt_get install $(grep -v -e -dbgsym <<<"$ours")
apt_get purge $ours
files >"$root.before"
apt_get install $ours
inside runuser -u gradwire -- true
inside install -d -o gradwire /var/lib/gradwire/kept
apt_get purge $ours
files >"$root.after"
# adduser keeps a copy of the files before its last change: /etc/passwd- and so on.
left=$({
    comm -13 "$root.before" "$root.after"
    grep -i gradwire "$root.after"
    grep -rl gradwire "$root/etc"
    inside dpkg -l | grep -i gradwire
} | grep -v -e '^/source' -e 'sources.list.d/gradwire.list' -e '/etc/[a-z]*-$' || true)
if [ -n "$left" ]; then
    echo "this is left after a purge:"
    echo "$left"
    failed=1
fi
rm -f "$root.log" "$root.before" "$root.after"
if [ $failed = 0 ]; then
    step "all passed, and nothing is left after a purge"
fi
exit $failed
