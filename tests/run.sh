#!/bin/sh
# run.sh -- every test, after `make tests` has built them.
#   tests/run.sh [-t] [PART...]    parts: unit host lua cuda golden kernels
#                                 solvers arrows examples python contracts docs
#                                 fuzz sanitized
# -t: also names the ten that took the most seconds of CPU. JOBS tests run side
# by side (as many as there are cores); what measures time runs alone.
# A program or a script is one test, or as many as it says in a last line
# "N passed, N failed". NAME.err beside golden/NAME.lua is the exact message.
BUILD=${BUILD:-build}
cd "$(dirname "$0")/.." || exit 1
given=$BUILD
case $BUILD in /*) ;; *) BUILD=$PWD/$BUILD ;; esac
flin=$BUILD/flin
jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
passed=0 failed=0 skipped=0 begun=0 judged=0
tmp=$(mktemp -d) || exit 1
trap '{ kill $(cat "$tmp"/*.pid); } 2>/dev/null; wait; rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM HUP

# A line in this pipe is leave to run.
mkfifo "$tmp/leave" && exec 3<>"$tmp/leave" || exit 1
for i in $(seq "$jobs"); do echo >&3; done

# Of thousands of plans: memory is kept, not given back each time.
keep="env MALLOC_TRIM_THRESHOLD_=2000000000 MALLOC_MMAP_THRESHOLD_=2000000000"

# A thread's own table in the C library, of one that ends beside the process.
echo leak:pthread_setspecific >"$tmp/leaks"
export LSAN_OPTIONS="suppressions=$tmp/leaks:print_suppressions=0"

pass() { passed=$((passed + 1)); }
skip() { skipped=$((skipped + 1)); echo "skip  $1"; }
fail() {
    failed=$((failed + 1))
    echo "FAIL  $1"
    [ -z "$2" ] || sed 's/^/      /' "$2" | head -n 40
}

# count NAME STATUS OUTPUT
count() {
    case $1 in
    *scheduled*|*turns*)    # the numbers are then other kernels'
        ! grep -q -e 'runs in its place' -e 'run in their place' \
            -e 'does not compile' "$3" ||
            fail "$1: a kernel is wrong" "$3";;
    *mask_random*|*odd.lua*cuda*|*first_use*|*laws.lua*|*kept.lua*|*gates.lua*|\
    *opened.lua*|\
    *complex.lua*cuda*)
        ! grep -q -e 'runs in its place' -e 'run in their place' "$3" ||
            fail "$1: a kernel is wrong" "$3";;
    esac
    last=$(tail -n 1 "$3")
    case $last in
    [0-9]*" passed, "[0-9]*" failed"*)
        p=${last%% *}
        f=${last#* passed, }
        f=${f%% *}
        passed=$((passed + p)) failed=$((failed + f))
        case $last in *" skipped") grep '^skip ' "$3"
            s=${last#* failed, }
            skipped=$((skipped + ${s% skipped}));; esac
        [ "$f" = 0 ] || { echo "FAIL  $1: $last"
                          grep -v '^ok' "$3" | head -n 20; }
        if [ "$2" != 0 ] && [ "$f" = 0 ]; then fail "$1: exit $2" "$3"; fi;;
    skip*) skip "$1: ${last#skip}";;
    *) if [ "$2" = 0 ]; then pass; else fail "$1: exit $2" "$3"; fi;;
    esac
}

# What has ended, in the order in which it began.
judge() {
    while [ -f "$tmp/$((judged + 1)).status" ]; do
        judged=$((judged + 1))
        one=$tmp/$judged
        count "$(cat "$one.name")" "$(cat "$one.status")" "$one.out"
        rm "$one.out"
    done
}

finish() {
    wait
    judge
}

program() {     # NAME COMMAND...: beside others
    read -r leave <&3
    judge
    begun=$((begun + 1))
    one=$tmp/$begun
    echo "$1" >"$one.name"
    shift
    {
        timeout 1800 "$@" >"$one.out" 2>&1 3>&- &
        echo $! >"$one.pid"
        wait $!
        echo $? >"$one.ended"
        rm "$one.pid"
        times >"$one.times"     # what the shell's children used of the CPU
        mv "$one.ended" "$one.status"
        echo >&3
    } 2>>"$one.out" &
}

alone() {       # NAME COMMAND...
    finish
    program "$@"
    finish
}

# A part that is one process, as a program beside others.
beside() {
    program "$1" env BUILD="$given" sh tests/run.sh "$1"
}

# The seconds of each.
slowest() {
    for i in $(seq $judged); do
        echo "$(sed -n 2p "$tmp/$i.times") $(cat "$tmp/$i.name")"
    done | awk -F '[ms ]+' '{ t = 60 * $1 + $2 + 60 * $3 + $4
                              sub(/^[^ ]* [^ ]* /, "")
                              printf "%7.1f %s\n", t, $0 }' |
        sort -n | tail -n 10
}

unit() {
    for c in tests/unit/*.c tests/cuda/*.c; do
        case ${c##*/} in
        bench.c|exit.c|tiles.c|limits.c|strided.c|inplace.c|launched.c|\
        reuse.c)
            # want a GPU
            continue;;
        esac
        [ -f "$c" ] || continue
        how=program calls= memory=
        [ "${c##*/}" != prompt.c ] || how=alone
        # those that sanitizers look at are more
        [ "${c##*/}" != hostile.c ] || [ -n "$SAN" ] || calls=500
        case $c in tests/cuda/*) memory=$keep ;; esac
        $how "${c%.c}" $memory "$BUILD/${c%.c}" $calls
    done
}

# What `make test` runs again under sanitizers: the errors, whose paths are
# the strangest, and the quick scripts.
sanitized() {
    # Lua's own errors leave C's frames by longjmp, which ASan can misread.
    export ASAN_OPTIONS=detect_stack_use_after_return=0
    beside golden
    for u in $UNIT; do
        program "sanitized unit/$u" "$BUILD/tests/unit/$u"
    done
    for l in values calls tensor tensor_ops files host source; do
        l=tests/lua/$l.lua
        program "sanitized ${l%.lua}" "$flin" $(options "$l") "$l"
    done
}

# What a program sees that embeds flin.
host() {
    for c in tests/host/*.c; do
        program "${c%.c}" "$BUILD/${c%.c}"
    done
    BUILD=$given CC=$CC SAN=$SAN program tests/host/install.sh \
        sh tests/host/install.sh
}

# A script's first line "-- flin: OPTIONS" gives the program options.
options() { sed -n '1s/^-- flin: //p' "$1"; }

lua() {
    for l in tests/lua/*.lua; do
        [ -f "$l" ] && program "${l%.lua}" "$flin" $(options "$l") "$l"
    done
}

# A driver and a compiler that stand in for a GPU: the runtime, and what the
# kernels of any plan do, run on the host.
cuda() {
    fake=$BUILD/tests/cuda/fake
    if [ -n "$SAN" ] || ! command -v g++ >/dev/null; then
        skip "cuda: no C++ compiler, or sanitizers in the way"
        return
    fi
    # Compiled kernels are kept from run to run, of this compiler and of what
    # hosts have in place of a GPU; FLIN_KERNELS is the folder.
    of=$({ g++ -dumpfullversion -dumpmachine; cat tests/cuda/*.h; } | cksum)
    kept=${FLIN_KERNELS:-$BUILD/tests/cuda/kernels}/${of%% *}
    mkdir -p "$kept"
    find "${kept%/*}" -name '*.so' -mtime +6 -delete
    ln -s "$fake" "$tmp/fake"   # the loader takes no path with a space
    fake=$tmp/fake
    lt=$fake/libcublasLt.so.13
    program "the driver of tests: tests/cuda/races.cc" "$fake/races"
    # the longest first, so that none is left alone at the end;
    # behind its checks, calls measures the host's time alone
    for test in "flin tests/cuda/layers.lua" "flin tests/cuda/scheduled.lua" \
        "flin tests/cuda/scheduled.lua forward" \
        "flin tests/cuda/scheduled.lua cut" \
        "flin tests/cuda/scheduled.lua forward kda,K=128,V=128 \
hgrn2,K=128,V=128" \
        "flin tests/cuda/scheduled.lua forward titans,K=128,V=128 \
gated_oja,V=192 \
gated_oja,V=192,chunk=32 gated_oja,K=256,V=256 value_decay,V=192 \
value_dplr,V=192 value_dplr,K=256,V=256,chunk=32" \
        "flin tests/cuda/scheduled.lua forward lightning,K=128,V=128 \
retnet,K=128,V=128 lightning,K=128,V=256" \
        "flin tests/cuda/scheduled.lua forward cyfa,V=128" \
        "flin tests/cuda/scheduled.lua forward comba gated_oja \
gdn2,K=128,V=128" \
        "flin tests/cuda/scheduled.lua rebased deltanet,K=128,V=128 retnet" \
        "flin tests/cuda/scheduled.lua parts" \
        "flin tests/cuda/scheduled.lua some" \
        "flin tests/cuda/scheduled.lua small" \
        "flin tests/cuda/scheduled.lua simple_gla,K=128,V=128 \
deltanet,K=128,V=128 kda mamba3,K=96,V=128 gsa,K=64,V=64" \
        "flin tests/cuda/segments.lua" "flin tests/cuda/faults.lua" \
        "flin tests/cuda/beside.lua" \
        "flin tests/cuda/large.lua H=1 K=32 V=32 deltanet gla" \
        "flin tests/cuda/constants.lua" \
        "tests/cuda/calls simple_gla" "tests/cuda/calls turned" \
        "tests/cuda/calls linear" "tests/cuda/calls softmax" \
        "tests/cuda/calls both" \
        "tests/cuda/calls window" "tests/cuda/calls keyed" \
        "tests/cuda/calls sinks" "flin tests/cuda/windows.lua 3 4" \
        "tests/cuda/calls start" \
        "tests/cuda/calls start gla" "tests/cuda/calls back" \
        "tests/cuda/calls back mamba2" "tests/cuda/calls back comba" \
        tests/cuda/exit \
        tests/host/signals tests/cuda/launched \
        "tests/cuda/launched tests/cuda/stack.lua" \
        "flin tests/cuda/laws.lua few simple_gla" \
        "flin tests/cuda/laws.lua programs=23-25" \
        "flin tests/cuda/unwritten.lua" "flin tests/lua/validate.lua cuda" \
        "flin tests/lua/layer_users.lua cuda mixture two_rules" \
        "flin tests/lua/carried.lua cuda" \
        "flin tests/lua/carried.lua cuda few" \
        "flin tests/lua/rows.lua cuda" "flin tests/lua/checkpoint.lua cuda" \
        "flin tests/lua/pools.lua cuda gla mlstm retnet" \
        "flin tests/lua/results.lua" "flin tests/lua/probes.lua cuda gla kda" \
        "flin tests/lua/odd.lua 12 13 cuda" "flin tests/lua/complex.lua cuda" \
        "flin tests/lua/odd.lua 1 394 cuda" \
        "flin tests/lua/value_decays.lua cuda" \
        "flin tests/lua/mask_random.lua 7 9 cuda" \
        "flin tests/lua/odd.lua 4 1 cuda large" \
        "flin tests/lua/compositions.lua cuda" \
        "flin tests/lua/variants.lua cuda dplr kalman rwkv4" \
        "flin tests/cuda/turns.lua" "flin tests/cuda/bands.lua" \
        "flin tests/cuda/checked.lua" \
        "flin tests/cuda/pairs.lua" "flin tests/cuda/pairs.lua many_sinks" \
        "flin tests/bench/pair_ways.lua T=48 H=1 D=16 KB=2,8" \
        "flin tests/lua/scores.lua cuda" \
        "flin tests/cuda/masks.lua 70 gated behind keyed delta window \
near_entries near_pairs \
window_behind window_coupled" "flin tests/cuda/masks.lua 70 sinks sinks_decay \
pairs_sinks blocks_decays blocks_weighed blocks_columns blocks_two" \
        "flin tests/cuda/range.lua" "flin tests/cuda/gates.lua" \
        "flin tests/cuda/opened.lua" \
        "flin tests/cuda/steps.lua" "flin tests/cuda/recorded.lua" \
        "flin tests/cuda/tiles_chosen.lua" \
        "flin tests/cuda/stages.lua" \
        "flin tests/cuda/serial_host.lua" "flin tests/cuda/layers.lua gla" \
        "flin tests/cuda/layers.lua pieces mamba2" \
        "flin tests/cuda/layers.lua pieces gated_deltanet" \
        "flin tests/cuda/layers.lua pieces rwkv7" \
        "flin tests/cuda/layers.lua over gated_deltanet" \
        "flin tests/cuda/layers.lua stack gated_deltanet" \
        "flin tests/lua/layer_random.lua 1 18 cuda" \
        "flin tests/lua/layer_repeat.lua cuda rwkv7" \
        "flin tests/lua/layer_random.lua 2 82 cuda" \
        "flin tests/cuda/hopper.lua gla gated_deltanet mamba3" \
        "flin tests/cuda/hopper.lua deltaproduct rwkv6" \
        "flin tests/cuda/hopper.lua 6 9 28 66 236 241" "tests/cuda/strided" \
        "tests/cuda/inplace" "tests/cuda/reuse" tests/cuda/moves \
        "flin tests/cuda/hopper.lua wide lightning retnet gdn2 weighted" \
        "flin tests/cuda/hopper.lua wide shifted" \
        "flin tests/cuda/hopper.lua wide weighted" \
        "flin tests/cuda/hopper.lua mixed ranked wild_64" \
        "flin tests/cuda/hopper.lua key_decay state_decay" \
        "flin tests/cuda/hopper.lua averaged_keys averaged_values" \
        "flin tests/cuda/hopper.lua two_averages" \
        "flin tests/cuda/hopper.lua gradients floored" \
        "flin tests/cuda/coverage.lua" \
        "flin tests/cuda/hopper.lua gradients compared summed averaged_values" \
        "flin tests/cuda/hopper.lua wide keyed_state_decay key_decay" \
        "flin tests/cuda/hopper.lua wide hgrn2 precond_kda" \
        "flin tests/cuda/hopper.lua whole lightning" \
        "flin tests/cuda/hopper.lua gradients simple_gla lightning retnet" \
        "flin tests/cuda/hopper.lua scheduled simple_gla gla gated_deltanet" \
        "flin tests/cuda/times.lua" "flin tests/cuda/scheduled.lua long" \
        "flin tests/cuda/times.lua again" \
        "flin tests/cuda/kept.lua kda deltanet gla" \
        "flin tests/cuda/kept.lua gla kda" \
        "flin tests/cuda/hopper.lua far gla kda hgrn2 mamba2" \
        "flin tests/cuda/hopper.lua scheduled far gla kda" \
        "flin tests/cuda/hopper.lua wide mamba3" \
        "flin tests/cuda/hopper.lua angles retnet" \
        "flin tests/cuda/first_use.lua 64"; do
        case $test in
        *turned*) more=FLIN_SCHEDULE=0 ;;   # whose text is broken
        *launched)  # heads fill the chip; the kernels are nobody else's
            more="FAKE_EMPTY=$tmp/names FAKE_ARCH=9 FAKE_PROCESSORS=11"
            more="$more FAKE_CXX=none FAKE_BESIDE=$tmp/prepared" ;;
        *launched*stack.lua)    # the same
            more="FAKE_EMPTY=$tmp/calls FAKE_ARCH=9 FAKE_CXX=none" ;;
        *"calls linear") more="FAKE_ARCH=9 FAKE_IDLE=40" ;;   # ends out there
        *"calls start"*) more=FAKE_ARCH=9 ;;
        *"calls back"*) more=FAKE_ARCH=9 ;;
        *"calls both") more=FAKE_IDLE=100 ;;
        *"calls keyed"|*"calls sinks") more="FAKE_ARCH=9 FAKE_IDLE=400" ;;
        *calls*) more=FAKE_IDLE=40 ;;
        *laws*) more=FAKE_CHECKED=1 ;;
        *"pieces mamba2") more="FAKE_ARCH=9 FLIN_PIECES=4" ;;
        *"pieces rwkv7") more="FAKE_ARCH=9 FLIN_PIECES=1beside" ;;
        *pieces*) more="FAKE_ARCH=9 FLIN_PIECES=2again" ;;
        *"layers.lua over"*)
            more="FAKE_ARCH=9 FAKE_CHECKED=1 FAKE_PROCESSORS=132" ;;
        *"layers.lua stack"*) more="FAKE_ARCH=9 FLIN_PIECES=1rows" ;;
        *"rows.lua cuda") more="FAKE_CHECKED=1 FAKE_ARCH=9" ;;
        *layers.lua|*random*|*point.lua*|*"pools.lua cuda"*|\
        *steps.lua)
            more="FAKE_ARCH=9" ;;
        *layers*) more="FAKE_ARCH=9 FAKE_PLAIN=1" ;;
        *carried*few) more="FAKE_CHECKED=1 FAKE_ARCH=9" ;;
        *recorded*)             # whose kernels are nobody else's
            more="FAKE_ARCH=9 FAKE_RECORDING=$tmp/recording"
            more="$more FAKE_SOURCES=$tmp/compiled FAKE_PROCESSORS=9" ;;
        *carried*) more="FAKE_ARCH=8 FAKE_PROCESSORS=1" ;;
        *first_use*|*checked*|*constants.lua) more=FAKE_ARCH=9 ;;
        *opened.lua)
            more="FAKE_ARCH=9 FAKE_PROCESSORS=3" ;;
        *tiles_chosen*)
            more="FAKE_ARCH=9 FAKE_PROCESSORS=1 FAKE_TILES=1"
            more="$more FAKE_PRODUCTS=$tmp/products"
            ;;
        *"cuda large"|*compositions*|*gates.lua|*layer_repeat*)
            more="FAKE_ARCH=9" ;;
        *serial_host*) more="FAKE_CHECKED=1 FAKE_ARCH=9" ;;
        *unwritten*) more="FAKE_CHECKED=1 FAKE_ARCH=12" ;;
        *gradients*) more="FAKE_CROWDED=1 FAKE_ARCH=9 FAKE_HOPPER=2" ;;
        *large.lua*)
            more="FAKE_ARCH=9 FLIN_SEGMENTS=1"
            more="$more FAKE_PROCESSORS=132"
            ;;
        *again) more=FAKE_ARCH=11 ;;    # which no row is of
        *beside.lua)
            more="FAKE_EMPTY=$tmp/begun FAKE_BESIDE=$tmp/beside FAKE_ARCH=9"
            more="$more FAKE_PROCESSORS=13" ;;
        *long) more="FAKE_ARCH=9 FLIN_SEGMENTS=5" ;;
        *segments.lua|*"kept.lua gla kda")
            more="FAKE_ARCH=9 FLIN_SEGMENTS=3" ;;
        *"scheduled.lua parts")
            more="FAKE_ARCH=9 FLIN_SEGMENTS=1" ;;
        *scheduled.lua|*times.lua)
            more="FAKE_ARCH=9 FAKE_SOURCES=$tmp/planned"
            more="$more FAKE_COUNTED=schedule.cuh"
            more="$more FAKE_PROCESSORS=3"
            ;;
        *"scheduled.lua some")          # of an A100
            more="FAKE_ARCH=8 FAKE_PROCESSORS=3"
            more="$more FAKE_SOURCES=$tmp/some FAKE_COUNTED=schedule.cuh"
            ;;
        *"scheduled.lua small")         # of an RTX 5090
            more="FAKE_ARCH=12 FAKE_PROCESSORS=3"
            more="$more FAKE_SOURCES=$tmp/small FAKE_COUNTED=schedule.cuh"
            ;;
        *"scheduled.lua forward"|*"scheduled.lua cut")
            more="FAKE_ARCH=9 FAKE_PROCESSORS=3"
            [ "${test##* }" = forward ] || more="$more FLIN_SEGMENTS=3"
            more="$more FAKE_SOURCES=$tmp/forward FAKE_COUNTED=schedule.cuh"
            ;;
        *"forward lightning"*)          # few heads: blocks in clusters
            more="FAKE_ARCH=9 FAKE_PROCESSORS=132"
            more="$more FAKE_SOURCES=$tmp/pairs FAKE_COUNTED=__cluster_dims__"
            ;;
        *"forward comba"*|*"scheduled.lua rebased"*)    # all are dealt again
            more="FAKE_ARCH=9 FAKE_PROCESSORS=3 FAKE_CHECKED=1"
            more="$more FAKE_SPILLS=schedule.cuh FAKE_SPILLED=each"
            ;;
        *"forward cyfa"*)       # blocks share a state: one leaves it
            more="FAKE_ARCH=9 FAKE_PROCESSORS=132"
            more="$more FAKE_CHECKED=1"
            ;;
        *"forward kda"*)                # no role ahead: factors are found
            more="FAKE_ARCH=9 FAKE_PROCESSORS=132"
            more="$more FAKE_SOURCES=$tmp/found"
            more="$more FAKE_COUNTED=__launch_bounds__(256,"
            ;;
        *"scheduled.lua forward"*)      # few heads: cut in several kernels
            more="FAKE_ARCH=9 FAKE_PROCESSORS=132"
            more="$more FAKE_SOURCES=$tmp/few FAKE_COUNTED=schedule.cuh"
            ;;
        *"scheduled.lua simple_gla"*)   # of a B200
            more="FAKE_ARCH=10 FAKE_PROCESSORS=3"
            more="$more FAKE_SOURCES=$tmp/tensor FAKE_COUNTED=tcgen05.cuh"
            ;;
        *scheduled*)
            more="FAKE_ARCH=9 FAKE_PROCESSORS=3"
            more="$more FAKE_SOURCES=$tmp/scheduled FAKE_COUNTED=schedule.cuh"
            ;;
        *far*) more="FAKE_ARCH=9 FAKE_HOPPER=2" ;;
        *"wide mamba3") more="FAKE_ARCH=9 FAKE_HOPPER=1 FAKE_CHECKED=1" ;;
        *reuse|*"kept.lua kda"*) more="FAKE_ARCH=9" ;;
        *many_sinks) more=FAKE_ARCH=8 ;;        # kernels without wgmma
        *strided*|*angles*|*turns*|*bands*|*cuda/stages*|*pairs*|*masks*|\
        *inplace*|*mixed*|*results*|*probes*|*odd.lua*|*variants.lua*|*range*|\
        *mask_random*|*complex*|*scores.lua*)
            more=FAKE_ARCH=9 ;;
        *hopper*) more="FAKE_ARCH=9 FAKE_HOPPER=1" ;;
        *) more= ;;
        esac
        from=$kept
        case $test in
        tests/cuda/exit|tests/host/signals) from= ;;    # while it compiles
        esac
        program "on a driver of tests: $test" $keep $more \
            FLIN_CACHE="$tmp/kernels${more##* }" FAKE_HEADS="$tmp/heads" \
            FAKE_KEPT="$from" \
            LD_PRELOAD="$fake/libcuda.so.1 $fake/libnvrtc.so.13 $lt" \
            "$BUILD"/$test
    done
    find_torch
    if [ -z "$with" ]; then skip "cuda: no PyTorch"; return; fi
    program "on a driver of tests: tests/cuda/context.py" env FAKE_ARCH=9 \
        FAKE_PAGEABLE=1 FLIN_CACHE="$tmp/kernels" FAKE_HEADS="$tmp/heads" \
        FAKE_KEPT="$kept" \
        PYTHONDONTWRITEBYTECODE=1 \
        FLIN_LIB="$BUILD/libflin.so" \
        LD_PRELOAD="$fake/libcuda.so.1 $fake/libnvrtc.so.13 $lt" \
        "$with" tests/cuda/context.py
}

# Messages start with the script's own name, as it runs in its folder. BLESS=1
# takes the messages as they are: read what git diff says then.
golden() {
    for l in tests/golden/*.lua; do
        [ -f "$l" ] || continue
        name=${l##*/}
        opts=$(options "$l")
        (cd tests/golden && timeout 300 "$flin" $opts "$name") \
            >"$tmp/out" 2>"$tmp/err"
        status=$?
        [ -z "$BLESS" ] || cp "$tmp/err" "${l%.lua}.err"
        diff -u "${l%.lua}.err" "$tmp/err" >"$tmp/diff" 2>&1
        if [ $? != 0 ]; then fail "${l%.lua}" "$tmp/diff"
        elif [ $status != 1 ]; then fail "${l%.lua}: exit $status"
        else pass
        fi
    done
}

