/* compile_tiles.c -- the kernels of the standard library compile: by warps that
 * all do the same for every other variant at K = V = 128 on sm_90a, a sample
 * with gradients, for decoding, for sm_80 and for sm_100; from schedules by
 * roles a sample on sm_90a and sm_100a; spilled registers and seconds are
 * looked at. Needs NVRTC, no GPU.
 *   compile_tiles               as much as `make test` has time for
 *   compile_tiles all [NAME]    all kernels, a line each
 *   compile_tiles cold [NAME]   first uses, forward and joint, one by one
 *   compile_tiles NAME          that variant, and its sources
 *   compile_tiles compositions [EVERY [K V]]
 *                               each EVERYth of what flin.attention composes
 *                               (7), both ways and forward alone, for many
 *                               heads and for few: what ptxas has to say
 *   compile_tiles texts [NAME]  the hashes of all that is printed, a line each;
 *                               what is meant to change no kernel leaves
 *                               tests/golden/kernels.txt as it is
 *   compile_tiles whole DIR     a dozen of those texts, a file each: they are
 *                               tests/golden/kernels, to be read as a change
 *   compile_tiles code [NAME]   the hash of each program's machine code: other
 *                               names and comments leave it as it is
 * JOBS processes share the work, as many as there are cores. RECORD is a file
 * to which lines are added; what it has already is not compiled again.
 */
#define _DEFAULT_SOURCE                 /* MAP_ANONYMOUS */
#include "kinds.h"
#include "stdlib.h"

#include <elf.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct Dims { int k, v; } Dims;
static const Dims dims[] = { { 128, 128 }, { 20, 33 }, { 256, 256 },
                             { 64, 64 }, { 16, 16 } };
static const char *const archs[] = { "sm_90a", "sm_80", "sm_100" };
static const DType types[] = { BF16, F32, F16 };
enum { NDIMS = sizeof dims / sizeof *dims, NARCHS = 3, NTYPES = 3,
       MOST_STEPS = 32, MOST_CASES = 4096, LINE = 400 };

/* By warps that all do the same, or by roles, for many heads or for few. */
typedef enum How { PLAIN, PLANNED, FEW } How;
typedef struct Case {
    char name[64];
    const char *step;
    Dims d;
    Kind kind;
    DType type;
    const char *arch;
    How how;
} Case;

/* A plan, and where it lives. */
typedef struct Planned {
    const char *step;
    Kind kind;
    Ctx *c;
    const Plan *plan;
} Planned;

/* Shared by the processes. */
typedef struct Progress {
    atomic_int next, passed, failed;
} Progress;

typedef struct Test {
    Nvrtc nvrtc;
    const char *only, *record;
    const char *whole;                  /* a folder */
    bool all, cold, sources, texts, code, composed;
    Dims d;                             /* of the steps at hand */
    int at, n;
    Case list[MOST_CASES];
    char *known;                        /* what the record holds */
    Progress *shared;
    /* the case at hand; the plans of its step, which its like share */
    const Case *k;
    Planned planned[NKINDS];
    char line[LINE];
} Test;

