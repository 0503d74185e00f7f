/* order.c -- the instructions of a role of matrices: products are asked for as
 * soon as their factors are there, on the longest way first; what reads them
 * waits for those alone that it needs, others going on. Each product is one
 * that may be waited for by itself.
 *
 * Without a row axis sums take many registers: there are no more products than
 * these have room for. What the item before has needed to its end is loaded
 * last; what does not need it is done before it is waited for.
 */
#include "schedule.h"

#include <limits.h>
#include <string.h>

enum { MOST_UNDER_WAY = 8 };

typedef struct Order {
    Schedule *s;
    KRole role;
    KInst *inst;                        /* the role's, of an iteration of the
                                           loop */
    int n, *height;
    bool *done, *meets, *free;          /* meets: n by n, in their order; free:
                                           of products before it */
    int *issued;                        /* of products: its number, from 1 */
    int products, ended;
    int carried, room, most;            /* registers: of states; with those of
                                           sums that come early, of any */
    int late;                           /* a tile that is loaded last; or
                                           NOTHING */
    KInst *to;
    int nto, first;                     /* first: of the role's */
} Order;

/* ---- what an instruction meets of others ---- */

/* Where a value is: fragments that are written over one another in one place.
 */
static int place_of(const Schedule *s, int v)
{
    return s->value[v].layout == LAY_FRAGMENT ? fragment_root(s, v) : v;
}

static bool has_place(const Schedule *s, const int16_t *list, int n, int v)
{
    for (int i = 0; i < n; i++)
        if (place_of(s, list[i]) == place_of(s, v))
            return true;
    return false;
}

/* Rows behind a sequence's end are cleared in the tile itself. */
static bool writes_any(const Schedule *s, const KInst *k, const int16_t *list,
                       int n)
{
    bool any = (k->op == K_CLEAR && has_place(s, list, n, k->in[0]))
            || (packs_carried(s, k) && has_place(s, list, n, k->in[1]));
    for (int i = 0; i < k->nout; i++)
        any |= has_place(s, list, n, k->out[i]);
    return any;
}

/* What a store takes of the instruction's; NOTHING: none takes any. */
static int result_left(const Schedule *s, const KInst *k)
{
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].op == K_STORE && !has_matrices(s->inst[i].role)
            && has_value(k->out, k->nout, s->inst[i].in[0]))
            return s->inst[i].in[0];
    return NOTHING;
}

/* Results leave through one ring in the order in which they are made; with a
 * row axis those of one size do. */
static bool leave_in_order(const Schedule *s, const KInst *a, const KInst *b)
{
    int v = result_left(s, a), w = v == NOTHING ? v : result_left(s, b);
    return w != NOTHING
        && (!s->row_axis
            || value_bytes(&s->value[v]) == value_bytes(&s->value[w]));
}

static bool in_order(const Schedule *s, const KInst *a, const KInst *b)
{
    return leave_in_order(s, a, b)
        || writes_any(s, a, b->in, b->nin) || writes_any(s, a, b->out, b->nout)
        || writes_any(s, b, a->in, a->nin);
}

/* Adds what other roles make of the values. */
static void make_elsewhere(const Order *o, bool *made)
{
    const Schedule *s = o->s;
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < s->ninsts; i++) {
            const KInst *k = &s->inst[i];
            bool reads = false;
            for (int j = 0; j < k->nin && k->role != o->role; j++)
                reads |= made[k->in[j]];
            for (int j = 0; j < k->nout && reads; j++) {
                more |= !made[k->out[j]];
                made[k->out[j]] = true;
            }
        }
    }
}

/* What the i-th leaves, and what other roles make of that: who reads it comes
 * behind. */
static bool *find_elsewhere(const Order *o, int i)
{
    const KInst *k = &o->inst[i];
    bool *made = ctx_alloc(o->s->c, (size_t)o->s->nvalues * sizeof *made);
    for (int j = 0; j < k->nout; j++)
        made[k->out[j]] = true;
    make_elsewhere(o, made);
    return made;
}

