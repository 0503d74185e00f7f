/* layer_run.c -- a layer's parts, one after another, forward and backward.
 *
 * Each part is a step, run as a call of its own (layer_step.c), or a matrix
 * product. Where values lie, and in which types, is the place's. Backward runs
 * forward first and keeps all of it.
 */
#include <string.h>

#include "layer_gpu.h"
#include "../backend/cuda/gpu.h"
#include "layer_price.h"
#include "shared.h"

/* ---- programs ---- */

typedef struct NewProgram { Variant *v; LayerProgram *p; } NewProgram;

/* As they run, and what stands for where they do. */
static void cut_parts(Ctx *c, const Layer *l, LayerProgram *p)
{
    const LayerParts *parts = layer_cut(c, l, p->size);
    LayerGroups g = fuse_choice(c, l, parts, p->size, p->fusion, p->machine,
                                false).groups;

    p->parts = layer_fuse(c, l, parts, &g, p->size);
    p->mark = p->fusion;
    for (int i = 0; i < g.n; i++) {
        const int at[] = { g.group[i].part, g.group[i].behind };
        p->mark = hash_bytes(p->mark, at, sizeof at);
        if (g.group[i].before)
            p->mark = hash_bytes(p->mark, g.group[i].before,
                                 (size_t)parts->n);
    }
}

static void new_program(Ctx *c, void *ud)
{
    NewProgram *n = ud;
    const int32_t *size = n->p->size;
    LayerProgram *p = ctx_alloc(c, sizeof *p);

    *p = (LayerProgram){ .fusion = n->p->fusion, .device = n->p->device,
                         .machine = n->p->machine };
    memcpy(p->size, size, sizeof p->size);
    cut_parts(c, n->v->step->layer, p);
    find_rows(c, n->v->step->layer, p);
    p->joints = find_joints(c, n->v->step->layer->traced, p->parts, size);
    p->sum = find_sums(c, n->v->step->layer, p->parts, p->joints);
    p->tile = find_tiles(c, n->v->step->layer, p->parts, p->joints, p->sum);
    p->variant = ctx_alloc(c, (size_t)p->parts->n * sizeof *p->variant + 1);
    for (int i = 0; i < p->parts->n; i++) {
        if (!p->parts->part[i].step)
            continue;
        p->variant[i] = ctx_alloc(c, sizeof **p->variant);
        p->variant[i]->ctx = c;
        p->variant[i]->step = p->parts->part[i].step;
    }
    p->columns = find_column_parts(c, n->v->step->layer->traced, p);
    n->p = p;
}

static LayerProgram *find_program(const Variant *v, const Args *a,
                                  const Bound *b)
{
    LayerProgram *p = v->programs;

    while (p && (p->fusion != a->fusion || p->device != b->call.on_device
                 || memcmp(p->size, b->call.size, sizeof p->size)))
        p = p->next;
    return p;
}

/* Made if it is new. */
static LayerProgram *layer_program(Ctx *c, Variant *v, const Args *a,
                                   const Bound *b)
{
    LayerProgram *p = find_program(v, a, b);
    LayerProgram wanted = { .fusion = a->fusion,
                            .device = b->call.on_device };
    NewProgram n = { v, &wanted };

    if (p)
        return p;
    wanted.machine = wanted.device ? gpu_machine(c, v->shared.gpu)
                                   : &machine_cpu;
    memcpy(wanted.size, b->call.size, sizeof wanted.size);
    if (!ctx_protect(v->ctx, new_program, &n)) {
        c->err = v->ctx->err;
        ctx_rethrow(c);
    }
    for (int i = 0; i < n.p->parts->n; i++)
        if (n.p->variant[i])
            n.p->variant[i]->shared = shared_retain(v->shared);
    n.p->next = v->programs;
    return v->programs = n.p;
}

void layer_release(Variant *v)
{
    for (LayerProgram *p = v->programs; p; p = p->next) {
        gpu_layer_release(v, p);
        for (int i = 0; i < p->parts->n; i++)
            if (p->variant[i])
                plans_release(p->variant[i]);
    }
    v->programs = NULL;
}

