/* tensor_math.c -- the little arithmetic that scripts need around a call.
 *
 * Operands are numbers or tensors of one shape; results have the dtype of the
 * first tensor, computed in double.
 */
#include <math.h>
#include <string.h>

#include "tensor.h"

static double add(double a, double b) { return a + b; }
static double sub(double a, double b) { return a - b; }
static double mul(double a, double b) { return a * b; }
static double over(double a, double b) { return a / b; }
static double larger(double a, double b) { return a > b || a != a ? a : b; }
static double lesser(double a, double b) { return a < b || a != a ? a : b; }

static bool same_shape(const Tensor *a, const Tensor *b)
{
    return a->rank == b->rank
           && !memcmp(a->shape, b->shape,
                      (size_t)a->rank * sizeof *a->shape);
}

static double number_arg(lua_State *L, int arg)
{
    if (lua_type(L, arg) != LUA_TNUMBER)
        luaL_error(L, "a tensor and a %s: arithmetic wants tensors and "
                   "numbers", luaL_typename(L, arg));
    return lua_tonumber(L, arg);
}

static int binary(lua_State *L, char sign, double (*f)(double, double))
{
    const Tensor *a = tensor_test(L, 1) ? tensor_check(L, 1) : NULL;
    const Tensor *b = tensor_test(L, 2) ? tensor_check(L, 2) : NULL;
    const Tensor *shape = a ? a : b;
    double x = a ? 0 : number_arg(L, 1), y = b ? 0 : number_arg(L, 2);
    View va, vb, vr;
    int64_t n = 0;

    if (!shape)
        return luaL_error(L, "tensors are wanted here");
    if (a && b && !same_shape(a, b))
        lang_fail(L, "x:expand(axis, n) repeats x along a new axis, "
                  "x:reshape, x:transpose and x:narrow give others", "a %c b "
                  "goes element by element: a has shape %s, but b %s", sign,
                  tensor_shape_text(L, a), tensor_shape_text(L, b));
    Walk wa = walk(L, shape), wb = walk(L, b ? b : shape);
    va = tensor_view(shape);
    vb = tensor_view(b ? b : shape);
    vr = tensor_view(tensor_push(L, shape->dtype, shape->rank, shape->shape));
    for (; wa.left; walk_next(&wa), walk_next(&wb))
        view_set(&vr, n++, f(a ? view_get(&va, wa.at) : x,
                             b ? view_get(&vb, wb.at) : y));
    return 1;
}

static int t_add(lua_State *L) { return binary(L, '+', add); }
static int t_sub(lua_State *L) { return binary(L, '-', sub); }
static int t_mul(lua_State *L) { return binary(L, '*', mul); }
static int t_div(lua_State *L) { return binary(L, '/', over); }
static int t_unm(lua_State *L)
{
    lua_pushnumber(L, -1);
    lua_replace(L, 2);
    return binary(L, '*', mul);
}

/* NaN wins, so that it cannot hide. */
static double reduce(lua_State *L, double start, double (*f)(double, double))
{
    const Tensor *t = tensor_check(L, 1);
    View v = tensor_view(t);
    double r = start;

    for (Walk w = walk(L, t); w.left; walk_next(&w)) {
        double x = view_get(&v, w.at);
        r = r != r ? r : f(x, r);
    }
    return r;
}

static int t_sum(lua_State *L)
{
    lua_pushnumber(L, reduce(L, 0, add));
    return 1;
}

static int t_mean(lua_State *L)
{
    double n = (double)tensor_count(tensor_check(L, 1));

    lua_pushnumber(L, reduce(L, 0, add) / n);
    return 1;
}

static int t_max(lua_State *L)
{
    lua_pushnumber(L, reduce(L, -HUGE_VAL, larger));
    return 1;
}

static int t_min(lua_State *L)
{
    lua_pushnumber(L, reduce(L, HUGE_VAL, lesser));
    return 1;
}

static double larger_abs(double a, double b) { return larger(fabs(a), b); }

static int t_maxabs(lua_State *L)
{
    lua_pushnumber(L, reduce(L, 0, larger_abs));
    return 1;
}

/* t:map(f): a new tensor of f(element) */
static int t_map(lua_State *L)
{
    const Tensor *t = tensor_check(L, 1);
    View v = tensor_view(t), u;
    int64_t n = 0;

    luaL_checktype(L, 2, LUA_TFUNCTION);
    u = tensor_view(tensor_push(L, t->dtype, t->rank, t->shape));
    for (Walk w = walk(L, t); w.left; walk_next(&w)) {
        int ok;
        double x;
        lua_pushvalue(L, 2);
        lua_pushnumber(L, view_get(&v, w.at));
        lua_call(L, 1, 1);
        x = lua_tonumberx(L, -1, &ok);
        if (!ok)
            return luaL_error(L, "map: the function gave a %s, not a number",
                              luaL_typename(L, -1));
        lua_pop(L, 1);
        view_set(&u, n++, x);
    }
    return 1;
}

void tensor_arithmetic(lua_State *L)
{
    static const luaL_Reg meta[] = {
        { "__add", t_add }, { "__sub", t_sub }, { "__mul", t_mul },
        { "__div", t_div }, { "__unm", t_unm }, { NULL, NULL }
    };

    luaL_setfuncs(L, meta, 0);
}

void tensor_reductions(lua_State *L)
{
    static const luaL_Reg methods[] = {
        { "sum", t_sum }, { "mean", t_mean }, { "max", t_max },
        { "min", t_min }, { "maxabs", t_maxabs }, { "map", t_map },
        { NULL, NULL }
    };

    luaL_setfuncs(L, methods, 0);
}
