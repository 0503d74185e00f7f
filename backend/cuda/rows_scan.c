/* rows_scan.c -- a step whose states are carried, entry by entry, as kernels
 * over rows: x = a x + b, of which a and b know of no state.
 *
 * A sequence is cut in pieces, which are walked side by side: what each makes
 * of any x is found first (`ends`), the blocks of the next kernel put together
 * what lies before them, and walk. Forward that is all; on the way back the
 * second kernel leaves the states before each token, and finds what each piece
 * makes of an adjoint (`states`), and a third one goes from the last tokens to
 * the first (`back`). Where a sequence begins or ends, and where an a is 0,
 * nothing is left of what was carried.
 */
#include "rows_text.h"

#include <string.h>

/* ---- what a call takes ---- */

static int lanes_of(const Rows *p, const RowsShape *s, AxisSet axes)
{
    return axes & p->lanes ? s->each : 1;
}

static int numbers_of(const Rows *p, const RowsShape *s, int j)
{
    return lanes_of(p, s, p->step->st[j].axes);
}

/* Before state j's, in device memory, of a block: stretches; numbers. */
static int64_t before(const Rows *p, const RowsShape *s, int count)
{
    int64_t n = 0;

    for (int j = 0; j < count; j++)
        n += numbers_of(p, s, j) * (s->group + ROW_THREADS);
    return n;
}

static int64_t kept_before(const Rows *p, const RowsShape *s, int count)
{
    int64_t n = 0;

    for (int j = 0; j < count; j++)
        n += numbers_of(p, s, j) * ROW_THREADS;
    return n;
}

RowsScan rows_scan(const Rows *p, const RowsCall *call)
{
    RowsShape s = rows_shape(p, call);
    RowsScan r = { .groups = ROW_THREADS / s.group };

    r.serial = call->T < r.groups;
    bool own = product_is_own(p, call);
    bool back = own && product_goes_back(p, call);
    bool kept = call->backward && call->kept;
    if (!r.serial && !kept)
        r.name[r.n++] = "flin_ends";
    r.name[r.n++] = call->backward ? "flin_states" : "flin_walk";
    if (call->backward)
        r.name[r.n++] = "flin_back";
    for (int i = 0; i < r.n; i++) {
        int also = own && !kept && !i ? product_shared(p, call, false)
                 : back && i == r.n - 1 ? product_shared(p, call, true) : 0;
        int least = carried_shared(p, call);
        r.shared[i] = least > also ? least : also;
    }
    r.states = r.serial ? 0 : 8 * before(p, &s, p->carried);
    r.adjoints = call->backward ? r.states : 0;
    r.kept = call->backward ? 4 * kept_before(p, &s, p->carried) : 0;
    return r;
}

/* ---- numbers of a state ---- */

/* A state of the graph: which of the step's it is or belongs to. */
typedef struct Held {
    int j, at;
    const State *st;
    Ref node;
    int n;                              /* numbers of a lane */
    bool back;
} Held;

static Held held(const Text *t, int j, bool back)
{
    const Rows *p = t->p;
    Held h = { .j = j, .at = back ? p->adjoint[j] : j, .st = &p->step->st[j],
               .back = back };

    h.node = t->g->st[h.at].node;
    h.n = numbers_of(p, &t->shape, j);
    return h;
}

static const char *name_of(const Text *t, const Held *h)
{
    return text_carried(t, h->at);
}

static char *stretch_of(const Text *t, const Held *h)
{
    return ctx_format(t->c, "m%d", h->at);
}

/* "<4, 8, true>" */
static char *kind_of(const Text *t, const Held *h)
{
    return ctx_format(t->c, "<%d, %d, %s>", h->n, t->shape.group,
                      h->back ? "true" : "false");
}

/* Stretches of all blocks, and each thread's own. */
static char *all_of(const Text *t, const Held *h)
{
    return ctx_format(t->c, "((Stretch *)a.%s + a.blocks * %lld)",
                      h->back ? "adjoints" : "carried",
                      (long long)before(t->p, &t->shape, h->j));
}

