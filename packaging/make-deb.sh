#!/bin/bash
# Builds the Debian packages of this checkout with dpkg-buildpackage, and asks lintian about them. They lie in
# build/deb/packages then. Usage: make-deb.sh
set -euo pipefail
cd "$(dirname "$0")/.."
top=$PWD
# Debian's own tools, and no others of the same name: another python3 lacks what Debian's helpers import.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
version=$(dpkg-parsechangelog -l packaging/debian/changelog -S Version)
upstream=${version%-*}
folder=build/deb
source=$folder/gradwire-$upstream
rm -rf "$folder"
mkdir -p "$source" "$folder/packages"

# The files as they are now, also if they are not committed. dpkg-source wants the archive without debian/.
git ls-files -z --cached --others --exclude-standard -- . ':!packaging/debian' |
    tar --create --null --files-from=- --ignore-failed-read --warning=no-failed-read | tar --extract -C "$source"
tar --create --xz --file "$folder/gradwire_$upstream.orig.tar.xz" -C "$folder" --sort=name --owner=0 --group=0 \
    --numeric-owner --mtime="@$(git log -1 --format=%ct)" "gradwire-$upstream"
cp -r packaging/debian "$source/debian"

(cd "$source" && dpkg-buildpackage --no-sign -j"${JOBS:-$(nproc)}")
mv "$folder"/*.deb "$folder"/*.changes "$folder"/*.buildinfo "$folder"/*.dsc "$folder"/*.tar.* "$folder/packages"
rm -rf "$source"
# Nobody has asked Debian for these packages, so there is no bug to close.
lintian --fail-on error,warning --display-info --suppress-tags initial-upload-closes-no-bugs \
    "$folder"/packages/*.changes
echo "packages: $top/$folder/packages"
