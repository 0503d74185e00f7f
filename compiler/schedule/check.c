/* check.c -- what must hold of any schedule, looked at on the data: every value
 * is written before it is read; roles that wait for each other end; buffers
 * lie apart; bytes and registers are there.
 */
#include "schedule.h"
#include "tails.h"

#include <string.h>

static const char *wrong(const Schedule *s, const char *what, int i)
{
    return ctx_format(s->c, "%s (%d)", what, i);
}

/* ---- every read is dominated ---- */

/* Whether the later instruction finds in a tile what the earlier has. */
static bool finds_again(const Schedule *s, const KInst *a, const KInst *b)
{
    return a->op == K_MAP && b->op == K_MAP && a->role == b->role
        && !a->deferred && !b->deferred && !a->nnodes && !b->nnodes
        && a->nin == 1 && b->nin == 1 && a->nout == 1 && b->nout == 1
        && a->in[0] == b->in[0]
        && s->value[a->in[0]].layout == LAY_TILE
        && s->value[a->out[0]].layout == LAY_PACKED;
}

static const char *check_uses(const Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        for (int j = 0; j < k->nin; j++) {
            int w = value_writer(s, k->in[j]);
            if (s->value[k->in[j]].layout == LAY_GLOBAL)
                continue;
            if (w == NOTHING)
                return wrong(s, "a value that nobody writes", k->in[j]);
            if (s->inst[w].role == k->role && (k->deferred ? w <= i : w >= i))
                return wrong(s, "read before it is written", k->in[j]);
            if (s->value[k->in[j]].layout == LAY_FRAGMENT
                && k->op == K_MAP && s->inst[w].op == K_PRODUCT) {
                int settled = NOTHING;
                for (int n = w; n < i; n++)
                    settled = s->inst[n].op == K_SETTLE ? n : settled;
                if (settled == NOTHING)
                    return wrong(s, "a product that is still under way",
                                 k->in[j]);
            }
        }
        for (int j = 0; j < k->nout; j++)
            if (value_writer(s, k->out[j]) != i
                && !finds_again(s, &s->inst[value_writer(s, k->out[j])], k))
                return wrong(s, "a value that is written twice", k->out[j]);
    }
    return NULL;
}

/* Of products that are waited for one by one: whoever reads what they leave, or
 * writes over what they take from registers, finds them ended. All end with the
 * iteration of the loop. */
static const char *check_role_under_way(const Schedule *s, int role)
{
    int issued = 0, ended = 0;
    int *number = ctx_alloc(s->c, (size_t)s->nvalues * sizeof *number + 1);
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        if (k->role != role)
            continue;
        if (k->op == K_SETTLE)
            ended = issued - (k->index > 0 ? k->index : 0);
        for (int j = 0; j < k->nin + k->nout; j++) {
            int v = j < k->nin ? k->in[j] : k->out[j - k->nin];
            bool takes = s->value[v].layout == LAY_PACKED && j < k->nin;
            bool adds = k->op == K_PRODUCT && !takes;
            if (number[fragment_root(s, v)] > ended && !takes && !adds)
                return wrong(s, "a product that is still under way", v);
        }
        if (k->op == K_PRODUCT) {
            number[fragment_root(s, k->out[0])] = ++issued;
            if (s->value[k->in[0]].layout == LAY_PACKED)
                number[k->in[0]] = issued;
        }
        if (k->op == K_CARRY && !packs_carried(s, k) && issued > ended)
            return wrong(s, "a product that goes on behind its iteration", i);
    }
    return issued > ended
         ? wrong(s, "a product that goes on behind its iteration", role) : NULL;
}

static const char *check_under_way(const Schedule *s)
{
    const char *why = NULL;
    for (int role = 0; role < NKROLES && !why; role++)
        if (is_ordered(s, role))
            why = check_role_under_way(s, role);
    return why;
}

/* What is written over is not read any more, but as what it became. */
static const char *check_written_over(const Schedule *s)
{
    for (int v = 0; v < s->nvalues; v++) {
        int w = value_writer(s, v), over = s->value[v].alias;
        if (w != NOTHING && s->inst[w].op == K_CLEAR)
            continue;                   /* it is there as it was, too */
        for (int i = w + 1; i < s->ninsts && over != NOTHING; i++)
            for (int j = 0; j < s->inst[i].nin; j++)
                if (s->inst[i].in[j] == over && s->inst[i].op < K_CARRY
                    && s->inst[i].op != K_SETTLE)
                    return wrong(s, "read when it is written over", over);
        if (w != NOTHING && s->inst[w].op == K_PRODUCT
            && over != (s->inst[w].nin > 2 ? s->inst[w].in[2] : NOTHING))
            return wrong(s, "a product that is not added to what it is"
                         " written over", v);
    }
    return NULL;
}

