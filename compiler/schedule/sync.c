/* sync.c -- who waits for whom. Each buffer that goes from role to role is
 * handed over whole: its writer waits until it is empty before the first
 * instruction that writes it and says full after the last; each reader waits
 * until it is full and says empty likewise. Of a buffer whose values alternate
 * each value is handed over by itself. What the matrix role writes and reads
 * itself, all its warps together, is ordered by K_SYNC.
 */
#include "schedule.h"

#include <string.h>

static bool takes_turn(const Schedule *s, const int16_t *list, int n,
                       int buffer, int use)
{
    for (int i = 0; i < n; i++)
        if (s->value[list[i]].buffer == buffer
            && s->value[list[i]].use == use)
            return true;
    return false;
}

/* From the first of the role's instructions that use it to the last. */
static void hand_over(Schedule *s, int buffer, int role, int use, bool writes)
{
    int first = NOTHING, last = NOTHING;
    uint32_t bit = 1u << buffer;
    for (int i = 0; i < s->ninsts; i++) {
        KInst *k = &s->inst[i];
        if (k->role != role
            || !takes_turn(s, writes ? k->out : k->in,
                           writes ? k->nout : k->nin, buffer, use))
            continue;
        first = first == NOTHING ? i : first;
        last = i;
    }
    if (first == NOTHING)
        return;
    *(writes ? &s->inst[first].wait_empty : &s->inst[first].wait_full) |= bit;
    *(writes ? &s->inst[last].post_full : &s->inst[last].post_empty) |= bit;
}

/* ---- the matrix role's own order ---- */

/* What a warp finds of scores that are to be inverted it has written itself, if
 * they are those of one warpgroup ahead; where the inverse takes of others' it
 * meets them. */
static bool is_warps_own(const Schedule *s, int role, int value)
{
    uint32_t bit = 1u << s->value[value].buffer;
    return s->value[value].layout == LAY_WIDE && role == KR_AHEAD
        && s->ahead == 1 && places_of(s, bit) == bit;
}

static uint32_t matrix_buffers(const Schedule *s, int role,
                               const int16_t *list, int n)
{
    uint32_t set = 0;
    for (int i = 0; i < n; i++) {
        int b = s->value[list[i]].buffer;
        bool written = b != NOTHING && !s->value[list[i]].given
                    && (s->buffer[b].writer == role
                                     || (role == KR_AHEAD
                                         && lies_over_loaded(s, list[i])));
        if (written
            && s->buffer[b].readers & 1u << role
            && !is_warps_own(s, role, list[i]))
            set |= 1u << b;
    }
    return set;
}

static bool is_vector(const Schedule *s, int value)
{
    return s->value[value].layout == LAY_VECTOR;
}

/* Whether each thread goes over entries of vectors by itself. */
static bool is_entrywise(const Schedule *s, const KInst *k)
{
    bool all = k->op == K_ACROSS || k->op == K_CARRY;
    for (int i = 0; i < k->nnodes; i++)
        all &= !op_is(s->g->n[k->node[i]].op, PAIRS);
    return all;
}

/* Whether a thread that goes over vectors so has left its entries of this one
 * itself: of a state, of what becomes of it. */
static bool is_threads_own(const Schedule *s, const KInst *k, int value)
{
    const KValue *v = &s->value[value];
    int from = value_writer(s, value);
    bool along = k->op == K_CARRY || v->row == k->row;
    return is_vector(s, value) && along && v->parts == 1 && from != NOTHING
        && (s->inst[from].op == K_BEGIN
            || (s->inst[from].op == K_ACROSS
                && s->inst[from].role == k->role));
}

uint32_t matrix_reads(const Schedule *s, const KInst *k)
{
    int n = k->op == K_END ? 0 : k->op == K_CARRY && k->nin ? 1 : k->nin;
    int16_t others[MOST_USES];
    int all = 0;
    for (int i = 0; i < n; i++)
        if (!is_entrywise(s, k) || !is_threads_own(s, k, k->in[i]))
            others[all++] = k->in[i];
    return matrix_buffers(s, k->role, others, all);
}

