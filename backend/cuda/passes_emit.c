/* passes_emit.c -- a row program as CUDA C++: for each pass a loop along the
 * row, in which a lane has `row_each` entries at a time.
 */
#include "passes_emit.h"
#include "nvrtc.h"
#include "source.h"

#include <string.h>

typedef struct Text {
    Ctx *c;
    Buf *b;
    const PassesPlan *k;
    const RowProgram *p;
    const Graph *g;
    int axis;                           /* of the loop */
    bool column;                        /* it goes along columns */
} Text;

#define PUT(t, ...) buf_printf((t)->b, __VA_ARGS__)

/* ---- a call's tensors ---- */

int passes_in(const PassesPlan *k, int i)
{
    (void)k;
    return i;
}

int passes_out(const PassesPlan *k, int i)
{
    return k->p->g->nin + i;
}

const uint8_t *passes_order(const RowProgram *p, const RowOut *o, int *rank)
{
    const Graph *g = p->g;

    *rank = o->input >= 0 ? g->in[o->input].rank : g->out[0].rank;
    return o->input >= 0 ? g->in[o->input].order : g->out[0].order;
}

bool passes_columns(const PassesPlan *k, int out)
{
    const RowOut *o = &k->p->out[out];

    return o->summed && row_axis(k->p, k->p->g->in[o->input].node) >= 0;
}

int passes_blocks(const PassesPlan *k, int32_t length)
{
    int wide = PASS_COLUMNS * k->each;

    return (length + wide - 1) / wide;
}

bool passes_whole(const PassesPlan *k, const View *v, const uint8_t *order,
                  int rank, int axis)
{
    int64_t size = dtype_size(v->dtype), each = 16 / size;
    bool found = false;

    each = each < k->each ? each : k->each;
    if (v->dtype == F64 || dtype_whole(v->dtype) || each * size < 8
        || k->each % each || k->p->g->axis[axis].size % k->each
        || (uintptr_t)v->data % (uintptr_t)(each * size) || v->sb % each
        || v->st % each || (v->heads > 1 && v->sh % each))
        return false;
    for (int d = 0; d < rank; d++) {
        if (order[d] == axis)
            found = v->sd[d] == 1;
        else if (v->sd[d] % each)
            return false;
    }
    return found;
}

bool passes_gathers(const PassesPlan *k, int out)
{
    const RowOut *o = &k->p->out[out];

    return o->input >= 0 && !o->summed && k->out[out]->heads < k->heads;
}

static const char *type_text(DType d)
{
    static const char *const name[] = { "F32", "BF16", "F16", "F64", "I32",
                                        "I64" };

    return name[d];
}

static char *operand(const Text *t, Ref r)
{
    Buf b = { .ctx = t->c };

    if (t->g->n[r].op == OP_num) {
        number_text(&b, t->g->n[r].num);
        return b.s;
    }
    return ctx_format(t->c, row_axis(t->p, r) < 0 ? "v%u" : "v%u[i]",
                      (unsigned)r);
}

static char *element(const Text *t, const Node *n)
{
    Buf b = { .ctx = t->c };
    const char *a[3] = { "0", "0", "0" };

    for (int i = 0; i < op_info[n->op].arity; i++)
        a[i] = operand(t, n->a[i]);
    value_text(&b, n->op, a);
    return b.s;
}

/* ---- tensors ---- */

/* The stride along the axis of rows; "0": it has none. */
static char *step_text(const Text *t, int arg, const uint8_t *order, int rank)
{
    for (int d = 0; d < rank; d++)
        if (AXIS(order[d]) & t->p->along)
            return ctx_format(t->c, "a.arg[%d].sd[%d]", arg, d);
    return "0";
}

/* Where the row's entries begin. */
static char *place_text(const Text *t, int arg, const View *v,
                        const uint8_t *order, int rank)
{
    Buf b = { .ctx = t->c };

    buf_printf(&b, "b * a.arg[%d].sb + t * a.arg[%d].st", arg, arg);
    if (v->heads > 1)
        buf_printf(&b, " + h / %d * a.arg[%d].sh", t->k->heads / v->heads,
                   arg);
    for (int d = 0; d < rank; d++)
        if (!(AXIS(order[d]) & t->p->along))
            buf_printf(&b, " + o%d * a.arg[%d].sd[%d]", order[d], arg, d);
    return b.s;
}

