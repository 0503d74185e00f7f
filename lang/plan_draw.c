/* plan_draw.c -- a plan drawn: kernels as boxes, what they compute inside, as
 * input for Graphviz or as SVG with a layout of our own: kernels one below
 * the other, in each the nodes in layers, operands above their users.
 */
#include <string.h>

#include "plan_view.h"

enum { NODE_W = 230, NODE_H = 26, GAP_X = 16, GAP_Y = 34, MARGIN = 24,
       PER_ROW = 5, LABEL = 34 };

/* Text for XML and for a quoted string of Graphviz, cut short. */
static const char *escaped(const PlanView *w, const char *s, size_t most)
{
    Buf b = { .ctx = w->ctx };

    buf_printf(&b, "%s", "");
    for (size_t i = 0; s[i] && i < most; i++)
        switch (s[i]) {
        case '<': buf_printf(&b, "&lt;"); break;
        case '>': buf_printf(&b, "&gt;"); break;
        case '&': buf_printf(&b, "&amp;"); break;
        case '"': buf_printf(&b, "&quot;"); break;
        default: buf_put(&b, &s[i], 1);
        }
    if (strlen(s) > most)
        buf_printf(&b, "...");
    return b.s ? b.s : "";
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

/* Calls f for every shown node right below r, through what is fused. */
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
        if (w->shown[x])
            f(w, k, x, top, ud);
        else
            each_below(w, k, top, x, seen, f, ud);
    }
}

static void each_edge(const PlanView *w, int k, Edge *f, void *ud)
{
    uint8_t *seen = ctx_alloc(w->ctx, w->p->g->len);

    for (Ref r = 1; r < w->p->g->len; r++)
        if (w->has[k][r] && w->shown[r]) {
            memset(seen, 0, w->p->g->len);
            each_below(w, k, r, r, seen, f, ud);
        }
}

/* ---- Graphviz ---- */

static void dot_edge(const PlanView *w, int k, Ref from, Ref to, void *ud)
{
    int at = source(w, k, from);

    if (at >= 0)
        buf_printf(ud, "  n%d_%u -> n%d_%u;\n", at, from, k, to);
}

void plan_dot(const PlanView *w, Buf *out)
{
    const Graph *g = w->p->g;

    buf_printf(out, "digraph \"%s\" {\n  node [shape=box];\n", g->name);
    for (int k = 0; k < w->p->nkernels; k++) {
        const Kernel *kernel = &w->p->kernel[k];
        buf_printf(out, "  subgraph cluster_%d {\n    label=\"%s (%s), %.0f "
                   "bytes a token\";\n", k, kernel->name, kernel_kind(kernel),
                   kernel->bytes / w->chunk);
        for (Ref r = 1; r < g->len; r++)
            if (w->has[k][r] && w->shown[r])
                buf_printf(out, "    n%d_%u [label=\"%s\"%s];\n", k, r,
                           escaped(w, w->label[r], 60),
                           w->p->stored[r] ? ", style=bold" : "");
        buf_printf(out, "  }\n");
    }
    for (int k = 0; k < w->p->nkernels; k++)
        each_edge(w, k, dot_edge, out);
    buf_printf(out, "}\n");
}

/* ---- SVG ---- */

typedef struct Draw {
    Buf *out;
    int **layer, **x, **y;              /* per kernel and node */
    int *top, *height, width;
} Draw;

static void raise_layer(const PlanView *w, int k, Ref from, Ref to, void *ud)
{
    Draw *d = ud;

    if (w->has[k][from] && d->layer[k][from] >= d->layer[k][to])
        d->layer[k][to] = d->layer[k][from] + 1;
}

/* Nodes in layers; a layer that is too wide goes on in the next row. */
static void place_kernel(const PlanView *w, Draw *d, int k, int top)
{
    const Graph *g = w->p->g;
    int row = 0, deepest = 0;

    each_edge(w, k, raise_layer, d);    /* operands come first: one pass */
    for (Ref r = 1; r < g->len; r++)
        if (d->layer[k][r] > deepest)
            deepest = d->layer[k][r];
    for (int layer = 0; layer <= deepest; layer++) {
        int n = 0;
        for (Ref r = 1; r < g->len; r++) {
            if (!w->has[k][r] || !w->shown[r] || d->layer[k][r] != layer)
                continue;
            row += n && n % PER_ROW == 0;
            d->x[k][r] = MARGIN + 12 + n % PER_ROW * (NODE_W + GAP_X);
            d->y[k][r] = top + LABEL + row * (NODE_H + GAP_Y);
            n++;
        }
        row += n > 0;
    }
    d->top[k] = top;
    d->height[k] = LABEL + row * (NODE_H + GAP_Y);
}

