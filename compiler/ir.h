/* ir.h -- the graph: values with named axes.
 *
 * One type of graph serves twice. A **step graph** (chunk == 0) is what the
 * user wrote, one token: `input` and `state` nodes, element-wise operations,
 * contractions; roots are each state's next value and y. A **chunk graph**
 * (chunk == C) is the same mathematics for C tokens at once: values gain the
 * token axis i (rows; columns of a score matrix are j), `state` is the state
 * as the chunk finds it, and the roots are y for all its tokens and the
 * states as the chunk leaves them.
 *
 * A value's axes are a set; its canonical order, in which it is stored where
 * nobody says otherwise, is by axis number: i, row ranks, j, column ranks,
 * then the variant's own axes in the order in which they were declared.
 * Operands broadcast by name, so an outer product is a `mul`.
 *
 * Making a node folds constants, applies the rules (rules.def), and shares
 * equal nodes; hence node identity is equality. Operands always precede their
 * users. References are indices: the array may move.
 */
#ifndef FLIN_IR_H
#define FLIN_IR_H

#include "base.h"

typedef uint32_t Ref;                   /* a node; 0: absent */
typedef uint32_t AxisSet;
typedef uint64_t StateSet;

enum {
    AX_I = 0,                           /* token in chunk, row */
    AX_R = 1, NRANKS = 3,               /* rank axes of rows: 1 .. 3 */
    AX_J = 4,                           /* token in chunk, column */
    AX_RJ = 5,                          /* their twins in columns: 5 .. 7 */
    AX_DIM = 8,                         /* the variant's axes from here */
    NAXES = 32
};
#define AXIS(n) ((AxisSet)1 << (n))
#define STATE(n) ((StateSet)1 << (n))
#define ROW_AXES ((AxisSet)0x0f)        /* i and the row ranks */
#define COL_AXES ((AxisSet)0xf0)
#define DIM_AXES ((AxisSet)~0xffu)

/* The lowest and the highest axis of a set; -1: it has none. */
static inline int lowest(AxisSet s)
{
    return __builtin_ffs((int)s) - 1;
}

static inline int highest(AxisSet s)
{
    return s ? 31 - __builtin_clz(s) : -1;
}

enum { MAX_INPUTS = 128, MAX_STATES = 64, MAX_OUTPUTS = 128,
       MAX_RESULTS = 16,                /* of a step */
       MAX_NODES = 20000,
       MAX_DEPTH = 4000 };              /* of expressions: of the stack */

enum Op {
#define ELEM(name, arity, traits, value, ga, gb, gc) OP_##name,
#define OP(name, arity, traits, form, axes, extent, kind, value, asks, back) \
    OP_##name,
#include "ops.def"
    NOPS
};

enum Trait {
    COMM = 1,                           /* operands may be exchanged */
    POS = 2,                            /* never negative */
    ELEMENTWISE = 4,
    ADDITIVE = 8,                       /* in all operands together */
    CONST = 16,                         /* comes from nowhere */
    GIVEN = 32,                         /* comes from memory */
    MOVES = 64,                         /* entries of the operand, elsewhere */
    RENAMES = 128,                      /* all of them, under other names */
    PAIRS = 256,                        /* of neighbouring entries */
    FOLDS = 512,                        /* an axis becomes one number */
    WHOLE_ROW = 1024,                   /* that, and passes over rows alone */
    MULTIPLIES = 2048,                  /* may be one of matrices */
    RECURS = 4096,                      /* a token's needs the one before it */
    OF_RANKS = 8192,                    /* schedules' plans have it alone */
    OF_MOST = 16384,                    /* the largest entry; in steps, too */
    ONE_ROW = 32768,                    /* the chunk's last token's; REVERSE:
                                           its first's */
    JOINS = 65536,                      /* its operands side by side */
    MASKS = 131072,                     /* zero where the column is a later
                                           token */
    ADDS_UP = 262144,                   /* over `over` */
    SHIFTS = 524288,                    /* a token's row is the one before's */
    SPREADS = 1048576,                  /* an entry for both of a pair */
    VIEWS = 2097152,                    /* tokens' rows as columns, or back */
    BOUNDED = 4194304,                  /* not infinite of what is */
    HARD = 8388608                      /* by a unit of functions, or slow */
};