/* Is the gradient wanted of what an input of a part, or of what it is made of?
 */
static void find_wanted(Lay *k)
{
    for (int i = 0; i < k->step->nin; i++)
        k->wanted[k->g->in[i].node] = k->d->dx[i].given;
    for (int i = 0; i < k->p->parts->n; i++) {
        const LayerPart *p = &k->p->parts->part[i];
        for (int j = 0; j < p->nin; j++)
            k->wanted[p->y] |= k->wanted[p->in[j]];
        for (int j = 0; p->step && j < p->step->nst; j++)
            k->wanted[p->y] |= k->d->ds[state_at(p, j)].given;
    }
}

/* ---- calls ---- */

/* Where the result is to go; its parts may write it there at once. */
static Array y_array(const Lay *k, const View *t)
{
    const Output *y = &k->g->out[0];

    return tensor_array(k, true, y->order, y->rank, t);
}

/* A product that adds reads its values where the sum is made. */
static void count_readers(Lay *k)
{
    for (int i = 0; i < k->p->parts->n; i++) {
        const LayerPart *p = &k->p->parts->part[i];
        int at = k->p->sum[i] < 0 ? -k->p->sum[i] - 1 : i;
        for (int j = 0; j < p->nin; j++) {
            if (!k->readers[p->in[j]]++)
                k->first[p->in[j]] = i;
            if (k->last[p->in[j]] < at)
                k->last[p->in[j]] = at;
        }
    }
}

static Lay *lay_whole(Ctx *c, Variant *v, const Args *a, const Bound *b,
                      const Adjoint *d)
{
    Lay *k = ctx_alloc(c, sizeof *k);
    const Graph *g = v->step->layer->traced;

    *k = (Lay){ .c = c, .v = v, .g = g, .step = v->step, .args = a, .b = b,
                .d = d, .realm = b->call.on_device ? &realm_gpu : &realm_host,
                .p = layer_program(c, v, a, b) };
    k->spends = d;
    k->keep = d || (a->mode == M_FORWARD && layer_checkpoints(v, a));
    k->sub = ctx_alloc(c, sizeof *k->sub);
    k->stored = ctx_alloc(c, (size_t)k->p->parts->n * sizeof *k->stored + 1);
    k->carried = ctx_alloc(c, (size_t)k->p->parts->n * sizeof *k->carried + 1);
    k->piece = whole_piece(k);
    k->cut.n = 1;
    k->readers = ctx_alloc(c, g->len * sizeof *k->readers);
    k->last = ctx_alloc(c, g->len * sizeof *k->last);
    k->first = ctx_alloc(c, g->len * sizeof *k->first);
    k->anew = ctx_alloc(c, g->len);
    k->owed = ctx_alloc(c, g->len * sizeof *k->owed);
    k->wanted = ctx_alloc(c, g->len);
    k->value = ctx_alloc(c, g->len * sizeof *k->value);
    k->grad = ctx_alloc(c, g->len * sizeof *k->grad);
    k->chosen = joint_choice(k);
    k->shelf = ctx_alloc(c, (size_t)k->p->joints->n * sizeof *k->shelf + 1);
    k->dy = ctx_alloc(c, (size_t)k->p->joints->n * sizeof *k->dy + 1);
    k->tile = ctx_alloc(c, (size_t)k->p->parts->n * sizeof *k->tile + 1);
    k->tiling = ctx_alloc(c, (size_t)k->p->parts->n * sizeof *k->tiling + 1);
    count_readers(k);
    if (d)
        find_wanted(k);
    return k;
}

