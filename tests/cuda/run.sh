#!/bin/sh
# run.sh -- the tests on a GPU. Kernels are compiled on as many cores as there
# are; prints "N passed, N failed" last.
#   tests/cuda/run.sh [quick | few] [NAME...]    as laws.lua takes them
#   tests/cuda/run.sh sanitize [CASE...]         sanitized.lua's, under each of
#                           compute-sanitizer's tools; CHECKS: of these, each
#                           for SECONDS_EACH
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

# cases CHECK [WORD]: every case, run by $with, while there is time.
cases() {
    check=$1 word=$2 end=$(($(date +%s) + limit))
    export check word end with
    xargs -P "$jobs" -n 2 sh -c '
        from=$(date +%s)
        export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-$(($$ % gpus))}
        exec >"$log/$check.$0.$1" 2>&1
        [ $from -lt $end ] || { echo "no time left"; exit; }
        timeout $((end + 20 - from)) $with "$build/flin" \
            tests/cuda/sanitized.lua $0 $1 $word
        echo "exit $?, $(($(date +%s) - from)) s"
    ' <"$tmp/cases"
}

# What a tool has found, where it has; and what took the longest.
show() {
    n=$(wc -l <"$tmp/cases")
    clean=$(cat "$log/$1".*.* | grep -c 'SUMMARY: 0')
    slow=$(grep -o '[0-9]* s$' "$log/$1".*.* | sed "s|^$log/$1.||" |
        sort -t: -k2,2nr | head -n 3 | tr '\n' ' ')
    echo "$1: $(($(date +%s) - start)) s, $clean of $n clean; $slow"
    for f in $(grep -l 'SUMMARY: [1-9]' "$log/$1".*.*); do
        echo "${f#"$log/"}"
        grep '^=========' "$f" | head -n 12
    done | head -n 100
}

sanitize() {
    tool=$(command -v compute-sanitizer || ls -d \
        /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | tail -n 1)
    [ -n "$tool" ] || { echo "skip: no compute-sanitizer"; exit 0; }
    "$build/flin" tests/cuda/sanitized.lua >"$tmp/all"
    [ $# != 0 ] || set -- .
    for which; do grep "$which" "$tmp/all"; done >"$tmp/cases"
    each=${SECONDS_EACH:-90}
    start=$(date +%s) with=env limit=300
    # whoever began in time has 20 s more
    [ -z "$LIMIT" ] || limit=$((LIMIT / 6)) each=$((LIMIT / 5 - 24))
    cases compile               # so that the kernels are in the cache
    echo "compiled: $(($(date +%s) - start)) s"
    limit=$each
    for check in ${CHECKS:-memcheck synccheck initcheck racecheck}; do
        start=$(date +%s)
        with="$tool --tool $check --error-exitcode 9 --show-backtrace no"
        word=                   # looks at each access to shared memory
        [ $check != racecheck ] || word=short
        cases $check $word
        show $check
    done
}

if [ "$1" = sanitize ]; then
    shift
    sanitize "$@"
else
    laws "$@"
    [ "$HALF" = 1 ] || for program in calls limits strided; do     # of the C API
        timeout 100 "$build/tests/cuda/$program" >"$log/$program.c" 2>&1
    done
fi
grep -h '^FAIL\|rror\|^skip\|host time' "$log"/*.* | grep -v ======= |
    sort -u | head -n 200
grep -h 'of what is allowed' "$log"/*.* | sort -t: -k2,2 -k1,1nr |
    sort -t: -s -u -k2,2
for f in $(grep -L ' passed, \|^skip' "$log"/*.*); do
    echo "ended early: ${f#"$log/"}: $(tail -n 2 "$f" | tr '\n' ' ')"
done
lost=$(grep -L ' passed, \|^skip' "$log"/*.* | wc -l)
cat "$log"/*.* | awk -v lost="$lost" '/ passed, .* failed$/ { p += $1; f += $3 }
    /SUMMARY: [1-9]/ { f++ }
    END { if (lost) print lost " processes ended early"
          print p + 0 " passed, " f + lost " failed"; exit f + lost > 0 }'