static char *own_of(const Text *t, const Held *h)
{
    return ctx_format(t->c, "%s + a.blocks * %d + thread", all_of(t, h),
                      h->n * t->shape.group);
}

/* The state before token k of the piece. */
static char *kept_of(const Text *t, const Held *h, const char *k)
{
    const Rows *p = t->p;

    return ctx_format(t->c, "(float *)(a.adjoints + a.blocks * %lld)"
        " + a.blocks * (a.length * %lld + %s * %d) + thread",
        (long long)rows_scan(p, t->call).adjoints,
        (long long)kept_before(p, &t->shape, h->j), k, h->n * ROW_THREADS);
}

static void each_number(const Text *t, const Held *h, const char *text)
{
    PUT(t, "UNROLL\nfor (int z = 0; z < %d; z++)\n%s\n", h->n, text);
}

static void move_state(const Text *t, const Held *h, const char *act,
                       RowsRole role, const char *on)
{
    int arg = rows_arg(t->p, role, h->j);

    bool stores = role == ROW_S1 || role == ROW_DS;
    PUT(t, "if (%s%s) {\n", on, stores && !text_has_lanes(t, h->node)
        ? " && lane == 0" : "");
    text_move(t, &(Moving){ act, text_state(t, arg), text_entries(t, h->node),
              (char *)name_of(t, h), arg, rows_view(t->call, role, h->j),
              h->st->order, h->st->rank, h->node });
    PUT(t, "}\n");
}

static bool has(const Text *t, RowsRole role, int j)
{
    return rows_view(t->call, role, j)->data != NULL;
}

/* A loop over the state's numbers, where `at` stands for one. */
static void open_numbers(const Text *t, const Held *h)
{
    text_open(t, h->node, t->g->n[h->node].axes);
}

static void close_numbers(const Text *t, const Held *h)
{
    text_close(t, t->g->n[h->node].axes);
}

static const char *operand_or(const Text *t, Ref r, const char *none)
{
    return r ? text_operand(t, r) : none;
}

/* ---- a kernel ---- */

static void open_kernel(Text *t, const char *name)
{
    bool serial = rows_scan(t->p, t->call).serial;

    PUT(t, "extern \"C\" __global__ void __launch_bounds__(%d, 2)\n"
        "%s(const __grid_constant__ Args a)\n{\n", ROW_THREADS, name);
    PUT(t, "const int lane = threadIdx.x %% row_group, e0 = lane * row_each;\n"
        "const i64 group = threadIdx.x / row_group, groups = %d;\n"
        "const i64 row = blockIdx.x * groups + group;\n"
        "const bool left = false, own = true;\n"
        "const i64 thread = blockIdx.x * %d + threadIdx.x;\n",
        ROW_THREADS / t->shape.group, ROW_THREADS);
    PUT(t, serial
        ? "const i64 h = row %% a.heads, b = row / a.heads, first = 0;\n"
          "const bool inside = row < a.rows;\n"
        : "const u32 pieces = (u32)a.pieces, whole = blockIdx.x / pieces;\n"
          "const i64 part = blockIdx.x - whole * pieces;\n"
          "const i64 b = whole / (u32)a.heads, h = whole - b * a.heads;\n"
          "const i64 first = (part * groups + group) * a.length;\n"
          "const bool inside = true;\n");
    memset(t->computed, 0, t->g->len);
    t->near = -1;
}

/* What the kernel before it has left is there from here on; what was there
 * before that one began may have been read: not the product that it makes. */
static bool reads_product(const Text *t, const char *name)
{
    RowsScan s = rows_scan(t->p, t->call);

    return s.n > 1 && !strcmp(name, s.name[1]) && !strcmp(s.name[0],
           "flin_ends") && product_is_own(t->p, t->call);
}

static void emit_follow(const Text *t, const char *name)
{
    RowsScan s = rows_scan(t->p, t->call);

    if (strcmp(name, s.name[0]))
        PUT(t, "follow();\n");
    if (strcmp(name, s.name[s.n - 1]))
        PUT(t, "let_follow();\n");
}

