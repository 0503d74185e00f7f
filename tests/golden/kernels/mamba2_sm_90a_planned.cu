#define THREADS 512
#define RANK 2
#include "numbers.cuh"
#include "warp.cuh"
#include "run.cuh"
#include "tile.cuh"
#include "products.cuh"
#include "scans.cuh"
extern __shared__ char arena[];

// forward (forward), 196864 bytes a chunk and head predicted: %1 %2 %3
// %4 %5 %6 %8 %12 %13 %14 %15 %16 %17 %18 %19 %20 %21 %22 %23 %24 %25
// %26 %27 %28 %29 %30 %31 %32 %33 %34 %35 %36 %37 %38 %39
namespace in_k0_forward {
struct Args { TensorMap map[5]; Tensor tensor[9]; Run run; };
extern "C" __global__ void __launch_bounds__(512, 1) k0_forward(const __grid_constant__ Args a)
{
    alignas(1024) extern __shared__ unsigned char raw[];
    const u32 base = shared_address(raw);
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 3; i++) {
            barrier_init(base + 216160 + 8 * i, 32);
            barrier_init(base + 216184 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 216208 + 8 * i, 256);
            barrier_init(base + 216224 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 216240 + 8 * i, 1);
            barrier_init(base + 216256 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 216272 + 8 * i, 128);
            barrier_init(base + 216288 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 216304 + 8 * i, 256);
            barrier_init(base + 216320 + 8 * i, 32);
        }
        barrier_init(base + 216336, 1);
        barrier_init_fence();
    }
    __syncthreads();
    const int warp = uniform(threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (warp < 4) {
        fewer_registers<40>();
        if (warp == 0) {
            u32 tails = 0;
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<1>(a.run, item, x);
                const int head0 = head_of(a.tensor[0], x.head);
                const int head1 = head_of(a.tensor[1], x.head);
                const int head2 = head_of(a.tensor[2], x.head);
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, m, x);
                    if (x.n < CHUNK_ROWS) {
                        if (lane == 0) {
                            wait(base + 216256 + it % 2 * 8, parity(it, 2) ^ 1);
                            {
                                const u32 full = base + 216336, to = base + 65536 + it % 2 * 49152;
                                arrive_expecting(full, 49152);
                                load_tile(to + 0, &a.map[0], full, 0, x.row, head0, x.where.b);
                                load_tile(to + 8192, &a.map[0], full, 64, x.row, head0, x.where.b);
                            }
                            {
                                const u32 full = base + 216336, to = base + 81920 + it % 2 * 49152;
                                load_tile(to + 0, &a.map[1], full, 0, x.row, head1, x.where.b);
                                load_tile(to + 8192, &a.map[1], full, 64, x.row, head1, x.where.b);
                            }
                            {
                                const u32 full = base + 216336, to = base + 98304 + it % 2 * 49152;
                                load_tile(to + 0, &a.map[2], full, 0, x.row, head2, x.where.b);
                                load_tile(to + 8192, &a.map[2], full, 64, x.row, head2, x.where.b);
                            }
                        }
                        __syncwarp();
                        wait(base + 216336, tails++ & 1);
                        clear_tail<32>(base + 65536 + it % 2 * 49152, 2, x.n, lane);
                        clear_tail<32>(base + 81920 + it % 2 * 49152, 2, x.n, lane);
                        clear_tail<32>(base + 98304 + it % 2 * 49152, 2, x.n, lane);
                        fence_async();
                        __syncwarp();
                        if (lane == 0)
                            arrive(base + 216240 + it % 2 * 8);
                    } else if (lane == 0) {
                        wait(base + 216256 + it % 2 * 8, parity(it, 2) ^ 1);
                        {
                            const u32 full = base + 216240 + it % 2 * 8, to = base + 65536 + it % 2 * 49152;
                            arrive_expecting(full, 49152);
                            load_tile(to + 0, &a.map[0], full, 0, x.row, head0, x.where.b);
                            load_tile(to + 8192, &a.map[0], full, 64, x.row, head0, x.where.b);
                        }
                        {
                            const u32 full = base + 216240 + it % 2 * 8, to = base + 81920 + it % 2 * 49152;
                            load_tile(to + 0, &a.map[1], full, 0, x.row, head1, x.where.b);
                            load_tile(to + 8192, &a.map[1], full, 64, x.row, head1, x.where.b);
                        }
                        {
                            const u32 full = base + 216240 + it % 2 * 8, to = base + 98304 + it % 2 * 49152;
                            load_tile(to + 0, &a.map[2], full, 0, x.row, head2, x.where.b);
                            load_tile(to + 8192, &a.map[2], full, 64, x.row, head2, x.where.b);
                        }
                    }
                }
            }
        }
        if (warp == 1) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<1>(a.run, item, x);
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, m, x);
                    wait(base + 216208 + it % 2 * 8, parity(it, 2));
                    if (lane == 0) {
                        const u32 from = base + 0 + it % 2 * 32768;
                        store_tile(&a.map[3], from + 0, 0, 0, 0, (int)x.at);
                        store_tile(&a.map[3], from + 8192, 0, 64, 0, (int)x.at);
                        store_tile(&a.map[3], from + 16384, 64, 0, 0, (int)x.at);
                        store_tile(&a.map[3], from + 24576, 64, 64, 0, (int)x.at);
                    }
                    bulk_commit();
                    bulk_wait_read();
                    arrive(base + 216224 + it % 2 * 8);
                    wait(base + 216304 + it % 2 * 8, parity(it, 2));
                    if (a.tensor[3].p) {
                        const u32 from = base + 180224 + it % 2 * 16384;
                        const int c = (x.row - x.where.start) / 64;
                        NO_UNROLL for (int i = 0; i < 2; i++)
                            store_chunk(a.map[4], a.tensor[3], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                        bulk_commit();
                        bulk_wait_read();
                    }
                    arrive(base + 216320 + it % 2 * 8);
                }
            }
        }
        if (warp >= 2) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<1>(a.run, item, x);
                const float v1 = constant<4>(a.tensor[4], x.head);
                const float v4 = constant<4>(a.tensor[5], x.head);
                const float v12 = (float)(exp_(v1));
                const Along<float> s5(a.tensor[6], x, lane);
                Loaded<float> n5 = s5.load(a.tensor[6], 0 + ((it + warp) & 1));
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, m, x);
                    if ((it + warp) & 1)
                        continue;
                    const Pair v5 = pair_of(n5);
                    n5 = s5.load(a.tensor[6], m + 2);
                    const Pair v13 = { (float)(v5.a * v12), (float)(v5.b * v12) };
                    const Pair v14 = { (float)(-v13.a), (float)(-v13.b) };
                    const Pair v16 = { (float)(max_(v14.a, bits(0xc2d00000))), (float)(max_(v14.b, bits(0xc2d00000))) };
                    Pair v17 = running_sum(v16, lane, x.n);
                    const float v19 = last_row(v17, x.n);
                    const Pair v20 = { (float)(v19 - v17.a), (float)(v19 - v17.b) };
                    const Pair v21 = { (float)(exp_(v20.a)), (float)(exp_(v20.b)) };
                    const float v22 = (float)(exp_(v19));
                    const Pair v27 = { (float)(exp_(v17.a)), (float)(exp_(v17.b)) };
                    wait(base + 216184 + it % 3 * 8, parity(it, 3) ^ 1);
                    if (lane == 0)
                        store1(base + 212992 + it % 3 * 1056, v4);
                    store_pair(base + 213008 + it % 3 * 1056, v5, lane);
                    store_pair(base + 213264 + it % 3 * 1056, v17, lane);
                    store_pair(base + 213520 + it % 3 * 1056, v21, lane);
                    if (lane == 0)
                        store1(base + 213776 + it % 3 * 1056, v22);
                    store_pair(base + 213792 + it % 3 * 1056, v27, lane);
                    arrive(base + 216160 + it % 3 * 8);
                }
            }
        }
        if (warp == 1)
            bulk_wait();
    }
    else if (warp < 12) {
        more_registers<192>();
        const Lane l = lane_here();
        const int thread = (int)threadIdx.x - 128, group = uniform(thread >> 7);
        const int row0 = 64 * group;
        auto col0 = [&](int share) { return 0; };
        Ring<3> it3;
        Ring<2> it2;
        u32 it = 0;
        NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
            Item x;
            const int chunks = find_walk<1>(a.run, item, x);
            float f8[64];
            u32 p8[32];
            begin_state<float, 64, 128>(f8, a.tensor[7], x, row0 + 0, 0 + col0(128), l);
            pack_all(p8, f8);
            keep(p8);
            NO_UNROLL for (int m = 0; m < chunks; m++, it++, it3.next(), it2.next()) {
                find_chunk(a.run, m, x);
                const u32 slot0 = base + 212992 + it3.stage * 1056;
                (void)slot0;
                const u32 slot1 = base + 0 + it2.stage * 32768;
                (void)slot1;
                const u32 slot2 = base + 65536 + it2.stage * 49152;
                (void)slot2;
                const u32 slot3 = base + 163840 + it2.stage * 8192;
                (void)slot3;
                const u32 slot4 = base + 180224 + it2.stage * 16384;
                (void)slot4;
                u32 p6[16];
                u32 p18[16];
                u32 p24[16];
                float f28[32];
                float f29[32];
                wgmma_wait<0>();
                wait(base + 216272 + it2.stage * 8, it2.phase);
                wgmma_fence();
                multiply_packed<0, 8, 0, 0, 1>(f28, p8, slot2 + 16384, 64, 0);
                wgmma_commit();
                {
                    const float s22 = parts_sum<1>(slot0 + 784, 1, 0);
                    UNROLL for (int e = 0; e < 64; e++) {
                        const int h = e / 2 % 2, row = row0 + l.row + 8 * h + e / 64 * 64;
                        const int col = col0(128) + e % 64 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x23 = f8[e] * s22;
                        f8[e] = x23;
                    }
                    keep(f8);
                }
                wait(base + 216224 + it2.stage * 8, it2.phase ^ 1);
                write_transposed(slot1 + 0 + row0 * 256, registers<16>(p8, 0), l);
                write_transposed(slot1 + 0 + row0 * 256 + 8192, registers<16>(p8, 16), l);
                fence_async();
                arrive(base + 216208 + it2.stage * 8);
                wgmma_wait<0>();
                keep(p8);
                keep(f28);
                {
                    float2 d27 = { 0.f, 0.f };
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = row0 + l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        if (e % 4 == 0)
                            d27 = load2(slot0 + 800 + 4 * (col0(64) + e % 32 / 4 * 8 + l.col));
                        const float x29 = (e & 1 ? d27.y : d27.x) * f28[e];
                        f29[e] = x29;
                    }
                    keep(f29);
                }
                read_transposed(p6, slot2 + 0 + row0 * 128, l);
                keep(p6);
                {
                    float2 d5 = { 0.f, 0.f };
                    float2 d21 = { 0.f, 0.f };
                    float w18 = 0.f;
                    float w24 = 0.f;
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = row0 + l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        if (e % 4 == 0)
                            d5 = load2(slot0 + 16 + 4 * (col0(64) + e % 32 / 4 * 8 + l.col));
                        if (e % 4 == 0)
                            d21 = load2(slot0 + 528 + 4 * (col0(64) + e % 32 / 4 * 8 + l.col));
                        const float x18 = (e & 1 ? d5.y : d5.x) * (e & 1 ? high(p6[e / 2]) : low(p6[e / 2]));
                        const float x24 = x18 * (e & 1 ? d21.y : d21.x);
                        if (e & 1)
                            p18[e / 2] = pack(w18, x18);
                        else
                        w18 = x18;
                        if (e & 1)
                            p24[e / 2] = pack(w24, x24);
                        else
                        w24 = x24;
                    }
                    keep(p18);
                    keep(p24);
                }
                keep(f8);
                wgmma_fence();
                multiply_packed<1, 4, 1, 0, 1>(f8, p24, slot2 + 32768, 64, 0);
                wgmma_commit();
                keep(f29);
                wgmma_fence();
                multiply_packed<0, 4, 1, 0, 1>(f29, p18, slot3 + 0, 64, 0);
                wgmma_commit();
                wgmma_wait<1>();
                keep(p24);
                keep(f8);
                fence_async();
                arrive(base + 216256 + it2.stage * 8);
                pack_all(p8, f8);
                keep(p8);
                wgmma_wait<0>();
                keep(p18);
                keep(f29);
                arrive(base + 216288 + it2.stage * 8);
                {
                    wait(base + 216320 + it2.stage * 8, it2.phase ^ 1);
                    const float s4 = parts_sum<1>(slot0 + 0, 1, 0);
                    float f39[32];
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = row0 + l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x38 = s4 * (e & 1 ? high(p6[e / 2]) : low(p6[e / 2]));
                        const float x39 = f29[e] + x38;
                        f39[e] = x39;
                    }
                    {
                        u32 p[16];
                        pack_all(p, f39);
                        write_transposed(slot4 + 0 + row0 * 128, p, l);
                    }
                }
                fence_async();
                arrive(base + 216304 + it2.stage * 8);
                arrive(base + 216184 + it3.stage * 8);
            }
            end_state<float, 64, 128>(f8, a.tensor[8], x, row0 + 0, 0 + col0(128), l);
        }
    }
    else {
        fewer_registers<88>();
        const Lane l = lane_here();
        const int thread = (int)threadIdx.x - 384, group = 0;
        auto col0 = [&](int share) { return group * share; };
        Ring<3> it3;
        Ring<2> it2;
        u32 it = 0;
        NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
            Item x;
            const int chunks = find_walk<1>(a.run, item, x);
            NO_UNROLL for (int m = 0; m < chunks; m++, it++, it3.next(), it2.next()) {
                find_chunk(a.run, m, x);
                const u32 slot0 = base + 212992 + it3.stage * 1056;
                (void)slot0;
                const u32 slot2 = base + 65536 + it2.stage * 49152;
                (void)slot2;
                const u32 slot3 = base + 163840 + it2.stage * 8192;
                (void)slot3;
                float f33[32];
                wait(base + 216160 + it3.stage * 8, it3.phase);
                wait(base + 216240 + it2.stage * 8, it2.phase);
                wgmma_fence();
                multiply_tiles<0, 0, 8, 0, 0, 1>(f33, slot2 + 16384, 64, 0, slot2 + 32768, 64, col0(64) + 0);
                float m32[32];
                {
                    float r17[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r17[h] = LOG2E * parts_sum<1>(slot0 + 272, 64, l.row + 8 * h);
                    float2 d17 = { 0.f, 0.f };
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        if (e % 4 == 0)
                            d17 = load2(slot0 + 272 + 4 * (col0(64) + e % 32 / 4 * 8 + l.col));
                        m32[e] = exp2_(r17[h] - LOG2E * (e & 1 ? d17.y : d17.x));
                    }
                }
                keep(m32);
                wgmma_commit();
                wgmma_wait<0>();
                keep(f33);
                {
                    float f34[32];
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x32 = m32[e];
                        const float x34 = x32 * f33[e];
                        f34[e] = x34;
                    }
                    wait(base + 216288 + it2.stage * 8, it2.phase ^ 1);
                    {
                        u32 p[16];
                        pack_rows(p, f34 + 0, l, 64);
                        clear_above(p, l.row - l.col, col0(64));
                        write_columns<4>(slot3 + 0 + 0, p, 64, col0(64), l);
                    }
                }
                fence_async();
                arrive(base + 216272 + it2.stage * 8);
            }
        }
    }
}
}  // in_k0_forward

