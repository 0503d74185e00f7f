#!/bin/sh
# run.sh BUILD -- each fuzzer for its share of $FUZZ_SECONDS, from the seeds;
# then 170 calls of any function for each second (100,000 in ten minutes).
# With $FUZZ_CALLS those that make calls alone, until each has made that many.
cd "$(dirname "$0")/../.." || exit 1
build=$1
targets="script file graph functions api"
until=-max_total_time=$((${FUZZ_SECONDS:-60} / 5 + 1))
calls=$((${FUZZ_SECONDS:-60} * 170)) seed=$(date +%s)
if [ -n "$FUZZ_CALLS" ]; then
    targets="functions api" until= calls=$FUZZ_CALLS
fi
passed=0 failed=0
for t in $targets; do
    seeds=$build/seeds/$t
    mkdir -p "$seeds" "$build/corpus/$t"
    words=
    [ ! -f tests/fuzz/$t.dict ] || words=-dict=tests/fuzz/$t.dict
    case $t in
    script) cp stdlib/*.lua examples/*.lua tests/golden/*.lua "$seeds" ;;
    file) cp tests/fuzz/*.npy tests/fuzz/*.safetensors "$seeds" ;;
    graph) cp tests/plans/* "$seeds" ;;
    functions) cp stdlib/gla.lua stdlib/mlstm.lua "$seeds" ;;
    esac 2>/dev/null
    # Lua's own errors leave C's frames by longjmp, which ASan can misread.
    if ASAN_OPTIONS=detect_stack_use_after_return=0 \
       "$build/tests/fuzz/$t" $until -timeout=60 \
       -rss_limit_mb=1500 -verbosity=0 -print_final_stats=0 -close_fd_mask=1 \
       -artifact_prefix="$build/$t-" \
       $words "$build/corpus/$t" "$seeds" 2>"$build/$t.log"
    then
        passed=$((passed + 1))
        grep "^$t: .* calls" "$build/$t.log"
    else
        failed=$((failed + 1))
        echo "FAIL fuzz $t:"
        grep -vE '^#|^INFO' "$build/$t.log" | head -n 40
        ls "$build/$t"-* 2>/dev/null
    fi
done
# The same calls without a fuzzer's guidance, of which there are many more.
if ASAN_OPTIONS=detect_stack_use_after_return=0 \
   "$build/tests/unit/hostile" $calls $seed >"$build/hostile.log" 2>&1
then
    passed=$((passed + 1))
    echo "hostile: $(tail -n 1 "$build/hostile.log")"
else
    failed=$((failed + 1))
    echo "FAIL fuzz: hostile $calls $seed:"
    head -n 40 "$build/hostile.log"
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
