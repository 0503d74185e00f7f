/* spoiled.h -- ways to spoil a schedule, each with what schedule_check is to
 * say of it; by the kernels that have what is spoiled.
 */
#ifndef FLIN_TESTS_SPOILED_H
#define FLIN_TESTS_SPOILED_H
#include "../../compiler/schedule/schedule.h"

#include <string.h>

static const Target *hopper(Ctx *c)
{
    return target_of(c, 90, 64, BF16, BF16, true);
}

/* One whose products take no factors from registers. */
static const Target *unpacked_target(Ctx *c)
{
    Target *t = ctx_alloc(c, sizeof *t);
    KForm *product = ctx_alloc(c, sizeof *product);
    *t = *hopper(c);
    *product = *t->form[FORM_PRODUCT];
    product->packed = false;
    t->form[FORM_PRODUCT] = product;
    return t;
}

static KInst *find(Schedule *s, KOp op, int which)
{
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].op == op && !which--)
            return &s->inst[i];
    return NULL;
}

static void drop(Schedule *s, const KInst *k)
{
    size_t at = (size_t)(k - s->inst);
    memmove(s->inst + at, s->inst + at + 1,
            ((size_t)--s->ninsts - at) * sizeof *k);
}

static void swap(KInst *a, KInst *b)
{
    KInst x = *a;
    *a = *b;
    *b = x;
}

static void no_meeting(Schedule *s) { drop(s, find(s, K_SYNC, 0)); }
static void no_settling(Schedule *s) { drop(s, find(s, K_SETTLE, 0)); }
static void no_load(Schedule *s) { drop(s, find(s, K_LOAD, 1)); }
static void unasked(Schedule *s) { find(s, K_CLEAR, 0)->wait_full = 0; }
static void not_handed_on(Schedule *s) { find(s, K_LOAD, 0)->post_full = 0; }
static void never_emptied(Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++)
        s->inst[i].post_empty &= ~1u;
}
static void read_by_nobody(Schedule *s)
{
    s->buffer[s->nbuffers] = s->buffer[0];
    s->buffer[s->nbuffers++].readers = 0;
}
static void overlapping(Schedule *s) { s->buffer[1].at = s->buffer[0].at; }
static void skewed(Schedule *s)
{
    s->buffer[s->value[find(s, K_LOAD, 0)->out[0]].buffer].at += 512;
}
static void too_large(Schedule *s) { s->shared = s->target->shared + 8; }
static void too_deep(Schedule *s) { s->buffer[0].depth = 40; }
static void too_few_registers(Schedule *s) { s->regs[1] = 88; }
static void all_in_parts(Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].op == K_MAP)
            s->inst[i].parts = (uint8_t)(share_of(s, KR_MATRIX,
                                                  s->inst[i].ncol)
                                         / PART_COLS);
}
static void out_of_use_order(Schedule *s)
{
    swap(find(s, K_STORE, 0), find(s, K_STORE, 1));
}
static void lent(Schedule *s)
{
    s->buffer[s->value[find(s, K_LOAD, 0)->out[0]].buffer].writer = KR_MATRIX;
}
static void foreign(Schedule *s) { find(s, K_MAP, 0)->role = KR_VECTOR; }
static void sliced(Schedule *s)
{
    s->slice_axis = AX_DIM;
    s->slices = 2;
}
static void crowded(Schedule *s) { s->resident = 4; }
/* The first program that a product's sums go into, and that product. */
static void out_of_order(Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++) {
        KInst *k = &s->inst[i];
        int w = k->op == K_MAP && k->nin ? value_writer(s, k->in[0]) : NOTHING;
        if (w != NOTHING && s->inst[w].op == K_PRODUCT) {
            swap(&s->inst[w], k);
            return;
        }
    }
}
static void written_twice(Schedule *s)
{
    KInst *k = find(s, K_MAP, 1);
    k->out[k->nout++] = find(s, K_MAP, 0)->out[0];
}
/* The first load for the sums that follow from it. */
static void waits_for_ever(Schedule *s)
{
    find(s, K_LOAD, 0)->wait_full |= find(s, K_VECTOR, 1)->wait_full;
}

