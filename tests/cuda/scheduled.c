/* scheduled.c -- for how many of the standard library's kernels there is a
 * schedule: by variant, scaled as calls from Python are, and by what a call may
 * be like. The counts are kept in
 * tests/golden/scheduled.txt and may only grow; BLESS=1 takes those there are.
 *   scheduled                   the counts, compared
 *   scheduled all [NAME]        every size; a line each with what is lacking
 *   scheduled at K V [NAME]     the same of one size
 *   scheduled compile NAME K V [CHUNK [LIKE [DIR]]]
 *                               their kernels by NVRTC: registers, spills;
 *                               the texts and the cubins to that folder
 *   scheduled on ARCH ...       any of these for an architecture: 80, 89, 100
 */
#include "declared.h"
#include "kinds.h"
#include "stdlib.h"
#include "../../compiler/machine.h"
#include "../../compiler/schedule/schedule.h"

#include <stdlib.h>

enum { MOST_VARIANTS = 64, MOST_SIZES = 64, TEXT = 1 << 16 };

/* What a call is like: `vectors` of gates and other inputs that are no
 * matrices; states where they begin and end; whether heads share inputs, and
 * are few; whether it only goes forward, or is in segments, of which it wants
 * what walks leave. */
static const struct Like {
    const char *name;
    DType tile, vectors, states;
    bool shared, few, forward, ends;
} likes[] = {
    { "bfloat16", BF16, F32, F32, false, false, false, false },
    { "float16", F16, F32, F32, false, false, false, false },
    { "gates16", BF16, BF16, F32, false, false, false, false },
    { "states16", BF16, F32, BF16, false, false, false, false },
    { "shared", BF16, F32, F32, true, false, false, false },
    { "few", BF16, F32, F32, false, true, false, false },
    { "forward", BF16, F32, F32, false, false, true, false },
    { "ends", BF16, F32, F32, false, false, false, true },
    { "forward_few", BF16, F32, F32, false, true, true, false },
};
enum { NLIKES = sizeof likes / sizeof *likes };
static const int chunks[] = { 64, 32 };
enum { NCHUNKS = 2 };

typedef struct Size { int k, v; } Size;
static const Size quick[] = { { 128, 128 }, { 64, 128 }, { 96, 32 },
                              { 256, 256 } };
enum { NQUICK = sizeof quick / sizeof *quick };

typedef struct Count { int kernels, scheduled; } Count;

typedef struct Test {
    Ctx *c;
    const char *only, *like;            /* NULL: any */
    const char *to;                     /* the folder of texts; NULL: none */
    int chunk;                          /* 0: any */
    bool all;
    int arch;
    Nvrtc *nvrtc;                       /* compiles */
    int spilled, failed;
    Size size;
    int nvariants;
    char name[MOST_VARIANTS][32];
    Count count[MOST_VARIANTS][NCHUNKS][NLIKES];
} Test;

static void set_options(const Graph *g, const struct Like *l, int arch,
                        CudaOptions *o)
{
    *o = (CudaOptions){ .tile = l->tile, .arch = arch,
                        .scheduled = true, .few = l->few, .ends = l->ends };
    for (int i = 0; i < g->nin; i++)
        o->in[i] = g->in[i].rank && g->in[i].timed ? l->tile : l->vectors;
    for (int i = 0; i < g->nout; i++) {
        o->out[i] = g->out[i].rank ? l->tile : F32;
        for (int d = 0; d < g->out[i].rank && l->shared; d++)
            o->sum_out[i] |= !strcmp(g->axis[g->out[i].order[d]].name, "k");
    }
    for (int i = 0; i < g->nst; i++)
        o->s0[i] = o->s1[i] = g->st[i].rank ? l->states : F32;
}

typedef struct Trial {
    Test *t;
    const Plan *p;
    CudaOptions o;
    Count count;
    const char *why, *fault;
} Trial;

/* What attempts are refused for that have room, and are no fault of a pass:
 * rings that alternate have no room for all of their slots, slices no whole
 * blocks. One is: two results of mamba3 that are left an iteration later. */
static const struct Limit { const char *fault, *of; } limits[] = {
    { "slots that are not dealt", NULL }, { "a slice of rows", NULL },
    { "values out of order", "mamba3" },
};

static bool is_limit(const char *fault, const char *name)
{
    bool any = false;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        any |= strstr(fault, limits[i].fault)
            && (!limits[i].of || !strcmp(limits[i].of, name));
    return any;
}

/* Instructions of a cubin: of 16 bytes each, in sections that are run. */
static int count_instructions(const Cubin *b)
{
    enum { SECTIONS = 0x28, ENTRY = 0x3a, COUNT = 0x3c, FLAGS = 8, SIZE = 32,
           RUN = 4 };
    const unsigned char *at = b->bytes;
    uint64_t from, flags, size, all = 0;
    uint16_t each, n;

    memcpy(&from, at + SECTIONS, sizeof from);
    memcpy(&each, at + ENTRY, sizeof each);
    memcpy(&n, at + COUNT, sizeof n);
    for (int i = 0; i < n; i++) {
        memcpy(&flags, at + from + i * each + FLAGS, sizeof flags);
        memcpy(&size, at + from + i * each + SIZE, sizeof size);
        all += flags & RUN ? size : 0;
    }
    return (int)(all / 16);
}

