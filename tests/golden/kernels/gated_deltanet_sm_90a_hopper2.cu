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

/* k0_forward: 64 tokens a chunk, 131584 bytes a chunk and head.
 *   loaded:
 *      %1 = input; %2 = input; %3 = input;
 *      %4 = input; %5 = input;
 *   vector warp:
 *      %9 = max %5 %8; %10 = cumsum %9; %12 = exp %10;
 *      %17 = col %10; %25 = last %10; %26 = sub %25 %10;
 *      %27 = exp %26; %28 = exp %25;
 *   ahead:
 *      %19 = dmask %10 %17; %20 = dot %2 %18; %21 = mul %4 %20;
 *      %22 = mul %19 %21; %23 = neg %22; %35 = dmask %10 %17;
 *      %36 = dot %1 %18; %37 = mul %35 %36;
 *   state:
 *      %7 = state; %11 = mul %3 %4; %13 = dot %2 %7;
 *      %14 = mul %4 %13; %15 = mul %12 %14; %16 = sub %11 %15;
 *      %18 = col %2; %24 = solve %23 %16; %29 = mul %7 %28;
 *      %30 = mul %24 %27; %31 = dot %2 %30; %32 = add %29 %31;
 *      %33 = dot %1 %7; %34 = mul %12 %33; %38 = col %24;
 *      %39 = dot %37 %38; %40 = add %34 %39;
 */
