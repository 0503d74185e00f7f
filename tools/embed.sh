#!/bin/sh
# embed.sh -- files as C source, byte by byte.
#   embed.sh stdlib FILE.lua...   defines stdlib_source and stdlib_name: by
#                                 path, without stdlib/ and .lua
#   embed.sh repl FILE.lua...     the same, named repl_
#   embed.sh headers FILE...      defines cuda_headers
set -e

bytes() {
    od -An -v -td1 "$1" | sed 's/  */ /g; s/^ //; s/ /,/g; s/$/,/'
}

kind=$1
shift
if [ "$kind" = headers ]; then
    echo '#include "backend/cuda/nvrtc.h"'
    n=0
    for f; do
        echo "static const char text$n[] = {"
        bytes "$f"
        echo "0};"
        n=$((n + 1))
    done
    echo 'const CudaHeader cuda_headers[] = {'
    n=0
    for f; do
        echo "    { \"$(basename "$f")\", text$n },"
        n=$((n + 1))
    done
    echo '    { 0, 0 }'
    echo '};'
    echo '_Static_assert(sizeof cuda_headers / sizeof *cuda_headers'
    echo '               <= MOST_HEADERS + 1, "more than MOST_HEADERS");'
    exit
fi

case $kind in stdlib) echo '#include "lang/lang.h"' ;;
*) echo "#include \"$kind/$kind.h\"" ;; esac
echo '#include <string.h>'
n=0
for f; do
    echo "static const char text$n[] = {"
    bytes "$f"
    echo "0};"
    n=$((n + 1))
done
echo 'static const struct Module { const char *name, *text; size_t len; }'
echo 'module[] = {'
n=0
for f; do
    name=${f#$kind/}
    name=${name%.lua}
    echo "    { \"$name\", text$n, sizeof(text$n) - 1 },"
    n=$((n + 1))
done
cat <<END
    { 0, 0, 0 }
};

const char *${kind}_name(int i)
{
    return module[i].name;
}

const char *${kind}_source(const char *name, size_t *len)
{
    for (const struct Module *m = module; m->name; m++)
        if (strcmp(m->name, name) == 0)
            return *len = m->len, m->text;
    return NULL;
}
END