/* The arguments, and what is made of numbers alone. */
static void begin(Lay *k)
{
    const Graph *g = k->g;
    int numbers = 0;

    memset(k->value, 0, g->len * sizeof *k->value);
    memset(k->grad, 0, g->len * sizeof *k->grad);
    memset(k->dy, 0, (size_t)k->p->joints->n * sizeof *k->dy);
    find_tiling(k);
    for (int i = 0; i < k->step->nin; i++)
        k->value[g->in[i].node] = input_array(k, i, &k->b->call.in[i]);
    for (Ref r = 1; r < g->len; r++)
        if (g->n[r].op == OP_num)
            k->realm->number(k, &k->value[r], g->n[r].num, numbers++);
}

/* The way back takes nothing from a part whose result none reads, and whose
 * states' gradients are none's; but what rows come to, of which it has some
 * columns at a time. */
static bool is_needed(const Lay *k, int i)
{
    const LayerPart *p = &k->p->parts->part[i];

    return !k->d || k->readers[p->y] || (k->left && p->step)
        || (k->tile[i] > 0 && k->tiling[i].way == TILE_COLUMNS);
}

/* What part i reads: behind the last part that does, `at`, where nobody will
 * any more. */
static void drop_values(Lay *k, int i, int at)
{
    const LayerPart *p = &k->p->parts->part[i];

    for (int j = 0; j < p->nin; j++)
        if (k->last[p->in[j]] == at && p->in[j] != k->g->out[0].node
            && (!k->keep || k->anew[p->in[j]]))
            drop_array(k, &k->value[p->in[j]]);
}

/* The part whose result r is. */
static int part_of(const Lay *k, Ref r)
{
    int of = 0;

    while (k->p->parts->part[of].y != r)
        of++;
    return of;
}

/* Of what is kept, or of the other kind of part that is made anew itself: a
 * product's of rows, rows' of a product. */
static bool is_made_anew(const Lay *k, const LayerPart *p)
{
    bool all = true;

    for (int j = 0; all && j < p->nin; j++) {
        const LayerPart *from = k->anew[p->in[j]]
                              ? &k->p->parts->part[part_of(k, p->in[j])] : NULL;
        all = !from || !from->step != !p->step;
    }
    return all;
}

/* Does the part's way back have such values made again? */
static bool takes_anew(const Lay *k, int i)
{
    return !k->p->parts->part[i].step || k->realm->cheap(k, i)
        || (k->cut.rows && is_cut(k, i));
}

/* What is cheap, and read by no call that has it kept. */
static void find_anew(Lay *k)
{
    const LayerParts *parts = k->p->parts;

    memset(k->anew, 0, k->g->len);
    for (int i = 0; k->keep && i < parts->n; i++) {
        const LayerPart *p = &parts->part[i];
        bool all = k->realm->cheap(k, i) && !p->constant && k->readers[p->y]
                && !k->tile[i] && !k->p->sum[i]
                && p->y != k->g->out[0].node && is_made_anew(k, p);
        for (int j = k->first[p->y]; all && j <= k->last[p->y]; j++)
            for (int in = 0; in < parts->part[j].nin; in++)
                all = all && (parts->part[j].in[in] != p->y
                              || takes_anew(k, j));
        k->anew[p->y] = all;
    }
}

/* Part i is the next. */
static void before(Lay *k, int i)
{
    if (k->realm->before)
        k->realm->before(k, i);
}

/* On the way back, before part i: what it reads, computed again. */
static void make_anew(Lay *k, int i)
{
    const LayerPart *p = &k->p->parts->part[i];
    bool keep = k->keep, left = k->left;

    for (int j = 0; j < p->nin; j++) {
        Ref r = p->in[j];
        if (!k->anew[r] || k->value[r].data)
            continue;
        int of = part_of(k, r);
        make_anew(k, of);
        before(k, of);
        k->keep = k->left = false;
        if (k->p->parts->part[of].step)
            run_step(k, of);
        else
            run_product(k, &k->p->parts->part[of]);
        k->keep = keep;
        k->left = left;
    }
}

static void drop_anew(Lay *k, int i)
{
    const LayerPart *p = &k->p->parts->part[i];

    for (int j = 0; j < p->nin; j++)
        if (k->anew[p->in[j]] && k->first[p->in[j]] == i)
            drop_array(k, &k->value[p->in[j]]);
}

