/* options.c -- what stands in a method's table: options, sizes of axes; words
 * that are none, and what may be meant.
 */
#include <ctype.h>
#include <string.h>

#include "../compiler/mask.h"
#include "bind.h"
#include "value.h"

/* ---- words ---- */

Variant *variant_check(lua_State *L, int arg)
{
    Variant *v = luaL_testudata(L, arg, VARIANT_META);

    if (!v || !v->step)
        lang_fail(L, "call methods with a colon: v:forward{...}",
                  "a variant is wanted here, not %s", type_text(L, arg));
    return v;
}

bool axis_name_ok(const char *s)
{
    if ((!isalpha((unsigned char)*s) && *s != '_') || strlen(s) > 20)
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && *s != '_')
            return false;
    return true;
}

bool in_list(const char *word, const char *const *list, int n)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(word, list[i]))
            return true;
    return false;
}

const char *words_text(lua_State *L, const char *const *list, int n)
{
    luaL_Buffer b;

    luaL_buffinit(L, &b);
    for (int i = 0; i < n; i++) {
        luaL_addstring(&b, i ? " " : "");
        luaL_addstring(&b, list[i]);
    }
    luaL_pushresult(&b);
    return lua_tostring(L, -1);
}

const char *suggest(lua_State *L, const char *word, const char *what,
                    const char *const *list, int n)
{
    const char *near = nearest_name(word, list, n);
    const char *all = words_text(L, list, n);

    if (near)
        return lua_pushfstring(L, "did you mean '%s'? %s: %s", near, what,
                               all);
    return lua_pushfstring(L, "%s: %s", what, n ? all : "none");
}

/* ---- options ---- */

/* Is `key` the axis's name, or that in capitals? */
static bool names_axis(const char *key, const char *axis)
{
    bool upper = true, same = strlen(key) == strlen(axis);

    if (!strcmp(key, axis))
        return true;
    for (int i = 0; same && key[i]; i++)
        upper = upper && key[i] == toupper((unsigned char)axis[i]);
    return same && upper;
}

static bool is_axis(const Graph *g, const char *key)
{
    for (int ax = AX_DIM; ax < g->naxes; ax++)
        if (names_axis(key, g->axis[ax].name))
            return true;
    return false;
}

void check_options(lua_State *L, const char *what, const Graph *g, int arg,
                   const char *const *also, int n)
{
    if (lua_isnoneornil(L, arg))
        return;
    if (!lua_istable(L, arg))
        lang_fail(L, NULL, "%s: a table of options is wanted, not %s", what,
                  type_text(L, arg));
    for (lua_pushnil(L); lua_next(L, arg); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            lang_fail(L, "options have names: K = 64", "%s: there is no option"
                      " [%s]", what, luaL_tolstring(L, -2, NULL));
        const char *key = lua_tostring(L, -2);
        bool known = is_axis(g, key);
        for (int i = 0; i < n; i++)
            known = known || !strcmp(key, also[i]);
        if (!known)
            lang_fail(L, suggest(L, key, "sizes of axes (K = 64), or", also,
                                 n), "%s: there is no option '%s'", what, key);
    }
}

lua_Integer option_int(lua_State *L, const char *what, int arg,
                       const char *name, lua_Integer usual)
{
    int whole = 1;

    if (!lua_istable(L, arg))
        return usual;
    if (raw_field(L, arg, name) != LUA_TNIL)
        usual = lua_tointegerx(L, -1, &whole);
    whole = whole && lua_type(L, -1) != LUA_TSTRING;
    if (!whole || (usual < 0 && !lua_isnil(L, -1)))
        lang_fail(L, NULL, "%s: %s = %s: a whole number%s is wanted", what,
                  name, shown_text(L, -1), whole ? ", 0 or more," : "");
    lua_pop(L, 1);
    return usual;
}

bool option_flag(lua_State *L, const char *what, int arg, const char *name)
{
    if (!lua_istable(L, arg))
        return false;
    int type = raw_field(L, arg, name);
    bool on = lua_toboolean(L, -1);
    if (type != LUA_TNIL && type != LUA_TBOOLEAN)
        lang_fail(L, NULL, "%s: %s = %s: true or false is wanted", what, name,
                  shown_text(L, -1));
    lua_pop(L, 1);
    return on;
}

