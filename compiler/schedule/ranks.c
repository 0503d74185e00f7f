/* ranks.c -- several writes or reads a token, as rows of a chunk.
 *
 * In the plan that is made here ranks are no axes: a token has `rows` rows, one
 * a rank, side by side, and a chunk so much fewer tokens. Rows are a power of
 * 2: of three ranks the fourth row is **empty**, memory has none of it; what is
 * added up over ranks is zero there. Values of more ranks than a token's rows
 * have are several, of so many ranks each. What had no ranks has rows, too,
 * of which its **form** tells what they are. Matrices are loaded, and results
 * stored, in a token's first row; sums over tokens count each once. What has
 * ranks and no tokens, a constant, its gradient, a state that a token finds of
 * the one before, is as many values, one a rank: beside tokens each row has its
 * own, before the first token they are the rows.
 */
#include "ranks.h"
#include "rank_empty.h"

#define RANK_ROWS (ROW_AXES & ~AXIS(AX_I))
#define RANK_COLS (COL_AXES & ~AXIS(AX_J))
#define RANKS (RANK_ROWS | RANK_COLS)

/* MOST_ROWS: of a token; a warp has them in a vector. EIGHT_ROWS: of a matrix,
 * whose rows threads of a warp exchange. */
enum { MOST_ROWS = 32, EIGHT_ROWS = 8, MOST_GROUPS = 4 };

/* Rows of tokens, and columns. */
typedef enum Side { OF_ROWS, OF_COLS, NSIDES } Side;

/* What the rows of a token have: all the same, or there are none; each its own;
 * the first the value and others zero, or anything; a value that is the sum of
 * them. APART: ranks without tokens, a node each. */
typedef enum Form { SAME, EACH, FIRST, LOOSE, PARTS, APART } Form;

/* part: of what is APART the nodes, of which `node` is the first. */
typedef struct Image {
    Ref node;
    uint8_t form[NSIDES];
    const Ref *part;
} Image;

typedef struct Rows {
    Graph *g;
    const Graph *old;
    int rows, ranks;                    /* of a token; of these rows so many
                                           are a rank's, others are empty */
    AxisSet own;                        /* of the variant's, that are ranks */
    Image *memo;                        /* per node, group of its ranks as rows,
                                           as columns */
    const Ref **apart;                  /* per node, of ranks without tokens */
    Empty empty;
    bool fails;
} Rows;

static Image image_of(Rows *u, Ref r, int row, int col);

static Image impossible(Rows *u, Ref node)
{
    u->fails = true;
    return (Image){ node, { SAME, SAME }, NULL };
}

/* ---- ranks of the plan as it was ---- */

static AxisSet ranks_on(const Rows *u, AxisSet s, Side side)
{
    return s & (side == OF_COLS ? RANK_COLS : RANK_ROWS | u->own);
}

/* Whether rows have ranks of one axis at most, and so have columns. */
static bool has_one_axis(const Rows *u, AxisSet s)
{
    AxisSet rows = ranks_on(u, s, OF_ROWS), cols = ranks_on(u, s, OF_COLS);
    return !(rows & (rows - 1)) && !(cols & (cols - 1));
}

/* How many times `rows` ranks the node has. */
static int groups_of(const Rows *u, Ref r, Side side)
{
    AxisSet ranks = ranks_on(u, u->old->n[r].axes, side);
    return ranks ? axis_extent(u->old, r, lowest(ranks)) / u->ranks : 1;
}

/* ---- forms ---- */

static Image transposed(Rows *u, Image x, int op)
{
    const Node *n = &u->g->n[x.node];
    int back = op == OP_row ? OP_col : OP_row;
    Ref y = x.part ? x.node
          : n->op == back ? n->a[0] : op1(u->g, op, x.node);
    return (Image){ y, { x.form[OF_COLS], x.form[OF_ROWS] }, x.part };
}

static Ref of_rank(Rows *u, Ref r, int rank)
{
    bool matrix = u->g->n[r].axes & (DIM_AXES | AXIS(AX_J));
    u->fails |= matrix && u->rows > EIGHT_ROWS;
    return node_new(u->g, (Node){ .op = OP_ofrank, .a = { r },
                                  .index = (uint16_t)rank });
}

static Ref flag(Rows *u, int rank, Side side)
{
    Ref r = node_new(u->g, (Node){ .op = OP_isrank,
                                   .index = (uint16_t)rank });
    return side == OF_COLS ? op1(u->g, OP_col, r) : r;
}

static Ref joined_rows(Rows *u, const Ref *x);

