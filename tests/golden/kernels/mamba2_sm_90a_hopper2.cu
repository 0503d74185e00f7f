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
 *      %4 = input; %5 = input; %6 = input;
 *   vector warp:
 *      %9 = exp %1; %10 = mul %5 %9; %11 = neg %10;
 *      %13 = max %11 %12; %14 = cumsum %13; %16 = last %14;
 *      %17 = sub %16 %14; %18 = exp %17; %19 = exp %16;
 *      %24 = exp %14; %27 = col %14;
 *   ahead:
 *      %29 = dmask %14 %27; %30 = dot %3 %28; %31 = mul %29 %30;
 *   state:
 *      %8 = state; %15 = mul %5 %6; %20 = mul %8 %19;
 *      %21 = mul %15 %18; %22 = dot %2 %21; %23 = add %20 %22;
 *      %25 = dot %3 %8; %26 = mul %24 %25; %28 = col %2;
 *      %32 = col %15; %33 = dot %31 %32; %34 = add %26 %33;
 *      %35 = mul %4 %6; %36 = add %34 %35;
 */
namespace in_k0_forward {
constexpr int TILE_3 = 0;
constexpr int TILE_6 = 16384;
constexpr int TILE_2 = 32768;
constexpr int SCORE_0 = 49152;
constexpr int AT_v5 = 0;
constexpr int AT_v24 = 256;
constexpr int AT_v5_18 = 512;
constexpr int AT_v14_log2 = 768;
constexpr int AT_v4 = 1024;
constexpr int AT_v19 = 1040;
constexpr bool AT_ONCE = 0, PAIRED = 0;
constexpr int STAGES = 3, STAGE_BYTES = 57344, VECTOR_BYTES = 1280,
    BUFFERS = 2, AHEADS = 1, SCRATCH_BYTES = 0;
constexpr int OUTPUT_0 = 172032;
constexpr int VECTORS = 204800;
constexpr int INPUTS = 208640;
constexpr int SCRATCH = 210688;
constexpr int BARRIERS = 210688;
struct Args {
    TensorMap map[4];
    Tensor tensor[6];
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
                    load_tile(stage + TILE_3 + 0 + 0, &a.map[0], full, 0 + 0, token, head0, where.b);
                    load_tile(stage + TILE_3 + 8192 + 0, &a.map[0], full, 64 + 0, token, head0, where.b);
                }
                load_tile(stage + TILE_6 + 0 + 0, &a.map[1], full, row0 + 0 + 0, token, head1, where.b);
                load_tile(stage + TILE_6 + 8192 + 0, &a.map[1], full, row0 + 64 + 0, token, head1, where.b);
                load_tile(stage + TILE_2 + 0 + 0, &a.map[2], full, 0 + 0, token, head2, where.b);
                load_tile(stage + TILE_2 + 8192 + 0, &a.map[2], full, 64 + 0, token, head2, where.b);
            }
        } else if (warp == 1) {
            const u32 inputs = base + INPUTS;
            const float v1 = constant<4>(a.tensor[0], head);
            const float v4 = constant<4>(a.tensor[1], head);
            const Stream<4> in5(a.tensor[2], head, where, lane);
            auto fetch_chunk = [&](int c) {
                if (c < last) {
                    in5.fetch(inputs + 0 * RING, c, lane);
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
                const Pair v5 = in5.fetched(inputs + 0 * RING, c, lane);
                const float v9 = exp_(v1);
                const Pair v10 = { v5.a * v9, v5.b * v9 };
                const Pair v11 = { -v10.a, -v10.b };
                const Pair v13 = { max_(v11.a, bits(0xc2d00000)), max_(v11.b, bits(0xc2d00000)) };
                const Pair v14 = running_sum({ v13.a, v13.b }, lane, rows);
                const float v16 = last_row(v14, rows);
                const Pair v17 = { v16 - v14.a, v16 - v14.b };
                const Pair v18 = { exp_(v17.a), exp_(v17.b) };
                const float v19 = exp_(v16);
                const Pair v24 = { exp_(v14.a), exp_(v14.b) };
                wait(empty + 8 * pos.stage, pos.phase ^ 1);
                store_pair(vectors + AT_v5, { v5.a, v5.b }, lane);
                store_pair(vectors + AT_v24, { v24.a, v24.b }, lane);
                if (lane == 0)
                    store1(vectors + AT_v4, v4);
                store_pair(vectors + AT_v5_18, { v5.a * v18.a, v5.b * v18.b }, lane);
                if (lane == 0)
                    store1(vectors + AT_v19, v19);
                store_pair(vectors + AT_v14_log2, { v14.a * LOG2E, v14.b * LOG2E }, lane);
                wait(loaded + 8 * pos.stage, pos.phase);
                const u32 stage = base + pos.stage * STAGE_BYTES;
                if (rows < 64) {
                    clear_rows(stage + TILE_3 + 0 + 0, rows, 64, lane);
                    clear_rows(stage + TILE_3 + 8192 + 0, rows, 64, lane);
                    clear_rows(stage + TILE_6 + 0 + 0, rows, 64, lane);
                    clear_rows(stage + TILE_6 + 8192 + 0, rows, 64, lane);
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
                if (a.tensor[3].p) {
                    store_chunk(a.map[3], a.tensor[3], base + OUTPUT_0 + 0 + buffer * 8192, where, c, row0 + 0, 128, head, lane);
                    store_chunk(a.map[3], a.tensor[3], base + OUTPUT_0 + 16384 + buffer * 8192, where, c, row0 + 64, 128, head, lane);
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
            /* %31 */
            {
                float dot30[32];
                wgmma_fence();
                multiply<8, 0>(dot30, along_k(stage + TILE_3), along_k(stage + TILE_2), 0);
                wgmma_commit();
                float decay[32];
                u32 kept[16];
                {
                    const float row_v14_log2_0 = load1(vectors + AT_v14_log2 + 4 * i0);
                    const float row_v14_log2_1 = load1(vectors + AT_v14_log2 + 4 * i1);
                    UNROLL for (int n = 0; n < 8; n++) {
                        const int j0 = 8 * n + at.col, j1 = j0 + 1;
                        const float2 col_v14_log2 = load2(vectors + AT_v14_log2 + 4 * j0);
                        decay[4 * n + 0] = exp2_(row_v14_log2_0 - col_v14_log2.x);
                        decay[4 * n + 1] = exp2_(row_v14_log2_0 - col_v14_log2.y);
                        decay[4 * n + 2] = exp2_(row_v14_log2_1 - col_v14_log2.x);
                        decay[4 * n + 3] = exp2_(row_v14_log2_1 - col_v14_log2.y);
                        kept[2 * n + 0] = (i0 >= j0 ? 0xffffu : 0) | (i0 >= j1 ? 0xffff0000u : 0);
                        kept[2 * n + 1] = (i1 >= j0 ? 0xffffu : 0) | (i1 >= j1 ? 0xffff0000u : 0);
                    }
                    keep(decay);
                    keep(kept);
                }
                wgmma_wait<0>();
                keep(dot30);
                u32 packed[16];
                UNROLL for (int n = 0; n < 8; n++) {
                    const int j0 = 8 * n + at.col, j1 = j0 + 1;
                    const float2 col_v5 = load2(vectors + AT_v5 + 4 * j0);
                    const float v30_0 = dot30[4 * n + 0],
                        v30_1 = dot30[4 * n + 1],
                        v30_2 = dot30[4 * n + 2],
                        v30_3 = dot30[4 * n + 3];
                    const float v31_0 = v30_0 * decay[4 * n + 0],
                        v31_1 = v30_1 * decay[4 * n + 1],
                        v31_2 = v30_2 * decay[4 * n + 2],
                        v31_3 = v30_3 * decay[4 * n + 3];
                    packed[2 * n + 0] = pack(v31_0 * col_v5.x, v31_1 * col_v5.y) & kept[2 * n + 0];
                    packed[2 * n + 1] = pack(v31_2 * col_v5.x, v31_3 * col_v5.y) & kept[2 * n + 1];
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
        load_state<128>(s0, a.tensor[4], seq, head, at, row0 + 64 * group, 128);
        NO_UNROLL for (int c = 0; c < first; c++, pos.next()) {
            const u32 stage = base + pos.stage * STAGE_BYTES;
            const u32 vectors = base + VECTORS + pos.stage * VECTOR_BYTES;
            wait(computed + 8 * pos.stage, pos.phase);
            wgmma_wait<0>();
            u32 t6[16];
            read_transposed(t6, stage + TILE_6 + group * 8192, at);
            u32 scaled4[16];
            scale_columns(scaled4, t6, vectors + AT_v5_18, at);
            const float one_v19 = load1(vectors + AT_v19);
            UNROLL for (int n = 0; n < 16; n++) {
                s0[4 * n + 0] = s0[4 * n + 0] * one_v19;
                s0[4 * n + 1] = s0[4 * n + 1] * one_v19;
                s0[4 * n + 2] = s0[4 * n + 2] * one_v19;
                s0[4 * n + 3] = s0[4 * n + 3] * one_v19;
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
            u32 t6[16];
            read_transposed(t6, stage + TILE_6 + group * 8192, at);
            float f25[32];
            wgmma_fence();
            multiply<8, 0>(f25, s0_packed, along_k(stage + TILE_3), 0);
            wgmma_commit();
            u32 scaled10[16];
            scale_columns(scaled10, t6, vectors + AT_v5_18, at);
            const float one_v19 = load1(vectors + AT_v19);
            UNROLL for (int n = 0; n < 16; n++) {
                s0[4 * n + 0] = s0[4 * n + 0] * one_v19;
                s0[4 * n + 1] = s0[4 * n + 1] * one_v19;
                s0[4 * n + 2] = s0[4 * n + 2] * one_v19;
                s0[4 * n + 3] = s0[4 * n + 3] * one_v19;
            }
            wgmma_fence();
            multiply<4, 1>(s0, scaled10, across_k(stage + TILE_2), 1);
            wgmma_commit();
            wgmma_wait<1>();
            keep(f25);
            keep(s0_packed);
            UNROLL for (int n = 0; n < 8; n++) {
                const float2 col_v24 = load2(vectors + AT_v24 + 4 * (8 * n + at.col));
                f25[4 * n + 0] = col_v24.x * f25[4 * n + 0];
                f25[4 * n + 1] = col_v24.y * f25[4 * n + 1];
                f25[4 * n + 2] = col_v24.x * f25[4 * n + 2];
                f25[4 * n + 3] = col_v24.y * f25[4 * n + 3];
            }
            wgmma_fence();
            multiply<4, 0>(f25, t6, along_k(stage + SCORE_0), 1);
            wgmma_commit();
            if (!AT_ONCE && c > first)
                store_outputs(c - first - 1);
            wgmma_wait<1>();
            keep(s0);
            keep(scaled10);
            pack(s0_packed, s0);
            keep(s0_packed);
            wgmma_wait<0>();
            keep(f25);
            keep(t6);
            read_transposed(t6, stage + TILE_6 + group * 8192, at);
            const float one_v4 = load1(vectors + AT_v4);
            UNROLL for (int n = 0; n < 8; n++) {
                const float v35_0 = one_v4 * low(t6[2 * n + 0]);
                const float v35_1 = one_v4 * high(t6[2 * n + 0]);
                const float v35_2 = one_v4 * low(t6[2 * n + 1]);
                const float v35_3 = one_v4 * high(t6[2 * n + 1]);
                f25[4 * n + 0] = f25[4 * n + 0] + v35_0;
                f25[4 * n + 1] = f25[4 * n + 1] + v35_1;
                f25[4 * n + 2] = f25[4 * n + 2] + v35_2;
                f25[4 * n + 3] = f25[4 * n + 3] + v35_3;
            }
            fence_async();
            release<PAIRED>(empty + 8 * pos.stage);
            pack(y0, f25);
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
            store_state<128>(s0, a.tensor[5], place(fresh(blockIdx.x)) / a.heads, head, at, row0 + 64 * fresh(group), 128);
    }
}
}  // k0_forward
