/* text.c -- a schedule as text, a line for each of its parts, and back.
 *
 *   schedule KERNEL TARGET slices N of AXIS [rows AXIS] [ordered] resident N
 *            [padded AXIS N ...] groups N [ahead N [interleave N]] regs N N [N]
 *            shared N [tensor N]
 *            [tokens THREADS [of N] from N
 *             [regtile AXIS AXIS warp N states N]]
 *   role NAME warps N
 *   buffer N ROLE bytes N at N depth N uses N [tile] [copied] readers ROLE ...
 *   value N %NODE LAYOUT ROW COL NROW NCOL parts N buffer N alias N use N
 *         at N [ahead] [masked] [half | given] [rest N] [wide]
 *   OP ROLE [transposed N N] [minus] [space ROW COL NROW NCOL] [parts N]
 *   [left N] [output N]
 *      [in N ...] [out N ...] [nodes %N ...] [await full N ...]
 *      [await empty N ...] [tell full N ...] [tell empty N ...]
 *
 * Axes stand by number, buffers and values by theirs.
 */
#include "schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- printing ---- */

static void print_list(Buf *b, const char *what, const int16_t *list, int n)
{
    if (n)
        buf_printf(b, " %s", what);
    for (int i = 0; i < n; i++)
        buf_printf(b, " %d", list[i]);
}

static void print_set(Buf *b, const char *what, uint32_t set)
{
    if (set)
        buf_printf(b, " %s", what);
    for (int i = 0; i < MOST_BUFFERS; i++)
        if (set >> i & 1)
            buf_printf(b, " %d", i);
}

static void print_buffer(Buf *b, const KBuffer *k, int i)
{
    buf_printf(b, "buffer %d %s bytes %d at %d depth %d uses %d%s%s readers",
               i, krole_name[k->writer], (int)k->bytes, (int)k->at,
               (int)k->depth, (int)k->uses, k->tile ? " tile" : "",
               k->copied ? " copied" : "");
    for (int r = 0; r < NKROLES; r++)
        if (k->readers >> r & 1)
            buf_printf(b, " %s", krole_name[r]);
    buf_printf(b, "\n");
}

static void print_value(Buf *b, const Schedule *s, int i)
{
    const KValue *v = &s->value[i];
    buf_printf(b, "value %d %%%u %s %d %d %d %d parts %d buffer %d alias %d"
               " use %d at %d%s%s%s%s%s\n", i, (unsigned)v->node,
               layout_name[v->layout],
               v->row, v->col, (int)v->nrow, (int)v->ncol, v->parts,
               v->buffer, v->alias, v->use, (int)v->at,
               v->ahead ? " ahead" : "", v->masked ? " masked" : "",
               v->half ? " half" : v->given ? " given" : "",
               v->rest == NOTHING ? ""
               : ctx_format(b->ctx, " rest %d", (int)v->rest),
               is_wide(s, v) ? " wide" : "");
}

static void print_inst(Buf *b, const KInst *k)
{
    buf_printf(b, "%s %s", kop_name[k->op], krole_name[k->role]);
    if (k->op == K_PRODUCT)
        buf_printf(b, " transposed %d %d%s", k->transposed[0], k->transposed[1],
                   k->minus ? " minus" : "");
    if (k->nrow)
        buf_printf(b, " space %d %d %d %d", k->row, k->col, (int)k->nrow,
                   (int)k->ncol);
    if (k->parts)
        buf_printf(b, " parts %d", k->parts);
    if (k->deferred)
        buf_printf(b, " deferred");
    if (k->early)
        buf_printf(b, " early");
    if (k->clears)
        buf_printf(b, " clears");
    if (k->lag)
        buf_printf(b, " lag %d", k->lag);
    if (k->lean)
        buf_printf(b, " lean");
    if (k->index != NOTHING)
        buf_printf(b, k->op == K_SETTLE ? " left %d" : " output %d",
                   k->index);
    print_list(b, "in", k->in, k->nin);
    print_list(b, "out", k->out, k->nout);
    if (k->nnodes)
        buf_printf(b, " nodes");
    for (int i = 0; i < k->nnodes; i++)
        buf_printf(b, " %%%u", (unsigned)k->node[i]);
    if (k->lean && k->lean_out != ~0u)
        print_set(b, "lean out", k->lean_out);
    print_set(b, "lean full", k->lean_full);
    print_set(b, "await full", k->wait_full);
    print_set(b, "await empty", k->wait_empty);
    print_set(b, "tell full", k->post_full);
    print_set(b, "tell empty", k->post_empty);
    buf_printf(b, "\n");
}

/* Where all warps do the same: threads, rows of a chunk, and what each item
 * has. */
