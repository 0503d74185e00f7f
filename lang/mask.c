/* mask.c -- masks written in Lua: traced along every path, compared with the
 * plain function on numbers, factored, lowered to a step. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../compiler/scores.h"
#include "mask_trace.h"
#include "value.h"

/* ---- the C side of a trace, protected ---- */

typedef struct Ask {
    MaskTrace *t;
    Ref cond, value, of[2];
    Region in[2];
    int verdict;
} Ask;

static void run_decide(Ctx *c, void *ud)
{
    Ask *a = ud;

    (void)c;
    a->verdict = mask_decide(a->t->mask, a->cond, &a->t->at, a->in);
}

/* The trail's next choice; it remembers a new one, whose other side has its
 * turn in a later run. */
static bool choose(MaskTrace *t, lua_State *L)
{
    if (t->at_choice == t->nchoices) {
        if (t->nchoices == MAX_CHOICES)
            lang_fail(L, "compare i and j in fewer places",
                      "one path of the mask makes more than %d choices",
                      MAX_CHOICES);
        t->choice[t->nchoices++] = true;
    }
    return t->choice[t->at_choice++];
}

static void run_remainders(Ctx *c, void *ud)
{
    Ask *a = ud;

    (void)c;
    a->verdict = mask_of_remainders(a->t->mask, a->cond);
}

/* As it was on this path, or a choice. */
static bool decide_remainder(MaskTrace *t, lua_State *L, Ref cond)
{
    Gates *k = &t->gates;

    for (int n = 0; n < k->n; n++)
        if (k->cond[n] == cond)
            return k->on[n];
    if (k->n == MAX_GATES)
        lang_fail(L, "compare i and j in fewer places",
                  "one path of the mask compares more than %d remainders",
                  MAX_GATES);
    k->cond[k->n] = cond;
    k->on[k->n] = choose(t, L);
    return k->on[k->n++];
}

static void run_bounded(Ctx *c, void *ud)
{
    Ask *a = ud;

    (void)c;
    a->verdict = mask_bounded(a->t->mask, a->cond, &a->of[1], &a->of[0]);
}

/* One comparison: what follows from the path so far, or a choice. */
static bool decide_one(MaskTrace *t, lua_State *L, Ref cond)
{
    Ask a = { .t = t, .cond = cond };

    if (t->mask->g->n[cond].op != OP_num) {
        protect(L, t->tracer.ctx, run_remainders, &a);
        if (a.verdict)
            return decide_remainder(t, L, cond);
        protect(L, t->tracer.ctx, run_bounded, &a);
        if (a.verdict)
            return decide_one(t, L, a.of[1])
                || (decide_one(t, L, a.of[0]) && decide_remainder(t, L, cond));
    }
    protect(L, t->tracer.ctx, run_decide, &a);
    if (a.verdict >= 0)
        return a.verdict;
    bool yes = choose(t, L);
    t->at = a.in[yes];
    return yes;
}

static void make_less(Ctx *c, void *ud)
{
    Ask *a = ud;
    Graph *g = a->t->mask->g;
    const Node n = g->n[a->cond];

    (void)c;
    a->cond = op2(g, OP_lt, n.a[0], n.a[1]);
    a->value = op2(g, OP_lt, n.a[1], n.a[0]);
}

static void run_decidable(Ctx *c, void *ud)
{
    Ask *a = ud;

    (void)c;
    a->verdict = mask_decidable(a->t->mask, a->cond);
}

/* Documents: what a token is in, read at both. */
static void refuse_documents(lua_State *L, MaskTrace *t, Ref cond)
{
    const Mask *m = t->mask;
    const Node *n = &m->g->n[cond];
    const Node *a = &m->g->n[n->a[0]], *b = &m->g->n[n->a[1]];

    if (a->op != OP_input || b->op != OP_input)
        return;
    const Leaf *x = &m->leaf[a->index], *y = &m->leaf[b->index];
    if (x->kind != LEAF_TOKEN || y->kind != LEAF_TOKEN || x->side == y->side
        || strcmp(x->name, y->name))
        return;
    lang_fail(L, lua_pushfstring(L, "give the call the documents' ends, "
              "cu_seqlens = {0, 5, 12}: what is masked is then not computed; "
              "or weigh with flin.eq(p.%s[i], p.%s[j])", x->name, x->name),
              "cannot branch on data: whether %s is the same at i and j is "
              "known only when the variant runs", x->name);
}

