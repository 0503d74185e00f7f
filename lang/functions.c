/* functions.c -- flin.exp, flin.dot ...: what a step may call.
 *
 * Element-wise functions come from the table of operations. Each works on
 * plain numbers too, so that a mask or a step can be run on numbers.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../compiler/elem.h"
#include "../compiler/fold.h"
#include "concrete.h"
#include "value.h"

/* ---- element-wise ---- */

static Ref build_gt(Graph *g, const Ref *a)
{
    return op2(g, OP_lt, a[1], a[0]);
}

static Ref build_ge(Graph *g, const Ref *a)
{
    return op2(g, OP_le, a[1], a[0]);
}

static Ref build_silu(Graph *g, const Ref *a)
{
    return op2(g, OP_mul, a[0], op1(g, OP_sigmoid, a[0]));
}

static Ref build_logsigmoid(Graph *g, const Ref *a)
{
    return op1(g, OP_neg, op1(g, OP_softplus, op1(g, OP_neg, a[0])));
}

static double value_gt(const double *a) { return a[0] > a[1]; }
static double value_ge(const double *a) { return a[0] >= a[1]; }
static double value_silu(const double *a) { return a[0] * sigmoid_(a[0]); }
static double value_logsigmoid(const double *a) { return -softplus_(-a[0]); }

/* Functions made of operations. */
typedef struct Made {
    const char *name;
    int arity;
    Ref (*build)(Graph *g, const Ref *a);
    double (*value)(const double *a);
} Made;

static const Made made[] = {
    { "gt", 2, build_gt, value_gt },
    { "ge", 2, build_ge, value_ge },
    { "silu", 1, build_silu, value_silu },
    { "logsigmoid", 1, build_logsigmoid, value_logsigmoid },
};
enum { NMADE = sizeof made / sizeof *made };

/* What Lua writes as an operator, or what is the compiler's own. */
static bool is_unnamed(int op)
{
    return op == OP_add || op == OP_sub || op == OP_mul || op == OP_div
        || op == OP_neg || op == OP_mod || op == OP_factor
        || op == OP_opening;
}

static void make_elementwise(Build *b)
{
    if (b->op >= NOPS)
        b->r = made[b->op - NOPS].build(b->g, b->a);
    else
        b->r = node_new(b->g, (Node){ .op = (uint8_t)b->op,
                                      .a = { b->a[0], b->a[1], b->a[2] } });
}

static void check_count(lua_State *L, const char *name, int least, int most)
{
    int n = lua_gettop(L);

    if (n >= least && n <= most)
        return;
    if (least == most)
        lang_fail(L, NULL, "%s: takes %d argument%s, got %d", name, least,
                  least == 1 ? "" : "s", n);
    lang_fail(L, NULL, "%s: takes %d or %d arguments, got %d", name, least,
              most, n);
}

static void check_plain(lua_State *L, const char *name, int arg)
{
    char nth[32] = "";

    if (value_test(L, arg) || lua_type(L, arg) == LUA_TNUMBER
        || lua_isboolean(L, arg))
        return;
    check_misused(L, arg);
    if (lua_gettop(L) > 1)
        snprintf(nth, sizeof nth, "argument %d is ", arg);
    lang_fail(L, lua_isnil(L, arg) ? "is a name misspelled?" :
              tensor_test(L, arg) ? "declare an input, and give the tensor "
              "when calling" : NULL, "%s: %s%s, not a value or a number",
              name, nth, type_text(L, arg));
}

static double plain_arg(lua_State *L, int arg)
{
    return lua_isboolean(L, arg) ? lua_toboolean(L, arg)
                                 : lua_tonumber(L, arg);
}

static double elementwise_value(int op, const double *x)
{
    return op >= NOPS ? made[op - NOPS].value(x)
                      : elem_value(op, x[0], x[1], x[2]);
}

/* flin.lt, le, eq, gt, ge */
static bool compares(int op)
{
    if (op < NOPS)
        return op == OP_lt || op == OP_le || op == OP_eq;
    return made[op - NOPS].build == build_gt
        || made[op - NOPS].build == build_ge;
}

