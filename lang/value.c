/* value.c -- symbolic values: what a step computes with while it is traced.
 *
 * A value is a node of its trace's graph. Lua's operators on it make nodes;
 * each is stamped with the user's line that is running.
 */
#include <math.h>
#include <string.h>

#include "concrete.h"
#include "value.h"
#include "watch.h"

Value *value_test(lua_State *L, int arg)
{
    return luaL_testudata(L, arg, VALUE_META);
}

void value_push(lua_State *L, int owner, Tracer *t, Ref r)
{
    owner = lua_absindex(L, owner);
    Value *v = lua_newuserdatauv(L, sizeof *v, 1);
    v->t = t;
    v->r = r;
    v->compared = 0;
    luaL_setmetatable(L, VALUE_META);
    lua_pushvalue(L, owner);
    lua_setiuservalue(L, -2, 1);
}

int find_value(lua_State *L, int first, int last, Tracer **t)
{
    for (int i = first; i <= last; i++) {
        Value *v = value_test(L, i);
        if (!v)
            continue;
        if (v->t->closed)
            lang_fail(L, "compute with it inside of the function",
                      "this value belongs to a step or a mask that has been "
                      "traced already");
        *t = v->t;
        return i;
    }
    return 0;
}

/* The same for a metamethod, one of whose operands is a value. */
static int own_value(lua_State *L, int first, int last, Tracer **t)
{
    int i = find_value(L, first, last, t);

    if (!i)
        lang_fail(L, NULL, "a value is wanted here, not %s",
                  type_text(L, first));
    return i;
}

/* ---- builder calls ---- */

static void run_build(Ctx *c, void *ud)
{
    Build *b = ud;

    (void)c;
    b->make(b);
}

/* The line in the file that the trace is about, where there is one: a step
 * may call helpers of other files. */
static int trace_line(lua_State *L, const Tracer *t)
{
    lua_Debug ar;
    const char *file = t->ctx->file;

    for (int level = 0; file && lua_getstack(L, level, &ar); level++)
        if (lua_getinfo(L, "Sl", &ar) && ar.currentline > 0
            && (!strcmp(ar.source + 1, file) || !strcmp(ar.short_src, file)))
            return ar.currentline;
    return current_line(L);
}

void stamp_line(lua_State *L, Tracer *t)
{
    t->g->line = trace_line(L, t);
}

void build(lua_State *L, Tracer *t, Build *b)
{
    b->g = t->g;
    stamp_line(L, t);
    protect(L, t->ctx, run_build, b);
}

int build_push(lua_State *L, int like, Tracer *t, Build *b)
{
    build(L, t, b);
    lua_getiuservalue(L, like, 1);
    value_push(L, -1, t, b->r);
    return 1;
}

static void make_op(Build *b)
{
    b->r = node_new(b->g, (Node){ .op = (uint8_t)b->op,
                                  .a = { b->a[0], b->a[1], b->a[2] } });
}

static void make_num(Build *b)
{
    b->r = num(b->g, b->x);
}

static void make_texts(Build *b)
{
    b->text[0] = expr_text(b->g, b->a[0]);
    b->text[1] = axes_text(b->g, b->over);
    if (!b->text[1] || !*b->text[1])
        b->text[1] = "none";
}

/* ---- names ---- */

const char *value_axes(lua_State *L, Tracer *t, AxisSet s)
{
    Build b = { .g = t->g, .a = { 1 }, .over = s, .make = make_texts };

    protect(L, t->ctx, run_build, &b);
    return b.text[1];
}

/* The user's local variable that holds node r. */
static bool local_name(lua_State *L, const Value *want)
{
    lua_Debug ar;
    const char *name, *found = NULL;
    int level = 0;

    do {
        if (!lua_getstack(L, level++, &ar))
            return false;
        lua_getinfo(L, "l", &ar);
    } while (ar.currentline <= 0);
    for (int i = 1; (name = lua_getlocal(L, &ar, i)) != NULL; i++) {
        Value *v = value_test(L, -1);
        if (v && v->t == want->t && v->r == want->r && *name != '(')
            found = name;
        lua_pop(L, 1);
    }
    if (found)
        lua_pushstring(L, found);
    return found != NULL;
}

const char *value_name(lua_State *L, Tracer *t, int arg)
{
    Value *v = value_test(L, arg);

    luaL_checkstack(L, 8, NULL);
    if (!v)
        return luaL_tolstring(L, arg, NULL);
    int op = t->g->n[v->r].op;
    if (op == OP_input || op == OP_state || !local_name(L, v)) {
        Build b = { .g = t->g, .a = { v->r }, .make = make_texts };
        protect(L, t->ctx, run_build, &b);
        lua_pushstring(L, b.text[0]);
    }
    return lua_tostring(L, -1);
}

