/* over.c -- whether a kernel's result may lie where one of its inputs does: all
 * that its block loads of the input for an item is there before what comes of
 * it is stored, and no other block loads the same.
 */
#include "schedule.h"

static bool shows_input(const Schedule *s, Ref r, int input)
{
    const Node *n = &s->g->n[loaded_node(s, shown_node(s->g, r))];

    return n->op == OP_input && n->index == input;
}

static int last_post(const Schedule *s, int buffer)
{
    int found = NOTHING;

    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].post_full >> buffer & 1 && !s->inst[i].deferred)
            found = i;
    return found;
}

/* Has the instruction's role waited for the buffer when it comes to it, or a
 * role that it has waited for? `depth`: so many of these. */
static bool has_waited(const Schedule *s, int at, int buffer, int depth)
{
    for (int i = 0; i <= at; i++) {
        const KInst *k = &s->inst[i];
        if (k->role != s->inst[at].role || (k->deferred && i != at))
            continue;
        if (k->wait_full >> buffer & 1)
            return true;
        for (int b = 0; depth && b < s->nbuffers; b++) {
            int post = k->wait_full >> b & 1 && s->buffer[b].writer != KR_LOAD
                     ? last_post(s, b) : NOTHING;
            if (post != NOTHING && has_waited(s, post, buffer, depth - 1))
                return true;
        }
    }
    return false;
}

/* What makes the tile that is stored as the output; NOTHING: other than that
 * comes of it. */
static int maker_of(const Schedule *s, int output)
{
    int found = NOTHING, n = 0;

    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        if (k->op != K_STORE || k->index != output)
            continue;
        n++;
        if (k->nin == 1 && s->value[k->in[0]].layout == LAY_TILE)
            found = value_writer(s, k->in[0]);
    }
    return n == 1 ? found : NOTHING;
}

/* Is the input read by this instruction in another way than as a tile that is
 * loaded at its own tokens? */
static bool reads_otherwise(const Schedule *s, const KInst *k, int input)
{
    for (int j = 0; k->op == K_LOAD && j < k->nout; j++) {
        Ref r = s->value[k->out[j]].node;
        if (shows_input(s, r, input)
            && (tokens_delayed(s, shown_node(s->g, r))
                || s->value[k->out[j]].layout != LAY_TILE))
            return true;
    }
    for (int j = 0; j < k->nin; j++)
        if (s->value[k->in[j]].layout == LAY_GLOBAL
            && shows_input(s, s->value[k->in[j]].node, input))
            return true;
    for (int j = 0; j < k->nnodes; j++) {
        const Node *n = &s->g->n[k->node[j]];
        bool tile = false;
        for (int i = 0; i < k->nin; i++)
            tile |= s->value[k->in[i]].layout == LAY_TILE
                 && shows_input(s, s->value[k->in[i]].node, input);
        if (n->op == OP_input && n->index == input && !tile)
            return true;
    }
    return false;
}

bool schedule_lies_over(const Schedule *s, int output, int input)
{
    int made = s->tokens.threads || s->slices > 1 || s->paired || s->splits
             ? NOTHING : maker_of(s, output);

    for (int i = 0; made != NOTHING && i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        if (reads_otherwise(s, k, input))
            return false;
        for (int j = 0; k->op == K_LOAD && j < k->nout; j++)
            if (shows_input(s, s->value[k->out[j]].node, input)
                && (k->deferred || !has_waited(s, made,
                                     s->value[k->out[j]].buffer, NKROLES)))
                return false;
    }
    return made != NOTHING;
}