/* Upvalues: the operation, or NOPS + its row in `made`; its name. */
static int elementwise(lua_State *L)
{
    Build b = { .op = (int)lua_tointeger(L, lua_upvalueindex(1)),
                .make = make_elementwise };
    const char *name = lua_tostring(L, lua_upvalueindex(2));
    int n = b.op < NOPS ? op_info[b.op].arity : made[b.op - NOPS].arity;
    double x[3] = { 0 };
    Tracer *t = NULL;

    check_count(L, name, n, n);
    if (any_numbers(L))
        return concrete_elementwise(L, name, b.op, n, b.op < NOPS ? NULL
                                    : made[b.op - NOPS].value);
    for (int i = 1; i <= n; i++)
        check_plain(L, name, i);
    int like = find_value(L, 1, n, &t);
    if (b.op == OP_where && !value_test(L, 1)) {
        lua_pushvalue(L, plain_arg(L, 1) != 0 ? 2 : 3);
        return 1;
    }
    for (int i = 0; i < n; i++) {
        if (like)
            b.a[i] = value_arg(L, t, i + 1);
        else
            x[i] = plain_arg(L, i + 1);
    }
    if (like) {
        build_push(L, like, t, &b);
        if (compares(b.op))
            note_compared(L);
        return 1;
    }
    double y = elementwise_value(b.op, x);
    if (compares(b.op) && truths_given(L))
        lua_pushboolean(L, y != 0);
    else
        lua_pushnumber(L, y);
    return 1;
}

/* ---- named axes ---- */

/* Axis `word` of the value at `arg`, or an error. */
static int axis_of(lua_State *L, Tracer *t, const char *name, int arg,
                   const char *word)
{
    AxisSet axes = t->g->n[value_test(L, arg)->r].axes;
    int ax = graph_find_axis(t->g, word);

    if (ax >= 0 && axes & AXIS(ax))
        return ax;
    const char *has = value_axes(L, t, axes);
    const char *of = axes ? lua_pushfstring(L, "name one that it has (%s), or",
                                            has) : "it is one number:";
    const char *help = !strcmp(word, "t")
        ? "a step sees one token at a time: carry a state to look back"
        : lua_pushfstring(L, "%s let an input or a weight bring '%s' into it",
                          of, word);
    lang_fail(L, help, "%s: axis '%s' is not an axis of %s (axes: %s)", name,
              word, value_name(L, t, arg), has);
}

/* The axes that the string at `at` names, each an axis of the value at `arg`;
 * 0 where there is no string. */
static AxisSet axes_arg(lua_State *L, Tracer *t, const char *name, int arg,
                        int at)
{
    AxisSet s = 0;
    char word[32];
    int n;

    if (lua_isnoneornil(L, at))
        return 0;
    if (lua_type(L, at) != LUA_TSTRING)
        lang_fail(L, "axes are named by a string: \"k\"", "%s: argument %d is "
                  "%s, not the name of an axis", name, at, type_text(L, at));
    for (const char *p = lua_tostring(L, at);
         sscanf(p, " %31s%n", word, &n) == 1; p += n)
        s |= AXIS(axis_of(L, t, name, arg, word));
    if (!s)
        lang_fail(L, "leave it out to mean all axes",
                  "%s: argument %d names no axis", name, at);
    return s;
}

/* The first argument, which must be a value. */
static int value_wanted(lua_State *L, const char *name, Tracer **t)
{
    if (!value_test(L, 1)) {
        check_plain(L, name, 1);
        lang_fail(L, NULL, "%s: %s has no axes", name, type_text(L, 1));
    }
    return find_value(L, 1, 1, t);
}

static const char *word_arg(lua_State *L, const char *name, int arg)
{
    if (lua_type(L, arg) != LUA_TSTRING)
        lang_fail(L, "axes are named by a string: \"k\"", "%s: argument %d is "
                  "%s, not the name of an axis", name, arg,
                  type_text(L, arg));
    return lua_tostring(L, arg);
}

static void make_sum(Build *b)
{
    b->r = sum(b->g, b->a[0], b->over);
}

