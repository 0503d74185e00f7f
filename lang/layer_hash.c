/* layer_hash.c -- what stands for a layer's call on a device. */
#include "layer_gpu.h"

static uint64_t hash_words(uint64_t h, const int64_t *x, int n)
{
    return hash_bytes(h, x, (size_t)n * sizeof *x);
}

static uint64_t hash_view(uint64_t h, const View *v, int rank)
{
    const int64_t x[] = { v->dtype, v->sb, v->st, v->sh, v->heads,
                          (int64_t)((uintptr_t)v->data % ROOM_ALIGN),
                          v->data != NULL };

    return hash_words(hash_words(h, x, 7), v->sd, rank);
}

static uint64_t hash_given(uint64_t h, const Given *g)
{
    const int64_t x[] = { g->given, g->dtype, g->data != NULL,
                          (int64_t)((uintptr_t)g->data % ROOM_ALIGN) };

    return hash_words(hash_words(h, x, 4), g->stride, g->rank);
}

uint64_t layer_call_hash(const Lay *k)
{
    const Call *call = &k->b->call;
    const int64_t x[] = { k->b->B, k->b->T, k->b->N, k->args->mode,
                          k->args->chunk, k->args->serial,
                          call->device_cu != NULL, k->v->turned, k->keep,
                          k->left, k->spends, (int64_t)k->chosen,
                          call->pages.at != NULL, k->args->memory, k->cut.n,
                          k->cut.again, k->cut.rows, k->cut.most };
    uint64_t h = hash_words(1, x, 18);

    for (int64_t i = 0; call->seq && i < call->nseq; i++)
        h = hash_words(hash_words(h, &call->seq[i].start, 1),
                       &call->seq[i].len, 1);
    for (int i = 0; i < k->step->nin; i++)
        h = hash_view(h, &call->in[i], k->step->in[i].rank);
    for (int i = 0; i < k->step->nst; i++) {
        h = hash_view(h, &call->s0[i], k->step->st[i].rank);
        h = hash_view(h, &call->s1[i], k->step->st[i].rank);
    }
    h = hash_view(h, &call->out[0], k->step->out[0].rank);
    if (!k->d)
        return h;
    h = hash_given(h, &k->d->dy[0]);
    for (int i = 0; i < k->step->nin; i++)
        h = hash_given(h, &k->d->dx[i]) + k->d->add[i];
    for (int i = 0; i < k->step->nst; i++)
        h = hash_given(hash_given(h, &k->d->dstate[i]), &k->d->ds[i]);
    return h;
}
