/* plan.c -- plans: the simplest one, their text, and what follows from which
 * kernel computes which nodes.
 */
#include "plan.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

/* Comes from memory or from nowhere: whoever needs it has it. */
static bool is_leaf(const Graph *g, Ref r)
{
    int op = g->n[r].op;

    return op == OP_input || op_is(op, CONST);
}

/* ---- the simplest plan ---- */

static bool walks_back(const Graph *g)
{
    for (int s = 0; s < g->nst; s++)
        if (g->st[s].reverse)
            return true;
    return false;
}

/* All that the roots of one pass need: results and the states that run
 * forwards, or gradients and the states that run backwards. */
static void fill_kernel(const Graph *g, Kernel *k, bool back)
{
    uint8_t *need = ctx_alloc(g->ctx, g->len);

    for (int i = 0; i < g->nout; i++)
        if (back == (walks_back(g) && g->out[i].late))
            need[g->out[i].node] = 1;
    for (int s = 0; s < g->nst; s++)
        if (back == g->st[s].reverse)
            need[g->st[s].next] = 1;
    for (Ref r = g->len - 1; r > 0; r--)
        for (int i = 0; need[r] && i < 4; i++)
            need[g->n[r].a[i]] = 1;
    k->node = ctx_alloc(g->ctx, g->len * sizeof *k->node);
    for (Ref r = 1; r < g->len; r++)
        if (need[r])
            k->node[k->nnodes++] = r;
}

Plan *plan_simple(Graph *g)
{
    Plan *p = ctx_alloc(g->ctx, sizeof *p);
    const char *name = g->chunk ? "forward" : "serial";

    p->g = g;
    p->nkernels = walks_back(g) ? 2 : 1;
    p->kernel = ctx_alloc(g->ctx, 2 * sizeof *p->kernel);
    for (int i = 0; i < p->nkernels; i++) {
        Kernel *k = &p->kernel[i];
        snprintf(k->name, sizeof k->name, "%s", i ? "backward" : name);
        k->kind = i ? K_REVERSE : K_FORWARD;
        fill_kernel(g, k, i > 0);
    }
    plan_finish(p);
    return p;
}

/* ---- text ---- */

static const char *const kind_name[] = { "token", "forward", "reverse" };

/* Nodes by their number in the text, as its reader will sort them. */
void plan_print(const Plan *p, Buf *out)
{
    uint32_t *number = text_print(p->g, out), len = p->g->len;
    uint8_t *has = ctx_alloc(p->g->ctx, len);

    for (int i = 0; i < p->nkernels; i++) {
        const Kernel *k = &p->kernel[i];
        memset(has, 0, len);
        for (int j = 0; j < k->nnodes; j++)
            has[number[k->node[j]]] = 1;
        buf_printf(out, "kernel %s %s :", k->name, kind_name[k->kind]);
        for (uint32_t n = 1; n < len; n++)
            if (has[n])
                buf_printf(out, " %%%u", n);
        buf_printf(out, "\n");
    }
}

static void read_kernel(Text *t, void *ud)
{
    enum { AT_ONCE = 64 };
    Plan *p = ud;
    size_t before = (size_t)p->nkernels * sizeof *p->kernel;
    int kind, cap = 0;

    if (p->nkernels % AT_ONCE == 0)
        p->kernel = ctx_grow(t->c, p->kernel, before,
                             before + AT_ONCE * sizeof *p->kernel);
    Kernel *k = &p->kernel[p->nkernels++];
    text_name(t, "kernel", k->name, sizeof k->name);
    for (kind = K_TOKEN; kind <= K_REVERSE; kind++)
        if (text_at(t, kind_name[kind]))
            break;
    if (kind > K_REVERSE)
        fail(t->c, t->line, "expected token, forward or reverse, found %s",
             text_shown(t));
    k->kind = (KernelKind)kind;
    text_next(t);
    text_take(t, ":");
    while (*t->word) {
        if (k->nnodes == cap) {
            size_t old = (size_t)cap * sizeof *k->node;
            cap = cap ? 2 * cap : 32;
            k->node = ctx_grow(t->c, k->node, old,
                               (size_t)cap * sizeof *k->node);
        }
        k->node[k->nnodes++] = text_ref(t);
    }
}

Plan *plan_parse(Ctx *c, const char *text)
{
    Plan *p = ctx_alloc(c, sizeof *p);

    p->g = text_graph(c, text, read_kernel, p);
    plan_finish(p);
    return p;
}