/* ---- operands ---- */

static Ref number_arg(lua_State *L, Tracer *t, double x)
{
    Build b = { .x = x, .make = make_num };

    if (isnan(x))
        lang_fail(L, "NaN comes from 0/0, inf - inf, or log of a negative "
                  "number", "a NaN enters the step");
    build(L, t, &b);
    return b.r;
}

void check_misused(lua_State *L, int arg)
{
    if (luaL_getmetafield(L, arg, MISUSED) != LUA_TNIL)
        lua_call(L, 0, 0);
}

Ref value_arg(lua_State *L, Tracer *t, int arg)
{
    Value *v = value_test(L, arg);

    if ((v && v->t != t) || numbers_test(L, arg))
        lang_fail(L, NULL, "this value belongs to another step or mask");
    if (v && v->compared)
        t->compared[v->compared - 1].read = true;
    if (v)
        return v->r;
    if (lua_type(L, arg) == LUA_TNUMBER)
        return number_arg(L, t, lua_tonumber(L, arg));
    if (lua_isboolean(L, arg))
        return number_arg(L, t, lua_toboolean(L, arg));
    if (tensor_test(L, arg))
        lang_fail(L, "declare an input, and give the tensor when calling",
                  "a tensor cannot enter a step: it has no named axes");
    check_misused(L, arg);
    lang_fail(L, lua_isnil(L, arg) ? "is a name misspelled?" : NULL,
              "a value or a number is wanted here, not %s",
              type_text(L, arg));
}

void note_compared(lua_State *L)
{
    Value *v = value_test(L, -1);
    Tracer *t = v->t;
    const Node *n = &t->g->n[v->r];
    int at = 0;

    if (n->op == OP_num)
        return;
    while (at < t->ncompared && (t->compared[at].r != v->r
                              || t->compared[at].line != t->g->line))
        at++;
    if (at == MAX_COMPARED)
        return;
    if (at == t->ncompared)
        t->compared[t->ncompared++] = (Compared){ v->r, t->g->line, false };
    v->compared = at + 1;
}

void check_compared(lua_State *L, const Tracer *t)
{
    for (int i = 0; i < t->ncompared; i++) {
        const Compared *a = &t->compared[i];
        Build b = { .g = t->g, .a = { a->r }, .make = make_texts };
        if (a->read)
            continue;
        protect(L, t->ctx, run_build, &b);
        lang_fail_at(L, (Place){ t->ctx->file, a->line }, "it is a value, and "
                     "an if or and takes every value as true: use flin.where("
                     "cond, a, b)", "nothing reads the comparison %s",
                     b.text[0]);
    }
}

/* Where one operand of an operator is neither a value nor a number. */
static void check_operands(lua_State *L, Tracer *t, const char *op)
{
    for (int i = 1; i <= 2; i++) {
        if (value_test(L, i) || lua_type(L, i) == LUA_TNUMBER
            || lua_isboolean(L, i) || numbers_test(L, i))
            continue;
        const char *other = value_name(L, t, 3 - i);
        const char *type = type_text(L, i);
        const char *bare = *type == 'a' ? type + 2 : type;
        lang_fail(L, lua_isnil(L, i) ? "is a name misspelled?" : NULL,
                  "%s %s %s: the %s operand is %s, not a value or a number",
                  i == 1 ? bare : other, op, i == 1 ? other : bare,
                  i == 1 ? "left" : "right", type);
    }
}

/* ---- operators ---- */

/* Upvalues: the operation, the operator as it is written. */
static int value_binary(lua_State *L)
{
    Tracer *t = NULL;
    int like = own_value(L, 1, 2, &t);
    Build b = { .op = (int)lua_tointeger(L, lua_upvalueindex(1)),
                .make = make_op };

    check_operands(L, t, lua_tostring(L, lua_upvalueindex(2)));
    b.a[0] = value_arg(L, t, 1);
    b.a[1] = value_arg(L, t, 2);
    return build_push(L, like, t, &b);
}

static int value_unm(lua_State *L)
{
    Tracer *t = NULL;
    int like = own_value(L, 1, 1, &t);
    Build b = { .op = OP_neg, .a = { value_arg(L, t, 1) }, .make = make_op };

    return build_push(L, like, t, &b);
}

enum { POWER_MAX = 64 };

static Ref whole_power(Graph *g, Ref a, int n)
{
    if (n == 1)
        return a;
    Ref half = op1(g, OP_square, whole_power(g, a, n / 2));
    return n % 2 ? op2(g, OP_mul, half, a) : half;
}