/* Entries that a lane has at once of it; ", of %s" of what a row has. */
static const char *each_text(const Text *t, Ref r)
{
    return row_half(t->p, r) ? "row_each / 2" : "row_each";
}

static const char *per_text(const Text *t, Ref r)
{
    return row_half(t->p, r) ? " / 2" : "";
}

static void load_entries(const Text *t, Ref r, const char *to)
{
    int i = t->g->n[r].index, arg = passes_in(t->k, i);
    const Input *in = &t->g->in[i];
    const View *v = &t->k->in[i];
    char *step = step_text(t, arg, in->order, in->rank);

    PUT(t, "load<%s, %s, %s>(a.arg[%d].p, %s + e0%s * %s, %s, %s%s, %s);\n",
        type_text(v->dtype), each_text(t, r),
        passes_whole(t->k, v, in->order, in->rank, t->axis) ? "true" : "false",
        arg, place_text(t, arg, v, in->order, in->rank), per_text(t, r), step,
        step, t->column ? "left" : "(live ? left : 0)", per_text(t, r),
        to);
}

static void load_number(const Text *t, Ref r)
{
    int i = t->g->n[r].index, arg = passes_in(t->k, i);
    const Input *in = &t->g->in[i];
    const View *v = &t->k->in[i];

    PUT(t, "const float v%u = get<%s>(a.arg[%d].p, %s);\n", (unsigned)r,
        type_text(v->dtype), arg,
        place_text(t, arg, v, in->order, in->rank));
}

static void store_entries(const Text *t, int out)
{
    const RowOut *o = &t->p->out[out];
    const View *v = t->k->out[out];
    int rank, arg = passes_out(t->k, out);
    const uint8_t *order = passes_order(t->p, o, &rank);
    char *step = step_text(t, arg, order, rank);

    PUT(t, "store<%s, %s, %s>(a.arg[%d].p, %s + e0%s * %s, %s, "
        "(live ? left : 0)%s, %s%u);\n", type_text(v->dtype),
        each_text(t, o->node),
        passes_whole(t->k, v, order, rank, t->axis) ? "true" : "false", arg,
        place_text(t, arg, v, order, rank), per_text(t, o->node), step, step,
        per_text(t, o->node), passes_gathers(t->k, out) ? "sum" : "v",
        (unsigned)o->node);
}

/* ---- a pass ---- */

static const char *entry_at(const void *ud, Ref r, const char *at)
{
    return ctx_format(((const Text *)ud)->c, "v%u[%s]", (unsigned)r, at);
}

/* Which of the row's the lane's entry i is. */
static const char *entry_number(const Text *t)
{
    return t->k->some ? "a.from + e0 + i" : "e0 + i";
}

static void make_entries(const Text *t, Ref r)
{
    const Node *n = &t->g->n[r];
    const char *value;

    PUT(t, "float v%u[%s];\n", (unsigned)r, each_text(t, r));
    if (n->op == OP_input) {
        load_entries(t, r, ctx_format(t->c, "v%u", (unsigned)r));
        return;
    }
    value = op_is(n->op, ELEMENTWISE) ? element(t, n)
          : entry_text(t->c, n, op_is(n->op, PAIRS) ? "i" : entry_number(t),
                       entry_at, t);
    PUT(t, "UNROLL\nfor (int i = 0; i < %s; i++)\nv%u[i] = %s;\n",
        each_text(t, r), (unsigned)r, value);
}