static double seconds_of(clockid_t which)
{
    struct timespec t;

    clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- a case ---- */

static void set_types(const Graph *g, const Case *k, CudaOptions *o)
{
    o->tile = k->type;
    o->arch = atoi(k->arch + 3);
    o->scheduled = k->how != PLAIN;
    o->few = k->how == FEW;
    for (int i = 0; i < g->nin; i++)
        o->in[i] = o->scheduled && !g->in[i].rank ? F32 : k->type;
    for (int i = 0; i < g->nout; i++)
        o->out[i] = k->type;
}

typedef struct Report {
    int registers, spilled, shared, programs, scheduled;
    long long spill;
} Report;

static Report report_of(const CudaModule *m, const Cubin *b, int programs)
{
    PtxasInfo most = ptxas_most(b, programs);
    Report r = { .registers = most.registers, .spilled = most.spill_stores,
                 .programs = programs };

    for (int i = 0; i < m->nkernels; i++) {
        if (m->kernel[i].shared > r.shared)
            r.shared = m->kernel[i].shared;
        if (m->kernel[i].spill > r.spill)
            r.spill = m->kernel[i].spill;
        r.scheduled += m->kernel[i].head != NULL;
    }
    return r;
}

static void make_plan(Ctx *c, void *ud)
{
    Planned *p = ud;

    p->plan = plan_of(c, p->step, p->kind);
}

/* Where seconds of first uses are asked for, each is planned anew. */
static const Plan *shared_plan(Ctx *c, Test *t)
{
    const Case *k = t->k;
    Planned *p = &t->planned[k->kind];

    if (p->step == k->step && !t->cold)
        return p->plan;
    if (p->c)
        ctx_free(p->c);
    *p = (Planned){ k->step, k->kind, ctx_new(), NULL };
    if (!ctx_protect(p->c, make_plan, p)) {
        p->step = NULL;
        ctx_raise(c, &p->c->err);
    }
    return p->plan;
}

typedef struct Trial {
    const Case *k;
    const Plan *plan;
    CudaOptions o;
} Trial;

static CudaModule *print(Ctx *c, void *ud, int attempt, Error *why)
{
    Trial *y = ud;

    y->o.attempt = attempt;
    return cuda_tiles_if(c, y->plan, &y->o, why);
}

/* Its text; fails where it is not printed. */
static const char *text_of(Ctx *c, Trial *y, int attempt)
{
    Error why;
    const CudaModule *m = print(c, y, attempt, &why);

    if (!m)
        ctx_raise(c, &why);
    return m->source;
}

/* Of the sections of a cubin that are instructions. */
static uint64_t code_hash(Ctx *c, const Cubin *b)
{
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)b->bytes;
    uint64_t h = 0;

    if (b->size < sizeof *head || memcmp(head->e_ident, ELFMAG, SELFMAG)
        || head->e_shoff + head->e_shnum * sizeof(Elf64_Shdr) > b->size)
        fail_code(c, ERR_INTERNAL, "what NVRTC made is no ELF file");
    for (int i = 0; i < head->e_shnum; i++) {
        Elf64_Shdr part;
        memcpy(&part, b->bytes + head->e_shoff + (size_t)i * sizeof part,
               sizeof part);
        if (part.sh_type == SHT_PROGBITS && part.sh_flags & SHF_EXECINSTR
            && part.sh_offset + part.sh_size <= b->size)
            h = hash_bytes(h, b->bytes + part.sh_offset, part.sh_size);
    }
    return h;
}

/* As a first call does it; `others`: programs that took another room. */
static Report compile_case(Ctx *c, Test *t, int *others)
{
    const Case *k = t->k;
    Trial y = { .k = k, .plan = shared_plan(c, t) };
    Attempts attempts = { .ctx = c, .print = print, .ud = &y };
    Cubin *b;

    set_types(y.plan->g, k, &y.o);
    CudaModule *m = attempts_compile_all(c, &attempts, &t->nvrtc, k->arch, &b);
    if (t->sources)
        printf("// ---- %s %s\n%s", k->name, kind_name[k->kind],
               attempts.m[0]->source);
    for (int i = 0; i < attempts.programs[0].n; i++) {
        *others += b[i].taken > 0;
        if (t->code)
            printf("%s%d %016llx\n", t->line + 5, i,
                   (unsigned long long)code_hash(c, &b[i]));
    }
    return report_of(m, b, attempts.programs[0].n);
}

/* Texts by which programs may be dealt otherwise, compiled before anybody knows
 * whether they are to be: what is taken is the same. */
static void compile_ahead(Ctx *c, Test *t)
{
    const Case *k = t->k;
    Trial y = { .k = k, .plan = shared_plan(c, t) };
    Attempts plain = { .ctx = c, .print = print, .ud = &y }, ahead = plain;
    enum { MOST = 32 };
    const char *text[MOST];
    int program[MOST];
    Along along = { .text = text };
    Cubin *b;
    Error why;

    set_types(y.plan->g, k, &y.o);
    attempts_compile_all(c, &plain, &t->nvrtc, k->arch, &b);
    int n = plain.programs[0].n;
    attempt_text(c, &ahead, 0, 0);
    for (int i = 0; i < n; i++) {
        program[i] = i;
        for (int a = 1; a < CUDA_ATTEMPTS && along.n < MOST; a++) {
            const char *s = attempt_dealt(c, &ahead, a, i);
            if (s)
                text[along.n++] = s;
        }
    }
    Wanted w = { .attempts = &ahead, .program = program, .n = n,
                 .along = &along };
    bool any = false;
    bool ok = attempts_compile(c, &w, &t->nvrtc, k->arch, &why);
    for (int i = 0; i < n && ok; i++) {
        any |= b[i].taken > 0;
        ok = b[i].taken == w.cubin[i].taken
          && code_hash(c, &b[i]) == code_hash(c, &w.cubin[i]);
    }
    if (!ok || !any || !along.n)
        fail_code(c, ERR_INTERNAL, "%d texts went along: %s", along.n, !any
                  ? "no program is dealt otherwise" : "others are taken");
}

