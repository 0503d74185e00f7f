/* interp.c -- the interpreter against numbers worked out by hand, one case
 * an operation. One head, one sequence; arrays as the graph declares them. */
#include "../../compiler/call.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LN2 "0x1.62e42fefa39efp-1"
#define PI 3.14159265358979323846
#define CHUNK "chunk 8 case\n"
/* x, y, z: a number a token; c: one for the head */
#define SCALARS CHUNK "input x t\ninput y t\ninput z t\ninput c\n" \
    "%1 = input x\n%2 = input y\n%3 = input z\n%4 = input c\n"
#define VECTORS CHUNK "axis k = 2\ninput a t k\ninput b t k\ninput c t k\n" \
    "input v t\n" \
    "%1 = input a\n%2 = input b\n%3 = input c\n%4 = input v\n" \
    "%5 = num " LN2 "\n%6 = mul %3 %5\n%7 = col %6\n%8 = col %2\n"

typedef struct Case {
    const char *name, *text;
    int tokens;
    double in[4][16], s0[2][4];
    double out[24], s1[2][4];
} Case;

static const Case cases[] = {
    { "cumsum", SCALARS "%5 = cumsum %1\nout y %5\n", 3,
      { { 1, 2, 4 } }, { { 0 } }, { 1, 3, 7 }, { { 0 } } },
    { "cumsum exclusive", SCALARS "%5 = cumsum %1 exclusive\nout y %5\n", 3,
      { { 1, 2, 4 } }, { { 0 } }, { 0, 1, 3 }, { { 0 } } },
    { "cumsum reverse", SCALARS "%5 = cumsum %1 reverse\nout y %5\n", 3,
      { { 1, 2, 4 } }, { { 0 } }, { 7, 6, 4 }, { { 0 } } },
    { "cumsum reverse exclusive",
      SCALARS "%5 = cumsum %1 exclusive reverse\nout y %5\n", 3,
      { { 1, 2, 4 } }, { { 0 } }, { 6, 4, 0 }, { { 0 } } },
    { "cumsum of a constant", SCALARS "%5 = cumsum %4\nout y %5\n", 3,
      { { 0 }, { 0 }, { 0 }, { 3 } }, { { 0 } }, { 3, 6, 9 }, { { 0 } } },
    { "cumsum restarts in each chunk",
      "chunk 2 case\ninput x t\n%1 = input x\n%2 = cumsum %1\nout y %2\n", 5,
      { { 1, 2, 4, 8, 16 } }, { { 0 } }, { 1, 3, 4, 12, 16 }, { { 0 } } },
    { "scan", SCALARS "%5 = scan %1 %2 %4\nout y %5\n", 3,
      { { 2, 0.5, 3 }, { 1, 1, 1 }, { 0 }, { 4 } }, { { 0 } },
      { 9, 5.5, 17.5 }, { { 0 } } },
    { "scan exclusive", SCALARS "%5 = scan %1 %2 %4 exclusive\nout y %5\n", 3,
      { { 2, 0.5, 3 }, { 1, 1, 1 }, { 0 }, { 4 } }, { { 0 } },
      { 4, 9, 5.5 }, { { 0 } } },
    { "scan reverse", SCALARS "%5 = scan %1 %2 %4 reverse\nout y %5\n", 3,
      { { 2, 0.5, 3 }, { 1, 1, 1 }, { 0 }, { 4 } }, { { 0 } },
      { 16, 7.5, 13 }, { { 0 } } },
    { "scan of an angle, modulo 2 pi",
      SCALARS "%5 = scan - %2 %4 wrap\nout y %5\n", 3,
      { { 0 }, { 1, 2, 7 }, { 0 }, { 2 } }, { { 0 } },
      { 3, 5 - 2 * PI, 12 - 4 * PI }, { { 0 } } },
    { "maxscan", SCALARS "%5 = maxscan %1 %2 %4\nout y %5\n", 3,
      { { -1, -2, -3 }, { 0, 5, 1 }, { 0 }, { 2 } }, { { 0 } },
      { 1, 5, 2 }, { { 0 } } },
    { "delay", SCALARS "%5 = delay %1 %4\nout y %5\n", 3,
      { { 1, 2, 4 }, { 0 }, { 0 }, { 9 } }, { { 0 } }, { 9, 1, 2 },
      { { 0 } } },
    { "delay reverse", SCALARS "%5 = delay %1 %4 reverse\nout y %5\n", 3,
      { { 1, 2, 4 }, { 0 }, { 0 }, { 9 } }, { { 0 } }, { 2, 4, 9 },
      { { 0 } } },
    { "last, of the tail too",
      "chunk 2 case\ninput x t\n%1 = input x\n%2 = last %1\nout y %2\n", 3,
      { { 1, 2, 4 } }, { { 0 } }, { 2, 2, 4 }, { { 0 } } },
    { "last reverse: the first",
      "chunk 2 case\ninput x t\n%1 = input x\n%2 = last %1 reverse\n"
      "out y %2\n", 3,
      { { 1, 2, 4 } }, { { 0 } }, { 1, 1, 4 }, { { 0 } } },
    { "dmask", SCALARS "%5 = num " LN2 "\n%6 = mul %1 %5\n%7 = col %6\n"
      "%8 = dmask %6 %7\n%9 = sum %8 over j\nout y %9\n", 3,
      { { -1, -2, -3 } }, { { 0 } }, { 1, 1.5, 1.75 }, { { 0 } } },
    { "dmask strict", SCALARS "%5 = num " LN2 "\n%6 = mul %1 %5\n"
      "%7 = col %6\n%8 = dmask %6 %7 strict\n%9 = sum %8 over j\n"
      "out y %9\n", 3,
      { { -1, -2, -3 } }, { { 0 } }, { 0, 0.5, 0.75 }, { { 0 } } },
    { "dmask alone", SCALARS "%5 = dmask - - strict\n%6 = sum %5 over j\n"
      "out y %6\n", 3,
      { { 0 } }, { { 0 } }, { 0, 1, 2 }, { { 0 } } },
    { "dmask: no exp above the diagonal", SCALARS "%5 = col %1\n"
      "%6 = dmask %1 %5\n%7 = dot %6 %5 over j\nout y %7\n", 3,
      { { -1000, -2000, -3000 } }, { { 0 } }, { -1000, -2000, -3000 },
      { { 0 } } },
    { "gdot over k", VECTORS "%9 = gdot %1 %8 %6 %7 over k\n%10 = col %4\n"
      "%11 = dot %9 %10 over j\nout y %11\n", 2,
      { { 1, 2, 3, 4 }, { 1, 1, 2, 1 }, { 0, 0, -1, -2 }, { 1, 10 } },
      { { 0 } }, { 3, 102.5 }, { { 0 } } },
    { "gdot over k, strict", VECTORS "%9 = gdot %1 %8 %6 %7 over k strict\n"
      "%10 = col %4\n%11 = dot %9 %10 over j\nout y %11\n", 2,
      { { 1, 2, 3, 4 }, { 1, 1, 2, 1 }, { 0, 0, -1, -2 }, { 1, 10 } },
      { { 0 } }, { 0, 2.5 }, { { 0 } } },
    { "gdot over j", VECTORS "%9 = dmask - -\n"
      "%10 = gdot %9 %8 %6 %7 over j\nout y %10\n", 2,
      { { 0 }, { 1, 1, 2, 1 }, { 0, 0, -1, -2 }, { 0 } }, { { 0 } },
      { 1, 1, 2.5, 1.25 }, { { 0 } } },
    { "gdot over i", VECTORS "%9 = dmask - -\n"
      "%10 = gdot %9 %2 %6 %7 over i\n%11 = row %10\nout y %11\n", 2,
      { { 0 }, { 1, 1, 2, 1 }, { 0, 0, -1, -2 }, { 0 } }, { { 0 } },
      { 2, 1.25, 2, 1 }, { { 0 } } },
    { "solve", SCALARS "%5 = col %2\n%6 = mul %1 %5\n%7 = dmask - - strict\n"
      "%8 = mul %6 %7\n%9 = solve %8 %3\nout y %9\n", 3,
      { { 1, 2, 3 }, { 1, 1, 1 }, { 1, 1, 1 } }, { { 0 } }, { 1, 3, 13 },
      { { 0 } } },
    { "solve trans", SCALARS "%5 = col %2\n%6 = mul %1 %5\n"
      "%7 = dmask - - strict\n%8 = mul %6 %7\n%9 = solve %8 %3 trans\n"
      "out y %9\n", 3,
      { { 1, 2, 3 }, { 1, 1, 1 }, { 1, 1, 1 } }, { { 0 } }, { 12, 4, 1 },
      { { 0 } } },
    { "solve with ranks", CHUNK "axis r1 @1 = 2\ninput p t r1\n"
      "input q t r1\ninput b t r1\n%1 = input p\n%2 = input q\n"
      "%3 = input b\n%4 = col %2\n%5 = mul %1 %4\n%6 = dmask - - strict\n"
      "%7 = mul %5 %6\n%8 = solve %7 %3\nout y %8\n", 2,
      { { 0, 0, 1, 2 }, { 1, 10, 0, 0 }, { 1, 2, 3, 4 } }, { { 0 } },
      { 1, 2, 24, 46 }, { { 0 } } },
    { "solve with ranks, trans", CHUNK "axis r1 @1 = 2\ninput p t r1\n"
      "input q t r1\ninput b t r1\n%1 = input p\n%2 = input q\n"
      "%3 = input b\n%4 = col %2\n%5 = mul %1 %4\n%6 = dmask - - strict\n"
      "%7 = mul %5 %6\n%8 = solve %7 %3 trans\nout y %8\n", 2,
      { { 0, 0, 1, 2 }, { 1, 10, 0, 0 }, { 1, 2, 3, 4 } }, { { 0 } },
      { 12, 112, 3, 4 }, { { 0 } } },
    { "cat of three", SCALARS "axis r1 @1 = 3\n%5 = cat %1 %2 over r1\n"
      "%6 = cat %5 %4 over r1\nout y r1 %6\n", 2,
      { { 1, 2 }, { 3, 4 }, { 0 }, { 9 } }, { { 0 } }, { 1, 3, 9, 2, 4, 9 },
      { { 0 } } },
    { "part, of a joined axis", SCALARS "axis r1 @1 = 3\n"
      "%5 = cat %1 %2 over r1\n%6 = cat %5 %4 over r1\n"
      "%7 = part %6 over r1 index 1 len 2\nout y r1 %7\n", 2,
      { { 1, 2 }, { 3, 4 }, { 0 }, { 9 } }, { { 0 } }, { 3, 9, 0, 4, 9 },
      { { 0 } } },
    { "unit", "step case\naxis k = 3\ninput x t\n%1 = input x\n"
      "%2 = unit over k index 1\n%3 = mul %1 %2\nout y %3\n", 1,
      { { 7 } }, { { 0 } }, { 0, 7, 0 }, { { 0 } } },
    { "count", "step case\naxis k = 3\ninput x t\n%1 = input x\n"
      "%2 = count over k\n%3 = mul %1 %2\nout y %3\n", 1,
      { { 7 } }, { { 0 } }, { 0, 7, 14 }, { { 0 } } },
    { "rot90", "step case\naxis k = 5\ninput x t k\n%1 = input x\n"
      "%2 = rot90 %1 over k\nout y %2\n", 1,
      { { 1, 2, 3, 4, 5 } }, { { 0 } }, { -2, 1, -4, 3, 0 }, { { 0 } } },
    { "dup", "step case\naxis p = 2\naxis k = 5\ninput x t p\n%1 = input x\n"
      "%2 = dup %1 over p to k\nout y %2\n", 1,
      { { 1, 2 } }, { { 0 } }, { 1, 1, 2, 2, 0 }, { { 0 } } },
    { "pairsum", "step case\naxis p = 2\naxis k = 5\ninput x t k\n"
      "%1 = input x\n%2 = pairsum %1 over k to p\nout y %2\n", 1,
      { { 1, 2, 3, 4, 5 } }, { { 0 } }, { 3, 7 }, { { 0 } } },
    { "select", "step case\naxis n = 3\naxis k = 2\ninput x t n k\n"
      "%1 = input x\n%2 = select %1 over n index 1\nout y %2\n", 1,
      { { 1, 2, 3, 4, 5, 6 } }, { { 0 } }, { 3, 4 }, { { 0 } } },
    { "relabel, in canonical order", "step case\naxis a = 2\naxis b = 3\n"
      "axis c = 2\ninput x t a b\n%1 = input x\n%2 = relabel %1 over a to c\n"
      "%3 = num 10\n%4 = mul %2 %3\nout y %4\n", 1,
      { { 1, 2, 3, 4, 5, 6 } }, { { 0 } }, { 10, 40, 20, 50, 30, 60 },
      { { 0 } } },
    { "axes in the order of memory", "step case\naxis a = 2\naxis b = 3\n"
      "input x t b a\n%1 = input x\n%2 = neg %1\nout y b a %2\n", 1,
      { { 1, 2, 3, 4, 5, 6 } }, { { 0 } }, { -1, -2, -3, -4, -5, -6 },
      { { 0 } } },
    { "a result that spreads", CHUNK "axis k = 2\naxis v = 2\n"
      "input x t v\ninput c\n%1 = input x\n%2 = input c\n"
      "%3 = neg %1\nout y v k %3\n", 2,
      { { 1, 2, 3, 4 } }, { { 0 } }, { -1, -1, -2, -2, -3, -3, -4, -4 },
      { { 0 } } },
    { "size", "step case\naxis k = 3\ninput x t k\n%1 = input x\n"
      "%2 = size k\n%3 = mul %1 %2\nout y %3\n", 1,
      { { 1, 2, 3 } }, { { 0 } }, { 3, 6, 9 }, { { 0 } } },
    { "sum of two axes", "step case\naxis a = 2\naxis b = 2\naxis c = 2\n"
      "input x t a b c\n%1 = input x\n%2 = sum %1 over a c\nout y %2\n", 1,
      { { 1, 2, 3, 4, 5, 6, 7, 8 } }, { { 0 } }, { 14, 22 }, { { 0 } } },
    { "dot with a batch axis", "step case\naxis n = 2\naxis k = 2\n"
      "input x t n k\ninput y t n k\n%1 = input x\n%2 = input y\n"
      "%3 = dot %1 %2 over k\nout y %3\n", 1,
      { { 1, 2, 3, 4 }, { 5, 6, 7, 8 } }, { { 0 } }, { 17, 53 }, { { 0 } } },
    { "dot of vector and matrix", "step case\naxis k = 2\naxis v = 3\n"
      "input q t k\ninput S t k v\n%1 = input q\n%2 = input S\n"
      "%3 = dot %1 %2 over k\nout y %3\n", 1,
      { { 1, 10 }, { 1, 2, 3, 4, 5, 6 } }, { { 0 } }, { 41, 52, 63 },
      { { 0 } } },
    { "where, and broadcasting", "step case\naxis k = 2\naxis v = 2\n"
      "input x t k\ninput z t v\n%1 = input x\n%2 = input z\n%3 = lt %1 %2\n"
      "%4 = where %3 %1 %2\nout y %4\n", 1,
      { { 1, 5 }, { 2, 9 } }, { { 0 } }, { 1, 1, 2, 5 }, { { 0 } } },
    { "states exchanged", "step case\nstate A\nstate B\n%1 = state A\n"
      "%2 = state B\nnext A %2\nnext B %1\nout y %1\n", 3,
      { { 0 } }, { { 10 }, { 20 } }, { 10, 20, 10 }, { { 20 }, { 10 } } },
    { "a state that spreads", "step case\naxis k = 2\naxis v = 2\n"
      "input x t v\nstate S k v\n%1 = input x\nnext S %1\nout y %1\n", 1,
      { { 3, 4 } }, { { 0 } }, { 3, 4 }, { { 3, 4, 3, 4 } } },
    { "a state that stays", "step case\nstate S\n%1 = state S\nout y %1\n", 2,
      { { 0 } }, { { 7 } }, { 7, 7 }, { { 7 } } },
    { "a state backwards, reading what the forward one was",
      "chunk 1 case\ninput x t\nstate S\nstate D reverse\n%1 = input x\n"
      "%2 = state S\n%3 = state D\n%4 = last %1\n%5 = add %2 %4\n"
      "%6 = num 2\n%7 = mul %3 %6\n%8 = add %7 %2\nnext S %5\nnext D %8\n"
      "out y %3\n", 3,
      { { 1, 2, 4 } }, { { 10 }, { 1 } }, { 41, 15, 1 }, { { 17 }, { 92 } } },
};