/* What is done an iteration later has what it finds in registers, and leaves
 * what is stored alone: nobody else waits for it. */
static const char *check_deferred(const Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        if (!k->deferred)
            continue;
        bool holds = s->row_axis && k->op == K_MAP && k->role == KR_MATRIX
                  && !k->nnodes && k->nin == 1 && k->nout == 1
                  && s->value[k->in[0]].layout == LAY_PACKED
                  && s->value[k->out[0]].layout == LAY_TILE
                  && s->buffer[s->value[k->out[0]].buffer].readers
                     == 1u << KR_STORE;
        if (!holds)
            return wrong(s, "what may not be left to the next iteration", i);
    }
    return NULL;
}

/* ---- states ---- */

/* The instruction that does that with the state, by whoever begins with it; of
 * the matrix role's it has the value that the state is in. */
static bool does_later(const Schedule *s, const KInst *begin, KOp op)
{
    for (const KInst *k = begin; k < s->inst + s->ninsts; k++)
        if (k->op == op && k->index == begin->index && k->role == begin->role)
            if (!begin->nout
                || (k->nin && k->in[k->nin - 1] == begin->out[0]))
                return true;
    return false;
}

static const char *check_states(const Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].op == K_BEGIN
            && (!does_later(s, &s->inst[i], K_CARRY)
                || (!s->inst[i].nin
                    && !does_later(s, &s->inst[i], K_END))))
            return wrong(s, "a state that is not carried on",
                         s->inst[i].index);
    return NULL;
}

/* Programs over an axis have what is of it, as the block has it; what becomes
 * of a vector in lanes is theirs. */
/* Whether a vector that lanes leave is found in memory; or carried by them, and
 * others made of inputs. */
static bool leaves_found(const Schedule *s, const KInst *k)
{
    bool all = leaves_carried(s, k)
            || (k->nout == 1 && k->nnodes == 1
                && s->value[k->out[0]].node == k->node[0]
                && !schedule_computes(s, k->node[0]));
    for (int i = 0; i < k->nout; i++) {
        const KValue *v = &s->value[k->out[i]];
        all &= v->layout == LAY_VECTOR && v->nrow == k->nrow
            && (!i || has_node(k, v->node));
    }
    return all;
}

static const char *check_lanes(const Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        if (k->op == K_VECTOR && k->nrow) {
            if (k->row < AX_DIM || k->nrow != block_extent(s, k->row)
                || k->nin || (k->nout && !leaves_found(s, k)))
                return wrong(s, "lanes that have no whole axis", i);
            for (int n = 0; n < k->nnodes; n++)
                if (s->g->n[k->node[n]].axes & ~AXIS(k->row))
                    return wrong(s, "lanes that have another axis", i);
        }
        if (k->op != K_CARRY || k->nin
            || !s->g->n[s->g->st[k->index].node].axes)
            continue;
        Ref next = shown_node(s->g, s->g->st[k->index].next);
        bool computed = false;
        for (const KInst *v = s->inst; v < k; v++)
            for (int n = 0; n < v->nnodes && v->op == K_VECTOR && v->nrow
                            && v->role == k->role; n++)
                computed |= v->node[n] == next;
        if (!computed)
            return wrong(s, "a vector that lanes do not make", k->index);
    }
    return NULL;
}

static bool has_operand(const Schedule *s, const KInst *k, Ref a, int before)
{
    bool has = !a || s->g->n[a].op == OP_num;
    for (int i = 0; i < before; i++)
        has |= k->node[i] == a;
    for (int i = 0; i < k->nin; i++)
        has |= s->value[k->in[i]].node == a;
    return has;
}

/* A program across has all that its vectors are made of; the last of those is
 * the one that is made. */
