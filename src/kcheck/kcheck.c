#include "kcheck/kcheck.h"

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <xxhash.h>

#include "kcheck/golden.h"
#include "kcheck/guard.h"

enum { MAX_BUFFERS = 4096, MAX_REPORTS = 5 };

/* What one pass over one level knows. */
struct kcheck_state {
    FILE *out;
    const char *check; /* name of the list entry that runs */
    enum sn_kernel_id id;
    bool begun;
    uint64_t seed;
    uint64_t n_values, n_cases, n_slot_failures;
    uint64_t n_failures; /* of the whole run */
    uint64_t n_compared; /* slots of levels that were begun, golden digests not counted */
    char label[256];     /* the case at hand */
    struct sn_guard buffer[MAX_BUFFERS];
    size_t n_buffers;
    XXH3_state_t *hash;
    uint64_t digest[SN_K_COUNT];
};

struct entry {
    const char *name;
    void (*check)(struct kcheck *c), (*bench)(struct kcheck *c);
};

static const struct entry entries[] = {
#define KCHECK(name) {#name, kcheck_check_##name, kcheck_bench_##name},
#include "kcheck/kcheck.list"
#undef KCHECK
};

/* ---- random inputs --------------------------------------------------------------------------- */

uint64_t kcheck_u64(struct kcheck_rng *r)
{
    uint64_t z = r->state += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

uint32_t kcheck_below(struct kcheck_rng *r, uint32_t n)
{
    return (uint32_t)((kcheck_u64(r) >> 32) * n >> 32);
}

float kcheck_unit(struct kcheck_rng *r)
{
    return (float)(int32_t)(kcheck_u64(r) >> 40) * 0x1p-23f - 1.0f;
}

static float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static float draw_normal(struct kcheck_rng *r)
{
    float u = kcheck_unit(r), size = u < 0 ? -u : u;
    return u * size * 4.0f;
}

static float draw_wide(struct kcheck_rng *r)
{
    uint32_t u = (uint32_t)(kcheck_u64(r) >> 32), kind = kcheck_below(r, 16);
    if (kind == 0)
        return from_bits(u & 0x80000000u);
    if (kind == 1)
        return from_bits(u & 0x807FFFFFu);
    return from_bits((u & 0x7F800000u) == 0x7F800000u ? u ^ 0x40000000u : u);
}

static float draw_edge(struct kcheck_rng *r)
{
    static const uint32_t edges[] = {0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x00000000, 0x80000000,
                                     0x00000001, 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x42B17218,
                                     0xC2AEAC50, 0x3F800000, 0xBF800000, 0x477FF000};
    if (kcheck_below(r, 8) != 0)
        return draw_normal(r);
    return from_bits(edges[kcheck_below(r, SN_ARRAY_LEN(edges))]);
}

void kcheck_fill(struct kcheck_rng *r, float *x, size_t n, enum kcheck_shape shape)
{
    for (size_t i = 0; i < n; i++)
        x[i] = shape == KC_NORMAL  ? draw_normal(r)
               : shape == KC_WIDE  ? draw_wide(r)
               : shape == KC_EDGES ? draw_edge(r)
                                   : from_bits((uint32_t)(kcheck_u64(r) >> 32));
}

/* ---- reports --------------------------------------------------------------------------------- */

static void fail_va(struct kcheck *c, const char *what, const char *fmt, va_list args)
{
    struct kcheck_state *s = c->state;
    s->n_failures++;
    if (s->n_slot_failures++ >= MAX_REPORTS)
        return;
    fprintf(s->out, "FAIL %s, level %s, seed %llu: %s", s->begun ? sn_kernel_name(s->id) : s->check, c->level,
            (unsigned long long)s->seed, what);
    vfprintf(s->out, fmt, args);
    fputc('\n', s->out);
}

static void fail(struct kcheck *c, const char *fmt, ...) SENNIT_PRINTF(2, 3);
static void fail(struct kcheck *c, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fail_va(c, "", fmt, args);
    va_end(args);
}

void kcheck_expect(struct kcheck *c, bool ok, const char *fmt, ...)
{
    c->state->n_cases++;
    if (ok)
        return;
    va_list args;
    va_start(args, fmt);
    fail_va(c, "expected: ", fmt, args);
    va_end(args);
}

void kcheck_note(struct kcheck *c, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(c->state->out, "  %-18s %-11s ", sn_kernel_name(c->state->id), c->level);
    vfprintf(c->state->out, fmt, args);
    fputc('\n', c->state->out);
    va_end(args);
}

static bool is_golden(const struct kcheck *c)
{
    return strcmp(c->level, "golden") == 0;
}

/* Reports the slot that was begun. */
static void end_slot(struct kcheck *c)
{
    struct kcheck_state *s = c->state;
    if (!s->begun)
        return;
    kcheck_end_case(c);
    if (is_golden(c)) {
        s->digest[s->id] = XXH3_64bits_digest(s->hash);
        if (!c->opts->print_golden && s->digest[s->id] != kcheck_golden[s->id])
            fail(c, "the specification's digest is 0x%016llX, golden.h has 0x%016llX",
                 (unsigned long long)s->digest[s->id], (unsigned long long)kcheck_golden[s->id]);
    }
    if (!c->opts->print_golden && (s->n_values || s->n_slot_failures))
        fprintf(s->out, "  %-18s %-11s %llu values %s, %llu cases%s\n", sn_kernel_name(s->id), c->level,
                (unsigned long long)s->n_values, is_golden(c) ? "hashed" : "compared", (unsigned long long)s->n_cases,
                s->n_slot_failures ? "  FAILED" : "");
    s->begun = false;
}

bool kcheck_wanted(const struct kcheck *c, enum sn_kernel_id id)
{
    const char *k = c->opts->kernel;
    return !k || strcmp(k, sn_kernel_name(id)) == 0 || strcmp(k, c->state->check) == 0;
}

bool kcheck_begin(struct kcheck *c, enum sn_kernel_id id)
{
    struct kcheck_state *s = c->state;
    end_slot(c);
    bool own = c->ref == c->dut || strcmp(c->dut->variant[id], c->level) == 0;
    if (!own || !kcheck_wanted(c, id))
        return false;
    s->begun = true;
    s->n_compared += !is_golden(c);
    s->id = id;
    s->n_values = s->n_cases = s->n_slot_failures = 0;
    s->label[0] = '\0';
    c->rng.state = s->seed + (uint64_t)id * 0x1000003; /* --kernel gives the same inputs as the whole run */
    XXH3_64bits_reset(s->hash);
    return true;
}

/* ---- buffers --------------------------------------------------------------------------------- */

void *kcheck_out(struct kcheck *c, size_t n_bytes, size_t align)
{
    struct kcheck_state *s = c->state;
    struct sn_guard *g = &s->buffer[s->n_buffers];
    if (s->n_buffers == MAX_BUFFERS || !sn_guard_init(g, n_bytes, align, 0xA5)) {
        fprintf(stderr,
                "kcheck: %s: no memory for a buffer of %zu bytes, or more than %d buffers in one "
                "case\n",
                sn_kernel_name(s->id), n_bytes, MAX_BUFFERS);
        abort();
    }
    s->n_buffers++;
    return g->data;
}

float *kcheck_f32(struct kcheck *c, size_t n, enum kcheck_shape shape)
{
    float *x = kcheck_out(c, n * sizeof *x, sizeof *x);
    kcheck_fill(&c->rng, x, n, shape);
    return x;
}

void *kcheck_in(struct kcheck *c, const void *data, size_t n_bytes, size_t align)
{
    void *p = kcheck_out(c, n_bytes, align);
    if (n_bytes)
        memcpy(p, data, n_bytes);
    sn_guard_read_only(&c->state->buffer[c->state->n_buffers - 1], true);
    return p;
}

void kcheck_end_case(struct kcheck *c)
{
    struct kcheck_state *s = c->state;
    for (size_t i = 0; i < s->n_buffers; i++) {
        if (!sn_guard_intact(&s->buffer[i]))
            fail(c, "wrote outside a buffer of %zu bytes; %s", s->buffer[i].n_bytes, s->label);
        sn_guard_release(&s->buffer[i]);
    }
    s->n_buffers = 0;
}

/* ---- comparison ------------------------------------------------------------------------------ */

static uint32_t to_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* One NaN for all: payloads are promised nowhere. */
static uint32_t canonical(float f)
{
    return f != f ? 0x7FC00000u : to_bits(f);
}

void kcheck_same_f32(struct kcheck *c, const float *want, const float *got, size_t n, const char *fmt, ...)
{
    struct kcheck_state *s = c->state;
    va_list args;
    va_start(args, fmt);
    vsnprintf(s->label, sizeof s->label, fmt, args);
    va_end(args);
    s->n_cases++;
    s->n_values += n;
    size_t n_bad = 0, first = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t u = canonical(want[i]);
        if (is_golden(c))
            XXH3_64bits_update(s->hash, &u, sizeof u);
        if (u != canonical(got[i]) && n_bad++ == 0)
            first = i;
    }
    if (n_bad)
        fail(c, "%zu of %zu differ, the first at %zu: %a instead of %a; %s", n_bad, n, first, (double)got[first],
             (double)want[first], s->label);
}