/* x, with its value in each row of a token. */
static Image spread(Rows *u, Image x, Side side)
{
    if (x.form[side] <= EACH)
        return x;
    if (side == OF_COLS && x.part)
        return transposed(u, spread(u, transposed(u, x, OP_row), OF_ROWS),
                          OP_col);
    if (x.part)
        return (Image){ joined_rows(u, x.part), { EACH, SAME }, NULL };
    if (side == OF_COLS && u->g->n[x.node].axes & AXIS(AX_I))
        return impossible(u, x.node);
    if (side == OF_COLS)
        return transposed(u, spread(u, transposed(u, x, OP_row), OF_ROWS),
                          OP_col);
    Ref y = of_rank(u, x.node, 0);
    for (int i = 1; i < u->ranks && x.form[side] == PARTS; i++)
        y = op2(u->g, OP_add, y, of_rank(u, x.node, i));
    x.node = y;
    x.form[side] = SAME;
    return x;
}

/* x, whose rows of a token add up to its value. */
static Image counted_once(Rows *u, Image x, Side side)
{
    if (x.form[side] == FIRST || x.form[side] == PARTS)
        return x;
    x.node = op3(u->g, OP_where, flag(u, 0, side), x.node, num(u->g, 0));
    x.form[side] = FIRST;
    return x;
}

static int count(const Image *a, int n, Side side, Form form)
{
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i].form[side] == form;
    return sum;
}

/* ---- empty rows ---- */

/* x, and zeros in empty rows, or columns. */
static Ref without_empty(Rows *u, Ref x, Side side)
{
    for (int i = u->ranks; i < u->rows; i++)
        x = op3(u->g, OP_where, flag(u, i, side), num(u->g, 0), x);
    return x;
}

/* One of the factors is to be zero there, so that their product is. */
static void clear_empty(Rows *u, Image *a, int n, Side side)
{
    bool zero = u->ranks == u->rows;
    for (int i = 0; i < n; i++)
        zero |= is_empty_zero(&u->empty, a[i].node, side == OF_COLS);
    if (!zero)
        a[0].node = without_empty(u, a[0].node, side);
    u->fails |= u->empty.fails;
}

static void spread_all(Rows *u, Image *a, int n, Side side, Form but)
{
    for (int i = 0; i < n; i++)
        if (a[i].form[side] != but)
            a[i] = spread(u, a[i], side);
}

/* Products, of one that is a sum of its rows with one that all rows have. */
static Form form_of_product(Rows *u, Image *a, int n, Side side)
{
    int parts = count(a, n, side, PARTS);
    if (parts > 1)
        a[0] = spread(u, a[0], side);
    if (parts)
        spread_all(u, a, n, side, PARTS);
    return parts ? PARTS : count(a, n, side, FIRST) ? FIRST : LOOSE;
}

static Form form_of_sum(Rows *u, Image *a, int n, Side side)
{
    int first = count(a, n, side, FIRST), parts = count(a, n, side, PARTS);
    for (int i = 0; i < n && parts; i++)
        a[i] = counted_once(u, a[i], side);
    return parts ? PARTS : first == n ? FIRST : LOOSE;
}

/* Of an element-wise operation the form on one side; its operands are made such
 * that it has it. */
static Form form_of(Rows *u, int op, Image *a, int n, Side side)
{
    if (count(a, n, side, EACH)) {
        spread_all(u, a, n, side, EACH);
        return EACH;
    }
    if (count(a, n, side, SAME) == n)
        return SAME;
    switch (op) {
    case OP_mul: return form_of_product(u, a, n, side);
    case OP_add: case OP_sub: return form_of_sum(u, a, n, side);
    case OP_neg: return a[0].form[side];
    }
    for (int i = 0; i < n; i++)
        if (a[i].form[side] == PARTS)
            a[i] = spread(u, a[i], side);
    return count(a, n, side, SAME) == n ? SAME : LOOSE;
}

/* Of a node that has tokens. */
static void operands(Rows *u, const Node *n, Image a[4], int row, int col)
{
    for (int i = 0; i < 4; i++) {
        a[i] = n->a[i] ? image_of(u, n->a[i], row, col) : (Image){ 0 };
        if (a[i].part)
            a[i] = spread(u, a[i], a[i].form[OF_COLS] == APART ? OF_COLS
                                                              : OF_ROWS);
    }
}

/* The node with those operands. */
static Image computed_of(Rows *u, const Node *n, const Image a[4], Form row,
                     Form col)
{
    Node x = *n;
    for (int i = 0; i < 4; i++)
        x.a[i] = a[i].node;
    return (Image){ node_new(u->g, x), { (uint8_t)row, (uint8_t)col }, NULL };
}

static Image element_wise(Rows *u, const Node *n, int row, int col)
{
    Image a[4];
    Form form[NSIDES];
    operands(u, n, a, row, col);
    for (int side = 0; side < NSIDES; side++)
        form[side] = form_of(u, n->op, a, op_info[n->op].arity, (Side)side);
    return computed_of(u, n, a, form[OF_ROWS], form[OF_COLS]);
}

/* ---- sums and products ---- */

/* Operands of a sum over tokens, of which each counts once. */
static void count_tokens(Rows *u, Image *a, int n, Side side)
{
    if (count(a, n, side, PARTS)) {
        form_of_product(u, a, n, side);
        return;
    }
    for (int i = 0; i < n; i++)
        if (a[i].form[side] == LOOSE)
            a[i] = counted_once(u, a[i], side);
    if (!count(a, n, side, FIRST))
        a[0] = counted_once(u, a[0], side);
}

