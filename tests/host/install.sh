#!/bin/sh
# install.sh -- what `make install` leaves, used as a stranger would: compiled
# against through pkg-config, as C99 and as C++, shared and static, and loaded
# by a plain Lua.
set -e
BUILD=${BUILD:-build} CC=${CC:-cc} CXX=${CXX:-c++}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
strict="-pedantic -Wall -Wextra -Werror -Wshadow"

${MAKE:-make} --no-print-directory -s install BUILD="$BUILD" PREFIX="$dir" \
    >/dev/null
export PKG_CONFIG_PATH="$dir/lib/pkgconfig"
echo '#include <flin.h>
int main(void) { return flin_version() != FLIN_VERSION_NUMBER; }' >"$dir/v.c"
cp "$dir/v.c" "$dir/v.cc"

$CC -std=c99 $strict $SAN $(pkg-config --cflags flin) "$dir/v.c" -o "$dir/v" \
    $(pkg-config --libs flin) -Wl,-rpath,"$dir/lib"
"$dir/v"
if command -v "$CXX" >/dev/null; then
    $CXX -std=c++98 -Wno-long-long $strict $SAN $(pkg-config --cflags flin) \
        "$dir/v.cc" -o "$dir/v" $(pkg-config --libs flin) \
        -Wl,-rpath,"$dir/lib"
    "$dir/v"
fi

# The version: of the header, of pkg-config, of the program.
version=$(sed -n 's/^#define FLIN_VERSION_[MP].* \([0-9]*\)$/\1/p' \
    "$dir/include/flin.h" | paste -sd.)
[ "$version" = "$(pkg-config --modversion flin)" ]
"$dir/bin/flin" --version | grep -q "^flin $version,"

# Without the shared library: all that libflin.a needs is in the .pc file.
mkdir "$dir/static"
cp "$dir/lib/libflin.a" "$dir/static"
$CC -std=c11 $SAN $(pkg-config --cflags flin) examples/embed.c -o "$dir/e" \
    -L"$dir/static" $(pkg-config --static --libs flin |
                      sed "s|-L$dir/lib||") -lm
"$dir/e" >/dev/null

# The man page names each option that --help does; editors get their file, and
# people the examples.
"$dir/bin/flin" --help | grep -oE '(^| )--?[a-zA-Z][a-z-]*' | sort -u |
    while read -r option; do
        sed 's/\\-/-/g' "$dir/share/man/man1/flin.1" |
            grep -qE -- "(^|[^a-z-])$option([^a-z-]|$)" || {
            echo "flin.1 lacks $option"
            exit 1
        }
    done
grep -q '^---@class flin.Variant' "$dir/share/flin/flin.d.lua"
"$dir/bin/flin" "$dir/share/doc/flin/examples/01_define.lua" >/dev/null

# A package of Debian's, unpacked: its program runs, it names what it needs.
if [ -z "$SAN" ] && command -v dpkg-shlibdeps >/dev/null; then
    VERSION=$version DIST="$dir/deb" sh tools/deb.sh >/dev/null
    dpkg-deb -x "$dir"/deb/flin_*.deb "$dir/unpacked"
    "$dir/unpacked/usr/bin/flin" --version | grep -q "^flin $version,"
    dpkg-deb -f "$dir"/deb/flin_*.deb Depends | grep -q 'libc6 .*liblua5.4'
fi

# A rock takes Lua's names from its host.
if [ -z "$SAN" ]; then
    ${MAKE:-make} --no-print-directory -s rock BUILD="$BUILD" >/dev/null
    if readelf -d "$BUILD/flin.so" | grep 'NEEDED.*lua'; then exit 1; fi
fi

if [ -z "$SAN" ] && command -v lua5.4 >/dev/null; then
    LUA_CPATH="$dir/lib/lua/5.4/?.so" \
        lua5.4 -l flin -e 'assert(flin.zeros(2, 3).count == 6)'
    LUA_CPATH="$BUILD/?.so" lua5.4 -l flin \
        -e 'assert(flin.stdlib.gla:check { T = 30 }.worst < 1e-5)'
fi