/* Of a plan with solves. */
static KInst *inverse(Schedule *s) { return find(s, K_INVERSE, 0); }
static void not_wide(Schedule *s)
{
    s->value[inverse(s)->in[0]].layout = LAY_TILE;
}
static void of_another(Schedule *s) { s->value[inverse(s)->out[0]].node--; }
static void not_inverted(Schedule *s) { inverse(s)->op = K_CLEAR; }
static void no_inverse(Schedule *s) { drop(s, inverse(s)); }
static void inverted_early(Schedule *s) { drop(s, inverse(s) - 1); }
/* The product that the inverse is for. */
static KInst *solving(Schedule *s)
{
    KInst *k = inverse(s);
    const int16_t from = k->out[0];
    while (k->op != K_PRODUCT || k->in[0] != from)
        k++;
    return k;
}
static void wide_factor(Schedule *s)
{
    solving(s)->in[0] = inverse(s)->in[0];
}
static void vector_factor(Schedule *s)
{
    solving(s)->in[1] = find(s, K_VECTOR, 0)->out[0];
}
static void no_tile(Schedule *s)
{
    s->value[solving(s)->in[0]].layout = LAY_SCALAR;
}
/* The first product that is added to what is there. */
static KInst *adding(Schedule *s)
{
    KInst *k = s->inst;
    while (k->op != K_PRODUCT || k->nin < 3)
        k++;
    return k;
}
static void added_to_another(Schedule *s)
{
    s->value[adding(s)->out[0]].alias = NOTHING;
}
static void read_late(Schedule *s)
{
    KInst *k = adding(s), *map = k;
    while (map->op != K_SETTLE || map->index > 0)
        map++;
    while (map->op != K_MAP)
        map++;
    map->in[map->nin++] = k->in[2];
}

typedef struct Spoiled {
    const char *name;
    void (*spoil)(Schedule *s);
    const char *found;                  /* part of what is said */
} Spoiled;

static const Spoiled solves[] = {
    { "not wide", not_wide, "no wide scores" },
    { "of another", of_another, "no wide scores" },
    { "not inverted", not_inverted, "not inverted" },
    { "wide factor", wide_factor, "not inverted" },
    { "inverted early", inverted_early, "do not meet" },
    { "no inverse", no_inverse, "nobody writes" },
    { "vector as a factor", vector_factor, "no tile" },
    { "no tile", no_tile, "no wide scores" },
    { "added to another", added_to_another, "is not added to" },
    { "read late", read_late, "it is written over" },
    { NULL, NULL, NULL },
};

/* Of a plan with decays per key. */
static void no_scan(Schedule *s) { drop(s, find(s, K_SCAN, 0)); }
static void scanned_elsewhere(Schedule *s)
{
    s->value[find(s, K_SCAN, 0)->out[0]].alias = NOTHING;
}
static void no_sums(Schedule *s)
{
    KInst *k = find(s, K_DECAYED, 0);
    k->in[2] = k->in[0];
}
static void one_term_more(Schedule *s)
{
    KInst *k = find(s, K_DECAYED, 0);
    memcpy(k->in + k->nin, k->in, 4 * sizeof *k->in);
    k->nin += 4;
}
static void scanned_early(Schedule *s)
{
    KInst *k = find(s, K_SCAN, 0);
    while (k->op != K_SYNC)
        k--;
    drop(s, k);
}
static void sums_read_early(Schedule *s)
{
    KInst *k = find(s, K_SCAN, 0);
    while (k->op != K_SYNC)
        k++;
    drop(s, k);
}
/* Scores that gradients need at once, in a buffer where no other lies. */
static void one_place(Schedule *s)
{
    int first = NOTHING;
    for (int i = 0; i < s->nvalues; i++) {
        KValue *v = &s->value[i];
        if (v->layout != LAY_TILE || v->row != AX_I || v->col != AX_J)
            continue;
        if (first != NOTHING)
            v->buffer = s->value[first].buffer;
        first = i;
    }
    KBuffer *b = &s->buffer[s->value[first].buffer];
    b->at = (s->shared + SHARED_ALIGN - 1) / SHARED_ALIGN * SHARED_ALIGN;
    s->shared = b->at + b->bytes;
}

