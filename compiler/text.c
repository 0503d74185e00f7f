/* text.c -- a graph as text.
 *
 *     chunk 64 simple_gla                  or: step simple_gla
 *     axis k = 64                          size open: axis k
 *     axis r1 @1 = 4                       row rank axis 1; its twin, too
 *     rows 4 ranks 3                       a token has; of `chunk` there are;
 *                                          one of them is empty
 *     input q t k : unit_norm   @3         no t: a constant for each head;
 *                                          each row its own: ranked; along
 *                                          the first axis of what it was an
 *                                          entry: input w k part 1 of u
 *     state S k v                          an adjoint: state dS k v reverse;
 *                                          modulo 2 pi: state phi p angle;
 *                                          a twin: state psi p angle of phi;
 *                                          what a sum lost:
 *                                          state e p lost of phi; an entry,
 *                                          as inputs: state b k part 1 of a
 *     %1 = input q   @3                    made on line 3 of the script
 *     %5 = num 0x1.8p-1                    every bit; 1.5 and 2 do as well
 *     %6 = mul %1 %5   @12  # i k          a comment: the axes
 *     %7 = sum %6 over k
 *     next S %9                            what the state becomes
 *     out y v %8                           a result, stored [B, T, H, v], or
 *                                          ranked, as inputs; the
 *                                          value may lack an axis of these
 *
 * Operands come first, `-` for one that is absent, then what the operation
 * has of its own: `over` and axes, `to` and an axis (relabel, dup, pairsum),
 * `index` and a number from 0 (select, part, unit, ofrank, isrank), `len` and a
 * number (part), strict, exclusive, reverse, trans, wrap, later. An input, a
 * state and an axis size are given by name. An axis whose name is taken or a
 * keyword is written [9], by number. Lines come in this order; names and
 * numbers are made before they are used.
 *
 * Nodes that no root needs are left out. Arguments come first, so that the
 * text of what was read from a text is that text.
 */
#include "text.h"

#include <string.h>

bool text_keyword(const char *s)
{
    static const char *const words[] = {
        "t", "angle", "lost", "part", "over", "to", "index", "len", "strict",
        "exclusive", "reverse", "trans", "wrap", "later", "ranked",
    };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(s, words[i]))
            return true;
    return false;
}

/* ---- numbers ---- */

/* Through the bits, since printf's point depends on the locale. */
static void put_num(Buf *b, double x)
{
    uint64_t u, m;

    memcpy(&u, &x, 8);
    int e = (int)(u >> 52 & 0x7ff), digits = 13;
    const char *sign = u >> 63 ? "-" : "";
    m = u & 0xfffffffffffffu;
    if (e == 0x7ff) {
        buf_printf(b, "%s", m ? "nan" : u >> 63 ? "-inf" : "inf");
        return;
    }
    if (x > -1e6 && x < 1e6 && x == (int)x && (x != 0 || !*sign)) {
        buf_printf(b, "%d", (int)x);
        return;
    }
    for (; digits && !(m & 15); digits--)
        m >>= 4;
    buf_printf(b, "%s0x%d", sign, e > 0);
    if (digits)
        buf_printf(b, ".%0*llx", digits, (unsigned long long)m);
    buf_printf(b, "p%+d", e ? e - 1023 : x != 0 ? -1022 : 0);
}

/* ---- parts of lines ---- */

static void put_axis(const Graph *g, int ax, Buf *b)
{
    const char *name = g->axis[ax].name;

    if (graph_find_axis(g, name) == ax && !text_keyword(name))
        buf_printf(b, " %s", name);
    else
        buf_printf(b, " [%d]", ax);
}

static void put_order(const Graph *g, const uint8_t *order, int rank, Buf *b)
{
    for (int i = 0; i < rank; i++)
        put_axis(g, order[i], b);
}

static void put_line(int32_t line, Buf *b)
{
    if (line > 0)
        buf_printf(b, "   @%d", line);
}

/* Names come from users; a word of the text has no space or sign in it. */
static void put_word(Buf *b, const char *s)
{
    buf_put(b, " ", 1);
    if (!*s)
        buf_put(b, "_", 1);
    for (; *s; s++) {
        bool plain = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z')
                  || (*s >= '0' && *s <= '9');
        buf_put(b, plain ? s : "_", 1);
    }
}

static void put_header(const Graph *g, Buf *b)
{
    if (g->chunk)
        buf_printf(b, "chunk %d", g->chunk);
    else
        buf_printf(b, "step");
    put_word(b, g->name);
    buf_printf(b, "\n");
    for (int ax = AX_DIM; ax < g->naxes; ax++) {
        buf_printf(b, "axis %s", g->axis[ax].name);
        if (g->axis[ax].size)
            buf_printf(b, " = %d", g->axis[ax].size);
        buf_printf(b, "\n");
    }
    for (int ax = AX_R; ax < AX_R + NRANKS; ax++)
        if (g->axis[ax].size)
            buf_printf(b, "axis %s @%d = %d\n", g->axis[ax].name, ax,
                       g->axis[ax].size);
    if (g->rows)
        buf_printf(b, ranks_of_token(g) < g->rows ? "rows %d ranks %d\n"
                                                  : "rows %d\n", g->rows,
                   ranks_of_token(g));
}

static void put_part(int of, int part, const char *name, Buf *b)
{
    if (of)
        buf_printf(b, " part %d of %s", part, name);
}

