/* Driving an engine from a test: a list of jobs with join and cancel steps, and what came of them. */
#ifndef ENGINE_RUN_H
#define ENGINE_RUN_H

#include "sennit/sennit.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ends the test program with a message when a call fails. */
#define MUST(call)                                                                                                   \
    do {                                                                                                             \
        struct sennit_error must_err_ = {0};                                                                         \
        struct sennit_error *err = &must_err_;                                                                       \
        sennit_status must_status_ = (call);                                                                         \
        if (must_status_ != SENNIT_OK)                                                                               \
            run_die(__FILE__, __LINE__, #call, must_status_, &must_err_);                                            \
    } while (0)
#define CHECK(condition, ...)                                                                                        \
    do {                                                                                                             \
        if (!(condition))                                                                                            \
            run_fail(__FILE__, __LINE__, #condition, __VA_ARGS__);                                                   \
    } while (0)

_Noreturn void run_die(const char *file, int line, const char *call, sennit_status status,
                       const struct sennit_error *err);
_Noreturn void run_fail(const char *file, int line, const char *what, const char *fmt, ...) SENNIT_PRINTF(4, 5);

enum { RUN_MAX_ROWS = 64, RUN_MAX_ANSWER = 128 };
#define RUN_NEVER UINT32_MAX

struct run_job {
    const int32_t *prompt;
    size_t n_prompt;
    uint32_t max_tokens;
    struct sennit_sampling sampling;
    uint32_t join_step;   /* submitted before this step */
    uint32_t cancel_step; /* cancelled before this step; RUN_NEVER = not */
};

struct run_result {
    uint64_t digest;
    sennit_finish finish;
    struct sennit_error error;
    int32_t answer[RUN_MAX_ANSWER];
    float logprobs[RUN_MAX_ANSWER];
    size_t n_answer;
    uint32_t n_prefill_spans;
};

/* Runs all jobs to their ends in this thread. Returns the most rows that one step had. */
uint32_t run_jobs(struct sennit_engine *engine, const struct run_job *jobs, size_t n_jobs,
                  struct run_result *results);

/* One setting of the cross. */
struct run_setting {
    const char *isa;
    uint32_t n_threads, chunk, max_rows;
    uint32_t step_tokens; /* 0 = the engine's own choice */
};
/* An engine for the setting, or NULL where the CPU lacks the instruction set. */
struct sennit_engine *run_engine(const struct sennit_model *model, const struct run_setting *s);

/* "scalar", "avx2", "avx512", as far as this CPU has them; NULL-terminated. */
const char *const *run_isas(void);

/* splitmix64. */
uint64_t run_random(uint64_t *state);
/* n ids in [0, n_vocab). */
void run_random_ids(uint64_t *state, uint32_t n_vocab, int32_t *ids, size_t n);

/* A model file in a temporary place, removed by run_unlink. */
struct tiny_spec;
void run_tiny_path(const struct tiny_spec *spec, char path[256]);
void run_unlink(const char *path);

/* Calls of a kernel in one thread; 0 when it was never called. *variant (may be NULL) is who filled its slot. */
uint64_t run_calls(struct sennit_engine *engine, const char *kernel, uint32_t thread, const char **variant);

/* SmolLM2's file, or NULL when this machine has none: $SENNIT_SMOLLM2, else the cache folder of the scripts. */
const char *run_smollm2_path(void);

#endif
