/* row.c -- which nodes belong to which pass over a row. */
#include "row.h"
#include "grad.h"

#include <string.h>

/* Longer rows fill the memory of a multiprocessor. */
enum { ROW_LONG = 4096 };

/* ---- which axis ---- */

bool row_folds(const Graph *g, Ref r)
{
    return op_is(g->n[r].op, FOLDS);
}

bool row_needed(const Graph *step)
{
    bool own = false;

    for (Ref r = 1; r < step->len; r++)
        own = own || op_is(step->n[r].op, WHOLE_ROW);
    for (int i = 0; i < step->nin; i++)
        own = own || step->in[i].index_of;
    return own;
}

bool row_wanted(const Graph *step)
{
    bool own = row_needed(step);

    for (Ref r = 1; r < step->len; r++)
        for (AxisSet s = step->n[r].axes; s; s &= s - 1)
            own = own || step->axis[lowest(s)].size > ROW_LONG;
    return own && !step->nst;
}

/* The longest of the axes that no value has beside one of these; -1: none. */
static int apart(const Graph *step, AxisSet along)
{
    AxisSet all = 0;
    int best = -1;

    for (Ref r = 1; r < step->len; r++)
        all |= step->n[r].axes;
    all &= ~along;
    for (Ref r = 1; r < step->len; r++)
        all &= ~(step->n[r].axes & along ? step->n[r].axes : 0);
    for (; all; all &= all - 1)
        if (best < 0 || step->axis[lowest(all)].size >= step->axis[best].size)
            best = lowest(all);
    return best;
}

AxisSet row_along(const Graph *step)
{
    AxisSet along = 0;
    int more;

    for (Ref r = 1; r < step->len; r++)
        along |= row_folds(step, r) ? step->n[r].over : 0;
    while ((more = apart(step, along)) >= 0)
        along |= AXIS(more);
    return along;
}

/* ---- both ways ---- */

Ref row_added(Graph *g, int i)
{
    const State *st = &g->st[adjoint_of_input(g, i)];
    const Node n = g->n[st->next];

    if (n.op == OP_sub && n.a[0] == st->node)
        return op1(g, OP_neg, n.a[1]);
    if (n.op != OP_add || (n.a[0] != st->node && n.a[1] != st->node))
        return 0;
    Ref d = n.a[n.a[0] == st->node];
    bool none = g->n[d].op == OP_lt && g->n[d].a[0] == st->node
             && g->n[d].a[1] == st->node;   /* grad.c's or_zero */
    return none ? op2(g, OP_lt, g->in[i].node, g->in[i].node) : d;
}

static bool is_one(AxisSet s)
{
    return s && !(s & (s - 1));
}

/* Axes that have an entry for each pair of another. */
static void find_halves(RowStep *s)
{
    const Graph *g = s->joint;

    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        bool spreads = op_is(n->op, SPREADS);
        int half = spreads ? lowest(n->over) : n->index;
        if (!op_is(n->op, PAIRS) || !op_has(n->op, TO_AXIS))
            continue;
        s->half |= AXIS(half);
        s->whole[half] = (uint8_t)(spreads ? n->index : lowest(n->over));
    }
    s->half &= s->along;
}

static bool turns_pairs(const RowStep *s, const Node *n)
{
    const Graph *g = s->joint;
    int whole = op_is(n->op, SPREADS) ? n->index : lowest(n->over);
    int half = op_is(n->op, SPREADS) ? lowest(n->over) : n->index;

    if (!(s->along & ~s->half & AXIS(whole)) || g->axis[whole].size % 2)
        return false;
    return !op_has(n->op, TO_AXIS) || (s->half & AXIS(half)
                                  && s->whole[half] == whole
                                  && g->axis[whole].size
                                     == 2 * g->axis[half].size);
}

