/* A caller with an unusual floating-point environment: flush to zero, denormals are zero, another
 * rounding direction. The answers are the same and the caller gets its environment back. */
#include "engine/run.h"
#include "model/model.h"
#include "support/tiny_model.h"

#include <fenv.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { N_ROWS = 3, N_PROMPT = 20 };

#if defined(__SSE2__)
#include <xmmintrin.h>
enum { FTZ = 0x8000, DAZ = 0x0040, TOWARD_ZERO = 0x6000, STICKY = 0x3F };
static unsigned environment(void)
{
    return _mm_getcsr() & ~(unsigned)STICKY;
}
static void set_flush(void)
{
    _mm_setcsr((_mm_getcsr() & ~0x6000u) | FTZ | DAZ | TOWARD_ZERO);
}
static void set_plain(void)
{
    _mm_setcsr(0x1F80);
}
#else
static unsigned environment(void)
{
    return (unsigned)fegetround();
}
static void set_flush(void)
{
    fesetround(FE_TOWARDZERO);
}
static void set_plain(void)
{
    fesetround(FE_TONEAREST);
}
#endif
static void set_upward(void)
{
    fesetround(FE_UPWARD);
}
static void set_downward(void)
{
    fesetround(FE_DOWNWARD);
}

/* Everything from opening to freeing in the environment in force. */
static void whole_life(const char *path, const char *isa, uint32_t n_threads,
                       struct run_result *results)
{
    struct sennit_model *m = NULL;
    MUST(sennit_model_open(&m, path, NULL, err));
    struct run_setting s = {.isa = isa, .n_threads = n_threads, .chunk = 7, .max_rows = N_ROWS};
    struct sennit_engine *engine = run_engine(m, &s);
    int32_t ids[N_ROWS][N_PROMPT];
    struct run_job jobs[N_ROWS];
    uint64_t state = 5;
    for (uint32_t i = 0; i < N_ROWS; i++) {
        run_random_ids(&state, sennit_model_get_info(m)->n_vocab, ids[i], N_PROMPT);
        jobs[i] = (struct run_job){
            .prompt = ids[i],
            .n_prompt = N_PROMPT - i,
            .max_tokens = 10,
            .cancel_step = RUN_NEVER,
            .sampling = {.temperature = (float)i * 0.5f, .top_p = i ? 0.9f : 0.0f, .seed = i}};
    }
    run_jobs(engine, jobs, N_ROWS, results);
    sennit_engine_free(engine);
    sennit_model_free(m);
}

static size_t one_model(sennit_type type)
{
    static const struct {
        const char *name;
        void (*set)(void);
    } environments[] = {{"flush to zero, denormals are zero, rounding toward zero", set_flush},
                        {"rounding up", set_upward},
                        {"rounding down", set_downward}};
    static struct run_result want[N_ROWS], got[N_ROWS];
    struct tiny_spec spec = tiny_spec_default();
    spec.type = spec.embd_type = type;
    char path[256];
    run_tiny_path(&spec, path);
    set_plain();
    whole_life(path, "scalar", 1, want);
    size_t n = 0;
    for (const char *const *isa = run_isas(); *isa; isa++)
        for (uint32_t threads = 1; threads <= 2; threads++)
            for (size_t e = 0; e < sizeof environments / sizeof *environments; e++) {
                environments[e].set();
                unsigned before = environment();
                whole_life(path, *isa, threads, got);
                unsigned after = environment();
                set_plain();
                CHECK(before == after, "%s: the caller's environment was %x and is %x",
                      environments[e].name, before, after);
                for (int i = 0; i < N_ROWS; i++, n++)
                    CHECK(got[i].digest == want[i].digest && got[i].n_answer == want[i].n_answer &&
                              memcmp(got[i].answer, want[i].answer,
                                     sizeof *got[i].answer * want[i].n_answer) == 0 &&
                              memcmp(got[i].logprobs, want[i].logprobs,
                                     sizeof(float) * want[i].n_answer) == 0,
                          "%s, %s, %s, %u threads, row %d: digest %016" PRIx64 ", not %016" PRIx64,
                          sennit_type_name(type), *isa, environments[e].name, threads, i,
                          got[i].digest, want[i].digest);
            }
    run_unlink(path);
    return n;
}

/* What opening a model computes, in double and before any step, comes out the same to the last bit:
 * a few answers of a small model would not show it. */
static void opening(void)
{
    static void (*const set[])(void) = {set_flush, set_upward, set_downward};
    struct tiny_spec spec = tiny_spec_default();
    struct sennit_model *plain = NULL, *foreign = NULL;
    char path[256];
    run_tiny_path(&spec, path);
    set_plain();
    MUST(sennit_model_open(&plain, path, NULL, err));
    for (size_t e = 0; e < sizeof set / sizeof *set; e++) {
        set[e]();
        MUST(sennit_model_open(&foreign, path, NULL, err));
        set_plain();
        CHECK(memcmp(&foreign->hp, &plain->hp, sizeof plain->hp) == 0, "other hyperparameters");
        CHECK(memcmp(foreign->rope_freq, plain->rope_freq,
                     plain->hp.n_rot / 2 * sizeof *plain->rope_freq) == 0,
              "environment %zu: other rotation frequencies", e);
        sennit_model_free(foreign);
    }
    sennit_model_free(plain);
    run_unlink(path);
    printf("opening: rotation frequencies and scales do not depend on the caller's environment\n");
}

int main(void)
{
    opening();
    static const sennit_type types[] = {SENNIT_F32, SENNIT_F16, SENNIT_Q8_0, SENNIT_Q4_1};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t n = one_model(types[i]);
        printf("%s: %zu rows in 3 foreign environments equal those in the plain one, which was "
               "given back each time\n",
               sennit_type_name(types[i]), n);
    }
    return 0;
}
