/* random_structures.c -- random steps of every structure, of any sizes, in
 * sequences of any lengths: y, the final states and all gradients of the
 * step, token by token in float64, against those of its chunk form in float64,
 * and of the CPU backend in float32. Says how many distinct structures there
 * were. A failing seed can be run alone, or many:
 *     random_structures [FIRST [LAST]] */
#include "../../backend/cpu/cpu.h"
#include "../../compiler/grad.h"
#include "../../compiler/partition.h"
#include "random_structure.h"

#include <stdlib.h>

enum { PROGRAMS = 250, MOST_SEQS = 4 };

/* ---- calls of any size ---- */

typedef struct Shape {
    int tokens, heads, nseq;
    Seq seq[MOST_SEQS];
} Shape;

static Shape random_shape(uint64_t *seed)
{
    static const int most[] = { 0, 1, 2, 40, 130, 300 };
    Shape s = { .heads = 1 + (int)(uniform(seed) * 3),
                .nseq = 1 + (int)(uniform(seed) * MOST_SEQS) };

    for (int i = 0; i < s.nseq; i++) {
        int n = most[(int)(uniform(seed) * 6)];
        n = n > 2 ? (int)(uniform(seed) * n) : n;
        s.seq[i] = (Seq){ 0, s.tokens, n };
        s.tokens += n;
    }
    return s;
}

static View room(Ctx *c, const Graph *g, const uint8_t *order, int rank,
                 int64_t rows, int heads, bool timed)
{
    View v = { .dtype = F64, .heads = heads };
    int64_t n = 1;

    for (int i = rank; i-- > 0;) {
        v.sd[i] = n;
        n *= g->axis[order[i]].size;
    }
    v.sh = n;
    v.st = timed ? n * heads : 0;
    v.sb = n * heads * (timed ? rows : 1);
    v.data = ctx_alloc(c, (size_t)(n * heads * (rows ? rows : 1)) * 8);
    return v;
}

/* As far as a gate goes: a time step, the other way. Zeros are for programs
 * without gates of -inf, whose products with zeros are no numbers. */
static double strong(double x, const char *domain, bool zeros, uint64_t *seed)
{
    static const double far[] = { 104, 1e3, 1e4, 1e9, INFINITY };
    double by = far[(int)(uniform(seed) * (zeros ? 4 : 5))];

    if (!strcmp(domain, "unit"))
        return zeros ? 0 : x;
    if (!strcmp(domain, "log_decay"))
        return -by;
    return !strcmp(domain, "positive") && by < INFINITY ? by : x;
}

/* As support.h's draw, of any heads; of gates, some as strong as can be. */
static void fill(View v, int64_t rows, const char *domain, double few,
                 bool zeros, uint64_t *seed)
{
    int64_t all = rows * v.heads;

    for (int64_t r = 0; r < all; r++) {
        double *x = (double *)v.data + r * v.sh, norm = 0;
        for (int64_t i = 0; i < v.sh; i++) {
            x[i] = normal(seed);
            if (!strcmp(domain, "log_decay"))
                x[i] = -log1p(exp(-x[i]));
            if (!strcmp(domain, "unit"))
                x[i] = 1 / (1 + exp(-x[i]));
            if (!strcmp(domain, "positive"))
                x[i] = log1p(exp(x[i]));
            if (uniform(seed) < few)
                x[i] = strong(x[i], domain, zeros, seed);
            norm += x[i] * x[i];
        }
        for (int64_t i = 0; !strcmp(domain, "unit_norm") && i < v.sh; i++)
            x[i] /= sqrt(norm);
    }
}

/* Arguments of the joint graph: adjoints of constants start from zero. */
static Call *arguments(Ctx *c, const Graph *g, const Shape *s, double few,
                       uint64_t seed)
{
    Call *call = ctx_alloc(c, sizeof *call);
    bool zeros = seed / 4 % 2;

    *call = (Call){ .nseq = s->nseq, .seq = s->seq, .heads = s->heads,
                    .threads = 1 };
    for (int i = 0; i < NAXES; i++)
        call->size[i] = g->axis[i].size;
    for (int i = 0; i < g->nin; i++) {
        const Input *in = &g->in[i];
        int64_t rows = in->timed ? s->tokens : 1;
        int heads = seed % 3 || i % 2 ? s->heads : 1;
        call->in[i] = room(c, g, in->order, in->rank, rows, heads,
                           in->timed);
        if (!in->timed)
            call->in[i].sb = 0;
        fill(call->in[i], rows, in->domain, few, zeros, &seed);
    }
    for (int i = 0; i < g->nst; i++) {
        const State *st = &g->st[i];
        if (st->of_input || (st->reverse && !st->of_state) || st->twin_of)
            continue;
        call->s0[i] = room(c, g, st->order, st->rank, s->nseq, s->heads,
                           false);
        fill(call->s0[i], s->nseq, "", 0, false, &seed);
    }
    return call;
}

