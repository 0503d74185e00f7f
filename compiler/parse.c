/* parse.c -- a graph from its text (text.c has the form). The text may come
 * from anywhere: whatever node_new takes for granted is checked here, with
 * the line at fault.
 */
#include "text.h"

#include <stdio.h>
#include <string.h>

enum { MAX_CHUNK = 1 << 16, MAX_SIZE = 1 << 24,
       MAX_RANK = 1024 };

/* ---- axes ---- */

/* Takes an axis; -1 when the word in hand is none. */
static int take_axis(Text *t)
{
    const char *w = t->word;
    size_t len = strlen(w);
    int ax = -1;

    if (len > 2 && len < 6 && w[0] == '[' && w[len - 1] == ']') {
        char inner[4] = { 0 };
        memcpy(inner, w + 1, len - 2);
        ax = text_decimal(inner, t->g->naxes - 1);
        if (ax >= 0 && ax < AX_DIM && !t->g->chunk)
            ax = -1;
    } else if (!text_keyword(w)) {
        ax = graph_find_axis(t->g, w);
    }
    if (ax >= 0)
        text_next(t);
    return ax;
}

/* Axes up to what is none; declared ones only. */
static int take_order(Text *t, uint8_t order[8], AxisSet *set)
{
    int ax, n = 0;

    *set = 0;
    while ((ax = take_axis(t)) >= 0) {
        if (*set & AXIS(ax))
            fail(t->c, t->line, "axis '%s' twice", t->g->axis[ax].name);
        if (n == 8)
            fail(t->c, t->line, "more than 8 axes");
        *set |= AXIS(ax);
        order[n++] = (uint8_t)ax;
    }
    return n;
}

static void read_axis(Text *t)
{
    Graph *g = t->g;
    char name[21];
    int ax;

    text_name(t, "axis", name, sizeof name);
    if (t->word[0] == '@') {
        ax = text_decimal(t->word + 1, AX_R + NRANKS - 1);
        if (ax < AX_R || !g->chunk)
            fail(t->c, t->line, "%s is not a rank axis (@1 to @%d, of a "
                 "chunk)", t->word, NRANKS);
        snprintf(g->axis[ax].name, sizeof g->axis[ax].name, "%s", name);
        text_next(t);
    } else {
        for (int i = AX_DIM; i < g->naxes; i++)
            if (!strcmp(g->axis[i].name, name))
                fail(t->c, t->line, "axis '%s' twice", name);
        if (g->naxes == NAXES)
            fail(t->c, t->line, "more than %d axes", NAXES - AX_DIM);
        ax = g->naxes++;
        snprintf(g->axis[ax].name, sizeof g->axis[ax].name, "%s", name);
    }
    if (text_at(t, "=")) {
        text_next(t);
        g->axis[ax].size = text_int(t, "a size", 1,
                                    ax < AX_DIM ? MAX_RANK : MAX_SIZE);
        if (ax < AX_DIM)
            g->axis[ax - AX_R + AX_RJ].size = g->axis[ax].size;
    }
}

static void read_rows(Text *t)
{
    int rows = text_int(t, "rows of a token", 1, MAX_RANK);

    if (!t->g->chunk || t->g->chunk % rows)
        fail(t->c, t->line, "a chunk of %d has no tokens of %d rows",
             t->g->chunk, rows);
    t->g->rows = rows;
    if (text_at(t, "ranks")) {
        text_take(t, "ranks");
        t->g->ranks = text_int(t, "ranks of a token", 1, rows);
    }
}

/* ---- arguments ---- */

static bool take_ranked(Text *t)
{
    bool ranked = text_at(t, "ranked");

    if (ranked && !t->g->rows)
        fail(t->c, t->line, "ranked, but tokens have no rows");
    if (ranked)
        text_next(t);
    return ranked;
}

static void no_columns(const Text *t, AxisSet s)
{
    s &= AXIS(AX_I) | COL_AXES;
    if (s)
        fail(t->c, t->line, "axes %s are those of tokens", axes_text(t->g, s));
}

/* After "part": which of, and of what input, + 1; the one being read may be
 * its own. */