/* ---- what each kernel has ---- */

/* A plan being finished. Sets of nodes, a byte a node: of this kernel what
 * it computes and what it loads; of all, the first kernel that computes. */
typedef struct Finish {
    Plan *p;
    Graph *g;
    uint8_t *live;
    uint8_t **has, **loads;             /* per kernel */
    int *first;                         /* nkernels: nobody */
} Finish;

static bool runs_state(const Graph *g, const Kernel *k, int s)
{
    return k->kind == (g->st[s].reverse ? K_REVERSE : K_FORWARD);
}

/* The states whose next value stands in the kernel, if it walks their way. */
static void find_carried(Finish *f, Kernel *k, const uint8_t *has)
{
    k->states = 0;
    for (int s = 0; s < f->g->nst; s++)
        if (f->g->st[s].next && has[f->g->st[s].next]
            && runs_state(f->g, k, s))
            k->states |= STATE(s);
}

static bool carries(const Kernel *k, const Node *n)
{
    return n->op == OP_state && k->states & STATE(n->index);
}

/* Marks r as read by kernel k: leaves and carried states it has itself; of
 * entries under other names it loads those there are. */
static void read_node(Finish *f, int k, Ref r)
{
    const Node *n = &f->g->n[r];

    if (!r || f->has[k][r])
        return;
    if (op_is(n->op, RENAMES)) {
        f->has[k][r] = 1;
        read_node(f, k, n->a[0]);
    } else if (is_leaf(f->g, r) || carries(&f->p->kernel[k], n))
        f->has[k][r] = 1;
    else
        f->loads[k][r] = 1;
}

/* Dead nodes go, and states that the kernel does not carry: it loads those
 * that it reads. One that it carries it has for others, too. */
static void find_nodes(Finish *f, int at)
{
    Kernel *k = &f->p->kernel[at];
    uint8_t *has = f->has[at];

    for (int i = 0; i < k->nnodes; i++)
        has[k->node[i]] = f->live[k->node[i]];
    find_carried(f, k, has);
    for (Ref r = 1; r < f->g->len; r++)
        if (has[r] && f->g->n[r].op == OP_state
            && !carries(k, &f->g->n[r]))
            has[r] = 0;
    for (Ref r = 1; r < f->g->len; r++)
        for (int i = 0; has[r] && i < 4; i++)
            read_node(f, at, f->g->n[r].a[i]);
    for (int s = 0; s < f->g->nst; s++) {
        const State *st = &f->g->st[s];
        if (k->states & STATE(s))
            read_node(f, at, st->next);
        has[st->node] |= k->states & STATE(s) && f->live[st->node];
    }
    for (Ref r = 1; r < f->g->len; r++)
        if (has[r] && f->first[r] == f->p->nkernels)
            f->first[r] = at;
}

static void list_nodes(Finish *f, int at)
{
    Kernel *k = &f->p->kernel[at];
    int n = 0;

    for (Ref r = 1; r < f->g->len; r++)
        n += f->has[at][r];
    k->node = ctx_alloc(f->g->ctx, (size_t)n * sizeof *k->node);
    k->role = ctx_alloc(f->g->ctx, (size_t)n);
    k->nnodes = 0;
    for (Ref r = 1; r < f->g->len; r++)
        if (f->has[at][r])
            k->node[k->nnodes++] = r;
}

/* ---- checks ---- */

static bool check_reads(const Finish *f, int at, Error *why)
{
    const Plan *p = f->p;

    for (Ref r = 1; r < f->g->len; r++) {
        if (!f->loads[at][r] || f->first[r] < at)
            continue;
        const char *what = f->g->n[r].op == OP_state ? "state " : "";
        if (f->first[r] == p->nkernels)
            error_set(f->g->ctx, why, f->g->n[r].line, NULL, "kernel '%s' "
                      "reads %s%s, which no kernel %s", p->kernel[at].name,
                      what, expr_text(f->g, r),
                      *what ? "carries" : "computes");
        else
            error_set(f->g->ctx, why, f->g->n[r].line, NULL, "kernel '%s' "
                      "reads %s%s, which is first known in kernel '%s'",
                      p->kernel[at].name, what, expr_text(f->g, r),
                      p->kernel[f->first[r]].name);
        return false;
    }
    return true;
}

