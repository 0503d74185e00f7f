#!/bin/sh
# deb.sh -- dist/flin_VERSION_ARCH.deb, of what `make` has built here: the
# program, the library and its header, for Lua, too. Its dependencies are those
# of what was linked, as dpkg-shlibdeps finds them.
set -e
cd "$(dirname "$0")/.."
for tool in dpkg-deb dpkg-shlibdeps dpkg-architecture; do
    command -v $tool >/dev/null || {
        echo "deb: there is no $tool here: it is of Debian's dpkg-dev" >&2
        exit 1
    }
done
BUILD=${BUILD:-build} DIST=${DIST:-dist}
arch=$(dpkg-architecture -qDEB_HOST_ARCH)
lib=/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

${MAKE:-make} --no-print-directory -s install BUILD="$BUILD" PREFIX=/usr \
    LIBDIR="$lib" DESTDIR="$root/flin" >/dev/null
strip --strip-unneeded "$root"/flin/usr/bin/flin "$root/flin$lib"/libflin.so.*
strip --strip-debug "$root/flin$lib/libflin.a"
gzip -9n "$root/flin/usr/share/man/man1/flin.1"
mv "$root/flin/usr/share/doc/flin/LICENSE" \
    "$root/flin/usr/share/doc/flin/copyright"
gzip -9n <"$root/flin/usr/share/doc/flin/CHANGELOG.md" \
    >"$root/flin/usr/share/doc/flin/changelog.gz"
rm "$root/flin/usr/share/doc/flin/CHANGELOG.md"
chmod 644 "$root/flin$lib"/libflin.so.*
mkdir "$root/debian" "$root/flin/DEBIAN"
printf 'Source: flin\n\nPackage: flin\nArchitecture: any\n' \
    >"$root/debian/control"
depends=$(cd "$root" && dpkg-shlibdeps -O flin/usr/bin/flin \
    "flin$lib"/libflin.so.* 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
cat >"$root/flin/DEBIAN/control" <<END
Package: flin
Version: $VERSION
Architecture: $arch
Maintainer: the flin authors <flin@localhost>
Section: science
Priority: optional
Depends: $depends
Suggests: libedit2
Description: linear-attention and state-space layers from one token's step
 An embeddable language and compiler: the mathematics of one token, written in
 Lua, becomes chunkwise forward and backward passes on the CPU and on NVIDIA
 GPUs. The program, the library, its header, a module for Lua 5.4.
END
echo "activate-noawait ldconfig" >"$root/flin/DEBIAN/triggers"
so=$(basename "$root/flin$lib"/libflin.so.*)
echo "libflin ${so##*.so.} flin (>= $VERSION)" >"$root/flin/DEBIAN/shlibs"
mkdir -p "$DIST"
dpkg-deb --root-owner-group --build "$root/flin" \
    "$DIST/flin_${VERSION}_$arch.deb" >/dev/null
echo "$DIST/flin_${VERSION}_$arch.deb"