/* For sequences without tokens: their states stay. */
static void emit_left(const Text *t, RowsRole from, RowsRole to)
{
    PUT(t, "if (blockIdx.x >= a.blocks) {\n"
        "const i64 at = row - a.blocks * groups, h = at %% a.heads;\n"
        "if (at >= a.nseq * a.heads)\nreturn;\n"
        "const Span s = span_at(a.ends, a.nseq, a.tokens, at / a.heads,\n"
        "at / a.heads);\nif (s.start < s.end)\nreturn;\n");
    for (int j = 0; j < t->p->carried; j++) {
        Held h = held(t, j, false);
        if (!has(t, to, j))
            continue;
        PUT(t, "{\nfloat %s[%d];\n", name_of(t, &h), h.n);
        text_clear(t, name_of(t, &h), h.node);
        if (has(t, from, j))
            move_state(t, &h, "load", from, "true");
        move_state(t, &h, "store", to, "true");
        PUT(t, "}\n");
    }
    PUT(t, "return;\n}\n");
}

/* The token, in the loop over k. */
static void emit_token(const Text *t)
{
    PUT(t, "const i64 t = first + k;\n"
        "const bool live = inside && t < a.tokens;\n");
    if (t->packed)
        PUT(t, "if (live && (t < s.start || t >= s.end))\n"
            "s = span_of(a.ends, a.nseq, a.tokens, b, t);\n");
    PUT(t, "const bool on_0 = live && t >= s.start && t < s.end;\n");
}

static bool is_first(const Text *t, const char *name)
{
    return !strcmp(name, rows_scan(t->p, t->call).name[0]);
}

/* What the first kernel makes for all of them; the next one may begin. */
static void emit_first(Text *t, const char *name)
{
    RowsScan s = rows_scan(t->p, t->call);

    if (!is_first(t, name))
        return;
    emit_follow(t, name);
    if (!product_is_own(t->p, t->call)
        || (t->call->backward && t->call->kept))
        return;
    int near = product_near(t->p, t->call);
    t->near = near < 0 ? -1 : rows_arg(t->p, ROW_IN, t->p->product->as);
    if (near >= 0)
        PUT(t, "const char *near_rows = arena + %d;\n", near);
    product_emit(t, s.serial, false);
}

static void open_walk(Text *t, const char *name)
{
    int late = reads_product(t, name) ? t->p->product->as : -1;

    PUT(t, "const i64 begin = first, steps = a.length;\n");
    ahead_find(t);
    ahead_begin_of(t, late, true);
    if (!is_first(t, name))
        emit_follow(t, name);
    if (late >= 0)
        ahead_begin_of(t, late, false);
    if (t->packed)
        PUT(t, "Span s = { 0, 0, 0 };\n");
    else
        PUT(t, "const Span s = { b, 0, a.tokens };\n");
}

static void open_tokens(const Text *t)
{
    /* the text is read from memory once a call: written out, a loop of few
     * iterations takes longer to read than to run */
    PUT(t, t->back ? "NO_UNROLL\nfor (i64 k = last; k >= 0; k--) {\n"
                   : "NO_UNROLL\nfor (i64 k = 0; k < steps; k++) {\n");
    emit_token(t);
    ahead_move(t);
}

/* ---- what becomes of numbers ---- */

static const Carried *form_of(const Text *t, const Held *h)
{
    return h->back ? &t->p->back[h->j] : &t->p->walk[h->j];
}

static void mark_form(const Text *t, uint8_t *live, const Carried *f)
{
    text_mark(t->g, live, f->gain);
    text_mark(t->g, live, f->rest);
}

/* The first token of a sequence finds its state; one of none finds zero. */
static void begin_state(const Text *t, const Held *h)
{
    PUT(t, "if (live && t == s.start) {\n");
    text_clear(t, name_of(t, h), h->node);
    if (has(t, ROW_S0, h->j))
        move_state(t, h, "load", ROW_S0, "t < s.end");
    PUT(t, "}\n");
}

