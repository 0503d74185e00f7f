/* emit_order.c -- the serial acts in order, as text.
 *
 * wgmma runs behind the program: a product is issued, and waited for when
 * nothing else is left to do. Until then neither its accumulator nor its
 * register operand may be touched. Waits retire products oldest first. Each
 * choice is the first act that can go: reads, products and arithmetic that a
 * product waits for, then the rest, then the packing of outputs.
 */
#include "serial.h"

#include <stdio.h>
#include <string.h>

static Array *array_of(Serial *s, int value)
{
    return &s->array[s->value[value].array];
}

static const char *name_of(Serial *s, int value)
{
    return array_of(s, value)->name;
}

/* ---- what can go ---- */

static bool in_flight(const Serial *s, int value)
{
    for (int i = 0; i < s->nflight; i++) {
        const Act *a = &s->act[s->flight[i]];
        if (a->to == value || a->from[0] == value)
            return true;
    }
    return false;
}

static bool reads(const Act *a, int value)
{
    for (int i = 0; i < MAX_FROM; i++)
        if (a->from[i] == value)
            return true;
    return a->base == value;
}

/* The array's old value is no longer needed by anyone but `a`. */
static bool may_overwrite(Serial *s, const Act *a)
{
    int old = array_of(s, a->to)->holds;
    if (old < 0 || old == a->to)
        return true;
    for (int i = 0; i < s->nacts; i++)
        if (&s->act[i] != a && !s->act[i].issued && reads(&s->act[i], old))
            return false;
    return a->base == old || !in_flight(s, old);
}

static bool takes_registers(const Serial *s, const Act *a)
{
    return s->e->team && (a->kind == ACT_READ || a->kind == ACT_SCALE);
}

static bool can_go(Serial *s, const Act *a);

/* A product of a state's packed copy is under way, or can be. */
static bool copy_in_use(Serial *s)
{
    for (int i = 0; i < s->nacts; i++) {
        const Act *a = &s->act[i];
        const Array *from = a->kind == ACT_PRODUCT ? array_of(s, a->from[0])
                          : NULL;
        if (from && from->packed && from->carried
            && (a->issued ? in_flight(s, a->to) : can_go(s, a)))
            return true;
    }
    return false;
}

/* Where registers are few, what is read waits until a state's packed copy has
 * done its work. */
static bool can_go(Serial *s, const Act *a)
{
    if (takes_registers(s, a) && copy_in_use(s))
        return false;
    for (int i = 0; i < MAX_FROM; i++)
        if (a->from[i] >= 0 && !s->value[a->from[i]].ready)
            return false;
    if (a->base >= 0 && !s->value[a->base].ready && !in_flight(s, a->base))
        return false;
    return may_overwrite(s, a);
}

/* Marks what a product that is not yet issued needs. */
static void mark_urgent(Serial *s, int value)
{
    for (int i = 0; i < s->nacts; i++) {
        Act *a = &s->act[i];
        if (a->to != value || a->issued || a->urgent)
            continue;
        a->urgent = true;
        for (int k = 0; k < MAX_FROM; k++)
            if (a->from[k] >= 0)
                mark_urgent(s, a->from[k]);
        if (a->base >= 0)
            mark_urgent(s, a->base);
    }
}

static void find_urgent(Serial *s)
{
    for (int i = 0; i < s->nacts; i++)
        if (s->act[i].kind == ACT_PRODUCT)
            mark_urgent(s, s->act[i].to);
}

static bool products_left(const Serial *s)
{
    for (int i = 0; i < s->nacts; i++)
        if (s->act[i].kind == ACT_PRODUCT && !s->act[i].issued)
            return true;
    return false;
}

enum { READS, PRODUCTS, SCALES, ARITHMETIC, THE_REST, OUTPUTS };