uint32_t matrix_writes(const Schedule *s, const KInst *k)
{
    if (k->op == K_CARRY && k->nin > 1 && is_vector(s, k->in[1]))
        return matrix_buffers(s, k->role, &k->in[1], 1);
    return matrix_buffers(s, k->role, k->out, k->nout);
}

uint32_t places_of(const Schedule *s, uint32_t buffers)
{
    uint32_t set = buffers;
    for (int a = 0; a < s->nbuffers; a++)
        for (int b = 0; b < s->nbuffers; b++)
            if (buffers >> a & 1 && !lie_apart(&s->buffer[a], &s->buffer[b]))
                set |= 1u << b;
    return set;
}

uint32_t matrix_overwrites(const Schedule *s, const KInst *k)
{
    uint32_t set = matrix_writes(s, k);
    for (int i = 0; i < k->nout; i++)
        if (lies_over_loaded(s, k->out[i]))
            set &= ~(1u << s->value[k->out[i]].buffer);
    return set;
}

typedef struct Dirty { uint32_t written, read; } Dirty;

/* Whether the warps must meet before the instruction, given what was written
 * and read since they last did. */
static bool must_meet(const Schedule *s, const KInst *k, const Dirty *d)
{
    return matrix_reads(s, k) & d->written
        || (k->op != K_BEGIN && places_of(s, matrix_overwrites(s, k))
                                & (d->written | d->read));
}

static bool role_meets(const Schedule *s, int role)
{
    bool any = false;
    for (int i = 0; i < s->ninsts; i++)
        any |= s->inst[i].role == role && s->inst[i].op == K_SYNC;
    return any;
}

uint32_t places_again(const Schedule *s, int role)
{
    uint32_t set = ~0u;
    int turns = s->interleave ? s->interleave : 1;
    bool walks = s->kind != K_TOKEN && role_meets(s, role);
    for (int b = 0; b < s->nbuffers && walks; b++)
        if (s->buffer[b].uses == 1 && s->buffer[b].depth >= 2 * turns)
            set &= ~(1u << b);
    return set;
}

/* Once more from what the item before has left behind. */
static void order_role(Schedule *s, int role)
{
    Dirty d = { 0, 0 };
    for (int round = 0; round < 2; round++) {
        uint32_t again = places_again(s, role);
        d.written &= again;
        d.read &= again;
        for (int i = 0; i < s->ninsts; i++) {
            KInst *k = &s->inst[i];
            if (k->role != role)
                continue;
            if (k->op != K_SYNC && must_meet(s, k, &d)) {
                inst_insert(s, i, (KInst){ .op = K_SYNC, .index = NOTHING,
                                           .role = (uint8_t)role });
                k = &s->inst[i];
            }
            if (k->op == K_SYNC)
                d = (Dirty){ 0, 0 };
            d.written |= matrix_writes(s, k);
            d.read |= matrix_reads(s, k);
        }
    }
}

/* ---- loads ---- */

/* When the place of what is loaded is free, in instructions from the item's
 * beginning on: behind the last that reads what lay there before, in this item
 * or one before it. */
static int free_from(const Schedule *s, const KInst *load)
{
    const KValue *v = &s->value[load->out[0]];
    const KBuffer *b = &s->buffer[v->buffer];
    int before = v->use ? v->use - 1 : b->uses - 1, last = 0;

    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].role != load->role
            && takes_turn(s, s->inst[i].in, s->inst[i].nin, v->buffer, before))
            last = i;
    return v->use ? last : last - b->depth * s->ninsts;
}

/* Whether what is loaded comes into a place that is free within the item. */
static bool waits_in_item(const Schedule *s)
{
    bool waits = false;

    for (int b = 0; b < s->nbuffers; b++)
        waits |= s->buffer[b].copied && s->buffer[b].tile
             && s->buffer[b].depth == 1;
    return waits;
}

