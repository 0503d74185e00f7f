/* choose_glpk.c -- the integer program, given to GLPK. The one file that sees
 * glpk.h. GLPK ends the process on an error unless a hook jumps away from it;
 * its environment is the thread's, and is freed on the way out.
 */
#include "choose.h"

#ifdef FLIN_NO_GLPK

bool choose_glpk(Ctx *ctx, const Choice *c, const Answer *start,
                 double seconds, Answer *out)
{
    (void)ctx, (void)c, (void)start, (void)seconds, (void)out;
    return false;
}

#else

#include <glpk.h>
#include <string.h>

enum { MAX_ROUNDS = 40, MIN_BRANCHES = 60, MAX_WORK = 60000,
       MIN_STEPS = 2000, MAX_STEPS_WORK = 400000 };

typedef struct Program {
    Ctx *ctx;
    const Choice *c;
    const Answer *start;
    glp_prob *lp;
    int *ind;
    double *val;
    Answer *out;                        /* the best that is known */
    double bound;
    bool ok;                            /* there is something to say */
    int branches, most, limit_ms;       /* most: branches, by the size; */
    int most_steps;                     /* and of the simplex: a branch that
                                           needs many rows takes hundreds */
    jmp_buf gone;
} Program;

/* FAILED: nothing is known; STOPPED: out of work; PROVED: no answer is
 * cheaper than the one known. */
typedef enum End { FAILED, STOPPED, SOLVED, PROVED } End;

static int quiet(void *ud, const char *s)
{
    (void)ud, (void)s;
    return 1;
}

static void jump_away(void *ud)
{
    longjmp(((Program *)ud)->gone, 1);
}

static int column_of(int c) { return c + 1; }

static int tensor_of(const Program *p, int t)
{
    return p->c->ncolumns + t + 1;
}

static void add_row(Program *p, int n, double upper)
{
    int row = glp_add_rows(p->lp, 1);

    glp_set_row_bnds(p->lp, row, GLP_UP, 0, upper);
    glp_set_mat_row(p->lp, row, n, p->ind, p->val);
}

static void add_term(Program *p, int *n, int var, double coef)
{
    p->ind[++*n] = var;
    p->val[*n] = coef;
}

/* y_t <= sum of the columns that make t. */
static void make_row(Program *p, int t)
{
    int n = 0;

    for (int i = 0; i < p->c->ncolumns; i++)
        if (set_has(&p->c->column[i].makes, t))
            add_term(p, &n, column_of(i), -1);
    add_term(p, &n, tensor_of(p, t), 1);
    add_row(p, n, 0);
}

static void build(Program *p)
{
    const Choice *c = p->c;
    int vars = c->ncolumns + c->ntensors;

    p->ind = ctx_alloc(p->ctx, (size_t)(vars + 2) * sizeof *p->ind);
    p->val = ctx_alloc(p->ctx, (size_t)(vars + 2) * sizeof *p->val);
    glp_set_obj_dir(p->lp, GLP_MIN);
    glp_add_cols(p->lp, vars);
    for (int i = 0; i < vars; i++) {
        bool column = i < c->ncolumns;
        int64_t price = column ? c->column[i].price
                               : c->store[i - c->ncolumns];
        glp_set_obj_coef(p->lp, i + 1, (double)price);
        glp_set_col_kind(p->lp, i + 1, GLP_BV);
    }
    for (int t = 0; t < c->ntensors; t++) {
        make_row(p, t);
        if (set_has(&c->required, t))
            glp_set_col_bnds(p->lp, tensor_of(p, t), GLP_FX, 1, 1);
    }
}

/* x_c <= y_t, only where the point at hand breaks it: of all such rows few
 * ever bind. `value` reads a variable; returns how many were added. */
static int link(Program *p, glp_prob *lp, double (*value)(glp_prob *, int))
{
    const Choice *c = p->c;
    int added = 0;

    for (int i = 0; i < c->ncolumns; i++) {
        double x = value(lp, column_of(i));
        for (int t = 0; x > 1e-6 && t < c->ntensors; t++) {
            if (!set_has(&c->column[i].loads, t)
                || x < value(lp, tensor_of(p, t)) + 1e-6)
                continue;
            int n = 0, row = glp_add_rows(lp, 1);
            add_term(p, &n, column_of(i), 1);
            add_term(p, &n, tensor_of(p, t), -1);
            glp_set_row_bnds(lp, row, GLP_UP, 0, 0);
            glp_set_mat_row(lp, row, n, p->ind, p->val);
            added++;
        }
    }
    return added;
}

