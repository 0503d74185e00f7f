#!/bin/sh
# setup.sh -- install what is missing (Debian and Ubuntu); --check only says
# what is missing, --tests installs what tests want, too, --docs what pages are
# made with. Silent when nothing is missing.
miss= want=
have() { command -v "${1%% *}" >/dev/null 2>&1; }     # "ccache cc", too
header() {
    echo "#include <$1>" | ${CC:-cc} -E $2 -x c - >/dev/null 2>&1
}

have "${CC:-cc}" || miss="$miss gcc libc6-dev"
have pkg-config || miss="$miss pkg-config"
have objcopy || miss="$miss binutils"
if have "${CC:-cc}"; then
    header stdio.h || miss="$miss libc6-dev"
    lua=$(pkg-config --cflags lua5.4 2>/dev/null ||
          pkg-config --cflags lua-5.4 2>/dev/null ||
          pkg-config --cflags lua54 2>/dev/null || echo -I/usr/include/lua5.4)
    [ -n "$LUA_SRC" ] || header lua.h "$lua" || miss="$miss liblua5.4-dev"
    [ "$GLPK" = 0 ] || header glpk.h || miss="$miss libglpk-dev"
    # wanted, but the prompt can do without
    [ "$LIBEDIT" = 0 ] || header histedit.h || want=" libedit-dev"
else
    miss="$miss liblua5.4-dev libglpk-dev"
    want=" libedit-dev"
fi
[ "$1" != --docs ] || {
    have cmark-gfm || miss="$miss cmark-gfm"
    have python3 || miss="$miss python3"
}
[ "$1" != --tests ] || have cmark-gfm || want="$want cmark-gfm"
# A Python with NumPy and PyTorch: without, the tests of its door are skipped.
if [ "$1" = --tests ]; then
    with=
    for p in python3 /usr/bin/python3; do
        "$p" -c "import importlib.util as u, sys
sys.exit(not (u.find_spec('numpy') and u.find_spec('torch')))" 2>/dev/null &&
            with=$p
    done
    [ -n "$with" ] || want="$want python3-numpy python3-torch"
fi
if [ "$(id -u)" = 0 ]; then
    root=
elif have sudo && sudo -n true 2>/dev/null; then
    root="sudo -n"
else
    root=none
fi
if [ -z "$miss" ]; then
    [ -n "$want" ] && [ "$1" != --check ] && have apt-get &&
        [ "$root" != none ] || exit 0
fi

say="flin needs:$miss (Debian's names), and has not found them here."
if [ "$1" = --check ]; then
    echo "$say \`make test\` installs them, on Debian and Ubuntu." >&2
    exit 1
fi
if ! have apt-get; then
    echo "$say Please install them with this system's packages." >&2
    exit 1
fi
if [ "$root" = none ]; then
    echo "$say Please run: sudo apt-get install$miss" >&2
    exit 1
fi
echo "installing$miss$want"
log=$(mktemp)
export DEBIAN_FRONTEND=noninteractive
if ! { timeout 300 $root apt-get update && $root apt-get install -y \
       --no-install-recommends $miss; } >"$log" 2>&1 &&
    [ -n "$miss" ]; then
    tail -n 5 "$log" >&2
    rm -f "$log"
    echo "$say apt-get could not install them (above)." >&2
    exit 1
fi
rm -f "$log"
# Each by itself: a system may lack one.
for p in $want; do
    timeout 300 $root apt-get install -y --no-install-recommends "$p" \
        >/dev/null 2>&1 || echo "no $p here: going on without"
done
