#!/bin/bash
# Tries this checkout on another Debian, in a chroot that it makes. As root.
#
#   try-on.sh SYSTEM [PART...]       SYSTEM: debian12, debian13 or unstable
#     build   (default) builds without warnings, and runs the quick tests
#     run     make run, as a new user does
#     check   make check
#     torch   the tests of the PyTorch plug-in, with the system's own PyTorch
#     deb     makes the Debian packages there; installs, tests and purges them in a fresh chroot
#   CHROOTS=DIR    where the chroots are kept (default /var/cache/gradwire). A chroot that is there is used again.
#   MIRROR=URL     where Debian comes from (default: where apt of this machine gets it)
#
# Each part begins with a copy of the checkout as it is now, also of what is not committed.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | grep -v '^set' >&2; exit 2; }
case ${1:-} in
debian12) suite=bookworm ;;
debian13) suite=trixie ;;
unstable) suite=sid ;;
*) usage ;;
esac
system=$1
parts=("${@:2}")
[ ${#parts[@]} -gt 0 ] || parts=(build)
for part in "${parts[@]}"; do
    case $part in build | run | check | torch | deb) ;; *) usage ;; esac
done
[ "$(id -u)" = 0 ] || { echo "try-on.sh: a chroot needs root" >&2; exit 1; }
# Mounts and processes end with this script, because they live in namespaces of their own.
if [ -z "${GRADWIRE_IN_NAMESPACE:-}" ]; then
    "$top/scripts/install-deps.sh" chroot
    GRADWIRE_IN_NAMESPACE=yes exec unshare --mount --pid --fork --kill-child --mount-proc "$0" "$@"
fi
chroots=${CHROOTS:-/var/cache/gradwire}
jobs=${JOBS:-$(nproc)}
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' |
    sed '/security/d' | sed -n 1p)}
[ -n "$mirror" ] || { echo "try-on.sh: apt has no source of Debian here; name one by MIRROR=URL" >&2; exit 1; }
root=$chroots/$system
failed=0

# Two at a time would remove each other's copy of the checkout.
mkdir -p "$chroots"
exec 9>"$root.lock"
flock -w 1800 9 || { echo "try-on.sh: another one has been working in $root for half an hour" >&2; exit 1; }

say() { printf '%s  %s: %s\n' "$(date +%T)" "$system" "$*"; }
inside() { # FOLDER COMMAND...
    chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        JOBS="$jobs" GLIBC_TUNABLES="${GLIBC_TUNABLES:-}" "${@:2}"
}

# Makes a chroot. It gets its name when it is whole.
make_root() { # FOLDER
    local new=$1.new
    say "debootstrap of $suite"
    rm -rf "$new"
    mkdir -p "$new"
    if ! debootstrap --variant=minbase "$suite" "$new" "$mirror" >"$new.log" 2>&1; then
        tail -n 30 "$new.log"
        say "debootstrap failed"
        exit 1
    fi
    # Mirrors of unstable are often some days old.
    echo 'Acquire::Check-Valid-Until "false";' >"$new/etc/apt/apt.conf.d/00try-on"
    printf '#!/bin/sh\nexit 101\n' >"$new/usr/sbin/policy-rc.d" # no service starts in a chroot
    chmod 755 "$new/usr/sbin/policy-rc.d"
    rm -f "$new.log"
    mv "$new" "$1"
}

enter() { # FOLDER: what programs expect to find
    mount --rbind /dev "$1/dev"
    mount -t proc proc "$1/proc"
    mount -t sysfs sys "$1/sys"
    cp /etc/resolv.conf "$1/etc/resolv.conf"
}

bring_source() {
    rm -rf "$root/source"
    mkdir "$root/source"
    (cd "$top" && git ls-files -z --cached --others --exclude-standard |
        tar --create --null --files-from=- --ignore-failed-read --warning=no-failed-read) |
        tar --extract --no-same-owner -C "$root/source"
}

try_deb() {
    inside "$root" sh -c 'cd /source && git init -q && git add -A &&
        git -c user.name=test -c user.email=test@localhost commit -q -m all && make deb' || return 1
    local fresh=$chroots/$system.packages
    rm -rf "$fresh"
    make_root "$fresh"
    "$top/packaging/try-packages.sh" "$root/source/build/deb/packages" "$fresh" || return 1
    umount -l "$fresh/proc"
    rm -rf "$fresh"
}

# build uses what install-deps.sh names, but neither its tests' Python modules nor other processors' compilers.
try_part() {
    case $1 in
    build) inside "$root" sh -c "cd /source && scripts/install-deps.sh build quick && scripts/builds.sh $jobs plain" ;;
    run | check) inside "$root" make -C /source "$1" ;;
    torch)
        inside "$root" sh -c "cd /source && scripts/install-deps.sh build check && cmake --preset release &&
            cmake --build --preset release -j $jobs && ctest --test-dir build/release -R '^python_' --output-on-failure"
        ;;
    deb) try_deb ;;
    esac
}

[ -d "$root" ] || make_root "$root"
enter "$root"
inside "$root" apt-get -q update >/dev/null
# Whoever has this checkout and types make has these two.
inside "$root" apt-get -q -y --no-install-recommends install git make >/dev/null
for part in "${parts[@]}"; do
    bring_source
    begin=$SECONDS log=$chroots/$system-$part.log
    if try_part "$part" >"$log" 2>&1; then
        said=$(grep -hE 'tests passed|all passed|times smaller' "$log" | tail -1)
        say "$part passed in $((SECONDS - begin)) s: $said"
    else
        tail -n 100 "$log"
        say "$part FAILED after $((SECONDS - begin)) s: $log has the rest"
        failed=1
    fi
done
exit $failed