/* Operands of a sum over tokens that leaves each rank its own. */
static void count_rank(Rows *u, Image *a, int n, int rank)
{
    int at = a[0].form[OF_ROWS] != EACH;
    spread_all(u, a, n, OF_ROWS, EACH);
    a[at].node = op3(u->g, OP_where, flag(u, rank, OF_ROWS), a[at].node,
                     num(u->g, 0));
}

/* One group of the ranks that are added up; of what has tokens no more that of
 * a rank. */
static Image contracted_group(Rows *u, const Node *n, Image a[4], int rank)
{
    static const AxisSet token[NSIDES] = { AXIS(AX_I), AXIS(AX_J) };
    int terms = op_is(n->op, MULTIPLIES) ? 2 : 1;
    for (int i = 2; i < 4; i++)         /* decays: a token's */
        if (n->a[i] && (a[i].form[OF_ROWS] != SAME
                        || a[i].form[OF_COLS] != SAME))
            return impossible(u, a[i].node);
    Form form[NSIDES] = { SAME, SAME };
    Node x = *n;
    x.over &= ~(RANKS | u->own);
    for (int i = 0; i < NSIDES; i++) {
        Side side = (Side)i;
        bool ranks = ranks_on(u, n->over, side), tokens = n->over & token[i];
        if (ranks) {
            spread_all(u, a, terms, side, EACH);
            clear_empty(u, a, terms, side);
            form[i] = tokens ? SAME : PARTS;
        } else if (!tokens) {
            form[i] = form_of(u, OP_mul, a, terms, side);
        } else if (count(a, terms, side, EACH)) {
            if (rank < 0 || side != OF_ROWS)
                return impossible(u, a[0].node);
            count_rank(u, a, terms, rank);
        } else {
            count_tokens(u, a, terms, side);
        }
    }
    for (int i = 0; i < 4; i++)
        x.a[i] = i < 2 || n->a[i] ? a[i].node : 0;
    Ref r = x.over ? node_new(u->g, x)
          : terms > 1 ? op2(u->g, OP_mul, x.a[0], x.a[1]) : x.a[0];
    return (Image){ r, { (uint8_t)form[0], (uint8_t)form[1] }, NULL };
}

static Image contracted(Rows *u, const Node *n, int row, int col)
{
    if (!has_one_axis(u, u->old->n[n->a[0]].axes | u->old->n[n->a[1]].axes))
        return impossible(u, n->a[0]);
    bool rows = ranks_on(u, n->over, OF_ROWS);
    bool cols = ranks_on(u, n->over, OF_COLS);
    int many[NSIDES] = { rows ? groups_of(u, n->a[0], OF_ROWS) : 1,
                         cols ? groups_of(u, n->a[0], OF_COLS) : 1 };
    Image sum = { 0 };
    for (int i = 0; i < many[0] * many[1]; i++) {
        Image a[4];
        operands(u, n, a, rows ? i / many[1] : row, cols ? i % many[1] : col);
        Image x = contracted_group(u, n, a, NOTHING);
        x.node = i ? op2(u->g, OP_add, sum.node, x.node) : x.node;
        sum = x;
    }
    return sum;
}

/* ---- along tokens ---- */

/* (1 - a)^-1 b: tokens that have one row leave alone the others. */
static Image solved(Rows *u, const Node *n)
{
    Image a[4];
    operands(u, n, a, 0, 0);
    if (groups_of(u, n->a[0], OF_ROWS) > 1
        || groups_of(u, n->a[0], OF_COLS) > 1)
        return impossible(u, a[1].node);
    for (int i = 0; i < NSIDES; i++)
        if (a[0].form[i] != EACH)
            return impossible(u, a[0].node);
    for (int i = 0; i < NSIDES; i++)
        clear_empty(u, a, 1, (Side)i);
    a[1] = spread(u, a[1], OF_ROWS);
    return computed_of(u, n, a, EACH, SAME);
}

/* A token's rows one after another, as its ranks are. */
static Image later_rows(Rows *u, Ref r)
{
    if (groups_of(u, r, OF_ROWS) > 1)
        return impossible(u, r);
    return (Image){ later(u->g, 0), { EACH, EACH }, NULL };
}

/* Of vectors, those that are the same for all ranks; of scores: their columns
 * are what those are that are added up, beside gates that all columns have. */