static const Spoiled decays[] = {
    { "no scan", no_scan, "nobody writes" },
    { "scanned elsewhere", scanned_elsewhere, "lie elsewhere" },
    { "no sums", no_sums, "no sums" },
    { "one term more", one_term_more, "other terms" },
    { "scanned early", scanned_early, "do not meet" },
    { "sums read early", sums_read_early, "do not meet" },
    { "one place", one_place, "written over" },
    { NULL, NULL, NULL },
};

/* Of a walk that carries a vector, found by scans with gates. */
static KInst *gated(Schedule *s)
{
    KInst *k = find(s, K_SCAN, 0);
    while (k->nin < 3)
        k++;
    return k;
}
static void no_gates(Schedule *s) { gated(s)->in[1] = gated(s)->in[0]; }
static void begins_with_gates(Schedule *s)
{
    gated(s)->in[2] = gated(s)->in[1];
}
static void tile_begins(Schedule *s)
{
    gated(s)->in[2] = find(s, K_LOAD, 0)->out[0];
}
static void not_carried(Schedule *s) { drop(s, find(s, K_CARRY, 0)); }
static void not_ended(Schedule *s) { drop(s, find(s, K_END, 0)); }
/* The vector's, not the number's. */
static KInst *carrying(Schedule *s)
{
    KInst *k = find(s, K_CARRY, 0);
    while (k->op != K_CARRY || k->role != KR_MATRIX)
        k++;
    return k;
}
static void carried_early(Schedule *s)
{
    KInst *k = carrying(s);
    while (k->op != K_SYNC)
        k--;
    drop(s, k);
}
static void carries_another(Schedule *s)
{
    carrying(s)->in[1] = carrying(s)->in[0];
}
static void read_as_it_begins(Schedule *s)
{
    int16_t state = carrying(s)->in[1];
    KInst *k = s->inst;
    for (bool reads = false; !reads; k++)
        for (int j = 0; j < k->nin; j++)
            reads |= k->in[j] == state && k->op == K_MAP;
    while (k->op != K_SYNC)
        k--;
    drop(s, k);
}
static void vectors_in_one_place(Schedule *s)
{
    int a = s->value[carrying(s)->in[1]].buffer;
    for (int b = 0; b < s->nbuffers; b++)
        if (b != a && is_internal(&s->buffer[b]))
            s->buffer[a].at = s->buffer[b].at;
}

static const Spoiled vectors[] = {
    { "no gates", no_gates, "no gates" },
    { "begins with gates", begins_with_gates, "no gates" },
    { "begins with a tile", tile_begins, "no gates" },
    { "not carried", not_carried, "not carried on" },
    { "not ended", not_ended, "not carried on" },
    { "carries another", carries_another, "not carried on" },
    { "carried early", carried_early, "do not meet" },
    { "read as it begins", read_as_it_begins, "do not meet" },
    { "vectors in one place", vectors_in_one_place, "in one place" },
    { NULL, NULL, NULL },
};

/* Of a walk whose lanes carry a vector. */
static void no_program(Schedule *s) { drop(s, find(s, K_VECTOR, 0)); }
static void program_of_others(Schedule *s)
{
    find(s, K_VECTOR, 0)->role = KR_VECTOR2;
}
static void half_an_axis(Schedule *s) { find(s, K_VECTOR, 0)->nrow /= 2; }
static void lanes_of_tokens(Schedule *s) { find(s, K_VECTOR, 0)->row = AX_I; }
static void lanes_of_another(Schedule *s)
{
    KInst *k = find(s, K_VECTOR, 0);
    for (Ref r = 1; r < s->g->len; r++)
        if (s->g->n[r].axes == (AXIS(AX_I) | AXIS(k->row)))
            k->node[0] = r;
}

static const Spoiled lanes[] = {
    { "no program", no_program, "do not make" },
    { "program of others", program_of_others, "do not make" },
    { "half an axis", half_an_axis, "no whole axis" },
    { "lanes of tokens", lanes_of_tokens, "no whole axis" },
    { "lanes of another", lanes_of_another, "another axis" },
    { "not carried", not_carried, "not carried on" },
    { "not ended", not_ended, "not carried on" },
    { NULL, NULL, NULL },
};

/* Of one that loads through the ring of what is read no more: the first such
 * load, and the one that follows it there. */
