/* buffer.c -- values become buffers: what shares one, how deep its ring is,
 * where it lies.
 *
 * A loaded tile has a ring of its own, or, where memory is short, that of one
 * that is read no more when it comes. Tiles that the matrix role makes for
 * its own products lie in one place where they are not there at one time.
 * Results of one size leave through one ring. Vectors
 * and numbers that one role writes for the same readers lie together: they are
 * handed over at once.
 */
#include "schedule.h"
#include "tails.h"

#include <limits.h>
#include <string.h>

enum { VECTOR_ALIGN = 16, BARRIER = 8,
       MOST_DEPTH = 4,                  /* of what is loaded: one in hand, one
                                           that is read ahead, two on the way */
       SPARE = 10 };                    /* buffers that others may need */

/* What values are used by, so long as instructions stay as they are. */
static KUse *find_uses(const Schedule *s)
{
    KUse *use = ctx_alloc(s->c, (size_t)s->nvalues * sizeof *use + 1);
    for (int v = 0; v < s->nvalues; v++)
        use[v] = (KUse){ s->ninsts, NOTHING, NOTHING, 0 };
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        for (int j = 0; j < k->nin + k->nout; j++) {
            int v = j < k->nin ? k->in[j] : k->out[j - k->nin];
            if (v == NOTHING)
                continue;
            KUse *u = &use[v];
            u->first = i < u->first ? i : u->first;
            u->last = i;
            if (j < k->nin)
                u->readers |= (uint16_t)(1u << k->role);
            else if (u->writer == NOTHING)
                u->writer = i;
        }
    }
    return use;
}

/* The same of one value, but for who leaves and reads it. */
static KUse use_of(const Schedule *s, int value)
{
    KUse u = { s->ninsts, NOTHING, NOTHING, 0 };
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        for (int j = 0; j < k->nin + k->nout; j++)
            if ((j < k->nin ? k->in[j] : k->out[j - k->nin]) == value) {
                u.first = i < u.first ? i : u.first;
                u.last = i;
            }
    }
    return u;
}

/* Of the value, and of those that lie in its place. */
static uint16_t readers_of(const Schedule *s, int value)
{
    uint16_t set = 0;
    for (int v = 0; v < s->nvalues; v++)
        if (s->use[v].readers && fragment_root(s, v) == value)
            set |= s->use[v].readers;
    return set;
}

static const KInst *writer_of(const Schedule *s, int value)
{
    int at = s->use ? s->use[value].writer : value_writer(s, value);
    return at == NOTHING ? NULL : &s->inst[at];
}

void live_interval(const Schedule *s, int value, int *first, int *last)
{
    *first = s->ninsts;
    *last = NOTHING;
    for (int v = 0; v < s->nvalues; v++) {
        if (v != value && s->value[v].alias != value)
            continue;
        KUse u = s->use ? s->use[v] : use_of(s, v);
        *first = u.first < *first ? u.first : *first;
        *last = u.last > *last ? u.last : *last;
    }
}

/* Whether what the program leaves may lie where it reads: the sums of each
 * element are read by the thread that writes it. */
static bool writes_in_place(const Schedule *s, const KInst *k, int to, int from)
{
    bool same = k->op == K_MAP && s->value[to].layout == LAY_SUMS;
    for (int i = 0; i < k->nin; i++) {
        const KValue *v = &s->value[k->in[i]];
        if (k->in[i] == from || v->alias == from)
            same &= v->layout == LAY_SUMS && v->at == s->value[to].at
                 && v->ncol == s->value[to].ncol;
    }
    return same;
}

bool live_apart(const Schedule *s, int a, int b)
{
    int first, last, begin, end;
    live_interval(s, a, &first, &last);
    live_interval(s, b, &begin, &end);
    return end < first || last < begin
        || (end == first && writes_in_place(s, &s->inst[first], a, b))
        || (last == begin && writes_in_place(s, &s->inst[begin], b, a));
}

/* A buffer of the matrix role's own whose values are not needed while this
 * one is, which that role makes, too. */