static int rank_of(const Act *a)
{
    if (a->last)
        return OUTPUTS;
    if (!a->urgent)
        return THE_REST;
    return a->kind == ACT_READ ? READS : a->kind == ACT_PRODUCT ? PRODUCTS
         : a->kind == ACT_SCALE ? SCALES : ARITHMETIC;
}

/* What no product waits for is left until all are issued: it then runs beside
 * them, and holds no registers before. */
static int choose(Serial *s)
{
    int best = -1;
    bool wait = products_left(s) && s->nflight;
    for (int i = 0; i < s->nacts; i++) {
        const Act *a = &s->act[i];
        if (!a->issued && can_go(s, a) && !(wait && rank_of(a) > ARITHMETIC)
            && (best < 0 || rank_of(a) < rank_of(&s->act[best])))
            best = i;
    }
    return best;
}

/* ---- text of an act ---- */

static void declare(Serial *s, int value)
{
    Array *a = array_of(s, value);
    if (a->carried || a->holds >= 0)
        return;
    buf_printf(s->b, "%s %s[%d];\n", a->packed ? "u32" : "float", a->name,
               a->packed ? a->cols / 4 : a->cols / 2);
}

static void declare_one(Serial *s, int pub)
{
    if (pub < 0 || s->ones >> pub & 1)
        return;
    s->ones |= (uint64_t)1 << pub;
    buf_printf(s->b, "const float one_%s = load1(vectors + AT_%s);\n",
               s->e->pub[pub].name, s->e->pub[pub].name);
}

/* A thread's first column; found anew by each loop where registers are short.
 */
static const char *column_text(const Serial *s)
{
    return has_spilled_alone(s->e) ? "col" : "at.col";
}

static void column_vector(Serial *s, int pub)
{
    buf_printf(s->b, "const float2 col_%s = load2(vectors + AT_%s + "
               "4 * (8 * n + %s));\n", s->e->pub[pub].name,
               s->e->pub[pub].name, column_text(s));
}

static void open_columns(Serial *s, int value)
{
    buf_printf(s->b, "UNROLL for (int n = 0%s; n < %d; n++) {\n",
               has_spilled_alone(s->e) ? ", col = fresh(at.col)" : "",
               array_of(s, value)->cols / 8);
}

static void factor_text(Serial *s, const Act *a)
{
    const char *to = name_of(s, a->to);
    declare_one(s, a->one);
    open_columns(s, a->to);
    if (a->vector >= 0)
        column_vector(s, a->vector);
    for (int el = 0; el < 4; el++) {
        buf_printf(s->b, "%s[4 * n + %d] *= ", to, el);
        if (a->one >= 0)
            buf_printf(s->b, "one_%s", s->e->pub[a->one].name);
        if (a->vector >= 0)
            buf_printf(s->b, "%scol_%s.%c", a->one >= 0 ? " * " : "",
                       s->e->pub[a->vector].name, "xy"[el & 1]);
        buf_printf(s->b, ";\n");
    }
    buf_printf(s->b, "}\n");
}

static bool is_inner(const Act *a, Ref r)
{
    for (int i = 0; i < a->ninner; i++)
        if (a->inner[i] == r)
            return true;
    return false;
}

static char *operand_text(Serial *s, const Act *a, Ref r, int el)
{
    Emit *e = s->e;
    Buf t = { .ctx = e->c };
    if (e->g->n[r].op == OP_num)
        number_text(&t, e->g->n[r].num);
    else if (is_token(e, r))
        buf_printf(&t, "col_%s.%c", e->pub[publish_one(e, r, false)].name,
                   "xy"[el & 1]);
    else if (is_vector(e, r))
        buf_printf(&t, "one_%s", e->pub[publish_one(e, r, false)].name);
    else if (is_keyed(e, r))
        buf_printf(&t, "key_%d.%c", use_key(e, r), "xy"[el & 1]);
    else if (is_inner(a, r))
        buf_printf(&t, "v%u_%d", (unsigned)r, el);
    for (int i = 0; i < a->nfrom && !t.len; i++) {
        if (a->leaf[i] != r)
            continue;
        const char *name = name_of(s, a->from[i]);
        if (array_of(s, a->from[i])->packed)
            buf_printf(&t, "%s(%s[2 * n + %d])", el & 1 ? "high" : "low",
                       name, el >> 1);
        else
            buf_printf(&t, "%s[4 * n + %d]", name, el);
    }
    return t.s;
}

