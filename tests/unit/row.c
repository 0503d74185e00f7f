/* row.c -- row programs: which passes there are, and that a program whose
 * memory is written over too early is refused. */
#include <stdio.h>
#include <string.h>

#include "../../compiler/row.h"

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
    expect("in place it is right", !row_check(c, back));

    back = row_backward(c, s, wanted, wanted, false);
    expect("without what is kept it is read twice", passes(back) == 2);
    expect("and right", !row_check(c, back));
    back->out[0].pass = 0;
    why = row_check(c, back);
    expect("written in the first pass it is refused", why != NULL);
    back = row_backward(c, s, wanted, wanted, false);
    for (Ref r = 1; r < back->g->len; r++)      /* a reader behind the writer */
        if (r == back->g->in[0].node) {
            back->npasses++;
            back->need[2] = ctx_alloc(c, back->g->len);
            back->need[2][r] = 1;
        }
    why = row_check(c, back);
    expect("read after that it is refused", why && strstr(why, "is read in "
           "pass 2"));
    back = row_backward(c, s, wanted, NULL, true);
    back->need[0][back->g->in[0].node] = 0;
    expect("what a pass does not make is refused", row_check(c, back));
}

int main(void)
{
    Ctx *c = ctx_new();

    if (!c || !ctx_protect(c, run, NULL)) {
        printf("row: %s\n", c ? c->err.message : "out of memory");
        bad++;
    }
    ctx_free(c);
    return bad != 0;
}