/* The same arguments for another joint graph of the step. */
static Call *arguments_like(Ctx *c, const Graph *g, const Graph *from,
                            const Call *call)
{
    Call *other = ctx_alloc(c, sizeof *other);

    *other = *call;
    memset(other->s0, 0, sizeof other->s0);
    for (int i = 0; i < g->nst; i++)
        for (int k = 0; k < from->nst; k++)
            if (!strcmp(g->st[i].name, from->st[k].name))
                other->s0[i] = call->s0[k];
    return other;
}

static void results(Ctx *c, const Graph *g, const Shape *s, Call *call)
{
    for (int i = 0; i < g->nst; i++) {
        const State *st = &g->st[i];
        call->s1[i] = room(c, g, st->order, st->rank, s->nseq, s->heads,
                           false);
        memset(call->s1[i].data, 0xff,
               (size_t)(call->s1[i].sh * s->heads * s->nseq) * 8);
    }
    for (int i = 0; i < g->nout; i++) {
        const Output *o = &g->out[i];
        call->out[i] = room(c, g, o->order, o->rank, s->tokens, s->heads,
                            true);
        memset(call->out[i].data, 0xff,
               (size_t)(call->out[i].sh * s->heads * s->tokens) * 8);
    }
}

/* ---- differences ---- */

typedef struct Worst { double off; char what[64]; } Worst;

/* Of what is summed: the root of the mean square of the largest result. */
static double size_of(const View *a, int64_t rows)
{
    const double *x = a->data;
    int64_t n = a->sh * a->heads * rows;
    double s = 0;

    for (int64_t i = 0; i < n; i++)
        s += x[i] * x[i];
    return n ? sqrt(s / (double)n) : 0;
}

/* RMS(a - b) over RMS(a), and a thousandth of the largest result: gradients
 * that nearly cancel are no better than what they are summed of. */
static void differ(Worst *w, const char *what, const View *a, const View *b,
                   int64_t rows, double largest)
{
    const double *x = a->data, *y = b->data;
    int64_t n = a->sh * a->heads * rows;
    double err = 0;

    for (int64_t i = 0; i < n; i++)
        err += (x[i] - y[i]) * (x[i] - y[i]);
    err = n ? sqrt(err / (double)n) : 0;
    double off = err / (size_of(a, rows) + 1e-3 * largest + 1e-12);
    if (!(off <= w->off)) {
        w->off = off == off ? off : INFINITY;
        snprintf(w->what, sizeof w->what, "%s", what);
    }
}

/* An angle may lie a turn apart. */
static void unturn(const View *a, View *b, int64_t rows)
{
    double *x = a->data, *y = b->data, turn = 6.283185307179586;

    for (int64_t i = 0; i < a->sh * a->heads * rows; i++)
        y[i] -= turn * floor((y[i] - x[i]) / turn + 0.5);
}

/* The gradient of a constant sums what each token's rounding leaves, even
 * where the terms themselves are nothing, as under a gate of -104. */
static Worst compare(const Graph *g, const Call *want, const Graph *other,
                     Call *got, const Shape *s)
{
    Worst w = { 0 };
    double most = 0;

    for (int i = 0; i < g->nout; i++)
        most = fmax(most, size_of(&want->out[i], s->tokens));
    for (int i = 0; i < g->nst; i++)
        most = fmax(most, size_of(&want->s1[i], s->nseq));
    for (int i = 0; i < g->nout; i++)
        differ(&w, g->out[i].name, &want->out[i], &got->out[i], s->tokens,
               most);
    for (int i = 0; i < g->nst; i++) {
        int at = graph_find_state(other, g->st[i].name);
        if (g->st[i].angle)
            unturn(&want->s1[i], &got->s1[at], s->nseq);
        double terms = g->st[i].of_input ? sqrt(s->tokens + 1) : 1;
        differ(&w, g->st[i].name, &want->s1[i], &got->s1[at], s->nseq,
               terms * most);
    }
    return w;
}

/* ---- trials ---- */

typedef struct Trial {
    uint64_t seed, features, mark;
    bool chunked;
    int chunk;
    Worst exact, cpu;
} Trial;

/* Whatever the sizes and numbers are: a structure is the same with others. */
static uint64_t mark_of(Ctx *c, const Graph *step)
{
    Graph *g = graph_copy(c, step);
    Buf b = { .ctx = c };

    for (int i = 0; i < NAXES; i++)
        g->axis[i].size = 0;
    for (Ref r = 1; r < g->len; r++)
        if (g->n[r].op == OP_num && g->n[r].num != 0 && g->n[r].num != 1)
            g->n[r].num = 2;
    graph_print(g, &b);
    return hash_bytes(0, b.s, b.len);
}

