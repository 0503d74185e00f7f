/* print_states.c -- states that a walk carries: as it finds them, from chunk to
 * chunk, and as it leaves them; programs of vectors in lanes; what all chunks
 * of a walk have in common.
 */
#include "print_parts.h"

/* ---- what a walk's chunks have in common ---- */

/* Whether the number is one of the whole walk: of constants alone. */
static bool is_constant(const Print *p, Ref r)
{
    const Node *n = &p->s->g->n[r];
    if (n->op == OP_num)
        return true;
    if (n->axes || p->s->stores[r] || !schedule_computes(p->s, r))
        return false;
    if (n->op == OP_input)
        return !n->timed;
    bool all = (op_info[n->op].traits & ELEMENTWISE) != 0;
    for (int i = 0; i < op_info[n->op].arity && i < 4; i++)
        all &= n->a[i] && is_constant(p, n->a[i]);
    return all;
}

/* The same of what lanes have: of inputs that are no token's. */
static bool is_constant_in_lanes(const Print *p, const KInst *k, Ref r)
{
    const Node *n = &p->s->g->n[r];
    if (!(n->axes & AXIS(k->row)))
        return is_constant(p, r);
    if (n->op == OP_input)
        return !n->timed;
    bool all = has_node(k, r) && schedule_computes(p->s, r)
            && (op_info[n->op].traits & ELEMENTWISE) != 0;
    for (int i = 0; i < op_info[n->op].arity && i < 4; i++)
        all &= n->a[i]
            && is_constant_in_lanes(p, k, shown_node(p->s->g, n->a[i]));
    return all;
}

/* Constants are worked out before the walk. */
bool is_in_common(const Print *p, const KInst *k, Ref r)
{
    bool walks = p->s->kind != K_TOKEN && k->op == K_VECTOR && p->s->row_axis
              && p->s->g->n[r].op != OP_num;
    return walks && (k->nrow ? is_constant_in_lanes(p, k, r)
                             : is_constant(p, r));
}

static void put_number_state(Print *p, const KInst *k)
{
    const State *s = &p->s->g->st[k->index];
    CudaArgKind kind = k->op == K_BEGIN ? ARG_STATE : ARG_NEXT;
    const char *type = element_type(result_type(p, kind, k->index));
    unsigned u = (unsigned)s->node;
    if (k->op == K_CARRY)
        buf_printf(p->b, "v%u = %s;\n", u, number_name(p, s->next));
    else if (k->op == K_BEGIN)
        buf_printf(p->b, "float v%u = begin_number<%s>(a.tensor[%d], x);\n",
                   u, type, result_tensor(p, kind, k->index));
    else
        buf_printf(p->b, "%sif (lane == 0)\nend_number<%s>(a.tensor[%d], x,"
                   " v%u);\n", once_text(p, s->node), type,
                   result_tensor(p, kind, k->index), u);
}

/* ---- vectors in lanes ---- */

/* The state, as each chunk finds it. */
static void keep_lanes(Print *p, const KInst *k, Ref r)
{
    buf_printf(p->b, "%sUNROLL for (int e = 0; e < %d; e++)\nif (lane + 32 * e"
               " < %s)\n(%s + %s)[lane + 32 * e] = v%u[e];\n",
               once_text(p, r), lane_entries((int)k->nrow),
               inside_extent(p, k->row),
               kept_place(p, r), sliced_index(p, k->row, 0), (unsigned)r);
}

/* Of a vector that lies in memory what a lane has, of the chunk of `x`. */
void put_lanes_found(Print *p, const KInst *k, const char *name)
{
    buf_printf(p->b, "UNROLL for (int e = 0; e < %d; e++)\n%s%u[e] = lane + 32"
               " * e < %s && chunks > 0 ? %s : 0.f;\n",
               lane_entries((int)k->nrow), name, (unsigned)k->node[0],
               inside_extent(p, k->row),
               vector_text(p, k->node[0], ctx_format(p->c, "%s + lane + 32 * e",
                           sliced_index(p, k->row, 0))));
}

static void put_lanes_handed(Print *p, const KInst *k)
{
    each_bit(p, k, k->wait_empty, true, put_wait);
    for (int i = 0; i < k->nout; i++) {
        const KValue *v = value_at(p, k->out[i]);
        buf_printf(p->b, "UNROLL for (int e = 0; e < %d; e++)\nif (lane + 32 *"
                   " e < %d)\nstore1(%s + 4 * (lane + 32 * e), v%u[e]);\n",
                   lane_entries((int)k->nrow), (int)k->nrow, place(p, v),
                   (unsigned)v->node);
    }
    each_bit(p, k, k->post_full, false, put_post);
}

