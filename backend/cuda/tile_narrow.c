/* tile_narrow.c -- values that lie as bf16, where products round to that. One
 * that nothing but products looks at lies so from the start, in memory too if
 * no kernel looks at it otherwise; another gets a twin, so that the tensor
 * cores are fed without conversions.
 */
#include "tile.h"

enum { LEAST = 8, MANY = 1024 };

static int32_t size_of(const Tiles *t, Ref r, AxisSet s)
{
    int32_t n = 1;

    for (; s; s &= s - 1)
        n *= tile_extent(t, r, lowest(s));
    return n;
}

/* Products of matrices, and sums of so many products that the roundings even
 * out. */
bool rounds_factors(const Tiles *t, Ref r)
{
    const Node *n = &t->g->n[r];
    double x;

    if (t->o->tile != BF16 || t->precision[r] || n->op != OP_dot
        || constant_of(t, n->a[0], &x) || constant_of(t, n->a[1], &x))
        return false;
    AxisSet a = t->g->n[n->a[0]].axes, b = t->g->n[n->a[1]].axes;
    int32_t sum = size_of(t, n->a[0], n->over & a);
    if (!n->axes)
        return a == b && a == n->over && sum >= MANY;
    return size_of(t, n->a[0], n->axes & a & ~b) >= LEAST
        && size_of(t, n->a[1], n->axes & b & ~a) >= LEAST && sum >= LEAST
        && !(n->over & ~(a & b));
}

void find_readers(const Tiles *t, uint8_t *wide, uint8_t *factor)
{
    for (Ref u = (Ref)t->g->len - 1; u > 0; u--) {
        const Node *n = &t->g->n[u];
        if (!t->has[u])
            continue;
        bool rounds = rounds_factors(t, u);
        for (int i = 0; i < 4; i++) {
            wide[n->a[i]] |= is_view(n->op) ? wide[u] : !rounds;
            factor[n->a[i]] |= is_view(n->op) ? factor[u] : rounds;
        }
    }
    for (int s = 0; s < t->g->nst; s++)
        if (t->k->states & STATE(s))
            wide[t->g->st[s].next] = 1;
}

static bool may_be(const Tiles *t, Ref r)
{
    return t->o->tile == BF16 && t->factor[r]
        && !(t->has[r] && is_view(t->g->n[r].op));
}

bool is_narrow(const Tiles *t, Ref r)
{
    int op = t->g->n[r].op;

    if (t->has[r] && (op_is(op, GIVEN | RECURS) || op == OP_solve))
        return false;
    return may_be(t, r) && !t->wide[r]
        && !(t->stored_here[r] && !t->stored_narrow[r]);
}

bool wants_twin(const Tiles *t, Ref r)
{
    return may_be(t, r) && tile_type(t, r) != BF16;
}

/* ---- twins ---- */

int twin_new(Tiles *t, Act *a, Ref r)
{
    int tile = tile_new(t, r, t->pre[r]);

    tile_retype(t, tile, r, BF16);
    t->twin[r] = tile_spot(t, r, tile);
    act_uses(t, a, tile, true);
    return tile;
}

/* A matrix, four of a row at a time. */
static bool narrow_rows(const Tiles *t, Buf *b, Ref r, int tile)
{
    const Spot *from = &t->spot[r], *to = &t->twin[r];
    AxisSet axes = t->g->n[r].axes;
    bool transposed = lies_transposed(t, r);
    int in = inner_axis(axes, transposed), row = inner_axis(axes, !transposed);

    if (axes != (AXIS(in) | AXIS(row)) || in == row || from->at || from->tail
        || from->st[in] != 1 || to->st[in] != 1 || from->st[row] % 4
        || to->st[row] % 4 || tile_extent(t, r, in) % 4
        || t->tile[from->tile].type != F32)
        return false;
    buf_printf(b, "narrow<%d, %d, %d>(t%d, t%d, ", (int)tile_extent(t, r, in),
               (int)from->st[row], (int)to->st[row], tile, from->tile);
    if (is_token_axis(row))
        buf_printf(b, "n);\n");
    else
        buf_printf(b, "%d);\n", (int)tile_extent(t, r, row));
    return true;
}

static void make_twin(Tiles *t, Ref r)
{
    Act *a = act_begin(t, r);
    int tile = twin_new(t, a, r);
    AxisSet axes = t->g->n[r].axes;
    Buf *b = &a->text;

    act_uses(t, a, t->spot[r].tile, false);
    if (narrow_rows(t, b, r, tile))
        return;
    loop_open(t, b, "TID", "THREADS", r, axes);
    buf_printf(b, "put(&t%d[", tile);
    index_text(b, &t->twin[r], axes, -1, NULL);
    buf_printf(b, "], ");
    element_text(t, a, b, r, axes, -1, NULL);
    buf_printf(b, ");\n}\n");
}

Spot factor_spot(Tiles *t, Ref r)
{
    const Node *n = &t->g->n[r];

    if (t->o->tile != BF16 || t->tile[t->spot[r].tile].type == BF16)
        return t->spot[r];
    if (t->has[r] && is_view(n->op)) {
        Spot s = factor_spot(t, n->a[0]);
        return view_spot(t, r, &s);
    }
    if (t->twin[r].tile < 0)
        make_twin(t, r);
    return t->twin[r];
}