static void run_unfold(Ctx *c, void *ud)
{
    Ask *a = ud;

    (void)c;
    a->verdict = mask_unfold(a->t->mask, a->cond, &a->value, a->of);
}

/* a == b is asked as a < b, then b < a: each outcome is one region. */
static bool decide(Tracer *tracer, lua_State *L, Ref cond)
{
    MaskTrace *t = tracer->ud;
    Ask a = { .t = t, .cond = cond };

    protect(L, tracer->ctx, run_unfold, &a);
    if (a.verdict)
        return decide(tracer, L, a.of[decide_one(t, L, a.value)]);
    if (t->mask->g->n[cond].op != OP_eq)
        return decide_one(t, L, cond);
    protect(L, tracer->ctx, run_decidable, &a);
    if (!a.verdict) {                   /* of remainders, nothing is ordered */
        protect(L, tracer->ctx, run_remainders, &a);
        if (a.verdict)
            return decide_remainder(t, L, cond);
    }
    if (!a.verdict)
        refuse_documents(L, t, cond);
    if (!a.verdict)
        refuse_equality(L, tracer, cond);
    protect(L, tracer->ctx, make_less, &a);
    return !decide_one(t, L, a.cond) && !decide_one(t, L, a.value);
}

static void make_position(Ctx *c, void *ud)
{
    Ask *a = ud;

    (void)c;
    a->value = mask_leaf(a->t->mask, LEAF_POSITION,
                         a->verdict ? SIDE_J : SIDE_I, "", 0);
}

/* ---- paths ---- */

static void push_position(lua_State *L, MaskTrace *t, int owner, int is_j)
{
    Ask a = { .t = t, .verdict = is_j };

    protect(L, t->tracer.ctx, make_position, &a);
    value_push(L, owner, &t->tracer, a.value);
}

static void make_score(Ctx *c, void *ud)
{
    Ask *a = ud;

    (void)c;
    a->value = mask_leaf(a->t->mask, LEAF_SCORE, 0, "", 0);
}

/* The last choice that was `yes` becomes `no`; false: there is none. */
static bool next_path(MaskTrace *t)
{
    while (t->nchoices && !t->choice[t->nchoices - 1])
        t->nchoices--;
    if (t->nchoices)
        t->choice[t->nchoices - 1] = false;
    return t->nchoices > 0;
}

static void fail_at_end(lua_State *L, MaskTrace *t, const char *help,
                        const char *message)
{
    Error e = { .code = ERR_USER, .line = t->last_line };

    snprintf(e.file, sizeof e.file, "%s", t->tracer.ctx->file);
    snprintf(e.message, sizeof e.message, "%s", message);
    snprintf(e.help, sizeof e.help, "%s", help);
    lang_raise(L, &e);
}

/* The number that the function with n arguments, on top, returns; both popped.
 * what: its name. */
static Ref call_number(lua_State *L, MaskTrace *t, int n, const char *what)
{
    int top = lua_gettop(L) - n;

    lua_call(L, n, LUA_MULTRET);
    if (lua_gettop(L) > top)
        fail_at_end(L, t, "one variant for each weight: a layer's function "
                    "adds their results, or takes what it likes of them",
                    lua_pushfstring(L, "the %s returns %d values, and is one "
                                    "number", what, lua_gettop(L) - top + 1));
    lua_settop(L, top);
    if (!value_test(L, -1) && lua_type(L, -1) != LUA_TNUMBER
        && !lua_isboolean(L, -1))
        fail_at_end(L, t, "every path through the function returns a "
                    "number: p.x[j], not p.x", lua_pushfstring(L,
                    lua_isnil(L, -1) ? "the %s returns nothing"
                    : "the %s returns what is not a number", what));
    Ref r = value_arg(L, &t->tracer, -1);
    lua_pop(L, 1);
    return r;
}

/* What the score function, or nothing, makes of a score on this path. */
static Ref trace_score(lua_State *L, MaskTrace *t, int fn, int owner)
{
    Ask a = { .t = t };

    protect(L, t->tracer.ctx, make_score, &a);
    if (!t->score)
        return a.value;
    lua_pushvalue(L, t->score);
    value_push(L, owner, &t->tracer, a.value);
    push_position(L, t, owner, 0);
    push_position(L, t, owner, 1);
    lua_pushvalue(L, fn + 1);
    return call_number(L, t, 4, "score");
}