static const char *refuse(const RowStep *s, Ref r)
{
    const Graph *g = s->joint;
    const AxisSet along = s->along;
    const Node *n = &g->n[r];
    AxisSet rows = n->axes & along;

    if (rows && !is_one(rows))
        return ctx_format(g->ctx, "%s has several axes (%s) that are reduced "
                          "over", expr_text(g, r), axes_text(g, rows));
    if (n->op == OP_state)
        return "it adds to itself";
    if (op_is(n->op, PAIRS))
        return turns_pairs(s, n) ? NULL : ctx_format(g->ctx, "%s is not of all "
                                                     "pairs of a row",
                                                     expr_text(g, r));
    if (n->over & s->half)
        return "it reduces over pairs";
    if (op_is(n->op, CONST) && n->over)
        return n->over & along ? NULL : "it counts along another axis";
    if (row_folds(g, r))
        return is_one(n->over) && n->over & along ? NULL
             : ctx_format(g->ctx, "%s goes over several axes (%s) at once, or "
                          "over one that others are rows of",
                          op_info[n->op].name, axes_text(g, n->over));
    if (n->op == OP_num || n->op == OP_input
        || op_info[n->op].traits & ELEMENTWISE)
        return NULL;
    return ctx_format(g->ctx, "%s moves entries along a row",
                      op_info[n->op].name);
}

/* Is u made of r and of numbers alone, one for a row? */
static bool is_made_of(const RowStep *s, Ref u, Ref r)
{
    const Graph *g = s->joint;

    if (g->n[u].axes & s->along || !(op_info[g->n[u].op].traits & ELEMENTWISE))
        return false;
    for (int i = 0; i < 4; i++)
        if (g->n[u].a[i] && g->n[u].a[i] != r
            && g->n[g->n[u].a[i]].op != OP_num)
            return false;
    return true;
}

/* The number that the way back looks at where it needs r: of a sum of squares
 * the inverse root, say, if it alone is read. */
static Ref looked_at(const RowStep *s, const uint8_t *forward,
                     const uint8_t *back, Ref r)
{
    const Graph *g = s->joint;
    Ref next = 0;

    for (int i = 0; i < s->nin; i++)
        if (s->gradient[i] == r)
            return r;
    for (Ref u = r + 1; u < g->len; u++) {
        bool reads = false;
        for (int i = 0; i < 4; i++)
            reads = reads || g->n[u].a[i] == r;
        if (!reads || !back[u])
            continue;
        if (next || !forward[u] || !is_made_of(s, u, r))
            return r;
        next = u;
    }
    return next ? looked_at(s, forward, back, next) : r;
}

/* Numbers of rows that reductions give, or what is made of these: what the way
 * back needs and the way forward has. */
static void find_kept(Ctx *c, RowStep *s, const uint8_t *forward,
                      const uint8_t *back)
{
    const Graph *g = s->joint;

    s->kept = ctx_alloc(c, g->len * sizeof *s->kept);
    for (Ref r = 1; r < g->len; r++)
        if (forward[r] && back[r] && row_folds(g, r))
            s->kept[s->nkept++] = looked_at(s, forward, back, r);
}

RowStep *row_step(Ctx *c, const Graph *step, const char **why)
{
    RowStep *s = ctx_alloc(c, sizeof *s);
    Graph *g = grad(step);
    AxisSet along = row_along(step);
    uint8_t *forward = ctx_alloc(c, g->len + 2u * MAX_INPUTS);
    uint8_t *back = ctx_alloc(c, g->len + 2u * MAX_INPUTS);

    *why = along ? NULL : "it has no axis";
    if (__builtin_popcount(along) > ROW_MOST_AXES)
        *why = "it goes over too many axes";
    s->nin = step->nin;
    s->gradient = ctx_alloc(c, (size_t)s->nin * sizeof *s->gradient + 1);
    for (int i = 0, o = 1; i < s->nin; i++) {
        const Input *in = &step->in[i];
        Ref d = in->timed ? g->out[o++].node : row_added(g, i);
        if (in->index_of)
            continue;
        if (!d)
            *why = "a gradient of what has no tokens is more than a sum";
        s->gradient[i] = d;
    }
    s->joint = g;
    s->along = along;
    find_halves(s);
    graph_needs(g, forward, g->out[0].node);
    for (int i = 0; i < s->nin; i++)
        if (s->gradient[i])
            graph_needs(g, back, s->gradient[i]);
    for (Ref r = 1; r < g->len && !*why; r++)
        if (forward[r] || back[r])
            *why = refuse(s, r);
    if (*why)
        return NULL;
    find_kept(c, s, forward, back);
    return s;
}

