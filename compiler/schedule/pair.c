/* pair.c -- work that two blocks share. Those that have half a row axis each,
 * of one walk, find the same tokens: of what the role ahead makes of loaded
 * tiles element by element each makes half the columns, and leaves it in the
 * other's shared memory, too. So it loads half, too. Tiles that both find whole
 * as they are each loads by itself: one copy to both, which either waits for,
 * takes 1 to 5 % longer (simple_gla, kda, gated_deltanet, an H200).
 */
#include "schedule.h"

static bool is_read_by_another(const Schedule *s, int value, int at)
{
    bool any = false;
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        any |= i != at && has_value(k->in, k->nin, value)
            && !(k->op == K_CLEAR && k->nin == 1 && k->role == KR_AHEAD);
    }
    return any;
}

/* Whether the program finds of it a number, an entry for each row, or for each
 * pair of columns. */
static bool suits_halves(const Schedule *s, const KInst *k, const KValue *v)
{
    AxisSet axes = s->g->n[v->node].axes;
    bool pairs = !(axes & ~DIM_AXES) && !(axes & AXIS(k->col))
              && 2 * v->nrow == k->ncol;
    return v->layout == LAY_SCALAR
        || (v->layout == LAY_VECTOR && (v->row == AX_I || pairs));
}

/* Whether products alone find it. */
static bool is_multiplied_alone(const Schedule *s, int value)
{
    bool any = false, all = true;
    for (int i = 0; i < s->ninsts; i++)
        if (has_value(s->inst[i].in, s->inst[i].nin, value)) {
            any = true;
            all &= s->inst[i].op == K_PRODUCT || s->inst[i].op == K_SETTLE;
        }
    return any && all;
}

static bool may_share(const Schedule *s, int at)
{
    enum { HALF = 2 };
    const KInst *k = &s->inst[at];
    bool tiles = false;
    if (k->op != K_MAP || k->role != KR_AHEAD || k->row != AX_I
        || k->col < AX_DIM || k->col == s->slice_axis
        || k->ncol % (HALF * TILE_COLS) || is_padded(s, k->col) || !k->nout)
        return false;
    for (int i = 0; i < k->nin; i++) {
        const KValue *v = &s->value[k->in[i]];
        int from = value_writer(s, k->in[i]);
        bool loaded = v->layout == LAY_TILE && v->col == k->col
                   && v->row == AX_I && from != NOTHING
                   && s->inst[from].op == K_LOAD
                   && !is_read_by_another(s, k->in[i], at);
        tiles |= loaded;
        if (!loaded && !suits_halves(s, k, v))
            return false;
    }
    for (int i = 0; i < k->nout; i++) {
        const KValue *v = &s->value[k->out[i]];
        if (v->layout != LAY_TILE || v->alias != NOTHING
            || v->col != k->col || !is_multiplied_alone(s, k->out[i]))
            return false;
    }
    for (int i = 0; i < k->nnodes; i++) {
        const Node *n = &s->g->n[k->node[i]];
        if (!(op_info[n->op].traits & ELEMENTWISE) && !op_is(n->op, PAIRS))
            return false;
    }
    return tiles;
}

static void share(Schedule *s, KInst *k)
{
    k->ncol /= 2;
    for (int i = 0; i < k->nin; i++) {
        KValue *v = &s->value[k->in[i]];
        v->half = v->layout == LAY_TILE;
        v->ncol /= v->half ? 2 : 1;
    }
    for (int i = 0; i < k->nout; i++)
        s->value[k->out[i]].given = true;
}

/* Requires roles, a row axis in slices; instructions have no buffers yet.
 */
void schedule_pair(Schedule *s)
{
    if (s->slices % 2 || s->slice_axis != s->row_axis || !s->may_split
        || s->resident > 1 || !s->target->form[FORM_SHARE]
        || !s->target->form[FORM_COPY]->waited || s->rings)
        return;
    for (int i = 0; i < s->ninsts; i++)
        if (may_share(s, i)) {
            share(s, &s->inst[i]);
            s->paired = true;
        }
}

bool is_filled_by_both(const Schedule *s, int buffer)
{
    bool any = false;
    for (int v = 0; v < s->nvalues; v++)
        any |= s->value[v].buffer == buffer
            && s->value[v].given;
    return any;
}

int halves_settle(const Schedule *s, int at)
{
    const KInst *k = &s->inst[at];
    bool halves = k->op == K_PRODUCT && k->role == KR_AHEAD && k->nin == 2
               && !k->transposed[0] && !k->transposed[1];
    for (int i = 0; i < k->nin && halves; i++)
        halves = s->value[k->in[i]].given;
    int first = at, end = at, products = 0;
    while (first > 0 && !(s->inst[first - 1].role == KR_AHEAD
                          && s->inst[first - 1].op == K_SETTLE))
        first--;
    while (end < s->ninsts && !(s->inst[end].role == KR_AHEAD
                                && s->inst[end].op == K_SETTLE))
        end++;
    for (int i = first; i < end; i++)
        products += s->inst[i].role == KR_AHEAD && s->inst[i].op == K_PRODUCT;
    return halves && products == 1 && end < s->ninsts ? end : NOTHING;
}

/* Whether the role ahead has told the matrix role of something behind the
 * instruction, for which that waits before it says that the buffer is empty. */
static bool is_told_behind(const Schedule *s, int at, int buffer, bool lean)
{
    uint32_t told = 0, waited = 0, only = lean ? lean_buffers(s) : ~0u;
    for (int i = at + 1; i < s->ninsts; i++)
        told |= s->inst[i].role == KR_AHEAD ? s->inst[i].post_full & only : 0;
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        if (k->role != KR_MATRIX)
            continue;
        waited |= lean ? k->lean_full : k->wait_full;
        if (k->post_empty >> buffer & 1)
            return (told & waited) != 0;
    }
    return false;
}

/* What is given lies alone in its buffer, handed over once a chunk, and is
 * overwritten, by either block, only once both roles have read it. */
const char *pair_fault(const Schedule *s)
{
    for (int i = 0; i < s->ninsts && s->paired; i++) {
        const KInst *k = &s->inst[i];
        for (int j = 0; j < k->nin; j++) {
            const KValue *v = &s->value[k->in[j]];
            if (!v->given || k->role != KR_AHEAD)
                continue;
            int end = k->op == K_PRODUCT ? halves_settle(s, i) : NOTHING;
            const KInst *waits = &s->inst[end == NOTHING ? i : end];
            if ((k->op == K_PRODUCT && !(waits->wait_full >> v->buffer & 1))
                || !is_told_behind(s, i, v->buffer, false)
                || (k->lean && !is_told_behind(s, i, v->buffer, true)))
                return ctx_format(s->c, "%%%u is given before the role ahead"
                                  " has read it", (unsigned)v->node);
        }
    }
    for (int v = 0; v < s->nvalues && s->paired; v++) {
        const KValue *x = &s->value[v];
        if (!x->given)
            continue;
        const KBuffer *b = &s->buffer[x->buffer];
        bool alone = b->uses == 1 && b->bytes == value_bytes(x);
        if (!alone || b->writer != KR_AHEAD || !(b->readers >> KR_MATRIX & 1))
            return ctx_format(s->c, "%%%u is given beside others",
                              (unsigned)x->node);
    }
    return NULL;
}
