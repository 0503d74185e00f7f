#define THREADS 512
#define RANK 2
#include "numbers.cuh"
#include "warp.cuh"
#include "run.cuh"
#include "tile.cuh"
#include "products.cuh"
#include "scans.cuh"
extern __shared__ char arena[];

// forward (forward), 163840 bytes a chunk and head predicted: %2 %3 %4
// %6 %8 %9 %10 %11 %12 %13 %14 %15 %16 %17 %18
namespace in_k0_forward {
struct Args { TensorMap map[4]; Tensor tensor[5]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 2) k0_forward(const __grid_constant__ Args a)
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
                const int head0 = x.head / a.tensor[0].group;
                const int head1 = x.head / a.tensor[1].group;
                const int head2 = x.head / a.tensor[2].group;
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, m, x);
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
                    find_chunk(a.run, m, x);
                    wait(base + 109888, parity(it, 1));
                    if (lane == 0) {
                        const u32 from = base + 32768;
                        store_tile(&a.map[3], from + 0, x.slice * 64 + 0, 0, 0, (int)x.at);
                        store_tile(&a.map[3], from + 8192, x.slice * 64 + 0, 64, 0, (int)x.at);
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
            float f6[32];
            const Lane l = lane_of(fresh((int)threadIdx.x));
            begin_state<float, 128, 32>(f6, a.tensor[3], x, 0, x.slice * 64 + 0 + col0(32), l);
            NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                find_chunk(a.run, m, x);
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
                    u32 t2[4];
                    float2 y11 = { 0, 0 };
                    float2 y10 = { 0, 0 };
                    float f16[16];
                    UNROLL for (int e = 0; e < 16; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                        const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        if (e % 8 == 0)
                            read_columns<1>(t2, base + 16384 + it % 2 * 8192, 64, col0(32) + 2 * e, l);
                        if (e % 4 == 0)
                            y11 = parts_column<1>(base + 109568, 64, col);
                        if (e % 2 == 0)
                            y10 = load2(base + 82208 + row * 288 + 4 * col);
                        const float x12 = (e & 1 ? y11.y : y11.x) - (e & 1 ? y10.y : y10.x);
                        const float x13 = exp_(x12);
                        const float x16 = (e & 1 ? high(t2[e / 2 % 4]) : low(t2[e / 2 % 4])) * x13;
                        f16[e] = x16;
                    }
                    {
                        u32 p[8];
                        pack_rows(p, f16 + 0, l, x.n);
                        write_columns<2>(base + 101376 + 0, p, 64, col0(32), l);
                    }
                }
                fence_async();
                arrive(base + 109872 + it % 2 * 8);
                {
                    wait(base + 109896, parity(it, 1) ^ 1);
                    {
                        u32 p[8];
                        pack_rows(p, f6 + 0, l, 64);
                        write_columns<2>(base + 32768 + 0, p, 128, col0(32), l);
                    }
                    {
                        u32 p[8];
                        pack_rows(p, f6 + 16, l, 64);
                        write_columns<2>(base + 32768 + 8192, p, 128, col0(32), l);
                    }
                    float c11[8];
                    UNROLL for (int e = 0; e < 8; e++)
                        c11[e] = parts_sum<1>(base + 109568, 64, col0(32) + e / 2 * 8 + l.col + e % 2);
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                        const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x14 = exp_(c11[e % 16 / 4 * 2 + e % 2]);
                        const float x15 = f6[e] * x14;
                        f6[e] = x15;
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
                keep(f6);
                wgmma_fence();
                multiply_tiles<1, 1, 4, 1, 0>(registers<16>(f6, 0), base + 49152 + it % 2 * 16384, 64, 0, base + 101376, 64, col0(32) + 0);
                multiply_tiles<1, 1, 4, 1, 0>(registers<16>(f6, 16), base + 49152 + it % 2 * 16384, 64, 64, base + 101376, 64, col0(32) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                arrive(base + 109920 + it % 2 * 8);
                keep(f6);
            }
            end_state<float, 128, 32>(f6, a.tensor[4], x, 0, x.slice * 64 + 0 + col0(32), l);
        }
    }
}
}  // in_k0_forward

