#define RANKS 1
#include "numbers.cuh"
#include "device.cuh"
#include "vectors.cuh"
#include "pair.cuh"
#include "wgmma.cuh"
#include "gates.cuh"
#include "first.cuh"
#include "inverse.cuh"
#include "keep.cuh"

/* k0_forward: 64 tokens a chunk, 131328 bytes a chunk and head.
 *   loaded:
 *      %1 = input; %2 = input; %3 = input;
 *      %4 = input;
 *   vector warp:
 *      %8 = max %4 %7; %9 = cumsum %8; %10 = last %9;
 *      %11 = sub %10 %9; %12 = exp %11; %13 = exp %10;
 *      %18 = exp %9; %21 = col %9;
 *   ahead:
 *      %23 = dmask %9 %21; %24 = dot %1 %22; %25 = mul %23 %24;
 *   state:
 *      %6 = state; %14 = mul %6 %13; %15 = mul %3 %12;
 *      %16 = dot %2 %15; %17 = add %14 %16; %19 = dot %1 %6;
 *      %20 = mul %18 %19; %22 = col %2; %26 = col %3;
 *      %27 = dot %25 %26; %28 = add %20 %27;
 */
namespace in_k0_forward {
constexpr int TILE_1 = 0;
constexpr int TILE_3 = 16384;
constexpr int TILE_2 = 32768;
constexpr int SCORE_0 = 49152;
constexpr int AT_v18 = 0;
constexpr int AT_v12 = 256;
constexpr int AT_v9_log2 = 512;
constexpr int AT_v13 = 768;
constexpr bool AT_ONCE = 0, PAIRED = 0;
constexpr int STAGES = 3, STAGE_BYTES = 57344, VECTOR_BYTES = 1024,
    BUFFERS = 2, AHEADS = 1, SCRATCH_BYTES = 0;
constexpr int OUTPUT_0 = 172032;
constexpr int VECTORS = 204800;
constexpr int INPUTS = 207872;
constexpr int SCRATCH = 209920;
constexpr int BARRIERS = 209920;
struct Args {
    TensorMap map[4];
    Tensor tensor[4];
    const Sequence *seq;
    i64 tokens;
    char *kept;
    int heads, blocks, segments, bound[5];
    int group[24];
};
extern "C" __global__ void __launch_bounds__(512, 1)
k0_forward(const __grid_constant__ Args a)
    {
    extern __shared__ unsigned char raw[];
    const u32 base = (shared_address(raw) + 1023) & ~1023u;
    const int block = blockIdx.x % a.blocks;
    auto place = [&](u32 b) { return b / a.blocks / a.segments; };
    const int head = place(blockIdx.x) % a.heads;
    const int seq = place(blockIdx.x) / a.heads;
    const int row0 = 128 * block;
    const Rows where = rows_in(a.seq ? a.seq[seq] : Sequence { seq, 0, 0, a.tokens });
    const int segment = blockIdx.x / a.blocks % a.segments;
    const i64 chunks = (where.len + 63) / 64;
    const int first = (int)(chunks * a.bound[segment] >> 12);
    const int last = (int)(chunks * a.bound[segment + 1] >> 12);
    const u32 loaded = base + BARRIERS, empty = loaded + 8 * STAGES,
        ready = empty + 8 * STAGES, scored = ready + 8 * STAGES,
        filled = scored + 8 * STAGES, drained = filled + 16,
        computed = drained + 16, shared = computed + 8 * STAGES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(loaded + 8 * i, 1);
            barrier_init(empty + 8 * i, 256);
            barrier_init(ready + 8 * i, 32);
            barrier_init(computed + 8 * i, 128);
            barrier_init(shared + 8 * i, 1);
            barrier_init(scored + 8 * i, 129);
        }
        for (int i = 0; i < 2; i++) {
            barrier_init(filled + 8 * i, 256);
            barrier_init(drained + 8 * i, 1);
        }
        barrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        fewer_registers<32>();
        const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
        Ring<STAGES> pos;
        if (warp == 0 && lane == 0) {
            NO_UNROLL for (int c = 0; c < last; c++, pos.next()) {
                const u32 stage = base + pos.stage * STAGE_BYTES;
                const u32 full = loaded + 8 * pos.stage;
                const int token = where.start + 64 / RANKS * c;
                const int head0 = fresh(head / a.group[0]);
                const int head1 = fresh(head / a.group[1]);
                const int head2 = fresh(head / a.group[2]);
                wait(empty + 8 * pos.stage, pos.phase ^ 1);
                arrive_expecting(full, c < first ? 32768 : 49152);
                if (c >= first) {
                    load_tile(stage + TILE_1 + 0 + 0, &a.map[0], full, 0 + 0, token, head0, where.b);
                    load_tile(stage + TILE_1 + 8192 + 0, &a.map[0], full, 64 + 0, token, head0, where.b);
                }
                load_tile(stage + TILE_3 + 0 + 0, &a.map[1], full, row0 + 0 + 0, token, head1, where.b);
                load_tile(stage + TILE_3 + 8192 + 0, &a.map[1], full, row0 + 64 + 0, token, head1, where.b);
                load_tile(stage + TILE_2 + 0 + 0, &a.map[2], full, 0 + 0, token, head2, where.b);
                load_tile(stage + TILE_2 + 8192 + 0, &a.map[2], full, 64 + 0, token, head2, where.b);
            }
        } else if (warp == 1) {
            const u32 inputs = base + INPUTS;
            const Stream<4> in4(a.tensor[0], head, where, lane);
            auto fetch_chunk = [&](int c) {
                if (c < last) {
                    in4.fetch(inputs + 0 * RING, c, lane);
                }
                copy_commit();
            };
            NO_UNROLL for (int c = 0; c < AHEAD - 1; c++)
                fetch_chunk(c);
            NO_UNROLL for (int c = 0; c < last; c++, pos.next()) {
                const u32 vectors = base + VECTORS + pos.stage * VECTOR_BYTES;
                const int rows = rows_of(where, c);
                fetch_chunk(c + AHEAD - 1);
                copy_wait<AHEAD - 1>();
                const Pair v4 = in4.fetched(inputs + 0 * RING, c, lane);
                const Pair v8 = { max_(v4.a, bits(0xc2d00000)), max_(v4.b, bits(0xc2d00000)) };
                const Pair v9 = running_sum({ v8.a, v8.b }, lane, rows);
                const float v10 = last_row(v9, rows);
                const Pair v11 = { v10 - v9.a, v10 - v9.b };
                const Pair v12 = { exp_(v11.a), exp_(v11.b) };
                const float v13 = exp_(v10);
                const Pair v18 = { exp_(v9.a), exp_(v9.b) };
                wait(empty + 8 * pos.stage, pos.phase ^ 1);
                store_pair(vectors + AT_v18, { v18.a, v18.b }, lane);
                store_pair(vectors + AT_v12, { v12.a, v12.b }, lane);
                if (lane == 0)
                    store1(vectors + AT_v13, v13);
                store_pair(vectors + AT_v9_log2, { v9.a * LOG2E, v9.b * LOG2E }, lane);
                wait(loaded + 8 * pos.stage, pos.phase);
                const u32 stage = base + pos.stage * STAGE_BYTES;
                if (rows < 64) {
                    clear_rows(stage + TILE_1 + 0 + 0, rows, 64, lane);
                    clear_rows(stage + TILE_1 + 8192 + 0, rows, 64, lane);
                    clear_rows(stage + TILE_3 + 0 + 0, rows, 64, lane);
                    clear_rows(stage + TILE_3 + 8192 + 0, rows, 64, lane);
                    clear_rows(stage + TILE_2 + 0 + 0, rows, 64, lane);
                    clear_rows(stage + TILE_2 + 8192 + 0, rows, 64, lane);
                    fence_async();
                }
                fence_async();
                arrive(ready + 8 * pos.stage);
            }
        } else if (warp == 2) {
            for (int c = first; c < first + 3 && c < last; c++)
                if (lane == 0)
                arrive(scored + 8 * (c % STAGES));
            NO_UNROLL for (int c = first; c < last; c++) {
                const u32 n = c - first, buffer = n % BUFFERS;
                wait(filled + 8 * buffer, n / BUFFERS & 1);
                if (a.tensor[1].p) {
                    store_chunk(a.map[3], a.tensor[1], base + OUTPUT_0 + 0 + buffer * 8192, where, c, row0 + 0, 128, head, lane);
                    store_chunk(a.map[3], a.tensor[1], base + OUTPUT_0 + 16384 + buffer * 8192, where, c, row0 + 64, 128, head, lane);
                }
                bulk_commit();
                bulk_wait_read();
                __syncwarp();
                if (lane == 0 && c + 3 <= last)
                    arrive(c + 3 < last ? scored + 8 * ((c + 3) % STAGES) : drained);
            }
            bulk_wait();
        }
    } else if (threadIdx.x < 256) {
        fewer_registers<80>();
        const Lane at = lane_here();
        const int i0 = at.row, i1 = i0 + 8;
        Ring<STAGES> pos;
        const u32 scratch = base + SCRATCH;
        int c = 0;
        NO_UNROLL for (; c < first; c += 1, pos.next()) {
            const u32 stage = base + pos.stage * STAGE_BYTES;
            const u32 vectors = base + VECTORS + pos.stage * VECTOR_BYTES;
            const int rows = rows_of(where, c);
            wait(ready + 8 * pos.stage, pos.phase);
            fence_async();
            arrive(computed + 8 * pos.stage);
        }
        NO_UNROLL for (; c < last; c += 1, pos.next()) {
            const u32 stage = base + pos.stage * STAGE_BYTES;
            const u32 vectors = base + VECTORS + pos.stage * VECTOR_BYTES;
            const int rows = rows_of(where, c);
            wait(ready + 8 * pos.stage, pos.phase);
            wgmma_wait<0>();
            /* %25 */
            {
                float dot24[32];
                wgmma_fence();
                multiply<8, 0>(dot24, along_k(stage + TILE_1), along_k(stage + TILE_2), 0);
                wgmma_commit();
                float decay[32];
                u32 kept[16];
                {
                    const float row_v9_log2_0 = load1(vectors + AT_v9_log2 + 4 * i0);
                    const float row_v9_log2_1 = load1(vectors + AT_v9_log2 + 4 * i1);
                    UNROLL for (int n = 0; n < 8; n++) {
                        const int j0 = 8 * n + at.col, j1 = j0 + 1;
                        const float2 col_v9_log2 = load2(vectors + AT_v9_log2 + 4 * j0);
                        decay[4 * n + 0] = exp2_(row_v9_log2_0 - col_v9_log2.x);
                        decay[4 * n + 1] = exp2_(row_v9_log2_0 - col_v9_log2.y);
                        decay[4 * n + 2] = exp2_(row_v9_log2_1 - col_v9_log2.x);
                        decay[4 * n + 3] = exp2_(row_v9_log2_1 - col_v9_log2.y);
                        kept[2 * n + 0] = (i0 >= j0 ? 0xffffu : 0) | (i0 >= j1 ? 0xffff0000u : 0);
                        kept[2 * n + 1] = (i1 >= j0 ? 0xffffu : 0) | (i1 >= j1 ? 0xffff0000u : 0);
                    }
                    keep(decay);
                    keep(kept);
                }
                wgmma_wait<0>();
                keep(dot24);
                u32 packed[16];
                UNROLL for (int n = 0; n < 8; n++) {
                    const int j0 = 8 * n + at.col, j1 = j0 + 1;
                    const float v24_0 = dot24[4 * n + 0],
                        v24_1 = dot24[4 * n + 1],
                        v24_2 = dot24[4 * n + 2],
                        v24_3 = dot24[4 * n + 3];
                    const float v25_0 = v24_0 * decay[4 * n + 0],
                        v25_1 = v24_1 * decay[4 * n + 1],
                        v25_2 = v24_2 * decay[4 * n + 2],
                        v25_3 = v24_3 * decay[4 * n + 3];
                    packed[2 * n + 0] = pack(v25_0, v25_1) & kept[2 * n + 0];
                    packed[2 * n + 1] = pack(v25_2, v25_3) & kept[2 * n + 1];
                }
                write_fragment(stage + SCORE_0, packed, at);
            }
            fence_async();
            arrive(scored + 8 * pos.stage);
        }
    } else {
        more_registers<200>();
        const Lane at = lane_here();
        const int group = (threadIdx.x >> 7) - 2;
        Ring<STAGES> pos;
        u32 y0[16];
        auto store_outputs = [&](u32 c) {
            write_transposed(base + OUTPUT_0 + (BUFFERS * group + c % BUFFERS) * 8192, y0, at);
            fence_async();
            arrive(filled + 8 * (c % BUFFERS));
        };
        float s0[64];
        u32 s0_packed[32];
        load_state<128>(s0, a.tensor[2], seq, head, at, row0 + 64 * group, 128);
        NO_UNROLL for (int c = 0; c < first; c++, pos.next()) {
            const u32 stage = base + pos.stage * STAGE_BYTES;
            const u32 vectors = base + VECTORS + pos.stage * VECTOR_BYTES;
            wait(computed + 8 * pos.stage, pos.phase);
            wgmma_wait<0>();
            u32 t3[16];
            read_transposed(t3, stage + TILE_3 + group * 8192, at);
            u32 scaled4[16];
            scale_columns(scaled4, t3, vectors + AT_v12, at);
            const float one_v13 = load1(vectors + AT_v13);
            UNROLL for (int n = 0; n < 16; n++) {
                s0[4 * n + 0] = s0[4 * n + 0] * one_v13;
                s0[4 * n + 1] = s0[4 * n + 1] * one_v13;
                s0[4 * n + 2] = s0[4 * n + 2] * one_v13;
                s0[4 * n + 3] = s0[4 * n + 3] * one_v13;
            }
            wgmma_fence();
            multiply<4, 1>(s0, scaled4, across_k(stage + TILE_2), 1);
            wgmma_commit();
            wgmma_wait<0>();
            keep(s0);
            keep(scaled4);
            fence_async();
            release<PAIRED>(empty + 8 * pos.stage);
        }
        pack(s0_packed, s0);
        keep(s0_packed);
        NO_UNROLL for (int c = first; c < last; c++, pos.next()) {
            const u32 stage = base + pos.stage * STAGE_BYTES;
            const u32 vectors = base + VECTORS + pos.stage * VECTOR_BYTES;
            if (is_kept(c))
                keep_state<128>((unsigned short *)(kept_chunk(a.kept, where, seq, c, a.tokens, a.heads, head, 32768) + 0), s0_packed, at, row0 + 64 * group, 128);
            wait(scored + 8 * pos.stage, (c - first) / STAGES & 1);
            wgmma_wait<0>();
            u32 t3[16];
            read_transposed(t3, stage + TILE_3 + group * 8192, at);
            float f19[32];
            wgmma_fence();
            multiply<8, 0>(f19, s0_packed, along_k(stage + TILE_1), 0);
            wgmma_commit();
            u32 scaled8[16];
            scale_columns(scaled8, t3, vectors + AT_v12, at);
            const float one_v13 = load1(vectors + AT_v13);
            UNROLL for (int n = 0; n < 16; n++) {
                s0[4 * n + 0] = s0[4 * n + 0] * one_v13;
                s0[4 * n + 1] = s0[4 * n + 1] * one_v13;
                s0[4 * n + 2] = s0[4 * n + 2] * one_v13;
                s0[4 * n + 3] = s0[4 * n + 3] * one_v13;
            }
            wgmma_fence();
            multiply<4, 1>(s0, scaled8, across_k(stage + TILE_2), 1);
            wgmma_commit();
            wgmma_wait<1>();
            keep(f19);
            keep(s0_packed);
            UNROLL for (int n = 0; n < 8; n++) {
                const float2 col_v18 = load2(vectors + AT_v18 + 4 * (8 * n + at.col));
                f19[4 * n + 0] = col_v18.x * f19[4 * n + 0];
                f19[4 * n + 1] = col_v18.y * f19[4 * n + 1];
                f19[4 * n + 2] = col_v18.x * f19[4 * n + 2];
                f19[4 * n + 3] = col_v18.y * f19[4 * n + 3];
            }
            wgmma_fence();
            multiply<4, 0>(f19, t3, along_k(stage + SCORE_0), 1);
            wgmma_commit();
            if (!AT_ONCE && c > first)
                store_outputs(c - first - 1);
            wgmma_wait<1>();
            keep(s0);
            keep(scaled8);
            pack(s0_packed, s0);
            keep(s0_packed);
            wgmma_wait<0>();
            keep(f19);
            keep(t3);
            fence_async();
            release<PAIRED>(empty + 8 * pos.stage);
            pack(y0, f19);
            keep(y0);
            if (AT_ONCE)
                store_outputs(c - first);
        }
        if (last - first >= 3)
            wait(drained, 0);
        if (!AT_ONCE && last > first)
            store_outputs(last - first - 1);
        wgmma_wait<0>();
        keep(s0);
        if (last == chunks_of(where))
            store_state<128>(s0, a.tensor[3], place(fresh(blockIdx.x)) / a.heads, head, at, row0 + 64 * fresh(group), 128);
    }
}
}  // k0_forward