static void run_join(Ctx *c, void *ud)
{
    (void)c;
    mask_join_gated(((MaskTrace *)ud)->mask);
}

/* Function and parameters are at fn and fn + 1. */
static void trace_paths(lua_State *L, MaskTrace *t, int fn, int owner)
{
    Mask *m = t->mask;

    do {
        if (m->npaths == MAX_TRACED)
            fail_at_end(L, t, "compare i - j with fewer numbers; loops over "
                        "tokens belong to the compiler", "the mask takes too "
                        "many paths through its comparisons (limit: 64)");
        t->at = region_all();
        t->at_choice = 0;
        t->gates.n = 0;
        lua_pushvalue(L, fn);
        push_position(L, t, owner, 0);
        push_position(L, t, owner, 1);
        lua_pushvalue(L, fn + 1);
        Ref r = call_number(L, t, 3, "mask"), s = 0;
        if (m->softmax && !is_num(m->g, r, 0))
            s = trace_score(L, t, fn, owner);
        m->gates[m->npaths] = t->gates;
        m->path[m->npaths++] = (MaskPath){ t->at, r, s };
    } while (next_path(t));
    protect(L, t->tracer.ctx, run_join, t);
}

/* ---- factoring, with the culprit underlined ---- */

/* By factors; where mode = "quadratic" asks for it of a mask that has none, or
 * that ends, and of a softmax, by all pairs. Fails where neither can be. */
static void run_factor(Ctx *c, void *ud)
{
    MaskTrace *t = ud;
    Mask *m = t->mask;
    Error why;
    Reach reach;
    bool factors;

    mask_declare_signs(t);
    factors = !m->softmax && mask_factor(m, &t->above, &why);
    if (t->quadratic && m->whole)
        mask_own_pieces(m);             /* those above the diagonal, too */
    if (factors && !(t->quadratic && mask_ends(m, &reach) && reach.width))
        return;
    if (!t->quadratic && !m->softmax)
        ctx_raise(c, &why);
    mask_pairs(m, t->args);
}

/* The text without spaces and prefixes; at[] says where each letter was. */
static size_t squeeze(const char *s, char *out, int *at, size_t size)
{
    size_t n = 0;

    for (const char *p = s; *p && n + 1 < size; p++) {
        bool word = p > s && (isalnum((unsigned char)p[-1]) || p[-1] == '_');
        if (isspace((unsigned char)*p))
            continue;
        if (!word && !strncmp(p, "p.", 2)) {
            p++;
        } else if (!word && !strncmp(p, "flin.", 5)) {
            p += 4;
        } else {
            at[n] = (int)(p - s);
            out[n++] = *p;
        }
    }
    out[n] = 0;
    return n;
}

/* Puts a line of carets below the source line, where the expression that the
 * message names ("factor: EXPRESSION couples") stands in it as it is. */
static void underline(lua_State *L, Error *e)
{
    char name[128], line[256], text[sizeof e->message];
    int at[256], unused[128];
    const char *from = strstr(e->message, "factor: ");
    const char *to = from ? strstr(from, " couples") : NULL;

    if (!to || !source_line(L, e->file, e->line))
        return;
    const char *source = lua_tostring(L, -1);
    snprintf(text, sizeof text, "%.*s", (int)(to - from - 8), from + 8);
    size_t n = squeeze(text, name, unused, sizeof name);
    squeeze(source, line, at, sizeof line);
    const char *p = strstr(line, name);
    size_t head = strcspn(e->message, "\n");
    if (p && n) {
        int start = at[p - line], end = at[p - line + (int)n - 1];
        int digits = snprintf(NULL, 0, "%d", e->line);
        snprintf(text, sizeof text, "%.*s\n  %*s | %*s", (int)head,
                 e->message, digits, "", start, "");
        for (size_t k = strlen(text); start++ <= end && k + 1 < sizeof text;)
            memcpy(text + k++, "^", 2);
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s", e->message + head);
        memcpy(e->message, text, sizeof text);
    }
    lua_pop(L, 1);
}

static void factor(lua_State *L, MaskTrace *t)
{
    Ctx *c = t->tracer.ctx;

    if (ctx_protect(c, run_factor, t))
        return;
    Error e = c->err;
    if (!e.line)
        e.line = t->first_line;
    underline(L, &e);
    lang_raise(L, &e);
}

/* ---- a whole trace ---- */