/* a^x: products for a whole x, roots for halves, else exp(x log a). */
static void make_power(Build *b)
{
    Graph *g = b->g;
    Ref a = b->a[0];
    double x = b->x, n = fabs(x);

    if (x == 0)
        b->r = op2(g, OP_add, op2(g, OP_mul, a, num(g, 0)), num(g, 1));
    else if (x == -0.5)
        b->r = op1(g, OP_rsqrt, a);
    else if (x == 0.5)
        b->r = op1(g, OP_sqrt, a);
    else if (n == floor(n) && n <= POWER_MAX)
        b->r = whole_power(g, a, (int)n);
    else
        b->r = op1(g, OP_exp, op2(g, OP_mul, op1(g, OP_log, a), num(g, x)));
    if (x < 0 && n == floor(n) && n <= POWER_MAX)
        b->r = op2(g, OP_div, num(g, 1), b->r);
}

static int value_pow(lua_State *L)
{
    Tracer *t = NULL;
    int like = own_value(L, 1, 2, &t);

    check_operands(L, t, "^");
    if (like != 1 || lua_type(L, 2) != LUA_TNUMBER)
        lang_fail(L, "write flin.exp(y * flin.log(x)) for x^y",
                  "^: the exponent must be a number");
    Build b = { .a = { value_arg(L, t, 1) }, .x = lua_tonumber(L, 2),
                .make = make_power };
    number_arg(L, t, b.x);
    return build_push(L, like, t, &b);
}

/* Lua calls __eq for ~=, too. */
static const char *equality_sign(lua_State *L)
{
    int top = lua_gettop(L);
    bool other = source_line(L, current_file(L), current_line(L))
        && strstr(lua_tostring(L, -1), "~=")
        && !strstr(lua_tostring(L, -1), "==");

    lua_settop(L, top);
    return other ? "~=" : "==";
}

static _Noreturn void refuse_branch(lua_State *L, int op, const char *sign,
                                    const char *x, const char *y)
{
    bool other = *sign == '~';
    const char *help = lua_pushfstring(L, "use flin.where(flin.%s(%s, %s), %s)"
        ": both are computed, one is taken", op_info[op].name, x, y,
        other ? "b, a" : "a, b");

    lang_fail(L, help, "cannot branch on data: %s %s %s is known only when "
              "the variant runs", x, sign, y);
}

_Noreturn void refuse_equality(lua_State *L, Tracer *t, Ref cond)
{
    const Node *n = &t->g->n[cond];
    Build a = { .g = t->g, .a = { n->a[0] }, .make = make_texts };
    Build b = { .g = t->g, .a = { n->a[1] }, .make = make_texts };

    protect(L, t->ctx, run_build, &a);
    protect(L, t->ctx, run_build, &b);
    refuse_branch(L, OP_eq, equality_sign(L), a.text[0], b.text[0]);
}

/* Ordinary Lua asks for a truth value. */
static int value_compare(lua_State *L)
{
    Tracer *t = NULL;
    Build b = { .op = (int)lua_tointeger(L, lua_upvalueindex(1)),
                .make = make_op };
    const char *sign = lua_tostring(L, lua_upvalueindex(2));

    own_value(L, 1, 2, &t);
    check_operands(L, t, sign);
    b.a[0] = value_arg(L, t, 1);
    b.a[1] = value_arg(L, t, 2);
    build(L, t, &b);
    const Node *n = &t->g->n[b.r];
    if (n->op == OP_num) {
        lua_pushboolean(L, n->num != 0);
    } else if (t->decide) {
        lua_pushboolean(L, t->decide(t, L, b.r));
    } else {
        const char *x = value_name(L, t, 1), *y = value_name(L, t, 2);
        refuse_branch(L, b.op, b.op == OP_eq ? equality_sign(L) : sign, x, y);
    }
    return 1;
}

/* Of positions, which are whole numbers, it is exact: what division rounds
 * here, floor takes back (mask_region.c finds it again). */
static void make_whole(Build *b)
{
    Ref rest = op2(b->g, OP_mod, b->a[0], b->a[1]);
    Ref x = op2(b->g, OP_div, op2(b->g, OP_sub, b->a[0], rest), b->a[1]);

    b->r = op1(b->g, OP_floor, op2(b->g, OP_add, x, num(b->g, 0.5)));
}

/* a // b of a mask. Upvalues: the operator, what to write instead elsewhere. */
static int value_whole(lua_State *L)
{
    Tracer *t = NULL;
    int like = own_value(L, 1, 2, &t);
    Build b = { .make = make_whole };
    const char *sign = lua_tostring(L, lua_upvalueindex(1));

    if (!t->decide)
        lang_fail(L, lua_tostring(L, lua_upvalueindex(2)),
                  "values have no operator %s", sign);
    check_operands(L, t, sign);
    b.a[0] = value_arg(L, t, 1);
    b.a[1] = value_arg(L, t, 2);
    return build_push(L, like, t, &b);
}

