/* An engine with a thread of its own, and threads that ask it questions: threads MODEL.gguf PROMPT [N]
 *
 * N threads (4) submit the same prompt whenever they like and wait for their answers. The rows meet in the engine's
 * batch; all answers have one digest. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sennit/sennit.h>

struct asker {
    pthread_t thread;
    struct sennit_engine *engine;
    const struct sennit_tokens *prompt;
    uint64_t digest;
    int failed;
};

static void *ask(void *arg)
{
    struct asker *a = arg;
    struct sennit_error err;
    struct sennit_request *request;
    struct sennit_event event = {0};
    const struct sennit_request_options o = {
        .prompt = a->prompt->ids, .n_prompt = a->prompt->n_ids, .max_tokens = 24};
    a->failed = 1;
    if (sennit_engine_submit(a->engine, &o, &request, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return NULL;
    }
    while (event.kind != SENNIT_EVENT_END && !sennit_request_next_event(request, &event, -1, &err))
        ;
    a->digest = event.digest;
    a->failed = event.kind != SENNIT_EVENT_END || event.finish == SENNIT_FINISH_ERROR;
    sennit_request_free(request);
    return NULL;
}

int main(int argc, char **argv)
{
    struct sennit_error err;
    struct sennit_model *model = NULL;
    struct sennit_engine *engine = NULL;
    struct sennit_tokens prompt = {0};
    int n = argc > 3 ? atoi(argv[3]) : 4, failed = 0;
    if (argc < 3 || n < 1 || n > 1000) {
        fprintf(stderr, "usage: threads MODEL.gguf PROMPT [1 .. 1000]\n");
        return 2;
    }
    if (sennit_model_open(&model, argv[1], NULL, &err) || sennit_engine_create(&engine, model, NULL, &err) ||
        sennit_engine_start(engine, &err) ||
        sennit_tokenize(sennit_model_tokenizer(model), argv[2], strlen(argv[2]), SENNIT_TOKENIZE_BOS, &prompt,
                        &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    struct asker *askers = calloc((size_t)n, sizeof *askers);
    if (!askers)
        return 1;
    for (int i = 0; i < n; i++) {
        askers[i].engine = engine;
        askers[i].prompt = &prompt;
        if (pthread_create(&askers[i].thread, NULL, ask, &askers[i]))
            return 1;
    }
    for (int i = 0; i < n; i++) {
        pthread_join(askers[i].thread, NULL);
        printf("thread %d: digest %016llx\n", i, (unsigned long long)askers[i].digest);
        failed |= askers[i].failed || askers[i].digest != askers[0].digest;
    }
    sennit_engine_stop(engine, false);
    printf("%s\n", failed ? "something went wrong" : "one digest");
    free(askers);
    sennit_tokens_free(&prompt);
    sennit_engine_free(engine);
    sennit_model_free(model);
    return failed;
}