static KInst *through_ring(Schedule *s, int use)
{
    KInst *first = s->inst, *k;
    while (first->op != K_LOAD
           || s->buffer[s->value[first->out[0]].buffer].uses < 2)
        first++;
    for (k = first; use; k++)
        if (k->op == K_LOAD && s->value[k->out[0]].use == use
            && s->value[k->out[0]].buffer == s->value[first->out[0]].buffer)
            break;
    return k;
}
static void uses_swapped(Schedule *s)
{
    KValue *a = &s->value[through_ring(s, 0)->out[0]];
    KValue *b = &s->value[through_ring(s, 1)->out[0]];
    a->use = 1;
    b->use = 0;
}
static void never_given_back(Schedule *s)
{
    KInst *k = through_ring(s, 1);
    uint32_t ring = 1u << s->value[k->out[0]].buffer;
    for (KInst *i = s->inst; i < k; i++)
        i->post_empty &= ~ring;
}
static void read_too_late(Schedule *s)
{
    KInst *k = through_ring(s, 1);
    while (k->op != K_CLEAR)
        k++;
    k->in[k->nin++] = through_ring(s, 0)->out[0];
}
static void slot_too_small(Schedule *s)
{
    s->buffer[s->value[through_ring(s, 0)->out[0]].buffer].bytes -= 1024;
}

/* What a program leaves as it finds it, behind what it computes; so are their
 * turns of a buffer, where both go through one. */
static void found_behind(Schedule *s)
{
    KInst *k = s->inst;
    while (k->op != K_MAP || !results_found(s, k)
           || results_found(s, k) == k->nout)
        k++;
    int at = results_found(s, k);
    KValue *a = &s->value[k->out[at - 1]], *b = &s->value[k->out[at]];
    uint8_t use = a->use;
    a->use = a->buffer == b->buffer ? b->use : use;
    b->use = a->buffer == b->buffer ? use : b->use;
    int16_t found = k->out[at - 1];
    k->out[at - 1] = k->out[at];
    k->out[at] = found;
}

static const Spoiled results[] = {
    { "found behind", found_behind, "a result that is found, behind" },
    { NULL, NULL, NULL },
};

static const Spoiled rings[] = {
    { "turns swapped", uses_swapped, "out of order" },
    { "never given back", never_given_back, "waits for ever" },
    { "read too late", read_too_late, "out of order" },
    { "slot too small", slot_too_small, "no room" },
    { NULL, NULL, NULL },
};

/* Of one that loads what is a token late. */
static KInst *late_clear(Schedule *s)
{
    KInst *k = s->inst;
    while (k->op != K_CLEAR || k->nin < 2)
        k++;
    return k;
}
static void not_cleared(Schedule *s) { find(s, K_CLEAR, 0)->op = K_SETTLE; }
static void late_not_cleared(Schedule *s) { late_clear(s)->op = K_SETTLE; }
static void no_first_row(Schedule *s) { late_clear(s)->nin = 1; }
static void another_first_row(Schedule *s)
{
    KInst *k = late_clear(s);
    s->value[k->in[1]].node = s->g->st[0].node;
}
static const Spoiled delays[] = {
    { "not cleared", not_cleared, "not cleared" },
    { "late and not cleared", late_not_cleared, "not cleared" },
    { "no first row", no_first_row, "not cleared" },
    { "another first row", another_first_row, "not cleared" },
    { NULL, NULL, NULL },
};

