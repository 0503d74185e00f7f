#!/bin/sh
# nccl.sh -- ranks on two GPUs. Kernels are compiled for seconds a variant: so
# variants are dealt to JOBS pairs of processes, which work side by side.
#   [PYTHON=python3] [JOBS=8] [LOGS=DIR] tests/python/nccl.sh [VARIANTS]
cd "$(dirname "$0")" || exit 1
python=${PYTHON:-python3}
jobs=${JOBS:-8}
if [ -n "$LOGS" ]; then
    tmp=$LOGS
else
    tmp=$(mktemp -d) || exit 1
    trap 'rm -rf "$tmp"' EXIT
fi
[ $# -gt 0 ] || set -- $("$python" -c 'import harness
print(*harness.flin.stdlib)')

# begin NAME SCRIPT WORDS...: in the background; it ends with `ended NAME`.
begin() {
    name=$1 script=$2
    shift 2
    (
        "$python" "$script" --nccl "$@" >"$tmp/$name.out" 2>&1
        echo "ended $name $?" >>"$tmp/$name.out"
    ) &
}

begin ddp torch_ddp.py
begin mesh torch_mesh.py other_cuts refusals layers heads shards dying
begin context torch_context.py layers halves refusals sums prices reloading \
    dying
i=0
while [ $i -lt "$jobs" ]; do
    share= n=0
    for name in "$@"; do
        [ $((n % jobs)) -ne $i ] || share="$share $name"
        n=$((n + 1))
    done
    if [ -n "$share" ]; then
        begin "mesh_$i" torch_mesh.py variants $share
        begin "context_$i" torch_context.py all_variants pieces packed cards \
            $share
    fi
    i=$((i + 1))
done
wait
failed=0
for out in "$tmp"/*.out; do
    name=$(basename "$out" .out)
    sed -n '/^not ok\|Error\|^skip/p' "$out" | sed "s/^/$name: /"
    if grep -q "^ended $name 0" "$out"; then
        echo "$name: $(grep 'passed, .* failed$' "$out" | tail -n 1)"
    else
        failed=1
        tail -n 5 "$out" | sed "s/^/$name: /"
    fi
done
exit $failed