static bool reads_any(const KInst *k, const bool *made)
{
    bool any = false;
    for (int i = 0; i < k->nin; i++)
        any |= made[k->in[i]];
    return any;
}

/* ---- the longest way from each ---- */

/* The next iteration begins with what is packed of a state. */
static int time_of(const Schedule *s, const KInst *k)
{
    enum { INVERSE = 20, PRODUCT = 5, PROGRAM = 2 };
    return packs_carried(s, k) ? PRODUCT + PROGRAM
         : k->op == K_INVERSE ? INVERSE : k->op == K_PRODUCT ? PRODUCT
         : k->op == K_MAP ? PROGRAM : 1;
}

static void find_heights(Order *o)
{
    for (int i = 0; i < o->n; i++)
        o->free[i] = o->inst[i].op != K_PRODUCT;
    for (int i = o->n - 1; i >= 0; i--) {
        const bool *made = find_elsewhere(o, i);
        int behind = 0;
        for (int j = i + 1; j < o->n; j++) {
            o->meets[i * o->n + j] = in_order(o->s, &o->inst[i], &o->inst[j])
                                  || reads_any(&o->inst[j], made);
            if (o->meets[i * o->n + j] && o->height[j] > behind)
                behind = o->height[j];
        }
        o->height[i] = behind + time_of(o->s, &o->inst[i]);
    }
    for (int i = 0; i < o->n; i++)
        for (int j = i + 1; j < o->n; j++)
            o->free[j] &= o->free[i] || !o->meets[i * o->n + j];
}

/* ---- one after another ---- */

/* Whether what another role has left is cleared with the first that finds it,
 * not before: until then nobody waits for it. */
static bool goes_along(const Order *o, int at)
{
    const KInst *k = &o->inst[at];
    if ((o->s->row_axis && !walks_alone_forward(o->s)) || k->op != K_CLEAR)
        return false;
    int w = value_writer(o->s, k->in[0]);
    return w == NOTHING || o->s->inst[w].role != o->role;
}

/* Whether the program reads a state as it was carried, and waits for no
 * product. */
static bool reads_carried(const Order *o, int at)
{
    const KInst *k = &o->inst[at];
    bool any = false;
    if (!o->free[at])
        return false;
    for (int i = 0; i < k->nin && k->op == K_MAP; i++) {
        int w = value_writer(o->s, k->in[i]);
        any |= w != NOTHING && o->s->inst[w].op == K_BEGIN
            && o->s->value[k->in[i]].layout == LAY_FRAGMENT;
    }
    return any;
}

/* Where nothing is done for the next iteration ptxas does not see that the
 * products of the one before have ended, once there are others under way. */
static bool waits_for_carried(const Order *o, int at)
{
    if ((o->s->row_axis && !walks_alone_forward(o->s))
        || o->inst[at].op != K_PRODUCT)
        return false;
    for (int i = 0; i < o->n; i++)
        if (!o->done[i] && reads_carried(o, i))
            return true;
    return false;
}

/* What the iteration before has left is done when all products are asked for.
 */
static bool is_ready(const Order *o, int at)
{
    bool deferred = o->inst[at].deferred;
    if (o->done[at])
        return false;
    for (int i = 0; i < (deferred ? o->n : at); i++) {
        bool first = i < at && o->meets[i * o->n + at];
        if (!o->done[i] && ((first && !goes_along(o, i))
                            || (deferred && o->inst[i].op == K_PRODUCT)))
            return false;
    }
    return !waits_for_carried(o, at);
}

/* Where registers are short, or ptxas has lacked them: whether what the
 * instruction takes from memory as a factor goes into those of the state that
 * the product has as one. */