/* What the lane's entries add to the reduction. */
static void fold_entries(const Text *t, Ref r)
{
    const Node *n = &t->g->n[r];
    const char *x = operand(t, n->a[0]);

    if (n->op == OP_lse) {
        PUT(t, "s%u.add<row_each>(v%u, left);\n", (unsigned)r,
            (unsigned)n->a[0]);
        return;
    }
    if (op_is(n->op, MULTIPLIES))
        x = ctx_format(t->c, "%s * %s", x, operand(t, n->a[1]));
    if (op_is(n->op, MOVES))
        x = ctx_format(t->c, "(%s == %d ? %s : 0.f)", entry_number(t),
                       n->index, x);
    PUT(t, "UNROLL\nfor (int i = 0; i < row_each; i++)\n");
    if (n->op == OP_amax)
        PUT(t, "s%u = i < left ? max_(s%u, %s) : s%u;\n", (unsigned)r,
            (unsigned)r, x, (unsigned)r);
    else
        PUT(t, "s%u += i < left ? %s : 0.f;\n", (unsigned)r, x);
}

static bool is_fold(const Text *t, Ref r)
{
    return row_folds(t->g, r) && row_axis(t->p, r) < 0;
}

static void make_number(const Text *t, Ref r);

static bool is_own_input(const Text *t, int pass, Ref r)
{
    return t->p->need[pass][r] && t->k->own[r] && t->g->n[r].op == OP_input;
}

static void open_heads(const Text *t)
{
    PUT(t, "%sUNROLL\nfor (int m = 0; m < row_group; m++) {\n"
        "const i64 h = first + m;\n", t->k->group > PASS_GROUP ? "NO_" : "");
}

/* A small group's inputs, all before the first result is stored. */
static void load_heads(const Text *t, int pass)
{
    if (t->k->group > PASS_GROUP)
        return;
    for (Ref r = 1; r < t->g->len; r++)
        if (is_own_input(t, pass, r))
            PUT(t, "float all%u[row_group][%s];\n", (unsigned)r,
                each_text(t, r));
    open_heads(t);
    for (Ref r = 1; r < t->g->len; r++)
        if (is_own_input(t, pass, r))
            load_entries(t, r, ctx_format(t->c, "all%u[m]", (unsigned)r));
    PUT(t, "}\n");
}

static void make_own(const Text *t, int pass)
{
    const RowProgram *p = t->p;

    for (Ref r = 1; r < t->g->len; r++)
        if (p->number[r] && t->k->own[r])
            make_number(t, r);
    for (Ref r = 1; r < t->g->len; r++)
        if (is_own_input(t, pass, r) && t->k->group <= PASS_GROUP)
            PUT(t, "const float *v%u = all%u[m];\n", (unsigned)r, (unsigned)r);
        else if (p->need[pass][r] && t->k->own[r])
            make_entries(t, r);
}

/* What heads share once, and the heads of a group one after another. */
static void emit_group(const Text *t, int pass)
{
    const RowProgram *p = t->p;
    const PassesPlan *k = t->k;

    for (Ref r = 1; r < t->g->len; r++)
        if (p->need[pass][r] && !k->own[r])
            make_entries(t, r);
    for (int i = 0; i < p->nout; i++)
        if (p->out[i].pass == pass && passes_gathers(k, i))
            PUT(t, "float sum%u[%s] = {};\n", (unsigned)p->out[i].node,
                each_text(t, p->out[i].node));
    PUT(t, "// the heads of a group\n");
    load_heads(t, pass);
    open_heads(t);
    make_own(t, pass);
    for (int i = 0; i < p->nout; i++) {
        unsigned node = (unsigned)p->out[i].node;
        if (p->out[i].pass == pass && !passes_gathers(k, i))
            store_entries(t, i);
        else if (p->out[i].pass == pass)
            PUT(t, "UNROLL\nfor (int i = 0; i < %s; i++)\nsum%u[i] += "
                "v%u[i];\n", each_text(t, p->out[i].node), node, node);
    }
    PUT(t, "}\n");
    for (int i = 0; i < p->nout; i++)
        if (p->out[i].pass == pass && passes_gathers(k, i))
            store_entries(t, i);
    PUT(t, "}\n");
}

/* Entry i of a lane lies `beside_wide` from the one before: lanes meet in no
 * bank of shared memory, neither here nor where columns are summed. */