/* One that is for others: that of the next chunk is fetched meanwhile. */
static void put_lanes_left(Print *p, const KInst *k)
{
    int entries = lane_entries((int)k->nrow);
    unsigned u = (unsigned)value_at(p, k->out[0])->node;
    buf_printf(p->b, "{\nfloat v%u[%d];\nUNROLL for (int e = 0; e < %d; e++)\n"
               "v%u[e] = n%u[e];\n{\nconst Item &x = next;\n", u, entries,
               entries, u, u);
    put_lanes_found(p, k, "n");
    buf_printf(p->b, "}\n");
    put_lanes_handed(p, k);
    buf_printf(p->b, "}\n");
}

/* What lanes have of node r: from one chunk to the next the same, of untimed
 * inputs. */
void put_lanes_node(Print *p, const KInst *k, Ref r)
{
    int entries = lane_entries((int)k->nrow);
    buf_printf(p->b, "float v%u[%d];\nUNROLL for (int e = 0; e < %d; e++)"
               "\nv%u[e] = ", (unsigned)r, entries, entries, (unsigned)r);
    if (schedule_computes(p->s, r) && p->s->g->n[r].op != OP_input)
        elementwise_text(p, p->b, r, "[e]");
    else
        buf_printf(p->b, "lane + 32 * e < %s ? %s : 0.f",
                   inside_extent(p, k->row),
                   vector_text(p, r, ctx_format(p->c, "%s + lane + 32 * e",
                               sliced_index(p, k->row, 0))));
    buf_printf(p->b, ";\n");
}

void put_lanes(Print *p, const KInst *k)
{
    if (k->nout && !leaves_carried(p->s, k)) {
        put_lanes_left(p, k);
        return;
    }
    if (k->nout)
        put_lanes_handed(p, k);
    for (int i = 0; i < k->nnodes; i++) {
        Ref r = k->node[i];
        if (p->s->g->n[r].op == OP_state && schedule_computes(p->s, r))
            keep_lanes(p, k, r);
        else if (!is_in_common(p, k, r))
            put_lanes_node(p, k, r);
    }
}

/* Over an axis: lane l of a vector role has entries l, l + 32 and so on. */
static void put_lane_state(Print *p, const KInst *k)
{
    const State *s = &p->s->g->st[k->index];
    CudaArgKind kind = k->op == K_BEGIN ? ARG_STATE : ARG_NEXT;
    const char *type = element_type(result_type(p, kind, k->index));
    int axis = s->order[0], size = (int)block_extent(p->s, axis);
    unsigned u = (unsigned)s->node;
    if (k->op == K_BEGIN)
        buf_printf(p->b, "float v%u[%d];\n", u, lane_entries(size));
    else if (k->op == K_END)
        buf_printf(p->b, "%s", once_text(p, s->node));
    buf_printf(p->b, "UNROLL for (int e = 0; e < %d; e++)\n",
               lane_entries(size));
    const char *at = ctx_format(p->c, "%s + lane + 32 * e",
                                sliced_index(p, axis, 0));
    if (k->op == K_CARRY)
        buf_printf(p->b, "v%u[e] = %s[e];\n", u, number_name(p, s->next));
    else if (k->op == K_BEGIN)
        buf_printf(p->b, "v%u[e] = lane + 32 * e < %s ? %sbegin_entry<%s>"
                   "(a.tensor[%d], x, %s)%s : 0.f;\n", u,
                   inside_extent(p, axis),
                   is_angle_state(p->s->g, s->node) ? "wrap_(" : "", type,
                   result_tensor(p, kind, k->index), at,
                   is_angle_state(p->s->g, s->node) ? ")" : "");
    else
        buf_printf(p->b, "if (lane + 32 * e < %s)\nend_entry<%s>(a.tensor[%d],"
                   " x, %s, v%u[e]);\n", inside_extent(p, axis), type,
                   result_tensor(p, kind, k->index), at, u);
}