static void node_text(Serial *s, const Act *a, Ref r, int el)
{
    const Node *n = &s->e->g->n[r];
    const char *x[3] = { 0 };
    for (int i = 0; i < 3; i++)
        if (n->a[i])
            x[i] = operand_text(s, a, n->a[i], el);
    if (n->op != OP_cat)
        value_text(s->b, n->op, x);
    else
        buf_printf(s->b, "(at.col + %d) %% RANKS < %d ? %s : %s", el & 1,
                   (int)axis_extent(s->e->g, n->a[0], AX_R), x[0], x[1]);
}

static void key_vector(Serial *s, int key, uint32_t *seen)
{
    if (*seen >> key & 1)
        return;
    *seen |= (uint32_t)1 << key;
    buf_printf(s->b, "const float2 key_%d = load2(vectors + KEY_%d + "
               "4 * (8 * n + %s));\n", key, key, column_text(s));
}

/* The vectors that node r reads: single ones before the loop, the others in
 * it. */
static void vectors_of(Serial *s, Ref r, bool columns, uint64_t *seen,
                       uint32_t *keys)
{
    Emit *e = s->e;
    const Node *n = &e->g->n[r];
    for (int i = 0; i < 3; i++) {
        Ref x = n->a[i];
        if (x && columns && is_keyed(e, x))
            key_vector(s, use_key(e, x), keys);
        if (!x || e->g->n[x].op == OP_num || !is_vector(e, x)
            || is_token(e, x) != columns)
            continue;
        int pub = publish_one(e, x, false);
        if (!columns)
            declare_one(s, pub);
        else if (!(*seen >> pub & 1))
            column_vector(s, pub);
        *seen |= (uint64_t)1 << pub;
    }
}

static void element_text(Serial *s, const Act *a)
{
    uint64_t seen = 0;
    uint32_t keys = 0;
    for (int i = 0; i <= a->ninner; i++)
        vectors_of(s, i < a->ninner ? a->inner[i] : a->node, false, &seen,
                   &keys);
    open_columns(s, a->to);
    for (int i = 0; i <= a->ninner; i++)
        vectors_of(s, i < a->ninner ? a->inner[i] : a->node, true, &seen,
                   &keys);
    for (int i = 0; i < a->ninner; i++)
        for (int el = 0; el < 4; el++) {
            buf_printf(s->b, "const float v%u_%d = ", (unsigned)a->inner[i],
                       el);
            node_text(s, a, a->inner[i], el);
            buf_printf(s->b, ";\n");
        }
    for (int el = 0; el < 4; el++) {
        buf_printf(s->b, "%s[4 * n + %d] = ", name_of(s, a->to), el);
        node_text(s, a, a->node, el);
        buf_printf(s->b, ";\n");
    }
    buf_printf(s->b, "}\n");
}

static void product_text(Serial *s, const Act *a)
{
    bool score = a->score >= 0;
    buf_printf(s->b, "wgmma_fence();\nmultiply<%d, %d>(%s, %s, %s_k(stage + "
               "%s_%u), %d);\nwgmma_commit();\n",
               array_of(s, a->from[0])->cols / 16, a->across,
               name_of(s, a->to), name_of(s, a->from[0]),
               a->across ? "across" : "along", score ? "SCORE" : "TILE",
               score ? (unsigned)a->score : (unsigned)a->b, a->base >= 0);
}

