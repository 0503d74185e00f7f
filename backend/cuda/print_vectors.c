/* print_vectors.c -- vector roles: their programs, lane by lane; what is
 * fetched ahead of its iteration.
 */
#include "print_parts.h"
#include "source.h"

static const char *as_pair(Print *p, Ref r)
{
    return is_token_vector(p, r) ? number_name(p, r)
         : ctx_format(p->c, "Pair { %s, %s }", number_name(p, r),
                      number_name(p, r));
}

static void vector_sum(Print *p, Ref r)
{
    const Node *n = &p->s->g->n[r];
    const char *x = as_pair(p, n->a[0]);
    if (op_is(n->op, MULTIPLIES))
        x = ctx_format(p->c, "{ %s * %s, %s * %s }",
                       part_text(p, n->a[0], ".a"), part_text(p, n->a[1], ".a"),
                       part_text(p, n->a[0], ".b"),
                       part_text(p, n->a[1], ".b"));
    buf_printf(p->b, "const float v%u = pair_sum(%s, lane, x.n);\n",
               (unsigned)r, x);
}

static void vector_scan(Print *p, Ref r)
{
    const Node *n = &p->s->g->n[r];
    bool most = n->op == OP_maxscan;
    if (counts_tokens(p->s->g, r) && rows_of_token(p->s->g) == 1) {
        buf_printf(p->b, "const Pair v%u = { (float)min(lane + 1, x.n),"
                   " (float)min(lane + 33, x.n) };\n", (unsigned)r);
        return;
    }
    const char *gate = n->a[0] ? as_pair(p, n->a[0])
                     : most ? "Pair { 0.f, 0.f }" : "Pair { 1.f, 1.f }";
    buf_printf(p->b, "const Pair v%u = %s<%d>(%s, %s, %s, lane, x.n);\n",
               (unsigned)r, n->flags & REVERSE ? "scanned_back" : "scanned",
               most, gate, as_pair(p, n->a[1]), number_name(p, n->a[2]));
}

static void put_found(Print *p, Ref r)
{
    bool vector = p->s->g->n[r].axes;
    buf_printf(p->b, "const %s v%u = %s(%s%s);\n", vector ? "Pair" : "float",
               (unsigned)r, vector ? "found_pair" : "*", kept_place(p, r),
               vector ? ", x.n, lane" : "");
}

/* Sums over a state's axis go from shared memory to where they are kept. */
static void put_kept_sums(Print *p, const KValue *v)
{
    if (p->s->stores[v->node])
        buf_printf(p->b, "%sfor (int k = lane; k < %s; k += 32)\n(%s + %s)[k] ="
                   " parts_sum<%d>(%s, %d, k);\n", once_text(p, v->node),
                   inside_extent(p, v->row), kept_place(p, v->node),
                   sliced_index(p, v->row, 0), v->parts, place(p, v),
                   (int)vector_size(v));
}

static void put_kept(Print *p, Ref r)
{
    if (!p->s->stores[r] || p->s->g->n[r].axes & DIM_AXES)
        return;
    if (p->s->g->n[r].axes)
        buf_printf(p->b, "%skeep_pair(%s, v%u, lane);\n", once_text(p, r),
                   kept_place(p, r), (unsigned)r);
    else
        buf_printf(p->b, "%sif (lane == 0)\n*%s = v%u;\n", once_text(p, r),
                   kept_place(p, r), (unsigned)r);
}

/* ---- what an iteration finds ---- */

bool vectors_in_turn(const Print *p)
{
    const Schedule *s = p->s;
    bool all = s->kind == K_FORWARD && s->row_axis && s->warps[KR_VECTOR]
            && !s->warps[KR_VECTOR2];
    for (int i = 0; i < s->ninsts && all; i++) {
        const KInst *k = &s->inst[i];
        if (k->role != KR_VECTOR)
            continue;
        all &= k->op == K_VECTOR && !k->nrow;
        for (int j = 0; j < k->nnodes && all; j++)
            all &= s->g->n[k->node[j]].op != OP_state;
    }
    return all;
}

/* Vectors of tokens are fetched a chunk ahead. */
static bool fetches_ahead(const Schedule *s)
{
    return s->row_axis;
}