/* How a zero, and a one, leave the piece so far. */
static void add_walk(const Text *t, const Held *h)
{
    const Carried *f = form_of(t, h);

    PUT(t, "if (live && t == s.start) {\nfloat %s[%d];\n", name_of(t, h),
        h->n);
    text_clear(t, name_of(t, h), h->node);
    if (has(t, ROW_S0, h->j))
        move_state(t, h, "load", ROW_S0, "t < s.end");
    each_number(t, h, ctx_format(t->c, "%s[z] = { 0, %s[z] };",
                                 stretch_of(t, h), name_of(t, h)));
    PUT(t, "}\nif (live) {\n");
    open_numbers(t, h);
    PUT(t, "Stretch &x = %s[%s];\nx = joined(x, { %s, %s });\n",
        stretch_of(t, h), text_place(t, h->node),
        f->cut ? "0.f" : operand_or(t, f->gain, "1.f"),
        operand_or(t, f->rest, "0.f"));
    close_numbers(t, h);
    PUT(t, "}\n");
}

/* What comes in behind a sequence's last token. */
static void begin_adjoint(const Text *t, const Held *h)
{
    text_clear(t, name_of(t, h), h->node);
    if (has(t, ROW_DSTATE, h->j))
        move_state(t, h, "load", ROW_DSTATE, "on_0");
}

/* Of an adjoint, which goes the other way: the token comes before. */
static void add_back(const Text *t, const Held *h)
{
    const Carried *f = form_of(t, h);

    PUT(t, "{\nfloat %s[%d];\nconst bool ends = t == s.end - 1;\n",
        name_of(t, h), h->n);
    PUT(t, "if (ends) {\n");
    begin_adjoint(t, h);
    PUT(t, "}\nif (live) {\n");
    open_numbers(t, h);
    PUT(t, "const float gain = %s, rest = %s;\n",
        f->cut ? "0" : operand_or(t, f->gain, "1"),
        operand_or(t, f->rest, "0"));
    PUT(t, "Stretch &x = %s[%s];\n"
        "x = joined(ends || !on_0 ? Stretch{ 0, !on_0 ? 0 : gain * %s[%s]"
        " + rest }\n: Stretch{ gain, rest }, x);\n", stretch_of(t, h),
        text_place(t, h->node), name_of(t, h), text_place(t, h->node));
    close_numbers(t, h);
    PUT(t, "}\n}\n");
}

/* It is as the token leaves it. */
static void go_on(const Text *t, const Held *h, const char *on)
{
    Ref next = t->g->st[h->at].next;

    PUT(t, "if (live) {\n");
    open_numbers(t, h);
    PUT(t, "%s[%s] = %s%s;\n", name_of(t, h), text_place(t, h->node), on,
        text_operand(t, next));
    close_numbers(t, h);
    PUT(t, "}\n");
}

static void declare_stretches(const Text *t, bool back)
{
    for (int j = 0; j < t->p->carried; j++) {
        Held h = held(t, j, back);
        PUT(t, "Stretch %s[%d];\n", stretch_of(t, &h), h.n);
        each_number(t, &h, ctx_format(t->c, "%s[z] = { 1, 0 };",
                                      stretch_of(t, &h)));
    }
}

static void emit_gather(const Text *t, bool back)
{
    for (int j = 0; j < t->p->carried; j++) {
        Held h = held(t, j, back);
        PUT(t, "gather%s(%s, %s + blockIdx.x * %d);\n", kind_of(t, &h),
            stretch_of(t, &h), all_of(t, &h), h.n * t->shape.group);
        PUT(t, "leave<%d>(%s, a.blocks * %d, %s);\n", h.n, own_of(t, &h),
            ROW_THREADS, stretch_of(t, &h));
    }
}

/* The numbers as the piece finds them. */
static void emit_carry(const Text *t, bool back)
{
    bool serial = rows_scan(t->p, t->call).serial;

    for (int j = 0; j < t->p->carried; j++) {
        Held h = held(t, j, back);
        PUT(t, "float %s[%d];\n", name_of(t, &h), h.n);
        if (serial) {
            text_clear(t, name_of(t, &h), h.node);
            continue;
        }
        PUT(t, "{\nStretch made[%d];\nfind_left<%d>(%s, a.blocks * %d, made);\n"
            "carry_on%s(%s + (i64)whole * a.pieces * %d, part, a.pieces, made,"
            " %s);"
            "\n}\n", h.n, h.n, own_of(t, &h), ROW_THREADS, kind_of(t, &h),
            all_of(t, &h), h.n * t->shape.group, name_of(t, &h));
    }
}