/* A thread has a number each, from chunk to chunk the same one. */
static void put_vector_state(Print *p, const KInst *k)
{
    bool begins = k->op == K_BEGIN, carries = k->op == K_CARRY;
    CudaArgKind kind = begins ? ARG_STATE : ARG_NEXT;
    const KValue *v = value_at(p, begins ? k->out[0] : k->in[carries]);
    const KValue *from = value_at(p, carries ? k->in[0] : 0);
    const char *inside = begins ? inside_text(p, v->row, "k") : NULL;
    buf_printf(p->b, "%sNO_UNROLL for (int k = thread; k < %s; k += %d)\n",
               k->op == K_END ? once_text(p, v->node) : "",
               k->op == K_END ? inside_extent(p, v->row)
               : ctx_format(p->c, "%d", (int)v->nrow),
               GROUP_THREADS * warpgroups_of(p->s, k->role));
    const char *type = element_type(result_type(p, kind, k->index));
    int t = result_tensor(p, kind, k->index);
    const char *at = sliced_index(p, v->row, 0);
    if (carries)
        buf_printf(p->b, "store1(%s + 4 * k, parts_sum<%d>(%s, %d, k));\n",
                   place(p, v), from->parts, place(p, from),
                   (int)vector_size(from));
    else if (begins)
        buf_printf(p->b, "store1(%s + 4 * k, %s%s%sbegin_entry<%s>"
                   "(a.tensor[%d], x, %s + k)%s%s);\n", place(p, v),
                   inside ? inside : "", inside ? " ? " : "",
                   is_angle_state(p->s->g, v->node) ? "wrap_(" : "", type, t,
                   at, is_angle_state(p->s->g, v->node) ? ")" : "",
                   inside ? " : 0.f" : "");
    else
        buf_printf(p->b, "end_entry<%s>(a.tensor[%d], x, %s + k, load1(%s + 4"
                   " * k));\n", type, t, at, place(p, v));
}

void put_kept_vector(Print *p, const KInst *k)
{
    const KValue *v = value_at(p, k->in[0]);
    buf_printf(p->b, "%sNO_UNROLL for (int k = thread; k < %s; k += %d)\n"
               "(%s + %s)[k] = load1(%s + 4 * k);\n", once_text(p, v->node),
               inside_extent(p, v->row),
               GROUP_THREADS * warpgroups_of(p->s, k->role),
               kept_place(p, v->node), sliced_index(p, v->row, 0),
               place(p, v));
}

static void put_role_state(Print *p, const KInst *k)
{
    bool vector = p->s->g->n[p->s->g->st[k->index].node].axes;
    (vector ? put_lane_state : put_number_state)(p, k);
}

/* A state as a factor. */
static void put_packed_state(Print *p, const KValue *from, const KValue *to)
{
    unsigned u = (unsigned)to->node;
    buf_printf(p->b, "pack_all(p%u, %s);\nkeep(p%u);\n", u,
               fragment_name(p, from->node), u);
}

void put_state(Print *p, const KInst *k)
{
    bool begins = k->op == K_BEGIN;
    if (k->role == KR_STORE) {
        put_left_in_memory(p, k);
        return;
    }
    if (!has_matrices(k->role)) {
        put_role_state(p, k);
        return;
    }
    if (begins && k->nin) {
        put_packed_state(p, value_at(p, k->in[0]), value_at(p, k->out[0]));
        return;
    }
    CudaArgKind kind = begins ? ARG_STATE : ARG_NEXT;
    const KValue *v = value_at(p, begins ? k->out[0] : k->in[0]);
    if (v->layout == LAY_VECTOR) {
        put_vector_state(p, k);
        return;
    }
    int t = result_tensor(p, kind, k->index);
    p->k->rows[t] = v->row;
    int share = share_of(p->s, k->role, v->ncol);
    bool padded = is_padded(p->s, v->row) || is_padded(p->s, v->col);
    buf_printf(p->b, "%s%s_state<%s, %d, %d%s>(f%u, a.tensor[%d], x, %s%s,"
               " %s + col0(%d), l);\n", begins ? "" : once_text(p, v->node),
               begins ? "begin" : "end",
               element_type(result_type(p, kind, k->index)),
               rows_of_group(p->s, k->role, v->nrow), share, !padded ? ""
               : ctx_format(p->c, ", %d, %d", padded_end(p, v->row),
                            padded_end(p, v->col)), (unsigned)v->node, t,
               row0_text(p, k),
               sliced_index(p, v->row, 0), sliced_index(p, v->col, 0), share);
    if (begins)
        put_opening(p, k, v);
}

void put_carry(Print *p, const KInst *k)
{
    if (!has_matrices(k->role)) {
        put_role_state(p, k);
        return;
    }
    const KValue *v = value_at(p, k->in[0]);
    if (v->layout == LAY_VECTOR) {
        put_vector_state(p, k);
        return;
    }
    if (packs_carried(p->s, k)) {
        put_packed_state(p, v, value_at(p, k->in[1]));
        return;
    }
    if (fragment_root(p->s, k->in[0]) == k->in[1])
        return;
    const KValue *to = value_at(p, k->in[1]);
    buf_printf(p->b, "UNROLL for (int e = 0; e < %d; e++)\nf%u[e] = %s[e];"
               "\n", fragment_regs(p->s, to), (unsigned)to->node,
               fragment_name(p, v->node));
}