static const char *input_type(Print *p, const Node *n)
{
    return ctx_format(p->c, "%s%s", element_type(p->o->in[n->index]),
                      p->s->g->in[n->index].ranked ? ", true" : "");
}

static int input_tensor(Print *p, const Node *n)
{
    return tensor_for(p, ARG_INPUT, n->index, p->o->in[n->index]);
}

/* The input whose tokens a vector has, or those behind them. */
static const Node *fetched_input(const Schedule *s, Ref r)
{
    const Node *n = &s->g->n[r];
    return n->op == OP_after ? &s->g->n[n->a[0]] : n;
}

static bool is_fetched(const Schedule *s, const KInst *k, int node)
{
    const Node *n = fetched_input(s, k->node[node]);
    return k->op == K_VECTOR && !k->nrow && n->op == OP_input && n->timed;
}

static bool fetches_tokens(const Schedule *s, KRole role)
{
    bool any = false;
    for (const KInst *k = s->inst; k < s->inst + s->ninsts; k++)
        for (int i = 0; i < k->nnodes && k->role == role; i++)
            any |= is_fetched(s, k, i);
    return any;
}

/* What is done (load, ask_for) with a vector's chunk. */
static const char *along_text(Print *p, Ref r, const char *what,
                              const char *use)
{
    int tensor = input_tensor(p, fetched_input(p->s, r));
    return ctx_format(p->c, "s%u.%s(a.tensor[%d], %s)", (unsigned)r, what,
                      tensor, walked_text(p, use));
}

/* Before that they are asked for in the cache, where an iteration may take no
 * longer than memory does: a lean one, or a warp's that has each chunk. */
enum { ASKED_AHEAD = 4 };
static bool asks_ahead(const Print *p, KRole role)
{
    return p->lean || role != KR_VECTOR || !vectors_in_turn(p);
}

/* So many chunks before the loop: they are found there whatever it is. */
static void put_first_asked(Print *p, KRole role, const char *from)
{
    const Schedule *s = p->s;
    bool whole = asks_ahead(p, role), lean = s->splits && has_lean(s, role);
    if (!fetches_tokens(s, role) || (!whole && !lean))
        return;
    buf_printf(p->b, "%sNO_UNROLL for (int m = 1; m < %d; m++) {\n",
               whole ? "" : "if (x.first > 0)\n", ASKED_AHEAD);
    for (const KInst *k = s->inst; k < s->inst + s->ninsts; k++)
        for (int i = 0; i < k->nnodes && k->role == role; i++)
            if (is_fetched(s, k, i) && s->g->n[k->node[i]].op == OP_input)
                buf_printf(p->b, "%s;\n", along_text(p, k->node[i], "ask_for",
                           ctx_format(p->c, "%s + m", from)));
    buf_printf(p->b, "}\n");
}

/* Whether the role fetches vectors over an axis, which each chunk there is has.
 */
static bool fetches_lanes(const Schedule *s, KRole role)
{
    bool any = false;
    for (int i = 0; i < s->ninsts; i++)
        any |= s->inst[i].role == role && s->inst[i].op == K_VECTOR
            && s->inst[i].nrow && s->inst[i].nout
            && !leaves_carried(s, &s->inst[i]);
    return any;
}

static void put_vector_node(Print *p, Ref r);

void put_first_fetch(Print *p, KRole role)
{
    const Schedule *s = p->s;
    const char *from = s->splits && !has_lean(s, role) ? "x.first" : "0";
    const char *first = from;
    bool any = false;
    for (const KInst *k = s->inst; k < s->inst + s->ninsts; k++)
        for (int i = 0; i < k->nnodes && k->role == role; i++)
            if (!is_in_common(p, k, k->node[i]))
                continue;
            else if (k->nrow)
                put_lanes_node(p, k, k->node[i]);
            else
                put_vector_node(p, k->node[i]);
    if (role == KR_VECTOR && vectors_in_turn(p))
        first = ctx_format(p->c, "%s + ((%s + warp) & 1)", from,
                           turn_counter(s, role));
    for (const KInst *k = s->inst; k < s->inst + s->ninsts; k++) {
        if (k->role == role && k->op == K_VECTOR && k->nrow && k->nout
            && !leaves_carried(s, k)) {
            buf_printf(p->b, "%sfloat n%u[%d];\n", any ? ""
                       : ctx_format(p->c, "find_chunk(a.run, %s, x);\n",
                                    walked_text(p, first)),
                       (unsigned)k->node[0], lane_entries((int)k->nrow));
            put_lanes_found(p, k, "n");
            any = true;
        }
        for (int i = 0; i < k->nnodes; i++) {
            const Node *n = fetched_input(s, k->node[i]);
            if (k->role != role || !is_fetched(s, k, i))
                continue;
            buf_printf(p->b, "const Along<%s> s%u(a.tensor[%d], x, lane%s);\n"
                       "Loaded<%s> n%u = %s;\n", input_type(p, n),
                       (unsigned)k->node[i], input_tensor(p, n),
                       s->g->n[k->node[i]].op == OP_after ? ", 1" : "",
                       element_type(p->o->in[n->index]), (unsigned)k->node[i],
                       along_text(p, k->node[i], "load", first));
        }
    }
    put_first_asked(p, role, from);
}