static bool check_roots(const Finish *f, Error *why)
{
    const Graph *g = f->g;
    StateSet carried = 0;

    for (int i = 0; i < f->p->nkernels; i++)
        carried |= f->p->kernel[i].states;
    for (int s = 0; s < g->nst; s++)
        if (g->st[s].next && !(carried & STATE(s))) {
            error_set(g->ctx, why, g->st[s].line, NULL, "no %s kernel computes"
                      " what state '%s' becomes", g->st[s].reverse
                      ? "reverse" : "forward", g->st[s].name);
            return false;
        }
    for (int i = 0; i < g->nout; i++)
        if (f->first[g->out[i].node] == f->p->nkernels) {
            error_set(g->ctx, why, g->n[g->out[i].node].line, NULL, "no kernel"
                      " computes result '%s'", g->out[i].name);
            return false;
        }
    return true;
}

/* ---- roles and prices ---- */

static void set_roles(const Finish *f, Kernel *k)
{
    uint8_t *serial = ctx_alloc(f->g->ctx, f->g->len);

    for (int i = 0; i < k->nnodes; i++) {
        const Node *n = &f->g->n[k->node[i]];
        bool chain = n->op == OP_state;
        for (int a = 0; a < 4; a++)
            chain |= serial[n->a[a]];
        serial[k->node[i]] = chain;
        k->role[i] = n->op == OP_input ? R_LOAD : chain ? R_SERIAL : R_AHEAD;
    }
}

/* How long the axis is in the value; an axis without a size counts one. */
static double extent(const Graph *g, Ref r, int ax)
{
    bool rank = ax != AX_I && ax != AX_J && ax < AX_DIM;
    int32_t n = rank ? axis_extent(g, r, ax) : g->axis[ax].size;

    return n > 0 ? n : 1;
}

static double tile_size(const Graph *g, Ref r)
{
    double n = 1;

    for (int ax = 0; ax < NAXES; ax++)
        if (g->n[r].axes & AXIS(ax))
            n *= extent(g, r, ax);
    return n;
}

/* A row a token, and all the axes as stored. */
static double output_size(const Graph *g, const Output *o)
{
    double n = extent(g, o->node, AX_I);

    for (int d = 0; d < o->rank; d++)
        n *= extent(g, o->node, o->order[d]);
    return n;
}

/* The product of all extents that an operation runs through, doubled where it
 * multiplies and adds (a solve has half the pairs). */
static double node_flops(const Graph *g, Ref r)
{
    const Node *n = &g->n[r];
    AxisSet seen = 0;
    double flops = is_contraction(n->op) ? 2 : 1;

    if (is_leaf(g, r) || n->op == OP_state)
        return 0;
    for (int i = 0; i < 5; i++) {
        Ref x = i < 4 ? n->a[i] : r;
        for (int ax = 0; ax < NAXES; ax++)
            if (g->n[x].axes & AXIS(ax) & ~seen)
                flops *= extent(g, x, ax);
        seen |= g->n[x].axes;
    }
    return flops;
}

/* Per-head constants are loaded once a sequence by a kernel that walks it. */
static bool moves(const Graph *g, const Kernel *k, Ref r)
{
    const Node *n = &g->n[r];

    return n->op != OP_input || g->in[n->index].timed || k->kind == K_TOKEN;
}

static void set_price(const Finish *f, int at)
{
    const Graph *g = f->g;
    Kernel *k = &f->p->kernel[at];
    double elements = 0;

    k->flops = 0;
    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        bool load = f->loads[at][r] || (f->has[at][r] && n->op == OP_input);
        bool store = plan_keeps(f->p, at, r);
        if (f->has[at][r])
            k->flops += node_flops(g, r);
        if (load && moves(g, k, r))
            elements += tile_size(g, r);
        if (store)
            elements += tile_size(g, r);
    }
    for (int i = 0; i < g->nout; i++)
        if (f->first[g->out[i].node] == at)
            elements += output_size(g, &g->out[i]);
    k->bytes = 4 * elements;
}

/* ---- two passes ---- */

static int find_split(const Plan *p)
{
    const Graph *g = p->g;
    bool *late = ctx_alloc(g->ctx, g->len * sizeof *late);

    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        late[r] = (n->op == OP_state && g->st[n->index].reverse)
               || (n->op == OP_input && input_is_adjoint(&g->in[n->index]));
        for (int i = 0; i < 4; i++)
            late[r] |= late[n->a[i]];
    }
    for (int k = 0; k < p->nkernels; k++)
        for (int i = 0; i < p->kernel[k].nnodes || p->kernel[k].back; i++)
            if (p->kernel[k].back || late[p->kernel[k].node[i]])
                return k;
    return p->nkernels;
}