static const char *check_across(const Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        if (k->op != K_ACROSS)
            continue;
        Ref computed = k->nnodes ? k->node[k->nnodes - 1] : 0;
        if (!has_matrices(k->role) || !computed || k->nout > 1
            || s->g->n[computed].axes != AXIS(k->row)
            || k->nrow != block_extent(s, k->row)
            || !(k->nout ? s->value[k->out[0]].node == computed
                 : !s->stores || s->stores[computed]))
            return wrong(s, "no vector that is computed across", i);
        for (int n = 0; n < k->nnodes; n++)
            for (int j = 0; j < 4; j++)
                if (!has_operand(s, k, s->g->n[k->node[n]].a[j], n))
                    return wrong(s, "a vector of what is not there", i);
    }
    return NULL;
}

/* A program leaves what it finds before what it computes: as results are
 * printed. */
static const char *check_results(const Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        for (int j = results_found(s, k); j < k->nout && k->op == K_MAP; j++)
            if (leaves_as_found(s, k, j))
                return wrong(s, "a result that is found, behind one that is"
                             " not", k->out[j]);
    }
    return NULL;
}

/* Sums of half as many columns are read by who spreads them alone. */
static const char *check_pairs(const Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        for (int j = 0; j < k->nin && k->op == K_MAP; j++) {
            const KValue *v = &s->value[k->in[j]];
            if (v->layout != LAY_SUMS || v->col == k->col)
                continue;
            bool spread = 2 * v->ncol == k->ncol;
            for (int n = 0; n < k->nnodes; n++)
                for (int a = 0; a < 4; a++)
                    spread &= shown_node(s->g, s->g->n[k->node[n]].a[a])
                              != v->node
                           || op_is(s->g->n[k->node[n]].op, SPREADS);
            if (!spread)
                return wrong(s, "sums of other columns", k->in[j]);
        }
    }
    return NULL;
}

/* ---- layouts ---- */

static bool is_factor(const KValue *v)
{
    return v->layout == LAY_TILE || v->layout == LAY_INVERSE;
}

/* Of a schedule with a row axis the left one is in registers, where the
 * machine has products of such. */
static bool is_left_factor(const Schedule *s, const KInst *k, const KValue *v)
{
    return !deals_rows(s, k->role) ? is_factor(v)
         : v->layout == LAY_PACKED && v->row == s->row_axis && !k->transposed[0]
           && s->target->form[FORM_PRODUCT]->packed;
}

/* Products take tiles; wide scores become an inverse, and are lost to others.
 */
static const char *check_layouts(const Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        const KValue *to = k->nout ? &s->value[k->out[0]] : NULL;
        for (int j = 0; j < k->nin; j++) {
            const KValue *v = &s->value[k->in[j]];
            bool inverts = k->op == K_INVERSE;
            if (inverts && (v->layout != LAY_WIDE || k->nin != 1 || !to
                            || to->layout != LAY_INVERSE
                            || to->node != v->node || v->nrow != s->g->chunk
                            || v->ncol != s->g->chunk))
                return wrong(s, "an inverse of what are no wide scores", i);
            if (!inverts && v->layout == LAY_WIDE)
                return wrong(s, "wide scores that are not inverted", i);
            if (k->op == K_PRODUCT && j < 2
                && !(j ? is_factor(v) : is_left_factor(s, k, v)))
                return wrong(s, "a factor that is no tile", i);
        }
    }
    return NULL;
}

/* Fragments are those of roles of matrices, each its own. */
static const char *check_fragments(const Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        for (int j = 0; j < k->nin + k->nout; j++) {
            int v = j < k->nin ? k->in[j] : k->out[j - k->nin];
            if (s->value[v].layout == LAY_FRAGMENT
                && k->role != (s->value[v].ahead ? KR_AHEAD : KR_MATRIX))
                return wrong(s, "a fragment that another role has not", v);
        }
    }
    return NULL;
}

/* What fills a buffer is its writer's. */
static const char *check_parts(const Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        if (k->parts && (!may_be_in_parts(s, k) || share_of(s, k->role, k->ncol)
                                                   % (k->parts * PART_COLS)))
            return wrong(s, "parts of what is not made of memory alone", i);
    }
    return NULL;
}

static const char *check_writers(const Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++)
        for (int j = 0; j < s->inst[i].nout; j++) {
            int v = s->inst[i].out[j];
            bool over = lies_over_loaded(s, v) && s->inst[i].role == KR_AHEAD;
            if (has_buffer(&s->value[v]) && s->value[v].buffer != NOTHING
                && s->buffer[s->value[v].buffer].writer != s->inst[i].role
                && !over)
                return wrong(s, "a buffer that another role fills", v);
        }
    return NULL;
}