/* Node flags, each for the operations that ops.def names. */
enum Flag { STRICT = 1, EXCLUSIVE = 2, REVERSE = 4, TRANS = 8,
            WRAP = 16,                  /* scan: tile holds s mod 2 pi */
            LATER = 32 };               /* of a token's ranks, too */
enum { NFLAGS = 6, ANY_FLAG = (1 << NFLAGS) - 1 };
extern const char *const flag_name[NFLAGS];

/* What the text form has of a node, beside flags. */
enum Attribute {
    OVER = 64, TO_AXIS = 128,           /* axes; axis `index` */
    INDEX = 256, LEN = 512,             /* `index`, `num` */
    ABSENT_A = 1024, ABSENT_B = 2048    /* that operand may be absent */
};

typedef struct OpInfo {
    const char *name;
    uint8_t arity;
    uint16_t form;
    uint32_t traits;
    const char *value;                  /* C text, as ops.def says */
    const char *grad[3];
} OpInfo;
extern const OpInfo op_info[NOPS];

static inline bool op_is(int op, unsigned traits)
{
    return op_info[op].traits & traits;
}

static inline bool op_has(int op, unsigned form)
{
    return op_info[op].form & form;
}

/* The value of an element-wise operation on numbers. */
double elem_value(int op, double a, double b, double c);
/* What one along tokens holds after a token that found s. */
double next_value(int op, double s, bool gated, double a, double b);

typedef struct Node {
    uint8_t op, flags;
    uint16_t index;
    AxisSet axes;                       /* of the result */
    AxisSet over;
    Ref a[4];
    double num;                         /* op num */
    int32_t line;                       /* in the user's script; 0: none */
    StateSet states;                    /* that it depends on */
    uint16_t depth;                     /* operations on the longest way in */
    uint8_t timed;                      /* differs from token to token */
} Node;

/* A sum of products of two operands: as they are, or under decays. */
static inline bool is_contraction(int op)
{
    return op_is(op, ADDS_UP) && op_is(op, MULTIPLIES);
}

static inline bool is_decayed_contraction(int op)
{
    return is_contraction(op) && op_is(op, MASKS);
}

static inline bool is_plain_contraction(int op)
{
    return is_contraction(op) && !op_is(op, MASKS);
}

/* What has no operands and an axis: 0, 1, 2 ... along it, or one entry. */
static inline bool is_counted(int op)
{
    return op_is(op, CONST) && op_has(op, OVER) && !op_has(op, INDEX);
}

static inline bool is_one_hot(int op)
{
    return op_is(op, CONST) && op_has(op, INDEX);
}

/* What a mask of tokens lets through: one, or what is left of gates. */
static inline bool is_mask(int op)
{
    return op_is(op, MASKS) && !op_is(op, MULTIPLIES);
}

/* The running sum of the tokens' rows. */
static inline bool adds_tokens(int op)
{
    return op_is(op, RECURS) && op_is(op, ADDITIVE);
}

/* Along the tokens: what is left of the token before and the token's own; the
 * larger of both; what a matrix of the token makes of it. */
static inline bool is_gated_scan(int op)
{
    return op_is(op, RECURS) && op_has(op, WRAP);
}

static inline bool is_matrix_scan(int op)
{
    return op_is(op, RECURS) && op_has(op, OVER);
}

static inline bool is_running_most(int op)
{
    return op_is(op, RECURS) && !op_has(op, OVER | WRAP) && !adds_tokens(op)
        && !op_is(op, MULTIPLIES);
}

/* A system of equations, for its right-hand side; of one under decays no other
 * matrix is the inverse. */
static inline bool is_system(int op)
{
    return op_is(op, MULTIPLIES) && !op_is(op, ADDS_UP);
}

static inline bool is_decayed_system(int op)
{
    return is_system(op) && op_is(op, RECURS);
}

/* Of two entries their sum. */
static inline bool adds_pairs(int op)
{
    return op_is(op, PAIRS) && op_has(op, TO_AXIS) && !op_is(op, SPREADS);
}