/* The last kernel, `from` or later, that computes r before one of those finds
 * it; from - 1: there is none. */
static int keeper_from(const Finish *f, Ref r, int from)
{
    int k = from;

    while (k < f->p->nkernels && !f->loads[k][r])
        k++;
    if (k == f->p->nkernels)
        return from - 1;
    while (k-- > from && !f->has[k][r])
        ;
    return k;
}

/* The way back may be taken without the way forward that the plan has: what it
 * computes again it keeps again. */
static void find_keepers(const Finish *f)
{
    Plan *p = f->p;

    for (Ref r = 1; r < f->g->len; r++) {
        p->keeper[r] = keeper_from(f, r, 0);
        p->again[r] = keeper_from(f, r, p->split);
        if (p->again[r] < p->split)
            p->again[r] = p->keeper[r];
    }
}

bool plan_finish_if(Plan *p, Error *why)
{
    Graph *g = p->g;
    Ctx *c = g->ctx;
    size_t n = (size_t)(p->nkernels ? p->nkernels : 1);
    Finish f = { .p = p, .g = g };

    f.live = ctx_alloc(c, g->len);
    f.first = ctx_alloc(c, g->len * sizeof *f.first);
    f.has = ctx_alloc(c, n * sizeof *f.has);
    f.loads = ctx_alloc(c, n * sizeof *f.loads);
    p->stored = ctx_alloc(c, g->len);
    p->keeper = ctx_alloc(c, g->len * sizeof *p->keeper);
    p->again = ctx_alloc(c, g->len * sizeof *p->again);
    graph_live(g, f.live);
    for (Ref r = 0; r < g->len; r++)
        f.first[r] = p->nkernels;
    for (int i = 0; i < p->nkernels; i++) {
        f.has[i] = ctx_alloc(c, g->len);
        f.loads[i] = ctx_alloc(c, g->len);
        find_nodes(&f, i);
        list_nodes(&f, i);
        for (Ref r = 1; r < g->len; r++)
            p->stored[r] |= f.loads[i][r];
    }
    for (int i = 0; i < p->nkernels; i++)
        if (!check_reads(&f, i, why))
            return false;
    if (!check_roots(&f, why))
        return false;
    p->split = find_split(p);
    find_keepers(&f);
    for (int i = 0; i < p->nkernels; i++) {
        set_roles(&f, &p->kernel[i]);
        set_price(&f, i);
    }
    return true;
}

void plan_finish(Plan *p)
{
    Error why;

    if (!plan_finish_if(p, &why))
        ctx_raise(p->g->ctx, &why);
}

/* ---- the way back as one ---- */

Plan *plan_join_back(const Plan *p)
{
    Ctx *c = p->g->ctx;
    Plan *to = ctx_alloc(c, sizeof *to);
    size_t before = (size_t)p->split * sizeof *to->kernel;
    uint8_t *has = ctx_alloc(c, p->g->len);

    *to = (Plan){ .g = p->g, .nkernels = p->split + 1 };
    to->kernel = ctx_alloc(c, before + sizeof *to->kernel);
    memcpy(to->kernel, p->kernel, before);
    Kernel *back = &to->kernel[p->split];
    *back = (Kernel){ .kind = K_REVERSE };
    snprintf(back->name, sizeof back->name, "backward");
    for (int k = p->split; k < p->nkernels; k++)
        for (int i = 0; i < p->kernel[k].nnodes; i++)
            has[p->kernel[k].node[i]] = 1;
    back->node = ctx_alloc(c, p->g->len * sizeof *back->node);
    for (Ref r = 1; r < p->g->len; r++)
        if (has[r])
            back->node[back->nnodes++] = r;
    plan_finish(to);
    return to;
}

/* ---- the states alone ---- */

/* What kernel k reads of a pass before its own, and what that is made of. */
static void compute_again(const Plan *p, Kernel *k, const uint8_t *early)
{
    const Graph *g = p->g;
    uint8_t *has = ctx_alloc(g->ctx, g->len);

    for (int i = 0; i < k->nnodes; i++)
        has[k->node[i]] = 1;
    k->node = ctx_alloc(g->ctx, g->len * sizeof *k->node);
    k->nnodes = 0;
    for (Ref r = g->len - 1; r > 0; r--)
        for (int i = 0; has[r] && i < 4; i++) {
            Ref a = g->n[r].a[i];
            has[a] |= early[a] && g->n[a].op != OP_state;
        }
    for (Ref r = 1; r < g->len; r++)
        if (has[r])
            k->node[k->nnodes++] = r;
}

