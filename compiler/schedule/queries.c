/* queries.c -- the tables that the passes share, and what they ask of a graph
 * and of a schedule.
 */
#include "schedule.h"
#include "../machine.h"

#include <string.h>

#define FORM(kind, ...) { FORM_##kind, __VA_ARGS__ },
static const KForm forms[] = {
#include "forms.def"
};
#undef FORM

double machine_flops(int arch)
{
    const Machine *m = machine_of_arch(arch);
    return m->matrix / (m->units * m->clock);
}

/* What of a number of that type is not its exponent, the first bit too. */
static int bits_of(DType d)
{
    return d == BF16 ? 8 : d == F16 ? 11 : 24;
}

const Target *target_of(Ctx *c, int arch, int rows, DType tile, DType memory,
                        bool whole)
{
    enum { ALL = sizeof forms / sizeof *forms };
    Target *t = ctx_alloc(c, sizeof *t);

    *t = (Target){ .arch = arch, .warp = 32, .group = 4, .regs = 65536,
                   .reg_step = 8, .most_regs = 248, .maps = KERNEL_MAPS,
                   .shared = (int)machine_of_arch(arch)->shared,
                   .flops = machine_flops(arch) };
    t->name = ctx_format(c, "sm_%d%s", arch, arch < 90 ? "" : "a");
    for (const KForm *f = forms + ALL; f-- > forms;)
        if (f->from <= arch && (!f->to || arch <= f->to) && f->rows <= rows
            && (!f->element || f->element == (int)dtype_size(tile))
            && (whole || !f->piece)
            && (!f->bits || f->bits >= bits_of(memory)))
            t->form[f->kind] = f;
    return t;
}

Schedule *schedule_new(Ctx *c, const KernelWish *w, const Target *t)
{
    Schedule *s = ctx_alloc(c, sizeof *s);
    *s = (Schedule){ .c = c, .p = w->p, .g = w->p->g, .target = t,
                     .tile = w->tile, .memory = w->memory,
                     .wants_out = w->wants_out, .sum_out = w->sum_out,
                     .stores = w->stores,
                     .spare = w->spare };
    schedule_of_kernel(s, w->kernel);
    return s;
}

void schedule_of_kernel(Schedule *s, int kernel)
{
    uint8_t *computes = ctx_alloc(s->c, s->g->len);
    s->k = &s->p->kernel[kernel];
    s->kind = s->k->kind;
    for (int i = 0; i < s->k->nnodes; i++)
        computes[s->k->node[i]] = 1;
    s->computes = computes;
}

const char *const layout_name[NLAYOUTS] = { "tile", "fragment", "packed",
    "wide", "inverse", "sums", "global", "vector", "scalar", "regtile", "line",
    "flat", "partial" };
const char *const kop_name[NKOPS] = { "begin", "load", "vector", "clear",
    "product", "settle", "map", "inverse", "scan", "across", "decayed", "sync",
    "store", "carry", "end", "partial", "solve" };
const char *const krole_name[NKROLES] = { "load", "store", "vector", "vector2",
                                          "matrix", "ahead" };

int32_t block_extent(const Schedule *s, int axis)
{
    return axis < AX_DIM ? s->g->chunk
         : s->extent[axis] / (axis == s->slice_axis ? s->slices : 1);
}

int32_t shared_room(const Schedule *s)
{
    enum { OWN = 1024 };                /* the machine's, of a block */
    return (s->target->shared + OWN) / s->resident - OWN;
}

static bool is_shifted_here(const Schedule *s, Ref r)
{
    return op_is(s->g->n[r].op, SHIFTS) && schedule_computes(s, r);
}

int tokens_delayed(const Schedule *s, Ref r)
{
    int n = 0;
    for (; is_shifted_here(s, r); n++)
        r = shown_node(s->g, s->g->n[r].a[0]);
    return n;
}

Ref loaded_node(const Schedule *s, Ref r)
{
    while (is_shifted_here(s, r))
        r = shown_node(s->g, s->g->n[r].a[0]);
    return r;
}

Ref first_row(const Graph *g, Ref r, int token)
{
    for (int i = 0; i < token; i++)
        r = shown_node(g, g->n[r].a[0]);
    return op_is(g->n[r].op, SHIFTS) && !g->n[r].flags ? g->n[r].a[1] : 0;
}

int schedule_value(const Schedule *s, Ref node, Layout layout)
{
    for (int i = 0; i < s->nvalues; i++)
        if (s->value[i].node == node && s->value[i].layout == layout)
            return i;
    return NOTHING;
}

int value_writer(const Schedule *s, int value)
{
    for (int i = 0; i < s->ninsts; i++)
        for (int j = 0; j < s->inst[i].nout; j++)
            if (s->inst[i].out[j] == value)
                return i;
    return NOTHING;
}

/* The list, with room for one more than n. */
static void *with_room(Ctx *c, void *list, int n, int *cap, size_t each)
{
    size_t old = (size_t)*cap * each;
    if (n < *cap)
        return list;
    *cap = *cap ? 2 * *cap : 32;
    return ctx_grow(c, list, old, (size_t)*cap * each);
}

