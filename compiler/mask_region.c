/* mask_region.c -- where in (i, j) a mask has which value.
 *
 * Comparisons of i, j and i - j with numbers cut the plane into regions that
 * difference bounds describe. Ordinary `if`s are decided while the mask is
 * traced; what is left in a value (lt, max, abs ... of positions) is cut up
 * here in the same way.
 */
#include "mask.h"

#include <math.h>
#include <string.h>

Region region_all(void)
{
    Region r = { { 0, 0, -REGION_INF },
                 { REGION_INF, REGION_INF, REGION_INF } };
    return r;
}

bool region_has(const Region *r, int64_t i, int64_t j)
{
    int64_t at[3] = { i, j, i - j };

    for (int v = 0; v < 3; v++)
        if (at[v] < r->lo[v] || at[v] > r->hi[v])
            return false;
    return true;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Bounds that follow from the others; infinities stay beyond any position. */
static Region closed(Region r)
{
    int64_t *lo = r.lo, *hi = r.hi;

    for (int n = 0; n < 3; n++) {
        lo[0] = most(lo[0], lo[1] + lo[2]);
        hi[0] = least(hi[0], hi[1] + hi[2]);
        lo[1] = most(lo[1], lo[0] - hi[2]);
        hi[1] = least(hi[1], hi[0] - lo[2]);
        lo[2] = most(lo[2], lo[0] - hi[1]);
        hi[2] = least(hi[2], hi[0] - lo[1]);
    }
    return r;
}

Region region_closed(const Region *r) { return closed(*r); }

static bool feasible(const Region *r)
{
    Region c = closed(*r);

    return c.lo[0] <= c.hi[0] && c.lo[1] <= c.hi[1] && c.lo[2] <= c.hi[2];
}

/* ---- comparisons of positions ---- */

/* sign * var + c, a positive multiple of what it stands for; sign 0: c. */
typedef struct Form { int var, sign; double c; } Form;

static bool position_form(Mask *m, Ref a, Ref b, Form *f)
{
    double w[2] = { 0, 0 };
    Linear l;

    linear(m, op2(m->g, OP_sub, a, b), &l);
    if (m->g->n[l.rest].op != OP_num)
        return false;
    for (int i = 0; i < l.n; i++) {
        const Node *atom = &m->g->n[l.part[i].atom];
        const Node *coef = &m->g->n[l.part[i].coef];
        if (atom->op != OP_input || coef->op != OP_num
            || m->leaf[atom->index].kind != LEAF_POSITION)
            return false;
        w[m->leaf[atom->index].side == SIDE_J] = coef->num;
    }
    if (w[0] != 0 && w[1] != 0 && w[0] != -w[1])
        return false;
    double size = w[0] != 0 ? fabs(w[0]) : w[1] != 0 ? fabs(w[1]) : 1;
    f->c = m->g->n[l.rest].num / size;
    f->var = w[0] == 0 ? VAR_J : w[1] == 0 ? VAR_I : VAR_DISTANCE;
    f->sign = w[0] != 0 ? (w[0] > 0) - (w[0] < 0) : (w[1] > 0) - (w[1] < 0);
    return fabs(f->c) < 1e9;
}

/* The leaf that an atom is, of what grows or falls from token to token; NULL:
 * it is none, or is late, or nobody says. */
static const Leaf *growing(const Mask *m, Ref atom)
{
    const Node *n = &m->g->n[atom];
    const Leaf *l = n->op == OP_input ? &m->leaf[n->index] : NULL;
    bool grows = l && !l->back && (l->kind == LEAF_POSITION
                                   || (l->kind == LEAF_CUMSUM && l->sign));

    return grows ? l : NULL;
}

/* Is part i w u(i), and one other -w u(j)? */
static bool has_twin(Mask *m, const Linear *l, int i, const Leaf *own)
{
    double w = m->g->n[l->part[i].coef].num;
    int twins = 0;

    for (int k = 0; k < l->n; k++) {
        const Leaf *p = growing(m, l->part[k].atom);
        twins += p && p->kind == own->kind && p->side != own->side
              && !strcmp(p->name, own->name)
              && is_num(m->g, l->part[k].coef, -w);
    }
    return twins == 1;
}

/* Is a - b a sum of w (u(i) - u(j)), of which all grow, or all fall, with
 * i - j, by what they are declared to add up? Its sign is then that of i - j,
 * or its opposite; but it may be 0 beside the diagonal, too. */
static bool monotone_form(Mask *m, Ref a, Ref b, Form *f)
{
    int sign = 0;
    bool sums = false;
    Linear l;

    linear(m, op2(m->g, OP_sub, a, b), &l);
    if (!is_num(m->g, l.rest, 0))
        return false;
    for (int i = 0; i < l.n; i++) {
        const Node *coef = &m->g->n[l.part[i].coef];
        const Leaf *u = growing(m, l.part[i].atom);
        if (!u || coef->op != OP_num || !has_twin(m, &l, i, u))
            return false;
        int grows = ((coef->num > 0) - (coef->num < 0))
                  * (u->kind == LEAF_POSITION ? 1 : u->sign)
                  * (u->side == SIDE_J ? -1 : 1);
        if (sign && grows != sign)
            return false;
        sums |= u->kind == LEAF_CUMSUM;
        sign = grows;
    }
    *f = (Form){ VAR_DISTANCE, sign, 0 };
    return sums && sign;
}

/* The part of r where the form is < 0 (outcome 0), 0 (1), > 0 (2). */
static bool outcome(const Region *r, const Form *f, int n, Region *out)
{
    double c = f->sign > 0 ? -f->c : f->c;      /* the form is 0 at var = c */
    bool below = f->sign > 0 ? n == 0 : n == 2;

    *out = *r;
    if (!f->sign)
        return n == (f->c > 0) - (f->c < 0) + 1;
    if (n == 1 && c != floor(c))
        return false;
    if (n == 1 || !below)
        out->lo[f->var] = most(r->lo[f->var],
                               (int64_t)floor(c) + (n != 1));
    if (n == 1 || below)
        out->hi[f->var] = least(r->hi[f->var],
                                (int64_t)ceil(c) - (n != 1));
    return feasible(out);
}

/* Where a <= 0 holds is one region: the union of adjacent outcomes. */
static bool outcomes(const Region *r, const Form *f, int first, int last,
                     Region *out)
{
    bool any = false;

    for (int n = first; n <= last; n++) {
        Region part;
        if (!outcome(r, f, n, &part))
            continue;
        for (int v = 0; any && v < 3; v++) {
            part.lo[v] = least(part.lo[v], out->lo[v]);
            part.hi[v] = most(part.hi[v], out->hi[v]);
        }
        *out = part;
        any = true;
    }
    return any;
}

static _Noreturn void undecidable(Mask *m, Ref cond)
{
    int traits = mask_traits(m, cond);
    int line = m->g->line;

    if (traits & (HAS_POSITION) && !(traits & HAS_CUMSUM))
        fail_help(m->ctx, line, "compare i, j or i - j with numbers that are "
                  "known, or blocks of one size, i // 8 > j // 8, or use "
                  "flin.where(cond, a, b)",
                  "a mask cannot branch on %s", expr_text(m->g, cond));
    fail_help(m->ctx, line, "use flin.where(cond, a, b)",
              "cannot branch on data: %s", expr_text(m->g, cond));
}

int mask_decide(Mask *m, Ref cond, const Region *r, Region in[2])
{
    const Node n = m->g->n[cond];
    Form f;

    if (n.op == OP_num)
        return n.num != 0;
    if ((n.op != OP_lt && n.op != OP_le)
        || !position_form(m, n.a[0], n.a[1], &f))
        undecidable(m, cond);
    bool strict = n.op == OP_lt;
    bool yes = outcomes(r, &f, 0, strict ? 0 : 1, &in[1]);
    bool no = outcomes(r, &f, strict ? 1 : 2, 2, &in[0]);
    return yes && no ? -1 : yes;
}

/* ---- remainders ---- */

static bool whole_number(const Mask *m, Ref r, int64_t *n)
{
    double x = m->g->n[r].num;

    if (m->g->n[r].op != OP_num || x != floor(x) || fabs(x) > 1e6)
        return false;
    *n = (int64_t)x;
    return true;
}

bool mask_remainder(Mask *m, Ref r, Remainder *of)
{
    const Node n = m->g->n[r];
    Linear l;

    *of = (Remainder){ .n = 0 };
    if (n.op != OP_mod || !whole_number(m, n.a[1], &of->n) || of->n < 1)
        return false;
    linear(m, n.a[0], &l);
    if (!whole_number(m, l.rest, &of->rest))
        return false;
    for (int i = 0; i < l.n; i++) {
        const Node *atom = &m->g->n[l.part[i].atom];
        bool known = atom->op == OP_input
                  && m->leaf[atom->index].kind == LEAF_POSITION;
        bool is_j = known && m->leaf[atom->index].side == SIDE_J;
        if (!known || !whole_number(m, l.part[i].coef, is_j ? &of->wj
                                                            : &of->wi))
            return false;
    }
    return true;
}

bool mask_of_remainders(Mask *m, Ref cond)
{
    const Node n = m->g->n[cond];
    Remainder of;

    mask_work(m);
    if (n.op == OP_num)
        return true;
    if (n.op == OP_input || !op_info[n.op].arity)
        return false;
    if (mask_remainder(m, cond, &of))
        return true;
    for (int i = 0; i < op_info[n.op].arity; i++)
        if (!mask_of_remainders(m, n.a[i]))
            return false;
    return true;
}

/* wi i + wj j + c, and remainders that add up to lo .. hi, in units: a whole
 * number, which leaves `rest` of whole multiples of `grain`. */
typedef struct Sum {
    double unit, wi, wj, c, lo, hi, grain, rest;
} Sum;

/* x in units, which it is to be whole ones of; else NAN. */
static double in_units(double x, double unit)
{
    double n = x / unit, whole = nearbyint(n);

    return fabs(n - whole) < 1e-9 * fmax(1, fabs(whole)) ? whole : NAN;
}

static double smallest_weight(const Mask *m, const Linear *l)
{
    double unit = 1;

    for (int i = 0; i < l->n; i++) {
        const Node *coef = &m->g->n[l->part[i].coef];
        if (coef->op == OP_num && fabs(coef->num) < unit)
            unit = fabs(coef->num);
    }
    return unit;
}

/* Is r, as a // n makes it, floor((x - x % n) / n + 1/2)? *of: x % n. */
static bool is_quotient(Mask *m, Ref r, Ref *mod, Remainder *of)
{
    Linear l;

    if (m->g->n[r].op != OP_floor)
        return false;
    linear(m, m->g->n[r].a[0], &l);
    *mod = 0;
    for (int i = 0; i < l.n; i++)
        if (m->g->n[l.part[i].atom].op == OP_mod)
            *mod = l.part[i].atom;
    if (!*mod || !mask_remainder(m, *mod, of))
        return false;
    double n = (double)of->n, left[2] = { (double)of->wi, (double)of->wj };
    for (int i = 0; i < l.n; i++) {
        const Node *atom = &m->g->n[l.part[i].atom];
        const Node *coef = &m->g->n[l.part[i].coef];
        double w = coef->op == OP_num ? in_units(coef->num, 1 / n) : NAN;
        if (l.part[i].atom == *mod && w == -1)
            continue;
        if (atom->op != OP_input || isnan(w)
            || m->leaf[atom->index].kind != LEAF_POSITION)
            return false;
        left[m->leaf[atom->index].side == SIDE_J] -= w;
    }
    return left[0] == 0 && left[1] == 0 && m->g->n[l.rest].op == OP_num
        && in_units(m->g->n[l.rest].num - 0.5, 1 / n) == (double)of->rest;
}

/* Adds w times quotients as what they are: (x - x % n) / n. */
static void add_expanded(Mask *m, Ref r, Ref scale, Ref *sum)
{
    Graph *g = m->g;
    Remainder of;
    Ref mod, x = r;

    if (is_quotient(m, r, &mod, &of)) {
        x = op2(g, OP_sub, g->n[mod].a[0], mod);
        scale = op2(g, OP_div, scale, num(g, (double)of.n));
    }
    *sum = op2(g, OP_add, *sum, op2(g, OP_mul, scale, x));
}

static void expand_quotients(Mask *m, Linear *l)
{
    Ref sum = l->rest;

    for (int i = 0; i < l->n; i++)
        add_expanded(m, l->part[i].atom, l->part[i].coef, &sum);
    linear(m, sum, l);
}

/* w x % n: x less that is whole multiples of n; taken[]: what of i, j and 1 is
 * in such x. */
static void add_remainder(Sum *s, const Remainder *of, double w,
                          double taken[3])
{
    double most = w * (double)(of->n - 1);

    s->lo += most < 0 ? most : 0;
    s->hi += most > 0 ? most : 0;
    s->grain = s->grain == 0 || s->grain == (double)of->n ? (double)of->n : 1;
    taken[0] += w * (double)of->wi;
    taken[1] += w * (double)of->wj;
    taken[2] += w * (double)of->rest;
}

/* Of a - b; false: it is no such sum, or has no remainder. */
static bool sum_of_remainders(Mask *m, Ref a, Ref b, Sum *s)
{
    double taken[3] = { 0 };
    Remainder of;
    Linear l;

    linear(m, op2(m->g, OP_sub, a, b), &l);
    expand_quotients(m, &l);
    *s = (Sum){ .unit = smallest_weight(m, &l) };
    for (int i = 0; i < l.n; i++) {
        const Node *atom = &m->g->n[l.part[i].atom];
        const Node *coef = &m->g->n[l.part[i].coef];
        double w = coef->op == OP_num ? in_units(coef->num, s->unit) : NAN;
        if (isnan(w))
            return false;
        if (mask_remainder(m, l.part[i].atom, &of))
            add_remainder(s, &of, w, taken);
        else if (atom->op != OP_input
                 || m->leaf[atom->index].kind != LEAF_POSITION)
            return false;
        else
            *(m->leaf[atom->index].side == SIDE_J ? &s->wj : &s->wi) = w;
    }
    s->c = m->g->n[l.rest].op == OP_num ? in_units(m->g->n[l.rest].num, s->unit)
                                        : NAN;
    if (s->wi + taken[0] != 0 || s->wj + taken[1] != 0)
        s->grain = s->grain != 0;
    s->rest = s->c + taken[2];
    if (s->wi != 0 && s->wj != 0 && s->wi != -s->wj)
        return false;                   /* of no one distance */
    return s->grain > 0 && fabs(s->c) < 1e9;
}

/* wi i + wj j + c <= 0 */
static Ref at_most_zero(Mask *m, const Sum *s, double c)
{
    Graph *g = m->g;
    Ref i = mask_leaf(m, LEAF_POSITION, SIDE_I, "i", 0);
    Ref j = mask_leaf(m, LEAF_POSITION, SIDE_J, "j", 0);
    Ref x = op2(g, OP_add, op2(g, OP_mul, num(g, s->wi), i),
                op2(g, OP_mul, num(g, s->wj), j));

    return op2(g, OP_le, op2(g, OP_add, x, num(g, c)), num(g, 0));
}

static bool has_remainder(Mask *m, Ref cond)
{
    mask_reach(m, cond);
    for (Ref r = 1; r <= cond; r++)
        if (m->mark[r] && m->g->n[r].op == OP_mod)
            return true;
    return false;
}

bool mask_bounded(Mask *m, Ref cond, Ref *sure, Ref *possible)
{
    const Node n = m->g->n[cond];
    Sum s;

    if ((n.op != OP_lt && n.op != OP_le && n.op != OP_eq)
        || !has_remainder(m, cond)
        || !sum_of_remainders(m, n.a[0], n.a[1], &s))
        return false;
    /* The largest that it is where the comparison holds. */
    double over = s.rest - floor(s.rest / s.grain) * s.grain;
    double top = over > 0 || n.op == OP_lt ? over - s.grain : 0;
    *sure = at_most_zero(m, &s, s.c + s.hi - (top + s.grain - 1));
    *possible = at_most_zero(m, &s, s.c + s.lo - top);
    return true;
}

bool mask_decidable(Mask *m, Ref cond)
{
    const Node n = m->g->n[cond];
    Ref sure, possible;
    Form f;

    return n.op == OP_num || position_form(m, n.a[0], n.a[1], &f)
        || mask_bounded(m, cond, &sure, &possible);
}

static bool same_gates(const Gates *a, const Gates *b, int n)
{
    return a->n == b->n
        && !memcmp(a->cond, b->cond, (size_t)a->n * sizeof *a->cond)
        && !memcmp(a->on, b->on, (size_t)n * sizeof *a->on);
}

static Ref chosen(Mask *m, Ref cond, Ref yes, Ref no)
{
    return !yes ? no : !no ? yes : op3(m->g, OP_where, cond, yes, no);
}

static Region both_regions(const Region *a, const Region *b)
{
    Region r;

    for (int v = 0; v < 3; v++) {
        r.lo[v] = most(a->lo[v], b->lo[v]);
        r.hi[v] = least(a->hi[v], b->hi[v]);
    }
    return r;
}

/* Puts those that differ from path `like` by its last gate alone in its place,
 * joined where both sides of that are. */
static void join_last(Mask *m, int like)
{
    const Gates of = m->gates[like];
    MaskPath *old = ctx_alloc(m->ctx, sizeof m->path);
    Gates *gates = ctx_alloc(m->ctx, sizeof m->gates);
    int n = m->npaths, last = of.n - 1;

    memcpy(old, m->path, sizeof m->path);
    memcpy(gates, m->gates, sizeof m->gates);
    m->npaths = 0;
    for (int a = 0; a < n; a++) {
        if (!same_gates(&gates[a], &of, last)) {
            m->gates[m->npaths] = gates[a];
            m->path[m->npaths++] = old[a];
            continue;
        }
        for (int b = 0; b < n && gates[a].on[last]; b++) {
            Region at = both_regions(&old[a].at, &old[b].at);
            if (!same_gates(&gates[b], &of, last) || gates[b].on[last]
                || !feasible(&at))
                continue;
            if (m->npaths == MAX_TRACED)
                fail_help(m->ctx, m->g->n[old[a].value].line, "compare i and j "
                          "in fewer places", "the mask takes too many paths "
                          "through its comparisons (limit: %d)", MAX_TRACED);
            m->gates[m->npaths] = of;
            m->gates[m->npaths].n = last;
            m->path[m->npaths++] = (MaskPath){ at,
                chosen(m, of.cond[last], old[a].value, old[b].value),
                chosen(m, of.cond[last], old[a].score, old[b].score) };
        }
    }
}

void mask_join_gated(Mask *m)
{
    for (;;) {
        int longest = 0;
        for (int p = 1; p < m->npaths; p++)
            if (m->gates[p].n > m->gates[longest].n)
                longest = p;
        if (!m->gates[longest].n)
            return;
        join_last(m, longest);
    }
}

/* ---- pieces ---- */

/* Does r turn on the sign of a difference of positions? Then what it is for
 * each outcome. */
static bool pivot(Mask *m, Ref r, Form *f, Ref out[3])
{
    const Node n = m->g->n[r];
    Ref a = n.a[0], b = n.a[1], zero, one;

    if (!(mask_traits(m, r) & (HAS_POSITION | HAS_CUMSUM)))
        return false;
    zero = num(m->g, 0);
    one = num(m->g, 1);
    Ref is[3] = { zero, zero, zero };
    switch (n.op) {
    case OP_lt: is[0] = one; break;
    case OP_le: is[0] = is[1] = one; break;
    case OP_eq: is[1] = one; break;
    case OP_min: is[0] = is[1] = a; is[2] = b; break;
    case OP_max: is[0] = is[1] = b; is[2] = a; break;
    case OP_relu: is[1] = is[2] = a; b = zero; break;
    case OP_abs:
        is[0] = op1(m->g, OP_neg, a);
        is[1] = is[2] = a;
        b = zero;
        break;
    case OP_sign:
        is[0] = num(m->g, -1);
        is[2] = one;
        b = zero;
        break;
    default: return false;
    }
    memcpy(out, is, sizeof is);
    if (mask_traits(m, r) & HAS_POSITION && position_form(m, a, b, f))
        return true;
    bool steps = n.op == OP_lt || n.op == OP_le || n.op == OP_eq
              || n.op == OP_sign;       /* where it is 0 they are others */
    if (steps || !(mask_traits(m, r) & HAS_CUMSUM)
        || !monotone_form(m, a, b, f))
        return false;
    m->signs = true;
    out[1] = out[f->sign > 0 ? 2 : 0];  /* on the diagonal both are right */
    return true;
}

bool mask_unfold(Mask *m, Ref cond, Ref *first, Ref of[2])
{
    Ref out[3], zero = num(m->g, 0);
    Form f;

    mask_reach(m, cond);
    for (Ref r = 1; r < cond; r++) {
        if (!m->mark[r] || !pivot(m, r, &f, out))
            continue;
        const Node n = m->g->n[r];
        Ref a = n.a[0], b = op_info[n.op].arity > 1 ? n.a[1] : zero;
        bool above = out[1] == out[0];      /* ... else with out[2] */
        if (!above && out[1] != out[2])
            continue;
        *first = above ? op2(m->g, OP_lt, b, a) : op2(m->g, OP_lt, a, b);
        Ref yes = above ? out[2] : out[0], no = out[1];
        of[1] = mask_rebuild(m, cond, r, yes);
        of[0] = mask_rebuild(m, cond, r, no);
        return true;
    }
    return false;
}

static void add_piece(Mask *m, const Region *at, Ref value)
{
    if (m->npieces == MAX_PATHS)
        graph_refuse(m->g, ERR_USER, m->g->n[value].line, "compare i and j in "
                     "fewer places", "the mask falls into more than %d pieces",
                     MAX_PATHS);
    m->piece[m->npieces++] = (MaskPath){ *at, value, 0 };
}

static void cut(Mask *m, const Region *at, Ref value)
{
    Ref out[3], r;
    Region part;
    Form f;

    mask_work(m);
    mask_reach(m, value);
    for (r = 1; r <= value; r++)
        if (m->mark[r] && pivot(m, r, &f, out))
            break;
    if (r > value) {
        add_piece(m, at, value);
        return;
    }
    for (int n = 0; n < 3; n++)
        if (outcome(at, &f, n, &part))
            cut(m, &part, mask_rebuild(m, value, r, out[n]));
}

/* Neighbours with one value become one piece. */
static bool join(MaskPath *a, const MaskPath *b)
{
    int v = -1;

    if (a->value != b->value)
        return false;
    for (int n = 0; n < 3; n++) {
        if (a->at.lo[n] == b->at.lo[n] && a->at.hi[n] == b->at.hi[n])
            continue;
        if (v >= 0)
            return false;
        v = n;
    }
    if (v >= 0 && a->at.lo[v] != b->at.hi[v] + 1
        && b->at.lo[v] != a->at.hi[v] + 1)
        return false;
    for (int n = 0; n < 3; n++) {
        a->at.lo[n] = least(a->at.lo[n], b->at.lo[n]);
        a->at.hi[n] = most(a->at.hi[n], b->at.hi[n]);
    }
    return true;
}

static void join_pieces(Mask *m)
{
    for (int a = 0; a < m->npieces; a++)
        for (int b = a + 1; b < m->npieces; b++)
            if (join(&m->piece[a], &m->piece[b])) {
                m->piece[b] = m->piece[--m->npieces];
                b = a;
            }
}

/* Where piece a has no end, and begins at the distance behind that at which b
 * ends, what b has of its columns is its own from now on, if that is the same
 * value: a state that is read from there on has no need of the tokens between.
 * False: b has none, or not all of these columns. */
static bool grow(Mask *m, int a, int b)
{
    enum { I = VAR_I, J = VAR_J, D = VAR_DISTANCE };
    const MaskPath q = m->piece[b];
    Region *p = &m->piece[a].at, left = q.at, right = q.at;

    left.hi[J] = p->lo[J] - 1;
    right.lo[J] = p->hi[J] + 1;
    if (m->piece[a].value != q.value || is_num(m->g, q.value, 0)
        || p->hi[D] < REGION_INF / 2 || q.at.hi[D] + 1 != p->lo[D]
        || p->lo[I] != q.at.lo[I] || p->hi[I] != q.at.hi[I]
        || p->lo[J] < q.at.lo[J] || p->hi[J] > q.at.hi[J]
        || !(feasible(&left) || feasible(&right)))
        return false;
    p->lo[D] = q.at.lo[D];
    m->piece[b].at = feasible(&left) ? left : right;
    if (feasible(&left) && feasible(&right))
        add_piece(m, &right, q.value);
    return true;
}

/* Of a window, or j < S: the first tokens from the diagonal on, and the window
 * of the others. */
static void grow_pieces(Mask *m)
{
    for (int a = 0; a < m->npieces; a++)
        for (int b = 0; b < m->npieces; b++)
            if (a != b && grow(m, a, b))
                b = -1;
}

static void must_be_zero(Mask *m, const MaskPath *p)
{
    Region at = closed(p->at);
    int line = m->g->n[p->value].line;
    int64_t i = at.lo[VAR_I], j = most(at.lo[VAR_J], i - at.hi[VAR_DISTANCE]);

    if (is_num(m->g, p->value, 0))
        return;
    graph_refuse(m->g, ERR_USER, line, "begin with: if i < j then return 0 "
                 "end; or, for weights of both directions, say causal = false",
                 "the mask is not causal: L(%d,%d) is %s, and above the "
                 "diagonal it must be 0", (int)i, (int)j, expr_text(m->g,
                 p->value));
}

/* Of what is above the diagonal, or not. */
static void cut_half(Mask *m, bool above)
{
    for (int n = 0; n < m->npaths; n++) {
        Region r = m->path[n].at;
        if (above)
            r.hi[VAR_DISTANCE] = least(r.hi[VAR_DISTANCE], -1);
        else
            r.lo[VAR_DISTANCE] = most(r.lo[VAR_DISTANCE], 0);
        if (feasible(&r))
            cut(m, &r, m->path[n].value);
    }
}

void mask_upper_pieces(Mask *m)
{
    m->npieces = 0;
    cut_half(m, true);
    join_pieces(m);
}

void mask_own_pieces(Mask *m)
{
    m->npieces = 0;
    if (m->whole)
        cut_half(m, true);
    cut_half(m, false);
    join_pieces(m);
}

void mask_pieces(Mask *m)
{
    mask_upper_pieces(m);
    for (int n = 0; n < m->npieces && !m->whole; n++)
        must_be_zero(m, &m->piece[n]);
    m->npieces = 0;
    cut_half(m, false);
    join_pieces(m);
    grow_pieces(m);
}