static const char *tokens_text(const Schedule *s)
{
    const KTokens *t = &s->tokens;
    return !t->threads ? ""
         : has_rows(s) ? ctx_format(s->c, " tokens %d of %d from %d",
                                    t->threads, (int)t->rows, t->first)
         : !t->regtile ? ctx_format(s->c, " tokens %d from %d", t->threads,
                                 t->first)
         : ctx_format(s->c, " tokens %d from %d regtile %d %d warp %d states"
                      " %d",
                      t->threads, t->first, t->row, t->col, (int)t->warp_cols,
                      t->states);
}

static const char *padded_text(const Schedule *s)
{
    Buf b = { .ctx = s->c };
    for (int axis = AX_DIM; axis < s->g->naxes; axis++)
        if (is_padded(s, axis))
            buf_printf(&b, "%s %d %d", b.len ? "" : " padded", axis,
                       (int)s->extent[axis]);
    return b.len ? b.s : "";
}

static void print_whole(const Schedule *s, Buf *out)
{
    buf_printf(out, "schedule %d %s slices %d of %d%s%s resident %d%s groups %d"
               "%s regs %d %d%s shared %d%s%s\n", (int)(s->k - s->p->kernel),
               s->target->name, s->slices, s->slice_axis,
               s->row_axis ? ctx_format(s->c, " rows %d", s->row_axis) : "",
               s->ordered ? " ordered" : "", s->resident, padded_text(s),
               s->groups,
               !s->ahead ? "" : s->interleave > 1
               ? ctx_format(s->c, " ahead %d interleave %d", s->ahead,
                            s->interleave)
               : ctx_format(s->c, " ahead %d", s->ahead),
               s->regs[0], s->regs[1],
               s->ahead ? ctx_format(s->c, " %d", s->regs[2]) : "",
               (int)s->shared,
               s->tensor ? ctx_format(s->c, " tensor %d", s->tensor) : "",
               tokens_text(s));
    for (int r = 0; r < NKROLES; r++)
        if (s->warps[r])
            buf_printf(out, "role %s warps %d\n", krole_name[r], s->warps[r]);
    for (int i = 0; i < s->nbuffers; i++)
        print_buffer(out, &s->buffer[i], i);
    for (int i = 0; i < s->nvalues; i++)
        print_value(out, s, i);
    for (int i = 0; i < s->ninsts; i++)
        print_inst(out, &s->inst[i]);
}

/* Of one that there is not, as a comment, what was there when it failed. */
void schedule_print(const Schedule *s, Buf *out)
{
    Buf whole = { .ctx = s->c };

    if (!s->why) {
        print_whole(s, out);
        return;
    }
    buf_printf(out, "# no schedule: %s\n", s->why);
    if (s->nbuffers)
        print_whole(s, &whole);
    for (const char *at = whole.s; at && *at; at = strchr(at, '\n') + 1)
        buf_printf(out, "#   %.*s", (int)strcspn(at, "\n") + 1, at);
}

/* ---- reading ---- */

typedef struct Read {
    Schedule *s;
    Ctx *c;
    const char *at;                     /* in the line */
    int line;
} Read;

/* The next word of the line, or "". */
static const char *word(Read *x)
{
    while (*x->at == ' ')
        x->at++;
    size_t n = strcspn(x->at, " \n");
    char *w = ctx_alloc(x->c, n + 1);
    memcpy(w, x->at, n);
    x->at += n;
    return w;
}

static bool next_is(Read *x, const char *what)
{
    const char *before = x->at;
    size_t n = strlen(what);
    while (*before == ' ')
        before++;
    if (strncmp(before, what, n) || !strchr(" \n", before[n]))
        return false;
    x->at = before + n;
    return true;
}

static void must(Read *x, const char *what)
{
    if (!next_is(x, what))
        fail(x->c, x->line, "schedule: '%s' is missing", what);
}

static int number(Read *x, int least, int most)
{
    const char *w = word(x);
    char *end;
    long n = strtol(w + (*w == '%'), &end, 10);
    if (*end || !*w || n < least || n > most)
        fail(x->c, x->line, "schedule: '%s' is no number from %d to %d", w,
             least, most);
    return (int)n;
}

static int named(Read *x, const char *const *names, int n)
{
    const char *w = word(x);
    for (int i = 0; i < n; i++)
        if (!strcmp(w, names[i]))
            return i;
    fail(x->c, x->line, "schedule: unknown word '%s'", w);
}

static bool has_number(const Read *x)
{
    const char *p = x->at + strspn(x->at, " ");
    return strchr("%-0123456789", *p) && *p && *p != '\n';
}