static bool is_angle(const Graph *g, int ax)
{
    for (Ref r = 1; r < g->len; r++)
        if (op_is(g->n[r].op, SPREADS) && g->n[r].over == AXIS(ax))
            return true;
    return false;
}

/* How long an axis must be for the step to run: entries that it takes, pairs
 * that angles turn. True if one grew. */
static bool grow_least(const Graph *g, const int32_t *size, int32_t *least)
{
    bool grew = false;

    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        int from = n->over ? lowest(n->over) : 0;
        bool entry = op_has(n->op, INDEX);
        int to = entry ? from : n->index;
        int32_t want = entry ? n->index + 1
            : size[from] ? size[from] : least[from];
        if (!op_is(n->op, MOVES | SPREADS))
            continue;
        if (op_is(n->op, SPREADS))
            want *= 2;
        if (op_is(n->op, RENAMES) && want < least[to])
            to = from, want = least[n->index];
        if (want > least[to] && want <= AXIS_MAX) {
            least[to] = want;
            grew = true;
        }
    }
    return grew;
}

void sizes_arg(lua_State *L, const char *what, const Graph *g, int arg,
               int32_t usual, int32_t size[NAXES])
{
    int32_t least[NAXES] = { 0 };
    int most = g->layer ? LAYER_AXIS_MAX : AXIS_MAX;

    memset(size, 0, NAXES * sizeof *size);
    for (int ax = AX_DIM; ax < g->naxes; ax++) {
        const char *name = g->axis[ax].name;
        char upper[32];
        for (size_t i = 0; i <= strlen(name); i++)
            upper[i] = (char)toupper((unsigned char)name[i]);
        lua_Integer n = option_int(L, what, arg, name, -1);
        if (n < 0 && strcmp(upper, "B") && strcmp(upper, "T")
            && (g->layer || strcmp(upper, "H")))
            n = option_int(L, what, arg, upper, -1);
        if (n == 0 || n > most)
            lang_fail(L, NULL, "%s: %s = %lld: axis '%s' can be from 1 to %d "
                      "long", what, upper, (long long)n, name, most);
        if (n > 0 && g->axis[ax].size && n != g->axis[ax].size)
            lang_fail(L, NULL, "%s: the variant fixes axis '%s' at %d", what,
                      name, g->axis[ax].size);
        size[ax] = n > 0 ? (int32_t)n : g->axis[ax].size;
    }
    sizes_complete(g, size, false);
    while (grow_least(g, size, least))
        ;
    for (int ax = AX_DIM; ax < g->naxes; ax++)
        if (!size[ax] && !is_angle(g, ax))
            size[ax] = usual > least[ax] ? usual : least[ax];
    sizes_complete(g, size, true);
}

int way_arg(lua_State *L, const char *what, int arg, const Variant *v)
{
    static const char *const ways[] = { "first", "last" };
    const char *from = NULL;
    bool two = v->step->mask && v->step->mask->way[1];

    if (lua_istable(L, arg) && raw_field(L, arg, "from") != LUA_TNIL)
        from = luaL_tolstring(L, -1, NULL);
    for (int w = 0; w < 2 && two && from; w++)
        if (!strcmp(from, ways[w]) && v->step->mask->way[w])
            return w;
    if (two)
        lang_fail(L, v->step->mask->way[0] ? "from = \"first\": as far as the "
                  "diagonal; from = \"last\": above it" : "from = \"last\"",
                  "%s: %s has a plan for each direction", what, v->step->name);
    if (from)
        lang_fail(L, NULL, "%s: %s goes from the first token on alone", what,
                  v->step->name);
    return -1;
}

const Graph *step_of_way(const Variant *v, int way)
{
    return way < 0 ? v->step : v->step->mask->way[way];
}

void refuse_pairs(lua_State *L, const Variant *v, const char *method)
{
    if (v->step->mask)
        lang_fail(L, strcmp(method, "plan") ? NULL : "machine = \"h200\" has "
                  "one, as a table", "%s: a mask over all pairs of tokens has "
                  "no plan", method);
}

void refuse_layer(lua_State *L, const Variant *v, const char *method)
{
    if (v->step->layer)
        lang_fail(L, "v.form shows its parts; the variants that it calls have "
                  "it", "%s: %s is a layer: there is no v:%s of layers yet",
                  method, v->step->name, method);
}
