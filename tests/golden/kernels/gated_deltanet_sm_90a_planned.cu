#define THREADS 512
#define RANK 2
#include "numbers.cuh"
#include "warp.cuh"
#include "run.cuh"
#include "tile.cuh"
#include "products.cuh"
#include "scans.cuh"
extern __shared__ char arena[];

// forward (token), 98816 bytes a chunk and head predicted: %1 %2 %4 %5
// %9 %10 %11 %18 %19 %20 %21 %22 %23 %24 %36 %37 %38
namespace in_k0_token {
struct Args { TensorMap map[4]; Tensor tensor[4]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 2) k0_token(const __grid_constant__ Args a)
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
                    const int head = head_of(a.tensor[0], x.head);
                    load_tile(to + 0, &a.map[0], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[0], full, 64, x.row, head, x.where.b);
                }
                wait(base + 101488 + it % 2 * 8, parity(it, 2) ^ 1);
                {
                    const u32 full = base + 101472 + it % 2 * 8, to = base + 49152 + it % 2 * 16384;
                    arrive_expecting(full, 16384);
                    const int head = head_of(a.tensor[1], x.head);
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
}  // in_k0_token

// forward (forward), 229888 bytes a chunk and head predicted: %1 %2 %3
// %4 %5 %7 %9 %10 %11 %12 %13 %14 %15 %16 %17 %25 %26 %27 %28 %29 %30
// %31 %32 %33 %34 %35 %39 %40 %41
namespace in_k1_forward {
struct Args { TensorMap map[7]; Tensor tensor[8]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 1) k1_forward(const __grid_constant__ Args a)
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
        fewer_registers<56>();
        if (warp == 0 && lane == 0) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<1>(a.run, item, x);
                const int head0 = head_of(a.tensor[0], x.head);
                const int head1 = head_of(a.tensor[1], x.head);
                const int head2 = head_of(a.tensor[2], x.head);
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, m, x);
                    wait(base + 231824 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        const u32 full = base + 231808 + it % 2 * 8, to = base + 65536 + it % 2 * 65536;
                        arrive_expecting(full, 65536);
                        load_tile(to + 0, &a.map[0], full, 0, x.row, head0, x.where.b);
                        load_tile(to + 8192, &a.map[0], full, 64, x.row, head0, x.where.b);
                    }
                    {
                        const u32 full = base + 231808 + it % 2 * 8, to = base + 81920 + it % 2 * 65536;
                        load_tile(to + 0, &a.map[1], full, 0, x.row, head1, x.where.b);
                        load_tile(to + 8192, &a.map[1], full, 64, x.row, head1, x.where.b);
                    }
                    {
                        const u32 full = base + 231808 + it % 2 * 8, to = base + 98304 + it % 2 * 65536;
                        load_tile(to + 0, &a.map[2], full, 0, 0, 0, (int)x.at);
                    }
                    {
                        const u32 full = base + 231808 + it % 2 * 8, to = base + 106496 + it % 2 * 65536;
                        load_tile(to + 0, &a.map[3], full, 0, x.row, head2, x.where.b);
                        load_tile(to + 8192, &a.map[3], full, 64, x.row, head2, x.where.b);
                    }
                    {
                        const u32 full = base + 231808 + it % 2 * 8, to = base + 122880 + it % 2 * 65536;
                        load_tile(to + 0, &a.map[4], full, 0, 0, 0, (int)x.at);
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
                    if (a.tensor[3].p) {
                        const u32 from = base + 196608 + it % 2 * 16384;
                        const int c = (x.row - x.where.start) / 64;
                        NO_UNROLL for (int i = 0; i < 2; i++)
                            store_chunk(a.map[6], a.tensor[3], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                        bulk_commit();
                        bulk_wait_read();
                    }
                    arrive(base + 231856 + it % 2 * 8);
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
                const Along<float> s5(a.tensor[5], x, lane);
                Loaded<float> n5 = s5.load(a.tensor[5], 0 + ((it + warp) & 1));
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, m, x);
                    if ((it + warp) & 1)
                        continue;
                    const Pair v4 = pair_of(n4);
                    n4 = s4.load(a.tensor[4], m + 2);
                    const Pair v5 = pair_of(n5);
                    n5 = s5.load(a.tensor[5], m + 2);
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
        more_registers<224>();
        const Lane l = lane_here();
        const int thread = (int)threadIdx.x - 128, group = uniform(thread >> 7);
        const int row0 = 64 * group;
        auto col0 = [&](int share) { return 0; };
        u32 it = 0;
        NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
            Item x;
            const int chunks = find_walk<1>(a.run, item, x);
            float f7[64];
            begin_state<float, 64, 128>(f7, a.tensor[6], x, row0 + 0, 0 + col0(128), l);
            NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                find_chunk(a.run, m, x);
                const u32 slot0 = base + 229376 + it % 3 * 784;
                (void)slot0;
                const u32 slot1 = base + 0 + it % 2 * 32768;
                (void)slot1;
                const u32 slot2 = base + 65536 + it % 2 * 65536;
                (void)slot2;
                const u32 slot3 = base + 196608 + it % 2 * 16384;
                (void)slot3;
                u32 p7[32];
                u32 p3[16];
                float f14[32];
                u32 p17[16];
                float f25[32];
                u32 p25[16];
                u32 p31[16];
                float f34[32];
                float f40[32];
                {
                    pack_all(p7, f7);
                    keep(p7);
                }
                wait(base + 231808 + it % 2 * 8, parity(it, 2));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(slot2 + 32768, 1, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                {
                    wait(base + 231792 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        u32 p[16];
                        pack_all(p, f7 + 0);
                        write_transposed(slot1 + 0 + row0 * 256, p, l);
                    }
                    {
                        u32 p[16];
                        pack_all(p, f7 + 32);
                        write_transposed(slot1 + 0 + row0 * 256 + 8192, p, l);
                    }
                }
                fence_async();
                arrive(base + 231776 + it % 2 * 8);
                wait(base + 231728 + it % 3 * 8, parity(it, 3));
                {
                    const float s29 = parts_sum<1>(slot0 + 768, 1, 0);
                    UNROLL for (int e = 0; e < 64; e++) {
                        const int h = e / 2 % 2, row = row0 + l.row + 8 * h + e / 64 * 64;
                        const int col = col0(128) + e % 64 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x30 = f7[e] * s29;
                        f7[e] = x30;
                    }
                    keep(f7);
                }
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(slot2 + 0, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                wgmma_fence();
                multiply_packed<0, 8, 0, 0>(f14, p7, slot2 + 0, 64, 0);
                wgmma_commit();
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(slot2 + 16384, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                read_transposed(p3, slot2 + 16384 + row0 * 128, l);
                keep(p3);
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(slot2 + 40960, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                wgmma_fence();
                multiply_packed<0, 8, 0, 0>(f34, p7, slot2 + 40960, 64, 0);
                wgmma_commit();
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(slot2 + 57344, 1, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                wgmma_wait<1>();
                keep(f14);
                {
                    float2 d4 = { 0.f, 0.f };
                    float2 d13 = { 0.f, 0.f };
                    float w17 = 0.f;
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = row0 + l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        if (e % 4 == 0)
                            d4 = load2(slot0 + 0 + 4 * (col0(64) + e % 32 / 4 * 8 + l.col));
                        if (e % 4 == 0)
                            d13 = load2(slot0 + 256 + 4 * (col0(64) + e % 32 / 4 * 8 + l.col));
                        const float x15 = (e & 1 ? d4.y : d4.x) * f14[e];
                        const float x16 = (e & 1 ? d13.y : d13.x) * x15;
                        const float x12 = (e & 1 ? high(p3[e / 2]) : low(p3[e / 2])) * (e & 1 ? d4.y : d4.x);
                        const float x17 = x12 - x16;
                        if (e & 1)
                            p17[e / 2] = pack(w17, x17);
                        else
                        w17 = x17;
                    }
                    if (x.n < 64)
                        clear_columns(p17, x.n, l);
                    keep(p17);
                }
                wgmma_fence();
                multiply_packed<0, 4, 0, 0>(f25, p17, slot2 + 32768, 64, 0);
                wgmma_commit();
                wgmma_wait<0>();
                keep(p17);
                keep(f25);
                keep(p7);
                keep(f34);
                {
                    pack_all(p25, f25);
                    if (x.n < 64)
                        clear_columns(p25, x.n, l);
                    keep(p25);
                    float2 d28 = { 0.f, 0.f };
                    float w31 = 0.f;
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = row0 + l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        if (e % 4 == 0)
                            d28 = load2(slot0 + 512 + 4 * (col0(64) + e % 32 / 4 * 8 + l.col));
                        const float x31 = f25[e] * (e & 1 ? d28.y : d28.x);
                        if (e & 1)
                            p31[e / 2] = pack(w31, x31);
                        else
                        w31 = x31;
                    }
                    if (x.n < 64)
                        clear_columns(p31, x.n, l);
                    keep(p31);
                }
                wgmma_fence();
                multiply_packed<0, 4, 0, 0>(f40, p25, slot2 + 57344, 64, 0);
                wgmma_commit();
                keep(f7);
                wgmma_fence();
                multiply_packed<1, 4, 1, 0>(f7, p31, slot2 + 0, 64, 0);
                wgmma_commit();
                wgmma_wait<1>();
                keep(p25);
                keep(f40);
                {
                    wait(base + 231856 + it % 2 * 8, parity(it, 2) ^ 1);
                    float2 d13 = { 0.f, 0.f };
                    float f41[32];
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = row0 + l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        if (e % 4 == 0)
                            d13 = load2(slot0 + 256 + 4 * (col0(64) + e % 32 / 4 * 8 + l.col));
                        const float x35 = (e & 1 ? d13.y : d13.x) * f34[e];
                        const float x41 = x35 + f40[e];
                        f41[e] = x41;
                    }
                    {
                        u32 p[16];
                        pack_all(p, f41);
                        write_transposed(slot3 + 0 + row0 * 128, p, l);
                    }
                }
                fence_async();
                arrive(base + 231840 + it % 2 * 8);
                arrive(base + 231752 + it % 3 * 8);
                wgmma_wait<0>();
                keep(p31);
                keep(f7);
                arrive(base + 231824 + it % 2 * 8);
            }
            end_state<float, 64, 128>(f7, a.tensor[7], x, row0 + 0, 0 + col0(128), l);
        }
    }
}
}  // in_k1_forward