/* The hash of what is printed for every room. */
static void print_hash(Ctx *c, void *ud)
{
    Test *t = ud;
    const Case *k = t->k;
    Trial y = { .k = k, .plan = shared_plan(c, t) };
    uint64_t h = 0;

    set_types(y.plan->g, k, &y.o);
    const char *text = text_of(c, &y, 0);
    h = hash_bytes(h, text, strlen(text));
    printf("%s%016llx\n", t->line + 5, (unsigned long long)h);
}

/* The text, to a file of its own. */
static void write_whole(Ctx *c, void *ud)
{
    static const char *const by[] = { "tiles", "planned", "few" };
    Test *t = ud;
    const Case *k = t->k;
    Trial y = { .k = k, .plan = shared_plan(c, t) };
    const char *path = ctx_format(c, "%s/%s_%s_%s.cu", t->whole, k->name,
                                  k->arch, by[k->how]);
    FILE *f = fopen(path, "w");

    set_types(y.plan->g, k, &y.o);
    if (!f || fputs(text_of(c, &y, 0), f) < 0 || fclose(f))
        fail_code(c, ERR_INTERNAL, "%s cannot be written", path);
}

/* A few cost nothing that shows. */
static int most_spilled(const Case *k)
{
    return k->how == PLAIN && (strcmp(k->arch, "sm_90a") || k->d.k > 128
                               || k->d.v > 128) ? 128 : 32;
}

static void compile(Ctx *c, void *ud)
{
    /* 2 s, with gradients 5 s, of a free core; busy ones take far longer */
    const double most[NKINDS] = { 20, 40, 20 };
    Test *t = ud;
    int others = 0;
    double wall = seconds_of(CLOCK_MONOTONIC);
    double own = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    Report r = compile_case(c, t, &others);
    size_t at = strlen(t->line);

    wall = seconds_of(CLOCK_MONOTONIC) - wall;
    own = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - own;
    snprintf(t->line + at, LINE - at, "%6.2f s, %6.2f of cores, %d programs,"
             " %3d registers, %4d spilled, %6d shared, %7lld in memory, %d in"
             " other rooms, %d scheduled\n", wall, own, r.programs,
             r.registers, r.spilled, r.shared, r.spill, others,
             r.scheduled);
    if (t->k->how == FEW && !strcmp(t->k->name, "deltaproduct"))
        compile_ahead(c, t);
    if (r.spilled > most_spilled(t->k) && !t->composed)
        fail_code(c, ERR_INTERNAL, "%d bytes spilled", r.spilled);
    if (own > most[t->k->kind] && !t->all && !t->cold && !t->composed)
        fail_code(c, ERR_INTERNAL, "%.1f s", own);
}

/* At the end of the record in one piece: others write there, too. */
static void write_line(const Test *t)
{
    FILE *f = t->record ? fopen(t->record, "a") : NULL;

    if (t->sources || t->all || t->cold || t->composed
        || !strncmp(t->line, "FAIL", 4))
        fputs(t->line, stdout);
    fflush(stdout);
    if (f) {
        fputs(t->line, f);
        fclose(f);
    }
}

static void name_case(const Case *k, char line[LINE])
{
    static const char *const by[] = { "tiles  ", "planned", "few    " };
    snprintf(line, LINE, "ok   %-15s %-7s %3dx%-3d %-8s %-6s %s ", k->name,
             kind_name[k->kind], k->d.k, k->d.v, dtype_name(k->type), k->arch,
             by[k->how]);
}