static const char *check_readers(const Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++)
        for (int j = 0; j < s->inst[i].nin; j++) {
            const KValue *v = &s->value[s->inst[i].in[j]];
            if (has_buffer(v) && v->buffer != NOTHING
                && s->buffer[v->buffer].writer != s->inst[i].role
                && !(s->buffer[v->buffer].readers >> s->inst[i].role & 1))
                return wrong(s, "a buffer that is not for who reads it",
                             s->inst[i].in[j]);
        }
    for (int b = 0; b < s->nbuffers; b++)
        if (!s->buffer[b].readers)      /* its writer would wait for ever */
            return wrong(s, "a buffer that nobody reads", b);
    return NULL;
}

/* ---- buffers ---- */

static const char *check_buffers(const Schedule *s)
{
    for (int i = 0; i < s->nbuffers; i++) {
        const KBuffer *a = &s->buffer[i];
        int32_t end = a->at + a->bytes * a->depth;
        if (end > s->shared || s->shared > shared_room(s))
            return wrong(s, "a buffer behind the end of shared memory", i);
        if (a->tile && a->at % SHARED_ALIGN)
            return wrong(s, "a tile that the swizzle does not fit", i);
        for (int j = 0; j < i; j++) {
            if (!lie_apart(a, &s->buffer[j])
                && !buffers_apart(s, i, j))
                return wrong(s, "buffers that lie in one place", i);
        }
    }
    for (int v = 0; v < s->nvalues; v++) {
        const KValue *x = &s->value[v];
        if (!has_buffer(x))
            continue;
        const KBuffer *b = &s->buffer[x->buffer];
        if (x->at + value_bytes(x) > b->bytes || x->use >= b->uses)
            return wrong(s, "a value that its buffer has no room for", v);
    }
    return NULL;
}

/* What the matrix role writes stays until it is read for the last time. */
static const char *check_lives(const Schedule *s)
{
    for (int a = 0; a < s->nvalues; a++)
        for (int b = 0; b < a; b++) {
            const KValue *x = &s->value[a], *y = &s->value[b];
            if (has_buffer(x) && x->buffer == y->buffer && x->use == y->use
                && s->buffer[x->buffer].tile && x->alias == NOTHING
                && x->at < y->at + value_bytes(y)
                && y->at < x->at + value_bytes(x)
                && y->alias == NOTHING && !live_apart(s, a, b))
                return wrong(s, "a value that another one is written over", b);
        }
    return NULL;
}

/* Of the role's instructions the first that reads the value, or NULL. */
static const KInst *first_reader(const Schedule *s, int value, int role)
{
    for (const KInst *k = s->inst; k < s->inst + s->ninsts; k++)
        for (int j = 0; j < k->nin; j++)
            if (k->in[j] == value && k->role == role)
                return k;
    return NULL;
}

/* Whether the instruction finds the vectors of all first tokens of node r's
 * tile, and no others. */
static bool finds_first(const Schedule *s, const KInst *k, Ref r)
{
    uint64_t used = 1;
    bool all = k->nin <= 64;
    for (int i = 0; i < tokens_delayed(s, r) && all; i++) {
        Ref first = first_row(s->g, r, i);
        bool found = !first || !s->g->n[first].axes;
        for (int j = 1; j < k->nin && !found; j++) {
            const KValue *v = &s->value[k->in[j]];
            found = v->node == first && (v->layout == LAY_GLOBAL
                                         || v->layout == LAY_VECTOR);
            used |= (uint64_t)found << j;
        }
        all = found;
    }
    return all && used + 1 == (uint64_t)1 << k->nin;
}

/* Whoever reads a loaded tile of tokens finds its ends cleared, and in its
 * first rows what comes before the chunk. */
static const char *check_cleared(const Schedule *s)
{
    for (int v = 0; v < s->nvalues; v++) {
        int w = value_writer(s, v);
        if (w == NOTHING || s->inst[w].op != K_LOAD || s->value[v].row != AX_I
            || s->value[v].layout != LAY_TILE || s->inst[w].clears)
            continue;
        for (int role = 0; role < NKROLES; role++) {
            const KInst *k = first_reader(s, v, role);
            if (role == KR_MATRIX && s->row_axis
                && first_reader(s, v, KR_AHEAD))
                continue;               /* the role ahead has cleared them */
            if (k && (k->op != K_CLEAR
                      || !finds_first(s, k, s->value[v].node)))
                return wrong(s, "a tile whose ends are not cleared", v);
        }
    }
    return NULL;
}