static const char *text_of(Ctx *c, const CudaModule *m, const CudaKernel *k)
{
    Buf b = { .ctx = c };

    buf_printf(&b, "%s", k->head);
    buf_put(&b, m->source + k->text, k->end - k->text);
    return b.s;
}

static void compile(Ctx *c, Test *t, const CudaKernel *k, const char *text)
{
    FILE *f = t->to ? fopen(ctx_format(c, "%s/%s.cu", t->to, k->name), "w")
                    : NULL;
    if (f) {
        fputs(text, f);
        fclose(f);
    }
    const Cubin *cubin = nvrtc_compile(c, t->nvrtc, text,
                                       k->schedule->target->name);
    f = t->to ? fopen(ctx_format(c, "%s/%s.cubin", t->to, k->name), "wb")
              : NULL;
    if (f) {
        fwrite(cubin->bytes, 1, cubin->size, f);
        fclose(f);
    }
    PtxasInfo i = cubin->info;
    printf("%-16s %3d registers, %d spilled, %d stack; %d instructions, %d"
           " estimated\n", k->name, i.registers, i.spill_stores, i.stack,
           count_instructions(cubin), schedule_length(k->schedule));
    fflush(stdout);
    t->spilled += i.spill_stores;
}

static void count_kernels(Ctx *c, void *ud)
{
    Trial *y = ud;

    const CudaModule *m = cuda_tiles(c, y->p, &y->o);
    const char *why = m->schedules ? strstr(m->schedules, "no schedule: ")
                                   : NULL;
    for (int i = 0; i < m->nkernels; i++) {
        if (m->kernel[i].walk == CUDA_SUM)
            continue;
        y->count.kernels++;
        if (!m->kernel[i].head)
            continue;
        y->count.scheduled++;
        const char *text = text_of(c, m, &m->kernel[i]);
        const char *name = find_undeclared(c, text);
        if (name)
            fail(c, 0, "%s: nobody declares %s", m->kernel[i].name, name);
        if (y->t->nvrtc)
            compile(c, y->t, &m->kernel[i], text);
    }
    if (why)
        y->why = ctx_format(c, "%.*s", (int)strcspn(why, "\n"), why);
}

static int variant_number(Test *t, const char *name)
{
    int i = 0;

    while (i < t->nvariants && strcmp(t->name[i], name))
        i++;
    if (i == t->nvariants && i < MOST_VARIANTS - 1)
        snprintf(t->name[t->nvariants++], sizeof *t->name, "%s", name);
    return i;
}

typedef struct Planning {
    const char *step;
    int chunk;
    bool backward;
    const Machine *m;
    Plan *p;
} Planning;

static void make_plan(Ctx *c, void *ud)
{
    Planning *n = ud;
    Graph *step = graph_parse(c, n->step);
    int32_t size[NAXES];

    for (int i = 0; i < NAXES; i++)
        size[i] = step->axis[i].size;
    n->p = plan_make(step, size, n->chunk, n->backward, n->m, NULL);
}

static void one_case(Test *t, const char *name, Ctx *c, const Plan *p,
                     int chunk, int like)
{
    Trial y = { .t = t, .p = p };
    Count *to = &t->count[variant_number(t, name)][chunk][like];

    if ((t->like && strcmp(t->like, likes[like].name))
        || (t->chunk && t->chunk != chunks[chunk]))
        return;
    set_options(p->g, &likes[like], t->arch, &y.o);
    y.o.fault = &y.fault;
    if (!ctx_protect(c, count_kernels, &y)) {
        y.why = c->err.message;
        if (!y.o.ends || c->err.code != ERR_USER) {     /* may have none */
            printf("FAIL %s %dx%d: %s\n", name, t->size.k, t->size.v, y.why);
            t->failed++;
        }
    }
    if (y.fault && !is_limit(y.fault, name)) {
        printf("FAIL %s %dx%d %s: an attempt that the checker refuses: %s\n",
               name, t->size.k, t->size.v, likes[like].name, y.fault);
        t->failed++;
    }
    to->kernels += y.count.kernels;
    to->scheduled += y.count.scheduled;
    if (t->all)
        printf("%-16s %3dx%-3d %d %-8s %d of %d  %s\n", name, t->size.k,
               t->size.v, chunks[chunk], likes[like].name,
               y.count.scheduled, y.count.kernels, y.why ? y.why : "");
}

/* Chunks of 32 tokens with every third kind, where not all is asked for. */
static bool is_tried(const Test *t, int chunk, int like)
{
    return t->all || !chunk || like % 3 == 0;
}

