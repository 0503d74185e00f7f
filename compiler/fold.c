/* fold.c -- nodes made: constants folded, rules applied, equal ones shared.
 *
 * Patterns are matched from their text: rows are short, and a table walked
 * as text needs no state. Rows are bucketed by their first operation only.
 */
#include "fold.h"

#include <stdlib.h>
#include <string.h>

typedef struct Rule { const char *lhs, *rhs; } Rule;

static const Rule rules[] = {
#define RULE(lhs, rhs) { lhs, rhs },
#include "rules.def"
};
enum { NRULES = sizeof rules / sizeof *rules };

/* ---- patterns ---- */

typedef struct Match { Graph *g; Ref var[26]; } Match;

static const char *skip_space(const char *p)
{
    while (*p == ' ')
        p++;
    return p;
}

static int op_named(const char *s, size_t n)
{
    for (int i = 0; i < NOPS; i++)
        if (strlen(op_info[i].name) == n && !memcmp(op_info[i].name, s, n))
            return i;
    return OP_none;
}

/* Reads "(op"; leaves p behind the name. */
static int read_op(const char **p)
{
    const char *s = *p + 1, *e = s;

    while (*e && *e != ' ' && *e != ')')
        e++;
    *p = e;
    return op_named(s, (size_t)(e - s));
}

static bool is_variable(const char *p)
{
    return *p >= 'a' && *p <= 'z';
}

/* One past the term at p. */
static const char *term_end(const char *p)
{
    int depth = 0;

    do {
        if (*p == '(')
            depth++;
        if (*p == ')')
            depth--;
        p++;
    } while (*p && (depth || (*p != ' ' && *p != ')')));
    return p;
}

static bool match(Match *m, const char *p, Ref r);

static bool match_args(Match *m, const char *p, const Ref *a, int n)
{
    for (int i = 0; i < n; i++) {
        p = skip_space(p);
        if (!match(m, p, a[i]))
            return false;
        p = term_end(p);
    }
    return true;
}

/* Both orders of a commutative node's operands. */
static bool match_node(Match *m, const char *p, int op, const Ref *a)
{
    Match saved = *m;
    int arity = op_info[op].arity;

    if (match_args(m, p, a, arity))
        return true;
    *m = saved;
    if (!(op_info[op].traits & COMM))
        return false;
    Ref swapped[2] = { a[1], a[0] };
    return match_args(m, p, swapped, 2);
}

static bool match(Match *m, const char *p, Ref r)
{
    const Node *n = &m->g->n[r];

    if (*p == '(') {
        int op = read_op(&p);
        return n->op == op && match_node(m, p, op, n->a);
    }
    if (!is_variable(p))
        return n->op == OP_num && n->num == atof(p);
    if ((*p == 'c' || *p == 'd') && n->op != OP_num)
        return false;
    if (m->var[*p - 'a'])
        return m->var[*p - 'a'] == r;
    m->var[*p - 'a'] = r;
    return true;
}

static Ref build(Match *m, const char *p)
{
    if (*p == '(') {
        Node n = { .op = (uint8_t)read_op(&p) };
        for (int i = 0; i < op_info[n.op].arity; i++) {
            p = skip_space(p);
            n.a[i] = build(m, p);
            p = term_end(p);
        }
        return node_new(m->g, n);
    }
    if (is_variable(p))
        return m->var[*p - 'a'];
    return num(m->g, atof(p));
}

Ref fold_gradient(Graph *g, Ref r, int i, Ref d)
{
    const Node n = g->n[r];
    const OpInfo *op = &op_info[n.op];
    const char *term = op->grad[i], *bar = strchr(term, '|');
    Match m = { .g = g };

    for (int k = 0; k < op->arity; k++)
        m.var[k] = n.a[k];
    m.var['y' - 'a'] = r;
    m.var['g' - 'a'] = d;
    if (bar && g->n[n.a[1]].op == OP_num)
        term = skip_space(bar + 1);
    return build(&m, term);
}

/* Axes that the pattern's value would have; no node is made for it. */
static AxisSet build_axes(const Match *m, const char *p)
{
    AxisSet s = 0;

    for (; *p; p++)
        if (is_variable(p) && (p[1] == ' ' || p[1] == ')' || !p[1]))
            s |= m->g->n[m->var[*p - 'a']].axes;
    return s;
}

static bool constant_operands(const Graph *g, const Node *n)
{
    for (int i = 0; i < op_info[n->op].arity; i++)
        if (g->n[n->a[i]].op != OP_num)
            return false;
    return true;
}

