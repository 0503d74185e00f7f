/* options.c -- the command line. */
#include <stdlib.h>
#include <string.h>

#include "repl.h"

const char usage[] =
    "usage: flin [options] [script.lua [args]]\n"
    "       flin check|bench|plan script.lua [K=64 ...]    its variants\n"
    "       flin new NAME                  writes NAME.lua, a variant to edit\n"
    "       flin VERB --help               what these take\n"
    "  -e TEXT        run TEXT\n"
    "  -l NAME        require NAME and keep it under that name; -l G=NAME\n"
    "  -i             prompt when the script is done\n"
    "  -d LETTERS     dump these passes of the variant the script returns\n"
    "  --check[=T=300,K=64,...]   check that variant against its float64 step\n"
    "  --compile-only[=K=128,...]  compile it for a GPU that need not be here\n"
    "  --arch NAME    which (sm_90a, sm_80 ...)\n"
    "  --backend NAME cpu or cuda\n"
    "  --threads N    on the CPU (0: all cores)\n"
    "  --color WHEN   always, never or auto: colours in the terminal\n"
    "  --sandbox      no files; --budget N instructions, --memory N MiB\n"
    "  --luacats      definitions of flin for editors: > flin.d.lua\n"
    "  -W             warnings on; -E: FLIN_INIT is not run\n"
    "  -v, --version  -h, --help  -- (end of options)  - (run stdin)\n"
    "FLIN_INIT: text, or @FILE, that runs first.\n";

const char *verb_usage(const char *verb)
{
    static const struct { const char *verb, *text; } usages[] = {
        { "check", "usage: flin check SCRIPT.lua [NAME=VALUE ...]\n"
          "The variants that the script returns: chunks, decoding, states and\n"
          "gradients against the float64 step, on each backend that is here,\n"
          "and gradients against differences. Exit code 1: one is wrong.\n"
          "  B=2 T=300 H=2 HV=4   sizes of the call\n"
          "  K=64 V=64 size=16    of axes; of those not named\n"
          "  dtype=bfloat16 chunk=64 seed=1 threads=2 backward=false\n" },
        { "bench", "usage: flin bench SCRIPT.lua [NAME=VALUE ...]\n"
          "Times of the script's variants: chunks, token by token, gradients,\n"
          "decoding, beside what moving the tensors alone would take.\n"
          "  B=1 T=1024 H=4 HV=4  sizes of the call\n"
          "  K=64 V=64            of axes\n"
          "  dtype=bfloat16 chunk=64 backend=cuda threads=2\n"
          "  backward=false       forward alone; seconds=0.3 of each row\n" },
        { "plan", "usage: flin plan SCRIPT.lua [NAME=VALUE ...]\n"
          "The kernels that the script's variants become, and what each\n"
          "moves.\n"
          "  K=128 V=128          sizes of axes\n"
          "  machine=h200         cpu, a100 ...; chunk=64; backward=true\n"
          "  format=svg           a drawing; format=dot: for Graphviz\n" },
        { "new", "usage: flin new NAME\n"
          "Writes NAME.lua, a gated delta rule with comments, to start from.\n"
        },
        { NULL, usage }
    };
    int i = 0;

    while (usages[i].verb && strcmp(usages[i].verb, verb))
        i++;
    return usages[i].text;
}

static bool is(const char *arg, const char *name)
{
    return strcmp(arg, name) == 0;
}

static bool bad(const char *what, const char *arg)
{
    fprintf(stderr, "flin: %s '%s'\n%s", what, arg, usage);
    return false;
}

static bool count(const char *s, uint64_t *n)
{
    char *end;

    *n = strtoull(s, &end, 10);
    return *s >= '0' && *s <= '9' && !*end;
}

static bool one_of(const char *arg, const char *const *names)
{
    while (*names && !is(arg, *names))
        names++;
    return *names != NULL;
}

static const char *const with_value[] = {
    "-d", "--arch", "--backend", "--threads", "--color", "--budget",
    "--memory", NULL
};

bool takes_value(const char *arg)
{
    return one_of(arg, with_value);
}

/* Options that take a value; *i moves on to it. False: a fault, said. */
static bool valued(Options *o, char **argv, int *i)
{
    static const char *const when[] = { "always", "never", "auto", NULL };
    const char *name = argv[*i], *value = argv[*i + 1];
    uint64_t n = 0;

    if (!value)
        return bad("a value is wanted after", name);
    ++*i;
    if (is(name, "-d"))
        o->dump = value;
    else if (is(name, "--backend"))
        o->backend = value;
    else if (is(name, "--arch") && o->arch)
        return bad("one --arch is taken, not", value);
    else if (is(name, "--arch"))
        o->arch = value;
    else if (is(name, "--color") && !one_of(value, when))
        return bad("always, never or auto is wanted, not", value);
    else if (is(name, "--color"))
        o->color = value;
    else if (!count(value, &n))
        return bad("a number is wanted, not", value);
    else if (is(name, "--threads"))
        o->threads = value;
    else if (is(name, "--budget"))
        o->limits.instructions = n;
    else
        o->limits.memory = (size_t)n << 20;
    return true;
}

/* "--check" or "--check=K=64": what follows the name, perhaps nothing. */
static bool sizes_of(const char *arg, const char *name, const char **sizes)
{
    size_t n = strlen(name);

    if (strncmp(arg, name, n) != 0 || (arg[n] && arg[n] != '='))
        return false;
    *sizes = arg[n] ? arg + n + 1 : "";
    return true;
}

/* Options without a value; false: no such. */
static bool plain(Options *o, const char *a)
{
    if (is(a, "-i"))
        o->interactive = o->version = true;
    else if (is(a, "-v") || is(a, "--version"))
        o->version = true;
    else if (is(a, "-h") || is(a, "--help"))
        o->help = true;
    else if (is(a, "-E"))
        o->no_init = true;
    else if (is(a, "-W"))
        o->warnings = true;
    else if (is(a, "--sandbox"))
        o->sandbox = true;
    else if (is(a, "--luacats"))
        o->luacats = true;
    else
        return sizes_of(a, "--check", &o->check)
            || sizes_of(a, "--compile-only", &o->compile);
    return true;
}

/* -e and -l are run later, in their order. */
bool parse_options(Options *o, char **argv)
{
    static const char *const verbs[] = { "check", "bench", "plan", "new",
                                         NULL };
    int i;

    for (i = 1; argv[i] && argv[i][0] == '-' && argv[i][1]; i++) {
        const char *a = argv[i];
        if (is(a, "--")) {
            i++;
            break;
        } else if (a[1] == 'e' || a[1] == 'l') {
            o->ran = true;
            if (!a[2] && !argv[++i])
                return bad("a value is wanted after", a);
        } else if (strncmp(a, "--color=", 8) == 0) {
            char *again[] = { "--color", argv[i] + 8, NULL };
            int at = 0;
            if (!valued(o, again, &at))
                return false;
        } else if (takes_value(a)) {
            if (!valued(o, argv, &i))
                return false;
        } else if (!plain(o, a)) {
            return bad("unknown option", a);
        }
    }
    o->script = argv[i] ? i : 0;
    if (o->script && one_of(argv[i], verbs))
        o->verb = argv[i];
    return true;
}