static void variant(void *ud, const char *name, const char *step)
{
    Test *t = ud;

    if (t->only && strcmp(t->only, name))
        return;
    for (int i = 0; i < 2 * NCHUNKS; i++) {
        Ctx *c = ctx_new();
        int k = i % NCHUNKS;
        Planning n = { step, chunks[k], i < NCHUNKS,
                       machine_of_arch(t->arch), NULL };
        bool ok = ctx_protect(c, make_plan, &n);
        for (int l = 0; l < NLIKES && ok && n.p->g->chunk == chunks[k]; l++)
            if (likes[l].forward != n.backward && is_tried(t, k, l))
                one_case(t, name, c, n.p, k, l);
        ctx_free(c);
    }
}

static void print_counts(const Test *t, Buf *b)
{
    for (int i = 0; i < t->nvariants; i++)
        for (int k = 0; k < NCHUNKS; k++)
            for (int l = 0; l < NLIKES; l++) {
                const Count *n = &t->count[i][k][l];
                if (n->scheduled)
                    buf_printf(b, "%s %d %s %d of %d\n", t->name[i], chunks[k],
                               likes[l].name, n->scheduled, n->kernels);
            }
}

/* The count that a line of that beginning has; -1: there is none. */
static int count_in(const char *text, const char *line)
{
    size_t n = strcspn(line, "0123456789");

    n += strspn(line + n, "0123456789") + 1;
    n += strcspn(line + n, " ") + 1;
    for (const char *at = text; at && *at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (!strncmp(at, line, n))
            return atoi(at + n);
    }
    return -1;
}

/* A count that is smaller than the one kept. */
static int compare(const char *kept, const char *now)
{
    int wrong = 0;

    for (const char *at = kept; *at; at += strcspn(at, "\n") + 1) {
        char line[128];
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        int was = count_in(kept, line), is = count_in(now, line);
        if (is < was) {
            printf("FAIL scheduled: %s; there %s %d\n", line,
                   is == 1 ? "is" : "are", is < 0 ? 0 : is);
            wrong++;
        }
    }
    return wrong;
}

static bool all_sizes(Ctx *c, Test *t)
{
    static const int d[] = { 16, 32, 64, 96, 128, 192, 256 };
    enum { N = sizeof d / sizeof *d };

    for (int k = 0; k < N; k++)
        for (int v = 0; v < N; v++) {
            t->size = (Size){ d[k], d[v] };
            if (!stdlib_each_of(c, d[k], d[v], true, variant, t))
                return false;
        }
    return true;
}

static bool quick_sizes(Ctx *c, Test *t)
{
    for (int i = 0; i < NQUICK; i++) {
        t->size = quick[i];
        if (!stdlib_each_of(c, quick[i].k, quick[i].v, true,
                            variant, t))
            return false;
    }
    return true;
}

static bool one_size(Ctx *c, Test *t)
{
    return stdlib_each_of(c, t->size.k, t->size.v, true, variant, t);
}

/* NAME K V [CHUNK [LIKE [DIR]]] */
static int compile_one(Ctx *c, Test *t, int argc, char **argv)
{
    static Nvrtc nvrtc;

    if (argc < 5 || !nvrtc_open(c, &nvrtc)) {
        printf("skip: %s\n", argc < 5 ? "NAME K V" : c->err.message);
        return 0;
    }
    t->all = true;
    t->nvrtc = &nvrtc;
    t->only = argv[2];
    t->size = (Size){ atoi(argv[3]), atoi(argv[4]) };
    t->chunk = argc > 5 ? atoi(argv[5]) : 0;
    t->like = argc > 6 ? argv[6] : NULL;
    t->to = argc > 7 ? argv[7] : NULL;
    return !one_size(c, t) || t->spilled;
}

int main(int argc, char **argv)
{
    static Test t;
    static char kept[TEXT];
    const char *path = "tests/golden/scheduled.txt";
    Ctx *c = ctx_new();
    Buf now = { .ctx = c };

    t.arch = 90;
    if (argc > 2 && !strcmp(argv[1], "on")) {
        t.arch = atoi(argv[2]);
        argc -= 2;
        argv += 2;
    }
    if (argc > 1 && !strcmp(argv[1], "compile"))
        return compile_one(c, &t, argc, argv);
    bool at = argc > 3 && !strcmp(argv[1], "at");
    int name = at ? 4 : 2;
    t.all = argc > 1;
    t.only = argc > name ? argv[name] : NULL;
    if (at)
        t.size = (Size){ atoi(argv[2]), atoi(argv[3]) };
    if (!(at ? one_size(c, &t)
          : t.all ? all_sizes(c, &t) : quick_sizes(c, &t))) {
        printf("FAIL %s\n", c->err.message);
        return 1;
    }
    print_counts(&t, &now);
    if (t.all)
        return 0;
    if (getenv("BLESS")) {
        FILE *f = fopen(path, "w");
        fputs(now.s, f);
        fclose(f);
    }
    FILE *f = fopen(path, "r");
    if (!f || fread(kept, 1, TEXT - 1, f) < 100) {
        printf("FAIL %s is missing\n", path);
        return 1;
    }
    fclose(f);
    int wrong = compare(kept, now.s) + t.failed;
    printf("%d passed, %d failed\n", !wrong, wrong);
    ctx_free(c);
    return wrong != 0;
}