static bool takes_room(const Order *o, int product, int at)
{
    const Schedule *s = o->s;
    const KInst *k = &o->inst[at], *p = &o->inst[product];
    bool takes = k->op == K_MAP && k->nout
              && s->value[k->out[0]].layout == LAY_PACKED
              && s->value[k->in[0]].layout == LAY_TILE;
    return takes && (s->ahead > 1 || s->spare) && s->groups > 1
        && o->role == KR_MATRIX
        && s->value[p->in[0]].col != AX_I;
}

/* The last of the products under way that must end before the instruction, by
 * its number; 0: none. Products end in order, whatever they are added to. */
static int waits_for(const Order *o, int at)
{
    int last = 0;
    for (int i = 0; i < o->n; i++)
        if (o->issued[i] > o->ended && o->inst[at].op != K_PRODUCT
            && ((i < at && o->meets[i * o->n + at])
                || takes_room(o, i, at)))
            last = o->issued[i] > last ? o->issued[i] : last;
    return last;
}

/* Of a tile the role may have to wait until it is there. */
static bool finds_tile(const Order *o, int at)
{
    const KInst *k = &o->inst[at];
    bool any = false;
    for (int i = 0; i < k->nin; i++)
        any |= o->s->value[k->in[i]].layout == LAY_TILE;
    return any;
}

/* ---- registers ---- */

/* Whether one that is not done reads what lies in the place of the value. */
static bool is_wanted(const Order *o, int value)
{
    bool any = false;
    for (int i = 0; i < o->n; i++)
        any |= !o->done[i] && has_place(o->s, o->inst[i].in, o->inst[i].nin,
                                        value);
    return any;
}

static bool is_own_fragment(const Schedule *s, int v)
{
    return s->value[v].layout == LAY_FRAGMENT && s->value[v].alias == NOTHING;
}

/* Of states that the role carries. */
static int registers_carried(const Schedule *s, KRole role)
{
    int n = 0;
    for (int i = 0; i < s->ninsts; i++)
        for (int j = 0; j < s->inst[i].nout && s->inst[i].op == K_BEGIN; j++)
            if (s->inst[i].role == role
                && is_own_fragment(s, s->inst[i].out[j]))
                n += fragment_regs(s, &s->value[s->inst[i].out[j]]);
    return n;
}

/* Of fragments that are there, or are to be while products go on. */
static int registers_now(const Order *o)
{
    int n = o->carried;
    for (int i = 0; i < o->n; i++)
        for (int j = 0; j < o->inst[i].nout && o->done[i]; j++) {
            int v = o->inst[i].out[j];
            if (is_own_fragment(o->s, v)
                && (o->issued[i] > o->ended || is_wanted(o, v)))
                n += fragment_regs(o->s, &o->s->value[v]);
        }
    return n;
}

/* Registers that there are with the sums that the instruction leaves, beside so
 * many. A program's lie where those are that it reads. */
static int registers_with(const Order *o, int at, int now)
{
    const KInst *k = &o->inst[at];
    if (k->op == K_MAP)
        return 0;
    for (int i = 0; i < k->nout; i++)
        if (is_own_fragment(o->s, k->out[i]))
            now += fragment_regs(o->s, &o->s->value[k->out[i]]);
    return now;
}

/* Whether it is the first to find the tile that is loaded last; of a row axis,
 * whether it finds one that comes while an iteration is at work. */
static bool is_late(const Order *o, int at)
{
    const KInst *k = &o->inst[at];
    for (int i = 0; i < k->nin; i++)
        if (is_loaded_late(o->s, k->in[i]))
            return true;
    for (int i = 0; i < o->n; i++)
        if (o->done[i] && has_value(o->inst[i].in, o->inst[i].nin, o->late))
            return false;
    return o->late != NOTHING && has_value(k->in, k->nin, o->late);
}

/* Whether nothing goes on from what the instruction leaves. */
static bool is_left(const Order *o, int at)
{
    return (o->inst[at].op == K_MAP || o->inst[at].op == K_ACROSS)
        && o->height[at] == time_of(o->s, &o->inst[at]);
}