// forward (token), 229376 bytes a chunk and head predicted: %1 %2 %3 %4
// %8 %9 %10 %19 %20 %21 %22 %23 %24 %25 %26 %27
namespace in_k1_token {
struct Args { TensorMap map[4]; Tensor tensor[5]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 2) k1_token(const __grid_constant__ Args a)
{
    alignas(1024) extern __shared__ unsigned char raw[];
    const u32 base = shared_address(raw);
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 102400 + 8 * i, 1);
            barrier_init(base + 102408 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 102416 + 8 * i, 1);
            barrier_init(base + 102424 + 8 * i, 256);
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
                wait(base + 102408, parity((it * 2 + 0), 1) ^ 1);
                {
                    const u32 full = base + 102400, to = base + 0;
                    arrive_expecting(full, 16384);
                    const int head = x.head / a.tensor[0].group;
                    load_tile(to + 0, &a.map[0], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[0], full, 64, x.row, head, x.where.b);
                }
                wait(base + 102424, parity((it * 2 + 0), 1) ^ 1);
                {
                    const u32 full = base + 102416, to = base + 32768;
                    arrive_expecting(full, 16384);
                    const int head = x.head / a.tensor[1].group;
                    load_tile(to + 0, &a.map[1], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[1], full, 64, x.row, head, x.where.b);
                }
                wait(base + 102408, parity((it * 2 + 1), 1) ^ 1);
                {
                    const u32 full = base + 102400, to = base + 0;
                    arrive_expecting(full, 32768);
                    load_tile(to + 0, &a.map[2], full, 0, 0, 0, (int)x.at);
                    load_tile(to + 8192, &a.map[2], full, 0, 64, 0, (int)x.at);
                    load_tile(to + 16384, &a.map[2], full, 64, 0, 0, (int)x.at);
                    load_tile(to + 24576, &a.map[2], full, 64, 64, 0, (int)x.at);
                }
                wait(base + 102424, parity((it * 2 + 1), 1) ^ 1);
                {
                    const u32 full = base + 102416, to = base + 32768;
                    arrive_expecting(full, 16384);
                    const int head = x.head / a.tensor[2].group;
                    load_tile(to + 0, &a.map[3], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[3], full, 64, x.row, head, x.where.b);
                }
            }
            it++;
        }
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
            float f24[16];
            float f21[32];
            const Lane l = lane_of(fresh((int)threadIdx.x));
            u32 q4_1[16];
            find_matrix<0>(q4_1, a.tensor[3], x, 0 + col0(64), l);
            matrix_sync<2>();
            {
                const u32 (&q4)[16] = q4_1;
                float z9 = 0;
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x9 = max_((e & 1 ? high(q4[e / 2]) : low(q4[e / 2])), bits(0xc2d00000));
                    if (e % 2)
                        store2(base + 49696 + row * 544 + 4 * (col - 1), z9, row < x.n ? x9 : 0.f);
                    else
                    z9 = row < x.n ? x9 : 0.f;
                }
            }
            matrix_sync<2>();
            scan_rows<128, 64, 0>(base + 49696, 0u, col0(64), l);
            wait(base + 102400, parity((it * 2 + 0), 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 0, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
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
                        read_columns<1>(t1, base + 0, 64, col0(64) + 2 * e, l);
                    if (e % 2 == 0)
                        y10 = load2(base + 49696 + row * 544 + 4 * col);
                    const float x19 = exp_((e & 1 ? y10.y : y10.x));
                    const float x20 = (e & 1 ? high(t1[e / 2 % 4]) : low(t1[e / 2 % 4])) * x19;
                    f20[e] = x20;
                }
                {
                    u32 p[16];
                    pack_rows(p, f20 + 0, l, x.n);
                    write_columns<4>(base + 86016 + 0, p, 64, col0(64), l);
                }
            }
            wait(base + 102416, parity((it * 2 + 0), 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 32768, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            {
                float *const sum[] = { f24 };
                const u32 row[] = { base + 0 }, col[] = { base + 32768 };
                const u32 decays[] = { base + 49696 };
                const int strict[] = { 0 };
                decayed_scores<128, 16>(sum, row, col, decays, strict, base + 49696, col0(32), l);
            }
            fence_async();
            arrive(base + 102408);
            arrive(base + 102424);
            fence_async();
            matrix_sync<2>();
            {
                {
                    u32 p[8];
                    pack_rows(p, f24 + 0, l, x.n);
                    write_columns<2>(base + 49152 + 0, p, 64, col0(32), l);
                }
            }
            wait(base + 102416, parity((it * 2 + 1), 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 32768, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wait(base + 102400, parity((it * 2 + 1), 1));
            wgmma_fence();
            multiply_tiles<0, 0, 8, 0, 0>(f21, base + 86016, 64, 0, base + 0, 128, col0(64) + 0);
            fence_async();
            matrix_sync<2>();
            keep(f21);
            wgmma_fence();
            multiply_tiles<0, 1, 4, 1, 0>(f21, base + 49152, 64, 0, base + 32768, 64, col0(64) + 0);
            wgmma_commit();
            wgmma_wait<0>();
            arrive(base + 102408);
            arrive(base + 102424);
            keep(f21);
            store_matrix<unsigned short>(a.tensor[4], f21, x, 0 + col0(64), l);
            it++;
        }
    }
}
}  // in_k1_token

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
                const int head0 = x.head / a.tensor[0].group;
                const int head1 = x.head / a.tensor[1].group;
                const int head2 = x.head / a.tensor[2].group;
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
                        store_tile(&a.map[3], from + 0, x.slice * 64 + 0, 0, 0, (int)x.at);
                        store_tile(&a.map[3], from + 8192, x.slice * 64 + 0, 64, 0, (int)x.at);
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
            begin_state<float, 128, 32>(f7, a.tensor[3], x, 0, x.slice * 64 + 0 + col0(32), l);
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
                        u32 p[8];
                        pack_rows(p, f7 + 0, l, 64);
                        write_columns<2>(base + 32768 + 0, p, 128, col0(32), l);
                    }
                    {
                        u32 p[8];
                        pack_rows(p, f7 + 16, l, 64);
                        write_columns<2>(base + 32768 + 8192, p, 128, col0(32), l);
                    }
                    float c11[8];
                    UNROLL for (int e = 0; e < 8; e++)
                        c11[e] = parts_sum<1>(base + 109568, 64, col0(32) + e / 2 * 8 + l.col + e % 2);
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                        const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x14 = exp_(c11[e % 16 / 4 * 2 + e % 2]);
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
                multiply_tiles<1, 1, 4, 1, 0>(registers<16>(f7, 0), base + 49152 + it % 2 * 16384, 64, 0, base + 101376, 64, col0(32) + 0);
                multiply_tiles<1, 1, 4, 1, 0>(registers<16>(f7, 16), base + 49152 + it % 2 * 16384, 64, 64, base + 101376, 64, col0(32) + 0);
                wgmma_commit();
                wgmma_wait<0>();
                arrive(base + 109920 + it % 2 * 8);
                keep(f7);
            }
            end_state<float, 128, 32>(f7, a.tensor[4], x, 0, x.slice * 64 + 0 + col0(32), l);
        }
    }
}
}  // in_k2_reverse

