/* host.c -- the source that cuda_tiles prints, as plain C++ on the host: all
 * of stdlib, forward, with gradients and token after token, against the
 * float64 step. What is on trial is the source; the device's own routines
 * (fragments, anchors, barriers) are tests/cuda/laws.lua's. Needs a C++
 * compiler.
 *   host [NAME]: that variant alone, and where it differs.
 */
#include "../../backend/cuda/cuda.h"
#include "../../backend/cuda/nvrtc.h"
#include "../../compiler/grad.h"
#include "../../compiler/pipeline.h"
#include "../../compiler/partition.h"
#include "../unit/support.h"
#include "stdlib.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

enum { CHUNK = 16, MAX_TRIALS = 160, MAX_RANK = 3 };

typedef enum Kind { FORWARD, JOINT, SERIAL, SERIAL_JOINT, ROUNDED, NKINDS }
    Kind;
static const char *const kind_name[NKINDS] = {
    "forward", "joint", "serial", "serial joint", "joint bfloat16"
};

/* A variant's plan of one kind; its source is namespace trial_N. */
typedef struct Trial {
    char name[64];
    Kind kind;
    Ctx *c;
    const char *step;                   /* as text, sizes known */
    Plan *plan;
    Call *want, *got;
    CudaModule *m;
} Trial;

typedef struct Test {
    Trial trial[MAX_TRIALS];
    int n, failed, passed, faults;
    const char *only;
    char dir[64];
    void *lib;
} Test;

/* ---- plans ---- */

/* The first input of several heads has one, so that heads share it. */
static void share_head(Call *call)
{
    call->in[0].heads = 1;
}

/* States that a logarithm is taken of, too. */
static void make_positive(const Graph *g, const Call *call)
{
    for (int i = 0; i < g->nst; i++)
        for (int64_t e = 0; e < call->s0[i].sh * HEADS * SEQS; e++)
            ((double *)call->s0[i].data)[e]
                = fabs(((double *)call->s0[i].data)[e]);
}

/* What rounding has lost of a state begins with nothing. */
static void lose_nothing(const Graph *g, Call *call)
{
    for (int i = 0; i < g->nst; i++)
        if (g->st[i].lost_of)
            call->s0[i].data = NULL;
}

static void make_plan(Ctx *c, void *ud)
{
    Trial *t = ud;
    Graph *step = graph_parse(c, t->step), *g;
    int32_t size[NAXES];
    bool joint = t->kind != FORWARD && t->kind != SERIAL;

    for (int i = 0; i < NAXES; i++)
        size[i] = step->axis[i].size;
    bool serial = t->kind == SERIAL || t->kind == SERIAL_JOINT;
    g = serial ? NULL
      : by_chunks(step, size, CHUNK, joint, machine_usual_gpu());
    if (!g && !serial)
        return;
    if (!g)
        g = graph_sized(step, size);
    if (serial && joint)
        g = grad(g);
    t->plan = joint && g->chunk ? partition(g, machine_usual_gpu(), FULL, NULL)
                                : plan_simple(g);
    t->want = make_call(c, g, 7);
    share_head(t->want);
    make_positive(g, t->want);
    lose_nothing(g, t->want);
    make_results(c, g, t->want);
    t->got = ctx_alloc(c, sizeof *t->got);
    *t->got = *t->want;
    make_results(c, g, t->got);
    if (g->chunk)
        interpret_chunks(c, g, t->want);
    else
        reference_run(c, g, t->want);
    CudaOptions o = { .tile = t->kind == ROUNDED ? BF16 : F32,
                      .arch = 80, .scheduled = serial };
    cuda_call_options(&o, g, t->got);
    t->m = cuda_tiles(c, t->plan, &o);
}

static void add_trial(Test *t, const char *name, Kind kind, const char *step)
{
    Trial *r = &t->trial[t->n++];

    snprintf(r->name, sizeof r->name, "%s", name);
    r->kind = kind;
    r->c = ctx_new();
    r->step = step;
    if (!ctx_protect(r->c, make_plan, r)) {
        printf("FAIL %s %s: %s\n", name, kind_name[kind], r->c->err.message);
        t->failed++;
        t->n--;
    } else if (!r->m) {
        t->n--;
    }
}

/* ---- one library of them all ---- */