# The text of every kernel that the standard library becomes, by its hash, and
# a dozen to be read. BLESS=1 takes those that there are; a plan is GLPK's
# choice.
kernels() {
    texts=tests/golden/kernels.txt
    if [ -n "$SAN" ] || ! nm "$BUILD/flin" | grep -q glp_; then
        skip "kernels: a build of another kind"
        return
    fi
    $keep "$BUILD/tests/cuda/compile_tiles" texts >"$tmp/texts" 2>"$tmp/err" ||
        fail "kernels: not printed" "$tmp/err"
    mkdir -p "$tmp/whole"
    $keep "$BUILD/tests/cuda/compile_tiles" whole "$tmp/whole" \
        >"$tmp/err" 2>&1 ||
        fail "kernels: not printed" "$tmp/err"
    [ -z "$BLESS" ] || cp "$tmp/texts" $texts
    [ -z "$BLESS" ] || cp "$tmp/whole"/* tests/golden/kernels/
    diff -r tests/golden/kernels "$tmp/whole" >"$tmp/diff" ||
        fail "kernels: other texts" "$tmp/diff"
    diff $texts "$tmp/texts" >"$tmp/diff" || {
        fail "kernels: $(grep -c '^>' "$tmp/diff") texts changed" "$tmp/diff"
        return
    }
    pass
}

# Without GLPK, plans are as good.
solvers() {
    if [ -n "$SAN" ] || ! nm "$BUILD/flin" | grep -q glp_; then
        skip "solvers: a build of another kind"
        return
    fi
    for f in flin free/flin; do
        $keep "$BUILD/$f" tests/plans/prices.lua >"$tmp/${f%%/*}.prices" 2>&1
    done
    plans=$("$BUILD/flin" -e 'print(4 * #require "flin".stdlib_names)')
    [ "$(wc -l <"$tmp/free.prices")" = $plans ] ||
        fail "solvers: not $plans plans" "$tmp/free.prices"
    diff "$tmp/flin.prices" "$tmp/free.prices" >"$tmp/diff" || {
        fail "solvers: $(grep -c '^>' "$tmp/diff") plans cost more" "$tmp/diff"
        return
    }
    pass
}

# expect_none NAME: $tmp/out holds what should not be there
expect_none() {
    if [ -s "$tmp/out" ]; then fail "$1" "$tmp/out"; else pass; fi
}

# The dependency arrows: who includes what, what a host sees.
arrows() {
    grep -lE '#include.*(lua\.h|lauxlib\.h|lualib\.h|lang/)' \
        compiler/*.[ch] compiler/*/*.[ch] backend/*/*.[ch] \
        >"$tmp/out" 2>/dev/null
    expect_none "arrows: only lang and repl see Lua"
    grep -nE '#include.*(backend|lang|repl|cuda)' compiler/*.[ch] \
        compiler/*/*.[ch] >"$tmp/out" 2>/dev/null
    expect_none "arrows: compiler includes no backend, no language"
    grep -l '#include <glpk.h>' compiler/*.[ch] lang/*.[ch] backend/*/*.[ch] \
        repl/*.[ch] 2>/dev/null | sed 1d >"$tmp/out"
    expect_none "arrows: one file sees glpk.h"
    grep -nE '#include.*(lang|repl|cuda/)' backend/cpu/*.[ch] >"$tmp/out"
    expect_none "arrows: backend/cpu includes the compiler alone"
    grep -nE '#include.*(lang|repl|cpu/)' backend/cuda/*.[ch] >"$tmp/out"
    expect_none "arrows: backend/cuda includes the compiler alone"
    grep -nE 'require *\(?["'\'']' stdlib/*.lua stdlib/*/*.lua |
        grep -v '"flin"' >"$tmp/out"
    expect_none "arrows: the stdlib requires flin alone"
    nm -D --defined-only "$BUILD/libflin.so" | sed 's/.* //' |
        grep -vE '^(flin_|luaopen_flin$|_?_?asan_|__odr_asan)' >"$tmp/out"
    expect_none "arrows: libflin.so exports flin_* and luaopen_flin"
    nm -g --defined-only "$BUILD/libflin.a" | sed -n 's/.* [A-Z] //p' |
        grep -vE '^(flin_|luaopen_flin$|__odr_asan)' >"$tmp/out"
    expect_none "arrows: libflin.a defines flin_* and luaopen_flin"
    if [ -z "$SAN" ]; then
        nm -u "$BUILD/libflin.a" | grep -wE 'exit|_exit|printf|puts|putchar' \
            >"$tmp/out"
        expect_none "arrows: the library neither prints nor exits"
    fi
    "$flin" tests/arrows/circles.lua "$BUILD" >"$tmp/out" 2>&1
    expect_none "arrows: files use one another in no circle"
    "$flin" tests/arrows/operations.lua >"$tmp/out" 2>&1
    expect_none "arrows: an operation is a row, and few files name it"
    grep -o 'INLINE float [a-z0-9_]*_(float' backend/cuda/*.cuh | sort -u |
        sed 's/.*INLINE/INLINE/' | sort | uniq -d | grep -v factor_ \
        >"$tmp/out"     # what products round to is each target's own
    expect_none "arrows: a function of numbers has one definition for CUDA"
    # Columns, not bytes: what goes on in UTF-8 is none.
    find backend compiler docs/make examples lang repl stdlib tests -type f \
        ! -path 'tests/golden/*' \( -name '*.[ch]' -o -name '*.cc' \
        -o -name '*.cuh' -o -name '*.def' -o -name '*.lua' -o -name '*.py' \
        -o -name '*.sh' \) -exec env LC_ALL=C awk '
        { line = $0; gsub(/[\200-\277]/, "", line) }
        length(line) > 80 { print FILENAME ":" FNR ": longer than 80" }
        FNR == 1001 { print FILENAME ": longer than 1000 lines" }' {} + \
        >"$tmp/out" 2>&1
    expect_none "style: 80 columns, 1000 lines"
}

examples() {
    for c in examples/*.c; do
        [ -f "$c" ] && program "${c%.c}" "$BUILD/${c%.c}"
    done
    for l in examples/0*.lua; do
        [ -f "$l" ] && program "${l%.lua}" "$flin" "$l"
    done
    program examples/train_24.lua "$flin" examples/train_24.lua --device cpu \
        --mixer hybrid --width 32 --heads 2 --hidden 64 --steps 12 \
        --svg "$tmp/losses_lua.svg"
    # A plain Lua program of the system, where there is one.
    if [ -z "$SAN" ] && command -v lua5.4 >/dev/null; then
        LUA_CPATH="$BUILD/lib?.so" program "lua5.4 -e 'require \"flin\"'" \
            lua5.4 -e 'assert(require "flin".zeros(2, 3).count == 6)'
    fi
}

# has PYTHON MODULE
has() {
    "$1" -c "import importlib.util as u, sys
sys.exit(u.find_spec('$2') is None)" 2>/dev/null
}

# with: a Python that has PyTorch, if there is one.
find_torch() {
    with=
    for p in ${PYTHON:-build/torch/bin/python python3 /usr/bin/python3}; do
        if has "$p" torch; then with=$p; break; fi
    done
}

# With a Python that has PyTorch, or at least NumPy; $PYTHON, if given. The
# newest PyTorch, where `tools/matrix.sh torch` has fetched it.
python() {
    with=
    for p in ${PYTHON:-build/torch/bin/python python3 /usr/bin/python3}; do
        if has "$p" numpy; then with=${with:-$p}; fi
        if has "$p" torch; then with=$p; break; fi
    done
    if [ -n "$SAN" ]; then skip "python: not under a sanitizer"; return; fi
    if [ -z "$with" ]; then skip "python: no NumPy"; return; fi
    for t in tests/python/*_*.py; do
        FLIN_LIB=$BUILD/libflin.so PYTHONDONTWRITEBYTECODE=1 \
            program "${t%.py}" "$with" "$t"
    done
}

# What training promises of fused operations, small; each must fail where what
# it watches over is broken, and what is broken must be found.
contracts() {
    find_torch
    if [ -n "$SAN" ]; then skip "contracts: not under a sanitizer"; return; fi
    if [ -z "$with" ]; then skip "contracts: no PyTorch"; return; fi
    for more in "" --spoil "norm gradients stability --mixer hybrid" \
        "--bisect --spoil swiglu"; do
        wanted=0
        case $more in --bisect*) wanted=1 ;; esac
        FLIN_LIB=$BUILD/libflin.so PYTHONDONTWRITEBYTECODE=1 \
            program "contracts $more" sh -c '"$@"; [ $? = '$wanted' ]' - \
            "$with" tests/contracts/fused.py --device cpu --steps 6 \
            --layers 3 $more
    done
    FLIN_LIB=$BUILD/libflin.so PYTHONDONTWRITEBYTECODE=1 \
        program examples/train_24 "$with" examples/train_24.py --device cpu \
        --steps 3 --layers 4 --mixer hybrid --beside torch \
        --svg "$tmp/losses.svg"
}

# Each page's snippets, and all as HTML, whose links must lead somewhere.
docs() {
    if ! "$flin" docs/make/site.lua --text "$tmp/pages" >"$tmp/out" 2>&1; then
        fail "docs: the pages are not made" "$tmp/out"
        return
    fi
    for p in README.md "$tmp"/pages/*.md; do
        program "docs ${p##*/}" "$flin" docs/make/test.lua "$p"
    done
    if ! command -v cmark-gfm >/dev/null; then
        skip "docs: no cmark-gfm"
        return
    fi
    program "docs as HTML" "$flin" docs/make/site.lua "$tmp/html"
}