/* Upvalues: the operator, what to write instead. */
static int value_refuse(lua_State *L)
{
    Tracer *t = NULL;

    own_value(L, 1, 2, &t);
    lang_fail(L, lua_tostring(L, lua_upvalueindex(2)),
              "values have no operator %s",
              lua_tostring(L, lua_upvalueindex(1)));
}

static int value_index(lua_State *L)
{
    Tracer *t = NULL;

    own_value(L, 1, 1, &t);
    const char *name = value_name(L, t, 1);
    const char *axes = value_axes(L, t, t->g->n[value_test(L, 1)->r].axes);
    const char *key = luaL_tolstring(L, 2, NULL);
    bool entry = lua_type(L, 2) != LUA_TSTRING;
    if (entry)
        lang_fail(L, "flin.at(x, \"k\", i) is entry i of axis k", "%s is a "
                  "value (axes: %s): it has no entry [%s]", name, axes, key);
    lua_getfield(L, LUA_REGISTRYINDEX, "flin.table");
    bool function = lua_istable(L, -1)
                 && lua_getfield(L, -1, key) == LUA_TFUNCTION;
    lang_fail(L, function ? lua_pushfstring(L, "flin.%s(%s): what works on "
              "values are functions of flin", key, name) : NULL,
              "%s is a value (axes: %s): it has no field '%s'", name, axes,
              key);
}

static int value_newindex(lua_State *L)
{
    Tracer *t = NULL;

    own_value(L, 1, 1, &t);
    const char *name = value_name(L, t, 1);
    lang_fail(L, "compute a new value; the step returns the new states",
              "%s is a value: its entries cannot be assigned", name);
}

static int value_call(lua_State *L)
{
    Tracer *t = NULL;

    own_value(L, 1, 1, &t);
    lang_fail(L, NULL, "%s is a value, not a function",
              value_name(L, t, 1));
}

static int value_tostring(lua_State *L)
{
    Value *v = value_test(L, 1);

    if (!v || v->t->closed) {
        lua_pushliteral(L, "value of a step that has been traced");
        return 1;
    }
    Build b = { .g = v->t->g, .a = { v->r }, .over = v->t->g->n[v->r].axes,
                .make = make_texts };
    protect(L, v->t->ctx, run_build, &b);
    lua_pushfstring(L, "%s (axes: %s)", b.text[0], b.text[1]);
    return 1;
}

/* Text, so that print works while a step is traced. */
static int value_concat(lua_State *L)
{
    luaL_tolstring(L, 1, NULL);
    luaL_tolstring(L, 2, NULL);
    lua_concat(L, 2);
    return 1;
}

/* ---- the metatable ---- */

typedef struct Event {
    const char *name, *sign;
    lua_CFunction f;
    int op;
    const char *instead;                /* a refused operator's help */
} Event;

static const Event events[] = {
    { "__add", "+", value_binary, OP_add, 0 },
    { "__sub", "-", value_binary, OP_sub, 0 },
    { "__mul", "*", value_binary, OP_mul, 0 },
    { "__div", "/", value_binary, OP_div, 0 },
    { "__lt", "<", value_compare, OP_lt, 0 },
    { "__le", "<=", value_compare, OP_le, 0 },
    { "__eq", "==", value_compare, OP_eq, 0 },
    { "__mod", "%", value_binary, OP_mod, 0 },
    { "__idiv", "//", value_whole, 0, "flin.floor(a / b)" },
    { "__len", "#", value_refuse, 0,
      "flin.sum(x) adds its entries, flin.mean(x) knows how many they are" },
    { "__band", "&", value_refuse, 0, "flin.where(a, b, 0)" },
    { "__bor", "|", value_refuse, 0, "flin.where(a, 1, b)" },
    { "__bxor", "~", value_refuse, 0, "1 - flin.eq(a, b)" },
    { "__bnot", "~", value_refuse, 0, "1 - a" },
    { "__shl", "<<", value_refuse, 0, "a * 2^n" },
    { "__shr", ">>", value_refuse, 0, "a / 2^n" },
};

static const luaL_Reg methods[] = {
    { "__unm", value_unm },
    { "__pow", value_pow },
    { "__index", value_index },
    { "__newindex", value_newindex },
    { "__call", value_call },
    { "__concat", value_concat },
    { "__tostring", value_tostring },
    { NULL, NULL }
};

void value_open(lua_State *L)
{
    luaL_newmetatable(L, VALUE_META);
    luaL_setfuncs(L, methods, 0);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        const Event *e = &events[i];
        bool refused = e->instead;
        if (!refused)
            lua_pushinteger(L, e->op);
        lua_pushstring(L, e->sign);
        if (refused)
            lua_pushstring(L, e->instead);
        lua_pushcclosure(L, e->f, 2);
        lua_setfield(L, -2, e->name);
    }
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}