/* The role that loads waits for one place after the other: those that are free
 * first come first, so that what comes late holds up no other. A walk's come as
 * they are read where there are two places for each, which was not slower. */
static void order_loads(Schedule *s)
{
    bool orders = s->kind == K_TOKEN
        || (s->kind == K_REVERSE && waits_in_item(s));

    for (int i = 0; i < s->ninsts && orders; i++) {
        if (s->inst[i].op != K_LOAD)
            continue;
        int least = i;
        for (int j = i + 1; j < s->ninsts; j++)
            if (s->inst[j].op == K_LOAD
                && free_from(s, &s->inst[j]) < free_from(s, &s->inst[least]))
                least = j;
        KInst first = s->inst[least];
        for (int j = least, to = least; j-- > i;)
            if (s->inst[j].op == K_LOAD) {
                s->inst[to] = s->inst[j];
                to = j;
            }
        s->inst[i] = first;
    }
}

/* ---- what is found by way of the role ahead ---- */

/* Buffers that the role fills, or reads. */
static uint32_t buffers_of(const Schedule *s, int role, bool writes)
{
    uint32_t set = 0;
    for (int b = 0; b < s->nbuffers; b++)
        if (!is_internal(&s->buffer[b])
            && (writes ? s->buffer[b].writer == role
                       : (s->buffer[b].readers >> role & 1)
                         && s->buffer[b].uses == 1))
            set |= 1u << b;
    return set;
}

/* Of those the ones that the role ahead waits for before it tells of `last`, a
 * buffer of its own. */
static uint32_t waited_before(const Schedule *s, uint32_t last)
{
    uint32_t set = 0, told = 0;
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].role == KR_AHEAD && !(told & last)) {
            set |= s->inst[i].wait_full;
            told |= s->inst[i].post_full;
        }
    return set;
}

/* Whether the role ahead has said that the one is there, or has waited for it,
 * before it says so of the other. */
static bool is_told_before(const Schedule *s, int one, int other)
{
    bool before = waited_before(s, 1u << other) >> one & 1, told = false;
    for (int i = 0; i < s->ninsts && !told && !is_filled_by_both(s, one); i++) {
        uint32_t full = s->inst[i].role == KR_AHEAD ? s->inst[i].post_full : 0;
        told = full >> other & 1;
        before |= full >> one & 1 && (!told || one < other);
    }
    return before;
}

/* Of the buffers those that nothing else is told of behind. */
static uint32_t told_last(const Schedule *s, uint32_t buffers)
{
    uint32_t set = buffers;
    for (int one = 0; one < s->nbuffers; one++)
        for (int other = 0; other < s->nbuffers; other++)
            if (one != other && buffers >> one & buffers >> other & 1
                && is_told_before(s, one, other))
                set &= ~(1u << one);
    return set;
}

/* The matrix role waits for what is made ahead last, when it first wants
 * something of it or of what that role has waited for: it waits for nothing of
 * that again. */
static void chain_waits(Schedule *s)
{
    uint32_t written = buffers_of(s, KR_AHEAD, true)
                  & buffers_of(s, KR_MATRIX, false);
    uint32_t found = 0;
    bool first = true;
    for (int b = 0; b < s->nbuffers; b++)
        if (written >> b & 1)
            found |= waited_before(s, 1u << b);
    found &= buffers_of(s, KR_MATRIX, false);
    for (int i = 0; i < s->ninsts; i++) {
        KInst *k = &s->inst[i];
        if (k->role != KR_MATRIX || !(k->wait_full & (written | found)))
            continue;
        k->wait_full &= ~(written | found);
        k->wait_full |= first ? told_last(s, written) : 0;
        first = false;
    }
}

/* ---- what is told by way of what is made ahead ---- */

static bool takes_of(const Schedule *s, const KInst *k, int buffer)
{
    return takes_turn(s, k->in, k->nin, buffer, 0)
        || takes_turn(s, k->out, k->nout, buffer, 0);
}