AxisSet row_others(const RowStep *s)
{
    const Graph *g = s->joint;
    AxisSet all = g->n[g->out[0].node].axes;

    for (int i = 0; i < s->nin; i++)
        all |= g->in[i].axes;
    return all & ~s->along;
}

/* ---- passes ---- */

static bool is_along(const RowProgram *p, Ref r)
{
    return p->g->n[r].axes & p->along;
}

static bool is_given(const RowProgram *p, Ref r)
{
    for (int i = 0; i < p->nkept; i++)
        if (p->kept[i] == r)
            return true;
    return false;
}

static void find_levels(RowProgram *p)
{
    const Graph *g = p->g;

    for (Ref r = 1; r < g->len; r++) {
        int level = 0;
        for (int i = 0; i < 4; i++)
            if (g->n[r].a[i] && p->level[g->n[r].a[i]] > level)
                level = p->level[g->n[r].a[i]];
        level += row_folds(g, r);
        p->level[r] = (uint8_t)(is_given(p, r) ? 0 : level < 255 ? level
                                                                : 255);
    }
}

/* What it is made of, in this pass and as numbers. */
static void need(RowProgram *p, Ref root, int pass)
{
    const Graph *g = p->g;

    if (is_along(p, root) || row_folds(g, root))
        p->need[pass][root] = 1;
    p->number[root] |= !is_along(p, root);
    for (Ref r = root; r > 0; r--) {
        bool here = p->need[pass][r];
        if ((!here && (!p->number[r] || row_folds(g, r))) || is_given(p, r))
            continue;
        for (int i = 0; i < 4; i++) {
            Ref a = g->n[r].a[i];
            if (!a)
                continue;
            if (is_along(p, a))
                p->need[pass][a] |= here;
            else
                p->number[a] = 1;
        }
    }
}

/* The pass that it ends. */
static int pass_of_fold(const RowProgram *p, Ref r)
{
    int at = 0;

    while (!(p->g->n[r].over & AXIS(p->axis[at])))
        at++;
    return (p->level[r] - 1) * p->naxes + at;
}

/* The results, and from the last pass back the reductions that are read. */
static void find_needs(RowProgram *p)
{
    const Graph *g = p->g;

    for (int i = 0; i < p->nout; i++)
        if (row_folds(g, p->out[i].node))
            p->number[p->out[i].node] = 1;
        else
            need(p, p->out[i].node, p->out[i].pass);
    for (Ref r = g->len - 1; r > 0; r--)
        if (p->number[r] && row_folds(g, r) && !is_given(p, r))
            need(p, r, pass_of_fold(p, r));
    for (int i = 0; i < p->nkept; i++)
        p->number[p->kept[i]] = 0;      /* it is there */
}

bool row_does(const RowProgram *p, int pass)
{
    bool any = false;

    for (Ref r = 1; r < p->g->len && !any; r++)
        any = p->need[pass][r];
    for (int i = 0; i < p->nout; i++)
        any = any || (p->out[i].pass == pass && p->out[i].summed);
    return any;
}

static int last_round(const RowProgram *p)
{
    int last = 0;

    for (int i = 0; i < p->nout; i++) {
        int at = p->level[p->out[i].node] - !is_along(p, p->out[i].node);
        last = at > last ? at : last;
    }
    return last;
}