/* Of the sums that it makes. */
static int count_terms(const Schedule *s, const KInst *k)
{
    KTerm t[MOST_TERMS];
    int n = 0;
    for (int i = 0; i < k->nout; i++)
        n += decayed_terms(s->g, s->value[k->out[i]].node, t);
    return n;
}

/* Sums take the place of what they are of, and decays are made of sums. */
static const char *check_sums(const Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        for (int j = 0; j < k->nout && k->op == K_SCAN; j++) {
            const KValue *v = &s->value[k->out[j]];
            if (v->layout == LAY_SUMS
                && (!k->nin || v->alias != k->in[0]
                    || v->buffer != s->value[k->in[0]].buffer))
                return wrong(s, "sums that lie elsewhere", k->out[j]);
        }
        for (int j = 0; j < k->nout && k->op == K_CLEAR; j++) {
            const KValue *v = &s->value[k->out[j]], *of = &s->value[k->in[0]];
            if (v->layout != LAY_SUMS || of->layout != LAY_SUMS
                || v->alias != k->in[0] || v->buffer != of->buffer
                || v->at != of->at + rows_of_token(s->g) * sums_pitch(of)
                || v->ncol != of->ncol)
                return wrong(s, "a matrix that is no row off", k->out[j]);
        }
        for (int j = 1; j < k->nin && k->op == K_SCAN; j++) {
            const KValue *v = &s->value[k->in[j]];
            AxisSet axes = s->g->n[v->node].axes;
            Ref of = s->g->n[scan_of(s->g, s->value[k->out[0]].node)].a[0];
            bool gate = (axes == AXIS(AX_I) && v->layout == LAY_VECTOR)
                     || (axes == AXIS(k->col) && v->layout == LAY_GLOBAL
                         && v->node == shown_node(s->g, of))
                     || (!axes && v->layout == LAY_SCALAR)
                     || (v->layout == LAY_SUMS && v->col == k->col
                         && v->buffer != s->value[k->in[0]].buffer);
            bool begin = axes == AXIS(k->col) && (v->layout == LAY_GLOBAL
                                                  || v->layout == LAY_VECTOR);
            if (j != (gate ? 1 : k->nin - 1) || !(gate || begin))
                return wrong(s, "a scan of what are no gates", i);
        }
        if (k->op == K_DECAYED && (!k->nin || k->nin % 4))
            return wrong(s, "terms that are not of four values", i);
        if (k->op == K_DECAYED && 4 * count_terms(s, k) != k->nin)
            return wrong(s, "other terms than its sums have", i);
        for (int j = 0; j < k->nin && k->op == K_DECAYED; j++) {
            int w = j % 4 > 1 ? value_writer(s, k->in[j]) : NOTHING;
            if (j % 4 > 1 && (w == NOTHING || s->inst[w].op != K_SCAN))
                return wrong(s, "decays that are no sums", i);
        }
    }
    return NULL;
}

/* Values that alternate in a buffer are made, and read, in that order: none
 * once the next has been. */
static const char *check_use_order(const Schedule *s)
{
    for (int role = 0; role < NKROLES; role++) {
        int use[MOST_BUFFERS];
        for (int b = 0; b < s->nbuffers; b++)
            use[b] = NOTHING;
        for (int i = 0; i < s->ninsts; i++) {
            const KInst *k = &s->inst[i];
            bool writes = false;
            for (int j = 0; j < k->nin + k->nout && k->role == role; j++) {
                writes = j >= k->nin;
                const KValue *v = &s->value[writes ? k->out[j - k->nin]
                                                   : k->in[j]];
                if (!has_buffer(v) || s->buffer[v->buffer].uses == 1)
                    continue;
                bool again = !writes && v->use == use[v->buffer];
                if (!again && v->use != ++use[v->buffer])
                    return wrong(s, "values out of order", v->buffer);
            }
        }
    }
    return NULL;
}

/* ---- the matrix role's warps ---- */

