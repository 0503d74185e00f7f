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
    alignas(1024) extern __shared__ unsigned char raw[];
    const u32 base = shared_address(raw);
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 208928 + 8 * i, 32);
            barrier_init(base + 208944 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 208960 + 8 * i, 256);
            barrier_init(base + 208976 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 208992 + 8 * i, 1);
            barrier_init(base + 209008 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 209024 + 8 * i, 1);
            barrier_init(base + 209040 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 209056 + 8 * i, 256);
            barrier_init(base + 209072 + 8 * i, 32);
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
                const int head0 = x.head / a.tensor[0].group;
                const int head1 = x.head / a.tensor[1].group;
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, m, x);
                    wait(base + 209008 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        const u32 full = base + 208992 + it % 2 * 8, to = base + 65536 + it % 2 * 16384;
                        arrive_expecting(full, 16384);
                        load_tile(to + 0, &a.map[0], full, 0, x.row, head0, x.where.b);
                        load_tile(to + 8192, &a.map[0], full, 64, x.row, head0, x.where.b);
                    }
                    wait(base + 209040 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        const u32 full = base + 209024 + it % 2 * 8, to = base + 98304 + it % 2 * 16384;
                        arrive_expecting(full, 16384);
                        load_tile(to + 0, &a.map[1], full, 0, x.row, head1, x.where.b);
                        load_tile(to + 8192, &a.map[1], full, 64, x.row, head1, x.where.b);
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
                    wait(base + 208960 + it % 2 * 8, parity(it, 2));
                    if (lane == 0) {
                        const u32 from = base + 0 + it % 2 * 32768;
                        store_tile(&a.map[2], from + 0, 0, 0, 0, (int)x.at);
                        store_tile(&a.map[2], from + 8192, 0, 64, 0, (int)x.at);
                        store_tile(&a.map[2], from + 16384, 64, 0, 0, (int)x.at);
                        store_tile(&a.map[2], from + 24576, 64, 64, 0, (int)x.at);
                    }
                    bulk_commit();
                    bulk_wait_read();
                    arrive(base + 208976 + it % 2 * 8);
                    wait(base + 209056 + it % 2 * 8, parity(it, 2));
                    if (lane == 0) {
                        const u32 from = base + 131072 + it % 2 * 16384;
                        store_tile(&a.map[3], from + 0, 0, 0, 0, (int)x.at);
                        store_tile(&a.map[3], from + 8192, 64, 0, 0, (int)x.at);
                    }
                    bulk_commit();
                    bulk_wait_read();
                    arrive(base + 209072 + it % 2 * 8);
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
                    wait(base + 208944 + it % 2 * 8, parity(it, 2) ^ 1);
                    store_pair(base + 206848 + it % 2 * 1040, v4, lane);
                    store_pair(base + 207104 + it % 2 * 1040, v11, lane);
                    store_pair(base + 207360 + it % 2 * 1040, v13, lane);
                    store_pair(base + 207616 + it % 2 * 1040, v28, lane);
                    if (lane == 0)
                        store1(base + 207872 + it % 2 * 1040, v29);
                    arrive(base + 208928 + it % 2 * 8);
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
            begin_state<float, 128, 64>(f7, a.tensor[4], x, 0, 0 + col0(64), l);
            NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                find_chunk(a.run, m, x);
                {
                    wait(base + 208976 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        u32 p[16];
                        pack_rows(p, f7 + 0, l, 64);
                        write_columns<4>(base + 0 + it % 2 * 32768 + 0, p, 128, col0(64), l);
                    }
                    {
                        u32 p[16];
                        pack_rows(p, f7 + 32, l, 64);
                        write_columns<4>(base + 0 + it % 2 * 32768 + 8192, p, 128, col0(64), l);
                    }
                }
                fence_async();
                arrive(base + 208960 + it % 2 * 8);
                wait(base + 208992 + it % 2 * 8, parity(it, 2));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 65536 + it % 2 * 16384, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                wait(base + 209024 + it % 2 * 8, parity(it, 2));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 98304 + it % 2 * 16384, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                matrix_sync<2>();
                wgmma_fence();
                multiply_tiles<0, 0, 8, 0, 0>(f14, base + 65536 + it % 2 * 16384, 64, 0, base + 0 + it % 2 * 32768, 128, col0(64) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                keep(f14);
                wait(base + 208928 + it % 2 * 8, parity(it, 2));
                {
                    float r4[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r4[h] = parts_sum<1>(base + 206848 + it % 2 * 1040, 64, l.row + 8 * h);
                    float r13[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r13[h] = parts_sum<1>(base + 207360 + it % 2 * 1040, 64, l.row + 8 * h);
                    u32 t3[16];
                    read_columns<4>(t3 + 0, base + 98304 + it % 2 * 16384 + 0, 64, col0(64), l);
                    float f17[32];
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x15 = r4[h] * f14[e];
                        const float x16 = r13[h] * x15;
                        const float x12 = (e & 1 ? high(t3[e / 2]) : low(t3[e / 2])) * r4[h];
                        const float x17 = x12 - x16;
                        f17[e] = x17;
                    }
                    {
                        u32 p[16];
                        pack_rows(p, f17 + 0, l, x.n);
                        write_columns<4>(base + 163840 + 0, p, 64, col0(64), l);
                    }
                }
                fence_async();
                arrive(base + 209040 + it % 2 * 8);
                wgmma_fence();
                multiply_tiles<0, 0, 8, 0, 0>(f21, base + 65536 + it % 2 * 16384, 64, 0, base + 65536 + it % 2 * 16384, 64, col0(32) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                keep(f21);
                {
                    float r11[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r11[h] = LOG2E * parts_sum<1>(base + 207104 + it % 2 * 1040, 64, l.row + 8 * h);
                    float c11[8];
                    UNROLL for (int e = 0; e < 8; e++)
                        c11[e] = LOG2E * parts_sum<1>(base + 207104 + it % 2 * 1040, 64, col0(32) + e / 2 * 8 + l.col + e % 2);
                    float r4[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r4[h] = parts_sum<1>(base + 206848 + it % 2 * 1040, 64, l.row + 8 * h);
                    float f24[16];
                    const int over = l.row - l.col;
                    UNROLL for (int e = 0; e < 16; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                        const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const int past = col0(32) + e % 16 / 4 * 8 + e % 2 - 8 * h - e / 16 * 64;
                        const float x20 = kept_(over > past, exp2_(r11[h] - c11[e / 4 * 2 + e % 2]));
                        const float x22 = r4[h] * f21[e];
                        const float x23 = x20 * x22;
                        const float x24 = -x23;
                        f24[e] = x24;
                    }
                    write_wide(base + 180224, f24, col0(32), l);
                }
                fence_async();
                matrix_sync<2>();
                if (group == 0) {
                    invert_few(base + 198656, base + 180224, l.lane, l.warp);
                } else {
                    beside_invert_own();
                }
                fence_async();
                matrix_sync<2>();
                wgmma_fence();
                multiply_tiles<0, 1, 4, 0, 0>(f25, base + 198656, 64, 0, base + 163840, 64, col0(64) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                keep(f25);
                matrix_sync<2>();
                {
                    wait(base + 209072 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        u32 p[16];
                        pack_rows(p, f25 + 0, l, x.n);
                        write_columns<4>(base + 131072 + it % 2 * 16384 + 0, p, 64, col0(64), l);
                    }
                    float r28[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r28[h] = parts_sum<1>(base + 207616 + it % 2 * 1040, 64, l.row + 8 * h);
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
                        pack_rows(p, f31 + 0, l, x.n);
                        write_columns<4>(base + 163840 + 0, p, 64, col0(64), l);
                    }
                }
                fence_async();
                arrive(base + 209056 + it % 2 * 8);
                {
                    const float s29 = parts_sum<1>(base + 207872 + it % 2 * 1040, 1, 0);
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
                arrive(base + 208944 + it % 2 * 8);
                matrix_sync<2>();
                keep(f7);
                wgmma_fence();
                multiply_tiles<1, 1, 4, 1, 0>(registers<32>(f7, 0), base + 163840, 64, 0, base + 65536 + it % 2 * 16384, 64, col0(64) + 0);
                multiply_tiles<1, 1, 4, 1, 0>(registers<32>(f7, 32), base + 163840, 64, 64, base + 65536 + it % 2 * 16384, 64, col0(64) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                arrive(base + 209008 + it % 2 * 8);
                keep(f7);
            }
            end_state<float, 128, 64>(f7, a.tensor[5], x, 0, 0 + col0(64), l);
        }
    }
}
}  // in_k0_forward

// forward (token), 196864 bytes a chunk and head predicted: %1 %2 %5 %9
// %10 %11 %13 %18 %19 %34 %35 %36 %37 %38 %39 %40 %41
namespace in_k1_token {
struct Args { TensorMap map[5]; Tensor tensor[4]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 2) k1_token(const __grid_constant__ Args a)
{
    alignas(1024) extern __shared__ unsigned char raw[];
    const u32 base = shared_address(raw);
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 107520 + 8 * i, 32);
            barrier_init(base + 107536 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 107552 + 8 * i, 1);
            barrier_init(base + 107568 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 107584 + 8 * i, 1);
            barrier_init(base + 107600 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 107616 + 8 * i, 1);
            barrier_init(base + 107624 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 107632 + 8 * i, 1);
            barrier_init(base + 107640 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 107648 + 8 * i, 256);
            barrier_init(base + 107656 + 8 * i, 32);
        }
        barrier_init_fence();
    }
    __syncthreads();
    const int warp = uniform(threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (warp < 4) {
        fewer_registers<48>();
        u32 it = 0;
        NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
            Item x;
            if (!find_item<2>(a.run, item, x))
                continue;
            if (warp == 0 && lane == 0) {
                wait(base + 107600 + it % 2 * 8, parity(it, 2) ^ 1);
                {
                    const u32 full = base + 107584 + it % 2 * 8, to = base + 32768 + it % 2 * 16384;
                    arrive_expecting(full, 16384);
                    const int head = x.head / a.tensor[0].group;
                    load_tile(to + 0, &a.map[0], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[0], full, 64, x.row, head, x.where.b);
                }
                wait(base + 107568 + it % 2 * 8, parity(it, 2) ^ 1);
                {
                    const u32 full = base + 107552 + it % 2 * 8, to = base + 0 + it % 2 * 16384;
                    arrive_expecting(full, 16384);
                    const int head = x.head / a.tensor[1].group;
                    load_tile(to + 0, &a.map[1], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[1], full, 64, x.row, head, x.where.b);
                }
                wait(base + 107624, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 107616, to = base + 65536;
                    arrive_expecting(full, 16384);
                    load_tile(to + 0, &a.map[2], full, 0, x.slice * 64 + 0, 0, (int)x.at);
                    load_tile(to + 8192, &a.map[2], full, 64, x.slice * 64 + 0, 0, (int)x.at);
                }
                wait(base + 107640, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 107632, to = base + 81920;
                    arrive_expecting(full, 8192);
                    load_tile(to + 0, &a.map[3], full, x.slice * 64 + 0, 0, 0, (int)x.at);
                }
            }
            if (warp == 1) {
                wait(base + 107648, parity(it, 1));
                if (a.tensor[2].p) {
                    const u32 from = base + 90112;
                    const int c = (x.row - x.where.start) / 64;
                    NO_UNROLL for (int i = 0; i < 1; i++)
                        store_chunk(a.map[4], a.tensor[2], from + 8192 * i, x.where, c, x.slice * 64 + 0 + 64 * i, 128, x.head, lane);
                    bulk_commit();
                    bulk_wait_read();
                }
                arrive(base + 107656);
            }
            if (warp == 2) {
                const Pair v5 = input_pair<float>(a.tensor[3], x, lane);
                const Pair v10 = { (float)(max_(v5.a, bits(0xc2d00000))), (float)(max_(v5.b, bits(0xc2d00000))) };
                Pair v11 = running_sum(v10, lane, x.n);
                const Pair v13 = { (float)(exp_(v11.a)), (float)(exp_(v11.b)) };
                wait(base + 107536 + it % 2 * 8, parity(it, 2) ^ 1);
                store_pair(base + 106496 + it % 2 * 512, v11, lane);
                store_pair(base + 106752 + it % 2 * 512, v13, lane);
                arrive(base + 107520 + it % 2 * 8);
            }
            it++;
        }
        if (warp == 1)
            bulk_wait();
    }
    else {
        more_registers<96>();
        const Lane l = lane_here();
        const int thread = (int)threadIdx.x - 128, group = uniform(thread >> 7);
        auto col0 = [&](int share) { return group * share; };
        u32 it = 0;
        NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
            Item x;
            if (!find_item<2>(a.run, item, x))
                continue;
            float f37[16];
            float f34[16];
            float f40[16];
            wait(base + 107552 + it % 2 * 8, parity(it, 2));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 0 + it % 2 * 16384, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wait(base + 107584 + it % 2 * 8, parity(it, 2));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 32768 + it % 2 * 16384, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wgmma_fence();
            multiply_tiles<0, 0, 8, 0, 0>(f37, base + 0 + it % 2 * 16384, 64, 0, base + 32768 + it % 2 * 16384, 64, col0(32) + 0);
            wgmma_commit();
            wgmma_wait<0>();
            keep(f37);
            arrive(base + 107600 + it % 2 * 8);
            matrix_sync<2>();
            wait(base + 107520 + it % 2 * 8, parity(it, 2));
            {
                float r11[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r11[h] = LOG2E * parts_sum<1>(base + 106496 + it % 2 * 512, 64, l.row + 8 * h);
                float c11[8];
                UNROLL for (int e = 0; e < 8; e++)
                    c11[e] = LOG2E * parts_sum<1>(base + 106496 + it % 2 * 512, 64, col0(32) + e / 2 * 8 + l.col + e % 2);
                float f38[16];
                const int over = l.row - l.col;
                UNROLL for (int e = 0; e < 16; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                    const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const int past = col0(32) + e % 16 / 4 * 8 + e % 2 - 8 * h - e / 16 * 64;
                    const float x36 = kept_(over >= past, exp2_(r11[h] - c11[e / 4 * 2 + e % 2]));
                    const float x38 = x36 * f37[e];
                    f38[e] = x38;
                }
                {
                    u32 p[8];
                    pack_rows(p, f38 + 0, l, x.n);
                    write_columns<2>(base + 98304 + 0, p, 64, col0(32), l);
                }
            }
            wait(base + 107616, parity(it, 1));
            wgmma_fence();
            multiply_tiles<0, 0, 8, 0, 0>(f34, base + 0 + it % 2 * 16384, 64, 0, base + 65536, 64, col0(32) + 0);
            wgmma_commit();
            wait(base + 107632, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 81920, 1, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            fence_async();
            matrix_sync<2>();
            wgmma_fence();
            multiply_tiles<0, 1, 4, 0, 0>(f40, base + 98304, 64, 0, base + 81920, 64, col0(32) + 0);
            wgmma_commit();
            wgmma_wait<0>();
            keep(f34);
            keep(f40);
            arrive(base + 107568 + it % 2 * 8);
            arrive(base + 107624);
            arrive(base + 107640);
            {
                wait(base + 107656, parity(it, 1) ^ 1);
                float r13[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r13[h] = parts_sum<1>(base + 106752 + it % 2 * 512, 64, l.row + 8 * h);
                float f41[16];
                UNROLL for (int e = 0; e < 16; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                    const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x35 = r13[h] * f34[e];
                    const float x41 = x35 + f40[e];
                    f41[e] = x41;
                }
                {
                    u32 p[8];
                    pack_rows(p, f41 + 0, l, x.n);
                    write_columns<2>(base + 90112 + 0, p, 64, col0(32), l);
                }
            }
            fence_async();
            arrive(base + 107648);
            arrive(base + 107536 + it % 2 * 8);
            it++;
        }
    }
}
}  // in_k1_token

// backward (token), 98816 bytes a chunk and head predicted: %1 %2 %4 %5
// %9 %10 %11 %18 %19 %20 %21 %22 %23 %24 %36 %37 %38
namespace in_k2_token {
struct Args { TensorMap map[4]; Tensor tensor[4]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 2) k2_token(const __grid_constant__ Args a)
{
    alignas(1024) extern __shared__ unsigned char raw[];
    const u32 base = shared_address(raw);
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 101376 + 8 * i, 32);
            barrier_init(base + 101392 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 101408 + 8 * i, 1);
            barrier_init(base + 101424 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 101440 + 8 * i, 256);
            barrier_init(base + 101456 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 101472 + 8 * i, 1);
            barrier_init(base + 101488 + 8 * i, 256);
        }
        barrier_init_fence();
    }
    __syncthreads();
    const int warp = uniform(threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (warp < 4) {
        fewer_registers<48>();
        u32 it = 0;
        NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
            Item x;
            if (!find_item<1>(a.run, item, x))
                continue;
            if (warp == 0 && lane == 0) {
                wait(base + 101424 + it % 2 * 8, parity(it, 2) ^ 1);
                {
                    const u32 full = base + 101408 + it % 2 * 8, to = base + 0 + it % 2 * 16384;
                    arrive_expecting(full, 16384);
                    const int head = x.head / a.tensor[0].group;
                    load_tile(to + 0, &a.map[0], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[0], full, 64, x.row, head, x.where.b);
                }
                wait(base + 101488 + it % 2 * 8, parity(it, 2) ^ 1);
                {
                    const u32 full = base + 101472 + it % 2 * 8, to = base + 49152 + it % 2 * 16384;
                    arrive_expecting(full, 16384);
                    const int head = x.head / a.tensor[1].group;
                    load_tile(to + 0, &a.map[1], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[1], full, 64, x.row, head, x.where.b);
                }
            }
            if (warp == 1) {
                wait(base + 101440 + (it * 2 + 0) % 2 * 8, parity((it * 2 + 0), 2));
                if (lane == 0) {
                    const u32 from = base + 32768 + (it * 2 + 0) % 2 * 8192;
                    store_tile(&a.map[2], from + 0, 0, 0, 0, (int)x.at);
                }
                bulk_commit();
                bulk_wait_read();
                arrive(base + 101456 + (it * 2 + 0) % 2 * 8);
                wait(base + 101440 + (it * 2 + 1) % 2 * 8, parity((it * 2 + 1), 2));
                if (lane == 0) {
                    const u32 from = base + 32768 + (it * 2 + 1) % 2 * 8192;
                    store_tile(&a.map[3], from + 0, 0, 0, 0, (int)x.at);
                }
                bulk_commit();
                bulk_wait_read();
                arrive(base + 101456 + (it * 2 + 1) % 2 * 8);
            }
            if (warp == 2) {
                const Pair v4 = input_pair<float>(a.tensor[2], x, lane);
                const Pair v5 = input_pair<float>(a.tensor[3], x, lane);
                const Pair v10 = { (float)(max_(v5.a, bits(0xc2d00000))), (float)(max_(v5.b, bits(0xc2d00000))) };
                Pair v11 = running_sum(v10, lane, x.n);
                wait(base + 101392 + it % 2 * 8, parity(it, 2) ^ 1);
                store_pair(base + 100352 + it % 2 * 512, v4, lane);
                store_pair(base + 100608 + it % 2 * 512, v11, lane);
                arrive(base + 101376 + it % 2 * 8);
            }
            it++;
        }
        if (warp == 1)
            bulk_wait();
    }
    else {
        more_registers<96>();
        const Lane l = lane_here();
        const int thread = (int)threadIdx.x - 128, group = uniform(thread >> 7);
        auto col0 = [&](int share) { return group * share; };
        u32 it = 0;
        NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
            Item x;
            if (!find_item<1>(a.run, item, x))
                continue;
            float f21[16];
            float f37[16];
            wait(base + 101408 + it % 2 * 8, parity(it, 2));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 0 + it % 2 * 16384, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wgmma_fence();
            multiply_tiles<0, 0, 8, 0, 0>(f21, base + 0 + it % 2 * 16384, 64, 0, base + 0 + it % 2 * 16384, 64, col0(32) + 0);
            wgmma_commit();
            wgmma_wait<0>();
            keep(f21);
            matrix_sync<2>();
            wait(base + 101376 + it % 2 * 8, parity(it, 2));
            {
                float r11[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r11[h] = LOG2E * parts_sum<1>(base + 100608 + it % 2 * 512, 64, l.row + 8 * h);
                float c11[8];
                UNROLL for (int e = 0; e < 8; e++)
                    c11[e] = LOG2E * parts_sum<1>(base + 100608 + it % 2 * 512, 64, col0(32) + e / 2 * 8 + l.col + e % 2);
                float r4[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r4[h] = parts_sum<1>(base + 100352 + it % 2 * 512, 64, l.row + 8 * h);
                float f24[16];
                const int over = l.row - l.col;
                UNROLL for (int e = 0; e < 16; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                    const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const int past = col0(32) + e % 16 / 4 * 8 + e % 2 - 8 * h - e / 16 * 64;
                    const float x20 = kept_(over > past, exp2_(r11[h] - c11[e / 4 * 2 + e % 2]));
                    const float x22 = r4[h] * f21[e];
                    const float x23 = x20 * x22;
                    const float x24 = -x23;
                    f24[e] = x24;
                }
                write_wide(base + 81920, f24, col0(32), l);
            }
            matrix_sync<2>();
            wait(base + 101456 + (it * 2 + 0) % 2 * 8, parity((it * 2 + 0), 2) ^ 1);
            if (group == 0) {
                invert_few(base + 32768 + (it * 2 + 0) % 2 * 8192, base + 81920, l.lane, l.warp);
            } else {
                beside_invert_own();
            }
            fence_async();
            arrive(base + 101440 + (it * 2 + 0) % 2 * 8);
            wait(base + 101472 + it % 2 * 8, parity(it, 2));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 49152 + it % 2 * 16384, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wgmma_fence();
            multiply_tiles<0, 0, 8, 0, 0>(f37, base + 49152 + it % 2 * 16384, 64, 0, base + 0 + it % 2 * 16384, 64, col0(32) + 0);
            wgmma_commit();
            wgmma_wait<0>();
            keep(f37);
            arrive(base + 101424 + it % 2 * 8);
            arrive(base + 101488 + it % 2 * 8);
            {
                float r11[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r11[h] = LOG2E * parts_sum<1>(base + 100608 + it % 2 * 512, 64, l.row + 8 * h);
                float c11[8];
                UNROLL for (int e = 0; e < 8; e++)
                    c11[e] = LOG2E * parts_sum<1>(base + 100608 + it % 2 * 512, 64, col0(32) + e / 2 * 8 + l.col + e % 2);
                float f38[16];
                const int over = l.row - l.col;
                UNROLL for (int e = 0; e < 16; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                    const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const int past = col0(32) + e % 16 / 4 * 8 + e % 2 - 8 * h - e / 16 * 64;
                    const float x36 = kept_(over >= past, exp2_(r11[h] - c11[e / 4 * 2 + e % 2]));
                    const float x38 = x36 * f37[e];
                    f38[e] = x38;
                }
                wait(base + 101456 + (it * 2 + 1) % 2 * 8, parity((it * 2 + 1), 2) ^ 1);
                {
                    u32 p[8];
                    pack_rows(p, f38 + 0, l, x.n);
                    write_columns<2>(base + 32768 + (it * 2 + 1) % 2 * 8192 + 0, p, 64, col0(32), l);
                }
                fence_async();
                arrive(base + 101440 + (it * 2 + 1) % 2 * 8);
            }
            arrive(base + 101392 + it % 2 * 8);
            it++;
        }
    }
}
}  // in_k2_token

// backward (reverse), 229888 bytes a chunk and head predicted: %1 %2 %4
// %5 %6 %8 %9 %10 %11 %13 %26 %27 %28 %29 %45 %46 %53 %56 %59 %60 %61
// %63 %64 %73 %97 %100 %104 %105
namespace in_k3_reverse {
struct Args { TensorMap map[7]; Tensor tensor[7]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 1) k3_reverse(const __grid_constant__ Args a)
{
    alignas(1024) extern __shared__ unsigned char raw[];
    const u32 base = shared_address(raw);
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 3; i++) {
            barrier_init(base + 231728 + 8 * i, 32);
            barrier_init(base + 231752 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 231776 + 8 * i, 256);
            barrier_init(base + 231792 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 231808 + 8 * i, 1);
            barrier_init(base + 231824 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 231840 + 8 * i, 256);
            barrier_init(base + 231856 + 8 * i, 32);
        }
        barrier_init_fence();
    }
    __syncthreads();
    const int warp = uniform(threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (warp < 4) {
        fewer_registers<40>();
        if (warp == 0 && lane == 0) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<1>(a.run, item, x);
                const int head0 = x.head / a.tensor[0].group;
                const int head1 = x.head / a.tensor[1].group;
                const int head2 = x.head / a.tensor[2].group;
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, chunks - 1 - m, x);
                    wait(base + 231824 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        const u32 full = base + 231808 + it % 2 * 8, to = base + 65536 + it % 2 * 65536;
                        arrive_expecting(full, 65536);
                        load_tile(to + 0, &a.map[0], full, 0, 0, 0, (int)x.at);
                    }
                    {
                        const u32 full = base + 231808 + it % 2 * 8, to = base + 73728 + it % 2 * 65536;
                        load_tile(to + 0, &a.map[1], full, 0, x.row, head0, x.where.b);
                        load_tile(to + 8192, &a.map[1], full, 64, x.row, head0, x.where.b);
                    }
                    {
                        const u32 full = base + 231808 + it % 2 * 8, to = base + 90112 + it % 2 * 65536;
                        load_tile(to + 0, &a.map[2], full, 0, x.row, head1, x.where.b);
                        load_tile(to + 8192, &a.map[2], full, 64, x.row, head1, x.where.b);
                    }
                    {
                        const u32 full = base + 231808 + it % 2 * 8, to = base + 106496 + it % 2 * 65536;
                        load_tile(to + 0, &a.map[3], full, 0, 0, 0, (int)x.at);
                    }
                    {
                        const u32 full = base + 231808 + it % 2 * 8, to = base + 114688 + it % 2 * 65536;
                        load_tile(to + 0, &a.map[4], full, 0, x.row, head2, x.where.b);
                        load_tile(to + 8192, &a.map[4], full, 64, x.row, head2, x.where.b);
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
                    wait(base + 231776 + it % 2 * 8, parity(it, 2));
                    if (lane == 0) {
                        const u32 from = base + 0 + it % 2 * 32768;
                        store_tile(&a.map[5], from + 0, 0, 0, 0, (int)x.at);
                        store_tile(&a.map[5], from + 8192, 0, 64, 0, (int)x.at);
                        store_tile(&a.map[5], from + 16384, 64, 0, 0, (int)x.at);
                        store_tile(&a.map[5], from + 24576, 64, 64, 0, (int)x.at);
                    }
                    bulk_commit();
                    bulk_wait_read();
                    arrive(base + 231792 + it % 2 * 8);
                    wait(base + 231840 + it % 2 * 8, parity(it, 2));
                    if (lane == 0) {
                        const u32 from = base + 196608 + it % 2 * 16384;
                        store_tile(&a.map[6], from + 0, 0, 0, 0, (int)x.at);
                        store_tile(&a.map[6], from + 8192, 64, 0, 0, (int)x.at);
                    }
                    bulk_commit();
                    bulk_wait_read();
                    arrive(base + 231856 + it % 2 * 8);
                }
            }
        }
        if (warp == 2) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<1>(a.run, item, x);
                find_chunk(a.run, max(chunks - 1 - (0), 0), x);
                Pair n4 = input_pair<float>(a.tensor[3], x, lane);
                Pair n5 = input_pair<float>(a.tensor[4], x, lane);
                NO_UNROLL for (int m = 1; m < 4; m++) {
                    find_chunk(a.run, max(chunks - 1 - (0 + m), 0), x);
                    ask_pair<float>(a.tensor[3], x, lane);
                    ask_pair<float>(a.tensor[4], x, lane);
                }
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, chunks - 1 - m, x);
                    Item next = x;
                    find_chunk(a.run, max(chunks - 1 - (m + 1), 0), next);
                    Item later = x;
                    find_chunk(a.run, max(chunks - 1 - (m + 4), 0), later);
                    const Pair v4 = n4;
                    n4 = input_pair<float>(a.tensor[3], next, lane);
                    ask_pair<float>(a.tensor[3], later, lane);
                    const Pair v5 = n5;
                    n5 = input_pair<float>(a.tensor[4], next, lane);
                    ask_pair<float>(a.tensor[4], later, lane);
                    const Pair v10 = { (float)(max_(v5.a, bits(0xc2d00000))), (float)(max_(v5.b, bits(0xc2d00000))) };
                    Pair v11 = running_sum(v10, lane, x.n);
                    const Pair v13 = { (float)(exp_(v11.a)), (float)(exp_(v11.b)) };
                    const float v26 = last_row(v11, x.n);
                    const Pair v27 = { (float)(v26 - v11.a), (float)(v26 - v11.b) };
                    const Pair v28 = { (float)(exp_(v27.a)), (float)(exp_(v27.b)) };
                    const float v29 = (float)(exp_(v26));
                    wait(base + 231752 + it % 3 * 8, parity(it, 3) ^ 1);
                    store_pair(base + 229376 + it % 3 * 784, v4, lane);
                    store_pair(base + 229632 + it % 3 * 784, v13, lane);
                    store_pair(base + 229888 + it % 3 * 784, v28, lane);
                    if (lane == 0)
                        store1(base + 230144 + it % 3 * 784, v29);
                    arrive(base + 231728 + it % 3 * 8);
                }
            }
        }
        if (warp == 1)
            bulk_wait();
    }
    else {
        more_registers<232>();
        const Lane l = lane_here();
        const int thread = (int)threadIdx.x - 128, group = uniform(thread >> 7);
        const int row0 = 64 * group;
        auto col0 = [&](int share) { return 0; };
        u32 it = 0;
        NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
            Item x;
            const int chunks = find_walk<1>(a.run, item, x);
            float f8[64];
            begin_state<float, 64, 128>(f8, a.tensor[5], x, row0 + 0, 0 + col0(128), l);
            NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                find_chunk(a.run, chunks - 1 - m, x);
                const u32 slot0 = base + 229376 + it % 3 * 784;
                (void)slot0;
                const u32 slot1 = base + 0 + it % 2 * 32768;
                (void)slot1;
                const u32 slot2 = base + 65536 + it % 2 * 65536;
                (void)slot2;
                const u32 slot3 = base + 196608 + it % 2 * 16384;
                (void)slot3;
                u32 p8[32];
                u32 p6[16];
                float f45[32];
                float f59[32];
                u32 p61[16];
                u32 p53[16];
                float f73[32];
                u32 p100[16];
                {
                    pack_all(p8, f8);
                    keep(p8);
                }
                {
                    wait(base + 231792 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        u32 p[16];
                        pack_all(p, f8 + 0);
                        write_fragment(slot1 + 0 + row0 * 128, p, l);
                    }
                    {
                        u32 p[16];
                        pack_all(p, f8 + 32);
                        write_fragment(slot1 + 0 + row0 * 128 + 16384, p, l);
                    }
                }
                fence_async();
                arrive(base + 231776 + it % 2 * 8);
                wait(base + 231808 + it % 2 * 8, parity(it, 2));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(slot2 + 40960, 1, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                wait(base + 231728 + it % 3 * 8, parity(it, 3));
                {
                    const float s29 = parts_sum<1>(slot0 + 768, 1, 0);
                    UNROLL for (int e = 0; e < 64; e++) {
                        const int h = e / 2 % 2, row = row0 + l.row + 8 * h + e / 64 * 64;
                        const int col = col0(128) + e % 64 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x63 = f8[e] * s29;
                        f8[e] = x63;
                    }
                    keep(f8);
                }
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(slot2 + 8192, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                read_transposed(p6, slot2 + 8192 + row0 * 128, l);
                keep(p6);
                {
                    float2 d13 = { 0.f, 0.f };
                    float w53 = 0.f;
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = row0 + l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        if (e % 4 == 0)
                            d13 = load2(slot0 + 256 + 4 * (col0(64) + e % 32 / 4 * 8 + l.col));
                        const float x53 = (e & 1 ? high(p6[e / 2]) : low(p6[e / 2])) * (e & 1 ? d13.y : d13.x);
                        if (e & 1)
                            p53[e / 2] = pack(w53, x53);
                        else
                        w53 = x53;
                    }
                    if (x.n < 64)
                        clear_columns(p53, x.n, l);
                    keep(p53);
                }
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(slot2 + 0, 1, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                wgmma_fence();
                multiply_packed<1, 4, 0, 0>(f45, p6, slot2 + 0, 64, 0);
                wgmma_commit();
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(slot2 + 24576, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                wgmma_fence();
                multiply_packed<0, 8, 0, 0>(f59, p8, slot2 + 24576, 64, 0);
                wgmma_commit();
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(slot2 + 49152, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                keep(f8);
                wgmma_fence();
                multiply_packed<1, 4, 1, 0>(f8, p53, slot2 + 49152, 64, 0);
                wgmma_commit();
                wgmma_wait<1>();
                keep(p6);
                keep(f45);
                keep(p8);
                keep(f59);
                {
                    float2 d28 = { 0.f, 0.f };
                    float w61 = 0.f;
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = row0 + l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        if (e % 4 == 0)
                            d28 = load2(slot0 + 512 + 4 * (col0(64) + e % 32 / 4 * 8 + l.col));
                        const float x60 = (e & 1 ? d28.y : d28.x) * f59[e];
                        const float x61 = f45[e] + x60;
                        if (e & 1)
                            p61[e / 2] = pack(w61, x61);
                        else
                        w61 = x61;
                    }
                    if (x.n < 64)
                        clear_columns(p61, x.n, l);
                    keep(p61);
                }
                wgmma_fence();
                multiply_packed<1, 4, 0, 0>(f73, p61, slot2 + 40960, 64, 0);
                wgmma_commit();
                wgmma_wait<0>();
                keep(p61);
                keep(f73);
                keep(p53);
                keep(f8);
                {
                    float2 d13 = { 0.f, 0.f };
                    float2 d4 = { 0.f, 0.f };
                    float w100 = 0.f;
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = row0 + l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        if (e % 4 == 0)
                            d13 = load2(slot0 + 256 + 4 * (col0(64) + e % 32 / 4 * 8 + l.col));
                        if (e % 4 == 0)
                            d4 = load2(slot0 + 0 + 4 * (col0(64) + e % 32 / 4 * 8 + l.col));
                        const float x97 = (e & 1 ? d13.y : d13.x) * f73[e];
                        const float x100 = (e & 1 ? d4.y : d4.x) * x97;
                        if (e & 1)
                            p100[e / 2] = pack(w100, x100);
                        else
                        w100 = x100;
                    }
                    if (x.n < 64)
                        clear_columns(p100, x.n, l);
                    keep(p100);
                }
                arrive(base + 231752 + it % 3 * 8);
                keep(f8);
                wgmma_fence();
                multiply_packed<1, 4, 1, 1>(f8, p100, slot2 + 24576, 64, 0);
                wgmma_commit();
                {
                    wait(base + 231856 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        u32 p[16];
                        pack_all(p, f73);
                        if (x.n < 64)
                            clear_columns(p, x.n, l);
                        write_transposed(slot3 + 0 + row0 * 128, p, l);
                    }
                }
                fence_async();
                arrive(base + 231840 + it % 2 * 8);
                wgmma_wait<0>();
                keep(p100);
                keep(f8);
                arrive(base + 231824 + it % 2 * 8);
            }
            end_state<float, 64, 128>(f8, a.tensor[6], x, row0 + 0, 0 + col0(128), l);
        }
    }
}
}  // in_k3_reverse