// backward (reverse), 295432 bytes a chunk and head predicted: %1 %2 %3
// %4 %5 %6 %7 %9 %12 %13 %14 %15 %16 %17 %18 %19 %20 %21 %22 %27 %30 %31
// %32 %33 %34 %35 %40 %41 %42 %43 %44 %45 %46 %47 %48 %49 %50 %51 %52
// %53 %54 %55 %56 %57 %58 %59 %60 %61 %62 %63 %64 %65 %66 %67 %68 %69
// %70 %71 %72 %73 %74 %75 %76 %77 %78 %79 %80 %81 %82 %83 %84 %85 %86
// %87 %88 %89 %90 %91 %92 %93
namespace in_k1_reverse {
struct Args { TensorMap map[8]; Tensor tensor[13]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 1) k1_reverse(const __grid_constant__ Args a)
{
    alignas(1024) extern __shared__ unsigned char raw[];
    const u32 base = shared_address(raw);
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 230624 + 8 * i, 32);
            barrier_init(base + 230640 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 230656 + 8 * i, 32);
            barrier_init(base + 230672 + 8 * i, 288);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 230688 + 8 * i, 32);
            barrier_init(base + 230704 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 230720 + 8 * i, 1);
            barrier_init(base + 230728 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 230736 + 8 * i, 256);
            barrier_init(base + 230752 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 230768 + 8 * i, 1);
            barrier_init(base + 230776 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 230784 + 8 * i, 1);
            barrier_init(base + 230800 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 230816 + 8 * i, 1);
            barrier_init(base + 230832 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 230848 + 8 * i, 1);
            barrier_init(base + 230856 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 230864 + 8 * i, 256);
            barrier_init(base + 230872 + 8 * i, 32);
        }
        barrier_init_fence();
    }
    __syncthreads();
    const int warp = uniform(threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (warp < 4) {
        fewer_registers<56>();
        if (warp == 0 && lane == 0) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<1>(a.run, item, x);
                const int head0 = head_of(a.tensor[0], x.head);
                const int head1 = head_of(a.tensor[1], x.head);
                const int head2 = head_of(a.tensor[2], x.head);
                const int head3 = head_of(a.tensor[3], x.head);
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, chunks - 1 - m, x);
                    wait(base + 230832 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        const u32 full = base + 230816 + it % 2 * 8, to = base + 81920 + it % 2 * 16384;
                        arrive_expecting(full, 16384);
                        load_tile(to + 0, &a.map[0], full, 0, x.row, head0, x.where.b);
                        load_tile(to + 8192, &a.map[0], full, 64, x.row, head0, x.where.b);
                    }
                    wait(base + 230800 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        const u32 full = base + 230784 + it % 2 * 8, to = base + 49152 + it % 2 * 16384;
                        arrive_expecting(full, 16384);
                        load_tile(to + 0, &a.map[1], full, 0, x.row, head1, x.where.b);
                        load_tile(to + 8192, &a.map[1], full, 64, x.row, head1, x.where.b);
                    }
                    wait(base + 230728, parity(it, 1) ^ 1);
                    {
                        const u32 full = base + 230720, to = base + 0;
                        arrive_expecting(full, 32768);
                        load_tile(to + 0, &a.map[2], full, 0, 0, 0, (int)x.at);
                        load_tile(to + 8192, &a.map[2], full, 0, 64, 0, (int)x.at);
                        load_tile(to + 16384, &a.map[2], full, 64, 0, 0, (int)x.at);
                        load_tile(to + 24576, &a.map[2], full, 64, 64, 0, (int)x.at);
                    }
                    wait(base + 230856, parity(it, 1) ^ 1);
                    {
                        const u32 full = base + 230848, to = base + 114688;
                        arrive_expecting(full, 16384);
                        load_tile(to + 0, &a.map[3], full, 0, x.row, head2, x.where.b);
                        load_tile(to + 8192, &a.map[3], full, 64, x.row, head2, x.where.b);
                    }
                    wait(base + 230776, parity(it, 1) ^ 1);
                    {
                        const u32 full = base + 230768, to = base + 32768;
                        arrive_expecting(full, 16384);
                        load_tile(to + 0, &a.map[4], full, 0, x.row, head3, x.where.b);
                        load_tile(to + 8192, &a.map[4], full, 64, x.row, head3, x.where.b);
                    }
                }
            }
        }
        if (warp == 1) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<1>(a.run, item, x);
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, chunks - 1 - m, x);
                    wait(base + 230864, parity((it * 3 + 0), 1));
                    if (a.tensor[4].p) {
                        const u32 from = base + 131072;
                        const int c = (x.row - x.where.start) / 64;
                        NO_UNROLL for (int i = 0; i < 2; i++)
                            store_chunk(a.map[5], a.tensor[4], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                        bulk_commit();
                        bulk_wait_read();
                    }
                    arrive(base + 230872);
                    wait(base + 230864, parity((it * 3 + 1), 1));
                    if (a.tensor[5].p) {
                        const u32 from = base + 131072;
                        const int c = (x.row - x.where.start) / 64;
                        NO_UNROLL for (int i = 0; i < 2; i++)
                            store_chunk(a.map[6], a.tensor[5], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                        bulk_commit();
                        bulk_wait_read();
                    }
                    arrive(base + 230872);
                    wait(base + 230864, parity((it * 3 + 2), 1));
                    if (a.tensor[6].p) {
                        const u32 from = base + 131072;
                        const int c = (x.row - x.where.start) / 64;
                        NO_UNROLL for (int i = 0; i < 2; i++)
                            store_chunk(a.map[7], a.tensor[6], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                        bulk_commit();
                        bulk_wait_read();
                    }
                    arrive(base + 230872);
                }
            }
        }
        if (warp == 2) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<1>(a.run, item, x);
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, chunks - 1 - m, x);
                    const float v1 = constant<4>(a.tensor[7], x.head);
                    const float v4 = constant<4>(a.tensor[8], x.head);
                    const Pair v5 = input_pair<float>(a.tensor[9], x, lane);
                    const float v12 = (float)(exp_(v1));
                    const Pair v13 = { (float)(v5.a * v12), (float)(v5.b * v12) };
                    const Pair v14 = { (float)(-v13.a), (float)(-v13.b) };
                    const Pair v16 = { (float)(max_(v14.a, bits(0xc2d00000))), (float)(max_(v14.b, bits(0xc2d00000))) };
                    Pair v17 = running_sum(v16, lane, x.n);
                    const float v19 = last_row(v17, x.n);
                    const Pair v20 = { (float)(v19 - v17.a), (float)(v19 - v17.b) };
                    const Pair v21 = { (float)(exp_(v20.a)), (float)(exp_(v20.b)) };
                    const float v22 = (float)(exp_(v19));
                    const Pair v27 = { (float)(exp_(v17.a)), (float)(exp_(v17.b)) };
                    Pair v41 = running_sum(Pair { 0.f, 0.f }, lane, x.n);
                    const Pair v88 = { (float)(v14.a < bits(0xc2d00000) ? 1 : 0), (float)(v14.b < bits(0xc2d00000) ? 1 : 0) };
                    wait(base + 230640 + it % 2 * 8, parity(it, 2) ^ 1);
                    wait(base + 230672 + it % 2 * 8, parity(it, 2) ^ 1);
                    wait(base + 230704 + it % 2 * 8, parity(it, 2) ^ 1);
                    if (lane == 0)
                        store1(base + 221184 + it % 2 * 272, v4);
                    store_pair(base + 221728 + it % 2 * 784, v5, lane);
                    if (lane == 0)
                        store1(base + 223296 + it % 2 * 528, v12);
                    store_pair(base + 221200 + it % 2 * 272, v17, lane);
                    store_pair(base + 221984 + it % 2 * 784, v21, lane);
                    if (lane == 0)
                        store1(base + 222240 + it % 2 * 784, v22);
                    store_pair(base + 222256 + it % 2 * 784, v27, lane);
                    store_pair(base + 223312 + it % 2 * 528, v41, lane);
                    store_pair(base + 223568 + it % 2 * 528, v88, lane);
                    arrive(base + 230624 + it % 2 * 8);
                    arrive(base + 230656 + it % 2 * 8);
                    arrive(base + 230688 + it % 2 * 8);
                }
            }
        }
        if (warp == 3) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<1>(a.run, item, x);
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, chunks - 1 - m, x);
                    wait(base + 230656 + it % 2 * 8, parity(it, 2));
                    wait(base + 230688 + it % 2 * 8, parity(it, 2));
                    wait(base + 230736 + it % 2 * 8, parity(it, 2));
                    const Pair v52 = parts_pair<4>(base + 224896 + it % 2 * 3136, lane);
                    const Pair v51 = parts_pair<2>(base + 224384 + it % 2 * 3136, lane);
                    const Pair v27 = parts_pair<1>(base + 222256 + it % 2 * 784, lane);
                    const Pair v58 = parts_pair<2>(base + 226464 + it % 2 * 3136, lane);
                    const Pair v5 = parts_pair<1>(base + 221728 + it % 2 * 784, lane);
                    const Pair v72 = parts_pair<2>(base + 226976 + it % 2 * 3136, lane);
                    const float v22 = parts_sum<1>(base + 222240 + it % 2 * 784, 1, 0);
                    const float v76 = parts_sum<8>(base + 224352 + it % 2 * 3136, 1, 0);
                    const Pair v21 = parts_pair<1>(base + 221984 + it % 2 * 784, lane);
                    const Pair v41 = parts_pair<1>(base + 223312 + it % 2 * 528, lane);
                    const Pair v88 = parts_pair<1>(base + 223568 + it % 2 * 528, lane);
                    const float v12 = parts_sum<1>(base + 223296 + it % 2 * 528, 1, 0);
                    const Pair v84 = parts_pair<2>(base + 225920 + it % 2 * 3136, lane);
                    const float v42 = parts_sum<8>(base + 226432 + it % 2 * 3136, 1, 0);
                    arrive(base + 230672 + it % 2 * 8);
                    arrive(base + 230704 + it % 2 * 8);
                    arrive(base + 230752 + it % 2 * 8);
                    if (lane == 0)
                        *(float *)(a.run.later + x.at * 32 + 0) = v42;
                    const Pair v53 = { (float)(-v52.a), (float)(-v52.b) };
                    const Pair v56 = { (float)(v51.a + v53.a), (float)(v51.b + v53.b) };
                    const Pair v63 = { (float)(v27.a * v58.a), (float)(v27.b * v58.b) };
                    const Pair v64 = { (float)(v56.a + v63.a), (float)(v56.b + v63.b) };
                    const Pair v73 = { (float)(v5.a * v72.a), (float)(v5.b * v72.b) };
                    const float v77 = (float)(v22 * v76);
                    const Pair v78 = { (float)(v21.a * v73.a), (float)(v21.b * v73.b) };
                    const float v79 = pair_sum({ v21.a * v73.a, v21.b * v73.b }, lane, x.n);
                    const float v80 = (float)(v77 + v79);
                    const Pair v81 = { (float)(v64.a - v78.a), (float)(v64.b - v78.b) };
                    const Pair v82 = delayed_back(v41, v80, lane, x.n);
                    const Pair v83 = { (float)(v81.a + v82.a), (float)(v81.b + v82.b) };
                    Pair v87 = sum_back(v83, lane, x.n);
                    const Pair v89 = { (float)(v88.a != 0 ? 0.f : v87.a), (float)(v88.b != 0 ? 0.f : v87.b) };
                    const Pair v90 = { (float)(v12 * v89.a), (float)(v12 * v89.b) };
                    const Pair v91 = { (float)(v84.a - v90.a), (float)(v84.b - v90.b) };
                    const float v92 = pair_sum({ v5.a * v89.a, v5.b * v89.b }, lane, x.n);
                    const float v93 = (float)(v12 * v92);
                    if (lane == 0)
                        *(float *)(a.run.later + x.at * 32 + 16) = v93;
                    output_pair<unsigned short>(a.tensor[10], x, v91, lane);
                }
            }
        }
        if (warp == 1)
            bulk_wait();
    }
    else {
        more_registers<224>();
        const Lane l = lane_here();
        const int thread = (int)threadIdx.x - 128, group = uniform(thread >> 7);
        auto col0 = [&](int share) { return group * share; };
        u32 it = 0;
        NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
            Item x;
            const int chunks = find_walk<1>(a.run, item, x);
            float f9[64];
            float f33[16];
            float f32[16];
            float f44[16];
            float f45[32];
            float f69[32];
            float f49[32];
            float f57[32];
            float f50[32];
            float f65[32];
            begin_state<float, 128, 64>(f9, a.tensor[11], x, 0, 0 + col0(64), l);
            NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                find_chunk(a.run, chunks - 1 - m, x);
                matrix_sync<2>();
                wait(base + 230720, parity(it, 1));
                {
                    wait(base + 230752 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        u32 p[16];
                        pack_rows(p, f9 + 0, l, 64);
                        write_columns<4>(base + 147456 + 0, p, 128, col0(64), l);
                    }
                    {
                        u32 p[16];
                        pack_rows(p, f9 + 32, l, 64);
                        write_columns<4>(base + 147456 + 8192, p, 128, col0(64), l);
                    }
                    float s76 = 0;
                    u32 t8[32];
                    read_columns<4>(t8 + 0, base + 0 + 0, 128, col0(64), l);
                    read_columns<4>(t8 + 16, base + 0 + 8192, 128, col0(64), l);
                    UNROLL for (int e = 0; e < 64; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x76 = (e & 1 ? high(t8[e / 2]) : low(t8[e / 2])) * f9[e];
                        s76 += x76;
                    }
                    put_sum(base + 224352 + it % 2 * 3136, warp - 4, s76, l);
                }
                wait(base + 230768, parity(it, 1));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 32768, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                wait(base + 230656 + it % 2 * 8, parity(it, 2));
                {
                    float r5[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r5[h] = parts_sum<1>(base + 221728 + it % 2 * 784, 64, l.row + 8 * h);
                    u32 t6[16];
                    read_columns<4>(t6 + 0, base + 32768 + 0, 64, col0(64), l);
                    float f18[32];
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x18 = r5[h] * (e & 1 ? high(t6[e / 2]) : low(t6[e / 2]));
                        f18[e] = x18;
                    }
                    {
                        u32 p[16];
                        pack_rows(p, f18 + 0, l, x.n);
                        write_columns<4>(base + 180224 + 0, p, 64, col0(64), l);
                    }
                }
                wait(base + 230784 + it % 2 * 8, parity(it, 2));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 49152 + it % 2 * 16384, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                wait(base + 230816 + it % 2 * 8, parity(it, 2));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 81920 + it % 2 * 16384, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                wgmma_fence();
                multiply_tiles<0, 0, 8, 0, 0>(f33, base + 49152 + it % 2 * 16384, 64, 0, base + 81920 + it % 2 * 16384, 64, col0(32) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                keep(f33);
                wait(base + 230624 + it % 2 * 8, parity(it, 2));
                {
                    float r17[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r17[h] = LOG2E * parts_sum<1>(base + 221200 + it % 2 * 272, 64, l.row + 8 * h);
                    float c17[8];
                    UNROLL for (int e = 0; e < 8; e++)
                        c17[e] = LOG2E * parts_sum<1>(base + 221200 + it % 2 * 272, 64, col0(32) + e / 2 * 8 + l.col + e % 2);
                    float f34[16];
                    const int over = l.row - l.col;
                    UNROLL for (int e = 0; e < 16; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                        const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const int past = col0(32) + e % 16 / 4 * 8 + e % 2 - 8 * h - e / 16 * 64;
                        const float x32 = kept_(over >= past, exp2_(r17[h] - c17[e / 4 * 2 + e % 2]));
                        f32[e] = x32;
                        const float x34 = x32 * f33[e];
                        f34[e] = x34;
                    }
                    {
                        u32 p[8];
                        pack_rows(p, f34 + 0, l, x.n);
                        write_columns<2>(base + 196608 + 0, p, 64, col0(32), l);
                    }
                }
                wait(base + 230848, parity(it, 1));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 114688, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                fence_async();
                matrix_sync<2>();
                wgmma_fence();
                multiply_tiles<0, 0, 8, 0, 0>(f44, base + 114688, 64, 0, base + 180224, 64, col0(32) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                keep(f44);
                matrix_sync<2>();
                {
                    float s51[2] = { 0 };
                    float s52[8] = { 0 };
                    float f48[16];
                    UNROLL for (int e = 0; e < 16; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                        const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x47 = f33[e] * f44[e];
                        const float x48 = f32[e] * f44[e];
                        f48[e] = x48;
                        const float x51 = f32[e] * x47;
                        const float x52 = f32[e] * x47;
                        s51[h] += col < x.n ? x51 : 0.f;
                        s52[e / 4 * 2 + e % 2] += row < x.n ? x52 : 0.f;
                    }
                    put_column_sums(base + 224896 + it % 2 * 3136, 64, col0(32), s52, l);
                    put_row_sums<64>(base + 224384 + it % 2 * 3136, group, s51, l);
                    {
                        u32 p[8];
                        pack_rows(p, f48 + 0, l, x.n);
                        write_columns<2>(base + 180224 + 0, p, 64, col0(32), l);
                    }
                }
                {
                    u32 t7[16];
                    read_columns<4>(t7 + 0, base + 114688 + 0, 64, col0(64), l);
                    float r27[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r27[h] = parts_sum<1>(base + 222256 + it % 2 * 784, 64, l.row + 8 * h);
                    float f59[32];
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x59 = (e & 1 ? high(t7[e / 2]) : low(t7[e / 2])) * r27[h];
                        f59[e] = x59;
                    }
                    {
                        u32 p[16];
                        pack_rows(p, f59 + 0, l, x.n);
                        write_columns<4>(base + 204800 + 0, p, 64, col0(64), l);
                    }
                }
                wgmma_fence();
                multiply_tiles<1, 1, 4, 0, 0>(f45, base + 196608, 64, 0, base + 114688, 64, col0(64) + 0);
                wgmma_fence();
                multiply_tiles<0, 1, 8, 0, 0>(f69, base + 81920 + it % 2 * 16384, 64, 0, base + 147456, 128, col0(64) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                keep(f69);
                keep(f45);
                {
                    float s84[2] = { 0 };
                    float r21[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r21[h] = parts_sum<1>(base + 221984 + it % 2 * 784, 64, l.row + 8 * h);
                    u32 t6[16];
                    read_columns<4>(t6 + 0, base + 32768 + 0, 64, col0(64), l);
                    float r5[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r5[h] = parts_sum<1>(base + 221728 + it % 2 * 784, 64, l.row + 8 * h);
                    const float s4 = parts_sum<1>(base + 221184 + it % 2 * 272, 1, 0);
                    u32 t7[16];
                    read_columns<4>(t7 + 0, base + 114688 + 0, 64, col0(64), l);
                    float f86[32];
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x70 = r21[h] * f69[e];
                        const float x71 = f45[e] + x70;
                        const float x84 = (e & 1 ? high(t6[e / 2]) : low(t6[e / 2])) * x71;
                        const float x85 = r5[h] * x71;
                        const float x43 = s4 * (e & 1 ? high(t7[e / 2]) : low(t7[e / 2]));
                        const float x86 = x43 + x85;
                        f86[e] = x86;
                        s84[h] += x84;
                    }
                    put_row_sums<64>(base + 225920 + it % 2 * 3136, group, s84, l);
                    wait(base + 230872, parity((it * 3 + 0), 1) ^ 1);
                    {
                        u32 p[16];
                        pack_rows(p, f86 + 0, l, x.n);
                        write_columns<4>(base + 131072 + 0, p, 64, col0(64), l);
                    }
                    fence_async();
                    arrive(base + 230864);
                }
                arrive(base + 230640 + it % 2 * 8);
                {
                    float s42 = 0;
                    u32 t6[16];
                    read_columns<4>(t6 + 0, base + 32768 + 0, 64, col0(64), l);
                    u32 t7[16];
                    read_columns<4>(t7 + 0, base + 114688 + 0, 64, col0(64), l);
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x42 = (e & 1 ? high(t6[e / 2]) : low(t6[e / 2])) * (e & 1 ? high(t7[e / 2]) : low(t7[e / 2]));
                        s42 += row < x.n ? x42 : 0.f;
                    }
                    put_sum(base + 226432 + it % 2 * 3136, warp - 4, s42, l);
                }
                matrix_sync<2>();
                wgmma_fence();
                multiply_tiles<0, 1, 4, 0, 0>(f49, base + 180224, 64, 0, base + 81920 + it % 2 * 16384, 64, col0(64) + 0);
                wgmma_fence();
                multiply_tiles<0, 0, 8, 0, 0>(f57, base + 114688, 64, 0, base + 0, 128, col0(64) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                fence_async();
                arrive(base + 230728);
                arrive(base + 230856);
                keep(f57);
                keep(f49);
                {
                    float s58[2] = { 0 };
                    u32 t3[16];
                    read_columns<4>(t3 + 0, base + 49152 + it % 2 * 16384 + 0, 64, col0(64), l);
                    float r27[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r27[h] = parts_sum<1>(base + 222256 + it % 2 * 784, 64, l.row + 8 * h);
                    float f61[32];
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x58 = (e & 1 ? high(t3[e / 2]) : low(t3[e / 2])) * f57[e];
                        const float x60 = r27[h] * f57[e];
                        const float x61 = f49[e] + x60;
                        f61[e] = x61;
                        s58[h] += x58;
                    }
                    put_row_sums<64>(base + 226464 + it % 2 * 3136, group, s58, l);
                    wait(base + 230872, parity((it * 3 + 1), 1) ^ 1);
                    {
                        u32 p[16];
                        pack_rows(p, f61 + 0, l, x.n);
                        write_columns<4>(base + 131072 + 0, p, 64, col0(64), l);
                    }
                    fence_async();
                    arrive(base + 230864);
                }
                wgmma_fence();
                multiply_tiles<1, 1, 4, 0, 0>(f50, base + 180224, 64, 0, base + 49152 + it % 2 * 16384, 64, col0(64) + 0);
                wgmma_fence();
                multiply_tiles<0, 0, 8, 0, 0>(f65, base + 32768, 64, 0, base + 147456, 128, col0(64) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                arrive(base + 230776);
                keep(f65);
                keep(f50);
                {
                    float s72[2] = { 0 };
                    float r5[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r5[h] = parts_sum<1>(base + 221728 + it % 2 * 784, 64, l.row + 8 * h);
                    float r21[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r21[h] = parts_sum<1>(base + 221984 + it % 2 * 784, 64, l.row + 8 * h);
                    u32 t2[16];
                    read_columns<4>(t2 + 0, base + 81920 + it % 2 * 16384 + 0, 64, col0(64), l);
                    float f68[32];
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x66 = r5[h] * f65[e];
                        const float x67 = r21[h] * x66;
                        const float x68 = f50[e] + x67;
                        f68[e] = x68;
                        const float x72 = (e & 1 ? high(t2[e / 2]) : low(t2[e / 2])) * f65[e];
                        s72[h] += x72;
                    }
                    put_row_sums<64>(base + 226976 + it % 2 * 3136, group, s72, l);
                    wait(base + 230872, parity((it * 3 + 2), 1) ^ 1);
                    {
                        u32 p[16];
                        pack_rows(p, f68 + 0, l, x.n);
                        write_columns<4>(base + 131072 + 0, p, 64, col0(64), l);
                    }
                    fence_async();
                    arrive(base + 230864);
                }
                arrive(base + 230736 + it % 2 * 8);
                fence_async();
                arrive(base + 230832 + it % 2 * 8);
                {
                    const float s22 = parts_sum<1>(base + 222240 + it % 2 * 784, 1, 0);
                    UNROLL for (int e = 0; e < 64; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x74 = f9[e] * s22;
                        f9[e] = x74;
                    }
                }
                arrive(base + 230672 + it % 2 * 8);
                keep(f9);
                wgmma_fence();
                multiply_tiles<1, 1, 4, 1, 0>(registers<32>(f9, 0), base + 49152 + it % 2 * 16384, 64, 0, base + 204800, 64, col0(64) + 0);
                multiply_tiles<1, 1, 4, 1, 0>(registers<32>(f9, 32), base + 49152 + it % 2 * 16384, 64, 64, base + 204800, 64, col0(64) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                arrive(base + 230800 + it % 2 * 8);
                keep(f9);
            }
            end_state<float, 128, 64>(f9, a.tensor[12], x, 0, 0 + col0(64), l);
        }
    }
}
}  // in_k1_reverse

// backward (reverse), 8 bytes a chunk and head predicted: %10 %11 %94 %95
namespace in_k2_reverse {
struct Args { TensorMap map[1]; Tensor tensor[4]; Run run; };
extern "C" __global__ void __launch_bounds__(128, 2) k2_reverse(const __grid_constant__ Args a)
{
    alignas(1024) extern __shared__ unsigned char raw[];
    const u32 base = shared_address(raw);
    if (threadIdx.x == 0) {
        barrier_init_fence();
    }
    __syncthreads();
    const int warp = uniform(threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (warp < 4) {
        if (warp == 2) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<1>(a.run, item, x);
                float v10 = begin_number<float>(a.tensor[0], x);
                float v11 = begin_number<float>(a.tensor[1], x);
                UNROLL_EIGHT for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, chunks - 1 - m, x);
                    const float v42 = *((float *)(a.run.later + x.at * 32 + 0));
                    const float v93 = *((float *)(a.run.later + x.at * 32 + 16));
                    const float v94 = (float)(v10 - v93);
                    const float v95 = (float)(v11 + v42);
                    v10 = v94;
                    v11 = v95;
                }
                if (lane == 0)
                    end_number<float>(a.tensor[2], x, v10);
                if (lane == 0)
                    end_number<float>(a.tensor[3], x, v11);
            }
        }
    }
}
}  // in_k2_reverse
