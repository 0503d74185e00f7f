/* rows_ahead.c -- tokens that a kernel over rows reads one iteration before it
 * needs them, as they lie in memory, and where its iterations are.
 */
#include "rows_text.h"

/* Where threads are few, as many tokens as have so many bytes for each, at
 * most: what is under way has to be as much as memory gives until the first of
 * it is there. Of more threads each has fewer registers to spare. What is
 * carried from token to token has few threads that walk a long way.
 */
enum { AHEAD_MOST = 4, AHEAD_BYTES = 64, CARRIED_BYTES = 160 };

/* The result's gradient is input nin of these. */
static const View *ahead_view(const Text *t, int i)
{
    return i < t->p->nin ? &t->call->in[i] : &t->call->dy;
}

/* The node of such an input that has its axes; 0: it is not read so. deepest:
 * how far before the token. */
static Ref ahead_node(const Text *t, int i, int *deepest)
{
    const Rows *p = t->p;
    Ref found = 0;

    *deepest = 0;
    for (Ref r = 1; r < t->g->len; r++) {
        const Node *n = &t->g->n[r];
        bool state = n->op == OP_input && n->index >= p->nin
                  && n->index < p->nin + p->nst;
        int j = state ? n->index - p->nin : 0;
        int of = n->op != OP_input ? -1 : state ? p->source[j]
               : n->index < p->nin ? n->index : p->nin;
        if (!t->live[r] || !n->timed || of != i)
            continue;
        found = r;
        if (state && p->depth[j] > *deepest)
            *deepest = p->depth[j];
    }
    return found;
}

/* How it lies `depth` tokens before; behind the deepest, those read next. */
static char *raw_name(const Text *t, int i, int depth)
{
    return ctx_format(t->c, "raw%d_%d", i, depth);
}

static char *raw_place(const Text *t, Ref r)
{
    Text at = *t;

    at.entry = "0";
    at.shape.each = 1;
    return text_place(&at, r);
}

char *rotation_place(const Text *t, int arg)
{
    return ctx_format(t->c, "at%d", arg);
}

void rotation_begin(const Text *t, int arg, const char *token)
{
    PUT(t, "i64 %s = %s;\n", rotation_place(t, arg), text_token(t, arg, token));
}

void turn_next(const Text *t, int arg)
{
    PUT(t, "%s %s a.arg[%d].st;\n", rotation_place(t, arg), t->back
        ? "-=" : "+=", arg);
}

static int raw_arg(const Text *t, int i)
{
    return i < t->p->nin ? rows_arg(t->p, ROW_IN, i)
                         : rows_arg(t->p, ROW_DY, 0);
}

static Moving raw_move(const Text *t, int i, Ref r, char *place)
{
    const Rows *p = t->p;
    const Input *in = &t->g->in[i < p->nin ? i : p->nin + p->nst];

    return (Moving){ "", place, text_left(t, r, "some"), "", raw_arg(t, i),
                     ahead_view(t, i), in->order, in->rank, r };
}

/* The token that is read next where `some` says that it is read; it lies at
 * `place`. */
static void read_some(const Text *t, int i, Ref r, const char *name,
                      char *place, const char *some)
{
    Moving m = raw_move(t, i, r, place);

    PUT(t, "const bool some = %s;\n", some);
    text_open(t, r, text_registers(t, r));
    PUT(t, "%s[%s] = fetch<%s>(%s);\n", name, raw_place(t, r),
        text_kind(t, &m), text_places(t, &m));
    text_close(t, text_registers(t, r));
}

/* Token `token`, if there is one and it is read (`still`), as the one read
 * next; it lies at `place`. */
static void read_ahead(const Text *t, int i, Ref r, const char *name,
                       const char *token, char *place, const char *still)
{
    PUT(t, "{\nconst i64 ahead = %s;\n", token);
    read_some(t, i, r, name, place, ctx_format(t->c, "inside%s && (u64)ahead"
              " < (u64)a.tokens", still));
    PUT(t, "}\n");
}

/* The same in the loop, by its count: the token `depth` behind, on the way back
 * before the one that the iteration has. */
static void read_counted(const Text *t, int i, Ref r, const char *name,
                         int depth, char *place)
{
    PUT(t, "{\n");
    read_some(t, i, r, name, place, t->back
              ? ctx_format(t->c, "k >= %d && k - %d >= low && k - %d < high",
                           t->ahead, depth, depth)
              : ctx_format(t->c, "k + %d < high", depth));
    PUT(t, "}\n");
}

/* Of a row: one for each place of axes that are unrolled. */
static int raws(const Text *t, Ref r)
{
    return (int)(text_live(t, r) / (text_has_lanes(t, r) ? t->shape.each : 1));
}

