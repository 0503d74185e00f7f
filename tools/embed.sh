#!/bin/sh
# embed.sh -- files as C source, byte by byte.
#   embed.sh stdlib FILE.lua...   defines stdlib_source and stdlib_name
#   embed.sh text SYMBOL FILE     defines char SYMBOL[], ended by a 0
set -e

bytes() {
    od -An -v -td1 "$1" | sed 's/  */ /g; s/^ //; s/ /,/g; s/$/,/'
}

if [ "$1" = text ]; then
    echo "extern const char $2[];"
    echo "const char $2[] = {"
    bytes "$3"
    echo "0};"
    exit
fi

shift
echo '#include "lang/lang.h"'
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
    name=$(basename "$f" .lua)
    echo "    { \"$name\", text$n, sizeof(text$n) - 1 },"
    n=$((n + 1))
done
cat <<END
    { 0, 0, 0 }
};

const char *stdlib_name(int i)
{
    return module[i].name;
}

const char *stdlib_source(const char *name, size_t *len)
{
    for (const struct Module *m = module; m->name; m++)
        if (strcmp(m->name, name) == 0)
            return *len = m->len, m->text;
    return NULL;
}
END