namespace in_k0_forward {
constexpr int TILE_1 = 0;
constexpr int TILE_3 = 16384;
constexpr int TILE_2 = 32768;
constexpr int SCORE_0 = 49152;
constexpr int SCORE_1 = 57344;
constexpr int AT_v12 = 0;
constexpr int AT_v4 = 256;
constexpr int AT_v27 = 512;
constexpr int AT_v10_log2 = 768;
constexpr int AT_v28 = 1024;
constexpr int INVERSE = 0;
constexpr bool AT_ONCE = 1, PAIRED = 0;
constexpr int STAGES = 2, STAGE_BYTES = 65536, VECTOR_BYTES = 1280,
    BUFFERS = 2, AHEADS = 1, SCRATCH_BYTES = 18432;
constexpr int OUTPUT_0 = 131072;
constexpr int VECTORS = 163840;
constexpr int INPUTS = 166400;
constexpr int SCRATCH = 170496;
constexpr int BARRIERS = 188928;
struct Args {
    TensorMap map[4];
    Tensor tensor[5];
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
    auto place = [&](u32 b) { return b / a.blocks; };
    const int head = place(blockIdx.x) % a.heads;
    const int seq = place(blockIdx.x) / a.heads;
    const int row0 = 128 * block;
    const Rows where = rows_in(a.seq ? a.seq[seq] : Sequence { seq, 0, 0, a.tokens });
    const int first = 0, last = (where.len + 63) / 64;
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
            barrier_init(scored + 8 * i, 128);
        }
        for (int i = 0; i < 2; i++) {
            barrier_init(filled + 8 * i, 256);
            barrier_init(drained + 8 * i, 1);
        }
        barrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        fewer_registers<40>();
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
                arrive_expecting(full, 49152);
                load_tile(stage + TILE_1 + 0 + 0, &a.map[0], full, 0 + 0, token, head0, where.b);
                load_tile(stage + TILE_1 + 8192 + 0, &a.map[0], full, 64 + 0, token, head0, where.b);
                load_tile(stage + TILE_3 + 0 + 0, &a.map[1], full, row0 + 0 + 0, token, head1, where.b);
                load_tile(stage + TILE_3 + 8192 + 0, &a.map[1], full, row0 + 64 + 0, token, head1, where.b);
                load_tile(stage + TILE_2 + 0 + 0, &a.map[2], full, 0 + 0, token, head2, where.b);
                load_tile(stage + TILE_2 + 8192 + 0, &a.map[2], full, 64 + 0, token, head2, where.b);
            }
        } else if (warp == 1) {
            const u32 inputs = base + INPUTS;
            const Stream<4> in4(a.tensor[0], head, where, lane);
            const Stream<4> in5(a.tensor[1], head, where, lane);
            auto fetch_chunk = [&](int c) {
                if (c < last) {
                    in4.fetch(inputs + 0 * RING, c, lane);
                    in5.fetch(inputs + 1 * RING, c, lane);
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
                const Pair v5 = in5.fetched(inputs + 1 * RING, c, lane);
                const Pair v9 = { max_(v5.a, bits(0xc2d00000)), max_(v5.b, bits(0xc2d00000)) };
                const Pair v10 = running_sum({ v9.a, v9.b }, lane, rows);
                const Pair v12 = { exp_(v10.a), exp_(v10.b) };
                const float v25 = last_row(v10, rows);
                const Pair v26 = { v25 - v10.a, v25 - v10.b };
                const Pair v27 = { exp_(v26.a), exp_(v26.b) };
                const float v28 = exp_(v25);
                wait(empty + 8 * pos.stage, pos.phase ^ 1);
                store_pair(vectors + AT_v12, { v12.a, v12.b }, lane);
                store_pair(vectors + AT_v4, { v4.a, v4.b }, lane);
                store_pair(vectors + AT_v27, { v27.a, v27.b }, lane);
                if (lane == 0)
                    store1(vectors + AT_v28, v28);
                store_pair(vectors + AT_v10_log2, { v10.a * LOG2E, v10.b * LOG2E }, lane);
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
            NO_UNROLL for (int c = first; c < last; c++) {
                const u32 n = c - first, buffer = n % BUFFERS;
                wait(filled + 8 * buffer, n / BUFFERS & 1);
                if (a.tensor[2].p) {
                    store_chunk(a.map[3], a.tensor[2], base + OUTPUT_0 + 0 + buffer * 8192, where, c, row0 + 0, 128, head, lane);
                    store_chunk(a.map[3], a.tensor[2], base + OUTPUT_0 + 16384 + buffer * 8192, where, c, row0 + 64, 128, head, lane);
                }
                bulk_commit();
                bulk_wait_read();
                __syncwarp();
                if (lane == 0)
                    arrive(drained + 8 * buffer);
            }
            bulk_wait();
        }
    } else if (threadIdx.x < 256) {
        fewer_registers<88>();
        const Lane at = lane_here();
        const int i0 = at.row, i1 = i0 + 8;
        Ring<STAGES> pos;
        const u32 scratch = base + SCRATCH;
        int c = 0;
        NO_UNROLL for (; c < last; c += 1, pos.next()) {
            const u32 stage = base + pos.stage * STAGE_BYTES;
            const u32 vectors = base + VECTORS + pos.stage * VECTOR_BYTES;
            const int rows = rows_of(where, c);
            wait(ready + 8 * pos.stage, pos.phase);
            wgmma_wait<0>();
            /* %23 */
            {
                float dot20[32];
                wgmma_fence();
                multiply<8, 0>(dot20, along_k(stage + TILE_2), along_k(stage + TILE_2), 0);
                wgmma_commit();
                wgmma_wait<0>();
                keep(dot20);
                const u32 own = entry(scratch + INVERSE, fresh(i0), at.col);
                const float row_v4_0 = load1(vectors + AT_v4 + 4 * i0);
                const float row_v4_1 = load1(vectors + AT_v4 + 4 * i1);
                const float row_v10_log2_0 = load1(vectors + AT_v10_log2 + 4 * i0);
                const float row_v10_log2_1 = load1(vectors + AT_v10_log2 + 4 * i1);
                UNROLL for (int n = 0; n < 8; n++) {
                    if (n > 2 * at.warp + 1)
                        break;
                    const int j0 = 8 * n + at.col, j1 = j0 + 1;
                    const float2 col_v10_log2 = load2(vectors + AT_v10_log2 + 4 * j0);
                    const float v20_0 = dot20[4 * n + 0],
                        v20_1 = dot20[4 * n + 1],
                        v20_2 = dot20[4 * n + 2],
                        v20_3 = dot20[4 * n + 3];
                    const float v21_0 = row_v4_0 * v20_0,
                        v21_1 = row_v4_0 * v20_1,
                        v21_2 = row_v4_1 * v20_2,
                        v21_3 = row_v4_1 * v20_3;
                    const float v22_0 = i0 > j0 ? v21_0 * exp2_(row_v10_log2_0 - col_v10_log2.x) : 0.f,
                        v22_1 = i0 > j1 ? v21_1 * exp2_(row_v10_log2_0 - col_v10_log2.y) : 0.f,
                        v22_2 = i1 > j0 ? v21_2 * exp2_(row_v10_log2_1 - col_v10_log2.x) : 0.f,
                        v22_3 = i1 > j1 ? v21_3 * exp2_(row_v10_log2_1 - col_v10_log2.y) : 0.f;
                    const float v23_0 = -v22_0,
                        v23_1 = -v22_1,
                        v23_2 = -v22_2,
                        v23_3 = -v22_3;
                    store2(entry(own, 0, 8 * n), v23_0, v23_1);
                    store2(entry(own, 8, 8 * n), v23_2, v23_3);
                }
                invert(stage + SCORE_0, scratch + INVERSE, at.lane, fresh(at.warp));
            }
            /* %37 */
            {
                float dot36[32];
                wgmma_fence();
                multiply<8, 0>(dot36, along_k(stage + TILE_1), along_k(stage + TILE_2), 0);
                wgmma_commit();
                wgmma_wait<0>();
                keep(dot36);
                u32 packed[16];
                const float row_v10_log2_0 = load1(vectors + AT_v10_log2 + 4 * i0);
                const float row_v10_log2_1 = load1(vectors + AT_v10_log2 + 4 * i1);
                UNROLL for (int n = 0; n < 8; n++) {
                    const int j0 = 8 * n + at.col, j1 = j0 + 1;
                    const float2 col_v10_log2 = load2(vectors + AT_v10_log2 + 4 * j0);
                    const float v36_0 = dot36[4 * n + 0],
                        v36_1 = dot36[4 * n + 1],
                        v36_2 = dot36[4 * n + 2],
                        v36_3 = dot36[4 * n + 3];
                    const float v37_0 = i0 >= j0 ? v36_0 * exp2_(row_v10_log2_0 - col_v10_log2.x) : 0.f,
                        v37_1 = i0 >= j1 ? v36_1 * exp2_(row_v10_log2_0 - col_v10_log2.y) : 0.f,
                        v37_2 = i1 >= j0 ? v36_2 * exp2_(row_v10_log2_1 - col_v10_log2.x) : 0.f,
                        v37_3 = i1 >= j1 ? v36_3 * exp2_(row_v10_log2_1 - col_v10_log2.y) : 0.f;
                    packed[2 * n + 0] = pack(v37_0, v37_1);
                    packed[2 * n + 1] = pack(v37_2, v37_3);
                }
                write_fragment(stage + SCORE_1, packed, at);
            }
            fence_async();
            arrive(scored + 8 * pos.stage);
        }
    } else {
        more_registers<192>();
        const Lane at = lane_here();
        const int group = (threadIdx.x >> 7) - 2;
        Ring<STAGES> pos;
        u32 y0[16];
        auto store_outputs = [&](u32 c) {
            if (c >= BUFFERS)
                wait(drained + 8 * (c % BUFFERS), c / BUFFERS - 1 & 1);
            write_transposed(base + OUTPUT_0 + (BUFFERS * group + c % BUFFERS) * 8192, y0, at);
            fence_async();
            arrive(filled + 8 * (c % BUFFERS));
        };
        float s0[64];
        u32 s0_packed[32];
        load_state<128>(s0, a.tensor[3], seq, head, at, row0 + 64 * group, 128);
        pack(s0_packed, s0);
        keep(s0_packed);
        NO_UNROLL for (int c = first; c < last; c++, pos.next()) {
            const u32 stage = base + pos.stage * STAGE_BYTES;
            const u32 vectors = base + VECTORS + pos.stage * VECTOR_BYTES;
            if (is_kept(c))
                keep_state<128>((unsigned short *)(kept_chunk(a.kept, where, seq, c, a.tokens, a.heads, head, 49152) + 0), s0_packed, at, row0 + 64 * group, 128);
            wait(scored + 8 * pos.stage, pos.phase);
            wgmma_wait<0>();
            u32 t3[16];
            read_transposed(t3, stage + TILE_3 + group * 8192, at);
            float f33[32];
            wgmma_fence();
            multiply<8, 0>(f33, s0_packed, along_k(stage + TILE_1), 0);
            wgmma_commit();
            float f13[32];
            wgmma_fence();
            multiply<8, 0>(f13, s0_packed, along_k(stage + TILE_2), 0);
            wgmma_commit();
            const float one_v28 = load1(vectors + AT_v28);
            UNROLL for (int n = 0; n < 16; n++) {
                s0[4 * n + 0] = s0[4 * n + 0] * one_v28;
                s0[4 * n + 1] = s0[4 * n + 1] * one_v28;
                s0[4 * n + 2] = s0[4 * n + 2] * one_v28;
                s0[4 * n + 3] = s0[4 * n + 3] * one_v28;
            }
            wgmma_wait<1>();
            keep(f33);
            keep(s0_packed);
            UNROLL for (int n = 0; n < 8; n++) {
                const float2 col_v12 = load2(vectors + AT_v12 + 4 * (8 * n + at.col));
                f33[4 * n + 0] = col_v12.x * f33[4 * n + 0];
                f33[4 * n + 1] = col_v12.y * f33[4 * n + 1];
                f33[4 * n + 2] = col_v12.x * f33[4 * n + 2];
                f33[4 * n + 3] = col_v12.y * f33[4 * n + 3];
            }
            wgmma_wait<0>();
            keep(f13);
            keep(s0_packed);
            UNROLL for (int n = 0; n < 8; n++) {
                const float2 col_v4 = load2(vectors + AT_v4 + 4 * (8 * n + at.col));
                const float2 col_v12 = load2(vectors + AT_v12 + 4 * (8 * n + at.col));
                const float v11_0 = low(t3[2 * n + 0]) * col_v4.x;
                const float v11_1 = high(t3[2 * n + 0]) * col_v4.y;
                const float v11_2 = low(t3[2 * n + 1]) * col_v4.x;
                const float v11_3 = high(t3[2 * n + 1]) * col_v4.y;
                const float v14_0 = col_v4.x * f13[4 * n + 0];
                const float v14_1 = col_v4.y * f13[4 * n + 1];
                const float v14_2 = col_v4.x * f13[4 * n + 2];
                const float v14_3 = col_v4.y * f13[4 * n + 3];
                const float v15_0 = col_v12.x * v14_0;
                const float v15_1 = col_v12.y * v14_1;
                const float v15_2 = col_v12.x * v14_2;
                const float v15_3 = col_v12.y * v14_3;
                f13[4 * n + 0] = v11_0 - v15_0;
                f13[4 * n + 1] = v11_1 - v15_1;
                f13[4 * n + 2] = v11_2 - v15_2;
                f13[4 * n + 3] = v11_3 - v15_3;
            }
            u32 packed16[16];
            pack(packed16, f13);
            keep(packed16);
            float f24[32];
            wgmma_fence();
            multiply<4, 0>(f24, packed16, along_k(stage + SCORE_0), 0);
            wgmma_commit();
            wgmma_wait<0>();
            keep(f24);
            keep(packed16);
            u32 packed24[16];
            pack(packed24, f24);
            keep(packed24);
            wgmma_fence();
            multiply<4, 0>(f33, packed24, along_k(stage + SCORE_1), 1);
            wgmma_commit();
            u32 scaled13[16];
            scale_columns(scaled13, packed24, vectors + AT_v27, at);
            wgmma_fence();
            multiply<4, 1>(s0, scaled13, across_k(stage + TILE_2), 1);
            wgmma_commit();
            if (!AT_ONCE && c > first)
                store_outputs(c - first - 1);
            wgmma_wait<1>();
            keep(f33);
            keep(packed24);
            wgmma_wait<0>();
            keep(s0);
            keep(scaled13);
            pack(s0_packed, s0);
            keep(s0_packed);
            fence_async();
            release<PAIRED>(empty + 8 * pos.stage);
            pack(y0, f33);
            keep(y0);
            if (AT_ONCE)
                store_outputs(c - first);
        }
        if (!AT_ONCE && last > first)
            store_outputs(last - first - 1);
        wgmma_wait<0>();
        keep(s0);
        store_state<128>(s0, a.tensor[4], place(fresh(blockIdx.x)) / a.heads, head, at, row0 + 64 * fresh(group), 128);
    }
}
}  // k0_forward
