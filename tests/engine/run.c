#include "engine/run.h"

#include "base/cpu.h"
#include "support/tiny_model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Noreturn void run_die(const char *file, int line, const char *call, sennit_status status,
                       const struct sennit_error *err)
{
    fprintf(stderr, "%s:%d: %s: %s: %s\n", file, line, call, sennit_status_name(status), err->message);
    exit(1);
}

_Noreturn void run_fail(const char *file, int line, const char *what, const char *fmt, ...)
{
    va_list ap;
    fprintf(stderr, "%s:%d: not true: %s\n    ", file, line, what);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(1);
}

/* Takes all events that are there; true when END was among them. */
static bool drain(struct sennit_request *request, struct run_result *out)
{
    for (;;) {
        struct sennit_event ev;
        MUST(sennit_request_next_event(request, &ev, 0, err));
        if (ev.kind == SENNIT_EVENT_NONE)
            return false;
        if (ev.kind == SENNIT_EVENT_TOKEN) {
            CHECK(out->n_answer < RUN_MAX_ANSWER, "more than %d tokens", RUN_MAX_ANSWER);
            out->logprobs[out->n_answer] = ev.logprob;
            out->answer[out->n_answer++] = ev.id;
        }
        if (ev.kind == SENNIT_EVENT_END) {
            out->digest = ev.digest;
            out->finish = ev.finish;
            out->error = ev.error;
            out->n_prefill_spans = ev.n_prefill_spans;
            return true;
        }
    }
}

static struct sennit_request *submit(struct sennit_engine *engine, const struct run_job *job)
{
    struct sennit_request_options o = {
        .prompt = job->prompt,
        .n_prompt = job->n_prompt,
        .max_tokens = job->max_tokens,
        .sampling = job->sampling,
        .ignore_eos = true,
        .want_logprob = true,
    };
    struct sennit_request *request = NULL;
    MUST(sennit_engine_submit(engine, &o, &request, err));
    return request;
}

uint32_t run_jobs(struct sennit_engine *engine, const struct run_job *jobs, size_t n_jobs, struct run_result *results)
{
    struct sennit_request *requests[RUN_MAX_ROWS] = {NULL};
    bool done[RUN_MAX_ROWS] = {false};
    size_t n_done = 0;
    uint32_t most_rows = 0;
    CHECK(n_jobs <= RUN_MAX_ROWS, "%zu jobs", n_jobs);
    memset(results, 0, n_jobs * sizeof *results);
    for (uint32_t step = 0; n_done < n_jobs; step++) {
        CHECK(step < 1000000, "the engine makes no progress");
        for (size_t i = 0; i < n_jobs; i++) {
            if (jobs[i].join_step == step)
                requests[i] = submit(engine, &jobs[i]);
            if (jobs[i].cancel_step == step)
                sennit_request_cancel(requests[i]);
        }
        bool worked;
        MUST(sennit_engine_step(engine, &worked, err));
        const struct sennit_step_span *spans;
        uint32_t n_rows = worked ? sennit_engine_last_step(engine, &spans) : 0;
        most_rows = n_rows > most_rows ? n_rows : most_rows;
        for (size_t i = 0; i < n_jobs; i++)
            if (requests[i] && !done[i] && drain(requests[i], &results[i])) {
                done[i] = true;
                n_done++;
            }
    }
    for (size_t i = 0; i < n_jobs; i++)
        sennit_request_free(requests[i]);
    return most_rows;
}

struct sennit_engine *run_engine(const struct sennit_model *model, const struct run_setting *s)
{
    struct sennit_engine_options o = {.isa = s->isa,
                                      .n_threads = s->n_threads,
                                      .chunk = s->chunk,
                                      .max_rows = s->max_rows,
                                      .step_tokens = s->step_tokens,
                                      .cache_bytes = (uint64_t)4 << 30,
                                      .no_pin = true};
    struct sennit_engine *engine = NULL;
    MUST(sennit_engine_create(&engine, model, &o, err));
    return engine;
}

const char *const *run_isas(void)
{
    static const char *const all[] = {"scalar", "avx2", "avx512", NULL}, *const two[] = {"scalar", "avx2", NULL},
                             *const one[] = {"scalar", NULL};
    struct sn_cpu cpu = sn_cpu_detect();
    return cpu.avx512 ? all : cpu.avx2 ? two : one;
}

uint64_t run_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

void run_random_ids(uint64_t *state, uint32_t n_vocab, int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)(run_random(state) % n_vocab);
}

void run_tiny_path(const struct tiny_spec *spec, char path[256])
{
    const char *dir = getenv("TMPDIR");
    snprintf(path, 256, "%s/sennit-test-XXXXXX", dir && *dir ? dir : "/tmp");
    int fd = mkstemp(path);
    CHECK(fd >= 0, "cannot make a temporary file in %s", path);
    close(fd);
    tiny_model_write(spec, path);
}

void run_unlink(const char *path)
{
    unlink(path);
}

uint64_t run_calls(struct sennit_engine *engine, const char *kernel, uint32_t thread, const char **variant)
{
    const struct sennit_stats *s = sennit_engine_stats(engine);
    for (uint32_t i = 0; i < s->n_kernels; i++)
        if (strcmp(s->kernels[i].kernel, kernel) == 0) {
            if (variant)
                *variant = s->kernels[i].variant;
            return s->kernels[i].calls[thread];
        }
    return 0;
}

const char *run_smollm2_path(void)
{
    static char path[1024];
    const char *given = getenv("SENNIT_SMOLLM2"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (given && *given)
        snprintf(path, sizeof path, "%s", given);
    else if (cache && *cache)
        snprintf(path, sizeof path, "%s/sennit/SmolLM2-135M-Instruct.Q4_1.gguf", cache);
    else
        snprintf(path, sizeof path, "%s/.cache/sennit/SmolLM2-135M-Instruct.Q4_1.gguf", home ? home : "");
    return access(path, R_OK) == 0 ? path : NULL;
}
