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
// %4 %6 %8 %9 %10 %11 %12 %13 %14 %15 %16 %17 %18 %19 %20 %21 %22 %23
// %24 %25 %26 %27 %28 %29
namespace in_k0_forward {
struct Args { TensorMap map[5]; Tensor tensor[7]; Run run; };
extern "C" __global__ void __launch_bounds__(512, 1) k0_forward(const __grid_constant__ Args a)
{
    alignas(1024) extern __shared__ unsigned char raw[];
    const u32 base = shared_address(raw);
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 3; i++) {
            barrier_init(base + 215344 + 8 * i, 32);
            barrier_init(base + 215368 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 215392 + 8 * i, 256);
            barrier_init(base + 215408 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 215424 + 8 * i, 1);
            barrier_init(base + 215440 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 215456 + 8 * i, 128);
            barrier_init(base + 215472 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 215488 + 8 * i, 256);
            barrier_init(base + 215504 + 8 * i, 32);
        }
        barrier_init(base + 215520, 1);
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
                            wait(base + 215440 + it % 2 * 8, parity(it, 2) ^ 1);
                            {
                                const u32 full = base + 215520, to = base + 65536 + it % 2 * 49152;
                                arrive_expecting(full, 49152);
                                load_tile(to + 0, &a.map[0], full, 0, x.row, head0, x.where.b);
                                load_tile(to + 8192, &a.map[0], full, 64, x.row, head0, x.where.b);
                            }
                            {
                                const u32 full = base + 215520, to = base + 81920 + it % 2 * 49152;
                                load_tile(to + 0, &a.map[1], full, 0, x.row, head1, x.where.b);
                                load_tile(to + 8192, &a.map[1], full, 64, x.row, head1, x.where.b);
                            }
                            {
                                const u32 full = base + 215520, to = base + 98304 + it % 2 * 49152;
                                load_tile(to + 0, &a.map[2], full, 0, x.row, head2, x.where.b);
                                load_tile(to + 8192, &a.map[2], full, 64, x.row, head2, x.where.b);
                            }
                        }
                        __syncwarp();
                        wait(base + 215520, tails++ & 1);
                        clear_tail<32>(base + 65536 + it % 2 * 49152, 2, x.n, lane);
                        clear_tail<32>(base + 81920 + it % 2 * 49152, 2, x.n, lane);
                        clear_tail<32>(base + 98304 + it % 2 * 49152, 2, x.n, lane);
                        fence_async();
                        __syncwarp();
                        if (lane == 0)
                            arrive(base + 215424 + it % 2 * 8);
                    } else if (lane == 0) {
                        wait(base + 215440 + it % 2 * 8, parity(it, 2) ^ 1);
                        {
                            const u32 full = base + 215424 + it % 2 * 8, to = base + 65536 + it % 2 * 49152;
                            arrive_expecting(full, 49152);
                            load_tile(to + 0, &a.map[0], full, 0, x.row, head0, x.where.b);
                            load_tile(to + 8192, &a.map[0], full, 64, x.row, head0, x.where.b);
                        }
                        {
                            const u32 full = base + 215424 + it % 2 * 8, to = base + 81920 + it % 2 * 49152;
                            load_tile(to + 0, &a.map[1], full, 0, x.row, head1, x.where.b);
                            load_tile(to + 8192, &a.map[1], full, 64, x.row, head1, x.where.b);
                        }
                        {
                            const u32 full = base + 215424 + it % 2 * 8, to = base + 98304 + it % 2 * 49152;
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
                    wait(base + 215392 + it % 2 * 8, parity(it, 2));
                    if (lane == 0) {
                        const u32 from = base + 0 + it % 2 * 32768;
                        store_tile(&a.map[3], from + 0, 0, 0, 0, (int)x.at);
                        store_tile(&a.map[3], from + 8192, 0, 64, 0, (int)x.at);
                        store_tile(&a.map[3], from + 16384, 64, 0, 0, (int)x.at);
                        store_tile(&a.map[3], from + 24576, 64, 64, 0, (int)x.at);
                    }
                    bulk_commit();
                    bulk_wait_read();
                    arrive(base + 215408 + it % 2 * 8);
                    wait(base + 215488 + it % 2 * 8, parity(it, 2));
                    if (a.tensor[3].p) {
                        const u32 from = base + 180224 + it % 2 * 16384;
                        const int c = (x.row - x.where.start) / 64;
                        NO_UNROLL for (int i = 0; i < 2; i++)
                            store_chunk(a.map[4], a.tensor[3], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                        bulk_commit();
                        bulk_wait_read();
                    }
                    arrive(base + 215504 + it % 2 * 8);
                }
            }
        }
        if (warp >= 2) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<1>(a.run, item, x);
                const Along<float> s4(a.tensor[4], x, lane);
                Loaded<float> n4 = s4.load(a.tensor[4], 0 + ((it + warp) & 1));
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, m, x);
                    if ((it + warp) & 1)
                        continue;
                    const Pair v4 = pair_of(n4);
                    n4 = s4.load(a.tensor[4], m + 2);
                    const Pair v9 = { (float)(max_(v4.a, bits(0xc2d00000))), (float)(max_(v4.b, bits(0xc2d00000))) };
                    Pair v10 = running_sum(v9, lane, x.n);
                    const float v11 = last_row(v10, x.n);
                    const Pair v12 = { (float)(v11 - v10.a), (float)(v11 - v10.b) };
                    const Pair v13 = { (float)(exp_(v12.a)), (float)(exp_(v12.b)) };
                    const float v14 = (float)(exp_(v11));
                    const Pair v19 = { (float)(exp_(v10.a)), (float)(exp_(v10.b)) };
                    wait(base + 215368 + it % 3 * 8, parity(it, 3) ^ 1);
                    store_pair(base + 212992 + it % 3 * 784, v10, lane);
                    store_pair(base + 213248 + it % 3 * 784, v13, lane);
                    if (lane == 0)
                        store1(base + 213504 + it % 3 * 784, v14);
                    store_pair(base + 213520 + it % 3 * 784, v19, lane);
                    arrive(base + 215344 + it % 3 * 8);
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
            float f6[64];
            u32 p6[32];
            u32 p29[16];
            begin_state<float, 64, 128>(f6, a.tensor[5], x, row0 + 0, 0 + col0(128), l);
            auto deferred29 = [&](u32 it) {
                wait(base + 215504 + it % 2 * 8, parity(it, 2) ^ 1);
                write_transposed(base + 180224 + it % 2 * 16384 + row0 * 128, p29, l);
                fence_async();
                arrive(base + 215488 + it % 2 * 8);
            };
            pack_all(p6, f6);
            keep(p6);
            NO_UNROLL for (int m = 0; m < chunks; m++, it++, it3.next(), it2.next()) {
                find_chunk(a.run, m, x);
                const u32 slot0 = base + 212992 + it3.stage * 784;
                (void)slot0;
                const u32 slot1 = base + 0 + it2.stage * 32768;
                (void)slot1;
                const u32 slot2 = base + 65536 + it2.stage * 49152;
                (void)slot2;
                const u32 slot3 = base + 163840 + it2.stage * 8192;
                (void)slot3;
                const u32 slot4 = base + 180224 + it2.stage * 16384;
                (void)slot4;
                u32 p3[16];
                u32 p16[16];
                float f20[32];
                float f21[32];
                wgmma_wait<0>();
                wait(base + 215456 + it2.stage * 8, it2.phase);
                wgmma_fence();
                multiply_packed<0, 8, 0, 0, 1>(f20, p6, slot2 + 16384, 64, 0);
                wgmma_commit();
                {
                    const float s14 = parts_sum<1>(slot0 + 512, 1, 0);
                    UNROLL for (int e = 0; e < 64; e++) {
                        const int h = e / 2 % 2, row = row0 + l.row + 8 * h + e / 64 * 64;
                        const int col = col0(128) + e % 64 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x15 = f6[e] * s14;
                        f6[e] = x15;
                    }
                    keep(f6);
                }
                wait(base + 215408 + it2.stage * 8, it2.phase ^ 1);
                write_transposed(slot1 + 0 + row0 * 256, registers<16>(p6, 0), l);
                write_transposed(slot1 + 0 + row0 * 256 + 8192, registers<16>(p6, 16), l);
                fence_async();
                arrive(base + 215392 + it2.stage * 8);
                read_transposed(p3, slot2 + 0 + row0 * 128, l);
                keep(p3);
                {
                    float2 d13 = { 0.f, 0.f };
                    float w16 = 0.f;
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = row0 + l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        if (e % 4 == 0)
                            d13 = load2(slot0 + 256 + 4 * (col0(64) + e % 32 / 4 * 8 + l.col));
                        const float x16 = (e & 1 ? high(p3[e / 2]) : low(p3[e / 2])) * (e & 1 ? d13.y : d13.x);
                        if (e & 1)
                            p16[e / 2] = pack(w16, x16);
                        else
                        w16 = x16;
                    }
                    keep(p16);
                }
                keep(f6);
                wgmma_fence();
                multiply_packed<1, 4, 1, 0, 1>(f6, p16, slot2 + 32768, 64, 0);
                wgmma_commit();
                wgmma_wait<1>();
                keep(p6);
                keep(f20);
                {
                    float2 d19 = { 0.f, 0.f };
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = row0 + l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        if (e % 4 == 0)
                            d19 = load2(slot0 + 528 + 4 * (col0(64) + e % 32 / 4 * 8 + l.col));
                        const float x21 = (e & 1 ? d19.y : d19.x) * f20[e];
                        f21[e] = x21;
                    }
                    keep(f21);
                }
                arrive(base + 215368 + it3.stage * 8);
                keep(f21);
                wgmma_fence();
                multiply_packed<0, 4, 1, 0, 1>(f21, p3, slot3 + 0, 64, 0);
                wgmma_commit();
                if (m > 0)
                    deferred29(it - 1);
                wgmma_wait<1>();
                keep(p16);
                keep(f6);
                fence_async();
                arrive(base + 215440 + it2.stage * 8);
                pack_all(p6, f6);
                keep(p6);
                wgmma_wait<0>();
                keep(p3);
                keep(f21);
                arrive(base + 215472 + it2.stage * 8);
                {
                    pack_all(p29, f21);
                    keep(p29);
                }
            }
            if (chunks > 0)
                deferred29(it - 1);
            end_state<float, 64, 128>(f6, a.tensor[6], x, row0 + 0, 0 + col0(128), l);
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
                const u32 slot0 = base + 212992 + it3.stage * 784;
                (void)slot0;
                const u32 slot2 = base + 65536 + it2.stage * 49152;
                (void)slot2;
                const u32 slot3 = base + 163840 + it2.stage * 8192;
                (void)slot3;
                float f25[32];
                wait(base + 215344 + it3.stage * 8, it3.phase);
                wait(base + 215424 + it2.stage * 8, it2.phase);
                wgmma_fence();
                multiply_tiles<0, 0, 8, 0, 0, 1>(f25, slot2 + 16384, 64, 0, slot2 + 32768, 64, col0(64) + 0);
                float m24[32];
                {
                    float r10[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r10[h] = LOG2E * parts_sum<1>(slot0 + 0, 64, l.row + 8 * h);
                    float2 d10 = { 0.f, 0.f };
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        if (e % 4 == 0)
                            d10 = load2(slot0 + 0 + 4 * (col0(64) + e % 32 / 4 * 8 + l.col));
                        m24[e] = exp2_(r10[h] - LOG2E * (e & 1 ? d10.y : d10.x));
                    }
                }
                keep(m24);
                wgmma_commit();
                wgmma_wait<0>();
                keep(f25);
                {
                    float f26[32];
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x24 = m24[e];
                        const float x26 = x24 * f25[e];
                        f26[e] = x26;
                    }
                    wait(base + 215472 + it2.stage * 8, it2.phase ^ 1);
                    {
                        u32 p[16];
                        pack_rows(p, f26 + 0, l, 64);
                        clear_above(p, l.row - l.col, col0(64));
                        write_columns<4>(slot3 + 0 + 0, p, 64, col0(64), l);
                    }
                }
                fence_async();
                arrive(base + 215456 + it2.stage * 8);
            }
        }
    }
}
}  // in_k0_forward