static inline bool takes_last(const Node *n)
{
    return op_is(n->op, ONE_ROW) && !(n->flags & REVERSE);
}

/* Of a node that MOVES entries: which of its operand's axes `axis` is. */
int moved_axis(const Node *n, int axis);

typedef struct Axis { char name[24]; int32_t size; } Axis; /* size 0: open */

/* An argument. timed: it has axis t. Its memory order is `order` (axis
 * numbers), behind [B, T, H] or, without t, behind [H]. */
typedef struct Input {
    char name[48], domain[24];          /* domain: "" or as the variant says */
    bool timed;
    bool mapped;                        /* the step has a function of it, so
                                           that the domain is not its own */
    bool ranked;                        /* a value a row, also where tokens
                                           have several (Graph.rows) */
    int16_t part_of;                    /* along that input's first axis, + 1,
                                           this is entry `part` of it, which is
                                           itself the first; or 0 */
    uint8_t part;
    uint8_t index_of;                   /* the axis of which its values are
                                           entries, whole numbers from 0 on;
                                           0: it is no index */
    AxisSet axes;
    uint8_t order[8], rank;
    int32_t line;
    Ref node;
} Input;

typedef struct State {
    char name[48];
    AxisSet axes;
    uint8_t order[8], rank;
    int32_t line;
    bool reverse;                       /* an adjoint: from the last chunk on */
    bool angle;                         /* kept modulo 2 pi */
    int16_t twin_of;                    /* the same sum modulo 2 pi as this
                                           state, + 1, where that one starts;
                                           its end is nobody's; or 0 */
    int16_t lost_of;                    /* what that state, a sum, + 1, has
                                           lost in rounding: nobody's end; or
                                           0 */
    int16_t moved_of;                   /* what a run of tokens multiplies each
                                           row of that state, + 1, by, less
                                           one; or 0 */
    int16_t part_of;                    /* along that state's first axis, + 1,
                                           this is entry `part` of it, which is
                                           itself the first; or 0 */
    uint8_t part;
    bool sum;                           /* of a step: a sum, without bounds */
    int16_t of_state, of_input;         /* whose adjoint it is (of an input
                                           without t), + 1; or 0 */
    Ref node, next;                     /* found, left behind */
} State;

/* A result: of a step y is the first, and others may follow; a joint graph adds
 * gradients behind them. An output of axis i has a row for each token, stored
 * [B, T, H, order...]. */
typedef struct Output {
    char name[48];
    uint8_t order[8], rank;
    bool late;                          /* a gradient */
    bool ranked;                        /* as an input may be */
    Ref node;
} Output;

/* How a run of tokens acts on the states that it starts from: one number for
 * each entry, that it is multiplied by, or that is added before the larger one
 * is taken; one for each row; a matrix. */
typedef enum CarriedBy { CARRY_ENTRIES, CARRY_MAX, CARRY_ROWS,
                     CARRY_MATRIX } CarriedBy;

/* A step whose y is a matrix, of tokens by tokens, times its input v: does that
 * run forward, or the matrix's transpose, to which what is y already is added?
 */
typedef enum Transposed { AS_IT_IS, TRANSPOSED, TRANSPOSED_ADDED } Transposed;

/* What stands in the user's script on the lines that nodes have. */
typedef struct SourceLine { int32_t line; const char *text; } SourceLine;
typedef struct Lines { const char *file; int n; SourceLine *at; } Lines;