static Image vector_along(Rows *u, const Node *n, Image a[4])
{
    int of = n->a[1] != 0;
    Form cols = a[of].form[OF_COLS];
    for (int i = 0; i < 4; i++)
        if (n->a[i] && i != of && cols != SAME
            && (a[i].form[OF_COLS] != SAME
                || (i == 2 && !is_num(u->g, a[i].node, 0))))
            return impossible(u, a[i].node);
    for (int i = 0; i < 4; i++) {
        a[i] = spread(u, a[i], OF_ROWS);
        if (a[i].form[OF_ROWS] == EACH)
            return impossible(u, a[i].node);
    }
    if (n->op == OP_maxscan)
        return impossible(u, a[1].node);
    if (of) {
        Ref once = flag(u, n->flags & REVERSE ? u->rows - 1 : 0, OF_ROWS);
        if (n->a[0])
            a[0].node = op3(u->g, OP_where, once, a[0].node, num(u->g, 1));
        a[1].node = op3(u->g, OP_where, once, a[1].node, num(u->g, 0));
    }
    return computed_of(u, n, a, SAME, cols);
}

/* Of matrices, whose first rows alone count: all rows of a token have its sum;
 * back, with itself, the first has, to which all rows may give a part. The
 * largest so far is that whichever rows count, of gates that add up. */
static Image matrix_along(Rows *u, const Node *n, Image a[4])
{
    int of = n->a[1] != 0;              /* what is added up */
    bool back = n->flags & REVERSE, without = n->flags & EXCLUSIVE;
    bool most = is_running_most(n->op);
    if (a[of].form[OF_ROWS] == EACH || a[of].form[OF_COLS] != SAME
        || (most && a[of].form[OF_ROWS] != SAME))
        return impossible(u, a[of].node);
    if (a[of].form[OF_ROWS] == PARTS && !(adds_tokens(n->op) && back
                                          && !without))
        a[of] = spread(u, a[of], OF_ROWS);
    a[of] = most ? a[of] : counted_once(u, a[of], OF_ROWS);
    if (of && n->a[0]) {
        a[0] = spread(u, a[0], OF_ROWS);
        if (a[0].form[OF_ROWS] == EACH)
            return impossible(u, a[0].node);
        a[0].node = op3(u->g, OP_where, flag(u, 0, OF_ROWS), a[0].node,
                        num(u->g, most ? 0 : 1));
    }
    return computed_of(u, n, a, back && !without ? LOOSE : SAME, SAME);
}

static Image along_tokens(Rows *u, const Node *n)
{
    Image a[4];
    bool matrix = false;
    operands(u, n, a, 0, 0);
    for (int i = 0; i < 4; i++)
        matrix |= u->g->n[a[i].node].axes & DIM_AXES;
    return matrix ? matrix_along(u, n, a) : vector_along(u, n, a);
}

/* ---- ranks without tokens ---- */

enum { MOST_APART = MOST_GROUPS * MOST_GROUPS };

static AxisSet ranks_of(const Rows *u, AxisSet s)
{
    return s & (RANKS | u->own) & ~(AXIS(AX_I) | AXIS(AX_J));
}

static bool of_tokens(AxisSet s)
{
    return s & (AXIS(AX_I) | AXIS(AX_J));
}

static bool has_ranks_alone(const Rows *u, const Node *n)
{
    return ranks_of(u, n->axes) && !of_tokens(n->axes) && !is_one_hot(n->op);
}

static int count_ranks(const Rows *u, Ref r, AxisSet ranks)
{
    return axis_extent(u->old, r, lowest(ranks));
}

/* Of the last token each rank's. */
static bool last_apart(Rows *u, const Node *n, int ranks, Ref *part)
{
    for (int i = ranks - 1; i >= 0; i--) {
        Image x = image_of(u, n->a[0], i / u->ranks, 0);
        if (x.form[OF_ROWS] != EACH || x.form[OF_COLS] != SAME)
            return false;
        part[i] = last_row(u->g, of_rank(u, x.node, i % u->ranks), n->flags);
    }
    return true;
}

/* What has no tokens, at a rank of those that it may have. */
static Ref entry_of(Rows *u, Ref r, int rank)
{
    const Node *n = &u->old->n[r];
    if (!r)
        return 0;
    if (is_one_hot(n->op) && ranks_of(u, n->axes))
        return num(u->g, n->index == rank);
    Image x = image_of(u, r, 0, 0);
    if (x.part)
        return u->apart[r][rank];
    return of_tokens(u->g->n[x.node].axes) ? impossible(u, x.node).node
                                            : x.node;
}

static bool has_token_operand(const Rows *u, const Node *n)
{
    bool any = false;
    for (int i = 0; i < 4; i++)
        any |= n->a[i] && of_tokens(u->old->n[n->a[i]].axes);
    return any;
}

/* The node, of operands that have no tokens, at a rank of these. */
static Ref computed_at(Rows *u, const Node *n, int rank)
{
    Node x = *n;
    for (int i = 0; i < 4; i++)
        x.a[i] = entry_of(u, n->a[i], rank);
    x.over &= ~ranks_of(u, x.over);
    if (x.over || !(op_is(n->op, FOLDS)))
        return node_new(u->g, x);
    return op_is(n->op, MULTIPLIES) ? op2(u->g, OP_mul, x.a[0], x.a[1])
                                    : x.a[0];
}