static void put_arguments(const Graph *g, Buf *b)
{
    for (int i = 0; i < g->nin; i++) {
        const Input *in = &g->in[i];
        buf_printf(b, "input %s%s", in->name, in->timed ? " t" : "");
        put_order(g, in->order, in->rank, b);
        if (in->ranked)
            buf_printf(b, " ranked");
        put_part(in->part_of, in->part, g->in[in->part_of
                                              - !!in->part_of].name, b);
        if (*in->domain)
            buf_printf(b, " : %s", in->domain);
        put_line(in->line, b);
        buf_printf(b, "\n");
    }
    for (int i = 0; i < g->nst; i++) {
        const State *s = &g->st[i];
        buf_printf(b, "state %s", s->name);
        put_order(g, s->order, s->rank, b);
        buf_printf(b, "%s%s", s->reverse ? " reverse" : "",
                   s->angle ? " angle" : "");
        if (s->twin_of)
            buf_printf(b, " of %s", g->st[s->twin_of - 1].name);
        if (s->lost_of)
            buf_printf(b, " lost of %s", g->st[s->lost_of - 1].name);
        put_part(s->part_of, s->part, g->st[s->part_of
                                            - !!s->part_of].name, b);
        put_line(s->line, b);
        buf_printf(b, "\n");
    }
}

/* ---- nodes ---- */

/* Operands in the order that reading the text will give them. */
static void put_operands(const Graph *g, const Node *n, const uint32_t *number,
                         Buf *b)
{
    Ref a[4] = { n->a[0], n->a[1], n->a[2], n->a[3] };
    const OpInfo *op = &op_info[n->op];

    if (op->traits & COMM && g->n[a[1]].op != OP_num
        && number[a[0]] > number[a[1]]) {
        a[0] = n->a[1];
        a[1] = n->a[0];
    }
    for (int i = 0; i < op->arity; i++)
        if (a[i])
            buf_printf(b, " %%%u", number[a[i]]);
        else
            buf_printf(b, " -");
}

static void put_attributes(const Graph *g, const Node *n, Buf *b)
{
    if (n->over)
        buf_printf(b, " over");
    for (int ax = 0; ax < NAXES; ax++)
        if (n->over & AXIS(ax))
            put_axis(g, ax, b);
    if (op_has(n->op, TO_AXIS)) {
        buf_printf(b, " to");
        put_axis(g, n->index, b);
    }
    if (op_has(n->op, INDEX))
        buf_printf(b, " index %d", n->index);
    if (op_has(n->op, LEN))
        buf_printf(b, " len %d", (int)n->num);
    for (int i = 0; i < NFLAGS; i++)
        if (n->flags & 1 << i)
            buf_printf(b, " %s", flag_name[i]);
}

static void put_node(const Graph *g, Ref r, const uint32_t *number, Buf *b)
{
    const Node *n = &g->n[r];

    buf_printf(b, "%%%u = %s", number[r], op_info[n->op].name);
    if (n->op == OP_input)
        buf_printf(b, " %s", g->in[n->index].name);
    if (n->op == OP_state)
        buf_printf(b, " %s", g->st[n->index].name);
    if (n->op == OP_size)
        put_axis(g, n->index, b);
    if (n->op == OP_num) {
        buf_printf(b, " ");
        put_num(b, n->num);
    }
    put_operands(g, n, number, b);
    put_attributes(g, n, b);
    put_line(n->line, b);
    if (n->axes) {
        buf_printf(b, "  #");
        for (int ax = 0; ax < NAXES; ax++)
            if (n->axes & AXIS(ax))
                put_axis(g, ax, b);
    }
    buf_printf(b, "\n");
}

/* The live nodes, arguments first; their numbers. */
static uint32_t *number_nodes(const Graph *g, Ref *order, uint32_t *len)
{
    uint32_t *number = ctx_alloc(g->ctx, g->len * sizeof *number);
    uint8_t *live = ctx_alloc(g->ctx, g->len);

    *len = 0;
    graph_live(g, live);
    for (int i = 0; i < g->nin + g->nst; i++) {
        Ref r = i < g->nin ? g->in[i].node : g->st[i - g->nin].node;
        if (live[r] && !number[r]) {
            order[*len] = r;
            number[r] = ++*len;
        }
    }
    for (Ref r = 1; r < g->len; r++)
        if (live[r] && !number[r]) {
            order[*len] = r;
            number[r] = ++*len;
        }
    return number;
}

uint32_t *text_print(const Graph *g, Buf *out)
{
    Ref *order = ctx_alloc(g->ctx, g->len * sizeof *order);
    uint32_t len, *number = number_nodes(g, order, &len);

    put_header(g, out);
    put_arguments(g, out);
    for (uint32_t i = 0; i < len; i++)
        put_node(g, order[i], number, out);
    for (int i = 0; i < g->nst; i++)
        if (g->st[i].next)
            buf_printf(out, "next %s %%%u\n", g->st[i].name,
                       number[g->st[i].next]);
    for (int i = 0; i < g->nout; i++) {
        const Output *o = &g->out[i];
        buf_printf(out, "out %s", o->name);
        put_order(g, o->order, o->rank, out);
        buf_printf(out, "%s %%%u\n", o->ranked ? " ranked" : "",
                   number[o->node]);
    }
    return number;
}

void graph_print(const Graph *g, Buf *out)
{
    text_print(g, out);
}