typedef struct Graph {
    Ctx *ctx;
    Refusal *no;                        /* whoever asks whether there is room
                                           for what is made in it; NULL: that
                                           there is none is an error */
    bool strict;                        /* gates get nothing of what a token has
                                           with itself: grad.c */
    char name[64];
    int chunk;                          /* 0: a step */
    int rows;                           /* of a chunk, where ranks are no axes:
                                           rows that a token has, side by side,
                                           of `chunk` that there are; else 0 */
    int ranks;                          /* those of a token's rows that memory
                                           has, where others are empty */
    Node *n;
    uint32_t len, cap;                  /* n[0] is unused */
    Ref *hash;
    uint32_t hash_cap;
    Axis axis[NAXES];
    int naxes;                          /* one past the last in use */
    Input in[MAX_INPUTS];
    int nin;
    State st[MAX_STATES];
    int nst;
    Output out[MAX_OUTPUTS];            /* out[0]: y */
    int nout;
    uint32_t forward;                   /* while gradients are made: one past
                                           the way forward's nodes; else 0 */
    int32_t line;                       /* stamped on new nodes */
    Lines lines;                        /* of a step that was traced */
    char *note;                         /* why it is serial, or NULL */
    bool sloped;                        /* of a chunk: a decay's logarithm is
                                           taken where its slope is lost */
    struct Mask *mask;                  /* mode quadratic: y is this mask's
                                           sum, whatever out[0] says */
    struct Window *window;              /* of a step: y as two scans (mask.h);
                                           or NULL */
    struct Scores *scores;              /* of a step: y as sums over pairs
                                           (scores.h); or NULL */
    StateSet stage;                     /* of a stage's step: its states; or
                                           0 */
    CarriedBy carry;                    /* with that; by entries, its last
                                           state shows the transition */
    Transposed transposed;              /* of a step: what runs forward */
    struct Layer *layer;                /* heads are axes as others: tensors
                                           have none of H; or NULL */
} Graph;
#define graph_refuse(g, ...) ctx_refuse((g)->ctx, (g)->no, __VA_ARGS__)


Graph *graph_new(Ctx *c, const char *name, int chunk);

/* Axis by name, declared if new. Fails when there are too many. */
int graph_axis(Graph *g, const char *name);
int graph_find_axis(const Graph *g, const char *name);  /* -1: none */
int graph_find_input(const Graph *g, const char *name);
int graph_find_state(const Graph *g, const char *name);
int graph_find_output(const Graph *g, const char *name);

/* How many results are no gradients: these come first. */
int graph_results(const Graph *g);
/* The name of the gradient of result o, by which it comes into a joint graph:
 * "dy", of others "dy_NAME"; in the arena. Is that the input's? */
char *adjoint_name(const Graph *g, int o);
bool input_is_adjoint(const Input *in);

/* Declare an argument or a state; `axes` as the user writes it, e.g. "t k",
 * with an optional ": domain" (of states: angle). Returns its index. */
int graph_input(Graph *g, const char *name, const char *axes);
int graph_state(Graph *g, const char *name, const char *axes);
int graph_output(Graph *g, const char *name, Ref node); /* canonical order */

/* Makes (or finds) a node. Computes axes, states, timed, line. */
Ref node_new(Graph *g, Node n);
/* Of that: what follows from the operands; and the node, as it stands. */
void node_type(const Graph *g, Node *n);
Ref node_share(Graph *g, const Node *n);

/* What our own passes must respect; users' mistakes are caught before. Where
 * it does not hold, an error of kind internal names the operation that was to
 * be made, of a (0: of nothing), and its line. In release builds, too. */