/* A sum over tokens, or over what is no rank, at a rank that the result has. */
static Ref contracted_at(Rows *u, const Node *n, int rank)
{
    Image a[4];
    if (!has_one_axis(u, u->old->n[n->a[0]].axes | u->old->n[n->a[1]].axes))
        return impossible(u, n->a[0]).node;
    operands(u, n, a, rank / u->ranks, 0);
    Image x = contracted_group(u, n, a, rank % u->ranks);
    if (x.form[OF_ROWS] != SAME || x.form[OF_COLS] != SAME)
        return impossible(u, x.node).node;
    return x.node;
}

static Ref joined_operand(const Rows *u, Ref r, AxisSet axis, int *at);
static Ref taken_of(const Rows *u, Ref r, AxisSet axis, int *at);

static Ref rank_computed(Rows *u, Ref r, int rank)
{
    const Node *n = &u->old->n[r];
    bool ranked = ranks_of(u, n->over);
    bool products = op_is(n->op, MULTIPLIES) && !is_plain_contraction(n->op);
    if (op_is(n->op, VIEWS) || (ranked && op_is(n->op, RENAMES)))
        return entry_of(u, n->a[0], rank);
    if (ranked && (op_has(n->op, LEN) || op_is(n->op, JOINS))) {
        Ref a = op_has(n->op, LEN) ? taken_of(u, r, n->over, &rank)
                                   : joined_operand(u, r, n->over, &rank);
        return entry_of(u, a, rank);
    }
    if (products || is_counted(n->op))
        return impossible(u, r).node;
    if (!ranked && op_is(n->op, ADDS_UP) && has_token_operand(u, n))
        return contracted_at(u, n, rank);
    if (ranked || has_token_operand(u, n))
        return impossible(u, r).node;
    return computed_at(u, n, rank);
}

static void make_apart(Rows *u, Ref r)
{
    const Node n = u->old->n[r];
    AxisSet ranks = ranks_of(u, n.axes);
    int many = count_ranks(u, r, ranks);
    Ref *part = ctx_alloc(u->g->ctx, MOST_APART * sizeof *part);
    u->apart[r] = part;
    u->g->line = n.line;
    bool ok = many <= MOST_APART && many % u->ranks == 0;
    if (ok && n.op == OP_state)
        ok = states_apart(u->g, r, many, part);
    else if (ok && n.op == OP_input)
        ok = inputs_apart(u->g, r, many, part);
    else if (ok && op_is(n.op, ONE_ROW))
        ok = last_apart(u, &n, many, part);
    else
        for (int i = 0; i < many && ok; i++)
            part[i] = rank_computed(u, r, i);
    u->fails |= !ok;
}

static Image image_apart(Rows *u, Ref r, int row, int col)
{
    AxisSet axes = u->old->n[r].axes;
    bool cols = ranks_on(u, axes, OF_COLS);
    if (!u->apart[r])
        make_apart(u, r);
    const Ref *part = u->apart[r] + (cols ? col : row) * u->ranks;
    return (Image){ part[0], { cols ? SAME : APART, cols ? APART : SAME },
                    part };
}

/* The sum, over ranks, of what has no tokens. */
static Image summed_apart(Rows *u, const Node *n)
{
    AxisSet ranks = ranks_of(u, n->over | u->old->n[n->a[0]].axes
                                | u->old->n[n->a[1]].axes);
    bool first = ranks_of(u, u->old->n[n->a[0]].axes) & ranks;
    int many = count_ranks(u, n->a[!first], ranks);
    Ref y = 0;
    for (int i = 0; i < many; i++) {
        Ref x = computed_at(u, n, i);
        y = y ? op2(u->g, OP_add, y, x) : x;
    }
    return ranks & (ranks - 1) ? impossible(u, y)
                               : (Image){ y, { SAME, SAME }, NULL };
}

/* Beside zeros behind it, or before, the token that each rank has of a state.
 */
static Ref before_first(Rows *u, const Ref *state, int flags)
{
    Graph *g = u->g;
    Ref y = 0;
    for (int i = u->ranks - 1; i >= 0; i--) {
        Ref x = delay(g, cumsum(g, num(g, 0), 0), state[i], flags);
        y = y ? op3(g, OP_where, flag(u, i, OF_ROWS), x, y) : x;
    }
    return y;
}

static Image delayed_apart(Rows *u, const Node *n, Image x, const Ref *state)
{
    Graph *g = u->g;
    if (x.form[OF_ROWS] != EACH)
        x = spread(u, x, OF_ROWS);
    if (x.form[OF_COLS] != SAME)
        return impossible(u, x.node);
    Ref y = before_first(u, state, n->flags);
    if (g->n[x.node].axes & DIM_AXES)   /* else it is zeros */
        y = op2(g, OP_add, y, delay(g, x.node, num(g, 0), n->flags));
    return (Image){ y, { EACH, SAME }, NULL };
}

static bool is_zero(const Graph *g, Ref r)
{
    return is_num(g, adds_tokens(g->n[r].op) ? g->n[r].a[0] : r, 0);
}

