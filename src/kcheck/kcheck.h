/* kcheck: proves that every kernel of every level gives the bits of the scalar specification, and
 * times them.
 *
 * One check covers one or more slots: check_<name>.c defines kcheck_check_<name>() and
 * kcheck_bench_<name>(), and kcheck.list names it. A check is called once per level and compares
 * level `c->dut` with the baseline `c->ref`:
 *
 *     void kcheck_check_norm(struct kcheck *c)
 *     {
 *         if (!kcheck_begin(c, SN_K_rms_norm)) // the slot is filtered out, or not this level's own: skip
 *             return;
 *         for (size_t n = 1; n <= 65; n++) {
 *             float *x = kcheck_f32(c, n, KC_NORMAL); // input, ends at a protected page
 *             float *a = kcheck_out(c, 4 * n, 4), *b = kcheck_out(c, 4 * n, 4);
 *             c->ref->rms_norm(x, x, n, 1e-5f, a);
 *             c->dut->rms_norm(x, x, n, 1e-5f, b);
 *             kcheck_same_f32(c, a, b, n, "n=%zu", n);
 *             kcheck_end_case(c); // margins intact? frees the buffers
 *         }
 *     }
 *
 * The same run with ref == dut, a fixed seed and small sizes hashes everything that was compared:
 * the golden digests of golden.h. So a check draws random numbers one statement at a time (the
 * order of evaluation of arguments is the compiler's choice) and uses no libm function but the
 * exact ones. */
#ifndef SN_KCHECK_H
#define SN_KCHECK_H

#include <stdio.h>

#include "kernel/kernel.h"

struct kcheck_opts {
    const char *kernel; /* slot name, or a name of the list; NULL = all */
    int isa;            /* enum sn_isa, or -1 = every level of this CPU */
    uint64_t seed;      /* 0 = from the clock, and printed */
    bool long_run;      /* all 2^32 inputs of the f32 functions, more cases everywhere */
    bool quick;         /* fewer cases: emulators, selftest */
    bool bench;         /* speeds instead of checks */
    bool print_golden;  /* prints golden.h */
    FILE *out;          /* NULL = stdout */
    const struct sn_kernels
        *table; /* checks this table alone, as the level that fills `add`; for kcheck's own test */
};

/* Fills *opts from --kernel --isa --seed --long --quick --bench --print-golden. False with a
 * message on stderr. */
bool kcheck_parse(int argc, char **argv, struct kcheck_opts *opts);
/* What --kernel can name, slots first and then checks; NULL past the last. */
const char *kcheck_name(size_t i);

/* 0 = all right, 1 = a difference or a crash, KCHECK_CANNOT = after a message on stderr: no such
 * kernel, a level that this CPU does not have, or one without a kernel of its own for --kernel, so
 * that nothing was compared. One run at a time in a process: it handles SIGSEGV, SIGBUS, SIGILL. */
enum { KCHECK_CANNOT = 2 };
int kcheck_main(const struct kcheck_opts *opts);

struct kcheck_rng {
    uint64_t state;
};
uint64_t kcheck_u64(struct kcheck_rng *r); /* splitmix64 */
uint32_t kcheck_below(struct kcheck_rng *r, uint32_t n);
float kcheck_unit(struct kcheck_rng *r); /* -1 .. 1, a multiple of 2^-23 */

/* What random floats look like. */
enum kcheck_shape {
    KC_NORMAL, /* -1 .. 1 squared towards 0, times 4 */
    KC_WIDE,   /* any finite magnitude, subnormals and zeros of both signs among them */
    KC_EDGES,  /* KC_NORMAL with infinities, NaN, zeros, subnormals and the largest finite value
                  mixed in */
    KC_BITS    /* any 32 bits */
};
void kcheck_fill(struct kcheck_rng *r, float *x, size_t n, enum kcheck_shape shape);

struct kcheck_state; /* of kcheck.c */
struct kcheck {
    const struct kcheck_opts *opts;
    const struct sn_kernels *ref, *dut;
    const char *level; /* "scalar-fma", "avx2", "avx512"; "golden" or "accuracy" when ref == dut */
    struct kcheck_rng rng;
    struct kcheck_state *state;
};

/* Makes `id` the slot that counts, crashes and messages name. False: leave it out. Ends the slot
 * before. */
bool kcheck_begin(struct kcheck *c, enum sn_kernel_id id);
/* Buffers of the current case, released by kcheck_end_case(). Inputs and outputs end at a protected
 * page. */
void *kcheck_out(struct kcheck *c, size_t n_bytes, size_t align); /* poisoned with 0xA5 */
float *kcheck_f32(struct kcheck *c, size_t n, enum kcheck_shape shape);
void *kcheck_in(struct kcheck *c, const void *data, size_t n_bytes, size_t align); /* a read-only copy */
void kcheck_end_case(struct kcheck *c);

/* Compare, count, hash. Two NaN are equal whatever their payload. The format describes the case. */
void kcheck_same_f32(struct kcheck *c, const float *want, const float *got, size_t n, const char *fmt, ...)
    SENNIT_PRINTF(5, 6);
void kcheck_same_bytes(struct kcheck *c, const void *want, const void *got, size_t n_bytes, const char *fmt, ...)
    SENNIT_PRINTF(5, 6);
/* A condition that is no comparison of outputs. */
void kcheck_expect(struct kcheck *c, bool ok, const char *fmt, ...) SENNIT_PRINTF(3, 4);
/* A remark for the report: a bound that was measured. */
void kcheck_note(struct kcheck *c, const char *fmt, ...) SENNIT_PRINTF(2, 3);

/* Times fn(arg) (median of several runs) and prints `work` units per call as a rate: kcheck_time(c,
 * SN_K_add, "n=576", 576 * 12, "GB/s", fn, arg): work / 1e9 per second is printed under the unit.
 * Returns seconds per call. */
double kcheck_time(struct kcheck *c, enum sn_kernel_id id, const char *what, double work, const char *unit,
                   void (*fn)(void *arg), void *arg);
/* True when --kernel lets this slot through (benchmarks). */
bool kcheck_wanted(const struct kcheck *c, enum sn_kernel_id id);

/* Own elementary functions against the C library in a wider format; once per run, not per level.
 * check_math.c. */
void kcheck_accuracy(struct kcheck *c);

#define KCHECK(name)                                                                                                 \
    void kcheck_check_##name(struct kcheck *c);                                                                      \
    void kcheck_bench_##name(struct kcheck *c);
#include "kcheck/kcheck.list"
#undef KCHECK

#endif
