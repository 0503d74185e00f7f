/* form.c -- v.form: the states, lowest stratum first, in universal form; and
 * whether there is a chunk form, or which term is in its way. */
#include <string.h>

#include "../compiler/coupled.h"
#include "../compiler/mask.h"
#include "../compiler/scores.h"
#include "layer_run.h"

enum { USUAL_SIZE = 16 };

typedef struct Form {
    Variant *v;
    int32_t size[NAXES];
    Buf text;
} Form;

static const char *decay_kind(const Graph *g, const Universal *u)
{
    AxisSet s = u->decay ? g->n[u->decay].axes : 0;

    return !u->decay ? "no decay"
        : s ? ctx_format(g->ctx, "a decay for each %s", axes_text(g, s))
        : "one decay";
}

/* r as a factor: sums in brackets. */
static char *factor(const Graph *g, Ref r)
{
    int op = g->n[r].op;
    bool sum = op == OP_add || op == OP_sub || op == OP_neg;

    return sum ? ctx_format(g->ctx, "(%s)", expr_text(g, r)) : expr_text(g, r);
}

static int rank_of(const Graph *g, AxisSet rank)
{
    int n = 1;

    for (int ax = 0; ax < NAXES; ax++)
        if (rank & AXIS(ax) && g->axis[ax].size)
            n *= g->axis[ax].size;
    return n;
}

/* Terms on lines of their own where they are long. */
static void put_terms(Buf *b, char *const *term, int n)
{
    size_t length = 0;

    for (int i = 0; i < n; i++)
        length += strlen(term[i]) + 3;
    for (int i = 0; i < n; i++)
        buf_printf(b, "%s + %s", length > 56 ? "\n      " : "", term[i]);
    buf_printf(b, "\n     ");
}

/* S = D*S + outer(b, dot(a, S)) + outer(b, v) ... */
static void put_matrix(Buf *b, Graph *g, const State *st, const Universal *u)
{
    char *term[2 * MAX_TERMS];
    int n = 0, reads = 0, writes = 0;

    for (int i = 0; i < u->nwrites; i++) {
        const Write *w = &u->write[i];
        char *to = expr_text(g, w->b);
        Ref rate = w->decayed && w->rate ? op2(g, OP_mul, w->rate, u->decay)
                 : w->decayed ? u->decay : w->rate;
        if (w->a)
            term[n++] = ctx_format(g->ctx, "outer(%s, %s%sdot(%s, %s))", to,
                                   rate ? factor(g, rate) : "",
                                   rate ? "*" : "", expr_text(g, w->a),
                                   st->name);
        if (w->v)
            term[n++] = ctx_format(g->ctx, "outer(%s, %s)", to,
                                   expr_text(g, w->v));
        reads += w->a ? rank_of(g, w->rank) : 0;
        writes += w->v ? rank_of(g, w->rank) : 0;
    }
    if (u->decay)
        buf_printf(b, "%s*", factor(g, u->decay));
    buf_printf(b, "%s", st->name);
    put_terms(b, term, n);
    buf_printf(b, "%s; ", decay_kind(g, u));
    if (reads)
        buf_printf(b, "corrects what it holds, rank %d; ", reads);
    buf_printf(b, "writes rank %d", writes);
}

static void put_scan(Buf *b, Graph *g, const State *st, const Universal *u)
{
    if (u->form == FORM_MAX) {
        buf_printf(b, "max(%s + %s, %s)", st->name, expr_text(g, u->d),
                   expr_text(g, u->c));
    } else if (u->form == FORM_DELAY) {
        buf_printf(b, "%s, of the token before", expr_text(g, u->c));
    } else {
        if (u->d)
            buf_printf(b, "%s*", factor(g, u->d));
        buf_printf(b, "%s", st->name);
        if (!is_num(g, u->c, 0))
            buf_printf(b, " + %s", expr_text(g, u->c));
    }
    buf_printf(b, "%s", st->angle ? " modulo 2 pi" : "");
}

/* x times what has the text; x may be 1 or 0 (1). */
static char *scaled(Graph *g, Ref x, const char *text)
{
    return !x || is_num(g, x, 1) ? ctx_string(g->ctx, text)
         : is_num(g, x, -1) ? ctx_format(g->ctx, "-%s", text)
         : ctx_format(g->ctx, "%s*%s", factor(g, x), text);
}