static Image delayed(Rows *u, const Node *n, int row, int col)
{
    Image a[4];
    Image b = image_of(u, n->a[1], row, col);
    if (b.form[OF_ROWS] == APART)
        return delayed_apart(u, n, image_of(u, n->a[0], row, col), b.part);
    operands(u, n, a, row, col);
    if (a[0].form[OF_ROWS] == LOOSE || a[0].form[OF_ROWS] == PARTS)
        a[0] = spread(u, a[0], OF_ROWS);
    Form cols = a[is_zero(u->g, a[0].node)].form[OF_COLS];
    if (!is_zero(u->g, a[1].node) && a[1].form[OF_COLS] != cols)
        return impossible(u, a[1].node);
    return computed_of(u, n, a, a[0].form[OF_ROWS], cols);
}

static Image last(Rows *u, Ref r)
{
    Image a[4];
    const Node *n = &u->old->n[r];
    operands(u, n, a, 0, 0);
    bool first = n->flags & REVERSE;    /* it is a token's first row */
    if (!first || a[0].form[OF_ROWS] == PARTS)
        a[0] = spread(u, a[0], OF_ROWS);
    if (a[0].form[OF_ROWS] == EACH)
        return impossible(u, a[0].node);
    return computed_of(u, n, a, SAME, a[0].form[OF_COLS]);
}

/* ---- what joins ranks, and takes them apart ---- */

/* What has x[j] in a token's row j, each of which all rows have; of empty rows
 * nothing is known. */
static Ref joined_rows(Rows *u, const Ref *x)
{
    const Node n = u->g->n[x[0]];
    int elements = op_info[n.op].traits & ELEMENTWISE ? op_info[n.op].arity : 0;
    bool same = true, whole = n.op == OP_ofrank, alike = elements > 0;
    for (int j = 0; j < u->ranks; j++) {
        const Node *m = &u->g->n[x[j]];
        same &= x[j] == x[0];
        whole &= m->op == OP_ofrank && m->index == j && m->a[0] == n.a[0];
        alike &= m->op == n.op;
    }
    if (same)
        return x[0];
    if (whole)
        return n.a[0];
    Node to = n;
    for (int i = 0; i < elements && alike; i++) {
        Ref a[MOST_ROWS];
        for (int j = 0; j < u->ranks; j++)
            a[j] = u->g->n[x[j]].a[i];
        to.a[i] = joined_rows(u, a);
    }
    if (alike)
        return node_new(u->g, to);
    Ref y = x[u->ranks - 1];
    for (int j = u->ranks - 2; j >= 0; j--)
        y = op3(u->g, OP_where, flag(u, j, OF_ROWS), x[j], y);
    return y;
}

/* Of a chain of joins the operand that has rank *at, of which it is the
 * number *at from then on. */
static Ref joined_operand(const Rows *u, Ref r, AxisSet axis, int *at)
{
    const Node *n = &u->old->n[r];
    if (!op_is(n->op, JOINS) || n->over != axis)
        return r;
    int before = axis_extent(u->old, n->a[0], lowest(axis));
    if (*at < before)
        return joined_operand(u, n->a[0], axis, at);
    *at -= before;
    return joined_operand(u, n->a[1], axis, at);
}

static Image joined(Rows *u, Ref r, int row, int col)
{
    AxisSet axis = u->old->n[r].over;
    Ref x[MOST_ROWS];
    for (int j = 0; j < u->ranks; j++) {
        int at = row * u->ranks + j;
        Ref a = joined_operand(u, r, axis, &at);
        bool ranked = u->old->n[a].axes & axis;
        if (ranked && j == 0 && at % u->ranks == 0
            && at + u->ranks <= axis_extent(u->old, a, lowest(axis)))
            return image_of(u, a, at / u->ranks, col);
        Image y = spread(u, image_of(u, a, 0, col), OF_ROWS);
        if (ranked || y.form[OF_COLS] != SAME)
            return impossible(u, y.node);
        x[j] = y.node;
    }
    return (Image){ joined_rows(u, x), { EACH, SAME }, NULL };
}

/* Of parts of parts what they are taken of, and at which rank of it *at is. */
static Ref taken_of(const Rows *u, Ref r, AxisSet axis, int *at)
{
    const Node *n = &u->old->n[r];
    if (!op_has(n->op, LEN) || n->over != axis)
        return r;
    *at += n->index;
    return taken_of(u, n->a[0], axis, at);
}

/* Rank `index` of an axis that is of rows. */
static Image selected(Rows *u, const Node *n, int row, int col)
{
    bool cols = n->over & RANK_COLS;
    int at = n->index;
    Ref a = taken_of(u, n->a[0], n->over, &at);
    int group = at / u->ranks, rank = at % u->ranks;
    Image x = image_of(u, a, cols ? row : group, cols ? group : col);
    if (x.part)
        return (Image){ x.part[rank], { SAME, SAME }, NULL };
    if (cols && u->g->n[x.node].axes & AXIS(AX_I))
        return impossible(u, x.node);
    if (cols)
        x = transposed(u, x, OP_row);
    x.node = of_rank(u, x.node, rank);
    x.form[OF_ROWS] = SAME;
    return cols ? transposed(u, x, OP_col) : x;
}