static void make_mean(Build *b)
{
    Ref n = num(b->g, 1);

    for (int ax = 0; ax < NAXES; ax++)
        if (b->over & AXIS(ax))
            n = op2(b->g, OP_mul, n, axis_size(b->g, ax));
    b->r = op2(b->g, OP_div, sum(b->g, b->a[0], b->over), n);
}

/* x / sqrt(s + eps) */
static Ref scaled(Graph *g, Ref x, Ref s, double eps)
{
    return op2(g, OP_mul, x, op1(g, OP_rsqrt, op2(g, OP_add, s,
                                                  num(g, eps))));
}

static Ref mean_of(Graph *g, Ref a, AxisSet over)
{
    Build b = { .g = g, .a = { a }, .over = over };

    make_mean(&b);
    return b.r;
}

static void make_l2norm(Build *b)
{
    Graph *g = b->g;

    b->r = scaled(g, b->a[0], sum(g, op1(g, OP_square, b->a[0]), b->over),
                  NORM_EPS);
}

static void make_rms_norm(Build *b)
{
    Graph *g = b->g;

    b->r = scaled(g, b->a[0], mean_of(g, op1(g, OP_square, b->a[0]), b->over),
                  MEAN_EPS);
}

static void make_layer_norm(Build *b)
{
    Graph *g = b->g;
    Ref x = op2(g, OP_sub, b->a[0], mean_of(g, b->a[0], b->over));

    b->r = scaled(g, x, mean_of(g, op1(g, OP_square, x), b->over), MEAN_EPS);
}

static void make_amax(Build *b)
{
    b->r = row_most(b->g, b->a[0], b->over);
}

static void make_logsumexp(Build *b)
{
    b->r = row_fold(b->g, OP_lse, b->a[0], b->over);
}

static void make_softmax(Build *b)
{
    Ref y = row_fold(b->g, OP_lse, b->a[0], b->over);

    b->r = op1(b->g, OP_exp, op2(b->g, OP_sub, b->a[0], y));
}

/* A single number as a row of one. */
static double same(double x) { return x; }
static double unit_number(double x) { return x / sqrt(x * x + NORM_EPS); }
static double rms_number(double x) { return x / sqrt(x * x + MEAN_EPS); }
static double nothing(double x) { return x - x; }
static double whole_of(double x) { return x - x + 1; }

/* What goes over axes: a row each; how: of numbers with axes. */
typedef struct Over {
    const char *name;
    Reduction how;
    void (*make)(Build *b);
    double (*number)(double x);
    bool rows;                          /* of layers alone */
} Over;

static const Over overs[] = {
    { "sum", R_SUM, make_sum, same, false },
    { "mean", R_MEAN, make_mean, same, false },
    { "l2norm", R_L2NORM, make_l2norm, unit_number, false },
    { "unit_norm", R_L2NORM, make_l2norm, unit_number, false },
    { "rms_norm", R_RMS_NORM, make_rms_norm, rms_number, false },
    { "layer_norm", R_LAYER_NORM, make_layer_norm, nothing, false },
    { "amax", R_AMAX, make_amax, same, true },
    { "logsumexp", R_LOGSUMEXP, make_logsumexp, same, true },
    { "softmax", R_SOFTMAX, make_softmax, whole_of, true },
};
enum { NOVERS = sizeof overs / sizeof *overs };

/* (x, axes); no axes: all. Upvalue: the row. */
static int reduce(lua_State *L)
{
    const Over *o = &overs[lua_tointeger(L, lua_upvalueindex(1))];
    Tracer *t = NULL;

    check_count(L, o->name, 1, 2);
    if (any_numbers(L))
        return concrete_reduce(L, o->name, o->how);
    check_plain(L, o->name, 1);
    int like = find_value(L, 1, 1, &t);
    if (!like) {
        lua_pushnumber(L, o->number(plain_arg(L, 1)));
        return 1;
    }
    if (o->rows && !t->g->layer)
        lang_fail(L, "in the forward function of a layer (flin.layer)",
                  "%s: a step has no rows of its own to go over", o->name);
    Build b = { .a = { value_arg(L, t, 1) }, .make = o->make };
    b.over = axes_arg(L, t, o->name, 1, 2);
    if (!b.over)
        b.over = t->g->n[b.a[0]].axes;
    return build_push(L, like, t, &b);
}