/* Whether the tensor cores are busy while the program, on a longer way than the
 * product that may be asked for, is done: one warpgroup that carries states
 * asks for what they become before what nothing goes on from, which ends while
 * they are packed. */
static bool goes_before(const Order *o, int program, int product)
{
    return o->role == KR_MATRIX && o->s->groups == 1
        && o->products > o->ended && o->inst[program].op == K_MAP
        && !waits_for(o, program)
        && o->height[program] > o->height[product];
}

/* What is late comes last; before what nothing goes on from, if that is waited
 * for. */
static bool waits_longer(const Order *o, int other)
{
    return o->s->row_axis && is_left(o, other) && waits_for(o, other);
}

/* Whether it stores a state as it was packed. */
static bool stores_packed(const Order *o, int at)
{
    const KInst *k = &o->inst[at];
    return walks_alone_forward(o->s) && k->op == K_MAP && !k->nnodes
        && k->nin == 1 && o->s->value[k->in[0]].layout == LAY_PACKED;
}

/* A state is stored behind the first product, for which what goes on from it
 * waits anyway; behind another one it would have that wait longer. The others:
 * products come first, then what waits for none, then what waits least: of
 * these what others go on from, then what is in registers, so that it is done
 * when others are waited for. */
static bool is_better(const Order *o, int a, int b)
{
    bool product = o->inst[a].op == K_PRODUCT, late = is_late(o, a);
    if (stores_packed(o, a) != stores_packed(o, b))
        return stores_packed(o, a) == (o->products > 0);
    if (late != is_late(o, b))
        return late ? waits_longer(o, b) : !waits_longer(o, a);
    if (product != (o->inst[b].op == K_PRODUCT))
        return product ? !goes_before(o, b, a) : goes_before(o, a, b);
    int wa = waits_for(o, a), wb = waits_for(o, b);
    if (wa != wb)
        return wa < wb;
    bool last = is_left(o, a);
    if (last != is_left(o, b))
        return !last;
    bool tile = finds_tile(o, a);
    return tile != finds_tile(o, b) ? !tile : o->height[a] > o->height[b];
}

static void add_use(KInst *k, int v)
{
    for (int i = 0; i < k->nin; i++)
        if (k->in[i] == v)
            return;
    if (k->nin < MOST_USES)
        k->in[k->nin++] = (int16_t)v;
}

/* Whether a product under way behind number `last` takes it, too. */
static bool is_taken(const Order *o, int value, int last)
{
    bool any = false;
    for (int i = 0; i < o->n; i++)
        any |= o->issued[i] > last
            && (o->inst[i].in[0] == value || o->inst[i].in[1] == value);
    return any;
}

/* Whether a product under way behind number `last` adds to what this one
 * leaves. */
static bool is_added_to(const Order *o, int at, int last)
{
    bool any = false;
    for (int i = 0; i < o->n; i++)
        any |= o->issued[i] > last
            && place_of(o->s, o->inst[i].out[0])
               == place_of(o->s, o->inst[at].out[0]);
    return any;
}

/* Products up to number `last` end: their factors and results with them. */
static void end_products(Order *o, int last)
{
    KInst k = { .op = K_SETTLE, .role = (uint8_t)o->role,
                .index = (int16_t)(o->products - last) };
    for (int i = 0; i < o->n; i++) {
        if (o->issued[i] <= o->ended || o->issued[i] > last)
            continue;
        for (int j = 0; j < 2; j++)
            if (!is_taken(o, o->inst[i].in[j], last))
                add_use(&k, o->inst[i].in[j]);
        if (!is_added_to(o, i, last))
            add_use(&k, o->inst[i].out[0]);
    }
    o->to[o->nto++] = k;
    o->ended = last;
}

