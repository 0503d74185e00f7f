#define THREADS 512
#define RANK 2
#include "numbers.cuh"
#include "warp.cuh"
#include "run.cuh"
#include "tile.cuh"
#include "products.cuh"
#include "scans.cuh"
extern __shared__ char arena[];

// forward (token), 114688 bytes a chunk and head predicted: %1 %2 %4 %8
// %9 %10 %22 %23 %24
namespace in_k0_token {
struct Args { TensorMap map[4]; Tensor tensor[3]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 2) k0_token(const __grid_constant__ Args a)
{
    alignas(1024) extern __shared__ unsigned char raw[];
    const u32 base = shared_address(raw);
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 110592 + 8 * i, 1);
            barrier_init(base + 110608 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 110624 + 8 * i, 1);
            barrier_init(base + 110632 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 110640 + 8 * i, 1);
            barrier_init(base + 110648 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 110656 + 8 * i, 256);
            barrier_init(base + 110664 + 8 * i, 32);
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
                wait(base + 110608 + it % 2 * 8, parity(it, 2) ^ 1);
                {
                    const u32 full = base + 110592 + it % 2 * 8, to = base + 0 + it % 2 * 16384;
                    arrive_expecting(full, 16384);
                    const int head = head_of(a.tensor[0], x.head);
                    load_tile(to + 0, &a.map[0], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[0], full, 64, x.row, head, x.where.b);
                }
                wait(base + 110632, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 110624, to = base + 32768;
                    arrive_expecting(full, 16384);
                    const int head = head_of(a.tensor[1], x.head);
                    load_tile(to + 0, &a.map[1], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[1], full, 64, x.row, head, x.where.b);
                }
                wait(base + 110648, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 110640, to = base + 49152;
                    arrive_expecting(full, 16384);
                    const int head = head_of(a.tensor[2], x.head);
                    load_tile(to + 0, &a.map[2], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[2], full, 64, x.row, head, x.where.b);
                }
            }
            if (warp == 1) {
                wait(base + 110656, parity(it, 1));
                if (lane == 0) {
                    const u32 from = base + 65536;
                    store_tile(&a.map[3], from + 0, 0, 0, 0, (int)x.at);
                }
                bulk_commit();
                bulk_wait_read();
                arrive(base + 110664);
            }
            it++;
        }
        if (warp == 1)
            bulk_wait();
    }
    else {
        more_registers<96>();
        const Lane l = opposed_lane_of((int)threadIdx.x);
        const int thread = (int)threadIdx.x - 128, group = uniform(thread >> 7);
        auto col0 = [&](int share) { return group * share; };
        u32 it = 0;
        NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
            Item x;
            if (!find_item<1>(a.run, item, x))
                continue;
            float f24[16];
            const Lane l = opposed_lane_of(fresh((int)threadIdx.x));
            wait(base + 110592 + it % 2 * 8, parity(it, 2));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 0 + it % 2 * 16384, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            matrix_sync<2>();
            {
                u32 t4[16];
                read_columns<4>(t4 + 0, base + 0 + it % 2 * 16384 + 0, 64, col0(64), l);
                float z9 = 0;
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x9 = max_((e & 1 ? high(t4[e / 2]) : low(t4[e / 2])), bits(0xc2d00000));
                    if (e % 2)
                        store2(base + 74272 + row * 544 + 4 * (col - 1), z9, row < x.n ? x9 : 0.f);
                    else
                    z9 = row < x.n ? x9 : 0.f;
                }
            }
            fence_async();
            arrive(base + 110608 + it % 2 * 8);
            matrix_sync<2>();
            scan_rows<128, 64, 0>(base + 74272, 0u, col0(64), l);
            wait(base + 110624, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 32768, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wait(base + 110640, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 49152, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            matrix_sync<2>();
            {
                float *const sum[] = { f24 };
                const u32 row[] = { base + 32768 }, col[] = { base + 49152 };
                const u32 decays[] = { base + 74272 };
                const int strict[] = { 0 };
                decayed_scores<128, 16>(sum, row, col, decays, strict, base + 74272, col0(32), l);
            }
            fence_async();
            arrive(base + 110632);
            arrive(base + 110648);
            {
                wait(base + 110664, parity(it, 1) ^ 1);
                {
                    u32 p[8];
                    pack_rows(p, f24 + 0, l, x.n);
                    write_columns<2>(base + 65536 + 0, p, 64, col0(32), l);
                }
            }
            fence_async();
            arrive(base + 110656);
            it++;
        }
    }
}
}  // in_k0_token