/* The role ahead's last that uses the buffer. */
static int last_ahead(const Schedule *s, int buffer)
{
    int last = NOTHING;
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].role == KR_AHEAD && takes_of(s, &s->inst[i], buffer))
            last = i;
    return last;
}

/* Tiles that lanes of the role ahead alone leave, told of behind all of its
 * uses of the buffer: with a fence, which those have, too. */
static uint32_t tiles_behind(const Schedule *s, int buffer)
{
    int from = last_ahead(s, buffer);
    uint32_t set = 0;
    for (int i = from; i != NOTHING && i < s->ninsts; i++)
        set |= s->inst[i].role == KR_AHEAD ? s->inst[i].post_full : 0;
    for (int b = 0; b < s->nbuffers; b++)
        if (!s->buffer[b].tile || s->buffer[b].uses > 1
            || is_filled_by_both(s, b))
            set &= ~(1u << b);
    return set;
}

/* For which of the tiles the matrix role waits before it says that the buffer
 * is empty. */
static uint32_t waited_behind(const Schedule *s, int buffer, uint32_t tiles,
                              bool lean)
{
    uint32_t waited = 0;
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        if (k->role != KR_MATRIX)
            continue;
        waited |= k->deferred ? 0 : lean ? k->lean_full : k->wait_full;
        if (k->post_empty >> buffer & 1)
            return waited & tiles;
    }
    return 0;
}

/* Whether lean iterations have something of the role ahead. */
static bool works_lean(const Schedule *s)
{
    bool any = false;
    for (int i = 0; i < s->ninsts; i++)
        any |= s->inst[i].role == KR_AHEAD && s->inst[i].lean;
    return any;
}

/* In lean iterations, too: by way of a tile that they fill, or, where the role
 * ahead reads nothing then, of any, as it is. */
bool is_told_by_way(const Schedule *s, int buffer)
{
    const KBuffer *b = &s->buffer[buffer];
    bool may = s->row_axis && b->uses == 1 && !is_filled_by_both(s, buffer)
            && b->writer < KR_MATRIX && b->readers >> KR_MATRIX & 1;
    bool lean = s->splits && lean_buffers(s) >> buffer & 1;
    uint32_t tiles = may ? tiles_behind(s, buffer) : 0;
    uint32_t then = works_lean(s) ? tiles & lean_fills(s) : tiles;
    return waited_behind(s, buffer, tiles, false)
        && (!lean || waited_behind(s, buffer, then, true));
}

/* Lean iterations hand the tile over, too, as it is: the matrix role waits for
 * it where it first says that something is empty. */
static void hand_over_lean(Schedule *s, uint32_t tile)
{
    bool waits = false;
    for (int i = 0; i < s->ninsts; i++) {
        KInst *k = &s->inst[i];
        if (k->role == KR_MATRIX && !waits
            && k->post_empty & (lean_buffers(s) | tile)) {
            k->lean_full |= tile;
            waits = true;
        }
    }
}

/* The role ahead does not say that what it and the matrix role read is empty
 * where that one waits for what was made of it before it says so itself. */
static void tell_once(Schedule *s)
{
    for (int b = 0; b < s->nbuffers; b++) {
        if (!tells_empty(s, KR_AHEAD, b) || !tells_empty(s, KR_MATRIX, b))
            continue;
        uint32_t tiles = waited_behind(s, b, tiles_behind(s, b), false);
        uint32_t tile = tiles & (~tiles + 1);
        if (s->splits && lean_buffers(s) >> b & 1 && !works_lean(s)
            && !(tiles & lean_buffers(s)))
            hand_over_lean(s, tile);
        for (int i = 0; i < s->ninsts && is_told_by_way(s, b); i++)
            if (s->inst[i].role == KR_AHEAD)
                s->inst[i].post_empty &= ~(1u << b);
    }
}

/* ---- decays beside products ---- */

/* What a program finds to make decays of is waited for before the products
 * beside which it does, not between. */