static int16_t take_part_of_input(Text *t, uint8_t *part)
{
    Graph *g = t->g;
    char of[48];

    text_next(t);
    *part = (uint8_t)text_int(t, "part", 0, UINT8_MAX);
    if (text_at(t, "of"))
        text_next(t);
    text_name(t, "input", of, sizeof of);
    int found = !strcmp(of, g->in[g->nin].name) ? g->nin
                                                : graph_find_input(g, of);
    if (found < 0)
        fail(t->c, t->line, "there is no input '%s'", of);
    return (int16_t)(found + 1);
}

static void read_input(Text *t)
{
    Graph *g = t->g;

    if (g->nin == MAX_INPUTS)
        fail(t->c, t->line, "more than %d inputs", MAX_INPUTS);
    Input *in = &g->in[g->nin];
    memset(in, 0, sizeof *in);
    text_name(t, "input", in->name, sizeof in->name);
    if (graph_find_input(g, in->name) >= 0)
        fail(t->c, t->line, "input '%s' twice", in->name);
    if (text_at(t, "t")) {
        in->timed = true;
        text_next(t);
    }
    in->rank = (uint8_t)take_order(t, in->order, &in->axes);
    no_columns(t, in->axes);
    in->ranked = take_ranked(t);
    if (text_at(t, "part"))
        in->part_of = take_part_of_input(t, &in->part);
    if (text_at(t, ":")) {
        text_next(t);
        text_name(t, "domain", in->domain, sizeof in->domain);
    }
    in->line = g->line = text_line(t);
    g->nin++;
    in->node = node_new(g, (Node){ .op = OP_input,
                                   .index = (uint16_t)(g->nin - 1) });
}

/* After "of": that state's number, + 1; the one being read may be its own. */
static int16_t state_named(Text *t)
{
    char of[48];

    if (text_at(t, "of"))
        text_next(t);
    text_name(t, "state", of, sizeof of);
    int found = graph_find_state(t->g, of);
    if (found < 0 && !strcmp(of, t->g->st[t->g->nst].name))
        found = t->g->nst;
    if (found < 0)
        fail(t->c, t->line, "there is no state '%s'", of);
    return (int16_t)(found + 1);
}

static void read_state(Text *t)
{
    Graph *g = t->g;

    if (g->nst == MAX_STATES)
        fail(t->c, t->line, "more than %d states", MAX_STATES);
    State *s = &g->st[g->nst];
    memset(s, 0, sizeof *s);
    text_name(t, "state", s->name, sizeof s->name);
    if (graph_find_state(g, s->name) >= 0)
        fail(t->c, t->line, "state '%s' twice", s->name);
    s->rank = (uint8_t)take_order(t, s->order, &s->axes);
    no_columns(t, s->axes);
    if (text_at(t, "reverse")) {
        s->reverse = true;
        text_next(t);
    }
    if (text_at(t, "angle")) {
        s->angle = true;
        text_next(t);
        if (text_at(t, "of")) {
            s->twin_of = state_named(t);
        }
    }
    if (text_at(t, "lost")) {
        text_next(t);
        s->lost_of = state_named(t);
    }
    if (text_at(t, "part")) {
        text_next(t);
        s->part = (uint8_t)text_int(t, "part", 0, UINT8_MAX);
        s->part_of = state_named(t);
    }
    s->line = g->line = text_line(t);
    g->nst++;
    s->node = node_new(g, (Node){ .op = OP_state,
                                  .index = (uint16_t)(g->nst - 1) });
}

static void read_next(Text *t)
{
    char name[48];
    Ref r;

    text_name(t, "state", name, sizeof name);
    int s = graph_find_state(t->g, name);
    if (s < 0)
        fail(t->c, t->line, "there is no state '%s'", name);
    if (t->g->st[s].next)
        fail(t->c, t->line, "state '%s' is left twice", name);
    r = text_ref(t);
    if (t->g->n[r].axes & ~t->g->st[s].axes)
        fail(t->c, t->line, "state '%s' has no axes %s", name,
             axes_text(t->g, t->g->n[r].axes & ~t->g->st[s].axes));
    t->g->st[s].next = r;
}

