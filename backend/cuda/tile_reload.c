/* tile_reload.c -- what a block knows of the item in hand may lie in shared
 * memory. So it does around a walk in parts, which leave no registers: each
 * part reads it once. Where registers are short it is read where it is used: a
 * register less for each number, and for each tensor's address that ptxas
 * would have kept from chunk to chunk.
 */
#include "tile.h"

bool reloads(const Tiles *t)
{
    return t->o->attempt > 0 && t->m->chunk > 1;
}

bool puts_item(const Tiles *t)
{
    return reloads(t) || in_parts(t);
}

/* A name for what is made of others each time it is read. */
void put_lazy(Buf *b, const char *type, const char *name, const char *value)
{
    buf_printf(b, "const auto %s = lazy<%s>([&] { return %s; });\n(void)%s;\n",
               name, type, value, name);
}

/* After the item's own constants, which these names hide. */
void put_item(const Tiles *t, Buf *b)
{
    const char *last = t->k->kind == K_TOKEN ? "at" : "chunks";

    put_known(t, b);
    buf_printf(b, "if (TID == 0) {\nknown->item = item;\nknown->s = s;\n"
               "known->slot = slot;\n"
               "known->start = q.start;\nknown->len = q.len;\n"
               "known->m = 0;\nknown->last = %s;\nknown->b = q.b;\n"
               "known->head = head;\n"
               "known->block = block;\n}\n__syncthreads();\n{\n", last);
    put_reloaded_names(t, b);
    buf_printf(b, "const Reloaded<i64> s = { &known->s }, %s = "
               "{ &known->last };\n"
               "(void)s;\n(void)%s;\n", last, last);
}

void put_known(const Tiles *t, Buf *b)
{
    buf_printf(b, "volatile Item *const known = (Item *)(arena + %d);\n",
               (int)reload_place(t));
}

void put_reloaded_names(const Tiles *t, Buf *b)
{
    buf_printf(b, "const ReloadedSequence q = { { &known->b }, { "
               "&known->start },"
               " { &known->len } };\n"
               "const Reloaded<i64> slot = { &known->slot };\n"
               "const Reloaded<int> head = { &known->head };\n"
               "(void)q;\n(void)slot;\n(void)head;\n");
    if (t->out->blocks > 1)
        buf_printf(b, "const Reloaded<int> block = { &known->block };\n"
                   "(void)block;\n");
}

/* The same as numbers of a part's own, read once. */
void put_names_once(const Tiles *t, Buf *b)
{
    buf_printf(b, "const Item &known = *(const Item *)(arena + %d);\n"
               "const Sequence q = { known.b, 0, known.start, known.len };\n"
               "const i64 slot = known.slot;\n"
               "const int head = known.head, block = known.block;\n"
               "(void)q;\n(void)slot;\n(void)head;\n(void)block;\n",
               (int)reload_place(t));
}

void put_reloaded_chunk(const Tiles *t, Buf *b)
{
    const int64_t bytes[] = { t->m->kept.bytes, t->m->later };
    Buf token = { .ctx = t->c };

    buf_printf(b, "const int n = fresh((int)min(q.len - at * %d, (i64)%d));\n",
               t->m->chunk, t->m->chunk);
    buf_printf(&token, "q.start + at * %d", t->m->chunk);
    put_lazy(b, "i64", "token", token.s);
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "later" : "stored";
        Buf from = { .ctx = t->c };
        buf_printf(&from, "global(a.run.%s) + ((slot + at) * a.run.heads +"
                   " head) * %lldll", name, (long long)bytes[i]);
        if (bytes[i])
            put_lazy(b, "char *", name, from.s);
    }
}

/* Before the barrier that ends the item, and the scope. */
void end_item(Buf *b)
{
    buf_printf(b, "}\nitem = known->item;\n");
}

/* The addresses of the tiles in the workspace that the act uses, for it alone;
 * true: that has opened a scope. */
bool put_spilled(const Tiles *t, Buf *b, const Act *a)
{
    bool any = false;

    for (int i = 0; i < a->n; i++) {
        int tile = a->use[i] / 2;
        bool again = !t->tile[tile].spilled;
        for (int k = 0; k < i; k++)
            again |= a->use[k] / 2 == tile;
        if (again)
            continue;
        if (!any)
            buf_printf(b, "{\nchar *const spill = spill_of(a.run, %lldll);\n",
                       (long long)t->out->spill);
        any = true;
        put_tile(t, b, tile, NULL);
    }
    return any;
}

/* Behind a float a warp; both before all tiles. */
int64_t reload_place(const Tiles *t)
{
    return t->scratch ? 32 * (int64_t)sizeof(float) : 0;
}

int64_t reload_bytes(const Tiles *t)
{
    return puts_item(t) ? 80 : 0;
}
