/* seed000.c -- the graph that the plan's integer program was first drawn up
 * for: what a kernel for each node moves, and what the chosen plan does. */
#include "../../compiler/cost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES = 64 };

static int bad;

/* A line of the file: its node's label, the axes, what it reads. */
typedef struct Line { char label[12], axes[8]; int from[4], nfrom; } Line;

static double size_of(const char *axes, double C, double k, double v)
{
    double n = 1;

    for (; *axes; axes++)
        n *= *axes == 'i' || *axes == 'j' ? C : *axes == 'k' ? k : v;
    return n;
}

static void read_lines(const char *text, Line line[LINES])
{
    for (const char *s = text; s; s = strchr(s, '\n'), s = s ? s + 1 : NULL) {
        char row[128], *hash, *p;
        int n;
        snprintf(row, sizeof row, "%.*s", (int)strcspn(s, "\n"), s);
        if (row[0] != '%' || !(hash = strchr(row, '#')))
            continue;
        n = atoi(row + 1);
        *hash = 0;
        for (p = row + 1; (p = strchr(p, '%')); p++)
            line[n].from[line[n].nfrom++] = atoi(p + 1);
        sscanf(hash + 1, "%11s", line[n].label);
        for (p = strstr(hash + 1, line[n].label) + strlen(line[n].label); *p;
             p++)
            if (*p != ' ')
                strncat(line[n].axes, p, 1);
    }
}

/* Elements that a kernel for each label moves; vectors are not counted. */
static double separate(Line *line, double C, double k, double v)
{
    double moved = 0;

    for (int n = 1; n < LINES; n++) {
        Line *l = &line[n];
        bool inner = false;
        if (!l->label[0] || !strchr("FB", l->label[0]))
            continue;
        for (int i = 0; i < l->nfrom; i++) {
            int x = l->from[i];
            while (!strcmp(line[x].label, "move"))
                x = line[x].from[0];
            if (strcmp(line[x].label, l->label)
                && strcmp(line[x].label, "vector") && line[x].axes[1])
                moved += size_of(line[x].axes, C, k, v);
        }
        for (int u = n + 1; u < LINES; u++)
            for (int i = 0; i < line[u].nfrom; i++)
                inner |= line[u].from[i] == n
                      && !strcmp(line[u].label, l->label);
        if (!inner && l->axes[1])
            moved += size_of(l->axes, C, k, v);
    }
    return moved;
}

/* Elements that the kernels of a plan move, vectors left out; h counts each
 * time that a kernel reads it. */
static double planned(const Plan *p)
{
    const Graph *g = p->g;
    uint8_t *made = ctx_alloc(g->ctx, g->len);
    double moved = 0;

    for (int i = 0; i < p->nkernels; i++) {
        uint8_t *has = ctx_alloc(g->ctx, g->len);
        uint8_t *reads = ctx_alloc(g->ctx, g->len);
        const Kernel *k = &p->kernel[i];
        for (int j = 0; j < k->nnodes; j++)
            has[k->node[j]] = 1;
        for (int j = 0; j < k->nnodes; j++)
            for (int a = 0; a < 4; a++)
                reads[g->n[k->node[j]].a[a]] = 1;
        for (Ref r = 1; r < g->len; r++) {
            bool root = false;
            AxisSet axes = g->n[r].axes;
            for (int o = 0; o < g->nout; o++)
                root |= g->out[o].node == r;
            bool in = reads[r] && (g->n[r].op == OP_input || !has[r]);
            bool out = has[r] && !made[r] && (root || p->stored[r]);
            if (axes & (axes - 1))      /* two axes and more */
                moved += (in + out) * (double)axes_size(g, axes);
            made[r] |= has[r] && g->n[r].op != OP_input;
        }
    }
    return moved;
}

static void expect(const char *what, double is, double wanted)
{
    if (is != wanted) {
        printf("seed000: %s moves %.0f elements, not %.0f\n", what, is,
               wanted);
        bad++;
    }
}

typedef struct Case { char *text; int C, n, d; } Case;

static void check(Ctx *c, void *ud)
{
    Case *k = ud;
    Line line[LINES];
    Graph *g = graph_parse(c, k->text);
    double C = k->C, n = k->n, d = k->d;

    memset(line, 0, sizeof line);
    read_lines(k->text, line);
    g->chunk = k->C;
    g->axis[AX_I].size = g->axis[AX_J].size = k->C;
    g->axis[graph_find_axis(g, "k")].size = k->n;
    g->axis[graph_find_axis(g, "v")].size = k->d;
    double all = separate(line, C, n, d);
    double few = planned(partition(g, machine_usual_gpu(), FULL, NULL));
    if (n == d) {
        expect("a kernel for each node", all,
               27 * C * d + 10 * C * C + 2 * n * d);
        expect("the plan", few, 12 * C * d + 2 * n * d);
    }
    printf("C %d, n %d, d %d: %.0f elements of %.0f: %.2f\n", k->C, k->n,
           k->d, few, all, few / all);
    if (few > 0.75 * all) {
        printf("seed000: less than a quarter is saved\n");
        bad++;
    }
}

int main(void)
{
    static char text[16384];
    Case cases[] = { { text, 64, 128, 128 }, { text, 32, 16, 64 } };
    FILE *f = fopen("tests/plans/seed000.graph", "r");

    if (!f || !fread(text, 1, sizeof text - 1, f)) {
        printf("seed000: no graph\n");
        return 1;
    }
    fclose(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Ctx *c = ctx_new();
        if (!ctx_protect(c, check, &cases[i])) {
            printf("seed000: %s\n", c->err.message);
            bad++;
        }
        ctx_free(c);
    }
    return bad != 0;
}