// forward (forward), 245760 bytes a chunk and head predicted: %1 %2 %3
// %4 %6 %8 %9 %10 %11 %12 %13 %14 %15 %16 %17 %18 %19 %20 %21 %25 %26
// %27
namespace in_k1_forward {
struct Args { TensorMap map[7]; Tensor tensor[7]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 1) k1_forward(const __grid_constant__ Args a)
{
    alignas(1024) extern __shared__ unsigned char raw[];
    const u32 base = shared_address(raw);
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 225280 + 8 * i, 1);
            barrier_init(base + 225296 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 225312 + 8 * i, 256);
            barrier_init(base + 225320 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 225328 + 8 * i, 1);
            barrier_init(base + 225344 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 225360 + 8 * i, 1);
            barrier_init(base + 225368 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 225376 + 8 * i, 1);
            barrier_init(base + 225384 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 225392 + 8 * i, 1);
            barrier_init(base + 225400 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 225408 + 8 * i, 256);
            barrier_init(base + 225416 + 8 * i, 32);
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
                    find_chunk(a.run, m, x);
                    wait(base + 225296 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        const u32 full = base + 225280 + it % 2 * 8, to = base + 0 + it % 2 * 16384;
                        arrive_expecting(full, 16384);
                        load_tile(to + 0, &a.map[0], full, 0, x.row, head0, x.where.b);
                        load_tile(to + 8192, &a.map[0], full, 64, x.row, head0, x.where.b);
                    }
                    wait(base + 225344 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        const u32 full = base + 225328 + it % 2 * 8, to = base + 65536 + it % 2 * 16384;
                        arrive_expecting(full, 16384);
                        load_tile(to + 0, &a.map[1], full, 0, x.row, head1, x.where.b);
                        load_tile(to + 8192, &a.map[1], full, 64, x.row, head1, x.where.b);
                    }
                    wait(base + 225368, parity(it, 1) ^ 1);
                    {
                        const u32 full = base + 225360, to = base + 98304;
                        arrive_expecting(full, 16384);
                        load_tile(to + 0, &a.map[2], full, 0, x.row, head2, x.where.b);
                        load_tile(to + 8192, &a.map[2], full, 64, x.row, head2, x.where.b);
                    }
                    wait(base + 225384, parity(it, 1) ^ 1);
                    {
                        const u32 full = base + 225376, to = base + 114688;
                        arrive_expecting(full, 8192);
                        load_tile(to + 0, &a.map[3], full, 0, 0, 0, (int)x.at);
                    }
                    wait(base + 225400, parity(it, 1) ^ 1);
                    {
                        const u32 full = base + 225392, to = base + 122880;
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
                    find_chunk(a.run, m, x);
                    wait(base + 225312, parity(it, 1));
                    if (lane == 0) {
                        const u32 from = base + 32768;
                        store_tile(&a.map[5], from + 0, 0, 0, 0, (int)x.at);
                        store_tile(&a.map[5], from + 8192, 0, 64, 0, (int)x.at);
                        store_tile(&a.map[5], from + 16384, 64, 0, 0, (int)x.at);
                        store_tile(&a.map[5], from + 24576, 64, 64, 0, (int)x.at);
                    }
                    bulk_commit();
                    bulk_wait_read();
                    arrive(base + 225320);
                    wait(base + 225408, parity(it, 1));
                    if (a.tensor[4].p) {
                        const u32 from = base + 139264;
                        const int c = (x.row - x.where.start) / 64;
                        NO_UNROLL for (int i = 0; i < 2; i++)
                            store_chunk(a.map[6], a.tensor[4], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                        bulk_commit();
                        bulk_wait_read();
                    }
                    arrive(base + 225416);
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
            float f6[64];
            float f21[32];
            const Lane l = lane_of(fresh((int)threadIdx.x));
            begin_state<float, 128, 64>(f6, a.tensor[5], x, 0, 0 + col0(64), l);
            NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                find_chunk(a.run, m, x);
                wait(base + 225280 + it % 2 * 8, parity(it, 2));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 0 + it % 2 * 16384, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                {
                    u32 t4[16];
                    read_columns<4>(t4 + 0, base + 0 + it % 2 * 16384 + 0, 64, col0(64), l);
                    float z9 = 0;
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x9 = max_((e & 1 ? high(t4[e / 2]) : low(t4[e / 2])), bits(0xc2d00000));
                        if (e % 2)
                            store2(base + 156192 + row * 544 + 4 * (col - 1), z9, row < x.n ? x9 : 0.f);
                        else
                        z9 = row < x.n ? x9 : 0.f;
                    }
                }
                fence_async();
                arrive(base + 225296 + it % 2 * 8);
                matrix_sync<2>();
                scan_rows<128, 64, 0>(base + 156192, base + 208896, col0(64), l);
                matrix_sync<2>();
                {
                    wait(base + 225320, parity(it, 1) ^ 1);
                    {
                        u32 p[16];
                        pack_rows(p, f6 + 0, l, 64);
                        write_columns<4>(base + 32768 + 0, p, 128, col0(64), l);
                    }
                    {
                        u32 p[16];
                        pack_rows(p, f6 + 32, l, 64);
                        write_columns<4>(base + 32768 + 8192, p, 128, col0(64), l);
                    }
                    float r11[4];
                    UNROLL for (int h = 0; h < 4; h++)
                        r11[h] = parts_sum<1>(base + 208896, 128, l.row + h / 2 * 64 + h % 2 * 8);
                    UNROLL for (int e = 0; e < 64; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x14 = exp_(r11[h + e / 32 * 2]);
                        const float x15 = f6[e] * x14;
                        f6[e] = x15;
                    }
                }
                fence_async();
                arrive(base + 225312);
                wait(base + 225328 + it % 2 * 8, parity(it, 2));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 65536 + it % 2 * 16384, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                {
                    const Lane l = lane_of(fresh((int)threadIdx.x));
                    u32 t2[4];
                    float2 y11 = { 0, 0 };
                    float2 y10 = { 0, 0 };
                    float f16[32];
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        if (e % 8 == 0)
                            read_columns<1>(t2, base + 65536 + it % 2 * 16384, 64, col0(64) + 2 * e, l);
                        if (e % 4 == 0)
                            y11 = parts_column<1>(base + 208896, 128, col);
                        if (e % 2 == 0)
                            y10 = load2(base + 156192 + row * 544 + 4 * col);
                        const float x12 = (e & 1 ? y11.y : y11.x) - (e & 1 ? y10.y : y10.x);
                        const float x13 = exp_(x12);
                        const float x16 = (e & 1 ? high(t2[e / 2 % 4]) : low(t2[e / 2 % 4])) * x13;
                        f16[e] = x16;
                    }
                    {
                        u32 p[16];
                        pack_rows(p, f16 + 0, l, x.n);
                        write_columns<4>(base + 192512 + 0, p, 64, col0(64), l);
                    }
                }
                fence_async();
                arrive(base + 225344 + it % 2 * 8);
                wait(base + 225360, parity(it, 1));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 98304, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                fence_async();
                matrix_sync<2>();
                {
                    const Lane l = lane_of(fresh((int)threadIdx.x));
                    u32 t1[4];
                    float2 y10 = { 0, 0 };
                    float f20[32];
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        if (e % 8 == 0)
                            read_columns<1>(t1, base + 98304, 64, col0(64) + 2 * e, l);
                        if (e % 2 == 0)
                            y10 = load2(base + 156192 + row * 544 + 4 * col);
                        const float x19 = exp_((e & 1 ? y10.y : y10.x));
                        const float x20 = (e & 1 ? high(t1[e / 2 % 4]) : low(t1[e / 2 % 4])) * x19;
                        f20[e] = x20;
                    }
                    {
                        u32 p[16];
                        pack_rows(p, f20 + 0, l, x.n);
                        write_columns<4>(base + 208896 + 0, p, 64, col0(64), l);
                    }
                }
                fence_async();
                arrive(base + 225368);
                wait(base + 225376, parity(it, 1));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 114688, 1, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                wait(base + 225392, parity(it, 1));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 122880, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                fence_async();
                matrix_sync<2>();
                wgmma_fence();
                multiply_tiles<0, 1, 8, 0, 0>(f21, base + 208896, 64, 0, base + 32768, 128, col0(64) + 0);
                keep(f21);
                wgmma_fence();
                multiply_tiles<0, 1, 4, 1, 0>(f21, base + 114688, 64, 0, base + 122880, 64, col0(64) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                arrive(base + 225384);
                keep(f21);
                keep(f21);
                {
                    wait(base + 225416, parity(it, 1) ^ 1);
                    {
                        u32 p[16];
                        pack_rows(p, f21 + 0, l, x.n);
                        write_columns<4>(base + 139264 + 0, p, 64, col0(64), l);
                    }
                }
                fence_async();
                arrive(base + 225408);
                keep(f6);
                wgmma_fence();
                multiply_tiles<1, 1, 4, 1, 0>(registers<32>(f6, 0), base + 192512, 64, 0, base + 122880, 64, col0(64) + 0);
                multiply_tiles<1, 1, 4, 1, 0>(registers<32>(f6, 32), base + 192512, 64, 64, base + 122880, 64, col0(64) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                arrive(base + 225400);
                keep(f6);
            }
            end_state<float, 128, 64>(f6, a.tensor[6], x, 0, 0 + col0(64), l);
        }
    }
}
}  // in_k1_forward

