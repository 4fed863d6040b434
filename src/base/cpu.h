/* CPU features, instruction-set levels and the floating-point environment of a step. */
#ifndef SN_CPU_H
#define SN_CPU_H

#include "base/base.h"

/* Levels in rising order on x86. A level needs everything listed and operating-system support for its registers. */
enum sn_isa {
    SN_ISA_SCALAR = 0, /* portable C; uses the FMA instruction through a second compilation when the CPU has it */
    SN_ISA_AVX2 = 1,   /* AVX2, FMA, F16C */
    SN_ISA_AVX512 = 2, /* AVX-512 F, BW, DQ, VL, VNNI */
    SN_ISA_NEON = 3,   /* place kept for AArch64 with dot products */
    SN_ISA_COUNT
};

struct sn_cpu {
    bool fma, avx2, avx512; /* as the levels above; fma = AVX and FMA usable */
    char brand[64];
};

/* Reads CPUID and XGETBV (x86); on other machines everything is false. Any thread. */
struct sn_cpu sn_cpu_detect(void);
enum sn_isa sn_isa_best(const struct sn_cpu *cpu);
bool sn_isa_available(const struct sn_cpu *cpu, enum sn_isa isa);
const char *sn_isa_name(enum sn_isa isa); /* "scalar", "avx2", "avx512", "neon" */
/* "scalar", "avx2", "avx512", "neon" -> *out; false for other names. */
bool sn_isa_parse(const char *name, enum sn_isa *out);

/* Number of CPUs this process may run on (affinity mask and cgroup quota, rounded up); at least 1. */
int sn_cpu_count(void);

/* Bytes of memory that this process may still take: the system's available memory, or what is left of the limit of
 * its cgroup or of one above it (versions 1 and 2) when that is less. Pages of files that the kernel can drop at any
 * time count as free in both. 0 = unknown. */
uint64_t sn_memory_available(void);
/* The same with /proc and /sys below `root`: "" or, for tests, a folder. */
uint64_t sn_memory_available_below(const char *root);

/* The floating-point environment of numerics.md rule 2: round to nearest, no flush to zero, no denormals-are-zero.
 * Enter on every thread before the first operation of a step, leave after the last. */
struct sn_fpenv {
    uint64_t saved;
};
struct sn_fpenv sn_fp_enter(void);
void sn_fp_leave(struct sn_fpenv env);

#endif