static void run_parts(Lay *k)
{
    find_anew(k);
    for (int i = 0; i < k->p->parts->n; i++) {
        const LayerPart *p = &k->p->parts->part[i];
        ctx_poll(k->c);
        if (!is_needed(k, i))
            continue;
        if (k->left && k->anew[p->y]) {         /* it is seen as it will lie */
            k->value[p->y] = p->step ? step_array(k, p) : product_array(k, p);
            make_no_room(&k->value[p->y], k->realm->type(k, p->y));
            continue;
        }
        const Joint *j = joint_of(k, i);
        if (k->tile[i] < 0 || k->p->sum[i] < 0)
            continue;
        if (!j || j->at == i)
            before(k, i);
        if (k->tile[i] > 0) {
            run_tiles(k, i);
            drop_values(k, k->tile[i] - 1, k->tile[i] - 1);
        } else if (k->p->sum[i]) {
            run_sum_part(k, i);
            drop_values(k, k->p->sum[i] - 1, i);
        } else if (k->p->variant[i])
            run_step(k, i);
        else if (!j)
            run_product(k, p);
        else if (j->at == i)
            run_joint(k, j);
        drop_values(k, i, i);
    }
}

static void run_forward(Lay *k)
{
    Ref root = k->g->out[0].node;
    Array y = y_array(k, &k->b->call.out[0]);

    begin(k);
    if (y.data && !k->readers[root] && k->g->n[root].op != OP_input)
        k->value[root] = y;
    run_parts(k);
    if (y.data && k->value[root].data != y.data)
        k->realm->move(k, &y, &k->value[root], false);
}

/* What the caller wants of the gradients of arguments. */
static void give_gradients(Lay *k)
{
    for (int i = 0; i < k->step->nin; i++) {
        Array *g = &k->grad[k->g->in[i].node];
        if (!k->d->dx[i].given || !k->d->dx[i].data)
            continue;
        View t = input_view(k->step, i, &k->d->dx[i]);
        Array to = input_array(k, i, &t);
        if (!g->data)
            k->realm->zero(k, &to);
        else if (g->data != to.data)
            k->realm->move(k, &to, g, false);
    }
}

/* Does a gradient come to the part? States' gradients are wanted all the same:
 * then a result's is that comes, of zeros. */
static bool has_adjoint(Lay *k, const LayerPart *p)
{
    Array *g = &k->grad[p->y];
    bool any = g->data != NULL;

    for (int j = 0; j < p->step->nst; j++)
        any = any || (!p->borrows && k->d->dstate[state_at(p, j)].given);
    if (!any && p->step->nst) {
        *g = step_array(k, p);
        make_room(k, g, k->realm->type(k, p->y), false);
        k->realm->zero(k, g);
    }
    return any || p->step->nst;
}

/* What gradients are added to is there from the beginning. */
static void take_sums(Lay *k)
{
    for (int i = 0; i < k->step->nin; i++) {
        if (!k->d->dx[i].given || !k->d->dx[i].data || !k->d->add[i])
            continue;
        View t = input_view(k->step, i, &k->d->dx[i]);
        k->grad[k->g->in[i].node] = input_array(k, i, &t);
    }
}

/* Does the way back of the part that made the product's values make them again,
 * once it has their gradient? All that reads them waits for it then. */
static bool comes_again(const Lay *k, int i, const Joint *j)
{
    const LayerParts *parts = k->p->parts;
    Ref x = parts->part[i].in[0];
    bool wanted = false;

    for (int at = 0; at < (j ? j->n : 1); at++)
        wanted |= k->wanted[parts->part[j ? j->part[at] : i].in[1]];
    if (parts->part[i].step || k->tile[i] || !wanted || !k->wanted[x]
        || !k->anew[x] || k->value[x].data
        || k->readers[x] != (j ? j->n : 1))
        return false;
    return k->realm->remakes(k, part_of(k, x));
}

/* Behind part i's way back: what it was the first to read, and what it has
 * saved. */