/* Of one with angles, and vectors over their axis. */
static KInst *spreading(Schedule *s)
{
    for (KInst *k = s->inst; k < s->inst + s->ninsts; k++)
        for (int i = 0; i < k->nnodes; i++)
            if (k->op == K_MAP && s->g->n[k->node[i]].op == OP_dup)
                return k;
    return NULL;
}
static KValue *angles_of(Schedule *s)
{
    KInst *k = spreading(s);
    int i = 0;
    while (s->value[k->in[i]].layout != LAY_SUMS)
        i++;
    return &s->value[k->in[i]];
}
static void angles_too_few(Schedule *s) { angles_of(s)->ncol /= 2; }
/* Read as they are, by a node that is no spread. */
static void read_unspread(Schedule *s)
{
    KInst *k = spreading(s);
    KValue *v = angles_of(s);
    for (int i = 0; i < k->nnodes; i++)
        if (s->g->n[k->node[i]].op == OP_sin)
            v->node = s->g->n[k->node[i]].a[0];
}
static void made_of_nothing(Schedule *s) { find(s, K_ACROSS, 0)->nin = 0; }
static void made_of_no_node(Schedule *s) { find(s, K_ACROSS, 0)->nnodes = 0; }
static void made_too_short(Schedule *s) { find(s, K_ACROSS, 0)->nrow /= 2; }
static void made_early(Schedule *s)
{
    KInst *k = find(s, K_ACROSS, 0);
    while (k->op != K_SYNC)
        k--;
    drop(s, k);
}
static void becomes_another(Schedule *s)
{
    KInst *k = find(s, K_ACROSS, 0);
    k->out[0] = k->in[0];
}
static void becomes_nothing(Schedule *s) { drop(s, find(s, K_ACROSS, 0)); }

static const Spoiled angles[] = {
    { "too few angles", angles_too_few, "other columns" },
    { "read unspread", read_unspread, "other columns" },
    { "made of nothing", made_of_nothing, "not there" },
    { "no node", made_of_no_node, "computed across" },
    { "too short", made_too_short, "computed across" },
    { "made early", made_early, "do not meet" },
    { NULL, NULL, NULL },
};
static const Spoiled across[] = {
    { "made of nothing", made_of_nothing, "not there" },
    { "becomes another", becomes_another, "written" },
    { "becomes nothing", becomes_nothing, "nobody writes" },
    { NULL, NULL, NULL },
};

/* Of one that computes what is read a token further on. */
static KInst *shifting(Schedule *s)
{
    KInst *k = s->inst;
    while (k->op != K_CLEAR || !k->nout)
        k++;
    return k;
}
static void not_shifted(Schedule *s) { drop(s, shifting(s)); }
static void no_row_off(Schedule *s)
{
    KInst *k = shifting(s);
    s->value[k->out[0]].at = s->value[k->in[0]].at;
}
static void lies_elsewhere(Schedule *s)
{
    s->value[shifting(s)->out[0]].alias = NOTHING;
}
static void shifted_early(Schedule *s)
{
    KInst *k = shifting(s);
    while (k->op != K_SYNC)
        k--;
    drop(s, k);
}

static const Spoiled shifts[] = {
    { "not shifted", not_shifted, "nobody writes" },
    { "no row off", no_row_off, "no row off" },
    { "lies elsewhere", lies_elsewhere, "no row off" },
    { "shifted early", shifted_early, "do not meet" },
    { NULL, NULL, NULL },
};

/* Of states that stand in each other: scores that are scanned from the last
 * token back, with a gate a token, and shifted. */
static KInst *scanned_back(Schedule *s)
{
    KInst *k = find(s, K_SCAN, 0);
    while (k->op != K_SCAN
           || !(s->g->n[s->value[k->out[0]].node].flags & REVERSE))
        k++;
    return k;
}
static void gates_of_scores(Schedule *s)
{
    KInst *k = scanned_back(s);
    k->in[1] = k->in[0];
}
static void scores_elsewhere(Schedule *s)
{
    s->value[scanned_back(s)->out[0]].alias = NOTHING;
}

static const Spoiled coupled[] = {
    { "gates of scores", gates_of_scores, "no gates" },
    { "scanned elsewhere", scores_elsewhere, "lie elsewhere" },
    { "not shifted", not_shifted, "nobody writes" },
    { "no row off", no_row_off, "no row off" },
    { "shifted early", shifted_early, "do not meet" },
    { NULL, NULL, NULL },
};

/* Of axes that are longer than they are in memory. */
static void unmasked(Schedule *s)
{
    for (int i = 0; i < s->nvalues; i++)
        s->value[i].masked = false;
}
static void shorter(Schedule *s) { s->extent[AX_DIM] = 64; }
static void of_another_axis(Schedule *s)
{
    KInst *k = find(s, K_PRODUCT, 1);
    k->in[1] = k->in[0];
}

static const Spoiled padded[] = {
    { "unmasked", unmasked, "not zero behind" },
    { "shorter", shorter, "of which there are 72" },
    { "of another axis", of_another_axis, "not zero behind" },
    { NULL, NULL, NULL },
};

