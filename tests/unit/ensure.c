/* ensure.c -- what our own passes must respect is checked in every build: an
 * error of kind internal, with the operation and its line. */
#include "support.h"

static int bad;

typedef struct Broken { const char *name, *message; } Broken;

static const Broken broken[] = {
    { "dmask", "internal: dmask of x: not so: !ga == !gb" },
    { "part", "internal: part of x: not so: g->n[a].axes & AXIS(axis)" },
    { "relabel", "internal: relabel of x: not so: !(g->n[a].axes & "
                 "AXIS(to))" },
    { "operand", "internal: exp: not so: n->a[i] < g->len" },
};

static void break_it(Ctx *c, void *ud)
{
    Graph *g = graph_new(c, "broken", 0);
    Ref x = g->in[graph_input(g, "x", "t k v")].node;
    int which = *(int *)ud, k = graph_axis(g, "k");

    g->line = 7;
    switch (which) {
    case 0: dmask(g, x, 0, 0); break;
    case 1: part(g, x, graph_axis(g, "d"), 0, 1); break;
    case 2: relabel(g, x, k, graph_axis(g, "v")); break;
    case 3: op1(g, OP_exp, 1000); break;
    }
}

int main(void)
{
    for (int i = 0; i < (int)(sizeof broken / sizeof *broken); i++) {
        Ctx *c = ctx_new();
        bool ran = ctx_protect(c, break_it, &i);
        if (ran || c->err.code != ERR_INTERNAL || c->err.line != 7
            || strcmp(c->err.message, broken[i].message)) {
            printf("ensure: %s: %s, code %d, line %d\n", broken[i].name,
                   ran ? "ran" : c->err.message, c->err.code, c->err.line);
            bad++;
        }
        ctx_free(c);
    }
    return bad != 0;
}