// backward (reverse), 229888 bytes a chunk and head predicted: %1 %2 %4
// %5 %6 %8 %9 %10 %11 %13 %26 %27 %28 %29 %45 %46 %55 %58 %61 %62 %63
// %65 %66 %75 %99 %102 %106 %107
namespace in_k2_reverse {
struct Args { TensorMap map[7]; Tensor tensor[7]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 1) k2_reverse(const __grid_constant__ Args a)
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
        fewer_registers<56>();
        if (warp == 0 && lane == 0) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<1>(a.run, item, x);
                const int head0 = head_of(a.tensor[0], x.head);
                const int head1 = head_of(a.tensor[1], x.head);
                const int head2 = head_of(a.tensor[2], x.head);
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
                const Along<float> s4(a.tensor[3], x, lane);
                Loaded<float> n4 = s4.load(a.tensor[3], max(chunks - 1 - (0), 0));
                const Along<float> s5(a.tensor[4], x, lane);
                Loaded<float> n5 = s5.load(a.tensor[4], max(chunks - 1 - (0), 0));
                NO_UNROLL for (int m = 1; m < 4; m++) {
                    s4.ask_for(a.tensor[3], max(chunks - 1 - (0 + m), 0));
                    s5.ask_for(a.tensor[4], max(chunks - 1 - (0 + m), 0));
                }
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, chunks - 1 - m, x);
                    const Pair v4 = pair_of(n4);
                    n4 = s4.load(a.tensor[3], max(chunks - 1 - (m + 1), 0));
                    s4.ask_for(a.tensor[3], max(chunks - 1 - (m + 4), 0));
                    const Pair v5 = pair_of(n5);
                    n5 = s5.load(a.tensor[4], max(chunks - 1 - (m + 1), 0));
                    s5.ask_for(a.tensor[4], max(chunks - 1 - (m + 4), 0));
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
        more_registers<224>();
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
                float f61[32];
                u32 p63[16];
                u32 p55[16];
                float f75[32];
                u32 p102[16];
                {
                    pack_all(p8, f8);
                    keep(p8);
                }
                {
                    wait(base + 231792 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        u32 p[16];
                        pack_all(p, f8 + 0);
                        write_transposed(slot1 + 0 + row0 * 256, p, l);
                    }
                    {
                        u32 p[16];
                        pack_all(p, f8 + 32);
                        write_transposed(slot1 + 0 + row0 * 256 + 8192, p, l);
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
                        const float x65 = f8[e] * s29;
                        f8[e] = x65;
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
                    float w55 = 0.f;
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = row0 + l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        if (e % 4 == 0)
                            d13 = load2(slot0 + 256 + 4 * (col0(64) + e % 32 / 4 * 8 + l.col));
                        const float x55 = (e & 1 ? high(p6[e / 2]) : low(p6[e / 2])) * (e & 1 ? d13.y : d13.x);
                        if (e & 1)
                            p55[e / 2] = pack(w55, x55);
                        else
                        w55 = x55;
                    }
                    if (x.n < 64)
                        clear_columns(p55, x.n, l);
                    keep(p55);
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
                multiply_packed<0, 8, 0, 0>(f61, p8, slot2 + 24576, 64, 0);
                wgmma_commit();
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(slot2 + 49152, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                keep(f8);
                wgmma_fence();
                multiply_packed<1, 4, 1, 0>(f8, p55, slot2 + 49152, 64, 0);
                wgmma_commit();
                wgmma_wait<1>();
                keep(p6);
                keep(f45);
                keep(p8);
                keep(f61);
                {
                    float2 d28 = { 0.f, 0.f };
                    float w63 = 0.f;
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = row0 + l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        if (e % 4 == 0)
                            d28 = load2(slot0 + 512 + 4 * (col0(64) + e % 32 / 4 * 8 + l.col));
                        const float x62 = (e & 1 ? d28.y : d28.x) * f61[e];
                        const float x63 = f45[e] + x62;
                        if (e & 1)
                            p63[e / 2] = pack(w63, x63);
                        else
                        w63 = x63;
                    }
                    if (x.n < 64)
                        clear_columns(p63, x.n, l);
                    keep(p63);
                }
                wgmma_fence();
                multiply_packed<1, 4, 0, 0>(f75, p63, slot2 + 40960, 64, 0);
                wgmma_commit();
                wgmma_wait<0>();
                keep(p63);
                keep(f75);
                keep(p55);
                keep(f8);
                {
                    float2 d13 = { 0.f, 0.f };
                    float2 d4 = { 0.f, 0.f };
                    float w102 = 0.f;
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
                        const float x99 = (e & 1 ? d13.y : d13.x) * f75[e];
                        const float x102 = (e & 1 ? d4.y : d4.x) * x99;
                        if (e & 1)
                            p102[e / 2] = pack(w102, x102);
                        else
                        w102 = x102;
                    }
                    if (x.n < 64)
                        clear_columns(p102, x.n, l);
                    keep(p102);
                }
                arrive(base + 231752 + it % 3 * 8);
                keep(f8);
                wgmma_fence();
                multiply_packed<1, 4, 1, 1>(f8, p102, slot2 + 24576, 64, 0);
                wgmma_commit();
                {
                    wait(base + 231856 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        u32 p[16];
                        pack_all(p, f75);
                        if (x.n < 64)
                            clear_columns(p, x.n, l);
                        write_transposed(slot3 + 0 + row0 * 128, p, l);
                    }
                }
                fence_async();
                arrive(base + 231840 + it % 2 * 8);
                wgmma_wait<0>();
                keep(p102);
                keep(f8);
                arrive(base + 231824 + it % 2 * 8);
            }
            end_state<float, 64, 128>(f8, a.tensor[6], x, row0 + 0, 0 + col0(128), l);
        }
    }
}
}  // in_k2_reverse