#define ensure(g, holds, op, a) \
    ((holds) ? (void)0 : ensure_failed(g, #holds, op, a))
_Noreturn void ensure_failed(const Graph *g, const char *what, int op, Ref a);

Ref num(Graph *g, double x);
Ref op1(Graph *g, int op, Ref a);
Ref op2(Graph *g, int op, Ref a, Ref b);
Ref op3(Graph *g, int op, Ref a, Ref b, Ref c);
Ref sum(Graph *g, Ref a, AxisSet over);
Ref dot(Graph *g, Ref a, Ref b, AxisSet over);
/* amax, lse; a itself where it has none of these axes. */
Ref row_fold(Graph *g, int op, Ref a, AxisSet over);
Ref row_most(Graph *g, Ref a, AxisSet over);
Ref dmask(Graph *g, Ref ga, Ref gb, int strict);
/* Of tokens, and at one of that axis of ranks. */
Ref later(Graph *g, AxisSet rank);
/* With gates that lack the contracted axes, a dot times a dmask. */
Ref gdot(Graph *g, Ref a, Ref b, Ref ga, Ref gb, AxisSet over, int strict);
Ref select_at(Graph *g, Ref a, int axis, int index);
Ref part(Graph *g, Ref a, int axis, int from, int len);
Ref unit(Graph *g, int axis, int index);
Ref count_along(Graph *g, int axis);
Ref relabel(Graph *g, Ref a, int from, int to);
Ref unary_axis(Graph *g, int op, Ref a, int axis, int to); /* rot90 dup .. */
Ref cumsum(Graph *g, Ref a, int flags);
Ref last_row(Graph *g, Ref a, int flags);
/* `first` where there is no token before; with REVERSE, behind. */
Ref delay(Graph *g, Ref a, Ref first, int flags);
Ref cat(Graph *g, Ref a, Ref b, int axis);
Ref solve(Graph *g, Ref a, Ref b, int flags);
Ref gsolve(Graph *g, Ref a, Ref b, Ref rate, Ref gate, int flags);
Ref scan(Graph *g, Ref d, Ref c, Ref s0, int flags);
Ref maxscan(Graph *g, Ref d, Ref c, Ref s0);

Ref axis_size(Graph *g, int axis);      /* op size, or its num */

/* The step graph for known sizes (indexed by its own axis numbers): `size`
 * nodes become numbers. Shares nothing with g. */
Graph *graph_sized(const Graph *g, const int32_t size[NAXES]);

/* The same graph, node by node, in another context. */
Graph *graph_copy(Ctx *c, const Graph *g);

/* A copy of n with operands replaced (and folded anew). */
Ref node_copy(Graph *g, const Node *n, const Ref a[4]);

static inline bool is_num(const Graph *g, Ref r, double x)
{
    return r && g->n[r].op == OP_num && g->n[r].num == x;
}

/* The axes as text ("k v"), the expression as the user would write it (cut
 * at about 60 characters); both in the arena. */
char *axes_text(const Graph *g, AxisSet s);
char *expr_text(const Graph *g, Ref r);
/* The same, whole (2,000 characters at most), where each node below r that has
 * a name is called by it. */
char *expr_named(const Graph *g, Ref r, const char *const *name);

/* "FILE:LINE: what", and below it that line, as far as they are known; in the
 * arena. */
char *line_text(const Graph *g, int line, const char *what);

/* The running sum of gates that r shows, looked at through views; 0 if it is
 * none. Of such sums differences are taken: they must not lose what they add
 * where a gate that leaves nothing came before. */
Ref gate_sum(const Graph *g, Ref r);
/* r as what is left of the chunk's gates behind each token, last(G) - G: G's
 * node; else 0. */
Ref gates_left(const Graph *g, Ref r);

/* The sum, of no gates and from the state on, whose end the state becomes; 0:
 * it is none. */
Ref state_sum(const Graph *g, int state);

/* Whether it is a result, or what a state becomes. */
bool graph_is_root(const Graph *g, Ref r);

/* Marks in `live` (len bytes) every node that the roots need. */
void graph_live(const Graph *g, uint8_t *live);
/* Marks, too, what `root` needs, and it. */
void graph_needs(const Graph *g, uint8_t *live, Ref root);

/* How long the axis is in this very value: ranks are joined by cat and taken
 * apart by part, so it may be less than the axis's own size. */
int32_t axis_extent(const Graph *g, Ref r, int axis);
/* The same of a node, from where else axes have lengths: an axis's own, an
 * operand's (1, where it lacks the axis), what operands have, by `ud`. */
typedef struct Lengths {
    int32_t (*own)(const void *ud, int axis);
    int32_t (*of)(const void *ud, Ref operand, int axis);
    int32_t (*usual)(const void *ud, const Node *n, int axis);
    const void *ud;
} Lengths;
int32_t node_extent(const Lengths *l, const Node *n, int axis);

/* Elements of a value when axis i has `rows` tokens (rows <= chunk). */
int64_t axes_size(const Graph *g, AxisSet s);

/* Rows that a token has. */
static inline int rows_of_token(const Graph *g)
{
    return g->rows ? g->rows : 1;
}

/* And those that are not empty. */
static inline int ranks_of_token(const Graph *g)
{
    return g->ranks ? g->ranks : rows_of_token(g);
}

/* text.c: the documented text form. graph_parse reads what graph_print
 * writes; a fault names the line. */
void graph_print(const Graph *g, Buf *out);
Graph *graph_parse(Ctx *c, const char *text);

#endif
