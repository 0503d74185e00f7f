/* machine.c -- the machines that plans are made for. */
#include "machine.h"

#include <string.h>

/* Of what is documented, what programs attain: a copy's bytes, products of
 * large matrices, elements of what kernels do besides, the clock under load.
 * Measured on the H200, where a chunk of a hand-made scan took CHAIN cycles and
 * LINK for each product on the way. */
#define COPIED (4.27 / 4.8)
#define MULTIPLIED (6.7 / 9.89)
#define MAPPED (8 / 66.9)
#define CLOCKED (1.755 / 1.98)
#define CHAIN (3.5e-7 * 1.98e9)
#define LINK (1.5e-7 * 1.98e9)
/* In a recorded graph there rows took 1.0 to 1.4e-6 s more than their bytes, a
 * product of the library's 2.1, rows that carry states 2.8. */
#define FOLLOW 2.2e-6

#define GPU(called, device, number, processors, ghz, bytes, products, floats, \
            room) \
    { .name = #called, .bandwidth = (bytes) * COPIED, \
      .matrix = (products) * MULTIPLIED, .vector = (floats) * MAPPED, \
      .clock = (ghz) * 1e9 * CLOCKED, .chain = CHAIN / ((ghz) * 1e9), \
      .link = LINK / ((ghz) * 1e9), .launch = 4e-6, .follow = FOLLOW, \
      .spread = 4096, .walks = 96, .units = processors, \
      .shared = (room) << 10, .registers = 160 << 10, .tile_bytes = 2, \
      .arch = number },
static const Machine gpu[] = {
#include "machines.def"
};
#undef GPU

#define GPU(called, device, ...) device,
static const char *const device_name[] = {
#include "machines.def"
};
#undef GPU

enum { NGPUS = sizeof gpu / sizeof *gpu };

/* A core: fits the tile machine's times for all of the standard library,
 * dimensions 16 to 128, chunks of 16 to 128 tokens. */
const Machine machine_cpu = {
    .name = "cpu", .bandwidth = 1.3e10, .matrix = 8e10, .vector = 4e9,
    .step = 2.7e-7, .chain = 1e-7, .link = 0, .launch = 5e-6, .follow = 5e-6,
    .spread = 512,
    .units = 1, .shared = 64 << 20, .registers = 64 << 20, .tile_bytes = 4,
    .doubles = true,
    .strict = true,
};

const Machine *machine_usual_gpu(void)
{
    return &gpu[0];
}

const Machine *machine_named(const char *name)
{
    for (int i = 0; i < NGPUS; i++)
        if (!strcmp(name, gpu[i].name))
            return &gpu[i];
    return !strcmp(name, machine_cpu.name) ? &machine_cpu : NULL;
}

const Machine *machine_of_device(int arch, const char *device)
{
    const Machine *found = NULL;

    for (int i = 0; i < NGPUS; i++) {
        const Machine *m = &gpu[i];
        if (m->arch == arch && strstr(device, device_name[i]))
            return m;
        if (m->arch <= arch && (!found || m->arch > found->arch))
            found = m;
    }
    return found ? found : machine_usual_gpu();
}

const Machine *machine_of_arch(int arch)
{
    return machine_of_device(arch, "");
}

#define GPU(called, ...) ", " #called
const char *machine_names(void)
{
    return "machines: cpu"
#include "machines.def"
        ;
}
#undef GPU
