/* emit_io.c -- the warps that load and store, by the copy engine. */
#include "emit.h"

static int load_bytes(const Emit *e, bool scan)
{
    int bytes = 0;
    for (int i = 0; i < e->ntiles; i++)
        if (!e->tile[i].computed && (!scan || e->tile[i].scanned))
            bytes += tile_count(e, e->tile[i].r)
                   * tile_bytes_of(e, e->tile[i].r)
                   / (is_half_loaded(e, &e->tile[i]) ? 2 : 1);
    return bytes;
}

static void load_matrix(Emit *e, Buf *b, const Tile *tile)
{
    Ref r = tile->r;
    CudaKernel *k = e->out;
    bool rows = tile_axis(e, r) == e->row_axis;
    const char *half = is_half_loaded(e, tile) ? " * block" : "";
    if (k->nmaps == CUDA_MAPS)
        no_place(e, r, "too many matrices in one kernel");
    if (e->g->axis[tile_axis(e, r)].size % 8)
        no_place(e, r, "rows of other lengths than multiples of 16 bytes");
    if (k->split && !tile->scanned)
        buf_printf(b, "if (c >= first) {\n");
    for (int t = *half != 0; t < tile_count(e, r); t++)
        for (int at = 0; at < tile_bytes_of(e, r); at += TILE_BYTES)
            buf_printf(b, "load_%s(%s + %d%s + %d, &a.map[%d], full, %s%d%s +"
                       " %d, token%s, head%d, where.b);\n",
                       e->g->n[r].axes & AXIS(AX_R) ? "ranks" : "tile",
                       tile_place(e, r), t * tile_bytes_of(e, r), half, at,
                       k->nmaps, rows ? "row0 + " : "", t * ROWS, half,
                       at / 256, is_delayed(e, r) ? " - 1" : "", k->nmaps);
    if (k->split && !tile->scanned)
        buf_printf(b, "}\n");
    const Node *in = &e->g->n[tile_input(e, r)];
    DType type = is_float(e, r) ? F32 : e->o->tile;
    k->map[k->nmaps++] = cuda_arg(ARG_INPUT, in->index, type);
}

/* Every lane for itself. One for all, behind __syncwarp, would be right, too,
 * but compilers leave that out of a warp that is together, and who looks for
 * races in what is left sees no order between the others' reads and the next
 * to write there. A read that is still under way would be overtaken by the copy
 * engine, unless it is fenced. */
void leave_stage(Buf *b)
{
    buf_printf(b, "fence_async();\nrelease<PAIRED>(empty + 8 * pos.stage);\n");
}

void emit_loads(Emit *e)
{
    Buf *b = &e->load;
    buf_printf(b, "NO_UNROLL for (int c = 0; c < last; c++, pos.next()) {\n"
               "const u32 stage = base + pos.stage * STAGE_BYTES;\n"
               "const u32 full = loaded + 8 * pos.stage;\n"
               "const int token = where.start + 64 / RANKS * c;\n");
    for (int i = 0, map = e->out->nmaps; i < e->ntiles; i++)
        if (!e->tile[i].computed) {     /* while there is nothing to load to */
            buf_printf(b, "const int head%d = fresh(head / a.group[%d]);\n",
                       map, map);
            map++;
        }
    buf_printf(b, "wait(empty + 8 * pos.stage, pos.phase ^ 1);\n");
    if (e->out->split)
        buf_printf(b, "arrive_expecting(full, c < first ? %d : %d);\n",
                   load_bytes(e, true), load_bytes(e, false));
    else
        buf_printf(b, "arrive_expecting(full, %d);\n", load_bytes(e, false));
    for (int i = 0; i < e->ntiles; i++)
        if (!e->tile[i].computed)
            load_matrix(e, b, &e->tile[i]);
    buf_printf(b, "}\n");
}

static void store_output(Emit *e, int out)
{
    CudaKernel *k = e->out;
    Buf *b = &e->store;
    int size = e->g->axis[e->row_axis].size;
    if (size % 8)
        no_place(e, e->g->out[out].node, "rows of other lengths than"
                 " multiples of 16 bytes");
    buf_printf(b, "if (a.tensor[%d].p) {\n", k->ntensors);
    for (int t = 0; t < e->groups; t++)
        buf_printf(b, "store_chunk(a.map[%d], a.tensor[%d], base + OUTPUT_%d "
                   "+ %d + buffer * 8192, where, c, row0 + %d, "
                   "%d, head, lane);\n", k->nmaps, k->ntensors, out,
                   e->buffers * t * TILE_BYTES, t * ROWS, size);
    buf_printf(b, "}\n");
    const CudaArg arg = cuda_arg(ARG_OUTPUT, out, e->o->tile);
    k->map[k->nmaps++] = arg;
    k->tensor[k->ntensors++] = arg;
}

/* Chunk c's buffer is free again for chunk c + 2, which is written in the
 * loop's iteration c + 3: that iteration's `scored` waits for the consent. With
 * few stages a `scored` comes too early for that, and the state's warpgroups
 * wait for their buffer. */
void emit_stores(Emit *e)
{
    Buf *b = &e->store;
    if (!e->tight)
        buf_printf(b, "for (int c = first; c < first + 3 && c < last; c++)\n"
                   "if (lane == 0)\narrive(scored + 8 * (c %% STAGES));\n");
    buf_printf(b, "NO_UNROLL for (int c = first; c < last; c++) {\n"
               "const u32 n = c - first, buffer = n %% BUFFERS;\n"
               "wait(filled + 8 * buffer, n / BUFFERS & 1);\n");
    for (int i = 0; i < e->g->nout; i++)
        if (e->g->out[i].node && e->mine[e->g->out[i].node])
            store_output(e, i);
    buf_printf(b, "bulk_commit();\nbulk_wait_read();\n__syncwarp();\n");
    if (e->tight)
        buf_printf(b, "if (lane == 0)\n"
                   "arrive(drained + 8 * buffer);\n");
    else
        buf_printf(b, "if (lane == 0 && c + 3 <= last)\n"
                   "arrive(c + 3 < last ? scored + 8 * ((c + 3) %% STAGES) :"
                   " drained);\n");
    buf_printf(b, "}\nbulk_wait();\n");
}