static void drop_kept(Lay *k, int i)
{
    const LayerPart *p = &k->p->parts->part[i];

    if (!k->spends || k->tile[i])
        return;
    for (int j = 0; j < p->nin; j++)
        if (k->first[p->in[j]] == i && p->in[j] != k->g->out[0].node)
            drop_array(k, &k->value[p->in[j]]);
    for (int at = 0; at < MOST_PIECES; at++)
        if (k->stored[i][at].bytes)
            k->realm->drop(k, k->stored[i][at].at);
    if (k->carried[i].bytes)
        k->realm->drop(k, k->carried[i].at);
}

static void back_owed(Lay *k, int i, const Joint *j)
{
    const LayerPart *p = &k->p->parts->part[i];

    if (j)
        back_weights(k, j);
    else if (k->grad[p->y].data)
        back_weight(k, p);
    drop_array(k, &k->grad[p->y]);
}

/* A product, or joint: its values' gradient, and the weights', if these need
 * not wait. */
static void back_factors(Lay *k, int i, const Joint *j)
{
    const LayerPart *p = &k->p->parts->part[i];
    bool waits = comes_again(k, i, j);

    if (!waits)
        make_anew(k, i);
    if (j)
        back_joint(k, j);
    else if (k->grad[p->y].data)
        back_product(k, p);
    if (waits && k->grad[p->in[0]].data) {
        k->owed[p->in[0]] = i + 1;
        return;
    }
    if (waits)
        make_anew(k, i);
    back_owed(k, i, j);
    drop_anew(k, i);
}

static void back_part(Lay *k, int i)
{
    const LayerPart *p = &k->p->parts->part[i];
    int owed = k->owed[p->y];

    make_anew(k, i);
    if (k->tile[i] > 0)
        make_anew(k, k->tile[i] - 1);
    if (k->tile[i] > 0 && k->grad[p->y].data)
        back_tiles(k, i);
    else if (k->p->variant[i] && has_adjoint(k, p))
        back_step(k, i, owed);
    drop_array(k, &k->grad[p->y]);
    drop_anew(k, i);
    if (!owed)
        return;
    back_owed(k, owed - 1, joint_of(k, owed - 1));
    drop_array(k, &k->value[p->y]);
    k->owed[p->y] = 0;
}

static void run_both_ways(Lay *k)
{
    Ref y = k->g->out[0].node;

    begin(k);
    take_sums(k);
    run_parts(k);
    if (k->d->dy[0].given) {
        View dy = result_view(k->v->step, 0, &k->d->dy[0]);
        if (k->dry && !dy.data)
            dy.data = k;                /* somewhere: nobody reads it */
        k->grad[y] = y_array(k, &dy);
    }
    k->back = true;
    for (int i = k->p->parts->n - 1; i >= 0; i--) {
        const LayerPart *p = &k->p->parts->part[i];
        const Joint *j = joint_of(k, i);
        ctx_poll(k->c);
        if (j && j->at != i)
            continue;
        before(k, i);
        if (!j && !k->wanted[p->y])
            drop_anew(k, i);
        else if (k->tile[i] < 0)
            ;                           /* with what reads it */
        else if (k->p->sum[i] > 0)
            back_sum_part(k, i);
        else if (p->step)
            back_part(k, i);
        else
            back_factors(k, i, j);
        drop_kept(k, i);
    }
    k->back = false;
    give_gradients(k);
}

static void run_all(Lay *k)
{
    if (k->d)
        run_both_ways(k);
    else
        run_forward(k);
}

static const LayerPass layer_pass = { lay_whole, run_all };

static Lay *lay_new(Ctx *c, Variant *v, const Args *a, const Bound *b,
                    const Adjoint *d)
{
    Lay *k = lay_whole(c, v, a, b, d);

    find_pieces(k, &layer_pass);
    return k;
}

/* As a call that keeps what the way back reads. */
static Lay *lay_saving(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    Lay *k = lay_whole(c, v, a, b, NULL);

    k->keep = true;
    find_pieces(k, &layer_pass);
    return k;
}