Plan *plan_keep_states(const Plan *p)
{
    Ctx *c = p->g->ctx;
    Plan *to = ctx_alloc(c, sizeof *to);
    size_t bytes = (size_t)p->nkernels * sizeof *to->kernel;
    uint8_t *early = ctx_alloc(c, p->g->len);

    *to = *p;
    to->kernel = ctx_alloc(c, bytes);
    memcpy(to->kernel, p->kernel, bytes);
    for (int k = 0; k < p->nkernels; k++) {
        if (k >= p->split)
            compute_again(p, &to->kernel[k], early);
        for (int i = 0; i < p->kernel[k].nnodes && k < p->split; i++)
            early[p->kernel[k].node[i]] = 1;
    }
    plan_finish(to);
    return to;
}

/* ---- over another graph ---- */

typedef struct Renew {
    const Graph *g;
    uint8_t *known, *has;               /* images of what the kernel finds; its
                                           nodes */
} Renew;

/* Marks the images of what the kernel reads and does not compute. */
static void find_known(const Plan *p, const Kernel *k, const Ref *image,
                       size_t each, Renew *w)
{
    uint8_t *has = ctx_alloc(w->g->ctx, p->g->len);

    for (int i = 0; i < k->nnodes; i++)
        has[k->node[i]] = 1;
    for (int i = 0; i < k->nnodes; i++)
        for (int a = 0; a < 4; a++) {
            Ref r = p->g->n[k->node[i]].a[a];
            for (size_t e = 0; e < each && r && !has[r]; e++)
                w->known[image[r * each + e]] = 1;
        }
}

static void compute_image(Renew *w, Ref r)
{
    if (w->has[r])
        return;
    w->has[r] = 1;
    for (int i = 0; i < 4; i++) {
        Ref a = w->g->n[r].a[i];
        if (a && !w->known[a])
            compute_image(w, a);
    }
}

Plan *plan_renewed(const Plan *p, Graph *g, const Ref *image, size_t each)
{
    Ctx *c = g->ctx;
    Plan *to = ctx_alloc(c, sizeof *to);
    size_t bytes = (size_t)p->nkernels * sizeof *to->kernel;

    *to = (Plan){ .g = g, .nkernels = p->nkernels };
    to->kernel = ctx_alloc(c, bytes);
    memcpy(to->kernel, p->kernel, bytes);
    for (int n = 0; n < p->nkernels; n++) {
        const Kernel *k = &p->kernel[n];
        Renew w = { g, ctx_alloc(c, g->len), ctx_alloc(c, g->len) };
        find_known(p, k, image, each, &w);
        for (int i = 0; i < k->nnodes; i++)
            for (size_t e = 0; e < each; e++)
                if (image[k->node[i] * each + e])
                    compute_image(&w, image[k->node[i] * each + e]);
        to->kernel[n].node = ctx_alloc(c, g->len * sizeof *k->node);
        to->kernel[n].nnodes = 0;
        for (Ref r = 1; r < g->len; r++)
            if (w.has[r])
                to->kernel[n].node[to->kernel[n].nnodes++] = r;
    }
    plan_finish(to);
    return to;
}

const Plan *plan_rewritten(Ctx *c, const Plan *p, NodeRewrite *rewrite,
                           void *ud)
{
    Graph *g = graph_copy(c, p->g);
    Ref *image = ctx_alloc(c, p->g->len * sizeof *image);
    bool any = false;

    for (Ref r = 1; r < p->g->len; r++) {
        const Node n = p->g->n[r];
        Ref a[4];
        bool same = true;
        for (int i = 0; i < 4; i++) {
            a[i] = image[n.a[i]];
            same &= a[i] == n.a[i];
        }
        Ref now = rewrite(ud, g, &n, a, image);
        any |= now != 0;
        image[r] = now ? now : same ? r : node_copy(g, &n, a);
    }
    for (int i = 0; i < g->nout; i++)
        g->out[i].node = image[g->out[i].node];
    for (int i = 0; i < g->nst; i++)
        g->st[i].next = image[g->st[i].next];
    return any ? plan_renewed(p, g, image, 1) : p;
}