KValue *value_add(Schedule *s, KValue v)
{
    s->value = with_room(s->c, s->value, s->nvalues, &s->cap_values,
                         sizeof *s->value);
    v.rest = NOTHING;
    s->value[s->nvalues] = v;
    return &s->value[s->nvalues++];
}

KInst *inst_insert(Schedule *s, int at, KInst k)
{
    s->inst = with_room(s->c, s->inst, s->ninsts, &s->cap_insts,
                        sizeof *s->inst);
    memmove(s->inst + at + 1, s->inst + at,
            (size_t)(s->ninsts++ - at) * sizeof *s->inst);
    s->inst[at] = k;
    return &s->inst[at];
}

void inst_remove(Schedule *s, int at)
{
    memmove(s->inst + at, s->inst + at + 1,
            (size_t)(--s->ninsts - at) * sizeof *s->inst);
}

void value_remove(Schedule *s, int value)
{
    for (int i = 0; i < s->ninsts; i++) {
        KInst *k = &s->inst[i];
        for (int j = 0; j < k->nin; j++)
            k->in[j] -= k->in[j] > value;
        for (int j = 0; j < k->nout; j++)
            k->out[j] -= k->out[j] > value;
    }
    for (int v = 0; v < s->nvalues; v++)
        s->value[v].alias -= s->value[v].alias > value;
    memmove(s->value + value, s->value + value + 1,
            (size_t)(--s->nvalues - value) * sizeof *s->value);
}

bool has_node(const KInst *k, Ref r)
{
    for (int i = 0; i < k->nnodes; i++)
        if (k->node[i] == r)
            return true;
    return false;
}

bool tells_empty(const Schedule *s, int role, int buffer)
{
    bool tells = false;
    for (int i = 0; i < s->ninsts; i++)
        tells |= s->inst[i].role == role
              && s->inst[i].post_empty >> buffer & 1;
    return tells;
}

bool walks_behind(const Schedule *s)
{
    return s->row_axis && s->ahead && s->kind == K_FORWARD;
}

bool walks_alone(const Schedule *s)
{
    return s->row_axis && !s->ahead && s->groups == 1 && plan_is_joint(s->p);
}

bool walks_alone_forward(const Schedule *s)
{
    return walks_alone(s) && s->kind == K_FORWARD;
}

bool found_among_sums(const Schedule *s, const KInst *k, Ref r)
{
    int v = schedule_value(s, r, LAY_SUMS);
    return !has_node(k, r) && v != NOTHING && has_value(k->in, k->nin, v);
}

bool leaves_as_found(const Schedule *s, const KInst *k, int i)
{
    const KValue *v = &s->value[k->out[i]];
    return (v->layout == LAY_TILE || v->layout == LAY_PACKED
            || v->layout == LAY_WIDE)
        && !has_node(k, v->node)
        && (v->layout != LAY_TILE || !found_among_sums(s, k, v->node));
}

int results_found(const Schedule *s, const KInst *k)
{
    int n = 0;
    while (n < k->nout && leaves_as_found(s, k, n))
        n++;
    return n;
}

bool has_value(const int16_t *list, int n, int v)
{
    for (int i = 0; i < n; i++)
        if (list[i] == v)
            return true;
    return false;
}

static void use(Schedule *s, int16_t *list, uint8_t *n, int v)
{
    if (has_value(list, *n, v))
        return;
    if (*n == MOST_USES)
        s->why = "more values than an instruction may use";
    else
        list[(*n)++] = (int16_t)v;
}

void inst_reads(Schedule *s, KInst *k, int v)
{
    use(s, k->in, &k->nin, v);
}

void inst_writes(Schedule *s, KInst *k, int v)
{
    use(s, k->out, &k->nout, v);
}

int32_t value_bytes(const KValue *v)
{
    int32_t rows = rows_lying(v);
    switch ((Layout)v->layout) {
    case LAY_TILE:
    case LAY_INVERSE: return tile_pieces(v) * rows * 128;
    case LAY_WIDE:    return rows * WIDE_PITCH * 4;
    case LAY_SUMS:    return sums_pitch(v) * v->nrow;
    case LAY_VECTOR:  return 4 * vector_size(v) * v->parts;
    case LAY_SCALAR:  return 4 * v->parts;
    default:          return 0;
    }
}

int program_registers(const Schedule *s, const KInst *k)
{
    int n = 0;
    for (int j = 0; j < k->nin + k->nout; j++) {
        const KValue *v = &s->value[j < k->nin ? k->in[j]
                                               : k->out[j - k->nin]];
        int each = (k->nrow + TILE_ROWS - 1) / TILE_ROWS
                 * share_of(s, k->role, k->ncol) / 2
                 / (k->parts ? k->parts : 1);
        bool other = schedule_value(s, v->node, LAY_FRAGMENT) == NOTHING;
        n += v->layout == LAY_TILE && other ? j < k->nin ? each / 2 : each : 0;
    }
    return n;
}