void layer_run(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    layer_there(lay_new(c, v, a, b, NULL), run_all);
}

void find_left(Lay *k)
{
    const Stored *s = &k->d->stored;
    Note now = { 0 };

    if (!s->bytes || !k->b->call.on_device)
        return;
    now = note_saved(k->c, k->v, k->args, k->b, s->at);
    if (!now.plan || now.plan != s->note.plan || now.call != s->note.call
        || saved_bytes(k->c, k->v, k->args, k->b) != s->bytes)
        return;
    k->left = true;
    k->spends = k->args->spend;
    k->kept_at = s->at;
}

static void check_sums(const Lay *k)
{
    bool staged = !k->b->call.on_device
               && k->args->backend == backend_named("cuda");

    for (int i = 0; i < k->step->nin; i++) {
        const Input *in = &k->step->in[i];
        const Given *t = &k->d->dx[i];
        if (!k->d->add[i] || !t->given)
            continue;
        if (in->timed || t->dtype != F32 || staged)
            fail_help(k->c, 0, staged ? "tensors on the GPU"
                      : "float32 tensors, for weights", "backward: %s: "
                      "gradients are added up %s", in->name, in->timed
                      ? "of weights, and this is an input" : staged
                      ? "where the weights are, on the CPU here, but the call "
                        "runs on the GPU" : ctx_format(k->c, "in float32, and "
                      "this tensor is %s", dtype_name(t->dtype)));
    }
}

void layer_backward(Ctx *c, Variant *v, const Args *a, const Bound *b,
                    const Adjoint *d)
{
    Lay *k = lay_new(c, v, a, b, d);

    check_sums(k);
    check_inplace(k);
    find_left(k);
    layer_there(k, run_all);
}

int64_t layer_saved_bytes(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    Args forward = *a;

    forward.mode = M_FORWARD;
    return !b->call.on_device ? 0
         : gpu_layer_room(lay_saving(c, v, &forward, b), run_all).kept;
}

int64_t layer_run_saved(Ctx *c, Variant *v, const Args *a, const Bound *b,
                        Stored room)
{
    Lay *k = lay_saving(c, v, a, b);
    int64_t bytes = gpu_layer_room(k, run_all).kept;

    if (bytes > room.bytes)
        return bytes;
    k->kept_at = room.at;
    layer_there(k, run_all);
    return bytes;
}

static uint64_t mark_program(const Variant *v, const Args *a, const Bound *b)
{
    Lay k = { .g = v->step->layer->traced, .step = v->step, .b = b,
              .realm = b->call.on_device ? &realm_gpu : &realm_host,
              .p = find_program(v, a, b) };
    const int64_t more[] = { a->memory, k.p ? (int64_t)joint_choice(&k) : 0 };

    return k.p ? hash_bytes(k.p->mark, more, sizeof more) : 0;
}

uint64_t layer_mark(const Variant *v, const Args *a, const Bound *b)
{
    const int64_t x[] = { a->chunk, a->serial, v->turned, v->step->len };
    uint64_t h = hash_bytes(2, x, sizeof x), mark = mark_program(v, a, b);

    h = hash_bytes(h, &mark, sizeof mark);
    h = hash_bytes(h, v->step->name, strlen(v->step->name));
    return hash_bytes(h, b->call.size, sizeof b->call.size);
}

static void prepare_call(Ctx *c, Variant *v, const Args *a, const Bound *b,
                         const Adjoint *d)
{
    Lay *k = lay_new(c, v, a, b, d);

    k->dry = true;
    if (b->call.on_device)
        gpu_layer(k, run_all);
    else
        run_all(k);
}

/* Both halves of one that saves; all that they take is wished for together.
 * False: nothing would be saved. */
static bool prepare_halves(Ctx *c, Variant *v, const Args *a, const Bound *b,
                           const Adjoint *d)
{
    if (!b->call.on_device)
        return false;
    Lay *k = lay_new(c, v, a, b, d);

    k->dry = k->left = k->spends = true;
    gpu_layer_wish(k, run_all);
    if (!layer_saved_bytes(c, v, a, b))
        return false;
    gpu_layer(k, run_all);
    return true;
}

