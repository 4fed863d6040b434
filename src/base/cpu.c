#include "base/cpu.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#include <immintrin.h>
#define X86 1
#endif

#ifdef X86
static uint64_t xgetbv0(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

static void read_brand(char out[64])
{
    unsigned max = (unsigned)__get_cpuid_max(0x80000000u, NULL);
    if (max < 0x80000004u)
        return;
    for (unsigned i = 0; i < 3; i++) {
        unsigned r[4];
        __get_cpuid(0x80000002u + i, &r[0], &r[1], &r[2], &r[3]);
        memcpy(out + 16 * i, r, 16);
    }
    out[48] = '\0';
}
#endif

struct sn_cpu sn_cpu_detect(void)
{
    struct sn_cpu cpu = {0};
#ifdef X86
    unsigned a, b, c, d;
    read_brand(cpu.brand);
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return cpu;
    bool osxsave = c & bit_OSXSAVE, fma = c & bit_FMA, avx = c & bit_AVX, f16c = c & bit_F16C;
    if (!osxsave || !avx)
        return cpu;
    uint64_t xcr = xgetbv0();
    bool ymm = (xcr & 0x6) == 0x6, zmm = (xcr & 0xE6) == 0xE6;
    if (!ymm || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return cpu;
    cpu.fma = fma;
    cpu.avx2 = (b & bit_AVX2) && fma && f16c;
    unsigned need = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    cpu.avx512 = cpu.avx2 && zmm && (b & need) == need && (c & bit_AVX512VNNI);
#endif
    return cpu;
}

bool sn_isa_available(const struct sn_cpu *cpu, enum sn_isa isa)
{
    return isa == SN_ISA_SCALAR || (isa == SN_ISA_AVX2 && cpu->avx2) || (isa == SN_ISA_AVX512 && cpu->avx512);
}

enum sn_isa sn_isa_best(const struct sn_cpu *cpu)
{
    return cpu->avx512 ? SN_ISA_AVX512 : cpu->avx2 ? SN_ISA_AVX2 : SN_ISA_SCALAR;
}

static const char *const isa_names[SN_ISA_COUNT] = {"scalar", "avx2", "avx512", "neon"};

const char *sn_isa_name(enum sn_isa isa) { return (unsigned)isa < SN_ISA_COUNT ? isa_names[isa] : "unknown"; }

bool sn_isa_parse(const char *name, enum sn_isa *out)
{
    for (int i = 0; i < SN_ISA_COUNT; i++)
        if (strcmp(name, isa_names[i]) == 0) {
            *out = (enum sn_isa)i;
            return true;
        }
    return false;
}

/* cgroup v2 "cpu.max" is "quota period" or "max period". */
static int cgroup_cpus(void)
{
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (!f)
        return 0;
    char line[64];
    int n = 0;
    if (fgets(line, sizeof line, f)) {
        char *end;
        long long quota = strtoll(line, &end, 10), period = end != line ? strtoll(end, NULL, 10) : 0;
        if (quota > 0 && period > 0)
            n = (int)((quota + period - 1) / period);
    }
    fclose(f);
    return n;
}

int sn_cpu_count(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    int quota = cgroup_cpus();
    if (quota > 0 && quota < n)
        n = quota;
    return n < 1 ? 1 : n;
}

struct sn_fpenv sn_fp_enter(void)
{
    struct sn_fpenv env = {0};
#ifdef X86
    unsigned csr = _mm_getcsr();
    env.saved = csr;
    _mm_setcsr(0x1F80); /* all exceptions masked, nearest, FTZ and DAZ off */
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, fpcr" : "=r"(env.saved));
    uint64_t zero = 0;
    __asm__ volatile("msr fpcr, %0" ::"r"(zero));
#endif
    return env;
}

void sn_fp_leave(struct sn_fpenv env)
{
#ifdef X86
    _mm_setcsr((unsigned)env.saved);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" ::"r"(env.saved));
#else
    (void)env;
#endif
}