// backward (token), 425984 bytes a chunk and head predicted: %1 %2 %3 %4
// %5 %8 %9 %10 %11 %12 %13 %14 %16 %19 %22 %23 %24 %25 %28 %29 %30 %31
// %32 %33 %34 %35 %37 %38 %39 %40 %41 %42 %43 %44 %45 %46 %49 %50 %51
// %52 %53 %54 %55 %56 %57 %58 %59
namespace in_k3_token {
struct Args { TensorMap map[10]; Tensor tensor[9]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 1) k3_token(const __grid_constant__ Args a)
{
    alignas(1024) extern __shared__ unsigned char raw[];
    const u32 base = shared_address(raw);
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 218112 + 8 * i, 32);
            barrier_init(base + 218128 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 218144 + 8 * i, 1);
            barrier_init(base + 218152 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 218160 + 8 * i, 1);
            barrier_init(base + 218168 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 218176 + 8 * i, 1);
            barrier_init(base + 218184 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 218192 + 8 * i, 1);
            barrier_init(base + 218200 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 218208 + 8 * i, 1);
            barrier_init(base + 218216 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 218224 + 8 * i, 1);
            barrier_init(base + 218232 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 218240 + 8 * i, 256);
            barrier_init(base + 218248 + 8 * i, 32);
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
                wait(base + 218152, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 218144, to = base + 0;
                    arrive_expecting(full, 16384);
                    const int head = x.head / a.tensor[0].group;
                    load_tile(to + 0, &a.map[0], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[0], full, 64, x.row, head, x.where.b);
                }
                wait(base + 218184, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 218176, to = base + 32768;
                    arrive_expecting(full, 16384);
                    const int head = x.head / a.tensor[1].group;
                    load_tile(to + 0, &a.map[1], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[1], full, 64, x.row, head, x.where.b);
                }
                wait(base + 218200, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 218192, to = base + 49152;
                    arrive_expecting(full, 16384);
                    const int head = x.head / a.tensor[2].group;
                    load_tile(to + 0, &a.map[2], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[2], full, 64, x.row, head, x.where.b);
                }
                wait(base + 218216, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 218208, to = base + 65536;
                    arrive_expecting(full, 32768);
                    load_tile(to + 0, &a.map[3], full, 0, 0, 0, (int)x.at);
                    load_tile(to + 8192, &a.map[3], full, 0, 64, 0, (int)x.at);
                    load_tile(to + 16384, &a.map[3], full, 64, 0, 0, (int)x.at);
                    load_tile(to + 24576, &a.map[3], full, 64, 64, 0, (int)x.at);
                }
                wait(base + 218168, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 218160, to = base + 16384;
                    arrive_expecting(full, 16384);
                    const int head = x.head / a.tensor[3].group;
                    load_tile(to + 0, &a.map[4], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[4], full, 64, x.row, head, x.where.b);
                }
                wait(base + 218232, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 218224, to = base + 98304;
                    arrive_expecting(full, 32768);
                    load_tile(to + 0, &a.map[5], full, 0, 0, 0, (int)x.at);
                    load_tile(to + 8192, &a.map[5], full, 0, 64, 0, (int)x.at);
                    load_tile(to + 16384, &a.map[5], full, 64, 0, 0, (int)x.at);
                    load_tile(to + 24576, &a.map[5], full, 64, 64, 0, (int)x.at);
                }
            }
            if (warp == 1) {
                wait(base + 218240, parity((it * 4 + 0), 1));
                if (a.tensor[4].p) {
                    const u32 from = base + 131072;
                    const int c = (x.row - x.where.start) / 64;
                    NO_UNROLL for (int i = 0; i < 2; i++)
                        store_chunk(a.map[6], a.tensor[4], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                    bulk_commit();
                    bulk_wait_read();
                }
                arrive(base + 218248);
                wait(base + 218240, parity((it * 4 + 1), 1));
                if (a.tensor[5].p) {
                    const u32 from = base + 131072;
                    const int c = (x.row - x.where.start) / 64;
                    NO_UNROLL for (int i = 0; i < 2; i++)
                        store_chunk(a.map[7], a.tensor[5], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                    bulk_commit();
                    bulk_wait_read();
                }
                arrive(base + 218248);
                wait(base + 218240, parity((it * 4 + 2), 1));
                if (a.tensor[6].p) {
                    const u32 from = base + 131072;
                    const int c = (x.row - x.where.start) / 64;
                    NO_UNROLL for (int i = 0; i < 2; i++)
                        store_chunk(a.map[8], a.tensor[6], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                    bulk_commit();
                    bulk_wait_read();
                }
                arrive(base + 218248);
                wait(base + 218240, parity((it * 4 + 3), 1));
                if (a.tensor[7].p) {
                    const u32 from = base + 131072;
                    const int c = (x.row - x.where.start) / 64;
                    NO_UNROLL for (int i = 0; i < 2; i++)
                        store_chunk(a.map[9], a.tensor[7], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                    bulk_commit();
                    bulk_wait_read();
                }
                arrive(base + 218248);
            }
            if (warp == 2) {
                Pair v29 = running_sum(Pair { 0.f, 0.f }, lane, x.n);
                wait(base + 218128 + it % 2 * 8, parity(it, 2) ^ 1);
                store_pair(base + 217600 + it % 2 * 256, v29, lane);
                arrive(base + 218112 + it % 2 * 8);
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
            float f24[16];
            float f33[32];
            float f34[32];
            float f37[32];
            float f43[32];
            float f54[32];
            float f31[32];
            const Lane l = lane_of(fresh((int)threadIdx.x));
            u32 q4_2[16];
            find_matrix<0>(q4_2, a.tensor[8], x, 0 + col0(64), l);
            matrix_sync<2>();
            {
                const u32 (&q4)[16] = q4_2;
                float z9 = 0;
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x9 = max_((e & 1 ? high(q4[e / 2]) : low(q4[e / 2])), bits(0xc2d00000));
                    if (e % 2)
                        store2(base + 148000 + row * 544 + 4 * (col - 1), z9, row < x.n ? x9 : 0.f);
                    else
                    z9 = row < x.n ? x9 : 0.f;
                }
            }
            wait(base + 218144, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 0, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wait(base + 218160, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 16384, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wgmma_fence();
            multiply_tiles<0, 0, 8, 0, 0>(f30, base + 16384, 64, 0, base + 0, 64, col0(32) + 0);
            wgmma_commit();
            wgmma_wait<0>();
            keep(f30);
            {
                {
                    u32 p[8];
                    pack_rows(p, f30 + 0, l, x.n);
                    write_columns<2>(base + 184320 + 0, p, 64, col0(32), l);
                }
            }
            fence_async();
            matrix_sync<2>();
            scan_rows<128, 64, 0>(base + 148000, base + 217088, col0(64), l);
            wait(base + 218176, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 32768, 2, x.n, thread);
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
                        read_columns<1>(t2, base + 32768, 64, col0(64) + 2 * e, l);
                    if (e % 4 == 0)
                        y11 = parts_column<1>(base + 217088, 128, col);
                    if (e % 2 == 0)
                        y10 = load2(base + 148000 + row * 544 + 4 * col);
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
            wait(base + 218192, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 49152, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            {
                float *const sum[] = { f24 };
                const u32 row[] = { base + 49152 }, col[] = { base + 32768 };
                const u32 decays[] = { base + 148000 };
                const int strict[] = { 0 };
                decayed_scores<128, 16>(sum, row, col, decays, strict, base + 148000, col0(32), l);
            }
            {
                {
                    u32 p[8];
                    pack_rows(p, f24 + 0, l, x.n);
                    write_columns<2>(base + 208896 + 0, p, 64, col0(32), l);
                }
            }
            {
                float *const sum[] = { f33 };
                decayed_sums<128, 32, 1, 0x4440>(sum, Terms<1> { { base + 184320 }, { base + 32768 }, { base + 148000 }, { 0 }, { 1.f }, { 1.f } }, base + 148000, base + 148000, col0(64), l);
            }
            {
                float *const sum[] = { f34 };
                decayed_sums<128, 32, 0, 0x4440>(sum, Terms<1> { { base + 184320 }, { base + 49152 }, { base + 148000 }, { 0 }, { 1.f }, { 1.f } }, base + 148000, base + 148000, col0(64), l);
            }
            wait(base + 218208, parity(it, 1));
            wgmma_fence();
            multiply_tiles<0, 1, 8, 0, 0>(f37, base + 16384, 64, 0, base + 65536, 128, col0(64) + 0);
            wait(base + 218224, parity(it, 1));
            wgmma_fence();
            multiply_tiles<0, 1, 8, 0, 0>(f43, base + 0, 64, 0, base + 98304, 128, col0(64) + 0);
            wgmma_commit();
            wgmma_wait<0>();
            arrive(base + 218152);
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
                        y10 = load2(base + 148000 + row * 544 + 4 * col);
                    if (e % 8 == 0)
                        read_columns<1>(t1, base + 49152, 64, col0(64) + 2 * e, l);
                    if (e % 4 == 0)
                        y11 = parts_column<1>(base + 217088, 128, col);
                    if (e % 8 == 0)
                        read_columns<1>(t2, base + 32768, 64, col0(64) + 2 * e, l);
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
                put_column_sums(base + 184320, 128, col0(64), s51, l);
                wait(base + 218248, parity((it * 4 + 0), 1) ^ 1);
                {
                    u32 p[16];
                    pack_rows(p, f39 + 0, l, x.n);
                    write_columns<4>(base + 131072 + 0, p, 64, col0(64), l);
                }
                fence_async();
                arrive(base + 218240);
                wait(base + 218248, parity((it * 4 + 1), 1) ^ 1);
                {
                    u32 p[16];
                    pack_rows(p, f45 + 0, l, x.n);
                    write_columns<4>(base + 131072 + 0, p, 64, col0(64), l);
                }
                fence_async();
                arrive(base + 218240);
            }
            fence_async();
            arrive(base + 218184);
            arrive(base + 218200);
            {
                u32 t6[32];
                read_columns<4>(t6 + 0, base + 65536 + 0, 128, col0(64), l);
                read_columns<4>(t6 + 16, base + 65536 + 8192, 128, col0(64), l);
                u32 t7[32];
                read_columns<4>(t7 + 0, base + 98304 + 0, 128, col0(64), l);
                read_columns<4>(t7 + 16, base + 98304 + 8192, 128, col0(64), l);
                float s49[16] = { 0 };
                UNROLL for (int e = 0; e < 64; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x49 = (e & 1 ? high(t6[e / 2]) : low(t6[e / 2])) * (e & 1 ? high(t7[e / 2]) : low(t7[e / 2]));
                    s49[e % 32 / 4 * 2 + e % 2] += x49;
                }
                put_column_sums(base + 186368, 128, col0(64), s49, l);
            }
            fence_async();
            arrive(base + 218216);
            wgmma_fence();
            multiply_tiles<1, 1, 4, 0, 0>(f31, base + 208896, 64, 0, base + 16384, 64, col0(64) + 0);
            keep(f31);
            wgmma_fence();
            multiply_tiles<0, 0, 8, 1, 0>(f31, base + 192512, 64, 0, base + 98304, 128, col0(64) + 0);
            wgmma_commit();
            wgmma_wait<0>();
            fence_async();
            arrive(base + 218168);
            arrive(base + 218232);
            keep(f31);
            keep(f31);
            {
                wait(base + 218248, parity((it * 4 + 2), 1) ^ 1);
                {
                    u32 p[16];
                    pack_rows(p, f31 + 0, l, x.n);
                    write_columns<4>(base + 131072 + 0, p, 64, col0(64), l);
                }
                fence_async();
                arrive(base + 218240);
            }
            matrix_sync<2>();
            wait(base + 218112 + it % 2 * 8, parity(it, 2));
            {
                float d55[2];
                UNROLL for (int h = 0; h < 2; h++)
                    d55[h] = parts_sum<1>(base + 217600 + it % 2 * 256, 64, (l.row + 8 * h + 1) & 63);
                float c11[16];
                UNROLL for (int e = 0; e < 16; e++)
                    c11[e] = parts_sum<1>(base + 217088, 128, col0(64) + e / 2 * 8 + l.col + e % 2);
                float c49[16];
                UNROLL for (int e = 0; e < 16; e++)
                    c49[e] = parts_sum<4>(base + 186368, 128, col0(64) + e / 2 * 8 + l.col + e % 2);
                float c51[16];
                UNROLL for (int e = 0; e < 16; e++)
                    c51[e] = parts_sum<4>(base + 184320, 128, col0(64) + e / 2 * 8 + l.col + e % 2);
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
                        store2(base + 148000 + row * 544 + 4 * (col - 1), z56, row < x.n ? x56 : 0.f);
                    else
                    z56 = row < x.n ? x56 : 0.f;
                }
            }
            arrive(base + 218128 + it % 2 * 8);
            u32 q4_39[16];
            find_matrix<0>(q4_39, a.tensor[8], x, 0 + col0(64), l);
            matrix_sync<2>();
            scan_rows<128, 64, 1>(base + 148000, 0u, col0(64), l);
            matrix_sync<2>();
            {
                const Lane l = lane_of(fresh((int)threadIdx.x));
                const u32 (&q4)[16] = q4_39;
                float2 y57 = { 0, 0 };
                float f59[32];
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    if (e % 2 == 0)
                        y57 = load2(base + 148000 + row * 544 + 4 * col);
                    const float x58 = (e & 1 ? high(q4[e / 2]) : low(q4[e / 2])) < bits(0xc2d00000) ? 1 : 0;
                    const float x59 = x58 != 0 ? 0.f : (e & 1 ? y57.y : y57.x);
                    f59[e] = x59;
                }
                wait(base + 218248, parity((it * 4 + 3), 1) ^ 1);
                {
                    u32 p[16];
                    pack_rows(p, f59 + 0, l, x.n);
                    write_columns<4>(base + 131072 + 0, p, 64, col0(64), l);
                }
                fence_async();
                arrive(base + 218240);
            }
            it++;
        }
    }
}
}  // in_k3_token