/* ---- the kernels ---- */

/* What a piece makes of its states. */
static void emit_ends(Text *t)
{
    uint8_t *live = ctx_alloc(t->c, t->g->len);

    for (int j = 0; j < t->p->carried; j++)
        mark_form(t, live, &t->p->walk[j]);
    t->live = live;
    t->back = false;
    open_kernel(t, "flin_ends");
    if (t->leaves)
        PUT(t, "if (blockIdx.x >= a.blocks)\nreturn;\n");
    emit_first(t, "flin_ends");
    text_nodes(t, live, false, "true");
    declare_stretches(t, false);
    open_walk(t, "flin_ends");
    open_tokens(t);
    text_nodes(t, live, true, "live");
    for (int j = 0; j < t->p->carried; j++) {
        Held h = held(t, j, false);
        add_walk(t, &h);
    }
    PUT(t, "}\n");
    emit_gather(t, false);
    PUT(t, "}\n");
}

static void emit_walk(Text *t)
{
    uint8_t *live = ctx_alloc(t->c, t->g->len);
    const Rows *p = t->p;

    text_mark(t->g, live, t->g->out[0].node);
    for (int j = 0; j < p->carried; j++)
        text_mark(t->g, live, t->g->st[j].next);
    t->live = live;
    t->back = false;
    open_kernel(t, "flin_walk");
    if (t->leaves)
        emit_left(t, ROW_S0, ROW_S1);
    emit_first(t, "flin_walk");
    text_nodes(t, live, false, "true");
    open_walk(t, "flin_walk");
    if (t->call->y.data)
        rotation_begin(t, rows_arg(p, ROW_Y, 0), "begin");
    emit_carry(t, false);
    open_tokens(t);
    for (int j = 0; j < p->carried; j++) {
        Held h = held(t, j, false);
        begin_state(t, &h);
    }
    text_nodes(t, live, true, "live");
    text_result(t, "live");
    for (int j = 0; j < p->carried; j++) {
        Held h = held(t, j, false);
        go_on(t, &h, "");
        if (has(t, ROW_S1, j))
            move_state(t, &h, "store", ROW_S1, "on_0 && t == s.end - 1");
    }
    PUT(t, "}\n}\n");
}

/* States before each token; what a piece makes of adjoints. */
static void emit_states(Text *t)
{
    uint8_t *live = ctx_alloc(t->c, t->g->len);
    bool serial = rows_scan(t->p, t->call).serial;

    for (int j = 0; j < t->p->carried; j++) {
        text_mark(t->g, live, t->g->st[j].next);
        if (!serial)
            mark_form(t, live, &t->p->back[j]);
    }
    t->live = live;
    t->back = false;
    open_kernel(t, "flin_states");
    if (t->leaves)
        PUT(t, "if (blockIdx.x >= a.blocks)\nreturn;\n");
    emit_first(t, "flin_states");
    text_nodes(t, live, false, "true");
    open_walk(t, "flin_states");
    emit_carry(t, false);
    if (!serial)
        declare_stretches(t, true);
    open_tokens(t);
    for (int j = 0; j < t->p->carried; j++) {
        Held h = held(t, j, false);
        begin_state(t, &h);
        PUT(t, "leave<%d>(%s, a.blocks * %d, %s);\n", h.n, kept_of(t, &h, "k"),
            ROW_THREADS, name_of(t, &h));
    }
    text_nodes(t, live, true, "live");
    for (int j = 0; j < t->p->carried; j++) {
        Held h = held(t, j, true);
        if (!serial)
            add_back(t, &h);
    }
    for (int j = 0; j < t->p->carried; j++) {
        Held h = held(t, j, false);
        go_on(t, &h, "");
    }
    PUT(t, "}\n");
    if (!serial)
        emit_gather(t, true);
    PUT(t, "}\n");
}