static bool has_states(const Graph *step, const Args *a)
{
    bool any = false;

    for (int i = 0; i < step->nst; i++)
        any = any || a->state[i].given;
    return any;
}

/* Calls go back from what they have saved or as a whole, to states' gradients
 * or, as training mostly does, to none; and forward alone. Where all save, as
 * the one that is given does, that alone. */
void layer_prepare(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    bool back = a->mode == M_BACKWARD, states = has_states(v->step, a);

    if (back && !a->spend) {
        Args *forward = ctx_alloc(c, sizeof *forward);
        *forward = *a;
        forward->mode = M_FORWARD;
        layer_prepare(c, v, forward, b);
    }
    if (!back)
        prepare_call(c, v, a, b, NULL);
    for (int all = 0; back && all < 2; all++) {
        Adjoint *d = all_gradients(c, v->step, a, b);
        if (b->call.on_device ? a->spend && all != states : !all)
            continue;
        if (!all) {
            memset(d->ds, 0, sizeof d->ds);
            memset(d->dstate, 0, sizeof d->dstate);
        }
        if (!prepare_halves(c, v, a, b, d) || !a->spend)
            prepare_call(c, v, a, b, d);
    }
}

static int64_t workspace_of(Ctx *c, Variant *v, const Args *a, const Bound *b,
                            const Adjoint *d)
{
    Lay *k = lay_new(c, v, a, b, d);

    if (!b->call.on_device)
        return 0;
    if (!d || !d->stored.bytes
        || layer_saved_bytes(c, v, a, b) != d->stored.bytes)
        return gpu_layer_bytes(k, run_all);
    Args forward = *a;                  /* both halves in the same workspace */
    forward.mode = M_FORWARD;
    bool leaves = !a->spend || a->leaves, goes_back = !a->spend || !a->leaves;
    int64_t left = !leaves ? 0
        : gpu_layer_room(lay_saving(c, v, &forward, b), run_all).rest;
    k->left = true;
    k->spends = a->spend;
    int64_t back = goes_back ? gpu_layer_room(k, run_all).rest : 0;
    return left > back ? left : back;
}

/* Also of such a call that adds the gradients of weights. */
int64_t layer_workspace(Ctx *c, Variant *v, const Args *a, const Bound *b,
                        const Adjoint *d)
{
    int64_t bytes = workspace_of(c, v, a, b, d), more;

    if (!d || !b->call.on_device)
        return bytes;
    Adjoint *sums = ctx_alloc(c, sizeof *sums);
    *sums = *d;
    for (int i = 0; i < v->step->nin; i++)
        if (d->dx[i].given && !v->step->in[i].timed) {
            sums->add[i] = true;
            sums->dx[i].dtype = F32;
        }
    more = workspace_of(c, v, a, b, sums);
    return more > bytes ? more : bytes;
}

static const PlanEntry *any_plan(const LayerProgram *p)
{
    const Backend *gpu = backend_named("cuda");

    for (int i = 0; i < p->parts->n; i++)
        for (const PlanEntry *e = p->variant[i] ? p->variant[i]->plans : NULL;
             e; e = e->next)
            if (e->backend == gpu && e->program)
                return e;
    return NULL;
}

const PlanEntry *layer_plan(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    const LayerProgram *p;

    if (!b->call.on_device)
        return NULL;
    p = layer_program(c, v, a, b);
    if (!any_plan(p))
        layer_prepare(c, v, a, b);
    return any_plan(p);
}

const LayerRuns layer_runs_by_parts = {
    .prepare = layer_prepare, .release = layer_release, .plan = layer_plan,
    .workspace = layer_workspace, .forward = layer_run,
    .backward = layer_backward, .saved_bytes = layer_saved_bytes,
    .run_saved = layer_run_saved, .mark = layer_mark,
};