/* ---- entries by an index ---- */

/* Of entries along the axis the one whose number the index is: found by
 * comparing. No number where there is none such. */
static void make_pick(Build *b)
{
    Graph *g = b->g;
    Ref index = b->a[1], none = num(g, NAN);
    Ref is = op2(g, OP_eq, count_along(g, b->axis), index);
    Ref y = sum(g, op3(g, OP_where, is, b->a[0], num(g, 0)), AXIS(b->axis));
    Ref from = op2(g, OP_le, num(g, 0), index);
    Ref to = op2(g, OP_lt, index, axis_size(g, b->axis));

    b->r = op3(g, OP_where, op2(g, OP_mul, from, to), y, none);
}

static int flin_pick(lua_State *L)
{
    Build b = { .make = make_pick };
    Tracer *t = NULL;

    check_count(L, "pick", 3, 3);
    if (any_numbers(L) || layer_runs(L))
        return concrete_pick(L);
    int like = value_wanted(L, "pick", &t);
    if (!t->g->layer)
        lang_fail(L, "in the forward function of a layer (flin.layer)",
                  "pick: a step has no rows of its own to go over");
    if (!value_test(L, 2))
        lang_fail(L, "flin.at(x, \"k\", 3) is one entry of all tokens",
                  "pick: argument 2 is %s, not an input that is an index",
                  type_text(L, 2));
    b.a[0] = value_arg(L, t, 1);
    b.a[1] = value_arg(L, t, 2);
    b.axis = axis_of(L, t, "pick", 1, word_arg(L, "pick", 3));
    const Node *n = &t->g->n[b.a[1]];
    const Input *in = n->op == OP_input ? &t->g->in[n->index] : NULL;
    const char *axis = t->g->axis[b.axis].name;
    if (!in || in->index_of != b.axis)
        lang_fail(L, lua_pushfstring(L, "input = { label = \"t : index "
                  "%s\" }", axis), in && in->index_of ? "pick: %s is an index "
                  "of axis '%s', not of '%s'" : "pick: %s is no index",
                  value_name(L, t, 2), in && in->index_of
                  ? t->g->axis[in->index_of].name : "", axis);
    return build_push(L, like, t, &b);
}

/* Is the first argument of a step that runs on numbers? */
static bool has_numbers(lua_State *L)
{
    const Concrete *c = concrete_now(L);

    return numbers_test(L, 1) || (c && c->g && !value_test(L, 1));
}

static void make_size(Build *b)
{
    b->r = axis_size(b->g, b->axis);
}

/* size(x, "k"): how long the axis is, as a value. */
static int flin_size(lua_State *L)
{
    Build b = { .make = make_size };
    Tracer *t = NULL;

    check_count(L, "size", 2, 2);
    if (has_numbers(L))
        return concrete_size(L);
    int like = value_wanted(L, "size", &t);
    b.axis = axis_of(L, t, "size", 1, word_arg(L, "size", 2));
    return build_push(L, like, t, &b);
}

/* ---- products ---- */

static void make_dot(Build *b)
{
    b->r = dot(b->g, b->a[0], b->a[1], b->over);
}

static void make_outer(Build *b)
{
    b->r = op2(b->g, OP_mul, b->a[0], b->a[1]);
}

/* Two operands as nodes, and their axes; 0 when both are plain numbers. */
static int two_values(lua_State *L, const char *name, Tracer **t, Build *b,
                      AxisSet axes[2])
{
    check_plain(L, name, 1);
    check_plain(L, name, 2);
    int like = find_value(L, 1, 2, t);
    for (int i = 0; like && i < 2; i++) {
        b->a[i] = value_arg(L, *t, i + 1);
        axes[i] = (*t)->g->n[b->a[i]].axes;
    }
    return like;
}