/* Behind the last line that includes a header. */
static const char *body_of(const char *source)
{
    for (const char *s; (s = strstr(source, "#include")) != NULL;)
        source = strchr(s, '\n');
    return source;
}

/* With those that it includes in their places. */
static void write_header(FILE *f, const char *name)
{
    static const char include[] = "\n#include \"";
    const CudaHeader *h = cuda_headers;

    while (strcmp(h->name, name) != 0)
        h++;
    const char *text = h->text;
    for (const char *s; (s = strstr(text, include)) != NULL;) {
        const char *word = s + sizeof include - 1;
        size_t n = strcspn(word, "\"");
        char other[64];
        snprintf(other, sizeof other, "%.*s", (int)n, word);
        fprintf(f, "%.*s\n", (int)(s - text), text);
        write_header(f, other);
        text = word + n + 1;
    }
    fprintf(f, "%s\n", text);
}

enum { MOST_WARPS = 32 };

/* The headers for a rank and a size of a block, in a namespace. */
static void write_headers(FILE *f, int rank, int threads)
{
    fprintf(f, "#undef RANK\n#define RANK %d\n#undef THREADS\n"
            "#define THREADS %d\nnamespace base_%d_%d {\n", rank, threads, rank,
            threads);
    write_header(f, "numbers.cuh");
    write_header(f, "warp.cuh");
    write_header(f, "run.cuh");
    write_header(f, "tile.cuh");
    write_header(f, "products.cuh");
    write_header(f, "scans.cuh");
    fprintf(f, "}\n");
}

static void write_trial(FILE *f, const Trial *t, int at)
{
    for (int k = 0; k < t->m->nkernels; k++)
        fprintf(f, "#undef %s\n#define %s trial_%d_%d\n", t->m->kernel[k].name,
                t->m->kernel[k].name, at, k);
    fprintf(f, "#undef THREADS\n#define THREADS %d\nnamespace trial_%d {\n"
            "using namespace base_%d_%d;\n"
            "alignas(16) char arena[ARENA];\n%s}\n",
            t->m->kernel->threads, at, cuda_rank(t->plan->g),
            t->m->kernel->threads, body_of(t->m->source));
    for (int k = 0; k < t->m->nkernels; k++)
        fprintf(f, "extern \"C\" int run_%d_%d(void *a, long grid)\n{\n"
                "    launch(grid, THREADS, trial_%d::arena, [](void *a) {\n"
                "        trial_%d_%d(*(trial_%d::Args%d *)a);\n    }, a);\n"
                "    return faults;\n}\n", at, k, at, at, k, at, k);
}

static bool write_source(const Test *t, int part, int parts)
{
    char path[96];

    snprintf(path, sizeof path, "%s/part%d.cc", t->dir, part);
    FILE *f = fopen(path, "w");
    if (!f)
        return false;
    fprintf(f, "#include \"host.h\"\n");
    bool has[MAX_RANK + 1][MOST_WARPS + 1] = { { false } };
    for (int i = part; i < t->n; i += parts) {
        int rank = cuda_rank(t->trial[i].plan->g);
        int threads = t->trial[i].m->kernel->threads;
        if (!has[rank][threads / 32])
            write_headers(f, rank, threads);
        has[rank][threads / 32] = true;
        write_trial(f, &t->trial[i], i);
    }
    return fclose(f) == 0;
}

static bool build(Test *t, const char *compiler)
{
    enum { PARTS = 2 };
    char command[512];

    snprintf(t->dir, sizeof t->dir, "/tmp/flin-host-XXXXXX");
    if (!mkdtemp(t->dir))
        return false;
    for (int i = 0; i < PARTS; i++)
        if (!write_source(t, i, PARTS))
            return false;
    snprintf(command, sizeof command, "cd %s && I=$OLDPWD/tests/cuda &&"
             " C='%s -std=c++17 -O0 -fPIC -w' &&"
             " { $C -iquote\"$I\" -c part1.cc & $C -iquote\"$I\" -c part0.cc &&"
             " wait $!; } && $C -O2 -fno-strict-aliasing"
             " -c \"$I\"/hopper.cc &&"
             " $C -shared -o trials.so part0.o part1.o hopper.o -lm", t->dir,
             compiler);
    if (system(command) != 0)
        return false;
    snprintf(command, sizeof command, "%s/trials.so", t->dir);
    t->lib = dlopen(command, RTLD_NOW);
    if (!t->lib)
        printf("%s\n", dlerror());
    return t->lib;
}

