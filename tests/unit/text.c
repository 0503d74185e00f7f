/* text.c -- the text form: what is printed reads back to the same text, what
 * is wrong is refused with its line, and nothing that is read does harm. */
#include "../../compiler/plan.h"
#include "../../compiler/transition.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int bad;

/* Every operation, attribute and form of a line; as it is printed. */
static const char chunk_text[] =
    "chunk 16 all_ops\n"
    "axis k = 4\n"
    "axis over = 3\n"
    "axis p = 2\n"
    "axis j = 2\n"
    "axis open\n"
    "axis r1 @1 = 2\n"
    "axis rows @2 = 3\n"
    "input q t k : unit_norm   @3\n"
    "input u k   @4\n"
    "input n t [9]\n"
    "input f t p j\n"
    "input A\n"
    "state S k\n"
    "state dS k [9] reverse   @7\n"
    "state phi p angle   @8\n"
    "%1 = input q   @3  # i k\n"
    "%2 = input u   @4  # k\n"
    "%3 = input n  # i [9]\n"
    "%4 = input f  # i p j\n"
    "%5 = input A\n"
    "%6 = state S  # k\n"
    "%7 = state dS   @7  # k [9]\n"
    "%8 = add %1 %2   @9  # i k\n"
    "%9 = num 0x1.8p-1\n"
    "%10 = mul %8 %9  # i k\n"
    "%11 = where %5 %10 %6  # i k\n"
    "%12 = sum %1 over k  # i\n"
    "%13 = dot %2 %10 over k  # i\n"
    "%14 = select %3 over [9] index 2  # i\n"
    "%15 = cat %12 %13 over r1  # i r1\n"
    "%16 = relabel %3 over [9] to rows  # i rows\n"
    "%17 = rot90 %1 over k  # i k\n"
    "%18 = dup %4 over p to k  # i k j\n"
    "%19 = pairsum %1 over k to p  # i p\n"
    "%20 = col %15  # [4] s1\n"
    "%21 = row %20  # i r1\n"
    "%22 = cumsum %12 exclusive reverse  # i\n"
    "%23 = scan %12 %13 %5 exclusive  # i\n"
    "%24 = scan - %12 %5 wrap  # i\n"
    "%25 = maxscan %12 %13 %5 reverse  # i\n"
    "%26 = delay %12 %5 reverse  # i\n"
    "%27 = last %26\n"
    "%28 = col %12  # [4]\n"
    "%29 = dmask %12 %28 strict  # i [4]\n"
    "%30 = dmask - -  # i [4]\n"
    "%31 = col %1  # [4] k\n"
    "%32 = gdot %1 %31 %8 %31 over k strict  # i [4]\n"
    "%33 = mul %29 %32  # i [4]\n"
    "%34 = solve %33 %1 trans  # i k\n"
    "%35 = sum %30 over [4]  # i\n"
    "%36 = num -2\n"
    "%37 = mul %34 %36  # i k\n"
    "%38 = size open\n"
    "%39 = add %35 %38  # i\n"
    "%40 = last %34 reverse  # k\n"
    "%41 = part %15 over r1 index 1 len 1  # i r1\n"
    "%42 = unit over k index 3  # k\n"
    "%43 = mul %41 %42  # i r1 k\n"
    "%44 = add %7 %40  # k [9]\n"
    "%45 = count over k  # k\n"
    "%46 = add %44 %45  # k [9]\n"
    "next S %2\n"
    "next dS %46\n"
    "out y k %37\n"
    "out a %39\n"
    "out b j k %18\n"
    "out c k %11\n"
    "out d r1 %21\n"
    "out e rows %16\n"
    "out f k %17\n"
    "out g p %19\n"
    "out h %14\n"
    "out l %27\n"
    "out m %22\n"
    "out n %23\n"
    "out o %24\n"
    "out z %25\n"
    "out r r1 k %43\n";