/* What the row says to state m of its block. */
static char *row_text(Graph *g, const Coupled *k, const CoupledRow *r, int m)
{
    Buf b = { .ctx = g->ctx };

    for (int n = 0; n < k->n; n++)
        if (r->a[n])
            buf_printf(&b, "%sdot(%s, %s)", b.len ? " + " : "",
                       expr_text(g, r->a[n]), g->st[k->state[n]].name);
    if (r->v)
        buf_printf(&b, "%s%s", b.len ? " + " : "", expr_text(g, r->v));
    return scaled(g, r->to[m], ctx_format(g->ctx, "outer(%s, %s)",
                                          expr_text(g, r->b), b.s));
}

static const char *keep_kind(const Graph *g, const Coupled *k)
{
    return k->entries ? "each entry by itself, which no product of matrices"
                        " does"
         : !g->n[k->keep[0][0]].axes ? "one number of the token, of any sign"
         : ctx_format(g->ctx, "one for each %s, of any sign",
                      axes_text(g, g->n[k->keep[0][0]].axes));
}

/* S = a*S + c*M + to*outer(b, dot(a, S) + v) ... */
static void put_coupled(Buf *b, Graph *g, const Coupled *k, int m)
{
    char *term[2 * MAX_TERMS];
    int t = 0, reads = 0, writes = 0;

    for (int n = 0; n < k->n; n++)
        if (k->keep[m][n])
            term[t++] = scaled(g, k->keep[m][n], g->st[k->state[n]].name);
    for (int i = 0; i < k->nrows; i++) {
        const CoupledRow *r = &k->row[i];
        if (!r->to[m])
            continue;
        term[t++] = row_text(g, k, r, m);
        reads += r->reads ? rank_of(g, r->rank) : 0;
        writes += r->v ? rank_of(g, r->rank) : 0;
    }
    if (k->rest[m])
        term[t++] = expr_text(g, k->rest[m]);
    buf_printf(b, "%s", t ? term[0] : "0");
    put_terms(b, term + 1, t - 1);
    if (k->n > 1)
        buf_printf(b, "with");
    else
        buf_printf(b, "%s", keep_kind(g, k));
    for (int n = 0, some = 0; n < k->n; n++)
        if (n != m)
            buf_printf(b, "%s %s", some++ ? "," : "",
                       g->st[k->state[n]].name);
    if (reads)
        buf_printf(b, "; corrects what it holds, rank %d", reads);
    if (!k->entries)
        buf_printf(b, "; writes rank %d", writes);
}

/* Above those that the set needs. */
static int stratum(const Graph *g, StateSet of, const int level[MAX_STATES])
{
    int n = 1;

    for (int s = 0; s < g->nst; s++)
        for (int i = 0; of & STATE(s) && i < g->nst; i++)
            if (g->n[g->st[s].next].states & ~of & STATE(i) && level[i] >= n)
                n = level[i] + 1;
    return n;
}

static void put_state(Buf *b, Graph *g, int s, Road road, const Universal *u,
                      const Coupled *k)
{
    if (road == NO_FORM)
        buf_printf(b, "no universal form");
    else if (road == IN_BLOCK)
        put_coupled(b, g, k, coupled_place(k, s));
    else if (u->form == FORM_UNIVERSAL)
        put_matrix(b, g, &g->st[s], u);
    else
        put_scan(b, g, &g->st[s], u);
}

static void put_states(Buf *b, Graph *g)
{
    int level[MAX_STATES] = { 0 };
    Strata *order = ctx_alloc(g->ctx, sizeof *order);

    strata(g, order);
    for (int i = 0; i < order->n; i++) {
        StateSet of = order->of[i];
        Universal *u = ctx_alloc(g->ctx, sizeof *u);
        Coupled *k = ctx_alloc(g->ctx, sizeof *k);
        int above = stratum(g, of, level);
        Road road = road_of(g, of, false, u, k);
        for (; of; of &= of - 1) {
            int s = __builtin_ctzll(of);
            level[s] = above;
            buf_printf(b, "  %d. %s [%s] = ", above, g->st[s].name,
                       axes_text(g, g->st[s].axes));
            put_state(b, g, s, road, u, k);
            buf_printf(b, "\n");
        }
    }
}

