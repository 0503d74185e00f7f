/* plan_draw.c -- a plan as input for Graphviz: kernels as boxes, what they
 * compute inside, and what moves between them. As SVG: draw_plan.lua.
 */
#include <string.h>

#include "../compiler/cost.h"
#include "plan_view.h"

/* Text for a quoted string of Graphviz, in which '&' begins an entity. */
static const char *escaped(const PlanView *w, const char *s)
{
    Buf b = { .ctx = w->ctx };

    buf_printf(&b, "%s", "");
    for (; *s; s++)
        switch (*s) {
        case '<': buf_printf(&b, "&lt;"); break;
        case '>': buf_printf(&b, "&gt;"); break;
        case '&': buf_printf(&b, "&amp;"); break;
        case '"': buf_printf(&b, "&quot;"); break;
        default: buf_put(&b, s, 1);
        }
    return b.s;
}

static bool is_drawn(const PlanView *w, Ref r)
{
    return w->name[r] || w->p->stored[r];
}

/* The kernel that r is taken from when kernel k needs it: itself, or the
 * first that computes it; -1: an argument. */
static int source(const PlanView *w, int k, Ref r)
{
    if (w->has[k][r])
        return k;
    for (int i = 0; i < k; i++)
        if (w->has[i][r])
            return i;
    return -1;
}

/* Calls f for every drawn node right below r, through what is fused. */
typedef void Edge(const PlanView *w, int k, Ref from, Ref to, void *ud);

static void each_below(const PlanView *w, int k, Ref top, Ref r,
                       uint8_t *seen, Edge *f, void *ud)
{
    const Node *n = &w->p->g->n[r];

    for (int i = 0; i < 4; i++) {
        Ref x = n->a[i];
        if (!x || seen[x])
            continue;
        seen[x] = 1;
        if (is_drawn(w, x))
            f(w, k, x, top, ud);
        else
            each_below(w, k, top, x, seen, f, ud);
    }
}

static void each_edge(const PlanView *w, int k, Edge *f, void *ud)
{
    uint8_t *seen = ctx_alloc(w->ctx, w->p->g->len);

    for (Ref r = 1; r < w->p->g->len; r++)
        if (w->has[k][r] && is_drawn(w, r)) {
            memset(seen, 0, w->p->g->len);
            each_below(w, k, r, r, seen, f, ud);
        }
}

/* ---- Graphviz ---- */

static void dot_edge(const PlanView *w, int k, Ref from, Ref to, void *ud)
{
    int at = source(w, k, from);

    if (at < 0)
        return;
    buf_printf(ud, "  n%d_%u -> n%d_%u", at, from, k, to);
    if (at != k)
        buf_printf(ud, " [label=\"%.0f B\", style=bold]",
                   tile_bytes(w->p->g, w->m, from) / w->chunk);
    buf_printf(ud, ";\n");
}

static void dot_node(const PlanView *w, int k, Ref r, Buf *out)
{
    buf_printf(out, "    n%d_%u [label=\"%s%s%s\"%s];\n", k, r,
               w->name[r] ? w->name[r] : "", w->name[r] ? " = " : "",
               escaped(w, w->line[r]),
               w->p->stored[r] ? ", style=bold" : "");
}

void plan_dot(const PlanView *w, Buf *out)
{
    const Graph *g = w->p->g;

    buf_printf(out, "digraph \"%s\" {\n  node [shape=box, fontname=monospace, "
               "fontsize=10];\n", g->name);
    for (int k = 0; k < w->p->nkernels; k++) {
        const Kernel *kernel = &w->p->kernel[k];
        buf_printf(out, "  subgraph cluster_%d {\n    label=\"%s (%s), %.0f "
                   "bytes a token\";\n", k, kernel->name, kernel_kind(kernel),
                   kernel->bytes / w->chunk);
        for (Ref r = 1; r < g->len; r++)
            if (w->has[k][r] && is_drawn(w, r))
                dot_node(w, k, r, out);
        buf_printf(out, "  }\n");
    }
    for (int k = 0; k < w->p->nkernels; k++)
        each_edge(w, k, dot_edge, out);
    buf_printf(out, "}\n");
}