/* Tensors that wait for one another: none of them is there unless a column
 * makes one that needs none of them. */
static void cut_circle(Program *p, const uint8_t *chosen,
                       const uint8_t *stuck, const Set *wanted)
{
    const Choice *c = p->c;
    Set waiting = *wanted;

    for (int i = 0; i < c->ncolumns; i++)
        if (chosen[i] && !stuck[i])
            waiting = set_minus(waiting, &c->column[i].makes);
    for (int t = 0; t < c->ntensors; t++) {
        int n = 0;
        if (!set_has(&waiting, t))
            continue;
        add_term(p, &n, tensor_of(p, t), 1);
        for (int i = 0; i < c->ncolumns; i++)
            if (set_meets(&c->column[i].makes, &waiting)
                && !set_meets(&c->column[i].loads, &waiting)
                && !set_meets(&c->column[i].after, &waiting))
                add_term(p, &n, column_of(i), -1);
        add_row(p, n, 0);
    }
}

/* No answer cheaper than `bound` is left. */
static void raise_bound(Program *p, double bound)
{
    if (bound > p->bound)
        p->bound = bound;
}

/* Prices are whole numbers, bounds as exact as GLPK is. */
static double slack(const Answer *a)
{
    double inexact = 1e-7 * (double)a->price;

    return inexact > 0.5 ? inexact : 0.5;
}

static bool proved(const Program *p)
{
    return p->bound >= (double)p->out->price - slack(p->out);
}

static bool is_tired(const Program *p)
{
    return p->branches > p->most || glp_get_it_cnt(p->lp) > p->most_steps;
}

static void watch_tree(glp_tree *tree, void *ud)
{
    Program *p = ud;

    if (glp_ios_reason(tree) == GLP_ISELECT) {
        raise_bound(p, glp_ios_node_bound(tree, glp_ios_best_node(tree)));
        p->branches++;
        if (proved(p))
            glp_ios_terminate(tree);
    }
    if (is_tired(p))
        glp_ios_terminate(tree);
    else if (glp_ios_reason(tree) == GLP_IROWGEN)
        link(p, glp_ios_get_prob(tree), glp_get_col_prim);
    if (p->ctx->interrupted && p->ctx->interrupted(p->ctx->interrupt_ud))
        glp_ios_terminate(tree);
}

/* The relaxation, with all the rows that it needs. */
static bool relax(Program *p)
{
    glp_smcp simplex;

    glp_init_smcp(&simplex);
    simplex.msg_lev = GLP_MSG_OFF;
    simplex.meth = GLP_DUALP;
    simplex.tm_lim = p->limit_ms;
    for (int k = 0; k < MAX_ROUNDS; k++) {
        if (glp_simplex(p->lp, &simplex)
            || glp_get_status(p->lp) != GLP_OPT)
            return false;
        if (link(p, p->lp, glp_get_col_prim))
            continue;
        raise_bound(p, glp_get_obj_val(p->lp));
        return true;
    }
    return false;
}

/* What would make the answer dearer than the one to beat stays out. */
static void leave_out(Program *p)
{
    double room = (double)p->start->price - glp_get_obj_val(p->lp) + 1;
    int vars = p->c->ncolumns + p->c->ntensors;

    for (int j = 1; j <= vars; j++)
        if (glp_get_col_stat(p->lp, j) == GLP_NL
            && glp_get_col_type(p->lp, j) == GLP_DB
            && glp_get_col_dual(p->lp, j) > room)
            glp_set_col_bnds(p->lp, j, GLP_FX, 0, 0);
}

/* One solution of the program as it stands; none where it is plain before
 * that the answer there is cannot be beaten. */