const char **layer_names(const Graph *g, const LayerParts *p)
{
    const char **name = ctx_alloc(g->ctx, g->len * sizeof *name);

    for (int i = 0; i < p->n; i++)
        name[p->part[i].y] = ctx_format(g->ctx, "v%d", i + 1);
    name[g->out[0].node] = "y";
    return name;
}

static void put_part(Buf *b, const Graph *g, const LayerParts *parts, int i,
                     const char *const *name)
{
    const LayerPart *p = &parts->part[i];
    const Node *n = &g->n[p->y];
    const char *t = p->constant ? "" : n->axes ? "t " : "t";

    buf_printf(b, "  %s [%s%s] = ", name[p->y], t, axes_text(g, n->axes));
    if (n->op != OP_input) {
        buf_printf(b, "%s\n     %s\n", expr_named(g, p->y, name),
                   p->constant ? "once, of weights"
                   : !p->step ? "matrix product"
                   : by_rows(g, parts, i, false) ? "row by row"
                   : "in chunks, without a state");
        return;
    }
    buf_printf(b, "%s(", p->name);
    for (int j = 0; j < p->nin; j++)
        buf_printf(b, "%s%s", j ? ", " : "", name[p->in[j]] ? name[p->in[j]]
                   : expr_text(g, p->in[j]));
    buf_printf(b, ")%s%s\n", p->result ? "." : "", p->result ? p->result : "");
}

/* How a call runs, at sizes of its own axes. */
static void put_road(Form *f, const LayerPart *p)
{
    int32_t size[NAXES] = { 0 };

    for (int ax = AX_DIM; ax < p->step->naxes; ax++)
        size[ax] = f->size[p->axis[ax]];
    if (p->taps)
        buf_printf(&f->text, "     convolution along tokens, in chunks\n");
    else if (derive(p->step, size, CHUNK_DEFAULT))
        buf_printf(&f->text, "     in chunks\n");
    else
        buf_printf(&f->text, "     token by token: %s\n", p->step->note);
}

static void find_parts(Form *f)
{
    const Graph *g = f->v->step->layer->traced;
    LayerParts *p = layer_cut(g->ctx, g->layer, f->size);
    const char **name = layer_names(g, p);

    for (int i = 0; i < p->n; i++) {
        put_part(&f->text, g, p, i, name);
        if (g->n[p->part[i].y].op == OP_input)
            put_road(f, &p->part[i]);
    }
    buf_printf(&f->text, "  runs in %d parts\n", p->n);
}

static void put_road_of(Form *f, Graph *step)
{
    put_states(&f->text, graph_sized(step, (int32_t[NAXES]){ 0 }));
    if (derive(step, f->size, CHUNK_DEFAULT))
        buf_printf(&f->text, "  runs in chunks\n");
    else
        buf_printf(&f->text, "  runs token by token: %s\n", step->note);
    if (step->window)
        buf_printf(&f->text, "  on the CPU, where that is faster, as two scans "
                   "in blocks of %lld tokens%s\n",
                   (long long)step->window->width, step->window->sinks
                   ? " and one over the first" : "");
}

static const char *const when_so[] = {
    "on a GPU, where that is predicted to take less", "", "as asked for" };

static void put_blocks(Form *f, const Scores *s)
{
    bool asked = f->v->way == WAY_STATES;

    buf_printf(&f->text, "  or as scans in blocks of %lld tokens: %s\n",
               (long long)s->width, asked ? "not, as asked for"
                                          : when_so[f->v->way]);
    if (!asked)
        buf_printf(&f->text, "  token by token all the same: gradients of "
                   "states, %s\n", s->rest ? "few tokens behind given states, "
                   "states of sequences whose ends the device alone knows"
                   : "what starts from states or leaves any");
}