static void read_tokens(Read *x, KTokens *t)
{
    t->threads = number(x, 32, 1024);
    t->rows = next_is(x, "of") ? number(x, 1, INT32_MAX) : 1;
    must(x, "from");
    t->first = number(x, 0, INT16_MAX);
    if (!next_is(x, "regtile"))
        return;
    t->row = (uint8_t)number(x, AX_DIM, NAXES - 1);
    t->col = (uint8_t)number(x, AX_DIM, NAXES - 1);
    t->regtile = AXIS(t->row) | AXIS(t->col);
    must(x, "warp");
    t->warp_cols = number(x, REGTILE_PIECE, INT32_MAX);
    must(x, "states");
    t->states = number(x, 1, MAX_STATES);
}

static void read_head(Read *x)
{
    Schedule *s = x->s;
    schedule_of_kernel(s, number(x, 0, s->p->nkernels - 1));
    must(x, s->target->name);
    must(x, "slices");
    s->slices = number(x, 1, 64);
    must(x, "of");
    s->slice_axis = number(x, 0, NAXES - 1);
    if (next_is(x, "rows"))
        s->row_axis = number(x, AX_DIM, NAXES - 1);
    s->ordered = next_is(x, "ordered");
    must(x, "resident");
    s->resident = number(x, 1, 32);
    for (bool any = next_is(x, "padded"); any && has_number(x);) {
        int axis = number(x, AX_DIM, s->g->naxes - 1);
        s->extent[axis] = number(x, 1, INT32_MAX);
    }
    must(x, "groups");
    s->groups = number(x, 0, MOST_WARPGROUPS);
    if (next_is(x, "ahead"))
        s->ahead = number(x, 1, 2);
    s->interleave = next_is(x, "interleave") ? number(x, 1, 2) : 1;
    must(x, "regs");
    for (int i = 0; i < 2 + (s->ahead > 0); i++)
        s->regs[i] = number(x, 8, 255);
    must(x, "shared");
    s->shared = number(x, 0, INT32_MAX);
    if (next_is(x, "tensor"))
        s->tensor = number(x, 1, INT16_MAX);
    if (next_is(x, "tokens"))
        read_tokens(x, &s->tokens);
}

static void read_buffer(Read *x)
{
    Schedule *s = x->s;
    if (number(x, 0, MOST_BUFFERS - 1) != s->nbuffers)
        fail(x->c, x->line, "schedule: buffers stand in order");
    KBuffer *b = &s->buffer[s->nbuffers++];
    b->writer = (int16_t)named(x, krole_name, NKROLES);
    must(x, "bytes");
    b->bytes = number(x, 0, INT32_MAX);
    must(x, "at");
    b->at = number(x, 0, INT32_MAX);
    must(x, "depth");
    b->depth = number(x, 1, 64);
    must(x, "uses");
    b->uses = number(x, 1, 255);
    b->tile = next_is(x, "tile");
    b->copied = next_is(x, "copied");
    must(x, "readers");
    while (x->at[strspn(x->at, " ")] && x->at[strspn(x->at, " ")] != '\n')
        b->readers |= (uint16_t)(1u << named(x, krole_name, NKROLES));
}

static void read_value(Read *x)
{
    Schedule *s = x->s;
    if (number(x, 0, INT16_MAX) != s->nvalues)
        fail(x->c, x->line, "schedule: values stand in order");
    KValue *v = value_add(s, (KValue){
        .node = (Ref)number(x, 1, (int)s->g->len - 1),
        .element = tile_element(s) });
    v->layout = (uint8_t)named(x, layout_name, NLAYOUTS);
    v->row = (uint8_t)number(x, 0, NAXES - 1);
    v->col = (uint8_t)number(x, 0, NAXES - 1);
    v->nrow = number(x, 1, INT32_MAX);
    v->ncol = number(x, 1, INT32_MAX);
    must(x, "parts");
    v->parts = (uint8_t)number(x, 1, 255);
    must(x, "buffer");
    v->buffer = (int16_t)number(x, NOTHING, s->nbuffers - 1);
    must(x, "alias");
    v->alias = (int16_t)number(x, NOTHING, INT16_MAX);
    must(x, "use");
    v->use = (uint8_t)number(x, 0, 255);
    must(x, "at");
    v->at = number(x, 0, INT32_MAX);
    v->ahead = next_is(x, "ahead");
    v->masked = next_is(x, "masked");
    v->half = next_is(x, "half");
    v->given = next_is(x, "given");
    s->paired |= v->given;
    if (next_is(x, "rest"))
        v->rest = number(x, 0, INT32_MAX);
    if (next_is(x, "wide"))
        v->element = sizeof(float);
    if (has_buffer(v) != (v->buffer != NOTHING))
        fail(x->c, x->line, "schedule: a value without its place");
    if (v->rest != NOTHING && v->rest + rest_slots(s, v) * rest_bytes(v)
                              > s->rests)
        s->rests = v->rest + rest_slots(s, v) * rest_bytes(v);
}