static void too_many_maps(Schedule *s)
{
    Target *t = ctx_alloc(s->c, sizeof *t);
    *t = *s->target;
    t->maps = 1;
    s->target = t;
}

static const Spoiled spoiled[] = {
    { "no meeting", no_meeting, "do not meet" },
    { "no settling", no_settling, "under way" },
    { "no load", no_load, "nobody writes" },
    { "unasked", unasked, "used unasked" },
    { "not handed on", not_handed_on, "not handed on" },
    { "never emptied", never_emptied, "not handed on" },
    { "read by nobody", read_by_nobody, "nobody reads" },
    { "overlapping", overlapping, "in one place" },
    { "skewed", skewed, "swizzle" },
    { "too large", too_large, "behind the end" },
    { "too many maps", too_many_maps, "are loaded and stored" },
    { "too deep", too_deep, "behind the end" },
    { "too few registers", too_few_registers, "registers" },
    { "all in parts", all_in_parts, "of memory alone" },
    { "out of order", out_of_use_order, "out of order" },
    { "sliced", sliced, "extents" },
    { "crowded", crowded, "behind the end" },
    { "foreign", foreign, "another role" },
    { "lent", lent, "another role fills" },
    { "out of order", out_of_order, "before it is written" },
    { "written twice", written_twice, "written twice" },
    { "waits for ever", waits_for_ever, "for ever" },
    { NULL, NULL, NULL },
};

/* Of a walk that goes forward alone, with a warpgroup ahead. */
static KInst *by_ahead(Schedule *s, KOp op)
{
    KInst *k = s->inst;
    while (k->op != op || k->role != KR_AHEAD)
        k++;
    return k;
}
static void another_fragment(Schedule *s)
{
    s->value[by_ahead(s, K_PRODUCT)->out[0]].ahead = false;
}
static void kept_ahead(Schedule *s)
{
    int b = s->value[by_ahead(s, K_INVERSE)->out[0]].buffer;
    s->buffer[b].readers = 1u << KR_AHEAD;
}
/* Scores that are inverted are then no warp's own. */
static void none_meet_ahead(Schedule *s) { s->ahead = 2; }
static void cleared_by_one(Schedule *s)
{
    const int16_t tile = by_ahead(s, K_CLEAR)->in[0];
    KInst *k = s->inst;
    while (k->op != K_CLEAR || k->role != KR_MATRIX || k->in[0] != tile)
        k++;
    k->op = K_SETTLE;
}
static void too_few_ahead(Schedule *s) { s->regs[2] = 56; }
/* Of what the role ahead makes, what it tells of first is waited for in time;
 * the rest behind all that reads it. */
static void waits_for_first(Schedule *s)
{
    uint32_t made = 0, first = 0, rest = 0;
    KInst *last = NULL;
    for (int b = 0; b < s->nbuffers; b++)
        if (s->buffer[b].writer == KR_AHEAD
            && s->buffer[b].readers >> KR_MATRIX & 1)
            made |= 1u << b;
    for (int i = 0; i < s->ninsts && !first; i++)
        if (s->inst[i].role == KR_AHEAD)
            first = s->inst[i].post_full & made;
    first &= 0 - first;
    for (int i = 0; i < s->ninsts; i++) {
        KInst *k = &s->inst[i];
        if (k->role != KR_MATRIX)
            continue;
        rest |= k->wait_full & made & ~first;
        k->wait_full &= ~(made & ~first);
        k->wait_full |= last ? 0 : first;
        last = k;
    }
    last->wait_full |= rest;
}

/* What the matrix role goes on with comes when all rings before it are full. */
static void lags_too_far(Schedule *s)
{
    const KInst *k = find(s, K_LOAD, 0);
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].op == K_LOAD && s->value[s->inst[i].out[0]].buffer
                                       != s->value[k->out[0]].buffer)
            s->inst[i].lag = 7;
}

static const Spoiled aheads[] = {
    { "lags too far", lags_too_far, "waits for ever" },
    { "another role's fragment", another_fragment, "another role has not" },
    { "kept by one role", kept_ahead, "not for who reads it" },
    { "the role ahead does not meet", none_meet_ahead, "do not meet" },
    { "cleared by one of two", cleared_by_one, "are not cleared" },
    { "few registers ahead", too_few_ahead, "registers for fragments" },
    { "waited for what is told first", waits_for_first, "used unasked" },
    { NULL, NULL, NULL },
};