static void put_scores(Form *f)
{
    const Scores *s = f->v->step->scores;

    if (s && s->window)
        put_blocks(f, s);
    else if (s && s->width)
        buf_printf(&f->text, "  or over the pairs of tokens %s, without "
                   "states: %s\n", scores_extent(f->text.ctx, s),
                   f->v->way == WAY_STATES ? "not, as asked for"
                                           : when_so[f->v->way]);
    else if (s)
        buf_printf(&f->text, "  or over pairs of tokens, without states, as "
                   "polynomials of degree %d of scores: %s\n", s->degree,
                   when_so[f->v->way]);
}

static void put_ways(Form *f, const Mask *m)
{
    static const char *const from[] = {
        "from the first token on",
        "from the last token on, the transpose of" };

    for (int w = 0; w < 2; w++) {
        if (!m->way[w])
            continue;
        buf_printf(&f->text, "  %s:\n", from[w]);
        put_road_of(f, m->way[w]);
    }
}

static void put_kept(Form *f, const Mask *m)
{
    buf_printf(&f->text, "  token by token: keeps ");
    if (m->first)
        buf_printf(&f->text, "the first %lld and ", (long long)m->first);
    buf_printf(&f->text, "%s%lld tokens\n", m->limit ? "up to " : "the last ",
               (long long)(m->kept - m->first));
}

static void find_form(Ctx *c, void *ud)
{
    Form *f = ud;
    Graph *step = f->v->step;

    f->text.ctx = c;
    if (step->layer) {
        find_parts(f);
        return;
    }
    if (step->mask && step->mask->way[1]) {
        put_ways(f, step->mask);
        return;
    }
    if (step->mask) {
        buf_printf(&f->text, "  over all pairs of tokens: %s\n",
                   step->mask->softmax ? "softmax" : "mode \"quadratic\"");
        if (step->mask->cache)
            put_kept(f, step->mask);
        return;
    }
    put_road_of(f, step);
    put_scores(f);
}

const char *variant_form(lua_State *L, Variant *v)
{
    Form f = { .v = v };

    if (!v->form) {
        sizes_arg(L, "form", v->step, lua_gettop(L) + 1, USUAL_SIZE,
                  f.size);
        protect(L, v->ctx, find_form, &f);
        v->form = f.text.s;
    }
    return v->form;
}

/* ---- which road a call takes ---- */

const char *latest_note(const Variant *v)
{
    const LayerProgram *p = v->programs;

    for (const PlanEntry *e = v->plans; e; e = e->next)
        if (e->chunk && !e->passed)
            return e->note;
    for (int i = 0; p && i < p->parts->n; i++) {
        const char *note = p->variant[i] ? latest_note(p->variant[i]) : NULL;
        if (note)
            return note;
    }
    return NULL;
}

const char *road_taken(Ctx *c, Variant *v, const Args *a)
{
    const char *note = latest_note(v);
    bool pairs = v->step->mask && !v->runs && a->backend && !a->in[0].device
              && !strcmp(a->backend->name, "cuda");

    if (v->said || (!note && !pairs) || a->serial
        || (a->mode != M_FORWARD && a->mode != M_BACKWARD))
        return NULL;
    v->said = true;
    if (pairs)
        return ctx_format(c, "flin: %s runs on the CPU, where its tensors are: "
                          "over all pairs of tokens none are moved (said "
                          "once)", v->step->name);
    return ctx_format(c, "flin: %s goes token by token (said once): %s",
                      v->step->name, note);
}

typedef struct Listener {
    void (*f)(void *ud, const char *line);
    void *ud;
} Listener;
#define LISTENER "flin.listener"

void say_to(lua_State *L, void (*f)(void *ud, const char *line), void *ud)
{
    Listener *l = lua_newuserdatauv(L, sizeof *l, 0);

    *l = (Listener){ f, ud };
    lua_setfield(L, LUA_REGISTRYINDEX, LISTENER);
}

void say_road(lua_State *L, Ctx *c, Variant *v, const Args *a)
{
    const char *line = road_taken(c, v, a);

    if (!line)
        return;
    lua_getfield(L, LUA_REGISTRYINDEX, LISTENER);
    const Listener *l = lua_touserdata(L, -1);
    if (l && l->f)
        l->f(l->ud, line);
    else
        lua_warning(L, line, 0);
    lua_pop(L, 1);
}
