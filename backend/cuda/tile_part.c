/* tile_part.c -- a long walk in parts, each a function that is not inlined:
 * the compiler takes more than twice as long over twice the text, and registers
 * that are short in one part are spilled in that alone. A part ends with a
 * barrier; all that it hands on lies in tiles. It finds the kernel's arguments
 * in shared memory, as the constant bank is the kernel's alone, and there what
 * the item in hand has of each tensor. Two or three parts are as good as ten:
 * ptxas takes its time for each function, too.
 */
#include "tile.h"

#include <string.h>

enum { PART_TEXT = 6000 };

void stretch_end(Tiles *t, const Buf *b, const uint8_t *uses)
{
    if (t->nstretches == t->cap_stretches) {
        size_t old = (size_t)t->cap_stretches * sizeof *t->stretch;
        t->cap_stretches = t->cap_stretches ? 2 * t->cap_stretches : 64;
        t->stretch = ctx_grow(t->c, t->stretch, old,
                              (size_t)t->cap_stretches * sizeof *t->stretch);
    }
    Stretch *s = &t->stretch[t->nstretches++];
    s->end = b->len;
    s->uses = ctx_alloc(t->c, (size_t)t->ntiles + 1);
    memcpy(s->uses, uses, (size_t)t->ntiles);
}

/* Not in the last attempt: around a call of what needs all registers, one may
 * be spilled. */
int parts_of(const Tiles *t)
{
    bool whole = t->m->chunk == 1 || t->o->attempt == CUDA_ATTEMPTS - 1;
    size_t len = 0;

    for (int i = 0; i < t->nacts && !whole; i++)
        len += t->act[i].when == WITHIN ? t->act[i].text.len : 0;
    return len < 2 * PART_TEXT ? 1 : (int)(len / PART_TEXT);
}

/* Inputs that are loaded a chunk ahead have their names from the walk. */
bool in_parts(const Tiles *t)
{
    return t->parts > 1 && !t->ahead;
}

/* Run, and each Tensor (tile.cuh). */
int64_t args_bytes(const Tiles *t)
{
    int64_t n = (int64_t)sizeof(HostRun)
              + t->out->ntensors * (40 + 8 * (int64_t)cuda_rank(t->g));

    return in_parts(t) ? (n + 15) / 16 * 16 : 0;
}

static int64_t args_place(const Tiles *t)
{
    return reload_place(t) + reload_bytes(t);
}

void put_args_copy(const Tiles *t, Buf *b)
{
    if (in_parts(t))
        buf_printf(b, "static_assert(sizeof a <= %d, \"room for the copy\");\n"
                   "copy_args(arena + %d, a);\n__syncthreads();\n",
                   (int)args_bytes(t), (int)args_place(t));
}

void put_item_parts(const Tiles *t, Buf *b)
{
    if (in_parts(t))
        buf_printf(b, "place(*(Placed%d *)(arena + %d), a, q.b, head);\n",
                   t->at, (int)args_place(t));
}

const char *chunk_text(const Tiles *t, const char *last, const char *m)
{
    return t->k->kind == K_TOKEN ? last : t->k->kind == K_FORWARD ? m
         : ctx_format(t->c, "%s - 1 - %s", last, m);
}

static void put_part(const Tiles *t, Buf *b, int number, const uint8_t *uses,
                     const char *text, size_t len)
{
    const char *known = reloads(t) ? "known->" : "known.";
    const char *at = chunk_text(t, ctx_format(t->c, "%slast", known),
                                ctx_format(t->c, "%sm", known));

    buf_printf(b, "CALLED void %s_part%d()\n{\n"
               "const Placed%d &a = *(const Placed%d *)(arena + %d);\n",
               t->out->name, number, t->at, t->at, (int)args_place(t));
    declare_tiles(t, b, uses);
    if (reloads(t)) {
        put_known(t, b);
        put_reloaded_names(t, b);
        put_lazy(b, "i64", "at", at);
    } else {
        put_names_once(t, b);
        buf_printf(b, "const i64 at = %s;\n", at);
    }
    put_chunk(t, b);
    buf_put(b, text, len);
    buf_printf(b, "}\n");
}

static const uint8_t *used_around(const Tiles *t)
{
    uint8_t *uses = ctx_alloc(t->c, (size_t)t->ntiles + 1);

    for (int i = 0; i < t->nacts; i++)
        for (int u = 0; u < t->act[i].n && t->act[i].when != WITHIN; u++)
            uses[t->act[i].use[u] / 2] = 1;
    return uses;
}

const uint8_t *put_parts(const Tiles *t, Buf *b, Buf *acts)
{
    Buf walk = { .ctx = t->c };
    uint8_t *uses = ctx_alloc(t->c, (size_t)t->ntiles + 1);
    int n = in_parts(t) ? t->parts : 1, done = 0;
    size_t from = 0;

    if (n == 1)
        put_chunk(t, &walk);
    else
        buf_printf(b, "struct Placed%d { Run run; Placed t[%d]; };\n", t->at,
                   t->out->ntensors + !t->out->ntensors);
    for (int i = 0; i < t->nstretches && n > 1; i++) {
        const Stretch *s = &t->stretch[i];
        for (int k = 0; k < t->ntiles; k++)
            uses[k] |= s->uses[k];
        if (s->end < acts->len && s->end < acts->len / (size_t)n
                                         * (size_t)(done + 1))
            continue;
        put_part(t, b, done, uses, acts->s + from, s->end - from);
        buf_printf(&walk, "%s_part%d();\n", t->out->name, done++);
        memset(uses, 0, (size_t)t->ntiles);
        from = s->end;
    }
    buf_put(&walk, acts->s ? acts->s + from : "", acts->len - from);
    *acts = walk;
    return n > 1 ? used_around(t) : NULL;
}
