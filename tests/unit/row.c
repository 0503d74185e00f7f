/* row.c -- row programs: which passes there are, and that a program whose
 * memory is written over too early is refused. */
#include <stdio.h>
#include <string.h>

#include "../../backend/cuda/passes.h"

static int bad;

static void expect(const char *what, bool ok)
{
    if (!ok)
        printf("row: %s\n", what);
    bad += !ok;
}

/* logsumexp(z, "n") - the entry that `label` names */
static Graph *entropy(Ctx *c, int n)
{
    Graph *g = graph_new(c, "entropy", 0);
    Ref z, label;
    int ax;

    z = g->in[graph_input(g, "z", "t n")].node;
    label = g->in[graph_input(g, "label", "t : index n")].node;
    ax = graph_find_axis(g, "n");
    g->axis[ax].size = n;
    Ref is = op2(g, OP_eq, count_along(g, ax), label);
    Ref at = sum(g, op3(g, OP_where, is, z, num(g, 0)), AXIS(ax));
    graph_output(g, "y", op2(g, OP_sub, row_fold(g, OP_lse, z, AXIS(ax)),
                             at));
    return g;
}

/* silu(gate) * up */
static Graph *gated(Ctx *c, int n)
{
    Graph *g = graph_new(c, "gated", 0);
    Ref gate = g->in[graph_input(g, "gate", "t n")].node;
    Ref up = g->in[graph_input(g, "up", "t n")].node;

    g->axis[graph_find_axis(g, "n")].size = n;
    graph_output(g, "y", op2(g, OP_mul, up, op2(g, OP_mul, gate,
                             op1(g, OP_sigmoid, gate))));
    return g;
}

/* w z / sqrt(the mean of z's squares + 1e-5) */
static Graph *normed(Ctx *c, int n)
{
    Graph *g = graph_new(c, "normed", 0);
    Ref z = g->in[graph_input(g, "z", "t n")].node;
    Ref w = g->in[graph_input(g, "w", "n")].node;
    int ax = graph_find_axis(g, "n");

    g->axis[ax].size = n;
    Ref mean = op2(g, OP_mul, sum(g, op1(g, OP_square, z), AXIS(ax)),
                   num(g, 1. / n));
    Ref inverse = op1(g, OP_rsqrt, op2(g, OP_add, mean, num(g, 1e-5)));
    graph_output(g, "y", op2(g, OP_mul, w, op2(g, OP_mul, z, inverse)));
    return g;
}

static int passes(const RowProgram *p)
{
    int n = 0;

    for (int i = 0; i < p->npasses; i++)
        n += row_does(p, i);
    return n;
}

static void run(Ctx *c, void *ud)
{
    const bool wanted[MAX_INPUTS] = { true };
    const RowReads host = { .columns = false };
    const char *why = NULL;
    RowStep *s = row_step(c, entropy(c, 256000), &why);

    (void)ud;
    expect("cross-entropy is a row program", s != NULL);
    expect("its logsumexp alone is kept", s->nkept == 1
           && s->joint->n[s->kept[0]].op == OP_lse);
    RowProgram *ahead = row_forward(c, s, true);
    RowTraffic t = row_traffic(ahead);
    expect("forward reads a row once", passes(ahead) == 1
           && t.read == 256000 && !t.again && !t.written);
    RowProgram *back = row_backward(c, s, wanted, wanted, true);
    t = row_traffic(back);
    expect("backward reads it once and writes it once", passes(back) == 1
           && t.read == 256000 && !t.again && t.written == 256000);
    expect("in place it is right", !row_check(c, back, &host));

    back = row_backward(c, s, wanted, wanted, false);
    expect("without what is kept it is read twice", passes(back) == 2);
    expect("and right", !row_check(c, back, &host));
    back->out[0].pass = 0;
    why = row_check(c, back, &host);
    expect("written in the first pass it is refused", why != NULL);
    back = row_backward(c, s, wanted, wanted, false);
    for (Ref r = 1; r < back->g->len; r++)      /* a reader behind the writer */
        if (r == back->g->in[0].node) {
            back->npasses++;
            back->need[2] = ctx_alloc(c, back->g->len);
            back->need[2][r] = 1;
        }
    why = row_check(c, back, &host);
    expect("read after that it is refused", why && strstr(why, "is read in "
           "pass 2"));
    back = row_backward(c, s, wanted, NULL, true);
    back->need[0][back->g->in[0].node] = 0;
    expect("what a pass does not make is refused", row_check(c, back, &host));
}