// backward (reverse), 163840 bytes a chunk and head predicted: %1 %4 %5
// %7 %8 %9 %10 %11 %14 %19 %20 %36 %47 %48
namespace in_k2_reverse {
struct Args { TensorMap map[4]; Tensor tensor[5]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 2) k2_reverse(const __grid_constant__ Args a)
{
    alignas(1024) extern __shared__ unsigned char raw[];
    const u32 base = shared_address(raw);
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 109824 + 8 * i, 1);
            barrier_init(base + 109840 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 109856 + 8 * i, 1);
            barrier_init(base + 109872 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 109888 + 8 * i, 256);
            barrier_init(base + 109896 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 109904 + 8 * i, 1);
            barrier_init(base + 109920 + 8 * i, 256);
        }
        barrier_init_fence();
    }
    __syncthreads();
    const int warp = uniform(threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (warp < 4) {
        fewer_registers<48>();
        if (warp == 0 && lane == 0) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<2>(a.run, item, x);
                const int head0 = head_of(a.tensor[0], x.head);
                const int head1 = head_of(a.tensor[1], x.head);
                const int head2 = head_of(a.tensor[2], x.head);
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, chunks - 1 - m, x);
                    wait(base + 109840 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        const u32 full = base + 109824 + it % 2 * 8, to = base + 0 + it % 2 * 8192;
                        arrive_expecting(full, 8192);
                        load_tile(to + 0, &a.map[0], full, x.slice * 64 + 0, x.row, head0, x.where.b);
                    }
                    wait(base + 109872 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        const u32 full = base + 109856 + it % 2 * 8, to = base + 16384 + it % 2 * 8192;
                        arrive_expecting(full, 8192);
                        load_tile(to + 0, &a.map[1], full, x.slice * 64 + 0, x.row, head1, x.where.b);
                    }
                    wait(base + 109920 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        const u32 full = base + 109904 + it % 2 * 8, to = base + 49152 + it % 2 * 16384;
                        arrive_expecting(full, 16384);
                        load_tile(to + 0, &a.map[2], full, 0, x.row, head2, x.where.b);
                        load_tile(to + 8192, &a.map[2], full, 64, x.row, head2, x.where.b);
                    }
                }
            }
        }
        if (warp == 1) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<2>(a.run, item, x);
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, chunks - 1 - m, x);
                    wait(base + 109888, parity(it, 1));
                    if (lane == 0) {
                        const u32 from = base + 32768;
                        store_tile(&a.map[3], from + 0, 0, x.slice * 64 + 0, 0, (int)x.at);
                        store_tile(&a.map[3], from + 8192, 64, x.slice * 64 + 0, 0, (int)x.at);
                    }
                    bulk_commit();
                    bulk_wait_read();
                    arrive(base + 109896);
                }
            }
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
            const int chunks = find_walk<2>(a.run, item, x);
            float f7[32];
            const Lane l = lane_of(fresh((int)threadIdx.x));
            begin_state<float, 64, 64>(f7, a.tensor[3], x, x.slice * 64 + 0, 0 + col0(64), l);
            NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                find_chunk(a.run, chunks - 1 - m, x);
                wait(base + 109824 + it % 2 * 8, parity(it, 2));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 0 + it % 2 * 8192, 1, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                {
                    u32 t4[8];
                    read_columns<2>(t4 + 0, base + 0 + it % 2 * 8192 + 0, 64, col0(32), l);
                    float z9 = 0;
                    UNROLL for (int e = 0; e < 16; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                        const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x9 = max_((e & 1 ? high(t4[e / 2]) : low(t4[e / 2])), bits(0xc2d00000));
                        if (e % 2)
                            store2(base + 82208 + row * 288 + 4 * (col - 1), z9, row < x.n ? x9 : 0.f);
                        else
                        z9 = row < x.n ? x9 : 0.f;
                    }
                }
                fence_async();
                arrive(base + 109840 + it % 2 * 8);
                matrix_sync<2>();
                scan_rows<64, 32, 0>(base + 82208, base + 109568, col0(32), l);
                wait(base + 109856 + it % 2 * 8, parity(it, 2));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 16384 + it % 2 * 8192, 1, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                matrix_sync<2>();
                {
                    const Lane l = lane_of(fresh((int)threadIdx.x));
                    u32 t1[4];
                    float2 y10 = { 0, 0 };
                    float f20[16];
                    UNROLL for (int e = 0; e < 16; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                        const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        if (e % 8 == 0)
                            read_columns<1>(t1, base + 16384 + it % 2 * 8192, 64, col0(32) + 2 * e, l);
                        if (e % 2 == 0)
                            y10 = load2(base + 82208 + row * 288 + 4 * col);
                        const float x19 = exp_((e & 1 ? y10.y : y10.x));
                        const float x20 = (e & 1 ? high(t1[e / 2 % 4]) : low(t1[e / 2 % 4])) * x19;
                        f20[e] = x20;
                    }
                    {
                        u32 p[8];
                        pack_rows(p, f20 + 0, l, x.n);
                        write_columns<2>(base + 101376 + 0, p, 64, col0(32), l);
                    }
                }
                fence_async();
                arrive(base + 109872 + it % 2 * 8);
                {
                    wait(base + 109896, parity(it, 1) ^ 1);
                    {
                        u32 p[16];
                        pack_rows(p, f7 + 0, l, 64);
                        write_columns<4>(base + 32768 + 0, p, 64, col0(64), l);
                    }
                    float r11[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r11[h] = parts_sum<1>(base + 109568, 64, l.row + 8 * h);
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                        const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x14 = exp_(r11[h]);
                        const float x47 = f7[e] * x14;
                        f7[e] = x47;
                    }
                }
                fence_async();
                arrive(base + 109888);
                wait(base + 109904 + it % 2 * 8, parity(it, 2));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 49152 + it % 2 * 16384, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                matrix_sync<2>();
                keep(f7);
                wgmma_fence();
                multiply_tiles<1, 1, 4, 1, 0>(f7, base + 101376, 64, 0, base + 49152 + it % 2 * 16384, 64, col0(64) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                arrive(base + 109920 + it % 2 * 8);
                keep(f7);
            }
            end_state<float, 64, 64>(f7, a.tensor[4], x, x.slice * 64 + 0, 0 + col0(64), l);
        }
    }
}
}  // in_k2_reverse