// backward (reverse), 295424 bytes a chunk and head predicted: %1 %2 %3
// %4 %5 %7 %8 %9 %10 %11 %12 %13 %14 %19 %22 %23 %24 %25 %26 %27 %30 %31
// %32 %33 %34 %35 %36 %37 %38 %39 %40 %41 %42 %43 %44 %45 %46 %47 %48
// %49 %50 %51 %52 %53 %54 %55 %56 %57 %58 %59 %60 %61 %62 %63 %64 %65
// %66 %67 %68 %69 %70 %71 %72
namespace in_k1_reverse {
struct Args { TensorMap map[8]; Tensor tensor[11]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 1) k1_reverse(const __grid_constant__ Args a)
{
    alignas(1024) extern __shared__ unsigned char raw[];
    const u32 base = shared_address(raw);
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 220768 + 8 * i, 32);
            barrier_init(base + 220784 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 220800 + 8 * i, 32);
            barrier_init(base + 220816 + 8 * i, 288);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 220832 + 8 * i, 32);
            barrier_init(base + 220848 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 220864 + 8 * i, 1);
            barrier_init(base + 220872 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 220880 + 8 * i, 256);
            barrier_init(base + 220896 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 220912 + 8 * i, 1);
            barrier_init(base + 220928 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 220944 + 8 * i, 1);
            barrier_init(base + 220960 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 220976 + 8 * i, 1);
            barrier_init(base + 220984 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 220992 + 8 * i, 1);
            barrier_init(base + 221000 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 221008 + 8 * i, 256);
            barrier_init(base + 221016 + 8 * i, 32);
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
                    wait(base + 220960 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        const u32 full = base + 220944 + it % 2 * 8, to = base + 65536 + it % 2 * 16384;
                        arrive_expecting(full, 16384);
                        load_tile(to + 0, &a.map[0], full, 0, x.row, head0, x.where.b);
                        load_tile(to + 8192, &a.map[0], full, 64, x.row, head0, x.where.b);
                    }
                    wait(base + 220928 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        const u32 full = base + 220912 + it % 2 * 8, to = base + 32768 + it % 2 * 16384;
                        arrive_expecting(full, 16384);
                        load_tile(to + 0, &a.map[1], full, 0, x.row, head1, x.where.b);
                        load_tile(to + 8192, &a.map[1], full, 64, x.row, head1, x.where.b);
                    }
                    wait(base + 220872, parity(it, 1) ^ 1);
                    {
                        const u32 full = base + 220864, to = base + 0;
                        arrive_expecting(full, 32768);
                        load_tile(to + 0, &a.map[2], full, 0, 0, 0, (int)x.at);
                        load_tile(to + 8192, &a.map[2], full, 0, 64, 0, (int)x.at);
                        load_tile(to + 16384, &a.map[2], full, 64, 0, 0, (int)x.at);
                        load_tile(to + 24576, &a.map[2], full, 64, 64, 0, (int)x.at);
                    }
                    wait(base + 221000, parity(it, 1) ^ 1);
                    {
                        const u32 full = base + 220992, to = base + 114688;
                        arrive_expecting(full, 16384);
                        load_tile(to + 0, &a.map[3], full, 0, x.row, head2, x.where.b);
                        load_tile(to + 8192, &a.map[3], full, 64, x.row, head2, x.where.b);
                    }
                    wait(base + 220984, parity(it, 1) ^ 1);
                    {
                        const u32 full = base + 220976, to = base + 98304;
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
                    wait(base + 221008, parity((it * 3 + 0), 1));
                    if (a.tensor[4].p) {
                        const u32 from = base + 131072;
                        const int c = (x.row - x.where.start) / 64;
                        NO_UNROLL for (int i = 0; i < 2; i++)
                            store_chunk(a.map[5], a.tensor[4], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                        bulk_commit();
                        bulk_wait_read();
                    }
                    arrive(base + 221016);
                    wait(base + 221008, parity((it * 3 + 1), 1));
                    if (a.tensor[5].p) {
                        const u32 from = base + 131072;
                        const int c = (x.row - x.where.start) / 64;
                        NO_UNROLL for (int i = 0; i < 2; i++)
                            store_chunk(a.map[6], a.tensor[5], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                        bulk_commit();
                        bulk_wait_read();
                    }
                    arrive(base + 221016);
                    wait(base + 221008, parity((it * 3 + 2), 1));
                    if (a.tensor[6].p) {
                        const u32 from = base + 131072;
                        const int c = (x.row - x.where.start) / 64;
                        NO_UNROLL for (int i = 0; i < 2; i++)
                            store_chunk(a.map[7], a.tensor[6], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                        bulk_commit();
                        bulk_wait_read();
                    }
                    arrive(base + 221016);
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
                    const Pair v4 = input_pair<float>(a.tensor[7], x, lane);
                    const Pair v9 = { (float)(max_(v4.a, bits(0xc2d00000))), (float)(max_(v4.b, bits(0xc2d00000))) };
                    Pair v10 = running_sum(v9, lane, x.n);
                    const float v11 = last_row(v10, x.n);
                    const Pair v12 = { (float)(v11 - v10.a), (float)(v11 - v10.b) };
                    const Pair v13 = { (float)(exp_(v12.a)), (float)(exp_(v12.b)) };
                    const float v14 = (float)(exp_(v11));
                    const Pair v19 = { (float)(exp_(v10.a)), (float)(exp_(v10.b)) };
                    Pair v31 = running_sum(Pair { 0.f, 0.f }, lane, x.n);
                    const Pair v71 = { (float)(v4.a < bits(0xc2d00000) ? 1 : 0), (float)(v4.b < bits(0xc2d00000) ? 1 : 0) };
                    wait(base + 220784 + it % 2 * 8, parity(it, 2) ^ 1);
                    wait(base + 220816 + it % 2 * 8, parity(it, 2) ^ 1);
                    wait(base + 220848 + it % 2 * 8, parity(it, 2) ^ 1);
                    store_pair(base + 212992 + it % 2 * 256, v10, lane);
                    store_pair(base + 213504 + it % 2 * 528, v13, lane);
                    if (lane == 0)
                        store1(base + 213760 + it % 2 * 528, v14);
                    store_pair(base + 213776 + it % 2 * 528, v19, lane);
                    store_pair(base + 214560 + it % 2 * 512, v31, lane);
                    store_pair(base + 214816 + it % 2 * 512, v71, lane);
                    arrive(base + 220768 + it % 2 * 8);
                    arrive(base + 220800 + it % 2 * 8);
                    arrive(base + 220832 + it % 2 * 8);
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
                    wait(base + 220800 + it % 2 * 8, parity(it, 2));
                    wait(base + 220832 + it % 2 * 8, parity(it, 2));
                    wait(base + 220880 + it % 2 * 8, parity(it, 2));
                    const Pair v40 = parts_pair<4>(base + 216128 + it % 2 * 2592, lane);
                    const Pair v39 = parts_pair<2>(base + 215616 + it % 2 * 2592, lane);
                    const Pair v19 = parts_pair<1>(base + 213776 + it % 2 * 528, lane);
                    const Pair v46 = parts_pair<2>(base + 217152 + it % 2 * 2592, lane);
                    const float v14 = parts_sum<1>(base + 213760 + it % 2 * 528, 1, 0);
                    const float v62 = parts_sum<8>(base + 215584 + it % 2 * 2592, 1, 0);
                    const Pair v13 = parts_pair<1>(base + 213504 + it % 2 * 528, lane);
                    const Pair v59 = parts_pair<2>(base + 217664 + it % 2 * 2592, lane);
                    const Pair v31 = parts_pair<1>(base + 214560 + it % 2 * 512, lane);
                    const Pair v71 = parts_pair<1>(base + 214816 + it % 2 * 512, lane);
                    arrive(base + 220816 + it % 2 * 8);
                    arrive(base + 220848 + it % 2 * 8);
                    arrive(base + 220896 + it % 2 * 8);
                    const Pair v41 = { (float)(-v40.a), (float)(-v40.b) };
                    const Pair v44 = { (float)(v39.a + v41.a), (float)(v39.b + v41.b) };
                    const Pair v51 = { (float)(v19.a * v46.a), (float)(v19.b * v46.b) };
                    const Pair v52 = { (float)(v44.a + v51.a), (float)(v44.b + v51.b) };
                    const float v63 = (float)(v14 * v62);
                    const Pair v64 = { (float)(v13.a * v59.a), (float)(v13.b * v59.b) };
                    const float v65 = pair_sum({ v13.a * v59.a, v13.b * v59.b }, lane, x.n);
                    const float v66 = (float)(v63 + v65);
                    const Pair v67 = { (float)(v52.a - v64.a), (float)(v52.b - v64.b) };
                    const Pair v68 = delayed_back(v31, v66, lane, x.n);
                    const Pair v69 = { (float)(v67.a + v68.a), (float)(v67.b + v68.b) };
                    Pair v70 = sum_back(v69, lane, x.n);
                    const Pair v72 = { (float)(v71.a != 0 ? 0.f : v70.a), (float)(v71.b != 0 ? 0.f : v70.b) };
                    output_pair<unsigned short>(a.tensor[8], x, v72, lane);
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
            float f7[64];
            float f25[16];
            float f32[16];
            float f33[32];
            float f56[32];
            float f37[32];
            float f45[32];
            float f38[32];
            float f53[32];
            begin_state<float, 128, 64>(f7, a.tensor[9], x, 0, 0 + col0(64), l);
            NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                find_chunk(a.run, chunks - 1 - m, x);
                matrix_sync<2>();
                wait(base + 220864, parity(it, 1));
                {
                    wait(base + 220896 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        u32 p[16];
                        pack_rows(p, f7 + 0, l, 64);
                        write_columns<4>(base + 147456 + 0, p, 128, col0(64), l);
                    }
                    {
                        u32 p[16];
                        pack_rows(p, f7 + 32, l, 64);
                        write_columns<4>(base + 147456 + 8192, p, 128, col0(64), l);
                    }
                    float s62 = 0;
                    u32 t6[32];
                    read_columns<4>(t6 + 0, base + 0 + 0, 128, col0(64), l);
                    read_columns<4>(t6 + 16, base + 0 + 8192, 128, col0(64), l);
                    UNROLL for (int e = 0; e < 64; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x62 = (e & 1 ? high(t6[e / 2]) : low(t6[e / 2])) * f7[e];
                        s62 += x62;
                    }
                    put_sum(base + 215584 + it % 2 * 2592, warp - 4, s62, l);
                }
                wait(base + 220912 + it % 2 * 8, parity(it, 2));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 32768 + it % 2 * 16384, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                wait(base + 220944 + it % 2 * 8, parity(it, 2));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 65536 + it % 2 * 16384, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                wait(base + 220976, parity(it, 1));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 98304, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                wait(base + 220992, parity(it, 1));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 114688, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                wgmma_fence();
                multiply_tiles<0, 0, 8, 0, 0>(f25, base + 32768 + it % 2 * 16384, 64, 0, base + 65536 + it % 2 * 16384, 64, col0(32) + 0);
                wgmma_fence();
                multiply_tiles<0, 0, 8, 0, 0>(f32, base + 114688, 64, 0, base + 98304, 64, col0(32) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                keep(f32);
                keep(f25);
                wait(base + 220768 + it % 2 * 8, parity(it, 2));
                {
                    float s39[2] = { 0 };
                    float r10[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r10[h] = LOG2E * parts_sum<1>(base + 212992 + it % 2 * 256, 64, l.row + 8 * h);
                    float c10[8];
                    UNROLL for (int e = 0; e < 8; e++)
                        c10[e] = LOG2E * parts_sum<1>(base + 212992 + it % 2 * 256, 64, col0(32) + e / 2 * 8 + l.col + e % 2);
                    float s40[8] = { 0 };
                    float f26[16];
                    float f36[16];
                    const int over = l.row - l.col;
                    UNROLL for (int e = 0; e < 16; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                        const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const int past = col0(32) + e % 16 / 4 * 8 + e % 2 - 8 * h - e / 16 * 64;
                        const float x24 = kept_(over >= past, exp2_(r10[h] - c10[e / 4 * 2 + e % 2]));
                        const float x26 = x24 * f25[e];
                        f26[e] = x26;
                        const float x35 = f25[e] * f32[e];
                        const float x36 = x24 * f32[e];
                        f36[e] = x36;
                        const float x39 = x24 * x35;
                        const float x40 = x24 * x35;
                        s39[h] += col < x.n ? x39 : 0.f;
                        s40[e / 4 * 2 + e % 2] += row < x.n ? x40 : 0.f;
                    }
                    put_column_sums(base + 216128 + it % 2 * 2592, 64, col0(32), s40, l);
                    put_row_sums<64>(base + 215616 + it % 2 * 2592, group, s39, l);
                    {
                        u32 p[8];
                        pack_rows(p, f26 + 0, l, x.n);
                        write_columns<2>(base + 180224 + 0, p, 64, col0(32), l);
                    }
                    {
                        u32 p[8];
                        pack_rows(p, f36 + 0, l, x.n);
                        write_columns<2>(base + 188416 + 0, p, 64, col0(32), l);
                    }
                }
                arrive(base + 220784 + it % 2 * 8);
                wait(base + 220800 + it % 2 * 8, parity(it, 2));
                {
                    u32 t5[16];
                    read_columns<4>(t5 + 0, base + 114688 + 0, 64, col0(64), l);
                    float r19[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r19[h] = parts_sum<1>(base + 213776 + it % 2 * 528, 64, l.row + 8 * h);
                    float f47[32];
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x47 = (e & 1 ? high(t5[e / 2]) : low(t5[e / 2])) * r19[h];
                        f47[e] = x47;
                    }
                    {
                        u32 p[16];
                        pack_rows(p, f47 + 0, l, x.n);
                        write_columns<4>(base + 196608 + 0, p, 64, col0(64), l);
                    }
                }
                fence_async();
                matrix_sync<2>();
                wgmma_fence();
                multiply_tiles<1, 1, 4, 0, 0>(f33, base + 180224, 64, 0, base + 114688, 64, col0(64) + 0);
                wgmma_fence();
                multiply_tiles<0, 1, 8, 0, 0>(f56, base + 65536 + it % 2 * 16384, 64, 0, base + 147456, 128, col0(64) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                keep(f56);
                keep(f33);
                {
                    float r13[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r13[h] = parts_sum<1>(base + 213504 + it % 2 * 528, 64, l.row + 8 * h);
                    float f58[32];
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x57 = r13[h] * f56[e];
                        const float x58 = f33[e] + x57;
                        f58[e] = x58;
                    }
                    wait(base + 221016, parity((it * 3 + 0), 1) ^ 1);
                    {
                        u32 p[16];
                        pack_rows(p, f58 + 0, l, x.n);
                        write_columns<4>(base + 131072 + 0, p, 64, col0(64), l);
                    }
                    fence_async();
                    arrive(base + 221008);
                }
                wgmma_fence();
                multiply_tiles<0, 1, 4, 0, 0>(f37, base + 188416, 64, 0, base + 65536 + it % 2 * 16384, 64, col0(64) + 0);
                wgmma_fence();
                multiply_tiles<0, 0, 8, 0, 0>(f45, base + 114688, 64, 0, base + 0, 128, col0(64) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                arrive(base + 220872);
                arrive(base + 221000);
                keep(f45);
                keep(f37);
                {
                    float s46[2] = { 0 };
                    u32 t1[16];
                    read_columns<4>(t1 + 0, base + 32768 + it % 2 * 16384 + 0, 64, col0(64), l);
                    float r19[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r19[h] = parts_sum<1>(base + 213776 + it % 2 * 528, 64, l.row + 8 * h);
                    float f49[32];
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x46 = (e & 1 ? high(t1[e / 2]) : low(t1[e / 2])) * f45[e];
                        const float x48 = r19[h] * f45[e];
                        const float x49 = f37[e] + x48;
                        f49[e] = x49;
                        s46[h] += x46;
                    }
                    put_row_sums<64>(base + 217152 + it % 2 * 2592, group, s46, l);
                    wait(base + 221016, parity((it * 3 + 1), 1) ^ 1);
                    {
                        u32 p[16];
                        pack_rows(p, f49 + 0, l, x.n);
                        write_columns<4>(base + 131072 + 0, p, 64, col0(64), l);
                    }
                    fence_async();
                    arrive(base + 221008);
                }
                wgmma_fence();
                multiply_tiles<1, 1, 4, 0, 0>(f38, base + 188416, 64, 0, base + 32768 + it % 2 * 16384, 64, col0(64) + 0);
                wgmma_fence();
                multiply_tiles<0, 0, 8, 0, 0>(f53, base + 98304, 64, 0, base + 147456, 128, col0(64) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                arrive(base + 220984);
                keep(f53);
                keep(f38);
                {
                    float s59[2] = { 0 };
                    float r13[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r13[h] = parts_sum<1>(base + 213504 + it % 2 * 528, 64, l.row + 8 * h);
                    u32 t2[16];
                    read_columns<4>(t2 + 0, base + 65536 + it % 2 * 16384 + 0, 64, col0(64), l);
                    float f55[32];
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x54 = r13[h] * f53[e];
                        const float x55 = f38[e] + x54;
                        f55[e] = x55;
                        const float x59 = (e & 1 ? high(t2[e / 2]) : low(t2[e / 2])) * f53[e];
                        s59[h] += x59;
                    }
                    put_row_sums<64>(base + 217664 + it % 2 * 2592, group, s59, l);
                    wait(base + 221016, parity((it * 3 + 2), 1) ^ 1);
                    {
                        u32 p[16];
                        pack_rows(p, f55 + 0, l, x.n);
                        write_columns<4>(base + 131072 + 0, p, 64, col0(64), l);
                    }
                    fence_async();
                    arrive(base + 221008);
                }
                arrive(base + 220880 + it % 2 * 8);
                fence_async();
                arrive(base + 220960 + it % 2 * 8);
                {
                    const float s14 = parts_sum<1>(base + 213760 + it % 2 * 528, 1, 0);
                    UNROLL for (int e = 0; e < 64; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x60 = f7[e] * s14;
                        f7[e] = x60;
                    }
                }
                arrive(base + 220816 + it % 2 * 8);
                keep(f7);
                wgmma_fence();
                multiply_tiles<1, 1, 4, 1, 0>(registers<32>(f7, 0), base + 32768 + it % 2 * 16384, 64, 0, base + 196608, 64, col0(64) + 0);
                multiply_tiles<1, 1, 4, 1, 0>(registers<32>(f7, 32), base + 32768 + it % 2 * 16384, 64, 64, base + 196608, 64, col0(64) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                arrive(base + 220928 + it % 2 * 8);
                keep(f7);
            }
            end_state<float, 128, 64>(f7, a.tensor[10], x, 0, 0 + col0(64), l);
        }
    }
}
}  // in_k1_reverse