static void run_case(Test *t, const Case *k)
{
    Ctx *c = ctx_new();

    t->k = k;
    name_case(k, t->line);
    if (t->known && strstr(t->known, t->line)) {
        t->shared->passed++;
    } else if (ctx_protect(c, t->whole ? write_whole : t->texts ? print_hash
                           : compile, t)) {
        t->shared->passed++;
        if (!t->texts && !t->whole)
            write_line(t);
    } else {
        name_case(k, t->line);
        memcpy(t->line, "FAIL", 4);
        size_t at = strlen(t->line);
        snprintf(t->line + at, LINE - at, "%.200s\n", c->err.message);
        t->shared->failed++;
        write_line(t);
    }
    ctx_free(c);
}

/* ---- which ---- */

static void add(Test *t, Case like, Kind kind, DType type, const char *arch,
                How how)
{
    like.kind = kind;
    like.type = type;
    like.arch = arch;
    like.how = how;
    if (t->n < MOST_CASES)
        t->list[t->n++] = like;
}

/* Of dims. */
enum { FULL_SIZE, ODD, LARGEST, HALF };

/* On Hopper bfloat16 at all sizes; at 128 and at the odd sizes all types, and
 * float32 where it is largest; other GPUs at 128, the odd sizes in one type.
 */
static bool is_listed(int d, DType type, int arch)
{
    if (arch == 0)
        return type == BF16 || d <= ODD || (d == LARGEST && type == F32);
    return d == FULL_SIZE || (d == ODD && type == (arch == 1 ? F32 : BF16));
}

static void every(Test *t, Case like, int d)
{
    for (int k = JOINT; k >= 0; k--)
        for (int y = 0; y < NTYPES; y++)
            for (int a = 0; a < NARCHS; a++)
                if (is_listed(d, types[y], a))
                    add(t, like, (Kind)k, types[y], archs[a], PLAIN);
    for (int y = 0; y < NTYPES; y++)
        if (is_listed(d, types[y], 0))
            add(t, like, STEP, types[y], archs[0], PLAIN);
    for (int k = JOINT; k >= FORWARD; k--)
        for (int y = 0; y < NTYPES; y++)
            if (types[y] == BF16 || d == FULL_SIZE
                || (types[y] == F32 && d == HALF))
                add(t, like, (Kind)k, types[y], archs[0], PLANNED);
    if (d == 0)
        add(t, like, JOINT, BF16, "sm_100a", PLANNED);
}

/* The delta rule has every routine of the device but the gates' own. */
static void sample(Test *t, Case like)
{
    bool delta = !strcmp(like.name, "gated_deltanet");

    if (t->sources || delta || t->at++ / 2 % 2 == 0)
        add(t, like, FORWARD, BF16, "sm_90a", PLAIN);
    if (t->sources || delta || !strcmp(like.name, "simple_gla")) {
        add(t, like, FORWARD, BF16, "sm_90a", PLANNED);
        add(t, like, JOINT, BF16, "sm_90a", PLANNED);
        add(t, like, JOINT, BF16, "sm_100a", PLANNED);
    }
    if (!strcmp(like.name, "deltaproduct"))     /* spills 196 bytes at first */
        add(t, like, JOINT, BF16, "sm_90a", FEW);
    if (t->sources || delta)
        add(t, like, JOINT, BF16, "sm_90a", PLAIN);
    if (t->sources || !strcmp(like.name, "mamba3"))
        add(t, like, STEP, BF16, "sm_90a", PLAIN);
    if (t->sources || delta) {
        add(t, like, FORWARD, F32, "sm_80", PLAIN);
        add(t, like, FORWARD, F16, "sm_100", PLAIN);
    }
}

/* Of each family: from schedules by roles, and without. */
static void add_whole(Test *t, Case like)
{
    static const char *const family[] = { "simple_gla", "gated_deltanet",
                                          "gla", "mamba2" };

    for (int i = 0; i < 4; i++)
        if (!strcmp(like.name, family[i])) {
            add(t, like, JOINT, BF16, "sm_90a", PLANNED);
            add(t, like, JOINT, BF16, "sm_80", PLAIN);
            if (i == 0)
                add(t, like, JOINT, BF16, "sm_100a", PLANNED);
        }
}