/* Whether it is 0, or 1, for each token and along each axis: sums of nothing,
 * and what counts from 0 on is compared with, have axes. */
static bool is_zero(const Graph *g, Ref r)
{
    const Node *n = &g->n[r];

    return is_num(g, r, 0) || (n->op == OP_cumsum && is_num(g, n->a[0], 0));
}

static bool is_one(const Graph *g, Ref r)
{
    const Node *n = &g->n[r];

    switch (n->op) {
    case OP_num: return n->num == 1;
    case OP_le: return is_num(g, n->a[0], 0) && g->n[n->a[1]].op == OP_count;
    case OP_add: return (is_zero(g, n->a[0]) && is_one(g, n->a[1]))
                     || (is_one(g, n->a[0]) && is_zero(g, n->a[1]));
    default: return op_is(n->op, VIEWS) && is_one(g, n->a[0]);
    }
}

/* The node that n (element-wise, operands in place, axes computed) is equal
 * to, or 0 when it must be made. */
static Ref fold(Graph *g, const Node *n)
{
    const Node *v = g->n;

    if (constant_operands(g, n))
        return num(g, elem_value(n->op, v[n->a[0]].num, v[n->a[1]].num,
                                 v[n->a[2]].num));
    for (int i = 0; i < 2 && n->op == OP_mul; i++)
        if (v[n->a[1 - i]].axes == n->axes && is_one(g, n->a[i]))
            return n->a[1 - i];
    for (int i = 0; i < NRULES; i++) {
        Match m = { .g = g };
        const char *p = rules[i].lhs;
        if (read_op(&p) != n->op || !match_node(&m, p, n->op, n->a))
            continue;
        if (build_axes(&m, rules[i].rhs) == n->axes)
            return build(&m, rules[i].rhs);
    }
    return 0;
}

Ref node_new(Graph *g, Node n)
{
    const OpInfo *op = &op_info[n.op];

    if (op->traits & COMM) {            /* canonical: numbers last, then by */
        bool na = g->n[n.a[0]].op == OP_num, nb = g->n[n.a[1]].op == OP_num;
        if (na > nb || (na == nb && n.a[0] > n.a[1])) {
            Ref a = n.a[0];
            n.a[0] = n.a[1];
            n.a[1] = a;
        }
    }
    node_type(g, &n);
    n.line = g->line;
    if (op->traits & ELEMENTWISE) {
        Ref r = fold(g, &n);
        if (r)
            return r;
    }
    return node_share(g, &n);
}

Ref num(Graph *g, double x)
{
    return node_new(g, (Node){ .op = OP_num, .num = x + 0.0 });
}

/* ---- the rules themselves, tested ---- */

/* The order in which rules must go down: nodes times 16, plus each negation's
 * depth, plus 1 for a division (the product is the simpler one, and merges
 * with others); what is all numbers is one node. */
static int weight(const char *p, int depth)
{
    if (*p != '(')
        return 16;
    const char *end = term_end(p), *q = p;
    bool constant = true;
    for (const char *s = p; s < end; s++)
        if (*s >= 'x' && *s <= 'z' && (s[1] == ' ' || s[1] == ')')
            && (s[-1] == ' ' || s[-1] == '('))
            constant = false;
    if (constant)
        return 16;
    int op = read_op(&q);
    int w = 16 + (op == OP_neg ? depth : 0) + (op == OP_div);
    for (int i = 0; i < op_info[op].arity; i++) {
        q = skip_space(q);
        w += weight(q, depth + 1);
        q = term_end(q);
    }
    return w;
}

int fold_bad_rule(void)
{
    for (int i = 0; i < NRULES; i++)
        if (weight(rules[i].rhs, 0) >= weight(rules[i].lhs, 0))
            return i;
    return -1;
}

/* v: x y z c d */
static double term_value(const char *p, const double v[5])
{
    if (*p == '(') {
        double a[3] = { 0 };
        int op = read_op(&p);
        for (int i = 0; i < op_info[op].arity; i++) {
            p = skip_space(p);
            a[i] = term_value(p, v);
            p = term_end(p);
        }
        return elem_value(op, a[0], a[1], a[2]);
    }
    if (is_variable(p))
        return *p >= 'x' ? v[*p - 'x'] : v[3 + (*p - 'c')];
    return atof(p);
}

bool fold_rule_values(int i, const double v[5], double side[2])
{
    if (i >= NRULES)
        return false;
    side[0] = term_value(rules[i].lhs, v);
    side[1] = term_value(rules[i].rhs, v);
    return true;
}