static void wait_early(Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++) {
        KInst *k = &s->inst[i];
        if (!k->early)
            continue;
        int first = i;
        for (int j = i - 1, ends = 0; j >= 0 && ends < 2; j--) {
            if (s->inst[j].role != k->role || s->inst[j].op == K_ACROSS)
                continue;
            ends += s->inst[j].op != K_PRODUCT;
            first = s->inst[j].op == K_PRODUCT ? j : first;
        }
        for (int b = 0; b < s->nbuffers; b++)
            if (k->wait_full >> b & 1 && !s->buffer[b].tile) {
                k->wait_full &= ~(1u << b);
                s->inst[first].wait_full |= 1u << b;
            }
    }
}

/* ---- loads that lag ---- */

/* How many chunks before the matrix role wants it a slot may be filled: what
 * the role ahead alone reads that has left when the other begins with it. */
static int uses_free(const KBuffer *b)
{
    enum { AHEAD = 2 };
    return b->depth + (b->readers == 1u << KR_AHEAD ? AHEAD : 0);
}

/* The place of what is loaded. */
static const KBuffer *filled_by(const Schedule *s, const KInst *load)
{
    return &s->buffer[s->value[load->out[0]].buffer];
}

/* Each load comes so much later than the ring that is free first as its own is
 * free later, at most so many chunks. */
static int lag_at_most(Schedule *s, int most)
{
    int deepest = 0, last = 0;
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].op == K_LOAD && s->inst[i].role == KR_LOAD) {
            int free = uses_free(filled_by(s, &s->inst[i]));
            deepest = free > deepest ? free : deepest;
        }
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].op == K_LOAD && s->inst[i].role == KR_LOAD) {
            int lag = deepest - uses_free(filled_by(s, &s->inst[i]));
            lag = lag < most ? lag : most;
            s->inst[i].lag = (uint8_t)lag;
            last = lag > last ? lag : last;
        }
    return last;
}

/* In walks, what waits for a slot of a ring holds up none of those that are
 * deeper; as far as what is made ahead has room to go on without it. */
static void lag_loads(Schedule *s)
{
    bool lags = s->row_axis;
    for (int i = 0; i < s->ninsts; i++)
        lags &= s->inst[i].op != K_LOAD || filled_by(s, &s->inst[i])->uses == 1;
    if (!lags)
        return;
    int most = lag_at_most(s, UINT8_MAX);
    while (most > 0 && (schedule_stuck(s, false)
                        || (s->splits && schedule_stuck(s, true))))
        most = lag_at_most(s, most - 1);
}

/* What two blocks have left there is there once both have said so, for the role
 * that has made half of it, too: it begins with that, and waits where the
 * product ends. */
static void wait_given(Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        int end = halves_settle(s, i);
        KInst *waits = &s->inst[end == NOTHING ? i : end];
        bool reads = k->role == KR_AHEAD && k->op == K_PRODUCT;
        for (int j = 0; j < k->nin && reads; j++)
            if (s->value[k->in[j]].given)
                waits->wait_full |= 1u << s->value[k->in[j]].buffer;
    }
}

/* Requires buffers; breaks nothing. */
void schedule_sync(Schedule *s)
{
    order_loads(s);
    order_role(s, KR_MATRIX);
    order_role(s, KR_AHEAD);
    for (int b = 0; b < s->nbuffers; b++) {
        if (is_internal(&s->buffer[b]))
            continue;
        for (int use = 0; use < s->buffer[b].uses; use++)
            for (int role = 0; role < NKROLES; role++)
                if (role == s->buffer[b].writer)
                    hand_over(s, b, role, use, true);
                else if (s->buffer[b].readers & 1u << role)
                    hand_over(s, b, role, use, false);
    }
    wait_given(s);
    wait_early(s);
    schedule_lean(s);
    for (int i = 0; i < s->ninsts; i++)
        s->inst[i].lean_full = s->splits ? s->inst[i].wait_full
                                           & lean_buffers(s) : 0;
    if (s->row_axis)
        chain_waits(s);
    tell_once(s);
    lag_loads(s);
}