/* Tokens have rows; what has ranks and no tokens is in parts. */
static const char rows_text[] =
    "chunk 8 parts\n"
    "axis k = 4\n"
    "rows 4 ranks 3\n"
    "input q t k ranked\n"
    "input w k part 0 of w : positive\n"
    "input w_1 k part 1 of w : positive\n"
    "state S k part 0 of S\n"
    "state S_1 k part 1 of S\n"
    "%1 = input q  # i k\n"
    "%2 = input w  # k\n"
    "%3 = input w_1  # k\n"
    "%4 = state S  # k\n"
    "%5 = state S_1  # k\n"
    "%6 = mul %2 %4  # k\n"
    "%7 = mul %3 %5  # k\n"
    "next S %6\n"
    "next S_1 %7\n"
    "out y k ranked %1\n";

typedef struct Trip { const char *text; char *again; bool plan; } Trip;

/* Reads, prints, reads that, prints: `again` the first, fails on a change. */
static void trip(Ctx *c, void *ud)
{
    Trip *t = ud;
    Buf one = { .ctx = c }, two = { .ctx = c };

    if (t->plan) {
        plan_print(plan_parse(c, t->text), &one);
        plan_print(plan_parse(c, one.s), &two);
    } else {
        graph_print(graph_parse(c, t->text), &one);
        graph_print(graph_parse(c, one.s), &two);
    }
    if (strcmp(one.s, two.s)) {
        printf("text: read back, this\n%sbecame this\n%s", one.s, two.s);
        bad++;
    }
    t->again = one.s;
}

/* The first line in which two texts differ. */
static void show_difference(const char *a, const char *b)
{
    int line = 1;

    for (; *a && *a == *b; a++, b++)
        line += *a == '\n';
    printf("text: line %d: '%.30s', not '%.30s'\n", line, a, b);
}

static void check_same(const char *text)
{
    Trip t = { .text = text };
    Ctx *c = ctx_new();

    if (!ctx_protect(c, trip, &t)) {
        printf("text: line %d: %s\n", c->err.line, c->err.message);
        bad++;
    } else if (strncmp(t.again, text, strlen(t.again))) {
        show_difference(t.again, text);
        bad++;
    }
    ctx_free(c);
}

/* A state made after what it is combined with: operands are printed in the
 * order in which the reader, who makes arguments first, will have them. */
static void late_state(Ctx *c, void *ud)
{
    Graph *g = graph_new(c, "late", 0);
    Ref k = g->in[graph_input(g, "k", "t k")].node;
    Ref e = op1(g, OP_exp, k);
    int s = graph_state(g, "S", "k");
    Trip t = { 0 };
    Buf b = { .ctx = c };

    g->st[s].next = op2(g, OP_add, e, g->st[s].node);
    graph_output(g, "y", e);
    graph_print(g, &b);
    t.text = b.s;
    trip(c, &t);
    *(bool *)ud = !strcmp(b.s, t.again);
}

static void check_late_state(void)
{
    Ctx *c = ctx_new();
    bool same = false;

    if (!ctx_protect(c, late_state, &same) || !same) {
        printf("text: of a state made late: %s\n", c->err.message);
        bad++;
    }
    ctx_free(c);
}

/* A stage's step has a state more, of a name that nothing has. */
static void stage_same(Ctx *c, void *ud)
{
    Graph *g = graph_parse(c, "step s\naxis k\ninput d t k\ninput x t k\n"
                           "state n k\nstate n_moved k\n%1 = input d\n"
                           "%2 = input x\n%3 = state n\n%4 = state n_moved\n"
                           "%5 = mul %1 %3\n%6 = add %2 %5\n%7 = mul %1 %4\n"
                           "%8 = add %6 %7\nnext n %6\nnext n_moved %8\n"
                           "out y k %8\n");
    Stages all;
    bool *same = ud;

    *same = !stages_find(c, g, &all) && all.n == 2;
    for (int i = 0; i < all.n; i++) {
        Graph *own = graph_new(c, "stage", 0);
        Buf one = { .ctx = c }, two = { .ctx = c };
        stage_step(g, &all, i, own);
        graph_print(own, &one);
        graph_print(graph_parse(c, one.s), &two);
        *same = *same && !strcmp(one.s, two.s) && own->nst == 2 + i;
    }
}

