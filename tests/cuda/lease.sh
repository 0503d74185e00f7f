#!/bin/sh
# lease.sh -- all that is to be seen on a GPU that is lent for a while: parts in
# order, each with a time of its own and a log of its own in OUT, written as it
# runs. What one call has no time for is left to the next, which knows what has
# run.
#   tests/cuda/lease.sh [PART...]   these; or all that have not run yet
# BUILD is where the binaries are (build); STATE keeps what has run and the
# kernels' cache from call to call; ALL is how many seconds a call may take,
# EACH a time for every part, to try this out.
build=${BUILD:-build}
cd "$(dirname "$0")/../.." || exit 1
OUT=${OUT:-$build/lease}
STATE=${STATE:-/tmp/flin.lease}
FLIN_CACHE=${FLIN_CACHE:-$STATE/cache}
FLIN_LIB=$PWD/$build/libflin.so
export FLIN_CACHE FLIN_LIB
end=$(($(date +%s) + ${ALL:-580}))
ran=$STATE/ran wanted=$* left=
mkdir -p "$OUT" "$STATE" "$FLIN_CACHE"
touch "$ran"

# part NAME SECONDS COMMAND...; all of them take 1930 s at most.
part() {
    name=$1 most=${EACH:-$2} from=$(date +%s)
    shift 2
    if [ -n "$wanted" ]; then
        case " $wanted " in *" $name "*) ;; *) return;; esac
    elif grep -qx "$name" "$ran"; then
        return
    fi
    if [ -n "$left" ] || [ $((from + most)) -gt "$end" ]; then
        left="$left $name"
        return
    fi
    echo "$name" >>"$ran"
    LIMIT=$((most - 10)) timeout -k 5 "$most" "$@" >"$OUT/$name.log" 2>&1
    status=$?
    tail -n 20 "$OUT/$name.log"
    echo "== $name: $(($(date +%s) - from)) of $most s, exit $status"
}

part large 100 "$build/flin" tests/cuda/large.lua
part laws 340 env HALF=1 sh tests/cuda/run.sh
part laws_too 270 env HALF=2 sh tests/cuda/run.sh
part sanitize 310 sh tests/cuda/run.sh sanitize
part cold 150 "$build/tests/cuda/compile_tiles" cold
part torch 170 sh -c 'for test in torch_cuda torch_inductor; do
    echo "-- $test"
    timeout $((LIMIT / 2)) python3 -u tests/python/$test.py
done'
part peers 270 python3 -u tests/bench/peers.py all
echo "left:${left:- nothing}"