/* What is written in place waits for the last round; so does a number that is
 * the same all along the input whose gradient it is. */
static int pass_of(const RowProgram *p, const RowOut *o, int last)
{
    bool wide = o->input >= 0 && is_along(p, p->g->in[o->input].node);
    int ax = is_along(p, o->node) ? row_axis(p, o->node)
           : wide ? row_axis(p, p->g->in[o->input].node) : p->axis[0];
    int round = o->inplace || !is_along(p, o->node) ? last
                                                    : p->level[o->node];
    int at = 0;

    while (p->axis[at] != ax)
        at++;
    return round * p->naxes + at;
}

static RowProgram *new_program(Ctx *c, const RowStep *s, RowOut *out, int n,
                               bool given)
{
    RowProgram *p = ctx_alloc(c, sizeof *p);
    const Graph *g = s->joint;

    *p = (RowProgram){ .g = g, .along = s->along, .half = s->half,
                       .whole = s->whole, .out = out, .nout = n,
                       .kept = s->kept, .nkept = given ? s->nkept : 0 };
    for (AxisSet ax = s->along & ~s->half; ax; ax &= ax - 1)
        p->axis[p->naxes++] = (uint8_t)lowest(ax);
    p->level = ctx_alloc(c, g->len);
    p->number = ctx_alloc(c, g->len);
    find_levels(p);
    int last = last_round(p);
    p->npasses = (last + 1) * p->naxes;
    if (p->npasses > ROW_PASSES)
        fail(c, g->line, "%s: more than %d passes over a row", g->name,
             ROW_PASSES);
    for (int i = 0; i < p->npasses; i++)
        p->need[i] = ctx_alloc(c, g->len);
    for (int i = 0; i < n; i++)
        out[i].pass = pass_of(p, &out[i], last);
    find_needs(p);
    return p;
}

RowProgram *row_forward(Ctx *c, const RowStep *s, bool keep)
{
    RowOut *out = ctx_alloc(c, (size_t)(s->nkept + 1) * sizeof *out);
    int n = 0;

    out[n++] = (RowOut){ .node = s->joint->out[0].node, .input = OUT_Y };
    for (int i = 0; i < s->nkept && keep; i++)
        out[n++] = (RowOut){ .node = s->kept[i], .input = OUT_KEPT };
    return new_program(c, s, out, n, false);
}

RowProgram *row_backward(Ctx *c, const RowStep *s, const bool *wanted,
                         const bool *inplace, bool given)
{
    RowOut *out = ctx_alloc(c, (size_t)s->nin * sizeof *out + 1);
    int n = 0;

    for (int i = 0; i < s->nin; i++)
        if (wanted[i] && s->gradient[i])
            out[n++] = (RowOut){ .node = s->gradient[i], .input = i,
                                 .summed = !s->joint->in[i].timed,
                                 .inplace = inplace && inplace[i] };
    return new_program(c, s, out, n, given);
}

/* ---- parts of rows ---- */

bool row_takes_parts(const RowProgram *p)
{
    bool folds = false, gives = false, numbers = false;

    if (p->naxes != 1 || p->npasses != 1 || p->half)
        return false;
    for (Ref r = 1; r < p->g->len; r++)
        folds = folds || (p->need[0][r] && row_folds(p->g, r));
    for (int i = 0; i < p->nout; i++) {
        const RowOut *o = &p->out[i];
        bool wide = is_along(p, o->node)
                 || (o->summed && is_along(p, p->g->in[o->input].node));
        gives = gives || wide;
        numbers = numbers || !wide;
    }
    return !gives || !(folds || numbers);
}

RowStep *row_step_part(Ctx *c, const RowStep *s, int32_t entries)
{
    RowStep *to = ctx_alloc(c, sizeof *to);
    Graph *g = ctx_alloc(c, sizeof *g);

    *g = *s->joint;                     /* its nodes are the same */
    g->axis[lowest(s->along)].size = entries;
    *to = *s;
    to->joint = g;
    return to;
}