// backward (token), 410624 bytes a chunk and head predicted: %1 %2 %3 %4
// %5 %6 %9 %10 %11 %12 %13 %14 %15 %16 %17 %18 %19 %20 %25 %26 %27 %28
// %29 %36 %37 %39 %42 %43 %44 %47 %48 %49 %50 %51 %52 %53 %54 %56 %57
// %59 %60 %64 %67 %68 %69 %70 %71 %72 %73 %74 %76 %77 %78 %79 %80 %81
// %82 %83 %84 %85 %86 %87 %88 %89 %90 %91 %92 %93 %94 %95 %96 %97 %98
// %100 %101 %103 %104 %105 %108 %109 %110 %111 %112 %113 %114 %115
namespace in_k3_token {
struct Args { TensorMap map[11]; Tensor tensor[11]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 1) k3_token(const __grid_constant__ Args a)
{
    alignas(1024) extern __shared__ unsigned char raw[];
    const u32 base = shared_address(raw);
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 225376 + 8 * i, 32);
            barrier_init(base + 225392 + 8 * i, 288);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 225408 + 8 * i, 32);
            barrier_init(base + 225424 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 225440 + 8 * i, 32);
            barrier_init(base + 225456 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 225472 + 8 * i, 1);
            barrier_init(base + 225480 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 225488 + 8 * i, 1);
            barrier_init(base + 225496 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 225504 + 8 * i, 1);
            barrier_init(base + 225512 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 225520 + 8 * i, 1);
            barrier_init(base + 225528 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 225536 + 8 * i, 256);
            barrier_init(base + 225544 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 225552 + 8 * i, 1);
            barrier_init(base + 225560 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 225568 + 8 * i, 1);
            barrier_init(base + 225576 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 225584 + 8 * i, 1);
            barrier_init(base + 225592 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 225600 + 8 * i, 256);
            barrier_init(base + 225616 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 225632 + 8 * i, 1);
            barrier_init(base + 225640 + 8 * i, 256);
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
                wait(base + 225496, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 225488, to = base + 16384;
                    arrive_expecting(full, 32768);
                    load_tile(to + 0, &a.map[0], full, 0, 0, 0, (int)x.at);
                    load_tile(to + 8192, &a.map[0], full, 0, 64, 0, (int)x.at);
                    load_tile(to + 16384, &a.map[0], full, 64, 0, 0, (int)x.at);
                    load_tile(to + 24576, &a.map[0], full, 64, 64, 0, (int)x.at);
                }
                wait(base + 225512, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 225504, to = base + 49152;
                    arrive_expecting(full, 16384);
                    const int head = head_of(a.tensor[0], x.head);
                    load_tile(to + 0, &a.map[1], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[1], full, 64, x.row, head, x.where.b);
                }
                wait(base + 225560, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 225552, to = base + 98304;
                    arrive_expecting(full, 8192);
                    load_tile(to + 0, &a.map[2], full, 0, 0, 0, (int)x.at);
                }
                wait(base + 225576, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 225568, to = base + 106496;
                    arrive_expecting(full, 16384);
                    const int head = head_of(a.tensor[1], x.head);
                    load_tile(to + 0, &a.map[3], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[3], full, 64, x.row, head, x.where.b);
                }
                wait(base + 225528, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 225520, to = base + 65536;
                    arrive_expecting(full, 16384);
                    load_tile(to + 0, &a.map[4], full, 0, 0, 0, (int)x.at);
                    load_tile(to + 8192, &a.map[4], full, 64, 0, 0, (int)x.at);
                }
                wait(base + 225592, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 225584, to = base + 122880;
                    arrive_expecting(full, 16384);
                    const int head = head_of(a.tensor[2], x.head);
                    load_tile(to + 0, &a.map[5], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[5], full, 64, x.row, head, x.where.b);
                }
                wait(base + 225640, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 225632, to = base + 139264;
                    arrive_expecting(full, 32768);
                    load_tile(to + 0, &a.map[6], full, 0, 0, 0, (int)x.at);
                    load_tile(to + 8192, &a.map[6], full, 0, 64, 0, (int)x.at);
                    load_tile(to + 16384, &a.map[6], full, 64, 0, 0, (int)x.at);
                    load_tile(to + 24576, &a.map[6], full, 64, 64, 0, (int)x.at);
                }
                wait(base + 225480, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 225472, to = base + 0;
                    arrive_expecting(full, 16384);
                    const int head = head_of(a.tensor[3], x.head);
                    load_tile(to + 0, &a.map[7], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[7], full, 64, x.row, head, x.where.b);
                }
            }
            if (warp == 1) {
                wait(base + 225536, parity((it * 3 + 0), 1));
                if (a.tensor[4].p) {
                    const u32 from = base + 81920;
                    const int c = (x.row - x.where.start) / 64;
                    NO_UNROLL for (int i = 0; i < 2; i++)
                        store_chunk(a.map[8], a.tensor[4], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                    bulk_commit();
                    bulk_wait_read();
                }
                arrive(base + 225544);
                wait(base + 225536, parity((it * 3 + 1), 1));
                if (a.tensor[5].p) {
                    const u32 from = base + 81920;
                    const int c = (x.row - x.where.start) / 64;
                    NO_UNROLL for (int i = 0; i < 2; i++)
                        store_chunk(a.map[9], a.tensor[5], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                    bulk_commit();
                    bulk_wait_read();
                }
                arrive(base + 225544);
                wait(base + 225536, parity((it * 3 + 2), 1));
                if (a.tensor[6].p) {
                    const u32 from = base + 81920;
                    const int c = (x.row - x.where.start) / 64;
                    NO_UNROLL for (int i = 0; i < 2; i++)
                        store_chunk(a.map[10], a.tensor[6], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                    bulk_commit();
                    bulk_wait_read();
                }
                arrive(base + 225544);
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
                const Pair v114 = { (float)(v5.a < bits(0xc2d00000) ? 1 : 0), (float)(v5.b < bits(0xc2d00000) ? 1 : 0) };
                wait(base + 225392 + it % 2 * 8, parity(it, 2) ^ 1);
                wait(base + 225424 + it % 2 * 8, parity(it, 2) ^ 1);
                wait(base + 225456 + it % 2 * 8, parity(it, 2) ^ 1);
                store_pair(base + 212992 + it % 2 * 768, v4, lane);
                store_pair(base + 214528 + it % 2 * 256, v11, lane);
                store_pair(base + 213248 + it % 2 * 768, v13, lane);
                store_pair(base + 213504 + it % 2 * 768, v28, lane);
                if (lane == 0)
                    store1(base + 215040 + it % 2 * 528, v29);
                store_pair(base + 215056 + it % 2 * 528, v43, lane);
                store_pair(base + 215312 + it % 2 * 528, v114, lane);
                arrive(base + 225376 + it % 2 * 8);
                arrive(base + 225408 + it % 2 * 8);
                arrive(base + 225440 + it % 2 * 8);
            }
            if (warp == 3) {
                wait(base + 225376 + it % 2 * 8, parity(it, 2));
                wait(base + 225440 + it % 2 * 8, parity(it, 2));
                wait(base + 225600 + it % 2 * 8, parity(it, 2));
                const float v29 = parts_sum<1>(base + 215040 + it % 2 * 528, 1, 0);
                const float v67 = parts_sum<8>(base + 220192 + it % 2 * 4640, 1, 0);
                const Pair v28 = parts_pair<1>(base + 213504 + it % 2 * 768, lane);
                const Pair v64 = parts_pair<2>(base + 218144 + it % 2 * 4640, lane);
                const Pair v51 = parts_pair<2>(base + 216096 + it % 2 * 4640, lane);
                const Pair v43 = parts_pair<1>(base + 215056 + it % 2 * 528, lane);
                const Pair v4 = parts_pair<1>(base + 212992 + it % 2 * 768, lane);
                const Pair v81 = parts_pair<2>(base + 218656 + it % 2 * 4640, lane);
                const Pair v89 = parts_pair<2>(base + 219168 + it % 2 * 4640, lane);
                const Pair v52 = parts_pair<4>(base + 216608 + it % 2 * 4640, lane);
                const Pair v96 = parts_pair<2>(base + 219680 + it % 2 * 4640, lane);
                const Pair v54 = parts_pair<2>(base + 217632 + it % 2 * 4640, lane);
                const Pair v13 = parts_pair<1>(base + 213248 + it % 2 * 768, lane);
                const Pair v111 = parts_pair<2>(base + 220224 + it % 2 * 4640, lane);
                const Pair v114 = parts_pair<1>(base + 215312 + it % 2 * 528, lane);
                arrive(base + 225392 + it % 2 * 8);
                arrive(base + 225456 + it % 2 * 8);
                arrive(base + 225616 + it % 2 * 8);
                const float v68 = (float)(v29 * v67);
                const Pair v69 = { (float)(v28.a * v64.a), (float)(v28.b * v64.b) };
                const float v70 = pair_sum({ v28.a * v64.a, v28.b * v64.b }, lane, x.n);
                const float v71 = (float)(v68 + v70);
                const Pair v72 = { (float)(v51.a - v69.a), (float)(v51.b - v69.b) };
                const Pair v73 = delayed_back(v43, v71, lane, x.n);
                const Pair v74 = { (float)(v72.a + v73.a), (float)(v72.b + v73.b) };
                const Pair v87 = { (float)(v4.a * v81.a), (float)(v4.b * v81.b) };
                const Pair v88 = { (float)(v74.a - v87.a), (float)(v74.b - v87.b) };
                const Pair v90 = { (float)(v89.a - v52.a), (float)(v89.b - v52.b) };
                const Pair v94 = { (float)(v88.a + v90.a), (float)(v88.b + v90.b) };
                const Pair v97 = { (float)(v4.a * v96.a), (float)(v4.b * v96.b) };
                const Pair v98 = { (float)(v54.a - v97.a), (float)(v54.b - v97.b) };
                const Pair v100 = { (float)(v13.a * v96.a), (float)(v13.b * v96.b) };
                const Pair v101 = { (float)(v81.a + v100.a), (float)(v81.b + v100.b) };
                const Pair v108 = { (float)(v13.a * v98.a), (float)(v13.b * v98.b) };
                const Pair v109 = { (float)(v94.a + v108.a), (float)(v94.b + v108.b) };
                const Pair v112 = { (float)(v111.a - v101.a), (float)(v111.b - v101.b) };
                Pair v113 = sum_back(v109, lane, x.n);
                const Pair v115 = { (float)(v114.a != 0 ? 0.f : v113.a), (float)(v114.b != 0 ? 0.f : v113.b) };
                output_pair<unsigned short>(a.tensor[9], x, v112, lane);
                output_pair<unsigned short>(a.tensor[10], x, v115, lane);
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
            float f77[16];
            float f44[16];
            float f36[16];
            float f37[16];
            float f49[32];
            float f53[32];
            float f50[32];
            float f59[32];
            float f80[32];
            float f85[32];
            float f95[32];
            wait(base + 225568, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 106496, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wait(base + 225488, parity(it, 1));
            wgmma_fence();
            multiply_tiles<0, 0, 8, 0, 0>(f53, base + 106496, 64, 0, base + 16384, 128, col0(64) + 0);
            wgmma_commit();
            wait(base + 225520, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 65536, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wgmma_fence();
            multiply_tiles<0, 0, 8, 0, 0>(f95, base + 65536, 64, 0, base + 16384, 128, col0(64) + 0);
            wgmma_commit();
            wait(base + 225376 + it % 2 * 8, parity(it, 2));
            {
                float r4[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r4[h] = parts_sum<1>(base + 212992 + it % 2 * 768, 64, l.row + 8 * h);
                u32 t75[16];
                read_columns<4>(t75 + 0, base + 65536 + 0, 64, col0(64), l);
                float f110[32];
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x110 = r4[h] * (e & 1 ? high(t75[e / 2]) : low(t75[e / 2]));
                    f110[e] = x110;
                }
                wait(base + 225544, parity((it * 3 + 0), 1) ^ 1);
                {
                    u32 p[16];
                    pack_rows(p, f110 + 0, l, x.n);
                    write_columns<4>(base + 81920 + 0, p, 64, col0(64), l);
                }
                fence_async();
                arrive(base + 225536);
            }
            wait(base + 225632, parity(it, 1));
            {
                wait(base + 225616 + it % 2 * 8, parity(it, 2) ^ 1);
                float s67 = 0;
                u32 t7[32];
                read_columns<4>(t7 + 0, base + 16384 + 0, 128, col0(64), l);
                read_columns<4>(t7 + 16, base + 16384 + 8192, 128, col0(64), l);
                u32 t8[32];
                read_columns<4>(t8 + 0, base + 139264 + 0, 128, col0(64), l);
                read_columns<4>(t8 + 16, base + 139264 + 8192, 128, col0(64), l);
                UNROLL for (int e = 0; e < 64; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x67 = (e & 1 ? high(t7[e / 2]) : low(t7[e / 2])) * (e & 1 ? high(t8[e / 2]) : low(t8[e / 2]));
                    s67 += x67;
                }
                put_sum(base + 220192 + it % 2 * 4640, warp - 4, s67, l);
            }
            wait(base + 225504, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 49152, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            {
                float s111[2] = { 0 };
                u32 t3[16];
                read_columns<4>(t3 + 0, base + 49152 + 0, 64, col0(64), l);
                u32 t75[16];
                read_columns<4>(t75 + 0, base + 65536 + 0, 64, col0(64), l);
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x111 = (e & 1 ? high(t3[e / 2]) : low(t3[e / 2])) * (e & 1 ? high(t75[e / 2]) : low(t75[e / 2]));
                    s111[h] += x111;
                }
                put_row_sums<64>(base + 220224 + it % 2 * 4640, group, s111, l);
            }
            wait(base + 225472, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 0, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wgmma_fence();
            multiply_tiles<0, 1, 8, 0, 0>(f14, base + 0, 64, 0, base + 16384, 128, col0(64) + 0);
            wgmma_commit();
            wait(base + 225584, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 122880, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wgmma_fence();
            multiply_tiles<0, 0, 8, 0, 0>(f37, base + 122880, 64, 0, base + 0, 64, col0(32) + 0);
            wgmma_commit();
            wgmma_wait<1>();
            keep(f14);
            keep(f53);
            keep(f95);
            fence_async();
            arrive(base + 225496);
            matrix_sync<2>();
            {
                float r4[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r4[h] = parts_sum<1>(base + 212992 + it % 2 * 768, 64, l.row + 8 * h);
                float r13[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r13[h] = parts_sum<1>(base + 213248 + it % 2 * 768, 64, l.row + 8 * h);
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
                    write_columns<4>(base + 172032 + 0, p, 64, col0(64), l);
                }
            }
            fence_async();
            arrive(base + 225512);
            wait(base + 225552, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 98304, 1, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            fence_async();
            matrix_sync<2>();
            wgmma_fence();
            multiply_tiles<0, 1, 4, 0, 0>(f25, base + 98304, 64, 0, base + 172032, 64, col0(64) + 0);
            wgmma_commit();
            wgmma_wait<0>();
            keep(f25);
            keep(f37);
            arrive(base + 225560);
            matrix_sync<2>();
            {
                {
                    u32 p[16];
                    pack_rows(p, f25 + 0, l, x.n);
                    write_columns<4>(base + 172032 + 0, p, 64, col0(64), l);
                }
            }
            fence_async();
            matrix_sync<2>();
            wgmma_fence();
            multiply_tiles<0, 0, 8, 0, 0>(f44, base + 106496, 64, 0, base + 172032, 64, col0(32) + 0);
            wgmma_commit();
            wgmma_fence();
            multiply_tiles<0, 0, 8, 0, 0>(f77, base + 65536, 64, 0, base + 172032, 64, col0(32) + 0);
            wgmma_commit();
            wgmma_wait<1>();
            keep(f44);
            arrive(base + 225576);
            wait(base + 225408 + it % 2 * 8, parity(it, 2));
            {
                float r11[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r11[h] = LOG2E * parts_sum<1>(base + 214528 + it % 2 * 256, 64, l.row + 8 * h);
                float c11[8];
                UNROLL for (int e = 0; e < 8; e++)
                    c11[e] = LOG2E * parts_sum<1>(base + 214528 + it % 2 * 256, 64, col0(32) + e / 2 * 8 + l.col + e % 2);
                float f48[16];
                const int over = l.row - l.col;
                UNROLL for (int e = 0; e < 16; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                    const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const int past = col0(32) + e % 16 / 4 * 8 + e % 2 - 8 * h - e / 16 * 64;
                    const float x36 = kept_(over >= past, exp2_(r11[h] - c11[e / 4 * 2 + e % 2]));
                    f36[e] = x36;
                    const float x48 = x36 * f44[e];
                    f48[e] = x48;
                }
                {
                    u32 p[8];
                    pack_rows(p, f48 + 0, l, x.n);
                    write_columns<2>(base + 204800 + 0, p, 64, col0(32), l);
                }
            }
            {
                float s51[2] = { 0 };
                float s52[8] = { 0 };
                UNROLL for (int e = 0; e < 16; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                    const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x47 = f37[e] * f44[e];
                    const float x51 = f36[e] * x47;
                    const float x52 = f36[e] * x47;
                    s51[h] += col < x.n ? x51 : 0.f;
                    s52[e / 4 * 2 + e % 2] += row < x.n ? x52 : 0.f;
                }
                put_column_sums(base + 216608 + it % 2 * 4640, 64, col0(32), s52, l);
                put_row_sums<64>(base + 216096 + it % 2 * 4640, group, s51, l);
            }
            fence_async();
            matrix_sync<2>();
            wgmma_fence();
            multiply_tiles<0, 1, 4, 0, 0>(f49, base + 204800, 64, 0, base + 0, 64, col0(64) + 0);
            wgmma_commit();
            wgmma_wait<1>();
            keep(f77);
            arrive(base + 225528);
            {
                float r11[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r11[h] = LOG2E * parts_sum<1>(base + 214528 + it % 2 * 256, 64, l.row + 8 * h);
                float c11[8];
                UNROLL for (int e = 0; e < 8; e++)
                    c11[e] = LOG2E * parts_sum<1>(base + 214528 + it % 2 * 256, 64, col0(32) + e / 2 * 8 + l.col + e % 2);
                float r4[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r4[h] = parts_sum<1>(base + 212992 + it % 2 * 768, 64, l.row + 8 * h);
                float f79[16];
                float f82[16];
                const int over = l.row - l.col;
                UNROLL for (int e = 0; e < 16; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                    const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const int past = col0(32) + e % 16 / 4 * 8 + e % 2 - 8 * h - e / 16 * 64;
                    const float x20 = kept_(over > past, exp2_(r11[h] - c11[e / 4 * 2 + e % 2]));
                    const float x76 = kept_(over > past, 1.f);
                    const float x78 = x76 * f77[e];
                    const float x79 = x20 * x78;
                    f79[e] = x79;
                    const float x82 = r4[h] * x79;
                    f82[e] = x82;
                }
                {
                    u32 p[8];
                    pack_rows(p, f79 + 0, l, x.n);
                    write_columns<2>(base + 188416 + 0, p, 64, col0(32), l);
                }
                {
                    u32 p[8];
                    pack_rows(p, f82 + 0, l, x.n);
                    write_columns<2>(base + 196608 + 0, p, 64, col0(32), l);
                }
            }
            arrive(base + 225424 + it % 2 * 8);
            wgmma_fence();
            multiply_tiles<1, 1, 4, 0, 0>(f50, base + 204800, 64, 0, base + 122880, 64, col0(64) + 0);
            wgmma_commit();
            wgmma_wait<1>();
            keep(f49);
            {
                float s54[2] = { 0 };
                u32 t1[16];
                read_columns<4>(t1 + 0, base + 122880 + 0, 64, col0(64), l);
                float r13[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r13[h] = parts_sum<1>(base + 213248 + it % 2 * 768, 64, l.row + 8 * h);
                float f57[32];
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x54 = (e & 1 ? high(t1[e / 2]) : low(t1[e / 2])) * f53[e];
                    const float x56 = r13[h] * f53[e];
                    const float x57 = f49[e] + x56;
                    f57[e] = x57;
                    s54[h] += x54;
                }
                put_row_sums<64>(base + 217632 + it % 2 * 4640, group, s54, l);
                wait(base + 225544, parity((it * 3 + 1), 1) ^ 1);
                {
                    u32 p[16];
                    pack_rows(p, f57 + 0, l, x.n);
                    write_columns<4>(base + 81920 + 0, p, 64, col0(64), l);
                }
                fence_async();
                arrive(base + 225536);
            }
            wgmma_fence();
            multiply_tiles<0, 0, 8, 0, 0>(f59, base + 172032, 64, 0, base + 139264, 128, col0(64) + 0);
            wgmma_commit();
            matrix_sync<2>();
            wgmma_fence();
            multiply_tiles<0, 1, 4, 0, 0>(f80, base + 188416, 64, 0, base + 0, 64, col0(64) + 0);
            wgmma_commit();
            wgmma_fence();
            multiply_tiles<1, 1, 4, 0, 0>(f85, base + 196608, 64, 0, base + 0, 64, col0(64) + 0);
            wgmma_commit();
            wgmma_wait<0>();
            keep(f50);
            keep(f59);
            keep(f80);
            keep(f85);
            fence_async();
            arrive(base + 225592);
            arrive(base + 225640);
            {
                float s64[2] = { 0 };
                float s81[2] = { 0 };
                float s89[2] = { 0 };
                float s96[2] = { 0 };
                float r28[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r28[h] = parts_sum<1>(base + 213504 + it % 2 * 768, 64, l.row + 8 * h);
                u32 t2[16];
                read_columns<4>(t2 + 0, base + 0 + 0, 64, col0(64), l);
                float r4[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r4[h] = parts_sum<1>(base + 212992 + it % 2 * 768, 64, l.row + 8 * h);
                float r13[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r13[h] = parts_sum<1>(base + 213248 + it % 2 * 768, 64, l.row + 8 * h);
                float f105[32];
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x60 = r28[h] * f59[e];
                    const float x64 = (e & 1 ? high(t2[e / 2]) : low(t2[e / 2])) * f59[e];
                    const float x81 = (e & 1 ? high(t2[e / 2]) : low(t2[e / 2])) * f80[e];
                    const float x83 = r4[h] * f80[e];
                    const float x84 = x60 - x83;
                    const float x86 = f50[e] - f85[e];
                    const float x89 = (e & 1 ? high(t2[e / 2]) : low(t2[e / 2])) * f85[e];
                    const float x92 = x84 + x86;
                    const float x96 = (e & 1 ? high(t2[e / 2]) : low(t2[e / 2])) * f95[e];
                    const float x103 = r13[h] * f95[e];
                    const float x104 = r4[h] * x103;
                    const float x105 = x92 - x104;
                    f105[e] = x105;
                    s64[h] += x64;
                    s81[h] += x81;
                    s89[h] += x89;
                    s96[h] += x96;
                }
                put_row_sums<64>(base + 218144 + it % 2 * 4640, group, s64, l);
                put_row_sums<64>(base + 218656 + it % 2 * 4640, group, s81, l);
                put_row_sums<64>(base + 219168 + it % 2 * 4640, group, s89, l);
                put_row_sums<64>(base + 219680 + it % 2 * 4640, group, s96, l);
                wait(base + 225544, parity((it * 3 + 2), 1) ^ 1);
                {
                    u32 p[16];
                    pack_rows(p, f105 + 0, l, x.n);
                    write_columns<4>(base + 81920 + 0, p, 64, col0(64), l);
                }
                fence_async();
                arrive(base + 225536);
            }
            arrive(base + 225600 + it % 2 * 8);
            fence_async();
            arrive(base + 225392 + it % 2 * 8);
            arrive(base + 225480);
            it++;
        }
    }
}
}  // in_k3_token