static int buffer_left(const Schedule *s, int value, uint16_t readers,
                       int32_t bytes)
{
    int role = writer_of(s, value)->role;
    bool own = has_matrices(role) && readers == 1u << role;
    for (int b = 0; b < s->nbuffers && own; b++) {
        const KBuffer *to = &s->buffer[b];
        bool free = to->tile && to->bytes == bytes && is_internal(to)
                 && to->writer == role;
        for (int v = 0; v < s->nvalues && free; v++)
            free = s->value[v].buffer != b || s->value[v].alias != NOTHING
                || live_apart(s, v, value);
        if (free)
            return b;
    }
    return NOTHING;
}

/* ---- rings of loaded tiles ---- */

static bool is_loaded_tile(const Schedule *s, int value)
{
    const KInst *from = writer_of(s, value);
    return from && from->op == K_LOAD && s->value[value].layout == LAY_TILE;
}

/* Whether the tile is there while none of those of a ring are. */
static bool suits_ring(const Schedule *s, const int16_t *ring, int number,
                       int value)
{
    int first, last, begin, end;
    live_interval(s, value, &first, &last);
    for (int v = 0; v < s->nvalues; v++) {
        if (ring[v] != number)
            continue;
        live_interval(s, v, &begin, &end);
        if ((begin <= last && first <= end)
            || readers_of(s, v) != readers_of(s, value))
            return false;
    }
    return true;
}

/* From the last instruction of its reader that has a tile to the first of one
 * that wants the next, of this item or of the one behind it. */
static int length_between(const Schedule *s, int a, int b)
{
    int begin = NOTHING, end = NOTHING, n = 0;
    for (int i = 0; i < s->ninsts; i++)
        for (int j = 0; j < s->inst[i].nin; j++) {
            if (s->inst[i].in[j] == a)
                end = i;
            if (s->inst[i].in[j] == b && begin == NOTHING)
                begin = i;
        }
    int count = (begin - end - 1 + s->ninsts) % s->ninsts;
    for (int i = 1; i <= count; i++) {
        const KInst *k = &s->inst[(end + i) % s->ninsts];
        n += has_matrices(k->role) ? inst_length(s, k) : 0;
    }
    return n;
}

/* What is done while the copy engine fills the ring for the value, or behind
 * it for another, at least. */
static int time_to_fill(const Schedule *s, const int16_t *ring, int number,
                        int value)
{
    int least = INT_MAX;
    for (int v = 0; v < s->nvalues; v++)
        if (ring[v] == number) {
            int to = length_between(s, v, value);
            int from = length_between(s, value, v);
            least = to < least ? to : least;
            least = from < least ? from : least;
        }
    return least;
}

/* The ring of those there are in which the tile is waited for the least;
 * a new one, if it is waited for in each, where there is memory. */
static int best_ring(const Schedule *s, const int16_t *ring, int n, int value,
                     bool waits)
{
    enum { ENOUGH = 300 };
    int best = n, most = waits ? -1 : ENOUGH;
    for (int i = 0; i < n; i++) {
        int time = time_to_fill(s, ring, i, value);
        if (suits_ring(s, ring, i, value) && time > most) {
            best = i;
            most = time;
        }
    }
    return best;
}

/* Which ring each loaded tile goes through, by number: the largest are dealt
 * first, so that others find room between them. */
static int16_t *deal_rings(const Schedule *s, bool waits)
{
    int16_t *ring = ctx_alloc(s->c, ((size_t)s->nvalues + 1) * sizeof *ring);
    int n = 0;
    for (int v = 0; v < s->nvalues; v++)
        ring[v] = NOTHING;
    for (;;) {
        int best = NOTHING;
        for (int v = 0; v < s->nvalues; v++)
            if (ring[v] == NOTHING && is_loaded_tile(s, v)
                && (best == NOTHING || value_bytes(&s->value[v])
                                     > value_bytes(&s->value[best])))
                best = v;
        if (best == NOTHING)
            return ring;
        ring[best] = (int16_t)best_ring(s, ring, n, best, waits);
        n += ring[best] == n;
    }
}

/* In the order in which they are loaded; the buffer is made with the first that
 * is placed. */