static void run_new(Ctx *c, void *ud)
{
    Tracer *step = ud;
    MaskTrace *t = ctx_alloc(c, sizeof *t);

    t->mask = mask_new(c);
    t->args = step->g ? step->g : graph_new(c, "mask", 0);
    t->tracer = (Tracer){ .ctx = c, .g = t->mask->g, .decide = decide,
                          .ud = t };
    step->ud = t;
}

typedef struct Text { const char *s; char *copy; } Text;

static void run_copy(Ctx *c, void *ud)
{
    Text *t = ud;

    t->copy = ctx_string(c, t->s);
}

static void find_source(lua_State *L, MaskTrace *t, int fn)
{
    lua_Debug ar;

    lua_pushvalue(L, fn);
    lua_getinfo(L, ">S", &ar);
    bool named = *ar.source == '@' || *ar.source == '=';
    Text text = { named ? ar.source + 1 : ar.short_src, NULL };
    protect(L, t->tracer.ctx, run_copy, &text);
    t->tracer.ctx->file = text.copy;
    t->first_line = ar.linedefined;
    t->last_line = ar.lastlinedefined;
}

/* What a definition says beside its mask. */
typedef struct Wish {
    bool quadratic, softmax, none;      /* none: there is no mask */
    bool whole;                         /* causal = false */
    double scale;                       /* of scores; 0: the usual one */
    int64_t tokens;                     /* kept for v:step; 0: as the mask
                                           says */
    int score;                          /* where that function is; or 0 */
} Wish;

/* Traces and factors the function at `fn`, with what the definition at `def`
 * (0: none) declares; `step` gives the context and, if any, the step. */
static MaskTrace *trace(lua_State *L, int fn, int def, int owner,
                        Tracer *step, const Wish *w)
{
    Tracer start = *step;

    protect(L, step->ctx, run_new, &start);
    MaskTrace *t = start.ud;
    t->owner = owner;
    t->mask->softmax = w->softmax;
    t->mask->scale = w->scale;
    t->mask->whole = w->whole;
    t->score = w->score;
    const char *file = step->ctx->file;
    find_source(L, t, w->none && w->score ? w->score : fn);
    mask_declare(L, t, def);
    lua_pushvalue(L, fn);
    int at = lua_gettop(L);
    mask_push_symbols(L, t, owner);
    trace_paths(L, t, at, owner);
    mask_compare(L, t, at, false);
    if (w->score)
        mask_compare(L, t, w->score, true);
    check_compared(L, &t->tracer);
    mask_check_read(L, t);
    lua_settop(L, at - 1);
    t->tracer.closed = true;
    t->quadratic = w->quadratic;
    t->tokens = w->tokens;
    factor(L, t);
    if (file)
        step->ctx->file = file;
    return t;
}

static void run_step(Ctx *c, void *ud)
{
    MaskTrace *t = ud;

    (void)c;
    if (t->args->mask)
        mask_cache(t->mask, mask_inputs(t->args), t->tokens);
    else if (t->above)
        mask_ways(t->mask, t->above, t->args);
    else {
        mask_step(t->mask, t->args);
        t->args->scores = scores_window(t->mask, t->args);
        t->args->window = mask_window(t->mask, t->args);
        if (!t->args->scores && t->args->window)
            t->args->scores = scores_blocks(t->mask, t->args,
                                            t->args->window);
    }
}

static bool wants_quadratic(lua_State *L, int def)
{
    if (lua_getfield(L, def, "mode") == LUA_TNIL)
        return false;
    const char *mode = lua_tostring(L, -1);
    if (mode && !strcmp(mode, "linear"))
        return false;
    if (!mode || strcmp(mode, "quadratic"))
        lang_fail(L, "mode = \"quadratic\" runs a mask that does not factor, "
                  "each pair of tokens by itself", "flin.variant: there is no"
                  " mode %s", luaL_tolstring(L, -1, NULL));
    return true;
}

static bool wants_softmax(lua_State *L, int def)
{
    if (lua_getfield(L, def, "normalise") == LUA_TNIL)
        return false;
    const char *how = lua_tostring(L, -1);
    if (!how || strcmp(how, "softmax"))
        lang_fail(L, "normalise = \"softmax\" makes the weights of a row add "
                  "up to 1 (those of a column end with tokens still to come); "
                  "leave it out for their plain sum", "flin.variant: "
                  "normalise cannot be %s", luaL_tolstring(L, -1, NULL));
    return true;
}