static int64_t elements(const Graph *g, const uint8_t *order, int rank,
                        int64_t stride[8])
{
    int64_t n = 1;

    for (int d = rank - 1; d >= 0; d--) {
        stride[d] = n;
        n *= g->axis[order[d]].size;
    }
    return n;
}

static View view_of(const Graph *g, const void *data, const uint8_t *order,
                    int rank, bool timed)
{
    View v = { .data = (void *)data, .dtype = F64, .heads = 1 };

    v.st = elements(g, order, rank, v.sd);
    if (!timed)
        v.st = 0;
    return v;
}

typedef struct Run { const Case *k; double out[24], s1[2][4]; } Run;

static void run(Ctx *c, void *ud)
{
    Run *r = ud;
    const Case *k = r->k;
    Graph *g = graph_parse(c, k->text);
    Seq seq = { 0, 0, k->tokens };
    Call *call = ctx_alloc(c, sizeof *call);

    call->nseq = 1;
    call->seq = &seq;
    call->heads = 1;
    for (int i = 0; i < g->nin; i++)
        call->in[i] = view_of(g, k->in[i], g->in[i].order, g->in[i].rank,
                              g->in[i].timed);
    for (int i = 0; i < g->nst; i++) {
        call->s0[i] = view_of(g, k->s0[i], g->st[i].order, g->st[i].rank,
                              false);
        call->s1[i] = call->s0[i];
        call->s1[i].data = r->s1[i];
    }
    call->out[0] = view_of(g, r->out, g->out[0].order, g->out[0].rank, true);
    if (g->chunk)
        interpret_chunks(c, g, call);
    else
        reference_run(c, g, call);
}