/* Of one whose states stay in registers as factors. */
static KInst *of_rows(Schedule *s, KOp op, int which)
{
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].op == op && s->inst[i].role == KR_MATRIX && !which--)
            return &s->inst[i];
    return NULL;
}
static void ends_early(Schedule *s) { of_rows(s, K_SETTLE, 0)->index++; }
static void goes_on(Schedule *s)
{
    int n = 0;
    while (of_rows(s, K_SETTLE, n + 1))
        n++;
    drop(s, of_rows(s, K_SETTLE, n));
}
static void left_tile(Schedule *s)
{
    KInst *k = of_rows(s, K_PRODUCT, 0);
    k->in[0] = k->in[1];
}
static void no_such_form(Schedule *s) { s->target = unpacked_target(s->c); }
static void not_waited_ahead(Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++)
        for (int b = 0; b < s->nbuffers; b++)
            if (s->inst[i].role == KR_MATRIX
                && s->buffer[b].writer == KR_AHEAD)
                s->inst[i].wait_full &= ~(1u << b);
}
/* What the role ahead leaves it tells of before it reads what was loaded. */
static void told_ahead_first(Schedule *s)
{
    KInst *first = NULL;
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].role == KR_AHEAD) {
            first = first ? first : &s->inst[i];
            first->post_full |= s->inst[i].post_full;
            s->inst[i].post_full = &s->inst[i] == first ? first->post_full : 0;
        }
}
static void cleared_by_none(Schedule *s)
{
    find(s, K_LOAD, 1)->clears = false;
}
static void cleared_by_another(Schedule *s)
{
    find(s, K_STORE, 0)->clears = true;
}
static void beside_in_slot(Schedule *s)
{
    s->value[find(s, K_LOAD, 1)->out[0]].at = 0;
    s->value[find(s, K_LOAD, 2)->out[0]].at = 0;
}

static const Spoiled in_registers[] = {
    { "waited for too little", ends_early, "under way" },
    { "behind its iteration", goes_on, "still under way" },
    { "a left factor in memory", left_tile, "no tile" },
    { "no such form", no_such_form, "no tile" },
    { "not waited for what is ahead", not_waited_ahead, "used unasked" },
    { "told of too early", told_ahead_first, "not handed on (0)" },
    { "cleared by none", cleared_by_none, "are not cleared" },
    { "cleared by another", cleared_by_another, "where none are" },
    { "in one place of a slot", beside_in_slot, "written over" },
    { NULL, NULL, NULL },
};

/* Of tiles that the role ahead leaves where it found others. */
static KInst *over_loaded(Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++)
        for (int j = 0; j < s->inst[i].nout; j++)
            if (lies_over_loaded(s, s->inst[i].out[j]))
                return &s->inst[i];
    return NULL;
}
static void found_as_loaded(Schedule *s)
{
    int16_t over = s->value[over_loaded(s)->out[0]].alias;
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].role == KR_MATRIX && s->inst[i].op == K_PRODUCT)
            s->inst[i].in[1] = over;
}
static void not_met_behind(Schedule *s)
{
    for (KInst *k = over_loaded(s); k < s->inst + s->ninsts; k++)
        if (k->op == K_SYNC && k->role == KR_AHEAD)
            k->op = K_SETTLE;
}
/* The role of matrices waits for the load, not for what becomes of it. */
static void waits_for_load(Schedule *s)
{
    int b = s->value[over_loaded(s)->out[0]].buffer;
    not_waited_ahead(s);
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].role == KR_MATRIX && s->inst[i].op == K_PRODUCT) {
            s->inst[i].wait_full |= 1u << b;
            return;
        }
}
static void left_by_another(Schedule *s) { over_loaded(s)->role = KR_MATRIX; }

static const Spoiled over[] = {
    { "found as it was loaded", found_as_loaded, "written over" },
    { "not met behind it", not_met_behind, "do not meet" },
    { "waited for as loaded", waits_for_load, "used unasked" },
    { "left by the other role", left_by_another, "another role" },
    { NULL, NULL, NULL },
};

