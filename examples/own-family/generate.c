/* An engine whose caches are of a family of one's own: generate MODEL PROMPT [f8 | f8-e5m2 | plain] */
#include <sennit/sennit.h>
#include <stdio.h>
#include <string.h>

#include "f8.h"

static const struct sennit_family *family_of(const char *name)
{
    return strcmp(name, "f8") == 0 ? &f8_e4m3 : strcmp(name, "f8-e5m2") == 0 ? &f8_e5m2 : NULL;
}

int main(int argc, char **argv)
{
    struct sennit_error err;
    struct sennit_model *model;
    struct sennit_engine *engine;
    struct sennit_request *request;
    struct sennit_tokens input = {0};
    struct sennit_event event = {0};
    if (argc < 3)
        return fprintf(stderr, "usage: generate MODEL PROMPT [f8 | f8-e5m2 | plain]\n"), 2;
    struct sennit_engine_options options = {.cache_external = family_of(argc > 3 ? argv[3] : "f8")};
    if (sennit_model_open(&model, argv[1], NULL, &err) || sennit_engine_create(&engine, model, &options, &err) ||
        sennit_engine_start(engine, &err) ||
        sennit_tokenize(sennit_model_tokenizer(model), argv[2], strlen(argv[2]), SENNIT_TOKENIZE_BOS, &input, &err) ||
        sennit_engine_submit(
            engine, &(struct sennit_request_options){.prompt = input.ids, .n_prompt = input.n_ids, .max_tokens = 32},
            &request, &err))
        return fprintf(stderr, "%s\n", err.message), 1;
    while (event.kind != SENNIT_EVENT_END && !sennit_request_next_event(request, &event, -1, &err))
        printf("%.*s", (int)event.n_text, event.text ? event.text : "");
    sennit_engine_stop(engine, false);
    const struct sennit_stats *stats = sennit_engine_stats(engine);
    printf("\n[%s, %llu bytes per token, digest %016llx]\n", stats->cache_family,
           (unsigned long long)stats->cache_bytes_per_token, (unsigned long long)event.digest);
    sennit_request_free(request);
    sennit_tokens_free(&input);
    sennit_engine_free(engine);
    sennit_model_free(model);
    return 0;
}