static int compare(const char *name, const char *what, const double *got,
                   const double *want, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-14 * (1 + fabs(want[i])))) {
            printf("interp: %s: %s[%d] is %.17g, not %.17g\n", name, what, i,
                   got[i], want[i]);
            return 1;
        }
    return 0;
}

static int check(const Case *k)
{
    Run r = { .k = k };
    Ctx *c = ctx_new();
    bool ok = ctx_protect(c, run, &r);

    if (!ok)
        printf("interp: %s: line %d: %s\n", k->name, c->err.line,
               c->err.message);
    ctx_free(c);
    return !ok || compare(k->name, "y", r.out, k->out, 24)
        || compare(k->name, "first state", r.s1[0], k->s1[0], 4)
        || compare(k->name, "second state", r.s1[1], k->s1[1], 4);
}

/* Sequences, batch entries, grouped heads: a running sum of each is its
 * own. */
static void run_heads(Ctx *c, void *ud)
{
    enum { B = 2, T = 3, H = 4, HX = 2, N = 4 };
    static const Seq seq[N] = { { 0, 0, 2 }, { 0, 2, 1 }, { 1, 0, 0 },
                                { 1, 0, 3 } };
    Graph *g = graph_parse(c, "step case\ninput x t\nstate S\n%1 = input x\n"
                           "%2 = state S\n%3 = add %1 %2\nnext S %3\n"
                           "out y %3\n");
    double x[B][T][HX], y[B][T][H], s0[N][H], s1[N][H];
    Call *call = ctx_alloc(c, sizeof *call);
    int *wrong = ud;

    for (int i = 0; i < B * T * HX; i++)
        (&x[0][0][0])[i] = i + 1;
    for (int i = 0; i < N * H; i++)
        (&s0[0][0])[i] = 100 * (i + 1);
    call->nseq = N;
    call->seq = seq;
    call->heads = H;
    call->in[0] = (View){ .data = x, .dtype = F64, .heads = HX, .sb = T * HX,
                          .st = HX, .sh = 1 };
    call->s0[0] = (View){ .data = s0, .dtype = F64, .heads = H, .sb = H,
                          .sh = 1 };
    call->s1[0] = call->s0[0];
    call->s1[0].data = s1;
    call->out[0] = (View){ .data = y, .dtype = F64, .heads = H, .sb = T * H,
                           .st = H, .sh = 1 };
    reference_run(c, g, call);
    *wrong = 0;
    for (int n = 0; n < N; n++)
        for (int h = 0; h < H; h++) {
            double s = s0[n][h];
            for (int k = 0; k < seq[n].len; k++) {
                s += x[seq[n].b][seq[n].start + k][h / 2];
                *wrong |= y[seq[n].b][seq[n].start + k][h] != s;
            }
            *wrong |= s1[n][h] != s;
        }
}