static bool place_in_ring(Schedule *s, const int16_t *ring, int value)
{
    int at = NOTHING, first, last, begin, end;
    int32_t bytes = 0;
    KValue *to = &s->value[value];
    live_interval(s, value, &first, &last);
    for (int v = 0; v < s->nvalues; v++) {
        if (ring[v] != ring[value])
            continue;
        live_interval(s, v, &begin, &end);
        to->use += begin < first;
        at = s->value[v].buffer != NOTHING ? s->value[v].buffer : at;
        bytes = value_bytes(&s->value[v]) > bytes ? value_bytes(&s->value[v])
                                                  : bytes;
    }
    if (at == NOTHING && s->nbuffers == MOST_BUFFERS) {
        s->why = "more buffers than there are barriers for";
        return false;
    }
    if (at == NOTHING) {
        at = s->nbuffers++;
        s->buffer[at] = (KBuffer){ .writer = KR_LOAD, .depth = 1,
            .readers = readers_of(s, value), .tile = true, .copied = true,
            .bytes = bytes };
    }
    s->buffer[at].uses++;
    to->buffer = (int16_t)at;
    return true;
}

/* ---- buffers ---- */

/* The program of vectors that leaves the value, or that is the first to read
 * it; NOTHING: there is none. */
static int vector_program(const Schedule *s, int value)
{
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        for (int j = 0; j < k->nin + k->nout && k->op == K_VECTOR; j++)
            if ((j < k->nin ? k->in[j] : k->out[j - k->nin]) == value)
                return i;
    }
    return NOTHING;
}

/* Whether the vectors of a buffer are handed over with this one. */
static bool goes_with(const Schedule *s, int buffer, int value)
{
    for (int v = 0; v < s->nvalues; v++)
        if (v != value && s->value[v].buffer == buffer)
            return vector_program(s, v) == vector_program(s, value);
    return true;
}

/* Whether values of the writer lie in one slot, handed over at once: of a
 * schedule with a row axis what is loaded, what is made ahead for the matrix
 * role, and vectors, of which one reader may want more than another. A copy
 * engine tells of all that it has filled; lanes would tell of each copy. */
static bool is_joined(const Schedule *s, const KValue *v, const KInst *from,
                      uint16_t readers)
{
    bool loads = from->op == K_LOAD && s->target->form[FORM_COPY]->waited;
    bool ahead = from->role == KR_AHEAD && readers == 1u << KR_MATRIX;
    return s->row_axis && (v->layout >= LAY_VECTOR || ahead
                           || (loads && !s->rings));
}

bool is_loaded_late(const Schedule *s, int value)
{
    int32_t bytes = 0;
    bool loads = false;
    for (int v = 0; v <= value && s->early; v++) {
        const KInst *from = has_buffer(&s->value[v]) ? writer_of(s, v) : NULL;
        loads = from && from->op == K_LOAD;
        bytes += loads ? value_bytes(&s->value[v]) : 0;
    }
    return loads && bytes > s->early;
}

/* Whether all of what is loaded there is so late as the value, or none. */
static bool is_as_late(const Schedule *s, int buffer, const KValue *v)
{
    bool late = is_loaded_late(s, (int)(v - s->value)), same = true;
    for (int u = 0; u < s->nvalues && s->buffer[buffer].copied; u++)
        same &= s->value[u].buffer != buffer || is_loaded_late(s, u) == late;
    return same;
}

/* Whether the value is made behind what waits for one that lies in the buffer:
 * they are not handed over at once. */
static bool is_made_behind(const Schedule *s, int buffer, int value)
{
    enum { THERE = 1, BEHIND };
    uint8_t *made = ctx_alloc(s->c, (size_t)s->nvalues);
    for (int v = 0; v < s->nvalues; v++)
        made[v] = s->value[v].buffer == buffer ? THERE : 0;
    for (bool more = true; more;) {
        bool waits[NKROLES] = { false };
        more = false;
        for (int i = 0; i < s->ninsts; i++) {
            const KInst *k = &s->inst[i];
            bool own = k->role == s->buffer[buffer].writer;
            uint8_t most = 0;
            for (int j = 0; j < k->nin; j++)
                most = made[k->in[j]] > most ? made[k->in[j]] : most;
            waits[k->role] |= own ? most == BEHIND : most > 0;
            most = waits[k->role] ? BEHIND : most;
            for (int j = 0; j < k->nout; j++) {
                more |= most > made[k->out[j]];
                made[k->out[j]] = most > made[k->out[j]] ? most
                                                         : made[k->out[j]];
            }
        }
    }
    return made[value] == BEHIND;
}