static const char *check_meetings_of(const Schedule *s, int role)
{
    uint32_t written = 0, read = 0, again = places_again(s, role);
    for (int round = 0; round < 2; round++) {
        written &= again;
        read &= again;
        for (int i = 0; i < s->ninsts; i++) {
            const KInst *k = &s->inst[i];
            uint32_t in = matrix_reads(s, k), out = matrix_writes(s, k);
            uint32_t over = matrix_overwrites(s, k);
            uint32_t before = written | read;
            if (k->role != role)
                continue;
            if (k->op == K_SYNC)
                written = read = before = 0;
            if (in & written
                || (k->op != K_BEGIN && places_of(s, over) & before))
                return wrong(s, "warps of the matrix role that do not meet",
                             i);
            written |= out;
            read |= in;
        }
    }
    return NULL;
}

static const char *check_meetings(const Schedule *s)
{
    const char *why = check_meetings_of(s, KR_MATRIX);
    return why ? why : check_meetings_of(s, KR_AHEAD);
}

/* ---- roles that wait ---- */

static const char *check_progress(const Schedule *s)
{
    const char *why = schedule_stuck(s, false);
    return why || !s->splits ? why : schedule_stuck(s, true);
}

static bool reads_packed(const Schedule *s, const KInst *k, const KInst *packs)
{
    return packs_carried(s, packs) && k->op == K_PRODUCT
        && k->in[0] == packs->in[1];
}

/* Lean iterations make what they go on from. */
static const char *check_lean(const Schedule *s)
{
    for (int i = 0; i < s->ninsts && s->splits; i++)
        for (int m = 0; m < s->ninsts; m++)
            if (s->inst[i].lean && !s->inst[m].lean
                && (goes_on_from(s, &s->inst[i], &s->inst[m])
                    || reads_packed(s, &s->inst[i], &s->inst[m])))
                return wrong(s, "a lean iteration that does not make what it"
                             " goes on from", i);
    return NULL;
}

/* ---- roles that take chunks round-robin ---- */

/* A slot is always the same one's: it sees all that happens to it. */
static const char *check_copies(const Schedule *s)
{
    for (int i = 0; i < s->nbuffers && s->interleave > 1; i++) {
        const KBuffer *b = &s->buffer[i];
        bool own = b->writer == KR_AHEAD || b->readers >> KR_AHEAD & 1;
        if (own && b->depth % s->interleave)
            return wrong(s, "slots that are not dealt to those that alternate",
                         i);
    }
    return NULL;
}

/* ---- slices ---- */

static const char *check_slices(const Schedule *s)
{
    for (int v = 0; v < s->nvalues; v++) {
        const KValue *x = &s->value[v];
        bool matrix = x->layout == LAY_TILE || x->layout == LAY_FRAGMENT;
        int32_t cols = x->half ? 2 * x->ncol : x->ncol;
        if (matrix && (x->nrow != block_extent(s, x->row)
                       || cols != block_extent(s, x->col)))
            return wrong(s, "a value that is not of its axes' extents", v);
        if (matrix && s->slices > 1 && x->row == s->slice_axis
            && x->nrow % TILE_ROWS)
            return wrong(s, "a slice of rows that are no whole block", v);
    }
    return schedule_slice_fault(s, s->slice_axis, s->slices);
}

/* ---- behind the ends of axes ---- */

static bool has_axis(const Schedule *s, int value, int axis)
{
    return s->value[value].row == axis || s->value[value].col == axis;
}

/* Whether what the instruction leaves is zero behind the axis's end, if all
 * that it finds is. Loads, and what has no program, are printed so. */
static bool leaves_zeros(const Schedule *s, const KInst *k, int out, int axis)
{
    const KValue *v = &s->value[out];
    bool any = false, all = true;
    switch ((KOp)k->op) {
    case K_MAP:
        return v->masked || is_zero_behind(s, k, v->node, axis);
    case K_PRODUCT:
        for (int i = 0; i < k->nin; i++)
            any |= i < 2 && has_axis(s, k->in[i], axis);
        return any && (k->nin < 3 || has_axis(s, k->in[2], axis));
    case K_DECAYED:
        for (int i = 0; i < k->nin; i += 4)
            all &= has_axis(s, k->in[i], axis)
                || has_axis(s, k->in[i + 1], axis);
        return all;
    case K_SCAN:
        return has_axis(s, k->in[0], axis);
    default:
        return true;
    }
}

/* Zeros lie behind the end of every axis that is longer than it is, in all
 * that products and sums go over. */