static void put_beside(const Text *t, Ref r)
{
    PUT(t, "UNROLL\nfor (int i = 0; i < row_each; i++)\n"
        "beside[threadIdx.x / row_threads][i * beside_wide + e0 / row_each]\n"
        "= live && i < left ? %s : 0.f;\n", operand(t, r));
}

/* Columns of the block's rows, in their order. */
static void sum_beside(const Text *t)
{
    int32_t length = t->g->axis[t->axis].size;

    PUT(t, "__syncthreads();\n"
        "for (int c = threadIdx.x; c < %d; c += %d) {\nfloat sum = 0;\n"
        "UNROLL\nfor (int i = 0; i < %d; i++)\n"
        "sum += beside[i][c %% row_each * beside_wide + c / row_each];\n"
        "a.sums[(i64)blockIdx.x * %d + c] = sum;\n}\n", length, PASS_BLOCK,
        PASS_BLOCK / t->k->threads, length);
}

static void emit_loop(const Text *t, int pass)
{
    const RowProgram *p = t->p;
    int32_t length = t->g->axis[t->axis].size;

    PUT(t, "for (i64 e0 = lane * row_each; e0 < %d; e0 += row_threads * "
        "row_each) {\nconst int left = (int)(%d - e0);\n", length, length);
    if (t->k->group > 1) {
        emit_group(t, pass);
        return;
    }
    for (Ref r = 1; r < t->g->len; r++)
        if (p->need[pass][r] && !is_fold(t, r))
            make_entries(t, r);
        else if (p->need[pass][r])
            fold_entries(t, r);
    for (int i = 0; i < p->nout; i++)
        if (p->out[i].pass == pass && row_axis(p, p->out[i].node) >= 0
            && !p->out[i].summed)
            store_entries(t, i);
        else if (t->k->beside && p->out[i].pass == pass
                 && passes_columns(t->k, i))
            put_beside(t, p->out[i].node);
    PUT(t, "}\n");
}

int passes_folds(const RowProgram *p)
{
    int n = 0;

    for (Ref r = 1; r < p->g->len; r++)
        n += p->need[0][r] && row_folds(p->g, r);
    return n;
}

/* What reductions begin with: of a part of the row one lane goes on from what
 * the part before has left. */
static void begin_folds(const Text *t, int pass)
{
    const RowProgram *p = t->p;
    const int all = passes_folds(p);

    for (Ref r = 1, n = 0; r < t->g->len; r++) {
        if (!p->need[pass][r] || !is_fold(t, r))
            continue;
        bool logs = t->g->n[r].op == OP_lse;
        PUT(t, logs ? "LogSum s%u;\n"
            : t->g->n[r].op == OP_amax ? "float s%u = bits(0xff800000);\n"
            : "float s%u = 0;\n", (unsigned)r);
        if (t->k->some)
            PUT(t, "if (live && !lane && !a.begins)\ns%u = %sa.carry[row * %d"
                " + %d]%s;\n", (unsigned)r, logs ? "LogSum{ " : "", all, n++,
                logs ? ", 1.f }" : "");
    }
}

static void leave_folds(const Text *t, int pass)
{
    const RowProgram *p = t->p;
    const int all = passes_folds(p);

    PUT(t, "if (!a.ends) {\n");
    for (Ref r = 1, n = 0; r < t->g->len; r++)
        if (p->need[pass][r] && is_fold(t, r))
            PUT(t, "if (live && !lane)\na.carry[row * %d + %d] = v%u;\n", all,
                n++, (unsigned)r);
    PUT(t, "return;\n}\n");
}

static void emit_pass(Text *t, int pass)
{
    const RowProgram *p = t->p;

    if (!row_does(p, pass))
        return;
    t->axis = row_pass_axis(p, pass);
    PUT(t, "// along %s\n", t->g->axis[t->axis].name);
    begin_folds(t, pass);
    emit_loop(t, pass);
    for (int i = 0; i < p->nout; i++)
        if (t->k->beside && p->out[i].pass == pass && passes_columns(t->k, i))
            sum_beside(t);
    for (Ref r = 1; r < t->g->len; r++)
        if (p->need[pass][r] && is_fold(t, r))
            PUT(t, t->g->n[r].op == OP_lse
                ? "const float v%u = s%u.all<row_threads>();\n"
                : t->g->n[r].op == OP_amax
                ? "const float v%u = greatest<row_threads>(s%u);\n"
                : "const float v%u = total<row_threads>(s%u);\n",
                (unsigned)r, (unsigned)r);
    if (t->k->some && passes_folds(p))
        leave_folds(t, pass);
}

