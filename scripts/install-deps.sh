#!/bin/bash
# Installs the Debian packages that are missing for the named sets (build, check, docs ...) and nothing else.
# As root, or with sudo where it asks no password; otherwise it prints the command and fails.
set -euo pipefail

build=(cmake ninja-build gcc libc6-dev make pkg-config libxxhash-dev libdnnl-dev zlib1g-dev libbz2-dev liblzma-dev
       libjansson-dev libssl-dev libsqlite3-dev libmicrohttpd-dev libopenmpi-dev openmpi-bin)
run=(python3 iproute2)
quick=(libcmocka-dev python3)
check=(g++ libcmocka-dev python3 python3-numpy python3-torch python3-torchvision python3-venv mandoc
       gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user libmpich-dev mpich iproute2 nftables tcpdump clang-format
       black git doxygen ccache mkdocs mkdocs-material)
# This is a set of its own, for continuous integration. On a machine with an init system, Debian starts sshd and munged
# at once. It takes 6 MB to download, 32 MB of disk, and half a minute.
cluster=(slurm-wlm openssh-server openssh-client python3-yaml python3-kubernetes iproute2)
fuzz=(clang)
format=(clang-format black)
docs=(doxygen python3)
site=(mkdocs mkdocs-material git)
deb=(build-essential debhelper dh-python doxygen dpkg-dev git lintian pybuild-plugin-pyproject python3-all)
chroot=(debootstrap dpkg-dev systemd-container git)

wanted=()
for set in "$@"; do
    case $set in
    build) wanted+=("${build[@]}") ;;
    run) wanted+=("${run[@]}") ;;
    quick) wanted+=("${quick[@]}") ;;
    check) wanted+=("${check[@]}") ;;
    cluster) wanted+=("${cluster[@]}") ;;
    fuzz) wanted+=("${fuzz[@]}") ;;
    format) wanted+=("${format[@]}") ;;
    docs) wanted+=("${docs[@]}") ;;
    site) wanted+=("${site[@]}") ;;
    deb) wanted+=("${deb[@]}") ;;
    chroot) wanted+=("${chroot[@]}") ;;
    *)
        sets="build, run, quick, check, cluster, fuzz, format, docs, site, deb, chroot"
        echo "install-deps.sh: there is no set '$set'; there are $sets" >&2
        exit 2
        ;;
    esac
done

missing=()
for package in "${wanted[@]}"; do
    status=$(dpkg-query --show --showformat='${Status}\n' "$package" 2>/dev/null || true)
    grep -q '^install ok installed$' <<<"$status" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

echo "Missing packages: ${missing[*]}" >&2
if [ "$(id -u)" = 0 ]; then
    as_root=(env)
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root=(sudo -n env)
else
    echo "Please run this as root, then try again:" >&2
    echo "    apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
fi
"${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get update -q
"${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