static const char *check_padded(const Schedule *s)
{
    const char *why = extents_fault(s);
    if (why)
        return why;
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        for (int j = 0; j < k->nout; j++) {
            const KValue *v = &s->value[k->out[j]];
            AxisSet axes = k->op == K_MAP ? padded_axes(s, k, v->node)
                         : (is_padded(s, v->row) ? AXIS(v->row) : 0)
                           | (is_padded(s, v->col) ? AXIS(v->col) : 0);
            for (; axes; axes &= axes - 1)
                if (!leaves_zeros(s, k, k->out[j], lowest(axes)))
                    return wrong(s, "what is not zero behind an axis's end",
                                 k->out[j]);
        }
    }
    return NULL;
}

/* Where copies and stores move pieces, tensors' rows are whole such. What
 * kernels keep for one another always is. */
static const char *check_rows(const Schedule *s)
{
    int piece = s->target->form[FORM_COPY]->piece;
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        bool load = k->op == K_LOAD;
        if (!load && (k->op != K_STORE || has_matrices(k->role)))
            continue;
        const KValue *v = &s->value[load ? k->out[0] : k->in[0]];
        bool tensor = load ? s->g->n[loaded_node(s, v->node)].op == OP_input
                           : k->index != NOTHING;
        int64_t bytes = v->col < AX_DIM ? 0 : s->g->axis[v->col].size
                      * (int64_t)dtype_size(s->memory);
        if (tensor && piece && bytes % piece)
            return ctx_format(s->c, "%%%u: rows of %d numbers are no whole"
                              " pieces of %d bytes", (unsigned)v->node,
                              (int)s->g->axis[v->col].size, piece);
    }
    return NULL;
}

/* ---- registers ---- */

static bool lies_in_registers(const KValue *v)
{
    return v->layout == LAY_FRAGMENT || v->layout == LAY_PACKED;
}

/* When a fragment, or one that is written over it, is there: from behind one
 * instruction to another; where that is before the first, it is carried. */
typedef struct Life { int first, last; } Life;

static Life life_of(const Schedule *s, int v)
{
    Life life = { value_writer(s, v), NOTHING };
    for (int i = 0; i < s->ninsts; i++)
        for (int j = 0; j < s->inst[i].nin; j++)
            if (lies_in_registers(&s->value[s->inst[i].in[j]])
                && fragment_root(s, s->inst[i].in[j]) == v) {
                if (packs_carried(s, &s->inst[i]) && s->inst[i].in[1] == v)
                    life.first = i;     /* written again for what follows */
                else
                    life.last = i;
            }
    return life;
}

static bool lives_at(Life life, int at, bool behind)
{
    bool from = behind ? life.first <= at : life.first < at;
    bool to = behind ? at < life.last : at <= life.last;
    return life.last < life.first ? from || to : from && to;
}

/* A program gives up an element of what it reads when it leaves one of what it
 * writes; products have both. */
static void add_life(const Schedule *s, Life life, int regs, int (*live)[2])
{
    for (int i = 0; i < s->ninsts; i++)
        for (int behind = 0; behind < 2; behind++)
            if (lives_at(life, i, behind)
                || (s->inst[i].op != K_MAP && lives_at(life, i, !behind)))
                live[i][behind] += regs;
}

/* Before each instruction, and behind it. */
static int (*find_live(const Schedule *s, KRole role))[2]
{
    int (*live)[2] = ctx_alloc(s->c, (size_t)s->ninsts * sizeof *live);
    for (int v = 0; v < s->nvalues; v++)
        if (lies_in_registers(&s->value[v]) && s->value[v].alias == NOTHING
            && s->value[v].ahead == (role == KR_AHEAD))
            add_life(s, life_of(s, v), fragment_regs(s, &s->value[v]), live);
    return live;
}

int registers_live(const Schedule *s, KRole role)
{
    int (*live)[2] = find_live(s, role), most = 0;
    for (int i = 0; i < s->ninsts; i++)
        for (int behind = 0; behind < 2 && s->inst[i].role == role; behind++)
            most = live[i][behind] > most ? live[i][behind] : most;
    return most;
}

int registers_summed(const Schedule *s)
{
    int n = 0;
    for (int i = 0; i < s->ninsts && s->sum_out; i++) {
        const KInst *k = &s->inst[i];
        if (k->op != K_STORE || k->index == NOTHING || !s->sum_out[k->index])
            continue;
        if (k->role != KR_MATRIX
            || s->value[k->in[0]].layout != LAY_FRAGMENT)
            return 0;
        n += fragment_regs(s, &s->value[k->in[0]]);
    }
    bool room = registers_live(s, KR_MATRIX) + n + OTHER_REGS + s->spare
             <= s->regs[1];
    return s->kind == K_TOKEN && s->slices == 1 && room ? n : 0;
}