/* ---- numbers ---- */

static void make_number(const Text *t, Ref r)
{
    const Node *n = &t->g->n[r];

    if (n->op == OP_num)
        return;
    if (n->op == OP_input)
        load_number(t, r);
    else
        PUT(t, "const float v%u = %s;\n", (unsigned)r, element(t, n));
}

static void make_numbers(const Text *t, int round)
{
    for (Ref r = 1; r < t->g->len; r++)
        if (t->p->number[r] && t->p->level[r] == round
            && !row_folds(t->g, r) && (t->k->group == 1 || !t->k->own[r]))
            make_number(t, r);
}

/* ---- kernels ---- */

/* Which token and head row `row` is of, and where it is on other axes. */
static void emit_place(const Text *t)
{
    const PassesPlan *k = t->k;

    PUT(t, "u32 at = (u32)row, within;\n");
    for (int i = 0; i < k->nothers; i++)
        PUT(t, "const i64 o%d = at %% %du;\nat /= %du;\n", k->other[i],
            k->size[i], k->size[i]);
    PUT(t, k->group > 1 ? "const i64 first = at %% %du * row_group;\n"
        : "const i64 h = at %% %du;\n(void)h;\n", k->heads / k->group);
    PUT(t, "const i64 b = divided_by(at / %du, a.by_tokens, within);\n"
        "const i64 t = within;\n(void)t;\n(void)b;\n", k->heads / k->group);
}

static void emit_end(const Text *t)
{
    const PassesPlan *k = t->k;

    PUT(t, "if (!live || lane)\nreturn;\n");
    for (int i = 0, kept = 0; i < t->p->nout; i++) {
        const RowOut *o = &t->p->out[i];
        int rank, arg = passes_out(k, i);
        if (o->input == OUT_KEPT) {
            PUT(t, "a.kept[row * a.nkept + %d] = %s;\n", kept++,
                operand(t, o->node));
            continue;
        }
        if (row_axis(t->p, o->node) >= 0 || o->summed)
            continue;
        const uint8_t *order = passes_order(t->p, o, &rank);
        PUT(t, "put<%s>(a.arg[%d].p, %s, %s);\n",
            type_text(k->out[i]->dtype), arg,
            place_text(t, arg, k->out[i], order, rank), operand(t, o->node));
    }
    for (int i = 0; i < k->nleft; i++)
        PUT(t, "a.left[row * %d + %d] = %s;\n", k->nleft, i,
            operand(t, k->left[i]));
}

int passes_shared(const PassesPlan *k)
{
    enum { NUMBERS = 128, BANKS = 32 };
    int32_t length = 0;

    for (int i = 0; k->beside && i < k->p->nout; i++)
        if (passes_columns(k, i))
            length = k->p->g->axis[row_pass_axis(k->p, k->p->out[i].pass)].size;
    int wide = (length + k->each - 1) / k->each + BANKS / k->each;
    return k->beside ? PASS_BLOCK / k->threads * k->each * wide * 4 : NUMBERS;
}