static void variant(void *ud, const char *name, const char *step)
{
    Test *t = ud;
    Case like = { .step = step, .d = t->d };
    int d = 0;

    if (t->only && strcmp(t->only, name))
        return;
    snprintf(like.name, sizeof like.name, "%s", name);
    while (dims[d].k != t->d.k)
        d++;
    if (t->whole) {
        add_whole(t, like);
    } else if (t->all || t->texts) {
        every(t, like, d);
    } else if (t->cold) {
        add(t, like, FORWARD, BF16, "sm_90a", PLANNED);
        add(t, like, JOINT, BF16, "sm_90a", PLANNED);
    } else {
        sample(t, like);
    }
}

static void composition(void *ud, const char *name, const char *step)
{
    Test *t = ud;
    Case like = { .step = step, .d = t->d };

    snprintf(like.name, sizeof like.name, "%s", name);
    for (int how = FEW; how >= PLANNED; how--)
        for (int k = JOINT; k >= FORWARD; k--)
            if (t->composed || (how == FEW && k == JOINT))
                add(t, like, (Kind)k, BF16, "sm_90a", (How)how);
}

/* All that are asked for; a sample in `make test`. */
static bool list_compositions(Ctx *c, Test *t)
{
    const char *every = !t->composed ? "311" : t->only ? t->only : "7";
    bool none = t->all || t->cold || t->sources || t->texts || t->code
             || t->whole;

    return none || compositions_each(c, every, t->d.k, t->d.v, composition, t);
}

static bool list_cases(Ctx *c, Test *t)
{
    if (!list_compositions(c, t) || t->composed)
        return t->composed && t->n;
    for (int d = 0; d < (t->all || t->texts ? NDIMS : 1); d++) {
        t->d = dims[d];
        if (!stdlib_each(c, t->d.k, t->d.v, variant, t))
            return false;
    }
    return true;
}

static void read_record(Ctx *c, Test *t)
{
    FILE *f = t->record ? fopen(t->record, "r") : NULL;
    Buf b = { .ctx = c };
    char line[LINE];

    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "FAIL", 4))
            buf_printf(&b, "%s", line);
    if (f)
        fclose(f);
    t->known = b.s;
}

/* ---- processes ---- */

static void run_cases(Test *t)
{
    for (int i; (i = t->shared->next++) < t->n; )
        run_case(t, &t->list[i]);
}

static int jobs_of(const Test *t)
{
    long n = getenv("JOBS") ? atol(getenv("JOBS"))
                            : sysconf(_SC_NPROCESSORS_ONLN);

    return t->sources || t->cold || t->texts || t->code || n < 1 ? 1
         : n < 64 ? (int)n : 64;
}

int main(int argc, char **argv)
{
    static Test t;
    Ctx *c = ctx_new();
    int jobs, status;

    t.all = argc > 1 && !strcmp(argv[1], "all");
    t.cold = argc > 1 && !strcmp(argv[1], "cold");
    t.texts = argc > 1 && !strcmp(argv[1], "texts");
    t.code = argc > 1 && !strcmp(argv[1], "code");
    t.whole = argc > 2 && !strcmp(argv[1], "whole") ? argv[2] : NULL;
    t.composed = argc > 1 && !strcmp(argv[1], "compositions");
    t.d = argc > 4 ? (Dims){ atoi(argv[3]), atoi(argv[4]) } : dims[0];
    t.sources = argc > 1 && !t.all && !t.cold && !t.texts && !t.code
             && !t.whole && !t.composed;
    if (!t.texts && !t.whole && !nvrtc_open(c, &t.nvrtc)) {
        printf("skip: %s\n", c->err.message);
        return 0;
    }
    t.only = argc > 1 && !t.whole ? argv[t.sources ? 1 : 2] : NULL;
    t.record = getenv("RECORD");
    t.shared = mmap(NULL, sizeof *t.shared, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (t.shared == MAP_FAILED || !list_cases(c, &t)) {
        printf("FAIL %s\n", c->err.message);
        return 1;
    }
    read_record(c, &t);
    jobs = jobs_of(&t);
    for (int i = 0; i < jobs; i++)
        if (fork() == 0) {
            run_cases(&t);
            fflush(stdout);
            _exit(0);
        }
    for (int i = 0; i < jobs; i++)
        if (wait(&status) < 0 || status)
            t.shared->failed++;
    if (!t.texts)
        printf("%d passed, %d failed\n", t.shared->passed, t.shared->failed);
    ctx_free(c);
    return t.shared->failed != 0;
}