fuzz() {
    if ! command -v clang >/dev/null; then
        skip "fuzz: no clang"
        return
    fi
    if ! ${MAKE:-make} --no-print-directory fuzz-build >"$tmp/out" 2>&1; then
        grep -E 'error|undefined|\*\*\*' "$tmp/out" >"$tmp/err" ||
            mv "$tmp/out" "$tmp/err"
        fail "fuzz: does not build" "$tmp/err"
        return
    fi
    FUZZ_SECONDS=8 sh tests/fuzz/run.sh "$BUILD/fuzz" >"$tmp/out" 2>&1
    count fuzz $? "$tmp/out"
}

timed=
[ "$1" != -t ] || { timed=1; shift; }
# fuzzers, whose time is a clock's, not at the end: nothing is beside them there
[ $# != 0 ] || set -- unit kernels solvers host $([ -n "$SAN" ] || echo fuzz) \
    lua cuda golden arrows examples python contracts \
    $([ -n "$SAN" ] || echo docs)
for part; do
    case $#,$part in
    1,*) $part;;
    *,golden|*,kernels|*,solvers|*,arrows|*,fuzz) beside $part;;
    *) $part;;
    esac
done
finish
[ -z "$timed" ] || slowest
rest=
[ $skipped = 0 ] || rest=", $skipped skipped"
echo "$passed passed, $failed failed$rest"
[ $failed = 0 ]