static uint8_t read_list(Read *x, int16_t *list)
{
    int n = 0;
    while (has_number(x) && n < MOST_USES)
        list[n++] = (int16_t)number(x, 0, x->s->nvalues - 1);
    return (uint8_t)n;
}

static uint32_t read_set(Read *x)
{
    uint32_t set = 0;
    while (has_number(x))
        set |= 1u << number(x, 0, x->s->nbuffers - 1);
    return set;
}

static void read_inst(Read *x)
{
    Schedule *s = x->s;
    KInst *k = inst_insert(s, s->ninsts, (KInst){ .index = NOTHING });
    k->op = (uint8_t)named(x, kop_name, NKOPS);
    k->role = (uint8_t)named(x, krole_name, NKROLES);
    for (int i = 0; next_is(x, "transposed"); )
        for (; i < 2; i++)
            k->transposed[i] = number(x, 0, 1);
    k->minus = next_is(x, "minus");
    if (next_is(x, "space")) {
        k->row = (uint8_t)number(x, 0, NAXES - 1);
        k->col = (uint8_t)number(x, 0, NAXES - 1);
        k->nrow = number(x, 1, INT32_MAX);
        k->ncol = number(x, 1, INT32_MAX);
    }
    if (next_is(x, "parts"))
        k->parts = (uint8_t)number(x, 2, UINT8_MAX);
    k->deferred = next_is(x, "deferred");
    k->early = next_is(x, "early");
    k->clears = next_is(x, "clears");
    if (next_is(x, "lag"))
        k->lag = (uint8_t)number(x, 1, MOST_BUFFERS);
    k->lean = next_is(x, "lean");
    s->splits |= k->lean;
    if (next_is(x, "left"))
        k->index = (int16_t)number(x, 0, 7);
    if (next_is(x, "output"))
        k->index = (int16_t)number(x, 0, (s->g->nout > s->g->nst ? s->g->nout
                                          : s->g->nst) - 1);
    if (next_is(x, "in"))
        k->nin = read_list(x, k->in);
    if (next_is(x, "out"))
        k->nout = read_list(x, k->out);
    if (next_is(x, "nodes")) {
        k->node = ctx_alloc(x->c, s->g->len * sizeof *k->node);
        while (has_number(x) && k->nnodes < (int)s->g->len)
            k->node[k->nnodes++] = (Ref)number(x, 1, (int)s->g->len - 1);
    }
    k->lean_out = ~0u;
    uint32_t *const set[] = { &k->lean_out, &k->lean_full, &k->wait_full,
                              &k->wait_empty, &k->post_full, &k->post_empty };
    static const char *const what[] = { "lean out", "lean full", "await full",
                                        "await empty", "tell full",
                                        "tell empty" };
    for (int i = 0; i < 6; i++)
        if (next_is(x, what[i]))
            *set[i] = read_set(x);
    if (x->at[strspn(x->at, " ")] && x->at[strspn(x->at, " ")] != '\n')
        fail(x->c, x->line, "schedule: '%s' is not understood", word(x));
}

static void read_line(Read *x)
{
    const char *line = x->at;
    if (*line == '#' || *line == '\n')
        return;
    if (next_is(x, "schedule")) {
        read_head(x);
    } else if (next_is(x, "role")) {
        int r = named(x, krole_name, NKROLES);
        must(x, "warps");
        x->s->warps[r] = (uint8_t)number(x, 1, 32);
    } else if (next_is(x, "buffer")) {
        read_buffer(x);
    } else if (next_is(x, "value")) {
        read_value(x);
    } else {
        read_inst(x);
    }
}

Schedule *schedule_parse(Ctx *c, const Plan *p, const Target *t,
                         const char *text)
{
    Schedule *s = ctx_alloc(c, sizeof *s);
    *s = (Schedule){ .c = c, .p = p, .g = p->g, .target = t };
    for (int axis = AX_DIM; axis < s->g->naxes; axis++)
        s->extent[axis] = s->g->axis[axis].size;
    Read x = { .s = s, .c = c, .line = 1 };
    for (const char *at = text; *at; x.line++) {
        x.at = at;
        read_line(&x);
        at += strcspn(at, "\n");
        at += *at == '\n';
    }
    if (!s->k)
        fail(c, 1, "schedule: its first line is missing");
    return s;
}