static void read_out(Text *t)
{
    Graph *g = t->g;
    Output *o = &g->out[g->nout];
    AxisSet set, has;

    if (g->nout == MAX_OUTPUTS)
        fail(t->c, t->line, "more than %d results", MAX_OUTPUTS);
    memset(o, 0, sizeof *o);
    text_name(t, "result", o->name, sizeof o->name);
    for (int i = 0; i < g->nout; i++)
        if (!strcmp(g->out[i].name, o->name))
            fail(t->c, t->line, "result '%s' twice", o->name);
    o->rank = (uint8_t)take_order(t, o->order, &set);
    o->ranked = take_ranked(t);
    o->node = text_ref(t);
    has = g->n[o->node].axes & ~AXIS(AX_I);
    no_columns(t, has);
    if (__builtin_popcount(has) > 8)
        fail(t->c, t->line, "more than 8 axes");
    no_columns(t, set);
    for (int ax = 0; !set && ax < NAXES; ax++)
        if (has & AXIS(ax))
            o->order[o->rank++] = (uint8_t)ax;
    if (set && has & ~set)
        fail(t->c, t->line, "result '%s' has the axes %s", o->name,
             axes_text(g, has));
    g->nout++;
}

/* ---- nodes ---- */

static void take_operands(Text *t, Node *n)
{
    int arity = op_info[n->op].arity;

    for (int i = 0; i < arity; i++) {
        if (text_at(t, "-") && op_has(n->op, i ? i == 1 ? ABSENT_B : 0
                                               : ABSENT_A))
            text_next(t);
        else
            n->a[i] = text_ref(t);
    }
}

static int find_name(Text *t, int (*find)(const Graph *, const char *),
                     const char *what)
{
    char name[48];

    text_name(t, what, name, sizeof name);
    int at = find(t->g, name);
    if (at < 0)
        fail(t->c, t->line, "there is no %s '%s'", what, name);
    return at;
}

/* What stands for itself: the operands' place taken by a name or a number. */
static void take_leaf(Text *t, Node *n)
{
    int ax;

    switch (n->op) {
    case OP_num: n->num = text_num(t); break;
    case OP_input:
        n->index = (uint16_t)find_name(t, graph_find_input, "input");
        break;
    case OP_state:
        n->index = (uint16_t)find_name(t, graph_find_state, "state");
        break;
    case OP_size:
        if ((ax = take_axis(t)) < 0)
            fail(t->c, t->line, "expected an axis, found %s", text_shown(t));
        n->index = (uint16_t)ax;
        break;
    }
}

static bool take_flag(Text *t, Node *n)
{
    for (int i = 0; i < NFLAGS; i++)
        if (text_at(t, flag_name[i])) {
            if (!op_has(n->op, ANY_FLAG & 1u << i))
                fail(t->c, t->line, "%s: has no such flag",
                     op_info[n->op].name);
            n->flags |= (uint8_t)(1 << i);
            text_next(t);
            return true;
        }
    return false;
}

static void take_attributes(Text *t, Node *n)
{
    int ax;

    for (;;) {
        if (text_at(t, "over") && op_has(n->op, OVER) && !n->over) {
            text_next(t);
            while ((ax = take_axis(t)) >= 0)
                n->over |= AXIS(ax);
        } else if (text_at(t, "to") && op_has(n->op, TO_AXIS)) {
            text_next(t);
            if ((ax = take_axis(t)) < 0)
                fail(t->c, t->line, "expected an axis, found %s",
                     text_shown(t));
            n->index = (uint16_t)ax;
        } else if (text_at(t, "len") && op_has(n->op, LEN)) {
            text_next(t);
            n->num = text_int(t, "a length", 1, UINT16_MAX);
        } else if (text_at(t, "index") && op_has(n->op, INDEX)) {
            text_next(t);
            n->index = (uint16_t)text_int(t, "an index", 0, UINT16_MAX);
        } else if (!take_flag(t, n)) {
            return;
        }
    }
}

