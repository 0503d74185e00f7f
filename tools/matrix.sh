#!/bin/sh
# matrix.sh -- flin as others have it: built and tried with each that is here.
#   tools/matrix.sh [PART...]   parts: compilers luas musl aarch64 pythons torch
#
# LUA_TREES   folders of Lua's sources (lua.h and the .c files), any versions:
#             each is tried; musl and aarch64 take the last one
# PYTHONS     interpreters to try, with NumPy in virtual environments; default:
#             python3.10 to python3.14, where they are there
# CC          in front of each compiler stands WRAP, "ccache" perhaps
# Whatever is not there is said and left out. Results stand in build/matrix; a
# line each, and exit code 1 where one is wrong.
cd "$(dirname "$0")/.." || exit 1
all=$PWD/build/matrix
make=${MAKE:-make}
jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
wrong=0
mkdir -p "$all"
lua=
for tree in $LUA_TREES; do lua=$(realpath "$tree"); done

none() { echo "none  $1"; }

# try NAME RUNNER MAKE-ARGUMENTS...: builds, and runs scripts of the tests.
try() {
    name=$1 runner=$2 log=$all/$1.log
    shift 2
    if ! $make --no-print-directory -j"$jobs" BUILD="$all/$name" "$@" \
        CFLAGS="-O2 -g -Werror" "$all/$name/flin" "$all/$name/libflin.so" \
        "$all/$name/tests/unit/cpu" "$all/$name/tests/unit/api" \
        >"$log" 2>&1; then
        echo "WRONG $name: does not build: $log"
        wrong=1
        return
    fi
    {
        $runner "$all/$name/tests/unit/cpu" || echo "FAIL unit/cpu"
        $runner "$all/$name/tests/unit/api" || echo "FAIL unit/api"
        for t in calls gates stdlib tensor sandbox methods; do
            $runner "$all/$name/flin" $(sed -n '1s/^-- flin: //p' \
                tests/lua/$t.lua) tests/lua/$t.lua || echo "FAIL $t"
        done
    } >"$log" 2>&1
    judge "$name" "$log"
}

judge() {       # NAME LOG
    sum=$(awk '/^[0-9]+ passed, [0-9]+ failed/ { p += $1; f += $3 }
               /^FAIL |^Traceback/ { f++ }
               END { print p + 0, f + 0 }' "$2")
    case $sum in
    "0 "*|*" "[1-9]*) echo "WRONG $1: $sum (passed, failed): $2"; wrong=1 ;;
    *) echo "ok    $1: ${sum% *} passed" ;;
    esac
}

compilers() {
    for cc in gcc gcc-11 gcc-13 gcc-14 clang clang-16 clang-17 clang-19; do
        command -v $cc >/dev/null || continue
        try $cc "" CC="$WRAP $cc"
    done
    try no-glpk "" CC="$WRAP gcc" GLPK=0 LIBEDIT=0
}

# Under one name, so that ccache knows what does not see Lua.
luas() {
    [ -n "$LUA_TREES" ] || none "luas: LUA_TREES names no sources"
    for tree in $LUA_TREES; do
        release=$(sed -n 's/^#define LUA_VERSION_RELEASE.*"\([0-9]*\)".*/\1/p
            s/^#define LUA_VERSION_RELEASE[^_].* \([0-9][0-9]*\)$/\1/p' \
            "$tree/lua.h" | head -n 1)
        ln -sfn "$(realpath "$tree")" "$all/lua"
        try "lua-$(basename "$tree")${release:+-$release}" "" \
            CC="$WRAP ${CC:-gcc}" LUA_SRC="$all/lua" GLPK=0
    done
}

musl() {
    command -v musl-gcc >/dev/null || { none "musl: no musl-gcc"; return; }
    [ -n "$lua" ] || { none "musl: LUA_TREES names no sources"; return; }
    try musl "" CC="$WRAP musl-gcc" LUA_SRC="$lua" GLPK=0 LIBEDIT=0
}

aarch64() {
    cross=aarch64-linux-gnu
    command -v $cross-gcc >/dev/null || {
        none "aarch64: no $cross-gcc"
        return
    }
    command -v qemu-aarch64 >/dev/null || { none "aarch64: no qemu"; return; }
    [ -n "$lua" ] || { none "aarch64: LUA_TREES names no sources"; return; }
    try aarch64 "qemu-aarch64 -L /usr/$cross" CC="$WRAP $cross-gcc" \
        LD=$cross-ld AR=$cross-ar OBJCOPY=$cross-objcopy LUA_SRC="$lua" \
        GLPK=0 LIBEDIT=0
}

# with PYTHON NAME TESTS...: on the library that make has built.
with() {
    python=$1 name=$2
    shift 2
    for t; do
        FLIN_LIB=$PWD/build/libflin.so PYTHONDONTWRITEBYTECODE=1 \
            "$python" -W ignore "tests/python/$t.py" || echo "FAIL $t"
    done >"$all/$name.log" 2>&1
    judge "$name" "$all/$name.log"
}

pythons() {
    for python in ${PYTHONS:-python3.10 python3.11 python3.12 python3.13 \
                             python3.14}; do
        version=$("$python" -c 'import sys
print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
        venv=$all/python-$version
        [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
        "$venv/bin/pip" install --quiet numpy >"$all/pip.log" 2>&1 ||
            { none "python $version: no NumPy for it"; continue; }
        with "$venv/bin/python" "python-$version" variant_reports \
            numpy_calls install_wheel
    done
}

# The newest of PyPI, kept in build/torch: five gigabytes, as its wheels for
# Linux come with CUDA, so that this is no part of `make test`, which uses it
# once it is there.
torch() {
    if ! build/torch/bin/python -c 'import torch, numpy' 2>/dev/null; then
        ${PYTHON:-python3} -m venv build/torch
        build/torch/bin/pip install --quiet torch numpy >"$all/pip.log" 2>&1 ||
            { none "torch: not to be had"; return; }
    fi
    with build/torch/bin/python "torch-$(build/torch/bin/python -c \
        'import torch; print(torch.__version__)')" torch_calls torch_compile \
        torch_ddp torch_inductor
}

[ $# != 0 ] || set -- compilers luas musl aarch64 pythons torch
for part; do
    $part
done
exit $wrong