/* Do tokens behind i weigh, too? */
static bool wants_whole(lua_State *L, int def)
{
    int type = lua_getfield(L, def, "causal");

    if (type != LUA_TNIL && type != LUA_TBOOLEAN)
        lang_fail(L, "causal = false lets tokens behind i weigh, too",
                  "flin.variant: causal must be true or false, not %s",
                  type_text(L, -1));
    return type == LUA_TBOOLEAN && !lua_toboolean(L, -1);
}

/* How many tokens are to be kept, at most; 0: it is not said. */
static int64_t wants_tokens(lua_State *L, int def, bool pairs)
{
    int type = lua_getfield(L, def, "tokens"), whole;
    lua_Integer n = lua_tointegerx(L, -1, &whole);

    if (type == LUA_TNIL)
        return 0;
    if (!pairs)
        lang_fail(L, "leave it out: a state is as large after a million tokens",
                  "flin.variant: tokens says how many keys and values v:step "
                  "keeps of mode = \"quadratic\" and of softmax");
    if (type != LUA_TNUMBER || !whole || n < 1 || n > MAX_CACHED)
        lang_fail(L, "tokens = 4096", "flin.variant: tokens must be a whole "
                  "number from 1 to %d, not %s", MAX_CACHED,
                  shown_text(L, -1));
    return n;
}

/* Pushes the fields that it looks at. */
static Wish wish_of(lua_State *L, int def)
{
    Wish w = { .quadratic = wants_quadratic(L, def),
               .softmax = wants_softmax(L, def),
               .whole = wants_whole(L, def) };
    w.tokens = wants_tokens(L, def, w.quadratic || w.softmax);
    int score = lua_getfield(L, def, "score");

    w.none = lua_getfield(L, def, "mask") == LUA_TNIL;
    lua_pop(L, 1);
    if (w.quadratic && w.softmax)
        lang_fail(L, "leave out mode", "flin.variant: mode = \"quadratic\" "
                  "is the plain sum over all pairs, normalise = \"softmax\" "
                  "another one");
    if (score != LUA_TNIL && !w.softmax)
        lang_fail(L, "add normalise = \"softmax\"", "flin.variant: score is "
                  "what softmax takes of a pair's score");
    if (score != LUA_TNIL && score != LUA_TFUNCTION)
        lang_fail(L, "score = function (s, i, j, p) return s end",
                  "flin.variant: score must be a function, not %s",
                  type_text(L, -1));
    w.score = score == LUA_TNIL ? 0 : lua_gettop(L);
    if (lua_getfield(L, def, "scale") == LUA_TNIL)
        return w;
    w.scale = lua_tonumber(L, -1);
    if (!w.softmax)
        lang_fail(L, "scale q", "flin.variant: scale is of softmax's scores");
    if (lua_type(L, -1) != LUA_TNUMBER || !(w.scale > 0) || isinf(w.scale))
        lang_fail(L, "leave it out for one over the square root of the keys' "
                  "size", "flin.variant: scale must be a positive number, not "
                  "%s", shown_text(L, -1));
    return w;
}

/* What stands for a mask where softmax has none. */
static const char causal[] =
    "return function (i, j) if i < j then return 0 end return 1 end";
static const char whole[] = "return function (i, j) return 1 end";

void mask_push(lua_State *L, int def)
{
    const char *text = wants_whole(L, def) ? whole : causal;

    lua_getfield(L, def, "mask");
    lua_remove(L, -2);
    if (!lua_isnil(L, -1))
        return;
    lua_pop(L, 1);
    if (luaL_loadbuffer(L, text, strlen(text), "=causal") != LUA_OK)
        lua_error(L);
    lua_call(L, 0, 1);
}

void mask_trace(lua_State *L, int def, int fn, int owner, Tracer *t)
{
    int top = lua_gettop(L);

    def = lua_absindex(L, def);
    owner = lua_absindex(L, owner);
    luaL_checkstack(L, 20, NULL);
    Wish w = wish_of(L, def);
    MaskTrace *mt = trace(L, fn, def, owner, t, &w);
    mask_declare_read(L, mt);
    if (lua_getfield(L, def, "transition") == LUA_TNIL)
        protect(L, t->ctx, run_step, mt);
    else
        mask_transition(L, mt, lua_gettop(L), owner, t);
    lua_settop(L, top);
}