static void check_stages(void)
{
    Ctx *c = ctx_new();
    bool same = false;

    if (!ctx_protect(c, stage_same, &same) || !same) {
        printf("text: of stages: %s\n", c->err.message);
        bad++;
    }
    ctx_free(c);
}

/* ---- numbers ---- */

typedef struct Number { const char *text; double x; } Number;

static void print_number(Ctx *c, void *ud)
{
    Number *n = ud;
    Graph *g = graph_new(c, "n", 0);
    Buf b = { .ctx = c };

    if (n->text) {
        b.s = ctx_format(c, "step n\n%%1 = num %s\nout y %%1\n", n->text);
    } else {
        graph_output(g, "y", node_new(g, (Node){ .op = OP_num,
                                                 .num = n->x }));
        graph_print(g, &b);
    }
    Graph *h = graph_parse(c, b.s);
    n->x = h->n[h->out[0].node].num;
}

static bool same_bits(double a, double b)
{
    return !memcmp(&a, &b, sizeof a) || (isnan(a) && isnan(b));
}

static void check_number(const char *text, double x)
{
    Number n = { text, x };
    Ctx *c = ctx_new();

    if (!ctx_protect(c, print_number, &n) || !same_bits(n.x, x)) {
        printf("text: number %s %a: %a %s\n", text ? text : "", x, n.x,
               c->err.message);
        bad++;
    }
    ctx_free(c);
}

static void check_numbers(void)
{
    static const double some[] = { 0, -0.0, 1, -7, 999999, 1000000, 1e300,
                                   0x1p-1022, 0x1p-1074, INFINITY, -INFINITY,
                                   NAN, 0.1, -123.456, 0x1.fffffffffffffp1023,
                                   0x0.8p-1022 };
    uint64_t seed = 5;

    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        check_number(NULL, some[i]);
    for (int i = 0; i < 2000; i++) {
        double x;
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t bits = seed ^ seed >> 29;
        memcpy(&x, &bits, sizeof x);
        check_number(NULL, x);
    }
    check_number("0.1", 0.1);
    check_number("-1.5e-6", -1.5e-6);
    check_number("25", 25);
    check_number("0X1.8P3", 12);
}

/* ---- refusals ---- */

#define STEP "step s\naxis k = 4\naxis v\ninput q t k\nstate S k\n" \
    "%1 = input q\n"
#define CHUNK "chunk 8 s\naxis k = 4\naxis r1 @1 = 2\ninput q t k\n" \
    "%1 = input q\n%2 = col %1\n"

#define LONG "0123456789012345678901234567890123456789012345678901234567890123"

