#define THREADS 512
#define RANK 2
#include "numbers.cuh"
#include "warp.cuh"
#include "run.cuh"
#include "tile.cuh"
#include "products.cuh"
#include "scans.cuh"
extern __shared__ char arena[];

// forward (forward), 164352 bytes a chunk and head predicted: %2 %3 %4
// %5 %7 %9 %10 %11 %12 %13 %14 %15 %16 %17 %18 %19 %20 %21 %22 %23 %24
// %25 %26 %27 %28 %29 %30 %31 %32 %33
namespace in_k0_forward {
struct Args { TensorMap map[4]; Tensor tensor[6]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 1) k0_forward(const __grid_constant__ Args a)
{
    extern __shared__ unsigned char raw[];
    const u32 base = (shared_address(raw) + 1023) & ~1023u;
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 225312 + 8 * i, 1);
            barrier_init(base + 225328 + 8 * i, 8);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 225344 + 8 * i, 8);
            barrier_init(base + 225360 + 8 * i, 1);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 225376 + 8 * i, 1);
            barrier_init(base + 225392 + 8 * i, 8);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 225408 + 8 * i, 1);
            barrier_init(base + 225424 + 8 * i, 8);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 225440 + 8 * i, 8);
            barrier_init(base + 225456 + 8 * i, 1);
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
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, m, x);
                    wait(base + 225392 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        const u32 full = base + 225376 + it % 2 * 8, to = base + 65536 + it % 2 * 16384;
                        arrive_expecting(full, 16384);
                        const int head = x.head / a.tensor[0].group;
                        load_tile(to + 0, &a.map[0], full, 0, x.row, head, x.where.b);
                        load_tile(to + 8192, &a.map[0], full, 64, x.row, head, x.where.b);
                    }
                    wait(base + 225424 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        const u32 full = base + 225408 + it % 2 * 8, to = base + 98304 + it % 2 * 16384;
                        arrive_expecting(full, 16384);
                        const int head = x.head / a.tensor[1].group;
                        load_tile(to + 0, &a.map[1], full, 0, x.row, head, x.where.b);
                        load_tile(to + 8192, &a.map[1], full, 64, x.row, head, x.where.b);
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
                    wait(base + 225344 + it % 2 * 8, parity(it, 2));
                    if (lane == 0) {
                        const u32 from = base + 0 + it % 2 * 32768;
                        store_tile(&a.map[2], from + 0, 0, 0, 0, (int)x.at);
                        store_tile(&a.map[2], from + 8192, 0, 64, 0, (int)x.at);
                        store_tile(&a.map[2], from + 16384, 64, 0, 0, (int)x.at);
                        store_tile(&a.map[2], from + 24576, 64, 64, 0, (int)x.at);
                    }
                    bulk_commit();
                    bulk_wait_read();
                    __syncwarp();
                    if (lane == 0)
                        arrive(base + 225360 + it % 2 * 8);
                    wait(base + 225440 + it % 2 * 8, parity(it, 2));
                    if (lane == 0) {
                        const u32 from = base + 174080 + it % 2 * 16384;
                        store_tile(&a.map[3], from + 0, 0, 0, 0, (int)x.at);
                        store_tile(&a.map[3], from + 8192, 64, 0, 0, (int)x.at);
                    }
                    bulk_commit();
                    bulk_wait_read();
                    __syncwarp();
                    if (lane == 0)
                        arrive(base + 225456 + it % 2 * 8);
                }
            }
        }
        if (warp == 2) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<1>(a.run, item, x);
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, m, x);
                    const Pair v4 = input_pair<float>(a.tensor[2], x, lane);
                    const Pair v5 = input_pair<float>(a.tensor[3], x, lane);
                    const Pair v10 = { (float)(max_(v5.a, bits(0xc2d00000))), (float)(max_(v5.b, bits(0xc2d00000))) };
                    Pair v11 = running_sum(v10, lane, x.n);
                    const Pair v13 = { (float)(exp_(v11.a)), (float)(exp_(v11.b)) };
                    const float v26 = last_row(v11, x.n);
                    const Pair v27 = { (float)(v26 - v11.a), (float)(v26 - v11.b) };
                    const Pair v28 = { (float)(exp_(v27.a)), (float)(exp_(v27.b)) };
                    const float v29 = (float)(exp_(v26));
                    wait(base + 225328 + it % 2 * 8, parity(it, 2) ^ 1);
                    store_pair(base + 223232 + it % 2 * 1040, v4, lane);
                    store_pair(base + 223488 + it % 2 * 1040, v11, lane);
                    store_pair(base + 223744 + it % 2 * 1040, v13, lane);
                    store_pair(base + 224000 + it % 2 * 1040, v28, lane);
                    if (lane == 0)
                        store1(base + 224256 + it % 2 * 1040, v29);
                    __syncwarp();
                    if (lane == 0)
                        arrive(base + 225312 + it % 2 * 8);
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
            float f14[32];
            float f21[16];
            float f25[32];
            begin_state<float, 64>(f7, a.tensor[4], x, 0, 0 + col0(64), l);
            NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                find_chunk(a.run, m, x);
                {
                    wait(base + 225360 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        u32 p[32];
                        pack_rows(p, f7, l, 64);
                        write_columns<4>(base + 0 + it % 2 * 32768 + 0, p + 0, 128, col0(64), l);
                        write_columns<4>(base + 0 + it % 2 * 32768 + 8192, p + 16, 128, col0(64), l);
                    }
                    fence_async();
                }
                __syncwarp();
                if (lane == 0)
                    arrive(base + 225344 + it % 2 * 8);
                wait(base + 225376 + it % 2 * 8, parity(it, 2));
                if (x.n < 64) {
                    clear_tail<256>(base + 65536 + it % 2 * 16384, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                wait(base + 225408 + it % 2 * 8, parity(it, 2));
                if (x.n < 64) {
                    clear_tail<256>(base + 98304 + it % 2 * 16384, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                matrix_sync<2>();
                wgmma_fence();
                multiply_tiles<0, 0, 8, 0, 0>(f14, base + 98304 + it % 2 * 16384, 64, 0, base + 0 + it % 2 * 32768, 128, col0(64) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                keep(f14);
                wait(base + 225312 + it % 2 * 8, parity(it, 2));
                {
                    u32 t3[16];
                    read_columns<4>(t3 + 0, base + 65536 + it % 2 * 16384 + 0, 64, col0(64), l);
                    float r4[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r4[h] = parts_sum<1>(base + 223232 + it % 2 * 1040, 64, l.row + 8 * h);
                    float r13[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r13[h] = parts_sum<1>(base + 223744 + it % 2 * 1040, 64, l.row + 8 * h);
                    float f17[32];
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x12 = (e & 1 ? high(t3[e / 2]) : low(t3[e / 2])) * r4[h];
                        const float x15 = r4[h] * f14[e];
                        const float x16 = r13[h] * x15;
                        const float x17 = x12 - x16;
                        f17[e] = x17;
                    }
                    {
                        u32 p[16];
                        pack_rows(p, f17, l, x.n);
                        write_columns<4>(base + 131072 + 0, p + 0, 64, col0(64), l);
                    }
                    fence_async();
                }
                __syncwarp();
                if (lane == 0)
                    arrive(base + 225392 + it % 2 * 8);
                wgmma_fence();
                multiply_tiles<0, 0, 8, 0, 0>(f21, base + 98304 + it % 2 * 16384, 64, 0, base + 98304 + it % 2 * 16384, 64, col0(32) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                keep(f21);
                {
                    float r11[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r11[h] = parts_sum<1>(base + 223488 + it % 2 * 1040, 64, l.row + 8 * h);
                    float c11[8];
                    UNROLL for (int e = 0; e < 8; e++)
                        c11[e] = parts_sum<1>(base + 223488 + it % 2 * 1040, 64, col0(32) + e / 2 * 8 + l.col + e % 2);
                    float r4[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r4[h] = parts_sum<1>(base + 223232 + it % 2 * 1040, 64, l.row + 8 * h);
                    float f24[16];
                    UNROLL for (int e = 0; e < 16; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                        const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x20 = (row > col ? exp_(r11[h] - c11[e / 4 * 2 + e % 2]) : 0.f);
                        const float x22 = r4[h] * f21[e];
                        const float x23 = x20 * x22;
                        const float x24 = -x23;
                        f24[e] = x24;
                    }
                    write_wide(base + 147456, f24, col0(32), l);
                }
                matrix_sync<2>();
                if (group == 0) {
                    invert(base + 165888, base + 147456, l.lane, l.warp);
                    fence_async();
                } else {
                    beside_invert();
                }
                matrix_sync<2>();
                wgmma_fence();
                multiply_tiles<0, 1, 4, 0, 0>(f25, base + 165888, 64, 0, base + 131072, 64, col0(64) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                keep(f25);
                {
                    wait(base + 225456 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        u32 p[16];
                        pack_rows(p, f25, l, x.n);
                        write_columns<4>(base + 174080 + it % 2 * 16384 + 0, p + 0, 64, col0(64), l);
                    }
                    fence_async();
                    float r28[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r28[h] = parts_sum<1>(base + 224000 + it % 2 * 1040, 64, l.row + 8 * h);
                    float f31[32];
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x31 = f25[e] * r28[h];
                        f31[e] = x31;
                    }
                    {
                        u32 p[16];
                        pack_rows(p, f31, l, x.n);
                        write_columns<4>(base + 206848 + 0, p + 0, 64, col0(64), l);
                    }
                    fence_async();
                }
                __syncwarp();
                if (lane == 0)
                    arrive(base + 225440 + it % 2 * 8);
                {
                    const float s29 = parts_sum<1>(base + 224256 + it % 2 * 1040, 1, 0);
                    UNROLL for (int e = 0; e < 64; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x30 = f7[e] * s29;
                        f7[e] = x30;
                    }
                }
                __syncwarp();
                if (lane == 0)
                    arrive(base + 225328 + it % 2 * 8);
                matrix_sync<2>();
                wgmma_fence();
                multiply_tiles<1, 1, 4, 1, 0>(registers<32>(f7, 0), base + 206848, 64, 0, base + 98304 + it % 2 * 16384, 64, col0(64) + 0);
                multiply_tiles<1, 1, 4, 1, 0>(registers<32>(f7, 32), base + 206848, 64, 64, base + 98304 + it % 2 * 16384, 64, col0(64) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                __syncwarp();
                if (lane == 0)
                    arrive(base + 225424 + it % 2 * 8);
                keep(f7);
            }
            end_state<float, 64>(f7, a.tensor[5], x, 0, 0 + col0(64), l);
        }
    }
}
}  // in_k0_forward

// forward (token), 196864 bytes a chunk and head predicted: %1 %2 %5 %9
// %10 %11 %13 %18 %19 %34 %35 %36 %37 %38 %39 %40 %41
namespace in_k1_token {
struct Args { TensorMap map[5]; Tensor tensor[4]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 1) k1_token(const __grid_constant__ Args a)
{
    extern __shared__ unsigned char raw[];
    const u32 base = (shared_address(raw) + 1023) & ~1023u;
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 205824 + 8 * i, 1);
            barrier_init(base + 205840 + 8 * i, 8);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 205856 + 8 * i, 1);
            barrier_init(base + 205872 + 8 * i, 8);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 205888 + 8 * i, 1);
            barrier_init(base + 205904 + 8 * i, 8);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 205920 + 8 * i, 1);
            barrier_init(base + 205936 + 8 * i, 8);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 205952 + 8 * i, 1);
            barrier_init(base + 205968 + 8 * i, 8);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 205984 + 8 * i, 8);
            barrier_init(base + 206000 + 8 * i, 1);
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
                if (!find_item<1>(a.run, item, x))
                    continue;
                wait(base + 205872 + it % 2 * 8, parity(it, 2) ^ 1);
                {
                    const u32 full = base + 205856 + it % 2 * 8, to = base + 0 + it % 2 * 16384;
                    arrive_expecting(full, 16384);
                    const int head = x.head / a.tensor[0].group;
                    load_tile(to + 0, &a.map[0], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[0], full, 64, x.row, head, x.where.b);
                }
                wait(base + 205904 + it % 2 * 8, parity(it, 2) ^ 1);
                {
                    const u32 full = base + 205888 + it % 2 * 8, to = base + 32768 + it % 2 * 16384;
                    arrive_expecting(full, 16384);
                    const int head = x.head / a.tensor[1].group;
                    load_tile(to + 0, &a.map[1], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[1], full, 64, x.row, head, x.where.b);
                }
                wait(base + 205936 + it % 2 * 8, parity(it, 2) ^ 1);
                {
                    const u32 full = base + 205920 + it % 2 * 8, to = base + 73728 + it % 2 * 32768;
                    arrive_expecting(full, 32768);
                    load_tile(to + 0, &a.map[2], full, 0, 0, 0, (int)x.at);
                    load_tile(to + 8192, &a.map[2], full, 0, 64, 0, (int)x.at);
                    load_tile(to + 16384, &a.map[2], full, 64, 0, 0, (int)x.at);
                    load_tile(to + 24576, &a.map[2], full, 64, 64, 0, (int)x.at);
                }
                wait(base + 205968 + it % 2 * 8, parity(it, 2) ^ 1);
                {
                    const u32 full = base + 205952 + it % 2 * 8, to = base + 139264 + it % 2 * 16384;
                    arrive_expecting(full, 16384);
                    load_tile(to + 0, &a.map[3], full, 0, 0, 0, (int)x.at);
                    load_tile(to + 8192, &a.map[3], full, 64, 0, 0, (int)x.at);
                }
                it++;
            }
        }
        if (warp == 1) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                if (!find_item<1>(a.run, item, x))
                    continue;
                wait(base + 205984 + it % 2 * 8, parity(it, 2));
                if (a.tensor[2].p) {
                    const u32 from = base + 172032 + it % 2 * 16384;
                    const int c = (x.row - x.where.start) / 64;
                    store_chunk(a.map[4], a.tensor[2], from + 0, x.where, c, 0, 128, x.head, lane);
                    store_chunk(a.map[4], a.tensor[2], from + 8192, x.where, c, 64, 128, x.head, lane);
                    bulk_commit();
                    bulk_wait_read();
                }
                __syncwarp();
                if (lane == 0)
                    arrive(base + 206000 + it % 2 * 8);
                it++;
            }
        }
        if (warp == 2) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                if (!find_item<1>(a.run, item, x))
                    continue;
                const Pair v5 = input_pair<float>(a.tensor[3], x, lane);
                const Pair v10 = { (float)(max_(v5.a, bits(0xc2d00000))), (float)(max_(v5.b, bits(0xc2d00000))) };
                Pair v11 = running_sum(v10, lane, x.n);
                const Pair v13 = { (float)(exp_(v11.a)), (float)(exp_(v11.b)) };
                wait(base + 205840 + it % 2 * 8, parity(it, 2) ^ 1);
                store_pair(base + 204800 + it % 2 * 512, v11, lane);
                store_pair(base + 205056 + it % 2 * 512, v13, lane);
                __syncwarp();
                if (lane == 0)
                    arrive(base + 205824 + it % 2 * 8);
                it++;
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
            if (!find_item<1>(a.run, item, x))
                continue;
            float f37[16];
            float f34[32];
            float f40[32];
            wait(base + 205856 + it % 2 * 8, parity(it, 2));
            if (x.n < 64) {
                clear_tail<256>(base + 0 + it % 2 * 16384, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wait(base + 205888 + it % 2 * 8, parity(it, 2));
            if (x.n < 64) {
                clear_tail<256>(base + 32768 + it % 2 * 16384, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wgmma_fence();
            multiply_tiles<0, 0, 8, 0, 0>(f37, base + 0 + it % 2 * 16384, 64, 0, base + 32768 + it % 2 * 16384, 64, col0(32) + 0);
            wgmma_commit();
            wgmma_wait<0>();
            __syncwarp();
            if (lane == 0)
                arrive(base + 205904 + it % 2 * 8);
            keep(f37);
            matrix_sync<2>();
            wait(base + 205824 + it % 2 * 8, parity(it, 2));
            {
                float r11[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r11[h] = parts_sum<1>(base + 204800 + it % 2 * 512, 64, l.row + 8 * h);
                float c11[8];
                UNROLL for (int e = 0; e < 8; e++)
                    c11[e] = parts_sum<1>(base + 204800 + it % 2 * 512, 64, col0(32) + e / 2 * 8 + l.col + e % 2);
                float f38[16];
                UNROLL for (int e = 0; e < 16; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                    const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x36 = (row >= col ? exp_(r11[h] - c11[e / 4 * 2 + e % 2]) : 0.f);
                    const float x38 = x36 * f37[e];
                    f38[e] = x38;
                }
                {
                    u32 p[8];
                    pack_rows(p, f38, l, x.n);
                    write_columns<2>(base + 65536 + 0, p + 0, 64, col0(32), l);
                }
                fence_async();
            }
            wait(base + 205952 + it % 2 * 8, parity(it, 2));
            if (x.n < 64) {
                clear_tail<256>(base + 139264 + it % 2 * 16384, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wait(base + 205920 + it % 2 * 8, parity(it, 2));
            wgmma_fence();
            multiply_tiles<0, 0, 8, 0, 0>(f34, base + 0 + it % 2 * 16384, 64, 0, base + 73728 + it % 2 * 32768, 128, col0(64) + 0);
            matrix_sync<2>();
            wgmma_fence();
            multiply_tiles<0, 1, 4, 0, 0>(f40, base + 65536, 64, 0, base + 139264 + it % 2 * 16384, 64, col0(64) + 0);
            wgmma_commit();
            wgmma_wait<0>();
            __syncwarp();
            if (lane == 0)
                arrive(base + 205872 + it % 2 * 8);
            __syncwarp();
            if (lane == 0)
                arrive(base + 205936 + it % 2 * 8);
            __syncwarp();
            if (lane == 0)
                arrive(base + 205968 + it % 2 * 8);
            keep(f40);
            {
                wait(base + 206000 + it % 2 * 8, parity(it, 2) ^ 1);
                float r13[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r13[h] = parts_sum<1>(base + 205056 + it % 2 * 512, 64, l.row + 8 * h);
                float f41[32];
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x35 = r13[h] * f34[e];
                    const float x41 = x35 + f40[e];
                    f41[e] = x41;
                }
                {
                    u32 p[16];
                    pack_rows(p, f41, l, x.n);
                    write_columns<4>(base + 172032 + it % 2 * 16384 + 0, p + 0, 64, col0(64), l);
                }
                fence_async();
            }
            __syncwarp();
            if (lane == 0)
                arrive(base + 205984 + it % 2 * 8);
            __syncwarp();
            if (lane == 0)
                arrive(base + 205840 + it % 2 * 8);
            it++;
        }
    }
}
}  // in_k1_token

// backward (reverse), 229888 bytes a chunk and head predicted: %1 %2 %4
// %5 %6 %8 %9 %10 %11 %13 %18 %19 %20 %21 %22 %23 %24 %26 %27 %28 %29
// %36 %37 %38 %45 %46 %54 %58 %61 %62 %63 %65 %66 %75 %101 %104 %109 %110
namespace in_k2_reverse {
struct Args { TensorMap map[6]; Tensor tensor[7]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 1) k2_reverse(const __grid_constant__ Args a)
{
    extern __shared__ unsigned char raw[];
    const u32 base = (shared_address(raw) + 1023) & ~1023u;
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 217120 + 8 * i, 1);
            barrier_init(base + 217136 + 8 * i, 8);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 217152 + 8 * i, 8);
            barrier_init(base + 217160 + 8 * i, 1);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 217168 + 8 * i, 1);
            barrier_init(base + 217184 + 8 * i, 8);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 217200 + 8 * i, 1);
            barrier_init(base + 217216 + 8 * i, 8);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 217232 + 8 * i, 1);
            barrier_init(base + 217240 + 8 * i, 8);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 217248 + 8 * i, 8);
            barrier_init(base + 217256 + 8 * i, 1);
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
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, chunks - 1 - m, x);
                    wait(base + 217184 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        const u32 full = base + 217168 + it % 2 * 8, to = base + 32768 + it % 2 * 16384;
                        arrive_expecting(full, 16384);
                        const int head = x.head / a.tensor[0].group;
                        load_tile(to + 0, &a.map[0], full, 0, x.row, head, x.where.b);
                        load_tile(to + 8192, &a.map[0], full, 64, x.row, head, x.where.b);
                    }
                    wait(base + 217216 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        const u32 full = base + 217200 + it % 2 * 8, to = base + 65536 + it % 2 * 16384;
                        arrive_expecting(full, 16384);
                        const int head = x.head / a.tensor[1].group;
                        load_tile(to + 0, &a.map[1], full, 0, x.row, head, x.where.b);
                        load_tile(to + 8192, &a.map[1], full, 64, x.row, head, x.where.b);
                    }
                    wait(base + 217240, parity(it, 1) ^ 1);
                    {
                        const u32 full = base + 217232, to = base + 133120;
                        arrive_expecting(full, 16384);
                        const int head = x.head / a.tensor[2].group;
                        load_tile(to + 0, &a.map[2], full, 0, x.row, head, x.where.b);
                        load_tile(to + 8192, &a.map[2], full, 64, x.row, head, x.where.b);
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
                    wait(base + 217152, parity(it, 1));
                    if (lane == 0) {
                        const u32 from = base + 0;
                        store_tile(&a.map[3], from + 0, 0, 0, 0, (int)x.at);
                        store_tile(&a.map[3], from + 8192, 0, 64, 0, (int)x.at);
                        store_tile(&a.map[3], from + 16384, 64, 0, 0, (int)x.at);
                        store_tile(&a.map[3], from + 24576, 64, 64, 0, (int)x.at);
                    }
                    bulk_commit();
                    bulk_wait_read();
                    __syncwarp();
                    if (lane == 0)
                        arrive(base + 217160);
                    wait(base + 217248, parity((it * 2 + 0), 1));
                    if (lane == 0) {
                        const u32 from = base + 149504;
                        store_tile(&a.map[4], from + 0, 0, 0, 0, (int)x.at);
                        store_tile(&a.map[4], from + 8192, 64, 0, 0, (int)x.at);
                    }
                    bulk_commit();
                    bulk_wait_read();
                    __syncwarp();
                    if (lane == 0)
                        arrive(base + 217256);
                    wait(base + 217248, parity((it * 2 + 1), 1));
                    if (lane == 0) {
                        const u32 from = base + 149504;
                        store_tile(&a.map[5], from + 0, 0, 0, 0, (int)x.at);
                        store_tile(&a.map[5], from + 8192, 64, 0, 0, (int)x.at);
                    }
                    bulk_commit();
                    bulk_wait_read();
                    __syncwarp();
                    if (lane == 0)
                        arrive(base + 217256);
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
                    const Pair v4 = input_pair<float>(a.tensor[3], x, lane);
                    const Pair v5 = input_pair<float>(a.tensor[4], x, lane);
                    const Pair v10 = { (float)(max_(v5.a, bits(0xc2d00000))), (float)(max_(v5.b, bits(0xc2d00000))) };
                    Pair v11 = running_sum(v10, lane, x.n);
                    const Pair v13 = { (float)(exp_(v11.a)), (float)(exp_(v11.b)) };
                    const float v26 = last_row(v11, x.n);
                    const Pair v27 = { (float)(v26 - v11.a), (float)(v26 - v11.b) };
                    const Pair v28 = { (float)(exp_(v27.a)), (float)(exp_(v27.b)) };
                    const float v29 = (float)(exp_(v26));
                    wait(base + 217136 + it % 2 * 8, parity(it, 2) ^ 1);
                    store_pair(base + 215040 + it % 2 * 1040, v4, lane);
                    store_pair(base + 215296 + it % 2 * 1040, v11, lane);
                    store_pair(base + 215552 + it % 2 * 1040, v13, lane);
                    store_pair(base + 215808 + it % 2 * 1040, v28, lane);
                    if (lane == 0)
                        store1(base + 216064 + it % 2 * 1040, v29);
                    __syncwarp();
                    if (lane == 0)
                        arrive(base + 217120 + it % 2 * 8);
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
            float f8[64];
            float f37[16];
            float f21[16];
            float f45[32];
            float f61[32];
            float f75[32];
            begin_state<float, 64>(f8, a.tensor[5], x, 0, 0 + col0(64), l);
            NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                find_chunk(a.run, chunks - 1 - m, x);
                {
                    wait(base + 217160, parity(it, 1) ^ 1);
                    {
                        u32 p[32];
                        pack_rows(p, f8, l, 64);
                        write_columns<4>(base + 0 + 0, p + 0, 128, col0(64), l);
                        write_columns<4>(base + 0 + 8192, p + 16, 128, col0(64), l);
                    }
                    fence_async();
                }
                __syncwarp();
                if (lane == 0)
                    arrive(base + 217152);
                wait(base + 217168 + it % 2 * 8, parity(it, 2));
                if (x.n < 64) {
                    clear_tail<256>(base + 32768 + it % 2 * 16384, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                wait(base + 217200 + it % 2 * 8, parity(it, 2));
                if (x.n < 64) {
                    clear_tail<256>(base + 65536 + it % 2 * 16384, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                wgmma_fence();
                multiply_tiles<0, 0, 8, 0, 0>(f37, base + 32768 + it % 2 * 16384, 64, 0, base + 65536 + it % 2 * 16384, 64, col0(32) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                keep(f37);
                wait(base + 217120 + it % 2 * 8, parity(it, 2));
                {
                    float r11[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r11[h] = parts_sum<1>(base + 215296 + it % 2 * 1040, 64, l.row + 8 * h);
                    float c11[8];
                    UNROLL for (int e = 0; e < 8; e++)
                        c11[e] = parts_sum<1>(base + 215296 + it % 2 * 1040, 64, col0(32) + e / 2 * 8 + l.col + e % 2);
                    float f38[16];
                    UNROLL for (int e = 0; e < 16; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                        const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x36 = (row >= col ? exp_(r11[h] - c11[e / 4 * 2 + e % 2]) : 0.f);
                        const float x38 = x36 * f37[e];
                        f38[e] = x38;
                    }
                    {
                        u32 p[8];
                        pack_rows(p, f38, l, x.n);
                        write_columns<2>(base + 98304 + 0, p + 0, 64, col0(32), l);
                    }
                    fence_async();
                }
                wgmma_fence();
                multiply_tiles<0, 0, 8, 0, 0>(f21, base + 65536 + it % 2 * 16384, 64, 0, base + 65536 + it % 2 * 16384, 64, col0(32) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                keep(f21);
                {
                    float r11[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r11[h] = parts_sum<1>(base + 215296 + it % 2 * 1040, 64, l.row + 8 * h);
                    float c11[8];
                    UNROLL for (int e = 0; e < 8; e++)
                        c11[e] = parts_sum<1>(base + 215296 + it % 2 * 1040, 64, col0(32) + e / 2 * 8 + l.col + e % 2);
                    float r4[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r4[h] = parts_sum<1>(base + 215040 + it % 2 * 1040, 64, l.row + 8 * h);
                    float f24[16];
                    UNROLL for (int e = 0; e < 16; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                        const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x20 = (row > col ? exp_(r11[h] - c11[e / 4 * 2 + e % 2]) : 0.f);
                        const float x22 = r4[h] * f21[e];
                        const float x23 = x20 * x22;
                        const float x24 = -x23;
                        f24[e] = x24;
                    }
                    write_wide(base + 106496, f24, col0(32), l);
                }
                matrix_sync<2>();
                if (group == 0) {
                    invert(base + 124928, base + 106496, l.lane, l.warp);
                    fence_async();
                } else {
                    beside_invert();
                }
                wait(base + 217232, parity(it, 1));
                if (x.n < 64) {
                    clear_tail<256>(base + 133120, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                wgmma_fence();
                multiply_tiles<1, 1, 4, 0, 0>(f45, base + 98304, 64, 0, base + 133120, 64, col0(64) + 0);
                wgmma_fence();
                multiply_tiles<0, 0, 8, 0, 0>(f61, base + 65536 + it % 2 * 16384, 64, 0, base + 0, 128, col0(64) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                keep(f61);
                keep(f45);
                {
                    wait(base + 217256, parity((it * 2 + 0), 1) ^ 1);
                    {
                        u32 p[16];
                        pack_rows(p, f61, l, x.n);
                        write_columns<4>(base + 149504 + 0, p + 0, 64, col0(64), l);
                    }
                    fence_async();
                    __syncwarp();
                    if (lane == 0)
                        arrive(base + 217248);
                    float r28[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r28[h] = parts_sum<1>(base + 215808 + it % 2 * 1040, 64, l.row + 8 * h);
                    float f63[32];
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x62 = r28[h] * f61[e];
                        const float x63 = f45[e] + x62;
                        f63[e] = x63;
                    }
                    {
                        u32 p[16];
                        pack_rows(p, f63, l, x.n);
                        write_columns<4>(base + 165888 + 0, p + 0, 64, col0(64), l);
                    }
                    fence_async();
                }
                {
                    u32 t6[16];
                    read_columns<4>(t6 + 0, base + 133120 + 0, 64, col0(64), l);
                    float r13[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r13[h] = parts_sum<1>(base + 215552 + it % 2 * 1040, 64, l.row + 8 * h);
                    float f54[32];
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x54 = (e & 1 ? high(t6[e / 2]) : low(t6[e / 2])) * r13[h];
                        f54[e] = x54;
                    }
                    {
                        u32 p[16];
                        pack_rows(p, f54, l, x.n);
                        write_columns<4>(base + 182272 + 0, p + 0, 64, col0(64), l);
                    }
                    fence_async();
                }
                __syncwarp();
                if (lane == 0)
                    arrive(base + 217240);
                matrix_sync<2>();
                wgmma_fence();
                multiply_tiles<1, 1, 4, 0, 0>(f75, base + 124928, 64, 0, base + 165888, 64, col0(64) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                keep(f75);
                {
                    wait(base + 217256, parity((it * 2 + 1), 1) ^ 1);
                    {
                        u32 p[16];
                        pack_rows(p, f75, l, x.n);
                        write_columns<4>(base + 149504 + 0, p + 0, 64, col0(64), l);
                    }
                    fence_async();
                    __syncwarp();
                    if (lane == 0)
                        arrive(base + 217248);
                    float r13[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r13[h] = parts_sum<1>(base + 215552 + it % 2 * 1040, 64, l.row + 8 * h);
                    float r4[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r4[h] = parts_sum<1>(base + 215040 + it % 2 * 1040, 64, l.row + 8 * h);
                    float f104[32];
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x101 = r13[h] * f75[e];
                        const float x104 = r4[h] * x101;
                        f104[e] = x104;
                    }
                    {
                        u32 p[16];
                        pack_rows(p, f104, l, x.n);
                        write_columns<4>(base + 198656 + 0, p + 0, 64, col0(64), l);
                    }
                    fence_async();
                }
                {
                    const float s29 = parts_sum<1>(base + 216064 + it % 2 * 1040, 1, 0);
                    UNROLL for (int e = 0; e < 64; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x65 = f8[e] * s29;
                        f8[e] = x65;
                    }
                }
                __syncwarp();
                if (lane == 0)
                    arrive(base + 217136 + it % 2 * 8);
                wgmma_fence();
                multiply_tiles<1, 1, 4, 1, 0>(registers<32>(f8, 0), base + 182272, 64, 0, base + 32768 + it % 2 * 16384, 64, col0(64) + 0);
                multiply_tiles<1, 1, 4, 1, 0>(registers<32>(f8, 32), base + 182272, 64, 64, base + 32768 + it % 2 * 16384, 64, col0(64) + 0);
                matrix_sync<2>();
                wgmma_fence();
                multiply_tiles<1, 1, 4, 1, 1>(registers<32>(f8, 0), base + 198656, 64, 0, base + 65536 + it % 2 * 16384, 64, col0(64) + 0);
                multiply_tiles<1, 1, 4, 1, 1>(registers<32>(f8, 32), base + 198656, 64, 64, base + 65536 + it % 2 * 16384, 64, col0(64) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                __syncwarp();
                if (lane == 0)
                    arrive(base + 217184 + it % 2 * 8);
                __syncwarp();
                if (lane == 0)
                    arrive(base + 217216 + it % 2 * 8);
                keep(f8);
            }
            end_state<float, 64>(f8, a.tensor[6], x, 0, 0 + col0(64), l);
        }
    }
}
}  // in_k2_reverse

// no schedule: 272640 bytes of shared memory; sm_90a has 232448
// backward (token), 427008 bytes a chunk and head predicted: %1 %2 %3 %4
// %5 %6 %9 %10 %11 %12 %13 %14 %15 %16 %17 %18 %19 %20 %21 %22 %23 %24
// %25 %26 %27 %28 %29 %34 %36 %37 %39 %42 %43 %44 %47 %48 %49 %50 %51
// %52 %53 %55 %56 %57 %59 %60 %64 %67 %68 %69 %70 %71 %72 %73 %74 %76
// %77 %78 %79 %80 %81 %82 %83 %84 %85 %86 %87 %88 %89 %90 %91 %92 %93
// %94 %95 %96 %97 %98 %99 %100 %102 %103 %105 %106 %107 %108 %111 %112
// %113 %114 %115 %116 %117 %118
struct Args3 { Run run; Tensor t[11]; };
struct Placed3 { Run run; Placed t[11]; };
CALLED void k3_token_part0()
    {
    const Placed3 &a = *(const Placed3 *)(arena + 208);
    char *const spill = global(a.run.spill) + blockIdx.x * 71680ll;
    float *const scratch = (float *)arena;
    (void)scratch;
    float *const t0 = (float *)(arena + 19584);
    enum { SHARED0 = 1 };
    float *const t1 = (float *)(arena + 175760);
    enum { SHARED1 = 1 };
    float *const t2 = (float *)(arena + 174224);
    enum { SHARED2 = 1 };
    bf16 *const t3 = (bf16 *)(arena + 104592);
    enum { SHARED3 = 1 };
    bf16 *const t4 = (bf16 *)(arena + 52368);
    enum { SHARED4 = 1 };
    float *const t5 = (float *)(arena + 43136);
    enum { SHARED5 = 1 };
    bf16 *const t6 = (bf16 *)(arena + 43152);
    enum { SHARED6 = 1 };
    float *const t7 = (float *)(spill + 36864);
    enum { SHARED7 = 0 };
    float *const t8 = (float *)(arena + 175504);
    enum { SHARED8 = 1 };
    bf16 *const t9 = (bf16 *)(arena + 69776);
    enum { SHARED9 = 1 };
    float *const t10 = (float *)(arena + 87184);
    enum { SHARED10 = 1 };
    float *const t11 = (float *)(spill + 0);
    enum { SHARED11 = 0 };
    float *const t12 = (float *)(arena + 210832);
    enum { SHARED12 = 1 };
    float *const t13 = (float *)(spill + 18432);
    enum { SHARED13 = 0 };
    float *const t14 = (float *)(arena + 24704);
    enum { SHARED14 = 1 };
    float *const t15 = (float *)(arena + 174992);
    enum { SHARED15 = 1 };
    float *const t16 = (float *)(arena + 174736);
    enum { SHARED16 = 1 };
    float *const t17 = (float *)(arena + 176016);
    enum { SHARED17 = 1 };
    float *const t18 = (float *)(arena + 139408);
    enum { SHARED18 = 1 };
    float *const t19 = (float *)(arena + 175248);
    enum { SHARED19 = 1 };
    float *const t20 = (float *)(arena + 174480);
    enum { SHARED20 = 1 };
    float *const t21 = (float *)(arena + 19584);
    enum { SHARED21 = 1 };
    float *const t22 = (float *)(arena + 43152);
    enum { SHARED22 = 1 };
    float *const t23 = (float *)(arena + 19584);
    enum { SHARED23 = 1 };
    float *const t24 = (float *)(arena + 38016);
    enum { SHARED24 = 1 };
    bf16 *const t25 = (bf16 *)(arena + 19584);
    enum { SHARED25 = 1 };
    bf16 *const t26 = (bf16 *)(arena + 87184);
    enum { SHARED26 = 1 };
    bf16 *const t27 = (bf16 *)(arena + 52368);
    enum { SHARED27 = 1 };
    float *const t28 = (float *)(arena + 176016);
    enum { SHARED28 = 1 };
    float *const t29 = (float *)(arena + 104592);
    enum { SHARED29 = 1 };
    bf16 *const t30 = (bf16 *)(arena + 43152);
    enum { SHARED30 = 1 };
    float *const t31 = (float *)(arena + 38272);
    enum { SHARED31 = 1 };
    float *const t32 = (float *)(arena + 176016);
    enum { SHARED32 = 1 };
    const Item &known = *(const Item *)(arena + 128);
    const Sequence q = { known.b, 0, known.start, known.len };
    const i64 slot = known.slot;
    const int head = known.head, block = known.block;
    (void)q;
    (void)slot;
    (void)head;
    (void)block;
    const i64 at = known.last;
    const int n = (int)min(q.len - at * 64, (i64)64);
    const i64 token = q.start + at * 64;
    char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 114688ll;
    (void)n;
    (void)token;
    {
        const float *p = (const float *)a.t[0].p + at_token(a.t[0], q, token, head);
        copy_in<1, 1, SHARED0>(t0, (const float *)p, a.t[0].st, 0, n, a.t[0].wide);
    }
    copy_commit();
    {
        bf16 *p = (bf16 *)(stored + 0);
        copy_in<128, 136, SHARED3>(t3, p, 128, 1, 128, true);
    }
    copy_commit();
    {
        bf16 *p = (bf16 *)(stored + 32768);
        copy_in<128, 136, SHARED4>(t4, p, 128, 1, 128, true);
    }
    copy_commit();
    {
        bf16 *p = (bf16 *)(stored + 98304);
        copy_in<128, 136, SHARED7>(t7, p, 128, 1, n, true);
    }
    copy_commit();
    {
        const float *p = (const float *)a.t[3].p + at_token(a.t[3], q, token, head);
        copy_in<1, 1, SHARED10>(t10, (const float *)p, a.t[3].st, 0, n, a.t[3].wide);
    }
    copy_commit();
    copy_wait<4>();
    __syncthreads();
    NO_UNROLL for (int e = TID; e < n; e += THREADS) {
        const int i = e;
        const float v10 = max_(t0[i], bits(0xc2d00000));
        const float v117 = t0[i] < bits(0xc2d00000) ? 1 : 0;
        t0[i] = v10;
        t1[i] = v117;
    }
    __syncthreads();
    NO_UNROLL for (int e = WARP; e < 1; e += WARPS) {
        const float s = 0;
        scan_lanes<Adding<float>>(n, s, [&](int at) {
            const int i = at;
            (void)i;
            return 0.f;
        }, [&](int at) {
            const int i = at;
            (void)i;
            return t0[i];
        },
            [&](int at, float found, float left) {
            const int i = at;
            t2[i] = left;
            (void)found;
        });
    }
    __syncthreads();
    NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
        const float v29 = exp_(t2[(n - 1)]);
        t5[0] = v29;
    }
    NO_UNROLL for (int e = TID; e < n; e += THREADS) {
        const int i = e;
        const float v13 = exp_(t2[i]);
        const float v27 = t2[(n - 1)] - t2[i];
        const float v28 = exp_(v27);
        t15[i] = v13;
        t16[i] = v28;
    }
    copy_wait<2>();
    __syncthreads();
    NO_UNROLL for (int e = 0; e < 1; e += 1) {
        float x = 0;
        for (int f = 4 * (TID); f < 16384; f += 4 * THREADS) {
            const int d0 = f % 128;
            const int d1 = f / 128 % 128;
            x += dot_four(t3 + d0 + d1 * 136, t4 + d0 + d1 * 136);
        }
        x = block_sum(x, scratch);
        if (TID == 0) {
            const float v68 = t5[0] * x;
            t5[0] = v68;
        }
    }
    __syncthreads();
    {
        const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
        copy_in<128, 136, SHARED6>(t6, (const bf16 *)p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
    }
    copy_commit();
    {
        const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
        copy_in<128, 136, SHARED9>(t9, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
    }
    copy_commit();
    copy_wait<1>();
    __syncthreads();
    NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
        const int e = min(g, n - 1);
        const bool first = g == e && TID % 8 == 0;
        const int i = e;
        float x = 0;
        for (int f = 4 * (TID % 8); f < 128; f += 4 * 8) {
            const int d1 = f;
            x += dot_four(t6 + i * 136 + d1, t7 + i * 136 + d1);
        }
        x = lane_sum<8>(x);
        if (first) {
            t8[i] = x;
        }
    }
    UNROLL_FOUR for (int f = TID / 64, e = TID % 64; f < n; f += THREADS / 64) {
        const int i = f;
        const int j = e;
        if (j >= n)
            continue;
        const float v20 = i > j ? exp_(t2[i] - t2[j]) : 0.f;
        t11[i * 72 + j] = v20;
    }
    copy_wait<0>();
    __syncthreads();
    product<BF16, 1, 2, 128, true, true, true, Paired>(64, 64, 128,
        matrix<136, 1, SHARED9 ? 8 : 2>(t9 + 0),
        matrix<136, 1, SHARED9 ? 8 : 2>(t9 + 0),
        [&](int row, int col, Pair x) {
        const int i = row;
        const int j = col;
        const Pair v22 = t10[i] * x;
        const Pair v23 = pair_at<1, true>(t11 + i * 72 + j) * v22;
        const Pair v24 = -v23;
        return [=] {
            put_pair<1, true>(t12 + i * 72 + j, x);
            put_pair<1, true>(t13 + i * 72 + j, v22);
            put_pair<1, true>(t14 + i * 72 + j, v24);
        };
    });
    product<BF16, 2, 2, 128, true, true, true, Paired>(64, 128, 128,
        matrix<136, 1, SHARED9 ? 8 : 2>(t9 + 0),
        matrix<136, 1, SHARED3 ? 8 : 2>(t3 + 0),
        [&](int row, int col, Pair x) {
        const int i = row;
        const int d1 = col;
        const Pair v15 = t10[i] * x;
        const Pair v16 = t15[i] * v15;
        const Pair v12 = pair_at<1, true>(t6 + i * 136 + d1) * t10[i];
        const Pair v17 = v12 - v16;
        return [=] {
            put_pair<1, true>(t17 + i * 136 + d1, x);
            put_pair<1, true>(t18 + i * 136 + d1, v17);
        };
    });
    __syncthreads();
    {
        bf16 *p = (bf16 *)(stored + 81920);
        copy_in<128, 136, SHARED22>(t22, p, 128, 1, n, true);
    }
    copy_commit();
    NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
        const int e = min(g, n - 1);
        const bool first = g == e && TID % 8 == 0;
        const int i = e;
        float x = 0;
        for (int f = 4 * (TID % 8); f < 128; f += 4 * 8) {
            const int d1 = f;
            x += dot_four(t17 + i * 136 + d1, t7 + i * 136 + d1);
        }
        x = lane_sum<8>(x);
        if (first) {
            const float v99 = t10[i] * x;
            const float v102 = t15[i] * x;
            t19[i] = v99;
            t20[i] = v102;
        }
    }
    solve<false, 72, 1, 136, 1, true>(n * 1, 128, t14 + 0, t18 + 0, t21);
    copy_wait<0>();
    __syncthreads();
    NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
        const int e = min(g, n - 1);
        const bool first = g == e && TID % 8 == 0;
        const int i = e;
        float x = 0;
        for (int f = 4 * (TID % 8); f < 128; f += 4 * 8) {
            const int d1 = f;
            x += dot_four(t18 + i * 136 + d1, t22 + i * 136 + d1);
        }
        x = lane_sum<8>(x);
        if (first) {
            const float v69 = t16[i] * x;
            t23[i] = x;
            t24[i] = v69;
        }
    }
    __syncthreads();
    {
        const bf16 *p = (const bf16 *)a.t[5].p + at_token(a.t[5], q, token, head);
        copy_in<128, 136, SHARED27>(t27, (const bf16 *)p, a.t[5].st, a.t[5].sd[0], n, a.t[5].wide);
    }
    copy_commit();
    {
        const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
        copy_in<128, 136, SHARED9>(t9, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
    }
    copy_commit();
    NO_UNROLL for (int from = TID / 32, g = from; g - from < 1; g += THREADS / 32) {
        const int e = min(g, 1 - 1);
        const bool first = g == e && TID % 32 == 0;
        float x = 0;
        NO_UNROLL for (int f = 4 * (TID % 32); f < n; f += 4 * 32) {
            const int i = f;
            x += dot_four(t16 + i, t23 + i, n - f);
        }
        x = lane_sum<32>(x);
        if (first) {
            const float v71 = t5[0] + x;
            t5[0] = v71;
        }
    }
    __syncthreads();
    {
        const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
        copy_in<128, 136, SHARED25>(t25, (const bf16 *)p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
    }
    copy_commit();
    narrow<128, 136, 136>(t26, t18, n);
    UNROLL_FOUR for (int f = TID / 64, e = TID % 64; f < n; f += THREADS / 64) {
        const int i = f;
        const int j = e;
        if (j >= n)
            continue;
        const float v36 = i >= j ? exp_(t2[i] - t2[j]) : 0.f;
        t28[i * 72 + j] = v36;
    }
    copy_wait<0>();
    __syncthreads();
    two_products<1, 2>(64, 64,
        term<128, true>(matrix<136, 1, SHARED25 ? 8 : 2>(t25 + 0),
        matrix<136, 1, SHARED26 ? 8 : 2>(t26 + 0), 128),
        term<128, true>(matrix<136, 1, SHARED27 ? 8 : 2>(t27 + 0),
        matrix<136, 1, SHARED9 ? 8 : 2>(t9 + 0), 128),
        [&](int row, int col, Pair x, Pair z) {
        const int i = row;
        const int j = col;
        const Pair v47 = z * x;
        const Pair v48 = pair_at<1, true>(t28 + i * 72 + j) * x;
        return [=] {
            put_pair<1, true>(t29 + i * 72 + j, v47);
            put_pair<1, true>(t30 + i * 72 + j, v48);
        };
    });
    __syncthreads();
    NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
        const int e = min(g, n - 1);
        const bool first = g == e && TID % 8 == 0;
        const int i = e;
        float x = 0;
        UNROLL_TWICE for (int f = 4 * (TID % 8); f < n; f += 4 * 8) {
            const int j = f;
            x += dot_four(t28 + i * 72 + j, t29 + i * 72 + j, n - f);
        }
        x = lane_sum<8>(x);
        if (first) {
            const float v72 = x - t24[i];
            t24[i] = v72;
        }
    }
    NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
        const int e = min(g, n - 1);
        const bool first = g == e && TID % 8 == 0;
        const int j = e;
        float x = 0;
        UNROLL_FOUR for (int f = TID % 8; f < n; f += 8) {
            const int i = f;
            x += t28[i * 72 + j] * t29[i * 72 + j];
        }
        x = lane_sum<8>(x);
        if (first) {
            t31[j] = x;
        }
    }
    __syncthreads();
    {
        bf16 *p = (bf16 *)(stored + 0);
        copy_in<128, 136, SHARED3>(t3, p, 128, 1, 128, true);
    }
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    two_products<2, 2>(64, 128,
        term<64, false>(matrix<72, 1, SHARED30 ? 8 : 2>(t30 + 0),
        matrix<1, 136, SHARED9 ? 8 : 2>(t9 + 0), n),
        term<128, true>(matrix<136, 1, SHARED25 ? 8 : 2>(t25 + 0),
        matrix<1, 136, SHARED3 ? 8 : 2>(t3 + 0), 128),
        [&](int row, int col, Pair x, Pair z) {
        const int i = row;
        const int d0 = col;
        const Pair v56 = t15[i] * z;
        const Pair v57 = x + v56;
        return [=] {
            put_pair<1, true>(t32 + i * 136 + d0, v57);
        };
    });
    __syncthreads();
}
CALLED void k3_token_part1()
    {
    const Placed3 &a = *(const Placed3 *)(arena + 208);
    char *const spill = global(a.run.spill) + blockIdx.x * 71680ll;
    float *const scratch = (float *)arena;
    (void)scratch;
    float *const t1 = (float *)(arena + 175760);
    enum { SHARED1 = 1 };
    bf16 *const t3 = (bf16 *)(arena + 104592);
    enum { SHARED3 = 1 };
    bf16 *const t4 = (bf16 *)(arena + 52368);
    enum { SHARED4 = 1 };
    float *const t5 = (float *)(arena + 43136);
    enum { SHARED5 = 1 };
    float *const t7 = (float *)(spill + 36864);
    enum { SHARED7 = 0 };
    float *const t8 = (float *)(arena + 175504);
    enum { SHARED8 = 1 };
    bf16 *const t9 = (bf16 *)(arena + 69776);
    enum { SHARED9 = 1 };
    float *const t10 = (float *)(arena + 87184);
    enum { SHARED10 = 1 };
    float *const t11 = (float *)(spill + 0);
    enum { SHARED11 = 0 };
    float *const t12 = (float *)(arena + 210832);
    enum { SHARED12 = 1 };
    float *const t13 = (float *)(spill + 18432);
    enum { SHARED13 = 0 };
    float *const t15 = (float *)(arena + 174992);
    enum { SHARED15 = 1 };
    float *const t16 = (float *)(arena + 174736);
    enum { SHARED16 = 1 };
    float *const t18 = (float *)(arena + 139408);
    enum { SHARED18 = 1 };
    float *const t19 = (float *)(arena + 175248);
    enum { SHARED19 = 1 };
    float *const t20 = (float *)(arena + 174480);
    enum { SHARED20 = 1 };
    float *const t24 = (float *)(arena + 38016);
    enum { SHARED24 = 1 };
    bf16 *const t25 = (bf16 *)(arena + 19584);
    enum { SHARED25 = 1 };
    bf16 *const t26 = (bf16 *)(arena + 87184);
    enum { SHARED26 = 1 };
    bf16 *const t27 = (bf16 *)(arena + 52368);
    enum { SHARED27 = 1 };
    bf16 *const t30 = (bf16 *)(arena + 43152);
    enum { SHARED30 = 1 };
    float *const t31 = (float *)(arena + 38272);
    enum { SHARED31 = 1 };
    float *const t32 = (float *)(arena + 176016);
    enum { SHARED32 = 1 };
    float *const t33 = (float *)(arena + 176016);
    enum { SHARED33 = 1 };
    float *const t34 = (float *)(arena + 1152);
    enum { SHARED34 = 1 };
    float *const t35 = (float *)(arena + 87440);
    enum { SHARED35 = 1 };
    float *const t36 = (float *)(arena + 52368);
    enum { SHARED36 = 1 };
    bf16 *const t37 = (bf16 *)(arena + 19584);
    enum { SHARED37 = 1 };
    bf16 *const t38 = (bf16 *)(arena + 28800);
    enum { SHARED38 = 1 };
    float *const t39 = (float *)(arena + 38528);
    enum { SHARED39 = 1 };
    float *const t40 = (float *)(arena + 139408);
    enum { SHARED40 = 1 };
    bf16 *const t41 = (bf16 *)(arena + 19584);
    enum { SHARED41 = 1 };
    float *const t42 = (float *)(arena + 896);
    enum { SHARED42 = 1 };
    float *const t43 = (float *)(arena + 69776);
    enum { SHARED43 = 1 };
    float *const t44 = (float *)(arena + 19584);
    enum { SHARED44 = 1 };
    const Item &known = *(const Item *)(arena + 128);
    const Sequence q = { known.b, 0, known.start, known.len };
    const i64 slot = known.slot;
    const int head = known.head, block = known.block;
    (void)q;
    (void)slot;
    (void)head;
    (void)block;
    const i64 at = known.last;
    const int n = (int)min(q.len - at * 64, (i64)64);
    const i64 token = q.start + at * 64;
    char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 114688ll;
    (void)n;
    (void)token;
    {
        bf16 *p = (bf16 *)(stored + 32768);
        copy_in<128, 136, SHARED4>(t4, p, 128, 1, 128, true);
    }
    copy_commit();
    if (a.t[6].p) {
        bf16 *p = (bf16 *)a.t[6].p + at_token(a.t[6], q, token, head);
        copy_out<128, 136>(t32, (bf16 *)p, a.t[6].st, a.t[6].sd[0], n, a.t[6].wide);
    }
    copy_wait<0>();
    __syncthreads();
    product<BF16, 2, 2, 128, true, true, true, Paired>(64, 128, 128,
        matrix<136, 1, SHARED26 ? 8 : 2>(t26 + 0),
        matrix<1, 136, SHARED4 ? 8 : 2>(t4 + 0),
        [&](int row, int col, Pair x) {
        const int i = row;
        const int d0 = col;
        const Pair v60 = t16[i] * x;
        return [=] {
            put_pair<1, true>(t33 + i * 136 + d0, v60);
        };
    });
    __syncthreads();
    {
        const float *p = (const float *)a.t[3].p + at_token(a.t[3], q, token, head);
        copy_in<1, 1, SHARED10>(t10, (const float *)p, a.t[3].st, 0, n, a.t[3].wide);
    }
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    product<TF32, 1, 2, 0, true, true, true, Paired>(64, 64, 128,
        matrix<136, 1, 2>(t7 + 0),
        matrix<136, 1, 2>(t18 + 0),
        [&](int row, int col, Pair x) {
        const int i = row;
        const int j = col;
        const Pair v78 = pair_at<1, true>(t34 + i * 72 + j) * x;
        const Pair v79 = pair_at<1, true>(t13 + i * 72 + j) * v78;
        const Pair v80 = pair_at<1, true>(t11 + i * 72 + j) * v78;
        const Pair v82 = t10[i] * v80;
        return [=] {
            put_pair<1, true>(t13 + i * 72 + j, v78);
            put_pair<1, true>(t35 + i * 72 + j, v79);
            put_pair<1, true>(t36 + i * 72 + j, v80);
            put_pair<1, true>(t37 + i * 72 + j, v80);
            put_pair<1, true>(t38 + i * 72 + j, v82);
        };
    });
    __syncthreads();
    NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
        const int e = min(g, n - 1);
        const bool first = g == e && TID % 8 == 0;
        const int i = e;
        float x = 0;
        UNROLL_TWICE for (int f = 4 * (TID % 8); f < n; f += 4 * 8) {
            const int j = f;
            x += dot_four(t12 + i * 72 + j, t36 + i * 72 + j, n - f);
        }
        x = lane_sum<8>(x);
        if (first) {
            const float v103 = x + t20[i];
            const float v115 = t8[i] - v103;
            t20[i] = v115;
        }
    }
    NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
        const int e = min(g, n - 1);
        const bool first = g == e && TID % 8 == 0;
        const int j = e;
        float x = 0;
        UNROLL_FOUR for (int f = TID % 8; f < n; f += 8) {
            const int i = f;
            x += t11[i * 72 + j] * t35[i * 72 + j];
        }
        x = lane_sum<8>(x);
        if (first) {
            const float v93 = x - t31[j];
            t31[j] = v93;
        }
    }
    __syncthreads();
    {
        const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
        copy_in<128, 136, SHARED9>(t9, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
    }
    copy_commit();
    {
        const bf16 *p = (const bf16 *)a.t[5].p + at_token(a.t[5], q, token, head);
        copy_in<128, 136, SHARED27>(t27, (const bf16 *)p, a.t[5].st, a.t[5].sd[0], n, a.t[5].wide);
    }
    copy_commit();
    {
        bf16 *p = (bf16 *)(stored + 0);
        copy_in<128, 136, SHARED3>(t3, p, 128, 1, 128, true);
    }
    copy_commit();
    if (a.t[7].p) {
        bf16 *p = (bf16 *)a.t[7].p + at_token(a.t[7], q, token, head);
        copy_out<1, 1>(t20, (bf16 *)p, a.t[7].st, 0, n, a.t[7].wide);
    }
    UNROLL_FOUR for (int f = TID / 64, e = TID % 64; f < n; f += THREADS / 64) {
        const int i = f;
        const int j = e;
        if (j >= n)
            continue;
        const float v88 = t12[i * 72 + j] * t13[i * 72 + j];
        t12[i * 72 + j] = v88;
    }
    __syncthreads();
    NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
        const int e = min(g, n - 1);
        const bool first = g == e && TID % 8 == 0;
        const int i = e;
        float x = 0;
        UNROLL_TWICE for (int f = 4 * (TID % 8); f < n; f += 4 * 8) {
            const int j = f;
            x += dot_four(t11 + i * 72 + j, t12 + i * 72 + j, n - f);
        }
        x = lane_sum<8>(x);
        if (first) {
            const float v90 = t10[i] * x;
            t39[i] = v90;
        }
    }
    copy_wait<2>();
    __syncthreads();
    product<BF16, 2, 2, 64, false, true, true, Paired>(64, 128, n,
        matrix<72, 1, SHARED37 ? 8 : 2>(t37 + 0),
        matrix<1, 136, SHARED9 ? 8 : 2>(t9 + 0),
        [&](int row, int col, Pair x) {
        const int i = row;
        const int d0 = col;
        const Pair v84 = t10[i] * x;
        const Pair v85 = pair_at<1, true>(t33 + i * 136 + d0) - v84;
        return [=] {
            put_pair<1, true>(t33 + i * 136 + d0, v85);
        };
    });
    copy_wait<1>();
    __syncthreads();
    two_products<2, 2>(64, 128,
        term<64, false>(matrix<1, 72, SHARED30 ? 8 : 2>(t30 + 0),
        matrix<1, 136, SHARED27 ? 8 : 2>(t27 + 0), n),
        term<64, false>(matrix<1, 72, SHARED38 ? 8 : 2>(t38 + 0),
        matrix<1, 136, SHARED9 ? 8 : 2>(t9 + 0), n),
        [&](int row, int col, Pair x, Pair z) {
        const int j = row;
        const int d0 = col;
        const Pair v87 = x - z;
        return [=] {
            put_pair<1, true>(t40 + j * 136 + d0, v87);
        };
    });
    __syncthreads();
    narrow<128, 136, 136>(t41, t7, n);
    copy_wait<0>();
    __syncthreads();
    product<BF16, 2, 2, 128, true, true, true, Paired>(64, 128, 128,
        matrix<136, 1, SHARED41 ? 8 : 2>(t41 + 0),
        matrix<1, 136, SHARED3 ? 8 : 2>(t3 + 0),
        [&](int row, int col, Pair x) {
        const int i = row;
        const int d0 = col;
        const Pair v106 = t15[i] * x;
        const Pair v107 = t10[i] * v106;
        const Pair v95 = pair_at<1, true>(t33 + i * 136 + d0) + pair_at<1, true>(t40 + i * 136 + d0);
        const Pair v108 = v95 - v107;
        return [=] {
            put_pair<1, true>(t33 + i * 136 + d0, v108);
        };
    });
    __syncthreads();
    {
        const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
        copy_in<128, 136, SHARED25>(t25, (const bf16 *)p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
    }
    copy_commit();
    if (a.t[8].p) {
        bf16 *p = (bf16 *)a.t[8].p + at_token(a.t[8], q, token, head);
        copy_out<128, 136>(t33, (bf16 *)p, a.t[8].st, a.t[8].sd[0], n, a.t[8].wide);
    }
    UNROLL_FOUR for (int f = TID / 64, e = TID % 64 * 2; f < n; f += THREADS / 64) {
        const int i = f;
        const int d1 = e;
        const Pair v113 = t10[i] * pair_at<1, true>(t7 + i * 136 + d1);
        put_pair<1, true>(t7 + i * 136 + d1, v113);
    }
    __syncthreads();
    if (a.t[9].p) {
        bf16 *p = (bf16 *)a.t[9].p + at_token(a.t[9], q, token, head);
        copy_out<128, 136>(t7, (bf16 *)p, a.t[9].st, a.t[9].sd[0], n, a.t[9].wide);
    }
    product<BF16, 2, 2, 128, true, true, true, Paired>(64, 128, 128,
        matrix<136, 1, SHARED27 ? 8 : 2>(t27 + 0),
        matrix<136, 1, SHARED3 ? 8 : 2>(t3 + 0),
        [&](int row, int col, Pair x) {
        const int i = row;
        const int d1 = col;
        return [=] {
            put_pair<1, true>(t43 + i * 136 + d1, x);
        };
    });
    NO_UNROLL for (int e = TID; e < n; e += THREADS) {
        const int i = e;
        const float v73 = i == n - 1 ? t5[0] : t42[(i + 1)];
        const float v74 = t24[i] + v73;
        const float v91 = v74 - t39[i];
        const float v97 = v91 + t31[i];
        t24[i] = v97;
    }
    copy_wait<0>();
    __syncthreads();
    NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
        const int e = min(g, n - 1);
        const bool first = g == e && TID % 8 == 0;
        const int i = e;
        float x = 0;
        for (int f = 4 * (TID % 8); f < 128; f += 4 * 8) {
            const int d1 = f;
            x += dot_four(t43 + i * 136 + d1, t25 + i * 136 + d1);
        }
        x = lane_sum<8>(x);
        if (first) {
            const float v100 = x - t19[i];
            const float v111 = t15[i] * v100;
            const float v112 = t24[i] + v111;
            t19[i] = v112;
        }
    }
    __syncthreads();
    NO_UNROLL for (int e = WARP; e < 1; e += WARPS) {
        const float s = 0;
        scan_lanes<Adding<float>>(n, s, [&](int at) {
            const int i = n - 1 - at;
            (void)i;
            return 0.f;
        }, [&](int at) {
            const int i = n - 1 - at;
            (void)i;
            return t19[i];
        },
            [&](int at, float found, float left) {
            const int i = n - 1 - at;
            t44[i] = left;
            (void)found;
        });
    }
    __syncthreads();
    NO_UNROLL for (int e = TID; e < n; e += THREADS) {
        const int i = e;
        const float v118 = t1[i] != 0 ? 0.f : t44[i];
        t1[i] = v118;
    }
    __syncthreads();
    if (a.t[10].p) {
        bf16 *p = (bf16 *)a.t[10].p + at_token(a.t[10], q, token, head);
        copy_out<1, 1>(t1, (bf16 *)p, a.t[10].st, 0, n, a.t[10].wide);
    }
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) k3_token(const __grid_constant__ Args3 a)
{
    char *const spill = global(a.run.spill) + blockIdx.x * 71680ll;
    float *const scratch = (float *)arena;
    (void)scratch;
    float *const t34 = (float *)(arena + 1152);
    enum { SHARED34 = 1 };
    float *const t42 = (float *)(arena + 896);
    enum { SHARED42 = 1 };
    if (a.run.ragged) {
        clear(spill_of(a.run, 71680ll), 71680);
        __syncthreads();
    }
    static_assert(sizeof a <= 688, "room for the copy");
    copy_args(arena + 208, a);
    __syncthreads();
    NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += blocks_here()) {
        const int block = (int)(item % 1);
        const i64 part = divided(item / 1, a.run.heads);
        const int head = (int)(item / 1 - part * a.run.heads);
        const i64 s = find_sequence(a.run, part, 64);
        const Sequence q = sequence(a.run, s);
        const i64 slot = first_slot(a.run, s, 64);
        (void)block;
        (void)slot;
        const i64 at = part - slot;
        if (at < 0 || at * 64 >= q.len)
            continue;
        place(*(Placed3 *)(arena + 208), a, q.b, head);
        volatile Item *const known = (Item *)(arena + 128);
        if (TID == 0) {
            known->item = item;
            known->s = s;
            known->slot = slot;
            known->start = q.start;
            known->len = q.len;
            known->m = 0;
            known->last = at;
            known->b = q.b;
            known->head = head;
            known->block = block;
        }
        __syncthreads();
        {
            const SequenceAnew q = { { &known->b }, { &known->start }, { &known->len } };
            const Anew<i64> slot = { &known->slot };
            const Anew<int> head = { &known->head };
            (void)q;
            (void)slot;
            (void)head;
            const Anew<i64> s = { &known->s }, at = { &known->last };
            (void)s;
            (void)at;
            {
                const int n = 64;
                (void)n;
                UNROLL_FOUR for (int f = TID / 64, e = TID % 64; f < n; f += THREADS / 64) {
                    const int i = f;
                    const int j = e;
                    if (j >= n)
                        continue;
                    const float v76 = i > j ? 1.f : 0.f;
                    t34[i * 72 + j] = v76;
                }
                NO_UNROLL for (int e = WARP; e < 1; e += WARPS) {
                    const float s = 0;
                    scan_lanes<Adding<float>>(n, s, [&](int at) {
                        const int i = at;
                        (void)i;
                        return 0.f;
                    }, [&](int at) {
                        const int i = at;
                        (void)i;
                        return 0.f;
                    },
                        [&](int at, float found, float left) {
                        const int i = at;
                        t42[i] = left;
                        (void)found;
                    });
                }
            }
            copy_wait<0>();
            __syncthreads();
            {
                k3_token_part0();
                k3_token_part1();
                __syncthreads();
            }
            {
            }
        }
        item = known->item;
        __syncthreads();
    }
}