void put_vector_turn(Print *p, KRole role)
{
    const Schedule *s = p->s;
    bool turns = role == KR_VECTOR && vectors_in_turn(p);
    if (turns)
        buf_printf(p->b, "if ((%s + warp) & 1)\ncontinue;\n",
                   turn_counter(s, role));
    p->next = fetches_lanes(s, role) ? "min(m + 1, chunks - 1)"
            : turns ? "m + 2" : "m + 1";
    p->asks = asks_ahead(p, role);
    if (fetches_ahead(s) && fetches_lanes(s, role))
        buf_printf(p->b, "Item next = x;\nfind_chunk(a.run, %s, next);\n",
                   walked_text(p, p->next));
}

/* The next chunk's first token is asked for with that chunk. */
static void put_fetched(Print *p, Ref r)
{
    const Node *n = fetched_input(p->s, r);
    unsigned at = (unsigned)r;
    bool behind = p->s->g->n[r].op == OP_after;
    if (!fetches_ahead(p->s)) {
        buf_printf(p->b, "const Pair v%u = input_pair<%s>(a.tensor[%d], %s,"
                   " lane);\n", at, input_type(p, n), input_tensor(p, n),
                   behind ? "one_behind(x)" : "x");
        return;
    }
    buf_printf(p->b, "const Pair v%u = pair_of(n%u);\nn%u = %s;\n", at, at, at,
               along_text(p, r, "load", p->next));
    if (p->asks && !behind)
        buf_printf(p->b, "%s;\n", along_text(p, r, "ask_for",
                   ctx_format(p->c, "m + %d", ASKED_AHEAD)));
}

static void put_vector_node(Print *p, Ref r)
{
    const Graph *g = p->s->g;
    const Node *n = &g->n[r];
    Buf *b = p->b;
    unsigned at = (unsigned)r;
    if (!schedule_computes(p->s, r)) {
        put_found(p, r);
        return;
    }
    switch (n->op) {
    case OP_input:
        if (!n->timed) {
            buf_printf(b, "const float v%u = constant<%d>(a.tensor[%d],"
                       " x.head);\n", at,
                       (int)dtype_size(p->o->in[n->index]),
                       tensor_for(p, ARG_INPUT, n->index,
                                  p->o->in[n->index]));
            return;
        }
        put_fetched(p, r);
        return;
    case OP_state:                      /* carried: it has its name */
        return;
    case OP_cumsum:
        buf_printf(b, "Pair v%u = %s(%s, lane, x.n);\n", at, n->flags & REVERSE
                   ? "sum_back" : "running_sum", as_pair(p, n->a[0]));
        if (n->flags & EXCLUSIVE)
            buf_printf(b, "v%u = %s;\n", at, ctx_format(p->c, n->flags
                       & REVERSE ? "delayed_back(v%u, 0.f, lane, x.n)"
                                 : "delayed(v%u, 0.f, lane)", at));
        return;
    case OP_last:
        buf_printf(b, "const float v%u = last_row(%s, %s);\n", at,
                   as_pair(p, n->a[0]), n->flags & REVERSE ? "1" : "x.n");
        return;
    case OP_after:
        if (p->s->g->n[n->a[0]].op == OP_num)
            buf_printf(b, "const Pair v%u = tokens_behind(x, %s, lane);\n", at,
                       number_name(p, n->a[0]));
        else
            put_fetched(p, r);
        return;
    case OP_delay:
        buf_printf(b, "const Pair v%u = %s(%s, %s, lane%s);\n", at, n->flags
                   & REVERSE ? "delayed_back" : "delayed",
                   as_pair(p, n->a[0]), number_name(p, n->a[1]),
                   n->flags & REVERSE ? ", x.n" : "");
        return;
    case OP_scan: case OP_maxscan:
        vector_scan(p, r);
        return;
    case OP_ofrank:
        buf_printf(b, "const Pair v%u = of_rank(%s, %d, lane);\n", at,
                   as_pair(p, n->a[0]), (int)n->index);
        return;
    case OP_dot: case OP_sum:
        vector_sum(p, r);
        return;
    }
    if (!n->axes) {
        buf_printf(b, "const float v%u = ", at);
        elementwise_text(p, b, r, "");
        buf_printf(b, ";\n");
        return;
    }
    buf_printf(b, "const Pair v%u = { ", at);
    elementwise_text(p, b, r, ".a");
    buf_printf(b, ", ");
    elementwise_text(p, b, r, ".b");
    buf_printf(b, " };\n");
}