/* ---- flin.mask_report, flin.mask_values ---- */

#define OWNER_META "flin.mask_owner"

static int owner_gc(lua_State *L)
{
    Ctx **c = luaL_checkudata(L, 1, OWNER_META);

    if (*c)
        ctx_free(*c);
    *c = NULL;
    return 0;
}

static Ctx *push_owner(lua_State *L)
{
    Ctx **c = push_owned(L, sizeof *c, OWNER_META, owner_gc);

    return *c = sandbox_ctx(L);
}

typedef struct Words { Mask *m; const char *part; int n; char *s; } Words;

static void run_words(Ctx *c, void *ud)
{
    Words *w = ud;

    (void)c;
    w->s = product_text(w->m, &w->m->product[w->n], w->part);
}

/* Pushes the table of product n, and adds its line to the buffer at `text`. */
static void push_product(lua_State *L, MaskTrace *t, int n, int text)
{
    static const char *const part[] = { "row", "column", "decay", "band" };

    lua_newtable(L);
    lua_pushvalue(L, text);
    for (int k = 0; k < 4; k++) {
        Words w = { t->mask, part[k], n, NULL };
        protect(L, t->tracer.ctx, run_words, &w);
        lua_pushstring(L, w.s);
        lua_setfield(L, -3, part[k]);
        lua_pushfstring(L, "%s%s %s", k ? ", " : "\n  ", part[k], w.s);
        lua_concat(L, 2);
    }
    lua_replace(L, text);
}

/* (fn, def) -> the report of a mask that factors; else an error. */
static int report_factors(lua_State *L)
{
    Tracer start = { 0 };

    lua_settop(L, 2);
    start.ctx = push_owner(L);
    int def = lua_istable(L, 2) ? 2 : 0;
    MaskTrace *t = trace(L, 1, def, 3, &start, &(Wish){ .scale = 0 });
    int n = t->mask->nproducts;
    lua_newtable(L);
    lua_pushfstring(L, "the mask factors into %d product%s", n,
                    n == 1 ? "" : "s");
    int text = lua_gettop(L);
    for (int k = 0; k < n; k++) {
        push_product(L, t, k, text);
        lua_rawseti(L, text - 1, k + 1);
    }
    lua_setfield(L, text - 1, "text");
    lua_pushboolean(L, 1);
    lua_setfield(L, -2, "factors");
    return 1;
}

static int report_text(lua_State *L)
{
    lua_getfield(L, 1, "text");
    return 1;
}

static int mask_report(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    if (!lua_isnoneornil(L, 2))
        luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    lua_pushcfunction(L, report_factors);
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 2);
    if (lua_pcall(L, 2, 1, 0) != LUA_OK) {
        luaL_tolstring(L, -1, NULL);
        lua_newtable(L);
        lua_insert(L, -2);
        lua_setfield(L, -2, "text");
        lua_pushboolean(L, 0);
        lua_setfield(L, -2, "factors");
    }
    lua_newtable(L);
    lua_pushcfunction(L, report_text);
    lua_setfield(L, -2, "__tostring");
    lua_setmetatable(L, -2);
    return 1;
}

enum { VALUES_MAX = 2048 };

static int mask_values(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_Integer n = luaL_checkinteger(L, 2);
    luaL_argcheck(L, n > 0 && n <= VALUES_MAX, 2, "1 to 2048 tokens");
    if (lua_isnoneornil(L, 3)) {
        lua_settop(L, 2);
        lua_newtable(L);
    }
    luaL_checktype(L, 3, LUA_TTABLE);
    lua_settop(L, 3);
    lua_createtable(L, (int)n, 0);
    mask_push_given(L, 3, (int)n);
    for (int i = 0; i < (int)n; i++) {
        lua_createtable(L, (int)n, 0);
        lua_pushvalue(L, 5);
        for (int j = 0; j < (int)n; j++) {
            lua_pushnumber(L, mask_plain(L, 1, i, j));
            lua_rawseti(L, 6, j + 1);
        }
        lua_pop(L, 1);
        lua_rawseti(L, 4, i + 1);
    }
    lua_settop(L, 4);
    return 1;
}

void mask_open(lua_State *L)
{
    lua_pushcfunction(L, mask_report);
    lua_setfield(L, -2, "mask_report");
    lua_pushcfunction(L, mask_values);
    lua_setfield(L, -2, "mask_values");
}