void kcheck_same_bytes(struct kcheck *c, const void *want, const void *got, size_t n_bytes, const char *fmt, ...)
{
    struct kcheck_state *s = c->state;
    va_list args;
    va_start(args, fmt);
    vsnprintf(s->label, sizeof s->label, fmt, args);
    va_end(args);
    s->n_cases++;
    s->n_values += n_bytes;
    if (is_golden(c))
        XXH3_64bits_update(s->hash, want, n_bytes);
    const uint8_t *a = want, *b = got;
    for (size_t i = 0; i < n_bytes; i++)
        if (a[i] != b[i]) {
            fail(c, "byte %zu of %zu is 0x%02X instead of 0x%02X; %s", i, n_bytes, b[i], a[i], s->label);
            return;
        }
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Time of this thread: what others do on the machine counts as little as it can. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double kcheck_time(struct kcheck *c, enum sn_kernel_id id, const char *what, double work, const char *unit,
                   void (*fn)(void *arg), void *arg)
{
    enum { RUNS = 15 };
    size_t n = 1;
    for (double t = 0; t < 1e-3; n *= 2) { /* so many calls that the clock does not matter */
        double start = now();
        for (size_t i = 0; i < n; i++)
            fn(arg);
        t = now() - start;
        if (t >= 1e-3)
            break;
    }
    double run[RUNS];
    for (size_t r = 0; r < RUNS; r++) {
        double start = now();
        for (size_t i = 0; i < n; i++)
            fn(arg);
        run[r] = (now() - start) / (double)n;
    }
    qsort(run, RUNS, sizeof *run, by_value);
    double t = run[RUNS / 2];
    fprintf(c->state->out, "  %-14s %-11s %-34s %10.3f us %9.2f %s\n", sn_kernel_name(id), c->dut->variant[id], what,
            t * 1e6, work / t * 1e-9, unit);
    fflush(c->state->out);
    return t;
}

/* ---- crashes --------------------------------------------------------------------------------- */

static sigjmp_buf crash_jump;
static volatile sig_atomic_t crash_armed;

static void on_crash(int signal_number)
{
    if (crash_armed) {
        crash_armed = 0;
        siglongjmp(crash_jump, signal_number);
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static const int crash_signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};

static void trap_crashes(struct sigaction old[])
{
    struct sigaction action = {.sa_handler = on_crash, .sa_flags = SA_NODEFER};
    for (size_t i = 0; i < SN_ARRAY_LEN(crash_signals); i++)
        sigaction(crash_signals[i], &action, &old[i]);
}

static void restore_crashes(const struct sigaction old[])
{
    for (size_t i = 0; i < SN_ARRAY_LEN(crash_signals); i++)
        sigaction(crash_signals[i], &old[i], NULL);
}

/* Runs one list entry; a crash ends it with a failure that names the kernel. */
static void run_guarded(struct kcheck *c, const char *name, void (*fn)(struct kcheck *c))
{
    struct kcheck_state *s = c->state;
    s->check = name;
    s->begun = false;
    int signal_number = sigsetjmp(crash_jump, 1);
    if (signal_number == 0) {
        crash_armed = 1;
        fn(c);
    } else {
        fail(c, "crashed with %s (after: %s); the rest of check '%s' was not run", strsignal(signal_number),
             s->label[0] ? s->label : "nothing", name);
        for (size_t i = 0; i < s->n_buffers; i++)
            sn_guard_release(&s->buffer[i]);
        s->n_buffers = 0;
        s->begun = false;
    }
    crash_armed = 0;
    end_slot(c);
}

/* ---- passes ---------------------------------------------------------------------------------- */

static void run_pass(struct kcheck *c)
{
    fprintf(c->state->out, "%s%s\n", c->opts->print_golden ? "/* digests of the specification " : "level ",
            c->opts->print_golden ? "*/" : c->level);
    for (size_t i = 0; i < SN_ARRAY_LEN(entries); i++) {
        if (c->opts->bench)
            run_guarded(c, entries[i].name, entries[i].bench);
        else
            run_guarded(c, entries[i].name, entries[i].check);
        fflush(c->state->out);
    }
}

static void run_golden(struct kcheck *c)
{
    struct kcheck_opts fixed = {
        .quick = true, .seed = 1, .kernel = c->opts->kernel, .print_golden = c->opts->print_golden};
    struct kcheck g = *c;
    uint64_t seed = c->state->seed;
    c->state->seed = 1;
    g.opts = &fixed;
    g.level = "golden";
    run_pass(&g);
    c->state->seed = seed;
    if (c->opts->print_golden)
        for (size_t i = 0; i < SN_K_COUNT; i++)
            fprintf(c->state->out, "    [SN_K_%s] = 0x%016llX,\n", sn_kernel_name((enum sn_kernel_id)i),
                    (unsigned long long)c->state->digest[i]);
}

/* The table of one level; the baseline scalar table is the one without any. */
static bool level_table(struct sn_kernels *k, const char *level, const struct sn_cpu *cpu)
{
    struct sn_cpu plain = *cpu;
    enum sn_isa isa = SN_ISA_SCALAR;
    if (strcmp(level, "scalar") == 0)
        plain.fma = false;
    else if (strcmp(level, "scalar-fma") == 0 && !cpu->fma)
        return false;
    else if (strcmp(level, "scalar-fma") != 0 && !sn_isa_parse(level, &isa))
        return false;
    return sn_isa_available(&plain, isa) && sn_kernels_init(k, isa, &plain, NULL) == SENNIT_OK;
}

static void run_levels(struct kcheck *c, const struct sn_cpu *cpu)
{
    static const struct {
        const char *name;
        enum sn_isa isa;
    } levels[] = {{"scalar", SN_ISA_SCALAR},
                  {"scalar-fma", SN_ISA_SCALAR},
                  {"avx2", SN_ISA_AVX2},
                  {"avx512", SN_ISA_AVX512},
                  {"neon", SN_ISA_NEON}};
    if (c->opts->table) {
        c->level = c->opts->table->variant[SN_K_add];
        c->dut = c->opts->table;
        run_pass(c);
        return;
    }
    for (size_t i = 0; i < SN_ARRAY_LEN(levels); i++) {
        struct sn_kernels table;
        bool wanted = c->opts->isa < 0 || c->opts->isa == (int)levels[i].isa;
        if (!wanted || (i == 0 && !c->opts->bench) || !level_table(&table, levels[i].name, cpu))
            continue;
        c->level = levels[i].name;
        c->dut = &table;
        run_pass(c);
    }
}

const char *kcheck_name(size_t i)
{
    if (i < SN_K_COUNT)
        return sn_kernel_name((enum sn_kernel_id)i);
    i -= SN_K_COUNT;
    return i < SN_ARRAY_LEN(entries) ? entries[i].name : NULL;
}

static bool known(const char *kernel)
{
    for (size_t i = 0; kcheck_name(i); i++)
        if (strcmp(kernel, kcheck_name(i)) == 0)
            return true;
    fprintf(stderr, "kcheck: --kernel: no kernel or check is called '%s'\n", kernel);
    return false;
}

/* What the options name must be there: a run that compares nothing is no proof. */
static bool can_run(const struct kcheck_opts *o, const struct sn_cpu *cpu)
{
    if (o->kernel && !known(o->kernel))
        return false;
    if (o->isa < 0 || o->table || sn_isa_available(cpu, (enum sn_isa)o->isa))
        return true;
    fprintf(stderr, "kcheck: --isa: this CPU has no %s; its best level is %s\n", sn_isa_name((enum sn_isa)o->isa),
            sn_isa_name(sn_isa_best(cpu)));
    return false;
}

/* After a run: a level was asked for, and none of its own kernels was met. Where the CPU has no FMA
 * the scalar level is the specification itself, and its digests were the check. */
static bool met_nothing(const struct kcheck_state *s, const struct kcheck_opts *o, const struct sn_cpu *cpu)
{
    bool itself = o->isa == (int)SN_ISA_SCALAR && !cpu->fma;
    if (o->print_golden || o->bench || o->isa < 0 || s->n_compared || itself)
        return false;
    fprintf(stderr,
            "kcheck: level %s has no kernel of its own for '%s', so nothing was compared; leave out "
            "--isa\n",
            sn_isa_name((enum sn_isa)o->isa), o->kernel ? o->kernel : "any check");
    return true;
}

int kcheck_main(const struct kcheck_opts *opts)
{
    struct sn_cpu cpu = sn_cpu_detect();
    if (!can_run(opts, &cpu))
        return KCHECK_CANNOT;
    struct sn_kernels ref;
    struct kcheck_state s = {.out = opts->out ? opts->out : stdout, .check = ""};
    struct kcheck c = {.opts = opts, .ref = &ref, .dut = &ref, .level = "accuracy", .state = &s};
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    s.seed = opts->seed ? opts->seed : ((uint64_t)t.tv_nsec << 20 ^ (uint64_t)t.tv_sec) % 1000000007 + 1;
    s.hash = XXH3_createState();
    if (!s.hash || !level_table(&ref, "scalar", &cpu)) {
        XXH3_freeState(s.hash);
        return 1;
    }
    if (!opts->print_golden)
        fprintf(s.out, "kcheck on %s, best level %s, seed %llu\n", cpu.brand[0] ? cpu.brand : "an unnamed CPU",
                sn_isa_name(sn_isa_best(&cpu)), (unsigned long long)s.seed);

    struct sigaction old[SN_ARRAY_LEN(crash_signals)];
    struct sn_fpenv env = sn_fp_enter();
    trap_crashes(old);
    if (opts->bench) {
        run_levels(&c, &cpu);
    } else {
        if (!opts->table)
            run_golden(&c);
        if (!opts->print_golden && !opts->table)
            run_guarded(&c, "math", kcheck_accuracy);
        if (!opts->print_golden)
            run_levels(&c, &cpu);
    }
    restore_crashes(old);
    sn_fp_leave(env);
    XXH3_freeState(s.hash);
    if (s.n_failures == 0 && met_nothing(&s, opts, &cpu))
        return KCHECK_CANNOT;
    if (!opts->print_golden && !opts->bench)
        fprintf(s.out, s.n_failures ? "kcheck: %llu FAILURES\n" : "kcheck: all equal (%llu failures)\n",
                (unsigned long long)s.n_failures);
    return s.n_failures != 0;
}

/* ---- arguments ------------------------------------------------------------------------------- */

static bool parse_value(const char *flag, const char *value, struct kcheck_opts *o)
{
    enum sn_isa isa;
    char *end;
    if (strcmp(flag, "--kernel") == 0) {
        o->kernel = value;
        return known(value);
    }
    if (strcmp(flag, "--isa") == 0) {
        if (!sn_isa_parse(value, &isa)) {
            fprintf(stderr, "kcheck: --isa takes scalar, avx2, avx512 or neon, not '%s'\n", value);
            return false;
        }
        o->isa = (int)isa;
        return true;
    }
    o->seed = strtoull(value, &end, 0);
    if (*value && !*end)
        return true;
    fprintf(stderr, "kcheck: --seed takes a number, not '%s'\n", value);
    return false;
}

bool kcheck_parse(int argc, char **argv, struct kcheck_opts *o)
{
    *o = (struct kcheck_opts){.isa = -1};
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (strcmp(a, "--long") == 0) {
            o->long_run = true;
        } else if (strcmp(a, "--quick") == 0) {
            o->quick = true;
        } else if (strcmp(a, "--bench") == 0) {
            o->bench = true;
        } else if (strcmp(a, "--print-golden") == 0) {
            o->print_golden = true;
        } else if ((strcmp(a, "--kernel") == 0 || strcmp(a, "--isa") == 0 || strcmp(a, "--seed") == 0) &&
                   i + 1 < argc) {
            if (!parse_value(a, argv[++i], o))
                return false;
        } else {
            fprintf(stderr,
                    "kcheck: unknown or incomplete argument '%s'; there are --kernel NAME, --isa "
                    "LEVEL, "
                    "--seed N, --long, --quick, --bench, --print-golden\n",
                    a);
            return false;
        }
    }
    return true;
}