static void trial(Ctx *c, void *ud)
{
    static const int chunks[] = { 1, 2, 3, 7, 16, 33, 64, 128 };
    Trial *t = ud;
    uint64_t draw = t->seed * 31 + 7;
    Graph *step = random_structure(c, t->seed, &t->features), *truth;
    Shape s = random_shape(&draw);
    int32_t size[NAXES];

    t->chunk = chunks[(int)(uniform(&draw) * 8)];
    t->mark = mark_of(c, step);
    for (int i = 0; i < NAXES; i++)
        size[i] = step->axis[i].size;
    Graph *chunk = derive_joint(step, size, t->chunk), *joint, *alone;
    truth = grad(graph_sized(step, size));
    double few = t->seed % 2 ? 0.1 : 0;     /* of gates are strong */
    t->features |= few > 0 ? (uint64_t)1 << F_STRONG : 0;
    Call *want = arguments(c, truth, &s, few, t->seed + 1), *got;
    results(c, truth, &s, want);
    reference_run(c, truth, want);
    t->chunked = chunk != NULL;
    alone = graph_sized(step, size);
    keep_sums(alone);
    joint = grad(chunk ? chunk : alone);
    got = arguments_like(c, joint, truth, want);
    results(c, joint, &s, got);
    interpret_chunks(c, joint, got);
    t->exact = compare(truth, want, joint, got, &s);
    results(c, joint, &s, got);
    cpu_run(c, t->seed % 8 || !chunk ? plan_simple(joint)
               : partition(joint, &machine_cpu, QUICK, NULL), got, NULL);
    t->cpu = compare(truth, want, joint, got, &s);
}

/* ---- coverage ---- */

typedef struct Coverage {
    int programs, chunked, nmarks;
    uint64_t *mark;                     /* an open table */
    uint32_t cap;
    uint64_t pair[NFEATURES];           /* features that met this one */
    int count[NFEATURES];
} Coverage;

static void cover(Coverage *v, const Trial *t)
{
    uint32_t at = (uint32_t)(t->mark ^ t->mark >> 32);

    v->programs++;
    v->chunked += t->chunked;
    while (v->mark[at % v->cap] && v->mark[at % v->cap] != t->mark)
        at++;
    v->nmarks += !v->mark[at % v->cap];
    v->mark[at % v->cap] = t->mark;
    for (int i = 0; i < NFEATURES; i++)
        if (t->features >> i & 1) {
            v->pair[i] |= t->features;
            v->count[i]++;
        }
}

static void tell(const Coverage *v)
{
    int pairs = 0;

    for (int i = 0; i < NFEATURES; i++)
        for (int k = 0; k < i; k++)
            pairs += v->pair[i] >> k & 1;
    printf("%d programs, %d in chunks: %d distinct structures; %d of %d pairs "
           "of features\n", v->programs, v->chunked, v->nmarks, pairs,
           NFEATURES * (NFEATURES - 1) / 2);
    for (int i = 0; i < NFEATURES; i++)
        if (!v->count[i])
            printf("no program has %s\n", feature_name[i]);
}

int main(int argc, char **argv)
{
    int bad = 0;
    uint64_t first = argc > 1 ? strtoull(argv[1], 0, 10) : 0;
    uint64_t last = argc > 2 ? strtoull(argv[2], 0, 10)
                  : argc > 1 ? first + 1 : PROGRAMS;
    Coverage v = { .cap = (uint32_t)(4 * (last - first) + 16) };

    v.mark = calloc(v.cap, sizeof *v.mark);
    for (uint64_t seed = first; v.mark && seed < last; seed++) {
        Ctx *c = ctx_new();
        Trial t = { .seed = seed };
        bool ran = ctx_protect(c, trial, &t);
        cover(&v, &t);
        /* rounding grows with the condition of the erasing terms */
        if (!ran || !(t.exact.off < 1e-8) || !(t.cpu.off < 2e-3)) {
            printf("random_structures: seed %llu, chunk %d: %s, chunk form "
                   "%g (%s), cpu %g (%s)\n", (unsigned long long)seed,
                   t.chunked ? t.chunk : 0, ran ? "ran" : c->err.message,
                   t.exact.off, t.exact.what, t.cpu.off, t.cpu.what);
            bad++;
        }
        ctx_free(c);
    }
    tell(&v);
    if (argc == 1 && (v.chunked < PROGRAMS / 2 || v.nmarks < PROGRAMS * 0.9)) {
        printf("random_structures: too few\n");
        bad++;
    }
    free(v.mark);
    return bad != 0;
}