static _Noreturn void no_partner(lua_State *L, Tracer *t, const AxisSet s[2])
{
    const char *a = value_name(L, t, 1), *b = value_name(L, t, 2);
    int lone = s[0] ? 0 : 1;
    AxisSet first = s[lone];

    if (!s[0] || !s[1]) {
        const char *help = lua_pushfstring(L, "%s has no axes: %s * %s",
                                           s[0] ? b : a, a, b);
        lang_fail(L, help, "dot: %s and %s share no axis", a, b);
    }
    bool many = (first & (first - 1)) != 0;
    const char *help = lua_pushfstring(L, "outer(%s, %s) joins axes; "
        "flin.rename(%s, \"from\", \"to\") names one anew", a, b, b);
    const char *axes = value_axes(L, t, first);
    lang_fail(L, help, "dot: ax%s '%s' of %s ha%s no partner in %s (axes: %s)",
              many ? "es" : "is", axes, a, many ? "ve" : "s", b,
              value_axes(L, t, s[1]));
}

static int flin_dot(lua_State *L)
{
    Build b = { .make = make_dot };
    Tracer *t = NULL;
    AxisSet s[2];

    check_count(L, "dot", 2, 3);
    if (any_numbers(L))
        return concrete_dot(L, false);
    int like = two_values(L, "dot", &t, &b, s);
    if (!like) {
        lua_pushnumber(L, plain_arg(L, 1) * plain_arg(L, 2));
        return 1;
    }
    b.over = s[0] & s[1];
    if (!lua_isnoneornil(L, 3)) {
        for (int i = 1; i <= 2; i++) {
            if (!value_test(L, i))
                lang_fail(L, NULL, "dot: argument %d is a number: it has no "
                          "axes", i);
            b.over = axes_arg(L, t, "dot", i, 3);
        }
    }
    if (!b.over)
        no_partner(L, t, s);
    return build_push(L, like, t, &b);
}

static int flin_outer(lua_State *L)
{
    Build b = { .make = make_outer };
    Tracer *t = NULL;
    AxisSet s[2];

    check_count(L, "outer", 2, 2);
    if (any_numbers(L))
        return concrete_dot(L, true);
    int like = two_values(L, "outer", &t, &b, s);
    if (!like) {
        lua_pushnumber(L, plain_arg(L, 1) * plain_arg(L, 2));
        return 1;
    }
    AxisSet both = s[0] & s[1];
    if (both) {
        const char *x = value_name(L, t, 1), *y = value_name(L, t, 2);
        bool many = (both & (both - 1)) != 0;
        const char *ax = value_axes(L, t, both & (~both + 1));
        const char *help = lua_pushfstring(L, "to keep the two apart, "
            "flin.rename(%s, \"%s\", \"d\"); to multiply along '%s', %s * %s",
            y, ax, ax, x, y);
        lang_fail(L, help, "outer: %s and %s share ax%s '%s'", x, y,
                  many ? "es" : "is", value_axes(L, t, both));
    }
    return build_push(L, like, t, &b);
}

/* ---- entries, names, earlier tokens ---- */

static void make_at(Build *b)
{
    b->r = select_at(b->g, b->a[0], b->axis, b->to);
}

static int flin_at(lua_State *L)
{
    Build b = { .make = make_at };
    Tracer *t = NULL;
    int whole;

    check_count(L, "at", 3, 3);
    if (has_numbers(L))
        return concrete_at(L);
    int like = value_wanted(L, "at", &t);
    b.a[0] = value_arg(L, t, 1);
    const char *word = word_arg(L, "at", 2);
    b.axis = axis_of(L, t, "at", 1, word);
    lua_Integer i = lua_tointegerx(L, 3, &whole);
    whole = whole && lua_type(L, 3) == LUA_TNUMBER;
    int32_t size = t->g->axis[b.axis].size;
    if (!whole)
        lang_fail(L, "entries are counted from 1", "at: argument 3 is %s, not "
                  "a whole number", shown_text(L, 3));
    if (i < 1 || i > 65535 || (size && i > size))
        lang_fail(L, "entries are counted from 1", "at: axis '%s' has no "
                  "entry %lld", word, (long long)i);
    b.to = (int)i - 1;
    return build_push(L, like, t, &b);
}