static int joined_buffer(const Schedule *s, const KValue *v, const KInst *from,
                         uint16_t readers)
{
    for (int i = 0; i < s->nbuffers && is_joined(s, v, from, readers); i++) {
        const KBuffer *b = &s->buffer[i];
        bool loads = s->interleave < 2 && from->op == K_LOAD
                  && b->readers & 1u << KR_MATRIX
                  && readers & 1u << KR_MATRIX;
        if (b->writer == from->role && b->tile == (v->layout < LAY_VECTOR)
            && is_as_late(s, i, v)
            && (from->op == K_LOAD
                || !is_made_behind(s, i, (int)(v - s->value)))
            && (b->tile ? b->readers == readers || loads : !is_internal(b)))
            return i;
    }
    return NOTHING;
}

/* Whether all that goes through the buffer is left in the iteration that made
 * it, or all of it in the one behind, as by this instruction. */
static bool is_left_alike(const Schedule *s, int buffer, const KInst *from)
{
    bool alike = true;
    for (int v = 0; v < s->nvalues; v++) {
        const KInst *k = s->value[v].buffer == buffer ? writer_of(s, v) : NULL;
        alike &= !k || k->deferred == from->deferred;
    }
    return alike;
}

/* The buffer that a value goes to: one there is, or a new one. Vectors of one
 * writer and the same readers lie side by side if one program leaves, or finds
 * them; where memory is short a role's own lie by themselves. Results
 * alternate. */
static int buffer_for(Schedule *s, int value, const KInst *from,
                      uint16_t readers)
{
    const KValue *v = &s->value[value];
    bool tile = v->layout < LAY_VECTOR, result = readers == 1u << KR_STORE;
    int joined = joined_buffer(s, v, from, readers);
    if (joined != NOTHING) {
        s->buffer[joined].readers |= readers;
        return joined;
    }
    bool apart = s->share && readers == 1u << from->role
              && s->nbuffers < MOST_BUFFERS - SPARE;
    for (int i = 0; i < s->nbuffers && (result || !tile) && !apart; i++) {
        KBuffer *b = &s->buffer[i];
        if (b->writer == from->role && b->readers == readers
            && b->tile == tile && is_left_alike(s, i, from)
            && (tile ? b->bytes == value_bytes(v) : goes_with(s, i, value)))
            return i;
    }
    if (s->nbuffers == MOST_BUFFERS) {
        s->why = "more buffers than there are barriers for";
        return NOTHING;
    }
    s->buffer[s->nbuffers] = (KBuffer){ .writer = from->role, .depth = 1,
        .readers = readers, .tile = tile, .copied = from->op == K_LOAD };
    return s->nbuffers++;
}

static bool place_value(Schedule *s, const int16_t *ring, int i)
{
    KValue *v = &s->value[i];
    const KInst *from = writer_of(s, i);
    if (!has_buffer(v))
        return true;
    if (!from) {
        s->why = ctx_format(s->c, "nothing computes %%%u", (unsigned)v->node);
        s->large = false;
        return false;
    }
    if (v->alias != NOTHING) {          /* where what it is made of lies */
        v->buffer = s->value[v->alias].buffer;
        if (v->layout == LAY_TILE)
            v->at = s->value[v->alias].at;
        return true;
    }
    bool sums = v->layout == LAY_SUMS;
    int32_t bytes = value_bytes(v);
    if (sums)
        bytes = (bytes + 2 * rows_of_token(s->g) * sums_pitch(v)
                 + SHARED_ALIGN - 1) / SHARED_ALIGN
              * SHARED_ALIGN;
    int at = NOTHING;
    if (s->share && v->layout <= LAY_SUMS)
        at = buffer_left(s, i, readers_of(s, i), bytes);
    if (at != NOTHING) {
        v->buffer = (int16_t)at;
        return true;
    }
    if (s->rings && is_loaded_tile(s, i))
        return place_in_ring(s, ring, i);
    at = buffer_for(s, i, from, readers_of(s, i));
    if (at == NOTHING)
        return false;
    KBuffer *b = &s->buffer[at];
    v->buffer = (int16_t)at;
    if (b->tile && !is_joined(s, v, from, b->readers)) {
        b->bytes = bytes;
        b->uses = sums ? 1 : b->uses + 1;
        v->use = (uint8_t)(b->uses - 1);
        return true;
    }
    v->at = b->bytes;
    b->bytes += b->tile ? bytes : (value_bytes(v) + VECTOR_ALIGN - 1)
                                  / VECTOR_ALIGN * VECTOR_ALIGN;
    b->uses = 1;
    return true;
}