static void read_text(Serial *s, const Act *a)
{
    Emit *e = s->e;
    const char *to = name_of(s, a->to);
    if (is_float(e, a->node))           /* the copy */
        buf_printf(s->b, "read_transposed(%s, stage + TILE_%u + group * %d, "
                   "at);\n", to, (unsigned)a->node, TILE_BYTES);
    else
        buf_printf(s->b, "read_transposed(%s, %s + group * %d, at%s);\n",
                   to, tile_place(e, a->node), tile_bytes_of(e, a->node),
                   tile_rows(e, a->node));
}

static void act_text(Serial *s, const Act *a)
{
    const char *to = name_of(s, a->to);
    const char *from = a->from[0] >= 0 ? name_of(s, a->from[0]) : "";
    declare(s, a->to);
    switch (a->kind) {
    case ACT_READ:
        read_text(s, a);
        break;
    case ACT_SCALE:
        buf_printf(s->b, "scale_columns(%s, %s, vectors + AT_%s, at);\n",
                   to, from, s->e->pub[a->vector].name);
        break;
    case ACT_PACK:
        buf_printf(s->b, "pack(%s, %s);\nkeep(%s);\n", to, from, to);
        break;
    case ACT_COPY:
        buf_printf(s->b, "UNROLL for (int n = 0; n < %d; n++)\n%s[n] = "
                   "%s[n];\n", array_of(s, a->to)->cols / 2, to, from);
        break;
    case ACT_PRODUCT:
        product_text(s, a);
        break;
    case ACT_FACTOR:
        factor_text(s, a);
        break;
    case ACT_ELEMENT:
        element_text(s, a);
        break;
    }
}

/* ---- the order ---- */

static void issue(Serial *s, int at)
{
    Act *a = &s->act[at];
    act_text(s, a);
    a->issued = true;
    array_of(s, a->to)->holds = a->to;
    if (a->kind == ACT_PRODUCT)
        s->flight[s->nflight++] = at;
    else
        s->value[a->to].ready = true;
}

/* How many of the oldest products to wait for together: registers that a
 * later product still adds to may not be touched before that one is done. */
static int oldest(Serial *s)
{
    int n = 1;
    for (int i = 0; i < n; i++)
        for (int k = i + 1; k < s->nflight; k++)
            if (s->value[s->act[s->flight[i]].to].array
                == s->value[s->act[s->flight[k]].to].array && k >= n)
                n = k + 1;
    return n;
}

static void retire(Serial *s)
{
    int n = oldest(s);
    s->nflight -= n;
    buf_printf(s->b, "wgmma_wait<%d>();\n", s->nflight);
    for (int i = 0; i < n; i++) {
        Act *a = &s->act[s->flight[i]];
        s->value[a->to].ready = true;
        if (array_of(s, a->to)->holds == a->to)
            buf_printf(s->b, "keep(%s);\n", name_of(s, a->to));
        buf_printf(s->b, "keep(%s);\n", name_of(s, a->from[0]));
    }
    memmove(s->flight, s->flight + n,
            (size_t)s->nflight * sizeof *s->flight);
}

static void store_previous(Serial *s)
{
    buf_printf(s->b, "if (!AT_ONCE && c > first)\n"
               "store_outputs(c - first - 1);\n");
}

void serial_order(Serial *s)
{
    int left = s->nacts;
    bool stored = false, released = false;
    find_urgent(s);
    while (left || s->nflight) {
        int at = choose(s);
        if (!stored && !s->scan && !products_left(s)) {
            store_previous(s);
            stored = true;
        }
        bool packing = at >= 0 && s->act[at].last;
        if (packing && !s->nflight && !released) {
            leave_stage(s->b);
            released = true;
        }
        if (at >= 0 && !(packing && s->nflight)) {
            issue(s, at);
            left--;
        } else {
            if (!s->nflight)
                no_room(s->e, "no order for the steps of %s",
                        s->e->out->name);
            retire(s);
        }
    }
    if (!released)
        leave_stage(s->b);
}
