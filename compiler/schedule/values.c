/* values.c -- values and instructions, as select.c makes them. */
#include "select.h"

static int value_new(Select *x, Ref node, Layout layout)
{
    Schedule *s = x->s;
    bool wide = layout == LAY_TILE && is_wide_input(x, node);
    KValue *v = value_add(s, (KValue){
        .node = node, .layout = (uint8_t)layout, .parts = 1,
        .element = wide ? sizeof(float) : tile_element(s), .buffer = NOTHING,
        .alias = NOTHING, .nrow = 1, .ncol = 1 });
    if (x->kind[node] == PAIRED) {
        v->row = AX_I;
        v->col = (uint8_t)highest(x->g->n[node].axes);
        v->nrow = extent(x, v->row);
        v->ncol = extent(x, v->col);
    } else if (layout < LAY_VECTOR && count_axes(x->g->n[node].axes) == 2) {
        bool transposes = is_transposed(x, node) && layout != LAY_FRAGMENT
                  && layout != LAY_PACKED;
        v->row = transposes ? x->col[node] : x->row[node];
        v->col = transposes ? x->row[node] : x->col[node];
        v->nrow = extent(x, v->row);
        v->ncol = extent(x, v->col);
    } else if (layout == LAY_VECTOR) {
        AxisSet a = plain_axes(x->g, node);
        v->row = (uint8_t)lowest(a);
        v->nrow = extent(x, v->row);
    }
    return s->nvalues - 1;
}

int value_of(Select *x, Ref node, Layout layout)
{
    int v = schedule_value(x->s, node, layout);
    return v == NOTHING ? value_new(x, node, layout) : v;
}

KInst *inst_new(Select *x, KOp op, KRole role)
{
    return inst_insert(x->s, x->s->ninsts, (KInst){
        .op = (uint8_t)op, .role = (uint8_t)role, .index = NOTHING });
}

void set_space(const Select *x, KInst *k, Ref r)
{
    k->row = x->row[r];
    k->col = x->col[r];
    k->nrow = extent(x, k->row);
    k->ncol = extent(x, k->col);
}

void reads(Select *x, KInst *k, int v)
{
    inst_reads(x->s, k, v);
}

void writes(Select *x, KInst *k, int v)
{
    inst_writes(x->s, k, v);
}

void program_add(Select *x, KInst *k, Ref r)
{
    if (!k->node)
        k->node = ctx_alloc(x->c, x->g->len * sizeof *k->node);
    k->node[k->nnodes++] = r;
}

void select_load(Select *x, Ref r)
{
    if (is_read_directly(x, r))
        return;
    int v = value_of(x, r, is_solved(x, r) ? LAY_INVERSE : LAY_TILE);
    for (int i = 0; i < x->s->ninsts; i++)
        if (x->s->inst[i].op == K_LOAD && x->s->inst[i].out[0] == v)
            return;
    writes(x, inst_new(x, K_LOAD, KR_LOAD), v);
    if (x->row[r] == AX_I || (has_row_axis(x, r) && x->col[r] == AX_I)) {
        KInst *k = inst_new(x, K_CLEAR, KR_MATRIX);
        reads(x, k, v);
        for (int i = 0; i < tokens_delayed(x->s, r); i++) {
            Ref first = first_row(x->g, r, i);
            if (first && x->g->n[first].axes)
                reads(x, k, value_of(x, first, found_layout(x, first)));
        }
    }
    if (has_row_axis(x, r) && !is_wide(x->s, &x->s->value[v])) {
        KInst *k = inst_new(x, K_MAP, KR_MATRIX);
        set_space(x, k, r);
        reads(x, k, v);
        writes(x, k, value_of(x, r, LAY_PACKED));
    }
}

void load_operands(Select *x, Ref r)
{
    for (int i = 0; i < 4; i++) {
        Ref a = shown_node(x->g, x->g->n[r].a[i]);
        if (x->kind[a] == LOADED)
            select_load(x, a);
        else if (x->again[a])
            load_operands(x, a);
    }
}