/* ---- depth and place ---- */

int32_t barrier_at(const Schedule *s, int buffer)
{
    int32_t at = 0;
    for (int i = 0; i < s->nbuffers; i++)
        at = s->buffer[i].at + s->buffer[i].bytes * s->buffer[i].depth > at
           ? s->buffer[i].at + s->buffer[i].bytes * s->buffer[i].depth : at;
    for (int i = 0; i < buffer; i++)
        if (!is_internal(&s->buffer[i]))
            at += 2 * BARRIER * s->buffer[i].depth;
    return at;
}

int32_t tensor_place(const Schedule *s)
{
    return tail_barrier(s) + tail_bytes(s);
}

/* Of the item's instructions the first that writes it, the last that reads it.
 */
typedef struct Live { int first, last; } Live;

static void find_lives(const Schedule *s, Live *live)
{
    for (int i = 0; i < MOST_BUFFERS; i++)
        live[i] = (Live){ s->ninsts, NOTHING };
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        for (int j = 0; j < k->nin; j++) {
            int b = s->value[k->in[j]].buffer;
            if (b != NOTHING)
                live[b].last = i;
        }
        for (int j = 0; j < k->nout; j++) {
            int b = s->value[k->out[j]].buffer;
            if (b != NOTHING && live[b].first > i)
                live[b].first = i;
        }
    }
}

static bool are_apart(const Schedule *s, const Live *live, int a, int b)
{
    const KBuffer *x = &s->buffer[a], *y = &s->buffer[b];
    return is_internal(x) && is_internal(y) && x->writer == y->writer
        && x->depth == 1 && y->depth == 1
        && (live[a].last < live[b].first || live[b].last < live[a].first);
}

bool buffers_apart(const Schedule *s, int a, int b)
{
    Live live[MOST_BUFFERS];
    find_lives(s, live);
    return are_apart(s, live, a, b);
}

/* Which is the next to be placed, n others being so. */
static int placed(const Schedule *s, int n)
{
    return (s->first_placed + n) % s->nbuffers;
}

static bool is_before(const Schedule *s, int a, int b)
{
    int n = s->nbuffers, first = s->first_placed;
    return (a - first + n) % n < (b - first + n) % n;
}

/* Where nothing lies that is there at the same time, from `at` on: behind one
 * of those before it; vectors come behind tiles. */
static void fit(Schedule *s, const Live *live, int i, int32_t at)
{
    KBuffer *b = &s->buffer[i];
    b->at = at;
    for (int j = 0; j < s->nbuffers; j++)
        if ((s->buffer[j].tile == b->tile ? is_before(s, j, i)
                                          : s->buffer[j].tile)
            && is_internal(&s->buffer[j])
            && !lie_apart(b, &s->buffer[j])
            && !are_apart(s, live, i, j)) {
            b->at = s->buffer[j].at + s->buffer[j].bytes * s->buffer[j].depth;
            j = -1;
        }
}

/* Tiles that go from role to role, those of one role's own, its vectors. */
static int32_t lay_out(Schedule *s)
{
    int32_t at = 0, end = 0;
    Live live[MOST_BUFFERS];
    find_lives(s, live);
    for (int own = 0; own < 3; own++)
        for (int n = 0; n < s->nbuffers; n++) {
            int i = placed(s, n);
            KBuffer *b = &s->buffer[i];
            if (b->tile != (own < 2) || is_internal(b) != (own > 0))
                continue;
            if (own)
                fit(s, live, i, at);
            else
                b->at = at;
            at += own ? 0 : b->bytes * b->depth;
            end = b->at + b->bytes * b->depth > end
                ? b->at + b->bytes * b->depth : end;
        }
    for (int i = 0; i < s->nbuffers; i++)
        if (!s->buffer[i].tile && !is_internal(&s->buffer[i])) {
            s->buffer[i].at = end;
            end += s->buffer[i].bytes * s->buffer[i].depth;
        }
    return s->shared = tensor_place(s) + tensor_bytes(s);
}