/* Of one that blocks share: no lean turn makes the number that it carries. */
static void not_computed_lean(Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++)
        for (int k = 0; k < s->ninsts; k++)
            s->inst[i].lean &= s->inst[k].op != K_CARRY
                            || !goes_on_from(s, &s->inst[k], &s->inst[i]);
}
static const Spoiled leans[] = {
    { "not made in a lean iteration", not_computed_lean,
     "what it goes on from" },
    { NULL, NULL, NULL },
};

/* Of one that blocks share, of a delta rule: the state that products of lean
 * iterations read is packed behind them alone. */
static void not_packed_lean(Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++)
        s->inst[i].lean &= !packs_carried(s, &s->inst[i]);
}
static const Spoiled packs[] = {
    { "not packed in a lean iteration", not_packed_lean,
     "what it goes on from" },
    { NULL, NULL, NULL },
};

/* Of one of which two blocks make half of some tiles each. */
static void not_waited_given(Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].op == K_SETTLE && s->inst[i].role == KR_AHEAD)
            s->inst[i].wait_full = 0;
}
static void not_half(Schedule *s)
{
    for (int v = 0; v < s->nvalues; v++)
        s->value[v].half = false;
}
static const Spoiled pairs[] = {
    { "not waited for", not_waited_given, "used unasked" },
    { "not of half the columns", not_half, "axes' extents" },
    { NULL, NULL, NULL },
};

/* Of one whose vector a vector role carries and hands over. */
static KInst *handing(Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++)
        if (leaves_carried(s, &s->inst[i]))
            return &s->inst[i];
    return NULL;
}
static void not_made_in_lanes(Schedule *s) { handing(s)->nnodes--; }
static void handed_unmade(Schedule *s)
{
    s->value[handing(s)->out[1]].node = s->value[handing(s)->out[0]].node + 1;
}
static const Spoiled handed[] = {
    { "not made", not_made_in_lanes, "lanes do not make" },
    { "not of the program", handed_unmade, "no whole axis" },
    { NULL, NULL, NULL },
};

/* Of one whose sums of products lie in tensor memory. */
static KInst *adding_there(Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].op == K_PRODUCT && adds_in_tensor(s, &s->inst[i]))
            return &s->inst[i];
    return NULL;
}
static void too_many_columns(Schedule *s) { s->tensor = 544; }
static void too_few_columns(Schedule *s) { s->tensor -= 32; }
static void no_tensor_memory(Schedule *s) { s->target = hopper(s->c); }
/* Both of products that are under way at a time. */
static void sums_in_one_place(Schedule *s)
{
    KInst *a = s->inst, *b;
    for (bool found = false; !found; a += !found) {
        for (b = a + 1; b->op != K_PRODUCT && b->op != K_SETTLE; b++) {}
        found = a->op == K_PRODUCT && b->op == K_PRODUCT
             && !adds_in_tensor(s, b);
    }
    s->value[b->out[0]].at = s->value[a->out[0]].at;
}
static void sums_between(Schedule *s)
{
    s->value[find(s, K_PRODUCT, 0)->out[0]].at += 8;
}
static void added_elsewhere(Schedule *s)
{
    s->value[adding_there(s)->out[0]].at += 32;
    s->tensor += 32;
}
static void never_waited_for(Schedule *s)
{
    int n = 0;
    while (find(s, K_SETTLE, n + 1))
        n++;
    find(s, K_SETTLE, n)->op = K_SYNC;
}

static const Spoiled tensor[] = {
    { "too many columns", too_many_columns, "columns of tensor memory" },
    { "too few columns", too_few_columns, "end of tensor memory" },
    { "no tensor memory", no_tensor_memory, "sm_90a has 0" },
    { "sums in one place", sums_in_one_place, "over in tensor memory" },
    { "sums between columns", sums_between, "end of tensor memory" },
    { "added elsewhere", added_elsewhere, "where they are added to" },
    { NULL, NULL, NULL },
};
/* Of a walk: of what it carries on. */
static const Spoiled tensor_walks[] = {
    { "never waited for", never_waited_for, "nobody waits for" },
    { NULL, NULL, NULL },
};
#endif