static int check_heads(void)
{
    Ctx *c = ctx_new();
    int wrong = 1;

    if (!ctx_protect(c, run_heads, &wrong) || wrong)
        printf("interp: sequences and heads: %s\n", c->err.message);
    ctx_free(c);
    return wrong;
}

static bool stop(void *ud)
{
    return ++*(int *)ud > 3;
}

static void run_forever(Ctx *c, void *ud)
{
    Graph *g = graph_parse(c, "step case\nstate S\n%1 = state S\n"
                           "out y %1\n");
    Seq seq = { 0, 0, INT64_MAX / 4 };
    Call *call = ctx_alloc(c, sizeof *call);

    call->nseq = 1;
    call->seq = &seq;
    call->heads = 1;
    call->interrupted = stop;
    call->interrupt_ud = ud;
    reference_run(c, g, call);
}

static int check_interrupt(void)
{
    Ctx *c = ctx_new();
    int asked = 0;
    bool ok = !ctx_protect(c, run_forever, &asked)
           && c->err.code == ERR_INTERRUPT;

    if (!ok)
        printf("interp: an interrupt went unheard\n");
    ctx_free(c);
    return !ok;
}

int main(void)
{
    int bad = check_heads() + check_interrupt();

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        bad += check(&cases[i]);
    return bad != 0;
}