/* Whether warpgroups that take chunks round-robin write or read it. */
static bool is_round_robin(const Schedule *s, const KBuffer *b)
{
    return s->interleave > 1 && (b->writer == KR_AHEAD
                            || b->readers >> KR_AHEAD & 1);
}

/* A ring one deeper, or as many as alternate, if it fits. */
static void deepen(Schedule *s, KBuffer *b)
{
    int more = is_round_robin(s, b) && b->depth >= s->interleave
        ? s->interleave : 1;
    b->depth += more;
    if (lay_out(s) > shared_room(s))
        b->depth -= more;
    lay_out(s);
}

/* What the matrix roles do while they have what is loaded, instructions. */
static int live_time(const Schedule *s, int buffer)
{
    int begin = NOTHING, end = NOTHING, n = 0;
    for (int i = 0; i < s->ninsts; i++)
        for (int j = 0; j < s->inst[i].nin; j++)
            if (s->value[s->inst[i].in[j]].buffer == buffer) {
                begin = begin == NOTHING ? i : begin;
                end = i;
            }
    for (int i = begin; i != NOTHING && i <= end; i++)
        n += has_matrices(s->inst[i].role) ? inst_length(s, &s->inst[i]) : 0;
    return n;
}

/* Of what is loaded and has one slot the one that a walk waits for the most:
 * it is live the longest. NOTHING: all have been tried. */
static int longest_live(const Schedule *s, uint32_t tried)
{
    int best = NOTHING, most = -1;
    for (int i = 0; i < s->nbuffers; i++)
        if (s->buffer[i].copied && s->buffer[i].depth == 1
            && !(tried >> i & 1) && live_time(s, i) > most) {
            best = i;
            most = live_time(s, i);
        }
    return best;
}

/* Software pipelining: what is handed from role to role has two slots where
 * shared memory allows; first what is small, then what is loaded, in the order
 * in which it is wanted; of a walk that goes back, what it holds longest first.
 * Of a schedule with a row axis what is small has one more, or as many as
 * alternate: who is ahead is so by that many chunks. Warpgroups that alternate
 * have a slot each of all that they fill before any has a second. */
static void choose_depths(Schedule *s)
{
    uint32_t tried = 0;
    for (int i = 0; i < s->nbuffers; i++)
        if (!s->buffer[i].tile && !is_internal(&s->buffer[i]))
            deepen(s, &s->buffer[i]);
    for (int i = 0; i < s->nbuffers && s->row_axis; i++)
        if (!s->buffer[i].tile && !is_internal(&s->buffer[i]))
            deepen(s, &s->buffer[i]);
    for (int i; s->kind == K_REVERSE && (i = longest_live(s, tried)) != NOTHING;
         tried |= 1u << i)
        deepen(s, &s->buffer[i]);
    for (int n = 0; n < s->interleave || n == 0; n++) {
        for (int i = 0; i < s->nbuffers; i++)
            if (s->buffer[i].copied && s->kind != K_REVERSE
                && (n == 0 || is_round_robin(s, &s->buffer[i])))
                deepen(s, &s->buffer[i]);
        for (int i = 0; i < s->nbuffers && n == 0; i++)
            if (is_round_robin(s, &s->buffer[i]) && s->buffer[i].depth == 1)
                deepen(s, &s->buffer[i]);
    }
    for (int i = 0; i < s->nbuffers; i++)
        if (!is_internal(&s->buffer[i]) && s->buffer[i].depth == 1)
            deepen(s, &s->buffer[i]);
    for (int depth = 2; depth < MOST_DEPTH && s->row_axis; depth++)
        for (int i = 0; i < s->nbuffers; i++)
            if (s->buffer[i].copied && s->buffer[i].depth <= depth)
                deepen(s, &s->buffer[i]);
}

