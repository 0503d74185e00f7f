#!/bin/sh
# run.sh -- the tests on a GPU. Kernels are compiled on as many cores as there
# are; prints "N passed, N failed" last.
#   tests/cuda/run.sh [quick | few] [NAME...]    as laws.lua takes them
#   tests/cuda/run.sh sanitize [CASE...]         sanitized.lua's (as gla.wide)
#                           under each of compute-sanitizer's tools, or CHECKS
# BUILD is where the binaries are (build), JOBS how many run side by side, on
# all GPUs that there are; what they say stays in LOGS, if that is set. LIMIT:
# seconds for it all. HALF: 1 or 2, of the laws; 2 has the C programs, too.
build=${BUILD:-build}
cd "$(dirname "$0")/../.." || exit 1
jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
log=${LOGS:-$tmp}
mkdir -p "$log"
FLIN_CACHE=${FLIN_CACHE:-$tmp/cache}
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
[ "$gpus" -gt 0 ] || gpus=1
export FLIN_CACHE build log gpus

# Every share of the laws, or every second one.
laws() {
    i=0 n=$jobs
    [ -z "$HALF" ] || n=$((2 * jobs))
    while [ $i -lt "$jobs" ]; do
        { CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-$((i % gpus))} \
          timeout $((${LIMIT:-3640} - 40)) \
          "$build/flin" tests/cuda/laws.lua \
              $((${HALF:-0} / 2 * jobs + i))/"$n" "$@"
          echo "exit $?"; } >"$log/laws.$i" 2>&1 &
        i=$((i + 1))
    done
    wait
}

# What a tool has found, where it has; and what took the longest.
show() {
    clean=$(cat "$log/$1".*.* | grep -c 'SUMMARY: 0')
    spent=$(sed -n 's/^exit .* \([0-9]*\) s$/\1/p' "$log/$1".*.* |
        awk '{ s += $1 } END { print s + 0 }')
    slow=$(grep -o '[0-9]* s$' "$log/$1".*.* | sed "s|^$log/$1.||" |
        sort -t: -k2,2nr | head -n 3 | tr '\n' ' ')
    echo "$1: $clean of $(wc -l <"$tmp/cases") clean, $spent s in all; $slow"
    for f in $(grep -l 'SUMMARY: [1-9]' "$log/$1".*.*); do
        echo "${f#"$log/"}"
        grep '^=========' "$f" | head -n 12
    done | head -n 100
}

# All cases under one tool after the other, without a pause between them. The
# first compiles the kernels, which the others find in the cache.
sanitize() {
    tool=$(command -v compute-sanitizer || ls -d \
        /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | tail -n 1)
    [ -n "$tool" ] || { echo "skip: no compute-sanitizer"; exit 0; }
    checks=${CHECKS:-memcheck racecheck synccheck initcheck}
    "$build/flin" tests/cuda/sanitized.lua >"$tmp/all"
    [ $# != 0 ] || set -- .
    for which; do grep "$which" "$tmp/all"; done >"$tmp/cases"
    start=$(date +%s)
    end=$((start + ${LIMIT:-900} - 20)) # whoever began has 20 s more
    export tool end
    for check in $checks; do sed "s/^/$check /" "$tmp/cases"; done |
        xargs -P "$jobs" -n 3 sh -c '
        from=$(date +%s) word=
        export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-$(($$ % gpus))}
        exec >"$log/$0.$1.$2" 2>&1
        [ $from -lt $end ] || { echo "no time left"; exit; }
        [ $0 != racecheck ] || word=short   # looks at each shared access
        [ $0 = initcheck ] && copies=no || copies=yes   # it sees no TMA stores
        timeout $((end + 20 - from)) "$tool" --tool $0 --error-exitcode 9 \
            --check-api-memory-access $copies --show-backtrace no \
            "$build/flin" tests/cuda/sanitized.lua $1 $2 $word
        echo "exit $?, $(($(date +%s) - from)) s"
    '
    echo "sanitized: $(($(date +%s) - start)) s"
    for check in $checks; do
        show $check
    done
}

if [ "$1" = sanitize ]; then
    shift
    sanitize "$@"
else
    laws "$@"
    # of the C API
    [ "$HALF" = 1 ] || for program in calls inplace limits moves strided; do
        timeout 100 "$build/tests/cuda/$program" >"$log/$program.c" 2>&1
    done
    [ "$HALF" = 1 ] || timeout 100 "$build/flin" tests/cuda/first_use.lua \
        >"$log/first_use.lua" 2>&1
    [ "$HALF" = 1 ] || timeout 300 "$build/flin" tests/cuda/layers.lua large \
        >"$log/layers.lua" 2>&1
fi
grep -h '^FAIL\|rror\|^skip\|host time\|in its place' "$log"/*.* |
    grep -v ======= | sort -u | head -n 200
grep -h 'of what is allowed' "$log"/*.* | sort -t: -k2,2 -k1,1nr |
    sort -t: -s -u -k2,2
for f in $(grep -L ' passed, \|^skip' "$log"/*.*); do
    echo "ended early: ${f#"$log/"}: $(tail -n 2 "$f" | tr '\n' ' ')"
done
lost=$(grep -L ' passed, \|^skip' "$log"/*.* | wc -l)
cat "$log"/*.* | awk -v lost="$lost" '/ passed, .* failed$/ { p += $1; f += $3 }
    /SUMMARY: [1-9]|runs in its place/ { f++ }  # a kernel was wrong
    END { if (lost) print lost " processes ended early"
          print p + 0 " passed, " f + lost " failed"; exit f + lost > 0 }'
