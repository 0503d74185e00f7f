/* emit_gate.c -- gates per key, in the ahead warpgroup.
 *
 * The running sum of a gate along the chunk is kept in float32, a column by
 * one thread. It makes the decays of matrices, of the state's columns (keys),
 * and gdots: scores whose every product has a decay of its own.
 */
#include "ahead.h"

static int width(const Emit *e, Ref r)
{
    return padded(e->g->axis[tile_axis(e, r)].size);
}

void find_gdots(Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    if (!is_score(e, r))
        return;
    for (int i = 0; i < 2 && n->a[i]; i++)
        if (n->op == OP_gdot)
            use_gated(e, n->a[i]);
        else
            find_gdots(e, n->a[i]);
}

/* ---- running sums ---- */

static void one_sum(Emit *e, Buf *b, int gate)
{
    Buf body = { .ctx = e->c };
    Ahead a = { .e = e, .b = &body, .made = true, .scalar = true };
    Ref of = e->gate[gate].of;
    ahead_visit(&a, of);
    ahead_elements(&a);
    buf_printf(b, "/* the running sum of %%%u */\n"
               "if (at.thread < %d) {\n"
               "const int k = at.thread;\n"
               "const u32 to = scratch + GATE_%d + 4 * k;\n"
               "float sum = 0;\nstore1(gate_row<%d>(to, 0), 0);\n"
               "NO_UNROLL for (int i = 0; i < 64; i += 16) {\n"
               "float x[16];\nUNROLL for (int n = 0; n < 16; n++) {\n"
               "const int i0 = i + n;\n", (unsigned)of, width(e, of), gate,
               width(e, of));
    ahead_vectors(&a, b, false);
    buf_put(b, body.s, body.len);
    buf_printf(b, "x[n] = i0 < rows ? v%u_0 : 0.f;\n}\n"
               "UNROLL for (int n = 0; n < 16; n++) {\nsum += x[n];\n"
               "store1(gate_row<%d>(to, i + n + 1), sum);\n}\n}\n}\n",
               (unsigned)of, width(e, of));
}

/* A sum's row 0 is before the first token: an exclusive one is a row up. */
void gate_text(Ahead *a, Ref r, int el)
{
    Emit *e = a->e;
    const Node *n = &e->g->n[r];
    int gate = use_gate(e, n->op == OP_last ? n->a[0] : r);
    buf_printf(a->b, "load1(gate_row<%d>(scratch + GATE_%d, ", width(e, r), gate);
    if (n->op == OP_last)
        buf_printf(a->b, "64");
    else
        buf_printf(a->b, "i%d%s", el >> 1, n->flags & EXCLUSIVE ? "" : " + 1");
    buf_printf(a->b, a->scalar ? ") + 4 * k)" : ") + 4 * k%d)", el & 1);
}

void key_text(Ahead *a, Ref r, int el)
{
    int key = use_key(a->e, r);
    if (a->scalar)
        buf_printf(a->b, "load1(stage + KEY_%d + 4 * k)", key);
    else
        buf_printf(a->b, "load1(stage + KEY_%d + 4 * k%d)", key, el & 1);
}

/* An argument per column, of the matrices' type. */
static void load_key(Emit *e, Buf *b, int key)
{
    CudaKernel *k = e->out;
    Ref r = e->key[key];
    if (k->ntensors == CUDA_TENSORS)
        no_place(e, r, "too many arguments in one kernel");
    buf_printf(b, "/* %%%u */\nif (at.thread < %d) {\n"
               "const int k = at.thread;\n"
               "store1(stage + KEY_%d + 4 * k, k < %d ? column(a.tensor[%d], "
               "head, k) : 0.f);\n}\n", (unsigned)r, width(e, r), key,
               (int)e->g->axis[tile_axis(e, r)].size, k->ntensors);
    k->tensor[k->ntensors++] = (CudaArg){ ARG_INPUT,
        (uint8_t)e->g->n[r].index, (uint8_t)e->o->tile };
}

/* Arguments come first: matrices are made of them. */
void emit_sums(Emit *e, Buf *b)
{
    for (int i = 0; i < e->ngates; i++)
        one_sum(e, b, i);
    for (int i = 0; i < e->nkeys; i++)
        if (e->g->n[e->key[i]].op == OP_input)
            load_key(e, b, i);
}

void emit_keys(Emit *e, Buf *b)
{
    for (int i = 0; i < e->nkeys; i++) {
        Buf body = { .ctx = e->c };
        Ahead a = { .e = e, .b = &body, .made = true, .scalar = true };
        Ref r = e->key[i];
        if (e->g->n[r].op == OP_input)
            continue;
        ahead_visit(&a, r);
        ahead_elements(&a);
        buf_printf(b, "/* %%%u */\nif (at.thread < %d) {\n"
                   "const int k = at.thread;\n", (unsigned)r,
                   width(e, r));
        ahead_vectors(&a, b, false);
        buf_put(b, body.s, body.len);
        buf_printf(b, "store1(stage + KEY_%d + 4 * k, v%u_0);\n}\n", i,
                   (unsigned)r);
    }
}

/* ---- gdot ---- */

void emit_gdot(Emit *e, Buf *b, Ref r)
{
    const Node *n = &e->g->n[r];
    Ref a = strip(e->g, n->a[0]), c = strip(e->g, n->a[1]);
    Ref ga = strip(e->g, n->a[2]), gb = strip(e->g, n->a[3]);
    bool sums = e->g->n[ga].op == OP_cumsum && e->g->n[gb].op == OP_cumsum;
    if (n->over != AXIS(tile_axis(e, a)) || tile_axis(e, a) == e->row_axis)
        no_place(e, r, "scores contract one axis, not the state's rows");
    if (!sums || e->g->n[gb].flags & EXCLUSIVE
        || use_gate(e, ga) != use_gate(e, gb))
        no_place(e, r, "gates that are not sums of the same along the chunk");
    buf_printf(b, "float dot%u[32];\ngated_product<%d, %d>(dot%u, stage + "
               "TILE_%u, stage + TILE_%u, scratch + GATE_%d, at);\n",
               (unsigned)r, width(e, a),
               e->g->n[ga].flags & EXCLUSIVE ? 1 : 0, (unsigned)r, (unsigned)a,
               (unsigned)c, use_gate(e, ga));
}
