#!/bin/sh
# run.sh -- the tests on a GPU. Kernels are compiled on as many cores as there
# are; prints "N passed, N failed" last.
#   tests/cuda/run.sh [quick | few] [NAME...]    as laws.lua takes them
#   tests/cuda/run.sh sanitize [NAME...]         under compute-sanitizer:
#                           CHECKS, its tools; SECONDS_EACH, as long at most
# BUILD is where the binaries are (build), JOBS how many run side by side.
build=${BUILD:-build}
cd "$(dirname "$0")/../.." || exit 1
jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
FLIN_CACHE=${FLIN_CACHE:-$tmp/cache}
export FLIN_CACHE

# laws NAME COMMAND... -- WORDS: every share of the laws, through the command
laws() {
    name=$1
    shift
    i=0
    while [ $i -lt "$jobs" ]; do
        { "$@" "$build/flin" tests/cuda/laws.lua $i/"$jobs" $words
          echo "exit $?"; } >"$tmp/$name.$i" 2>&1 &
        i=$((i + 1))
    done
    wait
}

sanitize() {
    tool=$(command -v compute-sanitizer || ls -d \
        /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | tail -n 1)
    [ -n "$tool" ] || { echo "skip: no compute-sanitizer"; exit 0; }
    words="few sanitized $*"
    laws compile env            # so that the kernels are in the cache
    for check in ${CHECKS:-memcheck racecheck synccheck initcheck}; do
        start=$(date +%s)
        laws $check timeout ${SECONDS_EACH:-300} "$tool" --tool $check \
            --error-exitcode 9
        clean=$(cat "$tmp/$check".* | grep -c 'SUMMARY: 0')
        echo "$check: $(($(date +%s) - start)) s, $clean of $jobs clean"
        grep -h -A12 '=========' "$tmp/$check".* | grep -v 'SUMMARY: 0' |
            grep -v COMPUTE-SANITIZER | head -n 40
    done
}

if [ "$1" = sanitize ]; then
    shift
    sanitize "$@"
else
    words=$*
    laws laws env
    "$build/tests/cuda/calls" >"$tmp/laws.calls" 2>&1
fi
grep -h '^FAIL\|rror\|^skip\|host time' "$tmp"/*.* | sort -u | head -n 200
grep -h 'of what is allowed' "$tmp"/*.* | sort -t: -k2,2 -k1,1nr |
    sort -t: -s -u -k2,2
for f in $(grep -L ' passed, \|^skip' "$tmp"/*.*); do
    echo "ended early: $(tail -n 4 "$f")"
done
lost=$(grep -L ' passed, \|^skip' "$tmp"/*.* | wc -l)
cat "$tmp"/*.* | awk -v lost="$lost" '/ passed, .* failed$/ { p += $1; f += $3 }
    END { if (lost) print lost " processes ended early"
          print p + 0 " passed, " f + lost " failed"; exit f + lost > 0 }'