static void make_rename(Build *b)
{
    int to = graph_axis(b->g, b->text[0]);

    b->r = relabel(b->g, b->a[0], b->axis, to);
}

static int flin_rename(lua_State *L)
{
    Build b = { .make = make_rename };
    Tracer *t = NULL;

    check_count(L, "rename", 3, 3);
    if (has_numbers(L))
        return concrete_rename(L);
    int like = value_wanted(L, "rename", &t);
    b.a[0] = value_arg(L, t, 1);
    b.axis = axis_of(L, t, "rename", 1, word_arg(L, "rename", 2));
    b.text[0] = word_arg(L, "rename", 3);
    int to = graph_find_axis(t->g, b.text[0]);
    AxisSet axes = t->g->n[b.a[0]].axes;
    if (!axis_name_ok(b.text[0]))
        lang_fail(L, "axes are words: \"k\"", "rename: '%s' is not the name "
                  "of an axis", b.text[0]);
    if (to >= 0 && to != b.axis && axes & AXIS(to))
        lang_fail(L, NULL, "rename: %s has axis '%s' already (axes: %s)",
                  value_name(L, t, 1), b.text[0], value_axes(L, t, axes));
    return build_push(L, like, t, &b);
}

/* Does node r stand for a value of an earlier token already? */
static bool is_prev(const Graph *g, Ref r)
{
    const Node *n = &g->n[r];

    return n->op == OP_state && g->st[n->index].next
        && !strncmp(g->st[n->index].name, "prev_", 5);
}

/* prev_NAME, prev_prev_NAME ...; prev_N_NAME where so many would be too long:
 * two names that were cut off could meet. count: of what has no name. */
static void prev_name(const Graph *g, Ref r, int count, char name[48])
{
    enum { WHOLE = 40 };
    char number[12];
    const char *base = number;
    int back = 1, n = 0;

    snprintf(number, sizeof number, "%d", count);
    for (; is_prev(g, r); back++) {
        base = g->st[g->n[r].index].name + strlen("prev_");
        r = g->st[g->n[r].index].next;
    }
    if (g->n[r].op == OP_input)
        base = g->in[g->n[r].index].name;
    if (5 * back + (int)strlen(base) > WHOLE) {
        snprintf(name, 48, "prev_%d_%.24s", back, base);
        return;
    }
    for (; back > 0; back--)
        n += snprintf(name + n, 48 - (size_t)n, "prev_");
    snprintf(name + n, 48 - (size_t)n, "%.24s", base);
}

/* The state that holds node r as of the token before; made if new. */
static void make_prev(Build *b)
{
    Graph *g = b->g;
    const Node *n = &g->n[b->a[0]];
    char name[48];
    int count = 1;

    for (int i = 0; i < g->nst; i++) {
        bool mine = !strncmp(g->st[i].name, "prev_", 5);
        if (mine && g->st[i].next == b->a[0]) {
            b->r = g->st[i].node;
            return;
        }
        count += mine;
    }
    prev_name(g, b->a[0], count, name);
    char axes[NAXES * 25] = "";
    for (int ax = 0; ax < NAXES; ax++)
        if (n->axes & AXIS(ax)) {
            strcat(axes, " ");
            strcat(axes, g->axis[ax].name);
        }
    Ref of = b->a[0];
    int s = graph_state(g, name, axes);
    g->st[s].next = of;
    b->r = g->st[s].node;
}

static void make_layer_prev(Build *b)
{
    b->r = layer_prev(b->g, b->a[0]);
}

