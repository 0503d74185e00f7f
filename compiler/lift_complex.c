/* lift_complex.c -- two states that stand in each other as the parts of a
 * complex number, which each token turns and scales:
 *
 *     z_i = a_i e^{i w_i} z_{i-1} + x_i
 *
 * In the frame that has turned as far, u_i = e^{-i W_i} z_i, W = cumsum(w), the
 * parts need one another no longer: u_i = a_i u_{i-1} + e^{-i W_i} x_i. The
 * frame begins anew with each chunk, so that states stay what the step says.
 */
#include "lift.h"

typedef struct Product {
    double times;
    Factors of;                         /* that are no numbers */
} Product;

static Product product_of(Graph *g, Ref x)
{
    Product p = { .times = 1 };
    Factors all = { 0 };

    factors(g, x, &all);
    for (int i = 0; i < all.n; i++)
        if (g->n[all.f[i]].op == OP_num)
            p.times *= g->n[all.f[i]].num;
        else
            p.of.f[p.of.n++] = all.f[i];
    return p;
}

/* Takes x out of the factors, once; whether it is one. */
static bool take(Factors *f, Ref x)
{
    for (int i = 0; i < f->n; i++)
        if (f->f[i] == x) {
            f->f[i] = f->f[--f->n];
            return true;
        }
    return false;
}

static bool are_same(const Factors *a, Factors b)
{
    for (int i = 0; i < a->n; i++)
        if (!take(&b, a->f[i]))
            return false;
    return !b.n;
}

/* Of the step's values. */
static bool find_decay(Graph *g, const Coupled *k, const int at[2],
                       ComplexDecay *r)
{
    Ref diagonal = k->keep[at[0]][at[0]], other = k->keep[at[1]][at[0]];
    Ref opposite = k->keep[at[0]][at[1]];

    if (!diagonal || diagonal != k->keep[at[1]][at[1]] || !other || !opposite)
        return false;
    Product even = product_of(g, diagonal), odd = product_of(g, other);
    Product back = product_of(g, opposite);
    if (back.times != -odd.times || !are_same(&odd.of, back.of)
        || (odd.times != even.times && odd.times != -even.times))
        return false;
    for (int i = 0; i < even.of.n; i++) {
        Ref cosine = even.of.f[i], angle = g->n[cosine].a[0];
        Factors a = even.of, b = odd.of;
        if (g->n[cosine].op != OP_cos || !take(&a, cosine)
            || !take(&b, op1(g, OP_sin, angle)) || !are_same(&a, b))
            continue;
        Ref rest = factors_product(g, &a, 0, 0);
        r->angle = odd.times == even.times ? angle : op1(g, OP_neg, angle);
        r->scale = op2(g, OP_mul, num(g, even.times), rest ? rest : num(g, 1));
        return true;
    }
    return false;
}

bool complex_decay(Lift *l, const Coupled *k, const int place[2],
                   ComplexDecay *r)
{
    Ref sloped = 0;

    *r = (ComplexDecay){ 0 };
    if (!find_decay(l->s, k, place, r))
        return false;
    Ref gate = log_of(l->s, r->scale, &sloped);
    if (gate && !(sloped && l->slopes)) {
        r->gate = bounded_gate(l->g, lift(l, gate));
        l->g->sloped |= sloped != 0;
    }
    r->scale = lift(l, r->scale);
    r->angle = lift(l, r->angle);
    return true;
}

/* x turned, by an angle of that cosine and sine; 0: nothing. */
static void turn_parts(Graph *g, Ref cosine, Ref sine, const Ref x[2],
                       Ref to[2])
{
    Ref less = op1(g, OP_neg, sine);

    to[0] = add_opt(g, x[0] ? op2(g, OP_mul, cosine, x[0]) : 0,
                    x[1] ? op2(g, OP_mul, less, x[1]) : 0);
    to[1] = add_opt(g, x[0] ? op2(g, OP_mul, sine, x[0]) : 0,
                    x[1] ? op2(g, OP_mul, cosine, x[1]) : 0);
}

/* y, if x is y where a token is itself and else 0; else 0. */
static Ref of_same_token(Graph *g, Ref x)
{
    const Node *n = &g->n[x];
    Ref same = same_token(g);

    if (x == same)
        return num(g, 1);
    return n->op != OP_mul ? 0 : n->a[0] == same ? n->a[1]
         : n->a[1] == same ? n->a[0] : 0;
}

/* One part in the turning frame. */
static Ref scan_part(Graph *g, Ref scale, Ref in, Ref first)
{
    return !in && !first ? 0
         : !in && is_num(g, scale, 1) ? first
         : recurrence(g, scale, in, first);
}

void walk_complex(Graph *g, const ComplexDecay *r, const Ref in[2],
                  const Ref first[2], Ref out[2])
{
    Ref angle = cumsum(g, per_token(g, r->angle), 0);
    Ref cosine = op1(g, OP_cos, angle), sine = op1(g, OP_sin, angle);
    Ref x[2], back[2], u[2], same = same_token(g);
    bool alone = !first[0] && !first[1];

    for (int i = 0; i < 2; i++) {
        x[i] = in[i] ? of_same_token(g, in[i]) : 0;
        alone &= !in[i] || x[i];
    }
    if (alone) {                        /* what is between two tokens, once */
        turn_parts(g, col(g, cosine), op1(g, OP_neg, col(g, sine)), x, back);
        Ref G = r->gate ? cumsum(g, r->gate, 0) : 0;
        Ref between = G ? dmask(g, G, col(g, G), 0)
                    : scan_part(g, r->scale, same, 0);
        for (int i = 0; i < 2; i++)
            u[i] = back[i] ? op2(g, OP_mul, between, back[i]) : 0;
    } else {
        turn_parts(g, cosine, op1(g, OP_neg, sine), in, back);
        for (int i = 0; i < 2; i++)
            u[i] = scan_part(g, r->scale, back[i], first[i]);
    }
    turn_parts(g, cosine, sine, u, out);
}

/* ---- a frame for a whole block ---- */

/* The gradient of an angle is what is left of turned keys and turned queries,
 * most of which cancels: rounded as operands of products they leave 2e-2 of it
 * wrong, where scores multiplied up leave 2e-3. */
bool find_frame(Lift *l, Block *k)
{
    static const int both[2] = { 0, 1 };
    Graph *g = l->g;
    ComplexDecay r;

    if (l->joint || k->form.n != 2 || !complex_decay(l, &k->form, both, &r)
        || !r.gate
        || !((g->n[r.gate].axes | g->n[r.angle].axes) & k->form.kappa))
        return false;
    for (int found = 0; found < 2; found++) {
        Frame *f = found ? &k->found : &k->left;
        int flags = found ? EXCLUSIVE : 0;
        Ref angle = cumsum(g, per_token(g, r.angle), flags);
        *f = (Frame){ cumsum(g, per_token(g, r.gate), flags),
                      op1(g, OP_cos, angle), op1(g, OP_sin, angle) };
    }
    return true;
}

void write_in_frame(Graph *g, const Block *k, const Ref to[2],
                    Ref in[2])
{
    turn_parts(g, k->left.cosine, op1(g, OP_neg, k->left.sine), to, in);
}