static const struct { const char *text, *message; int line; } refused[] = {
    { "", "the text is empty", 1 },
    { "graph s", "expected step, found graph", 1 },
    { "chunk 0 s", "expected the tokens of a chunk, from 1 to 65536, found 0",
      1 },
    { "step", "expected the variant's name", 1 },
    { STEP "axis k", "axis 'k' twice", 7 },
    { STEP "axis 9", "expected a name for the axis, of at most 20 letters "
      "and digits, found 9", 7 },
    { STEP "axis r1 @1 = 2", "@1 is not a rank axis (@1 to @3, of a chunk)",
      7 },
    { STEP "axis m = 99999999", "expected a size, from 1 to 16777216, found "
      "99999999", 7 },
    { STEP "input q t", "input 'q' twice", 7 },
    { STEP "input p t z", "z: the line should have ended here", 7 },
    { STEP "input p k part 1 of z", "there is no input 'z'", 7 },
    { STEP "input p t k k", "axis 'k' twice", 7 },
    { CHUNK "input p t i", "axes i are those of tokens", 7 },
    { STEP "state S k", "state 'S' twice", 7 },
    { STEP "state Z t", "t: the line should have ended here", 7 },
    { STEP "%1 = num 1", "%1 is made twice", 7 },
    { STEP "%2 = exp %3", "%3 is not made yet", 7 },
    { STEP "%2 = exp %2", "%2 is not made yet", 7 },
    { STEP "%2 = exp", "expected a node such as %7, found the end of the "
      "line", 7 },
    { STEP "%2 = exp %1 %1", "%1: the line should have ended here", 7 },
    { STEP "%2 = gather %1", "there is no operation 'gather'", 7 },
    { STEP "%2 = none", "there is no operation 'none'", 7 },
    { STEP "%2 = num x", "x is not a number that can be read exactly", 7 },
    { STEP "%2 = num 0.1234567890123456789",
      "0.1234567890123456789 is not a number that can be read exactly", 7 },
    { STEP "%2 = num 9007199254740993", "9007199254740993 is not a number "
      "that can be read exactly", 7 },
    { STEP "%2 = num 0x20000000000001", "0x20000000000001 is not a number "
      "that can be read exactly", 7 },
    { STEP "%2 = " LONG, "a word of more than 63 characters", 7 },
    { STEP "%2 = input z", "there is no input 'z'", 7 },
    { STEP "%2 = state z", "there is no state 'z'", 7 },
    { STEP "%2 = sum %1", "sum: `over` must name axes that the operands have",
      7 },
    { STEP "%2 = sum %1 over v", "sum: `over` must name axes that the "
      "operands have", 7 },
    { STEP "%2 = sum %1 over k strict", "sum: has no such flag", 7 },
    { STEP "%2 = select %1 over k index 4", "select: `index` is too large",
      7 },
    { STEP "%2 = part %1 over k", "part: needs `len`, within the axis", 7 },
    { STEP "%2 = unit over k index 4", "unit: `index` is too large", 7 },
    { STEP "%2 = relabel %1 over k to k", "relabel: needs `to` and an axis "
      "that the operand lacks", 7 },
    { STEP "%2 = relabel %1 over k", "relabel: needs `to` and an axis that "
      "the operand lacks", 7 },
    { STEP "axis d = 7\n%2 = dup %1 over k to d", "dup: the axis is too "
      "short", 8 },
    { STEP "axis d = 3\n%2 = pairsum %1 over k to d", "pairsum: the axis is "
      "too long", 8 },
    { STEP "%2 = cumsum %1", "cumsum: a step has one token", 7 },
    { STEP "%2 = dot %1 - over k", "expected a node such as %7, found -", 7 },
    { STEP "next Z %1", "there is no state 'Z'", 7 },
    { STEP "next S %1\nnext S %1", "state 'S' is left twice", 8 },
    { STEP "state Z\nnext Z %1", "state 'Z' has no axes k", 8 },
    { STEP "out y v %1", "result 'y' has the axes k", 7 },
    { STEP "out y %1\nout y %1", "result 'y' twice", 8 },
    { STEP "kernel a forward : %1", "a line cannot start with kernel", 7 },
    { CHUNK "%3 = col %2", "col: has columns", 7 },
    { CHUNK "%3 = row %1", "row: has rows", 7 },
    { CHUNK "%3 = cat %1 %1 over i", "cat: `over` must name axes that the "
      "operands have", 7 },
    { CHUNK "%3 = cat %1 %1 over r1\n%4 = cat %3 %1 over r1",
      "cat: longer than its axis", 8 },
    { CHUNK "axis r2 @2 = 3\n%3 = cat %1 %1 over r2\n"
      "%4 = cat %3 %1 over r2\n%5 = add %3 %4",
      "add: operands of different ranks", 10 },
    { CHUNK "%3 = delay %1 %1", "delay: starts from rows", 7 },
    { CHUNK "%3 = scan - %1 %1", "scan: starts from rows", 7 },
    { CHUNK "%3 = dmask %1 -", "dmask: takes two gates or none", 7 },
    { CHUNK "%3 = dmask %2 %1", "dmask: takes a gate of rows and one of "
      "columns", 7 },
    { CHUNK "%3 = gdot %1 %1 %1 %1 over k", "gdot: takes a gate of rows and "
      "one of columns", 7 },
    { CHUNK "%3 = solve %1 %1", "solve: needs rows and columns", 7 },
    { CHUNK "%3 = mul %1 %2\n%4 = solve %3 %2", "solve: the right side has "
      "columns", 8 },
    { CHUNK "%3 = mul %1 %2\n%4 = sum %1 over k\n%5 = solve %3 %4",
      "solve: the right side lacks axes", 9 },
    { CHUNK "out y %2", "axes j are those of tokens", 7 },
    { "step s\naxis a = 16777216\naxis b = 16777216\ninput x t a b\n"
      "%1 = input x", "input: a value of 281474976710656 elements", 5 },
};