static void put(Order *o, int at)
{
    for (int i = 0; i < at; i++)
        if (!o->done[i] && o->meets[i * o->n + at]) {
            o->done[i] = true;
            o->to[o->nto++] = o->inst[i];
        }
    int last = waits_for(o, at);
    bool product = o->inst[at].op == K_PRODUCT;
    if (product && o->products - o->ended == MOST_UNDER_WAY - 1)
        last = o->ended + 1;
    if (last)
        end_products(o, last);
    if (product)
        o->issued[at] = ++o->products;
    o->done[at] = true;
    o->to[o->nto++] = o->inst[at];
}

/* The best of those that are ready and have room in so many registers; NOTHING:
 * there is none. */
static int find_best(const Order *o, int room)
{
    int best = NOTHING, now = room < INT_MAX ? registers_now(o) : 0;
    for (int i = 0; i < o->n && room > 0; i++)
        if (is_ready(o, i) && !goes_along(o, i)
            && registers_with(o, i, now) <= room
            && (best == NOTHING || is_better(o, i, best)))
            best = i;
    return best;
}

/* The first of those that are ready, as they came. */
static int find_first(const Order *o)
{
    for (int i = 0; i < o->n; i++)
        if (is_ready(o, i) && !goes_along(o, i)
            && registers_with(o, i, registers_now(o)) <= o->most)
            return i;
    return NOTHING;
}

/* False: each waits for another, or for registers. */
static bool put_all(Order *o)
{
    size_t n = (size_t)o->n;
    int best;
    memset(o->issued, 0, n * sizeof *o->issued);
    memset(o->done, 0, n * sizeof *o->done);
    o->products = o->ended = 0;
    o->nto = o->first;
    do {
        best = find_best(o, o->room);
        best = best == NOTHING ? find_first(o) : best;
        if (best != NOTHING)
            put(o, best);
    } while (best != NOTHING);
    for (int i = 0; i < o->n; i++)
        if (!o->done[i])
            return false;
    if (o->products > o->ended)
        end_products(o, o->products);
    return true;
}

/* Sums that come early may leave too few registers to those behind; where they
 * leave none, ptxas spills. */
static bool put_in_room(Order *o)
{
    enum { LEFT = 32, STEP = 16 };
    if (o->s->row_axis)
        return put_all(o);
    for (o->room = o->most - LEFT; !put_all(o); o->room -= STEP)
        if (o->room <= 0)
            return false;
    return true;
}

/* A loaded tile that the last of them reads; NOTHING: it reads none. */
static int find_late(const Order *o)
{
    const KInst *k = &o->to[o->nto - 1];
    for (int i = 0; i < k->nin; i++) {
        int w = value_writer(o->s, k->in[i]);
        if (w != NOTHING && o->s->inst[w].op == K_LOAD)
            return k->in[i];
    }
    return NOTHING;
}

/* Once more, where that is known. */
static bool put_role(Order *o)
{
    if (!put_in_room(o))
        return false;
    if (o->s->row_axis || !o->n)
        return true;
    o->late = find_late(o);
    if (o->late == NOTHING || put_in_room(o))
        return true;
    o->late = NOTHING;
    return put_in_room(o);
}

static bool is_dealt(const Schedule *s, const KInst *k, KRole role)
{
    return k->role == role && k->op != K_BEGIN && k->op != K_SETTLE
        && (k->op != K_CARRY || packs_carried(s, k)) && k->op != K_END;
}

/* Requires roles; instructions have no buffers yet. Those of other roles keep
 * their order, stores and what becomes of states come last. */