static void clean(const Test *t)
{
    char command[96];

    snprintf(command, sizeof command, "rm -rf %s", t->dir);
    if (!t->only && system(command) != 0)
        printf("cannot remove %s\n", t->dir);
}

/* ---- running ---- */

typedef struct DeviceSeq { int32_t b, pad; int64_t start, len; } DeviceSeq;
typedef int RunFn(void *args, long grid);

/* False if a thread did what it must not. */
static bool run_trial(Test *t, Ctx *c, int at)
{
    const Trial *r = &t->trial[at];
    DeviceSeq seq[SEQS];
    int64_t bytes = cuda_workspace(r->m, r->plan, r->got);
    char *workspace = ctx_alloc(c, (size_t)bytes + 256);
    int faults = t->faults;

    memset(workspace, 0xff, (size_t)bytes + 256);
    workspace += 256 - (uintptr_t)workspace % 256;
    for (int i = 0; i < SEQS; i++)
        seq[i] = (DeviceSeq){ r->got->seq[i].b, 0, r->got->seq[i].start,
                              r->got->seq[i].len };
    for (int k = 0; k < r->m->nkernels; k++) {
        char name[32];
        unsigned char *args;
        int64_t grid;
        RunFn *run;
        snprintf(name, sizeof name, "run_%d_%d", at, k);
        void *entry = dlsym(t->lib, name);
        memcpy(&run, &entry, sizeof run);
        cuda_tile_args(c, r->m, &r->m->kernel[k], r->plan, r->got,
                       (uintptr_t)seq, (uintptr_t)workspace, &args, &grid);
        faults = run(args, (long)grid);
    }
    bool sound = faults == t->faults;
    t->faults = faults;
    return sound;
}

static void show(const Trial *r)
{
    const Graph *g = r->plan->g;

    for (int i = 0; i < g->nout; i++)
        printf("  %s %g\n", g->out[i].name,
               distance(&r->want->out[i], &r->got->out[i], TOKENS));
    for (int i = 0; i < g->nst; i++)
        printf("  %s %g\n", g->st[i].name,
               distance(&r->want->s1[i], &r->got->s1[i], SEQS));
}

static void judge(Test *t, int at)
{
    Trial *r = &t->trial[at];

    bool sound = run_trial(t, r->c, at);
    /* float32 throughout, some sums of a whole sequence long; or what the
     * gradients of gates may lose to bfloat16 */
    double d = call_distance(r->plan->g, r->want, r->got);
    if (d < (r->kind == ROUNDED ? 2e-2 : 1e-4) && sound) {
        t->passed++;
    } else {
        printf("FAIL %s %s: differs by %g\n", r->name, kind_name[r->kind], d);
        t->failed++;
    }
    if (t->only) {
        printf("%s %s: %g\n", r->name, kind_name[r->kind], d);
        show(r);
    }
}

/* ---- all of stdlib ---- */

static void add_variant(void *ud, const char *name, const char *step)
{
    Test *t = ud;

    /* the serial one's gradients use what the others use: a few will do, and
     * of the tensor cores' bfloat16 */
    for (int k = 0; k < NKINDS; k++)
        if (t->only ? !strcmp(name, t->only)
                    : k < SERIAL_JOINT || t->n % 5 == 3)
            add_trial(t, name, (Kind)k, step);
}

int main(int argc, char **argv)
{
    static Test t;

    t.only = argc > 1 ? argv[1] : NULL;
    if (system("c++ --version >/dev/null 2>&1") != 0) {
        printf("skip: no C++ compiler\n");
        return 0;
    }
    Ctx *c = ctx_new();
    if (!stdlib_each(c, 24, 64, add_variant, &t)) {
        printf("FAIL %s\n", c->err.message);
        t.failed++;
    }
    if (build(&t, "c++"))
        for (int i = 0; i < t.n; i++)
            judge(&t, i);
    else
        t.failed++;
    clean(&t);
    printf("%d passed, %d failed\n", t.passed, t.failed);
    return t.failed != 0;
}