static End solve(Program *p)
{
    glp_iocp cut;

    for (int k = 0; k < MAX_ROUNDS; k++) {
        if (!relax(p))
            return FAILED;
        if (proved(p))
            return PROVED;
        leave_out(p);
        glp_init_iocp(&cut);
        cut.msg_lev = GLP_MSG_OFF;
        cut.tm_lim = p->limit_ms;
        cut.cb_func = watch_tree;
        cut.cb_info = p;
        cut.mip_gap = 0;
        cut.br_tech = GLP_BR_LFV;       /* others take thrice as long */
        cut.pp_tech = GLP_PP_NONE;
        cut.bt_tech = GLP_BT_BLB;
        int end = glp_intopt(p->lp, &cut);
        if (end == GLP_ESTOP && proved(p))
            return PROVED;
        if (end == GLP_ESTOP && is_tired(p))
            return STOPPED;
        if (end || glp_mip_status(p->lp) != GLP_OPT)
            return FAILED;
        raise_bound(p, glp_mip_obj_val(p->lp));
        if (!link(p, p->lp, glp_mip_col_val))
            return SOLVED;
    }
    return FAILED;
}

/* The columns of the solution at hand, in order and priced. */
static bool read_answer(Program *p, uint8_t *chosen, uint8_t *stuck,
                        Answer *out)
{
    for (int i = 0; i < p->c->ncolumns; i++)
        chosen[i] = glp_mip_col_val(p->lp, column_of(i)) > 0.5;
    return choice_check(p->ctx, p->c, chosen, out, stuck);
}

/* A better one than is known becomes it. */
static void take_answer(Program *p, const Answer *a, bool optimal)
{
    if (a->price < p->out->price)
        *p->out = *a;
    if (a->price > p->out->price)
        return;
    p->out->solver = SOLVER_GLPK;
    p->out->optimal = optimal;
}

/* Solves, cuts, solves again; true unless nothing is known in the end. */
static bool rounds(Program *p)
{
    const Choice *c = p->c;
    uint8_t *chosen = ctx_alloc(p->ctx, (size_t)c->ncolumns + 1);
    uint8_t *stuck = ctx_alloc(p->ctx, (size_t)c->ncolumns + 1);
    Answer found;

    for (int k = 0; k < MAX_ROUNDS; k++) {
        End end = solve(p);
        if (end == FAILED || end == PROVED)
            return end == PROVED;
        bool whole = (end == SOLVED || glp_mip_status(p->lp) == GLP_FEAS)
                  && read_answer(p, chosen, stuck, &found);
        if (whole)
            take_answer(p, &found, end == SOLVED);
        if (whole || end == STOPPED)
            return true;
        bool circle = false;
        for (int i = 0; i < c->ncolumns; i++)
            circle |= stuck[i];
        if (!circle)
            return false;
        cut_circle(p, chosen, stuck, &found.stored);
    }
    return true;
}

static void run(Ctx *ctx, void *ud)
{
    Program *p = ud;

    (void)ctx;
    p->lp = glp_create_prob();
    build(p);
    glp_adv_basis(p->lp, 0);
    p->ok = rounds(p);
}

bool choose_glpk(Ctx *ctx, const Choice *c, const Answer *start,
                 double seconds, Answer *out)
{
    Program *p = ctx_alloc(ctx, sizeof *p);
    jmp_buf *catch = ctx->catch;
    volatile bool fine = true;

    *out = *start;
    p->ctx = ctx;
    p->c = c;
    p->start = start;
    p->out = out;
    p->bound = -1;
    p->most = MAX_WORK / (c->ncolumns + 1);
    if (p->most < MIN_BRANCHES)
        p->most = MIN_BRANCHES;
    p->most_steps = MAX_STEPS_WORK / (c->ncolumns + 1);
    if (p->most_steps < MIN_STEPS)
        p->most_steps = MIN_STEPS;
    p->limit_ms = (int)(seconds * 1000);
    if (setjmp(p->gone) == 0) {
        glp_term_hook(quiet, NULL);
        glp_error_hook(jump_away, p);
        fine = ctx_protect(ctx, run, p);
        glp_error_hook(NULL, NULL);
    }
    ctx->catch = catch;                 /* GLPK may have jumped over it */
    glp_free_env();
    if (!fine)
        ctx_rethrow(ctx);
    out->bound = p->bound;
    if (p->ok && proved(p)) {
        out->solver = SOLVER_GLPK;
        out->optimal = true;
    }
    return p->ok;
}

#endif
