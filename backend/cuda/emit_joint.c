/* emit_joint.c -- two ahead warpgroups at one chunk, where there is no room for
 * two chunks under way.
 *
 * Gates per key make for much work ahead, and a warpgroup alone keeps a
 * quarter of a multiprocessor busy with one warp. Where two cannot alternate
 * they are joint: each has half of the columns of running sums and of states
 * of one axis, the tiles t, t + 2 ... of the matrices that are made, and gdots
 * of its own, with the scores made of them. They meet between kinds of acts.
 * The second has its rows the other way round, so that warps with many blocks
 * below the diagonal share their part of the multiprocessor with warps that
 * have few.
 */
#include "ahead.h"

static bool is_narrow(const Emit *e, Ref r)
{
    return padded(e->g->axis[tile_axis(e, r)].size) != 2 * ROWS;
}

/* Gdots below r; others: products without gates. */
static int count_gdots(const Emit *e, Ref r, int *others)
{
    const Node *n = &e->g->n[r];
    int found = 0;
    if (!is_score(e, r))
        return 0;
    *others += n->op == OP_dot;
    if (n->op == OP_gdot || n->op == OP_dot)
        return n->op == OP_gdot;
    for (int i = 0; i < 3; i++)
        if (n->a[i])
            found += count_gdots(e, n->a[i], others);
    return found;
}

bool can_join(const Emit *e)
{
    int others = 0;
    bool can = e->groups == 1 && e->aheads == 1 && e->ngates && !e->nrotations
            && !e->paired && !e->out->split && e->ranks == 1
            && e->o->attempt < 2 && e->nscores > 1;
    for (int i = 0; i < e->nscores && can; i++)
        can = count_gdots(e, e->score[i].root, &others) == 1;
    for (int i = 0; i < e->ngates && can; i++)
        can = !is_narrow(e, e->gate[i].of);
    for (int i = 0; i < e->nchains && can; i++)
        can = !is_narrow(e, e->chain[i].scan);
    for (int i = 0; i < e->npub && can; i++)
        can = !e->pub[i].deferred;
    return can && !others;
}

int alternates(const Emit *e)
{
    return e->joint ? 1 : e->aheads;
}

/* ---- text ---- */

const char *ahead_sync(const Emit *e)
{
    return e->team ? "joint_sync();\n" : !e->joint ? "warpgroup_sync();\n"
         : "joint_sync();\nat = joint_lane();\ni0 = at.row;\ni1 = i0 + 8;\n";
}

const char *tile_loop(const Emit *e)
{
    return e->joint ? "for (int t = at.team; t < %d; t += 2)"
                    : "for (int t = 0; t < %d; t++)";
}

int lane_columns(const Emit *e, int width)
{
    return width / (e->joint ? 64 : 32);
}

void begin_team(const Emit *e, Buf *b, int team)
{
    if (e->joint)
        buf_printf(b, "if (at.team == %d) {\n", team);
}

void end_team(const Emit *e, Buf *b)
{
    if (e->joint)
        buf_printf(b, "}\n");
}