static void svg_edge(const PlanView *w, int k, Ref from, Ref to, void *ud)
{
    Draw *d = ud;
    int at = source(w, k, from);

    if (at < 0)
        return;
    int x1 = d->x[at][from] + NODE_W / 2, y1 = d->y[at][from] + NODE_H;
    int x2 = d->x[k][to] + NODE_W / 2, y2 = d->y[k][to];
    buf_printf(d->out, "<path d=\"M%d %d C%d %d %d %d %d %d\" class=\"%s\"/>"
               "\n", x1, y1, x1, y1 + 20, x2, y2 - 20, x2, y2,
               at == k ? "in" : "between");
}

static void svg_kernel(const PlanView *w, Draw *d, int k)
{
    const Kernel *kernel = &w->p->kernel[k];

    buf_printf(d->out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
               "class=\"kernel\"/>\n<text x=\"%d\" y=\"%d\" class=\"head\">"
               "%s (%s): %.0f bytes, %.0f flops a token</text>\n", MARGIN,
               d->top[k], d->width - 2 * MARGIN, d->height[k], MARGIN + 12,
               d->top[k] + 20, kernel->name, kernel_kind(kernel),
               kernel->bytes / w->chunk, kernel->flops / w->chunk);
}

static void svg_nodes(const PlanView *w, Draw *d, int k)
{
    for (Ref r = 1; r < w->p->g->len; r++)
        if (w->has[k][r] && w->shown[r])
            buf_printf(d->out, "<g><title>%s</title><rect x=\"%d\" y=\"%d\" "
                       "width=\"%d\" height=\"%d\" class=\"%s\"/><text "
                       "x=\"%d\" y=\"%d\">%s</text></g>\n",
                       escaped(w, w->label[r], 200), d->x[k][r],
                       d->y[k][r], NODE_W, NODE_H,
                       w->p->stored[r] ? "stored" : "node", d->x[k][r] + 6,
                       d->y[k][r] + 17, escaped(w, w->label[r], 34));
}

static void svg_begin(const PlanView *w, const Draw *d, int height)
{
    buf_printf(d->out, "<svg xmlns=\"http://www.w3.org/2000/svg\" "
               "viewBox=\"0 0 %d %d\" font-family=\"monospace\" "
               "font-size=\"10\">\n<style>.kernel{fill:#eef3fa;"
               "stroke:#456}.node{fill:#fff;stroke:#89a}.stored{fill:#ffe9c7;"
               "stroke:#a62}.head{font-size:13px;font-weight:bold}.in{fill:"
               "none;stroke:#89a}.between{fill:none;stroke:#a62}</style>\n"
               "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text "
               "x=\"%d\" y=\"20\" class=\"head\">%s on %s, chunk %d: %.0f "
               "bytes a token and head</text>\n", d->width, height, MARGIN,
               w->p->g->name, w->m->name, w->chunk, w->info.bytes / w->chunk);
}

void plan_svg(const PlanView *w, Buf *out)
{
    size_t n = (size_t)w->p->nkernels + 1, len = w->p->g->len;
    Draw d = { .out = out,
               .width = 2 * MARGIN + 24 + PER_ROW * (NODE_W + GAP_X) };
    int top = 36;

    d.layer = ctx_alloc(w->ctx, n * sizeof *d.layer);
    d.x = ctx_alloc(w->ctx, n * sizeof *d.x);
    d.y = ctx_alloc(w->ctx, n * sizeof *d.y);
    d.top = ctx_alloc(w->ctx, n * sizeof *d.top);
    d.height = ctx_alloc(w->ctx, n * sizeof *d.height);
    for (int k = 0; k < w->p->nkernels; k++) {
        d.layer[k] = ctx_alloc(w->ctx, len * sizeof **d.layer);
        d.x[k] = ctx_alloc(w->ctx, len * sizeof **d.x);
        d.y[k] = ctx_alloc(w->ctx, len * sizeof **d.y);
        place_kernel(w, &d, k, top);
        top += d.height[k] + MARGIN;
    }
    svg_begin(w, &d, top);
    for (int k = 0; k < w->p->nkernels; k++)
        svg_kernel(w, &d, k);
    for (int k = 0; k < w->p->nkernels; k++)
        each_edge(w, k, svg_edge, &d);
    for (int k = 0; k < w->p->nkernels; k++)    /* on top of the lines */
        svg_nodes(w, &d, k);
    buf_printf(out, "</svg>\n");
}