static Image part_of(Rows *u, const Node *n, int row, int col)
{
    int at = n->index;
    Ref a = taken_of(u, n->a[0], n->over, &at);
    int from = at / u->ranks;
    if (at % u->ranks)
        return impossible(u, a);
    return image_of(u, a, n->over & RANK_ROWS ? row + from : row,
                    n->over & RANK_COLS ? col + from : col);
}

static Image unit_rank(Rows *u, const Node *n, int row)
{
    int rank = n->index - row * u->ranks;
    if (rank < 0 || rank >= u->ranks)
        return (Image){ num(u->g, 0), { SAME, SAME }, NULL };
    return (Image){ flag(u, rank, OF_ROWS), { EACH, SAME }, NULL };
}

/* ---- any node ---- */

/* Memory has as many ranks as a token has rows. */
static Image found(Rows *u, Ref r)
{
    const Node *n = &u->old->n[r];
    const Input *in = &u->old->in[n->index];
    bool timed = n->op == OP_input && in->timed;
    if (groups_of(u, r, OF_ROWS) > 1)
        return impossible(u, r);
    Form form = !timed ? SAME : in->axes & u->own ? EACH
              : in->axes ? FIRST : SAME;
    return (Image){ r, { (uint8_t)form, SAME }, NULL };
}

static Image image_new(Rows *u, Ref r, int row, int col)
{
    Node n = u->old->n[r];
    AxisSet ranks = RANKS | u->own;
    u->g->line = n.line;
    if (op_is(n.op, RECURS))            /* of matrices there are no rows */
        return op_has(n.op, TO_AXIS) || is_decayed_system(n.op)
             ? impossible(u, r) : along_tokens(u, &n);
    if (op_is(n.op, GIVEN | CONST) && !op_has(n.op, OVER))
        return found(u, r);
    if (op_is(n.op, ADDS_UP))
        return ranks_of(u, n.over) && !has_token_operand(u, &n)
             ? summed_apart(u, &n) : contracted(u, &n, row, col);
    if (op_is(n.op, MULTIPLIES))
        return solved(u, &n);
    if (is_mask(n.op) && n.over)
        return later_rows(u, r);
    if (op_is(n.op, ELEMENTWISE | MASKS))
        return element_wise(u, &n, row, col);
    if (op_is(n.op, SHIFTS))
        return delayed(u, &n, row, col);
    if (op_is(n.op, ONE_ROW))
        return last(u, r);
    if (op_is(n.op, VIEWS))
        return transposed(u, image_of(u, n.a[0], col, row), n.op);
    if (op_is(n.op, JOINS))
        return joined(u, r, row, col);
    if (op_is(n.op, RENAMES) && (n.over | AXIS(n.index)) & ranks)
        return image_of(u, n.a[0], row, col);
    if (n.over & ranks && is_one_hot(n.op))
        return unit_rank(u, &n, row);
    if (n.over & ranks && op_is(n.op, MOVES))
        return op_has(n.op, LEN) ? part_of(u, &n, row, col)
                                 : selected(u, &n, row, col);
    if (is_counted(n.op) || ranks_of(u, n.over))
        return impossible(u, r);
    Image a[4];                         /* of each row by itself */
    operands(u, &n, a, row, col);
    return computed_of(u, &n, a, a[0].form[OF_ROWS], a[0].form[OF_COLS]);
}

/* Node r's ranks from `row` times `ranks` on, and those of columns. */
static Image image_of(Rows *u, Ref r, int row, int col)
{
    AxisSet axes = u->old->n[r].axes;
    row = ranks_on(u, axes, OF_ROWS) ? row : 0;
    col = ranks_on(u, axes, OF_COLS) ? col : 0;
    if (u->fails || row >= MOST_GROUPS || col >= MOST_GROUPS
        || !has_one_axis(u, axes))
        return impossible(u, r);
    if (has_ranks_alone(u, &u->old->n[r]))
        return image_apart(u, r, row, col);
    Image *x = &u->memo[(r * MOST_GROUPS + (size_t)row) * MOST_GROUPS
                        + (size_t)col];
    if (!x->node)
        *x = image_new(u, r, row, col);
    return *x;
}

/* ---- the plan ---- */

/* Axes of the variant's that become ranks, or are made of such. */
static AxisSet own_ranks(const Graph *g)
{
    AxisSet own = 0;
    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        if (op_is(n->op, RENAMES) && op_has(n->op, TO_AXIS)
            && (AXIS(n->index) | n->over) & RANKS)
            own |= (AXIS(n->index) | n->over) & DIM_AXES;
        if (op_is(n->op, MOVES) && op_is(n->op, FOLDS)
            && g->n[n->a[0]].op == OP_input)
            own |= n->over & DIM_AXES;
    }
    return own;
}

