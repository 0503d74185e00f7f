/* machines.c -- which machine a device is. */
#include "../../compiler/machine.h"

#include <stdio.h>
#include <string.h>

static int bad;

static void is(int arch, const char *device, const char *name)
{
    const Machine *m = machine_of_device(arch, device);

    if (!strcmp(m->name, name))
        return;
    printf("%s of sm_%d: %s, not %s\n", device, arch, m->name, name);
    bad = 1;
}

/* Rates that are in order, and a name that finds it. */
static void is_sound(const char *name)
{
    const Machine *m = machine_named(name);

    if (m && m->matrix > m->vector && m->bandwidth > 0 && m->units > 0
        && (m->arch == 0 || (m->clock > 1e9 && m->clock < 3e9
                             && m->chain > m->link && m->link > 0)))
        return;
    printf("%s: no machine, or rates out of order\n", name);
    bad = 1;
}

int main(void)
{
    char names[256], *word;

    is(90, "NVIDIA H200", "h200");
    is(90, "NVIDIA H100 80GB HBM3", "h100");
    is(90, "NVIDIA GH200 480GB", "h200");
    is(90, "something new", "h200");
    is(80, "NVIDIA A100-SXM4-80GB", "a100");
    is(80, "NVIDIA A30", "a100");
    is(86, "NVIDIA A10G", "a10");
    is(86, "NVIDIA GeForce RTX 3090", "a10");
    is(87, "Orin", "a10");                  /* the latest before it */
    is(89, "NVIDIA GeForce RTX 4090", "rtx4090");
    is(89, "NVIDIA L4", "l40s");
    is(100, "NVIDIA B200", "b200");
    is(103, "NVIDIA B300", "b200");
    is(120, "NVIDIA GeForce RTX 5090", "rtx5090");
    is(75, "Tesla T4", "h200");             /* which flin refuses */
    snprintf(names, sizeof names, "%s", strchr(machine_names(), ':') + 1);
    for (word = strtok(names, ", "); word; word = strtok(NULL, ", "))
        is_sound(word);
    return bad || machine_named("none") ? 1 : 0;
}
