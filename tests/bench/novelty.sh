#!/bin/sh
# novelty.sh -- what a variant costs that nobody has written: from `flin new` to
# a step of one's own, checked on each backend and timed on the GPU, with
# nothing compiled before. Exit code 1: that took more than MOST seconds (60).
#   tests/bench/novelty.sh          of BUILD's flin (build)
flin=$(cd "$(dirname "$0")/../.." && cd "${BUILD:-build}" && pwd)/flin
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
export FLIN_CACHE="$tmp/cache"
begun=$(date +%s)

spent() { echo "$1: after $(($(date +%s) - begun)) s"; }

"$flin" new novelty >/dev/null || exit 1
# The erasing rate is one that keys have themselves; results are read by the
# keys, too, and bent.
sed -e 's|outer(x.beta|outer(x.beta / (1 + x.beta)|' \
    -e 's|}, dot(x.q, S)|}, flin.tanh(dot(x.q, S)) + dot(x.k, S) / 2|' \
    novelty.lua >mine.lua
sed -n '/step *= /,/end/p' mine.lua
spent written
"$flin" check mine.lua K=64 V=64 || exit 1
spent checked
"$flin" bench mine.lua dtype=bfloat16 backend=${BACKEND:-cuda} K=128 V=128 \
    T=4096 H=16 || exit 1
spent timed
[ $(($(date +%s) - begun)) -le "${MOST:-60}" ]