int registers_taken(const Schedule *s, KRole role)
{
    int (*live)[2] = find_live(s, role), most = 0;
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        if (k->role != role || k->op != K_MAP)
            continue;
        int n = live[i][0] > live[i][1] ? live[i][0] : live[i][1];
        n += program_registers(s, k);
        most = n > most ? n : most;
    }
    return most;
}

int registers_left(const Schedule *s, KRole role)
{
    int most = 0;
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        int n = k->role == role && k->op == K_MAP ? program_registers(s, k) : 0;
        most = n > most ? n : most;
    }
    return most;
}

/* Those, and what else a thread needs. */
const char *registers_fault(const Schedule *s)
{
    enum { AHEAD = 32 };
    for (int ahead = 0; ahead < 1 + (s->ahead > 0); ahead++) {
        int most = registers_live(s, ahead ? KR_AHEAD : KR_MATRIX);
        int others = s->row_axis && !ahead ? ROWS_REGS
                   : s->ahead ? AHEAD : OTHER_REGS;
        if (ahead)
            others = registers_early(s) ? registers_early(s) + ROWS_REGS
                                        : others;
        else
            others += s->spare;
        if (most + others > s->regs[1 + ahead])
            return ctx_format(s->c, "%d registers for fragments; a thread has"
                              " %d", most, s->regs[1 + ahead]);
    }
    int left = registers_left(s, KR_AHEAD);
    left = left < MOST_LEFT ? left : MOST_LEFT;
    if (s->row_axis && s->ahead && left + ROWS_REGS > s->regs[2])
        return ctx_format(s->c, "%d registers for a program; a thread has %d",
                          left, s->regs[2]);
    return NULL;
}

/* What the copy engine moves, each with a map among a kernel's arguments. */
static const char *check_maps(const Schedule *s)
{
    uint8_t *moved = ctx_alloc(s->c, s->g->len);
    int n = 0;
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        bool load = k->op == K_LOAD;
        if (!load && (k->op != K_STORE || has_matrices(k->role)))
            continue;
        Ref r = s->value[load ? k->out[0] : k->in[0]].node;
        r = load ? loaded_node(s, r) : r;
        n += !moved[r];
        moved[r] = 1;
    }
    return n <= s->target->maps ? NULL
         : ctx_format(s->c, "%d matrices are loaded and stored; a kernel on %s"
                      " has maps for %d", n, s->target->name, s->target->maps);
}

/* Requires all that is there to be printed. */
static bool is_result(const Graph *g, Ref r)
{
    for (int i = 0; i < g->nout; i++)
        if (shown_node(g, g->out[i].node) == r)
            return true;
    return false;
}

/* But for results, which are what they are asked to be. */
static const char *check_range(const Schedule *s)
{
    if (s->tile != F16)
        return NULL;
    const bool *far = find_far(s->c, s->g);
    for (int i = 0; i < s->nvalues; i++) {
        const KValue *v = &s->value[i];
        bool narrow = v->layout == LAY_TILE || v->layout == LAY_PACKED;
        if (narrow && far[v->node] && !is_result(s->g, v->node))
            return ctx_format(s->c, "%%%u in 16 bits: float16 may not hold it",
                              (unsigned)v->node);
    }
    return NULL;
}

const char *schedule_check(Schedule *s)
{
    const char *(*const law[])(const Schedule *) = { check_uses,
        check_under_way,
        check_fragments, check_parts, check_writers, check_readers,
        check_written_over, check_deferred,
        check_states, check_lanes, check_across, check_pairs,
        check_layouts,
        check_buffers,
        check_copies,
        check_padded, check_slices, check_rows, check_sums, check_lives,
        check_results, check_use_order, hands_fault,
        check_meetings,
        check_lean, check_progress, check_cleared, registers_fault,
        tensor_fault, pair_fault, tails_fault,
        check_maps, check_range };
    for (size_t i = 0; i < sizeof law / sizeof *law; i++) {
        const char *why = law[i](s);
        if (why)
            return why;
    }
    return NULL;
}