static void read_graph(Ctx *c, void *ud)
{
    graph_parse(c, ud);
}

static void check_refused(void)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        Ctx *c = ctx_new();
        if (ctx_protect(c, read_graph, (void *)refused[i].text)) {
            printf("text: read, but should give '%s'\n", refused[i].message);
            bad++;
        } else if (strcmp(c->err.message, refused[i].message)
                   || c->err.line != refused[i].line) {
            printf("text: line %d: %s\n  not line %d: %s\n", c->err.line,
                   c->err.message, refused[i].line, refused[i].message);
            bad++;
        }
        ctx_free(c);
    }
}

/* ---- spoilt texts ---- */

static unsigned below(uint64_t *seed, size_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((*seed >> 33) % n);
}

/* Changes a few places: a character, a word from elsewhere, a cut. */
static void spoil(char *s, size_t cap, uint64_t *seed)
{
    static const char chars[] = "%0123456789 kvij=-:@[]\n#xptr";

    for (unsigned k = below(seed, 4) + 1; k--;) {
        size_t n = strlen(s), at = below(seed, n), from = below(seed, n);
        size_t len = below(seed, 12);
        switch (below(seed, 4)) {
        case 0: s[at] = chars[below(seed, sizeof chars - 1)]; break;
        case 1: memmove(s + at, s + at + 1, n - at); break;
        case 2:
            if (n + 1 < cap) {
                memmove(s + at + 1, s + at, n - at + 1);
                s[at] = chars[below(seed, sizeof chars - 1)];
            }
            break;
        case 3:
            if (at + len < n && from + len < n)
                memmove(s + at, s + from, len);
            break;
        }
        if (!*s)
            strcpy(s, "step s\n");
    }
}

/* Whatever still reads must read back. */
static void check_spoilt(const char *text, bool plan, int times)
{
    enum { CAP = 16384 };
    char *s = malloc(CAP);
    uint64_t seed = 11;
    int passed = 0;

    for (int i = 0; s && i < times && !bad; i++) {
        Trip t = { .text = s, .plan = plan };
        Ctx *c = ctx_new();
        snprintf(s, CAP, "%s", text);
        spoil(s, CAP, &seed);
        passed += ctx_protect(c, trip, &t);
        ctx_free(c);
    }
    if (passed < times / 50 || passed > times / 2) {
        printf("text: %d of %d spoilt texts are read\n", passed, times);
        bad++;
    }
    free(s);
}

int main(void)
{
    Ctx *c = ctx_new();
    Buf plan = { .ctx = c };

    check_same(chunk_text);
    check_same(rows_text);
    check_late_state();
    check_stages();
    check_numbers();
    check_refused();
    check_spoilt(chunk_text, false, 3000);
    buf_printf(&plan, "%skernel a forward :", chunk_text);
    for (int i = 1; i <= 43; i++)
        buf_printf(&plan, " %%%d", i);
    buf_printf(&plan, " %%45\nkernel b reverse : %%44 %%46\n");
    check_spoilt(plan.s, true, 3000);
    ctx_free(c);
    return bad != 0;
}