/* Of each node whether it joins ranks for joins of more alone, or is a part of
 * which only parts are taken: those go by what it joins, or is part of, so that
 * it has no rows of its own. */
static bool *find_between(const Graph *g)
{
    bool *between = ctx_alloc(g->ctx, g->len * sizeof *between);
    for (Ref r = 1; r < g->len; r++)
        between[r] = (op_is(g->n[r].op, JOINS) || op_has(g->n[r].op, LEN))
                  && !graph_is_root(g, r);
    for (Ref r = 1; r < g->len; r++)
        for (int i = 0; i < 4; i++) {
            const Node *n = &g->n[r], *a = &g->n[n->a[i]];
            between[n->a[i]] &= n->over == a->over
                && (n->op == a->op
                    || (op_is(n->op, FOLDS) && op_is(n->op, MOVES)
                        && op_has(a->op, LEN)));
        }
    return between;
}

/* The least ranks that a value has; 1: none has any, 0: others are no multiple
 * of them. */
static int least_ranks(const Graph *g, AxisSet own, const bool *between)
{
    int ranks = 0;
    for (int round = 0; round < 2; round++)
        for (Ref r = 1; r < g->len; r++)
            for (int ax = AX_R; ax < NAXES; ax++) {
                if (!(g->n[r].axes & (RANKS | own) & AXIS(ax)) || between[r])
                    continue;
                int n = axis_extent(g, r, ax);
                if (round && n % ranks)
                    return 0;
                ranks = !ranks || n < ranks ? n : ranks;
            }
    return ranks > 1 ? ranks : !ranks;
}

const char *ranks_fault(Ctx *c, const Graph *g)
{
    int ranks = least_ranks(g, own_ranks(g), find_between(g));

    return ranks <= MOST_ROWS ? NULL
         : ctx_format(c, "%d ranks of a token: of up to %d, which a warp has "
                      "in a vector, each is a row", ranks, MOST_ROWS);
}

static int rows_for(int ranks)
{
    int rows = 1;
    while (rows < ranks)
        rows *= 2;
    return rows;
}

static bool begin(Rows *u, int chunk)
{
    Graph *g = u->g;
    if (!take_ranks(g, u->own))
        return false;
    for (int ax = AX_R; ax < AX_DIM; ax++)
        g->axis[ax].size = 0;
    g->chunk = chunk;
    g->rows = u->rows;
    g->ranks = u->ranks;
    g->axis[AX_I].size = g->axis[AX_J].size = chunk;
    return true;
}

static void leave_state(Rows *u, int i)
{
    State *s = &u->g->st[i];
    int of = s->part_of ? s->part_of - 1 : i;
    Ref next = u->old->st[of].next;
    if (!next)
        return;
    Image x = image_of(u, next, 0, 0);
    if (x.part && !s->part_of)
        impossible(u, x.node);
    s->next = entry_of(u, next, s->part);
}

const Plan *plan_ranks_as_rows(Ctx *c, const Plan *p, int chunk)
{
    Rows u = { .g = graph_copy(c, p->g), .old = p->g };
    const bool *between = find_between(p->g);
    u.own = own_ranks(p->g);
    u.ranks = least_ranks(p->g, u.own, between);
    u.rows = rows_for(u.ranks);
    if (u.rows < 2 || u.ranks > MOST_ROWS || !begin(&u, chunk))
        return p;
    u.empty = (Empty){ .g = u.g };
    size_t each = MOST_GROUPS * MOST_GROUPS;
    Ref *image = ctx_alloc(c, p->g->len * each * sizeof *image);
    u.memo = ctx_alloc(c, p->g->len * each * sizeof *u.memo);
    u.apart = ctx_alloc(c, p->g->len * sizeof *u.apart);
    for (Ref r = 1; r < p->g->len && !u.fails; r++)
        for (int i = 0; i < groups_of(&u, r, OF_ROWS) && !between[r]; i++)
            for (int j = 0; j < groups_of(&u, r, OF_COLS); j++)
                image_of(&u, r, i, j);
    for (int i = 0; i < p->g->nout && !u.fails; i++) {
        Ref r = p->g->out[i].node;
        Image x = image_of(&u, r, 0, 0);
        if (groups_of(&u, r, OF_ROWS) > 1)
            impossible(&u, r);
        if (x.form[OF_ROWS] == PARTS) { /* by who computes the parts */
            x = spread(&u, x, OF_ROWS);
            u.memo[r * each + each - 1] = x;
        }
        u.g->out[i].node = x.node;
    }
    for (int i = 0; i < u.g->nst && !u.fails; i++)
        leave_state(&u, i);
    if (u.fails)
        return p;
    for (size_t i = 0; i < p->g->len * each; i++) {
        const Ref *part = u.apart[i / each];
        image[i] = part ? part[i % each] : u.memo[i].node;
    }
    return plan_renewed(p, u.g, image, each);
}