// backward (token), 410624 bytes a chunk and head predicted: %1 %2 %3 %4
// %5 %6 %9 %10 %11 %12 %13 %14 %15 %16 %17 %18 %19 %20 %25 %26 %27 %28
// %29 %36 %39 %42 %43 %44 %47 %48 %49 %50 %51 %52 %54 %55 %57 %58 %62
// %65 %66 %67 %68 %69 %70 %71 %72 %74 %75 %76 %77 %78 %79 %80 %81 %82
// %83 %84 %85 %86 %87 %88 %89 %90 %91 %92 %93 %94 %95 %96 %98 %99 %101
// %102 %103 %106 %107 %108 %109 %110 %111 %112 %113
namespace in_k4_token {
struct Args { TensorMap map[11]; Tensor tensor[11]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 1) k4_token(const __grid_constant__ Args a)
{
    alignas(1024) extern __shared__ unsigned char raw[];
    const u32 base = shared_address(raw);
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 231520 + 8 * i, 32);
            barrier_init(base + 231536 + 8 * i, 288);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 231552 + 8 * i, 32);
            barrier_init(base + 231568 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 231584 + 8 * i, 32);
            barrier_init(base + 231600 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 231616 + 8 * i, 1);
            barrier_init(base + 231624 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 231632 + 8 * i, 1);
            barrier_init(base + 231640 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 231648 + 8 * i, 1);
            barrier_init(base + 231656 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 231664 + 8 * i, 1);
            barrier_init(base + 231672 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 231680 + 8 * i, 256);
            barrier_init(base + 231688 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 231696 + 8 * i, 1);
            barrier_init(base + 231712 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 231728 + 8 * i, 1);
            barrier_init(base + 231736 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 231744 + 8 * i, 1);
            barrier_init(base + 231752 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 231760 + 8 * i, 256);
            barrier_init(base + 231776 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 231792 + 8 * i, 1);
            barrier_init(base + 231800 + 8 * i, 256);
        }
        barrier_init_fence();
    }
    __syncthreads();
    const int warp = uniform(threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (warp < 4) {
        fewer_registers<56>();
        u32 it = 0;
        NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
            Item x;
            if (!find_item<1>(a.run, item, x))
                continue;
            if (warp == 0 && lane == 0) {
                wait(base + 231712 + it % 2 * 8, parity(it, 2) ^ 1);
                {
                    const u32 full = base + 231696 + it % 2 * 8, to = base + 98304 + it % 2 * 8192;
                    arrive_expecting(full, 8192);
                    load_tile(to + 0, &a.map[0], full, 0, 0, 0, (int)x.at);
                }
                wait(base + 231640, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 231632, to = base + 16384;
                    arrive_expecting(full, 32768);
                    load_tile(to + 0, &a.map[1], full, 0, 0, 0, (int)x.at);
                    load_tile(to + 8192, &a.map[1], full, 0, 64, 0, (int)x.at);
                    load_tile(to + 16384, &a.map[1], full, 64, 0, 0, (int)x.at);
                    load_tile(to + 24576, &a.map[1], full, 64, 64, 0, (int)x.at);
                }
                wait(base + 231656, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 231648, to = base + 49152;
                    arrive_expecting(full, 16384);
                    const int head = x.head / a.tensor[0].group;
                    load_tile(to + 0, &a.map[2], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[2], full, 64, x.row, head, x.where.b);
                }
                wait(base + 231736, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 231728, to = base + 114688;
                    arrive_expecting(full, 16384);
                    const int head = x.head / a.tensor[1].group;
                    load_tile(to + 0, &a.map[3], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[3], full, 64, x.row, head, x.where.b);
                }
                wait(base + 231672, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 231664, to = base + 65536;
                    arrive_expecting(full, 16384);
                    load_tile(to + 0, &a.map[4], full, 0, 0, 0, (int)x.at);
                    load_tile(to + 8192, &a.map[4], full, 64, 0, 0, (int)x.at);
                }
                wait(base + 231800, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 231792, to = base + 147456;
                    arrive_expecting(full, 32768);
                    load_tile(to + 0, &a.map[5], full, 0, 0, 0, (int)x.at);
                    load_tile(to + 8192, &a.map[5], full, 0, 64, 0, (int)x.at);
                    load_tile(to + 16384, &a.map[5], full, 64, 0, 0, (int)x.at);
                    load_tile(to + 24576, &a.map[5], full, 64, 64, 0, (int)x.at);
                }
                wait(base + 231752, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 231744, to = base + 131072;
                    arrive_expecting(full, 16384);
                    const int head = x.head / a.tensor[2].group;
                    load_tile(to + 0, &a.map[6], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[6], full, 64, x.row, head, x.where.b);
                }
                wait(base + 231624, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 231616, to = base + 0;
                    arrive_expecting(full, 16384);
                    const int head = x.head / a.tensor[3].group;
                    load_tile(to + 0, &a.map[7], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[7], full, 64, x.row, head, x.where.b);
                }
            }
            if (warp == 1) {
                wait(base + 231680, parity((it * 3 + 0), 1));
                if (a.tensor[4].p) {
                    const u32 from = base + 81920;
                    const int c = (x.row - x.where.start) / 64;
                    NO_UNROLL for (int i = 0; i < 2; i++)
                        store_chunk(a.map[8], a.tensor[4], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                    bulk_commit();
                    bulk_wait_read();
                }
                arrive(base + 231688);
                wait(base + 231680, parity((it * 3 + 1), 1));
                if (a.tensor[5].p) {
                    const u32 from = base + 81920;
                    const int c = (x.row - x.where.start) / 64;
                    NO_UNROLL for (int i = 0; i < 2; i++)
                        store_chunk(a.map[9], a.tensor[5], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                    bulk_commit();
                    bulk_wait_read();
                }
                arrive(base + 231688);
                wait(base + 231680, parity((it * 3 + 2), 1));
                if (a.tensor[6].p) {
                    const u32 from = base + 81920;
                    const int c = (x.row - x.where.start) / 64;
                    NO_UNROLL for (int i = 0; i < 2; i++)
                        store_chunk(a.map[10], a.tensor[6], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                    bulk_commit();
                    bulk_wait_read();
                }
                arrive(base + 231688);
            }
            if (warp == 2) {
                const Pair v4 = input_pair<float>(a.tensor[7], x, lane);
                const Pair v5 = input_pair<float>(a.tensor[8], x, lane);
                const Pair v10 = { (float)(max_(v5.a, bits(0xc2d00000))), (float)(max_(v5.b, bits(0xc2d00000))) };
                Pair v11 = running_sum(v10, lane, x.n);
                const Pair v13 = { (float)(exp_(v11.a)), (float)(exp_(v11.b)) };
                const float v26 = last_row(v11, x.n);
                const Pair v27 = { (float)(v26 - v11.a), (float)(v26 - v11.b) };
                const Pair v28 = { (float)(exp_(v27.a)), (float)(exp_(v27.b)) };
                const float v29 = (float)(exp_(v26));
                Pair v43 = running_sum(Pair { 0.f, 0.f }, lane, x.n);
                const Pair v112 = { (float)(v5.a < bits(0xc2d00000) ? 1 : 0), (float)(v5.b < bits(0xc2d00000) ? 1 : 0) };
                wait(base + 231536 + it % 2 * 8, parity(it, 2) ^ 1);
                wait(base + 231568 + it % 2 * 8, parity(it, 2) ^ 1);
                wait(base + 231600 + it % 2 * 8, parity(it, 2) ^ 1);
                store_pair(base + 221184 + it % 2 * 768, v4, lane);
                store_pair(base + 222720 + it % 2 * 256, v11, lane);
                store_pair(base + 221440 + it % 2 * 768, v13, lane);
                store_pair(base + 221696 + it % 2 * 768, v28, lane);
                if (lane == 0)
                    store1(base + 223232 + it % 2 * 528, v29);
                store_pair(base + 223248 + it % 2 * 528, v43, lane);
                store_pair(base + 223504 + it % 2 * 528, v112, lane);
                arrive(base + 231520 + it % 2 * 8);
                arrive(base + 231552 + it % 2 * 8);
                arrive(base + 231584 + it % 2 * 8);
            }
            if (warp == 3) {
                wait(base + 231520 + it % 2 * 8, parity(it, 2));
                wait(base + 231584 + it % 2 * 8, parity(it, 2));
                wait(base + 231760 + it % 2 * 8, parity(it, 2));
                const float v29 = parts_sum<1>(base + 223232 + it % 2 * 528, 1, 0);
                const float v65 = parts_sum<8>(base + 227360 + it % 2 * 3616, 1, 0);
                const Pair v28 = parts_pair<1>(base + 221696 + it % 2 * 768, lane);
                const Pair v62 = parts_pair<2>(base + 225312 + it % 2 * 3616, lane);
                const Pair v50 = parts_pair<2>(base + 224288 + it % 2 * 3616, lane);
                const Pair v43 = parts_pair<1>(base + 223248 + it % 2 * 528, lane);
                const Pair v4 = parts_pair<1>(base + 221184 + it % 2 * 768, lane);
                const Pair v79 = parts_pair<2>(base + 225824 + it % 2 * 3616, lane);
                const Pair v87 = parts_pair<2>(base + 226336 + it % 2 * 3616, lane);
                const Pair v94 = parts_pair<2>(base + 226848 + it % 2 * 3616, lane);
                const Pair v52 = parts_pair<2>(base + 224800 + it % 2 * 3616, lane);
                const Pair v13 = parts_pair<1>(base + 221440 + it % 2 * 768, lane);
                const Pair v109 = parts_pair<2>(base + 227392 + it % 2 * 3616, lane);
                const Pair v112 = parts_pair<1>(base + 223504 + it % 2 * 528, lane);
                arrive(base + 231536 + it % 2 * 8);
                arrive(base + 231600 + it % 2 * 8);
                arrive(base + 231776 + it % 2 * 8);
                const float v66 = (float)(v29 * v65);
                const Pair v67 = { (float)(v28.a * v62.a), (float)(v28.b * v62.b) };
                const float v68 = pair_sum({ v28.a * v62.a, v28.b * v62.b }, lane, x.n);
                const float v69 = (float)(v66 + v68);
                const Pair v70 = { (float)(v50.a - v67.a), (float)(v50.b - v67.b) };
                const Pair v71 = delayed_back(v43, v69, lane, x.n);
                const Pair v72 = { (float)(v70.a + v71.a), (float)(v70.b + v71.b) };
                const Pair v85 = { (float)(v4.a * v79.a), (float)(v4.b * v79.b) };
                const Pair v86 = { (float)(v72.a - v85.a), (float)(v72.b - v85.b) };
                const Pair v88 = { (float)(-v87.a), (float)(-v87.b) };
                const Pair v92 = { (float)(v86.a + v88.a), (float)(v86.b + v88.b) };
                const Pair v95 = { (float)(v4.a * v94.a), (float)(v4.b * v94.b) };
                const Pair v96 = { (float)(v52.a - v95.a), (float)(v52.b - v95.b) };
                const Pair v98 = { (float)(v13.a * v94.a), (float)(v13.b * v94.b) };
                const Pair v99 = { (float)(v79.a + v98.a), (float)(v79.b + v98.b) };
                const Pair v106 = { (float)(v13.a * v96.a), (float)(v13.b * v96.b) };
                const Pair v107 = { (float)(v92.a + v106.a), (float)(v92.b + v106.b) };
                const Pair v110 = { (float)(v109.a - v99.a), (float)(v109.b - v99.b) };
                Pair v111 = sum_back(v107, lane, x.n);
                const Pair v113 = { (float)(v112.a != 0 ? 0.f : v111.a), (float)(v112.b != 0 ? 0.f : v111.b) };
                output_pair<unsigned short>(a.tensor[9], x, v110, lane);
                output_pair<unsigned short>(a.tensor[10], x, v113, lane);
            }
            it++;
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
            float f14[32];
            float f25[32];
            float f75[16];
            float f44[16];
            float f48[32];
            float f51[32];
            float f49[32];
            float f57[32];
            float f78[32];
            float f93[32];
            wait(base + 231728, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 114688, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wait(base + 231632, parity(it, 1));
            wgmma_fence();
            multiply_tiles<0, 1, 8, 0, 0>(f51, base + 114688, 64, 0, base + 16384, 128, col0(64) + 0);
            wgmma_commit();
            wait(base + 231664, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 65536, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wgmma_fence();
            multiply_tiles<0, 1, 8, 0, 0>(f93, base + 65536, 64, 0, base + 16384, 128, col0(64) + 0);
            wgmma_commit();
            wait(base + 231520 + it % 2 * 8, parity(it, 2));
            {
                float r4[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r4[h] = parts_sum<1>(base + 221184 + it % 2 * 768, 64, l.row + 8 * h);
                u32 t73[16];
                read_columns<4>(t73 + 0, base + 65536 + 0, 64, col0(64), l);
                float f108[32];
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x108 = r4[h] * (e & 1 ? high(t73[e / 2]) : low(t73[e / 2]));
                    f108[e] = x108;
                }
                wait(base + 231688, parity((it * 3 + 0), 1) ^ 1);
                {
                    u32 p[16];
                    pack_rows(p, f108 + 0, l, x.n);
                    write_columns<4>(base + 81920 + 0, p, 64, col0(64), l);
                }
                fence_async();
                arrive(base + 231680);
            }
            wait(base + 231792, parity(it, 1));
            {
                wait(base + 231776 + it % 2 * 8, parity(it, 2) ^ 1);
                float s65 = 0;
                u32 t7[32];
                read_columns<4>(t7 + 0, base + 16384 + 0, 128, col0(64), l);
                read_columns<4>(t7 + 16, base + 16384 + 8192, 128, col0(64), l);
                u32 t8[32];
                read_columns<4>(t8 + 0, base + 147456 + 0, 128, col0(64), l);
                read_columns<4>(t8 + 16, base + 147456 + 8192, 128, col0(64), l);
                UNROLL for (int e = 0; e < 64; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x65 = (e & 1 ? high(t7[e / 2]) : low(t7[e / 2])) * (e & 1 ? high(t8[e / 2]) : low(t8[e / 2]));
                    s65 += x65;
                }
                put_sum(base + 227360 + it % 2 * 3616, warp - 4, s65, l);
            }
            wait(base + 231648, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 49152, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            {
                float s109[2] = { 0 };
                u32 t3[16];
                read_columns<4>(t3 + 0, base + 49152 + 0, 64, col0(64), l);
                u32 t73[16];
                read_columns<4>(t73 + 0, base + 65536 + 0, 64, col0(64), l);
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x109 = (e & 1 ? high(t3[e / 2]) : low(t3[e / 2])) * (e & 1 ? high(t73[e / 2]) : low(t73[e / 2]));
                    s109[h] += x109;
                }
                put_row_sums<64>(base + 227392 + it % 2 * 3616, group, s109, l);
            }
            wait(base + 231616, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 0, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wgmma_fence();
            multiply_tiles<0, 0, 8, 0, 0>(f14, base + 0, 64, 0, base + 16384, 128, col0(64) + 0);
            wgmma_commit();
            wgmma_wait<0>();
            keep(f14);
            keep(f51);
            keep(f93);
            fence_async();
            arrive(base + 231640);
            matrix_sync<2>();
            {
                float r4[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r4[h] = parts_sum<1>(base + 221184 + it % 2 * 768, 64, l.row + 8 * h);
                float r13[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r13[h] = parts_sum<1>(base + 221440 + it % 2 * 768, 64, l.row + 8 * h);
                u32 t3[16];
                read_columns<4>(t3 + 0, base + 49152 + 0, 64, col0(64), l);
                float f17[32];
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x15 = r4[h] * f14[e];
                    const float x16 = r13[h] * x15;
                    const float x12 = (e & 1 ? high(t3[e / 2]) : low(t3[e / 2])) * r4[h];
                    const float x17 = x12 - x16;
                    f17[e] = x17;
                }
                {
                    u32 p[16];
                    pack_rows(p, f17 + 0, l, x.n);
                    write_columns<4>(base + 180224 + 0, p, 64, col0(64), l);
                }
            }
            fence_async();
            arrive(base + 231656);
            wait(base + 231696 + it % 2 * 8, parity(it, 2));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 98304 + it % 2 * 8192, 1, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            fence_async();
            matrix_sync<2>();
            wgmma_fence();
            multiply_tiles<0, 1, 4, 0, 0>(f25, base + 98304 + it % 2 * 8192, 64, 0, base + 180224, 64, col0(64) + 0);
            wgmma_commit();
            wgmma_wait<0>();
            keep(f25);
            arrive(base + 231712 + it % 2 * 8);
            matrix_sync<2>();
            {
                {
                    u32 p[16];
                    pack_rows(p, f25 + 0, l, x.n);
                    write_columns<4>(base + 180224 + 0, p, 64, col0(64), l);
                }
            }
            fence_async();
            matrix_sync<2>();
            wgmma_fence();
            multiply_tiles<0, 0, 8, 0, 0>(f44, base + 114688, 64, 0, base + 180224, 64, col0(32) + 0);
            wgmma_commit();
            wgmma_fence();
            multiply_tiles<0, 0, 8, 0, 0>(f75, base + 65536, 64, 0, base + 180224, 64, col0(32) + 0);
            wgmma_commit();
            wgmma_fence();
            multiply_tiles<0, 1, 8, 0, 0>(f57, base + 180224, 64, 0, base + 147456, 128, col0(64) + 0);
            wgmma_commit();
            wgmma_wait<2>();
            keep(f44);
            arrive(base + 231736);
            wait(base + 231552 + it % 2 * 8, parity(it, 2));
            {
                float r11[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r11[h] = LOG2E * parts_sum<1>(base + 222720 + it % 2 * 256, 64, l.row + 8 * h);
                float c11[8];
                UNROLL for (int e = 0; e < 8; e++)
                    c11[e] = LOG2E * parts_sum<1>(base + 222720 + it % 2 * 256, 64, col0(32) + e / 2 * 8 + l.col + e % 2);
                float f47[16];
                const int over = l.row - l.col;
                UNROLL for (int e = 0; e < 16; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                    const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const int past = col0(32) + e % 16 / 4 * 8 + e % 2 - 8 * h - e / 16 * 64;
                    const float x36 = kept_(over >= past, exp2_(r11[h] - c11[e / 4 * 2 + e % 2]));
                    const float x47 = x36 * f44[e];
                    f47[e] = x47;
                }
                {
                    u32 p[8];
                    pack_rows(p, f47 + 0, l, x.n);
                    write_columns<2>(base + 212992 + 0, p, 64, col0(32), l);
                }
            }
            wgmma_wait<1>();
            keep(f75);
            arrive(base + 231672);
            {
                float r11[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r11[h] = LOG2E * parts_sum<1>(base + 222720 + it % 2 * 256, 64, l.row + 8 * h);
                float c11[8];
                UNROLL for (int e = 0; e < 8; e++)
                    c11[e] = LOG2E * parts_sum<1>(base + 222720 + it % 2 * 256, 64, col0(32) + e / 2 * 8 + l.col + e % 2);
                float r4[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r4[h] = parts_sum<1>(base + 221184 + it % 2 * 768, 64, l.row + 8 * h);
                float f77[16];
                float f80[16];
                const int over = l.row - l.col;
                UNROLL for (int e = 0; e < 16; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                    const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const int past = col0(32) + e % 16 / 4 * 8 + e % 2 - 8 * h - e / 16 * 64;
                    const float x20 = kept_(over > past, exp2_(r11[h] - c11[e / 4 * 2 + e % 2]));
                    const float x74 = kept_(over > past, 1.f);
                    const float x76 = x74 * f75[e];
                    const float x77 = x20 * x76;
                    f77[e] = x77;
                    const float x80 = r4[h] * x77;
                    f80[e] = x80;
                }
                {
                    u32 p[8];
                    pack_rows(p, f77 + 0, l, x.n);
                    write_columns<2>(base + 196608 + 0, p, 64, col0(32), l);
                }
                {
                    u32 p[8];
                    pack_rows(p, f80 + 0, l, x.n);
                    write_columns<2>(base + 204800 + 0, p, 64, col0(32), l);
                }
            }
            arrive(base + 231568 + it % 2 * 8);
            wait(base + 231744, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 131072, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            fence_async();
            matrix_sync<2>();
            wgmma_fence();
            multiply_tiles<1, 1, 4, 0, 0>(f49, base + 212992, 64, 0, base + 131072, 64, col0(64) + 0);
            wgmma_commit();
            keep(f49);
            wgmma_fence();
            multiply_tiles<1, 1, 4, 1, 1>(f49, base + 204800, 64, 0, base + 0, 64, col0(64) + 0);
            wgmma_commit();
            wgmma_fence();
            multiply_tiles<0, 1, 4, 0, 0>(f48, base + 212992, 64, 0, base + 0, 64, col0(64) + 0);
            wgmma_commit();
            wgmma_wait<0>();
            keep(f48);
            keep(f49);
            keep(f57);
            keep(f49);
            arrive(base + 231800);
            {
                float s50[2] = { 0 };
                float s52[2] = { 0 };
                u32 t1[16];
                read_columns<4>(t1 + 0, base + 131072 + 0, 64, col0(64), l);
                float r13[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r13[h] = parts_sum<1>(base + 221440 + it % 2 * 768, 64, l.row + 8 * h);
                float f55[32];
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x50 = (e & 1 ? high(t1[e / 2]) : low(t1[e / 2])) * f48[e];
                    const float x52 = (e & 1 ? high(t1[e / 2]) : low(t1[e / 2])) * f51[e];
                    const float x54 = r13[h] * f51[e];
                    const float x55 = f48[e] + x54;
                    f55[e] = x55;
                    s50[h] += x50;
                    s52[h] += x52;
                }
                put_row_sums<64>(base + 224288 + it % 2 * 3616, group, s50, l);
                put_row_sums<64>(base + 224800 + it % 2 * 3616, group, s52, l);
                wait(base + 231688, parity((it * 3 + 1), 1) ^ 1);
                {
                    u32 p[16];
                    pack_rows(p, f55 + 0, l, x.n);
                    write_columns<4>(base + 81920 + 0, p, 64, col0(64), l);
                }
                fence_async();
                arrive(base + 231680);
            }
            fence_async();
            arrive(base + 231752);
            wgmma_fence();
            multiply_tiles<0, 1, 4, 0, 0>(f78, base + 196608, 64, 0, base + 0, 64, col0(64) + 0);
            wgmma_commit();
            wgmma_wait<0>();
            keep(f78);
            {
                float s62[2] = { 0 };
                float s79[2] = { 0 };
                float s87[2] = { 0 };
                float s94[2] = { 0 };
                float r28[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r28[h] = parts_sum<1>(base + 221696 + it % 2 * 768, 64, l.row + 8 * h);
                u32 t2[16];
                read_columns<4>(t2 + 0, base + 0 + 0, 64, col0(64), l);
                float r4[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r4[h] = parts_sum<1>(base + 221184 + it % 2 * 768, 64, l.row + 8 * h);
                float r13[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r13[h] = parts_sum<1>(base + 221440 + it % 2 * 768, 64, l.row + 8 * h);
                float f103[32];
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x58 = r28[h] * f57[e];
                    const float x62 = (e & 1 ? high(t2[e / 2]) : low(t2[e / 2])) * f57[e];
                    const float x79 = (e & 1 ? high(t2[e / 2]) : low(t2[e / 2])) * f78[e];
                    const float x81 = r4[h] * f78[e];
                    const float x82 = x58 - x81;
                    const float x87 = (e & 1 ? high(t2[e / 2]) : low(t2[e / 2])) * f49[e];
                    const float x90 = x82 + f49[e];
                    const float x94 = (e & 1 ? high(t2[e / 2]) : low(t2[e / 2])) * f93[e];
                    const float x101 = r13[h] * f93[e];
                    const float x102 = r4[h] * x101;
                    const float x103 = x90 - x102;
                    f103[e] = x103;
                    s62[h] += x62;
                    s79[h] += x79;
                    s87[h] += x87;
                    s94[h] += x94;
                }
                put_row_sums<64>(base + 225312 + it % 2 * 3616, group, s62, l);
                put_row_sums<64>(base + 225824 + it % 2 * 3616, group, s79, l);
                put_row_sums<64>(base + 226336 + it % 2 * 3616, group, s87, l);
                put_row_sums<64>(base + 226848 + it % 2 * 3616, group, s94, l);
                wait(base + 231688, parity((it * 3 + 2), 1) ^ 1);
                {
                    u32 p[16];
                    pack_rows(p, f103 + 0, l, x.n);
                    write_columns<4>(base + 81920 + 0, p, 64, col0(64), l);
                }
                fence_async();
                arrive(base + 231680);
            }
            arrive(base + 231760 + it % 2 * 8);
            fence_async();
            arrive(base + 231536 + it % 2 * 8);
            arrive(base + 231624);
            it++;
        }
    }
}
}  // in_k4_token