/* Memory that is written over before its last reader is through is refused. */
static void run_reuse(Ctx *c, void *ud)
{
    const RowReads host = { .columns = false }, device = { .columns = true };
    RowReads shared = { .shared = { true } };
    const bool both[MAX_INPUTS] = { true, true };
    const bool first[MAX_INPUTS] = { true };
    const char *why = NULL;
    RowStep *s = row_step(c, gated(c, 4096), &why);

    (void)ud;
    expect("a gate keeps nothing of a row", s && s->nkept == 0);
    RowProgram *back = row_backward(c, s, both, both, false);
    RowTraffic t = row_traffic(back);
    expect("backward reads gate, up and dy once, and writes two",
           passes(back) == 1 && t.read == 3 * 4096 && !t.again
           && t.written == 2 * 4096);
    expect("over both it is right", !row_check(c, back, &host)
           && !row_check(c, back, &device));
    expect("their last reader is the pass that writes",
           row_last_reader(back, &host, 0) == 0
           && row_last_reader(back, &host, 1) == 0);
    why = row_check(c, back, &shared);
    expect("what several rows read is not written over",
           why && strstr(why, "several rows read"));
    back->npasses++;                    /* one more, which reads up again */
    back->need[1] = ctx_alloc(c, back->g->len);
    back->need[1][back->g->in[1].node] = 1;
    why = row_check(c, back, &host);
    expect("a plan that reads up when it is gone is refused",
           why && strstr(why, "up is read in pass 1"));

    s = row_step(c, normed(c, 4096), &why);
    expect("of a norm the inverse root alone is kept", s && s->nkept == 1
           && s->joint->n[s->kept[0]].op == OP_rsqrt);
    back = row_backward(c, s, both, first, true);
    expect("over z, sums in the same pass", !row_check(c, back, &host));
    why = row_check(c, back, &device);
    expect("not where the sum over rows reads z behind all passes",
           why && strstr(why, "z is read again for a sum over rows"));
    back = row_backward(c, s, first, first, true);
    expect("without that sum it is right", !row_check(c, back, &device));
}

/* x, whose pairs are turned by an angle that heads share */
static Graph *turned(Ctx *c, int n)
{
    Graph *g = graph_new(c, "turned", 0);
    Ref x = g->in[graph_input(g, "x", "t k")].node;
    Ref angle = g->in[graph_input(g, "angle", "t p")].node;
    int k = graph_find_axis(g, "k"), p = graph_find_axis(g, "p");

    g->axis[k].size = n;
    g->axis[p].size = n / 2;
    angle = unary_axis(g, OP_dup, angle, p, k);
    graph_output(g, "y", op2(g, OP_add, op2(g, OP_mul, x,
                 op1(g, OP_cos, angle)), op2(g, OP_mul,
                 unary_axis(g, OP_rot90, x, k, 0), op1(g, OP_sin, angle))));
    return g;
}

static int times(const char *text, const char *what)
{
    int n = 0;

    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

/* A call of so many heads, of which the angle has one. */
static const char *grouped(Ctx *c, const RowStep *s, int heads, bool backward,
                           bool of_angle)
{
    static float somewhere[4];
    PassesCall *call = ctx_alloc(c, sizeof *call);
    int32_t *size = ctx_alloc(c, NAXES * sizeof *size);
    const View own = { .data = somewhere, .heads = heads };
    const View shared = { .data = somewhere, .heads = 1 };

    *call = (PassesCall){ .B = 1, .T = 8, .heads = heads, .size = size,
                          .backward = backward, .y = own,
                          .in = { own, shared, own }, .dx = { own } };
    if (of_angle)
        call->dx[1] = shared;
    return passes_text(c, passes_new(c, s), call);
}

/* Up to the loop over heads and from there on. */
static const char *heads_loop(const char *text)
{
    return strstr(text, "// the heads of a group");
}

/* Heads of a group: what they share is loaded and made before them, once. */
static void run_groups(Ctx *c, void *ud)
{
    const char *why = NULL, *text, *loop;
    RowStep *s = row_step(c, turned(c, 128), &why);

    (void)ud;
    expect("rotations are programs over rows", s && s->half);
    for (int heads = 4; heads <= 16; heads += 12)       /* keys', queries' */
        for (int back = 0; back < 2; back++) {
            text = grouped(c, s, heads, back, false);
            loop = heads_loop(text);
            expect("groups of four heads", loop
                   && strstr(text, "row_group = 4;"));
            expect("the angle is loaded once, before the heads",
                   times(text, "(a.arg[1].p") == 1
                   && times(loop, "(a.arg[1].p") == 0);
            expect("a sine and a cosine are made once, before the heads",
                   times(text, "sin_(") == 1 && times(text, "cos_(") == 1
                   && !times(loop, "sin_(") && !times(loop, "cos_("));
            expect("of each head its own is loaded and stored",
                   times(loop, "load<") == 1 && times(loop, "store<") == 1);
        }
    text = grouped(c, s, 16, true, true);
    loop = heads_loop(text);
    expect("the gradient of what they share is the sum of all",
           loop && strstr(text, "row_group = 16;")
           && times(loop, "store<") == 2);
    text = grouped(c, s, 1, false, false);
    expect("one head is no group", !heads_loop(text)
           && times(text, "load<") == 2);
}

int main(void)
{
    Ctx *c = ctx_new();

    if (!c || !ctx_protect(c, run, NULL)
        || !ctx_protect(c, run_reuse, NULL)
        || !ctx_protect(c, run_groups, NULL)) {
        printf("row: %s\n", c ? c->err.message : "out of memory");
        bad++;
    }
    ctx_free(c);
    return bad != 0;
}