// backward (token), 442368 bytes a chunk and head predicted: %1 %2 %3 %4
// %5 %8 %9 %10 %11 %12 %13 %14 %16 %19 %22 %23 %25 %28 %29 %30 %31 %32
// %33 %34 %35 %37 %38 %39 %40 %41 %42 %43 %44 %45 %46 %49 %50 %51 %52
// %53 %54 %55 %56 %57 %58 %59
namespace in_k3_token {
struct Args { TensorMap map[12]; Tensor tensor[9]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 1) k3_token(const __grid_constant__ Args a)
{
    alignas(1024) extern __shared__ unsigned char raw[];
    const u32 base = shared_address(raw);
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 226304 + 8 * i, 32);
            barrier_init(base + 226320 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 226336 + 8 * i, 1);
            barrier_init(base + 226344 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 226352 + 8 * i, 1);
            barrier_init(base + 226360 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 226368 + 8 * i, 1);
            barrier_init(base + 226376 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 226384 + 8 * i, 1);
            barrier_init(base + 226392 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 226400 + 8 * i, 1);
            barrier_init(base + 226408 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 226416 + 8 * i, 1);
            barrier_init(base + 226424 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 226432 + 8 * i, 1);
            barrier_init(base + 226440 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 226448 + 8 * i, 256);
            barrier_init(base + 226456 + 8 * i, 32);
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
                wait(base + 226392, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 226384, to = base + 49152;
                    arrive_expecting(full, 16384);
                    const int head = head_of(a.tensor[0], x.head);
                    load_tile(to + 0, &a.map[0], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[0], full, 64, x.row, head, x.where.b);
                }
                wait(base + 226408, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 226400, to = base + 65536;
                    arrive_expecting(full, 16384);
                    const int head = head_of(a.tensor[1], x.head);
                    load_tile(to + 0, &a.map[1], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[1], full, 64, x.row, head, x.where.b);
                }
                wait(base + 226424, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 226416, to = base + 81920;
                    arrive_expecting(full, 32768);
                    load_tile(to + 0, &a.map[2], full, 0, 0, 0, (int)x.at);
                    load_tile(to + 8192, &a.map[2], full, 0, 64, 0, (int)x.at);
                    load_tile(to + 16384, &a.map[2], full, 64, 0, 0, (int)x.at);
                    load_tile(to + 24576, &a.map[2], full, 64, 64, 0, (int)x.at);
                }
                wait(base + 226360, parity((it * 2 + 0), 1) ^ 1);
                {
                    const u32 full = base + 226352, to = base + 16384;
                    arrive_expecting(full, 16384);
                    const int head = head_of(a.tensor[2], x.head);
                    load_tile(to + 0, &a.map[3], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[3], full, 64, x.row, head, x.where.b);
                }
                wait(base + 226376, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 226368, to = base + 32768;
                    arrive_expecting(full, 16384);
                    const int head = head_of(a.tensor[3], x.head);
                    load_tile(to + 0, &a.map[4], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[4], full, 64, x.row, head, x.where.b);
                }
                wait(base + 226440, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 226432, to = base + 114688;
                    arrive_expecting(full, 32768);
                    load_tile(to + 0, &a.map[5], full, 0, 0, 0, (int)x.at);
                    load_tile(to + 8192, &a.map[5], full, 0, 64, 0, (int)x.at);
                    load_tile(to + 16384, &a.map[5], full, 64, 0, 0, (int)x.at);
                    load_tile(to + 24576, &a.map[5], full, 64, 64, 0, (int)x.at);
                }
                wait(base + 226344, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 226336, to = base + 0;
                    arrive_expecting(full, 16384);
                    const int head = head_of(a.tensor[4], x.head);
                    load_tile(to + 0, &a.map[6], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[6], full, 64, x.row, head, x.where.b);
                }
                wait(base + 226360, parity((it * 2 + 1), 1) ^ 1);
                {
                    const u32 full = base + 226352, to = base + 16384;
                    arrive_expecting(full, 8192);
                    load_tile(to + 0, &a.map[7], full, 0, 0, 0, (int)x.at);
                }
            }
            if (warp == 1) {
                wait(base + 226448, parity((it * 4 + 0), 1));
                if (a.tensor[5].p) {
                    const u32 from = base + 147456;
                    const int c = (x.row - x.where.start) / 64;
                    NO_UNROLL for (int i = 0; i < 2; i++)
                        store_chunk(a.map[8], a.tensor[5], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                    bulk_commit();
                    bulk_wait_read();
                }
                arrive(base + 226456);
                wait(base + 226448, parity((it * 4 + 1), 1));
                if (a.tensor[6].p) {
                    const u32 from = base + 147456;
                    const int c = (x.row - x.where.start) / 64;
                    NO_UNROLL for (int i = 0; i < 2; i++)
                        store_chunk(a.map[9], a.tensor[6], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                    bulk_commit();
                    bulk_wait_read();
                }
                arrive(base + 226456);
                wait(base + 226448, parity((it * 4 + 2), 1));
                if (a.tensor[7].p) {
                    const u32 from = base + 147456;
                    const int c = (x.row - x.where.start) / 64;
                    NO_UNROLL for (int i = 0; i < 2; i++)
                        store_chunk(a.map[10], a.tensor[7], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                    bulk_commit();
                    bulk_wait_read();
                }
                arrive(base + 226456);
                wait(base + 226448, parity((it * 4 + 3), 1));
                if (a.tensor[8].p) {
                    const u32 from = base + 147456;
                    const int c = (x.row - x.where.start) / 64;
                    NO_UNROLL for (int i = 0; i < 2; i++)
                        store_chunk(a.map[11], a.tensor[8], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                    bulk_commit();
                    bulk_wait_read();
                }
                arrive(base + 226456);
            }
            if (warp == 2) {
                Pair v29 = running_sum(Pair { 0.f, 0.f }, lane, x.n);
                wait(base + 226320 + it % 2 * 8, parity(it, 2) ^ 1);
                store_pair(base + 225792 + it % 2 * 256, v29, lane);
                arrive(base + 226304 + it % 2 * 8);
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
            float f30[16];
            float f33[32];
            float f34[32];
            float f37[32];
            float f43[32];
            float f54[32];
            float f31[32];
            const Lane l = lane_of(fresh((int)threadIdx.x));
            wait(base + 226336, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 0, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            matrix_sync<2>();
            {
                u32 t4[16];
                read_columns<4>(t4 + 0, base + 0 + 0, 64, col0(64), l);
                float z9 = 0;
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x9 = max_((e & 1 ? high(t4[e / 2]) : low(t4[e / 2])), bits(0xc2d00000));
                    if (e % 2)
                        store2(base + 164384 + row * 544 + 4 * (col - 1), z9, row < x.n ? x9 : 0.f);
                    else
                    z9 = row < x.n ? x9 : 0.f;
                }
            }
            wait(base + 226352, parity((it * 2 + 0), 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 16384, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wait(base + 226368, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 32768, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wgmma_fence();
            multiply_tiles<0, 0, 8, 0, 0>(f30, base + 32768, 64, 0, base + 16384, 64, col0(32) + 0);
            wgmma_commit();
            wgmma_wait<0>();
            keep(f30);
            {
                {
                    u32 p[8];
                    pack_rows(p, f30 + 0, l, x.n);
                    write_columns<2>(base + 200704 + 0, p, 64, col0(32), l);
                }
            }
            fence_async();
            matrix_sync<2>();
            scan_rows<128, 64, 0>(base + 164384, base + 225280, col0(64), l);
            wait(base + 226384, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 49152, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            matrix_sync<2>();
            {
                const Lane l = lane_of(fresh((int)threadIdx.x));
                u32 t2[4];
                float2 y11 = { 0, 0 };
                float2 y10 = { 0, 0 };
                float f16[32];
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    if (e % 8 == 0)
                        read_columns<1>(t2, base + 49152, 64, col0(64) + 2 * e, l);
                    if (e % 4 == 0)
                        y11 = parts_column<1>(base + 225280, 128, col);
                    if (e % 2 == 0)
                        y10 = load2(base + 164384 + row * 544 + 4 * col);
                    const float x12 = (e & 1 ? y11.y : y11.x) - (e & 1 ? y10.y : y10.x);
                    const float x13 = exp_(x12);
                    const float x16 = (e & 1 ? high(t2[e / 2 % 4]) : low(t2[e / 2 % 4])) * x13;
                    f16[e] = x16;
                }
                {
                    u32 p[16];
                    pack_rows(p, f16 + 0, l, x.n);
                    write_columns<4>(base + 208896 + 0, p, 64, col0(64), l);
                }
            }
            wait(base + 226400, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 65536, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            {
                float *const sum[] = { f33 };
                decayed_sums<128, 32, 1, 0x4440>(sum, Terms<1> { { base + 200704 }, { base + 49152 }, { base + 164384 }, { 0 }, { 1.f }, { 1.f } }, base + 164384, base + 164384, col0(64), l);
            }
            {
                float *const sum[] = { f34 };
                decayed_sums<128, 32, 0, 0x4440>(sum, Terms<1> { { base + 200704 }, { base + 65536 }, { base + 164384 }, { 0 }, { 1.f }, { 1.f } }, base + 164384, base + 164384, col0(64), l);
            }
            wait(base + 226416, parity(it, 1));
            wgmma_fence();
            multiply_tiles<0, 0, 8, 0, 0>(f37, base + 32768, 64, 0, base + 81920, 128, col0(64) + 0);
            wait(base + 226432, parity(it, 1));
            wgmma_fence();
            multiply_tiles<0, 0, 8, 0, 0>(f43, base + 16384, 64, 0, base + 114688, 128, col0(64) + 0);
            wgmma_commit();
            wgmma_wait<0>();
            arrive(base + 226360);
            keep(f43);
            keep(f37);
            fence_async();
            matrix_sync<2>();
            {
                const Lane l = lane_of(fresh((int)threadIdx.x));
                float2 y10 = { 0, 0 };
                u32 t1[4];
                float2 y11 = { 0, 0 };
                u32 t2[4];
                float s51[16] = { 0 };
                float f39[32];
                float f45[32];
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    if (e % 2 == 0)
                        y10 = load2(base + 164384 + row * 544 + 4 * col);
                    if (e % 8 == 0)
                        read_columns<1>(t1, base + 65536, 64, col0(64) + 2 * e, l);
                    if (e % 4 == 0)
                        y11 = parts_column<1>(base + 225280, 128, col);
                    if (e % 8 == 0)
                        read_columns<1>(t2, base + 49152, 64, col0(64) + 2 * e, l);
                    const float x19 = exp_((e & 1 ? y10.y : y10.x));
                    const float x38 = x19 * f37[e];
                    const float x39 = f33[e] + x38;
                    f39[e] = x39;
                    const float x40 = (e & 1 ? high(t1[e / 2 % 4]) : low(t1[e / 2 % 4])) * x39;
                    const float x12 = (e & 1 ? y11.y : y11.x) - (e & 1 ? y10.y : y10.x);
                    const float x13 = exp_(x12);
                    const float x44 = x13 * f43[e];
                    const float x45 = f34[e] + x44;
                    f45[e] = x45;
                    const float x46 = (e & 1 ? high(t2[e / 2 % 4]) : low(t2[e / 2 % 4])) * f43[e];
                    const float x51 = x13 * x46;
                    const float x53 = (e & 1 ? high(t2[e / 2 % 4]) : low(t2[e / 2 % 4])) * x45;
                    const float x54 = x40 - x53;
                    f54[e] = x54;
                    s51[e / 4 * 2 + e % 2] += row < x.n ? x51 : 0.f;
                }
                put_column_sums(base + 200704, 128, col0(64), s51, l);
                wait(base + 226456, parity((it * 4 + 0), 1) ^ 1);
                {
                    u32 p[16];
                    pack_rows(p, f39 + 0, l, x.n);
                    write_columns<4>(base + 147456 + 0, p, 64, col0(64), l);
                }
                fence_async();
                arrive(base + 226448);
                wait(base + 226456, parity((it * 4 + 1), 1) ^ 1);
                {
                    u32 p[16];
                    pack_rows(p, f45 + 0, l, x.n);
                    write_columns<4>(base + 147456 + 0, p, 64, col0(64), l);
                }
                fence_async();
                arrive(base + 226448);
            }
            fence_async();
            arrive(base + 226392);
            arrive(base + 226408);
            {
                float s49[4] = { 0 };
                u32 t6[32];
                read_columns<4>(t6 + 0, base + 81920 + 0, 128, col0(64), l);
                read_columns<4>(t6 + 16, base + 81920 + 8192, 128, col0(64), l);
                u32 t7[32];
                read_columns<4>(t7 + 0, base + 114688 + 0, 128, col0(64), l);
                read_columns<4>(t7 + 16, base + 114688 + 8192, 128, col0(64), l);
                UNROLL for (int e = 0; e < 64; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x49 = (e & 1 ? high(t6[e / 2]) : low(t6[e / 2])) * (e & 1 ? high(t7[e / 2]) : low(t7[e / 2]));
                    s49[h + e / 32 * 2] += x49;
                }
                put_row_sums<128>(base + 202752, group, s49, l);
            }
            fence_async();
            arrive(base + 226424);
            wait(base + 226352, parity((it * 2 + 1), 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 16384, 1, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wgmma_fence();
            multiply_tiles<1, 1, 4, 0, 0>(f31, base + 16384, 64, 0, base + 32768, 64, col0(64) + 0);
            keep(f31);
            wgmma_fence();
            multiply_tiles<0, 1, 8, 1, 0>(f31, base + 208896, 64, 0, base + 114688, 128, col0(64) + 0);
            wgmma_commit();
            wgmma_wait<0>();
            fence_async();
            arrive(base + 226360);
            arrive(base + 226376);
            arrive(base + 226440);
            keep(f31);
            keep(f31);
            {
                wait(base + 226456, parity((it * 4 + 2), 1) ^ 1);
                {
                    u32 p[16];
                    pack_rows(p, f31 + 0, l, x.n);
                    write_columns<4>(base + 147456 + 0, p, 64, col0(64), l);
                }
                fence_async();
                arrive(base + 226448);
            }
            matrix_sync<2>();
            wait(base + 226304 + it % 2 * 8, parity(it, 2));
            {
                float d55[2];
                UNROLL for (int h = 0; h < 2; h++)
                    d55[h] = parts_sum<1>(base + 225792 + it % 2 * 256, 64, (l.row + 8 * h + 1) & 63);
                float c11[16];
                UNROLL for (int e = 0; e < 16; e++)
                    c11[e] = parts_sum<1>(base + 225280, 128, col0(64) + e / 2 * 8 + l.col + e % 2);
                float c49[16];
                UNROLL for (int e = 0; e < 16; e++)
                    c49[e] = parts_sum<2>(base + 202752, 128, col0(64) + e / 2 * 8 + l.col + e % 2);
                float c51[16];
                UNROLL for (int e = 0; e < 16; e++)
                    c51[e] = parts_sum<4>(base + 200704, 128, col0(64) + e / 2 * 8 + l.col + e % 2);
                float z56 = 0;
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x14 = exp_(c11[e / 4 * 2 + e % 2]);
                    const float x50 = x14 * c49[e / 4 * 2 + e % 2];
                    const float x52 = x50 + c51[e / 4 * 2 + e % 2];
                    const float x55 = row == x.n - 1 ? x52 : d55[h];
                    const float x56 = f54[e] + x55;
                    if (e % 2)
                        store2(base + 164384 + row * 544 + 4 * (col - 1), z56, row < x.n ? x56 : 0.f);
                    else
                    z56 = row < x.n ? x56 : 0.f;
                }
            }
            arrive(base + 226320 + it % 2 * 8);
            matrix_sync<2>();
            scan_rows<128, 64, 1>(base + 164384, 0u, col0(64), l);
            matrix_sync<2>();
            {
                const Lane l = lane_of(fresh((int)threadIdx.x));
                u32 t4[4];
                float2 y57 = { 0, 0 };
                float f59[32];
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    if (e % 8 == 0)
                        read_columns<1>(t4, base + 0, 64, col0(64) + 2 * e, l);
                    if (e % 2 == 0)
                        y57 = load2(base + 164384 + row * 544 + 4 * col);
                    const float x58 = (e & 1 ? high(t4[e / 2 % 4]) : low(t4[e / 2 % 4])) < bits(0xc2d00000) ? 1 : 0;
                    const float x59 = x58 != 0 ? 0.f : (e & 1 ? y57.y : y57.x);
                    f59[e] = x59;
                }
                wait(base + 226456, parity((it * 4 + 3), 1) ^ 1);
                {
                    u32 p[16];
                    pack_rows(p, f59 + 0, l, x.n);
                    write_columns<4>(base + 147456 + 0, p, 64, col0(64), l);
                }
                fence_async();
                arrive(base + 226448);
            }
            fence_async();
            arrive(base + 226344);
            it++;
        }
    }
}
}  // in_k3_token
