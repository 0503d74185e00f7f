/* rows_args.c -- a call's tensors in order, and how its rows lie in lanes. */
#include "rows_emit.h"

int rows_arg(const Rows *p, RowsRole role, int i)
{
    int at[] = { [ROW_IN] = 0, [ROW_DX] = p->nin, [ROW_Y] = 2 * p->nin,
                 [ROW_DY] = 2 * p->nin + 1, [ROW_S0] = 2 * p->nin + 2 };
    int states = at[ROW_S0] + ((int)role - ROW_S0) * rows_states(p);

    return (role < ROW_S0 ? at[role] : states) + i;
}

int rows_args(const Rows *p, const RowsCall *call)
{
    bool any = !call;

    for (int role = ROW_S0; role < ROW_ROLES && call; role++)
        for (int j = 0; j < rows_states(p); j++)
            any = any || rows_view(call, (RowsRole)role, j)->data;
    return 2 * p->nin + 2 + (any ? 4 * rows_states(p) : 0);
}

int rows_states(const Rows *p)
{
    return p->nst + p->carried;
}

const View *rows_view(const RowsCall *call, RowsRole role, int i)
{
    switch (role) {
    case ROW_IN:     return &call->in[i];
    case ROW_DX:     return &call->dx[i];
    case ROW_Y:      return &call->y;
    case ROW_DY:     return &call->dy;
    case ROW_S0:     return &call->s0[i];
    case ROW_S1:     return &call->s1[i];
    case ROW_DSTATE: return &call->dstate[i];
    case ROW_DS:     return &call->ds[i];
    case ROW_ROLES:  break;
    }
    return NULL;
}

bool rows_shared(const RowsCall *call, const View *v)
{
    return v->heads < call->heads || (call->heads > 1 && !v->sh);
}

bool rows_sums(const Rows *p, const RowsCall *call)
{
    bool any = false;

    for (int i = 0; i < p->nin; i++)
        any = any || (call->backward && !p->step->in[i].timed
                      && call->dx[i].data);
    return any;
}

bool rows_few(const Rows *p, const RowsCall *call)
{
    return p->nst > 1 || rows_sums(p, call);
}

bool rows_leaves(const Rows *p, const RowsCall *call)
{
    bool any = false;

    for (int j = 0; j < rows_states(p); j++)
        any = any || (call->backward ? call->ds : call->s1)[j].data;
    return any;
}

int64_t rows_entries(const Rows *p, int i)
{
    const Input *in = &p->step->in[i];
    int64_t n = 1;

    for (int d = 0; d < in->rank; d++)
        n *= p->step->axis[in->order[d]].size;
    return n;
}

bool rows_wants(const Rows *p, const RowsCall *call, int i)
{
    bool any = call->dx[i].data != NULL
            && !(p->product && (i == p->product->x || i == p->product->w));

    for (int j = 0; j < p->nst; j++)
        any = any || (p->source[j] == i && call->ds[j].data);
    return any;
}

int carried_shared(const Rows *p, const RowsCall *call)
{
    RowsShape s = rows_shape(p, call);

    return (ROW_THREADS * s.each + ROW_THREADS) * 8;
}

int32_t rows_span(const Rows *p, int ax)
{
    int32_t n = 1;

    for (int d = p->nlanes - 1; d >= 0 && p->order[d] != ax; d--)
        n *= p->forward->axis[p->order[d]].size;
    return n;
}

int rows_inner(const Rows *p)
{
    return p->nlanes ? p->order[p->nlanes - 1] : 0;
}

RowsShape rows_shape(const Rows *p, const RowsCall *call)
{
    RowsShape s = { 4, 1 };

    for (int i = 0; i < p->nin; i++)
        if (p->step->in[i].timed && call->in[i].dtype != F32
            && !(p->heavy && (call->backward || p->carried)))
            s.each = 8;
    if (p->carried && p->length > 32 * s.each)
        s.each = 8;                     /* a row is a warp's at most */
    while (s.each > 1 && s.each / 2 >= p->length)
        s.each /= 2;                    /* an inner axis has 8 at least */
    while (s.group < 32 && s.group * s.each < p->length)
        s.group *= 2;
    while (s.group * s.each < p->length)
        s.group += 32;
    return s;
}