void ahead_find(Text *t)
{
    int64_t bytes = 0;
    int most;

    for (int i = 0; i <= t->p->nin; i++) {
        Ref r = ahead_node(t, i, &most);
        if (r)
            bytes += text_live(t, r) * dtype_size(ahead_view(t, i)->dtype);
    }
    t->ahead = 1;
    bool carries = t->p->carried;
    most = carries && t->call->piece < AHEAD_MOST ? (int)t->call->piece
                                                  : AHEAD_MOST;
    while ((carries || rows_few(t->p, t->call)) && t->ahead < most
           && (t->ahead + 1) * bytes <= (carries ? CARRIED_BYTES : AHEAD_BYTES))
        t->ahead++;
    t->all = carries && t->ahead >= t->call->piece;
}

/* A piece of carried states reads its own tokens alone: of others the product
 * may not be there yet. */
static void begin_piece(const Text *t, int i, Ref r)
{
    if (raw_arg(t, i) == t->near)
        PUT(t, "i64 %s = group * a.length * a.arg[%d].st;\n",
            rotation_place(t, t->near), t->near);
    else
        rotation_begin(t, raw_arg(t, i), "begin");
    for (int d = 0; d < t->ahead; d++) {
        read_ahead(t, i, r, raw_name(t, i, 1 + d),
                   ctx_format(t->c, "begin %s %d", t->back ? "-" : "+", d),
                   rotation_place(t, raw_arg(t, i)),
                   ctx_format(t->c, " && %d < a.length", d));
        turn_next(t, raw_arg(t, i));
    }
}

void ahead_begin(const Text *t)
{
    ahead_begin_of(t, -1, true);
}

void ahead_begin_of(const Text *t, int one, bool others)
{
    const char *sign = t->back ? "-" : "-1 -";

    for (int i = 0; i <= t->p->nin; i++) {
        int most;
        Ref r = ahead_node(t, i, &most);
        if (!r || (i == one) == others)
            continue;
        Moving m = raw_move(t, i, r, "");
        char *place = text_token(t, raw_arg(t, i), "ahead");
        int n = raws(t, r);
        for (int d = 0; d <= most + t->ahead; d++)
            PUT(t, "Raw<%s> %s[%d];\n", text_kind(t, &m), raw_name(t, i,
                d), n);
        for (int d = 0; d < most; d++)
            read_ahead(t, i, r, raw_name(t, i, t->back ? d + 1 : d),
                       ctx_format(t->c, "begin %s %d", sign, d), place, "");
        if (t->p->carried) {
            begin_piece(t, i, r);
            continue;
        }
        for (int d = 0; d < t->ahead; d++)
            read_ahead(t, i, r, raw_name(t, i, most + 1 + d),
                       t->back
                       ? ctx_format(t->c, "begin - %d", most + d)
                       : ctx_format(t->c, "begin + %d", d), place, "");
        rotation_begin(t, raw_arg(t, i), t->back
                   ? ctx_format(t->c, "begin - %d", most + t->ahead)
                   : ctx_format(t->c, "begin + %d", t->ahead));
    }
}

void ahead_move(const Text *t)
{
    for (int i = 0; i <= t->p->nin; i++) {
        int most;
        Ref r = ahead_node(t, i, &most);
        if (!r)
            continue;
        int n = raws(t, r);
        PUT(t, "UNROLL\nfor (int z = 0; z < %d; z++) {\n", n);
        for (int d = most; d >= 0 && !t->back; d--)
            PUT(t, "%s[z] = %s[z];\n", raw_name(t, i, d), raw_name(t, i, d
                ? d - 1 : most + 1));
        for (int d = t->back ? 0 : most + 1; d < most + t->ahead; d++)
            PUT(t, "%s[z] = %s[z];\n", raw_name(t, i, d), raw_name(t, i,
                d + 1));
        PUT(t, "}\n");
        if (t->all)
            continue;
        char *name = raw_name(t, i, most + t->ahead);
        char *place = rotation_place(t, raw_arg(t, i));
        if (!t->p->carried)
            read_counted(t, i, r, name, t->back ? most + t->ahead : t->ahead,
                         place);
        else
            read_ahead(t, i, r, name, t->back
                       ? ctx_format(t->c, "t - %d", most + t->ahead)
                       : ctx_format(t->c, "t + %d", t->ahead), place, t->back
                       ? ctx_format(t->c, " && k >= %d", t->ahead)
                       : ctx_format(t->c, " && k + %d < steps", t->ahead));
        turn_next(t, raw_arg(t, i));
    }
}

void ahead_take(const Text *t, int i, int depth, const char *name, Ref r,
                     const char *on)
{
    Text at = *t;

    at.entry = "0";
    text_open(t, r, text_registers(t, r));
    PUT(t, "unpack(%s[%s], %s, %s + %s);\n", raw_name(t, i, depth),
        raw_place(t, r), t->packed ? on : "true", name, text_place(&at, r));
    text_close(t, text_registers(t, r));
}