/* ---- checking ---- */

/* Is input i read in the pass? */
static bool is_read(const RowProgram *p, int i, int pass)
{
    Ref r = p->g->in[i].node;

    return r && p->need[pass][r];
}

/* Does a sum over rows, made behind all passes, read it? */
static bool reads_columns(const RowProgram *p, int i)
{
    for (int o = 0; o < p->nout; o++)
        if (p->out[o].summed && row_axis(p, p->g->in[p->out[o].input].node)
                                >= 0 && is_read(p, i, p->out[o].pass))
            return true;
    return false;
}

int row_last_reader(const RowProgram *p, const RowReads *how, int i)
{
    int last = -1;

    for (int pass = 0; pass < p->npasses; pass++)
        last = is_read(p, i, pass) ? pass : last;
    return how->columns && reads_columns(p, i) ? p->npasses : last;
}

static const char *check_inplace(Ctx *c, const RowProgram *p, const RowOut *o,
                                 const RowReads *how)
{
    const Input *in = o->input >= 0 ? &p->g->in[o->input] : NULL;

    if (!in || o->summed || p->g->n[o->node].axes != in->axes)
        return "what is written in place has another shape than what was "
               "there";
    if (how->shared[o->input])
        return ctx_format(c, "several rows read the same entries of %s",
                          in->name);
    int last = row_last_reader(p, how, o->input);
    if (last == p->npasses)
        return ctx_format(c, "%s is read again for a sum over rows",
                          in->name);
    if (last > o->pass)
        return ctx_format(c, "%s is read in pass %d, but its gradient is "
                          "written over it in pass %d", in->name, last,
                          o->pass);
    return NULL;
}

static const char *check_out(Ctx *c, const RowProgram *p, const RowOut *o,
                             const RowReads *how)
{
    if (is_along(p, o->node) && (p->level[o->node] > o->pass / p->naxes
                || row_axis(p, o->node) != row_pass_axis(p, o->pass)))
        return ctx_format(c, "pass %d writes what round %d makes first",
                          o->pass, p->level[o->node]);
    return o->inplace ? check_inplace(c, p, o, how) : NULL;
}

const char *row_check(Ctx *c, const RowProgram *p, const RowReads *how)
{
    const Graph *g = p->g;

    for (int i = 0; i < p->nout; i++) {
        const char *wrong = check_out(c, p, &p->out[i], how);
        if (wrong)
            return wrong;
    }
    for (int pass = 0; pass < p->npasses; pass++)
        for (Ref r = 1; r < g->len; r++)
            for (int i = 0; i < 4 && p->need[pass][r]; i++) {
                Ref a = g->n[r].a[i];
                bool along = a && is_along(p, a);
                if (a && along && !p->need[pass][a])
                    return ctx_format(c, "pass %d reads %s, which it does not "
                                      "make", pass, expr_text(g, a));
                if (a && !along && p->level[a] > pass / p->naxes)
                    return ctx_format(c, "pass %d reads %s, which ends with "
                                      "round %d", pass, expr_text(g, a),
                                      p->level[a] - 1);
            }
    return NULL;
}

static int64_t length(const RowProgram *p, Ref r)
{
    int ax = row_axis(p, r);

    return ax < 0 ? 0 : p->g->axis[ax].size >> row_half(p, r);
}

RowTraffic row_traffic(const RowProgram *p)
{
    RowTraffic t = { 0 };

    for (int i = 0; i < p->g->nin; i++) {
        int times = 0;
        for (int pass = 0; pass < p->npasses; pass++)
            times += is_read(p, i, pass);
        t.read += times ? length(p, p->g->in[i].node) : 0;
        t.again += times > 1 ? (times - 1) * length(p, p->g->in[i].node) : 0;
    }
    for (int i = 0; i < p->nout; i++)
        t.written += p->out[i].summed ? 0 : length(p, p->out[i].node);
    return t;
}
