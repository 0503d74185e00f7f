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

/* k0_forward: 64 tokens a chunk, 163840 bytes a chunk and head.
 *   loaded:
 *      %1 = input; %2 = input; %3 = input;
 *      %4 = input;
 *   vector warp:
 *   ahead:
 *      %23 = gdot %1 %22 %9 %21;
 *   state:
 *      %6 = state; %8 = max %4 %7; %9 = cumsum %8;
 *      %10 = last %9; %11 = sub %10 %9; %12 = exp %11;
 *      %13 = exp %10; %14 = mul %6 %13; %15 = mul %2 %12;
 *      %16 = dot %3 %15; %17 = add %14 %16; %18 = exp %9;
 *      %19 = mul %1 %18; %20 = dot %6 %19; %21 = col %9;
 *      %22 = col %2; %24 = col %3; %25 = dot %23 %24;
 *      %26 = add %20 %25;
 */
namespace in_k0_forward {
constexpr int TILE_1 = 0;
constexpr int TILE_4 = 16384;
constexpr int TILE_3 = 32768;
constexpr int TILE_2 = 49152;
constexpr int ANCHOR_2_0 = 16384;
constexpr int TILE_19 = 0;
constexpr int TILE_15 = 49152;
constexpr int SCORE_0 = 65536;
constexpr int KEY_0 = 0;
constexpr int GATE_0 = 0;
constexpr bool AT_ONCE = 1, PAIRED = 0;
constexpr int STAGES = 2, STAGE_BYTES = 73728, VECTOR_BYTES = 512,
    BUFFERS = 2, AHEADS = 1, SCRATCH_BYTES = 35360;
constexpr int OUTPUT_0 = 147456;
constexpr int VECTORS = 180224;
constexpr int INPUTS = 181248;
constexpr int SCRATCH = 181248;
constexpr int BARRIERS = 216608;
struct Args {
    TensorMap map[5];
    Tensor tensor[3];
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
                const int head3 = fresh(head / a.group[3]);
                wait(empty + 8 * pos.stage, pos.phase ^ 1);
                arrive_expecting(full, c < first ? 49152 : 65536);
                if (c >= first) {
                    load_tile(stage + TILE_1 + 0 + 0, &a.map[0], full, 0 + 0, token, head0, where.b);
                    load_tile(stage + TILE_1 + 8192 + 0, &a.map[0], full, 64 + 0, token, head0, where.b);
                }
                load_tile(stage + TILE_4 + 0 + 0, &a.map[1], full, 0 + 0, token, head1, where.b);
                load_tile(stage + TILE_4 + 8192 + 0, &a.map[1], full, 64 + 0, token, head1, where.b);
                load_tile(stage + TILE_3 + 0 + 0, &a.map[2], full, row0 + 0 + 0, token, head2, where.b);
                load_tile(stage + TILE_3 + 8192 + 0, &a.map[2], full, row0 + 64 + 0, token, head2, where.b);
                load_tile(stage + TILE_2 + 0 + 0, &a.map[3], full, 0 + 0, token, head3, where.b);
                load_tile(stage + TILE_2 + 8192 + 0, &a.map[3], full, 64 + 0, token, head3, where.b);
            }
        } else if (warp == 1) {
            const u32 inputs = base + INPUTS;
            NO_UNROLL for (int c = 0; c < last; c++, pos.next()) {
                const u32 vectors = base + VECTORS + pos.stage * VECTOR_BYTES;
                const int rows = rows_of(where, c);
                if (c < STAGES || rows < 64) {
                    wait(empty + 8 * pos.stage, pos.phase ^ 1);
                }
                wait(loaded + 8 * pos.stage, pos.phase);
                const u32 stage = base + pos.stage * STAGE_BYTES;
                if (rows < 64) {
                    clear_rows(stage + TILE_1 + 0 + 0, rows, 64, lane);
                    clear_rows(stage + TILE_1 + 8192 + 0, rows, 64, lane);
                    clear_rows(stage + TILE_4 + 0 + 0, rows, 64, lane);
                    clear_rows(stage + TILE_4 + 8192 + 0, rows, 64, lane);
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
                if (a.tensor[0].p) {
                    store_chunk(a.map[4], a.tensor[0], base + OUTPUT_0 + 0 + buffer * 8192, where, c, row0 + 0, 128, head, lane);
                    store_chunk(a.map[4], a.tensor[0], base + OUTPUT_0 + 16384 + buffer * 8192, where, c, row0 + 64, 128, head, lane);
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
        fewer_registers<128>();
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
            /* the running sum of %8 */
            {
                float sum[16][4];
                const int k = 4 * (at.lane);
                UNROLL for (int n = 0; n < 16; n++) {
                    const int i0 = 16 * at.warp + n;
                    u32 in4[4 / 2];
                    read_line(in4, stage + TILE_4, i0, k);
                    const float v4_0 = low(in4[0]),
                        v4_1 = high(in4[0]),
                        v4_2 = low(in4[1]),
                        v4_3 = high(in4[1]);
                    const float v8_0 = max_(v4_0, bits(0xc2d00000)),
                        v8_1 = max_(v4_1, bits(0xc2d00000)),
                        v8_2 = max_(v4_2, bits(0xc2d00000)),
                        v8_3 = max_(v4_3, bits(0xc2d00000));
                    sum[n][0] = i0 < rows ? v8_0 : 0.f;
                    sum[n][1] = i0 < rows ? v8_1 : 0.f;
                    sum[n][2] = i0 < rows ? v8_2 : 0.f;
                    sum[n][3] = i0 < rows ? v8_3 : 0.f;
                }
                running_rows<128>(sum, scratch + GATE_0 + 4 * fresh(k), at);
            }
            warpgroup_sync();
            if (c < first) {
                /* %13 */
                if (at.thread < 128) {
                    const int k = at.thread;
                    const float v10_0 = load1(gate_row<128>(scratch + GATE_0, 64) + 4 * (k + 0));
                    const float v13_0 = exp_(v10_0);
                    store1(vectors + KEY_0 + 4 * k, v13_0);
                }
                warpgroup_sync();
                /* %15 */
                {
                    NO_UNROLL for (int t = 0; t < 2; t++) {
                        u32 in2[16];
                        read_fragment(in2, stage + TILE_2 + 8192 * t, at);
                        u32 out15[16];
                        UNROLL for (int n = 0; n < 8; n++) {
                            const int k0 = 64 * t + 8 * n + at.col;
                            const float v2_0 = low(in2[2 * n + 0]),
                                v2_1 = high(in2[2 * n + 0]),
                                v2_2 = low(in2[2 * n + 1]),
                                v2_3 = high(in2[2 * n + 1]);
                            const float2 sum10_0 = load2(gate_row<128>(scratch + GATE_0, 64) + 4 * k0);
                            const float2 sum10_1 = load2(gate_row<128>(scratch + GATE_0, 64) + 4 * k0);
                            const float v10_0 = sum10_0.x,
                                v10_1 = sum10_0.y,
                                v10_2 = sum10_1.x,
                                v10_3 = sum10_1.y;
                            const float2 sum9_0 = load2(gate_row<128>(scratch + GATE_0, i0 + 1) + 4 * k0);
                            const float2 sum9_1 = load2(gate_row<128>(scratch + GATE_0, i1 + 1) + 4 * k0);
                            const float v9_0 = sum9_0.x,
                                v9_1 = sum9_0.y,
                                v9_2 = sum9_1.x,
                                v9_3 = sum9_1.y;
                            const float v11_0 = v10_0 - v9_0,
                                v11_1 = v10_1 - v9_1,
                                v11_2 = v10_2 - v9_2,
                                v11_3 = v10_3 - v9_3;
                            const float v12_0 = exp_(v11_0),
                                v12_1 = exp_(v11_1),
                                v12_2 = exp_(v11_2),
                                v12_3 = exp_(v11_3);
                            const float v15_0 = v2_0 * v12_0,
                                v15_1 = v2_1 * v12_1,
                                v15_2 = v2_2 * v12_2,
                                v15_3 = v2_3 * v12_3;
                            out15[2 * n + 0] = i0 >= rows ? 0 : pack(v15_0, v15_1);
                            out15[2 * n + 1] = i1 >= rows ? 0 : pack(v15_2, v15_3);
                        }
                        write_fragment(stage + TILE_15 + 8192 * t, out15, at);
                    }
                }
                warpgroup_sync();
                fence_async();
                arrive(computed + 8 * pos.stage);
                continue;
            }
            /* %13 */
            if (at.thread < 128) {
                const int k = at.thread;
                const float v10_0 = load1(gate_row<128>(scratch + GATE_0, 64) + 4 * (k + 0));
                const float v13_0 = exp_(v10_0);
                store1(vectors + KEY_0 + 4 * k, v13_0);
            }
            UNROLL for (int t = 0; t < 2; t++)
                anchor_rows<128>(stage + ANCHOR_2_0 + 8192 * t, stage + TILE_2 + 8192 * t, scratch + GATE_0 + 256 * t, at);
            warpgroup_sync();
            float dots23[1][32];
            float (&dot23)[32] = dots23[0];
            gated_products<128, 0, 1, 1, 0>(dots23, { stage + TILE_1 }, { stage + TILE_2 }, { stage + ANCHOR_2_0 }, scratch + GATE_0, 0, at);
            /* %23 */
            {
                u32 packed[16];
                UNROLL for (int n = 0; n < 8; n++) {
                    const int j0 = 8 * n + at.col, j1 = j0 + 1;
                    const float v23_0 = i0 >= j0 ? dot23[4 * n + 0] : 0.f,
                        v23_1 = i0 >= j1 ? dot23[4 * n + 1] : 0.f,
                        v23_2 = i1 >= j0 ? dot23[4 * n + 2] : 0.f,
                        v23_3 = i1 >= j1 ? dot23[4 * n + 3] : 0.f;
                    packed[2 * n + 0] = pack(v23_0, v23_1);
                    packed[2 * n + 1] = pack(v23_2, v23_3);
                }
                write_fragment(stage + SCORE_0, packed, at);
            }
            warpgroup_sync();
            /* %19 %15 */
            {
                NO_UNROLL for (int t = 0; t < 2; t++) {
                    u32 in1[16];
                    read_fragment(in1, stage + TILE_1 + 8192 * t, at);
                    u32 in2[16];
                    read_fragment(in2, stage + TILE_2 + 8192 * t, at);
                    u32 out19[16];
                    u32 out15[16];
                    UNROLL for (int n = 0; n < 8; n++) {
                        const int k0 = 64 * t + 8 * n + at.col;
                        const float v1_0 = low(in1[2 * n + 0]),
                            v1_1 = high(in1[2 * n + 0]),
                            v1_2 = low(in1[2 * n + 1]),
                            v1_3 = high(in1[2 * n + 1]);
                        const float2 sum9_0 = load2(gate_row<128>(scratch + GATE_0, i0 + 1) + 4 * k0);
                        const float2 sum9_1 = load2(gate_row<128>(scratch + GATE_0, i1 + 1) + 4 * k0);
                        const float v9_0 = sum9_0.x,
                            v9_1 = sum9_0.y,
                            v9_2 = sum9_1.x,
                            v9_3 = sum9_1.y;
                        const float v18_0 = exp_(v9_0),
                            v18_1 = exp_(v9_1),
                            v18_2 = exp_(v9_2),
                            v18_3 = exp_(v9_3);
                        const float v19_0 = v1_0 * v18_0,
                            v19_1 = v1_1 * v18_1,
                            v19_2 = v1_2 * v18_2,
                            v19_3 = v1_3 * v18_3;
                        const float v2_0 = low(in2[2 * n + 0]),
                            v2_1 = high(in2[2 * n + 0]),
                            v2_2 = low(in2[2 * n + 1]),
                            v2_3 = high(in2[2 * n + 1]);
                        const float2 sum10_0 = load2(gate_row<128>(scratch + GATE_0, 64) + 4 * k0);
                        const float2 sum10_1 = load2(gate_row<128>(scratch + GATE_0, 64) + 4 * k0);
                        const float v10_0 = sum10_0.x,
                            v10_1 = sum10_0.y,
                            v10_2 = sum10_1.x,
                            v10_3 = sum10_1.y;
                        const float v11_0 = v10_0 - v9_0,
                            v11_1 = v10_1 - v9_1,
                            v11_2 = v10_2 - v9_2,
                            v11_3 = v10_3 - v9_3;
                        const float v12_0 = exp_(v11_0),
                            v12_1 = exp_(v11_1),
                            v12_2 = exp_(v11_2),
                            v12_3 = exp_(v11_3);
                        const float v15_0 = v2_0 * v12_0,
                            v15_1 = v2_1 * v12_1,
                            v15_2 = v2_2 * v12_2,
                            v15_3 = v2_3 * v12_3;
                        out19[2 * n + 0] = i0 >= rows ? 0 : pack(v19_0, v19_1);
                        out19[2 * n + 1] = i1 >= rows ? 0 : pack(v19_2, v19_3);
                        out15[2 * n + 0] = i0 >= rows ? 0 : pack(v15_0, v15_1);
                        out15[2 * n + 1] = i1 >= rows ? 0 : pack(v15_2, v15_3);
                    }
                    write_fragment(stage + TILE_19 + 8192 * t, out19, at);
                    write_fragment(stage + TILE_15 + 8192 * t, out15, at);
                }
            }
            warpgroup_sync();
            fence_async();
            arrive(scored + 8 * pos.stage);
        }
    } else {
        more_registers<176>();
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
        load_state<128>(s0, a.tensor[1], seq, head, at, row0 + 64 * group, 128);
        NO_UNROLL for (int c = 0; c < first; c++, pos.next()) {
            const u32 stage = base + pos.stage * STAGE_BYTES;
            const u32 vectors = base + VECTORS + pos.stage * VECTOR_BYTES;
            wait(computed + 8 * pos.stage, pos.phase);
            wgmma_wait<0>();
            u32 t3[16];
            read_transposed(t3, stage + TILE_3 + group * 8192, at);
            UNROLL for (int n = 0; n < 16; n++) {
                const float2 key_0 = load2(vectors + KEY_0 + 4 * (8 * n + at.col));
                s0[4 * n + 0] = s0[4 * n + 0] * key_0.x;
                s0[4 * n + 1] = s0[4 * n + 1] * key_0.y;
                s0[4 * n + 2] = s0[4 * n + 2] * key_0.x;
                s0[4 * n + 3] = s0[4 * n + 3] * key_0.y;
            }
            wgmma_fence();
            multiply<4, 1>(s0, t3, across_k(stage + TILE_15), 1);
            wgmma_commit();
            wgmma_wait<0>();
            keep(s0);
            keep(t3);
            fence_async();
            release<PAIRED>(empty + 8 * pos.stage);
        }
        pack(s0_packed, s0);
        keep(s0_packed);
        NO_UNROLL for (int c = first; c < last; c++, pos.next()) {
            const u32 stage = base + pos.stage * STAGE_BYTES;
            const u32 vectors = base + VECTORS + pos.stage * VECTOR_BYTES;
            if (is_kept(c))
                keep_state<128>((float *)(kept_chunk(a.kept, where, seq, c, a.tokens, a.heads, head, 65536) + 0), s0, at, row0 + 64 * group, 128);
            wait(scored + 8 * pos.stage, (c - first) / STAGES & 1);
            wgmma_wait<0>();
            u32 t3[16];
            read_transposed(t3, stage + TILE_3 + group * 8192, at);
            float f20[32];
            wgmma_fence();
            multiply<8, 0>(f20, s0_packed, along_k(stage + TILE_19), 0);
            wgmma_commit();
            wgmma_fence();
            multiply<4, 0>(f20, t3, along_k(stage + SCORE_0), 1);
            wgmma_commit();
            UNROLL for (int n = 0; n < 16; n++) {
                const float2 key_0 = load2(vectors + KEY_0 + 4 * (8 * n + at.col));
                s0[4 * n + 0] = s0[4 * n + 0] * key_0.x;
                s0[4 * n + 1] = s0[4 * n + 1] * key_0.y;
                s0[4 * n + 2] = s0[4 * n + 2] * key_0.x;
                s0[4 * n + 3] = s0[4 * n + 3] * key_0.y;
            }
            wgmma_fence();
            multiply<4, 1>(s0, t3, across_k(stage + TILE_15), 1);
            wgmma_commit();
            if (!AT_ONCE && c > first)
                store_outputs(c - first - 1);
            wgmma_wait<1>();
            keep(s0_packed);
            keep(f20);
            keep(t3);
            wgmma_wait<0>();
            keep(s0);
            keep(t3);
            pack(s0_packed, s0);
            keep(s0_packed);
            fence_async();
            release<PAIRED>(empty + 8 * pos.stage);
            pack(y0, f20);
            keep(y0);
            if (AT_ONCE)
                store_outputs(c - first);
        }
        if (!AT_ONCE && last > first)
            store_outputs(last - first - 1);
        wgmma_wait<0>();
        keep(s0);
        if (last == chunks_of(where))
            store_state<128>(s0, a.tensor[2], place(fresh(blockIdx.x)) / a.heads, head, at, row0 + 64 * fresh(group), 128);
    }
}
}  // k0_forward
