/* Memory on a real model: loading, running, and the books against the operating system's.
 *
 *   loading    the most that was ever resident <= file + repacked weights + 64 MB
 *   running    16 rows of 1,024 tokens: resident <= repacked weights + caches by formula + 64 MB
 *   every step live cache bytes <= promised bytes <= budget; 0 and 0 at the end
 *
 *   memory [--load PATH]    --load: only opens the file and says what that took; the test runs
 * itself so */
#include "engine/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_ROWS = 16, N_TOKENS = 1024, N_ANSWER = 40 };
static const uint64_t ROOM = (uint64_t)64 << 20;

/* "VmRSS", "VmHWM" of this process, in bytes. */
static uint64_t resident(const char *what)
{
    FILE *in = fopen("/proc/self/status", "r");
    char line[256];
    unsigned long long kib = 0;
    CHECK(in != NULL, "/proc/self/status cannot be read");
    while (fgets(line, sizeof line, in))
        if (strncmp(line, what, strlen(what)) == 0 && line[strlen(what)] == ':')
            kib = strtoull(line + strlen(what) + 1, NULL, 10);
    fclose(in);
    CHECK(kib != 0, "no %s in /proc/self/status", what);
    return kib * 1024;
}

static double mb(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static int only_load(const char *path)
{
    struct sennit_model *m = NULL;
    MUST(sennit_model_open(&m, path, NULL, err));
    const struct sennit_model_info *info = sennit_model_get_info(m);
    uint64_t peak = resident("VmHWM"), after = resident("VmRSS");
    uint64_t allowed = info->file_bytes + info->weight_bytes + ROOM;
    printf("loading: file %.1f MB, repacked %.1f MB; resident at most %.1f MB, after it %.1f MB; "
           "allowed %.1f MB\n",
           mb(info->file_bytes), mb(info->weight_bytes), mb(peak), mb(after), mb(allowed));
    CHECK(peak <= allowed, "too much");
    sennit_model_free(m);
    return 0;
}

/* In a process of its own, whose high-water mark is the loading's. */
static void load_elsewhere(const char *path)
{
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        execl("/proc/self/exe", "memory", "--load", path, (char *)NULL);
        _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
          "the loading process failed");
}

struct most {
    uint64_t cache, reserved, resident;
    uint32_t rows;
    size_t n_steps;
};

static void watch(struct sennit_engine *engine, struct most *most)
{
    const struct sennit_stats *s = sennit_engine_stats(engine);
    CHECK(s->cache_bytes <= s->cache_reserved && s->cache_reserved <= s->cache_budget,
          "step %zu: %llu bytes live, %llu promised, %llu budget", most->n_steps,
          (unsigned long long)s->cache_bytes, (unsigned long long)s->cache_reserved,
          (unsigned long long)s->cache_budget);
    most->n_steps++;
    most->cache = s->cache_bytes > most->cache ? s->cache_bytes : most->cache;
    most->reserved = s->cache_reserved > most->reserved ? s->cache_reserved : most->reserved;
    most->rows = s->rows_running > most->rows ? s->rows_running : most->rows;
    uint64_t now = resident("VmRSS");
    most->resident = now > most->resident ? now : most->resident;
}

static void run(const char *path)
{
    struct sennit_model *m = NULL;
    struct sennit_engine *engine = NULL;
    struct sennit_request *requests[N_ROWS];
    struct most most = {0};
    uint64_t state = 1;
    MUST(sennit_model_open(&m, path, NULL, err));
    const struct sennit_model_info *info = sennit_model_get_info(m);
    struct sennit_engine_options o = {.max_rows = N_ROWS, .cache_bytes = (uint64_t)1 << 30};
    MUST(sennit_engine_create(&engine, m, &o, err));
    for (int i = 0; i < N_ROWS; i++) {
        int32_t ids[N_TOKENS];
        run_random_ids(&state, info->n_vocab, ids, N_TOKENS);
        struct sennit_request_options r = {.prompt = ids,
                                           .n_prompt = N_TOKENS - N_ANSWER,
                                           .max_tokens = N_ANSWER,
                                           .ignore_eos = true};
        MUST(sennit_engine_submit(engine, &r, &requests[i], err));
    }
    for (bool worked = true; worked;) {
        MUST(sennit_engine_step(engine, &worked, err));
        watch(engine, &most);
    }
    const struct sennit_stats *s = sennit_engine_stats(engine);
    uint64_t formula = s->cache_bytes_per_token * N_ROWS * N_TOKENS,
             allowed = info->weight_bytes + formula + ROOM;
    printf("running: %u rows of %d tokens, %zu steps; repacked %.1f MB, caches by formula %.1f MB "
           "(promised %.1f MB, most "
           "live %.1f MB); resident at most %.1f MB; allowed %.1f MB; the engine's own books at "
           "most %.1f MB\n",
           most.rows, N_TOKENS, most.n_steps, mb(info->weight_bytes), mb(formula),
           mb(most.reserved), mb(most.cache), mb(most.resident), mb(allowed), mb(s->heap_peak));
    /* Prompts are read one after the other; the first row still runs when the last one has been
     * read. */
    CHECK(most.rows == N_ROWS && most.cache >= formula / 10 * 9,
          "the rows were not all there at once");
    CHECK(most.resident <= allowed, "too much");
    CHECK(s->cache_bytes == 0 && s->cache_reserved == 0,
          "%llu bytes of cache, %llu promised are left", (unsigned long long)s->cache_bytes,
          (unsigned long long)s->cache_reserved);
    for (int i = 0; i < N_ROWS; i++) {
        struct sennit_event ev = {0};
        while (ev.kind != SENNIT_EVENT_END)
            MUST(sennit_request_next_event(requests[i], &ev, 0, err));
        CHECK(ev.finish == SENNIT_FINISH_LENGTH && ev.n_generated == N_ANSWER, "row %d: %s", i,
              ev.error.message);
        sennit_request_free(requests[i]);
    }
    sennit_engine_free(engine);
    sennit_model_free(m);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--load") == 0)
        return only_load(argv[2]);
    const char *path = run_smollm2_path();
    if (!path) {
        printf("SKIPPED: no SmolLM2 model file here; scripts/fetch-smollm2.sh gets it, or set "
               "SENNIT_SMOLLM2\n");
        return 77;
    }
    load_elsewhere(path);
    run(path);
    return 0;
}