bool schedule_order(Schedule *s, KRole role)
{
    size_t n = (size_t)s->ninsts, each = sizeof *s->inst;
    Order o = { .s = s, .role = role, .late = NOTHING };
    o.room = o.most = s->row_axis ? INT_MAX
                    : s->regs[1] - OTHER_REGS - s->spare - s->summed;
    o.carried = registers_carried(s, role);
    o.inst = ctx_alloc(s->c, n * each);
    o.to = ctx_alloc(s->c, 2 * n * each);
    for (int i = 0; i < s->ninsts; i++)
        if (is_dealt(s, &s->inst[i], role))
            o.inst[o.n++] = s->inst[i];
    size_t own = (size_t)o.n + 1;
    o.height = ctx_alloc(s->c, own * sizeof *o.height);
    o.issued = ctx_alloc(s->c, own * sizeof *o.issued);
    o.done = ctx_alloc(s->c, own);
    o.free = ctx_alloc(s->c, own);
    o.meets = ctx_alloc(s->c, own * own);
    find_heights(&o);
    for (int behind = 0; behind < 2; behind++) {
        for (int i = 0; i < s->ninsts; i++) {
            const KInst *k = &s->inst[i];
            bool last = k->op == K_STORE || k->op == K_CARRY || k->op == K_END
                     || (role == KR_AHEAD && k->role == KR_MATRIX
                         && k->op != K_BEGIN);
            if (last == behind && !is_dealt(s, k, role)
                && !(k->role == role && k->op == K_SETTLE))
                o.to[o.nto++] = *k;
        }
        o.first = behind ? o.first : o.nto;
        if (!behind && !put_role(&o))
            return false;
    }
    s->inst = o.to;
    s->ninsts = o.nto;
    s->cap_insts = 2 * (int)n;
    return true;
}

/* The instruction before `at` that finds the packed value as a tile, if a
 * product that takes it ends between the two; NOTHING: there is none. */
static int found_before(const Schedule *s, int at, int value)
{
    bool ends = false;
    for (int i = at - 1; i >= 0; i--) {
        const KInst *k = &s->inst[i];
        for (int j = 0; j < k->nin; j++)
            ends |= k->op == K_SETTLE && k->in[j] == value;
        for (int j = 0; j < k->nout; j++)
            if (k->out[j] == value)
                return ends && k->op == K_MAP && !k->nnodes && !k->deferred
                    && s->value[k->in[0]].layout == LAY_TILE ? i : NOTHING;
    }
    return NOTHING;
}

/* A factor that a program reads, too, once products have ended is found in its
 * tile again: ptxas, which has it in a factor's registers until then, spills
 * some 70 bytes of mamba2 otherwise. Requires an order. */
void schedule_find_again(Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        if (k->op != K_MAP || k->role != KR_MATRIX || !k->nnodes)
            continue;
        for (int j = 0; j < k->nin; j++) {
            int from = s->value[k->in[j]].layout == LAY_PACKED
                     ? found_before(s, i, k->in[j]) : NOTHING;
            if (from == NOTHING)
                continue;
            inst_insert(s, i++, s->inst[from]);
            k = &s->inst[i];
        }
    }
}

/* ---- decays beside products ---- */

/* The instruction of its role before `at`, other than one of a vector across;
 * NOTHING: there is none. */
static int before_in_role(const Schedule *s, int at)
{
    int i = at - 1;
    while (i >= 0 && (s->inst[i].role != s->inst[at].role
                      || s->inst[i].op == K_ACROSS))
        i--;
    return i;
}

/* Exponentials take as long as the products of the scores that they scale. Of
 * inverses there are too few registers. */
void schedule_early(Schedule *s, bool may)
{
    bool inverts = false;
    for (int i = 0; i < s->ninsts; i++)
        inverts |= s->inst[i].op == K_INVERSE;
    for (int i = 0; i < s->ninsts; i++) {
        KInst *k = &s->inst[i];
        int settle = before_in_role(s, i);
        int product = settle < 0 ? NOTHING : before_in_role(s, settle);
        k->early = may && s->row_axis && k->role == KR_AHEAD && !inverts
                && k->op == K_MAP && k->col == AX_J && k->nrow <= TILE_ROWS
                && s->tile != F32 && !s->g->rows && count_decays(s, k)
                && product != NOTHING && s->inst[settle].op == K_SETTLE
                && s->inst[product].op == K_PRODUCT;
    }
}

int registers_early(const Schedule *s)
{
    int most = 0;
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        int n = k->early ? share_of(s, k->role, k->ncol) / 2 : 0;
        most = n > most ? n : most;
    }
    return most;
}
