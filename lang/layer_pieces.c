/* layer_pieces.c -- a layer's calls in pieces, in training: of batch entries,
 * or of tokens, whose states are handed on. Kernels work in memory for one
 * piece then; the way back goes through them from the last on. It may begin
 * each with its way forward: then nothing is kept but the states between them.
 */
#include "layer_run.h"

Piece whole_piece(const Lay *k)
{
    return (Piece){ .n = 1, .nb = k->b->B, .nt = k->b->T };
}

bool hands_on(const Piece *p)
{
    return p->t > 0;
}

/* Has the part's call pieces: does it run by a plan, and carry all its states
 * itself? */
bool is_cut(const Lay *k, int i)
{
    const LayerPart *p = &k->p->parts->part[i];

    return k->keep && k->b->call.on_device && p->step && p->step->nst
        && !p->taps && !p->constant && !p->borrows && !k->p->rows[i]
        && !k->p->passes[i];
}

bool goes_again(const Lay *k, int i)
{
    return k->cut.again && is_cut(k, i);
}

int64_t count_units(const Lay *k)
{
    int chunk = k->args->chunk > 0 ? k->args->chunk : CHUNK_DEFAULT;

    return k->b->B > 1 ? k->b->B : k->b->T % chunk ? 1 : k->b->T / chunk;
}

Piece piece_of(const Lay *k, int i, int at)
{
    Piece p = whole_piece(k);

    if (!is_cut(k, i) || k->cut.n < 2)
        return p;
    p.n = k->cut.n;
    p.at = at;
    if (k->b->B > 1) {
        p.nb /= p.n;
        p.b = at * p.nb;
    } else {
        p.nt /= p.n;
        p.t = at * p.nt;
    }
    return p;
}

/* ---- states between pieces ---- */

static int64_t state_bytes(const Lay *k, const LayerPart *p, int j)
{
    const State *st = &p->step->st[j];
    int64_t n = k->b->N;

    if (p->heads)
        n *= lay_extent(k, p->heads);
    for (int d = 0; d < st->rank; d++)
        n *= lay_extent(k, p->axis[st->order[d]]);
    return n * (int64_t)dtype_size(F32);
}

static int64_t states_bytes(const Lay *k, const LayerPart *p)
{
    int64_t bytes = 0;

    for (int j = 0; j < p->step->nst; j++)
        bytes += state_bytes(k, p, j);
    return bytes;
}

/* State j of those that lie at `from`, [N, H, ...]. */
static Given state_in(const Lay *k, const LayerPart *p, int j, char *from)
{
    const State *st = &p->step->st[j];
    Given g = { .given = true, .dtype = F32, .device = true,
                .rank = 2 + st->rank, .shape = { k->b->N,
                p->heads ? lay_extent(k, p->heads) : 1 } };
    int64_t apart = 1;

    for (int i = 0; i < j; i++)
        from += state_bytes(k, p, i);
    g.data = from;
    for (int d = 0; d < st->rank; d++)
        g.shape[2 + d] = lay_extent(k, p->axis[st->order[d]]);
    for (int d = g.rank; d-- > 0; apart *= g.shape[d])
        g.stride[d] = apart;
    return g;
}

static bool is_handed_on(const Lay *k)
{
    return k->piece.nt < k->b->T;
}

void place_states(Lay *k, int i)
{
    int64_t each = states_bytes(k, &k->p->parts->part[i]);
    int64_t bytes = (k->piece.n - 1) * each;

    if (is_handed_on(k))
        k->carried[i] = (Stored){ .at = k->realm->room(k, bytes, true),
                                  .bytes = bytes };
}

void place_adjoints(Lay *k, int i)
{
    int64_t each = states_bytes(k, &k->p->parts->part[i]);

    if (is_handed_on(k))
        k->adjoint = k->realm->room(k, 2 * each, false);
}

Given state_before(const Lay *k, int i, int j, int at)
{
    const LayerPart *p = &k->p->parts->part[i];
    char *all = k->carried[i].at;

    return state_in(k, p, j, all + (at - 1) * states_bytes(k, p));
}

Given adjoint_before(const Lay *k, int i, int j, int at)
{
    const LayerPart *p = &k->p->parts->part[i];
    char *all = k->adjoint;

    return state_in(k, p, j, all + at % 2 * states_bytes(k, p));
}

/* ---- their price ---- */

void weigh_piece(Lay *k, Sub *s)
{
    double again = k->cut.again
                 ? forward_seconds(k->c, s->v, &s->args, &s->bound) : 0;

    if (k->weighs && k->piece.at == 0 && is_cut(k, (int)(s->p
                                                - k->p->parts->part)))
        k->seconds += k->piece.n * (again + bound_seconds(k->c, s->v, &s->args,
                                                          &s->bound, true));
}