static int find_op(const char *name)
{
    for (int i = 0; i < NOPS; i++)
        if (i != OP_none && !strcmp(op_info[i].name, name))
            return i;
    return OP_none;
}

static void remember(Text *t, int32_t number, Ref r)
{
    uint32_t len = t->nmap ? t->nmap : 64;

    while (len <= (uint32_t)number)
        len *= 2;
    if (len > t->nmap)
        t->map = ctx_grow(t->c, t->map, t->nmap * sizeof(Ref),
                          len * sizeof(Ref));
    t->nmap = len;
    t->map[number] = r;
}

static void read_node(Text *t)
{
    int32_t number = text_decimal(t->word + 1, TEXT_MAX_NUMBER);
    Node n = { 0 };

    if (number < 0)
        fail(t->c, t->line, "expected a node such as %%7, found %s",
             text_shown(t));
    if ((uint32_t)number < t->nmap && t->map[number])
        fail(t->c, t->line, "%%%d is made twice", number);
    text_next(t);
    text_take(t, "=");
    n.op = (uint8_t)find_op(t->word);
    if (n.op == OP_none)
        fail(t->c, t->line, "there is no operation '%s'", text_shown(t));
    text_next(t);
    take_leaf(t, &n);
    take_operands(t, &n);
    take_attributes(t, &n);
    t->g->line = text_line(t);
    text_check(t, &n);
    Ref r = node_new(t->g, n);
    text_check_size(t, r);
    remember(t, number, r);
}

/* ---- the whole ---- */

static void read_header(Text *t)
{
    char name[64];
    int chunk = 0;

    if (text_at(t, "chunk")) {
        text_next(t);
        chunk = text_int(t, "the tokens of a chunk", 1, MAX_CHUNK);
    } else {
        text_take(t, "step");
    }
    size_t n = strlen(t->word);
    if (!n)
        fail(t->c, t->line, "expected the variant's name");
    memcpy(name, t->word, n + 1);
    text_next(t);
    t->g = graph_new(t->c, name, chunk);
}

static void read_line(Text *t, void (*kernel)(Text *, void *), void *ud)
{
    static const struct {
        const char *word;
        void (*read)(Text *t);
    } lines[] = {
        { "axis", read_axis }, { "rows", read_rows }, { "input", read_input },
        { "state", read_state }, { "next", read_next }, { "out", read_out },
    };

    if (!t->g) {
        read_header(t);
        return;
    }
    if (t->word[0] == '%') {
        read_node(t);
        return;
    }
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (text_at(t, lines[i].word)) {
            text_next(t);
            lines[i].read(t);
            return;
        }
    if (!kernel || !text_at(t, "kernel"))
        fail(t->c, t->line, "a line cannot start with %s", text_shown(t));
    text_next(t);
    kernel(t, ud);
}

/* Results that need what comes in on the way back. */
static void mark_gradients(Graph *g)
{
    uint8_t *late = ctx_alloc(g->ctx, g->len);

    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        late[r] = n->op == OP_input && input_is_adjoint(&g->in[n->index]);
        late[r] |= n->op == OP_state && g->st[n->index].reverse;
        for (int i = 0; i < 4; i++)
            late[r] |= late[n->a[i]];
    }
    for (int i = 0; i < g->nout; i++)
        g->out[i].late = late[g->out[i].node];
}

Graph *text_graph(Ctx *c, const char *s, void (*kernel)(Text *, void *),
                  void *ud)
{
    Text t = { .c = c, .p = s };

    for (t.line = 1; *t.p; t.line++) {
        text_next(&t);
        if (*t.word)
            read_line(&t, kernel, ud);
        if (*t.word)
            fail(c, t.line, "%s: the line should have ended here", t.word);
        while (*t.p && *t.p != '\n')
            t.p++;
        t.p += *t.p == '\n';
    }
    if (!t.g)
        fail(c, t.line, "the text is empty");
    t.g->line = 0;
    mark_gradients(t.g);
    return t.g;
}

Graph *graph_parse(Ctx *c, const char *text)
{
    return text_graph(c, text, NULL, NULL);
}
