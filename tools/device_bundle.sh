#!/bin/sh
# device_bundle.sh -- what a bare machine with a GPU needs to run the tests
# there: binaries, the libraries that they want, the tests. Stripped.
#   tools/device_bundle.sh DIR      then there: DIR/run [WORDS of run.sh]
#                           or, as often as it takes: DIR/run lease [PART...]
set -e
[ -n "$1" ] || { sed -n '2,5s/^# //p' "$0"; exit 2; }
cd "$(dirname "$0")/.."
build=${BUILD:-build}
rm -rf "$1"
mkdir -p "$1/build/tests/cuda" "$1/tests/cuda" "$1/lib" "$1/lang"
for b in flin libflin.so tests/cuda/bench tests/cuda/calls tests/cuda/cache \
    tests/cuda/compile_tiles tests/cuda/inplace tests/cuda/limits \
    tests/cuda/moves tests/cuda/strided; do
    strip -o "$1/build/$b" "$build/$b"
done
cp tests/cuda/*.lua tests/cuda/run.sh tests/cuda/lease.sh "$1/tests/cuda"
cp -r lang/python lang/flin.h "$1/lang"
cp -r stdlib "$1"
cp -r tests/python tests/bench tests/variants "$1/tests"
ldd "$build/flin" | awk '$3 ~ "^/" { print $3 }' |
    grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so' |
    while read -r lib; do
        cp -L "$lib" "$1/lib"
    done
cat > "$1/run" <<'END'
#!/bin/sh
# The tests on this machine's GPU; words as tests/cuda/run.sh takes them, or
# "lease" and tests/cuda/lease.sh's.
cd "$(dirname "$0")" || exit 1
export LD_LIBRARY_PATH="$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export BUILD=build
[ "$1" != lease ] || { shift; exec sh tests/cuda/lease.sh "$@"; }
exec sh tests/cuda/run.sh "$@"
END
chmod +x "$1/run"
du -sh "$1"