/* Whether sums of the matrix role are what the program has of r. */
static bool finds(const Print *p, const KInst *k, Ref r)
{
    for (int i = 0; i < k->nin; i++) {
        const KValue *v = value_at(p, k->in[i]);
        if (v->node == r && has_matrices(buffer_of(p, v)->writer))
            return true;
    }
    return false;
}

/* The first program that finds sums is the one that keeps them. */
static bool is_found_before(const Print *p, const KInst *k, Ref r)
{
    bool before = false;
    for (const KInst *i = p->s->inst; i < k; i++)
        before |= i->op == K_VECTOR && finds(p, i, r);
    return before;
}
static bool finds_first(const Print *p, const KInst *k, Ref r)
{
    return finds(p, k, r) && !is_found_before(p, k, r);
}

void put_vectors(Print *p, const KInst *k)
{
    const Graph *g = p->s->g;
    Buf *b = p->b;
    each_bit(p, k, k->wait_full, false, put_wait);
    for (int i = 0; i < k->nin; i++) {
        const KValue *v = value_at(p, k->in[i]);
        if (v->row >= AX_DIM && is_found_before(p, k, v->node))
            continue;
        if (v->row >= AX_DIM)
            put_kept_sums(p, v);
        else if (v->layout == LAY_VECTOR)
            buf_printf(b, "const Pair v%u = parts_pair<%d>(%s, lane);\n",
                       (unsigned)v->node, v->parts, place(p, v));
        else
            buf_printf(b, "const float v%u = parts_sum<%d>(%s, 1, 0);\n",
                       (unsigned)v->node, v->parts, place(p, v));
    }
    put_release(p, k);
    for (int i = 0; i < k->nin; i++)
        if (finds_first(p, k, value_at(p, k->in[i])->node))
            put_kept(p, value_at(p, k->in[i])->node);
    for (int i = 0; i < k->nnodes; i++) {
        if (is_in_common(p, k, k->node[i]))
            continue;
        put_vector_node(p, k->node[i]);
        if (schedule_computes(p->s, k->node[i]))
            put_kept(p, k->node[i]);
    }
    each_bit(p, k, k->wait_empty, true, put_wait);
    for (int i = 0; i < k->nout; i++) {
        const KValue *v = value_at(p, k->out[i]);
        if (v->layout == LAY_VECTOR)
            buf_printf(b, "store_pair(%s, v%u, lane);\n", place(p, v),
                       (unsigned)v->node);
        else
            buf_printf(b, "if (lane == 0)\nstore1(%s, v%u);\n", place(p, v),
                       (unsigned)v->node);
    }
    each_bit(p, k, k->post_full, false, put_post);
    for (int i = 0; i < g->nout; i++) {
        Ref r = shown_node(g, g->out[i].node);
        if (p->s->wants_out[i] && (has_node(k, r) || finds_first(p, k, r)))
            buf_printf(b, "%soutput_pair<%s%s>(a.tensor[%d], x, v%u, lane);"
                       "\n", once_text(p, r),
                       element_type(result_type(p, ARG_OUTPUT, i)),
                       g->out[i].ranked ? ", true" : "",
                       result_tensor(p, ARG_OUTPUT, i), (unsigned)r);
    }
}