static void emit_rows(Text *t)
{
    const RowProgram *p = t->p;
    int threads = t->k->threads, block = threads > 32 ? threads : PASS_BLOCK;

    PUT(t, "extern \"C\" __global__ void __launch_bounds__(%d)\n"
        "flin_rows_by_passes(const __grid_constant__ Args a)\n{\n", block);
    PUT(t, "const int lane = threadIdx.x %% row_threads;\n"
        "const i64 mine = (i64)blockIdx.x * %d + threadIdx.x / row_threads;\n"
        "const bool live = mine < a.rows;\nconst i64 row = live ? mine : 0;\n",
        block / threads);
    if (t->k->beside)
        PUT(t, "constexpr int beside_wide = %d;\n"
            "float (*beside)[row_each * beside_wide]\n"
            "= (float (*)[row_each * beside_wide])arena;\n",
            passes_shared(t->k) / (block / threads * t->k->each * 4));
    emit_place(t);
    for (int i = 0; i < p->nkept; i++)
        PUT(t, "const float v%u = a.kept[row * a.nkept + %d];\n",
            (unsigned)p->kept[i], i);
    make_numbers(t, 0);
    for (int pass = 0; pass < p->npasses; pass++) {
        emit_pass(t, pass);
        if ((pass + 1) % p->naxes == 0)
            make_numbers(t, (pass + 1) / p->naxes);
    }
    emit_end(t);
    PUT(t, "}\n");
}

/* A piece of the rows a block, of `row_each` columns a thread: their sums are
 * [pieces, columns]. */
static void emit_columns(Text *t, int out)
{
    const RowProgram *p = t->p;
    const RowOut *o = &p->out[out];
    int32_t length;

    t->axis = row_pass_axis(p, o->pass);
    t->column = true;
    length = t->g->axis[t->axis].size;
    PUT(t, "extern \"C\" __global__ void __launch_bounds__(%d)\n"
        "flin_columns_%d(const __grid_constant__ Args a)\n{\n"
        "constexpr int blocks = %d;\n"
        "const i64 piece = blockIdx.x / blocks, block = blockIdx.x %% blocks;"
        "\nconst i64 e0 = (block * %d + threadIdx.x) * row_each;\n"
        "const int left = (int)(%d - e0);\n"
        "if (left <= 0)\nreturn;\n"
        "const i64 first = piece * a.each, end = first + a.each < a.rows"
        "\n? first + a.each : a.rows;\nfloat sum[row_each] = {};\n",
        PASS_COLUMNS, out, passes_blocks(t->k, length), PASS_COLUMNS, length);
    PUT(t, "UNROLL_FOUR\nfor (i64 row = first; row < end; row++) {\n");
    emit_place(t);
    for (int i = 0; i < t->k->nleft; i++)
        PUT(t, "const float v%u = a.left[row * %d + %d];\n",
            (unsigned)t->k->left[i], t->k->nleft, i);
    for (Ref r = 1; r < t->g->len; r++)
        if (p->need[o->pass][r] && !is_fold(t, r))
            make_entries(t, r);
    PUT(t, "UNROLL\nfor (int i = 0; i < row_each; i++)\nsum[i] += %s;\n}\n",
        operand(t, o->node));
    PUT(t, "UNROLL\nfor (int i = 0; i < row_each; i++)\nif (i < left)\n"
        "a.sums[piece * %d + e0 + i] = sum[i];\n}\n", length);
    t->column = false;
}

char *passes_emit(Ctx *c, const PassesPlan *k)
{
    Buf raw = { .ctx = c }, b = { .ctx = c };
    Text t = { .c = c, .b = &raw, .k = k, .p = k->p, .g = k->p->g };

    emit_rows(&t);
    for (int i = 0; i < k->p->nout; i++)
        if (passes_columns(k, i) && !k->beside)
            emit_columns(&t, i);
    buf_printf(&b, "%s// a step over rows, by passes\n"
               "#include \"numbers.cuh\"\n"
               "#include \"warp.cuh\"\n#include \"functions.cuh\"\n"
               "#include \"rows.cuh\"\n#include \"passes.cuh\"\n"
               "constexpr int row_each = %d, row_threads = %d;\n"
               "constexpr int row_group = %d;\n"
               "struct Args {\n    float *kept, *left, *sums, *carry;\n"
               "    i64 rows, tokens, each, from;\n"
               "    int nkept, begins, ends;\n    Divisor by_tokens;\n"
               "    Arg arg[%d];\n};\n", nvrtc_unfused, k->each, k->threads,
               k->group, PASS_ARGS);
    source_indent(&b, raw.s);
    return b.s;
}