/* The most slots that something loaded has. */
static int deepest_ring(const Schedule *s)
{
    int most = 0;
    for (int i = 0; i < s->nbuffers; i++)
        if (s->buffer[i].copied && s->buffer[i].depth > most)
            most = s->buffer[i].depth;
    return most;
}

/* Of a row axis what the matrix role takes from others has as many slots as
 * what is loaded, if all of these find room: a role's warps count their slots
 * once then. What is small comes first. Two blocks that give each other tiles
 * leave room for rests. */
static void even_depths(Schedule *s)
{
    int most = s->row_axis && s->ahead && !s->paired ? deepest_ring(s) : 0;
    for (int tile = 0; tile < 2; tile++)
        for (int i = 0; i < s->nbuffers; i++) {
            KBuffer *b = &s->buffer[i];
            int before = b->depth, now = 0;
            if (is_internal(b) || b->tile != tile || b->copied || b->uses > 1
                || !(b->readers >> KR_MATRIX & 1))
                continue;
            while (b->depth < most && b->depth > now) {
                now = b->depth;
                deepen(s, b);
            }
            if (b->depth != most)
                b->depth = before;
        }
    lay_out(s);
}

static bool place_values(Schedule *s, bool waits)
{
    const int16_t *ring = deal_rings(s, waits);
    s->nbuffers = s->first_placed = 0;
    for (int i = 0; i < s->nvalues; i++)
        if (!place_value(s, ring, i))
            return false;
    for (int i = 0; i < s->nbuffers; i++)
        if (is_internal(&s->buffer[i]) && is_round_robin(s, &s->buffer[i]))
            s->buffer[i].depth = s->interleave;
    for (int i = 1; i < s->nbuffers && s->sink && lay_out(s) > shared_room(s);
         i++)
        s->first_placed = i;
    if (lay_out(s) > shared_room(s)) {
        s->why = ctx_format(s->c, "%d bytes of shared memory; %s has %d",
                            (int)s->shared, s->target->name,
                            (int)shared_room(s));
        return false;
    }
    return true;
}

/* Numbers that lanes carry are no values: there may be none. */
static void copy_values(const Schedule *s, KValue *to, const KValue *from)
{
    if (s->nvalues)
        memcpy(to, from, (size_t)s->nvalues * sizeof *to);
}

/* A program's results that it leaves as it finds them come first: in the order
 * of its results they have turns of a buffer. */
static void order_results(const Schedule *s, KInst *k)
{
    for (int found = 0, i = 0; i < k->nout; i++) {
        int16_t v = k->out[i];
        if (!leaves_as_found(s, k, i))
            continue;
        memmove(k->out + found + 1, k->out + found,
                (size_t)(i - found) * sizeof *k->out);
        k->out[found++] = v;
    }
}

static bool find_buffers(Schedule *s)
{
    KValue *none = ctx_alloc(s->c, (size_t)s->nvalues * sizeof *none + 1);
    copy_values(s, none, s->value);
    if (!place_values(s, false)) {
        copy_values(s, s->value, none);
        if (!s->rings || !place_values(s, true))
            return false;
    }
    s->why = NULL;
    choose_depths(s);
    even_depths(s);
    return true;
}

/* Requires values and instructions; gives values their buffers. */
bool schedule_buffers(Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].op == K_MAP)
            order_results(s, &s->inst[i]);
    s->use = find_uses(s);
    bool found = find_buffers(s);
    s->use = NULL;
    return found;
}

/* The ring of all that is loaded; NOTHING: there are several. */
static int only_ring(const Schedule *s)
{
    int found = NOTHING;
    for (int i = 0; i < s->nbuffers; i++)
        if (s->buffer[i].copied) {
            if (found != NOTHING)
                return NOTHING;
            found = i;
        }
    return found;
}

int32_t room_for_early(const Schedule *s)
{
    int ring = s->row_axis ? only_ring(s) : NOTHING;
    int32_t room = shared_room(s) - s->shared;
    return ring != NOTHING && s->buffer[ring].depth < 2 && room >= SHARED_ALIGN
         ? room : 0;
}
