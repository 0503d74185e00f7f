/* rotate.c -- software pipelining of a loop that carries states in registers:
 * what an iteration does for the next one while products of its own are under
 * way, and what it leaves to it. A state is packed as a factor once what it
 * becomes has ended; results stay packed, and are written while the next
 * iteration's products are under way, as states that are stored are.
 */
#include "schedule.h"

#include <string.h>

/* The instruction that begins, or carries on, with the value; NOTHING: none. */
static int find_state(const Schedule *s, KOp op, int value)
{
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        if (k->op == op && k->role == KR_MATRIX
            && (op == K_BEGIN ? k->nout && k->out[0] == value
                              : k->nin > 1 && k->in[1] == value))
            return i;
    }
    return NOTHING;
}

/* What the instruction packs, among other things, of a state as the walk finds
 * it: which of its results; NOTHING: none. */
static int packed_state(const Schedule *s, const KInst *k)
{
    bool program = k->op == K_MAP && k->role == KR_MATRIX;
    for (int j = 0; j < k->nout && program; j++) {
        const KValue *v = &s->value[k->out[j]];
        int f = schedule_value(s, v->node, LAY_FRAGMENT);
        if (v->layout == LAY_PACKED && f != NOTHING
            && find_state(s, K_BEGIN, f) != NOTHING)
            return j;
    }
    return NOTHING;
}

/* That is done before the loop, and where the state is carried on. */
static void pack_early(Schedule *s, int at, int result)
{
    KInst *k = &s->inst[at];
    int packed = k->out[result];
    int state = schedule_value(s, s->value[packed].node, LAY_FRAGMENT);
    int carry = find_state(s, K_CARRY, state);
    if (carry == NOTHING || fragment_root(s, s->inst[carry].in[0]) != state)
        return;
    KInst packs = s->inst[carry];
    packs.in[1] = (int16_t)packed;
    KInst begin = { .op = K_BEGIN, .role = KR_MATRIX, .index = packs.index,
                    .nin = 1, .nout = 1 };
    begin.in[0] = (int16_t)state;
    begin.out[0] = (int16_t)packed;
    inst_insert(s, carry, packs);
    k = &s->inst[at];
    k->out[result] = k->out[--k->nout];
    if (!k->nout)
        inst_remove(s, at);
    inst_insert(s, find_state(s, K_BEGIN, state) + 1, begin);
}

/* Whether the value is a tile that is stored, and nothing else. */
static bool is_result(const Schedule *s, int value)
{
    bool stored = false;
    for (int i = 0; i < s->ninsts; i++)
        for (int j = 0; j < s->inst[i].nin; j++) {
            bool reads = s->inst[i].in[j] == value;
            if (reads && s->inst[i].role != KR_STORE)
                return false;
            stored |= reads;
        }
    return stored && s->value[value].layout == LAY_TILE;
}

static int packed_of(Schedule *s, int tile)
{
    KValue of = s->value[tile], v = of;
    v.layout = LAY_PACKED;
    v.row = of.col;
    v.col = of.row;
    v.nrow = of.ncol;
    v.ncol = of.nrow;
    value_add(s, v);
    return s->nvalues - 1;
}

/* Who makes it leaves it packed; it becomes a tile in the iteration behind. */
static void leave_deferred(Schedule *s, int at, int result)
{
    KInst deferred = s->inst[at];
    int tile = deferred.out[result], first = 0;
    int packed = packed_of(s, tile);
    s->inst[at].out[result] = (int16_t)packed;
    deferred.deferred = true;
    deferred.nin = deferred.nout = 1;
    deferred.in[0] = (int16_t)packed;
    deferred.out[0] = (int16_t)tile;
    deferred.nnodes = 0;
    while (s->inst[first].op == K_BEGIN)
        first++;
    inst_insert(s, first, deferred);
}

/* Whether the program leaves a state as it is found, as a tile of its columns.
 */
static bool leaves_state(const Schedule *s, const KInst *k)
{
    return k->op == K_MAP && k->role == KR_MATRIX && !k->nnodes
        && k->nin == 1 && k->nout == 1
        && s->value[k->in[0]].layout == LAY_FRAGMENT
        && s->value[k->out[0]].layout == LAY_TILE
        && s->value[k->out[0]].row != s->row_axis
        && find_state(s, K_BEGIN, k->in[0]) != NOTHING;
}

void schedule_store_packed(Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++) {
        KInst *k = &s->inst[i];
        int packed = leaves_state(s, k)
            ? schedule_value(s, s->value[k->in[0]].node, LAY_PACKED) : NOTHING;
        if (packed != NOTHING && value_writer(s, packed) < i)
            k->in[0] = (int16_t)packed;
    }
}

/* Requires a row axis, and roles; instructions have no buffers yet. */
void schedule_rotate(Schedule *s)
{
    for (int i = 0; i < s->ninsts && s->rotates > 0; i++) {
        int result = packed_state(s, &s->inst[i]);
        if (result != NOTHING)
            pack_early(s, i, result);
    }
    schedule_store_packed(s);
    for (int i = 0; i < s->ninsts && s->rotates > 1; i++) {
        const KInst *k = &s->inst[i];
        if (k->op != K_MAP || k->role != KR_MATRIX || k->deferred)
            continue;
        for (int j = 0; j < k->nout; j++) {
            Ref r = s->value[k->out[j]].node;
            if (is_result(s, k->out[j])
                && schedule_value(s, r, LAY_PACKED) == NOTHING) {
                leave_deferred(s, i++, j);
                k = &s->inst[i];
            }
        }
    }
}