static void open_back(Text *t)
{
    const Rows *p = t->p;

    PUT(t, "const i64 last = a.length - 1, begin = first + last;\n");
    ahead_find(t);
    ahead_begin(t);
    for (int i = 0; i < p->nin; i++)
        if (p->step->in[i].timed && t->call->dx[i].data
            && rows_wants(p, t->call, i))
            rotation_begin(t, rows_arg(p, ROW_DX, i), "begin");
    if (t->call->y.data)
        rotation_begin(t, rows_arg(p, ROW_Y, 0), "begin");
    PUT(t, t->packed ? "Span s = { 0, 0, 0 };\n"
                     : "const Span s = { b, 0, a.tokens };\n");
}

static uint8_t *wanted_nodes(const Text *t)
{
    uint8_t *live = ctx_alloc(t->c, t->g->len);
    const Rows *p = t->p;

    if (t->call->y.data)
        text_mark(t->g, live, t->g->out[0].node);
    for (int i = 0; i < p->nin; i++)
        if (rows_wants(p, t->call, i))
            text_mark(t->g, live, p->gradient[i]);
    for (int j = 0; j < p->carried; j++)
        text_mark(t->g, live, t->g->st[p->adjoint[j]].next);
    return live;
}

static void emit_back(Text *t)
{
    const Rows *p = t->p;

    t->live = wanted_nodes(t);
    t->back = true;
    open_kernel(t, "flin_back");
    if (t->leaves)
        emit_left(t, ROW_DSTATE, ROW_DS);
    text_nodes(t, t->live, false, "true");
    if (product_goes_back(p, t->call))
        product_begin_back(t);
    text_sums(t, true);
    open_back(t);
    emit_follow(t, "flin_back");
    emit_carry(t, true);
    text_pending(t);
    for (int j = 0; j < p->carried; j++) {
        Held h = held(t, j, false);
        PUT(t, "float %s[%d], next%d[%d];\n", name_of(t, &h), h.n, j, h.n);
        PUT(t, "if (last >= 0)\nfind_left<%d>(%s, a.blocks * %d, next%d);\n",
            h.n, kept_of(t, &h, "last"), ROW_THREADS, j);
    }
    open_tokens(t);
    for (int j = 0; j < p->carried; j++) {
        Held h = held(t, j, false), b = held(t, j, true);
        each_number(t, &h, ctx_format(t->c, "%s[z] = next%d[z];",
                                      name_of(t, &h), j));
        PUT(t, "if (k > 0)\nfind_left<%d>(%s, a.blocks * %d, next%d);\n", h.n,
            kept_of(t, &h, "(k - 1)"), ROW_THREADS, j);
        PUT(t, "if (live && (!on_0 || t == s.end - 1)) {\n");
        begin_adjoint(t, &b);
        PUT(t, "}\n");
    }
    text_nodes(t, t->live, true, "on_0");
    text_result(t, "live");
    text_gradients(t);
    for (int j = 0; j < p->carried; j++) {
        Held b = held(t, j, true);
        go_on(t, &b, "!on_0 ? 0 : ");
        if (has(t, ROW_DS, j))
            move_state(t, &b, "store", ROW_DS, "on_0 && t == s.start");
    }
    PUT(t, "}\n");
    text_sums(t, false);
    if (product_goes_back(p, t->call))
        product_emit(t, rows_scan(p, t->call).serial, true);
    PUT(t, "}\n");
}

char *rows_scan_emit(Ctx *c, const Rows *p, const RowsCall *call)
{
    Buf raw = { .ctx = c };
    Text t = text_begin(c, &raw, p, call), ends = t;

    ends.g = p->forward;
    ends.computed = ctx_alloc(c, ends.g->len);
    if (!rows_scan(p, call).serial && !(call->backward && call->kept))
        emit_ends(&ends);
    if (!call->backward)
        emit_walk(&t);
    else {
        emit_states(&t);
        emit_back(&t);
    }
    return text_end(&t, product_is_own(p, call)
                    ? "#include \"rows_scan.cuh\"\n"
                      "#include \"rows_product.cuh\"\n"
                    : "#include \"rows_scan.cuh\"\n");
}