static int flin_prev(lua_State *L)
{
    Build b = { .make = make_prev };
    Tracer *t = NULL;

    check_count(L, "prev", 1, 1);
    if (layer_runs(L))
        return concrete_layer_prev(L);
    if (has_numbers(L))
        return concrete_prev(L);
    int like = value_wanted(L, "prev", &t);
    b.a[0] = value_arg(L, t, 1);
    const Node *n = &t->g->n[b.a[0]];
    const char *name = value_name(L, t, 1);
    if (n->states && !is_prev(t->g, b.a[0]))
        lang_fail(L, "s.NAME is the state of the token before",
                  "prev: %s depends on a state", name);
    if (!n->timed)
        lang_fail(L, NULL, "prev: %s is the same for every token", name);
    if (t->g->layer) {
        b.make = make_layer_prev;
        return build_push(L, like, t, &b);
    }
    if (n->op == OP_input)
        for (int i = 0; i < t->g->nst; i++)
            if (!strncmp(t->g->st[i].name, "prev_", 5) && !t->g->st[i].next
                && !strcmp(t->g->st[i].name + 5, t->g->in[n->index].name))
                lang_fail(L, "name that state otherwise", "prev: state '%s' "
                          "is declared already", t->g->st[i].name);
    build_push(L, like, t, &b);
    if (t->nprevs == MAX_PREVS)
        lang_fail(L, NULL, "prev: a step calls it %d times at most",
                  MAX_PREVS);
    t->prevs[t->nprevs++] = (uint8_t)t->g->n[b.r].index;
    return 1;
}

/* ---- rotary embedding ---- */

static void make_rotate(Build *b)
{
    Graph *g = b->g;
    Ref angle = unary_axis(g, OP_dup, b->a[1], b->to, b->axis);
    Ref turned = unary_axis(g, OP_rot90, b->a[0], b->axis, 0);

    b->r = op2(g, OP_add, op2(g, OP_mul, b->a[0], op1(g, OP_cos, angle)),
               op2(g, OP_mul, turned, op1(g, OP_sin, angle)));
}

static int flin_rotate(lua_State *L)
{
    Build b = { .make = make_rotate };
    Tracer *t = NULL;
    AxisSet s[2];

    check_count(L, "rotate", 2, 3);
    if (any_numbers(L))
        return concrete_rotate(L);
    lua_settop(L, 3);
    int like = value_wanted(L, "rotate", &t);
    two_values(L, "rotate", &t, &b, s);
    const char *x = value_name(L, t, 1), *angle = value_name(L, t, 2);
    b.to = single_axis(t->g, s[1] & ~s[0]);
    if (b.to < 0)
        lang_fail(L, "declare the angle with half as many entries on an axis "
                  "of its own: theta = \"t p\"", "rotate: the angle %s needs "
                  "one axis that %s lacks (axes: %s; %s)", angle, x,
                  value_axes(L, t, s[1]), value_axes(L, t, s[0]));
    if (!lua_isnoneornil(L, 3))
        b.axis = axis_of(L, t, "rotate", 1, word_arg(L, "rotate", 3));
    else
        b.axis = single_axis(t->g, s[0] & ~s[1]);
    if (b.axis < 0 || s[1] & AXIS(b.axis))
        lang_fail(L, "name it: flin.rotate(x, angle, \"k\")", "rotate: which "
                  "axis of %s turns? (axes: %s)", x, value_axes(L, t, s[0]));
    return build_push(L, like, t, &b);
}

static const luaL_Reg functions[] = {
    { "size", flin_size },
    { "dot", flin_dot },
    { "outer", flin_outer },
    { "at", flin_at },
    { "pick", flin_pick },
    { "rename", flin_rename },
    { "prev", flin_prev },
    { "rotate", flin_rotate },
    { "conv", flin_conv },
    { "probe", flin_probe },
    { NULL, NULL }
};

static void add_elementwise(lua_State *L, int op, const char *name)
{
    lua_pushinteger(L, op);
    lua_pushstring(L, name);
    lua_pushcclosure(L, elementwise, 2);
    lua_setfield(L, -2, name);
}

void functions_open(lua_State *L)
{
    for (int op = 0; op < NOPS; op++)
        if (op_info[op].traits & ELEMENTWISE && !is_unnamed(op))
            add_elementwise(L, op, op_info[op].name);
    for (int i = 0; i < NMADE; i++)
        add_elementwise(L, NOPS + i, made[i].name);
    for (int i = 0; i < NOVERS; i++) {
        lua_pushinteger(L, i);
        lua_pushcclosure(L, reduce, 1);
        lua_setfield(L, -2, overs[i].name);
    }
    luaL_setfuncs(L, functions, 0);
}
